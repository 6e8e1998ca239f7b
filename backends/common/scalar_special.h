/* scalar_special.h: pointwise formulas of special.h and special_many.h for the floating types. But for a few they
 * are computed in double: what lies between would overflow or lose digits in less. */
#ifndef SCALAR_SPECIAL_H
#define SCALAR_SPECIAL_H

#include "special_many.h"

/* Of the C library, though not of C's standard. */
#if !defined(TMPL_CUDA)
double j0(double x);
double j1(double x);
double y0(double x);
double y1(double x);
#endif

#define SPECIAL_1(op, f)                                                                           \
    TMPL_INLINE A f_##op(A x) { return (A)f((double)x); }
#define SPECIAL_2(op, f)                                                                           \
    TMPL_INLINE A f_##op(A x, A y) { return (A)f((double)x, (double)y); }

/* On a CPU loops are vectorised; float has formulas of its own for some. */
#if defined(TMPL_CUDA)
#define SPECIAL_(name) special_##name
#define SPECIAL_BESSEL(name) bessel_##name
#define SPECIAL_WAVE(name) name
#else
#define SPECIAL_(name) many_##name
#define SPECIAL_BESSEL(name) many_##name
#define SPECIAL_WAVE(name) many_##name
#endif
#if TMPL_DTYPE == TMPL_F64 || defined(TMPL_CUDA)
SPECIAL_1(erfinv, SPECIAL_(erfinv))
SPECIAL_1(special_entr, SPECIAL_(entr))
SPECIAL_1(special_ndtri, SPECIAL_(ndtri))
#if defined(TMPL_CUDA)
SPECIAL_1(special_ndtr, special_ndtr)
#else
SPECIAL_1(special_ndtr, f64_ndtr)
#endif
#else
TMPL_INLINE A f_erfinv(A x) { return f32_erfinv(x); }
TMPL_INLINE A f_special_ndtr(A x) { return f32_ndtr(x); }
TMPL_INLINE A f_special_ndtri(A x) { return f32_ndtri(x); }
TMPL_INLINE A f_special_entr(A x) {
    A r = x == 0 ? (A)0 : -x * f32_log(x);
    r = x == INFINITY ? -INFINITY : r;
    return x < 0 ? -INFINITY : r;
}
#endif
SPECIAL_1(special_erfcx, SPECIAL_(erfcx))
SPECIAL_1(special_log_ndtr, SPECIAL_(log_ndtr))
SPECIAL_1(i0, SPECIAL_BESSEL(i0))
SPECIAL_1(special_i0e, SPECIAL_BESSEL(i0e))
SPECIAL_1(special_i1, SPECIAL_BESSEL(i1))
SPECIAL_1(special_i1e, SPECIAL_BESSEL(i1e))
SPECIAL_1(special_modified_bessel_k0, SPECIAL_BESSEL(k0))
SPECIAL_1(special_modified_bessel_k1, SPECIAL_BESSEL(k1))
SPECIAL_1(special_scaled_modified_bessel_k0, SPECIAL_BESSEL(k0e))
SPECIAL_1(special_scaled_modified_bessel_k1, SPECIAL_BESSEL(k1e))
SPECIAL_1(special_bessel_j0, SPECIAL_WAVE(j0))
SPECIAL_1(special_bessel_j1, SPECIAL_WAVE(j1))
SPECIAL_1(special_bessel_y0, SPECIAL_WAVE(y0))
SPECIAL_1(special_bessel_y1, SPECIAL_WAVE(y1))
SPECIAL_1(special_spherical_bessel_j0, SPECIAL_BESSEL(spherical_j0))
SPECIAL_1(special_airy_ai, airy_ai)
SPECIAL_2(_standard_gamma_grad, special_gamma_draw_slope)
SPECIAL_2(special_xlog1py, SPECIAL_(xlog1py))
SPECIAL_2(special_zeta, special_zeta)
SPECIAL_2(special_chebyshev_polynomial_t, special_chebyshev_t)
SPECIAL_2(special_chebyshev_polynomial_u, special_chebyshev_u)
SPECIAL_2(special_chebyshev_polynomial_v, special_chebyshev_v)
SPECIAL_2(special_chebyshev_polynomial_w, special_chebyshev_w)
SPECIAL_2(special_laguerre_polynomial_l, special_laguerre)
SPECIAL_2(special_legendre_polynomial_p, special_legendre)

#if defined(TMPL_CUDA)
TMPL_INLINE A f_lgamma(A x) { return C_(lgamma)(x); }
#else
SPECIAL_1(lgamma, many_lgamma)
#endif

TMPL_INLINE A f_digamma(A x) {
    return x == 0 ? C_(copysign)((A)INFINITY, -x) : (A)SPECIAL_(digamma)((double)x);
}

TMPL_INLINE A f_igamma(A a, A x) { return (A)special_gamma_part((double)a, (double)x, false); }
TMPL_INLINE A f_igammac(A a, A x) { return (A)special_gamma_part((double)a, (double)x, true); }
TMPL_INLINE A f_special_hermite_polynomial_h(A x, A n) {
    return (A)special_hermite((double)x, (double)n, 2);
}
TMPL_INLINE A f_special_hermite_polynomial_he(A x, A n) {
    return (A)special_hermite((double)x, (double)n, 1);
}
TMPL_INLINE A f__polygamma(A x, int64_t n) { return (A)special_polygamma((double)x, n); }

#endif
