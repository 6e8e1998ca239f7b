/* reduce.cu: reductions of one element type, in two stages (cuda_reduction_args).
 *
 * types: all */
#include "reduce_walk.h"

#include "join_lanes.h"
#include "shifted.h"

TMPL_INLINE void reduce_write_part(const cuda_reduction_args &a, int64_t result, int64_t part,
                                   A x) {
    if (a.parts > 1)
        ((A *)a.partial)[result * a.result_step + part * a.part_step] = x;
    else
        reduce_write(a, result, x);
}

/* Takes in all units below `whole`, whose vectors are aligned, several at a time, then the others: `left`
 * elements each or, of a row, what its run has left. f: one for each of the V sums, or one for all. */
template <int V, int FS, typename F>
TMPL_INLINE void reduce_take(const cuda_reduction_args &a, const char *in, reduce_walk w,
                             int64_t whole, int64_t left, const F *f, A *sums) {
    while (w.at + (REDUCE_AHEAD - 1) * w.lanes < whole) {
        reduce_vector<V> x[REDUCE_AHEAD];
#pragma unroll
        for (int i = 0; i < REDUCE_AHEAD; i++) {
            x[i] = *(const reduce_vector<V> *)(in + w.offset);
            reduce_step(a, &w);
        }
#pragma unroll
        for (int i = 0; i < REDUCE_AHEAD; i++)
#pragma unroll
            for (int k = 0; k < V; k++) sums[k] = f[k % FS].step(sums[k], LOAD(x[i].of[k]));
    }
    for (; w.at < w.end; reduce_step(a, &w)) {
        const T *some = (const T *)(in + (a.gone_dims > 2 ? reduce_unit(a, w.at) : w.offset));
        int64_t n = FS == 1 ? a.gone_size[0] - w.inner * V : left;
        reduce_vector<V> x;
        if (w.at < whole) {
            x = *(const reduce_vector<V> *)some;
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) x.of[k] = some[k < n ? k : 0];
        }
#pragma unroll
        for (int k = 0; k < V; k++)
            if (k < n) sums[k] = f[k % FS].step(sums[k], LOAD(x.of[k]));
    }
}

/* Takes in the vectors of a row that lies in one piece, several at a time, and then what its end has of
 * another one. */
template <int V, bool SHIFTED, typename F>
TMPL_INLINE void reduce_take_row(const cuda_reduction_args &a, const char *in, reduce_walk w,
                                 const F &f, A *sums) {
    typedef reduce_vector<V> vector;
    shifted_row r = shifted_find(in, a.low, a.high);
    int64_t all = a.gone / V, end = all < r.end ? all : r.end;
    vector x[REDUCE_AHEAD];
    if (end > w.end) end = w.end;
    if (SHIFTED && w.at < r.first && w.at < end) {
        x[0] = shifted_get_any<V, vector>(r, (const T *)in, w.at, a.gone);
#pragma unroll
        for (int k = 0; k < V; k++) sums[k] = f.step(sums[k], LOAD(x[0].of[k]));
        w.at += w.lanes;
    }
    int64_t from = w.at;
    for (; w.at < end; w.at += REDUCE_AHEAD * w.lanes) {
#pragma unroll
        for (int i = 0; i < REDUCE_AHEAD; i++) {
            int64_t at = w.at + i * w.lanes;
            x[i] = shifted_get<SHIFTED, vector>(r, at < end ? at : w.at);
        }
#pragma unroll
        for (int i = 0; i < REDUCE_AHEAD; i++)
#pragma unroll
            for (int k = 0; k < V; k++)
                if (w.at + i * w.lanes < end) sums[k] = f.step(sums[k], LOAD(x[i].of[k]));
    }
    if (from < end) w.at = end + ((from - end) & (w.lanes - 1)); /* the first one that is left */
    for (; w.at < w.end; w.at += w.lanes) {
        x[0] = shifted_get_any<V, vector>(r, (const T *)in, w.at, a.gone);
#pragma unroll
        for (int k = 0; k < V; k++)
            if (w.at * V + k < a.gone) sums[k] = f.step(sums[k], LOAD(x[0].of[k]));
    }
}

/* Results whose elements lie in runs: neighbouring threads take neighbouring vectors of a result. ODD: in
 * one run each that begins or ends inside of a vector. */
template <int V, bool ODD, typename F> TMPL_INLINE void reduce_rows(const cuda_reduction_args &a) {
    SHARED(A, room, CUDA_BLOCK / 32);
    int lanes = 1 << a.shift, lane = (int)threadIdx.x & (lanes - 1);
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t result = (int64_t)(blockIdx.x / (unsigned)a.parts) * ((int)blockDim.x >> a.shift) +
                     ((int)threadIdx.x >> a.shift);
    A sums[V];
    F f = {0};
#pragma unroll
    for (int k = 0; k < V; k++) sums[k] = F::none();
    if (result < a.kept) {
        const char *in =
            (const char *)a.in + cuda_offset(result, a.kept_dims, a.kept_size, a.kept_in);
        reduce_walk w = reduce_start(a, part, lane, lanes);
        if (a.centers) f.center = ((const A *)a.centers)[result];
        if constexpr (!ODD)
            reduce_take<V, 1>(a, in, w, a.whole ? w.end : 0, 0, &f, sums);
        else if ((uintptr_t)in % alignof(reduce_vector<V>) == 0)
            reduce_take_row<V, false>(a, in, w, f, sums);
        else
            reduce_take_row<V, true>(a, in, w, f, sums);
    }
#pragma unroll
    for (int n = V / 2; n > 0; n /= 2)
#pragma unroll
        for (int k = 0; k < n; k++) sums[k] = f(sums[k], sums[k + n]);
    A sum = lanes_join_row(room, sums[0], lanes, f);
    if (lane == 0 && result < a.kept) reduce_write_part(a, result, part, sum);
}

/* Results that lie side by side: neighbouring threads take vectors of neighbouring results. */
template <int V, typename F> TMPL_INLINE void reduce_columns(const cuda_reduction_args &a) {
    SHARED(A, room, CUDA_BLOCK * V);
    int width = 1 << a.shift, lanes = (int)blockDim.x >> a.shift;
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t group = (int64_t)(blockIdx.x / (unsigned)a.parts) * width, n;
    int64_t first = reduce_group<V>(a, group + ((int)threadIdx.x & (width - 1)), &n);
    A sums[V];
    F f[V] = {};
#pragma unroll
    for (int k = 0; k < V; k++) sums[k] = F::none();
    if (n > 0) {
        const char *in =
            (const char *)a.in + cuda_offset(first, a.kept_dims, a.kept_size, a.kept_in);
        reduce_walk w = reduce_start(a, part, (int)threadIdx.x >> a.shift, lanes);
#pragma unroll
        for (int k = 0; k < V; k++)
            if (a.centers && k < n) f[k].center = ((const A *)a.centers)[first + k];
        reduce_take<V, V>(a, in, w, a.whole && n == V ? w.end : 0, n, f, sums);
    }
    lanes_put_columns<V>(room, sums, width, f[0]);
    for (int c = (int)threadIdx.x; c < width * V; c += (int)blockDim.x) {
        int64_t result = reduce_group<V>(a, group + c / V, &n) + c % V;
        A sum = lanes_column<V>(room, c, width, f[0]);
        if (c % V < n) reduce_write_part(a, result, part, sum);
    }
}

/* Joins the parts of 1 << shift results a block. */
template <typename F> TMPL_INLINE void reduce_finish(const cuda_reduction_args &a) {
    SHARED(A, room, CUDA_BLOCK);
    int width = 1 << a.shift, lanes = (int)blockDim.x >> a.shift;
    int of = (int)threadIdx.x & (width - 1);
    int64_t result = (int64_t)blockIdx.x * width + of;
    const A *partial = (const A *)a.partial + result * a.result_step;
    F f = {0};
    A sum = F::none();
#pragma unroll 4
    for (int i = (int)threadIdx.x >> a.shift; i < a.parts && result < a.kept; i += lanes)
        sum = f(sum, partial[i * a.part_step]);
    lanes_put_columns<1>(room, &sum, width, f);
    sum = lanes_column<1>(room, of, width, f);
    if ((int)threadIdx.x < width && result < a.kept) reduce_write(a, result, sum);
}

#include "reduce.h"
