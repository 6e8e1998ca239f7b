/* layer_norm_tmpl.c: layer_norm and its gradient for one element type.
 *
 * x is (m, n), packed; each row is normalised. The gradients of weight and bias are sums over rows:
 * blocks of rows, whose number depends on m alone, add up their own, and the blocks are added in
 * order, so that the result does not depend on the number of threads.
 *
 * family: layer_norm; types: float; isa: each; fused */
#include <tenon/args_norm.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "long_sum.h"
#include "vec.h"

/* ---- Rows of T as packed A --------------------------------------------------------------------*/

#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
static const A *widen(const T *x, int64_t n, A *room) {
    (void)n;
    (void)room;
    return x;
}
#else
static const A *widen(const T *x, int64_t n, A *room) {
    if (!x) return NULL;
    int64_t i = 0;
    for (; i + VL <= n; i += VL) vec_store(room + i, vec_load_t(x + i));
    for (; i < n; i++) room[i] = LOAD(x[i]);
    return room;
}
#endif

/* The same of a row whose squares are beyond A. */
static void wide_stats(const A *x, int64_t n, double eps, A *ret_mean, A *ret_rstd) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    *ret_mean = (A)mean;
    *ret_rstd = (A)(1.0 / sqrt(squares / (double)n + eps));
}

static A run_sum(const A *x, int64_t i, int64_t end) {
    vec s[VEC_TURN] = {0};
    for (; i + VEC_TURN * VL <= end; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) s[k] += vec_load(x + i + k * VL);
    }
    for (; i < end; i += VL) s[0] += vec_load_n(x + i, end - i, 0);
    return vec_sum_turns(s);
}

static A run_squares(const A *x, int64_t i, int64_t end, A mean) {
    vec q[VEC_TURN] = {0};
    for (; i + VEC_TURN * VL <= end; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) {
            vec d = vec_load(x + i + k * VL) - mean;
            q[k] += d * d;
        }
    }
    for (; i < end; i += VL) {
        vec d = vec_load_n(x + i, end - i, mean) - mean;
        q[0] += d * d;
    }
    return vec_sum_turns(q);
}

static void row_stats(const A *x, int64_t n, double eps, A *ret_mean, A *ret_rstd) {
    double sum = 0, squares = 0;
    EACH_RUN(i, end, n) sum += (double)run_sum(x, i, end);
    A mean = (A)(sum / (double)n);
    EACH_RUN(i, end, n) squares += (double)run_squares(x, i, end, mean);
    *ret_mean = mean;
    *ret_rstd = (A)(1.0 / sqrt(squares / (double)n + eps));
    if (!(*ret_rstd > 0)) wide_stats(x, n, eps, ret_mean, ret_rstd);
}

/* ---- Forward ----------------------------------------------------------------------------------*/

typedef struct forward_job {
    int64_t n;
    double eps;
    const T *x;
    const A *weight, *bias; /* widened; NULL: 1 and 0 */
    T *y;
    A *mean, *rstd;
} forward_job;

static tn_status forward_rows(void *arg, int64_t begin, int64_t end) {
    const forward_job *j = arg;
    int64_t n = j->n;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(n, sizeof(A), &bytes, &room);
    if (st) return st;
    for (int64_t r = begin; r < end; r++) {
        const A *x = widen(j->x + r * n, n, room);
        T *y = j->y + r * n;
        A mean, rstd;
        row_stats(x, n, j->eps, &mean, &rstd);
        j->mean[r] = mean;
        j->rstd[r] = rstd;
        int64_t i = 0;
        for (; i + VL <= n; i += VL) {
            vec v = (vec_load(x + i) - mean) * rstd;
            if (j->weight) v *= vec_load(j->weight + i);
            if (j->bias) v += vec_load(j->bias + i);
            vec_store_t(y + i, v);
        }
        for (; i < n; i++) {
            A v = (x[i] - mean) * rstd;
            if (j->weight) v *= j->weight[i];
            if (j->bias) v += j->bias[i];
            y[i] = STORE(v);
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
}

/* A parameter as packed A in scratch memory. */
static tn_status parameter(const tn_call *call, const tn_view *p, const A **ret) {
    *ret = NULL;
    if (!p) return TN_OK;
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    (void)call;
    *ret = p->data;
    return TN_OK;
#else
    void *room;
    tn_status st = room_scratch(call, p->numel, sizeof(A), &room);
    if (st) return st;
    if (tn_view_dtype(p) == TN_F32) {
        *ret = p->data;
    } else {
        *ret = widen(p->data, p->numel, room);
    }
    return TN_OK;
#endif
}

static int64_t product_of(tn_ints shape) {
    int64_t n = 1;
    for (int64_t i = 0; i < shape.n; i++) n *= shape.v[i];
    return n;
}

static tn_status native_layer_norm(const tn_call *call, const void *args) {
    const tn_native_layer_norm_args *a = args;
    forward_job j = {.n = product_of(a->normalized_shape),
                     .eps = a->eps,
                     .x = a->input->data,
                     .y = a->y->data,
                     .mean = a->mean->data,
                     .rstd = a->rstd->data};
    if (a->mean->numel == 0) return TN_OK;
    if (j.n == 0) {
        for (int64_t r = 0; r < a->mean->numel; r++) j.mean[r] = 0;
        for (int64_t r = 0; r < a->mean->numel; r++) j.rstd[r] = (A)NAN;
        return TN_OK;
    }
    tn_status st = parameter(call, a->weight, &j.weight);
    if (!st) st = parameter(call, a->bias, &j.bias);
    return st ? st : cpu_parallel(a->mean->numel, 1 + 8192 / j.n, forward_rows, &j);
}

/* ---- Backward ---------------------------------------------------------------------------------*/

typedef struct backward_job {
    int64_t m, n, block; /* rows, row length, rows of a block */
    const T *g, *x;
    const A *weight, *mean, *rstd;
    T *gx; /* NULL: not wanted */
    A *gw; /* (blocks, 2, n): sums of g * xhat and of g; NULL: not wanted */
} backward_job;

/* Adds the sums of g w and of g w (x - mean) over a run. */
static void run_products(const backward_job *j, const A *g, const A *x, A mean, int64_t i,
                         int64_t end, double *ret) {
    vec s[VEC_TURN] = {0}, t[VEC_TURN] = {0};
    for (; i + VEC_TURN * VL <= end; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) {
            vec gw = vec_load(g + i + k * VL);
            if (j->weight) gw *= vec_load(j->weight + i + k * VL);
            s[k] += gw;
            t[k] += gw * (vec_load(x + i + k * VL) - mean);
        }
    }
    for (; i < end; i += VL) {
        vec gw = vec_load_n(g + i, end - i, 0);
        if (j->weight) gw *= vec_load_n(j->weight + i, end - i, 0);
        s[0] += gw;
        t[0] += gw * (vec_load_n(x + i, end - i, 0) - mean);
    }
    ret[0] += (double)vec_sum_turns(s);
    ret[1] += (double)vec_sum_turns(t);
}

/* gx = rstd * (g w - (sum(g w) + xhat * sum(g w xhat)) / n) */
static void backward_row(const backward_job *j, int64_t r, const A *g, const A *x) {
    int64_t n = j->n, i;
    A mean = j->mean[r], rstd = j->rstd[r];
    double sums[2] = {0, 0};
    EACH_RUN(from, end, n) run_products(j, g, x, mean, from, end, sums);
    A a = rstd, b = -rstd * rstd * rstd * (A)sums[1] / (A)n;
    A c = -rstd * (A)sums[0] / (A)n;
    T *gx = j->gx + r * n;
    for (i = 0; i + VL <= n; i += VL) {
        vec gw = vec_load(g + i);
        if (j->weight) gw *= vec_load(j->weight + i);
        vec_store_t(gx + i, gw * a + (vec_load(x + i) - mean) * b + c);
    }
    for (; i < n; i++) {
        A gw = j->weight ? g[i] * j->weight[i] : g[i];
        gx[i] = STORE(gw * a + (x[i] - mean) * b + c);
    }
}

static tn_status backward_blocks(void *arg, int64_t begin, int64_t end) {
    const backward_job *j = arg;
    int64_t n = j->n;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(n, 2 * sizeof(A), &bytes, &room);
    if (st) return st;
    for (int64_t b = begin; b < end; b++) {
        int64_t last = (b + 1) * j->block < j->m ? (b + 1) * j->block : j->m;
        A *gw = j->gw ? j->gw + 2 * b * n : NULL, *gb = gw ? gw + n : NULL;
        if (gw) memset(gw, 0, 2 * (size_t)n * sizeof(A));
        for (int64_t r = b * j->block; r < last; r++) {
            const A *g = widen(j->g + r * n, n, room);
            const A *x = widen(j->x + r * n, n, (A *)room + n);
            A mean = j->mean[r], rstd = j->rstd[r];
            if (j->gx) backward_row(j, r, g, x);
            for (int64_t i = 0; gw && i < n; i++) {
                gw[i] += g[i] * (x[i] - mean) * rstd;
                gb[i] += g[i];
            }
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
}

/* Adds the blocks' sums in order; `which` is 0 for the weight, 1 for the bias. */
static void add_blocks(const A *gw, int64_t blocks, int64_t n, int which, T *ret) {
    for (int64_t i = 0; i < n; i += 256) {
        A sum[256] = {0};
        int64_t len = n - i < 256 ? n - i : 256;
        for (int64_t b = 0; b < blocks; b++) {
            const A *from = gw + (2 * b + which) * n + i;
            for (int64_t k = 0; k < len; k++) sum[k] += from[k];
        }
        for (int64_t k = 0; k < len; k++) ret[i + k] = STORE(sum[k]);
    }
}

static tn_status layer_norm_backward(const tn_call *call, const void *args) {
    const tn__layer_norm_backward_args *a = args;
    int64_t m = a->mean->numel, n = product_of(a->normalized_shape);
    int64_t blocks = m < 4 ? 1 : m < 256 ? m / 4 : 64;
    backward_job j = {.m = m,
                      .n = n,
                      .block = (m + blocks - 1) / blocks,
                      .g = a->grad->data,
                      .x = a->input->data,
                      .mean = a->mean->data,
                      .rstd = a->rstd->data,
                      .gx = a->need_input ? a->grad_input->data : NULL};
    int sums = a->need_weight || a->need_bias;
    if (j.block > 0) blocks = (m + j.block - 1) / j.block;
    tn_status st = parameter(call, a->weight, &j.weight);
    if (!st && sums) {
        void *p;
        st = room_scratch(call, room_mul(blocks, n), 2 * sizeof(A), &p);
        j.gw = p;
    }
    if (!st && m > 0 && n > 0)
        st = cpu_parallel(blocks, 1 + 8192 / (n * j.block), backward_blocks, &j);
    if (st) return st;
    if (m == 0) blocks = 0;
    if (a->need_weight) add_blocks(j.gw, blocks, n, 0, a->grad_weight->data);
    if (a->need_bias) add_blocks(j.gw, blocks, n, 1, a->grad_bias->data);
    return TN_OK;
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(native_layer_norm, native_layer_norm),
    ROW(_layer_norm_backward, layer_norm_backward),
};
const cpu_rows TN_(cpu_layer_norm_rows) = CPU_ROWS_OF(rows);
