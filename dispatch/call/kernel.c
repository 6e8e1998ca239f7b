/* kernel.c: a kernel is called: with what it may borrow, with queues and notes for failures that come late
 * where there is a device beside the CPU, and what is left to do when it declined or failed. */
#include <tenon/device_ext.h>
#include <stdlib.h>

#include "call_priv.h"
#include "infer_priv.h"
#include "memory_priv.h"
#include "os_priv.h"

/* ---- Memory that a kernel borrows -------------------------------------------------------------*/

/* Memory lent to the running kernel; a list per thread, emptied when the kernel returns. */
struct tni_scratch {
    tn_storage *storage;
    struct tni_scratch *next;
};

tn_status tni_scratch_lend(tn_device device, uint64_t bytes, void **ret_data) {
    struct tni_scratch *s = malloc(sizeof *s);
    tn_storage *spare = NULL;
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = tni_storage_new(device, bytes ? bytes : 1, &spare, &s->storage);
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

void tni_scratch_release(void) {
    while (tni_tls.scratch) {
        struct tni_scratch *s = tni_tls.scratch;
        tn_storage *spare = NULL;
        tni_tls.scratch = s->next;
        tni_storage_unref(s->storage, &spare);
        free(spare);
        free(s);
    }
}

/* ---- Flags ------------------------------------------------------------------------------------*/

static _Atomic uint32_t call_flags; /* TN_CALL_* of every call from now on */

uint32_t tni_call_flags(void) { return atomic_load_explicit(&call_flags, memory_order_relaxed); }

int tn_is_deterministic(void) { return (tni_call_flags() & TN_CALL_DETERMINISTIC) != 0; }

void tn_set_deterministic(int on) {
    if (on) atomic_store(&tni_any_special, true); /* the short way passes no flags */
    atomic_store(&call_flags, on ? TN_CALL_DETERMINISTIC : 0);
}

/* ---- Calls ------------------------------------------------------------------------------------*/

tn_status tni_kernel_after(const tn_cell *cell, tn_call *call, const void *args, tn_status st) {
    while (st == TN_DECLINE && (cell = tni_cell_next(cell)) != NULL) {
        call->ctx = cell->ctx;
        st = tni_caught(cell->fn(call, args));
    }
    if (tni_tls.scratch) tni_scratch_release();
    return st == TN_DECLINE ? st : tni_error_of_plugin(st, call->op->name, cell->plugin->name);
}

static bool blocking;
static tni_os_once blocking_once = TNI_OS_ONCE_INIT;

static void read_blocking(void) {
    const char *text = tni_os_getenv("TENON_LAUNCH_BLOCKING");
    blocking = text && strcmp(text, "1") == 0;
}

static bool launches_block(void) {
    tni_os_call_once(&blocking_once, read_blocking);
    return blocking;
}

/* Work on `stream` will use the memory of all operands. */
static tn_status use_operands(const tn_op *op, const void *args, void *stream) {
    for (int i = 0; i < op->nfields; i++) {
        tni_span s = tni_field_span(&op->fields[i], args);
        for (int64_t k = 0; k < s.n; k++)
            if (s.v[k]) TN_TRY(tni_storage_use(s.v[k]->storage, stream));
    }
    return TN_OK;
}

tn_status tni_kernel_special(const tn_op *op, const tn_cell *cell, tn_device device, int32_t dtype,
                             const void *args) {
    const tni_device *dev = tni_device_at(device.slot);
    void *stream = tni_stream_of(device);
    tn_call call = {&tni_host,    cell->ctx, stream,           &op->info,
                    device.index, dtype,     tni_call_flags(), (uint32_t)device.slot};
    if (atomic_load(&tni_streams_live) && dev->memory) TN_TRY(use_operands(op, args, stream));
    if (dev->launches) tni_note_launch(dev, device.index, op);
    if (tni_tls.watcher) return tni_tls.watcher->run(op, cell, &call, args);
    tn_status st = tni_caught(cell->fn(&call, args));
    if (st != TN_OK || tni_tls.scratch) st = tni_kernel_after(cell, &call, args, st);
    if (!dev->launches) return st;
    if (st == TN_ASYNC) return tni_waited(device, true, st);
    return st == TN_OK && launches_block() ? tn_device_sync(device) : st;
}

tn_status tni_kernel_missing(const tn_op *op, tn_device device, int32_t dtype) {
    const char *name = op->info.name, *on = tn_device_name(device.slot);
    TN_TRY(tni_device_ready(device.slot));
    TN_TRY(tni_check_kind(op, -1, dtype));
    if (device.slot == 0)
        return tn_fail(TN_E_UNSUPPORTED, -1, "\"%s\" not implemented for '%s' on device '%s'", name,
                       tni_type_text(dtype), on);
    return tn_fail(TN_E_UNSUPPORTED, -1,
                   "\"%s\" not implemented for '%s' on device '%s': it has no kernel for this "
                   "dtype, none for any dtype, none for a wider one, %s, and running it on the CPU "
                   "is switched off (TENON_FALLBACK=error)",
                   name, tni_type_text(dtype), on,
                   tni_has_composite(op) ? "its composite needs one" : "there is no composite");
}
