/* profiler_priv.h: operator calls of a thread that is profiled (profiler.c). */
#ifndef TENON_PROFILER_PRIV_H
#define TENON_PROFILER_PRIV_H

#include "core_priv.h"

/* In tni_thread.layers; layers have the low bits. */
#define TNI_LAYER_PROFILER (UINT64_C(1) << 63)

typedef struct tni_open_span tni_open_span;

/* call(op, args, rets), recorded as a span. */
tn_status tni_profiled(const tn_op *op, void *args, tn_tensor **rets,
                       tn_status (*call)(const tn_op *op, void *args, tn_tensor **rets));

#endif
