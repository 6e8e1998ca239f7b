/* host_table.c: the services that plugins get, `tn_host`, and its named interfaces. */
#include <stdio.h>

#include "call_priv.h"
#include "layers_priv.h"
#include "tensor_priv.h"
#include "txn_priv.h"

/* ---- Services ---------------------------------------------------------------------------------*/

static tn_status service_fail(tn_status code, int32_t arg, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    tni_fail_v(code, arg, fmt ? fmt : "a failure without a text", ap);
    va_end(ap);
    return code;
}

static void service_log(int32_t level, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt ? fmt : "", ap);
    va_end(ap);
    tni_host_log(level, "%s", text);
}

static tn_device device_of_call(const tn_call *call) {
    const tn_device d = {(int32_t)call->device_slot, call->device_index};
    return d;
}

static void service_rng_release(const tn_call *call, tn_generator *gen, tn_rng *rng) {
    (void)rng;
    tni_generator_return(call, gen);
}

static tn_status service_resize_output(const tn_call *call, tn_view *out, int32_t ndim,
                                       const int64_t *shape) {
    int64_t numel;
    tn_tensor *t = tni_t(out), *fresh;
    if (!call || !out || (ndim > 0 && !shape))
        return tn_fail(TN_E_PLUGIN, -1, "resize_output: the call, the output or its shape is NULL");
    TN_TRY(
        tni_forbid(device_of_call(call), "a result whose size depends on values", call->op->name));
    TN_TRY(tni_numel(ndim, shape, tn_view_itemsize(out), &numel));
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(out), tn_tensor_device(t), ndim, shape, &fresh));
    tni_results_resized++;
    tn_status st = tn_tensor_set_data(t, fresh);
    tn_tensor_unref(&fresh);
    return st;
}

/* ---- "tn.call/1" ------------------------------------------------------------------------------*/

/* Operators that plugins write in C call others, and may call themselves: the stack must suffice. */
enum { MAX_DEPTH = 64 };

static TN_TLS uint32_t depth; /* nesting of calls that plugins make */

static const tn_op_info *call_find(const char *name) {
    const tn_op *op = name ? tni_op_find(name) : NULL;
    return op ? &op->info : NULL;
}

static tn_status call_invoke(const tn_op_info *op, void *args, tn_view **rets) {
    if (!op || !args || !rets)
        return tn_fail(TN_E_VALUE, -1,
                       "a call needs an operator, its arguments and room for results");
    if (depth == MAX_DEPTH)
        return tn_fail(TN_E_PLUGIN, -1, "%s: calls of plugins are nested %d deep", op->name,
                       MAX_DEPTH);
    depth++;
    tn_status st = tn_op_invoke(op, args, (tn_tensor **)(void *)rets);
    depth--;
    return st;
}

static tn_view *call_retain(tn_view *t) { return tni_v(tn_tensor_ref(tni_t(t))); }

static void call_release(tn_view *t) {
    tn_tensor *owned = tni_t(t);
    tn_tensor_unref(&owned);
}

/* ---- "tn.devices/1" ---------------------------------------------------------------------------*/

static const void *devices_query(uint32_t device_slot, const char *iface, void **ret_ctx) {
    void *ctx = NULL;
    const void *table = NULL;
    if (iface && device_slot < TN_DEVICE_SLOTS)
        table = tn_device_query((int32_t)device_slot, iface, &ctx);
    if (ret_ctx) *ret_ctx = ctx;
    return table;
}

/* ---- The table --------------------------------------------------------------------------------*/

static const void *service_query(const char *iface) {
    static const tn_call_iface call = {
        .struct_size = sizeof call,
        .find = call_find,
        .invoke = call_invoke,
        .retain = call_retain,
        .release = call_release,
    };
    static const tn_devices_iface devices = {
        .struct_size = sizeof devices,
        .register_kernels = tni_register_kernels_for,
        .query = devices_query,
    };
    if (!iface) return NULL;
    if (strcmp(iface, "tn.layer/1") == 0) return &tni_layer_iface;
    if (strcmp(iface, "tn.devices/1") == 0) return &devices;
    return strcmp(iface, "tn.call/1") == 0 ? &call : NULL;
}

/* Runs when the library is mapped, before any plugin is. */
__attribute__((constructor)) static void fill_table(void) {
    tni_host = (tn_host){
        .struct_size = sizeof(tn_host),
        .abi_minor = TN_ABI_MINOR,
        .fail = service_fail,
        .register_device = tni_register_device,
        .register_dtype = tni_register_dtype,
        .register_kernels = tni_register_kernels,
        .register_layer = tni_register_layer,
        .poll = tni_host_poll,
        .scratch = tni_scratch_lend,
        .resize_output = service_resize_output,
        .rng_acquire = tni_generator_lend,
        .rng_release = service_rng_release,
        .log = service_log,
        .query = service_query,
        .register_op = tni_register_op,
    };
}
