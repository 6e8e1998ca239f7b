/* take.cu: elements to and from positions that an index tensor gives, by the size of an element. */
#include "take.h"

#include "by_size.h"

template <typename V> TMPL_INLINE void take(const cuda_take_args &a) {
    char *moved, *reached;
    if (take_find(a, &moved, &reached)) *(V *)moved = *(const V *)reached;
}

template <typename V> TMPL_INLINE void put(const cuda_take_args &a) {
    char *moved, *reached;
    if (take_find(a, &moved, &reached)) *(V *)reached = *(const V *)moved;
}

/* What is moved is the offsets themselves. */
KERNEL(take_offsets, cuda_take_args) {
    const cuda_plan &p = a.plan;
    cuda_group g;
    if (!cuda_group_start<1>(p, &g)) return;
    int64_t offset = take_offset(a, (const char *)p.data[1] + g.at[1]);
    int64_t *made = (int64_t *)((char *)p.data[0] + g.at[0]);
    int64_t before = a.joins ? *made : g.at[2];
    bool nowhere = offset == CUDA_NOWHERE || before == CUDA_NOWHERE;
    *made = nowhere ? CUDA_NOWHERE : before + offset;
}

KERNELS_BY_SIZE(take, cuda_take_args, take)
KERNELS_BY_SIZE(put, cuda_take_args, put)
