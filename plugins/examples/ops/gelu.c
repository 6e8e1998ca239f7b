/* gelu.c: an operator in C, x * Phi(x), with its derivative as an operator of its own.
 *
 * Written here: the functions of one number, a kernel per dtype, and how each is derived.
 * Broadcasting, strides, other dtypes (float16 by way of float32), memory, recording and devices are
 * Tenon's. */
#include <math.h>

#include <tenon/plugin.h>

/* gelu(x) = x * cdf(x); its derivative is cdf(x) + x * pdf(x). */
static double cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
static double pdf(double x) { return 0.39894228040143268 * exp(-0.5 * x * x); }
static double gelu(double x) { return x * cdf(x); }
static double slope(double x) { return cdf(x) + x * pdf(x); }

/* The arguments of f(Tensor input) -> Tensor: the plan, what goes in, what comes out. */
typedef struct unary_args {
    const tn_plan *plan;
    const tn_view *input;
    tn_view *out;
} unary_args;

/* One kernel per dtype serves both operators: `ctx`, a part of its row, is the function. */
typedef struct function {
    double (*of)(double);
} function;

static tn_status unary_f32(const tn_call *call, const void *args) {
    const function *f = (const function *)call->ctx;
    tn_rows r;
    for (tn_rows_start(&r, ((const unary_args *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = (float)f->of(*TN_ROW(const float, r, 1, i));
    return TN_OK;
}

static tn_status unary_f64(const tn_call *call, const void *args) {
    const function *f = (const function *)call->ctx;
    tn_rows r;
    for (tn_rows_start(&r, ((const unary_args *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(double, r, 0, i) = f->of(*TN_ROW(const double, r, 1, i));
    return TN_OK;
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    static function forward = {gelu}, backward = {slope};
    static const tn_op_desc ops[] = {
        {.struct_size = sizeof(tn_op_desc),
         .kind = TN_OP_POINTWISE,
         .args_bytes = sizeof(unary_args),
         .schema = "example::gelu(Tensor input) -> Tensor",
         .dtype = "float", /* integers become the default float */
         .gradient = "input: grad * example::gelu_slope(input)",
         .doc = "The Gaussian error linear unit."},
        {.struct_size = sizeof(tn_op_desc),
         .kind = TN_OP_POINTWISE,
         .args_bytes = sizeof(unary_args),
         .schema = "example::gelu_slope(Tensor input) -> Tensor",
         .dtype = "float",
         .gradient = /* made of operators that are there, so it can be derived again */
         "input: grad * (2 - input ** 2) * exp(-0.5 * input ** 2) * 0.39894228040143268",
         .doc = "The derivative of gelu."},
    };
    const tn_kernel_row rows[] = {
        {.op = "example::gelu", .fn = unary_f32, .ctx = &forward, .dtype = TN_F32},
        {.op = "example::gelu", .fn = unary_f64, .ctx = &forward, .dtype = TN_F64},
        {.op = "example::gelu_slope", .fn = unary_f32, .ctx = &backward, .dtype = TN_F32},
        {.op = "example::gelu_slope", .fn = unary_f64, .ctx = &backward, .dtype = TN_F64},
    };
    tn_status st = host->register_op(txn, &ops[0]);
    if (st == TN_OK) st = host->register_op(txn, &ops[1]);
    return st == TN_OK ? host->register_kernels(txn, 0, rows, sizeof rows[0], 4) : st; /* 0: CPU */
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "example", "0.1.0", "gelu in C", activate);
}
