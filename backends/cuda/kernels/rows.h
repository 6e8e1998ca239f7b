/* rows.h: what kernels share whose threads form `width` columns, one row of elements each, and several
 * lanes per row: thread t is lane t / width of column t % width. */
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#include "device.h"

/* Element 0 of a row; of row 0 where there is no such row. */
TMPL_INLINE char *rows_data(const cuda_rows_args &a, int64_t row, int k) {
    int64_t at = 0;
    if (row >= a.rows) row = 0;
    for (int d = 0; d < a.dims - 1; d++) {
        int64_t q = row / a.size[d];
        at += (row - q * a.size[d]) * a.stride[d][k];
        row = q;
    }
    return (char *)a.data[k] + at + (a.dims ? row * a.stride[a.dims - 1][k] : 0);
}

/* A thread's part of a row that `parts` blocks share, `span` elements each. */
typedef struct rows_part {
    int64_t row, part;
    int64_t begin, end,
        last; /* elements of the part; none in a row that is not there; the block's */
    int lane, lanes;
    bool any;
} rows_part;

TMPL_INLINE rows_part rows_find_part(const cuda_rows_args &a, int64_t parts, int64_t span) {
    rows_part p;
    p.lane = (int)threadIdx.x / a.width;
    p.lanes = (int)blockDim.x / a.width;
    p.part = blockIdx.x % (unsigned)parts;
    p.row = (int64_t)(blockIdx.x / (unsigned)parts) * a.width + (int)threadIdx.x % a.width;
    p.any = p.row < a.rows;
    p.begin = p.part * span;
    p.last = p.begin + span < a.n ? p.begin + span : a.n;
    p.end = p.any ? p.last : p.begin;
    return p;
}

/* What all lanes of a row come to; every thread of the block takes part. The order depends on `lanes`
 * alone. */
template <typename V, typename F>
TMPL_INLINE V rows_join(V *room, V mine, int lanes, int width, int lane, F join) {
    V *column = room + threadIdx.x;
    __syncthreads();
    *column = mine;
    __syncthreads();
    for (int n = lanes / 2; n > 0; n /= 2) {
        if (lane < n) column[0] = join(column[0], column[n * width]);
        __syncthreads();
    }
    return room[(int)threadIdx.x % width];
}

template <typename V> struct rows_sum {
    CUDA_MEMBER V operator()(V a, V b) const { return a + b; }
};

#endif
