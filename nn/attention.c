/* attention.c: scaled_dot_product_attention and bilinear. The fused kernel takes all but dropout,
 * masks with a gradient and second derivatives, which go through matrix products. */
#include <math.h>

#include <tenon/args_nn.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_nn.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_random.h>

#include "nn_priv.h"
#include "op_nn.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

/* Output i like x, with the heads inside of the length where x's memory has them so: merging heads
 * afterwards is then a view. */
static tn_status set_heads(tn_infer *inf, int i, const tn_view *x, int64_t width) {
    int64_t n[4] = {x->shape[0], x->shape[1], x->shape[2], width};
    TN_TRY(tni_infer_set(inf, i, 4, n));
    if (x->strides[1] < x->strides[2]) {
        int64_t strides[4] = {n[1] * n[2] * width, width, n[1] * width, 1};
        memcpy(inf->out[i].strides, strides, sizeof strides);
        inf->out[i].strided = 1;
    }
    return TN_OK;
}

/* ---- Attention: (batch, heads, length, width), checked by the composite above them ------------*/

static tn_status check_heads(const tn_view *q, const tn_view *k, const tn_view *v) {
    bool fits = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 && q->shape[0] == k->shape[0] &&
                k->shape[0] == v->shape[0] && k->shape[1] == v->shape[1] && k->shape[1] > 0 &&
                q->shape[1] % k->shape[1] == 0 && k->shape[2] == v->shape[2] &&
                q->shape[3] == k->shape[3];
    if (!fits) {
        return tn_fail(TN_E_SHAPE, 0, "attention: shapes %s, %s and %s do not fit together",
                       tni_shape_text_of(q), tni_shape_text_of(k), tni_shape_text_of(v));
    }
    if (tn_view_dtype(k) != tn_view_dtype(q) || tn_view_dtype(v) != tn_view_dtype(q)) {
        return tn_fail(TN_E_DTYPE, 1, "attention: query, key and value must be of one dtype");
    }
    return TN_OK;
}

/* One entry for each score; true keeps it, and a number of the query's dtype is added to it. */
static tn_status check_mask(tn_infer *inf, int32_t arg, const tn_view *mask, const tn_view *q,
                            const tn_view *k) {
    if (!mask) return TN_OK;
    const int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]};
    int32_t dtype = tn_view_dtype(mask) == TN_BOOL ? TN_BOOL : tn_view_dtype(q);
    return tni_infer_expect(inf, arg, mask, 4, shape, dtype);
}

tn_status tni_infer__flash_attention(tn_infer *inf, const void *args) {
    const tn__flash_attention_args *a = args;
    const tn_view *q = a->query, *k = a->key, *v = a->value;
    TN_TRY(check_heads(q, k, v));
    TN_TRY(check_mask(inf, 3, a->attn_mask, q, k));
    TN_TRY(set_heads(inf, 0, q, v->shape[3]));
    return nn_infer_set_as(inf, 1, nn_wide_dtype(tn_view_dtype(q)), 3, q->shape);
}

tn_status tni_infer__flash_attention_backward(tn_infer *inf, const void *args) {
    const tn__flash_attention_backward_args *a = args;
    const tn_view *q = a->query;
    int32_t dtype = tn_view_dtype(q);
    TN_TRY(check_heads(q, a->key, a->value));
    int64_t n[4] = {q->shape[0], q->shape[1], q->shape[2], a->value->shape[3]};
    TN_TRY(tni_infer_expect(inf, 0, a->grad, 4, n, dtype));
    TN_TRY(check_mask(inf, 4, a->attn_mask, q, a->key));
    TN_TRY(tni_infer_expect(inf, 5, a->y, 4, n, dtype));
    TN_TRY(tni_infer_expect(inf, 6, a->lse, 3, n, nn_wide_dtype(dtype)));
    TN_TRY(set_heads(inf, 0, a->query, a->query->shape[3]));
    TN_TRY(set_heads(inf, 1, a->key, a->key->shape[3]));
    return set_heads(inf, 2, a->value, a->value->shape[3]);
}

typedef tn_scaled_dot_product_attention_args sdpa_args;

static double scale_of(const sdpa_args *a) {
    int64_t width = a->query->shape[a->query->ndim - 1];
    return a->scale.has ? a->scale.value : 1.0 / sqrt((double)(width > 0 ? width : 1));
}

/* Heads of key and value, each repeated for the query heads that share it. */
static tn_tensor *repeat_heads(tni_scope *s, tn_tensor *t, int64_t heads) {
    const int64_t *shape = tn_tensor_shape(t);
    int32_t n = tn_tensor_ndim(t);
    int64_t wide[TN_MAX_DIMS + 1], flat[TN_MAX_DIMS], own = shape[n - 3];
    if (own == heads) return t;
    for (int32_t d = 0; d < n; d++) flat[d] = shape[d];
    for (int32_t d = 0, k = 0; d < n; d++) {
        wide[k++] = shape[d];
        if (d == n - 3) wide[k++] = heads / own;
    }
    flat[n - 3] = heads;
    tn_tensor *u = scope_expand(s, scope_unsqueeze(s, t, n - 2), tn_ints_of(wide, n + 1));
    return scope_reshape(s, u, tn_ints_of(flat, n));
}

/* -inf above the diagonal of (l, m), 0 elsewhere. */
static tn_tensor *causal_bias(tni_scope *s, const tn_view *q, int32_t dtype, int64_t m) {
    tn_tensor *full = NULL, *r = NULL;
    int64_t device = (int64_t)tn_view_device(q) << 8 | tn_view_index(q);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_full(TN_INTS(q->shape[q->ndim - 2], m), tn_scalar_float(-INFINITY), dtype,
                           device, &full);
    full = scope_take(s, st, full);
    if (s->st != TN_OK) return NULL;
    st = tn_triu(full, 1, &r);
    return scope_take(s, st, r);
}

/* The mask as a bias of the query's dtype; booleans give 0 where true, -inf where false. */
static tn_tensor *mask_bias(tni_scope *s, const tn_view *mask, int32_t dtype) {
    tn_tensor *r = tni_t(mask), *bias = NULL;
    tn_scalar_box zero, low;
    if (s->st != TN_OK) return NULL;
    if (tn_view_dtype(mask) == TN_BOOL) {
        tn_status st = tn_where(r, tn_scalar_box_init(&zero, tn_scalar_float(0.0)),
                                tn_scalar_box_init(&low, tn_scalar_float(-INFINITY)), &bias);
        r = scope_take(s, st, bias);
        bias = NULL;
    }
    return scope_convert(s, r, dtype);
}

/* The dtype that scores are computed in: half precision's as wide as the fused kernel's on the CPU,
 * where narrow products are no faster. */
static int32_t score_dtype(const tn_view *q) {
    int32_t dtype = tn_view_dtype(q);
    bool half = dtype == TN_F16 || dtype == TN_BF16;
    return half && tn_view_device(q) == 0 ? TN_F32 : dtype;
}

static tn_status by_products(const sdpa_args *a, tn_tensor **ret) {
    tni_scope s = {0};
    const tn_view *q = a->query;
    int32_t dtype = score_dtype(q);
    tn_tensor *k = tni_t(a->key), *v = tni_t(a->value), *p = NULL;
    if (a->enable_gqa) {
        k = repeat_heads(&s, k, q->shape[q->ndim - 3]);
        v = repeat_heads(&s, v, q->shape[q->ndim - 3]);
    }
    k = scope_convert(&s, k, dtype);
    v = scope_convert(&s, v, dtype);
    tn_tensor *scaled = scope_mul_number(&s, scope_convert(&s, tni_t(q), dtype), scale_of(a));
    tn_tensor *score = scope_matmul(&s, scaled, scope_transpose(&s, k, -2, -1));
    if (a->is_causal)
        score = scope_add(&s, score, causal_bias(&s, q, dtype, a->key->shape[a->key->ndim - 2]));
    if (a->attn_mask) {
        score = scope_add(&s, score, mask_bias(&s, a->attn_mask, dtype));
        p = scope_softmax_seen(&s, score);
    } else if (s.st == TN_OK) {
        tn_status st = tn_softmax(score, -1, -1, &p);
        p = scope_take(&s, st, p);
    }
    if (a->dropout_p > 0.0 && s.st == TN_OK) {
        tn_tensor *kept = NULL;
        tn_status st = tn_dropout(p, a->dropout_p, 1, &kept);
        p = scope_take(&s, st, kept);
    }
    return scope_finish(&s, scope_convert(&s, scope_matmul(&s, p, v), tn_view_dtype(q)), ret);
}

static bool is_rank4(const sdpa_args *a) {
    const tn_view *q = a->query, *k = a->key, *v = a->value;
    bool fits = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 && q->shape[0] == k->shape[0] &&
                k->shape[0] == v->shape[0] && k->shape[1] == v->shape[1] &&
                q->shape[3] == k->shape[3] && k->shape[2] == v->shape[2] && k->shape[2] > 0 &&
                q->numel > 0 && v->numel > 0;
    if (!fits || q->shape[1] % k->shape[1] != 0) return false;
    return a->enable_gqa || q->shape[1] == k->shape[1];
}

/* Whether the fused kernel takes the mask: nobody wants its gradient, and it broadcasts to the
 * scores. */
static bool is_plain_mask(const sdpa_args *a) {
    const tn_view *m = a->attn_mask;
    if (!m) return true;
    const int64_t shape[4] = {a->query->shape[0], a->query->shape[1], a->query->shape[2],
                              a->key->shape[2]};
    bool fits = m->ndim <= 4 && !((m->word & TN_W_GRAD) && tn_grad_enabled());
    for (int32_t d = 0; d < m->ndim && fits; d++)
        fits = m->shape[d] == 1 || m->shape[d] == shape[4 - m->ndim + d];
    return fits;
}

static bool is_dtype_of_masks(int32_t dtype, int32_t of_query) {
    return dtype == TN_BOOL || dtype == TN_F32 || dtype == of_query;
}

/* The mask with an entry for each score, bool or of the query's dtype. */
static tn_tensor *expand_mask(tni_scope *s, const sdpa_args *a) {
    const tn_view *q = a->query;
    tn_tensor *mask = tni_t(a->attn_mask);
    if (tn_view_dtype(a->attn_mask) != TN_BOOL) mask = mask_bias(s, a->attn_mask, tn_view_dtype(q));
    return scope_expand(s, mask, TN_INTS(q->shape[0], q->shape[1], q->shape[2], a->key->shape[2]));
}

static tn_status by_tiles(const sdpa_args *a, tn_tensor **ret) {
    tni_scope s = {0};
    tn_tensor *mask = a->attn_mask ? expand_mask(&s, a) : NULL, *y = NULL, *lse = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn__flash_attention(tni_t(a->query), tni_t(a->key), tni_t(a->value), mask,
                                           a->is_causal, scale_of(a), &y, &lse);
        y = scope_take(&s, st, y);
        tn_tensor_unref(&lse);
    }
    return scope_finish(&s, y, ret);
}

tn_status tni_composite_scaled_dot_product_attention(const void *args, tn_tensor **rets) {
    const sdpa_args *a = args;
    const tn_view *q = a->query, *k = a->key, *v = a->value;
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2) {
        return tn_fail(TN_E_SHAPE, 0,
                       "scaled_dot_product_attention: Expected query, key, and value to all be at "
                       "least 2 dimensional, but got %d, %d and %d",
                       (int)q->ndim, (int)k->ndim, (int)v->ndim);
    }
    if (tn_view_dtype(q) != tn_view_dtype(k) || tn_view_dtype(q) != tn_view_dtype(v)) {
        return tn_fail(TN_E_DTYPE, 1,
                       "Expected query, key, and value to have the same dtype, but got "
                       "query.dtype: %s key.dtype: %s and value.dtype: %s instead.",
                       tn_dtype_name(tn_view_dtype(q)), tn_dtype_name(tn_view_dtype(k)),
                       tn_dtype_name(tn_view_dtype(v)));
    }
    if (a->attn_mask && !is_dtype_of_masks(tn_view_dtype(a->attn_mask), tn_view_dtype(q)))
        return tn_fail(TN_E_DTYPE, 3,
                       "Expected attn_mask dtype to be bool or float or to match query dtype, but "
                       "got attn_mask.dtype: %s and query.dtype: %s instead.",
                       tn_dtype_name(tn_view_dtype(a->attn_mask)), tn_dtype_name(tn_view_dtype(q)));
    if (a->is_causal && a->attn_mask) {
        return tn_fail(TN_E_STATE, 5,
                       "scaled_dot_product_attention: Explicit attn_mask should not be "
                       "set when is_causal=True");
    }
    if (a->enable_gqa && (q->ndim < 3 || k->ndim < 3 || k->shape[k->ndim - 3] == 0 ||
                          q->shape[q->ndim - 3] % k->shape[k->ndim - 3] != 0)) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Number of heads in key and value must divide the number of "
                       "heads in query");
    }
    bool fused = a->dropout_p <= 0.0 && is_rank4(a) && is_plain_mask(a);
    return fused ? by_tiles(a, &rets[0]) : by_products(a, &rets[0]);
}

/* sum over i and j of x1_i * weight_kij * x2_j, as two products. */
tn_status tni_composite_bilinear(const void *args, tn_tensor **rets) {
    const tn_bilinear_args *a = args;
    const tn_view *x = a->input1, *y = a->input2, *w = a->weight;
    bool fits = w->ndim == 3 && x->ndim >= 1 && x->ndim == y->ndim &&
                x->shape[x->ndim - 1] == w->shape[1] && y->shape[y->ndim - 1] == w->shape[2];
    for (int32_t d = 0; fits && d + 1 < x->ndim; d++) fits = x->shape[d] == y->shape[d];
    if (!fits) {
        return tn_fail(TN_E_SHAPE, 2,
                       "bilinear(): input sizes do not match the weight or each other");
    }
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], rows = 1, ni = w->shape[1], nj = w->shape[2], nk = w->shape[0];
    for (int32_t d = 0; d + 1 < x->ndim; d++) {
        shape[d] = x->shape[d];
        rows *= shape[d];
    }
    shape[x->ndim - 1] = nk;
    tn_tensor *flat = scope_reshape(&s, tni_t(x), TN_INTS(rows, ni));
    tn_tensor *by_i =
        scope_reshape(&s, scope_permute(&s, tni_t(w), TN_INTS(1, 0, 2)), TN_INTS(ni, nk * nj));
    tn_tensor *left = scope_reshape(&s, scope_matmul(&s, flat, by_i), TN_INTS(rows, nk, nj));
    tn_tensor *right = scope_reshape(&s, tni_t(y), TN_INTS(rows, nj, 1));
    tn_tensor *r = scope_reshape(&s, scope_matmul(&s, left, right), tn_ints_of(shape, x->ndim));
    if (a->bias) r = scope_add(&s, r, tni_t(a->bias));
    return scope_finish(&s, r, rets);
}

/* ---- Attention --------------------------------------------------------------------------------*/

/* Heads of a key or value gradient, summed over the query heads that share them. */
static tn_tensor *sum_heads(tni_scope *s, tn_tensor *t, const tn_view *like) {
    const int64_t *n = like->shape;
    if (s->st != TN_OK || tn_tensor_shape(t)[1] == n[1]) return t;
    int64_t share = tn_tensor_shape(t)[1] / n[1];
    tn_tensor *wide = scope_reshape(s, t, TN_INTS(n[0], n[1], share, n[2], n[3]));
    return scope_sum(s, wide, TN_INTS(2), 0);
}

/* The key or value repeated for the query heads that share its heads. */
static tn_tensor *share_heads(tni_scope *s, const tn_view *t, int64_t heads) {
    const int64_t *n = t->shape;
    if (n[1] == heads) return tni_t(t);
    tn_tensor *wide = scope_expand(s, scope_unsqueeze(s, tni_t(t), 2),
                                   TN_INTS(n[0], n[1], heads / n[1], n[2], n[3]));
    return scope_reshape(s, wide, TN_INTS(n[0], heads, n[2], n[3]));
}

/* Scores with the mask of _flash_attention, as softmax takes them. */
static tn_tensor *mask_scores(tni_scope *s, tn_tensor *score, const tn_view *mask) {
    tn_scalar_box low;
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    if (tn_view_dtype(mask) != TN_BOOL) return scope_add(s, score, tni_t(mask));
    tn_status st =
        tn_where(tni_t(mask), score, tn_scalar_box_init(&low, tn_scalar_float(-INFINITY)), &r);
    return scope_take(s, st, r);
}

/* The gradients written with matrix products, for a recorded backward pass. */
static tn_status attention_formula(tn_gctx *c) {
    const tn__flash_attention_args *a = c->args;
    tni_scope s = {0};
    int64_t heads = a->query->shape[1];
    tn_tensor *q = tni_t(a->query), *k = share_heads(&s, a->key, heads), *p = NULL, *ds = NULL;
    tn_tensor *v = share_heads(&s, a->value, heads), *g = c->g[0];
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    tn_tensor *score =
        scope_matmul(&s, scope_mul_number(&s, q, a->scale), scope_transpose(&s, k, -2, -1));
    if (a->is_causal && s.st == TN_OK) {
        tn_tensor *full = NULL, *upper = NULL;
        tn_status st =
            tn_full_like(score, tn_scalar_float(-INFINITY), -1, -1, TN_FORMAT_PRESERVE, &full);
        full = scope_take(&s, st, full);
        if (s.st == TN_OK) {
            st = tn_triu(full, 1, &upper);
            upper = scope_take(&s, st, upper);
        }
        score = scope_add(&s, score, upper);
    }
    if (a->attn_mask) {
        p = scope_softmax_seen(&s, mask_scores(&s, score, a->attn_mask));
    } else if (s.st == TN_OK) {
        tn_status st = tn_softmax(score, -1, -1, &p);
        p = scope_take(&s, st, p);
    }
    tn_tensor *gp = scope_matmul(&s, g, scope_transpose(&s, v, -2, -1));
    if (s.st == TN_OK) {
        tn_status st = tn__softmax_backward(gp, p, -1, &ds);
        ds = scope_take(&s, st, ds);
    }
    ds = scope_mul_number(&s, ds, a->scale);
    tn_tensor *gk = scope_matmul(&s, scope_transpose(&s, ds, -2, -1), q);
    tn_tensor *gv = scope_matmul(&s, scope_transpose(&s, p, -2, -1), g);
    tn_tensor *grads[3] = {scope_matmul(&s, ds, k), sum_heads(&s, gk, a->key),
                           sum_heads(&s, gv, a->value)};
    return scope_give(&s, c, grads, TN_COUNT(grads));
}

tn_status tni_grad__flash_attention(tn_gctx *c) {
    const tn__flash_attention_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    if (tn_grad_enabled()) return attention_formula(c);
    tn_tensor *grads[3] = {NULL};
    TN_TRY(tn__flash_attention_backward(c->g[0], tni_t(a->query), tni_t(a->key), tni_t(a->value),
                                        a->attn_mask ? tni_t(a->attn_mask) : NULL, tni_t(a->y),
                                        tni_t(a->lse), a->is_causal, a->scale, &grads[0], &grads[1],
                                        &grads[2]));
    for (int i = 0; i < 3; i++) {
        if (TN_GNEEDS(c, i)) {
            c->ret[i] = grads[i];
        } else {
            tn_tensor_unref(&grads[i]);
        }
    }
    return TN_OK;
}
