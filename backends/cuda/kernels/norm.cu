/* norm.cu: layer_norm and batch_norm of one floating type, forward and backward.
 *
 * types: float */
#include "device.h"

#include "args_norm.h"
#include "rows.h"
#include "scalar.h"

TMPL_INLINE A norm_rstd(A square, double eps) { return (A)(1.0 / sqrt((double)square + eps)); }

/* ---- layer_norm: `lanes` neighbouring threads for each row -------------------------------------
 * Without `mean` it is rms_norm, whose rows are not centred. */

typedef struct norm_row {
    int64_t row, n;      /* n: 0 where there is no such row */
    int64_t first, next; /* of the thread's groups of elements */
    bool whole;          /* groups of every row are aligned */
} norm_row;

TMPL_INLINE norm_row norm_find(const cuda_layer_norm_args &a) {
    norm_row r;
    int in_block = (int)threadIdx.x / a.lanes, per_block = (int)blockDim.x / a.lanes;
    r.row = (int64_t)blockIdx.x * per_block + in_block;
    r.n = r.row < a.rows ? a.n : 0;
    if (r.n == 0) r.row = 0;
    r.first = (int64_t)((int)threadIdx.x % a.lanes) * CUDA_GROUP;
    r.next = (int64_t)a.lanes * CUDA_GROUP;
    r.whole = a.n % CUDA_GROUP == 0;
    return r;
}

TMPL_INLINE bool norm_is_whole(const norm_row &r, const void *row, int64_t i) {
    return r.whole && i + CUDA_GROUP <= r.n && (uintptr_t)row % alignof(cuda_vector<T>) == 0;
}

/* Elements i .. i + 3 of a row, zeros behind its end. */
TMPL_INLINE void norm_load(const norm_row &r, const T *row, int64_t i, A *ret_x) {
    CUDA_ARRAY(T, x);
    if (norm_is_whole(r, row, i)) {
        *(cuda_vector<T> *)x = *(const cuda_vector<T> *)(row + i);
    } else {
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) x[k] = i + k < r.n ? row[i + k] : STORE((A)0);
    }
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) ret_x[k] = LOAD(x[k]);
}

TMPL_INLINE void norm_store(const norm_row &r, T *row, int64_t i, const A *x) {
    CUDA_ARRAY(T, y);
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) y[k] = STORE(x[k]);
    if (norm_is_whole(r, row, i)) {
        *(cuda_vector<T> *)(row + i) = *(const cuda_vector<T> *)y;
    } else {
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            if (i + k < r.n) row[i + k] = y[k];
    }
}

/* Elements of weight or bias, which may be of the wider type; `otherwise` where there is none. */
TMPL_INLINE void norm_parameter(const norm_row &r, const void *p, int32_t wide, int64_t i,
                                A otherwise, A *ret_p) {
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        ret_p[k] = otherwise;
        if (!p || i + k >= r.n) continue;
        ret_p[k] = wide ? ((const A *)p)[i + k] : LOAD(((const T *)p)[i + k]);
    }
}

/* The sum over the threads of a row, in all of them. All threads of the block take part. */
TMPL_INLINE A norm_sum(A *room, A x, int lanes) {
    for (int by = (lanes < 32 ? lanes : 32) / 2; by > 0; by /= 2)
        x = x + __shfl_xor_sync(0xffffffffu, x, by);
    if (lanes <= 32) return x;
    int warp = (int)threadIdx.x / 32, warps = lanes / 32, first = warp / warps * warps;
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[warp] = x;
    __syncthreads();
    x = room[first];
    for (int i = 1; i < warps; i++) x = x + room[first + i];
    return x;
}

enum { NORM_WARPS = CUDA_BLOCK / 32 };

KERNEL(TN_(layer_norm), cuda_layer_norm_args) {
    SHARED(A, room, NORM_WARPS);
    norm_row r = norm_find(a);
    const T *x = (const T *)a.x + r.row * a.n;
    A v[CUDA_GROUP], w[CUDA_GROUP], b[CUDA_GROUP], sum = 0, square = 0;
    for (int64_t i = r.first; a.mean && i < r.n; i += r.next) {
        norm_load(r, x, i, v);
        sum = sum + ((v[0] + v[1]) + (v[2] + v[3]));
    }
    A mean = a.mean && a.n ? norm_sum(room, sum, a.lanes) / (A)a.n : (A)0;
    for (int64_t i = r.first; i < r.n; i += r.next) {
        norm_load(r, x, i, v);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            if (i + k < r.n) square = square + (v[k] - mean) * (v[k] - mean);
    }
    A rstd = norm_rstd(norm_sum(room, square, a.lanes) / (A)a.n, a.eps);
    for (int64_t i = r.first; i < r.n; i += r.next) {
        norm_load(r, x, i, v);
        norm_parameter(r, a.weight, a.wide_weight, i, 1, w);
        norm_parameter(r, a.bias, a.wide_bias, i, 0, b);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) v[k] = (v[k] - mean) * rstd * w[k] + b[k];
        norm_store(r, (T *)a.y + r.row * a.n, i, v);
    }
    int64_t row = (int64_t)blockIdx.x * ((int)blockDim.x / a.lanes) + (int)threadIdx.x / a.lanes;
    if (r.first > 0 || row >= a.rows) return;
    if (a.mean) ((A *)a.mean)[row] = mean;
    ((A *)a.rstd)[row] = rstd;
}

TMPL_INLINE A norm_mean(const cuda_layer_norm_args &a, int64_t row) {
    return a.mean ? ((const A *)a.mean)[row] : (A)0;
}

/* gx = rstd * (g w - (sum(g w) + xhat * sum(g w xhat)) / n), without the first sum in rms_norm */
KERNEL(TN_(layer_norm_input), cuda_layer_norm_args) {
    SHARED(A, room, NORM_WARPS);
    norm_row r = norm_find(a);
    const T *x = (const T *)a.x + r.row * a.n, *g = (const T *)a.grad + r.row * a.n;
    A mean = norm_mean(a, r.row), rstd = ((const A *)a.rstd)[r.row];
    A v[CUDA_GROUP], gw[CUDA_GROUP], w[CUDA_GROUP], sum = 0, product = 0;
    for (int64_t i = r.first; i < r.n; i += r.next) {
        norm_load(r, x, i, v);
        norm_load(r, g, i, gw);
        norm_parameter(r, a.weight, a.wide_weight, i, 1, w);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            if (i + k >= r.n) continue;
            sum = sum + gw[k] * w[k];
            product = product + gw[k] * w[k] * (v[k] - mean);
        }
    }
    sum = norm_sum(room, sum, a.lanes);
    product = norm_sum(room, product, a.lanes);
    A by_x = -rstd * rstd * rstd * product / (A)a.n;
    A shift = a.mean ? -rstd * sum / (A)a.n : (A)0;
    for (int64_t i = r.first; i < r.n; i += r.next) {
        norm_load(r, x, i, v);
        norm_load(r, g, i, gw);
        norm_parameter(r, a.weight, a.wide_weight, i, 1, w);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            v[k] = gw[k] * w[k] * rstd + (v[k] - mean) * by_x + shift;
        norm_store(r, (T *)a.y + r.row * a.n, i, v);
    }
}

struct norm_pair {
    A g, product;
};
struct norm_add_pairs {
    CUDA_MEMBER norm_pair operator()(norm_pair p, norm_pair q) const {
        return {p.g + q.g, p.product + q.product};
    }
};

TMPL_INLINE void norm_write_parameters(const cuda_layer_norm_args &a, int64_t i, norm_pair sum) {
    if (a.grad_weight) ((T *)a.grad_weight)[i] = STORE(sum.product);
    if (a.grad_bias) ((T *)a.grad_bias)[i] = STORE(sum.g);
}

/* Gradients of weight and bias, sums down the columns: a block adds up `span` rows of 32 columns. */
KERNEL(TN_(layer_norm_columns), cuda_layer_norm_args) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    int lane = (int)threadIdx.x / 32, lanes = (int)blockDim.x / 32;
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t column = (int64_t)(blockIdx.x / (unsigned)a.parts) * 32 + (int)threadIdx.x % 32;
    int64_t end = (part + 1) * a.span < a.rows ? (part + 1) * a.span : a.rows;
    norm_pair sum = {0, 0};
    for (int64_t row = part * a.span + lane; row < end && column < a.n; row += lanes) {
        A g = LOAD(((const T *)a.grad)[row * a.n + column]);
        A d = LOAD(((const T *)a.x)[row * a.n + column]) - norm_mean(a, row);
        sum.g = sum.g + g;
        sum.product = sum.product + g * d * ((const A *)a.rstd)[row];
    }
    sum = rows_join(room, sum, lanes, 32, lane, norm_add_pairs());
    if (lane > 0 || column >= a.n) return;
    if (a.parts > 1)
        ((norm_pair *)a.partial)[part * a.n + column] = sum;
    else
        norm_write_parameters(a, column, sum);
}

KERNEL(TN_(layer_norm_finish), cuda_layer_norm_args) {
    int64_t column = cuda_thread();
    norm_pair sum = {0, 0};
    if (column >= a.n) return;
    for (int64_t part = 0; part < a.parts; part++)
        sum = norm_add_pairs()(sum, ((const norm_pair *)a.partial)[part * a.n + column]);
    norm_write_parameters(a, column, sum);
}

/* ---- batch_norm --------------------------------------------------------------------------------
 * A block takes `span` elements of each of `width` neighbouring channels; `parts` blocks share a
 * channel. First they sum up, then each joins the sums of its channels and writes its elements. */

typedef struct norm_channel {
    int64_t c, part, begin, end; /* the lane's elements: begin, begin + lanes, ... below end */
    int lane, lanes;
    bool any;
} norm_channel;

TMPL_INLINE norm_channel norm_find_channel(const cuda_batch_norm_args &a) {
    norm_channel p;
    p.lane = (int)threadIdx.x / a.width;
    p.lanes = (int)blockDim.x / a.width;
    p.part = blockIdx.x % (unsigned)a.parts;
    p.c = (int64_t)(blockIdx.x / (unsigned)a.parts) * a.width + (int)threadIdx.x % a.width;
    p.any = p.c < a.channels;
    int64_t count = a.samples * a.positions, end = (p.part + 1) * a.span;
    p.begin = p.part * a.span + p.lane;
    p.end = !p.any ? 0 : end < count ? end : count;
    if (!p.any) p.c = 0;
    return p;
}

/* The place of element e of channel c: strides of sample, channel and position. */
TMPL_INLINE int64_t norm_at(const cuda_batch_norm_args &a, const int64_t *stride, int64_t c,
                            int64_t e) {
    int64_t sample = e, position = 0;
    if (a.positions > 1) {
        sample = a.narrow ? (int64_t)((uint32_t)e / (uint32_t)a.positions) : e / a.positions;
        position = e - sample * a.positions;
    }
    return sample * stride[0] + c * stride[1] + position * stride[2];
}

/* Number, mean, and sum of squared distances from the mean, of some elements. */
struct norm_moments {
    A count, mean, square;
};
struct norm_join_moments {
    CUDA_MEMBER norm_moments operator()(norm_moments p, norm_moments q) const {
        if (q.count == 0) return p;
        A count = p.count + q.count, d = q.mean - p.mean, share = q.count / count;
        return {count, p.mean + d * share, p.square + q.square + d * d * p.count * share};
    }
};

KERNEL(TN_(batch_norm_moments), cuda_batch_norm_args) {
    SHARED(norm_moments, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    norm_moments sum = {0, 0, 0};
    for (int64_t e = p.begin; e < p.end; e += (int64_t)CUDA_GROUP * p.lanes) {
        norm_moments some = {0, 0, 0};
        A v[CUDA_GROUP];
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            int64_t i = e + (int64_t)k * p.lanes;
            v[k] = i < p.end ? LOAD(((const T *)a.x)[norm_at(a, a.x_stride, p.c, i)]) : (A)0;
            some.count = some.count + (A)(i < p.end);
            some.mean = some.mean + v[k];
        }
        some.mean = some.mean / some.count;
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            if (e + (int64_t)k * p.lanes < p.end)
                some.square = some.square + (v[k] - some.mean) * (v[k] - some.mean);
        sum = norm_join_moments()(sum, some);
    }
    sum = rows_join(room, sum, p.lanes, a.width, p.lane, norm_join_moments());
    if (p.lane == 0 && p.any) ((norm_moments *)a.partial)[p.c * a.parts + p.part] = sum;
}

/* What the blocks of the thread's channel found, joined. */
template <typename V, typename F>
TMPL_INLINE V norm_join_parts(const cuda_batch_norm_args &a, const norm_channel &p, V *room, V sum,
                              F join) {
    for (int i = p.lane; i < a.parts && p.any; i += p.lanes)
        sum = join(sum, ((const V *)a.partial)[p.c * a.parts + i]);
    return rows_join(room, sum, p.lanes, a.width, p.lane, join);
}

TMPL_INLINE void norm_blend(void *running, int64_t c, double momentum, double x) {
    T *at = (T *)running + c;
    if (running) *at = STORE((A)((1.0 - momentum) * (double)LOAD(*at) + momentum * x));
}

KERNEL(TN_(batch_norm), cuda_batch_norm_args) {
    SHARED(norm_moments, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    bool writes = p.part == 0 && p.lane == 0 && p.any;
    A mean, rstd;
    if (a.training) {
        norm_moments none = {0, 0, 0};
        norm_moments m = norm_join_parts(a, p, room, none, norm_join_moments());
        mean = m.mean;
        rstd = norm_rstd(m.square / m.count, a.eps);
        if (writes) {
            norm_blend(a.running_mean, p.c, a.momentum, (double)mean);
            norm_blend(a.running_var, p.c, a.momentum, (double)m.square / ((double)m.count - 1.0));
        }
    } else {
        mean = LOAD(((const T *)a.running_mean)[p.c]);
        rstd = norm_rstd(LOAD(((const T *)a.running_var)[p.c]), a.eps);
    }
    if (writes) {
        ((A *)a.mean)[p.c] = mean;
        ((A *)a.rstd)[p.c] = rstd;
    }
    A scale = rstd * (a.weight ? LOAD(((const T *)a.weight)[p.c]) : (A)1);
    A shift = (a.bias ? LOAD(((const T *)a.bias)[p.c]) : (A)0) - mean * scale;
#pragma unroll 4
    for (int64_t e = p.begin; e < p.end; e += p.lanes) {
        A x = LOAD(((const T *)a.x)[norm_at(a, a.x_stride, p.c, e)]);
        ((T *)a.y)[norm_at(a, a.y_stride, p.c, e)] = STORE(x * scale + shift);
    }
}

/* The running statistics from a mean and a rstd that others computed: a thread for each channel. */
KERNEL(TN_(batch_norm_running), cuda_batch_norm_args) {
    int64_t c = cuda_thread();
    if (c >= a.channels) return;
    double rstd = (double)((const A *)a.rstd)[c], count = (double)(a.samples * a.positions);
    double var = 1.0 / (rstd * rstd) - a.eps;
    norm_blend(a.running_mean, c, a.momentum, (double)((const A *)a.mean)[c]);
    norm_blend(a.running_var, c, a.momentum, (var < 0 ? 0.0 : var) * count / (count - 1.0));
}

/* Sums of g and of g (x - mean). */
KERNEL(TN_(batch_norm_products), cuda_batch_norm_args) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    A mean = ((const A *)a.mean)[p.c];
    norm_pair sum = {0, 0};
#pragma unroll 4
    for (int64_t e = p.begin; e < p.end; e += p.lanes) {
        A g = LOAD(((const T *)a.grad)[norm_at(a, a.grad_stride, p.c, e)]);
        A x = LOAD(((const T *)a.x)[norm_at(a, a.x_stride, p.c, e)]);
        sum = norm_add_pairs()(sum, {g, g * (x - mean)});
    }
    sum = rows_join(room, sum, p.lanes, a.width, p.lane, norm_add_pairs());
    if (p.lane == 0 && p.any) ((norm_pair *)a.partial)[p.c * a.parts + p.part] = sum;
}

/* training: gx = w i (g - mean(g) - (x - m) i^2 mean(g (x - m))), else gx = w i g. */
KERNEL(TN_(batch_norm_backward), cuda_batch_norm_args) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    norm_pair none = {0, 0};
    norm_pair sum = norm_join_parts(a, p, room, none, norm_add_pairs());
    A mean = ((const A *)a.mean)[p.c], rstd = ((const A *)a.rstd)[p.c];
    A count = (A)(a.samples * a.positions);
    if (p.part == 0 && p.lane == 0 && p.any) {
        if (a.grad_weight) ((T *)a.grad_weight)[p.c] = STORE(sum.product * rstd);
        if (a.grad_bias) ((T *)a.grad_bias)[p.c] = STORE(sum.g);
    }
    if (!a.y) return;
    A by_g = rstd * (a.weight ? LOAD(((const T *)a.weight)[p.c]) : (A)1);
    A by_x = a.training ? -by_g * rstd * rstd * (sum.product / count) : (A)0;
    A shift = a.training ? -by_g * (sum.g / count) - mean * by_x : (A)0;
#pragma unroll 4
    for (int64_t e = p.begin; e < p.end; e += p.lanes) {
        A g = LOAD(((const T *)a.grad)[norm_at(a, a.grad_stride, p.c, e)]);
        A x = LOAD(((const T *)a.x)[norm_at(a, a.x_stride, p.c, e)]);
        ((T *)a.y)[norm_at(a, a.y_stride, p.c, e)] = STORE(g * by_g + x * by_x + shift);
    }
}
