/* mode_streams.c: work runs in the order that streams and events promise. A device without "tn.stream/1" has
 * one queue, which core shows as any number of streams; the same must hold there. */
#include "conform.h"

#include <string.h>
#include <tenon/ops.h>

enum { SIDE = 64, NUMBERS = SIDE * SIDE, STEPS = 20, ROUNDS = 10 };

/* What a check holds; freed in one place. */
typedef struct bench {
    cf_run *run;
    tn_stream *a, *b;
    tn_event *event, *later;
    tn_tensor *x, *y;
    float host[NUMBERS];
} bench;

static bool has_streams(const cf_run *r) {
    void *ctx;
    return tn_device_query(r->device.slot, "tn.stream/1", &ctx) != NULL;
}

static tn_status bench_open(bench *m, cf_run *r) {
    *m = (bench){.run = r};
    cf_add(&r->note, "%s", has_streams(r) ? "streams of the device" : "emulated: one queue");
    tn_status st = tn_stream_new(r->device, 0, &m->a);
    if (st == TN_OK) st = tn_stream_new(r->device, 0, &m->b);
    if (st == TN_OK) st = tn_event_new(r->device, 1, &m->event);
    if (st == TN_OK) st = tn_event_new(r->device, 1, &m->later);
    return st;
}

static void bench_close(bench *m, tn_status st) {
    tn_status back = tn_stream_set_current(m->run->device, NULL);
    if (st == TN_OK) st = back;
    if (st != TN_OK) cf_fail(m->run, "raised: %s", cf_why());
    m->run->cases++;
    tn_tensor_unref(&m->x);
    tn_tensor_unref(&m->y);
    tn_event_unref(&m->event);
    tn_event_unref(&m->later);
    tn_stream_unref(&m->a);
    tn_stream_unref(&m->b);
}

/* A new tensor full of a number, on the current stream. */
static tn_status fill(bench *m, float value, tn_tensor **ret_tensor) {
    int64_t shape[] = {SIDE, SIDE};
    for (int i = 0; i < NUMBERS; i++) m->host[i] = value;
    tn_tensor *t = NULL;
    tn_status st = tn_tensor_new(TN_F32, m->run->device, 2, shape, &t);
    if (st == TN_OK) st = tn_tensor_write(t, m->host, sizeof m->host);
    memset(m->host, 0xff, sizeof m->host); /* the source may change once a copy returns */
    tn_tensor_unref(ret_tensor);
    *ret_tensor = t;
    return st;
}

/* *t becomes *t + STEPS, by as many calls. */
static tn_status climb(tn_tensor **t) {
    tn_scalar_box one;
    tn_tensor *step = tn_scalar_box_init(&one, tn_scalar_float(1));
    tn_status st = TN_OK;
    for (int i = 0; st == TN_OK && i < STEPS; i++) {
        tn_tensor *next = NULL;
        st = tn_add(*t, step, tn_scalar_int(1), &next);
        if (st != TN_OK) break;
        tn_tensor_unref(t);
        *t = next;
    }
    return st;
}

/* Whether every element is the number, once the current stream is done. */
static tn_status expect(bench *m, const tn_tensor *t, float want) {
    tn_status st = tn_tensor_read(t, m->host, sizeof m->host);
    for (int i = 0; st == TN_OK && i < NUMBERS; i++) {
        if (m->host[i] == want) continue;
        cf_fail(m->run, "element %d is %g, expected %g: work ran out of order", i,
                (double)m->host[i], (double)want);
        break;
    }
    return st;
}

static tn_status use(bench *m, tn_stream *s) { return tn_stream_set_current(m->run->device, s); }

/* ---- Checks ------------------------------------------------------------------------------------*/

static tn_status order(bench *m) {
    tn_status st = use(m, m->a);
    for (int i = 0; st == TN_OK && i < ROUNDS; i++) {
        st = fill(m, (float)i, &m->x);
        if (st == TN_OK) st = climb(&m->x);
        if (st == TN_OK) st = expect(m, m->x, (float)(i + STEPS));
    }
    return st;
}

/* What one stream made is read on another one that waited for the event. */
static tn_status events(bench *m) {
    tn_status st = TN_OK;
    for (int i = 0; st == TN_OK && i < ROUNDS; i++) {
        st = use(m, m->a);
        if (st == TN_OK) st = fill(m, (float)i, &m->x);
        if (st == TN_OK) st = climb(&m->x);
        if (st == TN_OK) st = tn_event_record(m->event, m->a);
        if (st == TN_OK) st = tn_stream_wait(m->b, m->event);
        if (st == TN_OK) st = use(m, m->b);
        if (st == TN_OK) st = climb(&m->x);
        if (st == TN_OK) st = expect(m, m->x, (float)(i + 2 * STEPS));
    }
    return st;
}

static tn_status done(bench *m) {
    int stream_done = 0, event_done = 0;
    tn_status st = use(m, m->a);
    if (st == TN_OK) st = fill(m, 1, &m->x);
    if (st == TN_OK) st = climb(&m->x);
    if (st == TN_OK) st = tn_event_record(m->event, m->a);
    if (st == TN_OK) st = tn_event_sync(m->event);
    if (st == TN_OK) st = tn_event_done(m->event, &event_done);
    if (st == TN_OK) st = tn_stream_sync(m->a);
    if (st == TN_OK) st = tn_stream_done(m->a, &stream_done);
    if (st == TN_OK && !event_done) cf_fail(m->run, "an event that was waited for is not done");
    if (st == TN_OK && !stream_done) cf_fail(m->run, "a stream that was waited for is not done");
    return st;
}

static tn_status timing(bench *m) {
    double ms = -1;
    tn_status st = use(m, m->a);
    if (st == TN_OK) st = tn_event_record(m->event, m->a);
    if (st == TN_OK) st = fill(m, 1, &m->x);
    if (st == TN_OK) st = climb(&m->x);
    if (st == TN_OK) st = tn_event_record(m->later, m->a);
    if (st == TN_OK) st = tn_event_sync(m->later);
    if (st == TN_OK) st = tn_event_elapsed(m->event, m->later, &ms);
    if (st == TN_OK && !(ms >= 0 && ms < 60e3))
        cf_fail(m->run, "%g ms passed between two events", ms);
    return st;
}

/* Memory that is freed while queued work still reads it must not be written by later work. */
static tn_status memory(bench *m) {
    tn_status st = TN_OK;
    for (int i = 0; st == TN_OK && i < ROUNDS; i++) {
        st = use(m, m->a);
        if (st == TN_OK) st = fill(m, (float)i, &m->x);
        if (st == TN_OK) st = climb(&m->x); /* frees an operand per step */
        if (st == TN_OK) st = use(m, m->b);
        for (int k = 0; st == TN_OK && k < 4; k++) st = fill(m, -1, &m->y);
        if (st == TN_OK) st = use(m, m->a);
        if (st == TN_OK) st = expect(m, m->x, (float)(i + STEPS));
    }
    return st;
}

static void run_check(cf_run *r, tn_status (*check)(bench *m)) {
    bench m;
    tn_status st = bench_open(&m, r);
    if (st == TN_OK) st = check(&m);
    bench_close(&m, st);
}

static void check_order(cf_run *r) { run_check(r, order); }
static void check_events(cf_run *r) { run_check(r, events); }
static void check_done(cf_run *r) { run_check(r, done); }
/* One queue has no clock. */
static void check_timing(cf_run *r) {
    if (has_streams(r)) run_check(r, timing);
}
static void check_memory(cf_run *r) { run_check(r, memory); }

const cf_check cf_streams_checks[] = {
    {"order", check_order},   {"events", check_events}, {"done", check_done},
    {"timing", check_timing}, {"memory", check_memory}, {NULL, NULL},
};
