/* lists.c: changes of lists of tensors, element by element. What each is says the entry of `_lists_`. */
#include <tenon/args_optim.h>
#include <tenon/ops_create.h>
#include <tenon/ops_optim.h>

#include "multi_priv.h"
#include "op_optim.h"
#include "scope_priv.h"

static const struct {
    const char *name;
    int others; /* how many further lists it takes */
} changes[] = {
    [TN_LISTS_STEP_FILL] = {"fill", 0},       [TN_LISTS_STEP_SCALE] = {"scale", 0},
    [TN_LISTS_STEP_DIVIDE] = {"divide", 0},   [TN_LISTS_STEP_SHIFT] = {"shift", 0},
    [TN_LISTS_STEP_COPY] = {"copy", 1},       [TN_LISTS_STEP_ADD] = {"add", 1},
    [TN_LISTS_STEP_MUL] = {"mul", 1},         [TN_LISTS_STEP_LERP] = {"lerp", 1},
    [TN_LISTS_STEP_ADDCMUL] = {"addcmul", 2}, [TN_LISTS_STEP_ADDCDIV] = {"addcdiv", 2},
};

static tni_multi lists_of(tn_views tensors, tn_views second, tn_views third) {
    tni_multi m = {.op = "_lists_",
                   .role = {{"tensors", tensors, true, false},
                            {"second", second, false, false},
                            {"third", third, false, false}},
                   .roles = 3};
    return m;
}

static tn_status check_lengths(const tni_multi *m, int64_t how) {
    for (int k = 1; k < m->roles; k++) {
        int64_t n = m->role[k].in.n, wanted = k <= changes[how].others ? m->role[0].in.n : 0;
        if (n != wanted)
            return tn_fail(TN_E_VALUE, k, "%s: '%s' takes %lld tensors in %s, not %lld", m->op,
                           changes[how].name, (long long)wanted, m->role[k].name, (long long)n);
    }
    return TN_OK;
}

tn_status tni_composite__lists_(const void *args, tn_tensor **rets) {
    const tn__lists__args *a = args;
    tni_multi m = lists_of(a->tensors, a->second, a->third);
    int64_t how = 0;
    (void)rets;
    while (how < TN_COUNT(changes) && strcmp(a->how, changes[how].name) != 0) how++;
    if (how == TN_COUNT(changes))
        return tn_fail(TN_E_VALUE, 3, "_lists_(): there is no change '%s'", a->how);
    TN_TRY(check_lengths(&m, how));
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        end = tni_multi_run_end(&m, i);
        st = tn__lists_step(tni_multi_slice(&m, 0, i, end), tni_multi_slice(&m, 1, i, end),
                            tni_multi_slice(&m, 2, i, end), how, a->value);
    }
    return tni_multi_end(&m, st);
}

tn_status tni_infer__lists_step(tn_infer *inf, const void *args) {
    const tn__lists_step_args *a = args;
    tni_multi m = lists_of(a->tensors, a->second, a->third);
    if (a->how < 0 || a->how >= TN_COUNT(changes))
        return tn_fail(TN_E_VALUE, 3, "_lists_step: there is no change %lld", (long long)a->how);
    TN_TRY(tni_multi_infer(inf, &m));
    return check_lengths(&m, a->how);
}

/* ---- Out of simpler operators ------------------------------------------------------------------*/

static tn_tensor *changed(tni_scope *s, int64_t how, double value, tn_tensor *x, tn_tensor *a,
                          tn_tensor *b) {
    tn_scalar_box box;
    tn_tensor *number = tn_scalar_box_init(&box, tn_scalar_float(value));
    switch (how) {
    case TN_LISTS_STEP_SCALE: return scope_mul_number(s, x, value);
    case TN_LISTS_STEP_DIVIDE: return scope_true_divide(s, x, number);
    case TN_LISTS_STEP_SHIFT: return scope_add_number(s, x, value);
    case TN_LISTS_STEP_ADD: return scope_add(s, x, scope_mul_number(s, a, value));
    case TN_LISTS_STEP_MUL: return scope_mul(s, x, a);
    case TN_LISTS_STEP_LERP: return scope_add(s, x, scope_mul_number(s, scope_sub(s, a, x), value));
    case TN_LISTS_STEP_ADDCMUL:
        return scope_add(s, x, scope_mul(s, scope_mul_number(s, a, value), b));
    case TN_LISTS_STEP_ADDCDIV:
        return scope_add(s, x, scope_true_divide(s, scope_mul_number(s, a, value), b));
    default: return a;
    }
}

static tn_status change_one(const tn__lists_step_args *a, int64_t i) {
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->tensors.v[i]), *same = NULL;
    tn_tensor *second = a->second.n > 0 ? tni_t(a->second.v[i]) : NULL;
    tn_tensor *third = a->third.n > 0 ? tni_t(a->third.v[i]) : NULL;
    if (a->how == TN_LISTS_STEP_FILL) {
        s.st = tn_fill_(x, tn_scalar_float(a->value), &same);
    } else {
        tn_tensor *y = changed(&s, a->how, a->value, x, second, third);
        if (s.st == TN_OK) s.st = tn_copy_(x, y, 0, &same);
    }
    tn_tensor_unref(&same);
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite__lists_step(const void *args, tn_tensor **rets) {
    const tn__lists_step_args *a = args;
    tn_status st = TN_OK;
    (void)rets;
    tni_grad_off();
    for (int64_t i = 0; i < a->tensors.n && st == TN_OK; i++) st = change_one(a, i);
    tni_grad_on();
    return st;
}
