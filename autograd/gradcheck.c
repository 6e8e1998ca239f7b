/* gradcheck.c: compares gradients with central differences, one element of one input at a time. */
#include <math.h>
#include <stdlib.h>

#include "tape_priv.h"

typedef struct check {
    tn_gradcheck_fn fn;
    void *ctx;
    tn_tensor *const *inputs;
    int64_t n;
    double eps, atol, rtol, worst;
} check;

/* fn(inputs) as packed float64 values, recorded or not; free the values. */
static tn_status values(check *c, bool record, tn_tensor **ret_output, double **ret_values) {
    tn_tensor *y = NULL;
    uint32_t no_grad = tni_tls.no_grad;
    tni_tls.no_grad = record ? 0 : 1;
    tn_status st = c->fn(c->ctx, c->inputs, c->n, &y);
    tni_tls.no_grad = no_grad;
    TN_TRY(st);
    uint64_t bytes = (uint64_t)y->v.numel * sizeof(double);
    double *v = NULL;
    if (tn_view_dtype(&y->v) != TN_F64)
        st = tn_fail(TN_E_DTYPE, -1, "gradcheck: the function's output must be float64");
    else if (!(v = malloc(bytes + 1)))
        st = tn_fail(TN_E_MEMORY, -1, "out of memory");
    else
        st = tn_tensor_read(y, v, bytes);
    if (st != TN_OK) {
        free(v);
        tn_tensor_unref(&y);
        return st;
    }
    *ret_values = v;
    if (ret_output)
        *ret_output = y;
    else
        tn_tensor_unref(&y);
    return TN_OK;
}

/* (f(x + eps) - f(x - eps)) / (2 eps) with respect to element i of input k: m numbers. */
static tn_status difference(check *c, int64_t k, int64_t i, int64_t m, double *ret_column) {
    tn_tensor *t = c->inputs[k];
    uint64_t bytes = (uint64_t)t->v.numel * sizeof(double);
    double *x = malloc(bytes), *up = NULL, *down = NULL;
    if (!x) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = tn_tensor_read(t, x, bytes);
    double old = st == TN_OK ? x[i] : 0.0;
    if (st == TN_OK) {
        x[i] = old + c->eps;
        st = tn_tensor_write(t, x, bytes);
        if (st == TN_OK) st = values(c, false, NULL, &up);
        x[i] = old - c->eps;
        if (st == TN_OK) st = tn_tensor_write(t, x, bytes);
        if (st == TN_OK) st = values(c, false, NULL, &down);
        x[i] = old;
        tn_status back = tn_tensor_write(t, x, bytes);
        if (st == TN_OK) st = back;
    }
    for (int64_t r = 0; st == TN_OK && r < m; r++)
        ret_column[r] = (up[r] - down[r]) / (2.0 * c->eps);
    free(x);
    free(up);
    free(down);
    return st;
}

/* Row r of the Jacobian, for all inputs: the gradient of output element r. */
static tn_status row(check *c, tn_tensor *y, int64_t r, tn_tensor **ret_grads) {
    uint64_t bytes = (uint64_t)y->v.numel * sizeof(double);
    double *one = calloc((size_t)y->v.numel, sizeof *one);
    tn_tensor *g = NULL, **want = calloc((size_t)c->n, sizeof *want);
    tn_tensor **grads = calloc((size_t)c->n, sizeof *grads);
    int64_t n = 0;
    tn_status st = one && want && grads ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    if (st == TN_OK) st = tn_tensor_new(TN_F64, tn_tensor_device(y), y->v.ndim, y->v.shape, &g);
    if (st == TN_OK) {
        one[r] = 1.0;
        st = tn_tensor_write(g, one, bytes);
    }
    for (int64_t k = 0; st == TN_OK && k < c->n; k++)
        if (tn_requires_grad(c->inputs[k])) want[n++] = c->inputs[k];
    if (st == TN_OK) st = tn_grad(&y, &g, 1, want, n, 1, 0, 1, grads);
    n = 0;
    for (int64_t k = 0; st == TN_OK && k < c->n; k++)
        ret_grads[k] = tn_requires_grad(c->inputs[k]) ? grads[n++] : NULL;
    tn_tensor_unref(&g);
    free(one);
    free(want);
    free(grads);
    return st;
}

static tn_status compare(check *c, int64_t k, int64_t i, int64_t r, double have, double want) {
    double d = fabs(have - want);
    if (d > c->worst || isnan(d)) c->worst = d;
    if (d <= c->atol + c->rtol * fabs(want)) return TN_OK;
    return tn_fail(
        TN_E_STATE, -1,
        "Jacobian mismatch for output element %lld with respect to input %lld, element %lld: "
        "numerical %.10g, analytical %.10g",
        (long long)r, (long long)k, (long long)i, want, have);
}

/* Checks all columns of input k against `jacobian`, its analytical rows. */
static tn_status check_input(check *c, int64_t k, int64_t m, const double *jacobian) {
    int64_t n = c->inputs[k]->v.numel;
    double *column = calloc((size_t)m + 1, sizeof *column);
    tn_status st = column ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; st == TN_OK && i < n; i++) {
        st = difference(c, k, i, m, column);
        for (int64_t r = 0; st == TN_OK && r < m; r++)
            st = compare(c, k, i, r, jacobian[r * n + i], column[r]);
    }
    free(column);
    return st;
}

static tn_status run(check *c, tn_tensor *y, double **jacobians) {
    int64_t m = y->v.numel;
    tn_tensor **grads = calloc((size_t)c->n, sizeof *grads);
    tn_status st = grads ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t k = 0; st == TN_OK && k < c->n; k++) {
        if (!tn_requires_grad(c->inputs[k])) continue;
        size_t row = (size_t)c->inputs[k]->v.numel * sizeof(double); /* a tensor has that size */
        jacobians[k] = calloc((size_t)m + 1, row);
        if (!jacobians[k]) st = tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    for (int64_t r = 0; st == TN_OK && r < m; r++) {
        st = row(c, y, r, grads);
        for (int64_t k = 0; st == TN_OK && k < c->n; k++) {
            if (!grads[k]) continue;
            int64_t n = c->inputs[k]->v.numel;
            st = tn_tensor_read(grads[k], jacobians[k] + r * n, (uint64_t)n * sizeof(double));
        }
        for (int64_t k = 0; k < c->n; k++) tn_tensor_unref(&grads[k]);
    }
    for (int64_t k = 0; st == TN_OK && k < c->n; k++)
        if (jacobians[k]) st = check_input(c, k, m, jacobians[k]);
    free(grads);
    return st;
}

tn_status tn_gradcheck(tn_gradcheck_fn fn, void *ctx, tn_tensor *const *inputs, int64_t n,
                       double eps, double atol, double rtol, double *ret_worst) {
    check c = {fn, ctx, inputs, n, eps, atol, rtol, 0.0};
    tn_tensor *y = NULL;
    double *first = NULL;
    bool any = false;
    if (!fn || !inputs || n <= 0 || !(eps > 0))
        return tn_fail(TN_E_VALUE, -1, "gradcheck: bad arguments");
    for (int64_t k = 0; k < n; k++) {
        if (!inputs[k] || !tn_requires_grad(inputs[k])) continue;
        if (tn_view_dtype(&inputs[k]->v) != TN_F64 || !tn_is_leaf(inputs[k]))
            return tn_fail(TN_E_VALUE, 2, "gradcheck: input %lld must be a float64 leaf",
                           (long long)k);
        any = true;
    }
    if (!any) return tn_fail(TN_E_VALUE, 2, "gradcheck: no input requires a gradient");
    double **jacobians = calloc((size_t)n, sizeof *jacobians);
    if (!jacobians) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = values(&c, true, &y, &first);
    if (st == TN_OK && !tn_requires_grad(y))
        st = tn_fail(TN_E_STATE, -1,
                     "gradcheck: the output does not depend on an input that requires "
                     "a gradient");
    if (st == TN_OK) st = run(&c, y, jacobians);
    for (int64_t k = 0; k < n; k++) free(jacobians[k]);
    free(jacobians);
    free(first);
    tn_tensor_unref(&y);
    if (ret_worst) *ret_worst = c.worst;
    return st;
}
