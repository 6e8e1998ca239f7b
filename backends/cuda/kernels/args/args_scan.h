/* args_scan.h: arguments of kernels along rows that blocks may share, `parts` of them `span` elements
 * each. `partial` has what every part comes to, by row. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_SCAN_H
#define CUDA_ARGS_SCAN_H

#include "args.h"

/* Operands: the input, the running values, and where they come from. */
typedef struct cuda_scan_args {
    cuda_rows_args rows;
    void *partial;
    int64_t span, parts;
    int32_t lanes; /* threads of a packed row, where it is not cut; up to a warp's */
} cuda_scan_args;

/* Rows side by side that a thread takes at once, in up to 16 bytes. */
#define CUDA_EXTREME_COLUMNS(item) ((item) > 2 ? 16 / (item) : 8)

/* The operand is the input; results are packed, by row. Packed rows have 1 << shift threads each, and `span`
 * counts vectors of 16 bytes. Of rows that lie side by side a block takes 1 << shift groups. */
typedef struct cuda_extreme_args {
    cuda_rows_args rows;
    void *values; /* or NULL */
    int64_t *indices;
    void *partial;
    int64_t span, parts;
    int32_t shift;
} cuda_extreme_args;

#endif
