/* scalar_gpu.h: what a GPU computes otherwise than a CPU: it has instructions for 2^x and 1/x, and few
 * double precision units. Errors of float are the larger of CUDA's own (2 ulp) and what stands here.
 * Half precision, which is rounded to 8 or 11 bits, gets by with errors of 2^-17. */
#ifndef SCALAR_GPU_H
#define SCALAR_GPU_H

#include <math.h>

#include "tmpl.h"

#if defined(TMPL_DTYPE) && TMPL_IS_HALF
#define GPU_SHORT 1
#else
#define GPU_SHORT 0
#endif

#define GPU_LOG2E 0x1.715476p+0f

/* To 2 ulp; results below 2^-126 are 0. */
TMPL_INLINE float gpu_exp2(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* 1 / x to 1 ulp; 0 above 2^126. */
TMPL_INLINE float gpu_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

/* a / b, where neither they nor the quotient are near the ends of the range, to 1 ulp. */
TMPL_INLINE float f32_ratio(float a, float b) {
    float r = gpu_reciprocal(b), q = a * r;
    return GPU_SHORT ? q : fmaf(fmaf(-q, b, a), r, q);
}

TMPL_INLINE float f32_exp(float x) { return GPU_SHORT ? exp2f(x * GPU_LOG2E) : expf(x); }

/* e^x for x <= 0, down to 2^-149. */
TMPL_INLINE float gpu_exp_negative(float x) {
    return GPU_SHORT ? gpu_exp2(fmaf(x, GPU_LOG2E, 24.0f)) * 0x1p-24f : expf(x);
}

/* Below 0 as z - z * s: the quotient's error then counts by s only. */
TMPL_INLINE float f32_sigmoid(float x) {
    float z = gpu_exp_negative(-fabsf(x)), s = f32_ratio(x < 0.0f ? z : 1.0f, 1.0f + z);
    return x < 0.0f && !GPU_SHORT ? fmaf(-z, s, z) : s;
}

TMPL_INLINE float f32_tanh(float x) {
#if GPU_SHORT
    float a = fabsf(x), z = x * x;
    float big = fmaf(-2.0f, gpu_reciprocal(1.0f + gpu_exp2(a * (2.0f * GPU_LOG2E))), 1.0f);
    float small = fmaf(a * z, fmaf(z, 0x1.111112p-3f, -0x1.555556p-2f), a);
    return copysignf(a < 0.125f ? small : big, x);
#else
    return tanhf(x);
#endif
}

/* Mills' ratio (1 - Phi(a)) * e^(a*a/2) for a in [0, 14.4], see Note [Normal tail]: times a + 4 it is a
 * polynomial in t = 1 - 8 / (a + 4), a minimax fit; its error is 2^-18, in float 2^-22. */
TMPL_INLINE float gpu_mills(float a) {
    float s = a + 4.0f, r = gpu_reciprocal(s);
#if GPU_SHORT
    float t = fmaf(-8.0f, r, 1.0f), p = -0x1.35052cp-8f;
    p = fmaf(p, t, -0x1.b9e328p-8f);
    p = fmaf(p, t, 0x1.f4999ep-5f);
    p = fmaf(p, t, -0x1.7e468ep-3f);
    p = fmaf(p, t, 0x1.8c5376p-2f);
    p = fmaf(p, t, -0x1.373d12p-1f);
    p = fmaf(p, t, 0x1.82b4fcp-1f);
#else
    r = fmaf(fmaf(-s, r, 1.0f), r, r);
    float t = fmaf(-8.0f, r, 1.0f), p = 0x1.9e3b78p-12f;
    p = fmaf(p, t, 0x1.959518p-10f);
    p = fmaf(p, t, -0x1.e0c026p-9f);
    p = fmaf(p, t, -0x1.ee62e6p-8f);
    p = fmaf(p, t, 0x1.ef225cp-5f);
    p = fmaf(p, t, -0x1.7dfdc6p-3f);
    p = fmaf(p, t, 0x1.8c6ccep-2f);
    p = fmaf(p, t, -0x1.373e3ep-1f);
    p = fmaf(p, t, 0x1.82b4bep-1f);
#endif
    return p * r;
}

/* e^(-a*a/2) for a in [0, 14.4]. In float the square is `h + l` and its product with log2(e) / 2 is
 * `y + y_low`, so that their rounding does not show; y's nearest integer goes into the exponent. */
TMPL_INLINE float gpu_exp_square(float a) {
    float h = a * a;
#if GPU_SHORT
    return gpu_exp2(fmaf(h, -0.5f * GPU_LOG2E, 24.0f)) * 0x1p-24f;
#else
    const float c = -0.5f * GPU_LOG2E, c_low = -0x1.4ae0cp-27f, magic = 0x1.8p23f;
    float l = fmaf(a, a, -h), y = h * c;
    float y_low = fmaf(h, c_low, fmaf(l, c, fmaf(h, c, -y)));
    float t = y + magic;
    uint32_t scale = tmpl_bits32(t) - tmpl_bits32(magic) + (127 + 24);
    return gpu_exp2((y - (t - magic)) + y_low) * tmpl_float(scale << 23) * 0x1p-24f;
#endif
}

TMPL_INLINE float f32_gelu(float x) {
    float a = fabsf(x);
    a = a > 14.4f ? 14.4f : a;
    float cut = a * gpu_mills(a) * gpu_exp_square(a);
    return x < 0.0f ? -cut : x - cut;
}

/* Phi(x) + x * phi(x) */
TMPL_INLINE float f32_gelu_slope(float x) {
    float a = fabsf(x);
    a = a > 14.4f ? 14.4f : a;
    float r = fmaf(a, -0x1.988454p-2f, gpu_mills(a)) * gpu_exp_square(a);
    return x < 0.0f ? r : 1.0f - r;
}

TMPL_INLINE float f32_log1p(float x) { return log1pf(x); }
TMPL_INLINE float f32_log2(float x) { return log2f(x); }
TMPL_INLINE float f32_log10(float x) { return log10f(x); }
TMPL_INLINE float f32_exp2(float x) { return exp2f(x); }
TMPL_INLINE float f32_sin(float x) { return sinf(x); }
TMPL_INLINE float f32_cos(float x) { return cosf(x); }
TMPL_INLINE float f32_tan(float x) { return tanf(x); }
TMPL_INLINE float f32_pow(float x, float y) { return powf(x, y); }

#endif
