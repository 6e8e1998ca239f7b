/* gemm_tiny_tmpl.h: one product of few multiplications: TINY_T is the element type, TINY_NAME the
 * function's name. An element is summed in the order of k. */
static void TINY_NAME(const gemm_args *g, int64_t e) {
    const TINY_T *a = (const TINY_T *)g->a.data + e * g->a.bs;
    const TINY_T *b = (const TINY_T *)g->b.data + e * g->b.bs;
    TINY_T *c = (TINY_T *)g->c + e * g->c_bs;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const TINY_T *x = a + i * g->a.rs, *y = b + j * g->b.cs;
            TINY_T sum = x[0] * y[0];
            for (int64_t k = 1; k < g->k; k++) sum += x[k * g->a.cs] * y[k * g->b.rs];
            c[i * g->c_rs + j * g->c_cs] = sum;
        }
    }
}

#undef TINY_T
#undef TINY_NAME
