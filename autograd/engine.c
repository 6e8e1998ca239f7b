/* engine.c: runs a recorded graph backward, on the calling thread, without recursion.
 *
 * Note [The pass]. A first walk gives every reachable node and leaf a place (`stop`) and counts how many
 * gradients it will get. Then nodes run as their last gradient arrives, latest recorded first. All state
 * of a pass lives in the pass, none in the graph: passes may be nested in hooks, and threads may share
 * graphs and leaves. Places are found by address in an open-addressing table. */
#include <stdlib.h>
#include <tenon/ops_create.h>
#include <tenon/ops_pointwise.h>

#include "layers_priv.h"
#include "sparse_priv.h"
#include "tape_priv.h"

enum { FEW = 48, TABLE = 128 }; /* a small graph needs no memory from the heap */

typedef struct stop {
    uintptr_t key;  /* as tni_edge.to; owned where `held`, the others hang on those */
    uint32_t waits; /* gradients still to come */
    uint8_t walked; /* the first walk has been here */
    uint8_t target; /* one of the inputs asked for */
    uint8_t needed; /* it, or something behind it, is a target; all are without targets */
    uint8_t runs;   /* something behind it is needed */
    uint8_t one_out;
    uint8_t held;
    uint16_t reserved;
    union {
        tn_tensor *one;
        tn_tensor **many;
    } g;
} stop;

typedef struct target {
    uintptr_t key;
    uint32_t nr;
} target;

typedef struct frame {
    uint32_t stop, edge;
} frame;

typedef struct pass {
    stop *stops;
    uint32_t nstops, room;
    uint32_t *table; /* stop + 1, or 0 */
    uint32_t mask;
    uint32_t *ready; /* a heap of nodes by sequence number, the latest on top */
    uint32_t nready, ready_room;
    uint64_t id;
    bool restricted; /* only what leads to a target runs */
    bool capture;    /* targets are handed back instead of added to .grad */
    bool retain;
    uint64_t deferred; /* the thread's layer bit, which is off during the pass */
    target *targets;   /* one per input */
    int64_t ntargets;
    tn_tensor **captured; /* one per input */
    frame *frames;
    uint32_t frames_room;
    stop few[FEW];
    uint32_t few_table[TABLE], few_ready[FEW];
    frame few_frames[FEW];
} pass;

static TN_TLS const pass *current; /* the innermost of the thread's running passes */

/* ---- Places ------------------------------------------------------------------------------------*/

static uint32_t hash(uintptr_t key) {
    return (uint32_t)(((uint64_t)key >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

static uint32_t *table_slot(const pass *p, uintptr_t key) {
    uint32_t i = hash(key) & p->mask;
    while (p->table[i] && p->stops[p->table[i] - 1].key != key) i = (i + 1) & p->mask;
    return &p->table[i];
}

/* Doubles an array that starts in the pass itself. */
static tn_status grow(void **array, const void *inside, uint32_t *room, size_t each) {
    size_t bytes = each * *room; /* there is an array of this size */
    void *bigger = *array == inside ? calloc(2, bytes) : realloc(*array, 2 * bytes);
    if (!bigger) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    if (*array == inside) memcpy(bigger, inside, bytes);
    *array = bigger;
    *room *= 2;
    return TN_OK;
}

static tn_status grow_table(pass *p) {
    size_t size = 2 * ((size_t)p->mask + 1);
    uint32_t *bigger = calloc(size, sizeof *bigger);
    if (!bigger) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    if (p->table != p->few_table) free(p->table);
    p->table = bigger;
    p->mask = (uint32_t)size - 1;
    for (uint32_t i = 0; i < p->nstops; i++) *table_slot(p, p->stops[i].key) = i + 1;
    return TN_OK;
}

/* The place of key, made when it is new. */
static tn_status place(pass *p, uintptr_t key, uint32_t *ret_stop) {
    uint32_t *slot = table_slot(p, key);
    if (*slot) {
        *ret_stop = *slot - 1;
        return TN_OK;
    }
    if (p->nstops == p->room) {
        void *array = p->stops;
        TN_TRY(grow(&array, p->few, &p->room, sizeof(stop)));
        p->stops = array;
    }
    if (2 * (p->nstops + 1) > p->mask) {
        TN_TRY(grow_table(p));
        slot = table_slot(p, key);
    }
    const tn_node *n = tni_key_node(key);
    stop *s = &p->stops[p->nstops];
    *s = (stop){.key = key, .one_out = !n || n->nouts <= 1};
    *ret_stop = p->nstops++;
    *slot = *ret_stop + 1;
    return TN_OK;
}

static tn_tensor **gradient_at(stop *s, uint32_t nr) {
    if (s->one_out) return &s->g.one;
    if (!s->g.many) s->g.many = calloc(tni_key_node(s->key)->nouts, sizeof(tn_tensor *));
    return s->g.many ? &s->g.many[nr] : NULL;
}

static void drop_gradients(stop *s) {
    if (s->one_out) {
        tn_tensor_unref(&s->g.one);
    } else if (s->g.many) {
        const tn_node *n = tni_key_node(s->key);
        for (uint32_t i = 0; i < n->nouts; i++) tn_tensor_unref(&s->g.many[i]);
        free(s->g.many);
        s->g.many = NULL;
    }
}

/* ---- The first walk ----------------------------------------------------------------------------*/

/* Depth first from one stop; counts waits and finds what is needed. */
static tn_status walk(pass *p, uint32_t from) {
    uint32_t depth = 1;
    if (p->stops[from].walked) return TN_OK;
    p->stops[from].walked = 1;
    p->frames[0] = (frame){from, 0};
    while (depth) {
        frame *f = &p->frames[depth - 1];
        uint32_t at = f->stop, next;
        const tn_node *n = tni_key_node(p->stops[at].key);
        if (n && f->edge < n->nedges) {
            tni_edge e = tni_node_edges(n)[f->edge++];
            if (!e.to) continue;
            TN_TRY(place(p, e.to, &next));
            p->stops[next].waits++;
            if (p->stops[next].walked) {
                p->stops[at].runs |= p->stops[next].needed;
                continue;
            }
            p->stops[next].walked = 1;
            if (depth == p->frames_room) {
                void *array = p->frames;
                TN_TRY(grow(&array, p->few_frames, &p->frames_room, sizeof(frame)));
                p->frames = array;
            }
            p->frames[depth++] = (frame){next, 0};
            continue;
        }
        stop *s = &p->stops[at];
        s->needed = !p->restricted || s->target || s->runs;
        if (!p->restricted) s->runs = 1;
        depth--;
        if (depth) p->stops[p->frames[depth - 1].stop].runs |= s->needed;
    }
    return TN_OK;
}

/* ---- The heap ----------------------------------------------------------------------------------*/

static uint64_t seq_of(const pass *p, uint32_t at) { return tni_key_node(p->stops[at].key)->seq; }

static tn_status push(pass *p, uint32_t at) {
    if (p->nready == p->ready_room) {
        void *array = p->ready;
        TN_TRY(grow(&array, p->few_ready, &p->ready_room, sizeof *p->ready));
        p->ready = array;
    }
    uint32_t i = p->nready++;
    uint64_t seq = seq_of(p, at);
    while (i && seq_of(p, p->ready[(i - 1) / 2]) < seq) {
        p->ready[i] = p->ready[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->ready[i] = at;
    return TN_OK;
}

static uint32_t pop(pass *p) {
    uint32_t top = p->ready[0], last = p->ready[--p->nready], i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= p->nready) break;
        if (child + 1 < p->nready && seq_of(p, p->ready[child + 1]) > seq_of(p, p->ready[child]))
            child++;
        if (seq_of(p, p->ready[child]) <= seq_of(p, last)) break;
        p->ready[i] = p->ready[child];
        i = child;
    }
    p->ready[i] = last;
    return top;
}

/* ---- Hooks of nodes and of the ends at leaves ---------------------------------------------------*/

/* Entries of `other` that are set take the places of those in g. */
static void exchange(tn_tensor **g, tn_tensor **other, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!other[i]) continue;
        tn_tensor_unref(&g[i]);
        g[i] = other[i];
        other[i] = NULL;
    }
}

static tn_status run_pre_hooks(tn_hook *const *list, tn_tensor **g, uint32_t n) {
    tn_hook **hooks;
    int count;
    TN_TRY(tni_hooks_snapshot(list, TNI_HOOK_PRE, &hooks, &count));
    tn_tensor **other = count ? calloc((size_t)n + 1, sizeof *other) : NULL;
    tn_status st = count && !other ? tn_fail(TN_E_MEMORY, -1, "out of memory") : TN_OK;
    for (int k = 0; k < count && st == TN_OK; k++) {
        if (!tni_hook_enter(hooks[k])) continue;
        st = hooks[k]->fn.pre(hooks[k]->ctx, g, n, other);
        tni_hook_leave(hooks[k]);
        exchange(g, other, n);
    }
    free(other);
    tni_hooks_done(hooks, count);
    return st;
}

static tn_status run_post_hooks(tn_hook *const *list, tn_tensor **g, uint32_t ng, tn_tensor **ret,
                                uint32_t nret) {
    tn_hook **hooks;
    int count;
    TN_TRY(tni_hooks_snapshot(list, TNI_HOOK_POST, &hooks, &count));
    tn_tensor **other = count ? calloc((size_t)nret + 1, sizeof *other) : NULL;
    tn_status st = count && !other ? tn_fail(TN_E_MEMORY, -1, "out of memory") : TN_OK;
    for (int k = 0; k < count && st == TN_OK; k++) {
        if (!tni_hook_enter(hooks[k])) continue;
        st = hooks[k]->fn.post(hooks[k]->ctx, ret, nret, g, ng, other);
        tni_hook_leave(hooks[k]);
        exchange(ret, other, nret);
    }
    free(other);
    tni_hooks_done(hooks, count);
    return st;
}

/* ---- Delivery ----------------------------------------------------------------------------------*/

static void capture(pass *p, uintptr_t key, uint32_t nr, tn_tensor *g) {
    for (int64_t i = 0; i < p->ntargets; i++)
        if (p->targets[i].key == key && p->targets[i].nr == nr && !p->captured[i])
            p->captured[i] = tn_tensor_ref(g);
}

static tn_status fit_leaf(const tn_tensor *leaf, tn_tensor **g) {
    return tni_fit(g, leaf->v.word, leaf->v.ndim, leaf->v.shape, NULL, 0);
}

/* Adds g, a reference that is taken over, to the leaf's .grad, between the hooks of that end. */
static tn_status accumulate(tn_tensor *leaf, tn_hook *const *hooks, tn_tensor *g) {
    tn_status st = run_pre_hooks(hooks, &g, 1);
    if (st == TN_OK) st = fit_leaf(leaf, &g);
    if (st != TN_OK) {
        tn_tensor_unref(&g);
        return st;
    }
    bool watched = tni_hooks_any(hooks, TNI_HOOK_POST);
    tn_tensor *seen = NULL;
    st = tni_accumulate(leaf, g, watched ? &seen : NULL);
    if (st == TN_OK) st = tni_run_leaf_hooks(hooks, leaf);
    if (st == TN_OK && watched) st = run_post_hooks(hooks, &seen, 1, NULL, 0);
    tn_tensor_unref(&seen);
    return st;
}

/* A leaf has all its gradients. */
static tn_status finish_leaf(pass *p, stop *s) {
    tn_tensor *leaf = tni_key_leaf(s->key), *g = s->g.one;
    tn_status st = TN_OK;
    s->g.one = NULL;
    if (!g) return TN_OK;
    tn_agmeta *m = tni_meta_seen(leaf);
    if (m && m->hooks) {
        st = tni_run_tensor_hooks(&m->hooks, 0, &g);
        if (st == TN_OK) st = fit_leaf(leaf, &g);
    }
    if (st != TN_OK || p->capture) {
        if (st == TN_OK) capture(p, s->key, 0, g);
        tn_tensor_unref(&g);
        return st;
    }
    return m && m->hooks ? accumulate(leaf, &m->hooks, g) : tni_accumulate(leaf, g, NULL);
}

/* Gives stop `at` one gradient (NULL: none) and lets it run when that was the last. */
static tn_status deliver(pass *p, uint32_t at, uint32_t nr, tn_tensor *g) {
    stop *s = &p->stops[at];
    if (g && s->needed) {
        tn_tensor **sum = gradient_at(s, nr);
        if (!sum) {
            tn_tensor_unref(&g);
            return tn_fail(TN_E_MEMORY, -1, "out of memory");
        }
        TN_TRY(tni_add_grad(sum, g));
    } else {
        tn_tensor_unref(&g);
    }
    if (--s->waits || !s->needed) return TN_OK;
    return tni_key_leaf(s->key) ? finish_leaf(p, s) : push(p, at);
}

/* ---- Running a node ----------------------------------------------------------------------------*/

/* Names the forward call, where anomaly detection has seen it. */
static tn_status explain(const tn_node *n, tn_status st) {
    char name[96];
    const char *where = tn_node_where(n);
    if (st == TN_OK || !tni_agt.detect_anomaly || st == TN_E_HOST || st == TN_E_INTERRUPTED)
        return st;
    char *message = NULL;
    const char *old = tn_error_last()->message;
    size_t size = strlen(old) + 1;
    message = malloc(size);
    if (!message) return st;
    memcpy(message, old, size);
    tn_fail(st, -1, "%s\n\nError detected in %s. %s%s", message, tn_node_name(n, name, sizeof name),
            where ? "Forward call:\n"
                  : "No forward call is known; "
                    "anomaly detection has to be on during the forward pass.",
            where ? where : "");
    free(message);
    return st;
}

static tn_status check_nan(const tn_node *n, tn_tensor *const *ret) {
    char name[96];
    for (uint32_t i = 0; i < n->nedges; i++) {
        bool nan = false;
        if (!ret[i]) continue;
        TN_TRY(tni_has_nan(ret[i], &nan));
        if (nan)
            return tn_fail(TN_E_STATE, -1, "Function '%s' returned nan values in its %uth output.",
                           tn_node_name(n, name, sizeof name), (unsigned)i);
    }
    return TN_OK;
}

/* The cell at a place of the node's list and what it holds, both owned; NULL: there are no more. */
static tni_grad_cell *cell_at(const tni_extra *x, int64_t place, tn_tensor **ret_grad) {
    *ret_grad = NULL;
    tni_ag_lock();
    tni_grad_cell *c = x->cells;
    while (c && place-- > 0) c = c->next;
    if (c) {
        atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
        if (c->grad) *ret_grad = tn_tensor_ref(c->grad);
    }
    tni_ag_unlock();
    return c;
}

/* Adds the gradients of a node's outputs to those that tensors keep; each has memory of its own. */
static tn_status keep_cells(const tni_extra *x, tn_tensor *const *g) {
    tni_grad_cell *c;
    tn_tensor *before;
    tn_status st = TN_OK;
    for (int64_t i = 0; st == TN_OK && (c = cell_at(x, i, &before)); i++) {
        tn_tensor *fresh = g[c->nr], *kept = NULL;
        if (fresh && before)
            st = tn_add(before, fresh, tn_scalar_int(1), &kept);
        else if (fresh)
            st = tn_clone(fresh, tni_is_sparse(fresh) ? TN_FORMAT_PRESERVE : TN_FORMAT_CONTIGUOUS,
                          &kept);
        tn_tensor_unref(&before);
        if (kept) {
            tni_ag_lock();
            before = c->grad;
            c->grad = kept;
            tni_ag_unlock();
            tn_tensor_unref(&before);
        }
        tni_cell_unref(c);
    }
    return st;
}

/* What comes before every run of the node: hooks of its outputs' tensors, gradients that these keep. */
static tn_status run_output_hooks(const tn_node *n, tn_tensor **g) {
    tn_status st = TN_OK;
    for (uint32_t i = 0; i < n->nouts && st == TN_OK; i++)
        if (g[i]) st = tni_run_tensor_hooks(&n->extra->hooks, i, &g[i]);
    for (uint32_t i = 0; i < n->nouts && st == TN_OK; i++) {
        const tni_out *o = tni_node_out(n, i);
        if (g[i]) st = tni_fit(&g[i], o->word, o->ndim, o->shape, n, i);
    }
    if (st == TN_OK && n->extra->cells) st = keep_cells(n->extra, g);
    return st;
}

/* Which inputs want a gradient; more than 64 are all computed. */
static uint64_t needs_of(const pass *p, const tn_node *n) {
    const tni_edge *e = tni_node_edges(n);
    uint64_t needs = 0;
    for (uint32_t i = 0; i < n->nedges && i < 64; i++)
        if (e[i].to && (!p->restricted || p->stops[*table_slot(p, e[i].to) - 1].needed))
            needs |= UINT64_C(1) << i;
    return needs;
}

/* Makes result i of n fit the tensor it is the gradient of. */
static tn_status fit_result(const tn_node *n, uint32_t i, tni_edge e, tn_tensor **g) {
    const tn_tensor *leaf = tni_key_leaf(e.to);
    if (leaf) return tni_fit(g, leaf->v.word, leaf->v.ndim, leaf->v.shape, n, i);
    const tni_out *o = tni_node_out(tni_key_node(e.to), e.nr);
    return tni_fit(g, o->word, o->ndim, o->shape, n, i);
}

static tn_status hand_on(pass *p, const tn_node *n, tn_tensor **ret) {
    const tni_edge *edges = tni_node_edges(n);
    for (uint32_t i = 0; i < n->nedges; i++) {
        tni_edge e = edges[i];
        tn_tensor *g = ret[i];
        if (!e.to) continue;
        uint32_t at = *table_slot(p, e.to) - 1;
        if (g && p->stops[at].needed) TN_TRY(explain(n, fit_result(n, i, e, &ret[i])));
        g = ret[i];
        ret[i] = NULL;
        TN_TRY(deliver(p, at, e.nr, g));
    }
    return TN_OK;
}

static tn_status run_node(pass *p, uint32_t at) {
    stop s = p->stops[at]; /* the array may move while the node runs */
    tn_node *n = tni_key_node(s.key);
    tn_tensor **g = s.one_out ? &s.g.one : s.g.many;
    tn_tensor *few[8] = {NULL}, **ret = few;
    bool any = false;
    tn_status st = TN_OK;
    p->stops[at].g.one = NULL;
    if (n->nedges > 8) {
        ret = calloc(n->nedges, sizeof *ret);
        if (!ret) st = tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    for (uint32_t i = 0; g && i < n->nouts; i++) any = any || g[i];
    /* A function of a host language may do more than compute gradients, and other nodes wait for it. */
    if (!any && n->kind == TNI_NODE_HOST) {
        any = gradient_at(&s, 0) != NULL;
        g = s.one_out ? &s.g.one : s.g.many;
        if (!any) st = tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    if (st == TN_OK && any && n->extra) st = run_output_hooks(n, g);
    for (uint32_t i = 0; st == TN_OK && p->capture && s.target && any && i < n->nouts; i++)
        if (g[i]) capture(p, s.key, i, g[i]);
    /* a target that only hands its gradient to the caller does not run, nor do its hooks */
    if (st == TN_OK && any && n->extra && (s.runs || !p->capture))
        st = run_pre_hooks(&n->extra->hooks, g, n->nouts);
    if (st == TN_OK && any && s.runs) {
        st = tni_node_apply(n, g, needs_of(p, n), ret);
        if (st == TN_OK && TN_UNLIKELY(tni_agt.check_nan)) st = check_nan(n, ret);
        if (st == TN_OK && n->extra)
            st = run_post_hooks(&n->extra->hooks, g, n->nouts, ret, n->nedges);
        st = explain(n, st);
        if (st == TN_OK && !p->retain) tni_node_release_saved(n);
    }
    drop_gradients(&s);
    if (st == TN_OK) st = hand_on(p, n, ret);
    for (uint32_t i = 0; ret && i < n->nedges; i++) tn_tensor_unref(&ret[i]);
    if (ret != few) free(ret);
    return st;
}

/* ---- The pass ----------------------------------------------------------------------------------*/

static void begin(pass *p) {
    p->stops = p->few;
    p->nstops = 0;
    p->room = FEW;
    p->table = p->few_table;
    p->mask = TABLE - 1;
    p->ready = p->few_ready;
    p->nready = 0;
    p->ready_room = FEW;
    p->frames = p->few_frames;
    p->frames_room = FEW;
    p->restricted = p->capture = p->retain = false;
    p->deferred = tni_tls.layers & TNI_LAYER_DEFERRED;
    tni_tls.layers &= ~TNI_LAYER_DEFERRED;
    p->targets = NULL;
    p->ntargets = 0;
    p->captured = NULL;
    memset(p->few_table, 0, sizeof p->few_table);
}

static void end(pass *p) {
    tni_tls.layers |= p->deferred;
    for (uint32_t i = 0; i < p->nstops; i++) drop_gradients(&p->stops[i]);
    for (uint32_t i = 0; i < p->nstops; i++) {
        tni_edge e = {p->stops[i].held ? p->stops[i].key : 0, 0, 0};
        tni_edge_drop(&e);
    }
    if (p->stops != p->few) free(p->stops);
    if (p->table != p->few_table) free(p->table);
    if (p->ready != p->few_ready) free(p->ready);
    if (p->frames != p->few_frames) free(p->frames);
    free(p->targets);
}

/* The place where t's gradient arrives; the pass holds on to it. */
static tn_status hold(pass *p, tn_tensor *t, uint32_t *ret_stop, uint32_t *ret_nr) {
    tni_edge e;
    TN_TRY(tni_edge_of(t, &e));
    tn_status st = place(p, e.to, ret_stop);
    *ret_nr = e.nr;
    if (st != TN_OK || p->stops[*ret_stop].held)
        tni_edge_drop(&e);
    else
        p->stops[*ret_stop].held = 1;
    return st;
}

static tn_status mark_targets(pass *p, tn_tensor *const *inputs, int64_t n) {
    p->targets = calloc((size_t)n, sizeof *p->targets);
    if (!p->targets) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; i < n; i++) {
        uint32_t at;
        if (!inputs[i]) return tn_fail(TN_E_TYPE, 3, "input %lld is NULL", (long long)i);
        if (!tn_requires_grad(inputs[i]))
            return tn_fail(TN_E_STATE, 3,
                           "One of the differentiated Tensors does not require grad");
        TN_TRY(hold(p, inputs[i], &at, &p->targets[i].nr));
        p->targets[i].key = p->stops[at].key;
        p->stops[at].target = 1;
        p->ntargets = i + 1;
    }
    p->restricted = true;
    return TN_OK;
}

static tn_status root_gradient(tn_tensor *root, tn_tensor *given, int64_t i, tn_tensor **ret_grad) {
    int32_t category = tn_dtype_category(tn_view_dtype(&root->v));
    if (!given) {
        if (root->v.numel != 1)
            return tn_fail(TN_E_STATE, 1, "grad can be implicitly created only for scalar outputs");
        if (category != TN_CAT_FLOAT)
            return tn_fail(TN_E_STATE, 1,
                           "grad can be implicitly created only for real scalar outputs but got %s",
                           tn_dtype_name(tn_view_dtype(&root->v)));
        return tni_is_wrapped(root)
                   ? tn_ones_like(root, -1, -1, TN_FORMAT_PRESERVE, ret_grad)
                   : tni_constant(1.0, root->v.word, root->v.ndim, root->v.shape, ret_grad);
    }
    if (!tni_same_shape(&given->v, &root->v))
        return tn_fail(
            TN_E_STATE, 1,
            "Mismatch in shape: grad_output[%lld] has a shape of %s and output[%lld] has a "
            "shape of %s.",
            (long long)i, tni_shape_text_of(&given->v), (long long)i, tni_shape_text_of(&root->v));
    if ((tn_dtype_category(tn_view_dtype(&given->v)) == TN_CAT_COMPLEX) !=
        (category == TN_CAT_COMPLEX))
        return tn_fail(
            TN_E_STATE, 1,
            "For complex Tensors, both grad_output and output are required to have the same "
            "dtype. Mismatch in dtype: grad_output[%lld] has a dtype of %s and output[%lld] "
            "has a dtype of %s.",
            (long long)i, tn_dtype_name(tn_view_dtype(&given->v)), (long long)i,
            tn_dtype_name(tn_view_dtype(&root->v)));
    tn_tensor *g = tn_tensor_ref(given);
    tn_status st = tni_fit(&g, root->v.word, root->v.ndim, root->v.shape, NULL, (uint32_t)i);
    if (st != TN_OK)
        tn_tensor_unref(&g);
    else
        *ret_grad = g;
    return st;
}

/* What hooks and functions of a host language have switched is as it was. */
static void reset_modes(uint32_t no_grad) {
    tni_tls.no_grad = no_grad;
    tni_saved_hooks_unwind();
}

static tn_status run_pass(pass *p, tn_tensor *const *roots, tn_tensor *const *grads, int64_t n) {
    uint32_t no_grad = tni_tls.no_grad;
    for (int64_t i = 0; i < n; i++) {
        uint32_t at, nr;
        if (!roots[i]) return tn_fail(TN_E_TYPE, 0, "root %lld is NULL", (long long)i);
        if (!tn_requires_grad(roots[i]))
            return tn_fail(
                TN_E_STATE, 0,
                "element %lld of tensors does not require grad and does not have a grad_fn",
                (long long)i);
        TN_TRY(hold(p, roots[i], &at, &nr));
        p->stops[at].waits++;
        TN_TRY(walk(p, at));
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t at, nr;
        tn_tensor *g;
        TN_TRY(root_gradient(roots[i], grads ? grads[i] : NULL, i, &g));
        tn_status st = hold(p, roots[i], &at, &nr);
        if (st == TN_OK)
            st = deliver(p, at, nr, g);
        else
            tn_tensor_unref(&g);
        TN_TRY(st);
    }
    while (p->nready) {
        TN_TRY(run_node(p, pop(p)));
        reset_modes(no_grad);
        TN_TRY(tni_poll());
    }
    return TN_OK;
}

static tn_status checked_pass(pass *p, tn_tensor *const *roots, tn_tensor *const *grads, int64_t n,
                              int create_graph) {
    static _Atomic uint64_t passes;
    uint32_t no_grad = tni_tls.no_grad;
    const pass *outer = current;
    if (n > 0 && !roots) return tn_fail(TN_E_VALUE, 0, "roots is NULL");
    if (TN_UNLIKELY(p->deferred)) TN_TRY(tni_late.settle_all());
    tni_tls.no_grad = create_graph ? 0 : 1;
    p->id = atomic_fetch_add_explicit(&passes, 1, memory_order_relaxed) + 1;
    current = p;
    uint32_t floor = tni_agt.saved_floor;
    tni_agt.saved_floor = tni_agt.saved_depth;
    tn_status st = run_pass(p, roots, grads, n);
    current = outer;
    reset_modes(no_grad);
    if (tni_agt.saved_depth > floor) tni_agt.saved_floor = floor; /* else it has been lowered */
    return st;
}

tn_pass_info tn_pass_current(void) {
    tn_pass_info r = {current ? current->id : 0, current && current->restricted};
    return r;
}

int tn_pass_reaches(tn_tensor *t) {
    tni_edge e = {0, 0, 0};
    if (!current || !tn_requires_grad(t) || tni_edge_of(t, &e) != TN_OK) return 0;
    uint32_t at = *table_slot(current, e.to);
    tni_edge_drop(&e);
    const stop *s = at ? &current->stops[at - 1] : NULL;
    return s && (!current->restricted || s->runs || s->target);
}

tn_status tn_node_stand_in(tn_node *n, int64_t i, tn_tensor **ret_tensor) {
    if (!n || !ret_tensor) return tn_fail(TN_E_TYPE, 0, "stand_in(): an argument is NULL");
    if (i < 0 || i >= n->nouts)
        return tn_fail(TN_E_VALUE, 1, "a node of %u outputs has none with number %lld", n->nouts,
                       (long long)i);
    const tni_out *o = tni_node_out(n, (uint32_t)i);
    if (!o->differentiable)
        return tn_fail(TN_E_STATE, 1, "output %lld has no gradient", (long long)i);
    TN_TRY(tni_constant(0.0, o->word, o->ndim, o->shape, ret_tensor));
    tni_set_grad_fn(*ret_tensor, n, (uint32_t)i);
    return TN_OK;
}

tn_status tn_backward(tn_tensor *const *roots, tn_tensor *const *grads, int64_t nroots,
                      tn_tensor *const *inputs, int64_t ninputs, int retain_graph,
                      int create_graph) {
    if (ninputs > 0 && !inputs) return tn_fail(TN_E_TYPE, 3, "backward(): inputs is NULL");
    pass p;
    tn_status st = TN_OK;
    begin(&p);
    p.retain = retain_graph != 0;
    for (int64_t i = 0; i < ninputs && st == TN_OK; i++)
        if (inputs[i] && !tn_is_leaf(inputs[i])) st = tn_retain_grad(inputs[i]);
    if (st == TN_OK && ninputs > 0) st = mark_targets(&p, inputs, ninputs);
    if (st == TN_OK) st = checked_pass(&p, roots, grads, nroots, create_graph);
    end(&p);
    return st;
}

tn_status tn_grad(tn_tensor *const *outputs, tn_tensor *const *grad_outputs, int64_t noutputs,
                  tn_tensor *const *inputs, int64_t ninputs, int retain_graph, int create_graph,
                  int allow_unused, tn_tensor **ret_grads) {
    pass p;
    if (ninputs <= 0)
        return tn_fail(TN_E_STATE, 3, "`inputs` argument to `grad()` cannot be empty.");
    if (!inputs || !ret_grads) return tn_fail(TN_E_TYPE, 3, "grad(): a list is NULL");
    begin(&p);
    p.retain = retain_graph != 0;
    p.capture = true;
    p.captured = calloc((size_t)ninputs, sizeof *p.captured);
    tn_status st =
        p.captured ? mark_targets(&p, inputs, ninputs) : tn_fail(TN_E_MEMORY, -1, "out of memory");
    if (st == TN_OK) st = checked_pass(&p, outputs, grad_outputs, noutputs, create_graph);
    for (int64_t i = 0; i < ninputs && st == TN_OK && !allow_unused; i++)
        if (!p.captured[i])
            st = tn_fail(
                TN_E_STATE, 3,
                "The differentiated Tensor at index %lld appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior.",
                (long long)i);
    for (int64_t i = 0; p.captured && i < ninputs; i++) {
        if (st == TN_OK)
            ret_grads[i] = p.captured[i];
        else
            tn_tensor_unref(&p.captured[i]);
    }
    free(p.captured);
    end(&p);
    return st;
}
