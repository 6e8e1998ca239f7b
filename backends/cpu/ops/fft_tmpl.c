/* fft_tmpl.c: Fourier transforms of lines, complex, from real and to real, for float or double.
 *
 * Lines beside each other, and short ones, go LANES at a time through a tile (fft_plan_tmpl.h). A
 * longer line is cut in two: its n numbers are a matrix, whose columns are transformed LANES at a time,
 * multiplied by factors, and whose rows follow in the same way; squares are transposed in between, so
 * that every step works on whole vectors. 2n real numbers are n complex ones and a pass over the result.
 * An inverse exchanges real and imaginary parts on the way in and out. Several dimensions are done one
 * after the other, in the result. Nothing depends on how work is divided among threads.
 *
 * Written here because no library under a free licence that machines have under a name of its own does
 * this: FFTW is under the GPL, PocketFFT is copied into programs and not installed as a library.
 *
 * family: fft; types: f32 f64; isa: each; fused */
#include <math.h>

#include <tenon/args_fft.h>

#include "common/tmpl.h"

#include "axis.h"
#include "caches.h"
#include "cpu_priv.h"
#include "fft_plan_tmpl.h"

#if TMPL_DTYPE == TMPL_F32
#define FFT_DTYPE TMPL_C64
#else
#define FFT_DTYPE TMPL_C128
#endif

/* ---- A line of complex numbers that follow each other ------------------------------------------*/

typedef struct line_job {
    const plan *p;
    const T *x;
    T *y;
    tile between; /* the two halves: [block of LANES rows][column] */
    bool inverse;
    T scale;
} line_job;

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Two tiles of so many rows: cpu_free(NULL, 0, ret[0].re, bytes) ends them. */
static tn_status tiles_take(int64_t rows, uint64_t *ret_bytes, tile *ret) {
    void *room;
    tn_status st = cpu_room(room_mul(4, rows), sizeof(lanes), ret_bytes, &room);
    if (st != TN_OK) return st;
    lanes *v = room;
    ret[0] = (tile){v, v + rows};
    ret[1] = (tile){v + 2 * rows, v + 3 * rows};
    return TN_OK;
}

static tile turned(tile t, bool inverse) { return inverse ? (tile){t.im, t.re} : t; }

/* An inverse is also the conjugate of the transform of conjugate numbers. */
static T sign_of(bool inverse) { return (T)(inverse ? -1 : 1); }

/* `count` < LANES numbers. */
static wave wave_load_part(const T *p, int64_t count) {
    T part[2 * LANES] = {0};
    memcpy(part, p, (size_t)count * 2 * sizeof(T));
    return wave_load(part);
}

static void wave_store_part(T *p, wave v, int64_t count) {
    T part[2 * LANES];
    wave_store(part, v);
    memcpy(p, part, (size_t)count * 2 * sizeof(T));
}

/* Rows [k, k + LANES) of one half of a tile of `rows`, turned into LANES rows that are `next` apart, of which
 * the first `count` are there. */
FFT_INLINE void square(const lanes *from, int64_t k, int64_t rows, lanes *to, int64_t count) {
    lanes v[LANES];
    TMPL_UNROLL
    for (int l = 0; l < LANES; l++) v[lane_of(l)] = from[k + l < rows ? k + l : rows - 1];
    lanes_transpose(v);
    if (count == LANES) {
        TMPL_UNROLL
        for (int l = 0; l < LANES; l++) to[l] = v[lane_of(l)];
    } else {
        for (int l = 0; l < count; l++) to[l] = v[lane_of(l)];
    }
}

/* Blocks of LANES columns: transformed, multiplied by their factors, and turned into rows. */
static void columns_of(const line_job *j, const tile *tiles, int64_t begin, int64_t end) {
    const plan *p = j->p;
    int64_t a = p->one->n, b = p->two->n;
    tile x = tiles[0], y = tiles[1];
    T sign = sign_of(j->inverse);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * LANES, count = b - first < LANES ? b - first : LANES;
        ends from = {.kind = MEMORY, .at = (T *)(uintptr_t)j->x + 2 * first, .step = 2 * b};
        ends to = {.kind = CROSSED, .w = p->edge + 2 * i * a, .inner = p->inner};
        from.im = sign;
        if (count < LANES) {
            for (int64_t k = 0; k < a; k++) {
                wave w = wave_load_part(from.at + k * from.step, count);
                tile_put(x, k, (wave){w.re, w.im * sign});
            }
            from = (ends){.kind = IN_TILE, .t = x};
        }
        tile r = tile_between(p->one, &from, &to, x, y);
        for (int64_t k = 0; k < a; k += LANES) {
            int64_t at = k / LANES * b + first;
            square(r.re, k, a, j->between.re + at, count);
            square(r.im, k, a, j->between.im + at, count);
        }
    }
}

/* Blocks of LANES rows: transformed, and put where they belong. */
static void rows_of(const line_job *j, const tile *tiles, int64_t begin, int64_t end) {
    const plan *p = j->p;
    int64_t a = p->one->n, b = p->two->n;
    tile x = tiles[0], y = tiles[1];
    T scale = j->scale, im_scale = scale * sign_of(j->inverse);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * LANES, count = a - first < LANES ? a - first : LANES;
        ends from = {.kind = IN_TILE, .t = {j->between.re + i * b, j->between.im + i * b}};
        ends to = {.kind = MEMORY, .at = j->y + 2 * first, .step = 2 * a};
        to.re = scale;
        to.im = im_scale;
        if (p->two->rows > b) {
            memcpy(x.re, from.t.re, (size_t)b * sizeof(lanes));
            memcpy(x.im, from.t.im, (size_t)b * sizeof(lanes));
            from.t = x;
        }
        if (count < LANES) to.kind = IN_TILE;
        tile r = tile_between(p->two, &from, &to, x, y);
        for (int64_t k = 0; k < b && count < LANES; k++) {
            wave v = tile_get(r, k);
            wave_store_part(to.at + k * to.step, (wave){v.re * scale, v.im * im_scale}, count);
        }
    }
}

/* Rows of the tiles that a line of p goes through. */
static int64_t tile_rows(const plan *p) { return whole_lanes(most(p->one->rows, p->two->rows)); }

static tn_status in_tiles(const line_job *j,
                          void (*body)(const line_job *, const tile *, int64_t, int64_t),
                          int64_t begin, int64_t end) {
    uint64_t bytes;
    tile t[2];
    tn_status st = tiles_take(tile_rows(j->p), &bytes, t);
    if (st != TN_OK) return st;
    body(j, t, begin, end);
    cpu_free(NULL, 0, t[0].re, bytes);
    return TN_OK;
}

static tn_status columns_part(void *arg, int64_t begin, int64_t end) {
    return in_tiles(arg, columns_of, begin, end);
}

static tn_status rows_part(void *arg, int64_t begin, int64_t end) {
    return in_tiles(arg, rows_of, begin, end);
}

/* y = x times w, with imaginary parts times `in` before, and parts times re and im after that. */
static tn_status chirped(const T *w, const T *x, T in, int64_t n, T re, T im, T *y) {
    cpu_stretch all = {.n = n, .cost = 1};
    while (cpu_next_stretch(&all)) {
        int64_t k = all.begin;
        for (; k + LANES <= all.end; k += LANES) {
            wave v = wave_load(x + 2 * k);
            v = wave_mul((wave){v.re, v.im * in}, wave_load(w + 2 * k));
            wave_store(y + 2 * k, (wave){v.re * re, v.im * im});
        }
        for (; k < all.end; k++) {
            T a = x[2 * k], b = x[2 * k + 1] * in, c = w[2 * k], s = w[2 * k + 1];
            y[2 * k] = (a * c - b * s) * re;
            y[2 * k + 1] = (a * s + b * c) * im;
        }
    }
    return all.st;
}

/* Bluestein's sum of one long line. */
static tn_status line_by_chirp(const plan *p, const T *x, T *y, bool inverse, T scale) {
    int64_t m = p->conv->n;
    T sign = sign_of(inverse);
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(room_mul(2, m), sizeof(T), &bytes, &room);
    if (st != TN_OK) return st;
    T *z = room;
    st = chirped(p->chirp, x, sign, p->n, 1, 1, z);
    if (st == TN_OK) st = cpu_clear(z + 2 * p->n, (m - p->n) * 2 * (int64_t)sizeof(T));
    if (st == TN_OK) st = line_run(p->conv, z, z, false, 1);
    if (st == TN_OK) st = chirped(p->spectrum, z, 1, m, 1, 1, z);
    if (st == TN_OK) st = line_run(p->conv, z, z, true, 1);
    if (st == TN_OK) st = chirped(p->chirp, z, 1, p->n, scale, scale * sign, y);
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* From this length on threads share a line. */
enum { LONG = 1 << 15 };

/* p is a line's; y may be x. */
static tn_status line_run(const plan *p, const T *x, T *y, bool inverse, T scale) {
    if (p->conv) return line_by_chirp(p, x, y, inverse, scale);
    int64_t a = whole_lanes(p->one->n), b = p->two->n, columns = whole_lanes(b) / LANES;
    int64_t rows = p->n < LONG ? tile_rows(p) : 0, count = room_mul(a / LANES, b);
    int64_t vectors = room_add(room_mul(2, count), room_mul(4, rows));
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(vectors, sizeof(lanes), &bytes, &room);
    if (st != TN_OK) return st;
    lanes *v = room;
    line_job j = {p, x, y, {v, v + count}, inverse, scale};
    v += 2 * count;
    if (p->n < LONG) {
        tile t[2] = {{v, v + rows}, {v + 2 * rows, v + 3 * rows}};
        columns_of(&j, t, 0, columns);
        rows_of(&j, t, 0, a / LANES);
    } else {
        st = cpu_parallel(columns, 1 + 16384 / (LANES * p->one->n), columns_part, &j);
        if (st == TN_OK) st = cpu_parallel(a / LANES, 1 + 16384 / (LANES * b), rows_part, &j);
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* ---- Between n complex numbers and 2n real ones ------------------------------------------------*/

/* The numbers k and n - k of a transform of pairs -> those of the transform of 2n real numbers; w are the
 * factors of number k. */
FFT_INLINE void join_pair(wave *a, wave *b, wave w) {
    wave even = {(a->re + b->re) * (T)0.5, (a->im - b->im) * (T)0.5};
    wave odd = {(a->im + b->im) * (T)0.5, (b->re - a->re) * (T)0.5};
    odd = wave_mul(odd, w);
    *a = wave_add(even, odd);
    *b = (wave){even.re - odd.re, odd.im - even.im};
}

/* The way back, times two. */
FFT_INLINE void part_pair(wave *a, wave *b, wave w) {
    wave even = {a->re + b->re, a->im - b->im};
    wave odd = wave_mul((wave){a->re - b->re, a->im + b->im}, (wave){w.re, -w.im});
    *a = (wave){even.re - odd.im, even.im + odd.re};
    *b = (wave){even.re + odd.im, odd.re - even.im};
}

/* In a tile of n + 1 rows, of which n come in (joined) or go out. */
static void tile_halves(const plan *p, tile z, bool joined) {
    wave a = tile_get(z, 0), b = joined ? a : tile_get(z, p->n);
    if (joined) {
        tile_put(z, 0, (wave){a.re + a.im, (lanes){0}});
        tile_put(z, p->n, (wave){a.re - a.im, (lanes){0}});
    } else {
        tile_put(z, 0, (wave){a.re + b.re, a.re - b.re});
    }
    for (int64_t k = 1; k <= p->n - k; k++) {
        wave w = wave_all(p->half[2 * k], p->half[2 * k + 1]);
        a = tile_get(z, k);
        b = tile_get(z, p->n - k);
        if (joined)
            join_pair(&a, &b, w);
        else
            part_pair(&a, &b, w);
        tile_put(z, p->n - k, b);
        tile_put(z, k, a);
    }
}

/* The same in a line, from x to y, which may be x. */
FFT_INLINE void line_halves(const plan *p, const T *x, T *y, bool joined) {
    int64_t n = p->n, k = 1;
    T first = x[0], other = joined ? x[1] : x[2 * n];
    y[0] = first + other;
    y[1] = joined ? 0 : first - other;
    if (joined) {
        y[2 * n] = first - other;
        y[2 * n + 1] = 0;
    }
    for (; k + LANES - 1 < n - k - (LANES - 1); k += LANES) {
        wave a = wave_load(x + 2 * k), b = wave_load_back(x + 2 * (n - k));
        wave w = wave_load(p->half + 2 * k);
        if (joined)
            join_pair(&a, &b, w);
        else
            part_pair(&a, &b, w);
        wave_store(y + 2 * k, a);
        wave_store_back(y + 2 * (n - k), b);
    }
    for (; k <= n - k; k++) {
        wave a = wave_all(x[2 * k], x[2 * k + 1]), b = wave_all(x[2 * (n - k)], x[2 * (n - k) + 1]);
        wave w = wave_all(p->half[2 * k], p->half[2 * k + 1]);
        if (joined)
            join_pair(&a, &b, w);
        else
            part_pair(&a, &b, w);
        y[2 * (n - k)] = b.re[0];
        y[2 * (n - k) + 1] = b.im[0];
        y[2 * k] = a.re[0];
        y[2 * k + 1] = a.im[0];
    }
}

/* ---- Lines of tensors --------------------------------------------------------------------------*/

enum { COMPLEX, FROM_REAL, TO_REAL };

/* Where the numbers of LANES lines stand: number k of line l has its real part at at[l] + k * step, the
 * imaginary one `im` behind it, which may be 0 as any step, or none where the numbers are real. `next`: from
 * a line to the next one, where it is the same for all of them. */
typedef struct place {
    T *at[LANES];
    int64_t step, im, next;
    int64_t count, left; /* lines; those that follow in the same way */
    bool real;
} place;

typedef struct fft_job {
    axis ax;
    const plan *p;
    int kind;
    int64_t n;    /* numbers of a whole line */
    int64_t wave; /* complex numbers that the plan takes: n, or n / 2 pairs of real ones */
    int64_t rows; /* of tiles */
    bool inverse;
    bool
        mirrored; /* FROM_REAL: all n numbers are written, not the half that determines the others */
    T scale;
    T *x, *y;
} fft_job;

static bool in_pairs(const fft_job *j) { return j->wave < j->n; }
static int64_t half_of(const fft_job *j) { return j->n / 2 + 1; }
/* Complex numbers, or pairs, that come in and go out. */
static int64_t taken(const fft_job *j) { return j->kind == TO_REAL ? half_of(j) : j->wave; }
static int64_t given(const fft_job *j) {
    if (j->kind == FROM_REAL) return j->mirrored ? j->n : half_of(j);
    return j->wave;
}

/* Lines first .. of the input (v = 0) or the result (v = 1). */
static void place_of(const fft_job *j, int v, int64_t first, int64_t count, place *ret) {
    bool real = (v == 0 && j->kind == FROM_REAL) || (v == 1 && j->kind == TO_REAL);
    int64_t unit = real ? 1 : 2, step = unit * j->ax.step[v];
    ret->next = unit * j->ax.next[v];
    ret->real = real && !in_pairs(j);
    ret->im = ret->real ? 0 : real ? step : 1;
    ret->step = real && in_pairs(j) ? 2 * step : step;
    ret->count = count;
    T *base = v == 0 ? j->x : j->y;
    int64_t at[AXIS_MAX], in = first % j->ax.run;
    ret->left = j->ax.run - in - count;
    axis_offset(&j->ax, first, at);
    for (int64_t l = 0; l < LANES; l++)
        ret->at[l] = base + unit * at[v] + (l < count ? l * ret->next : 0);
    if (ret->left >= 0) return;
    ret->next = 0;
    for (int64_t l = 1; l < count; l++) {
        axis_offset(&j->ax, first + l, at);
        ret->at[l] = base + unit * at[v];
    }
}

/* The lines behind those of *p, `count` of them; true where they go on in the same way. */
static bool place_next(place *p, int64_t count) {
    if (p->left < count || count < LANES) return false;
    p->left -= count;
    for (int64_t l = 0; l < LANES; l++) p->at[l] += LANES * p->next;
    return true;
}

/* Whether the lines stand beside each other, so that LANES of their numbers are loaded at once. */
static bool side_by_side(const place *p) { return p->count == LANES && p->next == 2 && p->im == 1; }

/* Numbers that follow each other, to where lines beside each other stand, and back. */
FFT_INLINE lanes lanes_apart(const T *p) {
    T in[LANES];
    for (int l = 0; l < LANES; l++) in[lane_of(l)] = p[l];
    return lanes_load(in);
}
FFT_INLINE void lanes_together(T *p, lanes v) {
    T in[LANES];
    lanes_store(in, v);
    for (int l = 0; l < LANES; l++) p[l] = in[lane_of(l)];
}

/* Rows [0, n) of a tile, from memory; line l is in lane_of(l). */
static void tile_load(const place *from, int64_t n, tile to) {
    int64_t k = 0;
    if (side_by_side(from)) {
        for (; k < n; k++) tile_put(to, k, wave_load(from->at[0] + k * from->step));
    } else if (from->next == 2 && from->im == 1) {
        for (; k < n; k++)
            tile_put(to, k, wave_load_part(from->at[0] + k * from->step, from->count));
    } else if (from->count == LANES && from->next == 1) {
        for (; k < n; k++) {
            const T *p = from->at[0] + k * from->step;
            tile_put(to, k,
                     (wave){lanes_apart(p), from->real ? (lanes){0} : lanes_apart(p + from->im)});
        }
    } else if (from->step == 2 && from->im == 1) {
        for (; k + LANES <= n; k += LANES) {
            lanes re[LANES], im[LANES];
            TMPL_UNROLL
            for (int l = 0; l < LANES; l++) {
                wave w = wave_load(from->at[l] + 2 * k);
                re[lane_of(l)] = w.re;
                im[lane_of(l)] = w.im;
            }
            lanes_transpose(re);
            lanes_transpose(im);
            TMPL_UNROLL
            for (int l = 0; l < LANES; l++)
                tile_put(to, k + l, (wave){re[lane_of(l)], im[lane_of(l)]});
        }
    }
    for (; k < n; k++) {
        for (int l = 0; l < LANES; l++) {
            const T *p = from->at[l] + k * from->step;
            to.re[k][lane_of(l)] = p[0];
            to.im[k][lane_of(l)] = from->real ? 0 : p[from->im];
        }
    }
}

/* Rows [0, n) of a tile, times scale, to memory. */
static void tile_store(const place *to, int64_t n, tile from, T scale) {
    int64_t k = 0;
    if (side_by_side(to)) {
        for (; k < n; k++)
            wave_store(to->at[0] + k * to->step, wave_scale(tile_get(from, k), scale));
    } else if (to->next == 2 && to->im == 1) {
        for (; k < n; k++)
            wave_store_part(to->at[0] + k * to->step, wave_scale(tile_get(from, k), scale),
                            to->count);
    } else if (to->count == LANES && to->next == 1) {
        for (; k < n; k++) {
            T *p = to->at[0] + k * to->step;
            lanes_together(p, from.re[k] * scale);
            if (!to->real) lanes_together(p + to->im, from.im[k] * scale);
        }
    } else if (to->step == 2 && to->im == 1) {
        for (; k + LANES <= n; k += LANES) {
            lanes re[LANES], im[LANES];
            TMPL_UNROLL
            for (int l = 0; l < LANES; l++) {
                re[lane_of(l)] = from.re[k + l] * scale;
                im[lane_of(l)] = from.im[k + l] * scale;
            }
            lanes_transpose(re);
            lanes_transpose(im);
            for (int l = 0; l < to->count; l++)
                wave_store(to->at[l] + 2 * k, (wave){re[lane_of(l)], im[lane_of(l)]});
        }
    }
    for (; k < n; k++) {
        wave v = wave_scale(tile_get(from, k), scale);
        for (int l = 0; l < to->count; l++) {
            T *p = to->at[l] + k * to->step;
            p[0] = v.re[lane_of(l)];
            if (!to->real) p[to->im] = v.im[lane_of(l)];
        }
    }
}

/* The second half of a transform of n real numbers follows from the first: rows n - k are conjugate to
 * rows k. */
static void tile_mirror(tile t, int64_t n) {
    for (int64_t k = 1; k < n - k; k++) tile_put(t, n - k, (wave){t.re[k], -t.im[k]});
}

/* Lines beside each other, from memory to memory. x is cut into work memory of the halves of long ones. */
static void tile_direct(const fft_job *j, const place *from, const place *to, tile x, tile y) {
    T sign = sign_of(j->inverse);
    ends in = {.kind = MEMORY, .at = from->at[0], .step = from->step, .im = sign};
    ends out = {.kind = MEMORY, .at = to->at[0], .step = to->step, .re = j->scale};
    out.im = j->scale * sign;
    if (j->p->one) {
        int64_t half = most(j->p->one->rows, j->p->two->rows);
        tall_run(j->p, &in, &out, x, (tile){x.re + half, x.im + half}, y);
    } else {
        tile_between(j->p, &in, &out, x, y);
    }
}

static tn_status tiles_of(void *arg, int64_t begin, int64_t end) {
    const fft_job *j = arg;
    uint64_t bytes;
    tile x, y, both[2];
    tn_status st = tiles_take(j->rows, &bytes, both);
    if (st != TN_OK) return st;
    x = both[0];
    y = both[1];
    place from = {.left = 0}, to = {.left = 0};
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * LANES, count = j->ax.rows - first;
        if (count > LANES) count = LANES;
        if (!place_next(&from, count)) place_of(j, 0, first, count, &from);
        if (!place_next(&to, count)) place_of(j, 1, first, count, &to);
        if (j->kind == COMPLEX && side_by_side(&from) && side_by_side(&to)) {
            tile_direct(j, &from, &to, x, y);
            continue;
        }
        tile_load(&from, taken(j), x);
        if (j->kind == TO_REAL && in_pairs(j)) tile_halves(j->p, x, false);
        if (j->kind == TO_REAL && !in_pairs(j)) {
            x.im[0] = (lanes){0};
            tile_mirror(x, j->n);
        }
        tile r = turned(tile_run(j->p, turned(x, j->inverse), turned(y, j->inverse)), j->inverse);
        if (j->kind == FROM_REAL && in_pairs(j)) tile_halves(j->p, r, true);
        if (j->mirrored) tile_mirror(r, j->n);
        tile_store(&to, given(j), r, j->scale);
    }
    cpu_free(NULL, 0, x.re, bytes);
    return TN_OK;
}

/* A line between strided memory and numbers in a row. */
static tn_status line_gather(const place *from, int64_t n, T *z) {
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            z[2 * k] = from->at[0][k * from->step];
            z[2 * k + 1] = from->real ? 0 : from->at[0][k * from->step + from->im];
        }
    }
    return s.st;
}

static tn_status line_scatter(const place *to, int64_t n, const T *z) {
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            to->at[0][k * to->step] = z[2 * k];
            if (!to->real) to->at[0][k * to->step + to->im] = z[2 * k + 1];
        }
    }
    return s.st;
}

/* Number n - k is the conjugate of number k. */
static void line_mirror(T *z, int64_t n) {
    for (int64_t k = 1; k < n - k; k++) {
        z[2 * (n - k)] = z[2 * k];
        z[2 * (n - k) + 1] = -z[2 * k + 1];
    }
}

/* z: work memory for n + 1 numbers. */
static tn_status line_one(const fft_job *j, int64_t line, T *z) {
    place from, to;
    place_of(j, 0, line, 1, &from);
    place_of(j, 1, line, 1, &to);
    bool near = from.step == 2 && from.im == 1;
    bool direct = to.step == 2 && to.im == 1 && j->wave <= given(j);
    const T *x = near ? from.at[0] : z;
    T *y = direct ? to.at[0] : z;
    tn_status st = near ? TN_OK : line_gather(&from, taken(j), z);
    if (st != TN_OK) return st;
    if (j->kind == TO_REAL) {
        if (in_pairs(j)) {
            line_halves(j->p, x, z, false);
        } else {
            if (near) memcpy(z, x, (size_t)taken(j) * 2 * sizeof(T));
            z[1] = 0;
            line_mirror(z, j->n);
        }
        x = z;
    }
    st = line_run(j->p, x, y, j->inverse, j->scale);
    if (st != TN_OK) return st;
    if (j->kind == FROM_REAL && in_pairs(j)) line_halves(j->p, y, y, true);
    if (j->mirrored) line_mirror(y, j->n);
    return direct ? TN_OK : line_scatter(&to, given(j), y);
}

static tn_status lines_of(void *arg, int64_t begin, int64_t end) {
    const fft_job *j = arg;
    uint64_t bytes;
    void *room;
    tn_status st = cpu_room(room_mul(2, j->n + 1), sizeof(T), &bytes, &room);
    if (st != TN_OK) return st;
    for (int64_t i = begin; st == TN_OK && i < end; i++) st = line_one(j, i, room);
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* ---- Operators ---------------------------------------------------------------------------------*/

/* From this length on the columns of a tile leave the caches. */
enum { LONG_TILE = 1 << 13, LONG_FULL_TILE = 1 << 12 };

/* Whether a line of n leaves lanes empty when it is cut in two, and a tile needs no sum of Bluestein's
 * that its parts do without, or that the first cache does not hold. Several such lines are done faster side by
 * side. */
static bool uneven(int64_t n) {
    if (n > LONG_FULL_TILE || n % (LANES * LANES) == 0) return false;
    int64_t prime = largest_prime(n);
    return prime <= LARGEST_PRIME || (prime > LARGEST_TILE_PRIME && !is_tall(2 * n));
}

static tn_status along(fft_job *j, const tn_view *x, const tn_view *y, int64_t dim) {
    const tn_view *views[2] = {x, y};
    plan *p = NULL;
    axis_init(&j->ax, 2, views, dim);
    j->x = x->data;
    j->y = y->data;
    j->n = j->kind == TO_REAL ? y->shape[dim] : x->shape[dim];
    j->wave = j->kind != COMPLEX && j->n % 2 == 0 ? j->n / 2 : j->n;
    bool beside = j->ax.next[0] == 1 && j->ax.run >= LANES && j->wave <= LONG_TILE;
    bool full = j->ax.rows >= LANES / 2 && (j->wave < LANES * LANES || uneven(j->wave));
    bool line = j->wave > SHORT && !beside && !full;
    tn_status st = plan_take(j->wave, line, in_pairs(j), &p);
    if (st != TN_OK) return st;
    j->p = p;
    j->rows = most(p->rows, j->n + 1);
    if (line && j->wave >= LONG)
        st = lines_of(j, 0, j->ax.rows);
    else if (line)
        st = cpu_parallel(j->ax.rows, 1 + 8192 / j->wave, lines_of, j);
    else
        st = cpu_parallel((j->ax.rows + LANES - 1) / LANES, 1 + 8192 / (LANES * j->wave), tiles_of,
                          j);
    plan_drop(p);
    return st;
}

enum { BY_ROOT = 1, BY_ALL }; /* `normalization` */

static T scale_of(int64_t normalization, const tn_view *signal, tn_ints dims) {
    double n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= (double)signal->shape[dims.v[i]];
    return (T)(normalization == BY_ALL ? 1 / n : normalization == BY_ROOT ? 1 / sqrt(n) : 1);
}

/* A transform of several dimensions, as along() takes it but for the dimension. */
typedef struct dims_job {
    fft_job j;
    const tn_view *x, *y,
        *half; /* half: TO_REAL, of several dimensions, has work memory for them */
    tn_ints dims;
    int32_t front; /* dimensions in front of all of these */
} dims_job;

/* Complex to complex along dims, the last one first, from x to y and then in y; the first of them scales. */
static tn_status complex_dims(const tn_view *x, const tn_view *y, tn_ints dims, bool inverse,
                              T scale) {
    tn_status st = TN_OK;
    for (int64_t i = dims.n - 1; st == TN_OK && i >= 0; i--) {
        fft_job j = {.kind = COMPLEX, .inverse = inverse, .scale = scale};
        st = along(&j, x, y, dims.v[i]);
        x = y;
        scale = 1;
    }
    return st;
}

static tn_status dims_run(const dims_job *d) {
    fft_job j = d->j;
    tn_ints others = {d->dims.v, d->dims.n - 1};
    if (j.kind == COMPLEX) return complex_dims(d->x, d->y, d->dims, j.inverse, j.scale);
    int64_t last = d->dims.v[others.n];
    if (j.kind == TO_REAL) {
        tn_status st = d->half ? complex_dims(d->x, d->half, others, true, 1) : TN_OK;
        return st == TN_OK ? along(&j, d->half ? d->half : d->x, d->y, last) : st;
    }
    tn_status st = along(&j, d->x, d->y, last);
    return st == TN_OK ? complex_dims(d->y, d->y, others, false, 1) : st;
}

/* What of v has index i in the first `front` dimensions, and their sizes, which are 1 in it. */
static tn_view view_of(const tn_view *v, int32_t front, int64_t i, int64_t *shape) {
    tn_view one = *v;
    int64_t at = 0;
    memcpy(shape, v->shape, (size_t)v->ndim * sizeof *shape);
    for (int32_t d = front - 1; d >= 0; d--) {
        at += i % v->shape[d] * v->strides[d];
        i /= v->shape[d];
        one.numel /= v->shape[d];
        shape[d] = 1;
    }
    one.shape = shape;
    one.data = (char *)v->data + at * (v->dl_bits / 8);
    return one;
}

static tn_status images_part(void *arg, int64_t begin, int64_t end) {
    const dims_job *d = arg;
    tn_status st = TN_OK;
    for (int64_t i = begin; st == TN_OK && i < end; i++) {
        int64_t shapes[3][TN_MAX_DIMS];
        tn_view x = view_of(d->x, d->front, i, shapes[0]), half;
        tn_view y = view_of(d->y, d->front, i, shapes[1]);
        dims_job one = {.j = d->j, .x = &x, .y = &y, .dims = d->dims};
        if (d->half) {
            half = view_of(d->half, d->front, i, shapes[2]);
            one.half = &half;
        }
        st = dims_run(&one);
    }
    return st;
}

/* Where a later dimension would find in memory what an earlier one left in the second cache, image by image,
 * if there are enough of them for the threads. */
static tn_status images_run(dims_job *d) {
    enum { LEAST = 1 << 16 }; /* smaller ones leave lanes empty */
    int64_t images = 1, threads = cpu_threads_get();
    d->front = (int32_t)d->dims.v[0];
    for (int64_t i = 1; i < d->dims.n; i++)
        if (d->dims.v[i] < d->front) d->front = (int32_t)d->dims.v[i];
    for (int32_t i = 0; i < d->front; i++) images *= d->x->shape[i];
    int64_t bytes = room_add(room_mul(d->x->numel, d->x->dl_bits / 8),
                             room_mul(d->y->numel, d->y->dl_bits / 8));
    bool even = images % threads == 0 || images > 4 * threads;
    if (d->dims.n < 2 || images < 2 || !even || bytes <= (int64_t)cpu_os_l2_bytes() ||
        bytes / images < LEAST)
        return dims_run(d);
    return cpu_parallel(images, 1, images_part, d);
}

static tn_status fft_c2c(const tn_call *call, const void *args) {
    const tn__fft_c2c_args *a = args;
    (void)call;
    if (a->out->numel == 0) return TN_OK;
    dims_job d = {
        .j = {.kind = COMPLEX, .inverse = !a->forward}, .x = a->input, .y = a->out, .dims = a->dim};
    d.j.scale = scale_of(a->normalization, a->out, a->dim);
    return images_run(&d);
}

static tn_status fft_r2c(const tn_call *call, const void *args) {
    const tn__fft_r2c_args *a = args;
    (void)call;
    if (a->out->numel == 0) return TN_OK;
    dims_job d = {.j = {.kind = FROM_REAL, .mirrored = !a->onesided},
                  .x = a->input,
                  .y = a->out,
                  .dims = a->dim};
    d.j.scale = scale_of(a->normalization, a->input, a->dim);
    return images_run(&d);
}

static tn_status fft_c2r(const tn_call *call, const void *args) {
    const tn__fft_c2r_args *a = args;
    if (a->out->numel == 0) return TN_OK;
    dims_job d = {
        .j = {.kind = TO_REAL, .inverse = true}, .x = a->input, .y = a->out, .dims = a->dim};
    tn_view half = *a->input;
    int64_t strides[TN_MAX_DIMS], step = 1;
    if (a->dim.n > 1) {
        for (int32_t i = half.ndim - 1; i >= 0; i--) {
            strides[i] = step;
            step *= half.shape[i];
        }
        half.strides = strides;
        tn_status st = room_scratch(call, half.numel, 2 * sizeof(T), &half.data);
        if (st != TN_OK) return st;
        d.half = &half;
    }
    d.j.scale = scale_of(a->normalization, a->out, a->dim);
    return images_run(&d);
}

#define ROW(op, fn, dtype)                                                                         \
    { #op, TN_SIG_##op, fn, NULL, dtype, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_fft_c2c, fft_c2c, FFT_DTYPE),
    ROW(_fft_r2c, fft_r2c, TMPL_DTYPE),
    ROW(_fft_c2r, fft_c2r, FFT_DTYPE),
};
const cpu_rows TN_(cpu_fft_rows) = CPU_ROWS_OF(rows);
