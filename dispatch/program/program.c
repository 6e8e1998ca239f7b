/* program.c: the life of a program, and its facts. */
#include "program_priv.h"

#include <stdlib.h>

tn_status tni_p_memory(void) { return tn_fail(TN_E_MEMORY, -1, "out of memory"); }

tn_status tni_p_new(tn_program **ret_program) {
    tn_program *p = calloc(1, sizeof *p);
    if (!p) return tni_p_memory();
    atomic_store_explicit(&p->refs, 1, memory_order_relaxed);
    *ret_program = p;
    return TN_OK;
}

tn_program *tn_program_ref(tn_program *p) {
    if (p) atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

/* The lists of numbers and texts of a node's arguments are its own. */
static void free_field(const tn_field *f, void *p) {
    if (f->kind == TN_F_INTS || f->kind == TN_F_DIMS) free((void *)(uintptr_t)((tn_ints *)p)->v);
    if (f->kind == TN_F_STR) free((void *)(uintptr_t) * (const char **)p);
    if (f->kind == TN_F_GENERATOR) tn_generator_unref(p);
}

void tni_p_node_clear(tni_pnode *n) {
    for (int i = 0; n->args && i < n->op->nfields; i++)
        free_field(&n->op->fields[i], tni_p_at(n, &n->op->fields[i]));
    free(n->args);
    free(n->in);
    free(n->number);
    free(n->wrote);
    free(n->out);
    free(n->given);
    free(n->derived);
    *n = (tni_pnode){0};
}

void tni_p_value_clear(tni_pvalue *v) {
    tn_tensor_unref(&v->t);
    free(v->name);
    free(v->shape);
    free(v->symbol);
    free(v->rule);
    *v = (tni_pvalue){0};
}

static void free_all(tn_program *p) {
    tni_p_forget_compiled(p);
    for (int32_t i = 0; i < p->nnodes; i++) tni_p_node_clear(&p->node[i]);
    for (int32_t i = 0; i < p->nvalues; i++) tni_p_value_clear(&p->value[i]);
    for (int32_t i = 0; i < p->nsymbols; i++) free(p->symbol[i].name);
    for (int32_t i = 0; i < p->nlooks; i++) {
        tn_tensor_unref(&p->look[i].t);
        free(p->look[i].live);
        free(p->look[i].where);
    }
    free(p->look);
    free(p->value);
    free(p->node);
    free(p->input);
    free(p->output);
    free(p->symbol);
    free(p->last_use);
    free(p->note);
    free(p->read_where);
    free(p);
}

void tni_p_region_clear(tni_pregion *r) {
    if (r->code) r->dev->ifaces.program->destroy(r->dev->desc.ctx, r->device.index, r->code);
    for (int32_t i = 0; i < r->nout && r->like; i++) tn_tensor_unref(&r->like[i]);
    free(r->like);
    free(r->value);
}

static void forget_regions(tn_program *p) {
    tni_pregions *all = atomic_exchange(&p->regions, NULL);
    while (all && all->sizes) {
        tni_pregions *next = all->next;
        for (int32_t i = 0; i < all->n; i++) tni_p_region_clear(&all->region[i]);
        free(all->region);
        free(all->sizes);
        free(all);
        all = next;
    }
}

void tni_p_forget_compiled(tn_program *p) {
    forget_regions(p);
    tni_p_free_groups(atomic_exchange(&p->fused, NULL));
}

void tni_p_free_groups(tni_pfused *f) {
    if (!f || f->fixed) return;
    for (int32_t i = 0; i < f->n; i++) {
        const tni_pgroup *g = &f->group[i];
        g->dev->ifaces.codegen2->destroy(g->dev->desc.ctx, 0, g->code);
    }
    free(f);
}

void tn_program_unref(tn_program **program) {
    tn_program *p = program ? *program : NULL;
    if (!p) return;
    *program = NULL;
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1) free_all(p);
}

tn_status tni_p_grow(void *array, int32_t n, int32_t *room, size_t item) {
    void **at = array;
    if (n < *room) return TN_OK;
    if (n > INT32_MAX / 4) return tn_fail(TN_E_MEMORY, -1, "a program with too many parts");
    int32_t wanted = n < 16 ? 32 : n * 2;
    void *more = realloc(*at, item * (size_t)wanted);
    if (!more) return tni_p_memory();
    memset((char *)more + item * (size_t)n, 0, item * (size_t)(wanted - n));
    *at = more;
    *room = wanted;
    return TN_OK;
}

char *tni_p_text_copy(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

tn_status tni_p_append(int32_t **list, int32_t *n, int32_t id) {
    int32_t *more = realloc(*list, sizeof *more * ((size_t)*n + 1));
    if (!more) return tni_p_memory();
    more[(*n)++] = id;
    *list = more;
    return TN_OK;
}

tn_status tni_p_add_value(tn_program *p, tni_prole role, tn_tensor *t, bool keep, int32_t *ret_id) {
    TN_TRY(tni_p_grow(&p->value, p->nvalues, &p->value_room, sizeof *p->value));
    int32_t ndim = t->v.ndim;
    int64_t *shape = malloc(sizeof *shape * (size_t)(ndim > 0 ? ndim : 1));
    if (!shape) return tni_p_memory();
    if (ndim > 0) memcpy(shape, t->v.shape, sizeof *shape * (size_t)ndim);
    p->value[p->nvalues] = (tni_pvalue){
        .role = role,
        .place = TNI_P_NONE,
        .t = keep ? tn_tensor_ref(t) : NULL,
        .dtype = tn_view_dtype(&t->v),
        .ndim = ndim,
        .device = tn_tensor_device(t),
        .shape = shape,
    };
    *ret_id = p->nvalues++;
    return TN_OK;
}

/* ---- What a node writes ------------------------------------------------------------------------*/

void tni_p_each_written(const tni_pnode *n, void (*fn)(void *ctx, int32_t id), void *ctx) {
    const tn_op *op = n->op;
    const bool writes = tni_writes_now(op, n->args);
    int32_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        bool list = f->kind == TN_F_TENSORS;
        int64_t count = list ? ((const tn_views *)tni_p_at(n, f))->n : 1;
        bool written = (writes && (f->flags & TNI_FIELD_MUTATED)) ||
                       (i == 0 && (op->flags & TNI_OP_INPLACE_ONLY));
        for (int64_t k = 0; k < count; k++, at++)
            if ((written || (n->wrote && n->wrote[at])) && n->in[at] >= 0) fn(ctx, n->in[at]);
    }
    for (int i = 0; i < op->nout && !(op->flags & TNI_OP_LIST_OUT); i++)
        if (n->given[i] >= 0) fn(ctx, n->given[i]);
}

/* ---- When values are needed last ---------------------------------------------------------------*/

void tni_p_note_uses(tn_program *p) {
    for (int32_t s = 0; s < p->nsymbols; s++) p->symbol[s].used_until = 0;
    for (int32_t k = 0; k < p->nnodes; k++)
        for (int32_t i = 0; i < p->node[k].nderived; i++)
            p->symbol[p->node[k].derived[i].symbol].used_until = k + 1;
}

tn_status tni_p_settle(tn_program *p) {
    int32_t *last = malloc(sizeof *last * (size_t)(p->nvalues + 1));
    if (!last) return tni_p_memory();
    for (int32_t i = 0; i < p->nvalues; i++) last[i] = TNI_P_NONE;
    for (int32_t k = 0; k < p->nnodes; k++) {
        const tni_pnode *n = &p->node[k];
        for (int32_t i = 0; i < n->nout; i++)
            if (n->out[i] >= 0) last[n->out[i]] = k;
        for (int32_t i = 0; i < n->nin; i++)
            if (n->in[i] >= 0) last[n->in[i]] = k;
        for (int i = 0; i < n->op->nout; i++)
            if (n->given[i] >= 0) last[n->given[i]] = k;
    }
    for (int32_t i = 0; i < p->noutputs; i++) last[p->output[i]] = p->nnodes;
    tni_p_forget_compiled(p);
    free(p->last_use);
    p->last_use = last;
    tni_p_note_uses(p);
    return TN_OK;
}

/* ---- Facts -------------------------------------------------------------------------------------*/

int32_t tn_program_inputs(const tn_program *p) { return p ? p->ninputs : 0; }
int32_t tn_program_outputs(const tn_program *p) { return p ? p->noutputs : 0; }
int32_t tn_program_nodes(const tn_program *p) { return p ? p->nnodes : 0; }
int64_t tn_program_reads(const tn_program *p) { return p ? p->reads : 0; }
int tn_program_needs_parts(const tn_program *p) { return p && p->needs_parts; }
const char *tn_program_read_where(const tn_program *p) { return p ? p->read_where : NULL; }

tn_status tn_program_look_at(const tn_program *p, int32_t i, tn_program_look *ret_look) {
    if (!p || !ret_look) return tn_fail(TN_E_TYPE, -1, "a program and a place for the look");
    if (i < 0 || i >= p->nlooks)
        return tn_fail(TN_E_INDEX, 1, "the program has %d looks", (int)p->nlooks);
    const tni_plook *l = &p->look[i];
    *ret_look = (tn_program_look){
        .position = l->position,
        .value = l->value,
        .where = l->where,
        .live = l->live,
        .nlive = l->nlive,
        .version = l->version,
        .tensor = l->t,
    };
    return TN_OK;
}

const char *tn_program_note(const tn_program *p) { return p && p->note ? p->note : ""; }

tn_status tn_program_set_note(tn_program *p, const char *text) {
    if (!p || !text) return tn_fail(TN_E_TYPE, -1, "program_set_note() needs a program and a text");
    char *copy = tni_p_text_copy(text);
    if (!copy) return tni_p_memory();
    free(p->note);
    p->note = copy;
    return TN_OK;
}

static void slot_of(const tni_pvalue *v, tn_program_slot *ret_slot) {
    *ret_slot = (tn_program_slot){
        .name = v->name ? v->name : "",
        .shape = v->shape,
        .dtype = v->dtype,
        .ndim = v->ndim,
        .device = v->device,
        .kind = v->kind,
    };
}

static tn_status slot_at(const tn_program *p, const int32_t *list, int32_t n, int32_t i,
                         tn_program_slot *ret_slot) {
    if (!p || !ret_slot) return tn_fail(TN_E_TYPE, -1, "a program and a place for the slot");
    if (i < 0 || i >= n) return tn_fail(TN_E_INDEX, 1, "the program has %d of them", (int)n);
    slot_of(&p->value[list[i]], ret_slot);
    return TN_OK;
}

tn_status tn_program_input_at(const tn_program *p, int32_t i, tn_program_slot *ret_slot) {
    return slot_at(p, p ? p->input : NULL, tn_program_inputs(p), i, ret_slot);
}

tn_status tn_program_output_at(const tn_program *p, int32_t i, tn_program_slot *ret_slot) {
    return slot_at(p, p ? p->output : NULL, tn_program_outputs(p), i, ret_slot);
}

int64_t tn_program_size_seen(const tn_program *p, int32_t i, int32_t dim) {
    if (!p || i < 0 || i >= p->ninputs) return -1;
    const tni_pvalue *v = &p->value[p->input[i]];
    return dim < 0 || dim >= v->ndim ? -1 : tni_p_size_seen(p, v, dim);
}

/* The i-th weight, or NULL; *ret_count: how many there are. */
static tni_pvalue *weight_at(const tn_program *p, int32_t i, int32_t *ret_count) {
    tni_pvalue *found = NULL;
    *ret_count = 0;
    for (int32_t k = 0; k < p->nvalues; k++)
        if (p->value[k].role == TNI_P_WEIGHT && (*ret_count)++ == i) found = &p->value[k];
    return found;
}

tn_status tn_program_weight_at(const tn_program *p, int32_t i, tn_program_slot *ret_slot,
                               tn_tensor **ret_tensor) {
    int32_t count;
    if (!p || !ret_slot) return tn_fail(TN_E_TYPE, -1, "a program and a place for the slot");
    const tni_pvalue *v = weight_at(p, i, &count);
    if (!v) return tn_fail(TN_E_INDEX, 1, "the program has %d weights", (int)count);
    slot_of(v, ret_slot);
    if (ret_tensor) *ret_tensor = tn_tensor_ref(v->t);
    return TN_OK;
}

tn_status tn_program_set_weight(tn_program *p, int32_t i, tn_tensor *t) {
    int32_t count;
    if (!p || !t)
        return tn_fail(TN_E_TYPE, -1, "program_set_weight() needs a program and a tensor");
    tni_pvalue *v = weight_at(p, i, &count);
    if (!v) return tn_fail(TN_E_INDEX, 1, "the program has %d weights", (int)count);
    tn_device device = tn_tensor_device(t);
    bool same = tn_view_dtype(&t->v) == v->dtype && t->v.ndim == v->ndim &&
                device.slot == v->device.slot && device.index == v->device.index;
    for (int32_t d = 0; same && d < v->ndim; d++) same = t->v.shape[d] == v->shape[d];
    if (!same)
        return tn_fail(TN_E_VALUE, 2, "weight '%s' has another dtype, shape or device",
                       v->name ? v->name : "");
    forget_regions(p); /* they may hold a constant's memory */
    tn_tensor_unref(&v->t);
    v->t = tn_tensor_ref(t);
    return TN_OK;
}
