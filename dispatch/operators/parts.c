/* parts.c: copies of tensors with a part replaced, and tensors cut into parts. A part is replaced by a
 * copy into a view of a copy, so gradients come from the parts. */
#include <tenon/args_index.h>
#include <tenon/args_parts.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_parts.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "call_priv.h"
#include "op_index.h"
#include "op_parts.h"
#include "rule_priv.h"
#include "scope_priv.h"
#include "shape_priv.h"

/* ---- A part replaced ---------------------------------------------------------------------------*/

/* Takes over `part`, a view of `whole` that a call with status st made; what is kept is `whole`. */
static tn_status replaced(tn_status st, const char *op, tn_tensor *whole, tn_tensor *part,
                          const tn_view *src, tn_tensor **rets) {
    tn_tensor *written = NULL;
    if (st == TN_OK && !tni_shape_is(part, src->ndim, src->shape))
        st = tn_fail(TN_E_STATE, 1,
                     "%s(): expected src to have a size equal to the slice of self. src size = %s, "
                     "slice size = %s",
                     op, tni_shape_text_of(src), tni_shape_text_of(&part->v));
    if (st == TN_OK) st = tn_copy_(part, tni_t(src), 0, &written);
    if (st == TN_OK) rets[0] = tn_tensor_ref(whole);
    tn_tensor_unref(&written);
    tn_tensor_unref(&part);
    tn_tensor_unref(&whole);
    return st;
}

tn_status tni_composite_select_scatter(const void *args, tn_tensor **rets) {
    const tn_select_scatter_args *a = args;
    tn_tensor *whole = NULL, *part = NULL;
    TN_TRY(tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &whole));
    tn_status st = tn_select(whole, a->dim, a->index, &part);
    return replaced(st, "select_scatter", whole, part, a->src, rets);
}

tn_status tni_composite_slice_scatter(const void *args, tn_tensor **rets) {
    const tn_slice_scatter_args *a = args;
    tn_tensor *whole = NULL, *part = NULL;
    TN_TRY(tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &whole));
    tn_status st = tn_slice(whole, a->dim, a->start, a->end, a->step, &part);
    return replaced(st, "slice_scatter", whole, part, a->src, rets);
}

tn_status tni_composite_diagonal_scatter(const void *args, tn_tensor **rets) {
    const tn_diagonal_scatter_args *a = args;
    tn_tensor *whole = NULL, *part = NULL;
    TN_TRY(tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &whole));
    tn_status st = tn_diagonal(whole, a->offset, a->dim1, a->dim2, &part);
    return replaced(st, "diagonal_scatter", whole, part, a->src, rets);
}

/* The copy has the strides that size and stride were made for, and none of the memory around input. */
tn_status tni_composite_as_strided_scatter(const void *args, tn_tensor **rets) {
    const tn_as_strided_scatter_args *a = args;
    tn_tensor *whole = NULL, *part = NULL;
    tn_opt_int offset = a->storage_offset;
    TN_TRY(tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &whole));
    if (offset.has) offset.value -= tn_tensor_storage_offset(tni_t(a->input));
    tn_status st = tn_as_strided(whole, a->size, a->stride, offset, &part);
    return replaced(st, "as_strided_scatter", whole, part, a->src, rets);
}

tn_status tni_composite_put(const void *args, tn_tensor **rets) {
    const tn_put_args *a = args;
    tni_scope s = {0};
    tn_tensor *written = NULL;
    int32_t kind = tn_view_dtype(a->index);
    if (kind != TN_I64)
        return tn_fail(TN_E_DTYPE, 1, "put_(): Expected a long tensor for index, but got %s",
                       tni_type_text(kind));
    if (tn_view_dtype(a->input) != tn_view_dtype(a->source))
        return tn_fail(
            TN_E_DTYPE, 2,
            "put_(): self and source expected to have the same dtype, but got self.dtype "
            "= %s and source.dtype = %s",
            tni_type_text(tn_view_dtype(a->input)), tni_type_text(tn_view_dtype(a->source)));
    if (a->index->numel != a->source->numel)
        return tn_fail(TN_E_INDEX, 2,
                       "put_(): Expected source and index to have the same number of elements, but "
                       "got source.numel() = %lld, index.numel() = %lld",
                       (long long)a->source->numel, (long long)a->index->numel);
    tn_tensor *row = scope_reshape(&s, tni_t(a->input), TN_INTS(-1));
    tn_tensor *index = scope_reshape(&s, tni_t(a->index), TN_INTS(-1));
    tn_tensor *source = scope_reshape(&s, tni_t(a->source), TN_INTS(-1));
    if (s.st == TN_OK) {
        tn_tensor *one[] = {index};
        tn_status st = tn_index_put(row, (tn_tensors){one, 1}, source, a->accumulate, &written);
        written = scope_take(&s, st, written);
    }
    written = scope_reshape(&s, written, tn_ints_of(a->input->shape, a->input->ndim));
    return scope_finish(&s, written, rets);
}

/* scatter_reduce with the index of a slice for each of its elements. */
tn_status tni_composite_index_reduce(const void *args, tn_tensor **rets) {
    const tn_index_reduce_args *a = args;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS];
    int32_t n = a->source->ndim;
    TN_TRY(rule_index_dtype("index_reduce_", a->index));
    if (a->index->ndim > 1)
        return tn_fail(TN_E_SHAPE, 2,
                       "index_reduce_(): Index is supposed to be a vector, but got dim: %d",
                       (int)a->index->ndim);
    if (strcmp(a->reduce, "sum") == 0)
        return tn_fail(TN_E_STATE, 4,
                       "reduce argument must be either prod, mean, amax or amin, got sum.");
    if (n != a->input->ndim || (n > 0 && a->source->shape[a->dim] != a->index->numel))
        return tn_fail(
            TN_E_SHAPE, 3,
            "index_reduce_(): Number of indices (%lld) should be equal to source.size(dim) "
            "of source %s",
            (long long)a->index->numel, tni_shape_text_of(a->source));
    for (int32_t d = 0; d < n; d++) {
        if (d != a->dim && a->source->shape[d] != a->input->shape[d])
            return tn_fail(TN_E_SHAPE, 3,
                           "index_reduce_(): source %s and self %s differ at dimension %d",
                           tni_shape_text_of(a->source), tni_shape_text_of(a->input), (int)d);
        shape[d] = d == a->dim ? a->index->numel : 1;
    }
    tn_tensor *index = scope_convert(&s, tni_t(a->index), TN_I64);
    index = scope_reshape(&s, index, tn_ints_of(shape, n));
    index = scope_expand(&s, index, tn_ints_of(a->source->shape, n));
    if (s.st == TN_OK)
        s.st = tn_scatter_reduce(tni_t(a->input), a->dim, index, tni_t(a->source), a->reduce,
                                 a->include_self, rets);
    return scope_finish(&s, NULL, NULL);
}

/* ---- Sums and norms of parts -------------------------------------------------------------------*/

static tn_tensor *norm_over(tni_scope *s, tn_tensor *t, double p, tn_ints dims) {
    return SCOPE(s, tn_linalg_vector_norm(t, tn_scalar_float(p), dims, 1, -1, scope_slot(s)));
}

tn_status tni_composite_renorm(const void *args, tn_tensor **rets) {
    const tn_renorm_args *a = args;
    tni_scope s = {0};
    int64_t dims[TN_MAX_DIMS];
    tn_tensor *norm = NULL, *large = NULL;
    tn_scalar_box most, one;
    int32_t n = 0;
    if (!(a->p > 0)) return tn_fail(TN_E_STATE, 1, "renorm: non-positive-norm not supported");
    if (!(a->maxnorm >= 0))
        return tn_fail(TN_E_STATE, 3, "renorm: expected maxnorm to be >= 0 but got %g", a->maxnorm);
    if (a->input->ndim < 2)
        return tn_fail(TN_E_STATE, 0,
                       "renorm: input needs at least 2 dimensions, got %d dimensions",
                       (int)a->input->ndim);
    for (int32_t d = 0; d < a->input->ndim; d++)
        if (d != a->dim) dims[n++] = d;
    norm = norm_over(&s, tni_t(a->input), a->p, tn_ints_of(dims, n));
    if (s.st == TN_OK) {
        tn_status st = tn_gt(norm, tn_scalar_box_init(&most, tn_scalar_float(a->maxnorm)), &large);
        large = scope_take(&s, st, large);
    }
    if (tni_recording(a->input->word)) { /* the slope of a norm that does not count may be nan */
        tn_scalar_box unit;
        tn_tensor *ones = tn_scalar_box_init(&unit, tn_scalar_float(1));
        tn_tensor *counted = scope_where(&s, large, tni_t(a->input), ones);
        norm = norm_over(&s, counted, a->p, tn_ints_of(dims, n));
    }
    tn_tensor *below = scope_add_number(&s, norm, 1e-7);
    tn_tensor *factor = scope_unary(&s, tn_reciprocal, below);
    factor = scope_mul_number(&s, factor, a->maxnorm);
    if (s.st == TN_OK)
        factor = scope_where(&s, large, factor, tn_scalar_box_init(&one, tn_scalar_float(1)));
    tn_tensor *product = scope_mul(&s, tni_t(a->input), factor);
    product = SCOPE(&s, tn_contiguous(product, TN_FORMAT_CONTIGUOUS, scope_slot(&s)));
    return scope_finish(&s, product, rets);
}

tn_status tni_composite_sum_to_size(const void *args, tn_tensor **rets) {
    const tn_sum_to_size_args *a = args;
    tni_scope s = {0};
    int64_t dims[TN_MAX_DIMS], n = 0;
    int32_t rank = a->input->ndim, more = rank - (int32_t)a->size.n;
    bool fits = a->size.n <= rank;
    for (int32_t d = 0; fits && d < rank; d++) {
        int64_t want = d < more ? 1 : a->size.v[d - more];
        fits = want == a->input->shape[d] || want == 1;
        if (d < more || want != a->input->shape[d]) dims[n++] = d;
    }
    if (!fits)
        return tn_fail(TN_E_STATE, 1, "size {%s} is not expandable to size {%s}.",
                       tni_shape_text((int32_t)a->size.n, a->size.v), tni_shape_text_of(a->input));
    tn_tensor *sum = tni_t(a->input);
    if (n > 0 || a->size.n == 0) sum = scope_sum(&s, sum, tn_ints_of(dims, n), 1);
    if (more > 0) sum = scope_reshape(&s, sum, a->size);
    return scope_finish(&s, sum, rets);
}

/* ---- Places and choices ------------------------------------------------------------------------*/

static tn_status unravelled(const tn_view *indices, tn_ints shape, tn_tensor **rets) {
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    int64_t step = 1;
    if (tn_dtype_category(tn_view_dtype(indices)) != TN_CAT_INT)
        return tn_fail(TN_E_TYPE, 0, "expected 'indices' to be integer dtype, but got %s",
                       tn_dtype_name(tn_view_dtype(indices)));
    for (int64_t d = 0; d < shape.n; d++)
        if (shape.v[d] < 0)
            return tn_fail(TN_E_VALUE, 1, "'shape' cannot have negative values, but got %lld",
                           (long long)shape.v[d]);
    TN_TRY(tni_list_new(shape.n, list));
    list->n = shape.n;
    for (int64_t d = shape.n - 1; d >= 0; d--) {
        tni_scope s = {0};
        tn_scalar_box by, size;
        tn_tensor *at = scope_binary(&s, tn_floor_divide, scope_convert(&s, tni_t(indices), TN_I64),
                                     tn_scalar_box_init(&by, tn_scalar_int(step)));
        at = scope_binary(&s, tn_remainder, at,
                          tn_scalar_box_init(&size, tn_scalar_int(shape.v[d])));
        tn_status st = scope_finish(&s, at, &list->v[d]);
        if (st == TN_OK && shape.v[d] > 0 && __builtin_mul_overflow(step, shape.v[d], &step))
            st = tn_fail(TN_E_VALUE, 1, "'shape' holds more places than an index can name");
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
    }
    return TN_OK;
}

tn_status tni_composite_unravel_index(const void *args, tn_tensor **rets) {
    const tn_unravel_index_args *a = args;
    return unravelled(a->indices, a->shape, rets);
}

tn_status tni_composite_unravel_index_size(const void *args, tn_tensor **rets) {
    const tn_unravel_index_size_args *a = args;
    return unravelled(a->indices, TN_INTS(a->shape), rets);
}

/* How many rows of r places out of n >= r there are; false where no memory would hold them. As many as
 * of n - r places: with the fewer of the two each step doubles at least, so that few are taken. */
static bool count_rows(int64_t n, int64_t r, int64_t *ret_rows) {
    int64_t rows = 1, few = r < n - r ? r : n - r;
    for (int64_t k = 1; k <= few; k++) {
        /* n - few + k over k, of which every step is whole */
        if (__builtin_mul_overflow(rows, n - few + k, &rows)) return false;
        rows /= k;
    }
    *ret_rows = rows;
    return rows <= (INT64_C(1) << 40) / (r > 0 ? r : 1);
}

/* The places of every row, each row the next one in order. */
static void fill_rows(int64_t *at, int64_t rows, int64_t n, int64_t r, bool again) {
    for (int64_t k = 0; k < r && rows > 0; k++) at[k] = again ? 0 : k;
    for (int64_t row = 1; row < rows; row++) {
        const int64_t *last = at + (row - 1) * r;
        int64_t *next = at + row * r, k = r - 1;
        while (last[k] == (again ? n - 1 : n - r + k)) k--;
        memcpy(next, last, (size_t)k * sizeof *next);
        for (int64_t j = k; j < r; j++) next[j] = last[k] + 1 + (again ? 0 : j - k);
    }
}

tn_status tni_composite_combinations(const void *args, tn_tensor **rets) {
    const tn_combinations_args *a = args;
    tni_scope s = {0};
    int64_t n = a->input->numel, r = a->r, rows = 0;
    tn_tensor *index = NULL, *taken = NULL;
    if (a->input->ndim != 1)
        return tn_fail(TN_E_STATE, 0, "Expect a 1D vector, but got shape %s",
                       tni_shape_text_of(a->input));
    if (r < 0)
        return tn_fail(TN_E_STATE, 1, "Expect a non-negative number, but got %lld", (long long)r);
    if (r == 0) return tn_empty(TN_INTS(0), tn_view_dtype(a->input), -1, 0, rets);
    int64_t from = n;
    bool beyond = a->with_replacement && n > 0 && __builtin_add_overflow(n - 1, r, &from);
    if (beyond || (n > 0 && from >= r && !count_rows(from, r, &rows)))
        return tn_fail(TN_E_MEMORY, -1, "combinations: there are too many of %lld out of %lld",
                       (long long)r, (long long)n);
    const tn_device cpu = {0, 0};
    const int64_t shape[] = {rows, r};
    tn_status st = tn_tensor_new(TN_I64, cpu, 2, shape, &index);
    index = scope_take(&s, st, index);
    if (s.st == TN_OK) fill_rows(index->v.data, rows, n, r, a->with_replacement);
    index = scope_reshape(&s, index, TN_INTS(-1));
    if (s.st == TN_OK && tn_tensor_device(tni_t(a->input)).slot != 0) {
        tn_device d = tn_tensor_device(tni_t(a->input));
        tn_tensor *there = NULL;
        st = tn__move(index, -1, (int64_t)d.slot << 8 | d.index, &there);
        index = scope_take(&s, st, there);
    }
    if (s.st == TN_OK) {
        st = tn_index_select(tni_t(a->input), 0, index, &taken);
        taken = scope_take(&s, st, taken);
    }
    return scope_finish(&s, scope_reshape(&s, taken, tn_ints_of(shape, 2)), rets);
}

tn_status tni_composite_empty_permuted(const void *args, tn_tensor **rets) {
    const tn_empty_permuted_args *a = args;
    int64_t sizes[TN_MAX_DIMS], back[TN_MAX_DIMS], n = a->physical_layout.n;
    uint64_t seen = 0;
    tn_tensor *packed = NULL;
    if (n != a->size.n || n > TN_MAX_DIMS)
        return tn_fail(TN_E_STATE, 1,
                       "Number of dimensions in size does not match the length of the "
                       "physical_layout; i.e. len(size) = %lld is not equal to "
                       "len(physical_layout) = %lld",
                       (long long)a->size.n, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t d = a->physical_layout.v[i];
        if (d < 0 || d >= n)
            return tn_fail(TN_E_STATE, 1,
                           "Dimension out of range (expected to be between 0 and %lld, but got "
                           "%lld at index %lld). NB: negative dims not currently supported",
                           (long long)n - 1, (long long)d, (long long)i);
        if (seen >> d & 1u) return tn_fail(TN_E_STATE, 1, "Duplicate dim not allowed");
        seen |= UINT64_C(1) << d;
        sizes[i] = a->size.v[d];
        back[d] = i;
    }
    TN_TRY(tn_empty(tn_ints_of(sizes, n), a->dtype, a->device, 0, &packed));
    tn_status st = tn_permute(packed, tn_ints_of(back, n), rets);
    tn_tensor_unref(&packed);
    return st;
}

/* ---- Turned over -------------------------------------------------------------------------------*/

static tn_status flipped(const tn_view *v, int64_t dim, tn_tensor **rets) {
    if (v->ndim <= dim) return tn_fail(TN_E_STATE, 0, "Input must be >= %d-d.", (int)dim + 1);
    return tn_flip(tni_t(v), TN_INTS(dim), rets);
}

tn_status tni_composite_flipud(const void *args, tn_tensor **rets) {
    return flipped(((const tn_flipud_args *)args)->input, 0, rets);
}

tn_status tni_composite_fliplr(const void *args, tn_tensor **rets) {
    return flipped(((const tn_fliplr_args *)args)->input, 1, rets);
}

/* ---- Cut into parts ----------------------------------------------------------------------------*/

/* The dimension that hsplit, vsplit or dsplit cuts. */
static tn_status split_dim(const char *op, const tn_view *v, int32_t least, int64_t dim,
                           int64_t *ret_dim) {
    if (v->ndim < least)
        return tn_fail(TN_E_STATE, 0,
                       "torch.%s requires a tensor with at least %d dimension%s, but got a tensor "
                       "with %d dimensions!",
                       op, (int)least, least > 1 ? "s" : "", (int)v->ndim);
    *ret_dim = v->ndim == 1 ? 0 : dim;
    return TN_OK;
}

static tn_status split_evenly(const char *op, const tn_view *v, int32_t least, int64_t dim,
                              int64_t sections, tn_tensor **rets) {
    TN_TRY(split_dim(op, v, least, dim, &dim));
    if (sections <= 0 || v->shape[dim] % sections != 0)
        return tn_fail(TN_E_STATE, 1,
                       "torch.%s attempted to split along dimension %lld, but the size of the "
                       "dimension %lld is not divisible by the split_size %lld!",
                       op, (long long)dim, (long long)v->shape[dim], (long long)sections);
    return tn_tensor_split(tni_t(v), sections, dim, (tn_tensor_list *)(void *)rets);
}

static tn_status split_at(const char *op, const tn_view *v, int32_t least, int64_t dim,
                          tn_ints indices, tn_tensor **rets) {
    TN_TRY(split_dim(op, v, least, dim, &dim));
    return tn_tensor_split_indices(tni_t(v), indices, dim, (tn_tensor_list *)(void *)rets);
}

tn_status tni_composite_hsplit(const void *args, tn_tensor **rets) {
    const tn_hsplit_args *a = args;
    return split_evenly("hsplit", a->input, 1, 1, a->sections, rets);
}

tn_status tni_composite_hsplit_indices(const void *args, tn_tensor **rets) {
    const tn_hsplit_indices_args *a = args;
    return split_at("hsplit", a->input, 1, 1, a->indices, rets);
}

tn_status tni_composite_vsplit(const void *args, tn_tensor **rets) {
    const tn_vsplit_args *a = args;
    return split_evenly("vsplit", a->input, 2, 0, a->sections, rets);
}

tn_status tni_composite_vsplit_indices(const void *args, tn_tensor **rets) {
    const tn_vsplit_indices_args *a = args;
    return split_at("vsplit", a->input, 2, 0, a->indices, rets);
}

tn_status tni_composite_dsplit(const void *args, tn_tensor **rets) {
    const tn_dsplit_args *a = args;
    return split_evenly("dsplit", a->input, 3, 2, a->sections, rets);
}

tn_status tni_composite_dsplit_indices(const void *args, tn_tensor **rets) {
    const tn_dsplit_indices_args *a = args;
    return split_at("dsplit", a->input, 3, 2, a->indices, rets);
}

tn_status tni_composite_atleast_1d_list(const void *args, tn_tensor **rets) {
    const tn_atleast_1d_list_args *a = args;
    return tni_list_mapped(a->tensors, tn_atleast_1d, (tn_tensor_list *)(void *)rets);
}

tn_status tni_composite_atleast_2d_list(const void *args, tn_tensor **rets) {
    const tn_atleast_2d_list_args *a = args;
    return tni_list_mapped(a->tensors, tn_atleast_2d, (tn_tensor_list *)(void *)rets);
}

tn_status tni_composite_atleast_3d_list(const void *args, tn_tensor **rets) {
    const tn_atleast_3d_list_args *a = args;
    return tni_list_mapped(a->tensors, tn_atleast_3d, (tn_tensor_list *)(void *)rets);
}

/* Copies in the place of the views that a call with status st put into the list. */
static tn_status copied(tn_status st, tn_tensor **rets) {
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    if (st != TN_OK) return st;
    for (int64_t i = 0; i < list->n; i++) {
        tn_tensor *copy = NULL;
        st = tn_clone(list->v[i], TN_FORMAT_CONTIGUOUS, &copy);
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
        tn_tensor_unref(&list->v[i]);
        list->v[i] = copy;
    }
    return TN_OK;
}

tn_status tni_composite_unbind_copy(const void *args, tn_tensor **rets) {
    const tn_unbind_copy_args *a = args;
    return copied(tn_unbind(tni_t(a->input), a->dim, (tn_tensor_list *)(void *)rets), rets);
}

tn_status tni_composite_split_copy(const void *args, tn_tensor **rets) {
    const tn_split_copy_args *a = args;
    return copied(tn_split(tni_t(a->input), a->split_size, a->dim, (tn_tensor_list *)(void *)rets),
                  rets);
}

tn_status tni_composite_unsafe_split(const void *args, tn_tensor **rets) {
    const tn_unsafe_split_args *a = args;
    return copied(tn_split(tni_t(a->tensor), a->split_size, a->dim, (tn_tensor_list *)(void *)rets),
                  rets);
}

tn_status tni_composite_split_with_sizes_copy(const void *args, tn_tensor **rets) {
    const tn_split_with_sizes_copy_args *a = args;
    return copied(tn_split_with_sizes(tni_t(a->input), a->split_sizes, a->dim,
                                      (tn_tensor_list *)(void *)rets),
                  rets);
}

tn_status tni_composite_unsafe_split_with_sizes(const void *args, tn_tensor **rets) {
    const tn_unsafe_split_with_sizes_args *a = args;
    return copied(tn_split_with_sizes(tni_t(a->input), a->split_sizes, a->dim,
                                      (tn_tensor_list *)(void *)rets),
                  rets);
}

tn_status tni_composite_unsafe_chunk(const void *args, tn_tensor **rets) {
    const tn_unsafe_chunk_args *a = args;
    return copied(tn_chunk(tni_t(a->input), a->chunks, a->dim, (tn_tensor_list *)(void *)rets),
                  rets);
}
