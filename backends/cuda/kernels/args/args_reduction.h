/* args_reduction.h: arguments of the kernels of reductions. Part of both sides, like args.h. */
#ifndef CUDA_ARGS_REDUCTION_H
#define CUDA_ARGS_REDUCTION_H

#include "args.h"

/* A reduction: `kept` results, each of `gone` elements, in two stages. What a thread takes in at once is a
 * unit, `units` for each result: a vector of a result's own elements (rows), or an element of each of
 * several neighbouring results (columns). They lie in runs of `run`, `step` bytes apart. `parts` blocks
 * share a result, `span` units each; with one part it is finished at once, else the partial results
 * lie in `partial` for stage two. None of this depends on the device, so neither do the bits of a
 * result. Strides in bytes. */
typedef struct cuda_reduction_args {
    const void *in;
    void *out;
    void *partial;
    const void *low, *high; /* the first byte of `in`, and that behind its last one */
    const void *centers;    /* of a spread: one per result; or NULL */
    int64_t kept, gone, units, run, step, span;
    int64_t by_inner, by_offset, by_run; /* a thread's way to its next unit, and to a run's start */
    int64_t groups;                      /* columns: vectors in a run of neighbouring results */
    int64_t result_step, part_step;      /* of `partial`, in numbers */
    int32_t parts, kept_dims, gone_dims;
    int32_t shift;  /* log2 of a row's threads, of a block's vectors of columns */
    int32_t whole;  /* all vectors are whole and aligned; no more than two dimensions go */
    int32_t divide; /* results are divided by `divisor` */
    int32_t packed; /* results are written in the type computed in, one after the other */
    int32_t real;   /* of a complex type: only real parts are written, in their type */
    double divisor;
    int64_t kept_size[CUDA_DIMS], kept_in[CUDA_DIMS], kept_out[CUDA_DIMS];
    int64_t gone_size[CUDA_DIMS], gone_in[CUDA_DIMS];
} cuda_reduction_args;

#endif
