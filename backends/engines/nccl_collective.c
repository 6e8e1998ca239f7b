/* nccl_collective.c: exchanges of all ranks. Those of host memory go through a stage, on the device, of
 * which the part at `sent_at` is copied in and that at `got_at` back. NCCL knows no bits: AND, OR and XOR
 * gather, and are computed on the host. */
#include <string.h>

#include "nccl_priv.h"

size_t nccl_width(int32_t dtype) {
    switch (dtype) {
    case TN_F16:
    case TN_BF16: return 2;
    case TN_I32:
    case TN_F32: return 4;
    case TN_I64:
    case TN_F64: return 8;
    default: return 1;
    }
}

bool nccl_type(int32_t dtype, ncclDataType_t *ret_type) {
    switch (dtype) {
    case TN_U8: *ret_type = NCCL_U8; return true;
    case TN_I8: *ret_type = NCCL_I8; return true;
    case TN_I32: *ret_type = NCCL_I32; return true;
    case TN_I64: *ret_type = NCCL_I64; return true;
    case TN_F16: *ret_type = NCCL_F16; return true;
    case TN_BF16: *ret_type = NCCL_BF16; return true;
    case TN_F32: *ret_type = NCCL_F32; return true;
    case TN_F64: *ret_type = NCCL_F64; return true;
    default: return false;
    }
}

bool nccl_op(uint32_t op, ncclRedOp_t *ret_op) {
    static const ncclRedOp_t ops[] = {NCCL_SUM, NCCL_PRODUCT, NCCL_MIN, NCCL_MAX};
    *ret_op = op < sizeof ops / sizeof *ops ? ops[op] : NCCL_SUM;
    return op < sizeof ops / sizeof *ops;
}

static bool reduces(const tn_exchange *x) {
    return x->kind == TN_EXCHANGE_ALL_REDUCE || x->kind == TN_EXCHANGE_REDUCE ||
           x->kind == TN_EXCHANGE_REDUCE_SCATTER;
}

static bool has_bits(const tn_exchange *x) { return reduces(x) && x->op >= TN_EXCHANGE_BAND; }

static bool sum_of(const int64_t *counts, int32_t n, int64_t *ret_sum) {
    *ret_sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (counts[i] < 0 || __builtin_add_overflow(*ret_sum, counts[i], ret_sum)) return false;
    return true;
}

/* The bytes that this rank gives and takes; of exchanges in place, it takes what it gives. */
static bool measure(const nccl_request *r, size_t *ret_in, size_t *ret_out) {
    const tn_exchange *x = &r->x;
    const size_t width = nccl_width(x->dtype);
    const int64_t n = r->group->size;
    int64_t in = 1, out = 1;
    switch (x->kind) {
    case TN_EXCHANGE_ALL_GATHER: out = n; break;
    case TN_EXCHANGE_REDUCE_SCATTER: in = n; break;
    case TN_EXCHANGE_ALL_TO_ALL:
        return sum_of(x->in_counts, r->group->size, &in) &&
               sum_of(x->out_counts, r->group->size, &out) && nccl_bytes(in, 1, width, ret_in) &&
               nccl_bytes(out, 1, width, ret_out);
    default: break;
    }
    return nccl_bytes(in, x->count, width, ret_in) && nccl_bytes(out, x->count, width, ret_out);
}

/* ---- Where it lies -----------------------------------------------------------------------------*/

enum { ALIGNMENT = 256 };

static bool in_place(const tn_exchange *x) {
    return x->kind == TN_EXCHANGE_BROADCAST || x->kind == TN_EXCHANGE_ALL_REDUCE ||
           x->kind == TN_EXCHANGE_REDUCE;
}

static tn_status place_on_stage(nccl_request *r, size_t in, size_t out, char *why) {
    const tn_exchange *x = &r->x;
    const bool mine = x->peer == r->group->rank;
    size_t second = 0, room = out;
    if (has_bits(x) && !nccl_bytes((int64_t)in, r->group->size, 1, &out))
        return nccl_fail(why, TN_E_MEMORY, "more bytes than there can be");
    if (!in_place(x) || has_bits(x)) second = (in + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (__builtin_add_overflow(second, out, &room))
        return nccl_fail(why, TN_E_MEMORY, "more bytes than there can be");
    tn_status st = nccl_stage_take(r->group->home, room, &r->stage, why);
    if (st != TN_OK) return st;
    r->sent = x->kind == TN_EXCHANGE_BROADCAST && !mine ? 0 : in;
    r->got_at = second;
    r->got = x->kind == TN_EXCHANGE_REDUCE && !mine ? 0 : out;
    r->send = r->stage->device;
    r->recv = r->stage->device + second;
    return TN_OK;
}

tn_status nccl_collective_place(nccl_request *r, char *why) {
    size_t in = 0, out = 0;
    const bool moves = r->x.kind != TN_EXCHANGE_BARRIER;
    if (!moves) r->x.dtype = TN_I32;
    if (!moves) r->x.count = 1;
    if (!measure(r, &in, &out)) return nccl_fail(why, TN_E_VALUE, "a count that there cannot be");
    if (r->there) {
        r->send = (unsigned char *)(in_place(&r->x) ? r->x.out : (void *)(uintptr_t)r->x.in);
        r->recv = r->x.out;
        return TN_OK;
    }
    tn_status st = place_on_stage(r, in, out, why);
    if (moves || st != TN_OK) return st;
    memset(r->stage->host, 0, in); /* a barrier is a sum that nobody looks at */
    r->got = 0;
    return TN_OK;
}

/* ---- NCCL's calls ------------------------------------------------------------------------------*/

static ncclResult_t call_all_to_all(const nccl_request *r, ncclDataType_t type) {
    const size_t width = nccl_width(r->x.dtype);
    const unsigned char *send = r->send;
    unsigned char *recv = r->recv;
    ncclResult_t code = nccl.group_start(), ended;
    for (int32_t i = 0; i < r->group->size && code == NCCL_OK; i++) {
        const size_t in = (size_t)r->x.in_counts[i], out = (size_t)r->x.out_counts[i];
        if (in) code = nccl.send(send, in, type, i, r->lane->comm, r->lane->stream);
        if (out && (code == NCCL_OK || code == NCCL_IN_PROGRESS))
            code = nccl.recv(recv, out, type, i, r->lane->comm, r->lane->stream);
        if (code == NCCL_IN_PROGRESS) code = NCCL_OK;
        send += in * width;
        recv += out * width;
    }
    ended = nccl.group_end();
    return code == NCCL_OK ? ended : code;
}

static ncclResult_t call(const nccl_request *r) {
    const tn_exchange *x = &r->x;
    const ncclComm_t comm = r->lane->comm;
    const size_t n = (size_t)x->count;
    ncclDataType_t type = NCCL_U8;
    ncclRedOp_t op = NCCL_SUM;
    CUstream stream = r->lane->stream;
    (void)nccl_type(x->dtype, &type); /* as is the operation, it was looked at */
    (void)nccl_op(x->op, &op);
    if (has_bits(x)) {
        const bool parts = x->kind == TN_EXCHANGE_REDUCE_SCATTER;
        const size_t all = parts ? n * (size_t)r->group->size : n;
        return nccl.all_gather(r->send, r->recv, all, type, comm, stream);
    }
    switch (x->kind) {
    case TN_EXCHANGE_BROADCAST:
        return nccl.broadcast(r->send, r->recv, n, type, x->peer, comm, stream);
    case TN_EXCHANGE_REDUCE:
        return nccl.reduce(r->send, r->recv, n, type, op, x->peer, comm, stream);
    case TN_EXCHANGE_ALL_GATHER: return nccl.all_gather(r->send, r->recv, n, type, comm, stream);
    case TN_EXCHANGE_REDUCE_SCATTER:
        return nccl.reduce_scatter(r->send, r->recv, n, type, op, comm, stream);
    case TN_EXCHANGE_ALL_TO_ALL: return call_all_to_all(r, type);
    default: return nccl.all_reduce(r->send, r->recv, n, type, op, comm, stream);
    }
}

static tn_status begin(nccl_request *r, char *why) {
    CUresult code = CUDA_OK;
    if (r->ready) code = nccl_driver.stream_wait(r->lane->stream, r->ready, 0);
    if (r->sent && r->x.kind != TN_EXCHANGE_BARRIER)
        memcpy(r->stage->host, in_place(&r->x) ? r->x.out : r->x.in, r->sent);
    if (r->sent && code == CUDA_OK)
        code = nccl_driver.copy_in((CUdeviceptr)(uintptr_t)r->send, r->stage->host, r->sent,
                                   r->lane->stream);
    if (code != CUDA_OK) return nccl_driver_fail(why, code, "copying to the device");
    r->step = 1;
    return nccl_lane_called(r->lane, call(r), "NCCL", why);
}

static tn_status end(nccl_request *r, char *why) {
    CUresult code = CUDA_OK;
    if (r->got)
        code = nccl_driver.copy_out(r->stage->host + r->got_at, (CUdeviceptr)(uintptr_t)r->recv,
                                    r->got, r->lane->stream);
    if (code != CUDA_OK) return nccl_driver_fail(why, code, "copying from the device");
    nccl_remove(r->lane, r);
    return nccl_queue(r, why);
}

tn_status nccl_collective_advance(nccl_lane *lane, char *why) {
    bool is_free = true;
    tn_status st = TN_OK;
    while (st == TN_OK && lane->first && is_free) {
        st = nccl_lane_free(lane, &is_free, why);
        if (st == TN_OK && is_free) st = (lane->first->step == 0 ? begin : end)(lane->first, why);
    }
    /* What fails meanwhile is heard by whoever asks for what runs. */
    return st == TN_OK && !lane->first ? nccl_lane_free(lane, &is_free, why) : st;
}

/* ---- Results -----------------------------------------------------------------------------------*/

static void combine(uint32_t op, unsigned char *into, const unsigned char *from, size_t n) {
    switch (op) {
    case TN_EXCHANGE_BAND:
        for (size_t i = 0; i < n; i++) into[i] &= from[i];
        break;
    case TN_EXCHANGE_BOR:
        for (size_t i = 0; i < n; i++) into[i] |= from[i];
        break;
    default:
        for (size_t i = 0; i < n; i++) into[i] ^= from[i];
    }
}

void nccl_collective_end(nccl_request *r) {
    if (!r->got) return;
    const unsigned char *got = r->stage->host + r->got_at;
    size_t n = r->got;
    if (has_bits(&r->x)) {
        const size_t whole = n / (size_t)r->group->size;
        n = (size_t)r->x.count * nccl_width(r->x.dtype);
        if (r->x.kind == TN_EXCHANGE_REDUCE_SCATTER) got += n * (size_t)r->group->rank;
        memcpy(r->x.out, got, n);
        for (int32_t i = 1; i < r->group->size; i++)
            combine(r->x.op, r->x.out, got + (size_t)i * whole, n);
    } else {
        memcpy(r->x.out, got, n);
    }
}
