/* fuse.c: runs of pointwise nodes as one kernel of a device that makes such ("tn.codegen/2").
 *
 * Groups follow from the program alone. Whether one runs as such is seen in each call: recording, layers,
 * graphs that are captured and memory that is not packed leave its nodes to the dispatcher, and so does a
 * kernel that fails, so that failures are those of the nodes. */
#include "program_priv.h"

#include <stdlib.h>

#include <tenon/args_create.h>
#include <tenon/args_pointwise.h>

#include "check_priv.h"
#include "infer_priv.h"
#include "memory_priv.h"
#include "op_create.h"
#include "op_pointwise.h"
#include "os_priv.h"
#include "plan_priv.h"

enum { MAX_NODES = 64, MAX_VALUES = TNI_P_GROUP_VALUES + MAX_NODES };

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static tni_pfused none = {.fixed = true};

/* ---- Which nodes fit ---------------------------------------------------------------------------*/

typedef struct fit {
    int32_t compute, result;
    int32_t want[TN_EXPR_OPERANDS]; /* dtype of each operand in the kernel */
    const tn_cell *cell;
} fit;

static int32_t number_dtype(const tn_scalar *s) {
    static const int32_t dtypes[] = {TN_BOOL, TN_I64, TN_F64, TN_C128};
    return s->kind >= TN_CAT_BOOL && s->kind <= TN_CAT_COMPLEX ? dtypes[s->kind] : -1;
}

/* One new result of tensors on the CPU, which are read. */
static bool is_simple(const tn_program *p, const tni_pnode *n) {
    const tn_op *op = n->op;
    if (op->nout != 1 || n->nout != 1 || n->out[0] < 0 || n->given[0] != TNI_P_NONE ||
        n->nderived || n->cast || p->value[n->out[0]].nrules ||
        p->value[n->out[0]].device.slot != 0)
        return false;
    bool tensors = false;
    for (int32_t i = 0; i < n->nin; i++) {
        if (n->wrote && n->wrote[i]) return false;
        if (n->in[i] >= 0 && p->value[n->in[i]].device.slot != 0) return false;
        tensors |= n->in[i] >= 0;
    }
    return tensors;
}

static bool is_pointwise(const tni_pnode *n) {
    const tn_op *op = n->op;
    if (op->info.kind != TN_OP_POINTWISE || n->nin != op->nin || n->nin > TN_EXPR_OPERANDS ||
        (op->flags & (TNI_OP_INPLACE_ONLY | TNI_OP_WRITES)) || tni_p_is_random(op))
        return false;
    for (int32_t i = 0; i < n->nin; i++) {
        if (tni_is_list(tni_in_field(op, i))) return false;
        if (n->in[i] < 0 && !(n->in[i] == TNI_P_NUMBER && n->number)) return false;
    }
    return true;
}

static const tn_cell *own_cell(const tn_op *op, const tni_device *dev, int32_t dtype) {
    const tn_cell *cell = tni_cell(op, 0, dtype);
    return cell && cell->plugin == dev->plugin ? cell : NULL;
}

/* The dtypes of a node by its operator's rules, as in call/pointwise.c. */
static bool find_fit(const tn_program *p, const tni_pnode *n, const tni_device *dev, fit *ret) {
    const tn_op *op = n->op;
    tn_view like[TN_EXPR_OPERANDS];
    const tn_view *of[TN_EXPR_OPERANDS];
    int count = 0;
    bool mask[TN_EXPR_OPERANDS];
    if (!is_simple(p, n) || !is_pointwise(n)) return false;
    memset(like, 0, sizeof like);
    for (int32_t i = 0; i < n->nin; i++) {
        bool number = n->in[i] < 0;
        int32_t dtype = number ? number_dtype(&n->number[i]) : p->value[n->in[i]].dtype;
        if (dtype < 0 || dtype >= TN_DTYPE_BUILTIN_COUNT) return false;
        like[i].word = (uint64_t)dtype | (number ? TN_W_SCALAR : 0);
        like[i].ndim = number ? 0 : p->value[n->in[i]].ndim;
        mask[i] = op->fields[op->in_field[i]].flags & TNI_FIELD_BOOL_INPUT;
        if (!mask[i]) of[count++] = &like[i];
    }
    if (op->compute_rule == TNI_COMPUTE_FIRST && count > 1) count = 1;
    tn_infer inf = {.op = op};
    if (tni_infer_dtype(&inf, op->compute_rule, of, count) != TN_OK) return false;
    ret->compute = inf.compute;
    ret->result = tni_result_of(inf.compute, op->result_rule);
    int category = tni_category(inf.compute);
    bool same = false; /* some operand is of the category that is computed in */
    for (int i = 0; i < count; i++) same |= tni_category(tn_view_dtype(of[i])) >= category;
    if (!same || (category < TN_CAT_FLOAT && (op->flags & TNI_OP_NUMBERS))) return false;
    if (ret->compute >= TN_DTYPE_BUILTIN_COUNT || ret->result != p->value[n->out[0]].dtype)
        return false;
    for (int32_t i = 0; i < n->nin; i++) {
        ret->want[i] = mask[i] ? TN_BOOL : inf.compute;
        int32_t has = tn_view_dtype(&like[i]);
        bool converts = n->in[i] >= 0 && has != ret->want[i];
        if (converts && !own_cell(&tni_op__cast, dev, has)) return false;
    }
    ret->cell = own_cell(op, dev, inf.compute);
    return ret->cell != NULL;
}

/* ---- An expression -----------------------------------------------------------------------------*/

/* What composites consist of, by node; kept while groups are looked for. */
typedef struct parts {
    bool known;
    tn_program *of; /* owned; NULL: it is no composite, or is not taken apart */
} parts;

typedef struct builder {
    const tn_program *p;
    tni_pgroup *g;
    int32_t nnodes, nvalues;   /* of the expression; nvalues: inputs */
    int32_t input[MAX_VALUES]; /* values that the group is given */
    int32_t dtype[MAX_VALUES];
    tn_expr_node node[MAX_NODES];
    uint8_t reach[MAX_NODES];
    _Alignas(16) unsigned char number[MAX_NODES][16];
    tn_scalar scalar[MAX_NODES];
    int32_t *made; /* by value of the program: its operand + 1, or 0 */
    int32_t nkernels;
    int32_t nops; /* nodes that are neither numbers nor conversions */
    parts *parts;
} builder;

/* While a group grows, nodes have numbers from MAX_VALUES on, as inputs still come. */
enum { NODE = MAX_VALUES };

static int32_t find_input(builder *b, int32_t value) {
    for (int32_t i = 0; i < b->nvalues; i++)
        if (b->input[i] == value) return i;
    if (b->nvalues == TNI_P_GROUP_VALUES - 1) return -1;
    b->input[b->nvalues] = value;
    b->dtype[b->nvalues] = b->p->value[value].dtype;
    return b->nvalues++;
}

static int32_t add_number(builder *b, const tn_scalar *s, int32_t dtype) {
    if (b->nnodes == MAX_NODES) return -1;
    int32_t at = b->nnodes++;
    b->scalar[at] = *s;
    tni_scalar_store(s, dtype, b->number[at]);
    b->node[at] = (tn_expr_node){
        .dtype = dtype,
        .value = &b->scalar[at],
        .args = b->number[at],
        .args_bytes = (uint64_t)tn_dtype_size(dtype),
        .compute = dtype,
    };
    b->reach[at] = 0;
    return NODE + at;
}

static uint8_t reach_of(const builder *b, int32_t operand) {
    return operand < NODE ? (uint8_t)(1u << operand) : b->reach[operand - NODE];
}

static int32_t dtype_at(const builder *b, int32_t operand) {
    return operand < NODE ? b->dtype[operand] : b->node[operand - NODE].dtype;
}

static const tn__cast_args cast_args, copy_args; /* of a conversion; of one that is a node */

static int32_t add_cast(builder *b, int32_t operand, int32_t dtype, const tn__cast_args *args) {
    if (b->nnodes == MAX_NODES) return -1;
    b->reach[b->nnodes] = reach_of(b, operand);
    b->node[b->nnodes] = (tn_expr_node){
        .op = tni_op__cast.info.name,
        .dtype = dtype,
        .noperands = 1,
        .operand = {operand},
        .args = args,
        .args_bytes = sizeof cast_args,
        .sig = tni_op__cast.info.sig,
        .compute = dtype_at(b, operand),
    };
    return NODE + b->nnodes++;
}

static bool add_kernel(builder *b, const tn_cell *cell, int32_t compute) {
    tni_pgroup *g = b->g;
    for (int32_t i = 0; i < b->nkernels; i++)
        if (g->cell[i] == cell) return true;
    if (b->nkernels == TNI_P_GROUP_NODES) return false;
    g->cell[b->nkernels] = cell;
    g->compute[b->nkernels++] = compute;
    return true;
}

/* Where a node's tensors come from: the program itself, or what a composite consists of. */
typedef struct scope {
    const tn_program *p;
    int32_t *made; /* as in builder */
    bool inner;    /* all its inputs are made already */
} scope;

static int32_t find_operand(builder *b, const scope *s, const tni_pnode *n, int32_t i, int32_t want,
                            const tni_device *dev) {
    int32_t id = n->in[i], x;
    if (id < 0) return add_number(b, &n->number[i], want);
    if (!s->made[id] && s->inner) return -1; /* a constant of the composite */
    x = s->made[id] ? s->made[id] - 1 : find_input(b, id);
    if (x < 0 || dtype_at(b, x) == want) return x;
    int32_t dtype = dtype_at(b, x);
    return add_kernel(b, own_cell(&tni_op__cast, dev, dtype), dtype)
               ? add_cast(b, x, want, &cast_args)
               : -1;
}

/* A number beside half precision that the CPU's kernels take as it was given, but for which an
 * expression has room in that precision alone. */
static bool is_too_fine(const scope *s, const tni_pnode *n, const fit *f) {
    static const tn_op *const exact[] = {&tni_op_mul, &tni_op_true_divide, &tni_op_floor_divide,
                                         &tni_op__trunc_divide, &tni_op_lerp};
    int32_t dtype = f->compute, last = n->nin - 1;
    bool listed = false;
    for (int i = 0; i < TN_COUNT(exact); i++) listed |= n->op == exact[i];
    if (!listed || (dtype != TN_F16 && dtype != TN_BF16)) return false;
    if (n->in[last] >= 0)
        return s->p->value[n->in[last]].ndim == 0 && s->p->value[n->in[last]].dtype != dtype;
    _Alignas(16) unsigned char element[16];
    tn_scalar held;
    tni_scalar_store(&n->number[last], dtype, element);
    tni_scalar_load(dtype, element, &held);
    return held.re != n->number[last].re;
}

static bool add_kernel_node(builder *b, const scope *s, const tni_pnode *n, const tni_device *dev) {
    fit f;
    tn_expr_node e;
    if (!find_fit(s->p, n, dev, &f) || is_too_fine(s, n, &f)) return false;
    memset(&e, 0, sizeof e);
    uint8_t reach = 0;
    for (int32_t i = 0; i < n->nin; i++) {
        int32_t x = find_operand(b, s, n, i, f.want[i], dev);
        if (x < 0) return false;
        e.operand[i] = x;
        reach |= reach_of(b, x);
    }
    if (b->nnodes == MAX_NODES || !add_kernel(b, f.cell, f.compute)) return false;
    e.op = n->op->info.name;
    e.dtype = f.result;
    e.noperands = n->nin;
    e.args = n->args;
    e.args_bytes = n->op->args_bytes;
    e.sig = n->op->info.sig;
    e.compute = f.compute;
    b->reach[b->nnodes] = reach;
    b->node[b->nnodes] = e;
    s->made[n->out[0]] = NODE + b->nnodes++ + 1;
    b->nops++;
    return true;
}

static bool note_whole(tni_pgroup *g, const tn_op *op) {
    for (int32_t i = 0; i < g->nwholes; i++)
        if (g->whole[i] == op) return true;
    if (g->nwholes == TNI_P_GROUP_WHOLES) return false;
    g->whole[g->nwholes++] = op;
    return true;
}

/* The operators that a composite calls, if all of them fit. */
static bool add_parts(builder *b, const tni_pnode *n, const tn_program *m, const tni_device *dev) {
    scope s = {m, calloc((size_t)m->nvalues + 1, sizeof *s.made), true};
    bool fits = s.made && m->noutputs == 1 && m->nnodes > 0 && note_whole(b->g, n->op);
    int32_t taken = 0; /* inputs of m, which are the node's tensors in order, each once */
    for (int32_t i = 0; i < n->nin && fits; i++) {
        bool before = n->in[i] < 0;
        for (int32_t k = 0; k < i && !before; k++) before = n->in[k] == n->in[i];
        if (before) continue;
        int32_t x = b->made[n->in[i]] ? b->made[n->in[i]] - 1 : find_input(b, n->in[i]);
        fits = x >= 0 && taken < m->ninputs;
        if (fits) s.made[m->input[taken++]] = x + 1;
    }
    for (int32_t k = 0; k < m->nnodes && fits; k++) fits = add_kernel_node(b, &s, &m->node[k], dev);
    int32_t x = fits ? s.made[m->output[0]] - 1 : -1;
    fits = x >= NODE && dtype_at(b, x) == b->p->value[n->out[0]].dtype;
    if (fits) b->made[n->out[0]] = x + 1;
    free(s.made);
    return fits;
}

/* `float()`: a copy in another real dtype. */
static bool add_copy(builder *b, const tni_pnode *n, const tni_device *dev) {
    const tn__to_copy_args *a = (const void *)n->args;
    int32_t from = b->p->value[n->in[0]].dtype, to = b->p->value[n->out[0]].dtype;
    const tn_cell *cell = own_cell(&tni_op__cast, dev, from);
    if (a->memory_format != TN_FORMAT_PRESERVE || a->non_blocking || from == to || !cell)
        return false;
    if (from >= TN_DTYPE_BUILTIN_COUNT || to >= TN_DTYPE_BUILTIN_COUNT || to == TN_BOOL ||
        tni_category(from) > TN_CAT_FLOAT || tni_category(to) > TN_CAT_FLOAT ||
        (tni_category(from) == TN_CAT_FLOAT && tni_category(to) != TN_CAT_FLOAT))
        return false;
    int32_t x = b->made[n->in[0]] ? b->made[n->in[0]] - 1 : find_input(b, n->in[0]);
    if (x < 0 || !add_kernel(b, cell, from) || !note_whole(b->g, n->op)) return false;
    x = add_cast(b, x, to, &copy_args);
    if (x >= 0) b->made[n->out[0]] = x + 1;
    b->nops += x >= 0;
    return x >= 0;
}

/* Adds a node of the program; false: the group is full, and as it was but for things nobody uses. */
static bool add_node(builder *b, int32_t k, const tni_device *dev) {
    const tni_pnode *n = &b->p->node[k];
    scope s = {b->p, b->made, false};
    if (n->op->info.kind != TN_OP_COMPOSITE) return add_kernel_node(b, &s, n, dev);
    if (!is_simple(b->p, n)) return false;
    if (n->op == &tni_op__to_copy) return add_copy(b, n, dev);
    parts *of = &b->parts[k];
    if (!of->known) of->of = tni_p_expand(b->p, n);
    of->known = true;
    return of->of && add_parts(b, n, of->of, dev);
}

static bool same_shape(const tni_pvalue *a, const tni_pvalue *b) {
    return a->ndim == b->ndim &&
           (a->ndim <= 0 || memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) == 0);
}

/* ---- A group -----------------------------------------------------------------------------------*/

/* Values that somebody needs after node `end`. */
static int32_t find_outputs(const builder *b, int32_t first, int32_t end, int32_t *ret_value) {
    int32_t n = 0;
    for (int32_t k = first; k < end; k++) {
        if (b->g->before >> (k - first) & 1u) continue;
        int32_t id = b->p->node[k].out[0];
        if (b->p->last_use[id] < end) continue;
        if (n == TNI_P_GROUP_VALUES) return n + 1;
        ret_value[n++] = id;
    }
    return n;
}

static tn_status compile(builder *b, const tni_device *dev) {
    tni_pgroup *g = b->g;
    int32_t outputs[TNI_P_GROUP_VALUES];
    for (int32_t i = 1; i < b->nnodes; i++) /* the first has none before it */
        for (int32_t k = 0; k < b->node[i].noperands; k++)
            if (b->node[i].operand[k] >= NODE) b->node[i].operand[k] += b->nvalues - NODE;
    for (int32_t i = 0; i < g->nout; i++) outputs[i] = b->nvalues + b->made[g->value[i]] - 1 - NODE;
    tn_expr e = {sizeof e, sizeof b->node[0], b->nvalues, b->nnodes, g->nout,
                 0,        b->dtype,          b->node,    outputs};
    tn_status st = tni_caught(dev->ifaces.codegen2->compile(dev->desc.ctx, 0, &e, &g->code));
    if (st == TN_OK && !g->code) st = TN_DECLINE;
    return st;
}

static void note_reach(builder *b, tni_pgroup *g) {
    for (int32_t i = 0; i < b->nnodes; i++) {
        bool known = b->reach[i] == 0 || b->node[i].args == &cast_args;
        for (int32_t k = 0; k < g->nreach && !known; k++) known = g->reach[k] == b->reach[i];
        if (!known) g->reach[g->nreach++] = b->reach[i];
    }
}

/* A view of values that are there before the group: it may run before it. */
static bool runs_before(const builder *b, const tni_pnode *n) {
    if (n->op->info.kind != TN_OP_VIEW || n->cast || n->nderived || n->nin < 1) return false;
    for (int32_t i = 0; i < n->nin; i++)
        if (n->in[i] < 0 || b->made[n->in[i]] >= NODE || (n->wrote && n->wrote[i])) return false;
    return true;
}

static bool has_shape_of(const tn_program *p, const tni_pnode *n, const tni_pnode *first) {
    return n->nout == 1 && n->out[0] >= 0 &&
           same_shape(&p->value[n->out[0]], &p->value[first->out[0]]);
}

/* Nodes from `first` on that fit and have one shape, and views between them; how many. */
static int32_t grow(builder *b, int32_t first, int32_t most, const tni_device *dev) {
    const tn_program *p = b->p;
    int32_t count = 0; /* up to the last one that is no view */
    uint64_t views = 0;
    for (int32_t k = first; k < p->nnodes && k - first < most; k++) {
        const tni_pnode *n = &p->node[k];
        if (k > first && runs_before(b, n)) {
            views |= UINT64_C(1) << (k - first);
            continue;
        }
        if (k > first && !has_shape_of(p, n, &p->node[first])) break;
        if (!add_node(b, k, dev)) break;
        count = k - first + 1;
        b->g->before = views;
    }
    return count;
}

static void forget_made(builder *b, int32_t first, int32_t end) {
    for (int32_t k = first; k < end; k++)
        for (int32_t i = 0; i < b->p->node[k].nout; i++)
            if (b->p->node[k].out[i] >= 0) b->made[b->p->node[k].out[i]] = 0;
}

/* What nobody needs after the group, but for what is within it; false: too much. */
static bool add_drop(builder *b, int32_t value, int32_t end) {
    tni_pgroup *g = b->g;
    if (value < 0 || b->p->last_use[value] >= end || b->p->value[value].role != TNI_P_NODE ||
        b->made[value] >= NODE)
        return true;
    for (int32_t i = 0; i < g->ndrops; i++)
        if (g->drop[i] == value) return true;
    if (g->ndrops == TNI_P_GROUP_DROPS) return false;
    g->drop[g->ndrops++] = value;
    return true;
}

static bool find_drops(builder *b, int32_t first, int32_t end) {
    bool fits = true;
    for (int32_t i = 0; i < b->nvalues; i++) fits &= add_drop(b, b->input[i], end);
    for (int32_t k = first; k < end; k++) {
        const tni_pnode *n = &b->p->node[k];
        if (!(b->g->before >> (k - first) & 1u)) continue;
        for (int32_t i = 0; i < n->nin; i++) fits &= add_drop(b, n->in[i], end);
        for (int32_t i = 0; i < n->nout; i++) fits &= add_drop(b, n->out[i], end);
    }
    return fits;
}

static void begin(builder *b, const tn_program *p, tni_pgroup *g, int32_t *made) {
    memset(g, 0, sizeof *g);
    b->p = p;
    b->g = g;
    b->made = made;
    b->nnodes = b->nvalues = b->nkernels = b->nops = 0;
}

/* The group that begins at node `first`, as long as it may be; TN_DECLINE: there is none. */
static tn_status make_group(builder *b, tni_pgroup *g, const tn_program *p, int32_t first,
                            const tni_device *dev, int32_t *made) {
    int32_t count = MAX_NODES;
    for (bool fits = false; count > 0 && !fits; count -= !fits) {
        begin(b, p, g, made);
        count = grow(b, first, count, dev);
        g->nout = find_outputs(b, first, first + count, g->value);
        fits = count > 0 && g->nout > 0 && g->nout + b->nvalues <= TNI_P_GROUP_VALUES &&
               b->nops > 1 && find_drops(b, first, first + count);
        if (fits) break;
        forget_made(b, first, first + count + 1 < p->nnodes ? first + count + 1 : p->nnodes);
    }
    if (count < 1) return TN_DECLINE;
    g->first = first;
    g->count = count;
    g->nin = b->nvalues;
    g->dev = dev;
    memcpy(g->value + g->nout, b->input, sizeof *g->value * (size_t)g->nin);
    note_reach(b, g);
    tn_status st = compile(b, dev);
    forget_made(b, first, first + count);
    return st == TN_OK || st == TN_E_MEMORY ? st : TN_DECLINE;
}

/* Takes over g's code. */
static tn_status append_group(tni_pfused **f, int32_t *room, const tni_pgroup *g) {
    int32_t n = *f ? (*f)->n : 0;
    if (n == *room) {
        int32_t wanted = *room ? *room * 2 : 4;
        tni_pfused *more = realloc(*f, sizeof *more + sizeof *g * (size_t)wanted);
        if (!more) {
            g->dev->ifaces.codegen2->destroy(g->dev->desc.ctx, 0, g->code);
            return tni_p_memory();
        }
        more->fixed = false;
        *f = more;
        *room = wanted;
    }
    (*f)->group[n] = *g;
    (*f)->n = n + 1;
    return TN_OK;
}

/* NULL: memory was lacking, which says nothing about the program. */
static tni_pfused *find_groups(const tn_program *p) {
    const tni_device *dev = tni_device_at(0);
    tni_pfused *f = NULL;
    builder *b = calloc(1, sizeof *b);
    if (b) b->parts = calloc((size_t)p->nnodes + 1, sizeof *b->parts);
    int32_t *made = calloc((size_t)p->nvalues + 1, sizeof *made), room = 0;
    tn_status st = b && b->parts && made ? TN_OK : TN_E_MEMORY;
    for (int32_t k = 0; st == TN_OK && k < p->nnodes;) {
        tni_pgroup g;
        st = make_group(b, &g, p, k, dev, made);
        k += st == TN_OK ? g.count : 1;
        if (st == TN_OK) st = append_group(&f, &room, &g);
        if (st == TN_DECLINE) st = TN_OK;
    }
    for (int32_t k = 0; b && b->parts && k < p->nnodes; k++) tn_program_unref(&b->parts[k].of);
    if (b) free(b->parts);
    free(b);
    free(made);
    if (st == TN_OK) return f ? f : &none;
    tni_p_free_groups(f);
    return NULL;
}

const tni_pfused *tni_p_fused(const tn_program *program) {
    tn_program *p = (tn_program *)(uintptr_t)program;
    tni_pfused *f = atomic_load_explicit(&p->fused, memory_order_acquire);
    if (f) return f;
    if (tni_p_is_watched()) return &none; /* not now */
    if (tni_device_ready(0) != TN_OK || !tni_device_at(0)->ifaces.codegen2) return &none;
    tni_os_lock(&lock);
    f = atomic_load_explicit(&p->fused, memory_order_relaxed);
    if (!f) {
        f = find_groups(p);
        atomic_store_explicit(&p->fused, f, memory_order_release);
    }
    tni_os_unlock(&lock);
    return f ? f : &none;
}

/* ---- Running -----------------------------------------------------------------------------------*/

/* The shape of all nodes; false: some have another one, or an input is not packed. */
static bool find_shape(const tni_pgroup *g, tn_tensor *const *in, int32_t *ret_ndim,
                       int64_t *shape) {
    const tn_view *first = &in[0]->v;
    uint32_t full = 0;
    bool alike = true;
    for (int32_t i = 1; i < g->nin && alike; i++) {
        const tn_view *v = &in[i]->v;
        alike = v->ndim == first->ndim;
        for (int32_t d = 0; d < first->ndim && alike; d++) alike = v->shape[d] == first->shape[d];
    }
    *ret_ndim = first->ndim;
    for (int32_t d = 0; d < first->ndim; d++) shape[d] = first->shape[d];
    for (int32_t i = 1; i < g->nin && !alike; i++)
        if (tni_broadcast_shapes(*ret_ndim, shape, in[i]->v.ndim, in[i]->v.shape, ret_ndim,
                                 shape) != TN_OK)
            return false;
    for (int32_t i = 0; i < g->nin; i++) {
        if (alike || tni_shape_is(in[i], *ret_ndim, shape)) full |= 1u << i;
        uint64_t word = in[i]->v.word;
        if ((word & (TN_W_CONTIGUOUS | TN_W_CHANNELS_LAST)) == TN_W_CONTIGUOUS) continue;
        if (!tni_rows_first(&in[i]->v, *ret_ndim, shape))
            return false; /* results follow its order */
    }
    for (int32_t i = 0; i < g->nreach; i++)
        if (!(g->reach[i] & full)) return false;
    return true;
}

static bool kernels_changed(const tni_pgroup *g) {
    for (int32_t i = 0; i < TNI_P_GROUP_NODES && g->cell[i]; i++)
        if (tni_cell(g->cell[i]->op, 0, g->compute[i]) != g->cell[i]) return true;
    for (int32_t i = 0; i < g->nwholes; i++)
        if (tni_p_has_kernels(g->whole[i])) return true;
    return false;
}

typedef struct job {
    const tni_pgroup *g;
    const tn_plan *plan;
} job;

static tn_status run_job(const void *arg) {
    const job *j = arg;
    const tni_device *dev = j->g->dev;
    return tni_caught(dev->ifaces.codegen2->run(dev->desc.ctx, 0, j->g->code, j->plan, NULL));
}

/* *ret_st: what became of it; the status: what it did that it must not do. */
static tn_status run_code(const tn_program *p, const tni_pgroup *g, tn_tensor **ts, int32_t ndim,
                          const int64_t *shape, tn_status *ret_st) {
    const tn_device device = {0, 0};
    const tn_view *views[TNI_P_GROUP_VALUES];
    tn_status st = TN_OK;
    tn_plan plan;
    for (int32_t i = 0; i < g->nout && st == TN_OK; i++)
        st = tni_tensor_new_fast(p->value[g->value[i]].dtype, device, ndim, shape, &ts[i]);
    *ret_st = st;
    if (st != TN_OK) return TN_OK;
    tni_plan_build(&plan, g->nout + g->nin, g->nout, ts, 0, NULL, ndim, shape, 0);
    if (plan.numel == 0) return TN_OK;
    for (int32_t i = 0; i < g->nout + g->nin; i++) views[i] = &ts[i]->v;
    const job j = {g, &plan};
    return tni_check_made(&(tni_made){g->dev, views, g->nout, g->nout + g->nin, &plan, run_job, &j},
                          ret_st);
}

bool tni_p_group_ready(const tn_program *p, const tni_pgroup *g, tn_tensor *const *tensors) {
    uint64_t any = 0;
    if (tni_p_is_watched()) return false;
    for (int32_t i = 0; i < g->count; i++)
        for (int32_t k = 0; k < p->node[g->first + i].nin; k++) {
            int32_t id = p->node[g->first + i].in[k];
            any |= id >= 0 && tensors[id] ? tensors[id]->v.word : 0;
        }
    return !tni_recording(any);
}

tn_status tni_p_run_group(const tn_program *p, const tni_pgroup *g, tn_tensor **tensors) {
    const uint64_t special = TN_W_SCALAR | TN_W_LAYOUT | TN_W_SPECIAL;
    tn_tensor *ts[TNI_P_GROUP_VALUES] = {NULL};
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim;
    uint64_t any = 0;
    if (tni_p_is_watched()) return TN_DECLINE;
    for (int32_t i = 0; i < g->nin; i++) {
        tn_tensor *t = ts[g->nout + i] = tensors[g->value[g->nout + i]];
        if (!t) return TN_DECLINE;
        any |= t->v.word;
    }
    if ((any & special) || tni_recording(any) || kernels_changed(g)) return TN_DECLINE;
    if (!find_shape(g, ts + g->nout, &ndim, shape)) return TN_DECLINE;
    tn_status st, found = run_code(p, g, ts, ndim, shape, &st);
    if (found != TN_OK) st = found;
    for (int32_t i = 0; i < g->nout; i++) {
        if (st != TN_OK)
            tn_tensor_unref(&ts[i]);
        else
            tensors[g->value[i]] = ts[i];
    }
    for (int32_t i = 0; i < g->ndrops && st == TN_OK; i++) tn_tensor_unref(&tensors[g->drop[i]]);
    return st == TN_OK || found != TN_OK ? st : TN_DECLINE;
}

tn_status tn_program_fused_at(const tn_program *p, int32_t i, int32_t *ret_first,
                              int32_t *ret_count) {
    if (!p || !ret_first || !ret_count)
        return tn_fail(TN_E_TYPE, -1, "program_fused_at() needs a program and places");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    const tni_pfused *f = tni_p_fused(p);
    if (!f || i < 0 || i >= f->n)
        return tn_fail(TN_E_INDEX, 1, "the program has %d groups", f ? (int)f->n : 0);
    *ret_first = f->group[i].first;
    *ret_count = f->group[i].count;
    return TN_OK;
}
