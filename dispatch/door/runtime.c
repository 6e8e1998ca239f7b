/* runtime.c: layers, the host table's services, hooks of a host language, devices for users. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "capture_priv.h"
#include "dispatch_priv.h"
#include "launch_priv.h"
#include "memory_priv.h"
#include "os_priv.h"
#include "plan_priv.h"

/* ---- Host language -----------------------------------------------------------------------------*/

static tn_host_hooks hooks;

void tn_host_set_hooks(const tn_host_hooks *h) {
    if (!h) return;
    tn_host_hooks copy = {0};
    memcpy(&copy, h, h->struct_size < sizeof copy ? h->struct_size : sizeof copy);
    hooks = copy;
}

void tni_host_tensor_dying(tn_tensor *t) {
    if (hooks.tensor_dying) hooks.tensor_dying(t);
}

char *tni_host_where(void) { return hooks.where ? hooks.where() : NULL; }

struct tni_message {
    struct tni_message *next;
    int32_t level;
    char text[1024];
};

/* At the end of the thread's list; lost when there is no memory for it. */
static void keep_message(int32_t level, const char *text) {
    struct tni_message *m = malloc(sizeof *m), **at = &tni_tls.messages;
    if (!m) return;
    m->next = NULL;
    m->level = level;
    memcpy(m->text, text, strlen(text) + 1);
    while (*at) at = &(*at)->next;
    *at = m;
}

void tni_host_log(int32_t level, const char *fmt, ...) {
    char text[sizeof((struct tni_message *)0)->text];
    va_list ap;
    if (!hooks.log) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (tni_tls.log_held > 0)
        keep_message(level, text);
    else
        hooks.log(level, text);
}

void tni_host_log_hold(void) { tni_tls.log_held++; }

void tni_host_log_release(void) {
    if (--tni_tls.log_held > 0) return;
    while (tni_tls.messages) {
        struct tni_message *m = tni_tls.messages;
        tni_tls.messages = m->next;
        if (hooks.log) hooks.log(m->level, m->text);
        free(m);
    }
}

tn_status tni_host_admit_plugin(const char *name, const char *path, int32_t ours) {
    return hooks.admit_plugin ? hooks.admit_plugin(name, path, ours) : TN_OK;
}

bool tni_host_find_plugins(void) {
    if (hooks.find_plugins) hooks.find_plugins();
    return hooks.find_plugins != NULL;
}

/* ---- Services ----------------------------------------------------------------------------------*/

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

static tn_status service_poll(void) {
    if (!hooks.poll) return TN_OK;
    return hooks.poll();
}

/* Memory lent to the running kernel; a list per thread, emptied when the kernel returns. */
struct tni_scratch {
    tn_storage *storage;
    struct tni_scratch *next;
};

static tn_device device_of_call(const tn_call *call) {
    const tn_device d = {(int32_t)call->device_slot, call->device_index};
    return d;
}

static tn_status service_scratch(const tn_call *call, uint64_t bytes, void **ret_data) {
    struct tni_scratch *s = malloc(sizeof *s);
    tn_storage *spare = NULL;
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = tni_storage_new(device_of_call(call), bytes ? bytes : 1, &spare, &s->storage);
    free(spare);
    if (st != TN_OK) {
        free(s);
        return st;
    }
    s->next = tni_tls.scratch;
    tni_tls.scratch = s;
    *ret_data = s->storage->data;
    return TN_OK;
}

void tni_scratch_release(const tn_call *call) {
    (void)call;
    while (tni_tls.scratch) {
        struct tni_scratch *s = tni_tls.scratch;
        tn_storage *spare = NULL;
        tni_tls.scratch = s->next;
        tni_storage_unref(s->storage, &spare);
        free(spare);
        free(s);
    }
}

static tn_status service_resize_output(const tn_call *call, tn_view *out, int32_t ndim,
                                       const int64_t *shape) {
    int64_t numel;
    tn_tensor *t = tni_t(out), *fresh;
    if (!out || (ndim > 0 && !shape))
        return tn_fail(TN_E_PLUGIN, -1, "resize_output: the output or its shape is NULL");
    TN_TRY(tni_capture_forbid(device_of_call(call), "a result whose size depends on values",
                              call->op->name));
    TN_TRY(tni_numel(ndim, shape, tn_view_itemsize(out), &numel));
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(out), tn_tensor_device(t), ndim, shape, &fresh));
    tn_status st = tn_tensor_set_data(t, fresh);
    tn_tensor_unref(&fresh);
    return st;
}

/* Operators that plugins write in C call others, and may call themselves: the stack must suffice. */
enum { MAX_DEPTH = 64 };

static const tn_op_info *call_find(const char *name) {
    const tn_op *op = name ? tni_op_find(name) : NULL;
    return op ? &op->info : NULL;
}

static tn_status call_invoke(const tn_op_info *op, void *args, tn_view **rets) {
    if (!op || !args || !rets)
        return tn_fail(TN_E_VALUE, -1,
                       "a call needs an operator, its arguments and room for results");
    if (tni_tls.depth == MAX_DEPTH)
        return tn_fail(TN_E_PLUGIN, -1, "%s: calls of plugins are nested %d deep", op->name,
                       MAX_DEPTH);
    tni_tls.depth++;
    tn_status st = tn_op_invoke(op, args, (tn_tensor **)(void *)rets);
    tni_tls.depth--;
    return st;
}

static tn_view *call_retain(tn_view *t) { return tni_v(tn_tensor_ref(tni_t(t))); }

static void call_release(tn_view *t) {
    tn_tensor *owned = tni_t(t);
    tn_tensor_unref(&owned);
}

static const void *devices_query(uint32_t device_slot, const char *iface, void **ret_ctx) {
    void *ctx = NULL;
    const void *table = NULL;
    if (iface && device_slot < TN_DEVICE_SLOTS)
        table = tn_device_query((int32_t)device_slot, iface, &ctx);
    if (ret_ctx) *ret_ctx = ctx;
    return table;
}

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

const tn_host tni_host = {
    .struct_size = sizeof(tn_host),
    .abi_minor = TN_ABI_MINOR,
    .fail = service_fail,
    .register_device = tni_register_device,
    .register_dtype = tni_register_dtype,
    .register_kernels = tni_register_kernels,
    .register_layer = tni_register_layer,
    .poll = service_poll,
    .scratch = service_scratch,
    .resize_output = service_resize_output,
    .rng_acquire = tni_rng_acquire,
    .rng_release = tni_rng_release,
    .log = service_log,
    .query = service_query,
    .register_op = tni_register_op,
};

/* ---- Devices -----------------------------------------------------------------------------------*/

const char *tn_device_name(int32_t slot) {
    const tni_device *dev = slot >= 0 && slot < TN_DEVICE_SLOTS ? tni_device_at(slot) : NULL;
    bool awaited = slot > 0 && dev && !dev->desc.alloc && !dev->origin;
    return dev && !awaited ? dev->name : NULL;
}

int32_t tn_device_count(int32_t slot) {
    return tn_device_name(slot) ? tni_device_at(slot)->desc.count : 0;
}

tn_status tn_device_sync(tn_device device) {
    TN_TRY(tni_device_ready(device.slot));
    TN_TRY(tni_capture_forbid(device, "waiting for a device", NULL));
    const tn_device_desc *d = &tni_device_at(device.slot)->desc;
    return tni_waited(device, true, tni_caught(d->sync(d->ctx, device.index)));
}

const char *tn_device_describe(tn_device device) {
    if (!tn_device_name(device.slot) || tni_device_ready(device.slot) != TN_OK)
        return "not available";
    const tn_device_desc *d = &tni_device_at(device.slot)->desc;
    return d->describe ? d->describe(d->ctx, device.index) : d->name;
}

const void *tn_device_query(int32_t slot, const char *iface, void **ret_ctx) {
    if (!tn_device_name(slot) || tni_device_ready(slot) != TN_OK) return NULL;
    const tn_device_desc *d = &tni_device_at(slot)->desc;
    *ret_ctx = d->ctx;
    return d->query ? d->query(d->ctx, iface) : NULL;
}

/* The slot of a name; of several, which a retired device may have left, the one in use. */
static int32_t slot_of(const char *name, size_t length) {
    int32_t found = -1;
    for (int32_t i = 0; i < TN_DEVICE_SLOTS; i++) {
        const char *have = tn_device_name(i);
        if (!have || strlen(have) != length || strncmp(have, name, length) != 0) continue;
        if (found < 0 || tni_device_at(i)->desc.alloc) found = i;
    }
    return found;
}

/* What a name without an index stands for on this thread, by slot. */
static TN_TLS uint8_t current_index[TN_DEVICE_SLOTS];

int32_t tn_device_current(int32_t slot) {
    return slot >= 0 && slot < TN_DEVICE_SLOTS ? current_index[slot] : 0;
}

tn_status tn_device_set_current(tn_device device) {
    TN_TRY(tni_check_device(device));
    current_index[device.slot] = (uint8_t)device.index;
    return TN_OK;
}

tn_status tn_device_parse(const char *text, tn_device *ret_device) {
    char name[32];
    if (!text || !text[0]) return tn_fail(TN_E_STATE, -1, "Device string must not be empty");
    size_t length = strcspn(text, ":");
    int64_t index = 0;
    bool has_index = text[length] == ':';
    if (has_index) {
        const char *digits = text + length + 1;
        bool ok = digits[0] && strlen(digits) <= 3;
        for (const char *p = digits; *p; p++) {
            ok = ok && *p >= '0' && *p <= '9';
            index = index * 10 + (*p - '0');
        }
        if (!ok || (digits[0] == '0' && digits[1]))
            return tn_fail(TN_E_STATE, -1, "Invalid device string: '%s'", text);
    }
    if (length >= sizeof name) return tn_fail(TN_E_STATE, -1, "Invalid device string: '%s'", text);
    memcpy(name, text, length);
    name[length] = '\0';
    int32_t slot = slot_of(name, length);
    if (slot < 0) {
        TN_TRY(tni_loader_load_for(TNI_OFFER_DEVICE, name));
        slot = slot_of(name, length);
        if (slot < 0) return tn_fail(TN_E_DEVICE, -1, "no plugin serves device '%s'", name);
    }
    if (!has_index) index = current_index[slot];
    tn_device d = {slot, (int32_t)index};
    if (slot != 0) TN_TRY(tni_device_ready(slot));
    if (index >= tn_device_count(slot))
        return tn_fail(TN_E_DEVICE, -1, "device '%s' has no index %d (there are %d)", name,
                       (int)index, (int)tn_device_count(slot));
    *ret_device = d;
    return TN_OK;
}

/* The CPU; NULL when its plugin does not load or has no worker pool. */
static const tni_device *with_threads(void) {
    const tni_device *cpu = tni_device_ready(0) == TN_OK ? tni_device_at(0) : NULL;
    return cpu && cpu->ifaces.threads ? cpu : NULL;
}

int32_t tn_threads_get(void) {
    const tni_device *cpu = with_threads();
    return cpu ? cpu->ifaces.threads->get(cpu->desc.ctx) : 1;
}

tn_status tn_threads_set(int32_t n) {
    if (n < 1 || n > 1024)
        return tn_fail(TN_E_STATE, 0,
                       "set_num_threads expects a positive integer up to 1024, got %d", (int)n);
    const tni_device *cpu = with_threads();
    if (!cpu) return tn_fail(TN_E_DEVICE, -1, "the CPU device has no worker pool");
    return tni_caught(cpu->ifaces.threads->set(cpu->desc.ctx, n));
}

void tn_free(void *p) { free(p); }
