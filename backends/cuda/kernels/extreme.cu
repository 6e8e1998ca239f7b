/* extreme.cu: max, min, argmax and argmin along a dimension, of one element type.
 *
 * types: real */
#include "device.h"

#include "args_scan.h"
#include "rows.h"
#include "scalar.h"

#include "extreme.h"

TMPL_INLINE void extreme_write(const cuda_extreme_args &a, int64_t row, extreme e) {
    if (a.values) ((T *)a.values)[row] = STORE(e.value[0]);
    a.indices[row] = e.at;
}

template <typename F> TMPL_INLINE void extreme_rows(const cuda_extreme_args &a, F join) {
    SHARED(extreme, room, CUDA_BLOCK);
    rows_part p = rows_find_part(a.rows, a.parts, a.span);
    const char *x = rows_data(a.rows, p.row, 0);
    extreme best = {{0}, -1};
    for (int64_t i = p.begin + p.lane; i < p.end; i += p.lanes)
        best = join(best, extreme{{LOAD(*(const T *)(x + i * a.rows.step[0]))}, i});
    best = rows_join(room, best, p.lanes, a.rows.width, p.lane, join);
    if (p.lane > 0 || !p.any) return;
    if (a.parts > 1)
        ((extreme *)a.partial)[p.row * a.parts + p.part] = best;
    else
        extreme_write(a, p.row, best);
}

/* One block per row: joins its parts. */
template <typename F> TMPL_INLINE void extreme_finish(const cuda_extreme_args &a, F join) {
    SHARED(extreme, room, CUDA_BLOCK);
    int64_t row = blockIdx.x;
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    extreme best = {{0}, -1};
    for (int i = lane; i < a.parts; i += lanes)
        best = join(best, ((const extreme *)a.partial)[row * a.parts + i]);
    best = rows_join(room, best, lanes, 1, lane, join);
    if (lane == 0) extreme_write(a, row, best);
}

KERNEL(TN_(max_rows), cuda_extreme_args) { extreme_rows(a, extreme_join<true, false>()); }
KERNEL(TN_(min_rows), cuda_extreme_args) { extreme_rows(a, extreme_join<false, false>()); }
KERNEL(TN_(max_finish), cuda_extreme_args) { extreme_finish(a, extreme_join<true, false>()); }
KERNEL(TN_(min_finish), cuda_extreme_args) { extreme_finish(a, extreme_join<false, false>()); }
