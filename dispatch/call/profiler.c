/* profiler.c: which operators and named spans of time ran when, by the host's clock. Spans are also
 * handed to devices whose vendor's tools show them ("tn.profiler/1").
 *
 * A thread whose operator calls are recorded has a bit of its word of layers set, so that nothing is
 * looked at in a call when there is no recording. The bit is set by tn_profiler_start for the thread
 * that starts, and by tn_profiler_push for the others; it is cleared by the first call that finds no
 * recording. */
#include <stdlib.h>

#include <tenon/device_ext.h>

#include "catch_priv.h"
#include "layers_priv.h"
#include "os_priv.h"

/* A span that the calling thread has entered and not left. */
typedef struct open_span {
    struct open_span *outer;
    int64_t start;
    uint32_t devices; /* bit i: the device in slot i was told */
    char name[];
} open_span;

typedef struct owned_name {
    struct owned_name *next;
    char text[];
} owned_name;

static TN_TLS open_span *open_spans; /* of the thread, the innermost first */
static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static _Atomic int running;
static tn_span *spans; /* guarded by the lock, as is what follows */
static int64_t count, room;
static owned_name *names;

static bool is_running(void) { return atomic_load_explicit(&running, memory_order_relaxed) != 0; }

/* ---- The record --------------------------------------------------------------------------------*/

/* A name that stays; NULL: no memory. Lock held. */
static const char *keep_name(const char *name) {
    size_t bytes = strlen(name) + 1;
    owned_name *own = malloc(sizeof *own + bytes);
    if (!own) return NULL;
    memcpy(own->text, name, bytes);
    own->next = names;
    names = own;
    return own->text;
}

/* A span that there is no memory for is lost. */
static void add(int32_t kind, const char *name, int64_t start, int64_t end) {
    tni_os_lock(&lock);
    if (count == room) {
        int64_t more = room ? 2 * room : 1024;
        tn_span *grown = realloc(spans, sizeof *spans * (size_t)more);
        if (grown) {
            spans = grown;
            room = more;
        }
    }
    if (kind != TN_SPAN_OP) name = keep_name(name);
    if (count < room && name && is_running())
        spans[count++] = (tn_span){name, start, end - start, tni_os_thread_id(), kind};
    tni_os_unlock(&lock);
}

static void forget(void) {
    count = 0;
    while (names) {
        owned_name *n = names;
        names = n->next;
        free(n);
    }
}

/* ---- Devices -----------------------------------------------------------------------------------*/

/* Tells the devices that want to know; a bit for each. */
static uint32_t tell_push(const char *name) {
    uint32_t told = 0;
    for (int32_t slot = 0; slot < TN_DEVICE_SLOTS; slot++) {
        const tni_device *dev = tni_device_at(slot);
        if (!dev || !dev->ifaces.profiler) continue;
        dev->ifaces.profiler->push(dev->desc.ctx, name);
        tni_caught_any();
        told |= UINT32_C(1) << slot;
    }
    return told;
}

static void tell_pop(uint32_t told) {
    for (int32_t slot = 0; told; slot++, told >>= 1) {
        const tni_device *dev = told & 1u ? tni_device_maker(slot) : NULL;
        if (dev && dev->ifaces.profiler) dev->ifaces.profiler->pop(dev->desc.ctx);
        tni_caught_any();
    }
}

/* ---- Operator calls ----------------------------------------------------------------------------*/

tn_status tni_profiled(const tn_op *op, void *args, tn_tensor **rets,
                       tn_status (*call)(const tn_op *op, void *args, tn_tensor **rets)) {
    if (!is_running()) {
        tni_tls.layers &= ~TNI_LAYER_PROFILER;
        return call(op, args, rets);
    }
    uint32_t told = tell_push(op->info.name);
    int64_t start = tni_os_clock_ns();
    tn_status st = call(op, args, rets);
    add(TN_SPAN_OP, op->info.name, start, tni_os_clock_ns());
    tell_pop(told);
    return st;
}

/* ---- The public functions ----------------------------------------------------------------------*/

tn_status tn_profiler_start(void) {
    tni_os_lock(&lock);
    bool was = is_running();
    if (!was) forget();
    atomic_store_explicit(&running, 1, memory_order_relaxed);
    tni_os_unlock(&lock);
    if (was) return tn_fail(TN_E_STATE, -1, "profiler_start(): a recording is running already");
    tni_tls.layers |= TNI_LAYER_PROFILER;
    return TN_OK;
}

tn_status tn_profiler_stop(void) {
    tni_os_lock(&lock);
    bool was = is_running();
    atomic_store_explicit(&running, 0, memory_order_relaxed);
    tni_os_unlock(&lock);
    tni_tls.layers &= ~TNI_LAYER_PROFILER;
    return was ? TN_OK : tn_fail(TN_E_STATE, -1, "profiler_stop(): no recording is running");
}

int tn_profiler_is_running(void) { return is_running(); }

tn_status tn_profiler_push(const char *name) {
    if (!name) return tn_fail(TN_E_TYPE, 0, "profiler_push(): the name is NULL");
    size_t bytes = strlen(name) + 1;
    open_span *s = malloc(sizeof *s + bytes);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    memcpy(s->name, name, bytes);
    s->devices = tell_push(name);
    s->outer = open_spans;
    s->start = tni_os_clock_ns();
    open_spans = s;
    if (is_running()) tni_tls.layers |= TNI_LAYER_PROFILER;
    return TN_OK;
}

tn_status tn_profiler_pop(void) {
    open_span *s = open_spans;
    if (!s) return tn_fail(TN_E_STATE, -1, "profiler_pop(): the thread has entered no span");
    if (is_running()) add(TN_SPAN_RANGE, s->name, s->start, tni_os_clock_ns());
    open_spans = s->outer;
    tell_pop(s->devices);
    free(s);
    return TN_OK;
}

tn_status tn_profiler_mark(const char *name) {
    if (!name) return tn_fail(TN_E_TYPE, 0, "profiler_mark(): the name is NULL");
    for (int32_t slot = 0; slot < TN_DEVICE_SLOTS; slot++) {
        const tni_device *dev = tni_device_at(slot);
        if (dev && dev->ifaces.profiler) dev->ifaces.profiler->mark(dev->desc.ctx, name);
        tni_caught_any();
    }
    int64_t now = tni_os_clock_ns();
    if (is_running()) add(TN_SPAN_MARK, name, now, now);
    return TN_OK;
}

tn_status tn_profiler_at(int64_t i, tn_span *ret_span) {
    if (!ret_span) return tn_fail(TN_E_TYPE, 1, "profiler_at(): the result has no place to go");
    tni_os_lock(&lock);
    bool there = i >= 0 && i < count && !is_running();
    if (there) *ret_span = spans[i];
    tni_os_unlock(&lock);
    return there ? TN_OK
                 : tn_fail(TN_E_INDEX, 0, "profiler_at(): there is no span %lld", (long long)i);
}
