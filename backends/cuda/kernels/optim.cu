/* optim.cu: kernels of one floating type over lists of tensors: optimizer steps, norms, scaling. */
#include "device.h"

#include "adam.h"
#include "args_optim.h"
#include "scalar.h"

/* The block's tensor, and the elements of it that are its own. */
TMPL_INLINE const cuda_step_tensor &step_tensor(const cuda_step_args &a, int64_t *ret_begin,
                                                int64_t *ret_end) {
    int i = 0;
    while ((int)blockIdx.x >= a.first[i + 1]) i++;
    const cuda_step_tensor &t = a.tensor[i];
    int64_t begin = (int64_t)((int)blockIdx.x - a.first[i]) * CUDA_CHUNK;
    *ret_begin = begin + (int)threadIdx.x;
    *ret_end = begin + CUDA_CHUNK < t.n ? begin + CUDA_CHUNK : t.n;
    return t;
}

KERNEL(TN_(sgd_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    T *p = (T *)t.data[0], *b = (T *)t.data[2];
    const T *g = (const T *)t.data[1];
    for (; i < end; i += (int)blockDim.x) {
        A w = LOAD(p[i]), d = LOAD(g[i]) * (A)a.sign;
        if (a.decays) d = d + (A)a.decay * w;
        if (b) {
            A m = a.is_first ? d : LOAD(b[i]) * (A)a.momentum + (A)a.keep * d;
            b[i] = STORE(m);
            d = a.nesterov ? d + (A)a.momentum * m : m;
        }
        p[i] = STORE(w + (A)a.minus_lr * d);
    }
}

/* A thread for each tensor: advances its counter, and says how long its step is. One launch before the
 * step, since no block of that may read a counter that another one has advanced. */
KERNEL(TN_(adam_advance), cuda_step_args) {
    int i = (int)threadIdx.x;
    if (i >= a.n) return;
    void *counter = a.tensor[i].counter;
    double step = a.wide_counters ? *(double *)counter += 1.0 : (double)(*(float *)counter += 1.0f);
    adam_size(a.lr, a.beta1, a.beta2, step, &a.sizes[i].minus_step, &a.sizes[i].root);
}

KERNEL(TN_(adam_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    const cuda_adam_size size = a.sizes ? a.sizes[&t - a.tensor] : t.size;
    T *p = (T *)t.data[0], *m = (T *)t.data[2], *v = (T *)t.data[3], *top = (T *)t.data[4];
    const T *grad = (const T *)t.data[1];
    for (; i < end; i += (int)blockDim.x) {
        A w = LOAD(p[i]) * (A)a.shrink, g = LOAD(grad[i]) * (A)a.sign;
        if (a.coupled) g = g + (A)a.decay * w;
        A mean = f_lerp(LOAD(m[i]), g, (A)a.toward);
        A square = LOAD(v[i]) * (A)a.beta2 + (A)a.square * g * g, under = square;
        m[i] = STORE(mean);
        v[i] = STORE(square);
        if (top) {
            under = f_maximum(LOAD(top[i]), square);
            top[i] = STORE(under);
        }
        p[i] = STORE(w + (A)size.minus_step * mean / (f_sqrt(under) / (A)size.root + (A)a.eps));
    }
}

/* ---- Scaling -----------------------------------------------------------------------------------*/

KERNEL(TN_(scale_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    T *x = (T *)t.data[0];
    const A factor = (A)*a.factor;
    if (factor == (A)1) return;
    for (; i < end; i += (int)blockDim.x) x[i] = STORE(LOAD(x[i]) * factor);
}

/* Whoever finds an element that is not finite writes the same 1. */
KERNEL(TN_(unscale_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    T *x = (T *)t.data[0];
    bool bad = false;
    for (; i < end; i += (int)blockDim.x) {
        A v = LOAD(x[i]);
        bad |= !f_isfinite(v);
        x[i] = STORE(v * (A)a.unscale);
    }
    if (bad) *a.found = 1;
}

/* ---- Norms: a sum for each block, then for each tensor, in a fixed order -----------------------*/

/* A NaN wins. */
TMPL_INLINE double norm_join(int32_t norm, double a, double b) {
    if (norm != CUDA_NORM_LARGEST) return a + b;
    return a > b || a != a ? a : b;
}

/* What the block's threads come to, known to thread 0. */
TMPL_INLINE double norm_block(int32_t norm, double mine) {
    SHARED(double, room, CUDA_BLOCK);
    int lane = (int)threadIdx.x;
    room[lane] = mine;
    __syncthreads();
    for (int n = (int)blockDim.x / 2; n > 0; n /= 2) {
        if (lane < n) room[lane] = norm_join(norm, room[lane], room[lane + n]);
        __syncthreads();
    }
    return room[0];
}

KERNEL(TN_(norm_parts), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    const T *x = (const T *)t.data[0];
    double sum = 0;
    for (; i < end; i += (int)blockDim.x) {
        double v = fabs((double)LOAD(x[i]));
        sum = norm_join(a.norm, a.norm == CUDA_NORM_SQUARES ? v * v : v, sum);
    }
    sum = norm_block(a.norm, sum);
    if (threadIdx.x == 0) a.parts[blockIdx.x] = sum;
}

/* A block for each tensor; half precision has norms of float32. */
KERNEL(TN_(norm_finish), cuda_step_args) {
    double sum = 0;
    int first = a.first[blockIdx.x], end = a.first[blockIdx.x + 1];
    for (int i = first + (int)threadIdx.x; i < end; i += (int)blockDim.x)
        sum = norm_join(a.norm, a.parts[i], sum);
    sum = norm_block(a.norm, sum);
    if (threadIdx.x > 0) return;
    ((A *)a.norms)[blockIdx.x] = (A)(a.norm == CUDA_NORM_SQUARES ? sqrt(sum) : sum);
}
