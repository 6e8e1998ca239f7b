/* complex_math.h: elementary functions of complex numbers for CUDA C, under the names of C's. Included by
 * scalar_complex.h, whose C_ and CR_ name functions of A and of RA. Inverse functions are Kahan's ("Branch
 * cuts for complex elementary functions", 1987). */
#ifndef COMPLEX_MATH_H
#define COMPLEX_MATH_H

#include <math.h>

#include "tmpl.h"

TMPL_INLINE bool complex_is_infinite(RA x) { return CR_(fabs)(x) == (RA)INFINITY; }
TMPL_INLINE A complex_times_i(A z) { return A(-z.im, z.re); }
TMPL_INLINE A complex_over_i(A z) { return A(z.im, -z.re); }

TMPL_INLINE RA C_(cabs)(A z) { return CR_(hypot)(z.re, z.im); }
TMPL_INLINE RA C_(carg)(A z) { return CR_(atan2)(z.im, z.re); }

TMPL_INLINE A C_(csqrt)(A z) {
    RA a = CR_(fabs)(z.re), b = CR_(fabs)(z.im), scale = 1;
    if (a == 0 && b == 0) return A(0, z.im);
    if (complex_is_infinite(z.im)) return A((RA)INFINITY, z.im);
    if (complex_is_infinite(z.re))
        return z.re > 0 ? A(z.re, z.im == z.im ? CR_(copysign)((RA)0, z.im) : z.im)
                        : A(z.im == z.im ? (RA)0 : z.im, CR_(copysign)(z.re, z.im));
    if (a > (RA)1e30 || b > (RA)1e30) { /* the sum below shall not overflow */
        a = a / 4;
        b = b / 4;
        scale = 2;
    }
    RA root = CR_(sqrt)((a + CR_(hypot)(a, b)) / 2), other = b / (2 * root);
    return z.re >= 0 ? A(scale * root, CR_(copysign)(scale * other, z.im))
                     : A(scale * other, CR_(copysign)(scale * root, z.im));
}

/* A part that is 0 stays 0, whatever the other one. */
TMPL_INLINE A C_(cexp)(A z) {
    RA e = CR_(exp)(z.re);
    if (z.im == 0) return A(e, z.im);
    if (e == 0 && !(z.im - z.im == 0)) return A(0, 0);
    return A(e * CR_(cos)(z.im), e * CR_(sin)(z.im));
}

/* |z| squared less 1 is (a - 1)(a + 1) + b b, which keeps what is near the unit circle. */
TMPL_INLINE A C_(clog)(A z) {
    RA x = CR_(fabs)(z.re), y = CR_(fabs)(z.im), a = x > y ? x : y, b = x > y ? y : x;
    bool near = a > (RA)0.5 && a < (RA)2;
    RA size = near ? CR_(log1p)((a - 1) * (a + 1) + b * b) / 2 : CR_(log)(CR_(hypot)(x, y));
    return A(size, CR_(atan2)(z.im, z.re));
}

TMPL_INLINE A C_(cpow)(A x, A y) {
    A l = C_(clog)(x);
    return C_(cexp)(A(y.re * l.re - y.im * l.im, y.re * l.im + y.im * l.re));
}

TMPL_INLINE A C_(csinh)(A z) {
    if (z.im == 0) return A(CR_(sinh)(z.re), z.im);
    return A(CR_(sinh)(z.re) * CR_(cos)(z.im), CR_(cosh)(z.re) * CR_(sin)(z.im));
}
TMPL_INLINE A C_(ccosh)(A z) {
    if (z.im == 0) return A(CR_(cosh)(z.re), z.re * z.im);
    return A(CR_(cosh)(z.re) * CR_(cos)(z.im), CR_(sinh)(z.re) * CR_(sin)(z.im));
}
TMPL_INLINE A C_(ctanh)(A z) {
    if (CR_(fabs)(z.re) > 20) { /* 1 in every digit */
        RA small = 4 * CR_(exp)(-2 * CR_(fabs)(z.re));
        RA wave = z.im - z.im == 0 ? CR_(sin)(z.im) * CR_(cos)(z.im) : (RA)0;
        return A(CR_(copysign)((RA)1, z.re), small * wave);
    }
    RA t = CR_(tan)(z.im), beta = 1 + t * t, s = CR_(sinh)(z.re), rho = CR_(sqrt)(1 + s * s);
    RA under = 1 + beta * s * s;
    return complex_is_infinite(t) ? A(rho / s, 1 / t) : A(beta * rho * s / under, t / under);
}
TMPL_INLINE A C_(csin)(A z) { return complex_over_i(C_(csinh)(complex_times_i(z))); }
TMPL_INLINE A C_(ccos)(A z) { return C_(ccosh)(complex_times_i(z)); }
TMPL_INLINE A C_(ctan)(A z) { return complex_over_i(C_(ctanh)(complex_times_i(z))); }

/* The imaginary part of conj(a) * b. */
TMPL_INLINE RA complex_cross(A a, A b) { return a.re * b.im - a.im * b.re; }

TMPL_INLINE A C_(casin)(A z) {
    A minus = C_(csqrt)(1 - z), plus = C_(csqrt)(1 + z);
    return A(CR_(atan2)(z.re, minus.re * plus.re - minus.im * plus.im),
             CR_(asinh)(complex_cross(minus, plus)));
}
TMPL_INLINE A C_(cacos)(A z) {
    A minus = C_(csqrt)(1 - z), plus = C_(csqrt)(1 + z);
    return A(2 * CR_(atan2)(minus.re, plus.re), CR_(asinh)(complex_cross(plus, minus)));
}
TMPL_INLINE A C_(cacosh)(A z) {
    A minus = C_(csqrt)(z - 1), plus = C_(csqrt)(z + 1);
    return A(CR_(asinh)(minus.re * plus.re + minus.im * plus.im),
             2 * CR_(atan2)(minus.im, plus.re));
}
TMPL_INLINE A C_(casinh)(A z) { return complex_over_i(C_(casin)(complex_times_i(z))); }

TMPL_INLINE A C_(catanh)(A z) {
    RA a = CR_(fabs)(z.re), b = z.im, size = CR_(hypot)(a, b);
    if (size > (RA)1e15) { /* far away only the angle is left */
        RA quarter = (RA)1.57079632679489661923;
        return A(CR_(copysign)(a / size / size, z.re), CR_(copysign)(quarter, b));
    }
    RA re = CR_(log1p)(4 * a / ((1 - a) * (1 - a) + b * b)) / 4;
    return A(CR_(copysign)(re, z.re), CR_(atan2)(2 * b, (1 - a) * (1 + a) - b * b) / 2);
}
TMPL_INLINE A C_(catan)(A z) { return complex_over_i(C_(catanh)(complex_times_i(z))); }

#endif
