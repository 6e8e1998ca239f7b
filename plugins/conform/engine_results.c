/* engine_results.c: what exchanges compute and move, of every kind, dtype and size, asked of the engine
 * itself, without core. Every rank can tell what every other one has put in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

enum { GUARD = 64, FLIGHT = 16 };
#define LATE_SECONDS 0.15

static const int32_t dtypes[] = {TN_U8, TN_I8, TN_I32, TN_I64, TN_F32, TN_F64};
static const int64_t counts[] = {0, 1, 7, 5000, 100003};
#define LENGTH(a) ((int32_t)(sizeof(a) / sizeof *(a)))

/* ---- Elements ----------------------------------------------------------------------------------*/

static cf_block block_new(int64_t count, int32_t dtype) {
    return cf_block_new((size_t)count * (size_t)tn_dtype_size(dtype), GUARD);
}

static double element(const void *at, int32_t dtype, int64_t i) {
    switch (dtype) {
    case TN_U8: return ((const uint8_t *)at)[i];
    case TN_I8: return ((const int8_t *)at)[i];
    case TN_I32: return ((const int32_t *)at)[i];
    case TN_I64: return (double)((const int64_t *)at)[i];
    case TN_F32: return (double)((const float *)at)[i];
    default: return ((const double *)at)[i];
    }
}

static void set_element(void *at, int32_t dtype, int64_t i, double v) {
    switch (dtype) {
    case TN_U8: ((uint8_t *)at)[i] = (uint8_t)(int64_t)v; break;
    case TN_I8: ((int8_t *)at)[i] = (int8_t)(int64_t)v; break;
    case TN_I32: ((int32_t *)at)[i] = (int32_t)v; break;
    case TN_I64: ((int64_t *)at)[i] = (int64_t)v; break;
    case TN_F32: ((float *)at)[i] = (float)v; break;
    default: ((double *)at)[i] = v;
    }
}

/* Element i of a rank: small, so that sums are exact, of each dtype's range, and of both signs. */
static double given(int32_t rank, int64_t i, int32_t dtype) {
    double v = (double)((i * 7 + rank * 13 + i / 31) % 3);
    return dtype == TN_U8 ? v : v - 1;
}

static void fill(const cf_block *b, int32_t rank, int64_t first, int64_t n, int32_t dtype) {
    for (int64_t i = 0; i < n; i++) set_element(b->at, dtype, i, given(rank, first + i, dtype));
}

/* Element i of the reduction over all of `size` ranks. */
static double reduced(uint32_t op, int32_t size, int64_t i, int32_t dtype) {
    double v = given(0, i, dtype);
    int64_t bits = (int64_t)v;
    for (int32_t r = 1; r < size; r++) {
        double w = given(r, i, dtype);
        int64_t b = (int64_t)w;
        v = op == TN_EXCHANGE_SUM       ? v + w
            : op == TN_EXCHANGE_PRODUCT ? v * w
            : op == TN_EXCHANGE_MIN     ? fmin(v, w)
                                        : fmax(v, w);
        bits = op == TN_EXCHANGE_BAND ? bits & b : op == TN_EXCHANGE_BOR ? bits | b : bits ^ b;
    }
    return op >= TN_EXCHANGE_BAND ? (double)bits : v;
}

/* A result, element by element: `want` says what each of them is. */
typedef double (*want_fn)(const cf_rank *r, const tn_exchange *x, int64_t i);

static void compare(cf_rank *r, const tn_exchange *x, const void *got, int64_t n, want_fn want) {
    r->cases++;
    for (int64_t i = 0; i < n; i++) {
        double g = element(got, x->dtype, i), w, held = 0;
        set_element(&held, x->dtype, 0, want(r, x, i));
        w = element(&held, x->dtype, 0);
        if (g == w) continue;
        cf_rank_fail(r, "%s: element %lld is %g, not %g", cf_exchange_text(x), (long long)i, g, w);
        return;
    }
}

static double want_own(const cf_rank *r, const tn_exchange *x, int64_t i) {
    return given(r->rank, i, x->dtype);
}

static double want_reduced(const cf_rank *r, const tn_exchange *x, int64_t i) {
    return reduced(x->op, r->size, i, x->dtype);
}

static double want_reduced_part(const cf_rank *r, const tn_exchange *x, int64_t i) {
    return reduced(x->op, r->size, r->rank * x->count + i, x->dtype);
}

static double want_root(const cf_rank *r, const tn_exchange *x, int64_t i) {
    (void)r;
    return given(x->peer, i, x->dtype);
}

static double want_gathered(const cf_rank *r, const tn_exchange *x, int64_t i) {
    (void)r;
    return given((int32_t)(i / x->count), i % x->count, x->dtype);
}

/* ---- Reductions and movements ------------------------------------------------------------------*/

static int64_t timeout_ms(const cf_rank *r) { return (int64_t)(1e3 * r->options->timeout); }

static void each_case(cf_rank *r, tn_exchange x, void (*one)(cf_rank *r, tn_exchange x)) {
    x.timeout_ms = timeout_ms(r);
    for (int32_t d = 0; d < LENGTH(dtypes); d++)
        for (int32_t c = 0; c < LENGTH(counts) && !r->lost; c++) {
            x.dtype = x.element = dtypes[d];
            x.count = counts[c];
            one(r, x);
        }
}

static void each_op(cf_rank *r, tn_exchange x, void (*one)(cf_rank *r, tn_exchange x)) {
    bool whole = x.dtype != TN_F32 && x.dtype != TN_F64;
    for (x.op = 0; x.op < (whole ? TN_EXCHANGE_OPS : TN_EXCHANGE_BAND) && !r->lost; x.op++)
        one(r, x);
}

static void one_all_reduce(cf_rank *r, tn_exchange x) {
    cf_block out = block_new(x.count, x.dtype);
    fill(&out, r->rank, 0, x.count, x.dtype);
    x.out = out.at;
    if (cf_rank_exchange(r, r->world, &x)) compare(r, &x, out.at, x.count, want_reduced);
    if (!r->lost) cf_block_free(r, &out, &x);
}

static void ops_all_reduce(cf_rank *r, tn_exchange x) { each_op(r, x, one_all_reduce); }

static void check_all_reduce(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_ALL_REDUCE}, ops_all_reduce);
}

static void one_reduce(cf_rank *r, tn_exchange x) {
    cf_block out = block_new(x.count, x.dtype);
    fill(&out, r->rank, 0, x.count, x.dtype);
    x.out = out.at;
    x.peer = (int32_t)(x.op % (uint32_t)r->size);
    if (cf_rank_exchange(r, r->world, &x) && r->rank == x.peer)
        compare(r, &x, out.at, x.count, want_reduced);
    if (!r->lost) cf_block_free(r, &out, &x);
}

static void ops_reduce(cf_rank *r, tn_exchange x) { each_op(r, x, one_reduce); }

static void check_reduce(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_REDUCE}, ops_reduce);
}

static void one_reduce_scatter(cf_rank *r, tn_exchange x) {
    int64_t all = x.count * r->size;
    cf_block in = block_new(all, x.dtype), out = block_new(x.count, x.dtype);
    fill(&in, r->rank, 0, all, x.dtype);
    x.in = in.at;
    x.out = out.at;
    if (cf_rank_exchange(r, r->world, &x)) {
        compare(r, &x, out.at, x.count, want_reduced_part);
        compare(r, &x, in.at, all, want_own);
    }
    if (r->lost) return;
    cf_block_free(r, &in, &x);
    cf_block_free(r, &out, &x);
}

static void ops_reduce_scatter(cf_rank *r, tn_exchange x) { each_op(r, x, one_reduce_scatter); }

static void check_reduce_scatter(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_REDUCE_SCATTER}, ops_reduce_scatter);
}

static void one_broadcast(cf_rank *r, tn_exchange x) {
    for (x.peer = 0; x.peer < r->size && !r->lost; x.peer++) {
        cf_block out = block_new(x.count, x.dtype);
        fill(&out, r->rank, 0, x.count, x.dtype);
        x.out = out.at;
        if (cf_rank_exchange(r, r->world, &x)) compare(r, &x, out.at, x.count, want_root);
        if (!r->lost) cf_block_free(r, &out, &x);
    }
}

static void check_broadcast(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_BROADCAST}, one_broadcast);
}

static void one_all_gather(cf_rank *r, tn_exchange x) {
    cf_block in = block_new(x.count, x.dtype), out = block_new(x.count * r->size, x.dtype);
    fill(&in, r->rank, 0, x.count, x.dtype);
    x.in = in.at;
    x.out = out.at;
    if (cf_rank_exchange(r, r->world, &x)) {
        compare(r, &x, out.at, x.count * r->size, want_gathered);
        compare(r, &x, in.at, x.count, want_own);
    }
    if (r->lost) return;
    cf_block_free(r, &in, &x);
    cf_block_free(r, &out, &x);
}

static void check_all_gather(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_ALL_GATHER}, one_all_gather);
}

/* Elements that go from one rank to another: none at times, and never as many both ways. */
static int64_t between(int32_t from, int32_t to, int64_t count) {
    return (from + 2 * to) % 4 * count;
}

static int64_t before(int32_t from, int32_t to, int64_t count, bool of_sender) {
    int64_t n = 0;
    for (int32_t r = 0; r < (of_sender ? to : from); r++)
        n += of_sender ? between(from, r, count) : between(r, to, count);
    return n;
}

static double want_exchanged(const cf_rank *r, const tn_exchange *x, int64_t i) {
    int32_t from = 0;
    while (i >= x->out_counts[from]) i -= x->out_counts[from++];
    return given(from, before(from, r->rank, x->count, true) + i, x->dtype);
}

static void one_all_to_all(cf_rank *r, tn_exchange x) {
    int64_t to[CF_RANKS], from[CF_RANKS];
    for (int32_t i = 0; i < r->size; i++) {
        to[i] = between(r->rank, i, x.count);
        from[i] = between(i, r->rank, x.count);
    }
    int64_t n = before(r->rank, r->size, x.count, true),
            m = before(r->size, r->rank, x.count, false);
    cf_block in = block_new(n, x.dtype), out = block_new(m, x.dtype);
    fill(&in, r->rank, 0, n, x.dtype);
    x.in = in.at;
    x.out = out.at;
    x.in_counts = to;
    x.out_counts = from;
    if (cf_rank_exchange(r, r->world, &x)) {
        compare(r, &x, out.at, m, want_exchanged);
        compare(r, &x, in.at, n, want_own);
    }
    if (r->lost) return;
    cf_block_free(r, &in, &x);
    cf_block_free(r, &out, &x);
}

static void check_all_to_all(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_ALL_TO_ALL}, one_all_to_all);
}

/* ---- Messages ----------------------------------------------------------------------------------*/

/* Every rank sends to the next one. */
static void one_message(cf_rank *r, tn_exchange x) {
    tn_exchange send = x, recv = x;
    cf_block in = block_new(x.count, x.dtype), out = block_new(x.count, x.dtype);
    fill(&in, r->rank, 0, x.count, x.dtype);
    send.peer = (r->rank + 1) % r->size;
    send.in = in.at;
    recv.kind = TN_EXCHANGE_RECV;
    recv.peer = (r->rank + r->size - 1) % r->size;
    recv.out = out.at;
    void *sent = cf_rank_start(r, r->world, &send);
    void *got = r->lost ? NULL : cf_rank_start(r, r->world, &recv);
    if (!r->lost && cf_rank_finish(r, r->world, got, &recv))
        compare(r, &recv, out.at, x.count, want_root);
    if (r->lost || !cf_rank_finish(r, r->world, sent, &send)) return;
    cf_block_free(r, &in, &x);
    cf_block_free(r, &out, &x);
}

static void check_messages(cf_rank *r) {
    each_case(r, (tn_exchange){.kind = TN_EXCHANGE_SEND}, one_message);
    if (!r->lost) cf_check_tags(r);
}

/* ---- Time and order ----------------------------------------------------------------------------*/

static void check_barrier(cf_rank *r) {
    tn_exchange x = {.kind = TN_EXCHANGE_BARRIER, .timeout_ms = timeout_ms(r)};
    for (int32_t late = 0; late < r->size; late++) {
        if (!cf_rank_exchange(r, r->world, &x)) return;
        double start = cf_seconds();
        if (r->rank == late)
            nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * LATE_SECONDS)}, NULL);
        if (!cf_rank_exchange(r, r->world, &x)) return;
        r->cases++;
        if (cf_seconds() - start < 0.6 * LATE_SECONDS)
            cf_rank_fail(r, "barrier: done before rank %d had come", late);
    }
}

/* Many exchanges are under way at once, and are asked for from the last one on. */
static void check_order(cf_rank *r) {
    cf_block out[FLIGHT];
    tn_exchange x[FLIGHT];
    void *requests[FLIGHT];
    for (int32_t i = 0; i < FLIGHT && !r->lost; i++) {
        x[i] = (tn_exchange){.kind = i % 2 ? TN_EXCHANGE_BROADCAST : TN_EXCHANGE_ALL_REDUCE,
                             .dtype = TN_F32,
                             .element = TN_F32,
                             .peer = i % r->size,
                             .count = 100 * i + 1,
                             .timeout_ms = timeout_ms(r)};
        out[i] = block_new(x[i].count, TN_F32);
        fill(&out[i], r->rank, 0, x[i].count, TN_F32);
        x[i].out = out[i].at;
        requests[i] = cf_rank_start(r, r->world, &x[i]);
    }
    for (int32_t i = FLIGHT - 1; i >= 0 && !r->lost; i--) {
        if (!cf_rank_finish(r, r->world, requests[i], &x[i])) return;
        compare(r, &x[i], out[i].at, x[i].count, i % 2 ? want_root : want_reduced);
        cf_block_free(r, &out[i], &x[i]);
    }
}

/* Sums of numbers that round have the same bits on every rank, and every time. */
static void check_bits(cf_rank *r) {
    enum { N = 20011 };
    float *v = cf_alloc(N * sizeof *v), *first = cf_alloc(N * sizeof *v);
    float *root = cf_alloc(N * sizeof *v);
    tn_exchange x = {.kind = TN_EXCHANGE_ALL_REDUCE,
                     .dtype = TN_F32,
                     .element = TN_F32,
                     .count = N,
                     .out = v,
                     .timeout_ms = timeout_ms(r)};
    for (int32_t again = 0; again < 2 && !r->lost; again++) {
        for (int32_t i = 0; i < N; i++) v[i] = sinf((float)(i + 1) * (float)(r->rank + 1));
        if (!cf_rank_exchange(r, r->world, &x)) return;
        if (!again) memcpy(first, v, N * sizeof *v);
    }
    memcpy(root, v, N * sizeof *v);
    tn_exchange tell = {.kind = TN_EXCHANGE_BROADCAST,
                        .dtype = TN_F32,
                        .element = TN_F32,
                        .count = N,
                        .out = root,
                        .timeout_ms = timeout_ms(r)};
    if (!cf_rank_exchange(r, r->world, &tell)) return;
    r->cases += 2;
    if (memcmp(first, v, N * sizeof *v) != 0)
        cf_rank_fail(r, "all_reduce: the same sum has other bits the second time");
    if (memcmp(root, v, N * sizeof *v) != 0)
        cf_rank_fail(r, "all_reduce: a sum has other bits on rank 0");
    free(v);
    free(first);
    free(root);
}

/* ---- Groups ------------------------------------------------------------------------------------*/

/* One exchange of a group: everybody's place in it, in its order. */
static bool places(cf_rank *r, void *group, const int32_t *ranks, int32_t n) {
    int32_t mine = r->rank, all[CF_RANKS];
    tn_exchange x = {.kind = TN_EXCHANGE_ALL_GATHER,
                     .dtype = TN_I32,
                     .element = TN_I32,
                     .count = 1,
                     .in = &mine,
                     .out = all,
                     .timeout_ms = timeout_ms(r)};
    if (!cf_rank_exchange(r, group, &x)) return false;
    r->cases++;
    for (int32_t i = 0; i < n; i++) {
        if (all[i] == ranks[i]) continue;
        cf_rank_fail(r, "part: rank %d of a group is rank %d of its parent, not %d", i, all[i],
                     ranks[i]);
        return true;
    }
    return true;
}

static void *part_of(cf_rank *r, void *group, const int32_t *ranks, int32_t n, uint32_t id) {
    char why[TN_ENGINE_WHY] = "";
    void *made = NULL;
    tn_status st = r->engine->part(group, ranks, n, id, timeout_ms(r), &made, why);
    if (st == TN_OK && made) return made;
    cf_rank_fail(r, "part: fails: %s", why[0] ? why : "it does not say why");
    r->lost = true;
    return NULL;
}

static void check_groups(cf_rank *r) {
    int32_t reversed[CF_RANKS], half[CF_RANKS], first, n = 0, alone = r->rank;
    for (int32_t i = 0; i < r->size; i++) reversed[i] = r->size - 1 - i;
    void *back = part_of(r, r->world, reversed, r->size, 1);
    if (!back || !places(r, back, reversed, r->size)) return;
    for (first = r->rank % 2; first < r->size; first += 2) half[n++] = first; /* odd and even */
    void *mine = part_of(r, r->world, half, n, 2 + (uint32_t)(r->rank % 2));
    if (!mine || !places(r, mine, half, n)) return;
    void *self = part_of(r, r->world, &alone, 1, 4 + (uint32_t)r->rank);
    if (!self || !places(r, self, &alone, 1)) return;
    for (int32_t i = 0; i < 20 && !r->lost; i++) { /* groups do not wait for each other */
        if (i % 2 == r->rank % 2 && !places(r, mine, half, n)) return;
        if (!places(r, back, reversed, r->size)) return;
        if (i % 2 != r->rank % 2 && !places(r, mine, half, n)) return;
    }
    r->engine->close(self);
    r->engine->close(back);
    /* Of the others' closed groups this one knows nothing. */
    if (!places(r, mine, half, n)) return;
    r->engine->close(mine);
    for (int32_t i = 0; i < r->size; i++) reversed[i] = i;
    places(r, r->world, reversed, r->size);
}

const cf_engine_check cf_engine_results[] = {
    {"barrier", check_barrier, 0},       {"all_reduce", check_all_reduce, 0},
    {"reduce", check_reduce, 0},         {"reduce_scatter", check_reduce_scatter, 0},
    {"broadcast", check_broadcast, 0},   {"all_gather", check_all_gather, 0},
    {"all_to_all", check_all_to_all, 0}, {"messages", check_messages, 0},
    {"sizes", cf_check_sizes, 0},        {"any", cf_check_any, 0},
    {"order", check_order, 0},           {"bits", check_bits, 0},
    {"groups", check_groups, 0},         {NULL, NULL, 0},
};
