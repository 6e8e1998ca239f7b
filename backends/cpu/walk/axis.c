/* axis.c: finds the rows of tensors along one dimension. */
#include "axis.h"

static int merges(const axis *a, const tn_view *const *views, int32_t d) {
    if (a->ndim == 0) return 0;
    int32_t last = a->ndim - 1;
    for (int32_t v = 0; v < a->count; v++) {
        if (views[v]->strides[d] != a->stride[last][v] * a->size[last]) return 0;
    }
    return 1;
}

void axis_init(axis *ret, int32_t count, const tn_view *const *views, int64_t dim) {
    const tn_view *x = views[0];
    ret->n = x->ndim == 0 ? 1 : x->shape[dim];
    ret->rows = 1;
    ret->ndim = 0;
    ret->count = count;
    for (int32_t d = x->ndim - 1; d >= 0; d--) {
        if (d == dim) continue;
        int64_t size = x->shape[d];
        ret->rows *= size;
        if (size == 1) continue;
        if (merges(ret, views, d)) {
            ret->size[ret->ndim - 1] *= size;
            continue;
        }
        ret->size[ret->ndim] = size;
        for (int32_t v = 0; v < count; v++) ret->stride[ret->ndim][v] = views[v]->strides[d];
        ret->ndim++;
    }
    ret->run = ret->ndim > 0 ? ret->size[0] : 1;
    for (int32_t v = 0; v < count; v++) {
        ret->step[v] = x->ndim == 0 ? 1 : views[v]->strides[dim];
        ret->next[v] = ret->ndim > 0 ? ret->stride[0][v] : 1;
    }
}
