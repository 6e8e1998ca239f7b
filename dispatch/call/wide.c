/* wide.c: composites in half precision. What lies between the parts of a composite would overflow or lose
 * digits there, so one whose entry says `wide` computes float16 and bfloat16 in float32. The conversions
 * are recorded with the parts, and its result has the dtype that it would have had. */
#include <tenon/ops_create.h>

#include "call_priv.h"

static bool is_half(int32_t dtype) { return dtype == TN_F16 || dtype == TN_BF16; }

static bool is_narrow(const tn_tensor *t) {
    return t && !(t->v.word & TN_W_SCALAR) && is_half(tn_view_dtype(&t->v));
}

static tn_status convert(tn_tensor *t, int32_t dtype, tn_tensor **ret) {
    return tn__to_copy(t, dtype, -1, 0, TN_FORMAT_PRESERVE, ret);
}

bool tni_is_half_call(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++)
        if (is_narrow(tni_in_slot(op, args, i))) return true;
    return false;
}

/* A dtype argument that names a half: what it stands for is made from the result. -1: there is none. */
static int32_t widen_dtype(const tn_op *op, void *args) {
    for (int i = 0; i < op->nfields; i++) {
        int64_t *dtype = (void *)((char *)args + op->fields[i].offset);
        if (op->fields[i].kind != TN_F_DTYPE || *dtype < 0) continue;
        int32_t asked = (int32_t)*dtype;
        if (is_half(asked)) *dtype = TN_F32;
        return asked;
    }
    return -1;
}

static tn_status narrow(const tn_op *op, int32_t dtype, tn_tensor **rets) {
    for (int i = 0; i < op->nout; i++) {
        tn_tensor *short_ = NULL;
        if (!rets[i] || tn_view_dtype(&rets[i]->v) != TN_F32) continue;
        TN_TRY(convert(rets[i], dtype, &short_));
        tn_tensor_unref(&rets[i]);
        rets[i] = short_;
    }
    return TN_OK;
}

tn_status tni_compose_wide(const tn_op *op, const void *args, tn_tensor **rets) {
    _Alignas(16) unsigned char mine[TNI_MAX_ARGS_BYTES];
    tn_tensor *in[TN_MAX_OPERANDS] = {NULL}, *made[TN_MAX_OPERANDS] = {NULL};
    tn_status st = TN_OK;
    int n = 0;
    memcpy(mine, args, op->args_bytes);
    int32_t asked = widen_dtype(op, mine);
    for (int i = 0; i < op->nin && st == TN_OK; i++) {
        tn_tensor **slot = (tn_tensor **)(void *)(mine + op->in_offset[i]);
        if (*slot) in[n++] = *slot;
        if (!is_narrow(*slot)) continue;
        st = convert(*slot, TN_F32, &made[i]);
        *slot = made[i];
    }
    int32_t dtype = asked >= 0 ? asked : tni_result_dtype(in, n);
    if (st == TN_OK) st = op->composite(mine, rets);
    if (st == TN_OK && is_half(dtype)) st = narrow(op, dtype, rets);
    for (int i = 0; i < op->nin; i++) tn_tensor_unref(&made[i]);
    return st;
}
