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

TMPL_INLINE A index_join(const cuda_combine_args &a, int how, A old, A x) {
    switch (how) {
    case CUDA_JOIN_ADD: return f_add(old, x, index_number(a.alpha));
    case CUDA_JOIN_MULTIPLY: return f_mul(old, x);
    case CUDA_JOIN_AMAX: return f_maximum(old, x);
    case CUDA_JOIN_AMIN: return f_minimum(old, x);
    default: return x;
    }
}

/* A thread takes N elements, side by side. How: one of CUDA_JOIN_*; -1: what `a` says. */
template <int N, int HOW> TMPL_INLINE void index_combine(const cuda_combine_args &a) {
    typedef cuda_vector<T, N> pack;
    int64_t i = cuda_thread(), at[CUDA_OPERANDS], first, inner = a.inner.numel;
    if (i >= a.n * inner) return;
    if (a.n * inner <= INT32_MAX)
        first = (uint32_t)i / (uint32_t)inner;
    else
        first = i / inner;
    int64_t offset = a.offset[first], k = first;
    if (offset == CUDA_NOWHERE || (first > 0 && a.offset[first - 1] == offset)) return;
    cuda_find(a.inner, i - first * inner, at);
    const char *moved = a.moved + at[0];
    pack *reached = (pack *)(a.reached + at[1] + offset), x = *reached;
    int how = HOW < 0 ? a.how : HOW;
    A result[N];
#pragma unroll
    for (int n = 0; n < N; n++) result[n] = LOAD(x.of[n]);
    for (; k < a.n && a.offset[k] == offset; k++) {
        int64_t place = cuda_offset(a.position[k], a.dims, a.size, a.stride);
        x = *(const pack *)(moved + place);
#pragma unroll
        for (int n = 0; n < N; n++) result[n] = index_join(a, how, result[n], LOAD(x.of[n]));
    }
#if TMPL_IS_FLOAT
    if (a.average) {
        A part = (A)1 / (A)(k - first);
#pragma unroll
        for (int n = 0; n < N; n++) result[n] = result[n] * part;
    }
#endif
#pragma unroll
    for (int n = 0; n < N; n++) x.of[n] = STORE(result[n]);
    *reached = x;
}

KERNEL(TN_(index_combine), cuda_combine_args) { index_combine<1, -1>(a); }
KERNEL(TN_(index_sum), cuda_combine_args) { index_combine<16 / sizeof(T), CUDA_JOIN_ADD>(a); }
