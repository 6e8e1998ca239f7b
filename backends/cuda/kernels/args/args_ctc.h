/* args_ctc.h: connectionist temporal classification. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_CTC_H
#define CUDA_ARGS_CTC_H

#include "args.h"

/* All tensors are packed. A target of n labels has 2n + 1 places, of which rows have `width`. */
typedef struct cuda_ctc_args {
    const void *x;          /* (steps, batch, classes) */
    const int64_t *targets; /* (batch, row) where row is not 0, else one sample after the other */
    const int64_t *times, *lengths;
    void *loss, *grad; /* (batch) */
    void *alpha;       /* (batch, steps, width) */
    void *beta;        /* the same of the type computed in */
    int64_t *start; /* (batch): where a sample's labels begin, -1 where something is out of range */
    void *y;        /* the gradient of x */
    int64_t steps, batch, classes, width, row, labels, blank;
    int32_t zero_infinity, reserved;
    cuda_fault *fault;
    uint64_t op;
} cuda_ctc_args;

#endif
