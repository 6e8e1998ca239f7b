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

/* ---- Packing, for kernels that run their own blocks; only where there is a unit ------------------*/

/* to[i] = (x[i], y[i]), y NULL: (x[i], 0). */
void cpu_bf16_pairs(const uint16_t *x, const uint16_t *y, int64_t n, uint32_t *to);

/* The same of pairs of channels, so many elements each, of n lines: to[l * ld + c / 2 * size + i]. */
void cpu_bf16_pair_lines(const uint16_t *x, int64_t ls, int64_t n, int64_t cs, int64_t channels,
                         int64_t size, uint32_t *to, int64_t ld);

/* n lines of k elements each, ls apart, as a strip; zeros after n lines, none after k. */
void cpu_bf16_strip(const bf16_unit *u, const uint16_t *from, int64_t ls, int64_t k, int64_t n,
                    uint32_t *to);

/* n lines as a panel of `width` columns; zeros after k elements up to so many pairs. */
void cpu_bf16_panel(const uint16_t *from, int64_t ls, int64_t k, int64_t n, int64_t width,
                    int64_t pairs, uint32_t *to);

/* Elements x[from + i * step] of n, which go to to[at + i]. */
typedef struct bf16_run {
    int64_t from, at, n, step;
} bf16_run;

enum { BF16_LANES = 32, BF16_PAIR_LANES = 16 }; /* the most elements, or pairs, of a run */

/* For each of the lines at line[l] of x: its runs to to + l * ld. */
void cpu_bf16_runs(const uint16_t *x, const bf16_run *run, int64_t runs, const int64_t *line,
                   int64_t lines, int64_t ld, uint16_t *to);
void cpu_bf16_runs_of_pairs(const uint32_t *x, const bf16_run *run, int64_t runs,
                            const int64_t *line, int64_t lines, int64_t ld, uint32_t *to);

/* The best that this processor has, NULL: none. The same at each call. */
const bf16_unit *cpu_bf16_unit(void);

#endif
