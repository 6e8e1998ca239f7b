/* driver.c: the rest of the driver's entry points that the plugin calls: devices, copies,
 * launches. What is missing here is missing when the plugin looks for it, which it reports. */
#include "../../backends/cuda/host/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "memory.h"
#include "module.h"
#include "queue.h"

enum { ARGS_MOST = 4096 }; /* bytes that a launch may pass */

/* ---- Devices -----------------------------------------------------------------------------------*/

/* How many of them the driver finds. */
static int count_devices(void) {
    const char *text = getenv("TENON_CUDA_HOST_DEVICES");
    int n = text ? atoi(text) : HOST_DEVICES;
    return n >= 0 && n < HOST_DEVICES ? n : HOST_DEVICES;
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    return count_devices() == 0 ? CUDA_NO_DEVICE : CUDA_OK;
}

CUresult cuDriverGetVersion(int *ret_version) {
    const char *text = getenv("TENON_CUDA_HOST_VERSION");
    *ret_version = text ? atoi(text) : 13000;
    return CUDA_OK;
}

CUresult cuGetErrorString(CUresult code, const char **ret_text) {
    switch ((int)code) {
    case CUDA_NO_MEMORY: *ret_text = "out of memory"; break;
    case CUDA_NO_DEVICE: *ret_text = "no CUDA-capable device is detected"; break;
    case CUDA_ILLEGAL_ADDRESS: *ret_text = "an illegal memory access was encountered"; break;
    case CUDA_UNKNOWN: *ret_text = "unknown error"; break;
    case CUDA_NOT_CAPTURED: *ret_text = "operation not permitted when stream is capturing"; break;
    case CUDA_NOT_FOUND: *ret_text = "named symbol not found"; break;
    case CUDA_BAD_VALUE: *ret_text = "invalid argument"; break;
    default: *ret_text = "an error of the host harness"; break;
    }
    return CUDA_OK;
}

CUresult cuDeviceGetCount(int *ret_count) {
    *ret_count = count_devices();
    return CUDA_OK;
}

CUresult cuDeviceGet(CUdevice *ret_device, int index) {
    *ret_device = index;
    return index < count_devices() ? CUDA_OK : CUDA_BAD_VALUE;
}

CUresult cuDeviceGetName(char *ret_name, int room, CUdevice device) {
    (void)device;
    snprintf(ret_name, (size_t)room, "Tenon CUDA host harness (no GPU)");
    return CUDA_OK;
}

CUresult cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice device) {
    size_t left;
    memory_info(device, &left, ret_bytes);
    return CUDA_OK;
}

CUresult cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    static const struct {
        int attribute, value;
    } values[] = {
        {CUDA_BLOCK_THREADS, HOST_THREADS},
        {CUDA_BLOCK_SHARED, 49152},
        {CUDA_BLOCK_SHARED_MOST, 49152},
        {CUDA_SM_SHARED, 65536},
        {CUDA_WARP, 32},
        {CUDA_CLOCK, 1000000},
        {CUDA_SM_COUNT, 4},
        {CUDA_INTEGRATED, 0},
        {CUDA_PCI_BUS, 1},
        {CUDA_PCI_DEVICE, 0},
        {CUDA_PCI_DOMAIN, 0},
        {CUDA_MEMORY_CLOCK, 1000000},
        {CUDA_MEMORY_BITS, 256},
        {CUDA_L2_BYTES, 1 << 20},
        {CUDA_SM_THREADS, 2048},
        {CUDA_SM_REGISTERS, 65536},
        {CUDA_MAJOR, 9},
        {CUDA_MINOR, 0},
        {CUDA_MANY_ON_BOARD, 0},
        {CUDA_HAS_MAPPING, 1},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (values[i].attribute != (int)attribute) continue;
        *ret_value = values[i].value;
        return CUDA_OK;
    }
    return CUDA_BAD_VALUE;
}

CUresult cuDeviceCanAccessPeer(int *ret_can, CUdevice device, CUdevice peer) {
    *ret_can = device != peer;
    return CUDA_OK;
}

/* ---- Copies ------------------------------------------------------------------------------------*/

CUresult cuMemHostAlloc(void **ret_data, size_t bytes, unsigned flags) {
    (void)flags;
    uintptr_t data = 0;
    if (!memory_alloc(HOST_PINNED, bytes, &data)) return CUDA_NO_MEMORY;
    *ret_data = (void *)data;
    return CUDA_OK;
}

CUresult cuMemFreeHost(void *data) {
    return memory_free((uintptr_t)data) ? CUDA_OK : CUDA_BAD_VALUE;
}

typedef struct copy {
    void *dst;
    const void *src;
    size_t bytes;
    bool in, out;
} copy;

static bool run_copy(void *payload, char *problem) {
    const copy *c = payload;
    if (!c->out && !queue_reach("a copy's destination", (uintptr_t)c->dst, c->bytes, problem))
        return false;
    if (!c->in && !queue_reach("a copy's source", (uintptr_t)c->src, c->bytes, problem))
        return false;
    memcpy(c->dst, c->src, c->bytes);
    return true;
}

/* The source may change once the call returns only when it is pageable memory, which cannot be told
 * from other memory here: copies to the device read it late, so that whoever relies on less is found
 * out. */
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream) {
    copy c = {(void *)(uintptr_t)dst, src, bytes, true, false};
    return queue_submit(stream, run_copy, &c, sizeof c);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    copy c = {dst, (void *)(uintptr_t)src, bytes, false, true};
    return queue_submit(stream, run_copy, &c, sizeof c);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    copy c = {(void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes, false, false};
    return queue_submit(stream, run_copy, &c, sizeof c);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from,
                           size_t bytes, CUstream stream) {
    (void)to, (void)from;
    return cuMemcpyDtoDAsync_v2(dst, src, bytes, stream);
}

/* ---- Profilers ---------------------------------------------------------------------------------*/

/* For tests: how often a recording was started, and how often one was ended. */
unsigned cuda_host_recordings[2];

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

CUresult cuProfilerStart(void) {
    cuda_host_recordings[0]++;
    return CUDA_OK;
}

CUresult cuProfilerStop(void) {
    cuda_host_recordings[1]++;
    return CUDA_OK;
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

typedef struct launch {
    host_launch l;
    _Alignas(16) unsigned char args[ARGS_MOST];
} launch;

static bool run_launch(void *payload, char *problem) {
    launch *w = payload;
    w->l.args = w->args;
    return grid_run(&w->l, problem);
}

/* TENON_CUDA_HOST_LOST=n: the nth launch finds that its device is lost. */
static bool is_lost_at(unsigned count) {
    const char *text = getenv("TENON_CUDA_HOST_LOST");
    return text && count == (unsigned)atoi(text);
}

CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **params, void **extra) {
    static unsigned count;
    launch w = {.l = {.name = f->name,
                      .entry = f->entry,
                      .args_bytes = f->bytes,
                      .grid = {grid_x, grid_y, grid_z},
                      .block = {block_x, block_y, block_z},
                      .shared = shared,
                      .image = f->image,
                      .image_bytes = f->image_bytes}};
    if (f->bytes > ARGS_MOST || shared > f->shared_most || extra || !grid_x || !grid_y || !grid_z ||
        grid_y > 65535 || grid_z > 65535 || grid_x > 0x7fffffffu || !block_x || !block_y ||
        !block_z || (unsigned long long)block_x * block_y * block_z > HOST_THREADS)
        return CUDA_BAD_VALUE;
    unsigned before = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    w.l.backwards = before % 2;
    if (is_lost_at(before + 1)) queue_lose(stream);
    for (size_t i = 0; i < f->nparams; i++)
        memcpy(w.args + f->param[i].at, params[i], f->param[i].bytes);
    return queue_submit(stream, run_launch, &w, offsetof(launch, args) + f->bytes);
}
