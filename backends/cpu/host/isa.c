/* isa.c: which instruction set the kernels are taken from. TENON_CPU_ISA=baseline|avx2|avx512 picks a lower one
 * than the machine has, for tests; where it names one, tiles (AMX) are not used. */
#include <string.h>

#include "cpu_priv.h"

static const char *const names[] = {"baseline", "avx2", "avx512"};

const char *cpu_isa_name(cpu_isa isa) { return names[isa]; }

/* The best that this machine runs and this plugin was built with. */
static cpu_isa best_isa(void) {
#if defined(CPU_BASELINE_ONLY)
    return CPU_ISA_BASELINE;
#else
    return cpu_os_isa();
#endif
}

cpu_isa cpu_isa_pick(void) {
    cpu_isa best = best_isa();
    const char *asked = cpu_os_getenv("TENON_CPU_ISA");
    if (!asked || !*asked) return best;
    for (cpu_isa i = CPU_ISA_BASELINE; i <= CPU_ISA_AVX512; i++) {
        if (strcmp(asked, names[i]) != 0) continue;
        if (i <= best) return i;
        cpu_host->log(2, "TENON_CPU_ISA asks for %s, the best here is %s", asked, names[best]);
        return best;
    }
    cpu_host->log(2, "TENON_CPU_ISA is '%s', none of baseline, avx2, avx512; ignored", asked);
    return best;
}

bool cpu_isa_tiles(void) {
    const char *asked = cpu_os_getenv("TENON_CPU_ISA");
    return (!asked || !*asked) && best_isa() == CPU_ISA_AVX512 && cpu_os_tiles();
}
