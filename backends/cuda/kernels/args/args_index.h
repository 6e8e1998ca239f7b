/* args_index.h: what kernels take that read and write at positions which an index tensor gives. Part of
 * both sides, like args.h. */
#ifndef CUDA_ARGS_INDEX_H
#define CUDA_ARGS_INDEX_H

#include "args.h"

/* The offset of an index that is out of range, or left out. */
#define CUDA_NOWHERE INT64_MIN

/* Operands of the plan: what is moved in order (or offsets that are made of indices), the index, and the
 * tensor that is reached at index * step bytes. */
typedef struct cuda_take_args {
    cuda_plan plan;
    int64_t size, step;        /* of the dimension that the index names; step in bytes */
    int64_t skip;              /* the index that is left out, where `skips` */
    int32_t short_index, wrap; /* int32 indices; negative ones count from the end */
    int32_t skips;
    int32_t ready; /* indices are offsets already, of int64 */
    int32_t joins; /* offsets are added to what is there */
    int32_t reserved;
    cuda_fault *fault;
    uint64_t op;
} cuda_take_args;

typedef struct cuda_add_args {
    cuda_take_args take;
    cuda_number alpha;
} cuda_add_args;

/* The numbers of TN_SCATTER_*, which kernels do not see. */
enum { CUDA_JOIN_SET, CUDA_JOIN_ADD, CUDA_JOIN_MULTIPLY, CUDA_JOIN_AMAX, CUDA_JOIN_AMIN };

/* `n` sorted offsets into `reached`, and which position each belongs to: a place in `moved`, whose
 * dimensions are given, in bytes. Runs of equal offsets are taken in by one thread, in order, for each
 * of the elements of `inner`, a plan of what is moved and reached. */
typedef struct cuda_combine_args {
    const int64_t *offset, *position;
    char *moved, *reached;
    int64_t n;
    int32_t how;     /* CUDA_JOIN_* */
    int32_t average; /* what is added is divided by how much there is */
    cuda_number alpha;
    int32_t dims, reserved;
    int64_t size[CUDA_DIMS], stride[CUDA_DIMS];
    cuda_plan inner;
} cuda_combine_args;

#endif
