/* generation.c: a plugin that uses every table that may grow, compiled with the headers of several
 * minor versions (matrix.py makes those). Behind each table that it hands over lie bytes that are none
 * of it: whoever reads further than the table's size finds them. A newer header has a member `later` at
 * the end of each (GENERATION_LATER), an older one knows no layers (GENERATION_LAYERS is not set).
 *
 * It serves device NAME (host memory, no kernels), operator NAME::twice with a kernel for the CPU and,
 * where header and host know them, layer NAME, which passes calls on. */
#include <stdlib.h>
#include <string.h>

#include <tenon/plugin.h>

typedef struct twice_args {
    const tn_plan *plan;
    const tn_view *x;
    tn_view *out;
} twice_args;

static const tn_host *host;

static void trap(void) { abort(); }

static tn_status alloc_bytes(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    *ret_data = malloc(bytes);
    return *ret_data ? TN_OK : host->fail(TN_E_MEMORY, -1, NAME ": out of memory");
}

static void free_bytes(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device, (void)bytes;
    free(data);
}

static tn_status copy_in(void *ctx, int32_t device, void *dst, uint64_t offset, const void *src,
                         uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy((char *)dst + offset, src, bytes);
    return TN_OK;
}

static tn_status copy_out(void *ctx, int32_t device, void *dst, const void *src, uint64_t offset,
                          uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
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

static tn_status twice(const tn_call *call, const void *args) {
    tn_rows r;
    if (call->host != host) abort();
    for (tn_rows_start(&r, ((const twice_args *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = 2 * *TN_ROW(const float, r, 1, i);
    return TN_OK;
}

/* A table with bytes behind it that must not be taken for members. */
#define WITH_TAIL(type)                                                                            \
    struct {                                                                                       \
        type table;                                                                                \
        unsigned char tail[256];                                                                   \
    }
#ifdef GENERATION_LATER
#define LATER .later = trap,
#else
#define LATER
#endif

static tn_status add_device(tn_txn *txn) {
    WITH_TAIL(tn_device_desc) d;
    int32_t slot;
    memset(&d, 0xdb, sizeof d);
    d.table = (tn_device_desc){.struct_size = sizeof d.table,
                               .flags = TN_DEV_ADDRESSABLE,
                               .name = NAME,
                               .dl_device = 12,
                               .count = 1,
                               .alloc = alloc_bytes,
                               .free = free_bytes,
                               .copy_in = copy_in,
                               .copy_out = copy_out,
                               .copy_within = copy_within,
                               LATER.sync = sync_all};
    return host->register_device(txn, &d.table, &slot);
}

static tn_status add_operator(tn_txn *txn) {
    WITH_TAIL(tn_op_desc) op;
    WITH_TAIL(tn_kernel_row) rows[2];
    memset(&op, 0xdb, sizeof op);
    memset(rows, 0xdb, sizeof rows);
    op.table = (tn_op_desc){.struct_size = sizeof op.table,
                            .kind = TN_OP_POINTWISE,
                            .args_bytes = sizeof(twice_args),
                            LATER.schema = NAME "::twice(Tensor x) -> Tensor"};
    for (int i = 0; i < 2; i++)
        rows[i].table =
            (tn_kernel_row){.op = NAME "::twice", .fn = twice, .dtype = TN_F32, LATER 0};
    tn_status st = host->register_op(txn, &op.table);
    if (st != TN_OK) return st;
    return host->register_kernels(txn, 0, &rows[0].table, sizeof rows[0], 2);
}

#ifdef GENERATION_LAYERS
static const tn_layer_iface *layers;

static tn_status pass_on(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                         tn_view **rets) {
    (void)ctx;
    return layers->next(next, op, args, rets);
}

static tn_status add_layer(tn_txn *txn) {
    WITH_TAIL(tn_layer_desc) l;
    memset(&l, 0xdb, sizeof l);
    l.table = (tn_layer_desc){.struct_size = sizeof l.table, .name = NAME, LATER.call = pass_on};
    if (host->struct_size < offsetof(tn_host, register_layer) + sizeof host->register_layer)
        return TN_OK; /* a host of an older minor */
    layers = (const tn_layer_iface *)host->query("tn.layer/1");
    return host->register_layer(txn, &l.table);
}
#else
static tn_status add_layer(tn_txn *txn) {
    (void)txn;
    return TN_OK;
}
#endif

static tn_status activate(const tn_host *h, tn_txn *txn) {
    host = h;
    tn_status st = add_device(txn);
    if (st == TN_OK) st = add_operator(txn);
    return st == TN_OK ? add_layer(txn) : st;
}

/* Fills the whole table that its header knows, which may be larger than the host's. */
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    *ret_plugin = (tn_plugin){.struct_size = sizeof *ret_plugin,
                              .abi_major = TN_ABI_MAJOR,
                              .min_minor = MIN_MINOR,
                              .built_minor = TN_ABI_MINOR,
                              .name = NAME,
                              .version = "1.0",
                              LATER.activate = activate};
    return TN_OK;
}
