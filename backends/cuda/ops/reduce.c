/* reduce.c: reductions, host side: cuts the work into blocks (cuda_reduction_args says how) and queues
 * one or two launches. */
#include "reduce.h"

#include <string.h>

#include "kernels/args/args_reduction.h"

enum {
    VECTOR = 16,        /* bytes that a thread loads at once */
    WIDTH_SHIFT = 5,    /* log2 of the vectors of columns that a block takes at most */
    LINE_SHIFT = 3,     /* and of those that fill a line of memory */
    PER_LANE = 16,      /* elements of a column that a thread takes at least */
    MOST_BLOCKS = 1024, /* more blocks than this need not be cut further */
};

/* The bytes that the operand spans. */
static void read_bounds(const tn_plan *plan, int64_t item, cuda_reduction_args *ret_args) {
    const char *low = plan->data[1], *high = low + item;
    for (int32_t d = 0; d < plan->ndim; d++) {
        int64_t span = (plan->shape[d] - 1) * plan->stride[d][1];
        if (span < 0)
            low += span;
        else
            high += span;
    }
    ret_args->low = low;
    ret_args->high = high;
}

static tn_status read_plan(const tn_plan *plan, int64_t item, cuda_reduction_args *ret_args) {
    cuda_reduction_args *a = ret_args;
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
    read_bounds(plan, item, a);
    if (a->gone == 0) { /* nothing to walk through */
        a->gone_dims = 1;
        a->gone_size[0] = 0;
    }
    return TN_OK;
}

static bool are_aligned(const int64_t *strides, int32_t from, int32_t n) {
    for (int32_t d = from; d < n; d++)
        if (strides[d] % VECTOR != 0) return false;
    return true;
}

static uint32_t threads_for(int64_t lanes) {
    uint32_t threads = 32;
    while (threads < CUDA_BLOCK && threads < lanes) threads *= 2;
    return threads;
}

/* A step of `lanes` units: so many units of a run and, beyond its end, on to the next. */
static void walk_by(cuda_reduction_args *a, int64_t lanes) {
    int64_t runs = a->gone_dims > 1 ? lanes / a->run : 0;
    a->by_inner = lanes - runs * a->run;
    a->by_offset = a->by_inner * a->step + runs * a->gone_in[1];
    a->by_run = a->gone_in[1] - a->run * a->step;
    if (a->gone_dims == 1) a->run = INT64_MAX;
    if (a->gone_dims > 2) a->whole = 0;
}

/* Cuts what `blocks` blocks take into parts of `least` units or more. */
static int64_t cut_parts(cuda_reduction_args *a, int64_t blocks, int64_t least) {
    int64_t parts = cuda_cut(a->units, least, blocks, MOST_BLOCKS);
    a->span = (a->units + parts - 1) / parts;
    a->parts = a->units ? (int32_t)((a->units + a->span - 1) / a->span) : 1;
    return blocks * a->parts;
}

static int64_t blocks_of(int64_t n, int32_t shift) {
    return (n + (INT64_C(1) << shift) - 1) >> shift;
}

typedef struct reduce_launch {
    int kernel; /* REDUCE_* */
    int64_t blocks, finish_blocks;
    uint32_t threads, finish_threads;
    int32_t finish_shift;
} reduce_launch;

/* The innermost dimension goes: a row has as many threads as give each of them a few vectors. */
static reduce_launch cut_rows(cuda_reduction_args *a, int64_t item) {
    int64_t n = a->gone_size[0], vector = VECTOR / item;
    bool packed = vector > 1 && a->gone_in[0] == item && (a->gone_dims == 1 || n >= vector);
    reduce_launch l = {.kernel = packed ? REDUCE_ROWS : REDUCE_STRIDED_ROWS};
    if (!packed) vector = 1;
    a->run = (n + vector - 1) / vector;
    a->step = packed ? VECTOR : a->gone_in[0];
    a->units = n ? a->gone / n * a->run : 0;
    a->whole = !packed || (n % vector == 0 && (uintptr_t)a->in % VECTOR == 0 &&
                           are_aligned(a->gone_in, 1, a->gone_dims) &&
                           are_aligned(a->kept_in, 0, a->kept_dims));
    if (!a->whole && a->gone_dims == 1) l.kernel = REDUCE_ODD_ROWS;
    a->shift = cuda_row_shift(a->units, a->kept);
    int64_t lanes = INT64_C(1) << a->shift;
    walk_by(a, lanes);
    l.threads = threads_for(room_mul(a->kept, lanes));
    int64_t in_block = (int64_t)l.threads / lanes, least = CUDA_BLOCK * CUDA_AHEAD;
    int64_t blocks = (a->kept + in_block - 1) / in_block;
    l.blocks = cut_parts(a, blocks, lanes < CUDA_BLOCK ? a->units + 1 : least);
    a->result_step = a->parts;
    a->part_step = 1;
    l.finish_blocks = a->kept;
    l.finish_threads = threads_for(a->parts);
    return l;
}

/* The innermost dimension stays: a block takes as many neighbouring columns as leave few threads idle. */
static reduce_launch cut_columns(cuda_reduction_args *a, int64_t item) {
    int64_t n = a->kept_size[0], vector = VECTOR / item;
    bool packed = vector > 1 && a->kept_in[0] == item && (n % vector == 0 || n >= 16 * vector);
    reduce_launch l = {.kernel = packed ? REDUCE_COLUMNS : REDUCE_STRIDED_COLUMNS};
    if (!packed) vector = 1;
    a->run = a->gone_size[0];
    a->step = a->gone_in[0];
    a->units = a->gone;
    a->groups = (n + vector - 1) / vector;
    a->whole =
        !packed || ((uintptr_t)a->in % VECTOR == 0 && are_aligned(a->gone_in, 0, a->gone_dims) &&
                    are_aligned(a->kept_in, 1, a->kept_dims));
    int64_t groups = a->kept / n * a->groups;
    for (a->shift = WIDTH_SHIFT; a->shift > 0; a->shift--) {
        bool wide = a->shift > LINE_SHIFT &&
                    blocks_of(groups, a->shift - 1) < 2 * blocks_of(groups, a->shift);
        if (groups > INT64_C(1) << (a->shift - 1) && !wide) break;
    }
    int64_t blocks = blocks_of(groups, a->shift);
    l.threads = threads_for(room_mul(a->units, 1 << a->shift));
    walk_by(a, l.threads >> a->shift);
    l.blocks = cut_parts(a, blocks, PER_LANE * (CUDA_BLOCK >> a->shift));
    a->result_step = 1;
    a->part_step = a->kept;
    l.finish_shift = a->kept < 1 << WIDTH_SHIFT ? 0 : WIDTH_SHIFT;
    l.finish_blocks = blocks_of(a->kept, l.finish_shift);
    l.finish_threads = threads_for((int64_t)a->parts << l.finish_shift);
    return l;
}

/* Neighbouring threads should read neighbouring elements: those of one result, or of neighbours. */
static reduce_launch cut(const tn_plan *plan, cuda_reduction_args *a, int64_t item) {
    bool columns = plan->ndim > 0 && !(plan->reduce_mask & 1);
    if (a->gone_dims == 0) a->gone_size[a->gone_dims++] = 1;
    return columns ? cut_columns(a, item) : cut_rows(a, item);
}

static tn_status run(const tn_call *call, cuda_reduction *r, reduce_launch l,
                     const cuda_reduction_args *args) {
    cuda_reduction_args a = *args;
    tn_status st = TN_OK;
    if (a.parts > 1)
        st = room_scratch(call, room_mul(a.kept, a.parts), (size_t)r->sum_item, &a.partial);
    if (st == TN_OK) st = cuda_launch(call, &r->kernel[l.kernel], l.blocks, l.threads, &a);
    if (st != TN_OK || a.parts == 1) return st;
    a.shift = l.finish_shift;
    return cuda_launch(call, &r->finish, l.finish_blocks, l.finish_threads, &a);
}

tn_status cuda_reduce(const tn_call *call, const void *args) {
    cuda_reduction *r = call->ctx;
    const tn_plan *plan = *(const tn_plan *const *)args;
    cuda_reduction_args a;
    tn_status st = read_plan(plan, r->item, &a);
    if (st != TN_OK || a.kept == 0) return st;
    a.divide = r->mean;
    a.divisor = (double)a.gone;
    reduce_launch l = cut(plan, &a, r->item);
    return run(call, r, l, &a);
}

/* What a spread is measured from. */
static tn_status find_centers(const tn_call *call, cuda_reduction *r, reduce_launch l,
                              cuda_reduction_args *a) {
    void *centers = NULL;
    tn_status st = room_scratch(call, a->kept, (size_t)r->sum_item, &centers);
    if (st != TN_OK) return st;
    cuda_reduction_args mean = *a;
    mean.out = centers;
    mean.packed = mean.divide = 1;
    mean.divisor = (double)a->gone;
    a->centers = centers;
    return run(call, r->sum, l, &mean);
}

tn_status cuda_reduce_var(const tn_call *call, const tn_plan *plan, double correction) {
    cuda_reduction *r = call->ctx;
    cuda_reduction_args a;
    tn_status st = read_plan(plan, r->item, &a);
    if (st != TN_OK || a.kept == 0) return st;
    reduce_launch l = cut(plan, &a, r->item);
    if (r->sum) st = find_centers(call, r, l, &a);
    a.divide = a.real = 1;
    a.divisor = (double)a.gone > correction ? (double)a.gone - correction : 0;
    return st == TN_OK ? run(call, r, l, &a) : st;
}
