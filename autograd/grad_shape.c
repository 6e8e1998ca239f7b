/* grad_shape.c: gradients of operators that take or return lists, and of as_strided. They are made of
 * differentiable operators, so that gradients of gradients need nothing more. */
#include <tenon/op_args.h>
#include <tenon/ops.h>

#include "core_priv.h"
#include "formula_priv.h"

tn_status tni_grad_cat(tn_gctx *c);
tn_status tni_grad_stack(tn_gctx *c);
tn_status tni_grad_split_with_sizes(tn_gctx *c);
tn_status tni_grad_unbind(tn_gctx *c);
tn_status tni_grad__as_strided(tn_gctx *c);

/* ---- Lists in ----------------------------------------------------------------------------------*/

static bool needed(const tn_gctx *c, int64_t i) { return i >= 64 || TN_GNEEDS(c, i); }

/* Each tensor gets the part of the gradient that lies where it went. */
tn_status tni_grad_cat(tn_gctx *c) {
    const tn_cat_args *a = c->args;
    tn_tensor *g = c->g[0];
    int64_t dim = 0, from = 0;
    TN_TRY(tni_wrap_dim(a->dim, tn_tensor_ndim(g), &dim));
    for (int64_t i = 0; i < a->tensors.n; i++) {
        const tn_view *v = a->tensors.v[i];
        bool empty = v->ndim == 1 && v->numel == 0;
        int64_t size = empty ? 0 : v->shape[dim];
        if (needed(c, i) && empty && tn_tensor_ndim(g) != 1)
            TN_TRY(tn_new_zeros(g, TN_INTS(0), -1, -1, &c->ret[i]));
        else if (needed(c, i))
            TN_TRY(tn_narrow(g, dim, from, size, &c->ret[i]));
        from += size;
    }
    return TN_OK;
}

tn_status tni_grad_stack(tn_gctx *c) {
    const tn_stack_args *a = c->args;
    for (int64_t i = 0; i < a->tensors.n; i++)
        if (needed(c, i)) TN_TRY(tn_select(c->g[0], a->dim, i, &c->ret[i]));
    return TN_OK;
}

/* ---- Lists out ---------------------------------------------------------------------------------*/

tn_status tni_grad_split_with_sizes(tn_gctx *c) {
    const tn_split_with_sizes_args *a = c->args;
    tn_tensors g = {c->g, a->split_sizes.n};
    if (g.n == 0) return tn_zeros(tni_shape_ints(tni_t(a->input)), tn_view_dtype(a->input), -1, &c->ret[0]);
    return tn_cat(g, a->dim, &c->ret[0]);
}

tn_status tni_grad_unbind(tn_gctx *c) {
    const tn_unbind_args *a = c->args;
    tn_tensors g = {c->g, a->input->shape[a->dim]};
    if (g.n == 0) return tn_zeros(tni_shape_ints(tni_t(a->input)), tn_view_dtype(a->input), -1, &c->ret[0]);
    return tn_stack(g, a->dim, &c->ret[0]);
}

/* ---- as_strided --------------------------------------------------------------------------------*/

/* The storage positions (counted from `low`) of every element of a geometry, as an int64 vector. */
static tn_status positions(tn_ints size, tn_ints stride, int64_t first, int64_t reach, tn_tensor **ret) {
    tn_tensor *line = NULL, *view = NULL, *packed = NULL;
    tn_status st = tn_arange(tn_scalar_int(reach), TN_I64, -1, &line);
    if (st == TN_OK) st = tn_as_strided(line, size, stride, tn_some_int(first), &view);
    if (st == TN_OK) st = tn_clone(view, TN_FORMAT_CONTIGUOUS, &packed);
    if (st == TN_OK) st = tn_reshape(packed, TN_INTS(-1), ret);
    tn_tensor_unref(&line);
    tn_tensor_unref(&view);
    tn_tensor_unref(&packed);
    return st;
}

/* Adds up at every storage position what reached it, then reads the input's elements from there. Where
 * several of them share a position, each gets an equal part. */
tn_status tni_grad__as_strided(tn_gctx *c) {
    const tn__as_strided_args *a = c->args;
    const tn_view *x = a->input;
    tn_tensor *g = c->g[0], *at = NULL, *own = NULL, *blank = NULL, *flat = NULL, *sum = NULL;
    tn_tensor *ones = NULL, *shared = NULL, *even = NULL, *most = NULL, *picked = NULL;
    tn_scalar_box one;
    int64_t lo, hi, out_lo, out_hi;
    if (x->numel == 0 || tn_tensor_numel(g) == 0)
        return tn_new_zeros(g, tn_ints_of(x->shape, x->ndim), -1, -1, &c->ret[0]);
    if (!tni_reach(x->ndim, x->shape, x->strides, &lo, &hi) ||
        !tni_reach((int32_t)a->size.n, a->size.v, a->stride.v, &out_lo, &out_hi))
        return tn_fail(TN_E_INTERNAL, -1, "as_strided: a geometry that was valid is not any more");
    int64_t low = a->own_offset + lo < a->offset ? a->own_offset + lo : a->offset;
    int64_t high = a->own_offset + hi > a->offset + out_hi ? a->own_offset + hi : a->offset + out_hi;
    int64_t reach = high - low;
    tn_status st = positions(a->size, a->stride, a->offset - low, reach, &at);
    if (st) goto out;
    st = positions(tn_ints_of(x->shape, x->ndim), tn_ints_of(x->strides, x->ndim),
                   a->own_offset - low, reach, &own);
    if (st) goto out;
    if ((st = tn_new_zeros(g, TN_INTS(reach), -1, -1, &blank))) goto out;
    if ((st = tn_reshape(g, TN_INTS(-1), &flat))) goto out;
    if ((st = tn_index_add(blank, 0, at, flat, tn_scalar_int(1), &sum))) goto out;
    if ((st = tn_new_ones(g, TN_INTS(x->numel), -1, -1, &ones))) goto out;
    if ((st = tn_index_add(blank, 0, own, ones, tn_scalar_int(1), &shared))) goto out;
    if ((st = tn_maximum(shared, tn_scalar_box_init(&one, tn_scalar_int(1)), &most))) goto out;
    if ((st = tn_true_divide(sum, most, &even))) goto out;
    if ((st = tn_index_select(even, 0, own, &picked))) goto out;
    st = tn_reshape(picked, tn_ints_of(x->shape, x->ndim), &c->ret[0]);
out:
    tn_tensor_unref(&at);
    tn_tensor_unref(&own);
    tn_tensor_unref(&blank);
    tn_tensor_unref(&flat);
    tn_tensor_unref(&sum);
    tn_tensor_unref(&ones);
    tn_tensor_unref(&shared);
    tn_tensor_unref(&even);
    tn_tensor_unref(&most);
    tn_tensor_unref(&picked);
    return st;
}
