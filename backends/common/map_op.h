/* map_op.h: what a pointwise template needs of the operator that pointwise_ops.inc is at: its formula
 * f_<op> of scalar*.h, the types of its operands and result, and how they are loaded and stored.
 * Included once per operator; takes back what it said of the one before. */

#undef MAP_OUT
#undef MAP_STORE
#undef MAP_T0
#undef MAP_LOAD0
#undef MAP_T1
#undef MAP_LOAD1
#undef MAP_IN
#undef MAP_P

/* The same text for every operator. */
#define MAP_F TMPL_PASTE2(f, OP)
#define MAP_KIND(k) TMPL_PASTE2(MAP_KIND, k)

#if OP_RESULT == 1
#define MAP_OUT uint8_t
#define MAP_STORE(v) (v)
#elif OP_RESULT == 2
#define MAP_OUT R
#define MAP_STORE(v) STORER(v)
#else
#define MAP_OUT T
#define MAP_STORE(v) STORE(v)
#endif

/* ---- Operands ----------------------------------------------------------------------------------*/
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

/* ---- Parameters --------------------------------------------------------------------------------*/
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
