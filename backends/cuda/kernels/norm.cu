/* norm.cu: layer_norm and batch_norm of one floating type, forward and backward.
 *
 * types: float */
#include "norm_shared.h"

enum {
    NORM_HELD =
        NORM_ROW_BYTES / (int)sizeof(A) / NORM_VECTOR, /* vectors of a row that a thread holds */
    NORM_WARPS = CUDA_BLOCK / 32
};

/* ---- layer_norm: `lanes` neighbouring threads for each row -------------------------------------
 * Without `mean` it is rms_norm, whose rows are not centred. Long rows are read in three passes. */

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

KERNEL(TN_(layer_norm), cuda_layer_norm_args) {
    SHARED(A, room, NORM_WARPS);
    norm_row r = norm_find(a);
    const T *x = (const T *)a.x + r.row * a.n;
    A v[CUDA_GROUP], w[CUDA_GROUP], b[CUDA_GROUP], sum = 0, square = 0;
    for (int64_t i = r.first; a.mean && i < r.n; i += r.next) {
        norm_load(r, x, i, v);
        sum = sum + ((v[0] + v[1]) + (v[2] + v[3]));
    }
    A mean = a.mean && a.n ? lanes_join_row(room, sum, a.lanes, norm_add()) / (A)a.n : (A)0;
    for (int64_t i = r.first; i < r.n; i += r.next) {
        norm_load(r, x, i, v);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            if (i + k < r.n) square = square + (v[k] - mean) * (v[k] - mean);
    }
    A rstd = norm_rstd(lanes_join_row(room, square, a.lanes, norm_add()) / (A)a.n, a.eps);
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
    sum = lanes_join_row(room, sum, a.lanes, norm_add());
    product = lanes_join_row(room, product, a.lanes, norm_add());
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

/* ---- layer_norm of rows that their threads hold in registers -----------------------------------*/

/* A thread holds vectors `lane`, `lane + lanes` ... of its row. */
typedef struct norm_own {
    int64_t row, at; /* the row, and where it begins */
    int n, lane;     /* n: 0 where there is no such row */
} norm_own;

TMPL_INLINE norm_own norm_find_own(const cuda_layer_norm_args &a) {
    norm_own r;
    int in_block = (int)threadIdx.x >> a.shift, per_block = (int)blockDim.x >> a.shift;
    r.row = (int64_t)blockIdx.x * per_block + in_block;
    r.n = r.row < a.rows ? (int)a.n : 0;
    r.at = r.n ? r.row * a.n : 0;
    r.lane = (int)threadIdx.x & (a.lanes - 1);
    return r;
}

/* Elements i .. of a row; `otherwise` behind its end. */
TMPL_INLINE void norm_read(const norm_own &r, const T *row, int i, bool whole, A otherwise,
                           A *ret_x) {
#pragma unroll
    for (int k = 0; k < NORM_VECTOR; k++) ret_x[k] = otherwise;
    if (whole) {
        if (i < r.n) norm_get<NORM_VECTOR>(row + i, 1, true, ret_x);
    } else {
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++)
            if (i + k < r.n) ret_x[k] = LOAD(row[i + k]);
    }
}

TMPL_INLINE void norm_read_parameter(const norm_own &r, const void *p, bool wide, int i, bool whole,
                                     A otherwise, A *ret_p) {
#if TMPL_IS_HALF
    if (p && wide) {
        const A *from = (const A *)p + i;
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++) ret_p[k] = otherwise;
        if (whole && i < r.n) {
#pragma unroll
            for (int k = 0; k < NORM_VECTOR; k += 4)
                *(norm_vector<4, A> *)(ret_p + k) = *(const norm_vector<4, A> *)(from + k);
        } else {
#pragma unroll
            for (int k = 0; k < NORM_VECTOR; k++)
                if (i + k < r.n) ret_p[k] = from[k];
        }
        return;
    }
#else
    (void)wide;
#endif
    if (p) {
        norm_read(r, (const T *)p, i, whole, otherwise, ret_p);
    } else {
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++) ret_p[k] = otherwise;
    }
}

TMPL_INLINE void norm_write(const norm_own &r, T *row, int i, bool whole, const A *x) {
    if (whole) {
        if (i < r.n) norm_put<NORM_VECTOR>(row + i, 1, true, x);
    } else {
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++)
            if (i + k < r.n) row[i + k] = STORE(x[k]);
    }
}

/* WHOLE: all vectors of rows and parameters are whole and aligned. */
template <bool WHOLE> TMPL_INLINE void norm_rows(const cuda_layer_norm_args &a, A *room) {
    norm_own r = norm_find_own(a);
    const T *x = (const T *)a.x + r.at;
    A v[NORM_HELD][NORM_VECTOR], sum = 0, square = 0;
#pragma unroll
    for (int h = 0; h < NORM_HELD; h++)
        norm_read(r, x, (r.lane + h * a.lanes) * NORM_VECTOR, WHOLE, 0, v[h]);
    A mean = 0;
    if (a.mean) {
#pragma unroll
        for (int h = 0; h < NORM_HELD; h++)
#pragma unroll
            for (int k = 0; k < NORM_VECTOR; k++) sum = sum + v[h][k];
        mean = lanes_join_row(room, sum, a.lanes, norm_add()) / (A)a.n;
    }
#pragma unroll
    for (int h = 0; h < NORM_HELD; h++) {
        int i = (r.lane + h * a.lanes) * NORM_VECTOR;
        if (i >= r.n) continue;
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++) {
            v[h][k] = WHOLE || i + k < r.n ? v[h][k] - mean : (A)0;
            square = B_(fma)(v[h][k], v[h][k], square);
        }
    }
    A rstd = norm_rstd(lanes_join_row(room, square, a.lanes, norm_add()) / (A)a.n, a.eps);
#pragma unroll
    for (int h = 0; h < NORM_HELD; h++) {
        int i = (r.lane + h * a.lanes) * NORM_VECTOR;
        alignas(16) A w[NORM_VECTOR], b[NORM_VECTOR];
        if (i >= r.n) continue;
        norm_read_parameter(r, a.weight, a.wide_weight, i, WHOLE, 1, w);
        norm_read_parameter(r, a.bias, a.wide_bias, i, WHOLE, 0, b);
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++) v[h][k] = B_(fma)(v[h][k] * rstd, w[k], b[k]);
        norm_write(r, (T *)a.y + r.at, i, WHOLE, v[h]);
    }
    if (r.lane > 0 || r.row >= a.rows) return;
    if (a.mean) ((A *)a.mean)[r.row] = mean;
    ((A *)a.rstd)[r.row] = rstd;
}

KERNEL(TN_(layer_norm_own), cuda_layer_norm_args) {
    SHARED(A, room, NORM_WARPS);
    norm_rows<true>(a, room);
}
KERNEL(TN_(layer_norm_own_odd), cuda_layer_norm_args) {
    SHARED(A, room, NORM_WARPS);
    norm_rows<false>(a, room);
}

/* A vector of elements as they are stored: half the room of what they are computed in. */
typedef norm_vector<NORM_VECTOR, T> norm_stored;

template <bool WHOLE>
TMPL_INLINE norm_stored norm_read_stored(const norm_own &r, const T *row, int i) {
    norm_stored v;
#pragma unroll
    for (int k = 0; k < NORM_VECTOR; k++) v.of[k] = STORE((A)0);
    if (WHOLE) {
        if (i < r.n) v = *(const norm_stored *)(row + i);
    } else {
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++)
            if (i + k < r.n) v.of[k] = row[i + k];
    }
    return v;
}

/* layer_norm_input's formula. */
template <bool WHOLE>
TMPL_INLINE void norm_rows_input(const cuda_layer_norm_args &a, norm_pair *room) {
    norm_own r = norm_find_own(a);
    const T *x = (const T *)a.x + r.at, *g = (const T *)a.grad + r.at;
    norm_stored xs[NORM_HELD], gs[NORM_HELD];
    norm_pair sum = {0, 0};
#pragma unroll
    for (int h = 0; h < NORM_HELD; h++) {
        int i = (r.lane + h * a.lanes) * NORM_VECTOR;
        xs[h] = norm_read_stored<WHOLE>(r, x, i);
        gs[h] = norm_read_stored<WHOLE>(r, g, i);
    }
    int64_t row = r.n ? r.row : 0;
    A mean = norm_mean(a, row), rstd = ((const A *)a.rstd)[row];
#pragma unroll
    for (int h = 0; h < NORM_HELD; h++) {
        int i = (r.lane + h * a.lanes) * NORM_VECTOR;
        alignas(16) A w[NORM_VECTOR];
        if (i >= r.n) continue;
        norm_read_parameter(r, a.weight, a.wide_weight, i, WHOLE, 1, w);
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++) {
            if (!WHOLE && i + k >= r.n) continue;
            A gw = LOAD(gs[h].of[k]) * w[k];
            sum.g = sum.g + gw;
            sum.product = B_(fma)(gw, LOAD(xs[h].of[k]) - mean, sum.product);
        }
    }
    sum = lanes_join_row(room, sum, a.lanes, norm_add());
    A by_x = -rstd * rstd * rstd * sum.product / (A)a.n;
    A shift = a.mean ? -rstd * sum.g / (A)a.n : (A)0;
#pragma unroll
    for (int h = 0; h < NORM_HELD; h++) {
        int i = (r.lane + h * a.lanes) * NORM_VECTOR;
        alignas(16) A w[NORM_VECTOR], y[NORM_VECTOR];
        if (i >= r.n) continue;
        norm_read_parameter(r, a.weight, a.wide_weight, i, WHOLE, 1, w);
#pragma unroll
        for (int k = 0; k < NORM_VECTOR; k++) {
            A by_g = B_(fma)(LOAD(gs[h].of[k]) * w[k], rstd, shift);
            y[k] = B_(fma)(LOAD(xs[h].of[k]) - mean, by_x, by_g);
        }
        norm_write(r, (T *)a.y + r.at, i, WHOLE, y);
    }
}

KERNEL(TN_(layer_norm_input_own), cuda_layer_norm_args) {
    SHARED(norm_pair, room, NORM_WARPS);
    norm_rows_input<true>(a, room);
}
KERNEL(TN_(layer_norm_input_own_odd), cuda_layer_norm_args) {
    SHARED(norm_pair, room, NORM_WARPS);
    norm_rows_input<false>(a, room);
}

/* ---- layer_norm's weight and bias: sums down the columns ---------------------------------------*/

TMPL_INLINE void norm_write_parameters(const cuda_layer_norm_args &a, int64_t i, norm_pair sum) {
    if (a.grad_weight) ((T *)a.grad_weight)[i] = STORE(sum.product);
    if (a.grad_bias) ((T *)a.grad_bias)[i] = STORE(sum.g);
}

/* A block adds up `span` rows of 1 << shift vectors of columns, two rows of a thread at a time. */
template <int V> TMPL_INLINE void norm_columns(const cuda_layer_norm_args &a) {
    SHARED(norm_pair, room, CUDA_BLOCK * V);
    enum { AHEAD = 2 };
    int width = 1 << a.shift, lanes = (int)blockDim.x >> a.shift;
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t first = (int64_t)(blockIdx.x / (unsigned)a.parts) * width * V;
    int64_t column = first + (int64_t)((int)threadIdx.x & (width - 1)) * V;
    int64_t end = (part + 1) * a.span < a.rows ? (part + 1) * a.span : a.rows;
    norm_pair sums[V];
#pragma unroll
    for (int k = 0; k < V; k++) sums[k] = {0, 0};
    for (int64_t row = part * a.span + ((int)threadIdx.x >> a.shift); row < end && column < a.n;
         row += AHEAD * lanes) {
        A g[AHEAD][V], x[AHEAD][V], mean[AHEAD], rstd[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int64_t r = row + i * lanes < end ? row + i * lanes : row, at = r * a.n + column;
            norm_get<V>((const T *)a.grad + at, 1, a.whole, g[i]);
            norm_get<V>((const T *)a.x + at, 1, a.whole, x[i]);
            mean[i] = norm_mean(a, r);
            rstd[i] = ((const A *)a.rstd)[r];
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int k = 0; k < V; k++)
                if (row + i * lanes < end)
                    sums[k] =
                        norm_add()(sums[k], {g[i][k], g[i][k] * (x[i][k] - mean[i]) * rstd[i]});
    }
    lanes_put_columns<V>(room, sums, width, norm_add());
    for (int c = (int)threadIdx.x; c < width * V && first + c < a.n; c += (int)blockDim.x) {
        norm_pair sum = lanes_column<V>(room, c, width, norm_add());
        if (a.parts > 1)
            ((norm_pair *)a.partial)[part * a.n + first + c] = sum;
        else
            norm_write_parameters(a, first + c, sum);
    }
}

KERNEL(TN_(layer_norm_columns), cuda_layer_norm_args) { norm_columns<NORM_VECTOR>(a); }
KERNEL(TN_(layer_norm_odd_columns), cuda_layer_norm_args) { norm_columns<1>(a); }

/* Joins the parts of 32 columns a block. */
KERNEL(TN_(layer_norm_finish), cuda_layer_norm_args) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    int64_t column = (int64_t)blockIdx.x * 32 + (int)threadIdx.x % 32;
    norm_pair sum = {0, 0};
#pragma unroll 4
    for (int part = (int)threadIdx.x / 32; part < a.parts && column < a.n;
         part += (int)blockDim.x / 32)
        sum = norm_add()(sum, ((const norm_pair *)a.partial)[part * a.n + column]);
    lanes_put_columns<1>(room, &sum, 32, norm_add());
    sum = lanes_column<1>(room, (int)threadIdx.x % 32, 32, norm_add());
    if (threadIdx.x < 32 && column < a.n) norm_write_parameters(a, column, sum);
}

/* ---- batch_norm --------------------------------------------------------------------------------
 * A unit is a vector of V neighbouring positions of a channel. A block takes `span` units of each of
 * `width` neighbouring channels; `parts` blocks share a channel. First they sum up, then each joins
 * the sums of its channels and writes its elements. */

typedef struct norm_channel {
    int64_t c, part, begin, end; /* the lane's units: begin, begin + lanes, ... below end */
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
    int64_t count = a.samples * a.units, end = (p.part + 1) * a.span;
    p.begin = p.part * a.span + p.lane;
    p.end = !p.any ? 0 : end < count ? end : count;
    if (!p.any) p.c = 0;
    return p;
}

/* The place of unit e of channel c: strides of sample, channel and position. */
template <int V>
TMPL_INLINE int64_t norm_at(const cuda_batch_norm_args &a, const int64_t *stride, int64_t c,
                            int64_t e) {
    int64_t sample = e, unit = 0;
    if (a.units > 1) {
        sample = a.narrow ? (int64_t)((uint32_t)e / (uint32_t)a.units) : e / a.units;
        unit = e - sample * a.units;
    }
    return sample * stride[0] + c * stride[1] + unit * V * stride[2];
}

template <int V>
TMPL_INLINE void norm_get_x(const cuda_batch_norm_args &a, int64_t c, int64_t e, A *ret_x) {
    norm_get<V>((const T *)a.x + norm_at<V>(a, a.x_stride, c, e), a.x_stride[2], a.x_whole, ret_x);
}
template <int V>
TMPL_INLINE void norm_get_grad(const cuda_batch_norm_args &a, int64_t c, int64_t e, A *ret_g) {
    norm_get<V>((const T *)a.grad + norm_at<V>(a, a.grad_stride, c, e), a.grad_stride[2],
                a.grad_whole, ret_g);
}
template <int V>
TMPL_INLINE void norm_put_y(const cuda_batch_norm_args &a, int64_t c, int64_t e, const A *y) {
    norm_put<V>((T *)a.y + norm_at<V>(a, a.y_stride, c, e), a.y_stride[2], a.y_whole, y);
}

/* What all lanes of a channel come to, in all of them; once in a kernel. */
template <typename V, typename F>
TMPL_INLINE V norm_join_channel(const cuda_batch_norm_args &a, V *room, V mine, F join) {
    lanes_put_columns<1>(room, &mine, a.width, join);
    return lanes_column<1>(room, (int)threadIdx.x % a.width, a.width, join);
}

/* Units that are loaded together: the others of a thread's last ones repeat its first one. */
enum { NORM_AHEAD = 4, NORM_PAIRS_AHEAD = 2 };

TMPL_INLINE int64_t norm_unit(const norm_channel &p, int64_t e, int ahead) {
    return e + (int64_t)ahead * p.lanes < p.end ? e + (int64_t)ahead * p.lanes : e;
}

template <int V> TMPL_INLINE void norm_find_moments(const cuda_batch_norm_args &a) {
    SHARED(moments, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    moments sum = {0, 0, 0};
    for (int64_t e = p.begin; e < p.end; e += (int64_t)NORM_AHEAD * p.lanes) {
        moments some = {0, 0, 0};
        A v[NORM_AHEAD][V];
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++) norm_get_x<V>(a, p.c, norm_unit(p, e, i), v[i]);
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++) {
            if (e + (int64_t)i * p.lanes >= p.end) continue;
            some.count = some.count + (A)V;
#pragma unroll
            for (int k = 0; k < V; k++) some.mean = some.mean + v[i][k];
        }
        some.mean = some.mean / some.count;
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++)
#pragma unroll
            for (int k = 0; k < V; k++)
                if (e + (int64_t)i * p.lanes < p.end)
                    some.square = some.square + (v[i][k] - some.mean) * (v[i][k] - some.mean);
        sum = moments_join()(sum, some);
    }
    sum = norm_join_channel(a, room, sum, moments_join());
    if (p.lane == 0 && p.any) ((moments *)a.partial)[p.c * a.parts + p.part] = sum;
}

/* What the blocks of the thread's channel found, joined. */
template <typename V, typename F>
TMPL_INLINE V norm_join_parts(const cuda_batch_norm_args &a, const norm_channel &p, V *room, V sum,
                              F join) {
    for (int i = p.lane; i < a.parts && p.any; i += p.lanes)
        sum = join(sum, ((const V *)a.partial)[p.c * a.parts + i]);
    return norm_join_channel(a, room, sum, join);
}

template <int V> TMPL_INLINE void norm_batch(const cuda_batch_norm_args &a) {
    SHARED(moments, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    bool writes = p.part == 0 && p.lane == 0 && p.any;
    A mean, rstd;
    if (a.training) {
        moments none = {0, 0, 0};
        moments m = norm_join_parts(a, p, room, none, moments_join());
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
    A bias = a.bias ? LOAD(((const T *)a.bias)[p.c]) : (A)0;
    for (int64_t e = p.begin; e < p.end; e += (int64_t)NORM_AHEAD * p.lanes) {
        A v[NORM_AHEAD][V];
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++) norm_get_x<V>(a, p.c, norm_unit(p, e, i), v[i]);
#pragma unroll
        for (int i = 0; i < NORM_AHEAD; i++) {
#pragma unroll
            for (int k = 0; k < V; k++) v[i][k] = (v[i][k] - mean) * scale + bias;
            if (e + (int64_t)i * p.lanes < p.end) norm_put_y<V>(a, p.c, norm_unit(p, e, i), v[i]);
        }
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

/* The units that a thread takes in at once, from unit e on. */
template <int V>
TMPL_INLINE void norm_get_pairs(const cuda_batch_norm_args &a, const norm_channel &p, int64_t e,
                                A (&ret_g)[NORM_PAIRS_AHEAD][V], A (&ret_x)[NORM_PAIRS_AHEAD][V]) {
#pragma unroll
    for (int i = 0; i < NORM_PAIRS_AHEAD; i++) {
        norm_get_grad<V>(a, p.c, norm_unit(p, e, i), ret_g[i]);
        norm_get_x<V>(a, p.c, norm_unit(p, e, i), ret_x[i]);
    }
}

/* Sums of g and of g (x - mean). */
template <int V> TMPL_INLINE void norm_find_products(const cuda_batch_norm_args &a) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    A mean = ((const A *)a.mean)[p.c];
    norm_pair sum = {0, 0};
    for (int64_t e = p.begin; e < p.end; e += (int64_t)NORM_PAIRS_AHEAD * p.lanes) {
        A g[NORM_PAIRS_AHEAD][V], x[NORM_PAIRS_AHEAD][V];
        norm_get_pairs<V>(a, p, e, g, x);
#pragma unroll
        for (int i = 0; i < NORM_PAIRS_AHEAD; i++)
#pragma unroll
            for (int k = 0; k < V; k++)
                if (e + (int64_t)i * p.lanes < p.end)
                    sum = norm_add()(sum, {g[i][k], g[i][k] * (x[i][k] - mean)});
    }
    sum = norm_join_channel(a, room, sum, norm_add());
    if (p.lane == 0 && p.any) ((norm_pair *)a.partial)[p.c * a.parts + p.part] = sum;
}

/* training: gx = w i (g - mean(g) - (x - m) i^2 mean(g (x - m))), else gx = w i g. */
template <int V> TMPL_INLINE void norm_batch_backward(const cuda_batch_norm_args &a) {
    SHARED(norm_pair, room, CUDA_BLOCK);
    norm_channel p = norm_find_channel(a);
    norm_pair none = {0, 0};
    norm_pair sum = norm_join_parts(a, p, room, none, norm_add());
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
    for (int64_t e = p.begin; e < p.end; e += (int64_t)NORM_PAIRS_AHEAD * p.lanes) {
        A g[NORM_PAIRS_AHEAD][V], x[NORM_PAIRS_AHEAD][V];
        norm_get_pairs<V>(a, p, e, g, x);
#pragma unroll
        for (int i = 0; i < NORM_PAIRS_AHEAD; i++) {
#pragma unroll
            for (int k = 0; k < V; k++) g[i][k] = norm_mix(a, g[i][k], x[i][k], by_g, by_x, shift);
            if (e + (int64_t)i * p.lanes < p.end) norm_put_y<V>(a, p.c, norm_unit(p, e, i), g[i]);
        }
    }
}

/* By vectors, and element by element. */
KERNEL(TN_(batch_norm_moments), cuda_batch_norm_args) { norm_find_moments<NORM_VECTOR>(a); }
KERNEL(TN_(batch_norm_odd_moments), cuda_batch_norm_args) { norm_find_moments<1>(a); }
KERNEL(TN_(batch_norm), cuda_batch_norm_args) { norm_batch<NORM_VECTOR>(a); }
KERNEL(TN_(batch_norm_odd), cuda_batch_norm_args) { norm_batch<1>(a); }
KERNEL(TN_(batch_norm_products), cuda_batch_norm_args) { norm_find_products<NORM_VECTOR>(a); }
KERNEL(TN_(batch_norm_odd_products), cuda_batch_norm_args) { norm_find_products<1>(a); }
KERNEL(TN_(batch_norm_backward), cuda_batch_norm_args) { norm_batch_backward<NORM_VECTOR>(a); }
KERNEL(TN_(batch_norm_odd_backward), cuda_batch_norm_args) { norm_batch_backward<1>(a); }
