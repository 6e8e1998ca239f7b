/* reduce.cu: reductions of one element type, in two stages (cuda_reduce_args).
 *
 * types: all */
#include "device.h"

#include "scalar.h"

/* Writes a result, whole: by one thread. */
TMPL_INLINE void reduce_write(const cuda_reduce_args &a, int64_t result, A x) {
#if TMPL_IS_FLOAT
    if (a.divide) x = x / (A)a.divisor;
#elif TMPL_IS_COMPLEX
    if (a.divide) x = COMPLEX_(RE_(x) / (RA)a.divisor, IM_(x) / (RA)a.divisor);
#endif
    if (a.packed) {
        ((A *)a.out)[result] = x;
        return;
    }
    char *out = (char *)a.out + cuda_offset(result, a.kept_dims, a.kept_size, a.kept_out);
#if TMPL_IS_COMPLEX
    if (a.real) {
        *(R *)out = STORER(RE_(x));
        return;
    }
#endif
    *(T *)out = STORE(x);
}

#include "reduce.h"
