/* tape_priv.h: what the files of autograd/ share: nodes, edges, what a tensor carries, hooks.
 *
 * A node is one block: struct tn_node, its edges, the metadata of its outputs, then either the call's
 * argument struct with what it saved (operators), tni_host_data (host functions) or tni_slices (in-place
 * changes of a view). Edges to leaves point at the tensor itself; there is no node for it. */
#ifndef TENON_TAPE_PRIV_H
#define TENON_TAPE_PRIV_H

#include <tenon/autograd.h>

#include "call_priv.h"

/* ---- Edges -------------------------------------------------------------------------------------*/

/* `to` is an owned tn_node *, an owned leaf tn_tensor * with TNI_LEAF set, or 0. */
typedef struct tni_edge {
    uintptr_t to;
    uint32_t nr;
    uint32_t reserved;
} tni_edge;
#define TNI_LEAF ((uintptr_t)1)

static inline tn_tensor *tni_key_leaf(uintptr_t to) {
    return to & TNI_LEAF ? (tn_tensor *)(to & ~TNI_LEAF) : NULL;
}
static inline tn_node *tni_key_node(uintptr_t to) { return to & TNI_LEAF ? NULL : (tn_node *)to; }
void tni_edge_drop(tni_edge *e);
/* Where t's gradient goes; brings the history of views up to date first. */
tn_status tni_edge_of(tn_tensor *t, tni_edge *ret_edge);

/* ---- Operators ---------------------------------------------------------------------------------*/

/* What a record needs to know of an operator's fields. */
typedef struct tni_recipe {
    uint16_t in_flags[TN_MAX_OPERANDS]; /* TNI_FIELD_* of each tensor input */
    uint16_t out_flags[TNI_MAX_OUTS];
    uint8_t lists; /* bit i: input i is a list */
    uint8_t list_out, may_return_input;
    uint8_t plain; /* single tensors in, one tensor out */
    uint8_t nspecial;
    struct {
        uint16_t offset, kind;
    } special[]; /* lists of numbers, texts, generators */
} tni_recipe;
const tni_recipe *tni_recipe_make(const tn_op *op); /* NULL: out of memory */
static inline const tni_recipe *tni_recipe_of(const tn_op *op) {
    const tni_recipe *r = atomic_load_explicit(&op->recipe, memory_order_acquire);
    return TN_LIKELY(r != NULL) ? r : tni_recipe_make(op);
}

static inline bool tni_same_shape(const tn_view *a, const tn_view *b) {
    bool same = a->ndim == b->ndim;
    for (int32_t i = 0; same && i < a->ndim; i++) same = a->shape[i] == b->shape[i];
    return same;
}
/* Its dtype can carry a gradient. */
static inline bool tni_is_differentiable(const tn_view *v) {
    int32_t dtype = tn_view_dtype(v);
    return dtype < TN_DTYPE_BUILTIN_COUNT ? dtype >= TN_F16
                                          : tn_dtype_category(dtype) >= TN_CAT_FLOAT;
}

/* ---- Nodes -------------------------------------------------------------------------------------*/

enum tni_node_kind { TNI_NODE_OP, TNI_NODE_HOST, TNI_NODE_SLICES };
#define TNI_NODE_HAS_SAVED 0x1u /* it holds tensors that backward frees */
#define TNI_NODE_USED_UP 0x2u   /* they were freed */
#define TNI_NODE_LIST_OUT 0x4u
#define TNI_NODE_OWNS 0x8u /* something in its argument struct has to be released */
#define TNI_OWNED_OUT 8

typedef struct tni_extra tni_extra;

struct tn_node {
    _Atomic uint32_t refs;
    uint8_t kind;  /* tni_node_kind */
    uint8_t lines; /* size in 64-byte lines; 0: too large for the free lists */
    uint8_t flags; /* TNI_NODE_* */
    uint8_t dims;  /* room for that many sizes in each output's metadata */
    uint64_t seq;  /* rises with every node of a thread: later calls run first in backward */
    const tn_op *op;
    uint32_t nedges, nouts;
    tni_extra *extra; /* hooks, packed tensors, anomaly text; NULL until something needs it */
    union {
        const char *shown; /* of a live node: a name that goes before the operator's, or NULL */
        tn_node *next;     /* in a free list, or among the nodes that are being freed */
    };
    uint32_t metas_at, args_at, versions_at;
    uint32_t
        owned; /* of a plain operator: bit i, input i is kept in the arguments; bit 8, the output */
};
_Static_assert(sizeof(tn_node) == 64, "a node's head is one cache line");

/* Of one output: dtype and device, differentiable or not, shape. */
typedef struct tni_out {
    uint64_t word;
    int32_t ndim;
    int32_t differentiable;
    int64_t shape[];
} tni_out;

static inline void *tni_node_at(const tn_node *n, uint32_t at) { return (char *)(uintptr_t)n + at; }
static inline tni_edge *tni_node_edges(const tn_node *n) { return tni_node_at(n, sizeof(tn_node)); }
static inline void *tni_node_args(const tn_node *n) { return tni_node_at(n, n->args_at); }
/* A function of a host language; tail of a TNI_NODE_HOST. */
typedef struct tni_host_data {
    tn_host_node cb;
    char name[64];
    tni_out *outs;             /* owned: what is known of the outputs, once there are any */
    const tn_tensor *inputs[]; /* as many as edges, only to be compared with; until the finish */
} tni_host_data;
static inline tni_out *tni_node_out(const tn_node *n, uint32_t i) {
    size_t each = sizeof(tni_out) + sizeof(int64_t) * n->dims;
    char *first = tni_node_at(n, n->metas_at);
    if (TN_UNLIKELY(n->kind == TNI_NODE_HOST))
        first = (char *)((const tni_host_data *)tni_node_args(n))->outs;
    return (tni_out *)(void *)(first + i * each);
}
/* By edge, then by output: the version a saved tensor had. */
static inline uint32_t *tni_node_versions(const tn_node *n) {
    return tni_node_at(n, n->versions_at);
}

static inline char *tni_node_blob(const tn_node *n, uint32_t versions) {
    return tni_node_at(n, n->versions_at + (versions + (versions & 1)) * 4);
}
void tni_node_unref(tn_node *n);
/* Frees the tensors the node saved. */
void tni_node_release_saved(tn_node *n);

/* Runs the node: g by output (NULL where none came), results by edge into ret (NULL at entry). */
tn_status tni_node_apply(tn_node *n, tn_tensor **g, uint64_t needs, tn_tensor **ret);

tn_status tni_host_apply(tn_node *n, tn_tensor **g, uint64_t needs, tn_tensor **ret);

/* Tail of a TNI_NODE_SLICES: a view of the base was changed in place by `inner`. */
typedef struct tni_slices {
    tn_node *inner;  /* owned; its edges are empty, this node has them */
    tn_tensor *base; /* owned; geometry only */
    tn_tensor *view; /* owned; geometry only */
    int64_t offset;  /* of the view's element 0 from the base's, in the view's elements */
} tni_slices;
/* Makes t, an alias of the changed view, a window of the base after the change. */
tn_status tni_slices_history(tn_node *n, tn_tensor *t);
/* The part of `whole`, which has the base's geometry, that the view covers. */
tn_status tni_slices_part(const tni_slices *s, tn_tensor *whole, tn_tensor **ret_part);

/* ---- Rarely needed parts of a node, hooks ------------------------------------------------------*/

enum tni_hook_kind { TNI_HOOK_TENSOR, TNI_HOOK_LEAF, TNI_HOOK_PRE, TNI_HOOK_POST };
struct tn_hook {
    _Atomic uint32_t refs;    /* the list, the handle, a pass that is about to run it */
    int32_t removed, running; /* under the lock */
    int32_t kind;
    uint32_t nr; /* which output, for TNI_HOOK_TENSOR on a node */
    union {
        tn_tensor_hook_fn tensor;
        tn_leaf_hook_fn leaf;
        tn_pre_hook_fn pre;
        tn_post_hook_fn post;
    } fn;
    void *ctx;
    void (*release)(void *ctx);
    tn_hook *next;
};

/* The gradient of a tensor that is no leaf: shared by the tensor and the node that computes it. */
typedef struct tni_grad_cell {
    _Atomic uint32_t refs;
    uint32_t nr;
    tn_tensor *grad;
    struct tni_grad_cell *next; /* in the node's list */
} tni_grad_cell;

typedef struct tni_hook_set tni_hook_set; /* hooks of the thread's saved tensors */
struct tni_hook_set {
    _Atomic uint32_t refs; /* the stack, and every packed tensor */
    tn_saved_hooks cb;
    tni_hook_set *below;
};
void tni_hook_set_unref(tni_hook_set *s);
typedef struct tni_packed_tensor { /* a saved tensor that went through them */
    tni_hook_set *hooks;
    void *handle;
    uint32_t slot; /* as for versions */
    uint32_t version;
    int32_t layout;
} tni_packed_tensor;
/* The layout of what is packed; of a result that waits, the dense one that it will have. */
static inline int32_t tni_packed_layout(const tn_tensor *t) {
    return tni_is_late(t) ? TN_LAYOUT_STRIDED : tn_tensor_layout(t);
}

struct tni_extra {
    tn_hook *hooks;
    tni_grad_cell *cells;
    char *where;
    tni_packed_tensor *packed;
    uint32_t npacked, packed_room;
    tn_node_host host;
};
tni_extra *tni_node_extra(tn_node *n); /* made when missing; NULL: out of memory */
void tni_extra_free(tni_extra *x);
void tni_hooks_free(tn_hook *list);
/* Appends a copy of h to a list of hooks. */
tn_status tni_hook_add(tn_hook **list, tn_hook h, tn_hook **ret_hook);
void tni_cell_unref(tni_grad_cell *c);
/* Keeps the gradient of output `nr` of n in c from now on; forgets c at `old` (may be NULL). */
tn_status tni_cell_move(tni_grad_cell *c, tn_node *old, tn_node *n, uint32_t nr);

/* The hooks of one kind as an array of references; *ret_n 0: none. Free with tni_hooks_done. */
tn_status tni_hooks_snapshot(tn_hook *const *list, int kind, tn_hook ***ret_hooks, int *ret_n);
void tni_hooks_done(tn_hook **hooks, int n);
bool tni_hooks_any(tn_hook *const *list, int kind);
bool tni_hook_enter(tn_hook *h); /* false: it was removed */
void tni_hook_leave(tn_hook *h);
/* Runs the tensor hooks of output nr over *g, which they may replace. */
tn_status tni_run_tensor_hooks(tn_hook *const *list, uint32_t nr, tn_tensor **g);
tn_status tni_run_leaf_hooks(tn_hook *const *list, tn_tensor *leaf);

/* One lock for hooks and cells, which are rare and short. */
void tni_ag_lock(void);
void tni_ag_unlock(void);

/* ---- Saved tensors of the thread's hooks (saved.c) ---------------------------------------------*/
/* Packs t into n's list. */
tn_status tni_pack(tn_node *n, tni_hook_set *hooks, tn_tensor *t, uint32_t slot);
tn_status tni_unpack(const tni_packed_tensor *p, tn_tensor **ret_tensor);
/* Takes away what has been pushed since the pass began. */
void tni_saved_hooks_unwind(void);
void tni_packed_drop(tni_packed_tensor *p);
/* Puts the history that edge e leads to back to *t, which a hook has unpacked; *t may be exchanged. */
tn_status tni_unpacked_history(tni_edge e, tn_tensor **t);
tn_status tni_stand_for(tn_tensor *leaf, tn_tensor *t);
/* TN_E_STATE in PyTorch's words when t's version is not the one that was saved. */
tn_status tni_check_version(const tn_tensor *t, uint32_t version, const tn_node *maker,
                            uint32_t nr);

/* ---- What a tensor carries ---------------------------------------------------------------------*/

enum tni_view_origin {
    TNI_VIEW_PLAIN,
    TNI_VIEW_NO_GRAD,  /* made while recording was off */
    TNI_VIEW_MULTIPLE, /* one of several results */
    TNI_VIEW_FUNCTION, /* handed out by a function of a host language, whose gradient it keeps */
};
struct tn_agmeta {
    tn_tensor *grad;      /* owned */
    tni_grad_cell *cell;  /* owned; set by tn_retain_grad */
    tn_node *cell_node;   /* owned: where the cell hangs */
    tn_hook *hooks;       /* of a leaf */
    tn_tensor *base;      /* owned; the root that this tensor is a view of */
    tn_tensor *self;      /* the tensor; not owned */
    tn_agmeta *views;     /* of a base: its views */
    tn_agmeta *next_view; /* of a view: its place in the base's list */
    tn_agmeta **link;
    tn_agmeta *next_free;
    _Atomic uint32_t lock; /* of `views` */
    uint32_t version;      /* of the storage when the view's grad_fn was set */
    uint32_t origin;       /* tni_view_origin */
    uint32_t stale;        /* the view's grad_fn must be made anew */
};
tn_agmeta *tni_meta(tn_tensor *t); /* made when missing; NULL: out of memory */
/* What t has of it, NULL if nothing. Another thread may be making it: its first view, its gradient. */
static inline tn_agmeta *tni_meta_seen(const tn_tensor *t) {
    return __atomic_load_n(&t->meta, __ATOMIC_ACQUIRE);
}
void tni_meta_free(tn_agmeta *m);
/* Makes `view` a tracked view of `base`, which is none itself. */
tn_status tni_meta_link(tn_tensor *base, tn_tensor *view);
/* A view whose base nobody else has is a view no longer. */
void tni_meta_own(tn_tensor *t);
/* The base has a history now: so have its views. */
void tni_meta_mark_views(tn_agmeta *base_meta);
/* fn for t, its base if it is a view, and that one's other views. */
void tni_each_alias(tn_tensor *t, void (*fn)(void *ctx, tn_tensor *alias), void *ctx);
/* The base of a tracked view, else NULL. A view that was given other data is a view no longer. */
static inline tn_tensor *tni_base(const tn_tensor *t) {
    if (!(t->v.word & TN_W_LEAFVIEW) || !t->meta || !t->meta->base) return NULL;
    return t->meta->base->storage == t->storage ? t->meta->base : NULL;
}

/* Where its .grad is: what a tensor keeps as a result stays its gradient when it becomes a leaf. */
static inline tn_tensor **tni_grad_place(tn_agmeta *m) {
    return m->cell ? &m->cell->grad : &m->grad;
}

/* Its history is that of its base. */
static inline bool tni_follows_base(const tn_agmeta *m) {
    return m->origin == TNI_VIEW_PLAIN || m->origin == TNI_VIEW_MULTIPLE;
}
/* A change of t in place becomes a part of its base's history. */
static inline bool tni_writes_base(const tn_tensor *t) {
    return tni_base(t) && tni_follows_base(t->meta);
}

tn_status tni_note_view(const tn_op *op, const void *args, tn_tensor *base, tn_tensor *view);
/* Brings grad_fn of a view up to date with what happened to its base. */
tn_status tni_view_refresh(tn_tensor *t);
/* Why a view that keeps a history of its own may not be changed in place; `base`: by way of its base. */
tn_status tni_refuse_view(const tn_tensor *view, bool base);
/* The gradient that t keeps is that of output nr of n from now on. */
tn_status tni_move_cell(tn_tensor *t, tn_node *n, uint32_t nr);
/* Makes node n, which has edges, the history of t after a change in place. */
tn_status tni_rebase(tn_tensor *t, tn_node *n, uint32_t nr);
/* Refuses a recorded write to a tensor that is no part of the transform that runs. */
tn_status tni_check_captured(const tn_op *op, const tn_tensor *t);
/* Whether an operator may change out; args: those of a call that is recorded, else NULL. */
tn_status tni_check_inplace(const tn_op *op, const void *args, tn_tensor *out);
tn_status tni_copy_original(tn_tensor *t, tn_tensor **ret_copy);
/* A header of t's dtype, device, shape and strides, without data. */
static inline tn_status tni_geometry(const tn_tensor *t, tn_tensor **ret_tensor) {
    return tni_header_new(tn_view_dtype(&t->v), tn_tensor_device(t), t->v.ndim, t->v.shape,
                          t->v.strides, ret_tensor);
}
/* Drops t's grad_fn and sets another (a reference is taken). */
void tni_set_grad_fn(tn_tensor *t, tn_node *n, uint32_t nr);

tn_status tni_record(const tn_op *op, const void *args, tn_tensor *const *outs, int nout);
/* A gradient function: the composite runs again (recompute.c). */
tn_status tni_recompute(tn_gctx *c);

/* ---- Gradients in motion (flow.c) --------------------------------------------------------------*/

/* Makes *g fit (dtype, device, shape): sums over what was broadcast, converts. `from` and `index` are
 * for the error message. */
tn_status tni_fit(tn_tensor **g, uint64_t word, int32_t ndim, const int64_t *shape,
                  const tn_node *from, uint32_t index);
/* *sum += g; takes over the reference g. Writes into *sum where nobody else can see it. */
tn_status tni_add_grad(tn_tensor **sum, tn_tensor *g);
/* Adds g to leaf's .grad; takes over the reference g. ret_seen, if not NULL: g, or where .grad took its
 * memory over, another tensor over that. */
tn_status tni_accumulate(tn_tensor *leaf, tn_tensor *g, tn_tensor **ret_seen);
/* A tensor of that shape, dtype and device whose elements are all `value`, without memory for them. */
tn_status tni_constant(double value, uint64_t word, int32_t ndim, const int64_t *shape,
                       tn_tensor **ret_tensor);
tn_status tni_has_nan(tn_tensor *g, bool *ret_nan);
/* A packed or like-strided copy that nobody else sees. Recorded when recording is on. */
tn_status tni_clone_like(tn_tensor *g, const tn_tensor *like, tn_tensor **ret_tensor);

/* ---- Making nodes ------------------------------------------------------------------------------*/

enum { TNI_NODE_CLASSES = 24 };
typedef struct tni_ag_thread {
    tn_node *free_nodes[TNI_NODE_CLASSES];
    uint16_t free_count[TNI_NODE_CLASSES];
    tn_agmeta *free_metas;
    tn_agmeta *dying_metas; /* what a loop that frees them has still to free */
    uint32_t free_meta_count;
    uint32_t freeing; /* a loop that frees nodes is running */
    tn_node *dying;   /* what it has still to free */
    uint64_t seq;
    tn_tensor *original; /* the target of the running in-place call as it was */
    const tn_tensor *original_of;
    tni_hook_set *saved_hooks;
    uint32_t saved_depth; /* how many they are */
    uint32_t saved_floor; /* how many of them were there when the running pass began */
    bool exit_hook;
    bool check_nan;
    bool detect_anomaly;
    bool freeing_metas;  /* such a loop is running */
    uint32_t transforms; /* how many the thread has entered */
    struct tni_transform *transform;
} tni_ag_thread;
extern TN_TLS tni_ag_thread tni_agt;
void tni_ag_thread_exit_hook(void);

tn_node *tni_node_block(size_t bytes); /* from the heap; NULL: out of memory, recorded */

/* A node with room for `tail` bytes of arguments and `versions` version numbers plus `blob` bytes after
 * them (tni_node_blob); edges are empty, refs is 1. NULL: out of memory, recorded. */
static inline tn_node *tni_node_new(int kind, const tn_op *op, uint32_t nedges, uint32_t nouts,
                                    int32_t dims, size_t tail, uint32_t versions, size_t blob) {
    size_t metas_at = sizeof(tn_node) + nedges * sizeof(tni_edge);
    size_t args_at = metas_at + nouts * (sizeof(tni_out) + sizeof(int64_t) * (size_t)dims);
    size_t versions_at = args_at + ((tail + 7) & ~(size_t)7);
    size_t bytes = versions_at + sizeof(uint32_t) * (versions + (versions & 1)) + blob;
    size_t lines = (bytes + 63) / 64;
    tn_node *n = lines <= TNI_NODE_CLASSES ? tni_agt.free_nodes[lines - 1] : NULL;
    if (TN_LIKELY(n != NULL)) {
        tni_agt.free_nodes[lines - 1] = n->next;
        tni_agt.free_count[lines - 1]--;
    } else if (!(n = tni_node_block(bytes))) {
        return NULL;
    }
    atomic_store_explicit(&n->refs, 1, memory_order_relaxed);
    n->kind = (uint8_t)kind;
    n->lines = (uint8_t)(lines <= TNI_NODE_CLASSES ? lines : 0);
    n->flags = 0;
    n->dims = (uint8_t)dims;
    n->seq = ++tni_agt.seq;
    n->op = op;
    n->nedges = nedges;
    n->nouts = nouts;
    n->extra = NULL;
    n->shown = NULL;
    n->metas_at = (uint32_t)metas_at;
    n->args_at = (uint32_t)args_at;
    n->versions_at = (uint32_t)versions_at;
    n->owned = 0;
    tni_edge *e = tni_node_edges(n);
    for (uint32_t i = 0; i < nedges; i++) e[i].to = 0;
    return n;
}

static inline void tni_node_set_out(tn_node *n, uint32_t i, const tn_tensor *t) {
    tni_out *o = tni_node_out(n, i);
    o->word = t->v.word & TN_W_ALIKE;
    o->ndim = t->v.ndim;
    o->differentiable = tni_is_differentiable(&t->v);
    for (int32_t d = 0; d < t->v.ndim; d++) o->shape[d] = t->v.shape[d];
}

#endif
