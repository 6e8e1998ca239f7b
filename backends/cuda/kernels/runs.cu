/* runs.cu: runs of equal neighbours in a packed row of one element type, and elements that are not zero:
 * counted by parts, numbered, and written once the host knows how many there are.
 *
 * types: all */
#include "device.h"

#include "args_runs.h"

/* A warp takes neighbouring elements of its block's part, 32 at a turn. */
enum { RUNS_WARPS = CUDA_BLOCK / 32, RUNS_TURNS = CUDA_PART / CUDA_BLOCK };

/* Which of the warp's elements count: a bit for each lane, by turn. */
typedef struct runs_votes {
    uint32_t of[RUNS_TURNS];
    int64_t first; /* the calling thread's element of turn 0 */
} runs_votes;

template <typename F> TMPL_INLINE runs_votes runs_vote(F counts) {
    runs_votes v;
    bool mine[RUNS_TURNS];
    v.first = (int64_t)blockIdx.x * CUDA_PART + (int)threadIdx.x / 32 * 32 * RUNS_TURNS +
              (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < RUNS_TURNS; k++) mine[k] = counts(v.first + k * 32);
#pragma unroll
    for (int k = 0; k < RUNS_TURNS; k++) v.of[k] = __ballot_sync(0xffffffffu, mine[k]);
    return v;
}

/* The sum of what the warps in front of the calling one bring, one number each; all threads of the
 * block take part. */
TMPL_INLINE int64_t runs_scan(int64_t mine, int64_t *ret_total) {
    SHARED(int64_t, sums, RUNS_WARPS);
    int warp = (int)threadIdx.x / 32;
    int64_t before = 0, total = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[warp] = mine;
    __syncthreads();
    for (int k = 0; k < RUNS_WARPS; k++) {
        if (k < warp) before += sums[k];
        total += sums[k];
    }
    *ret_total = total;
    return before;
}

/* How many count in the part, and in front of the calling thread's warp. */
TMPL_INLINE int64_t runs_before(const runs_votes &v, int64_t *ret_total) {
    int n = 0;
    for (int k = 0; k < RUNS_TURNS; k++) n += __popc(v.of[k]);
    return runs_scan(n, ret_total);
}

/* f(i, n, counts) for each of the thread's elements: n count in front of element i, which does or does
 * not. */
template <typename F> TMPL_INLINE void runs_walk(const runs_votes &v, int64_t before, F f) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < RUNS_TURNS; k++) {
        int64_t n = before + __popc(v.of[k] & ((1u << lane) - 1));
        f(v.first + k * 32, n, (v.of[k] >> lane & 1u) != 0);
        before += __popc(v.of[k]);
    }
}

/* One block: from the runs of each part to those before it. A thread takes neighbouring parts. */
KERNEL(TN_(runs_sum), cuda_runs_args) {
    enum { EACH = 16 };
    int64_t sum = 0, total;
    for (int64_t begin = 0; begin < a.parts; begin += CUDA_BLOCK * EACH) {
        int64_t first = begin + (int)threadIdx.x * EACH, part[EACH], upto = 0, n = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) part[k] = first + k < a.parts ? a.before[first + k] : 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) n += part[k];
        upto = n;
        for (int by = 1; by < 32; by *= 2) {
            int64_t other = __shfl_up_sync(0xffffffffu, upto, (unsigned)by);
            if ((int)threadIdx.x % 32 >= by) upto += other;
        }
        int64_t all = __shfl_sync(0xffffffffu, upto, 31);
        int64_t before = sum + runs_scan(all, &total) + upto - n;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (first + k < a.parts) a.before[first + k] = before;
            before += part[k];
        }
        sum += total;
    }
    if (threadIdx.x == 0) a.before[a.parts] = sum;
}

/* ---- Runs --------------------------------------------------------------------------------------*/

#if !TMPL_IS_COMPLEX
TMPL_INLINE runs_votes runs_begin(const cuda_runs_args &a) {
    const T *x = (const T *)a.x;
    return runs_vote(
        [&](int64_t i) { return i < a.n && (i == 0 || LOAD(x[i]) != LOAD(x[i - 1])); });
}

KERNEL(TN_(runs_count), cuda_runs_args) {
    int64_t total;
    runs_before(runs_begin(a), &total);
    if (threadIdx.x == 0) a.before[blockIdx.x] = total;
}

KERNEL(TN_(runs_number), cuda_runs_args) {
    const runs_votes v = runs_begin(a);
    int64_t total, before = a.before[blockIdx.x] + runs_before(v, &total);
    runs_walk(v, before, [&](int64_t i, int64_t n, bool begins) {
        if (i >= a.n) return;
        if (begins) a.first[n] = i;
        a.inverse[i] = begins ? n : n - 1;
    });
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

/* Rarely needed, and long: not repeated. */
static __device__ __noinline__ int64_t nonzero_offset(const cuda_plan &p, int64_t i) {
    int64_t at[CUDA_OPERANDS];
    cuda_find(p, i, at);
    return at[0];
}

TMPL_INLINE runs_votes nonzero_vote(const cuda_nonzero_args &a) {
    const cuda_plan &p = a.plan;
    const char *x = (const char *)p.data[0];
    return runs_vote([&](int64_t i) {
        if (i >= p.numel) return false;
        bool strided = p.flags & CUDA_PLAN_STRIDED;
        int64_t at = strided ? nonzero_offset(p, i) : i * (int64_t)sizeof(T);
        return LOAD(*(const T *)(x + at)) != 0;
    });
}

KERNEL(TN_(nonzero_count), cuda_nonzero_args) {
    int64_t total;
    runs_before(nonzero_vote(a), &total);
    if (threadIdx.x == 0) a.before[blockIdx.x] = total;
}

/* The coordinates of element i, of several dimensions. */
static __device__ __noinline__ void nonzero_split(const cuda_nonzero_args &a, int64_t i,
                                                  int64_t *to) {
    for (int d = a.ndim - 1; d > 0; d--) {
        int64_t size = a.shape[d], q;
        if (a.plan.numel <= INT32_MAX)
            q = (uint32_t)i / (uint32_t)size;
        else
            q = i / size;
        to[d] = i - q * size;
        i = q;
    }
    to[0] = i;
}

KERNEL(TN_(nonzero_write), cuda_nonzero_args) {
    const runs_votes v = nonzero_vote(a);
    int64_t total, before = a.before[blockIdx.x] + runs_before(v, &total);
    runs_walk(v, before, [&](int64_t i, int64_t n, bool counts) {
        if (!counts) return;
        if (a.ndim > 1)
            nonzero_split(a, i, a.out + n * a.ndim);
        else
            a.out[n] = i;
    });
}
