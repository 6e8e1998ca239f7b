/* scalar_f32.h: elementary functions of float, written so that compilers vectorise loops over them:
 * no tables, no branches, no library calls in the hot ones. Largest errors, measured against double
 * over all of float's range: exp, log, log1p 1 ulp; exp2 0.9, and 1.1 where products are not fused;
 * tanh, erf, sigmoid, erfc and the gelu pieces 2 ulp.
 * Polynomials are minimax fits made for these intervals. Functions that scripts rarely spend time in
 * are computed in double with room to spare, or by the C library. */
#ifndef SCALAR_F32_H
#define SCALAR_F32_H

#include <math.h>

#include "scalar_f64.h"
#include "tmpl.h"
#if defined(TMPL_CUDA)
#include "scalar_gpu.h" /* some of what follows, for a GPU */
#endif

#if TMPL_HAS_FMA
#define F32_FMA(a, b, c) TMPL_BUILTIN(fmaf)(a, b, c)
#else
#define F32_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* a * b + c, rounded once. */
TMPL_INLINE float f32_fma(float a, float b, float c) {
#if TMPL_HAS_FMA
    return TMPL_BUILTIN(fmaf)(a, b, c);
#else
    return (float)((double)a * (double)b + (double)c);
#endif
}

#if !defined(TMPL_CUDA)
TMPL_INLINE float f32_ratio(float a, float b) { return a / b; }
#endif

TMPL_INLINE float f32_abs(float x) { return TMPL_BUILTIN(fabsf)(x); }

/* 2^n for n in [-252, 254], in two steps so that the ends of the range round once. */
TMPL_INLINE float f32_scale(float x, int32_t n) {
    int32_t half = n >> 1, rest = n - half;
    return x * tmpl_float((uint32_t)(half + 127) << 23) * tmpl_float((uint32_t)(rest + 127) << 23);
}

/* e^(hi + lo) * 2^more for hi in [-104, 90], lo far below hi's last place. */
TMPL_INLINE float f32_exp_times(float hi, float lo, int32_t more) {
    const float magic = 0x1.8p23f;
    float t = (hi + lo) * 0x1.715476p+0f + magic;
    int32_t n = (int32_t)(tmpl_bits32(t) - tmpl_bits32(magic)) + more;
    float k = t - magic;
    float head = F32_FMA(k, -0x1.62ep-1f, hi); /* exact */
    float tail = F32_FMA(k, -0x1.0bfbe8p-15f, lo);
    float r = head + tail;
#if defined(TMPL_CUDA) /* an instruction, right to 2 ulp */
    return f32_scale(exp2f(r * 0x1.715476p+0f), n);
#else
    float q = 0x1.6dbc4ep-10f;
    q = F32_FMA(q, r, 0x1.124138p-7f);
    q = F32_FMA(q, r, 0x1.555454p-5f);
    q = F32_FMA(q, r, 0x1.555488p-3f);
    q = F32_FMA(q, r, 0x1p-1f);
    /* What rounding took from r and from 1 + r would be most of the error. */
    float one = 1.0f + r, rest = (r - (one - 1.0f)) + ((head - r) + tail);
    return f32_scale(one + F32_FMA(r * r, q, rest), n);
#endif
}

TMPL_INLINE float f32_exp_parts(float hi, float lo) { return f32_exp_times(hi, lo, 0); }

#if !defined(TMPL_CUDA)
TMPL_INLINE float f32_exp(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    return f32_exp_parts(x, 0.0f);
}

TMPL_INLINE float f32_tanh(float x) {
    float a = f32_abs(x), z = x * x;
    float p = -0x1.747fa2p-8f;
    p = F32_FMA(p, z, 0x1.51e25ap-6f);
    p = F32_FMA(p, z, -0x1.b833ecp-5f);
    p = F32_FMA(p, z, 0x1.1106fap-3f);
    p = F32_FMA(p, z, -0x1.555532p-2f);
    float small = x == 0.0f ? x : F32_FMA(x * z, p, x); /* the sum would lose the sign of -0 */
    float b = a > 10.0f ? 10.0f : a;
    float big = 1.0f - 2.0f / (f32_exp_parts(b + b, 0.0f) + 1.0f);
    big = x < 0.0f ? -big : big;
    return a < 0.625f ? small : big;
}

/* Below 0 as z - z * s: the quotient's error then counts by s only. */
TMPL_INLINE float f32_sigmoid(float x) {
    float z = f32_exp(-f32_abs(x)), s = (x < 0.0f ? z : 1.0f) / (1.0f + z);
    return x < 0.0f ? F32_FMA(-z, s, z) : s;
}
#endif

/* log(1 + f) but for f itself, f in [sqrt(1/2) - 1, sqrt(2) - 1). */
TMPL_INLINE float f32_log_tail(float f) {
    float p = 0x1.1b4c1cp-4f;
    p = F32_FMA(p, f, -0x1.e30d46p-4f);
    p = F32_FMA(p, f, 0x1.e65e06p-4f);
    p = F32_FMA(p, f, -0x1.fb3e9ep-4f);
    p = F32_FMA(p, f, 0x1.2331c2p-3f);
    p = F32_FMA(p, f, -0x1.5562f8p-3f);
    p = F32_FMA(p, f, 0x1.99a550p-3f);
    p = F32_FMA(p, f, -0x1.ffffeep-3f);
    p = F32_FMA(p, f, 0x1.555546p-2f);
    float f2 = f * f;
    return F32_FMA(f2 * f, p, -0.5f * f2);
}

/* What follows from it for x, whose logarithm is e * ln(2) + f + low. */
TMPL_INLINE float f32_log_sum(float x, float e, float f, float low) {
    float r = F32_FMA(e, 0x1.62ep-1f, f + F32_FMA(e, 0x1.0bfbe8p-15f, low));
    r = x > 0x1.fffffep127f ? x : r;
    r = x == 0.0f ? -INFINITY : r;
    return x >= 0.0f ? r : NAN;
}

TMPL_INLINE float f32_log(float x) {
    bool tiny = x < 0x1p-126f;
    float y = tiny ? x * 0x1p23f : x;
    uint32_t u = tmpl_bits32(y) - 0x3f3504f3u;
    float e = (float)((int32_t)u >> 23) - (tiny ? 23.0f : 0.0f);
    float f = tmpl_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    return f32_log_sum(x, e, f, f32_log_tail(f));
}

#if !defined(TMPL_CUDA)
/* What rounding took from 1 + x counts as much less as the sum is larger than its fraction. */
TMPL_INLINE float f32_log1p(float x) {
    float s = 1.0f + x, lost = x - (s - 1.0f);
    uint32_t u = tmpl_bits32(s) - 0x3f3504f3u;
    int32_t n = (int32_t)u >> 23;
    float f = tmpl_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    lost = n > 64 ? 0.0f : lost * tmpl_float((uint32_t)(127 - n) << 23); /* 2^-128 is no float */
    float near = f + lost;
    float r = f32_log_sum(s, (float)n, near, f32_log_tail(near) + (lost - (near - f)));
    return x == 0.0f ? x : r;
}
#endif

/* Note [Normal tail]
 * Mills' ratio m(a) = (1 - Phi(a)) * e^(a*a/2) falls like 1 / a. With q = 8 / (a + 4), m / q is nearly
 * flat and a polynomial in t = 1 - q. Both Phi and erfc are m times an exponential, and m varies
 * with q so evenly that what rounding took from q can be put right in the exponent: log m changes
 * by (1 + 1 / q) times that. `a` counts in units in which 4 is `k` + `k_low`. The polynomial comes
 * back as p + p_low. */
typedef struct f32_tail {
    float p, p_low, q, low;
} f32_tail;

TMPL_INLINE f32_tail f32_mills(float a, float k, float k_low) {
    float s = a + k, lost = (a - (s - k)) + k_low;
    float q = f32_ratio(2.0f * k, s), t = 1.0f - q;
    float q_low = (F32_FMA(-q, s, 2.0f * k) + 2.0f * k_low - q * lost) * q * (0.5f / k);
    float p = -0x1.15bd7cp-13f;
    p = F32_FMA(p, t, 0x1.760f88p-13f);
    p = F32_FMA(p, t, 0x1.9b7572p-10f);
    p = F32_FMA(p, t, -0x1.cc55a4p-9f);
    p = F32_FMA(p, t, -0x1.ed289cp-8f);
    p = F32_FMA(p, t, 0x1.eed3e0p-5f);
    p = F32_FMA(p, t, -0x1.7e0006p-3f);
    p = F32_FMA(p, t, 0x1.8c6d9ep-2f);
    float p1 = f32_fma(p, t, -0x1.373e38p-1f);
    float e1 = f32_fma(p, t, -0x1.373e38p-1f - p1);
    float p0 = f32_fma(p1, t, 0x1.82b4bcp-1f);
    float e0 = f32_fma(p1, t, 0x1.82b4bcp-1f - p0);
    f32_tail r = {p0, e0 + e1 * t, q, q_low * (1.0f + s * (0.5f / k))};
    return r;
}

/* e^(low - a*a*s) for s 1 or 0.5; the square is split so that its rounding does not show. */
TMPL_INLINE float f32_exp_square(float a, float s, float low) {
    float head = tmpl_float(tmpl_bits32(a) & 0xfffff000u);
    float tail = a - head;
    return f32_exp_parts(-s * head * head, F32_FMA(-s * tail, a + head, low));
}

TMPL_INLINE float f32_erfc_positive(float a) {
    a = a > 10.1f ? 10.1f : a;
    f32_tail m = f32_mills(a, 0x1.6a09e6p+1f, 0x1.9fcef4p-25f);
    float h = m.p * m.q, h_low = f32_fma(m.p, m.q, -h) + m.p_low * m.q;
    float e = f32_exp_square(a, 1.0f, m.low);
    return F32_FMA(h, e, h_low * e) * 0.25f;
}

TMPL_INLINE float f32_erf_small(float x) {
    float z = x * x;
    float p = 0x1.4ae4d8p-14f;
    p = F32_FMA(p, z, -0x1.a485f0p-11f);
    p = F32_FMA(p, z, 0x1.5419f6p-8f);
    p = F32_FMA(p, z, -0x1.b7fbb4p-6f);
    p = F32_FMA(p, z, 0x1.ce2d20p-4f);
    p = F32_FMA(p, z, -0x1.81273ep-2f);
    p = F32_FMA(p, z, 0x1.06eba8p-3f);
    return F32_FMA(x, p, x);
}

TMPL_INLINE float f32_erf(float x) {
    float a = f32_abs(x);
    /* Next to 1 the tail needs no care. */
    float b = a > 10.1f ? 10.1f : a;
    f32_tail m = f32_mills(b, 0x1.6a09e6p+1f, 0.0f);
    float big = 1.0f - m.p * m.q * 0.25f * f32_exp(-b * b);
    big = x < 0.0f ? -big : big;
    return a < 1.0f ? f32_erf_small(x) : big;
}

TMPL_INLINE float f32_erfc(float x) {
    float a = f32_abs(x), tail = f32_erfc_positive(a);
    float small = 1.0f - f32_erf_small(x);
    return a < 0.4f ? small : x < 0.0f ? 2.0f - tail : tail;
}

#if !defined(TMPL_CUDA)
/* The distribution of the normal numbers: of both sides the tail, which is small. */
TMPL_INLINE float f32_ndtr(float x) {
    float a = f32_abs(x);
    a = a > 14.5f ? 14.5f : a;
    f32_tail m = f32_mills(a, 4.0f, 0.0f);
    float h = m.p * m.q, h_low = f32_fma(m.p, m.q, -h) + m.p_low * m.q;
    float e = f32_exp_square(a, 0.5f, m.low), tail = F32_FMA(h, e, h_low * e) * 0.125f;
    float near = 0.5f + 0.5f * f32_erf_small(x * 0x1.6a09e6p-1f),
          far = x < 0.0f ? tail : 1.0f - tail;
    return x != x ? x : a < 0.7f ? near : far;
}

TMPL_INLINE float f32_gelu(float x) {
    float a = f32_abs(x);
    a = a > 14.4f ? 14.4f : a;
    f32_tail m = f32_mills(a, 4.0f, 0.0f);
    float g = a * m.q, h = g * m.p;
    float h_low = f32_fma(g, m.p, -h) + f32_fma(a, m.q, -g) * m.p + m.p_low * g;
    float e = f32_exp_square(a, 0.5f, m.low);
    float cut = F32_FMA(h, e, h_low * e) * 0.125f;
    return x < 0.0f ? -cut : x - cut;
}

/* Phi(x) + x * phi(x) */
TMPL_INLINE float f32_gelu_slope(float x) {
    float a = f32_abs(x);
    a = a > 14.4f ? 14.4f : a;
    f32_tail m = f32_mills(a, 4.0f, 0.0f);
    float r = (m.p * m.q * 0.125f - a * 0x1.988454p-2f) * f32_exp_square(a, 0.5f, 0.0f);
    return x < 0.0f ? r : 1.0f - r;
}

#endif

TMPL_INLINE float f32_expm1(float x) {
    const float magic = 0x1.8p23f;
    float y = x < -20.0f ? -20.0f : x;
    y = y > 89.0f ? 89.0f : y;
    float t = y * 0x1.715476p+0f + magic;
    int32_t n = (int32_t)(tmpl_bits32(t) - tmpl_bits32(magic));
    float k = t - magic;
    float r = F32_FMA(k, -0x1.62ep-1f, y);
    r = F32_FMA(k, -0x1.0bfbe8p-15f, r);
    float q = 0x1.6dbc4ep-10f;
    q = F32_FMA(q, r, 0x1.124138p-7f);
    q = F32_FMA(q, r, 0x1.555454p-5f);
    q = F32_FMA(q, r, 0x1.555488p-3f);
    q = F32_FMA(q, r, 0x1p-1f);
    float p = F32_FMA(r * r, q, r);
    float s = tmpl_float((uint32_t)(n + 126) << 23); /* half of 2^n, which may not be a float */
    float far = 2.0f * F32_FMA(s, p, s - 0.5f);
    return n == 0 ? (x == 0.0f ? x : p) : far;
}

#if !defined(TMPL_CUDA)

TMPL_INLINE float f32_log2(float x) {
    return (float)(f64_log_short((double)x) * 0x1.71547652b82fep+0);
}
TMPL_INLINE float f32_log10(float x) {
    return (float)(f64_log_short((double)x) * 0x1.bcb7b1526e50ep-2);
}

TMPL_INLINE float f32_exp2(float x) {
    const float magic = 0x1.8p23f;
    x = x < -151.0f ? -151.0f : x;
    x = x > 129.0f ? 129.0f : x;
    float t = x + magic, r = x - (t - magic);
    float p = 0x1.40b24ap-13f;
    p = F32_FMA(p, r, 0x1.5f095ap-10f);
    p = F32_FMA(p, r, 0x1.3b2f1ap-7f);
    p = F32_FMA(p, r, 0x1.c6af7ap-5f);
    p = F32_FMA(p, r, 0x1.ebfbdap-3f);
    p = F32_FMA(p, r, 0x1.62e430p-1f);
    return f32_scale(F32_FMA(p, r, 1.0f), (int32_t)(tmpl_bits32(t) - tmpl_bits32(magic)));
}

/* Angles beyond this need more digits of pi than the reduction has; map_tmpl.h sends them to the C
 * library. */
#define F32_ANGLE_MAX 0x1p20f

TMPL_INLINE double f32_reduce(float x, uint64_t *ret_quadrant) {
    const double magic = 0x1.8p52;
    double t = (double)x * 0x1.45f306dc9c883p-1 + magic;
    double k = t - magic;
    *ret_quadrant = tmpl_bits64(t);
    return (((double)x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a6p-34) - k * 0x1.3198a2e037073p-69;
}

TMPL_INLINE double f32_sin_poly(double r) {
    double z = r * r;
    double p = ((0x1.6da94ba488ca2p-19 * z - 0x1.a01367255e333p-13) * z + 0x1.11110dbf31ba1p-7) * z;
    return r * (1.0 + (p - 0x1.555555544a3d5p-3) * z);
}

TMPL_INLINE double f32_cos_poly(double r) {
    double z = r * r;
    double p = (-0x1.2463886683541p-22 * z + 0x1.a0124d47b71ecp-16) * z - 0x1.6c16ba8137d46p-10;
    return 1.0 + ((p * z + 0x1.55555550fbfdep-5) * z - 0x1.fffffffffe400p-2) * z;
}

TMPL_INLINE float f32_sin(float x) {
    uint64_t q;
    double r = f32_reduce(x, &q), s = f32_sin_poly(r), c = f32_cos_poly(r);
    double v = q & 1u ? c : s;
    return (float)(q & 2u ? -v : v);
}

TMPL_INLINE float f32_cos(float x) {
    uint64_t q;
    double r = f32_reduce(x, &q), s = f32_sin_poly(r), c = f32_cos_poly(r);
    double v = q & 1u ? s : c;
    return (float)((q + 1u) & 2u ? -v : v);
}

TMPL_INLINE float f32_tan(float x) {
    uint64_t q;
    double r = f32_reduce(x, &q), s = f32_sin_poly(r), c = f32_cos_poly(r);
    return (float)(q & 1u ? -c / s : s / c);
}

/* All in double, comparisons included: one width keeps the loop vectorised. */
TMPL_INLINE float f32_pow(float x, float y) {
    double a = (double)x, b = (double)y, big = 0x1.fffffep127, m = f64_abs(a), half = 0.5 * b;
    double odd =
        TMPL_BUILTIN(floor)(b) == b ? 2.0 * (half - TMPL_BUILTIN(floor)(half)) : 0.0; /* 1 or 0 */
    odd = f64_abs(b) > big ? 0.0 : odd;
    double r = f64_exp_short(b * f64_log_short(m));
    /* A negative base, -0 included, gives an odd power its sign. */
    uint64_t sign = tmpl_bits64(odd == 1.0 ? a : 0.0) & (UINT64_C(1) << 63);
    r = tmpl_double(tmpl_bits64(r) | sign);
    double bad = TMPL_BUILTIN(floor)(b) != b ? (double)NAN : r;
    bad = a < -big ? r : bad;
    r = a < 0.0 ? bad : r;
    double one = f64_abs(b) > big ? 1.0 : r;
    r = m == 1.0 ? (a < 0.0 ? one : 1.0) : r;
    r = b != b ? b : r;
    r = a == 1.0 ? 1.0 : r;
    return (float)(b == 0.0 ? 1.0 : r);
}
#endif

#endif
