/* apply.c: runs the gradient of one node. Of an operator's: checks what was saved, puts back the history of results
 * where the pass is recorded itself, fills in zeros where no gradient came. */
#include <stdlib.h>

#include <tenon/ops_create.h>
#include <tenon/ops_shape.h>

#include "tape_priv.h"

static const tn_tensor *input_at(const tn_op *op, const void *args, int i) {
    const char *p = (const char *)args + op->in_offset[i];
    return *(const tn_tensor *const *)(const void *)p;
}

/* Copies of pointers that one gradient call sees instead of the saved ones. */
typedef struct unpacked {
    _Alignas(16) char args[TNI_MAX_ARGS_BYTES];
    tn_tensor **temps;
    uint32_t ntemps;
    tn_tensor **members; /* of the lists in args; NULL: they are the node's own */
} unpacked;

static tn_status fail_used_up(void) {
    return tn_fail(
        TN_E_STATE, -1,
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
            const tn_node *maker = maker_of(owner, at);
            bool moved = t->grad_fn && t->grad_fn != maker; /* to what wrote in place */
            TN_TRY(
                tni_check_version(t, versions[at], moved ? t->grad_fn : maker, moved ? 0 : e.nr));
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

/* Lists lie outside of the argument struct: what is unpacked into one goes into a copy of it. */
static tn_status own_lists(const tn_op *op, unpacked *u) {
    int64_t count = 0, at = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < op->nin; i++) {
            const tn_field *f = &op->fields[op->in_field[i]];
            tn_views *list = (void *)(u->args + f->offset);
            if (f->kind != TN_F_TENSORS || list->n == 0) continue;
            if (pass == 0) {
                count += list->n;
                continue;
            }
            size_t bytes = (size_t)list->n * sizeof *u->members;
            memcpy(u->members + at, (const void *)list->v, bytes);
            list->v = (tn_view *const *)(const void *)(u->members + at);
            at += list->n;
        }
        if (count == 0) return TN_OK;
        if (pass == 0 && !(u->members = calloc((size_t)count, sizeof *u->members)))
            return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    return TN_OK;
}

/* Gradients of sparse tensors read their parts. */
static tn_status check_layout(const tni_packed_tensor *p, const tn_tensor *t) {
    int32_t have = tni_packed_layout(t);
    return have == p->layout
               ? TN_OK
               : tn_fail(TN_E_STATE, -1,
                         "the unpack hook of a saved tensor returned a tensor of layout %s, but "
                         "what was packed has layout %s",
                         tn_layout_name(have), tn_layout_name(p->layout));
}

/* What a hook packed, and an argument's history with it. */
static tn_status unpack_one(const tn_node *n, tn_node *owner, const tni_packed_tensor *p,
                            tn_tensor **ret_tensor) {
    tn_tensor *t = NULL;
    TN_TRY(tni_unpack(p, &t));
    tn_status st = check_layout(p, t);
    if (st == TN_OK && p->slot < n->nedges)
        st = tni_unpacked_history(tni_node_edges(owner)[p->slot], &t);
    if (st != TN_OK) tn_tensor_unref(&t);
    *ret_tensor = t;
    return st;
}

static tn_status unpack(tn_node *n, tn_node *owner, unpacked *u) {
    const tn_op *op = n->op;
    memcpy(u->args, tni_node_args(n), op->args_bytes);
    if (n->extra && n->extra->npacked) TN_TRY(own_lists(op, u));
    for (uint32_t i = 0; n->extra && i < n->extra->npacked; i++) {
        tn_tensor *t;
        const tni_packed_tensor *p = &n->extra->packed[i];
        TN_TRY(unpack_one(n, owner, p, &t));
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

/* Zeros for results that no gradient came to; made[i]: g[i] is one of them. Built-in operators with a
 * list of results do without, and those whose entry says so. */
static tn_status zeros_where_none(const tn_node *n, tn_tensor **g, bool *made) {
    bool added = n->op->flags & TNI_OP_ADDED;
    if ((n->flags & TNI_NODE_LIST_OUT) && !added) return TN_OK;
    if (n->op->flags & TNI_OP_NO_ZEROS) return TN_OK;
    for (uint32_t i = 0; i < n->nouts; i++) {
        const tni_out *o = tni_node_out(n, i);
        if (g[i] || !o->differentiable) continue;
        TN_TRY(tni_constant(0.0, o->word, o->ndim, o->shape, &g[i]));
        made[i] = true;
    }
    return TN_OK;
}

static tn_status run_formula(tn_gctx *c) {
    tni_tls.formulas++; /* what it takes from its node is no constant of whoever records it */
    tn_status st = c->op->grad(c);
    tni_tls.formulas--;
    return st;
}

/* Runs an operator's gradient; `owner` is the node that the outside knows (n itself, or its slices). */
static tn_status op_apply(tn_node *n, tn_node *owner, tn_tensor **g, uint64_t needs,
                          tn_tensor **ret) {
    const tn_op *op = n->op;
    if (n->flags & TNI_NODE_USED_UP) return fail_used_up();
    if (n->flags & TNI_NODE_HAS_SAVED) TN_TRY(check_versions(n, owner));
    tn_gctx c = {op, tni_node_args(n), g, needs, ret, n->nouts};
    bool some[TNI_MAX_OUTS] = {false}, *made = some;
    if (n->nouts > TNI_MAX_OUTS) made = calloc(n->nouts, sizeof *made);
    if (!made) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = n->nouts > 1 ? zeros_where_none(n, g, made) : TN_OK;
    bool special = (n->flags & TNI_NODE_HAS_SAVED) && (!tni_tls.no_grad || n->extra);
    if (st == TN_OK && special) {
        unpacked u;
        u.temps = u.members = NULL;
        u.ntemps = 0;
        st = unpack(n, owner, &u);
        c.args = u.args;
        if (st == TN_OK) st = run_formula(&c);
        for (uint32_t i = 0; i < u.ntemps; i++) tn_tensor_unref(&u.temps[i]);
        free(u.temps);
        free(u.members);
    } else if (st == TN_OK) {
        st = run_formula(&c);
    }
    for (uint32_t i = 0; i < n->nouts; i++)
        if (made[i]) tn_tensor_unref(&g[i]);
    if (made != some) free(made);
    return st;
}

/* ---- Backward of a change through a view -------------------------------------------------------*/

/* dst's elements become src's, or zero; recorded when recording is on. */
static tn_status overwrite(tn_tensor *dst, tn_tensor *src) {
    tn_tensor *same = NULL;
    tn_status st = src ? tn_copy_(dst, src, 0, &same) : tn_zero_(dst, &same);
    tn_tensor_unref(&same);
    return st;
}

static tn_status slices_apply(tn_node *n, tn_tensor *g, uint64_t needs, tn_tensor **ret) {
    const tni_slices *s = tni_node_args(n);
    tn_tensor *whole = NULL, *window = NULL, *mine = NULL;
    tn_tensor **inner = calloc(n->nedges ? n->nedges : 1, sizeof *inner);
    if (!inner) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    const tni_out *o = tni_node_out(s->inner, 0);
    tn_status st;
    if ((st = tni_clone_like(g, s->base, &whole))) goto out;
    if ((st = tni_slices_part(s, whole, &window))) goto out;
    if ((st = tni_clone_like(window, window, &mine))) goto out;
    if (s->inner->kind == TNI_NODE_HOST)
        st = tni_host_apply(s->inner, &mine, needs, inner);
    else
        st = op_apply(s->inner, n, &mine, needs, inner);
    if (st) goto out;
    if (needs & 1u) {
        if (inner[0] && (st = tni_fit(&inner[0], o->word, o->ndim, o->shape, n, 0))) goto out;
        if ((st = overwrite(window, inner[0]))) goto out;
        ret[0] = whole;
        whole = NULL;
    }
    for (uint32_t i = 1; i < n->nedges; i++) {
        ret[i] = inner[i];
        inner[i] = NULL;
    }
out:
    tn_tensor_unref(&whole);
    tn_tensor_unref(&window);
    tn_tensor_unref(&mine);
    for (uint32_t i = 0; i < n->nedges; i++) tn_tensor_unref(&inner[i]);
    free(inner);
    return st;
}

/* ---- Any node -----------------------------------------------------------------------------------*/

tn_status tni_node_apply(tn_node *n, tn_tensor **g, uint64_t needs, tn_tensor **ret) {
    if (n->kind == TNI_NODE_OP) return op_apply(n, n, g, needs, ret);
    if (n->kind == TNI_NODE_HOST) return tni_host_apply(n, g, needs, ret);
    return g[0] ? slices_apply(n, g[0], needs, ret) : TN_OK;
}

/* What hooks packed of a field of n's arguments; NULL where they packed nothing of it. */
static tn_status unpack_field(tn_node *n, const void *field, tn_tensor **ret_tensor) {
    *ret_tensor = NULL;
    for (uint32_t i = 0; n->extra && i < n->extra->npacked; i++) {
        const tni_packed_tensor *p = &n->extra->packed[i];
        if (slot_of(n, tni_node_args(n), p->slot) == field) return unpack_one(n, n, p, ret_tensor);
    }
    return TN_OK;
}

tn_status tn_node_saved(tn_node *n, const char *name, tn_tensor **ret_tensor) {
    if (!n || n->kind != TNI_NODE_OP)
        return tn_fail(TN_E_VALUE, 0, "only the nodes of operators save tensors by name");
    const tn_op *op = n->op;
    *ret_tensor = NULL;
    if (n->flags & TNI_NODE_USED_UP) return fail_used_up();
    TN_TRY(check_versions(n, n));
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        bool tensor = f->kind <= TN_F_TENSOR_OPT || f->kind == TN_F_OPERAND || f->kind == TN_F_OUT;
        if (!tensor || strcmp(f->name, name) != 0) continue;
        const char *p = (const char *)tni_node_args(n) + f->offset;
        tn_tensor *found = *(tn_tensor *const *)(const void *)p;
        if (found && found->storage)
            tn_tensor_ref(found);
        else
            TN_TRY(unpack_field(n, p, &found));
        tn_status st = TN_OK;
        if (found && f->kind == TN_F_OUT) {
            tn_tensor *bare = found;
            st = with_history(bare, n, (uint32_t)(i - op->out_field[0]), &found);
            tn_tensor_unref(&bare);
        }
        if (st == TN_OK) *ret_tensor = found;
        return st;
    }
    return TN_OK;
}
