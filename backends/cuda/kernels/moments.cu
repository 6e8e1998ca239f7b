/* moments.cu: variances of one floating type, reading once: reductions (reduce.cu) of moments. They are
 * those of differences from the result's first element: far from 0 a mean's own rounding would show.
 *
 * types: float */
#include "reduce_walk.h"

#include "moments.h"
#include "shifted.h"

TMPL_INLINE void moments_write_part(const cuda_reduction_args &a, int64_t result, int64_t part,
                                    const moments &m) {
    if (a.parts > 1)
        ((moments *)a.partial)[result * a.result_step + part * a.part_step] = m;
    else
        reduce_write(a, result, m.square);
}

/* Differences of a vector from what each of its elements, or all, are measured from. */
template <int V, int P>
TMPL_INLINE void moments_load(const reduce_vector<V> &x, const A (&from)[P], A (&ret_x)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++) ret_x[k] = LOAD(x.of[k]) - from[k % P];
}

/* A unit at `some`, of which n elements are there. */
template <int V, int P>
TMPL_INLINE void moments_get(const char *some, bool whole, int64_t n, const A (&from)[P],
                             A (&ret_x)[V]) {
    reduce_vector<V> x;
    if (whole) {
        x = *(const reduce_vector<V> *)some;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) x.of[k] = ((const T *)some)[k < n ? k : 0];
    }
    moments_load(x, from, ret_x);
}

TMPL_INLINE const char *moments_at(const cuda_reduction_args &a, const char *in,
                                   const reduce_walk &w) {
    return in + (a.gone_dims > 2 ? reduce_unit(a, w.at) : w.offset);
}

/* Units of runs. */
template <int V>
TMPL_INLINE void moments_of_runs(const cuda_reduction_args &a, const char *in, reduce_walk w,
                                 const A (&from)[1], moments *m) {
    enum { AHEAD = V == 1 ? 4 * REDUCE_AHEAD : REDUCE_AHEAD };
    while (a.whole && w.at + (AHEAD - 1) * w.lanes < w.end) {
        A x[AHEAD][V];
        int n[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            n[i] = V;
            moments_get(in + w.offset, true, V, from, x[i]);
            reduce_step(a, &w);
        }
        moments_take(x, n, m);
    }
    for (; w.at < w.end; reduce_step(a, &w)) {
        A x[1][V];
        int64_t left = a.gone_size[0] - w.inner * V;
        const int n[1] = {left < V ? (int)left : V};
        moments_get(moments_at(a, in, w), a.whole, n[0], from, x[0]);
        moments_take(x, n, m);
    }
}

/* Units of a row that lies in one piece, from anywhere in 16 bytes on. */
template <int V, bool SHIFTED>
TMPL_INLINE void moments_of_row(const cuda_reduction_args &a, const char *in, reduce_walk w,
                                const A (&from)[1], moments *m) {
    typedef reduce_vector<V> vector;
    shifted_row r = shifted_find(in, a.low, a.high);
    int64_t all = a.gone / V, end = all < r.end ? all : r.end;
    if (end > w.end) end = w.end;
    while (w.at < w.end) {
        if (w.at < r.first || w.at >= end) { /* at the operand's ends, and what is left of a unit */
            A x[1][V];
            int64_t left = a.gone - w.at * V;
            const int n[1] = {left < V ? (int)left : V};
            vector v = shifted_get_any<V, vector>(r, (const T *)in, w.at, a.gone);
            moments_load(v, from, x[0]);
            moments_take(x, n, m);
            w.at += w.lanes;
            continue;
        }
        A x[REDUCE_AHEAD][V];
        int n[REDUCE_AHEAD], took = 0;
#pragma unroll
        for (int i = 0; i < REDUCE_AHEAD; i++) {
            bool is_there = w.at + i * w.lanes < end;
            vector v = shifted_get<SHIFTED, vector>(r, is_there ? w.at + i * w.lanes : w.at);
            n[i] = is_there ? V : 0;
            took += is_there;
            moments_load(v, from, x[i]);
        }
        moments_take(x, n, m);
        w.at += took * w.lanes;
    }
}

template <int V, bool ODD> TMPL_INLINE void moments_rows(const cuda_reduction_args &a) {
    SHARED(moments, room, CUDA_BLOCK / 32);
    int lanes = 1 << a.shift, lane = (int)threadIdx.x & (lanes - 1);
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t result = (int64_t)(blockIdx.x / (unsigned)a.parts) * ((int)blockDim.x >> a.shift) +
                     ((int)threadIdx.x >> a.shift);
    moments m = {0, 0, 0};
    if (result < a.kept) {
        const char *in =
            (const char *)a.in + cuda_offset(result, a.kept_dims, a.kept_size, a.kept_in);
        reduce_walk w = reduce_start(a, part, lane, lanes);
        const A from[1] = {a.units ? LOAD(*(const T *)in) : (A)0};
        if constexpr (!ODD)
            moments_of_runs<V>(a, in, w, from, &m);
        else if ((uintptr_t)in % alignof(reduce_vector<V>) == 0)
            moments_of_row<V, false>(a, in, w, from, &m);
        else
            moments_of_row<V, true>(a, in, w, from, &m);
    }
    m = lanes_join_row(room, m, lanes, moments_join());
    if (lane == 0 && result < a.kept) moments_write_part(a, result, part, m);
}

template <int V> TMPL_INLINE void moments_columns(const cuda_reduction_args &a) {
    SHARED(moments, room, CUDA_BLOCK * V);
    enum { AHEAD = V == 1 ? 2 * REDUCE_AHEAD : REDUCE_AHEAD };
    int width = 1 << a.shift, lanes = (int)blockDim.x >> a.shift;
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t group = (int64_t)(blockIdx.x / (unsigned)a.parts) * width, n;
    int64_t first = reduce_group<V>(a, group + ((int)threadIdx.x & (width - 1)), &n);
    moments_across<V> m = {};
    if (n > 0) {
        const char *in =
            (const char *)a.in + cuda_offset(first, a.kept_dims, a.kept_size, a.kept_in);
        reduce_walk w = reduce_start(a, part, (int)threadIdx.x >> a.shift, lanes);
        bool whole = a.whole && n == V;
        A from[V] = {};
        const A zero[1] = {0};
        if (a.units) moments_get(in, whole, n, zero, from);
        while (w.at + (AHEAD - 1) * w.lanes < w.end) {
            A x[AHEAD][V];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                moments_get(moments_at(a, in, w), whole, n, from, x[i]);
                reduce_step(a, &w);
            }
            moments_take_across(x, &m);
        }
        for (; w.at < w.end; reduce_step(a, &w)) {
            A x[1][V];
            moments_get(moments_at(a, in, w), whole, n, from, x[0]);
            moments_take_across(x, &m);
        }
    }
    moments all[V];
#pragma unroll
    for (int k = 0; k < V; k++) all[k] = {m.count, m.mean[k], m.square[k]};
    lanes_put_columns<V>(room, all, width, moments_join());
    for (int c = (int)threadIdx.x; c < width * V; c += (int)blockDim.x) {
        int64_t result = reduce_group<V>(a, group + c / V, &n) + c % V;
        moments sum = lanes_column<V>(room, c, width, moments_join());
        if (c % V < n) moments_write_part(a, result, part, sum);
    }
}

KERNEL(TN_(rows_moments), cuda_reduction_args) { moments_rows<REDUCE_VECTOR, false>(a); }
KERNEL(TN_(odd_rows_moments), cuda_reduction_args) { moments_rows<REDUCE_VECTOR, true>(a); }
KERNEL(TN_(columns_moments), cuda_reduction_args) { moments_columns<REDUCE_VECTOR>(a); }
KERNEL(TN_(strided_rows_moments), cuda_reduction_args) { moments_rows<1, false>(a); }
KERNEL(TN_(strided_columns_moments), cuda_reduction_args) { moments_columns<1>(a); }

/* Joins the parts of 1 << shift results a block. */
KERNEL(TN_(finish_moments), cuda_reduction_args) {
    SHARED(moments, room, CUDA_BLOCK);
    int width = 1 << a.shift, lanes = (int)blockDim.x >> a.shift;
    int of = (int)threadIdx.x & (width - 1);
    int64_t result = (int64_t)blockIdx.x * width + of;
    const moments *partial = (const moments *)a.partial + result * a.result_step;
    moments sum = {0, 0, 0};
#pragma unroll 4
    for (int i = (int)threadIdx.x >> a.shift; i < a.parts && result < a.kept; i += lanes)
        sum = moments_join()(sum, partial[i * a.part_step]);
    lanes_put_columns<1>(room, &sum, width, moments_join());
    sum = lanes_column<1>(room, of, width, moments_join());
    if ((int)threadIdx.x < width && result < a.kept) reduce_write(a, result, sum.square);
}
