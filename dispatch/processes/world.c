/* world.c: groups of processes, their operations in order, deadlines, and who drives them. */
#include <stdio.h>
#include <stdlib.h>

#include "world_priv.h"

#define GRACE_NS INT64_C(5000000000)

typedef enum state { QUEUED, COMPARING, RUNNING, DONE } state;

struct tn_work {
    tn_world *world; /* a reference */
    tn_work *next;
    tn_exchange x;
    bool there; /* in memory of the engine's device, as `place` says */
    tn_exchange_place place;
    int64_t *counts;    /* copies of in_counts and out_counts, or NULL */
    int64_t offset;     /* elements that are done, where one exchange cannot do all */
    int64_t moving;     /* those of the exchange that runs; 0: all */
    char *parts;        /* of all ranks, on their way; or NULL */
    int64_t started_ns; /* of the comparison or the exchange */
    void *request;
    state at;
    bool unattended, lost;
    bool followed; /* a stream waits for it, and its caller for nothing */
    _Atomic bool done;
    tn_status status;
    char why[TN_ENGINE_WHY + 128];
    _Atomic int32_t refs; /* of the caller, and of the queue */
};

static bool is_between_two(const tn_exchange *x) {
    return x->kind == TN_EXCHANGE_SEND || x->kind == TN_EXCHANGE_RECV;
}

static bool has_part_of_each(const tn_exchange *x) {
    return x->kind == TN_EXCHANGE_ALL_GATHER || x->kind == TN_EXCHANGE_REDUCE_SCATTER;
}

/* How many elements of one rank can be moved at once. */
static int64_t most_of(const tn_work *k) {
    int64_t most = k->world->use->most;
    if (k->x.kind == TN_EXCHANGE_ALL_TO_ALL || k->there) return INT64_MAX; /* never divided */
    if (has_part_of_each(&k->x)) most /= k->world->size;
    return most ? most : 1;
}

/* Whether it is made in several exchanges. Those of a message end with one that is not full, if need
 * be without elements: a whole message is never mistaken for the first part of a longer one. */
static bool has_parts(const tn_work *k) {
    return k->x.count > most_of(k) || (is_between_two(&k->x) && k->x.count == most_of(k));
}

/* ---- Counting ----------------------------------------------------------------------------------*/

static void world_unref(tn_world *w) {
    if (!w || atomic_fetch_sub(&w->refs, 1) != 1) return;
    tni_engine_use *use = w->use;
    tni_os_lock(&use->driver);
    tn_world **at = &use->worlds;
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
    if (!use->lost && w->group) use->engine->close(w->group);
    tni_os_unlock(&use->driver);
    free(w->all);
    free(w);
}

void tn_work_unref(tn_work *k) {
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1) return;
    tn_world *w = k->world;
    free(k->counts);
    if (!k->lost) free(k->parts);
    free(k);
    world_unref(w);
}

/* ---- One operation, under the driver's lock ----------------------------------------------------*/

static void finish(tn_work *k, tn_status st, const char *why) {
    tni_engine_use *use = k->world->use;
    k->status = st;
    if (st != TN_OK) snprintf(k->why, sizeof k->why, "%s", why);
    k->at = DONE;
    if (k->unattended) {
        tni_os_lock(&use->lock);
        use->unattended--;
        tni_os_unlock(&use->lock);
    }
    atomic_store_explicit(&k->done, true, memory_order_release);
}

static bool any_followed(const tni_engine_use *use) {
    bool found = false;
    for (const tn_world *w = use->worlds; w; w = w->next) {
        for (const tn_work *k = w->first; k; k = k->next) found |= k->followed && k->at == RUNNING;
        for (const tn_work *k = w->moving; k; k = k->next) found |= k->followed && k->at == RUNNING;
    }
    return found;
}

static void give_up_all(const tni_engine_use *use) {
    for (const tn_world *w = use->worlds; w; w = w->next) tni_engine_give_up(use->engine, w->group);
}

/* Of a loss that nobody has heard of: what the program has asked for. */
static void end_unheard(void *arg) {
    tni_engine_use *use = arg;
    bool held = true;
    for (int64_t end = tni_os_clock_ns() + GRACE_NS; held && tni_os_clock_ns() < end;) {
        tni_os_sleep_ns(100000000);
        tni_os_lock(&use->driver);
        held = use->held;
        tni_os_unlock(&use->driver);
    }
    if (!held || !use->say || !use->end) return;
    use->say(use->why);
    use->end();
}

/* The engine has failed: nothing is known of the other ranks any more. What a stream waits for, which
 * would read what was not exchanged, is given up when the caller has heard of it. */
static void lose(tn_work *k, tn_status st, const char *why) {
    tni_engine_use *use = k->world->use;
    if (!use->lost) {
        snprintf(use->why, sizeof use->why, "%s", why);
        use->held = any_followed(use);
        if (!use->held || !tni_os_thread_start(end_unheard, use)) give_up_all(use);
    }
    use->lost = true;
    k->lost = true; /* the engine may still write to its memory */
    finish(k, st, why);
}

/* The engine has failed in an operation, and may have said why. */
static void lose_by_engine(tn_work *k, tn_status st, const char *why) {
    char what[200], text[TN_ENGINE_WHY];
    const tni_fingerprint f = tni_fingerprint_of(k->world, &k->x, k->there);
    tni_fingerprint_text(&f, what, sizeof what);
    snprintf(text, sizeof text, "rank %d of %d in %s: %.240s", (int)k->world->rank,
             (int)k->world->size, what, why[0] ? why : "the engine failed and did not say why");
    bool other_size = st == TN_E_VALUE && is_between_two(&k->x); /* and the message has come */
    if (other_size && !has_parts(k))
        finish(k, TN_E_STATE, text);
    else
        lose(k, other_size ? TN_E_STATE : st, text);
}

static tn_status start_request(tn_work *k, const tn_exchange *x) {
    tn_world *w = k->world;
    const tn_engine *engine = w->use->engine;
    char why[TN_ENGINE_WHY] = "";
    k->started_ns = tni_os_clock_ns();
    tn_status st = k->there && k->at == RUNNING
                       ? engine->start_there(w->group, x, &k->place, &k->request, why)
                       : engine->start(w->group, x, &k->request, why);
    if (st != TN_OK) lose_by_engine(k, st, why);
    return st;
}

/* ---- Exchanges of more elements than an engine moves at once -----------------------------------*/

/* Copies elements of each rank between where the caller has them, k->x.count apart, and `near`. */
static void move_parts(const tn_work *k, char *far, char *near, int64_t offset, bool to_far) {
    size_t size = (size_t)tn_dtype_size(k->x.dtype), bytes = (size_t)k->moving * size;
    for (int32_t i = 0; i < k->world->size; i++) {
        char *one = far + ((size_t)i * (size_t)k->x.count + (size_t)offset) * size;
        char *other = near + (size_t)i * bytes;
        memcpy(to_far ? one : other, to_far ? other : one, bytes);
    }
}

/* The next elements of an exchange that is made in several, `most` of each rank. */
static tn_status next_part(tn_work *k, int64_t most, tn_exchange *ret_part) {
    size_t size = (size_t)tn_dtype_size(k->x.dtype), bytes = (size_t)k->offset * size;
    int64_t left = k->x.count - k->offset;
    *ret_part = k->x;
    ret_part->count = k->moving = left < most ? left : most;
    if (ret_part->in) ret_part->in = (const char *)ret_part->in + bytes;
    if (ret_part->out) ret_part->out = (char *)ret_part->out + bytes;
    if (!has_part_of_each(&k->x)) return TN_OK;
    int64_t room = k->world->use->most; /* of `most` elements of each rank */
    if (room < k->world->size) room = k->world->size;
    if (!k->parts) k->parts = calloc((size_t)room, size);
    if (!k->parts) return TN_E_MEMORY;
    if (k->x.kind == TN_EXCHANGE_ALL_GATHER) {
        ret_part->out = k->parts;
    } else {
        move_parts(k, (char *)k->x.in, k->parts, k->offset, false);
        ret_part->in = k->parts;
    }
    return TN_OK;
}

/* Starts the exchange, or its next part. */
static void start_exchange(tn_work *k) {
    tn_exchange part = k->x;
    k->at = RUNNING;
    if (has_parts(k) && next_part(k, most_of(k), &part) != TN_OK)
        lose(k, TN_E_MEMORY, "out of memory");
    else
        (void)start_request(k, &part); /* where it fails, k has ended */
}

/* A part has been moved; whether it was the last one. */
static bool was_last(tn_work *k) {
    if (k->moving == 0) return true;
    if (k->x.kind == TN_EXCHANGE_ALL_GATHER) move_parts(k, k->x.out, k->parts, k->offset, true);
    k->offset += k->moving;
    return k->offset == k->x.count && (!is_between_two(&k->x) || k->moving < most_of(k));
}

static void begin(tn_work *k) {
    tn_world *w = k->world;
    if (is_between_two(&k->x)) {
        start_exchange(k);
        return;
    }
    w->sequence++;
    if (w->check == 0 || w->size == 1 || w->sequence % (uint64_t)w->check != 0) {
        start_exchange(k);
        return;
    }
    w->mine = tni_fingerprint_of(w, &k->x, k->there);
    tn_exchange compare = {.kind = TN_EXCHANGE_ALL_GATHER,
                           .dtype = TN_U8,
                           .count = sizeof w->mine,
                           .in = &w->mine,
                           .out = w->all,
                           .timeout_ms = k->x.timeout_ms};
    k->at = COMPARING;
    (void)start_request(k, &compare); /* where it fails, k has ended */
}

static void ended_part(tn_work *k) {
    tn_world *w = k->world;
    char why[TN_ENGINE_WHY];
    if (k->at == COMPARING) {
        if (!tni_fingerprints_agree(w->all, w->size, &k->x, why))
            finish(k, TN_E_STATE, why);
        else
            start_exchange(k);
    } else if (was_last(k)) {
        finish(k, TN_OK, NULL);
    } else {
        start_exchange(k);
    }
}

static int64_t waited_ms(const tn_work *k) { return (tni_os_clock_ns() - k->started_ns) / 1000000; }

/* The deadline is over; `said` is what the engine has given up with, if it was first. */
static void lose_late(tn_work *k, const char *said) {
    char what[200], why[TN_ENGINE_WHY];
    const tni_fingerprint f = tni_fingerprint_of(k->world, &k->x, k->there);
    tni_fingerprint_text(&f, what, sizeof what);
    snprintf(why, sizeof why, "rank %d waited %.1f s in %s; not all ranks have come%s%.120s",
             (int)k->world->rank, (double)waited_ms(k) / 1e3, what, said[0] ? ": " : "", said);
    lose(k, TN_E_STATE, why);
}

/* Asks the engine; whose message has come is known from then on. */
static tn_status test(tn_work *k, int32_t *ret_done, char *why) {
    const tn_world *w = k->world;
    const tn_engine *engine = w->use->engine;
    if (k->x.peer != TN_EXCHANGE_ANY) return engine->test(w->group, k->request, ret_done, why);
    int32_t from = TN_EXCHANGE_ANY;
    tn_status st = tni_engine_test_from(engine)(w->group, k->request, ret_done, &from, why);
    if (st == TN_OK && !*ret_done) return TN_OK;
    if (from >= 0 && from < w->size) {
        k->x.peer = from;
    } else if (st == TN_OK) {
        snprintf(why, TN_ENGINE_WHY, "a message has come of rank %d", (int)from);
        return TN_E_PLUGIN;
    }
    return st;
}

/* Does what can be done now for an operation. */
static void advance(tn_work *k) {
    if (k->at == QUEUED) begin(k);
    while (k->at == COMPARING || k->at == RUNNING) {
        char why[TN_ENGINE_WHY] = "";
        int32_t done = 0;
        tn_status st = test(k, &done, why);
        if (st == TN_OK && done) {
            ended_part(k);
        } else if (st != TN_E_VALUE && waited_ms(k) + (st != TN_OK) > k->x.timeout_ms) {
            lose_late(k, why);
        } else if (st != TN_OK) {
            lose_by_engine(k, st, why);
        } else {
            return;
        }
    }
}

/* ---- Driving, under the driver's lock ----------------------------------------------------------*/

/* Operations that were started since, to the ends of the driver's lists, in their order. */
static void take_posted(tn_world *w) {
    tni_os_lock(&w->use->lock);
    tn_work *newest = w->posted;
    w->posted = NULL;
    tni_os_unlock(&w->use->lock);
    tn_work *oldest = NULL;
    while (newest) {
        tn_work *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        tn_work *next = oldest->next;
        tn_work **at = is_between_two(&oldest->x) ? &w->moving : &w->first;
        while (*at) at = &(*at)->next;
        oldest->next = NULL;
        *at = oldest;
        oldest = next;
    }
}

static void fail_all(tni_engine_use *use, tn_work *first) {
    char why[TN_ENGINE_WHY + 64];
    snprintf(why, sizeof why, "the process group was lost before: %s", use->why);
    for (tn_work *k = first; k; k = k->next) {
        if (k->at == DONE) continue;
        k->lost = k->at != QUEUED;
        finish(k, TN_E_STATE, why);
    }
}

/* Moves what is done from a list to another. */
static void sweep(tn_work **at, tn_work **ended) {
    while (*at) {
        tn_work *k = *at;
        if (k->at != DONE) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        k->next = *ended;
        *ended = k;
    }
}

/* Parts of two messages that could be taken for each other: the later message waits. */
static bool must_wait(const tn_work *first, const tn_work *k) {
    for (const tn_work *e = first; e != k; e = e->next) {
        bool same_peer =
            e->x.peer == k->x.peer || e->x.peer == TN_EXCHANGE_ANY || k->x.peer == TN_EXCHANGE_ANY;
        bool same_slot = e->x.kind == k->x.kind && e->x.tag == k->x.tag && same_peer;
        if (e->at != DONE && same_slot && (has_parts(e) || has_parts(k))) return true;
    }
    return false;
}

static void drive_world(tn_world *w, tn_work **ended) {
    take_posted(w);
    for (tn_work *k = w->moving; k && !w->use->lost; k = k->next)
        if (k->at != QUEUED || !must_wait(w->moving, k)) advance(k);
    for (tn_work *k = w->first; k && !w->use->lost; k = k->next) {
        advance(k);
        bool on_device = k->there && k->at == RUNNING; /* which keeps the order */
        if (k->at != DONE && !on_device) break;        /* one after the other */
    }
    if (w->use->lost) {
        fail_all(w->use, w->moving);
        fail_all(w->use, w->first);
    }
    sweep(&w->moving, ended);
    sweep(&w->first, ended);
}

/* ---- Driving -----------------------------------------------------------------------------------*/

static void drive(tni_engine_use *use) {
    tn_work *ended = NULL;
    tni_os_lock(&use->driver);
    for (tn_world *w = use->worlds; w; w = w->next) drive_world(w, &ended);
    tni_os_unlock(&use->driver);
    while (ended) {
        tn_work *next = ended->next;
        tn_work_unref(ended);
        ended = next;
    }
}

/* Between two looks at an engine: shorter at first, as most operations end soon. */
enum { LOOKS_SOON = 1000, LOOKS_LATER = 10000, PAUSE_NS = 20000, LONG_PAUSE_NS = 200000 };
static void pause_after(int32_t looks) {
    if (looks < LOOKS_SOON)
        tni_os_yield();
    else
        tni_os_sleep_ns(looks < LOOKS_LATER ? PAUSE_NS : LONG_PAUSE_NS);
}

/* Drives what nobody waits for. */
static void attend(void *arg) {
    tni_engine_use *use = arg;
    for (int32_t looks = 0;; looks++) {
        tni_os_lock(&use->lock);
        if (use->unattended == 0) {
            tni_os_wait(&use->posted, &use->lock);
            looks = 0;
        }
        tni_os_unlock(&use->lock);
        drive(use);
        pause_after(looks + LOOKS_SOON / 2);
    }
}

/* What has become of an operation that is done, for the caller to hear. */
static tn_status told(const tn_work *k) {
    tni_engine_use *use = k->world->use;
    if (k->status == TN_OK) return TN_OK;
    tni_os_lock(&use->driver);
    if (use->held) give_up_all(use);
    use->held = false;
    tni_os_unlock(&use->driver);
    return tn_fail(k->status, -1, "%s", k->why);
}

tn_status tn_work_wait(tn_work *k, int64_t max_ms) {
    if (!k) return tn_fail(TN_E_TYPE, 0, "work_wait(): there is no operation");
    int64_t start_ns = tni_os_clock_ns();
    for (int32_t looks = 0; !tn_work_done(k); looks++) {
        drive(k->world->use);
        if (tn_work_done(k)) break;
        if ((tni_os_clock_ns() - start_ns) / 1000000 >= max_ms) return TN_OK;
        pause_after(looks);
    }
    return told(k);
}

int32_t tn_work_done(tn_work *k) {
    return k && atomic_load_explicit(&k->done, memory_order_acquire);
}

void tn_work_give_up(tn_work *k, const char *why) {
    if (!k || !why) return;
    tni_engine_use *use = k->world->use;
    tni_os_lock(&use->driver);
    if (k->at != DONE) lose_by_engine(k, TN_E_STATE, why);
    tni_os_unlock(&use->driver);
    drive(use);
}

int32_t tn_work_peer(const tn_work *k) { return k ? k->x.peer : TN_EXCHANGE_ANY; }

int32_t tn_work_lost(const tn_work *k) { return k && k->lost; }

/* ---- Operations --------------------------------------------------------------------------------*/

static tn_status check_exchange(const tn_world *w, const tn_exchange *x, bool there) {
    bool has_peer =
        is_between_two(x) || x->kind == TN_EXCHANGE_BROADCAST || x->kind == TN_EXCHANGE_REDUCE;
    if (x->kind >= TN_EXCHANGE_KINDS || x->op >= TN_EXCHANGE_OPS || x->count < 0)
        return tn_fail(TN_E_VALUE, 1, "world_start(): an exchange that there is not");
    bool from_any = x->kind == TN_EXCHANGE_RECV && x->peer == TN_EXCHANGE_ANY;
    if (from_any && !tni_engine_test_from(w->use->engine))
        return tn_fail(TN_E_UNSUPPORTED, 1,
                       "world_start(): the engine '%s' cannot receive from any rank",
                       w->use->engine->name);
    if (has_peer && !from_any && (x->peer < 0 || x->peer >= w->size))
        return tn_fail(TN_E_VALUE, 1, "world_start(): rank %d of a group of %d", (int)x->peer,
                       (int)w->size);
    if (x->kind == TN_EXCHANGE_ALL_TO_ALL && !there && x->count > TN_ENGINE_MAX_COUNT / w->size)
        return tn_fail(
            TN_E_UNSUPPORTED, 1,
            "world_start(): parts of %lld elements are more than an engine moves at once",
            (long long)x->count);
    if (x->kind == TN_EXCHANGE_ALL_TO_ALL && (!x->in_counts || !x->out_counts))
        return tn_fail(TN_E_TYPE, 1, "world_start(): all_to_all needs the counts");
    return TN_OK;
}

static tn_status copy_counts(tn_work *k, int32_t size) {
    if (k->x.kind != TN_EXCHANGE_ALL_TO_ALL) return TN_OK;
    size_t bytes = (size_t)size * sizeof(int64_t);
    k->counts = calloc((size_t)size, sizeof(int64_t[2]));
    if (!k->counts) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    memcpy(k->counts, k->x.in_counts, bytes);
    memcpy(k->counts + size, k->x.out_counts, bytes);
    k->x.in_counts = k->counts;
    k->x.out_counts = k->counts + size;
    return TN_OK;
}

static void post(tn_work *k) {
    tn_world *w = k->world;
    tni_engine_use *use = w->use;
    tni_os_lock(&use->lock);
    k->next = w->posted;
    w->posted = k;
    if (k->unattended) {
        use->unattended++;
        if (!use->has_thread) use->has_thread = tni_os_thread_start(attend, use);
        tni_os_wake(&use->posted);
    }
    tni_os_unlock(&use->lock);
}

static tn_status begin_work(tn_world *w, const tn_exchange *x, const tn_exchange_place *at,
                            int32_t later, tn_work **ret_work) {
    if (!w || !x || !ret_work) return tn_fail(TN_E_TYPE, 0, "world_start(): an argument is NULL");
    TN_TRY(check_exchange(w, x, at != NULL));
    tn_work *k = calloc(1, sizeof *k);
    if (!k) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    k->x = *x;
    k->there = at != NULL;
    if (at) k->place = *at;
    tn_status st = copy_counts(k, w->size);
    if (st != TN_OK) {
        free(k);
        return st;
    }
    k->world = w;
    k->unattended = later;
    atomic_fetch_add(&w->refs, 1);
    atomic_init(&k->refs, 2);
    post(k);
    *ret_work = k;
    return TN_OK;
}

tn_status tn_world_start(tn_world *w, const tn_exchange *x, int32_t later, tn_work **ret_work) {
    return begin_work(w, x, NULL, later, ret_work);
}

/* ---- On a device -------------------------------------------------------------------------------*/

const char *tn_world_device(const tn_world *w) {
    return w && tni_engine_has_device(w->use->engine) ? w->use->engine->device : NULL;
}

int32_t tn_world_takes(const tn_world *w, const tn_exchange *x, int32_t device) {
    return w && x && tni_engine_has_device(w->use->engine) &&
           w->use->engine->takes(w->group, x, device);
}

void tn_world_on_loss(tn_world *w, void (*say)(const char *why), void (*end)(void)) {
    if (!w) return;
    w->use->say = say;
    w->use->end = end;
}

tn_status tn_world_start_there(tn_world *w, const tn_exchange *x, const tn_exchange_place *at,
                               tn_work **ret_work) {
    if (!w || !x || !at || !ret_work)
        return tn_fail(TN_E_TYPE, 0, "world_start_there(): an argument is NULL");
    if (!tn_world_takes(w, x, at->device))
        return tn_fail(TN_E_UNSUPPORTED, 1,
                       "world_start_there(): the engine '%s' does not make it on device %d",
                       w->use->engine->name, (int)at->device);
    return begin_work(w, x, at, 1, ret_work);
}

tn_status tn_work_follow(tn_work *k, void *stream, int64_t max_ms, int32_t *ret_follows) {
    if (!k || !ret_follows) return tn_fail(TN_E_TYPE, 0, "work_follow(): an argument is NULL");
    tni_engine_use *use = k->world->use;
    int64_t start_ns = tni_os_clock_ns();
    *ret_follows = 0;
    for (int32_t looks = 0; !tn_work_done(k) && !*ret_follows; looks++) {
        char why[TN_ENGINE_WHY] = "";
        drive(use);
        tni_os_lock(&use->driver);
        if (k->at == RUNNING && k->there && !use->lost) {
            tn_status st =
                use->engine->follow(k->world->group, k->request, stream, ret_follows, why);
            if (st != TN_OK) lose_by_engine(k, st, why);
            k->followed |= *ret_follows != 0;
        }
        tni_os_unlock(&use->driver);
        if ((tni_os_clock_ns() - start_ns) / 1000000 >= max_ms) break;
        if (!*ret_follows) pause_after(looks);
    }
    if (!tn_work_done(k)) return TN_OK;
    *ret_follows = 1;
    return told(k);
}

/* ---- Groups ------------------------------------------------------------------------------------*/

static tn_world *world_new(tni_engine_use *use, int32_t rank, int32_t size, int32_t check) {
    tn_world *w = calloc(1, sizeof *w);
    tni_fingerprint *all = calloc((size_t)size, sizeof *all);
    if (!w || !all) {
        free(w);
        free(all);
        return NULL;
    }
    w->use = use;
    w->all = all;
    w->rank = rank;
    w->size = size;
    w->check = check;
    atomic_init(&w->refs, 1);
    return w;
}

static void link_world(tn_world *w) {
    w->next = w->use->worlds;
    w->use->worlds = w;
}

/* What an engine is asked for at once: less where the environment, which is the same on all ranks,
 * says so. */
static int64_t most_at_once(void) {
    return tni_setting_number("TENON_EXCHANGE_ELEMENTS", 1, TN_ENGINE_MAX_COUNT,
                              TN_ENGINE_MAX_COUNT);
}

tn_status tn_world_open(const char *path, const tn_engine_place *place, int32_t check,
                        tn_world **ret_world) {
    if (!path || !place || !ret_world)
        return tn_fail(TN_E_TYPE, 0, "world_open(): an argument is NULL");
    if (place->size < 1 || place->size > 1 << 20 || place->rank < 0 || place->rank >= place->size)
        return tn_fail(TN_E_VALUE, 1, "world_open(): rank %d of %d processes", (int)place->rank,
                       (int)place->size);
    const tn_engine *engine;
    TN_TRY(tni_engine_find(path, &engine));
    tni_engine_use *use = calloc(1, sizeof *use);
    tn_world *w = use ? world_new(use, place->rank, place->size, check) : NULL;
    if (!w) {
        free(use);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    use->engine = engine;
    use->most = most_at_once();
    tni_os_mutex_init(&use->driver);
    tni_os_mutex_init(&use->lock);
    tni_os_cond_init(&use->posted);
    char why[TN_ENGINE_WHY] = "";
    tn_status st = engine->open(place, &w->group, why);
    if (st != TN_OK) {
        free(w->all);
        free(w);
        free(use);
        return tn_fail(st, -1, "%s: %s", engine->name, why);
    }
    w->number = use->groups++;
    link_world(w);
    *ret_world = w;
    return TN_OK;
}

static int32_t find_rank(const tn_world *w, const int32_t *ranks, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (ranks[i] == w->rank) return i;
    return -1;
}

static tn_status check_ranks(const tn_world *w, const int32_t *ranks, int32_t n) {
    if (n < 1 || n > w->size)
        return tn_fail(TN_E_VALUE, 1, "world_part(): %d ranks of a group of %d", (int)n,
                       (int)w->size);
    for (int32_t i = 0; i < n; i++) {
        bool again = false;
        for (int32_t k = 0; k < i; k++) again |= ranks[k] == ranks[i];
        if (again || ranks[i] < 0 || ranks[i] >= w->size)
            return tn_fail(TN_E_VALUE, 1, "world_part(): rank %d is not there, or there twice",
                           (int)ranks[i]);
    }
    return TN_OK;
}

tn_status tn_world_part(tn_world *w, const int32_t *ranks, int32_t n, uint32_t id,
                        int64_t timeout_ms, tn_world **ret_world) {
    if (!w || !ranks || !ret_world)
        return tn_fail(TN_E_TYPE, 0, "world_part(): an argument is NULL");
    if (id && id < TN_WORLD_OWN_ID)
        return tn_fail(TN_E_VALUE, 3, "world_part(): the id %u is one of those that are counted",
                       (unsigned)id);
    TN_TRY(check_ranks(w, ranks, n));
    tni_engine_use *use = w->use;
    int32_t rank = find_rank(w, ranks, n);
    tn_world *part = rank >= 0 ? world_new(use, rank, n, w->check) : NULL;
    if (rank >= 0 && !part) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    char why[TN_ENGINE_WHY] = "";
    tn_status st = TN_OK;
    tni_os_lock(&use->driver);
    uint32_t number = id ? id : use->groups++;
    if (part) {
        part->number = number;
        st = use->engine->part(w->group, ranks, n, number, timeout_ms, &part->group, why);
        if (st == TN_OK) link_world(part);
    }
    tni_os_unlock(&use->driver);
    if (st != TN_OK) {
        free(part->all);
        free(part);
        return tn_fail(st, -1, "%s: %s", use->engine->name, why);
    }
    *ret_world = part;
    return TN_OK;
}

int32_t tn_world_rank(const tn_world *w) { return w ? w->rank : -1; }
int32_t tn_world_size(const tn_world *w) { return w ? w->size : 0; }
void tn_world_close(tn_world *w) { world_unref(w); }

void tn_world_abort(tn_world *w, int32_t code) {
    if (!w) return;
    tni_os_lock(&w->use->driver);
    w->use->engine->abort(w->group, code);
    tni_os_unlock(&w->use->driver);
}
