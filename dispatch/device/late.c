/* late.c: what goes wrong on a device behind the host's back. Kernels go into the queue of a stream, and a
 * failure is found out later, by somebody who waits: by then the message needs the name of an operator,
 * which is noted here. */
#include <stdio.h>
#include <stdlib.h>

#include "catch_priv.h"
#include "device_priv.h"
#include "os_priv.h"

typedef struct tni_launches {
    _Atomic(const tn_op *) first; /* launched first since the device was waited for */
    _Atomic bool failed;          /* `text` waits for somebody who waits */
    tni_os_mutex lock;
    char text[512];
} tni_launches;

_Atomic bool tni_any_special;
_Atomic uint32_t tni_streams_live;

tni_launches *tni_launches_new(int32_t count) {
    tni_launches *all = calloc(count ? (size_t)count : 1, sizeof *all);
    for (int32_t i = 0; all && i < count; i++) all[i].lock = (tni_os_mutex)TNI_OS_MUTEX_INIT;
    return all;
}

void tni_launches_delete(tni_launches *launches) { free(launches); }

void tni_note_launch(const tni_device *dev, int32_t index, const tn_op *op) {
    _Atomic(const tn_op *) *first = &dev->launches[index].first;
    const tn_op *none = NULL;
    if (!atomic_load(first)) atomic_compare_exchange_strong(first, &none, op);
}

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
    if (st != TN_OK && st != TN_ASYNC)
        return tni_error_of_plugin(st, "a copy or a wait", dev->name);
    if (!dev->launches) return st;
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

tn_status tn_device_sync(tn_device device) {
    TN_TRY(tni_device_ready(device.slot));
    TN_TRY(tni_forbid(device, "waiting for a device", NULL));
    const tn_device_desc *d = &tni_device_at(device.slot)->desc;
    return tni_waited(device, true, tni_caught(d->sync(d->ctx, device.index)));
}
