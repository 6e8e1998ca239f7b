/* row.c: one row of elements at a time, copied or converted between half precision and f32. */
#include "row.h"

#include <string.h>

#include "common/tmpl.h"

#include "half.h"

int64_t cpu_row_item(int32_t dtype) {
    switch (dtype) {
#define ITEM_CASE(ID, slot, name, bytes, dl, cat, ctype)                                           \
    case TN_##ID: return bytes;
        TN_DTYPE_LIST(ITEM_CASE)
#undef ITEM_CASE
    default: return 1;
    }
}

void cpu_row_copy(int64_t item, const char *src, int64_t ss, char *dst, int64_t ds, int64_t n) {
    if (item == 4) {
        for (int64_t i = 0; i < n; i++) memcpy(dst + 4 * i * ds, src + 4 * i * ss, 4);
    } else if (item == 8) {
        for (int64_t i = 0; i < n; i++) memcpy(dst + 8 * i * ds, src + 8 * i * ss, 8);
    } else {
        size_t bytes = (size_t)item;
        for (int64_t i = 0; i < n; i++) {
            memcpy(dst + item * i * ds, src + item * i * ss, bytes);
        }
    }
}

static const cpu_half *half = &cpu_half_baseline;

void cpu_row_init(cpu_isa isa) {
#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
    if (isa == CPU_ISA_AVX2) half = &cpu_half_avx2;
    if (isa == CPU_ISA_AVX512) half = &cpu_half_avx512;
#endif
    (void)isa;
}

void cpu_row_convert(int32_t from, const char *src, int64_t ss, int32_t to, char *dst, int64_t ds,
                     int64_t n) {
    const uint16_t *hs = (const uint16_t *)(const void *)src;
    uint16_t *hd = (uint16_t *)(void *)dst;
    const float *fs = (const float *)(const void *)src;
    float *fd = (float *)(void *)dst;
    bool packed = ss == 1 && ds == 1;
    if (from == to) {
        cpu_row_copy(cpu_row_item(to), src, ss, dst, ds, n);
    } else if (from == TN_F32 && packed) {
        half->narrow(hd, fs, n, to);
    } else if (packed) {
        half->widen(fd, hs, n, from);
    } else if (from == TN_BF16) {
        for (int64_t i = 0; i < n; i++) fd[i * ds] = tmpl_from_bf16(hs[i * ss]);
    } else if (from == TN_F16) {
        for (int64_t i = 0; i < n; i++) fd[i * ds] = tmpl_from_f16(hs[i * ss]);
    } else if (to == TN_BF16) {
        for (int64_t i = 0; i < n; i++) hd[i * ds] = tmpl_to_bf16(fs[i * ss]);
    } else {
        for (int64_t i = 0; i < n; i++) hd[i * ds] = tmpl_to_f16(fs[i * ss]);
    }
}
