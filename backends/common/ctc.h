/* ctc.h: formulas of connectionist temporal classification. A is float or double; include after tmpl.h. */
#ifndef CTC_H
#define CTC_H

#include <math.h>

#if TMPL_DTYPE == TMPL_F64
#define CTC_MATH(name) TMPL_BUILTIN(name)
#else
#define CTC_MATH(name) TMPL_BUILTIN(name##f)
#endif

#define CTC_NEVER ((A)-INFINITY) /* the logarithm of no probability */

/* log(exp(a) + exp(b) + exp(c)); a NaN stays one. */
TMPL_INLINE A ctc_plus(A a, A b, A c) {
    A top = a > b ? a : b;
    top = top > c ? top : c;
    if (top == CTC_NEVER) return a + b + c;
    return top +
           CTC_MATH(log)(CTC_MATH(exp)(a - top) + CTC_MATH(exp)(b - top) + CTC_MATH(exp)(c - top));
}

/* The derivative for log_probs of a class, p of them, through which paths of the sum go; times g. NaN
 * where no path leads to the target. */
TMPL_INLINE A ctc_slope(A sum, A loss, A p, A g) {
    bool never = sum == CTC_NEVER && loss < -CTC_NEVER;
    A expected = never ? (A)0 : CTC_MATH(exp)(sum + loss - p);
    return (CTC_MATH(exp)(p) - expected) * g;
}

#endif
