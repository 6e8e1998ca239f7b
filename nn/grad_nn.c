/* grad_nn.c: gradients of norms, convolutions, linear maps, attention and cross entropy.
 *
 * When no graph is recorded they call the fused backward kernels. When one is (create_graph), the
 * same formulas are written with differentiable operators, so that they can be differentiated
 * again; a convolution's gradients are convolutions and need no second form. */
#include <math.h>

#include "scope_priv.h"

tn_status tni_grad_native_layer_norm(tn_gctx *c);
tn_status tni_grad_native_batch_norm(tn_gctx *c);
tn_status tni_grad__conv(tn_gctx *c);
tn_status tni_grad_linear(tn_gctx *c);
tn_status tni_grad__linear_relu(tn_gctx *c);
tn_status tni_grad__linear_gelu(tn_gctx *c);
tn_status tni_grad__linear_gelu_linear(tn_gctx *c);
tn_status tni_grad__conv_backward_input(tn_gctx *c);
tn_status tni_grad__conv_backward_weight(tn_gctx *c);
tn_status tni_grad__flash_attention(tn_gctx *c);
tn_status tni_grad__cross_entropy(tn_gctx *c);
tn_status tni_grad__element_loss(tn_gctx *c);
tn_status tni_grad__rms_norm(tn_gctx *c);

tn_status tni_composite__element_loss_backward(const void *args, tn_tensor **rets);

/* ---- Norms ------------------------------------------------------------------------------------*/

/* Gradients of y = (x - mean) * rstd * w + b, with mean and rstd taken over `dims` of x, or
 * constant when `stats` is off. x, g and the parameters have shapes that broadcast. */
typedef struct norm_parts {
    tn_tensor *x, *g, *weight; /* weight may be NULL */
    tn_tensor *mean, *rstd;    /* used when stats is off */
    tn_ints dims;              /* of the statistics */
    bool stats;
    double eps;
} norm_parts;

typedef struct norm_grads {
    tn_tensor *x, *weight; /* owned by the scope; weight not yet summed */
} norm_grads;

static norm_grads norm_formula(tni_scope *s, const norm_parts *p) {
    tn_tensor *mean = p->mean, *rstd = p->rstd;
    if (p->stats) mean = scope_mean(s, p->x, p->dims, 1);
    tn_tensor *centred = scope_sub(s, p->x, mean);
    if (p->stats) {
        tn_tensor *var = scope_mean(s, scope_square(s, centred), p->dims, 1);
        rstd = scope_rsqrt(s, scope_add_number(s, var, p->eps));
    }
    tn_tensor *xhat = scope_mul(s, centred, rstd);
    tn_tensor *gw = p->weight ? scope_mul(s, p->g, p->weight) : p->g;
    norm_grads r = {NULL, scope_mul(s, p->g, xhat)};
    if (p->stats) {
        tn_tensor *dot = scope_mean(s, scope_mul(s, gw, xhat), p->dims, 1);
        gw = scope_sub(s, gw, scope_mean(s, gw, p->dims, 1));
        gw = scope_sub(s, gw, scope_mul(s, xhat, dot));
    }
    r.x = scope_mul(s, gw, rstd);
    return r;
}

/* Hands out those of n gradients that are wanted, in the order of the inputs. */
static tn_status give_all(tni_scope *s, tn_gctx *c, tn_tensor *const *grads, int n) {
    for (int i = 0; i < n && s->st == TN_OK; i++) {
        if (TN_GNEEDS(c, i)) c->ret[i] = tn_tensor_ref(grads[i]);
    }
    return scope_finish(s, NULL, NULL);
}

/* Of input, weight and bias. */
static tn_status give(tni_scope *s, tn_gctx *c, tn_tensor *const *grads) {
    return give_all(s, c, grads, 3);
}

tn_status tni_grad_native_layer_norm(tn_gctx *c) {
    const tn_native_layer_norm_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    if (!tn_grad_enabled()) {
        tn_tensor *grads[3] = {NULL};
        TN_TRY(tn__layer_norm_backward(c->g[0], tni_t(a->input), a->normalized_shape,
                                       tni_t(a->mean), tni_t(a->rstd), tni_t(a->weight),
                                       TN_GNEEDS(c, 0), TN_GNEEDS(c, 1), TN_GNEEDS(c, 2), &grads[0],
                                       &grads[1], &grads[2]));
        for (int i = 0; i < 3; i++) c->ret[i] = grads[i];
        return TN_OK;
    }
    tni_scope s = {0};
    int64_t dims[TN_MAX_DIMS], lead[TN_MAX_DIMS], n = a->normalized_shape.n;
    int64_t nlead = a->input->ndim - n;
    for (int64_t i = 0; i < n; i++) dims[i] = nlead + i;
    for (int64_t i = 0; i < nlead; i++) lead[i] = i;
    norm_parts p = {
        tni_t(a->input), c->g[0], tni_t(a->weight), NULL, NULL, tn_ints_of(dims, n), true, a->eps};
    norm_grads r = norm_formula(&s, &p);
    tn_tensor *grads[3] = {r.x, r.weight, c->g[0]};
    if (nlead > 0) {
        grads[1] = scope_sum(&s, grads[1], tn_ints_of(lead, nlead), 0);
        grads[2] = scope_sum(&s, grads[2], tn_ints_of(lead, nlead), 0);
    }
    return give(&s, c, grads);
}

tn_status tni_grad__rms_norm(tn_gctx *c) {
    const tn__rms_norm_args *a = c->args;
    tn_tensor *x = tni_t(a->input), *rstd = tni_t(a->rstd);
    if (!tn_grad_enabled())
        return tn__rms_norm_backward(c->g[0], x, a->normalized_shape, rstd, tni_t(a->weight),
                                     TN_GNEEDS(c, 0), TN_GNEEDS(c, 1), &c->ret[0], &c->ret[1]);
    tni_scope s = {0};
    int64_t dims[TN_MAX_DIMS], n = a->normalized_shape.n, nlead = a->input->ndim - n;
    for (int32_t d = 0; d < a->input->ndim; d++) dims[d] = d;
    tn_ints inner = tn_ints_of(dims + nlead, n), lead = tn_ints_of(dims, nlead);
    tn_tensor *square = scope_mean(&s, scope_square(&s, x), inner, 1);
    rstd = scope_rsqrt(&s, scope_add_number(&s, square, a->eps));
    tn_tensor *hat = scope_mul(&s, x, rstd), *g = c->g[0];
    tn_tensor *by_weight = scope_mul(&s, g, hat);
    if (nlead > 0) by_weight = scope_sum(&s, by_weight, lead, 0);
    if (a->weight) g = scope_mul(&s, g, tni_t(a->weight));
    tn_tensor *along = scope_mean(&s, scope_mul(&s, g, hat), inner, 1);
    tn_tensor *gx = scope_mul(&s, scope_sub(&s, g, scope_mul(&s, hat, along)), rstd);
    tn_tensor *grads[3] = {gx, by_weight, NULL};
    return give(&s, c, grads);
}

/* A vector over channels, shaped to multiply (n, c, ...). */
static tn_tensor *by_channel(tni_scope *s, const tn_view *p, int32_t ndim) {
    int64_t shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < ndim; d++) shape[d] = d == 1 ? p->numel : 1;
    return scope_reshape(s, tni_t(p), tn_ints_of(shape, ndim));
}

tn_status tni_grad_native_batch_norm(tn_gctx *c) {
    const tn_native_batch_norm_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    if (!tn_grad_enabled()) {
        tn_tensor *grads[3] = {NULL};
        TN_TRY(tn__batch_norm_backward(c->g[0], tni_t(a->input), tni_t(a->weight),
                                       tni_t(a->save_mean), tni_t(a->save_invstd), a->training,
                                       TN_GNEEDS(c, 0), TN_GNEEDS(c, 1), TN_GNEEDS(c, 2), &grads[0],
                                       &grads[1], &grads[2]));
        for (int i = 0; i < 3; i++) c->ret[i] = grads[i];
        return TN_OK;
    }
    tni_scope s = {0};
    int64_t dims[TN_MAX_DIMS];
    int32_t n = 0, ndim = a->input->ndim;
    for (int32_t d = 0; d < ndim; d++) {
        if (d != 1) dims[n++] = d;
    }
    tn_ints over = tn_ints_of(dims, n);
    norm_parts p = {
        .x = tni_t(a->input), .g = c->g[0], .dims = over, .stats = a->training != 0, .eps = a->eps};
    if (a->weight) p.weight = by_channel(&s, a->weight, ndim);
    if (!p.stats) {
        p.mean = by_channel(&s, a->save_mean, ndim);
        p.rstd = by_channel(&s, a->save_invstd, ndim);
    }
    norm_grads r = norm_formula(&s, &p);
    tn_tensor *grads[3] = {r.x, scope_sum(&s, r.weight, over, 0), scope_sum(&s, c->g[0], over, 0)};
    return give(&s, c, grads);
}

/* ---- Convolution -------------------------------------------------------------------------------
 * For complex numbers each gradient takes the conjugate of the other factor. */

/* The sum over all but the channel dimension: the gradient of a bias. */
static tn_tensor *bias_sum(tni_scope *s, tn_tensor *g) {
    int64_t dims[TN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t d = 0; d < tn_tensor_ndim(g); d++) {
        if (d != 1) dims[n++] = d;
    }
    return scope_sum(s, g, tn_ints_of(dims, n), 0);
}

tn_status tni_grad__conv(tn_gctx *c) {
    const tn__conv_args *a = c->args;
    tni_scope s = {0};
    tn_tensor *g = c->g[0], *grads[3] = {NULL};
    if (TN_GNEEDS(c, 0)) {
        tn_tensor *w = scope_unary(&s, tn_conj, tni_t(a->weight));
        if (s.st == TN_OK) {
            tn_status st =
                tn__conv_backward_input(g, w, NULL, tni_shape_ints(tni_t(a->input)), a->stride,
                                        a->padding, a->dilation, a->groups, &grads[0]);
            grads[0] = scope_take(&s, st, grads[0]);
        }
    }
    if (TN_GNEEDS(c, 1)) {
        tn_tensor *x = scope_unary(&s, tn_conj, tni_t(a->input));
        if (s.st == TN_OK) {
            tn_status st =
                tn__conv_backward_weight(g, x, tni_shape_ints(tni_t(a->weight)), a->stride,
                                         a->padding, a->dilation, a->groups, &grads[1]);
            grads[1] = scope_take(&s, st, grads[1]);
        }
    }
    if (TN_GNEEDS(c, 2)) grads[2] = bias_sum(&s, g);
    return give(&s, c, grads);
}

/* y = the input gradient of a convolution (or a transposed convolution), inputs grad, weight,
 * bias */
tn_status tni_grad__conv_backward_input(tn_gctx *c) {
    const tn__conv_backward_input_args *a = c->args;
    tni_scope s = {0};
    tn_tensor *g = c->g[0], *grads[3] = {NULL};
    if (TN_GNEEDS(c, 0)) {
        tn_tensor *w = scope_unary(&s, tn_conj, tni_t(a->weight));
        if (s.st == TN_OK) {
            tn_status st =
                tn__conv(g, w, NULL, a->stride, a->padding, a->dilation, a->groups, &grads[0]);
            grads[0] = scope_take(&s, st, grads[0]);
        }
    }
    if (TN_GNEEDS(c, 1)) {
        tn_tensor *from = scope_unary(&s, tn_conj, tni_t(a->grad));
        if (s.st == TN_OK) {
            tn_status st =
                tn__conv_backward_weight(from, g, tni_shape_ints(tni_t(a->weight)), a->stride,
                                         a->padding, a->dilation, a->groups, &grads[1]);
            grads[1] = scope_take(&s, st, grads[1]);
        }
    }
    if (TN_GNEEDS(c, 2)) grads[2] = bias_sum(&s, g);
    return give(&s, c, grads);
}

/* y = the weight gradient of a convolution, inputs grad, input */
tn_status tni_grad__conv_backward_weight(tn_gctx *c) {
    const tn__conv_backward_weight_args *a = c->args;
    tni_scope s = {0};
    tn_tensor *g = c->g[0], *grads[3] = {NULL};
    if (TN_GNEEDS(c, 0)) {
        tn_tensor *x = scope_unary(&s, tn_conj, tni_t(a->input));
        if (s.st == TN_OK) {
            tn_status st =
                tn__conv(x, g, NULL, a->stride, a->padding, a->dilation, a->groups, &grads[0]);
            grads[0] = scope_take(&s, st, grads[0]);
        }
    }
    if (TN_GNEEDS(c, 1)) {
        tn_tensor *from = scope_unary(&s, tn_conj, tni_t(a->grad));
        if (s.st == TN_OK) {
            tn_status st =
                tn__conv_backward_input(from, g, NULL, tni_shape_ints(tni_t(a->input)), a->stride,
                                        a->padding, a->dilation, a->groups, &grads[1]);
            grads[1] = scope_take(&s, st, grads[1]);
        }
    }
    return give(&s, c, grads);
}

/* ---- Linear maps ------------------------------------------------------------------------------*/

/* y = x w^T + b: gw = g^T conj(x), gb = g, which the engine sums. Where both are wanted of a device
 * that may take them in one step, it is asked for that. */
static void weight_grads(tni_scope *s, tn_tensor *g, tn_tensor *x, bool weight, bool bias,
                         tn_tensor **ret_weight, tn_tensor **ret_bias) {
    *ret_bias = g;
    if (s->st != TN_OK || !weight) return;
    const tn_view *v = &g->v;
    bool real = tn_view_dtype(v) <= TN_F64;
    if (bias && real && tn_view_device(v) != 0 && !tn_grad_enabled()) {
        tn_tensor *gw = NULL, *gb = NULL;
        tn_status st = tn__linear_backward_weight(g, x, &gw, &gb);
        *ret_weight = scope_take(s, st, gw);
        if (st == TN_OK) *ret_bias = scope_take(s, st, gb);
        return;
    }
    tn_tensor *rows = scope_rows(s, scope_unary(s, tn_conj, x));
    *ret_weight = scope_binary(s, tn_mm, scope_transpose(s, scope_rows(s, g), 0, 1), rows);
}

/* The gradients of linear(x, w, b) for what comes to it. */
static tn_status linear_grads(tni_scope *s, tn_gctx *c, tn_tensor *g, const tn_view *x,
                              const tn_view *w) {
    tn_tensor *grads[3] = {NULL, NULL, NULL};
    if (TN_GNEEDS(c, 0)) grads[0] = scope_matmul(s, g, scope_unary(s, tn_conj, tni_t(w)));
    weight_grads(s, g, tni_t(x), TN_GNEEDS(c, 1), TN_GNEEDS(c, 2), &grads[1], &grads[2]);
    return give(s, c, grads);
}

tn_status tni_grad_linear(tn_gctx *c) {
    const tn_linear_args *a = c->args;
    tni_scope s = {0};
    return linear_grads(&s, c, c->g[0], a->input, a->weight);
}

tn_status tni_grad__linear_relu(tn_gctx *c) {
    const tn__linear_relu_args *a = c->args;
    tni_scope s = {0};
    tn_tensor *g = scope_binary(&s, tn__relu_backward, c->g[0], tni_t(a->out));
    return linear_grads(&s, c, g, a->input, a->weight);
}

/* What gelu was taken of: as it was kept, or computed again where it was not and where the way to it
 * is to be differentiated. */
static tn_tensor *before_gelu(tni_scope *s, const tn_view *kept, const tn_view *x, const tn_view *w,
                              const tn_view *bias) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || (kept && !tn_grad_enabled())) return tni_t(kept);
    tn_status st = tn_linear(tni_t(x), tni_t(w), tni_t(bias), &r);
    return scope_take(s, st, r);
}

tn_status tni_grad__linear_gelu(tn_gctx *c) {
    const tn__linear_gelu_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    tni_scope s = {0};
    tn_tensor *pre = before_gelu(&s, a->pre, a->input, a->weight, a->bias);
    tn_tensor *g = scope_binary(&s, tn__gelu_tanh_backward, c->g[0], pre);
    return linear_grads(&s, c, g, a->input, a->weight);
}

/* What comes to the first map, and its sum over the rows. */
static tn_tensor *through_gelu(tni_scope *s, tn_tensor *g, const tn_view *next_weight,
                               tn_tensor *pre, tn_tensor **ret_bias) {
    tn_tensor *gp = NULL, *gb = NULL;
    if (s->st != TN_OK) return NULL;
    if (tn_grad_enabled()) {
        tn_tensor *gh = scope_matmul(s, g, tni_t(next_weight));
        return *ret_bias = scope_binary(s, tn__gelu_tanh_backward, gh, pre);
    }
    tn_status st = tn__linear_gelu_backward(g, tni_t(next_weight), pre, &gp, &gb);
    gp = scope_take(s, st, gp);
    if (st == TN_OK) *ret_bias = scope_take(s, st, gb);
    return gp;
}

tn_status tni_grad__linear_gelu_linear(tn_gctx *c) {
    const tn__linear_gelu_linear_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    tni_scope s = {0};
    tn_tensor *g = c->g[0], *x = tni_t(a->input), *hidden = tni_t(a->hidden), *unused;
    tn_tensor *grads[5] = {NULL};
    tn_tensor *pre = before_gelu(&s, a->pre, a->input, a->weight1, a->bias1);
    if (tn_grad_enabled()) hidden = scope_unary(&s, tn__gelu_tanh, pre);
    weight_grads(&s, g, hidden, TN_GNEEDS(c, 3), TN_GNEEDS(c, 4), &grads[3], &grads[4]);
    if (TN_GNEEDS(c, 0) || TN_GNEEDS(c, 1) || TN_GNEEDS(c, 2)) {
        tn_tensor *gp = through_gelu(&s, g, a->weight2, pre, &grads[2]);
        if (TN_GNEEDS(c, 0)) grads[0] = scope_matmul(&s, gp, tni_t(a->weight1));
        weight_grads(&s, gp, x, TN_GNEEDS(c, 1), false, &grads[1], &unused);
    }
    return give_all(&s, c, grads, 5);
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
    return give(&s, c, grads);
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

/* ---- Cross entropy ----------------------------------------------------------------------------*/

tn_status tni_grad__cross_entropy(tn_gctx *c) {
    const tn__cross_entropy_args *a = c->args;
    if (!TN_GNEEDS(c, 0)) return TN_OK;
    tn_tensor *x = tni_t(a->input), *target = tni_t(a->target), *g = c->g[0];
    if (!tn_grad_enabled()) {
        return tn__cross_entropy_backward(g, x, target, tni_t(a->lse), tni_t(a->count),
                                          a->reduction, a->ignore_index, &c->ret[0]);
    }
    tni_scope s = {0};
    tn_tensor *logp = NULL, *total = NULL, *gx = NULL, *r = NULL;
    int64_t axis = a->input->ndim == 1 ? 0 : 1;
    tn_status st = tn_log_softmax(x, axis, -1, &logp);
    logp = scope_take(&s, st, logp);
    if (s.st == TN_OK) {
        st = tn__to_copy(tni_t(a->count), tn_tensor_dtype(g), -1, 0, TN_FORMAT_PRESERVE, &total);
        total = scope_take(&s, st, total);
    }
    if (s.st == TN_OK) {
        st = tn__nll_loss_backward(g, target, NULL, total, tni_shape_ints(x), a->reduction,
                                   a->ignore_index, &gx);
        gx = scope_take(&s, st, gx);
    }
    if (s.st == TN_OK) {
        st = tn__log_softmax_backward(gx, logp, axis, &r);
        r = scope_take(&s, st, r);
    }
    return scope_finish(&s, r, &c->ret[0]);
}

/* The losses that call it see to it that nothing but the input wants a gradient. */
tn_status tni_grad__element_loss(tn_gctx *c) {
    const tn__element_loss_args *a = c->args;
    if (!TN_GNEEDS(c, 0)) return TN_OK;
    if (!tn_grad_enabled())
        return tn__element_loss_backward(c->g[0], tni_t(a->input), tni_t(a->target),
                                         tni_t(a->weight), tni_t(a->pos_weight), a->how, a->number,
                                         a->divisor, &c->ret[0]);
    tn__element_loss_backward_args b = {.grad = tni_v(c->g[0]),
                                        .input = a->input,
                                        .target = a->target,
                                        .weight = a->weight,
                                        .pos_weight = a->pos_weight,
                                        .how = a->how,
                                        .number = a->number,
                                        .divisor = a->divisor};
    return tni_composite__element_loss_backward(&b, &c->ret[0]);
}
