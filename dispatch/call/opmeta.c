/* opmeta.c: operators as data for language bindings; see tenon/ops_meta.h. */
#include <tenon/ops_meta.h>

#include "added_priv.h"

tn_status tn_op_meta_find(const char *name, tn_op_meta *ret_meta) {
    if (!ret_meta) return tn_fail(TN_E_TYPE, -1, "op_meta_find(): the result has no place to go");
    const tn_op *op = name ? tni_op_find(name) : NULL;
    if (!op && name && strstr(name, "::")) {
        TN_TRY(tni_loader_load_for(TNI_OFFER_OP, name));
        op = tni_op_find(name);
    }
    if (!op) return tn_fail(TN_E_VALUE, 0, "there is no operator '%s'", name ? name : "NULL");
    *ret_meta = (tn_op_meta){
        .info = &op->info,
        .fields = op->fields,
        .in_field = op->in_field,
        .out_field = op->out_field,
        .nfields = op->nfields,
        .nin = op->nin,
        .nout = op->nout,
        .args_bytes = op->args_bytes,
        .flags = op->flags,
        .doc = op->doc,
        .vmap = tni_added_vmap(op),
    };
    return TN_OK;
}

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
