/* faulty_device.c: a device in host memory that the conformance kit must find fault with. The environment's
 * FAULTY says what is wrong with it; without it all is well. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/op_args.h>
#include <tenon/plugin.h>
#include <unistd.h>

static const tn_host *host;
static uint64_t in_use;

static int faulty(const char *what) {
    const char *fault = getenv("FAULTY");
    return fault && strcmp(fault, what) == 0;
}

/* ---- Memory ------------------------------------------------------------------------------------*/

static tn_status dev_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx, (void)device;
    void *data = malloc(bytes);
    if (!data)
        return host->fail(faulty("code") ? TN_E_VALUE : TN_E_MEMORY, -1, "no room for %llu bytes",
                          (unsigned long long)bytes);
    __atomic_fetch_add(&in_use, bytes, __ATOMIC_RELAXED);
    *ret_data = data;
    return TN_OK;
}

static void dev_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx, (void)device;
    __atomic_fetch_sub(&in_use, bytes, __ATOMIC_RELAXED);
    if (!faulty("free")) free(data);
}

static tn_status copy_in(void *ctx, int32_t device, void *dst, uint64_t dst_offset, const void *src,
                         uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy((char *)dst + dst_offset, src, bytes);
    return TN_OK;
}

static tn_status copy_out(void *ctx, int32_t device, void *dst, const void *src,
                          uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    memcpy(dst, (const char *)src + src_offset, bytes);
    return TN_OK;
}

static tn_status copy_within(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                             const void *src, uint64_t src_offset, uint64_t bytes, void *stream) {
    (void)ctx, (void)device, (void)stream;
    if (faulty("offset")) src_offset = 0;
    memcpy((char *)dst + dst_offset, (const char *)src + src_offset, bytes);
    return TN_OK;
}

static tn_status dev_sync(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

static tn_status stats(void *ctx, int32_t device, tn_memory_stats *ret_stats) {
    (void)ctx, (void)device;
    *ret_stats = (tn_memory_stats){.allocated = in_use};
    return TN_OK;
}

static tn_status nothing(void *ctx, int32_t device) {
    (void)ctx, (void)device;
    return TN_OK;
}

static const void *query(void *ctx, const char *iface) {
    static tn_memory_iface memory = {sizeof memory, 0, stats, nothing, nothing};
    (void)ctx;
    if (faulty("member")) memory.reset_peak = NULL;
    if (faulty("size")) memory.struct_size = 16;
    return strcmp(iface, "tn.memory/1") == 0 || faulty("answers") ? &memory : NULL;
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

static float shared; /* between threads, which is the fault */

static float negate(float x) {
    if (!faulty("race")) return -x;
    shared = x;
    usleep(20);
    return -shared;
}

static void spoil(const tn_call *call) {
    void *lost;
    if (faulty("crash")) *(volatile int *)NULL = 0;
    if (faulty("abort")) abort();
    if (faulty("exit")) exit(3);
    while (faulty("hang")) sleep(1);
    if (faulty("leak")) (void)dev_alloc(NULL, call->device_index, 100, &lost);
}

static tn_status kernel_neg(const tn_call *call, const void *args) {
    const tn_plan *p = ((const tn_neg_args *)args)->plan;
    tn_rows r;
    spoil(call);
    if (faulty("strides")) {
        for (int64_t i = 0; i < p->numel; i++)
            ((float *)p->data[0])[i] = -((const float *)p->data[1])[i];
        return TN_OK;
    }
    for (tn_rows_start(&r, p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            float x = *TN_ROW(const float, r, 1, i);
            if (faulty("input")) *TN_ROW(float, r, 1, i) = 0;
            *TN_ROW(float, r, 0, i) = negate(x);
        }
    if (faulty("wrong") && p->numel > 5) *TN_ROW(float, r, 0, 0) += 1;
    return TN_OK;
}

static tn_status kernel_tanh_backward(const tn_call *call, const void *args) {
    float wrong = faulty("gradient") ? 2 : 1;
    tn_rows r;
    (void)call;
    for (tn_rows_start(&r, ((const tn__tanh_backward_args *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            float y = *TN_ROW(const float, r, 2, i);
            *TN_ROW(float, r, 0, i) = wrong * *TN_ROW(const float, r, 1, i) * (1 - y * y);
        }
    return TN_OK;
}

/* ---- The door ----------------------------------------------------------------------------------*/

static tn_status activate(const tn_host *h, tn_txn *txn) {
    static const tn_device_desc device = {
        .struct_size = sizeof device,
        .flags = TN_DEV_ADDRESSABLE | TN_DEV_HOST,
        .name = "faulty",
        .dl_device = 12,
        .count = 1,
        .alloc = dev_alloc,
        .free = dev_free,
        .copy_in = copy_in,
        .copy_out = copy_out,
        .copy_within = copy_within,
        .sync = dev_sync,
        .query = query,
    };
    const tn_kernel_row rows[] = {
        {.op = "neg", .sig = TN_SIG_neg, .fn = kernel_neg, .dtype = TN_F32},
        {.op = "_tanh_backward",
         .sig = TN_SIG__tanh_backward + (uint64_t)faulty("signature"),
         .fn = kernel_tanh_backward,
         .dtype = TN_F32},
    };
    int32_t slot;
    host = h;
    tn_status st = h->register_device(txn, &device, &slot);
    return st == TN_OK ? h->register_kernels(txn, slot, rows, sizeof rows[0], 2) : st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *ret_plugin) {
    (void)h;
    return tn_plugin_fill(ret_plugin, "faulty", "1.0", "a device with a fault", activate);
}
