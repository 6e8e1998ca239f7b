/* take.cu: elements to and from positions that an index tensor gives, by the size of an element. */
#include "device.h"

/* The byte offset that the index at `at` stands for; false where it is out of range. */
TMPL_INLINE bool take_offset(const cuda_take_args &a, const char *at, int64_t *ret_offset) {
    int64_t i = a.short_index ? *(const int32_t *)at : *(const int64_t *)at;
    int64_t least = a.wrap ? -a.size : 0;
    if (i < least || i >= a.size) {
        cuda_report(a.fault, a.op, i, a.size);
        return false;
    }
    *ret_offset = (i < 0 ? i + a.size : i) * a.step;
    return true;
}

template <typename V> TMPL_INLINE void take(const cuda_take_args &a, bool put) {
    const cuda_plan &p = a.plan;
    cuda_group g;
    int64_t offset;
    if (!cuda_group_start(p, &g)) return;
    if (!take_offset(a, (const char *)p.data[1] + g.at[1], &offset)) return;
    V *moved = (V *)((char *)p.data[0] + g.at[0]);
    V *reached = (V *)((char *)p.data[2] + g.at[2] + offset);
    if (put)
        *reached = *moved;
    else
        *moved = *reached;
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
