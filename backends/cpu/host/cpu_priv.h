/* cpu_priv.h: what the files of the CPU plugin share: the worker pool, the operating system (os.c),
 * the instruction set in use (isa.c), and how a family of kernels presents its rows. Kernels that
 * are compiled per element type or instruction set include common/tmpl.h as well. */
#ifndef CPU_PRIV_H
#define CPU_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tenon/plugin.h>

#include "common/room.h"
#include "common/rows.h"

#if defined(__GNUC__)
#define CPU_LIKELY(x) __builtin_expect(!!(x), 1)
#define CPU_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CPU_NOINLINE __attribute__((noinline, cold))
#define CPU_TLS __thread __attribute__((tls_model("initial-exec")))
#else
#define CPU_LIKELY(x) (x)
#define CPU_UNLIKELY(x) (x)
#define CPU_NOINLINE
#define CPU_TLS _Thread_local
#endif

/* The host table, set before anything else runs. */
extern const tn_host *cpu_host;

/* ---- Kernel rows -------------------------------------------------------------------------------
 * Every kernel file ends with one cpu_rows, whose name follows from its head. */
typedef kernel_rows cpu_rows;
#define CPU_ROWS_OF(array) KERNEL_ROWS_OF(array)

/* ---- threads.c ---------------------------------------------------------------------------------*/
typedef tn_status (*cpu_body)(void *arg, int64_t begin, int64_t end);
/* Runs body(arg, begin, end) over [0, n) in chunks of at least `grain` items on the pool and
 * returns the first failure. The split depends on n and grain alone. Called from inside a body it
 * runs serially, with the same split. */
tn_status cpu_parallel(int64_t n, int64_t grain, cpu_body body, void *arg);
/* For long work inside one item, about once a millisecond: not TN_OK says that it is to stop. */
tn_status cpu_poll(void);
/* A loop over n, by stretches between which it is asked whether to go on; `cost` is that of an item, 1
 * for a few instructions:
 *     cpu_stretch s = {.n = n, .cost = 1};
 *     while (cpu_next_stretch(&s))
 *         for (int64_t i = s.begin; i < s.end; i++) ...
 *     return s.st; */
typedef struct cpu_stretch {
    int64_t n, cost;
    int64_t begin, end;
    tn_status st;
} cpu_stretch;
static inline bool cpu_next_stretch(cpu_stretch *s) {
    const int64_t most = 1 << 16, length = s->cost > 1 ? most / s->cost + 1 : most;
    if (s->end > 0 && s->end < s->n) s->st = cpu_poll();
    s->begin = s->end;
    s->end = s->n - s->begin < length ? s->n : s->begin + length;
    return s->st == TN_OK && s->begin < s->n;
}
/* Memory that is new is given its pages here, which takes time. */
static inline tn_status cpu_clear(void *p, int64_t bytes) {
    cpu_stretch s = {.n = bytes, .cost = 1};
    while (cpu_next_stretch(&s)) memset((char *)p + s.begin, 0, (size_t)(s.end - s.begin));
    return s.st;
}
int32_t cpu_threads_get(void);
tn_status cpu_threads_set(int32_t threads);
extern const tn_threads_iface cpu_threads_iface;

/* ---- alloc.c -----------------------------------------------------------------------------------*/
tn_status cpu_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data);
void cpu_free(void *ctx, int32_t device, void *data, uint64_t bytes);
/* Work memory of a body: cpu_free(NULL, 0, room, bytes) ends it. What lives as long as the call is
 * room_scratch's. */
static inline tn_status cpu_room(int64_t count, size_t item, uint64_t *ret_bytes, void **ret_room) {
    tn_status st = room_bytes(cpu_host, count, item, ret_bytes);
    return st == TN_OK ? cpu_alloc(NULL, 0, *ret_bytes, ret_room) : st;
}
extern const tn_memory_iface cpu_memory_iface;

/* ---- isa.c -------------------------------------------------------------------------------------*/
typedef enum cpu_isa { CPU_ISA_BASELINE, CPU_ISA_AVX2, CPU_ISA_AVX512 } cpu_isa;
cpu_isa cpu_isa_pick(void); /* what runs here, or what TENON_CPU_ISA asks for if lower */
const char *cpu_isa_name(cpu_isa isa);
/* Whether tiles of bfloat16 may be multiplied (AMX); the first call asks the system for their registers. */
bool cpu_isa_tiles(void);

/* ---- copy.c ------------------------------------------------------------------------------------*/
/* dst[0 .. bytes) = src, past the caches when the block is far larger than them. */
tn_status cpu_copy_bytes(void *dst, const void *src, uint64_t bytes);

/* ---- os.c: the only calls into the operating system ------------------------------------------- */
void *cpu_os_map(uint64_t bytes, uint64_t align, bool huge); /* zeroed pages, NULL: no memory */
void cpu_os_unmap(void *p, uint64_t bytes);
int32_t cpu_os_cpus(void);      /* CPUs this process may use: affinity, then the cgroup's quota */
uint64_t cpu_os_now_ns(void);   /* monotonic */
uint64_t cpu_os_l3_bytes(void); /* largest cache, 32 MiB when unknown; asked once */
const char *cpu_os_getenv(const char *name);
void cpu_os_wait(uint32_t *word, uint32_t value); /* sleeps while *word == value (may wake early) */
void cpu_os_wake(uint32_t *word, int32_t count);
cpu_isa cpu_os_isa(void); /* the best instruction set that CPU and system support */
bool cpu_os_tiles(void); /* CPU and system give this process tile registers and bfloat16 products */
tn_status cpu_os_thread_start(void *(*fn)(void *), void *arg, uint64_t *ret_id);
void cpu_os_thread_join(uint64_t id);
void cpu_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
/* fn(arg) runs when the calling thread ends; one fn per process, one arg per thread. */
tn_status cpu_os_at_thread_exit(void (*fn)(void *), void *arg);
void cpu_os_yield(void);
void cpu_os_relax(void); /* a pause inside a spinning loop */

/* A lock of one word: free 0, taken 1, taken with waiters 2. */
typedef struct cpu_lock {
    uint32_t word;
} cpu_lock;
void cpu_lock_take(cpu_lock *lock);
void cpu_lock_drop(cpu_lock *lock);

#endif
