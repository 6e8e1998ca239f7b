/* cuda_host.h: CUDA C for the processor. Included in front of every kernel source when the harness
 * compiles it as C++: what nvcc has built in becomes calls of grid.c, which runs the threads of a
 * block as fibres. */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define __device__
#define __host__
#define __global__
#define __constant__ static const
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline, unused))
#define __noinline__ __attribute__((noinline, unused))
#define __restrict__

struct host_dim {
    unsigned x, y, z;
};

/* Where the fibre that runs now stands; one block runs on a thread of the processor at a time. */
struct host_position {
    host_dim thread, block, block_size, grid_size;
};

extern "C" {
extern __thread host_position host_now __attribute__((tls_model("initial-exec")));
void *host_shared(const void *site, const char *name, size_t bytes);
void *host_dynamic(void);
void host_barrier(const void *site);
void host_warp(uint32_t mask);
uint64_t host_exchange(uint32_t mask, uint64_t value, int lane);
uint32_t host_vote(uint32_t mask, int predicate);
void host_atomic_enter(void);
void host_atomic_leave(void);
}

#define threadIdx host_now.thread
#define blockIdx host_now.block
#define blockDim host_now.block_size
#define gridDim host_now.grid_size

/* The body, and what the driver finds by name: a function that takes the argument's address, and the
 * argument's size. */
#define HOST_PASTE_(a, b) a##b
#define HOST_PASTE(a, b) HOST_PASTE_(a, b)
#define KERNEL(name, type)                                                                         \
    static void HOST_PASTE(name, _body)(const type &a);                                            \
    extern "C" void name(const void *args) { HOST_PASTE(name, _body)(*(const type *)args); }       \
    extern "C" const size_t HOST_PASTE(name, _bytes) = sizeof(type);                               \
    static void HOST_PASTE(name, _body)(const type &a)
#define SHARED(type, name, count)                                                                  \
    static const char HOST_PASTE(name, _site) = 0;                                                 \
    type *const name = (type *)host_shared(&HOST_PASTE(name, _site), #name, sizeof(type) * (count))

/* Kernels of users have parameters of any number, which lie one behind the other, each on a boundary of
 * 16 bytes. */
template <typename... P> constexpr size_t host_count(void (*)(P...)) { return sizeof...(P); }
template <typename... P> struct host_sizes { size_t of[sizeof...(P) + 1]; };
template <typename... P> constexpr host_sizes<P...> host_sizes_of(void (*)(P...)) {
    return {{sizeof(P)..., 0}};
}
template <typename... P, size_t... I>
inline void host_call_with(void (*f)(P...), const unsigned char *args, std::index_sequence<I...>) {
    size_t at[sizeof...(P) + 1] = {0}, k = 0;
    for (size_t bytes : {sizeof(P)..., (size_t)0}) {
        if (k < sizeof...(P)) at[k + 1] = at[k] + (bytes + 15) / 16 * 16;
        k++;
    }
    f(*(typename std::remove_cv<P>::type const *)(args + at[I])...);
}
template <typename... P> inline void host_call(void (*f)(P...), const void *args) {
    host_call_with(f, (const unsigned char *)args, std::index_sequence_for<P...>());
}
/* Written by nvrtc.c behind a program: its kernels, and where its constants lie. */
#define HOST_ENTRY(name)                                                                           \
    extern "C" void name##_entry(const void *args) { host_call(name, args); }                      \
    extern "C" const size_t name##_count = host_count(name);                                       \
    extern "C" const auto name##_sizes = host_sizes_of(name);
#define HOST_IMAGE                                                                                 \
    extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));                    \
    extern "C" const char _end[] __attribute__((visibility("hidden")));                            \
    extern "C" const char *const host_image[2] = {__ehdr_start, _end};

#define __syncthreads()                                                                            \
    do {                                                                                           \
        static const char site = 0;                                                                \
        host_barrier(&site);                                                                       \
    } while (0)
#define __syncwarp(mask) host_warp(mask)

inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
inline float __fdividef(float a, float b) { return a / b; }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }

/* ---- Warps -------------------------------------------------------------------------------------*/
inline int host_lane(void) {
    const host_position &p = host_now;
    unsigned in_block = p.thread.x + p.block_size.x * (p.thread.y + p.block_size.y * p.thread.z);
    return (int)(in_block % 32);
}

template <typename V> inline V host_shuffle(uint32_t mask, V value, int lane) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = host_exchange(mask, bits, lane);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename V> inline V __shfl_sync(uint32_t mask, V value, int lane) {
    return host_shuffle(mask, value, lane & 31);
}
template <typename V> inline V __shfl_down_sync(uint32_t mask, V value, unsigned by) {
    int lane = host_lane() + (int)by;
    return host_shuffle(mask, value, lane < 32 ? lane : host_lane());
}
template <typename V> inline V __shfl_up_sync(uint32_t mask, V value, unsigned by) {
    int lane = host_lane() - (int)by;
    return host_shuffle(mask, value, lane >= 0 ? lane : host_lane());
}
template <typename V> inline V __shfl_xor_sync(uint32_t mask, V value, int by) {
    return host_shuffle(mask, value, host_lane() ^ by);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) { return host_vote(mask, predicate); }
inline int __any_sync(uint32_t mask, int predicate) { return host_vote(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, int predicate) { return host_vote(mask, predicate) == mask; }

/* ---- Atomics: blocks of several streams run at once ------------------------------------------- */
template <typename V, typename F> inline V host_update(V *at, F f) {
    host_atomic_enter();
    V before = *at;
    *at = f(before);
    host_atomic_leave();
    return before;
}
template <typename V> inline V atomicAdd(V *at, V x) {
    return host_update(at, [x](V old) { return (V)(old + x); });
}
template <typename V> inline V atomicMax(V *at, V x) {
    return host_update(at, [x](V old) { return old > x ? old : x; });
}
template <typename V> inline V atomicMin(V *at, V x) {
    return host_update(at, [x](V old) { return old < x ? old : x; });
}
template <typename V> inline V atomicExch(V *at, V x) {
    return host_update(at, [x](V) { return x; });
}
template <typename V> inline V atomicCAS(V *at, V expected, V x) {
    return host_update(at, [=](V old) { return old == expected ? x : old; });
}

#endif
