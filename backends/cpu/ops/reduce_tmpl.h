/* reduce_tmpl.h: the inner loops of one reduction for one element type, included by common/reduce.h.
 * Where there is RED_PICK, lanes() looks out for NaN apart, off the chain of steps. */
#define RED_NAME(x) TMPL_PASTE2(x, RED)

/* Lane j takes in elements j, j + LANES, ... `a` is a local array of the caller, which compilers keep
 * in registers. */
TMPL_INLINE void RED_NAME(take)(A *a, const T *x, int64_t n, A center) {
    int64_t i = 0;
    (void)center;
#ifdef RED_PICK
    red_mask bad[LANES];
    for (int j = 0; j < LANES; j++) bad[j] = a[j] != a[j] ? ~(red_mask)0 : 0;
    for (; i + LANES <= n; i += LANES) {
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) {
            A v = LOAD(x[i + j]);
            a[j] = RED_PICK(a[j], v);
            bad[j] |= v != v ? ~(red_mask)0 : 0; /* what the comparison gives */
        }
    }
    for (int j = 0; j < LANES; j++) a[j] = bad[j] ? (A)NAN : a[j];
#else
    while (i + LANES <= n) {
        A b[LANES];
        int64_t stop = n - i < TURNS * LANES ? n : i + TURNS * LANES;
        /* Not from RED_INIT alone: compilers clear arrays by a slow instruction. */
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) b[j] = RED_STEP(RED_INIT, LOAD(x[i + j]));
        for (i += LANES; i + LANES <= stop; i += LANES) {
            TMPL_VECTOR
            for (int j = 0; j < LANES; j++) b[j] = RED_STEP(b[j], LOAD(x[i + j]));
        }
        TMPL_VECTOR
        for (int j = 0; j < LANES; j++) a[j] = RED_JOIN(a[j], b[j]);
    }
#endif
    for (int j = 0; i + j < n; j++) a[j] = RED_STEP(a[j], LOAD(x[i + j]));
}

static void RED_NAME(lanes)(A *acc, const T *x, int64_t n, A center) {
    A a[LANES];
    memcpy(a, acc, sizeof a);
    RED_NAME(take)(a, x, n, center);
    memcpy(acc, a, sizeof a);
}

/* Column j takes in x[j]. */
static void RED_NAME(columns)(A *acc, const T *x, int64_t n, const A *centers) {
    TMPL_VECTOR
    for (int64_t j = 0; j < n; j++) {
        const A center = centers ? centers[j] : (A)0;
        (void)center;
        acc[j] = RED_STEP(acc[j], LOAD(x[j]));
    }
}

static void RED_NAME(join)(A *a, const A *b, int64_t n) {
    TMPL_VECTOR
    for (int64_t j = 0; j < n; j++) a[j] = RED_JOIN(a[j], b[j]);
}

static A RED_NAME(fold)(A *a) {
    TMPL_UNROLL
    for (int w = LANES / 2; w > 0; w /= 2) {
        TMPL_VECTOR
        for (int j = 0; j < w; j++) a[j] = RED_JOIN(a[j], a[j + w]);
    }
    return a[0];
}

/* A whole short row. */
static A RED_NAME(row)(const T *x, int64_t n, A center) {
    A a[LANES];
    for (int j = 0; j < LANES; j++) a[j] = RED_INIT;
    RED_NAME(take)(a, x, n, center);
    return RED_NAME(fold)(a);
}

static A RED_NAME(few)(const T *x, int64_t n, int64_t stride, A center) {
    A a = RED_INIT;
    (void)center;
    for (int64_t i = 0; i < n; i++) {
        const T *at = (const T *)(const void *)((const char *)x + i * stride);
        a = RED_STEP(a, LOAD(*at));
    }
    return a;
}

static void RED_NAME(clear)(A *a, int64_t n) {
    for (int64_t j = 0; j < n; j++) a[j] = RED_INIT;
}

static const red_op RED_NAME(op) = {RED_NAME(lanes), RED_NAME(columns), RED_NAME(join),
                                    RED_NAME(fold),  RED_NAME(row),     RED_NAME(few),
                                    RED_NAME(clear)};

#undef RED_NAME
#undef RED
#undef RED_INIT
#undef RED_STEP
#undef RED_JOIN
#undef RED_PICK
