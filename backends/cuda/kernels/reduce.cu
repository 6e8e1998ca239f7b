/* reduce.cu: reductions of one element type, in two stages (cuda_reduce_args). */
#include "device.h"

#include "scalar.h"

TMPL_INLINE int64_t reduce_offset(int64_t i, int32_t dims, const int64_t *size,
                                  const int64_t *stride) {
    int64_t at = 0;
    for (int d = 0; d < dims - 1; d++) {
        int64_t q = i / size[d];
        at += (i - q * size[d]) * stride[d];
        i = q;
    }
    return dims ? at + i * stride[dims - 1] : 0;
}

/* Writes a result, whole: by one thread. */
TMPL_INLINE void reduce_write(const cuda_reduce_args &a, int64_t result, A x) {
#if TMPL_IS_FLOAT
    if (a.divide) x = x / (A)a.divisor;
#endif
    if (a.packed)
        ((A *)a.out)[result] = x;
    else
        *(T *)((char *)a.out + reduce_offset(result, a.kept_dims, a.kept_size, a.kept_out)) =
            STORE(x);
}

#include "reduce.h"
