/* acme.c: a device. Six functions and an entry make one: every operator of `device="acme"` then runs,
 * on the CPU by copy, until a kernel is registered for it. One kernel, of `neg`, shows how that goes.
 *
 * The "chip" is a table of buffers in host memory, and what Tenon holds is a ticket, not an address:
 * put your runtime's functions in their place. `ctx` is NULL here; a real device passes its state. */
#include <stdlib.h>
#include <string.h>

#include <tenon/op_args.h>
#include <tenon/plugin.h>

/* ---- The chip's runtime: six functions that a vendor already has -------------------------------*/

typedef struct buffer {
    uint64_t bytes;
    unsigned char *memory;
} buffer;

static const tn_host *host;

static tn_status chip_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    buffer *b = (buffer *)malloc(sizeof *b);
    unsigned char *memory = (unsigned char *)malloc(bytes);
    if (!b || !memory) {
        free(b);
        free(memory);
        return host->fail(TN_E_MEMORY, -1, "acme: no room for %llu bytes",
                          (unsigned long long)bytes);
    }
    b->bytes = bytes;
    b->memory = memory;
    *ret_data = b;
    return TN_OK;
}

static void chip_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device, (void)bytes;
    buffer *b = (buffer *)data;
    if (!b) return;
    free(b->memory);
    free(b);
}

static tn_status chip_copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                              const void *src, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(((buffer *)dst)->memory + dst_offset, src, bytes);
    return TN_OK;
}

static tn_status chip_copy_out(void *ctx, int32_t device, void *dst, const void *src,
                               uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(dst, ((const buffer *)src)->memory + src_offset, bytes);
    return TN_OK;
}

static tn_status chip_copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                                  const void *src, uint64_t src_offset, uint64_t bytes,
                                  void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(((buffer *)dst)->memory + dst_offset, ((const buffer *)src)->memory + src_offset, bytes);
    return TN_OK;
}

static tn_status chip_sync(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

static const char *chip_describe(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return "Acme: host memory behind tickets";
}

/* ---- Kernels: functions of the chip for operators, one row each in `rows` ------------------------*/

/* -x. Core made the result and merged what could be merged: a flat plan is one run of numbers. The
 * next kernel, and in the end the CPU, does what this one declines. */
static tn_status neg_f32(const tn_call *call, const void *args) {
    const tn_plan *p = ((const tn_neg_args *)args)->plan;
    (void)call;
    if (!(p->flags & TN_PLAN_FLAT) || p->scalar_mask) return TN_DECLINE;
    float *y = (float *)(void *)(((buffer *)p->data[0])->memory + p->offset[0]);
    const float *x = (const float *)(void *)(((buffer *)p->data[1])->memory + p->offset[1]);
    for (int64_t i = 0; i < p->numel; i++) y[i] = -x[i];
    return TN_OK;
}

static const tn_kernel_row rows[] = {
    {.op = "neg", .sig = TN_SIG_neg, .fn = neg_f32, .dtype = TN_F32},
};

/* ---- The door ----------------------------------------------------------------------------------*/

static tn_status activate(const tn_host *h, tn_txn *txn) {
    static const tn_device_desc chip = {
        .struct_size = sizeof chip,
        .name = "acme",
        .dl_device = 12, /* DLPack's code for devices that it does not know */
        .count = 2,
        .alloc = chip_alloc,
        .free = chip_free,
        .copy_in = chip_copy_in,
        .copy_out = chip_copy_out,
        .copy_within = chip_copy_within,
        .sync = chip_sync,
        .describe = chip_describe,
    };
    int32_t slot;
    host = h;
    tn_status st = h->register_device(txn, &chip, &slot);
    const uint32_t n = sizeof rows / sizeof rows[0];
    return st == TN_OK ? h->register_kernels(txn, slot, rows, sizeof rows[0], n) : st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    return tn_plugin_fill(ret_plugin, "acme", "0.1.0", "a device with one kernel", activate);
}
