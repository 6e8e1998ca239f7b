/* attention.h: the ways to compute attention. */
#ifndef CUDA_ATTENTION_H
#define CUDA_ATTENTION_H

#include "cuda_priv.h"

#include <tenon/args_nn.h>

/* attention_cudnn.c: by cuDNN. TN_DECLINE: there is none, or it has no way for this one. */
tn_status cuda_attention_by_cudnn(const tn_call *call, const tn__flash_attention_args *in);
tn_status cuda_attention_backward_by_cudnn(const tn_call *call,
                                           const tn__flash_attention_backward_args *in);

#endif
