/* join.cu: tensors beside each other in one of their elements' size or a multiple of it, many of them in
 * one launch. */
#include "device.h"

#include "args_join.h"
#include "by_size.h"

/* The part that the block works on. */
TMPL_INLINE int join_part(const cuda_join_args &a) {
    int low = 0, high = a.parts;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a.first[middle] <= (int)blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Where an item lies, counted from where its part begins, in the whole and in the part. */
typedef struct join_place {
    int64_t to, from;
} join_place;

/* Item i of a part that has n places along the joined dimension. */
template <typename I>
TMPL_INLINE join_place join_walk(const cuda_join_args &a, const int64_t *strides, I n, I i) {
    join_place at = {0, 0};
    for (int d = 0; d < a.dims; d++) {
        I size = d == a.along ? n : (I)a.size[d];
        I q = d < a.dims - 1 ? i / size : 0, r = i - q * size;
        at.to += (int64_t)r * a.to[d];
        at.from += (int64_t)r * strides[d];
        i = q;
    }
    return at;
}

/* Rare, and long: not repeated for each item. */
static __device__ __noinline__ join_place join_walk_wide(const cuda_join_args &a,
                                                         const int64_t *strides, int64_t n,
                                                         int64_t i) {
    return join_walk(a, strides, n, i);
}

template <typename V> TMPL_INLINE void join_items(const cuda_join_args &a) {
    int p = join_part(a), threads = (int)blockDim.x;
    const int64_t *part = a.words + p * a.stride, *strides = a.own ? part + 2 : a.from;
    const char *from = (const char *)(uintptr_t)part[1];
    char *to = a.whole + part[0] * a.step;
    int64_t n = part[a.stride] - part[0], items = n * a.each;
    int64_t first = (int64_t)((int)blockIdx.x - a.first[p]) * threads * JOIN_EACH;
    join_place at[JOIN_EACH];
    V x[JOIN_EACH];
#pragma unroll
    for (int k = 0; k < JOIN_EACH; k++) {
        int64_t i = first + k * threads + (int)threadIdx.x;
        if (i >= items) break;
        at[k] = a.narrow ? join_walk(a, strides, (uint32_t)n, (uint32_t)i)
                         : join_walk_wide(a, strides, n, i);
        x[k] = *(const V *)(from + at[k].from);
    }
#pragma unroll
    for (int k = 0; k < JOIN_EACH; k++)
        if (first + k * threads + (int)threadIdx.x < items) *(V *)(to + at[k].to) = x[k];
}

KERNELS_BY_SIZE(join, cuda_join_args, join_items)
