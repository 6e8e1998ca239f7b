/* device.c: devices, their contexts, and the six functions that core asks of every device.
 *
 * The context is the device's primary one, which NVIDIA's libraries use too. It is made current on
 * every entry, since others in the process may have changed it. */
#include "cuda_priv.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static cuda_device devices[CUDA_DEVICES];
static int32_t ndevices;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool forked; /* this process is a child of the one that initialised the driver */

/* ---- Failures ----------------------------------------------------------------------------------*/

static const char *text_of(CUresult r) {
    const char *text = NULL;
    return cuda.error_text && cuda.error_text(r, &text) == CUDA_OK && text ? text : "unknown error";
}

/* Failures of work that ran behind the host's back, and of the device itself; core adds which
 * operators that may have been. */
static bool is_late(CUresult r) {
    return (r >= 700 && r <= 720 && r != CUDA_PEER_ENABLED) || r == CUDA_ECC ||
           r == CUDA_CONTAINED || r == CUDA_UNKNOWN;
}

tn_status cuda_fail(cuda_device *d, CUresult r, const char *what) {
    if (r == CUDA_NO_MEMORY)
        return cuda_host->fail(TN_E_MEMORY, -1, "cuda:%d: %s: out of memory", d ? d->index : 0,
                               what);
    if (!d) return cuda_host->fail(TN_E_DEVICE, -1, "%s: %s (CUDA error %d)", what, text_of(r), r);
    if (is_late(r))
        return cuda_host->fail(
            TN_ASYNC, -1,
            "cuda:%d: %s (CUDA error %d), found by %s; nothing on this device can "
            "be used any more",
            d->index, text_of(r), r, what);
    return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: %s (CUDA error %d)", d->index, what,
                           text_of(r), r);
}

/* Takes what a kernel reported, which is then forgotten. */
static tn_status take_fault(cuda_device *d) {
    cuda_fault *f = d->fault;
    if (!f || !f->set) return TN_OK;
    char text[80];
    if (f->kind == CUDA_FAULT_DIVISION)
        snprintf(text, sizeof text, "ZeroDivisionError");
    else if (f->kind == CUDA_FAULT_PROBABILITY)
        snprintf(text, sizeof text, "a probability is negative, too large or no number");
    else
        snprintf(text, sizeof text, "index %lld is out of range for size %lld", (long long)f->index,
                 (long long)f->size);
    f->set = 0;
    return cuda_host->fail(TN_ASYNC, -1, "cuda:%d: '%s': %s", d->index,
                           (const char *)(uintptr_t)f->op, text);
}

tn_status cuda_fault_of(const tn_call *call, cuda_fault **ret_fault) {
    cuda_device *d = NULL;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st == TN_OK) *ret_fault = d->fault;
    return st;
}

tn_status cuda_checked(cuda_device *d, CUresult r, const char *what) {
    if (r != CUDA_OK) return cuda_fail(d, r, what);
    return take_fault(d);
}

/* ---- Waiting -----------------------------------------------------------------------------------*/

CUresult cuda_wait_stream(cuda_device *d, CUstream stream) {
    cuda_count(d, CUDA_WAITS, 1);
    return cuda.stream_sync(stream);
}

CUresult cuda_wait_device(cuda_device *d) {
    cuda_count(d, CUDA_WAITS, 1);
    return cuda.context_sync();
}

/* ---- Contexts ----------------------------------------------------------------------------------*/

/* Pinned memory has one address for both sides. */
static CUresult make_fault(cuda_device *d) {
    void *data = NULL;
    CUresult r = cuda.host_alloc(&data, sizeof *d->fault, CUDA_HOST_PORTABLE);
    if (r != CUDA_OK) return r;
    memset(data, 0, sizeof *d->fault);
    d->fault = data;
    return r;
}

static tn_status start(cuda_device *d) {
    tn_status st = TN_OK;
    pthread_mutex_lock(&start_lock);
    if (!d->context) {
        CUcontext c = NULL;
        CUresult r = cuda.context_retain(&c, d->id);
        if (r == CUDA_OK) r = cuda.context_set(c);
        if (r == CUDA_OK) r = make_fault(d);
        if (r == CUDA_OK)
            d->context = c;
        else
            st = cuda_fail(d, r, "making the context");
    }
    pthread_mutex_unlock(&start_lock);
    return st;
}

cuda_device *cuda_device_at(int32_t index) {
    return index >= 0 && index < ndevices ? &devices[index] : NULL;
}

tn_status cuda_enter(int32_t index, cuda_device **ret_device) {
    cuda_device *d = &devices[index];
    if (forked)
        return cuda_host->fail(TN_E_STATE, -1,
                               "CUDA cannot be used in a process that was forked after it was "
                               "initialised; start processes with the method 'spawn'");
    if (!d->context) {
        tn_status st = start(d);
        if (st != TN_OK) return st;
    }
    CUresult r = cuda.context_set(d->context);
    if (r != CUDA_OK) return cuda_fail(d, r, "choosing the device");
    *ret_device = d;
    return TN_OK;
}

/* In a forked child nothing is ours. */
bool cuda_reenter(int32_t index, cuda_device **ret_device) {
    cuda_device *d = &devices[index];
    if (forked || !d->context || cuda.context_set(d->context) != CUDA_OK) return false;
    *ret_device = d;
    return true;
}

/* ---- The six functions -------------------------------------------------------------------------*/

static CUdeviceptr place(const void *data, uint64_t offset) {
    return (CUdeviceptr)(uintptr_t)data + offset;
}

static tn_status dev_alloc(void *ctx, int32_t index, uint64_t bytes, void **ret_data) {
    cuda_device *d = NULL;
    CUdeviceptr data;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.memory_alloc(&data, bytes ? bytes : 1);
    if (r != CUDA_OK) {
        char what[64];
        snprintf(what, sizeof what, "allocating %llu bytes", (unsigned long long)bytes);
        return cuda_fail(d, r, what);
    }
    *ret_data = (void *)(uintptr_t)data;
    return TN_OK;
}

/* There is nobody to report to: what went wrong comes back from the next call. */
static void dev_free(void *ctx, int32_t index, void *data, uint64_t bytes) {
    cuda_device *d = NULL;
    (void)ctx, (void)bytes;
    if (data && cuda_reenter(index, &d)) cuda_memory_release(d, place(data, 0));
}

/* The source may be pinned memory, which the device would read late: wait. While a graph is recorded
 * core keeps the source for it. */
static tn_status dev_copy_in(void *ctx, int32_t index, void *dst, uint64_t offset, const void *src,
                             uint64_t bytes, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK || bytes == 0) return st;
    CUresult r = cuda.copy_in(place(dst, offset), src, bytes, stream);
    cuda_count(d, CUDA_BYTES_IN, bytes);
    if (r == CUDA_OK && !cuda_is_recording(stream)) r = cuda_wait_stream(d, stream);
    return cuda_checked(d, r, "copying to the device");
}

static tn_status dev_copy_out(void *ctx, int32_t index, void *dst, const void *src, uint64_t offset,
                              uint64_t bytes, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = bytes ? cuda.copy_out(dst, place(src, offset), bytes, stream) : CUDA_OK;
    cuda_count(d, CUDA_BYTES_OUT, bytes);
    if (r == CUDA_OK) r = cuda_wait_stream(d, stream);
    return cuda_checked(d, r, "copying from the device");
}

tn_status cuda_read(const tn_call *call, void *dst, const void *src, uint64_t bytes) {
    return dev_copy_out(NULL, call->device_index, dst, src, 0, bytes, call->stream);
}

static tn_status dev_copy_within(void *ctx, int32_t index, void *dst, uint64_t dst_offset,
                                 const void *src, uint64_t src_offset, uint64_t bytes,
                                 void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK || bytes == 0) return st;
    cuda_count(d, CUDA_BYTES_WITHIN, bytes);
    CUresult r = cuda.copy_within(place(dst, dst_offset), place(src, src_offset), bytes, stream);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "copying within the device");
}

static tn_status dev_sync(void *ctx, int32_t index) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    return cuda_checked(d, cuda_wait_device(d), "waiting for the device");
}

static const char *dev_describe(void *ctx, int32_t index) {
    (void)ctx;
    return devices[index].text;
}

static const void *dev_query(void *ctx, const char *iface) {
    (void)ctx;
    if (cuda_settings_keeps_memory()) {
        if (strcmp(iface, "tn.allocator/1") == 0) return &cuda_allocator_iface;
        if (strcmp(iface, "tn.memory/1") == 0) return &cuda_memory_iface;
    }
    if (strcmp(iface, "tn.stream/1") == 0) return &cuda_stream_iface;
    if (strcmp(iface, "tn.peer/1") == 0) return &cuda_peer_iface;
    if (strcmp(iface, "tn.pinned/1") == 0) return &cuda_pinned_iface;
    if (strcmp(iface, "tn.graph/1") == 0) return &cuda_graph_iface;
    if (strcmp(iface, "tn.profiler/1") == 0) return &cuda_profiler_iface;
    if (strcmp(iface, "tenon.cuda/1") == 0) return &cuda_settings;
    if (strcmp(iface, "tenon.cuda.kernel/1") == 0) return &cuda_kernels_of_users;
    if (strcmp(iface, "tn.codegen/1") == 0) return &cuda_codegen_iface;
    if (strcmp(iface, "tenon.cuda.runtime/1") == 0) return &cuda_runtime;
    return NULL;
}

/* ---- Registration ------------------------------------------------------------------------------*/

static CUresult look_at(cuda_device *d, int32_t index) {
    char name[100] = "";
    size_t bytes = 0;
    d->index = index;
    CUresult r = cuda.device_get(&d->id, index);
    if (r == CUDA_OK) r = cuda.device_name(name, sizeof name, d->id);
    if (r == CUDA_OK) r = cuda.device_memory(&bytes, d->id);
    if (r == CUDA_OK) r = cuda.device_attribute(&d->major, CUDA_MAJOR, d->id);
    if (r == CUDA_OK) r = cuda.device_attribute(&d->minor, CUDA_MINOR, d->id);
    if (r == CUDA_OK) r = cuda.device_attribute(&d->maps, CUDA_HAS_MAPPING, d->id);
    if (r == CUDA_OK) r = cuda.device_attribute(&d->processors, CUDA_SM_COUNT, d->id);
    if (r != CUDA_OK) return r;
    snprintf(d->text, sizeof d->text, "%s, sm_%d%d, %d multiprocessors, %.1f GiB", name, d->major,
             d->minor, d->processors, (double)bytes / (1 << 30));
    return r;
}

static void note_fork(void) { forked = true; }
static void prepare(void) {
    pthread_atfork(NULL, NULL, note_fork);
    cuda_memory_start();
}

tn_status cuda_register_device(const tn_host *host, tn_txn *txn, int count, int32_t *ret_slot) {
    const tn_device_desc desc = {
        .struct_size = sizeof desc,
        .flags = TN_DEV_ADDRESSABLE,
        .name = "cuda",
        .dl_device = 2,
        .count = count,
        .alloc = dev_alloc,
        .free = dev_free,
        .copy_in = dev_copy_in,
        .copy_out = dev_copy_out,
        .copy_within = dev_copy_within,
        .sync = dev_sync,
        .describe = dev_describe,
        .query = dev_query,
    };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    ndevices = count;
    for (int32_t i = 0; i < count; i++) {
        CUresult r = look_at(&devices[i], i);
        if (r != CUDA_OK) return cuda_fail(&devices[i], r, "reading the device's properties");
    }
    return host->register_device(txn, &desc, ret_slot);
}
