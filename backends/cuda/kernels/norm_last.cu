/* norm_last.cu: batch_norm of one floating type whose channels lie side by side, forward and backward.
 *
 * types: float */
#include "norm_shared.h"

/* A pixel's channels are taken in packs of 16 bytes: 1 << shift neighbouring threads take neighbouring
 * packs, the block's others further pixels. `parts` blocks share the channels of a block, `span` pixels
 * each. With more than one part what they found lies in `partial` as (parts, channels). From pixel to
 * pixel it is stride[2]. */
enum { LAST = NORM_VECTOR, LAST_AHEAD = 4, LAST_PAIRS_AHEAD = 2 };

typedef struct last_part {
    int64_t first, channel;  /* of the block, of the thread */
    int64_t part, at, end;   /* the thread's pixels: at, at + lanes, ... below end */
    int width, lanes, count; /* packs of the block, threads of a pack, channels of the block */
} last_part;

TMPL_INLINE last_part last_find(const cuda_batch_norm_args &a) {
    last_part p;
    p.width = a.width;
    p.lanes = (int)blockDim.x / a.width;
    p.part = blockIdx.x % (unsigned)a.parts;
    p.first = (int64_t)(blockIdx.x / (unsigned)a.parts) * a.width * LAST;
    p.channel = p.first + (int)threadIdx.x % a.width * LAST;
    int64_t left = a.channels - p.first, end = (p.part + 1) * a.span;
    p.count = left < a.width * LAST ? (int)left : a.width * LAST;
    p.at = p.part * a.span + (int)threadIdx.x / a.width;
    p.end = p.channel >= a.channels ? 0 : end < a.units ? end : a.units;
    return p;
}

/* The thread's pack of `of[pixel]`. */
TMPL_INLINE void last_get(const void *of, const last_part &p, int64_t pixel, int64_t step,
                          int32_t whole, A *ret_x) {
    norm_get<LAST>((const T *)of + pixel * step + p.channel, 1, whole, ret_x);
}
TMPL_INLINE void last_put(const cuda_batch_norm_args &a, const last_part &p, int64_t pixel,
                          const A *y) {
    norm_put<LAST>((T *)a.y + pixel * a.y_stride[2] + p.channel, 1, a.y_whole, y);
}

/* What the block found of its channels goes to `partial`, or is all there is: done(channel, found). */
template <typename V, typename F, typename D>
TMPL_INLINE void last_finish_part(const cuda_batch_norm_args &a, const last_part &p, V *room,
                                  V (&sums)[LAST], F join, D done) {
    lanes_put_columns<LAST>(room, sums, p.width, join);
    int c = (int)threadIdx.x;
    if (c >= p.count) return;
    V sum = lanes_column<LAST>(room, c, p.width, join);
    if (a.parts > 1)
        ((V *)a.partial)[p.part * a.channels + p.first + c] = sum;
    else
        done(p.first + c, sum);
}

/* Joins the parts of NORM_LAST_JOINED channels a block. */
template <typename V, typename F, typename D>
TMPL_INLINE void last_join_parts(const cuda_batch_norm_args &a, V *room, V sum, F join, D done) {
    int of = (int)threadIdx.x % NORM_LAST_JOINED;
    int64_t c = (int64_t)blockIdx.x * NORM_LAST_JOINED + of;
#pragma unroll 4
    for (int part = (int)threadIdx.x / NORM_LAST_JOINED; part < a.parts && c < a.channels;
         part += (int)blockDim.x / NORM_LAST_JOINED)
        sum = join(sum, ((const V *)a.partial)[part * a.channels + c]);
    lanes_put_columns<1>(room, &sum, NORM_LAST_JOINED, join);
    sum = lanes_column<1>(room, of, NORM_LAST_JOINED, join);
    if ((int)threadIdx.x < NORM_LAST_JOINED && c < a.channels) done(c, sum);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

struct last_moments_done {
    const cuda_batch_norm_args &a;
    CUDA_MEMBER void operator()(int64_t c, moments m) const {
        ((A *)a.mean)[c] = m.mean;
        ((A *)a.rstd)[c] = norm_rstd(m.square / m.count, a.eps);
        norm_blend(a.running_mean, c, a.momentum, (double)m.mean);
        norm_blend(a.running_var, c, a.momentum, (double)m.square / ((double)m.count - 1.0));
    }
};

KERNEL(TN_(batch_norm_last_moments), cuda_batch_norm_args) {
    SHARED(moments, room, CUDA_BLOCK * LAST);
    last_part p = last_find(a);
    moments_across<LAST> m = {};
    int64_t e = p.at;
    for (; e + (LAST_AHEAD - 1) * p.lanes < p.end; e += LAST_AHEAD * p.lanes) {
        A x[LAST_AHEAD][LAST];
#pragma unroll
        for (int i = 0; i < LAST_AHEAD; i++)
            last_get(a.x, p, e + i * p.lanes, a.x_stride[2], a.x_whole, x[i]);
        moments_take_across(x, &m);
    }
    for (; e < p.end; e += p.lanes) {
        A x[1][LAST];
        last_get(a.x, p, e, a.x_stride[2], a.x_whole, x[0]);
        moments_take_across(x, &m);
    }
    moments sums[LAST];
#pragma unroll
    for (int k = 0; k < LAST; k++) sums[k] = {m.count, m.mean[k], m.square[k]};
    last_finish_part(a, p, room, sums, moments_join(), last_moments_done{a});
}

KERNEL(TN_(batch_norm_last_joined), cuda_batch_norm_args) {
    SHARED(moments, room, CUDA_BLOCK);
    moments none = {0, 0, 0};
    last_join_parts(a, room, none, moments_join(), last_moments_done{a});
}

/* Writes the elements, (x - mean) scale + bias; a thread prepares a channel for all of the block. */
KERNEL(TN_(batch_norm_last), cuda_batch_norm_args) {
    SHARED(A, means, CUDA_BLOCK);
    SHARED(A, scales, CUDA_BLOCK);
    SHARED(A, biases, CUDA_BLOCK);
    last_part p = last_find(a);
    if ((int)threadIdx.x < p.count) {
        int64_t c = p.first + (int)threadIdx.x;
        A mean, rstd;
        if (a.training) {
            mean = ((const A *)a.mean)[c];
            rstd = ((const A *)a.rstd)[c];
        } else {
            mean = LOAD(((const T *)a.running_mean)[c]);
            rstd = norm_rstd(LOAD(((const T *)a.running_var)[c]), a.eps);
            if (p.part == 0) {
                ((A *)a.mean)[c] = mean;
                ((A *)a.rstd)[c] = rstd;
            }
        }
        means[threadIdx.x] = mean;
        scales[threadIdx.x] = rstd * (a.weight ? LOAD(((const T *)a.weight)[c]) : (A)1);
        biases[threadIdx.x] = a.bias ? LOAD(((const T *)a.bias)[c]) : (A)0;
    }
    __syncthreads();
    if (p.at >= p.end) return;
    A mean[LAST], scale[LAST], bias[LAST];
#pragma unroll
    for (int k = 0; k < LAST; k++) {
        int c = (int)threadIdx.x % p.width * LAST + k;
        mean[k] = means[c];
        scale[k] = scales[c];
        bias[k] = biases[c];
    }
    for (int64_t e = p.at; e < p.end; e += LAST_AHEAD * p.lanes) {
        A x[LAST_AHEAD][LAST];
#pragma unroll
        for (int i = 0; i < LAST_AHEAD; i++) {
            int64_t pixel = e + i * p.lanes < p.end ? e + i * p.lanes : e;
            last_get(a.x, p, pixel, a.x_stride[2], a.x_whole, x[i]);
        }
#pragma unroll
        for (int i = 0; i < LAST_AHEAD; i++) {
#pragma unroll
            for (int k = 0; k < LAST; k++) x[i][k] = (x[i][k] - mean[k]) * scale[k] + bias[k];
            if (e + i * p.lanes < p.end) last_put(a, p, e + i * p.lanes, x[i]);
        }
    }
}

/* ---- Backward ----------------------------------------------------------------------------------*/

struct last_products_done {
    const cuda_batch_norm_args &a;
    CUDA_MEMBER void operator()(int64_t c, norm_pair sum) const {
        A rstd = ((const A *)a.rstd)[c];
        if (a.grad_weight) ((T *)a.grad_weight)[c] = STORE(sum.product * rstd);
        if (a.grad_bias) ((T *)a.grad_bias)[c] = STORE(sum.g);
        ((norm_pair *)a.sums)[c] = sum;
    }
};

/* The pixels that a thread takes in at once, from e on; those behind its last one repeat it. */
TMPL_INLINE void last_get_pairs(const cuda_batch_norm_args &a, const last_part &p, int64_t e,
                                A (&ret_g)[LAST_PAIRS_AHEAD][LAST],
                                A (&ret_x)[LAST_PAIRS_AHEAD][LAST]) {
#pragma unroll
    for (int i = 0; i < LAST_PAIRS_AHEAD; i++) {
        int64_t pixel = e + i * p.lanes < p.end ? e + i * p.lanes : e;
        last_get(a.grad, p, pixel, a.grad_stride[2], a.grad_whole, ret_g[i]);
        last_get(a.x, p, pixel, a.x_stride[2], a.x_whole, ret_x[i]);
    }
}

/* Sums of g and of g (x - mean). */
KERNEL(TN_(batch_norm_last_products), cuda_batch_norm_args) {
    SHARED(norm_pair, room, CUDA_BLOCK * LAST);
    last_part p = last_find(a);
    norm_pair sums[LAST];
    A mean[LAST];
#pragma unroll
    for (int k = 0; k < LAST; k++) {
        sums[k] = {0, 0};
        mean[k] = p.at < p.end ? ((const A *)a.mean)[p.channel + k] : (A)0;
    }
    for (int64_t e = p.at; e < p.end; e += LAST_PAIRS_AHEAD * p.lanes) {
        A g[LAST_PAIRS_AHEAD][LAST], x[LAST_PAIRS_AHEAD][LAST];
        last_get_pairs(a, p, e, g, x);
#pragma unroll
        for (int i = 0; i < LAST_PAIRS_AHEAD; i++) {
            if (e + i * p.lanes >= p.end) continue;
#pragma unroll
            for (int k = 0; k < LAST; k++)
                sums[k] = norm_add()(sums[k], {g[i][k], g[i][k] * (x[i][k] - mean[k])});
        }
    }
    last_finish_part(a, p, room, sums, norm_add(), last_products_done{a});
}

KERNEL(TN_(batch_norm_last_products_joined), cuda_batch_norm_args) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    norm_pair none = {0, 0};
    last_join_parts(a, room, none, norm_add(), last_products_done{a});
}

/* norm_batch_backward's formula; a thread prepares a channel for all of the block. */
KERNEL(TN_(batch_norm_last_backward), cuda_batch_norm_args) {
    SHARED(A, by_gs, CUDA_BLOCK);
    SHARED(A, by_xs, CUDA_BLOCK);
    SHARED(A, shifts, CUDA_BLOCK);
    last_part p = last_find(a);
    if ((int)threadIdx.x < p.count) {
        int64_t c = p.first + (int)threadIdx.x;
        norm_pair sum = ((const norm_pair *)a.sums)[c];
        A rstd = ((const A *)a.rstd)[c], count = (A)a.units;
        A by_g = rstd * (a.weight ? LOAD(((const T *)a.weight)[c]) : (A)1);
        A by_x = a.training ? -by_g * rstd * rstd * (sum.product / count) : (A)0;
        by_gs[threadIdx.x] = by_g;
        by_xs[threadIdx.x] = by_x;
        shifts[threadIdx.x] =
            a.training ? -by_g * (sum.g / count) - ((const A *)a.mean)[c] * by_x : (A)0;
    }
    __syncthreads();
    if (p.at >= p.end) return;
    A by_g[LAST], by_x[LAST], shift[LAST];
#pragma unroll
    for (int k = 0; k < LAST; k++) {
        int c = (int)threadIdx.x % p.width * LAST + k;
        by_g[k] = by_gs[c];
        by_x[k] = by_xs[c];
        shift[k] = shifts[c];
    }
    for (int64_t e = p.at; e < p.end; e += LAST_PAIRS_AHEAD * p.lanes) {
        A g[LAST_PAIRS_AHEAD][LAST], x[LAST_PAIRS_AHEAD][LAST];
        last_get_pairs(a, p, e, g, x);
#pragma unroll
        for (int i = 0; i < LAST_PAIRS_AHEAD; i++) {
#pragma unroll
            for (int k = 0; k < LAST; k++)
                g[i][k] = norm_mix(a, g[i][k], x[i][k], by_g[k], by_x[k], shift[k]);
            if (e + i * p.lanes < p.end) last_put(a, p, e + i * p.lanes, g[i]);
        }
    }
}
