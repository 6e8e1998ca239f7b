/* reduce.c: reductions, host side: cuts the work into blocks (cuda_reduce_args says how) and queues
 * one or two launches. */
#include "reduce.h"

#include <string.h>

enum {
    WIDTH = 32,   /* results that a block of columns takes */
    FEW_GONE = 32 /* up to so many elements a result is a column's work in any case */
};

static tn_status read_plan(const tn_plan *plan, cuda_reduce_args *ret_args) {
    cuda_reduce_args *a = ret_args;
    if (plan->ndim > CUDA_DIMS || plan->noperands != 2 || plan->scalar_mask) return TN_DECLINE;
    memset(a, 0, sizeof *a);
    a->kept = a->gone = 1;
    a->in = plan->data[1];
    a->out = plan->data[0];
    for (int32_t d = 0; d < plan->ndim; d++) {
        int32_t k = a->kept_dims, g = a->gone_dims;
        if (plan->reduce_mask >> d & 1) {
            a->gone_size[g] = plan->shape[d];
            a->gone_in[g] = plan->stride[d][1];
            a->gone *= plan->shape[d];
            a->gone_dims++;
        } else {
            a->kept_size[k] = plan->shape[d];
            a->kept_in[k] = plan->stride[d][1];
            a->kept_out[k] = plan->stride[d][0];
            a->kept *= plan->shape[d];
            a->kept_dims++;
        }
    }
    return TN_OK;
}

/* Neighbouring threads should read neighbouring elements: those of one result, or of neighbours. */
static void cut(const tn_plan *plan, cuda_reduce_args *a) {
    bool columns = !(plan->reduce_mask & 1) || a->gone <= FEW_GONE;
    a->width = columns && a->kept > 1 ? WIDTH : 1;
    int64_t lanes = CUDA_BLOCK / a->width, blocks = (a->kept + a->width - 1) / a->width;
    int64_t parts = cuda_parts(a->gone, lanes, blocks);
    a->span = (a->gone + parts - 1) / parts;
    a->parts = a->gone ? (int32_t)((a->gone + a->span - 1) / a->span) : 1;
}

static tn_status run(const tn_call *call, cuda_reduction *r, cuda_reduce_args *a) {
    tn_status st = TN_OK;
    uint32_t threads = cuda_rows_threads(a->span, a->width);
    int64_t blocks = (a->kept + a->width - 1) / a->width * a->parts;
    if (a->parts > 1)
        st = room_scratch(call, room_mul(a->kept, a->parts), (size_t)r->item, &a->partial);
    if (st == TN_OK) st = cuda_launch(call, &r->reduce, blocks, threads, a);
    if (st != TN_OK || a->parts == 1) return st;
    return cuda_launch(call, &r->finish, a->kept, cuda_rows_threads(a->parts, 1), a);
}

tn_status cuda_reduce(const tn_call *call, const void *args) {
    cuda_reduction *r = call->ctx;
    const tn_plan *plan = *(const tn_plan *const *)args;
    cuda_reduce_args a;
    tn_status st = read_plan(plan, &a);
    if (st != TN_OK || a.kept == 0) return st;
    cut(plan, &a);
    a.divide = r->mean;
    a.divisor = (double)a.gone;
    return run(call, r, &a);
}

tn_status cuda_reduce_var(const tn_call *call, const tn_plan *plan, double correction) {
    cuda_reduction *r = call->ctx;
    cuda_reduce_args a, mean;
    void *centers = NULL;
    tn_status st = read_plan(plan, &a);
    if (st != TN_OK || a.kept == 0) return st;
    cut(plan, &a);
    st = room_scratch(call, a.kept, (size_t)r->item, &centers);
    if (st != TN_OK) return st;
    mean = a;
    mean.out = centers;
    mean.packed = mean.divide = 1;
    mean.divisor = (double)a.gone;
    st = run(call, r->sum, &mean);
    a.centers = centers;
    a.divide = a.real = 1;
    a.divisor = (double)a.gone > correction ? (double)a.gone - correction : 0;
    return st == TN_OK ? run(call, r, &a) : st;
}
