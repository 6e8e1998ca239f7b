/* map_tmpl.h: one pointwise operator for one element type: inner loops and the kernel. Included once
 * per operator by the generated pointwise_ops.inc (its macros: backends/README.md).
 *
 * Operators with a habit define a macro (map_habits.h): FIX_<op> looks for operands that the vector
 * formula does not serve, SPLIT_<op> says that the formula has two parts, CHECK_<op> asks for a test for integer zero divisors, SLOW_<op>
 * says that an element takes about a nanosecond or more, WIDE_<op> that map_wide.h has the formula
 * for whole vectors, BITS_<op> that in half precision it is one of bits. */

#define MAP_NAME(x) TN_(TMPL_PASTE2(x, OP))
#include "common/map_op.h"

#if OP_NIN == 1
#define MAP_SIZES sizeof(MAP_T0)
#elif OP_NIN == 2
#define MAP_SIZES sizeof(MAP_T0), sizeof(MAP_T1)
#elif OP_NIN == 3
#define MAP_SIZES sizeof(MAP_T0), sizeof(MAP_T1), sizeof(T)
#else
#define MAP_SIZES sizeof(MAP_T0), sizeof(MAP_T1), sizeof(T), sizeof(T)
#endif

#if OP_NIN == 1
#define MAP_WIDE(a, b) TMPL_PASTE2(wide, OP)(a MAP_P)
#else
#define MAP_WIDE(a, b) TMPL_PASTE2(wide, OP)(a, b MAP_P)
#endif

/* Operands of a block that was widened. */
#ifdef OP_IN0_BOOL
#define MAP_BLOCK_IN0(i) MAP_LOAD0(x0[at + (i)])
#else
#define MAP_BLOCK_IN0(i) w[0][i]
#endif
#ifdef OP_IN1_BOOL
#define MAP_BLOCK_IN1(i) MAP_LOAD1(x1[at + (i)])
#else
#define MAP_BLOCK_IN1(i) w[1][i]
#endif
#if OP_NIN == 1
#define MAP_BLOCK_IN(i) MAP_BLOCK_IN0(i)
#elif OP_NIN == 2
#define MAP_BLOCK_IN(i) MAP_BLOCK_IN0(i), MAP_BLOCK_IN1(i)
#elif OP_NIN == 3
#define MAP_BLOCK_IN(i) MAP_BLOCK_IN0(i), MAP_BLOCK_IN1(i), w[2][i]
#else
#define MAP_BLOCK_IN(i) MAP_BLOCK_IN0(i), MAP_BLOCK_IN1(i), w[2][i], w[3][i]
#endif

static int MAP_NAME(flat)(int64_t n, void *out, const void *const *in, const cpu_param *params) {
    MAP_OUT *o = out;
    const MAP_T0 *x0 = in[0];
#if OP_NIN > 1
    const MAP_T1 *x1 = in[1];
#endif
#if OP_NIN > 2
    const T *x2 = in[2];
#endif
#if OP_NIN > 3
    const T *x3 = in[3];
#endif
#if OP_NPARAMS > 0
    const MAP_KIND(OP_P0_KIND) p0 = *(const MAP_KIND(OP_P0_KIND) *)(const void *)&params[0];
#endif
#if OP_NPARAMS > 1
    const MAP_KIND(OP_P1_KIND) p1 = *(const MAP_KIND(OP_P1_KIND) *)(const void *)&params[1];
#endif
#if OP_NPARAMS > 2
    const MAP_KIND(OP_P2_KIND) p2 = *(const MAP_KIND(OP_P2_KIND) *)(const void *)&params[2];
#endif
#if OP_NPARAMS > 3
    const MAP_KIND(OP_P3_KIND) p3 = *(const MAP_KIND(OP_P3_KIND) *)(const void *)&params[3];
#endif
    (void)params;
#if TMPL_IS_INT && TMPL_PASTE2(CHECK, OP)
    int zero = 0;
    for (int64_t i = 0; i < n; i++) zero |= x1[i] == 0;
    if (zero) return 1;
#endif
#if TMPL_IS_HALF && TMPL_PASTE2(BITS, OP)
    for (int64_t i = 0; i < n; i++) o[i] = TMPL_PASTE2(bits, OP)(x0[i]);
#elif TMPL_PASTE2(WIDE, OP)
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        vec_store_t(o + i, MAP_WIDE(vec_load_t(x0 + i), vec_load_t(x1 + i)));
    if (i < n) {
        vec v = MAP_WIDE(vec_load_t_n(x0 + i, n - i, 0), vec_load_t_n(x1 + i, n - i, 0));
        vec_store_t_n(o + i, v, n - i);
    }
#elif MAP_IN_BLOCKS
    A w[OP_NIN][MAP_BLOCK], y[MAP_BLOCK];
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < MAP_BLOCK ? n - at : MAP_BLOCK;
#ifndef OP_IN0_BOOL
        half_widen(w[0], x0 + at, m);
#endif
#if OP_NIN > 1 && !defined(OP_IN1_BOOL)
        half_widen(w[1], x1 + at, m);
#endif
#if OP_NIN > 2
        half_widen(w[2], x2 + at, m);
#endif
#if OP_NIN > 3
        half_widen(w[3], x3 + at, m);
#endif
#if OP_RESULT == 1
        (void)y;
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++) o[at + i] = MAP_F(MAP_BLOCK_IN(i) MAP_P);
#else
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++) y[i] = MAP_F(MAP_BLOCK_IN(i) MAP_P);
#if TMPL_PASTE2(FIX, OP)
        for (int64_t i = 0; i < m; i++)
            if (TMPL_PASTE2(far, OP)(MAP_BLOCK_IN(i))) y[i] = TMPL_PASTE2(fix, OP)(MAP_BLOCK_IN(i));
#endif
        half_narrow(o + at, y, m);
#endif
    }
#elif TMPL_PASTE2(FIX, OP) || TMPL_PASTE2(SPLIT, OP)
    A y[MAP_BLOCK];
    for (int64_t at = 0, m; at < n; at += m, x0 += m, o += m) {
        m = n - at < MAP_BLOCK ? n - at : MAP_BLOCK;
#if TMPL_PASTE2(SPLIT, OP)
        int64_t past = 0;
        for (int64_t i = 0; i < m; i++) past += TMPL_PASTE2(past, OP)(MAP_IN(i));
        if (past == 0) {
            TMPL_VECTOR
            for (int64_t i = 0; i < m; i++) y[i] = TMPL_PASTE2(close, OP)(MAP_IN(i));
        } else if (past == m) {
            TMPL_VECTOR
            for (int64_t i = 0; i < m; i++) y[i] = TMPL_PASTE2(away, OP)(MAP_IN(i));
        } else
#endif
        {
            TMPL_VECTOR
            for (int64_t i = 0; i < m; i++) y[i] = MAP_F(MAP_IN(i) MAP_P);
        }
#if TMPL_PASTE2(FIX, OP)
        int odd = 0;
        for (int64_t i = 0; i < m; i++) odd |= TMPL_PASTE2(far, OP)(MAP_IN(i));
        for (int64_t i = 0; odd && i < m; i++)
            if (TMPL_PASTE2(far, OP)(MAP_IN(i))) y[i] = TMPL_PASTE2(fix, OP)(MAP_IN(i));
#endif
        for (int64_t i = 0; i < m; i++) o[i] = STORE(y[i]);
#if OP_NIN > 1
        x1 += m;
#endif
    }
#else
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) o[i] = MAP_STORE(MAP_F(MAP_IN(i) MAP_P));
#endif
    return 0;
}

/* A number as second or first operand is the rule in scripts; half-width and complex types go
 * through a block of copies instead, and so do formulas of whole vectors, whose last bits would differ. */
#if OP_NIN == 2 && !TMPL_IS_HALF && !TMPL_IS_COMPLEX && !TMPL_PASTE2(SLOW, OP) &&                  \
    !TMPL_PASTE2(WIDE, OP) && !defined(OP_IN0_BOOL) && !defined(OP_IN1_BOOL) && OP_NPARAMS < 2
#define MAP_SCALARS 1
static int MAP_NAME(scalar_b)(int64_t n, void *out, const void *const *in,
                              const cpu_param *params) {
    MAP_OUT *o = out;
    const T *x0 = in[0];
    const A b = LOAD(*(const T *)in[1]);
#if OP_NPARAMS > 0
    const MAP_KIND(OP_P0_KIND) p0 = *(const MAP_KIND(OP_P0_KIND) *)(const void *)&params[0];
#endif
    (void)params;
#if TMPL_IS_INT && TMPL_PASTE2(CHECK, OP)
    if (b == 0) return 1;
#endif
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) o[i] = MAP_STORE(MAP_F(LOAD(x0[i]), b MAP_P));
    return 0;
}

static int MAP_NAME(scalar_a)(int64_t n, void *out, const void *const *in,
                              const cpu_param *params) {
    MAP_OUT *o = out;
    const T *x1 = in[1];
    const A a = LOAD(*(const T *)in[0]);
#if OP_NPARAMS > 0
    const MAP_KIND(OP_P0_KIND) p0 = *(const MAP_KIND(OP_P0_KIND) *)(const void *)&params[0];
#endif
    (void)params;
#if TMPL_IS_INT && TMPL_PASTE2(CHECK, OP)
    int zero = 0;
    for (int64_t i = 0; i < n; i++) zero |= x1[i] == 0;
    if (zero) return 1;
#endif
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) o[i] = MAP_STORE(MAP_F(a, LOAD(x1[i]) MAP_P));
    return 0;
}
#endif

/* In half precision: the last operand is a number in the type that is computed in. */
#if TMPL_IS_HALF && TMPL_PASTE2(NUMBER, OP)
#define MAP_NUMBER 1
static int MAP_NAME(number)(int64_t n, void *out, const void *const *in, const cpu_param *params) {
    MAP_OUT *o = out;
    const A number = *(const A *)(const void *)params;
    A w[OP_NIN - 1][MAP_BLOCK], y[MAP_BLOCK];
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < MAP_BLOCK ? n - at : MAP_BLOCK;
        for (int k = 0; k < OP_NIN - 1; k++) {
            const T *x = (const T *)in[k] + at;
#if MAP_IN_BLOCKS
            half_widen(w[k], x, m);
#else
            for (int64_t i = 0; i < m; i++) w[k][i] = LOAD(x[i]);
#endif
        }
#if OP_NIN == 2
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++) y[i] = MAP_F(w[0][i], number);
#if TMPL_PASTE2(FIX, OP)
        for (int64_t i = 0; i < m; i++)
            if (TMPL_PASTE2(far, OP)(w[0][i], number)) y[i] = TMPL_PASTE2(fix, OP)(w[0][i], number);
#endif
#else
        TMPL_VECTOR
        for (int64_t i = 0; i < m; i++) y[i] = MAP_F(w[0][i], w[1][i], number);
#endif
#if MAP_IN_BLOCKS
        half_narrow(o + at, y, m);
#else
        for (int64_t i = 0; i < m; i++) o[at + i] = STORE(y[i]);
#endif
    }
    return 0;
}
#endif

#if TMPL_PASTE2(SLOW, OP) || TMPL_IS_COMPLEX
#define MAP_GRAIN 2048
#else
#define MAP_GRAIN 16384
#endif

static const cpu_map_op MAP_NAME(op) = {
    .flat = MAP_NAME(flat),
#ifdef MAP_SCALARS
    .scalar_b = MAP_NAME(scalar_b),
    .scalar_a = MAP_NAME(scalar_a),
#endif
    .grain = MAP_GRAIN,
    .nin = OP_NIN,
    .out_size = sizeof(MAP_OUT),
    .in_size = {MAP_SIZES},
};

#ifdef MAP_NUMBER
static const cpu_map_op MAP_NAME(number_op) = {
    .flat = MAP_NAME(number),
    .grain = MAP_GRAIN,
    .nin = OP_NIN - 1,
    .out_size = sizeof(MAP_OUT),
    .in_size = {MAP_SIZES},
};
#endif

static tn_status MAP_NAME(k)(const tn_call *call, const void *args) {
    const OP_ARGS *a = args;
    const tn_plan *plan = a->plan;
#if OP_NPARAMS > 0
    cpu_param params[OP_NPARAMS];
#else
    const cpu_param *params = NULL;
#endif
    (void)call;
#if OP_NPARAMS > 0
    MAP_PARAM(0, OP_P0_KIND, OP_P0(a));
#endif
#if OP_NPARAMS > 1
    MAP_PARAM(1, OP_P1_KIND, OP_P1(a));
#endif
#if OP_NPARAMS > 2
    MAP_PARAM(2, OP_P2_KIND, OP_P2(a));
#endif
#if OP_NPARAMS > 3
    MAP_PARAM(3, OP_P3_KIND, OP_P3(a));
#endif
#if TMPL_IS_HALF && TMPL_PASTE2(ROUNDS, OP)
    A *first = (A *)(void *)&params[0];
    *first = LOAD(STORE(*first));
#endif
#ifdef MAP_NUMBER
    cpu_param number;
    if (cpu_map_number(((const tn_view *const *)args)[OP_NIN], &number)) {
        if (!(plan->flags & TN_PLAN_FLAT) || plan->numel > CPU_MAP_SMALL)
            return cpu_map_run(plan, &MAP_NAME(number_op), &number);
        MAP_NAME(number)(plan->numel, plan->data[0], (const void *const *)&plan->data[1], &number);
        return TN_OK;
    }
#endif
    if (CPU_LIKELY((plan->flags & TN_PLAN_FLAT) && plan->numel <= CPU_MAP_SMALL)) {
        const void *const *in = (const void *const *)&plan->data[1];
        int zero;
        if (CPU_LIKELY(plan->scalar_mask == 0))
            zero = MAP_NAME(flat)(plan->numel, plan->data[0], in, params);
#ifdef MAP_SCALARS
        else if (plan->scalar_mask == 1u << 2)
            zero = MAP_NAME(scalar_b)(plan->numel, plan->data[0], in, params);
        else if (plan->scalar_mask == 1u << 1)
            zero = MAP_NAME(scalar_a)(plan->numel, plan->data[0], in, params);
#endif
        else
            return cpu_map_run(plan, &MAP_NAME(op), params);
        return CPU_LIKELY(!zero) ? TN_OK : cpu_map_zero_division();
    }
    return cpu_map_run(plan, &MAP_NAME(op), params);
}

#undef MAP_SIZES
#undef MAP_WIDE
#undef MAP_BLOCK_IN0
#undef MAP_BLOCK_IN1
#undef MAP_BLOCK_IN
#undef MAP_SCALARS
#undef MAP_NUMBER
#undef MAP_GRAIN
