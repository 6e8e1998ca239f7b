/* added_priv.h: operators that plugins add: the parts of schema.c, formula.c and opadd.c.
 *
 * An added operator is a tn_op like those of the table, with its texts, fields and formulas in an
 * arena of its own. Once published it lives as long as the process. */
#ifndef TENON_ADDED_PRIV_H
#define TENON_ADDED_PRIV_H

#include "device_priv.h"

/* ---- Memory of one operator --------------------------------------------------------------------*/
typedef struct tni_arena_block tni_arena_block;
typedef struct tni_arena {
    tni_arena_block *blocks;
} tni_arena;
/* Zeroed bytes; NULL: out of memory, which is recorded as the failure. */
void *tni_arena_take(tni_arena *a, size_t bytes);
char *tni_arena_text(tni_arena *a, const char *from, size_t n);
void tni_arena_free(tni_arena *a);

/* ---- schema.c ----------------------------------------------------------------------------------*/
enum { TNI_SCHEMA_FIELDS = 40 };
/* A signature as data, laid out as the argument struct. */
typedef struct tni_schema {
    const char *name; /* "acme::gelu"; of a version after the first "acme::gelu@2" */
    int32_t version;
    tn_field *fields; /* arguments, then results */
    int32_t nargs, nouts;
    bool list_out; /* the only result is a Tensor[] */
    int32_t args_bytes;
    uint64_t sig;
} tni_schema;
/* TN_E_PLUGIN with the place and the fault. */
tn_status tni_schema_parse(const char *text, tni_arena *arena, tni_schema *ret_schema);
/* Writes a field's default into an argument struct; TN_E_PLUGIN when it does not fit the type. */
tn_status tni_default_store(const tn_field *f, tni_arena *arena, void *args);

/* ---- formula.c ---------------------------------------------------------------------------------*/
typedef struct tni_added tni_added;
typedef struct tni_formula tni_formula;

/* What a formula is compiled for. */
typedef enum tni_formula_use { TNI_FORMULA_FORWARD, TNI_FORMULA_GRADIENT } tni_formula_use;
/* Finds an operator by name, also one that the transaction adds which runs. */
typedef struct tni_op_finder {
    tn_op *(*find)(const void *ctx, const char *name);
    const void *ctx;
} tni_op_finder;
/* Compiles the text and, for a gradient, marks what the tape has to save in the operator's fields. */
tn_status tni_formula_compile(tni_added *o, tni_formula_use use, const char *text,
                              tni_op_finder finder, tni_formula **ret_formula);
/* Targets are the results and then the tensor inputs that are written, by input; of a gradient the
 * tensor inputs. Bit i: the text has a formula for target i. `none`: it says that no gradient flows
 * there. */
uint64_t tni_formula_given(const tni_formula *f, uint64_t *ret_none);
/* The operator that step i calls, NULL for other steps; false behind the last step. */
bool tni_formula_call_at(const tni_formula *f, int32_t i, const tn_op **ret_op);
/* What a formula computes: a list where its target is one. */
typedef union tni_result {
    tn_tensor *t;
    tn_tensor_list list;
} tni_result;
/* Incoming gradients, by output. */
typedef struct tni_incoming {
    tn_tensor *const *g;
    int64_t n;
} tni_incoming;
/* rets[i]: new references, for the bits of `wanted` that there are formulas for. */
tn_status tni_formula_run(const tni_formula *f, const void *args, tni_incoming g, uint64_t wanted,
                          tni_result *rets);
/* Drops what a run returned for these targets. */
void tni_formula_drop(const tni_formula *f, uint64_t wanted, tni_result *rets);

/* ---- opadd.c -----------------------------------------------------------------------------------*/
/* What a structured kernel gets for an input of another dtype than it computes in. */
enum {
    TNI_TAKES_COMPUTE, /* a copy in the dtype that is computed in */
    TNI_TAKES_KIN,     /* the same for one of the same category, int64 as it is, nothing else */
    TNI_TAKES_OWN,     /* the input as it is */
};
struct tni_added {
    tn_op op; /* first: a tn_op with TNI_OP_ADDED is one of these */
    tni_arena arena;
    const tni_plugin *plugin;
    tn_op_desc desc;                   /* texts are copies in the arena */
    uint8_t dtype_of[TN_MAX_OPERANDS]; /* tensor inputs that the dtype rule looks at */
    uint8_t ndtype_of;
    uint8_t takes[TN_MAX_OPERANDS]; /* TNI_TAKES_*, by tensor input */
    int8_t same_as; /* the tensor input whose shape the results have; -1: broadcast or infer */
    tni_formula *forward, *backward;
    bool published;
    uint8_t visit;     /* of the search for formulas that lead back to themselves */
    tni_added *next;   /* of all that were ever published */
    tni_added *queued; /* in the transaction that adds it */
};
static inline tni_added *tni_added_of(const tn_op *op) {
    return (tni_added *)(uintptr_t)(const void *)op;
}
/* Makes it from a descriptor; nothing is published. */
tn_status tni_added_new(const tni_plugin *plugin, const tn_op_desc *desc, tni_added **ret_op);
/* The same plugin described the same operator. */
bool tni_added_same(const tni_added *a, const tni_added *b);
/* Compiles its formulas, when all operators of the transaction are known. */
tn_status tni_added_link(tni_added *o, tni_op_finder finder);
/* TN_E_PLUGIN when the formula of a linked operator leads back to it. */
tn_status tni_added_check_cycle(tni_added *o);
void tni_added_free(tni_added *o);

/* ---- added_run.c -------------------------------------------------------------------------------*/
tn_status tni_added_infer(tn_infer *inf, const void *args);
tn_status tni_added_compose(const tn_op *op, const void *args, tn_tensor **rets);
tn_status tni_added_gradient(tn_gctx *c);
/* The dtype rule, and the count and shapes (free them) of a result that is a list. */
tn_status tni_added_infer_dtype(tn_infer *inf, const void *args);
/* op->takes of a structured operator; note [Dtypes of inputs]. */
tn_status tni_added_takes(const tn_op *op, int i, const tn_view *t, int32_t compute,
                          int32_t *ret_dtype);
tn_status tni_added_infer_list(const tn_infer *inf, const void *args, tn_out_shape **ret_shapes,
                               int64_t *ret_n);

#endif
