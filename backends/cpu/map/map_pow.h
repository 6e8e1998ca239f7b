/* map_pow.h: powers by a number, which scripts mostly use for squares and roots: those exponents get
 * the loops of square, sqrt and their kin instead of the general formula. Other numbers are declined,
 * so that the general kernel runs. */
#ifndef CPU_MAP_POW_H
#define CPU_MAP_POW_H

#if !TMPL_IS_BOOL
static int pow_cube(int64_t n, void *out, const void *const *in, const cpu_param *params) {
    T *o = out;
    const T *x = in[0];
    (void)params;
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) {
        A v = LOAD(x[i]);
        o[i] = STORE(f_mul(f_mul(v, v), v));
    }
    return 0;
}

static const cpu_map_op op_cube = {
    .flat = pow_cube, .grain = 16384, .nin = 1, .out_size = sizeof(T), .in_size = {sizeof(T)}};

/* The operator on the base alone that equals this power, or NULL. */
static const cpu_map_op *pow_shortcut(A e) {
    if (e == 2) return &TN_(op_square);
    if (e == 3) return &op_cube;
#if TMPL_IS_FLOAT
    if (e == K_(0.5)) return &TN_(op_sqrt);
    if (e == K_(-0.5)) return &TN_(op_rsqrt);
    if (e == K_(-1)) return &TN_(op_reciprocal);
#endif
    return NULL;
}

static tn_status pow_by_number(const tn_call *call, const void *args) {
    const tn_plan *plan = ((const tn_pow_args *)args)->plan;
    T stored;
    (void)call;
    if (!(plan->scalar_mask & 1u << 2)) return TN_DECLINE;
    memcpy(&stored, plan->data[2], sizeof stored);
    A e = LOAD(stored);
#if TMPL_IS_INT
    if (INT_NEGATIVE(e))
        return call->host->fail(TN_E_STATE, 1,
                                "Integers to negative integer powers are not allowed.");
#endif
    const cpu_map_op *op = pow_shortcut(e);
    return op ? cpu_map_run(plan, op, NULL) : TN_DECLINE;
}
#endif

#if TMPL_IS_FLOAT
/* g times the slope of the power `kind` at x, for each element. */
enum { SQUARE, CUBE, SQRT, SQRT_CUBE, INVERSE };
TMPL_INLINE int slope_loop(int kind, int64_t n, T *o, const T *g, const T *xs) {
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) {
        A x = LOAD(xs[i]), slope = x * 2;
        if (kind == CUBE) slope = x * x * 3;
        if (kind == SQRT) slope = f_rsqrt(x) * K_(0.5);
        if (kind == SQRT_CUBE) slope = f_sqrt(x) * K_(1.5);
        if (kind == INVERSE) slope = -(f_reciprocal(x) * f_reciprocal(x));
        o[i] = STORE(LOAD(g[i]) * slope);
    }
    return 0;
}

#define SLOPE_OP(loop)                                                                             \
    { .flat = loop, .grain = 16384, .nin = 2, .out_size = sizeof(T), .in_size = SLOPE_SIZES }
#define SLOPE_SIZES                                                                                \
    { sizeof(T), sizeof(T) }
#define POW_SLOPE(name, kind)                                                                      \
    static int slope_##name(int64_t n, void *o, const void *const *in, const cpu_param *params) {  \
        (void)params;                                                                              \
        return slope_loop(kind, n, o, in[0], in[1]);                                               \
    }                                                                                              \
    static const cpu_map_op op_slope_##name = SLOPE_OP(slope_##name)

POW_SLOPE(square, SQUARE);
POW_SLOPE(cube, CUBE);
POW_SLOPE(sqrt, SQRT);
POW_SLOPE(sqrt_cube, SQRT_CUBE);
POW_SLOPE(inverse, INVERSE);

static tn_status pow_backward_by_number(const tn_call *call, const void *args) {
    const tn_plan *plan = ((const tn__pow_backward_args *)args)->plan;
    T stored;
    (void)call;
    if (!(plan->scalar_mask & 1u << 3)) return TN_DECLINE;
    memcpy(&stored, plan->data[3], sizeof stored);
    A e = LOAD(stored);
    if (e == 2) return cpu_map_run(plan, &op_slope_square, NULL);
    if (e == 3) return cpu_map_run(plan, &op_slope_cube, NULL);
    if (e == K_(0.5)) return cpu_map_run(plan, &op_slope_sqrt, NULL);
    if (e == K_(1.5)) return cpu_map_run(plan, &op_slope_sqrt_cube, NULL);
    if (e == -1) return cpu_map_run(plan, &op_slope_inverse, NULL);
    return TN_DECLINE;
}
#endif

#endif
