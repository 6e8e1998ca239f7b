/* checks.c: what several kinds of operators check before they run, and how a call is recorded. */
#include "call_priv.h"
#include "copy_priv.h"
#include "infer_priv.h"
#include "plan_priv.h"
#include "sparse_priv.h"

bool tni_lacks_tensors(tn_tensors list, bool optional) {
    if (list.n < 0 || (list.n > 0 && !list.v)) return true;
    for (int64_t i = 0; i < list.n && !optional; i++)
        if (!list.v[i]) return true;
    return false;
}

tn_status tni_fail_pointer(const tn_op *op) {
    return tn_fail(TN_E_TYPE, -1, "%s(): a pointer that must be set is NULL", op->info.name);
}

tn_status tni_fail_null(const tn_op *op, int input) {
    int field = op->in_field[input];
    return tn_fail(TN_E_TYPE, field, "%s(): argument '%s' must be Tensor, not NULL", op->info.name,
                   op->fields[field].name);
}

tn_status tni_fail_devices(tn_device a, tn_device b) {
    return tn_fail(TN_E_DEVICE, -1,
                   "Expected all tensors to be on the same device, but found at least two devices, "
                   "%s:%d and %s:%d!",
                   tn_device_name(a.slot), (int)a.index, tn_device_name(b.slot), (int)b.index);
}

tn_status tni_check_kinds(const tn_op *op, const void *args) {
    int32_t first = -1;
    for (int i = 0; i < op->nin; i++) {
        tni_span in = tni_in_span(op, args, i);
        for (int64_t k = 0; k < in.n; k++) {
            if (!in.v[k]) continue;
            int32_t dtype = tn_view_dtype(&in.v[k]->v);
            TN_TRY(tni_check_kind(op, op->in_field[i], dtype));
            if (!(op->refuses & TNI_REFUSES_MIXED) || (in.v[k]->v.word & TN_W_SCALAR)) continue;
            if (first >= 0 && dtype != first)
                return tn_fail(TN_E_DTYPE, op->in_field[i],
                               "%s(): expected dtype %s for `%s` but got dtype %s", op->info.name,
                               tni_type_text(first), op->fields[op->in_field[i]].name,
                               tni_type_text(dtype));
            first = dtype;
        }
    }
    return TN_OK;
}

static tn_status check_inference(const tn_tensor *out) {
    if (!(out->v.word & TN_W_INFERENCE) || tni_tls.inference) return TN_OK;
    return tn_fail(TN_E_STATE, -1,
                   "Inplace update to inference tensor outside InferenceMode is not allowed. "
                   "You can make a clone to get a normal tensor before doing inplace update.");
}

tn_status tni_check_given(const tn_op *op, const void *args, tn_tensor *out, bool inplace,
                          uint64_t any_input_word) {
    uint64_t any = any_input_word | out->v.word;
    if (tni_recording(any)) {
        if (!inplace)
            return tn_fail(TN_E_STATE, -1,
                           "%s(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires grad.",
                           op->info.name);
        TN_TRY(tni_ag.check_inplace(op, args, out));
    } else if (TN_UNLIKELY(out->meta) && tni_tls.no_grad == 0 && tni_ag.check_inplace) {
        TN_TRY(tni_ag.check_inplace(op, NULL, out)); /* its base may require a gradient */
    }
    if (TN_LIKELY(!(out->v.word & (TN_W_INFERENCE | TN_W_LAYOUT)))) return TN_OK;
    if ((out->v.word & TN_W_LAYOUT) && !(tni_is_sparse(out) && (op->flags & TNI_OP_SPARSE)))
        return TN_DECLINE;
    return check_inference(out);
}

tn_status tni_check_given_sparse(const tn_op *op, const void *args, tn_tensor *out, bool inplace,
                                 uint64_t any_input_word) {
    tn_status st = tni_check_given(op, args, out, inplace, any_input_word);
    return st == TN_DECLINE ? check_inference(out) : st;
}

tn_status tni_check_writable(const tn_op *op, const tn_tensor *out, int32_t result) {
    int32_t have = tn_view_dtype(&out->v);
    if (tni_is_readonly(out) && tni_is_conjugate(out))
        return tn_fail(TN_E_VALUE, -1,
                       "%s: the output is what conj() made of another tensor, a copy; a write to "
                       "it does not reach that tensor. Write to the tensor itself, or to "
                       "resolve_conj() of the output",
                       op->info.name);
    if (tni_is_readonly(out))
        return tn_fail(TN_E_VALUE, -1, "%s: the output's memory is read-only", op->info.name);
    if (out->flags & TNI_T_STACK)
        return tn_fail(TN_E_TYPE, -1, "%s: a number cannot be written", op->info.name);
    int32_t from = tn_dtype_category(result), to = tn_dtype_category(have);
    if (from > to && !(from == TN_CAT_INT && to == TN_CAT_INT))
        return tn_fail(TN_E_DTYPE, -1, "result type %s can't be cast to the desired output type %s",
                       tni_type_text(result), tni_type_text(have));
    return TN_OK;
}

tn_status tni_fail_overlap(void) {
    return tn_fail(TN_E_STATE, -1,
                   "unsupported operation: some elements of the input tensor and the written-to "
                   "tensor refer to a single memory location. Please clone() the tensor before "
                   "performing the operation.");
}

bool tni_takes_repeated(const tn_op *op, const tn_tensor *given, uint64_t any) {
    return op->repeated && tni_repeats(given) && !tni_recording(any | given->v.word);
}

tn_status tni_check_apart(const tn_op *op, const void *args, const tn_tensor *out, bool inplace) {
    bool apart = op->flags & TNI_OP_OUT_APART, whole = op->flags & TNI_OP_OUT_WHOLE;
    for (int i = 0; i < op->nin && (apart || whole) && out->v.numel > 0; i++) {
        tni_span in = tni_in_span(op, args, i);
        for (int64_t k = 0; k < in.n; k++) {
            if (!in.v[k] || (inplace && i == 0)) continue;
            tni_overlap rel = tni_overlap_of(out, in.v[k]);
            if (rel == TNI_OVERLAP_PARTIAL || (apart && rel == TNI_OVERLAP_FULL))
                return tni_fail_overlap();
        }
    }
    return TN_OK;
}

tn_status tni_check_out(const tn_op *op, const void *args, const tn_tensor *out, int32_t result,
                        tn_device device) {
    tn_device there = tn_tensor_device(out);
    if (TN_UNLIKELY(there.slot != device.slot || there.index != device.index))
        return tni_fail_devices(device, there);
    bool itself =
        (op->flags & (TNI_OP_INPLACE_ONLY | TNI_OP_OUT_ITSELF)) || !(op->flags & TNI_OP_NO_INPLACE);
    bool inplace = op->nin > 0 && itself && !tni_is_list(tni_in_field(op, 0)) &&
                   out == tni_in_slot(op, args, 0);
    if ((op->flags & TNI_OP_OUT_EXACT) && !inplace && tn_view_dtype(&out->v) != result)
        return tn_fail(TN_E_DTYPE, -1,
                       "%s(): Expected out tensor to have dtype %s, but got %s instead",
                       op->info.name, tni_type_text(result), tni_type_text(tn_view_dtype(&out->v)));
    return tni_check_apart(op, args, out, inplace);
}

static void warn_resized(const tn_tensor *out, int32_t ndim, const int64_t *shape) {
    if (out->v.numel == 0) return;
    tni_host_log(2,
                 "An output with one or more elements was resized since it had shape %s, "
                 "which does not match the required output shape %s.",
                 tni_shape_text_of(&out->v), tni_shape_text(ndim, shape));
}

/* Whether the memory that out looks at holds that many elements from where it begins. */
static bool has_room(const tn_tensor *out, int64_t numel) {
    uint64_t at = tni_offset_bytes(out), size = (uint64_t)tn_view_itemsize(&out->v);
    if (!out->storage || tni_is_sparse(out) || at > out->storage->bytes) return false;
    return numel && (uint64_t)numel <= (out->storage->bytes - at) / size;
}

/* What has room stays where it is, and others that look there see what is written: out=buffer[:0]. */
static tn_status resize_laid(tn_tensor *out, int32_t ndim, const int64_t *shape,
                             const int64_t *strides) {
    int32_t dtype = tn_view_dtype(&out->v);
    tn_tensor *fresh;
    int64_t numel;
    warn_resized(out, ndim, shape);
    TN_TRY(tni_numel(ndim, shape, tn_view_itemsize(&out->v), &numel));
    if (has_room(out, numel)) {
        TN_TRY(tni_view_new(out, dtype, ndim, shape, strides, 0, &fresh));
    } else {
        TN_TRY(tni_tensor_new_fast(dtype, tn_tensor_device(out), ndim, shape, &fresh));
        if (strides) {
            memcpy(fresh->v.strides, strides, sizeof *strides * (size_t)ndim);
            tni_tensor_refresh(fresh);
        }
    }
    tn_status st = tn_tensor_set_data(out, fresh);
    tn_tensor_unref(&fresh);
    return st;
}

tn_status tni_resize_out(tn_tensor *out, int32_t ndim, const int64_t *shape) {
    return resize_laid(out, ndim, shape, NULL);
}

tn_status tni_give(tn_tensor *given, tn_tensor *result) {
    const tn_view *v = &result->v;
    if (!tni_shape_is(given, v->ndim, v->shape)) {
        bool alike = ((given->v.word ^ v->word) & TN_W_ALIKE) == 0;
        bool packed = v->word & TN_W_DENSE;
        if (alike && packed && !has_room(given, v->numel) && !tni_may_meet(given, result)) {
            warn_resized(given, v->ndim, v->shape);
            TN_TRY(tn_tensor_set_data(given, result));
            tn_tensor_note_change(given);
            return TN_OK;
        }
        TN_TRY(resize_laid(given, v->ndim, v->shape, packed ? v->strides : NULL));
    }
    if (!tni_may_meet(given, result)) return tni_copy_into(given, result);
    tn_tensor *apart;
    TN_TRY(tni_convert(result, tn_view_dtype(v), &apart));
    tn_status st = tni_copy_into(given, apart);
    tn_tensor_unref(&apart);
    return st;
}

tn_status tni_check_outputs_apart(const tn_op *op, void *args) {
    for (int i = 1; i < op->nout; i++)
        for (int k = 0; k < i; k++) {
            const tn_tensor *a = *tni_out_slot(op, args, i), *b = *tni_out_slot(op, args, k);
            if (a && b && tni_overlap_of(a, b) != TNI_OVERLAP_NONE)
                return tn_fail(TN_E_STATE, -1,
                               "%s(): unsupported operation: two tensors that are given with "
                               "out= share memory",
                               op->info.name);
        }
    return TN_OK;
}

/* Note [Written arguments]
 * An operator with a Tensor! argument (TNI_OP_WRITES) changes tensors of its caller. When it returns
 * nothing and that argument comes first, it is an in-place form to the tape: the argument is what the
 * call results in, and its history is replaced. Other written arguments have no history. */

bool tni_writes_now(const tn_op *op, const void *args) {
    for (int k = 0; k < op->nfields; k++) {
        const tn_field *f = &op->fields[k];
        if (f->kind == TN_F_BOOL && f->fixed == TNI_FIXED_GATE)
            return *(const int64_t *)(const void *)((const char *)args + f->offset) != 0;
    }
    return true;
}

static bool is_written(const tn_op *op, int input) {
    const tn_field *f = &op->fields[op->in_field[input]];
    return (f->flags & TNI_FIELD_MUTATED) && f->kind != TN_F_TENSORS;
}

static tn_status fail_no_history(const tn_op *op, int input) {
    int field = op->in_field[input];
    return tn_fail(TN_E_STATE, field,
                   "%s(): argument '%s' is written and cannot take part in automatic "
                   "differentiation: only the first argument of an operator that returns nothing "
                   "can. Call it under no_grad, or on detached tensors.",
                   op->info.name, op->fields[field].name);
}

tn_status tni_check_written(const tn_op *op, const void *args, uint64_t any) {
    bool recorded = tni_recording(TN_W_GRAD) && op->grad;
    if (!tni_writes_now(op, args)) return TN_OK;
    for (int i = 0; i < op->nin; i++) {
        if (!is_written(op, i)) continue;
        tn_tensor *t = tni_in_slot(op, args, i);
        bool result = op->nout == 0 && is_written(op, 0) && i == 0;
        bool lost = op->nout == 0 && !is_written(op, 0) && (any & TN_W_GRAD);
        if (!t) continue;
        if (recorded && !result && (lost || (t->v.word & TN_W_GRAD))) return fail_no_history(op, i);
        TN_TRY(tni_check_given(op, args, t, true, result ? any : 0));
        TN_TRY(tni_check_writable(op, t, tn_view_dtype(&t->v)));
        TN_TRY(tni_check_no_internal_overlap(t));
        for (int k = 0; k < i; k++) {
            if (!is_written(op, k) || !tni_in_slot(op, args, k)) continue;
            if (tni_overlap_of(t, tni_in_slot(op, args, k)) != TNI_OVERLAP_NONE)
                return tn_fail(TN_E_STATE, op->in_field[i],
                               "%s(): arguments '%s' and '%s' are written and share memory",
                               op->info.name, op->fields[op->in_field[k]].name,
                               op->fields[op->in_field[i]].name);
        }
    }
    return TN_OK;
}

bool tni_overlaps_input(const tn_op *op, const void *args, const tn_tensor *out) {
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *single = tni_in_slot(op, args, i), *const *in = &single;
        int64_t n = 1;
        if (tni_is_list(tni_in_field(op, i))) {
            const tn_views *list = (const void *)((const char *)args + op->in_offset[i]);
            in = (const tn_tensor *const *)(const void *)list->v;
            n = list->n;
        }
        for (int64_t k = 0; k < n; k++)
            if (in[k] && tni_may_meet(out, in[k])) return true;
    }
    return false;
}

bool tni_overlaps_written(const tn_op *op, const void *args, const tn_tensor *t) {
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *w = is_written(op, i) ? tni_in_slot(op, args, i) : NULL;
        if (w && tni_may_meet(w, t)) return true;
    }
    return false;
}

void tni_bump_written(const tn_op *op, const void *args) {
    if (!tni_writes_now(op, args)) return;
    for (int i = 0; i < op->nin; i++)
        if (is_written(op, i) && tni_in_slot(op, args, i))
            tni_bump_version(tni_in_slot(op, args, i));
}

/* ---- Recording --------------------------------------------------------------------------------*/

tn_status tni_record_results(const tn_op *op, void *args, tn_tensor **rets) {
    if (op->nout == 0 && is_written(op, 0)) {
        tn_tensor *first = tni_in_slot(op, args, 0);
        return tni_ag.record(op, args, &first, 1);
    }
    tni_span outs = tni_results(op, rets);
    for (int i = 0; i < op->nout && !tni_returns_list(op); i++)
        *tni_out_slot(op, args, i) = outs.v[i];
    return tni_ag.record(op, args, outs.v, (int)outs.n);
}

tn_status tni_no_derivative(tn_gctx *c) {
    return tn_fail(TN_E_STATE, -1, "derivative for %s is not implemented", c->op->info.name);
}
