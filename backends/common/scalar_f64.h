/* scalar_f64.h: elementary functions of double that loops spend time in, in the same style as
 * scalar_f32.h. Largest errors of sin and cos 0.8 ulp, of erf 1.25. The `_short` forms keep about 35
 * bits: enough for a float result with a correct last place almost everywhere. */
#ifndef SCALAR_F64_H
#define SCALAR_F64_H

#include <math.h>

#include "series.h"

#define F64_LN2_HI 0x1.62e42feep-1 /* its low bits are 0: times an exponent it is exact */
#define F64_LN2_LO 0x1.a39ef35793c76p-33

TMPL_INLINE double f64_abs(double x) { return TMPL_BUILTIN(fabs)(x); }

/* x = m * 2^e with m in [sqrt(1/2), sqrt(2)); returns m - 1. x is positive and not subnormal. */
TMPL_INLINE double f64_split(double x, double *ret_e) {
    const uint64_t root = UINT64_C(0x3fe6a09e667f3bcd), mask = UINT64_C(0x000fffffffffffff);
    uint64_t u = tmpl_bits64(x) - root + (UINT64_C(1023) << 52);
    *ret_e = tmpl_double(u >> 52 | UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
    return tmpl_double((u & mask) + root) - 1.0;
}

TMPL_INLINE double f64_log_ends(double x, double r) {
    r = x > 0x1.fffffffffffffp1023 ? x : r;
    r = x == 0.0 ? -(double)INFINITY : r;
    return x >= 0.0 ? r : (double)NAN;
}

/* p(z) for z = s^2, |s| <= 0.172: log((1 + s) / (1 - s)) = 2 s + s z p(z). */
TMPL_INLINE double f64_log_series(double z) {
    double p = 0x1.2ba665934b319p-3;
    p = F64_FMA(p, z, 0x1.39f7f8c5aa355p-3);
    p = F64_FMA(p, z, 0x1.7462e6bf3502dp-3);
    p = F64_FMA(p, z, 0x1.c71c62327b72fp-3);
    p = F64_FMA(p, z, 0x1.2492492e80828p-2);
    p = F64_FMA(p, z, 0x1.9999999994db5p-2);
    p = F64_FMA(p, z, 0x1.5555555555558p-1);
    return p;
}

TMPL_INLINE double f64_log(double x) {
    bool tiny = x < 0x1p-1022;
    double e, f = f64_split(tiny ? x * 0x1p54 : x, &e);
    e -= tiny ? 54.0 : 0.0;
    double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    double p = f64_log_series(z);
    double low = F64_FMA(e, F64_LN2_LO, s * (h + p * z));
    return f64_log_ends(x, F64_FMA(e, F64_LN2_HI, f - (h - low)));
}

TMPL_INLINE double f64_log_short(double x) {
    double e, f = f64_split(x, &e);
    double s = f / (2.0 + f), z = s * s;
    double p = 0x1.de14a4eea7bd1p-3;
    p = F64_FMA(p, z, 0x1.245af01745274p-2);
    p = F64_FMA(p, z, 0x1.9999ee7f59943p-2);
    p = F64_FMA(p, z, 0x1.5555554b2c26ep-1);
    return f64_log_ends(x, e * 0x1.62e42fefa39efp-1 + (s + s + s * z * p));
}

/* erfinv(x) / x, right to 1e-8, with w = -log(1 - x * x): of w - 2.5 for w below 5, of sqrt(w) - 3 from
 * there to 16, and of sqrt(w) - 7 to 103. */
TMPL_INLINE double f64_erfinv_near(double u) {
    double p = -0x1.2e0e43544bac0p-27;
    p = F64_FMA(p, u, 0x1.8f21c40083e56p-26);
    p = F64_FMA(p, u, 0x1.f48bc20339350p-22);
    p = F64_FMA(p, u, -0x1.d0c196ea2ef94p-19);
    p = F64_FMA(p, u, -0x1.4d159a7b1b934p-18);
    p = F64_FMA(p, u, 0x1.c9e6c6bca15b4p-13);
    p = F64_FMA(p, u, -0x1.486615aecb1cdp-10);
    p = F64_FMA(p, u, -0x1.11c4eb9773df8p-8);
    p = F64_FMA(p, u, 0x1.f91e8ad74ec35p-3);
    p = F64_FMA(p, u, 0x1.805c5d2006388p+0);
    return p;
}
TMPL_INLINE double f64_erfinv_mid(double v) {
    double p = -0x1.e6f32fd4f8bdbp-16;
    p = F64_FMA(p, v, 0x1.51f70df0f34f2p-13);
    p = F64_FMA(p, v, -0x1.245fa5ea0fa90p-12);
    p = F64_FMA(p, v, -0x1.fbe7f72b8ba93p-14);
    p = F64_FMA(p, v, 0x1.82f98b4f63c1bp-10);
    p = F64_FMA(p, v, -0x1.d3763d59db014p-9);
    p = F64_FMA(p, v, 0x1.74ba7c0118633p-8);
    p = F64_FMA(p, v, -0x1.f4e2c59fabd5ap-8);
    p = F64_FMA(p, v, 0x1.35812c0adc922p-7);
    p = F64_FMA(p, v, 0x1.006dc9f4dde1ap+0);
    p = F64_FMA(p, v, 0x1.6a9efbdbbffdbp+1);
    return p;
}
TMPL_INLINE double f64_erfinv_far(double v) {
    double p = 0x1.bf58e48ff6e69p-32;
    p = F64_FMA(p, v, -0x1.57c8b2e61be6bp-29);
    p = F64_FMA(p, v, 0x1.8f32ff6a41f44p-28);
    p = F64_FMA(p, v, -0x1.6066bf3fbb99ap-25);
    p = F64_FMA(p, v, 0x1.63929ceb73740p-22);
    p = F64_FMA(p, v, -0x1.c235c01a52ba5p-20);
    p = F64_FMA(p, v, 0x1.9342cc316eb3fp-18);
    p = F64_FMA(p, v, 0x1.aca3bad3bb93ap-18);
    p = F64_FMA(p, v, -0x1.0cc11f662f396p-11);
    p = F64_FMA(p, v, 0x1.023351c0abf67p+0);
    p = F64_FMA(p, v, 0x1.b79e049190c02p+2);
    return p;
}

/* x * 2^n, n in [-2044, 2046] */
TMPL_INLINE double f64_scale(double x, int64_t n) {
    uint64_t u = (uint64_t)(n + 2046), half = u >> 1, rest = u - half;
    return x * tmpl_double(half << 52) * tmpl_double(rest << 52);
}

/* (e^r - 1 - r) / r^2 for |r| <= 0.35. */
TMPL_INLINE double f64_exp_series(double r) {
    double q = 0x1.af8b2d63ce6dep-26;
    q = F64_FMA(q, r, 0x1.28b4378ee39a6p-22);
    q = F64_FMA(q, r, 0x1.71dddc3cdc982p-19);
    q = F64_FMA(q, r, 0x1.a019926c04859p-16);
    q = F64_FMA(q, r, 0x1.a01a01bc78be8p-13);
    q = F64_FMA(q, r, 0x1.6c16c18724cd9p-10);
    q = F64_FMA(q, r, 0x1.111111110d18ep-7);
    q = F64_FMA(q, r, 0x1.555555554f999p-5);
    q = F64_FMA(q, r, 0x1.5555555555562p-3);
    q = F64_FMA(q, r, 0x1.000000000000dp-1);
    return q;
}

TMPL_INLINE double f64_exp(double x) {
    const double magic = 0x1.8p52;
    x = x < -750.0 ? -750.0 : x;
    x = x > 710.0 ? 710.0 : x;
    double t = x * 0x1.71547652b82fep+0 + magic;
    int64_t n = (int64_t)(tmpl_bits64(t) - tmpl_bits64(magic));
    double k = t - magic;
    double r = F64_FMA(k, -F64_LN2_LO, F64_FMA(k, -F64_LN2_HI, x));
    double q = f64_exp_series(r);
    return f64_scale(F64_FMA(r * r, q, r) + 1.0, n);
}

/* e^x - 1 as (2^n - 1) + 2^n * (e^r - 1): nothing cancels. */
TMPL_INLINE double f64_expm1(double x) {
    const double magic = 0x1.8p52;
    double y = x < -40.0 ? -40.0 : x;
    y = y > 710.0 ? 710.0 : y;
    double t = y * 0x1.71547652b82fep+0 + magic;
    int64_t n = (int64_t)(tmpl_bits64(t) - tmpl_bits64(magic));
    double k = t - magic;
    double hi = F64_FMA(k, -F64_LN2_HI, y), lo = k * F64_LN2_LO, r = hi - lo;
    double lost = (hi - r) - lo; /* what rounding took from r */
    double q = f64_exp_series(r);
    double p = r + F64_FMA(r * r, q, lost);
    double half = tmpl_double((uint64_t)(n + 1022) << 52); /* of 2^n, which may not be a double */
    double far = 2.0 * (F64_FMA(half, p, half - 0.5));
    return n == 0 ? (x == 0.0 ? x : p) : far;
}

/* t / (t + 2) for t = e^(2 |x|) - 1; where that is large, 1 - 2 / (t + 2). */
TMPL_INLINE double f64_tanh(double x) {
    double a = f64_abs(x), t = f64_expm1(2.0 * (a > 20.0 ? 20.0 : a));
    double y = (a > 0.55 ? 2.0 : t) / (t + 2.0);
    y = a > 0.55 ? 1.0 - y : y;
    y = x < 0.0 ? -y : y;
    return x == 0.0 || x != x ? x : y;
}

/* 2^(k + r / ln 2) for |r| <= 0.35, k an integer that `t` holds above its last place. */
TMPL_INLINE double f64_exp_tail_short(double r, double t) {
    int64_t n = (int64_t)(tmpl_bits64(t) - tmpl_bits64(0x1.8p52));
    double q = 0x1.a192bde84df5ap-16;
    q = F64_FMA(q, r, 0x1.a18e21a414a37p-13);
    q = F64_FMA(q, r, 0x1.6c161c48f6369p-10);
    q = F64_FMA(q, r, 0x1.11109cd417a1ap-7);
    q = F64_FMA(q, r, 0x1.5555558dc384dp-5);
    q = F64_FMA(q, r, 0x1.55555581040dep-3);
    q = F64_FMA(q, r, 0x1.ffffffffe9340p-2);
    return F64_FMA(r * r, q, r + 1.0) * tmpl_double((uint64_t)(n + 1023) << 52);
}

/* For results that become floats: beyond +-200 they are 0 or infinite anyway. */
TMPL_INLINE double f64_exp_short(double x) {
    x = x < -200.0 ? -200.0 : x;
    x = x > 200.0 ? 200.0 : x;
    double t = x * 0x1.71547652b82fep+0 + 0x1.8p52;
    return f64_exp_tail_short(x - (t - 0x1.8p52) * 0x1.62e42fefa39efp-1, t);
}

TMPL_INLINE double f64_exp2_short(double x) {
    x = x < -200.0 ? -200.0 : x;
    x = x > 200.0 ? 200.0 : x;
    double t = x + 0x1.8p52;
    return f64_exp_tail_short((x - (t - 0x1.8p52)) * 0x1.62e42fefa39efp-1, t);
}

TMPL_INLINE double f64_sigmoid(double x) {
    double z = f64_exp(-f64_abs(x));
    return (x < 0.0 ? z : 1.0) / (1.0 + z);
}

/* e^(x^2) erfc(x) for x >= 0, which falls like 1 / x: over t = 4 / (4 + x) nearly flat. */
TMPL_INLINE double f64_erfcx_right(double x) {
    static const double close[] = {
        0x1.df6a7891d7325p-2,  0x1.3246e839fbbc8p+0,  0x1.31e68b45c057cp+1,  0x1.e5917d48cad24p+1,
        0x1.318faff542829p+2,  0x1.29e45775b709ap+2,  0x1.a6232747f54a2p+1,  0x1.633dddcad3a62p+0,
        -0x1.49d57a6d6c4e5p-5, -0x1.d262ed54ebd93p-2, -0x1.7e4cf7dad4acep-3, 0x1.867115e31b0e8p-4,
        0x1.809ea8a298058p-4,  -0x1.3650f16b7c2efp-6, -0x1.444a9fa52d51dp-5, 0x1.3d84d6e4e5e66p-8,
        0x1.f02777e5b772bp-7};
    static const double away[] = {
        0x1.7fd46c5e0864dp-3,  0x1.f1cc3ba338032p-3,  0x1.30aaf5bfa1c59p-2,
        0x1.5e00c59f4ec79p-2,  0x1.7698e5ec9317bp-2,  0x1.71cbb5f13f6d1p-2,
        0x1.4be7e86a24a3ap-2,  0x1.08d50c3b975c7p-2,  0x1.691292246acf2p-3,
        0x1.814f5bbfe1045p-4,  0x1.d5691cb23ee8cp-6,  -0x1.38a9a19f10580p-7,
        -0x1.4cbe162894183p-6, -0x1.a744cbc484a1ap-7, -0x1.675f65df977c4p-11,
        0x1.930548d1fb04ep-8,  0x1.43d9e9111a34cp-8,  -0x1.54002335593c1p-14,
        -0x1.6dff5a5cac791p-9, -0x1.810da1609afb9p-10};
    double t = 4 / (4 + x),
           u = F64_FMA(-0.75, x, 1.0) * (0.25 * t); /* t - 0.75, without rounding t */
    double near = SERIES_POWERS(close, u);
    double far = SERIES_POWERS(away, t - 0.25);
    return (t < 0.5 ? far : near) * t;
}

#if !defined(TMPL_CUDA)
/* ---- Angles ------------------------------------------------------------------------------------
 * Beyond this, angles need more digits of pi than the reduction has; map_tmpl.h sends them to the C
 * library. */
#define F64_ANGLE_MAX 0x1p20

typedef struct f64_angle {
    double r, low; /* what is left beside multiples of pi / 2, and what rounding took from it */
    uint64_t quadrant;
} f64_angle;

/* Three pieces of pi / 2 have 33 bits, so that their products with a multiple are exact, fused or not. */
TMPL_INLINE f64_angle f64_reduce(double x) {
    const double magic = 0x1.8p52;
    double t = x * 0x1.45f306dc9c883p-1 + magic, k = t - magic;
    double w = k * 0x1.0b4611a6p-34, v = k * 0x1.3198a2ep-69;
    double r0 = x - k * 0x1.921fb544p+0, r1 = r0 - w, r2 = r1 - v;
    double low = ((r0 - r1) - w) + ((r1 - r2) - v) - k * 0x1.b839a252049c1p-104;
    f64_angle a = {r2 + low, 0.0, tmpl_bits64(t)};
    a.low = (r2 - a.r) + low;
    return a;
}

TMPL_INLINE double f64_sin_part(f64_angle a) {
    double z = a.r * a.r, p = 0x1.5d932a22110acp-33;
    p = F64_FMA(p, z, -0x1.ae5e66d7dc5ddp-26);
    p = F64_FMA(p, z, 0x1.71de357897250p-19);
    p = F64_FMA(p, z, -0x1.a01a019c12bbep-13);
    p = F64_FMA(p, z, 0x1.111111110f884p-7);
    p = F64_FMA(p, z, -0x1.5555555555549p-3);
    return a.r + F64_FMA(a.r * z, p, a.low * (1.0 - 0.5 * z));
}

TMPL_INLINE double f64_cos_part(f64_angle a) {
    double z = a.r * a.r, half = 0.5 * z, w = 1.0 - half, p = -0x1.8faeb37391451p-37;
    p = F64_FMA(p, z, 0x1.1ee9ec16b94dcp-29);
    p = F64_FMA(p, z, -0x1.27e4f80a36a05p-22);
    p = F64_FMA(p, z, 0x1.a01a019cb2252p-16);
    p = F64_FMA(p, z, -0x1.6c16c16c15182p-10);
    p = F64_FMA(p, z, 0x1.555555555554cp-5);
    return w + (((1.0 - w) - half) + F64_FMA(z * z, p, -a.r * a.low));
}

TMPL_INLINE double f64_sin(double x) {
    f64_angle a = f64_reduce(x);
    double v = a.quadrant & 1u ? f64_cos_part(a) : f64_sin_part(a);
    v = a.quadrant & 2u ? -v : v;
    return x == 0.0 ? x : v;
}

TMPL_INLINE double f64_cos(double x) {
    f64_angle a = f64_reduce(x);
    double v = a.quadrant & 1u ? f64_sin_part(a) : f64_cos_part(a);
    return (a.quadrant + 1u) & 2u ? -v : v;
}

/* ---- The error function ------------------------------------------------------------------------
 * Next to 0 by a polynomial in x * x, else 1 less e^(-x * x) times one in (x - 2.5) / (x + 2.5), of which
 * few digits count. */
TMPL_INLINE double f64_erf(double x) {
    double z = x * x, a = f64_abs(x);
    a = a > 6.0 ? 6.0 : a;
    double p = -0x1.d24b66499b2dfp-31;
    p = F64_FMA(p, z, 0x1.e29e613f5ba68p-27);
    p = F64_FMA(p, z, -0x1.5d83633fc4c98p-23);
    p = F64_FMA(p, z, 0x1.b9b75f25b2fcbp-20);
    p = F64_FMA(p, z, -0x1.f4cf594dae537p-17);
    p = F64_FMA(p, z, 0x1.f9a306297b70cp-14);
    p = F64_FMA(p, z, -0x1.c02db3141e49fp-11);
    p = F64_FMA(p, z, 0x1.565bcd0a323bfp-8);
    p = F64_FMA(p, z, -0x1.b82ce31271e13p-6);
    p = F64_FMA(p, z, 0x1.ce2f21a0427e2p-4);
    p = F64_FMA(p, z, -0x1.812746b0379e2p-2);
    p = F64_FMA(p, z, 0x1.06eba8214db69p-3);
    double t = (a - 2.5) / (a + 2.5);
    double q = 0x1.d0720a374fcf1p-18;
    q = F64_FMA(q, t, 0x1.00f705c42c235p-16);
    q = F64_FMA(q, t, -0x1.37e364082cfebp-15);
    q = F64_FMA(q, t, -0x1.1128fd4963d3ep-13);
    q = F64_FMA(q, t, 0x1.de3c0bf0521dcp-13);
    q = F64_FMA(q, t, 0x1.cb36e95ebeb3cp-11);
    q = F64_FMA(q, t, -0x1.5a56f2e3ef10ep-9);
    q = F64_FMA(q, t, -0x1.05bb297026605p-8);
    q = F64_FMA(q, t, 0x1.470ba208d4de0p-5);
    q = F64_FMA(q, t, -0x1.00115437207d1p-3);
    q = F64_FMA(q, t, 0x1.01c11a7359939p-2);
    q = F64_FMA(q, t, -0x1.7ca88dec2198bp-2);
    q = F64_FMA(q, t, 0x1.afbb3f3b7343dp-3);
    double far = 1.0 - q * f64_exp(-a * a), near = F64_FMA(x, p, x);
    near = x == 0.0 ? x : near;
    return a < 0.9 ? near : x < 0.0 ? -far : far;
}

#else
TMPL_INLINE double f64_erf(double x) { return erf(x); }
TMPL_INLINE double f64_sin(double x) { return sin(x); }
TMPL_INLINE double f64_cos(double x) { return cos(x); }
#endif

#if defined(TMPL_CUDA)
/* ---- By the C library ------------------------------------------------------------------------*/
TMPL_INLINE double f64_erfc(double x) { return erfc(x); }
TMPL_INLINE double f64_log1p(double x) { return log1p(x); }
TMPL_INLINE double f64_log2(double x) { return log2(x); }
TMPL_INLINE double f64_log10(double x) { return log10(x); }
TMPL_INLINE double f64_exp2(double x) { return exp2(x); }
TMPL_INLINE double f64_tan(double x) { return tan(x); }
TMPL_INLINE double f64_pow(double x, double y) { return pow(x, y); }

TMPL_INLINE double f64_gelu(double x) {
    double a = f64_abs(x) > 40.0 ? 40.0 : f64_abs(x);
    double cut = a * 0.5 * erfc(a * 0x1.6a09e667f3bcdp-1);
    return x < 0.0 ? -cut : x - cut;
}

TMPL_INLINE double f64_gelu_slope(double x) {
    double a = f64_abs(x) > 40.0 ? 40.0 : f64_abs(x);
    double low =
        0.5 * erfc(a * 0x1.6a09e667f3bcdp-1) - a * 0x1.9884533d43651p-2 * f64_exp(-0.5 * a * a);
    return x < 0.0 ? low : 1.0 - low;
}
#else
#include "scalar_arc_f64.h"
#endif

#endif
