/* moments.h: number, mean and spread of elements in one pass: some elements' own first, then joined to
 * those that are there (Chan's formula), so that nothing cancels however far from 0 they lie. */
#ifndef CUDA_MOMENTS_H
#define CUDA_MOMENTS_H

#include "device.h"

#include "join_lanes.h"
#include "scalar.h"

/* Number, mean, and sum of squared distances from the mean, of some elements. */
struct moments {
    A count, mean, square;
};
struct moments_join {
    CUDA_MEMBER moments operator()(moments p, moments q) const {
        if (q.count == 0) return p;
        if (p.count == 0) return q; /* the square of its mean may be infinite */
        A count = p.count + q.count, d = q.mean - p.mean, share = q.count / count;
        return {count, p.mean + d * share, p.square + q.square + d * d * p.count * share};
    }
};
TMPL_INLINE moments lanes_swap(moments x, int by) {
    return {lanes_swap(x.count, by), lanes_swap(x.mean, by), lanes_swap(x.square, by)};
}

/* Takes in the first n[i] of x[i]. */
template <int N, int V>
TMPL_INLINE void moments_take(const A (&x)[N][V], const int (&n)[N], moments *m) {
    A sum = 0, square = 0;
    int count = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        count += n[i];
#pragma unroll
        for (int k = 0; k < V; k++)
            if (k < n[i]) sum = sum + x[i][k];
    }
    if (count == 0) return;
    A mean = sum / (A)count;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            if (k < n[i]) square = B_(fma)(x[i][k] - mean, x[i][k] - mean, square);
    *m = moments_join()(*m, moments{(A)count, mean, square});
}

/* Moments of columns that have one count. */
template <int V> struct moments_across { A count, mean[V], square[V]; };

/* Takes in N elements of each column. There are none at first, and the square of a mean may be
 * infinite. */
template <int N, int V>
TMPL_INLINE void moments_take_across(const A (&x)[N][V], moments_across<V> *m) {
    A count = m->count + (A)N, share = (A)N / count, both = m->count * share;
#pragma unroll
    for (int k = 0; k < V; k++) {
        A mean = x[0][k], square = 0;
#pragma unroll
        for (int i = 1; i < N; i++) mean = mean + x[i][k];
        mean = mean * ((A)1 / (A)N);
#pragma unroll
        for (int i = 0; i < N && N > 1; i++)
            square = B_(fma)(x[i][k] - mean, x[i][k] - mean, square);
        A d = m->count > 0 ? mean - m->mean[k] : (A)0;
        m->mean[k] = m->count > 0 ? m->mean[k] + d * share : mean;
        m->square[k] = m->square[k] + (square + d * d * both);
    }
    m->count = count;
}

#endif
