/* cast_tu.c: conversions from one element type to every other one (common/cast.h).
 *
 * family: cast; types: all; isa: each; small: all */
#include "cpu_priv.h"

#include <tenon/args_pointwise.h>

#include "half.h"

#include "common/cast.h"
#include "copy.h"

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
const cpu_rows TN_(cpu_cast_rows) = CPU_ROWS_OF(rows);
