/* args_sample.h: what permutations and draws of column numbers take. */
#ifndef CUDA_ARGS_SAMPLE_H
#define CUDA_ARGS_SAMPLE_H

#include "args.h"

/* A permutation of 0 .. n - 1; `holder` has a word for each position. */
typedef struct cuda_permute_args {
    int64_t *data;
    uint32_t *holder;
    int64_t n;
    cuda_draws draws;
    const cuda_draws *launch; /* NULL outside of graphs */
} cuda_permute_args;

/* Draws from rows of weights, packed. */
typedef struct cuda_sample_args {
    const void *weights;
    void *scores; /* of the weights' type: the largest ones are drawn */
    double *sums; /* or running sums, the last one 1: a uniform number falls between two */
    int64_t *drawn;
    int64_t rows, columns, k; /* k numbers are drawn from a row */
    cuda_draws draws;
    const cuda_draws *launch; /* NULL outside of graphs */
    cuda_fault *fault;
    uint64_t op;
} cuda_sample_args;

#endif
