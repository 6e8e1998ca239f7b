/* meta.c: the device "meta", whose tensors have shapes and no memory.
 *
 * Note [Meta]
 * A call on meta tensors goes the way of every other: rules of shapes and dtypes, results, the tape. It differs in
 * two places. Memory of this device is NULL, however many bytes are asked for, and every operator has one
 * kernel here, which does nothing. So an operator of a plugin works on it, too, and no call of another
 * device passes a test for it. What needs values fails where values come from: copies out of the device
 * (copy.c) and operators whose kernels size their results. */
#include "device_priv.h"

static tn_status meta_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device, (void)bytes;
    *ret_data = NULL;
    return TN_OK;
}

static void meta_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device, (void)data, (void)bytes;
}

static tn_status meta_copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                              const void *src, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)dst, (void)dst_offset, (void)src, (void)bytes, (void)stream;
    return TN_OK;
}

tn_status tni_meta_no_data(void) {
    return tn_fail(TN_E_UNSUPPORTED, -1, "Cannot copy out of meta tensor; no data!");
}

static tn_status meta_copy_out(void *ctx, int32_t device, void *dst, const void *src,
                               uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)dst, (void)src, (void)src_offset, (void)bytes, (void)stream;
    return tni_meta_no_data();
}

static tn_status meta_copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                                  const void *src, uint64_t src_offset, uint64_t bytes,
                                  void *stream) {
    (void)ctx, (void)device, (void)dst, (void)dst_offset, (void)src, (void)src_offset;
    (void)bytes, (void)stream;
    return TN_OK;
}

static tn_status meta_sync(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

const tni_device tni_meta_device = {
    .desc = {.name = "meta",
             .dl_device = 12,
             .count = 1,
             .alloc = meta_alloc,
             .free = meta_free,
             .copy_in = meta_copy_in,
             .copy_out = meta_copy_out,
             .copy_within = meta_copy_within,
             .sync = meta_sync},
    .direct_alloc = meta_alloc,
    .name = "meta",
};

static tn_status infer_only(const tn_call *call, const void *args) {
    (void)call, (void)args;
    return TN_OK;
}

const tn_cell *tni_meta_cell(const tn_op *op) {
    static char name[] = "core", version[] = "";
    static const tni_plugin core = {.name = name, .version = version, .active = 1};
    static const tn_cell cell = {
        .fn = infer_only, .plugin = &core, .device = TN_META_SLOT, .dtype = TN_DTYPE_ANY};
    if (op->flags & TNI_OP_RANDOM) tni_tls.drew = true;
    return op->flags & TNI_OP_DYNAMIC ? NULL : &cell;
}

tn_status tni_meta_needs_values(const char *op) {
    return tn_fail(TN_E_UNSUPPORTED, -1,
                   "%s: attempted to run this operator with meta tensors, but what it returns "
                   "depends on the values of its arguments",
                   op);
}
