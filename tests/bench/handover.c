/* handover.c: what a kernel costs to reach. `handover` prints two times in nanoseconds: of a kernel on 8
 * floats through a pointer, and of the same through the dispatcher's last step, which finds the row of
 * a device and dtype and hands the call over. Both are the shortest of many rounds, which alternate.
 * The step is inlined into every run function, so this program is linked with core's own objects. */
#include <stdio.h>
#include <time.h>

#include <tenon/op_args.h>
#include <tenon/ops.h>

#include "call_priv.h"

enum { ROUNDS = 100, CALLS = 100000 };

static const tn_device cpu = {0, 0};
static const tn_op *op;

static tn_status kernel(const tn_call *call, const void *args) {
    const tn_plan *p = ((const tn_mul_args *)args)->plan;
    float *out = (float *)p->data[0];
    const float *a = p->data[1], *b = p->data[2];
    (void)call;
    if (!(p->flags & TN_PLAN_FLAT)) return TN_DECLINE;
    for (int64_t i = 0; i < p->numel; i++) out[i] = a[i] * b[i];
    return TN_OK;
}

static const tn_kernel_fn volatile pointer = kernel;

static tn_status by_pointer(const void *args) {
    tn_call call = {0};
    return pointer(&call, args);
}

__attribute__((noinline)) static tn_status by_dispatch(const void *args) {
    const tn_cell *cell = tni_kernel_find(op, cpu.slot, TN_F32);
    return cell ? tni_kernel_run(op, cell, cpu, TN_F32, args) : TN_E_UNSUPPORTED;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Lowers *inout_least to the time of a call, if that is shorter. */
static tn_status measure(tn_status (*run)(const void *args), const void *args,
                         double *inout_least) {
    tn_status st = TN_OK;
    double start = now();
    for (int i = 0; i < CALLS && st == TN_OK; i++) st = run(args);
    double each = (now() - start) / CALLS;
    if (each < *inout_least) *inout_least = each;
    return st;
}

/* Puts the kernel above into the place of mul's on the CPU, once that is loaded. */
static tn_status prepare(void) {
    tn_tensor *x = NULL, *y = NULL;
    const int64_t one = 1;
    TN_TRY(tn_tensor_new(TN_F32, cpu, 1, &one, &x));
    tn_status st = tn_mul(x, x, &y);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    op = tni_op_find("mul");
    tn_cell *cell =
        st == TN_OK ? (tn_cell *)(uintptr_t)tni_kernel_find(op, cpu.slot, TN_F32) : NULL;
    if (!cell) return TN_E_UNSUPPORTED;
    cell->fn = kernel;
    return TN_OK;
}

int main(int argc, char **argv) {
    static float x[8], y[8];
    static tn_plan plan = {.flags = TN_PLAN_FLAT, .numel = 8, .data = {y, x, x}};
    const tn_mul_args args = {.plan = &plan};
    double least[2] = {1e9, 1e9};
    tn_status st = argc == 2 ? tn_plugin_load(argv[1]) : TN_E_VALUE;
    if (st == TN_OK) st = prepare();
    for (int i = 0; i < ROUNDS && st == TN_OK; i++) {
        st = measure(by_pointer, &args, &least[0]);
        if (st == TN_OK) st = measure(by_dispatch, &args, &least[1]);
    }
    if (st != TN_OK) {
        fprintf(stderr, "handover PLUGIN: %s\n", tn_error_last()->message);
        return 1;
    }
    printf("%.2f %.2f\n", least[0], least[1]);
    return 0;
}
