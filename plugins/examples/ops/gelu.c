/* gelu.c: an operator in C: x * Phi(x), its derivative as an operator of its own, and the second one.
 *
 *     cc -O3 -fPIC -shared $(tenon config --include) gelu.c -o gelu.so -lm
 *     >>> tn.load_library("gelu.so"); tn.ops.example.gelu(tn.randn(3, requires_grad=True))
 *
 * What is written here: the functions of one number, one kernel per dtype, and how each is derived.
 * Broadcasting, strides, other dtypes (float16 by way of float32), memory, recording and devices are
 * Tenon's. */
#include <math.h>

#include <tenon/plugin.h>

/* gelu(x) = x * cdf(x); its derivative is cdf(x) + x * pdf(x), and so on. */
static double cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
static double pdf(double x) { return 0.39894228040143268 * exp(-0.5 * x * x); }
static double gelu(double x) { return x * cdf(x); }
static double slope(double x) { return cdf(x) + x * pdf(x); }
static double bend(double x) { return (2 - x * x) * pdf(x); }

/* The argument struct of f(Tensor input) -> Tensor: the plan, the arguments, the results. */
typedef struct unary_args {
    const tn_plan *plan;
    const tn_view *input;
    tn_view *out;
} unary_args;

/* One kernel per dtype serves all three operators: `ctx`, a part of its row, is the function. */
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

static tn_status add(const tn_host *host, tn_txn *txn, const char *name, const char *schema,
                     const char *gradient, function *f) {
    tn_op_desc op = {0};
    op.struct_size = sizeof op;
    op.kind = TN_OP_POINTWISE;
    op.args_bytes = sizeof(unary_args);
    op.schema = schema;
    op.dtype = "float"; /* integers become the default float */
    op.gradient = gradient;
    op.doc = "The Gaussian error linear unit, or a derivative of it.";
    tn_status st = host->register_op(txn, &op);
    if (st != TN_OK) return st;
    const tn_kernel_row rows[] = {
        {name, 0, unary_f32, f, TN_F32, 0, 0, 0},
        {name, 0, unary_f64, f, TN_F64, 0, 0, 0},
    };
    return host->register_kernels(txn, 0, rows, sizeof rows[0], 2); /* 0: the CPU */
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    static function f0 = {gelu}, f1 = {slope}, f2 = {bend};
    tn_status st = add(host, txn, "example::gelu", "example::gelu(Tensor input) -> Tensor",
                       "input: grad * example::gelu_slope(input)", &f0);
    if (st == TN_OK)
        st = add(host, txn, "example::gelu_slope", "example::gelu_slope(Tensor input) -> Tensor",
                 "input: grad * example::gelu_bend(input)", &f1);
    if (st == TN_OK) /* the third derivative is made of operators that are there */
        st = add(host, txn, "example::gelu_bend", "example::gelu_bend(Tensor input) -> Tensor",
                 "input: grad * (input ** 3 - 4 * input) * exp(-0.5 * input ** 2) * "
                 "0.39894228040143268",
                 &f2);
    return st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "example_gelu", "1.0", "gelu in C", activate);
}
