/* gemm.h: matrix products by cuBLAS, for strided matrices in the order of rows. */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H

#include "cuda_priv.h"

/* rows x columns elements, strides in elements; `batch` is the stride from matrix to matrix. */
typedef struct cuda_matrix {
    void *data;
    int64_t rows, columns, row, column, batch;
} cuda_matrix;

/* c = alpha * a @ b + beta * c, for each of `n` matrices. */
typedef struct cuda_product {
    const cuda_matrix *a, *b, *c;
    int64_t n;
    double alpha, beta;
    double alpha_im, beta_im; /* of complex numbers */
    bool widened;             /* c is float32 although a and b have half precision */
    bool tf32;                /* float32 may be computed in TF32 */
    void **room; /* of several products of one call: the workspace that they share, NULL at first */
} cuda_product;
/* TN_DECLINE: not these strides or sizes. */
tn_status cuda_gemm_product(const tn_call *call, const cuda_product *p);

/* c = alpha * a @ b + beta * init, of integers, by a kernel of ours that takes any strides; init may be
 * c itself, or NULL. */
tn_status cuda_gemm_int(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                        const cuda_matrix *c, const cuda_matrix *init, int64_t n, int64_t alpha,
                        int64_t beta);

/* Whether cuda_gemm_product takes such an operand: its rows or its columns are packed. */
bool cuda_gemm_takes(const cuda_matrix *m);

/* v as a matrix: all dimensions in front of the last one are rows. A packed copy where no single stride
 * leads from row to row. */
tn_status cuda_gemm_rows(const tn_call *call, const tn_view *v, cuda_matrix *ret_matrix);
/* A matrix the other way round. */
cuda_matrix cuda_gemm_turned(const cuda_matrix *m);

/* What follows on a product in the same step. Vectors are packed. */
typedef struct cuda_gemm_end {
    int what; /* one of the epilogues in cublaslt.h */
    const void
        *bias; /* a row like c's that is added. With CUBLASLT_GELU_GRADIENT the sum of c's rows
                         goes there, with CUBLASLT_SUM_OF_B the sums of a's rows; NULL: none */
    const void *pre; /* what gelu is taken of, written or read: packed rows like c's; NULL: none */
} cuda_gemm_end;

/* c = end(a @ b), by cuBLASLt. TN_DECLINE: it has no way, and nothing was written. */
tn_status cuda_gemm_with_end(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                             const cuda_matrix *c, const cuda_gemm_end *end);

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

#endif
