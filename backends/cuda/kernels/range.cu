/* range.cu: sequences of one element type.
 *
 * types: real */
#include "device.h"

#include "scalar.h"

#if TMPL_DTYPE == TMPL_F64
#define FUSED fma
#else
#define FUSED fmaf
#endif
#define ROUNDED(a) LOAD(STORE(a))

KERNEL(TN_(range), cuda_range_args) {
    int64_t i = cuda_thread();
    if (i >= a.n) return;
#if TMPL_IS_FLOAT
    A x = (A)(a.start.d + (double)i * a.step.d);
#else
    A x = (A)((uint64_t)a.start.i + (uint64_t)i * (uint64_t)a.step.i);
#endif
    ((T *)a.data)[i * a.stride] = STORE(x);
}

/* n elements from `start` to `step`, which is the end. Both halves count from their own end, so that the
 * ends are exact and the sequence is symmetric; floats are rounded once an element, half precision at
 * every step, as on the CPU. */
KERNEL(TN_(linspace), cuda_range_args) {
    int64_t i = cuda_thread(), gaps = a.n > 1 ? a.n - 1 : 1;
    if (i >= a.n) return;
#if TMPL_IS_FLOAT
    typedef A number;
#else
    typedef double number;
#endif
    number first = (number)a.start.d, last = (number)a.step.d;
#if TMPL_IS_HALF
    first = ROUNDED(first), last = ROUNDED(last);
    number step = ROUNDED(ROUNDED(last - first) / ROUNDED((number)gaps));
#else
    number step = (last - first) / (number)gaps;
#endif
    bool rising = i < a.n / 2 || a.n == 1;
    number from = rising ? first : last, by = rising ? step : -step;
    number at = (number)(rising ? i : a.n - 1 - i);
#if TMPL_IS_HALF
    ((T *)a.data)[i * a.stride] = STORE(from + ROUNDED(by * ROUNDED(at)));
#elif TMPL_IS_FLOAT
    ((T *)a.data)[i * a.stride] = STORE(FUSED(by, at, from));
#else
    ((T *)a.data)[i * a.stride] = (T)(int64_t)(from + by * at);
#endif
}
