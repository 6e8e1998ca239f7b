/* nccl_lane.c: communicators. Ranks join by a file in their folder that rank 0 writes: NCCL's unique id.
 * Nothing here waits for another rank: joining and calls go on while they are asked for. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl_priv.h"

static tn_status fail(nccl_lane *lane, ncclResult_t code, const char *what, char *why) {
    const char *more = nccl.last_error(lane->comm);
    tn_status st = nccl_fail(why, TN_E_IO, "%s: %.120s%s%.200s", what, nccl.error_text(code),
                             more && more[0] ? "; " : "", more ? more : "");
    lane->at = NCCL_FAILED;
    return st;
}

/* ---- Joining -----------------------------------------------------------------------------------*/

/* Beside its place, and renamed: it is there whole, or not at all. */
static tn_status write_id(const char *path, const ncclUniqueId *id, char *why) {
    char beside[600];
    snprintf(beside, sizeof beside, "%s.new", path);
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = file >= 0 && write(file, id, sizeof *id) == (ssize_t)sizeof *id;
    if (file >= 0) good &= close(file) == 0;
    if (good && rename(beside, path) == 0) return TN_OK;
    return nccl_fail(why, TN_E_IO, "%s: %s", path, strerror(errno));
}

static bool read_id(const char *path, ncclUniqueId *ret_id) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool whole = read(file, ret_id, sizeof *ret_id) == (ssize_t)sizeof *ret_id;
    close(file);
    return whole;
}

static tn_status begin_to_join(nccl_lane *lane, char *why) {
    ncclUniqueId id;
    tn_status st = TN_OK;
    if (lane->rank == 0) {
        ncclResult_t code = nccl.unique_id(&id);
        if (code != NCCL_OK) return fail(lane, code, "ncclGetUniqueId", why);
        st = write_id(lane->path, &id, why);
    } else if (!read_id(lane->path, &id)) {
        return TN_OK; /* not yet */
    }
    if (st != TN_OK) return st;
    ncclConfig_t config = {.size = sizeof config,
                           .magic = (unsigned)NCCL_MAGIC,
                           .version = NCCL_CONFIG_VERSION,
                           .blocking = 0,
                           .unused = NCCL_UNDEFINED};
    lane->at = NCCL_JOINING;
    ncclResult_t code = nccl.init(&lane->comm, lane->size, id, lane->rank, &config);
    return nccl_lane_called(lane, code, "ncclCommInitRankConfig", why);
}

/* ---- Calls -------------------------------------------------------------------------------------*/

tn_status nccl_lane_called(nccl_lane *lane, ncclResult_t code, const char *what, char *why) {
    return code == NCCL_OK || code == NCCL_IN_PROGRESS ? TN_OK : fail(lane, code, what, why);
}

tn_status nccl_lane_free(nccl_lane *lane, bool *ret_free, char *why) {
    *ret_free = false;
    if (lane->at >= NCCL_FAILED) return nccl_fail(why, TN_E_STATE, "the communicator has failed");
    if (lane->at == NCCL_NEW) {
        tn_status st = begin_to_join(lane, why);
        if (st != TN_OK || lane->at == NCCL_NEW) return st;
    }
    ncclResult_t state = NCCL_OK;
    ncclResult_t code = nccl.state(lane->comm, &state);
    if (code != NCCL_OK) return fail(lane, code, "ncclCommGetAsyncError", why);
    if (state == NCCL_IN_PROGRESS) return TN_OK;
    if (state != NCCL_OK)
        return fail(lane, state, lane->at == NCCL_JOINING ? "joining" : "NCCL", why);
    if (lane->at == NCCL_JOINING && lane->rank == 0) unlink(lane->path); /* all have read it */
    lane->at = NCCL_READY;
    *ret_free = true;
    return TN_OK;
}

/* ---- From beginning to end ---------------------------------------------------------------------*/

tn_status nccl_lane_new(nccl_home *home, const char *folder, const char *name, int32_t rank,
                        int32_t size, nccl_lane **ret_lane, char *why) {
    nccl_lane *lane = calloc(1, sizeof *lane);
    if (!lane) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    lane->home = home;
    lane->rank = rank;
    lane->size = size;
    int n = snprintf(lane->path, sizeof lane->path, "%s/nccl-%s", folder, name);
    tn_status st = n > 0 && (size_t)n < sizeof lane->path
                       ? TN_OK
                       : nccl_fail(why, TN_E_VALUE, "the folder's name is too long");
    int least = 0, greatest = 0;
    if (st == TN_OK) {
        CUresult r = nccl_driver.stream_priorities(&least, &greatest);
        if (r == CUDA_OK) r = nccl_driver.stream_create(&lane->stream, CUDA_STREAM_APART, least);
        st = nccl_driver_fail(why, r, "making a stream");
    }
    if (st != TN_OK) {
        free(lane);
        return st;
    }
    lane->next = home->lanes;
    home->lanes = lane;
    *ret_lane = lane;
    return TN_OK;
}

void nccl_lane_abort(nccl_lane *lane) {
    if (lane->comm && lane->at != NCCL_LOST) nccl.abort(lane->comm);
    lane->comm = NULL;
    lane->at = NCCL_LOST;
}

enum { CLOSING_MS = 5000 };

/* Ranks that have closed are not waited for long. */
static bool has_finished(const nccl_lane *lane) {
    ncclResult_t state = nccl.finalize(lane->comm);
    for (int ms = 0; ms < CLOSING_MS && (state == NCCL_OK || state == NCCL_IN_PROGRESS); ms++) {
        if (nccl.state(lane->comm, &state) == NCCL_OK && state == NCCL_OK) return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

void nccl_lane_close(nccl_lane *lane) {
    if (!lane) return;
    if (lane->at == NCCL_READY && has_finished(lane)) {
        nccl.destroy(lane->comm);
        lane->comm = NULL;
    }
    if (lane->comm) nccl_lane_abort(lane);
    nccl_lane **at = &lane->home->lanes;
    while (*at != lane) at = &(*at)->next;
    *at = lane->next;
    nccl_driver.stream_destroy(lane->stream);
    free(lane);
}

/* ---- What is asked of it -----------------------------------------------------------------------*/

void nccl_append(nccl_lane *lane, nccl_request *r) {
    nccl_request **end = &lane->first;
    while (*end) end = &(*end)->next;
    r->lane = lane;
    r->next = NULL;
    *end = r;
}

void nccl_remove(nccl_lane *lane, const nccl_request *r) {
    nccl_request **at = &lane->first;
    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next;
}

tn_status nccl_queue(nccl_request *r, char *why) {
    CUresult code = nccl_driver.event_record(r->event, r->lane->stream);
    r->queued = code == CUDA_OK;
    return nccl_driver_fail(why, code, "recording an event");
}
