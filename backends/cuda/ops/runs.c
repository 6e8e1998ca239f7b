/* runs.c: runs of equal neighbours, which unique and unique_consecutive are made of: host side of
 * kernels/runs.cu. How many there are is waited for, since the results' sizes depend on it.
 *
 * family: runs */
#include "cuda_priv.h"

#include <tenon/args_index.h>

#include "kernels/args/args_runs.h"

#define KERNELS(stem) CUDA_REAL_KERNELS(runs, runs_##stem)
static cuda_real_kernels counts = KERNELS(count), sums = KERNELS(sum), numbers = KERNELS(number),
                         writes = KERNELS(write);

/* Numbers the runs, and waits for their number. */
static tn_status find_runs(const tn_call *call, cuda_runs_args *a) {
    void *before = NULL, *first = NULL;
    tn_status st = room_scratch(call, a->parts + 1, sizeof(int64_t), &before);
    if (st == TN_OK) st = room_scratch(call, a->n, sizeof(int64_t), &first);
    a->before = before;
    a->first = first;
    if (st == TN_OK) st = cuda_launch(call, &counts[call->dtype], a->parts, CUDA_BLOCK, a);
    if (st == TN_OK) st = cuda_launch(call, &sums[call->dtype], 1, CUDA_BLOCK, a);
    if (st == TN_OK) st = cuda_launch(call, &numbers[call->dtype], a->parts, CUDA_BLOCK, a);
    if (st != TN_OK) return st;
    return cuda_read(call, &a->runs, a->before + a->parts, sizeof a->runs);
}

static tn_status unique_consecutive(const tn_call *call, const void *args) {
    const tn__unique_consecutive_args *in = args;
    cuda_runs_args a = {.x = in->input->data,
                        .inverse = in->inverse_indices->data,
                        .n = in->input->numel,
                        .parts = (in->input->numel + CUDA_PART - 1) / CUDA_PART};
    tn_status st = TN_OK;
    if (!tn_view_is_contiguous(in->input)) return TN_DECLINE;
    if (a.n > 0) st = find_runs(call, &a);
    if (st == TN_OK) st = call->host->resize_output(call, in->output, 1, &a.runs);
    if (st == TN_OK) st = call->host->resize_output(call, in->counts, 1, &a.runs);
    if (st != TN_OK || a.n == 0) return st;
    a.out = in->output->data;
    a.counts = in->counts->data;
    return cuda_launch_each(call, &writes[call->dtype], a.runs, &a);
}

#define ROW(dtype)                                                                                 \
    { "_unique_consecutive", TN_SIG__unique_consecutive, unique_consecutive, NULL, dtype, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(TN_BOOL), ROW(TN_U8),  ROW(TN_I8),   ROW(TN_I16), ROW(TN_I32),
    ROW(TN_I64),  ROW(TN_F16), ROW(TN_BF16), ROW(TN_F32), ROW(TN_F64),
};
const cuda_rows cuda_runs_rows = CUDA_ROWS_OF(rows);
