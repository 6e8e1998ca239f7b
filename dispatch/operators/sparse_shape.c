/* sparse_shape.c: rules of operators that move, choose, join and add up elements. */
#include <stdlib.h>

#include <tenon/args_index.h>
#include <tenon/args_norm.h>
#include <tenon/args_reduce.h>
#include <tenon/args_shape.h>
#include <tenon/args_sparse.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_norm.h>

#include "call_priv.h"
#include "op_norm.h"
#include "op_shape.h"
#include "op_sparse.h"
#include "sparse_scope_priv.h"

static tn_status fail_layout(const tn_op *op, const tn_tensor *t, const char *what) {
    return tn_fail(TN_E_UNSUPPORTED, 0, "%s(): %s of a tensor of layout %s is not there",
                   op->info.name, what, tn_layout_name(tn_tensor_layout(t)));
}

/* Elements by number, each as often as its range says: the numbers, and the places in the ranges. */
void sparse_spread(tni_scope *s, tn_tensor *first, tn_tensor *last, tn_tensor **ret_which,
                   tn_tensor **ret_place) {
    tn_tensor *count = scope_sub(s, last, first), *which = NULL, *ends = NULL;
    if (s->st != TN_OK) return;
    tn_status st = tn_repeat_interleave_counts(count, tn_no_int(), &which);
    which = scope_take(s, st, which);
    if (s->st != TN_OK) return;
    st = tn_cumsum(count, 0, -1, &ends);
    ends = scope_take(s, st, ends);
    tn_tensor *begin = scope_sub(s, ends, count);
    tn_tensor *shift = scope_sub(s, first, begin);
    tn_tensor *each = s->st == TN_OK ? sparse_arange(s, which->v.numel, which) : NULL;
    *ret_which = which;
    *ret_place = scope_add(s, each, sparse_pick(s, shift, 0, which));
}

/* ---- Dimensions in another order ---------------------------------------------------------------*/

static tn_tensor *permuted_coo(tni_scope *s, tn_tensor *t, const int64_t *order, bool *ret_fits) {
    int64_t lines[TN_MAX_DIMS], dense[TN_MAX_DIMS], shape[TN_MAX_DIMS];
    int32_t n = t->v.ndim;
    t = sparse_distinct(s, t, false);
    if (s->st != TN_OK) return NULL;
    const tni_sparse *c = tni_sparse_of(t);
    bool moved = false;
    dense[0] = 0;
    for (int32_t d = 0; d < n; d++) {
        *ret_fits = *ret_fits && (order[d] < c->sparse_dim) == (d < c->sparse_dim);
        shape[d] = t->v.shape[order[d]];
        if (d < c->sparse_dim) moved = moved || order[d] != d;
        if (d < c->sparse_dim)
            lines[d] = order[d];
        else
            dense[d - c->sparse_dim + 1] = order[d] - c->sparse_dim + 1;
    }
    if (!*ret_fits) return NULL;
    tn_tensor *at = sparse_picked(s, c->index, 0, tn_ints_of(lines, c->sparse_dim));
    tn_tensor *values = scope_permute(s, sparse_values(s, t), tn_ints_of(dense, c->dense_dim + 1));
    return sparse_coo(s, at, values, tn_ints_of(shape, n), c->coalesced && !moved);
}

/* Compressed layouts: the two indexed dimensions may change places. */
static tn_tensor *turned(tni_scope *s, tn_tensor *t) {
    static const int32_t other[TN_LAYOUT_COUNT] = {
        0, 0, TN_LAYOUT_CSC, TN_LAYOUT_CSR, TN_LAYOUT_BSC, TN_LAYOUT_BSR};
    int64_t shape[TN_MAX_DIMS];
    const tni_sparse *c = tni_sparse_of(t);
    int32_t b = c->batch_dim, layout = tn_tensor_layout(t);
    tn_tensor *values = sparse_values(s, t), *r = NULL;
    memcpy(shape, t->v.shape, sizeof shape[0] * (size_t)t->v.ndim);
    shape[b] = t->v.shape[b + 1];
    shape[b + 1] = t->v.shape[b];
    if (tni_by_blocks(layout)) values = scope_transpose(s, values, b + 1, b + 2);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__sparse_make(c->index, c->plain, values, tn_ints_of(shape, t->v.ndim),
                                   other[layout], 0, &r);
    return scope_take(s, st, r);
}

tn_status tni_sparse_permute(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *t = tni_t(((const tn_t_args *)args)->input), *r = NULL;
    tni_scope s = {0};
    int64_t order[TN_MAX_DIMS], seen = 0;
    int32_t n = t->v.ndim;
    for (int32_t d = 0; d < n; d++) order[d] = d;
    if (op == &tni_op_permute) {
        tn_ints dims = ((const tn_permute_args *)args)->dims;
        if (dims.n != n)
            return tn_fail(TN_E_STATE, 1,
                           "permute(sparse_coo): number of dimensions in the tensor input does not "
                           "match the length of the desired ordering of dimensions");
        for (int32_t d = 0; d < n; d++) {
            TN_TRY(tni_wrap_dim(dims.v[d], n, &order[d]));
            if (seen >> order[d] & 1)
                return tn_fail(TN_E_STATE, 1, "permute(): duplicate dims are not allowed");
            seen |= INT64_C(1) << order[d];
        }
    } else {
        int64_t a = 0, b = 1;
        if (op == &tni_op_t && n > 2)
            return tn_fail(TN_E_STATE, 0,
                           "t() expects a tensor with <= 2 dimensions, but self is %dD", (int)n);
        if (op == &tni_op_transpose) {
            a = ((const tn_transpose_args *)args)->dim0;
            b = ((const tn_transpose_args *)args)->dim1;
        }
        if (n > 1) {
            order[a] = b;
            order[b] = a;
        }
    }
    bool fits = true;
    if (tn_tensor_layout(t) == TN_LAYOUT_COO) {
        r = permuted_coo(&s, t, order, &fits);
    } else {
        const tni_sparse *c = tni_sparse_of(t);
        int32_t b = c->batch_dim;
        bool swap = order[b] == b + 1 && order[b + 1] == b;
        for (int32_t d = 0; d < n; d++)
            fits = fits && (order[d] == d || (swap && (d == b || d == b + 1)));
        if (fits) r = swap ? turned(&s, t) : t;
    }
    if (!fits && s.st == TN_OK) s.st = fail_layout(op, t, "this order of the dimensions");
    return scope_finish(&s, r, rets);
}

tn_status tni_sparse_unsqueeze(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_unsqueeze_args *a = args;
    tn_tensor *t = tni_t(a->input), *zero = NULL, *at = NULL;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS + 1], dim;
    if (tn_tensor_layout(t) != TN_LAYOUT_COO) return fail_layout(op, t, "another dimension");
    if (t->v.ndim == TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    TN_TRY(tni_wrap_dim(a->dim, t->v.ndim + 1, &dim));
    t = sparse_distinct(&s, t, false);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    const tni_sparse *c = tni_sparse_of(t);
    for (int32_t d = 0; d <= t->v.ndim; d++) shape[d] = d == dim ? 1 : t->v.shape[d - (d > dim)];
    tn_ints size = tn_ints_of(shape, t->v.ndim + 1);
    if (dim > c->sparse_dim) {
        tn_tensor *values = scope_unsqueeze(&s, sparse_values(&s, t), dim - c->sparse_dim + 1);
        return scope_finish(&s, sparse_coo(&s, c->index, values, size, c->coalesced), rets);
    }
    s.st = tn_zeros(TN_INTS(1, c->index->v.shape[1]), TN_I64, tni_device_of(t), &zero);
    zero = scope_take(&s, s.st, zero);
    tn_tensor *part[3] = {scope_narrow(&s, c->index, 0, 0, dim), zero,
                          scope_narrow(&s, c->index, 0, dim, c->sparse_dim - dim)};
    if (s.st == TN_OK) s.st = tn_cat((tn_tensors){part, 3}, 0, &at);
    at = scope_take(&s, s.st, at);
    return scope_finish(&s, sparse_coo(&s, at, sparse_values(&s, t), size, c->coalesced), rets);
}

/* ---- Chosen elements ---------------------------------------------------------------------------*/

/* The indices without line `dim`. */
static tn_tensor *without(tni_scope *s, tn_tensor *at, int64_t dim) {
    int64_t lines[TN_MAX_DIMS], n = 0;
    if (s->st != TN_OK) return NULL;
    for (int64_t d = 0; d < at->v.shape[0]; d++)
        if (d != dim) lines[n++] = d;
    return sparse_picked(s, at, 0, tn_ints_of(lines, n));
}

/* A slice of a batch, or of what is dense, is of the same compressed layout. */
static tn_tensor *select_part(tni_scope *s, tn_tensor *t, int64_t dim, int64_t at, tn_ints rest) {
    const tni_sparse *c = tni_sparse_of(t);
    int32_t layout = tn_tensor_layout(t);
    bool member = dim < c->batch_dim;
    tn_tensor *index = member ? scope_select(s, c->index, dim, at) : c->index;
    tn_tensor *plain = member ? scope_select(s, c->plain, dim, at) : c->plain, *r = NULL;
    /* of rows and columns, values have one dimension, and those of a block */
    int64_t own = member ? dim : tni_by_blocks(layout) ? dim + 1 : dim - 1;
    tn_tensor *values = scope_select(s, sparse_values(s, t), own, at);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__sparse_make(index, plain, values, rest, layout, 0, &r);
    return scope_take(s, st, r);
}

tn_status tni_sparse_select(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_select_args *a = args;
    tn_tensor *t = tni_t(a->input), *same = NULL, *r;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], dim = a->dim, at = a->index;
    if (t->v.ndim == 0)
        return tn_fail(TN_E_INDEX, 0, "select() cannot be applied to a 0-dim tensor.");
    int64_t size = t->v.shape[dim];
    if (at < -size || at >= size)
        return tn_fail(TN_E_INDEX, 2,
                       "select(): index %lld out of range for tensor of size %s at dimension %lld",
                       (long long)at, tni_shape_text_of(&t->v), (long long)dim);
    if (at < 0) at += size;
    for (int32_t d = 0, k = 0; d < t->v.ndim; d++)
        if (d != dim) shape[k++] = t->v.shape[d];
    tn_ints rest = tn_ints_of(shape, t->v.ndim - 1);
    if (tn_tensor_layout(t) != TN_LAYOUT_COO) {
        int32_t batch = tni_sparse_of(t)->batch_dim;
        if (dim < batch || dim >= batch + 2)
            return scope_finish(&s, select_part(&s, t, dim, at, rest), rets);
        if (batch)
            return tn_fail(TN_E_STATE, 1,
                           "%s(): selecting sparse dimensions is not supported for batched sparse "
                           "compressed tensors.",
                           op->info.name);
    }
    t = sparse_distinct(&s, sparse_to_coo(&s, t), false);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    const tni_sparse *c = tni_sparse_of(t);
    if (dim >= c->sparse_dim) {
        tn_tensor *values = scope_select(&s, sparse_values(&s, t), dim - c->sparse_dim + 1, at);
        return scope_finish(&s, sparse_coo(&s, c->index, values, rest, c->coalesced), rets);
    }
    tn_scalar_box box;
    tn_tensor *line = scope_select(&s, c->index, 0, dim);
    if (s.st == TN_OK) s.st = tn_eq(line, tn_scalar_box_init(&box, tn_scalar_int(at)), &same);
    tn_tensor *which = sparse_where_true(&s, scope_take(&s, s.st, same));
    tn_tensor *values = sparse_pick(&s, sparse_values(&s, t), 0, which);
    if (c->sparse_dim == 1) {
        int32_t dtype = tn_tensor_dtype(t); /* a sum of whole numbers is int64 */
        r = scope_convert(&s, scope_sum(&s, values, TN_INTS(0), 0), dtype);
    } else {
        tn_tensor *index = sparse_pick(&s, without(&s, c->index, dim), 1, which);
        r = sparse_coo(&s, index, values, rest, c->coalesced);
    }
    return scope_finish(&s, r, rets);
}

tn_status tni_sparse_unbind(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_unbind_args *a = args;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    if (a->input->ndim == 0)
        return tn_fail(TN_E_INDEX, 0, "%s(): a tensor of layout %s has no dimensions to unbind",
                       op->info.name, tn_layout_name(tn_tensor_layout(tni_t(a->input))));
    int64_t n = a->input->shape[a->dim];
    tn_tensor **parts = calloc((size_t)n + 1, sizeof *parts);
    if (!parts) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    *list = (tn_tensor_list){parts, 0};
    for (; list->n < n; list->n++) {
        tn_status st = tn_select(tni_t(a->input), a->dim, list->n, &parts[list->n]);
        if (st == TN_OK) continue;
        tn_tensor_list_free(list);
        return st;
    }
    return TN_OK;
}

tn_status tni_sparse_index_select(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_index_select_args *a = args;
    tn_tensor *t = tni_t(a->input), *index = tni_t(a->index), *sorted = NULL, *order = NULL;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS];
    if (tn_tensor_layout(t) != TN_LAYOUT_COO || tni_is_sparse(index))
        return fail_layout(op, t, "a choice");
    if (t->v.ndim == 0 || index->v.ndim > 1)
        return tn_fail(
            TN_E_INDEX, 2,
            "index_select(): Index is supposed to be a vector, the tensor to have dimensions");
    index = scope_convert(&s, sparse_flat(&s, index), TN_I64);
    t = sparse_distinct(&s, t, false);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    const tni_sparse *c = tni_sparse_of(t);
    memcpy(shape, t->v.shape, sizeof shape[0] * (size_t)t->v.ndim);
    int64_t size = shape[a->dim];
    shape[a->dim] = index->v.numel;
    tn_ints full = tn_ints_of(shape, t->v.ndim);
    if (a->dim >= c->sparse_dim) {
        tn_tensor *values =
            sparse_pick(&s, sparse_values(&s, t), a->dim - c->sparse_dim + 1, index);
        return scope_finish(&s, sparse_coo(&s, c->index, values, full, c->coalesced), rets);
    }
    sparse_pick(&s, sparse_arange(&s, size, index), 0,
                index); /* which knows what is out of range */
    tn_tensor *line = scope_select(&s, c->index, 0, a->dim);
    if (s.st == TN_OK) s.st = tn_sort(line, 0, 0, 1, &sorted, &order);
    sorted = scope_take(&s, s.st, sorted);
    order = scope_take(&s, s.st, order);
    tn_tensor *to = NULL, *place = NULL;
    sparse_spread(&s, sparse_found(&s, sorted, index, false), sparse_found(&s, sorted, index, true),
                  &to, &place);
    tn_tensor *from = sparse_pick(&s, order, 0, place);
    tn_tensor *values = sparse_pick(&s, sparse_values(&s, t), 0, from);
    tn_tensor *at = sparse_pick(&s, c->index, 1, from), *lines = NULL;
    tn_tensor *part[3] = {scope_narrow(&s, at, 0, 0, a->dim), scope_unsqueeze(&s, to, 0),
                          scope_narrow(&s, at, 0, a->dim + 1, c->sparse_dim - a->dim - 1)};
    if (s.st == TN_OK) s.st = tn_cat((tn_tensors){part, 3}, 0, &lines);
    lines = scope_take(&s, s.st, lines);
    return scope_finish(&s, sparse_coo(&s, lines, values, full, false), rets);
}

/* ---- Joined ------------------------------------------------------------------------------------*/

/* Values with zeros in front of what they hold of a dimension and behind it. */
static tn_tensor *between_zeros(tni_scope *s, tn_tensor *values, int64_t dim, int64_t front,
                                int64_t size) {
    int64_t pad[2 * TN_MAX_DIMS] = {0}, last = values->v.ndim - 1 - dim;
    pad[2 * last] = front;
    pad[2 * last + 1] = size - front - values->v.shape[dim];
    tn_ints around = tn_ints_of(pad, 2 * (last + 1));
    return SCOPE(s, tn_constant_pad_nd(values, around, tn_scalar_int(0), scope_slot(s)));
}

/* What the tensors have of a dimension, together; those without it are refused later. */
static tn_status joined_size(tn_views tensors, int64_t dim, int64_t *ret_size) {
    *ret_size = 0;
    for (int64_t i = 0; i < tensors.n; i++)
        if (dim < tensors.v[i]->ndim &&
            __builtin_add_overflow(*ret_size, tensors.v[i]->shape[dim], ret_size))
            return tn_fail(TN_E_VALUE, 0, "cat: the result is too large");
    return TN_OK;
}

tn_status tni_sparse_cat(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_cat_args *a = args;
    int64_t shape[TN_MAX_DIMS], dim, size, shift = 0, n = a->tensors.n;
    tn_tensor *first = tni_t(a->tensors.v[0]), *r = NULL, *at = NULL, *all = NULL;
    tn_tensor_list index = {calloc((size_t)n, sizeof(tn_tensor *)), n};
    tn_tensor_list values = {calloc((size_t)n, sizeof(tn_tensor *)), n};
    tn_status st = index.v && values.v ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    if (st == TN_OK) st = tni_wrap_dim(a->dim, first->v.ndim, &dim);
    if (st == TN_OK) st = joined_size(a->tensors, dim, &size);
    if (st != TN_OK) goto out;
    memcpy(shape, first->v.shape, sizeof shape[0] * (size_t)first->v.ndim);
    for (int64_t i = 0; i < n && st == TN_OK; i++) {
        tn_tensor *t = tni_t(a->tensors.v[i]);
        tni_scope s = {0};
        if (tn_tensor_layout(t) != TN_LAYOUT_COO || t->v.ndim != first->v.ndim ||
            tn_sparse_dim(t) != tn_sparse_dim(first)) {
            st = tn_fail(TN_E_STATE, 0,
                         "%s(): tensors of layout sparse_coo with the same sparse and dense "
                         "dimensions are joined; number %lld has layout %s and shape %s",
                         op->info.name, (long long)i, tn_layout_name(tn_tensor_layout(t)),
                         tni_shape_text_of(&t->v));
            break;
        }
        for (int32_t d = 0; d < t->v.ndim && st == TN_OK; d++)
            if (d != dim && t->v.shape[d] != shape[d])
                st = tn_fail(
                    TN_E_STATE, 0,
                    "%s(): sizes of tensors must match except in dimension %lld, got %s and %s",
                    op->info.name, (long long)dim, tni_shape_text_of(&first->v),
                    tni_shape_text_of(&t->v));
        if (st != TN_OK) break;
        t = sparse_distinct(&s, t, false);
        tn_tensor *own = s.st == TN_OK ? tni_sparse_of(t)->index : NULL, *v = sparse_values(&s, t);
        if (s.st == TN_OK && dim < tn_sparse_dim(t) && shift) {
            int64_t lines = own->v.shape[0];
            tn_tensor *part[3] = {scope_narrow(&s, own, 0, 0, dim),
                                  sparse_plus(&s, scope_narrow(&s, own, 0, dim, 1), shift),
                                  scope_narrow(&s, own, 0, dim + 1, lines - dim - 1)};
            tn_tensor *moved = NULL;
            if (s.st == TN_OK) s.st = tn_cat((tn_tensors){part, 3}, 0, &moved);
            own = scope_take(&s, s.st, moved);
        } else if (s.st == TN_OK && dim >= tn_sparse_dim(t)) {
            v = between_zeros(&s, v, dim - tn_sparse_dim(t) + 1, shift, size);
        }
        if (s.st == TN_OK) {
            index.v[i] = tn_tensor_ref(own);
            values.v[i] = tn_tensor_ref(v);
            shift += t->v.shape[dim];
        }
        st = scope_finish(&s, NULL, NULL);
    }
    if (st != TN_OK) goto out;
    shape[dim] = size;
    if ((st = tn_cat((tn_tensors){index.v, n}, 1, &at))) goto out;
    if ((st = tn_cat((tn_tensors){values.v, n}, 0, &all))) goto out;
    st = tn__sparse_make(at, NULL, all, tn_ints_of(shape, first->v.ndim), TN_LAYOUT_COO, 0, &r);
out:
    tn_tensor_unref(&at);
    tn_tensor_unref(&all);
    tn_tensor_list_free(&index);
    tn_tensor_list_free(&values);
    if (st == TN_OK) *rets = r;
    return st;
}

tn_status tni_sparse_stack(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_stack_args *a = args;
    int64_t n = a->tensors.n, dim;
    tn_tensor_list list = {calloc((size_t)n, sizeof(tn_tensor *)), n};
    tn_status st = list.v ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    (void)op;
    if (st == TN_OK) st = tni_wrap_dim(a->dim, a->tensors.v[0]->ndim + 1, &dim);
    for (int64_t i = 0; i < n && st == TN_OK; i++)
        st = tn_unsqueeze(tni_t(a->tensors.v[i]), dim, &list.v[i]);
    if (st == TN_OK) st = tn_cat((tn_tensors){list.v, n}, dim, rets);
    tn_tensor_list_free(&list);
    return st;
}

/* ---- Added up ----------------------------------------------------------------------------------*/

/* Operators over all elements to which zeros add nothing. */
tn_status tni_sparse_of_values(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor **slot = (tn_tensor **)(void *)((char *)args + op->in_offset[0]), *t = *slot,
              *r = NULL;
    tni_scope s = {0};
    for (int i = 0; i < op->nfields; i++) {
        const void *p = (const char *)args + op->fields[i].offset;
        if (op->fields[i].kind == TN_F_DIMS && ((const tn_ints *)p)->n >= 0 && t->v.ndim)
            return fail_layout(op, t, "some dimensions");
    }
    t = sparse_distinct(&s, t, true);
    tn_tensor *values = sparse_values(&s, t), *given = *slot;
    if (s.st == TN_OK) {
        *slot = sparse_flat(&s, values);
        if (s.st == TN_OK) s.st = tn_op_call(op, args, &r);
        *slot = given;
        r = scope_take(&s, s.st, r);
    }
    return scope_finish(&s, r, rets);
}

static tn_tensor *sum_of(tni_scope *s, tn_tensor *t, tn_ints dims, int64_t dtype) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_sum(t, dims, 0, dtype, &r);
    return scope_take(s, st, r);
}

/* Some of the dimensions of a tensor of layout sparse_coo. */
static tn_tensor *sum_some(tni_scope *s, tn_tensor *t, uint64_t mask, int64_t dtype, bool keepdim) {
    int64_t lines[TN_MAX_DIMS], dense[TN_MAX_DIMS], shape[TN_MAX_DIMS], n = 0, k = 0, m = 0;
    t = sparse_distinct(s, t, false);
    if (s->st != TN_OK) return NULL;
    const tni_sparse *c = tni_sparse_of(t);
    for (int32_t d = 0; d < t->v.ndim; d++) {
        bool gone = mask >> d & 1u;
        if (gone && d >= c->sparse_dim) dense[k++] = d - c->sparse_dim + 1;
        if (!gone && d < c->sparse_dim) lines[n++] = d;
        if (!gone) shape[m++] = t->v.shape[d];
    }
    tn_tensor *values = sparse_values(s, t), *r, *sum = NULL;
    if (s->st == TN_OK && (k || dtype >= 0)) {
        if (k)
            values = sum_of(s, values, tn_ints_of(dense, k), dtype);
        else
            values = scope_convert(s, values, dtype);
    }
    if (n == 0) {
        r = sum_of(s, values, TN_INTS(0), dtype);
    } else {
        tn_tensor *at = sparse_picked(s, c->index, 0, tn_ints_of(lines, n));
        r = sparse_coo(s, at, values, tn_ints_of(shape, m), false);
        if (s->st != TN_OK) return NULL;
        tn_status st = tn_coalesce(r, &sum);
        r = scope_take(s, st, sum);
    }
    for (int32_t d = 0; keepdim && d < t->v.ndim; d++)
        if (mask >> d & 1u) r = scope_unsqueeze(s, r, d);
    return r;
}

tn_status tni_sparse_sum(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_sum_args *a = args;
    tn_tensor *t = tni_t(a->input), *r;
    tni_scope s = {0};
    uint64_t mask = 0;
    (void)op;
    TN_TRY(tni_dim_mask(a->dim, t->v.ndim, &mask));
    int64_t dtype = a->dtype;
    if (dtype < 0 && tni_category(tn_tensor_dtype(t)) < TN_CAT_FLOAT) dtype = TN_I64;
    if (a->dim.n < 0 && !a->keepdim) {
        t = sparse_distinct(&s, t, false);
        r = sum_of(&s, sparse_values(&s, t), tn_ints_none(), dtype);
        return scope_finish(&s, r, rets);
    }
    r = sum_some(&s, sparse_to_coo(&s, t), mask, dtype, a->keepdim);
    if (s.st == TN_OK && a->keepdim && tni_is_sparse(r) && !tni_by_blocks(tn_tensor_layout(t)))
        r = sparse_to_layout_of(&s, r, t);
    return scope_finish(&s, r, rets);
}

/* ---- softmax -----------------------------------------------------------------------------------*/

/* For each group of elements the largest or the sum, given back to each of them. */
static tn_tensor *largest(tni_scope *s, tn_tensor *values, tn_tensor *group, int64_t n) {
    tn_tensor *low = NULL, *wide = group, *most = NULL;
    int64_t shape[TN_MAX_DIMS];
    if (s->st != TN_OK) return NULL;
    int32_t ndim = values->v.ndim;
    memcpy(shape, values->v.shape, sizeof shape[0] * (size_t)ndim);
    for (int32_t d = 1; d < ndim; d++) wide = scope_unsqueeze(s, wide, -1);
    wide = scope_expand(s, wide, tn_ints_of(shape, ndim));
    shape[0] = n;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_full(tn_ints_of(shape, ndim), tn_scalar_float(-INFINITY),
                           tn_tensor_dtype(values), tni_device_of(values), &low);
    low = scope_take(s, st, low);
    if (s->st != TN_OK) return NULL;
    tni_grad_off(); /* it only keeps the exponents small */
    st = tn_scatter_reduce(low, 0, wide, values, "amax", 1, &most);
    tni_grad_on();
    return sparse_pick(s, scope_take(s, st, most), 0, group);
}

tn_status tni_sparse_softmax(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_softmax_args *a = args;
    tn_tensor *t = tni_t(a->input), *values, *sorted = NULL, *group = NULL, *counts = NULL;
    tni_scope s = {0};
    bool log = op == &tni_op_log_softmax;
    _Static_assert(offsetof(tn_softmax_args, dtype) == offsetof(tn_log_softmax_args, dtype),
                   "one reads both");
    if (tn_tensor_layout(t) != TN_LAYOUT_COO) return fail_layout(op, t, "it");
    t = sparse_distinct(&s, t, true);
    values = scope_convert(&s, sparse_values(&s, t), a->dtype);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    const tni_sparse *c = tni_sparse_of(t);
    if (a->dim >= c->sparse_dim) {
        tn_tensor *r = NULL;
        int64_t dim = a->dim - c->sparse_dim + 1;
        s.st = log ? tn_log_softmax(values, dim, -1, &r) : tn_softmax(values, dim, -1, &r);
        return scope_finish(&s, sparse_like(&s, t, scope_take(&s, s.st, r)), rets);
    }
    sparse_places p = {without(&s, c->index, a->dim), c->sparse_dim - 1, {0}};
    for (int32_t d = 0, k = 0; d < c->sparse_dim; d++)
        if (d != a->dim) p.grid[k++] = t->v.shape[d];
    tn_tensor *keys = sparse_keys(&s, &p, 0, p.n);
    if (s.st == TN_OK) s.st = tn__unique(keys, &sorted, &group, &counts);
    sorted = scope_take(&s, s.st, sorted);
    group = scope_take(&s, s.st, group);
    scope_take(&s, s.st, counts);
    int64_t n = s.st == TN_OK ? sorted->v.numel : 0;
    tn_tensor *x = scope_sub(&s, values, largest(&s, values, group, n));
    tn_tensor *e = scope_exp(&s, x);
    tn_tensor *total = sparse_pick(&s, sparse_gathered(&s, n, group, e), 0, group);
    tn_tensor *r = log ? scope_sub(&s, x, scope_log(&s, total)) : scope_true_divide(&s, e, total);
    return scope_finish(&s, sparse_like(&s, t, r), rets);
}

/* ---- Diagonals, sizes --------------------------------------------------------------------------*/

tn_status tni_composite__spdiags(const void *args, tn_tensor **rets) {
    const tn__spdiags_args *a = args;
    tn_tensor *d = tni_t(a->diagonals), *off = tni_t(a->offsets);
    tni_scope s = {0};
    if (d->v.ndim > 2 || off->v.ndim > 1 || a->shape.n != 2 || a->shape.v[0] < 0 ||
        a->shape.v[1] < 0)
        return tn_fail(
            TN_E_STATE, 0,
            "spdiags(): Diagonals must be vector or matrix, offsets a vector, the shape two sizes");
    int64_t n = d->v.ndim == 2 ? d->v.shape[0] : 1, m = d->v.ndim ? tni_size_at(d, -1) : 1;
    if (off->v.numel != n)
        return tn_fail(
            TN_E_STATE, 1,
            "spdiags(): Number of diagonals (%lld) does not match the number of offsets (%lld)",
            (long long)n, (long long)off->v.numel);
    if (tn_tensor_dtype(off) != TN_I64)
        return tn_fail(TN_E_STATE, 1, "spdiags(): Offset Tensor must have dtype Long but got %s",
                       tni_type_text(tn_tensor_dtype(off)));
    tn_tensor *column = scope_expand(&s, sparse_arange(&s, m, d), TN_INTS(n, m));
    tn_tensor *row = scope_sub(&s, column, scope_reshape(&s, off, TN_INTS(n, 1)));
    tn_tensor *test[3] = {NULL}, *in = NULL, *both = NULL;
    tn_scalar_box box;
    if (s.st == TN_OK) s.st = tn_ge(row, tn_scalar_box_init(&box, tn_scalar_int(0)), &test[0]);
    test[0] = scope_take(&s, s.st, test[0]);
    if (s.st == TN_OK) s.st = tn_lt_scalar(row, tn_scalar_int(a->shape.v[0]), &test[1]);
    test[1] = scope_take(&s, s.st, test[1]);
    if (s.st == TN_OK) s.st = tn_lt_scalar(column, tn_scalar_int(a->shape.v[1]), &test[2]);
    test[2] = scope_take(&s, s.st, test[2]);
    if (s.st == TN_OK) s.st = tn_logical_and(test[0], test[1], &both);
    both = scope_take(&s, s.st, both);
    if (s.st == TN_OK) s.st = tn_logical_and(both, test[2], &in);
    tn_tensor *which = sparse_where_true(&s, sparse_flat(&s, scope_take(&s, s.st, in)));
    tn_tensor *line[2] = {sparse_pick(&s, sparse_flat(&s, row), 0, which),
                          sparse_pick(&s, sparse_flat(&s, column), 0, which)},
              *at = NULL;
    if (s.st == TN_OK) s.st = tn_stack((tn_tensors){line, 2}, 0, &at);
    at = scope_take(&s, s.st, at);
    tn_tensor *values = sparse_pick(&s, sparse_flat(&s, d), 0, which);
    return scope_finish(&s, sparse_coo(&s, at, values, a->shape, false), rets);
}

tn_status tni_composite_sparse_resize_(const void *args, tn_tensor **rets) {
    const tn_sparse_resize__args *a = args;
    tn_tensor *t = tni_t(a->self), *r = NULL;
    if (tn_tensor_layout(t) != TN_LAYOUT_COO)
        return fail_layout(&tni_op_sparse_resize_, t, "another size");
    const tni_sparse *c = tni_sparse_of(t);
    bool same =
        a->sparse_dim == c->sparse_dim && a->dense_dim == c->dense_dim && a->size.n == t->v.ndim;
    for (int32_t d = 0; same && d < t->v.ndim; d++)
        same = d < c->sparse_dim ? a->size.v[d] >= t->v.shape[d] : a->size.v[d] == t->v.shape[d];
    if (!same)
        return tn_fail(TN_E_STATE, 1,
                       "sparse_resize_(): a size that keeps %d sparse and %d dense dimensions and "
                       "makes no sparse one smaller is needed, got %s for %s",
                       (int)c->sparse_dim, (int)c->dense_dim,
                       tni_shape_text((int32_t)a->size.n, a->size.v), tni_shape_text_of(&t->v));
    TN_TRY(tni_sparse_new(TN_LAYOUT_COO, c->index, NULL, c->values, c->coalesced, a->size, &r));
    tn_status st = tn_tensor_set_data(t, r);
    tn_tensor_unref(&r);
    if (st != TN_OK) return st;
    tn_tensor_note_change(t);
    *rets = tn_tensor_ref(t);
    return TN_OK;
}
