/* copy.cu: copies between strided tensors of one element size, and from a number: fill. */
#include "device.h"

struct alignas(16) copy_wide {
    uint64_t half[2];
};

template <typename V> TMPL_INLINE void copy_group(const cuda_plan &p) {
    cuda_group g;
    CUDA_ARRAY(V, x);
    if (!cuda_group_start(p, &g)) return;
    cuda_load(p, g, 1, x);
    cuda_store(p, g, x);
}

KERNEL(copy_1, cuda_plan) { copy_group<uint8_t>(a); }
KERNEL(copy_2, cuda_plan) { copy_group<uint16_t>(a); }
KERNEL(copy_4, cuda_plan) { copy_group<uint32_t>(a); }
KERNEL(copy_8, cuda_plan) { copy_group<uint64_t>(a); }
KERNEL(copy_16, cuda_plan) { copy_group<copy_wide>(a); }
