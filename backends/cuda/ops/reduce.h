/* reduce.h: between the rows of reductions (reduce_tu.c, per element type) and what launches them. */
#ifndef CUDA_REDUCE_H
#define CUDA_REDUCE_H

#include "cuda_priv.h"

enum {
    REDUCE_ROWS,
    REDUCE_ODD_ROWS,
    REDUCE_COLUMNS,
    REDUCE_STRIDED_ROWS,
    REDUCE_STRIDED_COLUMNS,
    REDUCE_KERNELS
};

/* The ctx of a row. */
typedef struct cuda_reduction {
    cuda_kernel kernel[REDUCE_KERNELS], finish;
    struct cuda_reduction *sum; /* of a spread: what its centers are computed with */
    int32_t item, sum_item;     /* bytes of an element, and of what a part comes to */
    bool mean;
} cuda_reduction;

tn_status cuda_reduce(const tn_call *call, const void *args);
/* The spread around the mean, divided by the number of elements less `correction`. */
tn_status cuda_reduce_var(const tn_call *call, const tn_plan *plan, double correction);

#endif
