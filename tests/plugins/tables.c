/* tables.c: a device on host memory whose optional tables are wrong on purpose. TABLE names the one
 * table that it offers, "tn.stream/1", and FAULT what is wrong with it: "null" (all zeroes), "short"
 * (one byte too small), or the number of the one member that is NULL. TABLE_BYTES is how large the
 * table of the header is. Whoever calls a member of a table that is wrong ends the process. */
#include <stdlib.h>
#include <string.h>

#include <tenon/plugin.h>

static const tn_host *host;

static tn_status alloc_bytes(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    *ret_data = malloc(bytes);
    return *ret_data ? TN_OK : host->fail(TN_E_MEMORY, -1, "tables: out of memory");
}

static void free_bytes(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device, (void)bytes;
    free(data);
}

static tn_status copy_in(void *ctx, int32_t device, void *dst, uint64_t offset, const void *src,
                         uint64_t bytes, void *stream) {
    (void)ctx, (void)device;
    if (stream) abort();
    memcpy((char *)dst + offset, src, bytes);
    return TN_OK;
}

static tn_status copy_out(void *ctx, int32_t device, void *dst, const void *src, uint64_t offset,
                          uint64_t bytes, void *stream) {
    (void)ctx, (void)device;
    if (stream) abort();
    memcpy(dst, (const char *)src + offset, bytes);
    return TN_OK;
}

static tn_status copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                             const void *src, uint64_t src_offset, uint64_t bytes, void *stream) {
    return copy_in(ctx, device, dst, dst_offset, (const char *)src + src_offset, bytes, stream);
}

static tn_status sync_all(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

static void trap(void) { abort(); }

static const void *query(void *ctx, const char *iface) {
    typedef void (*function)(void);
    static struct {
        uint32_t size, reserved;
        function member[62];
    } table;
    const char *name = getenv("TABLE"), *fault = getenv("FAULT"), *bytes = getenv("TABLE_BYTES");
    (void)ctx;
    if (!name || !fault || !bytes || strcmp(iface, name) != 0) return NULL;
    memset(&table, 0, sizeof table);
    if (strcmp(fault, "null") == 0) return &table;
    table.size = (uint32_t)atoi(bytes) - (strcmp(fault, "short") == 0);
    for (size_t i = 0; i < sizeof table.member / sizeof table.member[0]; i++)
        table.member[i] = trap;
    if (strcmp(fault, "short") != 0) table.member[atoi(fault)] = NULL;
    return &table;
}

static tn_status activate(const tn_host *h, tn_txn *txn) {
    static const tn_device_desc desc = {
        .struct_size = sizeof desc,
        .flags = TN_DEV_ADDRESSABLE,
        .name = "tables",
        .dl_device = 12,
        .count = 2,
        .alloc = alloc_bytes,
        .free = free_bytes,
        .copy_in = copy_in,
        .copy_out = copy_out,
        .copy_within = copy_within,
        .sync = sync_all,
        .query = query,
    };
    int32_t slot;
    host = h;
    return h->register_device(txn, &desc, &slot);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    return tn_plugin_fill(ret_plugin, "tables", "1.0", "a device with wrong tables", activate);
}
