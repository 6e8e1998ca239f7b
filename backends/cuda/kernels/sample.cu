/* sample.cu: column numbers drawn from rows of weights of one floating type, as on the CPU.
 *
 * types: float */
#include "device.h"

#include "args_sample.h"
#include "draw.h"
#include "philox.h"
#include "scalar.h"

/* The threads of a block have seen the weights of a row between them: none may be negative or not
 * finite, one has to be positive. */
TMPL_INLINE void sample_check(const cuda_sample_args &a, bool bad, bool positive) {
    SHARED(int32_t, found, 2);
    if (threadIdx.x < 2) found[threadIdx.x] = 0;
    __syncthreads();
    if (bad) found[0] = 1;
    if (positive) found[1] = 1;
    __syncthreads();
    if (threadIdx.x == 0 && (found[0] || !found[1]))
        cuda_report_kind(a.fault, CUDA_FAULT_PROBABILITY, a.op, blockIdx.x, a.rows);
}

TMPL_INLINE bool sample_is_weight(A w) { return w >= (A)0 && w < (A)INFINITY; }

/* A block for each row. Weights divided by exponential numbers: the largest are a draw without
 * replacement. */
KERNEL(TN_(sample_scores), cuda_sample_args) {
    const cuda_draws d = cuda_find_draws(a.draws, a.launch);
    int64_t first = (int64_t)blockIdx.x * a.columns;
    const T *weights = (const T *)a.weights + first;
    bool bad = false, positive = false;
    for (int64_t c = (int)threadIdx.x; c < a.columns; c += (int)blockDim.x) {
        A w = LOAD(weights[c]);
        double e = -log(rnd_open_f64(rnd_word64(d.seed, d.offset, first + c)));
        double q = (double)LOAD(STORE((A)e));
        bad |= !sample_is_weight(w);
        positive |= w > (A)0;
        ((T *)a.scores)[first + c] = STORE((A)((double)w / q));
    }
    sample_check(a, bad, positive);
}

/* A block for each row: running sums, in the precision of the weights (float for the halves), which is
 * why one thread adds. */
KERNEL(TN_(sample_sums), cuda_sample_args) {
    SHARED(A, tile, CUDA_BLOCK);
    SHARED(A, total, 1);
    int64_t first = (int64_t)blockIdx.x * a.columns;
    const T *weights = (const T *)a.weights + first;
    double *sums = a.sums + first;
    bool bad = false, positive = false;
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    if (lane == 0) total[0] = 0;
    for (int64_t begin = 0; begin < a.columns; begin += lanes) {
        int n = a.columns - begin < lanes ? (int)(a.columns - begin) : lanes;
        if (lane < n) {
            A w = LOAD(weights[begin + lane]);
            bad |= !sample_is_weight(w);
            positive |= w > (A)0;
            tile[lane] = w;
        }
        __syncthreads();
        for (int i = 0; i < n && lane == 0; i++) tile[i] = total[0] += tile[i];
        __syncthreads();
        if (lane < n) sums[begin + lane] = (double)tile[lane];
        __syncthreads();
    }
    for (int64_t c = lane; c < a.columns; c += lanes)
        sums[c] = c == a.columns - 1 ? 1 : (double)(A)(sums[c] / (double)total[0]);
    sample_check(a, bad, positive);
}

/* A thread for each number: the first sum that is not below a uniform number. */
KERNEL(TN_(sample_find), cuda_sample_args) {
    int64_t t = cuda_thread(), row = t / a.k;
    if (row >= a.rows) return;
    const cuda_draws d = cuda_find_draws(a.draws, a.launch);
    const double *sums = a.sums + row * a.columns;
    const double x = rnd_f64_of(rnd_word64(d.seed, d.offset, t));
    a.drawn[t] = draw_find(sums, a.columns, x);
}
