/* pad.cu: padding, by the size of an element: constant, reflected, replicated, circular. */
#include "planes.h"

#include "by_size.h"

/* Where position i of a dimension of n elements is read, -1: nowhere. */
TMPL_INLINE int64_t pad_source(int32_t mode, int64_t i, int64_t n) {
    if (i >= 0 && i < n) return i;
    if (mode == CUDA_PAD_REFLECT) return i < 0 ? -i : 2 * (n - 1) - i;
    if (mode == CUDA_PAD_REPLICATE) return i < 0 ? 0 : n - 1;
    if (mode == CUDA_PAD_CIRCULAR) return i < 0 ? i + n : i - n;
    return -1;
}

template <typename V> TMPL_INLINE void pad(const cuda_pad_args &a) {
    int64_t i = cuda_thread(), rest = i, at = 0;
    bool inside = true;
    if (i >= a.numel) return;
    for (int d = 0; d < a.dims; d++) {
        int64_t place = planes_cut(&rest, a.size[d]);
        int64_t source = pad_source(a.mode, place - a.before[d], a.read[d]);
        inside = inside && source >= 0;
        at += source * a.stride[d];
    }
    ((V *)a.y)[i] =
        inside ? *(const V *)((const char *)a.x + at) : *(const V *)(const void *)a.value;
}

KERNELS_BY_SIZE(pad, cuda_pad_args, pad)
