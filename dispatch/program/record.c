/* record.c: a layer that turns the operators of a thread into the nodes of a program.
 *
 * Every tensor that has been seen is held until the recording ends, so that an address means one
 * tensor. Of a call in place the result is a new value with the old tensor: from then on the tensor
 * means the new value, and order does the rest. */
#include "program_priv.h"

#include <stdlib.h>

#include <tenon/op_args.h>
#include <tenon/runtime.h>

#include "layers_priv.h"
#include "os_priv.h"
#include "tensor_priv.h"

/* Which value a tensor is, as long as it looks at the memory that it looked at then. */
typedef struct place {
    const tn_tensor *t;
    const void *storage;
    int32_t id;
} place;

struct tni_recorder {
    tn_program *p;
    place *place; /* open addressing by address */
    int32_t places, known;
    tn_tensor **held;
    int32_t nheld, held_room;
    bool no_grad;             /* gradients were off when it began */
    int32_t scope, said_grad; /* calls count as made without gradients: 1, with: 2, as is: 0 */
    bool scope_by_node;
    bool tolerant, paused;
    const tn_op **apart; /* composites that become their parts; owned */
    int32_t napart;      /* -1: all */
    int32_t inside;      /* how many of them are running */
    bool whole;          /* the innermost of them stays a node */
    bool no_grad_around; /* gradients were off where the outermost of them was called */
    tn_status broken;
    char *why; /* owned */
};
typedef tni_recorder recorder;

static TN_TLS recorder *active;
static TN_TLS uint64_t turns; /* recordings that have ended */
static int32_t layer_id = -1;

/* ---- Which value a tensor is -------------------------------------------------------------------*/

static place *place_of(recorder *r, const tn_tensor *t) {
    uint64_t h = (uint64_t)(uintptr_t)t * UINT64_C(0x9e3779b97f4a7c15);
    for (int32_t i = (int32_t)(h >> 40) & (r->places - 1);; i = (i + 1) & (r->places - 1)) {
        if (r->place[i].t == t) return &r->place[i];
        if (!r->place[i].t) {
            r->place[i] = (place){.t = t, .id = TNI_P_NONE};
            r->known++;
            return &r->place[i];
        }
    }
}

static int32_t *find(recorder *r, const tn_tensor *t) { return &place_of(r, t)->id; }

/* Whether the tensor got other memory or sizes since it became a value, by no operator. */
static bool is_moved(recorder *r, const tn_tensor *t) {
    const place *at = place_of(r, t);
    const tni_pvalue *v = &r->p->value[at->id];
    bool same = at->storage == t->storage && v->ndim == t->v.ndim;
    for (int32_t d = 0; same && d < v->ndim; d++) same = v->shape[d] == t->v.shape[d];
    return !same;
}

static tn_status make_room(recorder *r) {
    recorder bigger = *r;
    if (r->places && r->known < r->places / 2) return TN_OK;
    bigger.places = r->places ? r->places * 2 : 256;
    bigger.known = 0;
    bigger.place = calloc((size_t)bigger.places, sizeof *bigger.place);
    if (!bigger.place) return tni_p_memory();
    for (int32_t i = 0; i < r->places; i++)
        if (r->place[i].t) *place_of(&bigger, r->place[i].t) = r->place[i];
    free(r->place);
    *r = bigger;
    return TN_OK;
}

static tn_status set_value(recorder *r, const tn_tensor *t, int32_t id) {
    TN_TRY(make_room(r));
    *place_of(r, t) = (place){t, t->storage, id};
    return TN_OK;
}

static tn_status add(recorder *r, tni_prole role, tn_tensor *t, int32_t *ret_id) {
    TN_TRY(tni_p_add_value(r->p, role, t, true, ret_id));
    return set_value(r, t, *ret_id);
}

/* Keeps an address from being used again. */
static tn_status hold(recorder *r, tn_tensor *t) {
    TN_TRY(tni_p_grow(&r->held, r->nheld, &r->held_room, sizeof *r->held));
    r->held[r->nheld++] = tn_tensor_ref(t);
    return TN_OK;
}

/* ---- Arguments into a node ---------------------------------------------------------------------*/

static tn_status value_of(recorder *r, tn_tensor *t, int32_t *ret_id);

/* A number of the call's, or one that a composite made of its arguments. */
static bool is_number(recorder *r, const tn_tensor *t) {
    if (t->flags & TNI_T_STACK) return true;
    return r->inside && t->v.word & TN_W_SCALAR && t->v.ndim == 0 && *find(r, t) < 0;
}

static tn_status freeze_input(recorder *r, tni_pnode *n, int32_t at, tn_tensor *t) {
    n->in[at] = TNI_P_NONE;
    if (!t) return TN_OK;
    TN_TRY(make_room(r));
    if (!is_number(r, t)) return value_of(r, t, &n->in[at]);
    if (!n->number) n->number = calloc((size_t)n->nin, sizeof *n->number);
    if (!n->number) return tni_p_memory();
    tni_scalar_load(tn_view_dtype(&t->v), t->v.data, &n->number[at]);
    n->in[at] = TNI_P_NUMBER;
    return TN_OK;
}

static tn_status freeze_inputs(recorder *r, tni_pnode *n, const void *args) {
    const tn_op *op = n->op;
    int32_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        void *own = tni_p_at(n, f);
        if (f->kind != TN_F_TENSORS) {
            *(tn_view **)own = NULL;
            tn_view *const *given = (const void *)((const char *)args + f->offset);
            TN_TRY(freeze_input(r, n, at++, *given ? tni_t(*given) : NULL));
            continue;
        }
        const tn_views *list = (const void *)((const char *)args + f->offset);
        ((tn_views *)own)->v = NULL;
        for (int64_t k = 0; k < list->n; k++)
            TN_TRY(freeze_input(r, n, at++, list->v[k] ? tni_t(list->v[k]) : NULL));
    }
    return TN_OK;
}

/* Lists of numbers and texts become the node's own; on failure none of those that are left over are
 * the caller's any more. */
static tn_status freeze_rest(tni_pnode *n) {
    tn_status st = TN_OK;
    for (int i = 0; i < n->op->nfields; i++) {
        const tn_field *f = &n->op->fields[i];
        void *own = tni_p_at(n, f);
        if (f->kind == TN_F_INTS || f->kind == TN_F_DIMS) {
            tn_ints *list = own;
            size_t bytes = list->n > 0 ? sizeof *list->v * (size_t)list->n : 0;
            int64_t *copy = bytes ? malloc(bytes) : NULL;
            if (bytes && !copy) st = tni_p_memory();
            if (copy) memcpy(copy, list->v, bytes);
            list->v = copy;
        } else if (f->kind == TN_F_STR) {
            const char **text = own;
            char *copy = *text ? tni_p_text_copy(*text) : NULL;
            if (*text && !copy) st = tni_p_memory();
            *text = copy;
        } else if (f->kind == TN_F_GENERATOR) {
            tn_generator_ref(*(tn_generator **)own);
        } else if (f->kind == TN_F_OUT) {
            *(tn_view **)own = NULL;
        } else if (f->kind == TN_F_OUTS) {
            *(tn_views *)own = (tn_views){0};
        }
    }
    return st;
}

/* A constant that nobody declared has the value it had at first, in every run. */
static void refuse_write(void *ctx, int32_t id) {
    recorder *r = ctx;
    const tn_tensor *t = r->p->value[id].t;
    for (int32_t i = 0; i < r->p->nvalues && r->broken == TN_OK; i++) {
        const tni_pvalue *v = &r->p->value[i];
        if (v->role == TNI_P_WEIGHT && v->kind == TN_PROGRAM_CONSTANT && tni_p_shares(v->t, t))
            r->broken = TN_E_UNSUPPORTED;
    }
}

static tn_status fail_write(const recorder *r, const tn_op *op) {
    if (r->broken == TN_OK) return TN_OK;
    return tn_fail(r->broken, -1,
                   "%s writes to a tensor that is no input, parameter or buffer of what is "
                   "recorded: make it one (register_buffer), or work on a clone",
                   op->info.name);
}

/* A write by `.data` is none that a gradient would notice; one to the view that stands for it is. */
static void refuse_aside(void *ctx, int32_t id) {
    recorder *r = ctx;
    if (!r->tolerant || !r->p->value[id].aside || r->broken != TN_OK) return;
    r->broken = tn_fail(TN_E_UNSUPPORTED, -1,
                        "the memory of a value that has a gradient is written to by .data");
}

static bool gradients_off(const recorder *r) {
    return r->said_grad ? r->said_grad == 1 : tni_tls.no_grad != 0;
}

static void set_modes(const recorder *r, tni_pnode *n, const void *args) {
    tn_tensor *first = NULL;
    tn_autocast region = {0};
    n->no_grad = (r->inside ? r->no_grad_around : gradients_off(r)) && !r->no_grad;
    if (tni_op_inputs(n->op, args, &first, 1) < 1 || !first || (first->flags & TNI_T_STACK)) return;
    if (tn_autocast_get(tn_view_device(&first->v), &region) == TN_OK && region.enabled)
        n->cast = (uint8_t)(region.dtype + 1);
}

/* Appends the node of a call that is about to run; its results come later. */
static tn_status freeze(recorder *r, const tn_op *op, const void *args, tni_pnode *ret_node) {
    tni_pnode n = {.op = op, .scope = r->scope};
    bool list = op->flags & TNI_OP_LIST_OUT;
    if (op->args_bytes > TNI_MAX_ARGS_BYTES)
        return tn_fail(TN_E_UNSUPPORTED, -1, "%s has more arguments than a program can hold",
                       op->info.name);
    n.nin = tni_op_inputs(op, args, NULL, 0);
    n.args = malloc(op->args_bytes);
    n.in = malloc(sizeof *n.in * (size_t)(n.nin + 1));
    n.given = malloc(sizeof *n.given * (size_t)(op->nout + 1));
    if (!n.args || !n.in || !n.given) {
        free(n.args);
        n.args = NULL;
        tni_p_node_clear(&n);
        return tni_p_memory();
    }
    memcpy(n.args, args, op->args_bytes);
    *(const void **)(void *)n.args = NULL; /* the plan */
    tn_status st = freeze_rest(&n);
    if (st == TN_OK) st = freeze_inputs(r, &n, args);
    for (int i = 0; i < op->nout; i++) n.given[i] = TNI_P_NONE;
    for (int i = 0; i < op->nout && !list && st == TN_OK; i++) {
        tn_tensor *t = *(tn_tensor *const *)(const void *)((const char *)args + op->out_offset[i]);
        if (t) st = value_of(r, t, &n.given[i]);
    }
    if (st == TN_OK) tni_p_each_written(&n, refuse_write, r);
    if (st == TN_OK) st = fail_write(r, op);
    if (st == TN_OK) tni_p_each_written(&n, refuse_aside, r);
    if (st == TN_OK) st = r->broken;
    set_modes(r, &n, args);
    if (st != TN_OK)
        tni_p_node_clear(&n);
    else
        *ret_node = n;
    return st;
}

/* The node of a call that went well. Takes over n. */
static tn_status append(recorder *r, tni_pnode *n, tn_tensor *const *outs, int32_t nouts) {
    tn_program *p = r->p;
    tn_status st = tni_p_grow(&p->node, p->nnodes, &p->node_room, sizeof *p->node);
    n->out = malloc(sizeof *n->out * (size_t)(nouts + 1));
    n->nout = nouts;
    if (st == TN_OK && !n->out) st = tni_p_memory();
    n->fresh = 1;
    for (int32_t i = 0; i < nouts && st == TN_OK; i++) {
        bool aside = false;
        n->out[i] = TNI_P_NONE;
        if (!outs[i]) continue;
        for (int32_t k = 0; k < n->nin; k++)
            if (n->in[k] >= 0 && tni_p_shares(p->value[n->in[k]].t, outs[i])) {
                n->fresh = 0;
                aside |= p->value[n->in[k]].aside;
            }
        st = add(r, TNI_P_NODE, outs[i], &n->out[i]);
        if (st != TN_OK) break;
        p->value[n->out[i]].place = p->nnodes;
        p->value[n->out[i]].aside = aside;
    }
    if (st != TN_OK)
        tni_p_node_clear(n);
    else
        p->node[p->nnodes++] = *n;
    return st;
}

/* Runs an operator of one result and records it, from within the layer. */
static tn_status insert(recorder *r, const char *name, void *args, tn_tensor **ret) {
    const tn_op *op = tni_op_find(name);
    tni_pnode n;
    tn_tensor *out = NULL;
    TN_TRY(freeze(r, op, args, &n));
    tn_status st = tn_op_call(op, args, &out);
    if (st != TN_OK)
        tni_p_node_clear(&n);
    else
        st = append(r, &n, &out, 1);
    if (st == TN_OK)
        *ret = out;
    else
        tn_tensor_unref(&out);
    return st;
}

tn_status tni_p_record_clone(tn_tensor *t, tn_tensor **ret_copy) {
    tn_clone_args args = {.input = &t->v, .memory_format = TN_FORMAT_PRESERVE};
    return active && active->napart < 0 ? insert(active, "clone", &args, ret_copy) : TN_DECLINE;
}

/* A tensor that nobody declared and no operator made, but which looks at the memory of a value: what
 * programs get by `.data`. It becomes a view of that value, without history. */
static tn_status add_alias(recorder *r, tn_tensor *t, int32_t of, int32_t *ret_id) {
    tn_tensor *base = r->p->value[of].t, *view = NULL, *part = NULL;
    bool same = base->v.ndim == t->v.ndim && base->v.data == t->v.data;
    for (int32_t d = 0; same && d < t->v.ndim; d++)
        same = base->v.shape[d] == t->v.shape[d] && base->v.strides[d] == t->v.strides[d];
    if (tn_view_dtype(&base->v) != tn_view_dtype(&t->v))
        return tn_fail(TN_E_UNSUPPORTED, -1,
                       "a tensor looks at the memory of a computed one as another dtype, which no "
                       "operator did");
    tn_detach_args whole = {.input = &base->v};
    TN_TRY(insert(r, "detach", &whole, &view));
    if (!same) {
        tn_as_strided_args rest = {
            .input = &view->v,
            .size = tn_ints_of(t->v.shape, t->v.ndim),
            .stride = tn_ints_of(t->v.strides, t->v.ndim),
            .storage_offset = tn_some_int(tn_tensor_storage_offset(t)),
        };
        tn_status st = insert(r, "as_strided", &rest, &part);
        tn_tensor_unref(&view);
        if (st != TN_OK) return st;
        view = part;
    }
    *ret_id = *find(r, view);
    tn_tensor_unref(&view);
    r->p->value[*ret_id].aside = (base->v.word & TN_W_GRAD) != 0;
    TN_TRY(hold(r, t));
    return set_value(r, t, *ret_id);
}

static tn_status value_of(recorder *r, tn_tensor *t, int32_t *ret_id) {
    tn_program *p = r->p;
    TN_TRY(make_room(r));
    *ret_id = *find(r, t);
    if (*ret_id >= 0 && is_moved(r, t))
        return tn_fail(TN_E_UNSUPPORTED, -1,
                       "a tensor was given other memory or sizes (by data, set_, resize_ or a "
                       "storage), which no operator did: write to it by copy_, or take a new one");
    if (*ret_id >= 0) return TN_OK;
    if (r->inside) {
        r->whole = true;
        return tn_fail(TN_E_UNSUPPORTED, -1, "a composite makes a tensor without an operator");
    }
    for (int32_t i = p->nvalues - 1; i >= 0; i--)
        if (p->value[i].role != TNI_P_WEIGHT && tni_p_shares(p->value[i].t, t))
            return add_alias(r, t, i, ret_id);
    bool shown = !tni_tls.formulas; /* else a part of an operator has kept it: there is the whole */
    for (int32_t i = 0; i < p->nvalues && !shown; i++) shown = tni_p_shares(p->value[i].t, t);
    if (!shown) {
        p->needs_parts = true;
        return tn_fail(TN_E_UNSUPPORTED, -1,
                       "a gradient reads what an operator has kept and no node of the program has");
    }
    TN_TRY(add(r, TNI_P_WEIGHT, t, ret_id));
    for (int32_t i = 0; i < p->nvalues; i++) /* a view of a declared weight is one, too */
        if (p->value[i].role == TNI_P_WEIGHT && p->value[i].kind && tni_p_shares(p->value[i].t, t))
            p->value[*ret_id].kind = TN_PROGRAM_BUFFER;
    return TN_OK;
}

/* ---- The layer ---------------------------------------------------------------------------------*/

static tn_status take(recorder *r, tni_pnode *n, tn_tensor **rets) {
    tni_span s = tni_results(n->op, rets);
    return append(r, n, s.v, (int32_t)s.n);
}

/* Some operators write to arguments by what other arguments say (batch_norm): versions tell. */
static tn_status versions_of(const recorder *r, const tni_pnode *n, uint32_t **ret_versions) {
    uint32_t *v = calloc((size_t)n->nin + 1, sizeof *v);
    if (!v) return tni_p_memory();
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) v[i] = tni_memory_version(r->p->value[n->in[i]].t);
    *ret_versions = v;
    return TN_OK;
}

static tn_status note_changes(recorder *r, tni_pnode *n, const uint32_t *versions) {
    for (int32_t i = 0; i < n->nin; i++) {
        if (n->in[i] < 0 || versions[i] == tni_memory_version(r->p->value[n->in[i]].t)) continue;
        if (!n->wrote) n->wrote = calloc((size_t)n->nin, 1);
        if (!n->wrote) return tni_p_memory();
        n->wrote[i] = 1;
        refuse_write(r, n->in[i]);
    }
    return fail_write(r, n->op);
}

/* ---- Composites as their parts -----------------------------------------------------------------*/

static bool can_take_apart(const recorder *r, const tn_op *op, void *args) {
    bool wanted = r->napart < 0;
    for (int32_t i = 0; i < r->napart && !wanted; i++) wanted = r->apart[i] == op;
    if (!wanted || op->info.kind != TN_OP_COMPOSITE) return false;
    if (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY)) return false;
    tni_span given = tni_given(op, args);
    for (int64_t i = 0; i < given.n; i++)
        if (given.v[i]) return false;
    return true;
}

/* Forgets the nodes from `nodes` on, and the values from `values` on. */
static void cut(recorder *r, int32_t nodes, int32_t values) {
    tn_program *p = r->p;
    while (p->nnodes > nodes) tni_p_node_clear(&p->node[--p->nnodes]);
    for (int32_t i = 0; i < r->places; i++)
        if (r->place[i].id >= values) r->place[i].id = TNI_P_NONE;
    for (int32_t i = 0; i < p->nlooks; i++) {
        if (p->look[i].position > nodes) p->look[i].position = nodes;
        if (p->look[i].value >= values) p->look[i].value = TNI_P_NONE;
    }
    while (p->nvalues > values) tni_p_value_clear(&p->value[--p->nvalues]);
}

/* Its parts take numbers of its inputs' sizes. */
static void note_sizes_of(const recorder *r, const tni_pnode *n) {
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) r->p->value[n->in[i]].sized = true;
}

/* Whether all results are values: what none of the parts made is none. */
static bool are_known(recorder *r, const tn_op *op, tn_tensor **rets) {
    tni_span s = tni_results(op, rets);
    for (int64_t i = 0; i < s.n; i++)
        if (s.v[i] && *find(r, s.v[i]) < 0) return false;
    return true;
}

/* Runs a composite whose inputs are known, and whose parts the layer sees; *ret_apart: they are all
 * that there is to it. Otherwise the program is as it was. */
static tn_status run_apart(recorder *r, tn_layer_call *next, const tn_op *op, void *args,
                           tn_tensor **rets, bool *ret_apart) {
    int32_t nodes = r->p->nnodes, values = r->p->nvalues;
    int64_t reads = r->p->reads;
    uint64_t turn = turns;
    bool around = r->whole;
    if (r->inside++ == 0) r->no_grad_around = gradients_off(r);
    r->whole = false;
    int seen = tn_layer_enable(layer_id, 1);
    tn_status st = tn_layer_next(next, &op->info, args, rets);
    if (turn != turns) return st; /* there is no recorder any more */
    (void)tn_layer_enable(layer_id, seen);
    r->inside--;
    bool followed = st == TN_OK && !r->whole && r->p->reads == reads;
    *ret_apart = followed && make_room(r) == TN_OK && are_known(r, op, rets);
    if (!*ret_apart) cut(r, nodes, values);
    r->whole = around;
    return st;
}

/* The recording failed: the first reason is what its end says. */
static void keep_why(recorder *r, tn_status st) {
    if (!r->why && tn_error_last()) r->why = tni_p_text_copy(tn_error_last()->message);
    r->broken = st;
}

/* Composites that select by a mask, and whose kernels may well give results of fixed sizes. What only
 * writes where a mask says asks for the places, too. */
static bool selects(const tn_op *op) {
    return strcmp(op->info.name, "index") == 0 || strcmp(op->info.name, "argwhere") == 0;
}

static tn_status call(void *ctx, tn_layer_call *next, const tn_op_info *info, void *args,
                      tn_tensor **rets) {
    const tn_op *op = (const void *)info;
    recorder *r = active;
    tni_pnode n;
    (void)ctx;
    if (!r || r->paused || r->whole || (r->tolerant && r->broken != TN_OK))
        return tn_layer_next(next, info, args, rets);
    bool apart = false;
    uint32_t *versions = NULL;
    tn_status st = freeze(r, op, args, &n);
    if (st == TN_OK && (st = versions_of(r, &n, &versions)) != TN_OK) tni_p_node_clear(&n);
    if (st == TN_OK) {
        uint64_t turn = turns, resized = tni_results_resized;
        bool parts = can_take_apart(r, op, args);
        if (parts) note_sizes_of(r, &n);
        st = parts ? run_apart(r, next, op, args, rets, &apart)
                   : tn_layer_next(next, info, args, rets);
        /* The recording may have been given up meanwhile. */
        if (st != TN_OK || turn != turns || apart) {
            tni_p_node_clear(&n);
            free(versions);
            /* A program that catches the error may take another course for other values. */
            if (st != TN_OK && turn == turns && r->tolerant) keep_why(r, st);
            return st; /* the program goes on as if the call had not been */
        }
        n.loose = op->flags & TNI_OP_DYNAMIC || (resized != tni_results_resized && selects(op));
        st = note_changes(r, &n, versions);
        tn_status added = take(r, &n, rets);
        st = st != TN_OK ? st : added;
        if (st != TN_OK && !r->tolerant) tni_results_drop(op, rets);
    } else if (r->whole) { /* the composite around it has no such value either */
        (void)tn_error_last();
        return tn_layer_next(next, info, args, rets);
    } else if (r->tolerant) {
        keep_why(r, st);
        return tn_layer_next(next, info, args, rets);
    }
    free(versions);
    if (st == TN_OK) return st;
    keep_why(r, st);
    return r->tolerant ? TN_OK : st;
}

static void add_layer(void) {
    const tn_layer layer = {.name = "tn.program", .priority = INT32_MAX, .call = call};
    if (tn_layer_register(&layer, &layer_id) != TN_OK) layer_id = -1;
}

/* ---- Without a layer (defer.c) -----------------------------------------------------------------*/

void tni_recorder_free(tni_recorder **r) {
    recorder *x = *r;
    *r = NULL;
    if (!x) return;
    for (int32_t i = 0; i < x->nheld; i++) tn_tensor_unref(&x->held[i]);
    tn_program_unref(&x->p);
    free(x->held);
    free(x->apart);
    free(x->place);
    free(x->why);
    free(x);
}

tn_status tni_recorder_new(tni_recorder **ret_recorder) {
    recorder *r = calloc(1, sizeof *r);
    if (!r) return tni_p_memory();
    r->no_grad = true; /* whoever runs it says whether gradients are recorded */
    tn_status st = tni_p_new(&r->p);
    if (st == TN_OK) st = make_room(r);
    if (st != TN_OK) tni_recorder_free(&r);
    *ret_recorder = r;
    return st;
}

tn_program *tni_recorder_program(const tni_recorder *r) { return r->p; }

tn_status tni_recorder_find(tni_recorder *r, const tn_tensor *t, int32_t *ret_id) {
    TN_TRY(make_room(r));
    *ret_id = *find(r, t);
    return TN_OK;
}

tn_status tni_recorder_add(tni_recorder *r, const tn_op *op, const void *args, tn_tensor *out) {
    tni_pnode n;
    TN_TRY(freeze(r, op, args, &n));
    return append(r, &n, &out, 1);
}

/* ---- Beginning and end -------------------------------------------------------------------------*/

static void stop(void) {
    recorder *r = active;
    active = NULL;
    if (!r) return;
    turns++;
    tn_layer_enable(layer_id, 0);
    r->p->recording = false;
    tni_recorder_free(&r);
}

tn_status tn_program_begin(tn_program **ret_program) {
    static tni_os_once once = TNI_OS_ONCE_INIT;
    if (!ret_program) return tn_fail(TN_E_TYPE, -1, "program_begin(): no place for the program");
    if (active) return tn_fail(TN_E_STATE, -1, "program_begin(): the thread is recording already");
    tni_os_call_once(&once, add_layer);
    if (layer_id < 0) return tn_fail(TN_E_STATE, -1, "program_begin(): too many layers are there");
    recorder *r = NULL;
    TN_TRY(tni_recorder_new(&r));
    r->no_grad = tni_tls.no_grad != 0;
    tni_os_at_thread_exit(stop);
    r->p->recording = true;
    active = r;
    *ret_program = tn_program_ref(r->p);
    tn_layer_enable(layer_id, 1);
    return TN_OK;
}

int tn_program_is_recording(void) { return active && !active->paused; }

static tn_status check_recording(const tn_program *p) {
    if (p && active && active->p == p) return TN_OK;
    return tn_fail(TN_E_STATE, 0, "the calling thread does not record this program");
}

tn_status tn_program_set_scope(tn_program *p, int32_t scope) {
    TN_TRY(check_recording(p));
    active->scope_by_node = scope == TN_PROGRAM_SCOPE_NODE;
    active->scope = active->scope_by_node ? 0 : scope;
    return TN_OK;
}

void tni_p_note_node(int32_t k) {
    if (active && active->scope_by_node) active->scope = k;
}

tn_status tn_program_take_apart(tn_program *p, const char *const *names, int32_t n) {
    TN_TRY(check_recording(p));
    if (n < -1 || (n > 0 && !names))
        return tn_fail(TN_E_TYPE, 1, "program_take_apart(): a list of names is needed");
    const tn_op **ops = n > 0 ? calloc((size_t)n, sizeof *ops) : NULL;
    if (n > 0 && !ops) return tni_p_memory();
    for (int32_t i = 0; i < n; i++) ops[i] = names[i] ? tni_op_find(names[i]) : NULL;
    free(active->apart);
    active->apart = ops;
    active->napart = n;
    return TN_OK;
}

tn_status tn_program_tolerate(tn_program *p) {
    TN_TRY(check_recording(p));
    active->tolerant = true;
    return TN_OK;
}

int tn_program_note_grad(int on) {
    int before = active ? active->said_grad - 1 : -1;
    if (active) active->said_grad = on < 0 ? 0 : 1 + (on != 0);
    return before;
}

tn_status tn_program_pause(tn_program *p, int on) {
    TN_TRY(check_recording(p));
    active->paused = on != 0;
    return TN_OK;
}

tn_status tn_program_value(tn_program *p, tn_tensor *t, int32_t *ret_value) {
    TN_TRY(check_recording(p));
    if (!t || !ret_value)
        return tn_fail(TN_E_TYPE, 1, "program_value() needs a tensor and a place for its result");
    return value_of(active, t, ret_value);
}

static tn_status declare(tn_program *p, tn_tensor *t, const char *name, tni_prole role,
                         int32_t *ret_id) {
    TN_TRY(check_recording(p));
    if (!t || !name) return tn_fail(TN_E_TYPE, 1, "a program's input or weight is NULL");
    TN_TRY(make_room(active));
    if (*find(active, t) >= 0)
        return tn_fail(TN_E_VALUE, 1, "'%s' is an input or weight of the program already", name);
    char *copy = tni_p_text_copy(name);
    if (!copy) return tni_p_memory();
    tn_status st = add(active, role, t, ret_id);
    if (st != TN_OK) free(copy);
    if (st == TN_OK) p->value[*ret_id].name = copy;
    return st;
}

tn_status tn_program_add_input(tn_program *p, tn_tensor *t, const char *name) {
    int32_t id;
    TN_TRY(declare(p, t, name, TNI_P_INPUT, &id));
    p->value[id].place = p->ninputs;
    return tni_p_append(&p->input, &p->ninputs, id);
}

tn_status tn_program_add_weight(tn_program *p, tn_tensor *t, const char *name, int32_t kind) {
    int32_t id;
    if (kind < TN_PROGRAM_CONSTANT || kind > TN_PROGRAM_BUFFER)
        return tn_fail(TN_E_VALUE, 3, "there is no kind %d of weights", (int)kind);
    TN_TRY(declare(p, t, name, TNI_P_WEIGHT, &id));
    p->value[id].kind = kind;
    return TN_OK;
}

/* Sizes of pointwise results are those of their operands. */
static void leave_to_operands(tn_program *p) {
    for (int32_t i = p->nvalues - 1; i >= 0; i--) {
        tni_pvalue *v = &p->value[i];
        const tni_pnode *n = v->role == TNI_P_NODE ? &p->node[v->place] : NULL;
        if (!n || !v->sized || n->op->info.kind != TN_OP_POINTWISE) continue;
        v->sized = false;
        for (int32_t k = 0; k < n->nin; k++)
            if (n->in[k] >= 0) p->value[n->in[k]].sized = true;
    }
}

/* Sizes that follow from values differ from run to run, as do those that follow from them in turn:
 * nobody minds as long as nobody has read them. */
static void free_loose_sizes(tn_program *p) {
    for (int32_t k = 0; k < p->nnodes; k++) {
        tni_pnode *n = &p->node[k];
        for (int32_t i = 0; i < n->nin && !n->loose; i++) {
            const tni_pvalue *v = n->in[i] >= 0 ? &p->value[n->in[i]] : NULL;
            n->loose = v && v->role == TNI_P_NODE && p->node[v->place].loose && !v->kind;
        }
        for (int32_t i = 0; i < n->nout && n->loose; i++) {
            tni_pvalue *v = n->out[i] >= 0 ? &p->value[n->out[i]] : NULL;
            if (v && v->sized) v->kind = TNI_P_HELD;
            for (int32_t d = 0; v && d < v->ndim && !v->sized; d++) v->shape[d] = -1;
        }
    }
}

static tn_status end(tn_program *p, tn_tensors outputs) {
    if (active->broken != TN_OK)
        return tn_fail(active->broken, -1, "the recording failed: %s",
                       active->why ? active->why
                                   : "a call could not be recorded, or wrote to a tensor that is "
                                     "no input, parameter or buffer of what is recorded");
    for (int64_t i = 0; i < outputs.n; i++) {
        int32_t id;
        if (!outputs.v[i]) return tn_fail(TN_E_TYPE, 1, "output %lld is NULL", (long long)i);
        TN_TRY(value_of(active, outputs.v[i], &id));
        TN_TRY(tni_p_append(&p->output, &p->noutputs, id));
    }
    leave_to_operands(p);
    free_loose_sizes(p);
    return tni_p_settle(p);
}

tn_status tn_program_end(tn_program *p, tn_tensors outputs) {
    TN_TRY(check_recording(p));
    tn_layer_enable(layer_id, 0);
    tn_status st = end(p, outputs);
    stop();
    if (st != TN_OK) return st;
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].role != TNI_P_WEIGHT) tn_tensor_unref(&p->value[i].t);
    p->recorded = true;
    return TN_OK;
}

void tn_program_cancel(tn_program *p) {
    if (p && active && active->p == p) stop();
}

/* ---- Values that are looked at -----------------------------------------------------------------*/

enum { MOST_LOOKS = 1000 };

/* Computed values that are held by others than the recording. */
static tn_status list_live(const tn_program *p, tni_plook *l) {
    l->live = malloc(sizeof *l->live * (size_t)(p->nvalues + 1));
    if (!l->live) return tni_p_memory();
    for (int32_t i = 0; i < p->nvalues; i++) {
        const tni_pvalue *v = &p->value[i];
        if (v->role == TNI_P_NODE && atomic_load_explicit(&v->t->refs, memory_order_relaxed) > 1)
            l->live[l->nlive++] = i;
    }
    return TN_OK;
}

static void keep_look(tn_program *p, const tn_tensor *t, int32_t id) {
    if (p->nlooks >= MOST_LOOKS ||
        tni_p_grow(&p->look, p->nlooks, &p->look_room, sizeof *p->look) != TN_OK)
        return;
    tni_plook *l = &p->look[p->nlooks];
    *l = (tni_plook){.position = p->nnodes, .value = id, .version = tn_tensor_version(t)};
    if (list_live(p, l) != TN_OK) return;
    l->t = tn_tensor_ref((tn_tensor *)(uintptr_t)t);
    l->where = tni_host_where();
    p->nlooks++;
}

void tn_program_note_read(const tn_tensor *t) {
    recorder *r = active;
    if (TN_LIKELY(!r) || r->paused || !t || (t->flags & TNI_T_STACK) || make_room(r) != TN_OK)
        return;
    tn_program *p = r->p;
    int32_t id = *find(r, t);
    bool computed = id >= 0 && p->value[id].role != TNI_P_WEIGHT;
    for (int32_t i = 0; id < 0 && i < p->nvalues && !computed; i++)
        computed = p->value[i].role != TNI_P_WEIGHT && tni_p_shares(p->value[i].t, t);
    keep_look(p, t, id);
    if (!computed) return;
    p->reads++;
    if (!p->read_where) p->read_where = tni_host_where();
}

void tn_program_note_sizes(const tn_tensor *t) {
    recorder *r = active;
    if (TN_LIKELY(!r) || r->paused || !t || (t->flags & TNI_T_STACK) || make_room(r) != TN_OK)
        return;
    tn_program *p = r->p;
    int32_t id = *find(r, t);
    if (id >= 0) p->value[id].sized = true;
    for (int32_t i = 0; i < p->nvalues && id < 0; i++) /* no operator made it: whose memory it is */
        if (tni_p_shares(p->value[i].t, t)) p->value[i].sized = true;
}

/* A composite whose parts are recorded has written otherwise than by one of them. */
static void note_write(void) {
    if (active && active->inside) active->whole = true;
}

__attribute__((constructor)) static void fill_hooks(void) {
    tni_note_read = tn_program_note_read;
    tni_note_write = note_write;
}
