/* element_loss.c: losses that compare element by element: host side of kernels/element_loss.cu.
 *
 * family: element_loss */
#include "cuda_priv.h"

#include <tenon/args_loss.h>

#include "kernels/args/args_element_loss.h"

static cuda_float_kernels losses = CUDA_FLOAT_KERNELS(element_loss, element_loss),
                          finishes = CUDA_FLOAT_KERNELS(element_loss, element_loss_finish),
                          backwards = CUDA_FLOAT_KERNELS(element_loss, element_loss_backward);

/* The plan over result, input, target and the weights there are. */
static tn_status plan(const tn_view *result, const tn_view *x, const tn_view *target,
                      const tn_view *weight, const tn_view *pos_weight,
                      cuda_element_loss_args *ret) {
    const tn_view *views[CUDA_OPERANDS] = {result, x, target};
    int32_t n = 3;
    if (weight) views[ret->weight_at = n++] = weight;
    if (pos_weight) views[ret->pos_weight_at = n++] = pos_weight;
    return cuda_plan_views(views, n, &ret->plan);
}

/* One launch, or two where the elements are shared by several blocks. */
static tn_status element_loss(const tn_call *call, const void *args) {
    const tn__element_loss_args *in = args;
    cuda_element_loss_args a = {
        .how = (int32_t)in->how, .number = in->number, .divisor = in->divisor, .y = in->out->data};
    tn_status st = plan(in->input, in->input, in->target, in->weight, in->pos_weight, &a);
    if (st != TN_OK) return st;
    a.groups = cuda_plan_groups(&a.plan);
    a.parts = (int32_t)cuda_parts(a.groups, CUDA_BLOCK, 1);
    a.span = (a.groups + a.parts - 1) / a.parts;
    if (a.parts > 1) {
        void *partial = NULL;
        st = room_scratch(call, a.parts, sizeof *a.partial, &partial);
        a.partial = partial;
    }
    if (st == TN_OK)
        st = cuda_launch(call, cuda_float_kernel(call, losses), a.parts, CUDA_BLOCK, &a);
    if (st != TN_OK || a.parts == 1) return st;
    return cuda_launch(call, cuda_float_kernel(call, finishes), 1, CUDA_BLOCK, &a);
}

static tn_status element_loss_backward(const tn_call *call, const void *args) {
    const tn__element_loss_backward_args *in = args;
    cuda_element_loss_args a = {.how = (int32_t)in->how,
                                .number = in->number,
                                .divisor = in->divisor,
                                .grad = in->grad->data};
    tn_status st = plan(in->out, in->input, in->target, in->weight, in->pos_weight, &a);
    if (st != TN_OK) return st;
    return cuda_launch_plan(call, cuda_float_kernel(call, backwards), &a.plan);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_element_loss, element_loss),
    CUDA_FLOAT_ROWS(_element_loss_backward, element_loss_backward),
};
const cuda_rows cuda_element_loss_rows = CUDA_ROWS_OF(rows);
