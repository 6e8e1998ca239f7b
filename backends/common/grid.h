/* grid.h: where the numbers of a grid stand in an image: neighbours along one dimension and what they
 * weigh. A is float or double; include after tmpl.h, and on the CPU after math.h. */
#ifndef GRID_H
#define GRID_H

enum { GRID_BILINEAR, GRID_NEAREST, GRID_BICUBIC };
enum { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };
enum { GRID_AXES = 3, GRID_TAPS = 4 };

#if TMPL_DTYPE == TMPL_F64
#define GRID_MATH(name) TMPL_BUILTIN(name)
#else
#define GRID_MATH(name) TMPL_BUILTIN(name##f)
#endif

/* Neighbours, -1 where one is outside; their weights, and the derivatives of these as the number of the
 * grid moves. */
typedef struct grid_taps {
    int32_t count, at[GRID_TAPS];
    A w[GRID_TAPS], d[GRID_TAPS], dd[GRID_TAPS];
} grid_taps;

/* Within [0, size - 1]; *ret_turn: how x moves with its argument. */
TMPL_INLINE A grid_clip(A x, int64_t size, A *ret_turn) {
    A last = (A)(size - 1), low = x > 0 ? x : 0;
    *ret_turn = x > 0 && x < last ? *ret_turn : 0;
    return low >= last ? last : low;
}

TMPL_INLINE A grid_reflect(A x, int64_t size, bool corners, A *ret_turn) {
    A least = corners ? 0 : (A)-0.5, span = corners ? (A)(size - 1) : (A)size;
    if (span == 0) *ret_turn = 0;
    if (span == 0) return 0;
    x -= least;
    if (x < 0) *ret_turn = -*ret_turn;
    x = x < 0 ? -x : x;
    A rest = GRID_MATH(fmod)(x, span), flips = GRID_MATH(floor)(x / span);
    bool odd = GRID_MATH(fmod)(flips, (A)2) != 0;
    if (odd) *ret_turn = -*ret_turn;
    return odd ? span - rest + least : rest + least;
}

/* What no int holds, and NaN, is far outside. */
TMPL_INLINE A grid_hold(A x) { return x < (A)INT32_MAX - 1 && x > (A)INT32_MIN + 1 ? x : -100; }

/* Where x is not finite, an image shows NaN, and a volume what is outside. */
TMPL_INLINE A grid_shown(A x, int axes) { return axes == 2 ? x : grid_hold(x); }

TMPL_INLINE A grid_inside(A x, int64_t size, int64_t padding, bool corners, A *ret_turn) {
    if (padding == GRID_REFLECTION) x = grid_reflect(x, size, corners, ret_turn);
    if (padding != GRID_ZEROS) x = grid_clip(x, size, ret_turn);
    return x;
}

TMPL_INLINE int32_t grid_within(A at, int64_t size) {
    return at >= 0 && at < (A)size ? (int32_t)at : -1;
}

/* Where x is not finite the weights are NaN. */
TMPL_INLINE void grid_cubic(A x, A slope, int64_t size, int64_t padding, bool corners,
                            grid_taps *ret) {
    const A a = (A)-0.75;
    A low = GRID_MATH(floor)(x), t = x - low, turn = 1;
    ret->count = 4;
    for (int i = 0; i < 4; i++) {
        bool far = i == 0 || i == 3;
        A side = i < 2 ? 1 : -1, u = i == 0 ? t + 1 : i == 1 ? t : i == 2 ? 1 - t : 2 - t;
        ret->w[i] =
            far ? ((a * u - 5 * a) * u + 8 * a) * u - 4 * a : ((a + 2) * u - (a + 3)) * u * u + 1;
        A d = far ? (3 * a * u - 10 * a) * u + 8 * a : (3 * (a + 2) * u - 2 * (a + 3)) * u;
        ret->d[i] = d * side * slope;
        ret->dd[i] = (far ? 6 * a * u - 10 * a : 6 * (a + 2) * u - 2 * (a + 3)) * slope * slope;
        A at = grid_inside(low + (A)(i - 1), size, padding, corners, &turn);
        ret->at[i] = grid_within(at, size);
    }
}

/* Where a number of the grid stands along a dimension. */
TMPL_INLINE A grid_place(A g, int64_t size, bool corners) {
    return corners ? (g + 1) / 2 * (A)(size - 1) : ((g + 1) * (A)size - 1) / 2;
}

TMPL_INLINE A grid_slope(int64_t size, bool corners) {
    return corners ? (A)(size - 1) / 2 : (A)size / 2;
}

#endif
