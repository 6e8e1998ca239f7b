/* scalar_int.h: pointwise formulas of bool and the integer types. Arithmetic wraps; it is done in an
 * unsigned type that is at least 32 bits wide, where that is defined. A zero divisor yields 0 here:
 * the kernels find it beforehand and report it. */
#ifndef SCALAR_INT_H
#define SCALAR_INT_H

#include <math.h>

#include "tmpl.h"

#if TMPL_DTYPE == TMPL_I64
typedef uint64_t U;
#else
typedef uint32_t U;
#endif
#define INT_BITS ((int)sizeof(A) * 8)
#define INT_SIGNED (TMPL_DTYPE != TMPL_U8 && TMPL_DTYPE != TMPL_BOOL)
#if INT_SIGNED
#define INT_NEGATIVE(x) ((x) < 0)
#else
#define INT_NEGATIVE(x) 0
#endif

TMPL_INLINE uint8_t f_isnan(A x) { return (uint8_t)(x & 0); }
TMPL_INLINE uint8_t f_isinf(A x) { return (uint8_t)(x & 0); }
TMPL_INLINE uint8_t f_isfinite(A x) { return (uint8_t)(1 | (x & 0)); }
TMPL_INLINE A f_maximum(A x, A y) { return x > y ? x : y; }
TMPL_INLINE A f_minimum(A x, A y) { return x < y ? x : y; }
TMPL_INLINE A f_clamp_min(A x, A low) { return f_maximum(x, low); }
TMPL_INLINE A f_clamp_max(A x, A high) { return f_minimum(x, high); }
TMPL_INLINE A f_fmax(A x, A y) { return f_maximum(x, y); }
TMPL_INLINE A f_fmin(A x, A y) { return f_minimum(x, y); }
TMPL_INLINE A f_conj_physical(A x) { return x; }
TMPL_INLINE A f_heaviside(A x, A at) { return x == 0 ? at : (A)(x > 0); }
TMPL_INLINE A f_bitwise_and(A x, A y) { return (A)(x & y); }
TMPL_INLINE A f_bitwise_or(A x, A y) { return (A)(x | y); }
TMPL_INLINE A f_bitwise_xor(A x, A y) { return (A)(x ^ y); }
TMPL_INLINE uint8_t f_isclose(A x, A y, double rtol, double atol, int64_t equal_nan) {
    (void)equal_nan;
    return fabs((double)x - (double)y) <= atol + rtol * fabs((double)y);
}
TMPL_INLINE A f__nan_to_num(A x, double nan, double posinf, double neginf) {
    (void)nan;
    (void)posinf;
    (void)neginf;
    return x;
}

#if TMPL_IS_BOOL
TMPL_INLINE A f_add(A x, A y, A alpha) { return (A)(x | (y & alpha)); }
TMPL_INLINE A f_mul(A x, A y) { return (A)(x & y); }
TMPL_INLINE A f__mul_conj(A x, A y) { return (A)(x & y); }
TMPL_INLINE A f_sign(A x) { return x; }
TMPL_INLINE A f_sgn(A x) { return x; }
TMPL_INLINE A f_bitwise_not(A x) { return x == 0; }
#else

/* ---- Arithmetic --------------------------------------------------------------------------------*/
TMPL_INLINE A f_add(A x, A y, A alpha) { return (A)((U)x + (U)alpha * (U)y); }
TMPL_INLINE A f_sub(A x, A y, A alpha) { return (A)((U)x - (U)alpha * (U)y); }
TMPL_INLINE A f_rsub(A x, A y, A alpha) { return (A)((U)y - (U)alpha * (U)x); }
TMPL_INLINE A f_mul(A x, A y) { return (A)((U)x * (U)y); }
TMPL_INLINE A f__mul_conj(A x, A y) { return f_mul(x, y); }
TMPL_INLINE A f__scale_conj(A x, A factor) { return f_mul(x, factor); }
TMPL_INLINE A f_neg(A x) { return (A)((U)0 - (U)x); }
TMPL_INLINE A f_abs(A x) { return INT_NEGATIVE(x) ? f_neg(x) : x; }
TMPL_INLINE A f_square(A x) { return f_mul(x, x); }
TMPL_INLINE A f_sign(A x) { return (A)((x > 0) - INT_NEGATIVE(x)); }
TMPL_INLINE A f_sgn(A x) { return f_sign(x); }
TMPL_INLINE A f_addcmul(A x, A a, A b, A value) { return (A)((U)x + (U)value * (U)a * (U)b); }
TMPL_INLINE A f_floor(A x) { return x; }
TMPL_INLINE A f_ceil(A x) { return x; }
TMPL_INLINE A f_trunc(A x) { return x; }
TMPL_INLINE A f_bitwise_not(A x) { return (A)~x; }
TMPL_INLINE A f_relu(A x) { return INT_NEGATIVE(x) ? 0 : x; }
TMPL_INLINE A f_threshold(A x, A t, A v) { return x <= t ? v : x; }
TMPL_INLINE A f__clamp(A x, A low, A high) { return f_minimum(f_maximum(x, low), high); }
TMPL_INLINE A f_hardtanh(A x, A low, A high) { return f__clamp(x, low, high); }

/* Digits in front of the point: halves go to the even multiple. */
TMPL_INLINE A f_round(A x, int64_t decimals) {
    if (decimals >= 0) return x;
    double ten = pow(10.0, (double)-decimals);
    return (A)(int64_t)(nearbyint((double)x / ten) * ten);
}

/* ---- Division ----------------------------------------------------------------------------------
 * The least value divided by -1 wraps to itself, as its negation does. */
TMPL_INLINE A int_divide(A x, A y) {
    if (y == 0) return 0;
    return INT_SIGNED && y == (A)-1 ? f_neg(x) : (A)(x / y);
}

/* CPUs divide vectors of floating numbers, not of whole ones. A quotient that is no whole number is
 * further from the next one than rounding goes, where the type has 22 digits more than x; of 64 bits
 * that is so for what INT_FAR leaves, and map_tmpl.h sees to the others. */
#if defined(TMPL_CUDA)
#define INT_FAR(x, y) false
TMPL_INLINE A f__trunc_divide(A x, A y) { return int_divide(x, y); }
#elif TMPL_DTYPE == TMPL_I64
#define INT_FAR_BIAS (UINT64_C(1) << 51)
#define INT_FAR(x, y) ((((U)(x) + INT_FAR_BIAS) | ((U)(y) + INT_FAR_BIAS)) >> 52 != 0)
/* Conversions that vectors have: by the last places of a double of 52 bits. */
TMPL_INLINE double int_to_double(A x) {
    return tmpl_double((U)x + tmpl_bits64(0x1.8p52)) - 0x1.8p52;
}
TMPL_INLINE A int_from_double(double x) {
    return (A)(tmpl_bits64(x + 0x1.8p52) - tmpl_bits64(0x1.8p52));
}
TMPL_INLINE double int_quotient(double a, double b) { return a / (b == 0.0 ? 1.0 : b); }
TMPL_INLINE double int_floor_of(double q) {
#if TMPL_HAS_FMA
    return TMPL_BUILTIN(floor)(q);
#else
    double r = (q + 0x1.8p52) - 0x1.8p52;
    return r > q ? r - 1.0 : r;
#endif
}
TMPL_INLINE double int_trunc_of(double q) {
    double r = int_floor_of(TMPL_BUILTIN(fabs)(q));
    return q < 0.0 ? -r : r;
}
TMPL_INLINE A f__trunc_divide(A x, A y) {
    double a = int_to_double(x), b = int_to_double(y), q = int_trunc_of(int_quotient(a, b));
    return int_from_double(b == 0.0 ? 0.0 : q);
}
TMPL_INLINE A f_floor_divide(A x, A y) {
    double a = int_to_double(x), b = int_to_double(y), q = int_floor_of(int_quotient(a, b));
    return int_from_double(b == 0.0 ? 0.0 : q);
}
/* Products of quotients and divisors are whole and below 2^53. */
TMPL_INLINE A f_fmod(A x, A y) {
    double a = int_to_double(x), b = int_to_double(y), r = a - int_trunc_of(int_quotient(a, b)) * b;
    return int_from_double(b == 0.0 ? 0.0 : r);
}
TMPL_INLINE A f_remainder(A x, A y) {
    double a = int_to_double(x), b = int_to_double(y), r = a - int_floor_of(int_quotient(a, b)) * b;
    return int_from_double(b == 0.0 ? 0.0 : r);
}
#elif TMPL_DTYPE == TMPL_I32
#define INT_FAR(x, y) false
TMPL_INLINE A f__trunc_divide(A x, A y) {
    double q = (double)x / (y == 0 ? 1.0 : (double)y);
    A r = (A)(q > (double)INT32_MAX ? (double)INT32_MIN : q);
    return y == 0 ? 0 : r;
}
#else
#define INT_FAR(x, y) false
TMPL_INLINE A f__trunc_divide(A x, A y) {
    A r = (A)(int32_t)((float)x / (y == 0 ? 1.0f : (float)y));
    return y == 0 ? 0 : r;
}
#endif
/* What follows from r, what fmod leaves, and the quotient q that was cut. */
TMPL_INLINE A int_remainder(A r, A y) {
    return r != 0 && INT_NEGATIVE(r) != INT_NEGATIVE(y) ? (A)(r + y) : r;
}
TMPL_INLINE A int_floor(A q, A r, A y) {
    (void)y; /* whole numbers without a sign have none to ask for */
    return r != 0 && INT_NEGATIVE(r) != INT_NEGATIVE(y) ? (A)(q - 1) : q;
}
#if TMPL_DTYPE != TMPL_I64 || defined(TMPL_CUDA)
TMPL_INLINE A f_fmod(A x, A y) {
    A r = (A)((U)x - (U)f__trunc_divide(x, y) * (U)y);
    return y == 0 ? 0 : r;
}
TMPL_INLINE A f_remainder(A x, A y) { return int_remainder(f_fmod(x, y), y); }
TMPL_INLINE A f_floor_divide(A x, A y) {
    A q = f__trunc_divide(x, y);
    return int_floor(q, y == 0 ? 0 : (A)((U)x - (U)q * (U)y), y);
}
#endif

/* Squaring; a negative exponent leaves 0 unless the base is 1 or -1. */
TMPL_INLINE A f_pow(A x, A y) {
    U base = (U)x, r = 1;
    if (INT_NEGATIVE(y)) {
        bool odd = y & 1;
        return x == 1 ? 1 : INT_SIGNED && x == (A)-1 ? (A)(odd ? -1 : 1) : 0;
    }
    for (; y > 0; y = (A)(y >> 1)) {
        if (y & 1) r *= base;
        base *= base;
    }
    return (A)r;
}

/* Euclid's algorithm on absolute values. */
TMPL_INLINE A f_gcd(A x, A y) {
    U a = (U)f_abs(x), b = (U)f_abs(y);
    while (b != 0) {
        U r = a % b;
        a = b;
        b = r;
    }
    return (A)a;
}
/* The sign goes last, as PyTorch has it where the product does not fit: from an int of small dtypes. */
TMPL_INLINE A f_lcm(A x, A y) {
    A g = f_gcd(x, y);
    if (g == 0) return 0;
    if (sizeof(A) >= sizeof(int32_t)) return f_abs((A)((U)int_divide(x, g) * (U)y));
    int64_t all = (int64_t)int_divide(x, g) * (int64_t)y;
    return (A)(all < 0 ? -all : all);
}

/* ---- Shifts ------------------------------------------------------------------------------------
 * By the width or more, or by a negative count, all bits leave. */
TMPL_INLINE A f_bitwise_left_shift(A x, A n) {
    bool all = INT_NEGATIVE(n) || n >= INT_BITS;
    return all ? 0 : (A)((U)x << (all ? 0 : n));
}
TMPL_INLINE A f_bitwise_right_shift(A x, A n) {
    bool all = INT_NEGATIVE(n) || n >= INT_BITS;
    return (A)(x >> (all ? INT_BITS - 1 : n)) * (A)(INT_SIGNED || !all);
}
#endif

#endif
