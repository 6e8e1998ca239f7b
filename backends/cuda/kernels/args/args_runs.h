/* args_runs.h: what the kernels that find runs of equal elements take, and elements that are not zero. */
#ifndef CUDA_ARGS_RUNS_H
#define CUDA_ARGS_RUNS_H

#include "args.h"

/* n packed elements, cut into parts of CUDA_PART that a block each takes. */
enum { CUDA_PART = 4096 };
typedef struct cuda_runs_args {
    const void *x;
    int64_t *before;  /* runs that begin before each part, and behind them how many there are */
    int64_t *inverse; /* by element: the run that it belongs to */
    int64_t *first;   /* by run: where it begins */
    void *out;        /* by run: its element, */
    int64_t *counts;  /* and its length */
    int64_t n, parts, runs;
} cuda_runs_args;

/* Elements in logical order, one operand; as above, `before` counts those that are not zero. */
typedef struct cuda_nonzero_args {
    cuda_plan plan;
    int64_t *before;
    int64_t *out; /* coordinates, by row */
    int64_t shape[CUDA_DIMS];
    int32_t ndim, reserved;
} cuda_nonzero_args;

#endif
