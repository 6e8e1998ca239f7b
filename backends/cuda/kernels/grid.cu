/* grid.cu: images at the places of a grid and the derivatives of that, for one floating element type. A
 * thread has one place, and for values a few channels. What an element of an image passes on to several
 * places comes back in the order of sorted neighbours.
 *
 * types: float */
#include "planes.h"

#include "grid.h"

/* A thread's place: number `point` of image n. */
typedef struct grid_spot {
    int64_t n, point, channel; /* the first of its channels */
} grid_spot;

/* What thread i takes; the channels go by `groups`. */
TMPL_INLINE grid_spot grid_find(const cuda_grid_args &a, int64_t i, int64_t groups) {
    grid_spot s;
    s.point = planes_cut(&i, a.points);
    s.channel = planes_cut(&i, groups) * CUDA_GRID_CHANNELS;
    s.n = a.first + i;
    return s;
}

TMPL_INLINE int64_t grid_groups(const cuda_grid_args &a) {
    return (a.channels + CUDA_GRID_CHANNELS - 1) / CUDA_GRID_CHANNELS;
}

/* N neighbours along one dimension. */
template <int N, int AXES>
TMPL_INLINE void grid_axis(const cuda_grid_args &a, int axis, A g, grid_taps *ret) {
    int64_t size = a.size[axis];
    A x = grid_place(g, size, a.corners), slope = grid_slope(size, a.corners);
    if (N == 4) {
        grid_cubic(x, slope, size, a.padding, a.corners, ret);
        return;
    }
    x = grid_shown(grid_inside(x, size, a.padding, a.corners, &slope), AXES);
    A low = N == 1 ? GRID_MATH(rint)(x) : GRID_MATH(floor)(x);
    ret->at[0] = grid_within(low, size);
    ret->w[0] = N == 1 ? 1 : 1 - (x - low);
    ret->d[0] = N == 1 ? 0 : -slope;
    ret->dd[0] = 0;
    if (N == 1) return;
    ret->at[1] = grid_within(low + 1, size);
    ret->w[1] = x - low;
    ret->d[1] = slope;
    ret->dd[1] = 0;
}

/* All of a place: neighbours by dimension, and how it moves. */
template <int N, int AXES> struct grid_look {
    enum { PRODUCTS = AXES == 2 ? N * N : N * N * N };
    grid_taps axis[AXES];
    A along[AXES];
    bool moves;

    CUDA_MEMBER void find(const cuda_grid_args &a, const grid_spot &s) {
        int64_t first = (s.n * a.points + s.point) * AXES;
        moves = a.along ? true : false;
#pragma unroll
        for (int d = 0; d < AXES; d++) {
            grid_axis<N, AXES>(a, d, LOAD(((const T *)a.grid)[first + d]), &axis[d]);
            along[d] = moves ? LOAD(((const T *)a.along)[first + d]) : (A)0;
        }
    }

    /* Where product k lies in a plane, -1 where a neighbour is outside. */
    CUDA_MEMBER int32_t at(const cuda_grid_args &a, int k) const {
        int32_t sum = 0, step = 1;
        bool in = true;
#pragma unroll
        for (int d = 0; d < AXES; d++) {
            int32_t here = axis[d].at[k % N];
            in = in && here >= 0;
            sum += here * step;
            step *= (int32_t)a.size[d];
            k /= N;
        }
        return in ? sum : -1;
    }

    /* The product of the dimensions' weights, of which those in `once` and `twice` are derivatives. */
    CUDA_MEMBER A product(int k, int once, int twice) const {
        A w = 1;
#pragma unroll
        for (int d = 0; d < AXES; d++) {
            int order = (d == once) + (d == twice), tap = k % N;
            A v = order == 0 ? axis[d].w[tap] : order == 1 ? axis[d].d[tap] : axis[d].dd[tap];
            w = d == 0 ? v : w * v;
            k /= N;
        }
        return w;
    }

    /* The same, or how it changes as the place moves along. */
    CUDA_MEMBER A weight(int k, int once) const {
        A w = 0;
        if (!moves) return product(k, once, -1);
#pragma unroll
        for (int d = 0; d < AXES; d++) w += along[d] * product(k, d, once);
        return w;
    }
};

/* ---- Values ------------------------------------------------------------------------------------*/

template <int N, int AXES> TMPL_INLINE void grid_values(const cuda_grid_args &a) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    grid_spot s = grid_find(a, i, grid_groups(a));
    grid_look<N, AXES> look;
    look.find(a, s);
    int64_t first = s.n * a.channels + s.channel, left = a.channels - s.channel;
    const T *x = (const T *)a.image + first * a.plane;
    A sum[CUDA_GRID_CHANNELS] = {0};
#pragma unroll
    for (int k = 0; k < look.PRODUCTS; k++) {
        int32_t at = look.at(a, k);
        A w = look.weight(k, -1);
#pragma unroll
        for (int c = 0; c < CUDA_GRID_CHANNELS; c++)
            if (c < left) sum[c] += w * (at >= 0 ? LOAD(x[c * a.plane + at]) : (A)0);
    }
    T *y = (T *)a.y + first * a.points + s.point;
    for (int c = 0; c < CUDA_GRID_CHANNELS; c++)
        if (c < left) y[c * a.points] = STORE(sum[c]);
}

/* ---- The gradient of the grid: sums over the channels, product by product ----------------------- */

template <int N, int AXES> TMPL_INLINE void grid_moves(const cuda_grid_args &a) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    grid_spot s = grid_find(a, i, 1);
    grid_look<N, AXES> look;
    look.find(a, s);
    int32_t at[look.PRODUCTS];
    A sum[look.PRODUCTS];
#pragma unroll
    for (int k = 0; k < look.PRODUCTS; k++) {
        at[k] = look.at(a, k);
        sum[k] = 0;
    }
    const T *x = (const T *)a.image + s.n * a.channels * a.plane;
    const T *g = (const T *)a.grad + s.n * a.channels * a.points + s.point;
    for (int64_t c = 0; c < a.channels; c++, x += a.plane, g += a.points) {
        A grad = LOAD(*g);
#pragma unroll
        for (int k = 0; k < look.PRODUCTS; k++) sum[k] += grad * (at[k] >= 0 ? LOAD(x[at[k]]) : 0);
    }
    T *y = (T *)a.y + (s.n * a.points + s.point) * AXES;
#pragma unroll
    for (int d = 0; d < AXES; d++) {
        A moved = 0;
#pragma unroll
        for (int k = 0; k < look.PRODUCTS; k++) moved += look.weight(k, d) * sum[k];
        y[d] = STORE(moved);
    }
}

/* ---- The gradient of the image ------------------------------------------------------------------*/

/* All neighbours of a place: neighbour k of place i has number k numel + i. */
template <int N, int AXES> TMPL_INLINE void grid_neighbours(const cuda_grid_args &a) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    grid_spot s = grid_find(a, i, 1);
    grid_look<N, AXES> look;
    look.find(a, s);
#pragma unroll
    for (int k = 0; k < look.PRODUCTS; k++) {
        int32_t at = look.at(a, k);
        a.at[k * a.numel + i] = at >= 0 ? (s.n - a.first) * a.plane + at : a.outside;
        ((A *)a.weight)[k * a.numel + i] = look.weight(k, -1);
    }
}

/* The thread of the first of equal neighbours adds up what comes back from all of them. */
KERNEL(TN_(grid_join), cuda_grid_args) {
    int64_t i = cuda_thread();
    if (i >= a.taps * grid_groups(a)) return;
    int64_t tap = planes_cut(&i, a.taps), channel = i * CUDA_GRID_CHANNELS, here = a.sorted[tap];
    if (here == a.outside || (tap > 0 && a.sorted[tap - 1] == here)) return;
    int64_t pixel = planes_cut(&here, a.plane), left = a.channels - channel;
    int64_t first = (a.first + here) * a.channels + channel;
    const T *g = (const T *)a.grad + first * a.points;
    A sum[CUDA_GRID_CHANNELS] = {0};
    for (int64_t k = tap; k < a.taps && a.sorted[k] == a.sorted[tap]; k++) {
        int64_t at = a.position[k];
        A w = ((const A *)a.weight)[at];
        at = planes_cut(&at, a.numel);
        at = planes_cut(&at, a.points);
#pragma unroll
        for (int c = 0; c < CUDA_GRID_CHANNELS; c++)
            if (c < left) sum[c] += w * LOAD(g[c * a.points + at]);
    }
    T *y = (T *)a.y + first * a.plane + pixel;
    for (int c = 0; c < CUDA_GRID_CHANNELS; c++)
        if (c < left) y[c * a.plane] = STORE(sum[c]);
}

#define GRID_KERNELS(what)                                                                         \
    KERNEL(TN_(what##_nearest), cuda_grid_args) { a.axes == 2 ? what<1, 2>(a) : what<1, 3>(a); }   \
    KERNEL(TN_(what##_linear), cuda_grid_args) { a.axes == 2 ? what<2, 2>(a) : what<2, 3>(a); }    \
    KERNEL(TN_(what##_cubic), cuda_grid_args) { what<4, 2>(a); }

GRID_KERNELS(grid_values)
GRID_KERNELS(grid_moves)
GRID_KERNELS(grid_neighbours)
