/* formula.c: compiles the formulas of operators that plugins add; steps.c runs them.
 *
 * A recursive descent over the text that emits steps as it goes. Equal calls are one step, so that
 * two gradients may both name the backward operator that computes both. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ask_priv.h"
#include "formula_priv.h"
#include "scan_priv.h"

#include "formula_words.inc"

enum { MAX_DEPTH = 50, MAX_PARTS = 40 };

/* ---- Words -------------------------------------------------------------------------------------*/

/* A name, possibly qualified as a::b and with a version as b@2; the empty text when there is none. */
static void take_word(tni_compiler *c, char *word) {
    tni_scan_skip(&c->at);
    c->word = c->at;
    size_t n = tni_scan_name(c->at), more;
    while (n > 0 && strncmp(c->at + n, "::", 2) == 0 && (more = tni_scan_name(c->at + n + 2)) > 0)
        n += 2 + more;
    if (n > 0 && c->at[n] == '@') n += 1 + strspn(c->at + n + 1, "0123456789");
    if (n >= TNI_WORD_BYTES) n = 0;
    memcpy(word, c->at, n);
    word[n] = '\0';
    c->at += n;
}

static tn_status expression(tni_compiler *c, tni_term *ret_term);

/* "name=", not "name=="; leaves c->at alone when there is none. */
static bool take_keyword(tni_compiler *c, char *word) {
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
    if (inout_term->kind != TNI_V_NUMBER || inout_term->from != TNI_FROM_CONSTANT) return false;
    for (int i = 0; i < TN_COUNT(functions); i++) {
        if (strcmp(functions[i].name, name) != 0) continue;
        *inout_term =
            tni_term_number(tn_scalar_float(functions[i].fn(inout_term->constant.number.re)));
        return true;
    }
    return false;
}

static tn_status read_arguments(tni_compiler *c, tni_argument *a, int *ret_n) {
    char word[TNI_WORD_BYTES];
    int n = 0;
    while (!tni_scan_take(&c->at, ")")) {
        if (n > 0 && !tni_scan_take(&c->at, ","))
            return tni_formula_fault(c, "',' or ')' is expected");
        if (n == TNI_SCHEMA_FIELDS) return tni_formula_fault(c, "the call has too many arguments");
        tni_scan_skip(&c->at);
        a[n].at = c->at;
        a[n].keyword = NULL;
        if (take_keyword(c, word)) {
            a[n].keyword = tni_arena_text(&c->o->arena, word, strlen(word));
            if (!a[n].keyword) return TN_E_MEMORY;
        } else if (n > 0 && a[n - 1].keyword) {
            return tni_formula_fault(c, "a positional argument follows a keyword");
        }
        TN_TRY(expression(c, &a[n++].term));
    }
    *ret_n = n;
    return TN_OK;
}

static tn_status call(tni_compiler *c, const char *name, tni_term *ret_term) {
    tni_argument arguments[TNI_SCHEMA_FIELDS];
    tni_operand operands[TNI_SCHEMA_FIELDS];
    const tn_op *first = NULL, *op;
    const char *word = c->word, *behind = c->at;
    int n = 0, at = 0;
    c->at = word;
    TN_TRY(tni_formula_find(c, name, &first));
    c->at = behind;
    TN_TRY(read_arguments(c, arguments, &n));
    if (n == 1 && !arguments[0].keyword && fold_call(name, &arguments[0].term)) {
        *ret_term = arguments[0].term;
        return TN_OK;
    }
    behind = c->at;
    tn_status st = tni_formula_bind(c, first, arguments, n, operands);
    for (op = first; st != TN_OK && (op = tni_formula_overload(name, &at)) != NULL;)
        st = tni_formula_bind(c, op, arguments, n, operands);
    if (st != TN_OK)
        return tni_formula_bind(c, first, arguments, n, operands); /* the message is the first's */
    c->at = behind;
    return tni_formula_call(c, op, operands, n, ret_term);
}

/* ---- Signs -------------------------------------------------------------------------------------*/

/* What a sign makes of two constants is a constant. */
static bool fold_sign(char sign, tni_term a, tni_term b, tni_term *ret_term) {
    tn_scalar s;
    if (a.from != TNI_FROM_CONSTANT || b.from != TNI_FROM_CONSTANT) return false;
    if (tni_number_compute(sign, a.constant.number, b.constant.number, &s) != TN_OK) return false;
    *ret_term = tni_term_number(s);
    return true;
}

static tn_status binary(tni_compiler *c, const struct sign *sign, tni_term a, tni_term b,
                        tni_term *ret_term) {
    bool numbers = a.kind == TNI_V_NUMBER && b.kind == TNI_V_NUMBER;
    if (numbers && fold_sign(sign->code, a, b, ret_term)) return TN_OK;
    if (numbers)
        return tni_formula_small(c, TNI_STEP_NUMBER, sign->code, a, b, TNI_V_NUMBER, ret_term);
    bool texts = a.kind == TNI_V_POINTER && b.kind == TNI_V_POINTER && a.field_kind == TN_F_STR;
    if (texts && b.field_kind == TN_F_STR && strchr("=!", sign->code))
        return tni_formula_small(c, TNI_STEP_TEXTS, sign->code, a, b, TNI_V_NUMBER, ret_term);
    tni_value_kind odd = a.kind != TNI_V_TENSOR && a.kind != TNI_V_NUMBER ? a.kind : b.kind;
    if (odd != TNI_V_TENSOR && odd != TNI_V_NUMBER)
        return tni_formula_fault(c, "there is no computing with %s", tni_kind_text(odd));
    return tni_formula_operator(c, sign->op, &a, &b, ret_term);
}

static tn_status negate(tni_compiler *c, tni_term a, tni_term *ret_term) {
    if (a.kind == TNI_V_TENSOR) return tni_formula_operator(c, "neg", &a, NULL, ret_term);
    if (a.kind != TNI_V_NUMBER)
        return tni_formula_fault(c, "there is no minus %s", tni_kind_text(a.kind));
    if (a.from == TNI_FROM_CONSTANT) {
        tn_scalar s = a.constant.number;
        *ret_term = tni_term_number(s.kind == TN_CAT_COMPLEX ? tn_scalar_complex(-s.re, -s.im)
                                    : s.kind == TN_CAT_FLOAT ? tn_scalar_float(-s.re)
                                                             : tn_scalar_int(-s.i));
        return TN_OK;
    }
    return tni_formula_small(c, TNI_STEP_NUMBER, '_', a, a, TNI_V_NUMBER, ret_term);
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
    tni_term t = tni_term_new(TNI_FROM_FIELD, kind_of_field(op->fields[i].kind));
    t.field_kind = op->fields[i].kind;
    t.at = (uint16_t)i;
    return t;
}

/* "grad" or "g", of one result, and with "_y" the gradient of result y. */
static bool names_gradient(const char *word, const char *result, bool only) {
    for (int i = 0; i < TN_COUNT(gradients); i++) {
        size_t n = strlen(gradients[i]);
        if (strncmp(word, gradients[i], n) != 0) continue;
        if (word[n] ? word[n] == '_' && strcmp(word + n + 1, result) == 0 : only) return true;
    }
    return false;
}

static tn_status name(tni_compiler *c, const char *word, tni_term *ret_term) {
    const tn_op *op = &c->o->op;
    bool gradient = c->use == TNI_FORMULA_GRADIENT;
    if (strcmp(word, "None") == 0) {
        *ret_term = tni_term_new(TNI_FROM_CONSTANT, TNI_V_NONE);
        return TN_OK;
    }
    if (strcmp(word, "True") == 0 || strcmp(word, "False") == 0) {
        *ret_term = tni_term_number(tn_scalar_bool(word[0] == 'T'));
        return TN_OK;
    }
    bool results = gradient && !(op->flags & TNI_OP_LIST_OUT);
    for (int i = 0; i < op->nfields; i++) {
        if (strcmp(op->fields[i].name, word) != 0 || (!results && tni_is_result(&op->fields[i])))
            continue;
        *ret_term = field_term(op, i);
        return TN_OK;
    }
    for (int i = 0; gradient && i < (op->nout ? op->nout : 1); i++) {
        /* an operator that returns nothing results in its first argument */
        const char *result = op->fields[op->nout ? op->out_field[i] : op->in_field[0]].name;
        bool list = op->flags & TNI_OP_LIST_OUT;
        if (!names_gradient(word, result, op->nout <= 1)) continue;
        *ret_term = tni_term_new(TNI_FROM_GRAD, list ? TNI_V_TENSORS : TNI_V_TENSOR);
        ret_term->at = (uint16_t)i;
        return TN_OK;
    }
    for (int i = 0; i < TN_COUNT(constants); i++) {
        if (strcmp(constants[i].name, word) != 0) continue;
        *ret_term = tni_term_number(tn_scalar_float(constants[i].value));
        return TN_OK;
    }
    c->at = c->word;
    return tni_formula_fault(c, "the name '%s' means nothing here", word);
}

/* ---- Expressions -------------------------------------------------------------------------------*/

static tn_status number(tni_compiler *c, tni_term *ret_term) {
    char *end;
    size_t digits = strspn(c->at, "0123456789");
    errno = 0;
    if (digits > 0 && !strchr(".eEj", c->at[digits] ? c->at[digits] : ' '))
        *ret_term = tni_term_number(tn_scalar_int(strtoll(c->at, &end, 10)));
    else
        *ret_term = tni_term_number(tn_scalar_float(strtod(c->at, &end)));
    if (errno == ERANGE && ret_term->constant.number.kind == TN_CAT_INT)
        return tni_formula_fault(c, "the whole number is larger than int64 holds");
    if (*end == 'j') {
        double size = ret_term->constant.number.re;
        *ret_term = tni_term_number(tn_scalar_complex(0, size));
        end++;
    }
    if (end == c->at || isalpha((unsigned char)*end))
        return tni_formula_fault(c, "this is no number");
    c->at = end;
    return TN_OK;
}

static tn_status text(tni_compiler *c, tni_term *ret_term) {
    char quote = *c->at++;
    const char *end = strchr(c->at, quote);
    if (!end) return tni_formula_fault(c, "a text does not end");
    *ret_term = tni_term_new(TNI_FROM_CONSTANT, TNI_V_POINTER);
    ret_term->field_kind = TN_F_STR;
    ret_term->constant.pointer = tni_arena_text(&c->o->arena, c->at, (size_t)(end - c->at));
    c->at = end + 1;
    return ret_term->constant.pointer ? TN_OK : TN_E_MEMORY;
}

static tn_status list(tni_compiler *c, tni_term *ret_term) {
    tni_operand items[MAX_PARTS];
    int n = 0;
    memset(items, 0, sizeof items);
    while (!tni_scan_take(&c->at, "]")) {
        if (n > 0 && !tni_scan_take(&c->at, ","))
            return tni_formula_fault(c, "',' or ']' is expected");
        if (n == MAX_PARTS) return tni_formula_fault(c, "the list is too long");
        TN_TRY(expression(c, &items[n].term));
        tni_value_kind kind = items[n].term.kind;
        if ((kind != TNI_V_NUMBER && kind != TNI_V_TENSOR) || kind != items[0].term.kind)
            return tni_formula_fault(c, "a list holds numbers, or tensors");
        n++;
    }
    tni_operand *kept = tni_arena_take(&c->o->arena, sizeof *kept * (size_t)(n + 1));
    if (!kept) return TN_E_MEMORY;
    memcpy(kept, items, sizeof *kept * (size_t)n);
    bool tensors = n > 0 && kept[0].term.kind == TNI_V_TENSOR;
    tni_step s = {.what = tensors ? TNI_STEP_TENSORS : TNI_STEP_LIST,
                  .noperands = (uint16_t)n,
                  .operands = kept};
    return tni_formula_step(c, s, tensors ? TNI_V_TENSORS : TNI_V_INTS, ret_term);
}

static tn_status primary(tni_compiler *c, tni_term *ret_term) {
    char word[TNI_WORD_BYTES];
    tni_scan_skip(&c->at);
    if (isdigit((unsigned char)*c->at) || *c->at == '.') return number(c, ret_term);
    if (*c->at == '\'' || *c->at == '"') return text(c, ret_term);
    if (tni_scan_take(&c->at, "[")) return list(c, ret_term);
    if (tni_scan_take(&c->at, "(")) {
        TN_TRY(expression(c, ret_term));
        return tni_scan_take(&c->at, ")") ? TN_OK : tni_formula_fault(c, "')' is expected");
    }
    take_word(c, word);
    if (!word[0]) return tni_formula_fault(c, "a value is expected");
    return tni_scan_take(&c->at, "(") ? call(c, word, ret_term) : name(c, word, ret_term);
}

static tn_status attribute(tni_compiler *c, tni_term *t) {
    char word[TNI_WORD_BYTES];
    take_word(c, word);
    if (t->kind != TNI_V_TENSOR)
        return tni_formula_fault(c, "%s has no attributes", tni_kind_text(t->kind));
    for (int i = 0; i < TN_COUNT(attributes); i++) {
        if (strcmp(attributes[i].name, word) != 0) continue;
        TN_TRY(tni_formula_small(c, attributes[i].step, 0, *t, *t, attributes[i].kind, t));
        t->field_kind = attributes[i].field_kind;
        return TN_OK;
    }
    return tni_formula_fault(c, "tensors have no '.%s' here (shape, ndim, numel, dtype, device)",
                             word);
}

static tn_status item(tni_compiler *c, tni_term *t) {
    tni_term index;
    TN_TRY(expression(c, &index));
    if (!tni_scan_take(&c->at, "]")) return tni_formula_fault(c, "']' is expected");
    if (index.kind != TNI_V_NUMBER) return tni_formula_fault(c, "an index is a number");
    if (t->kind == TNI_V_INTS)
        return tni_formula_small(c, TNI_STEP_ITEM, 0, *t, index, TNI_V_NUMBER, t);
    if (t->kind == TNI_V_TENSORS)
        return tni_formula_small(c, TNI_STEP_PICK, 0, *t, index, TNI_V_TENSOR, t);
    if (t->kind != TNI_V_RESULTS)
        return tni_formula_fault(c, "%s has no items", tni_kind_text(t->kind));
    int64_t n = c->f->step[t->at].op->nout, i = index.constant.number.i;
    if (index.from != TNI_FROM_CONSTANT || i < 0 || i >= n)
        return tni_formula_fault(c, "the call has results 0 to %d", (int)n - 1);
    t->kind = TNI_V_TENSOR;
    t->nr = (uint16_t)i;
    return TN_OK;
}

static tn_status postfix(tni_compiler *c, tni_term *ret_term) {
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
static const struct sign *take_sign(tni_compiler *c, int level) {
    for (int i = 0; i < TN_COUNT(signs); i++)
        if (signs[i].level == level && tni_scan_take(&c->at, signs[i].text)) return &signs[i];
    return NULL;
}

/* -x ** 2 is -(x ** 2), and 2 ** -x is fine. */
static tn_status unary(tni_compiler *c, tni_term *ret_term) {
    tni_term right;
    const struct sign *power;
    if (++c->depth > MAX_DEPTH) return tni_formula_fault(c, "it is nested too deeply");
    if (tni_scan_take(&c->at, "-")) {
        TN_TRY(unary(c, &right));
        TN_TRY(negate(c, right, ret_term));
    } else if (tni_scan_take(&c->at, "~")) {
        TN_TRY(unary(c, &right));
        TN_TRY(tni_formula_operator(c, "bitwise_not", &right, NULL, ret_term));
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

/* Steps over that word; false: another thing comes. */
static bool take_given(tni_compiler *c, const char *word) {
    tni_scan_skip(&c->at);
    size_t n = tni_scan_name(c->at);
    if (n != strlen(word) || strncmp(c->at, word, n) != 0) return false;
    c->at += n;
    return true;
}

static tn_status need_number(const tni_compiler *c, const tni_term *t) {
    if (t->kind == TNI_V_NUMBER) return TN_OK;
    return tni_formula_fault(c, "a condition is a number, not %s", tni_kind_text(t->kind));
}

static tn_status opposite(tni_compiler *c, tni_term a, tni_term *ret_term) {
    TN_TRY(need_number(c, &a));
    return tni_formula_small(c, TNI_STEP_NUMBER, 'n', a, a, TNI_V_NUMBER, ret_term);
}

/* Behind `is`: None, or not None. */
static tn_status compare_none(tni_compiler *c, tni_term *ret_term) {
    bool given = take_given(c, "not");
    tni_value_kind kind = ret_term->kind;
    if (!take_given(c, "None")) return tni_formula_fault(c, "'None' is expected");
    if (kind == TNI_V_TENSORS || kind == TNI_V_CODE || kind == TNI_V_RESULTS)
        return tni_formula_fault(c, "%s is never None", tni_kind_text(kind));
    TN_TRY(tni_formula_small(c, TNI_STEP_ABSENT, 0, *ret_term, *ret_term, TNI_V_NUMBER, ret_term));
    return given ? opposite(c, *ret_term, ret_term) : TN_OK;
}

static tn_status signs_from(tni_compiler *c, int level, tni_term *ret_term) {
    tni_term right;
    const struct sign *sign;
    if (level == LEVEL_UNARY) return unary(c, ret_term);
    TN_TRY(signs_from(c, level + 1, ret_term));
    if (level == LEVEL_COMPARE && take_given(c, "is")) return compare_none(c, ret_term);
    for (int n = 0; (sign = take_sign(c, level)) != NULL; n++) {
        if (level == LEVEL_COMPARE && n > 0)
            return tni_formula_fault(c, "a comparison of a comparison needs brackets");
        TN_TRY(signs_from(c, level + 1, &right));
        TN_TRY(binary(c, sign, *ret_term, right, ret_term));
    }
    return TN_OK;
}

/* ---- Conditions --------------------------------------------------------------------------------*/

/* From here on steps run where the number is true, or is not. */
static tn_status enter(tni_compiler *c, tni_term number, bool want) {
    tni_formula *f = c->f;
    if (f->nguards == TNI_MAX_GUARDS)
        return tni_formula_fault(c, "it has more than %d branches", TNI_MAX_GUARDS);
    f->guard[++f->nguards] = (tni_guard){number, c->guard, want};
    c->guard = (uint16_t)f->nguards;
    return TN_OK;
}

static tn_status add_choice(tni_compiler *c, tni_term which, tni_term a, tni_term b,
                            tni_term *ret_term) {
    bool numbers = a.kind == TNI_V_NUMBER && b.kind == TNI_V_NUMBER;
    for (int i = 0; i < 2; i++) {
        tni_value_kind kind = i ? b.kind : a.kind;
        if (kind != TNI_V_NUMBER && kind != TNI_V_TENSOR && kind != TNI_V_NONE)
            return tni_formula_fault(c, "a condition does not choose %s", tni_kind_text(kind));
    }
    tni_operand *operands = tni_arena_take(&c->o->arena, sizeof *operands * 3);
    if (!operands) return TN_E_MEMORY;
    operands[0].term = which;
    operands[1].term = a;
    operands[2].term = b;
    tni_step s = {
        .what = numbers ? TNI_STEP_EITHER : TNI_STEP_CHOSEN, .noperands = 3, .operands = operands};
    return tni_formula_step(c, s, numbers ? TNI_V_NUMBER : TNI_V_TENSOR, ret_term);
}

static tn_status negation(tni_compiler *c, tni_term *ret_term) {
    if (!take_given(c, "not")) return signs_from(c, LEVEL_COMPARE, ret_term);
    if (++c->depth > MAX_DEPTH) return tni_formula_fault(c, "it is nested too deeply");
    TN_TRY(negation(c, ret_term));
    c->depth--;
    return opposite(c, *ret_term, ret_term);
}

/* a and b, a or b: as in C, b is looked at where a does not decide, and the value is a bool. */
static tn_status logic(tni_compiler *c, bool all, tni_term *ret_term) {
    TN_TRY(all ? negation(c, ret_term) : logic(c, true, ret_term));
    while (take_given(c, all ? "and" : "or")) {
        uint16_t outer = c->guard;
        tni_term left = *ret_term, right, known = tni_term_number(tn_scalar_bool(!all));
        TN_TRY(need_number(c, &left));
        TN_TRY(enter(c, left, all));
        TN_TRY(all ? negation(c, &right) : logic(c, true, &right));
        TN_TRY(opposite(c, right, &right));
        TN_TRY(opposite(c, right, &right));
        c->guard = outer;
        TN_TRY(add_choice(c, left, all ? right : known, all ? known : right, ret_term));
    }
    return TN_OK;
}

/* Behind the `if` of the expression that begins here; NULL where there is none. */
static const char *find_if(const char *at) {
    for (int depth = 0; *at && depth >= 0; at++) {
        size_t n = tni_scan_name(at);
        const char *quoted = *at == '\'' || *at == '"' ? strchr(at + 1, *at) : NULL;
        if (quoted) at = quoted;
        if (depth == 0 && ((n == 4 && strncmp(at, "else", 4) == 0) || strchr(",;:", *at))) break;
        if (depth == 0 && n == 2 && strncmp(at, "if", 2) == 0) return at + 2;
        if (n) at += n - 1;
        depth += strchr("([", *at) ? 1 : strchr(")]", *at) ? -1 : 0;
    }
    return NULL;
}

/* a if number else b. The number is compiled first, as it is computed first; of a and b the one that
 * it chooses runs. */
static tn_status expression(tni_compiler *c, tni_term *ret_term) {
    const char *start = c->at, *condition = find_if(start), *behind;
    tni_term number, a, b;
    uint16_t outer = c->guard;
    if (!condition) return logic(c, false, ret_term);
    if (++c->depth > MAX_DEPTH) return tni_formula_fault(c, "it is nested too deeply");
    c->at = condition;
    TN_TRY(logic(c, false, &number));
    TN_TRY(need_number(c, &number));
    if (!take_given(c, "else")) return tni_formula_fault(c, "'else' is expected");
    behind = c->at;
    c->at = start;
    TN_TRY(enter(c, number, true));
    TN_TRY(logic(c, false, &a));
    if (!take_given(c, "if") || c->at != condition) return tni_formula_fault(c, "'if' is expected");
    c->at = behind;
    c->guard = outer;
    TN_TRY(enter(c, number, false));
    TN_TRY(expression(c, &b));
    c->guard = outer;
    c->depth--;
    return add_choice(c, number, a, b, ret_term);
}

/* ---- Who reads what ----------------------------------------------------------------------------*/

/* Marks the step that a term comes from; of a gradient also what the tape has to save. */
static void mark(tni_compiler *c, const tni_term *t, uint64_t readers, bool geometry) {
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
static void mark_all(tni_compiler *c) {
    for (int i = 0; i < TN_MAX_OPERANDS; i++)
        if (c->f->given >> i & 1u) mark(c, &c->f->value[i], UINT64_C(1) << i, false);
    for (int32_t i = c->f->nsteps - 1; i >= 0; i--) {
        const tni_step *s = &c->f->step[i];
        bool geometry = s->what >= TNI_STEP_SHAPE && s->what <= TNI_STEP_DEVICE;
        for (int k = 0; k < s->noperands; k++) mark(c, &s->operands[k].term, s->readers, geometry);
        for (uint16_t g = s->guard; g; g = c->f->guard[g].outer)
            mark(c, &c->f->guard[g].number, s->readers, false);
    }
}

/* ---- Whole texts -------------------------------------------------------------------------------*/

/* The target of that name, any for NULL; -1 when there is none. */
static int target_of(const tni_compiler *c, const char *word, const tn_field **ret_field) {
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
static bool take_label(tni_compiler *c, char *word) {
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

static tn_status one_formula(tni_compiler *c, int target, bool list) {
    tni_formula *f = c->f;
    char word[TNI_WORD_BYTES];
    const char *start = c->at;
    take_word(c, word);
    tni_scan_skip(&c->at);
    if (strcmp(word, "none") == 0 && (*c->at == ';' || !*c->at) && c->use == TNI_FORMULA_GRADIENT) {
        f->none |= UINT64_C(1) << target;
        return TN_OK;
    }
    c->at = start;
    c->depth = c->guard = 0;
    TN_TRY(expression(c, &f->value[target]));
    tni_scan_skip(&c->at);
    if (*c->at && *c->at != ';') return tni_formula_fault(c, "the formula ends here");
    tni_value_kind kind = f->value[target].kind;
    if (list && kind != TNI_V_TENSORS)
        return tni_formula_fault(c, "its value is %s, not a list of tensors", tni_kind_text(kind));
    if (!list && kind != TNI_V_TENSOR && kind != TNI_V_NUMBER)
        return tni_formula_fault(c, "its value is %s, not a tensor", tni_kind_text(kind));
    f->lists |= (uint64_t)list << target;
    f->given |= UINT64_C(1) << target;
    return TN_OK;
}

static tn_status all_formulas(tni_compiler *c) {
    const tn_op *op = &c->o->op;
    char word[TNI_WORD_BYTES];
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
                return tni_formula_fault(c, "there is no such %s",
                                         gradient ? "tensor argument" : "result");
        } else if (gradient || targets_of_forward(op) > 1) {
            return tni_formula_fault(c,
                                     "it starts with the name that it is for, as in 'input: grad'");
        }
        if ((c->f->given | c->f->none) >> target & 1u)
            return tni_formula_fault(c, "it is given twice");
        TN_TRY(one_formula(c, target, field->kind == TN_F_TENSORS || field->kind == TN_F_OUTS));
    } while (tni_scan_take(&c->at, ";"));
    uint64_t all = (UINT64_C(1) << op->nout) - 1;
    c->part[0] = '\0';
    if (!gradient && (c->f->given & all) != all)
        return tni_formula_fault(c, "a result has no formula");
    if (!gradient && !c->f->given) return tni_formula_fault(c, "no argument is written");
    return TN_OK;
}

tn_status tni_formula_compile(tni_added *o, tni_formula_use use, const char *text,
                              tni_op_finder finder, tni_formula **ret_formula) {
    tni_compiler c = {.o = o, .finder = finder, .use = use, .text = text, .at = text};
    c.f = tni_arena_take(&o->arena, sizeof *c.f);
    if (!c.f) return TN_E_MEMORY;
    c.f->fields = o->op.fields;
    TN_TRY(all_formulas(&c));
    mark_all(&c);
    *ret_formula = c.f;
    return TN_OK;
}
