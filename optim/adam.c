/* adam.c: Adam and AdamW over lists of tensors. */
#include <math.h>

#include <tenon/args_optim.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_optim.h>
#include <tenon/ops_pointwise.h>
#include <tenon/optim.h>

#include "multi_priv.h"
#include "op_optim.h"
#include "scope_priv.h"

static tn_status update(tn_tensors params, tn_tensors grads, tn_tensors exp_avgs,
                        tn_tensors exp_avg_sqs, tn_tensors max_exp_avg_sqs, tn_tensors steps,
                        const tn_view *rate, const tn_adam_options *o) {
    tn_tensors none = {NULL, 0}, largest = o->amsgrad ? max_exp_avg_sqs : none;
    int64_t n = params.n;
    if (grads.n != n || exp_avgs.n != n || exp_avg_sqs.n != n || steps.n != n ||
        (o->amsgrad && largest.n != n))
        return tn_fail(TN_E_VALUE, -1, "adam: the lists have different lengths");
    tni_multi m = {.op = "adam",
                   .role = {{"parameters", tni_multi_views(params), true, false},
                            {"gradients", tni_multi_views(grads), false, false},
                            {"exp_avgs", tni_multi_views(exp_avgs), true, false},
                            {"exp_avg_sqs", tni_multi_views(exp_avg_sqs), true, false},
                            {"max_exp_avg_sqs", tni_multi_views(largest), true, false},
                            {"steps", tni_multi_views(steps), true, true}},
                   .roles = 6};
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        tn_tensor *there = NULL;
        double lr = o->lr;
        end = tni_multi_run_end(&m, i);
        st = tni_multi_rate(&m, rate, m.role[0].in.v[i], m.role[5].in.v[i], &lr, &there);
        if (st == TN_OK)
            st = tn__adam_step(tni_multi_slice(&m, 0, i, end), tni_multi_slice(&m, 1, i, end),
                               tni_multi_slice(&m, 2, i, end), tni_multi_slice(&m, 3, i, end),
                               tni_multi_slice(&m, 4, i, end), tni_multi_slice(&m, 5, i, end), lr,
                               o->beta1, o->beta2, o->eps, o->weight_decay, o->amsgrad, o->maximize,
                               o->decoupled, there);
        tn_tensor_unref(&there);
    }
    return tni_multi_end(&m, st);
}

tn_status tn_adam_update(tn_tensors params, tn_tensors grads, tn_tensors exp_avgs,
                         tn_tensors exp_avg_sqs, tn_tensors max_exp_avg_sqs, tn_tensors steps,
                         const tn_adam_options *o) {
    if (!o) return tn_fail(TN_E_TYPE, 6, "adam: the options are NULL");
    return update(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, NULL, o);
}

tn_status tni_composite__adam_(const void *args, tn_tensor **rets) {
    const tn__adam__args *a = args;
    (void)rets;
    tn_adam_options o = {.lr = a->lr,
                         .beta1 = a->beta1,
                         .beta2 = a->beta2,
                         .eps = a->eps,
                         .weight_decay = a->weight_decay,
                         .amsgrad = a->amsgrad != 0,
                         .maximize = a->maximize != 0,
                         .decoupled = a->decoupled != 0};
    return update(tni_tensors_of(a->params), tni_tensors_of(a->grads), tni_tensors_of(a->exp_avgs),
                  tni_tensors_of(a->exp_avg_sqs), tni_tensors_of(a->max_exp_avg_sqs),
                  tni_tensors_of(a->steps), a->rate, &o);
}

tn_status tni_infer__adam_step(tn_infer *inf, const void *args) {
    const tn__adam_step_args *a = args;
    int64_t n = a->params.n;
    if (a->grads.n != n || a->exp_avgs.n != n || a->exp_avg_sqs.n != n || a->steps.n != n ||
        (a->amsgrad && a->max_exp_avg_sqs.n != n))
        return tn_fail(TN_E_VALUE, -1, "adam: the lists have different lengths");
    tni_multi m = {.role = {{"parameters", a->params, true, false},
                            {"gradients", a->grads, false, false},
                            {"exp_avgs", a->exp_avgs, true, false},
                            {"exp_avg_sqs", a->exp_avg_sqs, true, false},
                            {"max_exp_avg_sqs", a->max_exp_avg_sqs, true, false},
                            {"steps", a->steps, true, true}},
                   .roles = 6};
    TN_TRY(tni_multi_infer(inf, &m));
    TN_TRY(tni_multi_check_rate(&m, a->rate, a->params.v[0], a->steps.v[0]));
    return tni_multi_check_capture(&m, a->params.v[0], a->steps.v[0]);
}

/* ---- Adam --------------------------------------------------------------------------------------*/

/* x in the dtype and on the device of y. */
static tn_tensor *beside(tni_scope *s, tn_tensor *x, const tn_tensor *y) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__move(x, tn_tensor_dtype(y), tni_device_of(y), &r);
    return scope_take(s, st, r);
}

/* 1 - beta^step, of a tensor: the step is not read, so that a graph can hold all of this. */
static tn_tensor *bias_correction(tni_scope *s, tn_tensor *step, double beta) {
    tn_tensor *r = NULL, *log_power = scope_mul_number(s, step, log(beta));
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_expm1(log_power, &r);
    return scope_neg(s, scope_take(s, st, r));
}

static tn_status adam_one(const tn__adam_step_args *a, double lr, int64_t i) {
    tni_scope s = {0};
    tn_tensor *w = tni_t(a->params.v[i]), *p = w;
    tn_tensor *m = tni_t(a->exp_avgs.v[i]), *v = tni_t(a->exp_avg_sqs.v[i]);
    tn_tensor *g = scope_mul_number(&s, tni_t(a->grads.v[i]), a->maximize ? -1 : 1);
    tn_tensor *steps = tni_t(a->steps.v[i]);
    scope_assign(&s, steps, scope_add_number(&s, steps, 1));
    tn_tensor *step = beside(&s, steps, w); /* steps are counted on the CPU */
    tn_tensor *first = bias_correction(&s, step, a->beta1);
    tn_tensor *second = bias_correction(&s, step, a->beta2);
    if (a->weight_decay != 0 && a->decoupled) p = scope_mul_number(&s, w, 1 - lr * a->weight_decay);
    if (a->weight_decay != 0 && !a->decoupled) g = scope_scaled_sum(&s, g, w, a->weight_decay);
    tn_tensor *mean = scope_scaled_sum(&s, m, scope_sub(&s, g, m), 1 - a->beta1);
    tn_tensor *square = scope_mul_number(&s, v, a->beta2);
    square = scope_scaled_sum(&s, square, scope_square(&s, g), 1 - a->beta2);
    scope_assign(&s, m, mean);
    scope_assign(&s, v, square);
    if (a->amsgrad) {
        tn_tensor *top = tni_t(a->max_exp_avg_sqs.v[i]);
        square = scope_binary(&s, tn_maximum, top, square);
        scope_assign(&s, top, square);
    }
    tn_tensor *under =
        scope_true_divide(&s, scope_unary(&s, tn_sqrt, square), scope_unary(&s, tn_sqrt, second));
    tn_tensor *d = scope_true_divide(&s, mean, scope_add_number(&s, under, a->eps));
    scope_assign(&s, w, scope_scaled_sum(&s, p, scope_true_divide(&s, d, first), -lr));
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite__adam_step(const void *args, tn_tensor **rets) {
    const tn__adam_step_args *a = args;
    tn_status st = TN_OK;
    double lr;
    (void)rets;
    TN_TRY(tni_rate_of(a->lr, a->rate, &lr));
    tni_grad_off();
    for (int64_t i = 0; i < a->params.n && st == TN_OK; i++) st = adam_one(a, lr, i);
    tni_grad_on();
    return st;
}
