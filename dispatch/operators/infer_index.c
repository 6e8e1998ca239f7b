/* infer_index.c: shape rules of the operators that index, sort and search. Shapes and dtypes are
 * checked here; values of indices in the kernels. The messages are PyTorch's. */
#include <tenon/op_args.h>

#include "infer_priv.h"

static int64_t size_at(const tn_view *v, int64_t dim) { return v->ndim ? v->shape[dim] : 1; }

static tn_status index_dtype(const char *op, const tn_view *index) {
    int32_t d = tn_view_dtype(index);
    if (d == TN_I64 || d == TN_I32) return TN_OK;
    return tn_fail(TN_E_DTYPE, -1, "%s(): Expected dtype int32/int64 for index, but got: %s", op,
                   tni_type_text(d));
}

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
    if (indices.n < 1 || dims.n != indices.n || first < 0 || first > v->ndim ||
        indices.n > v->ndim - first)
        return tn_fail(TN_E_INDEX, 1, "%lld indices from dimension %lld on do not fit %s",
                       (long long)indices.n, (long long)first, tni_shape_text_of(v));
    const tn_view *index = indices.v[0];
    for (int64_t i = 0; i < indices.n; i++) {
        if (!indices.v[i]) return tn_fail(TN_E_TYPE, 1, "an index is missing");
        TN_TRY(tni_infer_expect(inf, 1, indices.v[i], index->ndim, index->shape, TN_I64));
    }
    if (v->ndim - (int32_t)indices.n + index->ndim > TN_MAX_DIMS)
        return tn_fail(TN_E_VALUE, 1, "a tensor has at most %d dimensions", TN_MAX_DIMS);
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
    TN_TRY(index_dtype("index_select", a->index));
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
    TN_TRY(index_dtype(op, index));
    TN_TRY(index_vector(op, index));
    if (tn_view_dtype(self) != tn_view_dtype(source))
        return tn_fail(TN_E_DTYPE, 3,
                       "%s(): self (%s) and source (%s) must have the same scalar type", op,
                       tni_type_text(tn_view_dtype(self)), tni_type_text(tn_view_dtype(source)));
    if (index->numel != size_at(source, source->ndim ? dim : 0))
        return tn_fail(
            TN_E_SHAPE, 2,
            "%s(): Number of indices (%lld) should be equal to source.size(dim): (%lld), "
            "for dim: %lld",
            op, (long long)index->numel, (long long)size_at(source, dim), (long long)dim);
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
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}

tn_status tni_infer_index_copy_(tn_infer *inf, const void *args) {
    const tn_index_copy__args *a = args;
    TN_TRY(slices_match("index_copy_", a->self, a->dim, a->index, a->source));
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}

/* ---- gather, scatter ---------------------------------------------------------------------------*/

/* `index` may not be larger than `other`, but along dim (none: -1). */
static bool no_larger(const tn_view *index, const tn_view *other, int64_t dim) {
    int32_t n = index->ndim ? index->ndim : 1;
    for (int32_t d = 0; d < n; d++)
        if (d != dim && size_at(index, d) > size_at(other, d)) return false;
    return true;
}

static int32_t rank_of(const tn_view *v) { return v->ndim ? v->ndim : 1; }

tn_status tni_infer_gather(tn_infer *inf, const void *args) {
    const tn_gather_args *a = args;
    TN_TRY(index_dtype("gather", a->index));
    if (a->index->numel == 0) return tni_infer_set(inf, 0, a->index->ndim, a->index->shape);
    if (rank_of(a->index) != rank_of(a->input))
        return tn_fail(TN_E_SHAPE, 2,
                       "Index tensor must have the same number of dimensions as input tensor");
    if (!no_larger(a->index, a->input, a->dim))
        return tn_fail(
            TN_E_SHAPE, 2,
            "Size does not match at dimension expected index %s to be no larger than self "
            "%s apart from dimension %lld",
            tni_shape_text_of(a->index), tni_shape_text_of(a->input), (long long)a->dim);
    return tni_infer_set(inf, 0, a->index->ndim, a->index->shape);
}

tn_status tni_infer__scatter_(tn_infer *inf, const void *args) {
    const tn__scatter__args *a = args;
    tni_infer_same(inf, 0, a->self);
    TN_TRY(index_dtype("scatter", a->index));
    if (tn_view_dtype(a->self) != tn_view_dtype(a->src))
        return tn_fail(TN_E_DTYPE, 3, "scatter(): Expected self.dtype to be equal to src.dtype");
    if (a->index->numel == 0) return TN_OK;
    if (rank_of(a->index) != rank_of(a->self))
        return tn_fail(TN_E_SHAPE, 2,
                       "Index tensor must have the same number of dimensions as self tensor");
    if (rank_of(a->index) != rank_of(a->src))
        return tn_fail(TN_E_SHAPE, 3,
                       "Index tensor must have the same number of dimensions as src tensor");
    if (!no_larger(a->index, a->self, a->dim) || !no_larger(a->index, a->src, -1))
        return tn_fail(
            TN_E_SHAPE, 2,
            "Expected index %s to be no larger than self %s apart from dimension %lld and "
            "to be no larger than src %s",
            tni_shape_text_of(a->index), tni_shape_text_of(a->self), (long long)a->dim,
            tni_shape_text_of(a->src));
    return TN_OK;
}

/* ---- One element of every row ------------------------------------------------------------------*/

/* Shape of v without dim, or with size 1 there. */
static tn_status reduced(tn_infer *inf, int nout, const tn_view *v, int64_t dim, int64_t keepdim) {
    int64_t shape[TN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t d = 0; d < v->ndim; d++) {
        if (d != dim)
            shape[n++] = v->shape[d];
        else if (keepdim)
            shape[n++] = 1;
    }
    for (int i = 0; i < nout; i++) TN_TRY(tni_infer_set(inf, i, n, shape));
    return TN_OK;
}

static tn_status nonempty_row(const tn_infer *inf, const tn_view *v, int64_t dim) {
    const char *schema = inf->op->info.schema;
    if (size_at(v, dim) != 0) return TN_OK;
    return tn_fail(TN_E_INDEX, 1, "%.*s(): Expected reduction dim %lld to have non-zero size.",
                   (int)strcspn(schema, "("), schema, (long long)dim);
}

static tn_status row_pair(tn_infer *inf, const tn_view *v, int64_t dim, int64_t keepdim) {
    TN_TRY(nonempty_row(inf, v, dim));
    return reduced(inf, 2, v, dim, keepdim);
}

tn_status tni_infer_max_dim(tn_infer *inf, const void *args) {
    const tn_max_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_min_dim(tn_infer *inf, const void *args) {
    const tn_min_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_median_dim(tn_infer *inf, const void *args) {
    const tn_median_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_nanmedian_dim(tn_infer *inf, const void *args) {
    const tn_nanmedian_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_mode(tn_infer *inf, const void *args) {
    const tn_mode_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_kthvalue(tn_infer *inf, const void *args) {
    const tn_kthvalue_args *a = args;
    int64_t n = size_at(a->input, a->dim);
    if (a->k < 1 || a->k > n)
        return tn_fail(TN_E_SHAPE, 1,
                       "kthvalue(): selected number k out of range for dimension %lld",
                       (long long)a->dim);
    return reduced(inf, 2, a->input, a->dim, a->keepdim);
}

static tn_status arg_reduced(tn_infer *inf, const tn_view *v, tn_opt_int dim, int64_t keepdim) {
    if (dim.has) {
        TN_TRY(nonempty_row(inf, v, dim.value));
        return reduced(inf, 1, v, dim.value, keepdim);
    }
    if (v->numel == 0)
        return tn_fail(
            TN_E_INDEX, 0,
            "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument.",
            inf->op->info.name);
    int64_t ones[TN_MAX_DIMS];
    for (int32_t d = 0; d < v->ndim; d++) ones[d] = 1;
    return tni_infer_set(inf, 0, keepdim ? v->ndim : 0, ones);
}

tn_status tni_infer_argmax(tn_infer *inf, const void *args) {
    const tn_argmax_args *a = args;
    return arg_reduced(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_argmin(tn_infer *inf, const void *args) {
    const tn_argmin_args *a = args;
    return arg_reduced(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_topk(tn_infer *inf, const void *args) {
    const tn_topk_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    if (a->k < 0 || a->k > size_at(a->input, a->dim))
        return tn_fail(TN_E_SHAPE, 1, "selected index k out of range");
    memcpy(shape, a->input->shape, sizeof *shape * (size_t)a->input->ndim);
    if (a->input->ndim) shape[a->dim] = a->k;
    for (int i = 0; i < 2; i++) TN_TRY(tni_infer_set(inf, i, a->input->ndim, shape));
    return TN_OK;
}

/* ---- Results whose size depends on values ------------------------------------------------------*/

tn_status tni_infer_nonzero(tn_infer *inf, const void *args) {
    const tn_nonzero_args *a = args;
    int64_t shape[2] = {0, a->input->ndim};
    return tni_infer_set(inf, 0, 2, shape);
}

tn_status tni_infer__unique_consecutive(tn_infer *inf, const void *args) {
    const tn__unique_consecutive_args *a = args;
    int64_t none = 0;
    TN_TRY(tni_infer_set(inf, 0, 1, &none));
    TN_TRY(tni_infer_set(inf, 1, a->input->ndim, a->input->shape));
    return tni_infer_set(inf, 2, 1, &none);
}

tn_status tni_infer__searchsorted(tn_infer *inf, const void *args) {
    const tn__searchsorted_args *a = args;
    const tn_view *rows = a->sorted_sequence;
    int32_t n = rows->ndim == 1 ? 0 : rows->ndim - 1; /* dimensions that must agree */
    bool fits = rows->ndim == 1 || (rows->ndim > 1 && rows->ndim == a->input->ndim);
    if (!fits || memcmp(rows->shape, a->input->shape, (size_t)n * sizeof *rows->shape) != 0)
        return tn_fail(TN_E_SHAPE, 1, "rows of %s cannot be searched in %s",
                       tni_shape_text_of(a->input), tni_shape_text_of(rows));
    TN_TRY(
        tni_infer_expect(inf, 1, a->input, a->input->ndim, a->input->shape, tn_view_dtype(rows)));
    return tni_infer_set(inf, 0, a->input->ndim, a->input->shape);
}
