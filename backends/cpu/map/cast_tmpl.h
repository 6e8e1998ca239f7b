/* cast_tmpl.h: the conversion of packed elements from the template's type to CAST_TO. Included by
 * common/cast.h once per target type with CAST_TO (its name), CAST_T (its C type) and CAST_OF(x).
 * float16 is made by instructions where there are some, from blocks of float32. Vectors before AVX-512
 * convert no whole numbers of 64 bits: blocks whose numbers are small go by a double's last places, or
 * by 32 bits. */
#define CAST_IS_f16 1
#if TMPL_DTYPE == TMPL_I64 && !defined(__AVX512DQ__)
#define CAST_PLACES_f32 1
#define CAST_PLACES_f64 1
#elif TMPL_IS_FLOAT && !TMPL_IS_HALF && !defined(__AVX512DQ__)
#define CAST_NARROW_i64 1
#endif
static void TMPL_PASTE2(cast_to, CAST_TO)(int64_t n, void *dst, const void *src) {
    CAST_T *d = dst;
    const T *s = src;
#if defined(HALF_F16C) && TMPL_DTYPE == TMPL_F32 && TMPL_PASTE2(CAST_IS, CAST_TO)
    half_narrow(d, s, n);
#elif defined(HALF_F16C) && TMPL_DTYPE != TMPL_F16 && TMPL_PASTE2(CAST_IS, CAST_TO)
    float block[256];
    for (int64_t at = 0; at < n; at += 256) {
        int64_t m = n - at < 256 ? n - at : 256;
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++) block[i] = (float)REAL_(LOAD(s[at + i]));
        half_narrow(d + at, block, m);
    }
#elif TMPL_PASTE2(CAST_PLACES, CAST_TO)
    for (int64_t at = 0, m; at < n; at += m, s += m, d += m) {
        const uint64_t one = tmpl_bits64(0x1.8p52), half = UINT64_C(1) << 51;
        uint64_t far = 0;
        m = n - at < 256 ? n - at : 256;
        for (int64_t i = 0; i < m; i++) far |= (uint64_t)s[i] + half;
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++)
            d[i] = (CAST_T)(tmpl_double((uint64_t)s[i] + one) - 0x1.8p52);
        for (int64_t i = 0; far >> 52 != 0 && i < m; i++) d[i] = CAST_OF(s[i]);
    }
#elif TMPL_PASTE2(CAST_NARROW, CAST_TO)
    for (int64_t at = 0, m; at < n; at += m, s += m, d += m) {
        int far = 0;
        m = n - at < 256 ? n - at : 256;
        for (int64_t i = 0; i < m; i++) far |= !(s[i] >= (A)-0x1p31) | !(s[i] < (A)0x1p31);
        if (far) {
            for (int64_t i = 0; i < m; i++) d[i] = CAST_OF(s[i]);
            continue;
        }
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++) d[i] = (int32_t)s[i];
    }
#else
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) d[i] = CAST_OF(LOAD(s[i]));
#endif
}
#undef CAST_IS_f16
#undef CAST_PLACES_f32
#undef CAST_PLACES_f64
#undef CAST_NARROW_i64
#undef CAST_TO
#undef CAST_T
#undef CAST_OF
