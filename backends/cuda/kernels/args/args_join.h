/* args_join.h: what the kernel takes that puts tensors beside each other. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_JOIN_H
#define CUDA_ARGS_JOIN_H

#include "args.h"

enum {
    JOIN_PARTS = 186, /* most parts of one launch */
    JOIN_WORDS = 376, /* and what there is room for: both fill what a kernel takes by value */
    JOIN_EACH = 4     /* items that a thread moves */
};

/* Parts are moved in items of one or several elements. Dimension 0 is the fastest; strides in bytes.
 * Block b works on the part i with first[i] <= b < first[i + 1]. Of part i, from words[i * stride] on:
 * where it begins along the joined dimension, its data, and its strides where they are its own. The
 * next one's first word is where it ends. */
typedef struct cuda_join_args {
    char *whole;
    int64_t step;        /* along the joined dimension, in the whole */
    int64_t each;        /* items of a part that have one place along it */
    int32_t dims, along; /* which one the joined dimension is; -1: none of the parts' */
    int32_t parts, stride;
    int32_t own;    /* parts have strides of their own */
    int32_t narrow; /* items can be counted with 31 bits */
    int64_t size[CUDA_DIMS], to[CUDA_DIMS], from[CUDA_DIMS];
    int32_t first[JOIN_PARTS + 1];
    int32_t reserved;
    int64_t words[JOIN_WORDS];
} cuda_join_args;

#endif
