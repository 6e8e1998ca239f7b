/* gemm.h: matrix products by cuBLAS, for strided matrices in the order of rows. */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H

#include "cuda_priv.h"

/* rows x columns elements, strides in elements; `batch` is the stride from matrix to matrix. */
typedef struct cuda_matrix {
    void *data;
    int64_t rows, columns, row, column, batch;
} cuda_matrix;

/* c = alpha * a @ b + beta * c, for each of `n` matrices. TN_DECLINE: not these strides or sizes. */
tn_status cuda_gemm(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                    const cuda_matrix *c, int64_t n, double alpha, double beta);

/* The same, with more to choose. */
typedef struct cuda_product {
    const cuda_matrix *a, *b, *c;
    int64_t n;
    double alpha, beta;
    bool widened; /* c is float32 although a and b have half precision */
    bool tf32;    /* float32 may be computed in TF32 */
} cuda_product;
tn_status cuda_gemm_product(const tn_call *call, const cuda_product *p);

/* Whether cuda_gemm takes such an operand: its rows or its columns are packed. */
bool cuda_gemm_takes(const cuda_matrix *m);

/* Whether products of float32 may be computed in TF32. */
void cuda_allow_tf32(int32_t allow);
int32_t cuda_is_tf32_allowed(void);

#endif
