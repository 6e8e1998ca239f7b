/* composite.c: the run functions of composite and view operators. */
#include "call_priv.h"
#include "copy_priv.h"
#include "plan_priv.h"

#include <tenon/ops_create.h>
#include <tenon/ops_shape.h>

static inline tn_status check_inputs(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind != TN_F_TENSORS && f->kind != TN_F_TENSOR_OPT && !tni_in_slot(op, args, i))
            return tni_fail_null(op, i);
    }
    return TN_OK;
}

uint64_t tni_input_words(const tn_op *op, const void *args) {
    uint64_t any = 0;
    for (int i = 0; i < op->nin; i++) {
        tni_span s = tni_in_span(op, args, i);
        for (int64_t k = 0; k < s.n; k++)
            if (s.v[k]) any |= s.v[k]->v.word;
    }
    return any;
}

/* The in-place form of a composite: its result is written over the first input, and recorded as the
 * copy that it is. */
static tn_status take_inplace(const tn_op *op, const void *args, tn_tensor *given,
                              tn_tensor **rets) {
    TN_TRY(tni_check_writable(op, given, tn_view_dtype(&rets[0]->v)));
    TN_TRY(tni_check_out(op, args, given, tn_view_dtype(&rets[0]->v), tn_tensor_device(rets[0])));
    if (!tni_shape_is(given, rets[0]->v.ndim, rets[0]->v.shape))
        return tn_fail(TN_E_SHAPE, -1, "output with shape %s doesn't match the broadcast shape %s",
                       tni_shape_text_of(&given->v), tni_shape_text_of(&rets[0]->v));
    tn_tensor *same = NULL;
    TN_TRY(tn_copy_(given, rets[0], 0, &same));
    tn_tensor_unref(&rets[0]);
    rets[0] = same;
    return TN_OK;
}

tn_status tni_compose(const tn_op *op, const void *args, tn_tensor **rets) {
    if ((op->flags & TNI_OP_WIDE) && tni_is_half_call(op, args))
        return tni_compose_wide(op, args, rets);
    return op->compose ? op->compose(op, args, rets) : op->composite(args, rets);
}

/* The out= form: a result is moved into the tensor that was given for it. */
static tn_status take_out(const tn_op *op, const void *args, tn_tensor *given, tn_tensor **ret) {
    if (!given || *ret == given) return TN_OK;
    const tn_view *v = &(*ret)->v;
    TN_TRY(tni_check_given(op, args, given, false, v->word));
    TN_TRY(tni_check_writable(op, given, tn_view_dtype(v)));
    bool filled = op->flags & TNI_OP_OUT_FILLED; /* wherever it is */
    tn_device device = tn_tensor_device(filled ? given : *ret);
    TN_TRY(tni_check_out(op, args, given, tn_view_dtype(v), device));
    TN_TRY(tni_check_no_internal_overlap(given));
    if (filled && given->v.numel == v->numel) {
        tn_tensor *shaped = NULL;
        TN_TRY(tn_reshape(*ret, tn_ints_of(given->v.shape, given->v.ndim), &shaped));
        tn_tensor_unref(ret);
        *ret = shaped;
    }
    TN_TRY(tni_give(given, *ret));
    tni_bump_version(given);
    tn_tensor_unref(ret);
    *ret = tn_tensor_ref(given);
    return TN_OK;
}

tn_status tni_lay_as_image(const tn_tensor *like, tn_tensor *t, tn_tensor **ret) {
    int32_t format = like->v.ndim == 4 ? TN_FORMAT_CHANNELS_LAST : TN_FORMAT_CHANNELS_LAST_3D;
    if (t->v.ndim == like->v.ndim && tni_lies_channels_last(&like->v))
        return tn_contiguous(t, format, ret);
    *ret = tn_tensor_ref(t);
    return TN_OK;
}

/* Results of operators on images lie as the images do. */
static tn_status follow_images(const tn_op *op, const void *args, tn_tensor **rets) {
    for (int i = 0; i < op->nout; i++) {
        tn_tensor *made = rets[i];
        if (!made) continue;
        rets[i] = NULL;
        tn_status st = tni_lay_as_image(tni_in_slot(op, args, 0), made, &rets[i]);
        tn_tensor_unref(&made);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}

static bool is_input(const tn_op *op, const void *args, const tn_tensor *t) {
    for (int i = 0; i < op->nin; i++)
        for (int64_t k = 0; k < tni_in_span(op, args, i).n; k++)
            if (tni_in_span(op, args, i).v[k] == t) return true;
    return false;
}

/* The nodes of the results go by the composite's name. An input that is handed back as it is keeps its own. */
static void show_results(const tn_op *op, const void *args, int n, bool inplace, tn_tensor **rets) {
    for (int i = 0; i < n; i++)
        if (rets[i] && (inplace || !is_input(op, args, rets[i]))) tni_ag.show(op, rets[i]);
}

/* Each is compiled twice, for tni_compose and for what is not known before. */
#define ALWAYS static inline __attribute__((always_inline))

/* A composite without a gradient of its own is recorded through its parts; one with a gradient runs
 * unrecorded and makes one entry. */
ALWAYS tn_status run_made(const tn_op *op, void *args, tn_tensor *given, bool inplace, uint64_t any,
                          tn_tensor **rets, tni_composer make) {
    bool own = op->grad != NULL && tni_recording(any);
    tn_tensor *targets[TNI_MAX_OUTS] = {NULL};
    int ntargets = op->flags & (TNI_OP_LIST_OUT | TNI_OP_INPLACE_ONLY) ? 0 : op->nout;
    for (int i = 0; i < ntargets; i++) targets[i] = *tni_out_slot(op, args, i);
    if (own && (op->flags & TNI_OP_WRITES)) TN_TRY(tni_check_written(op, args, any));
    if (op->flags & TNI_OP_INPLACE_ONLY)
        TN_TRY(tni_check_apart(op, args, tni_in_slot(op, args, 0), true));
    if (own) tni_grad_off();
    tn_status st = make(op, args, rets);
    if (TN_UNLIKELY(op->flags & TNI_OP_FOLLOWS) && st == TN_OK) {
        st = follow_images(op, args, rets);
        if (st != TN_OK) tni_results_drop(op, rets);
    }
    if (own) tni_grad_on();
    if (st != TN_OK) return st;
    if (own) st = tni_record_call(op, args, any, rets);
    for (int i = 0; i < ntargets; i++)
        if (TN_UNLIKELY(rets[i] != NULL && rets[i]->v.word & TN_W_LEAFVIEW) &&
            !is_input(op, args, rets[i]))
            tni_ag.own(rets[i]);
    if (st == TN_OK && inplace)
        st = take_inplace(op, args, given, rets);
    else
        for (int i = 0; i < ntargets && st == TN_OK; i++)
            st = take_out(op, args, targets[i], &rets[i]);
    if (TN_UNLIKELY(op->node != NULL) && !own && tni_recording(any) && st == TN_OK)
        show_results(op, args, ntargets, inplace, rets);
    if (st != TN_OK) tni_results_drop(op, rets);
    return st;
}

/* Note [Composites in place]: the result is copied over the target when everything is computed. What
 * the parts saved of the target would be overwritten then, so a call that is recorded works on a copy
 * of it, which has its history. */
ALWAYS tn_status run_on_copy(const tn_op *op, void *args, tn_tensor *given, uint64_t any,
                             tn_tensor **rets, tni_composer make) {
    tn_tensor *copy;
    tn_tensor **first = (tn_tensor **)(void *)((char *)args + op->in_offset[0]);
    TN_TRY(tni_ag.copy_original(given, &copy));
    *first = copy;
    *tni_out_slot(op, args, 0) = NULL;
    tn_status st = run_made(op, args, given, true, any, rets, make);
    *first = given;
    tn_tensor_unref(&copy);
    return st;
}

/* What makes a tensor out of numbers makes it in the dtype of out=, and so do sums. */
static tn_status take_dtype(const tn_op *op, void *args, const tn_tensor *given) {
    for (int i = 0; i < op->nfields; i++) {
        int64_t *dtype = tni_field_at(&op->fields[i], args), have = tn_view_dtype(&given->v);
        if (op->fields[i].kind != TN_F_DTYPE) continue;
        if (*dtype >= 0 && *dtype != have)
            return tn_fail(TN_E_DTYPE, -1, "dtype %s does not match dtype of out parameter (%s)",
                           tni_type_text((int32_t)*dtype), tni_type_text((int32_t)have));
        *dtype = have;
    }
    return TN_OK;
}

static tn_status compose_parts(const tn_op *op, const void *args, tn_tensor **rets) {
    return tni_compose(op, args, rets);
}

/* Tensors whose elements are not there, or not here. */
static bool is_elsewhere(const tn_op *op, const void *args) {
    return !(op->flags & TNI_OP_SPARSE) || tni_has_late(op, args) || tni_has_wrapped(op, args);
}

ALWAYS tn_status run(const tn_op *op, void *args, tn_tensor **rets, tni_composer make) {
    TN_TRY(check_inputs(op, args));
    if (TN_UNLIKELY(op->refuses)) TN_TRY(tni_check_kinds(op, args));
    if (op->check) TN_TRY(op->check(args));
    tni_span outs = tni_given(op, args);
    tn_tensor *given = outs.n > 0 ? outs.v[0] : NULL;
    if (given && (op->nin == 0 || op->flags & TNI_OP_OUT_DTYPE))
        TN_TRY(take_dtype(op, args, given));
    uint64_t any = tni_input_words(op, args);
    if (TN_UNLIKELY(any & TN_W_LAYOUT) && make != compose_parts && is_elsewhere(op, args))
        return TN_DECLINE;
    if (op->flags & TNI_OP_INPLACE_ONLY)
        TN_TRY(tni_check_given(op, args, tni_in_slot(op, args, 0), true, any));
    bool inplace = given && given == tni_in_slot(op, args, 0);
    if (inplace && tni_recording(any) && !(op->flags & TNI_OP_TAKES_OUT))
        return run_on_copy(op, args, given, any, rets, make);
    return run_made(op, args, given, inplace, any, rets, make);
}

tn_status tni_run_composite(const tn_op *op, void *args, tn_tensor **rets) {
    return run(op, args, rets, tni_compose);
}

tn_status tni_run_parts(const tn_op *op, void *args, tn_tensor **rets) {
    return run(op, args, rets, compose_parts);
}

tn_status tni_run_composite_by(const tn_op *op, void *args, tn_tensor **rets, tni_composer make) {
    return run(op, args, rets, make);
}

tn_status tni_run_view(const tn_op *op, void *args, tn_tensor **rets) {
    TN_TRY(check_inputs(op, args));
    tn_tensor *base = tni_in_slot(op, args, 0);
    if (base->flags & TNI_T_STACK) return tni_fail_null(op, 0);
    bool sparse = base->v.word & TN_W_LAYOUT;
    if (TN_UNLIKELY(sparse) && is_elsewhere(op, args)) return TN_DECLINE;
    TN_TRY(op->composite(args, rets));
    tn_status st = tni_record_call(op, args, base->v.word, rets);
    tni_span outs = tni_results(op, rets);
    for (int64_t i = 0; i < outs.n && st == TN_OK && tni_ag.note_view; i++)
        if (outs.v[i] != base && !sparse) st = tni_ag.note_view(op, args, base, outs.v[i]);
    if (st != TN_OK) tni_results_drop(op, rets);
    return st;
}
