/* sample.c: permutations and draws of column numbers: host side of kernels/permute.cu and
 * kernels/sample.cu.
 *
 * family: sample */
#include "cuda_priv.h"

#include <tenon/args_random.h>

#include "common/philox.h"
#include "kernels/args/args_sample.h"

/* ---- randperm ----------------------------------------------------------------------------------*/

static cuda_kernel permute_start = {.module = "permute", .name = "permute_start"},
                   permute_run = {.module = "permute", .name = "permute_run"};

static tn_status randperm(const tn_call *call, const void *args) {
    const tn__randperm__args *in = args;
    cuda_permute_args a = {.data = in->self->data, .n = in->self->numel};
    void *holder = NULL;
    if (a.n == 0) return TN_OK;
    if (!tn_view_is_contiguous(in->self) || a.n >= UINT32_MAX) return TN_DECLINE;
    tn_status st = room_scratch(call, a.n, sizeof *a.holder, &holder);
    a.holder = holder;
    if (st == TN_OK)
        st = cuda_reserve_random(call, in->generator, rnd_blocks(a.n, 2), &a.draws, &a.launch);
    if (st == TN_OK) st = cuda_launch_each(call, &permute_start, a.n, &a);
    return st == TN_OK ? cuda_launch(call, &permute_run, 1, CUDA_BLOCK, &a) : st;
}

/* ---- multinomial -------------------------------------------------------------------------------*/

static cuda_float_kernels scores = CUDA_FLOAT_KERNELS(sample, sample_scores),
                          sums = CUDA_FLOAT_KERNELS(sample, sample_sums),
                          finds = CUDA_FLOAT_KERNELS(sample, sample_find);

/* With replacement: numbers fall between running sums. */
static tn_status search(const tn_call *call, cuda_sample_args *a) {
    void *room = NULL;
    tn_status st = room_scratch(call, room_mul(a->rows, a->columns), sizeof *a->sums, &room);
    a->sums = room;
    if (st == TN_OK) st = cuda_launch(call, cuda_float_kernel(call, sums), a->rows, CUDA_BLOCK, a);
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, finds), a->rows * a->k, a);
}

/* Without: the columns with the largest scores. */
static tn_status pick_largest(const tn_call *call, cuda_sample_args *a, int64_t item) {
    void *values = NULL;
    tn_status st = room_scratch(call, room_mul(a->rows, a->columns), (size_t)item, &a->scores);
    if (st == TN_OK) st = room_scratch(call, room_mul(a->rows, a->k), (size_t)item, &values);
    if (st == TN_OK)
        st = cuda_launch(call, cuda_float_kernel(call, scores), a->rows, CUDA_BLOCK, a);
    if (st != TN_OK) return st;
    return cuda_largest(call, a->scores, a->rows, a->columns, a->k, values, a->drawn);
}

static tn_status multinomial(const tn_call *call, const void *args) {
    const tn_multinomial_args *in = args;
    const tn_view *v = in->input;
    cuda_sample_args a = {.weights = v->data,
                          .drawn = in->out->data,
                          .rows = v->ndim == 2 ? v->shape[0] : 1,
                          .columns = v->shape[v->ndim - 1],
                          .k = in->num_samples,
                          .op = (uint64_t)(uintptr_t)call->op->name};
    bool replaces = in->replacement && a.k > 1; /* a single draw is one without replacement */
    int64_t numbers = a.rows * (replaces ? a.k : a.columns);
    if (in->out->numel == 0) return TN_OK;
    if (!tn_view_is_contiguous(v) || a.columns >= UINT32_MAX) return TN_DECLINE;
    tn_status st = cuda_fault_of(call, &a.fault);
    if (st == TN_OK)
        st = cuda_reserve_random(call, in->generator, rnd_blocks(numbers, 2), &a.draws, &a.launch);
    if (st != TN_OK) return st;
    return replaces ? search(call, &a) : pick_largest(call, &a, tn_view_itemsize(v));
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROW(_randperm_, randperm, TN_I64),
    CUDA_FLOAT_ROWS(multinomial, multinomial),
};
const cuda_rows cuda_sample_rows = CUDA_ROWS_OF(rows);
