/* optim.cu: kernels of one floating type over lists of tensors: optimizer steps, norms, scaling.
 *
 * types: float */
#include "device.h"

#include "adam.h"
#include "rules.h"

#include "args_optim.h"

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

TMPL_INLINE double step_rate(const cuda_step_args &a) {
    return a.rate ? step_number(a.rate, a.wide_rate) : a.lr;
}

KERNEL(TN_(sgd_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    T *p = (T *)t.data[0], *b = (T *)t.data[2];
    const T *g = (const T *)t.data[1];
    const A minus_lr = (A)-step_rate(a);
    for (; i < end; i += (int)blockDim.x) {
        A w = LOAD(p[i]), d = LOAD(g[i]) * (A)a.sign;
        if (a.decays) d = d + (A)a.decay * w;
        if (b) {
            A m = a.is_first ? d : LOAD(b[i]) * (A)a.momentum + (A)a.keep * d;
            b[i] = STORE(m);
            d = a.nesterov ? d + (A)a.momentum * m : m;
        }
        p[i] = STORE(w + minus_lr * d);
    }
}

/* A thread for each tensor: advances its counter, and says how long its step is. One launch before the
 * step, since no block of that may read a counter that another one has advanced. */
KERNEL(TN_(adam_advance), cuda_step_args) {
    int i = (int)threadIdx.x;
    if (i >= a.n) return;
    double step = step_advance(a.tensor[i].counter[0], a.wide_counters);
    a.sizes[i].adam = adam_size_of(step_rate(a), a.beta1, a.beta2, a.own, step);
}

TMPL_INLINE const cuda_step_size &step_size(const cuda_step_args &a, const cuda_step_tensor &t) {
    return a.sizes ? a.sizes[&t - a.tensor] : t.size;
}

KERNEL(TN_(adam_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    const adam_size size = step_size(a, t).adam;
    T *p = (T *)t.data[0], *m = (T *)t.data[2], *v = (T *)t.data[3], *top = (T *)t.data[4];
    const T *grad = (const T *)t.data[1];
    for (; i < end; i += (int)blockDim.x) {
        A w = LOAD(p[i]) * (A)size.shrink, g = LOAD(grad[i]) * (A)a.sign;
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

/* ---- The other optimizers ----------------------------------------------------------------------*/

/* Like adam_advance. */
KERNEL(TN_(rule_advance), cuda_step_args) {
    int i = (int)threadIdx.x;
    if (i >= a.n) return;
    void *const *counter = a.tensor[i].counter;
    double number[RULE_NUMBERS] = {0, 0};
    int numbers = rule_numbers(a.rule.rule);
    for (int k = 0; k < numbers; k++) number[k] = step_number(counter[1 + k], a.wide_counters);
    double step = step_advance(counter[0], a.wide_counters);
    a.sizes[i].rule = rule_size_of(&a.rule, step_rate(a), step, a.wide_counters, number);
    for (int k = 0; k < numbers; k++) step_set_number(counter[1 + k], a.wide_counters, number[k]);
}

/* The chunk of a block, for one rule. */
template <int RULE> TMPL_INLINE void rule_chunk(const cuda_step_args &a) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    rule_values v = rule_values_of(&a.rule, &step_size(a, t).rule);
    T *p = (T *)t.data[0], *state[RULE_STATES];
    const T *g = (const T *)t.data[1];
#pragma unroll
    for (int k = 0; k < RULE_STATES; k++) {
        state[k] = (T *)t.data[2 + k];
        v.uses[k] = state[k] != nullptr;
    }
    for (; i < end; i += (int)blockDim.x) {
        A s[RULE_STATES] = {0, 0, 0};
#pragma unroll
        for (int k = 0; k < RULE_STATES; k++)
            if (v.uses[k]) s[k] = LOAD(state[k][i]);
        p[i] = STORE(rule_move(RULE, &v, LOAD(p[i]), LOAD(g[i]) * (A)a.sign, s));
#pragma unroll
        for (int k = 0; k < RULE_STATES; k++)
            if (v.uses[k]) state[k][i] = STORE(s[k]);
    }
}

KERNEL(TN_(rule_step), cuda_step_args) {
    switch (a.rule.rule) {
    case RULE_RMSPROP: rule_chunk<RULE_RMSPROP>(a); break;
    case RULE_ADAGRAD: rule_chunk<RULE_ADAGRAD>(a); break;
    case RULE_ADADELTA: rule_chunk<RULE_ADADELTA>(a); break;
    case RULE_ADAMAX: rule_chunk<RULE_ADAMAX>(a); break;
    case RULE_NADAM: rule_chunk<RULE_NADAM>(a); break;
    case RULE_RADAM: rule_chunk<RULE_RADAM>(a); break;
    case RULE_ASGD: rule_chunk<RULE_ASGD>(a); break;
    default: rule_chunk<RULE_RPROP>(a); break;
    }
}

/* ---- Changes of lists --------------------------------------------------------------------------*/

TMPL_INLINE A lists_change(int how, A value, A x, A p, A q) {
    switch (how) {
    case CUDA_LISTS_FILL: return value;
    case CUDA_LISTS_SCALE: return x * value;
    case CUDA_LISTS_DIVIDE: return x / value;
    case CUDA_LISTS_SHIFT: return x + value;
    case CUDA_LISTS_COPY: return p;
    case CUDA_LISTS_ADD: return x + value * p;
    case CUDA_LISTS_MUL: return x * p;
    case CUDA_LISTS_LERP: return f_lerp(x, p, value);
    case CUDA_LISTS_ADDCMUL: return x + value * p * q;
    default: return x + value * p / q;
    }
}

KERNEL(TN_(lists_step), cuda_step_args) {
    int64_t i, end;
    const cuda_step_tensor &t = step_tensor(a, &i, &end);
    T *x = (T *)t.data[0];
    const T *p = (const T *)t.data[1], *q = (const T *)t.data[2];
    bool reads = a.how != CUDA_LISTS_FILL && a.how != CUDA_LISTS_COPY;
    for (; i < end; i += (int)blockDim.x) {
        A old = reads ? LOAD(x[i]) : (A)0, second = p ? LOAD(p[i]) : (A)0;
        x[i] = STORE(lists_change(a.how, (A)a.value, old, second, q ? LOAD(q[i]) : (A)0));
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
