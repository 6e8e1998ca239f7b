/* map.cu: the pointwise kernels of one element type, from the formulas in common/scalar*.h.
 *
 * types: all */
#include "device.h"

#include "scalar.h"

/* The type of a number of the call by its kind: 0 Scalar, 1 float, 2 int or bool. */
#define MAP_KIND_0 A
#if TMPL_IS_COMPLEX
#define MAP_KIND_1 RA
#define MAP_NUMBER_0(n) COMPLEX_((RA)(n).d, (RA)(n).im)
#elif TMPL_IS_FLOAT
#define MAP_KIND_1 RA
#define MAP_NUMBER_0(n) ((A)(n).d)
#else
#define MAP_KIND_1 double
#define MAP_NUMBER_0(n) ((A)(n).i)
#endif
#define MAP_KIND_2 int64_t
#define MAP_NUMBER_1(n) ((MAP_KIND_1)(n).d)
#define MAP_NUMBER_2(n) ((n).i)

#include "pointwise_ops.inc"
