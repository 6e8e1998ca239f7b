/* formula.c: compiles the formulas of operators that plugins add; steps.c runs them.
 *
 * A recursive descent over the text that emits steps as it goes. Equal calls are one step, so that
 * two gradients may both name the backward operator that computes both. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ask_priv.h"
#include "scan_priv.h"
#include "steps_priv.h"

enum { MAX_DEPTH = 50, WORD_BYTES = 104, MAX_PARTS = 40 };

typedef struct compiler {
    tni_added *o;
    tni_op_finder finder;
    tni_formula_use use;
    tni_formula *f;
    const char *text, *at;
    const char *word; /* where the last word began */
    char part[64];    /* which formula of the text, for messages */
    int depth;
} compiler;

static tn_status fault(const compiler *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static tn_status fault(const compiler *c, const char *fmt, ...) {
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

/* ---- Words -------------------------------------------------------------------------------------*/

/* A name, possibly qualified as a::b and with a version as b@2; the empty text when there is none. */
static void take_word(compiler *c, char *word) {
    tni_scan_skip(&c->at);
    c->word = c->at;
    size_t n = tni_scan_name(c->at), more;
    while (n > 0 && strncmp(c->at + n, "::", 2) == 0 && (more = tni_scan_name(c->at + n + 2)) > 0)
        n += 2 + more;
    if (n > 0 && c->at[n] == '@') n += 1 + strspn(c->at + n + 1, "0123456789");
    if (n >= WORD_BYTES) n = 0;
    memcpy(word, c->at, n);
    word[n] = '\0';
    c->at += n;
}

/* ---- Steps -------------------------------------------------------------------------------------*/

static tni_term new_term(tni_source from, tni_value_kind kind) {
    tni_term t;
    memset(&t, 0, sizeof t); /* terms are compared as bytes */
    t.from = (uint8_t)from;
    t.kind = (uint8_t)kind;
    return t;
}

static tni_term number_term(tn_scalar s) {
    tni_term t = new_term(TNI_FROM_CONSTANT, TNI_V_NUMBER);
    t.constant.number = s;
    return t;
}

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

/* Adds the step, or finds its twin; *ret_term is its value. */
static tn_status add_step(compiler *c, tni_step s, tni_value_kind kind, tni_term *ret_term) {
    tni_formula *f = c->f;
    int32_t width = s.op ? s.op->nout : 1, i = 0;
    while (i < f->nsteps && !same_step(&f->step[i], &s)) i++;
    if (i == f->nsteps) {
        if (f->nsteps == TNI_MAX_STEPS || f->nregs + width > TNI_MAX_STEPS)
            return fault(c, "it has more than %d steps", TNI_MAX_STEPS);
        s.reg = (uint16_t)f->nregs;
        f->nregs += width;
        f->step[f->nsteps++] = s;
    }
    *ret_term = new_term(TNI_FROM_STEP, kind);
    ret_term->at = (uint16_t)i;
    return TN_OK;
}

/* A step over one or two values. */
static tn_status add_small(compiler *c, tni_step_kind what, char sign, tni_term a, tni_term b,
                           tni_value_kind kind, tni_term *ret_term) {
    tni_operand *operands = tni_arena_take(&c->o->arena, sizeof *operands * 2);
    if (!operands) return TN_E_MEMORY;
    operands[0].term = a;
    operands[1].term = b;
    tni_step s = {.what = (uint8_t)what, .sign = sign, .noperands = 2, .operands = operands};
    return add_step(c, s, kind, ret_term);
}

/* ---- Calls -------------------------------------------------------------------------------------*/

static const char *kind_text(tni_value_kind kind) {
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

static bool is_result(const tn_field *f) { return f->kind == TN_F_OUT || f->kind == TN_F_OUTS; }

static const tn_field *find_field(const tn_op *op, const char *name) {
    for (int i = 0; i < op->nfields; i++)
        if (!is_result(&op->fields[i]) && strcmp(op->fields[i].name, name) == 0)
            return &op->fields[i];
    return NULL;
}

static bool is_given(const tn_field *f, const tni_operand *operands, int n) {
    while (n > 0 && operands[n - 1].field != f) n--;
    return n > 0;
}

/* May the operator be called with these operands? */
static tn_status check_call(const compiler *c, const tn_op *op, const tni_operand *operands,
                            int n) {
    const char *name = op->info.name;
    for (int i = 0; i < n; i++) {
        const tn_field *f = operands[i].field;
        if (!fits(&operands[i].term, f))
            return fault(c, "argument '%s' of '%s' cannot be %s", f->name, name,
                         kind_text(operands[i].term.kind));
        if (is_given(f, operands, i))
            return fault(c, "argument '%s' of '%s' is given twice", f->name, name);
    }
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        if (!is_result(f) && !f->deflt && !is_given(f, operands, n))
            return fault(c, "argument '%s' of '%s' is missing", f->name, name);
    }
    return TN_OK;
}

/* The step of a call that was checked: keeps the operands, and fills in the defaults. */
static tn_status finish_call(compiler *c, const tn_op *op, const tni_operand *operands, int n,
                             tni_term *ret_term) {
    void *image = tni_arena_take(&c->o->arena, op->args_bytes);
    tni_operand *kept = tni_arena_take(&c->o->arena, sizeof *kept * (size_t)(n + 1));
    if (!image || !kept) return TN_E_MEMORY;
    memcpy(kept, operands, sizeof *kept * (size_t)n);
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        if (!is_result(f) && !is_given(f, operands, n))
            TN_TRY(tni_default_store(f, &c->o->arena, image));
    }
    tni_step s = {.what = TNI_STEP_CALL,
                  .noperands = (uint16_t)n,
                  .op = op,
                  .image = image,
                  .operands = kept};
    tni_value_kind one = op->flags & TNI_OP_LIST_OUT ? TNI_V_TENSORS : TNI_V_TENSOR;
    return add_step(c, s, op->nout == 1 ? one : TNI_V_RESULTS, ret_term);
}

static bool has_value(const tn_op *op) {
    return !(op->flags & TNI_OP_INPLACE_ONLY) && op->nout > 0;
}

/* The next operator of the table, from number *at on, whose public name that is: an overload. */
static const tn_op *next_overload(const char *name, int *at) {
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
static tn_status find_op(const compiler *c, const char *name, const tn_op **ret_op) {
    int at = 0;
    const tn_op *op = c->finder.find(c->finder.ctx, name);
    if (!op) op = next_overload(name, &at);
    if (!op) return fault(c, "there is no operator '%s'", name);
    if (!has_value(op))
        return fault(c, "'%s' cannot be called in a formula: it writes to its argument", name);
    *ret_op = op;
    return TN_OK;
}

static tn_status expression(compiler *c, tni_term *ret_term);

/* "name=", not "name=="; leaves c->at alone when there is none. */
static bool take_keyword(compiler *c, char *word) {
    const char *start = c->at;
    take_word(c, word);
    tni_scan_skip(&c->at);
    if (word[0] && c->at[0] == '=' && c->at[1] != '=') {
        c->at++;
        return true;
    }
    c->at = start;
    return false;
}

/* Functions of constants are computed here, in double, as their arguments' signs are. */
static bool fold_call(const char *name, tni_term *inout_term) {
    static const struct {
        const char *name;
        double (*fn)(double);
    } known[] = {{"sqrt", sqrt}, {"exp", exp}, {"log", log},
                 {"sin", sin},   {"cos", cos}, {"tan", tan}};
    if (inout_term->kind != TNI_V_NUMBER || inout_term->from != TNI_FROM_CONSTANT) return false;
    for (int i = 0; i < TN_COUNT(known); i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        *inout_term = number_term(tn_scalar_float(known[i].fn(inout_term->constant.number.re)));
        return true;
    }
    return false;
}

/* What stands between the brackets of a call. */
typedef struct argument {
    const char *keyword, *at; /* keyword NULL: positional */
    tni_term term;
} argument;

static tn_status read_arguments(compiler *c, argument *a, int *ret_n) {
    char word[WORD_BYTES];
    int n = 0;
    while (!tni_scan_take(&c->at, ")")) {
        if (n > 0 && !tni_scan_take(&c->at, ",")) return fault(c, "',' or ')' is expected");
        if (n == TNI_SCHEMA_FIELDS) return fault(c, "the call has too many arguments");
        tni_scan_skip(&c->at);
        a[n].at = c->at;
        a[n].keyword = NULL;
        if (take_keyword(c, word)) {
            a[n].keyword = tni_arena_text(&c->o->arena, word, strlen(word));
            if (!a[n].keyword) return TN_E_MEMORY;
        } else if (n > 0 && a[n - 1].keyword) {
            return fault(c, "a positional argument follows a keyword");
        }
        TN_TRY(expression(c, &a[n++].term));
    }
    *ret_n = n;
    return TN_OK;
}

/* Which arguments of the operator are meant; a failure stands at the one that does not fit. */
static tn_status bind(compiler *c, const tn_op *op, const argument *a, int n,
                      tni_operand *operands) {
    memset(operands, 0, sizeof *operands * (size_t)n);
    for (int i = 0; i < n; i++) {
        const tn_field *f = NULL;
        c->at = a[i].at;
        if (a[i].keyword) {
            f = find_field(op, a[i].keyword);
            if (!f) return fault(c, "'%s' has no argument '%s'", op->info.name, a[i].keyword);
        } else {
            f = i < op->nfields ? &op->fields[i] : NULL;
            if (!f || is_result(f) || (f->flags & TNI_FIELD_KWONLY))
                return fault(c, "'%s' takes only %d positional arguments", op->info.name, i);
        }
        operands[i].field = f;
        operands[i].term = a[i].term;
    }
    return check_call(c, op, operands, n);
}

static tn_status call(compiler *c, const char *name, tni_term *ret_term) {
    argument arguments[TNI_SCHEMA_FIELDS];
    tni_operand operands[TNI_SCHEMA_FIELDS];
    const tn_op *first = NULL, *op;
    const char *word = c->word, *behind = c->at;
    int n = 0, at = 0;
    c->at = word;
    TN_TRY(find_op(c, name, &first));
    c->at = behind;
    TN_TRY(read_arguments(c, arguments, &n));
    if (n == 1 && !arguments[0].keyword && fold_call(name, &arguments[0].term)) {
        *ret_term = arguments[0].term;
        return TN_OK;
    }
    behind = c->at;
    tn_status st = bind(c, first, arguments, n, operands);
    for (op = first; st != TN_OK && (op = next_overload(name, &at)) != NULL;)
        st = bind(c, op, arguments, n, operands);
    if (st != TN_OK) return bind(c, first, arguments, n, operands); /* the message is the first's */
    c->at = behind;
    return finish_call(c, op, operands, n, ret_term);
}

/* ---- Signs -------------------------------------------------------------------------------------*/

/* By precedence, as in Python; of two that begin alike the longer first. */
static const struct sign {
    const char *text, *op;
    char code; /* of a step with two numbers */
    int level;
} signs[] = {
    {"<=", "le", 'l', 0},
    {">=", "ge", 'g', 0},
    {"==", "eq", '=', 0},
    {"!=", "ne", '!', 0},
    {"<", "lt", '<', 0},
    {">", "gt", '>', 0},
    {"|", "bitwise_or", '|', 1},
    {"&", "bitwise_and", '&', 2},
    {"+", "add", '+', 3},
    {"-", "sub", '-', 3},
    {"//", "floor_divide", 'q', 4},
    {"*", "mul", '*', 4},
    {"/", "true_divide", '/', 4},
    {"%", "remainder", '%', 4},
    {"**", "pow", '^', 5},
};
enum { LEVEL_COMPARE = 0, LEVEL_UNARY = 5 };

/* A call of a built-in operator with these arguments: what the signs stand for. */
static tn_status call_sign(compiler *c, const char *name, const tni_term *a, const tni_term *b,
                           tni_term *ret_term) {
    const tn_op *op = NULL;
    tni_operand operands[2];
    memset(operands, 0, sizeof operands);
    TN_TRY(find_op(c, name, &op));
    operands[0].field = &op->fields[0];
    operands[0].term = *a;
    if (b) {
        operands[1].field = &op->fields[1];
        operands[1].term = *b;
    }
    TN_TRY(check_call(c, op, operands, b ? 2 : 1));
    return finish_call(c, op, operands, b ? 2 : 1, ret_term);
}

/* What a sign makes of two constants is a constant. */
static bool fold_sign(char sign, tni_term a, tni_term b, tni_term *ret_term) {
    tn_scalar s;
    if (a.from != TNI_FROM_CONSTANT || b.from != TNI_FROM_CONSTANT) return false;
    if (tni_number_compute(sign, a.constant.number, b.constant.number, &s) != TN_OK) return false;
    *ret_term = number_term(s);
    return true;
}

static tn_status binary(compiler *c, const struct sign *sign, tni_term a, tni_term b,
                        tni_term *ret_term) {
    bool numbers = a.kind == TNI_V_NUMBER && b.kind == TNI_V_NUMBER;
    if (numbers && fold_sign(sign->code, a, b, ret_term)) return TN_OK;
    if (numbers) return add_small(c, TNI_STEP_NUMBER, sign->code, a, b, TNI_V_NUMBER, ret_term);
    tni_value_kind odd = a.kind != TNI_V_TENSOR && a.kind != TNI_V_NUMBER ? a.kind : b.kind;
    if (odd != TNI_V_TENSOR && odd != TNI_V_NUMBER)
        return fault(c, "there is no computing with %s", kind_text(odd));
    return call_sign(c, sign->op, &a, &b, ret_term);
}

static tn_status negate(compiler *c, tni_term a, tni_term *ret_term) {
    if (a.kind == TNI_V_TENSOR) return call_sign(c, "neg", &a, NULL, ret_term);
    if (a.kind != TNI_V_NUMBER) return fault(c, "there is no minus %s", kind_text(a.kind));
    if (a.from == TNI_FROM_CONSTANT) {
        tn_scalar s = a.constant.number;
        *ret_term =
            number_term(s.kind == TN_CAT_FLOAT ? tn_scalar_float(-s.re) : tn_scalar_int(-s.i));
        return TN_OK;
    }
    return add_small(c, TNI_STEP_NUMBER, '_', a, a, TNI_V_NUMBER, ret_term);
}

/* ---- Names -------------------------------------------------------------------------------------*/

static tni_value_kind kind_of_field(uint16_t kind) {
    switch (kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND:
    case TN_F_OUT: return TNI_V_TENSOR;
    case TN_F_TENSORS: return TNI_V_TENSORS;
    case TN_F_INTS:
    case TN_F_DIMS: return TNI_V_INTS;
    case TN_F_DTYPE:
    case TN_F_DEVICE:
    case TN_F_FORMAT: return TNI_V_CODE;
    case TN_F_STR:
    case TN_F_GENERATOR: return TNI_V_POINTER;
    default: return TNI_V_NUMBER;
    }
}

static tni_term field_term(const tn_op *op, int i) {
    tni_term t = new_term(TNI_FROM_FIELD, kind_of_field(op->fields[i].kind));
    t.field_kind = op->fields[i].kind;
    t.at = (uint16_t)i;
    return t;
}

static tn_status name(compiler *c, const char *word, tni_term *ret_term) {
    const tn_op *op = &c->o->op;
    bool gradient = c->use == TNI_FORMULA_GRADIENT;
    if (strcmp(word, "None") == 0) {
        *ret_term = new_term(TNI_FROM_CONSTANT, TNI_V_NONE);
        return TN_OK;
    }
    if (strcmp(word, "True") == 0 || strcmp(word, "False") == 0) {
        *ret_term = number_term(tn_scalar_bool(word[0] == 'T'));
        return TN_OK;
    }
    bool results = gradient && !(op->flags & TNI_OP_LIST_OUT);
    for (int i = 0; i < op->nfields; i++) {
        if (strcmp(op->fields[i].name, word) != 0 || (!results && is_result(&op->fields[i])))
            continue;
        *ret_term = field_term(op, i);
        return TN_OK;
    }
    for (int i = 0; gradient && i < (op->nout ? op->nout : 1); i++) {
        /* an operator that returns nothing results in its first argument */
        const char *result = op->fields[op->nout ? op->out_field[i] : op->in_field[0]].name;
        bool whole = op->nout <= 1 && strcmp(word, "grad") == 0;
        bool list = op->flags & TNI_OP_LIST_OUT;
        if (!whole && (strncmp(word, "grad_", 5) != 0 || strcmp(word + 5, result) != 0)) continue;
        *ret_term = new_term(TNI_FROM_GRAD, list ? TNI_V_TENSORS : TNI_V_TENSOR);
        ret_term->at = (uint16_t)i;
        return TN_OK;
    }
    if (strcmp(word, "pi") == 0) {
        *ret_term = number_term(tn_scalar_float(3.14159265358979323846));
        return TN_OK;
    }
    c->at = c->word;
    return fault(c, "the name '%s' means nothing here", word);
}

/* ---- Expressions -------------------------------------------------------------------------------*/

static tn_status number(compiler *c, tni_term *ret_term) {
    char *end;
    size_t digits = strspn(c->at, "0123456789");
    if (digits > 0 && !strchr(".eE", c->at[digits] ? c->at[digits] : ' '))
        *ret_term = number_term(tn_scalar_int(strtoll(c->at, &end, 10)));
    else
        *ret_term = number_term(tn_scalar_float(strtod(c->at, &end)));
    if (end == c->at || isalpha((unsigned char)*end)) return fault(c, "this is no number");
    c->at = end;
    return TN_OK;
}

static tn_status text(compiler *c, tni_term *ret_term) {
    char quote = *c->at++;
    const char *end = strchr(c->at, quote);
    if (!end) return fault(c, "a text does not end");
    *ret_term = new_term(TNI_FROM_CONSTANT, TNI_V_POINTER);
    ret_term->field_kind = TN_F_STR;
    ret_term->constant.pointer = tni_arena_text(&c->o->arena, c->at, (size_t)(end - c->at));
    c->at = end + 1;
    return ret_term->constant.pointer ? TN_OK : TN_E_MEMORY;
}

static tn_status list(compiler *c, tni_term *ret_term) {
    tni_operand items[MAX_PARTS];
    int n = 0;
    memset(items, 0, sizeof items);
    while (!tni_scan_take(&c->at, "]")) {
        if (n > 0 && !tni_scan_take(&c->at, ",")) return fault(c, "',' or ']' is expected");
        if (n == MAX_PARTS) return fault(c, "the list is too long");
        TN_TRY(expression(c, &items[n].term));
        tni_value_kind kind = items[n].term.kind;
        if ((kind != TNI_V_NUMBER && kind != TNI_V_TENSOR) || kind != items[0].term.kind)
            return fault(c, "a list holds numbers, or tensors");
        n++;
    }
    tni_operand *kept = tni_arena_take(&c->o->arena, sizeof *kept * (size_t)(n + 1));
    if (!kept) return TN_E_MEMORY;
    memcpy(kept, items, sizeof *kept * (size_t)n);
    bool tensors = n > 0 && kept[0].term.kind == TNI_V_TENSOR;
    tni_step s = {.what = tensors ? TNI_STEP_TENSORS : TNI_STEP_LIST,
                  .noperands = (uint16_t)n,
                  .operands = kept};
    return add_step(c, s, tensors ? TNI_V_TENSORS : TNI_V_INTS, ret_term);
}

static tn_status primary(compiler *c, tni_term *ret_term) {
    char word[WORD_BYTES];
    tni_scan_skip(&c->at);
    if (isdigit((unsigned char)*c->at) || *c->at == '.') return number(c, ret_term);
    if (*c->at == '\'' || *c->at == '"') return text(c, ret_term);
    if (tni_scan_take(&c->at, "[")) return list(c, ret_term);
    if (tni_scan_take(&c->at, "(")) {
        TN_TRY(expression(c, ret_term));
        return tni_scan_take(&c->at, ")") ? TN_OK : fault(c, "')' is expected");
    }
    take_word(c, word);
    if (!word[0]) return fault(c, "a value is expected");
    return tni_scan_take(&c->at, "(") ? call(c, word, ret_term) : name(c, word, ret_term);
}

static tn_status attribute(compiler *c, tni_term *t) {
    static const struct {
        const char *name;
        uint16_t step, kind, field_kind;
    } known[] = {
        {"shape", TNI_STEP_SHAPE, TNI_V_INTS, TN_F_INTS},
        {"ndim", TNI_STEP_NDIM, TNI_V_NUMBER, TN_F_INT},
        {"numel", TNI_STEP_NUMEL, TNI_V_NUMBER, TN_F_INT},
        {"dtype", TNI_STEP_DTYPE, TNI_V_CODE, TN_F_DTYPE},
        {"device", TNI_STEP_DEVICE, TNI_V_CODE, TN_F_DEVICE},
    };
    char word[WORD_BYTES];
    take_word(c, word);
    if (t->kind != TNI_V_TENSOR) return fault(c, "%s has no attributes", kind_text(t->kind));
    for (int i = 0; i < TN_COUNT(known); i++) {
        if (strcmp(known[i].name, word) != 0) continue;
        TN_TRY(add_small(c, known[i].step, 0, *t, *t, known[i].kind, t));
        t->field_kind = known[i].field_kind;
        return TN_OK;
    }
    return fault(c, "tensors have no '.%s' here (shape, ndim, numel, dtype, device)", word);
}

static tn_status item(compiler *c, tni_term *t) {
    tni_term index;
    TN_TRY(expression(c, &index));
    if (!tni_scan_take(&c->at, "]")) return fault(c, "']' is expected");
    if (index.kind != TNI_V_NUMBER) return fault(c, "an index is a number");
    if (t->kind == TNI_V_INTS) return add_small(c, TNI_STEP_ITEM, 0, *t, index, TNI_V_NUMBER, t);
    if (t->kind == TNI_V_TENSORS) return add_small(c, TNI_STEP_PICK, 0, *t, index, TNI_V_TENSOR, t);
    if (t->kind != TNI_V_RESULTS) return fault(c, "%s has no items", kind_text(t->kind));
    int64_t n = c->f->step[t->at].op->nout, i = index.constant.number.i;
    if (index.from != TNI_FROM_CONSTANT || i < 0 || i >= n)
        return fault(c, "the call has results 0 to %d", (int)n - 1);
    t->kind = TNI_V_TENSOR;
    t->nr = (uint16_t)i;
    return TN_OK;
}

static tn_status postfix(compiler *c, tni_term *ret_term) {
    TN_TRY(primary(c, ret_term));
    for (;;) {
        if (tni_scan_take(&c->at, "."))
            TN_TRY(attribute(c, ret_term));
        else if (tni_scan_take(&c->at, "["))
            TN_TRY(item(c, ret_term));
        else
            return TN_OK;
    }
}

/* The sign of that level that comes next, and steps over it; NULL: another thing comes. */
static const struct sign *take_sign(compiler *c, int level) {
    for (int i = 0; i < TN_COUNT(signs); i++)
        if (signs[i].level == level && tni_scan_take(&c->at, signs[i].text)) return &signs[i];
    return NULL;
}

/* -x ** 2 is -(x ** 2), and 2 ** -x is fine. */
static tn_status unary(compiler *c, tni_term *ret_term) {
    tni_term right;
    const struct sign *power;
    if (++c->depth > MAX_DEPTH) return fault(c, "it is nested too deeply");
    if (tni_scan_take(&c->at, "-")) {
        TN_TRY(unary(c, &right));
        TN_TRY(negate(c, right, ret_term));
    } else if (tni_scan_take(&c->at, "~")) {
        TN_TRY(unary(c, &right));
        TN_TRY(call_sign(c, "bitwise_not", &right, NULL, ret_term));
    } else {
        TN_TRY(postfix(c, ret_term));
        if ((power = take_sign(c, LEVEL_UNARY)) != NULL) {
            TN_TRY(unary(c, &right));
            TN_TRY(binary(c, power, *ret_term, right, ret_term));
        }
    }
    c->depth--;
    return TN_OK;
}

static tn_status signs_from(compiler *c, int level, tni_term *ret_term) {
    tni_term right;
    const struct sign *sign;
    if (level == LEVEL_UNARY) return unary(c, ret_term);
    TN_TRY(signs_from(c, level + 1, ret_term));
    for (int n = 0; (sign = take_sign(c, level)) != NULL; n++) {
        if (level == LEVEL_COMPARE && n > 0)
            return fault(c, "a comparison of a comparison needs brackets");
        TN_TRY(signs_from(c, level + 1, &right));
        TN_TRY(binary(c, sign, *ret_term, right, ret_term));
    }
    return TN_OK;
}

static tn_status expression(compiler *c, tni_term *ret_term) {
    return signs_from(c, LEVEL_COMPARE, ret_term);
}

/* ---- Who reads what ----------------------------------------------------------------------------*/

/* Marks the step that a term comes from; of a gradient also what the tape has to save. */
static void mark(compiler *c, const tni_term *t, uint64_t readers, bool geometry) {
    if (t->from == TNI_FROM_STEP) c->f->step[t->at].readers |= readers;
    if (t->from != TNI_FROM_FIELD || c->use != TNI_FORMULA_GRADIENT) return;
    tn_field *f = (tn_field *)(uintptr_t)&c->o->op.fields[t->at];
    if (geometry) {
        f->flags |= TNI_FIELD_SAVED_SHAPE;
    } else if (t->kind == TNI_V_TENSOR || t->kind == TNI_V_TENSORS) {
        f->flags |= TNI_FIELD_SAVED;
        f->flags = (uint16_t)(f->flags | readers << TNI_FIELD_READERS_SHIFT);
    }
}

/* Backwards, since a step is read by later ones. */
static void mark_all(compiler *c) {
    for (int i = 0; i < TN_MAX_OPERANDS; i++)
        if (c->f->given >> i & 1u) mark(c, &c->f->value[i], UINT64_C(1) << i, false);
    for (int32_t i = c->f->nsteps - 1; i >= 0; i--) {
        const tni_step *s = &c->f->step[i];
        bool geometry = s->what >= TNI_STEP_SHAPE && s->what <= TNI_STEP_DEVICE;
        for (int k = 0; k < s->noperands; k++) mark(c, &s->operands[k].term, s->readers, geometry);
    }
}

/* ---- Whole texts -------------------------------------------------------------------------------*/

/* The target of that name, any for NULL; -1 when there is none. */
static int target_of(const compiler *c, const char *word, const tn_field **ret_field) {
    const tn_op *op = &c->o->op;
    bool gradient = c->use == TNI_FORMULA_GRADIENT;
    for (int i = 0; i < op->nout && !gradient; i++) {
        *ret_field = &op->fields[op->out_field[i]];
        if (!word || strcmp((*ret_field)->name, word) == 0) return i;
    }
    for (int i = 0; i < op->nin; i++) {
        *ret_field = &op->fields[op->in_field[i]];
        if (!gradient && !((*ret_field)->flags & TNI_FIELD_MUTATED)) continue;
        if (!word || strcmp((*ret_field)->name, word) == 0) return gradient ? i : op->nout + i;
    }
    return -1;
}

static int targets_of_forward(const tn_op *op) {
    int n = op->nout;
    for (int i = 0; i < op->nin; i++)
        n += (op->fields[op->in_field[i]].flags & TNI_FIELD_MUTATED) != 0;
    return n;
}

/* "name:" and not "name::"; leaves c->at alone when there is none. */
static bool take_label(compiler *c, char *word) {
    const char *start = c->at;
    take_word(c, word);
    tni_scan_skip(&c->at);
    if (word[0] && c->at[0] == ':' && c->at[1] != ':') {
        c->at++;
        return true;
    }
    c->at = start;
    return false;
}

static tn_status one_formula(compiler *c, int target, bool list) {
    tni_formula *f = c->f;
    char word[WORD_BYTES];
    const char *start = c->at;
    take_word(c, word);
    tni_scan_skip(&c->at);
    if (strcmp(word, "none") == 0 && (*c->at == ';' || !*c->at) && c->use == TNI_FORMULA_GRADIENT) {
        f->none |= UINT64_C(1) << target;
        return TN_OK;
    }
    c->at = start;
    c->depth = 0;
    TN_TRY(expression(c, &f->value[target]));
    tni_scan_skip(&c->at);
    if (*c->at && *c->at != ';') return fault(c, "the formula ends here");
    tni_value_kind kind = f->value[target].kind;
    if (list && kind != TNI_V_TENSORS)
        return fault(c, "its value is %s, not a list of tensors", kind_text(kind));
    if (!list && kind != TNI_V_TENSOR && kind != TNI_V_NUMBER)
        return fault(c, "its value is %s, not a tensor", kind_text(kind));
    f->lists |= (uint64_t)list << target;
    f->given |= UINT64_C(1) << target;
    return TN_OK;
}

static tn_status all_formulas(compiler *c) {
    const tn_op *op = &c->o->op;
    char word[WORD_BYTES];
    bool gradient = c->use == TNI_FORMULA_GRADIENT;
    do {
        const tn_field *field = NULL;
        int target = target_of(c, NULL, &field);
        tni_scan_skip(&c->at);
        if (!*c->at) break; /* after the last ';' */
        if (take_label(c, word)) {
            target = target_of(c, word, &field);
            snprintf(c->part, sizeof c->part, " of '%.40s'", word);
            if (target < 0)
                return fault(c, "there is no such %s", gradient ? "tensor argument" : "result");
        } else if (gradient || targets_of_forward(op) > 1) {
            return fault(c, "it starts with the name that it is for, as in 'input: grad'");
        }
        if ((c->f->given | c->f->none) >> target & 1u) return fault(c, "it is given twice");
        TN_TRY(one_formula(c, target, field->kind == TN_F_TENSORS || field->kind == TN_F_OUTS));
    } while (tni_scan_take(&c->at, ";"));
    uint64_t all = (UINT64_C(1) << op->nout) - 1;
    c->part[0] = '\0';
    if (!gradient && (c->f->given & all) != all) return fault(c, "a result has no formula");
    if (!gradient && !c->f->given) return fault(c, "no argument is written");
    return TN_OK;
}

tn_status tni_formula_compile(tni_added *o, tni_formula_use use, const char *text,
                              tni_op_finder finder, tni_formula **ret_formula) {
    compiler c = {.o = o, .finder = finder, .use = use, .text = text, .at = text};
    c.f = tni_arena_take(&o->arena, sizeof *c.f);
    if (!c.f) return TN_E_MEMORY;
    c.f->fields = o->op.fields;
    TN_TRY(all_formulas(&c));
    mark_all(&c);
    *ret_formula = c.f;
    return TN_OK;
}
