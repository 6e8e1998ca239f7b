/* upsample.cu: nearest and bilinear upsampling of planes and its gradient, for one floating element
 * type. The gradient of an element is gathered from the positions that read it, which lie side by side;
 * where, and with what weights, is found once for all planes.
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

/* ---- Gradients ---------------------------------------------------------------------------------*/

/* The first position of the large plane whose lower (or `upper`) neighbour is i or more; neighbours of
 * later positions are never less. */
TMPL_INLINE int64_t upsample_first(const cuda_upsample_args &a, int d, int64_t i, bool upper) {
    int64_t begin = 0, end = a.large[d];
    while (begin < end) {
        int64_t o = begin + (end - begin) / 2;
        upsample_tap t = upsample_find(a, d, o);
        if ((upper ? t.high : t.low) >= i)
            end = o;
        else
            begin = o + 1;
    }
    return begin;
}

/* A thread for each weight, then for each span. */
KERNEL(TN_(upsample_tables), cuda_upsample_args) {
    int64_t i = cuda_thread(), weights = a.large[0] + a.large[1];
    if (i < weights) {
        int d = i >= a.large[0];
        ((A *)a.weights)[i] = upsample_find(a, d, d ? i - a.large[0] : i).weight;
        return;
    }
    i -= weights;
    if (i >= a.small[0] + a.small[1]) return;
    int d = i >= a.small[0];
    int64_t of = d ? i - a.small[0] : i;
    cuda_upsample_span s = {upsample_first(a, d, of, true), upsample_first(a, d, of, false),
                            upsample_first(a, d, of + 1, false)};
    a.spans[i] = s;
}

/* What position o takes of an element that it reads as its lower neighbour, its upper one, or both. */
TMPL_INLINE A upsample_share(const cuda_upsample_span &s, bool both, int64_t o, A weight) {
    A low = 1 - weight;
    return o < s.middle ? weight : both ? low + weight : low;
}

KERNEL(TN_(upsample_backward), cuda_upsample_args) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.small);
    const T *g = planes_plane<T>(a.x, p.image, p.channel);
    const cuda_upsample_span y = a.spans[p.row], x = a.spans[a.small[0] + p.column];
    const A *of_y = (const A *)a.weights, *of_x = of_y + a.large[0];
    bool both_y = !a.linear || p.row == a.small[0] - 1;
    bool both_x = !a.linear || p.column == a.small[1] - 1;
    A sum = 0;
    for (int64_t oy = y.begin; oy < y.end; oy++) {
        A wy = upsample_share(y, both_y, oy, of_y[oy]);
        const T *row = g + oy * a.x.stride[2];
        if (wy == 0) continue;
#pragma unroll 4
        for (int64_t ox = x.begin; ox < x.end; ox++) {
            A wx = upsample_share(x, both_x, ox, of_x[ox]);
            A part = LOAD(row[ox * a.x.stride[3]]) * wy * wx;
            sum += wx != 0 ? part : (A)0;
        }
    }
    ((T *)a.y)[i] = STORE(sum);
}
