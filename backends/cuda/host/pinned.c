/* pinned.c: the named interface "tn.pinned/1": host memory that devices reach by themselves. The driver
 * takes its time for it, and waits for the devices when it gets it back, so that freed memory is kept
 * and serves the next of its size. Core frees it when no copy uses it any more. */
#include "cuda_priv.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct kept {
    struct kept *next;
    void *data;
} kept;

enum { LEAST = 12, CLASSES = 64 }; /* sizes are powers of two, from a page on */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept *by_size[CLASSES];

/* The power of two that holds so many bytes; 0: more than there can be. */
static int class_of(uint64_t bytes) {
    int class = LEAST;
    while (class < CLASSES - 1 && UINT64_C(1) << class < bytes) class ++;
    return class < CLASSES - 1 ? class : 0;
}

static void *take(int class) {
    pthread_mutex_lock(&lock);
    kept *k = by_size[class];
    if (k) by_size[class] = k->next;
    pthread_mutex_unlock(&lock);
    void *data = k ? k->data : NULL;
    free(k);
    return data;
}

static bool keep(int class, void *data) {
    kept *k = cuda_settings_keeps_memory() ? malloc(sizeof *k) : NULL;
    if (!k) return false;
    pthread_mutex_lock(&lock);
    *k = (kept){by_size[class], data};
    by_size[class] = k;
    pthread_mutex_unlock(&lock);
    return true;
}

void cuda_pinned_give_back(void) {
    for (int class = LEAST; class < CLASSES; class ++)
        for (void *data = take(class); data; data = take(class)) cuda.host_free(data);
}

static tn_status pinned_alloc(void *ctx, uint64_t bytes, void **ret_data) {
    cuda_device *d = NULL;
    int class = class_of(bytes);
    (void)ctx;
    tn_status st = cuda_enter(0, &d);
    if (st != TN_OK) return st;
    *ret_data = take(class);
    if (*ret_data) return TN_OK;
    size_t size = (size_t)1 << class;
    CUresult r = class ? cuda.host_alloc(ret_data, size, CUDA_HOST_PORTABLE) : CUDA_NO_MEMORY;
    if (r == CUDA_NO_MEMORY && class) {
        cuda_pinned_give_back();
        r = cuda.host_alloc(ret_data, size, CUDA_HOST_PORTABLE);
    }
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "allocating pinned memory");
}

static void pinned_free(void *ctx, void *data, uint64_t bytes) {
    cuda_device *d = NULL;
    (void)ctx;
    if (data && cuda_reenter(0, &d) && !keep(class_of(bytes), data)) cuda.host_free(data);
}

static tn_status pinned_copy_in(void *ctx, int32_t index, void *dst, uint64_t dst_offset,
                                const void *src, uint64_t bytes, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK || bytes == 0) return st;
    cuda_count(d, CUDA_BYTES_IN, bytes);
    CUresult r = cuda.copy_in((CUdeviceptr)(uintptr_t)dst + dst_offset, src, bytes, stream);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "copying to the device");
}

static tn_status pinned_copy_out(void *ctx, int32_t index, void *dst, const void *src,
                                 uint64_t src_offset, uint64_t bytes, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK || bytes == 0) return st;
    cuda_count(d, CUDA_BYTES_OUT, bytes);
    CUresult r = cuda.copy_out(dst, (CUdeviceptr)(uintptr_t)src + src_offset, bytes, stream);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "copying from the device");
}

const tn_pinned_iface cuda_pinned_iface = {
    .struct_size = sizeof cuda_pinned_iface,
    .alloc = pinned_alloc,
    .free = pinned_free,
    .copy_in = pinned_copy_in,
    .copy_out = pinned_copy_out,
};
