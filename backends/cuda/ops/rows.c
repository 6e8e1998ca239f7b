/* rows.c: tensors as rows along one dimension, for kernels that work row by row (kernels/rows.h). */
#include "cuda_priv.h"

#include <string.h>

enum {
    WIDTH = 32,        /* columns of a block whose rows are not packed */
    PER_LANE = 16,     /* elements that a lane takes at least before work is cut further */
    MOST_BLOCKS = 512, /* more blocks than this need not be cut further */
    MANY_ROWS = 2048   /* fewer rows than this get more threads each */
};

tn_status cuda_rows_read(const tn_view *const *views, int32_t n, int64_t dim,
                         cuda_rows_args *ret_args) {
    const tn_view *x = views[0];
    cuda_rows_args *a = ret_args;
    int64_t item[CUDA_ROW_OPERANDS];
    memset(a, 0, sizeof *a);
    a->rows = 1;
    a->n = x->ndim ? x->shape[dim] : 1;
    for (int32_t k = 0; k < n; k++) {
        item[k] = tn_view_itemsize(views[k]);
        a->data[k] = views[k]->data;
        a->step[k] = x->ndim ? views[k]->strides[dim] * item[k] : item[k];
    }
    for (int32_t d = x->ndim - 1; d >= 0; d--) {
        if (d == dim || x->shape[d] == 1) continue;
        a->rows *= x->shape[d];
        bool merged = a->dims > 0;
        for (int32_t k = 0; k < n && merged; k++)
            merged =
                views[k]->strides[d] * item[k] == a->stride[a->dims - 1][k] * a->size[a->dims - 1];
        if (merged) {
            a->size[a->dims - 1] *= x->shape[d];
            continue;
        }
        if (a->dims == CUDA_DIMS) return TN_DECLINE;
        a->size[a->dims] = x->shape[d];
        for (int32_t k = 0; k < n; k++) a->stride[a->dims][k] = views[k]->strides[d] * item[k];
        a->dims++;
    }
    a->width = a->step[0] != item[0] && a->rows >= WIDTH ? WIDTH : 1;
    return TN_OK;
}

uint32_t cuda_rows_threads(int64_t n, int32_t width) {
    uint32_t threads = 32;
    while (threads < CUDA_BLOCK && (int64_t)(threads / (uint32_t)width) < n) threads *= 2;
    return threads;
}

int32_t cuda_pack_lanes(int64_t items, int64_t each, int64_t rows, int32_t least) {
    int32_t lanes = least;
    while (lanes < 32 && lanes * 2 < items) lanes *= 2;
    while (lanes < CUDA_BLOCK && lanes * (rows < MANY_ROWS ? 1 : each) < items) lanes *= 2;
    return lanes;
}

int32_t cuda_row_shift(int64_t units, int64_t rows) {
    enum { WARP_UNITS = 512, MANY_WARPS = 4096 };
    int64_t most = units <= WARP_UNITS && rows >= MANY_WARPS ? 32 : CUDA_BLOCK;
    int32_t shift = 0;
    while (INT64_C(1) << shift < most && (int64_t)CUDA_AHEAD << shift < units) shift++;
    return shift;
}

int64_t cuda_cut(int64_t count, int64_t least, int64_t blocks, int64_t most_blocks) {
    int64_t parts = most_blocks / blocks, most = count / least;
    if (parts > most) parts = most;
    return parts < 1 ? 1 : parts;
}

int64_t cuda_parts(int64_t count, int64_t lanes, int64_t blocks) {
    return cuda_cut(count, lanes * PER_LANE, blocks, MOST_BLOCKS);
}

bool cuda_merge_dims(const tn_view *v, int32_t first, int64_t *ret_stride) {
    int32_t last = -1;
    *ret_stride = 0;
    for (int32_t d = v->ndim - 1; d >= first; d--) {
        if (v->shape[d] == 1) continue;
        if (last < 0)
            *ret_stride = v->strides[d];
        else if (v->strides[d] != v->strides[last] * v->shape[last])
            return false;
        last = d;
    }
    return true;
}
