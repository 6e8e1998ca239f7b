/* device.h: what every kernel starts with: the languages' differences and the walk over a plan.
 *
 * Kernels are CUDA C without launch syntax: nvcc compiles them when the module is built, NVRTC when
 * it is not there, and the host harness (tests/cuda_host) for the processor. A kernel is
 *
 *     KERNEL(name, type_of_its_argument) { ... a.member ... }
 *
 * with the one argument `a`, shared memory is SHARED(type, name, count). */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#define TMPL_CUDA 1
#define TMPL_ISA cuda
#include "tmpl.h"
#include "args.h"

#if !defined(KERNEL) /* the harness brings its own */
#define KERNEL(name, type)                                                                         \
    extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) name(const __grid_constant__ type a)
#define SHARED(type, name, count) __shared__ type name[count]
#endif

TMPL_INLINE int64_t cuda_thread(void) {
    return (int64_t)blockIdx.x * (int64_t)blockDim.x + (int64_t)threadIdx.x;
}

/* Function objects' members. */
#define CUDA_MEMBER __device__ __forceinline__

/* Notes what is wrong with the input, once; the host reports it at its next check. */
TMPL_INLINE void cuda_report_kind(cuda_fault *fault, uint32_t kind, uint64_t op, int64_t index,
                                  int64_t size) {
    if (atomicCAS(&fault->set, 0u, 1u) != 0) return;
    fault->kind = kind;
    fault->op = op;
    fault->index = index;
    fault->size = size;
}
TMPL_INLINE void cuda_report(cuda_fault *fault, uint64_t op, int64_t index, int64_t size) {
    cuda_report_kind(fault, CUDA_FAULT_INDEX, op, index, size);
}

/* Where element i lies, of dimensions whose first one is the fastest. */
TMPL_INLINE int64_t cuda_offset(int64_t i, int32_t dims, const int64_t *size,
                                const int64_t *stride) {
    int64_t at = 0;
    for (int d = 0; d < dims - 1; d++) {
        int64_t q = i / size[d];
        at += (i - q * size[d]) * stride[d];
        i = q;
    }
    return dims ? at + i * stride[dims - 1] : 0;
}

/* Where a kernel's random numbers begin: its own place, in a graph counted from the launch's. */
TMPL_INLINE cuda_draws cuda_find_draws(const cuda_draws &own, const cuda_draws *launch) {
    cuda_draws d = own;
    if (launch) {
        d.seed = launch->seed;
        d.offset += launch->offset;
    }
    return d;
}

/* ---- Walking a plan ----------------------------------------------------------------------------
 * A thread computes a group of neighbouring elements, first .. first + n - 1; on a strided plan without
 * rows a single one, so that neighbouring threads touch neighbouring addresses. */
typedef struct cuda_group {
    int64_t first;
    int32_t n;
    int64_t at[CUDA_OPERANDS]; /* byte offsets of the first one, of a strided plan */
} cuda_group;

/* Elements of a group of operands of these types, all of the plan's; sizes are powers of two. */
template <typename... V> struct cuda_span {
    enum { of = CUDA_SPAN((sizeof(V) | ...)) };
};

/* Rare, and long: not repeated in every kernel. */
static __device__ __noinline__ void cuda_find_wide(const cuda_plan &p, int64_t i, int64_t *at) {
    for (int k = 0; k < CUDA_OPERANDS; k++) at[k] = 0;
    for (int d = 0; d < p.ndim; d++) {
        int64_t q = i / p.size[d], r = i - q * p.size[d];
        for (int k = 0; k < CUDA_OPERANDS; k++) at[k] += r * p.stride[d][k];
        i = q;
    }
}

TMPL_INLINE void cuda_find_narrow(const cuda_plan &p, uint32_t i, int64_t *at) {
    int32_t sum[CUDA_OPERANDS] = {0};
    for (int d = 0; d < p.ndim; d++) {
        uint32_t q = (__umulhi(i, p.by[d].magic) + i) >> p.by[d].shift;
        int32_t r = (int32_t)(i - q * (uint32_t)p.size[d]);
        for (int k = 0; k < CUDA_OPERANDS; k++) sum[k] += r * (int32_t)p.stride[d][k];
        i = q;
    }
    for (int k = 0; k < CUDA_OPERANDS; k++) at[k] = sum[k];
}

/* Byte offsets of element i of every operand. */
TMPL_INLINE void cuda_find(const cuda_plan &p, int64_t i, int64_t *at) {
    if (p.flags & CUDA_PLAN_WIDE) {
        int64_t wide[CUDA_OPERANDS]; /* `at` is to stay in registers */
        cuda_find_wide(p, i, wide);
        for (int k = 0; k < CUDA_OPERANDS; k++) at[k] = wide[k];
    } else {
        cuda_find_narrow(p, (uint32_t)i, at);
    }
}

/* Group number `at` of SPAN elements; false when there is none. */
template <int SPAN> TMPL_INLINE bool cuda_group_at(const cuda_plan &p, int64_t at, cuda_group *g) {
    bool strided = p.flags & CUDA_PLAN_STRIDED;
    int64_t most = strided && !(p.flags & CUDA_PLAN_ROWS) ? 1 : SPAN;
    g->first = at * most;
    if (g->first >= p.numel) return false;
    int64_t left = p.numel - g->first;
    g->n = left < most ? (int32_t)left : (int32_t)most;
    if (strided) cuda_find(p, g->first, g->at);
    return true;
}

/* The calling thread's group; false when there is nothing for it to do. */
template <int SPAN> TMPL_INLINE bool cuda_group_start(const cuda_plan &p, cuda_group *g) {
    return cuda_group_at<SPAN>(p, cuda_thread(), g);
}

/* Some elements, moved at once. */
template <typename V, int N = CUDA_GROUP>
struct alignas(sizeof(V) * N > 16 ? 16 : sizeof(V) * N) cuda_vector {
    V of[N];
};

template <int SPAN> TMPL_INLINE bool cuda_is_whole(const cuda_plan &p, const cuda_group &g) {
    return (p.flags & CUDA_PLAN_VECTORS) && g.n == SPAN;
}

template <typename V, int SPAN>
TMPL_INLINE void cuda_load(const cuda_plan &p, const cuda_group &g, int k, V (&ret_x)[SPAN]) {
    typedef cuda_vector<V, SPAN> vector;
    const V *data = (const V *)p.data[k];
    if (p.values >> k & 1u) {
        for (int i = 0; i < SPAN; i++) ret_x[i] = *(const V *)(const void *)p.value[k];
    } else if (p.flags & CUDA_PLAN_STRIDED) {
        data = (const V *)((const char *)data + g.at[k]);
        if (!(p.flags & CUDA_PLAN_ROWS)) {
            ret_x[0] = *data;
        } else if (p.stride[0][k] == 0) {
            V one = *data;
            for (int i = 0; i < SPAN; i++) ret_x[i] = one;
        } else {
            *(vector *)ret_x = *(const vector *)data;
        }
    } else if (cuda_is_whole<SPAN>(p, g)) {
        *(vector *)ret_x = *(const vector *)(data + g.first);
    } else {
#pragma unroll
        for (int i = 0; i < SPAN; i++)
            if (i < g.n) ret_x[i] = data[g.first + i];
    }
}

template <typename V, int SPAN>
TMPL_INLINE void cuda_store(const cuda_plan &p, const cuda_group &g, const V (&y)[SPAN]) {
    typedef cuda_vector<V, SPAN> vector;
    V *data = (V *)p.data[0];
    if (p.flags & CUDA_PLAN_STRIDED) {
        data = (V *)((char *)data + g.at[0]);
        if (p.flags & CUDA_PLAN_ROWS)
            *(vector *)data = *(const vector *)y;
        else
            *data = y[0];
    } else if (cuda_is_whole<SPAN>(p, g)) {
        *(vector *)(data + g.first) = *(const vector *)y;
    } else {
#pragma unroll
        for (int i = 0; i < SPAN; i++)
            if (i < g.n) data[g.first + i] = y[i];
    }
}

/* An array that cuda_load and cuda_store may use. */
#define CUDA_SPAN_ARRAY(type, name, span) alignas(16) type name[span]
/* The same of a row's kernel. */
#define CUDA_ARRAY(type, name) CUDA_SPAN_ARRAY(type, name, CUDA_GROUP)

#endif
