/* move.c: bytes between the storages of two devices. */
#include "catch_priv.h"
#include "memory_priv.h"
#include "pinned_priv.h"
#include "tensor_priv.h"

#include <stdlib.h>

static const tn_device_desc *desc_of(const tn_storage *s) {
    return &tni_device_at(s->device.slot)->desc;
}

static tn_status copy_in(const tni_move *m) {
    const tn_device_desc *d = desc_of(m->dst);
    const char *src = (const char *)m->src->data + m->src_at;
    tn_status st = tni_caught(d->copy_in(d->ctx, m->dst->device.index, m->dst->data, m->dst_at, src,
                                         m->bytes, tni_stream_of(m->dst->device)));
    return tni_error_of_plugin(st, "copy_in", d->name);
}

static tn_status copy_out(const tni_move *m) {
    const tn_device_desc *d = desc_of(m->src);
    char *dst = (char *)m->dst->data + m->dst_at;
    TN_TRY(tni_forbid_native(m->src->device, "waiting for a copy to the host", NULL));
    tn_status st = tni_caught(d->copy_out(d->ctx, m->src->device.index, dst, m->src->data,
                                          m->src_at, m->bytes, tni_stream_of(m->src->device)));
    return tni_waited(m->src->device, false, st);
}

/* Between two devices of one kind, if they can; TN_DECLINE otherwise. */
static tn_status between_peers(const tni_move *m) {
    tn_device to = m->dst->device, from = m->src->device;
    const tni_device *dev = tni_device_at(to.slot);
    const tn_peer_iface *peer = to.slot == from.slot ? dev->ifaces.peer : NULL;
    if (!peer) return TN_DECLINE;
    tn_status st =
        tni_caught(peer->copy(dev->desc.ctx, to.index, m->dst->data, m->dst_at, tni_stream_of(to),
                              from.index, m->src->data, m->src_at, tni_stream_of(from), m->bytes));
    return tni_device_said(dev, st, "a copy between peers");
}

static tn_status through_host(const tni_move *m) {
    const tn_device cpu = {0, 0};
    tn_storage *middle, *spare = NULL;
    tn_status st = tni_storage_new(cpu, m->bytes, &spare, &middle);
    if (st == TN_OK) {
        st = copy_out(&(tni_move){middle, m->src, 0, m->src_at, m->bytes});
        if (st == TN_OK) st = copy_in(&(tni_move){m->dst, middle, m->dst_at, 0, m->bytes});
        tni_storage_unref(middle, &spare);
    }
    free(spare);
    return st;
}

static tn_status move(const tni_move *m) {
    TN_TRY(tni_storage_use(m->dst, tni_stream_of(m->dst->device)));
    TN_TRY(tni_storage_use(m->src, tni_stream_of(m->src->device)));
    /* Of other memory that the host can read, the device's queue decides when it may. */
    if (m->src->device.slot == 0) return copy_in(m);
    if (m->dst->device.slot == 0) return copy_out(m);
    tn_status st = between_peers(m);
    return st == TN_DECLINE ? through_host(m) : st;
}

tn_status tni_move_bytes(const tni_move *m) {
    if (m->bytes == 0) return TN_OK;
    if (TN_LIKELY(!tni_tls.watcher)) return move(m);
    TN_TRY(tni_tls.watcher->move(m));
    TN_TRY(move(m));
    return tni_tls.watcher->moved(m);
}

/* A stream that records takes no mark, so that a copy there waits. */
tn_status tni_move_queued(const tni_move *m) {
    tn_status st = m->bytes && !tni_tls.watcher ? tni_pinned_move(m) : TN_DECLINE;
    return st == TN_DECLINE ? tni_move_bytes(m) : st;
}
