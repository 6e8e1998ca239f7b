/* grad_shape.c: gradients of operators that join, cut and re-stride. */
#include <stdlib.h>

#include <tenon/args_index.h>
#include <tenon/args_shape.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "op_index.h"
#include "op_shape.h"
#include "tape_priv.h"

/* Beyond 64 inputs everything is computed; the engine drops what nobody wants. */
static bool wanted(const tn_gctx *c, int64_t i) { return i >= 64 || TN_GNEEDS(c, i); }

/* ---- Joining -----------------------------------------------------------------------------------*/

tn_status tni_grad_cat(tn_gctx *c) {
    const tn_cat_args *a = c->args;
    tn_tensor *g = c->g[0];
    int64_t dim, start = 0;
    TN_TRY(tni_wrap_dim(a->dim, g->v.ndim, &dim));
    for (int64_t i = 0; i < a->tensors.n; i++) {
        const tn_view *t = a->tensors.v[i];
        if (t->ndim != g->v.ndim) continue; /* an empty vector, which cat leaves out */
        if (wanted(c, i)) TN_TRY(tn_narrow(g, dim, start, t->shape[dim], &c->ret[i]));
        start += t->shape[dim];
    }
    return TN_OK;
}

tn_status tni_grad_stack(tn_gctx *c) {
    const tn_stack_args *a = c->args;
    int64_t dim;
    TN_TRY(tni_wrap_dim(a->dim, c->g[0]->v.ndim, &dim));
    for (int64_t i = 0; i < a->tensors.n; i++)
        if (wanted(c, i)) TN_TRY(tn_select(c->g[0], dim, i, &c->ret[i]));
    return TN_OK;
}

/* ---- Cutting -----------------------------------------------------------------------------------*/

/* The gradients of a list of results, zeros where none came; free with tn_tensor_list_free. */
static tn_status all_gradients(const tn_gctx *c, const tn_view *input, int64_t n, int64_t dim,
                               const int64_t *sizes, tn_tensor_list *ret_list) {
    int64_t shape[TN_MAX_DIMS];
    tn_tensor_list list = {calloc((size_t)n + 1, sizeof *list.v), n};
    tn_tensor *zero = NULL; /* for all places of all that are missing */
    tn_status st = TN_OK;
    if (!list.v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; i < n && st == TN_OK; i++) {
        int32_t rank = 0;
        for (int32_t d = 0; d < input->ndim; d++) {
            if (d != dim)
                shape[rank++] = input->shape[d];
            else if (sizes)
                shape[rank++] = sizes[i];
        }
        if (c->g[i]) {
            list.v[i] = tn_tensor_ref(c->g[i]);
            continue;
        }
        if (!zero) st = tni_constant(0.0, input->word, 0, NULL, &zero);
        if (st == TN_OK) st = tn_expand(zero, tn_ints_of(shape, rank), 0, &list.v[i]);
    }
    tn_tensor_unref(&zero);
    if (st != TN_OK)
        tn_tensor_list_free(&list);
    else
        *ret_list = list;
    return st;
}

tn_status tni_grad_unbind(tn_gctx *c) {
    const tn_unbind_args *a = c->args;
    tn_tensor_list all;
    TN_TRY(all_gradients(c, a->input, tni_size_at(tni_t(a->input), a->dim), a->dim, NULL, &all));
    const tn_tensors list = {all.v, all.n};
    tn_status st = all.n ? tn_stack(list, a->dim, &c->ret[0]) : TN_OK;
    tn_tensor_list_free(&all);
    return st;
}

tn_status tni_grad_split_with_sizes(tn_gctx *c) {
    const tn_split_with_sizes_args *a = c->args;
    tn_tensor_list all;
    TN_TRY(all_gradients(c, a->input, a->split_sizes.n, a->dim, a->split_sizes.v, &all));
    const tn_tensors list = {all.v, all.n};
    tn_status st = all.n ? tn_cat(list, a->dim, &c->ret[0]) : TN_OK;
    tn_tensor_list_free(&all);
    return st;
}

/* ---- as_strided --------------------------------------------------------------------------------
 * The gradient is scattered into a flat tensor that stands for the storage, then read with the
 * input's geometry. Where several elements of the result share a place their gradients add up; where
 * several elements of the input do, each gets an equal part. */

typedef struct geometry {
    int32_t ndim;
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    int64_t offset;
} geometry;

static void set_geometry(geometry *d, int32_t ndim, const int64_t *shape, const int64_t *strides,
                         int64_t offset) {
    d->ndim = ndim;
    d->offset = offset;
    memcpy(d->shape, shape, sizeof *shape * (size_t)ndim);
    memcpy(d->strides, strides, sizeof *strides * (size_t)ndim);
}

/* A dimension through which elements share places; -1: none. */
static int32_t shared_dim(const geometry *m) {
    uint64_t left = 0;
    int64_t reach = 0;
    for (int32_t d = 0; d < m->ndim; d++)
        if (m->shape[d] > 1) left |= UINT64_C(1) << d;
    while (left) {
        int32_t least = -1;
        for (int32_t d = 0; d < m->ndim; d++)
            if ((left >> d & 1u) && (least < 0 || m->strides[d] < m->strides[least])) least = d;
        if (m->strides[least] <= reach) return least;
        reach += (m->shape[least] - 1) * m->strides[least];
        left &= ~(UINT64_C(1) << least);
    }
    return -1;
}

/* flat[geometry] += g. Goes at most as deep as there are dimensions. */
static tn_status scatter(tn_tensor *flat, const geometry *m, tn_tensor *g) {
    int32_t dim = shared_dim(m);
    tn_tensor *t;
    tn_status st = TN_OK;
    if (g->v.numel == 0) return TN_OK; /* its other sizes may be any */
    if (dim < 0) {
        TN_TRY(tn_as_strided(flat, tn_ints_of(m->shape, m->ndim), tn_ints_of(m->strides, m->ndim),
                             tn_some_int(m->offset), &t));
        st = tn_add_(t, g, tn_scalar_int(1));
        tn_tensor_unref(&t);
        return st;
    }
    geometry rest = *m;
    rest.shape[dim] = 1;
    if (m->strides[dim] == 0) {
        TN_TRY(tn_sum(g, TN_INTS(dim), 1, -1, &t));
        st = scatter(flat, &rest, t);
        tn_tensor_unref(&t);
        return st;
    }
    for (int64_t i = 0; i < m->shape[dim] && st == TN_OK; i++) {
        TN_TRY(tn_narrow(g, dim, i, 1, &t));
        st = scatter(flat, &rest, t);
        rest.offset += m->strides[dim];
        tn_tensor_unref(&t);
    }
    return st;
}

static int64_t end_of(const geometry *m) {
    int64_t end = m->offset + 1;
    for (int32_t d = 0; d < m->ndim; d++) {
        if (m->shape[d] == 0) return m->offset;
        end += (m->shape[d] - 1) * m->strides[d];
    }
    return end;
}

/* flat / (how many elements of the input lie at each place). */
static tn_status share(tn_tensor **flat, const geometry *in, uint64_t word) {
    tn_tensor *count = NULL, *ones = NULL, *r = NULL;
    tn_status st;
    if ((st = tn_zeros_like(*flat, -1, -1, TN_FORMAT_PRESERVE, &count))) goto out;
    if ((st = tni_constant(1.0, word, in->ndim, in->shape, &ones))) goto out;
    if ((st = scatter(count, in, ones))) goto out;
    if ((st = tn_true_divide(*flat, count, &r))) goto out;
    tn_tensor_unref(flat);
    *flat = r;
out:
    tn_tensor_unref(&count);
    tn_tensor_unref(&ones);
    return st;
}

tn_status tni_grad__as_strided(tn_gctx *c) {
    const tn__as_strided_args *a = c->args;
    tn_tensor *flat = NULL, *input = tni_t(a->input);
    geometry in, out;
    tn_status st;
    set_geometry(&in, input->v.ndim, input->v.shape, input->v.strides, a->own_offset);
    set_geometry(&out, (int32_t)a->size.n, a->size.v, a->stride.v, a->offset);
    int64_t first = in.offset < out.offset ? in.offset : out.offset;
    in.offset -= first;
    out.offset -= first;
    int64_t n = end_of(&in) > end_of(&out) ? end_of(&in) : end_of(&out);
    uint64_t word = c->g[0]->v.word;
    int64_t device = (int64_t)((word & TN_W_DEVICE) | (word & TN_W_INDEX) >> 16);
    if ((st = tn_zeros(TN_INTS(n), tn_view_dtype(&c->g[0]->v), device, &flat))) goto out;
    if ((st = scatter(flat, &out, c->g[0]))) goto out;
    if (shared_dim(&in) >= 0 && (st = share(&flat, &in, word))) goto out;
    st = tn_as_strided(flat, tn_ints_of(in.shape, in.ndim), tn_ints_of(in.strides, in.ndim),
                       tn_some_int(in.offset), &c->ret[0]);
out:
    tn_tensor_unref(&flat);
    return st;
}
