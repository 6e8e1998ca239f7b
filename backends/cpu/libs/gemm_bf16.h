/* gemm_bf16.h: how a processor adds up products of packed bfloat16 matrices; see Note [Panels] of
 * gemm_bf16.c. */
#ifndef TENON_CPU_GEMM_BF16_H
#define TENON_CPU_GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

/* sum (rows of a strip, columns of a panel; rows ld apart) += strip @ panel over so many pairs. */
typedef struct bf16_add {
    const uint32_t *a, *b;
    int64_t pairs, ld;
    int64_t rows, cols; /* what is no zero of the strip and the panel, and of use in sum */
    float *sum;
    bool first; /* sum is written, not added to */
} bf16_add;

typedef struct bf16_unit {
    int64_t rows, cols; /* of a strip, of a panel */
    int64_t step, deep; /* pairs are a multiple of step; deep of them are added at a time */
    int64_t block_strips, block_panels; /* whose sums are kept before they are rounded */
    bool turned;                       /* strips hold a row's next BF16_TURNED pairs side by side */
    void (*begin)(void), (*end)(void); /* around `add` on each thread; NULL: nothing to do */
    void (*add)(const bf16_add *);
} bf16_unit;

enum { BF16_TURNED = 16 };

/* The best that this processor has, NULL: none. The same at each call. */
const bf16_unit *cpu_bf16_unit(void);

#endif
