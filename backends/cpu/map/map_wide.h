/* map_wide.h: formulas on whole vectors of float that compilers do not find by themselves, for
 * AVX-512, where one instruction picks from a table of 32 floats: sigmoid, gelu and their kin, and
 * the exponential. WIDE_<op> tells map_tmpl.h that wide_<op> takes the place of f_<op>. Largest
 * errors as in scalar_f32.h. An element's result does not depend on its neighbours. */
#ifndef CPU_MAP_WIDE_H
#define CPU_MAP_WIDE_H

#if TMPL_IS_FLOAT && TMPL_DTYPE != TMPL_F64 && defined(__AVX512F__)
#include "vec.h"

#include "map_pieces.inc"

#define WIDE_exp 1
#define WIDE_sigmoid 1
#define WIDE_silu 1
#define WIDE__silu_backward 1
#define WIDE__gelu 1
#define WIDE__gelu_backward 1
#define WIDE__gelu_tanh 1

/* Of a table's row the element that the low five bits of t name. */
VEC_INLINE vec wide_pick(const float *row, vec t) {
    return (vec)_mm512_permutex2var_ps(_mm512_loadu_ps(row), (__m512i)t, _mm512_loadu_ps(row + 16));
}

VEC_INLINE vec wide_fma(vec a, vec b, vec c) {
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* The function of a table of pieces at x, within its range. */
VEC_INLINE vec wide_pieces(const float (*table)[32], int degree, float h, vec x) {
    const vec magic = vec_all(0x1.8p23f);
    vec t = wide_fma(x, vec_all(1.0f / h), magic), d = wide_fma(magic - t, vec_all(h), x);
    vec p = wide_pick(table[degree + 1], t);
    for (int i = degree; i > 1; i--) p = wide_fma(p, d, wide_pick(table[i], t));
    return wide_fma(p, d, wide_pick(table[0], t)) + wide_pick(table[1], t);
}

/* 2^(k/32) * e^r with |r| <= ln(2) / 64: the fraction of k / 32 is looked up. */
VEC_INLINE vec wide_exp(vec x) {
    const vec magic = vec_all(0x1.8p18f); /* its last place is 1/32 */
    x = vec_min(vec_all(89.0f), vec_max(vec_all(-104.0f), x));
    vec t = wide_fma(x, vec_all(0x1.715476p+0f), magic), k = t - magic;
    vec r = wide_fma(k, vec_all(-0x1.0bfbe8p-15f), wide_fma(k, vec_all(-0x1.62ep-1f), x));
    vec p = wide_fma(r * r, wide_fma(r, vec_all(0x1.555556p-3f), vec_all(0.5f)), r);
    vec head = wide_pick(table_power[1], t);
    return vec_scale(head + wide_fma(head, p, wide_pick(table_power[0], t)), k);
}

/* Below 0 as z - z * s: the quotient's error then counts by s only. */
VEC_INLINE vec wide_sigmoid(vec x) {
    vec z = wide_exp((vec)_mm512_or_ps((__m512)x, _mm512_set1_ps(-0.0f))), w = z + 1.0f;
    vec q = (vec)_mm512_rcp14_ps((__m512)w);
    q = wide_fma(wide_fma(-q, w, vec_all(1.0f)), q, q);
    __mmask16 below = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return (vec)_mm512_mask_blend_ps(below, (__m512)q, (__m512)wide_fma(-z, z * q, z));
}

VEC_INLINE vec wide_silu(vec x) { return x * wide_sigmoid(x); }

VEC_INLINE vec wide__silu_backward(vec g, vec x) {
    vec s = wide_sigmoid(x);
    return g * (s * (x * (1.0f - s) + 1.0f));
}

VEC_INLINE vec wide__gelu_tanh(vec x) {
    return x * wide_sigmoid(2 * GELU_K * (x + GELU_C * x * x * x));
}

/* The pieces of gelu and its slope reach from here to 5.8 and 6, where they are x and 1; further down,
 * where next to no element lies, the formulas for any place serve. */
#define WIDE_GELU_LEAST (-2.87f)

VEC_INLINE int wide_far_down(vec x) {
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(WIDE_GELU_LEAST), _CMP_NGE_UQ) != 0;
}

/* y, replaced by other(x) where x is far down. */
static __attribute__((noinline)) vec wide_patch_gelu(vec x, vec y) {
    float in[VL], out[VL];
    vec_store(in, x);
    for (int i = 0; i < VL; i++) out[i] = f32_gelu(in[i]);
    return vec_select(x >= WIDE_GELU_LEAST, y, vec_load(out));
}

static __attribute__((noinline)) vec wide_patch_slope(vec x, vec y) {
    float in[VL], out[VL];
    vec_store(in, x);
    for (int i = 0; i < VL; i++) out[i] = f32_gelu_slope(in[i]);
    return vec_select(x >= WIDE_GELU_LEAST, y, vec_load(out));
}

VEC_INLINE vec wide__gelu(vec x) {
    vec y = x * wide_pieces(table_normal, 5, 0x1.18p-2f, vec_min(x, vec_all(5.8f)));
    return __builtin_expect(wide_far_down(x), 0) ? wide_patch_gelu(x, y) : y;
}

VEC_INLINE vec wide__gelu_backward(vec g, vec x) {
    vec y = wide_pieces(table_gelu_slope, 5, 0x1.2p-2f, vec_min(x, vec_all(6.0f)));
    return g * (__builtin_expect(wide_far_down(x), 0) ? wide_patch_slope(x, y) : y);
}
#endif

#endif
