/* triangle.c: tril and triu: host side of kernels/triangle.cu.
 *
 * family: triangle */
#include "image.h"

#include <string.h>

#include <tenon/args_create.h>

static cuda_size_kernels kernels = CUDA_SIZE_KERNELS(triangle, triangle);

static tn_status run(const tn_call *call, const tn_view *x, const tn_view *y, int64_t diagonal,
                     bool upper) {
    cuda_triangle_args a;
    memset(&a, 0, sizeof a);
    if (!cuda_planes_of(x, &a.x) || !tn_view_is_contiguous(y)) return TN_DECLINE;
    a.y = y->data;
    a.numel = y->numel;
    a.channels = cuda_channels_of(y);
    cuda_plane_size(y, a.size);
    a.diagonal = diagonal;
    a.upper = upper;
    return cuda_launch_each(call, cuda_size_kernel(kernels, tn_view_itemsize(x)), a.numel, &a);
}

static tn_status tril(const tn_call *call, const void *args) {
    const tn_tril_args *a = args;
    return run(call, a->input, a->out, a->diagonal, false);
}

static tn_status triu(const tn_call *call, const void *args) {
    const tn_triu_args *a = args;
    return run(call, a->input, a->out, a->diagonal, true);
}

static const tn_kernel_row rows[] = {
    {"tril", TN_SIG_tril, tril, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
    {"triu", TN_SIG_triu, triu, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
};
const cuda_rows cuda_triangle_rows = CUDA_ROWS_OF(rows);
