/* composite_rules.c: optimizer steps out of simpler operators, for devices that have kernels for these
 * parts and none for the whole. What each computes is stated at its kernels, backends/common/rules.h
 * and backends/cpu/ops/optim_tmpl.c. Counters of Adam are not read, so that a graph can hold its step; those
 * of the other rules are. */
#include <math.h>

#include "capture_priv.h"
#include "scope_priv.h"

tn_status tni_composite__sgd_step(const void *args, tn_tensor **rets);
tn_status tni_composite__adam_step(const void *args, tn_tensor **rets);
tn_status tni_composite__rule_step(const void *args, tn_tensor **rets);

/* ---- Pieces ------------------------------------------------------------------------------------*/

static tn_tensor *scaled_sum(tni_scope *s, tn_tensor *x, tn_tensor *y, double factor) {
    return scope_add(s, x, scope_mul_number(s, y, factor));
}

static void assign(tni_scope *s, tn_tensor *to, tn_tensor *value) {
    tn_tensor *same = NULL;
    if (s->st != TN_OK) return;
    s->st = tn_copy_(to, value, 0, &same);
    tn_tensor_unref(&same);
}

/* The learning rate of a call, which the host reads where it is a tensor. */
static tn_status rate_of(double lr, const tn_view *rate, double *ret_lr) {
    tn_scalar value = tn_scalar_float(lr);
    if (rate) TN_TRY(tn_tensor_item(tni_t(rate), &value));
    *ret_lr = value.re;
    return TN_OK;
}

/* ---- SGD ---------------------------------------------------------------------------------------*/

static tn_status sgd_one(const tn__sgd_step_args *a, double lr, int64_t i) {
    tni_scope s = {0};
    tn_tensor *w = tni_t(a->params.v[i]);
    tn_tensor *d = scope_mul_number(&s, tni_t(a->grads.v[i]), a->maximize ? -1 : 1);
    if (a->weight_decay != 0) d = scaled_sum(&s, d, w, a->weight_decay);
    if (a->momentum != 0) {
        tn_tensor *b = tni_t(a->momenta.v[i]), *m = d;
        if (!a->first) {
            m = scope_mul_number(&s, b, a->momentum);
            m = scaled_sum(&s, m, d, 1 - a->dampening);
        }
        assign(&s, b, m);
        d = a->nesterov ? scaled_sum(&s, d, m, a->momentum) : m;
    }
    assign(&s, w, scaled_sum(&s, w, d, -lr));
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite__sgd_step(const void *args, tn_tensor **rets) {
    const tn__sgd_step_args *a = args;
    tn_status st = TN_OK;
    double lr;
    (void)rets;
    TN_TRY(rate_of(a->lr, a->rate, &lr));
    tni_tls.no_grad++;
    for (int64_t i = 0; i < a->params.n && st == TN_OK; i++) st = sgd_one(a, lr, i);
    tni_tls.no_grad--;
    return st;
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
    assign(&s, steps, scope_add_number(&s, steps, 1));
    tn_tensor *step = beside(&s, steps, w); /* steps are counted on the CPU */
    tn_tensor *first = bias_correction(&s, step, a->beta1);
    tn_tensor *second = bias_correction(&s, step, a->beta2);
    if (a->weight_decay != 0 && a->decoupled) p = scope_mul_number(&s, w, 1 - lr * a->weight_decay);
    if (a->weight_decay != 0 && !a->decoupled) g = scaled_sum(&s, g, w, a->weight_decay);
    tn_tensor *mean = scaled_sum(&s, m, scope_sub(&s, g, m), 1 - a->beta1);
    tn_tensor *square = scope_mul_number(&s, v, a->beta2);
    square = scaled_sum(&s, square, scope_square(&s, g), 1 - a->beta2);
    assign(&s, m, mean);
    assign(&s, v, square);
    if (a->amsgrad) {
        tn_tensor *top = tni_t(a->max_exp_avg_sqs.v[i]);
        square = scope_binary(&s, tn_maximum, top, square);
        assign(&s, top, square);
    }
    tn_tensor *under =
        scope_true_divide(&s, scope_unary(&s, tn_sqrt, square), scope_unary(&s, tn_sqrt, second));
    tn_tensor *d = scope_true_divide(&s, mean, scope_add_number(&s, under, a->eps));
    assign(&s, w, scaled_sum(&s, p, scope_true_divide(&s, d, first), -lr));
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite__adam_step(const void *args, tn_tensor **rets) {
    const tn__adam_step_args *a = args;
    tn_status st = TN_OK;
    double lr;
    (void)rets;
    TN_TRY(rate_of(a->lr, a->rate, &lr));
    tni_tls.no_grad++;
    for (int64_t i = 0; i < a->params.n && st == TN_OK; i++) st = adam_one(a, lr, i);
    tni_tls.no_grad--;
    return st;
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
    return scaled_sum(s, x, scope_sub(s, end, x), toward);
}

/* A running mean of squares, kept. */
static tn_tensor *squares(tni_scope *s, tn_tensor *mean, tn_tensor *x, double keep) {
    tn_tensor *r = scope_mul_number(s, mean, keep);
    r = scaled_sum(s, r, scope_square(s, x), 1 - keep);
    assign(s, mean, r);
    return r;
}

/* A running mean, kept. */
static tn_tensor *means(tni_scope *s, tn_tensor *mean, tn_tensor *x, double keep) {
    tn_tensor *r = lerp(s, mean, x, 1 - keep);
    assign(s, mean, r);
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
        j->s.st =
            tni_capture_forbid(tn_tensor_device(j->w), "counting steps on the host", "_rule_step");
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
        assign(s, j->state[1], d);
    }
    return scope_mul_number(s, d, -j->lr);
}

static tn_tensor *adagrad(rule_job *j) {
    tni_scope *s = &j->s;
    tn_tensor *sum = scope_add(s, j->state[0], scope_square(s, j->g));
    assign(s, j->state[0], sum);
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
    assign(s, j->state[1], most);
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
    return scaled_sum(s, by_grad, by_root(s, mean, square, a->eps),
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
    change = scaled_sum(s, change, j->w, -a->a * eta);
    tn_tensor *average = lerp(s, j->state[0], scope_add(s, j->w, change), mu);
    assign(s, j->state[0], average);
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
    assign(s, j->state[1], size);
    assign(s, j->state[0], g);
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
    assign(s, j.steps, scope_add_number(s, j.steps, 1));
    j.g = scope_mul_number(s, tni_t(a->grads.v[i]), a->maximize ? -1 : 1);
    tn_tensor *p = j.w;
    if (a->weight_decay != 0 && a->decoupled)
        p = scope_mul_number(s, p, 1 - lr * a->weight_decay);
    else if (a->weight_decay != 0)
        j.g = scaled_sum(s, j.g, p, a->weight_decay);
    assign(s, j.w, scope_add(s, p, rule_change(&j)));
    return scope_finish(s, NULL, NULL);
}

tn_status tni_composite__rule_step(const void *args, tn_tensor **rets) {
    const tn__rule_step_args *a = args;
    tn_status st = TN_OK;
    double lr;
    (void)rets;
    TN_TRY(rate_of(a->lr, a->rate, &lr));
    tni_tls.no_grad++;
    for (int64_t i = 0; i < a->params.n && st == TN_OK; i++) st = rule_one(a, lr, i);
    tni_tls.no_grad--;
    return st;
}
