/* args_rnn.h: the pointwise part of a step of recurrent networks. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_RNN_H
#define CUDA_ARGS_RNN_H

#include "args.h"

enum { CUDA_RNN_INPUTS = 6, CUDA_RNN_OUTPUTS = 3 };

/* All operands are packed: a state has n elements to a row, gates 3 n or 4 n. They are in the order of
 * the operators' signatures; a gradient that did not come is NULL. */
typedef struct cuda_rnn_args {
    const void *in[CUDA_RNN_INPUTS];
    void *out[CUDA_RNN_OUTPUTS];
    int64_t numel; /* of the state */
    int64_t n;
    int32_t narrow; /* gates count in 32 bits */
    int32_t reserved;
} cuda_rnn_args;

#endif
