/* attention.cu: softmax(q k^T * scale) v and its gradients, tile by tile, for one floating element
 * type. No matrix of scores is ever in memory.
 *
 * The 256 threads of a block form a square; thread (ty, tx) has the rows ty, ty + 16, .. of a tile and
 * of a product its columns tx, tx + 16, .. Tiles lie in shared memory as groups of four numbers.
 * Going forward a block owns a tile of queries and walks over the keys; each row keeps its maximum and
 * its sum so far and is rescaled when a later tile raises the maximum. Going backward the scores are
 * computed again, once by the blocks that own a tile of keys and once by those that own queries, so
 * that every sum has one owner and one order.
 *
 * types: float */
#include "args_attention.h"
#include "device.h"

#include "scalar.h"

typedef cuda_vector<A> attention_four;

/* Rounded once. */
#if TMPL_DTYPE == TMPL_F64
#define ATTENTION_FMA fma
#else
#define ATTENTION_FMA fmaf
#endif

enum { SIDE = ATTENTION_SIDE };

#define ATTENTION_ROW ((int)threadIdx.x / SIDE)
#define ATTENTION_COLUMN ((int)threadIdx.x % SIDE)

/* Where a group of a row is, in a tile of rows of W numbers: rows that are read at once have it in banks of
 * their own. */
template <int W> TMPL_INLINE int attention_at(int row, int group) {
    return row * (W / 4) + (group ^ (row % SIDE));
}
/* The same in a tile of weights, which is written number by number: 16 neighbours in each of two rows. */
template <int K> TMPL_INLINE int attention_weight_at(int row, int group) {
    return row * (K / 4) + (group ^ (row * 4 & (K / 4 - 1)));
}

/* Which tile of which head a block has. */
typedef struct attention_place {
    int64_t first, head, image; /* first: row */
} attention_place;

TMPL_INLINE attention_place attention_find(int64_t rows, int tile, int64_t heads) {
    int64_t tiles = (rows + tile - 1) / tile, i = blockIdx.x, of = i / tiles;
    attention_place p;
    p.first = (i - of * tiles) * tile;
    p.image = of / heads;
    p.head = of - p.image * heads;
    return p;
}

TMPL_INLINE T *attention_head(const cuda_heads &t, int64_t image, int64_t head) {
    return (T *)t.data + image * t.stride[0] + head * t.stride[1];
}

/* ---- Tiles -------------------------------------------------------------------------------------*/

/* Rows first .. first + ROWS - 1 of a head, 0 where there is nothing. */
template <int W, int ROWS>
TMPL_INLINE void attention_load(const cuda_heads &t, const T *head, int64_t first, int64_t rows,
                                int width, attention_four *ret_tile) {
    enum { EACH = ROWS * (W / 4) / CUDA_BLOCK, APART = CUDA_BLOCK / (W / 4) };
    const int row = (int)threadIdx.x / (W / 4), group = (int)threadIdx.x % (W / 4);
    const int left = width - group * 4;
    const T *from = head + (first + row) * t.stride[2] + group * 4 * t.stride[3];
    cuda_vector<T> raw[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const T *x = from + e * APART * t.stride[2];
        bool there = first + row + e * APART < rows;
        if (t.vectors && there && left >= 4) {
            raw[e] = *(const cuda_vector<T> *)x;
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                raw[e].of[k] = there && k < left ? x[k * t.stride[3]] : STORE((A)0);
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        attention_four x;
#pragma unroll
        for (int k = 0; k < 4; k++) x.of[k] = LOAD(raw[e].of[k]);
        ret_tile[attention_at<W>(row + e * APART, group)] = x;
    }
}

/* s = rows of x times rows of y, over `groups` groups of columns. */
template <int W, int M, int N>
TMPL_INLINE void attention_multiply(const attention_four *x, const attention_four *y, int groups,
                                    A (&ret_s)[M][N]) {
#pragma unroll
    for (int i = 0; i < M * N; i++) ret_s[i / N][i % N] = 0;
#pragma unroll 1
    for (int g = 0; g < groups; g++) {
        attention_four xs[M], ys[N];
#pragma unroll
        for (int i = 0; i < M; i++)
            xs[i] = x[attention_at<W>(ATTENTION_ROW, g) + i * SIDE * (W / 4)];
#pragma unroll
        for (int j = 0; j < N; j++)
            ys[j] = y[attention_at<W>(ATTENTION_COLUMN, g) + j * SIDE * (W / 4)];
#pragma unroll
        for (int i = 0; i < M * N * 4; i++) {
            A *s = &ret_s[i / 4 / N][i / 4 % N];
            *s = ATTENTION_FMA(xs[i / 4 / N].of[i % 4], ys[i / 4 % N].of[i % 4], *s);
        }
    }
}

/* Lays a product down for attention_add: (rows, K). */
template <int K, int M, int N>
TMPL_INLINE void attention_put(const A (&s)[M][N], attention_four *ret_tile) {
#pragma unroll
    for (int i = 0; i < M * N; i++) {
        int row = ATTENTION_ROW + i / N * SIDE, column = ATTENTION_COLUMN + i % N * SIDE;
        ret_tile[attention_weight_at<K>(row, column / 4)].of[column % 4] = s[i / N][i % N];
    }
}

/* sum += p v, of a tile p of (rows, K) and one v of (K, W): the thread has, of every 64 columns, four
 * neighbours. */
template <int W, int K, int M>
TMPL_INLINE void attention_add(const attention_four *p, const attention_four *v,
                               A (&sum)[M][W / SIDE]) {
#pragma unroll 4
    for (int g = 0; g < K / 4; g++) {
        attention_four ps[M];
#pragma unroll
        for (int i = 0; i < M; i++)
            ps[i] = p[attention_weight_at<K>(ATTENTION_ROW, g) + i * SIDE * (K / 4)];
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
            for (int c = 0; c < W / 64; c++) {
                attention_four vs = v[attention_at<W>(g * 4 + k, c * SIDE + ATTENTION_COLUMN)];
#pragma unroll
                for (int i = 0; i < M * 4; i++) {
                    A *s = &sum[i / 4][c * 4 + i % 4];
                    *s = ATTENTION_FMA(ps[i / 4].of[k], vs.of[i % 4], *s);
                }
            }
        }
    }
}

/* Writes what attention_add came to, each row times its factor. */
template <int W, int M>
TMPL_INLINE void attention_store(const cuda_heads &t, const attention_place &at, int64_t rows,
                                 int width, const A (&sum)[M][W / SIDE], const A (&factor)[M]) {
    T *head = attention_head(t, at.image, at.head);
#pragma unroll
    for (int i = 0; i < M; i++) {
        int64_t row = at.first + ATTENTION_ROW + i * SIDE;
#pragma unroll
        for (int c = 0; c < W / SIDE; c++) {
            int column = (c / 4 * SIDE + ATTENTION_COLUMN) * 4 + c % 4;
            if (row < rows && column < width)
                head[row * t.stride[2] + column * t.stride[3]] = STORE(sum[i][c] * factor[i]);
        }
    }
}

/* Whether a query may look at a key. */
TMPL_INLINE bool attention_sees(const cuda_attention_args &a, int64_t query, int64_t key) {
    return key < a.keys && query < a.queries && (!a.causal || key <= query);
}

/* Whether all of these queries see all of these keys, without a mask. */
TMPL_INLINE bool attention_sees_all(const cuda_attention_args &a, int64_t query, int queries,
                                    int64_t key, int keys) {
    return !a.mask.data && key + keys <= a.keys && query + queries <= a.queries &&
           (!a.causal || key + keys <= query + 1);
}

/* A score from its product: -inf where the query may not look at the key. */
TMPL_INLINE A attention_score(const cuda_attention_args &a, A product, int64_t image, int64_t head,
                              int64_t query, int64_t key) {
    if (!attention_sees(a, query, key)) return -(A)INFINITY;
    A score = product * (A)a.scale;
    if (!a.mask.data) return score;
    const int64_t *by = a.mask.stride;
    int64_t at = image * by[0] + head * by[1] + query * by[2] + key * by[3];
    if (a.bool_mask) return ((const uint8_t *)a.mask.data)[at] ? score : -(A)INFINITY;
    return score + LOAD(((const T *)a.mask.data)[at]);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

/* What the threads of a row come to. */
TMPL_INLINE A attention_most(A x) {
#pragma unroll
    for (int by = SIDE / 2; by > 0; by /= 2) x = f_maximum(__shfl_xor_sync(0xffffffffu, x, by), x);
    return x;
}
TMPL_INLINE A attention_sum(A x) {
#pragma unroll
    for (int by = SIDE / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

/* The scores of a row become exp(score - maximum); `keep` is what its sums so far are worth. */
template <int N> TMPL_INLINE void attention_soften(A (&s)[N], A &most, A &total, A &ret_keep) {
    A before = most, sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++) most = f_maximum(s[j], most);
    most = attention_most(most);
    A shift = most == -(A)INFINITY ? (A)0 : most; /* nothing seen yet */
#pragma unroll
    for (int j = 0; j < N; j++) {
        s[j] = M_(exp)(s[j] - shift);
        sum += s[j];
    }
    ret_keep = M_(exp)(before - shift);
    total = total * ret_keep + attention_sum(sum);
}

template <int W> TMPL_INLINE void attention_forward(const cuda_attention_args &a) {
    enum {
        Q = ATTENTION_ROWS(W * sizeof(A)),
        K = ATTENTION_ROWS(W * sizeof(A)),
        M = Q / SIDE,
        N = K / SIDE
    };
    SHARED(attention_four, q, Q * (W / 4));
    SHARED(attention_four, kv, K * (W / 4));
    SHARED(attention_four, p, Q * K / 4);
    attention_place at = attention_find(a.queries, Q, a.heads);
    int64_t kv_head = at.head / a.share, end = a.keys;
    const T *keys = attention_head(a.k, at.image, kv_head);
    const T *values = attention_head(a.v, at.image, kv_head);
    A sum[M][W / SIDE] = {{0}}, s[M][N], most[M], total[M], keep[M];
    for (int i = 0; i < M; i++) most[i] = -(A)INFINITY, total[i] = 0;
    attention_load<W, Q>(a.q, attention_head(a.q, at.image, at.head), at.first, a.queries, a.width,
                         q);
    if (a.causal && at.first + Q < end) end = at.first + Q;
    for (int64_t first = 0; first < end; first += K) {
        __syncthreads();
        attention_load<W, K>(a.k, keys, first, a.keys, a.width, kv);
        __syncthreads();
        attention_multiply<W>(q, kv, (a.width + 3) / 4, s);
        bool all = attention_sees_all(a, at.first, Q, first, K);
        if (all) {
#pragma unroll
            for (int i = 0; i < M * N; i++) s[i / N][i % N] *= (A)a.scale;
        } else {
#pragma unroll
            for (int i = 0; i < M * N; i++)
                s[i / N][i % N] = attention_score(a, s[i / N][i % N], at.image, at.head,
                                                  at.first + ATTENTION_ROW + i / N * SIDE,
                                                  first + ATTENTION_COLUMN + i % N * SIDE);
        }
#pragma unroll
        for (int i = 0; i < M; i++) {
            attention_soften(s[i], most[i], total[i], keep[i]);
#pragma unroll
            for (int c = 0; c < W / SIDE; c++) sum[i][c] *= keep[i];
        }
        attention_put<K>(s, p);
        __syncthreads();
        attention_load<W, K>(a.v, values, first, a.keys, a.value_width, kv);
        __syncthreads();
        attention_add<W, K>(p, kv, sum);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
        int64_t query = at.first + ATTENTION_ROW + i * SIDE;
        if (query < a.queries && ATTENTION_COLUMN == 0)
            ((A *)a.lse)[(at.image * a.heads + at.head) * a.queries + query] =
                most[i] + M_(log)(total[i]);
        keep[i] = total[i] == 0 ? (A)0 : (A)1 / total[i]; /* 0: the query sees no key */
    }
    attention_store<W>(a.y, at, a.queries, a.value_width, sum, keep);
}

/* ---- Backward: p = exp(score - lse), ds = p * (grad v^T - delta) * scale; then
 * grad_v = p^T grad, grad_k = ds^T q, grad_q = ds k ----------------------------------------------*/

/* A warp for each row of y. */
KERNEL(TN_(attention_delta), cuda_attention_args) {
    int64_t row = cuda_thread() / 32, lane = threadIdx.x % 32;
    A sum = 0;
    if (row < a.rows) {
        int64_t of = row / a.queries, query = row - of * a.queries;
        int64_t image = of / a.heads, head = of - image * a.heads;
        const T *y = attention_head(a.y, image, head) + query * a.y.stride[2];
        const T *g = attention_head(a.grad, image, head) + query * a.grad.stride[2];
        for (int64_t c = lane; c < a.value_width; c += 32)
            sum += LOAD(g[c * a.grad.stride[3]]) * LOAD(y[c * a.y.stride[3]]);
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (row < a.rows && lane == 0) ((A *)a.delta)[row] = sum;
}

/* What every score of a query takes. */
typedef struct attention_query {
    A lse, delta;
} attention_query;

TMPL_INLINE attention_query attention_ask(const cuda_attention_args &a, int64_t image, int64_t head,
                                          int64_t query) {
    attention_query q = {0, 0};
    int64_t row = (image * a.heads + head) * a.queries + query;
    if (query >= a.queries) return q;
    q.lse = ((const A *)a.lse)[row];
    q.delta = ((const A *)a.delta)[row];
    return q;
}

/* exp(score - lse) of a score that is seen. */
TMPL_INLINE A attention_weight(A score, const attention_query &q) {
    return q.lse == -(A)INFINITY ? (A)0 : M_(exp)(score - q.lse); /* it sees no key */
}

/* Weights in place of products, 0 for what is not seen: of rows of queries and columns of keys from
 * those on, or of rows of keys. */
template <int M, bool KEYS>
TMPL_INLINE void attention_weigh(const cuda_attention_args &a, const attention_query (&of)[M],
                                 int64_t image, int64_t head, int64_t query, int64_t key,
                                 A (&s)[M][M]) {
    if (attention_sees_all(a, query, M * SIDE, key, M * SIDE)) {
#pragma unroll
        for (int i = 0; i < M * M; i++)
            s[i / M][i % M] =
                attention_weight(s[i / M][i % M] * (A)a.scale, of[KEYS ? i % M : i / M]);
        return;
    }
#pragma unroll
    for (int i = 0; i < M * M; i++) {
        int row = ATTENTION_ROW + i / M * SIDE, column = ATTENTION_COLUMN + i % M * SIDE;
        int64_t q = query + (KEYS ? column : row), k = key + (KEYS ? row : column);
        A score = attention_score(a, s[i / M][i % M], image, head, q, k);
        s[i / M][i % M] =
            attention_sees(a, q, k) ? attention_weight(score, of[KEYS ? i % M : i / M]) : (A)0;
    }
}

/* The gradient of the score. */
TMPL_INLINE A attention_slope(const cuda_attention_args &a, A weight, A product,
                              const attention_query &q) {
    return weight * (product - q.delta) * (A)a.scale;
}

/* A block owns a tile of keys: products have a row for each key and a column for each query. */
template <int W> TMPL_INLINE void attention_backward_keys(const cuda_attention_args &a) {
    enum { B = ATTENTION_ROWS(W * sizeof(A)), M = B / SIDE };
    SHARED(attention_four, mine, B * (W / 4));
    SHARED(attention_four, other, B * (W / 4));
    SHARED(attention_four, p, B * B / 4);
    attention_place at = attention_find(a.keys, B, a.heads / a.share);
    const T *keys = attention_head(a.k, at.image, at.head);
    const T *values = attention_head(a.v, at.image, at.head);
    A grad_k[M][W / SIDE] = {{0}}, grad_v[M][W / SIDE] = {{0}}, s[M][M], d[M][M], one[M];
    for (int i = 0; i < M; i++) one[i] = 1;
    for (int64_t h = at.head * a.share; h < (at.head + 1) * a.share; h++) {
        const T *q = attention_head(a.q, at.image, h), *g = attention_head(a.grad, at.image, h);
        for (int64_t first = a.causal ? at.first : 0; first < a.queries; first += B) {
            __syncthreads();
            attention_load<W, B>(a.k, keys, at.first, a.keys, a.width, mine);
            attention_load<W, B>(a.q, q, first, a.queries, a.width, other);
            __syncthreads();
            attention_multiply<W>(mine, other, (a.width + 3) / 4, s);
            attention_query of[M];
#pragma unroll
            for (int i = 0; i < M; i++)
                of[i] = attention_ask(a, at.image, h, first + ATTENTION_COLUMN + i * SIDE);
            attention_weigh<M, true>(a, of, at.image, h, first, at.first, s);
            attention_put<B>(s, p);
            __syncthreads();
            attention_load<W, B>(a.v, values, at.first, a.keys, a.value_width, mine);
            attention_load<W, B>(a.grad, g, first, a.queries, a.value_width, other);
            __syncthreads();
            attention_multiply<W>(mine, other, (a.value_width + 3) / 4, d);
            attention_add<W, B>(p, other, grad_v);
#pragma unroll
            for (int i = 0; i < M * M; i++)
                d[i / M][i % M] = attention_slope(a, s[i / M][i % M], d[i / M][i % M], of[i % M]);
            __syncthreads();
            attention_put<B>(d, p);
            attention_load<W, B>(a.q, q, first, a.queries, a.width, other);
            __syncthreads();
            attention_add<W, B>(p, other, grad_k);
        }
    }
    attention_store<W>(a.grad_k, at, a.keys, a.width, grad_k, one);
    attention_store<W>(a.grad_v, at, a.keys, a.value_width, grad_v, one);
}

/* A block owns a tile of queries: products have a row for each query and a column for each key. */
template <int W> TMPL_INLINE void attention_backward_queries(const cuda_attention_args &a) {
    enum { B = ATTENTION_ROWS(W * sizeof(A)), M = B / SIDE };
    SHARED(attention_four, mine, B * (W / 4));
    SHARED(attention_four, other, B * (W / 4));
    SHARED(attention_four, p, B * B / 4);
    attention_place at = attention_find(a.queries, B, a.heads);
    int64_t kv_head = at.head / a.share, end = a.keys;
    const T *q = attention_head(a.q, at.image, at.head),
            *k = attention_head(a.k, at.image, kv_head);
    const T *g = attention_head(a.grad, at.image, at.head);
    const T *v = attention_head(a.v, at.image, kv_head);
    A grad_q[M][W / SIDE] = {{0}}, s[M][M], d[M][M], one[M];
    attention_query of[M];
#pragma unroll
    for (int i = 0; i < M; i++) {
        one[i] = 1;
        of[i] = attention_ask(a, at.image, at.head, at.first + ATTENTION_ROW + i * SIDE);
    }
    if (a.causal && at.first + B < end) end = at.first + B;
    for (int64_t first = 0; first < end; first += B) {
        __syncthreads();
        attention_load<W, B>(a.q, q, at.first, a.queries, a.width, mine);
        attention_load<W, B>(a.k, k, first, a.keys, a.width, other);
        __syncthreads();
        attention_multiply<W>(mine, other, (a.width + 3) / 4, s);
        __syncthreads();
        attention_load<W, B>(a.grad, g, at.first, a.queries, a.value_width, mine);
        attention_load<W, B>(a.v, v, first, a.keys, a.value_width, other);
        __syncthreads();
        attention_multiply<W>(mine, other, (a.value_width + 3) / 4, d);
        attention_weigh<M, false>(a, of, at.image, at.head, at.first, first, s);
#pragma unroll
        for (int i = 0; i < M * M; i++)
            d[i / M][i % M] = attention_slope(a, s[i / M][i % M], d[i / M][i % M], of[i / M]);
        __syncthreads();
        attention_put<B>(d, p);
        attention_load<W, B>(a.k, k, first, a.keys, a.width, other);
        __syncthreads();
        attention_add<W, B>(p, other, grad_q);
    }
    attention_store<W>(a.grad_q, at, a.queries, a.width, grad_q, one);
}

/* Two blocks share a multiprocessor, so that one computes while the other waits for its tiles. */
#if defined(__CUDACC__) && TMPL_DTYPE != TMPL_F64
#define ATTENTION_KERNEL(name)                                                                     \
    extern "C" __global__ void __launch_bounds__(CUDA_BLOCK, 2)                                    \
        name(const __grid_constant__ cuda_attention_args a)
#else
#define ATTENTION_KERNEL(name) KERNEL(name, cuda_attention_args)
#endif

#define ATTENTION_KERNELS(W)                                                                       \
    ATTENTION_KERNEL(TN_(attention_##W)) { attention_forward<W>(a); }                              \
    ATTENTION_KERNEL(TN_(attention_keys_##W)) { attention_backward_keys<W>(a); }                   \
    ATTENTION_KERNEL(TN_(attention_queries_##W)) { attention_backward_queries<W>(a); }
ATTENTION_KERNELS(64)
ATTENTION_KERNELS(128)
#if TMPL_DTYPE != TMPL_F64 /* whose tiles would not fit */
ATTENTION_KERNELS(256)
#endif
