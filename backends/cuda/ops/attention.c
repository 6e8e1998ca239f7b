/* attention.c: softmax(q k^T * scale) v and its gradients: host side of kernels/attention.cu.
 *
 * family: attention */
#include "attention.h"

#include <string.h>

#include "kernels/args/args_attention.h"

/* By the widest head that a kernel takes: 64, 128 or 256 columns. */
enum { WIDTHS = 3 };
static cuda_float_kernels
    forward_kernels[WIDTHS] = {CUDA_FLOAT_KERNELS(attention, attention_64),
                               CUDA_FLOAT_KERNELS(attention, attention_128),
                               CUDA_FLOAT_KERNELS(attention, attention_256)},
    keys_kernels[WIDTHS] = {CUDA_FLOAT_KERNELS(attention, attention_keys_64),
                            CUDA_FLOAT_KERNELS(attention, attention_keys_128),
                            CUDA_FLOAT_KERNELS(attention, attention_keys_256)},
    queries_kernels[WIDTHS] = {CUDA_FLOAT_KERNELS(attention, attention_queries_64),
                               CUDA_FLOAT_KERNELS(attention, attention_queries_128),
                               CUDA_FLOAT_KERNELS(attention, attention_queries_256)},
    delta_kernels = CUDA_FLOAT_KERNELS(attention, attention_delta);

static cuda_heads heads_of(const tn_view *v) {
    cuda_heads h = {.data = v->data};
    uintptr_t whole = 4 * (uintptr_t)tn_view_itemsize(v);
    h.vectors = v->strides[3] == 1 && (uintptr_t)v->data % (whole < 16 ? whole : 16) == 0;
    for (int d = 0; d < 4; d++) {
        h.stride[d] = v->strides[d];
        if (d < 3 && v->strides[d] % 4 != 0) h.vectors = 0;
    }
    return h;
}

/* What the operands say; *ret_width is an index of the lists above. */
static tn_status start(const tn_call *call, const tn_view *q, const tn_view *k, const tn_view *v,
                       const tn_view *mask, cuda_attention_args *ret_args, int *ret_width) {
    cuda_attention_args *a = ret_args;
    int64_t width = q->shape[3] > v->shape[3] ? q->shape[3] : v->shape[3];
    if (width > (call->dtype == TN_F64 ? 128 : 256) || k->shape[2] == 0) return TN_DECLINE;
    memset(a, 0, sizeof *a);
    a->q = heads_of(q);
    a->k = heads_of(k);
    a->v = heads_of(v);
    a->heads = q->shape[1];
    a->share = q->shape[1] / k->shape[1];
    a->queries = q->shape[2];
    a->keys = k->shape[2];
    a->rows = q->shape[0] * a->heads * a->queries;
    if (mask) {
        a->mask = heads_of(mask);
        a->bool_mask = tn_view_dtype(mask) == TN_BOOL;
    }
    a->width = (int32_t)q->shape[3];
    a->value_width = (int32_t)v->shape[3];
    *ret_width = width <= 64 ? 0 : width <= 128 ? 1 : 2;
    return TN_OK;
}

/* A block for each tile of `rows` rows in each of `heads` heads. */
static tn_status launch_tiles(const tn_call *call, cuda_float_kernels kernels, int64_t rows,
                              int64_t tile, int64_t heads, const cuda_attention_args *a) {
    int64_t blocks = (rows + tile - 1) / tile * heads;
    if (blocks == 0) return TN_OK;
    return cuda_launch(call, cuda_float_kernel(call, kernels), blocks, CUDA_BLOCK, a);
}

static tn_status forward(const tn_call *call, const void *args) {
    const tn__flash_attention_args *in = args;
    cuda_attention_args a;
    int width;
    tn_status st = cuda_attention_by_cudnn(call, in);
    if (st != TN_DECLINE) return st;
    if (!tn_view_is_contiguous(in->lse)) return TN_DECLINE;
    st = start(call, in->query, in->key, in->value, in->attn_mask, &a, &width);
    if (st != TN_OK) return st;
    a.y = heads_of(in->y);
    a.lse = in->lse->data;
    a.causal = in->is_causal != 0;
    a.scale = in->scale;
    return launch_tiles(call, forward_kernels[width], a.queries,
                        ATTENTION_ROWS((64 << width) * cuda_sum_bytes(call)),
                        in->query->shape[0] * a.heads, &a);
}

static tn_status backward(const tn_call *call, const void *args) {
    const tn__flash_attention_backward_args *in = args;
    cuda_attention_args a;
    int width;
    tn_status st = cuda_attention_backward_by_cudnn(call, in);
    if (st != TN_DECLINE) return st;
    if (!tn_view_is_contiguous(in->lse)) return TN_DECLINE;
    st = start(call, in->query, in->key, in->value, in->attn_mask, &a, &width);
    if (st != TN_OK) return st;
    int64_t images = in->query->shape[0];
    int64_t tile = ATTENTION_ROWS((64 << width) * cuda_sum_bytes(call));
    a.y = heads_of(in->y);
    a.grad = heads_of(in->grad);
    a.grad_q = heads_of(in->grad_query);
    a.grad_k = heads_of(in->grad_key);
    a.grad_v = heads_of(in->grad_value);
    a.lse = in->lse->data;
    a.causal = in->is_causal != 0;
    a.scale = in->scale;
    st = room_scratch(call, a.rows, (size_t)cuda_sum_bytes(call), &a.delta);
    if (st != TN_OK) return st;
    st = launch_tiles(call, delta_kernels, a.rows, CUDA_BLOCK / 32, 1, &a);
    if (st == TN_OK)
        st =
            launch_tiles(call, keys_kernels[width], a.keys, tile, images * (a.heads / a.share), &a);
    if (st == TN_OK)
        st = launch_tiles(call, queries_kernels[width], a.queries, tile, images * a.heads, &a);
    return st;
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_flash_attention, forward),
    CUDA_FLOAT_ROWS(_flash_attention_backward, backward),
};
const cuda_rows cuda_attention_rows = CUDA_ROWS_OF(rows);
