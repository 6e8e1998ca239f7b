/* args_priv.h: the argument struct of a call, and its results, walked in one way.
 *
 * The tensors that a field holds are a span: those of a list, or the one slot of a single tensor. */
#ifndef TENON_ARGS_PRIV_H
#define TENON_ARGS_PRIV_H

#include "core_priv.h"

typedef struct tni_span {
    tn_tensor **v; /* entries may be NULL where the argument is optional */
    int64_t n;
} tni_span;

static inline void *tni_field_at(const tn_field *f, const void *args) {
    return (char *)(uintptr_t)args + f->offset;
}
static inline bool tni_is_list(const tn_field *f) {
    return f->kind == TN_F_TENSORS || f->kind == TN_F_OUTS;
}
/* Empty for fields that hold no tensors. */
static inline tni_span tni_field_span(const tn_field *f, const void *args) {
    tni_span s = {tni_field_at(f, args), 1};
    if (tni_is_list(f))
        s = *(const tni_span *)(const void *)s.v;
    else if (f->kind > TN_F_OPERAND && f->kind != TN_F_OUT)
        s.n = 0;
    return s;
}
static inline const tn_field *tni_in_field(const tn_op *op, int i) {
    return &op->fields[op->in_field[i]];
}
static inline tni_span tni_in_span(const tn_op *op, const void *args, int i) {
    return tni_field_span(tni_in_field(op, i), args);
}

/* The slots of the i-th input, which is no list, and of the i-th result. */
static inline tn_tensor *tni_in_slot(const tn_op *op, const void *args, int i) {
    const char *p = (const char *)args + op->in_offset[i];
    return *(tn_tensor *const *)(const void *)p;
}
static inline tn_tensor **tni_out_slot(const tn_op *op, void *args, int i) {
    char *p = (char *)args + op->out_offset[i];
    return (tn_tensor **)(void *)p;
}

/* What a call returns: `rets` of its run function is room for op->nout tensors, or a tn_tensor_list. */
static inline bool tni_returns_list(const tn_op *op) { return op->flags & TNI_OP_LIST_OUT; }
static inline tni_span tni_results(const tn_op *op, tn_tensor **rets) {
    tni_span s = {rets, op->nout};
    return tni_returns_list(op) ? *(const tni_span *)(const void *)rets : s;
}
/* Nothing is there, to begin with. */
void tni_results_clear(const tn_op *op, tn_tensor **rets);
void tni_results_drop(const tn_op *op, tn_tensor **rets);
/* The results that were given by out= or an in-place form, and are written; empty for a list. */
static inline tni_span tni_given(const tn_op *op, void *args) {
    tni_span s = {op->nout > 0 ? tni_out_slot(op, args, 0) : NULL, op->nout};
    if (tni_returns_list(op)) s.n = 0;
    return s;
}

/* Tensor inputs of a call in signature order, lists flattened; returns the count (<= max). */
int tni_op_inputs(const tn_op *op, const void *args, tn_tensor **ret, int max);
/* Adds the operator's name and the arguments' shapes and dtypes to the thread's error record, once.
 * Returns st. */
tn_status tni_error_add_op(tn_status st, const tn_op *op, const void *args);

#endif
