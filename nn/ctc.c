/* ctc.c: connectionist temporal classification: shapes, and the loss out of those of the samples. */
#include <tenon/args_loss.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_loss.h>
#include <tenon/ops_reduce.h>

#include "nn_priv.h"
#include "op_loss.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

/* log_probs (T, N, C); targets (N, S) or (sum of lengths); two lengths for each sample. */
static tn_status check_parts(const tn_infer *inf, int32_t first, const tn_view *log_probs,
                             const tn_view *targets, const tn_view *times, const tn_view *lengths,
                             int64_t blank) {
    if (log_probs->ndim != 3)
        return tn_fail(TN_E_SHAPE, first, "Expected log_probs to have 3 dimensions, got %s",
                       tni_shape_text_of(log_probs));
    const int64_t *batch = &log_probs->shape[1];
    if (blank < 0 || blank >= log_probs->shape[2])
        return tn_fail(TN_E_SHAPE, -1, "blank must be in label range");
    if (targets->ndim != 1 && (targets->ndim != 2 || targets->shape[0] != *batch))
        return tn_fail(TN_E_SHAPE, first + 1,
                       "Expected targets of shape (%lld, S) or of one dimension, got %s",
                       (long long)*batch, tni_shape_text_of(targets));
    TN_TRY(tni_infer_expect(inf, first + 1, targets, targets->ndim, targets->shape, TN_I64));
    TN_TRY(tni_infer_expect(inf, first + 2, times, 1, batch, TN_I64));
    return tni_infer_expect(inf, first + 3, lengths, 1, batch, TN_I64);
}

tn_status tni_infer__ctc_loss(tn_infer *inf, const void *args) {
    const tn__ctc_loss_args *a = args;
    const tn_view *x = a->log_probs;
    int64_t width;
    TN_TRY(check_parts(inf, 0, x, a->targets, a->input_lengths, a->target_lengths, a->blank));
    if (a->longest < 0 || __builtin_mul_overflow(a->longest, 2, &width) ||
        __builtin_add_overflow(width, 1, &width))
        return tn_fail(TN_E_VALUE, 5, "longest must be a length, got %lld", (long long)a->longest);
    const int64_t shape[3] = {x->shape[1], x->shape[0], width};
    TN_TRY(tni_infer_set(inf, 0, 1, shape));
    return tni_infer_set(inf, 1, 3, shape);
}

tn_status tni_infer__ctc_loss_backward(tn_infer *inf, const void *args) {
    const tn__ctc_loss_backward_args *a = args;
    const tn_view *x = a->log_probs, *alpha = a->log_alpha;
    int32_t dtype = tn_view_dtype(x);
    TN_TRY(check_parts(inf, 1, x, a->targets, a->input_lengths, a->target_lengths, a->blank));
    TN_TRY(tni_infer_expect(inf, 0, a->grad, 1, &x->shape[1], dtype));
    TN_TRY(tni_infer_expect(inf, 5, a->y, 1, &x->shape[1], dtype));
    const int64_t shape[3] = {x->shape[1], x->shape[0], alpha->ndim == 3 ? alpha->shape[2] : 1};
    TN_TRY(tni_infer_expect(inf, 6, alpha, 3, shape, dtype));
    if (shape[2] % 2 == 0)
        return tn_fail(TN_E_SHAPE, 6, "log_alpha must have an odd number of places, got %lld",
                       (long long)shape[2]);
    return tni_infer_set(inf, 0, 3, x->shape);
}

/* ---- The loss ---------------------------------------------------------------------------------*/

/* Lengths and labels as kernels take them, whatever integers they came as. */
static tn_tensor *whole(tni_scope *s, const tn_view *v, int32_t ndim) {
    tn_tensor *t = scope_convert(s, tni_t(v), TN_I64);
    return scope_reshape(s, t, ndim == 1 ? TN_INTS(-1) : TN_INTS(1, -1));
}

/* How many labels the longest target has room for. */
static tn_status longest_of(const tn_tensor *targets, tn_tensor *lengths, int64_t *ret) {
    tn_tensor *most = NULL;
    tn_scalar n = {0};
    *ret = 0;
    if (targets->v.ndim == 2) {
        *ret = targets->v.shape[1];
        return TN_OK;
    }
    if (lengths->v.numel == 0) return TN_OK;
    if (tn_tensor_device(lengths).slot == TN_META_SLOT) {
        *ret = targets->v.numel; /* which no length exceeds */
        return TN_OK;
    }
    tn_status st = tn_amax(lengths, tn_ints_none(), 0, &most);
    if (st == TN_OK) st = tn_tensor_item(most, &n);
    tn_tensor_unref(&most);
    *ret = n.i > 0 ? n.i : 0;
    return st;
}

/* 0 in place of the samples' losses that are infinite. */
static tn_tensor *finite(tni_scope *s, tn_tensor *loss) {
    tn_scalar_box box;
    tn_tensor *found =
        scope_binary(s, tn_ne, loss, tn_scalar_box_init(&box, tn_scalar_float(INFINITY)));
    return scope_only_where(s, found, loss, tn_scalar_float(0.0));
}

/* The mean over the samples of the loss by label. */
static tn_tensor *mean_by_label(tni_scope *s, tn_tensor *loss, tn_tensor *lengths) {
    tn_scalar_box box;
    if (s->st != TN_OK) return NULL;
    tn_tensor *labels = scope_convert(s, lengths, tn_tensor_dtype(loss));
    labels = scope_binary(s, tn_clamp_min, labels, tn_scalar_box_init(&box, tn_scalar_int(1)));
    return scope_mean(s, scope_true_divide(s, loss, labels), tn_ints_none(), 0);
}

tn_status tni_composite_ctc_loss(const void *args, tn_tensor **rets) {
    const tn_ctc_loss_args *a = args;
    const tn_view *x = a->log_probs;
    tni_scope s = {0};
    int64_t longest = 0;
    int kind = REDUCE_NONE;
    TN_TRY(tni_reduction_of(a->reduction, &kind));
    if (x->ndim != 2 && x->ndim != 3)
        return tn_fail(TN_E_SHAPE, 0, "Expected log_probs of shape (T, N, C) or (T, C), got %s",
                       tni_shape_text_of(x));
    if (x->numel == 0) return tn_fail(TN_E_STATE, 0, "log_probs tensor must not be empty");
    bool single = x->ndim == 2;
    tn_tensor *probs = single ? scope_unsqueeze(&s, tni_t(x), 1) : tni_t(x);
    tn_tensor *times = whole(&s, a->input_lengths, 1), *lengths = whole(&s, a->target_lengths, 1);
    tn_tensor *targets =
        single ? whole(&s, a->targets, 2) : scope_convert(&s, tni_t(a->targets), TN_I64);
    if (s.st == TN_OK) s.st = longest_of(targets, lengths, &longest);
    tn_tensor *loss = NULL, *alpha = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn__ctc_loss(probs, targets, times, lengths, a->blank, longest,
                                    a->zero_infinity, &loss, &alpha);
        loss = scope_take(&s, st, loss);
        tn_tensor_unref(&alpha);
    }
    if (a->zero_infinity) loss = finite(&s, loss);
    if (kind == REDUCE_MEAN) {
        loss = mean_by_label(&s, loss, lengths);
    } else if (kind == REDUCE_SUM) {
        loss = scope_sum(&s, loss, tn_ints_none(), 0);
    } else if (single) {
        loss = scope_select(&s, loss, 0, 0);
    }
    return scope_finish(&s, loss, rets);
}
