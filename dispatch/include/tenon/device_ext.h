/* tenon/device_ext.h: what a device may offer beyond memory, copies and kernels, for programs. What a
 * device does not offer itself (tenon/device.h), core does in another way, the CPU included. */
#ifndef TENON_DEVICE_EXT_H
#define TENON_DEVICE_EXT_H

#include <tenon/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Graphs ------------------------------------------------------------------------------------
 * Work that is recorded once and made again often: the same kernels on the same memory, without
 * looking at shapes, dtypes or gradients again. What a graph reads anew is what was copied into the
 * tensors that it was captured with.
 *
 * Between begin and end all work of the calling thread is recorded. When it ends, tensors that
 * existed before and random number generators are as they were; tensors that were made meanwhile
 * hold nothing before the first replay. Random numbers are drawn anew by each replay. Values must not be read in
 * between, and nothing must wait: such a call fails, and so does the end. All memory that was used
 * lives as long as the graph.
 *
 * On a device with "tn.graph/1" only that device's work is recorded, by itself, and is not run. */
typedef struct tn_graph tn_graph;
TN_API tn_status tn_graph_new(tn_graph **ret_graph);
TN_API tn_graph *tn_graph_ref(tn_graph *g);
TN_API void tn_graph_unref(tn_graph **g);
/* The thread's work goes to `stream` meanwhile; NULL: to one of the graph's own, where the device has
 * streams. A thread captures one graph at a time. */
TN_API tn_status tn_graph_begin(tn_graph *g, tn_device device, tn_stream *stream);
/* By the thread that began. A graph whose end fails is empty. */
TN_API tn_status tn_graph_end(tn_graph *g);
/* Ends the capture without keeping anything. */
TN_API tn_status tn_graph_cancel(tn_graph *g);
/* From any thread, one at a time; queued on the calling thread's streams. */
TN_API tn_status tn_graph_replay(tn_graph *g);
/* Releases what the graph holds; it can capture again. */
TN_API tn_status tn_graph_reset(tn_graph *g);
/* Whether the calling thread's work is being captured. */
TN_API int tn_graph_is_capturing(void);
/* For whoever reads memory by itself: TN_E_STATE when t's values are not there before a replay. */
TN_API tn_status tn_graph_check_read(const tn_tensor *t);

/* ---- The profiler ------------------------------------------------------------------------------
 * What ran when, by the host's clock: operator calls, also those that others are made of, and spans
 * that programs name. Devices with "tn.profiler/1" are told of both. One recording at a time, of the
 * process; operator calls are recorded on the thread that starts, and on a thread that enters a span
 * meanwhile. */
#define TN_SPAN_OP 0
#define TN_SPAN_RANGE 1
#define TN_SPAN_MARK 2
typedef struct tn_span {
    const char *name; /* kept until the next recording starts */
    int64_t start_ns, duration_ns;
    int64_t thread; /* the system's number */
    int64_t kind;   /* TN_SPAN_* */
} tn_span;
TN_API tn_status tn_profiler_start(void);
TN_API tn_status tn_profiler_stop(void);
TN_API int tn_profiler_is_running(void);
/* Span i of the last recording, in the order in which they ended; TN_E_INDEX after the last. */
TN_API tn_status tn_profiler_at(int64_t i, tn_span *ret_span);
/* Spans of the calling thread, which nest. Without a recording only devices are told. */
TN_API tn_status tn_profiler_push(const char *name);
TN_API tn_status tn_profiler_pop(void);
TN_API tn_status tn_profiler_mark(const char *name);

#ifdef __cplusplus
}
#endif
#endif
