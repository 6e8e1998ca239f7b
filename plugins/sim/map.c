/* map.c: pointwise kernels. An operator is a row with its formula for real numbers, the one for
 * whole numbers, or both; one loop serves them all. x holds the operands, p the operator's number. */
#include "kernels.h"

#include <math.h>
#include <string.h>

#include <tenon/op_args.h>

typedef struct formula {
    const char *op;
    uint64_t sig;
    double (*real)(const double *x, double p);
    int64_t (*whole)(const int64_t *x, int64_t p);
    int on_bool;     /* the formula for whole numbers serves bool as well */
    uint32_t number; /* where the argument struct holds p, a tn_scalar; 0: nowhere */
} formula;

/* ---- Real numbers ------------------------------------------------------------------------------*/

static double add(const double *x, double p) { return x[0] + p * x[1]; }
static double sub(const double *x, double p) { return x[0] - p * x[1]; }
static double rsub(const double *x, double p) { return x[1] - p * x[0]; }
static double mul(const double *x, double p) { return (void)p, x[0] * x[1]; }
static double divide(const double *x, double p) { return (void)p, x[0] / x[1]; }
static double negate(const double *x, double p) { return (void)p, -x[0]; }
static double magnitude(const double *x, double p) { return (void)p, fabs(x[0]); }
static double square(const double *x, double p) { return (void)p, x[0] * x[0]; }
static double exponential(const double *x, double p) { return (void)p, exp(x[0]); }
static double logarithm(const double *x, double p) { return (void)p, log(x[0]); }
static double root(const double *x, double p) { return (void)p, sqrt(x[0]); }
static double inverse_root(const double *x, double p) { return (void)p, 1 / sqrt(x[0]); }
static double reciprocal(const double *x, double p) { return (void)p, 1 / x[0]; }
static double hyperbolic_tangent(const double *x, double p) { return (void)p, tanh(x[0]); }
static double tanh_backward(const double *x, double p) { return (void)p, x[0] * (1 - x[1] * x[1]); }
static double sigmoid(const double *x, double p) { return (void)p, 1 / (1 + exp(-x[0])); }
static double sigmoid_backward(const double *x, double p) {
    return (void)p, x[0] * x[1] * (1 - x[1]);
}
static double relu(const double *x, double p) { return (void)p, x[0] <= 0 ? 0 : x[0]; }
static double relu_backward(const double *x, double p) { return (void)p, x[1] <= 0 ? 0 : x[0]; }
static double leaky_relu(const double *x, double p) { return x[0] > 0 ? x[0] : x[0] * p; }
static double sine(const double *x, double p) { return (void)p, sin(x[0]); }
static double cosine(const double *x, double p) { return (void)p, cos(x[0]); }
static double error_function(const double *x, double p) { return (void)p, erf(x[0]); }
static double power(const double *x, double p) { return (void)p, pow(x[0], x[1]); }
static double larger(const double *x, double p) {
    return (void)p, x[0] > x[1] || x[0] != x[0] ? x[0] : x[1];
}
static double smaller(const double *x, double p) {
    return (void)p, x[0] < x[1] || x[0] != x[0] ? x[0] : x[1];
}
static double choose(const double *x, double p) { return (void)p, x[0] != 0 ? x[1] : x[2]; }
static double masked_fill(const double *x, double p) { return (void)p, x[1] != 0 ? x[2] : x[0]; }
static double lerp(const double *x, double p) {
    double d = x[1] - x[0];
    return (void)p, fabs(x[2]) < 0.5 ? x[0] + x[2] * d : x[1] - d * (1 - x[2]);
}
static double addcmul(const double *x, double p) { return x[0] + p * x[1] * x[2]; }
static double addcdiv(const double *x, double p) { return x[0] + p * x[1] / x[2]; }
static double equal(const double *x, double p) { return (void)p, x[0] == x[1]; }
static double unequal(const double *x, double p) { return (void)p, x[0] != x[1]; }
static double less(const double *x, double p) { return (void)p, x[0] < x[1]; }
static double at_most(const double *x, double p) { return (void)p, x[0] <= x[1]; }
static double greater(const double *x, double p) { return (void)p, x[0] > x[1]; }
static double at_least(const double *x, double p) { return (void)p, x[0] >= x[1]; }

/* ---- Whole numbers; they wrap ------------------------------------------------------------------*/

static int64_t whole_mul(const int64_t *x, int64_t p) {
    return (void)p, (int64_t)((uint64_t)x[0] * (uint64_t)x[1]);
}
static int64_t whole_add(const int64_t *x, int64_t p) {
    return (int64_t)((uint64_t)x[0] + (uint64_t)p * (uint64_t)x[1]);
}
static int64_t whole_sub(const int64_t *x, int64_t p) {
    return (int64_t)((uint64_t)x[0] - (uint64_t)p * (uint64_t)x[1]);
}
static int64_t whole_rsub(const int64_t *x, int64_t p) {
    return (int64_t)((uint64_t)x[1] - (uint64_t)p * (uint64_t)x[0]);
}
static int64_t whole_negate(const int64_t *x, int64_t p) {
    return (void)p, (int64_t)(0 - (uint64_t)x[0]);
}
static int64_t whole_abs(const int64_t *x, int64_t p) {
    return x[0] < 0 ? whole_negate(x, p) : x[0];
}
static int64_t whole_square(const int64_t *x, int64_t p) {
    return (void)p, (int64_t)((uint64_t)x[0] * (uint64_t)x[0]);
}
static int64_t whole_relu(const int64_t *x, int64_t p) { return (void)p, x[0] < 0 ? 0 : x[0]; }
static int64_t whole_larger(const int64_t *x, int64_t p) {
    return (void)p, x[0] > x[1] ? x[0] : x[1];
}
static int64_t whole_smaller(const int64_t *x, int64_t p) {
    return (void)p, x[0] < x[1] ? x[0] : x[1];
}
static int64_t whole_choose(const int64_t *x, int64_t p) { return (void)p, x[0] ? x[1] : x[2]; }
static int64_t whole_masked_fill(const int64_t *x, int64_t p) {
    return (void)p, x[1] ? x[2] : x[0];
}
static int64_t whole_equal(const int64_t *x, int64_t p) { return (void)p, x[0] == x[1]; }
static int64_t whole_unequal(const int64_t *x, int64_t p) { return (void)p, x[0] != x[1]; }
static int64_t whole_less(const int64_t *x, int64_t p) { return (void)p, x[0] < x[1]; }
static int64_t whole_at_most(const int64_t *x, int64_t p) { return (void)p, x[0] <= x[1]; }
static int64_t whole_greater(const int64_t *x, int64_t p) { return (void)p, x[0] > x[1]; }
static int64_t whole_at_least(const int64_t *x, int64_t p) { return (void)p, x[0] >= x[1]; }
static int64_t both(const int64_t *x, int64_t p) { return (void)p, x[0] && x[1]; }
static int64_t either(const int64_t *x, int64_t p) { return (void)p, x[0] || x[1]; }
static int64_t neither(const int64_t *x, int64_t p) { return (void)p, !x[0]; }

/* ---- The loop ----------------------------------------------------------------------------------*/

static void run_map(sim_work *w) {
    const formula *f = w->row;
    const tn_plan *p = &w->plan;
    int n = p->noperands - 1;
    sim_walk at;
    sim_walk_start(p, &at);
    do {
        double x[SIM_OPERANDS];
        int64_t k[SIM_OPERANDS];
        if (sim_is_float(w->dtype)) {
            for (int i = 0; i < n; i++) x[i] = sim_load(p->dtype[i + 1], at.at[i + 1]);
            sim_store(p->dtype[0], at.at[0], f->real(x, w->real[0]));
        } else {
            for (int i = 0; i < n; i++) k[i] = sim_load_whole(p->dtype[i + 1], at.at[i + 1]);
            sim_store_whole(p->dtype[0], at.at[0], f->whole(k, w->whole[0]));
        }
    } while (sim_walk_next(p, &at, SIM_ALL_DIMS));
}

static tn_status launch_map(const tn_call *call, const void *args) {
    const formula *f = call->ctx;
    const tn_plan *plan = *(const tn_plan *const *)args;
    sim_work *w = sim_launch(call, run_map);
    if (!w) return TN_E_MEMORY;
    if (f->number) {
        const tn_scalar *p = (const void *)((const char *)args + f->number);
        w->real[0] = p->re;
        w->whole[0] = p->i;
    }
    sim_give_plan(w, plan);
    return sim_go(call, w);
}

/* ---- Rows --------------------------------------------------------------------------------------*/

static const formula formulas[] = {
    {"add", TN_SIG_add, add, whole_add, 0, offsetof(tn_add_args, alpha)},
    {"sub", TN_SIG_sub, sub, whole_sub, 0, offsetof(tn_sub_args, alpha)},
    {"rsub", TN_SIG_rsub, rsub, whole_rsub, 0, offsetof(tn_rsub_args, alpha)},
    {"mul", TN_SIG_mul, mul, whole_mul, 1, 0},
    {"_mul_conj", TN_SIG__mul_conj, mul, whole_mul, 1, 0},
    {"true_divide", TN_SIG_true_divide, divide, NULL, 0, 0},
    {"_div_conj", TN_SIG__div_conj, divide, NULL, 0, 0},
    {"neg", TN_SIG_neg, negate, whole_negate, 0, 0},
    {"abs", TN_SIG_abs, magnitude, whole_abs, 0, 0},
    {"square", TN_SIG_square, square, whole_square, 0, 0},
    {"exp", TN_SIG_exp, exponential, NULL, 0, 0},
    {"log", TN_SIG_log, logarithm, NULL, 0, 0},
    {"sqrt", TN_SIG_sqrt, root, NULL, 0, 0},
    {"rsqrt", TN_SIG_rsqrt, inverse_root, NULL, 0, 0},
    {"reciprocal", TN_SIG_reciprocal, reciprocal, NULL, 0, 0},
    {"tanh", TN_SIG_tanh, hyperbolic_tangent, NULL, 0, 0},
    {"_tanh_backward", TN_SIG__tanh_backward, tanh_backward, NULL, 0, 0},
    {"sigmoid", TN_SIG_sigmoid, sigmoid, NULL, 0, 0},
    {"_sigmoid_backward", TN_SIG__sigmoid_backward, sigmoid_backward, NULL, 0, 0},
    {"relu", TN_SIG_relu, relu, whole_relu, 0, 0},
    {"_relu_backward", TN_SIG__relu_backward, relu_backward, NULL, 0, 0},
    {"leaky_relu", TN_SIG_leaky_relu, leaky_relu, NULL, 0,
     offsetof(tn_leaky_relu_args, negative_slope)},
    {"sin", TN_SIG_sin, sine, NULL, 0, 0},
    {"cos", TN_SIG_cos, cosine, NULL, 0, 0},
    {"erf", TN_SIG_erf, error_function, NULL, 0, 0},
    {"pow", TN_SIG_pow, power, NULL, 0, 0},
    {"maximum", TN_SIG_maximum, larger, whole_larger, 1, 0},
    {"minimum", TN_SIG_minimum, smaller, whole_smaller, 1, 0},
    {"clamp_min", TN_SIG_clamp_min, larger, whole_larger, 1, 0},
    {"clamp_max", TN_SIG_clamp_max, smaller, whole_smaller, 1, 0},
    {"eq", TN_SIG_eq, equal, whole_equal, 1, 0},
    {"ne", TN_SIG_ne, unequal, whole_unequal, 1, 0},
    {"lt", TN_SIG_lt, less, whole_less, 1, 0},
    {"le", TN_SIG_le, at_most, whole_at_most, 1, 0},
    {"gt", TN_SIG_gt, greater, whole_greater, 1, 0},
    {"ge", TN_SIG_ge, at_least, whole_at_least, 1, 0},
    {"logical_and", TN_SIG_logical_and, NULL, both, 1, 0},
    {"logical_or", TN_SIG_logical_or, NULL, either, 1, 0},
    {"logical_not", TN_SIG_logical_not, NULL, neither, 1, 0},
    {"where", TN_SIG_where, choose, whole_choose, 1, 0},
    {"masked_fill", TN_SIG_masked_fill, masked_fill, whole_masked_fill, 1, 0},
    {"lerp", TN_SIG_lerp, lerp, NULL, 0, 0},
    {"addcmul", TN_SIG_addcmul, addcmul, NULL, 0, offsetof(tn_addcmul_args, value)},
    {"addcdiv", TN_SIG_addcdiv, addcdiv, NULL, 0, offsetof(tn_addcdiv_args, value)},
};

const void *sim_formula_find(const char *op) {
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++)
        if (strcmp(formulas[i].op, op) == 0 && formulas[i].real) return &formulas[i];
    return NULL;
}

double sim_formula_number(const void *of, const void *args) {
    const formula *f = of;
    if (!f->number) return 1;
    return ((const tn_scalar *)(const void *)((const char *)args + f->number))->re;
}

double sim_formula_real(const void *of, const double *x, double number) {
    return ((const formula *)of)->real(x, number);
}

void sim_register_map(sim_registrar *r) {
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        const formula *f = &formulas[i];
        if (f->real) sim_register_floats(r, f->op, f->sig, launch_map, f);
        if (f->whole) sim_register(r, f->op, f->sig, launch_map, f, TN_I64);
        if (f->on_bool) sim_register(r, f->op, f->sig, launch_map, f, TN_BOOL);
    }
}
