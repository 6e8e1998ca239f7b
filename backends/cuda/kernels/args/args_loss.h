/* args_loss.h: losses whose targets are classes. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_LOSS_H
#define CUDA_ARGS_LOSS_H

#include "args.h"

enum { CUDA_LOSS_NONE, CUDA_LOSS_MEAN, CUDA_LOSS_SUM };

/* The input is (samples, classes, positions), strides in elements; each position of each sample is a
 * row. Everything that is by row or class is packed. Sums of losses and weights go by blocks, `width`
 * rows each, into `partial`. Gradients of packed rows go by blocks too, `parts` for the same rows. */
typedef struct cuda_loss_args {
    const void *x, *weight, *grad;
    const int64_t *target;
    void *y;              /* the loss, by row or one */
    void *out;            /* the gradient of x */
    void *most, *log_sum; /* cross_entropy: of each row, kept for the gradient */
    void *total;          /* of weights: what the mean is divided by */
    const void *given;    /* the same, where it is known already */
    double *partial;      /* (parts, 2) */
    int64_t rows, classes, positions, parts, ignore;
    int64_t x_stride[3];
    int64_t groups; /* of gradients: threads that share a row; of packed rows: packs of a part */
    int32_t reduction, width;
    int32_t lanes, whole; /* packed rows: threads of each; in packs of 16 bytes (packs.h) */
    int32_t wide;         /* totals are of the type computed in */
    int32_t narrow;       /* elements of x count in 32 bits */
    cuda_fault *fault;
    uint64_t op;
} cuda_loss_args;

#endif
