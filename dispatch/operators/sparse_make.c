/* sparse_make.c: operators that make sparse tensors and show their components. */
#include <tenon/args_create.h>
#include <tenon/args_sparse.h>

#include "op_sparse.h"
#include "sparse_scope_priv.h"

/* ---- Without checks, for rules -----------------------------------------------------------------*/

tn_status tni_composite__sparse_make(const void *args, tn_tensor **rets) {
    const tn__sparse_make_args *a = args;
    if (a->layout <= 0 || a->layout >= TN_LAYOUT_COUNT ||
        (a->layout != TN_LAYOUT_COO) != !!a->plain)
        return tn_fail(TN_E_VALUE, 4, "there is no layout %lld of these components",
                       (long long)a->layout);
    return tni_sparse_new((int32_t)a->layout, tni_t(a->index), a->plain ? tni_t(a->plain) : NULL,
                          tni_t(a->values), a->coalesced, a->size, rets);
}

static void block_of_values(const tn_view *v, int32_t layout, int32_t batch, int64_t *ret_block) {
    const int64_t *block = v->shape + batch + 1;
    ret_block[0] = tni_by_blocks(layout) ? block[0] : 1;
    ret_block[1] = tni_by_blocks(layout) ? block[1] : 1;
}

tn_status tni_grad__sparse_make(tn_gctx *c) {
    const tn__sparse_make_args *a = c->args;
    int64_t block[2];
    block_of_values(a->values, (int32_t)a->layout, a->index->ndim - 1, block);
    return tn__sparse_read(c->g[0], tni_t(a->index), a->plain ? tni_t(a->plain) : NULL,
                           TN_INTS(block[0], block[1]), a->layout,
                           tn_ints_of(a->values->shape, a->values->ndim), &c->ret[2]);
}

tn_status tni_composite__sparse_values(const void *args, tn_tensor **rets) {
    tn_tensor *t = tni_t(((const tn__sparse_values_args *)args)->input);
    if (!tni_is_sparse(t)) return tn_fail(TN_E_TYPE, 0, "a strided tensor keeps no values apart");
    return tni_detach(tni_sparse_of(t)->values, rets);
}

tn_status tni_grad__sparse_values(tn_gctx *c) {
    const tn__sparse_values_args *a = c->args;
    tn_tensor *t = tni_t(a->input);
    const tni_sparse *p = tni_sparse_of(t);
    return tn__sparse_make(p->index, p->plain, c->g[0], tni_shape_ints(t), tn_tensor_layout(t),
                           p->coalesced, &c->ret[0]);
}

static bool is_index(const tn_view *v) {
    return tn_view_dtype(v) == TN_I64 || tn_view_dtype(v) == TN_I32;
}

/* Whether the components can be those of a pattern in a tensor of t's rank. */
static tn_status check_read(const tn__sparse_read_args *a) {
    const tn_view *t = a->input, *i = a->index, *p = a->plain;
    bool coo = a->layout == TN_LAYOUT_COO, fits = a->layout > 0 && a->layout < TN_LAYOUT_COUNT;
    fits = fits && coo == !p && is_index(i) && (!p || is_index(p));
    fits = fits && a->block.n == 2 && a->block.v[0] > 0 && a->block.v[1] > 0;
    if (fits && coo) fits = i->ndim == 2 && i->shape[0] <= t->ndim;
    if (fits && p) fits = i->ndim > 0 && p->ndim == i->ndim && i->ndim + 1 <= t->ndim;
    for (int32_t d = 0; fits && p && d < 2; d++)
        fits = t->shape[i->ndim - 1 + d] % a->block.v[d] == 0;
    for (int32_t d = 0; fits && p && d < i->ndim - 1; d++)
        fits = t->shape[d] == i->shape[d] && t->shape[d] == p->shape[d];
    if (fits) return TN_OK;
    return tn_fail(TN_E_VALUE, 1, "these are no components of a pattern in a tensor of shape %s",
                   tni_shape_text_of(t));
}

tn_status tni_composite__sparse_read(const void *args, tn_tensor **rets) {
    const tn__sparse_read_args *a = args;
    tni_scope s = {0};
    sparse_places p;
    tn_tensor *t = tni_t(a->input);
    TN_TRY(check_read(a));
    sparse_places_from(&s, (int32_t)a->layout, tni_t(a->index), a->plain ? tni_t(a->plain) : NULL,
                       tni_shape_ints(t), a->block.v, &p);
    tn_tensor *rows = NULL;
    if (tni_is_sparse(t) && tn_tensor_layout(t) == a->layout) {
        const tni_sparse *c = tni_sparse_of(t);
        const tn_tensor *plain = a->plain ? tni_t(a->plain) : NULL;
        bool same = c->index->v.data == a->index->data &&
                    (!plain || c->plain->v.data == plain->v.data) &&
                    tni_shape_is(c->values, (int32_t)a->shape.n, a->shape.v);
        if (same && (c->coalesced || plain)) rows = sparse_values(&s, t);
    }
    if (!rows) rows = sparse_read_at(&s, t, &p, a->block.v);
    return scope_finish(&s, scope_reshape(&s, rows, a->shape), rets);
}

/* ---- Components --------------------------------------------------------------------------------*/

static const char *spelt(const tn_tensor *t) {
    static const char *const names[TN_LAYOUT_COUNT] = {"Strided",   "Sparse",    "SparseCsr",
                                                       "SparseCsc", "SparseBsr", "SparseBsc"};
    return names[tn_tensor_layout(t)];
}

static tn_status fail_layout(const char *name, const char *expected, const tn_view *v) {
    return tn_fail(TN_E_STATE, 0, "%s expected sparse %stensor layout but got %s", name, expected,
                   spelt(tni_t(v)));
}

/* PyTorch has these operators for sparse tensors alone. */
static tn_status fail_backend(const char *name, const tn_view *v) {
    bool strided = tn_tensor_layout(tni_t(v)) == TN_LAYOUT_STRIDED;
    return tn_fail(TN_E_UNSUPPORTED, 0,
                   "Could not run 'aten::%s' with arguments from the '%sCPU' backend.", name,
                   strided ? "" : spelt(tni_t(v)));
}

static tn_status fail_uncoalesced(const char *what) {
    return tn_fail(TN_E_STATE, 0,
                   "Cannot get %s on an uncoalesced tensor, please call .coalesce() first", what);
}

tn_status tni_composite__indices(const void *args, tn_tensor **rets) {
    const tn_view *v = ((const tn__indices_args *)args)->input;
    if (tn_tensor_layout(tni_t(v)) != TN_LAYOUT_COO) return fail_backend("_indices", v);
    return tni_detach(tni_sparse_of(tni_t(v))->index, rets);
}

tn_status tni_composite_indices(const void *args, tn_tensor **rets) {
    const tn_view *v = ((const tn_indices_args *)args)->input;
    if (tn_tensor_layout(tni_t(v)) != TN_LAYOUT_COO)
        return fail_layout("indices", "coordinate ", v);
    if (!tni_sparse_of(tni_t(v))->coalesced) return fail_uncoalesced("indices");
    return tni_detach(tni_sparse_of(tni_t(v))->index, rets);
}

tn_status tni_composite__values(const void *args, tn_tensor **rets) {
    const tn_view *v = ((const tn__values_args *)args)->input;
    if (!tni_is_sparse(tni_t(v))) return fail_backend("_values", v);
    return tni_detach(tni_sparse_of(tni_t(v))->values, rets);
}

tn_status tni_composite_values(const void *args, tn_tensor **rets) {
    tn_tensor *t = tni_t(((const tn_values_args *)args)->input);
    if (!tni_is_sparse(t)) return fail_layout("values", "", &t->v);
    if (tn_tensor_layout(t) == TN_LAYOUT_COO && !tni_sparse_of(t)->coalesced)
        return fail_uncoalesced("values");
    return tn__sparse_values(t, rets);
}

static tn_status compressed_part(const char *name, const tn_view *v, bool by_rows, bool plain,
                                 tn_tensor **rets) {
    const tn_tensor *t = tni_t(v);
    if (!tni_is_sparse(t) || tn_tensor_layout(t) == TN_LAYOUT_COO ||
        tni_by_rows(tn_tensor_layout(t)) != by_rows)
        return fail_layout(name, by_rows ? "row compressed " : "column compressed ", v);
    const tni_sparse *c = tni_sparse_of(t);
    return tni_detach(plain ? c->plain : c->index, rets);
}

tn_status tni_composite_crow_indices(const void *args, tn_tensor **rets) {
    const tn_crow_indices_args *a = args;
    return compressed_part("crow_indices", a->input, true, false, rets);
}
tn_status tni_composite_col_indices(const void *args, tn_tensor **rets) {
    const tn_col_indices_args *a = args;
    return compressed_part("col_indices", a->input, true, true, rets);
}
tn_status tni_composite_ccol_indices(const void *args, tn_tensor **rets) {
    const tn_ccol_indices_args *a = args;
    return compressed_part("ccol_indices", a->input, false, false, rets);
}
tn_status tni_composite_row_indices(const void *args, tn_tensor **rets) {
    const tn_row_indices_args *a = args;
    return compressed_part("row_indices", a->input, false, true, rets);
}

/* ---- Changes in place --------------------------------------------------------------------------*/

tn_status tni_composite__coalesced_(const void *args, tn_tensor **rets) {
    const tn__coalesced__args *a = args;
    tn_tensor *t = tni_t(a->self);
    if (tn_tensor_layout(t) != TN_LAYOUT_COO) return fail_backend("_coalesced_", &t->v);
    ((tni_sparse *)t->storage->ctx)->coalesced = a->coalesced != 0;
    *rets = tn_tensor_ref(t);
    return TN_OK;
}

/* t without elements. */
static tn_tensor *emptied(tni_scope *s, tn_tensor *t) {
    int64_t sizes[TN_MAX_DIMS];
    const tni_sparse *c = tni_sparse_of(t);
    const tn_tensor *parts[3] = {c->index, c->plain, c->values};
    tn_tensor *made[3] = {NULL}, *r = NULL;
    for (int i = 0; i < 3 && s->st == TN_OK; i++) {
        const tn_tensor *p = parts[i];
        if (!p) continue;
        bool compressed = i == 0 && c->plain;
        memcpy(sizes, p->v.shape, sizeof sizes[0] * (size_t)p->v.ndim);
        if (!compressed) sizes[c->plain ? c->batch_dim : i == 0] = 0;
        tn_status st =
            tn_zeros(tn_ints_of(sizes, p->v.ndim), tn_tensor_dtype(p), tni_device_of(p), &made[i]);
        made[i] = scope_take(s, st, made[i]);
    }
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn__sparse_make(made[0], made[1], made[2], tni_shape_ints(t), tn_tensor_layout(t), 1, &r);
    return scope_take(s, st, r);
}

/* zeros_like, empty_like: no elements, which is all zeros. */
tn_status tni_sparse_like_empty(const tn_op *op, void *args, tn_tensor **rets) {
    tni_scope s = {0};
    const tn_zeros_like_args *a = args;
    tn_tensor *r = NULL;
    _Static_assert(offsetof(tn_zeros_like_args, device) == offsetof(tn_empty_like_args, device),
                   "both are read as one");
    if (a->memory_format != TN_FORMAT_PRESERVE)
        return tn_fail(TN_E_STATE, -1,
                       "%s(): memory format option is only supported by strided tensors",
                       op->info.name);
    tn_tensor *none = emptied(&s, tni_t(a->input));
    if (s.st == TN_OK) s.st = tn__move(none, a->dtype, a->device, &r);
    r = scope_take(&s, s.st, r);
    return scope_finish(&s, r, rets);
}

/* new_zeros, new_empty: a tensor of the same layout and other sizes, without elements. */
tn_status tni_sparse_new_empty(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_new_zeros_args *a = args;
    tn_tensor *t = tni_t(a->input), *index, *plain = NULL, *values;
    int64_t sizes[TN_MAX_DIMS + 1], n = a->size.n, device = a->device, bounds = 0;
    int32_t layout = tn_tensor_layout(t);
    tni_scope s = {0};
    _Static_assert(offsetof(tn_new_zeros_args, device) == offsetof(tn_new_empty_args, device),
                   "both are read as one");
    if (device < 0) device = tni_device_of(t);
    int64_t dtype = a->dtype < 0 ? tn_tensor_dtype(t) : a->dtype;
    if (tni_by_blocks(layout) || n > TN_MAX_DIMS || (layout != TN_LAYOUT_COO && n < 2))
        return tn_fail(
            TN_E_STATE, 1, "%s(): a tensor of layout %s cannot be made from sizes %s alone",
            op->info.name, tn_layout_name(layout), tni_shape_text((int32_t)n, a->size.v));
    if (layout != TN_LAYOUT_COO &&
        __builtin_add_overflow(a->size.v[tni_by_rows(layout) ? n - 2 : n - 1], 1, &bounds))
        return tn_fail(TN_E_VALUE, 1, "%s(): a tensor of shape %s is larger than the address space",
                       op->info.name, tni_shape_text((int32_t)n, a->size.v));
    if (layout == TN_LAYOUT_COO) {
        const int64_t none[2] = {n, 0};
        index = SCOPE(&s, tn_zeros(tn_ints_of(none, 2), TN_I64, device, scope_slot(&s)));
        values = SCOPE(&s, tn_zeros(tn_ints_of(none + 1, 1), dtype, device, scope_slot(&s)));
    } else {
        memcpy(sizes, a->size.v, sizeof sizes[0] * (size_t)n);
        sizes[n - 2] = 0;
        tn_ints none = tn_ints_of(sizes, n - 1);
        plain = SCOPE(&s, tn_zeros(none, TN_I64, device, scope_slot(&s)));
        values = SCOPE(&s, tn_zeros(none, dtype, device, scope_slot(&s)));
        sizes[n - 2] = bounds;
        index = SCOPE(&s, tn_zeros(none, TN_I64, device, scope_slot(&s)));
    }
    tn_tensor *r =
        SCOPE(&s, tn__sparse_make(index, plain, values, a->size, layout, 1, scope_slot(&s)));
    return scope_finish(&s, r, rets);
}

tn_status tni_sparse_zero_(const tn_op *op, void *args, tn_tensor **rets) {
    tni_scope s = {0};
    tn_tensor *t = tni_t(((const tn_zero__args *)args)->self), *none = emptied(&s, t);
    (void)op;
    if (s.st == TN_OK) tni_sparse_replace(t, none);
    return scope_finish(&s, t, rets);
}

static tn_status fail_copy(const tn_tensor *to, const tn_tensor *from) {
    int32_t into = tn_tensor_layout(to), out_of = tn_tensor_layout(from);
    if (into > TN_LAYOUT_COO)
        return tn_fail(TN_E_STATE, 1,
                       "copy_(): copy of sparse compressed tensors having different layouts is not "
                       "supported. self layout is %s and src layout is %s",
                       spelt(to), spelt(from));
    if (out_of > TN_LAYOUT_COO)
        return fail_layout("copy_sparse_compressed_", "compressed ", &to->v);
    return tn_fail(TN_E_STATE, 1,
                   "copy_() between dense and sparse Tensors is not implemented! Found self layout "
                   "= %s and src layout = %s",
                   spelt(to), spelt(from));
}

tn_status tni_sparse_copy_(const tn_op *op, void *args, tn_tensor **rets) {
    const tn_copy__args *a = args;
    tn_tensor *to = tni_t(a->self), *from = tni_t(a->src), *r = NULL;
    tni_scope s = {0};
    (void)op;
    if (tn_tensor_layout(to) != tn_tensor_layout(from)) return fail_copy(to, from);
    if (!tni_shape_is(to, from->v.ndim, from->v.shape))
        return tn_fail(TN_E_STATE, 1, "copy_(): sparse tensors of shapes %s and %s do not fit",
                       tni_shape_text_of(&to->v), tni_shape_text_of(&from->v));
    s.st = tn__move(from, tn_tensor_dtype(to), tni_device_of(to), &r);
    r = scope_take(&s, s.st, r);
    if (s.st == TN_OK) tni_sparse_replace(to, r);
    return scope_finish(&s, to, rets);
}

/* The indices, too, are copied. */
tn_status tni_sparse_clone(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *t = NULL, *copy = NULL;
    tni_scope s = {0};
    TN_TRY(tni_sparse_linear(op, args, &t));
    t = scope_take(&s, TN_OK, t);
    tni_sparse *c = t->storage->ctx; /* nobody else knows it yet */
    tn_tensor **parts[2] = {&c->index, &c->plain};
    for (int i = 0; i < 2 && s.st == TN_OK; i++) {
        if (!*parts[i]) continue;
        s.st = tn_clone(*parts[i], TN_FORMAT_PRESERVE, &copy);
        if (s.st != TN_OK) break;
        tn_tensor_unref(parts[i]);
        *parts[i] = copy;
    }
    return scope_finish(&s, t, rets);
}
