/* softmax.cu: softmax and its kin, of one floating type.
 *
 * types: float */
#include "device.h"

#include "args_softmax.h"
#include "packs.h"

/* ---- Rows: `width` columns of threads, one row each --------------------------------------------*/

typedef struct softmax_row {
    int lane, lanes, width;
    bool any;       /* there is such a row */
    const T *x, *y; /* element 0 */
    T *out;
    int64_t sx, sy, so; /* from element to element */
} softmax_row;

TMPL_INLINE softmax_row softmax_find(const cuda_rows_args &a, int out) {
    softmax_row r;
    r.width = a.width;
    r.lanes = (int)blockDim.x / a.width;
    r.lane = (int)threadIdx.x / a.width;
    int64_t row = (int64_t)blockIdx.x * a.width + (int)threadIdx.x % a.width;
    r.any = row < a.rows;
    r.x = (const T *)rows_data(a, row, 0);
    r.y = (const T *)rows_data(a, row, 1);
    r.out = (T *)rows_data(a, row, out);
    r.sx = a.step[0] / (int64_t)sizeof(T);
    r.sy = a.step[1] / (int64_t)sizeof(T);
    r.so = a.step[out] / (int64_t)sizeof(T);
    return r;
}

/* ---- What is computed --------------------------------------------------------------------------*/

/* From x - most and its exponential to the result: what is kept of them, and what becomes of that when
 * the sum of the exponentials is known. */
struct softmax_result {
    static CUDA_MEMBER A keep(A, A e) { return e; }
    static CUDA_MEMBER A total(A sum) { return TMPL_IS_HALF ? (A)1 / sum : sum; }
    static CUDA_MEMBER A finish(A kept, A total) {
        return TMPL_IS_HALF ? kept * total : kept / total;
    }
};
struct log_softmax_result {
    static CUDA_MEMBER A keep(A d, A) { return d; }
    static CUDA_MEMBER A total(A sum) { return M_(log)(sum); }
    static CUDA_MEMBER A finish(A kept, A total) { return kept - total; }
};

/* (g - sum(g * y)) * y */
struct softmax_gradient {
    static CUDA_MEMBER A term(A g, A y) { return g * y; }
    static CUDA_MEMBER A finish(A g, A y, A sum) { return (g - sum) * y; }
};
/* g - exp(y) * sum(g) */
struct log_softmax_gradient {
    static CUDA_MEMBER A term(A g, A) { return g; }
    static CUDA_MEMBER A finish(A g, A y, A sum) { return g - M_(exp)(y) * sum; }
};

/* ---- Columns of rows ---------------------------------------------------------------------------*/

template <typename F> TMPL_INLINE void softmax_rows(const cuda_rows_args &a, A *room) {
    softmax_row r = softmax_find(a, 1);
    int64_t n = r.any ? a.n : 0;
    packs_online o = packs_column_online(room, r.x, n, r.sx, r.lane, r.lanes, r.width);
    A total = F::total(o.sum);
    for (int64_t i = r.lane; i < n; i += r.lanes) {
        A d = LOAD(r.x[i * r.sx]) - o.most;
        r.out[i * r.so] = STORE(F::finish(F::keep(d, M_(exp)(d)), total));
    }
}

template <typename F> TMPL_INLINE void softmax_rows_backward(const cuda_rows_args &a, A *room) {
    softmax_row r = softmax_find(a, 2);
    A sum = 0;
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes)
        sum += F::term(LOAD(r.x[i * r.sx]), LOAD(r.y[i * r.sy]));
    sum = rows_join(room, sum, r.lanes, r.width, r.lane, rows_sum<A>());
    for (int64_t i = r.lane; i < a.n && r.any; i += r.lanes) {
        A g = LOAD(r.x[i * r.sx]), y = LOAD(r.y[i * r.sy]);
        r.out[i * r.so] = STORE(F::finish(g, y, sum));
    }
}

#define SOFTMAX_ROWS(name, body)                                                                   \
    KERNEL(TN_(name), cuda_softmax_args) {                                                         \
        SHARED(A, room, CUDA_BLOCK);                                                               \
        body(a.rows, room);                                                                        \
    }
SOFTMAX_ROWS(softmax, softmax_rows<softmax_result>)
SOFTMAX_ROWS(log_softmax, softmax_rows<log_softmax_result>)
SOFTMAX_ROWS(softmax_backward, softmax_rows_backward<softmax_gradient>)
SOFTMAX_ROWS(log_softmax_backward, softmax_rows_backward<log_softmax_gradient>)

/* ---- Packed rows -------------------------------------------------------------------------------
 * Where the lanes can hold a row it is read once, else twice. */

TMPL_INLINE A *softmax_room(void) {
    SHARED(A, room, PACK_WARPS);
    return room;
}
TMPL_INLINE int64_t softmax_row_at(const cuda_softmax_args &a) {
    return (int64_t)blockIdx.x * a.rows.width + (int)threadIdx.x / a.lanes;
}
TMPL_INLINE char *softmax_data(const cuda_softmax_args &a, int k) {
    return rows_data(a.rows, softmax_row_at(a), k);
}
template <int W> TMPL_INLINE packs_row softmax_lane(const cuda_softmax_args &a, const T *x) {
    return packs_find<W>(x, softmax_row_at(a) < a.rows.rows ? a.rows.n : 0, a.lanes);
}

enum { SOFTMAX_PACKS = CUDA_HELD((int)sizeof(T)) / PACK };

template <int W, int N> struct softmax_packs {
    static constexpr int count = N;
    packs_of<W> of[count];
};

template <int W, int N>
TMPL_INLINE softmax_packs<W, N> softmax_hold(const packs_row &r, const T *row) {
    softmax_packs<W, N> held;
    const packs_of<W> *in = packs_in<W>(r, row);
#pragma unroll
    for (int k = 0; k < held.count; k++)
        if (r.lane + k * r.lanes < (int)r.count) held.of[k] = in[r.lane + k * r.lanes];
    return held;
}

template <int W, int N, typename F> TMPL_INLINE void softmax_of_held(const cuda_softmax_args &a) {
    A *room = softmax_room();
    const T *x = (const T *)softmax_data(a, 0);
    T *out = (T *)softmax_data(a, 1);
    packs_row r = softmax_lane<W>(a, x);
    softmax_packs<W, N> held = softmax_hold<W, N>(r, x);
    A edge = r.edge >= 0 ? LOAD(x[r.edge]) : -(A)INFINITY, most = edge, sum;
    A v[held.count][W];
#pragma unroll
    for (int k = 0; k < held.count; k++) {
        if (r.lane + k * r.lanes >= (int)r.count) continue;
#pragma unroll
        for (int j = 0; j < W; j++) {
            v[k][j] = LOAD(held.of[k].of[j]);
            most = packs_most()(most, v[k][j]);
        }
    }
    most = lanes_join_row(room, most, r.lanes, packs_most());
    A e = M_(exp)(edge - most);
    edge = F::keep(edge - most, e);
    sum = r.edge >= 0 ? e : (A)0;
#pragma unroll
    for (int k = 0; k < held.count; k++) {
        if (r.lane + k * r.lanes >= (int)r.count) continue;
        A part = 0;
#pragma unroll
        for (int j = 0; j < W; j++) {
            A d = v[k][j] - most;
            e = M_(exp)(d);
            part += e;
            v[k][j] = F::keep(d, e);
        }
        sum += part;
    }
    A total = F::total(lanes_join_row(room, sum, r.lanes, rows_sum<A>()));
    if (r.edge >= 0) out[r.edge] = STORE(F::finish(edge, total));
#pragma unroll
    for (int k = 0; k < held.count; k++) {
        if (r.lane + k * r.lanes >= (int)r.count) continue;
        packs_of<W> y;
#pragma unroll
        for (int j = 0; j < W; j++) y.of[j] = STORE(F::finish(v[k][j], total));
        packs_out<W>(r, out)[r.lane + k * r.lanes] = y;
    }
}

template <int W, typename F> TMPL_INLINE void softmax_of_long(const cuda_softmax_args &a) {
    A *room = softmax_room();
    const T *x = (const T *)softmax_data(a, 0);
    T *out = (T *)softmax_data(a, 1);
    packs_row r = softmax_lane<W>(a, x);
    packs_online o = packs_join_online(room, packs_read_online<W>(r, x), r.lanes);
    A total = F::total(o.sum);
    auto result = [&](A v) {
        A d = v - o.most;
        return STORE(F::finish(F::keep(d, M_(exp)(d)), total));
    };
    if (r.edge >= 0) out[r.edge] = result(LOAD(x[r.edge]));
    const packs_of<W> *const in[] = {packs_in<W>(r, x)};
    packs_write<W>(packs_out<W>(r, out), in, r.lane, r.count, r.lanes,
                   [&](const packs_of<W> *p, int j) { return result(LOAD(p[0].of[j])); });
}

template <int W, int N, typename F>
TMPL_INLINE void softmax_backward_of_held(const cuda_softmax_args &a) {
    A *room = softmax_room();
    const T *g = (const T *)softmax_data(a, 0), *y = (const T *)softmax_data(a, 1);
    T *out = (T *)softmax_data(a, 2);
    packs_row r = softmax_lane<W>(a, g);
    softmax_packs<W, N> gs = softmax_hold<W, N>(r, g), ys = softmax_hold<W, N>(r, y);
    A g_edge = r.edge >= 0 ? LOAD(g[r.edge]) : (A)0, y_edge = r.edge >= 0 ? LOAD(y[r.edge]) : (A)0;
    A sum = F::term(g_edge, y_edge);
#pragma unroll
    for (int k = 0; k < gs.count; k++) {
        if (r.lane + k * r.lanes >= (int)r.count) continue;
        A part = 0;
#pragma unroll
        for (int j = 0; j < W; j++) part += F::term(LOAD(gs.of[k].of[j]), LOAD(ys.of[k].of[j]));
        sum += part;
    }
    sum = lanes_join_row(room, sum, r.lanes, rows_sum<A>());
    if (r.edge >= 0) out[r.edge] = STORE(F::finish(g_edge, y_edge, sum));
#pragma unroll
    for (int k = 0; k < gs.count; k++) {
        if (r.lane + k * r.lanes >= (int)r.count) continue;
        packs_of<W> d;
#pragma unroll
        for (int j = 0; j < W; j++)
            d.of[j] = STORE(F::finish(LOAD(gs.of[k].of[j]), LOAD(ys.of[k].of[j]), sum));
        packs_out<W>(r, out)[r.lane + k * r.lanes] = d;
    }
}

template <int W, typename F> TMPL_INLINE void softmax_backward_of_long(const cuda_softmax_args &a) {
    A *room = softmax_room();
    const T *g = (const T *)softmax_data(a, 0), *y = (const T *)softmax_data(a, 1);
    T *out = (T *)softmax_data(a, 2);
    packs_row r = softmax_lane<W>(a, g);
    const packs_of<W> *const in[] = {packs_in<W>(r, g), packs_in<W>(r, y)};
    A sum = r.edge >= 0 ? F::term(LOAD(g[r.edge]), LOAD(y[r.edge])) : (A)0;
    packs_walk<W>(in, r.lane, r.count, r.lanes, [&](const auto &some, int64_t) {
        constexpr int count = sizeof some.of / sizeof some.of[0];
        A part = 0;
#pragma unroll
        for (int i = 0; i < count * W; i++)
            part += F::term(LOAD(some.of[i / W][0].of[i % W]), LOAD(some.of[i / W][1].of[i % W]));
        sum += part;
    });
    sum = lanes_join_row(room, sum, r.lanes, rows_sum<A>());
    if (r.edge >= 0) out[r.edge] = STORE(F::finish(LOAD(g[r.edge]), LOAD(y[r.edge]), sum));
    packs_write<W>(packs_out<W>(r, out), in, r.lane, r.count, r.lanes,
                   [&](const packs_of<W> *p, int j) {
                       return STORE(F::finish(LOAD(p[0].of[j]), LOAD(p[1].of[j]), sum));
                   });
}

/* Rows of few packs a thread are told apart: they leave room for more threads. */
#define SOFTMAX_FEW(name, body, kind)                                                              \
    KERNEL(TN_(name), cuda_softmax_args) { body<PACK, CUDA_HELD_FEW, kind>(a); }
#define SOFTMAX_HELD(name, body, kind)                                                             \
    KERNEL(TN_(name), cuda_softmax_args) {                                                         \
        a.whole ? body<PACK, SOFTMAX_PACKS, kind>(a) : body<1, CUDA_HELD_SINGLES, kind>(a);        \
    }
#define SOFTMAX_LONG(name, body, kind)                                                             \
    KERNEL(TN_(name), cuda_softmax_args) { a.whole ? body<PACK, kind>(a) : body<1, kind>(a); }
SOFTMAX_FEW(softmax_few, softmax_of_held, softmax_result)
SOFTMAX_HELD(softmax_held, softmax_of_held, softmax_result)
SOFTMAX_LONG(softmax_long, softmax_of_long, softmax_result)
SOFTMAX_FEW(log_softmax_few, softmax_of_held, log_softmax_result)
SOFTMAX_HELD(log_softmax_held, softmax_of_held, log_softmax_result)
SOFTMAX_LONG(log_softmax_long, softmax_of_long, log_softmax_result)
SOFTMAX_FEW(softmax_backward_few, softmax_backward_of_held, softmax_gradient)
SOFTMAX_HELD(softmax_backward_held, softmax_backward_of_held, softmax_gradient)
SOFTMAX_LONG(softmax_backward_long, softmax_backward_of_long, softmax_gradient)
SOFTMAX_FEW(log_softmax_backward_few, softmax_backward_of_held, log_softmax_gradient)
SOFTMAX_HELD(log_softmax_backward_held, softmax_backward_of_held, log_softmax_gradient)
SOFTMAX_LONG(log_softmax_backward_long, softmax_backward_of_long, log_softmax_gradient)
