/* map_tmpl.h: one pointwise operator for one element type. Included once per operator by the generated
 * pointwise_ops.inc (its macros: backends/README.md); undefines them. */

#define MAP_F TMPL_PASTE2(f, OP)
#define MAP_KIND(k) TMPL_PASTE2(MAP_KIND, k)
#define MAP_NUMBER(k, n) TMPL_PASTE2(MAP_NUMBER, k)(n)

#if OP_RESULT == 1
#define MAP_OUT uint8_t
#define MAP_STORE(v) (v)
#else
#define MAP_OUT T
#define MAP_STORE(v) STORE(v)
#endif

#ifdef OP_IN0_BOOL
#define MAP_T0 uint8_t
#define MAP_LOAD0(v) ((uint8_t)((v) != 0))
#else
#define MAP_T0 T
#define MAP_LOAD0(v) LOAD(v)
#endif
#ifdef OP_IN1_BOOL
#define MAP_T1 uint8_t
#define MAP_LOAD1(v) ((uint8_t)((v) != 0))
#else
#define MAP_T1 T
#define MAP_LOAD1(v) LOAD(v)
#endif

#if OP_NIN == 1
#define MAP_IN(i) MAP_LOAD0(x0[i])
#elif OP_NIN == 2
#define MAP_IN(i) MAP_LOAD0(x0[i]), MAP_LOAD1(x1[i])
#elif OP_NIN == 3
#define MAP_IN(i) MAP_LOAD0(x0[i]), MAP_LOAD1(x1[i]), LOAD(x2[i])
#else
#define MAP_IN(i) MAP_LOAD0(x0[i]), MAP_LOAD1(x1[i]), LOAD(x2[i]), LOAD(x3[i])
#endif

#if OP_NPARAMS == 0
#define MAP_P
#elif OP_NPARAMS == 1
#define MAP_P , p0
#elif OP_NPARAMS == 2
#define MAP_P , p0, p1
#elif OP_NPARAMS == 3
#define MAP_P , p0, p1, p2
#else
#define MAP_P , p0, p1, p2, p3
#endif

KERNEL(TN_(TMPL_PASTE2(map, OP)), cuda_map_args) {
    const cuda_plan &p = a.plan;
    cuda_group g;
    if (!cuda_group_start(p, &g)) return;
    CUDA_ARRAY(MAP_OUT, y);
    CUDA_ARRAY(MAP_T0, x0);
    cuda_load(p, g, 1, x0);
#if OP_NIN > 1
    CUDA_ARRAY(MAP_T1, x1);
    cuda_load(p, g, 2, x1);
#endif
#if OP_NIN > 2
    CUDA_ARRAY(T, x2);
    cuda_load(p, g, 3, x2);
#endif
#if OP_NIN > 3
    CUDA_ARRAY(T, x3);
    cuda_load(p, g, 4, x3);
#endif
#if OP_NPARAMS > 0
    const MAP_KIND(OP_P0_KIND) p0 = MAP_NUMBER(OP_P0_KIND, a.number[0]);
#endif
#if OP_NPARAMS > 1
    const MAP_KIND(OP_P1_KIND) p1 = MAP_NUMBER(OP_P1_KIND, a.number[1]);
#endif
#if OP_NPARAMS > 2
    const MAP_KIND(OP_P2_KIND) p2 = MAP_NUMBER(OP_P2_KIND, a.number[2]);
#endif
#if OP_NPARAMS > 3
    const MAP_KIND(OP_P3_KIND) p3 = MAP_NUMBER(OP_P3_KIND, a.number[3]);
#endif
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        if (i < g.n) y[i] = MAP_STORE(MAP_F(MAP_IN(i) MAP_P));
    cuda_store(p, g, y);
}

#undef MAP_F
#undef MAP_KIND
#undef MAP_NUMBER
#undef MAP_OUT
#undef MAP_STORE
#undef MAP_T0
#undef MAP_LOAD0
#undef MAP_T1
#undef MAP_LOAD1
#undef MAP_IN
#undef MAP_P
#undef OP
#undef OP_ARGS
#undef OP_NIN
#undef OP_RESULT
#undef OP_NPARAMS
#undef OP_P0
#undef OP_P0_KIND
#undef OP_P1
#undef OP_P1_KIND
#undef OP_P2
#undef OP_P2_KIND
#undef OP_P3
#undef OP_P3_KIND
#undef OP_IN0_BOOL
#undef OP_IN1_BOOL
