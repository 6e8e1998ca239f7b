/* join.c: operators that put tensors beside each other, repeat and reorder them. Values move with the
 * device's kernel for joining, or with the copy kernels, one part of the result after the other. */
#include <stdlib.h>

#include <tenon/args_create.h>
#include <tenon/args_index.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "call_priv.h"
#include "copy_priv.h"
#include "op_create.h"
#include "op_index.h"
#include "plan_priv.h"
#include "shape_priv.h"

/* ---- Lists of tensors --------------------------------------------------------------------------*/

static tn_tensors list_of(const tn_tensor_list *l) {
    tn_tensors t = {l->v, l->n};
    return t;
}

static tn_status check_list(const char *name, tn_views ts) {
    if (ts.n <= 0) return tn_fail(TN_E_SHAPE, 0, "%s expects a non-empty TensorList", name);
    for (int64_t i = 0; i < ts.n; i++)
        if (!ts.v[i])
            return tn_fail(TN_E_TYPE, 0, "%s(): tensor %lld of the list is missing", name,
                           (long long)i);
    return TN_OK;
}

/* ---- Joining -----------------------------------------------------------------------------------*/

/* An empty vector joins with anything, whatever the other ranks. */
static bool skipped(const tn_view *v) { return v->ndim == 1 && v->numel == 0; }

tn_status tni_infer__join(tn_infer *inf, const void *args) {
    (void)args;
    return tn_fail(TN_E_UNSUPPORTED, -1, "%s is for kernels; cat and stack join",
                   inf->op->info.name);
}

/* Copies t into the part of the whole that begins at `from` along the dimension. */
static tn_status put_part(const tn__join_args *a, int64_t from, const tn_view *t) {
    const tn_view *whole = a->whole;
    int64_t strides[TN_MAX_DIMS];
    int32_t ndim = 0;
    tn_tensor *part;
    for (int32_t d = 0; d < whole->ndim; d++)
        if (!a->stacked || d != a->dim) strides[ndim++] = whole->strides[d];
    TN_TRY(tni_view_new(tni_t(whole), tn_view_dtype(whole), ndim, t->shape, strides,
                        from * whole->strides[a->dim], &part));
    tn_status st = tni_copy_into(part, tni_t(t));
    tn_tensor_unref(&part);
    return st;
}

tn_status tni_composite__join(const void *args, tn_tensor **rets) {
    const tn__join_args *a = args;
    (void)rets;
    for (int64_t i = 0, from = 0; i < a->tensors.n; i++) {
        const tn_view *t = a->tensors.v[i];
        if (t->numel == 0) continue;
        TN_TRY(put_part(a, from, t));
        from += a->stacked ? 1 : t->shape[a->dim];
    }
    return TN_OK;
}

static bool all_have(tn_views ts, int32_t dtype) {
    for (int64_t i = 0; i < ts.n; i++)
        if (tn_view_dtype(ts.v[i]) != dtype) return false;
    return true;
}

/* Writes the tensors into `whole`: at once where the device can and nothing is to be converted. */
static tn_status join(tn_tensor *whole, tn_views ts, int64_t dim, bool stacked) {
    tn__join_args args = {.whole = &whole->v, .tensors = ts, .dim = dim, .stacked = stacked};
    const tn_op *op = &tni_op__join;
    const tn_cell *cell = NULL;
    int32_t dtype = tn_tensor_dtype(whole);
    tn_status st = TN_DECLINE;
    if (whole->v.numel == 0) return TN_OK;
    if (all_have(ts, dtype)) cell = tni_kernel_find(op, tn_view_device(&whole->v), dtype);
    if (cell) st = tni_kernel_run(op, cell, tn_tensor_device(whole), dtype, &args);
    return st == TN_DECLINE ? tni_composite__join(&args, NULL) : st;
}

/* ---- cat ---------------------------------------------------------------------------------------*/

static tn_status list_dtype(tn_views ts, int32_t *ret) {
    tn_tensor *some[2];
    int32_t dtype = -1;
    for (int64_t i = 0; i < ts.n; i++) {
        some[0] = tni_t(ts.v[i]);
        int32_t d = tni_result_dtype(some, 1);
        int32_t both = dtype < 0 ? d : tn_dtype_promote(dtype, d);
        if (both == TN_NO_DTYPE) return tni_fail_promotion(dtype, d);
        dtype = both;
    }
    *ret = dtype;
    return TN_OK;
}

static tn_status same_devices(tn_views ts) {
    tn_device a = tn_tensor_device(tni_t(ts.v[0]));
    for (int64_t i = 1; i < ts.n; i++) {
        tn_device b = tn_tensor_device(tni_t(ts.v[i]));
        if (a.slot != b.slot || a.index != b.index) return tni_fail_devices(a, b);
    }
    return TN_OK;
}

static tn_status cat_shape(const tn_cat_args *a, int32_t *ret_ndim, int64_t *ret_dim,
                           int64_t *shape, bool *ret_channels_last) {
    const tn_view *model = NULL;
    *ret_channels_last = true;
    for (int64_t i = 0; i < a->tensors.n; i++) {
        const tn_view *v = a->tensors.v[i];
        if (v->ndim == 0)
            return tn_fail(TN_E_SHAPE, 0,
                           "zero-dimensional tensor (at position %lld) cannot be concatenated",
                           (long long)i);
        if (skipped(v)) continue;
        if (!tni_lies_channels_last(v)) *ret_channels_last = false;
        if (!model) {
            model = v;
            TN_TRY(tni_wrap_dim(a->dim, v->ndim, ret_dim));
            memcpy(shape, v->shape, sizeof *shape * (size_t)v->ndim);
            continue;
        }
        if (v->ndim != model->ndim)
            return tn_fail(TN_E_SHAPE, 0,
                           "Tensors must have same number of dimensions: got %d and %d",
                           (int)model->ndim, (int)v->ndim);
        for (int32_t d = 0; d < v->ndim; d++) {
            if (d == *ret_dim || v->shape[d] == model->shape[d]) continue;
            return tn_fail(
                TN_E_SHAPE, 0,
                "Sizes of tensors must match except in dimension %lld. Expected size %lld "
                "but got size %lld for tensor number %lld in the list.",
                (long long)*ret_dim, (long long)model->shape[d], (long long)v->shape[d],
                (long long)i);
        }
        if (__builtin_add_overflow(shape[*ret_dim], v->shape[*ret_dim], &shape[*ret_dim]))
            return tn_fail(TN_E_VALUE, 0, "cat: the result is too large");
    }
    if (!model) { /* nothing to join, along whatever dim */
        *ret_dim = 0;
        shape[0] = 0;
        *ret_channels_last = false;
    }
    *ret_ndim = model ? model->ndim : 1;
    return TN_OK;
}

/* PyTorch calls it a fault of the types where the given tensor cannot hold the parts. */
static tn_status cat_into(const tn_cat_args *a) {
    int32_t to = a->out ? tn_dtype_category(tn_view_dtype(a->out)) : TN_CAT_COMPLEX;
    for (int64_t i = 0; i < a->tensors.n; i++)
        if (tn_dtype_category(tn_view_dtype(a->tensors.v[i])) > to)
            return tn_fail(TN_E_TYPE, 0,
                           "torch.cat(): input types can't be cast to the desired output type %s",
                           tni_type_text(tn_view_dtype(a->out)));
    return TN_OK;
}

tn_status tni_composite_cat(const void *args, tn_tensor **rets) {
    const tn_cat_args *a = args;
    int64_t shape[TN_MAX_DIMS], dim = 0;
    int32_t ndim = 0, dtype = 0;
    bool channels_last = false;
    tn_tensor *whole;
    if (a->tensors.n == 0)
        return tn_fail(TN_E_VALUE, 0, "torch.cat(): expected a non-empty list of Tensors");
    TN_TRY(check_list("cat", a->tensors));
    TN_TRY(cat_into(a));
    TN_TRY(cat_shape(a, &ndim, &dim, shape, &channels_last));
    TN_TRY(list_dtype(a->tensors, &dtype));
    TN_TRY(same_devices(a->tensors));
    TN_TRY(tn_tensor_new(dtype, tn_tensor_device(tni_t(a->tensors.v[0])), ndim, shape, &whole));
    if (channels_last) {
        tni_format_strides(ndim == 4 ? TN_FORMAT_CHANNELS_LAST : TN_FORMAT_CHANNELS_LAST_3D, NULL,
                           ndim, shape, whole->v.strides);
        tni_tensor_refresh(whole);
    }
    tn_status st = join(whole, a->tensors, dim, false);
    if (st == TN_OK)
        rets[0] = whole;
    else
        tn_tensor_unref(&whole);
    return st;
}

tn_status tni_composite_stack(const void *args, tn_tensor **rets) {
    const tn_stack_args *a = args;
    int64_t shape[TN_MAX_DIMS], dim = 0;
    int32_t dtype = 0;
    tn_tensor *whole;
    TN_TRY(check_list("stack", a->tensors));
    const tn_view *first = a->tensors.v[0];
    TN_TRY(tni_wrap_dim(a->dim, first->ndim + 1, &dim));
    for (int64_t i = 1; i < a->tensors.n; i++) {
        const tn_view *v = a->tensors.v[i];
        bool same = v->ndim == first->ndim;
        for (int32_t d = 0; same && d < v->ndim; d++) same = v->shape[d] == first->shape[d];
        if (!same)
            return tn_fail(
                TN_E_SHAPE, 0,
                "stack expects each tensor to be equal size, but got %s at entry 0 and %s "
                "at entry %lld",
                tni_shape_text_of(first), tni_shape_text_of(v), (long long)i);
    }
    if (first->ndim >= TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    for (int32_t d = 0; d <= first->ndim; d++)
        shape[d] = d == dim ? a->tensors.n : first->shape[d < dim ? d : d - 1];
    TN_TRY(list_dtype(a->tensors, &dtype));
    TN_TRY(same_devices(a->tensors));
    TN_TRY(tn_tensor_new(dtype, tn_tensor_device(tni_t(first)), first->ndim + 1, shape, &whole));
    tn_status st = join(whole, a->tensors, dim, true);
    if (st == TN_OK)
        rets[0] = whole;
    else
        tn_tensor_unref(&whole);
    return st;
}

/* ---- At least so many dimensions ---------------------------------------------------------------*/

tn_status tni_composite_atleast_1d(const void *args, tn_tensor **rets) {
    tn_tensor *x = tni_t(((const tn_atleast_1d_args *)args)->input);
    if (x->v.ndim == 0) return tn_reshape(x, TN_INTS(1), rets);
    rets[0] = tn_tensor_ref(x);
    return TN_OK;
}

tn_status tni_composite_atleast_2d(const void *args, tn_tensor **rets) {
    tn_tensor *x = tni_t(((const tn_atleast_2d_args *)args)->input);
    if (x->v.ndim == 0) return tn_reshape(x, TN_INTS(1, 1), rets);
    if (x->v.ndim == 1) return tn_unsqueeze(x, 0, rets);
    rets[0] = tn_tensor_ref(x);
    return TN_OK;
}

tn_status tni_composite_atleast_3d(const void *args, tn_tensor **rets) {
    tn_tensor *x = tni_t(((const tn_atleast_3d_args *)args)->input);
    if (x->v.ndim == 0) return tn_reshape(x, TN_INTS(1, 1, 1), rets);
    if (x->v.ndim == 1) return tn_reshape(x, TN_INTS(1, x->v.shape[0], 1), rets);
    if (x->v.ndim == 2) return tn_unsqueeze(x, -1, rets);
    rets[0] = tn_tensor_ref(x);
    return TN_OK;
}

static tn_status as_column(tn_tensor *x, tn_tensor **ret) {
    if (x->v.ndim <= 1) return tn_reshape(x, TN_INTS(x->v.numel, 1), ret);
    *ret = tn_tensor_ref(x);
    return TN_OK;
}

/* cat along dim, of vectors along their only one, after f was applied to each. */
static tn_status cat_mapped(const char *name, tn_views ts,
                            tn_status (*f)(tn_tensor *, tn_tensor **), int64_t dim,
                            tn_tensor **rets) {
    tn_tensor_list list;
    TN_TRY(check_list(name, ts));
    TN_TRY(tni_list_mapped(ts, f, &list));
    bool vectors = tn_tensor_ndim(list.v[0]) == 1;
    tn_status st = tn_cat(list_of(&list), vectors ? 0 : dim, rets);
    tn_tensor_list_free(&list);
    return st;
}

tn_status tni_composite_hstack(const void *args, tn_tensor **rets) {
    return cat_mapped("hstack", ((const tn_hstack_args *)args)->tensors, tn_atleast_1d, 1, rets);
}

tn_status tni_composite_vstack(const void *args, tn_tensor **rets) {
    return cat_mapped("vstack", ((const tn_vstack_args *)args)->tensors, tn_atleast_2d, 0, rets);
}

tn_status tni_composite_dstack(const void *args, tn_tensor **rets) {
    return cat_mapped("dstack", ((const tn_dstack_args *)args)->tensors, tn_atleast_3d, 2, rets);
}

tn_status tni_composite_column_stack(const void *args, tn_tensor **rets) {
    return cat_mapped("column_stack", ((const tn_column_stack_args *)args)->tensors, as_column, 1,
                      rets);
}

/* ---- Grids -------------------------------------------------------------------------------------*/

tn_status tni_composite_broadcast_tensors(const void *args, tn_tensor **rets) {
    const tn_broadcast_tensors_args *a = args;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = 0;
    for (int64_t i = 0; i < a->tensors.n; i++) {
        const tn_view *v = a->tensors.v[i];
        TN_TRY(tni_broadcast_shapes(ndim, shape, v->ndim, v->shape, &ndim, shape));
    }
    TN_TRY(tni_list_new(a->tensors.n, list));
    for (int64_t i = 0; i < a->tensors.n; i++) {
        const tn_view *v = a->tensors.v[i];
        bool same = v->ndim == ndim && memcmp(v->shape, shape, (size_t)ndim * sizeof *shape) == 0;
        if (same) list->v[i] = tn_tensor_ref(tni_t(v)); /* as it is, for one tensor alone as well */
        tn_status st = same ? TN_OK : tn_expand(tni_t(v), tn_ints_of(shape, ndim), 0, &list->v[i]);
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
        list->n++;
    }
    return TN_OK;
}

/* One grid: t along dimension `along` of `shape`. */
static tn_status grid(tn_tensor *t, int64_t along, int64_t n, const int64_t *shape, bool swap,
                      tn_tensor **ret) {
    int64_t line[TN_MAX_DIMS];
    tn_tensor *wide = NULL, *full = NULL;
    for (int64_t i = 0; i < n; i++) line[i] = i == along ? shape[i] : 1;
    tn_status st = tn_reshape(t, tn_ints_of(line, n), &wide);
    if (st == TN_OK) st = tn_expand(wide, tn_ints_of(shape, n), 0, swap ? &full : ret);
    if (st == TN_OK && swap) st = tn_transpose(full, 0, 1, ret);
    tn_tensor_unref(&wide);
    tn_tensor_unref(&full);
    return st;
}

tn_status tni_composite_meshgrid(const void *args, tn_tensor **rets) {
    const tn_meshgrid_args *a = args;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    int64_t shape[TN_MAX_DIMS], n = a->tensors.n;
    bool xy = a->indexing && strcmp(a->indexing, "xy") == 0;
    if (a->indexing && !xy && strcmp(a->indexing, "ij") != 0)
        return tn_fail(TN_E_STATE, 1,
                       "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: %s",
                       a->indexing);
    if (n <= 0 || n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "meshgrid expects a non-empty TensorList");
    bool swap = xy && n >= 2;
    for (int64_t i = 0; i < n; i++) {
        const tn_view *v = a->tensors.v[i];
        if (v->ndim > 1)
            return tn_fail(
                TN_E_SHAPE, 0,
                "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: %s",
                tni_shape_text_of(v));
        if (tn_view_dtype(v) != tn_view_dtype(a->tensors.v[0]))
            return tn_fail(TN_E_DTYPE, 0, "meshgrid expects all tensors to have the same dtype");
        shape[i] = v->numel;
    }
    TN_TRY(tni_list_new(n, list));
    for (int64_t i = 0; i < n; i++) {
        tn_status st = grid(tni_t(a->tensors.v[i]), i, n, shape, swap, &list->v[i]);
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
        list->n++;
    }
    return TN_OK;
}

tn_status tni_composite_cartesian_prod(const void *args, tn_tensor **rets) {
    const tn_cartesian_prod_args *a = args;
    tn_tensor_list grids = {0}, flat = {0};
    TN_TRY(check_list("cartesian_prod", a->tensors));
    for (int64_t i = 0; i < a->tensors.n; i++)
        if (a->tensors.v[i]->ndim != 1)
            return tn_fail(TN_E_SHAPE, 0, "Expect a 1D vector, but got shape %s",
                           tni_shape_text_of(a->tensors.v[i]));
    if (a->tensors.n == 1) {
        rets[0] = tn_tensor_ref(tni_t(a->tensors.v[0]));
        return TN_OK;
    }
    tn_status st = tn_meshgrid(tni_tensors_of(a->tensors), "ij", &grids);
    if (st) goto out;
    if ((st = tni_list_new(grids.n, &flat))) goto out;
    for (int64_t i = 0; i < grids.n; i++) {
        if ((st = tn_reshape(grids.v[i], TN_INTS(-1), &flat.v[i]))) goto out;
        flat.n++;
    }
    st = tn_stack(list_of(&flat), 1, rets);
out:
    tn_tensor_list_free(&grids);
    tn_tensor_list_free(&flat);
    return st;
}

/* ---- Repeating ---------------------------------------------------------------------------------*/

/* Every dimension is split in two, (count, size), of which the first is expanded. */
static tn_status repeated(tn_tensor *x, int64_t n, const int64_t *counts, tn_tensor **ret) {
    int64_t line[TN_MAX_DIMS], wide[TN_MAX_DIMS], shape[TN_MAX_DIMS];
    tn_tensor *split = NULL, *full = NULL;
    int32_t k = 0;
    if (n < x->v.ndim)
        return tn_fail(TN_E_SHAPE, 1,
                       "Number of dimensions of repeat dims can not be smaller than number of "
                       "dimensions of tensor");
    if (n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    for (int64_t i = 0; i < n; i++) {
        int64_t own = i - (n - x->v.ndim), size = own >= 0 ? x->v.shape[own] : 1;
        if (counts[i] < 0)
            return tn_fail(TN_E_SHAPE, 1,
                           "Trying to create tensor with negative dimension %lld: %s",
                           (long long)(counts[i] * size), tni_shape_text((int32_t)n, counts));
        if (__builtin_mul_overflow(size, counts[i], &shape[i]))
            return tn_fail(TN_E_VALUE, 1, "repeat: the result is too large");
        if (counts[i] != 1 && size != 1) {
            if (k + 2 > TN_MAX_DIMS)
                return tn_fail(TN_E_UNSUPPORTED, 1, "repeat: too many repeated dimensions");
            line[k] = 1;
            wide[k++] = counts[i];
        } else if (k + 1 > TN_MAX_DIMS) {
            return tn_fail(TN_E_UNSUPPORTED, 1, "repeat: too many repeated dimensions");
        }
        line[k] = size;
        wide[k++] = counts[i] != 1 && size == 1 ? counts[i] : size;
    }
    tn_status st = tn_reshape(x, tn_ints_of(line, k), &split);
    if (st) goto out;
    if ((st = tn_expand(split, tn_ints_of(wide, k), 0, &full))) goto out;
    /* a clone even where nothing repeats: the result never shares memory */
    tn_tensor_unref(&split);
    if ((st = tn_clone(full, TN_FORMAT_CONTIGUOUS, &split))) goto out;
    st = tn_reshape(split, tn_ints_of(shape, n), ret);
out:
    tn_tensor_unref(&split);
    tn_tensor_unref(&full);
    return st;
}

tn_status tni_composite_repeat(const void *args, tn_tensor **rets) {
    const tn_repeat_args *a = args;
    return repeated(tni_t(a->input), a->repeats.n, a->repeats.v, rets);
}

tn_status tni_composite_tile(const void *args, tn_tensor **rets) {
    const tn_tile_args *a = args;
    int64_t counts[TN_MAX_DIMS], n = a->dims.n, ndim = a->input->ndim;
    if (n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    int64_t total = n > ndim ? n : ndim;
    for (int64_t i = 0; i < total; i++) counts[i] = i < total - n ? 1 : a->dims.v[i - (total - n)];
    return repeated(tni_t(a->input), total, counts, rets);
}

tn_status tni_composite_repeat_interleave(const void *args, tn_tensor **rets) {
    const tn_repeat_interleave_args *a = args;
    tn_tensor *x = tni_t(a->input), *flat = NULL, *split = NULL, *full = NULL;
    int64_t dim = 0, shape[TN_MAX_DIMS], wide[TN_MAX_DIMS];
    tn_status st = TN_OK;
    if (a->repeats < 0) return tn_fail(TN_E_SHAPE, 1, "Repeats must be non-negative");
    if (!a->dim.has && (st = tn_reshape(x, TN_INTS(-1), &flat))) goto out;
    if (flat) x = flat;
    if (a->dim.has && (st = tni_wrap_dim(a->dim.value, x->v.ndim, &dim))) goto out;
    int32_t n = x->v.ndim;
    if (n == 0) {
        st = tn_fail(TN_E_INDEX, 2,
                     "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
        goto out;
    }
    for (int32_t d = 0; d < n; d++) {
        shape[d] = x->v.shape[d];
        wide[d <= dim ? d : d + 1] = shape[d];
    }
    wide[dim + 1] = a->repeats;
    if (__builtin_mul_overflow(shape[dim], a->repeats, &shape[dim])) {
        st = tn_fail(TN_E_VALUE, 1, "repeat_interleave: the result is too large");
        goto out;
    }
    if ((st = tn_unsqueeze(x, dim + 1, &split))) goto out;
    if ((st = tn_expand(split, tn_ints_of(wide, n + 1), 0, &full))) goto out;
    tn_tensor_unref(&split);
    if ((st = tn_clone(full, TN_FORMAT_CONTIGUOUS, &split))) goto out;
    st = tn_reshape(split, tn_ints_of(shape, n), rets);
out:
    tn_tensor_unref(&flat);
    tn_tensor_unref(&split);
    tn_tensor_unref(&full);
    return st;
}

/* ---- Reordering --------------------------------------------------------------------------------*/

/* A copy through a header with negative strides, which no tensor outside of this function has. */
tn_status tni_composite_flip(const void *args, tn_tensor **rets) {
    const tn_flip_args *a = args;
    const tn_view *v = a->input;
    int64_t strides[TN_MAX_DIMS], offset = 0;
    uint64_t mask = 0;
    tn_tensor *turned, *t;
    if (a->dims.n > 0) TN_TRY(tni_dim_mask(a->dims, v->ndim, &mask));
    for (int32_t d = 0; d < v->ndim; d++) {
        bool turn = (mask >> d & 1u) && v->shape[d] > 1;
        strides[d] = turn ? -v->strides[d] : v->strides[d];
        if (turn) offset += (v->shape[d] - 1) * v->strides[d];
    }
    TN_TRY(tni_new_like(v, tn_view_dtype(v), tn_tensor_device(tni_t(v)), TN_FORMAT_PRESERVE, &t));
    tn_status st = tni_view_new(tni_t(v), tn_view_dtype(v), v->ndim, v->shape, strides,
                                v->numel ? offset : 0, &turned);
    if (st == TN_OK) {
        st = tni_copy_into(t, turned);
        tn_tensor_unref(&turned);
    }
    if (st == TN_OK)
        rets[0] = t;
    else
        tn_tensor_unref(&t);
    return st;
}

static tn_status rolled(tn_tensor *x, int64_t shift, int64_t dim, tn_tensor **ret) {
    int64_t size = x->v.shape[dim], at;
    tn_tensor *head = NULL, *tail = NULL;
    if (size == 0 || (at = (size - shift % size) % size) == 0)
        return tn_clone(x, TN_FORMAT_PRESERVE, ret);
    tn_status st = tn_narrow(x, dim, at, size - at, &head);
    if (st == TN_OK) st = tn_narrow(x, dim, 0, at, &tail);
    tn_tensor *const parts[] = {head, tail};
    if (st == TN_OK) st = tn_cat((tn_tensors){parts, 2}, dim, ret);
    tn_tensor_unref(&head);
    tn_tensor_unref(&tail);
    return st;
}

tn_status tni_composite_roll(const void *args, tn_tensor **rets) {
    const tn_roll_args *a = args;
    tn_tensor *x = tni_t(a->input), *at = NULL, *next = NULL;
    tn_status st = TN_OK;
    if (a->shifts.n <= 0) return tn_fail(TN_E_SHAPE, 1, "`shifts` required");
    if (a->dims.n <= 0 && a->shifts.n == 1) {
        if ((st = tn_reshape(x, TN_INTS(-1), &at))) goto out;
        if ((st = rolled(at, a->shifts.v[0], 0, &next))) goto out;
        st = tn_reshape(next, tni_shape_ints(x), rets);
        goto out;
    }
    if (a->dims.n != a->shifts.n)
        return tn_fail(TN_E_SHAPE, 2, "shifts and dimensions must align. shifts: %lld, dims:%lld",
                       (long long)a->shifts.n, (long long)(a->dims.n > 0 ? a->dims.n : 0));
    if (x->v.ndim == 0)
        return tn_fail(TN_E_INDEX, 2,
                       "roll(): Dimension specified as %lld but tensor has no dimensions",
                       (long long)a->dims.v[0]);
    at = tn_tensor_ref(x);
    for (int64_t i = 0; i < a->dims.n; i++) {
        int64_t dim = 0;
        if ((st = tni_wrap_dim(a->dims.v[i], x->v.ndim, &dim))) goto out;
        if ((st = rolled(at, a->shifts.v[i], dim, &next))) goto out;
        tn_tensor_unref(&at);
        at = next;
        next = NULL;
    }
    st = tni_lay_as_image(x, at, rets);
out:
    tn_tensor_unref(&at);
    tn_tensor_unref(&next);
    return st;
}

tn_status tni_composite_rot90(const void *args, tn_tensor **rets) {
    const tn_rot90_args *a = args;
    tn_tensor *x = tni_t(a->input), *turned = NULL;
    int64_t p = 0, q = 0, k = (a->k % 4 + 4) % 4;
    if (a->dims.n != 2)
        return tn_fail(TN_E_SHAPE, 2, "expected total rotation dims == 2, but got dims = %lld",
                       (long long)a->dims.n);
    if (x->v.ndim < 2)
        return tn_fail(TN_E_SHAPE, 0, "expected total dims >= 2, but got total dims = %d",
                       (int)x->v.ndim);
    TN_TRY(tni_wrap_dim(a->dims.v[0], x->v.ndim, &p));
    TN_TRY(tni_wrap_dim(a->dims.v[1], x->v.ndim, &q));
    if (p == q)
        return tn_fail(
            TN_E_SHAPE, 2,
            "expected rotation dims to be different, but got dim0 = %lld and dim1 = %lld",
            (long long)a->dims.v[0], (long long)a->dims.v[1]);
    if (k == 0) return tn_clone(x, TN_FORMAT_CONTIGUOUS, rets);
    if (k == 2) return tn_flip(x, TN_INTS(p, q), rets);
    TN_TRY(tn_flip(x, TN_INTS(k == 1 ? q : p), &turned));
    tn_status st = tn_transpose(turned, p, q, rets);
    tn_tensor_unref(&turned);
    return st;
}

/* ---- Diagonals ---------------------------------------------------------------------------------*/

tn_status tni_composite_diag_embed(const void *args, tn_tensor **rets) {
    const tn_diag_embed_args *a = args;
    const tn_view *v = a->input;
    int64_t p = 0, q = 0, shape[TN_MAX_DIMS];
    tn_tensor *whole = NULL, *line = NULL;
    if (v->ndim == 0 || v->ndim >= TN_MAX_DIMS)
        return tn_fail(TN_E_INDEX, 0, "diag_embed takes a tensor with at least one dimension");
    TN_TRY(tni_wrap_dim(a->dim1, v->ndim + 1, &p));
    TN_TRY(tni_wrap_dim(a->dim2, v->ndim + 1, &q));
    if (p == q)
        return tn_fail(TN_E_SHAPE, 2, "diagonal dimensions cannot be identical %lld, %lld",
                       (long long)a->dim1, (long long)a->dim2);
    const int64_t most = INT64_C(1) << 61;
    if (a->offset > most || a->offset < -most)
        return tn_fail(TN_E_VALUE, 1, "diag_embed: the offset %lld is too large",
                       (long long)a->offset);
    int64_t away = a->offset < 0 ? -a->offset : a->offset, side = v->shape[v->ndim - 1];
    for (int32_t d = 0, k = 0; d <= v->ndim; d++)
        shape[d] = d == p || d == q ? side + away : v->shape[k++];
    tn_status st = tn_new_zeros(tni_t(v), tn_ints_of(shape, v->ndim + 1), -1, -1, &whole);
    if (st) goto out;
    if ((st = tn_diagonal(whole, a->offset, p, q, &line))) goto out;
    if ((st = tni_copy_into(line, tni_t(v)))) goto out;
    rets[0] = whole;
    whole = NULL;
out:
    tn_tensor_unref(&whole);
    tn_tensor_unref(&line);
    return st;
}

tn_status tni_composite_diag(const void *args, tn_tensor **rets) {
    const tn_diag_args *a = args;
    tn_tensor *x = tni_t(a->input), *line = NULL;
    if (x->v.ndim == 1) return tn_diag_embed(x, a->diagonal, 0, 1, rets);
    if (x->v.ndim != 2)
        return tn_fail(TN_E_SHAPE, 0, "diag(): Supports 1D or 2D tensors. Got %dD", (int)x->v.ndim);
    TN_TRY(tn_diagonal(x, a->diagonal, 0, 1, &line));
    tn_status st = tn_clone(line, TN_FORMAT_CONTIGUOUS, rets);
    tn_tensor_unref(&line);
    return st;
}

/* What stands before and behind input along dim, joined with it. */
static tn_status with_ends(const tn_diff_args *a, tn_tensor **ret) {
    tn_tensor *parts[3];
    int64_t n = 0;
    if (a->prepend) parts[n++] = tni_t(a->prepend);
    parts[n++] = tni_t(a->input);
    if (a->append) parts[n++] = tni_t(a->append);
    if (n > 1) return tn_cat((tn_tensors){parts, n}, a->dim, ret);
    *ret = tn_tensor_ref(parts[0]);
    return TN_OK;
}

tn_status tni_composite_diff(const void *args, tn_tensor **rets) {
    const tn_diff_args *a = args;
    tn_tensor *x = NULL, *high = NULL, *low = NULL, *next = NULL;
    tn_status st = TN_OK;
    if (a->input->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "diff expects input to be at least one-dimensional");
    if (a->n < 0)
        return tn_fail(TN_E_SHAPE, 1, "order must be non-negative but got %lld", (long long)a->n);
    if (a->n == 0) return tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, rets);
    if ((a->prepend && a->prepend->ndim != a->input->ndim) ||
        (a->append && a->append->ndim != a->input->ndim))
        return tn_fail(TN_E_SHAPE, 0,
                       "diff expects prepend or append to be the same dimension as input");
    TN_TRY(with_ends(a, &x));
    bool is_bool = tn_view_dtype(&x->v) == TN_BOOL;
    for (int64_t i = 0; i < a->n && x->v.shape[a->dim] > 0; i++) {
        int64_t most = x->v.shape[a->dim] - 1;
        if ((st = tn_narrow(x, a->dim, 1, most, &high))) goto out;
        if ((st = tn_narrow(x, a->dim, 0, most, &low))) goto out;
        st =
            is_bool ? tn_logical_xor(high, low, &next) : tn_sub(high, low, tn_scalar_int(1), &next);
        if (st) goto out;
        tn_tensor_unref(&high);
        tn_tensor_unref(&low);
        tn_tensor_unref(&x);
        x = next;
        next = NULL;
    }
    rets[0] = x;
    x = NULL;
out:
    tn_tensor_unref(&x);
    tn_tensor_unref(&high);
    tn_tensor_unref(&low);
    return st;
}
