/* nonzero.c: the coordinates of elements that are not zero: host side of kernels/runs.cu. How many there
 * are is waited for, since the result's size depends on it.
 *
 * family: nonzero */
#include "cuda_priv.h"

#include <tenon/args_index.h>

#include "kernels/args/args_runs.h"

static cuda_dtype_kernels counts = CUDA_DTYPE_KERNELS(runs, nonzero_count),
                          writes = CUDA_DTYPE_KERNELS(runs, nonzero_write),
                          sums = CUDA_DTYPE_KERNELS(runs, runs_sum);

/* Elements in logical order. */
static tn_status read_elements(const tn_view *x, cuda_nonzero_args *ret_args) {
    if (x->ndim > CUDA_DIMS) return TN_DECLINE;
    ret_args->ndim = x->ndim;
    for (int32_t d = 0; d < x->ndim; d++) ret_args->shape[d] = x->shape[d];
    return cuda_plan_views(&x, 1, &ret_args->plan);
}

/* How many of each part there are, then how many stand in front of it; waits for all. */
static tn_status count(const tn_call *call, cuda_nonzero_args *a, int64_t parts,
                       int64_t *ret_total) {
    void *before = NULL;
    tn_status st = room_scratch(call, parts + 1, sizeof(int64_t), &before);
    if (st != TN_OK) return st;
    a->before = before;
    cuda_runs_args sum = {.before = before, .parts = parts};
    st = cuda_launch(call, &counts[call->dtype], parts, CUDA_BLOCK, a);
    if (st == TN_OK) st = cuda_launch(call, &sums[call->dtype], 1, CUDA_BLOCK, &sum);
    return st == TN_OK ? cuda_read(call, ret_total, a->before + parts, sizeof *ret_total) : st;
}

static tn_status nonzero(const tn_call *call, const void *args) {
    const tn_nonzero_args *in = args;
    int64_t parts = (in->input->numel + CUDA_PART - 1) / CUDA_PART;
    int64_t shape[] = {0, in->input->ndim};
    cuda_nonzero_args a;
    tn_status st = read_elements(in->input, &a);
    if (st == TN_OK && parts > 0) st = count(call, &a, parts, &shape[0]);
    if (st == TN_OK) st = call->host->resize_output(call, in->out, 2, shape);
    if (st != TN_OK || in->out->numel == 0) return st;
    a.out = in->out->data;
    return cuda_launch(call, &writes[call->dtype], parts, CUDA_BLOCK, &a);
}

#define ROW(dtype)                                                                                 \
    { "nonzero", TN_SIG_nonzero, nonzero, NULL, dtype, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(TN_BOOL), ROW(TN_U8),   ROW(TN_I8),  ROW(TN_I16), ROW(TN_I32), ROW(TN_I64),
    ROW(TN_F16),  ROW(TN_BF16), ROW(TN_F32), ROW(TN_F64), ROW(TN_C64), ROW(TN_C128),
};
const cuda_rows cuda_nonzero_rows = CUDA_ROWS_OF(rows);
