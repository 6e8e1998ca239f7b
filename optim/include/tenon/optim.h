/* tenon/optim.h: optimizer steps and gradient clipping over lists of tensors, for C programs.
 *
 * Lists are parallel: entry i of every list belongs to params[i] and has its shape, dtype and device.
 * Each call is one pass over all elements. Values are written in place and counted as such; nothing
 * is recorded. All tensors are borrowed. TN_E_SHAPE, TN_E_DTYPE, TN_E_DEVICE: nothing was written. */
#ifndef TENON_OPTIM_H
#define TENON_OPTIM_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_sgd_options {
    double lr;
    double momentum; /* 0: momenta is not looked at */
    double dampening;
    double weight_decay;
    int32_t nesterov;
    int32_t maximize;
    int32_t first; /* the first step of these tensors: momenta are set, not updated */
    int32_t reserved;
} tn_sgd_options;

/* param -= lr * d, with d the gradient plus weight_decay * param, through its momentum. */
TN_API tn_status tn_sgd_update(tn_tensors params, tn_tensors grads, tn_tensors momenta,
                               const tn_sgd_options *options);

typedef struct tn_adam_options {
    double lr, beta1, beta2, eps, weight_decay;
    int32_t amsgrad;
    int32_t maximize;
    int32_t decoupled; /* AdamW: weights decay by themselves, not through the gradient */
    int32_t reserved;
} tn_adam_options;

/* Adam. max_exp_avg_sqs is looked at with amsgrad only. steps: 0-d float tensors, advanced by 1,
 * on the CPU, or on the device of the parameters so that its graphs can hold the step. */
TN_API tn_status tn_adam_update(tn_tensors params, tn_tensors grads, tn_tensors exp_avgs,
                                tn_tensors exp_avg_sqs, tn_tensors max_exp_avg_sqs,
                                tn_tensors steps, const tn_adam_options *options);

/* Scales the tensors so that the 2-norm of all of them together is max_norm at most; the norm there
 * was goes to *ret_norm (may be NULL). */
TN_API tn_status tn_clip_norm(tn_tensors tensors, double max_norm, double *ret_norm);

#ifdef __cplusplus
}
#endif
#endif
