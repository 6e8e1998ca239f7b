/* runtime.c: the named interface "tenon.cuda.runtime/1": what the Python package asks of devices. */
#include "tables.h"

#include <string.h>

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof((list)[0])))

/* By the names that PyTorch gives them. */
static const struct {
    const char *name;
    CUdevice_attribute attribute;
} properties[] = {
    {"major", CUDA_MAJOR},
    {"minor", CUDA_MINOR},
    {"multi_processor_count", CUDA_SM_COUNT},
    {"warp_size", CUDA_WARP},
    {"max_threads_per_block", CUDA_BLOCK_THREADS},
    {"max_threads_per_multi_processor", CUDA_SM_THREADS},
    {"regs_per_multiprocessor", CUDA_SM_REGISTERS},
    {"shared_memory_per_block", CUDA_BLOCK_SHARED},
    {"shared_memory_per_block_optin", CUDA_BLOCK_SHARED_MOST},
    {"shared_memory_per_multiprocessor", CUDA_SM_SHARED},
    {"L2_cache_size", CUDA_L2_BYTES},
    {"clock_rate", CUDA_CLOCK},
    {"memory_clock_rate", CUDA_MEMORY_CLOCK},
    {"memory_bus_width", CUDA_MEMORY_BITS},
    {"is_integrated", CUDA_INTEGRATED},
    {"is_multi_gpu_board", CUDA_MANY_ON_BOARD},
    {"pci_bus_id", CUDA_PCI_BUS},
    {"pci_device_id", CUDA_PCI_DEVICE},
    {"pci_domain_id", CUDA_PCI_DOMAIN},
};

static tn_status check(int32_t index, cuda_device **ret_device) {
    *ret_device = cuda_device_at(index);
    if (*ret_device) return TN_OK;
    return cuda_host->fail(TN_E_DEVICE, -1, "device 'cuda' has no index %d", index);
}

static tn_status property(int32_t index, const char *name, int64_t *ret_value) {
    cuda_device *d;
    size_t bytes = 0;
    int value = 0;
    tn_status st = check(index, &d);
    if (st != TN_OK) return st;
    if (strcmp(name, "total_memory") == 0) {
        CUresult r = cuda.device_memory(&bytes, d->id);
        *ret_value = (int64_t)bytes;
        return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "asking for the device's memory");
    }
    for (int32_t i = 0; i < COUNT(properties); i++) {
        if (strcmp(name, properties[i].name) != 0) continue;
        CUresult r = cuda.device_attribute(&value, properties[i].attribute, d->id);
        *ret_value = value;
        return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "asking for a property of the device");
    }
    return cuda_host->fail(TN_E_VALUE, -1, "CUDA devices have no property '%s'", name);
}

static const char *name_of(int32_t index) {
    static _Thread_local char name[100];
    const cuda_device *d = cuda_device_at(index);
    if (!d || cuda.device_name(name, sizeof name, d->id) != CUDA_OK) return "";
    return name;
}

static tn_status memory_info(int32_t index, int64_t *ret_free, int64_t *ret_total) {
    cuda_device *d;
    size_t left = 0, total = 0;
    tn_status st = check(index, &d);
    if (st == TN_OK) st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.memory_info(&left, &total);
    *ret_free = (int64_t)left;
    *ret_total = (int64_t)total;
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "asking for free memory");
}

static uint64_t memory_snapshot(int32_t index, cuda_block_info *ret_blocks, uint64_t room) {
    cuda_device *d = cuda_device_at(index);
    return d ? cuda_memory_snapshot(d, ret_blocks, room) : 0;
}

static void memory_counts(int32_t index, uint64_t *ret_retries, uint64_t *ret_failures) {
    cuda_device *d = cuda_device_at(index);
    *ret_retries = *ret_failures = 0;
    if (d) cuda_memory_counts(d, ret_retries, ret_failures);
}

static tn_status set_memory_limit(int32_t index, uint64_t bytes) {
    cuda_device *d;
    tn_status st = check(index, &d);
    if (st == TN_OK) cuda_memory_set_limit(d, bytes);
    return st;
}

static tn_status can_access_peer(int32_t index, int32_t peer_index, int32_t *ret_can) {
    cuda_device *d, *peer;
    int can = 0;
    tn_status st = check(index, &d);
    if (st == TN_OK) st = check(peer_index, &peer);
    if (st != TN_OK) return st;
    CUresult r = d == peer ? CUDA_OK : cuda.can_peer(&can, d->id, peer->id);
    *ret_can = can;
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "asking for access between devices");
}

static const char *const counters[CUDA_COUNTED] = {
    [CUDA_LAUNCHES] = "launches",
    [CUDA_LIBRARY_CALLS] = "library_calls",
    [CUDA_GRAPH_LAUNCHES] = "graph_launches",
    [CUDA_WAITS] = "waits",
    [CUDA_BYTES_IN] = "bytes_in",
    [CUDA_BYTES_OUT] = "bytes_out",
    [CUDA_BYTES_WITHIN] = "bytes_within",
};

static const char *counter_name(int32_t i) {
    return i >= 0 && i < CUDA_COUNTED ? counters[i] : NULL;
}

static uint64_t counter(int32_t index, int32_t i) {
    cuda_device *d = cuda_device_at(index);
    return d && counter_name(i) ? atomic_load(&d->counts[i]) : 0;
}

static void reset_counters(int32_t index) {
    cuda_device *d = cuda_device_at(index);
    for (int32_t i = 0; d && i < CUDA_COUNTED; i++) atomic_store(&d->counts[i], 0);
}

static int32_t is_started(void) {
    for (int32_t i = 0; cuda_device_at(i); i++)
        if (cuda_device_at(i)->context) return 1;
    return 0;
}

const cuda_runtime_iface cuda_runtime = {
    .struct_size = sizeof cuda_runtime,
    .property = property,
    .name = name_of,
    .memory_info = memory_info,
    .memory_snapshot = memory_snapshot,
    .memory_counts = memory_counts,
    .set_memory_limit = set_memory_limit,
    .can_access_peer = can_access_peer,
    .counter_name = counter_name,
    .counter = counter,
    .reset_counters = reset_counters,
    .is_started = is_started,
    .range_push = cuda_range_push,
    .range_pop = cuda_range_pop,
    .mark = cuda_mark,
    .range_start = cuda_range_start,
    .range_end = cuda_range_end,
};
