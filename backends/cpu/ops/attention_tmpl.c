/* attention_tmpl.c: softmax(q k^T * scale) v and its gradients, tile by tile, for one element type.
 *
 * Scores exist for BQ queries and BK keys at a time only; each row keeps its maximum and its sum
 * so far and is rescaled when a later tile raises the maximum. Tiles above the causal diagonal are
 * skipped; another mask is looked at tile by tile. The backward pass recomputes the scores and needs each row's logsumexp only. One
 * thread owns a block of queries going forward, and all heads that share a key head going
 * backward, so that no sum depends on the number of threads.
 *
 * family: attention; types: float; isa: each; fused */
#include <tenon/args_nn.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "blas.h"
#include "gemm.h"
#include "vec.h"

enum { BQ = 64, BK = 128 };

#if TMPL_DTYPE == TMPL_F64
#define GEMM cpu_dgemm
#else
#define GEMM cpu_sgemm
#endif
#define DIRECT (sizeof(T) == sizeof(A)) /* rows can be multiplied where they lie */
#define PAIRS (TMPL_DTYPE == TMPL_BF16) /* there may be an instruction for them */

/* A (batch, heads, length, width) tensor. */
typedef struct heads {
    T *data;
    int64_t n, h, l, w;
    int64_t sn, sh, sl, sw; /* strides */
} heads;

static heads heads_of(const tn_view *v) {
    const int64_t *n = v->shape, *s = v->strides;
    return (heads){v->data, n[0], n[1], n[2], n[3], s[0], s[1], s[2], s[3]};
}

/* Rows [r0, r0 + n) of one head as A with leading dimension *ret_ld: where they lie, or in
 * `room`. */
static const A *rows_in(const heads *t, int64_t b, int64_t h, int64_t r0, int64_t n, A *room,
                        int64_t *ret_ld) {
    const T *p = t->data + b * t->sn + h * t->sh + r0 * t->sl;
    if (DIRECT && t->sw == 1 && t->sl >= t->w) {
        *ret_ld = t->sl;
        return (const A *)(const void *)p;
    }
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < t->w; c++) room[r * t->w + c] = LOAD(p[r * t->sl + c * t->sw]);
    }
    *ret_ld = t->w;
    return room;
}

static void rows_out(const heads *t, int64_t b, int64_t h, int64_t r0, int64_t n, const A *from) {
    T *p = t->data + b * t->sn + h * t->sh + r0 * t->sl;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < t->w; c++) p[r * t->sl + c * t->sw] = STORE(from[r * t->w + c]);
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Keys that query row `last` may see. */
static int64_t keys_of(int64_t keys, int causal, int64_t last) {
    return causal ? smaller(keys, last + 1) : keys;
}

/* Scores that row i of a tile may not see become -inf; `first` is the row's own key in the tile. */
static void mask_tile(A *s, int64_t rows, int64_t cols, int64_t first) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = first + i + 1 < 0 ? 0 : first + i + 1; j < cols; j++) {
            s[i * BK + j] = -(A)INFINITY;
        }
    }
}

/* One entry for each score: bool, or a number that is added. Strides in elements. */
typedef struct score_mask {
    const void *data; /* NULL: there is none */
    int64_t stride[4];
    bool is_bool;
} score_mask;

static score_mask mask_of(const tn_view *v) {
    score_mask m = {NULL, {0}, false};
    if (!v) return m;
    m.data = v->data;
    m.is_bool = tn_view_dtype(v) == TN_BOOL;
    memcpy(m.stride, v->strides, sizeof m.stride);
    return m;
}

/* The scores of queries q0.. and keys k0.. with the mask. */
static void apply_mask(const score_mask *m, int64_t b, int64_t h, int64_t q0, int64_t k0,
                       int64_t rows, int64_t cols, A *s) {
    if (!m->data) return;
    int64_t at = b * m->stride[0] + h * m->stride[1] + q0 * m->stride[2] + k0 * m->stride[3];
    for (int64_t i = 0; i < rows; i++, at += m->stride[2]) {
        for (int64_t j = 0; j < cols; j++) {
            int64_t from = at + j * m->stride[3];
            if (!m->is_bool)
                s[i * BK + j] += LOAD(((const T *)m->data)[from]);
            else if (!((const uint8_t *)m->data)[from])
                s[i * BK + j] = -(A)INFINITY;
        }
    }
}

/* ---- Forward ----------------------------------------------------------------------------------*/

typedef struct forward_job {
    heads q, k, v, y;
    score_mask mask;
    A *lse;
    A scale;
    int causal;
    bool pairs;     /* products are those of bfloat16, by tiles */
    int64_t blocks; /* of queries per head */
} forward_job;

/* Turns a row of scores into exp(score - max); returns the sum. */
static A exp_row(A *s, int64_t n, A max) {
    vec sum = vec_all(0), shift = vec_all(max);
    int64_t j = 0;
    for (; j + VL <= n; j += VL) {
        vec e = vec_exp(vec_load(s + j) - shift);
        vec_store(s + j, e);
        sum += e;
    }
    if (j < n) {
        vec e = vec_exp(vec_load_n(s + j, n - j, -(A)INFINITY) - shift);
        vec_store_n(s + j, e, n - j);
        sum += e;
    }
    return vec_sum(sum);
}

static A max_row(const A *s, int64_t n, A max) {
    vec m = vec_all(max);
    int64_t j = 0;
    for (; j + VL <= n; j += VL) m = vec_max(vec_load(s + j), m);
    if (j < n) m = vec_max(vec_load_n(s + j, n - j, -(A)INFINITY), m);
    return vec_max_of(m);
}

/* A tile: queries q0 .. of a head against keys k0 .. */
typedef struct tile {
    int64_t b, h, kh, q0, rows, k0, cols;
    A *s, *y;                  /* scores (rows, BK), sums of values (rows, v.w) */
    A *q, *k, *v, *split, *of; /* packed rows, scores in two parts, room of a product */
    const A *queries;          /* not in pairs; rows ldq apart */
    int64_t ldq;
} tile;

static int64_t forward_room(const forward_job *j, tile *t, A *base) {
    int64_t w = j->q.w, wv = j->v.w, wide = w > wv ? w : wv, deep = wide > BK ? wide : BK;
    int64_t size[] = {BQ * BK,
                      room_mul(BQ, wv),
                      room_mul(BQ, w),
                      room_mul(BK, w),
                      room_mul(BK, wv),
                      j->pairs ? BQ * BK : 0,
                      j->pairs ? cpu_bf16_product_room(BQ, deep, deep) : 0};
    A **part[] = {&t->s, &t->y, &t->q, &t->k, &t->v, &t->split, &t->of};
    int64_t at = 0;
    for (int i = 0; i < (int)(sizeof size / sizeof size[0]); i++) {
        if (base) *part[i] = base + at;
        at = room_add(at, size[i]);
    }
    return at;
}

static const uint16_t *halves(const heads *t, int64_t b, int64_t h, int64_t r) {
    return (const uint16_t *)(const void *)(t->data + b * t->sn + h * t->sh + r * t->sl);
}

/* s = scale * q k^T */
static void scores(const forward_job *j, const tile *t) {
    const heads *q = &j->q, *k = &j->k;
    if (!j->pairs) {
        int64_t ldk;
        const A *kp = rows_in(k, t->b, t->kh, t->k0, t->cols, t->k, &ldk);
        GEMM(0, 1, t->rows, t->cols, q->w, j->scale, t->queries, t->ldq, kp, ldk, 0, t->s, BK);
        return;
    }
    bf16_product p = {.m = t->rows, .n = t->cols, .k = q->w, .parts = 1, .c_rs = BK};
    p.a = halves(q, t->b, t->h, t->q0);
    p.b = halves(k, t->b, t->kh, t->k0);
    p.a_rs = q->sl, p.a_cs = q->sw, p.b_rs = k->sw, p.b_cs = k->sl;
    p.c = (float *)(void *)t->s;
    cpu_bf16_product(&p, (float *)(void *)t->of);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t c = 0; c < t->cols; c++) t->s[i * BK + c] *= j->scale;
}

/* y = [y +] s v. In pairs s is two matrices, so that it is not rounded to bfloat16. */
static void values(const forward_job *j, const tile *t) {
    const heads *v = &j->v;
    if (!j->pairs) {
        int64_t ldv;
        const A *vp = rows_in(v, t->b, t->kh, t->k0, t->cols, t->v, &ldv);
        GEMM(0, 0, t->rows, v->w, t->cols, 1, t->s, BK, vp, ldv, t->k0 > 0, t->y, v->w);
        return;
    }
    T *split = (T *)(void *)t->split;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t c = 0; c < t->cols; c++) {
            A x = t->s[i * BK + c];
            T high = STORE(x);
            split[i * BK + c] = high;
            split[(BQ + i) * BK + c] = STORE(x - LOAD(high));
        }
    bf16_product p = {.m = t->rows, .n = v->w, .k = t->cols, .parts = 2, .part = BQ * BK};
    p.a = (const uint16_t *)(const void *)split;
    p.b = halves(v, t->b, t->kh, t->k0);
    p.a_rs = BK, p.a_cs = 1, p.b_rs = v->sl, p.b_cs = v->sw;
    p.c = (float *)(void *)t->y;
    p.c_rs = v->w;
    p.add = t->k0 > 0;
    cpu_bf16_product(&p, (float *)(void *)t->of);
}

/* Whether a result is NaN: in pairs the smaller part of a weight times an infinite value may be. */
static bool has_nan(const A *y, int64_t n) {
    int found = 0;
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) found |= y[i] != y[i];
    return found != 0;
}

/* One block of queries against all keys. */
static tn_status forward_block(const forward_job *j, tile *t) {
    const heads *q = &j->q;
    int64_t b = t->b, h = t->h, q0 = t->q0, rows = smaller(BQ, q->l - q0), w = j->v.w;
    A *s = t->s, *y = t->y;
    A max[BQ], sum[BQ];
    t->rows = rows;
    t->kh = h / (q->h / j->k.h);
    if (!j->pairs) t->queries = rows_in(q, b, h, q0, rows, t->q, &t->ldq);
    int64_t keys = keys_of(j->k.l, j->causal, q0 + rows - 1);
    for (int64_t i = 0; i < rows; i++) {
        max[i] = -(A)INFINITY;
        sum[i] = 0;
    }
    tn_status st = TN_OK;
    for (int64_t k0 = 0; k0 < keys && st == TN_OK; k0 += BK) {
        int64_t cols = smaller(BK, keys - k0);
        t->k0 = k0;
        t->cols = cols;
        scores(j, t);
        if (j->causal && k0 + cols > q0 + 1) mask_tile(s, rows, cols, q0 - k0);
        apply_mask(&j->mask, b, h, q0, k0, rows, cols, s);
        for (int64_t i = 0; i < rows; i++) {
            A m = max_row(s + i * BK, cols, max[i]), keep = 0;
            A shift = m == -(A)INFINITY ? (A)0 : m; /* the row has seen no key yet */
            if (k0 > 0) keep = m == max[i] ? 1 : (A)exp((double)(max[i] - m));
            sum[i] = sum[i] * keep + exp_row(s + i * BK, cols, shift);
            for (int64_t c = 0; c < w && keep != 1 && k0 > 0; c++) y[i * w + c] *= keep;
            max[i] = m;
        }
        values(j, t);
        st = cpu_poll();
    }
    for (int64_t i = 0; i < rows; i++) {
        A inverse = sum[i] == 0 ? (A)0 : 1 / sum[i]; /* 0: it has seen none, and is 0 */
        for (int64_t c = 0; c < w; c++) y[i * w + c] *= inverse;
        j->lse[(b * q->h + h) * q->l + q0 + i] = max[i] + (A)log((double)sum[i]);
    }
    rows_out(&j->y, b, h, q0, rows, y);
    if (st != TN_OK || !j->pairs || !has_nan(y, rows * w)) return st;
    forward_job plain = *j;
    plain.pairs = false;
    return forward_block(&plain, t);
}

static tn_status forward_items(void *arg, int64_t begin, int64_t end) {
    const forward_job *j = arg;
    tile t;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_blas_room(forward_room(j, &t, NULL), sizeof(A), &bytes, &room);
    if (st) return st;
    forward_room(j, &t, room);
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        int64_t bh = i / j->blocks;
        t.b = bh / j->q.h;
        t.h = bh % j->q.h;
        t.q0 = i % j->blocks * BQ;
        st = forward_block(j, &t);
    }
    cpu_blas_room_end(room, bytes);
    return st;
}

/* Items worth one hand-over. */
static int64_t grain_of(const heads *q, const heads *k) {
    double work = (double)BQ * (double)k->l * (double)(2 * q->w + 8);
    return 1 + (int64_t)(4e5 / (work + 1.0));
}

static tn_status flash_attention(const tn_call *call, const void *args) {
    const tn__flash_attention_args *a = args;
    forward_job j = {.q = heads_of(a->query),
                     .k = heads_of(a->key),
                     .v = heads_of(a->value),
                     .y = heads_of(a->y),
                     .mask = mask_of(a->attn_mask),
                     .lse = a->lse->data,
                     .scale = (A)a->scale,
                     .causal = a->is_causal != 0,
                     .pairs = PAIRS && cpu_has_bf16_tiles()};
    (void)call;
    j.blocks = (j.q.l + BQ - 1) / BQ;
    return cpu_parallel(j.q.n * j.q.h * j.blocks, grain_of(&j.q, &j.k), forward_items, &j);
}

/* ---- Backward ----------------------------------------------------------------------------------
 * With p = exp(s - lse), d = rowsum(g * y) and ds = p * (g v^T - d) * scale:
 * gv = p^T g,  gq = ds k,  gk = ds^T q. */

typedef struct backward_job {
    heads q, k, v, y, g, gq, gk, gv;
    score_mask mask;
    const A *lse;
    A scale;
    int causal;
} backward_job;

typedef struct backward_room {
    A *s, *ds;           /* (BQ, BK) */
    A *q, *g, *k, *v;    /* packed rows */
    A *gq, *gk, *gv, *d; /* of one head: (lq, w), (lk, w), (lk, w), (lq) */
} backward_room;

/* How many numbers that room has, and its parts if it begins at `base`. */
static int64_t backward_parts(const backward_job *j, A *base, backward_room *r) {
    int64_t at = 0, w = j->q.w, wv = j->v.w;
    A **part[] = {&r->s, &r->ds, &r->q, &r->g, &r->k, &r->v, &r->gq, &r->gk, &r->gv, &r->d};
    int64_t size[] = {BQ * BK,
                      BQ * BK,
                      room_mul(BQ, w),
                      room_mul(BQ, wv),
                      room_mul(BK, w),
                      room_mul(BK, wv),
                      room_mul(j->q.l, w),
                      room_mul(j->k.l, w),
                      room_mul(j->k.l, wv),
                      j->q.l};
    for (int i = 0; i < (int)(sizeof size / sizeof size[0]); i++) {
        if (base) *part[i] = base + at;
        at = room_add(at, size[i]);
        at = room_add(at, -at & 15);
    }
    return at;
}

/* rowsum(g * y) of one head. */
static void row_products(const backward_job *j, int64_t b, int64_t h, A *d) {
    const T *g = j->g.data + b * j->g.sn + h * j->g.sh, *y = j->y.data + b * j->y.sn + h * j->y.sh;
    for (int64_t i = 0; i < j->q.l; i++) {
        A sum = 0;
        for (int64_t c = 0; c < j->v.w; c++) {
            sum += LOAD(g[i * j->g.sl + c * j->g.sw]) * LOAD(y[i * j->y.sl + c * j->y.sw]);
        }
        d[i] = sum;
    }
}

/* s = exp(s - lse) and ds = s * (ds - d) * scale, row by row; 0 where a row has seen no key. */
static void score_gradient(const backward_job *j, const backward_room *r, const A *lse, const A *d,
                           int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++) {
        A *s = r->s + i * BK, *ds = r->ds + i * BK;
        vec shift = vec_all(lse[i] == -(A)INFINITY ? (A)INFINITY : lse[i]),
            scale = vec_all(j->scale), less = vec_all(d[i]);
        int64_t c = 0;
        for (; c + VL <= cols; c += VL) {
            vec p = vec_exp(vec_load(s + c) - shift);
            vec_store(s + c, p);
            vec_store(ds + c, p * (vec_load(ds + c) - less) * scale);
        }
        if (c < cols) {
            vec p = vec_exp(vec_load_n(s + c, cols - c, -(A)INFINITY) - shift);
            vec_store_n(s + c, p, cols - c);
            vec_store_n(ds + c, p * (vec_load_n(ds + c, cols - c, 0) - less) * scale, cols - c);
        }
    }
}

static tn_status backward_head(const backward_job *j, int64_t b, int64_t h,
                               const backward_room *r) {
    const heads *q = &j->q, *k = &j->k, *v = &j->v;
    int64_t w = q->w, wv = v->w, kh = h / (q->h / k->h), ldq, ldk, ldv, ldg;
    const A *lse = j->lse + (b * q->h + h) * q->l;
    tn_status st = TN_OK;
    row_products(j, b, h, r->d);
    for (int64_t q0 = 0; q0 < q->l && st == TN_OK; q0 += BQ) {
        int64_t rows = smaller(BQ, q->l - q0), keys = keys_of(k->l, j->causal, q0 + rows - 1);
        const A *qp = rows_in(q, b, h, q0, rows, r->q, &ldq);
        const A *gp = rows_in(&j->g, b, h, q0, rows, r->g, &ldg);
        A *gq = r->gq + q0 * w;
        for (int64_t k0 = 0; k0 < keys && st == TN_OK; k0 += BK) {
            int64_t cols = smaller(BK, keys - k0);
            const A *kp = rows_in(k, b, kh, k0, cols, r->k, &ldk);
            const A *vp = rows_in(v, b, kh, k0, cols, r->v, &ldv);
            GEMM(0, 1, rows, cols, w, j->scale, qp, ldq, kp, ldk, 0, r->s, BK);
            GEMM(0, 1, rows, cols, wv, 1, gp, ldg, vp, ldv, 0, r->ds, BK);
            if (j->causal && k0 + cols > q0 + 1) mask_tile(r->s, rows, cols, q0 - k0);
            apply_mask(&j->mask, b, h, q0, k0, rows, cols, r->s);
            score_gradient(j, r, lse + q0, r->d + q0, rows, cols);
            GEMM(1, 0, cols, wv, rows, 1, r->s, BK, gp, ldg, 1, r->gv + k0 * wv, wv);
            GEMM(1, 0, cols, w, rows, 1, r->ds, BK, qp, ldq, 1, r->gk + k0 * w, w);
            GEMM(0, 0, rows, w, cols, 1, r->ds, BK, kp, ldk, k0 > 0, gq, w);
            st = cpu_poll();
        }
    }
    rows_out(&j->gq, b, h, 0, q->l, r->gq);
    return st;
}

/* Items are the heads of keys, with all the query heads that share one. */
static tn_status backward_items(void *arg, int64_t begin, int64_t end) {
    const backward_job *j = arg;
    backward_room r;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_blas_room(backward_parts(j, NULL, &r), sizeof(A), &bytes, &room);
    if (st) return st;
    backward_parts(j, room, &r);
    int64_t share = j->q.h / j->k.h;
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        int64_t b = i / j->k.h, kh = i % j->k.h;
        memset(r.gk, 0, (size_t)(j->k.l * j->q.w) * sizeof(A));
        memset(r.gv, 0, (size_t)(j->k.l * j->v.w) * sizeof(A));
        for (int64_t h = kh * share; h < (kh + 1) * share && st == TN_OK; h++)
            st = backward_head(j, b, h, &r);
        rows_out(&j->gk, b, kh, 0, j->k.l, r.gk);
        rows_out(&j->gv, b, kh, 0, j->k.l, r.gv);
    }
    cpu_blas_room_end(room, bytes);
    return st;
}

static tn_status flash_attention_backward(const tn_call *call, const void *args) {
    const tn__flash_attention_backward_args *a = args;
    backward_job j = {.q = heads_of(a->query),
                      .k = heads_of(a->key),
                      .v = heads_of(a->value),
                      .y = heads_of(a->y),
                      .g = heads_of(a->grad),
                      .gq = heads_of(a->grad_query),
                      .gk = heads_of(a->grad_key),
                      .gv = heads_of(a->grad_value),
                      .mask = mask_of(a->attn_mask),
                      .lse = a->lse->data,
                      .scale = (A)a->scale,
                      .causal = a->is_causal != 0};
    (void)call;
    return cpu_parallel(j.k.n * j.k.h, grain_of(&j.q, &j.k), backward_items, &j);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_flash_attention, flash_attention),
    ROW(_flash_attention_backward, flash_attention_backward),
};
const cpu_rows TN_(cpu_attention_rows) = CPU_ROWS_OF(rows);
