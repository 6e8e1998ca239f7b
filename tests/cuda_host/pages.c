/* pages.c: the driver's entry points for ranges of addresses and the memory that is mapped there. */
#include "../../backends/cuda/host/driver.h"

#include <pthread.h>
#include <stdlib.h>

#include "memory.h"

typedef struct page {
    size_t bytes;
    int device;
    bool held, mapped;
    uintptr_t at;
    struct page *next; /* of those that are mapped */
} page;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static page *mapped;

CUresult cuCtxSynchronize(void);

static page *page_of(CUmemGenericAllocationHandle handle) { return (page *)(uintptr_t)handle; }

CUresult cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags which) {
    (void)which;
    if (prop->location.type != CUDA_ON_DEVICE) return CUDA_BAD_VALUE;
    *ret_bytes = HOST_PAGE;
    return CUDA_OK;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret_data, size_t bytes, size_t alignment,
                             CUdeviceptr wish, unsigned long long flags) {
    uintptr_t data;
    (void)alignment, (void)wish, (void)flags;
    if (bytes == 0 || bytes % HOST_PAGE) return CUDA_BAD_VALUE;
    if (!memory_reserve(bytes, &data)) return CUDA_NO_MEMORY;
    *ret_data = data;
    return CUDA_OK;
}

CUresult cuMemAddressFree(CUdeviceptr data, size_t bytes) {
    memory_unreserve((uintptr_t)data, bytes);
    return CUDA_OK;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_page, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    (void)flags;
    if (bytes == 0 || bytes % HOST_PAGE || prop->type != CUDA_PINNED_THERE) return CUDA_BAD_VALUE;
    if (!memory_claim(prop->location.id, bytes)) return CUDA_NO_MEMORY;
    page *p = calloc(1, sizeof *p);
    if (!p) return CUDA_NO_MEMORY;
    *p = (page){.bytes = bytes, .device = prop->location.id, .held = true};
    *ret_page = (uintptr_t)p;
    return CUDA_OK;
}

/* Lock held. A page lives while somebody holds its handle or it is mapped. */
static void drop(page *p) {
    if (p->held || p->mapped) return;
    memory_disclaim(p->device, p->bytes);
    free(p);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    page *p = page_of(handle);
    pthread_mutex_lock(&lock);
    p->held = false;
    drop(p);
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

CUresult cuMemMap(CUdeviceptr data, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    page *p = page_of(handle);
    (void)flags;
    if (offset || bytes != p->bytes || data % HOST_PAGE || p->mapped) return CUDA_BAD_VALUE;
    pthread_mutex_lock(&lock);
    p->mapped = true;
    p->at = (uintptr_t)data;
    p->next = mapped;
    mapped = p;
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

/* Waits for the device, like every call that takes memory away. */
CUresult cuMemUnmap(CUdeviceptr data, size_t bytes) {
    CUresult r = cuCtxSynchronize();
    if (r != CUDA_OK) return r;
    if (!memory_close((uintptr_t)data, bytes)) return CUDA_BAD_VALUE;
    pthread_mutex_lock(&lock);
    for (page **at = &mapped; *at;) {
        page *p = *at;
        if (p->at < data || p->at >= data + bytes) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->mapped = false;
        drop(p);
    }
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

CUresult cuMemSetAccess(CUdeviceptr data, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    if (n != 1 || access->flags != CUDA_READ_WRITE) return CUDA_BAD_VALUE;
    return memory_open(access->location.id, (uintptr_t)data, bytes) ? CUDA_OK : CUDA_NO_MEMORY;
}
