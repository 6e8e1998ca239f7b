/* element_loss.cu: losses of one floating type that compare element by element: their sum, and the
 * gradient of the input.
 *
 * types: float */
#include "device.h"

#include "args_element_loss.h"
#include "element_loss.h"
#include "rows.h"

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
            A term = compare_term(HOW, compare_element(a, in, i));
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
    case COMPARE_SQUARE: mine = compare_sum<COMPARE_SQUARE>(a); break;
    case COMPARE_ABSOLUTE: mine = compare_sum<COMPARE_ABSOLUTE>(a); break;
    case COMPARE_SMOOTH: mine = compare_sum<COMPARE_SMOOTH>(a); break;
    case COMPARE_HUBER: mine = compare_sum<COMPARE_HUBER>(a); break;
    case COMPARE_ENTROPY: mine = compare_sum<COMPARE_ENTROPY>(a); break;
    case COMPARE_LOGITS: mine = compare_sum<COMPARE_LOGITS>(a); break;
    case COMPARE_DIVERGENCE: mine = compare_sum<COMPARE_DIVERGENCE>(a); break;
    default: mine = compare_sum<COMPARE_LOG_DIVERGENCE>(a); break;
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
        A slope = compare_slope(HOW, compare_element(a, in, i)) * grad;
        y[i] = STORE(a.weight_at ? slope * LOAD(in.weight[i]) : slope);
    }
    cuda_store(a.plan, g, y);
}

KERNEL(TN_(element_loss_backward), cuda_element_loss_args) {
    switch (a.how) {
    case COMPARE_SQUARE: compare_backward<COMPARE_SQUARE>(a); break;
    case COMPARE_ABSOLUTE: compare_backward<COMPARE_ABSOLUTE>(a); break;
    case COMPARE_SMOOTH: compare_backward<COMPARE_SMOOTH>(a); break;
    case COMPARE_HUBER: compare_backward<COMPARE_HUBER>(a); break;
    case COMPARE_ENTROPY: compare_backward<COMPARE_ENTROPY>(a); break;
    case COMPARE_LOGITS: compare_backward<COMPARE_LOGITS>(a); break;
    case COMPARE_DIVERGENCE: compare_backward<COMPARE_DIVERGENCE>(a); break;
    default: compare_backward<COMPARE_LOG_DIVERGENCE>(a); break;
    }
}
