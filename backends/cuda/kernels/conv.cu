/* conv.cu: convolutions of one element type: images unfolded into the columns of a matrix and back, and
 * groups of one channel without a matrix. Every result is one thread's or one block's own sum.
 *
 * types: float */
#include "device.h"

#include "args_conv.h"
#include "join_lanes.h"
#include "rows.h"
#include "scalar.h"

typedef struct conv_place {
    uint32_t at[3];
} conv_place;

TMPL_INLINE conv_place conv_split(uint32_t i, const int64_t *size) {
    uint32_t row = i / (uint32_t)size[2], plane = row / (uint32_t)size[1];
    conv_place p = {{plane, row - plane * (uint32_t)size[1], i - row * (uint32_t)size[2]}};
    return p;
}

TMPL_INLINE uint32_t conv_count(const int64_t *size) {
    return (uint32_t)(size[0] * size[1] * size[2]);
}

/* The pixel that tap t of the window at place p meets; false where it lies in the padding. */
TMPL_INLINE bool conv_pixel(const cuda_conv_shape &s, int d, uint32_t p, int64_t t,
                            int64_t *ret_pixel) {
    *ret_pixel = (int64_t)p * s.stride[d] - s.pad[d] + t * s.dilation[d];
    return *ret_pixel >= 0 && *ret_pixel < s.in[d];
}

/* The place of the window whose tap t meets pixel q; false when there is none. */
TMPL_INLINE bool conv_meets(const cuda_conv_shape &s, int d, uint32_t q, int64_t t,
                            int64_t *ret_place) {
    int64_t from = (int64_t)q + s.pad[d] - t * s.dilation[d];
    if (from < 0) return false;
    uint32_t place = (uint32_t)from / (uint32_t)s.stride[d];
    *ret_place = place;
    return place * (uint32_t)s.stride[d] == (uint32_t)from && place < s.out[d];
}

TMPL_INLINE int64_t conv_offset(const cuda_images &x, int64_t z, int64_t y, int64_t column) {
    return z * x.at[0] + y * x.at[1] + column * x.at[2];
}

/* ---- A matrix of columns -----------------------------------------------------------------------*/

/* A thread fills one column of a channel. */
KERNEL(TN_(conv_unfold), cuda_columns_args) {
    const cuda_conv_shape &s = a.s;
    uint32_t channel = blockIdx.x / a.tiles;
    int64_t column = (int64_t)(blockIdx.x - channel * a.tiles) * blockDim.x + threadIdx.x;
    if (column >= a.columns) return;
    uint32_t image = (uint32_t)column / a.places;
    conv_place p = conv_split((uint32_t)column - image * a.places + a.first, s.out);
    const T *x = (const T *)a.x.data + image * a.x.image + channel * a.x.channel;
    int64_t taps = s.window[0] * s.window[1] * s.window[2], pixel[3];
    T *to = (T *)a.matrix + channel * taps * a.columns + column;
    for (int64_t i = 0; i < s.window[0]; i++) {
        bool inside0 = conv_pixel(s, 0, p.at[0], i, &pixel[0]);
        for (int64_t j = 0; j < s.window[1]; j++) {
            bool inside1 = conv_pixel(s, 1, p.at[1], j, &pixel[1]) && inside0;
            for (int64_t k = 0; k < s.window[2]; k++, to += a.columns) {
                bool inside = conv_pixel(s, 2, p.at[2], k, &pixel[2]) && inside1;
                *to = inside ? x[conv_offset(a.x, pixel[0], pixel[1], pixel[2])] : STORE((A)0);
            }
        }
    }
}

/* A thread makes one pixel of the images (packed): the sum of the elements it was unfolded to. */
KERNEL(TN_(conv_fold), cuda_columns_args) {
    const cuda_conv_shape &s = a.s;
    uint32_t pixels = conv_count(s.in), plane = blockIdx.x / a.tiles;
    uint32_t image = plane / a.channels, channel = plane - image * a.channels;
    int64_t pixel = (int64_t)(blockIdx.x - plane * a.tiles) * blockDim.x + threadIdx.x, at[3];
    if (pixel >= pixels) return;
    conv_place q = conv_split((uint32_t)pixel, s.in);
    int64_t taps = s.window[0] * s.window[1] * s.window[2];
    const A *from = (const A *)a.matrix + channel * taps * a.columns + (int64_t)image * a.places;
    A sum = 0;
    for (int64_t i = 0; i < s.window[0]; i++) {
        bool meets0 = conv_meets(s, 0, q.at[0], i, &at[0]);
        for (int64_t j = 0; j < s.window[1]; j++) {
            bool meets1 = meets0 && conv_meets(s, 1, q.at[1], j, &at[1]);
            for (int64_t k = 0; k < s.window[2]; k++, from += a.columns)
                if (meets1 && conv_meets(s, 2, q.at[2], k, &at[2]))
                    sum += from[(at[0] * s.out[1] + at[1]) * s.out[2] + at[2]];
        }
    }
    if (a.bias) sum += LOAD(((const T *)a.bias)[channel]);
    T *x = (T *)a.x.data + image * a.x.image + channel * a.x.channel;
    x[pixel] = STORE(sum);
}

KERNEL(TN_(conv_bias), cuda_bias_args) {
    uint32_t plane = blockIdx.x / a.tiles;
    int64_t i = (int64_t)(blockIdx.x - plane * a.tiles) * blockDim.x + threadIdx.x;
    if (i >= a.size) return;
    T *at = (T *)a.data + plane * a.size + i;
    *at = STORE(LOAD(*at) + LOAD(((const T *)a.bias)[plane % a.channels]));
}

/* What is made, and again, and the bias for each of its rows of channels. */
KERNEL(TN_(conv_bias_last), cuda_plan) {
    enum { SPAN = CUDA_SPAN(sizeof(T)) };
    CUDA_SPAN_ARRAY(T, x, SPAN);
    CUDA_SPAN_ARRAY(T, bias, SPAN);
    cuda_group g;
    if (!cuda_group_start<SPAN>(a, &g)) return;
    cuda_load(a, g, 1, x);
    cuda_load(a, g, 2, bias);
    for (int i = 0; i < SPAN; i++)
        if (i < g.n) x[i] = STORE(LOAD(x[i]) + LOAD(bias[i]));
    cuda_store(a, g, x);
}

/* ---- Groups of one channel ---------------------------------------------------------------------*/

/* The plane that a block works on, of `channels` to an image, and the calling thread's place in it. */
typedef struct conv_plane {
    uint32_t image, channel, place;
} conv_plane;

/* False when there is nothing for the thread to do. */
TMPL_INLINE bool conv_find(const cuda_depthwise_args &a, const int64_t *size, uint32_t channels,
                           conv_plane *ret_plane) {
    uint32_t plane = blockIdx.x / a.tiles;
    int64_t place = (int64_t)(blockIdx.x - plane * a.tiles) * blockDim.x + threadIdx.x;
    ret_plane->image = plane / channels;
    ret_plane->channel = plane - ret_plane->image * channels;
    ret_plane->place = (uint32_t)place;
    return place < conv_count(size);
}

KERNEL(TN_(conv_depthwise), cuda_depthwise_args) {
    const cuda_conv_shape &s = a.s;
    conv_plane o;
    int64_t pixel[3];
    if (!conv_find(a, s.out, a.channels * a.each, &o)) return;
    conv_place p = conv_split(o.place, s.out);
    const T *w = (const T *)a.w + (int64_t)o.channel * a.taps;
    const T *x = (const T *)a.x.data + o.image * a.x.image + o.channel / a.each * a.x.channel;
    A sum = 0;
    for (int64_t i = 0; i < s.window[0]; i++) {
        bool inside0 = conv_pixel(s, 0, p.at[0], i, &pixel[0]);
        for (int64_t j = 0; j < s.window[1]; j++) {
            bool inside1 = conv_pixel(s, 1, p.at[1], j, &pixel[1]) && inside0;
            for (int64_t k = 0; k < s.window[2]; k++, w++)
                if (conv_pixel(s, 2, p.at[2], k, &pixel[2]) && inside1)
                    sum += LOAD(x[conv_offset(a.x, pixel[0], pixel[1], pixel[2])]) * LOAD(*w);
        }
    }
    if (a.bias) sum += LOAD(((const T *)a.bias)[o.channel]);
    T *y = (T *)a.y.data + o.image * a.y.image + o.channel * a.y.channel;
    y[o.place] = STORE(sum);
}

/* What the windows of one of a channel's gradients y put into the pixel q. */
TMPL_INLINE A conv_gather(const cuda_depthwise_args &a, const conv_place &q, const T *y,
                          const T *w) {
    const cuda_conv_shape &s = a.s;
    int64_t at[3];
    A sum = 0;
    for (int64_t i = 0; i < s.window[0]; i++) {
        bool meets0 = conv_meets(s, 0, q.at[0], i, &at[0]);
        for (int64_t j = 0; j < s.window[1]; j++) {
            bool meets1 = meets0 && conv_meets(s, 1, q.at[1], j, &at[1]);
            for (int64_t k = 0; k < s.window[2]; k++, w++)
                if (meets1 && conv_meets(s, 2, q.at[2], k, &at[2]))
                    sum += LOAD(y[conv_offset(a.y, at[0], at[1], at[2])]) * LOAD(*w);
        }
    }
    return sum;
}

KERNEL(TN_(conv_depthwise_input), cuda_depthwise_args) {
    conv_plane o;
    if (!conv_find(a, a.s.in, a.channels, &o)) return;
    conv_place q = conv_split(o.place, a.s.in);
    A sum = 0;
    for (int64_t m = 0; m < a.each; m++) {
        int64_t from = (int64_t)o.channel * a.each + m;
        const T *y = (const T *)a.y.data + o.image * a.y.image + from * a.y.channel;
        sum += conv_gather(a, q, y, (const T *)a.w + from * a.taps);
    }
    if (a.bias) sum += LOAD(((const T *)a.bias)[o.channel]);
    T *x = (T *)a.x.data + o.image * a.x.image + o.channel * a.x.channel;
    x[o.place] = STORE(sum);
}

/* A block sums one element of the gradient of w over the images of one part. */
KERNEL(TN_(conv_depthwise_weight), cuda_depthwise_args) {
    SHARED(A, sums, CUDA_BLOCK);
    const cuda_conv_shape &s = a.s;
    uint32_t element = blockIdx.x / a.parts, part = blockIdx.x - element * a.parts;
    uint32_t channel = element / a.taps, places = conv_count(s.out);
    conv_place t = conv_split(element - channel * a.taps, s.window);
    int64_t end = (part + 1) * a.span < a.images ? (part + 1) * a.span : a.images, pixel[3];
    A sum = 0;
    for (int64_t image = part * a.span; image < end; image++) {
        const T *x = (const T *)a.x.data + image * a.x.image + channel / a.each * a.x.channel;
        const T *y = (const T *)a.y.data + image * a.y.image + channel * a.y.channel;
        for (int64_t i = threadIdx.x; i < places; i += blockDim.x) {
            conv_place p = conv_split((uint32_t)i, s.out);
            if (conv_pixel(s, 0, p.at[0], t.at[0], &pixel[0]) &&
                conv_pixel(s, 1, p.at[1], t.at[1], &pixel[1]) &&
                conv_pixel(s, 2, p.at[2], t.at[2], &pixel[2]))
                sum += LOAD(x[conv_offset(a.x, pixel[0], pixel[1], pixel[2])]) *
                       LOAD(y[conv_offset(a.y, p.at[0], p.at[1], p.at[2])]);
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t n = blockDim.x / 2; n > 0; n /= 2) {
        if (threadIdx.x < n) sums[threadIdx.x] += sums[threadIdx.x + n];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        ((A *)a.partial)[(int64_t)part * a.channels * a.each * a.taps + element] = sums[0];
}

/* ---- The same of planes whose windows are square -----------------------------------------------
 * K by K taps, unrolled. Places and pixels have 32 bits, signed. */

/* What the taps of a window meet along a dimension of `size`: at, at + by, ... */
typedef struct conv_line {
    int32_t at, by, size;
} conv_line;

/* Pixels of the window at `place`. */
TMPL_INLINE conv_line conv_pixels(const cuda_conv_shape &s, int d, uint32_t place) {
    conv_line l = {(int32_t)place * (int32_t)s.stride[d] - (int32_t)s.pad[d],
                   (int32_t)s.dilation[d], (int32_t)s.in[d]};
    return l;
}

/* Places of the windows that meet the pixel q, if they are 1 apart. */
TMPL_INLINE conv_line conv_places(const cuda_conv_shape &s, int d, uint32_t q) {
    conv_line l = {(int32_t)q + (int32_t)s.pad[d], -(int32_t)s.dilation[d], (int32_t)s.out[d]};
    return l;
}

/* All of them, read before any is computed with. */
template <int K> struct conv_window {
    T of[K][K];
    bool inside[K][K];
};

/* BY: how far elements of a row lie apart, where the compiler may know it; or 0. */
template <int K, int BY>
TMPL_INLINE void conv_read(const cuda_images &from, const T *plane, const conv_line &y,
                           const conv_line &z, conv_window<K> *ret_window) {
    int64_t down = (int64_t)y.by * from.at[1], right = BY ? BY : (int64_t)z.by * from.at[2];
    const T *corner = plane + (int64_t)y.at * from.at[1] + (int64_t)z.at * from.at[2];
#pragma unroll
    for (int j = 0; j < K; j++) {
        bool row = (uint32_t)(y.at + j * y.by) < (uint32_t)y.size;
#pragma unroll
        for (int k = 0; k < K; k++) {
            bool inside = row && (uint32_t)(z.at + k * (BY ? BY : z.by)) < (uint32_t)z.size;
            ret_window->inside[j][k] = inside;
            if (inside) ret_window->of[j][k] = corner[j * down + k * right];
        }
    }
}

/* The window's sum, each element times its weight. */
template <int K> TMPL_INLINE A conv_sum(const conv_window<K> &v, const A (&w)[K][K]) {
    A sum = 0;
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (v.inside[j][k]) sum += LOAD(v.of[j][k]) * w[j][k];
    }
    return sum;
}

template <int K> TMPL_INLINE void conv_weights(const T *w, A (&ret_w)[K][K]) {
#pragma unroll
    for (int t = 0; t < K * K; t++) ret_w[t / K][t % K] = LOAD(w[t]);
}

TMPL_INLINE bool conv_is_plain(const cuda_images &x, int64_t by) { return x.at[2] == 1 && by == 1; }

/* f(place, row, column) for those of a plane's places that are the thread's. */
template <typename F>
TMPL_INLINE void conv_walk(const cuda_depthwise_args &a, const int64_t *size, uint32_t tile, F f) {
    uint32_t places = conv_count(size), width = (uint32_t)size[2];
    uint32_t place = tile * a.turns * blockDim.x + threadIdx.x;
    for (uint32_t turn = 0; turn < a.turns && place < places; turn++, place += blockDim.x) {
        uint32_t row = place / width;
        f(place, row, place - row * width);
    }
}

/* The results of a plane's windows, or the gradient of x where windows are 1 apart and a channel has one
 * of y: the same sums of y, over the places that a pixel meets. */
template <int K, int BY, bool BACK> TMPL_INLINE void conv_square(const cuda_depthwise_args &a) {
    const cuda_conv_shape &s = a.s;
    const cuda_images &from = BACK ? a.y : a.x, &to = BACK ? a.x : a.y;
    uint32_t plane = blockIdx.x / a.tiles, channels = a.channels * a.each;
    uint32_t image = plane / channels, channel = plane - image * channels;
    const T *in = (const T *)from.data + image * from.image + channel / a.each * from.channel;
    T *out = (T *)to.data + image * to.image + channel * to.channel;
    A w[K][K], bias = a.bias ? LOAD(((const T *)a.bias)[channel]) : (A)0;
    conv_weights<K>((const T *)a.w + (int64_t)channel * a.taps, w);
    conv_walk(a, BACK ? s.in : s.out, blockIdx.x - plane * a.tiles,
              [&](uint32_t place, uint32_t row, uint32_t column) {
                  conv_window<K> v;
                  conv_line y = BACK ? conv_places(s, 1, row) : conv_pixels(s, 1, row);
                  conv_line z = BACK ? conv_places(s, 2, column) : conv_pixels(s, 2, column);
                  conv_read<K, BY>(from, in, y, z, &v);
                  A sum = conv_sum<K>(v, w);
                  out[place] = STORE(a.bias ? sum + bias : sum);
              });
}

/* A block sums all elements of a channel's w over the images of one part. */
template <int K, int BY>
TMPL_INLINE void conv_square_weight(const cuda_depthwise_args &a, A *room) {
    const cuda_conv_shape &s = a.s;
    uint32_t channel = blockIdx.x / a.parts, part = blockIdx.x - channel * a.parts;
    uint32_t places = conv_count(s.out), warps = blockDim.x / 32;
    int64_t end = (part + 1) * a.span < a.images ? (part + 1) * a.span : a.images;
    A sums[K][K] = {};
    for (int64_t image = part * a.span; image < end; image++) {
        const T *x = (const T *)a.x.data + image * a.x.image + channel / a.each * a.x.channel;
        const T *y = (const T *)a.y.data + image * a.y.image + channel * a.y.channel;
        for (uint32_t i = threadIdx.x; i < places; i += blockDim.x) {
            conv_window<K> v;
            uint32_t row = i / (uint32_t)s.out[2], column = i - row * (uint32_t)s.out[2];
            conv_read<K, BY>(a.x, x, conv_pixels(s, 1, row), conv_pixels(s, 2, column), &v);
            A g = LOAD(y[row * a.y.at[1] + column * a.y.at[2]]);
#pragma unroll
            for (int j = 0; j < K; j++) {
#pragma unroll
                for (int k = 0; k < K; k++)
                    if (v.inside[j][k]) sums[j][k] += LOAD(v.of[j][k]) * g;
            }
        }
    }
#pragma unroll
    for (int t = 0; t < K * K; t++) {
        A sum = lanes_join(sums[t / K][t % K], 1, 32, rows_sum<A>());
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32 * K * K + t] = sum;
    }
    __syncthreads();
    for (uint32_t t = threadIdx.x; t < K * K; t += blockDim.x) {
        A sum = room[t];
        for (uint32_t warp = 1; warp < warps; warp++) sum += room[warp * K * K + t];
        ((A *)a.partial)[((int64_t)part * a.channels * a.each + channel) * a.taps + t] = sum;
    }
}

template <int K> TMPL_INLINE void conv_square_forward(const cuda_depthwise_args &a) {
    if (conv_is_plain(a.x, a.s.dilation[2]))
        conv_square<K, 1, false>(a);
    else
        conv_square<K, 0, false>(a);
}

template <int K> TMPL_INLINE void conv_square_backward(const cuda_depthwise_args &a) {
    if (conv_is_plain(a.y, a.s.dilation[2]))
        conv_square<K, -1, true>(a);
    else
        conv_square<K, 0, true>(a);
}

template <int K> TMPL_INLINE void conv_square_sums(const cuda_depthwise_args &a) {
    SHARED(A, room, CUDA_BLOCK / 32 * K * K);
    if (conv_is_plain(a.x, a.s.dilation[2]))
        conv_square_weight<K, 1>(a, room);
    else
        conv_square_weight<K, 0>(a, room);
}

#define CONV_SQUARE(k)                                                                             \
    KERNEL(TN_(conv_depthwise_##k), cuda_depthwise_args) { conv_square_forward<k>(a); }            \
    KERNEL(TN_(conv_depthwise_input_##k), cuda_depthwise_args) { conv_square_backward<k>(a); }     \
    KERNEL(TN_(conv_depthwise_weight_##k), cuda_depthwise_args) { conv_square_sums<k>(a); }
CONV_SQUARE(3)
CONV_SQUARE(5)

/* A thread adds the parts of one element up, in their order. */
KERNEL(TN_(conv_depthwise_finish), cuda_depthwise_args) {
    int64_t elements = (int64_t)a.channels * a.each * a.taps, i = cuda_thread();
    if (i >= elements) return;
    A sum = 0;
    for (uint32_t part = 0; part < a.parts; part++)
        sum += ((const A *)a.partial)[part * elements + i];
    ((T *)a.w)[i] = STORE(sum);
}
