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

/* A row of a tile and one group more: neighbouring rows then begin in other banks. */
#define ATTENTION_STEP(W) ((W) / 4 + 1)

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
    for (int i = (int)threadIdx.x; i < ROWS * (W / 4); i += CUDA_BLOCK) {
        int row = i / (W / 4), group = i % (W / 4), left = width - group * 4;
        const T *from = head + (first + row) * t.stride[2] + group * 4 * t.stride[3];
        attention_four x;
        cuda_vector<T> raw;
        if (first + row >= rows) left = 0;
        if (t.vectors && left >= 4) raw = *(const cuda_vector<T> *)from;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (left >= 4 && t.vectors)
                x.of[k] = LOAD(raw.of[k]);
            else
                x.of[k] = k < left ? LOAD(from[k * t.stride[3]]) : (A)0;
        }
        ret_tile[row * ATTENTION_STEP(W) + group] = x;
    }
}

/* s = rows of x times rows of y, over `groups` groups of columns. */
template <int W, int M, int N>
TMPL_INLINE void attention_multiply(const attention_four *x, const attention_four *y, int groups,
                                    A (&ret_s)[M][N]) {
    const attention_four *mine = x + ATTENTION_ROW * ATTENTION_STEP(W);
    const attention_four *other = y + ATTENTION_COLUMN * ATTENTION_STEP(W);
#pragma unroll
    for (int i = 0; i < M * N; i++) ret_s[i / N][i % N] = 0;
#pragma unroll 2
    for (int g = 0; g < groups; g++) {
        attention_four xs[M], ys[N];
#pragma unroll
        for (int i = 0; i < M; i++) xs[i] = mine[i * SIDE * ATTENTION_STEP(W) + g];
#pragma unroll
        for (int j = 0; j < N; j++) ys[j] = other[j * SIDE * ATTENTION_STEP(W) + g];
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
        ret_tile[row * (K / 4) + column / 4].of[column % 4] = s[i / N][i % N];
    }
}

/* sum += p v, of a tile p of (rows, K) and one v of (K, W): the thread has, of every 64 columns, four
 * neighbours. */
template <int W, int K, int M>
TMPL_INLINE void attention_add(const attention_four *p, const attention_four *v,
                               A (&sum)[M][W / SIDE]) {
#pragma unroll 1
    for (int g = 0; g < K / 4; g++) {
        attention_four ps[M];
#pragma unroll
        for (int i = 0; i < M; i++) ps[i] = p[(ATTENTION_ROW + i * SIDE) * (K / 4) + g];
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
            for (int c = 0; c < W / 64; c++) {
                attention_four vs =
                    v[(g * 4 + k) * ATTENTION_STEP(W) + c * SIDE + ATTENTION_COLUMN];
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
        Q = ATTENTION_QUERIES(W * sizeof(A)),
        K = ATTENTION_KEYS(W * sizeof(A)),
        M = Q / SIDE,
        N = K / SIDE
    };
    SHARED(attention_four, q, Q * ATTENTION_STEP(W));
    SHARED(attention_four, kv, K * ATTENTION_STEP(W));
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
#pragma unroll
        for (int i = 0; i < M * N; i++) {
            int64_t query = at.first + ATTENTION_ROW + i / N * SIDE;
            int64_t key = first + ATTENTION_COLUMN + i % N * SIDE;
            A *score = &s[i / N][i % N];
            *score = attention_score(a, *score, at.image, at.head, query, key);
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

/* exp(score - lse) in place of the product, 0 for what is not seen. */
TMPL_INLINE A attention_weight(const cuda_attention_args &a, A product, int64_t image, int64_t head,
                               int64_t query, int64_t key) {
    if (!attention_sees(a, query, key)) return 0;
    const A *lse = (const A *)a.lse + (image * a.heads + head) * a.queries;
    if (lse[query] == -(A)INFINITY) return 0; /* it sees no key */
    return M_(exp)(attention_score(a, product, image, head, query, key) - lse[query]);
}

/* The gradient of the score. */
TMPL_INLINE A attention_slope(const cuda_attention_args &a, A weight, A product, const A *delta,
                              int64_t query) {
    if (query >= a.queries) return 0;
    return weight * (product - delta[query]) * (A)a.scale;
}

/* A block owns a tile of keys: products have a row for each key and a column for each query. */
template <int W> TMPL_INLINE void attention_backward_keys(const cuda_attention_args &a) {
    enum { B = ATTENTION_KEYS(W * sizeof(A)), M = B / SIDE };
    SHARED(attention_four, mine, B * ATTENTION_STEP(W));
    SHARED(attention_four, other, B * ATTENTION_STEP(W));
    SHARED(attention_four, p, B * B / 4);
    attention_place at = attention_find(a.keys, B, a.heads / a.share);
    const T *keys = attention_head(a.k, at.image, at.head);
    const T *values = attention_head(a.v, at.image, at.head);
    A grad_k[M][W / SIDE] = {{0}}, grad_v[M][W / SIDE] = {{0}}, s[M][M], d[M][M], one[M];
    for (int i = 0; i < M; i++) one[i] = 1;
    for (int64_t h = at.head * a.share; h < (at.head + 1) * a.share; h++) {
        const T *q = attention_head(a.q, at.image, h), *g = attention_head(a.grad, at.image, h);
        const A *delta = (const A *)a.delta + (at.image * a.heads + h) * a.queries;
        for (int64_t first = a.causal ? at.first : 0; first < a.queries; first += B) {
            __syncthreads();
            attention_load<W, B>(a.k, keys, at.first, a.keys, a.width, mine);
            attention_load<W, B>(a.q, q, first, a.queries, a.width, other);
            __syncthreads();
            attention_multiply<W>(mine, other, (a.width + 3) / 4, s);
#pragma unroll
            for (int i = 0; i < M * M; i++)
                s[i / M][i % M] = attention_weight(a, s[i / M][i % M], at.image, h,
                                                   first + ATTENTION_COLUMN + i % M * SIDE,
                                                   at.first + ATTENTION_ROW + i / M * SIDE);
            attention_put<B>(s, p);
            __syncthreads();
            attention_load<W, B>(a.v, values, at.first, a.keys, a.value_width, mine);
            attention_load<W, B>(a.grad, g, first, a.queries, a.value_width, other);
            __syncthreads();
            attention_multiply<W>(mine, other, (a.value_width + 3) / 4, d);
            attention_add<W, B>(p, other, grad_v);
#pragma unroll
            for (int i = 0; i < M * M; i++)
                d[i / M][i % M] = attention_slope(a, s[i / M][i % M], d[i / M][i % M], delta,
                                                  first + ATTENTION_COLUMN + i % M * SIDE);
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
    enum { B = ATTENTION_KEYS(W * sizeof(A)), M = B / SIDE };
    SHARED(attention_four, mine, B * ATTENTION_STEP(W));
    SHARED(attention_four, other, B * ATTENTION_STEP(W));
    SHARED(attention_four, p, B * B / 4);
    attention_place at = attention_find(a.queries, B, a.heads);
    int64_t kv_head = at.head / a.share, end = a.keys;
    const T *q = attention_head(a.q, at.image, at.head),
            *k = attention_head(a.k, at.image, kv_head);
    const T *g = attention_head(a.grad, at.image, at.head);
    const T *v = attention_head(a.v, at.image, kv_head);
    const A *delta = (const A *)a.delta + (at.image * a.heads + at.head) * a.queries;
    A grad_q[M][W / SIDE] = {{0}}, s[M][M], d[M][M], one[M];
    for (int i = 0; i < M; i++) one[i] = 1;
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
#pragma unroll
        for (int i = 0; i < M * M; i++) {
            int64_t query = at.first + ATTENTION_ROW + i / M * SIDE;
            int64_t key = first + ATTENTION_COLUMN + i % M * SIDE;
            A weight = attention_weight(a, s[i / M][i % M], at.image, at.head, query, key);
            d[i / M][i % M] = attention_slope(a, weight, d[i / M][i % M], delta, query);
        }
        __syncthreads();
        attention_put<B>(d, p);
        attention_load<W, B>(a.k, k, first, a.keys, a.width, other);
        __syncthreads();
        attention_add<W, B>(p, other, grad_q);
    }
    attention_store<W>(a.grad_q, at, a.queries, a.width, grad_q, one);
}

#define ATTENTION_KERNELS(W)                                                                       \
    KERNEL(TN_(attention_##W), cuda_attention_args) { attention_forward<W>(a); }                   \
    KERNEL(TN_(attention_keys_##W), cuda_attention_args) { attention_backward_keys<W>(a); }        \
    KERNEL(TN_(attention_queries_##W), cuda_attention_args) { attention_backward_queries<W>(a); }
ATTENTION_KERNELS(64)
ATTENTION_KERNELS(128)
#if TMPL_DTYPE != TMPL_F64 /* whose tiles would not fit */
ATTENTION_KERNELS(256)
#endif
