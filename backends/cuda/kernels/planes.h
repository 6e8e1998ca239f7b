/* planes.h: which element of which plane a thread has, for the kernels on images. */
#ifndef CUDA_PLANES_H
#define CUDA_PLANES_H

#include "args_image.h"
#include "device.h"

/* Leaves the quotient in *i and returns the remainder. A GPU divides 32 bits several times as fast. */
TMPL_INLINE int64_t planes_cut(int64_t *i, int64_t by) {
    if (*i > INT32_MAX || by > INT32_MAX) {
        int64_t q = *i / by, r = *i - q * by;
        *i = q;
        return r;
    }
    uint32_t n = (uint32_t)*i, q = n / (uint32_t)by;
    *i = q;
    return n - q * (uint32_t)by;
}

typedef struct planes_place {
    int64_t image, channel, row, column;
} planes_place;

/* Element i of packed planes of these sizes. */
TMPL_INLINE planes_place planes_find(int64_t i, int64_t channels, const int64_t *size) {
    planes_place p;
    p.column = planes_cut(&i, size[1]);
    p.row = planes_cut(&i, size[0]);
    p.channel = planes_cut(&i, channels);
    p.image = i;
    return p;
}

/* The plane that the place lies in. */
template <typename V>
TMPL_INLINE const V *planes_plane(const cuda_planes &x, int64_t image, int64_t channel) {
    return (const V *)x.data + image * x.stride[0] + channel * x.stride[1];
}

#endif
