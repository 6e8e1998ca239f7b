/* storage.c: blocks of device memory, and the number boxes of the C API. */
#include <stdlib.h>

#include "core_priv.h"
#include "os_priv.h"
#include "registry_priv.h"

enum { MAX_FREE = 256 };

static void drop_free_storages(void *unused) {
    (void)unused;
    while (tni_tls.free_storages) {
        tn_storage *s = tni_tls.free_storages;
        tni_tls.free_storages = s->next_free;
        free(s);
    }
    tni_tls.free_storage_count = MAX_FREE; /* frees from here on go straight to the heap */
}

static tn_storage *storage_struct(void) {
    tn_storage *s = tni_tls.free_storages;
    if (TN_LIKELY(s != NULL)) {
        tni_tls.free_storages = s->next_free;
        tni_tls.free_storage_count--;
        return s;
    }
    return malloc(sizeof *s);
}

static void storage_struct_free(tn_storage *s) {
    if (TN_UNLIKELY(tni_tls.free_storage_count >= MAX_FREE)) {
        free(s);
        return;
    }
    if (TN_UNLIKELY(!(tni_tls.exit_hook & 1u))) {
        tni_tls.exit_hook |= 1u;
        tni_os_at_thread_exit(drop_free_storages, NULL);
    }
    s->next_free = tni_tls.free_storages;
    tni_tls.free_storages = s;
    tni_tls.free_storage_count++;
}

tn_status tni_storage_new(tn_device device, uint64_t bytes, tn_storage **ret_storage) {
    tni_device *dev = &tni_devices[device.slot];
    if (TN_UNLIKELY(!dev->desc.alloc)) TN_TRY(tni_device_ready(device.slot));
    tn_storage *s = storage_struct();
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    s->data = NULL;
    if (bytes) {
        tn_status st = dev->desc.alloc(dev->desc.ctx, device.index, bytes, &s->data);
        if (TN_UNLIKELY(st != TN_OK)) {
            storage_struct_free(s);
            return st;
        }
    }
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&s->version, 0, memory_order_relaxed);
    s->bytes = bytes;
    s->device = device;
    s->flags = 0;
    s->release = NULL;
    s->ctx = NULL;
    *ret_storage = s;
    return TN_OK;
}

tn_status tni_storage_foreign(tn_device device, void *data, uint64_t bytes, uint32_t flags,
                              void (*release)(void *ctx), void *ctx, tn_storage **ret_storage) {
    tn_storage *s = storage_struct();
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&s->version, 0, memory_order_relaxed);
    s->data = data;
    s->bytes = bytes;
    s->device = device;
    s->flags = flags | TNI_ST_FOREIGN;
    s->release = release;
    s->ctx = ctx;
    *ret_storage = s;
    return TN_OK;
}

void tni_storage_unref(tn_storage *s) {
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (TN_UNLIKELY(s->flags & TNI_ST_FOREIGN)) {
        if (s->release) s->release(s->ctx);
    } else if (s->data) {
        tni_device *dev = &tni_devices[s->device.slot];
        dev->desc.free(dev->desc.ctx, s->device.index, s->data, s->bytes);
    }
    storage_struct_free(s);
}
