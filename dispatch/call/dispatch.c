/* dispatch.c: the entrance of every operator call, checks that several kinds share, and the run functions
 * of composite and view operators. Pointwise, reduction and structured have files of their own. */
#include <stdlib.h>

#include <tenon/ops_create.h>

#include "capture_priv.h"
#include "dispatch_priv.h"
#include "plan_priv.h"

tni_autograd_hooks tni_ag;

/* ---- Entrance ----------------------------------------------------------------------------------*/

static int32_t first_rank(const tn_op *op, const void *args) {
    const tn_field *f = &op->fields[op->in_field[0]];
    if (op->nin == 0) return 0;
    if (f->kind == TN_F_TENSORS) {
        const tn_views *list = (const void *)((const char *)args + f->offset);
        return list->n > 0 && list->v[0] ? list->v[0]->ndim : 0;
    }
    const tn_tensor *t = tni_in_slot(op, args, 0);
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

bool tni_lacks_tensors(tn_tensors list, bool optional) {
    if (list.n < 0 || (list.n > 0 && !list.v)) return true;
    for (int64_t i = 0; i < list.n && !optional; i++)
        if (!list.v[i]) return true;
    return false;
}

tn_status tni_fail_pointer(const tn_op *op) {
    return tn_fail(TN_E_TYPE, -1, "%s(): a pointer that must be set is NULL", op->info.name);
}

tn_status tni_call_discard(const tn_op *op, void *args, int n) {
    tn_tensor *rets[TNI_MAX_OUTS] = {NULL};
    TN_TRY(tn_op_call(op, args, rets));
    for (int i = 0; i < n; i++) tn_tensor_unref(&rets[i]);
    return TN_OK;
}

int tni_op_inputs(const tn_op *op, const void *args, tn_tensor **ret, int max) {
    int n = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind == TN_F_TENSORS) {
            const tn_views *list = (const void *)((const char *)args + f->offset);
            for (int64_t k = 0; k < list->n; k++, n++)
                if (n < max) ret[n] = tni_t(list->v[k]);
        } else {
            if (n < max) ret[n] = tni_in_slot(op, args, i);
            n++;
        }
    }
    return n;
}

/* ---- Checks that several kinds share -----------------------------------------------------------*/

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

tn_status tni_check_given(const tn_op *op, const void *args, tn_tensor *out, bool inplace,
                          uint64_t any_input_word) {
    uint64_t any = any_input_word | out->v.word;
    if ((any & TN_W_GRAD) && !tni_tls.no_grad) {
        if (!inplace)
            return tn_fail(TN_E_STATE, -1,
                           "%s(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires grad.",
                           op->info.name);
        TN_TRY(tni_ag.check_inplace(op, args, out));
    }
    if ((out->v.word & TN_W_INFERENCE) && !tni_tls.inference)
        return tn_fail(TN_E_STATE, -1,
                       "Inplace update to inference tensor outside InferenceMode is not allowed. "
                       "You can make a clone to get a normal tensor before doing inplace update.");
    return TN_OK;
}

tn_status tni_check_writable(const tn_op *op, const tn_tensor *out, int32_t result, bool inplace) {
    int32_t have = tn_view_dtype(&out->v);
    if (out->v.word & TN_W_READONLY)
        return tn_fail(TN_E_VALUE, -1, "%s: the output's memory is read-only", op->info.name);
    if (out->flags & TNI_T_STACK)
        return tn_fail(TN_E_TYPE, -1, "%s: a number cannot be written", op->info.name);
    (void)inplace;
    int32_t from = tn_dtype_category(result), to = tn_dtype_category(have);
    if (from > to && !(from == TN_CAT_INT && to == TN_CAT_INT))
        return tn_fail(TN_E_DTYPE, -1, "result type %s can't be cast to the desired output type %s",
                       tni_type_text(result), tni_type_text(have));
    return TN_OK;
}

bool tni_shape_is(const tn_tensor *t, int32_t ndim, const int64_t *shape) {
    return t->v.ndim == ndim &&
           (ndim == 0 || memcmp(t->v.shape, shape, sizeof *shape * (size_t)ndim) == 0);
}

tn_status tni_resize_out(tn_tensor *out, int32_t ndim, const int64_t *shape) {
    tn_tensor *fresh;
    if (out->v.numel != 0)
        tni_host_log(2,
                     "An output with one or more elements was resized since it had shape %s, "
                     "which does not match the required output shape %s.",
                     tni_shape_text_of(&out->v), tni_shape_text(ndim, shape));
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(&out->v), tn_tensor_device(out), ndim, shape, &fresh));
    tn_status st = tn_tensor_set_data(out, fresh);
    tn_tensor_unref(&fresh);
    return st;
}

void tni_like_layout(tn_tensor *t, const tn_view *like) {
    tni_format_strides(TN_FORMAT_PRESERVE, like, t->v.ndim, t->v.shape, t->v.strides);
    tni_tensor_refresh(t);
}

/* Note [Written arguments]
 * An operator with a Tensor! argument (TNI_OP_WRITES) changes tensors of its caller. When it returns
 * nothing and that argument comes first, it is an in-place form to the tape: the argument is what the
 * call results in, and its history is replaced. Other written arguments have no history. */

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
    bool recorded = !tni_tls.no_grad && op->grad;
    for (int i = 0; i < op->nin; i++) {
        if (!is_written(op, i)) continue;
        tn_tensor *t = tni_in_slot(op, args, i);
        bool result = op->nout == 0 && is_written(op, 0) && i == 0;
        bool lost = op->nout == 0 && !is_written(op, 0) && (any & TN_W_GRAD);
        if (!t) continue;
        if (recorded && !result && (lost || (t->v.word & TN_W_GRAD))) return fail_no_history(op, i);
        TN_TRY(tni_check_given(op, args, t, true, result ? any : 0));
        TN_TRY(tni_check_writable(op, t, tn_view_dtype(&t->v), true));
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

bool tni_overlaps_written(const tn_op *op, const void *args, const tn_tensor *t) {
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *w = is_written(op, i) ? tni_in_slot(op, args, i) : NULL;
        if (w && tni_overlap_of(w, t) != TNI_OVERLAP_NONE) return true;
    }
    return false;
}

void tni_bump_written(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++)
        if (is_written(op, i) && tni_in_slot(op, args, i))
            tni_bump_version(tni_in_slot(op, args, i));
}

tn_status tni_record_call(const tn_op *op, void *args, uint64_t any, tn_tensor *const *outs) {
    if (!(any & TN_W_GRAD) || tni_tls.no_grad || !op->grad) return TN_OK;
    if (op->nout == 0 && is_written(op, 0)) {
        tn_tensor *first = tni_in_slot(op, args, 0);
        return tni_ag.record(op, args, &first, 1);
    }
    for (int i = 0; i < op->nout; i++) *tni_out_slot(op, args, i) = outs[i];
    return tni_ag.record(op, args, outs, op->nout);
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

tn_status tni_kernel_after(const tn_cell *cell, tn_call *call, const void *args, tn_status st) {
    while (st == TN_DECLINE && (cell = tni_cell_next(cell)) != NULL) {
        call->ctx = cell->ctx;
        st = tni_caught(cell->fn(call, args));
    }
    if (tni_tls.scratch) tni_scratch_release(call);
    if (st == TN_DECLINE)
        return tni_decline((tn_device){(int32_t)call->device_slot, call->device_index},
                           call->dtype);
    return tni_error_of_plugin(st, call->op->name, cell->plugin->name);
}

/* ---- Composite and view ------------------------------------------------------------------------*/

static uint64_t input_words(const tn_op *op, const void *args) {
    tn_tensor *in[64];
    uint64_t any = 0;
    int n = tni_op_inputs(op, args, in, TN_COUNT(in));
    if (n > TN_COUNT(in)) return TN_W_GRAD; /* long lists: let record look */
    for (int i = 0; i < n; i++)
        if (in[i]) any |= in[i]->v.word;
    return any;
}

static tn_status check_inputs_given(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind != TN_F_TENSORS && f->kind != TN_F_TENSOR_OPT && !tni_in_slot(op, args, i))
            return tni_fail_null(op, i);
    }
    return TN_OK;
}

/* The in-place form of a composite: its result is written over the first input, and recorded as the
 * copy that it is. */
static tn_status take_inplace(const tn_op *op, tn_tensor *given, tn_tensor **rets) {
    TN_TRY(tni_check_writable(op, given, tn_view_dtype(&rets[0]->v), true));
    if (!tni_shape_is(given, rets[0]->v.ndim, rets[0]->v.shape))
        return tn_fail(TN_E_SHAPE, -1, "output with shape %s doesn't match the broadcast shape %s",
                       tni_shape_text_of(&given->v), tni_shape_text_of(&rets[0]->v));
    tn_tensor *same = NULL;
    TN_TRY(tn_copy_(given, rets[0], 0, &same));
    tn_tensor_unref(&rets[0]);
    rets[0] = same;
    return TN_OK;
}

/* A composite without a gradient of its own is recorded through its parts; one with a gradient runs
 * unrecorded and makes one entry. */
static tn_status run_composite(const tn_op *op, void *args, tn_tensor *given, bool inplace,
                               uint64_t any, tn_tensor **rets) {
    bool list = op->flags & TNI_OP_LIST_OUT;
    bool own = op->grad != NULL && !tni_tls.no_grad && (any & TN_W_GRAD);
    if (own && (op->flags & TNI_OP_WRITES)) TN_TRY(tni_check_written(op, args, any));
    tni_tls.no_grad += own;
    tn_status st = op->compose ? op->compose(op, args, rets) : op->composite(args, rets);
    tni_tls.no_grad -= own;
    if (st != TN_OK) return st;
    if (own && list) {
        const tn_tensor_list *l = (const tn_tensor_list *)(const void *)rets;
        st = tni_ag.record(op, args, l->v, (int)l->n);
    } else if (own) {
        st = tni_record_call(op, args, any, rets);
    }
    if (st == TN_OK && inplace) {
        st = take_inplace(op, given, rets);
    } else if (st == TN_OK && given && rets[0] != given) { /* out= of a composite */
        st = tni_check_given(op, args, given, false, rets[0]->v.word);
        if (st == TN_OK) st = tni_check_writable(op, given, tn_view_dtype(&rets[0]->v), false);
        if (st == TN_OK && !tni_shape_is(given, rets[0]->v.ndim, rets[0]->v.shape))
            st = tni_resize_out(given, rets[0]->v.ndim, rets[0]->v.shape);
        if (st == TN_OK) st = tni_copy_into(given, rets[0]);
        if (st == TN_OK) {
            tni_bump_version(given);
            tn_tensor_unref(&rets[0]);
            rets[0] = tn_tensor_ref(given);
        }
    }
    if (st != TN_OK) {
        if (list)
            tn_tensor_list_free((tn_tensor_list *)(void *)rets);
        else
            for (int i = 0; i < op->nout; i++) tn_tensor_unref(&rets[i]);
    }
    return st;
}

/* Note [Composites in place]: the result is copied over the target when everything is computed. What
 * the parts saved of the target would be overwritten then, so a call that is recorded works on a copy
 * of it, which has its history. */
static tn_status run_on_copy(const tn_op *op, void *args, tn_tensor *given, uint64_t any,
                             tn_tensor **rets) {
    tn_tensor *copy;
    tn_tensor **first = (tn_tensor **)(void *)((char *)args + op->in_offset[0]);
    TN_TRY(tni_ag.copy_original(given, &copy));
    *first = copy;
    *tni_out_slot(op, args, 0) = NULL;
    tn_status st = run_composite(op, args, given, true, any, rets);
    *first = given;
    tn_tensor_unref(&copy);
    return st;
}

tn_status tni_run_composite(const tn_op *op, void *args, tn_tensor **rets) {
    TN_TRY(check_inputs_given(op, args));
    bool list = op->flags & TNI_OP_LIST_OUT;
    tn_tensor *given = list || op->nout == 0 ? NULL : *tni_out_slot(op, args, 0);
    uint64_t any = input_words(op, args);
    if (op->flags & TNI_OP_INPLACE_ONLY)
        TN_TRY(tni_check_given(op, args, tni_in_slot(op, args, 0), true, any));
    bool inplace = given && given == tni_in_slot(op, args, 0);
    if (inplace && (any & TN_W_GRAD) && !tni_tls.no_grad && !(op->flags & TNI_OP_TAKES_OUT))
        return run_on_copy(op, args, given, any, rets);
    return run_composite(op, args, given, inplace, any, rets);
}

tn_status tni_run_view(const tn_op *op, void *args, tn_tensor **rets) {
    TN_TRY(check_inputs_given(op, args));
    tn_tensor *base = tni_in_slot(op, args, 0);
    bool list = op->flags & TNI_OP_LIST_OUT;
    if (base->flags & TNI_T_STACK) return tni_fail_null(op, 0);
    TN_TRY(op->composite(args, rets));
    tn_tensor_list *l = (tn_tensor_list *)(void *)rets;
    tn_tensor *const *outs = list ? l->v : rets;
    int n = list ? (int)l->n : 1;
    tn_status st = TN_OK;
    if ((base->v.word & TN_W_GRAD) && !tni_tls.no_grad && op->grad) {
        if (!list) *tni_out_slot(op, args, 0) = outs[0];
        st = tni_ag.record(op, args, outs, n);
    }
    for (int i = 0; i < n && st == TN_OK && tni_ag.note_view && !tni_tls.inference; i++)
        if (outs[i] != base) st = tni_ag.note_view(op, args, base, outs[i]);
    if (st != TN_OK) {
        if (list)
            tn_tensor_list_free(l);
        else
            tn_tensor_unref(&rets[0]);
    }
    return st;
}
