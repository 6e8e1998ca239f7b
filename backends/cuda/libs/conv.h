/* conv.h: convolutions. The images x, the weight w and the results y; one of the three is what a call
 * makes, and is packed. The ways to make it take the same description. */
#ifndef CUDA_CONV_H
#define CUDA_CONV_H

#include "cuda_priv.h"
#include "kernels/args/args_conv.h"

typedef struct cuda_conv {
    cuda_conv_shape s;
    const tn_view *x, *w, *y;
    const tn_view *bias;            /* added to what is made; or NULL */
    int64_t images, groups, ci, co; /* ci, co: channels of one group */
    int64_t taps, pixels, places;   /* of a window, of a plane of x, of a plane of y */
    void **room;                    /* workspace of the products */
} cuda_conv;

/* conv_cudnn.c: by cuDNN. TN_DECLINE: there is none, or it has no way for this one. */
typedef enum cuda_conv_kind { CUDA_CONV_FORWARD, CUDA_CONV_INPUT, CUDA_CONV_WEIGHT } cuda_conv_kind;
tn_status cuda_conv_by_cudnn(const tn_call *call, cuda_conv_kind kind, const cuda_conv *c);

/* ---- conv_parts.c ------------------------------------------------------------------------------*/
/* Adds the bias of the channels, if there is one, to what was made. */
tn_status cuda_conv_add_bias(const tn_call *call, const cuda_conv *c, const tn_view *made);
/* v as kernels take images; missing dimensions have stride 0. */
cuda_images cuda_images_of(const tn_view *v);
/* v's elements in order: its own memory, or a copy in the call's scratch. */
tn_status cuda_conv_packed(const tn_call *call, const tn_view *v, void **ret_data);
/* Threads of a block for planes of so many elements, a power of two; *ret_tiles blocks cover one. */
uint32_t cuda_conv_threads(int64_t elements, uint32_t *ret_tiles);

#endif
