/* nccl_message.c: messages between two ranks. NCCL matches them by their order alone and does not compare
 * sizes, so each has a head that goes ahead of it: its bytes and its tag. The receiving end reads the next
 * head where somebody waits for a message, then the message: into its place where that one is of the
 * device and has that size, else into memory of its own. One that nobody waits for yet is kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_priv.h"

enum { HEAD = 256 }; /* bytes of a stage before the message */

typedef struct head {
    uint64_t bytes;
    int64_t tag;
} head;

/* A message that has come. */
typedef struct letter {
    struct letter *next;
    head head;
    nccl_stage *stage;
} letter;

typedef enum reading { IDLE, HEAD_CALLED, HEAD_QUEUED, BODY_CALLED, BODY_QUEUED } reading;

struct nccl_mail {
    reading at;
    head head;
    nccl_stage *stage; /* of the head that is read, and of its message */
    nccl_stage *body;  /* NULL: the message is read into the place of `direct` */
    nccl_request *direct;
    CUevent event;
    letter *kept;
};

static CUdeviceptr address(const void *at) { return (CUdeviceptr)(uintptr_t)at; }

/* ---- Sending -----------------------------------------------------------------------------------*/

static size_t size_of(const nccl_request *r) { return (size_t)r->x.count * nccl_width(r->x.dtype); }

static tn_status begin_to_send(nccl_request *r, char *why) {
    const head h = {size_of(r), r->x.tag};
    nccl_lane *lane = r->lane;
    size_t bytes = HEAD;
    memcpy(r->stage->host, &h, sizeof h);
    if (!r->there && h.bytes) memcpy(r->stage->host + HEAD, r->x.in, h.bytes);
    if (!r->there) bytes += h.bytes;
    CUresult code = CUDA_OK;
    if (r->ready) code = nccl_driver.stream_wait(lane->stream, r->ready, 0);
    if (code == CUDA_OK)
        code = nccl_driver.copy_in(address(r->stage->device), r->stage->host, bytes, lane->stream);
    if (code != CUDA_OK) return nccl_driver_fail(why, code, "copying to the device");
    r->step = 1;
    return nccl_lane_called(
        lane, nccl.send(r->stage->device, sizeof h, NCCL_U8, 1, lane->comm, lane->stream),
        "ncclSend", why);
}

static tn_status send_on(nccl_request *r, char *why) {
    const size_t bytes = size_of(r);
    nccl_lane *lane = r->lane;
    if (r->step == 0) return begin_to_send(r, why);
    if (r->step == 1 && bytes) {
        r->step = 2;
        return nccl_lane_called(
            lane, nccl.send(r->send, bytes, NCCL_U8, 1, lane->comm, lane->stream), "ncclSend", why);
    }
    nccl_remove(lane, r);
    return nccl_queue(r, why);
}

/* ---- Receiving ---------------------------------------------------------------------------------*/

/* The first that waits for a message of a tag. */
static nccl_request *find(const nccl_lane *lane, int64_t tag) {
    nccl_request *r = lane->first;
    while (r && r->x.tag != tag) r = r->next;
    return r;
}

static void refuse(nccl_request *r, uint64_t bytes) {
    r->ended = true;
    r->status = TN_E_VALUE;
    snprintf(r->why, sizeof r->why, "the message has %llu bytes, %llu are expected",
             (unsigned long long)bytes, (unsigned long long)size_of(r));
}

/* Gives a message that has come to who waits for it; its stage is the request's, or goes back. */
static tn_status deliver(nccl_lane *lane, nccl_request *r, const letter *m, char *why) {
    nccl_remove(lane, r);
    if (m->head.bytes != size_of(r)) {
        refuse(r, m->head.bytes);
    } else if (r->there && m->head.bytes) {
        CUresult code = r->ready ? nccl_driver.stream_wait(lane->stream, r->ready, 0) : CUDA_OK;
        if (code == CUDA_OK)
            code = nccl_driver.copy_within(address(r->x.out), address(m->stage->device),
                                           m->head.bytes, lane->stream);
        r->stage = m->stage;
        return code == CUDA_OK ? nccl_queue(r, why)
                               : nccl_driver_fail(why, code, "copying on the device");
    } else {
        if (m->head.bytes) memcpy(r->x.out, m->stage->host, m->head.bytes);
        r->ended = true;
    }
    nccl_stage_return(lane->home, m->stage);
    return TN_OK;
}

/* Messages that were kept and are waited for now. */
static tn_status look_at_kept(nccl_lane *lane, char *why) {
    tn_status st = TN_OK;
    letter **at = &lane->in->kept;
    while (*at && st == TN_OK) {
        letter *m = *at;
        nccl_request *r = find(lane, m->head.tag);
        if (!r) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        st = deliver(lane, r, m, why);
        free(m);
    }
    return st;
}

static tn_status take_letter(nccl_lane *lane, char *why) {
    struct nccl_mail *in = lane->in;
    const letter m = {.head = in->head, .stage = in->body};
    nccl_request *r = find(lane, m.head.tag);
    in->body = NULL;
    in->at = IDLE;
    if (r) return deliver(lane, r, &m, why);
    letter **end = &in->kept, *kept = malloc(sizeof *kept);
    if (!kept) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    while (*end) end = &(*end)->next;
    *kept = m;
    *end = kept;
    return TN_OK;
}

static tn_status read_head(nccl_lane *lane, char *why) {
    struct nccl_mail *in = lane->in;
    tn_status st = TN_OK;
    if (!in->stage) st = nccl_stage_take(lane->home, sizeof(head), &in->stage, why);
    if (st != TN_OK) return st;
    in->at = HEAD_CALLED;
    return nccl_lane_called(
        lane, nccl.recv(in->stage->device, sizeof(head), NCCL_U8, 0, lane->comm, lane->stream),
        "ncclRecv", why);
}

static tn_status read_body(nccl_lane *lane, char *why) {
    struct nccl_mail *in = lane->in;
    memcpy(&in->head, in->stage->host, sizeof in->head);
    const size_t bytes = in->head.bytes;
    if (bytes > PTRDIFF_MAX / 2) return nccl_fail(why, TN_E_IO, "a message without a head");
    nccl_request *r = find(lane, in->head.tag);
    CUresult code = CUDA_OK;
    in->at = BODY_CALLED;
    if (bytes == 0) return TN_OK;
    in->direct = r && r->there && size_of(r) == bytes ? r : NULL;
    void *place = in->direct ? in->direct->x.out : NULL;
    if (in->direct) {
        if (r->ready) code = nccl_driver.stream_wait(lane->stream, r->ready, 0);
        if (code != CUDA_OK) return nccl_driver_fail(why, code, "waiting for an event");
    } else {
        tn_status st = nccl_stage_take(lane->home, bytes, &in->body, why);
        if (st != TN_OK) return st;
        place = in->body->device;
    }
    return nccl_lane_called(lane, nccl.recv(place, bytes, NCCL_U8, 0, lane->comm, lane->stream),
                            "ncclRecv", why);
}

/* Copies what was received to the host, where it goes there, and lets the event follow. */
static tn_status await(nccl_lane *lane, const nccl_stage *stage, size_t bytes, char *why) {
    CUresult code = CUDA_OK;
    if (stage && bytes)
        code = nccl_driver.copy_out(stage->host, address(stage->device), bytes, lane->stream);
    if (code == CUDA_OK) code = nccl_driver.event_record(lane->in->event, lane->stream);
    lane->in->at++;
    return nccl_driver_fail(why, code, "receiving a message");
}

static tn_status end_body(nccl_lane *lane, char *why) {
    struct nccl_mail *in = lane->in;
    nccl_request *r = in->direct;
    if (!r) return await(lane, in->body, in->head.bytes, why);
    in->direct = NULL;
    in->at = IDLE; /* the stream keeps the order */
    nccl_remove(lane, r);
    return nccl_queue(r, why);
}

/* One step; *ret_moved = false: it has to wait. */
static tn_status read_on(nccl_lane *lane, bool *ret_moved, char *why) {
    struct nccl_mail *in = lane->in;
    const bool queued = in->at == HEAD_QUEUED || in->at == BODY_QUEUED;
    CUresult code = queued ? nccl_driver.event_query(in->event) : CUDA_OK;
    if (code != CUDA_OK && code != CUDA_NOT_READY)
        return nccl_driver_fail(why, code, "receiving a message");
    *ret_moved = code == CUDA_OK && (in->at != IDLE || lane->first);
    if (!*ret_moved) return TN_OK;
    switch (in->at) {
    case IDLE: return read_head(lane, why);
    case HEAD_CALLED: return await(lane, in->stage, sizeof(head), why);
    case HEAD_QUEUED: return read_body(lane, why);
    case BODY_CALLED: return end_body(lane, why);
    default: return take_letter(lane, why);
    }
}

/* ---- Both --------------------------------------------------------------------------------------*/

/* The lane of a message: communicators of two ranks, of which the sender is the first. */
static tn_status find_lane(nccl_group *g, int32_t peer, bool sends, nccl_lane **ret_lane,
                           char *why) {
    nccl_lane **at = &g->channels[2 * peer + (sends ? 0 : 1)];
    char name[112];
    *ret_lane = *at;
    if (*at) return TN_OK;
    snprintf(name, sizeof name, "%s-%d-%d", g->name, (int)(sends ? g->rank : peer),
             (int)(sends ? peer : g->rank));
    tn_status st = nccl_lane_new(g->home, g->folder, name, sends ? 0 : 1, 2, ret_lane, why);
    if (st != TN_OK) return st;
    *at = *ret_lane;
    (*at)->is_channel = true;
    if (sends) return TN_OK;
    (*at)->in = calloc(1, sizeof *(*at)->in);
    if (!(*at)->in) return nccl_fail(why, TN_E_MEMORY, "out of memory");
    return nccl_driver_fail(why, nccl_driver.event_create(&(*at)->in->event, CUDA_EVENT_UNTIMED),
                            "making an event");
}

tn_status nccl_message_start(nccl_request *r, char *why) {
    const bool sends = r->x.kind == TN_EXCHANGE_SEND;
    size_t bytes = 0;
    if (r->x.peer < 0 || r->x.peer >= r->group->size || r->x.peer == r->group->rank)
        return nccl_fail(why, TN_E_UNSUPPORTED, "messages are between two ranks that are named");
    if (!nccl_bytes(r->x.count, 1, nccl_width(r->x.dtype), &bytes))
        return nccl_fail(why, TN_E_VALUE, "a count that there cannot be");
    tn_status st = find_lane(r->group, r->x.peer, sends, &r->lane, why);
    if (st != TN_OK || !sends) return st;
    st = nccl_stage_take(r->group->home, HEAD + (r->there ? 0 : bytes), &r->stage, why);
    if (st != TN_OK) return st;
    r->send = r->there ? (unsigned char *)(uintptr_t)r->x.in : r->stage->device + HEAD;
    return TN_OK;
}

tn_status nccl_message_advance(nccl_lane *lane, char *why) {
    bool moved = true;
    tn_status st = lane->in ? look_at_kept(lane, why) : TN_OK;
    while (st == TN_OK && moved) {
        st = nccl_lane_free(lane, &moved, why);
        if (st != TN_OK || !moved) break;
        if (lane->in)
            st = read_on(lane, &moved, why);
        else if (lane->first)
            st = send_on(lane->first, why);
        else
            moved = false;
    }
    return st;
}

void nccl_mail_free(nccl_lane *lane) {
    struct nccl_mail *in = lane->in;
    if (!in) return;
    while (in->kept) {
        letter *m = in->kept;
        in->kept = m->next;
        nccl_stage_return(lane->home, m->stage);
        free(m);
    }
    nccl_stage_return(lane->home, in->stage);
    nccl_stage_return(lane->home, in->body);
    if (in->event) nccl_driver.event_destroy(in->event);
    free(in);
    lane->in = NULL;
}
