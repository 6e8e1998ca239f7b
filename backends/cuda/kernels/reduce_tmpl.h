/* reduce_tmpl.h: the two stages of one reduction, included by common/reduce.h. The threads of a block
 * form `width` columns, one per result; each column sums up in a tree. */
#define RED_NAME(x) TN_(TMPL_PASTE2(x, RED))

static __device__ void RED_NAME(join)(A *column, int lanes, int width, int lane) {
    __syncthreads();
    for (int n = lanes / 2; n > 0; n /= 2) {
        if (lane < n) column[0] = RED_JOIN(column[0], column[n * width]);
        __syncthreads();
    }
}

KERNEL(RED_NAME(reduce), cuda_reduce_args) {
    SHARED(A, sums, CUDA_BLOCK);
    int width = a.width, lanes = (int)blockDim.x / width;
    int of = (int)threadIdx.x % width, lane = (int)threadIdx.x / width;
    int64_t part = blockIdx.x % (unsigned)a.parts;
    int64_t result = (int64_t)(blockIdx.x / (unsigned)a.parts) * width + of;
    A sum = RED_INIT;
    if (result < a.kept) {
        const A center = a.centers ? ((const A *)a.centers)[result] : (A)0;
        const char *in =
            (const char *)a.in + cuda_offset(result, a.kept_dims, a.kept_size, a.kept_in);
        int64_t end = (part + 1) * a.span < a.gone ? (part + 1) * a.span : a.gone;
        (void)center;
        for (int64_t i = part * a.span + lane; i < end; i += lanes) {
            int64_t at = cuda_offset(i, a.gone_dims, a.gone_size, a.gone_in);
            sum = RED_STEP(sum, LOAD(*(const T *)(in + at)));
        }
    }
    sums[threadIdx.x] = sum;
    RED_NAME(join)(&sums[threadIdx.x], lanes, width, lane);
    if (lane > 0 || result >= a.kept) return;
    if (a.parts > 1)
        ((A *)a.partial)[result * a.parts + part] = sums[of];
    else
        reduce_write(a, result, sums[of]);
}

/* One block per result. */
KERNEL(RED_NAME(finish), cuda_reduce_args) {
    SHARED(A, sums, CUDA_BLOCK);
    const A *partial = (const A *)a.partial + (int64_t)blockIdx.x * a.parts;
    int lane = (int)threadIdx.x;
    A sum = RED_INIT;
    for (int i = lane; i < a.parts; i += (int)blockDim.x) sum = RED_JOIN(sum, partial[i]);
    sums[lane] = sum;
    RED_NAME(join)(&sums[lane], (int)blockDim.x, 1, lane);
    if (lane == 0) reduce_write(a, blockIdx.x, sums[0]);
}

#undef RED_NAME
#undef RED
#undef RED_INIT
#undef RED_STEP
#undef RED_JOIN
#undef RED_PICK
