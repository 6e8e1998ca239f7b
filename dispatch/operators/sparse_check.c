/* sparse_check.c: sparse tensors from components that somebody else made: what they must obey.
 *
 * Indices are always compared with the sizes, so that a tensor is whole from its first day; memory that
 * is shared with the maker may still change, which is why whoever reads indices checks them again. What
 * costs more, order and repetition, is checked on demand. */
#include <tenon/args_sparse.h>

#include "op_sparse.h"
#include "sparse_scope_priv.h"

static tn_status check_index_dtype(const char *name, const tn_view *v, bool narrow) {
    int32_t dtype = tn_view_dtype(v);
    if (dtype == TN_I64 || (dtype == TN_I32 && narrow)) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "%s must be an int%s tensor, but got %s", name,
                   narrow ? "32 or int64" : "64", tni_type_text(dtype));
}

/* Smallest and largest element; of a tensor that is not empty. */
static void extremes(tni_scope *s, tn_tensor *t, int64_t *ret_low, int64_t *ret_high) {
    tn_tensor *low = NULL, *high = NULL;
    tn_scalar a = {0}, b = {0};
    if (s->st != TN_OK) return;
    tn_status st = tn_aminmax(t, tn_no_int(), 0, &low, &high);
    low = scope_take(s, st, low);
    high = scope_take(s, st, high);
    if (s->st == TN_OK) s->st = tn_tensor_item(low, &a);
    if (s->st == TN_OK) s->st = tn_tensor_item(high, &b);
    *ret_low = a.i;
    *ret_high = b.i;
}

/* ---- Coordinates -------------------------------------------------------------------------------*/

/* The size that the largest indices ask for, where none is given. */
static void find_size(tni_scope *s, tn_tensor *indices, const tn_view *values, int64_t *shape) {
    int64_t low = 0, high = 0, n = indices->v.shape[0], nnz = indices->v.shape[1];
    for (int64_t d = 0; d < n && s->st == TN_OK; d++) {
        shape[d] = 0;
        if (nnz == 0) continue;
        extremes(s, scope_select(s, indices, 0, d), &low, &high);
        if (s->st == TN_OK && low < 0)
            s->st = tn_fail(TN_E_STATE, 0, "found negative index %lld for dim %lld", (long long)low,
                            (long long)d);
        if (s->st == TN_OK && high == INT64_MAX)
            s->st = tn_fail(TN_E_STATE, 0, "index %lld is too large for dim %lld", (long long)high,
                            (long long)d);
        else
            shape[d] = high + 1;
    }
    for (int32_t d = 1; d < values->ndim; d++) shape[n + d - 1] = values->shape[d];
}

static void check_bounds(tni_scope *s, tn_tensor *indices, tn_ints size) {
    int64_t low = 0, high = 0;
    if (indices->v.numel == 0) return;
    for (int64_t d = 0; d < indices->v.shape[0] && s->st == TN_OK; d++) {
        extremes(s, scope_select(s, indices, 0, d), &low, &high);
        if (s->st != TN_OK) return;
        if (low < 0)
            s->st = tn_fail(TN_E_STATE, 0, "found negative index %lld for dim %lld", (long long)low,
                            (long long)d);
        else if (high >= size.v[d])
            s->st = tn_fail(TN_E_STATE, 0,
                            "size is inconsistent with indices: for dim %lld, size is %lld but "
                            "found index %lld",
                            (long long)d, (long long)size.v[d], (long long)high);
    }
}

/* What is said of indices that are called coalesced. */
static void check_order(tni_scope *s, tn_tensor *indices, tn_ints size) {
    sparse_places p = {indices, (int32_t)indices->v.shape[0], {0}};
    int64_t n = indices->v.shape[1];
    if (s->st != TN_OK || n < 2) return;
    memcpy(p.grid, size.v, sizeof p.grid[0] * (size_t)p.n);
    if (!sparse_rising(s, sparse_keys(s, &p, 0, p.n)) && s->st == TN_OK)
        s->st = tn_fail(TN_E_STATE, 0,
                        "cannot set is_coalesced to true if indices correspond to uncoalesced COO "
                        "tensor");
}

tn_status tni_composite__sparse_coo(const void *args, tn_tensor **rets) {
    const tn__sparse_coo_args *a = args;
    const tn_view *i = a->indices, *v = a->values;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS];
    tn_ints size = a->size;
    TN_TRY(check_index_dtype("indices", i, false));
    if (i->ndim != 2)
        return tn_fail(TN_E_STATE, 0, "indices must be sparse_dim x nnz, but got: %s",
                       tni_shape_text_of(i));
    if (v->ndim < 1 || v->shape[0] != i->shape[1])
        return tn_fail(TN_E_STATE, 1,
                       "indices and values must have same nnz, but got nnz from indices: %lld, nnz "
                       "from values: %lld",
                       (long long)i->shape[1], (long long)(v->ndim ? v->shape[0] : 0));
    int64_t n = i->shape[0] + v->ndim - 1;
    if (n > TN_MAX_DIMS)
        return tn_fail(TN_E_STATE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    if (size.n >= 0 && size.n != n)
        return tn_fail(TN_E_STATE, 2,
                       "number of dimensions must be sparse_dim (%lld) + dense_dim (%d), but got "
                       "%lld",
                       (long long)i->shape[0], (int)v->ndim - 1, (long long)size.n);
    tn_tensor *indices = scope_convert(&s, tni_t(i), TN_I64), *r = NULL;
    if (s.st == TN_OK && size.n < 0) {
        find_size(&s, indices, v, shape);
        size = tn_ints_of(shape, n);
    } else if (s.st == TN_OK) {
        check_bounds(&s, indices, size);
    }
    if (a->coalesced && a->check) check_order(&s, indices, size);
    if (s.st == TN_OK)
        s.st = tn__sparse_make(indices, NULL, tni_t(v), size, TN_LAYOUT_COO,
                               a->coalesced || v->shape[0] < 2, &r);
    r = scope_take(&s, s.st, r);
    return scope_finish(&s, r, rets);
}

/* ---- Compressed --------------------------------------------------------------------------------*/

typedef struct parts {
    const char *name, *plain_name;
    tn_tensor *index, *plain;
    int64_t nnz, wide; /* elements of one member, and what plain indices stay below */
} parts;

static void fail_if(tni_scope *s, bool wrong, const char *name, const char *what, const parts *p) {
    if (s->st == TN_OK && wrong)
        s->st = tn_fail(TN_E_STATE, -1, "`%s%s` is not satisfied: nnz is %lld, the size %lld", name,
                        what, (long long)p->nnz, (long long)p->wide);
}

static void check_compressed(tni_scope *s, const parts *p) {
    int64_t low = 0, high = 0, n = tni_size_at(p->index, -1);
    if (s->st != TN_OK || p->index->v.numel == 0) return;
    extremes(s, scope_select(s, p->index, -1, 0), &low, &high);
    fail_if(s, low != 0 || high != 0, p->name, "[..., 0] == 0", p);
    if (s->st != TN_OK) return;
    extremes(s, scope_select(s, p->index, -1, n - 1), &low, &high);
    fail_if(s, low != p->nnz || high != p->nnz, p->name, "[..., -1] == nnz", p);
    if (s->st != TN_OK || n < 2) return;
    tn_tensor *a = scope_narrow(s, p->index, -1, 0, n - 1),
              *b = scope_narrow(s, p->index, -1, 1, n - 1);
    tn_tensor *each = scope_sub(s, b, a);
    extremes(s, each, &low, &high);
    fail_if(s, low < 0 || high > p->wide, p->name, ".diff() between 0 and the size", p);
}

static void check_plain(tni_scope *s, const parts *p) {
    int64_t low = 0, high = 0;
    if (s->st != TN_OK || p->plain->v.numel == 0) return;
    extremes(s, p->plain, &low, &high);
    fail_if(s, low < 0 || high >= p->wide, p->plain_name, " from 0 to below the size", p);
}

static void check_sorted(tni_scope *s, const parts *p, int32_t layout, tn_ints size,
                         const int64_t *block) {
    sparse_places at;
    if (s->st != TN_OK) return;
    sparse_places_from(s, layout, p->index, p->plain, size, block, &at);
    if (!tni_by_rows(layout)) sparse_swap(s, &at);
    bool sorted = sparse_rising(s, sparse_keys(s, &at, 0, at.n));
    fail_if(s, !sorted, p->plain_name, " sorted and distinct along the last dimension", p);
}

/* The size that the indices ask for, where none is given. */
static void find_compressed_size(tni_scope *s, const parts *p, const tn_view *v, int32_t layout,
                                 const int64_t *block, int64_t *shape) {
    int64_t low = 0, high = -1;
    int32_t batch = p->index->v.ndim - 1, first = batch + !tni_by_rows(layout);
    int32_t second = batch + tni_by_rows(layout), skip = tni_by_blocks(layout) ? 2 : 0;
    for (int32_t d = 0; d < batch; d++) shape[d] = p->index->v.shape[d];
    if (p->plain->v.numel) extremes(s, p->plain, &low, &high);
    bool bad = __builtin_mul_overflow(tni_size_at(p->index, -1) - 1, block[first - batch],
                                      &shape[first]) ||
               high == INT64_MAX ||
               __builtin_mul_overflow(high + 1, block[second - batch], &shape[second]);
    fail_if(s, bad, p->plain_name, " with a size that is small enough", p);
    for (int32_t d = batch + 1 + skip; d < v->ndim; d++) shape[d - skip + 1] = v->shape[d];
}

tn_status tni_composite__sparse_compressed(const void *args, tn_tensor **rets) {
    const tn__sparse_compressed_args *a = args;
    int32_t layout = (int32_t)a->layout;
    const tn_view *v = a->values;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], block[2] = {1, 1};
    tn_ints size = a->size;
    tn_tensor *r = NULL;
    if (a->layout < TN_LAYOUT_CSR || a->layout >= TN_LAYOUT_COUNT)
        return tn_fail(TN_E_STATE, 4,
                       "expected compressed sparse tensor layout (SparseCsr, "
                       "SparseCsc, SparseBsr or SparseBsc)");
    bool by_rows = tni_by_rows(layout);
    parts p = {by_rows ? "crow_indices" : "ccol_indices",
               by_rows ? "col_indices" : "row_indices",
               tni_t(a->compressed),
               tni_t(a->plain),
               0,
               0};
    TN_TRY(check_index_dtype(p.name, a->compressed, true));
    TN_TRY(check_index_dtype(p.plain_name, a->plain, true));
    if (tn_view_dtype(a->compressed) != tn_view_dtype(a->plain))
        return tn_fail(TN_E_STATE, 1, "%s and %s must have the same dtype, got %s and %s", p.name,
                       p.plain_name, tni_type_text(tn_view_dtype(a->compressed)),
                       tni_type_text(tn_view_dtype(a->plain)));
    int32_t batch = a->compressed->ndim - 1, skip = tni_by_blocks(layout) ? 2 : 0;
    if (batch < 0 || a->plain->ndim != batch + 1 || v->ndim < batch + 1 + skip)
        return tn_fail(TN_E_STATE, -1,
                       "dimensions of %s (%d), %s (%d) and values (%d) do not fit together", p.name,
                       batch + 1, p.plain_name, (int)a->plain->ndim, (int)v->ndim);
    for (int i = 0; i < 2 && skip; i++) block[i] = v->shape[batch + 1 + i];
    if (block[0] < 1 || block[1] < 1)
        return tn_fail(TN_E_STATE, 2, "blocks must not be empty, values have shape %s",
                       tni_shape_text_of(v));
    if (a->compressed->shape[batch] < 1)
        return tn_fail(TN_E_STATE, 0, "%s must not be empty", p.name);
    if (v->ndim - skip + 1 > TN_MAX_DIMS)
        return tn_fail(TN_E_STATE, 2, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    p.nnz = a->plain->shape[batch];
    if (size.n < 0) {
        find_compressed_size(&s, &p, v, layout, block, shape);
        size = tn_ints_of(shape, v->ndim - skip + 1);
    }
    if (s.st == TN_OK && size.n == v->ndim - skip + 1) {
        p.wide = size.v[batch + by_rows] / block[by_rows];
        check_compressed(&s, &p);
        check_plain(&s, &p);
    }
    if (s.st == TN_OK) s.st = tn__sparse_make(p.index, p.plain, tni_t(v), size, layout, 0, &r);
    r = scope_take(&s, s.st, r);
    if (a->check) check_sorted(&s, &p, layout, size, block);
    return scope_finish(&s, r, rets);
}
