/* callpath.c: `callpath CASE N` makes N calls of one case on a few floats, on the device of
 * TENON_BENCH_DEVICE if there is that variable. Run under callgrind with
 * two values of N, the difference gives the instructions of one call, start-up apart
 * (tests/bench/instructions.py). `callpath CASE N time` prints nanoseconds per call instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/tensor.h>

enum { CHAIN = 10 };

static tn_tensor *a, *b, *leaf, *out; /* of 8 */
static tn_tensor *square, *other;     /* of 8 x 8 */

static tn_status add(void) {
    tn_tensor *r;
    tn_status st = tn_add(a, b, tn_scalar_int(1), &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

static tn_status add_out(void) { return tn_add_out(out, a, b, tn_scalar_int(1)); }

static tn_status mul_scalar(void) {
    tn_tensor *r;
    tn_status st = tn_mul_scalar(a, tn_scalar_float(2.0), &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

static tn_status add_grad(void) {
    tn_tensor *r;
    tn_status st = tn_add(leaf, b, tn_scalar_int(1), &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

static tn_status select_one(void) {
    tn_tensor *r;
    tn_status st = tn_select(a, 0, 3, &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

static tn_status view(void) {
    tn_tensor *r;
    tn_status st = tn_view_size(a, tn_ints_of((const int64_t[]){2, 4}, 2), &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

static tn_status sum(void) {
    tn_tensor *r;
    tn_status st = tn_sum(a, tn_ints_none(), 0, -1, &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

static tn_status matmul(void) {
    tn_tensor *r;
    tn_status st = tn_matmul(square, other, &r);
    if (st == TN_OK) tn_tensor_unref(&r);
    return st;
}

/* leaf to the power of CHAIN + 1 and back: CHAIN multiplications with their graph, one backward pass. */
static tn_status chain(void) {
    tn_tensor *y = tn_tensor_ref(leaf), *next = NULL;
    tn_status st = TN_OK;
    for (int i = 0; i < CHAIN && st == TN_OK; i++) {
        st = tn_mul(y, leaf, &next);
        if (st != TN_OK) break;
        tn_tensor_unref(&y);
        y = next;
    }
    if (st == TN_OK) st = tn_backward(&y, &b, 1, NULL, 0, 0, 0);
    if (st == TN_OK) st = tn_grad_set(leaf, NULL);
    tn_tensor_unref(&y);
    return st;
}

/* A call of `run` counts as `ops` operations. */
static const struct {
    const char *name;
    tn_status (*run)(void);
    int ops;
} cases[] = {
    {"add", add, 1},           {"add_out", add_out, 1},   {"mul_scalar", mul_scalar, 1},
    {"add_grad", add_grad, 1}, {"select", select_one, 1}, {"view", view, 1},
    {"sum", sum, 1},           {"matmul_8x8", matmul, 1}, {"mul_fwd_bwd", chain, CHAIN},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* A tensor with 8 for each dimension. */
static tn_status new_tensor(tn_device device, int32_t ndim, tn_tensor **ret) {
    float data[64];
    int64_t shape[] = {8, 8};
    tn_tensor *near = NULL, *same = NULL;
    for (int i = 0; i < 64; i++) data[i] = (float)(i % 8) * 0.25F;
    tn_status st = tn_tensor_from_data(TN_F32, ndim, shape, data, &near);
    if (!st) st = tn_tensor_new(TN_F32, device, ndim, shape, ret);
    if (!st) st = tn_copy_(*ret, near, 0, &same);
    tn_tensor_unref(&same);
    tn_tensor_unref(&near);
    return st;
}

static tn_status setup(void) {
    const char *name = getenv("TENON_BENCH_DEVICE");
    tn_device device;
    tn_status st = tn_device_parse(name ? name : "cpu", &device);
    if (!st) st = new_tensor(device, 1, &a);
    if (!st) st = new_tensor(device, 1, &b);
    if (!st) st = new_tensor(device, 1, &leaf);
    if (!st) st = new_tensor(device, 1, &out);
    if (!st) st = new_tensor(device, 2, &square);
    if (!st) st = new_tensor(device, 2, &other);
    if (!st) st = tn_set_requires_grad(leaf, 1);
    return st;
}

int main(int argc, char **argv) {
    long n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].name) != 0) continue;
        tn_status st = setup();
        double start = now();
        for (long k = 0; k < n && st == TN_OK; k += cases[i].ops) st = cases[i].run();
        if (st != TN_OK) {
            fprintf(stderr, "%s\n", tn_error_last()->message);
            return 1;
        }
        if (argc > 3) printf("%.1f\n", (now() - start) / (double)n);
        return 0;
    }
    fprintf(stderr, "usage: callpath CASE N [time]\n");
    return 2;
}
