/* passes.c: checks and changes of whole programs. No pass changes what a run does: what is written
 * stays in order, random numbers are drawn as before, and results that were apart stay apart. */
#include "program_priv.h"

#include <stdlib.h>

enum {
    FOLD_BYTES = 1 << 16
}; /* most that a constant in a node's place may be larger than its inputs */

bool tni_p_shares(const tn_tensor *a, const tn_tensor *b) {
    return a && b && a->storage && a->storage == b->storage && a->storage->bytes > 0;
}

/* What is unknown counts as 1. */
static int64_t numel_of(const tni_pvalue *v) {
    int64_t n = 1;
    for (int32_t d = 0; d < v->ndim; d++) n *= v->shape[d] < 0 ? 1 : v->shape[d];
    return n;
}

static bool is_held(const tni_pvalue *v) { return v->role == TNI_P_NODE && v->kind == TNI_P_HELD; }

/* A composite returns an input or a view of it always, which the recording has seen, or for some
 * layouts of the input, where it is a copy of all of it otherwise. */
bool tni_p_may_share(const tn_program *p, const tni_pnode *n, int32_t out, int32_t in) {
    const tni_pvalue *a = &p->value[out], *b = &p->value[in];
    if (n->op->info.kind == TN_OP_VIEW) return true;
    if (n->op->info.kind != TN_OP_COMPOSITE) return false;
    if (!n->fresh || a->dtype != b->dtype) return !n->fresh;
    return is_held(a) || is_held(b) || numel_of(a) == numel_of(b);
}

/* ---- Verification ------------------------------------------------------------------------------*/

static tn_status fail_node(int32_t k, const tni_pnode *n, const char *what) {
    return tn_fail(TN_E_VALUE, -1, "node %d of the program (%s): %s", (int)k, n->op->info.name,
                   what);
}

static bool is_derivable(const tni_pnode *n, const tni_pderived *d) {
    if (d->field < 0 || d->field >= n->op->nfields || d->den == 0 || d->index < 0) return false;
    const tn_field *f = &n->op->fields[d->field];
    switch (f->kind) {
    case TN_F_INTS:
    case TN_F_DIMS: {
        const tn_ints *list = tni_p_at(n, f);
        return d->index < list->n && list->n <= TN_MAX_DIMS;
    }
    case TN_F_OPERAND: return d->index < n->nin && n->in[d->index] == TNI_P_NUMBER;
    case TN_F_INT:
    case TN_F_INT_OPT:
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT:
    case TN_F_FLOAT: return true;
    default: return false;
    }
}

/* Tensors by field: how many there are, and whether a number may stand there. */
static tn_status verify_inputs(const tn_program *p, int32_t k, const bool *made) {
    const tni_pnode *n = &p->node[k];
    const tn_op *op = n->op;
    int64_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        bool list = f->kind == TN_F_TENSORS;
        int64_t count = list ? ((const tn_views *)tni_p_at(n, f))->n : 1;
        if (count < 0 || count > n->nin - at) return fail_node(k, n, "another number of tensors");
        for (int64_t j = 0; j < count; j++, at++) {
            int32_t id = n->in[at];
            bool none = id == TNI_P_NONE, number = id == TNI_P_NUMBER;
            bool optional = f->kind == TN_F_TENSOR_OPT || (list && (f->flags & TNI_FIELD_OPTIONAL));
            if (none && !optional) return fail_node(k, n, "a tensor is missing");
            if (number && (list || !n->number)) return fail_node(k, n, "a number in a list");
            if (none || number) continue;
            if (id < 0 || id >= p->nvalues || !made[id])
                return fail_node(k, n, "a value is used before it is there");
        }
    }
    return at == n->nin ? TN_OK : fail_node(k, n, "another number of tensors");
}

static tn_status verify_node(const tn_program *p, int32_t k, bool *made) {
    const tni_pnode *n = &p->node[k];
    bool list = n->op->flags & TNI_OP_LIST_OUT;
    TN_TRY(verify_inputs(p, k, made));
    if (!list && n->nout != n->op->nout) return fail_node(k, n, "another number of results");
    for (int i = 0; i < n->op->nout; i++) {
        int32_t id = n->given[i];
        if (id != TNI_P_NONE && (list || id < 0 || id >= p->nvalues || !made[id]))
            return fail_node(k, n, "a result goes where nothing is");
    }
    for (int32_t i = 0; i < n->nout; i++) {
        int32_t id = n->out[i];
        if (id == TNI_P_NONE) continue;
        if (id < 0 || id >= p->nvalues || made[id] || p->value[id].role != TNI_P_NODE ||
            p->value[id].place != k)
            return fail_node(k, n, "a result is no value of its own");
        made[id] = true;
    }
    for (int32_t i = 0; i < n->nderived; i++) {
        const tni_pderived *d = &n->derived[i];
        bool goes_on = i && d[-1].field == d->field && d[-1].index == d->index;
        if (!is_derivable(n, d) || d->symbol < 0 || d->symbol >= p->nsymbols ||
            goes_on != (d->step != TNI_P_IS))
            return fail_node(k, n, "a size of nothing");
    }
    return TN_OK;
}

/* Sizes that a tensor can have; of an input, free ones have a symbol, and no others. */
static tn_status verify_value(const tn_program *p, int32_t at) {
    const tni_pvalue *v = &p->value[at];
    int64_t numel = 1;
    bool fits = true, known = true;
    for (int32_t d = 0; d < v->ndim; d++) {
        int32_t symbol = v->symbol ? v->symbol[d] : -1;
        known &= symbol >= -1 && symbol < p->nsymbols;
        if (v->role == TNI_P_INPUT) known &= (symbol >= 0) == (v->shape[d] < 0);
        fits &= v->shape[d] < 0 || !__builtin_mul_overflow(numel, v->shape[d], &numel);
    }
    if (!known)
        return tn_fail(TN_E_VALUE, -1, "value %d of the program has an unknown size", (int)at);
    if (!fits)
        return tn_fail(TN_E_VALUE, -1, "value %d of the program is larger than a tensor", (int)at);
    for (int32_t i = 0; i < v->nrules; i++) {
        const tni_pderived *d = &v->rule[i];
        bool goes_on = i && d[-1].index == d->index;
        bool asked = v->role == TNI_P_NODE || (v->role == TNI_P_INPUT && v->symbol);
        if (!asked || d->symbol < 0 || d->symbol >= p->nsymbols || d->index < 0 ||
            d->index >= v->ndim || goes_on != (d->step != TNI_P_IS) ||
            (v->symbol && (goes_on || v->symbol[d->index] != d->symbol)))
            return tn_fail(TN_E_VALUE, -1, "value %d of the program has a rule of nothing",
                           (int)at);
    }
    return TN_OK;
}

/* made: by value; bound: by free size, whether an input tells it. Both are false at first. */
static tn_status verify(const tn_program *p, bool *made, bool *bound) {
    for (int32_t i = 0; i < p->nvalues; i++) {
        const tni_pvalue *v = &p->value[i];
        made[i] = v->role == TNI_P_WEIGHT;
        if (v->role == TNI_P_WEIGHT && !v->t)
            return tn_fail(TN_E_VALUE, -1, "value %d of the program is a weight without data",
                           (int)i);
        TN_TRY(verify_value(p, i));
    }
    for (int32_t i = 0; i < p->ninputs; i++) {
        int32_t id = p->input[i];
        if (id < 0 || id >= p->nvalues || made[id] || p->value[id].role != TNI_P_INPUT ||
            p->value[id].place != i || !p->value[id].name)
            return tn_fail(TN_E_VALUE, -1, "input %d of the program is no value of its own",
                           (int)i);
        made[id] = true;
    }
    for (int32_t i = 0; i < p->ninputs; i++) {
        const tni_pvalue *v = &p->value[p->input[i]];
        for (int32_t d = 0; v->symbol && d < v->ndim; d++)
            if (v->symbol[d] >= 0 && !tni_p_size_rule(v, d)) bound[v->symbol[d]] = true;
    }
    for (int32_t s = 0; s < p->nsymbols; s++)
        if (!bound[s])
            return tn_fail(TN_E_VALUE, -1, "no input of the program has the size %s",
                           p->symbol[s].name);
    for (int32_t k = 0; k < p->nnodes; k++) TN_TRY(verify_node(p, k, made));
    for (int32_t i = 0; i < p->noutputs; i++)
        if (p->output[i] < 0 || p->output[i] >= p->nvalues || !made[p->output[i]])
            return tn_fail(TN_E_VALUE, -1, "output %d of the program is not computed", (int)i);
    return TN_OK;
}

tn_status tn_program_verify(const tn_program *p) {
    if (!p) return tn_fail(TN_E_TYPE, 0, "program_verify() needs a program");
    if (p->recording) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    bool *made = calloc((size_t)p->nvalues + (size_t)p->nsymbols + 1, sizeof *made);
    if (!made) return tni_p_memory();
    tn_status st = verify(p, made, made + p->nvalues);
    free(made);
    return st;
}

/* ---- Which values may look at the same memory ---------------------------------------------------*/

typedef struct memory {
    int32_t *set;  /* by value: another one of its set, or itself */
    bool *written; /* by set */
    bool *shown;   /* by set: an output, or what the caller holds */
    bool *live;    /* by value, for dead code */
    bool *needed;  /* by node */
    int32_t *renamed;
} memory;

static int32_t set_of(const memory *m, int32_t id) {
    while (m->set[id] != id) id = m->set[id] = m->set[m->set[id]];
    return id;
}

static void join(memory *m, int32_t a, int32_t b) { m->set[set_of(m, a)] = set_of(m, b); }

static void note_written(void *ctx, int32_t id) {
    memory *m = ctx;
    m->written[set_of(m, id)] = true;
}

static void memory_free(memory *m) {
    free(m->set);
    free(m->written);
    free(m->shown);
    free(m->live);
    free(m->needed);
    free(m->renamed);
}

static void join_node(memory *m, const tn_program *p, const tni_pnode *n) {
    for (int32_t i = 0; i < n->nout; i++) {
        if (n->out[i] < 0) continue;
        for (int32_t k = 0; k < n->nin; k++)
            if (n->in[k] >= 0 && tni_p_may_share(p, n, n->out[i], n->in[k]))
                join(m, n->out[i], n->in[k]);
        if (i < n->op->nout && n->given[i] >= 0) join(m, n->out[i], n->given[i]);
        if (i > 0 && n->out[0] >= 0 && !n->fresh) join(m, n->out[i], n->out[0]);
    }
    if (n->op->flags & TNI_OP_INPLACE_ONLY)
        if (n->nout > 0 && n->out[0] >= 0 && n->nin > 0 && n->in[0] >= 0)
            join(m, n->out[0], n->in[0]);
}

/* The caller may pass one tensor twice, and weights may be parts of each other. */
static void join_outer(memory *m, const tn_program *p) {
    for (int32_t i = 1; i < p->ninputs; i++) join(m, p->input[i], p->input[0]);
    for (int32_t i = 0; i < p->nvalues; i++)
        for (int32_t k = 0; k < i && p->value[i].role == TNI_P_WEIGHT; k++)
            if (p->value[k].role == TNI_P_WEIGHT && tni_p_shares(p->value[i].t, p->value[k].t))
                join(m, i, k);
}

static tn_status memory_new(const tn_program *p, memory *m) {
    size_t n = (size_t)p->nvalues + 1;
    *m = (memory){
        .set = malloc(sizeof *m->set * n),
        .written = calloc(n, 1),
        .shown = calloc(n, 1),
        .live = calloc(n, 1),
        .needed = calloc((size_t)p->nnodes + 1, 1),
        .renamed = malloc(sizeof *m->renamed * n),
    };
    if (!m->set || !m->written || !m->shown || !m->live || !m->needed || !m->renamed) {
        memory_free(m);
        return tni_p_memory();
    }
    for (int32_t i = 0; i < p->nvalues; i++) m->set[i] = m->renamed[i] = i;
    for (int32_t k = 0; k < p->nnodes; k++) join_node(m, p, &p->node[k]);
    join_outer(m, p);
    for (int32_t k = 0; k < p->nnodes; k++) tni_p_each_written(&p->node[k], note_written, m);
    for (int32_t i = 0; i < p->noutputs; i++) m->shown[set_of(m, p->output[i])] = true;
    return TN_OK;
}

/* The node's result is the same whenever it is computed, and nobody could tell two of them apart. */
static bool is_pure(memory *m, const tni_pnode *n) {
    if (tni_p_is_random(n->op)) return false;
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && m->written[set_of(m, n->in[i])]) return false;
    for (int32_t i = 0; i < n->nout; i++) {
        int32_t set = n->out[i] >= 0 ? set_of(m, n->out[i]) : TNI_P_NONE;
        if (set >= 0 && (m->written[set] || m->shown[set])) return false;
    }
    return true;
}

/* ---- Dead code ---------------------------------------------------------------------------------*/

typedef struct asks {
    memory *m;
    bool needed;
} asks;

static void ask_written(void *ctx, int32_t id) {
    asks *a = ctx;
    a->needed |= a->m->live[set_of(a->m, id)];
}

static bool has_rules(const tn_program *p, const tni_pnode *n) {
    for (int32_t i = 0; i < n->nout; i++) {
        const tni_pvalue *v = n->out[i] >= 0 ? &p->value[n->out[i]] : NULL;
        if (v && is_held(v)) return true;
        for (int32_t k = 0; v && k < v->nrules; k++)
            if (tni_p_rule_matters(p, v, k)) return true;
    }
    return false;
}

/* m->live is by set here: somebody needs what lies in that memory. */
static bool needs(memory *m, const tn_program *p, const tni_pnode *n) {
    asks a = {m, tni_p_is_random(n->op) || has_rules(p, n)};
    for (int32_t i = 0; i < n->nout; i++)
        a.needed |= n->out[i] >= 0 && m->live[set_of(m, n->out[i])];
    tni_p_each_written(n, ask_written, &a);
    return a.needed;
}

static void mark(memory *m, const tni_pnode *n) {
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) m->live[set_of(m, n->in[i])] = true;
    for (int i = 0; i < n->op->nout; i++)
        if (n->given[i] >= 0) m->live[set_of(m, n->given[i])] = true;
}

/* Moves nodes and values together; `needed` by node, `renamed` tells where values have gone. */
static void compact(tn_program *p, memory *m) {
    int32_t nodes = 0, values = 0;
    for (int32_t k = 0; k < p->nnodes; k++) {
        if (m->needed[k])
            p->node[nodes++] = p->node[k];
        else
            tni_p_node_clear(&p->node[k]);
    }
    for (int32_t k = nodes; k < p->nnodes; k++) p->node[k] = (tni_pnode){0};
    p->nnodes = nodes;
    memset(m->live, 0, (size_t)p->nvalues + 1); /* by value now */
    for (int32_t k = 0; k < nodes; k++) {
        const tni_pnode *n = &p->node[k];
        for (int32_t i = 0; i < n->nin; i++)
            if (n->in[i] >= 0) m->live[n->in[i]] = true;
        for (int32_t i = 0; i < n->nout; i++)
            if (n->out[i] >= 0) m->live[n->out[i]] = true;
        for (int i = 0; i < n->op->nout; i++)
            if (n->given[i] >= 0) m->live[n->given[i]] = true;
    }
    for (int32_t i = 0; i < p->noutputs; i++) m->live[p->output[i]] = true;
    for (int32_t i = 0; i < p->nvalues; i++) {
        tni_pvalue *v = &p->value[i];
        bool declared = v->role == TNI_P_INPUT || (v->role == TNI_P_WEIGHT && v->name);
        m->renamed[i] = TNI_P_NONE;
        if (m->live[i] || declared) {
            m->renamed[i] = values;
            p->value[values++] = *v;
            continue;
        }
        tni_p_value_clear(v);
    }
    p->nvalues = values;
    for (int32_t k = 0; k < nodes; k++) {
        tni_pnode *n = &p->node[k];
        for (int32_t i = 0; i < n->nin; i++)
            if (n->in[i] >= 0) n->in[i] = m->renamed[n->in[i]];
        for (int i = 0; i < n->op->nout; i++)
            if (n->given[i] >= 0) n->given[i] = m->renamed[n->given[i]];
        for (int32_t i = 0; i < n->nout; i++) {
            if (n->out[i] < 0) continue;
            n->out[i] = m->renamed[n->out[i]];
            p->value[n->out[i]].place = k;
        }
    }
    for (int32_t i = 0; i < p->ninputs; i++) p->input[i] = m->renamed[p->input[i]];
    for (int32_t i = 0; i < p->noutputs; i++) p->output[i] = m->renamed[p->output[i]];
}

static void drop_dead(tn_program *p, memory *m) {
    bool changed = true;
    for (int32_t i = 0; i < p->nvalues; i++) {
        const tni_pvalue *v = &p->value[i];
        if (v->role != TNI_P_NODE) m->live[set_of(m, i)] = true;
    }
    for (int32_t i = 0; i < p->noutputs; i++) m->live[set_of(m, p->output[i])] = true;
    while (changed) {
        changed = false;
        for (int32_t k = p->nnodes - 1; k >= 0; k--) {
            if (m->needed[k] || !needs(m, p, &p->node[k])) continue;
            m->needed[k] = changed = true;
            mark(m, &p->node[k]);
        }
    }
    compact(p, m);
}

/* ---- Equal things once -------------------------------------------------------------------------*/

static size_t bytes_of(const tn_field *f) {
    switch (f->kind) {
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT:
    case TN_F_FLOAT_OPT: return 16;
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: return sizeof(tn_scalar);
    default: return 8;
    }
}

static bool same_field(const tn_field *f, const void *a, const void *b) {
    switch (f->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND:
    case TN_F_OUT:
    case TN_F_OUTS: return true;
    case TN_F_TENSORS: return ((const tn_views *)a)->n == ((const tn_views *)b)->n;
    case TN_F_INTS:
    case TN_F_DIMS: {
        const tn_ints *x = a, *y = b;
        return x->n == y->n && (x->n <= 0 || memcmp(x->v, y->v, sizeof *x->v * (size_t)x->n) == 0);
    }
    case TN_F_STR: {
        const char *x = *(const char *const *)a, *y = *(const char *const *)b;
        return x == y || (x && y && strcmp(x, y) == 0);
    }
    default: return memcmp(a, b, bytes_of(f)) == 0;
    }
}

static bool same_list(const int32_t *a, const int32_t *b, int32_t n) {
    return n == 0 || memcmp(a, b, sizeof *a * (size_t)n) == 0;
}

static bool same_node(const tni_pnode *a, const tni_pnode *b) {
    if (a->op != b->op || a->nin != b->nin || a->nout != b->nout || a->no_grad != b->no_grad ||
        a->cast != b->cast || a->nderived != b->nderived || !same_list(a->in, b->in, a->nin) ||
        !same_list(a->given, b->given, a->op->nout))
        return false;
    for (int32_t i = 0; i < a->nin; i++)
        if (a->in[i] == TNI_P_NUMBER && memcmp(&a->number[i], &b->number[i], sizeof(tn_scalar)))
            return false;
    if (a->nderived && memcmp(a->derived, b->derived, sizeof *a->derived * (size_t)a->nderived))
        return false;
    for (int i = 0; i < a->op->nfields; i++)
        if (!same_field(&a->op->fields[i], tni_p_at(a, &a->op->fields[i]),
                        tni_p_at(b, &b->op->fields[i])))
            return false;
    return true;
}

static void rename_inputs(tni_pnode *n, const int32_t *renamed) {
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) n->in[i] = renamed[n->in[i]];
}

/* What stays takes over the rules of its equal, and what is asked of its sizes. */
static void rename_value(tn_program *p, memory *m, int32_t from, int32_t to) {
    tni_pvalue *v = &p->value[from], *w = &p->value[to];
    m->renamed[from] = to;
    if (v->kind == TNI_P_HELD && w->kind != TNI_P_HELD) {
        w->kind = TNI_P_HELD;
        memcpy(w->shape, v->shape, sizeof *w->shape * (size_t)w->ndim);
    }
    if (w->nrules) return;
    w->rule = v->rule;
    w->nrules = v->nrules;
    v->rule = NULL;
    v->nrules = 0;
}

/* What is found twice is left for dead code to remove. */
static void merge_equal(tn_program *p, memory *m) {
    for (int32_t k = 0; k < p->nnodes; k++) {
        tni_pnode *n = &p->node[k];
        rename_inputs(n, m->renamed);
        if (!is_pure(m, n)) continue;
        for (int32_t j = 0; j < k; j++) {
            if (p->node[j].op != n->op || !is_pure(m, &p->node[j]) || !same_node(&p->node[j], n))
                continue;
            for (int32_t i = 0; i < n->nout; i++)
                if (n->out[i] >= 0) rename_value(p, m, n->out[i], p->node[j].out[i]);
            break;
        }
    }
}

/* ---- Constants in advance ----------------------------------------------------------------------*/

static bool is_foldable(const tn_program *p, memory *m, const tni_pnode *n) {
    int64_t in = FOLD_BYTES, out = 0;
    if (n->nderived || n->cast || !is_pure(m, n) || n->nout == 0) return false;
    for (int32_t i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        const tni_pvalue *v = &p->value[n->in[i]];
        if (v->role != TNI_P_WEIGHT || v->kind != TN_PROGRAM_CONSTANT || (v->t->v.word & TN_W_GRAD))
            return false;
        in += numel_of(v) * tn_dtype_size(v->dtype);
    }
    for (int32_t i = 0; i < n->nout; i++) {
        if (n->out[i] < 0) return false;
        out += numel_of(&p->value[n->out[i]]) * tn_dtype_size(p->value[n->out[i]].dtype);
    }
    return out <= in;
}

static tn_status fold(tn_program *p, memory *m) {
    tn_tensor **tensors = calloc((size_t)p->nvalues + 1, sizeof *tensors);
    tn_status st = tensors ? TN_OK : tni_p_memory();
    for (int32_t k = 0; k < p->nnodes; k++) m->needed[k] = true;
    for (int32_t k = 0; k < p->nnodes && st == TN_OK; k++) {
        const tni_pnode *n = &p->node[k];
        if (!is_foldable(p, m, n)) continue;
        for (int32_t i = 0; i < n->nin; i++)
            if (n->in[i] >= 0) tensors[n->in[i]] = p->value[n->in[i]].t;
        tni_grad_off();
        st = tni_p_run_node(p, n, NULL, tensors);
        tni_grad_on();
        if (st != TN_OK) break;
        for (int32_t i = 0; i < n->nout; i++) {
            tni_pvalue *v = &p->value[n->out[i]];
            v->role = TNI_P_WEIGHT;
            v->kind = TN_PROGRAM_CONSTANT;
            v->place = TNI_P_NONE;
            v->t = tensors[n->out[i]];
            memcpy(v->shape, v->t->v.shape, sizeof *v->shape * (size_t)v->ndim);
        }
        m->needed[k] = false;
    }
    free(tensors);
    compact(p, m);
    return st;
}

static tn_status freeze_weights(tn_program *p, memory *m) {
    for (int32_t i = 0; i < p->nvalues; i++) {
        tni_pvalue *v = &p->value[i];
        tn_tensor *own;
        if (v->role != TNI_P_WEIGHT || v->kind == TN_PROGRAM_CONSTANT) continue;
        if (m->written[set_of(m, i)]) continue;
        TN_TRY(tni_detach(v->t, &own));
        tn_tensor_unref(&v->t);
        v->t = own;
        v->kind = TN_PROGRAM_CONSTANT;
    }
    return TN_OK;
}

/* One pass over a fresh analysis. */
static tn_status pass(tn_program *p, uint32_t which) {
    memory m;
    tn_status st = TN_OK;
    TN_TRY(memory_new(p, &m));
    switch (which) {
    case TN_PROGRAM_FREEZE: st = freeze_weights(p, &m); break;
    case TN_PROGRAM_FOLD: st = fold(p, &m); break;
    case TN_PROGRAM_COMMON: merge_equal(p, &m); break;
    default: drop_dead(p, &m);
    }
    memory_free(&m);
    tn_status settled = tni_p_settle(p);
    return st != TN_OK ? st : settled;
}

tn_status tn_program_optimize(tn_program *p, uint32_t passes) {
    static const uint32_t order[] = {TN_PROGRAM_FREEZE, TN_PROGRAM_FOLD, TN_PROGRAM_COMMON,
                                     TN_PROGRAM_DEAD};
    if (!p) return tn_fail(TN_E_TYPE, 0, "program_optimize() needs a program");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    for (int i = 0; i < TN_COUNT(order); i++)
        if (passes & order[i]) TN_TRY(pass(p, order[i]));
    return TN_OK;
}
