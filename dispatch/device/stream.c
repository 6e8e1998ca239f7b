/* stream.c: queues of work on a device (interface "tn.stream/1"), and which of them a thread uses.
 *
 * A device without the interface has one queue, its default: every stream of it is that queue. */
#include <stdlib.h>

#include "catch_priv.h"
#include "memory_priv.h"
#include "os_priv.h"

struct tn_stream {
    _Atomic uint32_t refs;
    tn_device device;
    void *handle; /* NULL: the default queue */
};

struct tn_event {
    _Atomic uint32_t refs;
    tn_device device;
    void *handle; /* NULL: the device has no events, its queue is waited for instead */
};

/* One entry per device whose stream a thread has set. */
struct tni_current {
    tn_stream *stream;
    struct tni_current *next;
};

static const tn_stream_iface *iface_of(int32_t slot) { return tni_device_at(slot)->ifaces.stream; }

static void *ctx_of(tn_device d) { return tni_device_at(d.slot)->desc.ctx; }

static tn_status said(tn_device d, tn_status st) {
    if (st == TN_ASYNC) return st; /* has its text from whoever waits */
    return tni_error_of_plugin(st, "a stream or an event", tn_device_name(d.slot));
}

static bool same(tn_device a, tn_device b) { return a.slot == b.slot && a.index == b.index; }

/* ---- Streams -----------------------------------------------------------------------------------*/

tn_status tn_stream_new(tn_device device, int32_t priority, tn_stream **ret_stream) {
    if (!ret_stream) return tn_fail(TN_E_TYPE, -1, "stream_new(): the result has no place to go");
    TN_TRY(tni_check_device(device));
    const tn_stream_iface *f = iface_of(device.slot);
    tn_stream *s = calloc(1, sizeof *s);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st =
        f ? said(device, tni_caught(f->create(ctx_of(device), device.index, priority, &s->handle)))
          : TN_OK;
    if (st != TN_OK) {
        free(s);
        return st;
    }
    if (s->handle) atomic_fetch_add(&tni_streams_live, 1);
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->device = device;
    *ret_stream = s;
    return TN_OK;
}

tn_status tn_stream_default(tn_device device, tn_stream **ret_stream) {
    if (!ret_stream)
        return tn_fail(TN_E_TYPE, -1, "stream_default(): the result has no place to go");
    TN_TRY(tni_check_device(device));
    tn_stream *s = calloc(1, sizeof *s);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->device = device;
    *ret_stream = s;
    return TN_OK;
}

tn_stream *tn_stream_ref(tn_stream *s) {
    if (s) atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void tn_stream_unref(tn_stream **stream) {
    tn_stream *s = stream ? *stream : NULL;
    if (!s) return;
    *stream = NULL;
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    const tn_stream_iface *f = tni_device_maker(s->device.slot)->ifaces.stream;
    if (f && s->handle) {
        f->destroy(ctx_of(s->device), s->device.index, s->handle);
        tni_caught_any();
        tni_memory_forget_stream(s->device, s->handle);
        atomic_fetch_sub(&tni_streams_live, 1);
    }
    free(s);
}

tn_device tn_stream_device(const tn_stream *s) { return s ? s->device : (tn_device){0, 0}; }
void *tn_stream_handle(const tn_stream *s) { return s ? s->handle : NULL; }

tn_status tn_stream_sync(const tn_stream *s) {
    if (!s) return tn_fail(TN_E_TYPE, 0, "the stream is NULL");
    TN_TRY(tni_forbid(s->device, "waiting for a stream", NULL));
    const tn_stream_iface *f = iface_of(s->device.slot);
    if (!f) return tn_device_sync(s->device);
    tn_status st = tni_caught(f->sync(ctx_of(s->device), s->device.index, s->handle));
    return tni_waited(s->device, false, st);
}

tn_status tn_stream_done(const tn_stream *s, int *ret_done) {
    int32_t done = 1;
    if (!s) return tn_fail(TN_E_TYPE, 0, "the stream is NULL");
    const tn_stream_iface *f = iface_of(s->device.slot);
    if (f)
        TN_TRY(tni_looked(
            s->device, tni_caught(f->done(ctx_of(s->device), s->device.index, s->handle, &done))));
    else
        TN_TRY(tn_device_sync(s->device));
    *ret_done = done;
    return TN_OK;
}

tn_status tn_stream_wait(const tn_stream *s, const tn_event *e) {
    if (!s || !e) return tn_fail(TN_E_TYPE, s ? 1 : 0, "stream and event must not be NULL");
    const tn_stream_iface *f = iface_of(s->device.slot);
    if (f && e->handle && s->device.slot == e->device.slot)
        return said(s->device, tni_caught(f->wait_event(ctx_of(s->device), s->device.index,
                                                        s->handle, e->handle)));
    return tn_event_sync(e);
}

/* ---- The thread's stream -----------------------------------------------------------------------*/

static struct tni_current *find(tn_device device) {
    struct tni_current *c = tni_tls.streams;
    while (c && !same(c->stream->device, device)) c = c->next;
    return c;
}

void *tni_stream_find(tn_device device) {
    const struct tni_current *c = find(device);
    return c ? c->stream->handle : NULL;
}

tn_stream *tn_stream_current(tn_device device) {
    const struct tni_current *c = find(device);
    return c ? c->stream : NULL;
}

static void drop_streams(void) {
    while (tni_tls.streams) {
        struct tni_current *c = tni_tls.streams;
        tni_tls.streams = c->next;
        tn_stream_unref(&c->stream);
        free(c);
    }
}

/* Whether a graph of the device may have branches, which other streams record. */
static bool has_branches(tn_device device) {
    const tn_graph_iface *graph = tni_device_at(device.slot)->ifaces.graph;
    return graph && (graph->flags & TN_GRAPH_BRANCHES);
}

tn_status tn_stream_set_current(tn_device device, tn_stream *stream) {
    struct tni_current **at = &tni_tls.streams;
    if (stream && !same(stream->device, device))
        return tn_fail(TN_E_DEVICE, 1, "the stream belongs to %s:%d, not to %s:%d",
                       tn_device_name(stream->device.slot), (int)stream->device.index,
                       tn_device_name(device.slot), (int)device.index);
    if (!has_branches(device))
        TN_TRY(tni_forbid_native(device, "changing to another stream", NULL));
    while (*at && !same((*at)->stream->device, device)) at = &(*at)->next;
    struct tni_current *c = *at;
    if (c && stream) {
        tn_stream *old = c->stream;
        c->stream = tn_stream_ref(stream);
        tn_stream_unref(&old);
    } else if (c) {
        *at = c->next;
        tn_stream_unref(&c->stream);
        free(c);
    } else if (stream) {
        c = malloc(sizeof *c);
        if (!c) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        tni_os_at_thread_exit(drop_streams);
        *c = (struct tni_current){tn_stream_ref(stream), tni_tls.streams};
        tni_tls.streams = c;
    }
    return TN_OK;
}

/* ---- Events ------------------------------------------------------------------------------------*/

tn_status tn_event_new(tn_device device, int timing, tn_event **ret_event) {
    if (!ret_event) return tn_fail(TN_E_TYPE, -1, "event_new(): the result has no place to go");
    TN_TRY(tni_check_device(device));
    const tn_stream_iface *f = iface_of(device.slot);
    tn_event *e = calloc(1, sizeof *e);
    if (!e) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    uint32_t flags = timing ? TN_EVENT_TIMING : 0;
    tn_status st =
        f ? said(device,
                 tni_caught(f->event_create(ctx_of(device), device.index, flags, &e->handle)))
          : TN_OK;
    if (st != TN_OK) {
        free(e);
        return st;
    }
    e->device = device;
    atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
    *ret_event = e;
    return TN_OK;
}

void tn_event_unref(tn_event **event) {
    tn_event *e = event ? *event : NULL;
    if (!e) return;
    *event = NULL;
    if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1) return;
    const tn_stream_iface *f = tni_device_maker(e->device.slot)->ifaces.stream;
    if (f && e->handle) f->event_destroy(ctx_of(e->device), e->device.index, e->handle);
    free(e);
}

void *tn_event_handle(const tn_event *e) { return e ? e->handle : NULL; }

tn_status tn_event_record(tn_event *e, const tn_stream *s) {
    if (!e) return tn_fail(TN_E_TYPE, 0, "the event is NULL");
    if (s && !same(s->device, e->device))
        return tn_fail(TN_E_DEVICE, 1, "event and stream belong to different devices");
    const tn_stream_iface *f = iface_of(e->device.slot);
    if (!f) return tni_device_ready(e->device.slot);
    void *queue = s ? s->handle : tni_stream_of(e->device);
    return said(e->device,
                tni_caught(f->event_record(ctx_of(e->device), e->device.index, e->handle, queue)));
}

tn_status tn_event_sync(const tn_event *e) {
    if (!e) return tn_fail(TN_E_TYPE, 0, "the event is NULL");
    TN_TRY(tni_forbid(e->device, "waiting for an event", NULL));
    const tn_stream_iface *f = iface_of(e->device.slot);
    if (!f) return tn_device_sync(e->device);
    return tni_looked(e->device,
                      tni_caught(f->event_sync(ctx_of(e->device), e->device.index, e->handle)));
}

tn_status tn_event_done(const tn_event *e, int *ret_done) {
    int32_t done = 1;
    if (!e) return tn_fail(TN_E_TYPE, 0, "the event is NULL");
    const tn_stream_iface *f = iface_of(e->device.slot);
    if (f)
        TN_TRY(tni_looked(e->device, tni_caught(f->event_done(ctx_of(e->device), e->device.index,
                                                              e->handle, &done))));
    else
        TN_TRY(tn_device_sync(e->device));
    *ret_done = done;
    return TN_OK;
}

tn_status tn_event_elapsed(const tn_event *start, const tn_event *end, double *ret_ms) {
    if (!start || !end) return tn_fail(TN_E_TYPE, start ? 1 : 0, "the event is NULL");
    const tn_stream_iface *f = iface_of(start->device.slot);
    if (!f || !same(start->device, end->device))
        return tn_fail(TN_E_UNSUPPORTED, -1, "device '%s' does not measure time between events",
                       tn_device_name(start->device.slot));
    return said(start->device,
                tni_caught(f->event_elapsed(ctx_of(start->device), start->device.index,
                                            start->handle, end->handle, ret_ms)));
}
