/* stream.c: the named interfaces "tn.stream/1" and "tn.peer/1". Streams and events are the driver's own
 * handles; a NULL stream is the context's default one. */
#include "cuda_priv.h"

static tn_status finish(cuda_device *d, CUresult r, const char *what) {
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, what);
}

/* ---- Streams -----------------------------------------------------------------------------------*/

static tn_status stream_create(void *ctx, int32_t index, int32_t priority, void **ret_stream) {
    cuda_device *d = NULL;
    CUstream stream = NULL;
    int least = 0, greatest = 0;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.stream_priorities(&least, &greatest);
    int wanted = priority < greatest ? greatest : priority > least ? least : priority;
    if (r == CUDA_OK) r = cuda.stream_create(&stream, CUDA_STREAM_APART, wanted);
    if (r == CUDA_OK) *ret_stream = stream;
    return finish(d, r, "making a stream");
}

void cuda_stream_end(cuda_device *d, CUstream stream) {
    cuda_wait_stream(d, stream);
    cuda.stream_destroy(stream);
    cuda_memory_forget(d, stream);
}

static void stream_destroy(void *ctx, int32_t index, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    if (cuda_enter(index, &d) == TN_OK && !cuda_graph_keeps(stream)) cuda_stream_end(d, stream);
}

static tn_status stream_sync(void *ctx, int32_t index, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    return cuda_checked(d, cuda_wait_stream(d, stream), "waiting for a stream");
}

/* "Not yet" is no failure. */
static tn_status answer(cuda_device *d, CUresult r, const char *what, int32_t *ret_done) {
    *ret_done = r == CUDA_OK;
    return r == CUDA_NOT_READY ? TN_OK : finish(d, r, what);
}

static tn_status stream_done(void *ctx, int32_t index, void *stream, int32_t *ret_done) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    return st == TN_OK ? answer(d, cuda.stream_query(stream), "asking a stream", ret_done) : st;
}

static tn_status wait_event(void *ctx, int32_t index, void *stream, void *event) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    return st == TN_OK ? finish(d, cuda.stream_wait(stream, event, 0), "waiting for an event") : st;
}

/* ---- Events ------------------------------------------------------------------------------------*/

static tn_status event_create(void *ctx, int32_t index, uint32_t flags, void **ret_event) {
    cuda_device *d = NULL;
    CUevent event = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.event_create(&event, flags & TN_EVENT_TIMING ? 0 : CUDA_EVENT_UNTIMED);
    if (r == CUDA_OK) *ret_event = event;
    return finish(d, r, "making an event");
}

static void event_destroy(void *ctx, int32_t index, void *event) {
    cuda_device *d = NULL;
    (void)ctx;
    if (cuda_enter(index, &d) == TN_OK) cuda.event_destroy(event);
}

static tn_status event_record(void *ctx, int32_t index, void *event, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    return st == TN_OK ? finish(d, cuda.event_record(event, stream), "recording an event") : st;
}

static tn_status event_sync(void *ctx, int32_t index, void *event) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    cuda_count(d, CUDA_WAITS, 1);
    return cuda_checked(d, cuda.event_sync(event), "waiting for an event");
}

static tn_status event_done(void *ctx, int32_t index, void *event, int32_t *ret_done) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    return st == TN_OK ? answer(d, cuda.event_query(event), "asking an event", ret_done) : st;
}

static tn_status event_elapsed(void *ctx, int32_t index, void *start, void *end, double *ret_ms) {
    cuda_device *d = NULL;
    float ms = 0;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.event_elapsed(&ms, start, end);
    if (r == CUDA_BAD_HANDLE || r == CUDA_NOT_READY)
        return cuda_host->fail(TN_E_STATE, -1,
                               "elapsed_time: both events must be made with enable_timing=True and "
                               "have been reached");
    *ret_ms = (double)ms;
    return finish(d, r, "measuring between events");
}

const tn_stream_iface cuda_stream_iface = {
    .struct_size = sizeof cuda_stream_iface,
    .create = stream_create,
    .destroy = stream_destroy,
    .sync = stream_sync,
    .done = stream_done,
    .wait_event = wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_sync = event_sync,
    .event_done = event_done,
    .event_elapsed = event_elapsed,
};

/* ---- Copies between devices --------------------------------------------------------------------*/

/* What is queued on the second stream later comes after what is queued on the first now. */
static tn_status let_wait(int32_t first, void *first_stream, int32_t then, void *then_stream) {
    void *event = NULL;
    tn_status st = event_create(NULL, first, 0, &event);
    if (st != TN_OK) return st;
    st = event_record(NULL, first, event, first_stream);
    if (st == TN_OK) st = wait_event(NULL, then, then_stream, event);
    event_destroy(NULL, first, event);
    return st;
}

static tn_status peer_copy(void *ctx, int32_t dst_device, void *dst, uint64_t dst_offset,
                           void *dst_stream, int32_t src_device, const void *src,
                           uint64_t src_offset, void *src_stream, uint64_t bytes) {
    cuda_device *to = NULL, *from = NULL;
    (void)ctx;
    tn_status st = cuda_enter(dst_device, &to);
    if (st == TN_OK) st = cuda_enter(src_device, &from);
    if (st == TN_OK) st = let_wait(dst_device, dst_stream, src_device, src_stream);
    if (st != TN_OK) return st;
    cuda_count(from, CUDA_BYTES_OUT, bytes);
    cuda_count(to, CUDA_BYTES_IN, bytes);
    CUresult r = cuda.context_set(from->context);
    if (r == CUDA_OK)
        r = cuda.copy_peer((CUdeviceptr)(uintptr_t)dst + dst_offset, to->context,
                           (CUdeviceptr)(uintptr_t)src + src_offset, from->context, bytes,
                           src_stream);
    if (r != CUDA_OK) return cuda_fail(from, r, "copying between devices");
    return let_wait(src_device, src_stream, dst_device, dst_stream);
}

const tn_peer_iface cuda_peer_iface = {
    .struct_size = sizeof cuda_peer_iface,
    .copy = peer_copy,
};
