/* storage.c: blocks of device memory that tensors share. */
#include <stdlib.h>

#include "catch_priv.h"
#include "memory_priv.h"
#include "tensor_priv.h"

/* The members of every storage; those of foreign memory are set later. */
static inline void fill(tn_storage *s, void *data, uint64_t bytes, tn_device device) {
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&s->version, 0, memory_order_relaxed);
    s->data = data;
    s->bytes = bytes;
    s->device = device;
    s->flags = 0;
    s->transform = tni_tls.transform;
    s->release = NULL;
    s->ctx = NULL;
    atomic_store_explicit(&s->life, NULL, memory_order_relaxed);
}

static TN_NOINLINE tn_status new_struct(tn_storage **ret_storage) {
    *ret_storage = malloc(sizeof **ret_storage);
    return *ret_storage ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
}

static void end_block(void *block) { tni_block_free(block); }

/* On a device whose memory core manages, or that is not there yet. */
static TN_NOINLINE tn_status new_elsewhere(tn_device device, uint64_t bytes, tn_storage **spare,
                                           tn_storage **ret_storage) {
    tni_block *block = NULL;
    void *data = NULL;
    TN_TRY(tni_device_ready(device.slot));
    if (tni_device_at(device.slot)->direct_alloc)
        return tni_storage_new(device, bytes, spare, ret_storage);
    if (bytes > 0) TN_TRY(tni_block_new(device, bytes, tni_stream_of(device), &block, &data));
    if (!*spare && new_struct(spare) != TN_OK) {
        tni_block_free(block);
        return TN_E_MEMORY;
    }
    tn_storage *s = *spare;
    *spare = NULL;
    fill(s, data, bytes, device);
    s->flags = TNI_ST_RELEASE | TNI_ST_BLOCK;
    s->release = end_block;
    s->ctx = block;
    *ret_storage = s;
    return TN_OK;
}

tn_status tni_storage_new(tn_device device, uint64_t bytes, tn_storage **spare,
                          tn_storage **ret_storage) {
    const tni_device *dev = tni_device_at(device.slot);
    void *data = NULL;
    if (TN_UNLIKELY(!dev->direct_alloc)) return new_elsewhere(device, bytes, spare, ret_storage);
    if (TN_UNLIKELY(!*spare)) TN_TRY(new_struct(spare));
    tn_storage *s = *spare;
    if (TN_LIKELY(bytes > 0))
        TN_TRY(tni_caught(dev->direct_alloc(dev->desc.ctx, device.index, bytes, &data)));
    *spare = NULL;
    fill(s, data, bytes, device);
    *ret_storage = s;
    return TN_OK;
}

tn_status tni_storage_foreign(tn_device device, void *data, uint64_t bytes, uint32_t flags,
                              void (*release)(void *ctx), void *ctx, tn_storage **ret_storage) {
    tn_storage *s;
    TN_TRY(new_struct(&s));
    fill(s, data, bytes, device);
    s->flags = flags | TNI_ST_RELEASE;
    s->release = release;
    s->ctx = ctx;
    *ret_storage = s;
    return TN_OK;
}

/* ---- Conjugates --------------------------------------------------------------------------------*/

static void life_unref(tni_life *l) {
    while (l && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
        tni_life *origin = l->origin;
        free(l);
        l = origin;
    }
}

static tn_status life_of(tn_storage *s, tni_life **ret_life) {
    *ret_life = atomic_load_explicit(&s->life, memory_order_acquire);
    if (*ret_life) return TN_OK;
    tni_life *l = calloc(1, sizeof *l), *have = NULL;
    if (!l) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&l->refs, 1, memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&s->life, &have, l)) {
        free(l);
        l = have;
    }
    *ret_life = l;
    return TN_OK;
}

tn_status tni_note_conjugate(const tn_tensor *of, tn_tensor *t) {
    tni_life *origin, *own;
    if (!of->storage || !t->storage || ((of->v.word | t->v.word) & TN_W_LAYOUT)) return TN_OK;
    TN_TRY(life_of(of->storage, &origin));
    TN_TRY(life_of(t->storage, &own)); /* nobody else knows of this storage */
    atomic_fetch_add_explicit(&origin->refs, 1, memory_order_relaxed);
    own->origin = origin;
    t->v.word |= TN_W_READONLY;
    return TN_OK;
}

/* ---- The end -----------------------------------------------------------------------------------*/

void tni_storage_unref(tn_storage *s, tn_storage **spare) {
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    tni_life *life = atomic_load_explicit(&s->life, memory_order_acquire);
    if (TN_UNLIKELY(life != NULL)) {
        atomic_store_explicit(&life->ended, 1, memory_order_release);
        life_unref(life);
    }
    if (TN_UNLIKELY(s->flags & TNI_ST_RELEASE)) {
        if (s->release) s->release(s->ctx);
    } else if (s->data) {
        const tni_device *dev = tni_device_at(s->device.slot);
        dev->desc.free(dev->desc.ctx, s->device.index, s->data, s->bytes);
        tni_caught_any();
    }
    if (TN_UNLIKELY(*spare != NULL))
        free(s);
    else
        *spare = s;
}

tn_status tn_tensor_record_stream(const tn_tensor *t, const tn_stream *s) {
    if (!t || !s)
        return tn_fail(TN_E_TYPE, t ? 1 : 0, "record_stream(): %s is NULL",
                       t ? "the stream" : "the tensor");
    tn_device have = tn_tensor_device(t), want = tn_stream_device(s);
    if (have.slot != want.slot || have.index != want.index)
        return tn_fail(
            TN_E_DEVICE, 1, "record_stream(): the stream belongs to %s:%d, the tensor to %s:%d",
            tn_device_name(want.slot), (int)want.index, tn_device_name(have.slot), (int)have.index);
    return tni_storage_use(t->storage, tn_stream_handle(s));
}
