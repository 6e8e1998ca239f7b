/* os.c: every call of the CPU plugin into the operating system: memory, threads, clocks, sleeping
 * on a word, CPU counts and the environment. A port to another system is a port of this file. */
#define _GNU_SOURCE
#include "caches.h"
#include "locks.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

/* ---- Memory ------------------------------------------------------------------------------------*/

enum { ASKED_BYTES = 1 << 30 };

/* The machine's memory and swap space. More can be mapped, and ends the process when it is filled. */
static uint64_t all_memory(void) {
    struct sysinfo is;
    if (sysinfo(&is) != 0) return UINT64_MAX;
    return ((uint64_t)is.totalram + is.totalswap) * is.mem_unit;
}

void *cpu_os_map(uint64_t bytes, uint64_t align, bool huge) {
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (bytes > UINT64_MAX / 2 || (bytes >= ASKED_BYTES && bytes > all_memory())) return NULL;
    char *p = mmap(NULL, bytes + align, prot, flags, -1, 0);
    if (p == MAP_FAILED) return NULL;
    /* Cuts the ends off, so that the block starts on the asked alignment. */
    uintptr_t start = ((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1);
    uint64_t front = start - (uintptr_t)p, back = align - front;
    if (front) munmap(p, front);
    if (back) munmap((char *)start + bytes, back);
    if (huge) madvise((void *)start, bytes, MADV_HUGEPAGE);
    return (void *)start;
}

void cpu_os_unmap(void *p, uint64_t bytes) { munmap(p, bytes); }

/* ---- CPUs --------------------------------------------------------------------------------------*/

/* The quota of one cgroup folder in whole CPUs, or 0 when it sets none. */
static int32_t quota_of(const char *folder) {
    char path[600], text[64];
    double quota = 0, period = 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    bool got = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    if (!got || sscanf(text, "%lf %lf", &quota, &period) != 2 || period <= 0) return 0;
    int32_t n = (int32_t)(quota / period + 0.999);
    return n < 1 ? 1 : n;
}

/* The smallest quota between this process's cgroup (version 2) and the root. */
static int32_t cgroup_cpus(void) {
    char line[512], folder[512] = "";
    int32_t least = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        memcpy(folder, line + 3, strlen(line + 3) + 1);
    }
    if (f) fclose(f);
    for (;;) {
        int32_t n = quota_of(strcmp(folder, "/") == 0 ? "" : folder);
        if (n && (!least || n < least)) least = n;
        char *slash = strrchr(folder, '/');
        if (!slash) break;
        *slash = 0;
    }
    return least;
}

int32_t cpu_os_cpus(void) {
    cpu_set_t set;
    int32_t n = 1, quota = cgroup_cpus();
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        n = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota && quota < n) n = quota;
    return n < 1 ? 1 : n;
}

static uint64_t cache_bytes(int name, uint64_t other, uint64_t *asked) {
    uint64_t known = __atomic_load_n(asked, __ATOMIC_RELAXED);
    if (known) return known;
    long bytes = sysconf(name);
    known = bytes > 0 ? (uint64_t)bytes : other;
    __atomic_store_n(asked, known, __ATOMIC_RELAXED);
    return known;
}

uint64_t cpu_os_l1_bytes(void) {
    static uint64_t bytes;
    return cache_bytes(_SC_LEVEL1_DCACHE_SIZE, UINT64_C(32) << 10, &bytes);
}

uint64_t cpu_os_l2_bytes(void) {
    static uint64_t bytes;
    return cache_bytes(_SC_LEVEL2_CACHE_SIZE, UINT64_C(512) << 10, &bytes);
}

uint64_t cpu_os_l3_bytes(void) {
    static uint64_t bytes;
    return cache_bytes(_SC_LEVEL3_CACHE_SIZE, UINT64_C(32) << 20, &bytes);
}

cpu_isa cpu_os_isa(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2"))
        return CPU_ISA_BASELINE;
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd");
    return wide ? CPU_ISA_AVX512 : CPU_ISA_AVX2;
#else
    return CPU_ISA_BASELINE;
#endif
}

bool cpu_os_tiles(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    /* The system keeps tile registers for processes that have asked (Linux 5.16). */
    enum { ASK_FOR_REGISTERS = 0x1023, TILES = 18 };
    enum { HAS_BF16_PRODUCTS = 1 << 22, HAS_TILES = 1 << 24 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & HAS_BF16_PRODUCTS) || !(d & HAS_TILES)) return false;
    return syscall(SYS_arch_prctl, ASK_FOR_REGISTERS, TILES) == 0;
#else
    return false;
#endif
}

/* ---- Time, environment -------------------------------------------------------------------------*/

uint64_t cpu_os_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

const char *cpu_os_getenv(const char *name) { return secure_getenv(name); }

/* ---- Threads -----------------------------------------------------------------------------------*/

tn_status cpu_os_thread_start(void *(*fn)(void *), void *arg, uint64_t *ret_id) {
    pthread_t id;
    sigset_t all, old;
    /* Signals belong to the host's threads: a worker must never run its handlers. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&id, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) return TN_E_STATE;
    *ret_id = (uint64_t)id;
    return TN_OK;
}

void cpu_os_thread_join(uint64_t id) { pthread_join((pthread_t)id, NULL); }

void cpu_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    pthread_atfork(prepare, parent, child);
}

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static bool exit_ready;
static void (*exit_fn)(void *);

static void make_exit_key(void) {
    void (*fn)(void *) = __atomic_load_n(&exit_fn, __ATOMIC_RELAXED);
    exit_ready = pthread_key_create(&exit_key, fn) == 0;
}

tn_status cpu_os_at_thread_exit(void (*fn)(void *), void *arg) {
    __atomic_store_n(&exit_fn, fn, __ATOMIC_RELAXED);
    pthread_once(&exit_once, make_exit_key);
    if (!exit_ready || pthread_setspecific(exit_key, arg) != 0) return TN_E_MEMORY;
    return TN_OK;
}

void cpu_os_yield(void) { sched_yield(); }

void cpu_os_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- Sleeping on a word ------------------------------------------------------------------------*/

void cpu_os_wait(uint32_t *word, uint32_t value) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    errno = saved;
}

void cpu_os_wake(uint32_t *word, int32_t count) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
    errno = saved;
}

static bool try_lock(cpu_lock *lock, uint32_t *ret_seen) {
    *ret_seen = 0;
    return __atomic_compare_exchange_n(&lock->word, ret_seen, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

void cpu_lock_take(cpu_lock *lock) {
    uint32_t seen;
    if (try_lock(lock, &seen)) return;
    for (int i = 0; i < 100 && seen == 1; i++) {
        cpu_os_relax();
        if (try_lock(lock, &seen)) return;
    }
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) cpu_os_wait(&lock->word, 2);
}

void cpu_lock_drop(cpu_lock *lock) {
    if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2) cpu_os_wake(&lock->word, 1);
}

/* ---- Forks -------------------------------------------------------------------------------------*/

/* What lies between them is what CPU_LOCK made; the linker names its ends. */
extern cpu_lock __start_cpu_locks[] __attribute__((visibility("hidden")));
extern cpu_lock __stop_cpu_locks[] __attribute__((visibility("hidden")));

static void drop_before(cpu_lock *end) {
    for (cpu_lock *l = __start_cpu_locks; l < end; l++) cpu_lock_drop(l);
}

/* They are taken in no order, so none is kept while another one is waited for. */
static void before_fork(void) {
    cpu_lock *at = __start_cpu_locks;
    uint32_t seen;
    while (at < __stop_cpu_locks) {
        if (try_lock(at, &seen)) {
            at++;
            continue;
        }
        drop_before(at);
        at = __start_cpu_locks;
        cpu_os_yield();
    }
}

static void after_fork(void) { drop_before(__stop_cpu_locks); }

void cpu_locks_init(void) { cpu_os_at_fork(before_fork, after_fork, after_fork); }
