/* plugin.c: the entry of the CUDA plugin: opens the driver, registers the devices with the six functions
 * that core asks of every device, and the kernels. */
#define TN_ABI_TARGET 0 /* an older core does not ask for what came later */

#include "tables.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cuda_rows_list.h"

#define DECLARE(rows, set) extern const cuda_rows rows;
#define FAMILY(rows, set) {#rows, KERNEL_SET_##set, &rows},
CUDA_ROWS_LIST(DECLARE)
const kernel_family kernel_families[] = {CUDA_ROWS_LIST(FAMILY){NULL, 0, NULL}};

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
    (void)ctx;
    return cuda_copy_out(index, dst, place(src, offset), bytes, stream);
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
    return cuda_device_at(index)->text;
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

/* ---- Activation --------------------------------------------------------------------------------*/

static tn_status register_device(const tn_host *host, tn_txn *txn, int32_t count,
                                 int32_t *ret_slot) {
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
    return host->register_device(txn, &desc, ret_slot);
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int count;
    int32_t slot;
    cuda_read_settings();
    pthread_once(&once, cuda_memory_start);
    tn_status st = cuda_open_driver(&count);
    if (st == TN_OK) st = cuda_find_devices(count);
    if (st == TN_OK) st = register_device(host, txn, count, &slot);
    if (st == TN_OK) st = kernel_families_register(host, txn, slot, KERNEL_SET_ANY);
    return st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    cuda_host = host;
    return tn_plugin_fill(ret_plugin, "tenon-cuda", CUDA_PLUGIN_VERSION, "NVIDIA GPUs", activate);
}
