/* triangle.cu: the lower and the upper triangle of matrices, by the size of an element. */
#include "planes.h"

template <typename V> TMPL_INLINE void triangle(const cuda_triangle_args &a) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.size);
    int64_t beyond = p.column - p.row - a.diagonal;
    V v = {0};
    if (a.upper ? beyond >= 0 : beyond <= 0)
        v = planes_plane<V>(a.x, p.image,
                            p.channel)[p.row * a.x.stride[2] + p.column * a.x.stride[3]];
    ((V *)a.y)[i] = v;
}

struct alignas(16) triangle_wide {
    uint64_t half[2];
};

KERNEL(triangle_1, cuda_triangle_args) { triangle<uint8_t>(a); }
KERNEL(triangle_2, cuda_triangle_args) { triangle<uint16_t>(a); }
KERNEL(triangle_4, cuda_triangle_args) { triangle<uint32_t>(a); }
KERNEL(triangle_8, cuda_triangle_args) { triangle<uint64_t>(a); }
KERNEL(triangle_16, cuda_triangle_args) { triangle<triangle_wide>(a); }
