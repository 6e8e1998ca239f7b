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
static int slope_square(int64_t n, void *out, const void *const *in, const cpu_param *params) {
    T *o = out;
    const T *g = in[0], *x = in[1];
    (void)params;
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) o[i] = STORE(LOAD(g[i]) * (LOAD(x[i]) * 2));
    return 0;
}

static int slope_cube(int64_t n, void *out, const void *const *in, const cpu_param *params) {
    T *o = out;
    const T *g = in[0], *x = in[1];
    (void)params;
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) o[i] = STORE(LOAD(g[i]) * (LOAD(x[i]) * LOAD(x[i]) * 3));
    return 0;
}

static const cpu_map_op op_slope_square = {.flat = slope_square,
                                           .grain = 16384,
                                           .nin = 2,
                                           .out_size = sizeof(T),
                                           .in_size = {sizeof(T), sizeof(T)}};
static const cpu_map_op op_slope_cube = {.flat = slope_cube,
                                         .grain = 16384,
                                         .nin = 2,
                                         .out_size = sizeof(T),
                                         .in_size = {sizeof(T), sizeof(T)}};

static tn_status pow_backward_by_number(const tn_call *call, const void *args) {
    const tn_plan *plan = ((const tn__pow_backward_args *)args)->plan;
    T stored;
    (void)call;
    if (!(plan->scalar_mask & 1u << 3)) return TN_DECLINE;
    memcpy(&stored, plan->data[3], sizeof stored);
    A e = LOAD(stored);
    if (e == 2) return cpu_map_run(plan, &op_slope_square, NULL);
    if (e == 3) return cpu_map_run(plan, &op_slope_cube, NULL);
    return TN_DECLINE;
}
#endif

#endif
