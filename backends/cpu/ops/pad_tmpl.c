/* pad_tmpl.c: padding and its gradient, for one element type.
 *
 * A gather through one table of source positions per dimension; the gradient scatters through the
 * same tables. Work is cut along the leading dimensions that no padding touches, so that a scatter
 * never meets another one's memory.
 *
 * family: pad; types: all; isa: each */
#include <complex.h>

#include <tenon/args_conv.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

typedef struct pad_job {
    int32_t ndim;
    const int64_t *wide;             /* shape of the padded tensor */
    int64_t stride[TN_MAX_DIMS];     /* of the packed unpadded tensor */
    const int64_t *map[TN_MAX_DIMS]; /* padded index -> unpadded index, or -1 */
    int64_t lead, wide_size,
        narrow_size; /* leading indices that no padding touches; sizes behind */
    int32_t first;   /* first dimension that padding touches */
    const T *from;
    T *to;
    T value;
} pad_job;

static int64_t source(int mode, int64_t i, int64_t n) {
    if (i >= 0 && i < n) return i;
    switch (mode) {
    case PAD_REFLECT: return i < 0 ? -i : 2 * (n - 1) - i;
    case PAD_REPLICATE: return i < 0 ? 0 : n - 1;
    case PAD_CIRCULAR: return i < 0 ? i + n : i - n;
    default: return -1;
    }
}

static tn_status pad_prepare(const tn_call *call, const tn_view *wide, const int64_t *narrow,
                             tn_ints pad, int mode, pad_job *j) {
    int64_t total = 0, stride = 1, before;
    void *p;
    j->ndim = wide->ndim;
    j->wide = wide->shape;
    /* The last dimension counts as touched even if it is not, so that there are rows. */
    j->first = j->ndim - (pad.n > 2 ? (int32_t)(pad.n / 2) : 1);
    for (int32_t d = 0; d < j->ndim; d++) total += wide->shape[d];
    tn_status st = room_scratch(call, total + 1, sizeof(int64_t), &p);
    if (st) return st;
    int64_t *map = p;
    j->lead = j->wide_size = j->narrow_size = 1;
    for (int32_t d = j->ndim - 1; d >= 0; d--) {
        before = d >= j->ndim - pad.n / 2 ? pad.v[2 * (j->ndim - 1 - d)] : 0;
        for (int64_t i = 0; i < wide->shape[d]; i++) map[i] = source(mode, i - before, narrow[d]);
        j->map[d] = map;
        map += wide->shape[d];
        j->stride[d] = stride;
        stride *= narrow[d];
        if (d >= j->first) {
            j->wide_size *= wide->shape[d];
            j->narrow_size *= narrow[d];
        } else {
            j->lead *= wide->shape[d];
        }
    }
    return TN_OK;
}

/* Offset of the row that begins at `index` (dimensions first .. ndim-2), or -1 outside. */
static int64_t row_source(const pad_job *j, const int64_t *index) {
    int64_t at = 0;
    for (int32_t d = j->first; d < j->ndim - 1; d++) {
        int64_t i = j->map[d][index[d]];
        if (i < 0) return -1;
        at += i * j->stride[d];
    }
    return at;
}

static void next_row(const pad_job *j, int64_t *index) {
    for (int32_t d = j->ndim - 2; d >= j->first && ++index[d] == j->wide[d]; d--) index[d] = 0;
}

static tn_status pad_row(const pad_job *j, const T *from, int64_t at, T *to) {
    const int64_t *map = j->map[j->ndim - 1];
    cpu_stretch s = {.n = j->wide[j->ndim - 1], .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++)
            to[i] = at < 0 || map[i] < 0 ? j->value : from[at + map[i]];
    return s.st;
}

static tn_status pad_leads(void *arg, int64_t begin, int64_t end) {
    const pad_job *j = arg;
    int64_t n = j->wide[j->ndim - 1];
    tn_status st = TN_OK;
    for (int64_t l = begin; l < end && st == TN_OK; l++) {
        int64_t index[TN_MAX_DIMS] = {0};
        const T *from = j->from + l * j->narrow_size;
        T *to = j->to + l * j->wide_size;
        cpu_stretch s = {.n = j->wide_size / n, .cost = n};
        while (st == TN_OK && cpu_next_stretch(&s))
            for (int64_t r = s.begin; r < s.end && st == TN_OK; r++, to += n, next_row(j, index))
                st = pad_row(j, from, row_source(j, index), to);
        if (st == TN_OK) st = s.st;
    }
    return st;
}

static tn_status pad_run(const tn_call *call, const tn_view *x, const tn_view *out, tn_ints pad,
                         int mode, T value) {
    pad_job j = {.to = out->data, .value = value};
    const void *p;
    tn_status st = cpu_packed(call, x, &p);
    if (!st) st = pad_prepare(call, out, x->shape, pad, mode, &j);
    if (st || out->numel == 0) return st;
    if (out->ndim == 0) {
        j.to[0] = *(const T *)p;
        return TN_OK;
    }
    j.from = p;
    return cpu_parallel(j.lead, 1 + 16384 / (j.wide_size + 1), pad_leads, &j);
}

static tn_status constant_pad_nd(const tn_call *call, const void *args) {
    const tn_constant_pad_nd_args *a = args;
#if TMPL_IS_COMPLEX
    T value = (T)((RA)a->value.re + (RA)a->value.im * (A)I);
#elif TMPL_IS_FLOAT
    T value = STORE((A)a->value.re);
#elif TMPL_IS_BOOL
    T value = a->value.re != 0;
#else
    T value = (T)a->value.i;
#endif
    return pad_run(call, a->input, a->out, a->pad, PAD_CONSTANT, value);
}

static tn_status pad_mode(const tn_call *call, const void *args) {
    const tn__pad_args *a = args;
    return pad_run(call, a->input, a->out, a->pad, (int)a->mode, (T)0);
}

#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
static tn_status pad_backward_row(const pad_job *j, const T *from, int64_t at, T *to) {
    const int64_t *map = j->map[j->ndim - 1];
    cpu_stretch s = {.n = at < 0 ? 0 : j->wide[j->ndim - 1], .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            if (map[i] < 0) continue;
            A sum = LOAD(to[at + map[i]]) + LOAD(from[i]);
            to[at + map[i]] = STORE(sum);
        }
    }
    return s.st;
}

static tn_status pad_backward_leads(void *arg, int64_t begin, int64_t end) {
    const pad_job *j = arg;
    int64_t n = j->wide[j->ndim - 1];
    tn_status st = TN_OK;
    for (int64_t l = begin; l < end && st == TN_OK; l++) {
        int64_t index[TN_MAX_DIMS] = {0};
        const T *from = j->from + l * j->wide_size;
        T *to = j->to + l * j->narrow_size;
        st = cpu_clear(to, j->narrow_size * (int64_t)sizeof(T));
        cpu_stretch s = {.n = j->wide_size / n, .cost = n};
        while (st == TN_OK && cpu_next_stretch(&s))
            for (int64_t r = s.begin; r < s.end && st == TN_OK; r++, from += n, next_row(j, index))
                st = pad_backward_row(j, from, row_source(j, index), to);
        if (st == TN_OK) st = s.st;
    }
    return st;
}

static tn_status pad_backward(const tn_call *call, const void *args) {
    const tn__pad_backward_args *a = args;
    pad_job j = {.to = a->out->data};
    const void *p;
    tn_status st = cpu_packed(call, a->grad, &p);
    if (!st) st = pad_prepare(call, a->grad, a->out->shape, a->pad, (int)a->mode, &j);
    if (st || a->out->numel == 0) return st;
    if (a->grad->numel == 0) {
        memset(a->out->data, 0, (size_t)a->out->numel * sizeof(T));
        return TN_OK;
    }
    if (a->grad->ndim == 0) {
        j.to[0] = *(const T *)p;
        return TN_OK;
    }
    j.from = p;
    return cpu_parallel(j.lead, 1 + 16384 / (j.wide_size + 1), pad_backward_leads, &j);
}
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(constant_pad_nd, constant_pad_nd),
    ROW(_pad, pad_mode),
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    ROW(_pad_backward, pad_backward),
#endif
};
const cpu_rows TN_(cpu_pad_rows) = CPU_ROWS_OF(rows);
