/* tape.c: makes a node of an operator call, and runs it backward.
 *
 * The node keeps a copy of the call's argument struct. Of its tensors only those stay that the gradient
 * reads: inputs as references with the version they had, results as detached aliases (the result owns
 * the node, so that the node must not own the result), geometry-only inputs as headers without data.
 * Numbers that stood on the caller's stack are copied into the node. */
#include <stdlib.h>

#include "tape_priv.h"

/* ---- Sizes -------------------------------------------------------------------------------------*/

typedef struct sizes {
    uint32_t nedges, nouts;
    int32_t dims;
    size_t blob; /* int lists, arrays of tensor lists, numbers */
} sizes;

static const tn_tensor *input_at(const tn_op *op, const void *args, int i) {
    const char *p = (const char *)args + op->fields[op->in_field[i]].offset;
    return *(const tn_tensor *const *)(const void *)p;
}

static void measure(const tn_op *op, const void *args, tn_tensor *const *outs, int nout, sizes *s) {
    s->nedges = 0;
    s->nouts = (uint32_t)nout;
    s->dims = 0;
    s->blob = 0;
    for (int i = 0; i < nout; i++)
        if (outs[i] && outs[i]->v.ndim > s->dims) s->dims = outs[i]->v.ndim;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind == TN_F_TENSORS) {
            const tn_views *list = (const void *)((const char *)args + f->offset);
            s->nedges += (uint32_t)list->n;
            s->blob += sizeof(void *) * (size_t)list->n;
        } else {
            const tn_tensor *t = input_at(op, args, i);
            s->nedges++;
            if (t && (t->flags & TNI_T_STACK)) s->blob += 16;
        }
    }
    if (op->info.kind == TN_OP_POINTWISE) return; /* has no lists of numbers */
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        if (f->kind != TN_F_INTS && f->kind != TN_F_DIMS) continue;
        const tn_ints *list = (const void *)((const char *)args + f->offset);
        if (list->n > 0) s->blob += sizeof(int64_t) * (size_t)list->n;
    }
}

/* ---- Saving ------------------------------------------------------------------------------------*/

typedef struct recorder {
    tn_node *n;
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
    *ret_slot = h;
    return TN_OK;
}

static tn_status save_geometry(const tn_tensor *t, tn_tensor **ret_slot) {
    return tni_header_new(tn_view_dtype(&t->v), tn_tensor_device(t), t->v.ndim, t->v.shape,
                          t->v.strides, ret_slot);
}

static bool gradient_reads(const tn_field *f, unsigned active) {
    unsigned readers = (unsigned)f->flags >> TNI_FIELD_READERS_SHIFT;
    return (f->flags & TNI_FIELD_SAVED) && (readers == 0 || (readers & active));
}

static tn_status save_whole(recorder *r, tn_tensor *t, uint32_t slot, tn_tensor **ret_slot) {
    uint32_t version = tn_tensor_version(t);
    r->n->flags |= TNI_NODE_HAS_SAVED;
    if (r->inplace && t->storage == r->out0->storage)
        version--; /* what the gradient needs was there before this call wrote */
    tni_node_versions(r->n)[slot] = version;
    if (TN_UNLIKELY(r->hooks != NULL)) return tni_pack(r->n, r->hooks, t, slot);
    *ret_slot = tn_tensor_ref(t);
    return TN_OK;
}

static tn_status save_input(recorder *r, const tn_field *f, tn_tensor *t, uint32_t edge,
                            tn_tensor **ret_slot) {
    if (gradient_reads(f, r->active)) {
        if (t->flags & TNI_T_STACK) return save_number(r, t, ret_slot);
        if (r->inplace && t == r->out0 && r->original) t = r->original;
        return save_whole(r, t, edge, ret_slot);
    }
    if (f->flags & TNI_FIELD_SAVED_SHAPE) return save_geometry(t, ret_slot);
    return TN_OK;
}

/* A result: an alias that does not own the node. Its history is put back when it is unpacked. */
static tn_status save_output(recorder *r, const tn_field *f, tn_tensor *t, uint32_t slot,
                             tn_tensor **ret_slot) {
    if (!gradient_reads(f, r->active)) {
        if (f->flags & TNI_FIELD_SAVED_SHAPE) return save_geometry(t, ret_slot);
        return TN_OK;
    }
    tn_tensor *alias;
    TN_TRY(tni_detach(t, &alias));
    r->n->flags |= TNI_NODE_HAS_SAVED;
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
static void clear_pointers(recorder *r) {
    const tn_op *op = r->n->op;
    char *args = tni_node_args(r->n);
    *(const void **)(void *)args = NULL; /* the plan */
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        void *p = args + f->offset;
        tn_views *list = p;
        switch (f->kind) {
        case TN_F_TENSOR:
        case TN_F_TENSOR_OPT:
        case TN_F_OPERAND:
        case TN_F_OUT:
        case TN_F_STR:
        case TN_F_GENERATOR:
            *(void **)p = NULL;
            break;
        case TN_F_TENSORS:
            memset(r->blob, 0, sizeof(void *) * (size_t)list->n);
            list->v = (tn_view *const *)(void *)r->blob;
            r->blob += sizeof(void *) * (size_t)list->n;
            break;
        case TN_F_OUTS:
            *list = (tn_views){NULL, 0};
            break;
        default:
            break;
        }
    }
}

static tn_status copy_plain(recorder *r) {
    const tn_op *op = r->n->op;
    char *args = tni_node_args(r->n);
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        void *p = args + f->offset;
        const void *from = (const char *)r->from + f->offset;
        if (f->kind == TN_F_INTS || f->kind == TN_F_DIMS) {
            tn_ints *list = p;
            if (list->n <= 0) continue;
            size_t bytes = sizeof(int64_t) * (size_t)list->n;
            memcpy(r->blob, list->v, bytes);
            list->v = (const int64_t *)(void *)r->blob;
            r->blob += bytes;
        } else if (f->kind == TN_F_STR) {
            const char *text = *(const char *const *)from;
            if (!text) continue;
            char *copy = malloc(strlen(text) + 1);
            if (!copy) return tn_fail(TN_E_MEMORY, -1, "out of memory");
            strcpy(copy, text);
            *(char **)p = copy;
        } else if (f->kind == TN_F_GENERATOR) {
            *(tn_generator **)p = tn_generator_ref(*(tn_generator *const *)from);
        }
    }
    return TN_OK;
}

static tn_status save_all(recorder *r, tn_tensor *const *outs) {
    const tn_op *op = r->n->op;
    char *args = tni_node_args(r->n);
    uint32_t edge = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind == TN_F_TENSORS) {
            const tn_views *list = (const void *)((const char *)r->from + f->offset);
            const tn_views *mine = (const void *)(args + f->offset);
            for (int64_t k = 0; k < list->n; k++, edge++) {
                tn_tensor **slot = (tn_tensor **)(uintptr_t)&mine->v[k];
                if (list->v[k]) TN_TRY(save_input(r, f, tni_t(list->v[k]), edge, slot));
            }
        } else {
            tn_tensor *t = (tn_tensor *)(uintptr_t)input_at(op, r->from, i);
            tn_tensor **slot = (tn_tensor **)(void *)(args + f->offset);
            if (t) TN_TRY(save_input(r, f, t, edge, slot));
            edge++;
        }
    }
    if (op->flags & TNI_OP_LIST_OUT) return TN_OK; /* gradients of lists read no results */
    for (int i = 0; i < op->nout; i++) {
        const tn_field *f = &op->fields[op->out_field[i]];
        tn_tensor **slot = (tn_tensor **)(void *)(args + f->offset);
        if (outs[i]) TN_TRY(save_output(r, f, outs[i], edge + (uint32_t)i, slot));
    }
    return TN_OK;
}

/* ---- Edges and outputs -------------------------------------------------------------------------*/

static tn_status make_edges(recorder *r) {
    const tn_op *op = r->n->op;
    tni_edge *e = tni_node_edges(r->n);
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        bool diff = f->flags & TNI_FIELD_DIFF;
        const tn_tensor *one = NULL, *const *list = &one;
        int64_t n = 1;
        if (f->kind == TN_F_TENSORS) {
            const tn_views *views = (const void *)((const char *)r->from + f->offset);
            list = (const tn_tensor *const *)(const void *)views->v;
            n = views->n;
        } else {
            one = input_at(op, r->from, i);
        }
        for (int64_t k = 0; k < n; k++, e++) {
            if (!diff || !list[k] || !(list[k]->v.word & TN_W_GRAD)) continue;
            if (i < 32) r->active |= 1u << i;
            /* a changed view's gradient goes to its base: tni_rebase makes that edge */
            if (r->inplace && i == 0 && tni_writes_base(list[k])) continue;
            TN_TRY(tni_edge_of((tn_tensor *)(uintptr_t)list[k], e));
        }
    }
    return TN_OK;
}

void tni_set_grad_fn(tn_tensor *t, tn_node *n, uint32_t nr) {
    tn_node *old = t->grad_fn;
    t->grad_fn = tn_node_ref(n);
    t->output_nr = nr;
    if (n) t->v.word |= TN_W_GRAD;
    if (old) tni_node_unref(old);
}

static bool differentiable(const tn_tensor *t) {
    return tn_dtype_category(tn_view_dtype(&t->v)) >= TN_CAT_FLOAT;
}

/* Reads the mark of outputs that carry no gradient although their dtype could. */
static tn_status set_outputs(recorder *r, tn_tensor *const *outs, int nout) {
    for (int i = 0; i < nout; i++) {
        tn_tensor *o = outs[i];
        if (!o || !differentiable(o)) continue;
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
    if (n->op->info.kind != TN_OP_POINTWISE || (n->op->flags & TNI_OP_HAS_TEXT)) TN_TRY(copy_plain(r));
    TN_TRY(save_all(r, outs));
    if (TN_UNLIKELY(tni_tls.detect_anomaly)) TN_TRY(note_where(n));
    return set_outputs(r, outs, nout);
}

/* A composite may hand back its input as it is: then there is nothing to record. */
static bool returns_input(const tn_op *op, const void *args, tn_tensor *const *outs, int nout) {
    if (op->info.kind != TN_OP_COMPOSITE && op->info.kind != TN_OP_VIEW) return false;
    if (op->nin == 0 || nout != 1) return false;
    const tn_field *f = &op->fields[op->in_field[0]];
    return f->kind != TN_F_TENSORS && !(f->flags & TNI_FIELD_MUTATED) &&
           input_at(op, args, 0) == outs[0];
}

tn_status tni_record(const tn_op *op, const void *args, tn_tensor *const *outs, int nout) {
    sizes s;
    recorder r;
    if (TN_UNLIKELY(tni_tls.inference) || returns_input(op, args, outs, nout)) return TN_OK;
    measure(op, args, outs, nout, &s);
    r.n = tni_node_new(TNI_NODE_OP, op, s.nedges, s.nouts, s.dims, op->args_bytes,
                       s.nedges + s.nouts, s.blob);
    if (TN_UNLIKELY(!r.n)) return TN_E_MEMORY;
    memcpy(tni_node_args(r.n), args, op->args_bytes);
    if (op->flags & TNI_OP_LIST_OUT) r.n->flags |= TNI_NODE_LIST_OUT;
    r.from = args;
    r.blob = tni_node_blob(r.n, s.nedges + s.nouts);
    r.active = 0;
    r.hooks = tni_agt.saved_hooks;
    r.out0 = nout > 0 ? outs[0] : NULL;
    r.inplace = op->nin > 0 && op->fields[op->in_field[0]].kind != TN_F_TENSORS && r.out0 &&
                input_at(op, args, 0) == r.out0;
    r.original = NULL;
    if (r.inplace && tni_agt.original_of == r.out0) {
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

/* ---- Backward of one operator ------------------------------------------------------------------*/

/* Copies of pointers that one gradient call sees instead of the saved ones. */
typedef struct unpacked {
    _Alignas(16) char args[768];
    tn_tensor **temps;
    uint32_t ntemps;
} unpacked;

static tn_status fail_used_up(void) {
    return tn_fail(TN_E_STATE, -1,
                   "Trying to backward through the graph a second time (or directly access saved "
                   "tensors after they have already been freed). Saved intermediate values of the "
                   "graph are freed when you call .backward() or autograd.grad(). Specify "
                   "retain_graph=True if you need to backward through the graph a second time or if "
                   "you need to access saved tensors after calling backward.");
}

/* Which field and list position a version slot stands for. */
static void *slot_of(const tn_node *n, char *args, uint32_t slot) {
    const tn_op *op = n->op;
    uint32_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind == TN_F_TENSORS) {
            const tn_views *list = (const void *)(args + f->offset);
            if (slot < at + (uint32_t)list->n) return (void *)(uintptr_t)&list->v[slot - at];
            at += (uint32_t)list->n;
        } else {
            if (slot == at) return args + f->offset;
            at++;
        }
    }
    return args + op->fields[op->out_field[slot - at]].offset;
}

/* The node that made an edge's tensor, for messages; NULL for leaves. */
static const tn_node *maker_of(const tn_node *n, uint32_t edge) {
    return edge < n->nedges ? tni_key_node(tni_node_edges(n)[edge].to) : n;
}

static tn_status check_versions(const tn_node *n, const tn_node *owner) {
    const tn_op *op = n->op;
    const char *args = tni_node_args(n);
    const uint32_t *versions = tni_node_versions(n);
    uint32_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        const tn_tensor *one = NULL, *const *list = &one;
        int64_t count = 1;
        if (f->kind == TN_F_TENSORS) {
            const tn_views *views = (const void *)(args + f->offset);
            list = (const tn_tensor *const *)(const void *)views->v;
            count = views->n;
        } else {
            one = input_at(op, args, i);
        }
        for (int64_t k = 0; k < count; k++, at++) {
            const tn_tensor *t = list[k];
            if (!t || !t->storage || tn_tensor_version(t) == versions[at]) continue;
            tni_edge e = tni_node_edges(owner)[at];
            TN_TRY(tni_check_version(t, versions[at], maker_of(owner, at), e.nr));
        }
    }
    if (op->flags & TNI_OP_LIST_OUT) return TN_OK;
    for (int i = 0; i < op->nout; i++, at++) {
        const char *p = args + op->fields[op->out_field[i]].offset;
        const tn_tensor *t = *(const tn_tensor *const *)(const void *)p;
        if (t && t->storage) TN_TRY(tni_check_version(t, versions[at], n, (uint32_t)i));
    }
    return TN_OK;
}

static tn_status add_temp(unpacked *u, tn_tensor *t) {
    tn_tensor **grown = realloc(u->temps, sizeof *grown * (u->ntemps + 1));
    if (!grown) {
        tn_tensor_unref(&t);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    u->temps = grown;
    grown[u->ntemps++] = t;
    return TN_OK;
}

/* A saved result with its place in the graph, for a backward that is recorded itself. */
static tn_status with_history(const tn_tensor *saved, tn_node *owner, uint32_t nr,
                              tn_tensor **ret_tensor) {
    tn_tensor *t;
    TN_TRY(tni_detach(saved, &t));
    if (owner->kind == TNI_NODE_SLICES) {
        tn_status st = tni_slices_history(owner, t);
        if (st != TN_OK) {
            tn_tensor_unref(&t);
            return st;
        }
    } else if (tni_node_out(owner, nr)->differentiable) {
        tni_set_grad_fn(t, owner, nr);
    }
    *ret_tensor = t;
    return TN_OK;
}

static tn_status unpack(tn_node *n, tn_node *owner, unpacked *u) {
    const tn_op *op = n->op;
    memcpy(u->args, tni_node_args(n), op->args_bytes);
    for (uint32_t i = 0; n->extra && i < n->extra->npacked; i++) {
        tn_tensor *t;
        const tni_packed_tensor *p = &n->extra->packed[i];
        TN_TRY(tni_unpack(p, &t));
        TN_TRY(add_temp(u, t));
        *(tn_tensor **)slot_of(n, u->args, p->slot) = t;
    }
    if (tni_tls.no_grad || (op->flags & TNI_OP_LIST_OUT)) return TN_OK;
    for (int i = 0; i < op->nout; i++) {
        tn_tensor **slot = (tn_tensor **)(void *)(u->args + op->fields[op->out_field[i]].offset);
        tn_tensor *t;
        if (!*slot || !(*slot)->storage) continue;
        TN_TRY(with_history(*slot, owner, (uint32_t)i, &t));
        *slot = t;
        TN_TRY(add_temp(u, t));
    }
    return TN_OK;
}

static tn_status zeros_where_none(const tn_node *n, tn_tensor **g, uint64_t *ret_made) {
    if (n->flags & TNI_NODE_LIST_OUT) return TN_OK;
    for (uint32_t i = 0; i < n->nouts && i < 64; i++) {
        const tni_out *o = tni_node_out(n, i);
        if (g[i] || !o->differentiable) continue;
        TN_TRY(tni_constant(0.0, o->word, o->ndim, o->shape, &g[i]));
        *ret_made |= UINT64_C(1) << i;
    }
    return TN_OK;
}

tn_status tni_op_apply(tn_node *n, tn_node *owner, tn_tensor **g, uint64_t needs, tn_tensor **ret) {
    const tn_op *op = n->op;
    uint64_t made = 0;
    if (n->flags & TNI_NODE_USED_UP) return fail_used_up();
    if (n->flags & TNI_NODE_HAS_SAVED) TN_TRY(check_versions(n, owner));
    tn_gctx c = {op, tni_node_args(n), g, needs, ret};
    tn_status st = n->nouts > 1 ? zeros_where_none(n, g, &made) : TN_OK;
    bool special = (n->flags & TNI_NODE_HAS_SAVED) && (!tni_tls.no_grad || n->extra);
    if (st == TN_OK && special) {
        unpacked u;
        u.temps = NULL;
        u.ntemps = 0;
        st = unpack(n, owner, &u);
        c.args = u.args;
        if (st == TN_OK) st = op->grad(&c);
        for (uint32_t i = 0; i < u.ntemps; i++) tn_tensor_unref(&u.temps[i]);
        free(u.temps);
    } else if (st == TN_OK) {
        st = op->grad(&c);
    }
    for (uint32_t i = 0; i < n->nouts && i < 64; i++)
        if (made >> i & 1u) tn_tensor_unref(&g[i]);
    return st;
}

tn_status tn_node_saved(tn_node *n, const char *name, tn_tensor **ret_tensor) {
    if (!n || n->kind != TNI_NODE_OP)
        return tn_fail(TN_E_VALUE, 0, "only the nodes of operators save tensors by name");
    const tn_op *op = n->op;
    if (n->flags & TNI_NODE_USED_UP) return fail_used_up();
    TN_TRY(check_versions(n, n));
    tn_tensor *found = NULL;
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        bool tensor = f->kind <= TN_F_TENSOR_OPT || f->kind == TN_F_OPERAND || f->kind == TN_F_OUT;
        if (!tensor || strcmp(f->name, name) != 0) continue;
        const char *p = (const char *)tni_node_args(n) + f->offset;
        found = *(tn_tensor *const *)(const void *)p;
        if (found && f->kind == TN_F_OUT && found->storage)
            return with_history(found, n, (uint32_t)(i - op->out_field[0]), ret_tensor);
    }
    if (found && !found->storage) found = NULL;
    *ret_tensor = tn_tensor_ref(found);
    return TN_OK;
}

/* ---- Hooks into dispatch -----------------------------------------------------------------------*/

/* Runs when the library is mapped, before any call can record. */
__attribute__((constructor)) static void fill_hooks(void) {
    tni_ag.record = tni_record;
    tni_ag.check_inplace = tni_check_inplace;
    tni_ag.note_view = tni_note_view;
    tni_ag.node_unref = tni_node_unref;
    tni_ag.meta_free = tni_meta_free;
}
