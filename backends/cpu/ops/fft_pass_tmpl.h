/* fft_pass_tmpl.h: one pass over a tile, LANES columns of complex numbers, by its radix.
 *
 * The first pass of a transform may read from memory and the last one may write there, or multiply by what
 * stands between the halves of a line: a tile is then gone through twice less. */
#ifndef TENON_CPU_FFT_PASS_TMPL_H
#define TENON_CPU_FFT_PASS_TMPL_H

#include "fft_vec_tmpl.h"

enum { LARGEST_PRIME = 31 };

typedef struct pass {
    int64_t radix;
    const T *w;    /* per group of radix numbers, radix - 1 complex factors */
    const T *trig; /* cos and sin of the multiples of 2 pi / radix, of an odd radix */
} pass;

typedef struct tile {
    lanes *re, *im;
} tile;

FFT_INLINE wave tile_get(tile t, int64_t k) { return (wave){t.re[k], t.im[k]}; }
FFT_INLINE void tile_put(tile t, int64_t k, wave v) {
    t.re[k] = v.re;
    t.im[k] = v.im;
}

FFT_INLINE void four(wave *a) {
    wave s = wave_add(a[0], a[2]), d = wave_sub(a[0], a[2]);
    wave t = wave_add(a[1], a[3]), e = wave_back(wave_sub(a[1], a[3]));
    a[0] = wave_add(s, t);
    a[1] = wave_add(d, e);
    a[2] = wave_sub(s, t);
    a[3] = wave_sub(d, e);
}

FFT_INLINE void eight(wave *a) {
    const T r = (T)0.70710678118654752440;
    wave even[4] = {a[0], a[2], a[4], a[6]}, odd[4] = {a[1], a[3], a[5], a[7]};
    four(even);
    four(odd);
    odd[1] = (wave){(odd[1].re + odd[1].im) * r, (odd[1].im - odd[1].re) * r};
    odd[2] = wave_back(odd[2]);
    odd[3] = (wave){(odd[3].im - odd[3].re) * r, (odd[3].re + odd[3].im) * -r};
    TMPL_UNROLL
    for (int k = 0; k < 4; k++) {
        a[k] = wave_add(even[k], odd[k]);
        a[k + 4] = wave_sub(even[k], odd[k]);
    }
}

/* An odd prime: sums and differences of the numbers k and radix - k, times cosines and sines. */
FFT_INLINE void odd_prime(int radix, const T *trig, wave *a) {
    wave sum[(LARGEST_PRIME + 1) / 2] = {{{0}, {0}}}, dif[(LARGEST_PRIME + 1) / 2] = {{{0}, {0}}};
    wave all = a[0];
    TMPL_UNROLL
    for (int k = 1; k <= radix / 2; k++) {
        sum[k] = wave_add(a[k], a[radix - k]);
        dif[k] = wave_back(wave_sub(a[k], a[radix - k]));
        all = wave_add(all, sum[k]);
    }
    TMPL_UNROLL
    for (int j = 1; j <= radix / 2; j++) {
        wave s = a[0], d = {{0}, {0}};
        TMPL_UNROLL
        for (int k = 1; k <= radix / 2; k++) {
            const T *t = trig + 2 * (j * k % radix);
            s = wave_add(s, wave_scale(sum[k], t[0]));
            d = wave_add(d, wave_scale(dif[k], t[1]));
        }
        a[j] = wave_add(s, d);
        a[radix - j] = wave_sub(s, d);
    }
    a[0] = all;
}

FFT_INLINE void butterfly(int radix, const T *trig, wave *a) {
    if (radix == 2) {
        wave s = wave_add(a[0], a[1]);
        a[1] = wave_sub(a[0], a[1]);
        a[0] = s;
    } else if (radix == 4) {
        four(a);
    } else if (radix == 8) {
        eight(a);
    } else {
        odd_prime(radix, trig, a);
    }
}

/* ---- Ends --------------------------------------------------------------------------------------*/

/* Where the rows of a transform come from or go. */
enum {
    IN_TILE, /* t */
    MEMORY,  /* row k: LANES numbers from at + k step on; re and im are factors */
    TURNED,  /* row k step of t, times number k of w */
    CROSSED  /* times number k of w and vector k of inner; it stays where the last pass finds it */
};

typedef struct ends {
    int kind;
    tile t;
    T *at;
    int64_t step;
    T re, im;
    const T *w, *inner;
} ends;

FFT_INLINE wave end_get(int kind, const ends *e, int64_t k) {
    if (kind == IN_TILE) return tile_get(e->t, k);
    wave v = wave_load(e->at + k * e->step);
    return (wave){v.re, v.im * e->im};
}

/* Row k, which comes from `here`. */
FFT_INLINE void end_put(int kind, const ends *e, tile here, int64_t k, wave v) {
    if (kind == MEMORY) {
        wave_store(e->at + k * e->step, (wave){v.re * e->re, v.im * e->im});
        return;
    }
    v = wave_turn(v, e->w[2 * k], e->w[2 * k + 1]);
    if (kind == CROSSED) {
        const T *inner = e->inner + 2 * LANES * k;
        v = wave_mul(v, (wave){lanes_load(inner), lanes_load(inner + LANES)});
    }
    if (kind == CROSSED)
        tile_put(here, k, v);
    else
        tile_put(e->t, k * e->step, v);
}

/* Number p of a first pass, whose factors are w, or 1 where there are none. */
FFT_INLINE void first_group(int radix, int kind, const pass *at, int64_t m, int64_t p, const T *w,
                            const ends *from, tile y) {
    wave a[8];
    TMPL_UNROLL
    for (int k = 0; k < radix; k++) a[k] = end_get(kind, from, p + k * m);
    butterfly(radix, at->trig, a);
    tile_put(y, radix * p, a[0]);
    TMPL_UNROLL
    for (int k = 1; k < radix; k++)
        tile_put(y, radix * p + k, w ? wave_turn(a[k], w[2 * k - 2], w[2 * k - 1]) : a[k]);
}

/* The first pass, to y. */
FFT_INLINE void first_of(int radix, int kind, const pass *at, int64_t m, ends from, tile y) {
    first_group(radix, kind, at, m, 0, NULL, &from, y);
    for (int64_t p = 1; p < m; p++)
        first_group(radix, kind, at, m, p, at->w + 2 * (radix - 1) * p, &from, y);
}

static bool has_ends(int64_t radix) { return radix == 4 || radix == 8; }

static __attribute__((noinline)) void first_run(const pass *at, int64_t m, const ends *from,
                                                tile y) {
    if (at->radix == 4 && from->kind == MEMORY)
        first_of(4, MEMORY, at, m, *from, y);
    else if (at->radix == 4)
        first_of(4, IN_TILE, at, m, *from, y);
    else if (from->kind == MEMORY)
        first_of(8, MEMORY, at, m, *from, y);
    else
        first_of(8, IN_TILE, at, m, *from, y);
}

/* ---- Passes ------------------------------------------------------------------------------------*/

/* x[q + s (p + k m)] -> y[q + s (radix p + k)] for q < s, p < m, k < radix. */
FFT_INLINE void pass_of(int radix, const pass *at, int64_t m, int64_t s, tile x, tile y) {
    wave a[LARGEST_PRIME + 1];
    for (int64_t p = 0; p < m; p++) {
        const T *w = at->w + 2 * (radix - 1) * p;
        for (int64_t q = 0; q < s; q++) {
            TMPL_UNROLL
            for (int k = 0; k < radix; k++) a[k] = tile_get(x, q + s * (p + k * m));
            butterfly(radix, at->trig, a);
            tile_put(y, q + s * radix * p, a[0]);
            if (p == 0) {
                TMPL_UNROLL
                for (int k = 1; k < radix; k++) tile_put(y, q + s * k, a[k]);
            } else {
                TMPL_UNROLL
                for (int k = 1; k < radix; k++)
                    tile_put(y, q + s * (radix * p + k),
                             wave_turn(a[k], w[2 * k - 2], w[2 * k - 1]));
            }
        }
    }
}

static __attribute__((noinline)) void pass_run(const pass *at, int64_t m, int64_t s, tile x,
                                               tile y) {
    if (s == 1 && has_ends(at->radix)) {
        const ends from = {.kind = IN_TILE, .t = x};
        first_run(at, m, &from, y);
        return;
    }
    switch (at->radix) {
    case 2: pass_of(2, at, m, s, x, y); break;
    case 3: pass_of(3, at, m, s, x, y); break;
    case 4: pass_of(4, at, m, s, x, y); break;
    case 5: pass_of(5, at, m, s, x, y); break;
    case 7: pass_of(7, at, m, s, x, y); break;
    case 8: pass_of(8, at, m, s, x, y); break;
    default: pass_of((int)at->radix, at, m, s, x, y); break;
    }
}

/* The passes first .. of a transform of n = m s numbers, of which s are done. Returns the buffer that holds
 * the result. */
static tile passes_run(const pass *at, int32_t count, int64_t m, int64_t s, tile x, tile y) {
    for (int32_t i = 0; i < count; i++) {
        m /= at[i].radix;
        pass_run(&at[i], m, s, x, y);
        s *= at[i].radix;
        tile t = x;
        x = y;
        y = t;
    }
    return x;
}

/* The last pass, of s groups, from x. */
FFT_INLINE void last_of(int radix, int kind, int64_t s, tile x, ends to) {
    wave a[8];
    for (int64_t q = 0; q < s; q++) {
        TMPL_UNROLL
        for (int k = 0; k < radix; k++) a[k] = tile_get(x, q + s * k);
        butterfly(radix, NULL, a);
        TMPL_UNROLL
        for (int k = 0; k < radix; k++) end_put(kind, &to, x, q + s * k, a[k]);
    }
}

static __attribute__((noinline)) void last_run(int64_t radix, int64_t s, tile x, const ends *to) {
    if (radix == 4) {
        switch (to->kind) {
        case MEMORY: last_of(4, MEMORY, s, x, *to); break;
        case TURNED: last_of(4, TURNED, s, x, *to); break;
        default: last_of(4, CROSSED, s, x, *to); break;
        }
    } else {
        switch (to->kind) {
        case MEMORY: last_of(8, MEMORY, s, x, *to); break;
        case TURNED: last_of(8, TURNED, s, x, *to); break;
        default: last_of(8, CROSSED, s, x, *to); break;
        }
    }
}

FFT_INLINE void rows_of_kind(int kind, int64_t n, tile x, ends to) {
    for (int64_t k = 0; k < n; k++) end_put(kind, &to, x, k, tile_get(x, k));
}

static void rows_put(int64_t n, tile x, const ends *to) {
    switch (to->kind) {
    case MEMORY: rows_of_kind(MEMORY, n, x, *to); break;
    case TURNED: rows_of_kind(TURNED, n, x, *to); break;
    default: rows_of_kind(CROSSED, n, x, *to); break;
    }
}

#endif
