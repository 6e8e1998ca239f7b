/* pool_tmpl.c: windows over planes: max_pool2d, avg_pool2d, adaptive_avg_pool2d and their
 * gradients, for one floating element type. Each plane (h, w) is one work item; gradients are scattered
 * inside a plane, so that planes never share memory. */
#include <math.h>

#include <tenon/op_args.h>

#include "../common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"

typedef struct job {
    int64_t h, w, oh, ow; /* sizes of the input's and of the output's planes */
    int64_t kh, kw, sh, sw, ph, pw, dh, dw;
    int64_t divisor; /* of averages; 0: what the window covers */
    int count_pad;
    int adaptive;
    const T *x; /* forward: input planes; backward: gradients of the output planes */
    T *y;
    int64_t *index;
    const int64_t *index_in;
} job;

static void plane_sizes(job *j, const tn_view *in, const tn_view *out) {
    j->h = in->shape[in->ndim - 2];
    j->w = in->shape[in->ndim - 1];
    j->oh = out->shape[out->ndim - 2];
    j->ow = out->shape[out->ndim - 1];
}

static void window_sizes(job *j, tn_ints kernel, tn_ints stride, tn_ints padding) {
    j->kh = kernel.v[0];
    j->kw = kernel.v[1];
    j->sh = stride.n > 0 ? stride.v[0] : j->kh;
    j->sw = stride.n > 0 ? stride.v[1] : j->kw;
    j->ph = padding.v[0];
    j->pw = padding.v[1];
    j->dh = j->dw = 1;
}

static tn_status run(job *j, int64_t planes, cpu_body body) {
    int64_t work = j->h * j->w + j->oh * j->ow * 4;
    return cpu_parallel(planes, 1 + 8192 / (work + 1), body, j);
}

static int64_t planes_of(const tn_view *v) {
    int64_t n = 1;
    for (int32_t d = 0; d < v->ndim - 2; d++) n *= v->shape[d];
    return n;
}

/* ---- Maximum -----------------------------------------------------------------------------------*/

/* Output columns [*ret_begin, *ret_end) whose window has tap k inside a row of the input. */
static void columns_of(const job *j, int64_t k, int64_t *ret_begin, int64_t *ret_end) {
    int64_t first = j->pw - k * j->dw, last = j->w - 1 + first;
    *ret_begin = first <= 0 ? 0 : (first + j->sw - 1) / j->sw;
    *ret_end = last < 0 ? 0 : last / j->sw + 1;
    if (*ret_end > j->ow) *ret_end = j->ow;
}

/* One tap against a row of maxima. A NaN wins against every number and keeps its place. */
static void max_tap(const T *x, int64_t step, int32_t at, int64_t n, A *best, int32_t *index) {
    for (int64_t i = 0; i < n; i++) {
        A v = LOAD(x[i * step]), b = best[i];
        int better = (v > b) | ((v != v) & (b == b));
        best[i] = better ? v : b;
        index[i] = better ? at + (int32_t)(i * step) : index[i];
    }
}

static tn_status max_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    uint64_t bytes = (uint64_t)j->ow * (sizeof(A) + sizeof(int32_t));
    void *room;
    tn_status st = cpu_alloc(NULL, 0, bytes, &room);
    if (st) return st;
    A *best = room;
    int32_t *index = (int32_t *)(void *)(best + j->ow);
    for (int64_t row = begin * j->oh; row < end * j->oh; row++) {
        const T *x = j->x + row / j->oh * j->h * j->w;
        int64_t top = row % j->oh * j->sh - j->ph, from, to;
        /* Before any tap: the first place of the window, so that -inf everywhere has one too. */
        int64_t y0 = top < 0 ? top + (-top + j->dh - 1) / j->dh * j->dh : top;
        for (int64_t i = 0; i < j->ow; i++) {
            int64_t x0 = i * j->sw - j->pw;
            if (x0 < 0) x0 += (-x0 + j->dw - 1) / j->dw * j->dw;
            best[i] = -(A)INFINITY;
            index[i] = (int32_t)(y0 * j->w + x0);
        }
        for (int64_t ky = 0; ky < j->kh; ky++) {
            int64_t iy = top + ky * j->dh;
            if (iy < 0 || iy >= j->h) continue;
            for (int64_t kx = 0; kx < j->kw; kx++) {
                columns_of(j, kx, &from, &to);
                int64_t at = iy * j->w + from * j->sw - j->pw + kx * j->dw;
                max_tap(x + at, j->sw, (int32_t)at, to - from, best + from, index + from);
            }
        }
        T *y = j->y + row * j->ow;
        int64_t *places = j->index + row * j->ow;
        for (int64_t i = 0; i < j->ow; i++) {
            y[i] = STORE(best[i]);
            places[i] = index[i];
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
}

static tn_status max_pool2d(const tn_call *call, const void *args) {
    const tn_max_pool2d_with_indices_args *a = args;
    job j = {.y = a->y->data, .index = a->indices->data};
    const void *x;
    tn_status st = cpu_packed(call, a->input, &x);
    if (st || a->y->numel == 0) return st;
    j.x = x;
    plane_sizes(&j, a->input, a->y);
    if (j.h > INT32_MAX / j.w) return call->host->fail(TN_E_VALUE, 0, "max_pool2d: a plane is too large");
    window_sizes(&j, a->kernel_size, a->stride, a->padding);
    j.dh = a->dilation.v[0];
    j.dw = a->dilation.v[1];
    return run(&j, planes_of(a->y), max_planes);
}

/* ---- Gradients are added in A: half precision would round at every step ------------------------*/

static tn_status plane_room(const job *j, void **ret_room) {
    return cpu_alloc(NULL, 0, (uint64_t)(j->h * j->w) * sizeof(A), ret_room);
}

static void plane_done(const job *j, const A *sum, T *to) {
    for (int64_t i = 0; i < j->h * j->w; i++) to[i] = STORE(sum[i]);
}

static tn_status max_backward_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t n = j->oh * j->ow, size = j->h * j->w;
    void *room;
    tn_status st = plane_room(j, &room);
    if (st) return st;
    A *sum = room;
    for (int64_t p = begin; p < end; p++) {
        const T *g = j->x + p * n;
        const int64_t *index = j->index_in + p * n;
        memset(sum, 0, (size_t)size * sizeof(A));
        for (int64_t i = 0; i < n; i++) sum[index[i]] += LOAD(g[i]);
        plane_done(j, sum, j->y + p * size);
    }
    cpu_free(NULL, 0, room, (uint64_t)size * sizeof(A));
    return TN_OK;
}

static tn_status max_pool2d_backward(const tn_call *call, const void *args) {
    const tn__max_pool2d_backward_args *a = args;
    job j = {.y = a->out->data};
    const void *g, *index;
    tn_status st = cpu_packed(call, a->grad, &g);
    if (!st) st = cpu_packed(call, a->indices, &index);
    if (st || a->out->numel == 0) return st;
    j.x = g;
    j.index_in = index;
    plane_sizes(&j, a->out, a->grad);
    return run(&j, planes_of(a->out), max_backward_planes);
}

static tn_status gather_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t n = j->oh * j->ow;
    for (int64_t i = begin * n; i < end * n; i++) {
        j->y[i] = j->x[i / n * j->h * j->w + j->index_in[i]];
    }
    return TN_OK;
}

static tn_status max_pool2d_gather(const tn_call *call, const void *args) {
    const tn__max_pool2d_gather_args *a = args;
    job j = {.y = a->out->data};
    const void *x, *index;
    tn_status st = cpu_packed(call, a->input, &x);
    if (!st) st = cpu_packed(call, a->indices, &index);
    if (st || a->out->numel == 0) return st;
    j.x = x;
    j.index_in = index;
    plane_sizes(&j, a->input, a->out);
    return run(&j, planes_of(a->out), gather_planes);
}

/* ---- Averages ----------------------------------------------------------------------------------*/

/* The part of window o that lies inside [0, size), and what the sum is divided by along this axis
 * when the padding counts. */
static void window(int64_t o, int64_t k, int64_t s, int64_t pad, int64_t size, int64_t *ret_begin,
                   int64_t *ret_end, int64_t *ret_count) {
    int64_t begin = o * s - pad, end = begin + k < size + pad ? begin + k : size + pad;
    *ret_count = end - begin;
    *ret_begin = begin < 0 ? 0 : begin;
    *ret_end = end > size ? size : end;
}

static void adaptive_window(int64_t o, int64_t from, int64_t to, int64_t *ret_begin,
                            int64_t *ret_end) {
    *ret_begin = o * from / to;
    *ret_end = ((o + 1) * from + to - 1) / to;
}

/* The window of output (oy, ox) and the factor of its average. */
static A average_window(const job *j, int64_t oy, int64_t ox, int64_t at[4]) {
    int64_t ch, cw;
    if (j->adaptive) {
        adaptive_window(oy, j->h, j->oh, &at[0], &at[1]);
        adaptive_window(ox, j->w, j->ow, &at[2], &at[3]);
        return (A)1 / (A)((at[1] - at[0]) * (at[3] - at[2]));
    }
    window(oy, j->kh, j->sh, j->ph, j->h, &at[0], &at[1], &ch);
    window(ox, j->kw, j->sw, j->pw, j->w, &at[2], &at[3], &cw);
    int64_t inside = (at[1] - at[0]) * (at[3] - at[2]);
    return (A)1 / (A)(j->divisor ? j->divisor : j->count_pad ? ch * cw : inside);
}

static tn_status average_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t at[4];
    for (int64_t p = begin; p < end; p++) {
        const T *x = j->x + p * j->h * j->w;
        T *y = j->y + p * j->oh * j->ow;
        for (int64_t i = 0; i < j->oh * j->ow; i++) {
            A scale = average_window(j, i / j->ow, i % j->ow, at), sum = 0;
            for (int64_t iy = at[0]; iy < at[1]; iy++) {
                for (int64_t ix = at[2]; ix < at[3]; ix++) sum += LOAD(x[iy * j->w + ix]);
            }
            y[i] = STORE(sum * scale);
        }
    }
    return TN_OK;
}

static tn_status average_backward_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t at[4], size = j->h * j->w;
    void *room;
    tn_status st = plane_room(j, &room);
    if (st) return st;
    A *sum = room;
    for (int64_t p = begin; p < end; p++) {
        const T *g = j->x + p * j->oh * j->ow;
        memset(sum, 0, (size_t)size * sizeof(A));
        for (int64_t i = 0; i < j->oh * j->ow; i++) {
            A scale = average_window(j, i / j->ow, i % j->ow, at), v = LOAD(g[i]) * scale;
            for (int64_t iy = at[0]; iy < at[1]; iy++) {
                for (int64_t ix = at[2]; ix < at[3]; ix++) sum[iy * j->w + ix] += v;
            }
        }
        plane_done(j, sum, j->y + p * size);
    }
    cpu_free(NULL, 0, room, (uint64_t)size * sizeof(A));
    return TN_OK;
}

static tn_status average(const tn_call *call, job *j, const tn_view *x, const tn_view *y) {
    const void *p;
    tn_status st = cpu_packed(call, x, &p);
    if (st || y->numel == 0) return st;
    j->x = p;
    j->y = y->data;
    plane_sizes(j, x, y);
    return run(j, planes_of(y), average_planes);
}

static tn_status average_backward(const tn_call *call, job *j, const tn_view *g, const tn_view *y) {
    const void *p;
    tn_status st = cpu_packed(call, g, &p);
    if (st || y->numel == 0) return st;
    j->x = p;
    j->y = y->data;
    plane_sizes(j, y, g);
    return run(j, planes_of(y), average_backward_planes);
}

static tn_status avg_pool2d(const tn_call *call, const void *args) {
    const tn_avg_pool2d_args *a = args;
    job j = {.count_pad = a->count_include_pad != 0, .divisor = a->divisor_override.value};
    window_sizes(&j, a->kernel_size, a->stride, a->padding);
    return average(call, &j, a->input, a->out);
}

static tn_status avg_pool2d_backward(const tn_call *call, const void *args) {
    const tn__avg_pool2d_backward_args *a = args;
    job j = {.count_pad = a->count_include_pad != 0, .divisor = a->divisor_override.value};
    window_sizes(&j, a->kernel_size, a->stride, a->padding);
    return average_backward(call, &j, a->grad, a->out);
}

static tn_status adaptive_avg_pool2d(const tn_call *call, const void *args) {
    const tn__adaptive_avg_pool2d_args *a = args;
    job j = {.adaptive = 1};
    return average(call, &j, a->input, a->out);
}

static tn_status adaptive_avg_pool2d_backward(const tn_call *call, const void *args) {
    const tn__adaptive_avg_pool2d_backward_args *a = args;
    job j = {.adaptive = 1};
    return average_backward(call, &j, a->grad, a->out);
}

#define ROW(op, fn) {#op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0}
static const tn_kernel_row rows[] = {
    ROW(max_pool2d_with_indices, max_pool2d),
    ROW(_max_pool2d_backward, max_pool2d_backward),
    ROW(_max_pool2d_gather, max_pool2d_gather),
    ROW(avg_pool2d, avg_pool2d),
    ROW(_avg_pool2d_backward, avg_pool2d_backward),
    ROW(_adaptive_avg_pool2d, adaptive_avg_pool2d),
    ROW(_adaptive_avg_pool2d_backward, adaptive_avg_pool2d_backward),
};
const cpu_rows TN_(cpu_pool_rows) = CPU_ROWS_OF(rows);
