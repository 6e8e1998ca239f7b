/* pinned.c: host memory that a device reaches by itself ("tn.pinned/1"), and copies from and to it
 * that nobody waits for. Every such copy leaves a mark (an event) in its stream; memory that is freed
 * before all of its marks have come up waits in a list, which is looked through whenever such memory
 * is made or freed. */
#include <stdlib.h>

#include <tenon/ops_create.h>

#include "catch_priv.h"
#include "memory_priv.h"
#include "os_priv.h"
#include "pinned_priv.h"
#include "tensor_priv.h"

enum { PAGE = 4096 };

typedef struct mark {
    struct mark *next;
    int32_t index; /* of the device that copies */
    void *event;
} mark;

typedef struct tni_pinned {
    const tni_device *device; /* NULL: the host's own memory, on a page boundary */
    void *data;
    uint64_t bytes;
    mark *marks;             /* of copies that may still run */
    struct tni_pinned *next; /* of those that wait */
} tni_pinned;

/* Guards all marks and the list. */
static tni_os_mutex pinned_lock = TNI_OS_MUTEX_INIT;
static tni_pinned *waiting;

/* ---- Marks; the lock is held -------------------------------------------------------------------*/

/* A failure that came late says nothing about this copy: the device is asked again. Any other means
 * that nothing runs there any more. */
static bool has_come_up(const tni_pinned *p, const mark *m) {
    int32_t done = 0;
    tn_status st = tni_caught(
        p->device->ifaces.stream->event_done(p->device->desc.ctx, m->index, m->event, &done));
    tni_keep_async(p->device, m->index, st);
    return st == TN_OK ? done != 0 : st != TN_ASYNC;
}

/* Drops the marks that have come up; whether none is left. */
static bool is_idle(tni_pinned *p) {
    for (mark **at = &p->marks; *at;) {
        mark *m = *at;
        if (!has_come_up(p, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        p->device->ifaces.stream->event_destroy(p->device->desc.ctx, m->index, m->event);
        tni_caught_any();
        free(m);
    }
    return p->marks == NULL;
}

static void release(tni_pinned *p) {
    if (p->device)
        p->device->ifaces.pinned->free(p->device->desc.ctx, p->data, p->bytes);
    else
        free(p->data);
    tni_caught_any();
    free(p);
}

static void release_waiting(void) {
    for (tni_pinned **at = &waiting; *at;) {
        tni_pinned *p = *at;
        if (is_idle(p)) {
            *at = p->next;
            release(p);
        } else {
            at = &p->next;
        }
    }
}

/* ---- Memory ------------------------------------------------------------------------------------*/

/* Of a storage. What the device says meanwhile is no error of whoever lets go of a tensor. */
static void end(void *pinned) {
    tni_pinned *p = pinned;
    struct tni_error *before = tni_error_copy();
    tni_os_lock(&pinned_lock);
    p->next = waiting;
    waiting = p;
    release_waiting();
    tni_os_unlock(&pinned_lock);
    tni_error_restore(before);
}

static const tni_device *pinning_device(int32_t slot) {
    if (slot >= 0) return tni_device_at(slot)->ifaces.pinned ? tni_device_at(slot) : NULL;
    for (int32_t i = 1; i < TN_DEVICE_SLOTS; i++) {
        const tni_device *dev = tni_device_at(i);
        if (dev && dev->ifaces.pinned) return dev;
    }
    return NULL;
}

static tn_status allocate(tni_pinned *p) {
    const tni_device *dev = p->device;
    if (dev) {
        tn_status st = tni_caught(dev->ifaces.pinned->alloc(dev->desc.ctx, p->bytes, &p->data));
        if (st == TN_OK && !p->data)
            st = tn_fail(TN_E_PLUGIN, -1, "device '%s': its pinned memory is TN_OK and NULL",
                         dev->name);
        return tni_error_of_plugin(st, "pin_memory", dev->name);
    }
    p->data = aligned_alloc(PAGE, (p->bytes + PAGE - 1) / PAGE * PAGE);
    return p->data ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
}

static tn_status new_storage(int32_t slot, uint64_t bytes, tn_storage **ret_storage) {
    const tn_device cpu = {0, 0};
    tni_pinned *p = calloc(1, sizeof *p);
    if (!p) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tni_os_lock(&pinned_lock);
    release_waiting();
    tni_os_unlock(&pinned_lock);
    p->device = pinning_device(slot);
    p->bytes = bytes ? bytes : 1;
    tn_status st = allocate(p);
    if (st != TN_OK) {
        free(p);
        return st;
    }
    st = tni_storage_foreign(cpu, p->data, bytes, TNI_ST_PINNED, end, p, ret_storage);
    if (st != TN_OK) end(p);
    return st;
}

tn_status tni_pinned_like(const tn_view *v, int32_t dtype, int64_t format, int32_t slot,
                          tn_tensor **ret_tensor) {
    const tn_device cpu = {0, 0};
    int64_t strides[TN_MAX_DIMS], numel, size = tn_dtype_size(dtype);
    tn_tensor *t;
    tn_storage *s;
    TN_TRY(tni_numel(v->ndim, v->shape, size, &numel));
    tni_format_strides((int32_t)format, v, v->ndim, v->shape, strides);
    TN_TRY(tni_header_new(dtype, cpu, v->ndim, v->shape, strides, &t));
    tn_status st = new_storage(slot, (uint64_t)(numel * size), &s);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    tni_attach(t, s, 0);
    *ret_tensor = t;
    return TN_OK;
}

tn_status tn_tensor_pin(tn_tensor *t, int32_t device_slot, tn_tensor **ret_tensor) {
    tn_tensor *pinned, *same = NULL;
    if (!t || !ret_tensor)
        return tn_fail(TN_E_TYPE, t ? 2 : 0, "pin_memory(): the tensor or the result is NULL");
    int32_t own = tn_view_device(&t->v);
    if (own != 0)
        return tn_fail(TN_E_STATE, 0,
                       "pin_memory(): only tensors on the CPU can be pinned, not on '%s'",
                       tn_device_name(own));
    if (device_slot >= 0) TN_TRY(tni_device_ready(device_slot));
    if (tn_tensor_is_pinned(t)) {
        *ret_tensor = tn_tensor_ref(t);
        return TN_OK;
    }
    TN_TRY(tni_pinned_like(&t->v, tn_view_dtype(&t->v), TN_FORMAT_PRESERVE, device_slot, &pinned));
    tn_status st = tn_copy_(pinned, t, 0, &same);
    tn_tensor_unref(&same);
    if (st == TN_OK)
        *ret_tensor = pinned;
    else
        tn_tensor_unref(&pinned);
    return st;
}

int tn_tensor_is_pinned(const tn_tensor *t) {
    return t && t->storage && (t->storage->flags & TNI_ST_PINNED);
}

/* ---- Copies ------------------------------------------------------------------------------------*/

/* Puts a mark behind the copy; where that cannot be done, waits. */
static tn_status mark_copy(tni_pinned *p, tn_device device, void *stream) {
    const tn_stream_iface *f = p->device->ifaces.stream;
    void *ctx = p->device->desc.ctx;
    mark *m = f ? calloc(1, sizeof *m) : NULL;
    bool made = m && tni_caught(f->event_create(ctx, device.index, 0, &m->event)) == TN_OK;
    if (!made || tni_caught(f->event_record(ctx, device.index, m->event, stream)) != TN_OK) {
        if (made) f->event_destroy(ctx, device.index, m->event);
        free(m);
        return tn_device_sync(device);
    }
    m->index = device.index;
    tni_os_lock(&pinned_lock);
    is_idle(p);
    m->next = p->marks;
    p->marks = m;
    tni_os_unlock(&pinned_lock);
    return TN_OK;
}

tn_status tni_pinned_move(const tni_move *m) {
    bool in = m->src->flags & TNI_ST_PINNED;
    const tn_storage *near = in ? m->src : m->dst, *far = in ? m->dst : m->src;
    if (!(near->flags & TNI_ST_PINNED)) return TN_DECLINE;
    tni_pinned *p = near->ctx;
    const tni_device *dev = tni_device_at(far->device.slot);
    if (p->device != dev) return TN_DECLINE;
    const tn_pinned_iface *f = dev->ifaces.pinned;
    void *ctx = dev->desc.ctx, *stream = tni_stream_of(far->device);
    int32_t index = far->device.index;
    TN_TRY(tni_storage_use(far, stream));
    char *data = (char *)near->data + (in ? m->src_at : m->dst_at);
    tn_status st =
        in ? tni_caught(f->copy_in(ctx, index, far->data, m->dst_at, data, m->bytes, stream))
           : tni_caught(f->copy_out(ctx, index, data, far->data, m->src_at, m->bytes, stream));
    st = tni_device_said(dev, st, "copy_");
    return st == TN_OK ? mark_copy(p, far->device, stream) : st;
}
