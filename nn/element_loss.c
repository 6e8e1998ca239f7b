/* element_loss.c: losses that compare element by element, summed up or averaged.
 *
 * A device may have a kernel for the whole, `_element_loss`; elsewhere, and where more than the input, or than
 * the two that are subtracted, wants a gradient, a loss is made of its parts. */
#include <math.h>

#include <tenon/args_loss.h>
#include <tenon/ops_activation.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_loss.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>

#include "call_priv.h"
#include "nn_priv.h"
#include "op_loss.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

tn_status tni_infer__element_loss(tn_infer *inf, const void *args) {
    const tn__element_loss_args *a = args;
    const tn_view *x = a->input, *others[] = {a->target, a->weight, a->pos_weight};
    for (int i = 0; i < TN_COUNT(others); i++)
        if (others[i])
            TN_TRY(tni_infer_expect(inf, 1 + i, others[i], x->ndim, x->shape, tn_view_dtype(x)));
    return tni_infer_set(inf, 0, 0, x->shape);
}

tn_status tni_infer__element_loss_backward(tn_infer *inf, const void *args) {
    const tn__element_loss_backward_args *a = args;
    const tn_view *x = a->input, *others[] = {a->target, a->weight, a->pos_weight};
    TN_TRY(tni_infer_expect(inf, 0, a->grad, 0, x->shape, tn_view_dtype(x)));
    for (int i = 0; i < TN_COUNT(others); i++)
        if (others[i])
            TN_TRY(tni_infer_expect(inf, 2 + i, others[i], x->ndim, x->shape, tn_view_dtype(x)));
    return tni_infer_set(inf, 0, x->ndim, x->shape);
}

/* ---- The kernel, or the parts ------------------------------------------------------------------*/

/* How a loss compares; `number` is beta or delta. */
typedef struct comparison {
    int64_t how; /* TN_ELEMENT_LOSS_* */
    double number;
    const tn_view *x, *target, *weight, *pos_weight; /* the last two may be NULL */
} comparison;

static tn_tensor *number_of(tn_scalar_box *box, double number) {
    return tn_scalar_box_init(box, tn_scalar_float(number));
}

static tn_tensor *one_minus(tni_scope *s, tn_tensor *x) {
    return scope_add_number(s, scope_neg(s, x), 1.0);
}

static tn_tensor *below(tni_scope *s, tn_tensor *x, double number) {
    tn_scalar_box box;
    return scope_binary(s, tn_lt, x, number_of(&box, number));
}

static tn_tensor *clamp(tni_scope *s, tn_tensor *x, double most) {
    tn_scalar_box box;
    x = scope_binary(s, tn_minimum, x, number_of(&box, most));
    return scope_binary(s, tn_maximum, x, number_of(&box, -most));
}

/* The squared distance below `bound`, from where it goes on as a line, each times a factor. What is
 * squared is finite there, so that an infinite distance has the line's slope. */
static tn_tensor *rounded(tni_scope *s, tn_tensor *d, double bound, double of_square,
                          double of_line) {
    tn_tensor *far = scope_unary(s, tn_abs, d);
    tn_tensor *curve = scope_mul_number(s, scope_square(s, clamp(s, d, bound)), of_square);
    tn_tensor *line = scope_add_number(s, far, -0.5 * bound);
    if (of_line != 1.0) line = scope_mul_number(s, line, of_line);
    return scope_where(s, below(s, far, bound), curve, line);
}

/* How much more positive elements count. */
static tn_tensor *pos_factor(tni_scope *s, const comparison *c) {
    tn_tensor *more = scope_add_number(s, tni_t(c->pos_weight), -1.0);
    return scope_add_number(s, scope_mul(s, more, tni_t(c->target)), 1.0);
}

static tn_tensor *probability_terms(tni_scope *s, const comparison *c) {
    tn_tensor *r = NULL;
    tn_status st = tn__binary_cross_entropy(tni_t(c->x), tni_t(c->target), &r);
    return scope_take(s, st, r);
}

static tn_tensor *logit_terms(tni_scope *s, const comparison *c) {
    tn_tensor *r = NULL;
    tn_status st = tn__logits_entropy(tni_t(c->x), tni_t(c->target), tni_t(c->pos_weight), &r);
    return scope_take(s, st, r);
}

static tn_tensor *divergences(tni_scope *s, const comparison *c) {
    tn_scalar_box none;
    tn_tensor *t = tni_t(c->target), *own = scope_mul(s, t, scope_log(s, t)), *is_none = NULL;
    if (s->st == TN_OK) {
        tn_status st = tn_eq(t, number_of(&none, 0.0), &is_none);
        is_none = scope_take(s, st, is_none);
    }
    own = scope_where(s, is_none, number_of(&none, 0.0), own);
    return scope_sub(s, own, scope_mul(s, t, tni_t(c->x)));
}

/* A single number's dtype counts as that of many: over the other's shape. */
static tn_tensor *operand(tni_scope *s, const tn_view *x, const tn_view *other) {
    bool single = x->ndim == 0 && other->ndim > 0 && tn_view_dtype(x) != tn_view_dtype(other);
    return single ? scope_expand(s, tni_t(x), tn_ints_of(other->shape, other->ndim)) : tni_t(x);
}

/* A truth beside a number is 0 or 1, though operators do not subtract truths. */
static tn_tensor *number(tni_scope *s, const tn_view *x, const tn_view *other) {
    bool truth = tn_view_dtype(x) == TN_BOOL && tn_view_dtype(other) != TN_BOOL;
    return truth ? scope_convert(s, tni_t(x), tn_view_dtype(other)) : operand(s, x, other);
}

/* The losses of all elements, weighted but for `weight`. */
static tn_tensor *terms(tni_scope *s, const comparison *c) {
    tn_tensor *x = tni_t(c->x), *t = tni_t(c->target);
    bool absolute = c->how == TN_ELEMENT_LOSS_ABSOLUTE;
    if (c->how == TN_ELEMENT_LOSS_SQUARE || c->how == TN_ELEMENT_LOSS_SMOOTH ||
        c->how == TN_ELEMENT_LOSS_HUBER || absolute) {
        x = absolute ? operand(s, c->x, c->target) : number(s, c->x, c->target);
        t = absolute ? operand(s, c->target, c->x) : number(s, c->target, c->x);
    }
    switch (c->how) {
    case TN_ELEMENT_LOSS_SQUARE: return scope_square(s, scope_sub(s, x, t));
    case TN_ELEMENT_LOSS_ABSOLUTE: return scope_unary(s, tn_abs, scope_sub(s, x, t));
    case TN_ELEMENT_LOSS_SMOOTH:
        return rounded(s, scope_sub(s, x, t), c->number, 0.5 / c->number, 1.0);
    case TN_ELEMENT_LOSS_HUBER: return rounded(s, scope_sub(s, x, t), c->number, 0.5, c->number);
    case TN_ELEMENT_LOSS_ENTROPY: return probability_terms(s, c);
    case TN_ELEMENT_LOSS_LOGITS: return logit_terms(s, c);
    case TN_ELEMENT_LOSS_DIVERGENCE: return divergences(s, c);
    default: return scope_mul(s, scope_exp(s, t), scope_sub(s, t, x));
    }
}

static tn_tensor *probability_slope(tni_scope *s, const comparison *c) {
    tn_scalar_box box;
    tn_tensor *x = tni_t(c->x), *under = scope_mul(s, one_minus(s, x), x);
    under = scope_binary(s, tn_maximum, under, number_of(&box, 1e-12));
    return scope_true_divide(s, scope_sub(s, x, tni_t(c->target)), under);
}

/* (1 - t) - factor * sigmoid(-x) */
static tn_tensor *logit_slope(tni_scope *s, const comparison *c) {
    tn_tensor *x = tni_t(c->x), *t = tni_t(c->target);
    if (!c->pos_weight) return scope_sub(s, scope_unary(s, tn_sigmoid, x), t);
    tn_tensor *rest = scope_unary(s, tn_sigmoid, scope_neg(s, x));
    return scope_sub(s, one_minus(s, t), scope_mul(s, pos_factor(s, c), rest));
}

/* The derivatives of terms() in the direction of the input. */
static tn_tensor *slopes(tni_scope *s, const comparison *c) {
    tn_tensor *x = tni_t(c->x), *t = tni_t(c->target);
    switch (c->how) {
    case TN_ELEMENT_LOSS_SQUARE: return scope_mul_number(s, scope_sub(s, x, t), 2.0);
    case TN_ELEMENT_LOSS_ABSOLUTE: return scope_unary(s, tn_sign, scope_sub(s, x, t));
    case TN_ELEMENT_LOSS_SMOOTH:
        return clamp(s, scope_mul_number(s, scope_sub(s, x, t), 1.0 / c->number), 1.0);
    case TN_ELEMENT_LOSS_HUBER: return clamp(s, scope_sub(s, x, t), c->number);
    case TN_ELEMENT_LOSS_ENTROPY: return probability_slope(s, c);
    case TN_ELEMENT_LOSS_LOGITS: return logit_slope(s, c);
    case TN_ELEMENT_LOSS_DIVERGENCE: return scope_neg(s, t);
    default: return scope_neg(s, scope_exp(s, t));
    }
}

tn_status tni_composite__element_loss(const void *args, tn_tensor **rets) {
    const tn__element_loss_args *a = args;
    comparison c = {a->how, a->number, a->input, a->target, a->weight, a->pos_weight};
    tni_scope s = {0};
    tn_tensor *y = terms(&s, &c);
    if (a->weight) y = scope_mul(&s, y, tni_t(a->weight));
    y = scope_mul_number(&s, scope_sum(&s, y, tn_ints_none(), 0), 1.0 / a->divisor);
    return scope_finish(&s, y, rets);
}

tn_status tni_composite__element_loss_backward(const void *args, tn_tensor **rets) {
    const tn__element_loss_backward_args *a = args;
    comparison c = {a->how, a->number, a->input, a->target, a->weight, a->pos_weight};
    tni_scope s = {0};
    tn_tensor *g = slopes(&s, &c);
    if (a->weight) g = scope_mul(&s, g, tni_t(a->weight));
    g = scope_mul(&s, g, scope_mul_number(&s, tni_t(a->grad), 1.0 / a->divisor));
    return scope_finish(&s, g, rets);
}

/* ---- The losses --------------------------------------------------------------------------------*/

/* Losses of differences: what a target's gradient is the input's with the other sign in. */
static bool is_of_differences(int64_t how) { return how <= TN_ELEMENT_LOSS_HUBER; }

static bool wants_gradient(const tn_view *t) {
    return t && (t->word & TN_W_GRAD) && tn_grad_enabled();
}

/* Whether the kernel takes a tensor beside the input: one that may be expanded to its shape. */
static bool fits_beside(const tn_view *t, const tn_view *x) {
    if (!t) return true;
    if (((t->word ^ x->word) & TN_W_ALIKE) || (t->word & TN_W_SPECIAL) || t->ndim > x->ndim)
        return false;
    for (int32_t d = 0; d < t->ndim; d++) {
        int64_t of = x->shape[x->ndim - t->ndim + d];
        if (t->shape[d] != of && t->shape[d] != 1) return false;
    }
    return true;
}

static bool has_kernel(const comparison *c) {
    const tn_view *x = c->x;
    if (tn_dtype_category(tn_view_dtype(x)) != TN_CAT_FLOAT || (x->word & TN_W_SPECIAL))
        return false;
    if (!tni_kernel_find(&tni_op__element_loss, tn_view_device(x), tn_view_dtype(x))) return false;
    if (wants_gradient(c->weight) || wants_gradient(c->pos_weight)) return false;
    if (wants_gradient(c->target) && !is_of_differences(c->how)) return false;
    return fits_beside(c->target, x) && fits_beside(c->weight, x) && fits_beside(c->pos_weight, x);
}

/* t, spread over the input. */
static tn_tensor *spread(tni_scope *s, const tn_view *t, const tn_view *x) {
    if (!t || (t->ndim == x->ndim && t->numel == x->numel)) return tni_t(t);
    return scope_expand(s, tni_t(t), tn_ints_of(x->shape, x->ndim));
}

static tn_status at_once(const comparison *c, double divisor, tn_tensor **ret) {
    tni_scope s = {0};
    tn_tensor *target = spread(&s, c->target, c->x), *weight = spread(&s, c->weight, c->x);
    tn_tensor *pos = spread(&s, c->pos_weight, c->x), *y = NULL;
    if (s.st == TN_OK) {
        tn_status st =
            tn__element_loss(tni_t(c->x), target, weight, pos, c->how, c->number, divisor, &y);
        y = scope_take(&s, st, y);
    }
    return scope_finish(&s, y, ret);
}

/* A loss whose mean is over the elements; `weight` of the comparison goes in before it is taken, and
 * `shares` is what a mean is divided by, too. */
static tn_status reduce(const comparison *c, const char *reduction, const tn_view *shares,
                        tn_tensor **ret) {
    tni_scope s = {0};
    int kind = REDUCE_NONE;
    TN_TRY(tni_reduction_of(reduction, &kind));
    if (shares && !tni_shape_is(tni_t(shares), c->x->ndim, c->x->shape))
        return tn_fail(TN_E_VALUE, 3, "Weights and input must have the same size.");
    if (kind != REDUCE_NONE && !shares && has_kernel(c))
        return at_once(c, kind == REDUCE_MEAN ? (double)c->x->numel : 1.0, ret);
    tn_tensor *y = terms(&s, c), *r = NULL;
    if (c->weight) y = scope_mul(&s, y, tni_t(c->weight));
    if (s.st == TN_OK) {
        tn_status st = tn__reduce_loss(y, reduction, tni_t(shares), &r);
        r = scope_take(&s, st, r);
    }
    return scope_finish(&s, r, ret);
}

tn_status tni_composite_mse_loss(const void *args, tn_tensor **rets) {
    const tn_mse_loss_args *a = args;
    comparison c = {TN_ELEMENT_LOSS_SQUARE, 0.0, a->input, a->target, NULL, NULL};
    return reduce(&c, a->reduction, a->weight, rets);
}

tn_status tni_composite_l1_loss(const void *args, tn_tensor **rets) {
    const tn_l1_loss_args *a = args;
    comparison c = {TN_ELEMENT_LOSS_ABSOLUTE, 0.0, a->input, a->target, NULL, NULL};
    return reduce(&c, a->reduction, a->weight, rets);
}

tn_status tni_composite_smooth_l1_loss(const void *args, tn_tensor **rets) {
    const tn_smooth_l1_loss_args *a = args;
    if (a->beta < 0.0)
        return tn_fail(TN_E_STATE, 3, "smooth_l1_loss does not support negative values for beta.");
    int64_t how = a->beta == 0.0 ? TN_ELEMENT_LOSS_ABSOLUTE : TN_ELEMENT_LOSS_SMOOTH;
    comparison c = {how, a->beta, a->input, a->target, NULL, NULL};
    return reduce(&c, a->reduction, NULL, rets);
}

/* PyTorch writes some losses to memory of one argument's dtype, whatever the others are of. */
static tn_status give_as(tn_tensor **ret, int32_t dtype) {
    tni_scope s = {0};
    int32_t have = tn_view_dtype(&(*ret)->v);
    tn_tensor *y = scope_take(&s, TN_OK, *ret);
    *ret = NULL;
    if (tn_dtype_category(dtype) < TN_CAT_FLOAT)
        s.st = tn_fail(TN_E_DTYPE, 1, "result type %s can't be cast to the desired output type %s",
                       tni_type_text(have), tni_type_text(dtype));
    return scope_finish(&s, have == dtype ? y : scope_convert(&s, y, dtype), ret);
}

tn_status tni_composite_huber_loss(const void *args, tn_tensor **rets) {
    const tn_huber_loss_args *a = args;
    comparison c = {TN_ELEMENT_LOSS_HUBER, a->delta, a->input, a->target, NULL, NULL};
    TN_TRY(reduce(&c, a->reduction, a->weight, rets));
    return give_as(rets, tn_view_dtype(a->input));
}

/* All elements must lie in [0, 1]. Tensors of devices are not waited for. */
static tn_status check_probabilities(const tn_view *v, int32_t arg, const char *name) {
    tn_tensor *least = NULL, *most = NULL;
    tn_scalar lo = {0}, hi = {0};
    if (v->numel == 0 || tn_view_device(v) != 0) return TN_OK;
    tni_tls.no_grad++;
    tn_status st = tn_amin(tni_t(v), tn_ints_none(), 0, &least);
    if (st == TN_OK) st = tn_amax(tni_t(v), tn_ints_none(), 0, &most);
    tni_tls.no_grad--;
    if (st == TN_OK) st = tn_tensor_item(least, &lo);
    if (st == TN_OK) st = tn_tensor_item(most, &hi);
    tn_tensor_unref(&least);
    tn_tensor_unref(&most);
    if (st != TN_OK || (lo.re >= 0.0 && hi.re <= 1.0)) return st;
    return tn_fail(TN_E_STATE, arg, "all elements of %s should be between 0 and 1", name);
}

tn_status tni_composite_binary_cross_entropy(const void *args, tn_tensor **rets) {
    const tn_binary_cross_entropy_args *a = args;
    TN_TRY(check_probabilities(a->input, 0, "input"));
    TN_TRY(check_probabilities(a->target, 1, "target"));
    if (tn_view_dtype(a->input) != tn_view_dtype(a->target))
        return tn_fail(TN_E_DTYPE, 1, "Found dtype %s but expected %s",
                       tni_type_text(tn_view_dtype(a->target)),
                       tni_type_text(tn_view_dtype(a->input)));
    comparison c = {TN_ELEMENT_LOSS_ENTROPY, 0.0, a->input, a->target, a->weight, NULL};
    return reduce(&c, a->reduction, NULL, rets);
}

tn_status tni_composite_binary_cross_entropy_with_logits(const void *args, tn_tensor **rets) {
    const tn_binary_cross_entropy_with_logits_args *a = args;
    comparison c = {TN_ELEMENT_LOSS_LOGITS, 0.0, a->input, a->target, a->weight, a->pos_weight};
    TN_TRY(reduce(&c, a->reduction, NULL, rets));
    return give_as(rets, tn_view_dtype(a->target));
}

/* 'batchmean' is the sum over the number of samples, which is the first size. */
tn_status tni_composite_kl_div(const void *args, tn_tensor **rets) {
    const tn_kl_div_args *a = args;
    int64_t how = a->log_target ? TN_ELEMENT_LOSS_LOG_DIVERGENCE : TN_ELEMENT_LOSS_DIVERGENCE;
    comparison c = {how, 0.0, a->input, a->target, NULL, NULL};
    if (strcmp(a->reduction, "batchmean") != 0) return reduce(&c, a->reduction, NULL, rets);
    if (a->input->ndim == 0) return reduce(&c, "sum", NULL, rets);
    double samples = (double)a->input->shape[0];
    if (has_kernel(&c)) return at_once(&c, samples, rets);
    tni_scope s = {0};
    tn_tensor *y = scope_sum(&s, terms(&s, &c), tn_ints_none(), 0);
    return scope_finish(&s, scope_mul_number(&s, y, 1.0 / samples), rets);
}

/* ---- Gradients --------------------------------------------------------------------------------*/

static tn_tensor *softplus_of_minus(tni_scope *s, tn_tensor *x) {
    return scope_neg(s, scope_unary(s, tn_log_sigmoid, x));
}

/* What binary_cross_entropy takes for log(x). */
static tn_tensor *bounded(tni_scope *s, tn_tensor *log) {
    tn_scalar_box box;
    return scope_binary(s, tn_maximum, log, number_of(&box, -100.0));
}

/* The derivatives of the terms in the direction of the target. */
static tn_tensor *target_slopes(tni_scope *s, const comparison *c) {
    tn_tensor *x = tni_t(c->x), *t = tni_t(c->target), *log;
    switch (c->how) {
    case TN_ELEMENT_LOSS_ENTROPY:
        log = bounded(s, scope_unary(s, tn_log1p, scope_neg(s, x)));
        return scope_sub(s, log, bounded(s, scope_log(s, x)));
    case TN_ELEMENT_LOSS_LOGITS:
        if (!c->pos_weight) return scope_neg(s, x);
        log =
            scope_mul(s, scope_add_number(s, tni_t(c->pos_weight), -1.0), softplus_of_minus(s, x));
        return scope_sub(s, log, x);
    case TN_ELEMENT_LOSS_DIVERGENCE:
        return scope_sub(s, scope_add_number(s, scope_log(s, t), 1.0), x);
    case TN_ELEMENT_LOSS_LOG_DIVERGENCE:
        return scope_mul(s, scope_exp(s, t), scope_add_number(s, scope_sub(s, t, x), 1.0));
    default: return scope_neg(s, slopes(s, c)); /* of differences */
    }
}

/* A program that was recorded without gradients may be given any of them that wants one; the losses
 * themselves call the kernel where only the input does, or the two of a difference. */
tn_status tni_grad__element_loss(tn_gctx *c) {
    const tn__element_loss_args *a = c->args;
    comparison of = {a->how, a->number, a->input, a->target, a->weight, a->pos_weight};
    tni_scope s = {0};
    tn_tensor *grads[4] = {NULL}, *w = tni_t(a->weight);
    bool at_once = !tn_grad_enabled(), turned = is_of_differences(a->how) && TN_GNEEDS(c, 1);
    if (at_once && (TN_GNEEDS(c, 0) || turned)) {
        tn_status st = tn__element_loss_backward(c->g[0], tni_t(a->input), tni_t(a->target), w,
                                                 tni_t(a->pos_weight), a->how, a->number,
                                                 a->divisor, &grads[0]);
        grads[0] = scope_take(&s, st, grads[0]);
    }
    if (at_once && turned) grads[1] = scope_neg(&s, grads[0]);
    if (at_once && (c->needs == 1 || (turned && c->needs <= 3)))
        return scope_give(&s, c, grads, TN_COUNT(grads));
    tn_tensor *g = scope_mul_number(&s, c->g[0], 1.0 / a->divisor);
    tn_tensor *weighted = w ? scope_mul(&s, g, w) : g;
    if (!at_once && TN_GNEEDS(c, 0)) grads[0] = scope_mul(&s, slopes(&s, &of), weighted);
    if (TN_GNEEDS(c, 1) && !grads[1]) grads[1] = scope_mul(&s, target_slopes(&s, &of), weighted);
    if (TN_GNEEDS(c, 2)) grads[2] = scope_mul(&s, terms(&s, &of), g);
    if (TN_GNEEDS(c, 3)) {
        tn_tensor *rest = softplus_of_minus(&s, tni_t(a->input));
        grads[3] = scope_mul(&s, scope_mul(&s, tni_t(a->target), rest), weighted);
    }
    return scope_give(&s, c, grads, TN_COUNT(grads));
}
