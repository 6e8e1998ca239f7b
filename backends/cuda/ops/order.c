/* order.c: sorting along a dimension and its relatives: host side of kernels/order.cu.
 *
 * family: order */
#include "cuda_priv.h"

#include <string.h>

#include <tenon/args_index.h>

#include "kernels/args/args_order.h"

#define KERNELS(stem) CUDA_REAL_KERNELS(order, order_##stem)
static cuda_real_kernels tiles = KERNELS(tiles), merges = KERNELS(merge),
                         finishes = KERNELS(finish), chooses = KERNELS(choose),
                         bests = KERNELS(best), counts = KERNELS(count), sums = KERNELS(sum),
                         scatters = KERNELS(scatter), searches = KERNELS(search);

/* ---- Rows --------------------------------------------------------------------------------------*/

/* Results are packed, `length` elements along dim, unless their strides are given. */
static tn_status read_rows(const tn_view *x, const tn_view *values, const tn_view *indices,
                           int64_t dim, int64_t length, bool strided, cuda_order_args *a) {
    int64_t packed = 1;
    const int64_t *strides[] = {x->strides, values->strides, indices->strides};
    a->x = x->data;
    a->values = values->data;
    a->indices = indices->data;
    a->rows = a->n = 1;
    for (int32_t d = x->ndim - 1; d >= 0; d--) {
        bool along = d == dim;
        if (!along && a->dims == CUDA_DIMS) return TN_DECLINE;
        int64_t *to = along ? a->step : a->stride[a->dims];
        for (int k = 0; k < 3; k++) to[k] = k == 0 || strided ? strides[k][d] : packed;
        packed *= along ? length : x->shape[d];
        if (along) {
            a->n = x->shape[d];
        } else {
            a->size[a->dims++] = x->shape[d];
            a->rows *= x->shape[d];
        }
    }
    return a->n < UINT32_MAX ? TN_OK : TN_DECLINE;
}

/* ---- Launches ----------------------------------------------------------------------------------*/

/* A key has as many bytes as an element. */
static tn_status take_items(const tn_call *call, int64_t item, int64_t n, cuda_items *ret) {
    void *at = NULL;
    tn_status st = room_scratch(call, n, (size_t)item, &ret->key);
    if (st == TN_OK) st = room_scratch(call, n, sizeof *ret->at, &at);
    ret->at = at;
    return st;
}

static void swap_items(cuda_order_args *a) {
    cuda_items t = a->in;
    a->in = a->out;
    a->out = t;
    a->from_x = 0;
}

/* Sorts every tile; of each only the first `keep` items stay. */
static tn_status sort_tiles(const tn_call *call, cuda_order_args *a, int64_t keep) {
    uint32_t threads = 32;
    a->tiles = (a->count + CUDA_TILE - 1) / CUDA_TILE;
    a->keep = keep < CUDA_TILE ? keep : CUDA_TILE;
    while (threads < CUDA_BLOCK && (int64_t)threads * 2 < a->count) threads *= 2;
    tn_status st = cuda_launch(call, &tiles[a->dtype], a->rows * a->tiles, threads, a);
    int64_t last = a->count - (a->tiles - 1) * CUDA_TILE;
    a->count = (a->tiles - 1) * a->keep + (last < a->keep ? last : a->keep);
    return st;
}

static tn_status merge_runs(const tn_call *call, cuda_order_args *a) {
    int64_t each = (a->count + CUDA_MERGE_EACH - 1) / CUDA_MERGE_EACH;
    tn_status st = TN_OK;
    for (a->run = CUDA_TILE; a->run < a->count && st == TN_OK; a->run *= 2) {
        st = cuda_launch_each(call, &merges[a->dtype], a->rows * each, a);
        swap_items(a);
    }
    return st;
}

/* Rows that are longer than a tile, sorted whole. */
static tn_status sort_long(const tn_call *call, cuda_order_args *a) {
    tn_status st = sort_tiles(call, a, CUDA_TILE);
    swap_items(a);
    if (st == TN_OK) st = merge_runs(call, a);
    if (st != TN_OK) return st;
    if (a->what != CUDA_ORDER_FIRST)
        return cuda_launch(call, &chooses[a->dtype], a->rows, CUDA_BLOCK, a);
    return cuda_launch_each(call, &finishes[a->dtype], a->rows * a->k, a);
}

/* Sorting by digits takes three launches for each byte of a key, which move as much as two merges. */
static bool goes_by_digits(const cuda_order_args *a, int64_t item) {
    enum { LEAST = 1 << 15 };
    int64_t steps = 0;
    for (int64_t run = CUDA_TILE; run < a->n; run *= 2) steps++;
    return a->rows * a->n >= LEAST && 2 * steps >= item;
}

static tn_status take_counts(const tn_call *call, cuda_order_args *a, int64_t item) {
    void *counts_at = NULL, *totals = NULL;
    a->tiles = (a->n + CUDA_SCATTER(item) - 1) / CUDA_SCATTER(item);
    int64_t lines = room_mul(a->rows, CUDA_DIGITS);
    tn_status st = room_scratch(call, room_mul(lines, a->tiles), sizeof *a->counts, &counts_at);
    if (st == TN_OK) st = room_scratch(call, lines, sizeof *a->totals, &totals);
    a->counts = counts_at;
    a->totals = totals;
    return st;
}

/* The same by one digit of the keys after the other. */
static tn_status sort_digits(const tn_call *call, cuda_order_args *a, int64_t item) {
    tn_status st = take_counts(call, a, item);
    int64_t lines = a->rows * CUDA_DIGITS;
    int64_t threads = a->tiles <= CUDA_SHORT_LINE ? lines : 32 * lines;
    for (int32_t bits = (int32_t)item * 8; a->shift < bits && st == TN_OK;
         a->shift += CUDA_DIGIT_BITS) {
        a->finishes = a->shift + CUDA_DIGIT_BITS == bits && a->what == CUDA_ORDER_FIRST;
        st = cuda_launch(call, &counts[a->dtype], a->rows * a->tiles, CUDA_BLOCK, a);
        if (st == TN_OK) st = cuda_launch_each(call, &sums[a->dtype], threads, a);
        if (st == TN_OK)
            st = cuda_launch(call, &scatters[a->dtype], a->rows * a->tiles, CUDA_BLOCK, a);
        swap_items(a);
    }
    if (st != TN_OK || a->what == CUDA_ORDER_FIRST) return st;
    return cuda_launch(call, &chooses[a->dtype], a->rows, CUDA_BLOCK, a);
}

/* A row is cut into so many parts that blocks are busy, and those are not too short. */
static void cut_row(cuda_order_args *a) {
    enum { BLOCKS = 512, LEAST = 2 * CUDA_TILE };
    int64_t parts = (BLOCKS + a->rows - 1) / a->rows, most = (a->count + LEAST - 1) / LEAST;
    if (parts > most) parts = most;
    a->part = (a->count + parts - 1) / parts;
    a->tiles = (a->count + a->part - 1) / a->part;
}

/* The first k of each row, without sorting it: of its parts, then of what these leave. */
static tn_status pick_best(const tn_call *call, cuda_order_args *a) {
    tn_status st = TN_OK;
    a->keep = a->k;
    while (!a->finishes && st == TN_OK) {
        cut_row(a);
        a->finishes = a->tiles == 1;
        st = cuda_launch(call, &bests[a->dtype], a->rows * a->tiles, CUDA_BLOCK, a);
        int64_t last = a->count - (a->tiles - 1) * a->part;
        a->count = (a->tiles - 1) * a->keep + (last < a->keep ? last : a->keep);
        swap_items(a);
    }
    return st;
}

/* a->what, k and reversed are set. */
static tn_status run(const tn_call *call, cuda_order_args *a, int32_t dtype) {
    int64_t item = cuda_item_bytes(dtype);
    bool first = a->what == CUDA_ORDER_FIRST, few = first && a->k <= CUDA_TILE / 4;
    bool best = first && a->k <= CUDA_BEST && a->n >= 4 * CUDA_BLOCK;
    tn_status st = TN_OK;
    a->dtype = dtype;
    a->count = a->n;
    a->from_x = 1;
    if (a->n > CUDA_TILE) st = take_items(call, item, a->rows * a->n, &a->in);
    if (st == TN_OK && a->n > CUDA_TILE) st = take_items(call, item, a->rows * a->n, &a->out);
    if (st != TN_OK) return st;
    if (best) return pick_best(call, a);
    if (a->n > CUDA_TILE && !few)
        return goes_by_digits(a, item) ? sort_digits(call, a, item) : sort_long(call, a);
    while (a->count > CUDA_TILE && st == TN_OK) {
        st = sort_tiles(call, a, a->k);
        swap_items(a);
    }
    a->finishes = 1;
    return st == TN_OK ? sort_tiles(call, a, first ? a->k : a->count) : st;
}

tn_status cuda_sort(const tn_call *call, const tn_view *x, int64_t *ret_values, int64_t *ret_at) {
    cuda_order_args a = {.what = CUDA_ORDER_FIRST,
                         .k = x->numel,
                         .x = x->data,
                         .values = ret_values,
                         .indices = ret_at,
                         .rows = 1,
                         .n = x->numel,
                         .step = {1, 1, 1}};
    return a.n < UINT32_MAX ? run(call, &a, tn_view_dtype(x)) : TN_DECLINE;
}

tn_status cuda_largest(const tn_call *call, const void *x, int64_t rows, int64_t n, int64_t k,
                       void *ret_values, int64_t *ret_at) {
    cuda_order_args a = {.what = CUDA_ORDER_FIRST,
                         .reversed = 1,
                         .x = x,
                         .values = ret_values,
                         .indices = ret_at,
                         .rows = rows,
                         .n = n,
                         .k = k,
                         .step = {1, 1, 1},
                         .dims = 1,
                         .size = {rows},
                         .stride = {{n, k, k}}};
    return run(call, &a, call->dtype);
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

static tn_status sort(const tn_call *call, const void *args) {
    const tn_sort_args *in = args;
    cuda_order_args a = {.what = CUDA_ORDER_FIRST, .reversed = in->descending != 0};
    if (in->input->numel == 0) return TN_OK;
    tn_status st = read_rows(in->input, in->values, in->indices, in->dim, 0, true, &a);
    a.k = a.n;
    return st == TN_OK ? run(call, &a, tn_view_dtype(in->input)) : st;
}

static tn_status topk(const tn_call *call, const void *args) {
    const tn_topk_args *in = args;
    cuda_order_args a = {.what = CUDA_ORDER_FIRST, .k = in->k, .reversed = in->largest != 0};
    if (in->values->numel == 0) return TN_OK;
    tn_status st = read_rows(in->input, in->values, in->indices, in->dim, in->k, false, &a);
    return st == TN_OK ? run(call, &a, tn_view_dtype(in->input)) : st;
}

/* One result of each row. */
static tn_status choose(const tn_call *call, const tn_view *x, const tn_view *values,
                        const tn_view *indices, int64_t dim, cuda_order_args *a) {
    if (values->numel == 0) return TN_OK;
    tn_status st = read_rows(x, values, indices, dim, 1, false, a);
    return st == TN_OK ? run(call, a, tn_view_dtype(x)) : st;
}

static tn_status kthvalue(const tn_call *call, const void *args) {
    const tn_kthvalue_args *in = args;
    cuda_order_args a = {.what = CUDA_ORDER_KTH, .k = in->k};
    return choose(call, in->input, in->values, in->indices, in->dim, &a);
}

static tn_status median_dim(const tn_call *call, const void *args) {
    const tn_median_dim_args *in = args;
    cuda_order_args a = {.what = CUDA_ORDER_MEDIAN};
    return choose(call, in->input, in->values, in->indices, in->dim, &a);
}

static tn_status nanmedian_dim(const tn_call *call, const void *args) {
    const tn_nanmedian_dim_args *in = args;
    cuda_order_args a = {.what = CUDA_ORDER_NANMEDIAN};
    return choose(call, in->input, in->values, in->indices, in->dim, &a);
}

static tn_status mode(const tn_call *call, const void *args) {
    const tn_mode_args *in = args;
    cuda_order_args a = {.what = CUDA_ORDER_MODE};
    return choose(call, in->input, in->values, in->indices, in->dim, &a);
}

static tn_status _searchsorted(const tn_call *call, const void *args) {
    const tn__searchsorted_args *in = args;
    const tn_view *sequence = in->sorted_sequence, *x = in->input;
    cuda_search_args a = {.sequence = sequence->data,
                          .x = x->data,
                          .out = in->out->data,
                          .n = x->numel,
                          .length = sequence->shape[sequence->ndim - 1],
                          .per_row = sequence->ndim > 1 ? x->shape[x->ndim - 1] : 0,
                          .right = in->right != 0};
    if (x->numel == 0) return TN_OK;
    if (!tn_view_is_contiguous(sequence) || !tn_view_is_contiguous(x)) return TN_DECLINE;
    return cuda_launch_each(call, &searches[call->dtype], a.n, &a);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROW(sort, sort, TN_BOOL),
    CUDA_NUMBER_ROWS(sort, sort),
    CUDA_FLOAT_ROW(mode, mode, TN_BOOL),
    CUDA_NUMBER_ROWS(mode, mode),
    CUDA_NUMBER_ROWS(topk, topk),
    CUDA_NUMBER_ROWS(kthvalue, kthvalue),
    CUDA_NUMBER_ROWS(_searchsorted, _searchsorted),
    CUDA_NUMBER_ROWS(median_dim, median_dim),
    CUDA_NUMBER_ROWS(nanmedian_dim, nanmedian_dim),
};
const cuda_rows cuda_order_rows = CUDA_ROWS_OF(rows);
