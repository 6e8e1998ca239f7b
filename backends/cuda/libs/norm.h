/* norm.h: the ways to compute batch_norm. */
#ifndef CUDA_NORM_H
#define CUDA_NORM_H

#include "cuda_priv.h"

#include <tenon/args_norm.h>

/* norm_cudnn.c: by cuDNN, all but the running statistics. TN_DECLINE: there is none, or it has no way
 * for this one. */
tn_status cuda_batch_norm_by_cudnn(const tn_call *call, const tn_native_batch_norm_args *in);
tn_status cuda_batch_norm_backward_by_cudnn(const tn_call *call,
                                            const tn__batch_norm_backward_args *in);

#endif
