/* reduce_tmpl.h: the inner loops of one reduction for one element type, included by common/reduce.h.
 * Where there is RED_PICK, lanes() looks out for NaN apart, off the chain of steps. */
#define RED_NAME(x) TMPL_PASTE2(x, RED)
#ifdef RED_PICK
#define RED_NAN 1
#define RED_VOID(bad, a) ((bad) ? (A)NAN : (a))
#define RED_BAD(v) ((v) != (v) ? ~(red_mask)0 : (red_mask)0) /* what the comparison gives */
#else
#define RED_PICK(a, x) RED_STEP(a, x)
#define RED_BAD(v) ((red_mask)0)
#define RED_VOID(bad, a) ((void)(bad), (a))
#endif

/* Lane j takes in elements j, j + LANES, ... `a` is a local array of the caller, which compilers keep
 * in registers. */
TMPL_INLINE void RED_NAME(take)(A *a, const T *x, int64_t n, A center) {
    int64_t i = 0;
    (void)center;
#ifdef RED_NAN
    red_mask bad[LANES];
    for (int j = 0; j < LANES; j++) bad[j] = RED_BAD(a[j]);
    for (; i + LANES <= n; i += LANES) {
        GROUP(g, x + i, LANES);
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) {
            A v = GROUP_AT(g, x + i, j);
            a[j] = RED_PICK(a[j], v);
            bad[j] |= RED_BAD(v);
        }
    }
    for (int j = 0; j < LANES; j++) a[j] = RED_VOID(bad[j], a[j]);
#else
    while (i + LANES <= n) {
        A b[LANES];
        int64_t stop = n - i < TURNS * LANES ? n : i + TURNS * LANES;
        GROUP(first, x + i, LANES);
        /* Not from RED_INIT alone: compilers clear arrays by a slow instruction. */
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) b[j] = RED_STEP(RED_INIT, GROUP_AT(first, x + i, j));
        for (i += LANES; i + LANES <= stop; i += LANES) {
            GROUP(g, x + i, LANES);
            TMPL_VECTOR
            for (int j = 0; j < LANES; j++) b[j] = RED_STEP(b[j], GROUP_AT(g, x + i, j));
        }
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) a[j] = RED_JOIN(a[j], b[j]);
    }
#endif
    for (int j = 0; i + j < n; j++) a[j] = RED_STEP(a[j], LOAD(x[i + j]));
}

/* Joins what fresh accumulators take of n elements to acc. */
static void RED_NAME(lanes)(A *acc, const T *x, int64_t n, A center) {
#ifndef RED_NAN
    (void)center;
    if (n == LANES) { /* a short row */
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) {
            A v = RED_STEP(RED_INIT, LOAD(x[j]));
            v = RED_JOIN(RED_INIT, v);
            acc[j] = RED_JOIN(acc[j], v);
        }
        return;
    }
#endif
    A a[LANES];
#ifndef RED_NAN
    if (n > LANES && n <= TURNS * LANES) { /* as take() would, but nothing has to be cleared */
        int64_t i = LANES;
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) a[j] = RED_STEP(RED_INIT, LOAD(x[j]));
        for (; i + LANES <= n; i += LANES) {
            TMPL_VECTOR
            for (int j = 0; j < LANES; j++) a[j] = RED_STEP(a[j], LOAD(x[i + j]));
        }
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) a[j] = RED_JOIN(RED_INIT, a[j]);
        for (int j = 0; i + j < n; j++) a[j] = RED_STEP(a[j], LOAD(x[i + j]));
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) acc[j] = RED_JOIN(acc[j], a[j]);
        return;
    }
#endif
    for (int j = 0; j < LANES; j++) a[j] = RED_INIT;
    RED_NAME(take)(a, x, n, center);
    TMPL_VECTOR
    for (int j = 0; j < LANES; j++) acc[j] = RED_JOIN(acc[j], a[j]);
}

/* Column j takes in x[j] of `rows` rows that are `pitch` elements apart; four at a time, so that the
 * accumulators are read and written once for four elements. */
static void RED_NAME(columns)(A *acc, const T *x, int64_t rows, int64_t pitch, int64_t n,
                              const A *centers) {
    for (; rows >= 4; rows -= 4, x += 4 * pitch) {
        const T *x1 = x + pitch, *x2 = x1 + pitch, *x3 = x2 + pitch;
        TMPL_VECTOR
        for (int64_t j = 0; j < n; j++) {
            const A center = centers ? centers[j] : (A)0;
            (void)center;
            A v0 = LOAD(x[j]), v1 = LOAD(x1[j]), v2 = LOAD(x2[j]), v3 = LOAD(x3[j]);
            A a = RED_PICK(acc[j], v0);
            a = RED_PICK(a, v1);
            a = RED_PICK(a, v2);
            a = RED_PICK(a, v3);
            acc[j] = RED_VOID(RED_BAD(v0) | RED_BAD(v1) | RED_BAD(v2) | RED_BAD(v3), a);
        }
    }
    for (; rows > 0; rows--, x += pitch) {
        TMPL_VECTOR
        for (int64_t j = 0; j < n; j++) {
            const A center = centers ? centers[j] : (A)0;
            (void)center;
            acc[j] = RED_STEP(acc[j], LOAD(x[j]));
        }
    }
}

static void RED_NAME(join)(A *a, const A *b, int64_t n) {
    TMPL_VECTOR
    for (int64_t j = 0; j < n; j++) a[j] = RED_JOIN(a[j], b[j]);
}

TMPL_INLINE void RED_NAME(halve)(A *a, const int lanes, const int half) {
    if (half >= lanes) return;
    TMPL_VECTOR
    for (int j = 0; j < half; j++) a[j] = RED_JOIN(a[j], a[j + half]);
}

/* Written out, so that each step has a length that compilers know. */
TMPL_INLINE A RED_NAME(fold_lanes)(A *a, const int lanes) {
    RED_NAME(halve)(a, lanes, 128);
    RED_NAME(halve)(a, lanes, 64);
    RED_NAME(halve)(a, lanes, 32);
    RED_NAME(halve)(a, lanes, 16);
    RED_NAME(halve)(a, lanes, 8);
    RED_NAME(halve)(a, lanes, 4);
    RED_NAME(halve)(a, lanes, 2);
    RED_NAME(halve)(a, lanes, 1);
    return a[0];
}

static A RED_NAME(fold)(A *a) { return RED_NAME(fold_lanes)(a, LANES); }

#ifndef RED_NAN
/* A row of at least `lanes` elements, and not so many that accumulators have to move up. What is left
 * at the end is read with the elements before it, whose lanes stay as they are. */
TMPL_INLINE A RED_NAME(short_row)(const T *x, int64_t n, A center, const int lanes) {
    A a[LANES];
    int64_t i = lanes;
    (void)center;
    GROUP(first, x, lanes);
    TMPL_VECTOR
    for (int j = 0; j < lanes; j++) a[j] = RED_STEP(RED_INIT, GROUP_AT(first, x, j));
    for (; i + lanes <= n; i += lanes) {
        GROUP(g, x + i, lanes);
        TMPL_VECTOR
        for (int j = 0; j < lanes; j++) a[j] = RED_STEP(a[j], GROUP_AT(g, x + i, j));
    }
    if (i < n) {
        const T *end = x + (n - lanes);
        const int taken = (int)(i + lanes - n);
        GROUP(g, end, lanes);
        TMPL_VECTOR
        for (int j = 0; j < lanes; j++) {
            A with = RED_STEP(a[j], GROUP_AT(g, end, j));
            a[j] = j >= taken ? with : a[j];
        }
    }
    return RED_NAME(fold_lanes)(a, lanes);
}
#endif

static A RED_NAME(few)(const T *x, int64_t n, int64_t stride, A center) {
    A a = RED_INIT;
    (void)center;
    for (int64_t i = 0; i < n; i++) {
        const T *at = (const T *)(const void *)((const char *)x + i * stride);
        a = RED_STEP(a, LOAD(*at));
    }
    return a;
}

/* Packed rows of n elements, n <= FEED, that are `pitch` elements apart. */
static void RED_NAME(rows)(A *out, const T *x, int64_t rows, int64_t pitch, int64_t n,
                           const A *centers) {
    for (int64_t r = 0; r < rows; r++, x += pitch) {
        const A center = centers ? centers[r] : (A)0;
#ifdef RED_NAN
        if (n >= VL) {
            out[r] = extreme_row(x, n, RED_PICK((A)0, (A)1) == 1);
            continue;
        }
#else
        if (n >= FEW_LANES && n < 4 * LANES) {
            out[r] = RED_NAME(short_row)(x, n, center, FEW_LANES);
            continue;
        }
        if (n >= 4 * LANES && n <= TURNS * LANES) {
            out[r] = RED_NAME(short_row)(x, n, center, LANES);
            continue;
        }
#endif
        if (n < LANES) {
            out[r] = RED_NAME(few)(x, n, sizeof(T), center);
            continue;
        }
        A a[LANES];
        for (int j = 0; j < LANES; j++) a[j] = RED_INIT;
        RED_NAME(take)(a, x, n, center);
        out[r] = RED_NAME(fold)(a);
    }
}

static void RED_NAME(clear)(A *a, int64_t n) {
    for (int64_t j = 0; j < n; j++) a[j] = RED_INIT;
}

static const red_op RED_NAME(op) = {RED_NAME(lanes), RED_NAME(columns), RED_NAME(join),
                                    RED_NAME(fold),  RED_NAME(rows),    RED_NAME(few),
                                    RED_NAME(clear)};

#undef RED_NAME
#undef RED
#undef RED_INIT
#undef RED_STEP
#undef RED_JOIN
#undef RED_PICK
#undef RED_NAN
#undef RED_BAD
#undef RED_VOID
