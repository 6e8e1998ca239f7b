/* launch.c: kernels on devices other than the CPU. They go into the queue of the thread's stream, and
 * what goes wrong in them is found out later, by somebody who waits: by then the message needs the
 * name of an operator, which is noted here. */
#include "launch_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "capture_priv.h"
#include "dispatch_priv.h"
#include "memory_priv.h"
#include "os_priv.h"

typedef struct tni_launches {
    _Atomic(const tn_op *) first; /* launched first since the device was waited for */
    _Atomic bool failed;          /* `text` waits for somebody who waits */
    tni_os_mutex lock;
    char text[512];
} tni_launches;

_Atomic bool tni_any_special;

tni_launches *tni_launches_new(int32_t count) {
    tni_launches *all = calloc(count ? (size_t)count : 1, sizeof *all);
    for (int32_t i = 0; all && i < count; i++) all[i].lock = (tni_os_mutex)TNI_OS_MUTEX_INIT;
    return all;
}

void tni_launches_delete(tni_launches *launches) { free(launches); }

/* ---- Failures that come late -------------------------------------------------------------------*/

/* Whether a text has the name of an operator between quotes: 'mul'. */
static bool names_operator(const char *text) {
    char name[64];
    for (const char *at = strchr(text, '\''); at; at = strchr(at + 1, '\'')) {
        size_t n = strcspn(at + 1, "'");
        if (n == 0 || n >= sizeof name || !at[1 + n]) continue;
        memcpy(name, at + 1, n);
        name[n] = '\0';
        if (tni_op_find(name)) return true;
    }
    return false;
}

/* The text of the record's failure, with the operator that was launched first if there is none. */
static void describe(const tni_device *dev, int32_t index, char *text, size_t size) {
    const char *said = tn_error_last()->message;
    const tn_op *first = atomic_load(&dev->launches[index].first);
    if (!first || names_operator(said))
        snprintf(text, size, "%s", said);
    else
        snprintf(text, size,
                 "%s (the first operator since %s:%d was last waited for was '%s'; "
                 "TENON_LAUNCH_BLOCKING=1 shows which one failed)",
                 said, dev->name, (int)index, first->info.name);
}

void tni_keep_async(const tni_device *dev, int32_t index, tn_status st) {
    tni_launches *l = &dev->launches[index];
    if (st != TN_ASYNC) return;
    tni_os_lock(&l->lock);
    if (!atomic_load(&l->failed)) describe(dev, index, l->text, sizeof l->text);
    atomic_store(&l->failed, true);
    tni_os_unlock(&l->lock);
}

/* Reports what was kept, once. */
static tn_status raise_kept(tni_launches *l) {
    tn_status st = TN_OK;
    tni_os_lock(&l->lock);
    if (atomic_load(&l->failed)) st = tn_fail(TN_ASYNC, -1, "%s", l->text);
    atomic_store(&l->failed, false);
    tni_os_unlock(&l->lock);
    return st;
}

tn_status tni_looked(tn_device device, tn_status st) {
    const tni_device *dev = tni_device_at(device.slot);
    if (!dev->launches || (st != TN_OK && st != TN_ASYNC)) return st;
    tni_launches *l = &dev->launches[device.index];
    tni_keep_async(dev, device.index, st);
    return atomic_load(&l->failed) ? raise_kept(l) : TN_OK;
}

tn_status tni_waited(tn_device device, bool everything, tn_status st) {
    const tni_device *dev = tni_device_at(device.slot);
    st = tni_looked(device, st);
    if (dev->launches && (everything || atomic_load(&tni_streams_live) == 0))
        atomic_store(&dev->launches[device.index].first, NULL);
    return st;
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

static bool blocking;
static tni_os_once blocking_once = TNI_OS_ONCE_INIT;

static void read_blocking(void) {
    const char *text = tni_os_getenv("TENON_LAUNCH_BLOCKING");
    blocking = text && strcmp(text, "1") == 0;
}

static bool launches_block(void) {
    tni_os_call_once(&blocking_once, read_blocking);
    return blocking;
}

static tn_status use_list(const tn_views *list, void *stream) {
    for (int64_t i = 0; i < list->n; i++)
        if (list->v[i]) TN_TRY(tni_storage_use(tni_t(list->v[i])->storage, stream));
    return TN_OK;
}

/* Work on `stream` will use the memory of all operands. */
static tn_status use_operands(const tn_op *op, const void *args, void *stream) {
    for (int i = 0; i < op->nin + op->nout; i++) {
        int field = i < op->nin ? op->in_field[i] : op->out_field[i - op->nin];
        const void *at = (const char *)args + op->fields[field].offset;
        if (op->fields[field].kind == TN_F_TENSORS) {
            TN_TRY(use_list(at, stream));
        } else {
            const tn_tensor *t = *(tn_tensor *const *)at;
            if (t) TN_TRY(tni_storage_use(t->storage, stream));
        }
    }
    return TN_OK;
}

static _Atomic uint32_t call_flags; /* TN_CALL_* of every call from now on */

uint32_t tni_call_flags(void) { return atomic_load_explicit(&call_flags, memory_order_relaxed); }

int tn_is_deterministic(void) { return (tni_call_flags() & TN_CALL_DETERMINISTIC) != 0; }

void tn_set_deterministic(int on) {
    if (on) atomic_store(&tni_any_special, true); /* the short way passes no flags */
    atomic_store(&call_flags, on ? TN_CALL_DETERMINISTIC : 0);
}

tn_status tni_kernel_special(const tn_op *op, const tn_cell *cell, tn_device device, int32_t dtype,
                             const void *args) {
    const tni_device *dev = tni_device_at(device.slot);
    void *stream = tni_stream_of(device);
    const tn_op *none = NULL;
    tn_call call = {&tni_host,    cell->ctx, stream,           &op->info,
                    device.index, dtype,     tni_call_flags(), (uint32_t)device.slot};
    if (atomic_load(&tni_streams_live) && dev->memory) TN_TRY(use_operands(op, args, stream));
    if (dev->launches && !atomic_load(&dev->launches[device.index].first))
        atomic_compare_exchange_strong(&dev->launches[device.index].first, &none, op);
    if (tni_tls.capture) return tni_capture_run(op, cell, &call, args);
    tn_status st = tni_caught(cell->fn(&call, args));
    if (st != TN_OK || tni_tls.scratch) st = tni_kernel_after(cell, &call, args, st);
    if (!dev->launches) return st;
    if (st == TN_ASYNC) return tni_waited(device, true, st);
    return st == TN_OK && launches_block() ? tn_device_sync(device) : st;
}
