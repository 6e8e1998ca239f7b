/* args_conv.h: what the host passes to the kernels of conv.cu.
 *
 * Three dimensions always: missing ones have size 1. A window's place meets the image at
 * place * stride - pad + tap * dilation. Numbers of places and pixels fit 32 bits. */
#ifndef CUDA_CONV_ARGS_H
#define CUDA_CONV_ARGS_H

#include <stdint.h>

typedef struct cuda_conv_shape {
    int64_t in[3], out[3], window[3], stride[3], pad[3], dilation[3];
} cuda_conv_shape;

/* Images or gradients of any layout: strides in elements. */
typedef struct cuda_images {
    void *data;
    int64_t image, channel, at[3];
} cuda_images;

/* Between images and a matrix (channels * taps, columns), whose columns are places of windows: those
 * from `first` on, `places` of each image. A block works on one channel. */
typedef struct cuda_columns_args {
    cuda_conv_shape s;
    cuda_images x;
    void *matrix;
    const void *bias; /* by channel, added to images that are made; or NULL */
    int64_t columns;
    uint32_t places, first, channels, tiles; /* tiles: blocks of one channel */
} cuda_columns_args;

/* Packed planes of `size` elements, to which their channel's bias is added. */
typedef struct cuda_bias_args {
    void *data;
    const void *bias;
    int64_t size;
    uint32_t channels, tiles, reserved;
} cuda_bias_args;

/* Groups of one channel: `channels` of the images x, `each` of the results y for one of them. `w` is
 * packed, (channels * each, taps). A block works on one plane of what is made. */
typedef struct cuda_depthwise_args {
    cuda_conv_shape s;
    cuda_images x, y;
    void *w;
    const void *bias;
    void *partial;        /* of the gradient of w: (parts, channels * each * taps) sums */
    int64_t images, span; /* span: images of one part */
    uint32_t channels, each, taps, tiles, parts;
    uint32_t turns; /* places that a thread makes, where windows are square */
} cuda_depthwise_args;

#endif
