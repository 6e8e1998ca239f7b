/* cast_tmpl.h: the conversion of packed elements from the template's type to CAST_TO. Included by
 * common/cast.h once per target type with CAST_TO (its name), CAST_T (its C type) and CAST_OF(x).
 * float16 is made by instructions where there are some, from blocks of float32. */
#define CAST_IS_f16 1
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
#else
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) d[i] = CAST_OF(LOAD(s[i]));
#endif
}
#undef CAST_IS_f16
#undef CAST_TO
#undef CAST_T
#undef CAST_OF
