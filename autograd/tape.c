/* tape.c: makes a node of an operator call.
 *
 * The node keeps a copy of the call's argument struct. Of its tensors only those stay that the gradient
 * reads: inputs as references with the version they had, results as detached aliases (the result owns
 * the node, so that the node must not own the result), geometry-only inputs as headers without data.
 * Numbers that stood on the caller's stack are copied into the node. */
#include <stdlib.h>

#include "tape_priv.h"

/* ---- Sizes -------------------------------------------------------------------------------------*/

static inline tn_tensor *input_at(const tn_op *op, const void *args, int i) {
    const char *p = (const char *)args + op->in_offset[i];
    return *(tn_tensor *const *)(const void *)p;
}
static inline const tn_views *list_at(const tn_op *op, const void *args, int i) {
    return (const void *)((const char *)args + op->in_offset[i]);
}

typedef struct sizes {
    uint32_t nedges;
    int32_t dims;
    size_t blob; /* int lists, arrays of tensor lists, numbers */
} sizes;

/* Room for the lists of numbers among the arguments. */
static size_t special_bytes(const tni_recipe *rc, const void *args) {
    size_t bytes = 0;
    for (int i = 0; i < rc->nspecial; i++) {
        const tn_ints *list = (const void *)((const char *)args + rc->special[i].offset);
        if (rc->special[i].kind != TN_F_STR && rc->special[i].kind != TN_F_GENERATOR && list->n > 0)
            bytes += sizeof(int64_t) * (size_t)list->n;
    }
    return bytes;
}

static sizes measure(const tn_op *op, const tni_recipe *rc, const void *args,
                     tn_tensor *const *outs, int nout) {
    sizes s = {op->nin, 0, 0};
    for (int i = 0; i < nout; i++)
        if (outs[i] && outs[i]->v.ndim > s.dims) s.dims = outs[i]->v.ndim;
    for (int i = 0; i < op->nin; i++) {
        if (TN_UNLIKELY(rc->lists >> i & 1u)) {
            int64_t n = list_at(op, args, i)->n;
            s.nedges += (uint32_t)n - 1;
            s.blob += sizeof(void *) * (size_t)n;
        } else {
            const tn_tensor *t = input_at(op, args, i);
            if (t && (t->flags & TNI_T_STACK)) s.blob += 16;
        }
    }
    s.blob += special_bytes(rc, args);
    return s;
}

/* ---- Saving ------------------------------------------------------------------------------------*/

typedef struct recorder {
    tn_node *n;
    const tni_recipe *rc;
    const void *from; /* the call's arguments */
    char *blob;       /* free room in the node */
    tni_hook_set *hooks;
    unsigned active; /* bit i: tensor argument i wants a gradient */
    bool inplace;
    tn_tensor *out0;
    tn_tensor *original; /* owned: out0 as it was before a call in place, where somebody reads it */
} recorder;

/* A number as a tensor header whose element lies in the node. It keeps the mark of a stack tensor:
 * whoever wants to keep it longer than the node copies it. */
static tn_status save_number(recorder *r, const tn_tensor *t, tn_tensor **ret_slot) {
    tn_tensor *h;
    tn_device cpu = {0, 0};
    TN_TRY(tni_header_new(tn_view_dtype(&t->v), cpu, 0, NULL, NULL, &h));
    memcpy(r->blob, t->v.data, (size_t)tn_view_itemsize(&t->v));
    h->v.data = r->blob;
    h->v.word |= TN_W_SCALAR;
    h->flags |= TNI_T_STACK;
    r->blob += 16;
    r->n->flags |= TNI_NODE_OWNS;
    *ret_slot = h;
    return TN_OK;
}

static tn_status save_geometry(recorder *r, const tn_tensor *t, tn_tensor **ret_slot) {
    r->n->flags |= TNI_NODE_OWNS;
    return tni_geometry(t, ret_slot);
}

static inline bool gradient_reads(uint32_t flags, unsigned active) {
    uint32_t readers = flags >> TNI_FIELD_READERS_SHIFT;
    return (flags & TNI_FIELD_SAVED) && (readers == 0 || (readers & active));
}

static tn_status save_whole(recorder *r, tn_tensor *t, uint32_t slot, tn_tensor **ret_slot) {
    uint32_t version = tn_tensor_version(t);
    if (TN_UNLIKELY(t->v.word & TN_W_INFERENCE))
        return tn_fail(
            TN_E_STATE, -1,
            "Inference tensors cannot be saved for backward. Please do not use Tensors "
            "created in inference mode in computation tracked by autograd. To work around "
            "this, you can make a clone to get a normal tensor and use it in autograd, or "
            "use `no_grad()` instead of `inference_mode()`.");
    r->n->flags |= TNI_NODE_HAS_SAVED | TNI_NODE_OWNS;
    if (r->inplace && t->storage == r->out0->storage)
        version--; /* what the gradient needs was there before this call wrote */
    tni_node_versions(r->n)[slot] = version;
    if (TN_UNLIKELY(r->hooks != NULL)) return tni_pack(r->n, r->hooks, t, slot);
    *ret_slot = tn_tensor_ref(t);
    return TN_OK;
}

static inline tn_status save_input(recorder *r, uint32_t flags, tn_tensor *t, uint32_t edge,
                                   tn_tensor **ret_slot) {
    if (gradient_reads(flags, r->active)) {
        if (t->flags & TNI_T_STACK) return save_number(r, t, ret_slot);
        if (r->inplace && t == r->out0 && r->original) t = r->original;
        return save_whole(r, t, edge, ret_slot);
    }
    if (flags & TNI_FIELD_SAVED_SHAPE) return save_geometry(r, t, ret_slot);
    return TN_OK;
}

/* A result: an alias that does not own the node. Its history is put back when it is unpacked. */
static tn_status save_output(recorder *r, uint32_t flags, tn_tensor *t, uint32_t slot,
                             tn_tensor **ret_slot) {
    if (!gradient_reads(flags, r->active)) {
        if (flags & TNI_FIELD_SAVED_SHAPE) return save_geometry(r, t, ret_slot);
        return TN_OK;
    }
    tn_tensor *alias;
    TN_TRY(tni_detach(t, &alias));
    r->n->flags |= TNI_NODE_HAS_SAVED | TNI_NODE_OWNS;
    tni_node_versions(r->n)[slot] = tn_tensor_version(t);
    if (TN_UNLIKELY(r->hooks != NULL)) {
        tn_status st = tni_pack(r->n, r->hooks, alias, slot);
        tn_tensor_unref(&alias);
        return st;
    }
    *ret_slot = alias;
    return TN_OK;
}

/* Empties everything in the copied struct that points somewhere, so that the node may be freed at any
 * time; lists get their room. */
static inline void clear_pointers(recorder *r) {
    const tn_op *op = r->n->op;
    char *args = tni_node_args(r->n);
    *(const void **)(void *)args = NULL; /* the plan */
    for (int i = 0; i < op->nin; i++) {
        void *p = args + op->in_offset[i];
        if (TN_UNLIKELY(r->rc->lists >> i & 1u)) {
            tn_views *list = p;
            size_t bytes = sizeof(void *) * (size_t)list->n;
            memset(r->blob, 0, bytes);
            list->v = (tn_view *const *)(void *)r->blob;
            r->blob += bytes;
        } else {
            *(void **)p = NULL;
        }
    }
    for (int i = 0; i < op->nout; i++) {
        void *p = args + op->out_offset[i];
        if (TN_UNLIKELY(r->rc->list_out))
            *(tn_views *)p = (tn_views){NULL, 0};
        else
            *(void **)p = NULL;
    }
    for (int i = 0; i < r->rc->nspecial; i++) {
        void *p = args + r->rc->special[i].offset;
        if (r->rc->special[i].kind == TN_F_STR || r->rc->special[i].kind == TN_F_GENERATOR)
            *(void **)p = NULL;
    }
}

static tn_status copy_text(const char *text, void *slot) {
    if (!text) return TN_OK;
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (!copy) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    memcpy(copy, text, bytes);
    *(char **)slot = copy;
    return TN_OK;
}

static tn_status copy_special(recorder *r) {
    char *args = tni_node_args(r->n);
    r->n->flags |= TNI_NODE_OWNS;
    for (int i = 0; i < r->rc->nspecial; i++) {
        void *p = args + r->rc->special[i].offset;
        const void *from = (const char *)r->from + r->rc->special[i].offset;
        if (r->rc->special[i].kind == TN_F_STR) {
            TN_TRY(copy_text(*(const char *const *)from, p));
        } else if (r->rc->special[i].kind == TN_F_GENERATOR) {
            *(tn_generator **)p = tn_generator_ref(*(tn_generator *const *)from);
        } else {
            tn_ints *list = p;
            if (list->n <= 0) continue;
            size_t bytes = sizeof(int64_t) * (size_t)list->n;
            memcpy(r->blob, list->v, bytes);
            list->v = (const int64_t *)(void *)r->blob;
            r->blob += bytes;
        }
    }
    return TN_OK;
}

static tn_status save_list(recorder *r, int i, uint32_t edge) {
    const tn_views *list = list_at(r->n->op, r->from, i);
    const tn_views *mine = list_at(r->n->op, tni_node_args(r->n), i);
    for (int64_t k = 0; k < list->n; k++, edge++) {
        tn_tensor **slot = (tn_tensor **)(uintptr_t)&mine->v[k];
        if (list->v[k]) TN_TRY(save_input(r, r->rc->in_flags[i], tni_t(list->v[k]), edge, slot));
    }
    return TN_OK;
}

static tn_status save_all(recorder *r, tn_tensor *const *outs) {
    const tn_op *op = r->n->op;
    const uint32_t some = TNI_FIELD_SAVED | TNI_FIELD_SAVED_SHAPE;
    char *args = tni_node_args(r->n);
    uint32_t edge = 0;
    for (int i = 0; i < op->nin; i++) {
        uint32_t flags = r->rc->in_flags[i];
        if (TN_UNLIKELY(r->rc->lists >> i & 1u)) {
            TN_TRY(save_list(r, i, edge));
            edge += (uint32_t)list_at(op, r->from, i)->n;
            continue;
        }
        tn_tensor *t = input_at(op, r->from, i);
        tn_tensor **slot = (tn_tensor **)(void *)(args + op->in_offset[i]);
        if ((flags & some) && t) TN_TRY(save_input(r, flags, t, edge, slot));
        edge++;
    }
    if (r->rc->list_out) return TN_OK; /* gradients of lists read no results */
    for (int i = 0; i < op->nout; i++) {
        uint32_t flags = r->rc->out_flags[i];
        tn_tensor **slot = (tn_tensor **)(void *)(args + op->out_offset[i]);
        if ((flags & some) && outs[i])
            TN_TRY(save_output(r, flags, outs[i], edge + (uint32_t)i, slot));
    }
    return TN_OK;
}

/* ---- Edges and outputs -------------------------------------------------------------------------*/

static inline tn_status make_edge(recorder *r, int i, tn_tensor *t, tni_edge *e) {
    r->active |= 1u << i;
    /* a changed view's gradient goes to its base: tni_rebase makes that edge */
    if (TN_UNLIKELY(r->inplace && i == 0 && tni_writes_base(t))) return TN_OK;
    if (TN_UNLIKELY(t->v.word & TN_W_LEAFVIEW)) return tni_edge_of(t, e);
    if (t->grad_fn) {
        e->to = (uintptr_t)tn_node_ref(t->grad_fn);
        e->nr = t->output_nr;
    } else {
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
        e->to = (uintptr_t)t | TNI_LEAF;
    }
    return TN_OK;
}

static tn_status make_edges(recorder *r) {
    const tn_op *op = r->n->op;
    tni_edge *e = tni_node_edges(r->n);
    for (int i = 0; i < op->nin; i++) {
        bool diff = r->rc->in_flags[i] & TNI_FIELD_DIFF;
        if (TN_UNLIKELY(r->rc->lists >> i & 1u)) {
            const tn_views *list = list_at(op, r->from, i);
            for (int64_t k = 0; k < list->n; k++, e++) {
                tn_tensor *t = tni_t(list->v[k]);
                if (diff && t && (t->v.word & TN_W_GRAD)) TN_TRY(make_edge(r, i, t, e));
            }
            continue;
        }
        tn_tensor *t = input_at(op, r->from, i);
        if (diff && t && (t->v.word & TN_W_GRAD)) TN_TRY(make_edge(r, i, t, e));
        e++;
    }
    return TN_OK;
}

static tn_status set_outputs(recorder *r, tn_tensor *const *outs, int nout) {
    if (nout > 1 && (r->n->op->flags & TNI_OP_FIRST)) nout = 1;
    for (int i = 0; i < nout; i++) {
        tn_tensor *o = outs[i];
        if (!o || !tni_is_differentiable(&o->v)) continue;
        if (r->inplace && i == 0)
            TN_TRY(tni_rebase(o, r->n, 0));
        else
            tni_set_grad_fn(o, r->n, (uint32_t)i);
    }
    return TN_OK;
}

/* The text is kept even where recording then fails: anomaly mode is for finding mistakes. */
static tn_status note_where(tn_node *n) {
    char *text = tni_host_where();
    if (!text) return TN_OK;
    tni_extra *x = tni_node_extra(n);
    if (!x) {
        tn_free(text);
        return TN_E_MEMORY;
    }
    x->where = text;
    return TN_OK;
}

static tn_status fill(recorder *r, tn_tensor *const *outs, int nout) {
    tn_node *n = r->n;
    TN_TRY(make_edges(r));
    if (r->active == 0) return TN_OK;
    for (int i = 0; i < nout; i++) {
        if (outs[i]) {
            tni_node_set_out(n, (uint32_t)i, outs[i]);
        } else {
            *tni_node_out(n, (uint32_t)i) = (tni_out){0, 0, 0};
        }
    }
    if (r->rc->nspecial) TN_TRY(copy_special(r));
    TN_TRY(save_all(r, outs));
    if (TN_UNLIKELY(tni_agt.detect_anomaly)) TN_TRY(note_where(n));
    return set_outputs(r, outs, nout);
}

/* The common case: single tensors in, one new tensor out. r->active is known already. */
static tn_status fill_plain(recorder *r, tn_tensor *out) {
    const uint32_t some = TNI_FIELD_SAVED | TNI_FIELD_SAVED_SHAPE;
    tn_node *n = r->n;
    const tn_op *op = n->op;
    const char *from = r->from;
    char *args = tni_node_args(n);
    tni_edge *e = tni_node_edges(n);
    for (uint32_t i = 0; i < op->nin; i++) {
        tn_tensor *t = *(tn_tensor *const *)(const void *)(from + op->in_offset[i]);
        tn_tensor **slot = (tn_tensor **)(void *)(args + op->in_offset[i]);
        uint32_t flags = r->rc->in_flags[i];
        if (r->active >> i & 1u) TN_TRY(make_edge(r, (int)i, t, &e[i]));
        if (!(flags & some) || !t) continue;
        TN_TRY(save_input(r, flags, t, i, slot));
        n->owned |= (uint32_t)(*slot != NULL) << i;
    }
    if (r->rc->out_flags[0] & some) {
        tn_tensor **slot = (tn_tensor **)(void *)(args + op->out_offset[0]);
        TN_TRY(save_output(r, r->rc->out_flags[0], out, op->nin, slot));
        n->owned |= (uint32_t)(*slot != NULL) << TNI_OWNED_OUT;
    }
    return r->rc->nspecial ? copy_special(r) : TN_OK;
}

static tn_status record_plain(const tn_op *op, recorder *r, tn_tensor *out) {
    const char *from = r->from;
    size_t blob = 0;
    for (uint32_t i = 0; i < op->nin; i++) {
        const tn_tensor *t = *(tn_tensor *const *)(const void *)(from + op->in_offset[i]);
        if (!t) continue;
        if ((t->v.word & TN_W_GRAD) && (r->rc->in_flags[i] & TNI_FIELD_DIFF)) r->active |= 1u << i;
        if (t->flags & TNI_T_STACK) blob += 16;
    }
    if (!r->active || !tni_is_differentiable(&out->v)) return TN_OK;
    if (r->rc->nspecial) blob += special_bytes(r->rc, from);
    uint32_t versions = op->nin + 1u;
    tn_node *n =
        tni_node_new(TNI_NODE_OP, op, op->nin, 1, out->v.ndim, op->args_bytes, versions, blob);
    if (TN_UNLIKELY(!n)) return TN_E_MEMORY;
    r->n = n;
    r->blob = tni_node_blob(n, versions);
    memcpy(tni_node_args(n), from, op->args_bytes);
    clear_pointers(r);
    tni_node_set_out(n, 0, out);
    tn_status st = fill_plain(r, out);
    if (TN_UNLIKELY(st != TN_OK || out->grad_fn)) {
        if (st == TN_OK) tni_set_grad_fn(out, n, 0);
        tni_node_unref(n);
        return st;
    }
    out->grad_fn = n; /* the node's only reference */
    out->output_nr = 0;
    out->v.word |= TN_W_GRAD;
    return TN_OK;
}

tn_status tni_record(const tn_op *op, const void *args, tn_tensor *const *outs, int nout) {
    recorder r;
    r.rc = tni_recipe_of(op);
    if (TN_UNLIKELY(!r.rc)) return TN_E_MEMORY;
    if (TN_UNLIKELY(tni_tls.inference)) return TN_OK;
    r.out0 = nout > 0 ? outs[0] : NULL;
    bool first = op->nin > 0 && !(r.rc->lists & 1u) && r.out0 && input_at(op, args, 0) == r.out0;
    if (TN_LIKELY(r.rc->plain && !first && !tni_agt.detect_anomaly)) {
        r.from = args;
        r.hooks = tni_agt.saved_hooks;
        r.inplace = false;
        r.active = 0;
        return record_plain(op, &r, r.out0);
    }
    /* a composite may hand back its input as it is: then there is nothing to record */
    if (TN_UNLIKELY(first && r.rc->may_return_input)) return TN_OK;
    sizes s = measure(op, r.rc, args, outs, nout);
    uint32_t versions = s.nedges + (uint32_t)nout;
    r.n = tni_node_new(TNI_NODE_OP, op, s.nedges, (uint32_t)nout, s.dims, op->args_bytes, versions,
                       s.blob);
    if (TN_UNLIKELY(!r.n)) return TN_E_MEMORY;
    memcpy(tni_node_args(r.n), args, op->args_bytes);
    if (r.rc->list_out) r.n->flags |= TNI_NODE_LIST_OUT;
    r.from = args;
    r.blob = tni_node_blob(r.n, versions);
    r.active = 0;
    r.hooks = tni_agt.saved_hooks;
    r.inplace = first;
    r.original = NULL;
    if (TN_UNLIKELY(first && tni_agt.original_of == r.out0)) {
        r.original = tni_agt.original;
        tni_agt.original = NULL;
        tni_agt.original_of = NULL;
    }
    clear_pointers(&r);
    tn_status st = fill(&r, outs, nout);
    tn_tensor_unref(&r.original);
    tni_node_unref(r.n);
    return st;
}
