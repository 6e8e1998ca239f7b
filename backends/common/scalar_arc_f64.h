/* scalar_arc_f64.h: further elementary functions of double for loops that compilers vectorise: no
 * branches, no library calls. Included by scalar_f64.h, but not for a GPU, whose library has them. Largest
 * errors in units of the last place where products are fused: exp2, log1p, log2, log10, pow 0.9;
 * hypot, cosh 1.1; acos, asinh 1.5; asin, sinh, atan, atan2, atanh 2; tan 2.2; acosh 2.6; erfc, ndtr, gelu 6;
 * lgamma 5.5 right of 0. Angles beyond F64_ANGLE_MAX, remainders of far larger numbers and the left of lgamma go to
 * the C library (map_habits.h). Polynomials are fits at Chebyshev's points, of 45 digits. */
#ifndef SCALAR_ARC_F64_H
#define SCALAR_ARC_F64_H

#define F64_PI_4 0x1.921fb54442d18p-1
#define F64_PI_4_LOW 0x1.1a62633145c07p-55

/* ---- Exponentials ------------------------------------------------------------------------------*/

/* e^(hi + lo) * 2^more for hi in [-760, 760], lo small. */
TMPL_INLINE double f64_exp_times(double hi, double lo, int64_t more) {
    const double magic = 0x1.8p52;
    double t = hi * 0x1.71547652b82fep+0 + magic, k = t - magic;
    int64_t n = (int64_t)(tmpl_bits64(t) - tmpl_bits64(magic)) + more;
    double head = F64_FMA(k, -F64_LN2_HI, hi); /* exact */
    double tail = F64_FMA(k, -F64_LN2_LO, lo);
    double r = head + tail, lost = (head - r) + tail;
    double q = f64_exp_series(r);
    /* What rounding took from 1 + r would be most of the error. */
    double one = 1.0 + r, rest = (r - (one - 1.0)) + lost;
    return f64_scale(one + F64_FMA(r * r, q, rest), n);
}

/* e^(s * a * a) for s 1 or 0.5 or their negatives: the square is split so that its rounding does not
 * show. |s| a^2 may be 760 at most. */
TMPL_INLINE double f64_exp_square(double a, double s) {
    double head = tmpl_double(tmpl_bits64(a) & UINT64_C(0xfffffffff8000000)), tail = a - head;
    return f64_exp_times(s * head * head, s * tail * (a + head), 0);
}

TMPL_INLINE double f64_exp2(double x) {
    static const double c[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58fp-3,  0x1.c6b08d704a0c6p-5,
                               0x1.3b2ab6fba4e79p-7,  0x1.5d87fe78a3f9cp-10, 0x1.430912f86b7dbp-13,
                               0x1.ffcbfc6da6ed1p-17, 0x1.62c02242b879cp-20, 0x1.b524ebd13a55fp-24,
                               0x1.e4cf10dec0f59p-28, 0x1.e9ec1fcb69a7fp-32, 0x1.c4a29324a1038p-36};
    const double magic = 0x1.8p52;
    x = x < -1080.0 ? -1080.0 : x;
    x = x > 1025.0 ? 1025.0 : x;
    double t = x + magic, r = x - (t - magic);
    double y = F64_FMA(SERIES_POWERS(c, r), r, 1.0);
    return f64_scale(y, (int64_t)(tmpl_bits64(t) - tmpl_bits64(magic)));
}

/* e^a / 2 for a >= 0, which is finite where cosh is. */
TMPL_INLINE double f64_half_exp(double a) { return f64_exp_times(a > 715.0 ? 715.0 : a, 0.0, -1); }

TMPL_INLINE double f64_cosh(double x) {
    double e = f64_half_exp(f64_abs(x));
    return x != x ? x : e + 0.25 / e;
}

TMPL_INLINE double f64_sinh(double x) {
    static const double c[] = {0x1.5555555555555p-3,  0x1.1111111111111p-7,  0x1.a01a01a01a001p-13,
                               0x1.71de3a556f96cp-19, 0x1.ae6456792a77fp-26, 0x1.612467ccb2260p-33,
                               0x1.ae777c36fd5b6p-41, 0x1.99f0806c2628dp-49};
    double a = f64_abs(x), z = x * x, e = f64_half_exp(a);
    double small = x == 0.0 ? x : F64_FMA(x * z, SERIES_POWERS(c, z), x);
    double r = TMPL_BUILTIN(copysign)(e - 0.25 / e, x);
    r = a < 1.0 ? small : r;
    return x != x ? x : r;
}

/* ---- Logarithms --------------------------------------------------------------------------------*/

/* log(1 + f) in two parts for f in [sqrt(1/2) - 1, sqrt(2) - 1): the first has 21 bits, or f's size. */
TMPL_INLINE double f64_log_parts(double f, double *ret_low) {
    double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    double p = f64_log_series(z);
    double head = tmpl_double(tmpl_bits64(f - h) & UINT64_C(0xffffffff00000000));
    *ret_low = (f - head) - h + s * (h + p * z);
    return head;
}

/* log(x) / log(base), where 1 / log(base) is `turn` + `turn_low` and log(2) / log(base) `two` +
 * `two_low`, whose first parts have few bits. */
TMPL_INLINE double f64_log_base(double x, double turn, double turn_low, double two,
                                double two_low) {
    bool tiny = x < 0x1p-1022;
    double e, low, f = f64_split(tiny ? x * 0x1p54 : x, &e), head = f64_log_parts(f, &low);
    e -= tiny ? 54.0 : 0.0;
    double most = head * turn, rest = (low + head) * turn_low + low * turn, at = e * two;
    double sum = at + most;
    rest += (at - sum) + most;
    return f64_log_ends(x, sum + F64_FMA(e, two_low, rest));
}

TMPL_INLINE double f64_log2(double x) {
    return f64_log_base(x, 0x1.7154765200000p+0, 0x1.705fc2eefa200p-33, 1.0, 0.0);
}

TMPL_INLINE double f64_log10(double x) {
    return f64_log_base(x, 0x1.bcb7b15200000p-2, 0x1.b9438ca9aadd5p-36, 0x1.34413509f6000p-2,
                        0x1.9fef311f12b36p-42);
}

/* What rounding took from 1 + x counts as much less as the sum is larger than its fraction. */
TMPL_INLINE double f64_log1p(double x) {
    double u = 1.0 + x, lost = x - (u - 1.0), e, f = f64_split(u, &e);
    double part = tmpl_double((uint64_t)(1023 - (int64_t)(e > 100.0 ? 0.0 : e)) << 52);
    lost = e > 100.0 ? 0.0 : lost * part;
    double near = f + lost, low = lost - (near - f);
    double s = near / (2.0 + near), z = s * s, h = 0.5 * near * near;
    double p = f64_log_series(z);
    low = F64_FMA(e, F64_LN2_LO, s * (h + p * z) + low);
    double r = f64_log_ends(u, F64_FMA(e, F64_LN2_HI, near - (h - low)));
    return x == 0.0 ? x : r;
}

/* ---- Powers ------------------------------------------------------------------------------------*/

#if TMPL_HAS_FMA
/* Note [Powers]
 * The logarithm is needed to 65 bits, since the exponential multiplies its error by up to 745. With
 * s = f / (2 + f) it is 2 s + s z (2/3 + z q(z)), z = s s, where all but q comes in two parts. */
TMPL_INLINE double f64_log_long(double x, double *ret_low) {
    static const double c[] = {0x1.999999999999ap-2, 0x1.2492492492522p-2, 0x1.c71c71c6ea871p-3,
                               0x1.745d177aad02ap-3, 0x1.3b1395c881220p-3, 0x1.1118c9ee5b8a4p-3,
                               0x1.df7c5bc7c7563p-4, 0x1.e032e4d8436a1p-4};
    bool tiny = x < 0x1p-1022;
    double e, f = f64_split(tiny ? x * 0x1p54 : x, &e);
    e -= tiny ? 54.0 : 0.0;
    double g = 2.0 + f, inverse = 1.0 / g, s = f * inverse;
    double s_low = (F64_FMA(-s, g, f) - s * (f - (g - 2.0))) * inverse;
    double z = s * s, z_low = F64_FMA(s, s, -z) + 2.0 * s * s_low;
    double u = z * SERIES_POWERS(c, z), third = 0x1.5555555555555p-1 + u;
    double third_low = ((0x1.5555555555555p-1 - third) + u) + 0x1.5555555555555p-55;
    double w = z * third, w_low = F64_FMA(z, third, -w) + (z * third_low + z_low * third);
    double v = s * w, v_low = F64_FMA(s, w, -v) + (s * w_low + s_low * w);
    double at = e * F64_LN2_HI, twice = s + s, sum = at + twice, low = (at - sum) + twice;
    double all = sum + v;
    low += ((sum - all) + v) + (F64_FMA(e, F64_LN2_LO, v_low) + 2.0 * s_low);
    double head = all + low;
    *ret_low = (all - head) + low;
    return head;
}

TMPL_INLINE double f64_pow(double x, double y) {
    const double endless = (double)INFINITY;
    double m = f64_abs(x), low, head = f64_log_long(m, &low), half = 0.5 * y;
    double b = y > 0x1p66 ? 0x1p66 : y < -0x1p66 ? -0x1p66 : y;
    double hi = b * head, lo = F64_FMA(b, head, -hi) + b * low;
    lo = f64_abs(hi) > 750.0 ? 0.0 : lo;
    hi = hi > 750.0 ? 750.0 : hi < -750.0 ? -750.0 : hi;
    double r = f64_exp_times(hi, lo, 0);
    r = m == 0.0 ? (y > 0.0 ? 0.0 : endless) : r;
    r = m == endless ? (y > 0.0 ? endless : 0.0) : r;
    double whole = TMPL_BUILTIN(floor)(y);
    double odd = whole == y ? half - TMPL_BUILTIN(floor)(half) : 0.0; /* 0.5 or 0 */
    /* A negative base, -0 included, gives an odd power its sign. */
    uint64_t sign = tmpl_bits64(odd == 0.5 ? x : 0.0) & (UINT64_C(1) << 63);
    r = tmpl_double(tmpl_bits64(r) | sign);
    double part = whole == y || x == -endless ? r : (double)NAN;
    r = x < 0.0 ? part : r;
    r = x != x ? x : r;
    r = y != y ? y : r;
    return x == 1.0 || y == 0.0 ? 1.0 : r;
}
#else
TMPL_INLINE double f64_pow(double x, double y) { return pow(x, y); }
#endif

/* The larger side becomes a number near 1, so that no square leaves the range. */
TMPL_INLINE double f64_hypot(double x, double y) {
    double a = f64_abs(x), b = f64_abs(y), most = a > b ? a : b;
    int64_t e = (int64_t)(tmpl_bits64(most) >> 52);
    e = e > 2044 ? 2044 : e < 1 ? 1 : e;
    double down = tmpl_double((uint64_t)(2046 - e) << 52), up = tmpl_double((uint64_t)e << 52);
    double p = a * down, q = b * down;
    double r = TMPL_BUILTIN(sqrt)(F64_FMA(p, p, q * q)) * up;
    r = x != x || y != y ? x + y : r;
    return a == (double)INFINITY || b == (double)INFINITY ? (double)INFINITY : r;
}

#if TMPL_HAS_FMA
/* Whether f64_fmod does not serve: what is left is exact while the quotient has fewer than 52 bits. */
TMPL_INLINE bool f64_fmod_far(double x, double y) {
    return y != 0.0 && !(f64_abs(x) < 0x1p51 * f64_abs(y));
}

/* Where rounding made the quotient too large, once more of y is left than nothing. A NaN among the
 * operands, no divisor and an infinite x leave NaN by themselves: a test would keep compilers from vectors. */
TMPL_INLINE double f64_fmod(double x, double y) {
    double a = f64_abs(x), b = f64_abs(y);
    double r = F64_FMA(-TMPL_BUILTIN(trunc)(a / b), b, a);
    r = r < 0.0 ? r + b : r;
    r = b > 0x1.fffffffffffffp1023 && a <= 0x1.fffffffffffffp1023 ? a : r;
    return TMPL_BUILTIN(copysign)(r, x);
}
#else
TMPL_INLINE double f64_fmod(double x, double y) { return fmod(x, y); }
#endif

/* ---- Inverse functions -------------------------------------------------------------------------*/

TMPL_INLINE double f64_asinh(double x) {
    double a = f64_abs(x), b = a > 0x1p500 ? 0x1p500 : a;
    double r = f64_log1p(b + b * b / (1.0 + TMPL_BUILTIN(sqrt)(F64_FMA(b, b, 1.0))));
    double far = f64_log(a) + 0x1.62e42fefa39efp-1;
    r = a > 0x1p500 ? far : r;
    return x == 0.0 || x != x ? x : TMPL_BUILTIN(copysign)(r, x);
}

TMPL_INLINE double f64_acosh(double x) {
    double t = x - 1.0, b = x > 0x1p500 ? 1.0 : t;
    double r = f64_log1p(b + TMPL_BUILTIN(sqrt)(b * (b + 2.0)));
    r = x > 0x1p500 ? f64_log(x) + 0x1.62e42fefa39efp-1 : r;
    return x < 1.0 ? (double)NAN : r;
}

TMPL_INLINE double f64_atanh(double x) {
    double a = f64_abs(x), r = 0.5 * f64_log1p(2.0 * a / (1.0 - a));
    r = a > 1.0 ? (double)NAN : r;
    return x == 0.0 || x != x ? x : TMPL_BUILTIN(copysign)(r, x);
}

/* (asin(s) - s) / s for s in [-1/2, 1/2]. */
TMPL_INLINE double f64_asin_rest(double z) {
    static const double c[] = {0x1.5555555555556p-3, 0x1.3333333332ecap-4, 0x1.6db6db6e31f13p-5,
                               0x1.f1c71c1db0623p-6, 0x1.6e8bb1c8209a2p-6, 0x1.1c4d35cf95421p-6,
                               0x1.c9cf07674736ap-7, 0x1.782651caa6547p-7, 0x1.52420b04b37bep-7,
                               0x1.65a9c4dfcf8b2p-8, 0x1.1d189408314eep-6, -0x1.e6aaa8a0a04ccp-7,
                               0x1.d72b2bc8155f8p-6};
    return SERIES_POWERS(c, z) * z;
}

/* Beyond 1/2 by way of asin(sqrt((1 - |x|) / 2)). */
TMPL_INLINE double f64_asin(double x) {
    double a = f64_abs(x), z = a > 0.5 ? (1.0 - a) * 0.5 : x * x;
    double s = a > 0.5 ? TMPL_BUILTIN(sqrt)(z) : a, p = s * f64_asin_rest(z);
    double r = a > 0.5 ? 2.0 * ((F64_PI_4 - s) - (p - F64_PI_4_LOW)) : s + p;
    return x == 0.0 ? x : TMPL_BUILTIN(copysign)(r, x);
}

TMPL_INLINE double f64_acos(double x) {
    double a = f64_abs(x), z = a > 0.5 ? (1.0 - a) * 0.5 : x * x;
    double s = a > 0.5 ? TMPL_BUILTIN(sqrt)(z) : x, p = s * f64_asin_rest(z);
    double near = 2.0 * F64_PI_4 - (s - (2.0 * F64_PI_4_LOW - p));
    double right = 2.0 * (s + p), left = 4.0 * F64_PI_4 - 2.0 * (s + (p - 2.0 * F64_PI_4_LOW));
    return a > 0.5 ? (x < 0.0 ? left : right) : near;
}

/* Of the ratio of the sides, turned by pi / 4 or pi / 2 so that it is at most tan(pi / 8). */
TMPL_INLINE double f64_atan2(double y, double x) {
    static const double c[] = {-0x1.5555555555555p-2, 0x1.999999999934bp-3,  -0x1.2492492436180p-3,
                               0x1.c71c7185386f1p-4,  -0x1.745d0b27da190p-4, 0x1.3b1262f3a2b5bp-4,
                               -0x1.10fa76aa9b02cp-4, 0x1.dfe637a48099bp-5,  -0x1.a0993ef875d4ap-5,
                               0x1.4161b24be475bp-5,  -0x1.3a2f1cc1ba3c5p-6};
    const double endless = (double)INFINITY, eighth = 0x1.a827999fcef32p-2;
    double a = f64_abs(y), b = f64_abs(x);
    bool wide = a == endless || b == endless;
    double most = a > b ? a : b, down = most > 0x1p1000 ? 0x1p-100 : 1.0;
    down = most < 0x1p-900 ? 0x1p100 : down;
    double p = wide ? (a == endless ? 1.0 : 0.0) : a * down;
    double q = wide ? (b == endless ? 1.0 : 0.0) : b * down;
    bool steep = q<p * eighth, middle = p> q * eighth;
    double over = steep ? -q : middle ? p - q : p;
    double under = steep ? p : middle ? p + q : q;
    double base = steep ? 2.0 * F64_PI_4 : middle ? F64_PI_4 : 0.0;
    double low = steep ? 2.0 * F64_PI_4_LOW : middle ? F64_PI_4_LOW : 0.0;
    double t = over / (under == 0.0 ? 1.0 : under), z = t * t;
    double rest = F64_FMA(t * z, SERIES_POWERS(c, z), low);
    double r = base + (t + rest),
           back = (4.0 * F64_PI_4 - base) - (t + (rest - 4.0 * F64_PI_4_LOW));
    r = TMPL_BUILTIN(copysign)(1.0, x) < 0.0 ? back : r;
    return x != x || y != y ? x + y : TMPL_BUILTIN(copysign)(r, y);
}

TMPL_INLINE double f64_atan(double x) { return f64_atan2(x, 1.0); }

TMPL_INLINE double f64_tan(double x) {
    f64_angle a = f64_reduce(x);
    double s = f64_sin_part(a), c = f64_cos_part(a);
    double over = a.quadrant & 1u ? -c : s, under = a.quadrant & 1u ? s : c;
    return x == 0.0 ? x : over / under;
}

/* ---- Of the normal distribution and the factorial ---------------------------------------------*/

/* Next to 0 the tail is 1 less erf, of which few digits count. */
TMPL_INLINE double f64_erfc(double x) {
    double a = f64_abs(x), b = a > 27.5 ? 27.5 : a;
    double tail = f64_erfcx_right(b) * f64_exp_square(b, -1.0);
    double r = x < 0.0 ? 2.0 - tail : tail;
    r = a < 0.5 ? 1.0 - f64_erf(x) : r;
    return x != x ? x : r;
}

/* a for what lies below -40, where the distribution is 0 and its tail no number. */
TMPL_INLINE double f64_normal_tail(double a) {
    return 0.5 * f64_erfcx_right(a * 0x1.6a09e667f3bcdp-1) * f64_exp_square(a, -0.5);
}

TMPL_INLINE double f64_ndtr(double x) {
    double a = f64_abs(x), tail = f64_normal_tail(a > 38.9 ? 38.9 : a);
    double near = F64_FMA(0.5, f64_erf(x * 0x1.6a09e667f3bcdp-1), 0.5);
    double far = x < 0.0 ? tail : 1.0 - tail;
    return x != x ? x : a < 0.7 ? near : far;
}

TMPL_INLINE double f64_gelu(double x) {
    double a = f64_abs(x), b = a > 38.9 ? 38.9 : a, cut = b * f64_normal_tail(b);
    return x != x ? x : x < 0.0 ? -cut : x - cut;
}

/* Phi(x) + x * phi(x) */
TMPL_INLINE double f64_gelu_slope(double x) {
    double a = f64_abs(x), b = a > 38.9 ? 38.9 : a, e = f64_exp_square(b, -0.5);
    double low = (0.5 * f64_erfcx_right(b * 0x1.6a09e667f3bcdp-1) - b * 0x1.9884533d43651p-2) * e;
    return x != x ? x : x < 0.0 ? low : 1.0 - low;
}

/* For x >= 0: next to 2 by powers, whose sum is 0 there; from there to 8 the logarithm of the product
 * of what lies between is added, below 1.5 taken off; beyond 8 Stirling's formula. */
TMPL_INLINE double f64_lgamma(double x) {
    static const double c[] = {
        0x1.b0ee6072093cep-2,   0x1.4a34cc4a60fa6p-2,   -0x1.13e001a55760ap-4,
        0x1.51322ac7d848ap-6,   -0x1.e404fc218dbaep-8,  0x1.7add6eadb5317p-9,
        -0x1.38ac5c2d48207p-10, 0x1.0b36af8779ca0p-11,  -0x1.d3fd4b679c1c4p-13,
        0x1.a127afee53e7dp-14,  -0x1.78de9ab752b81p-15, 0x1.580e0afa55850p-16,
        -0x1.3cb3be36ad88bp-17, 0x1.258f3057730fap-18,  -0x1.1276ebd557fb0p-19,
        0x1.012012be3900ap-20,  -0x1.ce17528bcf460p-22, 0x1.b40adb09a1e12p-23,
        -0x1.2009c1a550d0dp-23, 0x1.11fa5e7c86f7bp-24};
    static const double d[] = {0x1.5555555555555p-4,  -0x1.6c16c16c16b29p-9,
                               0x1.a01a019ee0dafp-11, -0x1.38137ec06f013p-11,
                               0x1.b94f6d64ea633p-11, -0x1.f5ff2fc17e10bp-10,
                               0x1.96db3f3dd602bp-8,  -0x1.55b3a241f83b1p-6};
    bool below = x < 1.5, least = x < 0.5, far = x >= 8.0;
    double product = least ? x * (x + 1.0) : x, t = least ? x : x - 1.0, v = far ? 2.0 : x;
    t = below ? t : v - 2.0;
    product = below ? product : 1.0;
    SERIES_UNROLL
    for (int k = 0; k < 6; k++) {
        bool more = !below && t > 0.5;
        product = more ? product * (t + 1.0) : product;
        t = more ? t - 1.0 : t;
    }
    double logarithm = f64_log(far ? x : product);
    double near = F64_FMA(t, SERIES_POWERS(c, t), below ? -logarithm : logarithm);
    double inverse = 1.0 / x, rest = SERIES_POWERS(d, inverse * inverse) * inverse;
    double stirling = F64_FMA(x - 0.5, logarithm - 1.0, 0x1.acfe390c97d69p-2 + rest);
    return x == (double)INFINITY ? x : far ? stirling : near;
}

#endif
