/* range.cu: sequences of one element type. */
#include "device.h"

#include "scalar.h"

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
