/* loss.c: losses with class targets, and the reduction that all losses end with. */
#include <math.h>

#include <tenon/args_loss.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_loss.h>
#include <tenon/ops_norm.h>

#include "nn_priv.h"
#include "op_loss.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

/* The target (N, d1, ...) of an input (N, C, d1, ...), where N is the same. */
static tn_status check_places(int32_t ndim, const int64_t *shape, const tn_view *target) {
    int64_t places[TN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t d = 0; d < ndim; d++)
        if (d != 1) places[n++] = shape[d];
    if (ndim == 4 && target->ndim != n)
        return tn_fail(TN_E_SHAPE, 1,
                       "only batches of spatial targets supported (3D tensors) but got targets of "
                       "dimension: %d",
                       (int)target->ndim);
    bool same = target->ndim == n;
    for (int32_t d = 0; same && d < n; d++) same = target->shape[d] == places[d];
    if (same) return TN_OK;
    if (ndim == 4)
        return tn_fail(TN_E_SHAPE, 1, "size mismatch (got input: %s , target: %s",
                       tni_shape_text(ndim, shape), tni_shape_text_of(target));
    return tn_fail(TN_E_SHAPE, 1, "Expected target size %s, got %s", tni_shape_text(n, places),
                   tni_shape_text_of(target));
}

/* input (C), (N, C) or (N, C, d1, ...) and target without the class dimension. */
static tn_status check_classes(int32_t ndim, const int64_t *shape, const tn_view *target,
                               const tn_view *weight) {
    if (ndim < 1) return tn_fail(TN_E_VALUE, 0, "Expected 1 or more dimensions (got 0)");
    int64_t batch = target->ndim ? target->shape[0] : 0;
    if (ndim > 1 && batch != shape[0])
        return tn_fail(TN_E_VALUE, 1,
                       "Expected input batch_size (%lld) to match target batch_size (%lld).",
                       (long long)shape[0], (long long)batch);
    if (ndim < 3 && target->ndim > 1)
        return tn_fail(TN_E_SHAPE, 1,
                       "0D or 1D target tensor expected, multi-target not supported");
    if (ndim == 1 && target->numel != 1)
        return tn_fail(TN_E_VALUE, 1,
                       "For 1D input, 1D target must have size 1, but got target size: %lld",
                       (long long)target->numel);
    if (ndim > 1) TN_TRY(check_places(ndim, shape, target));
    if (tn_view_dtype(target) != TN_I64) {
        return tn_fail(TN_E_DTYPE, 1, "expected target dtype to be Long or Byte, but got %s",
                       tni_type_text(tn_view_dtype(target)));
    }
    int64_t c = shape[ndim == 1 ? 0 : 1];
    if (weight && (weight->ndim != 1 || weight->shape[0] != c)) {
        return tn_fail(
            TN_E_SHAPE, 2,
            "weight tensor should be defined either for all %lld classes or no classes but "
            "got weight tensor of shape: %s",
            (long long)c, tni_shape_text_of(weight));
    }
    return TN_OK;
}

/* The gradient that comes back to a loss. */
static tn_status expect_loss(const tn_infer *inf, const tn_view *grad, int64_t reduction,
                             const tn_view *target) {
    return tni_infer_expect(inf, 0, grad, reduction == REDUCE_NONE ? target->ndim : 0,
                            target->shape, -1);
}

/* Shape of a loss: target's without reduction, else a number. */
static tn_status set_loss(tn_infer *inf, int i, int64_t reduction, const tn_view *target) {
    if (reduction == REDUCE_NONE) return tni_infer_set(inf, i, target->ndim, target->shape);
    return tni_infer_set(inf, i, 0, target->shape);
}

tn_status tni_infer__nll_loss(tn_infer *inf, const void *args) {
    const tn__nll_loss_args *a = args;
    TN_TRY(check_classes(a->input->ndim, a->input->shape, a->target, a->weight));
    if (a->weight && tn_view_dtype(a->weight) != tn_view_dtype(a->input))
        return tn_fail(TN_E_STATE, 2, "expected scalar type %s but found %s",
                       tni_type_text(tn_view_dtype(a->input)),
                       tni_type_text(tn_view_dtype(a->weight)));
    TN_TRY(set_loss(inf, 0, a->reduction, a->target));
    return tni_infer_set(inf, 1, 0, a->target->shape);
}

/* The weights that come back to it are of the dtype that it computes in. */
static tn_status expect_weights(const tn_infer *inf, int at, const tn_view *weight,
                                const tn_view *total, int32_t dtype) {
    if (weight) TN_TRY(tni_infer_expect(inf, at, weight, 1, weight->shape, dtype));
    return tni_infer_expect(inf, at + 1, total, 0, total->shape, dtype);
}

tn_status tni_infer__nll_loss_backward(tn_infer *inf, const void *args) {
    const tn__nll_loss_backward_args *a = args;
    int32_t ndim = (int32_t)a->input_size.n;
    int64_t numel;
    TN_TRY(tni_numel(ndim, a->input_size.v, 1, &numel));
    TN_TRY(check_classes(ndim, a->input_size.v, a->target, a->weight));
    TN_TRY(expect_loss(inf, a->grad, a->reduction, a->target));
    TN_TRY(expect_weights(inf, 2, a->weight, a->total_weight, tn_view_dtype(a->grad)));
    return tni_infer_set(inf, 0, ndim, a->input_size.v);
}

tn_status tni_infer__nll_loss_gather(tn_infer *inf, const void *args) {
    const tn__nll_loss_gather_args *a = args;
    TN_TRY(check_classes(a->input->ndim, a->input->shape, a->target, a->weight));
    TN_TRY(expect_weights(inf, 2, a->weight, a->total_weight, tn_view_dtype(a->input)));
    return set_loss(inf, 0, a->reduction, a->target);
}

tn_status tni_infer__cross_entropy(tn_infer *inf, const void *args) {
    const tn__cross_entropy_args *a = args;
    int32_t wide = nn_wide_dtype(tn_view_dtype(a->input));
    TN_TRY(check_classes(a->input->ndim, a->input->shape, a->target, NULL));
    TN_TRY(set_loss(inf, 0, a->reduction, a->target));
    TN_TRY(nn_infer_set_as(inf, 1, wide, a->target->ndim, a->target->shape));
    TN_TRY(nn_infer_set_as(inf, 2, wide, a->target->ndim, a->target->shape));
    return nn_infer_set_as(inf, 3, wide, 0, a->target->shape);
}

tn_status tni_infer__cross_entropy_backward(tn_infer *inf, const void *args) {
    const tn__cross_entropy_backward_args *a = args;
    const tn_view *target = a->target;
    int32_t dtype = tn_view_dtype(a->input), wide = nn_wide_dtype(dtype);
    TN_TRY(check_classes(a->input->ndim, a->input->shape, target, NULL));
    TN_TRY(expect_loss(inf, a->grad, a->reduction, target));
    TN_TRY(tni_infer_expect(inf, 0, a->grad, a->grad->ndim, a->grad->shape, dtype));
    TN_TRY(tni_infer_expect(inf, 3, a->most, target->ndim, target->shape, wide));
    TN_TRY(tni_infer_expect(inf, 4, a->log_sum, target->ndim, target->shape, wide));
    TN_TRY(tni_infer_expect(inf, 5, a->count, 0, target->shape, wide));
    return tni_infer_set(inf, 0, a->input->ndim, a->input->shape);
}

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

/* The terms are made in the dtype of the input. */
tn_status tni_check_soft_margin_loss(const void *args) {
    const tn_soft_margin_loss_args *a = args;
    int32_t dtype = tn_view_dtype(a->input);
    if (tn_dtype_category(dtype) >= TN_CAT_FLOAT) return TN_OK;
    return tn_fail(TN_E_DTYPE, 0, "result type Float can't be cast to the desired output type %s",
                   tni_type_text(dtype));
}

/* Classes as int64, which is what kernels read; bytes are accepted as PyTorch does. */
static bool byte_classes(const tn_view *target) { return tn_view_dtype(target) == TN_U8; }

tn_status tni_composite_nll_loss(const void *args, tn_tensor **rets) {
    const tn_nll_loss_args *a = args;
    tn_tensor *total = NULL;
    if (byte_classes(a->target)) {
        tni_scope s = {0};
        tn_nll_loss_args wide = *a;
        wide.target = tni_v(scope_convert(&s, tni_t(a->target), TN_I64));
        tn_status st = s.st == TN_OK ? tni_composite_nll_loss(&wide, rets) : s.st;
        return scope_finish(&s, scope_take(&s, st, rets[0]), rets);
    }
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

/* Where the target is not ignored. */
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
    tn_scalar_box nothing;
    smooth = scope_where(&s, mask, smooth, tn_scalar_box_init(&nothing, tn_scalar_float(0)));
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
        return tn_fail(TN_E_STATE, 5, "label_smoothing must be between 0.0 and 1.0. Got: %g",
                       a->label_smoothing);
    }
    bool same = x->ndim == target->ndim && x->ndim > 0 &&
                memcmp(x->shape, target->shape, (size_t)x->ndim * sizeof(int64_t)) == 0;
    int32_t of_target = tn_view_dtype(target);
    if (same && x->ndim > 1 && tn_dtype_category(of_target) != TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 1,
                       "Expected floating point type for target with class probabilities, got %s",
                       tni_type_text(of_target));
    if (byte_classes(target)) {
        tni_scope s = {0};
        tn_cross_entropy_args wide = *a;
        wide.target = tni_v(scope_convert(&s, tni_t(target), TN_I64));
        tn_status st = s.st == TN_OK ? tni_composite_cross_entropy(&wide, rets) : s.st;
        return scope_finish(&s, scope_take(&s, st, rets[0]), rets);
    }
    if (same && tn_dtype_category(of_target) == TN_CAT_FLOAT) {
        if (a->ignore_index >= 0)
            return tn_fail(TN_E_STATE, 3,
                           "ignore_index is not supported for floating point target");
        return with_probabilities(a, kind, &rets[0]);
    }
    if (a->label_smoothing > 0.0 && x->ndim > 0) return smoothed(a, kind, &rets[0]);
    if (a->weight) return weighted(a, &rets[0]);
    tn_tensor *most = NULL, *log_sum = NULL, *count = NULL;
    TN_TRY(tn__cross_entropy(tni_t(x), tni_t(target), kind, a->ignore_index, &rets[0], &most,
                             &log_sum, &count));
    tn_tensor_unref(&most);
    tn_tensor_unref(&log_sum);
    tn_tensor_unref(&count);
    return TN_OK;
}

/* ---- Out of simpler operators -----------------------------------------------------------------*/

static int64_t class_dim(const tn_view *input) { return input->ndim == 1 ? 0 : 1; }

tn_status tni_composite__cross_entropy(const void *args, tn_tensor **rets) {
    const tn__cross_entropy_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *target = tni_t(a->target), *picked = NULL;
    tn_ints shape = tn_ints_of(a->target->shape, a->target->ndim);
    int64_t dim = class_dim(a->input);
    tn_tensor *counts = scope_differs(&s, target, a->ignore_index);
    tn_tensor *index =
        scope_unsqueeze(&s, scope_only_where(&s, counts, target, tn_scalar_int(0)), dim);
    if (s.st == TN_OK) {
        tn_status st = tn_gather(x, dim, index, 0, &picked);
        picked = scope_take(&s, st, picked);
    }
    tn_tensor *most = NULL, *log_sum = scope_log_sum(&s, x, dim, &most);
    most = scope_reshape(&s, most, shape);
    log_sum = scope_reshape(&s, log_sum, shape);
    picked = scope_sub(&s, scope_reshape(&s, picked, shape), most);
    tn_tensor *loss =
        scope_only_where(&s, counts, scope_sub(&s, log_sum, picked), tn_scalar_float(0));
    tn_tensor *count =
        scope_sum(&s, scope_convert(&s, counts, tn_view_dtype(a->input)), tn_ints_none(), 0);
    if (a->reduction != REDUCE_NONE) loss = scope_sum(&s, loss, tn_ints_none(), 0);
    if (a->reduction == REDUCE_MEAN) loss = scope_true_divide(&s, loss, count);
    if (s.st == TN_OK) {
        rets[1] = tn_tensor_ref(most);
        rets[2] = tn_tensor_ref(log_sum);
        rets[3] = tn_tensor_ref(count);
    }
    return scope_finish(&s, loss, rets);
}

/* softmax(input) - 1 at the target, times the incoming gradient; nothing where it is ignored. */
tn_status tni_composite__cross_entropy_backward(const void *args, tn_tensor **rets) {
    const tn__cross_entropy_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *target = tni_t(a->target), *g = tni_t(a->grad);
    tn_tensor *classes = NULL, *hit = NULL;
    int64_t dim = class_dim(a->input), shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < a->input->ndim; d++) shape[d] = d == dim ? a->input->shape[d] : 1;
    tn_tensor *counts = scope_unsqueeze(&s, scope_differs(&s, target, a->ignore_index), dim);
    tn_tensor *below = scope_sub(&s, x, scope_unsqueeze(&s, tni_t(a->most), dim));
    tn_tensor *p = scope_exp(&s, scope_sub(&s, below, scope_unsqueeze(&s, tni_t(a->log_sum), dim)));
    if (s.st == TN_OK) {
        tn_status st =
            tn_arange(tn_scalar_int(a->input->shape[dim]), TN_I64, tni_device_of(x), &classes);
        classes = scope_reshape(&s, scope_take(&s, st, classes), tn_ints_of(shape, a->input->ndim));
    }
    tn_tensor *at = scope_unsqueeze(&s, target, dim);
    if (s.st == TN_OK) {
        tn_status st = tn_eq(classes, at, &hit);
        hit = scope_take(&s, st, hit);
    }
    p = scope_sub(&s, p, scope_convert(&s, hit, tn_view_dtype(a->input)));
    if (a->reduction == REDUCE_MEAN) g = scope_true_divide(&s, g, tni_t(a->count));
    if (a->reduction == REDUCE_NONE) g = scope_unsqueeze(&s, g, dim);
    tn_tensor *r = scope_only_where(&s, counts, scope_mul(&s, p, g), tn_scalar_float(0));
    return scope_finish(&s, r, rets);
}

/* ---- Gradients --------------------------------------------------------------------------------*/

tn_status tni_grad__cross_entropy(tn_gctx *c) {
    const tn__cross_entropy_args *a = c->args;
    if (!TN_GNEEDS(c, 0) || !c->g[0]) return TN_OK;
    tn_tensor *x = tni_t(a->input), *target = tni_t(a->target), *g = c->g[0];
    if (!tn_grad_enabled()) {
        return tn__cross_entropy_backward(g, x, target, tni_t(a->most), tni_t(a->log_sum),
                                          tni_t(a->count), a->reduction, a->ignore_index,
                                          &c->ret[0]);
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

/* ---- Margins of classes --------------------------------------------------------------------------*/

tn_status tni_check_multi_margin_loss(const void *args) {
    const tn_multi_margin_loss_args *a = args;
    if (a->weight && a->weight->ndim != 1)
        return tn_fail(TN_E_VALUE, 4, "weight must be one-dimensional");
    if (tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_FLOAT)
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"multi_margin_loss\" not implemented for '%s'",
                       tni_type_text(tn_view_dtype(a->input)));
    if (a->input->ndim < 1 || a->input->ndim > 2) return TN_OK; /* the parts say it */
    int64_t classes = a->input->shape[a->input->ndim - 1];
    if (tn_view_dtype(a->target) != TN_I64)
        return tn_fail(TN_E_DTYPE, 1, "expected scalar type Long but found %s",
                       tni_type_text(tn_view_dtype(a->target)));
    if (a->weight && a->weight->shape[0] != classes)
        return tn_fail(TN_E_SHAPE, 4, "inconsistent weight size, expected %lld but got %s",
                       (long long)classes, tni_shape_text_of(a->weight));
    return TN_OK;
}

/* ---- Distances of pairs --------------------------------------------------------------------------*/

tn_status tni_check_margin_ranking_loss(const void *args) {
    const tn_margin_ranking_loss_args *a = args;
    if (a->input1->ndim == a->target->ndim && a->input2->ndim == a->target->ndim) return TN_OK;
    return tn_fail(TN_E_SHAPE, 2,
                   "margin_ranking_loss : All input tensors should have same dimension but got "
                   "sizes: input1: %s, input2: %s, target: %s",
                   tni_shape_text_of(a->input1), tni_shape_text_of(a->input2),
                   tni_shape_text_of(a->target));
}

tn_status tni_check_cosine_embedding_loss(const void *args) {
    const tn_cosine_embedding_loss_args *a = args;
    int32_t ndim = a->target->ndim;
    if (ndim > 1)
        return tn_fail(TN_E_SHAPE, 2,
                       "0D or 1D target tensor expected, multi-target not supported");
    if (a->input1->ndim == ndim + 1 && a->input2->ndim == ndim + 1) return TN_OK;
    return tn_fail(TN_E_SHAPE, 0,
                   "%dD target tensor expects %dD input tensors, but found inputs with sizes %s "
                   "and %s.",
                   (int)ndim, (int)ndim + 1, tni_shape_text_of(a->input1),
                   tni_shape_text_of(a->input2));
}

tn_status tni_check_triplet_margin_loss(const void *args) {
    const tn_triplet_margin_loss_args *a = args;
    int32_t ndim = a->anchor->ndim;
    if (a->positive->ndim == ndim && a->negative->ndim == ndim) return TN_OK;
    return tn_fail(TN_E_SHAPE, 0,
                   "The anchor, positive, and negative tensors are expected to have the same "
                   "number of dimensions, but got: anchor %dD, positive %dD, and negative %dD "
                   "inputs",
                   (int)ndim, (int)a->positive->ndim, (int)a->negative->ndim);
}
