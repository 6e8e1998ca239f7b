/* tenon/plugin.h: the door. All that a device backend or an operator plugin may know of Tenon.
 *
 * A plugin is a shared object that links nothing of ours. It exports one function,
 *
 *     TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);
 *
 * which fills *ret_plugin and registers nothing yet. The host copies what was filled, then calls
 * plugin->activate(host, txn), which registers devices, dtypes and kernels inside one
 * transaction: all of them become visible at once when it returns TN_OK, or none of them.
 *
 * Rules of this header (docs/plugin-abi.md has the reasons):
 *   - C11 and C++ clean, fixed-width types, no implicit padding, 64-bit targets only.
 *   - Every table starts with its size and only grows at its end; sizes are looked at once, when
 *     the table is copied, never during a call.
 *   - Optional abilities are named interfaces with their own version ("tn.stream/1").
 *   - Kernels and alloc/free may be called from any thread at any time; registration happens only
 *     inside activate.
 *   - abi.lock records every offset and constant below; a test recomputes it. */
#ifndef TENON_PLUGIN_H
#define TENON_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include <tenon/device.h>
#include <tenon/dtype.h>
#include <tenon/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_ABI_MAJOR 1
#define TN_ABI_MINOR 2
/* The oldest minor that the plugin shall work with: define it before the include to serve older hosts
 * as well, and use nothing that came later. */
#ifndef TN_ABI_TARGET
#define TN_ABI_TARGET TN_ABI_MINOR
#endif

#define TN_PLUGIN_ENTRY "tn_plugin_entry_v1"
#if defined(__GNUC__)
#define TN_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define TN_PLUGIN_EXPORT
#endif

#define TN_MAX_DIMS 64     /* most dimensions of a tensor */
#define TN_MAX_OPERANDS 8  /* most tensors of one plan, outputs included */
#define TN_DEVICE_SLOTS 32 /* device kinds in one process; slot 0 is the CPU */

/* ---- The tensor prefix -------------------------------------------------------------------------
 * The first 64 bytes of every tensor. From `data` on it is a DLPack DLTensor, so a kernel written
 * for DLPack takes &view->data as it is. Element (i0, i1, ...) of a tensor on an addressable
 * device lies at (char *)data + itemsize * (i0 * strides[0] + i1 * strides[1] + ...), and
 * byte_offset is 0 there; a device without TN_DEV_ADDRESSABLE gets its handle in `data` and the
 * offset of element 0 in `byte_offset`. */
typedef struct tn_view {
    uint64_t word;     /* the dispatch word, TN_W_* below */
    int64_t numel;     /* number of elements */
    void *data;        /* element 0, or the device's handle */
    int32_t dl_device; /* DLPack device type */
    int32_t dl_index;  /* device index */
    int32_t ndim;      /* 0 .. TN_MAX_DIMS */
    uint8_t dl_code;   /* DLPack type code */
    uint8_t dl_bits;   /* bits of one element */
    uint16_t dl_lanes; /* always 1 */
    int64_t *shape;    /* ndim sizes, each >= 0 */
    int64_t *strides;  /* ndim strides, in elements; may be 0 or negative */
    uint64_t byte_offset;
} tn_view;

/* The dispatch word. Two tensors are alike for dispatch when ((a ^ b) & TN_W_ALIKE) == 0, and
 * neither wants special treatment when ((a | b) & TN_W_SPECIAL) == 0. */
#define TN_W_DTYPE UINT64_C(0x00000000000000ff)         /* dtype slot */
#define TN_W_DEVICE UINT64_C(0x000000000000ff00)        /* device slot */
#define TN_W_INDEX UINT64_C(0x0000000000ff0000)         /* device index */
#define TN_W_CONTIGUOUS UINT64_C(0x0000000001000000)    /* row-major, no gaps */
#define TN_W_CHANNELS_LAST UINT64_C(0x0000000002000000) /* NHWC (or NDHWC) dense, rank 4 (or 5) */
#define TN_W_DENSE UINT64_C(0x0000000004000000)         /* no gaps, no overlap, some axis order */
#define TN_W_READONLY UINT64_C(0x0000000010000000)      /* memory must not be written */
#define TN_W_GRAD UINT64_C(0x0000000100000000)          /* requires a gradient */
#define TN_W_OVERRIDE UINT64_C(0x0000000200000000)      /* the host language overrides operators */
#define TN_W_SCALAR UINT64_C(0x0000000400000000)        /* a number that stands as a 0-d tensor */
#define TN_W_INFERENCE UINT64_C(0x0000000800000000)     /* made in inference mode */
#define TN_W_LEAFVIEW UINT64_C(0x0000001000000000)      /* a tracked view of another tensor */

#define TN_W_ALIKE (TN_W_DTYPE | TN_W_DEVICE | TN_W_INDEX)
#define TN_W_SPECIAL (TN_W_OVERRIDE)

static inline int32_t tn_view_dtype(const tn_view *v) { return (int32_t)(v->word & TN_W_DTYPE); }
static inline int32_t tn_view_device(const tn_view *v) {
    return (int32_t)((v->word & TN_W_DEVICE) >> 8);
}
static inline int32_t tn_view_index(const tn_view *v) {
    return (int32_t)((v->word & TN_W_INDEX) >> 16);
}
static inline int64_t tn_view_itemsize(const tn_view *v) { return v->dl_bits / 8; }
static inline int32_t tn_view_is_contiguous(const tn_view *v) {
    return (v->word & TN_W_CONTIGUOUS) != 0;
}

/* ---- Scalars -----------------------------------------------------------------------------------
 * A number that belongs to no tensor. `kind` is a tn_category. */
typedef struct tn_scalar {
    int32_t kind;
    int32_t reserved;
    int64_t i; /* bool and int: the value; float and complex: the value rounded towards zero */
    double re; /* the value as double, or the real part */
    double im; /* the imaginary part, else 0 */
} tn_scalar;

/* ---- Other argument types of the argument structs ----------------------------------------------*/
typedef struct tn_opt_int {
    int64_t value;
    int64_t has; /* 0: not given */
} tn_opt_int;
typedef struct tn_opt_float {
    double value;
    int64_t has;
} tn_opt_float;
typedef struct tn_ints {
    const int64_t *v;
    int64_t n; /* -1: not given */
} tn_ints;
typedef struct tn_views {
    tn_view *const *v; /* entries may be NULL only where the operator says so */
    int64_t n;
} tn_views;
#define TN_SCALAR_NONE (-1) /* tn_scalar.kind of an optional scalar that is not given */

/* ---- The iteration plan ------------------------------------------------------------------------
 * What a pointwise or reduction kernel walks over. Core broadcasts (stride 0), promotes, sorts the
 * dimensions by stride and merges those that can be merged; dimension 0 is the fastest. Operands
 * are the outputs first, then the inputs in the order of the operator's signature.
 *
 * A map: outputs have no stride 0. A reduction: bit d of `reduce_mask` says that dimension d is
 * reduced (the outputs' stride is 0 there). An operand whose bit is set in `scalar_mask` is a single
 * host value, already of the operand's dtype, that `data` points to in host memory (strides 0). */
typedef struct tn_plan {
    int32_t ndim;      /* >= 1, unless numel is 0 */
    int32_t noperands; /* outputs + inputs */
    int32_t noutputs;
    uint32_t flags;       /* TN_PLAN_* */
    uint32_t scalar_mask; /* by operand */
    uint32_t reserved;
    uint64_t reduce_mask; /* by dimension */
    int64_t numel;        /* iterations: product of shape[0 .. ndim-1] */
    void *data[TN_MAX_OPERANDS];
    uint64_t offset[TN_MAX_OPERANDS]; /* bytes; 0 on addressable devices */
    uint8_t dtype[TN_MAX_OPERANDS];
    int64_t shape[TN_MAX_DIMS];
    int64_t stride[TN_MAX_DIMS][TN_MAX_OPERANDS]; /* bytes; [dimension][operand] */
} tn_plan;

#define TN_PLAN_FLAT 0x1u /* ndim is 1; every operand is packed or a scalar */

/* A plan, row by row, for kernels that look at one element at a time:
 *
 *     tn_rows r;
 *     for (tn_rows_start(&r, a->plan); tn_rows_next(&r);)
 *         for (int64_t i = 0; i < r.n; i++)
 *             *TN_ROW(float, r, 0, i) = f(*TN_ROW(const float, r, 1, i));
 *
 * Operand 0 is the result, the inputs follow. Needs addressable memory. */
typedef struct tn_rows {
    int64_t n;             /* elements of the row */
    const int64_t *stride; /* in bytes, by operand */
    char *data[TN_MAX_OPERANDS];
    const tn_plan *plan;
    int64_t left; /* rows to come */
    int64_t at[TN_MAX_DIMS];
} tn_rows;
#define TN_ROW(type, r, operand, i)                                                                \
    ((type *)(void *)((r).data[operand] + (i) * (r).stride[operand]))

/* Goes in front of the first row. */
static inline void tn_rows_start(tn_rows *r, const tn_plan *p) {
    r->n = p->ndim > 0 ? p->shape[0] : 1;
    r->stride = p->stride[0];
    r->plan = p;
    r->left = p->numel > 0;
    r->at[0] = -1;
    for (int32_t d = 1; d < p->ndim; d++) {
        r->left *= p->shape[d];
        r->at[d] = 0;
    }
    for (int32_t k = 0; k < p->noperands; k++) r->data[k] = (char *)p->data[k];
}

/* Goes to the next row; 0 when there is none. */
static inline int32_t tn_rows_next(tn_rows *r) {
    const tn_plan *p = r->plan;
    if (r->left-- <= 0) return 0;
    if (r->at[0] < 0) {
        r->at[0] = 0;
        return 1;
    }
    for (int32_t d = 1; d < p->ndim; d++) {
        int64_t back = ++r->at[d] < p->shape[d] ? 0 : p->shape[d];
        for (int32_t k = 0; k < p->noperands; k++)
            r->data[k] += p->stride[d][k] - back * p->stride[d][k];
        if (!back) break;
        r->at[d] = 0;
    }
    return 1;
}

/* ---- Calls -------------------------------------------------------------------------------------
 * A kernel gets the call and the operator's argument struct, tn_<op>_args in tenon/op_args.h,
 * whose outputs core has already allocated, checked for overlap and shaped. */
struct tn_host;
struct tn_op_info;
typedef struct tn_call {
    const struct tn_host *host;
    void *ctx;    /* the registered row's ctx */
    void *stream; /* the device's current stream, or NULL */
    const struct tn_op_info *op;
    int32_t device_index;
    int32_t dtype;  /* the slot the kernel was looked up with */
    uint32_t flags; /* TN_CALL_* */
    uint32_t device_slot;
} tn_call;

#define TN_CALL_DETERMINISTIC 0x1u

typedef tn_status (*tn_kernel_fn)(const tn_call *call, const void *args);

/* What a plugin may know of an operator. */
typedef struct tn_op_info {
    uint32_t struct_size;
    uint32_t kind; /* TN_OP_* */
    const char *name;
    const char *schema; /* the signature text of the entry */
    uint64_t sig;       /* hash of the argument struct's layout: TN_SIG_<op> */
} tn_op_info;

#define TN_OP_POINTWISE 0u
#define TN_OP_REDUCTION 1u
#define TN_OP_STRUCTURED 2u
#define TN_OP_COMPOSITE 3u
#define TN_OP_VIEW 4u

/* One kernel. `dtype` is a slot, or TN_DTYPE_ANY for a kernel that reads it from its arguments. */
typedef struct tn_kernel_row {
    const char *op;
    uint64_t sig; /* TN_SIG_<op>; may be 0 for an operator that the plugin itself adds */
    tn_kernel_fn fn;
    void *ctx;
    int32_t dtype;
    int32_t priority; /* the highest runs first; equal: the plugin's name decides */
    uint32_t flags;   /* TN_K_* */
    uint32_t reserved;
} tn_kernel_row;

#define TN_DTYPE_ANY (-1)
#define TN_K_CAPTURE_SAFE 0x1u /* may run inside a captured graph */
#define TN_K_NONDETERMINISTIC 0x2u

/* ---- Random numbers ----------------------------------------------------------------------------
 * A generator is core's. A kernel asks for a reservation and draws from it. */
#define TN_RNG_PHILOX 0u
#define TN_RNG_MT19937 1u
#define TN_RNG_DEVICE 2u /* of the device's "tn.generator/1" */
typedef struct tn_rng {
    uint32_t kind; /* TN_RNG_* */
    uint32_t reserved;
    uint64_t seed;        /* Philox key */
    uint64_t offset;      /* Philox: first counter of the reservation (128-bit blocks) */
    uint32_t *mt_state;   /* mt19937: 624 words, the kernel advances them */
    int32_t *mt_left;     /* words left before the next twist */
    int32_t *mt_next;     /* index of the next word */
    int32_t *cache_flags; /* bit 0: next_normal_f32 valid; bit 1: next_normal_f64 valid */
    float *next_normal_f32;
    double *next_normal_f64;
    void *handle; /* the device's own generator */
} tn_rng;

/* ---- Devices -----------------------------------------------------------------------------------
 * Six functions are required. `device` is the index, 0 .. count-1. Sizes are bytes. `stream` is a
 * handle that the device's "tn.stream/1" made, or NULL for its default queue.
 *   alloc, free   any thread, any time. Freed memory may still be read by work that was queued
 *                 before: a device with queues puts off its reuse until that work is done.
 *   copy_in       queued after the stream's earlier work; src may change once it returns.
 *   copy_out      waits for the stream's earlier work; dst holds the bytes once it returns.
 *   copy_within   within one device, ranges that do not overlap; queued.
 *   sync          waits for everything; reports the first error of work that ran behind the host's
 *                 back, with the operator's name where the device knows it. */
#define TN_DEV_ADDRESSABLE 0x1u /* pointers may be offset by the host (CPU, CUDA) */
#define TN_DEV_HOST 0x2u        /* the host may read and write the memory */

typedef struct tn_device_desc {
    uint32_t struct_size;
    uint32_t flags;    /* TN_DEV_* */
    const char *name;  /* "acme": what users type */
    int32_t dl_device; /* DLPack device type; 12 (extension) when it has none */
    int32_t count;
    void *ctx; /* passed back to every function below */
    tn_status (*alloc)(void *ctx, int32_t device, uint64_t bytes, void **ret_data);
    void (*free)(void *ctx, int32_t device, void *data, uint64_t bytes);
    tn_status (*copy_in)(void *ctx, int32_t device, void *dst, uint64_t dst_offset, const void *src,
                         uint64_t bytes, void *stream);
    tn_status (*copy_out)(void *ctx, int32_t device, void *dst, const void *src,
                          uint64_t src_offset, uint64_t bytes, void *stream);
    tn_status (*copy_within)(void *ctx, int32_t device, void *dst, uint64_t dst_offset,
                             const void *src, uint64_t src_offset, uint64_t bytes, void *stream);
    tn_status (*sync)(void *ctx, int32_t device);
    const char *(*describe)(void *ctx, int32_t device); /* optional: one line for people */
    const void *(*query)(void *ctx, const char *iface); /* optional: the tables of device.h */
} tn_device_desc;

/* ---- dtypes that plugins add -------------------------------------------------------------------*/
typedef struct tn_dtype_desc {
    uint32_t struct_size;
    uint32_t bits; /* a multiple of 8 */
    const char *name;
    int32_t category; /* tn_category */
    int32_t rank;     /* among its category: a higher rank wins promotion */
    void (*to_f32)(const void *src, float *dst, int64_t n);
    void (*from_f32)(const float *src, void *dst, int64_t n);
} tn_dtype_desc;

/* ---- Operators that plugins add ----------------------------------------------------------------
 * Registered in activate, and from then on like any other: called from every language, recorded,
 * differentiated, on every device. docs/plugins.md is the tutorial.
 *
 * `schema` is the signature, in the language of Tenon's own table (docs/op-table.md):
 *
 *     acme::gelu(Tensor input, *, float alpha=1.0) -> Tensor
 *
 * acme::gelu@2(...) is a second version: the name without a number means the newest, and programs
 * that ask for acme::gelu@1 get that, which may be a composite over the second.
 *
 * The argument struct that kernels get follows from it: `const tn_plan *plan`, then each argument
 * in order, then each result as `tn_view *`. The types:
 *
 *     Tensor, Operand (a tensor or a number)  const tn_view *; Tensor? may be NULL
 *     Tensor[]                                tn_views
 *     Tensor(int64), Tensor(bool)?, ...       the same; another dtype is an error. (any): no check
 *     int, bool, Dim, DType, Device?, Format  int64_t
 *     float                                   double
 *     int?, Dim? / float?                     tn_opt_int / tn_opt_float
 *     int[], int[2], Dims                     tn_ints
 *     Scalar, Scalar?                         tn_scalar
 *     str, str?                               const char *
 *     Generator?                              tn_generator *
 *
 * A result is a Tensor, or Tensor[] (then `count` says how many); `-> ()` has none and needs an
 * argument that is written, Tensor!.
 *
 * A formula is an expression over the arguments, numbers, + - * / ** and calls of operators, built
 * in or added: "x * (1 + erf(x / 1.4142135623730951)) / 2". Where there are several results, a
 * call's are picked by [0], [1], and formulas are given by name: "y: ...; z: ...". */
typedef struct tn_out_shape {
    int32_t dtype; /* what the dtype rule says; may be changed */
    int32_t ndim;
    int64_t shape[TN_MAX_DIMS];
} tn_out_shape;

struct tn_host;
typedef struct tn_op_desc {
    uint32_t struct_size;
    uint32_t kind;       /* TN_OP_POINTWISE, TN_OP_REDUCTION, TN_OP_STRUCTURED, TN_OP_COMPOSITE */
    uint32_t flags;      /* TN_OPF_* */
    uint32_t args_bytes; /* sizeof of the plugin's own argument struct, checked; 0: no kernels */
    const char *schema;
    /* Which dtype to compute in, and so which kernel: "promote" (the operands' common dtype), "float"
     * (the same, integers become the default float), "same" (that of the first), "bool"; of some
     * inputs only: "promote(x, y)"; with another result: "promote -> bool". NULL: "same".
     * A structured kernel gets what the rule looks at in the dtype that is computed in, lists
     * included. "same" without names expects all inputs to be alike: those of the same category
     * are converted, an int64 index arrives as it is, anything else is an error. What has a dtype
     * in the schema, and what a rule with names leaves out, arrives as it is. */
    const char *dtype;
    /* Structured: "same(x)" or "broadcast", the shape of every result; else `infer`. */
    const char *shape;
    const char
        *formula; /* composite: what it is made of. structured: for devices without a kernel */
    /* "input: grad * acme::gelu_grad(input, alpha); other: none". Names are those of arguments and
     * results; `grad` is the incoming gradient (grad_y, grad_z where results are named). An input
     * that is not mentioned, and NULL for the whole, raise in a backward pass that comes by. A
     * composite without it is differentiated through its parts. */
    const char *gradient;
    const char *doc; /* a sentence for people */
    void *ctx;
    /* Structured: the shape (and dtype) of each result. args is the argument struct. */
    tn_status (*infer)(const struct tn_host *host, void *ctx, const void *args, tn_out_shape *outs);
    /* Composite in C, in place of `formula`: fills rets with new references through "tn.call/1". */
    tn_status (*composite)(const struct tn_host *host, void *ctx, const void *args, tn_view **rets);
    /* Structured, with the result Tensor[]: how many. */
    tn_status (*count)(const struct tn_host *host, void *ctx, const void *args, int64_t *ret_n);
    /* Under autocast, inputs are converted: "low" to its dtype, "float32", "widest" to the widest of
     * them. NULL: as they are. */
    const char *autocast;
    /* Under vmap: "pointwise", the mapped dimension is one more; "batch", it is folded into
     * dimension 0, which the operator treats element by element. NULL: a pointwise operator is
     * "pointwise", a composite follows from its parts, others are called for each element. */
    const char *vmap;
} tn_op_desc;
#define TN_OPF_PACK 0x1u /* structured: inputs arrive row-major without gaps */
#define TN_OPF_CAST 0x2u /* structured: "same" converts all inputs, across categories as well */

/* Named interface "tn.call/1" of the host: operators called from C. */
typedef struct tn_call_iface {
    uint32_t struct_size;
    uint32_t reserved;
    /* The operator of that name, or NULL. Look it up once and keep it; compare its `sig` with the
     * TN_SIG_<op> of the struct that you fill in. Not inside activate for operators of that very
     * activation. */
    const tn_op_info *(*find)(const char *name);
    /* Runs it. args: its struct, `plan` and results NULL. rets: a new reference for each result. */
    tn_status (*invoke)(const tn_op_info *op, void *args, tn_view **rets);
    tn_view *(*retain)(tn_view *t);
    void (*release)(tn_view *t); /* NULL is nothing */
} tn_call_iface;

/* Named interface "tn.devices/1" of the host: devices that other plugins serve. */
struct tn_txn;
typedef struct tn_devices_iface {
    uint32_t struct_size;
    uint32_t reserved;
    /* register_kernels for the device of that name, which need not be there yet: the kernels come
     * into force with it. */
    tn_status (*register_kernels)(struct tn_txn *txn, const char *device, const tn_kernel_row *rows,
                                  uint32_t row_size, uint32_t n);
    /* A table that the device publishes for such kernels ("acme.native/1"), and its ctx; NULL: none
     * of that name. The slot is that of tn_call. */
    const void *(*query)(uint32_t device_slot, const char *iface, void **ret_ctx);
} tn_devices_iface;

/* ---- Layers that plugins add -------------------------------------------------------------------
 * A layer sees every operator call of the threads that switch it on, before any kernel: it may look,
 * measure, change what it finds in `args` (tn_<op>_args), or fill `rets` itself. Layers run in
 * falling priority; `next` of "tn.layer/1" runs those below and the kernel. What a layer computes
 * itself is not shown to layers. */
typedef struct tn_layer_call tn_layer_call;
typedef struct tn_layer_desc {
    uint32_t struct_size;
    int32_t priority;
    const char *name; /* at most 47 characters */
    void *ctx;
    tn_status (*call)(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                      tn_view **rets);
} tn_layer_desc;

/* Named interface "tn.layer/1" of the host. */
typedef struct tn_layer_iface {
    uint32_t struct_size;
    uint32_t reserved;
    tn_status (*next)(tn_layer_call *next, const tn_op_info *op, void *args, tn_view **rets);
    /* The tensors among the arguments, and the results of a call that went well, as borrowed views;
     * lists count by element. Return how many there are, fill at most `max`; entries may be NULL. */
    int32_t (*inputs)(const tn_op_info *op, const void *args, tn_view **ret_views, int32_t max);
    int32_t (*results)(const tn_op_info *op, tn_view *const *rets, tn_view **ret_views,
                       int32_t max);
} tn_layer_iface;

/* ---- The host table ----------------------------------------------------------------------------
 * Services of the core. Valid from the entry call until the process ends. */
typedef struct tn_txn tn_txn; /* the running activation */
typedef struct tn_generator tn_generator;

typedef struct tn_host {
    uint32_t struct_size;
    uint32_t abi_minor;
    /* Records a failure for the calling thread and returns `code`. `arg` is the position of the
     * offending argument in the operator's signature, or -1. printf-like. */
    tn_status (*fail)(tn_status code, int32_t arg, const char *fmt, ...);
    /* Registration; only with the txn that activate was given. Arrays are copied. */
    tn_status (*register_device)(tn_txn *txn, const tn_device_desc *desc, int32_t *ret_slot);
    tn_status (*register_dtype)(tn_txn *txn, const tn_dtype_desc *desc, int32_t *ret_slot);
    tn_status (*register_kernels)(tn_txn *txn, int32_t device_slot, const tn_kernel_row *rows,
                                  uint32_t row_size, uint32_t n);
    /* Called by long kernels, on the thread that entered the kernel, about every 10 ms.
     * TN_E_INTERRUPTED: stop, leave memory consistent, return it. */
    tn_status (*poll)(void);
    /* Scratch memory of the call's device, freed when the kernel returns. 64-byte aligned. */
    tn_status (*scratch)(const tn_call *call, uint64_t bytes, void **ret_data);
    /* Gives output `out` of a data-dependent operator its final shape and its memory. */
    tn_status (*resize_output)(const tn_call *call, tn_view *out, int32_t ndim,
                               const int64_t *shape);
    /* Reserves `blocks` Philox blocks (4 words each) of the generator, or lends its mt19937.
     * gen may be NULL: the device's default. The generator is locked until rng_release. */
    tn_status (*rng_acquire)(const tn_call *call, tn_generator *gen, uint64_t blocks,
                             tn_rng *ret_rng);
    void (*rng_release)(const tn_call *call, tn_generator *gen, tn_rng *rng);
    /* A message for people: 0 debug, 1 info, 2 warning. Repeated warnings are shown once. */
    void (*log)(int32_t level, const char *fmt, ...);
    /* Named interfaces of the host ("tn.call/1", "tn.layer/1", "tn.devices/1"); NULL when unknown. */
    const void *(*query)(const char *iface);
    /* Adds an operator; like the other registrations. Formulas may name operators that the same
     * activation adds later: they are looked up when it has ended. */
    tn_status (*register_op)(tn_txn *txn, const tn_op_desc *desc);
    tn_status (*register_layer)(tn_txn *txn, const tn_layer_desc *desc);
} tn_host;

/* ---- The plugin table --------------------------------------------------------------------------
 * The host zeroes it, sets struct_size, and the entry function fills it. */
typedef struct tn_plugin {
    uint32_t struct_size;
    uint32_t abi_major;   /* TN_ABI_MAJOR */
    uint32_t min_minor;   /* the oldest host minor this plugin can work with */
    uint32_t built_minor; /* TN_ABI_MINOR of the header it was built with */
    const char *name;
    const char *version;
    const char *summary; /* one line for people */
    tn_status (*activate)(const tn_host *host, tn_txn *txn);
    void (*retire)(void); /* optional: kernels are withdrawn, the library stays mapped */
    const void *(*query)(const char *iface); /* optional: named interfaces of the plugin */
} tn_plugin;

typedef tn_status (*tn_plugin_entry_fn)(const tn_host *host, tn_plugin *ret_plugin);

/* What a plugin exports. */
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);

/* What an entry function fills in, where there is nothing special to say. */
static inline tn_status tn_plugin_fill(tn_plugin *ret_plugin, const char *name, const char *version,
                                       const char *summary,
                                       tn_status (*activate)(const tn_host *, tn_txn *)) {
    ret_plugin->abi_major = TN_ABI_MAJOR;
    ret_plugin->min_minor = TN_ABI_TARGET;
    ret_plugin->built_minor = TN_ABI_MINOR;
    ret_plugin->name = name;
    ret_plugin->version = version;
    ret_plugin->summary = summary;
    ret_plugin->activate = activate;
    return TN_OK;
}

#ifdef __cplusplus
}
#endif

#endif
