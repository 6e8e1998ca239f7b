/* rule.c: RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, ASGD and Rprop over lists of tensors. What
 * each list and number is for which rule says the entry of `_rule_` (dispatch/ops/optim.toml). */
#include <tenon/args_optim.h>
#include <tenon/ops.h>

#include "capture_priv.h"
#include "multi_priv.h"

tn_status tni_composite__rule_(const void *args, tn_tensor **rets);
tn_status tni_infer__rule_step(tn_infer *inf, const void *args);

enum { STATES = 3 };

static const struct {
    const char *name;
    int states;    /* lists of state that must be there, the first ones */
    int counters;  /* how many of them, the last ones, hold a number for each tensor */
    bool optional; /* further lists may be there */
    bool counts;   /* the step depends on how many there were */
} rules[] = {
    [TN_RULE_STEP_RMSPROP] = {"rmsprop", 1, 0, true, false},
    [TN_RULE_STEP_ADAGRAD] = {"adagrad", 1, 0, false, true},
    [TN_RULE_STEP_ADADELTA] = {"adadelta", 2, 0, false, false},
    [TN_RULE_STEP_ADAMAX] = {"adamax", 2, 0, false, true},
    [TN_RULE_STEP_NADAM] = {"nadam", 3, 1, false, true},
    [TN_RULE_STEP_RADAM] = {"radam", 2, 0, false, true},
    [TN_RULE_STEP_ASGD] = {"asgd", 3, 2, false, true},
    [TN_RULE_STEP_RPROP] = {"rprop", 2, 0, false, false},
};

static tni_multi lists_of(int64_t rule, tn_views params, tn_views grads, const tn_views *state,
                          tn_views steps) {
    static const char *const names[STATES] = {"first states", "second states", "third states"};
    tni_multi m = {
        .op = rules[rule].name,
        .role = {{"parameters", params, true, false}, {"gradients", grads, false, false}},
        .roles = STATES + 3};
    for (int k = 0; k < STATES; k++) {
        bool counter = k < rules[rule].states && k >= rules[rule].states - rules[rule].counters;
        m.role[2 + k] = (tni_role){names[k], state[k], true, counter};
    }
    m.role[2 + STATES] = (tni_role){"steps", steps, true, true};
    return m;
}

/* Whether each parameter has what its step needs. */
static tn_status check_lists(const tni_multi *m, int64_t rule) {
    const tn_views *steps = &m->role[2 + STATES].in;
    for (int k = 0; k < m->roles; k++) {
        const tni_role *r = &m->role[k];
        bool state = k >= 2 && k < 2 + STATES, needed = !state || k - 2 < rules[rule].states;
        if (needed ? r->in.n != m->role[0].in.n : r->in.n != 0 && !rules[rule].optional)
            return tn_fail(TN_E_VALUE, k, "%s: %lld %s for %lld parameters", m->op,
                           (long long)r->in.n, r->name, (long long)m->role[0].in.n);
        for (int64_t i = 0; r->counter && i < r->in.n; i++)
            if (r->in.v[i] && steps->n > i && steps->v[i] &&
                ((r->in.v[i]->word ^ steps->v[i]->word) & TN_W_ALIKE))
                return tn_fail(TN_E_DEVICE, k,
                               "%s: %s[%lld] must have the dtype and the device of its step", m->op,
                               r->name, (long long)i);
    }
    return TN_OK;
}

static tn_status rule_of(const char *name, int64_t *ret_rule) {
    for (int64_t i = 0; i < TN_COUNT(rules); i++) {
        if (strcmp(name, rules[i].name) != 0) continue;
        *ret_rule = i;
        return TN_OK;
    }
    return tn_fail(TN_E_VALUE, 6, "_rule_(): there is no rule '%s'", name);
}

tn_status tni_composite__rule_(const void *args, tn_tensor **rets) {
    const tn__rule__args *a = args;
    const tn_views state[STATES] = {a->first, a->second, a->third};
    int64_t rule = 0;
    (void)rets;
    TN_TRY(rule_of(a->rule, &rule));
    tni_multi m = lists_of(rule, a->params, a->grads, state, a->steps);
    TN_TRY(check_lists(&m, rule));
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        tn_tensor *rate = NULL;
        double lr = a->lr;
        end = tni_multi_run_end(&m, i);
        st = tni_multi_rate(&m, a->rate, a->params.v[i], a->steps.v[i], &lr, &rate);
        if (st == TN_OK)
            st = tn__rule_step(tni_multi_slice(&m, 0, i, end), tni_multi_slice(&m, 1, i, end),
                               tni_multi_slice(&m, 2, i, end), tni_multi_slice(&m, 3, i, end),
                               tni_multi_slice(&m, 4, i, end), tni_multi_slice(&m, 5, i, end), rule,
                               lr, a->a, a->b, a->c, a->d, a->eps, a->weight_decay, a->maximize,
                               a->decoupled, rate);
        tn_tensor_unref(&rate);
    }
    return tni_multi_end(&m, st);
}

tn_status tni_infer__rule_step(tn_infer *inf, const void *args) {
    const tn__rule_step_args *a = args;
    const tn_views state[STATES] = {a->first, a->second, a->third};
    if (a->rule < 0 || a->rule >= TN_COUNT(rules))
        return tn_fail(TN_E_VALUE, 6, "_rule_step: there is no rule %lld", (long long)a->rule);
    tni_multi m = lists_of(a->rule, a->params, a->grads, state, a->steps);
    TN_TRY(tni_multi_infer(inf, &m));
    m.op = rules[a->rule].name;
    TN_TRY(check_lists(&m, a->rule));
    TN_TRY(tni_multi_check_rate(&m, a->rate, a->params.v[0], a->steps.v[0]));
    if (!rules[a->rule].counts || (a->rule == TN_RULE_STEP_ADAGRAD && a->a == 0.0)) return TN_OK;
    return tni_multi_check_capture(&m, a->params.v[0], a->steps.v[0]);
}
