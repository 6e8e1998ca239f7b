/* gemm_int_tmpl.h: rows of an integer matrix product for one element type.
 *
 * For bool a product is an AND and a sum an OR: counts that are then told from zero.
 * INT_T is the element type, INT_U an unsigned type at least as wide in which products wrap, and
 * INT_NAME the function's name. Products are summed row by row of B, so that the inner loop runs
 * along a row of C. */

/* Sign extension, then modulo. */
#define INT_WIDE(v) ((INT_U)(int64_t)(v))

static tn_status INT_NAME(const gemm_args *g, int64_t e, int64_t i, INT_U *acc) {
    const INT_T *a = (const INT_T *)g->a.data + e * g->a.bs + i * g->a.rs;
    const INT_T *b = (const INT_T *)g->b.data + e * g->b.bs;
    INT_T *c = (INT_T *)g->c + e * g->c_bs + i * g->c_rs;
    int64_t n = g->n;
    memset(acc, 0, (size_t)n * sizeof(INT_U));
    cpu_stretch s = {.n = g->k, .cost = n};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            INT_U x = INT_WIDE(a[k * g->a.cs]);
            const INT_T *row = b + k * g->b.rs;
            if (g->b.cs == 1) {
                for (int64_t j = 0; j < n; j++) acc[j] += x * INT_WIDE(row[j]);
            } else {
                for (int64_t j = 0; j < n; j++) acc[j] += x * INT_WIDE(row[j * g->b.cs]);
            }
        }
    }
    INT_U alpha = (INT_U)g->alpha.i, beta = (INT_U)g->beta.i;
    const INT_T *init = c;
    int64_t init_cs = g->c_cs;
    if (g->init.data) {
        init = (const INT_T *)g->init.data + e * g->init.bs + i * g->init.rs;
        init_cs = g->init.cs;
    }
    for (int64_t j = 0; j < n; j++) {
        INT_U base = beta == 0 ? 0 : beta * INT_WIDE(init[j * init_cs]);
        INT_U v = base + alpha * acc[j];
        c[j * g->c_cs] = g->dtype == TN_BOOL ? (INT_T)(v != 0) : (INT_T)v;
    }
    return s.st;
}

#undef INT_T
#undef INT_U
#undef INT_NAME
#undef INT_WIDE
