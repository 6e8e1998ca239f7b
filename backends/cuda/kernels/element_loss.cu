/* element_loss.cu: losses of one floating type that compare element by element: their sum, and the
 * gradient of the input.
 *
 * types: float */
#include "device.h"

#include "args_element_loss.h"
#include "rows.h"
#include "scalar.h"

/* What a comparison is told about one element: input, target, the weight of positive ones, beta. */
typedef struct compared {
    A x, t, pos, number;
} compared;

template <int HOW> TMPL_INLINE A compare_term(const compared &e) {
    A d = e.x - e.t, far = f_abs(d);
    switch (HOW) {
    case CUDA_COMPARE_SQUARE: return d * d;
    case CUDA_COMPARE_ABSOLUTE: return far;
    case CUDA_COMPARE_SMOOTH:
        return far < e.number ? d * d * ((A)0.5 / e.number) : far - (A)0.5 * e.number;
    case CUDA_COMPARE_HUBER:
        return far < e.number ? d * d * (A)0.5 : (far - (A)0.5 * e.number) * e.number;
    case CUDA_COMPARE_ENTROPY:
        return -(e.t * f_maximum(f_log(e.x), (A)-100) +
                 ((A)1 - e.t) * f_maximum(f_log1p(-e.x), (A)-100));
    case CUDA_COMPARE_LOGITS:
        return ((A)1 - e.t) * e.x - ((A)1 + (e.pos - (A)1) * e.t) * f_log_sigmoid(e.x);
    case CUDA_COMPARE_DIVERGENCE: return (e.t == 0 ? (A)0 : e.t * f_log(e.t)) - e.t * e.x;
    default: return f_exp(e.t) * (e.t - e.x);
    }
}

/* The derivative of the term in the direction of x. */
template <int HOW> TMPL_INLINE A compare_slope(const compared &e) {
    A d = e.x - e.t;
    switch (HOW) {
    case CUDA_COMPARE_SQUARE: return (A)2 * d;
    case CUDA_COMPARE_ABSOLUTE: return f_sign(d);
    case CUDA_COMPARE_SMOOTH: return f_abs(d) < e.number ? d / e.number : f_sign(d);
    case CUDA_COMPARE_HUBER: return f_abs(d) < e.number ? d : f_sign(d) * e.number;
    case CUDA_COMPARE_ENTROPY: return d / f_maximum(((A)1 - e.x) * e.x, (A)1e-12);
    case CUDA_COMPARE_LOGITS: return ((A)1 - e.t) - ((A)1 + (e.pos - (A)1) * e.t) * f_sigmoid(-e.x);
    case CUDA_COMPARE_DIVERGENCE: return -e.t;
    default: return -f_exp(e.t);
    }
}

enum { COMPARED = cuda_span<T>::of };

/* The inputs of a thread's group. */
typedef struct compared_group {
    CUDA_SPAN_ARRAY(T, x, COMPARED);
    CUDA_SPAN_ARRAY(T, t, COMPARED);
    CUDA_SPAN_ARRAY(T, weight, COMPARED);
    CUDA_SPAN_ARRAY(T, pos, COMPARED);
} compared_group;

TMPL_INLINE void compare_load(const cuda_element_loss_args &a, const cuda_group &g,
                              compared_group *ret) {
    cuda_load(a.plan, g, 1, ret->x);
    cuda_load(a.plan, g, 2, ret->t);
    if (a.weight_at) cuda_load(a.plan, g, a.weight_at, ret->weight);
    if (a.pos_weight_at) cuda_load(a.plan, g, a.pos_weight_at, ret->pos);
}

TMPL_INLINE compared compare_element(const cuda_element_loss_args &a, const compared_group &in,
                                     int i) {
    return {LOAD(in.x[i]), LOAD(in.t[i]), a.pos_weight_at ? LOAD(in.pos[i]) : (A)1, (A)a.number};
}

/* The sum of the terms of a thread's elements. */
template <int HOW> TMPL_INLINE A compare_sum(const cuda_element_loss_args &a) {
    int64_t begin = (int64_t)blockIdx.x * a.span, end = begin + a.span;
    A sum = 0;
    if (end > a.groups) end = a.groups;
    for (int64_t at = begin + (int)threadIdx.x; at < end; at += (int)blockDim.x) {
        cuda_group g;
        compared_group in;
        if (!cuda_group_at<COMPARED>(a.plan, at, &g)) continue;
        compare_load(a, g, &in);
#pragma unroll
        for (int i = 0; i < COMPARED; i++) {
            if (i >= g.n) continue;
            A term = compare_term<HOW>(compare_element(a, in, i));
            sum = sum + (a.weight_at ? term * LOAD(in.weight[i]) : term);
        }
    }
    return sum;
}

TMPL_INLINE void compare_finish(const cuda_element_loss_args &a, double sum) {
    *(T *)a.y = STORE((A)(sum / a.divisor));
}

KERNEL(TN_(element_loss), cuda_element_loss_args) {
    SHARED(double, room, CUDA_BLOCK);
    A mine = 0;
    switch (a.how) {
    case CUDA_COMPARE_SQUARE: mine = compare_sum<CUDA_COMPARE_SQUARE>(a); break;
    case CUDA_COMPARE_ABSOLUTE: mine = compare_sum<CUDA_COMPARE_ABSOLUTE>(a); break;
    case CUDA_COMPARE_SMOOTH: mine = compare_sum<CUDA_COMPARE_SMOOTH>(a); break;
    case CUDA_COMPARE_HUBER: mine = compare_sum<CUDA_COMPARE_HUBER>(a); break;
    case CUDA_COMPARE_ENTROPY: mine = compare_sum<CUDA_COMPARE_ENTROPY>(a); break;
    case CUDA_COMPARE_LOGITS: mine = compare_sum<CUDA_COMPARE_LOGITS>(a); break;
    case CUDA_COMPARE_DIVERGENCE: mine = compare_sum<CUDA_COMPARE_DIVERGENCE>(a); break;
    default: mine = compare_sum<CUDA_COMPARE_LOG_DIVERGENCE>(a); break;
    }
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    double sum = rows_join(room, (double)mine, lanes, 1, lane, rows_sum<double>());
    if (lane > 0) return;
    if (a.parts > 1)
        a.partial[blockIdx.x] = sum;
    else
        compare_finish(a, sum);
}

/* One block: adds up what the blocks found. */
KERNEL(TN_(element_loss_finish), cuda_element_loss_args) {
    SHARED(double, room, CUDA_BLOCK);
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    double sum = 0;
    for (int i = lane; i < a.parts; i += lanes) sum = sum + a.partial[i];
    sum = rows_join(room, sum, lanes, 1, lane, rows_sum<double>());
    if (lane == 0) compare_finish(a, sum);
}

/* The gradients of a thread's group. */
template <int HOW> TMPL_INLINE void compare_backward(const cuda_element_loss_args &a) {
    cuda_group g;
    compared_group in;
    if (!cuda_group_start<COMPARED>(a.plan, &g)) return;
    const A grad = LOAD(*(const T *)a.grad) / (A)a.divisor;
    CUDA_SPAN_ARRAY(T, y, COMPARED);
    compare_load(a, g, &in);
#pragma unroll
    for (int i = 0; i < COMPARED; i++) {
        if (i >= g.n) continue;
        A slope = compare_slope<HOW>(compare_element(a, in, i)) * grad;
        y[i] = STORE(a.weight_at ? slope * LOAD(in.weight[i]) : slope);
    }
    cuda_store(a.plan, g, y);
}

KERNEL(TN_(element_loss_backward), cuda_element_loss_args) {
    switch (a.how) {
    case CUDA_COMPARE_SQUARE: compare_backward<CUDA_COMPARE_SQUARE>(a); break;
    case CUDA_COMPARE_ABSOLUTE: compare_backward<CUDA_COMPARE_ABSOLUTE>(a); break;
    case CUDA_COMPARE_SMOOTH: compare_backward<CUDA_COMPARE_SMOOTH>(a); break;
    case CUDA_COMPARE_HUBER: compare_backward<CUDA_COMPARE_HUBER>(a); break;
    case CUDA_COMPARE_ENTROPY: compare_backward<CUDA_COMPARE_ENTROPY>(a); break;
    case CUDA_COMPARE_LOGITS: compare_backward<CUDA_COMPARE_LOGITS>(a); break;
    case CUDA_COMPARE_DIVERGENCE: compare_backward<CUDA_COMPARE_DIVERGENCE>(a); break;
    default: compare_backward<CUDA_COMPARE_LOG_DIVERGENCE>(a); break;
    }
}
