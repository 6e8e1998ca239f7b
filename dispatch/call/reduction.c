/* reduction.c: reductions over any set of dimensions: result shape, plan, kernel, record. */
#include "call_priv.h"
#include "copy_priv.h"
#include "infer_priv.h"
#include "plan_priv.h"

typedef struct reduction {
    const tn_op *op;
    void *args;
    tn_tensor *in;   /* as given */
    tn_tensor *use;  /* in the compute dtype */
    tn_tensor *temp; /* use, when it is a conversion */
    tn_tensor *outs[TNI_MAX_OUTS];
    tn_infer inf;
    bool keepdim;
    bool whole; /* no dimension is named */
} reduction;

/* An extreme of nothing does not exist: no reduced dimension may have size 0. */
static tn_status check_some(const reduction *r) {
    const char *name = r->op->info.name;
    for (int32_t d = 0; d < r->in->v.ndim; d++) {
        if (!(r->inf.reduce_mask >> d & 1u) || r->in->v.shape[d] != 0) continue;
        if (r->whole)
            return tn_fail(TN_E_STATE, 0,
                           "%s(): Expected reduction dim to be specified for input.numel() == 0. "
                           "Specify the reduction dim with the 'dim' argument.",
                           name);
        return tn_fail(TN_E_INDEX, 1, "%s(): Expected reduction dim %d to have non-zero size.",
                       name, (int)d);
    }
    return TN_OK;
}

/* Sums are made in the dtype of out=, and one that is asked for has to be that; where the operator says
 * so, a floating one of out= is taken if none is asked for. */
static tn_status take_dtype_of_out(reduction *r, int32_t asked) {
    const tn_op *op = r->op;
    const tn_tensor *out = *tni_out_slot(op, r->args, 0);
    if (!out) return TN_OK;
    int32_t have = tn_view_dtype(&out->v);
    bool sums = op->compute_rule == TNI_COMPUTE_SUM;
    bool follows = op->flags & TNI_OP_OUT_DTYPE && asked < 0;
    if (sums && asked >= 0 && asked != have)
        return tn_fail(TN_E_DTYPE, -1, "Expected out tensor to have dtype %s, but got %s instead",
                       tni_type_text(asked), tni_type_text(have));
    if (sums || (follows && tn_dtype_category(have) >= TN_CAT_FLOAT)) r->inf.compute = have;
    return TN_OK;
}

/* Reads dims, keepdim and dtype out of the arguments; they are recognised by their kinds. */
static inline tn_status read_arguments(reduction *r) {
    const tn_op *op = r->op;
    int32_t dtype = -1;
    tn_ints dims = tn_ints_none();
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        const void *p = (const char *)r->args + f->offset;
        if (f->kind == TN_F_DIMS) dims = *(const tn_ints *)p;
        if (f->kind == TN_F_DIM) dims = tn_ints_of(p, 1);
        if (f->kind == TN_F_DIM_OPT && ((const tn_opt_int *)p)->has) dims = tn_ints_of(p, 1);
        if (f->kind == TN_F_BOOL && strcmp(f->name, "keepdim") == 0)
            r->keepdim = *(const int64_t *)p;
        if (f->kind == TN_F_DTYPE) dtype = (int32_t) * (const int64_t *)p;
    }
    r->whole = dims.n <= 0;
    TN_TRY(tni_dim_mask(dims, r->in->v.ndim, &r->inf.reduce_mask));
    const tn_view *of[] = {&r->in->v};
    TN_TRY(tni_infer_dtype(&r->inf, op->compute_rule, of, 1));
    if (dtype >= 0) {
        if (!tn_dtype_name(dtype))
            return tn_fail(TN_E_DTYPE, -1, "there is no dtype %d", (int)dtype);
        r->inf.compute = dtype;
    }
    TN_TRY(take_dtype_of_out(r, dtype));
    int32_t given = dtype >= 0 ? dtype : tn_view_dtype(&r->in->v);
    if (op->compute_rule == TNI_COMPUTE_FLOAT && tn_dtype_category(given) < TN_CAT_FLOAT)
        return tn_fail(TN_E_DTYPE, -1,
                       "%s(): could not infer output dtype. %s dtype must be either a floating "
                       "point or complex dtype. Got: %s",
                       op->info.name + (op->info.name[0] == '_'), dtype >= 0 ? "Optional" : "Input",
                       tni_type_text(given));
    if (op->compute_rule == TNI_COMPUTE_FIRST && r->in->v.numel == 0) TN_TRY(check_some(r));
    r->inf.device = tn_tensor_device(r->in);
    return TN_OK;
}

static tn_status make_outputs(reduction *r) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = 0;
    const tn_op *op = r->op;
    for (int32_t d = 0; d < r->in->v.ndim; d++) {
        bool gone = r->inf.reduce_mask >> d & 1u;
        if (!gone || r->keepdim) shape[ndim++] = gone ? 1 : r->in->v.shape[d];
    }
    if (op->nout > 1) TN_TRY(tni_check_outputs_apart(op, r->args));
    for (int i = 0; i < op->nout; i++) {
        /* further outputs of a reduction are indices */
        int32_t dtype = i == 0 ? tni_result_of(r->inf.compute, op->result_rule) : TN_I64;
        tn_tensor *given = *tni_out_slot(op, r->args, i);
        if (given) {
            TN_TRY(tni_check_given(op, r->args, given, false, r->in->v.word));
            TN_TRY(tni_check_writable(op, given, dtype));
            TN_TRY(tni_check_out(op, r->args, given, dtype, r->inf.device));
            TN_TRY(tni_check_no_internal_overlap(given));
        }
        if (given && tn_view_dtype(&given->v) == dtype && tni_shape_is(given, ndim, shape) &&
            !tni_may_meet(given, r->in))
            r->outs[i] = tn_tensor_ref(given);
        else
            TN_TRY(tni_tensor_new_fast(dtype, r->inf.device, ndim, shape, &r->outs[i]));
    }
    return TN_OK;
}

/* The outputs as the plan wants them: one dimension per input dimension. */
static tn_status run_kernel(reduction *r) {
    const tn_op *op = r->op;
    tn_plan plan;
    tn_tensor *ts[TN_MAX_OPERANDS], *aligned[TNI_MAX_OUTS] = {NULL};
    tn_status st = TN_OK;
    const tn_cell *cell = tni_kernel_find(op, r->inf.device.slot, r->inf.compute);
    if (!cell) return TN_DECLINE;
    for (int i = 0; i < op->nout && st == TN_OK; i++) {
        int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
        const tn_view *o = &r->outs[i]->v;
        int32_t k = 0;
        for (int32_t d = 0; d < r->in->v.ndim; d++) {
            bool gone = r->inf.reduce_mask >> d & 1u;
            shape[d] = gone ? 1 : r->in->v.shape[d];
            strides[d] = gone ? 0 : o->strides[r->keepdim ? d : k];
            k += !gone;
        }
        st = tni_view_new(r->outs[i], tn_view_dtype(o), r->in->v.ndim, shape, strides, 0,
                          &aligned[i]);
        ts[i] = aligned[i];
    }
    if (st == TN_OK) {
        ts[op->nout] = r->use;
        tni_plan_build(&plan, op->nout + 1, op->nout, ts, 0, NULL, r->in->v.ndim, r->in->v.shape,
                       r->inf.reduce_mask);
        tn_tensor *given[TNI_MAX_OUTS];
        *(const tn_plan **)r->args = &plan;
        for (int i = 0; i < op->nout; i++) {
            given[i] = *tni_out_slot(op, r->args, i);
            *tni_out_slot(op, r->args, i) = r->outs[i];
        }
        st = tni_kernel_run(op, cell, r->inf.device, r->inf.compute, r->args);
        *(const tn_plan **)r->args = NULL;
        for (int i = 0; i < op->nout; i++) *tni_out_slot(op, r->args, i) = given[i];
    }
    for (int i = 0; i < op->nout; i++) tn_tensor_unref(&aligned[i]);
    return st;
}

static tn_status steps(reduction *r, tn_tensor **rets) {
    const tn_op *op = r->op;
    TN_TRY(read_arguments(r));
    TN_TRY(make_outputs(r));
    r->use = r->in;
    if (tn_view_dtype(&r->in->v) != r->inf.compute) {
        TN_TRY(tni_convert(r->in, r->inf.compute, &r->temp));
        r->use = r->temp;
    }
    if (r->outs[0]->v.numel > 0) TN_TRY(run_kernel(r));
    for (int i = 0; i < op->nout; i++) {
        tn_tensor *given = *tni_out_slot(op, r->args, i);
        if (!given) continue;
        if (given != r->outs[i]) {
            TN_TRY(tni_give(given, r->outs[i]));
            tn_tensor_unref(&r->outs[i]);
            r->outs[i] = tn_tensor_ref(given);
        }
        tni_bump_version(given);
    }
    TN_TRY(tni_record_call(op, r->args, r->in->v.word, r->outs));
    for (int i = 0; i < op->nout; i++) {
        rets[i] = r->outs[i];
        r->outs[i] = NULL;
    }
    return TN_OK;
}

static void begin(reduction *r, const tn_op *op, const void *args) {
    r->op = op;
    r->args = (void *)(uintptr_t)args;
    r->in = tni_in_slot(op, args, 0);
    r->temp = NULL;
    r->keepdim = false;
    r->inf.op = op;
}

tn_status tni_wanted_reduction(const tn_op *op, const void *args, tni_wanted *ret_wanted) {
    reduction r;
    begin(&r, op, args);
    TN_TRY(read_arguments(&r));
    *ret_wanted = (tni_wanted){r.inf.device, r.inf.compute};
    return TN_OK;
}

tn_status tni_run_reduction(const tn_op *op, void *args, tn_tensor **rets) {
    reduction r;
    begin(&r, op, args);
    if (!r.in) return tni_fail_null(op, 0);
    if (TN_UNLIKELY(r.in->v.word & TN_W_LAYOUT)) return TN_DECLINE;
    for (int i = 0; i < op->nout; i++) r.outs[i] = NULL;
    tn_status st = steps(&r, rets);
    tn_tensor_unref(&r.temp);
    for (int i = 0; i < op->nout; i++) tn_tensor_unref(&r.outs[i]);
    return st;
}
