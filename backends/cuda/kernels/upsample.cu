/* upsample.cu: nearest and bilinear upsampling of planes and its gradient, for one floating element
 * type. The gradient of an element is gathered from the positions that read it.
 *
 * types: float */
#include "planes.h"

#include "scalar.h"

/* Positions are rounded as the CPU rounds them. */
#if TMPL_DTYPE == TMPL_F64
typedef double upsample_real;
#else
typedef float upsample_real;
#endif

/* Where a position of the large plane reads: lower neighbour, upper one, weight of the upper one. */
typedef struct upsample_tap {
    int64_t low, high;
    A weight;
} upsample_tap;

TMPL_INLINE upsample_tap upsample_find(const cuda_upsample_args &a, int d, int64_t o) {
    upsample_real s = (upsample_real)a.ratio[d], half = (upsample_real)0.5,
                  at = s * (upsample_real)o;
    upsample_tap t;
    if (a.linear && !a.corners) at = s * ((upsample_real)o + half) - half;
    if (at < 0) at = 0;
    /* Infinite, or no number, where a scale is tiny. */
    t.low = at > 0 ? a.small[d] - 1 : 0;
    if (at > 0 && at < (upsample_real)a.small[d]) t.low = (int64_t)at; /* down */
    if (t.low > a.small[d] - 1) t.low = a.small[d] - 1;
    t.high = a.linear && t.low < a.small[d] - 1 ? t.low + 1 : t.low;
    t.weight = a.linear ? (A)(at - (upsample_real)t.low) : (A)0;
    return t;
}

KERNEL(TN_(upsample), cuda_upsample_args) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.large);
    upsample_tap ty = upsample_find(a, 0, p.row), tx = upsample_find(a, 1, p.column);
    const T *x = planes_plane<T>(a.x, p.image, p.channel);
    const T *low = x + ty.low * a.x.stride[2], *high = x + ty.high * a.x.stride[2];
    int64_t left = tx.low * a.x.stride[3], right = tx.high * a.x.stride[3];
    if (ty.weight == 0 && tx.weight == 0) {
        ((T *)a.y)[i] = low[left];
        return;
    }
    A above = LOAD(low[left]) * (1 - tx.weight) + LOAD(low[right]) * tx.weight;
    A below = LOAD(high[left]) * (1 - tx.weight) + LOAD(high[right]) * tx.weight;
    ((T *)a.y)[i] = STORE((A)(above * (1 - ty.weight) + below * ty.weight));
}

/* Positions of the large plane that may read element i of the small one, a few too many: rounding
 * moves them. */
TMPL_INLINE void upsample_readers(const cuda_upsample_args &a, int d, int64_t i, int64_t *ret_begin,
                                  int64_t *ret_end) {
    double s = a.ratio[d], reach = a.linear ? 1.5 : 1.0;
    int64_t n = a.large[d], begin = 0, end = n;
    if (s > 0) {
        double first = ((double)i - reach) / s, last = ((double)i + reach) / s;
        double spare = 3 + (double)n * 0x1p-20;
        if (i > 0 && first > spare) begin = (int64_t)(first - spare);
        if (i < a.small[d] - 1 && last + spare < (double)n) end = (int64_t)(last + spare);
    }
    *ret_begin = begin;
    *ret_end = end;
}

/* What position o of the large plane takes of element i. */
TMPL_INLINE A upsample_share(const cuda_upsample_args &a, int d, int64_t o, int64_t i) {
    upsample_tap t = upsample_find(a, d, o);
    return (t.low == i ? 1 - t.weight : (A)0) + (t.high == i ? t.weight : (A)0);
}

KERNEL(TN_(upsample_backward), cuda_upsample_args) {
    int64_t i = cuda_thread(), y0, y1, x0, x1;
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.small);
    const T *g = planes_plane<T>(a.x, p.image, p.channel);
    upsample_readers(a, 0, p.row, &y0, &y1);
    upsample_readers(a, 1, p.column, &x0, &x1);
    A sum = 0;
    for (int64_t oy = y0; oy < y1; oy++) {
        A wy = upsample_share(a, 0, oy, p.row);
        if (wy == 0) continue;
        for (int64_t ox = x0; ox < x1; ox++) {
            A wx = upsample_share(a, 1, ox, p.column);
            if (wx != 0) sum += LOAD(g[oy * a.x.stride[2] + ox * a.x.stride[3]]) * wy * wx;
        }
    }
    ((T *)a.y)[i] = STORE(sum);
}
