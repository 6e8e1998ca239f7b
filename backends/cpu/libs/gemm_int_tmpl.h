/* gemm_int_tmpl.h: parts of an integer matrix product for one element type.
 *
 * For bool a product is an AND and a sum an OR: counts that are then told from zero.
 * INT_T is the element type, INT_U an unsigned type at least as wide in which products wrap, and
 * INT_(name) a function's name. Rows of A pass a panel, some columns of B packed as INT_U, whose sums stay
 * in registers; where there is hardly more than a row or a column of results, B is read as it lies. */

#define INT_LANES (INT_BYTES / (int)sizeof(INT_U))

typedef INT_U INT_(vec) __attribute__((vector_size(INT_BYTES)));
enum { INT_(columns) = VECTORS * INT_LANES };

/* Sign extension, then modulo. */
TMPL_INLINE INT_U INT_(wide)(INT_T v) { return (INT_U)(int64_t)v; }

/* sums = `rows` rows at `a`, one after the other, times the panel. */
TMPL_INLINE tn_status INT_(pass)(const gemm_args *g, const INT_T *a, const INT_U *panel,
                                 INT_U *sums, const int rows) {
    INT_(vec) acc[ABREAST][VECTORS] = {{{0}}};
    cpu_stretch s = {.n = g->k, .cost = VECTORS * ABREAST};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            TMPL_UNROLL
            for (int v = 0; v < VECTORS; v++) {
                INT_(vec) x;
                memcpy(&x, panel + k * INT_(columns) + v * INT_LANES, sizeof x);
                TMPL_UNROLL
                for (int r = 0; r < rows; r++)
                    acc[r][v] += x * INT_(wide)(a[r * g->a.rs + k * g->a.cs]);
            }
        }
    }
    memcpy(sums, acc, (size_t)rows * sizeof acc[0]);
    return s.st;
}

/* Packs n columns of B at b into a panel, with zeros behind them; some rows at a time, so that columns that
 * are packed are read in order. */
static tn_status INT_(pack)(const gemm_args *g, const INT_T *b, int64_t n, INT_U *panel) {
    cpu_stretch s = {.n = g->k, .cost = INT_(columns)};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin, rows; k < s.end; k += rows) {
            INT_U *to = panel + k * INT_(columns);
            const INT_T *from = b + k * g->b.rs;
            rows = g->b.cs == 1 ? 1 : s.end - k < STRIP ? s.end - k : STRIP;
            if (n < INT_(columns)) memset(to, 0, (size_t)rows * INT_(columns) * sizeof *to);
            if (g->b.cs == 1) {
                for (int64_t c = 0; c < n; c++) to[c] = INT_(wide)(from[c]);
                continue;
            }
            for (int64_t c = 0; c < n; c++)
                for (int64_t r = 0; r < rows; r++)
                    to[r * INT_(columns) + c] = INT_(wide)(from[r * g->b.rs + c * g->b.cs]);
        }
    }
    return s.st;
}

static tn_status INT_(dot)(const INT_T *a, const INT_T *b, int64_t n, INT_U *ret_sum) {
    INT_U sum = 0;
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++) sum += INT_(wide)(a[i]) * INT_(wide)(b[i]);
    *ret_sum = sum;
    return s.st;
}

/* sums = a row of A times n columns of B, rows of which are packed. */
static tn_status INT_(slide)(const gemm_args *g, const INT_T *a, const INT_T *b, int64_t n,
                             INT_U *sums) {
    cpu_stretch s = {.n = g->k, .cost = n};
    memset(sums, 0, (size_t)n * sizeof *sums);
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            const INT_U x = INT_(wide)(a[k * g->a.cs]);
            for (int64_t j = 0; j < n; j++) sums[j] += x * INT_(wide)(b[k * g->b.rs + j]);
        }
    }
    return s.st;
}

/* Row i of the part's results, of the sums of products. */
static void INT_(finish)(const gemm_args *g, const part *p, int64_t i, const INT_U *sums) {
    INT_T *c = (INT_T *)g->c + p->e * g->c_bs + i * g->c_rs + p->j * g->c_cs;
    INT_U alpha = (INT_U)g->alpha.i, beta = (INT_U)g->beta.i;
    const INT_T *init = c;
    int64_t init_cs = g->c_cs;
    if (g->init.data) {
        init = (const INT_T *)g->init.data + p->e * g->init.bs + i * g->init.rs;
        init_cs = g->init.cs;
        init += p->j * init_cs;
    }
    for (int64_t j = 0; j < p->n; j++) {
        INT_U v = alpha * sums[j];
        if (beta != 0) v += beta * INT_(wide)(init[j * init_cs]);
        c[j * g->c_cs] = g->dtype == TN_BOOL ? (INT_T)(v != 0) : (INT_T)v;
    }
}

static tn_status INT_(part)(const gemm_args *g, const part *p) {
    const INT_T *a = (const INT_T *)g->a.data + p->e * g->a.bs + p->i * g->a.rs;
    const INT_T *b = (const INT_T *)g->b.data + p->e * g->b.bs + p->j * g->b.cs;
    INT_U sums[ABREAST * INT_(columns)];
    bool dots = g->a.cs == 1 && g->b.rs == 1 && (g->m <= ABREAST || g->n <= ABREAST);
    tn_status st = TN_OK;
    if (dots || (g->m <= ABREAST && g->b.cs == 1)) {
        for (int64_t i = 0; i < p->m && st == TN_OK; i++) {
            const INT_T *row = a + i * g->a.rs;
            if (!dots) st = INT_(slide)(g, row, b, p->n, sums);
            for (int64_t j = 0; dots && j < p->n && st == TN_OK; j++)
                st = INT_(dot)(row, b + j * g->b.cs, g->k, sums + j);
            INT_(finish)(g, p, p->i + i, sums);
        }
        return st;
    }
    uint64_t bytes;
    void *panel;
    st = cpu_room(room_mul(g->k, INT_(columns)), sizeof(INT_U), &bytes, &panel);
    if (st != TN_OK) return st;
    st = INT_(pack)(g, b, p->n, panel);
    for (int64_t i = 0, rows; i < p->m && st == TN_OK; i += rows) {
        rows = p->m - i < ABREAST ? 1 : ABREAST;
        st = rows == 1 ? INT_(pass)(g, a + i * g->a.rs, panel, sums, 1)
                       : INT_(pass)(g, a + i * g->a.rs, panel, sums, ABREAST);
        for (int64_t r = 0; r < rows && st == TN_OK; r++)
            INT_(finish)(g, p, p->i + i + r, sums + r * INT_(columns));
    }
    cpu_free(NULL, 0, panel, bytes);
    return st;
}

#undef INT_T
#undef INT_U
#undef INT_
#undef INT_LANES
