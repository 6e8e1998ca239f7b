/* opmeta.c: operators as data for language bindings; see tenon/ops_meta.h. */
#include <tenon/ops_meta.h>

#include "device_priv.h"

tn_status tn_op_meta_find(const char *name, tn_op_meta *ret_meta) {
    if (!ret_meta) return tn_fail(TN_E_TYPE, -1, "op_meta_find(): the result has no place to go");
    const tn_op *op = name ? tni_op_find(name) : NULL;
    if (!op && name && strstr(name, "::")) {
        TN_TRY(tni_offers.load(TNI_OFFER_OP, name));
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
        .vmap = op->vmap,
    };
    return TN_OK;
}
