/* args_factor.h: factors of matrices and what is solved with them. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_FACTOR_H
#define CUDA_ARGS_FACTOR_H

#include "args.h"

enum {
    CUDA_FACTOR_WIDTH = 32,   /* columns that are factored at a time */
    CUDA_FACTOR_ORDER = 8192, /* rows whose order shared memory holds */
};

/* `count` packed matrices of rows x columns each. Columns first .. first + width - 1 are worked on. */
typedef struct cuda_factor_args {
    void *a;
    void *b;          /* (count, rows, right): what is solved */
    const void *from; /* of the same shape: what rows are taken of in their order; NULL: of the unit
                       * matrix */
    int32_t *pivots;  /* (count, least): row i was exchanged with row pivots[i], counted from 1 */
    int32_t *info;    /* (count): 0, or the first step that failed, counted from 1 */
    int64_t *order;   /* (count, rows): which row of the matrix is which row of its factors */
    void *sign, *log; /* (count): the determinant, or with `log` its direction and its size */
    int64_t count, rows, columns, right, least, first, width;
    int32_t unit, reserved; /* ones are on the diagonal, whatever is there */
    cuda_fault *fault;
    uint64_t op;
} cuda_factor_args;

#endif
