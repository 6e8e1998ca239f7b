/* triangle.cu: the lower and the upper triangle of matrices, by the size of an element. */
#include "planes.h"

#include "by_size.h"

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

KERNELS_BY_SIZE(triangle, cuda_triangle_args, triangle)
