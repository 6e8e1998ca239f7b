/* series.h: sums of powers and of Chebyshev polynomials with constant coefficients, for every backend.
 * The steps stand one after the other, so that loops over such sums are vectorised. */
#ifndef SERIES_H
#define SERIES_H

#include "tmpl.h"

#if TMPL_HAS_FMA
#define F64_FMA(a, b, c) TMPL_BUILTIN(fma)(a, b, c)
#else
#define F64_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* The next loop runs as often as a table is long. */
#if defined(__CUDACC__)
#define SERIES_UNROLL _Pragma("unroll")
#elif defined(__clang__)
#define SERIES_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define SERIES_UNROLL _Pragma("GCC unroll 40")
#else
#define SERIES_UNROLL
#endif

/* The sum of c[k] T_k(u), -1 <= u <= 1, by Clenshaw's recurrence. */
TMPL_INLINE double series_chebyshev(const double *c, int n, double u) {
    double a = 0, b = 0, twice = u + u;
    SERIES_UNROLL
    for (int k = n - 1; k > 0; k--) {
        double t = F64_FMA(twice, a, c[k] - b);
        b = a;
        a = t;
    }
    return F64_FMA(u, a, c[0] - b);
}

/* The sum of c[k] z^k. */
TMPL_INLINE double series_powers(const double *c, int n, double z) {
    double s = c[n - 1];
    SERIES_UNROLL
    for (int k = n - 2; k >= 0; k--) s = F64_FMA(s, z, c[k]);
    return s;
}

#define SERIES_COUNT(c) ((int)(sizeof(c) / sizeof(c)[0]))
#define SERIES_CHEBYSHEV(c, u) series_chebyshev(c, SERIES_COUNT(c), u)
#define SERIES_POWERS(c, z) series_powers(c, SERIES_COUNT(c), z)

#endif
