/* fft_plan_tmpl.h: transforms of a tile: LANES columns of n complex numbers, side by side in vectors.
 *
 * Stockham's passes of radix 8, 4, 2 and odd primes, between two buffers, need no reordering, and every
 * lane does the same. A prime that is too large is done by Bluestein's sum: a convolution with a chirp.
 * Factors are computed in double precision. Plans are kept: the last few, and no more than KEEP_BYTES. */
#ifndef TENON_CPU_FFT_PLAN_TMPL_H
#define TENON_CPU_FFT_PLAN_TMPL_H

#include "common/fft.h"

#include "fft_pass_tmpl.h"
#include "locks.h"

enum { PASSES = 40, BLOCKS = 6, LARGEST_TILE_PRIME = 256, KEEP = 32 };
#define KEEP_BYTES (INT64_C(64) << 20)

typedef struct plan plan;
struct plan {
    int64_t n;
    bool line; /* for numbers that follow each other; else for the columns of a tile */
    bool real; /* it has `half` */
    bool kept;
    int64_t rows; /* of a tile that it is done in */
    int32_t passes;
    pass pass[PASSES];
    plan *conv; /* Bluestein's sum: the transforms of its convolution */
    T *chirp, *spectrum;
    plan *one, *two; /* of a line, and of long columns: n = one->n * two->n */
    T *edge;         /* the factors between the two; of a line those of a block, ... */
    T *inner;        /* ... of which each lane has a multiple */
    T *half;         /* exp(-2 pi i k / 2n), k <= n / 2: what a real transform of 2n ends with */
    uint32_t users;
    uint64_t last;
    int64_t bytes;
    int32_t blocks;
    void *block[BLOCKS];
    uint64_t size[BLOCKS];
};

enum { UNIT_COST = 16 };

static void put_unit(T *to, int64_t k, int64_t n) {
    double re, im;
    fft_unit(k, n, &re, &im);
    to[0] = (T)re;
    to[1] = (T)im;
}

/* Memory of a plan for `count` numbers. */
static tn_status plan_room(plan *p, int64_t count, T **ret) {
    void *room;
    tn_status st = cpu_room(count, sizeof(T), &p->size[p->blocks], &room);
    if (st != TN_OK) return st;
    p->bytes += (int64_t)p->size[p->blocks];
    p->block[p->blocks++] = room;
    *ret = room;
    return TN_OK;
}

/* Transforms x, which has p->rows rows; y is work memory of the same size. Returns the one that holds
 * the result. */
static tile tile_run(const plan *p, tile x, tile y) {
    if (p->conv) {
        int64_t m = p->conv->n;
        for (int64_t j = 0; j < p->n; j++)
            tile_put(x, j, wave_turn(tile_get(x, j), p->chirp[2 * j], p->chirp[2 * j + 1]));
        for (int64_t j = p->n; j < m; j++) tile_put(x, j, (wave){{0}, {0}});
        tile r = tile_run(p->conv, x, y), other = r.re == x.re ? y : x;
        for (int64_t j = 0; j < m; j++)
            tile_put(r, j, wave_turn(tile_get(r, j), p->spectrum[2 * j], p->spectrum[2 * j + 1]));
        tile back = tile_run(p->conv, (tile){r.im, r.re}, (tile){other.im, other.re});
        r = (tile){back.im, back.re};
        for (int64_t j = 0; j < p->n; j++)
            tile_put(r, j, wave_turn(tile_get(r, j), p->chirp[2 * j], p->chirp[2 * j + 1]));
        return r;
    }
    return passes_run(p->pass, p->passes, p->n, 1, x, y);
}

/* The same between two ends. x and y are work memory; what IN_TILE stands for is in from->t, and the
 * result's place is returned. What is CROSSED is put where the last pass finds it. */
static tile tile_between(const plan *p, const ends *from, const ends *to, tile x, tile y) {
    int32_t done = 0, left = p->conv ? 0 : p->passes;
    int64_t m = p->n, s = 1;
    if (from->kind == MEMORY && left > 0 && has_ends(p->pass[0].radix)) {
        s = p->pass[0].radix;
        m /= s;
        first_run(&p->pass[0], m, from, x);
        done = 1;
        left--;
    } else if (from->kind == MEMORY) {
        for (int64_t k = 0; k < p->n; k++) tile_put(x, k, end_get(MEMORY, from, k));
    } else {
        x = from->t;
    }
    int64_t last = p->conv || p->passes == 0 ? 0 : p->pass[p->passes - 1].radix;
    bool end = to->kind != IN_TILE && left > 0 && has_ends(last);
    tile r = p->conv ? tile_run(p, x, y) : passes_run(p->pass + done, left - end, m, s, x, y);
    if (end)
        last_run(last, p->n / last, r, to);
    else if (to->kind != IN_TILE)
        rows_put(p->n, r, to);
    return r;
}

/* Columns in memory that are longer than the first cache holds, as a matrix, in the way of a line: columns of
 * that, times factors, then rows. `all` has rows for all numbers. */
static void tall_run(const plan *p, const ends *from, const ends *to, tile x, tile y, tile all) {
    int64_t a = p->one->n, b = p->two->n;
    for (int64_t i = 0; i < b; i++) {
        ends in = *from, out = {.kind = TURNED};
        in.at += i * from->step;
        in.step *= b;
        out.t = (tile){all.re + i, all.im + i};
        out.step = b;
        out.w = p->edge + 2 * i * a;
        tile_between(p->one, &in, &out, x, y);
    }
    for (int64_t i = 0; i < a; i++) {
        ends in = {.kind = IN_TILE}, out = *to;
        in.t = (tile){all.re + i * b, all.im + i * b};
        out.at += i * to->step;
        out.step *= a;
        tile_between(p->two, &in, &out, x, y);
    }
}

/* ---- Plans -------------------------------------------------------------------------------------*/

static int64_t largest_prime(int64_t n) {
    int64_t most = 1;
    for (int64_t f = 2; f * f <= n; f++) {
        for (; n % f == 0; n /= f) most = f;
    }
    return n > most ? n : most;
}

static tn_status plan_make(int64_t n, bool line, bool real, plan **ret);

static void plan_free(plan *p) {
    if (!p) return;
    plan_free(p->conv);
    plan_free(p->one);
    plan_free(p->two);
    for (int32_t i = 0; i < p->blocks; i++) cpu_free(NULL, 0, p->block[i], p->size[i]);
    cpu_free(NULL, 0, p, sizeof *p);
}

/* The radices of n, largest first, for powers of two 8 with one or two 4. */
static int32_t radices(int64_t n, int64_t *ret) {
    int32_t count = 0, twos = 0;
    for (; n % 2 == 0; n /= 2) twos++;
    while (twos >= 5 || twos == 3) {
        ret[count++] = 8;
        twos -= 3;
    }
    for (; twos >= 2; twos -= 2) ret[count++] = 4;
    if (twos) ret[count++] = 2;
    for (int64_t f = 3; n > 1; f += 2) {
        for (; n % f == 0; n /= f) ret[count++] = f;
    }
    return count;
}

static tn_status make_passes(plan *p) {
    int64_t radix[PASSES], total = 0, m = p->n;
    T *at;
    p->passes = radices(p->n, radix);
    for (int32_t i = 0; i < p->passes; i++) {
        m /= radix[i];
        total += 2 * m * (radix[i] - 1) + 2 * radix[i];
    }
    tn_status st = plan_room(p, total + 1, &at);
    if (st != TN_OK) return st;
    m = p->n;
    for (int32_t i = 0; i < p->passes; i++) {
        int64_t r = radix[i], whole = m;
        m /= r;
        p->pass[i] = (pass){r, at, at + 2 * m * (r - 1)};
        for (int64_t g = 0; g < m; g++) {
            for (int64_t k = 1; k < r; k++, at += 2) put_unit(at, g * k, whole);
        }
        for (int64_t k = 0; k < r; k++, at += 2) {
            put_unit(at, k, r);
            at[1] = -at[1];
        }
    }
    return TN_OK;
}

/* Transforms one column of m numbers, interleaved, in a tile: what plans are made with. */
static tn_status one_column(const plan *p, T *z) {
    void *room;
    uint64_t bytes;
    tn_status st = cpu_room(room_mul(4, p->rows), sizeof(lanes), &bytes, &room);
    if (st != TN_OK) return st;
    lanes *v = room;
    tile x = {v, v + p->rows}, y = {v + 2 * p->rows, v + 3 * p->rows};
    memset(room, 0, bytes);
    for (int64_t j = 0; j < p->n; j++) {
        x.re[j][0] = z[2 * j];
        x.im[j][0] = z[2 * j + 1];
    }
    x = tile_run(p, x, y);
    for (int64_t j = 0; j < p->n; j++) {
        z[2 * j] = x.re[j][0];
        z[2 * j + 1] = x.im[j][0];
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
}

static tn_status line_run(const plan *p, const T *x, T *y, bool inverse, T scale);

/* jk = (j^2 + k^2 - (k - j)^2) / 2: times a chirp, a convolution with its conjugate, times the chirp. */
static tn_status make_chirp(plan *p) {
    tn_status st = plan_make(fft_easy_length(2 * p->n - 1), p->line, false, &p->conv);
    if (st == TN_OK) st = plan_room(p, room_mul(2, p->n), &p->chirp);
    if (st == TN_OK) st = plan_room(p, room_mul(2, p->conv->n), &p->spectrum);
    if (st != TN_OK) return st;
    int64_t m = p->conv->n, square = 0;
    double scale = 1.0 / (double)m;
    st = cpu_clear(p->spectrum, m * 2 * (int64_t)sizeof(T));
    cpu_stretch s = {.n = p->n, .cost = UNIT_COST};
    while (st == TN_OK && cpu_next_stretch(&s)) {
        for (int64_t j = s.begin; j < s.end; j++) {
            double re, im;
            fft_unit(square, 2 * p->n, &re, &im);
            p->chirp[2 * j] = (T)re;
            p->chirp[2 * j + 1] = (T)im;
            T *a = p->spectrum + 2 * j, *b = p->spectrum + 2 * (m - j);
            a[0] = (T)(re * scale);
            a[1] = (T)(-im * scale);
            if (j > 0) memcpy(b, a, 2 * sizeof(T));
            square = (square + 2 * j + 1) % (2 * p->n);
        }
    }
    if (st != TN_OK || s.st != TN_OK) return st ? st : s.st;
    p->rows = m;
    return p->conv->inner ? line_run(p->conv, p->spectrum, p->spectrum, false, 1)
                          : one_column(p->conv, p->spectrum);
}

static int64_t whole_lanes(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* A line is done as a matrix of one->n rows: columns, factors, then rows, in the lanes of tiles. */
static tn_status make_line(plan *p) {
    int64_t best = 0, least = INT64_MAX;
    for (int64_t d = 2; d <= p->n / d; d++) {
        if (p->n % d != 0) continue;
        for (int turn = 0; turn < 2; turn++) {
            int64_t a = turn ? p->n / d : d, b = p->n / a;
            int64_t cost = whole_lanes(a) * b + whole_lanes(b) * a;
            if (a + b > 4096) cost += (a + b) * 64; /* tiles beyond the caches */
            if (cost > least) continue;
            least = cost;
            best = a;
        }
    }
    int64_t a = best, b = p->n / a, blocks = whole_lanes(b) / LANES;
    tn_status st = plan_make(a, false, false, &p->one);
    if (st == TN_OK) st = plan_make(b, false, false, &p->two);
    if (st == TN_OK) st = plan_room(p, room_mul3(2, blocks, a), &p->edge);
    if (st == TN_OK) st = plan_room(p, room_mul3(2, a, LANES), &p->inner);
    if (st != TN_OK) return st;
    cpu_stretch s = {.n = blocks, .cost = room_mul(UNIT_COST, a)};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++)
            for (int64_t k = 0; k < a; k++)
                put_unit(p->edge + 2 * (i * a + k), k * (i * LANES) % p->n, p->n);
    }
    for (int64_t k = 0; k < a && s.st == TN_OK; k++) {
        for (int64_t l = 0; l < LANES; l++) {
            double re, im;
            fft_unit(k * l, p->n, &re, &im);
            p->inner[2 * k * LANES + lane_of((int)l)] = (T)re;
            p->inner[(2 * k + 1) * LANES + lane_of((int)l)] = (T)im;
        }
    }
    return s.st;
}

/* The passes of long columns go through more than the first cache holds, with strides that are the same to
 * it: they are cut in two as evenly as can be. */
static bool is_tall(int64_t n) { return (uint64_t)n * 4 * sizeof(lanes) > cpu_os_l1_bytes(); }

static tn_status make_tall(plan *p) {
    int64_t a = 1;
    for (int64_t d = 2; d <= p->n / d; d++) a = p->n % d == 0 ? d : a;
    int64_t b = p->n / a;
    if (a < 8) return TN_OK;
    tn_status st = plan_make(a, false, false, &p->one);
    if (st == TN_OK) st = plan_make(b, false, false, &p->two);
    if (st == TN_OK) st = plan_room(p, room_mul(2, p->n), &p->edge);
    cpu_stretch s = {.n = b, .cost = room_mul(UNIT_COST, a)};
    while (st == TN_OK && cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++)
            for (int64_t k = 0; k < a; k++) put_unit(p->edge + 2 * (i * a + k), i * k, p->n);
    }
    return st ? st : s.st;
}

/* From this length on a line is cut in two. */
enum { SHORT = 32 };

static tn_status make_parts(plan *p) {
    int64_t prime = largest_prime(p->n);
    bool cut = p->line && prime <= LARGEST_TILE_PRIME && prime < p->n;
    tn_status st = cut ? make_line(p) : prime <= LARGEST_PRIME ? make_passes(p) : make_chirp(p);
    bool tall = !p->line && prime <= LARGEST_PRIME && is_tall(p->n);
    if (st == TN_OK && tall) st = make_tall(p);
    if (st != TN_OK || !p->real) return st;
    st = plan_room(p, p->n + 2, &p->half);
    cpu_stretch s = {.n = p->n / 2 + 1, .cost = UNIT_COST};
    while (st == TN_OK && cpu_next_stretch(&s))
        for (int64_t k = s.begin; k < s.end; k++) put_unit(p->half + 2 * k, k, 2 * p->n);
    return st ? st : s.st;
}

static tn_status plan_make(int64_t n, bool line, bool real, plan **ret) {
    void *room;
    uint64_t bytes;
    tn_status st = cpu_room(1, sizeof(plan), &bytes, &room);
    if (st != TN_OK) return st;
    plan *p = room;
    memset(p, 0, sizeof *p);
    p->n = p->rows = n;
    p->line = line;
    p->real = real;
    p->bytes = (int64_t)bytes;
    st = make_parts(p);
    if (st == TN_OK)
        *ret = p;
    else
        plan_free(p);
    return st;
}

/* ---- Plans that are kept -----------------------------------------------------------------------*/

CPU_LOCK(kept_lock);
static struct {
    uint64_t clock;
    plan *plan[KEEP];
} kept;

static int64_t plan_bytes(const plan *p) {
    return p ? p->bytes + plan_bytes(p->conv) + plan_bytes(p->one) + plan_bytes(p->two) : 0;
}

/* Ends the place of the plan that was not used for longest, until there is room for `more` bytes. */
static int place_for(int64_t more) {
    for (;;) {
        int64_t bytes = more;
        int empty = -1, oldest = -1;
        for (int i = 0; i < KEEP; i++) {
            plan *p = kept.plan[i];
            bytes += plan_bytes(p);
            if (!p)
                empty = i;
            else if (p->users == 0 && (oldest < 0 || p->last < kept.plan[oldest]->last))
                oldest = i;
        }
        if (empty >= 0 && (bytes <= KEEP_BYTES || oldest < 0))
            return bytes <= KEEP_BYTES ? empty : -1;
        if (oldest < 0) return -1;
        plan_free(kept.plan[oldest]);
        kept.plan[oldest] = NULL;
    }
}

/* Lock held. One that is kept, or NULL. */
static plan *plan_find(int64_t n, bool line, bool real) {
    for (int i = 0; i < KEEP; i++) {
        plan *p = kept.plan[i];
        if (p && p->n == n && p->line == line && p->real == real) return p;
    }
    return NULL;
}

/* Lock held. */
static plan *plan_use(plan *p) {
    if (p) {
        p->users++;
        p->last = ++kept.clock;
    }
    return p;
}

/* A plan to be given back with plan_drop. One that finds no place among those kept is freed then. It is
 * made without the lock: that takes time, and whoever answers an interrupt may want a plan. */
static tn_status plan_take(int64_t n, bool line, bool real, plan **ret) {
    plan *made = NULL;
    cpu_lock_take(&kept_lock);
    *ret = plan_use(plan_find(n, line, real));
    cpu_lock_drop(&kept_lock);
    if (*ret) return TN_OK;
    tn_status st = plan_make(n, line, real, &made);
    if (st != TN_OK) return st;
    cpu_lock_take(&kept_lock);
    int place = plan_find(n, line, real) ? -1 : place_for(plan_bytes(made));
    if (place >= 0) kept.plan[place] = made;
    made->kept = place >= 0;
    *ret = plan_use(made);
    cpu_lock_drop(&kept_lock);
    return TN_OK;
}

static void plan_drop(plan *p) {
    cpu_lock_take(&kept_lock);
    bool end = --p->users == 0 && !p->kept;
    cpu_lock_drop(&kept_lock);
    if (end) plan_free(p);
}

#endif
