/* cast_tmpl.h: the conversion of packed elements from the template's type to CAST_TO. Included by
 * common/cast.h once per target type with CAST_TO (its name), CAST_T (its C type) and CAST_OF(x). */
static void TMPL_PASTE2(cast_to, CAST_TO)(int64_t n, void *dst, const void *src) {
    CAST_T *d = dst;
    const T *s = src;
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) d[i] = CAST_OF(LOAD(s[i]));
}
#undef CAST_TO
#undef CAST_T
#undef CAST_OF
