/* linear.c: linear maps, also such that end in an activation: shape rules, gradients, and the same out
 * of simpler operators, for devices that do not take them in one step. */
#include <math.h>

#include <tenon/args_linalg.h>
#include <tenon/args_nn.h>
#include <tenon/ops_activation.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_nn.h>

#include "nn_priv.h"
#include "rule_priv.h"
#include "op_linalg.h"
#include "op_nn.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

static tn_status infer_linear(tn_infer *inf, const tn_view *x, const tn_view *w,
                              const tn_view *bias) {
    if (x->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "both arguments to linear need to be at least 1D");
    if (w->ndim != 2) {
        return tn_fail(TN_E_SHAPE, 1, "weight must be a matrix, got %d-D tensor", (int)w->ndim);
    }
    if (bias) TN_TRY(rule_same_factors(x, w));
    int64_t k = x->shape[x->ndim - 1];
    if (k != w->shape[1]) {
        int64_t rows = 1;
        for (int32_t d = 0; d + 1 < x->ndim; d++) rows *= x->shape[d];
        return tn_fail(
            TN_E_SHAPE, 1, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
            (long long)rows, (long long)k, (long long)w->shape[1], (long long)w->shape[0]);
    }
    TN_TRY(rule_same_dtype(x, w));
    int64_t shape[TN_MAX_DIMS];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    shape[x->ndim - 1] = w->shape[0];
    TN_TRY(tni_infer_set(inf, 0, x->ndim, shape));
    if (bias) {
        TN_TRY(rule_same_dtype(bias, w));
        TN_TRY(rule_expandable(bias, x->ndim, shape));
        if (bias->ndim != 1) return TN_DECLINE; /* kernels add vectors: matmul and add serve it */
    }
    return TN_OK;
}

tn_status tni_infer_linear(tn_infer *inf, const void *args) {
    const tn_linear_args *a = args;
    return infer_linear(inf, a->input, a->weight, a->bias);
}

tn_status tni_infer__linear_relu(tn_infer *inf, const void *args) {
    const tn__linear_relu_args *a = args;
    return infer_linear(inf, a->input, a->weight, a->bias);
}

tn_status tni_infer__linear_gelu(tn_infer *inf, const void *args) {
    const tn__linear_gelu_args *a = args;
    TN_TRY(infer_linear(inf, a->input, a->weight, a->bias));
    if (a->keep) return tni_infer_set(inf, 1, inf->out[0].ndim, inf->out[0].shape);
    tni_infer_absent(inf, 1);
    return TN_OK;
}

/* `t` has the leading dimensions of `like` and then one of size n. */
static tn_status expect_rows(const tn_infer *inf, int32_t arg, const tn_view *t,
                             const tn_view *like, int64_t n) {
    int64_t shape[TN_MAX_DIMS];
    if (like->ndim == 0) return tn_fail(TN_E_SHAPE, arg, "expected at least one dimension");
    memcpy(shape, like->shape, (size_t)like->ndim * sizeof *shape);
    shape[like->ndim - 1] = n;
    return tni_infer_expect(inf, arg, t, like->ndim, shape, inf->compute);
}

tn_status tni_infer__linear_gelu_backward(tn_infer *inf, const void *args) {
    const tn__linear_gelu_backward_args *a = args;
    const tn_view *w = a->next_weight;
    if (w->ndim != 2)
        return tn_fail(TN_E_SHAPE, 1, "weight must be a matrix, got %d-D tensor", (int)w->ndim);
    TN_TRY(rule_same_dtype(a->grad, w));
    TN_TRY(expect_rows(inf, 0, a->grad, a->pre, w->shape[0]));
    TN_TRY(expect_rows(inf, 2, a->pre, a->grad, w->shape[1]));
    TN_TRY(tni_infer_set(inf, 0, a->pre->ndim, a->pre->shape));
    return tni_infer_set(inf, 1, 1, &w->shape[1]);
}

tn_status tni_infer__linear_backward_weight(tn_infer *inf, const void *args) {
    const tn__linear_backward_weight_args *a = args;
    const tn_view *g = a->grad, *x = a->input;
    int32_t last = g->ndim - 1;
    TN_TRY(expect_rows(inf, 1, x, g, x->ndim > 0 ? x->shape[x->ndim - 1] : 1));
    int64_t shape[2] = {g->shape[last], x->shape[last]};
    TN_TRY(tni_infer_set(inf, 0, 2, shape));
    return tni_infer_set(inf, 1, 1, shape);
}

static tn_tensor *linear(tni_scope *s, tn_tensor *x, const tn_view *w, const tn_view *bias) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_linear(x, tni_t(w), tni_t(bias), &r);
    return scope_take(s, st, r);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

tn_status tni_composite__linear_relu(const void *args, tn_tensor **rets) {
    const tn__linear_relu_args *a = args;
    tni_scope s = {0};
    tn_tensor *y = linear(&s, tni_t(a->input), a->weight, a->bias);
    return scope_finish(&s, scope_unary(&s, tn_relu, y), rets);
}

tn_status tni_composite__linear_gelu(const void *args, tn_tensor **rets) {
    const tn__linear_gelu_args *a = args;
    tni_scope s = {0};
    tn_tensor *pre = linear(&s, tni_t(a->input), a->weight, a->bias);
    tn_tensor *y = scope_unary(&s, tn__gelu_tanh, pre);
    if (a->keep && s.st == TN_OK) rets[1] = tn_tensor_ref(pre);
    return scope_finish(&s, y, rets);
}

tn_status tni_composite__linear_gelu_linear(const void *args, tn_tensor **rets) {
    const tn__linear_gelu_linear_args *a = args;
    tni_scope s = {0};
    tn_tensor *hidden = NULL, *pre = NULL;
    tn_status st =
        tn__linear_gelu(tni_t(a->input), tni_t(a->weight1), tni_t(a->bias1), 1, &hidden, &pre);
    hidden = scope_take(&s, st, hidden);
    pre = scope_take(&s, st, pre);
    tn_tensor *y = linear(&s, hidden, a->weight2, a->bias2);
    if (s.st == TN_OK) {
        rets[1] = tn_tensor_ref(hidden);
        rets[2] = tn_tensor_ref(pre);
    }
    return scope_finish(&s, y, rets);
}

static bool is_one(tn_scalar s) { return s.re == 1 && s.im == 0; }

/* Whether it is linear() of mat1 with an activation for which the device has a kernel. */
static bool is_linear(const tn__addmm_activation_args *a) {
    const tn_view *x = a->mat1, *w = a->mat2, *bias = a->input;
    const tn_op *op = a->use_gelu ? &tni_op__linear_gelu : &tni_op__linear_relu;
    return is_one(a->alpha) && is_one(a->beta) && w->ndim == 2 && x->ndim == 2 && bias->ndim == 1 &&
           bias->shape[0] == w->shape[1] &&
           tni_kernel_find(op, tn_view_device(x), tn_view_dtype(x));
}

/* PyTorch's gelu is the exact one here on the CPU and the approximation on CUDA, where the libraries
 * have no other. */
static const char *approximation_on(const tn_view *x) {
    const int32_t dlpack_cuda = 2;
    return x->dl_device == dlpack_cuda ? "tanh" : "none";
}

tn_status tni_composite__addmm_activation(const void *args, tn_tensor **rets) {
    const tn__addmm_activation_args *a = args;
    tni_scope s = {0};
    tn_tensor *bias = tni_t(a->input), *x = tni_t(a->mat1), *y = NULL, *r = NULL, *pre = NULL;
    const char *how = approximation_on(a->mat1);
    if (is_linear(a) && (!a->use_gelu || strcmp(how, "tanh") == 0)) {
        tn_tensor *w = scope_transpose(&s, tni_t(a->mat2), 0, 1);
        bool keep = tn_grad_enabled() && ((bias->v.word | x->v.word | a->mat2->word) & TN_W_GRAD);
        if (s.st == TN_OK)
            s.st = a->use_gelu ? tn__linear_gelu(x, w, bias, keep, &r, &pre)
                               : tn__linear_relu(x, w, bias, &r);
        tn_tensor_unref(&pre);
    } else {
        s.st = tn_addmm(bias, x, tni_t(a->mat2), a->beta, a->alpha, &y);
        y = scope_take(&s, s.st, y);
        if (s.st == TN_OK) s.st = a->use_gelu ? tn_gelu(y, how, &r) : tn_relu(y, &r);
    }
    r = scope_take(&s, s.st, r);
    return scope_finish(&s, r, rets);
}

/* ---- Gradients ---------------------------------------------------------------------------------*/

static tn_tensor *sum_rows(tni_scope *s, tn_tensor *t) {
    return scope_sum(s, scope_rows(s, t), TN_INTS(0), 0);
}

tn_status tni_composite__linear_gelu_backward(const void *args, tn_tensor **rets) {
    const tn__linear_gelu_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *gh = scope_matmul(&s, tni_t(a->grad), tni_t(a->next_weight));
    tn_tensor *g = scope_binary(&s, tn__gelu_tanh_backward, gh, tni_t(a->pre));
    tn_tensor *bias = sum_rows(&s, g);
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(bias);
    return scope_finish(&s, g, rets);
}

tn_status tni_composite__linear_backward_weight(const void *args, tn_tensor **rets) {
    const tn__linear_backward_weight_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = scope_transpose(&s, scope_rows(&s, tni_t(a->grad)), 0, 1);
    tn_tensor *weight = scope_binary(&s, tn_mm, g, scope_rows(&s, tni_t(a->input)));
    tn_tensor *bias = sum_rows(&s, tni_t(a->grad));
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(bias);
    return scope_finish(&s, weight, rets);
}

/* ---- Out of simpler operators -----------------------------------------------------------------*/

tn_status tni_composite_linear(const void *args, tn_tensor **rets) {
    const tn_linear_args *a = args;
    tni_scope s = {0};
    tn_tensor *t = scope_transpose(&s, tni_t(a->weight), 0, 1);
    tn_tensor *y = scope_matmul(&s, tni_t(a->input), t);
    if (a->bias) y = scope_add(&s, y, tni_t(a->bias));
    return scope_finish(&s, y, rets);
}

/* ---- Gradients of linear maps -----------------------------------------------------------------*/

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
    return scope_give(s, c, grads, TN_COUNT(grads));
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
    if (kept && !tn_grad_enabled()) return tni_t(kept);
    return SCOPE(s, tn_linear(tni_t(x), tni_t(w), tni_t(bias), scope_slot(s)));
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
    return scope_give(&s, c, grads, TN_COUNT(grads));
}
