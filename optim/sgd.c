/* sgd.c: gradient descent with momentum over lists of tensors. */
#include <math.h>

#include <tenon/args_optim.h>
#include <tenon/ops_optim.h>
#include <tenon/optim.h>

#include "multi_priv.h"
#include "op_optim.h"
#include "scope_priv.h"

static tn_status update(tn_tensors params, tn_tensors grads, tn_tensors momenta,
                        const tn_view *rate, const tn_sgd_options *o) {
    tn_tensors none = {NULL, 0};
    bool uses = o->momentum != 0.0;
    if (uses && momenta.n != params.n)
        return tn_fail(TN_E_VALUE, -1, "sgd: %lld momentum buffers for %lld parameters",
                       (long long)momenta.n, (long long)params.n);
    if (grads.n != params.n)
        return tn_fail(TN_E_VALUE, -1, "sgd: %lld gradients for %lld parameters",
                       (long long)grads.n, (long long)params.n);
    tni_multi m = {
        .op = "sgd",
        .role = {{"parameters", tni_multi_views(params), true, false},
                 {"gradients", tni_multi_views(grads), false, false},
                 {"momentum buffers", tni_multi_views(uses ? momenta : none), true, false}},
        .roles = 3};
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        tn_tensor *there = NULL;
        double lr = o->lr;
        end = tni_multi_run_end(&m, i);
        st = tni_multi_rate(&m, rate, m.role[0].in.v[i], NULL, &lr, &there);
        if (st == TN_OK)
            st = tn__sgd_step(tni_multi_slice(&m, 0, i, end), tni_multi_slice(&m, 1, i, end),
                              tni_multi_slice(&m, 2, i, end), lr, o->momentum, o->dampening,
                              o->weight_decay, o->nesterov, o->maximize, o->first, there);
        tn_tensor_unref(&there);
    }
    return tni_multi_end(&m, st);
}

tn_status tn_sgd_update(tn_tensors params, tn_tensors grads, tn_tensors momenta,
                        const tn_sgd_options *o) {
    if (!o) return tn_fail(TN_E_TYPE, 3, "sgd: the options are NULL");
    return update(params, grads, momenta, NULL, o);
}

tn_status tni_composite__sgd_(const void *args, tn_tensor **rets) {
    const tn__sgd__args *a = args;
    (void)rets;
    tn_sgd_options o = {.lr = a->lr,
                        .momentum = a->momentum,
                        .dampening = a->dampening,
                        .weight_decay = a->weight_decay,
                        .nesterov = a->nesterov != 0,
                        .maximize = a->maximize != 0,
                        .first = a->first != 0};
    return update(tni_tensors_of(a->params), tni_tensors_of(a->grads), tni_tensors_of(a->momenta),
                  a->rate, &o);
}

tn_status tni_infer__sgd_step(tn_infer *inf, const void *args) {
    const tn__sgd_step_args *a = args;
    if (a->momentum != 0.0 && a->momenta.n != a->params.n)
        return tn_fail(TN_E_VALUE, 2, "sgd: momentum needs a buffer for each parameter");
    if (a->grads.n != a->params.n)
        return tn_fail(TN_E_VALUE, 1, "sgd: a gradient is needed for each parameter");
    tni_multi m = {.role = {{"parameters", a->params, true, false},
                            {"gradients", a->grads, false, false},
                            {"momentum buffers", a->momenta, true, false}},
                   .roles = 3};
    TN_TRY(tni_multi_infer(inf, &m));
    return tni_multi_check_rate(&m, a->rate, a->params.v[0], NULL);
}

/* ---- SGD ---------------------------------------------------------------------------------------*/

static tn_status sgd_one(const tn__sgd_step_args *a, double lr, int64_t i) {
    tni_scope s = {0};
    tn_tensor *w = tni_t(a->params.v[i]);
    tn_tensor *d = scope_mul_number(&s, tni_t(a->grads.v[i]), a->maximize ? -1 : 1);
    if (a->weight_decay != 0) d = scope_scaled_sum(&s, d, w, a->weight_decay);
    if (a->momentum != 0) {
        tn_tensor *b = tni_t(a->momenta.v[i]), *m = d;
        if (!a->first) {
            m = scope_mul_number(&s, b, a->momentum);
            m = scope_scaled_sum(&s, m, d, 1 - a->dampening);
        }
        scope_assign(&s, b, m);
        d = a->nesterov ? scope_scaled_sum(&s, d, m, a->momentum) : m;
    }
    scope_assign(&s, w, scope_scaled_sum(&s, w, d, -lr));
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite__sgd_step(const void *args, tn_tensor **rets) {
    const tn__sgd_step_args *a = args;
    tn_status st = TN_OK;
    double lr;
    (void)rets;
    TN_TRY(tni_rate_of(a->lr, a->rate, &lr));
    tni_grad_off();
    for (int64_t i = 0; i < a->params.n && st == TN_OK; i++) st = sgd_one(a, lr, i);
    tni_grad_on();
    return st;
}
