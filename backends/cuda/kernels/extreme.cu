/* extreme.cu: max, min, argmax and argmin along a dimension, of one element type.
 *
 * types: real */
#include "device.h"

#include "args_scan.h"
#include "join_lanes.h"
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
#pragma unroll 4
    for (int64_t i = p.begin + p.lane; i < p.end; i += p.lanes)
        best = join(best, extreme{{LOAD(*(const T *)(x + i * a.rows.step[0]))}, i});
    best = rows_join(room, best, p.lanes, a.rows.width, p.lane, join);
    if (p.lane > 0 || !p.any) return;
    if (a.parts > 1)
        ((extreme *)a.partial)[p.row * a.parts + p.part] = best;
    else
        extreme_write(a, p.row, best);
}

/* ---- Packed rows: neighbouring threads take neighbouring vectors of a row ----------------------*/
enum {
    EXTREME_VECTOR = 16 / sizeof(T), /* elements that are loaded at once */
    EXTREME_AHEAD = 4                /* loads that are under way together */
};
struct alignas(16) extreme_vector {
    T of[EXTREME_VECTOR];
};

TMPL_INLINE extreme lanes_swap(extreme x, int by) {
    x.value[0] = lanes_swap(x.value[0], by);
    x.at = lanes_swap(x.at, by);
    return x;
}
TMPL_INLINE extreme_near lanes_swap(extreme_near x, int by) {
    x.value[0] = lanes_swap(x.value[0], by);
    x.at = lanes_swap(x.at, by);
    return x;
}

/* Takes in elements behind all that were seen: of equal ones the first stays. */
template <bool largest>
TMPL_INLINE void extreme_take(const extreme_vector &x, int64_t at, int64_t n, extreme *best) {
#pragma unroll
    for (int k = 0; k < EXTREME_VECTOR; k++) {
        A v = LOAD(x.of[k]), b = best->value[0];
        bool stays = b != b || (largest ? v <= b : v >= b);
        if (k < n && !stays) {
            best->value[0] = v;
            best->at = at + k;
        }
    }
}

template <bool largest> TMPL_INLINE void extreme_packed(const cuda_extreme_args &a) {
    SHARED(extreme, room, CUDA_BLOCK / 32);
    int lanes = 1 << a.shift, lane = (int)threadIdx.x & (lanes - 1);
    int64_t part = blockIdx.x % (unsigned)a.parts, n = a.rows.n;
    int64_t row = (int64_t)(blockIdx.x / (unsigned)a.parts) * ((int)blockDim.x >> a.shift) +
                  ((int)threadIdx.x >> a.shift);
    const T *x = (const T *)rows_data(a.rows, row, 0);
    int64_t i = part * a.span + lane, units = (n + EXTREME_VECTOR - 1) / EXTREME_VECTOR;
    int64_t end = (part + 1) * a.span < units ? (part + 1) * a.span : units, whole = 0;
    extreme best = {{0}, -1};
    if (row >= a.rows.rows) end = 0;
    if (i < end) best = extreme{{LOAD(x[i * EXTREME_VECTOR])}, i * EXTREME_VECTOR};
    if ((uintptr_t)x % sizeof(extreme_vector) == 0)
        whole = n / EXTREME_VECTOR < end ? n / EXTREME_VECTOR : end;
    for (; i + (EXTREME_AHEAD - 1) * lanes < whole; i += EXTREME_AHEAD * lanes) {
        extreme_vector v[EXTREME_AHEAD];
#pragma unroll
        for (int u = 0; u < EXTREME_AHEAD; u++) v[u] = ((const extreme_vector *)x)[i + u * lanes];
#pragma unroll
        for (int u = 0; u < EXTREME_AHEAD; u++)
            extreme_take<largest>(v[u], (i + u * lanes) * EXTREME_VECTOR, EXTREME_VECTOR, &best);
    }
    for (; i < end; i += lanes) {
        int64_t at = i * EXTREME_VECTOR, left = n - at;
        extreme_vector v;
        if (i < whole) {
            v = ((const extreme_vector *)x)[i];
        } else {
#pragma unroll
            for (int k = 0; k < EXTREME_VECTOR; k++) v.of[k] = x[k < left ? at + k : at];
        }
        extreme_take<largest>(v, at, left, &best);
    }
    best = lanes_join_row(room, best, lanes, extreme_join<largest, false>());
    if (lane > 0 || row >= a.rows.rows) return;
    if (a.parts > 1)
        ((extreme *)a.partial)[row * a.parts + part] = best;
    else
        extreme_write(a, row, best);
}

/* ---- Rows side by side: neighbouring threads take V neighbouring rows each ---------------------*/
enum { EXTREME_COLUMNS = CUDA_EXTREME_COLUMNS((int)sizeof(T)) };

template <int V, bool largest> TMPL_INLINE void extreme_columns(const cuda_extreme_args &a) {
    SHARED(extreme_near, room, CUDA_BLOCK * V);
    enum { AHEAD = V == 1 ? 2 * EXTREME_AHEAD : EXTREME_AHEAD };
    typedef cuda_vector<T, V> across;
    extreme_join<largest, false> join;
    int width = 1 << a.shift, lanes = (int)blockDim.x >> a.shift;
    int64_t part = blockIdx.x % (unsigned)a.parts, step = a.rows.step[0];
    int64_t first = (int64_t)(blockIdx.x / (unsigned)a.parts) * width * V;
    int64_t row = first + (int64_t)((int)threadIdx.x & (width - 1)) * V;
    int64_t i = part * a.span + ((int)threadIdx.x >> a.shift);
    int64_t end = (part + 1) * a.span < a.rows.n ? (part + 1) * a.span : a.rows.n;
    const char *x = rows_data(a.rows, row, 0);
    extreme_near best[V];
#pragma unroll
    for (int k = 0; k < V; k++) best[k] = extreme_near{{0}, -1};
    if (row >= a.rows.rows) end = 0;
    if (i < end) {
        across v = *(const across *)(x + i * step);
#pragma unroll
        for (int k = 0; k < V; k++) best[k] = extreme_near{{LOAD(v.of[k])}, (int32_t)i};
    }
    for (; i < end; i += AHEAD * lanes) {
        across v[AHEAD];
        int32_t at[AHEAD]; /* those behind the end repeat the first, which stays */
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            at[u] = (int32_t)(i + u * lanes < end ? i + u * lanes : i);
            v[u] = *(const across *)(x + at[u] * step);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
#pragma unroll
            for (int k = 0; k < V; k++) {
                A y = LOAD(v[u].of[k]), b = best[k].value[0];
                if (b != b || (largest ? y <= b : y >= b)) continue;
                best[k].value[0] = y;
                best[k].at = at[u];
            }
    }
    lanes_put_columns<V>(room, best, width, join);
    for (int c = (int)threadIdx.x; c < width * V && first + c < a.rows.rows; c += (int)blockDim.x) {
        extreme_near near = lanes_column<V>(room, c, width, join);
        extreme e = {{near.value[0]}, near.at};
        if (a.parts > 1)
            ((extreme *)a.partial)[(first + c) * a.parts + part] = e;
        else
            extreme_write(a, first + c, e);
    }
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
KERNEL(TN_(max_packed), cuda_extreme_args) { extreme_packed<true>(a); }
KERNEL(TN_(min_packed), cuda_extreme_args) { extreme_packed<false>(a); }
KERNEL(TN_(max_finish), cuda_extreme_args) { extreme_finish(a, extreme_join<true, false>()); }
KERNEL(TN_(min_finish), cuda_extreme_args) { extreme_finish(a, extreme_join<false, false>()); }
KERNEL(TN_(max_columns), cuda_extreme_args) { extreme_columns<EXTREME_COLUMNS, true>(a); }
KERNEL(TN_(min_columns), cuda_extreme_args) { extreme_columns<EXTREME_COLUMNS, false>(a); }
KERNEL(TN_(max_odd_columns), cuda_extreme_args) { extreme_columns<1, true>(a); }
KERNEL(TN_(min_odd_columns), cuda_extreme_args) { extreme_columns<1, false>(a); }
