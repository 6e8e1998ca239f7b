/* loss.c: losses with class targets, and the reduction that all losses end with. */
#include "loss_priv.h"
#include "scope_priv.h"

tn_status tni_composite__reduce_loss(const void *args, tn_tensor **rets);
tn_status tni_composite_nll_loss(const void *args, tn_tensor **rets);
tn_status tni_composite_cross_entropy(const void *args, tn_tensor **rets);

tn_status tni_reduction_of(const char *text, int *ret) {
    static const char *const names[] = {"none", "mean", "sum"};
    for (int i = 0; i < TN_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = i;
            return TN_OK;
        }
    }
    return tn_fail(TN_E_VALUE, -1, "%s is not a valid value for reduction", text);
}

tn_status tni_composite__reduce_loss(const void *args, tn_tensor **rets) {
    const tn__reduce_loss_args *a = args;
    tn_tensor *x = tni_t(a->input), *w = tni_t(a->weight);
    tni_scope s = {0};
    int kind = REDUCE_NONE;
    TN_TRY(tni_reduction_of(a->reduction, &kind));
    if (w) x = scope_mul(&s, x, w);
    tn_ints all = tn_ints_none();
    if (kind == REDUCE_SUM) {
        x = scope_sum(&s, x, all, 0);
    } else if (kind == REDUCE_MEAN && w) {
        x = scope_true_divide(&s, scope_sum(&s, x, all, 0), scope_sum(&s, w, all, 0));
    } else if (kind == REDUCE_MEAN) {
        x = scope_mean(&s, x, all, 0);
    }
    return scope_finish(&s, x, rets);
}

tn_status tni_composite_nll_loss(const void *args, tn_tensor **rets) {
    const tn_nll_loss_args *a = args;
    tn_tensor *total = NULL;
    int kind = REDUCE_NONE;
    TN_TRY(tni_reduction_of(a->reduction, &kind));
    TN_TRY(tn__nll_loss(tni_t(a->input), tni_t(a->target), tni_t(a->weight), kind, a->ignore_index,
                        &rets[0], &total));
    tn_tensor_unref(&total);
    return TN_OK;
}

/* ---- cross_entropy ----------------------------------------------------------------------------*/

static tn_tensor *log_probabilities(tni_scope *s, const tn_view *x) {
    tn_tensor *r = NULL;
    tn_status st = tn_log_softmax(tni_t(x), x->ndim == 1 ? 0 : 1, -1, &r);
    return scope_take(s, st, r);
}

/* The class weights, shaped to multiply (c) or (n, c, ...). */
static tn_tensor *class_weights(tni_scope *s, const tn_view *w, int32_t ndim) {
    int64_t shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < ndim; d++) shape[d] = d == (ndim == 1 ? 0 : 1) ? w->numel : 1;
    return scope_reshape(s, tni_t(w), tn_ints_of(shape, ndim));
}

/* Targets are class probabilities: -sum(target * logp) over classes, the mean over samples. */
static tn_status with_probabilities(const tn_cross_entropy_args *a, int kind, tn_tensor **ret) {
    tni_scope s = {0};
    const tn_view *x = a->input;
    int32_t axis = x->ndim == 1 ? 0 : 1;
    tn_tensor *target = tni_t(a->target), *logp = log_probabilities(&s, x);
    if (a->label_smoothing > 0) {
        target = scope_mul_number(&s, target, 1.0 - a->label_smoothing);
        target = scope_add_number(&s, target, a->label_smoothing / (double)x->shape[axis]);
    }
    tn_tensor *terms = scope_mul(&s, logp, target);
    if (a->weight) terms = scope_mul(&s, terms, class_weights(&s, a->weight, x->ndim));
    if (kind == REDUCE_NONE) {
        return scope_finish(&s, scope_neg(&s, scope_sum(&s, terms, TN_INTS(axis), 0)), ret);
    }
    int64_t c = x->shape[axis], count = c > 0 ? x->numel / c : 0;
    double scale = kind == REDUCE_MEAN ? 1.0 / (double)count : 1.0;
    tn_tensor *sum = scope_sum(&s, terms, tn_ints_none(), 0);
    return scope_finish(&s, scope_mul_number(&s, sum, -scale), ret);
}

/* 1 where the target is not ignored, as a number type. */
static tn_tensor *counted(tni_scope *s, const tn_cross_entropy_args *a) {
    tn_tensor *r = NULL;
    tn_scalar_box box;
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn_ne(tni_t(a->target), tn_scalar_box_init(&box, tn_scalar_int(a->ignore_index)), &r);
    return scope_take(s, st, r);
}

/* Class targets with smoothing: (1 - e) * nll + e / c * the (weighted) sum over all classes. */
static tn_status smoothed(const tn_cross_entropy_args *a, int kind, tn_tensor **ret) {
    tni_scope s = {0};
    const tn_view *x = a->input;
    int32_t axis = x->ndim == 1 ? 0 : 1;
    tn_tensor *logp = log_probabilities(&s, x), *nll = NULL, *total = NULL, *w = tni_t(a->weight);
    if (s.st == TN_OK) {
        tn_status st = tn__nll_loss(logp, tni_t(a->target), w, kind, a->ignore_index, &nll, &total);
        nll = scope_take(&s, st, nll);
        total = st == TN_OK ? scope_take(&s, st, total) : NULL;
    }
    tn_tensor *terms = logp;
    if (w) terms = scope_mul(&s, terms, class_weights(&s, a->weight, x->ndim));
    tn_tensor *smooth = scope_neg(&s, scope_sum(&s, terms, TN_INTS(axis), 0)),
              *mask = counted(&s, a);
    smooth = scope_mul(&s, smooth, mask);
    if (kind != REDUCE_NONE) smooth = scope_sum(&s, smooth, tn_ints_none(), 0);
    if (kind == REDUCE_MEAN && w) {
        smooth = scope_true_divide(&s, smooth, total);
    } else if (kind == REDUCE_MEAN) {
        smooth = scope_true_divide(&s, smooth, scope_sum(&s, mask, tn_ints_none(), 0));
    }
    double e = a->label_smoothing;
    nll = scope_mul_number(&s, nll, 1.0 - e);
    smooth = scope_mul_number(&s, smooth, e / (double)x->shape[axis]);
    return scope_finish(&s, scope_add(&s, nll, smooth), ret);
}

/* Class targets with weights: log_softmax, then nll_loss. */
static tn_status weighted(const tn_cross_entropy_args *a, tn_tensor **ret) {
    tni_scope s = {0};
    tn_tensor *logp = log_probabilities(&s, a->input), *loss = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_nll_loss(logp, tni_t(a->target), tni_t(a->weight), a->ignore_index,
                                   a->reduction, &loss);
        loss = scope_take(&s, st, loss);
    }
    return scope_finish(&s, loss, ret);
}

tn_status tni_composite_cross_entropy(const void *args, tn_tensor **rets) {
    const tn_cross_entropy_args *a = args;
    const tn_view *x = a->input, *target = a->target;
    int kind = REDUCE_NONE;
    TN_TRY(tni_reduction_of(a->reduction, &kind));
    if (a->label_smoothing < 0.0 || a->label_smoothing > 1.0) {
        return tn_fail(TN_E_VALUE, 5, "label_smoothing must be between 0.0 and 1.0. Got: %g",
                       a->label_smoothing);
    }
    bool same = x->ndim == target->ndim && x->ndim > 0 &&
                memcmp(x->shape, target->shape, (size_t)x->ndim * sizeof(int64_t)) == 0;
    if (same && tn_dtype_category(tn_view_dtype(target)) == TN_CAT_FLOAT) {
        return with_probabilities(a, kind, &rets[0]);
    }
    if (a->label_smoothing > 0.0 && x->ndim > 0) return smoothed(a, kind, &rets[0]);
    if (a->weight) return weighted(a, &rets[0]);
    tn_tensor *lse = NULL, *count = NULL;
    TN_TRY(
        tn__cross_entropy(tni_t(x), tni_t(target), kind, a->ignore_index, &rets[0], &lse, &count));
    tn_tensor_unref(&lse);
    tn_tensor_unref(&count);
    return TN_OK;
}
