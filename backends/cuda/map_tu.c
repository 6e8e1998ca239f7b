/* map_tu.c: the pointwise kernels of one element type, host side: their rows, and how the numbers of
 * a call reach the device. The device's side is kernels/map.cu; both come from pointwise_ops.inc. */
#include "cuda_priv.h"

#include <tenon/args_pointwise.h>

#include "../common/tmpl.h"

/* Integer division by zero is an error, which the processor finds before anything is written: these
 * go around the GPU. */
#define CHECK_floor_divide 1
#define CHECK__trunc_divide 1
#define CHECK_remainder 1
#define CHECK_fmod 1

/* A number by its kind: 0 Scalar, 1 float, 2 int or bool. */
static inline cuda_number number_0(tn_scalar s) {
    cuda_number n;
#if TMPL_IS_FLOAT
    n.d = s.re;
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
    bool on_cpu;
} map_op;

static tn_status launch_map(const tn_call *call, const void *args) {
    map_op *op = call->ctx;
    cuda_map_args a;
    if (op->on_cpu) return TN_DECLINE;
    tn_status st = cuda_plan_make(*(const tn_plan *const *)args, &a.plan);
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
const cuda_rows TN_(cuda_map_rows);
const cuda_rows TN_(cuda_map_rows) = CUDA_ROWS_OF(rows);
