/* sparse.c: calls with sparse tensors among their arguments: by the operator's rule, or refused.
 *
 * A run function that meets such a tensor says TN_DECLINE, and the call comes here by way of the
 * fallback. A rule is made of other operators and recorded through them; it returns new results, and
 * what was given by out= or an in-place form is written here. */
#include <tenon/ops_create.h>

#include "call_priv.h"
#include "sparse_priv.h"

static const tn_tensor *sparse_of(tni_span s) {
    for (int64_t i = 0; i < s.n; i++)
        if (s.v[i] && tni_is_sparse(s.v[i])) return s.v[i];
    return NULL;
}

/* The first sparse tensor of a call, and the name of its argument. */
static const tn_tensor *find(const tn_op *op, const void *args, const char **ret_name) {
    const tn_tensor *t = NULL;
    for (int i = 0; i < op->nin && !t; i++) {
        *ret_name = tni_in_field(op, i)->name;
        t = sparse_of(tni_in_span(op, args, i));
    }
    if (t) return t;
    *ret_name = "out";
    return sparse_of(tni_given(op, (void *)(uintptr_t)args));
}

/* Calls fn for the tensors of a call until it says something. */
static tn_status each_tensor(const tn_op *op, const void *args,
                             tn_status (*fn)(const tn_tensor *t)) {
    for (int i = 0; i <= op->nin; i++) {
        tni_span s =
            i < op->nin ? tni_in_span(op, args, i) : tni_given(op, (void *)(uintptr_t)args);
        for (int64_t k = 0; k < s.n; k++)
            if (s.v[k]) TN_TRY(fn(s.v[k]));
    }
    return TN_OK;
}

static tn_status decline_late(const tn_tensor *t) { return tni_is_late(t) ? TN_DECLINE : TN_OK; }
bool tni_has_late(const tn_op *op, const void *args) {
    return each_tensor(op, args, decline_late) != TN_OK;
}

tn_status tni_settle_args(const tn_op *op, const void *args) {
    return each_tensor(op, args, tni_settle);
}

bool tni_has_sparse(const tn_op *op, const void *args) {
    const char *name;
    return find(op, args, &name) != NULL;
}

static bool any_wrapped(tni_span s) {
    for (int64_t i = 0; i < s.n; i++)
        if (s.v[i] && tni_is_wrapped(s.v[i])) return true;
    return false;
}

bool tni_has_wrapped(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++)
        if (any_wrapped(tni_in_span(op, args, i))) return true;
    return any_wrapped(tni_given(op, (void *)(uintptr_t)args));
}

static tn_status refuse(const tn_op *op, const void *args) {
    const char *name, *spelt = op->info.name + (op->info.name[0] == '_');
    const tn_tensor *t = find(op, args, &name);
    return tn_fail(TN_E_UNSUPPORTED, -1,
                   "%s(): argument '%s' has layout %s, which this operator does not take; "
                   "to_dense() makes a strided tensor of it",
                   spelt, name, tn_layout_name(tn_tensor_layout(t)));
}

/* The first argument is changed: the rule does that itself, and the call is one entry of the tape. */
static tn_status run_writing(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *self = tni_in_slot(op, args, 0);
    uint64_t any = tni_input_words(op, args);
    TN_TRY(tni_check_given_sparse(op, args, self, true, any));
    tni_grad_off();
    tn_status st = op->sparse(op, args, rets);
    tni_grad_on();
    if (st == TN_OK) st = tni_record_call(op, args, any, rets);
    if (st != TN_OK) tni_results_drop(op, rets);
    return st;
}

/* What was given gets the result, recorded as the copy that it is. */
static tn_status give(const tn_op *op, tn_tensor *given, bool inplace, tn_tensor **rets) {
    const tn_view *v = &rets[0]->v;
    if (rets[0] == given) return TN_OK; /* the rule has written it */
    if (!tni_shape_is(given, v->ndim, v->shape)) {
        if (inplace)
            return tn_fail(TN_E_SHAPE, -1,
                           "output with shape %s doesn't match the broadcast shape %s",
                           tni_shape_text_of(&given->v), tni_shape_text_of(v));
        TN_TRY(tn_tensor_set_data(given, rets[0]));
        tn_tensor_note_change(given);
        return TN_OK;
    }
    tn_tensor *same = NULL;
    TN_TRY(tni_check_writable(op, given, tn_view_dtype(v)));
    TN_TRY(tn_copy_(given, rets[0], 0, &same));
    tn_tensor_unref(&rets[0]);
    rets[0] = same;
    return TN_OK;
}

tn_status tni_run_sparse(const tn_op *op, void *args, tn_tensor **rets) {
    /* no rule makes a sparse result of strided arguments */
    if (!op->sparse || !(tni_input_words(op, args) & TN_W_LAYOUT)) return refuse(op, args);
    if (op->flags & TNI_OP_INPLACE_ONLY) return run_writing(op, args, rets);
    tni_span outs = tni_given(op, args);
    tn_tensor *given = outs.n > 0 ? outs.v[0] : NULL;
    if (!given) return op->sparse(op, args, rets);
    if (outs.n > 1) return refuse(op, args);
    tn_tensor **first = (tn_tensor **)(void *)((char *)args + op->in_offset[0]), *copy = NULL;
    bool inplace = op->nin > 0 && given == *first;
    uint64_t any = tni_input_words(op, args);
    TN_TRY(tni_check_given_sparse(op, args, given, inplace, any));
    /* note [Composites in place] */
    if (inplace && tni_recording(any)) {
        TN_TRY(tni_ag.copy_original(given, &copy));
        *first = copy;
    }
    /* a rule may write a target in place that nobody records; others do not look */
    if (!inplace || copy) outs.v[0] = NULL;
    tn_status st = op->sparse(op, args, rets);
    outs.v[0] = given;
    if (copy) *first = given;
    tn_tensor_unref(&copy);
    if (st == TN_OK) st = give(op, given, inplace, rets);
    if (st != TN_OK) tni_results_drop(op, rets);
    return st;
}
