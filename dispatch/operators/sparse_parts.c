/* sparse_parts.c: taking sparse tensors apart and putting them together. */
#include "sparse_scope_priv.h"

/* ---- Small words -------------------------------------------------------------------------------*/

tn_tensor *sparse_arange(tni_scope *s, int64_t n, const tn_tensor *like) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_arange(tn_scalar_int(n), TN_I64, tni_device_of(like), &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_pick(tni_scope *s, tn_tensor *t, int64_t dim, tn_tensor *index) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_index_select(t, dim, index, &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_picked(tni_scope *s, tn_tensor *t, int64_t dim, tn_ints which) {
    tn_tensor *index = NULL, *there = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_tensor_from_data(TN_I64, 1, &which.n, which.v, &index);
    index = scope_take(s, st, index);
    if (s->st != TN_OK) return NULL;
    st = tn__move(index, -1, tni_device_of(t), &there);
    return sparse_pick(s, t, dim, scope_take(s, st, there));
}

tn_tensor *sparse_found(tni_scope *s, tn_tensor *sorted, tn_tensor *keys, bool right) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_searchsorted(sorted, keys, 0, right, NULL, NULL, &r);
    return scope_take(s, st, r);
}

typedef tn_status (*op_of_number)(tn_tensor *t, tn_scalar n, tn_tensor **ret);

static tn_tensor *with_number(tni_scope *s, op_of_number op, tn_tensor *t, int64_t n) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = op(t, tn_scalar_int(n), &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_times(tni_scope *s, tn_tensor *t, int64_t n) {
    return n == 1 ? t : with_number(s, tn_mul_scalar, t, n);
}

tn_tensor *sparse_plus(tni_scope *s, tn_tensor *t, int64_t n) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || n == 0) return t;
    tn_status st = tn_add_scalar(t, tn_scalar_int(n), tn_scalar_int(1), &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_over(tni_scope *s, tn_tensor *t, int64_t n) {
    return n == 1 ? t : with_number(s, tn_floor_divide_scalar, t, n);
}

tn_tensor *sparse_modulo(tni_scope *s, tn_tensor *t, int64_t n) {
    return with_number(s, tn_remainder_scalar, t, n);
}

tn_tensor *sparse_flat(tni_scope *s, tn_tensor *t) {
    return s->st == TN_OK ? scope_reshape(s, t, TN_INTS(tn_tensor_numel(t))) : NULL;
}

tn_tensor *sparse_where_true(tni_scope *s, tn_tensor *mask) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_nonzero(mask, &r);
    return sparse_flat(s, scope_take(s, st, r));
}

bool sparse_all_true(tni_scope *s, tn_tensor *mask) {
    tn_tensor *all = NULL;
    tn_scalar value = {0};
    if (s->st != TN_OK) return false;
    tn_status st = tn_all(mask, tn_ints_none(), 0, &all);
    all = scope_take(s, st, all);
    if (s->st == TN_OK) s->st = tn_tensor_item(all, &value);
    return s->st == TN_OK && value.i != 0;
}

static tn_tensor *wide_index(tni_scope *s, tn_tensor *t) { return scope_convert(s, t, TN_I64); }

/* ---- Apart and together ------------------------------------------------------------------------*/

tn_tensor *sparse_values(tni_scope *s, tn_tensor *t) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    if (!tni_recording(t->v.word)) return tni_sparse_of(t)->values;
    tn_status st = tn__sparse_values(t, &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_distinct(tni_scope *s, tn_tensor *t, bool all) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || (!all && !tni_recording(t->v.word))) return t;
    if (tn_tensor_layout(t) != TN_LAYOUT_COO || tni_sparse_of(t)->coalesced) return t;
    tn_status st = tn_coalesce(t, &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_like(tni_scope *s, tn_tensor *t, tn_tensor *values) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    const tni_sparse *c = tni_sparse_of(t);
    tn_status st = tn__sparse_make(c->index, c->plain, values, tni_shape_ints(t),
                                   tn_tensor_layout(t), c->coalesced, &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_coo(tni_scope *s, tn_tensor *indices, tn_tensor *values, tn_ints size,
                      bool coalesced) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__sparse_make(indices, NULL, values, size, TN_LAYOUT_COO, coalesced, &r);
    return scope_take(s, st, r);
}

static bool same_memory(const tn_tensor *a, const tn_tensor *b) {
    if (!a || !b) return a == b;
    return a->v.data == b->v.data && tni_shape_is(a, b->v.ndim, b->v.shape) &&
           tn_tensor_same_storage(a, b) && (a->v.word & b->v.word & TN_W_CONTIGUOUS) &&
           tn_tensor_dtype(a) == tn_tensor_dtype(b);
}

bool sparse_same_places(const tn_tensor *a, const tn_tensor *b) {
    const tni_sparse *x = tni_sparse_of(a), *y = tni_sparse_of(b);
    return tn_tensor_layout(a) == tn_tensor_layout(b) && same_memory(x->index, y->index) &&
           same_memory(x->plain, y->plain) &&
           tni_shape_is(x->values, y->values->v.ndim, y->values->v.shape);
}

/* ---- Places ------------------------------------------------------------------------------------*/

void sparse_block_of(const tn_tensor *t, int64_t *ret_block) {
    const tni_sparse *c = tni_sparse_of(t);
    bool blocks = tni_by_blocks(tn_tensor_layout(t));
    for (int i = 0; i < 2; i++)
        ret_block[i] = blocks ? c->values->v.shape[c->batch_dim + 1 + i] : 1;
}

/* For each element of a compressed pattern, the row (or column) whose range it lies in. */
static tn_tensor *compressed_rows(tni_scope *s, tn_tensor *index, const tn_tensor *plain) {
    int32_t n = tn_tensor_ndim(plain);
    tn_tensor *each = sparse_arange(s, tni_size_at(plain, -1), plain), *packed = NULL;
    if (n > 1) each = scope_expand(s, each, tni_shape_ints(plain));
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_contiguous(each, TN_FORMAT_CONTIGUOUS, &packed);
    packed = scope_take(s, st, packed);
    return sparse_plus(s, sparse_found(s, index, packed, true), -1);
}

/* Coordinates of n elements for each member of a batch, one row of *rows for each dimension. */
static int32_t batch_rows(tni_scope *s, tn_ints batch, int64_t n, const tn_tensor *like,
                          tn_tensor **rows) {
    int64_t members = 1;
    for (int64_t d = 0; d < batch.n; d++) members *= batch.v[d];
    tn_tensor *member = batch.n ? sparse_arange(s, members * n, like) : NULL;
    if (batch.n) member = sparse_over(s, member, n > 0 ? n : 1);
    for (int64_t d = batch.n - 1; d >= 0; d--) {
        rows[d] = batch.v[d] > 0 ? sparse_modulo(s, member, batch.v[d]) : member;
        member = sparse_over(s, member, batch.v[d] > 0 ? batch.v[d] : 1);
    }
    return (int32_t)batch.n;
}

static tn_tensor *stacked(tni_scope *s, tn_tensor **rows, int32_t n) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_stack((tn_tensors){rows, n}, 0, &r);
    return scope_take(s, st, r);
}

void sparse_places_from(tni_scope *s, int32_t layout, tn_tensor *index, tn_tensor *plain,
                        tn_ints size, const int64_t *block, sparse_places *ret) {
    tn_tensor *rows[TN_MAX_DIMS];
    if (s->st != TN_OK) return;
    if (layout == TN_LAYOUT_COO) {
        ret->n = (int32_t)tn_tensor_shape(index)[0];
        for (int32_t d = 0; d < ret->n; d++) ret->grid[d] = size.v[d];
        ret->at = wide_index(s, index);
        return;
    }
    int32_t batch = tn_tensor_ndim(index) - 1;
    ret->n = batch + 2;
    for (int32_t d = 0; d < ret->n; d++) ret->grid[d] = size.v[d];
    ret->grid[batch] /= block[0];
    ret->grid[batch + 1] /= block[1];
    index = wide_index(s, index);
    plain = wide_index(s, plain);
    tn_tensor *major = compressed_rows(s, index, plain);
    if (s->st != TN_OK) return;
    batch_rows(s, tn_ints_of(size.v, batch), tni_size_at(plain, -1), plain, rows);
    bool by_rows = tni_by_rows(layout);
    rows[batch] = sparse_flat(s, by_rows ? major : plain);
    rows[batch + 1] = sparse_flat(s, by_rows ? plain : major);
    ret->at = stacked(s, rows, ret->n);
}

void sparse_places_of(tni_scope *s, const tn_tensor *t, sparse_places *ret) {
    int64_t block[2];
    const tni_sparse *c = tni_sparse_of(t);
    sparse_block_of(t, block);
    sparse_places_from(s, tn_tensor_layout(t), c->index, c->plain, tni_shape_ints(t), block, ret);
}

tn_tensor *sparse_keys(tni_scope *s, const sparse_places *p, int32_t from, int32_t to) {
    int64_t step = 1;
    tn_tensor *sum = NULL;
    if (s->st != TN_OK) return NULL;
    for (int32_t d = to - 1; d >= from; d--) {
        tn_tensor *row = sparse_times(s, scope_select(s, p->at, 0, d), step);
        sum = sum ? scope_add(s, sum, row) : row;
        if (__builtin_mul_overflow(step, p->grid[d] ? p->grid[d] : 1, &step) && s->st == TN_OK)
            s->st = tn_fail(TN_E_VALUE, -1, "the sparse dimensions of shape %s are too large",
                            tni_shape_text(p->n, p->grid));
    }
    if (sum || s->st != TN_OK) return sum;
    tn_status st = tn_zeros(TN_INTS(tn_tensor_shape(p->at)[1]), TN_I64, tni_device_of(p->at), &sum);
    return scope_take(s, st, sum);
}

tn_tensor *sparse_rows(tni_scope *s, tn_tensor *t) {
    const tni_sparse *c = tni_sparse_of(t);
    tn_tensor *values = sparse_values(s, t);
    if (s->st != TN_OK || c->batch_dim == 0) return values;
    int64_t shape[TN_MAX_DIMS], n = 1;
    const tn_view *v = &values->v;
    for (int32_t d = 0; d <= c->batch_dim; d++) n *= v->shape[d];
    shape[0] = n;
    for (int32_t d = c->batch_dim + 1; d < v->ndim; d++) shape[d - c->batch_dim] = v->shape[d];
    return scope_reshape(s, values, tn_ints_of(shape, v->ndim - c->batch_dim));
}

bool sparse_rising(tni_scope *s, tn_tensor *keys) {
    if (s->st != TN_OK) return false;
    int64_t n = tn_tensor_numel(keys);
    tn_tensor *less = NULL;
    if (n < 2) return true;
    tn_tensor *a = scope_narrow(s, keys, 0, 0, n - 1), *b = scope_narrow(s, keys, 0, 1, n - 1);
    if (s->st != TN_OK) return false;
    tn_status st = tn_lt(a, b, &less);
    return sparse_all_true(s, scope_take(s, st, less));
}

void sparse_swap(tni_scope *s, sparse_places *p) {
    int64_t order[TN_MAX_DIMS], last = p->n - 1;
    if (s->st != TN_OK) return;
    for (int32_t d = 0; d < p->n; d++) order[d] = d;
    order[last] = last - 1;
    order[last - 1] = last;
    int64_t size = p->grid[last];
    p->grid[last] = p->grid[last - 1];
    p->grid[last - 1] = size;
    p->at = sparse_picked(s, p->at, 0, tn_ints_of(order, p->n));
}

/* ---- Sums of rows ------------------------------------------------------------------------------*/

static tn_tensor *added_up(tni_scope *s, int64_t n, tn_tensor *index, tn_tensor *source,
                           int32_t sums) {
    tn_tensor *zeros = NULL, *r = NULL;
    int64_t shape[TN_MAX_DIMS];
    if (s->st != TN_OK) return NULL;
    int32_t dtype = tn_tensor_dtype(source);
    for (int32_t d = 0; d < source->v.ndim; d++) shape[d] = source->v.shape[d];
    shape[0] = n;
    tn_status st = tn_zeros(tn_ints_of(shape, source->v.ndim), sums, tni_device_of(source), &zeros);
    zeros = scope_take(s, st, zeros);
    source = scope_convert(s, source, sums);
    if (s->st != TN_OK) return NULL;
    st = tn_index_add(zeros, 0, index, source, tn_scalar_int(1), &r);
    return scope_convert(s, scope_take(s, st, r), dtype);
}

tn_tensor *sparse_placed(tni_scope *s, int64_t n, tn_tensor *index, tn_tensor *source) {
    if (s->st != TN_OK) return NULL;
    int32_t dtype = tn_tensor_dtype(source);
    return added_up(s, n, index, source, dtype == TN_BOOL ? TN_U8 : dtype);
}

tn_tensor *sparse_gathered(tni_scope *s, int64_t n, tn_tensor *index, tn_tensor *source) {
    if (s->st != TN_OK) return NULL;
    int32_t dtype = tn_tensor_dtype(source);
    return sparse_is_half(dtype) ? added_up(s, n, index, source, TN_F32)
                                 : sparse_placed(s, n, index, source);
}
