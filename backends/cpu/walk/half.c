/* half.c: packed rows between half precision and f32, compiled per instruction set.
 *
 * isa: each */
#include "half.h"

#include "common/tmpl.h"

static void widen(float *dst, const uint16_t *src, int64_t n, int32_t dtype) {
    if (dtype == TN_BF16) {
        for (int64_t i = 0; i < n; i++) dst[i] = tmpl_from_bf16(src[i]);
    } else {
        for (int64_t i = 0; i < n; i++) dst[i] = tmpl_from_f16(src[i]);
    }
}

static void narrow(uint16_t *dst, const float *src, int64_t n, int32_t dtype) {
    if (dtype == TN_BF16) {
        for (int64_t i = 0; i < n; i++) dst[i] = tmpl_to_bf16(src[i]);
    } else {
#if HALF_F16C
        half_narrow(dst, src, n);
#else
        for (int64_t i = 0; i < n; i++) dst[i] = tmpl_to_f16(src[i]);
#endif
    }
}

const cpu_half ISA_(cpu_half) = {widen, narrow};
