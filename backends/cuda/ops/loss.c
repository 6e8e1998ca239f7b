/* loss.c: negative log likelihood and cross entropy with classes as targets: host side of
 * kernels/loss.cu.
 *
 * family: loss */
#include "cuda_priv.h"

#include <string.h>

#include <tenon/args_loss.h>

#include "kernels/args/args_loss.h"

static cuda_float_kernels nll_rows = CUDA_FLOAT_KERNELS(loss, nll_rows),
                          entropy_rows = CUDA_FLOAT_KERNELS(loss, entropy_rows),
                          entropy_packed = CUDA_FLOAT_KERNELS(loss, entropy_packed),
                          finishes = CUDA_FLOAT_KERNELS(loss, loss_finish),
                          nll_backwards = CUDA_FLOAT_KERNELS(loss, nll_backward),
                          entropy_backwards = CUDA_FLOAT_KERNELS(loss, entropy_backward),
                          entropy_backwards_packed =
                              CUDA_FLOAT_KERNELS(loss, entropy_backward_packed);

/* ---- What the operators share ------------------------------------------------------------------*/

/* Sizes, targets and weights; a vector is one sample. */
static tn_status start(const tn_call *call, int32_t ndim, const int64_t *shape,
                       const tn_view *target, const tn_view *weight, cuda_loss_args *ret_args) {
    cuda_loss_args *a = ret_args;
    const void *packed = NULL;
    memset(a, 0, sizeof *a);
    if (tn_view_dtype(target) != TN_I64) return TN_DECLINE;
    a->classes = shape[ndim == 1 ? 0 : 1];
    a->positions = 1;
    for (int32_t d = 2; d < ndim; d++) a->positions *= shape[d];
    a->rows = (ndim == 1 ? 1 : shape[0]) * a->positions;
    a->narrow = a->rows * a->classes <= INT32_MAX;
    a->op = (uint64_t)(uintptr_t)call->op->name;
    tn_status st = cuda_fault_of(call, &a->fault);
    if (st == TN_OK) st = cuda_packed(call, target, &packed);
    a->target = packed;
    if (st == TN_OK && weight) st = cuda_packed(call, weight, &a->weight);
    return st;
}

/* The input, packed where its positions do not lie one stride apart. */
static tn_status read_input(const tn_call *call, const tn_view *x, cuda_loss_args *a) {
    int64_t *stride = a->x_stride;
    a->x = x->data;
    stride[1] = x->strides[x->ndim == 1 ? 0 : 1];
    stride[0] = x->ndim == 1 ? 0 : x->strides[0];
    if (x->ndim <= 2 || cuda_merge_dims(x, 2, &stride[2])) return TN_OK;
    stride[0] = a->classes * a->positions;
    stride[1] = a->positions;
    stride[2] = 1;
    return cuda_packed(call, x, &a->x);
}

/* Two launches: `width` rows per block, `threads` threads each, and the sum of the blocks. */
static tn_status run(const tn_call *call, cuda_float_kernels kernels, int32_t width,
                     uint32_t threads, cuda_loss_args *a) {
    void *partial = NULL;
    a->width = width;
    a->parts = (a->rows + width - 1) / width;
    tn_status st = room_scratch(call, a->parts + 1, 16, &partial);
    a->partial = partial;
    if (st == TN_OK && a->parts > 0)
        st = cuda_launch(call, cuda_float_kernel(call, kernels), a->parts, threads, a);
    if (st != TN_OK) return st;
    return cuda_launch(call, cuda_float_kernel(call, finishes), 1, CUDA_BLOCK, a);
}

/* A thread takes PER_THREAD classes of a row. */
static tn_status run_backward(const tn_call *call, cuda_float_kernels kernels, cuda_loss_args *a) {
    enum { PER_THREAD = 8 };
    a->groups = (a->classes + PER_THREAD - 1) / PER_THREAD;
    return cuda_launch_each(call, cuda_float_kernel(call, kernels), a->rows * a->groups, a);
}

/* The gradient's operands; *ret_any: whether it has elements. */
static tn_status start_backward(const tn_call *call, const tn_view *grad, const tn_view *out,
                                cuda_loss_args *a, bool *ret_any) {
    a->out = out->data;
    *ret_any = a->rows * a->classes > 0;
    return cuda_packed(call, grad, &a->grad);
}

/* ---- nll_loss ----------------------------------------------------------------------------------*/

static tn_status nll_loss(const tn_call *call, const void *args) {
    const tn__nll_loss_args *in = args;
    cuda_loss_args a;
    tn_status st = start(call, in->input->ndim, in->input->shape, in->target, in->weight, &a);
    if (st == TN_OK) st = read_input(call, in->input, &a);
    if (st != TN_OK) return st;
    a.y = in->y->data;
    a.total = in->total_weight->data;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    return run(call, nll_rows, CUDA_BLOCK, CUDA_BLOCK, &a);
}

/* The derivative of nll_loss in the direction of `input`: a mean is over the given total. */
static tn_status nll_gather(const tn_call *call, const void *args) {
    const tn__nll_loss_gather_args *in = args;
    cuda_loss_args a;
    tn_status st = start(call, in->input->ndim, in->input->shape, in->target, in->weight, &a);
    if (st == TN_OK) st = read_input(call, in->input, &a);
    if (st != TN_OK) return st;
    a.y = in->out->data;
    a.given = in->total_weight->data;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    return run(call, nll_rows, CUDA_BLOCK, CUDA_BLOCK, &a);
}

static tn_status nll_backward(const tn_call *call, const void *args) {
    const tn__nll_loss_backward_args *in = args;
    cuda_loss_args a;
    tn_status st = start(call, in->out->ndim, in->out->shape, in->target, in->weight, &a);
    if (st != TN_OK) return st;
    a.given = in->total_weight->data;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    bool any = false;
    st = start_backward(call, in->grad, in->out, &a, &any);
    return st == TN_OK && any ? run_backward(call, nll_backwards, &a) : st;
}

/* ---- cross_entropy -----------------------------------------------------------------------------*/

enum {
    WIDTH = 32,     /* rows of a block whose classes do not lie side by side */
    PER_LANE = 16,  /* packs of a row that a thread takes */
    LEAST_PACKS = 8 /* of a row that is taken in packs, unless it has no edges */
};

/* How rows whose classes lie side by side are shared out. */
static void share_packed(int64_t item, cuda_loss_args *a) {
    int64_t pack = 16 / item, most = a->classes / pack;
    bool edges = a->classes % pack || ((uintptr_t)a->x | (uint64_t)a->x_stride[0] * (uint64_t)item |
                                       (uint64_t)a->x_stride[2] * (uint64_t)item) %
                                          16;
    a->whole = !edges || most >= LEAST_PACKS;
    int32_t least = a->whole && edges ? (int32_t)(2 * pack) : 1;
    a->lanes = cuda_pack_lanes(a->whole ? most : a->classes, PER_LANE, a->rows, least);
}

static tn_status cross_entropy(const tn_call *call, const void *args) {
    const tn__cross_entropy_args *in = args;
    cuda_loss_args a;
    tn_status st = start(call, in->input->ndim, in->input->shape, in->target, NULL, &a);
    if (st == TN_OK) st = read_input(call, in->input, &a);
    if (st != TN_OK) return st;
    a.y = in->y->data;
    a.most = in->most->data;
    a.log_sum = in->log_sum->data;
    a.total = in->count->data;
    a.wide = 1;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    if (a.x_stride[1] == 1) {
        share_packed(tn_view_itemsize(in->input), &a);
        return run(call, entropy_packed, CUDA_BLOCK / a.lanes, CUDA_BLOCK, &a);
    }
    int32_t width = a.rows >= WIDTH ? WIDTH : 1;
    return run(call, entropy_rows, width, cuda_rows_threads(a.classes, width), &a);
}

/* Rows that lie alike in the input and in its gradient; false: there are none. */
static bool share_backward(int64_t item, cuda_loss_args *a) {
    uint64_t apart = ((uint64_t)a->x_stride[0] - (uint64_t)a->classes) * (uint64_t)item;
    if (a->positions != 1 || a->x_stride[1] != 1) return false;
    if (((uintptr_t)a->x - (uintptr_t)a->out) % 16 || (a->rows > 1 && apart % 16)) return false;
    share_packed(item, a);
    if (!a->whole) return false;
    int64_t most = a->classes * item / 16;
    a->width = CUDA_BLOCK / a->lanes;
    a->parts = a->width > 1 ? 1 : cuda_parts(most, CUDA_BLOCK, a->rows);
    a->groups = (most + a->parts - 1) / a->parts;
    return true;
}

static tn_status cross_entropy_backward(const tn_call *call, const void *args) {
    const tn__cross_entropy_backward_args *in = args;
    cuda_loss_args a;
    const void *most = NULL, *log_sum = NULL;
    tn_status st = start(call, in->input->ndim, in->input->shape, in->target, NULL, &a);
    if (st == TN_OK) st = read_input(call, in->input, &a);
    if (st == TN_OK) st = cuda_packed(call, in->most, &most);
    if (st == TN_OK) st = cuda_packed(call, in->log_sum, &log_sum);
    if (st != TN_OK) return st;
    a.most = (void *)(uintptr_t)most;
    a.log_sum = (void *)(uintptr_t)log_sum;
    a.given = in->count->data;
    a.wide = 1;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    bool any = false;
    st = start_backward(call, in->grad, in->out, &a, &any);
    if (st != TN_OK || !any) return st;
    if (!share_backward(tn_view_itemsize(in->input), &a))
        return run_backward(call, entropy_backwards, &a);
    int64_t blocks = (a.rows + a.width - 1) / a.width * a.parts;
    return cuda_launch(call, cuda_float_kernel(call, entropy_backwards_packed), blocks, CUDA_BLOCK,
                       &a);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_nll_loss, nll_loss),
    CUDA_FLOAT_ROWS(_nll_loss_backward, nll_backward),
    CUDA_FLOAT_ROWS(_nll_loss_gather, nll_gather),
    CUDA_FLOAT_ROWS(_cross_entropy, cross_entropy),
    CUDA_FLOAT_ROWS(_cross_entropy_backward, cross_entropy_backward),
};
const cuda_rows cuda_loss_rows = CUDA_ROWS_OF(rows);
