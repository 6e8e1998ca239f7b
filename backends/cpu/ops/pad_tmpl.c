/* pad_tmpl.c: padding and its gradient, for one element type.
 *
 * A gather through one table of source positions per dimension; the gradient scatters through the
 * same tables. What lies inside of the padding moves as a whole. Work is cut along the leading
 * dimensions that no padding touches, so that a scatter never meets another one's memory.
 *
 * family: pad; types: all; isa: each */
#include <complex.h>

#include <tenon/args_conv.h>

#include "common/tmpl.h"

#include "copy.h"
#include "cpu_priv.h"
#include "pack.h"
#include "run.h"

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

typedef struct pad_job {
    int32_t ndim;
    const int64_t *wide;             /* shape of the padded tensor */
    int64_t stride[TN_MAX_DIMS];     /* of the packed unpadded tensor */
    const int64_t *map[TN_MAX_DIMS]; /* padded index -> unpadded index, or -1 */
    int64_t lead, wide_size,
        narrow_size; /* leading indices that no padding touches; sizes behind */
    int32_t first;   /* first dimension that padding touches */
    int64_t
        before; /* what stands before a row, and the part of it that lies inside of the padding */
    int64_t inner[2];
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

/* Of a row of `wide` elements those that stand for the `narrow` ones behind the first `before`. */
static void inner_part(int64_t before, int64_t narrow, int64_t wide, int64_t *ret) {
    int64_t begin = before < 0 ? 0 : before, end = before + narrow;
    ret[0] = begin < wide ? begin : wide;
    ret[1] = end > wide ? wide : end > ret[0] ? end : ret[0];
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
    j->inner[0] = j->inner[1] = 0;
    for (int32_t d = j->ndim - 1; d >= 0; d--) {
        before = d >= j->ndim - pad.n / 2 ? pad.v[2 * (j->ndim - 1 - d)] : 0;
        int64_t known[2] = {0, 0}; /* of rows, what lies inside of the padding is not looked up */
        if (d == j->ndim - 1) {
            j->before = before;
            inner_part(before, narrow[d], wide->shape[d], j->inner);
            memcpy(known, j->inner, sizeof known);
        }
        for (int64_t i = 0; i < wide->shape[d]; i++) {
            if (i == known[0]) i = known[1];
            if (i < wide->shape[d]) map[i] = source(mode, i - before, narrow[d]);
        }
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

/* Rows one after the other, through leading indices as well. */
typedef struct pad_rows {
    int64_t index[TN_MAX_DIMS], row, rows; /* rows of one leading index */
    int64_t lead;
    cpu_stretch s;
} pad_rows;

static void rows_start(const pad_job *j, int64_t begin, int64_t end, pad_rows *ret) {
    int64_t n = j->wide[j->ndim - 1];
    for (int32_t d = j->first; d < j->ndim; d++) ret->index[d] = 0;
    ret->row = 0;
    ret->rows = j->wide_size / n;
    ret->lead = begin;
    ret->s = (cpu_stretch){.n = room_mul(end - begin, ret->rows), .cost = n};
}

static void next_row(const pad_job *j, pad_rows *r) {
    for (int32_t d = j->ndim - 2; d >= j->first && ++r->index[d] == j->wide[d]; d--)
        r->index[d] = 0;
    if (++r->row < r->rows) return;
    r->row = 0;
    r->lead++;
}

/* [begin, end) of a stretch of a row in three parts: before the inner part, it, and behind it. */
static void row_parts(const pad_job *j, int64_t begin, int64_t end, int64_t cut[4]) {
    cut[0] = begin;
    cut[3] = end;
    for (int k = 0; k < 2; k++) {
        int64_t at = j->inner[k];
        cut[k + 1] = at < begin ? begin : at > end ? end : at;
    }
}

static void pad_ends(const pad_job *j, const T *from, int64_t begin, int64_t end, T *to) {
    const int64_t *map = j->map[j->ndim - 1];
    for (int64_t i = begin; i < end; i++) to[i] = map[i] < 0 ? j->value : from[map[i]];
}

static void pad_part(const pad_job *j, const T *from, int64_t at, int64_t begin, int64_t end,
                     T *to) {
    int64_t cut[4];
    if (at < 0) {
        cpu_spread(to + begin, &j->value, end - begin, sizeof(T));
        return;
    }
    row_parts(j, begin, end, cut);
    pad_ends(j, from + at, cut[0], cut[1], to);
    if (cut[1] < cut[2])
        cpu_copy_run(to + cut[1], from + at + cut[1] - j->before,
                     (size_t)(cut[2] - cut[1]) * sizeof(T));
    pad_ends(j, from + at, cut[2], cut[3], to);
}

static tn_status pad_leads(void *arg, int64_t begin, int64_t end) {
    const pad_job *j = arg;
    int64_t n = j->wide[j->ndim - 1];
    T *to = j->to + begin * j->wide_size;
    tn_status st = TN_OK;
    pad_rows r;
    rows_start(j, begin, end, &r);
    while (st == TN_OK && cpu_next_stretch(&r.s)) {
        for (int64_t i = r.s.begin; i < r.s.end && st == TN_OK; i++, to += n, next_row(j, &r)) {
            const T *from = j->from + r.lead * j->narrow_size;
            int64_t at = row_source(j, r.index);
            cpu_stretch s = {.n = n, .cost = 1};
            while (cpu_next_stretch(&s)) pad_part(j, from, at, s.begin, s.end, to);
            st = s.st;
        }
    }
    return st ? st : r.s.st;
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
static void add_ends(const pad_job *j, const T *from, int64_t begin, int64_t end, T *to) {
    const int64_t *map = j->map[j->ndim - 1];
    for (int64_t i = begin; i < end; i++) {
        if (map[i] < 0) continue;
        A sum = LOAD(to[map[i]]) + LOAD(from[i]);
        to[map[i]] = STORE(sum);
    }
}

static void add_inner(const T *restrict from, int64_t n, T *restrict to) {
    for (int64_t i = 0; i < n; i++) {
        A sum = LOAD(to[i]) + LOAD(from[i]);
        to[i] = STORE(sum);
    }
}

static void pad_backward_part(const pad_job *j, const T *from, int64_t begin, int64_t end, T *to) {
    int64_t cut[4];
    row_parts(j, begin, end, cut);
    add_ends(j, from, cut[0], cut[1], to);
    if (cut[1] < cut[2]) add_inner(from + cut[1], cut[2] - cut[1], to + cut[1] - j->before);
    add_ends(j, from, cut[2], cut[3], to);
}

static tn_status pad_backward_leads(void *arg, int64_t begin, int64_t end) {
    const pad_job *j = arg;
    int64_t n = j->wide[j->ndim - 1], size = (end - begin) * j->narrow_size;
    const T *from = j->from + begin * j->wide_size;
    tn_status st = cpu_clear(j->to + begin * j->narrow_size, size * (int64_t)sizeof(T));
    pad_rows r;
    rows_start(j, begin, end, &r);
    while (st == TN_OK && cpu_next_stretch(&r.s)) {
        for (int64_t i = r.s.begin; i < r.s.end && st == TN_OK; i++, from += n, next_row(j, &r)) {
            T *to = j->to + r.lead * j->narrow_size;
            int64_t at = row_source(j, r.index);
            cpu_stretch s = {.n = at < 0 ? 0 : n, .cost = 1};
            while (cpu_next_stretch(&s)) pad_backward_part(j, from, s.begin, s.end, to + at);
            st = s.st;
        }
    }
    return st ? st : r.s.st;
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
