/* nccl.c: the stand-in for NCCL, which exchanges through tenon_gloo.so. As with NCCL's communicators that
 * do not block, a call answers that it is in progress, and reaches its stream when it was asked for a
 * while; another call before that is an error. What waits for a rank that has gone waits for ever.
 *
 * TENON_NCCL_HOST_FAULT=KIND@RANK:N, of a rank of a communicator of three or more and its Nth call:
 *   error   it fails asynchronously
 *   hang    it never ends
 *   refuse  it fails at once
 *   never   (N is 0) its communicator is never ready */
#include "../../backends/engines/nccl_priv.h"

#include <dlfcn.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "queue.h"

enum { INVALID = 4, INVALID_USE = 5, REMOTE = 6, UNHANDLED = 1 };
enum { LOOKS = 2, HOUR_MS = 3600000 };

typedef struct op {
    struct op *next;
    tn_exchange x; /* of the engine below, whose memory is a copy */
    const void *in;
    void *out;
    size_t in_bytes, out_bytes;
    int dtype; /* the caller's */
} op;

/* Operations that begin together. */
typedef struct batch {
    struct ncclComm *comm;
    CUstream stream;
    op *first;
    bool hangs;
} batch;

struct ncclComm {
    int rank, size;
    char folder[128];
    void *group;
    pthread_t joins;
    atomic_int state;
    atomic_bool aborted;
    char why[TN_ENGINE_WHY];
    int calls, looks; /* left until the deferred batch reaches its stream */
    batch *deferred;
};

/* For tests: how many communicators were aborted. */
atomic_int nccl_host_aborts;

static const tn_engine *below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the engine below */
static __thread int depth;
static __thread batch *together;

static bool open_below(void) {
    pthread_mutex_lock(&lock);
    if (!below) {
        void *library = dlopen(HOST_ENGINE, RTLD_NOW | RTLD_LOCAL);
        void *symbol = library ? dlsym(library, "tn_engine_main") : NULL;
        tn_engine_main_fn enter = NULL;
        memcpy(&enter, &symbol, sizeof enter);
        below = enter ? enter(TN_ENGINE_VERSION) : NULL;
    }
    pthread_mutex_unlock(&lock);
    return below != NULL;
}

static void pause_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

/* Whether the fault of a kind is that of this call. */
static bool is_faulty(const struct ncclComm *c, const char *kind) {
    const char *text = getenv("TENON_NCCL_HOST_FAULT");
    char name[16];
    int rank, number;
    return text && sscanf(text, "%15[a-z]@%d:%d", name, &rank, &number) == 3 && c->size > 2 &&
           strcmp(name, kind) == 0 && rank == c->rank && number == c->calls;
}

/* ---- Running -----------------------------------------------------------------------------------*/

static void set_error(struct ncclComm *c, int code, const char *why) {
    snprintf(c->why, sizeof c->why, "%s", why);
    atomic_store(&c->state, code);
}

static size_t width_of(int type) {
    switch (type) {
    case NCCL_F16:
    case NCCL_BF16: return 2;
    case NCCL_I32:
    case NCCL_F32: return 4;
    case NCCL_I64:
    case NCCL_F64: return 8;
    default: return 1;
    }
}

static bool is_half(const op *o) { return o->dtype == NCCL_F16 || o->dtype == NCCL_BF16; }

static float from_half(uint16_t h, int type) {
    union {
        uint32_t bits;
        float number;
    } wide = {(uint32_t)h << 16};
    if (type == NCCL_BF16) return wide.number;
    _Float16 half;
    memcpy(&half, &h, sizeof half);
    return (float)half;
}

static uint16_t to_half(float v, int type) {
    union {
        float number;
        uint32_t bits;
    } wide = {v};
    if (type == NCCL_BF16) return (uint16_t)((wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16);
    _Float16 half = (_Float16)v;
    uint16_t h;
    memcpy(&h, &half, sizeof h);
    return h;
}

/* Copies a call's memory for the engine below, in float where it is half precision. */
static void take(op *o) {
    bool wide = is_half(o);
    size_t factor = wide ? 2 : 1, n = o->in_bytes / 2;
    float *in = calloc(1, o->in_bytes * factor + 8), *out = calloc(1, o->out_bytes * factor + 8);
    if (wide)
        for (size_t i = 0; i < n; i++) in[i] = from_half(((const uint16_t *)o->in)[i], o->dtype);
    else
        memcpy(in, o->in ? o->in : "", o->in ? o->in_bytes : 0);
    bool in_place = o->x.kind == TN_EXCHANGE_ALL_REDUCE || o->x.kind == TN_EXCHANGE_REDUCE ||
                    o->x.kind == TN_EXCHANGE_BROADCAST;
    if (in_place) memcpy(out, in, o->in_bytes * factor);
    o->x.in = in;
    o->x.out = out;
}

static void give(op *o) {
    size_t n = o->out_bytes / 2;
    if (o->out && is_half(o))
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)o->out)[i] = to_half(((float *)o->x.out)[i], o->dtype);
    else if (o->out)
        memcpy(o->out, o->x.out, o->out_bytes);
    free((void *)o->x.in);
    free(o->x.out);
}

/* A message to the rank itself. */
static bool short_cut(batch *b, op *o) {
    if (o->x.peer != b->comm->rank || o->x.kind != TN_EXCHANGE_SEND) return false;
    for (op *r = b->first; r; r = r->next)
        if (r->x.kind == TN_EXCHANGE_RECV && r->x.peer == o->x.peer)
            memcpy(r->x.out, o->x.in, o->in_bytes);
    return true;
}

static bool is_own(const batch *b, const op *o) {
    return o->x.peer == b->comm->rank &&
           (o->x.kind == TN_EXCHANGE_SEND || o->x.kind == TN_EXCHANGE_RECV);
}

static void run_all(batch *b) {
    void *requests[64] = {NULL};
    char why[TN_ENGINE_WHY] = "";
    int n = 0;
    for (op *o = b->first; o && !b->comm->aborted; o = o->next, n++) {
        if (short_cut(b, o) || is_own(b, o)) continue;
        pthread_mutex_lock(&lock);
        tn_status st = below->start(b->comm->group, &o->x, &requests[n], why);
        pthread_mutex_unlock(&lock);
        if (st != TN_OK) set_error(b->comm, REMOTE, why);
        if (st != TN_OK) requests[n] = NULL;
    }
    for (int i = 0; i < n; i++) {
        int32_t done = 0;
        while (requests[i] && !done && !b->comm->aborted) {
            pthread_mutex_lock(&lock);
            tn_status st = below->test(b->comm->group, requests[i], &done, why);
            pthread_mutex_unlock(&lock);
            if (st != TN_OK) {
                set_error(b->comm, REMOTE, why);
                requests[i] = NULL;
            }
            if (!done) pause_a_little();
        }
    }
}

static bool run_batch(void *payload, char *problem) {
    batch *b = *(batch **)payload;
    for (op *o = b->first; o; o = o->next) {
        if (!queue_reach("what NCCL sends", (uintptr_t)o->in, o->in ? o->in_bytes : 0, problem) ||
            !queue_reach("what NCCL receives", (uintptr_t)o->out, o->out ? o->out_bytes : 0,
                         problem))
            return false;
        take(o);
    }
    if (!b->hangs) run_all(b);
    while ((b->hangs || atomic_load(&b->comm->state) == REMOTE) && !b->comm->aborted)
        pause_a_little();
    if (b->comm->aborted) return true; /* the engine below may still have the memory */
    while (b->first) {
        op *o = b->first;
        b->first = o->next;
        give(o);
        free(o);
    }
    free(b);
    return true;
}

/* ---- Calls -------------------------------------------------------------------------------------*/

static ncclResult_t post(batch *b) {
    struct ncclComm *c = b->comm;
    if (atomic_load(&c->state) != NCCL_OK || c->deferred) {
        set_error(c, INVALID, "a call before the one before was ready");
        return INVALID;
    }
    c->calls++;
    if (is_faulty(c, "refuse")) {
        snprintf(c->why, sizeof c->why, "a call that the harness refuses");
        return INVALID_USE;
    }
    b->hangs = is_faulty(c, "hang") || is_faulty(c, "error");
    if (is_faulty(c, "error")) set_error(c, REMOTE, "a peer of the harness has gone");
    c->deferred = b;
    c->looks = LOOKS;
    return NCCL_IN_PROGRESS;
}

static ncclResult_t add(struct ncclComm *c, CUstream stream, op o) {
    op *own = malloc(sizeof *own), **end;
    batch *b = depth ? together : NULL;
    if (!b) {
        b = calloc(1, sizeof *b);
        b->comm = c;
        b->stream = stream;
    }
    *own = o;
    for (end = &b->first; *end; end = &(*end)->next) continue;
    *end = own;
    if (!depth) return post(b);
    together = b;
    return NCCL_OK;
}

ncclResult_t ncclGroupStart(void) {
    depth++;
    return NCCL_OK;
}

ncclResult_t ncclGroupEnd(void) {
    batch *b = together;
    if (--depth > 0 || !b) return NCCL_OK;
    together = NULL;
    return post(b);
}

static op new_op(uint32_t kind, const void *in, size_t in_count, void *out, size_t out_count,
                 size_t count, int type) {
    static const int32_t slots[] = {
        [NCCL_I8] = TN_I8,   [NCCL_U8] = TN_U8,   [NCCL_I32] = TN_I32, [NCCL_I64] = TN_I64,
        [NCCL_F16] = TN_F32, [NCCL_F32] = TN_F32, [NCCL_F64] = TN_F64, [NCCL_BF16] = TN_F32};
    return (op){.x = {.kind = kind,
                      .dtype = slots[type],
                      .element = slots[type],
                      .count = (int64_t)count,
                      .timeout_ms = HOUR_MS},
                .in = in,
                .out = out,
                .in_bytes = in_count * width_of(type),
                .out_bytes = out_count * width_of(type),
                .dtype = type};
}

static uint32_t kind_of(ncclRedOp_t reduction) {
    static const uint32_t ops[] = {TN_EXCHANGE_SUM, TN_EXCHANGE_PRODUCT, TN_EXCHANGE_MAX,
                                   TN_EXCHANGE_MIN};
    return ops[reduction];
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t c, CUstream stream) {
    op o = new_op(TN_EXCHANGE_ALL_REDUCE, in, n, out, n, n, type);
    o.x.op = kind_of(how);
    return add(c, stream, o);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t how,
                        int root, ncclComm_t c, CUstream stream) {
    op o = new_op(TN_EXCHANGE_REDUCE, in, n, c->rank == root ? out : NULL, n, n, type);
    o.x.op = kind_of(how);
    o.x.peer = root;
    return add(c, stream, o);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t c, CUstream stream) {
    op o = new_op(TN_EXCHANGE_BROADCAST, in, n, out, n, n, type);
    o.x.peer = root;
    return add(c, stream, o);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t c,
                           CUstream stream) {
    return add(c, stream, new_op(TN_EXCHANGE_ALL_GATHER, in, n, out, n * (size_t)c->size, n, type));
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t c, CUstream stream) {
    op o = new_op(TN_EXCHANGE_REDUCE_SCATTER, in, n * (size_t)c->size, out, n, n, type);
    o.x.op = kind_of(how);
    return add(c, stream, o);
}

ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      CUstream stream) {
    op o = new_op(TN_EXCHANGE_SEND, in, n, NULL, 0, n, type);
    o.x.peer = peer;
    return add(c, stream, o);
}

ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      CUstream stream) {
    op o = new_op(TN_EXCHANGE_RECV, NULL, 0, out, n, n, type);
    o.x.peer = peer;
    return add(c, stream, o);
}

/* ---- Communicators -----------------------------------------------------------------------------*/

ncclResult_t ncclGetUniqueId(ncclUniqueId *ret_id) {
    const char *base = getenv("TMPDIR");
    memset(ret_id, 0, sizeof *ret_id);
    snprintf(ret_id->internal, sizeof ret_id->internal, "%.90s/tenon-nccl-XXXXXX",
             base ? base : "/tmp");
    return mkdtemp(ret_id->internal) ? NCCL_OK : UNHANDLED;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void *join(void *arg) {
    struct ncclComm *c = arg;
    char why[TN_ENGINE_WHY] = "";
    const tn_engine_place place = {.struct_size = sizeof place,
                                   .rank = c->rank,
                                   .size = c->size,
                                   .folder = c->folder,
                                   .timeout_ms = HOUR_MS};
    while (is_faulty(c, "never")) pause_a_little();
    tn_status st = below->open(&place, &c->group, why); /* groups do not share anything */
    if (c->rank == 0) nftw(c->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    if (st != TN_OK)
        set_error(c, REMOTE, why);
    else
        atomic_store(&c->state, NCCL_OK);
    return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret_comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    if (config->size != 24 || config->magic != 0xcafebeef || config->blocking != 0) return INVALID;
    struct ncclComm *c = open_below() ? calloc(1, sizeof *c) : NULL;
    if (!c) return UNHANDLED;
    c->rank = rank;
    c->size = size;
    memcpy(c->folder, id.internal, sizeof c->folder);
    atomic_store(&c->state, NCCL_IN_PROGRESS);
    *ret_comm = c;
    if (pthread_create(&c->joins, NULL, join, c) != 0) return UNHANDLED;
    pthread_detach(c->joins);
    return NCCL_IN_PROGRESS;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *ret_state) {
    *ret_state = atomic_load(&c->state);
    if (*ret_state != NCCL_OK && *ret_state != REMOTE) return NCCL_OK;
    if (c->deferred && c->looks-- > 0) {
        if (*ret_state == NCCL_OK) *ret_state = NCCL_IN_PROGRESS;
        return NCCL_OK;
    }
    if (c->deferred && queue_submit(c->deferred->stream, run_batch, &c->deferred, sizeof(batch *)))
        *ret_state = UNHANDLED;
    c->deferred = NULL;
    return NCCL_OK;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    return atomic_load(&c->state) == NCCL_OK ? NCCL_OK : INVALID;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    pthread_mutex_lock(&lock);
    below->close(c->group);
    pthread_mutex_unlock(&lock);
    free(c);
    return NCCL_OK;
}

/* Its batches may still look at it. */
ncclResult_t ncclCommAbort(ncclComm_t c) {
    atomic_store(&c->aborted, true);
    atomic_fetch_add(&nccl_host_aborts, 1);
    return NCCL_OK;
}

const char *ncclGetErrorString(ncclResult_t code) {
    switch (code) {
    case NCCL_OK: return "no error";
    case UNHANDLED: return "unhandled cuda error";
    case INVALID: return "invalid argument";
    case INVALID_USE: return "invalid usage";
    case REMOTE: return "remote process exited or there was a network error";
    default: return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t c) { return c ? c->why : ""; }
