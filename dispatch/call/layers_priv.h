/* layers_priv.h: code above the kernels (layers.c), and the profiler, which is called like it (profiler.c). */
#ifndef TENON_LAYERS_PRIV_H
#define TENON_LAYERS_PRIV_H

#include "device_priv.h"

tn_status tni_layer_add(const tn_layer *layer, const tni_plugin *plugin, int32_t *ret_id);
int32_t tni_layer_find(const char *name); /* -1: none of that name */
void tni_layers_withdraw(const tni_plugin *plugin);
extern const tn_layer_iface tni_layer_iface;
tn_status tni_call_layered(const tn_op *op, void *args, tn_tensor **rets);

/* In tni_thread.layers; layers have the low bits. */
#define TNI_LAYER_PROFILER (UINT64_C(1) << 63)
#define TNI_LAYER_DEFERRED (UINT64_C(1) << 62) /* program/defer.c is asked first */
/* How many results of the thread's kernels got a size that follows from values. */
extern TN_TLS uint64_t tni_results_resized;
/* call(op, args, rets), recorded as a span. */
tn_status tni_profiled(const tn_op *op, void *args, tn_tensor **rets,
                       tn_status (*call)(const tn_op *op, void *args, tn_tensor **rets));

#endif
