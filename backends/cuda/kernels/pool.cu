/* pool.cu: pooling of planes and its gradients, for one floating element type. A thread computes one
 * element; gradients are gathered from the windows that hold the element, so that no two threads
 * write the same place and sums have one order.
 *
 * types: float */
#include "planes.h"

#include "scalar.h"

/* ---- Maxima ------------------------------------------------------------------------------------*/

/* Whether v takes the place of best: larger, or the first NaN. */
TMPL_INLINE bool pool_beats(A v, A best) { return !(v <= best) && best == best; }

/* Taps of window o along axis d: from *ret_begin in steps of the dilation to below *ret_end. */
TMPL_INLINE void pool_taps(const cuda_pool_args &a, int d, int64_t o, int64_t *ret_begin,
                           int64_t *ret_end) {
    int64_t by = a.dilation[d], begin = o * a.step[d] - a.pad[d];
    int64_t end = begin + (a.kernel[d] - 1) * by + 1;
    *ret_begin = begin < 0 ? begin + (-begin + by - 1) / by * by : begin;
    *ret_end = end > a.size[d] ? a.size[d] : end;
}

KERNEL(TN_(pool_max), cuda_pool_args) {
    int64_t i = cuda_thread(), y0, y1, x0, x1;
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.pooled);
    const T *x = planes_plane<T>(a.x, p.image, p.channel);
    pool_taps(a, 0, p.row, &y0, &y1);
    pool_taps(a, 1, p.column, &x0, &x1);
    /* A window that is spread wide may have all its taps in the padding: -inf, from no place. */
    bool inside = y0 < y1 && x0 < x1;
    T best = inside ? x[y0 * a.x.stride[2] + x0 * a.x.stride[3]] : STORE((A)-INFINITY);
    int64_t at = inside ? y0 * a.size[1] + x0 : -1;
    for (int64_t iy = y0; iy < y1; iy += a.dilation[0]) {
        const T *row = x + iy * a.x.stride[2];
        for (int64_t ix = x0; ix < x1; ix += a.dilation[1]) {
            T v = row[ix * a.x.stride[3]];
            if (!pool_beats(LOAD(v), LOAD(best))) continue;
            best = v;
            at = iy * a.size[1] + ix;
        }
    }
    ((T *)a.y)[i] = best;
    a.index[i] = at;
}

/* Positions are somebody's data: -1 for one that is not in the plane, which is reported. */
TMPL_INLINE int64_t pool_position(const cuda_pool_args &a, const planes_place &p) {
    int64_t size = a.size[0] * a.size[1];
    const int64_t *of = planes_plane<int64_t>(a.places, p.image, p.channel);
    int64_t at = of[p.row * a.places.stride[2] + p.column * a.places.stride[3]];
    if (at >= 0 && at < size) return at;
    cuda_report(a.fault, a.op, at, size);
    return -1;
}

/* The elements of x at the given positions. */
KERNEL(TN_(pool_pick), cuda_pool_args) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.pooled);
    int64_t at = pool_position(a, p), column;
    if (at < 0) return;
    column = planes_cut(&at, a.size[1]);
    const T *x = planes_plane<T>(a.x, p.image, p.channel);
    ((T *)a.y)[i] = x[at * a.x.stride[2] + column * a.x.stride[3]];
}

/* Adds what the chunk has for the place of element `mine`; the first element of several with one place
 * adds them all up, in their order. */
TMPL_INLINE void pool_add(A *sum, const int64_t *at, const A *g, int n, int mine) {
    int64_t place = at[mine];
    A total = 0;
    if (place < 0) return;
    for (int k = 0; k < mine; k++)
        if (at[k] == place) return;
    for (int k = mine; k < n; k++)
        if (at[k] == place) total += g[k];
    sum[place] += total;
}

/* A block for each plane, whose sums it owns: the pooled elements are taken in chunks, one for each
 * thread. Where a maximum was has no pattern that could be gathered. */
KERNEL(TN_(pool_max_backward), cuda_pool_args) {
    SHARED(int64_t, at, CUDA_BLOCK);
    SHARED(A, g, CUDA_BLOCK);
    int64_t size = a.size[0] * a.size[1], pooled = a.pooled[0] * a.pooled[1];
    int64_t plane = blockIdx.x, image = plane / a.channels, channel = plane - image * a.channels;
    const T *x = planes_plane<T>(a.x, image, channel);
    A *sum = (A *)a.sums + plane * size;
    int mine = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t i = mine; i < size; i += threads) sum[i] = 0;
    for (int64_t first = 0; first < pooled; first += threads) {
        int n = pooled - first < threads ? (int)(pooled - first) : threads;
        __syncthreads();
        if (mine < n) {
            planes_place p = planes_find(first + mine, 1, a.pooled);
            p.image = image;
            p.channel = channel;
            at[mine] = pool_position(a, p);
            g[mine] = LOAD(x[p.row * a.x.stride[2] + p.column * a.x.stride[3]]);
        }
        __syncthreads();
        if (mine < n) pool_add(sum, at, g, n, mine);
    }
#if TMPL_IS_HALF
    __syncthreads();
    T *y = (T *)a.y + plane * size;
    for (int64_t i = mine; i < size; i += threads) y[i] = STORE(sum[i]);
#endif
}

/* ---- Averages ----------------------------------------------------------------------------------*/

typedef struct pool_window {
    int64_t begin, end; /* inside of the plane */
    int64_t count;      /* with the padding, where that counts */
} pool_window;

TMPL_INLINE pool_window pool_find(const cuda_pool_args &a, int d, int64_t o) {
    pool_window w;
    int64_t size = a.size[d], limit = size + a.pad[d];
    if (a.adaptive) {
        w.begin = o * size / a.pooled[d];
        w.end = ((o + 1) * size + a.pooled[d] - 1) / a.pooled[d];
        w.count = w.end - w.begin;
        return w;
    }
    int64_t begin = o * a.step[d] - a.pad[d], end = begin + a.kernel[d];
    if (end > limit) end = limit;
    w.begin = begin < 0 ? 0 : begin;
    w.end = end > size ? size : end;
    w.count = a.count_pad ? end - begin : w.end - w.begin;
    return w;
}

TMPL_INLINE A pool_factor(const cuda_pool_args &a, const pool_window &y, const pool_window &x) {
    return (A)1 / (A)(a.divisor ? a.divisor : y.count * x.count);
}

/* `lanes` threads for each window, which take its elements in turns. */
KERNEL(TN_(pool_average), cuda_pool_args) {
    int64_t i = cuda_thread();
    int lane = (int)(i % a.lanes);
    i /= a.lanes;
    bool any = i < a.numel;
    planes_place p = planes_find(any ? i : 0, a.channels, a.pooled);
    pool_window wy = pool_find(a, 0, p.row), wx = pool_find(a, 1, p.column);
    const T *x = planes_plane<T>(a.x, p.image, p.channel);
    int64_t width = wx.end - wx.begin, n = any ? (wy.end - wy.begin) * width : 0;
    A sum = 0;
    if (a.lanes == 1) {
        for (int64_t iy = wy.begin; iy < wy.end && any; iy++)
            for (int64_t ix = wx.begin; ix < wx.end; ix++)
                sum += LOAD(x[iy * a.x.stride[2] + ix * a.x.stride[3]]);
    } else {
        for (int64_t k = lane; k < n; k += a.lanes) {
            int64_t row = k, column = planes_cut(&row, width);
            sum += LOAD(x[(wy.begin + row) * a.x.stride[2] + (wx.begin + column) * a.x.stride[3]]);
        }
        for (unsigned by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
    }
    if (any && lane == 0) ((T *)a.y)[i] = STORE(sum * pool_factor(a, wy, wx));
}

/* The windows that hold element i: from *ret_begin to below *ret_end. */
TMPL_INLINE void pool_windows_of(const cuda_pool_args &a, int d, int64_t i, int64_t *ret_begin,
                                 int64_t *ret_end) {
    int64_t n = a.pooled[d], size = a.size[d];
    if (a.adaptive) {
        *ret_begin = i * n / size;
        *ret_end = ((i + 1) * n - 1) / size + 1;
        return;
    }
    int64_t before = i + a.pad[d] - a.kernel[d] + 1, last = (i + a.pad[d]) / a.step[d];
    *ret_begin = before <= 0 ? 0 : (before + a.step[d] - 1) / a.step[d];
    *ret_end = last < n ? last + 1 : n;
}

KERNEL(TN_(pool_average_backward), cuda_pool_args) {
    int64_t i = cuda_thread(), y0, y1, x0, x1;
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.size);
    const T *g = planes_plane<T>(a.x, p.image, p.channel);
    pool_windows_of(a, 0, p.row, &y0, &y1);
    pool_windows_of(a, 1, p.column, &x0, &x1);
    A sum = 0;
    for (int64_t oy = y0; oy < y1; oy++) {
        pool_window wy = pool_find(a, 0, oy);
        for (int64_t ox = x0; ox < x1; ox++)
            sum += LOAD(g[oy * a.x.stride[2] + ox * a.x.stride[3]]) *
                   pool_factor(a, wy, pool_find(a, 1, ox));
    }
    ((T *)a.y)[i] = STORE(sum);
}
