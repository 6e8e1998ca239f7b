/* structured.c: operators whose kernels get whole tensors: shape and dtype rule, results, kernel, record. */
#include <stdlib.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "plan_priv.h"

typedef struct structured {
    const tn_op *op;
    void *args;
    tn_infer inf;
    tn_tensor *outs[TNI_MAX_OUTS];
    tn_tensor *temps[TN_MAX_OPERANDS]; /* inputs that are no list, converted */
    int ntemps;
    uint64_t any;
    _Alignas(
        16) unsigned char kargs[TNI_MAX_ARGS_BYTES]; /* the arguments as the kernel gets them */
} structured;

static tn_status look_at_inputs(structured *s) {
    const tn_op *op = s->op;
    const tn_tensor *first = NULL;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = tni_in_field(op, i);
        tni_span in = tni_field_span(f, s->args);
        if (f->kind != TN_F_TENSORS && f->kind != TN_F_TENSOR_OPT && !in.v[0])
            return tni_fail_null(op, i);
        for (int64_t k = 0; k < in.n; k++) {
            const tn_tensor *t = in.v[k];
            if (!t) continue;
            s->any |= t->v.word;
            if (t->v.word & TN_W_SCALAR) continue;
            if (!first) first = t;
            bool loose = t->v.ndim == 0 && tn_view_device(&t->v) == 0;
            if (!loose && ((t->v.word ^ first->v.word) & (TN_W_DEVICE | TN_W_INDEX)))
                return tni_fail_devices(tn_tensor_device(first), tn_tensor_device(t));
        }
    }
    s->inf.device = first ? tn_tensor_device(first) : (tn_device){0, 0};
    return TN_OK;
}

/* Converts one kernel input to the compute dtype and packs it, as the entry asks; what the kernel would
 * overwrite while it reads is copied. */
static tn_status prepare_input(structured *s, tn_tensor *t, tn_view **ret_slot) {
    const tn_op *op = s->op;
    tn_tensor *use = NULL;
    bool cast = (op->flags & TNI_OP_CAST) && tn_view_dtype(&t->v) != s->inf.compute;
    bool pack = (op->flags & TNI_OP_CONTIGUOUS) && !(t->v.word & TN_W_CONTIGUOUS);
    bool copy = (op->flags & TNI_OP_WRITES) && tni_overlaps_written(op, s->args, t);
    if (!cast && !pack && !copy) return TN_OK;
    if (cast || copy)
        TN_TRY(tni_convert(t, cast ? s->inf.compute : tn_view_dtype(&t->v), &use));
    else
        TN_TRY(tni_packed(t, &use));
    s->temps[s->ntemps++] = use;
    *ret_slot = &use->v;
    return TN_OK;
}

static tn_status prepare_inputs(structured *s) {
    const tn_op *op = s->op;
    memcpy(s->kargs, s->args, op->args_bytes);
    if (!(op->flags & (TNI_OP_CAST | TNI_OP_CONTIGUOUS | TNI_OP_WRITES))) return TN_OK;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = tni_in_field(op, i);
        if (tni_is_list(f) || (f->flags & TNI_FIELD_MUTATED)) continue;
        tn_view **slot = (tn_view **)(void *)(s->kargs + f->offset);
        if (*slot) TN_TRY(prepare_input(s, tni_t(*slot), slot));
    }
    return TN_OK;
}

static tn_status make_outputs(structured *s) {
    const tn_op *op = s->op;
    for (int i = 0; i < op->nout; i++) {
        tn_out_meta *m = &s->inf.out[i];
        tn_tensor *given = *tni_out_slot(op, s->args, i);
        if (m->absent) continue;
        if (given) {
            bool inplace =
                (op->flags & TNI_OP_INPLACE_ONLY) || given == tni_in_slot(op, s->args, 0);
            TN_TRY(tni_check_given(op, s->args, given, inplace, s->any));
            TN_TRY(tni_check_writable(op, given, m->dtype));
            if (!tni_shape_is(given, m->ndim, m->shape))
                TN_TRY(tni_resize_out(given, m->ndim, m->shape));
            TN_TRY(tni_check_no_internal_overlap(given));
        }
        bool direct = given && tn_view_dtype(&given->v) == m->dtype &&
                      ((op->flags & TNI_OP_INPLACE_ONLY) || (given->v.word & TN_W_CONTIGUOUS));
        for (int k = 0; direct && !(op->flags & TNI_OP_INPLACE_ONLY) && k < op->nin; k++) {
            const tn_tensor *in = NULL;
            if (!tni_is_list(tni_in_field(op, k))) in = tni_in_slot(op, s->args, k);
            if (in && tni_overlap_of(given, in) != TNI_OVERLAP_NONE) direct = false;
        }
        if (direct) {
            s->outs[i] = tn_tensor_ref(given);
        } else {
            TN_TRY(tni_tensor_new_fast(m->dtype, s->inf.device, m->ndim, m->shape, &s->outs[i]));
            if (m->strided) {
                memcpy(s->outs[i]->v.strides, m->strides, sizeof m->strides[0] * (size_t)m->ndim);
                tni_tensor_refresh(s->outs[i]);
            }
        }
        *(tn_tensor **)(void *)(s->kargs + op->fields[op->out_field[i]].offset) = s->outs[i];
    }
    return TN_OK;
}

/* Counts the writes, moves results into out= tensors, records, hands the results over. */
static tn_status finish_structured(structured *s, tn_tensor **rets) {
    const tn_op *op = s->op;
    if (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY)) tni_bump_written(op, s->args);
    for (int i = 0; i < op->nout; i++) {
        tn_tensor *given = *tni_out_slot(op, s->args, i);
        if (!given || !s->outs[i]) continue;
        if (given != s->outs[i]) {
            TN_TRY(tni_copy_into(given, s->outs[i]));
            tn_tensor_unref(&s->outs[i]);
            s->outs[i] = tn_tensor_ref(given);
        }
        if (!(op->flags & TNI_OP_INPLACE_ONLY)) tni_bump_version(given);
    }
    TN_TRY(tni_record_call(op, s->args, s->any, s->outs));
    for (int i = 0; i < op->nout; i++) {
        rets[i] = s->outs[i];
        s->outs[i] = NULL;
    }
    return TN_OK;
}

static tn_status structured_steps(structured *s, tn_tensor **rets) {
    const tn_op *op = s->op;
    s->inf.op = op;
    TN_TRY(look_at_inputs(s));
    if (op->flags & TNI_OP_WRITES) TN_TRY(tni_check_written(op, s->args, s->any));
    if (op->flags & TNI_OP_INPLACE_ONLY)
        *tni_out_slot(op, s->args, 0) = tni_in_slot(op, s->args, 0);
    TN_TRY(op->infer(&s->inf, s->args));
    const tn_cell *cell = tni_cell(op, s->inf.device.slot, s->inf.compute);
    if (!cell) cell = tni_kernel_find(op, s->inf.device.slot, s->inf.compute);
    if (!cell) return TN_DECLINE;
    TN_TRY(prepare_inputs(s));
    TN_TRY(make_outputs(s));
    TN_TRY(tni_kernel_run(op, cell, s->inf.device, s->inf.compute, s->kargs));
    return finish_structured(s, rets);
}

tn_status tni_run_structured(const tn_op *op, void *args, tn_tensor **rets) {
    structured s;
    s.op = op;
    s.args = args;
    s.ntemps = 0;
    s.any = 0;
    for (int i = 0; i < op->nout; i++) {
        s.outs[i] = NULL;
        s.inf.out[i].absent = 0;
        s.inf.out[i].strided = 0;
    }
    tn_status st = structured_steps(&s, rets);
    for (int i = 0; i < s.ntemps; i++) tn_tensor_unref(&s.temps[i]);
    for (int i = 0; i < op->nout; i++) tn_tensor_unref(&s.outs[i]);
    return st;
}

/* ---- A list of results -------------------------------------------------------------------------*/

static tn_status list_outputs(const structured *s, const tn_out_shape *shapes,
                              tn_tensor_list *list) {
    list->v = calloc((size_t)list->n + 1, sizeof *list->v);
    if (!list->v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; i < list->n; i++)
        TN_TRY(tni_tensor_new_fast(shapes[i].dtype, s->inf.device, shapes[i].ndim, shapes[i].shape,
                                   &list->v[i]));
    return TN_OK;
}

static tn_status list_kernel(structured *s, const tn_cell *cell, tn_tensor_list *list) {
    const tn_op *op = s->op;
    tn_out_shape *shapes = NULL;
    tn_status st = op->infer_list(&s->inf, s->args, &shapes, &list->n);
    if (st == TN_OK) st = list_outputs(s, shapes, list);
    free(shapes);
    if (st == TN_OK) st = prepare_inputs(s);
    if (st != TN_OK) return st;
    *(tn_views *)(void *)(s->kargs + op->out_offset[0]) = tni_views((tn_tensors){list->v, list->n});
    TN_TRY(tni_kernel_run(op, cell, s->inf.device, s->inf.compute, s->kargs));
    if (op->flags & TNI_OP_WRITES) tni_bump_written(op, s->args);
    return tni_record_call(op, s->args, s->any, (tn_tensor **)(void *)list);
}

static tn_status list_steps(structured *s, tn_tensor_list *list) {
    const tn_op *op = s->op;
    s->inf.op = op;
    TN_TRY(look_at_inputs(s));
    if (op->flags & TNI_OP_WRITES) TN_TRY(tni_check_written(op, s->args, s->any));
    TN_TRY(op->infer(&s->inf, s->args));
    const tn_cell *cell = tni_kernel_find(op, s->inf.device.slot, s->inf.compute);
    if (cell) return list_kernel(s, cell, list);
    return TN_DECLINE;
}

tn_status tni_run_list(const tn_op *op, void *args, tn_tensor **rets) {
    structured s;
    tn_tensor_list list = {NULL, 0};
    s.op = op;
    s.args = args;
    s.ntemps = 0;
    s.any = 0;
    tn_status st = list_steps(&s, &list);
    for (int i = 0; i < s.ntemps; i++) tn_tensor_unref(&s.temps[i]);
    if (st == TN_OK)
        *(tn_tensor_list *)(void *)rets = list;
    else
        tn_tensor_list_free(&list);
    return st;
}

tn_status tni_wanted_structured(const tn_op *op, const void *args, tni_wanted *ret_wanted) {
    structured s;
    s.op = s.inf.op = op;
    s.args = (void *)(uintptr_t)args; /* which is read alone */
    s.any = 0;
    TN_TRY(look_at_inputs(&s));
    TN_TRY(op->infer(&s.inf, args));
    *ret_wanted = (tni_wanted){s.inf.device, s.inf.compute};
    return TN_OK;
}
