/* reduce_tu.c: the reductions of one element type, host side: their kernels and rows. The device's side
 * is kernels/reduce.cu.
 *
 * family: reduce; types: all */
#include <tenon/args_reduce.h>

#include "common/tmpl.h"
#include "reduce.h"

#define KERNEL(stage, red) KERNEL_OF("reduce_", stage, red)
#define KERNEL_OF(kernels, stage, red)                                                             \
    {                                                                                              \
        .module = kernels TMPL_TEXT(TMPL_NAME),                                                    \
        .name = #stage "_" #red "_" TMPL_TEXT(TMPL_NAME) "_cuda"                                   \
    }
#define KERNELS(red)                                                                               \
    {KERNEL(rows, red), KERNEL(odd_rows, red), KERNEL(columns, red), KERNEL(strided_rows, red),    \
     KERNEL(strided_columns, red)},                                                                \
        KERNEL(finish, red)
#define REDUCTION(op, red, of_sum, is_mean)                                                        \
    static cuda_reduction op = {KERNELS(red), of_sum, sizeof(T), sizeof(A), is_mean};

#if TMPL_IS_BOOL
REDUCTION(_all, all, NULL, false)
REDUCTION(_any, any, NULL, false)
#else
REDUCTION(sum, sum, NULL, false)
REDUCTION(_prod, prod, NULL, false)
#endif
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
REDUCTION(mean, sum, NULL, true)
#if TMPL_IS_FLOAT /* one pass; a part is three numbers */
#define MOMENTS(stage) KERNEL_OF("moments_", stage, moments)
static cuda_reduction _var = {{MOMENTS(rows), MOMENTS(odd_rows), MOMENTS(columns),
                               MOMENTS(strided_rows), MOMENTS(strided_columns)},
                              MOMENTS(finish),
                              NULL,
                              sizeof(T),
                              3 * sizeof(A),
                              false};
#else
REDUCTION(_var, spread, &sum, false)
#endif

static tn_status var(const tn_call *call, const void *args) {
    const tn__var_args *a = args;
    return cuda_reduce_var(call, a->plan, a->correction);
}
#endif
#if TMPL_IS_FLOAT
REDUCTION(_sum_squares, spread, NULL, false)
#endif
#if !TMPL_IS_COMPLEX
REDUCTION(amax, amax, NULL, false)
REDUCTION(amin, amin, NULL, false)
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, &op, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
#if TMPL_IS_BOOL
    ROW(_all, cuda_reduce),         ROW(_any, cuda_reduce),
#else
    ROW(sum, cuda_reduce),
    ROW(_prod, cuda_reduce),
#endif
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    ROW(mean, cuda_reduce),         ROW(_var, var),
#endif
#if TMPL_IS_FLOAT
    ROW(_sum_squares, cuda_reduce),
#endif
#if !TMPL_IS_COMPLEX
    ROW(amax, cuda_reduce),         ROW(amin, cuda_reduce),
#endif
};
const cuda_rows TN_(cuda_reduce_rows) = CUDA_ROWS_OF(rows);
