/* random_counts.c: numbers of events, drawn by the Poisson and the binomial distribution, and sums of
 * waiting times, by the gamma distribution, whose parameters stand in other tensors.
 *
 * Hoermann's transformed rejection (PTRS, BTRS) where many events are expected, products and sums
 * of uniform numbers where few are; Marsaglia's and Tsang's cube of a normal number for the gamma
 * distribution. With mt19937 the numbers are PyTorch's. An element takes as many numbers as it
 * needs: with Philox they come from a stream of its own, whose start is the element's number of two words.
 *
 * family: counts; isa: each */
#include <math.h>

#include <tenon/args_random.h>

#include "random_priv.h"

/* Where uniform numbers come from: the generator, or a stream that counts by a fixed odd step and
 * mixes what it has counted. */
typedef struct source {
    tn_rng *rng; /* or NULL */
    uint64_t state;
} source;

static double uniform(source *s) {
    if (s->rng) return rnd_mt_f64(s->rng);
    uint64_t z = s->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return rnd_f64_of(z ^ (z >> 31));
}

/* ---- Poisson -----------------------------------------------------------------------------------*/

static double poisson_many(source *s, double rate) {
    double root = sqrt(rate), log_rate = log(rate), b = 0.931 + 2.53 * root;
    double a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4);
    double sure = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = uniform(s) - 0.5, v = uniform(s), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= sure) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        double left = log(v) + log(inverse) - log(a / (us * us) + b);
        if (left <= -rate + k * log_rate - lgamma(k + 1)) return k;
    }
}

static double poisson_one(source *s, double rate) {
    if (rate == (double)INFINITY) return rate;
    if (rate >= 10) return poisson_many(s, rate);
    if (rate == 0) return 0;
    double end = exp(-rate), product = uniform(s), k = 0;
    for (; product > end; k++) product *= uniform(s);
    return k;
}

/* ---- Binomial ----------------------------------------------------------------------------------*/

/* What Stirling's formula leaves of log k!. */
static double stirling_rest(double k) {
    static const double first[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                                   0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                                   0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                                   0.00833056343336287};
    if (k <= 9) return first[(int)k];
    double square = (k + 1) * (k + 1);
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

static double binomial_many(source *s, double count, double p) {
    double deviation = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation;
    double a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5, sure = 0.92 - 4.2 / b;
    double r = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation, m = floor((count + 1) * p);
    for (;;) {
        double u = uniform(s) - 0.5, v = uniform(s), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + c);
        if (us >= 0.07 && v <= sure) return k;
        if (k < 0 || k > count) continue;
        v = log(v * alpha / (a / (us * us) + b));
        double most = (m + 0.5) * log((m + 1) / (r * (count - m + 1))) +
                      (count + 1) * log((count - m + 1) / (count - k + 1)) +
                      (k + 0.5) * log(r * (count - k + 1) / (k + 1)) + stirling_rest(m) +
                      stirling_rest(count - m) - stirling_rest(k) - stirling_rest(count - k);
        if (v <= most) return k;
    }
}

/* Gaps between successes until they reach beyond the trials. */
static double binomial_few(source *s, double count, double p) {
    double scale = log1p(-p), sum = 0;
    for (double k = 0;; k++) {
        sum += ceil(log(uniform(s)) / scale);
        if (!(sum <= count)) return k;
    }
}

static double successes(source *s, double count, double p) {
    return count * p >= 10 ? binomial_many(s, count, p) : binomial_few(s, count, p);
}

static double binomial_one(source *s, double count, double p) {
    if (count <= 0 || p <= 0) return 0;
    if (p >= 1) return count;
    if (p != p || !(count < (double)INFINITY)) return (double)NAN;
    return p <= 0.5 ? successes(s, count, p) : count - successes(s, count, 1 - p);
}

/* ---- Gamma -------------------------------------------------------------------------------------*/

static double normal(source *s) {
    if (s->rng) return rnd_mt_normal(s->rng);
    double radius = sqrt(-2 * log1p(-uniform(s)));
    return radius * cos(2 * 3.14159265358979323846 * uniform(s));
}

/* A draw for a shape below 1 is one for the next shape, made smaller by a power of a uniform number. */
static double gamma_one(source *s, double shape) {
    double scale = 1;
    if (shape == 0) return 0;
    if (!(shape > 0)) return (double)NAN;
    if (shape < 1) {
        scale = pow(1 - uniform(s), 1 / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(s), y = 1 + c * x;
        if (y <= 0) continue;
        double v = y * y * y, u = 1 - uniform(s), square = x * x;
        /* The squeeze, whose factor PyTorch has in single precision. */
        if (u < 1 - (double)0.0331f * square * square) return scale * d * v;
        if (log(u) < 0.5 * square + d * (1 - v + log(v))) return scale * d * v;
    }
}

/* The smallest normal number: what a draw that underflows becomes. */
static double least(int32_t dtype) {
    return dtype == TN_F64 ? 0x1p-1022 : dtype == TN_F16 ? 0x1p-14 : 0x1p-126;
}

/* ---- Jobs --------------------------------------------------------------------------------------*/

enum law { POISSON, BINOMIAL, GAMMA };

typedef struct counts {
    rnd_job job;
    rnd_walk second; /* the binomial's probabilities */
    enum law law;
} counts;

static double one(const counts *c, source *s, double first, double second) {
    switch (c->law) {
    case BINOMIAL: return binomial_one(s, first, second);
    case GAMMA: {
        double x = gamma_one(s, first), low = least(c->job.walk.dtype);
        return x < low ? low : x;
    }
    default: return poisson_one(s, first);
    }
}

static void one_batch(const counts *c, tn_rng *rng, int64_t at, int64_t n, double *x) {
    double first[RND_BATCH], second[RND_BATCH];
    rnd_load_other(&c->job.walk, at, n, first);
    if (c->law == BINOMIAL) rnd_load_other(&c->second, at, n, second);
    for (int64_t i = 0; i < n; i++) {
        source s = {rng, rng ? 0 : rnd_word64(c->job.seed, c->job.offset, at + i)};
        x[i] = one(c, &s, first[i], c->law == BINOMIAL ? second[i] : 0);
    }
}

static void counts_fill(const rnd_job *j, int64_t at, int64_t n, void *numbers) {
    one_batch((const counts *)(const void *)j, NULL, at, n, numbers);
}

static void counts_draw(const rnd_job *j, tn_rng *rng, int64_t at, int64_t n, void *numbers) {
    one_batch((const counts *)(const void *)j, rng, at, n, numbers);
}

static counts counts_of(enum law law) {
    return (counts){.job = {.fill_kind = RND_F64,
                            .draw_kind = RND_F64,
                            .fill = counts_fill,
                            .draw = counts_draw,
                            .words = 2},
                    .law = law};
}

static tn_status check(const tn_call *call, const tn_view *v, const char *text) {
    rnd_walk w;
    double x[RND_BATCH];
    rnd_walk_init(&w, v, v, false);
    for (int64_t at = 0; at < v->numel; at += RND_BATCH) {
        int64_t left = v->numel - at, n = left < RND_BATCH ? left : RND_BATCH;
        tn_status st = at % (128 * RND_BATCH) == 0 ? cpu_poll() : TN_OK;
        if (st != TN_OK) return st;
        rnd_load_other(&w, at, n, x);
        for (int64_t i = 0; i < n; i++)
            if (!(x[i] >= 0)) return call->host->fail(TN_E_STATE, 1, "%s", text);
    }
    return TN_OK;
}

static tn_status poisson(const tn_call *call, const void *args) {
    const tn__poisson__args *a = args;
    counts c = counts_of(POISSON);
    tn_status st = check(call, a->rate, "invalid Poisson rate, expected rate to be non-negative");
    return st != TN_OK ? st : rnd_run(call, a->generator, &c.job, a->self, a->rate);
}

static tn_status binomial(const tn_call *call, const void *args) {
    const tn__binomial__args *a = args;
    counts c = counts_of(BINOMIAL);
    rnd_walk_init(&c.second, a->self, a->prob, false); /* self is packed: one order for both */
    return rnd_run(call, a->generator, &c.job, a->self, a->count);
}

static tn_status standard_gamma(const tn_call *call, const void *args) {
    const tn__standard_gamma__args *a = args;
    counts c = counts_of(GAMMA);
    return rnd_run(call, a->generator, &c.job, a->self, a->concentration);
}

#define ROW(op, fn, dtype)                                                                         \
    { op, TN_SIG__##fn##_, fn, NULL, dtype, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW("_poisson_", poisson, TN_F16),
    ROW("_poisson_", poisson, TN_BF16),
    ROW("_poisson_", poisson, TN_F32),
    ROW("_poisson_", poisson, TN_F64),
    ROW("_binomial_", binomial, TN_F16),
    ROW("_binomial_", binomial, TN_BF16),
    ROW("_binomial_", binomial, TN_F32),
    ROW("_binomial_", binomial, TN_F64),
    ROW("_standard_gamma_", standard_gamma, TN_F16),
    ROW("_standard_gamma_", standard_gamma, TN_BF16),
    ROW("_standard_gamma_", standard_gamma, TN_F32),
    ROW("_standard_gamma_", standard_gamma, TN_F64),
};
#undef ROW
const cpu_rows ISA_(cpu_counts_rows) = CPU_ROWS_OF(rows);
