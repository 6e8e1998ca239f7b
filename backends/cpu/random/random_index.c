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

/* Philox numbers by index, or the stream of mt19937: its numbers are drawn between source_take and
 * source_drop, and interrupts are heard outside, since whoever answers may want to draw. */
typedef struct source {
    const tn_call *call;
    tn_generator *gen;
    tn_rng rng;
    rnd_job job;
    int64_t at; /* index of the next number */
    uint64_t words[32];
} source;

static tn_status source_open(const tn_call *call, tn_generator *gen, int64_t n, source *s) {
    s->call = call;
    s->gen = gen;
    s->at = 0;
    tn_status st = call->host->rng_acquire(call, gen, rnd_blocks(n, 2), &s->rng);
    if (st != TN_OK) return st;
    s->job.seed = s->rng.seed;
    s->job.offset = s->rng.offset;
    call->host->rng_release(call, gen, &s->rng);
    return TN_OK;
}

static tn_status source_take(source *s) {
    return s->rng.kind == TN_RNG_MT19937 ? rnd_mt_take(s->call, s->gen, &s->rng) : TN_OK;
}

static void source_drop(source *s) {
    if (s->rng.kind == TN_RNG_MT19937) s->call->host->rng_release(s->call, s->gen, &s->rng);
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

static void exchange(source *s, int64_t *p, int64_t n, int64_t begin, int64_t end) {
    int64_t place[AHEAD];
    for (int64_t i = begin; i < end; i += AHEAD) {
        int64_t count = end - i < AHEAD ? end - i : AHEAD;
        for (int64_t j = 0; j < count; j++) {
            place[j] = i + j + (int64_t)next_below(s, (uint64_t)(n - i - j));
            __builtin_prefetch(&p[place[j]], 1);
        }
        for (int64_t j = 0; j < count; j++) {
            int64_t t = p[i + j];
            p[i + j] = p[place[j]];
            p[place[j]] = t;
        }
    }
}

static tn_status randperm(const tn_call *call, const void *args) {
    const tn__randperm__args *a = args;
    int64_t n = a->self->numel, *p = a->self->data;
    source s;
    if (!tn_view_is_contiguous(a->self)) return TN_DECLINE;
    tn_status st = source_open(call, a->generator, n, &s);
    cpu_stretch in = {.n = n, .cost = 1}, all = {.n = n - 1, .cost = 1};
    while (st == TN_OK && cpu_next_stretch(&in))
        for (int64_t i = in.begin; i < in.end; i++) p[i] = i;
    if (st == TN_OK) st = in.st;
    while (st == TN_OK && cpu_next_stretch(&all)) {
        st = source_take(&s);
        if (st != TN_OK) break;
        exchange(&s, p, n, all.begin, all.end);
        source_drop(&s);
    }
    return st ? st : all.st;
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

static tn_status check_row(const tn_call *call, const tn_view *v, int64_t row, int64_t columns,
                           bool search) {
    double sum = 0.0;
    cpu_stretch s = {.n = columns, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t c = s.begin; c < s.end; c++) {
            double w = element(v, row * columns + c);
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
    }
    if (s.st != TN_OK || sum > 0.0) return s.st;
    return call->host->fail(TN_E_STATE, 0,
                            "invalid multinomial distribution (sum of probabilities <= 0)");
}

static tn_status check_weights(const tn_call *call, const tn_view *v, int64_t rows, int64_t columns,
                               bool search) {
    tn_status st = TN_OK;
    cpu_stretch s = {.n = rows, .cost = columns};
    while (st == TN_OK && cpu_next_stretch(&s))
        for (int64_t r = s.begin; r < s.end && st == TN_OK; r++)
            st = check_row(call, v, r, columns, search);
    return st ? st : s.st;
}

/* Sums run in the precision of the weights (float for the halves), as PyTorch's do. */
static tn_status sum_up(const tn_view *v, int64_t row, int64_t columns, double *dst) {
    bool wide = tn_view_dtype(v) == TN_F64;
    double sum = 0.0;
    cpu_stretch up = {.n = columns, .cost = 1}, down = up;
    while (cpu_next_stretch(&up)) {
        for (int64_t c = up.begin; c < up.end; c++) {
            sum += element(v, row * columns + c);
            if (!wide) sum = (double)(float)sum;
            dst[c] = sum;
        }
    }
    while (up.st == TN_OK && cpu_next_stretch(&down)) {
        for (int64_t c = down.begin; c < down.end; c++) {
            dst[c] /= sum;
            if (!wide) dst[c] = (double)(float)dst[c];
        }
    }
    dst[columns - 1] = 1.0;
    return up.st ? up.st : down.st;
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

/* Column c joins the heap of the k that come first. */
static void offer(pick *heap, int64_t k, double weight, int64_t c) {
    pick p = {weight, c};
    if (c < k) {
        heap[c] = p;
        if (c == k - 1)
            for (int64_t i = k / 2; i-- > 0;) sift_down(heap, k, i);
    } else if (before(&p, &heap[0])) {
        heap[0] = p;
        sift_down(heap, k, 0);
    }
}

/* Weights divided by exponential numbers: the largest are a draw without replacement. */
static tn_status pick_largest(const tn_view *v, int64_t row, int64_t columns, int64_t k, source *s,
                              pick *heap, int64_t *dst) {
    int32_t dtype = tn_view_dtype(v);
    cpu_stretch in = {.n = columns, .cost = 1}, out = {.n = k, .cost = 1};
    while (cpu_next_stretch(&in)) {
        tn_status st = source_take(s);
        if (st != TN_OK) return st;
        for (int64_t c = in.begin; c < in.end; c++) {
            double q = rounded(dtype, next_exponential(s));
            offer(heap, k, rounded(dtype, element(v, row * columns + c) / q), c);
        }
        source_drop(s);
    }
    while (in.st == TN_OK && cpu_next_stretch(&out)) {
        for (int64_t i = out.begin; i < out.end; i++) {
            int64_t n = k - 1 - i;
            dst[n] = heap[0].column;
            heap[0] = heap[n];
            sift_down(heap, n, 0);
        }
    }
    return in.st ? in.st : out.st;
}

static tn_status search_sums(const double *sums, int64_t columns, int64_t k, source *s,
                             int64_t *dst) {
    cpu_stretch all = {.n = k, .cost = 1};
    while (cpu_next_stretch(&all)) {
        tn_status st = source_take(s);
        if (st != TN_OK) return st;
        for (int64_t i = all.begin; i < all.end; i++)
            dst[i] = draw_find(sums, columns, next_uniform(s));
        source_drop(s);
    }
    return all.st;
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
    st = source_open(call, a->generator, rows * (search ? k : columns), &s);
    cpu_stretch all = {.n = rows, .cost = search ? columns + k : columns};
    while (st == TN_OK && cpu_next_stretch(&all)) {
        for (int64_t r = all.begin; r < all.end && st == TN_OK; r++, dst += k) {
            st = search ? sum_up(v, r, columns, sums)
                        : pick_largest(v, r, columns, k, &s, heap, dst);
            if (search && st == TN_OK) st = search_sums(sums, columns, k, &s, dst);
        }
    }
    return st ? st : all.st;
}

static const tn_kernel_row rows[] = {
    {"_randperm_", TN_SIG__randperm_, randperm, NULL, TN_I64, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_F16, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_BF16, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_F32, 0, 0, 0},
    {"multinomial", TN_SIG_multinomial, multinomial, NULL, TN_F64, 0, 0, 0},
};
const cpu_rows ISA_(cpu_random_index_rows) = CPU_ROWS_OF(rows);
