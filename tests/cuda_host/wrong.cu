/* wrong.cu: kernels that each make one mistake, and their right twins: the proof that the harness
 * sees it. tests/cuda_host/test_checks.py launches them. */
#include "device.h"

typedef struct wrong_args {
    int32_t *data;
    int32_t n, how;
} wrong_args;

/* Touches element n + how: -1 is the last one. */
KERNEL(wrong_global, wrong_args) {
    if (threadIdx.x == 0) a.data[a.n + a.how] += 1;
}

/* Sums over a block; how 1: an element beyond the array, 2: nobody writes the upper half, 3: half of
 * the threads miss the barrier, 4: two barriers on different ways. */
KERNEL(wrong_shared, wrong_args) {
    SHARED(int32_t, sum, CUDA_BLOCK);
    int i = (int)threadIdx.x, half = (int)blockDim.x / 2;
    if (a.how != 2 || i < half) sum[i] = a.data[i];
    if (a.how == 3 && i < half) return;
    if (a.how == 4 && i < half)
        __syncthreads();
    else
        __syncthreads();
    for (int n = half; n > 0; n /= 2) {
        if (i < n) sum[i] += sum[i + n + (a.how == 1 ? CUDA_BLOCK : 0)];
        __syncthreads();
    }
    if (i == 0) a.data[0] = sum[0];
}

/* Sums over a warp; how 1: some lanes of the mask have ended. */
KERNEL(wrong_warp, wrong_args) {
    int i = (int)threadIdx.x;
    if (a.how == 1 && i >= 16) return;
    int32_t x = a.data[i];
    for (int n = 16; n > 0; n /= 2) x += __shfl_down_sync(0xffffffffu, x, (unsigned)n);
    bool all = __all_sync(0xffffffffu, x >= 0);
    if (i == 0 && all) a.data[0] = x;
}
