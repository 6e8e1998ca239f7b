/* args_image.h: what the kernels on planes of images take: pooling, resampling, padding. */
#ifndef CUDA_ARGS_IMAGE_H
#define CUDA_ARGS_IMAGE_H

#include "args.h"

/* Planes that are read: (..., rows, columns) with strides in elements. A tensor of three dimensions
 * has one image, n. Whatever is written is packed. */
typedef struct cuda_planes {
    const void *data;
    int64_t stride[4]; /* of n, channel, row, column */
} cuda_planes;

/* Going backward from maxima: pooled elements in a chunk, and how many elements of y, whose sums have
 * so many bytes, a block makes. */
enum { CUDA_POOL_CHUNK = CUDA_BLOCK };
#define CUDA_POOL_TILE(bytes) ((bytes) <= 4 ? 4096 : 2048)

/* The places in y that a chunk's maxima have; none: `most` is -1. */
typedef struct cuda_pool_range {
    int64_t least, most;
} cuda_pool_range;

/* Pairs are of rows, then of columns. */
typedef struct cuda_pool_args {
    cuda_planes x;      /* the input, or the gradient of the pooled planes */
    cuda_planes places; /* int64 positions of maxima in their planes, where they are read */
    void *y;
    int64_t *index;   /* positions of maxima, where they are written */
    int64_t numel;    /* of y */
    int64_t channels; /* planes of an image */
    int64_t size[2], pooled[2];
    int64_t kernel[2], step[2], pad[2], dilation[2];
    int64_t divisor; /* of averages; 0: what the window covers */
    int32_t count_pad, adaptive;
    int32_t lanes;                   /* threads that share a window: 1 or a warp's 32 */
    int32_t packed_places, packed_x; /* these lie in their own order */
    int32_t reserved;
    /* Maxima, going backward. A group of `each` planes is made by `tiles` blocks, of `tile` elements
     * each. */
    int64_t planes, arrivals, chunks; /* pooled elements and their chunks, of all planes */
    int64_t each, tiles, tile;
    cuda_pool_range *ranges; /* of chunks; NULL: all are looked at */
    cuda_fault *fault;
    uint64_t op;
} cuda_pool_args;

/* Positions of the large plane that read element i of the small one, along one axis: from `begin` on as
 * their upper neighbour, from `middle` on as their lower one, or as the only one. */
typedef struct cuda_upsample_span {
    int64_t begin, middle, end;
} cuda_upsample_span;

/* Resampling of planes between a small and a large size, by the names of upsampling. A source position
 * is o * ratio, or with `linear` and without `corners` (o + 0.5) * ratio - 0.5. */
typedef struct cuda_upsample_args {
    cuda_planes x;
    void *y;
    int64_t numel, channels; /* of y */
    int64_t small[2], large[2];
    double ratio[2];
    int32_t linear, corners;
    /* Going backward, of rows, then of columns: weights of upper neighbours for positions of the large
     * plane, in the type of sums, and who reads the small plane's elements. */
    void *weights;
    cuda_upsample_span *spans;
} cuda_upsample_args;

/* Padding: what is written is packed, dimension 0 the fastest; `read` are the sizes of what is read and
 * `stride` its strides in bytes. Going backward the padded tensor is read. */
enum { CUDA_PAD_CONSTANT, CUDA_PAD_REFLECT, CUDA_PAD_REPLICATE, CUDA_PAD_CIRCULAR };
typedef struct cuda_pad_args {
    const void *x;
    void *y;
    int64_t numel; /* of y */
    int32_t dims, mode;
    int64_t size[CUDA_DIMS], read[CUDA_DIMS], stride[CUDA_DIMS];
    int64_t before[CUDA_DIMS]; /* elements in front of the unpadded tensor; negative: cut */
    int64_t value[2];          /* the constant, as its bytes */
} cuda_pad_args;

/* y = x on and below (or, with `upper`, above) a diagonal of each matrix, 0 elsewhere. */
typedef struct cuda_triangle_args {
    cuda_planes x;
    void *y;
    int64_t numel, channels, size[2]; /* of y */
    int64_t diagonal;
    int32_t upper, reserved;
} cuda_triangle_args;

/* Images at the places of a grid: all tensors are packed; dimensions of an image and of its places are
 * the fastest first, and one where there are two. Images first .. are looked at. */
enum { CUDA_GRID_CHANNELS = 4 /* that a thread takes */ };
typedef struct cuda_grid_args {
    const void *image, *grad, *grid;
    const void *along; /* NULL: values, else how they change when the places move so */
    void *y;
    int64_t numel; /* of threads */
    int64_t first, channels, plane, points;
    int64_t size[3];
    int32_t axes, padding, corners, reserved;
    /* The gradient of the image: where neighbours lie, as numbers of elements of these images, the same
     * sorted and where each stood, and their weights. */
    int64_t *at, *sorted, *position;
    void *weight;
    int64_t taps, outside; /* how many there are; what stands for a neighbour outside */
} cuda_grid_args;

#endif
