/* blas_room.c: room for the BLAS. OpenBLAS takes a buffer for every call that runs at a time, keeps it
 * for later calls, and where the system has none to give it asks again for ever. So calls are counted,
 * and buffers are made here before more of them run at a time than ever before, when there is room. */
#include <stdatomic.h>

#include "blas.h"
#include "locks.h"

/* The largest that OpenBLAS asks for, 32 << 22 on x86-64, and some more for what is around it. */
#define BUFFER_BYTES (UINT64_C(130) << 20)
#define MOST_BUFFERS 1024

/* Not declared in its headers, and not every build exports them: then room is looked for alone. */
__attribute__((weak)) void *blas_memory_alloc(int kind);
__attribute__((weak)) void blas_memory_free(void *buffer);

CPU_LOCK(room_lock);
static struct {
    _Atomic int32_t running; /* calls */
    _Atomic int32_t ready;   /* buffers */
    void *buffer[MOST_BUFFERS];
} room;

static bool is_room_for(int32_t buffers) {
    uint64_t bytes = BUFFER_BYTES * (uint64_t)buffers;
    void *p = cpu_os_map(bytes, 4096, false);
    if (p) cpu_os_unmap(p, bytes);
    return p != NULL;
}

static bool is_known(const void *buffer, int32_t known) {
    int32_t i = 0;
    while (i < known && room.buffer[i] != buffer) i++;
    return i < known;
}

/* Takes buffers, among them those that are there already, until so many are known. While they are held,
 * each call that runs may need one in the place of its own: so there must be room for all of them. */
static tn_status make_buffers(int32_t wanted) {
    int32_t known = atomic_load(&room.ready), held = 0;
    void *taken[MOST_BUFFERS];
    tn_status st = TN_OK;
    while (known < wanted && held < MOST_BUFFERS && st == TN_OK) {
        void *p = is_room_for(wanted) ? blas_memory_alloc(0) : NULL;
        if (!p) st = TN_E_MEMORY;
        if (!p) break;
        taken[held++] = p;
        if (!is_known(p, known)) room.buffer[known++] = p;
    }
    while (held > 0) blas_memory_free(taken[--held]);
    atomic_store(&room.ready, known);
    return st;
}

static CPU_NOINLINE tn_status more_room(int32_t wanted) {
    tn_status st = TN_OK;
    if (wanted > MOST_BUFFERS) wanted = MOST_BUFFERS;
    cpu_lock_take(&room_lock);
    if (atomic_load(&room.ready) < wanted) {
        if (blas_memory_alloc && blas_memory_free)
            st = make_buffers(wanted);
        else if (is_room_for(wanted))
            atomic_store(&room.ready, wanted);
        else
            st = TN_E_MEMORY;
    }
    cpu_lock_drop(&room_lock);
    if (st == TN_OK) return TN_OK;
    return cpu_host->fail(TN_E_MEMORY, -1,
                          "out of memory: %d calls of the BLAS at a time need %llu MiB of address "
                          "space",
                          (int)wanted, (unsigned long long)(BUFFER_BYTES >> 20) * (unsigned)wanted);
}

tn_status cpu_blas_enter(void) {
    int32_t running = atomic_fetch_add_explicit(&room.running, 1, memory_order_relaxed) + 1;
    if (CPU_LIKELY(running <= atomic_load_explicit(&room.ready, memory_order_acquire)))
        return TN_OK;
    tn_status st = more_room(running);
    if (st != TN_OK) cpu_blas_leave();
    return st;
}

void cpu_blas_leave(void) { atomic_fetch_sub_explicit(&room.running, 1, memory_order_relaxed); }

tn_status cpu_blas_room(int64_t count, size_t item, uint64_t *ret_bytes, void **ret_room) {
    tn_status st = cpu_blas_enter();
    if (st != TN_OK) return st;
    st = cpu_room(count, item, ret_bytes, ret_room);
    if (st != TN_OK) cpu_blas_leave();
    return st;
}

void cpu_blas_room_end(void *data, uint64_t bytes) {
    cpu_free(NULL, 0, data, bytes);
    cpu_blas_leave();
}

/* The child of a fork has one thread, and none of its parent's calls. */
static void after_fork(void) { atomic_store(&room.running, 0); }

void cpu_blas_room_init(void) { cpu_os_at_fork(NULL, NULL, after_fork); }
