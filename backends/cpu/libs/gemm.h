/* gemm.h: products of matrices for the rest of the backend.
 *
 * C = alpha * A @ B + beta * C, where A is (m, k), B is (k, n), C is (m, n), once per batch entry.
 * Strides are in elements and arbitrary. The grid of tiles that the work is cut into depends on the
 * sizes alone, so that results do not depend on the number of threads. */
#ifndef TENON_CPU_GEMM_H
#define TENON_CPU_GEMM_H

#include <stdbool.h>

#include <tenon/plugin.h>

typedef struct gemm_mat {
    const void *data; /* borrowed */
    int64_t rs, cs;   /* strides of rows and columns */
    int64_t bs;       /* stride from one batch entry to the next; 0 repeats the matrix */
} gemm_mat;

typedef struct gemm_args {
    int32_t dtype; /* slot; any built-in dtype but bool */
    int32_t reserved;
    int64_t batch, m, n, k;
    gemm_mat a, b;
    gemm_mat init; /* what beta multiplies, broadcast by strides of 0; data NULL: C itself */
    void *c;
    int64_t c_rs, c_cs, c_bs;
    tn_scalar alpha, beta;
} gemm_args;

/* Runs on the backend's threads. TN_E_MEMORY, TN_E_VALUE for sizes that the BLAS cannot take. */
tn_status cpu_gemm(const tn_call *call, const gemm_args *g);

/* Serial products of packed-row matrices, for kernels that run their own tiles: row-major C with
 * leading dimension ldc; `ta` and `tb` say that the operand is stored transposed. */
void cpu_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void cpu_dgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a,
               int64_t lda, const double *b, int64_t ldb, double beta, double *c, int64_t ldc);

/* A serial product of bfloat16 matrices for the same kernels, where cpu_has_bf16_tiles() says that it is many
 * times as fast as one of float: C (m, n) = [C +] A @ B in float; strides are in elements. A is the sum of
 * `parts` matrices that lie `part` apart: what rounding to bfloat16 took from the first may be the second. */
typedef struct bf16_product {
    int64_t m, n, k;
    const uint16_t *a, *b;
    int64_t a_rs, a_cs, b_rs, b_cs, parts, part;
    float *c;
    int64_t c_rs; /* its columns are packed */
    bool add;     /* to what C holds */
} bf16_product;
bool cpu_has_bf16_tiles(void);
/* `room`: memory for so many floats. */
int64_t cpu_bf16_product_room(int64_t m, int64_t n, int64_t k);
void cpu_bf16_product(const bf16_product *p, float *room);

/* Makes the BLAS single-threaded and picks conversions. Called once, when the plugin is activated. */
void cpu_blas_init(void);
/* Name of the core that the BLAS was tuned for, for people. */
const char *cpu_blas_core(void);
/* Warns where OpenBLAS runs with kernels of processors that are much older. */
void cpu_blas_warn(void);

#endif
