/* map_wide_pow.h: powers of whole vectors of float by AVX-512, in double between: 2^(y log2|x|), with the
 * sign and the special cases of C's pow. Part of map_wide.h.
 *
 * |x| = z 2^k with z in [0.7, 1.4), and log2(z) is that of a c near z, looked up, and a series in z / c - 1,
 * |z / c - 1| < 0.035; c is 1 next to 1, so that small logarithms keep their digits. What the series leave out is
 * below 2^-36 of the logarithm and 2^-32 of the power: errors stay below 0.51 ulp. */
#ifndef CPU_MAP_WIDE_POW_H
#define CPU_MAP_WIDE_POW_H

#define WIDE_pow 1

/* A polynomial in a by its n coefficients, the highest power's first. */
VEC_INLINE __m512d pow_series(__m512d a, const double *b, int n) {
    __m512d sum = _mm512_set1_pd(b[0]);
    TMPL_UNROLL
    for (int i = 1; i < n; i++) sum = _mm512_fmadd_pd(sum, a, _mm512_set1_pd(b[i]));
    return sum;
}

/* 2^(y (k + log2(z))) of eight elements; c names the interval of z. k may be infinite or NaN. */
VEC_INLINE __m256 pow_half(__m256 z, __m256i c, __m256 k, __m256 y) {
    /* Of log2(1 + r) / r and of 2^f: the powers' coefficients, the highest first. */
    static const double log[] = {
        0x1.a61762a7aded9p-3, -0x1.ec709dc3a03fdp-3, 0x1.2776c50ef9bffp-2, -0x1.71547652b82fep-2,
        0x1.ec709dc3a03fdp-2, -0x1.71547652b82fep-1, 0x1.71547652b82fep+0};
    static const double exp[] = {
        0x1.62c0223a5c822p-20, 0x1.ffcbfc588b0c5p-17, 0x1.430912f86c786p-13,
        0x1.5d87fe78a6730p-10, 0x1.3b2ab6fba4e77p-7,  0x1.c6b08d704a0bfp-5,
        0x1.ebfbdff82c58ep-3,  0x1.62e42fefa39efp-1,  1.0};
    __m512i at = _mm512_cvtepi32_epi64(c);
    __m512d inverse = _mm512_permutex2var_pd(_mm512_loadu_pd(table_log[0]), at,
                                             _mm512_loadu_pd(table_log[0] + 8));
    __m512d known = _mm512_permutex2var_pd(_mm512_loadu_pd(table_log[1]), at,
                                           _mm512_loadu_pd(table_log[1] + 8));
    __m512d r = _mm512_fmsub_pd(_mm512_cvtps_pd(z), inverse, _mm512_set1_pd(1.0));
    known = _mm512_add_pd(known, _mm512_cvtps_pd(k));
    __m512d t = _mm512_fmadd_pd(pow_series(r, log, 7), r, known);
    t = _mm512_mul_pd(t, _mm512_cvtps_pd(y));
    /* The second operand stays where one is NaN. */
    t = _mm512_min_pd(_mm512_set1_pd(200.0), _mm512_max_pd(_mm512_set1_pd(-200.0), t));
    __m512d whole = _mm512_roundscale_pd(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512d p = pow_series(_mm512_sub_pd(t, whole), exp, 9);
    return _mm512_cvtpd_ps(_mm512_scalef_pd(p, whole));
}

VEC_INLINE __m256 pow_top(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

VEC_INLINE vec wide_pow(vec base, vec exponent) {
    const __m512 one = _mm512_set1_ps(1.0f), inf = _mm512_set1_ps(INFINITY);
    __m512 x = (__m512)base, y = (__m512)exponent, size = _mm512_abs_ps(x), far = _mm512_abs_ps(y);
    __mmask16 low = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    __m512i bits =
        _mm512_castps_si512(_mm512_mask_mul_ps(size, low, size, _mm512_set1_ps(0x1p23f)));
    __m512i from = _mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f330000));
    __m512i c = _mm512_and_si512(_mm512_srli_epi32(from, 19), _mm512_set1_epi32(15));
    __m512i top = _mm512_and_si512(from, _mm512_set1_epi32((int)0xff800000u));
    __m512 z = _mm512_castsi512_ps(_mm512_sub_epi32(bits, top));
    __m512 k = _mm512_cvtepi32_ps(_mm512_srai_epi32(from, 23));
    k = _mm512_mask_sub_ps(k, low, k, _mm512_set1_ps(23.0f));
    k = _mm512_mask_mov_ps(k, _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_EQ_OQ),
                           _mm512_set1_ps(-INFINITY));
    k = _mm512_mask_mov_ps(k, _mm512_cmp_ps_mask(size, inf, _CMP_NLT_UQ), size);
    z = _mm512_mask_mov_ps(z, _mm512_cmp_ps_mask(size, inf, _CMP_NLT_UQ), one);
    __m256 lo = pow_half(_mm512_castps512_ps256(z), _mm512_castsi512_si256(c),
                         _mm512_castps512_ps256(k), _mm512_castps512_ps256(y));
    __m256 hi = pow_half(pow_top(z), _mm512_extracti32x8_epi32(c, 1), pow_top(k), pow_top(y));
    __m512 result = _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);

    /* Whole exponents of what is below zero give signs, others nothing; infinite ones are whole and even. */
    __m512 part = _mm512_roundscale_ps(y, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512 half = _mm512_mul_ps(y, _mm512_set1_ps(0.5f));
    __m512 half_part = _mm512_roundscale_ps(half, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __mmask16 is_whole = _mm512_cmp_ps_mask(y, part, _CMP_EQ_OQ);
    __mmask16 odd = is_whole & _mm512_cmp_ps_mask(half, half_part, _CMP_NEQ_OQ);
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ) &
                      _mm512_cmp_ps_mask(size, inf, _CMP_LT_OQ);
    result = _mm512_mask_xor_ps(result, odd & negative, result, _mm512_set1_ps(-0.0f));
    result = _mm512_mask_mov_ps(result, below & (__mmask16)~is_whole, _mm512_set1_ps(NAN));
    __mmask16 ones =
        _mm512_cmp_ps_mask(far, _mm512_setzero_ps(), _CMP_EQ_OQ) |
        _mm512_cmp_ps_mask(x, one, _CMP_EQ_OQ) |
        (_mm512_cmp_ps_mask(size, one, _CMP_EQ_OQ) & _mm512_cmp_ps_mask(far, inf, _CMP_EQ_OQ));
    return (vec)_mm512_mask_mov_ps(result, ones, one);
}

#endif
