/* grid.c: runs kernels. The threads of a block are fibres of one processor thread: each runs until it
 * ends or waits, at a barrier or for its warp. A kernel that never waits needs a single fibre.
 *
 * Kernels are compiled with calls before every access to memory (the __asan_ functions at the end),
 * which let pass: the fibre's stack, the kernel's argument, shared arrays, live device memory. */
#include "grid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
    STACK = 128 * 1024,
    SHARED = HOST_SHARED,
    ARRAYS = 16,
    GAP = 64, /* between shared arrays, beside what they may need */
    ROOM = SHARED + ARRAYS * (GAP + 16),
    CACHED = 4
};

typedef struct position {
    unsigned thread[3], block[3], block_size[3], grid_size[3];
} position;
__thread position host_now __attribute__((tls_model("initial-exec")));

typedef enum fibre_state { IDLE, READY, AT_BARRIER, AT_WARP } fibre_state;
typedef struct fibre {
    jmp_buf here;
    ucontext_t start;
    char *stack;
    bool started;
    fibre_state state;
    unsigned thread;
    const void *site; /* AT_BARRIER: which barrier */
    uint32_t mask;    /* AT_WARP: whom it waits for */
} fibre;

typedef struct shared_array {
    const void *site;
    const char *name;
    size_t at, bytes;
} shared_array;

/* What one processor thread needs to run blocks. */
typedef struct engine {
    const host_launch *launch;
    jmp_buf scheduler;
    fibre fibres[HOST_THREADS];
    fibre *current;
    unsigned threads, next, finished;
    uint32_t left[HOST_THREADS / 32]; /* lanes that have ended, by warp */
    uint64_t slots[HOST_THREADS];     /* what lanes show each other */
    _Alignas(16) unsigned char shared[ROOM];
    unsigned char written[ROOM];
    shared_array arrays[ARRAYS];
    int narrays;
    size_t shared_used, shared_bytes; /* with gaps, and without */
    struct {
        uintptr_t begin, end;
        uint64_t age;
    } cache[CACHED];
    int oldest;
    bool in_atomic, failed;
    char problem[HOST_TEXT];
} engine;

static __thread engine *mine __attribute__((tls_model("initial-exec")));

/* The ends of this library: constants of kernels lie there. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

void host_atomic_enter(void);
void host_atomic_leave(void);
void *host_shared(const void *site, const char *name, size_t bytes);
void *host_dynamic(void);
void host_barrier(const void *site);
void host_warp(uint32_t mask);
uint64_t host_exchange(uint32_t mask, uint64_t value, int lane);
uint32_t host_vote(uint32_t mask, int predicate);

/* ---- Fibres ------------------------------------------------------------------------------------*/

static void take_position(engine *e, unsigned i) {
    const unsigned *size = host_now.block_size;
    host_now.thread[0] = i % size[0];
    host_now.thread[1] = i / size[0] % size[1];
    host_now.thread[2] = i / size[0] / size[1];
    e->current->thread = i;
}

static void back_to_scheduler(engine *e) {
    if (_setjmp(e->current->here) == 0) _longjmp(e->scheduler, 1);
    take_position(e, e->current->thread);
}

/* A fibre runs threads that nobody has started, one after the other. */
static void serve(void) {
    engine *e = mine;
    for (;;) {
        while (e->next < e->threads) {
            unsigned i = e->next++;
            take_position(e, e->launch->backwards ? e->threads - 1 - i : i);
            e->launch->entry(e->launch->args);
            e->finished++;
            e->left[e->current->thread / 32] |= 1u << e->current->thread % 32;
        }
        e->current->state = IDLE;
        if (_setjmp(e->current->here) == 0) _longjmp(e->scheduler, 1);
    }
}

static void resume(engine *e, fibre *f) {
    e->current = f;
    f->state = READY;
    if (_setjmp(e->scheduler)) return;
    if (f->started) _longjmp(f->here, 1);
    if (!f->stack) {
        f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (f->stack == MAP_FAILED) abort();
    }
    f->started = true;
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = f->stack;
    f->start.uc_stack.ss_size = STACK;
    makecontext(&f->start, serve, 0);
    setcontext(&f->start);
}

/* From inside a kernel: gives the block up. */
static void fail(engine *e, const char *fmt, ...) {
    const unsigned *t = host_now.thread, *b = host_now.block;
    va_list ap;
    int n = snprintf(e->problem, sizeof e->problem,
                     "kernel '%s', block (%u, %u, %u), thread (%u, %u, %u): ", e->launch->name,
                     b[0], b[1], b[2], t[0], t[1], t[2]);
    va_start(ap, fmt);
    vsnprintf(e->problem + n, sizeof e->problem - (size_t)n, fmt, ap);
    va_end(ap);
    e->failed = true;
    if (e->in_atomic) host_atomic_leave();
    _longjmp(e->scheduler, 1);
}

/* A block needs no more fibres than it has threads. Neighbours have mostly the same state, so the
 * search goes on where the last one ended. */
static fibre *find_fibre(engine *e, fibre_state state) {
    unsigned last =
        e->current && e->current < e->fibres + e->threads ? (unsigned)(e->current - e->fibres) : 0;
    for (unsigned i = 0; i < e->threads; i++) {
        fibre *f = &e->fibres[(last + i) % e->threads];
        if (f->state == state) return f;
    }
    return NULL;
}

/* Lanes of a warp that the block has. */
static uint32_t lanes_of(const engine *e, unsigned warp) {
    unsigned n = e->threads - warp * 32;
    return n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

/* Lets a warp go on once all that it waits for have come. */
static bool release_warp(engine *e, unsigned warp) {
    uint32_t came = 0, mask = 0;
    for (unsigned i = 0; i < e->threads; i++) {
        const fibre *f = &e->fibres[i];
        if (f->state != AT_WARP || f->thread / 32 != warp) continue;
        if (!came) mask = f->mask;
        if (f->mask == mask) came |= 1u << f->thread % 32;
    }
    if (!came || came != (mask & lanes_of(e, warp))) return false;
    for (unsigned i = 0; i < e->threads; i++) {
        fibre *f = &e->fibres[i];
        if (f->state == AT_WARP && f->thread / 32 == warp && f->mask == mask) f->state = READY;
    }
    return true;
}

/* Lets the block go on when every thread of it waits at one and the same barrier. */
static bool release_barrier(engine *e) {
    const void *site = NULL;
    unsigned came = 0;
    for (unsigned i = 0; i < e->threads; i++) {
        const fibre *f = &e->fibres[i];
        if (f->state != AT_BARRIER) continue;
        if (!came) site = f->site;
        came += f->site == site;
    }
    if (came != e->threads) return false;
    for (unsigned i = 0; i < e->threads; i++) e->fibres[i].state = READY;
    return true;
}

static bool release(engine *e) {
    bool any = false;
    for (unsigned w = 0; w * 32 < e->threads; w++) any |= release_warp(e, w);
    return any || release_barrier(e);
}

static void report_divergence(engine *e) {
    unsigned barrier = 0, warp = 0;
    for (unsigned i = 0; i < HOST_THREADS; i++) {
        barrier += e->fibres[i].state == AT_BARRIER;
        warp += e->fibres[i].state == AT_WARP;
    }
    snprintf(e->problem, sizeof e->problem,
             "kernel '%s', block (%u, %u, %u): divergence: of %u threads %u wait at a barrier, %u "
             "for their warp, and %u have ended",
             e->launch->name, host_now.block[0], host_now.block[1], host_now.block[2], e->threads,
             barrier, warp, e->finished);
    e->failed = true;
}

static void run_block(engine *e) {
    e->next = e->finished = 0;
    e->narrays = 0;
    e->shared_used = e->shared_bytes = 0;
    memset(e->left, 0, sizeof e->left);
    while (e->finished < e->threads && !e->failed) {
        fibre *f = find_fibre(e, READY);
        if (!f && e->next < e->threads) f = find_fibre(e, IDLE);
        if (f)
            resume(e, f);
        else if (!release(e))
            report_divergence(e);
    }
}

static void run_blocks(engine *e) {
    const unsigned *grid = e->launch->grid;
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks && !e->failed; i++) {
        host_now.block[0] = (unsigned)(i % grid[0]);
        host_now.block[1] = (unsigned)(i / grid[0] % grid[1]);
        host_now.block[2] = (unsigned)(i / grid[0] / grid[1]);
        run_block(e);
    }
}

bool grid_run(const host_launch *l, char ret_problem[HOST_TEXT]) {
    engine *e = mine;
    if (!e) e = mine = calloc(1, sizeof *e);
    if (!e) abort();
    e->launch = l;
    e->threads = l->block[0] * l->block[1] * l->block[2];
    e->failed = false;
    memcpy(host_now.block_size, l->block, sizeof l->block);
    memcpy(host_now.grid_size, l->grid, sizeof l->grid);
    run_blocks(e);
    if (e->failed) { /* fibres stand somewhere in the middle */
        for (unsigned i = 0; i < HOST_THREADS; i++) e->fibres[i].started = false;
        for (unsigned i = 0; i < HOST_THREADS; i++) e->fibres[i].state = IDLE;
        memcpy(ret_problem, e->problem, sizeof e->problem);
    }
    e->launch = NULL;
    return !e->failed;
}

/* ---- What kernels call -------------------------------------------------------------------------*/

void *host_shared(const void *site, const char *name, size_t bytes) {
    engine *e = mine;
    for (int i = 0; i < e->narrays; i++)
        if (e->arrays[i].site == site) return e->shared + e->arrays[i].at;
    size_t at = (e->shared_used + GAP + 15) / 16 * 16;
    e->shared_bytes += (bytes + 15) / 16 * 16;
    if (e->narrays == ARRAYS || e->shared_bytes > SHARED)
        fail(e, "the block's shared arrays need more than %d bytes", SHARED);
    e->arrays[e->narrays++] = (shared_array){site, name, at, bytes};
    e->shared_used = at + bytes;
    memset(e->shared + at, 0xff, bytes);
    memset(e->written + at, 0, bytes);
    return e->shared + at;
}

void *host_dynamic(void) {
    static const char site;
    return host_shared(&site, "of the launch", mine->launch->shared);
}

void host_barrier(const void *site) {
    engine *e = mine;
    e->current->state = AT_BARRIER;
    e->current->site = site;
    back_to_scheduler(e);
}

void host_warp(uint32_t mask) {
    engine *e = mine;
    unsigned thread = e->current->thread;
    if (!(mask >> thread % 32 & 1)) fail(e, "its lane is not in the mask %08x", mask);
    if (e->left[thread / 32] & mask) fail(e, "it waits for a lane of its warp that has ended");
    e->current->state = AT_WARP;
    e->current->mask = mask;
    back_to_scheduler(e);
}

uint64_t host_exchange(uint32_t mask, uint64_t value, int lane) {
    engine *e = mine;
    unsigned first = e->current->thread / 32 * 32;
    if (!(mask >> lane & 1) || first + (unsigned)lane >= e->threads)
        fail(e, "it asks lane %d, which is not there", lane);
    e->slots[e->current->thread] = value;
    host_warp(mask);
    uint64_t got = e->slots[first + (unsigned)lane];
    host_warp(mask);
    return got;
}

uint32_t host_vote(uint32_t mask, int predicate) {
    engine *e = mine;
    unsigned first = e->current->thread / 32 * 32;
    uint32_t votes = 0;
    e->slots[e->current->thread] = predicate != 0;
    host_warp(mask);
    for (unsigned i = 0; i < 32 && first + i < e->threads; i++)
        if (mask >> i & 1) votes |= (uint32_t)e->slots[first + i] << i;
    host_warp(mask);
    return votes;
}

static char atomic_lock;
void host_atomic_enter(void) {
    while (__atomic_test_and_set(&atomic_lock, __ATOMIC_ACQUIRE)) {
    }
    mine->in_atomic = true;
}
void host_atomic_leave(void) {
    mine->in_atomic = false;
    __atomic_clear(&atomic_lock, __ATOMIC_RELEASE);
}

/* ---- Checks ------------------------------------------------------------------------------------*/

static bool within(uintptr_t at, size_t bytes, const void *begin, size_t room) {
    uintptr_t from = (uintptr_t)begin;
    return at >= from && bytes <= room && at - from <= room - bytes;
}

static void check_shared(engine *e, uintptr_t at, size_t bytes, bool store) {
    const shared_array *near = NULL;
    for (int i = 0; i < e->narrays; i++) {
        const shared_array *a = &e->arrays[i];
        if (within(at, bytes, e->shared + a->at, a->bytes)) {
            near = a;
            break;
        }
    }
    size_t offset = (size_t)(at - (uintptr_t)e->shared);
    if (!near)
        fail(e, "%s of %zu bytes outside of every shared array", store ? "write" : "read", bytes);
    if (store) memset(e->written + offset, 1, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (!e->written[offset + i])
            fail(e, "read of shared array '%s' at byte %zu, which nobody has written", near->name,
                 offset - near->at);
}

static void check_global(engine *e, uintptr_t at, size_t bytes, bool store) {
    uint64_t age = memory_age();
    for (int i = 0; i < CACHED; i++)
        if (e->cache[i].age == age && at >= e->cache[i].begin && at + bytes <= e->cache[i].end)
            return;
    uintptr_t begin, end;
    if (!memory_find(at, bytes, &begin, &end)) {
        char where[HOST_TEXT / 2];
        memory_describe(at, where, sizeof where);
        fail(e, "%s of %zu bytes at %p, %s", store ? "write" : "read", bytes, (void *)at, where);
    }
    e->cache[e->oldest].begin = begin;
    e->cache[e->oldest].end = end;
    e->cache[e->oldest].age = age;
    e->oldest = (e->oldest + 1) % CACHED;
}

static void check(uintptr_t at, size_t bytes, bool store) {
    engine *e = mine;
    if (!e || !e->launch) return;
    if (within(at, bytes, e->current->stack, STACK)) return;
    if (within(at, bytes, &host_now, sizeof host_now)) return;
    if (!store && within(at, bytes, e->launch->args, e->launch->args_bytes)) return;
    if (!store && within(at, bytes, __ehdr_start, (size_t)(_end - __ehdr_start))) return;
    if (!store && within(at, bytes, e->launch->image, e->launch->image_bytes)) return;
    size_t aligned = bytes & (~bytes + 1);       /* the largest power of two in it, */
    if (at % (aligned < 16 ? aligned : 16) != 0) /* as far as the device moves it at once */
        fail(e, "%s of %zu bytes at %p, a misaligned address", store ? "write" : "read", bytes,
             (void *)at);
    if (within(at, bytes, e->shared, ROOM))
        check_shared(e, at, bytes, store);
    else
        check_global(e, at, bytes, store);
}

#define CHECKED(bytes)                                                                             \
    void __asan_load##bytes##_noabort(uintptr_t at) { check(at, bytes, false); }                   \
    void __asan_store##bytes##_noabort(uintptr_t at) { check(at, bytes, true); }
void __asan_load1_noabort(uintptr_t at);
void __asan_load2_noabort(uintptr_t at);
void __asan_load4_noabort(uintptr_t at);
void __asan_load8_noabort(uintptr_t at);
void __asan_load16_noabort(uintptr_t at);
void __asan_store1_noabort(uintptr_t at);
void __asan_store2_noabort(uintptr_t at);
void __asan_store4_noabort(uintptr_t at);
void __asan_store8_noabort(uintptr_t at);
void __asan_store16_noabort(uintptr_t at);
void __asan_loadN_noabort(uintptr_t at, size_t bytes);
void __asan_storeN_noabort(uintptr_t at, size_t bytes);
CHECKED(1)
CHECKED(2)
CHECKED(4)
CHECKED(8)
CHECKED(16)

void __asan_loadN_noabort(uintptr_t at, size_t bytes) { check(at, bytes, false); }
void __asan_storeN_noabort(uintptr_t at, size_t bytes) { check(at, bytes, true); }

/* Called before functions that do not return; there is nothing to do. */
void __asan_handle_no_return(void);
void __asan_handle_no_return(void) {}
