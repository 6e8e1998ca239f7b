/* conv.h: convolutions. The images x, the weight w and the results y; one of the three is what a call
 * makes, packed or channels last. The ways to make it take the same description. */
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

/* What a call makes: y, x or w. */
typedef enum cuda_conv_kind { CUDA_CONV_FORWARD, CUDA_CONV_INPUT, CUDA_CONV_WEIGHT } cuda_conv_kind;
static inline const tn_view **cuda_conv_made(cuda_conv *c, cuda_conv_kind kind) {
    return kind == CUDA_CONV_FORWARD ? &c->y : kind == CUDA_CONV_INPUT ? &c->x : &c->w;
}

/* conv_cudnn.c: by cuDNN. TN_DECLINE: there is none, or it has no way for this one. */
tn_status cuda_conv_by_cudnn(const tn_call *call, cuda_conv_kind kind, const cuda_conv *c);

/* ---- conv_parts.c ------------------------------------------------------------------------------*/
/* Adds the bias of the channels, if there is one, to what was made. */
tn_status cuda_conv_add_bias(const tn_call *call, const cuda_conv *c, const tn_view *made);
/* v as kernels take images; missing dimensions have stride 0. */
cuda_images cuda_images_of(const tn_view *v);
/* Sizes of a tensor, and an order of its elements: packed, or channels last. */
typedef struct cuda_conv_room {
    tn_view view;
    int64_t strides[TN_MAX_DIMS];
} cuda_conv_room;
bool cuda_conv_lies(const tn_view *v, bool last);
/* Memory in the call's scratch for what has v's sizes. */
tn_status cuda_conv_lend(const tn_call *call, const tn_view *v, bool last,
                         cuda_conv_room *ret_room);
/* cuda_packed, of what goes into products. */
tn_status cuda_conv_packed(const tn_call *call, const tn_view *v, void **ret_data);
/* Threads of a block for planes of so many elements, a power of two; *ret_tiles blocks cover one. */
uint32_t cuda_conv_threads(int64_t elements, uint32_t *ret_tiles);

#endif
