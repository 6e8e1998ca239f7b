/* norm_shared.h: what the kernels of normalisation share: elements by vectors, sums of pairs. */
#ifndef CUDA_NORM_SHARED_H
#define CUDA_NORM_SHARED_H

#include "device.h"

#include "args_norm.h"
#include "join_lanes.h"
#include "moments.h"
#include "scalar.h"

enum { NORM_VECTOR = 16 / sizeof(T) }; /* elements that are loaded at once */

/* The gradient of batch_norm's input; that of an evaluation does not look at x, which may be NaN. */
TMPL_INLINE A norm_mix(const cuda_batch_norm_args &a, A g, A x, A by_g, A by_x, A shift) {
    return a.training ? g * by_g + x * by_x + shift : g * by_g;
}

TMPL_INLINE A norm_rstd(A square, double eps) {
#if TMPL_IS_HALF
    return 1 / sqrtf(square + (float)eps);
#else
    return (A)(1.0 / sqrt((double)square + eps));
#endif
}

template <int V, typename N> struct alignas(V > 1 ? 16 : alignof(N)) norm_vector { N of[V]; };

/* V elements from `x` on, `step` apart: at once where `whole` says that they may. */
template <int V> TMPL_INLINE void norm_get(const T *x, int64_t step, bool whole, A *ret_x) {
    norm_vector<V, T> v;
    if (whole) {
        v = *(const norm_vector<V, T> *)x;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) v.of[k] = x[k * step];
    }
#pragma unroll
    for (int k = 0; k < V; k++) ret_x[k] = LOAD(v.of[k]);
}

template <int V> TMPL_INLINE void norm_put(T *y, int64_t step, bool whole, const A *x) {
    norm_vector<V, T> v;
#pragma unroll
    for (int k = 0; k < V; k++) v.of[k] = STORE(x[k]);
    if (whole) {
        *(norm_vector<V, T> *)y = v;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) y[k * step] = v.of[k];
    }
}

struct norm_pair {
    A g, product;
};
struct norm_add {
    CUDA_MEMBER A operator()(A p, A q) const { return p + q; }
    CUDA_MEMBER norm_pair operator()(norm_pair p, norm_pair q) const {
        return {p.g + q.g, p.product + q.product};
    }
};
TMPL_INLINE norm_pair lanes_swap(norm_pair x, int by) {
    return {lanes_swap(x.g, by), lanes_swap(x.product, by)};
}

TMPL_INLINE void norm_blend(void *running, int64_t c, double momentum, double x) {
    T *at = (T *)running + c;
    if (running) *at = STORE((A)((1.0 - momentum) * (double)LOAD(*at) + momentum * x));
}

#endif
