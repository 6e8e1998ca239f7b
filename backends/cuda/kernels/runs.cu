/* runs.cu: runs of equal neighbours in a packed row of one element type, and elements that are not zero:
 * counted by parts, numbered, and written once the host knows how many there are.
 *
 * types: all */
#include "device.h"

#include "args_runs.h"

enum { RUNS_EACH = CUDA_PART / CUDA_BLOCK }; /* neighbours that a thread takes */

/* The sum of what the threads up to the calling one bring; all threads of the block take part. */
TMPL_INLINE int64_t runs_scan(int64_t mine, int64_t *ret_total) {
    SHARED(int64_t, sums, CUDA_BLOCK);
    int lane = (int)threadIdx.x;
    __syncthreads();
    sums[lane] = mine;
    for (int step = 1; step < CUDA_BLOCK; step *= 2) {
        __syncthreads();
        int64_t other = lane >= step ? sums[lane - step] : 0;
        __syncthreads();
        sums[lane] += other;
    }
    __syncthreads();
    *ret_total = sums[CUDA_BLOCK - 1];
    return sums[lane];
}

/* Position of the calling thread's first element. */
TMPL_INLINE int64_t runs_start(void) {
    return (int64_t)blockIdx.x * CUDA_PART + (int)threadIdx.x * RUNS_EACH;
}

/* One block: from the runs of each part to those before it. */
KERNEL(TN_(runs_sum), cuda_runs_args) {
    int64_t sum = 0, total;
    for (int64_t begin = 0; begin < a.parts; begin += CUDA_BLOCK) {
        int64_t i = begin + (int)threadIdx.x, mine = i < a.parts ? a.before[i] : 0;
        int64_t upto = runs_scan(mine, &total);
        if (i < a.parts) a.before[i] = sum + upto - mine;
        sum += total;
    }
    if (threadIdx.x == 0) a.before[a.parts] = sum;
}

/* ---- Runs --------------------------------------------------------------------------------------*/

#if !TMPL_IS_COMPLEX
TMPL_INLINE bool runs_begin(const cuda_runs_args &a, int64_t i) {
    const T *x = (const T *)a.x;
    return i < a.n && (i == 0 || LOAD(x[i]) != LOAD(x[i - 1]));
}

KERNEL(TN_(runs_count), cuda_runs_args) {
    int64_t begin = runs_start(), mine = 0, total;
    for (int k = 0; k < RUNS_EACH; k++) mine += runs_begin(a, begin + k);
    runs_scan(mine, &total);
    if (threadIdx.x == 0) a.before[blockIdx.x] = total;
}

KERNEL(TN_(runs_number), cuda_runs_args) {
    int64_t begin = runs_start(), mine = 0, total;
    for (int k = 0; k < RUNS_EACH; k++) mine += runs_begin(a, begin + k);
    int64_t run = a.before[blockIdx.x] + runs_scan(mine, &total) - mine - 1;
    for (int64_t i = begin; i < begin + RUNS_EACH && i < a.n; i++) {
        if (runs_begin(a, i)) a.first[++run] = i;
        a.inverse[i] = run;
    }
}

KERNEL(TN_(runs_write), cuda_runs_args) {
    int64_t i = cuda_thread();
    if (i >= a.runs) return;
    int64_t first = a.first[i], end = i + 1 < a.runs ? a.first[i + 1] : a.n;
    ((T *)a.out)[i] = ((const T *)a.x)[first];
    a.counts[i] = end - first;
}
#endif

/* ---- Elements that are not zero ----------------------------------------------------------------*/

TMPL_INLINE bool nonzero_at(const cuda_nonzero_args &a, int64_t i) {
    const cuda_plan &p = a.plan;
    int64_t at[CUDA_OPERANDS] = {i * (int64_t)sizeof(T)};
    if (i >= p.numel) return false;
    if (p.flags & CUDA_PLAN_STRIDED) cuda_find(p, i, at);
    return LOAD(*(const T *)((const char *)p.data[0] + at[0])) != 0;
}

KERNEL(TN_(nonzero_count), cuda_nonzero_args) {
    int64_t begin = runs_start(), mine = 0, total;
    for (int k = 0; k < RUNS_EACH; k++) mine += nonzero_at(a, begin + k);
    runs_scan(mine, &total);
    if (threadIdx.x == 0) a.before[blockIdx.x] = total;
}

KERNEL(TN_(nonzero_write), cuda_nonzero_args) {
    int64_t begin = runs_start(), mine = 0, total;
    for (int k = 0; k < RUNS_EACH; k++) mine += nonzero_at(a, begin + k);
    int64_t row = a.before[blockIdx.x] + runs_scan(mine, &total) - mine;
    for (int64_t i = begin; i < begin + RUNS_EACH; i++) {
        int64_t rest = i;
        if (!nonzero_at(a, i)) continue;
        for (int d = a.ndim - 1; d >= 0; d--) {
            int64_t q = rest / a.shape[d];
            a.out[row * a.ndim + d] = rest - q * a.shape[d];
            rest = q;
        }
        row++;
    }
}
