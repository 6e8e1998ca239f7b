/* cast_tu.c: conversions from one element type to every other one. Floats become integers by
 * truncation; what does not fit, NaN included, becomes the least value of a 32 or 64-bit type and
 * wraps into narrower ones. Real to complex adds a zero, complex to real drops the imaginary part. */
#include "cpu_priv.h"

#include <tenon/args_pointwise.h>

#include "../common/tmpl.h"
#include "copy.h"

#include <complex.h>

#if TMPL_IS_COMPLEX
#if TMPL_DTYPE == TMPL_C64
#define REAL_(x) crealf(x)
#define IMAG_(x) cimagf(x)
#else
#define REAL_(x) creal(x)
#define IMAG_(x) cimag(x)
#endif
#define NONZERO_(x) (REAL_(x) != 0 || IMAG_(x) != 0)
#else
#define REAL_(x) (x)
#define IMAG_(x) 0
#define NONZERO_(x) ((x) != 0)
#endif

#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
TMPL_INLINE int32_t to_i32(RA x) {
    bool fits = x >= (RA)-0x1p31 && x < (RA)0x1p31;
    return fits ? (int32_t)x : INT32_MIN;
}
TMPL_INLINE int64_t to_i64(RA x) {
    bool fits = x >= (RA)-0x1p63 && x < (RA)0x1p63;
    return fits ? (int64_t)x : INT64_MIN;
}
#else
TMPL_INLINE int32_t to_i32(A x) { return (int32_t)x; }
TMPL_INLINE int64_t to_i64(A x) { return (int64_t)x; }
#endif

#define CAST_TO b8
#define CAST_T uint8_t
#define CAST_OF(x) ((uint8_t)NONZERO_(x))
#include "cast_tmpl.h"
#define CAST_TO u8
#define CAST_T uint8_t
#define CAST_OF(x) ((uint8_t)to_i32(REAL_(x)))
#include "cast_tmpl.h"
#define CAST_TO i8
#define CAST_T int8_t
#define CAST_OF(x) ((int8_t)to_i32(REAL_(x)))
#include "cast_tmpl.h"
#define CAST_TO i16
#define CAST_T int16_t
#define CAST_OF(x) ((int16_t)to_i32(REAL_(x)))
#include "cast_tmpl.h"
#define CAST_TO i32
#define CAST_T int32_t
#define CAST_OF(x) to_i32(REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO i64
#define CAST_T int64_t
#define CAST_OF(x) to_i64(REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO f16
#define CAST_T uint16_t
#define CAST_OF(x) tmpl_to_f16((float)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO bf16
#define CAST_T uint16_t
#define CAST_OF(x) tmpl_to_bf16((float)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO f32
#define CAST_T float
#define CAST_OF(x) ((float)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO f64
#define CAST_T double
#define CAST_OF(x) ((double)REAL_(x))
#include "cast_tmpl.h"
#define CAST_TO c64
#define CAST_T float _Complex
#define CAST_OF(x) tmpl_c64((float)REAL_(x), (float)IMAG_(x))
#include "cast_tmpl.h"
#define CAST_TO c128
#define CAST_T double _Complex
#define CAST_OF(x) tmpl_c128((double)REAL_(x), (double)IMAG_(x))
#include "cast_tmpl.h"

typedef void (*cast_fn)(int64_t n, void *dst, const void *src);
static const cast_fn to[TN_DTYPE_BUILTIN_COUNT] = {
    cast_to_b8,  cast_to_u8,   cast_to_i8,  cast_to_i16, cast_to_i32, cast_to_i64,
    cast_to_f16, cast_to_bf16, cast_to_f32, cast_to_f64, cast_to_c64, cast_to_c128,
};

#define BLOCK 512

typedef struct cast_job {
    const tn_plan *plan;
    cast_fn fn;
    int32_t out_size;
} cast_job;

/* One row, through blocks where a side is strided. */
static void cast_row(const cast_job *j, char *dst, const char *src, int64_t n) {
    _Alignas(64) char from[BLOCK * sizeof(T)], into[BLOCK * 16];
    int64_t ds = j->plan->stride[0][0], ss = j->plan->stride[0][1];
    bool packed_out = ds == j->out_size, packed_in = ss == (int64_t)sizeof(T);
    if (packed_out && packed_in) {
        j->fn(n, dst, src);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        const char *s = src + i * ss;
        if (!packed_in) {
            cpu_gather(from, s, m, ss, (int32_t)sizeof(T));
            s = from;
        }
        j->fn(m, packed_out ? dst + i * ds : into, s);
        if (!packed_out) cpu_scatter(dst + i * ds, into, m, ds, j->out_size);
    }
}

static tn_status cast_chunk(void *arg, int64_t begin, int64_t end) {
    const cast_job *j = arg;
    const tn_plan *p = j->plan;
    int64_t n0 = p->shape[0];
    while (begin < end) {
        int64_t row = begin / n0, col = begin % n0;
        int64_t n = n0 - col < end - begin ? n0 - col : end - begin;
        char *dst = (char *)p->data[0] + col * p->stride[0][0];
        const char *src = (const char *)p->data[1] + col * p->stride[0][1];
        for (int32_t d = 1; d < p->ndim; d++) {
            int64_t i = row % p->shape[d];
            row /= p->shape[d];
            dst += i * p->stride[d][0];
            src += i * p->stride[d][1];
        }
        cast_row(j, dst, src, n);
        begin += n;
    }
    return TN_OK;
}

static tn_status cast(const tn_call *call, const void *args) {
    const tn__cast_args *a = args;
    tn_plan plan;
    int32_t target = tn_view_dtype(a->out);
    if (target >= TN_DTYPE_BUILTIN_COUNT)
        return call->host->fail(TN_E_DTYPE, 0, "cannot convert to a dtype that a plugin added");
    if (a->out->numel == 0) return TN_OK;
    cpu_plan_pair(a->out, a->input, &plan);
    cast_job j = {&plan, to[target], (int32_t)tn_view_itemsize(a->out)};
    if (plan.numel <= 4096) return cast_chunk(&j, 0, plan.numel);
    return cpu_parallel(plan.numel, 16384, cast_chunk, &j);
}

static const tn_kernel_row rows[] = {
    {"_cast", TN_SIG__cast, cast, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0},
};
const cpu_rows TN_(cpu_cast_rows);
const cpu_rows TN_(cpu_cast_rows) = CPU_ROWS_OF(rows);
