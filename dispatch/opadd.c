/* opadd.c: makes an operator of a plugin's descriptor: the same tn_op that the generator emits for the
 * table, with functions that look at its rules in place of generated ones. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "added_priv.h"
#include "infer_priv.h"

/* ---- Running -----------------------------------------------------------------------------------*/

static const tn_view *input_of(const tn_op *op, const void *args, int i) {
    const char *p = (const char *)args + op->in_offset[i];
    return *(const tn_view *const *)(const void *)p;
}

static tn_status infer_broadcast(tn_infer *inf, const void *args) {
    const tn_op *op = inf->op;
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_view *v = input_of(op, args, i);
        if (v) TN_TRY(tni_broadcast_shapes(ndim, shape, v->ndim, v->shape, &ndim, shape));
    }
    for (int i = 0; i < op->nout; i++) TN_TRY(tni_infer_set(inf, i, ndim, shape));
    return TN_OK;
}

/* A plugin's own rule, whose answers are not believed unseen. */
static tn_status infer_foreign(tn_infer *inf, const void *args) {
    const tni_added *o = tni_added_of(inf->op);
    const char *name = o->op.info.name;
    tn_out_shape *outs = calloc((size_t)o->op.nout, sizeof *outs);
    if (!outs) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int i = 0; i < o->op.nout; i++) outs[i].dtype = inf->out[i].dtype;
    tn_status st = o->desc.infer(&tni_host, o->desc.ctx, args, outs);
    for (int i = 0; i < o->op.nout && st == TN_OK; i++) {
        const tn_out_shape *s = &outs[i];
        bool sound = tn_dtype_name(s->dtype) && s->ndim >= 0 && s->ndim <= TN_MAX_DIMS;
        for (int32_t d = 0; sound && d < s->ndim; d++) sound = s->shape[d] >= 0;
        inf->out[i].dtype = s->dtype;
        st = sound ? tni_infer_set(inf, i, s->ndim, s->shape)
                   : tn_fail(TN_E_PLUGIN, -1,
                             "%s: the shape rule of plugin '%s' gives result %d an impossible "
                             "shape or dtype",
                             name, o->plugin->name, i);
    }
    free(outs);
    return st;
}

static tn_status infer(tn_infer *inf, const void *args) {
    const tni_added *o = tni_added_of(inf->op);
    const tn_view *of[TN_MAX_OPERANDS];
    for (int i = 0; i < o->ndtype_of; i++) of[i] = input_of(&o->op, args, o->dtype_of[i]);
    TN_TRY(tni_infer_dtype(inf, o->op.compute_rule, of, o->ndtype_of));
    for (int i = 0; i < o->op.nout; i++)
        inf->out[i].dtype = tni_result_of(inf->compute, o->op.result_rule);
    if (o->desc.infer) return infer_foreign(inf, args);
    if (o->same_as < 0) return infer_broadcast(inf, args);
    const tn_view *same = input_of(&o->op, args, o->same_as);
    if (!same)
        return tn_fail(TN_E_VALUE, o->op.in_field[o->same_as],
                       "%s: the tensor whose shape the result takes was not given",
                       o->op.info.name);
    for (int i = 0; i < o->op.nout; i++) tni_infer_same(inf, i, same);
    return TN_OK;
}

static tn_status compose(const tn_op *op, const void *args, tn_tensor **rets) {
    const tni_added *o = tni_added_of(op);
    uint64_t all = (UINT64_C(1) << op->nout) - 1;
    if (o->forward) {
        TN_TRY(tni_formula_run(o->forward, args, NULL, all, rets));
    } else {
        tn_status st = o->desc.composite(&tni_host, o->desc.ctx, args, (tn_view **)(void *)rets);
        if (st != TN_OK) {
            for (int i = 0; i < op->nout; i++)
                rets[i] = NULL; /* they are the caller's on success */
            return st;
        }
    }
    bool complete = true;
    for (int i = 0; i < op->nout; i++) complete = complete && rets[i];
    if (complete) return TN_OK;
    for (int i = 0; i < op->nout; i++) tn_tensor_unref(&rets[i]);
    return tn_fail(TN_E_PLUGIN, -1, "%s: plugin '%s' returned no tensor", op->info.name,
                   o->plugin->name);
}

static tn_status gradient(tn_gctx *c) {
    const tni_added *o = tni_added_of(c->op);
    tn_tensor *rets[TN_MAX_OPERANDS] = {NULL};
    int64_t place[TN_MAX_OPERANDS], at = 0;
    uint64_t wanted = 0, none, given = tni_formula_given(o->backward, &none);
    for (int i = 0; i < c->op->nin; i++) {
        const tn_field *f = &c->op->fields[c->op->in_field[i]];
        const tn_views *list = (const void *)((const char *)c->args + f->offset);
        int64_t n = f->kind == TN_F_TENSORS ? list->n : 1;
        place[i] = at;
        for (; n > 0; n--, at++)
            if (at < 64 && TN_GNEEDS(c, at)) wanted |= UINT64_C(1) << i;
    }
    for (int i = 0; i < c->op->nin; i++)
        if ((wanted & ~given & ~none) >> i & 1u)
            return tn_fail(TN_E_STATE, -1,
                           "derivative for %s with respect to '%s' is not implemented",
                           c->op->info.name, c->op->fields[c->op->in_field[i]].name);
    TN_TRY(tni_formula_run(o->backward, c->args, c->g, wanted, rets));
    for (int i = 0; i < c->op->nin; i++)
        if ((wanted & given) >> i & 1u) c->ret[place[i]] = rets[i];
    return TN_OK;
}

/* ---- Descriptors -------------------------------------------------------------------------------*/

static tn_status fault(const tni_added *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static tn_status fault(const tni_added *o, const char *fmt, ...) {
    char what[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return tn_fail(TN_E_PLUGIN, -1, "operator '%s': %s", o->op.info.name, what);
}

/* Copies the texts of the descriptor into the arena. */
static tn_status keep_texts(tni_added *o) {
    tn_op_desc *d = &o->desc;
    const char **const texts[] = {&d->schema,  &d->dtype,    &d->shape,
                                  &d->formula, &d->gradient, &d->doc};
    for (int i = 0; i < TN_COUNT(texts); i++) {
        if (!*texts[i]) continue;
        *texts[i] = tni_arena_text(&o->arena, *texts[i], strlen(*texts[i]));
        if (!*texts[i]) return TN_E_MEMORY;
    }
    return TN_OK;
}

static tn_status fill_fields(tni_added *o, const tni_schema *s) {
    tn_op *op = &o->op;
    op->fields = s->fields;
    op->nfields = (uint16_t)(s->nargs + s->nouts);
    op->args_bytes = (uint16_t)s->args_bytes;
    for (int32_t i = 0; i < op->nfields; i++) {
        const tn_field *f = &s->fields[i];
        if (f->kind == TN_F_OUT) {
            op->out_field[op->nout] = (uint8_t)i;
            op->out_offset[op->nout++] = f->offset;
        } else if (f->kind <= TN_F_OPERAND) {
            if (op->nin + s->nouts == TN_MAX_OPERANDS)
                return fault(o, "there are more than %d tensors", TN_MAX_OPERANDS);
            op->in_field[op->nin] = (uint8_t)i;
            op->in_offset[op->nin++] = f->offset;
        }
        if (f->kind == TN_F_DIM || f->kind == TN_F_DIM_OPT) op->flags |= TNI_OP_HAS_DIM;
    }
    return TN_OK;
}

/* The tensor input of that name, or -1. */
static int input_named(const tni_added *o, const char *name, size_t n) {
    for (int i = 0; i < o->op.nin; i++) {
        const char *have = o->op.fields[o->op.in_field[i]].name;
        if (strlen(have) == n && strncmp(have, name, n) == 0) return i;
    }
    return -1;
}

static size_t word_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

static bool one_of(const char *const *names, int count, const char *word, size_t n, uint8_t *ret) {
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) != n || strncmp(names[i], word, n) != 0) continue;
        *ret = (uint8_t)i;
        return true;
    }
    return false;
}

/* "promote(x, y) -> bool" */
static tn_status read_dtype_rule(tni_added *o) {
    static const char *const rules[] = {
        [TNI_COMPUTE_PROMOTE] = "promote", [TNI_COMPUTE_FLOAT] = "float",
        [TNI_COMPUTE_FIRST] = "same",      [TNI_COMPUTE_SUM] = "sum",
        [TNI_COMPUTE_BOOL] = "bool",
    };
    static const char *const results[] = {
        [TNI_RESULT_COMPUTE] = "compute",
        [TNI_RESULT_BOOL] = "bool",
        [TNI_RESULT_REAL] = "real",
        [TNI_RESULT_I64] = "int64",
    };
    const char *s = o->desc.dtype ? o->desc.dtype : "same";
    size_t n = word_length(s);
    if (!one_of(rules, TN_COUNT(rules), s, n, &o->op.compute_rule))
        return fault(o, "dtype rule '%s' is none of promote, float, same, sum, bool", s);
    s += n + strspn(s + n, " ");
    bool listed = *s == '(';
    if (listed && o->op.info.kind == TN_OP_POINTWISE)
        return fault(o, "the dtype rule of a pointwise operator looks at all inputs");
    for (s += listed; listed && *s != ')'; s += strspn(s, ", ")) {
        n = word_length(s);
        int i = input_named(o, s, n);
        if (i < 0 || o->ndtype_of == TN_MAX_OPERANDS)
            return fault(o, "dtype rule '%s' names no tensor argument", o->desc.dtype);
        o->dtype_of[o->ndtype_of++] = (uint8_t)i;
        s += n;
    }
    s += listed;
    bool first = o->op.compute_rule == TNI_COMPUTE_FIRST;
    for (int i = 0; i < o->op.nin && !listed; i++)
        if (!first || o->op.fields[o->op.in_field[i]].kind != TN_F_TENSORS)
            o->dtype_of[o->ndtype_of++] = (uint8_t)i;
    for (int i = 0; i < o->ndtype_of; i++)
        if (o->op.fields[o->op.in_field[o->dtype_of[i]]].kind == TN_F_TENSORS)
            return fault(o, "the dtype rule looks at a list of tensors; name others");
    s += strspn(s, " ");
    if (strncmp(s, "->", 2) == 0) {
        s += 2 + strspn(s + 2, " ");
        n = word_length(s);
        if (!one_of(results, TN_COUNT(results), s, n, &o->op.result_rule))
            return fault(o, "the result of dtype rule '%s' is none of compute, bool, real, int64",
                         o->desc.dtype);
        s += n;
    }
    return *s ? fault(o, "cannot read dtype rule '%s'", o->desc.dtype) : TN_OK;
}

static tn_status check_pointwise(const tni_added *o) {
    const tn_op *op = &o->op;
    if (op->nout != 1) return fault(o, "a pointwise operator has one result");
    if (op->nin == 0) return fault(o, "a pointwise operator has a tensor argument");
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if ((f->kind != TN_F_TENSOR && f->kind != TN_F_OPERAND) || (f->flags & TNI_FIELD_MUTATED))
            return fault(o, "argument '%s' of a pointwise operator must be Tensor or Operand",
                         f->name);
    }
    if (o->desc.shape || o->desc.infer)
        return fault(o, "a pointwise operator's shape is the broadcast of its inputs; it takes no "
                        "shape rule");
    if (o->desc.formula || o->desc.composite)
        return fault(o, "a pointwise operator is computed by kernels; it takes no formula");
    return TN_OK;
}

static tn_status read_shape_rule(tni_added *o) {
    const char *s = o->desc.shape;
    o->same_as = -1;
    if (!s == !o->desc.infer) return fault(o, "it needs either a shape rule or `infer`");
    if (o->op.nin == 0) return fault(o, "a structured operator has a tensor argument");
    if (!s) return TN_OK;
    if (strcmp(s, "broadcast") == 0) {
        for (int i = 0; i < o->op.nin; i++)
            if (o->op.fields[o->op.in_field[i]].kind == TN_F_TENSORS)
                return fault(o, "a list of tensors does not broadcast");
        return TN_OK;
    }
    if (strncmp(s, "same(", 5) == 0 && s[strlen(s) - 1] == ')')
        o->same_as = (int8_t)input_named(o, s + 5, strlen(s) - 6);
    if (o->same_as < 0 || o->op.fields[o->op.in_field[o->same_as]].kind == TN_F_TENSORS)
        return fault(o, "shape rule '%s' is neither broadcast nor same(a tensor argument)", s);
    return TN_OK;
}

static tn_status read_rules(tni_added *o) {
    const tn_op_desc *d = &o->desc;
    tn_op *op = &o->op;
    if (d->formula && d->composite) return fault(o, "it has both a formula and a composite");
    if (d->kind == TN_OP_COMPOSITE) {
        if (!d->formula && !d->composite)
            return fault(o, "a composite operator needs a formula or a function");
        if (d->shape || d->infer || d->dtype)
            return fault(o, "a composite operator takes no dtype or shape rule");
        op->run = tni_run_composite;
    } else {
        TN_TRY(read_dtype_rule(o));
        op->run = d->kind == TN_OP_POINTWISE ? tni_run_pointwise : tni_run_structured;
    }
    if (d->kind == TN_OP_POINTWISE) TN_TRY(check_pointwise(o));
    if (d->kind == TN_OP_STRUCTURED) {
        TN_TRY(read_shape_rule(o));
        op->infer = infer;
    }
    if (d->formula || d->composite) op->compose = compose;
    return TN_OK;
}

static void set_flags(tni_added *o) {
    tn_op *op = &o->op;
    op->flags |= TNI_OP_ADDED | TNI_OP_NO_INPLACE;
    if (o->desc.flags & TN_OPF_PACK) op->flags |= TNI_OP_CONTIGUOUS;
    if (o->desc.flags & TN_OPF_CAST) op->flags |= TNI_OP_CAST;
    if (op->info.kind == TN_OP_POINTWISE && op->compute_rule != TNI_COMPUTE_BOOL &&
        op->result_rule <= TNI_RESULT_BOOL)
        op->flags |= TNI_OP_PACKED;
    if (op->info.kind == TN_OP_POINTWISE && op->compute_rule == TNI_COMPUTE_FLOAT)
        op->flags |= TNI_OP_FLOATING;
}

static tn_status check_mutated(const tni_added *o) {
    for (int i = 0; i < o->op.nin; i++)
        if ((o->op.fields[o->op.in_field[i]].flags & TNI_FIELD_MUTATED) &&
            o->op.info.kind != TN_OP_STRUCTURED)
            return fault(o, "only a structured operator may write to an argument");
    return TN_OK;
}

/* "acme::layer_norm" -> "LayerNormBackward0", as autograd names nodes. */
static tn_status name_node(tni_added *o) {
    const char *name = strstr(o->op.info.name, "::") + 2;
    char *node = tni_arena_take(&o->arena, strlen(name) + sizeof "Backward0");
    bool upper = true;
    size_t n = 0;
    if (!node) return TN_E_MEMORY;
    for (; *name; name++) {
        if (*name != '_') node[n++] = upper ? (char)toupper((unsigned char)*name) : *name;
        upper = *name == '_';
    }
    memcpy(node + n, "Backward0", sizeof "Backward0");
    o->op.node = node;
    return TN_OK;
}

/* The gradient that the text asks for; its formulas are compiled later. */
static void set_gradient(tni_added *o) {
    tn_op *op = &o->op;
    const char *text = o->desc.gradient;
    bool whole = op->info.kind == TN_OP_COMPOSITE && !text;
    bool floats = op->result_rule != TNI_RESULT_BOOL && op->result_rule != TNI_RESULT_I64 &&
                  !(op->info.kind != TN_OP_COMPOSITE && op->compute_rule == TNI_COMPUTE_BOOL);
    if (whole || (!text && !floats) || (text && strcmp(text, "none") == 0)) return;
    op->grad = text ? gradient : tni_no_derivative;
    for (int i = 0; i < op->nfields; i++) {
        tn_field *f = (tn_field *)(uintptr_t)&op->fields[i];
        if (f->kind <= TN_F_OPERAND)
            f->flags |= f->flags & TNI_FIELD_MUTATED ? 0 : TNI_FIELD_DIFF;
        else if (f->kind != TN_F_OUT)
            f->flags |= TNI_FIELD_SAVED;
    }
}

static tn_status fill(tni_added *o) {
    tn_op_desc *d = &o->desc;
    tni_schema s;
    if (!d->schema) return tn_fail(TN_E_PLUGIN, -1, "an operator needs a schema");
    TN_TRY(keep_texts(o));
    TN_TRY(tni_schema_parse(d->schema, &o->arena, &s));
    o->op.info = (tn_op_info){sizeof o->op.info, d->kind, s.name, d->schema, s.sig};
    if (d->kind != TN_OP_POINTWISE && d->kind != TN_OP_STRUCTURED && d->kind != TN_OP_COMPOSITE)
        return fault(o, "kind %u is none of pointwise, structured, composite", (unsigned)d->kind);
    if (d->flags & ~(TN_OPF_PACK | TN_OPF_CAST))
        return fault(o, "flags 0x%x are unknown to this Tenon", (unsigned)d->flags);
    TN_TRY(fill_fields(o, &s));
    if (d->args_bytes && d->args_bytes != (uint32_t)s.args_bytes)
        return fault(o, "the argument struct of '%s' has %d bytes, the plugin's has %u", d->schema,
                     (int)s.args_bytes, (unsigned)d->args_bytes);
    TN_TRY(read_rules(o));
    TN_TRY(check_mutated(o));
    set_flags(o);
    set_gradient(o);
    o->op.file = o->plugin->name;
    o->op.formula = d->gradient;
    o->op.doc = d->doc;
    return name_node(o);
}

tn_status tni_added_new(const tni_plugin *plugin, const tn_op_desc *desc, tni_added **ret_op) {
    tni_added *o = calloc(1, sizeof *o);
    if (!o) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    size_t size = desc->struct_size;
    memcpy(&o->desc, desc, size < sizeof o->desc ? size : sizeof o->desc);
    o->plugin = plugin;
    o->op.info.name = "?";
    tn_status st = fill(o);
    if (st != TN_OK)
        tni_added_free(o);
    else
        *ret_op = o;
    return st;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool tni_added_same(const tni_added *a, const tni_added *b) {
    const tn_op_desc *x = &a->desc, *y = &b->desc;
    return a->plugin == b->plugin && x->kind == y->kind && x->flags == y->flags &&
           x->args_bytes == y->args_bytes && same_text(x->schema, y->schema) &&
           same_text(x->dtype, y->dtype) && same_text(x->shape, y->shape) &&
           same_text(x->formula, y->formula) && same_text(x->gradient, y->gradient) &&
           same_text(x->doc, y->doc) && x->ctx == y->ctx && x->infer == y->infer &&
           x->composite == y->composite;
}

tn_status tni_added_link(tni_added *o, const tn_txn *txn) {
    const tn_op_desc *d = &o->desc;
    if (o->published) return TN_OK; /* linked when it was added the first time */
    if (d->formula)
        TN_TRY(tni_formula_compile(o, TNI_FORMULA_FORWARD, d->formula, txn, &o->forward));
    if (o->op.grad == gradient)
        TN_TRY(tni_formula_compile(o, TNI_FORMULA_GRADIENT, d->gradient, txn, &o->backward));
    return TN_OK;
}

enum { NOT_SEEN, ON_THE_WAY, SEEN };

static bool leads_back(tni_added *o) {
    const tn_op *op = NULL;
    if (!o->forward || o->visit == SEEN) return false;
    if (o->visit == ON_THE_WAY) return true;
    o->visit = ON_THE_WAY;
    for (int32_t i = 0; tni_formula_call_at(o->forward, i, &op); i++)
        if (op && (op->flags & TNI_OP_ADDED) && leads_back(tni_added_of(op))) return true;
    o->visit = SEEN;
    return false;
}

tn_status tni_added_check_cycle(tni_added *o) {
    return leads_back(o) ? fault(o, "its formula leads back to the operator itself") : TN_OK;
}

void tni_added_free(tni_added *o) {
    tni_arena_free(&o->arena);
    free(o);
}
