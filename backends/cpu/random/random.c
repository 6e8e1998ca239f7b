/* random.c: the operators that fill a tensor with random numbers, compiled per instruction set.
 *
 * Each has two sources. Philox: a fill function makes RND_BATCH numbers from their index alone, the
 * pool makes batches in any order. mt19937: a draw function makes the next numbers of the one stream
 * in PyTorch's order, under the generator's lock and therefore on the calling thread; it never
 * polls, since whoever answers a poll may be waiting for that lock.
 *
 * family: random; isa: each */
#include "random_priv.h"

#include <float.h>
#include <math.h>

#include <tenon/args_random.h>

#include "random_math.h"

static float rounded(const rnd_job *j, float x) {
    if (!j->half) return x;
    return j->walk.dtype == TN_BF16 ? tmpl_from_bf16(tmpl_to_bf16(x))
                                    : tmpl_from_f16(tmpl_to_f16(x));
}

/* ---- uniform_ ----------------------------------------------------------------------------------*/

static void stretch_f32(const rnd_job *j, int64_t n, float *x) {
    float from = (float)j->a, to = (float)j->b, width = to - from;
    float top = rounded(j, to), bottom = rounded(j, from);
    for (int64_t i = 0; i < n; i++) x[i] = rnd_stretch_f32(x[i], from, width, top, bottom);
    for (int64_t i = 0; j->half && i < n; i++) {
        float v = rounded(j, x[i]);
        x[i] = v == top ? bottom : v;
    }
}

static void stretch_f64(const rnd_job *j, int64_t n, double *x) {
    double from = j->a, to = j->b, width = to - from;
    for (int64_t i = 0; i < n; i++) x[i] = rnd_stretch_f64(x[i], from, width, to);
}

static void uniform_fill_f32(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    float *x = numbers;
    uint32_t w[RND_GROUP_WORDS];
    for (int64_t k = 0; k < n; k += RND_GROUP_WORDS) {
        rnd_group1(j, at + k, w);
        for (int i = 0; i < RND_GROUP_WORDS; i++) x[k + i] = rnd_f32_of(w[i]);
    }
    stretch_f32(j, n, x);
}

static void uniform_fill_f64(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    uint64_t w[32];
    for (int64_t k = 0; k < n; k += 32) {
        rnd_group2(j, at + k, w);
        for (int i = 0; i < 32; i++) x[k + i] = rnd_f64_of(w[i]);
    }
    stretch_f64(j, n, x);
}

static void mt_f32(tn_rng *rng, int64_t n, float *x) {
    uint32_t w[RND_BATCH];
    rnd_mt_words(rng, w, n);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(int32_t)(w[i] & 0xffffffu) * 0x1p-24f;
}

static void mt_f64(tn_rng *rng, int64_t n, double *x) {
    for (int64_t i = 0; i < n; i++) x[i] = rnd_mt_f64(rng);
}

static void uniform_draw_f32(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    (void)at;
    mt_f32(rng, n, numbers);
    stretch_f32(j, n, numbers);
}

static void uniform_draw_f64(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    (void)at;
    mt_f64(rng, n, numbers);
    stretch_f64(j, n, numbers);
}

static bool is_f64(int32_t dtype) { return dtype == TN_F64 || dtype == TN_C128; }
static bool is_half(int32_t dtype) { return dtype == TN_F16 || dtype == TN_BF16; }

static tn_status uniform(const tn_call *call, const void *args) {
    static const double most[] = {[TN_F16] = 65504.0, [TN_BF16] = 3.3895313892515355e38,
                                  [TN_F32] = FLT_MAX, [TN_F64] = DBL_MAX,
                                  [TN_C64] = FLT_MAX, [TN_C128] = DBL_MAX};
    const tn_uniform__args *a = args;
    int32_t dtype = tn_view_dtype(a->self);
    double limit = most[dtype];
    bool wide = is_f64(dtype);
    if (!(fabs(a->from) <= limit))
        return call->host->fail(TN_E_STATE, 1, "from is out of bounds for %s", call->op->name);
    if (!(fabs(a->to) <= limit))
        return call->host->fail(TN_E_STATE, 2, "to is out of bounds for %s", call->op->name);
    if (a->from > a->to)
        return call->host->fail(TN_E_STATE, 1,
                                "uniform_ expects to return a [from, to) range, but found from=%g "
                                "> to=%g",
                                a->from, a->to);
    if (a->to - a->from > limit)
        return call->host->fail(TN_E_STATE, 1,
                                "uniform_ expects to-from <= the largest number of the dtype, but "
                                "found to=%g and from=%g",
                                a->to, a->from);
    rnd_job j = {.fill_kind = wide ? RND_F64 : RND_F32,
                 .draw_kind = wide ? RND_F64 : RND_F32,
                 .fill = wide ? uniform_fill_f64 : uniform_fill_f32,
                 .draw = wide ? uniform_draw_f64 : uniform_draw_f32,
                 .words = wide ? 2 : 1,
                 .a = a->from,
                 .b = a->to,
                 .half = is_half(dtype)};
    return rnd_run(call, a->generator, &j, a->self, NULL);
}

/* ---- normal_, log_normal_ ----------------------------------------------------------------------*/

static void normal_fill_f32(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    float *x = numbers, mean = (float)j->a, std = (float)j->b;
    uint32_t w[RND_GROUP_WORDS];
    for (int64_t k = 0; k < n; k += RND_GROUP_WORDS) {
        rnd_group1(j, at + k, w);
        for (int h = 0; h < RND_GROUP_WORDS; h += 32) {
            float *a = x + k + h, *b = a + 16;
            for (int i = 0; i < 16; i++)
                rnd_pair_f32(rnd_f32_of(w[h + i]), rnd_f32_of(w[h + 16 + i]), mean, std, a + i,
                             b + i);
        }
    }
}

static void normal_fill_f64(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    uint64_t w[32];
    for (int64_t k = 0; k < n; k += 32) {
        rnd_group2(j, at + k, w);
        for (int i = 0; i < 16; i++)
            rnd_pair_f64(rnd_f64_of(w[i]), rnd_f64_of(w[16 + i]), j->a, j->b, x + k + i,
                         x + k + 16 + i);
    }
}

/* One number at a time, in double. */
static void normal_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    (void)at;
    for (int64_t i = 0; i < n; i++) x[i] = fma(rnd_mt_normal(rng), j->b, j->a);
}

/* Blocks of sixteen uniform numbers become normal: the first eight with the last eight. */
static void normal_blocks_f32(const rnd_job *j, int64_t n, float *x) {
    float mean = (float)j->a, std = (float)j->b;
    for (int64_t k = 0; k + 16 <= n; k += 16) {
        float t[16];
        for (int i = 0; i < 8; i++)
            rnd_pair_f32(x[k + i], x[k + 8 + i], mean, std, t + i, t + 8 + i);
        memcpy(x + k, t, sizeof t);
    }
}

static void normal_blocks_f64(const rnd_job *j, int64_t n, double *x) {
    for (int64_t k = 0; k + 16 <= n; k += 16)
        for (int i = 0; i < 8; i++)
            rnd_pair_f64(x[k + i], x[k + 8 + i], j->a, j->b, x + k + i, x + k + 8 + i);
}

static void normal_draw_blocks(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n,
                               void *numbers) {
    (void)at;
    if (j->draw_kind == RND_F32) {
        mt_f32(rng, n, numbers);
        normal_blocks_f32(j, n, numbers);
    } else {
        mt_f64(rng, n, numbers);
        normal_blocks_f64(j, n, numbers);
    }
}

/* Packed tensors of sixteen elements or more: whole blocks; then the last sixteen elements are
 * drawn once more where they do not end a block. Only f32 and f64 draw the uniform numbers of an
 * unfinished block before that. */
static tn_status normal_draw_packed(const tn_call *call, tn_generator *gen, rnd_job *j,
                                    tn_rng *rng) {
    double numbers[RND_BATCH];
    int64_t n = j->walk.numel, rest = n % 16;
    j->draw = normal_draw_blocks;
    j->walk.numel = n - rest;
    tn_status st = rnd_draw_batches(call, gen, j, rng);
    j->walk.numel = n;
    if (rest == 0 || st != TN_OK) return st;
    if (!j->half && j->draw_kind == RND_F32) mt_f32(rng, rest, (float *)(void *)numbers);
    if (!j->half && j->draw_kind == RND_F64) mt_f64(rng, rest, numbers);
    normal_draw_blocks(j, rng, 0, 16, numbers);
    rnd_store(&j->walk, n - 16, 16, j->draw_kind, numbers);
    return TN_OK;
}

static tn_status normal(const tn_call *call, const void *args) {
    const tn_normal__args *a = args;
    int32_t dtype = tn_view_dtype(a->self);
    bool wide = is_f64(dtype), complex_ = a->self->dl_code == 5;
    int64_t n = complex_ ? 2 * a->self->numel : a->self->numel;
    tn_rng rng;
    if (!(a->std >= 0.0))
        return call->host->fail(TN_E_STATE, 2, "normal expects std >= 0.0, but found std %g",
                                a->std);
    rnd_job j = {.fill_kind = wide ? RND_F64 : RND_F32,
                 .draw_kind = RND_F64,
                 .fill = wide ? normal_fill_f64 : normal_fill_f32,
                 .draw = normal_draw,
                 .words = wide ? 2 : 1,
                 .a = a->mean,
                 .b = complex_ ? a->std / sqrt(2.0) : a->std,
                 .half = is_half(dtype)};
    if (n < 16 || !tn_view_is_contiguous(a->self))
        return rnd_run(call, a->generator, &j, a->self, NULL);
    tn_status st = rnd_begin(call, a->generator, &j, a->self, &rng);
    if (st != TN_OK) return st;
    rnd_walk_init(&j.walk, a->self, NULL, false);
    if (rng.kind == TN_RNG_PHILOX)
        return cpu_parallel((n + RND_BATCH - 1) / RND_BATCH, 16, rnd_fill_batches, &j);
    j.draw_kind = wide ? RND_F64 : RND_F32;
    st = normal_draw_packed(call, a->generator, &j, &rng);
    if (st == TN_OK) call->host->rng_release(call, a->generator, &rng);
    return st;
}

static void log_normal_fill(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    normal_fill_f64(j, at, n, numbers);
    for (int64_t i = 0; i < n; i++) x[i] = exp(x[i]);
}

static void log_normal_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    normal_draw(j, rng, at, n, numbers);
    for (int64_t i = 0; i < n; i++) x[i] = exp(x[i]);
}

static tn_status log_normal(const tn_call *call, const void *args) {
    const tn_log_normal__args *a = args;
    if (!(a->std > 0.0))
        return call->host->fail(TN_E_STATE, 2, "log_normal_ expects std > 0.0, but found std=%g",
                                a->std);
    rnd_job j = {.fill_kind = RND_F64,
                 .draw_kind = RND_F64,
                 .fill = log_normal_fill,
                 .draw = log_normal_draw,
                 .words = 2,
                 .a = a->mean,
                 .b = a->std};
    return rnd_run(call, a->generator, &j, a->self, NULL);
}

/* ---- exponential_, cauchy_, geometric_ ---------------------------------------------------------*/

static void exponential_fill_f32(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    float *x = numbers, scale = (float)(-1.0 / j->a);
    uint32_t w[RND_GROUP_WORDS];
    for (int64_t k = 0; k < n; k += RND_GROUP_WORDS) {
        rnd_group1(j, at + k, w);
        for (int i = 0; i < RND_GROUP_WORDS; i++)
            x[k + i] = scale * rnd_log_f32(rnd_open_f32(w[i]));
    }
}

/* Numbers of the open interval (0, 1), for a transformation to follow. */
static void open_fill(const rnd_job *j, int64_t at, int64_t n, double *x) {
    uint64_t w[32];
    for (int64_t k = 0; k < n; k += 32) {
        rnd_group2(j, at + k, w);
        for (int i = 0; i < 32; i++) x[k + i] = rnd_open_f64(w[i]);
    }
}

static void exponential_fill_f64(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    open_fill(j, at, n, x);
    for (int64_t i = 0; i < n; i++) x[i] = -1.0 / j->a * log(x[i]);
}

static void exponential_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    double *x = numbers;
    (void)at;
    for (int64_t i = 0; i < n; i++) x[i] = -1.0 / j->a * log1p(-rnd_mt_f64(rng));
}

static void cauchy_of(const rnd_job *j, int64_t n, double *x) {
    for (int64_t i = 0; i < n; i++)
        x[i] = fma(j->b, tan(3.14159265358979323846 * (x[i] - 0.5)), j->a);
}

static void cauchy_fill(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    open_fill(j, at, n, numbers);
    cauchy_of(j, n, numbers);
}

static void cauchy_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    (void)at;
    mt_f64(rng, n, numbers);
    cauchy_of(j, n, numbers);
}

static void geometric_of(const rnd_job *j, int64_t n, double *x) {
    double scale = log1p(-j->a);
    for (int64_t i = 0; i < n; i++) x[i] = ceil(log(x[i]) / scale);
}

static void geometric_fill(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    open_fill(j, at, n, numbers);
    geometric_of(j, n, numbers);
}

static void geometric_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    (void)at;
    mt_f64(rng, n, numbers);
    geometric_of(j, n, numbers);
}

static tn_status exponential(const tn_call *call, const void *args) {
    const tn_exponential__args *a = args;
    bool wide = tn_view_dtype(a->self) == TN_F64;
    if (!(a->lambd > 0.0))
        return call->host->fail(TN_E_STATE, 1,
                                "exponential_ expects lambda > 0.0, but found lambda=%g", a->lambd);
    rnd_job j = {.fill_kind = wide ? RND_F64 : RND_F32,
                 .draw_kind = RND_F64,
                 .fill = wide ? exponential_fill_f64 : exponential_fill_f32,
                 .draw = exponential_draw,
                 .words = wide ? 2 : 1,
                 .a = a->lambd};
    return rnd_run(call, a->generator, &j, a->self, NULL);
}

static tn_status cauchy(const tn_call *call, const void *args) {
    const tn_cauchy__args *a = args;
    if (!(a->sigma > 0.0))
        return call->host->fail(TN_E_STATE, 2, "cauchy_ expects sigma > 0.0, but found sigma=%g",
                                a->sigma);
    rnd_job j = {.fill_kind = RND_F64,
                 .draw_kind = RND_F64,
                 .fill = cauchy_fill,
                 .draw = cauchy_draw,
                 .words = 2,
                 .a = a->median,
                 .b = a->sigma};
    return rnd_run(call, a->generator, &j, a->self, NULL);
}

static tn_status geometric(const tn_call *call, const void *args) {
    const tn_geometric__args *a = args;
    if (!(a->p > 0.0 && a->p < 1.0))
        return call->host->fail(TN_E_STATE, 1, "geometric_ expects p to be in (0, 1), but got p=%g",
                                a->p);
    rnd_job j = {.fill_kind = RND_F64,
                 .draw_kind = RND_F64,
                 .fill = geometric_fill,
                 .draw = geometric_draw,
                 .words = 2,
                 .a = a->p};
    return rnd_run(call, a->generator, &j, a->self, NULL);
}

#define ROW(op, fn, dtype)                                                                         \
    { op, TN_SIG_##fn##_, fn, NULL, dtype, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW("uniform_", uniform, TN_F16),         ROW("uniform_", uniform, TN_BF16),
    ROW("uniform_", uniform, TN_F32),         ROW("uniform_", uniform, TN_F64),
    ROW("uniform_", uniform, TN_C64),         ROW("uniform_", uniform, TN_C128),
    ROW("normal_", normal, TN_F16),           ROW("normal_", normal, TN_BF16),
    ROW("normal_", normal, TN_F32),           ROW("normal_", normal, TN_F64),
    ROW("normal_", normal, TN_C64),           ROW("normal_", normal, TN_C128),
    ROW("exponential_", exponential, TN_F16), ROW("exponential_", exponential, TN_BF16),
    ROW("exponential_", exponential, TN_F32), ROW("exponential_", exponential, TN_F64),
    ROW("cauchy_", cauchy, TN_F16),           ROW("cauchy_", cauchy, TN_BF16),
    ROW("cauchy_", cauchy, TN_F32),           ROW("cauchy_", cauchy, TN_F64),
    ROW("log_normal_", log_normal, TN_F16),   ROW("log_normal_", log_normal, TN_BF16),
    ROW("log_normal_", log_normal, TN_F32),   ROW("log_normal_", log_normal, TN_F64),
    ROW("geometric_", geometric, TN_U8),      ROW("geometric_", geometric, TN_I8),
    ROW("geometric_", geometric, TN_I16),     ROW("geometric_", geometric, TN_I32),
    ROW("geometric_", geometric, TN_I64),     ROW("geometric_", geometric, TN_F16),
    ROW("geometric_", geometric, TN_BF16),    ROW("geometric_", geometric, TN_F32),
    ROW("geometric_", geometric, TN_F64),
};
#undef ROW
const cpu_rows ISA_(cpu_random_rows) = CPU_ROWS_OF(rows);
