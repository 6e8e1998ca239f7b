/* acme.c: the least that makes a device: six functions and an entry. Nothing here computes; every
 * operator of `device="acme"` runs, on the CPU, until a kernel is registered for it.
 *
 * The "chip" is a table of buffers, and what Tenon holds is a ticket, not an address: replace
 * acme_* by your runtime's functions. `ctx` is NULL here; a real device passes its state there. */
#include <stdlib.h>
#include <string.h>

#include <tenon/plugin.h>

/* ---- The chip's runtime: six functions that a vendor already has -------------------------------*/

typedef struct buffer {
    uint64_t bytes;
    unsigned char *memory;
} buffer;

static const tn_host *host;

static tn_status acme_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    buffer *b = malloc(sizeof *b);
    unsigned char *memory = malloc(bytes);
    if (!b || !memory) {
        free(b);
        free(memory);
        return host->fail(TN_E_MEMORY, -1, "acme: no room for %llu bytes",
                          (unsigned long long)bytes);
    }
    *b = (buffer){bytes, memory};
    *ret_data = b;
    return TN_OK;
}

static void acme_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device, (void)bytes;
    buffer *b = data;
    if (!b) return;
    free(b->memory);
    free(b);
}

static tn_status acme_copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                              const void *src, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(((buffer *)dst)->memory + dst_offset, src, bytes);
    return TN_OK;
}

static tn_status acme_copy_out(void *ctx, int32_t device, void *dst, const void *src,
                               uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(dst, ((const buffer *)src)->memory + src_offset, bytes);
    return TN_OK;
}

static tn_status acme_copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                                  const void *src, uint64_t src_offset, uint64_t bytes,
                                  void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(((buffer *)dst)->memory + dst_offset, ((const buffer *)src)->memory + src_offset, bytes);
    return TN_OK;
}

static tn_status acme_sync(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

static const char *acme_describe(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return "Acme example chip (host memory behind tickets)";
}

/* ---- The door ----------------------------------------------------------------------------------*/

static tn_status activate(const tn_host *h, tn_txn *txn) {
    static const tn_device_desc acme = {
        .struct_size = sizeof acme,
        .name = "acme",
        .dl_device = 12, /* DLPack's code for devices that it does not know */
        .count = 2,
        .alloc = acme_alloc,
        .free = acme_free,
        .copy_in = acme_copy_in,
        .copy_out = acme_copy_out,
        .copy_within = acme_copy_within,
        .sync = acme_sync,
        .describe = acme_describe,
    };
    int32_t slot;
    host = h;
    return h->register_device(txn, &acme, &slot);
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    return tn_plugin_fill(ret_plugin, "acme", "0.1", "an example device without kernels", activate);
}
