/* formula_call.c: the steps of a formula that is compiled: equal ones are one, calls are checked against the
 * operator's fields. */
#include <stdio.h>

#include "formula_priv.h"

tn_status tni_formula_fault(const tni_compiler *c, const char *fmt, ...) {
    char what[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return tn_fail(TN_E_PLUGIN, -1, "operator '%s', %s%s, column %d: %s%s%.40s%s",
                   c->o->op.info.name, c->use == TNI_FORMULA_GRADIENT ? "gradient" : "formula",
                   c->part, (int)(c->at - c->text) + 1, what, *c->at ? ", at '" : "", c->at,
                   *c->at ? "'" : "");
}

/* ---- Steps -------------------------------------------------------------------------------------*/

static bool same_step(const tni_step *a, const tni_step *b) {
    if (a->what != b->what || a->sign != b->sign || a->op != b->op || a->noperands != b->noperands)
        return false;
    if (a->op && memcmp(a->image, b->image, a->op->args_bytes) != 0) return false;
    for (int i = 0; i < a->noperands; i++) {
        if (a->operands[i].field != b->operands[i].field) return false;
        if (memcmp(&a->operands[i].term, &b->operands[i].term, sizeof(tni_term)) != 0) return false;
    }
    return true;
}

/* Whether the step runs wherever steps under that guard do. */
static bool runs_within(const tni_formula *f, uint16_t guard, const tni_step *s) {
    while (guard != s->guard && guard) guard = f->guard[guard].outer;
    return guard == s->guard;
}

tn_status tni_formula_step(tni_compiler *c, tni_step s, tni_value_kind kind, tni_term *ret_term) {
    tni_formula *f = c->f;
    int32_t width = s.op ? s.op->nout : 1, i = 0;
    while (i < f->nsteps && !(same_step(&f->step[i], &s) && runs_within(f, c->guard, &f->step[i])))
        i++;
    if (i == f->nsteps) {
        s.guard = c->guard;
        if (f->nsteps == TNI_MAX_STEPS || f->nregs + width > TNI_MAX_STEPS)
            return tni_formula_fault(c, "it has more than %d steps", TNI_MAX_STEPS);
        s.reg = (uint16_t)f->nregs;
        f->nregs += width;
        f->step[f->nsteps++] = s;
    }
    *ret_term = tni_term_new(TNI_FROM_STEP, kind);
    ret_term->at = (uint16_t)i;
    return TN_OK;
}

/* A step over one or two values. */
tn_status tni_formula_small(tni_compiler *c, tni_step_kind what, char sign, tni_term a, tni_term b,
                            tni_value_kind kind, tni_term *ret_term) {
    tni_operand *operands = tni_arena_take(&c->o->arena, sizeof *operands * 2);
    if (!operands) return TN_E_MEMORY;
    operands[0].term = a;
    operands[1].term = b;
    tni_step s = {.what = (uint8_t)what, .sign = sign, .noperands = 2, .operands = operands};
    return tni_formula_step(c, s, kind, ret_term);
}

/* ---- Calls -------------------------------------------------------------------------------------*/

const char *tni_kind_text(tni_value_kind kind) {
    static const char *const texts[] = {
        "None",
        "a tensor",
        "a list of tensors",
        "a number",
        "a list of sizes",
        "a dtype or device",
        "a text",
        "several results (pick one by [0])",
    };
    return texts[kind];
}

/* May a value of this term stand for that field? */
static bool fits(const tni_term *t, const tn_field *f) {
    bool none = t->kind == TNI_V_NONE, number = t->kind == TNI_V_NUMBER;
    switch (f->kind) {
    case TN_F_TENSOR: return t->kind == TNI_V_TENSOR || number;
    case TN_F_TENSOR_OPT: return t->kind == TNI_V_TENSOR || number || none;
    case TN_F_OPERAND: return t->kind == TNI_V_TENSOR || number;
    case TN_F_TENSORS: return t->kind == TNI_V_TENSORS;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT:
    case TN_F_FLOAT_OPT:
    case TN_F_SCALAR_OPT: return number || none;
    case TN_F_INTS:
    case TN_F_DIMS: return t->kind == TNI_V_INTS || number || none;
    case TN_F_STR:
    case TN_F_GENERATOR: return none || (t->kind == TNI_V_POINTER && t->field_kind == f->kind);
    case TN_F_DTYPE:
    case TN_F_DEVICE:
    case TN_F_FORMAT: return none || (t->kind == TNI_V_CODE && t->field_kind == f->kind);
    default: return number;
    }
}

static const tn_field *find_field(const tn_op *op, const char *name) {
    for (int i = 0; i < op->nfields; i++)
        if (!tni_is_result(&op->fields[i]) && strcmp(op->fields[i].name, name) == 0)
            return &op->fields[i];
    return NULL;
}

static bool is_given(const tn_field *f, const tni_operand *operands, int n) {
    while (n > 0 && operands[n - 1].field != f) n--;
    return n > 0;
}

/* May the operator be called with these operands? */
static tn_status check_call(const tni_compiler *c, const tn_op *op, const tni_operand *operands,
                            int n) {
    const char *name = op->info.name;
    for (int i = 0; i < n; i++) {
        const tn_field *f = operands[i].field;
        if (!fits(&operands[i].term, f))
            return tni_formula_fault(c, "argument '%s' of '%s' cannot be %s", f->name, name,
                                     tni_kind_text(operands[i].term.kind));
        if (is_given(f, operands, i))
            return tni_formula_fault(c, "argument '%s' of '%s' is given twice", f->name, name);
    }
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        if (!tni_is_result(f) && !f->deflt && !is_given(f, operands, n))
            return tni_formula_fault(c, "argument '%s' of '%s' is missing", f->name, name);
    }
    return TN_OK;
}

/* The step of a call that was checked: keeps the operands, and fills in the defaults. */
tn_status tni_formula_call(tni_compiler *c, const tn_op *op, const tni_operand *operands, int n,
                           tni_term *ret_term) {
    void *image = tni_arena_take(&c->o->arena, op->args_bytes);
    tni_operand *kept = tni_arena_take(&c->o->arena, sizeof *kept * (size_t)(n + 1));
    if (!image || !kept) return TN_E_MEMORY;
    memcpy(kept, operands, sizeof *kept * (size_t)n);
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        if (!tni_is_result(f) && !is_given(f, operands, n))
            TN_TRY(tni_default_store(f, &c->o->arena, image));
    }
    tni_step s = {.what = TNI_STEP_CALL,
                  .noperands = (uint16_t)n,
                  .op = op,
                  .image = image,
                  .operands = kept};
    tni_value_kind one = op->flags & TNI_OP_LIST_OUT ? TNI_V_TENSORS : TNI_V_TENSOR;
    return tni_formula_step(c, s, op->nout == 1 ? one : TNI_V_RESULTS, ret_term);
}

static bool has_value(const tn_op *op) {
    return !(op->flags & TNI_OP_INPLACE_ONLY) && op->nout > 0;
}

/* The next operator of the table, from number *at on, whose public name that is: an overload. */
const tn_op *tni_formula_overload(const char *name, int *at) {
    size_t n = strlen(name);
    while (*at < tni_op_count) {
        const tn_op *op = tni_ops[(*at)++];
        const char *schema = op->info.schema;
        if (strncmp(schema, name, n) == 0 && schema[n] == '(' && has_value(op) &&
            !strchr(op->info.name, '@'))
            return op;
    }
    return NULL;
}

/* The operator of that name, or the first of its overloads. */
tn_status tni_formula_find(const tni_compiler *c, const char *name, const tn_op **ret_op) {
    int at = 0;
    const tn_op *op = c->finder.find(c->finder.ctx, name);
    if (!op) op = tni_formula_overload(name, &at);
    if (!op) return tni_formula_fault(c, "there is no operator '%s'", name);
    if (!has_value(op))
        return tni_formula_fault(c, "'%s' cannot be called in a formula: it writes to its argument",
                                 name);
    *ret_op = op;
    return TN_OK;
}

/* Which arguments of the operator are meant; a failure stands at the one that does not fit. */
tn_status tni_formula_bind(tni_compiler *c, const tn_op *op, const tni_argument *a, int n,
                           tni_operand *operands) {
    memset(operands, 0, sizeof *operands * (size_t)n);
    for (int i = 0; i < n; i++) {
        const tn_field *f = NULL;
        c->at = a[i].at;
        if (a[i].keyword) {
            f = find_field(op, a[i].keyword);
            if (!f)
                return tni_formula_fault(c, "'%s' has no argument '%s'", op->info.name,
                                         a[i].keyword);
        } else {
            f = i < op->nfields ? &op->fields[i] : NULL;
            if (!f || tni_is_result(f))
                return tni_formula_fault(c, "'%s' takes only %d positional arguments",
                                         op->info.name, i);
        }
        operands[i].field = f;
        operands[i].term = a[i].term;
    }
    return check_call(c, op, operands, n);
}

/* A call of a built-in operator with these arguments: what the signs stand for. */
tn_status tni_formula_operator(tni_compiler *c, const char *name, const tni_term *a,
                               const tni_term *b, tni_term *ret_term) {
    const tn_op *op = NULL;
    tni_operand operands[2];
    memset(operands, 0, sizeof operands);
    TN_TRY(tni_formula_find(c, name, &op));
    operands[0].field = &op->fields[0];
    operands[0].term = *a;
    if (b) {
        operands[1].field = &op->fields[1];
        operands[1].term = *b;
    }
    TN_TRY(check_call(c, op, operands, b ? 2 : 1));
    return tni_formula_call(c, op, operands, b ? 2 : 1, ret_term);
}
