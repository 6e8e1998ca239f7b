/* args_softmax.h: softmax and its kin. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_SOFTMAX_H
#define CUDA_ARGS_SOFTMAX_H

#include "args.h"

/* Elements of a packed row that a thread can hold: of rows in packs, and of others; and packs that are
 * few. */
#define CUDA_HELD(item) (128 / ((item) < 4 ? 4 : (item)))
enum { CUDA_HELD_SINGLES = 8, CUDA_HELD_FEW = 2 };

/* Packed rows are taken by `lanes` neighbouring threads each, in packs of 16 bytes where they are
 * `whole` (packs.h). */
typedef struct cuda_softmax_args {
    cuda_rows_args rows;
    int32_t lanes, whole;
} cuda_softmax_args;

#endif
