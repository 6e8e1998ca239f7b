/* views.c: operators that return another geometry over the same storage. Each function computes
 * sizes, strides and an offset, and makes a header; recording is the dispatcher's. The messages are
 * PyTorch's, because that is what people search for. */
#include <stdlib.h>

#include <tenon/args_shape.h>

#include "op_shape.h"
#include "shape_priv.h"
#include "tensor_priv.h"

/* ---- Helpers -----------------------------------------------------------------------------------*/

/* A geometry under construction. */
typedef struct geometry {
    int32_t ndim;
    int64_t shape[TN_MAX_DIMS];
    int64_t strides[TN_MAX_DIMS];
    int64_t offset; /* elements, from the input's element 0 */
} geometry;

static void geometry_of(const tn_view *v, geometry *ret) {
    ret->ndim = v->ndim;
    ret->offset = 0;
    memcpy(ret->shape, v->shape, sizeof *v->shape * (size_t)v->ndim);
    memcpy(ret->strides, v->strides, sizeof *v->strides * (size_t)v->ndim);
}

static tn_status make(const tn_view *v, const geometry *g, tn_tensor **ret) {
    return tni_view_new(tni_t(v), tn_view_dtype(v), g->ndim, g->shape, g->strides, g->offset, ret);
}

static void remove_dim(geometry *g, int64_t d) {
    for (int32_t i = (int32_t)d; i + 1 < g->ndim; i++) {
        g->shape[i] = g->shape[i + 1];
        g->strides[i] = g->strides[i + 1];
    }
    g->ndim--;
}

static tn_status wrap_plus(int64_t dim, int32_t ndim, int64_t *ret_dim) {
    return tni_wrap_dim(dim, ndim + 1, ret_dim);
}

/* ---- view --------------------------------------------------------------------------------------*/

tn_status tni_infer_sizes(tn_ints size, int64_t numel, int64_t *ret_shape) {
    int64_t known = 1, hole = -1;
    if (size.n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, -1, "a tensor has at most %d dimensions, not %lld", TN_MAX_DIMS,
                       (long long)size.n);
    for (int64_t i = 0; i < size.n; i++) {
        ret_shape[i] = size.v[i];
        if (size.v[i] == -1) {
            if (hole >= 0) return tn_fail(TN_E_SHAPE, -1, "only one dimension can be inferred");
            hole = i;
        } else if (size.v[i] < 0) {
            return tn_fail(TN_E_SHAPE, -1, "invalid shape dimension %lld at index %lld of shape %s",
                           (long long)size.v[i], (long long)i,
                           tni_shape_text((int32_t)size.n, size.v));
        } else if (__builtin_mul_overflow(known, size.v[i], &known)) {
            known = INT64_MAX;
        }
    }
    if (known == numel && hole < 0) return TN_OK;
    if (hole >= 0 && known == 0 && numel == 0)
        return tn_fail(TN_E_SHAPE, -1,
                       "cannot reshape tensor of 0 elements into shape %s because the unspecified "
                       "dimension size -1 can be any value and is ambiguous",
                       tni_shape_text((int32_t)size.n, size.v));
    if (hole < 0 || known == 0 || numel % known != 0)
        return tn_fail(TN_E_SHAPE, -1, "shape '%s' is invalid for input of size %lld",
                       tni_shape_text((int32_t)size.n, size.v), (long long)numel);
    ret_shape[hole] = numel / known;
    return TN_OK;
}

/* Note [Strides of a view] The input's dimensions fall into runs, each of which lies in memory
 * like one dimension. New dimensions may cut a run into pieces but never reach over its edge; so
 * the runs are taken from the last one on, and new sizes are consumed until their product is the
 * run's. */
bool tni_view_strides(const tn_view *v, int32_t n, const int64_t *shape, int64_t *ret_strides) {
    if (v->numel == 0) {
        bool same = n == v->ndim;
        for (int32_t i = 0; i < n && same; i++) same = shape[i] == v->shape[i];
        uint64_t s = 1; /* beside a size of 0 the others may be so large that strides wrap around */
        for (int32_t i = n - 1; i >= 0; i--) {
            ret_strides[i] = same ? v->strides[i] : (int64_t)s;
            s *= shape[i] > 0 ? (uint64_t)shape[i] : 1;
        }
        return true;
    }
    int32_t out = n - 1;
    for (int32_t d = v->ndim - 1; d >= 0;) {
        int64_t step = v->strides[d], run = v->shape[d], made = 1;
        for (d--; d >= 0 && (v->shape[d] == 1 || v->strides[d] == run * step); d--)
            run *= v->shape[d];
        while (out >= 0 && (made < run || shape[out] == 1)) {
            ret_strides[out] = made * step;
            made *= shape[out--];
        }
        if (made != run) return false;
    }
    for (; out >= 0; out--) { /* a 0-d input: every size is 1 */
        if (shape[out] != 1) return false;
        ret_strides[out] = 1;
    }
    return true;
}

tn_status tni_composite_view_size(const void *args, tn_tensor **rets) {
    const tn_view_size_args *a = args;
    geometry g = {.ndim = (int32_t)a->size.n};
    TN_TRY(tni_infer_sizes(a->size, a->input->numel, g.shape));
    if (!tni_view_strides(a->input, g.ndim, g.shape, g.strides))
        return tn_fail(TN_E_SHAPE, -1,
                       "view size is not compatible with input tensor's size and stride (at least "
                       "one dimension spans across two contiguous subspaces). Use .reshape(...) "
                       "instead.");
    return make(a->input, &g, rets);
}

tn_status tni_composite_view_as_type(const void *args, tn_tensor **rets) {
    const tn_view_as_type_args *a = args;
    const tn_view *v = a->input;
    int32_t to = (int32_t)a->dtype;
    if (!tn_dtype_name(to)) return tn_fail(TN_E_DTYPE, 1, "there is no dtype %d", (int)to);
    int64_t from_size = tn_view_itemsize(v), to_size = tn_dtype_size(to);
    geometry g;
    geometry_of(v, &g);
    int32_t last = v->ndim - 1;
    if (from_size == to_size) {
        return tni_view_new(tni_t(v), to, g.ndim, g.shape, g.strides, 0, rets);
    }
    if (v->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0,
                       "self.dim() cannot be 0 to view %s as %s (different element sizes)",
                       tni_type_text(tn_view_dtype(v)), tni_type_text(to));
    if (v->strides[last] != 1 && v->shape[last] > 1)
        return tn_fail(TN_E_SHAPE, 0,
                       "self.stride(-1) must be 1 to view %s as %s (different element sizes), but "
                       "got %lld",
                       tni_type_text(tn_view_dtype(v)), tni_type_text(to),
                       (long long)v->strides[last]);
    if (from_size > to_size) {
        int64_t k = from_size / to_size;
        for (int32_t i = 0; i < last; i++) g.strides[i] *= k;
        if (__builtin_mul_overflow(g.shape[last], k, &g.shape[last]))
            return tn_fail(TN_E_VALUE, 0, "the last dimension would be too large");
    } else {
        int64_t k = to_size / from_size;
        int64_t offset = tn_tensor_storage_offset(tni_t(v)), step = 0;
        for (int32_t i = 0; i < last && step % k == 0; i++) step = v->strides[i];
        const char *what = v->shape[last] % k ? "size(-1)"
                           : offset % k       ? "storage_offset()"
                                              : "stride()";
        int64_t bad = v->shape[last] % k ? v->shape[last] : offset % k ? offset : step;
        if (bad % k)
            return tn_fail(TN_E_SHAPE, 0,
                           "self.%s must be divisible by %lld to view %s as %s (different element "
                           "sizes), but got %lld",
                           what, (long long)k, tni_type_text(tn_view_dtype(v)), tni_type_text(to),
                           (long long)bad);
        for (int32_t i = 0; i < last; i++) g.strides[i] /= k;
        g.shape[last] /= k;
    }
    g.strides[last] = 1;
    return tni_view_new(tni_t(v), to, g.ndim, g.shape, g.strides, 0, rets);
}

tn_status tni_composite_detach(const void *args, tn_tensor **rets) {
    const tn_detach_args *a = args;
    return tni_detach(tni_t(a->input), rets);
}

tn_status tni_composite__alias(const void *args, tn_tensor **rets) {
    const tn__alias_args *a = args;
    return tni_detach(tni_t(a->input), rets);
}

/* ---- Dimensions of size 1 ----------------------------------------------------------------------*/

static tn_status squeezed(const tn_view *v, uint64_t mask, tn_tensor **rets) {
    geometry g;
    geometry_of(v, &g);
    for (int32_t d = v->ndim - 1; d >= 0; d--)
        if ((mask >> d & 1u) && v->shape[d] == 1) remove_dim(&g, d);
    return make(v, &g, rets);
}

tn_status tni_composite_squeeze(const void *args, tn_tensor **rets) {
    const tn_squeeze_args *a = args;
    return squeezed(a->input, UINT64_MAX, rets);
}

tn_status tni_composite_squeeze_dim(const void *args, tn_tensor **rets) {
    const tn_squeeze_dim_args *a = args;
    return squeezed(a->input, UINT64_C(1) << a->dim, rets);
}

tn_status tni_composite_squeeze_dims(const void *args, tn_tensor **rets) {
    const tn_squeeze_dims_args *a = args;
    uint64_t mask = 0;
    if (a->dim.n > 0) TN_TRY(tni_dim_mask(a->dim, a->input->ndim, &mask));
    return squeezed(a->input, mask, rets);
}

tn_status tni_composite_unsqueeze(const void *args, tn_tensor **rets) {
    const tn_unsqueeze_args *a = args;
    const tn_view *v = a->input;
    int64_t dim = 0;
    TN_TRY(wrap_plus(a->dim, v->ndim, &dim));
    if (v->ndim >= TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    geometry g = {.ndim = v->ndim + 1};
    for (int32_t i = 0; i < g.ndim; i++) {
        int32_t from = i < dim ? i : i - 1;
        g.shape[i] = i == dim ? 1 : v->shape[from];
        if (i != dim) g.strides[i] = v->strides[from];
    }
    g.strides[dim] = dim < v->ndim ? v->shape[dim] * v->strides[dim] : 1;
    return make(v, &g, rets);
}

/* ---- Order of dimensions -----------------------------------------------------------------------*/

tn_status tni_composite_transpose(const void *args, tn_tensor **rets) {
    const tn_transpose_args *a = args;
    geometry g;
    geometry_of(a->input, &g);
    if (g.ndim > 0) {
        int64_t s = g.shape[a->dim0], t = g.strides[a->dim0];
        g.shape[a->dim0] = g.shape[a->dim1];
        g.strides[a->dim0] = g.strides[a->dim1];
        g.shape[a->dim1] = s;
        g.strides[a->dim1] = t;
    }
    return make(a->input, &g, rets);
}

tn_status tni_composite_t(const void *args, tn_tensor **rets) {
    const tn_t_args *a = args;
    if (a->input->ndim > 2)
        return tn_fail(TN_E_SHAPE, 0, "t() expects a tensor with <= 2 dimensions, but self is %dD",
                       (int)a->input->ndim);
    tn_transpose_args swap = {.input = a->input, .dim0 = 0, .dim1 = a->input->ndim < 2 ? 0 : 1};
    return tni_composite_transpose(&swap, rets);
}

tn_status tni_composite_permute(const void *args, tn_tensor **rets) {
    const tn_permute_args *a = args;
    const tn_view *v = a->input;
    uint64_t seen = 0;
    if (a->dims.n != v->ndim)
        return tn_fail(TN_E_SHAPE, 1,
                       "permute(sparse_coo): number of dimensions in the tensor input does not "
                       "match the length of the desired ordering of dimensions i.e. input.dim() = "
                       "%d is not equal to len(dims) = %lld",
                       (int)v->ndim, (long long)a->dims.n);
    geometry g = {.ndim = v->ndim};
    for (int32_t i = 0; i < v->ndim; i++) {
        int64_t d = 0;
        TN_TRY(tni_wrap_dim(a->dims.v[i], v->ndim, &d));
        if (seen >> d & 1u)
            return tn_fail(TN_E_SHAPE, 1, "permute(): duplicate dims are not allowed.");
        seen |= UINT64_C(1) << d;
        g.shape[i] = v->shape[d];
        g.strides[i] = v->strides[d];
    }
    return make(v, &g, rets);
}

/* ---- expand ------------------------------------------------------------------------------------*/

tn_status tni_composite_expand(const void *args, tn_tensor **rets) {
    const tn_expand_args *a = args;
    const tn_view *v = a->input;
    int64_t numel;
    if (a->size.n < v->ndim)
        return tn_fail(TN_E_SHAPE, 1,
                       "expand(%s{%s}, size=%s): the number of sizes provided (%lld) must be "
                       "greater or equal to the number of dimensions in the tensor (%d)",
                       tni_type_text(tn_view_dtype(v)), tni_shape_text_of(v),
                       tni_shape_text((int32_t)a->size.n, a->size.v), (long long)a->size.n,
                       (int)v->ndim);
    if (a->size.n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    geometry g = {.ndim = (int32_t)a->size.n};
    for (int32_t i = g.ndim - 1; i >= 0; i--) {
        int32_t from = i - (g.ndim - v->ndim);
        int64_t want = a->size.v[i], have = from >= 0 ? v->shape[from] : 1;
        if (want == -1 && from < 0)
            return tn_fail(TN_E_SHAPE, 1,
                           "The expanded size of the tensor (-1) isn't allowed in a leading, "
                           "non-existing dimension %d",
                           (int)i);
        if (want == -1) want = have;
        if (want < 0)
            return tn_fail(TN_E_SHAPE, 1, "expand: the size %lld of dimension %d is negative",
                           (long long)want, (int)i);
        if (have != want && have != 1)
            return tn_fail(
                TN_E_SHAPE, 1,
                "The expanded size of the tensor (%lld) must match the existing size "
                "(%lld) at non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: "
                "%s",
                (long long)want, (long long)have, (int)i,
                tni_shape_text((int32_t)a->size.n, a->size.v), tni_shape_text_of(v));
        g.shape[i] = want;
        if (have == want && from >= 0)
            g.strides[i] = v->strides[from];
        else if (have == want) /* a leading size of 1 */
            g.strides[i] = i + 1 < g.ndim ? g.shape[i + 1] * g.strides[i + 1] : 1;
        else
            g.strides[i] = 0;
    }
    TN_TRY(tni_numel(g.ndim, g.shape, tn_view_itemsize(v), &numel));
    return make(v, &g, rets);
}

/* ---- Parts -------------------------------------------------------------------------------------*/

tn_status tni_composite_select(const void *args, tn_tensor **rets) {
    const tn_select_args *a = args;
    const tn_view *v = a->input;
    if (v->ndim == 0)
        return tn_fail(TN_E_INDEX, 0, "select() cannot be applied to a 0-dim tensor.");
    int64_t size = v->shape[a->dim], index = a->index;
    if (index < -size || index >= size)
        return tn_fail(TN_E_INDEX, 2,
                       "select(): index %lld out of range for tensor of size %s at dimension %lld",
                       (long long)index, tni_shape_text_of(v), (long long)a->dim);
    if (index < 0) index += size;
    geometry g;
    geometry_of(v, &g);
    g.offset = index * g.strides[a->dim];
    remove_dim(&g, a->dim);
    return make(v, &g, rets);
}

tn_status tni_composite_slice(const void *args, tn_tensor **rets) {
    const tn_slice_args *a = args;
    const tn_view *v = a->input;
    if (v->ndim == 0) return tn_fail(TN_E_INDEX, 0, "slice() cannot be applied to a 0-dim tensor.");
    if (a->step <= 0) return tn_fail(TN_E_VALUE, 4, "slice step must be positive");
    int64_t size = v->shape[a->dim];
    int64_t from = a->start.has ? a->start.value : 0, to = a->end.has ? a->end.value : size;
    if (from < 0) from += size;
    if (to < 0) to += size;
    if (from < 0) from = 0;
    if (from > size) from = size;
    if (to < from) to = from;
    if (to > size) to = size;
    geometry g;
    geometry_of(v, &g);
    g.offset = from * g.strides[a->dim];
    g.shape[a->dim] = to > from ? (to - from - 1) / a->step + 1 : 0;
    if (a->step != 1 && __builtin_mul_overflow(g.strides[a->dim], a->step, &g.strides[a->dim]))
        g.strides[a->dim] = 1; /* so large a step leaves one element at most */
    return make(v, &g, rets);
}

tn_status tni_composite_diagonal(const void *args, tn_tensor **rets) {
    const tn_diagonal_args *a = args;
    const tn_view *v = a->input;
    if (v->ndim < 2)
        return tn_fail(TN_E_INDEX, 0,
                       "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
    if (a->dim1 == a->dim2)
        return tn_fail(TN_E_SHAPE, 2, "diagonal dimensions cannot be identical %lld, %lld",
                       (long long)a->dim1, (long long)a->dim2);
    int64_t rows = v->shape[a->dim1], cols = v->shape[a->dim2], n, skip = 0;
    geometry g;
    geometry_of(v, &g);
    /* Beyond its corner a diagonal is empty, whatever the offset. */
    int64_t offset = a->offset > cols ? cols : a->offset < -rows ? -rows : a->offset;
    if (offset >= 0)
        n = rows < cols - offset ? rows : cols - offset;
    else
        n = rows + offset < cols ? rows + offset : cols;
    if (n > 0 && v->numel > 0)
        skip = offset >= 0 ? offset * v->strides[a->dim2] : -offset * v->strides[a->dim1];
    /* Unsigned: the strides of an empty matrix may be as large as a number can be. */
    uint64_t step = (uint64_t)v->strides[a->dim1] + (uint64_t)v->strides[a->dim2];
    remove_dim(&g, a->dim1 > a->dim2 ? a->dim1 : a->dim2);
    remove_dim(&g, a->dim1 > a->dim2 ? a->dim2 : a->dim1);
    g.shape[g.ndim] = n > 0 ? n : 0;
    g.strides[g.ndim++] = (int64_t)step;
    g.offset = skip;
    return make(v, &g, rets);
}

tn_status tni_composite_unfold(const void *args, tn_tensor **rets) {
    const tn_unfold_args *a = args;
    const tn_view *v = a->input;
    int64_t have = v->ndim ? v->shape[a->dimension] : 1;
    int64_t stride = v->ndim ? v->strides[a->dimension] : 1;
    if (a->size < 0)
        return tn_fail(TN_E_SHAPE, 2, "size is %lld but must be >= 0", (long long)a->size);
    if (a->size > have)
        return tn_fail(TN_E_SHAPE, 2,
                       "maximum size for tensor at dimension %lld is %lld but size is %lld",
                       (long long)a->dimension, (long long)have, (long long)a->size);
    if (a->step <= 0)
        return tn_fail(TN_E_SHAPE, 3, "step is %lld but must be > 0", (long long)a->step);
    if (v->ndim >= TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    geometry g;
    geometry_of(v, &g);
    if (v->ndim) {
        g.shape[a->dimension] = (have - a->size) / a->step + 1;
        if (__builtin_mul_overflow(stride, a->step, &g.strides[a->dimension]))
            g.strides[a->dimension] = 1;
    }
    g.shape[g.ndim] = a->size;
    g.strides[g.ndim++] = stride;
    return make(v, &g, rets);
}

/* The offset of the input is an argument, because its gradient needs it. */
tn_status tni_composite__as_strided(const void *args, tn_tensor **rets) {
    const tn__as_strided_args *a = args;
    if (a->size.n != a->stride.n)
        return tn_fail(TN_E_SHAPE, 1, "mismatch in length of strides and shape");
    for (int64_t i = 0; i < a->stride.n; i++)
        if (a->stride.v[i] < 0)
            return tn_fail(TN_E_SHAPE, 2,
                           "as_strided: Negative strides are not supported at the moment, got "
                           "strides: %s",
                           tni_shape_text((int32_t)a->stride.n, a->stride.v));
    if (a->size.n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    return tn_tensor_alias(tni_t(a->input), tn_view_dtype(a->input), (int32_t)a->size.n, a->size.v,
                           a->stride.v, a->offset, rets);
}

/* ---- Lists of parts ----------------------------------------------------------------------------*/

static tn_status new_list(int64_t n, tn_tensor_list *ret) {
    *ret = (tn_tensor_list){NULL, 0};
    ret->v = calloc((size_t)(n > 0 ? n : 1), sizeof *ret->v);
    if (!ret->v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    return TN_OK;
}

tn_status tni_composite_split_with_sizes(const void *args, tn_tensor **rets) {
    const tn_split_with_sizes_args *a = args;
    const tn_view *v = a->input;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    int64_t total = 0;
    if (v->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "split expects at least a 1-dimensional tensor");
    for (int64_t i = 0; i < a->split_sizes.n; i++) {
        int64_t n = a->split_sizes.v[i];
        if (n < 0)
            return tn_fail(TN_E_SHAPE, 1,
                           "split_with_sizes expects split_sizes have only non-negative entries, "
                           "but got split_sizes=%s",
                           tni_shape_text((int32_t)a->split_sizes.n, a->split_sizes.v));
        if (__builtin_add_overflow(total, n, &total)) total = INT64_MAX;
    }
    if (total != v->shape[a->dim])
        return tn_fail(
            TN_E_SHAPE, 1,
            "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's "
            "size at dimension %lld), but got split_sizes=%s",
            (long long)v->shape[a->dim], (long long)a->dim,
            tni_shape_text((int32_t)a->split_sizes.n, a->split_sizes.v));
    geometry g;
    geometry_of(v, &g);
    TN_TRY(new_list(a->split_sizes.n, list));
    for (int64_t i = 0; i < a->split_sizes.n; i++) {
        g.shape[a->dim] = a->split_sizes.v[i];
        tn_status st = make(v, &g, &list->v[i]);
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
        list->n++;
        g.offset += g.shape[a->dim] * g.strides[a->dim];
    }
    return TN_OK;
}

tn_status tni_composite_unbind(const void *args, tn_tensor **rets) {
    const tn_unbind_args *a = args;
    const tn_view *v = a->input;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    if (v->ndim == 0)
        return tn_fail(TN_E_INDEX, 0, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)a->dim);
    geometry g;
    geometry_of(v, &g);
    int64_t n = g.shape[a->dim], stride = g.strides[a->dim];
    remove_dim(&g, a->dim);
    TN_TRY(new_list(n, list));
    for (int64_t i = 0; i < n; i++) {
        tn_status st = make(v, &g, &list->v[i]);
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
        list->n++;
        g.offset += stride;
    }
    return TN_OK;
}

/* ---- Complex numbers ---------------------------------------------------------------------------*/

tn_status tni_composite_view_as_real(const void *args, tn_tensor **rets) {
    const tn_view_as_real_args *a = args;
    const tn_view *v = a->input;
    if (tn_dtype_category(tn_view_dtype(v)) != TN_CAT_COMPLEX)
        return tn_fail(TN_E_DTYPE, 0, "view_as_real is only supported for complex tensors");
    if (v->ndim >= TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    geometry g;
    geometry_of(v, &g);
    for (int32_t i = 0; i < g.ndim; i++) g.strides[i] *= 2;
    g.shape[g.ndim] = 2;
    g.strides[g.ndim++] = 1;
    int32_t dtype = tni_dtype_to_real(tn_view_dtype(v));
    return tni_view_new(tni_t(v), dtype, g.ndim, g.shape, g.strides, 0, rets);
}

tn_status tni_composite_view_as_complex(const void *args, tn_tensor **rets) {
    const tn_view_as_complex_args *a = args;
    const tn_view *v = a->input;
    int32_t dtype = tn_view_dtype(v), last = v->ndim - 1;
    if (dtype != TN_F16 && dtype != TN_F32 && dtype != TN_F64)
        return tn_fail(TN_E_DTYPE, 0,
                       "view_as_complex is only supported for half, float and double tensors, but "
                       "got a tensor of scalar type: %s",
                       tni_type_text(dtype));
    if (v->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "Input tensor must have one or more dimensions");
    if (v->shape[last] != 2)
        return tn_fail(TN_E_SHAPE, 0, "Tensor must have a last dimension of size 2");
    if (v->strides[last] != 1)
        return tn_fail(TN_E_SHAPE, 0, "Tensor must have a last dimension with stride 1");
    geometry g;
    geometry_of(v, &g);
    g.ndim--;
    for (int32_t i = 0; i < g.ndim; i++) {
        if (g.strides[i] % 2 != 0 && g.shape[i] > 1)
            return tn_fail(TN_E_SHAPE, 0,
                           "Tensor must have a stride divisible by 2 for all but last dimension");
        g.strides[i] /= 2;
    }
    if (tn_tensor_storage_offset(tni_t(v)) % 2 != 0)
        return tn_fail(TN_E_SHAPE, 0, "Tensor must have a storage_offset divisible by 2");
    return tni_view_new(tni_t(v), tni_dtype_to_complex(dtype), g.ndim, g.shape, g.strides, 0, rets);
}
