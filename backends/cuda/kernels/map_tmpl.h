/* map_tmpl.h: one pointwise operator for one element type. Included once per operator by the generated
 * pointwise_ops.inc (its macros: backends/README.md). */

#include "map_op.h"

#define MAP_NUMBER(k, n) TMPL_PASTE2(MAP_NUMBER, k)(n)

/* The types of operands behind the first. */
#undef MAP_OTHERS
#if OP_NIN == 1
#define MAP_OTHERS
#elif OP_NIN == 2
#define MAP_OTHERS , MAP_T1
#else
#define MAP_OTHERS , MAP_T1, T
#endif

KERNEL(TN_(TMPL_PASTE2(map, OP)), cuda_map_args) {
    enum { span = cuda_span<MAP_OUT, MAP_T0 MAP_OTHERS>::of };
    const cuda_plan &p = a.plan;
    cuda_group g;
    if (!cuda_group_start<span>(p, &g)) return;
    CUDA_SPAN_ARRAY(MAP_OUT, y, span);
    CUDA_SPAN_ARRAY(MAP_T0, x0, span);
    cuda_load(p, g, 1, x0);
#if OP_NIN > 1
    CUDA_SPAN_ARRAY(MAP_T1, x1, span);
    cuda_load(p, g, 2, x1);
#endif
#if OP_NIN > 2
    CUDA_SPAN_ARRAY(T, x2, span);
    cuda_load(p, g, 3, x2);
#endif
#if OP_NIN > 3
    CUDA_SPAN_ARRAY(T, x3, span);
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
#if TMPL_IS_INT && TMPL_PASTE2(CUDA_DIVIDES, OP)
    for (int i = 0; i < span; i++)
        if (i < g.n && x1[i] == 0) cuda_report_kind(a.fault, CUDA_FAULT_DIVISION, a.op, 0, 0);
#endif
#pragma unroll
    for (int i = 0; i < span; i++)
        if (i < g.n) y[i] = MAP_STORE(MAP_F(MAP_IN(i) MAP_P));
    cuda_store(p, g, y);
}
