/* scalar_float.h: pointwise formulas of the floating types; A is float (f32, f16, bf16) or double.
 * M_(f) is our f of A, B_(f) the compiler's built-in, C_(f) the C library's. */
#ifndef SCALAR_FLOAT_H
#define SCALAR_FLOAT_H

#include "scalar_arc.h"

#if TMPL_DTYPE == TMPL_F64
#define M_(name) f64_##name
#define B_(name) TMPL_BUILTIN(name)
#define C_(name) name
#else
#define M_(name) f32_##name
#define B_(name) TMPL_BUILTIN(name##f)
#define C_(name) name##f
#endif
/* Ours where loops are vectorised, the library's on a GPU. */
#if defined(TMPL_CUDA)
#define ARC_(name) C_(name)
#else
#define ARC_(name) M_(name)
#endif
#define K_(x) ((A)(x))
/* Functions for which float is enough on the way to half precision. */
#if TMPL_IS_HALF && TMPL_HAS_FMA && !defined(TMPL_CUDA)
#include "scalar_half.h"
#define HALF_(name, other) half_##name
#else
#define HALF_(name, other) other
#endif

/* ---- Arithmetic --------------------------------------------------------------------------------*/
TMPL_INLINE A f_add(A x, A y, A alpha) { return x + alpha * y; }
TMPL_INLINE A f_sub(A x, A y, A alpha) { return x - alpha * y; }
TMPL_INLINE A f_rsub(A x, A y, A alpha) { return y - alpha * x; }
TMPL_INLINE A f_mul(A x, A y) { return x * y; }
TMPL_INLINE A f__mul_conj(A x, A y) { return x * y; }
TMPL_INLINE A f__scale_conj(A x, A factor) { return x * factor; }
TMPL_INLINE A f_true_divide(A x, A y) { return x / y; }
TMPL_INLINE A f__div_conj(A x, A y) { return x / y; }
TMPL_INLINE A f_neg(A x) { return -x; }
TMPL_INLINE A f_abs(A x) { return B_(fabs)(x); }
TMPL_INLINE A f_square(A x) { return x * x; }
TMPL_INLINE A f_sqrt(A x) { return B_(sqrt)(x); }
TMPL_INLINE A f_rsqrt(A x) { return K_(1) / B_(sqrt)(x); }
TMPL_INLINE A f_reciprocal(A x) { return K_(1) / x; }
TMPL_INLINE A f_conj_physical(A x) { return x; }
TMPL_INLINE A f_lerp(A x, A end, A w) {
    return B_(fabs)(w) < K_(0.5) ? x + w * (end - x) : end - (end - x) * (K_(1) - w);
}
TMPL_INLINE A f_addcmul(A x, A a, A b, A value) { return x + value * a * b; }
TMPL_INLINE A f_addcdiv(A x, A a, A b, A value) { return x + value * (a / b); }

TMPL_INLINE A f_sign(A x) { return (A)((x > 0) - (x < 0)); }
TMPL_INLINE A f_sgn(A x) { return f_sign(x); }
TMPL_INLINE A f_angle(A x) { return x != x ? x : x < 0 ? K_(0x1.921fb54442d18p+1) : K_(0); }

/* ---- Rounding, division with remainder --------------------------------------------------------- */
TMPL_INLINE A f_floor(A x) { return B_(floor)(x); }
TMPL_INLINE A f_ceil(A x) { return B_(ceil)(x); }
TMPL_INLINE A f_trunc(A x) { return B_(trunc)(x); }
TMPL_INLINE A f_frac(A x) { return x - B_(trunc)(x); }
TMPL_INLINE A f__trunc_divide(A x, A y) { return B_(trunc)(x / y); }

/* Ties to even: an instruction, or adding 2^(digits), which drops what stands behind the point. */
TMPL_INLINE A float_round_even(A x) {
#if TMPL_HAS_FMA
    return B_(rint)(x);
#else
    const A magic = TMPL_DTYPE == TMPL_F64 ? K_(0x1p52) : K_(0x1p23);
    A a = B_(fabs)(x), r = (a + magic) - magic;
    return a < magic ? B_(copysign)(r, x) : x;
#endif
}

TMPL_INLINE A f_round(A x, int64_t decimals) {
    A ten = C_(pow)(K_(10), decimals < 0 ? -(A)decimals : (A)decimals); /* once for a loop */
    if (decimals == 0) return float_round_even(x);
    if (decimals < 0) return float_round_even(x / ten) * ten;
    return float_round_even(x * ten) / ten;
}

/* What follows from r, what fmod leaves of x by y. */
TMPL_INLINE A float_remainder(A r, A y) {
    A other = r + y;
    return r != 0 && (r < 0) != (y < 0) ? other : r;
}

/* As Python's //: the quotient of what fmod leaves is exact but for one rounding. */
TMPL_INLINE A float_floor_divide(A r, A x, A y) {
    A q = (x - r) / y;
    q = r != 0 && (r < 0) != (y < 0) ? q - 1 : q;
    A whole = B_(floor)(q);
    whole = q - whole > K_(0.5) ? whole + 1 : whole;
    whole = q == 0 ? B_(copysign)(K_(0), x / y) : whole;
    return y == 0 ? x / y : whole;
}

TMPL_INLINE A f_fmod(A x, A y) { return ARC_(fmod)(x, y); }
TMPL_INLINE A f_remainder(A x, A y) { return float_remainder(ARC_(fmod)(x, y), y); }
TMPL_INLINE A f_floor_divide(A x, A y) { return float_floor_divide(ARC_(fmod)(x, y), x, y); }

/* ---- Elementary functions ----------------------------------------------------------------------*/
TMPL_INLINE A f_exp(A x) { return M_(exp)(x); }
TMPL_INLINE A f_exp2(A x) { return M_(exp2)(x); }
TMPL_INLINE A f_expm1(A x) { return M_(expm1)(x); }
TMPL_INLINE A f_log(A x) { return M_(log)(x); }
TMPL_INLINE A f_log2(A x) { return HALF_(log2, M_(log2))(x); }
TMPL_INLINE A f_log10(A x) { return HALF_(log10, M_(log10))(x); }
TMPL_INLINE A f_log1p(A x) { return M_(log1p)(x); }
TMPL_INLINE A f_sin(A x) { return HALF_(sin, M_(sin))(x); }
TMPL_INLINE A f_cos(A x) { return HALF_(cos, M_(cos))(x); }
TMPL_INLINE A f_tan(A x) { return M_(tan)(x); }
TMPL_INLINE A f_asin(A x) { return HALF_(asin, ARC_(asin))(x); }
TMPL_INLINE A f_acos(A x) { return HALF_(acos, ARC_(acos))(x); }
TMPL_INLINE A f_atan(A x) { return HALF_(atan, ARC_(atan))(x); }
TMPL_INLINE A f_atan2(A x, A y) { return ARC_(atan2)(x, y); }
TMPL_INLINE A f_sinh(A x) { return ARC_(sinh)(x); }
TMPL_INLINE A f_cosh(A x) { return ARC_(cosh)(x); }
TMPL_INLINE A f_tanh(A x) { return M_(tanh)(x); }
TMPL_INLINE A f_asinh(A x) { return ARC_(asinh)(x); }
TMPL_INLINE A f_acosh(A x) { return ARC_(acosh)(x); }
TMPL_INLINE A f_atanh(A x) { return ARC_(atanh)(x); }
TMPL_INLINE A f_erf(A x) { return M_(erf)(x); }
TMPL_INLINE A f_erfc(A x) { return M_(erfc)(x); }

TMPL_INLINE A f_pow(A x, A y) { return M_(pow)(x, y); }
TMPL_INLINE A f__pow_backward(A g, A x, A p) {
    return p == 0 ? K_(0) : g * (p * M_(pow)(x, p - 1));
}
TMPL_INLINE A f__mul_log(A a, A x) {
    A r = a * M_(log)(x);
    return x == 0 && B_(fabs)(a) <= K_(1e30) ? K_(0) : r;
}

/* The smaller one adds what is left of it beside the larger; infinities of one sign stay. */
TMPL_INLINE A f_logaddexp(A x, A y) {
    A most = x > y ? x : y, apart = B_(fabs)(x - y);
    return x == y && B_(fabs)(x) == (A)INFINITY ? x : most + M_(log1p)(M_(exp)(-apart));
}
TMPL_INLINE A f_logaddexp2(A x, A y) {
    A most = x > y ? x : y, apart = B_(fabs)(x - y);
    A rest = M_(log1p)(M_(exp2)(-apart)) * K_(0x1.71547652b82fep+0); /* 1 / ln 2 */
    return x == y && B_(fabs)(x) == (A)INFINITY ? x : most + rest;
}
TMPL_INLINE A f_xlogy(A x, A y) { return y != y ? y : x == 0 ? K_(0) : x * M_(log)(y); }

/* ---- Signs, exponents, neighbours --------------------------------------------------------------*/
TMPL_INLINE A f_copysign(A x, A y) { return B_(copysign)(x, y); }
TMPL_INLINE A f_hypot(A x, A y) { return ARC_(hypot)(x, y); }
TMPL_INLINE A f_heaviside(A x, A at) { return x == 0 ? at : (A)(x > 0); }

#if TMPL_DTYPE == TMPL_F64
typedef uint64_t float_bits_of;
#define FLOAT_BITS(x) tmpl_bits64(x)
#define FLOAT_OF(u) tmpl_double(u)
enum { FLOAT_DIGITS = 52, FLOAT_BIAS = 1022 };
#else
typedef uint32_t float_bits_of;
#define FLOAT_BITS(x) tmpl_bits32(x)
#define FLOAT_OF(u) tmpl_float(u)
enum { FLOAT_DIGITS = 23, FLOAT_BIAS = 126 };
#endif
#define FLOAT_SIGN ((float_bits_of)1 << (sizeof(float_bits_of) * 8 - 1))
/* Whole, with a normal exponent; 2^64 for what has none. */
TMPL_INLINE A float_lifted(A x) {
    const A least = FLOAT_OF((float_bits_of)1 << FLOAT_DIGITS);
    return B_(fabs)(x) < least ? x * K_(0x1p64) : x;
}
TMPL_INLINE A f__frexp_mantissa(A x) {
    const float_bits_of keep = FLOAT_SIGN | (((float_bits_of)1 << FLOAT_DIGITS) - 1);
    float_bits_of u = (FLOAT_BITS(float_lifted(x)) & keep) | (float_bits_of)FLOAT_BIAS
                                                                 << FLOAT_DIGITS;
    return x == 0 || !(B_(fabs)(x) < (A)INFINITY) ? x : FLOAT_OF(u);
}
TMPL_INLINE A f__frexp_exponent(A x) {
    const A magic = FLOAT_OF((float_bits_of)(FLOAT_BIAS + FLOAT_DIGITS + 1) << FLOAT_DIGITS);
    A y = float_lifted(x);
    /* The exponent in the last places of a number whose unit is 1. */
    float_bits_of field = (FLOAT_BITS(y) & ~FLOAT_SIGN) >> FLOAT_DIGITS;
    A e = (FLOAT_OF(FLOAT_BITS(magic) | field) - magic) - (y == x ? FLOAT_BIAS : FLOAT_BIAS + 64);
    return x == 0 || !(B_(fabs)(x) < (A)INFINITY) ? K_(0) : e;
}

/* The next number of the storage type: one step of its bits. */
TMPL_INLINE A f_nextafter(A x, A y) {
#if TMPL_IS_HALF
    T bits = STORE(x);
    if (x != x || y != y) return x + y;
    if (x == y) return y;
    if (x == 0) return B_(copysign)(LOAD((T)1), y);
    return LOAD((T)((x < y) == (x > 0) ? bits + 1 : bits - 1));
#else
    float_bits_of bits = FLOAT_BITS(x), step = (x < y) == (x > 0) ? bits + 1 : bits - 1;
    A r = x == 0 ? B_(copysign)(FLOAT_OF((float_bits_of)1), y) : FLOAT_OF(step);
    r = x == y ? y : r;
    return x != x || y != y ? x + y : r;
#endif
}

/* ---- Comparison, choice ------------------------------------------------------------------------*/
/* Of equal ones the first, whose sign a zero keeps. */
/* NaN if one is; a comparison with NaN is false. */
TMPL_INLINE A f_maximum(A x, A y) {
    A r = x < y ? y : x;
    return x == x && y != y ? y : r;
}
TMPL_INLINE A f_minimum(A x, A y) {
    A r = x > y ? y : x;
    return x == x && y != y ? y : r;
}
TMPL_INLINE A f_fmax(A x, A y) { return x < y || x != x ? y : x; }
TMPL_INLINE A f_fmin(A x, A y) { return x > y || x != x ? y : x; }
TMPL_INLINE A f__maximum_backward(A g, A x, A y) {
    return x == y ? g * K_(0.5) : x < y ? K_(0) : g;
}
TMPL_INLINE A f_clamp_min(A x, A low) { return f_maximum(x, low); }
TMPL_INLINE A f_clamp_max(A x, A high) { return f_minimum(x, high); }
/* In the order of operands in which a comparison and a choice are one instruction. */
TMPL_INLINE A f__clamp(A x, A low, A high) {
    A r = low > x ? low : x;
    r = high < r ? high : r;
    return (low != low) | (high != high) ? low + high : r;
}
TMPL_INLINE A f__clamp_backward(A g, A x, A low, A high) {
    return x >= low && x <= high ? g : K_(0);
}
TMPL_INLINE uint8_t f_isnan(A x) { return x != x; }
TMPL_INLINE uint8_t f_isinf(A x) { return B_(fabs)(x) == (A)INFINITY; }
TMPL_INLINE uint8_t f_isfinite(A x) { return B_(fabs)(x) < (A)INFINITY; }
TMPL_INLINE uint8_t f_isclose(A x, A y, A rtol, A atol, int64_t equal_nan) {
    A d = B_(fabs)(x - y);
    uint8_t both = (uint8_t)((x != x) & (y != y) & (equal_nan != 0));
    uint8_t near = (uint8_t)((d <= atol + rtol * B_(fabs)(y)) & (d < (A)INFINITY));
    return (uint8_t)((x == y) | near | both);
}

/* The largest number of the storage type stands in for an infinity that would not fit. */
TMPL_INLINE A f__nan_to_num(A x, A nan, A posinf, A neginf) {
    A r = x > 0 ? posinf : neginf;
    r = B_(fabs)(x) == (A)INFINITY ? r : x;
    return x != x ? nan : r;
}

/* ---- Activations -------------------------------------------------------------------------------*/
TMPL_INLINE A f_sigmoid(A x) { return M_(sigmoid)(x); }
TMPL_INLINE A f__sigmoid_backward(A g, A y) { return g * ((K_(1) - y) * y); }
TMPL_INLINE A f__tanh_backward(A g, A y) { return g * (K_(1) - y * y); }
TMPL_INLINE A f__tanh_step(A x, A h) { return M_(tanh)(x + h); }
TMPL_INLINE A f_relu(A x) { return x < 0 ? K_(0) : x; }
TMPL_INLINE A f__relu_step(A x, A h) { return f_relu(x + h); }
TMPL_INLINE A f__relu_backward(A g, A y) { return y <= 0 ? K_(0) : g; }
TMPL_INLINE A f_threshold(A x, A t, A v) { return x <= t ? v : x; }
TMPL_INLINE A f__threshold_backward(A g, A x, A t) { return x <= t ? K_(0) : g; }
TMPL_INLINE A f__masked_scale(A x, uint8_t keep, A scale) { return x * (keep ? scale : K_(0)); }
TMPL_INLINE A f__prelu(A x, A slope) { return x > 0 ? x : x * slope; }
TMPL_INLINE A f_leaky_relu(A x, A slope) { return x > 0 ? x : x * slope; }
TMPL_INLINE A f__leaky_relu_backward(A g, A x, A slope) { return x > 0 ? g : g * slope; }
TMPL_INLINE A f_elu(A x, A alpha) { return x > 0 ? x : alpha * M_(expm1)(x); }
TMPL_INLINE A f__elu_backward(A g, A x, A alpha) { return x <= 0 ? g * alpha * M_(exp)(x) : g; }
TMPL_INLINE A f_celu(A x, A alpha) { return x > 0 ? x : alpha * M_(expm1)(x / alpha); }
TMPL_INLINE A f__gelu(A x) { return M_(gelu)(x); }
TMPL_INLINE A f__gelu_backward(A g, A x) { return g * M_(gelu_slope)(x); }

#define GELU_K K_(0x1.9884533d43651p-1) /* sqrt(2 / pi) */
#define GELU_C K_(0.044715)
/* 0.5 * (1 + tanh(u)) is the sigmoid of 2 u. */
TMPL_INLINE A f__gelu_tanh(A x) {
    return x * M_(sigmoid)(K_(2) * GELU_K * (x + GELU_C * x * x * x));
}
TMPL_INLINE A f__gelu_tanh_backward(A g, A x) {
    A s = M_(sigmoid)(K_(2) * GELU_K * (x + GELU_C * x * x * x));
    A du = K_(2) * GELU_K * (K_(1) + K_(3) * GELU_C * x * x);
    return g * (s + x * s * (K_(1) - s) * du);
}
TMPL_INLINE A f__gelu_tanh_curve(A x) {
    A s = M_(sigmoid)(K_(2) * GELU_K * (x + GELU_C * x * x * x));
    A du = K_(2) * GELU_K * (K_(1) + K_(3) * GELU_C * x * x);
    A ddu = K_(12) * GELU_K * GELU_C * x, ds = s * (K_(1) - s);
    return ds * (K_(2) * du + x * ddu + x * du * du * (K_(1) - K_(2) * s));
}

TMPL_INLINE A f_silu(A x) { return x * M_(sigmoid)(x); }
TMPL_INLINE A f__silu_backward(A g, A x) {
    A s = M_(sigmoid)(x);
    return g * (s * (K_(1) + x * (K_(1) - s)));
}
TMPL_INLINE A float_softplus(A z) { return (z > 0 ? z : K_(0)) + M_(log1p)(M_(exp)(-B_(fabs)(z))); }
TMPL_INLINE A f_mish(A x) { return x * M_(tanh)(float_softplus(x)); }
TMPL_INLINE A f__mish_backward(A g, A x) {
    A t = M_(tanh)(float_softplus(x));
    return g * (t + x * M_(sigmoid)(x) * (K_(1) - t * t));
}
TMPL_INLINE A f_softplus(A x, A beta, A threshold) {
    A z = x * beta;
    return z > threshold ? x : float_softplus(z) / beta;
}
TMPL_INLINE A f__softplus_backward(A g, A x, A beta, A threshold) {
    A z = x * beta;
    return z > threshold ? g : g * M_(sigmoid)(z);
}
TMPL_INLINE A f_log_sigmoid(A x) { return (x < 0 ? x : K_(0)) - M_(log1p)(M_(exp)(-B_(fabs)(x))); }
TMPL_INLINE A f_hardtanh(A x, A low, A high) { return x < low ? low : x > high ? high : x; }
TMPL_INLINE A f__hardtanh_backward(A g, A x, A low, A high) {
    return x <= low || x >= high ? K_(0) : g;
}
/* The whole number that stands for x on a grid; NaN counts as the lowest. */
TMPL_INLINE A f_grid_number(A x, A scale, A zero) {
    return float_round_even(x * (K_(1) / scale)) + zero;
}
TMPL_INLINE A f__fake_quantize(A x, A scale, A zero, A low, A high) {
    A q = f_grid_number(x, scale, zero);
    return ((q > low ? q < high ? q : high : low) - zero) * scale;
}
TMPL_INLINE A f__fake_quantize_backward(A g, A x, A scale, A zero, A low, A high) {
    A q = f_grid_number(x, scale, zero);
    return q >= low && q <= high ? g : 0;
}
TMPL_INLINE A f_hardsigmoid(A x) { return f_hardtanh(x + 3, K_(0), K_(6)) / K_(6); }
TMPL_INLINE A f_hardswish(A x) { return x * f_hardtanh(x + 3, K_(0), K_(6)) / K_(6); }
TMPL_INLINE A f__hardswish_backward(A g, A x) {
    return x <= -3 ? K_(0) : x < 3 ? g * (x / K_(3) + K_(0.5)) : g;
}
TMPL_INLINE A f_hardshrink(A x, A l) {
    l = LOAD(STORE(l)); /* the border is a number of the dtype: an element equal to it is dropped */
    return x >= -l && x <= l ? K_(0) : x;
}
TMPL_INLINE A f_softshrink(A x, A l) { return x > l ? x - l : x < -l ? x + l : x * K_(0); }

#endif
