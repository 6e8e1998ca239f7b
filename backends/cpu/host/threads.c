/* threads.c: the worker pool of the CPU plugin. One job runs at a time; whoever submits it works
 * too. Each thread begins with a share of the chunks that is the same in every job of as many, so that it finds in
 * its cache what it has written there before, and then takes what is left of the others' shares, so that a slow
 * worker does not hold up the rest. The split into chunks depends on the size of the job alone. Idle workers spin for about 30 us,
 * then sleep. A job that finds the pool busy, or starts inside another one, runs serially. */
#include "cpu_priv.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MAX_THREADS 1024
#define MAX_CHUNKS 256 /* of one job: enough to balance, few enough to stay cheap ... */
#define MAX_GRAINS 64  /* ... unless chunks would get so long that interrupts wait for them */
#define MAX_SHARES 16  /* of a job: each thread looks through all in the end */
#define SPIN_NS UINT64_C(30000)
#define POLL_NS UINT64_C(10000000)

/* Note [Gate]
 * Workers join a job through `gate`: bit 31 says that a job is open, the low bits count the workers
 * inside. A worker adds itself only while the gate is open; the submitter closes it when no chunk
 * is left and then waits for the count to reach 0. So a worker that wakes late finds the gate shut
 * and touches nothing of a job that is over, and a submitter never waits for sleepers. */
#define GATE_OPEN 0x80000000u

/* Items [next, end) of a share that nobody has taken. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

/* What a worker starts from. */
typedef struct seat {
    uint32_t epoch; /* the last job that is not its own */
    int32_t number; /* from 1; 0 is who submits */
} seat;

static struct pool {
    _Alignas(64) uint32_t epoch; /* counts jobs; workers watch it */
    _Alignas(64) uint32_t gate;
    share shares[MAX_SHARES];
    _Alignas(64) _Atomic int32_t failed;
    cpu_body body;
    void *arg;
    int64_t chunk;
    int32_t share_count;
    _Alignas(64) _Atomic int32_t sleepers;
    _Atomic int32_t busy;   /* somebody submits, or changes the pool */
    _Atomic int32_t wanted; /* threads to use; 0: not asked yet */
    _Atomic int32_t stop;
    int32_t started; /* workers that run */
    uint64_t ids[MAX_THREADS];
    seat seats[MAX_THREADS];
    bool fork_hook;
    bool refused; /* the system refused a thread: said once */
} pool;

static CPU_TLS bool inside;     /* this thread runs a chunk */
static CPU_TLS bool is_worker;  /* this thread belongs to the pool */
static CPU_TLS uint64_t polled; /* when this thread last asked the host */

static int32_t default_threads(void) {
    const char *text = cpu_os_getenv("TENON_NUM_THREADS");
    if (text && *text) {
        char *end;
        long n = strtol(text, &end, 10);
        if (*end == 0 && n >= 1 && n <= MAX_THREADS) return (int32_t)n;
        cpu_host->log(2, "TENON_NUM_THREADS is '%s', not a number from 1 to %d; ignored", text,
                      MAX_THREADS);
    }
    int32_t n = cpu_os_cpus();
    return n > MAX_THREADS ? MAX_THREADS : n;
}

int32_t cpu_threads_get(void) {
    int32_t n = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (n == 0) {
        n = default_threads();
        atomic_store_explicit(&pool.wanted, n, memory_order_relaxed);
    }
    return n;
}

static int64_t chunk_of(int64_t n, int64_t grain) {
    int64_t chunk = n / MAX_CHUNKS + (n % MAX_CHUNKS != 0);
    if (chunk <= grain) return grain;
    if (chunk / MAX_GRAINS > grain) chunk = grain * MAX_GRAINS;
    /* Whole cache lines of any element type, so that two workers do not write the same line. */
    return grain >= 64 ? (chunk + 63) / 64 * 64 : chunk;
}

/* ---- Running chunks ----------------------------------------------------------------------------*/

static void note_failure(tn_status st) {
    int32_t none = TN_OK;
    atomic_compare_exchange_strong(&pool.failed, &none, st);
}

/* Workers look at what the others met, the thread that submitted the job asks the host. */
tn_status cpu_poll(void) {
    if (is_worker) return (tn_status)atomic_load_explicit(&pool.failed, memory_order_relaxed);
    uint64_t now = cpu_os_now_ns();
    if (now - polled <= POLL_NS) return TN_OK;
    polled = now;
    return cpu_host->poll();
}

/* What is left of a share. */
static void work_off(share *s) {
    while (atomic_load_explicit(&pool.failed, memory_order_relaxed) == TN_OK) {
        if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
        int64_t begin = atomic_fetch_add_explicit(&s->next, pool.chunk, memory_order_relaxed);
        if (begin >= s->end) break;
        int64_t end = s->end - begin < pool.chunk ? s->end : begin + pool.chunk;
        tn_status st = pool.body(pool.arg, begin, end);
        if (st == TN_OK) st = cpu_poll();
        if (st != TN_OK) note_failure(st);
    }
}

/* By the thread with this number: its own share, then the others'. */
static void work(int32_t number) {
    inside = true;
    for (int32_t i = 0; i < pool.share_count; i++)
        work_off(&pool.shares[(number + i) % pool.share_count]);
    inside = false;
}

/* Whole chunks, as many in each share. */
static void share_out(int64_t n, int64_t chunk, int32_t threads) {
    int64_t chunks = n / chunk + (n % chunk != 0),
            shares = threads < MAX_SHARES ? threads : MAX_SHARES;
    if (shares > chunks) shares = chunks;
    for (int64_t i = 0; i < shares; i++) {
        share *s = &pool.shares[i];
        atomic_store_explicit(&s->next, chunks * i / shares * chunk, memory_order_relaxed);
        s->end = i + 1 < shares ? chunks * (i + 1) / shares * chunk : n;
    }
    pool.share_count = (int32_t)shares;
}

static tn_status run_serially(int64_t n, int64_t chunk, cpu_body body, void *arg) {
    tn_status st = TN_OK;
    for (int64_t begin = 0; begin < n && st == TN_OK; begin += chunk) {
        st = body(arg, begin, n - begin < chunk ? n : begin + chunk);
        if (st == TN_OK) st = cpu_poll();
    }
    return st;
}

/* ---- Workers -----------------------------------------------------------------------------------*/

static bool join_job(void) {
    uint32_t seen = __atomic_load_n(&pool.gate, __ATOMIC_RELAXED);
    while (seen & GATE_OPEN)
        if (__atomic_compare_exchange_n(&pool.gate, &seen, seen + 1, true, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return true;
    return false;
}

static uint32_t await_epoch(uint32_t seen) {
    uint64_t start = cpu_os_now_ns();
    for (uint32_t i = 1;; i++) {
        uint32_t now = __atomic_load_n(&pool.epoch, __ATOMIC_ACQUIRE);
        if (now != seen) return now;
        cpu_os_relax();
        if (i % 64 == 0 && cpu_os_now_ns() - start > SPIN_NS) break;
    }
    atomic_fetch_add(&pool.sleepers, 1);
    uint32_t now;
    while ((now = __atomic_load_n(&pool.epoch, __ATOMIC_SEQ_CST)) == seen)
        cpu_os_wait(&pool.epoch, seen);
    atomic_fetch_sub(&pool.sleepers, 1);
    return now;
}

static void *worker(void *arg) {
    const seat *me = arg;
    uint32_t seen = me->epoch;
    is_worker = true;
    while (!atomic_load_explicit(&pool.stop, memory_order_relaxed)) {
        seen = await_epoch(seen);
        if (!join_job()) continue;
        work(me->number);
        __atomic_fetch_sub(&pool.gate, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void next_epoch(void) {
    __atomic_fetch_add(&pool.epoch, 1, __ATOMIC_SEQ_CST);
    if (atomic_load(&pool.sleepers) > 0) cpu_os_wake(&pool.epoch, INT_MAX);
}

static void stop_workers(void) {
    atomic_store(&pool.stop, 1);
    next_epoch();
    for (int32_t i = 0; i < pool.started; i++) cpu_os_thread_join(pool.ids[i]);
    pool.started = 0;
    atomic_store(&pool.stop, 0);
}

/* The child of a fork has none of its parent's workers; they start again at the next job. */
static void after_fork(void) {
    pool.started = 0;
    __atomic_store_n(&pool.gate, 0, __ATOMIC_RELAXED);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.busy, 0);
    atomic_store(&pool.stop, 0);
    inside = false;
}

static void start_workers(int32_t count) {
    if (!pool.fork_hook) {
        pool.fork_hook = true;
        cpu_os_at_fork(NULL, NULL, after_fork);
    }
    uint32_t epoch = __atomic_load_n(&pool.epoch, __ATOMIC_RELAXED);
    /* A thread that the system refuses is no failure: the job runs with those that there are. */
    for (; pool.started < count; pool.started++) {
        seat *next = &pool.seats[pool.started];
        *next = (seat){epoch, pool.started + 1};
        if (cpu_os_thread_start(worker, next, &pool.ids[pool.started]) != TN_OK) break;
    }
    if (pool.started == count || pool.refused) return;
    pool.refused = true;
    cpu_host->log(2, "the system refused a thread: the CPU computes with %d of %d",
                  (int)pool.started + 1, (int)count + 1);
}

static bool take_pool(void) {
    int32_t free_ = 0;
    return atomic_compare_exchange_strong_explicit(&pool.busy, &free_, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void drop_pool(void) { atomic_store_explicit(&pool.busy, 0, memory_order_release); }

/* Workers that are long about their last chunks hear of an interrupt through cpu_poll. */
static void await_workers(void) {
    uint64_t last = cpu_os_now_ns();
    __atomic_fetch_and(&pool.gate, ~GATE_OPEN, __ATOMIC_ACQ_REL);
    for (uint32_t i = 1; __atomic_load_n(&pool.gate, __ATOMIC_ACQUIRE) != 0; i++) {
        cpu_os_relax();
        if (i % 4096 != 0) continue;
        cpu_os_yield();
        if (cpu_os_now_ns() - last <= POLL_NS) continue;
        tn_status st = cpu_host->poll();
        if (st != TN_OK) note_failure(st);
        last = cpu_os_now_ns();
    }
}

tn_status cpu_parallel(int64_t n, int64_t grain, cpu_body body, void *arg) {
    if (n <= 0) return TN_OK;
    if (grain < 1) grain = 1;
    if (n <= grain) return body(arg, 0, n);
    int64_t chunk = chunk_of(n, grain);
    if (inside) return run_serially(n, chunk, body, arg);
    int32_t threads = cpu_threads_get();
    polled = cpu_os_now_ns(); /* a short job never asks */
    if (threads == 1 || n <= chunk || !take_pool()) return run_serially(n, chunk, body, arg);
    if (pool.started != threads - 1) {
        if (pool.started > threads - 1) stop_workers();
        start_workers(threads - 1);
    }
    pool.body = body;
    pool.arg = arg;
    pool.chunk = chunk;
    share_out(n, chunk, threads);
    atomic_store_explicit(&pool.failed, TN_OK, memory_order_relaxed);
    __atomic_store_n(&pool.gate, GATE_OPEN, __ATOMIC_RELEASE);
    next_epoch();
    work(0);
    await_workers();
    tn_status st = atomic_load_explicit(&pool.failed, memory_order_relaxed);
    drop_pool();
    return st;
}

tn_status cpu_threads_set(int32_t threads) {
    if (threads < 1 || threads > MAX_THREADS)
        return cpu_host->fail(TN_E_VALUE, 0, "number of threads must be from 1 to %d, not %d",
                              MAX_THREADS, (int)threads);
    atomic_store_explicit(&pool.wanted, threads, memory_order_relaxed);
    return TN_OK;
}

/* ---- "tn.threads/1" ----------------------------------------------------------------------------*/

static int32_t iface_get(void *ctx) {
    (void)ctx;
    return cpu_threads_get();
}

static tn_status iface_set(void *ctx, int32_t threads) {
    (void)ctx;
    return cpu_threads_set(threads);
}

static tn_status iface_parallel(void *ctx, int64_t n, int64_t grain, cpu_body body, void *arg) {
    (void)ctx;
    return cpu_parallel(n, grain, body, arg);
}

const tn_threads_iface cpu_threads_iface = {
    .struct_size = sizeof(tn_threads_iface),
    .get = iface_get,
    .set = iface_set,
    .parallel = iface_parallel,
};
