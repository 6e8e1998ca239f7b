/* stream.c: the named interfaces "tn.stream/1", queues beside the default one and events, which are
 * marks in queues, and "tn.peer/1", copies between devices. A thread that waits for an event of another device holds no lock of its own. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Guarded by the lock of its device. */
struct sim_event {
    sim_device *device;
    uint32_t refs;
    bool timing;
    uint64_t recorded, reached; /* how often it was put into a queue, and the last that came up */
    double ms;                  /* when that was */
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static tn_status no_memory(void) { return sim_host->fail(TN_E_MEMORY, -1, "out of memory"); }

/* ---- Streams -----------------------------------------------------------------------------------*/

static tn_status stream_create(void *ctx, int32_t index, int32_t priority, void **ret_stream) {
    sim_device *d = sim_device_at(index);
    sim_queue *q = calloc(1, sizeof *q);
    (void)ctx, (void)priority;
    if (!q) return no_memory();
    q->device = d;
    pthread_mutex_lock(&d->lock);
    tn_status st = sim_check_lost(d);
    if (st == TN_OK) {
        q->next = d->main.next;
        d->main.next = q;
    }
    pthread_mutex_unlock(&d->lock);
    if (st != TN_OK) {
        free(q);
        return st;
    }
    *ret_stream = q;
    return TN_OK;
}

static void stream_destroy(void *ctx, int32_t index, void *stream) {
    sim_device *d = sim_device_at(index);
    sim_queue *q = stream, *at = &d->main;
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    q->stop = true;
    pthread_cond_broadcast(&d->changed);
    while (q->running) pthread_cond_wait(&d->changed, &d->lock);
    while (at->next != q) at = at->next;
    at->next = q->next;
    pthread_mutex_unlock(&d->lock);
    free(q);
}

static tn_status stream_sync(void *ctx, int32_t index, void *stream) {
    (void)ctx;
    return sim_wait(sim_device_at(index), stream);
}

static tn_status stream_done(void *ctx, int32_t index, void *stream, int32_t *ret_done) {
    sim_device *d = sim_device_at(index);
    const sim_queue *q = stream ? stream : &d->main;
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    tn_status st = sim_check_lost(d);
    *ret_done = q->head == NULL;
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* ---- Events ------------------------------------------------------------------------------------*/

void sim_event_drop(sim_event *e) {
    if (--e->refs == 0) free(e);
}

static tn_status event_create(void *ctx, int32_t index, uint32_t flags, void **ret_event) {
    sim_event *e = calloc(1, sizeof *e);
    (void)ctx;
    if (!e) return no_memory();
    e->device = sim_device_at(index);
    e->refs = 1;
    e->timing = flags & TN_EVENT_TIMING;
    *ret_event = e;
    return TN_OK;
}

static void event_destroy(void *ctx, int32_t index, void *event) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    sim_event_drop(event);
    pthread_mutex_unlock(&d->lock);
}

static void run_mark(sim_work *w) {
    sim_event *e = w->event;
    pthread_mutex_lock(&e->device->lock);
    e->reached = w->mark;
    e->ms = now_ms();
    pthread_cond_broadcast(&e->device->changed);
    pthread_mutex_unlock(&e->device->lock);
}

static tn_status event_record(void *ctx, int32_t index, void *event, void *stream) {
    sim_device *d = sim_device_at(index);
    sim_event *e = event;
    sim_work *w = sim_work_new(d, "event_record", run_mark);
    (void)ctx;
    if (!w) return no_memory();
    pthread_mutex_lock(&d->lock);
    e->refs++;
    w->event = e;
    w->always = true;
    w->mark = ++e->recorded;
    pthread_mutex_unlock(&d->lock);
    return sim_submit(d, stream, w);
}

/* The thread of a queue waits until an event, of its device or another, has come up. */
static void run_wait(sim_work *w) {
    sim_event *e = *(sim_event **)w->payload;
    sim_device *d = e->device;
    pthread_mutex_lock(&d->lock);
    while (e->reached < w->mark && !d->lost) pthread_cond_wait(&d->changed, &d->lock);
    sim_event_drop(e);
    pthread_mutex_unlock(&d->lock);
}

static tn_status wait_event(void *ctx, int32_t index, void *stream, void *event) {
    sim_device *d = sim_device_at(index);
    sim_event *e = event, **kept = malloc(sizeof(sim_event *));
    sim_work *w = sim_work_new(d, "wait_event", run_wait);
    (void)ctx;
    if (!w || !kept) {
        free(kept);
        free(w);
        return no_memory();
    }
    *kept = e;
    w->payload = kept;
    w->always = true;
    pthread_mutex_lock(&e->device->lock);
    e->refs++;
    w->mark = e->recorded;
    pthread_mutex_unlock(&e->device->lock);
    tn_status st = sim_submit(d, stream, w);
    if (st != TN_OK) event_destroy(ctx, e->device->index, e);
    return st;
}

static tn_status event_sync(void *ctx, int32_t index, void *event) {
    sim_device *d = sim_device_at(index);
    const sim_event *e = event;
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    uint64_t goal = e->recorded;
    while (e->reached < goal && !d->lost) pthread_cond_wait(&d->changed, &d->lock);
    tn_status st = sim_take_failure(d);
    pthread_mutex_unlock(&d->lock);
    return st;
}

static tn_status event_done(void *ctx, int32_t index, void *event, int32_t *ret_done) {
    sim_device *d = sim_device_at(index);
    const sim_event *e = event;
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    tn_status st = sim_check_lost(d);
    *ret_done = e->reached == e->recorded;
    pthread_mutex_unlock(&d->lock);
    return st;
}

static tn_status event_elapsed(void *ctx, int32_t index, void *start, void *end, double *ret_ms) {
    sim_device *d = sim_device_at(index);
    const sim_event *a = start, *b = end;
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    bool timing = a->timing && b->timing, both = a->reached && b->reached;
    double ms = b->ms - a->ms;
    pthread_mutex_unlock(&d->lock);
    if (!timing) return sim_host->fail(TN_E_STATE, -1, "the events were made without timing");
    if (!both) return sim_host->fail(TN_E_STATE, -1, "both events must have been reached");
    *ret_ms = ms;
    return TN_OK;
}

/* ---- Copies between devices --------------------------------------------------------------------*/

tn_status sim_let_wait(int32_t first, void *first_stream, int32_t then, void *then_stream) {
    void *event = NULL;
    tn_status st = event_create(NULL, first, 0, &event);
    if (st != TN_OK) return st;
    st = event_record(NULL, first, event, first_stream);
    if (st == TN_OK) st = wait_event(NULL, then, then_stream, event);
    event_destroy(NULL, first, event);
    return st;
}

static void run_peer_copy(sim_work *w) { memcpy(w->dst, w->src, w->bytes); }

/* The source's queue copies, between a mark and a wait of the destination's queue. */
static tn_status peer_copy(void *ctx, int32_t dst_device, void *dst, uint64_t dst_offset,
                           void *dst_stream, int32_t src_device, const void *src,
                           uint64_t src_offset, void *src_stream, uint64_t bytes) {
    sim_device *d = sim_device_at(src_device);
    unsigned char *to = sim_reach(sim_device_at(dst_device), dst, dst_offset, bytes);
    const unsigned char *from = to ? sim_reach(d, src, src_offset, bytes) : NULL;
    (void)ctx;
    if (!from) return TN_E_INTERNAL;
    tn_status st = sim_let_wait(dst_device, dst_stream, src_device, src_stream);
    if (st != TN_OK) return st;
    sim_work *w = sim_work_new(d, "copy_peer", run_peer_copy);
    if (!w) return no_memory();
    w->dst = to;
    w->src = from;
    w->bytes = bytes;
    w->counted = true;
    st = sim_submit(d, src_stream, w);
    return st == TN_OK ? sim_let_wait(src_device, src_stream, dst_device, dst_stream) : st;
}

const tn_peer_iface sim_peer_iface = {
    .struct_size = sizeof sim_peer_iface,
    .copy = peer_copy,
};

const tn_stream_iface sim_stream_iface = {
    .struct_size = sizeof sim_stream_iface,
    .create = stream_create,
    .destroy = stream_destroy,
    .sync = stream_sync,
    .done = stream_done,
    .wait_event = wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_sync = event_sync,
    .event_done = event_done,
    .event_elapsed = event_elapsed,
};
