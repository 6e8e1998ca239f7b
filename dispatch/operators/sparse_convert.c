/* sparse_convert.c: from one layout to another, and elements read at given places. */
#include <tenon/args_sparse.h>

#include "op_sparse.h"
#include "sparse_scope_priv.h"

/* ---- Coalescing --------------------------------------------------------------------------------*/

/* The coordinates of the different keys, of which each old one is number `which`. */
static tn_tensor *different_places(tni_scope *s, tn_tensor *at, int64_t n, tn_tensor *which) {
    tn_tensor *zeros = NULL, *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_zeros(TN_INTS(tn_tensor_shape(at)[0], n), TN_I64, tni_device_of(at), &zeros);
    zeros = scope_take(s, st, zeros);
    if (s->st != TN_OK) return NULL;
    st = tn_index_copy(zeros, 1, which, at, &r);
    return scope_take(s, st, r);
}

/* keys in order without repetition, and the number that each had there. */
static tn_tensor *different(tni_scope *s, tn_tensor *keys, tn_tensor **ret_which) {
    tn_tensor *sorted = NULL, *which = NULL, *counts = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__unique(keys, &sorted, &which, &counts);
    sorted = scope_take(s, st, sorted);
    *ret_which = scope_take(s, st, which);
    scope_take(s, st, counts);
    return sorted;
}

tn_status tni_composite_coalesce(const void *args, tn_tensor **rets) {
    tn_tensor *t = tni_t(((const tn_coalesce_args *)args)->input), *which = NULL;
    tni_scope s = {0};
    sparse_places p;
    if (tn_tensor_layout(t) != TN_LAYOUT_COO)
        return tn_fail(TN_E_STATE, 0,
                       "coalesce expected sparse coordinate tensor layout but got %s",
                       tn_layout_name(tn_tensor_layout(t)));
    const tni_sparse *c = tni_sparse_of(t);
    if (c->coalesced) {
        *rets = tn_tensor_ref(t);
        return TN_OK;
    }
    if (c->values->v.shape[0] < 2)
        return scope_finish(&s, sparse_coo(&s, c->index, c->values, tni_shape_ints(t), true), rets);
    sparse_places_of(&s, t, &p);
    tn_tensor *keys = sparse_keys(&s, &p, 0, p.n);
    tn_tensor *sorted = different(&s, keys, &which);
    int64_t n = s.st == TN_OK ? tn_tensor_numel(sorted) : 0;
    tn_tensor *values = sparse_gathered(&s, n, which, c->values);
    tn_tensor *at = different_places(&s, p.at, n, which);
    return scope_finish(&s, sparse_coo(&s, at, values, tni_shape_ints(t), true), rets);
}

/* ---- To strided --------------------------------------------------------------------------------*/

/* (batch, rows / b0, columns / b1, b0, b1, ...) from (batch, rows, columns, ...). */
static tn_tensor *in_blocks(tni_scope *s, tn_tensor *t, int32_t batch, const int64_t *block,
                            tn_ints size) {
    int64_t shape[TN_MAX_DIMS + 2], order[TN_MAX_DIMS + 2];
    int32_t n = (int32_t)size.n + 2;
    if (s->st != TN_OK) return NULL;
    if (n > TN_MAX_DIMS) {
        s->st = tn_fail(TN_E_SHAPE, -1, "a tensor in blocks has at most %d dimensions",
                        TN_MAX_DIMS - 2);
        return NULL;
    }
    for (int32_t d = 0; d < n; d++) {
        order[d] = d;
        shape[d] = d < batch ? size.v[d] : d >= batch + 4 ? size.v[d - 2] : 0;
    }
    for (int32_t i = 0; i < 2; i++) {
        shape[batch + 2 * i] = size.v[batch + i] / block[i];
        shape[batch + 2 * i + 1] = block[i];
    }
    order[batch + 1] = batch + 2;
    order[batch + 2] = batch + 1;
    return scope_permute(s, scope_reshape(s, t, tn_ints_of(shape, n)), tn_ints_of(order, n));
}

tn_status tni_composite_to_dense(const void *args, tn_tensor **rets) {
    const tn_to_dense_args *a = args;
    tn_tensor *t = tni_t(a->input);
    tni_scope s = {0};
    sparse_places p;
    int64_t shape[TN_MAX_DIMS], order[TN_MAX_DIMS], block[2], n = 1;
    if (!tni_is_sparse(t)) return scope_finish(&s, scope_convert(&s, t, a->dtype), rets);
    t = sparse_distinct(&s, t, sparse_is_half(tn_tensor_dtype(t)));
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    sparse_block_of(t, block);
    sparse_places_of(&s, t, &p);
    for (int32_t d = 0; d < p.n; d++) n *= p.grid[d];
    tn_tensor *flat = sparse_placed(&s, n, sparse_keys(&s, &p, 0, p.n), sparse_rows(&s, t));
    if (tni_by_blocks(tn_tensor_layout(t)) && s.st == TN_OK) {
        int32_t rest = flat->v.ndim - 1, batch = p.n - 2, all = p.n + rest;
        for (int32_t d = 0; d < all; d++) {
            shape[d] = d < p.n ? p.grid[d] : flat->v.shape[d - p.n + 1];
            order[d] = d;
        }
        order[batch + 1] = batch + 2;
        order[batch + 2] = batch + 1;
        flat = scope_reshape(&s, flat, tn_ints_of(shape, all));
        flat = scope_permute(&s, flat, tn_ints_of(order, all));
    }
    tn_tensor *r = scope_reshape(&s, flat, tni_shape_ints(t));
    return scope_finish(&s, scope_convert(&s, r, a->dtype), rets);
}

/* ---- Elements at places ------------------------------------------------------------------------*/

/* t (grid, ...) as one row for each place of the grid. */
static tn_tensor *as_rows(tni_scope *s, tn_tensor *t, int32_t n) {
    int64_t shape[TN_MAX_DIMS], rows = 1;
    if (s->st != TN_OK) return NULL;
    for (int32_t d = 0; d < n; d++) rows *= t->v.shape[d];
    shape[0] = rows;
    for (int32_t d = n; d < t->v.ndim; d++) shape[d - n + 1] = t->v.shape[d];
    return scope_reshape(s, t, tn_ints_of(shape, t->v.ndim - n + 1));
}

static tn_tensor *with_ones(tni_scope *s, tn_tensor *t, int32_t ndim) {
    while (s->st == TN_OK && t->v.ndim < ndim) t = scope_unsqueeze(s, t, -1);
    return t;
}

static tn_tensor *read_coo(tni_scope *s, tn_tensor *t, const sparse_places *p) {
    sparse_places own;
    tn_scalar_box zero;
    t = sparse_distinct(s, t, true);
    if (s->st != TN_OK) return NULL;
    sparse_places_of(s, t, &own);
    int64_t n = tn_sparse_nnz(t);
    tn_tensor *have = sparse_keys(s, &own, 0, own.n), *want = sparse_keys(s, p, 0, p->n);
    tn_tensor *at = sparse_found(s, have, want, false), *most = NULL, *same = NULL;
    if (s->st != TN_OK) return NULL;
    if (n == 0)
        return sparse_placed(s, tn_tensor_numel(want), scope_narrow(s, at, 0, 0, 0),
                             sparse_values(s, t));
    tn_status st = tn_minimum(at, tn_scalar_box_init(&zero, tn_scalar_int(n - 1)), &most);
    at = scope_take(s, st, most);
    tn_tensor *key = sparse_pick(s, have, 0, at);
    if (s->st != TN_OK) return NULL;
    st = tn_eq(key, want, &same);
    same = scope_take(s, st, same);
    tn_tensor *values = sparse_pick(s, sparse_values(s, t), 0, at);
    if (s->st != TN_OK) return NULL;
    tn_tensor *r = scope_where(s, with_ones(s, same, values->v.ndim), values,
                               tn_scalar_box_init(&zero, tn_scalar_int(0)));
    return scope_convert(s, r, tn_tensor_dtype(values)); /* bool beside 0 is int64 */
}

tn_tensor *sparse_read_at(tni_scope *s, tn_tensor *t, const sparse_places *p,
                          const int64_t *block) {
    if (s->st != TN_OK) return NULL;
    bool blocks = block[0] != 1 || block[1] != 1;
    if (tni_is_sparse(t)) {
        int32_t k = tni_sparse_of(t)->sparse_dim + tni_sparse_of(t)->batch_dim;
        if (!blocks && k == p->n) return read_coo(s, sparse_to_coo(s, t), p);
        tn_tensor *dense = NULL;
        tn_status st = tn_to_dense(t, -1, 1, &dense);
        t = scope_take(s, st, dense);
        if (s->st != TN_OK) return NULL;
    }
    if (blocks) t = in_blocks(s, t, p->n - 2, block, tni_shape_ints(t));
    return sparse_pick(s, as_rows(s, t, p->n), 0, sparse_keys(s, p, 0, p->n));
}

tn_status tni_composite_sparse_mask(const void *args, tn_tensor **rets) {
    const tn_sparse_mask_args *a = args;
    tn_tensor *t = tni_t(a->input), *mask = tni_t(a->mask);
    tni_scope s = {0};
    sparse_places p;
    int64_t block[2];
    if (!tni_is_sparse(mask))
        return tn_fail(TN_E_STATE, 1, "sparse_mask(): argument 'mask' must be a sparse tensor");
    if (!tni_shape_is(t, mask->v.ndim, mask->v.shape))
        return tn_fail(TN_E_STATE, 1,
                       "sparse_mask(): operands have incompatible sizes; self has size %s but mask "
                       "has size %s",
                       tni_shape_text_of(&t->v), tni_shape_text_of(&mask->v));
    mask = sparse_distinct(&s, mask, true);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    const tni_sparse *c = tni_sparse_of(mask);
    sparse_block_of(mask, block);
    sparse_places_of(&s, mask, &p);
    tn_tensor *rows = sparse_read_at(&s, t, &p, block);
    rows = scope_reshape(&s, rows, tni_shape_ints(c->values));
    return scope_finish(&s, sparse_like(&s, mask, rows), rets);
}

/* ---- To coordinates ----------------------------------------------------------------------------*/

/* Every element of a block at a place of its own. */
static void single_elements(tni_scope *s, sparse_places *p, const int64_t *block,
                            tn_tensor **rows) {
    int32_t k = p->n;
    int64_t nnz = s->st == TN_OK ? tn_tensor_shape(p->at)[1] : 0,
            size[4] = {k, nnz, block[0], block[1]};
    tn_tensor *r = scope_reshape(s, p->at, TN_INTS(k, nnz, 1, 1));
    r = scope_expand(s, r, tn_ints_of(size, 4));
    tn_tensor *row[TN_MAX_DIMS], *at = NULL;
    for (int32_t d = 0; d < k; d++) {
        row[d] = scope_select(s, r, 0, d);
        if (d < k - 2) continue;
        int i = d - (k - 2);
        tn_tensor *in = p->at ? sparse_arange(s, block[i], p->at) : NULL;
        in = scope_reshape(s, in, i == 0 ? TN_INTS(block[0], 1) : TN_INTS(1, block[1]));
        row[d] = scope_add(s, sparse_times(s, row[d], block[i]), in);
        p->grid[d] *= block[i];
    }
    if (s->st != TN_OK) return;
    tn_status st = tn_stack((tn_tensors){row, k}, 0, &at);
    p->at = scope_reshape(s, scope_take(s, st, at), TN_INTS(k, nnz * block[0] * block[1]));
    if (s->st != TN_OK) return;
    tn_tensor *v = *rows;
    int64_t shape[TN_MAX_DIMS];
    shape[0] = nnz * block[0] * block[1];
    for (int32_t d = 3; d < v->v.ndim; d++) shape[d - 2] = v->v.shape[d];
    *rows = scope_reshape(s, v, tn_ints_of(shape, v->v.ndim - 2));
}

static tn_tensor *coo_of(tni_scope *s, tn_tensor *t) {
    sparse_places p;
    int64_t block[2];
    if (s->st != TN_OK || tn_tensor_layout(t) == TN_LAYOUT_COO) return t;
    sparse_block_of(t, block);
    sparse_places_of(s, t, &p);
    tn_tensor *rows = sparse_rows(s, t), *r = NULL;
    if (tni_by_blocks(tn_tensor_layout(t))) single_elements(s, &p, block, &rows);
    bool sorted = sparse_rising(s, sparse_keys(s, &p, 0, p.n));
    tn_tensor *coo = sparse_coo(s, p.at, rows, tni_shape_ints(t), sorted);
    if (s->st != TN_OK || sorted) return coo;
    tn_status st = tn_coalesce(coo, &r);
    return scope_take(s, st, r);
}

tn_tensor *sparse_to_coo(tni_scope *s, tn_tensor *t) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || tn_tensor_layout(t) == TN_LAYOUT_COO) return t;
    tn_status st = tn__to_sparse_coo(t, -1, &r);
    return scope_take(s, st, r);
}

/* Places where a strided tensor, its first n dimensions taken as grid, is not all zero. */
static tn_tensor *occupied(tni_scope *s, tn_tensor *t, int32_t n, sparse_places *ret) {
    tn_tensor *mask = NULL, *at = NULL, *wide = NULL;
    if (s->st != TN_OK) return NULL;
    tn_tensor *rows = as_rows(s, t, n);
    if (s->st != TN_OK) return NULL;
    for (int32_t d = 0; d < n; d++) ret->grid[d] = t->v.shape[d];
    ret->n = n;
    tn_status st = tn_ne_scalar(rows, tn_scalar_int(0), &mask);
    mask = scope_take(s, st, mask);
    if (s->st == TN_OK && mask->v.ndim > 1) {
        mask = scope_reshape(
            s, mask,
            TN_INTS(mask->v.shape[0], mask->v.shape[0] ? mask->v.numel / mask->v.shape[0] : 0));
        if (s->st != TN_OK) return NULL;
        st = tn_any(mask, TN_INTS(1), 0, &wide);
        mask = scope_take(s, st, wide);
    }
    tn_tensor *which = sparse_where_true(s, mask);
    if (n > 0) {
        tn_tensor *square = scope_reshape(s, mask, tn_ints_of(ret->grid, n));
        if (s->st != TN_OK) return NULL;
        st = tn_nonzero(square, &at);
        at = scope_transpose(s, scope_take(s, st, at), 0, 1);
    } else if (s->st == TN_OK) {
        st = tn_zeros(TN_INTS(0, tn_tensor_numel(which)), TN_I64, tni_device_of(t), &at);
        at = scope_take(s, st, at);
    }
    if (s->st != TN_OK) return NULL;
    tn_tensor *packed = NULL;
    st = tn_contiguous(at, TN_FORMAT_CONTIGUOUS, &packed);
    ret->at = scope_take(s, st, packed);
    return sparse_pick(s, rows, 0, which);
}

tn_status tni_composite__to_sparse_coo(const void *args, tn_tensor **rets) {
    const tn__to_sparse_coo_args *a = args;
    tn_tensor *t = tni_t(a->input);
    tni_scope s = {0};
    sparse_places p;
    if (tni_is_sparse(t)) return scope_finish(&s, coo_of(&s, t), rets);
    int64_t n = a->sparse_dim < 0 ? t->v.ndim : a->sparse_dim;
    if (n > t->v.ndim || (n == 0 && t->v.ndim > 0))
        return tn_fail(TN_E_STATE, 1,
                       "sparse_dim argument must be in >=1 and <= %d, but got %lld for a tensor of "
                       "shape %s",
                       (int)t->v.ndim, (long long)n, tni_shape_text_of(&t->v));
    tn_tensor *rows = occupied(&s, t, (int32_t)n, &p);
    if (s.st != TN_OK) return scope_finish(&s, NULL, rets);
    return scope_finish(&s, sparse_coo(&s, p.at, rows, tni_shape_ints(t), true), rets);
}

/* ---- To compressed layouts ---------------------------------------------------------------------*/

typedef struct target {
    int32_t layout;
    int64_t block[2];
    tn_ints size;
} target;

/* Where each row of each member of the batch begins among the sorted keys. */
static tn_tensor *beginnings(tni_scope *s, tn_tensor *keys, const sparse_places *p, int64_t major,
                             int64_t minor, int64_t nnz) {
    int32_t batch = p->n - 2;
    int64_t members = 1, shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < batch; d++) members *= shape[d] = p->grid[d];
    shape[batch] = major + 1;
    if (s->st != TN_OK) return NULL;
    int64_t each = members ? nnz / members : 0;
    tn_tensor *row = sparse_times(s, sparse_arange(s, major + 1, keys), minor);
    tn_tensor *member = scope_unsqueeze(s, sparse_arange(s, members, keys), 1);
    tn_tensor *start = scope_add(s, sparse_times(s, member, major * minor), row);
    tn_tensor *found = sparse_found(s, keys, sparse_flat(s, start), false), *even = NULL;
    found = scope_reshape(s, found, TN_INTS(members, major + 1));
    found = scope_sub(s, found, sparse_times(s, member, each));
    if (s->st != TN_OK || batch == 0) return scope_reshape(s, found, tn_ints_of(shape, batch + 1));
    tn_tensor *last = scope_select(s, found, 1, major);
    tn_tensor *first = scope_select(s, found, 1, 0);
    tn_tensor *count = scope_sub(s, last, first);
    if (s->st != TN_OK) return NULL;
    tn_scalar_box box;
    tn_status st = tn_eq(count, tn_scalar_box_init(&box, tn_scalar_int(each)), &even);
    if (!sparse_all_true(s, scope_take(s, st, even)) && s->st == TN_OK)
        s->st = tn_fail(TN_E_STATE, -1, "Expect the same number of specified elements per batch.");
    return scope_reshape(s, found, tn_ints_of(shape, batch + 1));
}

/* Rows of values at different places, as a tensor of a compressed layout. */
static tn_tensor *compress_steps(tni_scope *s, const sparse_places *places, tn_tensor *rows,
                                 const target *to) {
    sparse_places p = *places;
    tn_tensor *sorted = NULL, *order = NULL, *r = NULL;
    int32_t k = p.n - 2;
    if (s->st != TN_OK) return NULL;
    int64_t nnz = tn_tensor_shape(p.at)[1], members = 1;
    if (!tni_by_rows(to->layout)) sparse_swap(s, &p);
    int64_t major = p.grid[k], minor = p.grid[k + 1];
    tn_tensor *keys = sparse_keys(s, &p, 0, p.n);
    if (s->st != TN_OK) return NULL;
    if (!sparse_rising(s, keys)) {
        tn_status st = tn_sort(keys, 0, 0, 1, &sorted, &order);
        keys = scope_take(s, st, sorted);
        rows = sparse_pick(s, rows, 0, scope_take(s, st, order));
    }
    tn_tensor *index = beginnings(s, keys, &p, major, minor, nnz);
    tn_tensor *plain = minor ? sparse_modulo(s, keys, minor) : keys;
    int64_t shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < k; d++) members *= shape[d] = p.grid[d];
    shape[k] = members ? nnz / members : 0;
    plain = scope_reshape(s, plain, tn_ints_of(shape, k + 1));
    if (s->st != TN_OK) return NULL;
    int32_t n = k + 1;
    for (int32_t d = 1; d < rows->v.ndim; d++) shape[n++] = rows->v.shape[d];
    rows = scope_reshape(s, rows, tn_ints_of(shape, n));
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__sparse_make(index, plain, rows, to->size, to->layout, 0, &r);
    return scope_take(s, st, r);
}

/* With temporaries of its own. */
static tn_tensor *compress(tni_scope *s, const sparse_places *places, tn_tensor *rows,
                           const target *to) {
    tni_scope own = {.st = s->st};
    tn_tensor *r = NULL;
    tn_status st = scope_finish(&own, compress_steps(&own, places, rows, to), &r);
    return scope_take(s, st, r);
}

/* Single elements as blocks. */
static tn_tensor *block_up(tni_scope *s, sparse_places *p, tn_tensor *rows, const int64_t *block) {
    tn_tensor *line[TN_MAX_DIMS], *inner[2], *which = NULL, *at = NULL;
    int32_t k = p->n - 2;
    for (int32_t d = 0; d < p->n; d++) {
        line[d] = scope_select(s, p->at, 0, d);
        if (d < k) continue;
        inner[d - k] = sparse_modulo(s, line[d], block[d - k]);
        line[d] = sparse_over(s, line[d], block[d - k]);
        p->grid[d] /= block[d - k];
    }
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_stack((tn_tensors){line, p->n}, 0, &at);
    p->at = scope_take(s, st, at);
    tn_tensor *keys = different(s, sparse_keys(s, p, 0, p->n), &which);
    int64_t n = s->st == TN_OK ? tn_tensor_numel(keys) : 0, shape[TN_MAX_DIMS];
    int64_t size = block[0] * block[1];
    tn_tensor *in = scope_add(s, sparse_times(s, inner[0], block[1]), inner[1]);
    tn_tensor *to = scope_add(s, sparse_times(s, which, size), in);
    tn_tensor *values = sparse_placed(s, n * size, to, rows);
    p->at = different_places(s, p->at, n, which);
    if (s->st != TN_OK) return NULL;
    shape[0] = n, shape[1] = block[0], shape[2] = block[1];
    for (int32_t d = 1; d < rows->v.ndim; d++) shape[d + 2] = rows->v.shape[d];
    return scope_reshape(s, values, tn_ints_of(shape, rows->v.ndim + 2));
}

static tn_status check_target(const tn_tensor *t, const target *to, int64_t dense) {
    int64_t batch = t->v.ndim - 2 - dense;
    if (dense < 0 || batch < 0)
        return tn_fail(TN_E_STATE, 0,
                       "a compressed sparse layout needs 2 dimensions beside %lld dense ones, got "
                       "shape %s",
                       (long long)dense, tni_shape_text_of(&t->v));
    for (int i = 0; i < 2; i++)
        if (to->block[i] < 1 || t->v.shape[batch + i] % to->block[i])
            return tn_fail(TN_E_STATE, 2,
                           "Tensor size(%lld) %lld needs to be divisible by blocksize[%d] %lld",
                           (long long)(batch + i), (long long)t->v.shape[batch + i], i,
                           (long long)to->block[i]);
    return TN_OK;
}

static tn_tensor *compressed(tni_scope *s, tn_tensor *t, const target *to, int64_t dense) {
    sparse_places p;
    if (s->st == TN_OK) s->st = check_target(t, to, dense);
    if (s->st != TN_OK) return NULL;
    int32_t batch = t->v.ndim - 2 - (int32_t)dense;
    tn_tensor *rows;
    if (!tni_is_sparse(t)) {
        if (tni_by_blocks(to->layout)) t = in_blocks(s, t, batch, to->block, to->size);
        rows = occupied(s, t, batch + 2, &p);
        return compress(s, &p, rows, to);
    }
    t = sparse_distinct(s, sparse_to_coo(s, t), true);
    if (s->st != TN_OK) return NULL;
    sparse_places_of(s, t, &p);
    rows = sparse_values(s, t);
    if (tni_by_blocks(to->layout)) rows = block_up(s, &p, rows, to->block);
    return compress(s, &p, rows, to);
}

/* Compressed indices stay int32 where they were. */
static tn_tensor *index_as(tni_scope *s, tn_tensor *t, int32_t dtype) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || tn_tensor_dtype(tni_sparse_of(t)->index) == dtype) return t;
    tn_tensor *index = scope_convert(s, tni_sparse_of(t)->index, dtype);
    tn_tensor *plain = scope_convert(s, tni_sparse_of(t)->plain, dtype);
    tn_tensor *values = sparse_values(s, t);
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn__sparse_make(index, plain, values, tni_shape_ints(t), tn_tensor_layout(t), 0, &r);
    return scope_take(s, st, r);
}

tn_status tni_composite__to_compressed(const void *args, tn_tensor **rets) {
    const tn__to_compressed_args *a = args;
    tn_tensor *t = tni_t(a->input);
    tni_scope s = {0};
    target to = {(int32_t)a->layout, {1, 1}, tni_shape_ints(t)};
    if (to.layout < TN_LAYOUT_CSR || to.layout >= TN_LAYOUT_COUNT)
        return tn_fail(TN_E_VALUE, 1, "layout %lld is not compressed", (long long)a->layout);
    if (tni_by_blocks(to.layout)) {
        if (a->blocksize.n != 2)
            return tn_fail(TN_E_STATE, 2, "layout %s needs a blocksize of two numbers",
                           tn_layout_name(to.layout));
        memcpy(to.block, a->blocksize.v, sizeof to.block);
    }
    int64_t block[2], dense = a->dense_dim;
    int32_t dtype = TN_I64;
    if (tni_is_sparse(t)) {
        const tni_sparse *c = tni_sparse_of(t);
        sparse_block_of(t, block);
        dense = c->dense_dim;
        if (c->plain) dtype = tn_tensor_dtype(c->index);
        if (tn_tensor_layout(t) == to.layout && memcmp(block, to.block, sizeof block) == 0) {
            *rets = tn_tensor_ref(t);
            return TN_OK;
        }
    }
    return scope_finish(&s, index_as(&s, compressed(&s, t, &to, dense), dtype), rets);
}

tn_tensor *sparse_to_layout_of(tni_scope *s, tn_tensor *t, const tn_tensor *like) {
    int32_t layout = tn_tensor_layout(like);
    int64_t block[2];
    tn_tensor *r = NULL;
    if (s->st != TN_OK || layout == tn_tensor_layout(t)) return t;
    if (layout == TN_LAYOUT_COO) return sparse_to_coo(s, t);
    sparse_block_of(like, block);
    tn_status st = tn__to_compressed(t, layout, TN_INTS(block[0], block[1]), 0, &r);
    return index_as(s, scope_take(s, st, r), tn_tensor_dtype(tni_sparse_of(like)->index));
}
