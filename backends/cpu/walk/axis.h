/* axis.h: walking the rows of tensors along one dimension: the loop of softmax, cumsum and others.
 *
 * The other dimensions are merged where all tensors allow it. Row r of tensor v begins
 * axis_offset(...) elements after element 0 and has a stride of step[v]. */
#ifndef TENON_CPU_AXIS_H
#define TENON_CPU_AXIS_H

#include <tenon/plugin.h>

#define AXIS_MAX 4
typedef struct axis {
    int64_t n;              /* length of a row */
    int64_t rows;           /* how many */
    int64_t run;            /* rows of the innermost dimension that lie side by side */
    int64_t step[AXIS_MAX]; /* along a row, in elements */
    int64_t next[AXIS_MAX]; /* from a row to the next one of the innermost dimension */
    int32_t ndim;
    int32_t count;
    int64_t size[TN_MAX_DIMS]; /* merged, the innermost dimension first */
    int64_t stride[TN_MAX_DIMS][AXIS_MAX];
} axis;

/* All views have the same shape; a 0-d one has one row of one element. */
void axis_init(axis *ret, int32_t count, const tn_view *const *views, int64_t dim);

static inline void axis_offset(const axis *a, int64_t row, int64_t *ret_offset) {
    if (a->ndim == 1) { /* without a division */
        for (int32_t v = 0; v < a->count; v++) ret_offset[v] = row * a->stride[0][v];
        return;
    }
    for (int32_t v = 0; v < a->count; v++) ret_offset[v] = 0;
    for (int32_t d = 0; d < a->ndim; d++) {
        int64_t i = row % a->size[d];
        row /= a->size[d];
        for (int32_t v = 0; v < a->count; v++) ret_offset[v] += i * a->stride[d][v];
    }
}

#endif
