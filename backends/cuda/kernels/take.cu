/* take.cu: elements to and from positions that an index tensor gives, by the size of an element. */
#include "take.h"

template <typename V> TMPL_INLINE void take(const cuda_take_args &a, bool put) {
    char *moved, *reached;
    if (!take_find(a, &moved, &reached)) return;
    if (put)
        *(V *)reached = *(const V *)moved;
    else
        *(V *)moved = *(const V *)reached;
}

/* What is moved is the offsets themselves. */
KERNEL(take_offsets, cuda_take_args) {
    const cuda_plan &p = a.plan;
    cuda_group g;
    if (!cuda_group_start(p, &g)) return;
    int64_t offset = take_offset(a, (const char *)p.data[1] + g.at[1]);
    int64_t *made = (int64_t *)((char *)p.data[0] + g.at[0]);
    int64_t before = a.joins ? *made : g.at[2];
    bool nowhere = offset == CUDA_NOWHERE || before == CUDA_NOWHERE;
    *made = nowhere ? CUDA_NOWHERE : before + offset;
}

struct alignas(16) take_wide {
    uint64_t half[2];
};

KERNEL(take_1, cuda_take_args) { take<uint8_t>(a, false); }
KERNEL(take_2, cuda_take_args) { take<uint16_t>(a, false); }
KERNEL(take_4, cuda_take_args) { take<uint32_t>(a, false); }
KERNEL(take_8, cuda_take_args) { take<uint64_t>(a, false); }
KERNEL(take_16, cuda_take_args) { take<take_wide>(a, false); }
KERNEL(put_1, cuda_take_args) { take<uint8_t>(a, true); }
KERNEL(put_2, cuda_take_args) { take<uint16_t>(a, true); }
KERNEL(put_4, cuda_take_args) { take<uint32_t>(a, true); }
KERNEL(put_8, cuda_take_args) { take<uint64_t>(a, true); }
KERNEL(put_16, cuda_take_args) { take<take_wide>(a, true); }
