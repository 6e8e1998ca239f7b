/* norm.c: layer_norm, rms_norm and batch_norm: host side of kernels/norm.cu and norm_last.cu.
 *
 * family: norm */
#include "norm.h"

#include <string.h>

#include "kernels/args/args_norm.h"

/* Bytes of a number of the type computed in. */

enum {
    COLUMNS = 32,       /* most columns, or vectors of them, of a block */
    VECTOR = 16,        /* bytes that a thread loads at once */
    LEAST = 4,          /* vectors that a thread takes at least */
    FEW = 8,            /* vectors of a row that neighbouring threads take, rather than one */
    MOST_BLOCKS = 1024, /* more blocks than this need not be cut further */
};

/* Parts of `count` units each that `blocks` blocks of `lanes` lanes are cut into. */
static int64_t parts_of(int64_t count, int64_t lanes, int64_t blocks) {
    return cuda_cut(count, lanes * LEAST, blocks, MOST_BLOCKS);
}

static bool is_aligned(const void *p) { return (uintptr_t)p % VECTOR == 0; }

static void *data_of(const tn_view *v) { return v ? v->data : NULL; }

/* ---- batch_norm --------------------------------------------------------------------------------*/

/* By vectors, and element by element. */
typedef struct batch_kernels {
    cuda_float_kernels vectors, odd;
} batch_kernels;
#define BATCH_KERNELS(name, odd_name)                                                              \
    { CUDA_FLOAT_KERNELS(norm, name), CUDA_FLOAT_KERNELS(norm, odd_name) }
static batch_kernels batch_moments = BATCH_KERNELS(batch_norm_moments, batch_norm_odd_moments),
                     batch_forward = BATCH_KERNELS(batch_norm, batch_norm_odd),
                     batch_products = BATCH_KERNELS(batch_norm_products, batch_norm_odd_products),
                     batch_backward = BATCH_KERNELS(batch_norm_backward, batch_norm_odd_backward);
static cuda_float_kernels batch_running_kernels = CUDA_FLOAT_KERNELS(norm, batch_norm_running);

/* Strides of sample, channel and position; false where positions do not lie one stride apart. */
static bool read_strides(const tn_view *v, int64_t *ret_stride) {
    ret_stride[0] = v->strides[0];
    ret_stride[1] = v->strides[1];
    return cuda_merge_dims(v, 2, &ret_stride[2]);
}

/* An input; packed where its positions are anyhow. */
static tn_status read_input(const tn_call *call, const tn_view *v, const void **ret_data,
                            int64_t *ret_stride) {
    int64_t positions = 1;
    *ret_data = v->data;
    if (read_strides(v, ret_stride)) return TN_OK;
    for (int32_t d = 2; d < v->ndim; d++) positions *= v->shape[d];
    ret_stride[0] = v->shape[1] * positions;
    ret_stride[1] = positions;
    ret_stride[2] = 1;
    return cuda_packed(call, v, ret_data);
}

/* How channels are cut, from sizes and the layout of x alone: those that lie side by side go to
 * neighbouring threads. */
static void cut(cuda_batch_norm_args *a, int64_t item) {
    int64_t vector = VECTOR / item;
    bool vectors = a->x_stride[2] == 1 && a->positions % vector == 0 &&
                   a->x_stride[0] % vector == 0 && a->x_stride[1] % vector == 0;
    a->vector = vectors ? (int32_t)vector : 1;
    a->units = a->positions / a->vector;
    int64_t count = a->samples * a->units;
    a->narrow = count <= INT32_MAX;
    for (a->width = 1; a->x_stride[1] == 1 && a->width < COLUMNS && a->width < a->channels;)
        a->width *= 2;
    int64_t blocks = (a->channels + a->width - 1) / a->width;
    int64_t parts = parts_of(count, CUDA_BLOCK / a->width, blocks ? blocks : 1);
    a->span = (count + parts - 1) / parts;
    a->parts = (int32_t)parts;
}

static tn_status read_channels(const tn_call *call, const tn_view *x, cuda_batch_norm_args *ret) {
    cuda_batch_norm_args *a = ret;
    memset(a, 0, sizeof *a);
    a->samples = x->shape[0];
    a->channels = x->shape[1];
    a->positions = 1;
    for (int32_t d = 2; d < x->ndim; d++) a->positions *= x->shape[d];
    tn_status st = read_input(call, x, &a->x, a->x_stride);
    if (st == TN_OK) cut(a, tn_view_itemsize(x));
    return st;
}

/* Whether an operand's units may be moved at once. */
static bool is_whole(const cuda_batch_norm_args *a, const void *data, const int64_t *stride) {
    return a->vector == 1 || (is_aligned(data) && stride[2] == 1 && stride[0] % a->vector == 0 &&
                              stride[1] % a->vector == 0);
}

static tn_status launch_channels(const tn_call *call, batch_kernels *kernels,
                                 const cuda_batch_norm_args *args) {
    cuda_batch_norm_args a = *args;
    int64_t blocks = (a.channels + a.width - 1) / a.width * a.parts;
    a.x_whole = is_whole(&a, a.x, a.x_stride);
    a.grad_whole = is_whole(&a, a.grad, a.grad_stride);
    a.y_whole = is_whole(&a, a.y, a.y_stride);
    cuda_kernel *kernel = a.vector > 1 ? cuda_float_kernel(call, kernels->vectors)
                                       : cuda_float_kernel(call, kernels->odd);
    return cuda_launch(call, kernel, blocks, CUDA_BLOCK, &a);
}

/* Room for `numbers` numbers of every part of every channel. */
static tn_status make_partial(const tn_call *call, cuda_batch_norm_args *a, uint64_t numbers) {
    int64_t n = room_mul3((int64_t)numbers, a->channels, a->parts);
    return room_scratch(call, n, (size_t)cuda_sum_bytes(call), &a->partial);
}

/* ---- Channels side by side: kernels/norm_last.cu -----------------------------------------------*/

static cuda_float_kernels last_moments = CUDA_FLOAT_KERNELS(norm_last, batch_norm_last_moments),
                          last_moments_joined =
                              CUDA_FLOAT_KERNELS(norm_last, batch_norm_last_joined),
                          last_forward = CUDA_FLOAT_KERNELS(norm_last, batch_norm_last),
                          last_products = CUDA_FLOAT_KERNELS(norm_last, batch_norm_last_products),
                          last_products_joined =
                              CUDA_FLOAT_KERNELS(norm_last, batch_norm_last_products_joined),
                          last_backward = CUDA_FLOAT_KERNELS(norm_last, batch_norm_last_backward);

/* Whether an operand's channels lie side by side and its pixels one stride apart, which is put in for
 * that of positions. */
static bool read_pixels(const cuda_batch_norm_args *a, const void *data, int64_t *stride) {
    if (!data) return true;
    if (a->positions == 1) stride[2] = stride[0];
    return stride[1] == 1 &&
           (a->samples == 1 || stride[0] == stride[2] * a->positions || a->positions == 1);
}

/* How pixels are cut, from sizes and layouts alone; false where channels do not lie side by side in
 * whole packs. */
static bool cut_last(const tn_call *call, cuda_batch_norm_args *args) {
    enum { LEAST_PIXELS = 16, MOST_LAST_BLOCKS = 512 };
    cuda_batch_norm_args a = *args;
    int64_t pack = VECTOR / cuda_item_bytes(call->dtype);
    if (a.channels <= 1 || a.channels % pack != 0 || !read_pixels(&a, a.x, a.x_stride) ||
        !read_pixels(&a, a.grad, a.grad_stride) || !read_pixels(&a, a.y, a.y_stride))
        return false;
    int64_t packs = a.channels / pack;
    a.units = a.samples * a.positions;
    for (a.width = 1; a.width < COLUMNS && a.width < packs;) a.width *= 2;
    int64_t blocks = (packs + a.width - 1) / a.width;
    int64_t parts =
        cuda_cut(a.units, CUDA_BLOCK / a.width * LEAST_PIXELS, blocks, MOST_LAST_BLOCKS);
    a.span = (a.units + parts - 1) / parts;
    a.parts = (int32_t)parts;
    a.x_whole = is_aligned(a.x) && a.x_stride[2] % pack == 0;
    a.grad_whole = is_aligned(a.grad) && a.grad_stride[2] % pack == 0;
    a.y_whole = is_aligned(a.y) && a.y_stride[2] % pack == 0;
    *args = a;
    return true;
}

static tn_status launch_last(const tn_call *call, cuda_float_kernels kernels,
                             const cuda_batch_norm_args *a) {
    int64_t width = a->width * (VECTOR / cuda_item_bytes(call->dtype));
    int64_t blocks = (a->channels + width - 1) / width * a->parts;
    return cuda_launch(call, cuda_float_kernel(call, kernels), blocks, CUDA_BLOCK, a);
}

/* What all pixels of a channel come to: `numbers` numbers of each part, which a second launch joins. */
static tn_status sum_last(const tn_call *call, cuda_float_kernels parts, cuda_float_kernels joined,
                          uint64_t numbers, cuda_batch_norm_args *a) {
    tn_status st = a->parts > 1 ? make_partial(call, a, numbers) : TN_OK;
    if (st == TN_OK) st = launch_last(call, parts, a);
    if (st != TN_OK || a->parts == 1) return st;
    int64_t blocks = (a->channels + NORM_LAST_JOINED - 1) / NORM_LAST_JOINED;
    return cuda_launch(call, cuda_float_kernel(call, joined), blocks, CUDA_BLOCK, a);
}

static tn_status run_last_forward(const tn_call *call, cuda_batch_norm_args *a) {
    tn_status st = TN_OK;
    if (a->training) st = sum_last(call, last_moments, last_moments_joined, 3, a);
    return st == TN_OK ? launch_last(call, last_forward, a) : st;
}

static tn_status run_last_backward(const tn_call *call, cuda_batch_norm_args *a) {
    tn_status st = room_scratch(call, a->channels, 2 * (size_t)cuda_sum_bytes(call), &a->sums);
    if (st == TN_OK) st = sum_last(call, last_products, last_products_joined, 2, a);
    return st == TN_OK && a->y ? launch_last(call, last_backward, a) : st;
}

/* ---- Either way --------------------------------------------------------------------------------*/

static tn_status run_forward(const tn_call *call, cuda_batch_norm_args *a) {
    if (cut_last(call, a)) return run_last_forward(call, a);
    tn_status st = a->training ? make_partial(call, a, 3) : TN_OK;
    if (st == TN_OK && a->training) st = launch_channels(call, &batch_moments, a);
    return st == TN_OK ? launch_channels(call, &batch_forward, a) : st;
}

static tn_status run_backward(const tn_call *call, cuda_batch_norm_args *a) {
    if (cut_last(call, a)) return run_last_backward(call, a);
    tn_status st = make_partial(call, a, 2);
    if (st == TN_OK) st = launch_channels(call, &batch_products, a);
    return st == TN_OK ? launch_channels(call, &batch_backward, a) : st;
}

/* After cuDNN, which need not count as we do: the variance of what runs is the unbiased one. */
static tn_status update_running(const tn_call *call, const tn_native_batch_norm_args *in) {
    const tn_view *x = in->input;
    cuda_batch_norm_args a = {.running_mean = data_of(in->running_mean),
                              .running_var = data_of(in->running_var),
                              .mean = in->save_mean->data,
                              .rstd = in->save_invstd->data,
                              .samples = x->shape[0],
                              .channels = x->shape[1],
                              .positions = x->numel / (x->shape[0] * x->shape[1]),
                              .momentum = in->momentum,
                              .eps = in->eps};
    if (!a.running_mean && !a.running_var) return TN_OK;
    return cuda_launch_each(call, cuda_float_kernel(call, batch_running_kernels), a.channels, &a);
}

static tn_status batch_norm(const tn_call *call, const void *args) {
    const tn_native_batch_norm_args *in = args;
    cuda_batch_norm_args a;
    if (in->y->numel == 0) return TN_OK;
    tn_status st = cuda_batch_norm_by_cudnn(call, in);
    if (st != TN_DECLINE) return st == TN_OK ? update_running(call, in) : st;
    st = read_channels(call, in->input, &a);
    if (st != TN_OK) return st;
    if (!read_strides(in->y, a.y_stride)) return TN_DECLINE;
    a.weight = data_of(in->weight);
    a.bias = data_of(in->bias);
    a.running_mean = data_of(in->running_mean);
    a.running_var = data_of(in->running_var);
    a.y = in->y->data;
    a.mean = in->save_mean->data;
    a.rstd = in->save_invstd->data;
    a.training = in->training != 0;
    a.momentum = in->momentum;
    a.eps = in->eps;
    return run_forward(call, &a);
}

static tn_status batch_norm_backward(const tn_call *call, const void *args) {
    const tn__batch_norm_backward_args *in = args;
    cuda_batch_norm_args a;
    tn_status st = cuda_batch_norm_backward_by_cudnn(call, in);
    if (st != TN_DECLINE) return st;
    st = read_channels(call, in->input, &a);
    if (st != TN_OK || a.channels == 0) return st;
    if (in->need_input && !read_strides(in->grad_input, a.y_stride)) return TN_DECLINE;
    st = read_input(call, in->grad, &a.grad, a.grad_stride);
    if (st != TN_OK) return st;
    a.weight = data_of(in->weight);
    a.mean = in->mean->data;
    a.rstd = in->invstd->data;
    a.y = in->need_input ? in->grad_input->data : NULL;
    a.grad_weight = in->need_weight ? in->grad_weight->data : NULL;
    a.grad_bias = in->need_bias ? in->grad_bias->data : NULL;
    a.training = in->training != 0;
    return run_backward(call, &a);
}

/* ---- layer_norm: rows are packed, so says the operator's entry ---------------------------------*/

static cuda_float_kernels layer_norm_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm),
                          layer_own_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_own),
                          layer_own_odd_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_own_odd),
                          layer_input_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_input),
                          layer_input_own_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_input_own),
                          layer_input_own_odd_kernels =
                              CUDA_FLOAT_KERNELS(norm, layer_norm_input_own_odd),
                          layer_columns_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_columns),
                          layer_odd_columns_kernels =
                              CUDA_FLOAT_KERNELS(norm, layer_norm_odd_columns),
                          layer_finish_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_finish);

static bool is_wide(const tn_view *parameter, const tn_view *x) {
    return parameter && tn_view_dtype(parameter) != tn_view_dtype(x);
}

static cuda_layer_norm_args read_rows(const tn_view *x, const tn_view *rstd, tn_ints shape) {
    cuda_layer_norm_args a;
    memset(&a, 0, sizeof a);
    a.x = x->data;
    a.rows = rstd->numel;
    a.n = 1;
    for (int64_t i = 0; i < shape.n; i++) a.n *= shape.v[i];
    return a;
}

/* Elements of a row that its threads hold: as many as a thread holds, times `lanes`. */
static int64_t held_by(const tn_call *call, int64_t lanes) {
    return lanes * NORM_ROW_BYTES / cuda_sum_bytes(call);
}

static bool are_held(const tn_call *call, const cuda_layer_norm_args *a) {
    return a->n <= held_by(call, CUDA_BLOCK);
}

static int64_t vector_of(const tn_call *call) { return VECTOR / cuda_item_bytes(call->dtype); }

/* All vectors are whole and aligned. */
static bool are_whole(const tn_call *call, const cuda_layer_norm_args *a) {
    return a->n % vector_of(call) == 0 && is_aligned(a->x) && is_aligned(a->grad) &&
           is_aligned(a->y) && is_aligned(a->weight) && is_aligned(a->bias);
}

/* Rows without weight and bias, as group_norm has them, are channels of one sample where they are few and
 * long, so that blocks share them, and where threads cannot hold them: two passes of whole vectors. */
static bool are_channels(const tn_call *call, const cuda_layer_norm_args *a) {
    if (a->weight || a->bias || a->rows == 0) return false;
    if (cuda_parts(a->n, CUDA_BLOCK, a->rows) > 1) return true;
    return !are_held(call, a) && a->n % vector_of(call) == 0;
}

static cuda_batch_norm_args as_channels(const tn_call *call, const cuda_layer_norm_args *a) {
    cuda_batch_norm_args b = {.x = a->x,
                              .grad = a->grad,
                              .y = a->y,
                              .mean = a->mean,
                              .rstd = a->rstd,
                              .samples = 1,
                              .channels = a->rows,
                              .positions = a->n,
                              .x_stride = {0, a->n, 1},
                              .grad_stride = {0, a->n, 1},
                              .y_stride = {0, a->n, 1},
                              .training = 1,
                              .eps = a->eps};
    cut(&b, cuda_item_bytes(call->dtype));
    return b;
}

/* Rows that their threads hold have as few threads as can hold them, but some that load neighbouring
 * vectors; others have one for each group of elements, up to a block. */
static tn_status launch_rows(const tn_call *call, bool forward, const cuda_layer_norm_args *args) {
    cuda_layer_norm_args a = *args;
    cuda_kernel *kernel;
    bool held = are_held(call, &a);
    int64_t vectors = (a.n + vector_of(call) - 1) / vector_of(call);
    a.lanes = 1;
    if (held) {
        while (a.lanes < FEW && a.lanes < vectors) a.lanes *= 2;
        while (held_by(call, a.lanes) < a.n) a.lanes *= 2;
    } else {
        while (a.lanes < CUDA_BLOCK && a.lanes * CUDA_GROUP < a.n) a.lanes *= 2;
    }
    for (a.shift = 0; 1 << a.shift < a.lanes;) a.shift++;
    a.whole = are_whole(call, &a);
    int64_t per_block = CUDA_BLOCK / a.lanes;
    if (!held)
        kernel = cuda_float_kernel(call, forward ? layer_norm_kernels : layer_input_kernels);
    else if (a.whole)
        kernel = cuda_float_kernel(call, forward ? layer_own_kernels : layer_input_own_kernels);
    else
        kernel =
            cuda_float_kernel(call, forward ? layer_own_odd_kernels : layer_input_own_odd_kernels);
    return cuda_launch(call, kernel, (a.rows + per_block - 1) / per_block, CUDA_BLOCK, &a);
}

static tn_status layer_norm(const tn_call *call, const void *args) {
    const tn_native_layer_norm_args *in = args;
    cuda_layer_norm_args a = read_rows(in->input, in->rstd, in->normalized_shape);
    if (a.rows == 0) return TN_OK;
    a.weight = data_of(in->weight);
    a.bias = data_of(in->bias);
    a.wide_weight = is_wide(in->weight, in->input);
    a.wide_bias = is_wide(in->bias, in->input);
    a.y = in->y->data;
    a.mean = in->mean->data;
    a.rstd = in->rstd->data;
    a.eps = in->eps;
    if (!are_channels(call, &a)) return launch_rows(call, true, &a);
    cuda_batch_norm_args b = as_channels(call, &a);
    return run_forward(call, &b);
}

/* Gradients of weight and bias; without rows they are zero. */
static tn_status layer_norm_columns(const tn_call *call, cuda_layer_norm_args *a) {
    bool vectors = a->n % vector_of(call) == 0;
    int64_t groups = vectors ? a->n / vector_of(call) : a->n;
    for (a->shift = 0; 1 << a->shift < COLUMNS && 1 << a->shift < groups;) a->shift++;
    int64_t blocks = (groups + (1 << a->shift) - 1) >> a->shift;
    int64_t parts = parts_of(a->rows, CUDA_BLOCK >> a->shift, blocks);
    tn_status st = TN_OK;
    a->span = (a->rows + parts - 1) / parts;
    a->parts = (int32_t)parts;
    a->whole = !vectors || (is_aligned(a->x) && is_aligned(a->grad));
    if (parts > 1)
        st = room_scratch(call, room_mul(parts, a->n), 2 * (size_t)cuda_sum_bytes(call),
                          &a->partial);
    cuda_kernel *kernel = vectors ? cuda_float_kernel(call, layer_columns_kernels)
                                  : cuda_float_kernel(call, layer_odd_columns_kernels);
    if (st == TN_OK) st = cuda_launch(call, kernel, blocks * parts, CUDA_BLOCK, a);
    if (st != TN_OK || parts == 1) return st;
    return cuda_launch(call, cuda_float_kernel(call, layer_finish_kernels),
                       (a->n + COLUMNS - 1) / COLUMNS, CUDA_BLOCK, a);
}

static tn_status layer_norm_input(const tn_call *call, const cuda_layer_norm_args *a) {
    if (!are_channels(call, a)) return launch_rows(call, false, a);
    cuda_batch_norm_args b = as_channels(call, a);
    return run_backward(call, &b);
}

static tn_status layer_norm_backward(const tn_call *call, const void *args) {
    const tn__layer_norm_backward_args *in = args;
    cuda_layer_norm_args a = read_rows(in->input, in->rstd, in->normalized_shape);
    tn_status st = TN_OK;
    if (a.n == 0) return TN_OK;
    a.grad = in->grad->data;
    a.weight = data_of(in->weight);
    a.wide_weight = is_wide(in->weight, in->input);
    a.mean = in->mean->data;
    a.rstd = in->rstd->data;
    a.y = in->need_input ? in->grad_input->data : NULL;
    a.grad_weight = in->need_weight ? in->grad_weight->data : NULL;
    a.grad_bias = in->need_bias ? in->grad_bias->data : NULL;
    if (a.y && a.rows > 0) st = layer_norm_input(call, &a);
    if (st != TN_OK || (!a.grad_weight && !a.grad_bias)) return st;
    return layer_norm_columns(call, &a);
}

/* ---- rms_norm: layer_norm's kernels without a mean ---------------------------------------------*/

static tn_status rms_norm(const tn_call *call, const void *args) {
    const tn__rms_norm_args *in = args;
    cuda_layer_norm_args a = read_rows(in->input, in->rstd, in->normalized_shape);
    if (a.rows == 0) return TN_OK;
    a.weight = data_of(in->weight);
    a.wide_weight = is_wide(in->weight, in->input);
    a.y = in->y->data;
    a.rstd = in->rstd->data;
    a.eps = in->eps;
    return launch_rows(call, true, &a);
}

static tn_status rms_norm_backward(const tn_call *call, const void *args) {
    const tn__rms_norm_backward_args *in = args;
    cuda_layer_norm_args a = read_rows(in->input, in->rstd, in->normalized_shape);
    tn_status st = TN_OK;
    if (a.n == 0) return TN_OK;
    a.grad = in->grad->data;
    a.weight = data_of(in->weight);
    a.wide_weight = is_wide(in->weight, in->input);
    a.rstd = in->rstd->data;
    a.y = in->need_input ? in->grad_input->data : NULL;
    a.grad_weight = in->need_weight ? in->grad_weight->data : NULL;
    if (a.y && a.rows > 0) st = launch_rows(call, false, &a);
    if (st != TN_OK || !a.grad_weight) return st;
    return layer_norm_columns(call, &a);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_rms_norm, rms_norm),
    CUDA_FLOAT_ROWS(_rms_norm_backward, rms_norm_backward),
    CUDA_FLOAT_ROWS(native_layer_norm, layer_norm),
    CUDA_FLOAT_ROWS(_layer_norm_backward, layer_norm_backward),
    CUDA_FLOAT_ROWS(native_batch_norm, batch_norm),
    CUDA_FLOAT_ROWS(_batch_norm_backward, batch_norm_backward),
};
const cuda_rows cuda_norm_rows = CUDA_ROWS_OF(rows);
