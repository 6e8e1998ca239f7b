/* sparse.c: headers of sparse tensors, and facts about them. What is computed with them stands in
 * operators/sparse_*.c. */
#include "sparse_priv.h"

#include <stdlib.h>

const char *tn_layout_name(int32_t layout) {
    static const char *const names[TN_LAYOUT_COUNT] = {"strided",    "sparse_coo", "sparse_csr",
                                                       "sparse_csc", "sparse_bsr", "sparse_bsc"};
    if (layout == TN_LAYOUT_WRAPPED) return "wrapped";
    return layout >= 0 && layout < TN_LAYOUT_COUNT ? names[layout] : NULL;
}

/* ---- Components --------------------------------------------------------------------------------*/

static void end_components(void *ctx) {
    tni_sparse *s = ctx;
    tn_tensor_unref(&s->index);
    tn_tensor_unref(&s->plain);
    tn_tensor_unref(&s->values);
    free(s);
}

static tn_status fail_parts(const char *what, const tn_tensor *t, tn_ints size) {
    return tn_fail(TN_E_STATE, -1, "sparse tensor: %s of shape %s do not fit size %s", what,
                   tni_shape_text_of(&t->v), tni_shape_text((int32_t)size.n, size.v));
}

static bool sizes_are(const tn_tensor *t, int32_t from, int32_t n, const int64_t *sizes) {
    if (t->v.ndim < from + n) return false;
    for (int32_t i = 0; i < n; i++)
        if (t->v.shape[from + i] != sizes[i]) return false;
    return true;
}

static tn_status fit_coo(tni_sparse *s, tn_ints size) {
    const tn_view *i = &s->index->v, *v = &s->values->v;
    if (i->ndim != 2 || i->shape[0] > size.n) return fail_parts("indices", s->index, size);
    s->sparse_dim = (int32_t)i->shape[0];
    s->dense_dim = (int32_t)size.n - s->sparse_dim;
    if (v->ndim != 1 + s->dense_dim || v->shape[0] != i->shape[1] ||
        !sizes_are(s->values, 1, s->dense_dim, size.v + s->sparse_dim))
        return fail_parts("values", s->values, size);
    return TN_OK;
}

static tn_status fit_compressed(tni_sparse *s, int32_t layout, tn_ints size) {
    const tn_view *c = &s->index->v, *p = &s->plain->v, *v = &s->values->v;
    int32_t block = tni_by_blocks(layout) ? 2 : 0, batch = c->ndim - 1;
    s->sparse_dim = 2;
    s->batch_dim = batch;
    s->dense_dim = v->ndim - batch - 1 - block;
    if (batch < 0 || p->ndim != c->ndim) return fail_parts("plain indices", s->plain, size);
    if (s->dense_dim < 0 || size.n != batch + 2 + s->dense_dim)
        return fail_parts("values", s->values, size);
    int64_t wide = size.v[batch + !tni_by_rows(layout)], step = 1;
    if (block) step = v->shape[batch + 1 + !tni_by_rows(layout)];
    bool whole = !block || (v->shape[batch + 1] > 0 && v->shape[batch + 2] > 0 &&
                            size.v[batch] % v->shape[batch + 1] == 0 &&
                            size.v[batch + 1] % v->shape[batch + 2] == 0);
    if (!whole || !sizes_are(s->index, 0, batch, size.v) || c->shape[batch] != wide / step + 1)
        return fail_parts("compressed indices", s->index, size);
    if (!sizes_are(s->plain, 0, batch, size.v)) return fail_parts("plain indices", s->plain, size);
    if (!sizes_are(s->values, 0, batch, size.v) || v->shape[batch] != p->shape[batch] ||
        !sizes_are(s->values, batch + 1 + block, s->dense_dim, size.v + batch + 2))
        return fail_parts("values", s->values, size);
    return TN_OK;
}

/* A header of the layout over a storage, of which it takes over a reference. */
static tn_status header_of(int32_t layout, int32_t dtype, int32_t ndim, const int64_t *shape,
                           tn_storage *storage, tn_tensor **ret_tensor) {
    tn_tensor *t;
    TN_TRY(tni_header_new(dtype, storage->device, ndim, shape, NULL, &t));
    t->storage = storage;
    t->v.data = NULL;
    t->v.byte_offset = 0;
    t->v.word = (t->v.word & ~TNI_W_LIES) | (uint64_t)layout << 40;
    *ret_tensor = t;
    return TN_OK;
}

static tn_status keep(const tn_tensor *t, tn_tensor **slot) {
    return t ? tni_detach(t, slot) : TN_OK;
}

tn_status tni_sparse_new(int32_t layout, const tn_tensor *index, const tn_tensor *plain,
                         const tn_tensor *values, bool coalesced, tn_ints size,
                         tn_tensor **ret_tensor) {
    int64_t numel;
    tn_storage *storage = NULL;
    tn_status st;
    /* as many elements as there could be are counted, not kept */
    TN_TRY(tni_numel((int32_t)size.n, size.v, 1, &numel));
    for (int i = 0; i < 2; i++) {
        const tn_tensor *t = i ? plain : index;
        if (t && tn_tensor_dtype(t) != TN_I64 && tn_tensor_dtype(t) != TN_I32)
            return tn_fail(TN_E_DTYPE, i, "indices must be int32 or int64, not %s",
                           tni_type_text(tn_tensor_dtype(t)));
        if (t && tni_is_sparse(t)) return tn_fail(TN_E_TYPE, i, "indices must be strided");
    }
    if (tni_is_sparse(values)) return tn_fail(TN_E_TYPE, 2, "values must be strided");
    tni_sparse *s = calloc(1, sizeof *s);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    if ((st = keep(index, &s->index))) goto out;
    if ((st = keep(plain, &s->plain))) goto out;
    if ((st = keep(values, &s->values))) goto out;
    s->coalesced = layout == TN_LAYOUT_COO && coalesced;
    st = layout == TN_LAYOUT_COO ? fit_coo(s, size) : fit_compressed(s, layout, size);
    if (st) goto out;
    st = tni_storage_foreign(tn_tensor_device(values), NULL, 0, 0, end_components, s, &storage);
    if (st) goto out;
    s = NULL; /* the storage's */
    st = header_of(layout, tn_view_dtype(&values->v), (int32_t)size.n, size.v, storage, ret_tensor);
    if (st) {
        tn_storage *spare = NULL;
        tni_storage_unref(storage, &spare);
        free(spare);
    }
out:
    if (s) end_components(s);
    return st;
}

tn_status tni_sparse_alias(const tn_tensor *t, tn_tensor **ret_tensor) {
    tn_tensor *r;
    if (tni_is_wrapped(t)) return tni_wrapped_alias(t, ret_tensor);
    TN_TRY(header_of(tn_tensor_layout(t), tn_view_dtype(&t->v), t->v.ndim, t->v.shape, t->storage,
                     &r));
    tni_storage_ref(t->storage);
    r->flags = t->flags & TNI_T_NO_VERSION;
    r->v.word |= t->v.word & TN_W_INFERENCE;
    *ret_tensor = r;
    return TN_OK;
}

tn_status tni_sparse_fork(const tn_tensor *t, tn_tensor **ret_tensor) {
    const tni_sparse *s = tni_sparse_of(t);
    return tni_sparse_new(tn_tensor_layout(t), s->index, s->plain, s->values, s->coalesced,
                          tn_ints_of(t->v.shape, t->v.ndim), ret_tensor);
}

void tni_sparse_replace(tn_tensor *t, const tn_tensor *src) {
    tni_sparse *s = t->storage->ctx, old = *s;
    *s = *tni_sparse_of(src);
    tn_tensor_ref(s->index);
    tn_tensor_ref(s->plain);
    tn_tensor_ref(s->values);
    tn_tensor_unref(&old.index);
    tn_tensor_unref(&old.plain);
    tn_tensor_unref(&old.values);
    tni_bump_version(t);
}

/* ---- Facts -------------------------------------------------------------------------------------*/

int64_t tn_sparse_nnz(const tn_tensor *t) {
    if (!t || !tni_is_sparse(t)) return -1;
    const tni_sparse *s = tni_sparse_of(t);
    return s->values->v.shape[s->batch_dim];
}
int32_t tn_sparse_dim(const tn_tensor *t) {
    return t && tni_is_sparse(t) ? tni_sparse_of(t)->sparse_dim : -1;
}
int32_t tn_sparse_dense_dim(const tn_tensor *t) {
    return t && tni_is_sparse(t) ? tni_sparse_of(t)->dense_dim : -1;
}
int tn_sparse_is_coalesced(const tn_tensor *t) {
    return t && tni_is_sparse(t) && tni_sparse_of(t)->coalesced;
}

/* ---- Tensors that the host language makes of others: tenon/wrapped.h ---------------------------*/

tn_status tn_wrapped_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                         const int64_t *strides, void (*end)(void *ctx), void *ctx,
                         tn_tensor **ret_tensor) {
    tn_storage *storage = NULL;
    tn_tensor *t;
    int64_t numel;
    if (ndim < 0 || ndim > TN_MAX_DIMS || (ndim > 0 && !shape) || !end || !ctx || !ret_tensor)
        return tn_fail(TN_E_VALUE, -1, "wrapped_new(): a pointer is NULL, or ndim is %d",
                       (int)ndim);
    if (!tn_dtype_name(dtype)) return tn_fail(TN_E_DTYPE, 0, "there is no dtype %d", (int)dtype);
    TN_TRY(tni_numel(ndim, shape, 1, &numel));
    TN_TRY(tni_header_new(dtype, device, ndim, shape, strides, &t));
    tn_status st = tni_storage_foreign(device, NULL, 0, 0, end, ctx, &storage);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    t->storage = storage;
    t->v.data = NULL;
    t->v.byte_offset = 0;
    t->v.word = (t->v.word & ~TNI_W_LIES) | (uint64_t)TN_LAYOUT_WRAPPED << 40;
    *ret_tensor = t;
    return TN_OK;
}

tn_status tni_wrapped_alias(const tn_tensor *t, tn_tensor **ret_tensor) {
    tn_tensor *r;
    TN_TRY(tni_header_new(tn_view_dtype(&t->v), t->storage->device, t->v.ndim, t->v.shape,
                          t->v.strides, &r));
    tni_storage_ref(t->storage);
    r->storage = t->storage;
    r->v.data = NULL;
    r->v.byte_offset = 0;
    r->v.word = (r->v.word & ~TNI_W_LIES) | (t->v.word & (TN_W_LAYOUT | TN_W_INFERENCE));
    r->flags = t->flags & TNI_T_NO_VERSION;
    *ret_tensor = r;
    return TN_OK;
}

void *tn_wrapped_ctx(const tn_tensor *t) { return t && tni_is_wrapped(t) ? t->storage->ctx : NULL; }
