/* layers.c: code that sees operator calls above the kernels, of programs and of plugins.
 *
 * A thread's layers are one word, so a call without any costs one branch. A layer never moves: its id
 * is its place in the table, and a layer that is withdrawn leaves a place that runs nothing. */
#include <stdlib.h>

#include "call_priv.h"
#include "layers_priv.h"
#include "os_priv.h"

TN_TLS uint64_t tni_results_resized;

enum { MAX_LAYERS = 16 };

typedef tn_status (*layer_fn)(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                              tn_tensor **rets);
typedef struct entry {
    char name[48];
    int32_t priority;
    void *ctx;
    const tni_plugin *plugin; /* NULL: of the program */
    _Atomic(layer_fn) call;   /* published last; NULL: withdrawn */
} entry;

static entry layers[MAX_LAYERS]; /* by id */
static _Atomic int layer_count;
static tni_os_mutex layer_lock = TNI_OS_MUTEX_INIT;

/* The layers still to run, as a mask over ids. */
struct tn_layer_call {
    uint64_t left;
    bool went_on; /* somebody has called tn_layer_next with it */
};

static int count(void) { return atomic_load_explicit(&layer_count, memory_order_acquire); }
static layer_fn call_of(int id) {
    return atomic_load_explicit(&layers[id].call, memory_order_acquire);
}

int32_t tni_layer_find(const char *name) {
    int id = count() - 1;
    while (id >= 0 && (!call_of(id) || strcmp(layers[id].name, name) != 0)) id--;
    return id;
}

/* The place of a layer that was withdrawn and comes back, else a new one; -1: there is none. */
static int place_for(const char *name) {
    int n = count(), id = 0;
    while (id < n && strcmp(layers[id].name, name) != 0) id++;
    if (id < n) return call_of(id) ? -1 : id;
    return n < MAX_LAYERS ? n : -1;
}

tn_status tni_layer_add(const tn_layer *layer, const tni_plugin *plugin, int32_t *ret_id) {
    size_t bytes = layer && layer->name ? strlen(layer->name) + 1 : 0;
    if (bytes < 2 || bytes > sizeof layers[0].name || !layer->call)
        return tn_fail(TN_E_VALUE, 0, "a layer needs a function and a name of 1 to %d characters",
                       (int)sizeof layers[0].name - 1);
    tni_os_lock(&layer_lock);
    int id = place_for(layer->name);
    if (id >= 0) {
        entry *e = &layers[id];
        memcpy(e->name, layer->name, bytes);
        e->priority = layer->priority;
        e->ctx = layer->ctx;
        e->plugin = plugin;
        atomic_store_explicit(&e->call, layer->call, memory_order_release);
        if (id == count()) atomic_store_explicit(&layer_count, id + 1, memory_order_release);
    }
    tni_os_unlock(&layer_lock);
    if (id < 0)
        return tn_fail(TN_E_STATE, -1,
                       "layer '%s' cannot be added: the name is taken, or there "
                       "are %d layers already",
                       layer->name, MAX_LAYERS);
    *ret_id = id;
    return TN_OK;
}

tn_status tn_layer_register(const tn_layer *layer, int32_t *ret_id) {
    return tni_layer_add(layer, NULL, ret_id);
}

void tni_layers_withdraw(const tni_plugin *plugin) {
    tni_os_lock(&layer_lock);
    for (int id = 0; id < count(); id++)
        if (layers[id].plugin == plugin)
            atomic_store_explicit(&layers[id].call, NULL, memory_order_release);
    tni_os_unlock(&layer_lock);
}

tn_status tn_layer_find(const char *name, int32_t *ret_id) {
    return tni_offers.find(TNI_OFFER_LAYER, name, tni_layer_find, ret_id);
}

int tn_layer_enable(int32_t id, int on) {
    if (id < 0 || id >= count()) return 0;
    uint64_t bit = UINT64_C(1) << id;
    int old = (tni_tls.layers & bit) != 0;
    tni_tls.layers = on ? tni_tls.layers | bit : tni_tls.layers & ~bit;
    return old;
}

/* What a layer of a plugin returned, and whether it made the results that it says it made. */
static tn_status check_layer(tn_status st, const entry *layer, bool went_on, const tn_op *op,
                             tn_tensor *const *rets) {
    if (st != TN_OK)
        return layer->plugin ? tni_error_of_plugin(st, op->info.name, layer->plugin->name) : st;
    if (went_on || op->nout == 0 || tni_returns_list(op)) return TN_OK;
    for (int i = 0; i < op->nout; i++)
        if (rets[i]) return TN_OK;
    return tn_fail(TN_E_PLUGIN, -1, "%s: layer '%s' neither went on nor made a result",
                   op->info.name, layer->name);
}

tn_status tn_layer_next(tn_layer_call *next, const tn_op_info *op, void *args, tn_tensor **rets) {
    const tn_op *o = (const tn_op *)(const void *)op;
    int best = -1;
    next->went_on = true;
    for (int i = 0; i < MAX_LAYERS; i++)
        if ((next->left >> i & 1u) && call_of(i) &&
            (best < 0 || layers[i].priority > layers[best].priority))
            best = i;
    layer_fn fn = best < 0 ? NULL : call_of(best);
    if (!fn) return tni_op_run(o, args, rets);
    tn_layer_call rest = {.left = next->left & ~(UINT64_C(1) << best)};
    tn_status st = tni_caught(fn(layers[best].ctx, &rest, op, args, rets));
    return check_layer(st, &layers[best], rest.went_on, o, rets);
}

static tn_status call_layers(const tn_op *op, void *args, tn_tensor **rets) {
    const uint64_t others = TNI_LAYER_PROFILER | TNI_LAYER_DEFERRED;
    uint64_t before = tni_tls.layers;
    tn_layer_call first = {.left = before & ~others};
    tni_results_clear(op, rets);
    /* what a layer itself computes is not seen by the layers again */
    tni_tls.layers &= TNI_LAYER_PROFILER;
    tn_status st = tn_layer_next(&first, &op->info, args, rets);
    tni_tls.layers = (before & ~TNI_LAYER_PROFILER) | (tni_tls.layers & TNI_LAYER_PROFILER);
    return st;
}

tn_status tni_call_layered(const tn_op *op, void *args, tn_tensor **rets) {
    if (tni_tls.layers & TNI_LAYER_DEFERRED) {
        tn_status st = tni_late.put_off(op, args, rets);
        if (st != TN_DECLINE) return st;
    }
    if (tni_tls.layers == TNI_LAYER_DEFERRED) { /* parts of a call do not wait */
        tni_tls.layers = 0;
        tn_status st = tni_op_run(op, args, rets);
        tni_tls.layers = TNI_LAYER_DEFERRED;
        return st;
    }
    bool profiled = tni_tls.layers & TNI_LAYER_PROFILER;
    return profiled ? tni_profiled(op, args, rets, call_layers) : call_layers(op, args, rets);
}

/* ---- For plugins: "tn.layer/1" -----------------------------------------------------------------*/

static tn_status iface_next(tn_layer_call *next, const tn_op_info *op, void *args, tn_view **rets) {
    return tn_layer_next(next, op, args, (tn_tensor **)(void *)rets);
}

static int32_t iface_inputs(const tn_op_info *op, const void *args, tn_view **ret, int32_t max) {
    const tn_op *o = (const tn_op *)(const void *)op;
    return tni_op_inputs(o, args, (tn_tensor **)(void *)ret, max);
}

static int32_t iface_results(const tn_op_info *op, tn_view *const *rets, tn_view **ret,
                             int32_t max) {
    tni_span s = tni_results((const tn_op *)(const void *)op, (tn_tensor **)(uintptr_t)rets);
    for (int64_t i = 0; i < s.n && i < max; i++) ret[i] = s.v[i] ? &s.v[i]->v : NULL;
    return (int32_t)s.n;
}

const tn_layer_iface tni_layer_iface = {
    .struct_size = sizeof(tn_layer_iface),
    .next = iface_next,
    .inputs = iface_inputs,
    .results = iface_results,
};
