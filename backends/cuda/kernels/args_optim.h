/* args_optim.h: what the kernels over lists of tensors take. */
#ifndef CUDA_ARGS_OPTIM_H
#define CUDA_ARGS_OPTIM_H

#include "args.h"

/* Up to CUDA_TENSORS tensors in one launch: parameter, gradient and state by element. Block b works on
 * the tensor i with first[i] <= b < first[i + 1], CUDA_CHUNK elements each. */
enum { CUDA_TENSORS = 48, CUDA_CHUNK = 4096, CUDA_LISTS = 5 };
typedef struct cuda_step_tensor {
    void *data[CUDA_LISTS]; /* parameter, gradient, state */
    int64_t n;
    double minus_step, root; /* Adam: -lr / (1 - beta1^t), sqrt(1 - beta2^t) */
} cuda_step_tensor;

enum { CUDA_NORM_ABS, CUDA_NORM_SQUARES, CUDA_NORM_LARGEST };
typedef struct cuda_step_args {
    int32_t n, norm; /* CUDA_NORM_* */
    int32_t first[CUDA_TENSORS + 2];
    double sign, decay, momentum, keep, minus_lr; /* gradient descent */
    double shrink, toward, beta2, square, eps;    /* Adam */
    int32_t decays, nesterov, is_first, coupled;
    const double *factor; /* scaling: of one element, on the device */
    double unscale;       /* unscaling: the factor, */
    float *found;         /* and what becomes 1 if an element is not finite */
    double *parts;        /* norms: a sum for each block, */
    void *norms;          /* and a result for each tensor */
    cuda_step_tensor tensor[CUDA_TENSORS];
} cuda_step_args;

#endif
