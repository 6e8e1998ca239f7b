/* args_optim.h: what the kernels over lists of tensors take. adam.h and rule_size.h go in front of it. */
#ifndef CUDA_ARGS_OPTIM_H
#define CUDA_ARGS_OPTIM_H

#include "args.h"

/* Up to CUDA_TENSORS tensors in one launch: parameter, gradient and state by element. Block b works on
 * the tensor i with first[i] <= b < first[i + 1], CUDA_CHUNK elements each. */
enum { CUDA_TENSORS = 44, CUDA_CHUNK = 4096, CUDA_LISTS = 5, CUDA_COUNTERS = 3 };
typedef union cuda_step_size {
    adam_size adam;
    rule_size rule;
} cuda_step_size;
typedef struct cuda_step_tensor {
    void *data[CUDA_LISTS]; /* parameter, gradient, state */
    int64_t n;
    union {
        cuda_step_size size;          /* the host counts the steps */
        void *counter[CUDA_COUNTERS]; /* the device does: the count, and numbers of a rule */
    };
} cuda_step_tensor;

/* The numbers of TN_LISTS_STEP_*, which kernels do not see. */
enum {
    CUDA_LISTS_FILL,
    CUDA_LISTS_SCALE,
    CUDA_LISTS_DIVIDE,
    CUDA_LISTS_SHIFT,
    CUDA_LISTS_COPY,
    CUDA_LISTS_ADD,
    CUDA_LISTS_MUL,
    CUDA_LISTS_LERP,
    CUDA_LISTS_ADDCMUL,
    CUDA_LISTS_ADDCDIV
};

enum { CUDA_NORM_ABS, CUDA_NORM_SQUARES, CUDA_NORM_LARGEST };
typedef struct cuda_step_args {
    int32_t n, norm; /* CUDA_NORM_* */
    int32_t first[CUDA_TENSORS + 2];
    double sign, decay, momentum, keep, lr; /* gradient descent */
    double beta1, beta2, own, toward, square,
        eps; /* Adam; own: the decay of the parameter by itself */
    int32_t decays, nesterov, is_first, coupled;
    int32_t wide_counters, wide_rate;
    const void *rate;      /* the learning rate on the device, float or double; or NULL: lr */
    rule_options rule;     /* the other optimizers */
    cuda_step_size *sizes; /* of each tensor, where the device counts the steps; else NULL */
    const double *factor;  /* scaling: of one element, on the device */
    double value;          /* changes of lists */
    int32_t how, reserved; /* CUDA_LISTS_* */
    double unscale;        /* unscaling: the factor, */
    float *found;          /* and what becomes 1 if an element is not finite */
    double *parts;         /* norms: a sum for each block, */
    void *norms;           /* and a result for each tensor */
    cuda_step_tensor tensor[CUDA_TENSORS];
} cuda_step_args;

#endif
