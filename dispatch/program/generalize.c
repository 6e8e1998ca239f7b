/* generalize.c: makes a size of a program free, by comparison with a recording at another size. */
#include "program_priv.h"

#include <stdlib.h>

/* A step that a number of a node, or a value's size, gets. */
typedef struct found {
    int32_t node, value; /* either is -1 */
    tni_pderived d; /* den 0: of the size: its rule goes, as there is none for this free size */
} found;

typedef struct comparison {
    tn_program *p;
    const tn_program *other;
    int64_t a, b; /* the size in either */
    int32_t symbol;
    found *item; /* numbers that differ */
    int32_t n, room;
    const int64_t *sizes; /* of the other, by symbol: numbers must be what follows from them */
} comparison;

static tn_status refuse(const comparison *c, int32_t k, const char *what) {
    return tn_fail(TN_E_UNSUPPORTED, -1,
                   "size %lld cannot be made free: node %d (%s) %s when it is %lld",
                   (long long)c->a, (int)k, c->p->node[k].op->info.name, what, (long long)c->b);
}

static int64_t divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* The steps of a node's numbers, or of a value's sizes. */
typedef struct steps {
    tni_pderived **list;
    int32_t *n;
} steps;

static steps steps_of(const tn_program *p, const found *f) {
    if (f->node >= 0) return (steps){&p->node[f->node].derived, &p->node[f->node].nderived};
    return (steps){&p->value[f->value].rule, &p->value[f->value].nrules};
}

/* The last step of a number that follows from sizes that are free already; NULL: it has been fixed. */
static tni_pderived *last_step(steps s, int32_t field, int32_t index) {
    for (int32_t i = *s.n - 1; i >= 0; i--)
        if ((*s.list)[i].field == field && (*s.list)[i].index == index) return &(*s.list)[i];
    return NULL;
}

/* How a number goes on that follows from other sizes too: as a multiple of this one (b*t), of a sum
 * (b*(t+1)), or as a sum (b+t). Which of them it is shows where several sizes differ at once. */
static bool go_on(const comparison *c, const tni_pderived *last, int64_t x, int64_t y,
                  tni_pderived *d) {
    int64_t rise, p, q, rest, run = c->b - c->a;
    if (__builtin_sub_overflow(y, x, &rise) || __builtin_mul_overflow(c->a, rise, &p) ||
        __builtin_mul_overflow(x, run, &q) || __builtin_sub_overflow(q, p, &rest))
        return false;
    if (p != q && (last->step == TNI_P_PLUS || (last->step == TNI_P_IS && last->add))) {
        d->step = TNI_P_PLUS;
        if (p % run) return false;
        int64_t by = divisor(rise, run) * (run < 0 ? -1 : 1);
        d->num = rise / by;
        d->den = run / by;
        d->add = -(p / run);
        return true;
    }
    if (x == 0) return false;
    int64_t sign = q < 0 ? -1 : 1, by = divisor(divisor(rise, rest), q) * sign;
    d->step = TNI_P_TIMES;
    d->num = rise / by;
    d->add = rest / by;
    d->den = q / by;
    return true;
}

static tn_status holds(const comparison *c, int32_t k, int32_t field, int32_t index, int64_t x,
                       int64_t y) {
    const tni_pnode *n = &c->p->node[k];
    for (int32_t i = 0; i < n->nderived; i++) {
        const tni_pderived *d = &n->derived[i];
        if (d->field == field && d->index == index && !tni_p_derive(d, c->sizes[d->symbol], &x))
            return refuse(c, k, "has no whole number");
    }
    return x == y ? TN_OK : refuse(c, k, "has a number that follows from several sizes by no rule");
}

/* The next step of a number that is x and y in the recordings; NULL, or why there is none. */
static const char *find_step(const comparison *c, const tni_pderived *last, int64_t x, int64_t y,
                             tni_pderived *d) {
    int64_t rise, run = c->b - c->a, part;
    if (last)
        return go_on(c, last, x, y, d) ? NULL
                                       : "has a number that follows from several sizes by no rule";
    if (__builtin_sub_overflow(y, x, &rise)) return "has a number out of range";
    int64_t by = divisor(rise, run);
    d->num = run < 0 ? -rise / by : rise / by;
    d->den = run < 0 ? -run / by : run / by;
    if (__builtin_mul_overflow(c->a, d->num, &part) || part % d->den != 0)
        return "has a number that does not follow from it";
    d->add = x - part / d->den;
    return NULL;
}

/* x and y, the number in either recording. */
static tn_status compare(comparison *c, int32_t k, int32_t field, int32_t index, int64_t x,
                         int64_t y) {
    if (c->sizes) return holds(c, k, field, index, x, y);
    if (x == y) return TN_OK;
    found f = {k, -1, {.field = field, .index = index, .symbol = c->symbol}};
    const tni_pderived *last = last_step(steps_of(c->p, &f), field, index);
    const char *why = find_step(c, last, x, y, &f.d);
    if (why) return refuse(c, k, why);
    TN_TRY(tni_p_grow(&c->item, c->n, &c->room, sizeof *c->item));
    c->item[c->n++] = f;
    return TN_OK;
}

/* The size at the sizes that were recorded first; -1: nobody knows. */
static int64_t size_seen(const tn_program *p, const tni_pvalue *v, int32_t d) {
    int64_t size = v->shape[d];
    for (int32_t i = 0; i < v->nrules && v->shape[d] < 0; i++)
        if (v->rule[i].index == d &&
            !tni_p_derive(&v->rule[i], p->symbol[v->rule[i].symbol].seen, &size))
            return -1;
    return size;
}

/* What sizes of results follow from that somebody has read. */
static tn_status compare_sizes(comparison *c, int32_t id) {
    const tni_pvalue *v = &c->p->value[id], *w = &c->other->value[id];
    for (int32_t d = 0; d < v->ndim && v->role == TNI_P_NODE && v->sized; d++) {
        int64_t x = size_seen(c->p, v, d), y = size_seen(c->other, w, d);
        found f = {-1, id, {.index = d, .symbol = c->symbol}};
        const tni_pderived *last = last_step(steps_of(c->p, &f), 0, d);
        if (x == y || x < 0 || (v->shape[d] < 0 && !last)) continue;
        if (find_step(c, last, x, y, &f.d)) f.d.den = 0;
        TN_TRY(tni_p_grow(&c->item, c->n, &c->room, sizeof *c->item));
        c->item[c->n++] = f;
    }
    return TN_OK;
}

/* Whether sizes are in the other what they are said to follow from. */
static tn_status sizes_hold(const comparison *c, int32_t id) {
    const tni_pvalue *v = &c->p->value[id];
    return tni_p_broken_rule(c->p, v, c->sizes, c->other->value[id].shape)
               ? refuse(c, v->place, "gives a size that follows from it by no rule")
               : TN_OK;
}

static tn_status compare_scalar(comparison *c, int32_t k, int32_t field, int32_t index,
                                const tn_scalar *x, const tn_scalar *y) {
    if (x->kind == TN_CAT_INT && y->kind == TN_CAT_INT && !tn_scalar_is_beyond(x) &&
        !tn_scalar_is_beyond(y))
        return compare(c, k, field, index, x->i, y->i);
    if (memcmp(x, y, sizeof *x) == 0) return TN_OK;
    return refuse(c, k, "has another number that is no whole one");
}

static tn_status compare_field(comparison *c, int32_t k, int32_t i) {
    const tni_pnode *n = &c->p->node[k], *o = &c->other->node[k];
    const tn_field *f = &n->op->fields[i];
    const void *x = tni_p_at(n, f), *y = tni_p_at(o, f);
    switch (f->kind) {
    case TN_F_INT:
    case TN_F_DIM: return compare(c, k, i, 0, *(const int64_t *)x, *(const int64_t *)y);
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: {
        const tn_opt_int *u = x, *v = y;
        if (u->has != v->has) return refuse(c, k, "has another argument");
        return u->has ? compare(c, k, i, 0, u->value, v->value) : TN_OK;
    }
    case TN_F_INTS:
    case TN_F_DIMS: {
        const tn_ints *u = x, *v = y;
        if (u->n != v->n) return refuse(c, k, "has a list of another length");
        for (int64_t j = 0; j < u->n; j++) TN_TRY(compare(c, k, i, (int32_t)j, u->v[j], v->v[j]));
        return TN_OK;
    }
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: return compare_scalar(c, k, i, 0, x, y);
    case TN_F_FLOAT:
        return memcmp(x, y, sizeof(double)) == 0
                   ? TN_OK
                   : refuse(c, k, "has another number that is no whole one");
    case TN_F_FLOAT_OPT:
        return memcmp(x, y, sizeof(tn_opt_float)) == 0
                   ? TN_OK
                   : refuse(c, k, "has another number that is no whole one");
    case TN_F_STR: {
        const char *u = *(const char *const *)x, *v = *(const char *const *)y;
        return u == v || (u && v && strcmp(u, v) == 0) ? TN_OK : refuse(c, k, "has another text");
    }
    case TN_F_BOOL:
    case TN_F_DTYPE:
    case TN_F_DEVICE:
    case TN_F_FORMAT:
    case TN_F_GENERATOR: return memcmp(x, y, 8) == 0 ? TN_OK : refuse(c, k, "has another argument");
    default: return TN_OK;
    }
}

/* The field that the at-th tensor stands in. */
static int32_t field_of(const tni_pnode *n, int32_t at) {
    for (int i = 0; i < n->op->nin; i++) {
        const tn_field *f = &n->op->fields[n->op->in_field[i]];
        at -= f->kind == TN_F_TENSORS ? (int32_t)((const tn_views *)tni_p_at(n, f))->n : 1;
        if (at < 0) return n->op->in_field[i];
    }
    return 0;
}

static tn_status compare_node(comparison *c, int32_t k) {
    const tni_pnode *n = &c->p->node[k], *o = &c->other->node[k];
    if (n->op != o->op || n->nin != o->nin || n->nout != o->nout)
        return tn_fail(TN_E_UNSUPPORTED, -1,
                       "size %lld cannot be made free: node %d is %s, and %s when it is %lld: the "
                       "program's course depends on it",
                       (long long)c->a, (int)k, n->op->info.name, o->op->info.name,
                       (long long)c->b);
    bool same = n->no_grad == o->no_grad && n->cast == o->cast;
    for (int i = 0; i < n->op->nout; i++) same &= n->given[i] == o->given[i];
    for (int32_t i = 0; i < n->nout; i++) same &= n->out[i] == o->out[i];
    for (int32_t i = 0; i < n->nin; i++) same &= n->in[i] == o->in[i];
    if (!same) return refuse(c, k, "takes other values");
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] == TNI_P_NUMBER)
            TN_TRY(compare_scalar(c, k, field_of(n, i), i, &n->number[i], &o->number[i]));
    for (int32_t i = 0; i < n->op->nfields; i++) TN_TRY(compare_field(c, k, i));
    return TN_OK;
}

static tn_status same_data(const tn_tensor *a, const tn_tensor *b, bool *ret_same) {
    *ret_same = a == b;
    if (a == b || a->v.ndim != b->v.ndim || tn_view_dtype(&a->v) != tn_view_dtype(&b->v))
        return TN_OK;
    for (int32_t d = 0; d < a->v.ndim; d++)
        if (a->v.shape[d] != b->v.shape[d]) return TN_OK;
    if (tni_p_shares(a, b) && a->v.data == b->v.data) {
        *ret_same = true;
        return TN_OK;
    }
    uint64_t bytes = (uint64_t)(a->v.numel * tn_view_itemsize(&a->v));
    void *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    tn_status st = x && y ? TN_OK : tni_p_memory();
    if (st == TN_OK) st = tn_tensor_read(a, x, bytes);
    if (st == TN_OK) st = tn_tensor_read(b, y, bytes);
    if (st == TN_OK) *ret_same = memcmp(x, y, bytes) == 0;
    free(x);
    free(y);
    return st;
}

static tn_status compare_values(comparison *c) {
    const tn_program *p = c->p, *o = c->other;
    if (p->nvalues != o->nvalues || p->nnodes != o->nnodes || p->ninputs != o->ninputs ||
        p->noutputs != o->noutputs)
        return tn_fail(TN_E_UNSUPPORTED, -1,
                       "size %lld cannot be made free: the program has %d nodes, and %d when it is "
                       "%lld: its course depends on it",
                       (long long)c->a, (int)p->nnodes, (int)o->nnodes, (long long)c->b);
    for (int32_t i = 0; i < p->nvalues; i++) {
        const tni_pvalue *v = &p->value[i], *w = &o->value[i];
        bool same = v->role == w->role && v->dtype == w->dtype && v->ndim == w->ndim;
        if (same && v->role == TNI_P_WEIGHT) TN_TRY(same_data(v->t, w->t, &same));
        if (!same)
            return tn_fail(TN_E_UNSUPPORTED, -1,
                           "size %lld cannot be made free: value %d is another one when it is "
                           "%lld: a tensor is made of numbers, past the operators",
                           (long long)c->a, (int)i, (long long)c->b);
    }
    for (int32_t i = 0; i < p->noutputs; i++)
        if (p->output[i] != o->output[i])
            return tn_fail(TN_E_UNSUPPORTED, -1, "size %lld cannot be made free: other outputs",
                           (long long)c->a);
    return TN_OK;
}

/* Of the sizes that differ in inputs that are named, the one that grows least: others follow from it. */
static void find_base(comparison *c, uint64_t inputs) {
    for (int32_t i = 0; i < c->p->ninputs && i < 64; i++) {
        const tni_pvalue *v = &c->p->value[c->p->input[i]];
        const tni_pvalue *w = &c->other->value[c->other->input[i]];
        for (int32_t d = 0; d < v->ndim && v->ndim == w->ndim && (inputs >> i & 1u); d++) {
            int64_t a = tni_p_size_seen(c->p, v, d), b = tni_p_size_seen(c->other, w, d);
            int64_t run = a < b ? b - a : a - b, least = c->a < c->b ? c->b - c->a : c->a - c->b;
            if (a == b || a < 0 || b < 0 || (c->a >= 0 && run >= least)) continue;
            c->a = a;
            c->b = b;
        }
    }
}

/* Dimension d of input i has another size than the one that becomes free: it follows from that. */
static tn_status add_rule(comparison *c, int32_t i, int32_t d, int64_t a, int64_t b) {
    found f = {-1, c->p->input[i], {.index = d, .symbol = c->symbol}};
    if (find_step(c, NULL, a, b, &f.d))
        return tn_fail(TN_E_VALUE, 2, "the inputs have different sizes in dimension %d", (int)d);
    TN_TRY(tni_p_grow(&c->item, c->n, &c->room, sizeof *c->item));
    c->item[c->n++] = f;
    return TN_OK;
}

/* The size must be the only difference between the inputs. dim -1: wherever those named differ, by
 * whatever follows from the size. */
static tn_status compare_inputs(comparison *c, uint64_t inputs, int32_t dim) {
    if (dim < 0) find_base(c, inputs);
    for (int32_t i = 0; i < c->p->ninputs; i++) {
        const tni_pvalue *v = &c->p->value[c->p->input[i]];
        const tni_pvalue *w = &c->other->value[c->other->input[i]];
        bool named = i < 64 && (inputs >> i & 1u);
        if (named && (dim < -1 || dim >= v->ndim))
            return tn_fail(TN_E_INDEX, 3, "input '%s' has no dimension %d", v->name, (int)dim);
        for (int32_t d = 0; d < v->ndim && v->ndim == w->ndim; d++) {
            int64_t a = tni_p_size_seen(c->p, v, d), b = tni_p_size_seen(c->other, w, d);
            bool freed = named && (dim < 0 ? a != b : d == dim);
            if (freed && c->a < 0) {
                c->a = a;
                c->b = b;
            }
            if (freed && (a != c->a || b != c->b) && dim >= 0)
                return tn_fail(TN_E_VALUE, 2, "the inputs have different sizes in dimension %d",
                               (int)d);
            if (freed && v->symbol && v->symbol[d] >= 0)
                return tn_fail(TN_E_STATE, 2, "dimension %d of '%s' is free already", (int)d,
                               v->name);
            if (freed && (a != c->a || b != c->b)) TN_TRY(add_rule(c, i, d, a, b));
            if (!freed && a != b)
                return tn_fail(TN_E_VALUE, 1, "input '%s' differs in dimension %d, too", v->name,
                               (int)d);
        }
    }
    if (c->a < 0 || c->a == c->b)
        return tn_fail(TN_E_VALUE, 1, "the other recording has the same sizes");
    return TN_OK;
}

/* All memory that apply() needs, so that it cannot stop halfway; takes over `name`. */
static tn_status reserve(comparison *c, uint64_t inputs, char *name, int64_t low, int64_t high) {
    tn_program *p = c->p;
    tni_psymbol *symbols = realloc(p->symbol, sizeof *symbols * ((size_t)p->nsymbols + 1));
    if (symbols) {
        p->symbol = symbols;
        symbols[p->nsymbols] = (tni_psymbol){.name = name, .low = low, .high = high, .seen = c->a};
    }
    tn_status st = symbols && name ? TN_OK : tni_p_memory();
    for (int32_t i = 0; i < p->ninputs && i < 64 && st == TN_OK; i++) {
        tni_pvalue *v = &p->value[p->input[i]];
        if (!(inputs >> i & 1u) || v->symbol) continue;
        v->symbol = malloc(sizeof *v->symbol * (size_t)(v->ndim + 1));
        for (int32_t d = 0; v->symbol && d < v->ndim; d++) v->symbol[d] = -1;
        st = v->symbol ? TN_OK : tni_p_memory();
    }
    for (int32_t i = 0, end; i < c->n && st == TN_OK; i = end) { /* items go by node and value */
        const found *f = &c->item[i];
        steps to = steps_of(p, f);
        for (end = i + 1;
             end < c->n && c->item[end].node == f->node && c->item[end].value == f->value;)
            end++;
        size_t room = (size_t)*to.n + (size_t)(end - i);
        tni_pderived *more = realloc(*to.list, sizeof *more * room);
        if (more) *to.list = more;
        st = more ? TN_OK : tni_p_memory();
    }
    if (st != TN_OK) free(name);
    return st;
}

/* Dimensions that have just become free. */
static void note_inputs(tn_program *p, uint64_t inputs, int32_t symbol) {
    for (int32_t i = 0; i < p->ninputs && i < 64; i++) {
        tni_pvalue *v = &p->value[p->input[i]];
        for (int32_t d = 0; d < v->ndim && (inputs >> i & 1u); d++)
            if (v->shape[d] < 0 && v->symbol[d] < 0) v->symbol[d] = symbol;
    }
}

/* b*5*t/5 is b*t, and b+7+n-7 is b+n. */
static void simplify(tni_pderived *last, tni_pderived *d) {
    if (d->step == TNI_P_TIMES && last->step != TNI_P_PLUS && last->den == 1) {
        int64_t by = divisor(divisor(last->num, last->add), d->den);
        last->num /= by;
        last->add /= by;
        d->den /= by;
    }
    int64_t sum;
    if (d->step == TNI_P_PLUS && last->step != TNI_P_TIMES &&
        !__builtin_add_overflow(last->add, d->add, &sum)) {
        last->add = 0;
        d->add = sum;
    }
}

static void add_step(steps to, tni_pderived *d) {
    tni_pderived *last = last_step(to, d->field, d->index);
    int32_t at = last ? (int32_t)(last - *to.list) + 1 : *to.n;
    if (last) simplify(last, d);
    memmove(*to.list + at + 1, *to.list + at, sizeof *d * (size_t)(*to.n - at));
    (*to.list)[at] = *d;
    ++*to.n;
}

static void drop_steps(steps of, int32_t index) {
    int32_t kept = 0;
    for (int32_t i = 0; i < *of.n; i++)
        if ((*of.list)[i].index != index) (*of.list)[kept++] = (*of.list)[i];
    *of.n = kept;
}

static void apply(comparison *c, uint64_t inputs) {
    tn_program *p = c->p;
    for (int32_t i = 0; i < c->n; i++) {
        found *f = &c->item[i];
        if (f->d.den)
            add_step(steps_of(p, f), &f->d);
        else
            drop_steps(steps_of(p, f), f->d.index);
    }
    for (int32_t i = 0; i < p->nvalues; i++) {
        tni_pvalue *v = &p->value[i];
        for (int32_t d = 0; d < v->ndim && v->role != TNI_P_WEIGHT; d++)
            if (v->shape[d] >= 0 && v->shape[d] != c->other->value[i].shape[d]) v->shape[d] = -1;
    }
    p->nsymbols++;
    note_inputs(p, inputs, c->symbol);
    tni_p_note_uses(p);
}

tn_status tn_program_generalize(tn_program *p, const tn_program *other, uint64_t inputs,
                                int32_t dim, int64_t low, int64_t high, const char *name) {
    if (!p || !other || !name || !p->recorded || !other->recorded)
        return tn_fail(TN_E_TYPE, -1, "program_generalize() needs two recordings and a name");
    if (low < 0 || high < low)
        return tn_fail(TN_E_VALUE, 4, "no size is from %lld to %lld", (long long)low,
                       (long long)high);
    comparison c = {.p = p, .other = other, .a = -1, .b = -1, .symbol = p->nsymbols};
    tn_status st = p->ninputs == other->ninputs
                       ? compare_inputs(&c, inputs, dim)
                       : tn_fail(TN_E_VALUE, 1, "the other recording has other inputs");
    if (st == TN_OK) st = compare_values(&c);
    for (int32_t k = 0; k < p->nnodes && st == TN_OK; k++) st = compare_node(&c, k);
    for (int32_t i = 0; i < p->nvalues && st == TN_OK; i++) st = compare_sizes(&c, i);
    if (st == TN_OK) st = reserve(&c, inputs, tni_p_text_copy(name), low, high);
    tni_p_forget_compiled(p);
    if (st == TN_OK) apply(&c, inputs);
    free(c.item);
    return st;
}

tn_status tn_program_agrees(const tn_program *p, const tn_program *other) {
    if (!p || !other || !p->recorded || !other->recorded)
        return tn_fail(TN_E_TYPE, -1, "program_agrees() needs two recordings");
    if (p->ninputs != other->ninputs)
        return tn_fail(TN_E_VALUE, 1, "the other recording has other inputs");
    int64_t *sizes = calloc((size_t)p->nsymbols + 1, sizeof *sizes);
    if (!sizes) return tni_p_memory();
    comparison c = {.p = (tn_program *)(uintptr_t)p, .other = other, .sizes = sizes};
    for (int32_t i = 0; i < p->ninputs; i++) {
        const tni_pvalue *v = &p->value[p->input[i]], *w = &other->value[other->input[i]];
        for (int32_t d = 0; d < v->ndim && v->ndim == w->ndim && v->symbol; d++) {
            if (v->symbol[d] < 0 || tni_p_size_rule(v, d)) continue;
            sizes[v->symbol[d]] = c.b = tni_p_size_seen(other, w, d);
            c.a = tni_p_size_seen(p, v, d);
        }
    }
    tn_status st = compare_values(&c);
    for (int32_t k = 0; k < p->nnodes && st == TN_OK; k++) st = compare_node(&c, k);
    for (int32_t i = 0; i < p->nvalues && st == TN_OK; i++) st = sizes_hold(&c, i);
    free(sizes);
    return st;
}
