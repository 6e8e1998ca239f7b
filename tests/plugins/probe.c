/* probe.c: a device plugin for the loader's tests, built several times; each build goes wrong in one
 * way, which PROBE_FAULT names. Its device keeps its memory in the host's heap. */
#include <stdlib.h>
#include <string.h>

#include <tenon/plugin.h>

#define PROBE_GOOD 0
#define PROBE_NEEDS_NEWER 1 /* wants a minor version that does not exist */
#define PROBE_OTHER_MAJOR 2
#define PROBE_REFUSES 3  /* the entry function fails */
#define PROBE_HALF 4     /* activate registers its device, then fails */
#define PROBE_NO_ALLOC 5 /* a device without a required function */
#define PROBE_NO_ACTIVATE 6
#define PROBE_OLD 7   /* built when tn_plugin ended after `activate` */
#define PROBE_TALKS 8 /* activate says something to people */

static tn_status probe_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx;
    (void)device;
    void *p = malloc(bytes ? bytes : 1);
    if (!p) return TN_E_MEMORY;
    *ret_data = p;
    return TN_OK;
}

static void probe_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx;
    (void)device;
    (void)bytes;
    free(data);
}

static tn_status copy(void *dst, uint64_t dst_at, const void *src, uint64_t src_at, uint64_t n) {
    memcpy((char *)dst + dst_at, (const char *)src + src_at, n);
    return TN_OK;
}

static tn_status probe_copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                               const void *src, uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    return copy(dst, dst_offset, src, 0, bytes);
}

static tn_status probe_copy_out(void *ctx, int32_t device, void *dst, const void *src,
                                uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    return copy(dst, 0, src, src_offset, bytes);
}

static tn_status probe_copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                                   const void *src, uint64_t src_offset, uint64_t bytes,
                                   void *stream) {
    (void)ctx;
    (void)device;
    (void)stream;
    return copy(dst, dst_offset, src, src_offset, bytes);
}

static tn_status probe_sync(void *ctx, int32_t device) {
    (void)ctx;
    (void)device;
    return TN_OK;
}

static const char *probe_describe(void *ctx, int32_t device) {
    (void)ctx;
    (void)device;
    return "probe: host memory, no kernels";
}

static tn_status probe_activate(const tn_host *host, tn_txn *txn) {
    int32_t slot;
    tn_device_desc d = {.struct_size = sizeof d,
                        .flags = TN_DEV_ADDRESSABLE | TN_DEV_HOST,
                        .name = PROBE_NAME,
                        .dl_device = 12,
                        .count = 2,
                        .alloc = PROBE_FAULT == PROBE_NO_ALLOC ? NULL : probe_alloc,
                        .free = probe_free,
                        .copy_in = probe_copy_in,
                        .copy_out = probe_copy_out,
                        .copy_within = probe_copy_within,
                        .sync = probe_sync,
                        .describe = probe_describe};
    if (PROBE_FAULT == PROBE_TALKS) host->log(2, "device %d of %s is warm", 1, PROBE_NAME);
    tn_status st = host->register_device(txn, &d, &slot);
    if (st != TN_OK) return st;
    if (PROBE_FAULT == PROBE_HALF) return host->fail(TN_E_DEVICE, -1, "its hardware is on fire");
    return TN_OK;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    if (PROBE_FAULT == PROBE_REFUSES)
        return host->fail(TN_E_DEVICE, -1, "it found no %s", "hardware");
    *ret_plugin = (tn_plugin){
        .struct_size = PROBE_FAULT == PROBE_OLD ? (uint32_t)offsetof(tn_plugin, retire)
                                                : (uint32_t)sizeof *ret_plugin,
        .abi_major = TN_ABI_MAJOR + (PROBE_FAULT == PROBE_OTHER_MAJOR),
        .min_minor = PROBE_FAULT == PROBE_NEEDS_NEWER ? TN_ABI_MINOR + 1 : 0,
        .built_minor = TN_ABI_MINOR,
        .name = PROBE_NAME,
        .version = "3.2.1",
        .summary = "a device for the loader's tests",
        .activate = PROBE_FAULT == PROBE_NO_ACTIVATE ? NULL : probe_activate,
    };
    return TN_OK;
}
