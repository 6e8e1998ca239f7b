/* args_optim.h: what the kernels over lists of tensors take. */
#ifndef CUDA_ARGS_OPTIM_H
#define CUDA_ARGS_OPTIM_H

#include "args.h"

/* Up to CUDA_TENSORS tensors in one launch: parameter, gradient and state by element. Block b works on
 * the tensor i with first[i] <= b < first[i + 1], CUDA_CHUNK elements each. */
enum { CUDA_TENSORS = 48, CUDA_CHUNK = 4096, CUDA_LISTS = 5 };
typedef struct cuda_adam_size {
    double minus_step, root; /* common/adam.h */
} cuda_adam_size;
typedef struct cuda_step_tensor {
    void *data[CUDA_LISTS]; /* parameter, gradient, state */
    int64_t n;
    cuda_adam_size size; /* Adam, with counters on the host */
    void *counter;       /* Adam, with counters on the device: float or double */
} cuda_step_tensor;

enum { CUDA_NORM_ABS, CUDA_NORM_SQUARES, CUDA_NORM_LARGEST };
typedef struct cuda_step_args {
    int32_t n, norm; /* CUDA_NORM_* */
    int32_t first[CUDA_TENSORS + 2];
    double sign, decay, momentum, keep, minus_lr;         /* gradient descent */
    double lr, beta1, beta2, shrink, toward, square, eps; /* Adam */
    int32_t decays, nesterov, is_first, coupled, wide_counters, reserved;
    cuda_adam_size *sizes; /* Adam, with counters on the device: of each tensor; else NULL */
    const double *factor;  /* scaling: of one element, on the device */
    double unscale;        /* unscaling: the factor, */
    float *found;          /* and what becomes 1 if an element is not finite */
    double *parts;         /* norms: a sum for each block, */
    void *norms;           /* and a result for each tensor */
    cuda_step_tensor tensor[CUDA_TENSORS];
} cuda_step_args;

#endif
