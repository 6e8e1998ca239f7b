/* random_walk.c: in which order the elements of a tensor are drawn, and how drawn numbers become
 * elements of any dtype and layout. */
#include "random_priv.h"

#include <string.h>

#include "common/tmpl.h"
#include "walk.h"

static void add_dim(rnd_walk *w, int64_t shape, int64_t stride, int64_t other) {
    if (shape == 1) return;
    w->shape[w->ndim] = shape;
    w->stride[w->ndim] = stride;
    w->other_stride[w->ndim++] = other;
}

static void swap_dims(rnd_walk *w, int32_t a, int32_t b) {
    int64_t shape = w->shape[a], stride = w->stride[a], other = w->other_stride[a];
    w->shape[a] = w->shape[b], w->stride[a] = w->stride[b];
    w->other_stride[a] = w->other_stride[b];
    w->shape[b] = shape, w->stride[b] = stride, w->other_stride[b] = other;
}

static bool outer_first(const rnd_walk *w, int32_t inner, int32_t outer) {
    int64_t a = w->stride[inner], b = w->stride[outer];
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    if (a == 0 || b == 0) return false;
    return a > b || (a == b && w->shape[inner] > w->shape[outer]);
}

/* Insertion sort: smallest stride innermost; dimensions of equal stride keep their order. */
static void sort_dims(rnd_walk *w) {
    for (int32_t i = 1; i < w->ndim; i++)
        for (int32_t k = i; k > 0 && outer_first(w, k - 1, k); k--) swap_dims(w, k - 1, k);
}

static void merge_dims(rnd_walk *w) {
    int32_t n = 0;
    for (int32_t d = 0; d < w->ndim; d++) {
        bool joins = n > 0 && w->stride[d] == w->stride[n - 1] * w->shape[n - 1] &&
                     w->other_stride[d] == w->other_stride[n - 1] * w->shape[n - 1];
        if (joins) {
            w->shape[n - 1] *= w->shape[d];
        } else {
            w->shape[n] = w->shape[d];
            w->stride[n] = w->stride[d];
            w->other_stride[n++] = w->other_stride[d];
        }
    }
    w->ndim = n;
}

void rnd_walk_init(rnd_walk *w, const tn_view *self, const tn_view *other, bool by_memory) {
    int64_t size = tn_view_itemsize(self);
    bool complex_ = self->dl_code == 5;
    w->data = self->data;
    w->other = other ? other->data : NULL;
    w->dtype = tn_view_dtype(self);
    if (complex_) w->dtype = w->dtype == TN_C64 ? TN_F32 : TN_F64;
    w->other_dtype = other ? tn_view_dtype(other) : w->dtype;
    w->numel = complex_ ? 2 * self->numel : self->numel;
    w->itemsize = complex_ ? size / 2 : size;
    w->ndim = 0;
    if (complex_) add_dim(w, 2, w->itemsize, 0);
    for (int32_t d = self->ndim - 1; d >= 0; d--) {
        int32_t k = other ? d - (self->ndim - other->ndim) : -1;
        add_dim(w, self->shape[d], walk_step_of(self, d), k >= 0 ? walk_step_of(other, k) : 0);
    }
    if (by_memory) sort_dims(w);
    merge_dims(w);
    if (w->ndim == 0) {
        w->shape[0] = w->numel;
        w->stride[0] = w->itemsize;
        w->other_stride[0] = 0;
        w->ndim = 1;
    }
    w->packed = w->ndim == 1 && w->stride[0] == w->itemsize;
}

/* ---- Runs along the innermost dimension --------------------------------------------------------*/

typedef struct place {
    int64_t index[TN_MAX_DIMS + 1];
    int64_t offset, other;
} place;

static void seek(const rnd_walk *w, int64_t at, place *p) {
    p->offset = p->other = 0;
    for (int32_t d = 0; d < w->ndim; d++) {
        p->index[d] = at % w->shape[d];
        at /= w->shape[d];
        p->offset += p->index[d] * w->stride[d];
        p->other += p->index[d] * w->other_stride[d];
    }
}

/* Moves `n` elements on, at most to the end of the innermost dimension. */
static void advance(const rnd_walk *w, int64_t n, place *p) {
    int32_t d = 0;
    p->index[0] += n;
    p->offset += n * w->stride[0];
    p->other += n * w->other_stride[0];
    while (p->index[d] == w->shape[d] && d + 1 < w->ndim) {
        p->offset += w->stride[d + 1] - w->shape[d] * w->stride[d];
        p->other += w->other_stride[d + 1] - w->shape[d] * w->other_stride[d];
        p->index[d++] = 0;
        p->index[d]++;
    }
}

static void scatter_run(char *dst, int64_t stride, const char *src, int64_t size, int64_t n) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * stride, src + i * size, (size_t)size);
}

static void scatter(const rnd_walk *w, int64_t at, int64_t n, const char *src) {
    place p;
    seek(w, at, &p);
    while (n > 0) {
        int64_t left = w->shape[0] - p.index[0], run = left < n ? left : n;
        scatter_run(w->data + p.offset, w->stride[0], src, w->itemsize, run);
        src += run * w->itemsize;
        n -= run;
        if (n > 0) advance(w, run, &p);
    }
}

/* ---- Conversion --------------------------------------------------------------------------------*/

static void to_f32(enum rnd_number kind, const void *src, int64_t n, float *dst) {
    const float *f = src;
    const double *d = src;
    const int64_t *l = src;
    const uint8_t *b = src;
    switch (kind) {
    case RND_F32: memcpy(dst, f, sizeof *f * (size_t)n); break;
    case RND_F64:
        for (int64_t i = 0; i < n; i++) dst[i] = (float)d[i];
        break;
    case RND_I64:
        for (int64_t i = 0; i < n; i++) dst[i] = (float)l[i];
        break;
    case RND_U8:
        for (int64_t i = 0; i < n; i++) dst[i] = (float)b[i];
        break;
    }
}

static void to_f64(enum rnd_number kind, const void *src, int64_t n, double *dst) {
    const float *f = src;
    const double *d = src;
    const int64_t *l = src;
    const uint8_t *b = src;
    switch (kind) {
    case RND_F32:
        for (int64_t i = 0; i < n; i++) dst[i] = (double)f[i];
        break;
    case RND_F64: memcpy(dst, d, sizeof *d * (size_t)n); break;
    case RND_I64:
        for (int64_t i = 0; i < n; i++) dst[i] = (double)l[i];
        break;
    case RND_U8:
        for (int64_t i = 0; i < n; i++) dst[i] = (double)b[i];
        break;
    }
}

/* Numbers of kind RND_F64 that become integers are whole and not negative, but may be huge. */
static void to_i64(enum rnd_number kind, const void *src, int64_t n, int64_t *dst) {
    const double *d = src;
    const int64_t *l = src;
    const uint8_t *b = src;
    for (int64_t i = 0; i < n; i++) {
        if (kind == RND_I64)
            dst[i] = l[i];
        else if (kind == RND_U8)
            dst[i] = b[i];
        else
            dst[i] = d[i] < 0x1p63 ? (int64_t)d[i] : INT64_MAX;
    }
}

static void to_half(enum rnd_number kind, const void *src, int64_t n, bool bf16, uint16_t *dst) {
    float f[RND_BATCH];
    to_f32(kind, src, n, f);
    for (int64_t i = 0; i < n; i++) dst[i] = bf16 ? tmpl_to_bf16(f[i]) : tmpl_to_f16(f[i]);
}

static void to_int(const rnd_walk *w, enum rnd_number kind, const void *src, int64_t n, void *dst) {
    int64_t v[RND_BATCH];
    uint8_t *u8 = dst;
    uint16_t *u16 = dst;
    uint32_t *u32 = dst;
    to_i64(kind, src, n, v);
    for (int64_t i = 0; i < n; i++) {
        if (w->dtype == TN_BOOL)
            u8[i] = v[i] != 0;
        else if (w->itemsize == 1)
            u8[i] = (uint8_t)v[i];
        else if (w->itemsize == 2)
            u16[i] = (uint16_t)v[i];
        else
            u32[i] = (uint32_t)v[i];
    }
}

static void convert(const rnd_walk *w, enum rnd_number kind, const void *src, int64_t n,
                    void *dst) {
    switch (w->dtype) {
    case TN_F32: to_f32(kind, src, n, dst); break;
    case TN_F64: to_f64(kind, src, n, dst); break;
    case TN_F16: to_half(kind, src, n, false, dst); break;
    case TN_BF16: to_half(kind, src, n, true, dst); break;
    case TN_I64: to_i64(kind, src, n, dst); break;
    default: to_int(w, kind, src, n, dst); break;
    }
}

void rnd_store(const rnd_walk *w, int64_t at, int64_t n, enum rnd_number kind,
               const void *numbers) {
    if (w->packed) {
        convert(w, kind, numbers, n, w->data + at * w->itemsize);
    } else {
        double elements[RND_BATCH];
        convert(w, kind, numbers, n, elements);
        scatter(w, at, n, (const char *)elements);
    }
}

void *rnd_direct(const rnd_walk *w, int64_t at, int64_t n, enum rnd_number kind) {
    int32_t same = kind == RND_F32 ? TN_F32 : kind == RND_F64 ? TN_F64 : TN_I64;
    if (!w->packed || n < RND_BATCH || kind == RND_U8 || w->dtype != same) return NULL;
    return w->data + at * w->itemsize;
}

static double load(int32_t dtype, const char *p) {
    uint16_t h;
    float f;
    double d;
    memcpy(&h, p, sizeof h);
    switch (dtype) {
    case TN_F16: return (double)tmpl_from_f16(h);
    case TN_BF16: return (double)tmpl_from_bf16(h);
    case TN_F32: memcpy(&f, p, sizeof f); return (double)f;
    default: memcpy(&d, p, sizeof d); return d;
    }
}

void rnd_load_other(const rnd_walk *w, int64_t at, int64_t n, double *dst) {
    place p;
    seek(w, at, &p);
    while (n > 0) {
        int64_t left = w->shape[0] - p.index[0], run = left < n ? left : n;
        for (int64_t i = 0; i < run; i++)
            *dst++ = load(w->other_dtype, w->other + p.other + i * w->other_stride[0]);
        n -= run;
        if (n > 0) advance(w, run, &p);
    }
}
