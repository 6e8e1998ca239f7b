/* take.h: where an index points, for all kernels that follow indices. */
#ifndef CUDA_TAKE_H
#define CUDA_TAKE_H

#include "device.h"

#include "args_index.h"

/* The byte offset that the index at `at` stands for. CUDA_NOWHERE: it is left out, or out of range,
 * which is reported. */
TMPL_INLINE int64_t take_offset(const cuda_take_args &a, const char *at) {
    int64_t i = a.short_index ? *(const int32_t *)at : *(const int64_t *)at;
    int64_t least = a.wrap ? -a.size : 0;
    if (a.ready) return i;
    if (a.skips && i == a.skip) return CUDA_NOWHERE;
    if (i < least || i >= a.size) {
        cuda_report(a.fault, a.op, i, a.size);
        return CUDA_NOWHERE;
    }
    return (i < 0 ? i + a.size : i) * a.step;
}

/* The thread's element of what is moved, and where it belongs; false when there is nothing to do. */
TMPL_INLINE bool take_find(const cuda_take_args &a, char **ret_moved, char **ret_reached) {
    const cuda_plan &p = a.plan;
    cuda_group g;
    if (!cuda_group_start<1>(p, &g)) return false;
    int64_t offset = take_offset(a, (const char *)p.data[1] + g.at[1]);
    *ret_moved = (char *)p.data[0] + g.at[0];
    *ret_reached = (char *)p.data[2] + g.at[2] + offset;
    return offset != CUDA_NOWHERE;
}

#endif
