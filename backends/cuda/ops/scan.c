/* scan.c: running sums, products and extremes, and the places of extremes: host side of
 * kernels/scan.cu and kernels/extreme.cu.
 *
 * family: scan */
#include "cuda_priv.h"

#include <tenon/args_index.h>
#include <tenon/args_norm.h>
#include <tenon/args_reduce.h>

#include "kernels/args/args_scan.h"

/* How rows are cut: from sizes alone. */
static void cut(const cuda_rows_args *rows, uint32_t threads, int64_t *ret_parts,
                int64_t *ret_span) {
    int64_t blocks = (rows->rows + rows->width - 1) / rows->width;
    int64_t parts = cuda_parts(rows->n, (int64_t)threads / rows->width, blocks);
    *ret_span = (rows->n + parts - 1) / parts;
    *ret_parts = (rows->n + *ret_span - 1) / *ret_span;
}

static int64_t blocks_of(const cuda_rows_args *rows, int64_t parts) {
    return (rows->rows + rows->width - 1) / rows->width * parts;
}

/* Bytes of what is kept of a part: a number of the type computed in, or that and its place. */
static uint64_t number_bytes(const tn_call *call) {
    bool half = call->dtype == TN_F16 || call->dtype == TN_BF16;
    return half ? 4 : (uint64_t)cuda_item_bytes(call->dtype);
}
enum { PLACE_BYTES = 16 };

/* ---- Running values ----------------------------------------------------------------------------*/

typedef struct scan_kernels {
    cuda_dtype_kernels parts, rows, packed; /* the last not of extremes, nor of complex numbers */
} scan_kernels;
#define SCAN_KERNELS(name)                                                                         \
    {                                                                                              \
        CUDA_DTYPE_KERNELS(scan, name##_parts), CUDA_DTYPE_KERNELS(scan, name##_rows),             \
            CUDA_DTYPE_KERNELS(scan, name##_packed)                                                \
    }
static scan_kernels sums = SCAN_KERNELS(cumsum), products = SCAN_KERNELS(cumprod),
                    logsumexps = SCAN_KERNELS(logcumsumexp), maxima = SCAN_KERNELS(cummax),
                    minima = SCAN_KERNELS(cummin);

/* The bits of where an operand's rows begin, along dimensions from `first` on. */
static uint64_t begins_of(const cuda_rows_args *rows, int k, int32_t first) {
    uint64_t bits = (uint64_t)(uintptr_t)rows->data[k];
    for (int32_t d = first; d < rows->dims; d++) bits |= (uint64_t)rows->stride[d][k];
    return bits;
}

/* Many rows of packs of 16 bytes have some neighbouring threads each, at most a warp. */
static bool is_packed(const tn_call *call, const cuda_rows_args *rows, int32_t *ret_lanes) {
    enum { PACK = 16, MANY_THREADS = 1 << 16 };
    int64_t item = cuda_item_bytes(call->dtype), packs = rows->n * item / PACK;
    uint64_t begins = (uint64_t)(rows->n * item);
    if (call->dtype > TN_F64) return false;
    for (int k = 0; k < 2; k++) {
        begins |= begins_of(rows, k, 0);
        if (rows->step[k] != item) return false;
    }
    *ret_lanes = 1;
    while (*ret_lanes < 32 && *ret_lanes < packs) *ret_lanes *= 2;
    return begins % PACK == 0 && rows->rows >= MANY_THREADS / *ret_lanes;
}

/* The input, then the results. */
static tn_status scan(const tn_call *call, scan_kernels *kernels, const tn_view *const *views,
                      int32_t n, int64_t dim) {
    uint64_t bytes = n > 2 ? PLACE_BYTES : number_bytes(call);
    cuda_scan_args a = {.partial = NULL};
    if (views[0]->numel == 0) return TN_OK;
    tn_status st = cuda_rows_read(views, n, dim, &a.rows);
    if (st != TN_OK) return st;
    if (n == 2 && is_packed(call, &a.rows, &a.lanes))
        return cuda_launch_each(call, &kernels->packed[call->dtype], a.rows.rows * a.lanes, &a);
    uint32_t threads = cuda_rows_threads(a.rows.n, a.rows.width);
    cut(&a.rows, threads, &a.parts, &a.span);
    int64_t blocks = blocks_of(&a.rows, a.parts);
    if (a.parts > 1) {
        st = room_scratch(call, room_mul(a.rows.rows, a.parts), bytes, &a.partial);
        if (st == TN_OK) st = cuda_launch(call, &kernels->parts[call->dtype], blocks, threads, &a);
    }
    if (st != TN_OK) return st;
    return cuda_launch(call, &kernels->rows[call->dtype], blocks, threads, &a);
}

static tn_status cumsum(const tn_call *call, const void *args) {
    const tn_cumsum_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return scan(call, &sums, views, 2, a->dim);
}

static tn_status cumprod(const tn_call *call, const void *args) {
    const tn_cumprod_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return scan(call, &products, views, 2, a->dim);
}

static tn_status logcumsumexp(const tn_call *call, const void *args) {
    const tn_logcumsumexp_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return scan(call, &logsumexps, views, 2, a->dim);
}

static tn_status cummax(const tn_call *call, const void *args) {
    const tn_cummax_args *a = args;
    const tn_view *views[] = {a->input, a->values, a->indices};
    return scan(call, &maxima, views, 3, a->dim);
}

static tn_status cummin(const tn_call *call, const void *args) {
    const tn_cummin_args *a = args;
    const tn_view *views[] = {a->input, a->values, a->indices};
    return scan(call, &minima, views, 3, a->dim);
}

/* ---- Places of extremes ------------------------------------------------------------------------*/

typedef struct extreme_kernels {
    cuda_real_kernels rows, packed, columns, odd_columns, finish;
} extreme_kernels;
#define EXTREME_KERNEL(name) CUDA_REAL_KERNELS(extreme, name)
#define EXTREME_KERNELS(name)                                                                      \
    {                                                                                              \
        EXTREME_KERNEL(name##_rows), EXTREME_KERNEL(name##_packed),                                \
            EXTREME_KERNEL(name##_columns), EXTREME_KERNEL(name##_odd_columns),                    \
            EXTREME_KERNEL(name##_finish)                                                          \
    }
typedef struct extreme_launch {
    cuda_kernel *kernel;
    int64_t blocks;
    uint32_t threads;
} extreme_launch;
static extreme_kernels largest = EXTREME_KERNELS(max), smallest = EXTREME_KERNELS(min);

/* How packed rows are cut, by vectors: so that a thread has a few of them. Returns the number of blocks. */
static int64_t cut_packed(const tn_call *call, cuda_extreme_args *a) {
    enum { VECTOR = 16, MOST_BLOCKS = 1024 };
    int64_t in_unit = VECTOR / cuda_item_bytes(call->dtype), rows = a->rows.rows;
    int64_t units = (a->rows.n + in_unit - 1) / in_unit, parts = 1;
    a->shift = cuda_row_shift(units, rows);
    int64_t lanes = INT64_C(1) << a->shift;
    if (lanes == CUDA_BLOCK) parts = cuda_cut(units, CUDA_BLOCK * CUDA_AHEAD, rows, MOST_BLOCKS);
    a->span = (units + parts - 1) / parts;
    a->parts = (units + a->span - 1) / a->span;
    return (rows * lanes + CUDA_BLOCK - 1) / CUDA_BLOCK * a->parts;
}

/* Whether groups of rows that lie side by side may be moved at once. */
static bool are_whole(const cuda_rows_args *rows, int64_t group, int64_t bytes) {
    uint64_t all = begins_of(rows, 0, 1) | (uint64_t)rows->step[0];
    return rows->size[0] % group == 0 && all % (uint64_t)bytes == 0;
}

/* How rows that lie side by side are cut. */
static extreme_launch cut_columns(const tn_call *call, extreme_kernels *kernels,
                                  cuda_extreme_args *a) {
    enum { COLUMNS = 32, PER_LANE = 16, MOST_BLOCKS = 1024 };
    int64_t item = cuda_item_bytes(call->dtype), group = CUDA_EXTREME_COLUMNS(item);
    extreme_launch l = {.kernel = &kernels->columns[call->dtype]};
    if (!are_whole(&a->rows, group, group * item)) {
        l.kernel = &kernels->odd_columns[call->dtype];
        group = 1;
    }
    int64_t groups = a->rows.rows / group;
    for (a->shift = 0; 1 << a->shift < COLUMNS && 1 << a->shift < groups;) a->shift++;
    l.threads = cuda_rows_threads(a->rows.n, 1 << a->shift);
    int64_t blocks = (groups + (1 << a->shift) - 1) >> a->shift;
    int64_t parts =
        cuda_cut(a->rows.n, PER_LANE * (int64_t)(l.threads >> a->shift), blocks, MOST_BLOCKS);
    a->span = (a->rows.n + parts - 1) / parts;
    a->parts = (a->rows.n + a->span - 1) / a->span;
    l.blocks = blocks * a->parts;
    return l;
}

static extreme_launch cut_extreme(const tn_call *call, extreme_kernels *kernels,
                                  cuda_extreme_args *a) {
    const cuda_rows_args *rows = &a->rows;
    int64_t item = cuda_item_bytes(call->dtype);
    if (rows->step[0] == item) {
        int64_t blocks = cut_packed(call, a);
        return (extreme_launch){&kernels->packed[call->dtype], blocks, CUDA_BLOCK};
    }
    if (rows->dims > 0 && rows->stride[0][0] == item && rows->n <= INT32_MAX)
        return cut_columns(call, kernels, a);
    uint32_t threads = cuda_rows_threads(rows->n, rows->width);
    cut(rows, threads, &a->parts, &a->span);
    return (extreme_launch){&kernels->rows[call->dtype], blocks_of(rows, a->parts), threads};
}

static tn_status extreme(const tn_call *call, extreme_kernels *kernels, const tn_view *x,
                         const tn_view *values, const tn_view *indices, int64_t dim) {
    cuda_extreme_args a = {.values = values ? values->data : NULL, .indices = indices->data};
    if (x->numel == 0) return TN_OK;
    tn_status st = cuda_rows_read(&x, 1, dim, &a.rows);
    if (st != TN_OK) return st;
    extreme_launch l = cut_extreme(call, kernels, &a);
    if (a.parts > 1)
        st = room_scratch(call, room_mul(a.rows.rows, a.parts), PLACE_BYTES, &a.partial);
    if (st == TN_OK) st = cuda_launch(call, l.kernel, l.blocks, l.threads, &a);
    if (st != TN_OK || a.parts == 1) return st;
    return cuda_launch(call, &kernels->finish[call->dtype], a.rows.rows,
                       cuda_rows_threads(a.parts, 1), &a);
}

/* Of all elements, in logical order: one row. */
static tn_status extreme_of_all(const tn_call *call, extreme_kernels *kernels, const tn_view *x,
                                const tn_view *indices) {
    int64_t one = 1;
    const void *data = NULL;
    tn_view row = *x;
    tn_status st = cuda_packed(call, x, &data);
    row.data = (void *)(uintptr_t)data;
    row.ndim = 1;
    row.shape = &row.numel;
    row.strides = &one;
    return st == TN_OK ? extreme(call, kernels, &row, NULL, indices, 0) : st;
}

static tn_status argmax(const tn_call *call, const void *args) {
    const tn_argmax_args *a = args;
    if (!a->dim.has) return extreme_of_all(call, &largest, a->input, a->out);
    return extreme(call, &largest, a->input, NULL, a->out, a->dim.value);
}

static tn_status argmin(const tn_call *call, const void *args) {
    const tn_argmin_args *a = args;
    if (!a->dim.has) return extreme_of_all(call, &smallest, a->input, a->out);
    return extreme(call, &smallest, a->input, NULL, a->out, a->dim.value);
}

static tn_status max_dim(const tn_call *call, const void *args) {
    const tn_max_dim_args *a = args;
    return extreme(call, &largest, a->input, a->values, a->indices, a->dim);
}

static tn_status min_dim(const tn_call *call, const void *args) {
    const tn_min_dim_args *a = args;
    return extreme(call, &smallest, a->input, a->values, a->indices, a->dim);
}

static const tn_kernel_row rows[] = {
    CUDA_NUMBER_ROWS(cumsum, cumsum),
    CUDA_COMPLEX_ROWS(cumsum, cumsum),
    CUDA_NUMBER_ROWS(cumprod, cumprod),
    CUDA_COMPLEX_ROWS(cumprod, cumprod),
    CUDA_FLOAT_ROWS(logcumsumexp, logcumsumexp),
    CUDA_REAL_ROWS(cummax, cummax),
    CUDA_REAL_ROWS(cummin, cummin),
    CUDA_NUMBER_ROWS(argmax, argmax),
    CUDA_NUMBER_ROWS(argmin, argmin),
    CUDA_REAL_ROWS(max_dim, max_dim),
    CUDA_REAL_ROWS(min_dim, min_dim),
};
const cuda_rows cuda_scan_rows = CUDA_ROWS_OF(rows);
