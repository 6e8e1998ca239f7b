/* gemm_tile_tmpl.h: the tiles of gemm_tiles.c for one element type and instruction set. Before each inclusion
 * are defined: TILE_T, TILE(name), TILE_TARGET; the vector type TILE_V of TILE_LANES elements with TILE_LOAD(p),
 * TILE_LOAD_N(p, n) for its first n elements and zeros, TILE_ALL(x), TILE_FMA(a, b, c) = a * b + c, TILE_STORE,
 * TILE_ADD_SUMS(a, b, c, d, to), which adds the sums of four vectors to four elements; and what fits into
 * the registers: TILE_DOT_ROWS rows by DOT_COLS columns of vectors, TILE_ROWS rows of VECTORS vectors;
 * TILE_BLOCK where blocks of packed operands are wanted. */

/* C = alpha * sums + beta * init for rows of at most `width` columns, n of which are there. */
TILE_TARGET static inline __attribute__((always_inline)) void
TILE(finish)(const gemm_args *g, int64_t e, int64_t i, int64_t rows, int64_t j, int64_t n,
             int width, const TILE_T *sums) {
    TILE_T alpha = (TILE_T)g->alpha.re, beta = (TILE_T)g->beta.re;
    int64_t c_cs = g->c_cs;
    TILE_T *c = (TILE_T *)g->c + e * g->c_bs + i * g->c_rs + j * c_cs;
    gemm_mat init = g->init.data ? g->init : (gemm_mat){g->c, g->c_rs, c_cs, g->c_bs};
    const TILE_T *add = (const TILE_T *)init.data + e * init.bs + i * init.rs + j * init.cs;
    bool plain = n == width && c_cs == 1 && alpha == 1;
    for (int64_t r = 0; r < rows; r++, sums += width, c += g->c_rs, add += init.rs) {
        if (plain && beta == 0) {
            for (int q = 0; q < width; q++) c[q] = sums[q];
        } else if (plain && beta == 1 && init.cs == 1) {
            TILE_T sum[VECTORS * TILE_LANES];
            for (int q = 0; q < width; q++) sum[q] = sums[q] + add[q];
            for (int q = 0; q < width; q++) c[q] = sum[q];
        } else {
            for (int64_t q = 0; q < n; q++) {
                TILE_T v = alpha * sums[q];
                if (beta != 0) v += beta * add[q * init.cs];
                c[q * c_cs] = v;
            }
        }
    }
}

/* ---- Columns of B are packed: products of a row with a column, whole vectors along the sum -------*/

/* The n elements of the sum from p on, at most a vector. */
TILE_TARGET static inline __attribute__((always_inline)) void
TILE(dot_step)(int rows, const TILE_T *a, int64_t lda, const TILE_T *const *b, int64_t p, int64_t n,
               TILE_V (*part)[DOT_COLS]) {
    bool whole = n == TILE_LANES;
    TILE_V x[TILE_DOT_ROWS];
    TMPL_UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = whole ? TILE_LOAD(a + r * lda) : TILE_LOAD_N(a + r * lda, n);
    TMPL_UNROLL
    for (int c = 0; c < DOT_COLS; c++) {
        TILE_V y = whole ? TILE_LOAD(b[c] + p) : TILE_LOAD_N(b[c] + p, n);
        TMPL_UNROLL
        for (int r = 0; r < rows; r++) part[r][c] = TILE_FMA(x[r], y, part[r][c]);
    }
}

TILE_TARGET static inline __attribute__((always_inline)) void
TILE(dot_tile)(int rows, const TILE_T *a, int64_t lda, const TILE_T *const *b, int64_t k,
               TILE_T (*sums)[DOT_COLS]) {
    TILE_V part[TILE_DOT_ROWS][DOT_COLS];
    TILE_V zero = TILE_ALL(0);
    TMPL_UNROLL
    for (int r = 0; r < rows; r++) {
        TMPL_UNROLL
        for (int c = 0; c < DOT_COLS; c++) part[r][c] = zero;
    }
    int64_t p = 0;
    for (; p + TILE_LANES <= k; p += TILE_LANES)
        TILE(dot_step)(rows, a + p, lda, b, p, TILE_LANES, part);
    if (p < k) TILE(dot_step)(rows, a + p, lda, b, p, k - p, part);
    TMPL_UNROLL
    for (int r = 0; r < rows; r++)
        TILE_ADD_SUMS(part[r][0], part[r][1], part[r][2], part[r][3], sums[r]);
}

/* Columns [j, j + n) of entry e, at most DOT_COLS. */
TILE_TARGET static void TILE(dot_columns)(const gemm_args *g, int64_t e, int64_t j, int64_t n) {
    TILE_T sums[TILE_MOST][DOT_COLS] = {{0}};
    const TILE_T *a = (const TILE_T *)g->a.data + e * g->a.bs;
    const TILE_T *b = (const TILE_T *)g->b.data + e * g->b.bs;
    for (int64_t k0 = 0; k0 < g->k; k0 += DOT_DEEP) {
        int64_t k = g->k - k0 < DOT_DEEP ? g->k - k0 : DOT_DEEP, lda = g->a.rs;
        const TILE_T *cols[DOT_COLS];
        for (int64_t c = 0; c < DOT_COLS; c++)
            cols[c] = b + (j + (c < n ? c : n - 1)) * g->b.cs + k0;
        for (int64_t i = 0; i < g->m;) {
            int rows = tile_rows(g->m, i, TILE_DOT_ROWS);
            const TILE_T *x = a + i * lda + k0;
            switch (rows) {
            case 1: TILE(dot_tile)(1, x, lda, cols, k, sums + i); break;
            case 2: TILE(dot_tile)(2, x, lda, cols, k, sums + i); break;
            case 3: TILE(dot_tile)(3, x, lda, cols, k, sums + i); break;
#if TILE_DOT_ROWS > 3
            case 4: TILE(dot_tile)(4, x, lda, cols, k, sums + i); break;
            case 5: TILE(dot_tile)(5, x, lda, cols, k, sums + i); break;
            default: TILE(dot_tile)(6, x, lda, cols, k, sums + i); break;
#endif
            }
            i += rows;
        }
    }
    TILE(finish)(g, e, 0, g->m, j, n, DOT_COLS, sums[0]);
}

/* ---- Rows of B are packed: whole vectors along a row of the result -------------------------------*/

TILE_TARGET static inline __attribute__((always_inline)) void
TILE(row_tile)(int rows, int vectors, const TILE_T *a, int64_t rs, int64_t cs, const TILE_T *b,
               int64_t ldb, int64_t k, int64_t last, TILE_T (*sums)[VECTORS * TILE_LANES]) {
    TILE_V part[TILE_ROWS][VECTORS];
    TILE_V zero = TILE_ALL(0);
    TMPL_UNROLL
    for (int r = 0; r < rows; r++) {
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) part[r][v] = zero;
    }
    for (int64_t p = 0; p < k; p++, b += ldb, a += cs) {
        TILE_V y[VECTORS];
        TMPL_UNROLL
        for (int v = 0; v < vectors - 1; v++) y[v] = TILE_LOAD(b + v * TILE_LANES);
        const TILE_T *end = b + (vectors - 1) * TILE_LANES;
        y[vectors - 1] = last == TILE_LANES ? TILE_LOAD(end) : TILE_LOAD_N(end, last);
        TMPL_UNROLL
        for (int r = 0; r < rows; r++) {
            TILE_V x = TILE_ALL(a[r * rs]);
            TMPL_UNROLL
            for (int v = 0; v < vectors; v++) part[r][v] = TILE_FMA(x, y[v], part[r][v]);
        }
    }
    TMPL_UNROLL
    for (int r = 0; r < rows; r++) {
        TMPL_UNROLL
        for (int v = 0; v < vectors; v++) TILE_STORE(sums[r] + v * TILE_LANES, part[r][v]);
    }
}

TILE_TARGET static inline __attribute__((always_inline)) void
TILE(row_tiles)(int vectors, const gemm_args *g, int64_t e, int64_t j, int64_t n) {
    const TILE_T *a = (const TILE_T *)g->a.data + e * g->a.bs;
    const TILE_T *b = (const TILE_T *)g->b.data + e * g->b.bs + j;
    int64_t rs = g->a.rs, cs = g->a.cs, ldb = g->b.rs, k = g->k;
    int64_t last = n - (vectors - 1) * TILE_LANES;
    for (int64_t i = 0; i < g->m;) {
        TILE_T sums[TILE_ROWS][VECTORS * TILE_LANES];
        int rows = tile_rows(g->m, i, TILE_ROWS);
        const TILE_T *x = a + i * rs;
        switch (rows) {
        case 1: TILE(row_tile)(1, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 2: TILE(row_tile)(2, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 3: TILE(row_tile)(3, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 4: TILE(row_tile)(4, vectors, x, rs, cs, b, ldb, k, last, sums); break;
#if TILE_ROWS > 4
        case 5: TILE(row_tile)(5, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 6: TILE(row_tile)(6, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        case 7: TILE(row_tile)(7, vectors, x, rs, cs, b, ldb, k, last, sums); break;
        default: TILE(row_tile)(8, vectors, x, rs, cs, b, ldb, k, last, sums); break;
#endif
        }
        TILE(finish)(g, e, i, rows, j, n, VECTORS * TILE_LANES, sums[0]);
        i += rows;
    }
}

/* Columns [j, j + n) of entry e, at most VECTORS vectors of them. */
TILE_TARGET static void TILE(row_columns)(const gemm_args *g, int64_t e, int64_t j, int64_t n) {
    if (n > 2 * TILE_LANES)
        TILE(row_tiles)(3, g, e, j, n);
    else if (n > TILE_LANES)
        TILE(row_tiles)(2, g, e, j, n);
    else
        TILE(row_tiles)(1, g, e, j, n);
}

#ifdef TILE_BLOCK
/* ---- B is packed, and A where it must be ---------------------------------------------------------*/

/* k rows of n elements, `step` apart, as rows of a panel with zeros behind them. */
TILE_TARGET static void TILE(pack_rows)(const void *from, int64_t step, int64_t k, int64_t n,
                                        void *to) {
    const TILE_T *row = from;
    TILE_T *panel = to;
    for (int64_t p = 0; p < k; p++, row += step, panel += VECTORS * TILE_LANES) {
        for (int v = 0; v < VECTORS; v++) {
            int64_t left = n - v * TILE_LANES;
            const TILE_T *at = row + v * TILE_LANES;
            TILE_STORE(panel + v * TILE_LANES, left >= TILE_LANES ? TILE_LOAD(at)
                                               : left > 0         ? TILE_LOAD_N(at, left)
                                                                  : TILE_ALL(0));
        }
    }
}

TILE_TARGET static void TILE(block_tile)(const gemm_args *g, int64_t e, int64_t i, int64_t m,
                                         int64_t j, int64_t n, const void *strip, int64_t rs,
                                         int64_t cs, const void *panel, int64_t k) {
    enum { WIDTH = VECTORS * TILE_LANES };
    TILE_T sums[TILE_ROWS][WIDTH], turned[WIDTH * TILE_ROWS];
    /* The result is far away where it is large, and wanted as soon as the sums are there. */
    const TILE_T *c = (const TILE_T *)g->c + e * g->c_bs + i * g->c_rs + j * g->c_cs;
    for (int64_t r = 0; r < m && g->c_cs == 1; r++, c += g->c_rs)
        for (int64_t q = 0; q < n; q += TILE_LANES) __builtin_prefetch(c + q, 0, 2);
    switch ((n + TILE_LANES - 1) / TILE_LANES) {
    case 1: TILE(row_tile)(TILE_ROWS, 1, strip, rs, cs, panel, WIDTH, k, TILE_LANES, sums); break;
    case 2: TILE(row_tile)(TILE_ROWS, 2, strip, rs, cs, panel, WIDTH, k, TILE_LANES, sums); break;
    default: TILE(row_tile)(TILE_ROWS, 3, strip, rs, cs, panel, WIDTH, k, TILE_LANES, sums); break;
    }
    if (g->c_cs == 1 || g->c_rs != 1) {
        TILE(finish)(g, e, i, m, j, n, WIDTH, sums[0]);
        return;
    }
    gemm_args t = gemm_transposed(g);
    int32_t item = (int32_t)sizeof(TILE_T);
    cpu_gather_tile(turned, TILE_ROWS * item, sums, WIDTH * item, n, TILE_ROWS, item);
    TILE(finish)(&t, e, j, n, i, m, TILE_ROWS, turned);
}
#endif

#undef TILE_T
#undef TILE
#undef TILE_TARGET
#undef TILE_V
#undef TILE_LANES
#undef TILE_LOAD
#undef TILE_LOAD_N
#undef TILE_ALL
#undef TILE_FMA
#undef TILE_STORE
#undef TILE_ADD_SUMS
#undef TILE_DOT_ROWS
#undef TILE_ROWS
#undef TILE_BLOCK
