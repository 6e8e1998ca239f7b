/* lambertw.c: an operator whose kernel runs on all cores, through OpenMP.
 *
 * lambertw(x) is the w >= -1 with w * exp(w) = x, and NaN where x < -1/e. Its derivative,
 * 1 / (x + exp(w)), is a formula over the argument and the result, and so can be derived again. */
#include <math.h>

#include <tenon/plugin.h>

enum { ENOUGH = 4096 }; /* elements that are worth more than one thread */

/* Halley's method; three to five steps from a start that is right at -1/e, at 0 and far away. */
static double lambertw(double x) {
    if (x == HUGE_VAL) return x;
    double w = x > 1       ? log(x) - log(1 + log(x)) / 2
               : x > -0.25 ? x / (1 + x)
                           : sqrt(2 * (2.718281828459045 * x + 1)) - 1;
    for (int step = 0; step < 30 && w > -1; step++) {
        double e = exp(w), f = w * e - x;
        double change = f / (e * (w + 1) - (w + 2) * f / (2 * w + 2));
        w -= change;
        if (fabs(change) <= 1e-16 * fabs(w)) break;
    }
    return w;
}

typedef struct unary_args {
    const tn_plan *plan;
    const tn_view *input;
    tn_view *out;
} unary_args;

/* The plan's rows one after the other, the elements of a row by all threads. */
static tn_status kernel_f32(const tn_call *call, const void *args) {
    tn_rows r;
    (void)call;
    for (tn_rows_start(&r, ((const unary_args *)args)->plan); tn_rows_next(&r);) {
#pragma omp parallel for if (r.n >= ENOUGH)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = (float)lambertw(*TN_ROW(const float, r, 1, i));
    }
    return TN_OK;
}

static tn_status kernel_f64(const tn_call *call, const void *args) {
    tn_rows r;
    (void)call;
    for (tn_rows_start(&r, ((const unary_args *)args)->plan); tn_rows_next(&r);) {
#pragma omp parallel for if (r.n >= ENOUGH)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(double, r, 0, i) = lambertw(*TN_ROW(const double, r, 1, i));
    }
    return TN_OK;
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_op_desc op = {
        .struct_size = sizeof op,
        .kind = TN_OP_POINTWISE,
        .args_bytes = sizeof(unary_args),
        .schema = "exampleomp::lambertw(Tensor input) -> Tensor",
        .dtype = "float", /* integers become the default float */
        .gradient = "input: grad / (input + exp(out))",
        .doc = "The principal branch of Lambert's W.",
    };
    const tn_kernel_row rows[] = {
        {.op = "exampleomp::lambertw", .fn = kernel_f32, .dtype = TN_F32},
        {.op = "exampleomp::lambertw", .fn = kernel_f64, .dtype = TN_F64},
    };
    tn_status st = host->register_op(txn, &op);
    return st == TN_OK ? host->register_kernels(txn, 0, rows, sizeof rows[0], 2) : st; /* 0: CPU */
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "exampleomp", "0.1.0", "Lambert's W on all cores", activate);
}
