/* random_index.c: permutations and draws of column numbers. Both are serial: every draw depends on
 * those before it, or on a whole row.
 *
 * family: random_index; isa: each */
#include "random_priv.h"

#include <math.h>

#include <tenon/args_random.h>

#include "common/draw.h"
#include "random_math.h"

__extension__ typedef unsigned __int128 u128;

/* ---- Two-word numbers one after the other ------------------------------------------------------*/

/* Philox numbers by index, or the stream of mt19937. */
typedef struct source {
    tn_rng rng;
    rnd_job job;
    int64_t at; /* index of the next number */
    uint64_t words[32];
} source;

static tn_status open_source(const tn_call *call, tn_generator *gen, int64_t n, source *s) {
    s->at = 0;
    tn_status st = call->host->rng_acquire(call, gen, rnd_blocks(n, 2), &s->rng);
    if (st != TN_OK || s->rng.kind == TN_RNG_MT19937) return st;
    s->job.seed = s->rng.seed;
    s->job.offset = s->rng.offset;
    call->host->rng_release(call, gen, &s->rng);
    return TN_OK;
}

static void close_source(const tn_call *call, tn_generator *gen, source *s) {
    if (s->rng.kind == TN_RNG_MT19937) call->host->rng_release(call, gen, &s->rng);
}

static uint64_t next_philox(source *s) {
    if (s->at % 32 == 0) rnd_group2(&s->job, s->at, s->words);
    return s->words[s->at++ % 32];
}

static uint64_t next_below(source *s, uint64_t range) {
    if (s->rng.kind == TN_RNG_MT19937) return rnd_mt_word(&s->rng) % range;
    return (uint64_t)((u128)next_philox(s) * range >> 64);
}

static double next_uniform(source *s) {
    if (s->rng.kind == TN_RNG_MT19937) return rnd_mt_f64(&s->rng);
    return rnd_f64_of(next_philox(s));
}

static double next_exponential(source *s) {
    if (s->rng.kind == TN_RNG_MT19937) return -1.0 * log1p(-rnd_mt_f64(&s->rng));
    return -log(rnd_open_f64(next_philox(s)));
}

/* ---- randperm ----------------------------------------------------------------------------------*/

/* Exchanges whose places are drawn, and asked of the memory, ahead of time. */
#define AHEAD 32

static tn_status randperm(const tn_call *call, const void *args) {
    const tn__randperm__args *a = args;
    int64_t n = a->self->numel, *p = a->self->data;
    source s;
    if (!tn_view_is_contiguous(a->self)) return TN_DECLINE;
    tn_status st = open_source(call, a->generator, n, &s);
    if (st != TN_OK) return st;
    for (int64_t i = 0; i < n; i++) p[i] = i;
    int64_t place[AHEAD];
    for (int64_t i = 0; i < n - 1 && st == TN_OK; i += AHEAD) {
        int64_t count = n - 1 - i < AHEAD ? n - 1 - i : AHEAD;
        if (i % 65536 == 0) st = cpu_poll();
        for (int64_t j = 0; j < count; j++) {
            place[j] = i + j + (int64_t)next_below(&s, (uint64_t)(n - i - j));
            __builtin_prefetch(&p[place[j]], 1);
        }
        for (int64_t j = 0; j < count; j++) {
            int64_t t = p[i + j];
            p[i + j] = p[place[j]];
            p[place[j]] = t;
        }
    }
    close_source(call, a->generator, &s);
    return st;
}

/* ---- multinomial -------------------------------------------------------------------------------*/

typedef struct pick {
    double weight;
    int64_t column;
} pick;

static double element(const tn_view *v, int64_t i) {
    switch (tn_view_dtype(v)) {
    case TN_F16: return (double)tmpl_from_f16(((const uint16_t *)v->data)[i]);
    case TN_BF16: return (double)tmpl_from_bf16(((const uint16_t *)v->data)[i]);
    case TN_F32: return (double)((const float *)v->data)[i];
    default: return ((const double *)v->data)[i];
    }
}

/* x rounded to the dtype. */
static double rounded(int32_t dtype, double x) {
    float f = (float)x;
    switch (dtype) {
    case TN_F16: return (double)tmpl_from_f16(tmpl_to_f16(f));
    case TN_BF16: return (double)tmpl_from_bf16(tmpl_to_bf16(f));
    case TN_F32: return (double)f;
    default: return x;
    }
}

static tn_status check_weights(const tn_call *call, const tn_view *v, int64_t rows, int64_t columns,
                               bool search) {
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t c = 0; c < columns; c++) {
            double w = element(v, r * columns + c);
            sum += w;
            if (w >= 0.0 && w < (double)INFINITY) continue;
            if (!search)
                return call->host->fail(TN_E_STATE, 0,
                                        "probability tensor contains either `inf`, `nan` or "
                                        "element < 0");
            return call->host->fail(TN_E_STATE, 0,
                                    "invalid multinomial distribution (encountering probability "
                                    "entry %s)",
                                    w < 0.0 ? "< 0" : "= infinity or NaN");
        }
        if (!(sum > 0.0))
            return call->host->fail(TN_E_STATE, 0,
                                    "invalid multinomial distribution (sum of probabilities <= 0)");
    }
    return TN_OK;
}

/* Sums run in the precision of the weights (float for the halves), as PyTorch's do. */
static void sum_up(const tn_view *v, int64_t row, int64_t columns, double *dst) {
    bool wide = tn_view_dtype(v) == TN_F64;
    double sum = 0.0;
    for (int64_t c = 0; c < columns; c++) {
        sum += element(v, row * columns + c);
        if (!wide) sum = (double)(float)sum;
        dst[c] = sum;
    }
    for (int64_t c = 0; c < columns; c++) {
        dst[c] /= sum;
        if (!wide) dst[c] = (double)(float)dst[c];
    }
    dst[columns - 1] = 1.0;
}

/* Order of the results: heavier first, of equal ones the first column. */
static bool before(const pick *a, const pick *b) {
    return a->weight > b->weight || (a->weight == b->weight && a->column < b->column);
}

/* heap[0] comes last of all; restores that below position i. */
static void sift_down(pick *heap, int64_t n, int64_t i) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&heap[child], &heap[child + 1])) child++;
        if (!before(&heap[i], &heap[child])) return;
        pick t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* Weights divided by exponential numbers: the largest are a draw without replacement. */
static void pick_largest(const tn_view *v, int64_t row, int64_t columns, int64_t k, source *s,
                         pick *heap, int64_t *dst) {
    int32_t dtype = tn_view_dtype(v);
    for (int64_t c = 0; c < columns; c++) {
        double q = rounded(dtype, next_exponential(s));
        pick p = {rounded(dtype, element(v, row * columns + c) / q), c};
        if (c < k) {
            heap[c] = p;
            if (c == k - 1)
                for (int64_t i = k / 2; i-- > 0;) sift_down(heap, k, i);
        } else if (before(&p, &heap[0])) {
            heap[0] = p;
            sift_down(heap, k, 0);
        }
    }
    for (int64_t n = k; n-- > 0;) {
        dst[n] = heap[0].column;
        heap[0] = heap[n];
        sift_down(heap, n, 0);
    }
}

static tn_status multinomial(const tn_call *call, const void *args) {
    const tn_multinomial_args *a = args;
    const tn_view *v = a->input;
    int64_t rows = v->ndim == 2 ? v->shape[0] : 1, columns = v->shape[v->ndim - 1];
    int64_t k = a->num_samples, *dst = a->out->data;
    bool search = a->replacement && k > 1; /* a single draw is one without replacement */
    double *sums = NULL;
    pick *heap = NULL;
    source s;
    if (rows == 0) return TN_OK;
    tn_status st = check_weights(call, v, rows, columns, search);
    if (st != TN_OK) return st;
    if (search)
        st = room_scratch(call, columns, sizeof *sums, (void **)(void *)&sums);
    else
        st = room_scratch(call, k, sizeof *heap, (void **)(void *)&heap);
    if (st != TN_OK) return st;
    st = open_source(call, a->generator, rows * (search ? k : columns), &s);
    if (st != TN_OK) return st;
    for (int64_t r = 0; r < rows; r++, dst += k) {
        if (!search) {
            pick_largest(v, r, columns, k, &s, heap, dst);
            continue;
        }
        sum_up(v, r, columns, sums);
        for (int64_t i = 0; i < k; i++) dst[i] = draw_find(sums, columns, next_uniform(&s));
    }
    close_source(call, a->generator, &s);
    return TN_OK;
}

static const tn_kernel_row rows[] = {
    {"_randperm_", TN_SIG__randperm_, randperm, NULL, TN_I64, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_F16, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_BF16, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_F32, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_F64, 0, 0, 0},
};
const cpu_rows ISA_(cpu_random_index_rows) = CPU_ROWS_OF(rows);
