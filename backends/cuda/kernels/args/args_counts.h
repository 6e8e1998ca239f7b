/* args_counts.h: numbers of events and waiting times. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_COUNTS_H
#define CUDA_ARGS_COUNTS_H

#include "args.h"

/* Operand 0 is drawn, by the parameters that are the others. */
typedef struct cuda_counts_args {
    cuda_plan plan;
    cuda_draws draws;
    const cuda_draws *launch; /* NULL outside of graphs */
    cuda_fault *fault;
    uint64_t op;
} cuda_counts_args;

#endif
