/* regression.c: fits a line to noisy points by gradient descent, with the C API alone.
 *
 *     cc $(pkg-config --cflags tenon) regression.c $(pkg-config --libs tenon) -o regression
 *
 * It shows the three habits of the API: results come last, every call returns a status, and one
 * `out:` label releases what was made. */
#include <stdio.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/runtime.h>

enum { POINTS = 64, STEPS = 400 };

/* A deterministic stand-in for noise in [-0.05, 0.05]. */
static float noise(int i) { return (float)((i * 37) % 101 - 50) / 1000.0f; }

/* One step: loss of x * w + b against y, backward, w and b moved against their gradients. */
static tn_status step(tn_tensor *x, tn_tensor *y, tn_tensor *w, tn_tensor *b, double *ret_loss) {
    tn_tensor *xw = NULL, *guess = NULL, *loss = NULL;
    tn_scalar value;
    tn_status st;
    int old = 1;
    if ((st = tn_mul(x, w, &xw))) goto out;
    if ((st = tn_add(xw, b, tn_scalar_int(1), &guess))) goto out;
    if ((st = tn_mse_loss(guess, y, "mean", NULL, &loss))) goto out;
    if ((st = tn_backward(&loss, NULL, 1, NULL, 0, 0, 0))) goto out;
    if ((st = tn_tensor_item(loss, &value))) goto out;
    old = tn_grad_set_enabled(0); /* the update is no part of the graph */
    st = tn_sub_(w, tn_grad_get(w), tn_scalar_float(0.3));
    if (!st) st = tn_sub_(b, tn_grad_get(b), tn_scalar_float(0.3));
    if (!st) st = tn_grad_set(w, NULL);
    if (!st) st = tn_grad_set(b, NULL);
    (void)tn_grad_set_enabled(old);
    *ret_loss = value.re;
out:
    tn_tensor_unref(&xw);
    tn_tensor_unref(&guess);
    tn_tensor_unref(&loss);
    return st;
}

int main(void) {
    tn_tensor *x = NULL, *y = NULL, *w = NULL, *b = NULL;
    const int64_t shape[1] = {POINTS};
    const tn_device cpu = {0, 0};
    float xs[POINTS], ys[POINTS], zero = 0.0f;
    double loss = 0.0;
    tn_scalar slope, offset;
    tn_status st;
    for (int i = 0; i < POINTS; i++) {
        xs[i] = (float)i / POINTS;
        ys[i] = 2.0f * xs[i] - 1.0f + noise(i);
    }
    if ((st = tn_tensor_from_data(TN_F32, 1, shape, xs, &x))) goto out;
    if ((st = tn_tensor_from_data(TN_F32, 1, shape, ys, &y))) goto out;
    if ((st = tn_tensor_from_data(TN_F32, 0, NULL, &zero, &w))) goto out;
    if ((st = tn_tensor_from_data(TN_F32, 0, NULL, &zero, &b))) goto out;
    if ((st = tn_set_requires_grad(w, 1))) goto out;
    if ((st = tn_set_requires_grad(b, 1))) goto out;
    for (int i = 0; i < STEPS; i++)
        if ((st = step(x, y, w, b, &loss))) goto out;
    if ((st = tn_tensor_item(w, &slope))) goto out;
    if ((st = tn_tensor_item(b, &offset))) goto out;
    printf("Tenon %s on %s\n", tn_version(), tn_device_describe(cpu));
    printf("y = %.3f x %+.3f, mean squared error %.5f\n", slope.re, offset.re, loss);
    if (loss > 0.002) st = TN_E_INTERNAL;
out:
    if (st) printf("%s: %s\n", tn_status_text(st), tn_error_last()->message);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    tn_tensor_unref(&w);
    tn_tensor_unref(&b);
    return st != TN_OK;
}
