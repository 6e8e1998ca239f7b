/* formula_priv.h: what the compiler's files share: formula.c reads the text, formula_call.c makes the steps. */
#ifndef TENON_FORMULA_PRIV_H
#define TENON_FORMULA_PRIV_H

#include "steps_priv.h"

enum { TNI_WORD_BYTES = 104 };

typedef struct tni_compiler {
    tni_added *o;
    tni_op_finder finder;
    tni_formula_use use;
    tni_formula *f;
    const char *text, *at;
    const char *word; /* where the last word began */
    char part[64];    /* which formula of the text, for messages */
    int depth;
    uint16_t guard; /* of the steps that are being made; see tni_guard */
} tni_compiler;

static inline tni_term tni_term_new(tni_source from, tni_value_kind kind) {
    tni_term t;
    memset(&t, 0, sizeof t); /* terms are compared as bytes */
    t.from = (uint8_t)from;
    t.kind = (uint8_t)kind;
    return t;
}

static inline tni_term tni_term_number(tn_scalar s) {
    tni_term t = tni_term_new(TNI_FROM_CONSTANT, TNI_V_NUMBER);
    t.constant.number = s;
    return t;
}

static inline bool tni_is_result(const tn_field *f) {
    return f->kind == TN_F_OUT || f->kind == TN_F_OUTS;
}

/* What stands between the brackets of a call. */
typedef struct tni_argument {
    const char *keyword, *at; /* keyword NULL: positional */
    tni_term term;
} tni_argument;

/* TN_E_PLUGIN with the operator, the place and what is wrong there. */
tn_status tni_formula_fault(const tni_compiler *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* "a list of sizes" and so on. */
const char *tni_kind_text(tni_value_kind kind);
/* Adds the step, or finds its twin; *ret_term is its value. */
tn_status tni_formula_step(tni_compiler *c, tni_step s, tni_value_kind kind, tni_term *ret_term);
/* A step over one or two values. */
tn_status tni_formula_small(tni_compiler *c, tni_step_kind what, char sign, tni_term a, tni_term b,
                            tni_value_kind kind, tni_term *ret_term);
/* The operator of that name, or the first of its overloads. */
tn_status tni_formula_find(const tni_compiler *c, const char *name, const tn_op **ret_op);
/* The next operator of the table, from number *at on, whose public name that is: an overload. */
const tn_op *tni_formula_overload(const char *name, int *at);
/* Which arguments of the operator are meant; a failure stands at the one that does not fit. */
tn_status tni_formula_bind(tni_compiler *c, const tn_op *op, const tni_argument *a, int n,
                           tni_operand *operands);
/* The step of a call that was checked: keeps the operands, and fills in the defaults. */
tn_status tni_formula_call(tni_compiler *c, const tn_op *op, const tni_operand *operands, int n,
                           tni_term *ret_term);
/* A call of a built-in operator with these arguments: what the signs stand for. */
tn_status tni_formula_operator(tni_compiler *c, const char *name, const tni_term *a,
                               const tni_term *b, tni_term *ret_term);

#endif
