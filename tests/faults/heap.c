/* heap.c: memory that runs out when a test says so. Preloaded, in front of the C library's allocator: of
 * the allocations after heap_arm, those from the first to the last that it names get none. Only Tenon's and
 * Python's are counted, and what the C library allocates for them: other libraries may end the process.
 * heap_alive tells how many blocks of anybody's have not been given back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

enum { LARGE = 2 << 20 }; /* Python's own mappings are smaller */

static atomic_bool armed, full;
static atomic_long seen, alive;
static long first, last;
static int show; /* where the allocations that fail came from, on the standard error stream */

void heap_arm(long from, long to, int trace) {
    void *warm[1];
    backtrace(warm, 1); /* what it loads, it loads now */
    first = from;
    last = to;
    show = trace;
    atomic_store(&seen, 0);
    atomic_store(&armed, true);
}

/* Returns how many allocations there were. */
long heap_disarm(void) {
    atomic_store(&armed, false);
    return atomic_load(&seen);
}

long heap_alive(void) { return atomic_load(&alive); }

/* Whether there is no more memory for allocators that divide it themselves: no mapping of so many bytes. */
void heap_full(int is_full) { atomic_store(&full, is_full); }

/* 1: code whose allocations are counted; 0: other code; -1: the C library. */
static int whose(void *code) {
    Dl_info info;
    if (!dladdr(code, &info) || !info.dli_fname) return 0;
    const char *slash = strrchr(info.dli_fname, '/'), *name = slash ? slash + 1 : info.dli_fname;
    if (strncmp(name, "libc.so", 7) == 0) return -1;
    return strstr(name, "tenon") || strncmp(name, "_C.", 3) == 0 || strstr(name, "python") != NULL;
}

static int is_counted(void *caller) {
    int known = whose(caller);
    if (known >= 0) return known;
    void *frames[16];
    int n = backtrace(frames, 16), i = 0;
    while (i < n && frames[i] != caller) i++;
    while (i < n && (known = whose(frames[i])) < 0) i++;
    return known > 0;
}

static int fails(void *caller) {
    if (!atomic_load_explicit(&armed, memory_order_relaxed) || !is_counted(caller)) return 0;
    long n = atomic_fetch_add(&seen, 1) + 1;
    if (n < first || n > last) return 0;
    if (show) {
        void *frames[40];
        atomic_store(&armed, false);
        backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
        atomic_store(&armed, true);
    }
    errno = ENOMEM;
    return 1;
}

#define CALLER __builtin_return_address(0)

static void *counted(void *p) {
    if (p) atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed);
    return p;
}

void *malloc(size_t n) { return fails(CALLER) ? NULL : counted(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) {
    return fails(CALLER) ? NULL : counted(__libc_calloc(n, size));
}
void *realloc(void *p, size_t n) {
    if (fails(CALLER)) return NULL;
    void *q = __libc_realloc(p, n);
    if (!p) counted(q);
    if (p && !n && !q)
        atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed); /* it was freed */
    return q;
}
void *memalign(size_t align, size_t n) {
    return fails(CALLER) ? NULL : counted(__libc_memalign(align, n));
}
void *aligned_alloc(size_t align, size_t n) {
    return fails(CALLER) ? NULL : counted(__libc_memalign(align, n));
}
void free(void *p) {
    if (p) atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed);
    __libc_free(p);
}

int posix_memalign(void **ret, size_t align, size_t n) {
    void *p = fails(CALLER) ? NULL : counted(__libc_memalign(align, n));
    if (!p) return ENOMEM;
    *ret = p;
    return 0;
}

/* Memory without a file; what a file is mapped to is not counted. Programs call the one name or the other. */
static void *map(void *at, size_t n, int protection, int flags, int file, off_t offset,
                 void *caller) {
    if ((flags & MAP_ANONYMOUS) && ((n >= LARGE && atomic_load(&full)) || fails(caller))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    return map(at, n, protection, flags, file, offset, CALLER);
}
void *mmap64(void *at, size_t n, int protection, int flags, int file, off64_t offset) {
    return map(at, n, protection, flags, file, offset, CALLER);
}
