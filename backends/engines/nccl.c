/* nccl.c: NCCL as an engine (tenon/engine.h), of ranks that have a GPU each. NCCL is called without
 * blocking: whatever waits for another rank is asked for again, and given up where the deadline is over.
 * Exchanges of host memory go through memory of the engine, those of the device's run there: its stream
 * waits for what was queued before, and others may wait for it. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_priv.h"

/* ---- Groups ------------------------------------------------------------------------------------*/

static void free_group(nccl_group *g) {
    nccl_home *home = g->home;
    for (int32_t i = 0; i < 2 * g->size; i++) {
        if (g->channels[i]) nccl_mail_free(g->channels[i]);
        nccl_lane_close(g->channels[i]);
    }
    nccl_lane_close(g->host);
    nccl_lane_close(g->device);
    home->groups--;
    nccl_home_close(home);
    free(g);
}

/* All of its ranks come, or the deadline does. */
static tn_status join(nccl_lane *lane, int64_t timeout_ms, char *why) {
    struct timespec start, now;
    bool is_free = false;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        tn_status st = nccl_lane_free(lane, &is_free, why);
        if (st != TN_OK || is_free) return st;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const int64_t ms =
            (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (ms > timeout_ms)
            return nccl_fail(why, TN_E_IO, "not all ranks have come within %.1f s",
                             (double)timeout_ms / 1e3);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static tn_status new_group(nccl_home *home, const char *folder, const char *name, int32_t rank,
                           int32_t size, int64_t timeout_ms, void **ret_group, char *why) {
    nccl_group *g = calloc(1, sizeof *g + 2 * (size_t)size * sizeof g->channels[0]);
    if (!g) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    g->home = home;
    g->rank = rank;
    g->size = size;
    home->groups++;
    snprintf(g->folder, sizeof g->folder, "%s", folder);
    snprintf(g->name, sizeof g->name, "%s", name);
    tn_status st = nccl_lane_new(home, folder, name, rank, size, &g->host, why);
    if (st == TN_OK) st = join(g->host, timeout_ms, why);
    if (st == TN_OK)
        *ret_group = g;
    else
        free_group(g);
    return st;
}

static tn_status open_world(const tn_engine_place *place, void **ret_group, char *why) {
    nccl_home *home = NULL;
    if (!place->folder || !place->folder[0] || strlen(place->folder) >= 400)
        return nccl_fail(why, TN_E_VALUE, "the ranks of NCCL meet in a folder, which is missing");
    tn_status st = nccl_home_open(place, &home, why);
    if (st != TN_OK) return st;
    return new_group(home, place->folder, "world", place->rank, place->size, place->timeout_ms,
                     ret_group, why);
}

static tn_status part(void *group, const int32_t *ranks, int32_t n, uint32_t id, int64_t timeout_ms,
                      void **ret_group, char *why) {
    nccl_group *g = group;
    int32_t rank = 0;
    char name[64];
    tn_status st = nccl_enter(g->home, why);
    if (st != TN_OK) return st;
    for (int32_t i = 0; i < n; i++)
        if (ranks[i] == g->rank) rank = i;
    int length = snprintf(name, sizeof name, "%s.%u", g->name, (unsigned)id);
    if (length < 0 || (size_t)length >= sizeof name)
        return nccl_fail(why, TN_E_UNSUPPORTED, "parts of parts of too many groups");
    return new_group(g->home, g->folder, name, rank, n, timeout_ms, ret_group, why);
}

static void close_group(void *group) {
    char why[TN_ENGINE_WHY];
    nccl_group *g = group;
    if (nccl_enter(g->home, why) == TN_OK) free_group(g);
}

static void give_up(void *group) {
    nccl_group *g = group;
    g->lost = true;
    for (int32_t i = 0; i < 2 * g->size; i++)
        if (g->channels[i]) nccl_lane_abort(g->channels[i]);
    if (g->host) nccl_lane_abort(g->host);
    if (g->device) nccl_lane_abort(g->device);
}

/* The others notice that this rank's communicators have ended, or that their deadlines are over. */
static void abort_group(void *group, int32_t code) {
    (void)code;
    give_up(group);
}

/* ---- Exchanges ---------------------------------------------------------------------------------*/

static bool is_message(const tn_exchange *x) {
    return x->kind == TN_EXCHANGE_SEND || x->kind == TN_EXCHANGE_RECV;
}

static void free_request(nccl_request *r) {
    nccl_stage_return(r->group->home, r->stage);
    if (r->event) nccl_driver.event_destroy(r->event);
    free(r->counts);
    free(r);
}

static tn_status copy_counts(nccl_request *r, char *why) {
    const size_t n = (size_t)r->group->size;
    if (r->x.kind != TN_EXCHANGE_ALL_TO_ALL) return TN_OK;
    r->counts = calloc(n, sizeof(int64_t[2]));
    if (!r->counts) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    memcpy(r->counts, r->x.in_counts, n * sizeof(int64_t));
    memcpy(r->counts + n, r->x.out_counts, n * sizeof(int64_t));
    r->x.in_counts = r->counts;
    r->x.out_counts = r->counts + n;
    return TN_OK;
}

static tn_status find_lane(nccl_request *r, char *why) {
    nccl_group *g = r->group;
    char name[80];
    r->lane = r->there ? g->device : g->host;
    if (r->lane) return TN_OK;
    snprintf(name, sizeof name, "%s-there", g->name);
    tn_status st = nccl_lane_new(g->home, g->folder, name, g->rank, g->size, &g->device, why);
    r->lane = g->device;
    return st;
}

static tn_status place(nccl_request *r, char *why) {
    if (is_message(&r->x)) return nccl_message_start(r, why);
    tn_status st = find_lane(r, why);
    return st == TN_OK ? nccl_collective_place(r, why) : st;
}

/* What is asked for may wait on another rank for something else of this one: all lanes go on that have
 * something to do. */
static tn_status advance(const nccl_request *r, char *why) {
    tn_status st = TN_OK;
    for (nccl_lane *lane = r->group->home->lanes; lane && st == TN_OK; lane = lane->next)
        if (lane->first || lane == r->lane)
            st = (lane->is_channel ? nccl_message_advance : nccl_collective_advance)(lane, why);
    return st;
}

static tn_status begin(nccl_group *g, const tn_exchange *x, const tn_exchange_place *at,
                       void **ret_request, char *why) {
    ncclDataType_t type;
    if (g->lost) return nccl_fail(why, TN_E_STATE, "the group was given up");
    if (x->kind != TN_EXCHANGE_BARRIER && !nccl_type(x->dtype, &type))
        return nccl_fail(why, TN_E_DTYPE, "a dtype that NCCL does not know");
    tn_status st = nccl_enter(g->home, why);
    if (st != TN_OK) return st;
    nccl_request *r = calloc(1, sizeof *r);
    if (!r) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    r->group = g;
    r->x = *x;
    r->there = at != NULL;
    r->ready = at ? at->ready : NULL;
    const bool nothing = x->count == 0 && x->kind != TN_EXCHANGE_ALL_TO_ALL && !is_message(x) &&
                         x->kind != TN_EXCHANGE_BARRIER;
    if (nothing) {
        r->ended = true;
    } else {
        st = copy_counts(r, why);
        if (st == TN_OK)
            st = nccl_driver_fail(why, nccl_driver.event_create(&r->event, CUDA_EVENT_UNTIMED),
                                  "making an event");
        if (st == TN_OK) st = place(r, why);
        if (st == TN_OK) {
            nccl_append(r->lane, r);
            st = advance(r, why);
        }
    }
    if (st == TN_OK) *ret_request = r; /* else it may be on its way, as all of the group */
    return st;
}

static tn_status start(void *group, const tn_exchange *x, void **ret_request, char *why) {
    return begin(group, x, NULL, ret_request, why);
}

static tn_status start_there(void *group, const tn_exchange *x, const tn_exchange_place *at,
                             void **ret_request, char *why) {
    return begin(group, x, at, ret_request, why);
}

static int32_t takes(void *group, const tn_exchange *x, int32_t device) {
    const nccl_group *g = group;
    const bool reduces = x->kind == TN_EXCHANGE_ALL_REDUCE || x->kind == TN_EXCHANGE_REDUCE ||
                         x->kind == TN_EXCHANGE_REDUCE_SCATTER;
    ncclDataType_t type;
    ncclRedOp_t op;
    return device == g->home->device && x->kind != TN_EXCHANGE_BARRIER &&
           nccl_type(x->dtype, &type) && (!reduces || nccl_op(x->op, &op));
}

static tn_status test(void *group, void *request, int32_t *ret_done, char *why) {
    nccl_request *r = request;
    const nccl_group *g = group;
    *ret_done = 0;
    tn_status st = nccl_enter(g->home, why);
    if (st == TN_OK && !r->ended) st = advance(r, why);
    if (st != TN_OK) return st; /* the group is lost, and what its requests hold */
    if (r->queued) {
        CUresult code = nccl_driver.event_query(r->event);
        if (code == CUDA_NOT_READY) return TN_OK;
        if (code != CUDA_OK) return nccl_driver_fail(why, code, "an exchange");
        if (!is_message(&r->x)) nccl_collective_end(r);
        r->ended = true;
    }
    if (!r->ended) return TN_OK;
    *ret_done = 1;
    st = r->status;
    if (st != TN_OK) snprintf(why, TN_ENGINE_WHY, "%s", r->why);
    free_request(r);
    return st;
}

static tn_status follow(void *group, void *request, void *stream, int32_t *ret_follows, char *why) {
    nccl_request *r = request;
    const nccl_group *g = group;
    *ret_follows = 0;
    tn_status st = nccl_enter(g->home, why);
    if (st == TN_OK && !r->ended && !r->queued) st = advance(r, why);
    if (st != TN_OK) return st;
    *ret_follows = r->ended || r->queued;
    CUresult code = r->queued ? nccl_driver.stream_wait(stream, r->event, 0) : CUDA_OK;
    return nccl_driver_fail(why, code, "letting a stream wait");
}

static const tn_engine table = {
    .struct_size = sizeof table,
    .version = TN_ENGINE_VERSION,
    .name = "nccl",
    .open = open_world,
    .part = part,
    .start = start,
    .test = test,
    .close = close_group,
    .abort = abort_group,
    .device = "cuda",
    .takes = takes,
    .start_there = start_there,
    .follow = follow,
    .give_up = give_up,
};

__attribute__((visibility("default"))) const tn_engine *tn_engine_main(uint32_t version);
const tn_engine *tn_engine_main(uint32_t version) {
    return version == TN_ENGINE_VERSION ? &table : NULL;
}
