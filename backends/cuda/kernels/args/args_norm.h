/* args_norm.h: arguments of the kernels of layer_norm and batch_norm. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_NORM_H
#define CUDA_ARGS_NORM_H

#include <stdint.h>

enum {
    NORM_ROW_BYTES = 128, /* numbers of a row that a thread holds in registers */
    NORM_LAST_JOINED = 8  /* channels whose parts a block joins, norm_last.cu */
};

/* layer_norm, or rms_norm where there is no mean, of packed rows of n elements, `lanes` threads each: 1 << shift.
 * Gradients of weight and bias are sums of `parts` parts, `span` rows each, that lie in `partial` as
 * (parts, n, 2), by blocks of 1 << shift vectors of columns. */
typedef struct cuda_layer_norm_args {
    const void *x, *grad, *weight, *bias;
    void *y; /* the result, or the gradient of x */
    void *mean, *rstd, *grad_weight, *grad_bias, *partial;
    int64_t rows, n, span;
    int32_t lanes, parts;
    int32_t shift;
    int32_t whole;                  /* all vectors of rows and parameters are whole and aligned */
    int32_t wide_weight, wide_bias; /* they are of the type computed in */
    double eps;
} cuda_layer_norm_args;

/* batch_norm. Strides in elements, of sample, channel and position; parts of channels: norm.cu. Where channels
 * lie side by side (norm_last.cu) units are pixels, and `width` counts packs of channels. */
typedef struct cuda_batch_norm_args {
    const void *x, *grad, *weight, *bias;
    void *y; /* the result, or the gradient of x, or NULL */
    void *running_mean, *running_var, *mean, *rstd, *grad_weight, *grad_bias, *partial;
    void *sums; /* norm_last.cu: of g and of g (x - mean), per channel */
    int64_t samples, channels, positions, span;
    int64_t units; /* vectors of positions of a sample */
    int64_t x_stride[3], grad_stride[3], y_stride[3];
    int32_t parts, width, training, narrow; /* narrow: elements of a channel count in 32 bits */
    int32_t vector, x_whole, grad_whole,
        y_whole; /* positions of a unit; they may be moved at once */
    double momentum, eps;
} cuda_batch_norm_args;

#endif
