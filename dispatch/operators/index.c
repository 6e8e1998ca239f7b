/* index.c: advanced indexing. Whatever mixture of index tensors, masks and holes comes in becomes a
 * list of int64 tensors of one shape and a view of the indexed tensor in which the dimensions they
 * index stand side by side; the kernels `_index` and `_index_put_` see nothing else. */
#include <stdio.h>

#include <tenon/args_index.h>
#include <tenon/args_parts.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_shape.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "infer_priv.h"
#include "op_index.h"
#include "op_parts.h"
#include "plan_priv.h"
#include "repeated_priv.h"
#include "rule_priv.h"
#include "scope_priv.h"
#include "shape_priv.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

static tn_status index_vector(const char *op, const tn_view *index) {
    if (index->ndim <= 1) return TN_OK;
    return tn_fail(TN_E_INDEX, -1, "%s(): Index is supposed to be a vector, but got dim: %d", op,
                   (int)index->ndim);
}

/* ---- Advanced indexing -------------------------------------------------------------------------*/

/* The shape of v[:, ..., indices, ...] with indices of one shape in place of the dimensions from
 * `first` on. */
static tn_status indexed_shape(const tn_infer *inf, const tn_view *v, tn_views indices,
                               int64_t first, tn_ints dims, int32_t *ret_ndim, int64_t *shape) {
    int32_t n = 0;
    if (indices.n < 1 || dims.n != indices.n || first < 0 || indices.n > v->ndim - first)
        return tn_fail(TN_E_INDEX, 1, "%lld indices from dimension %lld on do not fit %s",
                       (long long)indices.n, (long long)first, tni_shape_text_of(v));
    const tn_view *index = indices.v[0];
    for (int64_t i = 0; i < indices.n; i++) {
        if (!indices.v[i]) return tn_fail(TN_E_TYPE, 1, "an index is missing");
        TN_TRY(tni_infer_expect(inf, 1, indices.v[i], index->ndim, index->shape, TN_I64));
    }
    if (v->ndim - (int32_t)indices.n + index->ndim > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    for (int32_t d = 0; d < first; d++) shape[n++] = v->shape[d];
    for (int32_t d = 0; d < index->ndim; d++) shape[n++] = index->shape[d];
    for (int32_t d = (int32_t)(first + indices.n); d < v->ndim; d++) shape[n++] = v->shape[d];
    *ret_ndim = n;
    return TN_OK;
}

tn_status tni_infer__index(tn_infer *inf, const void *args) {
    const tn__index_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    int32_t n = 0;
    TN_TRY(indexed_shape(inf, a->input, a->indices, a->first, a->dims, &n, shape));
    return tni_infer_set(inf, 0, n, shape);
}

tn_status tni_infer__index_put_(tn_infer *inf, const void *args) {
    const tn__index_put__args *a = args;
    int64_t shape[TN_MAX_DIMS];
    int32_t n = 0;
    TN_TRY(indexed_shape(inf, a->self, a->indices, a->first, a->dims, &n, shape));
    tni_infer_same(inf, 0, a->self);
    return tni_infer_expect(inf, 2, a->values, n, shape, tn_view_dtype(a->self));
}

tn_status tni_infer_index_select(tn_infer *inf, const void *args) {
    const tn_index_select_args *a = args;
    const tn_view *v = a->input;
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(rule_index_dtype("index_select", a->index));
    TN_TRY(index_vector("index_select", a->index));
    memcpy(shape, v->shape, sizeof *shape * (size_t)v->ndim);
    if (v->ndim == 0 && a->index->numel != 1)
        return tn_fail(TN_E_SHAPE, 2,
                       "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                       (long long)a->index->numel);
    if (v->ndim) shape[a->dim] = a->index->numel;
    return tni_infer_set(inf, 0, v->ndim, shape);
}

/* source must be self with index's length along dim. */
static tn_status slices_match(const char *op, const tn_view *self, int64_t dim,
                              const tn_view *index, const tn_view *source) {
    TN_TRY(rule_index_dtype(op, index));
    TN_TRY(index_vector(op, index));
    if (tn_view_dtype(self) != tn_view_dtype(source))
        return tn_fail(TN_E_DTYPE, 3,
                       "%s(): self (%s) and source (%s) must have the same scalar type", op,
                       tni_type_text(tn_view_dtype(self)), tni_type_text(tn_view_dtype(source)));
    if (index->numel != rule_size_at(source, source->ndim ? dim : 0))
        return tn_fail(
            TN_E_SHAPE, 2,
            "%s(): Number of indices (%lld) should be equal to source.size(dim): (%lld), "
            "for dim: %lld",
            op, (long long)index->numel, (long long)rule_size_at(source, dim), (long long)dim);
    bool fits = self->ndim == source->ndim || (self->ndim <= 1 && source->ndim <= 1);
    for (int32_t d = 0; fits && d < self->ndim && d < source->ndim; d++)
        fits = d == dim || self->shape[d] == source->shape[d];
    if (!fits)
        return tn_fail(TN_E_SHAPE, 3,
                       "%s(): source tensor shape must match self tensor shape, excluding the "
                       "specified dimension. Got self.shape = %s source.shape = %s",
                       op, tni_shape_text_of(self), tni_shape_text_of(source));
    return TN_OK;
}

tn_status tni_infer_index_add_(tn_infer *inf, const void *args) {
    const tn_index_add__args *a = args;
    TN_TRY(slices_match("index_add", a->self, a->dim, a->index, a->source));
    if (a->self->ndim != a->source->ndim)
        return tn_fail(TN_E_SHAPE, 3,
                       "source tensor shape must match self tensor shape, excluding the specified "
                       "dimension. Got self.shape = %s source.shape = %s",
                       tni_shape_text_of(a->self), tni_shape_text_of(a->source));
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}

/* As slices_match; PyTorch calls more of the faults of this operator those of an index. */
static tn_status copied_match(const tn_index_copy__args *a) {
    const tn_view *self = a->self, *source = a->source;
    if (tn_view_dtype(a->index) != TN_I64)
        return tn_fail(TN_E_DTYPE, 2, "index_copy_(): Expected a long tensor for index, but got %s",
                       tni_type_text(tn_view_dtype(a->index)));
    if (source->ndim == 0 && a->index->numel != 1)
        return tn_fail(TN_E_INDEX, 2,
                       "index_copy_(): When source is scalar, index should have one element "
                       "(got %lld)",
                       (long long)a->index->numel);
    if (self->ndim > 0 && source->ndim > 0 && self->ndim != source->ndim)
        return tn_fail(TN_E_INDEX, 3,
                       "index_copy_(): When source and destination are not scalars, their "
                       "dimensionality must match. Source dimensionality (%d), destination "
                       "dimensionality (%d)",
                       (int)source->ndim, (int)self->ndim);
    if (source->ndim > 0 && a->index->numel != rule_size_at(source, a->dim))
        return tn_fail(TN_E_INDEX, 2,
                       "index_copy_(): Number of indices (%lld) should be equal to "
                       "source.size(dim) (%lld)",
                       (long long)a->index->numel, (long long)rule_size_at(source, a->dim));
    return slices_match("index_copy_", self, a->dim, a->index, source);
}

tn_status tni_infer_index_copy_(tn_infer *inf, const void *args) {
    const tn_index_copy__args *a = args;
    TN_TRY(copied_match(a));
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}

/* ---- Results whose size depends on values ------------------------------------------------------*/

tn_status tni_infer_nonzero(tn_infer *inf, const void *args) {
    const tn_nonzero_args *a = args;
    int64_t shape[2] = {0, a->input->ndim};
    return tni_infer_set(inf, 0, 2, shape);
}

/* What a kernel call needs. The tensors are owned. */
typedef struct prepared {
    tn_tensor *self;               /* view of the indexed tensor, dimensions in order */
    tn_tensor *index[TN_MAX_DIMS]; /* int64, all of the same shape */
    int64_t dims[TN_MAX_DIMS];     /* the dimension each of them indexes in the given tensor */
    int64_t count, first;
    int32_t ndim; /* shape of a result */
    int64_t shape[TN_MAX_DIMS];
} prepared;

static void release(prepared *p) {
    tn_tensor_unref(&p->self);
    for (int64_t i = 0; i < p->count; i++) tn_tensor_unref(&p->index[i]);
}

static bool is_mask(const tn_view *v) {
    return tn_view_dtype(v) == TN_BOOL || tn_view_dtype(v) == TN_U8;
}

/* The columns of mask's coordinates as index tensors of dimensions from *dim on. */
static tn_status add_mask(prepared *p, const tn_view *self, tn_tensor *mask, int64_t *dim) {
    tn_tensor *places = NULL;
    if (*dim + mask->v.ndim > self->ndim)
        return tn_fail(TN_E_INDEX, 1, "too many indices for tensor of dimension %d",
                       (int)self->ndim);
    for (int32_t d = 0; d < mask->v.ndim; d++)
        if (mask->v.shape[d] != self->shape[*dim + d])
            return tn_fail(TN_E_INDEX, 1,
                           "The shape of the mask %s at index %d does not match the shape of the "
                           "indexed tensor %s at index %lld",
                           tni_shape_text_of(&mask->v), (int)d, tni_shape_text_of(self),
                           (long long)(*dim + d));
    TN_TRY(tn_nonzero(mask, &places));
    tn_status st = TN_OK;
    for (int32_t d = 0; d < mask->v.ndim && st == TN_OK; d++) {
        int64_t n = places->v.shape[0];
        st = tni_view_new(places, TN_I64, 1, &n, &places->v.strides[0], d * places->v.strides[1],
                          &p->index[p->count]);
        if (st == TN_OK) p->dims[p->count++] = (*dim)++;
    }
    tn_tensor_unref(&places);
    return st;
}

static tn_status add_index(prepared *p, const tn_view *self, tn_tensor *index, int64_t *dim) {
    int32_t dtype = tn_view_dtype(&index->v);
    tn_tensor *near = NULL;
    tn_device device = tn_tensor_device(tni_t(self));
    int64_t code = (int64_t)device.slot << 8 | device.index;
    if (is_mask(&index->v)) {
        TN_TRY(tn__move(index, -1, code, &near));
        tn_status st = add_mask(p, self, near, dim);
        tn_tensor_unref(&near);
        return st;
    }
    if (dtype != TN_I64 && dtype != TN_I32)
        return tn_fail(TN_E_INDEX, 1,
                       "tensors used as indices must be long, int, byte or bool tensors");
    if (*dim >= self->ndim)
        return tn_fail(TN_E_INDEX, 1, "too many indices for tensor of dimension %d",
                       (int)self->ndim);
    TN_TRY(tn__move(index, TN_I64, code, &p->index[p->count]));
    p->dims[p->count++] = (*dim)++;
    return TN_OK;
}

static tn_status broadcast_indices(prepared *p, int32_t *ret_ndim, int64_t *shape) {
    int32_t n = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const tn_view *v = &p->index[i]->v;
        if (tni_broadcast_shapes(n, shape, v->ndim, v->shape, &n, shape) == TN_OK) continue;
        char text[512];
        size_t at = 0;
        for (int64_t k = 0; k < p->count && at < sizeof text - 170; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", k ? ", " : "",
                                   tni_shape_text_of(&p->index[k]->v));
        return tn_fail(
            TN_E_INDEX, 1,
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            "%s",
            text);
    }
    for (int64_t i = 0; i < p->count; i++) {
        const tn_view *v = &p->index[i]->v;
        int64_t strides[TN_MAX_DIMS];
        tn_tensor *wide;
        for (int32_t d = 0; d < n; d++) {
            int32_t own = d - (n - v->ndim);
            strides[d] = own < 0 || v->shape[own] == 1 ? 0 : v->strides[own];
        }
        TN_TRY(tni_view_new(p->index[i], TN_I64, n, shape, strides, 0, &wide));
        tn_tensor_unref(&p->index[i]);
        p->index[i] = wide;
    }
    *ret_ndim = n;
    return TN_OK;
}

/* The indexed dimensions side by side: where they are when they already are, else in front. */
static tn_status place_self(prepared *p, const tn_view *self, int32_t index_ndim,
                            const int64_t *index_shape) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    bool adjacent = p->dims[p->count - 1] - p->dims[0] == p->count - 1;
    int32_t n = 0;
    p->first = adjacent ? p->dims[0] : 0;
    if (self->ndim - (int32_t)p->count + index_ndim > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    for (int64_t i = 0; !adjacent && i < p->count; i++, n++) {
        shape[n] = self->shape[p->dims[i]];
        strides[n] = self->strides[p->dims[i]];
    }
    for (int32_t d = 0, k = 0; d < self->ndim; d++) {
        bool indexed = k < p->count && p->dims[k] == d;
        k += indexed;
        if (indexed && !adjacent) continue;
        shape[n] = self->shape[d];
        strides[n++] = self->strides[d];
    }
    p->ndim = 0;
    for (int64_t d = 0; d < p->first; d++) p->shape[p->ndim++] = shape[d];
    for (int32_t d = 0; d < index_ndim; d++) p->shape[p->ndim++] = index_shape[d];
    for (int64_t d = p->first + p->count; d < n; d++) p->shape[p->ndim++] = shape[d];
    return tni_view_new(tni_t(self), tn_view_dtype(self), n, shape, strides, 0, &p->self);
}

/* p->count is 0 where nothing indexes. */
static tn_status prepare(prepared *p, const tn_view *self, tn_views indices) {
    int64_t shape[TN_MAX_DIMS], dim = 0;
    int32_t ndim = 0;
    p->self = NULL;
    p->count = 0;
    for (int64_t i = 0; i < indices.n; i++) {
        if (indices.v[i]) {
            TN_TRY(add_index(p, self, tni_t(indices.v[i]), &dim));
        } else if (dim++ >= self->ndim) {
            return tn_fail(TN_E_INDEX, 1, "too many indices for tensor of dimension %d",
                           (int)self->ndim);
        }
    }
    if (p->count == 0) return TN_OK;
    TN_TRY(broadcast_indices(p, &ndim, shape));
    return place_self(p, self, ndim, shape);
}

static tn_tensors index_list(const prepared *p) {
    tn_tensors t = {p->index, p->count};
    return t;
}

/* The result's dimensions that are self's own lie as they do in self, as PyTorch has it: how they
 * are ordered from the longest steps. False: by rows, or not with the indexed ones side by side. */
static bool order_as_self(const prepared *p, int32_t index_ndim, int64_t *order) {
    int64_t steps[TN_MAX_DIMS], laid[TN_MAX_DIMS];
    int32_t first = (int32_t)p->first, count = (int32_t)p->count;
    if (p->self->v.word & TN_W_CONTIGUOUS) return false;
    for (int32_t d = 0; d < p->ndim; d++) {
        bool own = d < first || d >= first + index_ndim;
        steps[d] = own ? p->self->v.strides[d < first ? d : d - index_ndim + count] : 0;
    }
    tn_view like = p->self->v;
    like.ndim = p->ndim;
    like.shape = (int64_t *)(uintptr_t)p->shape;
    like.strides = steps;
    tni_format_strides(TN_FORMAT_PRESERVE, &like, p->ndim, p->shape, laid);
    bool rows = true, between = false, over = false;
    for (int32_t d = 0; d < p->ndim; d++) {
        int32_t at = d; /* dimensions of equal steps stay as they are */
        for (; at > 0 && laid[order[at - 1]] < laid[d]; at--) order[at] = order[at - 1];
        order[at] = d;
        rows = rows && at == d;
    }
    for (int32_t k = 0; k < p->ndim; k++) {
        bool indexed = order[k] >= first && order[k] < first + index_ndim;
        if (indexed && over) return false;
        between |= indexed;
        over |= between && !indexed;
    }
    return !rows;
}

/* The elements in the order of self's memory, as a view in that of the result. */
static tn_status gather_as_self(prepared *p, int32_t index_ndim, const int64_t *order,
                                tn_tensor **ret) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS], back[TN_MAX_DIMS], first = p->first;
    const tn_view *v = &p->self->v;
    tn_tensor *laid = NULL, *r = NULL;
    int32_t n = 0;
    bool met = false;
    for (int32_t k = 0; k < p->ndim; k++) {
        int64_t d = order[k];
        back[d] = k;
        bool indexed = d >= p->first && d < p->first + index_ndim;
        for (int64_t i = 0; indexed && !met && i < p->count; i++, n++) {
            if (i == 0) first = n;
            shape[n] = v->shape[p->first + i];
            strides[n] = v->strides[p->first + i];
        }
        met |= indexed;
        if (indexed) continue;
        int64_t own = d < p->first ? d : d - index_ndim + p->count;
        shape[n] = v->shape[own];
        strides[n++] = v->strides[own];
    }
    TN_TRY(tni_view_new(p->self, tn_view_dtype(v), n, shape, strides, 0, &laid));
    tn_status st = tn__index(laid, index_list(p), first, tn_ints_of(p->dims, p->count), &r);
    if (st == TN_OK) st = tn_permute(r, tn_ints_of(back, p->ndim), ret);
    tn_tensor_unref(&laid);
    tn_tensor_unref(&r);
    return st;
}

tn_status tni_composite_index(const void *args, tn_tensor **rets) {
    const tn_index_args *a = args;
    prepared p;
    tn_status st = prepare(&p, a->input, a->indices);
    int64_t order[TN_MAX_DIMS];
    int32_t index_ndim = st == TN_OK && p.count ? p.index[0]->v.ndim : 0;
    if (st == TN_OK && p.count == 0)
        st = tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, rets);
    else if (st == TN_OK && index_ndim > 0 && order_as_self(&p, index_ndim, order))
        st = gather_as_self(&p, index_ndim, order, rets);
    else if (st == TN_OK)
        st = tn__index(p.self, index_list(&p), p.first, tn_ints_of(p.dims, p.count), rets);
    release(&p);
    return st;
}

/* values in the dtype and shape of the places they go to, without memory of their own. */
static tn_status fit_values(const prepared *p, const tn_view *self, tn_tensor *values, bool fills,
                            tn_tensor **ret) {
    int64_t strides[TN_MAX_DIMS];
    tn_tensor *same = NULL;
    tn_device device = tn_tensor_device(tni_t(self));
    int32_t want = tn_view_dtype(self), lead = 0, n = values->v.ndim;
    if (tn_view_dtype(&values->v) != want && !fills && !(values->v.word & TN_W_SCALAR))
        return tn_fail(TN_E_DTYPE, 2,
                       "Index put requires the source and destination dtypes match, got %s for the "
                       "destination and %s for the source.",
                       tni_type_text(want), tni_type_text(tn_view_dtype(&values->v)));
    TN_TRY(tn__move(values, want, (int64_t)device.slot << 8 | device.index, &same));
    while (n - lead > p->ndim && same->v.shape[lead] == 1) lead++;
    bool fits = n - lead <= p->ndim;
    for (int32_t d = 0; fits && d < p->ndim; d++) {
        int32_t own = d - (p->ndim - n);
        int64_t size = own < lead ? 1 : same->v.shape[own];
        fits = size == 1 || size == p->shape[d];
        strides[d] = size == 1 ? 0 : same->v.strides[own];
    }
    tn_status st = fits ? tni_view_new(same, want, p->ndim, p->shape, strides, 0, ret)
                        : tn_fail(TN_E_SHAPE, 2,
                                  "shape mismatch: value tensor of shape %s cannot be broadcast to "
                                  "indexing result of shape %s",
                                  tni_shape_text_of(&values->v), tni_shape_text(p->ndim, p->shape));
    tn_tensor_unref(&same);
    return st;
}

/* One value for all that a mask shows: as with masked_fill_, it may be of any dtype. */
static bool is_fill(tn_views indices, const tn_tensor *values, int64_t accumulate) {
    int masks = 0;
    for (int64_t i = 0; i < indices.n; i++) {
        if (!indices.v[i]) continue;
        if (!is_mask(indices.v[i])) return false;
        masks++;
    }
    return masks == 1 && !accumulate && values->v.numel == 1;
}

static tn_status check_apart(const tn_tensor *self, tn_views indices, const tn_tensor *values) {
    if (tni_overlap_of(self, values) != TNI_OVERLAP_NONE) return tni_fail_overlap();
    for (int64_t i = 0; i < indices.n; i++)
        if (indices.v[i] && tni_overlap_of(self, tni_t(indices.v[i])) != TNI_OVERLAP_NONE)
            return tni_fail_overlap();
    return TN_OK;
}

static tn_status put(tn_tensor *self, tn_views indices, tn_tensor *values, int64_t accumulate) {
    prepared p;
    tn_tensor *fit = NULL, *same = NULL;
    bool fills = is_fill(indices, values, accumulate);
    /* Where a mask puts them is not known on meta, and nothing is to be written there */
    for (int64_t i = 0; tni_is_meta(&self->v) && i < indices.n; i++)
        if (indices.v[i] && is_mask(indices.v[i])) return TN_OK;
    tn_status st = prepare(&p, &self->v, indices);
    if (st) goto out;
    if (!fills && self->v.numel > 0 && (st = check_apart(self, indices, values))) goto out;
    if (p.count == 0) {
        st =
            accumulate ? tn_add_(self, values, tn_scalar_int(1)) : tn_copy_(self, values, 0, &same);
        goto out;
    }
    if ((st = fit_values(&p, &self->v, values, fills, &fit))) goto out;
    st = tn__index_put_(p.self, index_list(&p), fit, p.first, tn_ints_of(p.dims, p.count),
                        accumulate, &same);
out:
    tn_tensor_unref(&fit);
    tn_tensor_unref(&same);
    release(&p);
    return st;
}

static tn_status put_repeated(tn_tensor *self, tn_views indices, tn_tensor *values,
                              int64_t accumulate) {
    bool fills = is_fill(indices, values, accumulate);
    int32_t dtype = tn_view_dtype(&(fills ? self : values)->v);
    tn_tensor *fit;
    tni_warn_repeated("index_put_");
    if (tni_is_meta(&self->v)) return TN_OK;
    TN_TRY(tni_convert(values, dtype, &fit));
    tn_status st = tni_index_put_repeated(self, tni_tensors_of(indices), fit, accumulate);
    tn_tensor_unref(&fit);
    return st;
}

tn_status tni_composite_index_put_(const void *args, tn_tensor **rets) {
    const tn_index_put__args *a = args;
    tn_tensor *self = tni_t(a->self);
    bool repeats = tni_repeats(self) && !tni_recording(self->v.word | a->values->word);
    TN_TRY((repeats ? put_repeated : put)(self, a->indices, tni_t(a->values), a->accumulate));
    rets[0] = tn_tensor_ref(tni_t(a->self));
    return TN_OK;
}

tn_status tni_composite__index_backward(const void *args, tn_tensor **rets) {
    const tn__index_backward_args *a = args;
    tn_tensor *whole;
    TN_TRY(tn_new_zeros(tni_t(a->grad), a->size, -1, -1, &whole));
    tn_status st = put(whole, a->indices, tni_t(a->grad), 1);
    if (st == TN_OK)
        rets[0] = whole;
    else
        tn_tensor_unref(&whole);
    return st;
}

tn_status tni_composite__index_cleared(const void *args, tn_tensor **rets) {
    const tn__index_cleared_args *a = args;
    tn_tensor *copy, *zero = NULL;
    TN_TRY(tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &copy));
    tn_status st = tn_new_zeros(copy, (tn_ints){NULL, 0}, -1, -1, &zero);
    if (st == TN_OK) st = put(copy, a->indices, zero, 0);
    tn_tensor_unref(&zero);
    if (st == TN_OK)
        rets[0] = copy;
    else
        tn_tensor_unref(&copy);
    return st;
}

/* ---- Along one dimension -----------------------------------------------------------------------*/

tn_status tni_composite__index_select_backward(const void *args, tn_tensor **rets) {
    const tn__index_select_backward_args *a = args;
    tn_tensor *whole, *same = NULL;
    TN_TRY(tn_new_zeros(tni_t(a->grad), a->size, -1, -1, &whole));
    tn_status st =
        tn_index_add_(whole, a->dim, tni_t(a->index), tni_t(a->grad), tn_scalar_int(1), &same);
    tn_tensor_unref(&whole);
    if (st == TN_OK) rets[0] = same;
    return st;
}

/* Indices along a dimension of `size`, where negative ones count from the end. */
static tn_tensor *from_the_start(tni_scope *s, tn_tensor *index, int64_t size) {
    tn_scalar_box zero, all;
    tn_tensor *none = tn_scalar_box_init(&zero, tn_scalar_int(0));
    tn_tensor *negative = SCOPE(s, tn_lt(index, none, scope_slot(s)));
    tn_tensor *moved = scope_add(s, index, tn_scalar_box_init(&all, tn_scalar_int(size)));
    return scope_where(s, negative, moved, index);
}

/* The element of a tensor without dimensions, which may be named more than once. */
static tn_status fill_single(const tn_index_fill__args *a, tn_tensor **rets) {
    tn_tensor *self = tni_t(a->self);
    tni_scope s = {0};
    tn_tensor *row = SCOPE(&s, tn_unsqueeze(self, 0, scope_slot(&s)));
    (void)SCOPE(&s, tn_index_fill_(row, 0, tni_t(a->index), tni_t(a->value), scope_slot(&s)));
    return scope_finish(&s, self, rets);
}

tn_status tni_composite_index_fill_(const void *args, tn_tensor **rets) {
    const tn_index_fill__args *a = args;
    tn_tensor *self = tni_t(a->self), *value;
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = self->v.ndim;
    tni_scope s = {0};
    if (tn_view_dtype(a->index) != TN_I64)
        return tn_fail(TN_E_INDEX, 2, "index_fill_(): Expected dtype int64 for index.");
    if (tn_dtype_category(tn_view_dtype(a->value)) == TN_CAT_COMPLEX &&
        tn_dtype_category(tn_view_dtype(a->self)) != TN_CAT_COMPLEX)
        return tn_fail(
            TN_E_STATE, 3,
            "index_fill_(): Converting complex Scalar to non-complex type is not supported");
    if (a->index->ndim > 1) return tn_fail(TN_E_SHAPE, 2, "Index has to be a vector/scalar");
    if (a->value->ndim != 0)
        return tn_fail(
            TN_E_SHAPE, 3,
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with %d "
            "dimension(s).",
            (int)a->value->ndim);
    if (a->value->word & TN_W_SCALAR) {
        tn_scalar number;
        tni_scalar_load(tn_view_dtype(a->value), a->value->data, &number);
        TN_TRY(tni_check_scalar_fits(&number, tn_view_dtype(&self->v)));
    }
    if (tni_overlap_of(self, tni_t(a->index)) != TNI_OVERLAP_NONE) return tni_fail_overlap();
    if (ndim == 0 && a->index->numel != 1) return fill_single(a, rets);
    memcpy(shape, self->v.shape, sizeof *shape * (size_t)ndim);
    tn_tensor *index = from_the_start(&s, tni_t(a->index), ndim ? shape[a->dim] : 1);
    if (ndim) shape[a->dim] = a->index->numel;
    if (index && tni_repeats(self) && !tni_recording(self->v.word | a->value->word)) {
        tni_warn_repeated("index_fill_");
        s.st = tni_index_fill_repeated(self, a->dim, index, tni_t(a->value));
        return scope_finish(&s, self, rets);
    }
    value = SCOPE(&s, tn_new_empty(self, (tn_ints){NULL, 0}, -1, -1, scope_slot(&s)));
    if (s.st == TN_OK) s.st = tni_copy_into(value, tni_t(a->value));
    value = scope_expand(&s, value, tn_ints_of(shape, ndim));
    if (s.st == TN_OK) s.st = tn_index_copy_(self, a->dim, index, value, rets);
    return scope_finish(&s, NULL, NULL);
}

/* ---- Coordinates -------------------------------------------------------------------------------*/

tn_status tni_composite__nonzero_tuple(const void *args, tn_tensor **rets) {
    const tn__nonzero_tuple_args *a = args;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    tn_tensor *x = NULL, *places = NULL;
    tn_status st = tn_atleast_1d(tni_t(a->input), &x);
    if (st == TN_OK) st = tn_nonzero(x, &places);
    if (st == TN_OK) st = tn_unbind(places, 1, list);
    tn_tensor_unref(&x);
    tn_tensor_unref(&places);
    return st;
}

tn_status tni_composite_where_condition(const void *args, tn_tensor **rets) {
    const tn_where_condition_args *a = args;
    return tn__nonzero_tuple(tni_t(a->condition), (tn_tensor_list *)(void *)rets);
}

/* ---- Masks, flat positions ---------------------------------------------------------------------*/

tn_status tni_composite_take(const void *args, tn_tensor **rets) {
    const tn_take_args *a = args;
    tn_tensor *flat = NULL, *const list[] = {tni_t(a->index)};
    int32_t dtype = tn_view_dtype(a->index);
    if (dtype != TN_I64)
        return tn_fail(TN_E_DTYPE, 1, "take(): Expected a long tensor for index, but got %s",
                       tni_type_text(dtype));
    if (a->input->numel == 0 && a->index->numel != 0)
        return tn_fail(TN_E_INDEX, 0, "take(): tried to take from an empty tensor");
    tn_status st = tn_reshape(tni_t(a->input), TN_INTS(-1), &flat);
    if (st == TN_OK) st = tn_index(flat, (tn_tensors){list, 1}, rets);
    tn_tensor_unref(&flat);
    return st;
}

/* x and mask expanded to their common shape. */
static tn_status expand_both(tn_tensor *x, tn_tensor *mask, tn_tensor **ret_x,
                             tn_tensor **ret_mask) {
    int64_t shape[TN_MAX_DIMS];
    int32_t n = 0;
    TN_TRY(tni_broadcast_shapes(x->v.ndim, x->v.shape, mask->v.ndim, mask->v.shape, &n, shape));
    TN_TRY(tn_expand(x, tn_ints_of(shape, n), 0, ret_x));
    return tn_expand(mask, tn_ints_of(shape, n), 0, ret_mask);
}

tn_status tni_composite_masked_select(const void *args, tn_tensor **rets) {
    const tn_masked_select_args *a = args;
    tn_tensor *x = NULL, *mask = NULL, *flat_x = NULL, *flat_mask = NULL;
    if (tn_view_dtype(a->mask) != TN_BOOL)
        return tn_fail(TN_E_DTYPE, 1, "masked_select: expected BoolTensor for mask");
    tn_status st = expand_both(tni_t(a->input), tni_t(a->mask), &x, &mask);
    if (st) goto out;
    if ((st = tn_atleast_1d(x, &flat_x))) goto out;
    if ((st = tn_atleast_1d(mask, &flat_mask))) goto out;
    tn_tensor *const list[] = {flat_mask};
    st = tn_index(flat_x, (tn_tensors){list, 1}, rets);
out:
    tn_tensor_unref(&x);
    tn_tensor_unref(&mask);
    tn_tensor_unref(&flat_x);
    tn_tensor_unref(&flat_mask);
    return st;
}

tn_status tni_composite_masked_scatter(const void *args, tn_tensor **rets) {
    const tn_masked_scatter_args *a = args;
    tn_tensor *x = NULL, *mask = NULL;
    if (tn_view_dtype(a->mask) != TN_BOOL)
        return tn_fail(TN_E_DTYPE, 1,
                       "masked_scatter_ only supports boolean masks, but got mask with "
                       "dtype %s",
                       tni_type_text(tn_view_dtype(a->mask)));
    if (tn_view_dtype(a->input) != tn_view_dtype(a->source))
        return tn_fail(
            TN_E_DTYPE, 2,
            "masked_scatter: expected self and source to have same dtypes but got %s and %s",
            tni_type_text(tn_view_dtype(a->input)), tni_type_text(tn_view_dtype(a->source)));
    tni_scope s = {0};
    s.st = expand_both(tni_t(a->input), tni_t(a->mask), &x, &mask);
    scope_take(&s, TN_OK, x);
    scope_take(&s, TN_OK, mask);
    tn_tensor *copy = SCOPE(&s, tn_clone(x, TN_FORMAT_CONTIGUOUS, scope_slot(&s)));
    if (s.st != TN_OK || tni_is_meta(&copy->v)) return scope_finish(&s, copy, rets);
    tn_tensor *line = scope_reshape(&s, copy, TN_INTS(-1));
    tn_tensor *flat_mask = scope_reshape(&s, mask, TN_INTS(-1));
    tn_tensor *places = scope_reshape(&s, scope_unary(&s, tn_nonzero, flat_mask), TN_INTS(-1));
    tn_tensor *flat = scope_reshape(&s, tni_t(a->source), TN_INTS(-1));
    int64_t n = s.st == TN_OK ? tn_tensor_shape(places)[0] : 0;
    if (n > a->source->numel)
        s.st = tn_fail(TN_E_SHAPE, 2, "Number of elements of source < number of ones in mask");
    tn_tensor *some = scope_narrow(&s, flat, 0, 0, n);
    tn_tensors where = {&places, 1}; /* found once: a mask would be searched again */
    tn_tensor *put_to = SCOPE(&s, tn_index_put(line, where, some, 0, scope_slot(&s)));
    return scope_finish(&s, scope_reshape(&s, put_to, tni_shape_ints(x)), rets);
}
