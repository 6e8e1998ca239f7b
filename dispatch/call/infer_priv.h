/* infer_priv.h: what shape and dtype rules are written with. Generated glue and the families'
 * files call these; each fills entries of tn_infer. */
#ifndef TENON_INFER_PRIV_H
#define TENON_INFER_PRIV_H

#include "tensor_priv.h"

/* Sets inf->compute from the tensors by a TNI_COMPUTE_* rule; NULLs are skipped. */
tn_status tni_infer_dtype(tn_infer *inf, int rule, const tn_view *const *of, int n);
/* compute -> result dtype by a TNI_RESULT_* rule. */
int32_t tni_result_of(int32_t compute, int rule);
/* Refuses the dtypes that the entry says (`refuses`). */
tn_status tni_check_kind(const tn_op *op, int field, int32_t dtype);
/* Output i has x's shape, and x's dense layout where it has one. */
void tni_infer_same(tn_infer *inf, int i, const tn_view *x);
/* Output i has this shape, packed. */
tn_status tni_infer_set(tn_infer *inf, int i, int32_t ndim, const int64_t *shape);
/* Argument `arg` must have this shape and, unless dtype is -1, this dtype; NULL passes. Gradients use
 * it: their users are other operators, but anybody may call them. */
tn_status tni_infer_expect(const tn_infer *inf, int32_t arg, const tn_view *t, int32_t ndim,
                           const int64_t *shape, int32_t dtype);
/* Argument `arg` must lie in a row, packed: its kernel writes it so. */
tn_status tni_infer_packed(const tn_infer *inf, int32_t arg, const tn_view *t);
/* Output i is not produced. */
static inline void tni_infer_absent(tn_infer *inf, int i) { inf->out[i].absent = 1; }

#endif
