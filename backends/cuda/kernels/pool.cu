/* pool.cu: pooling of planes and its gradients, for one floating element type. A thread computes one
 * element; gradients are gathered from the windows that hold the element, so that no two threads
 * write the same place and sums have one order.
 *
 * types: float */
#include "planes.h"

#include "scalar.h"

/* ---- Maxima ------------------------------------------------------------------------------------*/

/* Whether v takes the place of best: larger, or NaN, of which the last counts. */
TMPL_INLINE bool pool_beats(A v, A best) { return v > best || v != v; }

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

/* The same of square windows of K taps, read before any is compared; all numbers of a plane have 32
 * bits. */
template <int K> TMPL_INLINE void pool_max_square(const cuda_pool_args &a) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    uint32_t rows = (uint32_t)a.pooled[0], columns = (uint32_t)a.pooled[1];
    uint32_t line = (uint32_t)i / columns, plane = line / rows;
    uint32_t image = plane / (uint32_t)a.channels, channel = plane - image * (uint32_t)a.channels;
    const T *x = planes_plane<T>(a.x, image, channel);
    int32_t height = (int32_t)a.size[0], width = (int32_t)a.size[1];
    int32_t down = (int32_t)a.x.stride[2], right = (int32_t)a.x.stride[3];
    int32_t iy = (int32_t)(line - plane * rows) * (int32_t)a.step[0] - (int32_t)a.pad[0];
    int32_t ix = (int32_t)((uint32_t)i - line * columns) * (int32_t)a.step[1] - (int32_t)a.pad[1];
    int32_t by_y = (int32_t)a.dilation[0], by_x = (int32_t)a.dilation[1], at = -1;
    T tap[K][K], best = STORE((A)-INFINITY);
    bool inside[K][K];
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int n = 0; n < K; n++) {
            int32_t y = iy + k * by_y, z = ix + n * by_x;
            inside[k][n] = (uint32_t)y < (uint32_t)height && (uint32_t)z < (uint32_t)width;
            if (inside[k][n]) tap[k][n] = x[y * down + z * right];
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int n = 0; n < K; n++) {
            if (!inside[k][n] || (at >= 0 && !pool_beats(LOAD(tap[k][n]), LOAD(best)))) continue;
            best = tap[k][n];
            at = (iy + k * by_y) * width + ix + n * by_x;
        }
    }
    ((T *)a.y)[i] = best;
    a.index[i] = at;
}

KERNEL(TN_(pool_max_2), cuda_pool_args) { pool_max_square<2>(a); }
KERNEL(TN_(pool_max_3), cuda_pool_args) { pool_max_square<3>(a); }

/* Positions are somebody's data: -1 for one that is not in the plane, which is reported. */
TMPL_INLINE int64_t pool_checked(const cuda_pool_args &a, int64_t at) {
    int64_t size = a.size[0] * a.size[1];
    if (at >= 0 && at < size) return at;
    cuda_report(a.fault, a.op, at, size);
    return -1;
}

/* The elements of x at the given positions. */
KERNEL(TN_(pool_pick), cuda_pool_args) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return;
    planes_place p = planes_find(i, a.channels, a.pooled);
    const int64_t *of = planes_plane<int64_t>(a.places, p.image, p.channel);
    int64_t at = pool_checked(a, of[p.row * a.places.stride[2] + p.column * a.places.stride[3]]);
    if (at < 0) return;
    int64_t column = planes_cut(&at, a.size[1]);
    const T *x = planes_plane<T>(a.x, p.image, p.channel);
    ((T *)a.y)[i] = x[at * a.x.stride[2] + column * a.x.stride[3]];
}

/* ---- Gradients of maxima -----------------------------------------------------------------------
 * Where a maximum was is known from its position alone. A block has a tile of y, takes the pooled
 * elements in chunks, one for each thread, and adds what arrives in its tile: the first of those that
 * meet in one place adds up all of them, in their order. Before, the range of places that each chunk
 * has is found, where several tiles make a plane, so that a block looks at few of them. */

enum { POOL_TILE = CUDA_POOL_TILE(sizeof(A)), POOL_WORDS = CUDA_POOL_CHUNK / 32 };

/* Rarely needed, and long: not repeated. */
static __device__ __noinline__ int64_t pool_offset(const cuda_pool_args &a, const cuda_planes &from,
                                                   int64_t k) {
    planes_place p = planes_find(k, a.channels, a.pooled);
    return p.image * from.stride[0] + p.channel * from.stride[1] + p.row * from.stride[2] +
           p.column * from.stride[3];
}

/* Element k of all pooled planes. */
template <typename V>
TMPL_INLINE V pool_read(const cuda_pool_args &a, const cuda_planes &from, bool packed, int64_t k) {
    return ((const V *)from.data)[packed ? k : pool_offset(a, from, k)];
}

/* Where in y position `at` of element k is; -1: nowhere. */
TMPL_INLINE int64_t pool_place(const cuda_pool_args &a, int64_t k, int64_t at) {
    int64_t plane = k;
    planes_cut(&plane, a.pooled[0] * a.pooled[1]);
    at = pool_checked(a, at);
    return at < 0 ? -1 : plane * (a.size[0] * a.size[1]) + at;
}

/* A warp for each chunk. */
KERNEL(TN_(pool_ranges), cuda_pool_args) {
    int64_t chunk = cuda_thread() / 32, first = chunk * CUDA_POOL_CHUNK, at[POOL_WORDS];
    int lane = (int)(threadIdx.x % 32);
    cuda_pool_range r = {INT64_MAX, -1};
    if (chunk >= a.chunks) return;
#pragma unroll
    for (int n = 0; n < POOL_WORDS; n++) {
        int64_t k = first + n * 32 + lane;
        if (k < a.arrivals) at[n] = pool_read<int64_t>(a, a.places, a.packed_places, k);
    }
#pragma unroll
    for (int n = 0; n < POOL_WORDS; n++) {
        int64_t k = first + n * 32 + lane, place = k < a.arrivals ? pool_place(a, k, at[n]) : -1;
        if (place >= 0 && place < r.least) r.least = place;
        if (place > r.most) r.most = place;
    }
    for (int by = 16; by > 0; by /= 2) {
        int64_t least = __shfl_xor_sync(0xffffffffu, r.least, by);
        int64_t most = __shfl_xor_sync(0xffffffffu, r.most, by);
        if (least < r.least) r.least = least;
        if (most > r.most) r.most = most;
    }
    if (lane == 0) a.ranges[chunk] = r;
}

/* What arrives, and where: an element of y. */
typedef struct pool_arrival {
    int64_t place;
    A g;
} pool_arrival;

TMPL_INLINE pool_arrival pool_take(const cuda_pool_args &a, int64_t chunk) {
    int64_t k = chunk * CUDA_POOL_CHUNK + threadIdx.x;
    pool_arrival r = {-1, 0};
    if (k >= a.arrivals) return r;
    r.place = pool_read<int64_t>(a, a.places, a.packed_places, k);
    r.g = LOAD(pool_read<T>(a, a.x, a.packed_x, k));
    r.place = pool_place(a, k, r.place);
    return r;
}

/* The block's memory. */
typedef struct pool_sums {
    A *sum;          /* of the tile's elements */
    uint32_t *first; /* for each of them the first thread that has it; POOL_NOBODY */
    uint32_t
        *others; /* bits of the threads that meet with a first one: words, each of all threads */
    A *g;        /* of the threads */
} pool_sums;
#define POOL_NOBODY 0xffffffffu

/* A chunk; `i` is where the thread's element belongs in the tile, or -1. */
TMPL_INLINE void pool_add(const pool_sums &s, int32_t i, A g) {
    uint32_t mine = threadIdx.x;
    s.g[mine] = g;
    if (i >= 0) atomicMin(&s.first[i], mine);
    __syncthreads();
    uint32_t first = i >= 0 ? s.first[i] : POOL_NOBODY;
    if (i >= 0 && first != mine)
        atomicAdd(&s.others[mine / 32 * CUDA_POOL_CHUNK + first], 1u << mine % 32);
    __syncthreads();
    if (i >= 0 && first == mine) {
        A sum = s.sum[i] + g;
        for (uint32_t word = mine / 32; word < POOL_WORDS; word++) {
            uint32_t *others = &s.others[word * CUDA_POOL_CHUNK + mine], left = *others;
            if (left) *others = 0;
            for (; left; left &= left - 1) sum += s.g[word * 32 + __ffs((int)left) - 1];
        }
        s.sum[i] = sum;
        s.first[i] = POOL_NOBODY;
    }
    __syncthreads();
}

/* The first chunk from number `from` on whose bit is set; CUDA_POOL_CHUNK: none. */
TMPL_INLINE int pool_next(const uint32_t *hit, int from) {
    for (int word = from / 32; word < POOL_WORDS; word++) {
        uint32_t left = word == from / 32 ? hit[word] & (0xffffffffu << from % 32) : hit[word];
        if (left) return word * 32 + __ffs((int)left) - 1;
    }
    return CUDA_POOL_CHUNK;
}

TMPL_INLINE bool pool_reaches(const cuda_pool_args &a, int64_t chunk, int64_t begin, int64_t end) {
    if (!a.ranges) return true;
    cuda_pool_range r = a.ranges[chunk];
    return r.least < end && r.most >= begin;
}

KERNEL(TN_(pool_max_backward), cuda_pool_args) {
    SHARED(A, sum, POOL_TILE);
    SHARED(uint32_t, first, POOL_TILE);
    SHARED(uint32_t, others, POOL_WORDS * CUDA_POOL_CHUNK);
    SHARED(A, g, CUDA_POOL_CHUNK);
    SHARED(uint32_t, hit, POOL_WORDS);
    const pool_sums s = {sum, first, others, g};
    int64_t size = a.size[0] * a.size[1], pooled = a.pooled[0] * a.pooled[1];
    int64_t group = blockIdx.x, tile = planes_cut(&group, a.tiles);
    int64_t plane = group * a.each, last = plane + a.each < a.planes ? plane + a.each : a.planes;
    int64_t begin = plane * size + tile * a.tile, end = begin + a.tile;
    int64_t chunk = plane * pooled / CUDA_POOL_CHUNK;
    int64_t chunks = (last * pooled + CUDA_POOL_CHUNK - 1) / CUDA_POOL_CHUNK;
    int mine = (int)threadIdx.x;
    if (end > last * size) end = last * size;
    for (int i = mine; i < end - begin; i += CUDA_POOL_CHUNK) {
        sum[i] = 0;
        first[i] = POOL_NOBODY;
    }
    for (int k = 0; k < POOL_WORDS; k++) others[k * CUDA_POOL_CHUNK + mine] = 0;
    for (; chunk < chunks; chunk += CUDA_POOL_CHUNK) {
        bool reaches = chunk + mine < chunks && pool_reaches(a, chunk + mine, begin, end);
        uint32_t vote = __ballot_sync(0xffffffffu, reaches);
        __syncthreads();
        if (mine % 32 == 0) hit[mine / 32] = vote;
        __syncthreads();
        int next = pool_next(hit, 0);
        pool_arrival mine_now = {-1, 0};
        if (next < CUDA_POOL_CHUNK) mine_now = pool_take(a, chunk + next);
        while (next < CUDA_POOL_CHUNK) { /* the next chunk is on its way meanwhile */
            pool_arrival arrived = mine_now;
            next = pool_next(hit, next + 1);
            if (next < CUDA_POOL_CHUNK) mine_now = pool_take(a, chunk + next);
            bool here = arrived.place >= begin && arrived.place < end;
            pool_add(s, here ? (int32_t)(arrived.place - begin) : -1, arrived.g);
        }
    }
    __syncthreads();
    for (int i = mine; i < end - begin; i += CUDA_POOL_CHUNK) ((T *)a.y)[begin + i] = STORE(sum[i]);
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
