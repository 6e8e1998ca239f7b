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

/* Elements of a row that is read backwards: the plan's items are 16 bytes of them. */
template <typename V> TMPL_INLINE void copy_back(const cuda_plan &p) {
    enum { items = 16 / sizeof(V) };
    typedef cuda_vector<V, items> vector;
    cuda_group g;
    vector y;
    if (!cuda_group_start<1>(p, &g)) return;
    const vector x = *(const vector *)((const char *)p.data[1] + g.at[1]);
#pragma unroll
    for (int i = 0; i < items; i++) y.of[i] = x.of[items - 1 - i];
    *(vector *)((char *)p.data[0] + g.at[0]) = y;
}

KERNELS_BY_SIZE(copy, cuda_plan, copy_group)
KERNELS_BY_SIZE(copy_back, cuda_plan, copy_back)
