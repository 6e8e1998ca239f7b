/* tenon/device_ext.h: what a device may offer beyond memory, copies and kernels, for programs. What a
 * device does not offer itself (tenon/device.h), core does in another way, the CPU included. */
#ifndef TENON_DEVICE_EXT_H
#define TENON_DEVICE_EXT_H

#include <tenon/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The current device ------------------------------------------------------------------------
 * Which of several devices of a kind a name without an index ("acme") stands for on the calling
 * thread: 0 until it is set. */
TN_API int32_t tn_device_current(int32_t slot);
TN_API tn_status tn_device_set_current(tn_device device);

/* ---- The same bits every time -------------------------------------------------------------------
 * Whether kernels of the process must give the same bits whenever they are given the same input
 * (TN_CALL_DETERMINISTIC), which may take longer on devices whose threads add up as they come. The
 * CPU's always do. A captured call keeps what was set when it was captured. */
TN_API void tn_set_deterministic(int on);
TN_API int tn_is_deterministic(void);
/* Whether what the operators `empty`, `empty_like`, ... leave unset is filled meanwhile, with NaN,
 * the largest integer or true; it is unless somebody says otherwise. */
TN_API void tn_set_unset_filled(int on);
TN_API int tn_is_unset_filled(void);

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

/* ---- Memory that processes share ---------------------------------------------------------------
 * Moves the memory of a CPU tensor to where other processes can map it, unless it is there. Its base
 * and views move along; TN_E_STATE where others look at the same memory. Not while another thread
 * uses them. Tensors of devices are left as they are. */
TN_API tn_status tn_tensor_share_memory(tn_tensor *t);
TN_API int tn_tensor_in_shared_memory(const tn_tensor *t);
/* Writes TN_SHARE_HANDLE_BYTES of plain data by which another process of the same user opens the memory
 * of t. Both see the same memory where t is in shared memory or its device has "tn.ipc/1", and must not
 * outlive it there; else the other gets a copy.
 * *ret_file: an open file that the caller closes when the other has opened it, or -1. Shared memory and
 * copies are kept until the handle was opened once, whatever becomes of t. */
#define TN_SHARE_HANDLE_BYTES 256
TN_API tn_status tn_tensor_share(const tn_tensor *t, void *ret_handle, int32_t *ret_file);
/* All bytes of that memory, as uint8; tn_tensor_alias makes a tensor of them. file: the one of
 * tn_tensor_share where it was handed over, too, or -1. TN_E_VALUE for what is no such handle. */
TN_API tn_status tn_tensor_open_shared(const void *handle, int32_t file, tn_tensor **ret_bytes);

/* ---- Collectives -------------------------------------------------------------------------------
 * Devices that exchange data. A group has `world` ranks; this process has the ranks first .. first +
 * n - 1, on the devices given. Groups within one process work on all devices, through host memory where
 * a kind has no "tn.collectives/1"; across processes only with it, and `id` is then what
 * tn_group_unique_id made in one of them (NULL otherwise).
 *
 * The calls take one source and one destination for each rank of this process, contiguous, of one
 * dtype, on the rank's device; a destination may be its source. `op` is TN_COLLECTIVE_*. Low
 * precision is summed up in float; an average of integers is rounded towards zero. Nothing is recorded
 * for gradients. */
typedef struct tn_group tn_group;
/* Room for TN_GROUP_ID_BYTES. TN_E_UNSUPPORTED: the device has no "tn.collectives/1". */
TN_API tn_status tn_group_unique_id(tn_device device, void *ret_id);
TN_API tn_status tn_group_new(const tn_device *devices, int32_t n, int32_t world, int32_t first,
                              const void *id, tn_group **ret_group);
TN_API void tn_group_free(tn_group **g);
/* dst = op over all sources */
TN_API tn_status tn_group_all_reduce(tn_group *g, tn_tensors src, tn_tensors dst, int32_t op);
/* dst, world times as large = all sources, by rank */
TN_API tn_status tn_group_all_gather(tn_group *g, tn_tensors src, tn_tensors dst);
/* dst = its rank's part of op over all sources, which are world times as large */
TN_API tn_status tn_group_reduce_scatter(tn_group *g, tn_tensors src, tn_tensors dst, int32_t op);
/* dst = the source of rank `root` */
TN_API tn_status tn_group_broadcast(tn_group *g, tn_tensors src, tn_tensors dst, int32_t root);

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
