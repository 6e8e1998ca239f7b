/* steps_priv.h: a compiled formula: formula.c makes it, steps.c runs it.
 *
 * A formula is a list of steps; each computes one value, or the results of one call, from arguments of the
 * operator, incoming gradients, constants and earlier steps. Kinds of values are known when it is
 * compiled, so that nothing is parsed, looked up or checked by name in a call. */
#ifndef TENON_STEPS_PRIV_H
#define TENON_STEPS_PRIV_H

#include "added_priv.h"

enum { TNI_MAX_STEPS = 64, TNI_MAX_GUARDS = 16 };

/* What a value is. A number is an int, float, bool or complex number, or an optional one that is not
 * given; a code is a dtype, device or memory format; a pointer is a text or a generator. */
typedef enum tni_value_kind {
    TNI_V_NONE,
    TNI_V_TENSOR, /* may be NULL where the argument may */
    TNI_V_TENSORS,
    TNI_V_NUMBER,
    TNI_V_INTS,
    TNI_V_CODE,
    TNI_V_POINTER,
    TNI_V_RESULTS /* of a call with several: one must be picked */
} tni_value_kind;

typedef union tni_value {
    tn_tensor *t;
    tn_views list;
    tn_scalar number;
    tn_ints ints;
    int64_t code;
    const void *pointer;
} tni_value;

typedef enum tni_source {
    TNI_FROM_CONSTANT,
    TNI_FROM_FIELD,
    TNI_FROM_GRAD,
    TNI_FROM_STEP
} tni_source;

/* Where a value comes from. Zeroed before it is filled, so that two can be compared as bytes. */
typedef struct tni_term {
    uint8_t from;        /* tni_source */
    uint8_t kind;        /* tni_value_kind */
    uint16_t field_kind; /* TN_F_*, of fields, codes and pointers */
    uint16_t at;         /* the field's index, the gradient's number, or the step's */
    uint16_t nr;         /* which result of the step */
    tni_value constant;
} tni_term;

typedef enum tni_step_kind {
    TNI_STEP_CALL,
    TNI_STEP_NUMBER, /* a sign and two numbers; '_' is minus one number, 'n' not one */
    TNI_STEP_SHAPE,
    TNI_STEP_NDIM,
    TNI_STEP_NUMEL,
    TNI_STEP_DTYPE,
    TNI_STEP_COMPLEX,
    TNI_STEP_ABSENT, /* a is None */
    TNI_STEP_DEVICE,
    TNI_STEP_TEXTS,  /* '=' or '!' of two texts */
    TNI_STEP_EITHER, /* b if a else c: of numbers */
    TNI_STEP_CHOSEN, /* the same of tensors, and numbers that become one */
    TNI_STEP_ITEM,   /* a[b] of a list of sizes */
    TNI_STEP_PICK,   /* a[b] of a list of tensors */
    TNI_STEP_LIST,   /* numbers as a list of sizes */
    TNI_STEP_TENSORS /* tensors as a list */
} tni_step_kind;

typedef struct tni_operand {
    const tn_field *field; /* of the operator that is called; NULL in a list */
    tni_term term;
} tni_operand;

typedef struct tni_step {
    uint8_t what; /* tni_step_kind */
    char sign;
    uint16_t noperands;
    uint16_t reg;     /* of the first result */
    uint16_t guard;   /* it runs where that one holds; 0: always */
    uint64_t readers; /* the formulas that need it, as a mask */
    const tn_op *op;
    const void *image; /* the called operator's argument struct, with its defaults */
    const tni_operand *operands;
} tni_step;

/* Steps of a branch run where the branch is taken: where `number`, which is computed under the guard
 * `outer`, is true or is not. */
typedef struct tni_guard {
    tni_term number;
    uint16_t outer;
    bool want;
} tni_guard;

/* One formula per target; see tni_formula_given. */
struct tni_formula {
    const tn_field *fields; /* of the operator it belongs to */
    int32_t nsteps, nregs, nguards;
    uint64_t given, none; /* masks over `value` */
    uint64_t lists;       /* the targets that are lists of tensors */
    tni_term value[TN_MAX_OPERANDS];
    tni_step step[TNI_MAX_STEPS];
    tni_guard guard[TNI_MAX_GUARDS + 1]; /* the first is none */
};

/* The value of an argument. */
tni_value tni_field_value(const tn_field *f, const void *args);
bool tni_number_true(tn_scalar s);
/* a + b and so on; '^' is a power, '_' minus a, 'n' not a. */
tn_status tni_number_compute(char sign, tn_scalar a, tn_scalar b, tn_scalar *ret);

#endif
