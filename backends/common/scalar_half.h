/* scalar_half.h: functions whose results are rounded to half precision, so that float is enough on the
 * way, where scalar_f32.h takes double. Errors are below 4e-7 of the result. */
#ifndef SCALAR_HALF_H
#define SCALAR_HALF_H

#include "scalar_f32.h"

#define HALF_QUARTER 0x1.921fb6p+0f /* pi / 2 */

/* What multiples of pi / 2 leave of x, |x| <= F32_ANGLE_MAX; bits of the multiple. */
TMPL_INLINE float half_reduce(float x, uint32_t *ret_quadrant) {
    float t = F32_FMA(x, 0x1.45f306p-1f, 0x1.8p23f), k = t - 0x1.8p23f;
    *ret_quadrant = tmpl_bits32(t);
    float r = F32_FMA(-k, HALF_QUARTER, x);
    return F32_FMA(-k, -0x1.ee59dap-50f, F32_FMA(-k, -0x1.777a5cp-25f, r));
}

TMPL_INLINE float half_sin_poly(float r) {
    float z = r * r, p = F32_FMA(-0x1.9943f2p-13f, z, 0x1.11073cp-7f);
    return F32_FMA(F32_FMA(p, z, -0x1.555546p-3f) * z, r, r);
}

TMPL_INLINE float half_cos_poly(float r) {
    float z = r * r, p = F32_FMA(0x1.99eb9cp-16f, z, -0x1.6c0c34p-10f);
    return F32_FMA(F32_FMA(p, z, 0x1.55554ap-5f) * z, z, F32_FMA(z, -0.5f, 1.0f));
}

TMPL_INLINE float half_sin(float x) {
    uint32_t q;
    float r = half_reduce(x, &q), v = q & 1u ? half_cos_poly(r) : half_sin_poly(r);
    v = q & 2u ? -v : v;
    return x == 0.0f ? x : v;
}

TMPL_INLINE float half_cos(float x) {
    uint32_t q;
    float r = half_reduce(x, &q), v = q & 1u ? half_sin_poly(r) : half_cos_poly(r);
    return (q + 1u) & 2u ? -v : v;
}

/* asin(s) for s in [0, 1/2]. */
TMPL_INLINE float half_asin_poly(float s) {
    float z = s * s, p = F32_FMA(0x1.5966a4p-5f, z, 0x1.8c2fc6p-6f);
    p = F32_FMA(p, z, 0x1.747d8ep-5f);
    p = F32_FMA(p, z, 0x1.3301ecp-4f);
    p = F32_FMA(p, z, 0x1.5555c8p-3f);
    return F32_FMA(p * z, s, s);
}

TMPL_INLINE float half_asin(float x) {
    float a = f32_abs(x), s = TMPL_BUILTIN(sqrtf)(F32_FMA(a, -0.5f, 0.5f));
    float r = half_asin_poly(a > 0.5f ? s : a);
    return TMPL_BUILTIN(copysignf)(a > 0.5f ? F32_FMA(r, -2.0f, HALF_QUARTER) : r, x);
}

TMPL_INLINE float half_acos(float x) {
    float a = f32_abs(x), s = TMPL_BUILTIN(sqrtf)(F32_FMA(a, -0.5f, 0.5f));
    float r = half_asin_poly(a > 0.5f ? s : a), near = HALF_QUARTER - (x < 0.0f ? -r : r);
    float far = x < 0.0f ? 2.0f * (HALF_QUARTER - r) : 2.0f * r;
    return a > 0.5f ? far : near;
}

/* Turned by pi / 4 or pi / 2 so that tan(pi / 8) is not passed. */
TMPL_INLINE float half_atan(float x) {
    float a = f32_abs(x);
    bool steep = a > 0x1.3504f4p+1f, middle = a > 0x1.a8279ap-2f;
    float over = steep ? -1.0f : middle ? a - 1.0f : a;
    float under = steep ? a : middle ? a + 1.0f : 1.0f;
    float base = steep ? HALF_QUARTER : middle ? 0.5f * HALF_QUARTER : 0.0f;
    float t = over / under, z = t * t, p = F32_FMA(0x1.49e1a2p-4f, z, -0x1.1c370ap-3f);
    p = F32_FMA(F32_FMA(p, z, 0x1.9924bep-3f), z, -0x1.555454p-2f);
    return TMPL_BUILTIN(copysignf)(base + F32_FMA(p * z, t, t), x);
}

TMPL_INLINE float half_log2(float x) { return f32_log(x) * 0x1.715476p+0f; }
TMPL_INLINE float half_log10(float x) { return f32_log(x) * 0x1.bcb7b2p-2f; }

#endif
