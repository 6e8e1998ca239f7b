/* counts.c: numbers of events and waiting times, host side of kernels/counts.cu. Parameters of another
 * dtype than what is drawn are left to the CPU.
 *
 * family: counts */
#include "cuda_priv.h"

#include <tenon/args_random.h>

#include "common/philox.h"
#include "kernels/args/args_counts.h"

static cuda_float_kernels poissons = CUDA_FLOAT_KERNELS(counts, counts_poisson),
                          binomials = CUDA_FLOAT_KERNELS(counts, counts_binomial),
                          gammas = CUDA_FLOAT_KERNELS(counts, counts_gamma);

/* n - 1 parameters are broadcast to views[0]. */
static tn_status fill(const tn_call *call, cuda_float_kernels kernels, tn_generator *gen,
                      const tn_view *const *views, int32_t n) {
    cuda_counts_args a = {.op = (uint64_t)(uintptr_t)call->op->name};
    if (views[0]->numel == 0) return TN_OK;
    for (int32_t k = 1; k < n; k++)
        if (tn_view_dtype(views[k]) != tn_view_dtype(views[0])) return TN_DECLINE;
    tn_status st = cuda_plan_views(views, n, &a.plan);
    if (st == TN_OK) st = cuda_fault_of(call, &a.fault);
    if (st == TN_OK)
        st = cuda_reserve_random(call, gen, rnd_blocks(a.plan.numel, 2), &a.draws, &a.launch);
    return st == TN_OK ? cuda_launch_each(call, cuda_float_kernel(call, kernels), a.plan.numel, &a)
                       : st;
}

static tn_status poisson(const tn_call *call, const void *args) {
    const tn__poisson__args *in = args;
    const tn_view *const views[] = {in->self, in->rate};
    return fill(call, poissons, in->generator, views, 2);
}

static tn_status binomial(const tn_call *call, const void *args) {
    const tn__binomial__args *in = args;
    const tn_view *const views[] = {in->self, in->count, in->prob};
    return fill(call, binomials, in->generator, views, 3);
}

static tn_status standard_gamma(const tn_call *call, const void *args) {
    const tn__standard_gamma__args *in = args;
    const tn_view *const views[] = {in->self, in->concentration};
    return fill(call, gammas, in->generator, views, 2);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_poisson_, poisson),
    CUDA_FLOAT_ROWS(_binomial_, binomial),
    CUDA_FLOAT_ROWS(_standard_gamma_, standard_gamma),
};
const cuda_rows cuda_counts_rows = CUDA_ROWS_OF(rows);
