/* half.h: packed rows between half precision (TN_F16 or TN_BF16) and f32. */
#ifndef CPU_HALF_H
#define CPU_HALF_H

#include "cpu_priv.h"

typedef struct cpu_half {
    void (*widen)(float *dst, const uint16_t *src, int64_t n, int32_t dtype);
    void (*narrow)(uint16_t *dst, const float *src, int64_t n, int32_t dtype);
} cpu_half;

extern const cpu_half cpu_half_baseline, cpu_half_avx2, cpu_half_avx512;

#endif
