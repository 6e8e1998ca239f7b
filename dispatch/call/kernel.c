/* kernel.c: a kernel is called: with what it may borrow, with queues and notes for failures that come late
 * where there is a device beside the CPU, and what is left to do when it declined or failed. */
#include <tenon/device_ext.h>
#include <stdlib.h>

#include "call_priv.h"
#include "infer_priv.h"
#include "memory_priv.h"
#include "os_priv.h"

/* ---- What a kernel borrows --------------------------------------------------------------------*/

/* Memory or a generator, lent to a running kernel; a list per thread, the last loan first.
 *
 * A kernel may call operators, and so may a signal handler that runs while it polls: the kernels inside
 * return first, and must leave what the one outside has borrowed. A loan of that one names a call on
 * this thread's stack above theirs. Any other belongs to the kernel that returns, also where it named a
 * copy of its call. */
struct tni_scratch {
    const tn_call *call;
    tn_storage *storage;     /* NULL: it is a generator */
    tn_generator *generator; /* NULL: it is memory */
    struct tni_scratch *next;
};

static TN_TLS struct tni_scratch first_generator; /* in the list while it has a generator */

static void push(struct tni_scratch *s, const tn_call *call) {
    s->call = call;
    s->next = tni_tls.scratch;
    tni_tls.scratch = s;
}

static tn_device device_of(const tn_call *call) {
    return (tn_device){(int32_t)call->device_slot, call->device_index};
}

tn_status tni_scratch_lend(const tn_call *call, uint64_t bytes, void **ret_data) {
    if (!call || !ret_data)
        return tn_fail(TN_E_PLUGIN, -1, "scratch: the call or room for the result is NULL");
    struct tni_scratch *s = calloc(1, sizeof *s);
    tn_storage *spare = NULL;
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = tni_storage_new(device_of(call), bytes ? bytes : 1, &spare, &s->storage);
    free(spare);
    if (st != TN_OK) {
        free(s);
        return st;
    }
    push(s, call);
    *ret_data = s->storage->data;
    return TN_OK;
}

static tn_generator *generator_of(const tn_call *call, tn_generator *gen) {
    return gen ? gen : tn_generator_default(device_of(call));
}

tn_status tni_generator_lend(const tn_call *call, tn_generator *gen, uint64_t blocks,
                             tn_rng *ret_rng) {
    if (!call || !ret_rng)
        return tn_fail(TN_E_PLUGIN, -1, "rng_acquire: the call or room for the result is NULL");
    gen = generator_of(call, gen);
    for (const struct tni_scratch *s = tni_tls.scratch; s && gen; s = s->next)
        if (s->generator == gen)
            return tn_fail(TN_E_PLUGIN, 1, "rng_acquire: this kernel holds a generator%s",
                           s->call == call ? "" : " that one around it has");
    struct tni_scratch *s = first_generator.generator ? calloc(1, sizeof *s) : &first_generator;
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = tni_rng_acquire(call, gen, blocks, ret_rng);
    if (st == TN_OK) {
        s->generator = gen;
        push(s, call);
    } else if (s != &first_generator) {
        free(s);
    }
    return st;
}

static void give_back(struct tni_scratch *s) {
    tn_storage *spare = NULL;
    if (s->generator) tni_rng_release(s->generator);
    if (s->storage) tni_storage_unref(s->storage, &spare);
    free(spare);
    s->generator = NULL;
    if (s != &first_generator) free(s);
}

void tni_generator_return(const tn_call *call, tn_generator *gen) {
    struct tni_scratch **at = &tni_tls.scratch;
    if (call) gen = generator_of(call, gen);
    while (*at && (!gen || (*at)->generator != gen)) at = &(*at)->next;
    if (!*at) return; /* this thread holds no such generator */
    struct tni_scratch *s = *at;
    *at = s->next;
    give_back(s);
}

static bool is_of_outer(const struct tni_scratch *s, const tn_call *call) {
    const void *end = tni_os_stack_end();
    return s->call > call && (const void *)s->call < end;
}

static bool take_back(const tn_call *call) {
    bool held = false;
    struct tni_scratch *s;
    while ((s = tni_tls.scratch) && (s->call == call || !is_of_outer(s, call))) {
        held |= s->generator != NULL;
        tni_tls.scratch = s->next;
        give_back(s);
    }
    return held;
}

tn_status tni_loans_end(const tn_call *call, const char *plugin, tn_status st) {
    bool held = tni_tls.scratch && take_back(call);
    if (!held || st != TN_OK) return st;
    return tn_fail(TN_E_PLUGIN, -1,
                   "%s: the kernel of plugin '%s' returned and still holds a generator",
                   call->op->name, plugin);
}

/* ---- Flags ------------------------------------------------------------------------------------*/

static _Atomic uint32_t call_flags; /* TN_CALL_* of every call from now on */

uint32_t tni_call_flags(void) { return atomic_load_explicit(&call_flags, memory_order_relaxed); }

int tn_is_deterministic(void) { return (tni_call_flags() & TN_CALL_DETERMINISTIC) != 0; }

void tn_set_deterministic(int on) {
    if (on) atomic_store(&tni_any_special, true); /* the short way passes no flags */
    atomic_store(&call_flags, on ? TN_CALL_DETERMINISTIC : 0);
}

static _Atomic int unset_filled = 1;

int tn_is_unset_filled(void) { return atomic_load_explicit(&unset_filled, memory_order_relaxed); }

void tn_set_unset_filled(int on) { atomic_store(&unset_filled, on != 0); }

/* ---- Calls ------------------------------------------------------------------------------------*/

tn_status tni_kernel_after(const tn_cell *cell, tn_call *call, const void *args, tn_status st) {
    for (const tn_cell *next = cell; st == TN_DECLINE && (next = tni_cell_next(next)) != NULL;) {
        cell = next;
        call->ctx = cell->ctx;
        st = tni_caught(cell->fn(call, args));
    }
    st = tni_loans_end(call, cell->plugin->name, st);
    return st == TN_DECLINE ? st : tni_error_of_plugin(st, call->op->name, cell->plugin->name);
}

static bool blocking;
static tni_os_once blocking_once = TNI_OS_ONCE_INIT;

static void read_blocking(void) { blocking = tni_setting_is_on("TENON_LAUNCH_BLOCKING", false); }

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
