/* queue.c: streams, events and contexts. Every stream is a thread. A fault is sticky, as on a GPU: it
 * is written to the standard error stream with all that is known, and from then on every call that
 * could notice returns the same code. */
#include "queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grid.h"
#include "memory.h"

typedef struct work {
    struct work *next;
    queue_fn run;
    size_t bytes; /* of the payload */
    CUevent mark, wait;
    unsigned long long number; /* of the mark */
    CUstream lane;             /* in a graph: the stream that recorded it */
    _Alignas(16) unsigned char payload[];
} work;

/* What streams record in place of running it: the one that was told to, and those that have waited for
 * marks in it. */
struct CUgraph_st {
    CUcontext context;
    CUstream origin;
    work *head, *tail;
    unsigned long long marks;
    bool broken; /* something was called that cannot be recorded */
};

struct CUgraphExec_st {
    work *head;
    unsigned long long marks, random;
};

struct CUstream_st {
    CUcontext context;
    CUgraph recording;
    struct CUstream_st *next;
    work *head, *tail;
    unsigned long long submitted, finished;
    unsigned long long random;
    bool running, ending;
    bool reached; /* at the end of a recording: the stream that was told to record waits for it */
};

struct CUctx_st {
    int device;
    CUresult fault;
    struct CUstream_st *streams; /* the default one last */
    struct CUstream_st main;
};

struct CUevent_st {
    unsigned long long recorded, reached;
    bool timed;
    CUgraph captured;         /* of the stream that was recording when it was recorded last */
    unsigned long long place; /* among the marks there */
    double ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct CUctx_st contexts[HOST_DEVICES];
static __thread CUcontext current;

static CUcontext context_at(int device) {
    CUcontext c = &contexts[device];
    c->device = device;
    c->main.context = c;
    if (!c->streams) c->streams = &c->main;
    return c;
}

/* Lock held. */
static CUresult state(CUcontext c) { return c ? c->fault : CUDA_BAD_CONTEXT; }

/* Lock held: whether the stream may be waited for or asked. One that records may not, and what it
 * has recorded is lost. */
static CUresult may_wait(CUstream s) {
    if (!s->recording) return CUDA_OK;
    s->recording->broken = true;
    return CUDA_NOT_CAPTURED;
}

static CUresult may_wait_for_all(CUcontext c) {
    CUresult r = CUDA_OK;
    for (CUstream s = c->streams; s; s = s->next)
        if (may_wait(s) != CUDA_OK) r = CUDA_NOT_CAPTURED;
    return r;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- Threads -----------------------------------------------------------------------------------*/

static long longest_delay(void) {
    const char *text = getenv("TENON_CUDA_HOST_DELAY");
    return text ? strtol(text, NULL, 10) : 20;
}

/* One entry in four is late. */
static void linger(CUstream s) {
    long most = longest_delay();
    s->random = s->random * 6364136223846793005ull + 1442695040888963407ull;
    unsigned long long r = s->random >> 33;
    if (most <= 0 || r % 4) return;
    struct timespec t = {0, (long)(r / 4 % (unsigned long long)most) * 1000};
    nanosleep(&t, NULL);
}

/* Lock held, and free while the work runs. */
static void perform(CUstream s, work *w) {
    char problem[HOST_TEXT] = "";
    bool fine = true;
    while (w->wait && w->wait->reached < w->number && !s->context->fault)
        pthread_cond_wait(&changed, &lock);
    if (w->run && !s->context->fault) {
        pthread_mutex_unlock(&lock);
        linger(s);
        fine = w->run(w->payload, problem);
        pthread_mutex_lock(&lock);
    }
    if (w->mark) {
        w->mark->reached = w->number;
        w->mark->ms = now_ms();
    }
    if (!fine && !s->context->fault) {
        s->context->fault = CUDA_ILLEGAL_ADDRESS;
        fprintf(stderr, "CUDA host harness: %s\n", problem);
    }
}

static void *serve(void *arg) {
    CUstream s = arg;
    pthread_mutex_lock(&lock);
    while (s->head || !s->ending) {
        if (!s->head) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        work *w = s->head;
        perform(s, w);
        s->head = w->next;
        s->finished++;
        free(w);
        pthread_cond_broadcast(&changed);
    }
    s->running = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Lock held. */
static bool start(CUstream s) {
    pthread_t thread;
    if (s->running) return true;
    s->running = pthread_create(&thread, NULL, serve, s) == 0;
    if (s->running) pthread_detach(thread);
    return s->running;
}

/* Lock held. Takes the work over. */
static void append(CUstream s, work *w) {
    if (s->head)
        s->tail->next = w;
    else
        s->head = w;
    s->tail = w;
    s->submitted++;
    if (w->mark) {
        w->number = ++w->mark->recorded;
        w->mark->captured = NULL;
    }
    if (w->wait) w->number = w->wait->recorded;
    pthread_cond_broadcast(&changed);
}

/* Lock held. Takes the work over. */
static CUresult record(CUstream s, work *w) {
    CUgraph g = s->recording;
    if (w->wait && w->wait->captured != g) {
        g->broken = true;
        free(w);
        return CUDA_NOT_CAPTURED;
    }
    w->lane = s;
    if (w->mark) {
        w->mark->captured = g;
        w->number = w->mark->place = ++g->marks;
    }
    if (w->wait) w->number = w->wait->place;
    if (g->tail)
        g->tail->next = w;
    else
        g->head = w;
    g->tail = w;
    return CUDA_OK;
}

/* Lock held. A stream that waits for a mark of a graph records from then on, too; the default one
 * cannot. */
static void join(CUstream s, const work *w) {
    CUgraph g = w->wait ? w->wait->captured : NULL;
    bool active = false;
    for (CUstream k = s->context->streams; k && g; k = k->next) active |= k->recording == g;
    if (active && !s->recording && s != &s->context->main) s->recording = g;
}

static CUresult submit(CUstream s, work *w) {
    pthread_mutex_lock(&lock);
    if (!s && current) s = &current->main;
    CUresult r = s ? s->context->fault : CUDA_BAD_CONTEXT;
    if (r == CUDA_OK) join(s, w);
    if (r == CUDA_OK && s->recording) {
        r = record(s, w);
        w = NULL;
    }
    if (r == CUDA_OK && w && w->wait && w->wait->captured) r = CUDA_CAPTURED_EVENT;
    if (r == CUDA_OK && w && !start(s)) r = CUDA_NO_MEMORY;
    if (r == CUDA_OK && w)
        append(s, w);
    else
        free(w);
    pthread_mutex_unlock(&lock);
    return r;
}

static work *new_work(queue_fn run, const void *payload, size_t bytes) {
    work *w = calloc(1, sizeof *w + bytes);
    if (!w) return NULL;
    w->run = run;
    w->bytes = bytes;
    memcpy(w->payload, payload, bytes);
    return w;
}

CUresult queue_submit(CUstream stream, queue_fn run, const void *payload, size_t bytes) {
    work *w = new_work(run, payload, bytes);
    return w ? submit(stream, w) : CUDA_NO_MEMORY;
}

void queue_lose(CUstream stream) {
    pthread_mutex_lock(&lock);
    CUcontext c = stream ? stream->context : current;
    if (c && !c->fault) c->fault = CUDA_UNKNOWN;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool queue_reach(const char *who, unsigned long long at, size_t bytes, char *problem) {
    uintptr_t begin, end;
    char where[HOST_TEXT / 2];
    if (bytes == 0 || memory_find((uintptr_t)at, bytes, &begin, &end)) return true;
    memory_describe((uintptr_t)at, where, sizeof where);
    snprintf(problem, HOST_TEXT, "%s: %zu bytes at %p, %s", who, bytes, (void *)(uintptr_t)at,
             where);
    return false;
}

/* Lock held. */
static void wait_for(const struct CUstream_st *s) {
    unsigned long long goal = s->submitted;
    while (s->finished < goal) pthread_cond_wait(&changed, &lock);
}

static void wait_for_all(CUcontext c) {
    for (CUstream s = c->streams; s; s = s->next) wait_for(s);
}

/* ---- Contexts ----------------------------------------------------------------------------------*/

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device) {
    pthread_mutex_lock(&lock);
    *ret_context = context_at(device);
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_OK;
}

CUresult cuCtxSynchronize(void) {
    if (!current) return CUDA_BAD_CONTEXT;
    pthread_mutex_lock(&lock);
    CUresult r = may_wait_for_all(current);
    if (r == CUDA_OK) {
        wait_for_all(current);
        r = state(current);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- Memory: allocation does not wait, giving back does ---------------------------------------- */

CUresult cuMemAlloc_v2(CUdeviceptr *ret_data, size_t bytes) {
    uintptr_t data;
    pthread_mutex_lock(&lock);
    CUresult r = state(current);
    pthread_mutex_unlock(&lock);
    if (r != CUDA_OK) return r;
    if (bytes == 0) return CUDA_BAD_VALUE;
    if (!memory_alloc(current->device, bytes, &data)) return CUDA_NO_MEMORY;
    *ret_data = data;
    return CUDA_OK;
}

CUresult cuMemFree_v2(CUdeviceptr data) {
    CUresult r = cuCtxSynchronize();
    if (r != CUDA_OK) return r;
    return memory_free((uintptr_t)data) ? CUDA_OK : CUDA_BAD_VALUE;
}

CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total) {
    if (!current) return CUDA_BAD_CONTEXT;
    memory_info(current->device, ret_free, ret_total);
    return CUDA_OK;
}

/* ---- Streams -----------------------------------------------------------------------------------*/

CUresult cuStreamCreateWithPriority(CUstream *ret_stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    if (!current) return CUDA_BAD_CONTEXT;
    CUstream s = calloc(1, sizeof *s);
    if (!s) return CUDA_NO_MEMORY;
    pthread_mutex_lock(&lock);
    s->context = current;
    s->next = current->streams;
    current->streams = s;
    pthread_mutex_unlock(&lock);
    *ret_stream = s;
    return CUDA_OK;
}

CUresult cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest) {
    *ret_least = 0;
    *ret_greatest = -5;
    return CUDA_OK;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    pthread_mutex_lock(&lock);
    CUstream *at = &stream->context->streams;
    if (stream->recording) stream->recording->broken = true;
    stream->ending = true;
    pthread_cond_broadcast(&changed);
    while (stream->running) pthread_cond_wait(&changed, &lock);
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&lock);
    free(stream);
    return CUDA_OK;
}

CUresult cuStreamSynchronize(CUstream stream) {
    if (!stream && !current) return CUDA_BAD_CONTEXT;
    if (!stream) stream = &current->main;
    pthread_mutex_lock(&lock);
    CUresult r = may_wait(stream);
    if (r == CUDA_OK) {
        wait_for(stream);
        r = stream->context->fault;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuStreamQuery(CUstream stream) {
    if (!stream && !current) return CUDA_BAD_CONTEXT;
    if (!stream) stream = &current->main;
    pthread_mutex_lock(&lock);
    CUresult r = may_wait(stream);
    if (r == CUDA_OK) r = stream->context->fault;
    if (r == CUDA_OK && stream->head) r = CUDA_NOT_READY;
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- Events ------------------------------------------------------------------------------------
 * One that is destroyed early is kept: work in a queue may still name it. */

CUresult cuEventCreate(CUevent *ret_event, unsigned flags) {
    CUevent e = calloc(1, sizeof *e);
    if (!e) return CUDA_NO_MEMORY;
    e->timed = !(flags & CUDA_EVENT_UNTIMED);
    *ret_event = e;
    return CUDA_OK;
}

CUresult cuEventDestroy_v2(CUevent event) {
    pthread_mutex_lock(&lock);
    bool idle = event->reached == event->recorded;
    for (int i = 0; i < HOST_DEVICES && idle; i++)
        for (CUstream s = contexts[i].streams; s; s = s->next)
            for (work *w = s->head; w; w = w->next) idle &= w->wait != event;
    pthread_mutex_unlock(&lock);
    if (idle) free(event);
    return CUDA_OK;
}

static CUresult submit_mark(CUstream stream, CUevent mark, CUevent wait) {
    work *w = calloc(1, sizeof *w);
    if (!w) return CUDA_NO_MEMORY;
    w->mark = mark;
    w->wait = wait;
    return submit(stream, w);
}

CUresult cuEventRecord(CUevent event, CUstream stream) { return submit_mark(stream, event, NULL); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    return submit_mark(stream, NULL, event);
}

CUresult cuEventSynchronize(CUevent event) {
    pthread_mutex_lock(&lock);
    unsigned long long goal = event->recorded;
    while (event->reached < goal) pthread_cond_wait(&changed, &lock);
    CUresult r = event->captured ? CUDA_CAPTURED_EVENT : state(current);
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuEventQuery(CUevent event) {
    pthread_mutex_lock(&lock);
    CUresult r = event->reached == event->recorded ? CUDA_OK : CUDA_NOT_READY;
    if (event->captured) r = CUDA_CAPTURED_EVENT;
    if (state(current) != CUDA_OK) r = state(current);
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuEventElapsedTime(float *ret_ms, CUevent start_event, CUevent end) {
    pthread_mutex_lock(&lock);
    CUresult r = CUDA_OK;
    if (!start_event->timed || !end->timed || !start_event->recorded || !end->recorded)
        r = CUDA_BAD_HANDLE;
    else if (start_event->reached < start_event->recorded || end->reached < end->recorded)
        r = CUDA_NOT_READY;
    *ret_ms = (float)(end->ms - start_event->ms);
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- Graphs ------------------------------------------------------------------------------------*/

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    if (!stream || (int)mode != CUDA_CAPTURE_RELAXED) return CUDA_UNSUPPORTED;
    CUgraph g = calloc(1, sizeof *g);
    if (!g) return CUDA_NO_MEMORY;
    g->context = stream->context;
    g->origin = stream;
    pthread_mutex_lock(&lock);
    CUresult r = stream->recording ? CUDA_BAD_VALUE : state(stream->context);
    if (r == CUDA_OK) stream->recording = g;
    pthread_mutex_unlock(&lock);
    if (r != CUDA_OK) free(g);
    return r;
}

static void drop_list(work *w) {
    while (w) {
        work *next = w->next;
        free(w);
        w = next;
    }
}

CUresult cuGraphDestroy(CUgraph graph) {
    drop_list(graph->head);
    free(graph);
    return CUDA_OK;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status) {
    pthread_mutex_lock(&lock);
    *ret_status = stream && stream->recording ? CUDA_CAPTURING : 0;
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

/* Lock held. Looks at the recording from its end: what the origin does not wait for, at the latest in
 * the end, belongs to a stream that was not joined. */
static bool is_joined(CUgraph g) {
    size_t n = 0;
    for (const work *w = g->head; w; w = w->next) n++;
    const work **all = calloc(n + 1, sizeof *all);
    bool *wanted = calloc(g->marks + 1, sizeof *wanted), joined = all && wanted;
    n = 0;
    for (const work *w = g->head; w && joined; w = w->next) all[n++] = w;
    for (CUstream s = g->context->streams; s; s = s->next) s->reached = s == g->origin;
    while (n > 0 && joined) {
        const work *w = all[--n];
        if (w->mark) w->lane->reached |= wanted[w->number];
        if (w->wait && w->lane->reached) wanted[w->number] = true;
        joined = w->mark || w->wait || w->lane->reached;
    }
    free(all);
    free(wanted);
    return joined;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret_graph) {
    *ret_graph = NULL;
    pthread_mutex_lock(&lock);
    CUgraph g = stream->recording;
    CUresult r = g && g->origin == stream ? state(g->context) : CUDA_BAD_VALUE;
    if (r == CUDA_OK && g->broken) r = CUDA_CAPTURE_BROKEN;
    if (r == CUDA_OK && !is_joined(g)) r = CUDA_UNJOINED;
    for (CUstream s = stream->context->streams; s && g; s = s->next)
        if (s->recording == g) s->recording = NULL;
    pthread_mutex_unlock(&lock);
    if (r == CUDA_OK)
        *ret_graph = g;
    else if (g)
        cuGraphDestroy(g);
    return r;
}

/* A copy of a list, or NULL, also where there is nothing to copy. */
static work *copy_list(const work *w, bool *ret_full) {
    work *head = NULL, **end = &head;
    *ret_full = true;
    for (; w && *ret_full; w = w->next) {
        *end = new_work(w->run, w->payload, w->bytes);
        *ret_full = *end != NULL;
        if (!*end) break;
        (*end)->mark = w->mark;
        (*end)->wait = w->wait;
        (*end)->number = w->number;
        (*end)->lane = w->lane;
        end = &(*end)->next;
    }
    if (*ret_full) return head;
    drop_list(head);
    return NULL;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph,
                                     unsigned long long flags) {
    CUgraphExec e = calloc(1, sizeof *e);
    bool full = false;
    (void)flags;
    if (e) e->head = copy_list(graph->head, &full);
    if (e) e->marks = graph->marks;
    if (!full) {
        free(e);
        return CUDA_NO_MEMORY;
    }
    *ret_exec = e;
    return CUDA_OK;
}

enum { LANES = 32 };

typedef struct branches {
    CUstream lane[LANES];
    work *head[LANES], **end[LANES];
    int n;
} branches;

/* One list for each stream that recorded; false: too many. */
static bool split(work *list, branches *b) {
    while (list) {
        work *w = list;
        int k = 0;
        while (k < b->n && b->lane[k] != w->lane) k++;
        if (k == LANES) return false;
        if (k == b->n) {
            b->lane[b->n] = w->lane;
            b->end[b->n] = &b->head[b->n];
            b->n++;
        }
        list = w->next;
        w->next = NULL;
        *b->end[k] = w;
        b->end[k] = &w->next;
    }
    return true;
}

/* The branches of a graph run beside each other: this is one order that a GPU may take, without the
 * marks, and another one at each launch. */
static bool some_order(work **list, CUgraphExec e) {
    branches b = {.n = 0};
    bool *reached = calloc(e->marks + 1, sizeof *reached);
    work **end = list, *all = *list;
    if (!reached || !split(all, &b)) {
        free(reached);
        return false;
    }
    *list = NULL;
    for (int idle = 0; idle < b.n;) {
        e->random = e->random * 6364136223846793005ull + 1442695040888963407ull;
        int k = (int)((e->random >> 33) % (unsigned)b.n);
        idle = 0;
        while (idle < b.n && (!b.head[k] || (b.head[k]->wait && !reached[b.head[k]->number]))) {
            k = (k + 1) % b.n;
            idle++;
        }
        work *w = idle < b.n ? b.head[k] : NULL;
        if (!w) break;
        b.head[k] = w->next;
        w->next = NULL;
        if (w->mark) reached[w->number] = true;
        if (w->mark || w->wait) {
            free(w);
            continue;
        }
        *end = w;
        end = &w->next;
    }
    free(reached);
    return true;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    bool full;
    work *w = copy_list(exec->head, &full);
    if (!full) return CUDA_NO_MEMORY;
    pthread_mutex_lock(&lock);
    bool ordered = some_order(&w, exec);
    if (!stream && current) stream = &current->main;
    CUresult r = stream ? stream->context->fault : CUDA_BAD_CONTEXT;
    if (r == CUDA_OK && (!ordered || !start(stream))) r = CUDA_NO_MEMORY;
    while (r == CUDA_OK && w) {
        work *next = w->next;
        w->next = NULL;
        append(stream, w);
        w = next;
    }
    pthread_mutex_unlock(&lock);
    drop_list(w);
    return r;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    drop_list(exec->head);
    free(exec);
    return CUDA_OK;
}
