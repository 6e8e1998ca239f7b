/* conv_bf16.h: convolutions of bfloat16 by the processor's own products (gemm_bf16.h). */
#ifndef TENON_CPU_CONV_BF16_H
#define TENON_CPU_CONV_BF16_H

#include <stdbool.h>

#include <tenon/args_conv.h>

#include "conv_geometry.h"

/* Whether there are such products here and the sums are long enough for them. */
bool cpu_conv_bf16_fits(const geometry *g);

/* The operators' kernels where they fit. `high`: forward_room; `low`, `high` of the second: backward_room. */
tn_status cpu_conv_bf16(const tn_call *call, const tn__conv_args *a, const geometry *g,
                        const int64_t *high);
tn_status cpu_conv_bf16_backward_input(const tn_call *call, const tn__conv_backward_input_args *a,
                                       const geometry *g, const int64_t *low, const int64_t *high);
tn_status cpu_conv_bf16_backward_weight(const tn_call *call, const tn__conv_backward_weight_args *a,
                                        const geometry *g, const int64_t *high);

#endif
