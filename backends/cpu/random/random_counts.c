/* random_counts.c: numbers of events and sums of waiting times (common/counts.h), whose parameters
 * stand in other tensors.
 *
 * With mt19937 the numbers are PyTorch's. An element takes as many numbers as it needs: with Philox
 * they come from a stream of its own, whose start is the element's number of two words.
 *
 * family: counts; isa: each */
#include <math.h>

#include <tenon/args_random.h>

#include "random_priv.h"

#define COUNTS_MT_F64 rnd_mt_f64
#define COUNTS_MT_NORMAL rnd_mt_normal
#include "common/counts.h"

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

static double one(const counts *c, counts_source *s, double first, double second) {
    switch (c->law) {
    case BINOMIAL: return counts_binomial_one(s, first, second);
    case GAMMA: {
        double x = counts_gamma_one(s, first), low = least(c->job.walk.dtype);
        return x < low ? low : x;
    }
    default: return counts_poisson_one(s, first);
    }
}

static void one_batch(const counts *c, tn_rng *rng, int64_t at, int64_t n, double *x) {
    double first[RND_BATCH], second[RND_BATCH];
    rnd_load_other(&c->job.walk, at, n, first);
    if (c->law == BINOMIAL) rnd_load_other(&c->second, at, n, second);
    for (int64_t i = 0; i < n; i++) {
        counts_source s = {rng, rng ? 0 : rnd_word64(c->job.seed, c->job.offset, at + i)};
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
