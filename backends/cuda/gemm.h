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
    void **room; /* of several products of one call: the workspace that they share, NULL at first */
} cuda_product;
tn_status cuda_gemm_product(const tn_call *call, const cuda_product *p);

/* Whether cuda_gemm takes such an operand: its rows or its columns are packed. */
bool cuda_gemm_takes(const cuda_matrix *m);

/* c = a @ b + bias, a row as long as c's, packed, in one step by cuBLASLt. TN_DECLINE: it has no way,
 * and nothing was written. */
tn_status cuda_gemm_bias(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                         const cuda_matrix *c, const void *bias);

/* ---- For the files that call the libraries -----------------------------------------------------*/

/* A matrix as cuBLAS sees it: its transpose, since it counts by columns. */
typedef struct cuda_operand {
    const void *data;
    int op, ld;
    int64_t batch;
} cuda_operand;
/* False where neither rows nor columns are packed. */
bool cuda_gemm_describe(const cuda_matrix *m, cuda_operand *ret_operand);

/* How a floating type is stored and computed. */
typedef struct cuda_number_type {
    int data, compute;
} cuda_number_type;
cuda_number_type cuda_number_type_of(int32_t dtype, bool tf32);

/* Whether partial sums of a half precision product may be rounded to half precision. */
bool cuda_gemm_reduces(int32_t dtype);

/* Whether products of float32 may be computed in TF32. */
void cuda_allow_tf32(int32_t allow);
int32_t cuda_is_tf32_allowed(void);

#endif
