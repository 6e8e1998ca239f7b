/* cast_tmpl.h: the conversion to CAST_TO. Included by common/cast.h once per target type with CAST_TO
 * (its name), CAST_T (its C type) and CAST_OF(x). */
KERNEL(TN_(TMPL_PASTE2(cast_to, CAST_TO)), cuda_plan) {
    enum { span = cuda_span<T, CAST_T>::of };
    cuda_group g;
    CUDA_SPAN_ARRAY(T, x, span);
    CUDA_SPAN_ARRAY(CAST_T, y, span);
    if (!cuda_group_start<span>(a, &g)) return;
    cuda_load(a, g, 1, x);
#pragma unroll
    for (int i = 0; i < span; i++)
        if (i < g.n) y[i] = CAST_OF(LOAD(x[i]));
    cuda_store(a, g, y);
}
#undef CAST_TO
#undef CAST_T
#undef CAST_OF
