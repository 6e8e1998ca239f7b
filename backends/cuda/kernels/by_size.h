/* by_size.h: kernels that move elements without looking at them: one for each size of an element, in
 * bytes, whose sizes the host side finds by name (CUDA_SIZE_KERNELS). */
#ifndef CUDA_BY_SIZE_H
#define CUDA_BY_SIZE_H

#include "device.h"

/* Stands for sixteen bytes, which one instruction moves. */
struct alignas(16) cuda_wide {
    uint64_t half[2];
};

/* stem_1 to stem_16 run body<V>(a), where V is an unsigned type of that size. */
#define KERNELS_BY_SIZE(stem, args, body)                                                          \
    KERNEL(stem##_1, args) { body<uint8_t>(a); }                                                   \
    KERNEL(stem##_2, args) { body<uint16_t>(a); }                                                  \
    KERNEL(stem##_4, args) { body<uint32_t>(a); }                                                  \
    KERNEL(stem##_8, args) { body<uint64_t>(a); }                                                  \
    KERNEL(stem##_16, args) { body<cuda_wide>(a); }

#endif
