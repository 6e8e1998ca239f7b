/* upsample_tmpl.c: upsampling of planes and its gradient, for one floating element type.
 *
 * A gather through two small tables of source positions and weights, by row and by column; the
 * gradient scatters through the same tables, one plane per work item.
 *
 * family: upsample; types: float; isa: each; fused */
#include <math.h>

#include <tenon/args_conv.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "half.h"
#include "pack.h"

/* ---- Upsampling -------------------------------------------------------------------------------*/

/* Source of one output position: lower neighbour, upper neighbour, weight of the upper one. */
typedef struct tap {
    int64_t lo, hi;
    double w;
} tap;

typedef struct resample_job {
    int64_t h, w, oh, ow; /* small planes and large planes */
    const tap *ty, *tx;   /* by output row, by output column */
    bool copies;          /* nearest neighbours: nothing is weighed */
    const T *x;
    T *y;
} resample_job;

#if TMPL_DTYPE == TMPL_F64
#define FLOOR floor
typedef double index_real;
#else
#define FLOOR floorf
typedef float index_real; /* positions are rounded as PyTorch rounds them */
#endif

/* The element at or below a position, which is infinite or no number where a scale is tiny. */
static int64_t element_at(index_real at, int64_t in) {
    int64_t i = at > 0 ? in - 1 : 0;
    if (at > 0 && at < (index_real)in) i = (int64_t)at;
    return i < in ? i : in - 1;
}

/* The same size and twice the size are copies, whatever scale was given: along both sides of a
 * plane, but a line goes by its scale as PyTorch's does. */
static void nearest_taps(int64_t in, int64_t out, bool line, tn_opt_float scale, tap *ret) {
    int64_t times = !line && (out == in || out == 2 * in) ? out / in : 0;
    index_real s = scale.has && scale.value > 0 ? (index_real)(1.0 / scale.value)
                                                : (index_real)in / (index_real)out;
    for (int64_t o = 0; o < out; o++) {
        ret[o].lo = ret[o].hi = times ? o / times : element_at(FLOOR((index_real)o * s), in);
        ret[o].w = 0.0;
    }
}

/* Of a plane both scales are given, or neither. */
static void nearest_taps_of(const resample_job *j, tn_opt_float tall, tn_opt_float wide, tap *ret_y,
                            tap *ret_x) {
    bool line = j->oh == 1 && wide.has && !tall.has;
    nearest_taps(j->h, j->oh, line, tall, ret_y);
    nearest_taps(j->w, j->ow, line, wide, ret_x);
}

static void linear_taps(int64_t in, int64_t out, int corners, tn_opt_float scale, tap *ret) {
    index_real s;
    if (corners) {
        s = out > 1 ? (index_real)(in - 1) / (index_real)(out - 1) : 0;
    } else if (scale.has && scale.value > 0) {
        s = (index_real)(1.0 / scale.value);
    } else {
        s = (index_real)in / (index_real)out;
    }
    for (int64_t o = 0; o < out; o++) {
        if (in == out) { /* whatever scale was given */
            ret[o].lo = ret[o].hi = o;
            ret[o].w = 0.0;
            continue;
        }
        index_real at =
            corners ? s * (index_real)o : s * ((index_real)o + (index_real)0.5) - (index_real)0.5;
        if (at < 0) at = 0;
        int64_t i = element_at(at, in);
        ret[o].lo = i;
        ret[o].hi = i < in - 1 ? i + 1 : i;
        ret[o].w = (double)(at - (index_real)i);
    }
}

static tn_status up_row(const resample_job *j, int64_t oy, const T *x, T *y) {
    const T *a = x + j->ty[oy].lo * j->w, *b = x + j->ty[oy].hi * j->w;
    A wy = (A)j->ty[oy].w;
    bool line = j->h == 1 && j->oh == 1;          /* of one dimension: there are no other rows */
    bool column = j->w == j->ow && j->h != j->oh; /* the depth of a volume, the planes flat */
    cpu_stretch s = {.n = j->ow, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t ox = s.begin; ox < s.end; ox++) {
            const tap *t = &j->tx[ox];
            if (j->copies) {
                y[ox] = a[t->lo];
                continue;
            }
            A wx = (A)t->w;
            A top = LOAD_ONE(a[t->lo]), low = LOAD_ONE(b[t->lo]);
            if (!column) {
                top = top * (1 - wx) + LOAD_ONE(a[t->hi]) * wx;
                low = low * (1 - wx) + LOAD_ONE(b[t->hi]) * wx;
            }
            if (line) {
                y[ox] = STORE_ONE(top);
                continue;
            }
            y[ox] = STORE_ONE((A)(top * (1 - wy) + low * wy));
        }
    }
    return s.st;
}

/* Rows of all planes. */
static tn_status up_planes(void *arg, int64_t begin, int64_t end) {
    const resample_job *j = arg;
    tn_status st = TN_OK;
    for (int64_t p = begin; p < end && st == TN_OK; p++) {
        cpu_stretch s = {.n = j->oh, .cost = j->ow};
        while (st == TN_OK && cpu_next_stretch(&s))
            for (int64_t oy = s.begin; oy < s.end && st == TN_OK; oy++)
                st = up_row(j, oy, j->x + p * j->h * j->w, j->y + (p * j->oh + oy) * j->ow);
        if (st == TN_OK) st = s.st;
    }
    return st;
}

static tn_status taps_for(const tn_call *call, const tn_view *small, const tn_view *large,
                          resample_job *j, tap **ret_y, tap **ret_x) {
    void *p;
    j->h = small->shape[2];
    j->w = small->shape[3];
    j->oh = large->shape[2];
    j->ow = large->shape[3];
    tn_status st = room_scratch(call, j->oh + j->ow, sizeof(tap), &p);
    if (st) return st;
    *ret_y = p;
    *ret_x = *ret_y + j->oh;
    j->ty = *ret_y;
    j->tx = *ret_x;
    j->copies = false;
    return TN_OK;
}

static tn_status up_run(const tn_call *call, resample_job *j, const tn_view *from,
                        const tn_view *to, cpu_body body) {
    const void *p;
    tn_status st = cpu_packed(call, from, &p);
    if (st || to->numel == 0) return st;
    j->x = p;
    j->y = to->data;
    return cpu_parallel(to->shape[0] * to->shape[1], 1 + 8192 / (j->oh * j->ow + 1), body, j);
}

static tn_status upsample_nearest2d(const tn_call *call, const void *args) {
    const tn_upsample_nearest2d_args *a = args;
    resample_job j;
    tap *ty, *tx;
    tn_status st = taps_for(call, a->input, a->out, &j, &ty, &tx);
    if (st) return st;
    nearest_taps_of(&j, a->scales_h, a->scales_w, ty, tx);
    j.copies = true;
    return up_run(call, &j, a->input, a->out, up_planes);
}

static tn_status down_row(const resample_job *j, int64_t oy, const T *g, A *sum) {
    A *a = sum + j->ty[oy].lo * j->w, *b = sum + j->ty[oy].hi * j->w;
    A wy = (A)j->ty[oy].w;
    cpu_stretch s = {.n = j->ow, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t ox = s.begin; ox < s.end; ox++) {
            const tap *t = &j->tx[ox];
            A v = LOAD(g[ox]), wx = (A)t->w;
            a[t->lo] += v * (1 - wy) * (1 - wx);
            a[t->hi] += v * (1 - wy) * wx;
            b[t->lo] += v * wy * (1 - wx);
            b[t->hi] += v * wy * wx;
        }
    }
    return s.st;
}

static tn_status down_planes(void *arg, int64_t begin, int64_t end) {
    const resample_job *j = arg;
    int64_t size = room_mul(j->h, j->w);
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(size, sizeof(A), &bytes, &room);
    if (st) return st;
    A *sum = room;
    for (int64_t p = begin; p < end && st == TN_OK; p++) {
        T *y = j->y + p * size;
        cpu_stretch s = {.n = j->oh, .cost = j->ow};
        st = cpu_clear(sum, size * (int64_t)sizeof(A));
        while (st == TN_OK && cpu_next_stretch(&s))
            for (int64_t oy = s.begin; oy < s.end && st == TN_OK; oy++)
                st = down_row(j, oy, j->x + (p * j->oh + oy) * j->ow, sum);
        for (int64_t i = 0; i < size; i++) y[i] = STORE(sum[i]);
        if (st == TN_OK) st = s.st;
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

static tn_status upsample_nearest2d_backward(const tn_call *call, const void *args) {
    const tn__upsample_nearest2d_backward_args *a = args;
    resample_job j;
    tap *ty, *tx;
    tn_status st = taps_for(call, a->out, a->grad, &j, &ty, &tx);
    if (st) return st;
    nearest_taps_of(&j, a->scales_h, a->scales_w, ty, tx);
    return up_run(call, &j, a->grad, a->out, down_planes);
}

static tn_status upsample_bilinear2d(const tn_call *call, const void *args) {
    const tn_upsample_bilinear2d_args *a = args;
    resample_job j;
    tap *ty, *tx;
    tn_status st = taps_for(call, a->input, a->out, &j, &ty, &tx);
    if (st) return st;
    linear_taps(j.h, j.oh, a->align_corners != 0, a->scales_h, ty);
    linear_taps(j.w, j.ow, a->align_corners != 0, a->scales_w, tx);
    return up_run(call, &j, a->input, a->out, up_planes);
}

static tn_status upsample_bilinear2d_backward(const tn_call *call, const void *args) {
    const tn__upsample_bilinear2d_backward_args *a = args;
    resample_job j;
    tap *ty, *tx;
    tn_status st = taps_for(call, a->out, a->grad, &j, &ty, &tx);
    if (st) return st;
    linear_taps(j.h, j.oh, a->align_corners != 0, a->scales_h, ty);
    linear_taps(j.w, j.ow, a->align_corners != 0, a->scales_w, tx);
    return up_run(call, &j, a->grad, a->out, down_planes);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(upsample_nearest2d, upsample_nearest2d),
    ROW(_upsample_nearest2d_backward, upsample_nearest2d_backward),
    ROW(upsample_bilinear2d, upsample_bilinear2d),
    ROW(_upsample_bilinear2d_backward, upsample_bilinear2d_backward),
};
const cpu_rows TN_(cpu_upsample_rows) = CPU_ROWS_OF(rows);
