/* queue.c: queues of work. Each is a thread that takes its entries in order, and at random lingers
 * before one, so that whoever forgets to wait is found out.
 *
 * A failure of queued work cannot be returned to whoever queued it. The first one of a device is kept
 * and reported by the next call that waits for the device. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- Work --------------------------------------------------------------------------------------*/

sim_work *sim_work_new(sim_device *d, const char *op, void (*run)(sim_work *w)) {
    sim_work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->device = d;
    w->op = op;
    w->run = run;
    return w;
}

void sim_work_free(sim_work *w) {
    if (w->event) sim_event_drop(w->event);
    free(w->payload);
    free(w);
}

void sim_work_fail(sim_work *w, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->problem, sizeof w->problem, fmt, ap);
    va_end(ap);
}

/* ---- Failures ----------------------------------------------------------------------------------*/

void sim_note_failure(sim_device *d, const char *fmt, ...) {
    va_list ap;
    if (d->failed || d->lost) return;
    d->failed = true;
    int n = snprintf(d->failure, sizeof d->failure, "%s:%d: ", sim_settings.name, (int)d->index);
    va_start(ap, fmt);
    vsnprintf(d->failure + n, sizeof d->failure - (size_t)n, fmt, ap);
    va_end(ap);
}

tn_status sim_check_lost(const sim_device *d) {
    if (!d->lost) return TN_OK;
    return sim_host->fail(TN_E_DEVICE, -1, "%s", d->failure);
}

/* Lock held. A failure is reported once; a lost device stays lost. */
tn_status sim_take_failure(sim_device *d) {
    tn_status st = sim_check_lost(d);
    if (st != TN_OK || !d->failed) return st;
    d->failed = false;
    return sim_host->fail(TN_ASYNC, -1, "%s", d->failure);
}

static void lose(sim_device *d, const char *op) {
    d->lost = true;
    d->failed = false;
    snprintf(d->failure, sizeof d->failure,
             "%s:%d was lost while '%s' ran: nothing on it can be used any more", sim_settings.name,
             (int)d->index, op);
}

/* ---- Threads -----------------------------------------------------------------------------------*/

/* xorshift: the sequence of delays follows from the seed. */
static uint64_t draw(sim_queue *q) {
    q->random ^= q->random << 13;
    q->random ^= q->random >> 7;
    q->random ^= q->random << 17;
    return q->random;
}

/* One entry in four is late. */
static void linger(sim_queue *q) {
    uint64_t r = draw(q);
    if (!sim_settings.delay_us || r % 4 != 0) return;
    struct timespec t = {0, (long)(r / 4 % sim_settings.delay_us) * 1000};
    nanosleep(&t, NULL);
}

/* Lock held, and free while the work runs. */
static void perform(sim_device *d, sim_queue *q, sim_work *w) {
    bool skip = (d->lost || w->fatal) && !w->always;
    pthread_mutex_unlock(&d->lock);
    linger(q);
    if (w->doomed && !sim_settings.names)
        sim_work_fail(w, "a launch failed");
    else if (w->doomed)
        sim_work_fail(w, "'%s' failed (TENON_SIM_FAULT)", w->op);
    else if (!skip)
        w->run(w);
    pthread_mutex_lock(&d->lock);
    if (w->overrun && w->noperands) {
        const sim_block *b = w->blocks[0];
        d->memory.face[b->at + SIM_ZONE + b->bytes] = 0;
    }
    if (w->fatal && !d->lost) lose(d, w->op);
    if (w->problem[0]) sim_note_failure(d, "%s", w->problem);
    for (int i = 0; i < w->noperands; i++)
        if (w->blocks[i]) sim_memory_check(d, w->blocks[i], w->op);
}

static void *serve(void *arg) {
    sim_queue *q = arg;
    sim_device *d = q->device;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!q->head && !q->stop) pthread_cond_wait(&d->changed, &d->lock);
        if (!q->head) break;
        sim_work *w = q->head;
        perform(d, q, w);
        q->head = w->next;
        q->finished++;
        sim_work_free(w);
        sim_memory_reap(d);
        pthread_cond_broadcast(&d->changed);
    }
    q->running = false;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static bool start(sim_device *d, sim_queue *q) {
    if (q->running) return true;
    q->device = d;
    q->stop = false;
    if (!q->random) q->random = (sim_settings.seed * 977 + d->stamp + (uint64_t)d->index + 1) | 1;
    pthread_t thread;
    q->running = pthread_create(&thread, NULL, serve, q) == 0;
    if (q->running) pthread_detach(thread);
    return q->running;
}

tn_status sim_submit(sim_device *d, sim_queue *q, sim_work *w) {
    if (!q) q = &d->main;
    pthread_mutex_lock(&d->lock);
    if (sim_graph_takes(q)) {
        tn_status recorded = sim_graph_add(q, w);
        pthread_mutex_unlock(&d->lock);
        return recorded;
    }
    tn_status st = sim_check_lost(d);
    if (st == TN_OK && !start(d, q)) st = sim_host->fail(TN_E_MEMORY, -1, "no thread for a queue");
    if (st == TN_OK) {
        w->fatal = sim_fault_now(SIM_FAULT_LOST, w->op);
        w->seq = ++d->stamp;
        if (w->counted) sim_count_launch(w->op);
        if (q->head)
            q->tail->next = w;
        else
            q->head = w;
        q->tail = w;
        q->submitted++;
        pthread_cond_broadcast(&d->changed);
    } else {
        sim_work_free(w);
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

static void wait_for(sim_device *d, const sim_queue *q) {
    uint64_t goal = q->submitted;
    while (q->finished < goal) pthread_cond_wait(&d->changed, &d->lock);
}

tn_status sim_wait(sim_device *d, sim_queue *q) {
    pthread_mutex_lock(&d->lock);
    wait_for(d, q ? q : &d->main);
    tn_status st = sim_take_failure(d);
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* Lock held, and free while it waits. */
static void settle(sim_device *d) {
    uint64_t goal = d->stamp;
    while (!sim_is_done(d, goal)) pthread_cond_wait(&d->changed, &d->lock);
}

void sim_settle(sim_device *d) {
    pthread_mutex_lock(&d->lock);
    settle(d);
    pthread_mutex_unlock(&d->lock);
}

tn_status sim_wait_all(sim_device *d) {
    pthread_mutex_lock(&d->lock);
    settle(d);
    sim_memory_check_all(d);
    tn_status st = sim_take_failure(d);
    pthread_mutex_unlock(&d->lock);
    return st;
}

bool sim_is_done(const sim_device *d, uint64_t stamp) {
    for (const sim_queue *q = &d->main; q; q = q->next)
        if (q->head && q->head->seq <= stamp) return false;
    return true;
}

static bool may_use(const sim_block *b, const sim_queue *q) {
    for (int i = 0; i < b->nusers; i++)
        if (b->users[i] == q) return true;
    return b->nusers == 0;
}

bool sim_is_unused(const sim_device *d, const sim_block *b) {
    for (const sim_queue *q = &d->main; q; q = q->next)
        if (q->head && q->head->seq <= b->stamp && may_use(b, q)) return false;
    return true;
}

/* Asks every thread to leave once its queue is empty; false when none is left. */
static bool ask_to_leave(sim_device *d) {
    bool any = false;
    for (sim_queue *q = &d->main; q; q = q->next) {
        q->stop = true;
        any |= q->running;
    }
    pthread_cond_broadcast(&d->changed);
    return any;
}

/* The device keeps working: the next entry starts a thread anew. */
void sim_queues_stop(sim_device *d) {
    pthread_mutex_lock(&d->lock);
    while (ask_to_leave(d)) pthread_cond_wait(&d->changed, &d->lock);
    sim_memory_reap(d);
    sim_memory_close(d);
    pthread_mutex_unlock(&d->lock);
}
