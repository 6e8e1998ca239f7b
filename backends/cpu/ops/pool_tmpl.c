/* pool_tmpl.c: windows over planes: max_pool2d, avg_pool2d, adaptive_avg_pool2d and their
 * gradients, for one element type; of whole numbers the maxima, and of int64 the averages, cut to
 * whole numbers. Each plane (h, w) is one work item; gradients are scattered inside a plane, so that
 * planes never share memory.
 *
 * family: pool; types: int float; isa: each; fused */
#include <math.h>

#include <tenon/args_conv.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"

#define HAS_AVERAGE (TMPL_IS_FLOAT || TMPL_DTYPE == TMPL_I64)
#if TMPL_IS_FLOAT
#define LOWEST (-(A)INFINITY)
#define MEAN(sum, count) ((sum) * ((A)1 / (A)(count)))
#else
#define LOWEST ((A)((A)-1 > 0 ? 0 : (uint64_t)1 << (8 * sizeof(A) - 1)))
#define MEAN(sum, count) ((A)((sum) / (A)(count)))
#endif

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

/* About how many elements a window reads. */
static int64_t window_cost(const job *j) {
    int64_t windows = j->oh * j->ow; /* 0: a gradient of nothing */
    if (j->adaptive) return 1 + j->h * j->w / (windows ? windows : 1);
    return room_mul(j->kh, j->kw);
}

/* ---- Maximum ----------------------------------------------------------------------------------*/

/* Whether v takes the place of best: larger, or NaN, of which the last counts. */
TMPL_INLINE int beats(A v, A best) {
#if TMPL_IS_FLOAT
    return (int)(v > best) | (int)(v != v);
#else
    return v > best;
#endif
}

/* One window: taps ys[0], ys[0] + dh, .. below ys[1], by the same for columns. One that is spread so wide
 * that all its taps lie in the padding has nothing to offer: the lowest number, from no place. */
static void max_window(const T *x, int64_t w, const int64_t *ys, const int64_t *xs, int64_t dh,
                       int64_t dw, T *ret, int64_t *ret_at) {
    bool inside = ys[0] < ys[1] && xs[0] < xs[1];
    int64_t at = inside ? ys[0] * w + xs[0] : -1;
    A best = inside ? LOAD(x[at]) : LOWEST;
    for (int64_t iy = ys[0]; iy < ys[1]; iy += dh) {
        for (int64_t ix = xs[0]; ix < xs[1]; ix += dw) {
            A v = LOAD(x[iy * w + ix]);
            int64_t better = beats(v, best);
            best = better ? v : best;
            at ^= (at ^ (iy * w + ix)) & -better;
        }
    }
    *ret = STORE(best);
    *ret_at = at;
}

/* The part of window o inside [0, size). */
static void max_range(int64_t o, int64_t k, int64_t stride, int64_t pad, int64_t dilation,
                      int64_t size, int64_t *ret) {
    int64_t begin = o * stride - pad, end = begin + (k - 1) * dilation + 1;
    ret[0] = begin < 0 ? begin + (-begin + dilation - 1) / dilation * dilation : begin;
    ret[1] = end > size ? size : end;
}

enum { RUN = 64 }; /* windows that are looked at together */

/* Windows of two columns and one or two rows that neither overlap nor leave the plane. Each step compares
 * and selects in loops without branches, which become vector code. */
static tn_status max_plane_pairs(const job *j, const T *x, T *y, int64_t *index) {
    A best[RUN];
    int32_t tap[RUN];
    int64_t runs = (j->ow + RUN - 1) / RUN;
    cpu_stretch s = {.n = j->oh * runs, .cost = 4 * RUN};
    while (cpu_next_stretch(&s)) {
        for (int64_t r = s.begin; r < s.end; r++) {
            int64_t oy = r / runs, o = r % runs * RUN, n = j->ow - o < RUN ? j->ow - o : RUN;
            int64_t at = j->kh * oy * j->w + 2 * o;
            const T *top = x + at, *low = top + j->w;
            for (int64_t i = 0; i < n; i++) {
                A a = LOAD(top[2 * i]), b = LOAD(top[2 * i + 1]);
                int better = beats(b, a);
                best[i] = better ? b : a;
                tap[i] = better;
            }
            for (int64_t i = 0; j->kh == 2 && i < n; i++) {
                A a = LOAD(low[2 * i]), b = LOAD(low[2 * i + 1]);
                int right = beats(b, a);
                A m = right ? b : a;
                int better = beats(m, best[i]);
                best[i] = better ? m : best[i];
                tap[i] = better ? (int)j->w + right : tap[i];
            }
            o += oy * j->ow;
            for (int64_t i = 0; i < n; i++) y[o + i] = STORE(best[i]);
            for (int64_t i = 0; i < n; i++) index[o + i] = at + 2 * i + tap[i];
        }
    }
    return s.st;
}

/* Windows of one row of the output that lie inside of the plane from side to side, beside each other:
 * tap by tap in the order of a single window, in loops without branches, which become vector code. */
TMPL_INLINE void max_tap(const T *x, int64_t step, int32_t at, int64_t n, A *best, int32_t *tap) {
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) {
        A v = LOAD(x[i * step]);
        int better = beats(v, best[i]);
        best[i] = better ? v : best[i];
        tap[i] = better ? at : tap[i];
    }
}

TMPL_INLINE void max_run(const job *j, const T *x, const int64_t *ys, int64_t ox, int64_t n,
                         int64_t sw, T *y, int64_t *index) {
    A best[RUN];
    int32_t tap[RUN];
    int64_t start = ys[0] * j->w + ox * sw - j->pw;
    for (int64_t i = 0; i < n; i++) best[i] = LOAD(x[start + i * sw]);
    for (int64_t i = 0; i < n; i++) tap[i] = 0;
    for (int64_t iy = ys[0]; iy < ys[1]; iy += j->dh) {
        for (int64_t ix = 0; ix < j->kw; ix++) {
            int64_t at = (iy - ys[0]) * j->w + ix * j->dw;
            max_tap(x + start + at, sw, (int32_t)at, n, best, tap);
        }
    }
    for (int64_t i = 0; i < n; i++) y[i] = STORE(best[i]);
    for (int64_t i = 0; i < n; i++) index[i] = start + i * sw + tap[i];
}

/* From `from` to `to` of a row's windows, of which those of [inner[0], inner[1]) touch no padding
 * at the sides. */
static void max_stretch(const job *j, const T *x, const int64_t *ys, const int64_t *inner,
                        int64_t from, int64_t to, T *y, int64_t *index) {
    int64_t xs[2];
    for (int64_t ox = from, n; ox < to; ox += n) {
        n = 1;
        if (ox < inner[0] || ox >= inner[1]) {
            max_range(ox, j->kw, j->sw, j->pw, j->dw, j->w, xs);
            max_window(x, j->w, ys, xs, j->dh, j->dw, y + ox, index + ox);
            continue;
        }
        n = (inner[1] < to ? inner[1] : to) - ox;
        if (n > RUN) n = RUN;
        if (j->sw == 1)
            max_run(j, x, ys, ox, n, 1, y + ox, index + ox);
        else if (j->sw == 2)
            max_run(j, x, ys, ox, n, 2, y + ox, index + ox);
        else
            max_run(j, x, ys, ox, n, j->sw, y + ox, index + ox);
    }
}

/* The windows of a row that lie inside from side to side, if places in a window fit 32 bits. */
static void max_inner(const job *j, const int64_t *ys, int64_t *ret) {
    int64_t room = j->w + j->pw, span; /* span: of columns from the first tap to the last */
    ret[0] = ret[1] = 0;
    if (ys[0] >= ys[1] || room_mul(ys[1] - ys[0], j->w) > INT32_MAX) return;
    if (__builtin_mul_overflow(j->kw - 1, j->dw, &span) || span >= room) return;
    ret[0] = j->pw / j->sw + (j->pw % j->sw != 0);
    ret[1] = (room - span - 1) / j->sw + 1;
    if (ret[1] > j->ow) ret[1] = j->ow;
}

static tn_status max_row(const job *j, int64_t oy, const T *x, T *y, int64_t *index) {
    int64_t ys[2], inner[2];
    cpu_stretch s = {.n = j->ow, .cost = window_cost(j)};
    max_range(oy, j->kh, j->sh, j->ph, j->dh, j->h, ys);
    max_inner(j, ys, inner);
    y += oy * j->ow;
    index += oy * j->ow;
    while (cpu_next_stretch(&s)) max_stretch(j, x, ys, inner, s.begin, s.end, y, index);
    return s.st;
}

static tn_status max_plane(const job *j, const T *x, T *y, int64_t *index) {
    tn_status st = TN_OK;
    cpu_stretch s = {.n = j->oh, .cost = room_mul(j->ow, window_cost(j))};
    while (st == TN_OK && cpu_next_stretch(&s))
        for (int64_t oy = s.begin; oy < s.end && st == TN_OK; oy++)
            st = max_row(j, oy, x, y, index);
    return st ? st : s.st;
}

static tn_status max_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int pairs = j->kh <= 2 && j->kw == 2 && j->sh == j->kh && j->sw == 2 && j->ph == 0 &&
                j->pw == 0 && j->dh == 1 && j->dw == 1 && j->kh * j->oh <= j->h &&
                2 * j->ow <= j->w;
    tn_status st = TN_OK;
    for (int64_t p = begin; p < end && st == TN_OK; p++) {
        const T *x = j->x + p * j->h * j->w;
        T *y = j->y + p * j->oh * j->ow;
        int64_t *index = j->index + p * j->oh * j->ow;
        st = pairs ? max_plane_pairs(j, x, y, index) : max_plane(j, x, y, index);
    }
    return st;
}

static tn_status max_pool2d(const tn_call *call, const void *args) {
    const tn_max_pool2d_with_indices_args *a = args;
    job j = {.y = a->y->data, .index = a->indices->data};
    const void *x;
    tn_status st = cpu_packed(call, a->input, &x);
    if (st || a->y->numel == 0) return st;
    j.x = x;
    plane_sizes(&j, a->input, a->y);
    window_sizes(&j, a->kernel_size, a->stride, a->padding);
    j.dh = a->dilation.v[0];
    j.dw = a->dilation.v[1];
    return run(&j, planes_of(a->y), max_planes);
}

#if TMPL_IS_FLOAT
/* Places in a plane as somebody gave them: none may lie outside. */
static bool places_fit(const int64_t *index, int64_t n, int64_t size) {
    bool fit = true;
    for (int64_t i = 0; i < n; i++) fit &= index[i] >= 0 && index[i] < size;
    return fit;
}

/* Failures are recorded on the calling thread, not where a worker found them. */
static tn_status places_failed(tn_status st) {
    if (st != TN_E_INDEX) return st;
    return cpu_host->fail(TN_E_INDEX, 1, "indices must lie within the plane that was pooled");
}

/* ---- Gradients are added in A: half precision would round at every step -----------------------*/

static tn_status plane_room(const job *j, uint64_t *ret_bytes, void **ret_room) {
    return cpu_room(room_mul(j->h, j->w), sizeof(A), ret_bytes, ret_room);
}

static void plane_done(const job *j, const A *sum, T *to) {
    for (int64_t i = 0; i < j->h * j->w; i++) to[i] = STORE(sum[i]);
}

static tn_status max_backward_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t n = j->oh * j->ow, size = j->h * j->w;
    uint64_t bytes;
    void *room;
    tn_status st = plane_room(j, &bytes, &room);
    if (st) return st;
    A *sum = room;
    for (int64_t p = begin; p < end && st == TN_OK; p++) {
        const T *g = j->x + p * n;
        const int64_t *index = j->index_in + p * n;
        cpu_stretch s = {.n = n, .cost = 1};
        if (!places_fit(index, n, size)) {
            st = TN_E_INDEX;
            break;
        }
        st = cpu_clear(sum, size * (int64_t)sizeof(A));
        while (st == TN_OK && cpu_next_stretch(&s))
            for (int64_t i = s.begin; i < s.end; i++) sum[index[i]] += LOAD(g[i]);
        plane_done(j, sum, j->y + p * size);
        if (st == TN_OK) st = s.st;
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
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
    return places_failed(run(&j, planes_of(a->out), max_backward_planes));
}

static tn_status gather_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t n = j->oh * j->ow;
    if (!places_fit(j->index_in + begin * n, (end - begin) * n, j->h * j->w)) return TN_E_INDEX;
    cpu_stretch s = {.n = (end - begin) * n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = begin * n + s.begin; i < begin * n + s.end; i++)
            j->y[i] = j->x[i / n * j->h * j->w + j->index_in[i]];
    }
    return s.st;
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
    return places_failed(run(&j, planes_of(a->out), gather_planes));
}

#endif

/* ---- Averages ---------------------------------------------------------------------------------*/

#if HAS_AVERAGE

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

/* The window of output (oy, ox), and what its sum is divided by. */
static int64_t average_window(const job *j, int64_t oy, int64_t ox, int64_t at[4]) {
    int64_t ch, cw;
    if (j->adaptive) {
        adaptive_window(oy, j->h, j->oh, &at[0], &at[1]);
        adaptive_window(ox, j->w, j->ow, &at[2], &at[3]);
        return (at[1] - at[0]) * (at[3] - at[2]);
    }
    window(oy, j->kh, j->sh, j->ph, j->h, &at[0], &at[1], &ch);
    window(ox, j->kw, j->sw, j->pw, j->w, &at[2], &at[3], &cw);
    int64_t inside = (at[1] - at[0]) * (at[3] - at[2]);
    return j->divisor ? j->divisor : j->count_pad ? ch * cw : inside;
}

#if TMPL_IS_FLOAT
/* Windows that do not touch the padding and lie side by side: rows are added up as wholes, in the
 * order of a single window's sum, and then neighbours. */
#define STRIP 256

TMPL_INLINE void average_strip(const T *x, int64_t w, int64_t kh, int64_t kw, int64_t n, A scale,
                               T *y) {
    A sum[STRIP] = {0};
    for (int64_t iy = 0; iy < kh; iy++) {
        for (int64_t ix = 0; ix < kw; ix++) {
            TMPL_VECTOR
            for (int64_t o = 0; o < n; o++) sum[o] += LOAD(x[iy * w + o * kw + ix]);
        }
    }
    TMPL_VECTOR
    for (int64_t o = 0; o < n; o++) y[o] = STORE(sum[o] * scale);
}

static tn_status average_side_by_side(const job *j, const T *x, T *y) {
    A scale = (A)1 / (A)(j->divisor ? j->divisor : j->kh * j->kw);
    int64_t strips = (j->ow + STRIP - 1) / STRIP;
    cpu_stretch s = {.n = j->oh * strips, .cost = room_mul(STRIP, window_cost(j))};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            int64_t oy = i / strips, ox = i % strips * STRIP;
            int64_t n = j->ow - ox < STRIP ? j->ow - ox : STRIP;
            const T *row = x + oy * j->sh * j->w;
            if (j->kw == 2 && j->kh == 2)
                average_strip(row + ox * 2, j->w, 2, 2, n, scale, y + oy * j->ow + ox);
            else
                average_strip(row + ox * j->kw, j->w, j->kh, j->kw, n, scale, y + oy * j->ow + ox);
        }
    }
    return s.st;
}
#endif

/* Columns [begin, end) of a row's windows, each added up from row ys[0] to ys[1]. */
static void column_sums(const job *j, const T *x, const int64_t *ys, int64_t begin, int64_t end,
                        A *sum) {
    for (int64_t ix = begin; ix < end; ix++) sum[ix] = 0;
    for (int64_t iy = ys[0]; iy < ys[1]; iy++) {
        const T *row = x + iy * j->w;
        TMPL_VECTOR
        for (int64_t ix = begin; ix < end; ix++) sum[ix] += LOAD(row[ix]);
    }
}

/* A row of windows: columns first, whose sums windows that overlap share. sum: room for a row. */
static tn_status average_row(const job *j, int64_t oy, const T *x, A *sum, T *y) {
    int64_t at[4];
    average_window(j, oy, 0, at);
    cpu_stretch c = {.n = j->w, .cost = at[1] - at[0]}, s = {.n = j->ow};
    s.cost = 1 + j->w / j->ow;
    while (cpu_next_stretch(&c)) column_sums(j, x, at, c.begin, c.end, sum);
    while (c.st == TN_OK && cpu_next_stretch(&s)) {
        for (int64_t ox = s.begin; ox < s.end; ox++) {
            int64_t count = average_window(j, oy, ox, at);
            A all = 0;
            for (int64_t ix = at[2]; ix < at[3]; ix++) all += sum[ix];
            y[oy * j->ow + ox] = STORE(MEAN(all, count));
        }
    }
    return c.st ? c.st : s.st;
}

static tn_status average_plane(const job *j, const T *x, A *sum, T *y) {
    int64_t rows = j->adaptive ? 1 + j->h / j->oh : j->kh;
    cpu_stretch s = {.n = j->oh, .cost = room_mul(rows, j->w)};
    tn_status st = TN_OK;
    while (st == TN_OK && cpu_next_stretch(&s))
        for (int64_t oy = s.begin; oy < s.end && st == TN_OK; oy++)
            st = average_row(j, oy, x, sum, y);
    return st ? st : s.st;
}

static tn_status average_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(j->w, sizeof(A), &bytes, &room);
    if (st) return st;
#if TMPL_IS_FLOAT
    bool whole = !j->adaptive && !j->ph && !j->pw && j->sw == j->kw &&
                 (j->oh - 1) * j->sh + j->kh <= j->h && j->ow * j->kw <= j->w;
#endif
    for (int64_t p = begin; p < end && st == TN_OK; p++) {
        const T *x = j->x + p * j->h * j->w;
        T *y = j->y + p * j->oh * j->ow;
#if TMPL_IS_FLOAT
        if (whole) {
            st = average_side_by_side(j, x, y);
            continue;
        }
#endif
        st = average_plane(j, x, room, y);
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

#if TMPL_IS_FLOAT
/* Windows [begin, end) of a row that touch no padding at the sides, all of `scale`: tap by tap. */
TMPL_INLINE void spread_inner(const T *g, int64_t n, int64_t kw, int64_t sw, A scale, A *row) {
    for (int64_t ix = 0; ix < kw; ix++) {
        TMPL_VECTOR
        for (int64_t o = 0; o < n; o++) row[o * sw + ix] += LOAD(g[o]) * scale;
    }
}

/* Adds windows [begin, end) of a row to the columns that they cover. */
static void spread_windows(const job *j, int64_t oy, int64_t begin, int64_t end, const T *g,
                           A *row) {
    int64_t at[4], first = end, last = end; /* of windows whose columns all lie in the plane */
    if (!j->adaptive && j->kw <= j->w) {
        first = j->pw / j->sw + (j->pw % j->sw != 0);
        last = (j->w + j->pw - j->kw) / j->sw + 1;
        first = first < begin ? begin : first > end ? end : first;
        last = last > end ? end : last < first ? first : last;
    }
    for (int64_t ox = begin; ox < end; ox++) {
        A scale = (A)1 / (A)average_window(j, oy, ox, at);
        if (ox == first && first < last) {
            if (j->sw == 1)
                spread_inner(g + ox, last - ox, j->kw, 1, scale, row + at[2]);
            else if (j->sw == 2)
                spread_inner(g + ox, last - ox, j->kw, 2, scale, row + at[2]);
            else
                spread_inner(g + ox, last - ox, j->kw, j->sw, scale, row + at[2]);
            ox = last - 1;
            continue;
        }
        for (int64_t ix = at[2]; ix < at[3]; ix++) row[ix] += LOAD(g[ox]) * scale;
    }
}

/* A row of windows: their columns first, which all rows of the windows then take in. */
static tn_status average_backward_row(const job *j, int64_t oy, const T *g, A *row, A *sum) {
    int64_t at[4];
    average_window(j, oy, 0, at);
    cpu_stretch s = {.n = j->ow, .cost = j->adaptive ? 1 + j->w / j->ow : j->kw};
    cpu_stretch c = {.n = j->w, .cost = at[1] - at[0]};
    tn_status st = cpu_clear(row, j->w * (int64_t)sizeof(A));
    while (st == TN_OK && cpu_next_stretch(&s)) spread_windows(j, oy, s.begin, s.end, g, row);
    while (st == TN_OK && s.st == TN_OK && cpu_next_stretch(&c)) {
        for (int64_t iy = at[0]; iy < at[1]; iy++) {
            A *to = sum + iy * j->w;
            TMPL_VECTOR
            for (int64_t ix = c.begin; ix < c.end; ix++) to[ix] += row[ix];
        }
    }
    return st ? st : s.st ? s.st : c.st;
}

static tn_status average_backward_planes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t size = j->h * j->w;
    uint64_t bytes, row_bytes;
    void *room, *row;
    tn_status st = plane_room(j, &bytes, &room);
    if (st) return st;
    st = cpu_room(j->w, sizeof(A), &row_bytes, &row);
    if (st) goto out;
    for (int64_t p = begin; p < end && st == TN_OK; p++) {
        int64_t rows = j->ow ? j->oh : 0; /* a gradient of nothing has no windows */
        cpu_stretch s = {.n = rows, .cost = room_mul(j->ow, window_cost(j))};
        st = cpu_clear(room, size * (int64_t)sizeof(A));
        while (st == TN_OK && cpu_next_stretch(&s)) {
            for (int64_t oy = s.begin; oy < s.end && st == TN_OK; oy++) {
                const T *g = j->x + (p * j->oh + oy) * j->ow;
                st = average_backward_row(j, oy, g, row, room);
            }
        }
        plane_done(j, room, j->y + p * size);
        if (st == TN_OK) st = s.st;
    }
    cpu_free(NULL, 0, row, row_bytes);
out:
    cpu_free(NULL, 0, room, bytes);
    return st;
}
#endif

static tn_status average(const tn_call *call, job *j, const tn_view *x, const tn_view *y) {
    const void *p;
    tn_status st = cpu_packed(call, x, &p);
    if (st || y->numel == 0) return st;
    j->x = p;
    j->y = y->data;
    plane_sizes(j, x, y);
    return run(j, planes_of(y), average_planes);
}

#if TMPL_IS_FLOAT
static tn_status average_backward(const tn_call *call, job *j, const tn_view *g, const tn_view *y) {
    const void *p;
    tn_status st = cpu_packed(call, g, &p);
    if (st || y->numel == 0) return st;
    j->x = p;
    j->y = y->data;
    plane_sizes(j, y, g);
    return run(j, planes_of(y), average_backward_planes);
}
#endif

static tn_status avg_pool2d(const tn_call *call, const void *args) {
    const tn_avg_pool2d_args *a = args;
    job j = {.count_pad = a->count_include_pad != 0, .divisor = a->divisor_override.value};
    window_sizes(&j, a->kernel_size, a->stride, a->padding);
    return average(call, &j, a->input, a->out);
}

#if TMPL_IS_FLOAT
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
#endif
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(max_pool2d_with_indices, max_pool2d),
#if HAS_AVERAGE
    ROW(avg_pool2d, avg_pool2d),
#endif
#if TMPL_IS_FLOAT
    ROW(_max_pool2d_backward, max_pool2d_backward),
    ROW(_max_pool2d_gather, max_pool2d_gather),
    ROW(_avg_pool2d_backward, avg_pool2d_backward),
    ROW(_adaptive_avg_pool2d, adaptive_avg_pool2d),
    ROW(_adaptive_avg_pool2d_backward, adaptive_avg_pool2d_backward),
#endif
};
const cpu_rows TN_(cpu_pool_rows) = CPU_ROWS_OF(rows);
