/* scalar_arc.h: inverse functions of the circle, the hyperbola and the normal distribution, hyperbolic
 * sines and remainders of float, for loops that compilers vectorise: no branches, no library calls.
 * Largest errors, measured against double over all of float's range: sinh, cosh 1.5 ulp; the others
 * are computed in double and rounded once. Polynomials are minimax fits. */
#ifndef SCALAR_ARC_H
#define SCALAR_ARC_H

#include "scalar_f32.h"

#if !defined(TMPL_CUDA)

/* atan(t) for t in [0, 1]. */
TMPL_INLINE double f32_atan_poly(double t) {
    double z = t * t, p = -0x1.defc49e4f03cep-10;
    p = p * z + 0x1.6a8e33f4515eap-7;
    p = p * z - 0x1.01aee68e40b00p-5;
    p = p * z + 0x1.dd0e38b33cf3ep-5;
    p = p * z - 0x1.58dc4a38bfb87p-4;
    p = p * z + 0x1.c0d277fbe3087p-4;
    p = p * z - 0x1.2426f73219b90p-3;
    p = p * z + 0x1.9992764bdc010p-3;
    p = p * z - 0x1.555540370a90dp-2;
    return p * z * t + t;
}

/* The quotient of the smaller by the larger; infinities count as a number beyond all others. */
TMPL_INLINE float f32_atan2(float y, float x) {
    const double endless = 0x1p300, quarter = 0x1.921fb54442d18p+0;
    double a = f64_abs((double)y), b = f64_abs((double)x);
    a = a > endless ? endless : a;
    b = b > endless ? endless : b;
    double big = a > b ? a : b, least = a > b ? b : a;
    double r = f32_atan_poly(least / (big == 0.0 ? 1.0 : big));
    r = a > b ? quarter - r : r;
    r = TMPL_BUILTIN(copysign)(1.0, (double)x) < 0.0 ? 2.0 * quarter - r : r;
    return (float)TMPL_BUILTIN(copysign)(r, (double)y);
}

TMPL_INLINE float f32_atan(float x) { return f32_atan2(x, 1.0f); }

/* asin(s) for s in [-1/2, 1/2]. */
TMPL_INLINE double f32_asin_poly(double s) {
    double z = s * s, p = 0x1.59dab561e8145p-5;
    p = p * z + 0x1.8ba26cca190f2p-6;
    p = p * z + 0x1.748c629ab4871p-5;
    p = p * z + 0x1.33014e719052ap-4;
    p = p * z + 0x1.5555ca7423092p-3;
    return p * z * s + s;
}

/* pi / 2 - asin(x), beyond 1/2 by way of asin(sqrt((1 - |x|) / 2)). */
TMPL_INLINE double f32_acos_wide(double x) {
    const double quarter = 0x1.921fb54442d18p+0;
    double a = f64_abs(x);
    bool far = a > 0.5;
    double r = f32_asin_poly(far ? TMPL_BUILTIN(sqrt)((1.0 - a) * 0.5) : x);
    double beyond = x < 0.0 ? 2.0 * (quarter - r) : 2.0 * r;
    return far ? beyond : quarter - r;
}

TMPL_INLINE float f32_acos(float x) { return (float)f32_acos_wide((double)x); }

TMPL_INLINE float f32_asin(float x) {
    double a = (double)x, r = 0x1.921fb54442d18p+0 - f32_acos_wide(a);
    return (float)(f64_abs(a) > 0.5 ? r : f32_asin_poly(a));
}

/* e^a / 2 for a >= 0, which is finite where cosh is. */
TMPL_INLINE float f32_half_exp(float a) { return f32_exp_times(a > 90.0f ? 90.0f : a, 0.0f, -1); }

TMPL_INLINE float f32_cosh(float x) {
    float e = f32_half_exp(f32_abs(x));
    return x != x ? x : e + 0.25f / e;
}

TMPL_INLINE float f32_sinh(float x) {
    float a = f32_abs(x), z = x * x, e = f32_half_exp(a);
    float p = 0x1.7a267ep-19f;
    p = F32_FMA(p, z, 0x1.9ffe12p-13f);
    p = F32_FMA(p, z, 0x1.111136p-7f);
    p = F32_FMA(p, z, 0x1.555556p-3f);
    float small = x == 0.0f ? x : F32_FMA(x * z, p, x);
    float r = TMPL_BUILTIN(copysignf)(e - 0.25f / e, x);
    r = a < 1.0f ? small : r;
    return x != x ? x : r;
}

/* Next to 0, where 1 + x loses what counts, by two terms of the series. */
TMPL_INLINE float f32_asinh(float x) {
    double a = f64_abs((double)x);
    double r = f64_log_short(a + TMPL_BUILTIN(sqrt)(a * a + 1.0));
    r = a < 0x1p-11 ? a - a * a * a * 0x1.5555555555555p-3 : r;
    return (float)TMPL_BUILTIN(copysign)(r, (double)x);
}

TMPL_INLINE float f32_acosh(float x) {
    double a = (double)x, r = f64_log_short(a + TMPL_BUILTIN(sqrt)(a * a - 1.0));
    return (float)(a < 1.0 ? (double)NAN : r);
}

TMPL_INLINE float f32_atanh(float x) {
    double a = f64_abs((double)x);
    double r = 0.5 * f64_log_short((1.0 + a) / (1.0 - a));
    r = a < 0x1p-11 ? a + a * a * a * 0x1.5555555555555p-2 : r;
    return (float)TMPL_BUILTIN(copysign)(r, (double)x);
}

/* erfinv(x) / x as polynomials in w = -log(1 - x * x), beyond 5 in its root. w need not be exact: the
 * function hardly changes with it. What the higher powers add is small, so that floats hold it. */
TMPL_INLINE float f32_erfinv(float x) {
    float w = -f32_log((1.0f - x) * (1.0f + x)), u = w - 2.5f;
    float v = TMPL_BUILTIN(sqrtf)(w) - 3.0f;
    float p = -0x1.2e0e44p-27f, q = 0x1.e98810p-14f;
    p = F32_FMA(p, u, 0x1.8f21c4p-26f);
    p = F32_FMA(p, u, 0x1.f48bc2p-22f);
    p = F32_FMA(p, u, -0x1.d0c196p-19f);
    p = F32_FMA(p, u, -0x1.4d159ap-18f);
    p = F32_FMA(p, u, 0x1.c9e6c6p-13f);
    p = F32_FMA(p, u, -0x1.486616p-10f);
    p = F32_FMA(p, u, -0x1.11c4ecp-8f);
    q = F32_FMA(q, v, -0x1.458170p-12f);
    q = F32_FMA(q, v, -0x1.e8ba82p-15f);
    q = F32_FMA(q, v, 0x1.85948cp-10f);
    q = F32_FMA(q, v, -0x1.d76aaep-9f);
    q = F32_FMA(q, v, 0x1.74ad26p-8f);
    q = F32_FMA(q, v, -0x1.f48732p-8f);
    q = F32_FMA(q, v, 0x1.35812ap-7f);
    bool near = w < 5.0f;
    double at = near ? (double)w - 2.5 : TMPL_BUILTIN(sqrt)((double)w) - 3.0;
    double r = (double)(near ? p : q) * at + (near ? 0x1.f91e8ad74ec35p-3 : 0x1.006dc57272869p+0);
    r = r * at + (near ? 0x1.805c5d2006388p+0 : 0x1.6a9efbda6f3acp+1);
    return f32_abs(x) == 1.0f ? x * INFINITY : (float)((double)x * r);
}

/* sqrt(2) erfinv(2 p - 1), where 1 - x * x is 4 p (1 - p). */
TMPL_INLINE float f32_ndtri(float x) {
    double p = (double)x, least = p < 0.5 ? p : 1.0 - p;
    double w = -f64_log_short(4.0 * least * (1.0 - least)), root = TMPL_BUILTIN(sqrt)(w);
    double r = root < 4.0 ? f64_erfinv_mid(root - 3.0) : f64_erfinv_far(root - 7.0);
    r = w < 5.0 ? f64_erfinv_near(w - 2.5) : r;
    return (float)((p + p - 1.0) * 0x1.6a09e667f3bcdp+0 * r);
}

TMPL_INLINE float f32_hypot(float x, float y) {
    double a = (double)x, b = (double)y;
    float r = (float)TMPL_BUILTIN(sqrt)(a * a + b * b);
    return f32_abs(x) == INFINITY || f32_abs(y) == INFINITY ? INFINITY : r;
}

/* Whether f32_fmod does not serve: it is exact while the quotient has fewer than 28 bits. */
TMPL_INLINE bool f32_fmod_far(float x, float y) {
    return y != 0.0f && f32_abs(x) >= 0x1p28f * f32_abs(y);
}

TMPL_INLINE float f32_fmod(float x, float y) {
    double a = (double)x, b = (double)y, r = a - TMPL_BUILTIN(trunc)(a / b) * b;
    r = f64_abs(b) > 0x1.fffffep127 && f64_abs(a) <= 0x1.fffffep127 ? a : r;
    return (float)TMPL_BUILTIN(copysign)(r, a);
}

#endif

#endif
