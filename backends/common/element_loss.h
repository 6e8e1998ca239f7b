/* element_loss.h: losses that compare element by element, and their derivatives in the direction of the
 * input, for templates of C and of CUDA C. `how` is known where a loop is compiled. */
#ifndef COMMON_ELEMENT_LOSS_H
#define COMMON_ELEMENT_LOSS_H

#include "scalar.h"

/* The numbers of TN_ELEMENT_LOSS_*, which kernels of a GPU do not see. */
enum {
    COMPARE_SQUARE,
    COMPARE_ABSOLUTE,
    COMPARE_SMOOTH,
    COMPARE_HUBER,
    COMPARE_ENTROPY,
    COMPARE_LOGITS,
    COMPARE_DIVERGENCE,
    COMPARE_LOG_DIVERGENCE
};

/* What a comparison is told about one element: input, target, the weight of positive ones, beta. */
typedef struct compared {
    A x, t, pos, number;
} compared;

/* Next to 1 the logarithm of 0 counts as -100. */
TMPL_INLINE A compare_log(A x) { return f_maximum(f_log(x), (A)-100); }
TMPL_INLINE A compare_log1p(A x) { return f_maximum(f_log1p(x), (A)-100); }

TMPL_INLINE A compare_term(int how, compared e) {
    A d = e.x - e.t, far = f_abs(d);
    switch (how) {
    case COMPARE_SQUARE: return d * d;
    case COMPARE_ABSOLUTE: return far;
    case COMPARE_SMOOTH:
        return far < e.number ? d * d * ((A)0.5 / e.number) : far - (A)0.5 * e.number;
    case COMPARE_HUBER:
        return far < e.number ? d * d * (A)0.5 : (far - (A)0.5 * e.number) * e.number;
    case COMPARE_ENTROPY: return -(e.t * compare_log(e.x) + ((A)1 - e.t) * compare_log1p(-e.x));
    case COMPARE_LOGITS:
        return ((A)1 - e.t) * e.x - ((A)1 + (e.pos - (A)1) * e.t) * f_log_sigmoid(e.x);
    case COMPARE_DIVERGENCE: return (e.t == 0 ? (A)0 : e.t * f_log(e.t)) - e.t * e.x;
    default: return f_exp(e.t) * (e.t - e.x);
    }
}

TMPL_INLINE A compare_slope(int how, compared e) {
    A d = e.x - e.t;
    switch (how) {
    case COMPARE_SQUARE: return (A)2 * d;
    case COMPARE_ABSOLUTE: return f_sign(d);
    case COMPARE_SMOOTH: return f_abs(d) >= e.number ? f_sign(d) : d / e.number; /* also NaN */
    case COMPARE_HUBER: return f_abs(d) >= e.number ? f_sign(d) * e.number : d;
    case COMPARE_ENTROPY: return d / f_maximum(((A)1 - e.x) * e.x, (A)1e-12);
    case COMPARE_LOGITS: return ((A)1 - e.t) - ((A)1 + (e.pos - (A)1) * e.t) * f_sigmoid(-e.x);
    case COMPARE_DIVERGENCE: return -e.t;
    default: return -f_exp(e.t);
    }
}

#endif
