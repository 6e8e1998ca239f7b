/* gemm_few_tmpl.h: the tiles of gemm_few.c for one element type and instruction set. Before each inclusion
 * are defined: FEW_T, FEW(name), FEW_TARGET; the vector type FEW_V of FEW_LANES elements with FEW_LOAD(p),
 * FEW_LOAD_N(p, n) for its first n elements and zeros, FEW_ALL(x), FEW_FMA(a, b, c) = a * b + c, FEW_STORE,
 * FEW_ADD_SUMS(a, b, c, d, to), which adds the sums of four vectors to four elements; and what fits into
 * the registers: FEW_DOT_ROWS rows by DOT_COLS columns of vectors, FEW_ROWS rows of VECTORS vectors. */

/* C = alpha * sums + beta * init for rows of at most `width` columns, n of which are there. */
FEW_TARGET static inline __attribute__((always_inline)) void
FEW(finish)(const gemm_args *g, int64_t e, int64_t i, int64_t rows, int64_t j, int64_t n, int width,
            const FEW_T *sums) {
    FEW_T alpha = (FEW_T)g->alpha.re, beta = (FEW_T)g->beta.re;
    int64_t c_cs = g->c_cs;
    FEW_T *c = (FEW_T *)g->c + e * g->c_bs + i * g->c_rs + j * c_cs;
    gemm_mat init = g->init.data ? g->init : (gemm_mat){g->c, g->c_rs, c_cs, g->c_bs};
    const FEW_T *add = (const FEW_T *)init.data + e * init.bs + i * init.rs + j * init.cs;
    bool plain = n == width && c_cs == 1 && alpha == 1;
    for (int64_t r = 0; r < rows; r++, sums += width, c += g->c_rs, add += init.rs) {
        if (plain && beta == 0) {
            for (int q = 0; q < width; q++) c[q] = sums[q];
        } else if (plain && beta == 1 && init.cs == 1) {
            FEW_T sum[VECTORS * FEW_LANES];
            for (int q = 0; q < width; q++) sum[q] = sums[q] + add[q];
            for (int q = 0; q < width; q++) c[q] = sum[q];
        } else {
            for (int64_t q = 0; q < n; q++) {
                FEW_T v = alpha * sums[q];
                if (beta != 0) v += beta * add[q * init.cs];
                c[q * c_cs] = v;
            }
        }
    }
}

/* ---- Columns of B are packed: products of a row with a column, whole vectors along the sum -------*/

/* The n elements of the sum from p on, at most a vector. */
FEW_TARGET static inline __attribute__((always_inline)) void
FEW(dot_step)(int rows, const FEW_T *a, int64_t lda, const FEW_T *const *b, int64_t p, int64_t n,
              FEW_V (*part)[DOT_COLS]) {
    bool whole = n == FEW_LANES;
    FEW_V x[FEW_DOT_ROWS];
    TMPL_UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = whole ? FEW_LOAD(a + r * lda) : FEW_LOAD_N(a + r * lda, n);
    TMPL_UNROLL
    for (int c = 0; c < DOT_COLS; c++) {
        FEW_V y = whole ? FEW_LOAD(b[c] + p) : FEW_LOAD_N(b[c] + p, n);
        TMPL_UNROLL
        for (int r = 0; r < rows; r++) part[r][c] = FEW_FMA(x[r], y, part[r][c]);
    }
}

FEW_TARGET static inline __attribute__((always_inline)) void
FEW(dot_tile)(int rows, const FEW_T *a, int64_t lda, const FEW_T *const *b, int64_t k,
              FEW_T (*sums)[DOT_COLS]) {
    FEW_V part[FEW_DOT_ROWS][DOT_COLS];
    FEW_V zero = FEW_ALL(0);
    TMPL_UNROLL
    for (int r = 0; r < rows; r++) {
        TMPL_UNROLL
        for (int c = 0; c < DOT_COLS; c++) part[r][c] = zero;
    }
    int64_t p = 0;
    for (; p + FEW_LANES <= k; p += FEW_LANES)
        FEW(dot_step)(rows, a + p, lda, b, p, FEW_LANES, part);
    if (p < k) FEW(dot_step)(rows, a + p, lda, b, p, k - p, part);
    TMPL_UNROLL
    for (int r = 0; r < rows; r++)
        FEW_ADD_SUMS(part[r][0], part[r][1], part[r][2], part[r][3], sums[r]);
}

/* Columns [j, j + n) of entry e, at most DOT_COLS. */
FEW_TARGET static void FEW(dot_columns)(const gemm_args *g, int64_t e, int64_t j, int64_t n) {
    FEW_T sums[FEW_MOST][DOT_COLS] = {{0}};
    const FEW_T *a = (const FEW_T *)g->a.data + e * g->a.bs;
    const FEW_T *b = (const FEW_T *)g->b.data + e * g->b.bs;
    for (int64_t k0 = 0; k0 < g->k; k0 += DOT_DEEP) {
        int64_t k = g->k - k0 < DOT_DEEP ? g->k - k0 : DOT_DEEP, lda = g->a.rs;
        const FEW_T *cols[DOT_COLS];
        for (int64_t c = 0; c < DOT_COLS; c++)
            cols[c] = b + (j + (c < n ? c : n - 1)) * g->b.cs + k0;
        for (int64_t i = 0; i < g->m;) {
            int rows = few_rows(g->m, i, FEW_DOT_ROWS);
            const FEW_T *x = a + i * lda + k0;
            switch (rows) {
            case 1: FEW(dot_tile)(1, x, lda, cols, k, sums + i); break;
            case 2: FEW(dot_tile)(2, x, lda, cols, k, sums + i); break;
            case 3: FEW(dot_tile)(3, x, lda, cols, k, sums + i); break;
#if FEW_DOT_ROWS > 3
            case 4: FEW(dot_tile)(4, x, lda, cols, k, sums + i); break;
            case 5: FEW(dot_tile)(5, x, lda, cols, k, sums + i); break;
            default: FEW(dot_tile)(6, x, lda, cols, k, sums + i); break;
#endif
            }
            i += rows;
        }
    }
    FEW(finish)(g, e, 0, g->m, j, n, DOT_COLS, sums[0]);
}

/* ---- Rows of B are packed: whole vectors along a row of the result -------------------------------*/

FEW_TARGET static inline __attribute__((always_inline)) void
FEW(row_tile)(int rows, int vectors, const FEW_T *a, int64_t rs, int64_t cs, const FEW_T *b,
              int64_t ldb, int64_t k, int64_t last, FEW_T (*sums)[VECTORS * FEW_LANES]) {
    FEW_V part[FEW_ROWS][VECTORS];
    FEW_V zero = FEW_ALL(0);
    TMPL_UNROLL
    for (int r = 0; r < rows; r++) {
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) part[r][v] = zero;
    }
    for (int64_t p = 0; p < k; p++, b += ldb, a += cs) {
        FEW_V y[VECTORS];
        TMPL_UNROLL
        for (int v = 0; v < vectors - 1; v++) y[v] = FEW_LOAD(b + v * FEW_LANES);
        const FEW_T *end = b + (vectors - 1) * FEW_LANES;
        y[vectors - 1] = last == FEW_LANES ? FEW_LOAD(end) : FEW_LOAD_N(end, last);
        TMPL_UNROLL
        for (int r = 0; r < rows; r++) {
            FEW_V x = FEW_ALL(a[r * rs]);
            TMPL_UNROLL
            for (int v = 0; v < vectors; v++) part[r][v] = FEW_FMA(x, y[v], part[r][v]);
        }
    }
    TMPL_UNROLL
    for (int r = 0; r < rows; r++) {
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) FEW_STORE(sums[r] + v * FEW_LANES, part[r][v]);
    }
}

FEW_TARGET static inline __attribute__((always_inline)) void
FEW(row_tiles)(int vectors, const gemm_args *g, int64_t e, int64_t j, int64_t n) {
    const FEW_T *a = (const FEW_T *)g->a.data + e * g->a.bs;
    const FEW_T *b = (const FEW_T *)g->b.data + e * g->b.bs + j;
    int64_t rs = g->a.rs, cs = g->a.cs, ldb = g->b.rs, k = g->k;
    int64_t last = n - (vectors - 1) * FEW_LANES;
    for (int64_t i = 0; i < g->m;) {
        FEW_T sums[FEW_ROWS][VECTORS * FEW_LANES];
        int rows = few_rows(g->m, i, FEW_ROWS);
        const FEW_T *x = a + i * rs;
        switch (rows) {
        case 1: FEW(row_tile)(1, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 2: FEW(row_tile)(2, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 3: FEW(row_tile)(3, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 4: FEW(row_tile)(4, vectors, x, rs, cs, b, ldb, k, last, sums); break;
#if FEW_ROWS > 4
        case 5: FEW(row_tile)(5, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 6: FEW(row_tile)(6, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 7: FEW(row_tile)(7, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        default: FEW(row_tile)(8, vectors, x, rs, cs, b, ldb, k, last, sums); break;
#endif
        }
        FEW(finish)(g, e, i, rows, j, n, VECTORS * FEW_LANES, sums[0]);
        i += rows;
    }
}

/* Columns [j, j + n) of entry e, at most VECTORS vectors of them. */
FEW_TARGET static void FEW(row_columns)(const gemm_args *g, int64_t e, int64_t j, int64_t n) {
    if (n > 2 * FEW_LANES)
        FEW(row_tiles)(3, g, e, j, n);
    else if (n > FEW_LANES)
        FEW(row_tiles)(2, g, e, j, n);
    else
        FEW(row_tiles)(1, g, e, j, n);
}

#undef FEW_T
#undef FEW
#undef FEW_TARGET
#undef FEW_V
#undef FEW_LANES
#undef FEW_LOAD
#undef FEW_LOAD_N
#undef FEW_ALL
#undef FEW_FMA
#undef FEW_STORE
#undef FEW_ADD_SUMS
#undef FEW_DOT_ROWS
#undef FEW_ROWS
