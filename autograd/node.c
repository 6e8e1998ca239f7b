/* node.c: nodes of the recorded graph: memory, references, names, what a binding may ask of them.
 *
 * Freeing is iterative: a node whose last reference goes is queued, and the outermost call empties the
 * queue. A chain of a million nodes therefore needs no stack. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "os_priv.h"
#include "tape_priv.h"

enum { LINE = 64, MAX_FREE = 512 };

TN_TLS tni_ag_thread tni_agt;

/* ---- Memory ------------------------------------------------------------------------------------*/

static void drop_thread_lists(void) {
    for (int i = 0; i < TNI_NODE_CLASSES; i++) {
        while (tni_agt.free_nodes[i]) {
            tn_node *n = tni_agt.free_nodes[i];
            tni_agt.free_nodes[i] = n->next;
            free(n);
        }
        tni_agt.free_count[i] = MAX_FREE; /* what is freed from here on goes to the heap */
    }
    while (tni_agt.free_metas) {
        tn_agmeta *m = tni_agt.free_metas;
        tni_agt.free_metas = m->next_free;
        free(m);
    }
    tni_agt.free_meta_count = UINT32_MAX;
    tn_tensor_unref(&tni_agt.original);
}

void tni_ag_thread_exit_hook(void) {
    if (TN_LIKELY(tni_agt.exit_hook)) return;
    tni_agt.exit_hook = true;
    tni_os_at_thread_exit(drop_thread_lists);
}

tn_node *tni_node_block(size_t bytes) {
    tn_node *n = bytes <= UINT32_MAX ? malloc((bytes + LINE - 1) / LINE * LINE) : NULL;
    if (!n) tn_fail(TN_E_MEMORY, -1, "out of memory");
    return n;
}

static void block_free(tn_node *n) {
    int k = n->lines - 1;
    if (k < 0 || tni_agt.free_count[k] >= MAX_FREE) {
        free(n);
        return;
    }
    tni_ag_thread_exit_hook();
    n->next = tni_agt.free_nodes[k];
    tni_agt.free_nodes[k] = n;
    tni_agt.free_count[k]++;
}

/* ---- Freeing -----------------------------------------------------------------------------------*/

static void drop_tensor(char *args, uint16_t offset) {
    tn_tensor **slot = (tn_tensor **)(void *)(args + offset);
    if (*slot) tn_tensor_unref(slot);
}

static void drop_list(char *args, uint16_t offset) {
    const tn_views *list = (const void *)(args + offset);
    for (int64_t k = 0; k < list->n; k++) tn_tensor_unref((tn_tensor **)(uintptr_t)&list->v[k]);
}

/* Drops the saved tensors of an operator's argument struct; with `all`, everything the node owns in
 * it. */
static void drop_args(tn_node *n, bool all) {
    const tn_op *op = n->op;
    const tni_recipe *rc = tni_recipe_of(op); /* it was made when the call was recorded */
    char *args = tni_node_args(n);
    if (TN_LIKELY(n->owned != 0 && !rc->nspecial && all)) {
        for (uint32_t left = n->owned; left; left &= left - 1) {
            int i = __builtin_ctz(left);
            drop_tensor(args, i == TNI_OWNED_OUT ? op->out_offset[0] : op->in_offset[i]);
        }
        return;
    }
    for (int i = 0; i < op->nin; i++) {
        if (!all && !(rc->in_flags[i] & TNI_FIELD_SAVED)) continue;
        if (TN_UNLIKELY(rc->lists >> i & 1u))
            drop_list(args, op->in_offset[i]);
        else
            drop_tensor(args, op->in_offset[i]);
    }
    for (int i = 0; i < op->nout && !rc->list_out; i++)
        if (all || (rc->out_flags[i] & TNI_FIELD_SAVED)) drop_tensor(args, op->out_offset[i]);
    for (int i = 0; all && i < rc->nspecial; i++) {
        void *p = args + rc->special[i].offset;
        if (rc->special[i].kind == TN_F_STR) free(*(void **)p);
        if (rc->special[i].kind == TN_F_GENERATOR) tn_generator_unref(p);
    }
}

void tni_node_release_saved(tn_node *n) {
    if (n->kind == TNI_NODE_SLICES) {
        const tni_slices *s = tni_node_args(n);
        tni_node_release_saved(s->inner);
    } else if (n->kind == TNI_NODE_HOST) {
        const tni_host_data *h = tni_node_args(n);
        if (h->cb.release_saved) h->cb.release_saved(h->cb.ctx);
    } else if ((n->flags & TNI_NODE_HAS_SAVED) && !(n->flags & TNI_NODE_USED_UP)) {
        n->flags |= TNI_NODE_USED_UP;
        drop_args(n, false);
        for (uint32_t i = 0; n->extra && i < n->extra->npacked; i++)
            tni_packed_drop(&n->extra->packed[i]);
        if (n->extra) n->extra->npacked = 0;
    }
}

static void destroy(tn_node *n) {
    tni_edge *e = tni_node_edges(n);
    if (TN_LIKELY(n->kind == TNI_NODE_OP)) {
        if (n->flags & TNI_NODE_OWNS) drop_args(n, true);
    } else if (n->kind == TNI_NODE_HOST) {
        const tni_host_data *h = tni_node_args(n);
        if (h->cb.release) h->cb.release(h->cb.ctx);
        free(h->outs);
    } else {
        tni_slices *s = tni_node_args(n);
        if (s->inner) tni_node_unref(s->inner);
        tn_tensor_unref(&s->base);
        tn_tensor_unref(&s->view);
    }
    if (n->extra) tni_extra_free(n->extra);
    for (uint32_t i = 0; i < n->nedges; i++)
        if (e[i].to) tni_edge_drop(&e[i]);
    block_free(n);
}

void tni_node_unref(tn_node *n) {
    if (atomic_load_explicit(&n->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1)
        return;
    n->next = tni_agt.dying;
    tni_agt.dying = n;
    if (tni_agt.freeing) return;
    tni_agt.freeing = 1;
    while (tni_agt.dying) {
        tn_node *d = tni_agt.dying;
        tni_agt.dying = d->next;
        destroy(d);
    }
    tni_agt.freeing = 0;
}

tn_node *tn_node_ref(tn_node *n) {
    if (n) atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
    return n;
}

void tn_node_unref(tn_node **n) {
    tn_node *x = n ? *n : NULL;
    if (x) *n = NULL;
    if (x) tni_node_unref(x);
}

/* ---- Edges -------------------------------------------------------------------------------------*/

void tni_edge_drop(tni_edge *e) {
    tn_tensor *leaf = tni_key_leaf(e->to);
    tn_node *node = tni_key_node(e->to);
    e->to = 0;
    if (leaf) tn_tensor_unref(&leaf);
    if (node) tni_node_unref(node);
}

/* ---- What a binding may ask --------------------------------------------------------------------*/

/* The operator's name in camel case, without an overload's suffix: "log_softmax" -> LogSoftmax. */
static void camel(const char *schema, char *dst, size_t size) {
    size_t n = 0;
    bool upper = true;
    for (const char *p = schema; *p && *p != '(' && *p != '.' && n + 1 < size; p++) {
        if (*p == '_') {
            upper = true;
            continue;
        }
        dst[n++] = upper ? (char)toupper((unsigned char)*p) : *p;
        upper = false;
    }
    dst[n] = '\0';
}

/* Some dimensions were given: the first argument that names any says so. */
static bool has_dims(const tn_node *n) {
    const char *args = tni_node_args(n);
    for (int i = 0; i < n->op->nfields; i++) {
        const void *p = args + n->op->fields[i].offset;
        uint16_t kind = n->op->fields[i].kind;
        if (kind == TN_F_DIMS) return ((const tn_ints *)p)->n >= 0;
        if (kind == TN_F_DIM_OPT) return ((const tn_opt_int *)p)->has != 0;
    }
    return false;
}

/* The last argument is an optional tensor that was not given, or that needs no gradient. */
static bool lacks_last(const tn_node *n) {
    return n->nedges > 0 && !tni_node_edges(n)[n->nedges - 1].to;
}

/* The word at that place; the last one where there are fewer. */
static const char *word_at(const char *words, int place) {
    for (const char *next; place > 0 && (next = strchr(words, ' ')); place--) words = next + 1;
    return words;
}

/* The name that the entry gives the node, NULL when it is the operator's; see `node` in op-table.md. */
static const char *named(const tn_node *n) {
    const char *name = n->shown ? n->shown : n->op->node;
    if (!name || n->shown || !strchr(name, ' ')) return name;
    if (!strchr(strchr(name, ' ') + 1, ' ')) return word_at(name, has_dims(n));
    return word_at(name, (tni_node_out(n, 0)->ndim > 2 ? 2 : 0) + lacks_last(n));
}

void tn_node_call(tn_node *n, const char *name) {
    if (n && n->kind == TNI_NODE_OP) n->shown = name;
}

char *tn_node_short_name(const tn_node *n, char *dst, size_t size) {
    if (!n || size == 0) return dst;
    if (n->kind == TNI_NODE_HOST) {
        const tni_host_data *h = tni_node_args(n);
        size_t own = strlen(h->name), tail = strlen("Backward");
        if (own > tail && strcmp(h->name + own - tail, "Backward") == 0) own -= tail;
        snprintf(dst, size, "%.*s", (int)own, h->name);
    } else if (n->kind == TNI_NODE_SLICES) {
        snprintf(dst, size, "CopySlices");
    } else {
        const char *known = named(n);
        const char *schema = n->op->info.schema ? n->op->info.schema : n->op->info.name;
        camel(schema, dst, size);
        if (known) snprintf(dst, size, "%.*s", (int)(strstr(known, "Backward") - known), known);
    }
    return dst;
}

char *tn_node_name(const tn_node *n, char *dst, size_t size) {
    if (!n || size == 0) return dst;
    tn_node_short_name(n, dst, size);
    size_t used = strlen(dst);
    if (n->kind == TNI_NODE_HOST)
        snprintf(dst, size, "%s", ((const tni_host_data *)tni_node_args(n))->name);
    else if (n->op && n->op->grad == tni_no_derivative)
        snprintf(dst, size, "NotImplemented");
    else if (n->kind == TNI_NODE_OP && named(n))
        snprintf(dst, size, "%.*s", (int)strcspn(named(n), " "), named(n));
    else if (n->kind == TNI_NODE_OP)
        snprintf(dst + used, size - used, "Backward0");
    return dst;
}

uint64_t tn_node_sequence(const tn_node *n) { return n ? n->seq : 0; }
const char *tn_node_where(const tn_node *n) { return n && n->extra ? n->extra->where : NULL; }
int64_t tn_node_edge_count(const tn_node *n) { return n ? n->nedges : 0; }

tn_edge tn_node_edge(const tn_node *n, int64_t i) {
    tn_edge r = {NULL, NULL, 0};
    if (!n || i < 0 || i >= n->nedges) return r;
    tni_edge e = tni_node_edges(n)[i];
    r.node = tni_key_node(e.to);
    r.leaf = tni_key_leaf(e.to);
    r.nr = r.node ? e.nr : 0; /* of nothing else is it set */
    return r;
}

int64_t tn_node_output_count(const tn_node *n) { return n ? n->nouts : 0; }

tn_node_output tn_node_output_at(const tn_node *n, int64_t i) {
    tn_node_output r = {-1, 0, NULL, {0, 0}};
    if (!n || i < 0 || i >= n->nouts) return r;
    const tni_out *o = tni_node_out(n, (uint32_t)i);
    r.dtype = (int32_t)(o->word & TN_W_DTYPE);
    r.ndim = o->ndim;
    r.shape = o->shape;
    r.device.slot = (int32_t)((o->word & TN_W_DEVICE) >> 8);
    r.device.index = (int32_t)((o->word & TN_W_INDEX) >> 16);
    return r;
}

void *tn_host_node_ctx(const tn_node *n) {
    if (!n || n->kind != TNI_NODE_HOST) return NULL;
    const tni_host_data *h = tni_node_args(n);
    return h->cb.ctx;
}

void tni_set_grad_fn(tn_tensor *t, tn_node *n, uint32_t nr) {
    tn_node *old = t->grad_fn;
    t->grad_fn = tn_node_ref(n);
    t->output_nr = nr;
    if (n) t->v.word |= TN_W_GRAD;
    if (old) tni_node_unref(old);
}

tn_node_host *tn_node_host_slots(tn_node *n) {
    tni_extra *x = n ? tni_node_extra(n) : NULL;
    return x ? &x->host : NULL;
}
