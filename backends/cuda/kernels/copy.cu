/* copy.cu: copies between strided tensors of one element size, and from a number: fill. */
#include "by_size.h"

template <typename V> TMPL_INLINE void copy_group(const cuda_plan &p) {
    enum { span = cuda_span<V>::of };
    cuda_group g;
    CUDA_SPAN_ARRAY(V, x, span);
    if (!cuda_group_start<span>(p, &g)) return;
    cuda_load(p, g, 1, x);
    cuda_store(p, g, x);
}

KERNELS_BY_SIZE(copy, cuda_plan, copy_group)
