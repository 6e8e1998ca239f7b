/* dispatch.c: the entrance of every operator call. What runs then is of the operator's kind: pointwise.c,
 * reduction.c, structured.c, composite.c. */
#include "call_priv.h"
#include "layers_priv.h"

static int32_t first_rank(const tn_op *op, const void *args) {
    if (op->nin == 0) return 0;
    bool list = tni_is_list(tni_in_field(op, 0));
    tni_span s = list ? tni_in_span(op, args, 0) : (tni_span){NULL, 0};
    const tn_tensor *t = !list ? tni_in_slot(op, args, 0) : s.n > 0 ? s.v[0] : NULL;
    return t ? t->v.ndim : 0;
}

static tn_status wrap_dims(const tn_op *op, void *args) {
    int32_t ndim = first_rank(op, args);
    for (int i = 0; i < op->nfields; i++) {
        void *p = (char *)args + op->fields[i].offset;
        if (op->fields[i].kind == TN_F_DIM) {
            int64_t *dim = p;
            TN_TRY(tni_wrap_dim(*dim, ndim, dim));
        } else if (op->fields[i].kind == TN_F_DIM_OPT) {
            tn_opt_int *dim = p;
            if (dim->has) TN_TRY(tni_wrap_dim(dim->value, ndim, &dim->value));
        }
    }
    return TN_OK;
}

tn_status tn_op_call(const tn_op *op, void *args, tn_tensor **rets) {
    tn_status st = TN_OK;
    if (op->flags & TNI_OP_HAS_DIM) st = wrap_dims(op, args);
    if (TN_LIKELY(st == TN_OK))
        st = TN_UNLIKELY(tni_tls.layers != 0) ? tni_call_layered(op, args, rets)
                                              : tni_op_run(op, args, rets);
    return TN_LIKELY(st == TN_OK) ? TN_OK : tni_error_add_op(st, op, args);
}

tn_status tni_call_discard(const tn_op *op, void *args, int n) {
    tn_tensor *rets[TNI_MAX_OUTS] = {NULL};
    TN_TRY(tn_op_call(op, args, rets));
    for (int i = 0; i < n; i++) tn_tensor_unref(&rets[i]);
    return TN_OK;
}

/* ---- From outside: tenon/ops_meta.h ------------------------------------------------------------*/

static bool lacks_pointer(const tn_field *f, const void *args) {
    const void *p = (const char *)args + f->offset;
    bool optional = f->flags & TNI_FIELD_OPTIONAL;
    switch (f->kind) {
    case TN_F_STR: return !optional && !*(const char *const *)p;
    case TN_F_TENSORS: return tni_lacks_tensors(tni_tensors_of(*(const tn_views *)p), optional);
    case TN_F_INTS:
    case TN_F_DIMS: return tni_lacks_ints(*(const tn_ints *)p);
    default: return false;
    }
}

static tn_status check_pointers(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nfields; i++)
        if (lacks_pointer(&op->fields[i], args)) return tni_fail_pointer(op);
    return TN_OK;
}

tn_status tn_op_invoke(const tn_op_info *info, void *args, tn_tensor **rets) {
    const tn_op *op = (const void *)info;
    if (!op || !args)
        return tn_fail(TN_E_TYPE, -1, "op_invoke() needs an operator and its arguments");
    if (op->flags & TNI_OP_POINTERS) TN_TRY(check_pointers(op, args));
    return tn_op_call(op, args, rets);
}
