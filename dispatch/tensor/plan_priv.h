/* plan_priv.h: iteration plans (plan.c) and the checks that come before them. */
#ifndef TENON_PLAN_PRIV_H
#define TENON_PLAN_PRIV_H

#include "tensor_priv.h"

/* Plans over operands `ts` (outputs first) in the iteration shape. Operands are aligned to its end
 * and broadcast where their size is 1 or missing. Operands with bit i of scalar_mask set are single
 * host values at scalars[i]. reduce_mask: by dimension of `shape`; there the outputs' strides are
 * 0. Writes only the parts of *ret that the kernel may read. */
void tni_plan_build(tn_plan *ret, int noperands, int noutputs, tn_tensor *const *ts,
                    uint32_t scalar_mask, void *const *scalars, int32_t ndim, const int64_t *shape,
                    uint64_t reduce_mask);

/* The plan of operands that are all packed with the same numel, or scalars. */
static inline void tni_plan_flat(tn_plan *p, int noperands, int noutputs, int64_t numel) {
    p->ndim = 1;
    p->noperands = noperands;
    p->noutputs = noutputs;
    p->flags = TN_PLAN_FLAT;
    p->scalar_mask = 0;
    p->reduce_mask = 0;
    p->numel = numel;
    p->shape[0] = numel;
}

/* Memory relations of an output with an input. */
typedef enum tni_overlap { TNI_OVERLAP_NONE, TNI_OVERLAP_FULL, TNI_OVERLAP_PARTIAL } tni_overlap;
tni_overlap tni_overlap_of(const tn_tensor *out, const tn_tensor *in);
/* Whether their memory lies in the same range: views that interleave count as well. */
bool tni_may_meet(const tn_tensor *a, const tn_tensor *b);
/* Whether elements of t share memory, as those of an expanded tensor do; TN_E_STATE when they do. */
bool tni_repeats(const tn_tensor *t);
tn_status tni_check_no_internal_overlap(const tn_tensor *t);

#endif
