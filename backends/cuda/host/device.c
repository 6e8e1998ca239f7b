/* device.c: devices, their contexts, and what kernels found wrong in their input.
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

/* Takes what a kernel reported, which is then forgotten. */
static tn_status take_fault(cuda_device *d) {
    cuda_fault *f = d->fault;
    if (!f || !f->set) return TN_OK;
    char text[80];
    if (f->kind == CUDA_FAULT_DIVISION)
        snprintf(text, sizeof text, "ZeroDivisionError");
    else if (f->kind == CUDA_FAULT_PROBABILITY)
        snprintf(text, sizeof text, "a probability or rate is negative, too large or no number");
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

/* ---- Reading back ------------------------------------------------------------------------------*/

tn_status cuda_copy_out(int32_t index, void *dst, CUdeviceptr src, uint64_t bytes, void *stream) {
    cuda_device *d = NULL;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = bytes ? cuda.copy_out(dst, src, bytes, stream) : CUDA_OK;
    cuda_count(d, CUDA_BYTES_OUT, bytes);
    if (r == CUDA_OK) r = cuda_wait_stream(d, stream);
    return cuda_checked(d, r, "copying from the device");
}

tn_status cuda_read(const tn_call *call, void *dst, const void *src, uint64_t bytes) {
    return cuda_copy_out(call->device_index, dst, (CUdeviceptr)(uintptr_t)src, bytes, call->stream);
}

/* ---- Finding devices ---------------------------------------------------------------------------*/

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
static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

tn_status cuda_find_devices(int32_t count) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    ndevices = count;
    for (int32_t i = 0; i < count; i++) {
        CUresult r = look_at(&devices[i], i);
        if (r != CUDA_OK) return cuda_fail(&devices[i], r, "reading the device's properties");
    }
    return TN_OK;
}
