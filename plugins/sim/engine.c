/* engine.c: processes of one machine that exchange data through a mapped file (tenon/engine.h), and
 * what can go wrong between them. Ranks may be threads of one process, too.
 *
 * Every ordered pair of ranks has a ring of bytes, through which messages go one after the other. An
 * exchange is a number of pieces for and from each rank; who reduces does so by itself, in the order of
 * the ranks. Memory is read as late as may be and places of results are filled with 0xff before. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <tenon/dtype.h>
#include <tenon/engine.h>

enum { RING = 1 << 16, RANKS = 64, FAULTS = 8 };

/* ---- Switches ----------------------------------------------------------------------------------*/

typedef enum fault_kind {
    LOSE,
    FLIP,
    SWAP,
    FAIL,
    HANG,
    DIE,
    EARLY,
    ORDER,
    STRANGER,
    SPILL,
    PASS,
    FAULT_KINDS
} fault_kind;
static const char *const fault_names[FAULT_KINDS] = {
    "lose", "flip", "swap", "fail", "hang", "die", "early", "order", "stranger", "spill", "pass"};

typedef struct fault {
    fault_kind kind;
    long rank; /* -1: every rank */
    long left;
} fault;

/* "KIND:N" or "KIND@RANK:N". */
static bool read_fault(const char *text, size_t n, fault *ret_fault) {
    char copy[32];
    if (n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    fault f = {.kind = FAULT_KINDS, .rank = -1};
    size_t length = strcspn(copy, "@:");
    for (int k = 0; k < FAULT_KINDS; k++)
        if (strlen(fault_names[k]) == length && strncmp(copy, fault_names[k], length) == 0)
            f.kind = (fault_kind)k;
    char *end = copy + length;
    if (*end == '@') f.rank = strtol(end + 1, &end, 10);
    if (f.kind == FAULT_KINDS || *end != ':') return false;
    f.left = strtol(end + 1, &end, 10);
    *ret_fault = f;
    return f.left > 0 && *end == '\0';
}

static tn_status read_faults(fault *faults, int *ret_n, char *why) {
    const char *all = getenv("TENON_SIM_ENGINE_FAULT"), *text = all;
    *ret_n = 0;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        if (*ret_n == FAULTS || !read_fault(text, n, &faults[(*ret_n)++])) {
            snprintf(why, TN_ENGINE_WHY,
                     "TENON_SIM_ENGINE_FAULT is '%s' and must be KIND:N or KIND@RANK:N", all);
            return TN_E_VALUE;
        }
        text += n + (text[n] == ',');
    }
    return TN_OK;
}

static uint64_t switch_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- What the ranks share ----------------------------------------------------------------------*/

typedef struct ring {
    _Atomic uint64_t written, read;
    unsigned char bytes[RING];
} ring;

enum { HERE_FREE = 0, HERE_LEFT = -1 };

typedef struct sea {
    _Atomic int32_t size;
    _Atomic int32_t here[RANKS]; /* the process of a rank, or HERE_ */
    ring rings[];                /* from * size + to */
} sea;

typedef struct header {
    uint64_t bytes;
    uint32_t group, slot;
    int32_t between_two; /* slot is a tag, otherwise the number of an exchange */
    int32_t reserved;
} header;

typedef struct message { /* on its way to this rank */
    struct message *next;
    header h;
    int64_t due_ns;
    uint64_t got;
    unsigned char bytes[];
} message;

typedef struct parcel { /* on its way from this rank */
    struct parcel *next;
    header h;
    const unsigned char *bytes; /* the user's */
    uint64_t put;               /* of the header and the bytes */
    int64_t *left;              /* of its request: one less when it is gone */
    bool flip;
} parcel;

typedef struct net {
    sea *sea;
    size_t mapped;
    int32_t rank, size, users; /* users: groups */
    parcel *out[RANKS];
    parcel *held[RANKS]; /* goes behind the next one of its slot */
    message *coming[RANKS], *come[RANKS];
    header heads[RANKS];
    size_t nheads[RANKS]; /* bytes of the header that is being read */
    int64_t looked_ns;
    uint64_t random, delay_us;
    fault faults[FAULTS];
    int nfaults;
} net;

typedef struct group {
    net *net;
    int32_t rank, size;
    uint32_t id, calls;
    int32_t ranks[RANKS];      /* of all processes */
    struct request *receiving; /* from one rank or any, in the order in which they were started */
} group;

typedef struct request {
    tn_exchange x;
    bool early, hang;
    int64_t sending; /* parcels that are not gone */
    uint32_t slot;
    unsigned char *all;          /* what is reduced, of each rank; what is exchanged in its place */
    unsigned char *place[RANKS]; /* where the piece of a rank goes, or NULL */
    const unsigned char *own;    /* this rank's piece for itself, or NULL */
    uint64_t bytes[RANKS];
    bool taken[RANKS];
    struct request *next; /* that receives */
} request;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static tn_status fail_memory(char *why) {
    snprintf(why, TN_ENGINE_WHY, "out of memory");
    return TN_E_MEMORY;
}

static tn_status fail_file(char *why, const char *path) {
    snprintf(why, TN_ENGINE_WHY, "%.300s: %s", path, strerror(errno));
    return TN_E_IO;
}

/* Whether a fault comes true now. */
static bool strikes(net *n, fault_kind kind) {
    bool hit = false;
    for (int i = 0; i < n->nfaults; i++) {
        fault *f = &n->faults[i];
        if (f->kind == kind && (f->rank < 0 || f->rank == n->rank) && f->left > 0)
            hit |= --f->left == 0;
    }
    return hit;
}

static uint64_t draw(net *n) { /* xorshift */
    n->random ^= n->random << 13;
    n->random ^= n->random >> 7;
    n->random ^= n->random << 17;
    return n->random;
}

/* ---- Opening and closing -----------------------------------------------------------------------*/

static tn_status map_sea(net *n, const tn_engine_place *place, char *why) {
    char path[4096];
    if (place->size > RANKS) {
        snprintf(why, TN_ENGINE_WHY, "serves %d processes at most", RANKS);
        return TN_E_UNSUPPORTED;
    }
    if (snprintf(path, sizeof path, "%s/sim", place->folder) >= (int)sizeof path) {
        snprintf(why, TN_ENGINE_WHY, "the folder's name is too long");
        return TN_E_VALUE;
    }
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return fail_file(why, path);
    n->mapped = sizeof(sea) + (size_t)place->size * (size_t)place->size * sizeof(ring);
    int failed = posix_fallocate(file, 0, (off_t)n->mapped);
    void *at =
        failed ? MAP_FAILED : mmap(NULL, n->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (failed) errno = failed;
    tn_status st = at == MAP_FAILED ? fail_file(why, path) : TN_OK;
    close(file);
    if (st == TN_OK) n->sea = at;
    return st;
}

static tn_status come_in(net *n, const tn_engine_place *place, char *why) {
    int32_t size = 0, nobody = HERE_FREE;
    if (!atomic_compare_exchange_strong(&n->sea->size, &size, place->size) && size != place->size) {
        snprintf(why, TN_ENGINE_WHY, "rank %d is one of %d processes, others of %d", place->rank,
                 place->size, size);
        return TN_E_VALUE;
    }
    if (!atomic_compare_exchange_strong(&n->sea->here[place->rank], &nobody, (int32_t)getpid())) {
        snprintf(why, TN_ENGINE_WHY, "there are two processes of rank %d", place->rank);
        return TN_E_VALUE;
    }
    int64_t start = now_ns();
    for (int32_t r = 0; r < place->size; r++) {
        while (atomic_load(&n->sea->here[r]) == HERE_FREE) {
            if ((now_ns() - start) / 1000000 > place->timeout_ms) {
                snprintf(why, TN_ENGINE_WHY, "rank %d has not come", r);
                return TN_E_IO;
            }
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        }
    }
    return TN_OK;
}

static void net_unref(net *n) {
    if (--n->users > 0) return;
    atomic_store(&n->sea->here[n->rank], HERE_LEFT);
    munmap(n->sea, n->mapped);
    for (int32_t r = 0; r < n->size; r++) {
        while (n->come[r]) {
            message *m = n->come[r];
            n->come[r] = m->next;
            free(m);
        }
        free(n->coming[r]);
        while (n->out[r]) {
            parcel *p = n->out[r];
            n->out[r] = p->next;
            free(p);
        }
        free(n->held[r]);
    }
    free(n);
}

static tn_status open_world(const tn_engine_place *place, void **ret_group, char *why) {
    net *n = calloc(1, sizeof *n);
    group *g = calloc(1, sizeof *g);
    tn_status st = n && g ? TN_OK : fail_memory(why);
    if (st == TN_OK) {
        *n = (net){.rank = place->rank, .size = place->size, .users = 1};
        n->random = (switch_number("TENON_SIM_SEED", 1) * 977 + (uint64_t)place->rank + 1) | 1;
        n->delay_us = switch_number("TENON_SIM_DELAY", 20);
        st = read_faults(n->faults, &n->nfaults, why);
    }
    if (st == TN_OK) st = map_sea(n, place, why);
    if (st == TN_OK) st = come_in(n, place, why);
    if (st != TN_OK) {
        if (n && n->sea) munmap(n->sea, n->mapped);
        free(n);
        free(g);
        return st;
    }
    *g = (group){.net = n, .rank = place->rank, .size = place->size};
    for (int32_t r = 0; r < place->size; r++) g->ranks[r] = r;
    *ret_group = g;
    return TN_OK;
}

static int by_rank(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static tn_status part(void *of, const int32_t *ranks, int32_t n, uint32_t id, int64_t timeout_ms,
                      void **ret_group, char *why) {
    group *whole = of, *g = calloc(1, sizeof *g);
    (void)timeout_ms; /* nobody needs to come for it */
    if (!g) return fail_memory(why);
    *g = (group){.net = whole->net, .size = n, .id = id};
    for (int32_t i = 0; i < n; i++) g->ranks[i] = whole->ranks[ranks[i]];
    if (strikes(g->net, ORDER)) qsort(g->ranks, (size_t)n, sizeof g->ranks[0], by_rank);
    for (int32_t i = 0; i < n; i++)
        if (g->ranks[i] == g->net->rank) g->rank = i;
    g->net->users++;
    *ret_group = g;
    return TN_OK;
}

static void close_group(void *closed) {
    group *g = closed;
    net_unref(g->net);
    free(g);
}

static void abort_group(void *aborted, int32_t code) {
    group *g = aborted;
    (void)code;
    for (int32_t r = 0; r < g->net->size; r++) {
        int32_t process = atomic_load(&g->net->sea->here[r]);
        if (process > 0 && process != (int32_t)getpid()) kill(process, SIGKILL);
    }
}

/* ---- Bytes that move ---------------------------------------------------------------------------*/

/* Copies as much as there is room for; returns how much. */
static uint64_t ring_put(ring *r, const void *bytes, uint64_t n) {
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    uint64_t room = RING - (at - atomic_load_explicit(&r->read, memory_order_acquire));
    if (n > room) n = room;
    uint64_t first = RING - at % RING;
    if (first > n) first = n;
    if (n) memcpy(r->bytes + at % RING, bytes, first);
    if (n > first) memcpy(r->bytes, (const unsigned char *)bytes + first, n - first);
    atomic_store_explicit(&r->written, at + n, memory_order_release);
    return n;
}

static uint64_t ring_get(ring *r, void *bytes, uint64_t n) {
    uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
    uint64_t there = atomic_load_explicit(&r->written, memory_order_acquire) - at;
    if (n > there) n = there;
    uint64_t first = RING - at % RING;
    if (first > n) first = n;
    if (n) memcpy(bytes, r->bytes + at % RING, first);
    if (n > first) memcpy((unsigned char *)bytes + first, r->bytes, n - first);
    atomic_store_explicit(&r->read, at + n, memory_order_release);
    return n;
}

static ring *ring_of(const net *n, int32_t from, int32_t to) {
    return &n->sea->rings[from * n->size + to];
}

/* Puts what fits of the first parcel; true: it is gone. */
static bool put_parcel(net *n, int32_t to) {
    parcel *p = n->out[to];
    ring *r = ring_of(n, n->rank, to);
    if (p->put < sizeof p->h) {
        p->put += ring_put(r, (char *)&p->h + p->put, sizeof p->h - p->put);
        if (p->put < sizeof p->h) return false;
    }
    uint64_t done = p->put - sizeof p->h;
    if (p->flip && p->h.bytes && done == 0) {
        unsigned char wrong = p->bytes[0] ^ 1;
        p->put += ring_put(r, &wrong, 1);
        done = p->put - sizeof p->h;
        p->flip = done == 0;
    }
    if (!p->flip && p->bytes) p->put += ring_put(r, p->bytes + done, p->h.bytes - done);
    if (p->put < sizeof p->h + p->h.bytes) return false;
    --*p->left;
    n->out[to] = p->next;
    free(p);
    return true;
}

/* Takes what there is of the next message; true: it is whole. */
static bool get_message(net *n, int32_t from, bool *ret_no_memory) {
    ring *r = ring_of(n, from, n->rank);
    message *m = n->coming[from];
    if (!m) {
        header *h = &n->heads[from];
        n->nheads[from] += ring_get(r, (char *)h + n->nheads[from], sizeof *h - n->nheads[from]);
        if (n->nheads[from] < sizeof *h) return false;
        m = malloc(sizeof *m + h->bytes);
        *ret_no_memory = !m;
        if (!m) return false;
        *m = (message){.h = *h};
        m->due_ns = now_ns();
        if (n->delay_us) m->due_ns += (int64_t)(draw(n) % (n->delay_us + 1)) * 1000;
        n->nheads[from] = 0;
        n->coming[from] = m;
    }
    m->got += ring_get(r, m->bytes + m->got, m->h.bytes - m->got);
    if (m->got < m->h.bytes) return false;
    message **last = &n->come[from];
    while (*last) last = &(*last)->next;
    *last = m;
    n->coming[from] = NULL;
    return true;
}

static tn_status progress(net *n, char *why) {
    bool no_memory = false;
    for (int32_t r = 0; r < n->size; r++) {
        while (n->out[r] && put_parcel(n, r)) continue;
        while (get_message(n, r, &no_memory)) continue;
    }
    return no_memory ? fail_memory(why) : TN_OK;
}

/* Queues a piece; `left` counts it until it is gone. */
static tn_status post(net *n, int32_t to, const header *h, const void *bytes, int64_t *left,
                      char *why) {
    if (strikes(n, LOSE)) return TN_OK;
    parcel *p = malloc(sizeof *p);
    if (!p) return fail_memory(why);
    *p = (parcel){.h = *h, .bytes = bytes, .left = left, .flip = strikes(n, FLIP)};
    ++*left;
    if (strikes(n, SWAP) && !n->held[to]) {
        n->held[to] = p;
        return TN_OK;
    }
    parcel **last = &n->out[to];
    while (*last) last = &(*last)->next;
    *last = p;
    parcel *held = n->held[to];
    if (!held || held->h.group != h->group || held->h.slot != h->slot) return TN_OK;
    p->next = held;
    n->held[to] = NULL;
    return TN_OK;
}

/* ---- Reductions --------------------------------------------------------------------------------*/

static size_t bytes_of(int32_t dtype) {
    return dtype == TN_I32 || dtype == TN_F32 ? 4 : dtype == TN_I64 || dtype == TN_F64 ? 8 : 1;
}

/* The sum and the product of two floats in double round to those in float. */
static double step_real(uint32_t op, double a, double b) {
    switch (op) {
    case TN_EXCHANGE_SUM: return a + b;
    case TN_EXCHANGE_PRODUCT: return a * b;
    case TN_EXCHANGE_MIN: return b < a || b != b ? b : a;
    default: return b > a || b != b ? b : a;
    }
}

static int64_t step_whole(uint32_t op, int64_t a, int64_t b) {
    switch (op) {
    case TN_EXCHANGE_SUM: return (int64_t)((uint64_t)a + (uint64_t)b);
    case TN_EXCHANGE_PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case TN_EXCHANGE_MIN: return b < a ? b : a;
    case TN_EXCHANGE_MAX: return b > a ? b : a;
    case TN_EXCHANGE_BAND: return a & b;
    case TN_EXCHANGE_BOR: return a | b;
    default: return a ^ b;
    }
}

static int64_t whole_at(int32_t dtype, const void *at, int64_t i) {
    switch (dtype) {
    case TN_U8: return ((const uint8_t *)at)[i];
    case TN_I8: return ((const int8_t *)at)[i];
    case TN_I32: return ((const int32_t *)at)[i];
    default: return ((const int64_t *)at)[i];
    }
}

static void fold_one(int32_t dtype, uint32_t op, int64_t i, void *out, const void *more) {
    if (dtype == TN_F32) {
        float *o = (float *)out + i;
        *o = (float)step_real(op, (double)*o, (double)((const float *)more)[i]);
        return;
    }
    if (dtype == TN_F64) {
        double *o = (double *)out + i;
        *o = step_real(op, *o, ((const double *)more)[i]);
        return;
    }
    int64_t v = step_whole(op, whole_at(dtype, out, i), whole_at(dtype, more, i));
    if (dtype == TN_I64) ((int64_t *)out)[i] = v;
    if (dtype == TN_I32) ((int32_t *)out)[i] = (int32_t)v;
    if (bytes_of(dtype) == 1) ((uint8_t *)out)[i] = (uint8_t)v;
}

static void fold(int32_t dtype, uint32_t op, int64_t n, void *out, const void *more) {
    for (int64_t i = 0; i < n; i++) fold_one(dtype, op, i, out, more);
}

/* ---- Exchanges ---------------------------------------------------------------------------------*/

static bool reduces(const group *g, const tn_exchange *x) {
    return x->kind == TN_EXCHANGE_ALL_REDUCE || x->kind == TN_EXCHANGE_REDUCE_SCATTER ||
           (x->kind == TN_EXCHANGE_REDUCE && x->peer == g->rank);
}

/* Of the first n counts. */
static uint64_t list_bytes(const int64_t *counts, int32_t n, int32_t dtype) {
    uint64_t bytes = 0;
    for (int32_t r = 0; r < n; r++) bytes += (uint64_t)counts[r] * bytes_of(dtype);
    return bytes;
}

/* The piece of this rank for another one, and whether there is one. */
static bool piece_for(const group *g, const tn_exchange *x, int32_t to, const void **ret_bytes,
                      uint64_t *ret_n) {
    size_t size = bytes_of(x->dtype);
    const unsigned char *in = x->in;
    uint64_t n = (uint64_t)x->count * size, before = (uint64_t)to * n;
    *ret_bytes = NULL;
    *ret_n = n;
    switch (x->kind) {
    case TN_EXCHANGE_BARRIER: *ret_n = 0; return true;
    case TN_EXCHANGE_BROADCAST: *ret_bytes = x->out; return x->peer == g->rank && to != g->rank;
    case TN_EXCHANGE_ALL_REDUCE: *ret_bytes = x->out; return true;
    case TN_EXCHANGE_REDUCE: *ret_bytes = x->out; return x->peer == to;
    case TN_EXCHANGE_ALL_GATHER: *ret_bytes = in; return true;
    case TN_EXCHANGE_REDUCE_SCATTER: *ret_bytes = in ? in + before : in; return true;
    case TN_EXCHANGE_ALL_TO_ALL:
        before = list_bytes(x->in_counts, to, x->dtype);
        *ret_n = (uint64_t)x->in_counts[to] * size;
        *ret_bytes = in ? in + before : in;
        return true;
    case TN_EXCHANGE_SEND: *ret_bytes = in; return x->peer == to;
    default: return false;
    }
}

/* Where the piece of another rank goes, and whether there is one. */
static bool place_of(const group *g, const request *q, int32_t from, unsigned char **ret_place,
                     uint64_t *ret_n) {
    const tn_exchange *x = &q->x;
    size_t size = bytes_of(x->dtype);
    unsigned char *out = x->out;
    uint64_t n = (uint64_t)x->count * size, before = (uint64_t)from * n;
    *ret_place = reduces(g, x) ? q->all + before : out;
    *ret_n = n;
    switch (x->kind) {
    case TN_EXCHANGE_BARRIER: *ret_n = 0; return true;
    case TN_EXCHANGE_BROADCAST: return x->peer == from && from != g->rank;
    case TN_EXCHANGE_ALL_GATHER: *ret_place = out ? out + before : out; return true;
    case TN_EXCHANGE_ALL_TO_ALL:
        before = list_bytes(x->out_counts, from, x->dtype);
        *ret_n = (uint64_t)x->out_counts[from] * size;
        *ret_place = out ? out + before : out;
        return true;
    case TN_EXCHANGE_SEND: return false;
    case TN_EXCHANGE_RECV:
        return x->peer == from || (x->peer == TN_EXCHANGE_ANY && from != g->rank);
    default: return reduces(g, x);
    }
}

/* Whoever reads a result before it is there reads nonsense. */
static void spoil(const group *g, request *q) {
    bool replaced = q->x.kind == TN_EXCHANGE_ALL_GATHER || q->x.kind == TN_EXCHANGE_ALL_TO_ALL ||
                    q->x.kind == TN_EXCHANGE_RECV;
    for (int32_t r = 0; replaced && r < g->size; r++)
        if (q->place[r] && q->bytes[r] && q->x.in != q->x.out)
            memset(q->place[r], SIM_FRESH, q->bytes[r]);
}

static tn_status send_pieces(group *g, request *q, char *why) {
    bool between_two = q->x.kind == TN_EXCHANGE_SEND;
    for (int32_t r = 0; r < g->size; r++) {
        const void *bytes;
        header h = {.group = g->id, .slot = q->slot, .between_two = between_two};
        if (!piece_for(g, &q->x, r, &bytes, &h.bytes)) continue;
        if (r == g->rank && !between_two) {
            q->own = bytes;
            continue;
        }
        tn_status st = post(g->net, g->ranks[r], &h, bytes, &q->sending, why);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}

static void enlist(group *g, request *q) {
    request **at = &g->receiving;
    while (*at) at = &(*at)->next;
    *at = q;
}

static void delist(group *g, const request *q) {
    request **at = &g->receiving;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
}

static tn_status start(void *of, const tn_exchange *x, void **ret_request, char *why) {
    group *g = of;
    bool between_two = x->kind == TN_EXCHANGE_SEND || x->kind == TN_EXCHANGE_RECV;
    if (strikes(g->net, DIE)) kill(getpid(), SIGKILL);
    if (strikes(g->net, FAIL)) {
        snprintf(why, TN_ENGINE_WHY, "the simulated network is down");
        return TN_E_IO;
    }
    request *q = calloc(1, sizeof *q);
    if (!q) return fail_memory(why);
    q->x = *x;
    q->hang = strikes(g->net, HANG);
    q->early = strikes(g->net, EARLY);
    q->slot = between_two ? (uint32_t)x->tag : g->calls++;
    uint64_t whole = (uint64_t)g->size * (uint64_t)x->count * bytes_of(x->dtype);
    bool in_place = x->kind == TN_EXCHANGE_ALL_TO_ALL && x->in == x->out;
    if (in_place) whole = list_bytes(x->in_counts, g->size, x->dtype);
    q->all = reduces(g, x) || in_place ? malloc(whole + 1) : NULL;
    if ((reduces(g, x) || in_place) && !q->all) {
        free(q);
        return fail_memory(why);
    }
    if (in_place && whole) q->x.in = memcpy(q->all, x->in, whole);
    for (int32_t r = 0; r < g->size; r++) {
        q->taken[r] = !place_of(g, q, r, &q->place[r], &q->bytes[r]);
        if (q->taken[r]) q->place[r] = NULL;
    }
    spoil(g, q);
    tn_status st = send_pieces(g, q, why);
    if (st == TN_OK && x->kind == TN_EXCHANGE_RECV) enlist(g, q);
    if (st == TN_OK) *ret_request = q;
    return st; /* after a failure parcels may still count in q, which stays */
}

/* Whether an earlier request wants the same message: it may have been asked just before one was due. */
static bool is_behind(const group *g, const request *q, int32_t from) {
    for (const request *e = g->receiving; e && e != q; e = e->next)
        if (e->slot == q->slot && !e->taken[from]) return true;
    return false;
}

/* The message that a request waits for from a rank, if it has come. */
static message *find_message(group *g, const request *q, int32_t from) {
    bool between_two = q->x.kind == TN_EXCHANGE_RECV;
    int64_t now = now_ns();
    if (between_two && is_behind(g, q, from)) return NULL;
    message **at = &g->net->come[g->ranks[from]];
    for (; *at; at = &(*at)->next) {
        message *m = *at;
        if (m->h.group != g->id || m->h.slot != q->slot || m->h.between_two != between_two)
            continue;
        if (m->due_ns > now) return NULL;
        *at = m->next;
        return m;
    }
    return NULL;
}

static bool is_time_to_look(net *n) {
    int64_t now = now_ns();
    if (now - n->looked_ns <= 50000000) return false;
    n->looked_ns = now;
    return true;
}

/* A rank that has ended cannot send any more. */
static tn_status look_for(group *g, int32_t from, char *why) {
    net *n = g->net;
    int32_t rank = g->ranks[from], process = atomic_load(&n->sea->here[rank]);
    bool ended = process == HERE_LEFT || (kill(process, 0) != 0 && errno == ESRCH);
    ring *r = ring_of(n, rank, n->rank);
    if (!ended || n->come[rank] || atomic_load(&r->written) != atomic_load(&r->read)) return TN_OK;
    snprintf(why, TN_ENGINE_WHY, "rank %d has %s", from, process == HERE_LEFT ? "left" : "ended");
    return TN_E_IO;
}

/* Copies what has come to where it belongs. */
static tn_status put_down(net *n, const request *q, int32_t from, message *m, char *why) {
    uint64_t there = m->h.bytes < q->bytes[from] ? m->h.bytes : q->bytes[from];
    bool fits = m->h.bytes == q->bytes[from];
    bool spills = !fits && strikes(n, SPILL), passes = !fits && strikes(n, PASS);
    if (spills) there = m->h.bytes;
    fits |= passes;
    if ((fits || spills) && there) memcpy(q->place[from], m->bytes, there);
    if (!fits)
        snprintf(why, TN_ENGINE_WHY, "rank %d has sent %llu bytes where %llu were expected", from,
                 (unsigned long long)m->h.bytes, (unsigned long long)q->bytes[from]);
    free(m);
    if (fits) return TN_OK;
    return q->x.kind == TN_EXCHANGE_RECV ? TN_E_VALUE : TN_E_IO;
}

static tn_status take_pieces(group *g, request *q, bool *ret_all, char *why) {
    *ret_all = true;
    bool look = is_time_to_look(g->net);
    for (int32_t r = 0; r < g->size; r++) {
        if (q->taken[r] || (r == g->rank && q->x.kind != TN_EXCHANGE_RECV)) continue;
        message *m = find_message(g, q, r);
        if (!m) {
            *ret_all = false;
            if (look && look_for(g, r, why) != TN_OK) return TN_E_IO;
            continue;
        }
        q->taken[r] = true;
        tn_status st = put_down(g->net, q, r, m, why);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}

/* The first message of any rank; those of the others stay where they are. */
static tn_status take_any(group *g, request *q, bool *ret_all, char *why) {
    int32_t others = 0, left = 0;
    *ret_all = true;
    for (int32_t r = 0; r < g->size; r++) {
        message *m = q->taken[r] ? NULL : find_message(g, q, r);
        if (!m) continue;
        q->x.peer = strikes(g->net, STRANGER) ? g->rank : r;
        for (int32_t k = 0; k < g->size; k++) q->taken[k] = true;
        return put_down(g->net, q, r, m, why);
    }
    *ret_all = false;
    if (!is_time_to_look(g->net)) return TN_OK;
    for (int32_t r = 0; r < g->size; r++) {
        if (q->taken[r]) continue;
        others++;
        if (look_for(g, r, why) == TN_OK) continue;
        if (atomic_load(&g->net->sea->here[g->ranks[r]]) != HERE_LEFT) return TN_E_IO;
        left++;
    }
    return left == others ? TN_E_IO : TN_OK;
}

static void complete(group *g, request *q) {
    if (q->own && q->place[g->rank] && q->bytes[g->rank])
        memmove(q->place[g->rank], q->own, q->bytes[g->rank]);
    if (!reduces(g, &q->x)) return;
    uint64_t n = (uint64_t)q->x.count * bytes_of(q->x.dtype);
    for (int32_t r = 1; r < g->size; r++)
        fold(q->x.dtype, q->x.op, q->x.count, q->all, q->all + (uint64_t)r * n);
    if (n) memcpy(q->x.out, q->all, n);
}

static tn_status test_from(void *of, void *tested, int32_t *ret_done, int32_t *ret_peer,
                           char *why) {
    group *g = of;
    request *q = tested;
    bool all = false;
    *ret_done = q->early;
    if (q->early) {
        delist(g, q);
        return TN_OK; /* it stays, as parcels count in it */
    }
    tn_status st = progress(g->net, why);
    bool from_any = q->x.kind == TN_EXCHANGE_RECV && q->x.peer == TN_EXCHANGE_ANY;
    if (st == TN_OK) st = (from_any ? take_any : take_pieces)(g, q, &all, why);
    *ret_peer = q->x.peer;
    if (st != TN_OK && st != TN_E_VALUE) return st; /* the group is lost, and so is the request */
    if (st == TN_E_VALUE) {
        delist(g, q);
        free(q);
        return st;
    }
    *ret_done = all && q->sending == 0 && !q->hang;
    if (!*ret_done) return TN_OK;
    complete(g, q);
    delist(g, q);
    free(q->all);
    free(q);
    return TN_OK;
}

static tn_status test(void *of, void *tested, int32_t *ret_done, char *why) {
    int32_t peer;
    return test_from(of, tested, ret_done, &peer, why);
}

static const tn_engine table = {
    .struct_size = sizeof(tn_engine),
    .version = TN_ENGINE_VERSION,
    .name = "sim",
    .open = open_world,
    .part = part,
    .start = start,
    .test = test,
    .close = close_group,
    .abort = abort_group,
    .test_from = test_from,
};

const tn_engine *tn_engine_main(uint32_t version);
const tn_engine *tn_engine_main(uint32_t version) {
    return version == TN_ENGINE_VERSION ? &table : NULL;
}
