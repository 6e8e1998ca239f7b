/* rule.c: RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, ASGD and Rprop over lists of tensors. What
 * each list and number is for which rule says the entry of `_rule_` (dispatch/ops/optim.toml). */
#include <math.h>

#include <tenon/args_optim.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_optim.h>
#include <tenon/ops_pointwise.h>

#include "multi_priv.h"
#include "op_optim.h"
#include "scope_priv.h"

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

/* ---- The other rules ---------------------------------------------------------------------------*/

/* One parameter on its way. */
typedef struct rule_job {
    tni_scope s;
    const tn__rule_step_args *a;
    double lr;
    tn_tensor *w, *g;
    tn_tensor *state[3], *steps;
} rule_job;

static tn_tensor *lerp(tni_scope *s, tn_tensor *x, tn_tensor *end, double toward) {
    return scope_scaled_sum(s, x, scope_sub(s, end, x), toward);
}

/* A running mean of squares, kept. */
static tn_tensor *squares(tni_scope *s, tn_tensor *mean, tn_tensor *x, double keep) {
    tn_tensor *r = scope_mul_number(s, mean, keep);
    r = scope_scaled_sum(s, r, scope_square(s, x), 1 - keep);
    scope_assign(s, mean, r);
    return r;
}

/* A running mean, kept. */
static tn_tensor *means(tni_scope *s, tn_tensor *mean, tn_tensor *x, double keep) {
    tn_tensor *r = lerp(s, mean, x, 1 - keep);
    scope_assign(s, mean, r);
    return r;
}

/* x / (sqrt(square) + eps) */
static tn_tensor *by_root(tni_scope *s, tn_tensor *x, tn_tensor *square, double eps) {
    tn_tensor *root = scope_unary(s, tn_sqrt, square);
    return scope_true_divide(s, x, scope_add_number(s, root, eps));
}

/* A number of the parameter's own: its count of steps, or one of its states. The host reads it: in a
 * capture each replay would find the same. */
static double number_of(rule_job *j, tn_tensor *t) {
    tn_scalar value = tn_scalar_float(0);
    if (j->s.st == TN_OK)
        j->s.st = tni_forbid(tn_tensor_device(j->w), "counting steps on the host", "_rule_step");
    if (j->s.st == TN_OK) j->s.st = tn_tensor_item(t, &value);
    return value.re;
}

static void set_number(rule_job *j, tn_tensor *t, double value) {
    tn_tensor *same = NULL;
    if (j->s.st == TN_OK) j->s.st = tn_fill_(t, tn_scalar_float(value), &same);
    tn_tensor_unref(&same);
}

static tn_tensor *rmsprop(rule_job *j) {
    tni_scope *s = &j->s;
    tn_tensor *square = squares(s, j->state[0], j->g, j->a->a);
    if (j->state[2]) {
        tn_tensor *mean = means(s, j->state[2], j->g, j->a->a);
        square = scope_sub(s, square, scope_square(s, mean));
    }
    tn_tensor *d = by_root(s, j->g, square, j->a->eps);
    if (j->state[1]) {
        d = scope_add(s, scope_mul_number(s, j->state[1], j->a->b), d);
        scope_assign(s, j->state[1], d);
    }
    return scope_mul_number(s, d, -j->lr);
}

static tn_tensor *adagrad(rule_job *j) {
    tni_scope *s = &j->s;
    tn_tensor *sum = scope_add(s, j->state[0], scope_square(s, j->g));
    scope_assign(s, j->state[0], sum);
    double rate = j->lr;
    if (j->a->a != 0) rate /= 1 + (number_of(j, j->steps) - 1) * j->a->a;
    return scope_mul_number(s, by_root(s, j->g, sum, j->a->eps), -rate);
}

static tn_tensor *adadelta(rule_job *j) {
    tni_scope *s = &j->s;
    tn_tensor *square = squares(s, j->state[0], j->g, j->a->a);
    tn_tensor *root = scope_unary(s, tn_sqrt, scope_add_number(s, square, j->a->eps));
    tn_tensor *d = scope_unary(s, tn_sqrt, scope_add_number(s, j->state[1], j->a->eps));
    d = scope_mul(s, scope_true_divide(s, d, root), j->g);
    squares(s, j->state[1], d, j->a->a);
    return scope_mul_number(s, d, -j->lr);
}

static tn_tensor *adamax(rule_job *j) {
    tni_scope *s = &j->s;
    tn_tensor *mean = means(s, j->state[0], j->g, j->a->a);
    tn_tensor *size = scope_add_number(s, scope_unary(s, tn_abs, j->g), j->a->eps);
    tn_tensor *most = scope_mul_number(s, j->state[1], j->a->b);
    most = scope_binary(s, tn_maximum, most, size);
    scope_assign(s, j->state[1], most);
    double rate = j->lr / (1 - pow(j->a->a, number_of(j, j->steps)));
    return scope_mul_number(s, scope_true_divide(s, mean, most), -rate);
}

static tn_tensor *nadam(rule_job *j) {
    tni_scope *s = &j->s;
    const tn__rule_step_args *a = j->a;
    double step = number_of(j, j->steps);
    double mu = a->a * (1 - 0.5 * pow(0.96, step * a->c));
    double next = a->a * (1 - 0.5 * pow(0.96, (step + 1) * a->c));
    double product = number_of(j, j->state[2]) * mu;
    set_number(j, j->state[2], product);
    tn_tensor *mean = means(s, j->state[0], j->g, a->a);
    tn_tensor *square = squares(s, j->state[1], j->g, a->b);
    square = scope_mul_number(s, square, 1 / (1 - pow(a->b, step)));
    tn_tensor *by_grad =
        scope_mul_number(s, by_root(s, j->g, square, a->eps), -j->lr * (1 - mu) / (1 - product));
    return scope_scaled_sum(s, by_grad, by_root(s, mean, square, a->eps),
                            -j->lr * next / (1 - product * next));
}

static tn_tensor *radam(rule_job *j) {
    tni_scope *s = &j->s;
    const tn__rule_step_args *a = j->a;
    tn_tensor *mean = means(s, j->state[0], j->g, a->a);
    tn_tensor *square = squares(s, j->state[1], j->g, a->b);
    double step = number_of(j, j->steps), power = pow(a->b, step);
    double longest = 2 / (1 - a->b) - 1, length = longest - 2 * step * power / (1 - power);
    double rate = j->lr / (1 - pow(a->a, step));
    if (!(length > 5)) return scope_mul_number(s, mean, -rate);
    double share = (length - 4) * (length - 2) * longest;
    double whole = (longest - 4) * (longest - 2) * length;
    rate *= sqrt(1 - power) * sqrt(share / whole);
    return scope_mul_number(s, by_root(s, mean, square, a->eps), -rate);
}

/* Moves the parameter by itself, since the average is of where that leads. */
static tn_tensor *asgd(rule_job *j) {
    tni_scope *s = &j->s;
    const tn__rule_step_args *a = j->a;
    double eta = number_of(j, j->state[1]), mu = number_of(j, j->state[2]);
    double step = number_of(j, j->steps);
    tn_tensor *change = scope_mul_number(s, j->g, -eta);
    change = scope_scaled_sum(s, change, j->w, -a->a * eta);
    tn_tensor *average = lerp(s, j->state[0], scope_add(s, j->w, change), mu);
    scope_assign(s, j->state[0], average);
    set_number(j, j->state[1], j->lr / pow(1 + a->a * j->lr * step, a->b));
    set_number(j, j->state[2], 1 / fmax(1, step - a->c));
    return change;
}

static tn_tensor *compare(tni_scope *s, tni_binary op, tn_tensor *x, double number) {
    tn_scalar_box box;
    return scope_binary(s, op, x, tn_scalar_box_init(&box, tn_scalar_float(number)));
}

static tn_tensor *rprop(rule_job *j) {
    tni_scope *s = &j->s;
    tn_scalar_box none;
    const tn__rule_step_args *a = j->a;
    tn_tensor *turn = scope_mul(s, j->g, j->state[0]), *size = j->state[1];
    tn_tensor *back = compare(s, tn_lt, turn, 0), *on = compare(s, tn_gt, turn, 0);
    size = scope_where(s, on, scope_mul_number(s, size, a->b),
                       scope_where(s, back, scope_mul_number(s, size, a->a), size));
    size = compare(s, tn_minimum, compare(s, tn_maximum, size, a->c), a->d);
    tn_tensor *g = scope_where(s, back, tn_scalar_box_init(&none, tn_scalar_float(0)), j->g);
    scope_assign(s, j->state[1], size);
    scope_assign(s, j->state[0], g);
    return scope_neg(s, scope_mul(s, scope_unary(s, tn_sign, g), size));
}

static tn_tensor *rule_change(rule_job *j) {
    switch (j->a->rule) {
    case TN_RULE_STEP_RMSPROP: return rmsprop(j);
    case TN_RULE_STEP_ADAGRAD: return adagrad(j);
    case TN_RULE_STEP_ADADELTA: return adadelta(j);
    case TN_RULE_STEP_ADAMAX: return adamax(j);
    case TN_RULE_STEP_NADAM: return nadam(j);
    case TN_RULE_STEP_RADAM: return radam(j);
    case TN_RULE_STEP_ASGD: return asgd(j);
    default: return rprop(j);
    }
}

static tn_status rule_one(const tn__rule_step_args *a, double lr, int64_t i) {
    const tn_views lists[3] = {a->first, a->second, a->third};
    rule_job j = {.a = a, .lr = lr, .w = tni_t(a->params.v[i]), .steps = tni_t(a->steps.v[i])};
    tni_scope *s = &j.s;
    for (int k = 0; k < 3; k++) j.state[k] = lists[k].n > 0 ? tni_t(lists[k].v[i]) : NULL;
    scope_assign(s, j.steps, scope_add_number(s, j.steps, 1));
    j.g = scope_mul_number(s, tni_t(a->grads.v[i]), a->maximize ? -1 : 1);
    tn_tensor *p = j.w;
    if (a->weight_decay != 0 && a->decoupled)
        p = scope_mul_number(s, p, 1 - lr * a->weight_decay);
    else if (a->weight_decay != 0)
        j.g = scope_scaled_sum(s, j.g, p, a->weight_decay);
    scope_assign(s, j.w, scope_add(s, p, rule_change(&j)));
    return scope_finish(s, NULL, NULL);
}

tn_status tni_composite__rule_step(const void *args, tn_tensor **rets) {
    const tn__rule_step_args *a = args;
    tn_status st = TN_OK;
    double lr;
    (void)rets;
    TN_TRY(tni_rate_of(a->lr, a->rate, &lr));
    tni_grad_off();
    for (int64_t i = 0; i < a->params.n && st == TN_OK; i++) st = rule_one(a, lr, i);
    tni_grad_on();
    return st;
}
