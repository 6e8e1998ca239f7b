/* reduce_walk.h: a thread's way through the elements of a result, and where results go; shared by sums
 * (reduce.cu) and moments (moments.cu). */
#ifndef CUDA_REDUCE_WALK_H
#define CUDA_REDUCE_WALK_H

#include "device.h"

#include "args_reduction.h"
#include "scalar.h"

enum {
    REDUCE_VECTOR = sizeof(T) < 16 ? 16 / sizeof(T) : 1, /* elements that are loaded at once */
    REDUCE_AHEAD = 4                                     /* loads that are under way together */
};

template <int V> struct alignas(V > 1 ? 16 : alignof(T)) reduce_vector { T of[V]; };

/* Writes a result, whole: by one thread. */
TMPL_INLINE void reduce_write(const cuda_reduction_args &a, int64_t result, A x) {
#if TMPL_IS_FLOAT
    if (a.divide) x = x / (A)a.divisor;
#elif TMPL_IS_COMPLEX
    if (a.divide) x = COMPLEX_(RE_(x) / (RA)a.divisor, IM_(x) / (RA)a.divisor);
#endif
    if (a.packed) {
        ((A *)a.out)[result] = x;
        return;
    }
    char *out = (char *)a.out + cuda_offset(result, a.kept_dims, a.kept_size, a.kept_out);
#if TMPL_IS_COMPLEX
    if (a.real) {
        *(R *)out = STORER(RE_(x));
        return;
    }
#endif
    *(T *)out = STORE(x);
}

/* Where unit i lies. */
TMPL_INLINE int64_t reduce_unit(const cuda_reduction_args &a, int64_t i) {
    int64_t outer = i / a.run;
    return (i - outer * a.run) * a.step +
           cuda_offset(outer, a.gone_dims - 1, a.gone_size + 1, a.gone_in + 1);
}

/* A thread's units: the next one is number `at`, `inner` in its run, and lies at `offset` if there are
 * no more than two dimensions. It walks from one to the next without a division. */
typedef struct reduce_walk {
    int64_t at, end, inner, offset;
    int lanes;
} reduce_walk;

TMPL_INLINE reduce_walk reduce_start(const cuda_reduction_args &a, int64_t part, int lane,
                                     int lanes) {
    reduce_walk w;
    w.at = w.inner = part * a.span + lane;
    w.end = (part + 1) * a.span < a.units ? (part + 1) * a.span : a.units;
    w.offset = w.at * a.step;
    w.lanes = lanes;
    if (a.gone_dims > 1) {
        w.inner = w.at - w.at / a.run * a.run;
        w.offset = reduce_unit(a, w.at);
    }
    return w;
}

TMPL_INLINE void reduce_step(const cuda_reduction_args &a, reduce_walk *w) {
    w->at += w->lanes;
    w->offset += a.by_offset;
    w->inner += a.by_inner;
    if (w->inner >= a.run) {
        w->inner -= a.run;
        w->offset += a.by_run;
    }
}

/* The first column of a group of neighbouring results, and how many it has. */
template <int V>
TMPL_INLINE int64_t reduce_group(const cuda_reduction_args &a, int64_t group, int64_t *ret_n) {
    int64_t outer = a.kept_dims > 1 ? group / a.groups : 0;
    int64_t column = (group - outer * a.groups) * V, first = outer * a.kept_size[0] + column;
    int64_t left = a.kept_size[0] - column;
    *ret_n = first >= a.kept ? 0 : left < V ? left : V;
    return first;
}

#endif
