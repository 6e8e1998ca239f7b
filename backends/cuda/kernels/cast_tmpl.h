/* cast_tmpl.h: the conversion to CAST_TO. Included by common/cast.h once per target type with CAST_TO
 * (its name), CAST_T (its C type) and CAST_OF(x). */
KERNEL(TN_(TMPL_PASTE2(cast_to, CAST_TO)), cuda_plan) {
    cuda_group g;
    CUDA_ARRAY(T, x);
    CUDA_ARRAY(CAST_T, y);
    if (!cuda_group_start(a, &g)) return;
    cuda_load(a, g, 1, x);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        if (i < g.n) y[i] = CAST_OF(LOAD(x[i]));
    cuda_store(a, g, y);
}
#undef CAST_TO
#undef CAST_T
#undef CAST_OF
