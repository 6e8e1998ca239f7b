/* image.h: what the host sides of pooling, resampling and padding share. */
#ifndef CUDA_IMAGE_H
#define CUDA_IMAGE_H

#include "cuda_priv.h"
#include "kernels/args/args_image.h"

/* A tensor of planes as kernels read it; false where it has too many dimensions. */
static inline bool cuda_planes_of(const tn_view *v, cuda_planes *ret_planes) {
    int32_t absent = 4 - v->ndim; /* dimensions of one element, in front */
    if (v->ndim < 2 || v->ndim > 4) return false;
    ret_planes->data = v->data;
    for (int32_t d = 0; d < 4; d++) ret_planes->stride[d] = d < absent ? 0 : v->strides[d - absent];
    return true;
}

static inline int64_t cuda_channels_of(const tn_view *v) {
    return v->ndim > 2 ? v->shape[v->ndim - 3] : 1;
}

/* Sizes of the planes: rows, columns. */
static inline void cuda_plane_size(const tn_view *v, int64_t ret_size[2]) {
    ret_size[0] = v->shape[v->ndim - 2];
    ret_size[1] = v->shape[v->ndim - 1];
}

#endif
