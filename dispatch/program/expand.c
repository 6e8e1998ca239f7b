/* expand.c: composites as the operators that they call, for groups: a composite runs once on small
 * tensors and is recorded from inside. Eager runs the same operators, so values keep their bits. */
#include "program_priv.h"

#include <stdlib.h>

enum { MOST_DIMS = 12 };

bool tni_p_has_kernels(const tn_op *op) {
    return atomic_load_explicit(&op->run, memory_order_acquire) == tni_run_composed;
}

static bool can_expand(const tn_program *p, const tni_pnode *n) {
    const tn_op *op = n->op;
    const uint32_t never = TNI_OP_INPLACE_ONLY | TNI_OP_WRITES | TNI_OP_LIST_OUT;
    if (op->info.kind != TN_OP_COMPOSITE || (op->flags & never) || tni_p_is_random(op) ||
        tni_p_has_kernels(op))
        return false;
    for (int32_t i = 0; i < n->nin; i++) {
        const tni_pvalue *v = n->in[i] >= 0 ? &p->value[n->in[i]] : NULL;
        if (tni_is_list(tni_in_field(op, i)) || (v && v->ndim > MOST_DIMS)) return false;
        bool half = v && (v->dtype == TN_F16 || v->dtype == TN_BF16);
        if (half && (op->flags & TNI_OP_WIDE)) return false; /* computed in float32 as a whole */
    }
    return true;
}

/* Zeros of the value's rank and dtype, as small as its operators allow. */
static tn_status make_sample(const tni_pvalue *v, tn_tensor **ret_tensor) {
    const tn_device device = {0, 0};
    int64_t shape[MOST_DIMS];
    for (int32_t d = 0; d < v->ndim; d++) shape[d] = 1 + (v->shape[d] != 1);
    TN_TRY(tni_tensor_new_fast(v->dtype, device, v->ndim, shape, ret_tensor));
    size_t bytes = (size_t)(*ret_tensor)->v.numel * (size_t)tn_dtype_size(v->dtype);
    memset((*ret_tensor)->v.data, 0, bytes);
    return TN_OK;
}

static tn_status record(const tn_program *p, const tni_pnode *n, tn_program *m,
                        tn_tensor **tensors) {
    tn_tensor *result = NULL;
    tn_status st = TN_OK;
    for (int32_t i = 0; i < n->nin && st == TN_OK; i++) {
        int32_t id = n->in[i];
        if (id < 0 || tensors[id]) continue;
        st = make_sample(&p->value[id], &tensors[id]);
        if (st == TN_OK) st = tn_program_add_input(m, tensors[id], "x");
    }
    if (st == TN_OK) st = tni_p_compose_node(p, n, tensors, &result);
    tn_tensors all = {&result, 1};
    if (st == TN_OK) st = tn_program_end(m, all);
    tn_tensor_unref(&result);
    return st;
}

tn_program *tni_p_expand(const tn_program *p, const tni_pnode *n) {
    tn_program *m = NULL;
    if (!can_expand(p, n)) return NULL;
    tn_tensor **tensors = calloc((size_t)p->nvalues + 1, sizeof *tensors);
    tn_status st = tensors ? tn_program_begin(&m) : tni_p_memory();
    tni_tls.no_grad++;
    if (st == TN_OK) st = record(p, n, m, tensors);
    tni_tls.no_grad--;
    tn_program_cancel(m);
    for (int32_t i = 0; tensors && i < p->nvalues; i++) tn_tensor_unref(&tensors[i]);
    free(tensors);
    if (st != TN_OK) tn_program_unref(&m);
    return m;
}
