/* map_habits.h: what map_tmpl.h must know of single operators beyond their formula, and how it turns
 * the numbers of a call into parameters. */
#ifndef CPU_MAP_HABITS_H
#define CPU_MAP_HABITS_H

#include "half.h"

#define MAP_BLOCK 256 /* elements that are worked on step by step */

/* Compilers have no vectors of half precision: where the instruction set converts them, operands are
 * widened and results narrowed a block at a time. */
#if defined(TMPL_DTYPE) && TMPL_DTYPE == TMPL_F16 && defined(HALF_F16C)
#define MAP_IN_BLOCKS 1
#else
#define MAP_IN_BLOCKS 0
#endif

/* In half precision the last operand, where it is a number, is taken as it was given, as PyTorch has
 * it: 0.1 is not rounded to the elements' type first. */
#define NUMBER_mul 1
#define NUMBER_true_divide 1
#define NUMBER_floor_divide 1
#define NUMBER__trunc_divide 1
#define NUMBER_lerp 1
/* The parameter is rounded to it. */
#define ROUNDS_add 1
#define ROUNDS_sub 1

/* The sign is a bit. */
#if defined(TMPL_DTYPE) && TMPL_IS_HALF
#define BITS_abs 1
#define BITS_neg 1
TMPL_INLINE T bits_abs(T x) { return (T)(x & 0x7fff); }
TMPL_INLINE T bits_neg(T x) { return (T)(x ^ 0x8000); }
#endif

/* Formulas with a near and a far part, of which blocks of numbers often need one. Waves of large angles
 * are the C library's. */
#if defined(TMPL_DTYPE) && TMPL_IS_FLOAT
#define SPLIT_(op, f, past)                                                                        \
    TMPL_INLINE bool past_##op(A x) { return past((double)x); }                                    \
    TMPL_INLINE A close_##op(A x) { return (A)many_##f##_close((double)x); }                       \
    TMPL_INLINE A away_##op(A x) { return (A)many_##f##_away((double)x); }
#define SPLIT_i0 1
#define SPLIT_special_i0e 1
#define SPLIT_special_i1 1
#define SPLIT_special_i1e 1
#define SPLIT_special_modified_bessel_k0 1
#define SPLIT_special_modified_bessel_k1 1
#define SPLIT_special_scaled_modified_bessel_k0 1
#define SPLIT_special_scaled_modified_bessel_k1 1
#define SPLIT_special_bessel_j0 1
#define SPLIT_special_bessel_j1 1
#define SPLIT_special_bessel_y0 1
#define SPLIT_special_bessel_y1 1
#define SPLIT_digamma 1
SPLIT_(i0, i0, many_i_past)
SPLIT_(special_i0e, i0e, many_i_past)
SPLIT_(special_i1, i1, many_i_past)
SPLIT_(special_i1e, i1e, many_i_past)
SPLIT_(special_modified_bessel_k0, k0, many_k_past)
SPLIT_(special_modified_bessel_k1, k1, many_k_past)
SPLIT_(special_scaled_modified_bessel_k0, k0e, many_k_past)
SPLIT_(special_scaled_modified_bessel_k1, k1e, many_k_past)
SPLIT_(special_bessel_j0, j0, many_j_past)
SPLIT_(special_bessel_j1, j1, many_j_past)
SPLIT_(special_bessel_y0, y0, many_y_past)
SPLIT_(special_bessel_y1, y1, many_y_past)
SPLIT_(digamma, digamma, many_digamma_past)
#define SPLIT_lgamma 1
SPLIT_(lgamma, lgamma, many_lgamma_past)
#if TMPL_DTYPE == TMPL_F64
#define SPLIT_erfinv 1
#define SPLIT_special_ndtri 1
SPLIT_(erfinv, erfinv, many_erfinv_past)
SPLIT_(special_ndtri, ndtri, many_ndtri_past)
#endif
#define FIX_special_bessel_j0 1
#define FIX_special_bessel_j1 1
#define FIX_special_bessel_y0 1
#define FIX_special_bessel_y1 1
#define FIX_special_spherical_bessel_j0 1
TMPL_INLINE bool far_wave(A x) { return f64_abs((double)x) > F64_ANGLE_MAX; }
TMPL_INLINE bool far_special_bessel_j0(A x) { return far_wave(x); }
TMPL_INLINE bool far_special_bessel_j1(A x) { return far_wave(x); }
TMPL_INLINE bool far_special_bessel_y0(A x) { return far_wave(x); }
TMPL_INLINE bool far_special_bessel_y1(A x) { return far_wave(x); }
TMPL_INLINE bool far_special_spherical_bessel_j0(A x) { return far_wave(x); }
TMPL_INLINE A fix_special_bessel_j0(A x) { return (A)j0((double)x); }
TMPL_INLINE A fix_special_bessel_j1(A x) { return (A)j1((double)x); }
TMPL_INLINE A fix_special_bessel_y0(A x) { return (A)y0((double)x); }
TMPL_INLINE A fix_special_bessel_y1(A x) { return (A)y1((double)x); }
TMPL_INLINE A fix_special_spherical_bessel_j0(A x) { return (A)bessel_spherical_j0((double)x); }
#endif

/* Integer division by zero is an error, found before anything is written. */
#define CHECK_floor_divide 1
#define CHECK__trunc_divide 1
#define CHECK_remainder 1
#define CHECK_fmod 1

/* Angles too large for the vector formulas, and quotients; only they go through the library, or are
 * divided by the instruction. */
#if defined(TMPL_DTYPE) && TMPL_DTYPE == TMPL_F64
#define FIX_sin 1
#define FIX_cos 1
TMPL_INLINE bool far_sin(A x) { return f64_abs(x) > F64_ANGLE_MAX; }
TMPL_INLINE bool far_cos(A x) { return f64_abs(x) > F64_ANGLE_MAX; }
#define FIX_tan 1
#define FIX_lgamma 1
TMPL_INLINE bool far_tan(A x) { return f64_abs(x) > F64_ANGLE_MAX; }
TMPL_INLINE bool far_lgamma(A x) { return x < -2; } /* zeros begin there */
TMPL_INLINE A fix_sin(A x) { return sin(x); }
TMPL_INLINE A fix_cos(A x) { return cos(x); }
TMPL_INLINE A fix_tan(A x) { return tan(x); }
TMPL_INLINE A fix_lgamma(A x) { return lgamma(x); }
#if TMPL_HAS_FMA
#define FIX_fmod 1
#define FIX_remainder 1
#define FIX_floor_divide 1
TMPL_INLINE bool far_fmod(A x, A y) { return f64_fmod_far(x, y); }
TMPL_INLINE bool far_remainder(A x, A y) { return f64_fmod_far(x, y); }
TMPL_INLINE bool far_floor_divide(A x, A y) { return f64_fmod_far(x, y); }
TMPL_INLINE A fix_fmod(A x, A y) { return fmod(x, y); }
TMPL_INLINE A fix_remainder(A x, A y) { return float_remainder(fmod(x, y), y); }
TMPL_INLINE A fix_floor_divide(A x, A y) { return float_floor_divide(fmod(x, y), x, y); }
#endif
#elif defined(TMPL_DTYPE) && TMPL_DTYPE == TMPL_I64
#define FIX_fmod 1
#define FIX_remainder 1
#define FIX_floor_divide 1
#define FIX__trunc_divide 1
TMPL_INLINE bool far_fmod(A x, A y) { return INT_FAR(x, y); }
TMPL_INLINE bool far_remainder(A x, A y) { return INT_FAR(x, y); }
TMPL_INLINE bool far_floor_divide(A x, A y) { return INT_FAR(x, y); }
TMPL_INLINE bool far__trunc_divide(A x, A y) { return INT_FAR(x, y); }
TMPL_INLINE A fix__trunc_divide(A x, A y) { return int_divide(x, y); }
TMPL_INLINE A fix_fmod(A x, A y) { return (A)((U)x - (U)int_divide(x, y) * (U)y); }
TMPL_INLINE A fix_remainder(A x, A y) { return int_remainder(fix_fmod(x, y), y); }
TMPL_INLINE A fix_floor_divide(A x, A y) { return int_floor(int_divide(x, y), fix_fmod(x, y), y); }
#elif defined(TMPL_DTYPE) && TMPL_IS_FLOAT
#define FIX_sin 1
#define FIX_cos 1
#define FIX_tan 1
#define FIX_fmod 1
#define FIX_remainder 1
#define FIX_floor_divide 1
TMPL_INLINE bool far_sin(A x) { return f32_abs(x) > F32_ANGLE_MAX; }
TMPL_INLINE bool far_cos(A x) { return f32_abs(x) > F32_ANGLE_MAX; }
TMPL_INLINE bool far_tan(A x) { return f32_abs(x) > F32_ANGLE_MAX; }
TMPL_INLINE bool far_fmod(A x, A y) { return f32_fmod_far(x, y); }
TMPL_INLINE bool far_remainder(A x, A y) { return f32_fmod_far(x, y); }
TMPL_INLINE bool far_floor_divide(A x, A y) { return f32_fmod_far(x, y); }
TMPL_INLINE A fix_sin(A x) { return sinf(x); }
TMPL_INLINE A fix_cos(A x) { return cosf(x); }
TMPL_INLINE A fix_tan(A x) { return tanf(x); }
TMPL_INLINE A fix_fmod(A x, A y) { return fmodf(x, y); }
TMPL_INLINE A fix_remainder(A x, A y) { return float_remainder(fmodf(x, y), y); }
TMPL_INLINE A fix_floor_divide(A x, A y) { return float_floor_divide(fmodf(x, y), x, y); }
#endif

/* Many operations per element, or the C library: small chunks, no loops for numbers. */
#define SLOW_remainder 1
#define SLOW_fmod 1
#define SLOW_floor_divide 1
#define SLOW__trunc_divide 1
#define SLOW_pow 1
#define SLOW__pow_backward 1
#define SLOW__mul_log 1
#define SLOW_atan2 1
#define SLOW_asin 1
#define SLOW_acos 1
#define SLOW_atan 1
#define SLOW_sinh 1
#define SLOW_cosh 1
#define SLOW_asinh 1
#define SLOW_acosh 1
#define SLOW_atanh 1
#define SLOW_erfinv 1
#define SLOW_lgamma 1
#define SLOW_digamma 1
#define SLOW__polygamma 1
#define SLOW_hypot 1
#define SLOW__frexp_mantissa 1
#define SLOW__frexp_exponent 1
#define SLOW_nextafter 1
#define SLOW_gcd 1
#define SLOW_lcm 1
#define SLOW_igamma 1
#define SLOW__standard_gamma_grad 1
#define SLOW_igammac 1
#define SLOW_i0 1
#define SLOW_special_entr 1
#define SLOW_special_erfcx 1
#define SLOW_special_ndtr 1
#define SLOW_special_log_ndtr 1
#define SLOW_special_ndtri 1
#define SLOW_special_i0e 1
#define SLOW_special_i1 1
#define SLOW_special_i1e 1
#define SLOW_special_modified_bessel_k0 1
#define SLOW_special_modified_bessel_k1 1
#define SLOW_special_scaled_modified_bessel_k0 1
#define SLOW_special_scaled_modified_bessel_k1 1
#define SLOW_special_bessel_j0 1
#define SLOW_special_bessel_j1 1
#define SLOW_special_bessel_y0 1
#define SLOW_special_bessel_y1 1
#define SLOW_special_spherical_bessel_j0 1
#define SLOW_special_airy_ai 1
#define SLOW_special_xlog1py 1
#define SLOW_special_zeta 1
#define SLOW_special_chebyshev_polynomial_t 1
#define SLOW_special_chebyshev_polynomial_u 1
#define SLOW_special_chebyshev_polynomial_v 1
#define SLOW_special_chebyshev_polynomial_w 1
#define SLOW_special_hermite_polynomial_h 1
#define SLOW_special_hermite_polynomial_he 1
#define SLOW_special_laguerre_polynomial_l 1
#define SLOW_special_legendre_polynomial_p 1
#define SLOW_mish 1
#define SLOW_softplus 1
#define SLOW__gelu 1
#define SLOW__gelu_backward 1

/* The C type of a parameter by its kind (0 Scalar, 1 float, 2 int or bool). */
#define MAP_KIND_0 A
#if TMPL_IS_BOOL || TMPL_IS_INT
#define MAP_KIND_1 double
#else
#define MAP_KIND_1 RA
#endif
#define MAP_KIND_2 int64_t

static inline void map_param_0(cpu_param *p, tn_scalar s) {
#if TMPL_IS_COMPLEX
    A v = COMPLEX_((RA)s.re, (RA)s.im);
#elif TMPL_IS_FLOAT
    A v = (A)s.re;
#elif TMPL_IS_BOOL
    A v = s.re != 0;
#else
    A v = (A)s.i;
#endif
    memcpy(p, &v, sizeof v);
}

static inline void map_param_1(cpu_param *p, double d) {
    MAP_KIND_1 v = (MAP_KIND_1)d;
    memcpy(p, &v, sizeof v);
}

static inline void map_param_2(cpu_param *p, int64_t i) { p->i = i; }

#define MAP_PARAM(i, kind, value) TMPL_PASTE2(map_param, kind)(&params[i], value)

#endif
