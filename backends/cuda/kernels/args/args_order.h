/* args_order.h: what the kernels that sort, select and search take. */
#ifndef CUDA_ARGS_ORDER_H
#define CUDA_ARGS_ORDER_H

#include "args.h"

enum {
    CUDA_TILE = 2048,    /* items that a block sorts */
    CUDA_MERGE_EACH = 8, /* items that a thread merges; divides CUDA_TILE */
    CUDA_DIGIT_BITS = 8, /* of a key, by which items are scattered at a time */
    CUDA_DIGITS = 1 << CUDA_DIGIT_BITS,
    CUDA_SHORT_LINE = 16,      /* tiles whose counts of a digit one thread sums up */
    CUDA_BEST = CUDA_BLOCK / 2 /* most results of a row that are picked without sorting it */
};
/* Items that a block scatters, by the bytes of a key. */
#define CUDA_SCATTER(bytes) ((bytes) > 4 ? 2048 : 4096)

/* What becomes of a sorted row: its first k items, or one of them. */
enum { CUDA_ORDER_FIRST, CUDA_ORDER_KTH, CUDA_ORDER_MEDIAN, CUDA_ORDER_NANMEDIAN, CUDA_ORDER_MODE };

/* Items of `rows` rows, one after the other: keys in the order of the elements, and where these stand. */
typedef struct cuda_items {
    void *key;
    uint32_t *at;
} cuda_items;

/* Rows of n elements along one dimension. Operands are the input, values and indices; strides in
 * elements. A launch takes `count` items of each row: from the elements themselves, or from `in`. */
typedef struct cuda_order_args {
    const void *x;
    void *values;
    int64_t *indices;
    cuda_items in, out;
    int64_t rows, n, count, k;
    int64_t tiles;    /* of a row */
    int64_t keep;     /* items that a tile leaves, the first ones */
    int64_t run;      /* items that are in order, before runs are merged */
    int64_t part;     /* items of which a block picks the first k */
    uint32_t *counts; /* of items, by row, digit and tile; then those of earlier tiles */
    uint32_t *totals; /* by row and digit */
    int32_t shift;    /* of the digit */
    int32_t from_x;   /* the launch makes the items */
    int32_t finishes; /* and writes the results */
    int32_t reversed, what, dims, dtype;
    int64_t step[3];
    int64_t size[CUDA_DIMS], stride[CUDA_DIMS][3];
} cuda_order_args;

/* Where n numbers belong in a sequence of `length` in order; all packed. `per_row` numbers share a
 * sequence; 0: all of them. `right`: behind equal ones. */
typedef struct cuda_search_args {
    const void *sequence, *x;
    int64_t *out;
    int64_t n, length, per_row, right;
} cuda_search_args;

#endif
