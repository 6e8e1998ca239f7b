/* random_int.c: whole numbers, coin tosses and dropout, compiled per instruction set. How the two
 * sources of random numbers are used: random.c.
 *
 * family: random_int; isa: each */
#include "random_priv.h"

#include <float.h>
#include <math.h>

#include <tenon/args_random.h>

#include "random_math.h"

__extension__ typedef unsigned __int128 u128;

/* ---- random_ -----------------------------------------------------------------------------------*/

/* word * range / 2^32: every number is hit floor or ceil(2^32 / range) times, so ranges of at most
 * 2^16 are even to one part in 2^16. Larger ones take two words. */
static void int_fill1(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    int64_t *x = numbers;
    uint32_t w[RND_GROUP_WORDS];
    for (int64_t k = 0; k < n; k += RND_GROUP_WORDS) {
        rnd_group1(j, at + k, w);
        for (int i = 0; i < RND_GROUP_WORDS; i++)
            x[k + i] = (int64_t)(((uint64_t)w[i] * j->range >> 32) + (uint64_t)j->base);
    }
}

static void int_fill2(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    int64_t *x = numbers;
    uint64_t w[32];
    for (int64_t k = 0; k < n; k += 32) {
        rnd_group2(j, at + k, w);
        for (int i = 0; i < 32; i++) {
            uint64_t v = j->range ? (uint64_t)((u128)w[i] * j->range >> 64) : w[i];
            x[k + i] = (int64_t)(v + (uint64_t)j->base);
        }
    }
}

static void int_draw1(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    int64_t *x = numbers;
    (void)at;
    for (int64_t i = 0; i < n; i++)
        x[i] = (int64_t)(rnd_mt_word(rng) % j->range + (uint64_t)j->base);
}

static void int_draw2(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    int64_t *x = numbers;
    (void)at;
    for (int64_t i = 0; i < n; i++) {
        uint64_t w = rnd_mt_word64(rng);
        x[i] = (int64_t)((j->range ? w % j->range : w) + (uint64_t)j->base);
    }
}

static tn_status draw_ints(const tn_call *call, const tn_view *self, tn_generator *gen,
                           int64_t base, uint64_t range, bool mt_wide) {
    bool wide = range == 0 || range > UINT64_C(1) << 16;
    rnd_job j = {.fill_kind = RND_I64,
                 .draw_kind = RND_I64,
                 .fill = wide ? int_fill2 : int_fill1,
                 .draw = mt_wide ? int_draw2 : int_draw1,
                 .words = wide ? 2 : 1,
                 .range = range,
                 .base = base};
    return rnd_run(call, gen, &j, self, NULL);
}

/* Bits of a floating dtype's significand; 0 for an integer. */
static int digits_of(int32_t dtype) {
    switch (dtype) {
    case TN_F16: return 11;
    case TN_BF16: return 8;
    case TN_F32: return 24;
    case TN_F64: return 53;
    default: return 0;
    }
}

static int64_t max_of(int32_t dtype) {
    switch (dtype) {
    case TN_BOOL: return 1;
    case TN_U8: return UINT8_MAX;
    case TN_I8: return INT8_MAX;
    case TN_I16: return INT16_MAX;
    case TN_I32: return INT32_MAX;
    default: return INT64_MAX;
    }
}

static int64_t min_of(int32_t dtype) {
    int64_t max = max_of(dtype);
    return dtype == TN_BOOL || dtype == TN_U8 ? 0 : -max - 1;
}

/* v rounded to the dtype, back as a whole number. */
static int64_t through(int32_t dtype, int64_t v) {
    double r = (double)v;
    if (dtype == TN_F32) r = (double)(float)v;
    if (dtype == TN_BF16) r = (double)tmpl_from_bf16(tmpl_to_bf16((float)v));
    if (dtype == TN_F16) r = (double)tmpl_from_f16(tmpl_to_f16((float)v));
    return r >= 0x1p63 ? INT64_MAX : r < -0x1p63 ? INT64_MIN : (int64_t)r;
}

static int exponent_of(int64_t v) {
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    return u < 2 ? 0 : 63 - __builtin_clzll(u);
}

/* Bounds of a floating dtype move inwards to where rounding cannot lead out of [from, to). */
static int64_t inner_from(int32_t dtype, int64_t from) {
    int64_t next = through(dtype, from + 1);
    if (from == INT64_MAX || next >= from) return from;
    return next + (INT64_C(1) << (exponent_of(from + 1) - digits_of(dtype) + 1));
}

static int64_t inner_to(int32_t dtype, int64_t to) {
    int64_t last = through(dtype, to - 1);
    if (to == INT64_MIN || last < to) return to;
    return last - (INT64_C(1) << (exponent_of(to - 1) - digits_of(dtype) + 1));
}

static tn_status check_bound(const tn_call *call, int32_t dtype, const char *name, int64_t v) {
    static const double most[] = {[TN_F16] = 65504.0,
                                  [TN_BF16] = 3.3895313892515355e38,
                                  [TN_F32] = FLT_MAX,
                                  [TN_F64] = DBL_MAX};
    bool fits = digits_of(dtype) ? fabs((double)v) <= most[dtype]
                                 : v >= min_of(dtype) && v <= max_of(dtype);
    if (fits) return TN_OK;
    return call->host->fail(TN_E_STATE, 1, "%s is out of bounds for the dtype of self", name);
}

static tn_status draw_between(const tn_call *call, const tn_view *self, tn_generator *gen,
                              int64_t from, int64_t to) {
    int32_t dtype = tn_view_dtype(self);
    if (from >= to)
        return call->host->fail(TN_E_STATE, 1,
                                "random_ expects 'from' to be less than 'to', but got from=%lld >= "
                                "to=%lld",
                                (long long)from, (long long)to);
    if (digits_of(dtype)) {
        from = inner_from(dtype, from);
        to = inner_to(dtype, to);
        if (from >= to)
            return call->host->fail(TN_E_STATE, 1,
                                    "random_ expects 'from' casted to dtype to be less than 'to' "
                                    "casted to dtype, but got from=%lld >= to=%lld",
                                    (long long)from, (long long)to);
    }
    tn_status st = check_bound(call, dtype, "from", from);
    if (st == TN_OK) st = check_bound(call, dtype, "to - 1", to - 1);
    if (st != TN_OK) return st;
    uint64_t range = (uint64_t)to - (uint64_t)from;
    return draw_ints(call, self, gen, from, range, range >= UINT64_C(1) << 28);
}

/* From `from` to the largest number of the dtype, or the last up to which it holds every one. */
static tn_status draw_from(const tn_call *call, const tn_view *self, tn_generator *gen,
                           int64_t from) {
    int32_t dtype = tn_view_dtype(self);
    int64_t last = max_of(dtype);
    bool any = dtype == TN_I64 || dtype == TN_F64 || dtype == TN_F32 || dtype == TN_BF16;
    if (from == INT64_MIN) {
        if (any) return draw_ints(call, self, gen, 0, 0, true);
        return call->host->fail(TN_E_STATE, 1, "from is out of bounds for the dtype of self");
    }
    if (digits_of(dtype)) {
        last = INT64_C(1) << digits_of(dtype);
        from = inner_from(dtype, from);
        if (from >= last)
            return call->host->fail(TN_E_STATE, 1,
                                    "random_ expects 'from' casted to dtype to be less than or "
                                    "equal to 'to_inc' casted to dtype, but got from=%lld > "
                                    "to_inc=%lld",
                                    (long long)from, (long long)last);
    }
    tn_status st = check_bound(call, dtype, "from", from);
    if (st != TN_OK) return st;
    uint64_t range = (uint64_t)last - (uint64_t)from + 1;
    return draw_ints(call, self, gen, from, range, range == 0 || range >= UINT64_C(1) << 28);
}

static tn_status random_from(const tn_call *call, const void *args) {
    const tn_random__from_args *a = args;
    if (!a->to.has) return draw_from(call, a->self, a->generator, a->from);
    return draw_between(call, a->self, a->generator, a->from, a->to.value);
}

static tn_status random_to(const tn_call *call, const void *args) {
    const tn_random__to_args *a = args;
    return draw_between(call, a->self, a->generator, 0, a->to);
}

static tn_status random_any(const tn_call *call, const void *args) {
    const tn_random__args *a = args;
    int32_t dtype = tn_view_dtype(a->self);
    int digits = digits_of(dtype);
    uint64_t last = digits ? UINT64_C(1) << digits : (uint64_t)max_of(dtype);
    return draw_ints(call, a->self, a->generator, 0, last + 1, dtype == TN_I64 || dtype == TN_F64);
}

/* ---- bernoulli_ --------------------------------------------------------------------------------*/

static void toss_fill(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    uint8_t *x = numbers;
    uint32_t w[RND_GROUP_WORDS];
    uint64_t below = rnd_threshold(j->a);
    uint32_t last = below ? (uint32_t)(below - 1) : 0;
    uint8_t ever = below != 0;
    for (int64_t k = 0; k < n; k += RND_GROUP_WORDS) {
        rnd_group1(j, at + k, w);
        for (int i = 0; i < RND_GROUP_WORDS; i++) x[k + i] = (w[i] <= last) & ever;
    }
}

static void toss_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    uint8_t *x = numbers;
    (void)at;
    for (int64_t i = 0; i < n; i++) x[i] = rnd_mt_f64(rng) < j->a;
}

static void toss_each_fill(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    uint8_t *x = numbers;
    double p[RND_BATCH];
    uint32_t w[RND_GROUP_WORDS];
    rnd_load_other(&j->walk, at, n, p);
    for (int64_t k = 0; k < n; k += RND_GROUP_WORDS) {
        int64_t m = n - k < RND_GROUP_WORDS ? n - k : RND_GROUP_WORDS;
        rnd_group1(j, at + k, w);
        for (int64_t i = 0; i < m; i++) x[k + i] = w[i] < rnd_threshold(p[k + i]);
    }
}

static void toss_each_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    uint8_t *x = numbers;
    double p[RND_BATCH];
    bool wide = j->walk.other_dtype == TN_F64;
    rnd_load_other(&j->walk, at, n, p);
    for (int64_t i = 0; i < n; i++)
        x[i] = wide ? rnd_mt_f64(rng) < p[i] : rnd_mt_f32(rng) < (float)p[i];
}

static tn_status bernoulli(const tn_call *call, const void *args) {
    const tn_bernoulli__args *a = args;
    if (!(a->p >= 0.0 && a->p <= 1.0))
        return call->host->fail(TN_E_STATE, 1, "bernoulli_ expects p to be in [0, 1], but got p=%g",
                                a->p);
    rnd_job j = {.fill_kind = RND_U8,
                 .draw_kind = RND_U8,
                 .fill = toss_fill,
                 .draw = toss_draw,
                 .words = 1,
                 .a = a->p};
    return rnd_run(call, a->generator, &j, a->self, NULL);
}

static tn_status bernoulli_each(const tn_call *call, const void *args) {
    const tn_bernoulli__tensor_args *a = args;
    rnd_job j = {.fill_kind = RND_U8,
                 .draw_kind = RND_U8,
                 .fill = toss_each_fill,
                 .draw = toss_each_draw,
                 .words = 1};
    double p[RND_BATCH];
    rnd_walk_init(&j.walk, a->p, a->p, false);
    for (int64_t at = 0; at < a->p->numel; at += RND_BATCH) {
        int64_t left = a->p->numel - at, n = left < RND_BATCH ? left : RND_BATCH;
        tn_status st = at % (128 * RND_BATCH) == 0 ? cpu_poll() : TN_OK;
        if (st != TN_OK) return st;
        rnd_load_other(&j.walk, at, n, p);
        for (int64_t i = 0; i < n; i++)
            if (!(p[i] >= 0.0 && p[i] <= 1.0))
                return call->host->fail(TN_E_STATE, 1,
                                        "bernoulli_ expects p to be in [0, 1], but got p=%g", p[i]);
    }
    return rnd_run(call, a->generator, &j, a->self, a->p);
}

/* ---- dropout -----------------------------------------------------------------------------------
 * input, output and mask are dense and lie alike, so that all three are walked as one row; number i
 * belongs to the i-th element in memory. */

typedef struct drop {
    rnd_job toss;
    const tn_view *input;
    const tn_view *output, *mask;
    double scale;
} drop;

static void apply_half(const uint16_t *x, const uint8_t *keep, float scale, bool bf16, int64_t n,
                       uint16_t *y) {
    for (int64_t i = 0; i < n; i++) {
        float f = keep[i] ? scale : 0.0f;
        y[i] = bf16 ? tmpl_to_bf16(tmpl_from_bf16(x[i]) * f) : tmpl_to_f16(tmpl_from_f16(x[i]) * f);
    }
}

static void apply(const drop *d, int64_t at, int64_t n) {
    const char *x = (const char *)d->input->data + at * tn_view_itemsize(d->input);
    char *y = (char *)d->output->data + at * tn_view_itemsize(d->output);
    const uint8_t *keep = (const uint8_t *)d->mask->data + at;
    int32_t dtype = tn_view_dtype(d->input);
    if (dtype == TN_F32) {
        const float *fx = (const void *)x;
        float *fy = (void *)y, scale = (float)d->scale;
        for (int64_t i = 0; i < n; i++) fy[i] = fx[i] * (keep[i] ? scale : 0.0f);
    } else if (dtype == TN_F64) {
        const double *fx = (const void *)x;
        double *fy = (void *)y, scale = d->scale;
        for (int64_t i = 0; i < n; i++) fy[i] = fx[i] * (keep[i] ? scale : 0.0);
    } else {
        apply_half((const void *)x, keep, (float)d->scale, dtype == TN_BF16, n, (void *)y);
    }
}

static tn_status drop_batches(void *arg, int64_t begin, int64_t end) {
    const drop *d = arg;
    for (int64_t k = begin; k < end; k++) {
        int64_t at = k * RND_BATCH, left = d->input->numel - at;
        int64_t n = left < RND_BATCH ? left : RND_BATCH;
        uint8_t keep[RND_BATCH];
        toss_fill(&d->toss, at, n, keep);
        memcpy((uint8_t *)d->mask->data + at, keep, (size_t)n);
        apply(d, at, n);
    }
    return TN_OK;
}

static tn_status apply_range(void *arg, int64_t begin, int64_t end) {
    apply(arg, begin, end - begin);
    return TN_OK;
}

static bool alike(const tn_view *a, const tn_view *b) {
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1 && a->strides[i] != b->strides[i]) return false;
    return true;
}

static tn_status dropout(const tn_call *call, const void *args) {
    const tn__dropout_args *a = args;
    int64_t n = a->input->numel;
    tn_rng rng;
    drop d = {.toss = {.draw_kind = RND_U8, .draw = toss_draw, .words = 1, .a = 1.0 - a->p},
              .input = a->input,
              .output = a->output,
              .mask = a->mask,
              .scale = a->scale};
    if (n == 0) return TN_OK;
    if (!(a->input->word & TN_W_DENSE) || !alike(a->input, a->output) || !alike(a->input, a->mask))
        return TN_DECLINE;
    tn_status st = rnd_begin(call, a->generator, &d.toss, a->mask, &rng);
    if (st != TN_OK) return st;
    if (rng.kind == TN_RNG_PHILOX)
        return cpu_parallel((n + RND_BATCH - 1) / RND_BATCH, 16, drop_batches, &d);
    rnd_walk_init(&d.toss.walk, a->mask, NULL, true);
    st = rnd_draw_batches(call, a->generator, &d.toss, &rng);
    if (st != TN_OK) return st;
    call->host->rng_release(call, a->generator, &rng);
    return cpu_parallel(n, 16384, apply_range, &d);
}

#define ROW(op, sig, fn, dtype)                                                                    \
    { op, TN_SIG_##sig, fn, NULL, dtype, 0, 0, 0 }
#define FLOAT_ROWS(op, sig, fn)                                                                    \
    ROW(op, sig, fn, TN_F16), ROW(op, sig, fn, TN_BF16), ROW(op, sig, fn, TN_F32),                 \
        ROW(op, sig, fn, TN_F64)
#define REAL_ROWS(op, sig, fn)                                                                     \
    ROW(op, sig, fn, TN_BOOL), ROW(op, sig, fn, TN_U8), ROW(op, sig, fn, TN_I8),                   \
        ROW(op, sig, fn, TN_I16), ROW(op, sig, fn, TN_I32), ROW(op, sig, fn, TN_I64),              \
        FLOAT_ROWS(op, sig, fn)
static const tn_kernel_row rows[] = {
    REAL_ROWS("random__from", random__from, random_from),
    REAL_ROWS("random__to", random__to, random_to),
    REAL_ROWS("random_", random_, random_any),
    REAL_ROWS("bernoulli_", bernoulli_, bernoulli),
    REAL_ROWS("bernoulli__tensor", bernoulli__tensor, bernoulli_each),
    FLOAT_ROWS("_dropout", _dropout, dropout),
};
#undef ROW
const cpu_rows ISA_(cpu_random_int_rows) = CPU_ROWS_OF(rows);
