/* args_gemm.h: what products of integer matrices take. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_GEMM_H
#define CUDA_ARGS_GEMM_H

#include "args.h"

enum {
    GEMM_TILE = 64, /* rows and columns of the result that a block computes, */
    GEMM_DEEP = 16, /* so many products of each at a time, */
    GEMM_SIDE = 16, /* with a square of threads, */
    GEMM_EACH = 4   /* of which each has 4 x 4 results */
};

/* Strides in elements; `batch` is that from matrix to matrix. */
typedef struct cuda_gemm_matrix {
    void *data;
    int64_t row, column, batch;
} cuda_gemm_matrix;

/* c = alpha * a @ b + beta * init: `rows` x `deep` times `deep` x `columns`, for each matrix of a batch.
 * With beta 0, init is not read. Few results of many products are computed in `parts`, `span` products
 * each, whose sums lie in `partial`, by result, as 64-bit words. */
typedef struct cuda_gemm_args {
    cuda_gemm_matrix a, b, c, init;
    int64_t rows, columns, deep;
    int64_t parts, span;
    uint64_t *partial;
    int64_t alpha, beta;
} cuda_gemm_args;

#endif
