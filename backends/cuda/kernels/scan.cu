/* scan.cu: running sums, products, logsumexps and extremes along a dimension, of one element type.
 *
 * A block takes `span` elements of each of its rows. Where a row has several parts, a first kernel adds
 * up every part, and each block of the second one begins with the parts in front of its own.
 *
 * types: all */
#include "device.h"

#include "args_scan.h"
#include "rows.h"
#include "scalar.h"

#if !TMPL_IS_COMPLEX
#include "extreme.h"
#endif

enum { SCAN_EACH = 4 }; /* neighbouring elements that a thread takes at once */

/* ---- What is carried along ---------------------------------------------------------------------*/

/* Running values that are elements themselves. */
struct scan_elements {
    typedef A V;
    static CUDA_MEMBER V load(const cuda_rows_args &a, const char *x, int64_t i) {
        return LOAD(*(const T *)(x + i * a.step[0]));
    }
    /* y, z: the row's results */
    static CUDA_MEMBER void store(const cuda_rows_args &a, char *y, char *z, int64_t i, V v) {
        (void)z;
        *(T *)(y + i * a.step[1]) = STORE(v);
    }
};

#if !TMPL_IS_BOOL
struct scan_sum : scan_elements {
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    /* -0, so that a row of -0 stays one. */
    static CUDA_MEMBER V none() { return -(A)0; }
    CUDA_MEMBER V operator()(V p, V q) const { return p + q; }
#else
    static CUDA_MEMBER V none() { return 0; }
    CUDA_MEMBER V operator()(V p, V q) const { return (A)((U)p + (U)q); }
#endif
};

struct scan_product : scan_elements {
    static CUDA_MEMBER V none() { return 1; }
    CUDA_MEMBER V operator()(V p, V q) const { return f_mul(p, q); }
};
#endif

#if TMPL_IS_FLOAT
struct scan_logsumexp : scan_elements {
    static CUDA_MEMBER V none() { return -(A)INFINITY; }
    CUDA_MEMBER V operator()(V p, V q) const {
        bool first = p > q || p != p;
        A top = first ? p : q, low = first ? q : p;
        if (top == low && isinf(top)) return top;
        return top + M_(log1p)(M_(exp)(low - top));
    }
};
#endif

#if !TMPL_IS_COMPLEX
template <bool largest> struct scan_extreme : extreme_join<largest, true> {
    typedef extreme V;
    static CUDA_MEMBER V none() { return V{{0}, -1}; }
    static CUDA_MEMBER V load(const cuda_rows_args &a, const char *x, int64_t i) {
        return V{{scan_elements::load(a, x, i)}, i};
    }
    static CUDA_MEMBER void store(const cuda_rows_args &a, char *y, char *z, int64_t i, V v) {
        scan_elements::store(a, y, z, i, v.value[0]);
        *(int64_t *)(z + i * a.step[2]) = v.at;
    }
};
#endif

/* ---- The two kernels ---------------------------------------------------------------------------*/

template <typename F> TMPL_INLINE void scan_parts(const cuda_scan_args &a, F join) {
    typedef typename F::V V;
    SHARED(V, room, CUDA_BLOCK);
    rows_part p = rows_find_part(a.rows, a.parts, a.span);
    const char *x = rows_data(a.rows, p.row, 0);
    V sum = F::none();
    for (int64_t i = p.begin + p.lane; i < p.end; i += p.lanes)
        sum = join(sum, F::load(a.rows, x, i));
    sum = rows_join(room, sum, p.lanes, a.rows.width, p.lane, join);
    if (p.lane == 0 && p.any) ((V *)a.partial)[p.row * a.parts + p.part] = sum;
}

/* The lanes of a row in order: returns what the lanes in front of the calling one come to, and what
 * all come to. Every thread of the block takes part. */
template <typename V, typename F>
TMPL_INLINE V scan_lanes(V *room, V mine, int lanes, int width, int lane, V none, F join,
                         V *ret_all) {
    V *at = room + threadIdx.x;
    __syncthreads();
    *at = mine;
    __syncthreads();
    for (int n = 1; n < lanes; n *= 2) {
        V before = lane >= n ? at[-n * width] : none;
        __syncthreads();
        mine = join(before, mine);
        *at = mine;
        __syncthreads();
    }
    *ret_all = room[(lanes - 1) * width + (int)threadIdx.x % width];
    return lane > 0 ? at[-width] : none;
}

template <typename F> TMPL_INLINE void scan_rows(const cuda_scan_args &a, F join) {
    typedef typename F::V V;
    SHARED(V, room, CUDA_BLOCK);
    rows_part p = rows_find_part(a.rows, a.parts, a.span);
    const char *x = rows_data(a.rows, p.row, 0);
    char *y = rows_data(a.rows, p.row, 1), *z = rows_data(a.rows, p.row, 2);
    int width = a.rows.width;
    V carry = F::none();
    for (int64_t i = p.lane; i < p.part && p.any; i += p.lanes)
        carry = join(carry, ((const V *)a.partial)[p.row * a.parts + i]);
    if (a.parts > 1) carry = rows_join(room, carry, p.lanes, width, p.lane, join);
    for (int64_t turn = p.begin; turn < p.last; turn += (int64_t)p.lanes * SCAN_EACH) {
        int64_t first = turn + (int64_t)p.lane * SCAN_EACH;
        V sum = F::none(), all, run[SCAN_EACH];
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++) {
            if (first + k < p.end) sum = join(sum, F::load(a.rows, x, first + k));
            run[k] = sum;
        }
        V before = scan_lanes(room, sum, p.lanes, width, p.lane, F::none(), join, &all);
        before = join(carry, before);
        carry = join(carry, all);
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++)
            if (first + k < p.end) F::store(a.rows, y, z, first + k, join(before, run[k]));
    }
}

#if !TMPL_IS_BOOL && !TMPL_IS_COMPLEX
/* What the lanes of a row come to, up to the calling one. All threads of the warp take part. */
template <typename V, typename F> TMPL_INLINE V scan_warp(V mine, int lanes, int lane, F join) {
    for (int by = 1; by < lanes; by *= 2) {
        V before = (V)__shfl_up_sync(0xffffffffu, mine, (unsigned)by);
        if (lane >= by) mine = join(before, mine);
    }
    return mine;
}

/* Rows whose elements lie side by side, in packs of 16 bytes: a row has `lanes` neighbouring threads,
 * each of which has the next packs on their way while it adds up. */
template <typename F> TMPL_INLINE void scan_packed(const cuda_scan_args &a, F join) {
    enum { W = 16 / sizeof(T), AHEAD = 4 };
    typedef cuda_vector<T, W> pack;
    int lanes = a.lanes, lane = (int)threadIdx.x & (lanes - 1),
        last = (int)threadIdx.x | (lanes - 1);
    int64_t row = cuda_thread() / lanes, packs = row < a.rows.rows ? a.rows.n / W : 0;
    const pack *x = (const pack *)rows_data(a.rows, row, 0);
    pack *y = (pack *)rows_data(a.rows, row, 1);
    A carry = F::none();
    for (int64_t turn = 0; turn < a.rows.n / W; turn += AHEAD * lanes) {
        pack in[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int64_t i = turn + u * lanes + lane;
            if (i < packs) in[u] = x[i];
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int64_t i = turn + u * lanes + lane;
            A run[W], sum = F::none();
#pragma unroll
            for (int k = 0; k < W; k++) {
                if (i < packs) sum = join(sum, LOAD(in[u].of[k]));
                run[k] = sum;
            }
            sum = scan_warp(sum, lanes, lane, join);
            A before = (A)__shfl_up_sync(0xffffffffu, sum, 1u);
            A all = (A)__shfl_sync(0xffffffffu, sum, last & 31);
            before = lane > 0 ? join(carry, before) : carry;
            carry = join(carry, all);
#pragma unroll
            for (int k = 0; k < W; k++) in[u].of[k] = STORE(join(before, run[k]));
            if (i < packs) y[i] = in[u];
        }
    }
}

#define SCAN_PACKED(name, join)                                                                    \
    KERNEL(TN_(name##_packed), cuda_scan_args) { scan_packed(a, join()); }
SCAN_PACKED(cumsum, scan_sum)
SCAN_PACKED(cumprod, scan_product)
#if TMPL_IS_FLOAT
SCAN_PACKED(logcumsumexp, scan_logsumexp)
#endif
#endif

#define SCAN(name, join)                                                                           \
    KERNEL(TN_(name##_parts), cuda_scan_args) { scan_parts(a, join()); }                           \
    KERNEL(TN_(name##_rows), cuda_scan_args) { scan_rows(a, join()); }

#if !TMPL_IS_BOOL
SCAN(cumsum, scan_sum)
SCAN(cumprod, scan_product)
#endif
#if TMPL_IS_FLOAT
SCAN(logcumsumexp, scan_logsumexp)
#endif
#if !TMPL_IS_COMPLEX
SCAN(cummax, scan_extreme<true>)
SCAN(cummin, scan_extreme<false>)
#endif
