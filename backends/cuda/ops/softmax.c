/* softmax.c: softmax and its kin: host side of kernels/softmax.cu.
 *
 * family: softmax */
#include "cuda_priv.h"

#include <tenon/args_norm.h>

#include "kernels/args/args_softmax.h"

/* A kernel for rows of few packs a thread, for others that a block's threads can hold, for longer ones,
 * and for those not packed. */
enum { FEW, HELD, LONG, COLUMNS };
typedef cuda_float_kernels kernels_by_way[COLUMNS + 1];
#define SOFTMAX_KERNELS(stem)                                                                      \
    {                                                                                              \
        CUDA_FLOAT_KERNELS(softmax, stem##_few), CUDA_FLOAT_KERNELS(softmax, stem##_held),         \
            CUDA_FLOAT_KERNELS(softmax, stem##_long), CUDA_FLOAT_KERNELS(softmax, stem),           \
    }

static kernels_by_way softmax_kernels = SOFTMAX_KERNELS(softmax),
                      log_softmax_kernels = SOFTMAX_KERNELS(log_softmax),
                      softmax_backward_kernels = SOFTMAX_KERNELS(softmax_backward),
                      log_softmax_backward_kernels = SOFTMAX_KERNELS(log_softmax_backward);

/* How rows that are packed in all operands are shared out: FEW, HELD or LONG. Threads of one warp are
 * joined faster than those of several; with two operands to hold, more threads come first. */
static int share_packed(const tn_view *const *views, int32_t n, cuda_softmax_args *a) {
    enum { LEAST_PACKS = 8 }; /* of a row with edges */
    cuda_rows_args *rows = &a->rows;
    int64_t item = tn_view_itemsize(views[0]), pack = 16 / item;
    uint64_t first = (uintptr_t)rows->data[0], apart = 0;
    uint64_t edges = first | (uint64_t)(rows->n % pack * item);
    for (int32_t k = 0; k < n; k++) apart |= first - (uintptr_t)rows->data[k];
    for (int32_t d = 0; d < rows->dims; d++) {
        const int64_t *stride = rows->stride[d];
        edges |= (uint64_t)stride[0];
        for (int32_t k = 0; k < n; k++) apart |= (uint64_t)stride[0] - (uint64_t)stride[k];
    }
    a->whole = apart % 16 == 0 && (edges % 16 == 0 || rows->n >= LEAST_PACKS * pack);
    int64_t items = a->whole ? rows->n / pack : rows->n;
    int64_t each = a->whole ? CUDA_HELD(item) / pack : CUDA_HELD_SINGLES;
    int32_t least = a->whole && edges % 16 ? (int32_t)(2 * pack) : 1;
    int32_t few = cuda_pack_lanes(items, CUDA_HELD_FEW, rows->rows, least);
    bool are_few = a->whole && items <= few * CUDA_HELD_FEW && (few <= 32 || n > 2);
    a->lanes = are_few ? few : cuda_pack_lanes(items, each, rows->rows, least);
    rows->width = CUDA_BLOCK / a->lanes;
    if (are_few) return FEW;
    return items <= a->lanes * each ? HELD : LONG;
}

static tn_status run_rows(const tn_call *call, kernels_by_way kernels, const tn_view *const *views,
                          int32_t n, int64_t dim) {
    cuda_softmax_args a = {0};
    cuda_rows_args *rows = &a.rows;
    if (views[0]->numel == 0) return TN_OK;
    tn_status st = cuda_rows_read(views, n, dim, rows);
    if (st != TN_OK) return st;
    bool packed = true;
    for (int32_t k = 0; k < n; k++) packed = packed && rows->step[k] == tn_view_itemsize(views[k]);
    int way = packed ? share_packed(views, n, &a) : COLUMNS;
    uint32_t threads = packed ? CUDA_BLOCK : cuda_rows_threads(rows->n, rows->width);
    return cuda_launch(call, cuda_float_kernel(call, kernels[way]),
                       (rows->rows + rows->width - 1) / rows->width, threads, &a);
}

static tn_status softmax(const tn_call *call, const void *args) {
    const tn_softmax_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return run_rows(call, softmax_kernels, views, 2, a->dim);
}

static tn_status log_softmax(const tn_call *call, const void *args) {
    const tn_log_softmax_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return run_rows(call, log_softmax_kernels, views, 2, a->dim);
}

static tn_status softmax_backward(const tn_call *call, const void *args) {
    const tn__softmax_backward_args *a = args;
    const tn_view *views[] = {a->grad, a->y, a->out};
    return run_rows(call, softmax_backward_kernels, views, 3, a->dim);
}

static tn_status log_softmax_backward(const tn_call *call, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    const tn_view *views[] = {a->grad, a->y, a->out};
    return run_rows(call, log_softmax_backward_kernels, views, 3, a->dim);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(softmax, softmax),
    CUDA_FLOAT_ROWS(log_softmax, log_softmax),
    CUDA_FLOAT_ROWS(_softmax_backward, softmax_backward),
    CUDA_FLOAT_ROWS(_log_softmax_backward, log_softmax_backward),
};
const cuda_rows cuda_softmax_rows = CUDA_ROWS_OF(rows);
