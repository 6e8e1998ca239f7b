/* tenon/device.h: what a device may offer beyond its six functions. A part of tenon/plugin.h, which
 * includes it.
 *
 * Each is a table under a name, which the device's `query` returns. None is required: the line
 * "Without it" says what core does for a device that has no such table. Core asks for a table once,
 * when the device is registered, and copies it. A table that is shorter than the one below, or has a
 * NULL where the comment does not say "optional", counts as none, and core logs which member it was.
 *
 * In all of them: `ctx` is that of tn_device_desc, `device` the index, sizes and offsets are in bytes.
 * Streams, events, graphs and the like are handles of the device's own making; a NULL stream is
 * the device's default queue. Every function may be called from any thread. Functions that return a
 * tn_status report failures through tn_host.fail. */
#ifndef TENON_DEVICE_H
#define TENON_DEVICE_H

#include <stdint.h>

#include <tenon/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tn_view;
struct tn_plan;
struct tn_scalar;

/* ---- "tn.stream/1": queues of work beside the default one, and marks in them -------------------
 * Without it: the device has one queue; waiting for a stream or an event waits for the device. */
#define TN_EVENT_TIMING 0x1u
typedef struct tn_stream_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*create)(void *ctx, int32_t device, int32_t priority, void **ret_stream);
    void (*destroy)(void *ctx, int32_t device, void *stream); /* waits for its work */
    tn_status (*sync)(void *ctx, int32_t device, void *stream);
    tn_status (*done)(void *ctx, int32_t device, void *stream, int32_t *ret_done);
    tn_status (*wait_event)(void *ctx, int32_t device, void *stream, void *event);
    tn_status (*event_create)(void *ctx, int32_t device, uint32_t flags, void **ret_event);
    void (*event_destroy)(void *ctx, int32_t device, void *event);
    tn_status (*event_record)(void *ctx, int32_t device, void *event, void *stream);
    tn_status (*event_sync)(void *ctx, int32_t device, void *event);
    tn_status (*event_done)(void *ctx, int32_t device, void *event, int32_t *ret_done);
    tn_status (*event_elapsed)(void *ctx, int32_t device, void *start, void *end, double *ret_ms);
} tn_stream_iface;

/* ---- "tn.peer/1": copies between two devices of one kind that do not pass through the host ------
 * Work that is queued on either stream later finds the copy done, and the copy finds done what was
 * queued before. TN_DECLINE: these two cannot. Without it, and then: through host memory. */
typedef struct tn_peer_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*copy)(void *ctx, int32_t dst_device, void *dst, uint64_t dst_offset,
                      void *dst_stream, int32_t src_device, const void *src, uint64_t src_offset,
                      void *src_stream, uint64_t bytes);
} tn_peer_iface;

/* ---- "tn.allocator/1": memory that the device keeps for reuse itself ----------------------------
 * Core then calls these in place of alloc and free of tn_device_desc.
 *   alloc  for work on `stream`.
 *   free   later work on the stream that the block was made for may get the memory at once; other
 *          work may not before what was queued on the streams named by `use` is done.
 *   use    work on `stream`, not the one that the block was made for, has been queued that uses it.
 * Without it: core keeps freed blocks, by size and stream, above alloc and free
 * (TENON_MEMORY_CACHE=0 switches that off). */
typedef struct tn_allocator_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*alloc)(void *ctx, int32_t device, uint64_t bytes, void *stream, void **ret_data);
    void (*free)(void *ctx, int32_t device, void *data, uint64_t bytes);
    tn_status (*use)(void *ctx, int32_t device, void *data, void *stream);
} tn_allocator_iface;

/* ---- "tn.memory/1": statistics of the device's allocator ----------------------------------------
 * Without it: core counts what passes through its own hands. */
typedef struct tn_memory_stats {
    uint64_t allocated, allocated_peak; /* bytes in use by tensors */
    uint64_t reserved, reserved_peak;   /* bytes held from the system */
    uint64_t allocations, frees;        /* calls so far */
    uint64_t total, available;          /* bytes that there are, and of them free; 0: not known */
} tn_memory_stats;
typedef struct tn_memory_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*stats)(void *ctx, int32_t device, tn_memory_stats *ret_stats);
    tn_status (*reset_peak)(void *ctx, int32_t device);
    tn_status (*empty_cache)(void *ctx, int32_t device);
} tn_memory_iface;

/* ---- "tn.pinned/1": host memory that the device reaches by itself -------------------------------
 * The copies are those of tn_device_desc, but return before they are done; the host side is memory
 * that `alloc` made. Without it: memory on page boundaries, and copies that wait. */
typedef struct tn_pinned_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*alloc)(void *ctx, uint64_t bytes, void **ret_data);
    void (*free)(void *ctx, void *data, uint64_t bytes);
    tn_status (*copy_in)(void *ctx, int32_t device, void *dst, uint64_t dst_offset, const void *src,
                         uint64_t bytes, void *stream);
    tn_status (*copy_out)(void *ctx, int32_t device, void *dst, const void *src,
                          uint64_t src_offset, uint64_t bytes, void *stream);
} tn_pinned_iface;

/* ---- "tn.generator/1": random numbers by a method of the device's own ---------------------------
 * Kernels of the device find the generator in tn_rng.handle (kind TN_RNG_DEVICE). The state is at
 * most `state_bytes` long. Without it: Philox, whose numbers are the same on every device. */
typedef struct tn_generator_iface {
    uint32_t struct_size;
    uint32_t state_bytes;
    tn_status (*create)(void *ctx, int32_t device, uint64_t seed, void **ret_generator);
    void (*destroy)(void *ctx, int32_t device, void *generator);
    tn_status (*seed)(void *ctx, int32_t device, void *generator, uint64_t seed);
    tn_status (*get_state)(void *ctx, int32_t device, void *generator, void *ret_state);
    tn_status (*set_state)(void *ctx, int32_t device, void *generator, const void *state);
} tn_generator_iface;

/* ---- "tn.graph/1": work that is recorded once and launched often --------------------------------
 * Between begin and end what is queued on `stream` by the calling thread is recorded and not run; with
 * TN_GRAPH_BRANCHES also what is queued on streams that have waited for an event of a recorded one
 * meanwhile. Without the flag the thread may not change to another stream. Core calls only kernels with TN_K_CAPTURE_SAFE meanwhile, and keeps the memory that was allocated
 * for the graph's life, so that addresses hold. Without it: core records the operator calls and
 * makes them again, into the same tensors. */
#define TN_GRAPH_BRANCHES 0x1u
typedef struct tn_graph_iface {
    uint32_t struct_size;
    uint32_t flags; /* TN_GRAPH_* */
    tn_status (*begin)(void *ctx, int32_t device, void *stream);
    /* Also after a failure, then with ret_graph NULL: drops what was recorded. */
    tn_status (*end)(void *ctx, int32_t device, void *stream, void **ret_graph);
    tn_status (*launch)(void *ctx, int32_t device, void *graph, void *stream);
    void (*destroy)(void *ctx, int32_t device, void *graph); /* waits for its launches */
} tn_graph_iface;

/* ---- "tn.ipc/1": memory that another process opens ----------------------------------------------
 * `handle` is TN_IPC_HANDLE_BYTES of plain data that may be sent to the other process; `data` is
 * what alloc returned. TN_DECLINE: not this memory. Without it, and then: a copy through memory
 * that the host's processes share. */
#define TN_IPC_HANDLE_BYTES 128
typedef struct tn_ipc_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*share)(void *ctx, int32_t device, void *data, void *ret_handle);
    tn_status (*open)(void *ctx, int32_t device, const void *handle, void **ret_data);
    void (*close)(void *ctx, int32_t device, void *data);
} tn_ipc_iface;

/* ---- "tn.collectives/1": the devices of a group exchange data -----------------------------------
 * A group has `world` members; this process brings `n` of them, ranks first .. first + n - 1, on the
 * devices listed. `id` is what unique_id made in one of the processes; NULL when all members are
 * here. Each call below is made for all members of this process: src, dst and stream have n
 * entries. Tensors are contiguous, of one dtype and, where not said otherwise, of one size; dst may be
 * src. Queued, like kernels.
 *   all_reduce      dst = op over the members' src
 *   all_gather      dst (world times as large as src) = every member's src, by rank
 *   reduce_scatter  dst (1/world of src) = this rank's part of op over the members' src
 *   broadcast       dst = src of the rank `root`
 * TN_DECLINE: not this dtype or operation. Without it, and then: over the host, if all members are
 * in this process. */
#define TN_COLLECTIVE_SUM 0
#define TN_COLLECTIVE_AVG 1
#define TN_COLLECTIVE_PRODUCT 2
#define TN_COLLECTIVE_MIN 3
#define TN_COLLECTIVE_MAX 4
#define TN_GROUP_ID_BYTES 128
typedef struct tn_collectives_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*unique_id)(void *ctx, void *ret_id);
    tn_status (*create)(void *ctx, int32_t world, int32_t first, int32_t n, const int32_t *devices,
                        const void *id, void **ret_group);
    void (*destroy)(void *ctx, void *group);
    tn_status (*all_reduce)(void *ctx, void *group, const struct tn_view *const *src,
                            struct tn_view *const *dst, int32_t op, void *const *streams);
    tn_status (*all_gather)(void *ctx, void *group, const struct tn_view *const *src,
                            struct tn_view *const *dst, void *const *streams);
    tn_status (*reduce_scatter)(void *ctx, void *group, const struct tn_view *const *src,
                                struct tn_view *const *dst, int32_t op, void *const *streams);
    tn_status (*broadcast)(void *ctx, void *group, const struct tn_view *const *src,
                           struct tn_view *const *dst, int32_t root, void *const *streams);
} tn_collectives_iface;

/* ---- "tn.profiler/1": named spans of time that the vendor's tools show --------------------------
 * push and pop nest by thread. Without it: core's own record, by the host's clock. */
typedef struct tn_profiler_iface {
    uint32_t struct_size;
    uint32_t reserved;
    void (*push)(void *ctx, const char *name);
    void (*pop)(void *ctx);
    void (*mark)(void *ctx, const char *name);
} tn_profiler_iface;

/* ---- "tn.codegen/1": one kernel for an expression of pointwise operators ------------------------
 * Operand and node numbers: 0 .. ninputs-1 are the inputs, then come the nodes, each of which uses
 * numbers below its own. `outputs` picks the nodes that are results. `run` gets a plan whose operands
 * are the outputs and then the inputs, in the dtypes of the expression. TN_DECLINE from compile: not
 * this expression. Without it, and then: operator by operator. */
#define TN_EXPR_OPERANDS 4
typedef struct tn_expr_node {
    const char *op; /* the operator's name: "mul"; NULL: the number `value` */
    int32_t dtype;  /* slot of the result */
    int32_t noperands;
    int32_t operand[TN_EXPR_OPERANDS];
    const struct tn_scalar *value;
    /* From here on for "tn.codegen/2" alone. */
    const void *args;    /* the operator's argument struct; of a number: one element of `dtype` */
    uint64_t args_bytes; /* of the struct, or the element */
    uint64_t sig;        /* TN_SIG_<op> */
    int32_t compute;     /* slot of the dtype that the kernel would be looked up with */
    int32_t reserved;
} tn_expr_node;
typedef struct tn_expr {
    uint32_t struct_size;
    uint32_t node_size; /* from one of `nodes` to the next: later minors have more members */
    int32_t ninputs, nnodes, noutputs;
    int32_t reserved;
    const int32_t *input_dtypes; /* slots */
    const tn_expr_node *nodes;
    const int32_t *outputs;
} tn_expr;
typedef struct tn_codegen_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*compile)(void *ctx, int32_t device, const tn_expr *expr, void **ret_code);
    tn_status (*run)(void *ctx, int32_t device, void *code, const struct tn_plan *plan,
                     void *stream);
    void (*destroy)(void *ctx, int32_t device, void *code);
} tn_codegen_iface;

/* "tn.codegen/2": the same table, and nodes as core records them in programs. `args` has every
 * argument but the plan and the tensors, which compile copies if it needs them later; operator "_cast"
 * is a conversion to the node's dtype; there may be several outputs. A run that fails has computed
 * nothing: core calls operator by operator, which gives the failure its name. */

/* ---- "tn.program/1": parts of recorded programs as the device's own ------------------------------
 * A region is nodes of a program (tenon/program.h) that stand one after the other and have all their
 * tensors on one device. Core asks `takes` about each node, as a region of its own, and offers what
 * stands together to `compile`; TN_DECLINE from either: not this one. Not asked about: nodes that write,
 * draw random numbers or ran under autocast, sizes that may differ from run to run, and empty tensors.
 *
 * Values have numbers, inputs first. What is lent lives until the function returns, a constant as long as
 * the code. `run` gets the outputs and then the inputs, row-major, in the dtypes and shapes of the region.
 * It runs where nothing is recorded for gradients, in any thread. A run that fails has computed nothing:
 * core then calls operator by operator, which gives the failure its name. `takes` and `compile` are
 * called by one thread at a time. Without the table, and else: operator by operator. */
#define TN_REGION_NONE                                                                             \
    (-1) /* in a value's place: an argument that is not given, a result not made */
#define TN_REGION_NUMBER (-2) /* the node's number there */
typedef struct tn_region_value {
    int32_t dtype; /* slot */
    int32_t ndim;
    const int64_t *shape;
    const struct tn_view *constant; /* an input that never changes; NULL: any other value */
} tn_region_value;
typedef struct tn_region_node {
    const char *op;
    const void
        *args; /* the operator's argument struct without tensors and plan, lists of them by count */
    uint64_t args_bytes;
    uint64_t sig; /* TN_SIG_<op> */
    int32_t nin, nout;
    const int32_t *in;              /* values by tensor argument, lists flattened */
    const struct tn_scalar *number; /* by tensor argument; NULL: none is a number */
    const int32_t *out;             /* values by result */
} tn_region_node;
typedef struct tn_region {
    uint32_t struct_size;
    uint32_t value_size,
        node_size; /* from one of them to the next: later minors have more members */
    int32_t ninputs, nvalues, nnodes, noutputs;
    int32_t reserved;
    const tn_region_value *values;
    const tn_region_node *nodes;
    const int32_t *outputs;
} tn_region;
typedef struct tn_program_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*takes)(void *ctx, int32_t device, const tn_region *node);
    tn_status (*compile)(void *ctx, int32_t device, const tn_region *region, void **ret_code);
    tn_status (*run)(void *ctx, int32_t device, void *code, const struct tn_view *const *values,
                     void *stream);
    void (*destroy)(void *ctx, int32_t device, void *code);
} tn_program_iface;

/* ---- "tn.threads/1": the device's worker pool ---------------------------------------------------
 * Without it: one thread. */
typedef struct tn_threads_iface {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*get)(void *ctx);
    tn_status (*set)(void *ctx, int32_t threads); /* 1 .. 1024 */
    /* Runs body(arg, begin, end) over [0, n) in chunks of at least `grain`; the split does not
     * depend on the number of threads. Returns the first failure. */
    tn_status (*parallel)(void *ctx, int64_t n, int64_t grain,
                          tn_status (*body)(void *arg, int64_t begin, int64_t end), void *arg);
} tn_threads_iface;

#ifdef __cplusplus
}
#endif

#endif
