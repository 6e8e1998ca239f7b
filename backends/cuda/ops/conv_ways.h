/* conv_ways.h: convolutions without cuDNN. */
#ifndef CUDA_CONV_WAYS_H
#define CUDA_CONV_WAYS_H

#include "conv.h"

/* conv_columns.c: products with a matrix of columns, by cuBLAS. The matrix has bounded memory: work
 * that needs more is cut into pieces. */
tn_status cuda_columns_forward(const tn_call *call, const cuda_conv *c);
tn_status cuda_columns_input(const tn_call *call, const cuda_conv *c);
tn_status cuda_columns_weight(const tn_call *call, const cuda_conv *c);

/* conv_depthwise.c: groups of one channel of x, by kernels of their own. */
tn_status cuda_depthwise_forward(const tn_call *call, const cuda_conv *c);
tn_status cuda_depthwise_input(const tn_call *call, const cuda_conv *c);
tn_status cuda_depthwise_weight(const tn_call *call, const cuda_conv *c);

#endif
