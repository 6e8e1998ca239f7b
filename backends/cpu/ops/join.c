/* join.c: tensors beside each other: strided copies into one result, part after part.
 *
 * family: join */
#include "copy.h"

#include <tenon/args_create.h>

/* The dimensions of the whole that parts have. */
static void part_dims(const tn__join_args *a, tn_view *part, int64_t *strides) {
    part->ndim = 0;
    part->strides = strides;
    for (int32_t d = 0; d < a->whole->ndim; d++)
        if (!a->stacked || d != a->dim) strides[part->ndim++] = a->whole->strides[d];
}

/* Whether a part of the whole has no gaps. */
static bool are_packed(const tn__join_args *a) {
    const tn_view *whole = a->whole;
    bool packed = tn_view_is_contiguous(whole);
    for (int32_t d = 0; d < a->dim; d++) packed &= whole->shape[d] == 1;
    return packed;
}

static tn_status join(const tn_call *call, const void *args) {
    const tn__join_args *a = args;
    const tn_view *whole = a->whole;
    int64_t item = tn_view_itemsize(whole), step = whole->strides[a->dim] * item;
    int64_t strides[TN_MAX_DIMS];
    tn_view to = *whole;
    tn_status st = TN_OK;
    (void)call;
    part_dims(a, &to, strides);
    if (!are_packed(a)) to.word &= ~TN_W_CONTIGUOUS;
    for (int64_t i = 0; i < a->tensors.n && st == TN_OK; i++) {
        const tn_view *part = a->tensors.v[i];
        tn_plan plan;
        if (part->numel == 0) continue;
        to.shape = part->shape;
        to.numel = part->numel;
        cpu_plan_pair(&to, part, &plan);
        st = cpu_copy_plan(&plan, (int32_t)item);
        to.data = (char *)to.data + (a->stacked ? 1 : part->shape[a->dim]) * step;
    }
    return st;
}

static const tn_kernel_row rows_[] = {
    {"_join", TN_SIG__join, join, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
};
const cpu_rows cpu_join_rows = CPU_ROWS_OF(rows_);
