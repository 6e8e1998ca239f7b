/* counts.cu: numbers of events and waiting times of one element type, drawn by parameters that are tensors
 * (common/counts.h). An element's stream begins at its own number of two words, as on the CPU.
 *
 * types: float */
#include "device.h"

#include "args_counts.h"
#include "counts.h"

/* Element i of an operand, by its index. */
TMPL_INLINE T *counts_at(const cuda_plan &p, int64_t i, int k) {
    int64_t at[CUDA_OPERANDS];
    if (!(p.flags & CUDA_PLAN_STRIDED)) return (T *)p.data[k] + i;
    cuda_find(p, i, at);
    return (T *)((char *)p.data[k] + at[k]);
}

/* `draw(source, first, second)` of each element's parameters. */
template <typename F> TMPL_INLINE void counts_fill(const cuda_counts_args &a, int n, F draw) {
    int64_t i = cuda_thread();
    if (i >= a.plan.numel) return;
    cuda_draws d = cuda_find_draws(a.draws, a.launch);
    counts_source s = {nullptr, rnd_word64(d.seed, d.offset, i)};
    double first = (double)LOAD(*counts_at(a.plan, i, 1));
    double second = n > 1 ? (double)LOAD(*counts_at(a.plan, i, 2)) : 0;
    *counts_at(a.plan, i, 0) = STORE((A)draw(&s, first, second));
}

KERNEL(TN_(counts_poisson), cuda_counts_args) {
    counts_fill(a, 1, [&](counts_source *s, double rate, double) {
        bool fits = rate >= 0;
        if (!fits) cuda_report_kind(a.fault, CUDA_FAULT_PROBABILITY, a.op, 0, 0);
        return fits ? counts_poisson_one(s, rate) : 0;
    });
}

KERNEL(TN_(counts_binomial), cuda_counts_args) {
    counts_fill(a, 2, [&](counts_source *s, double count, double p) {
        return counts_binomial_one(s, count, p);
    });
}

/* A draw that underflows becomes the smallest normal number. */
#if TMPL_DTYPE == TMPL_F64
#define COUNTS_LEAST 0x1p-1022
#elif TMPL_DTYPE == TMPL_F16
#define COUNTS_LEAST 0x1p-14
#else
#define COUNTS_LEAST 0x1p-126
#endif

KERNEL(TN_(counts_gamma), cuda_counts_args) {
    counts_fill(a, 1, [&](counts_source *s, double shape, double) {
        double x = counts_gamma_one(s, shape);
        return x < COUNTS_LEAST ? COUNTS_LEAST : x;
    });
}
