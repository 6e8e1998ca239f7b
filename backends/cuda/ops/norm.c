/* norm.c: layer_norm, rms_norm and batch_norm: host side of kernels/norm.cu.
 *
 * family: norm */
#include "norm.h"

#include <string.h>

#include "kernels/args/args_norm.h"

/* Bytes of a number of the type computed in. */
static uint64_t wide_item(const tn_call *call) { return call->dtype == TN_F64 ? 8 : 4; }

enum { COLUMNS = 32 }; /* of a block that sums down columns */

static void *data_of(const tn_view *v) { return v ? v->data : NULL; }

/* ---- batch_norm --------------------------------------------------------------------------------*/

static cuda_float_kernels batch_moments_kernels = CUDA_FLOAT_KERNELS(norm, batch_norm_moments),
                          batch_norm_kernels = CUDA_FLOAT_KERNELS(norm, batch_norm),
                          batch_running_kernels = CUDA_FLOAT_KERNELS(norm, batch_norm_running),
                          batch_products_kernels = CUDA_FLOAT_KERNELS(norm, batch_norm_products),
                          batch_backward_kernels = CUDA_FLOAT_KERNELS(norm, batch_norm_backward);

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
static void cut(cuda_batch_norm_args *a) {
    int64_t count = a->samples * a->positions;
    a->narrow = count <= INT32_MAX;
    for (a->width = 1; a->x_stride[1] == 1 && a->width < COLUMNS && a->width < a->channels;)
        a->width *= 2;
    int64_t blocks = (a->channels + a->width - 1) / a->width;
    int64_t parts = cuda_parts(count, CUDA_BLOCK / a->width, blocks ? blocks : 1);
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
    if (st == TN_OK) cut(a);
    return st;
}

static tn_status launch_channels(const tn_call *call, cuda_float_kernels kernels,
                                 const cuda_batch_norm_args *a) {
    int64_t blocks = (a->channels + a->width - 1) / a->width * a->parts;
    return cuda_launch(call, cuda_float_kernel(call, kernels), blocks, CUDA_BLOCK, a);
}

/* Room for `numbers` numbers of every part of every channel. */
static tn_status make_partial(const tn_call *call, cuda_batch_norm_args *a, uint64_t numbers) {
    int64_t n = room_mul3((int64_t)numbers, a->channels, a->parts);
    return room_scratch(call, n, wide_item(call), &a->partial);
}

static tn_status run_forward(const tn_call *call, cuda_batch_norm_args *a) {
    tn_status st = a->training ? make_partial(call, a, 3) : TN_OK;
    if (st == TN_OK && a->training) st = launch_channels(call, batch_moments_kernels, a);
    return st == TN_OK ? launch_channels(call, batch_norm_kernels, a) : st;
}

static tn_status run_backward(const tn_call *call, cuda_batch_norm_args *a) {
    tn_status st = make_partial(call, a, 2);
    if (st == TN_OK) st = launch_channels(call, batch_products_kernels, a);
    return st == TN_OK ? launch_channels(call, batch_backward_kernels, a) : st;
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
    return cuda_launch(call, cuda_float_kernel(call, batch_running_kernels),
                       (a.channels + CUDA_BLOCK - 1) / CUDA_BLOCK, CUDA_BLOCK, &a);
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
                          layer_input_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_input),
                          layer_columns_kernels = CUDA_FLOAT_KERNELS(norm, layer_norm_columns),
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
    for (a.lanes = 1; a.lanes < CUDA_BLOCK && a.lanes * CUDA_GROUP < a.n;) a.lanes *= 2;
    return a;
}

/* Few long rows without weight and bias, as group_norm has them, are channels of one sample, which
 * blocks share. */
static bool are_channels(const cuda_layer_norm_args *a) {
    return !a->weight && !a->bias && a->rows > 0 && cuda_parts(a->n, CUDA_BLOCK, a->rows) > 1;
}

static cuda_batch_norm_args as_channels(const cuda_layer_norm_args *a) {
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
    cut(&b);
    return b;
}

static tn_status launch_rows(const tn_call *call, cuda_float_kernels kernels,
                             const cuda_layer_norm_args *a) {
    int64_t per_block = CUDA_BLOCK / a->lanes;
    return cuda_launch(call, cuda_float_kernel(call, kernels),
                       (a->rows + per_block - 1) / per_block, CUDA_BLOCK, a);
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
    if (!are_channels(&a)) return launch_rows(call, layer_norm_kernels, &a);
    cuda_batch_norm_args b = as_channels(&a);
    return run_forward(call, &b);
}

/* Gradients of weight and bias; without rows they are zero. */
static tn_status layer_norm_columns(const tn_call *call, cuda_layer_norm_args *a) {
    int64_t blocks = (a->n + COLUMNS - 1) / COLUMNS;
    int64_t parts = cuda_parts(a->rows, CUDA_BLOCK / COLUMNS, blocks);
    tn_status st = TN_OK;
    a->span = (a->rows + parts - 1) / parts;
    a->parts = (int32_t)parts;
    if (parts > 1) st = room_scratch(call, room_mul(parts, a->n), 2 * wide_item(call), &a->partial);
    if (st == TN_OK)
        st = cuda_launch(call, cuda_float_kernel(call, layer_columns_kernels), blocks * parts,
                         CUDA_BLOCK, a);
    if (st != TN_OK || parts == 1) return st;
    return cuda_launch(call, cuda_float_kernel(call, layer_finish_kernels),
                       (a->n + CUDA_BLOCK - 1) / CUDA_BLOCK, CUDA_BLOCK, a);
}

static tn_status layer_norm_input(const tn_call *call, const cuda_layer_norm_args *a) {
    if (!are_channels(a)) return launch_rows(call, layer_input_kernels, a);
    cuda_batch_norm_args b = as_channels(a);
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
    return launch_rows(call, layer_norm_kernels, &a);
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
    if (a.y && a.rows > 0) st = launch_rows(call, layer_input_kernels, &a);
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
