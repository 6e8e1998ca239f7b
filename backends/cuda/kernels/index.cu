/* index.cu: indexed writes that compute, of one element type: atomically, or in the order of positions.
 * Both say the same of integers; of floats, sums differ in their last places.
 *
 * types: real */
#include "take.h"

#include "scalar.h"

TMPL_INLINE A index_number(const cuda_number &n) {
#if TMPL_IS_FLOAT
    return (A)n.d;
#else
    return (A)n.i;
#endif
}

/* ---- Atomic sums -------------------------------------------------------------------------------*/

#if TMPL_DTYPE >= TMPL_F32 || TMPL_DTYPE == TMPL_I32 || TMPL_DTYPE == TMPL_I64
#if TMPL_DTYPE == TMPL_I64
typedef unsigned long long index_word;
#else
typedef T index_word;
#endif

KERNEL(TN_(index_add), cuda_add_args) {
    char *moved, *reached;
    if (!take_find(a.take, &moved, &reached)) return;
    atomicAdd((index_word *)reached, (index_word)f_mul(*(const T *)moved, index_number(a.alpha)));
}
#endif

/* ---- In order ----------------------------------------------------------------------------------*/

TMPL_INLINE A index_join(const cuda_combine_args &a, A old, A x) {
    switch (a.how) {
    case CUDA_JOIN_ADD: return f_add(old, x, index_number(a.alpha));
    case CUDA_JOIN_MULTIPLY: return f_mul(old, x);
    case CUDA_JOIN_AMAX: return f_maximum(old, x);
    case CUDA_JOIN_AMIN: return f_minimum(old, x);
    default: return x;
    }
}

KERNEL(TN_(index_combine), cuda_combine_args) {
    int64_t i = cuda_thread(), at[CUDA_OPERANDS];
    if (i >= a.n * a.inner.numel) return;
    int64_t first = i / a.inner.numel, offset = a.offset[first], k = first;
    if (offset == CUDA_NOWHERE || (first > 0 && a.offset[first - 1] == offset)) return;
    cuda_find(a.inner, i - first * a.inner.numel, at);
    const char *moved = a.moved + at[0];
    T *reached = (T *)(a.reached + at[1] + offset);
    A result = LOAD(*reached);
    for (; k < a.n && a.offset[k] == offset; k++) {
        int64_t place = cuda_offset(a.position[k], a.dims, a.size, a.stride);
        result = index_join(a, result, LOAD(*(const T *)(moved + place)));
    }
#if TMPL_IS_FLOAT
    if (a.average) result = result * ((A)1 / (A)(k - first));
#endif
    *reached = STORE(result);
}
