/* program_priv.h: what the files of this room share: values, nodes, programs. */
#ifndef TENON_PROGRAM_PRIV_H
#define TENON_PROGRAM_PRIV_H

#include <tenon/program.h>

#include "call_priv.h"

enum { TNI_P_NONE = -1, TNI_P_NUMBER = -2 }; /* in place of a value's number */
typedef enum tni_prole { TNI_P_NODE, TNI_P_INPUT, TNI_P_WEIGHT } tni_prole;

/* Of a result whose sizes follow from values: they have been read, so that numbers of later nodes may
 * come from there, and every run must give those of the recording. */
enum { TNI_P_HELD = 1 };

/* A number that follows from a free size. Where it follows from several, the steps stand in order, and
 * each goes on from what the one before it gave. */
enum {
    TNI_P_IS,    /* size * num / den + add */
    TNI_P_TIMES, /* the number so far * (size * num + add) / den */
    TNI_P_PLUS,  /* the number so far + size * num / den + add */
};
typedef struct tni_pderived {
    int32_t field, index; /* of a node's argument: index in a list, of an operand the input */
    int32_t symbol;
    int32_t step;
    int64_t num, den, add;
} tni_pderived;

/* Something that a run computes or is given, once. */
typedef struct tni_pvalue {
    tni_prole role;
    int32_t kind;  /* of a weight: TN_PROGRAM_*; of a node: TNI_P_HELD or 0 */
    int32_t place; /* which input, or the node that makes it */
    tn_tensor *t;  /* owned: a weight; while recording, what the value was */
    char *name;    /* owned; of inputs and declared weights, else NULL */
    int32_t dtype; /* the rest as it was recorded */
    int32_t ndim;
    tn_device device;
    int64_t *shape;  /* owned; -1: differs from run to run */
    int32_t *symbol; /* of an input with free sizes: by dimension, or -1; owned */
    /* What a node's sizes have followed from, by dimension (field 0, index); owned. Somebody has read
     * them, and numbers of later nodes may come from there: see note [Sizes that stop growing]. Of an
     * input: what a free size is that is not the symbol's own. */
    tni_pderived *rule;
    int32_t nrules;
    bool sized; /* somebody has read its sizes */
    bool aside; /* the memory of a value with history, got without an operator, or a view of it */
} tni_pvalue;

/* A size that may differ. */
typedef struct tni_psymbol {
    char *name; /* owned */
    int64_t low, high, seen;
    int32_t used_until; /* the nodes before it have all numbers that follow from the size */
} tni_psymbol;

typedef struct tni_pnode {
    const tn_op *op;
    unsigned char *args; /* the argument struct: tensors are NULL, texts and lists the node's own */
    int32_t nin, nout;
    int32_t *in;       /* values by tensor input, lists flattened; TNI_P_NONE, TNI_P_NUMBER */
    tn_scalar *number; /* by input; NULL where there is none */
    uint8_t *wrote;    /* by input: 1 where the recording saw it change; NULL: nowhere */
    int32_t *out;      /* values by result; TNI_P_NONE: it was absent */
    int32_t *given;    /* op->nout: the value that result i is written into, or TNI_P_NONE */
    tni_pderived *derived;
    int32_t nderived;
    int32_t scope;   /* tn_program_set_scope's number when it was recorded; files have none */
    uint8_t no_grad; /* ran with gradients off, in a recording that began with them on */
    uint8_t cast;    /* dtype + 1 of autocast, 0: off */
    uint8_t loose;   /* while recording: sizes of its results follow from values */
    uint8_t fresh;   /* no result shared memory with an input when it was recorded */
} tni_pnode;

typedef struct tni_plook {
    int32_t position, value, nlive;
    uint32_t version;
    int32_t *live; /* owned, as the rest */
    char *where;
    tn_tensor *t;
} tni_plook;

struct tn_program {
    _Atomic uint32_t refs;
    bool recording, recorded;
    bool needs_parts; /* the recording failed: a gradient reads what a composite has kept */
    tni_pvalue *value;
    int32_t nvalues, value_room;
    tni_pnode *node;
    int32_t nnodes, node_room;
    int32_t *input, *output;
    int32_t ninputs, noutputs;
    tni_psymbol *symbol;
    int32_t nsymbols;
    int32_t *last_use; /* by value: the node after which nobody needs it; made when all is known */
    char *note;
    int64_t reads;
    char *read_where;
    tni_plook *look;
    int32_t nlooks, look_room;
    _Atomic(struct tni_pfused *) fused;     /* fuse.c; NULL: not looked for yet */
    _Atomic(struct tni_pregions *) regions; /* region.c; the same */
};

/* What size d of an input follows from, where it is not the free size itself; else NULL. */
static inline const tni_pderived *tni_p_size_rule(const tni_pvalue *v, int32_t d) {
    for (int32_t i = 0; i < v->nrules; i++)
        if (v->rule[i].index == d) return &v->rule[i];
    return NULL;
}
/* Size d of an input at certain free sizes; -1: it has none there. */
int64_t tni_p_input_size(const tn_program *p, const tni_pvalue *v, int32_t d, const int64_t *sizes);
/* As it was recorded. */
int64_t tni_p_size_seen(const tn_program *p, const tni_pvalue *v, int32_t d);

/* ---- program.c ---------------------------------------------------------------------------------*/
tn_status tni_p_memory(void); /* TN_E_MEMORY */
tn_status tni_p_new(tn_program **ret_program);
/* *array has room for n + 1 items afterwards. */
tn_status tni_p_grow(void *array, int32_t n, int32_t *room, size_t item);
/* A value with t's facts; it keeps t when `keep`. */
tn_status tni_p_add_value(tn_program *p, tni_prole role, tn_tensor *t, bool keep, int32_t *ret_id);
char *tni_p_text_copy(const char *text); /* NULL: out of memory */
void tni_p_node_clear(tni_pnode *n);
void tni_p_value_clear(tni_pvalue *v);
tn_status tni_p_append(int32_t **list, int32_t *n, int32_t id);
/* Computes last_use and used_until; whoever changes nodes or outputs calls it. */
tn_status tni_p_settle(tn_program *p);
void tni_p_note_uses(tn_program *p); /* used_until alone */
/* Whether a later node takes a number that follows from what rule i follows from. */
static inline bool tni_p_rule_matters(const tn_program *p, const tni_pvalue *v, int32_t i) {
    return p->symbol[v->rule[i].symbol].used_until > v->place + 1;
}
static inline void *tni_p_at(const tni_pnode *n, const tn_field *f) { return n->args + f->offset; }
/* Calls fn with every value that the node writes, by its signature or as the recording has seen. */
void tni_p_each_written(const tni_pnode *n, void (*fn)(void *ctx, int32_t id), void *ctx);

/* Results that may look at the memory of an input, whatever the layout of the inputs. */
bool tni_p_may_share(const tn_program *p, const tni_pnode *n, int32_t out, int32_t in);
static inline bool tni_p_is_random(const tn_op *op) {
    for (int i = 0; i < op->nfields; i++)
        if (op->fields[i].kind == TN_F_GENERATOR) return true;
    return op->flags & TNI_OP_RANDOM;
}
/* Whether something looks at the thread's calls: a layer, or a graph that captures them. */
static inline bool tni_p_is_watched(void) {
    return tni_tls.layers | (uint64_t)(tni_tls.watcher != NULL);
}
/* Gives back the groups of a program, and their code. */
void tni_p_free_groups(struct tni_pfused *f);
/* Groups and regions are looked for anew when the program runs next. */
void tni_p_forget_compiled(tn_program *p);
bool tni_p_shares(const tn_tensor *a, const tn_tensor *b);

/* ---- node.c ------------------------------------------------------------------------------------*/
/* A node's arguments at certain sizes; tensors are still missing. */
typedef struct tni_pargs {
    _Alignas(16) unsigned char args[TNI_MAX_ARGS_BYTES];
    int64_t ints[TN_MAX_DIMS]; /* lists with free sizes */
    const tn_scalar *number;   /* by input; NULL where there is none */
    tn_scalar *own;            /* the same where free sizes are among them; freed by the caller */
} tni_pargs;
/* TN_E_SHAPE: a number does not follow from the sizes. ret_args->own is set in any case. */
/* One step of a number. False: it gives no whole number, or one that is too large. */
bool tni_p_derive(const tni_pderived *d, int64_t size, int64_t *value);
tn_status tni_p_args(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                     tni_pargs *ret_args);
/* The rule of v that matters and that a result of this shape breaks, or NULL. */
const tni_pderived *tni_p_broken_rule(const tn_program *p, const tni_pvalue *v,
                                      const int64_t *sizes, const int64_t *shape);
/* One node, on tensors by value; its results are new references there. */
tn_status tni_p_run_node(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                         tn_tensor **tensors);

/* The composite's own function, on tensors by value: what it calls goes through the dispatcher. */
tn_status tni_p_compose_node(const tn_program *p, const tni_pnode *n, tn_tensor **tensors,
                             tn_tensor **ret_tensor);

/* ---- record.c ----------------------------------------------------------------------------------*/
typedef struct tni_recorder tni_recorder;
/* One that nobody's calls go to by themselves. */
tn_status tni_recorder_new(tni_recorder **ret_recorder);
void tni_recorder_free(tni_recorder **r);
tn_program *tni_recorder_program(const tni_recorder *r);
/* Which value t is, or TNI_P_NONE. */
tn_status tni_recorder_find(tni_recorder *r, const tn_tensor *t, int32_t *ret_id);
/* A call whose one result will be `out`. */
tn_status tni_recorder_add(tni_recorder *r, const tn_op *op, const void *args, tn_tensor *out);
/* A copy that the tape takes before t is written to, as a node; TN_DECLINE: the thread records no
 * parts, so that no gradient within the recording reads it. */
tn_status tni_p_record_clone(tn_tensor *t, tn_tensor **ret_copy);
/* Node k of a program is about to be called: the thread's recording may bear its number. */
void tni_p_note_node(int32_t k);

/* ---- expand.c ----------------------------------------------------------------------------------*/
/* The operators that a composite calls, whose inputs are the node's tensors, each once; NULL: it is
 * not to be taken apart. The thread has no layers on. */
/* Whether a kernel may compute the composite as a whole. */
bool tni_p_has_kernels(const tn_op *op);
tn_program *tni_p_expand(const tn_program *p, const tni_pnode *n);

/* ---- fuse.c: pointwise nodes that run as one ---------------------------------------------------*/
enum {
    TNI_P_GROUP_VALUES = TN_MAX_OPERANDS,
    TNI_P_GROUP_NODES = 48,
    TNI_P_GROUP_WHOLES = 12,
    TNI_P_GROUP_DROPS = 32
};
/* Nodes that stand one after the other; a value that only they use is never made. */
typedef struct tni_pgroup {
    int32_t first, count;
    int32_t nin, nout;
    uint64_t
        before; /* nodes among them, as bits: views of what is there already, which run first */
    int32_t value[TNI_P_GROUP_VALUES]; /* outputs, then inputs */
    int32_t ndrops;
    int32_t drop[TNI_P_GROUP_DROPS]; /* values that nobody needs afterwards */
    const tni_device *dev;
    void *code;
    int32_t nreach;
    uint8_t reach[TNI_P_GROUP_NODES]; /* inputs that decide on a node's shape, one each as bits */
    const tn_cell *cell[TNI_P_GROUP_NODES];
    int32_t compute[TNI_P_GROUP_NODES];
    int32_t nwholes;
    const tn_op *whole[TNI_P_GROUP_WHOLES]; /* composites that it computes by their parts */
} tni_pgroup;
typedef struct tni_pfused {
    bool fixed; /* nobody frees it */
    int32_t n;
    tni_pgroup group[];
} tni_pfused;
/* The groups of a program, found at the first call. */
const tni_pfused *tni_p_fused(const tn_program *p);
/* Whether the group may run as one, as far as is known before its views have run. */
bool tni_p_group_ready(const tn_program *p, const tni_pgroup *g, tn_tensor *const *tensors);
/* TN_DECLINE: its nodes have to run one by one. TN_E_PLUGIN: check mode has found something. */
tn_status tni_p_run_group(const tn_program *p, const tni_pgroup *g, tn_tensor **tensors);

/* ---- region.c: nodes that a device takes as its own --------------------------------------------*/
typedef struct tni_pregion {
    int32_t first, count;
    int32_t nin, nout, ndrops;
    tn_device device;
    const tni_device *dev;
    void *code;
    tn_tensor **like; /* by output: a tensor of its kind without data; owned, as what follows */
    int32_t *value;   /* outputs, then inputs */
    int32_t *drop;    /* values that nobody needs afterwards; part of `value` */
} tni_pregion;
/* Gives back what it holds (program.c). */
void tni_p_region_clear(tni_pregion *r);
/* The regions of a program at certain free sizes. */
typedef struct tni_pregions {
    struct tni_pregions *next; /* at others */
    int64_t *sizes;            /* owned; NULL: nobody frees them */
    int32_t n, room;
    tni_pregion *region; /* owned */
} tni_pregions;
/* Found when a program runs with those sizes first. */
const tni_pregions *tni_p_regions(const tn_program *p, const int64_t *sizes);
/* TN_DECLINE: its nodes have to run one by one. TN_E_PLUGIN: check mode has found something. */
tn_status tni_p_run_region(const tni_pregion *r, tn_tensor **tensors);

/* ---- text.c: a text or file that grows ---------------------------------------------------------*/
typedef struct tni_sink {
    char *at;
    size_t n, room;
    bool failed;
} tni_sink;
void tni_sink_bytes(tni_sink *s, const void *from, size_t n);
void tni_sink_text(tni_sink *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
