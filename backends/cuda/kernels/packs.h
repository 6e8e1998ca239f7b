/* packs.h: rows whose elements lie side by side, taken by `lanes` neighbouring threads in packs of 16
 * bytes: thread t is lane t % lanes of the block's row t / lanes. A row may begin and end anywhere:
 * what lies before its first whole pack and behind its last one, its edges, goes element by element.
 * Rows that do not lie alike in all operands are taken in packs of W = 1, which have no edges.
 *
 * Which thread adds what depends on sizes, and on where in 16 bytes a row begins, alone. */
#ifndef CUDA_PACKS_H
#define CUDA_PACKS_H

#include "join_lanes.h"
#include "rows.h"
#include "scalar.h"

enum { PACK = 16 / sizeof(T), PACK_WARPS = CUDA_BLOCK / 32 };

template <int W> struct alignas(W == PACK ? 16 : sizeof(T)) packs_of { T of[W]; };

/* A row, as one of its lanes sees it. */
typedef struct packs_row {
    int64_t count; /* of whole packs, which begin at element `head` */
    int64_t edge;  /* the lane's element outside of them, or -1; there are less than 2 PACK */
    int32_t head;
    int32_t lane, lanes;
} packs_row;

template <int W> TMPL_INLINE packs_row packs_find(const void *row, int64_t n, int32_t lanes) {
    packs_row r;
    r.lanes = lanes;
    r.lane = (int32_t)threadIdx.x & (lanes - 1);
    int64_t head = W == 1 ? 0 : (int64_t)((0 - (uintptr_t)row) % 16 / sizeof(T));
    r.head = (int32_t)(head < n ? head : n);
    r.count = (n - r.head) / W;
    int64_t edges = n - r.count * W;
    r.edge = r.lane >= edges ? -1 : r.lane < r.head ? r.lane : n - edges + r.lane;
    return r;
}

template <int W> TMPL_INLINE const packs_of<W> *packs_in(const packs_row &r, const T *row) {
    return (const packs_of<W> *)(row + r.head);
}
template <int W> TMPL_INLINE packs_of<W> *packs_out(const packs_row &r, T *row) {
    return (packs_of<W> *)(row + r.head);
}

/* Packs of N operands, loaded before any of them is computed with. */
template <int W, int N, int COUNT> struct packs_some {
    static constexpr int count = COUNT;
    packs_of<W> of[COUNT][N];
};

/* f(some, at) for the lane's packs begin, begin + lanes, ... below end; `some` has those from `at` on. */
template <int W, int N, typename F>
TMPL_INLINE void packs_walk(const packs_of<W> *const (&in)[N], int64_t begin, int64_t end,
                            int32_t lanes, F f) {
    constexpr int count = (W == 1 ? 8 : 4) / (N > 1 ? 2 : 1);
    int64_t at = begin;
    for (; at + (count - 1) * lanes < end; at += count * lanes) {
        packs_some<W, N, count> some;
#pragma unroll
        for (int u = 0; u < count; u++)
#pragma unroll
            for (int k = 0; k < N; k++) some.of[u][k] = in[k][at + u * lanes];
        f(some, at);
    }
    for (; at < end; at += lanes) {
        packs_some<W, N, 1> one;
#pragma unroll
        for (int k = 0; k < N; k++) one.of[0][k] = in[k][at];
        f(one, at);
    }
}

/* The same packs, each computed into `to` at its place: element j of it is f(in, j), where in[k] is
 * the pack of operand k. */
template <int W, int N, typename F>
TMPL_INLINE void packs_write(packs_of<W> *to, const packs_of<W> *const (&in)[N], int64_t begin,
                             int64_t end, int32_t lanes, F f) {
    packs_walk<W>(in, begin, end, lanes, [&](const auto &some, int64_t at) {
        constexpr int count = sizeof some.of / sizeof some.of[0];
#pragma unroll
        for (int u = 0; u < count; u++) {
            packs_of<W> y;
#pragma unroll
            for (int j = 0; j < W; j++) y.of[j] = f(some.of[u], j);
            to[at + u * lanes] = y;
        }
    });
}

/* ---- Sums of exponentials ----------------------------------------------------------------------*/

/* NaN is passed over: it shows in the sum. */
struct packs_most {
    CUDA_MEMBER A operator()(A a, A b) const { return B_(fmax)(a, b); }
};

/* The largest of some elements, and the sum of exp(x - most). */
typedef struct packs_online {
    A most, sum;
} packs_online;

template <int N> TMPL_INLINE void packs_take(packs_online *o, const A (&x)[N]) {
    A most = o->most, part = 0;
#pragma unroll
    for (int i = 0; i < N; i++) most = packs_most()(most, x[i]);
    if (most > o->most) {
        o->sum *= M_(exp)(o->most - most);
        o->most = most;
    }
    A from = most == -(A)INFINITY ? (A)0 : most;
#pragma unroll
    for (int i = 0; i < N; i++) part += M_(exp)(x[i] - from);
    o->sum += part;
}

/* A lane's sum, on to the row's largest element. */
TMPL_INLINE A packs_sum_from(const packs_online &o, A most) {
    return o.most == most ? o.sum : o.sum * M_(exp)(o.most - most);
}

/* The lane's part of a row. */
template <int W> TMPL_INLINE packs_online packs_read_online(const packs_row &r, const T *row) {
    packs_online o = {-(A)INFINITY, 0};
    if (r.edge >= 0) packs_take<1>(&o, {LOAD(row[r.edge])});
    const packs_of<W> *const in[] = {packs_in<W>(r, row)};
    packs_walk<W>(in, r.lane, r.count, r.lanes, [&](const auto &some, int64_t) {
        constexpr int count = sizeof some.of / sizeof some.of[0];
        A x[count * W];
#pragma unroll
        for (int i = 0; i < count * W; i++) x[i] = LOAD(some.of[i / W][0].of[i % W]);
        packs_take(&o, x);
    });
    return o;
}

TMPL_INLINE packs_online packs_join_online(A *room, const packs_online &mine, int32_t lanes) {
    A most = lanes_join_row(room, mine.most, lanes, packs_most());
    return {most, lanes_join_row(room, packs_sum_from(mine, most), lanes, rows_sum<A>())};
}

/* The same for rows whose elements are `step` apart: lane, lane + lanes, ... of n, and their join down
 * a column of the block's threads (rows.h). */
TMPL_INLINE packs_online packs_column_online(A *room, const T *x, int64_t n, int64_t step, int lane,
                                             int lanes, int width) {
    packs_online o = {-(A)INFINITY, 0};
    int64_t i = lane;
    for (; i + 3 * lanes < n; i += 4 * lanes) {
        A four[4];
#pragma unroll
        for (int k = 0; k < 4; k++) four[k] = LOAD(x[(i + k * lanes) * step]);
        packs_take(&o, four);
    }
    for (; i < n; i += lanes) packs_take<1>(&o, {LOAD(x[i * step])});
    A most = rows_join(room, o.most, lanes, width, lane, packs_most());
    return {most, rows_join(room, packs_sum_from(o, most), lanes, width, lane, rows_sum<A>())};
}

#endif
