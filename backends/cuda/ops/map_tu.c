/* map_tu.c: the pointwise kernels of one element type, host side: their rows, and how the numbers of
 * a call reach the device. The device's side is kernels/map.cu; both come from pointwise_ops.inc.
 *
 * family: map; types: all */
#include "cuda_priv.h"

#include <string.h>

#include <tenon/args_pointwise.h>

#include "common/tmpl.h"

/* A number by its kind: 0 Scalar, 1 float, 2 int or bool. */
static inline cuda_number number_0(tn_scalar s) {
    cuda_number n = {{0}, 0};
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    n.d = s.re;
    n.im = s.im;
#elif TMPL_IS_BOOL
    n.i = s.re != 0;
#else
    n.i = s.i;
#endif
    return n;
}
static inline cuda_number number_1(double d) { return (cuda_number){.d = d}; }
static inline cuda_number number_2(int64_t i) { return (cuda_number){.i = i}; }

/* The ctx of a row. */
typedef struct map_op {
    cuda_kernel kernel;
    void (*numbers)(const void *args, cuda_number *ret_numbers);
    bool divides; /* integers: a zero divisor is an error */
} map_op;

/* A number that is zero is left to the CPU, which raises at once; zeros among the elements of a tensor
 * are found by the GPU, whose result is 0 there. */
static tn_status watch_divisors(const tn_call *call, cuda_map_args *a) {
    static const int64_t zero[2];
    if (a->plan.values >> 2 & 1u && memcmp(a->plan.value[2], zero, sizeof(T)) == 0)
        return TN_DECLINE;
    a->op = (uint64_t)(uintptr_t)call->op->name;
    return cuda_fault_of(call, &a->fault);
}

static tn_status launch_map(const tn_call *call, const void *args) {
    map_op *op = call->ctx;
    cuda_map_args a;
    tn_status st = cuda_plan_make(*(const tn_plan *const *)args, &a.plan);
    if (st == TN_OK && op->divides) st = watch_divisors(call, &a);
    if (st != TN_OK) return st;
    op->numbers(args, a.number);
    return cuda_launch_plan(call, &op->kernel, &a.plan);
}

#include "pointwise_ops.inc"

#define MAP_ROW(op)                                                                                \
    {#op, TN_SIG_##op, launch_map, &TN_(map_##op), TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0},
static const tn_kernel_row rows[] = {
#include "pointwise_rows.inc"
};
const cuda_rows TN_(cuda_map_rows) = CUDA_ROWS_OF(rows);
