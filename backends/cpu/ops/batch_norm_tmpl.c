/* batch_norm_tmpl.c: batch normalisation and its gradient for one element type.
 *
 * x is (n, c, s): samples, channels, positions. Planes (s in memory order, the usual layout) are
 * summed channel by channel; channels-last tensors and matrices, where channels lie side by side,
 * are summed in blocks of channels that walk down all rows.
 *
 * family: batch_norm; types: float; isa: each; fused */
#include <tenon/args_norm.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"
#include "long_sum.h"
#include "vec.h"

typedef struct job {
    int64_t n, c, s;
    int planes; /* channels are planes; else they lie side by side in n * s rows */
    int training;
    double momentum, eps;
    const T *x, *g;
    T *y; /* result, or gradient of x; NULL: not wanted */
    const T *weight, *bias;
    T *running_mean, *running_var;
    A *mean, *invstd;
    const A *mean_in, *invstd_in;
    T *gw, *gb; /* NULL: not wanted */
} job;

/* Channels of one work item, where they lie side by side: four lines of the cache. */
enum { LINE_CHANNELS = 256 / sizeof(A) };

static int64_t width_of(const job *j) { return j->planes ? 1 : LINE_CHANNELS; }

static A pick(const T *p, int64_t i, A otherwise) { return p ? LOAD(p[i]) : otherwise; }

/* Calls for each run of consecutive elements of channel c: planes only. */
#define EACH_PLANE(j, ch, ptr, base)                                                               \
    for (int64_t e_ = 0; e_ < (j)->n && ((ptr) = (base) + (e_ * (j)->c + (ch)) * (j)->s, 1); e_++)

static A plane_sum(const T *x, int64_t n) {
    vec s[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) s[k] += vec_load_t(x + i + k * VL);
    }
    for (; i < n; i += VL) s[0] += vec_load_t_n(x + i, n - i, 0);
    return vec_sum_turns(s);
}

static A plane_square(const T *x, int64_t n, A mean) {
    vec s[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) {
            vec d = vec_load_t(x + i + k * VL) - mean;
            s[k] += d * d;
        }
    }
    for (; i < n; i += VL) {
        vec d = vec_load_t_n(x + i, n - i, mean) - mean;
        s[0] += d * d;
    }
    return vec_sum_turns(s);
}

/* Adds the sum of g to ret[0] and that of g (x - mean) to ret[1]. */
static void plane_products(const T *g, const T *x, int64_t n, A mean, double *ret) {
    vec s[VEC_TURN] = {0}, t[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) {
            vec a = vec_load_t(g + i + k * VL);
            s[k] += a;
            t[k] += a * (vec_load_t(x + i + k * VL) - mean);
        }
    }
    for (; i < n; i += VL) {
        vec a = vec_load_t_n(g + i, n - i, 0);
        s[0] += a;
        t[0] += a * (vec_load_t_n(x + i, n - i, mean) - mean);
    }
    ret[0] += (double)vec_sum_turns(s);
    ret[1] += (double)vec_sum_turns(t);
}

/* y = x * a + b */
static void plane_scale(const T *x, T *y, int64_t n, A a, A b) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) vec_store_t(y + i, vec_load_t(x + i) * a + b);
    if (i < n) vec_store_t_n(y + i, vec_load_t_n(x + i, n - i, 0) * a + b, n - i);
}

/* y = g * a + x * b + c */
static void plane_mix(const T *g, const T *x, T *y, int64_t n, A a, A b, A c) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vec_store_t(y + i, vec_load_t(g + i) * a + vec_load_t(x + i) * b + c);
    }
    if (i < n) {
        vec v = vec_load_t_n(g + i, n - i, 0) * a + vec_load_t_n(x + i, n - i, 0) * b + c;
        vec_store_t_n(y + i, v, n - i);
    }
}

/* ---- Sums over a work item: `w` channels from channel c on ------------------------------------*/

/* Sum of x or of (x - mean)^2, or, for rows, of g or of g (x - mean); in double between planes. */
enum { SUM_X, SUM_SQUARE, SUM_G, SUM_PRODUCT };

static void sums(const job *j, int what, int64_t c, int64_t w, const A *mean, double *ret) {
    const T *from = what == SUM_G ? j->g : j->x;
    if (j->planes) {
        const T *p;
        ret[0] = 0.0;
        EACH_PLANE(j, c, p, from) {
            EACH_RUN(i, end, j->s) {
                A run = what == SUM_X ? plane_sum(p + i, end - i)
                                      : plane_square(p + i, end - i, mean[0]);
                ret[0] += (double)run;
            }
        }
        return;
    }
    enum { ROWS = 64 }; /* rows that are added in A before they go to double */
    int64_t rows = j->n * j->s;
    for (int64_t k = 0; k < w; k++) ret[k] = 0.0;
    for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
        A acc[LINE_CHANNELS] = {0};
        int64_t r1 = r0 + ROWS < rows ? r0 + ROWS : rows;
        for (int64_t r = r0; r < r1; r++) {
            const T *p = from + r * j->c + c, *g = j->g ? j->g + r * j->c + c : p;
            for (int64_t k = 0; k < w; k++) {
                A v = LOAD(p[k]), d = mean ? v - mean[k] : v;
                acc[k] += what == SUM_SQUARE ? d * d : what == SUM_PRODUCT ? LOAD(g[k]) * d : v;
            }
        }
        for (int64_t k = 0; k < w; k++) ret[k] += (double)acc[k];
    }
}

/* ---- Forward ----------------------------------------------------------------------------------*/

static void statistics(const job *j, int64_t c, int64_t w) {
    double sum[LINE_CHANNELS], count = (double)(j->n * j->s);
    A *mean = j->mean + c;
    sums(j, SUM_X, c, w, NULL, sum);
    for (int64_t k = 0; k < w; k++) mean[k] = (A)(sum[k] / count);
    sums(j, SUM_SQUARE, c, w, mean, sum);
    for (int64_t k = 0; k < w; k++) {
        double var = sum[k] / count, m = j->momentum;
        j->invstd[c + k] = (A)(1.0 / sqrt(var + j->eps));
        if (j->running_mean) {
            A r = (A)((1.0 - m) * (double)LOAD(j->running_mean[c + k]) + m * (double)mean[k]);
            j->running_mean[c + k] = STORE(r);
        }
        if (j->running_var) {
            double unbiased = sum[k] / (count - 1.0);
            A r = (A)((1.0 - m) * (double)LOAD(j->running_var[c + k]) + m * unbiased);
            j->running_var[c + k] = STORE(r);
        }
    }
}

static tn_status forward_channels(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t w = width_of(j), c = item * w;
        if (w > j->c - c) w = j->c - c;
        A a[LINE_CHANNELS], b[LINE_CHANNELS];
        if (j->training) statistics(j, c, w);
        for (int64_t k = 0; k < w; k++) {
            if (!j->training) {
                double var = (double)LOAD(j->running_var[c + k]);
                j->mean[c + k] = LOAD(j->running_mean[c + k]);
                j->invstd[c + k] = (A)(1.0 / sqrt(var + j->eps));
            }
            a[k] = j->invstd[c + k] * pick(j->weight, c + k, 1);
            b[k] = pick(j->bias, c + k, 0) - j->mean[c + k] * a[k];
        }
        if (j->planes) {
            const T *p;
            EACH_PLANE(j, c, p, j->x) plane_scale(p, j->y + (p - j->x), j->s, a[0], b[0]);
            continue;
        }
        for (int64_t r = 0; r < j->n * j->s; r++) {
            const T *p = j->x + r * j->c + c;
            T *q = j->y + r * j->c + c;
            for (int64_t k = 0; k < w; k++) q[k] = STORE(LOAD(p[k]) * a[k] + b[k]);
        }
    }
    return TN_OK;
}

/* v with its channels last in memory. */
static tn_status channels_last(const tn_call *call, const tn_view *v, const void **ret) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    int32_t last = v->ndim - 1;
    *ret = v->data;
    if (v->word & TN_W_CHANNELS_LAST) return TN_OK;
    for (int32_t d = 0; d <= last; d++) {
        int32_t from = d == 0 ? 0 : d == last ? 1 : d + 1;
        shape[d] = v->shape[from];
        strides[d] = v->strides[from];
    }
    tn_view moved = *v;
    moved.word &= ~TN_W_CONTIGUOUS;
    moved.shape = shape;
    moved.strides = strides;
    return cpu_packed(call, &moved, ret);
}

/* Sizes, and x as planes or rows; anything else is packed into planes. */
static tn_status prepare(const tn_call *call, const tn_view *x, job *j) {
    const void *p = x->data;
    j->n = x->shape[0];
    j->c = x->shape[1];
    j->s = 1;
    for (int32_t d = 2; d < x->ndim; d++) j->s *= x->shape[d];
    j->planes = j->s > 1 && !(x->word & TN_W_CHANNELS_LAST);
    if (x->word & TN_W_CONTIGUOUS && j->s > 1) j->planes = 1;
    tn_status st = TN_OK;
    if (j->planes || j->s == 1) st = cpu_packed(call, x, &p);
    j->x = p;
    return st;
}

static tn_status run(job *j, cpu_body body) {
    int64_t w = width_of(j), items = (j->c + w - 1) / w, work = j->n * j->s * w;
    return cpu_parallel(items, 1 + 16384 / (work + 1), body, j);
}

static void *data_of(const tn_view *v) { return v ? v->data : NULL; }

static tn_status native_batch_norm(const tn_call *call, const void *args) {
    const tn_native_batch_norm_args *a = args;
    job j = {.training = a->training != 0,
             .momentum = a->momentum,
             .eps = a->eps,
             .y = a->y->data,
             .weight = data_of(a->weight),
             .bias = data_of(a->bias),
             .running_mean = data_of(a->running_mean),
             .running_var = data_of(a->running_var),
             .mean = a->save_mean->data,
             .invstd = a->save_invstd->data};
    if (a->y->numel == 0) return TN_OK;
    tn_status st = prepare(call, a->input, &j);
    return st ? st : run(&j, forward_channels);
}

/* ---- Backward ----------------------------------------------------------------------------------
 * training: gx = w i (g - mean(g) - (x - m) i^2 mean(g (x - m))), else gx = w i g. */
static tn_status backward_channels(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    double count = (double)(j->n * j->s);
    for (int64_t item = begin; item < end; item++) {
        int64_t w = width_of(j), c = item * w;
        if (w > j->c - c) w = j->c - c;
        double sum_g[LINE_CHANNELS], dot[LINE_CHANNELS];
        A fg[LINE_CHANNELS], fx[LINE_CHANNELS], f1[LINE_CHANNELS];
        if (j->planes) {
            double both[2] = {0.0, 0.0};
            const T *p;
            EACH_PLANE(j, c, p, j->x) {
                const T *g = j->g + (p - j->x);
                EACH_RUN(i, last, j->s) plane_products(g + i, p + i, last - i, j->mean_in[c], both);
            }
            sum_g[0] = both[0];
            dot[0] = both[1];
        } else {
            sums(j, SUM_G, c, w, NULL, sum_g);
            sums(j, SUM_PRODUCT, c, w, j->mean_in + c, dot);
        }
        for (int64_t k = 0; k < w; k++) {
            A mean = j->mean_in[c + k], i = j->invstd_in[c + k];
            A gw = (A)dot[k] * i, gb = (A)sum_g[k];
            if (j->gw) j->gw[c + k] = STORE(gw);
            if (j->gb) j->gb[c + k] = STORE(gb);
            fg[k] = i * pick(j->weight, c + k, 1);
            fx[k] = j->training ? -fg[k] * i * i * (A)(dot[k] / count) : 0;
            f1[k] = j->training ? -fg[k] * (A)(sum_g[k] / count) - mean * fx[k] : 0;
        }
        if (!j->y) continue;
        if (j->planes) {
            const T *p;
            EACH_PLANE(j, c, p, j->x) {
                const T *g = j->g + (p - j->x);
                T *q = j->y + (p - j->x);
                if (j->training)
                    plane_mix(g, p, q, j->s, fg[0], fx[0], f1[0]);
                else
                    plane_scale(g, q, j->s, fg[0], 0);
            }
            continue;
        }
        for (int64_t r = 0; r < j->n * j->s; r++) {
            const T *p = j->x + r * j->c + c, *g = j->g + r * j->c + c;
            T *q = j->y + r * j->c + c;
            if (!j->training) {
                for (int64_t k = 0; k < w; k++) q[k] = STORE(LOAD(g[k]) * fg[k]);
                continue;
            }
            for (int64_t k = 0; k < w; k++) {
                q[k] = STORE(LOAD(g[k]) * fg[k] + LOAD(p[k]) * fx[k] + f1[k]);
            }
        }
    }
    return TN_OK;
}

static tn_status batch_norm_backward(const tn_call *call, const void *args) {
    const tn__batch_norm_backward_args *a = args;
    job j = {.training = a->training != 0,
             .y = a->need_input ? a->grad_input->data : NULL,
             .weight = data_of(a->weight),
             .mean_in = a->mean->data,
             .invstd_in = a->invstd->data,
             .gw = a->need_weight ? a->grad_weight->data : NULL,
             .gb = a->need_bias ? a->grad_bias->data : NULL};
    const void *g;
    tn_status st = prepare(call, a->input, &j);
    if (!st) {
        int rows = !j.planes && j.s > 1;
        st = rows ? channels_last(call, a->grad, &g) : cpu_packed(call, a->grad, &g);
    }
    if (st) return st;
    j.g = g;
    return run(&j, backward_channels);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(native_batch_norm, native_batch_norm),
    ROW(_batch_norm_backward, batch_norm_backward),
};
const cpu_rows TN_(cpu_batch_norm_rows) = CPU_ROWS_OF(rows);
