/* late_device.c: a device in memory that the host may read, "late". Its queue stands still until somebody
 * waits: what was not waited for is not there yet. */
#include <stdlib.h>
#include <string.h>
#include <tenon/plugin.h>

typedef struct entry {
    struct entry *next;
    char *dst;
    const char *src; /* NULL: the bytes lie behind the entry */
    uint64_t bytes;
} entry;

static const tn_host *host;
static entry *first, **last = &first;

static tn_status push(char *dst, const char *src, uint64_t bytes, int reads_now) {
    entry *e = malloc(sizeof *e + (reads_now ? bytes : 0));
    if (!e) return host->fail(TN_E_MEMORY, -1, "late: no room for an entry of the queue");
    *e = (entry){NULL, dst, reads_now ? NULL : src, bytes};
    if (reads_now) memcpy(e + 1, src, bytes);
    *last = e;
    last = &e->next;
    return TN_OK;
}

static tn_status late_sync(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    while (first) {
        entry *e = first;
        first = e->next;
        memcpy(e->dst, e->src ? e->src : (const char *)(e + 1), e->bytes);
        free(e);
    }
    last = &first;
    return TN_OK;
}

static tn_status late_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    *ret_data = calloc(1, bytes);
    return *ret_data ? TN_OK : host->fail(TN_E_MEMORY, -1, "late: no room");
}

static void late_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)bytes;
    (void)late_sync(ctx, device);
    free(data);
}

static tn_status late_copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                              const void *src, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    return push((char *)dst + dst_offset, src, bytes, 1);
}

static tn_status late_copy_out(void *ctx, int32_t device, void *dst, const void *src,
                               uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)stream;
    tn_status st = late_sync(ctx, device);
    memcpy(dst, (const char *)src + src_offset, bytes);
    return st;
}

static tn_status late_copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                                  const void *src, uint64_t src_offset, uint64_t bytes,
                                  void *stream) {
    (void)ctx, (void)device, (void)stream;
    return push((char *)dst + dst_offset, (const char *)src + src_offset, bytes, 0);
}

static tn_status activate(const tn_host *h, tn_txn *txn) {
    static const tn_device_desc late = {
        .struct_size = sizeof late,
        .flags = TN_DEV_ADDRESSABLE | TN_DEV_HOST,
        .name = "late",
        .dl_device = 12,
        .count = 1,
        .alloc = late_alloc,
        .free = late_free,
        .copy_in = late_copy_in,
        .copy_out = late_copy_out,
        .copy_within = late_copy_within,
        .sync = late_sync,
    };
    int32_t slot;
    host = h;
    return h->register_device(txn, &late, &slot);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    return tn_plugin_fill(ret_plugin, "late", "1.0", "a queue that stands still", activate);
}
