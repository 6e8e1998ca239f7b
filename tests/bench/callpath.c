/* callpath.c: `callpath CASE N` makes N calls of one case on eight floats. Run under callgrind with two
 * values of N, the difference gives the instructions of one call, start-up apart
 * (tests/bench/instructions.py). `callpath CASE N time` prints nanoseconds per call instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tenon/autograd.h>
#include <tenon/error.h>
#include <tenon/ops.h>
#include <tenon/tensor.h>

static tn_tensor *a, *b, *leaf, *out;

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

static const struct {
    const char *name;
    tn_status (*run)(void);
} cases[] = {
    {"add", add},           {"add_out", add_out},   {"mul_scalar", mul_scalar},
    {"add_grad", add_grad}, {"select", select_one},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static tn_status setup(void) {
    float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t shape[] = {8};
    tn_status st = tn_tensor_from_data(TN_F32, 1, shape, data, &a);
    if (!st) st = tn_tensor_from_data(TN_F32, 1, shape, data, &b);
    if (!st) st = tn_tensor_from_data(TN_F32, 1, shape, data, &leaf);
    if (!st) st = tn_tensor_from_data(TN_F32, 1, shape, data, &out);
    if (!st) st = tn_set_requires_grad(leaf, 1);
    return st;
}

int main(int argc, char **argv) {
    long n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].name) != 0) continue;
        tn_status st = setup();
        double start = now();
        for (long k = 0; k < n && st == TN_OK; k++) st = cases[i].run();
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
