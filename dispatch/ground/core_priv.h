/* core_priv.h: what the rooms of libtenon (dispatch, autograd, nn, optim, plugins) share and users do
 * not see. Backends and the Python module never include it. */
#ifndef TENON_CORE_PRIV_H
#define TENON_CORE_PRIV_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <tenon/error.h>
#include <tenon/ops_meta.h>
#include <tenon/runtime.h>
#include <tenon/tensor.h>

#define TN_LIKELY(x) __builtin_expect(!!(x), 1)
#define TN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TN_NOINLINE __attribute__((noinline, cold))
#define TN_TLS _Thread_local __attribute__((tls_model("initial-exec")))
#define TN_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Only where nothing is held; otherwise `if ((st = ...)) goto out;`. */
#define TN_TRY(expr)                                                                               \
    do {                                                                                           \
        tn_status tn_try_ = (expr);                                                                \
        if (TN_UNLIKELY(tn_try_ != TN_OK)) return tn_try_;                                         \
    } while (0)

typedef struct tn_node tn_node;     /* autograd/: one recorded call */
typedef struct tn_agmeta tn_agmeta; /* autograd/: grad, hooks, view relation of one tensor */
typedef struct tn_storage tn_storage;
typedef struct tn_op tn_op;

/* Whether a storage is still there, for those made of it by conj(): shared by all of them. */
typedef struct tni_life {
    _Atomic uint32_t refs, ended;
    struct tni_life
        *origin; /* owned; that of the storage whose conjugate this one holds, or NULL */
} tni_life;

/* ---- Storage -----------------------------------------------------------------------------------
 * A block of device memory. The version counts in-place writes; every view shares it. */
struct tn_storage {
    _Atomic uint32_t refs;
    _Atomic uint32_t version;
    void *data;
    uint64_t bytes;
    tn_device device;
    uint32_t flags;             /* TNI_ST_* */
    uint32_t transform;         /* the tni_thread's, when it was made */
    void (*release)(void *ctx); /* ends the memory; NULL: the CPU's free does, or nobody */
    void *ctx;
    _Atomic(tni_life *) life; /* owned; NULL until conj() takes or makes it */
};
#define TNI_ST_READONLY 0x1u
#define TNI_ST_RELEASE 0x2u /* `release` ends the memory, if it is not NULL */
#define TNI_ST_BLOCK 0x4u   /* ctx is a tni_block (memory_priv.h) */
#define TNI_ST_SHARED 0x8u  /* mapped by other processes, too */
#define TNI_ST_PINNED 0x10u /* ctx is a tni_pinned (pinned_priv.h) */
/* Atomic, as any thread may set them: a deferred call has read it; its address was given out. */
#define TNI_ST_LENT 0x20u
#define TNI_ST_SHOWN 0x40u

/* ---- Tensor ------------------------------------------------------------------------------------*/
#define TNI_INLINE_DIMS 6
struct tn_tensor {
    tn_view v; /* frozen, 64 bytes */
    /* second line */
    _Atomic uint32_t refs;
    uint32_t flags;       /* TNI_T_* */
    tn_storage *storage;  /* owned; NULL for a scalar on the stack */
    tn_node *grad_fn;     /* owned; NULL for leaves */
    tn_agmeta *meta;      /* owned; NULL until something needs it */
    uint32_t output_nr;   /* which output of grad_fn this is */
    uint32_t own_version; /* changes of this tensor alone: its sizes, which memory it looks at */
    tn_tensor *next_free;
    tn_storage *spare;  /* an unused struct, or NULL: most tensors make a storage and end it */
    tn_host_slots host; /* 32 bytes */
    int64_t
        inline_dims[2 * TNI_INLINE_DIMS]; /* shape, then strides, when ndim <= TNI_INLINE_DIMS */
};
#define TNI_T_NO_VERSION 0x1u /* made by .data: in-place writes are not counted */
#define TNI_T_STACK 0x2u      /* lives on the stack (tni_scalar_tensor); never ref'd, only copied */

/* ---- Thread state ------------------------------------------------------------------------------
 * What the call path reads, in one place. Everything else of a thread is its room's own. */
typedef struct tni_thread {
    uint64_t layers;  /* bit i: layer i is on, bit 63: the profiler; not 0 = leave the fast path */
    uint32_t no_grad; /* != 0: recording is off */
    uint32_t inference;
    tn_tensor *free_tensors;
    int32_t free_tensor_count;
    bool exit_hook;     /* the free list is emptied at thread exit */
    bool drew;          /* a random operator has run on meta (meta.c) */
    uint32_t formulas;  /* gradients of operators that are being computed */
    uint32_t transform; /* number of the innermost that runs (autograd/transform.c), or 0 */
    struct tni_scratch *scratch;       /* memory lent to the running kernel */
    struct tni_current *streams;       /* the streams in force, where they are not the default */
    const struct tni_watcher *watcher; /* who sees the thread's work on its way; NULL: nobody */
} tni_thread;
extern TN_TLS tni_thread tni_tls;

/* Whether a call whose inputs have these words, or-ed, is to be recorded, if its operator can be. */
static inline bool tni_recording(uint64_t any) { return (any & TN_W_GRAD) && tni_tls.no_grad == 0; }
/* Nothing is recorded between the two; they nest. */
static inline void tni_grad_off(void) { tni_tls.no_grad++; }
static inline void tni_grad_on(void) { tni_tls.no_grad--; }

/* ---- status.c ----------------------------------------------------------------------------------*/
/* What a function of a plugin returned, as a status that the caller may see: a number that is none
 * of a failure, TN_DECLINE among them, and a failure without a text become errors that name the
 * plugin and `what`, the operator or file that it was asked for. */
tn_status tni_error_of_plugin(tn_status st, const char *what, const char *plugin);
/* tn_fail for functions that take arguments like it. */
tn_status tni_fail_v(tn_status code, int32_t arg, const char *fmt, va_list ap);
/* A failure whose text is that of an exception; tni_error_of_plugin says whose. Returns the code. */
tn_status tni_error_thrown(tn_status code, const char *exception);
/* Adds an operator's name to the record of a failure, once. Returns the place, of *ret_size bytes, for what
 * it was called with; NULL: it has been added, or there is nothing to add to. */
char *tni_error_detail(tn_status st, const char *op, size_t *ret_size);
/* The thread's record as it is now (NULL: nothing was recorded), and back to that. */
struct tni_error *tni_error_copy(void);
void tni_error_restore(struct tni_error *copy);

/* ---- host.c ------------------------------------------------------------------------------------*/
/* A message for people, through the host language's hook: 0 debug, 1 info, 2 warning. */
void tni_host_log(int32_t level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Between the two, messages of the calling thread wait. Whoever holds a lock while foreign code runs
 * needs this: the hook may wait for a lock of the host language that another thread holds while it
 * waits for ours. */
void tni_host_log_hold(void);
void tni_host_log_release(void);
/* Which of `nwords` words the environment's variable says. `other`: it is not set, or empty, or, which a
 * warning tells, says none of them. */
int tni_setting(const char *name, const char *const *words, int nwords, int other);
/* The same of a variable that says 0 or 1. */
bool tni_setting_is_on(const char *name, bool other);
/* The same of one that says a number from `least` to `most`. */
int64_t tni_setting_number(const char *name, int64_t least, int64_t most, int64_t other);
/* Whether a plugin's library may be mapped, and the search for what the host's packages bring: both
 * may wait for the host language's lock, so nothing is locked meanwhile. False: there is no host. */
tn_status tni_host_admit_plugin(const char *name, const char *path, int32_t ours);
tn_status tni_host_find_plugins(bool *ret_asked);
/* The host language's current source line; NULL when there is none; free with tn_free. */
char *tni_host_where(void);
/* Whether the user wants to stop: asked now and then by what runs long. */
tn_status tni_host_poll(void);
/* The same for loops over calls of operators, at every turn: the host is asked every 10 ms. */
tn_status tni_poll(void);
/* Tells the host language that a tensor with a dormant header goes away. */
void tni_host_tensor_dying(tn_tensor *t);

/* ---- Checked sizes -----------------------------------------------------------------------------*/
/* Product of sizes; TN_E_VALUE when negative or numel * itemsize would pass 2^62. */
tn_status tni_numel(int32_t ndim, const int64_t *shape, int64_t itemsize, int64_t *ret_numel);
/* dim in [-ndim, ndim-1] (0-d counts as 1-d) -> [0, ndim-1]; TN_E_INDEX in PyTorch's words. */
tn_status tni_wrap_dim(int64_t dim, int32_t ndim, int64_t *ret_dim);
/* Bitmask of wrapped dims; duplicates are TN_E_VALUE; n <= 0 with v NULL means all. */
tn_status tni_dim_mask(tn_ints dims, int32_t ndim, uint64_t *ret_mask);
/* Result of broadcasting two shapes into `shape` (room for TN_MAX_DIMS); TN_E_SHAPE. */
tn_status tni_broadcast_shapes(int32_t na, const int64_t *a, int32_t nb, const int64_t *b,
                               int32_t *ret_n, int64_t *shape);
/* Smallest and one past the largest element offset reached; false on overflow. */
bool tni_reach(int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t *ret_lo,
               int64_t *ret_hi);
/* "(2, 3)" for messages, in a per-thread ring of 8 buffers. */
const char *tni_shape_text(int32_t ndim, const int64_t *shape);
const char *tni_shape_text_of(const tn_view *v);

static inline void tni_bump_version(tn_tensor *t) {
    if (t->storage && !(t->flags & TNI_T_NO_VERSION))
        atomic_fetch_add_explicit(&t->storage->version, 1, memory_order_relaxed);
}
/* Changes of the memory, which all that look at it share. */
static inline uint32_t tni_memory_version(const tn_tensor *t) {
    return t->storage ? atomic_load_explicit(&t->storage->version, memory_order_relaxed) : 0;
}
static inline tn_tensor *tni_t(const tn_view *v) { return (tn_tensor *)(uintptr_t)v; }
static inline tn_view *tni_v(const tn_tensor *t) { return (tn_view *)(uintptr_t)t; }
static inline tn_views tni_views(tn_tensors ts) {
    tn_views v = {(tn_view *const *)(const void *)ts.v, ts.n};
    return v;
}
static inline tn_tensors tni_tensors_of(tn_views vs) {
    tn_tensors t = {(tn_tensor *const *)(const void *)vs.v, vs.n};
    return t;
}

/* ---- dtype.c -----------------------------------------------------------------------------------*/
/* Result dtype of operands by PyTorch's rules (dimensioned, then 0-d, then numbers). */
int32_t tni_result_dtype(tn_tensor *const *ts, int n);
/* Writes a scalar as one element of dtype (round to nearest; bool: != 0). */
void tni_scalar_store(const tn_scalar *s, int32_t dtype, void *dst);
/* TN_E_STATE when `value` has no place in dtype: out of range, or complex into real. */
tn_status tni_check_scalar_fits(const tn_scalar *value, int32_t dtype);
void tni_scalar_load(int32_t dtype, const void *src, tn_scalar *ret);
/* The names that PyTorch's messages use for dtypes: Float, Long, BFloat16 ... */
const char *tni_type_text(int32_t dtype);
/* Category by slot, without a check. */
extern uint8_t tni_categories[TN_DTYPE_SLOTS];
static inline int32_t tni_category(int32_t dtype) { return tni_categories[dtype]; }
tn_status tni_dtype_add(const tn_dtype_desc *desc, const char *plugin, int32_t *ret_slot);
/* Of a plugin's dtype; NULL for others. */
const tn_dtype_desc *tni_dtype_desc(int32_t dtype);
uint8_t tni_dtype_dl_code(int32_t dtype);
int32_t tni_dtype_to_complex(int32_t dtype);
int32_t tni_dtype_to_real(int32_t dtype);

float tni_from_f16(uint16_t bits);
uint16_t tni_to_f16(float value);
/* tn_dtype_promote has no answer: fails with PyTorch's words; of tensors, for the first two. */
tn_status tni_fail_promotion(int32_t a, int32_t b);
tn_status tni_fail_promotions(tn_tensor *const *ts, int n);

/* ---- bridge.c: dtypes that kernels do not know, from TN_DTYPE_BUILTIN_COUNT on ------------------*/
typedef struct tni_bridge {
    int32_t dtype; /* that is known */
    void (*decode)(const void *src, void *dst, int64_t n);
    void (*encode)(const void *src, void *dst, int64_t n);
    const tn_dtype_desc *plugin; /* of a plugin's dtype: the two functions are its */
} tni_bridge;
/* Over which dtype, and how, values go between `dtype` and `other`. */
tni_bridge tni_dtype_bridge(int32_t dtype, int32_t other);
void tni_bridge_decode(const tni_bridge *b, const void *src, void *dst, int64_t n);
void tni_bridge_encode(const tni_bridge *b, const void *src, void *dst, int64_t n);
/* The dtype in which operators compute that have no kernel for this one; -1: there is none. */
int32_t tni_dtype_wider(int32_t dtype);

/* ---- Operators: the descriptor the generator emits ---------------------------------------------*/
#define TNI_MAX_OUTS 6
#define TNI_MAX_NUMBERS 4
#define TNI_MAX_ARGS_BYTES 768
/* What a shape rule fills: one entry per output. */
typedef struct tn_out_meta {
    int32_t dtype;
    int32_t ndim;
    int32_t strided; /* 1: `strides` is set; 0: packed */
    int32_t absent;  /* 1: this output is not produced */
    int64_t shape[TN_MAX_DIMS];
    int64_t strides[TN_MAX_DIMS];
} tn_out_meta;
typedef struct tn_infer {
    const tn_op *op;
    int32_t compute; /* dtype the kernel is looked up with; inputs marked `cast` are converted */
    tn_device device;
    uint64_t reduce_mask; /* reductions: which input dims */
    tn_out_meta out[TNI_MAX_OUTS];
} tn_infer;

/* How the compute dtype of a pointwise operator or reduction follows from its inputs. */
enum tni_compute_rule {
    TNI_COMPUTE_PROMOTE, /* PyTorch promotion over the operands */
    TNI_COMPUTE_FLOAT,   /* the same, integers and bool become the default float */
    TNI_COMPUTE_FIRST,   /* dtype of the first operand */
    TNI_COMPUTE_SUM,     /* bool and integers become int64; a dtype argument overrides */
    TNI_COMPUTE_BOOL,    /* everything is read as bool */
    TNI_COMPUTE_NUMBER   /* promotion, bool becomes int64 */
};
enum tni_autocast_rule {
    TNI_AUTOCAST_NONE,
    TNI_AUTOCAST_LOW,
    TNI_AUTOCAST_FLOAT32,
    TNI_AUTOCAST_WIDEST
};
enum tni_result_rule {
    TNI_RESULT_COMPUTE,
    TNI_RESULT_BOOL,
    TNI_RESULT_REAL,
    TNI_RESULT_I64,
    TNI_RESULT_DTYPE /* plus a slot: always that dtype; only operators that plugins add */
};

/* What a gradient function sees: generated code and the functions by hand. */
typedef struct tn_gctx {
    const tn_op *op;
    const void *args;    /* the call's tn_<op>_args; saved tensors are set, others are NULL */
    tn_tensor *const *g; /* incoming gradients by output, zeros where none came (or NULL:
                          * `zeros` of the entry) */
    uint64_t needs;      /* bit i: the i-th tensor input (lists flattened) wants a gradient */
    tn_tensor **ret;     /* results by tensor input; owned by the caller; NULL = no gradient */
    int64_t nouts;       /* entries of g */
} tn_gctx;
#define TN_GNEEDS(c, i) (((c)->needs >> (i)) & 1u)

typedef struct tn_cell {
    tn_kernel_fn fn; /* NULL: not resolved yet */
    void *ctx;
    _Atomic(const struct tn_cell *) next; /* the next candidate, for TN_DECLINE */
    const struct tni_plugin *plugin;
    int32_t priority;
    uint32_t flags;
    const struct tn_op *op; /* where it belongs */
    int32_t device, dtype;
    struct tn_cell *idle; /* of a withdrawn cell: the next one of its plugin */
} tn_cell;
#define TNI_CELL_PREFERRED 0x80000000u /* the user wants it first; see tn_plugin_prefer */
static inline const tn_cell *tni_cell_next(const tn_cell *cell) {
    return atomic_load_explicit(&((tn_cell *)(uintptr_t)cell)->next, memory_order_acquire);
}
typedef struct tn_row {
    _Atomic(const tn_cell *) cell[TN_DTYPE_SLOTS];
    _Atomic(const tn_cell *) any;
    _Atomic uint64_t wide_calls, host_calls; /* calls that fell back */
} tn_row;

struct tn_op {
    tn_op_info info; /* first, so that a tn_op_info * is a tn_op * */
    /* By kind; TN_DECLINE: no kernel takes the call. Of a composite it changes, once, when somebody
     * registers a kernel for it (call/composed.c). */
    tn_status (*_Atomic run)(const tn_op *op, void *args, tn_tensor **rets);
    tn_status (*infer)(tn_infer *inf, const void *args); /* structured, reduction */
    /* What a pointwise or composite operator asks of its arguments before it runs; NULL: nothing. */
    tn_status (*check)(const void *args);
    /* The in-place form on a tensor whose elements share places, where it is not refused; NULL: it is. */
    tn_status (*repeated)(const void *args, tn_tensor **rets);
    /* How many results a list has, and their shapes (free them). */
    tn_status (*infer_list)(const tn_infer *inf, const void *args, tn_out_shape **ret_shapes,
                            int64_t *ret_n);
    /* The dtype in which a kernel for dtype `compute` gets t, which is (in the list that is) input i;
     * NULL: what TNI_OP_CAST says. */
    tn_status (*takes)(const tn_op *op, int i, const tn_view *t, int32_t compute,
                       int32_t *ret_dtype);
    tn_status (*composite)(const void *args, tn_tensor **rets); /* composite, view */
    /* The composite of an operator that a plugin added. */
    tn_status (*compose)(const tn_op *op, const void *args, tn_tensor **rets);
    /* The call with sparse tensors among its arguments; NULL: it takes none (call/sparse.c). */
    tn_status (*sparse)(const tn_op *op, void *args, tn_tensor **rets);
    tn_status (*grad)(tn_gctx *c);
    const tn_field *fields;
    uint16_t nfields;
    uint16_t args_bytes;
    uint8_t nin; /* tensor inputs (a list counts once) */
    uint8_t nout;
    uint8_t compute_rule, result_rule;
    uint8_t in_field[TN_MAX_OPERANDS]; /* field index of each tensor input */
    uint8_t out_field[TNI_MAX_OUTS];
    uint16_t in_offset[TN_MAX_OPERANDS]; /* the same, as offsets in the argument struct */
    uint16_t out_offset[TNI_MAX_OUTS];
    uint8_t nnumbers; /* its parameters of type Scalar, of a pointwise or structured operator */
    uint16_t number_offset[TNI_MAX_NUMBERS];
    uint32_t flags;  /* TNI_OP_* */
    uint8_t refuses; /* TNI_REFUSES_* */
    uint16_t line;
    uint16_t version;    /* from 1 */
    uint8_t autocast[2]; /* TNI_AUTOCAST_*: on the CPU, elsewhere */
    const char *file;
    const char *formula; /* gradient text, for people */
    const char *node;    /* names of its node, where they are not the operator's; see op-table.md */
    const char *doc;
    const char *vmap; /* how it goes through vmap, "pointwise" or "batch"; NULL: unknown */
    struct tn_op *const *parts; /* see tni_composite_serves */
    int32_t nparts;
    _Atomic(tn_row *) row[TN_DEVICE_SLOTS]; /* NULL: no kernel on this device */
    _Atomic(tn_op *) older;                 /* the version before this one */
    _Atomic bool retired;                   /* with the plugin that added it */
    _Atomic(tn_op *) recorded;              /* of a composite with kernels: see composed.c */
    _Atomic(const void *) recipe; /* autograd's digest of the fields, made at the first record */
};
/* Tensors that an operator does not compute with, though promotion or its parts could: of these kinds,
 * or of more than one dtype. LACKING: PyTorch has no code for them. */
#define TNI_REFUSES_BOOL 1u
#define TNI_REFUSES_INT 2u
#define TNI_REFUSES_COMPLEX 4u
#define TNI_REFUSES_MIXED 8u
#define TNI_REFUSES_LACKING 16u
static inline bool tni_has_composite(const tn_op *op) { return op->composite || op->compose; }
extern tn_op *const tni_ops[]; /* generated: those of the table */
extern const int tni_op_count;

/* ---- What higher rooms fill in at start --------------------------------------------------------*/
/* The table that plugins get (door/host_table.c). */
extern tn_host tni_host;

/* What plugins offer by name (plugins/loader.c). */
typedef enum tni_offer {
    TNI_OFFER_DEVICE,
    TNI_OFFER_DTYPE,
    TNI_OFFER_OP,
    TNI_OFFER_LAYER
} tni_offer;
typedef struct tni_offer_hooks {
    /* Loads the plugin whose manifest lists `name`; TN_E_DEVICE or TN_E_PLUGIN with reasons. */
    tn_status (*load)(tni_offer kind, const char *name);
    /* What `find` (-1: not there) says of the name; loads the plugin that offers it when it must. */
    tn_status (*find)(tni_offer kind, const char *name, int32_t (*find)(const char *name),
                      int32_t *ret_id);
} tni_offer_hooks;
extern tni_offer_hooks tni_offers;

/* Deferred calls (program/defer.c). A result that is not computed yet is a header without memory that has
 * all bits of TN_W_LAYOUT set and none of those of a dense one, so nobody takes it for a strided tensor:
 * run functions say TN_DECLINE to it as to a sparse one. What a deferred call will read is marked read-only
 * until then, and its storage as lent, so that whoever writes comes by. */
typedef struct tni_late_hooks {
    /* The call is put off; TN_DECLINE: it runs now, and its arguments are there. */
    tn_status (*put_off)(const tn_op *op, void *args, tn_tensor **rets);
    /* Gives t its memory: runs what it waits for. */
    tn_status (*settle)(tn_tensor *t);
    /* Runs everything that would read what is lent. */
    tn_status (*settle_all)(void);
} tni_late_hooks;
extern tni_late_hooks tni_late;
static inline bool tni_is_late(const tn_tensor *t) {
    return (t->v.word & TN_W_LAYOUT) == TN_W_LAYOUT;
}
static inline tn_status tni_settle(const tn_tensor *t) {
    return TN_UNLIKELY(tni_is_late(t)) ? tni_late.settle((tn_tensor *)(uintptr_t)t) : TN_OK;
}
/* For whoever is about to write to t or to replace its memory: whether nobody may. */
bool tni_is_readonly(const tn_tensor *t);
/* Note [Conjugates]. conj() copies. Where others have a view, so that a write to it is one to the tensor that
 * it was made of, t is read-only while that tensor's memory is there, or that which it was made of. */
tn_status tni_note_conjugate(const tn_tensor *of, tn_tensor *t);
bool tni_is_conjugate(const tn_tensor *t);
bool tni_origin_is_there(const tn_tensor *t); /* of a conjugate */
/* t's memory is there, and no deferred call reads it later. */
tn_status tni_release(tn_tensor *t);

/* A program that is recorded sees which values are read, and that memory is written by no operator
 * where the thread's layers would have seen one (program/record.c). */
extern void (*tni_note_read)(const tn_tensor *t);
extern void (*tni_note_write)(void);

/* The tape (autograd/). */
typedef struct tni_autograd_hooks {
    /* After a call whose inputs require a gradient: make the node, attach it to the outputs. */
    tn_status (*record)(const tn_op *op, const void *args, tn_tensor *const *outs, int nout);
    /* Before an in-place call on `out`: TN_E_STATE for a leaf that requires a gradient, ... */
    tn_status (*check_inplace)(const tn_op *op, const void *args, tn_tensor *out);
    /* A copy of t with t's history, for a call in place whose gradient reads the old values. */
    tn_status (*copy_original)(tn_tensor *t, tn_tensor **ret_copy);
    /* A view was made of `base` (recorded too when grad is on): keep the relation. */
    tn_status (*note_view)(const tn_op *op, const void *args, tn_tensor *base, tn_tensor *view);
    /* A composite that is recorded through its parts made t: t's node goes by the composite's name. */
    void (*show)(const tn_op *op, tn_tensor *t);
    /* Calls fn for t, the tensor that it is a view of, and that one's other views. */
    /* A result that only looks at memory which nobody else has is a tensor of its own. */
    void (*own)(tn_tensor *t);
    void (*each_alias)(tn_tensor *t, void (*fn)(void *ctx, tn_tensor *alias), void *ctx);
    /* The gradient of a composite that is not recorded through its parts: it runs again. */
    tn_status (*recompute)(tn_gctx *c);
    void (*node_unref)(tn_node *n);
    void (*meta_free)(tn_agmeta *m);
} tni_autograd_hooks;
extern tni_autograd_hooks tni_ag;

#endif
