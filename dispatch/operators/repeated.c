/* repeated.c: in-place forms on tensors whose elements share places, as those of expanded ones do.
 * A place that is written for one of its elements is written for all of them, as in PyTorch: the
 * memory is taken as one row, and written at the places of the elements. Where a call is recorded,
 * there is no such form: the elements would have to share a gradient, too. */
#include <tenon/args_pointwise.h>
#include <tenon/args_create.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>

#include "call_priv.h"
#include "op_compare.h"
#include "op_create.h"
#include "repeated_priv.h"
#include "scope_priv.h"

typedef struct laid {
    tn_tensor *row;    /* the memory that is looked at */
    tn_tensor *places; /* of every element, in row */
} laid;

static laid lay(tni_scope *s, const tn_tensor *t) {
    int64_t low, high, one = 1;
    int32_t dtype = tn_view_dtype(&t->v);
    laid l = {NULL, NULL};
    if (!tni_reach(t->v.ndim, t->v.shape, t->v.strides, &low, &high)) {
        s->st =
            tn_fail(TN_E_SHAPE, 0, "the elements of %s reach too far", tni_shape_text_of(&t->v));
        return l;
    }
    int64_t size = high - low;
    l.row = SCOPE(s, tni_view_new(t, dtype, 1, &size, &one, low, scope_slot(s)));
    tn_tensor *all = SCOPE(s, tn_arange(tn_scalar_int(size), TN_I64,
                                        tni_device_of((tn_tensor *)(uintptr_t)t), scope_slot(s)));
    if (all)
        l.places = SCOPE(
            s, tni_view_new(all, TN_I64, t->v.ndim, t->v.shape, t->v.strides, -low, scope_slot(s)));
    return l;
}

void tni_warn_repeated(const char *name) {
    tni_host_log(2,
                 "Use of %s on expanded tensors is deprecated. Please clone() the tensor before "
                 "performing this operation. This also applies to advanced indexing e.g. "
                 "tensor[indices] = tensor",
                 name);
}

tn_status tni_index_put_repeated(tn_tensor *self, tn_tensors indices, tn_tensor *values,
                                 int64_t accumulate) {
    tni_scope s = {0};
    laid l = lay(&s, self);
    if (!l.places) return scope_finish(&s, NULL, NULL);
    tn_tensor *at = SCOPE(&s, tn_index(l.places, indices, scope_slot(&s)));
    SCOPE(&s, tn_index_put_(l.row, (tn_tensors){&at, 1}, values, accumulate, scope_slot(&s)));
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_index_fill_repeated(tn_tensor *self, int64_t dim, tn_tensor *index,
                                  tn_tensor *value) {
    tni_scope s = {0};
    laid l = lay(&s, self);
    if (!l.places) return scope_finish(&s, NULL, NULL);
    tn_tensor *at = SCOPE(&s, tn_index_select(l.places, dim, index, scope_slot(&s)));
    at = scope_reshape(&s, at, TN_INTS(-1));
    SCOPE(&s, tn_index_fill_(l.row, 0, at, value, scope_slot(&s)));
    return scope_finish(&s, NULL, NULL);
}

/* Of meta tensors nothing is written, and what a mask shows is not known. */
static tn_status fill_masked(tn_tensor *self, tn_tensor *mask, tn_tensor *value, tn_tensor **rets) {
    tni_scope s = {0};
    if (!tni_is_meta(&self->v)) {
        laid l = lay(&s, self);
        mask = scope_expand(&s, mask, tn_ints_of(self->v.shape, self->v.ndim));
        tn_tensor *at = SCOPE(&s, tn_masked_select(l.places, mask, scope_slot(&s)));
        SCOPE(&s, tn_index_fill_(l.row, 0, at, value, scope_slot(&s)));
    }
    if (s.st == TN_OK) rets[0] = tn_tensor_ref(self);
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_repeated_masked_fill(const void *args, tn_tensor **rets) {
    const tn_masked_fill_args *a = args;
    tni_warn_repeated("masked_fill_");
    return fill_masked(tni_t(a->input), tni_t(a->mask), tni_t(a->value), rets);
}

/* Zeros where the other triangle of ones is. */
static tn_status zero_outside(const tn_view *input, bool upper, int64_t diagonal,
                              tn_tensor **rets) {
    tni_scope s = {0};
    tn_scalar_box zero;
    tn_tensor *self = tni_t(input);
    const int64_t far = INT64_C(1) << 62;
    diagonal = diagonal > far ? far : diagonal < -far ? -far : diagonal;
    tn_tensor *mask = SCOPE(&s, tn_ones(tn_ints_of(input->shape, input->ndim), TN_BOOL,
                                        tni_device_of(self), scope_slot(&s)));
    if (mask)
        mask = upper ? SCOPE(&s, tn_tril(mask, diagonal - 1, scope_slot(&s)))
                     : SCOPE(&s, tn_triu(mask, diagonal + 1, scope_slot(&s)));
    if (mask) s.st = fill_masked(self, mask, tn_scalar_box_init(&zero, tn_scalar_int(0)), rets);
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_repeated_tril(const void *args, tn_tensor **rets) {
    const tn_tril_args *a = args;
    return zero_outside(a->input, false, a->diagonal, rets);
}

tn_status tni_repeated_triu(const void *args, tn_tensor **rets) {
    const tn_triu_args *a = args;
    return zero_outside(a->input, true, a->diagonal, rets);
}
