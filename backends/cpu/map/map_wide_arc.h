/* map_wide_arc.h: the tangent and the inverse functions of the circle of whole vectors of float by AVX-512, in
 * double and rounded once, as in scalar_arc.h; quotients and roots by the instructions that begin them, which are
 * three times as fast as those that end them. Part of map_wide.h. */
#ifndef CPU_MAP_WIDE_ARC_H
#define CPU_MAP_WIDE_ARC_H

#define WIDE_tan 1
#define WIDE_atan 1
#define WIDE_asin 1
#define WIDE_acos 1

VEC_INLINE __m512d arc_low(vec x) { return _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)); }
VEC_INLINE __m512d arc_high(vec x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1)); }
VEC_INLINE vec arc_joined(__m512d low, __m512d high) {
    __m512 v = _mm512_castps256_ps512(_mm512_cvtpd_ps(low));
    return (vec)_mm512_insertf32x8(v, _mm512_cvtpd_ps(high), 1);
}

VEC_INLINE __m512d arc_all(double x) { return _mm512_set1_pd(x); }

/* 1 / x to 2^-50, from 14 digits on by steps that double them; x neither 0 nor infinite. */
VEC_INLINE __m512d arc_inverse(__m512d x) {
    __m512d q = _mm512_rcp14_pd(x);
    q = _mm512_fmadd_pd(_mm512_fnmadd_pd(x, q, arc_all(1.0)), q, q);
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(x, q, arc_all(1.0)), q, q);
}

/* The root of x to 2^-50; NaN below 0. */
VEC_INLINE __m512d arc_root(__m512d x) {
    __m512d q = _mm512_rsqrt14_pd(x), half = _mm512_mul_pd(x, arc_all(0.5));
    for (int i = 0; i < 2; i++)
        q = _mm512_mul_pd(q, _mm512_fnmadd_pd(_mm512_mul_pd(half, q), q, arc_all(1.5)));
    return _mm512_maskz_mul_pd(_mm512_cmp_pd_mask(x, arc_all(0.0), _CMP_NEQ_UQ), x, q);
}

/* size with the sign of x */
VEC_INLINE __m512d arc_signed(__m512d size, __m512d x) {
    return _mm512_or_pd(size, _mm512_and_pd(x, arc_all(-0.0)));
}

VEC_INLINE __m512d arc_atan(__m512d x) {
    static const double series[] = {
        -0x1.defc49e4f03cep-10, 0x1.6a8e33f4515eap-7,  -0x1.01aee68e40b00p-5,
        0x1.dd0e38b33cf3ep-5,   -0x1.58dc4a38bfb87p-4, 0x1.c0d277fbe3087p-4,
        -0x1.2426f73219b90p-3,  0x1.9992764bdc010p-3,  -0x1.555540370a90dp-2};
    __m512d a = _mm512_min_pd(arc_all(0x1p300), _mm512_abs_pd(x)); /* NaN stays */
    __mmask8 far = _mm512_cmp_pd_mask(a, arc_all(1.0), _CMP_GT_OQ);
    __m512d t = _mm512_mask_mov_pd(a, far, arc_inverse(a)), z = _mm512_mul_pd(t, t);
    __m512d r = _mm512_fmadd_pd(_mm512_mul_pd(pow_series(z, series, 9), z), t, t);
    r = _mm512_mask_sub_pd(r, far, arc_all(0x1.921fb54442d18p+0), r);
    return arc_signed(r, x);
}

VEC_INLINE vec wide_atan(vec x) { return arc_joined(arc_atan(arc_low(x)), arc_atan(arc_high(x))); }

/* asin(|x|), or beyond 1/2 asin(sqrt((1 - |x|) / 2)). */
VEC_INLINE __m512d arc_asin_part(__m512d x, __mmask8 *ret_far) {
    static const double series[] = {0x1.59dab561e8145p-5, 0x1.8ba26cca190f2p-6,
                                    0x1.748c629ab4871p-5, 0x1.33014e719052ap-4,
                                    0x1.5555ca7423092p-3};
    __m512d a = _mm512_abs_pd(x), rest = _mm512_fnmadd_pd(a, arc_all(0.5), arc_all(0.5));
    *ret_far = _mm512_cmp_pd_mask(a, arc_all(0.5), _CMP_GT_OQ);
    __m512d s = _mm512_mask_mov_pd(a, *ret_far, arc_root(rest)), z = _mm512_mul_pd(s, s);
    return _mm512_fmadd_pd(_mm512_mul_pd(pow_series(z, series, 5), z), s, s);
}

VEC_INLINE __m512d arc_asin(__m512d x) {
    __mmask8 far;
    __m512d r = arc_asin_part(x, &far);
    r = _mm512_mask_fnmadd_pd(r, far, arc_all(2.0), arc_all(0x1.921fb54442d18p+0));
    return arc_signed(r, x);
}

VEC_INLINE __m512d arc_acos(__m512d x) {
    const __m512d quarter = arc_all(0x1.921fb54442d18p+0);
    __mmask8 far;
    __m512d r = arc_asin_part(x, &far), near = _mm512_sub_pd(quarter, arc_signed(r, x));
    __mmask8 below = _mm512_cmp_pd_mask(x, arc_all(0.0), _CMP_LT_OQ);
    r = _mm512_mask_sub_pd(r, below, quarter, r);
    return _mm512_mask_add_pd(near, far, r, r);
}

VEC_INLINE vec wide_asin(vec x) { return arc_joined(arc_asin(arc_low(x)), arc_asin(arc_high(x))); }
VEC_INLINE vec wide_acos(vec x) { return arc_joined(arc_acos(arc_low(x)), arc_acos(arc_high(x))); }

/* For |x| <= F32_ANGLE_MAX. */
VEC_INLINE __m512d arc_tan(__m512d x) {
    static const double sine[] = {0x1.6da94ba488ca2p-19, -0x1.a01367255e333p-13,
                                  0x1.11110dbf31ba1p-7, -0x1.555555544a3d5p-3};
    static const double cosine[] = {-0x1.2463886683541p-22, 0x1.a0124d47b71ecp-16,
                                    -0x1.6c16ba8137d46p-10, 0x1.55555550fbfdep-5,
                                    -0x1.fffffffffe400p-2,  1.0};
    const __m512d magic = arc_all(0x1.8p52);
    __m512d t = _mm512_fmadd_pd(x, arc_all(0x1.45f306dc9c883p-1), magic);
    __m512d k = _mm512_sub_pd(t, magic), r = _mm512_fnmadd_pd(k, arc_all(0x1.921fb54442d18p+0), x);
    r = _mm512_fnmadd_pd(k, arc_all(0x1.1a62633145c07p-54), r);
    __m512d z = _mm512_mul_pd(r, r), c = pow_series(z, cosine, 6);
    __m512d s = _mm512_fmadd_pd(_mm512_mul_pd(pow_series(z, sine, 4), z), r, r);
    __mmask8 odd = _mm512_test_epi64_mask(_mm512_castpd_si512(t), _mm512_set1_epi64(1));
    __m512d above = _mm512_mask_sub_pd(s, odd, arc_all(0.0), c);
    return _mm512_mul_pd(above, arc_inverse(_mm512_mask_mov_pd(c, odd, s)));
}

VEC_INLINE vec wide_tan(vec x) {
    vec v = wide_keep(wide_normal(x), x), y = arc_joined(arc_tan(arc_low(v)), arc_tan(arc_high(v)));
    const __m512 most = _mm512_set1_ps(F32_ANGLE_MAX);
    y = wide_else(wide_normal(x), y, x);
    return _mm512_cmp_ps_mask((__m512)wide_abs(x), most, _CMP_GT_OQ) ? wide_patch(x, y, tanf) : y;
}

#endif
