/* opadd.c: makes an operator of a plugin's descriptor: the same tn_op that the generator emits for the
 * table, with functions that look at its rules (added_run.c) in place of generated ones. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "added_priv.h"
#include "call_priv.h"
#include "infer_priv.h"
#include "text_priv.h"

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
    const char **const texts[] = {&d->schema,   &d->dtype, &d->shape,    &d->formula,
                                  &d->gradient, &d->doc,   &d->autocast, &d->vmap};
    for (int i = 0; i < TN_COUNT(texts); i++) {
        if (!*texts[i]) continue;
        if (!tni_is_utf8(*texts[i]))
            return tn_fail(TN_E_PLUGIN, -1, "operator '%s': a text of it is not UTF-8", d->schema);
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
    if (s->list_out) op->flags |= TNI_OP_LIST_OUT;
    for (int32_t i = 0; i < op->nfields; i++) {
        const tn_field *f = &s->fields[i];
        if (f->kind == TN_F_OUT || f->kind == TN_F_OUTS) {
            op->out_field[op->nout] = (uint8_t)i;
            op->out_offset[op->nout++] = f->offset;
        } else if (f->kind <= TN_F_OPERAND) {
            if (op->nin + s->nouts == TN_MAX_OPERANDS)
                return fault(o, "there are more than %d tensors", TN_MAX_OPERANDS);
            op->in_field[op->nin] = (uint8_t)i;
            op->in_offset[op->nin++] = f->offset;
        }
        if (f->kind == TN_F_DIM || f->kind == TN_F_DIM_OPT) op->flags |= TNI_OP_HAS_DIM;
        if (f->kind == TN_F_STR || f->kind == TN_F_TENSORS || f->kind == TN_F_INTS ||
            f->kind == TN_F_DIMS)
            op->flags |= TNI_OP_POINTERS;
        if (f->flags & TNI_FIELD_MUTATED) op->flags |= TNI_OP_WRITES;
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

/* "int32": the result has that dtype whatever the operands' are. */
static bool names_dtype(const char *word, size_t n, uint8_t *ret_rule) {
    char name[32];
    if (n >= sizeof name) return false;
    memcpy(name, word, n);
    name[n] = '\0';
    int32_t dtype = tn_dtype_find(name);
    if (dtype >= 0) *ret_rule = (uint8_t)(TNI_RESULT_DTYPE + dtype);
    return dtype >= 0;
}

static bool has_own_dtype(const tni_added *o, int i) {
    return o->op.fields[o->op.in_field[i]].fixed != 0;
}

/* Note [Dtypes of inputs]: a kernel reads memory as the dtype that it was found with, so an input of another
 * one must not reach it as it is. What the dtype rule looks at is converted: the inputs that it
 * names, or all but those that the schema gives a dtype. "same" looks at the first; the others
 * are expected to be like it, but may also be indices, of int64. An input that a rule with names
 * leaves out is the plugin's own affair. */
static void set_takes(tni_added *o, bool listed) {
    bool first = o->op.compute_rule == TNI_COMPUTE_FIRST && !(o->desc.flags & TN_OPF_CAST);
    for (int i = 0; i < o->op.nin; i++) {
        bool own = listed || has_own_dtype(o, i);
        o->takes[i] = own ? TNI_TAKES_OWN : first ? TNI_TAKES_KIN : TNI_TAKES_COMPUTE;
        if (!own) o->dtype_of[o->ndtype_of++] = (uint8_t)i;
    }
    for (int i = 0; i < o->ndtype_of && listed; i++)
        o->takes[o->dtype_of[i]] =
            has_own_dtype(o, o->dtype_of[i]) ? TNI_TAKES_OWN : TNI_TAKES_COMPUTE;
    for (int i = 0; i < o->op.nin && o->ndtype_of == 0; i++) o->dtype_of[i] = (uint8_t)i;
    if (o->ndtype_of == 0) o->ndtype_of = o->op.nin;
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
    if (listed && o->op.info.kind != TN_OP_STRUCTURED)
        return fault(o, "only the dtype rule of a structured operator names inputs");
    for (s += listed; listed && *s != ')'; s += strspn(s, ", ")) {
        n = word_length(s);
        int i = input_named(o, s, n);
        if (i < 0 || o->ndtype_of == TN_MAX_OPERANDS)
            return fault(o, "dtype rule '%s' names no tensor argument", o->desc.dtype);
        o->dtype_of[o->ndtype_of++] = (uint8_t)i;
        s += n;
    }
    s += listed;
    set_takes(o, listed);
    s += strspn(s, " ");
    if (strncmp(s, "->", 2) == 0) {
        s += 2 + strspn(s + 2, " ");
        n = word_length(s);
        if (!one_of(results, TN_COUNT(results), s, n, &o->op.result_rule) &&
            !names_dtype(s, n, &o->op.result_rule))
            return fault(o, "the result of dtype rule '%s' is neither compute, real nor a dtype",
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
        if (f->kind != TN_F_TENSOR && f->kind != TN_F_OPERAND)
            return fault(o, "argument '%s' of a pointwise operator must be Tensor or Operand",
                         f->name);
    }
    return TN_OK;
}

/* tni_run_reduction finds its arguments by these names and kinds. */
static tn_status check_reduction(const tni_added *o) {
    const tn_op *op = &o->op;
    bool dims = false;
    if (op->nin != 1 || op->fields[op->in_field[0]].kind != TN_F_TENSOR)
        return fault(o, "a reduction has one tensor argument");
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        bool dim = f->kind == TN_F_DIMS || f->kind == TN_F_DIM || f->kind == TN_F_DIM_OPT;
        if (dim != (strcmp(f->name, "dim") == 0))
            return fault(o,
                         "argument '%s' of a reduction: the reduced dimensions, of type Dims, "
                         "Dim or Dim?, are called dim",
                         f->name);
        if (strcmp(f->name, "keepdim") == 0 && f->kind != TN_F_BOOL)
            return fault(o, "argument 'keepdim' of a reduction is a bool");
        dims = dims || dim;
    }
    return dims ? TN_OK : fault(o, "a reduction has an argument 'Dims dim'");
}

/* A kernel that gets a plan gets all operands in its own dtype. */
static tn_status check_no_own_dtype(const tni_added *o) {
    for (int i = 0; i < o->op.nin; i++)
        if (has_own_dtype(o, i))
            return fault(o, "a dtype, as of argument '%s', goes with structured operators",
                         o->op.fields[o->op.in_field[i]].name);
    return TN_OK;
}

/* Pointwise operators and reductions: core knows the shape of what comes out. */
static tn_status check_planned(const tni_added *o) {
    const tn_op_desc *d = &o->desc;
    const char *word = d->kind == TN_OP_POINTWISE ? "pointwise operator" : "reduction";
    if (o->op.flags & (TNI_OP_LIST_OUT | TNI_OP_WRITES))
        return fault(o, "a %s returns tensors and writes to no argument", word);
    if (d->shape || d->infer)
        return fault(o,
                     "the shape that a %s returns follows from its arguments; it takes no shape "
                     "rule",
                     word);
    if (d->formula || d->composite)
        return fault(o, "a %s is computed by kernels; it takes no formula", word);
    TN_TRY(check_no_own_dtype(o));
    return d->kind == TN_OP_POINTWISE ? check_pointwise(o) : check_reduction(o);
}

static tn_status read_shape_rule(tni_added *o) {
    const char *s = o->desc.shape;
    o->same_as = -1;
    if (o->op.nout == 0 && (s || o->desc.infer))
        return fault(o, "it returns nothing, so it takes no shape rule");
    if (o->op.nout == 0) return TN_OK;
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

static tn_status check_composite(const tni_added *o) {
    const tn_op_desc *d = &o->desc;
    if (!d->formula && !d->composite)
        return fault(o, "a composite operator needs a formula or a function");
    if (d->shape || d->infer || d->dtype)
        return fault(o, "a composite operator takes no dtype or shape rule");
    return TN_OK;
}

/* How many tensors a list has is known to a formula; all others are asked. */
static tn_status check_count(const tni_added *o) {
    const tn_op_desc *d = &o->desc;
    bool list = o->op.flags & TNI_OP_LIST_OUT;
    if (d->count && !list) return fault(o, "`count` goes with the result Tensor[]");
    if (list && !d->count && (d->kind != TN_OP_COMPOSITE || !d->formula))
        return fault(o, "the result Tensor[] needs `count`");
    return TN_OK;
}

static tn_status read_rules(tni_added *o) {
    const tn_op_desc *d = &o->desc;
    tn_op *op = &o->op;
    if (d->formula && d->composite) return fault(o, "it has both a formula and a composite");
    TN_TRY(check_count(o));
    if (d->formula || d->composite) op->compose = tni_added_compose;
    if (d->kind == TN_OP_COMPOSITE) {
        op->run = tni_run_composite;
        return check_composite(o);
    }
    TN_TRY(read_dtype_rule(o));
    if (d->kind == TN_OP_STRUCTURED) {
        bool list = op->flags & TNI_OP_LIST_OUT;
        op->run = list ? tni_run_list : tni_run_structured;
        op->infer = list ? tni_added_infer_dtype : tni_added_infer;
        op->infer_list = list ? tni_added_infer_list : NULL;
        return read_shape_rule(o);
    }
    op->run = d->kind == TN_OP_POINTWISE ? tni_run_pointwise : tni_run_reduction;
    return check_planned(o);
}

static void set_flags(tni_added *o) {
    tn_op *op = &o->op;
    op->flags |= TNI_OP_ADDED | TNI_OP_NO_INPLACE;
    if (op->nout == 0 || (op->flags & TNI_OP_LIST_OUT)) op->flags |= TNI_OP_NO_OUT;
    if (o->desc.flags & TN_OPF_PACK) op->flags |= TNI_OP_CONTIGUOUS;
    if (op->info.kind == TN_OP_STRUCTURED) {
        op->flags |= TNI_OP_CAST;
        op->takes = tni_added_takes;
    }
    if (op->info.kind == TN_OP_POINTWISE && op->compute_rule != TNI_COMPUTE_BOOL &&
        op->result_rule <= TNI_RESULT_BOOL)
        op->flags |= TNI_OP_PACKED;
    if (op->info.kind == TN_OP_POINTWISE && op->compute_rule == TNI_COMPUTE_FLOAT)
        op->flags |= TNI_OP_FLOATING;
}

static tn_status read_autocast(tni_added *o) {
    static const char *const rules[] = {"", "low", "float32", "widest"};
    const char *text = o->desc.autocast;
    uint8_t rule = TNI_AUTOCAST_NONE;
    if (text && (!*text || !one_of(rules, TN_COUNT(rules), text, strlen(text), &rule)))
        return fault(o, "autocast '%s' is none of low, float32, widest", text);
    o->op.autocast[0] = o->op.autocast[1] = rule;
    return TN_OK;
}

static tn_status read_vmap(tni_added *o) {
    const char *text = o->desc.vmap;
    o->op.vmap = !text && o->op.info.kind == TN_OP_POINTWISE ? "pointwise" : text;
    if (!text || strcmp(text, "pointwise") == 0 || strcmp(text, "batch") == 0) return TN_OK;
    return fault(o, "vmap '%s' is none of pointwise, batch", text);
}

/* "acme::layer_norm" -> "LayerNormBackward0", as autograd names nodes. */
static tn_status name_node(tni_added *o) {
    const char *name = strstr(o->op.info.name, "::") + 2;
    char *node = tni_arena_take(&o->arena, strlen(name) + sizeof "Backward0");
    bool upper = true;
    size_t n = 0;
    if (!node) return TN_E_MEMORY;
    for (; *name && *name != '@'; name++) {
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
    int32_t result = tni_result_of(TN_F32, op->result_rule);
    bool floats = tn_dtype_category(result) >= TN_CAT_FLOAT &&
                  !(op->info.kind != TN_OP_COMPOSITE && op->compute_rule == TNI_COMPUTE_BOOL);
    if (whole || (!text && !floats) || (text && strcmp(text, "none") == 0)) return;
    op->grad = text ? tni_added_gradient : tni_no_derivative;
    for (int i = 0; i < op->nfields; i++) {
        tn_field *f = (tn_field *)(uintptr_t)&op->fields[i];
        /* of what is written only the first argument has a history; note [Written arguments] */
        bool history = !(f->flags & TNI_FIELD_MUTATED) || (op->nout == 0 && i == op->in_field[0]);
        if (f->kind <= TN_F_OPERAND)
            f->flags |= history ? TNI_FIELD_DIFF : 0;
        else if (f->kind < TN_F_OUT)
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
    o->op.version = (uint16_t)s.version;
    if (d->kind > TN_OP_COMPOSITE)
        return fault(o, "kind %u is none of pointwise, reduction, structured, composite",
                     (unsigned)d->kind);
    if (d->flags & ~(TN_OPF_PACK | TN_OPF_CAST))
        return fault(o, "flags 0x%x are unknown to this Tenon", (unsigned)d->flags);
    TN_TRY(fill_fields(o, &s));
    if (d->args_bytes && d->args_bytes != (uint32_t)s.args_bytes)
        return fault(o, "the argument struct of '%s' has %d bytes, the plugin's has %u", d->schema,
                     (int)s.args_bytes, (unsigned)d->args_bytes);
    TN_TRY(read_rules(o));
    TN_TRY(read_autocast(o));
    TN_TRY(read_vmap(o));
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
           x->composite == y->composite && x->count == y->count &&
           same_text(x->autocast, y->autocast) && same_text(x->vmap, y->vmap);
}

tn_status tni_added_link(tni_added *o, tni_op_finder finder) {
    const tn_op_desc *d = &o->desc;
    if (o->published) return TN_OK; /* linked when it was added the first time */
    if (d->formula)
        TN_TRY(tni_formula_compile(o, TNI_FORMULA_FORWARD, d->formula, finder, &o->forward));
    if (o->op.grad == tni_added_gradient)
        TN_TRY(tni_formula_compile(o, TNI_FORMULA_GRADIENT, d->gradient, finder, &o->backward));
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
