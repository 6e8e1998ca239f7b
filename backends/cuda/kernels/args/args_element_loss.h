/* args_element_loss.h: losses that compare element by element. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_ELEMENT_LOSS_H
#define CUDA_ARGS_ELEMENT_LOSS_H

#include "args.h"

/* Operands of the plan: the gradient, or the input once more; input and target; weights as far as there
 * are any. Going forward a block adds up `span` groups of elements, and `parts` blocks share them. */
typedef struct cuda_element_loss_args {
    cuda_plan plan;
    int32_t how;                      /* COMPARE_* */
    int32_t weight_at, pos_weight_at; /* their operands, or 0 */
    int32_t parts;
    double number, divisor;
    const void *grad; /* of the loss, one element */
    void *y;          /* the loss, one element */
    double *partial;  /* of each block */
    int64_t groups, span;
} cuda_element_loss_args;

#endif
