/* scalar_complex.h: pointwise formulas of the complex types; RA is the real type of A. Elementary
 * functions are the C library's: C_(f) of A, CR_(f) of RA; or complex_math.h's. */
#ifndef SCALAR_COMPLEX_H
#define SCALAR_COMPLEX_H

#include <math.h>

#include "tmpl.h"

#if TMPL_DTYPE == TMPL_C64
#define C_(name) name##f
#define CR_(name) name##f
#define COMPLEX_(re, im) tmpl_c64(re, im)
#else
#define C_(name) name
#define CR_(name) name
#define COMPLEX_(re, im) tmpl_c128(re, im)
#endif
#if defined(TMPL_CUDA)
#include "complex_math.h"
#define RE_(z) ((z).re)
#define IM_(z) ((z).im)
#else
#include <complex.h>

#include "scalar_arc.h"
#define RE_(z) C_(creal)(z)
#define IM_(z) C_(cimag)(z)
#endif

TMPL_INLINE A f_mul(A x, A y) {
    RA a = RE_(x), b = IM_(x), c = RE_(y), d = IM_(y);
    return COMPLEX_(a * c - b * d, a * d + b * c);
}
TMPL_INLINE A f_conj_physical(A x) { return COMPLEX_(RE_(x), -IM_(x)); }
TMPL_INLINE A f__mul_conj(A x, A y) { return f_mul(x, f_conj_physical(y)); }
TMPL_INLINE A f__scale_conj(A x, A y) { return f_mul(x, f_conj_physical(y)); }
/* By the larger part of the divisor (Smith), so that nothing overflows on the way. Infinities and nan
 * go through it as NumPy and PyTorch have it: two infinite parts of a divisor leave nan. */
TMPL_INLINE A complex_ratio(A x, A y) {
    RA a = RE_(x), b = IM_(x), c = RE_(y), d = IM_(y);
    if (CR_(fabs)(c) >= CR_(fabs)(d)) {
        if (c == 0) return COMPLEX_(a / CR_(fabs)(c), b / CR_(fabs)(d));
        RA ratio = d / c, scale = 1 / (c + d * ratio);
        return COMPLEX_((a + b * ratio) * scale, (b - a * ratio) * scale);
    }
    RA ratio = c / d, scale = 1 / (c * ratio + d);
    return COMPLEX_((a * ratio + b) * scale, (b * ratio - a) * scale);
}
#if TMPL_DTYPE == TMPL_C64 && !defined(TMPL_CUDA)
/* In double products are exact and no square leaves the range, so that errors are half a place of the
 * result. Where it does not serve, complex_ratio is taken, in loops by map_habits.h. */
TMPL_INLINE A f_true_divide(A x, A y) {
    double a = (double)RE_(x), b = (double)IM_(x), c = (double)RE_(y), d = (double)IM_(y);
    double q = 1 / (c * c + d * d);
    return COMPLEX_((float)((a * c + b * d) * q), (float)((b * c - a * d) * q));
}
TMPL_INLINE bool complex_divide_far(A x, A y) {
    double under = fabs((double)RE_(y)) + fabs((double)IM_(y));
    double all = fabs((double)RE_(x)) + fabs((double)IM_(x)) + under;
    return (under == 0) | !(all < INFINITY);
}
TMPL_INLINE A f_reciprocal(A x) { return f_true_divide(COMPLEX_(1, 0), x); }
#else
TMPL_INLINE A f_true_divide(A x, A y) { return complex_ratio(x, y); }
TMPL_INLINE A f_reciprocal(A x) { return 1 / x; }
#endif
TMPL_INLINE A f__div_conj(A x, A y) { return f_true_divide(x, f_conj_physical(y)); }
/* A real factor must not turn an infinite part into NaN. */
TMPL_INLINE A complex_scale(A x, A k) {
    return IM_(k) == 0 ? COMPLEX_(RE_(x) * RE_(k), IM_(x) * RE_(k)) : f_mul(x, k);
}
TMPL_INLINE A f_add(A x, A y, A alpha) { return x + complex_scale(y, alpha); }
TMPL_INLINE A f_sub(A x, A y, A alpha) { return x - complex_scale(y, alpha); }
TMPL_INLINE A f_rsub(A x, A y, A alpha) { return y - complex_scale(x, alpha); }
TMPL_INLINE A f_neg(A x) { return COMPLEX_(-RE_(x), -IM_(x)); }
#if TMPL_DTYPE == TMPL_C64 && !defined(TMPL_CUDA)
/* Squares of floats are exact in double, and none is beyond it: one rounding of the root counts. An infinite
 * part makes it infinite, as C has it, whatever the other is. */
TMPL_INLINE RA f_abs(A x) {
    double a = RE_(x), b = IM_(x), r = sqrt(a * a + b * b);
    return fabs(a) == INFINITY || fabs(b) == INFINITY ? (RA)INFINITY : (RA)r;
}
TMPL_INLINE RA f_angle(A x) { return f32_atan2(IM_(x), RE_(x)); }
#else
TMPL_INLINE RA f_abs(A x) { return C_(cabs)(x); }
TMPL_INLINE RA f_angle(A x) { return C_(carg)(x); }
#endif
TMPL_INLINE A f_sgn(A x) {
    RA r = f_abs(x);
    return r == 0 ? COMPLEX_(0, 0) : COMPLEX_(RE_(x) / r, IM_(x) / r);
}
TMPL_INLINE A f_square(A x) { return f_mul(x, x); }
TMPL_INLINE A f_sqrt(A x) { return C_(csqrt)(x); }
TMPL_INLINE A f_rsqrt(A x) { return 1 / C_(csqrt)(x); }
TMPL_INLINE A f_lerp(A x, A end, A w) {
    return C_(cabs)(w) < (RA)0.5 ? x + f_mul(w, end - x) : end - f_mul(end - x, 1 - w);
}
TMPL_INLINE A f_addcmul(A x, A a, A b, A value) { return x + f_mul(f_mul(value, a), b); }
TMPL_INLINE A f_addcdiv(A x, A a, A b, A value) { return x + complex_ratio(f_mul(value, a), b); }

TMPL_INLINE A f_exp(A x) { return C_(cexp)(x); }
TMPL_INLINE A f_log(A x) { return C_(clog)(x); }
TMPL_INLINE A f_log2(A x) { return C_(clog)(x) * (RA)0x1.71547652b82fep+0; }
TMPL_INLINE A f_log10(A x) { return C_(clog)(x) * (RA)0x1.bcb7b1526e50ep-2; }
TMPL_INLINE A f_exp2(A x) { return C_(cexp)(complex_scale(x, (RA)0x1.62e42fefa39efp-1)); }
/* At infinity as exp is in Annex G of C: zero times what is not finite is zero. */
TMPL_INLINE A f_expm1(A x) {
    RA a = RE_(x), b = IM_(x), s = CR_(sin)(b / 2);
    if (b == 0) return COMPLEX_(CR_(expm1)(a), b);
    if (CR_(fabs)(a) == (RA)INFINITY && !(CR_(fabs)(b) < (RA)INFINITY))
        return a < 0 ? COMPLEX_(-1, 0) : COMPLEX_(a, (RA)NAN);
    return COMPLEX_(CR_(expm1)(a) * CR_(cos)(b) - 2 * s * s, CR_(exp)(a) * CR_(sin)(b));
}
/* |1 + x| squared is 1 + a (2 + a) + b b, which keeps small a and b. */
TMPL_INLINE A f_log1p(A x) {
    RA a = RE_(x), b = IM_(x);
    RA near = CR_(log1p)(a * (2 + a) + b * b) / 2, far = CR_(log)(CR_(hypot)(1 + a, b));
    return COMPLEX_(CR_(fabs)(a) < (RA)0.5 && CR_(fabs)(b) < (RA)0.5 ? near : far,
                    CR_(atan2)(b, 1 + a));
}
/* The exponential of the smaller one, by its real part, in terms of the larger one's. */
TMPL_INLINE A f_logaddexp(A x, A y) {
    if (x != x || y != y) return COMPLEX_((RA)NAN, (RA)NAN);
    A low = RE_(x) < RE_(y) ? x : y, high = RE_(x) < RE_(y) ? y : x;
    bool level = RE_(low) == RE_(high) && CR_(fabs)(RE_(low)) == (RA)INFINITY;
    if (level) return RE_(low) < 0 ? low : f_log(f_exp(low) + f_exp(high));
    return f_log1p(f_exp(low - high)) + high;
}
TMPL_INLINE A f_sin(A x) { return C_(csin)(x); }
TMPL_INLINE A f_cos(A x) { return C_(ccos)(x); }
TMPL_INLINE A f_tan(A x) { return C_(ctan)(x); }
TMPL_INLINE A f_asin(A x) { return C_(casin)(x); }
TMPL_INLINE A f_acos(A x) { return C_(cacos)(x); }
TMPL_INLINE A f_atan(A x) { return C_(catan)(x); }
TMPL_INLINE A f_sinh(A x) { return C_(csinh)(x); }
TMPL_INLINE A f_cosh(A x) { return C_(ccosh)(x); }
TMPL_INLINE A f_tanh(A x) { return C_(ctanh)(x); }
TMPL_INLINE A f_asinh(A x) { return C_(casinh)(x); }
TMPL_INLINE A f_acosh(A x) { return C_(cacosh)(x); }
TMPL_INLINE A f_atanh(A x) { return C_(catanh)(x); }
TMPL_INLINE A f_pow(A x, A y) { return y == 0 ? COMPLEX_(1, 0) : C_(cpow)(x, y); }
TMPL_INLINE A f__pow_backward(A g, A x, A p) {
    return p == 0 ? COMPLEX_(0, 0) : f__mul_conj(g, f_mul(p, f_pow(x, p - 1)));
}
TMPL_INLINE A f__mul_log(A a, A x) { return x == 0 ? COMPLEX_(0, 0) : f_mul(a, C_(clog)(x)); }

TMPL_INLINE uint8_t f_isnan(A x) { return RE_(x) != RE_(x) || IM_(x) != IM_(x); }
TMPL_INLINE uint8_t f_isinf(A x) {
    return CR_(fabs)(RE_(x)) == (RA)INFINITY || CR_(fabs)(IM_(x)) == (RA)INFINITY;
}
TMPL_INLINE uint8_t f_isfinite(A x) {
    return CR_(fabs)(RE_(x)) < (RA)INFINITY && CR_(fabs)(IM_(x)) < (RA)INFINITY;
}
TMPL_INLINE uint8_t f_isclose(A x, A y, RA rtol, RA atol, int64_t equal_nan) {
    RA d = C_(cabs)(x - y);
    return x == y || (d <= atol + rtol * C_(cabs)(y) && d < (RA)INFINITY) ||
           (equal_nan && f_isnan(x) && f_isnan(y));
}

TMPL_INLINE RA complex_tame(RA x, RA nan, RA posinf, RA neginf) {
    return x != x ? nan : CR_(fabs)(x) < (RA)INFINITY ? x : x > 0 ? posinf : neginf;
}
TMPL_INLINE A f__nan_to_num(A x, RA nan, RA posinf, RA neginf) {
    return COMPLEX_(complex_tame(RE_(x), nan, posinf, neginf),
                    complex_tame(IM_(x), nan, posinf, neginf));
}

TMPL_INLINE A f_sigmoid(A x) { return 1 / (1 + C_(cexp)(-x)); }
TMPL_INLINE A f__sigmoid_backward(A g, A y) { return f__mul_conj(g, f_mul(y, 1 - y)); }
TMPL_INLINE A f__tanh_backward(A g, A y) { return f__mul_conj(g, 1 - f_mul(y, y)); }
TMPL_INLINE A f_silu(A x) { return x / (1 + C_(cexp)(-x)); }
TMPL_INLINE A f__silu_backward(A g, A x) {
    A s = 1 / (1 + C_(cexp)(-x));
    return f__mul_conj(g, f_mul(s, 1 + f_mul(x, 1 - s)));
}

#endif
