/* structured.c: operators whose kernels get whole tensors: shape and dtype rule, results, kernel, record. */
#include <stdlib.h>

#include <tenon/op_args.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "plan_priv.h"

/* A list whose members the kernel gets; `made` are those that were made for it. */
typedef struct new_list {
    tn_view **view;
    tn_tensor **made;
    int64_t n;
} new_list;

typedef struct structured {
    const tn_op *op;
    void *args;
    tn_infer inf;
    tn_tensor *outs[TNI_MAX_OUTS];
    tn_tensor *temps[TN_MAX_OPERANDS]; /* inputs that are no list, converted */
    int ntemps;
    new_list
        lists[TN_MAX_OPERANDS]; /* in the place of lists that cannot go to the kernel as they are */
    int nlists;
    bool typed; /* the kernel reads memory as the dtype it was found with */
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
            if (t->v.word & (TN_W_SCALAR | TN_W_LAYOUT)) {
                if (t->v.word & TN_W_LAYOUT) return TN_DECLINE;
                continue;
            }
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
static tn_status prepared(const structured *s, int i, tn_tensor *t, tn_tensor **ret_made) {
    const tn_op *op = s->op;
    int32_t dtype = tn_view_dtype(&t->v), takes = dtype;
    if ((op->flags & TNI_OP_CAST) && !op->takes) takes = s->inf.compute;
    if (op->takes && s->typed) TN_TRY(op->takes(op, i, &t->v, s->inf.compute, &takes));
    bool pack = (op->flags & TNI_OP_CONTIGUOUS) && !(t->v.word & TN_W_CONTIGUOUS);
    if (op->fields[op->in_field[i]].flags & TNI_FIELD_MUTATED) return TN_OK;
    bool copy =
        (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY)) && tni_overlaps_written(op, s->args, t);
    if (takes != dtype || copy) return tni_convert(t, takes, ret_made);
    return pack ? tni_packed(t, ret_made) : TN_OK;
}

static tn_status prepare_input(structured *s, int i, tn_view **slot) {
    tn_tensor *made = NULL;
    TN_TRY(prepared(s, i, tni_t(*slot), &made));
    if (!made) return TN_OK;
    s->temps[s->ntemps++] = made;
    *slot = &made->v;
    return TN_OK;
}

/* The list is the caller's, so one with another member is another list. */
static tn_status replace_member(structured *s, tn_views *list, int64_t k, tn_tensor *made,
                                new_list **own) {
    if (!*own) {
        new_list *l = &s->lists[s->nlists];
        l->view = calloc((size_t)list->n, sizeof *l->view);
        l->made = calloc((size_t)list->n, sizeof(tn_tensor *));
        l->n = list->n;
        s->nlists++;
        if (!l->view || !l->made) {
            tn_tensor_unref(&made);
            return tn_fail(TN_E_MEMORY, -1, "out of memory");
        }
        memcpy(l->view, list->v, sizeof(tn_view *) * (size_t)list->n);
        list->v = l->view;
        *own = l;
    }
    (*own)->made[k] = made;
    (*own)->view[k] = &made->v;
    return TN_OK;
}

static tn_status prepare_list(structured *s, int i, tn_views *list) {
    new_list *own = NULL;
    for (int64_t k = 0; k < list->n; k++) {
        tn_tensor *made = NULL;
        if (list->v[k]) TN_TRY(prepared(s, i, tni_t(list->v[k]), &made));
        if (made) TN_TRY(replace_member(s, list, k, made, &own));
    }
    return TN_OK;
}

static void end_inputs(structured *s) {
    for (int i = 0; i < s->ntemps; i++) tn_tensor_unref(&s->temps[i]);
    for (int i = 0; i < s->nlists; i++) {
        new_list *l = &s->lists[i];
        for (int64_t k = 0; l->made && k < l->n; k++) tn_tensor_unref(&l->made[k]);
        free(l->made);
        free(l->view);
    }
}

static tn_status prepare_inputs(structured *s) {
    const tn_op *op = s->op;
    memcpy(s->kargs, s->args, op->args_bytes);
    const uint32_t some = TNI_OP_CAST | TNI_OP_CONTIGUOUS | TNI_OP_WRITES | TNI_OP_INPLACE_ONLY;
    if (!(op->flags & some)) return TN_OK;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = tni_in_field(op, i);
        void *at = s->kargs + f->offset;
        if (tni_is_list(f)) { /* kernels of the table take lists as they come */
            if (op->takes) TN_TRY(prepare_list(s, i, at));
        } else if (*(tn_view **)at && (op->takes || !(f->flags & TNI_FIELD_MUTATED))) {
            TN_TRY(prepare_input(s, i, at));
        }
    }
    return TN_OK;
}

/* One that reads dtypes from its arguments needs no conversion, unless it may leave the call to others. */
static bool is_typed(const tn_cell *cell) {
    return cell->dtype != TN_DTYPE_ANY || tni_cell_next(cell) != NULL;
}

static bool images_lie_last(const structured *s) {
    bool last = false;
    for (int i = 0; i < s->op->nin; i++) {
        const tn_tensor *t = tni_in_slot(s->op, s->args, i);
        last |= t && tni_lies_channels_last(&t->v);
    }
    return last;
}

/* Whether every kernel that may get the call writes results as they lie. */
static bool are_laid(const tn_cell *cell) {
    while (cell && (cell->flags & TN_K_LAID)) cell = tni_cell_next(cell);
    return !cell;
}

/* Results of operators on images lie as the images, or the filters, do: at once where kernels can write
 * them so. */
static void lay_outputs(structured *s, const tn_cell *cell) {
    if (!images_lie_last(s) || !are_laid(cell)) return;
    for (int i = 0; i < s->op->nout; i++) {
        tn_out_meta *m = &s->inf.out[i];
        if (m->absent || (m->ndim != 4 && m->ndim != 5) || *tni_out_slot(s->op, s->args, i))
            continue;
        m->strided = 1;
        tni_format_strides(m->ndim == 4 ? TN_FORMAT_CHANNELS_LAST : TN_FORMAT_CHANNELS_LAST_3D,
                           NULL, m->ndim, m->shape, m->strides);
    }
}

static tn_status make_outputs(structured *s) {
    const tn_op *op = s->op;
    if (op->nout > 1) TN_TRY(tni_check_outputs_apart(op, s->args));
    for (int i = 0; i < op->nout; i++) {
        tn_out_meta *m = &s->inf.out[i];
        tn_tensor *given = *tni_out_slot(op, s->args, i);
        if (m->absent) continue;
        if (given) {
            bool inplace =
                (op->flags & TNI_OP_INPLACE_ONLY) || given == tni_in_slot(op, s->args, 0);
            TN_TRY(tni_check_given(op, s->args, given, inplace, s->any));
            TN_TRY(tni_check_writable(op, given, m->dtype));
            TN_TRY(tni_check_out(op, s->args, given, m->dtype, s->inf.device));
            bool grows = i == 0 && !tni_shape_is(given, m->ndim, m->shape);
            if (inplace && grows && !(op->flags & TNI_OP_NO_INPLACE))
                return tn_fail(TN_E_SHAPE, -1,
                               "%s_(): Bad in-place call: input tensor size %s and output tensor "
                               "size %s should match",
                               op->info.name, tni_shape_text_of(&given->v),
                               tni_shape_text(m->ndim, m->shape));
            if (inplace && tni_takes_repeated(op, given, s->any)) return TN_OK;
            TN_TRY(tni_check_no_internal_overlap(given));
        }
        bool direct =
            given && tn_view_dtype(&given->v) == m->dtype && tni_shape_is(given, m->ndim, m->shape);
        if (!(op->flags & TNI_OP_INPLACE_ONLY))
            direct = direct && (given->v.word & TN_W_CONTIGUOUS) &&
                     !tni_overlaps_input(op, s->args, given);
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

static tn_status lay_last(tn_tensor **slot) {
    const tn_view *v = &(*slot)->v;
    tn_tensor *last;
    TN_TRY(
        tni_tensor_new_fast(tn_view_dtype(v), tn_tensor_device(*slot), v->ndim, v->shape, &last));
    tni_format_strides(v->ndim == 4 ? TN_FORMAT_CHANNELS_LAST : TN_FORMAT_CHANNELS_LAST_3D, NULL,
                       v->ndim, v->shape, last->v.strides);
    tni_tensor_refresh(last);
    tn_status st = tni_copy_into(last, *slot);
    if (st != TN_OK) {
        tn_tensor_unref(&last);
        return st;
    }
    tn_tensor_unref(slot);
    *slot = last;
    return TN_OK;
}

/* The same of what kernels could write packed only. */
static tn_status follow(structured *s) {
    bool last = images_lie_last(s);
    for (int i = 0; last && i < s->op->nout; i++) {
        tn_tensor *out = s->outs[i];
        if (out && !s->inf.out[i].strided && out != *tni_out_slot(s->op, s->args, i) &&
            (out->v.ndim == 4 || out->v.ndim == 5))
            TN_TRY(lay_last(&s->outs[i]));
    }
    return TN_OK;
}

/* Counts the writes, moves results into out= tensors, records, hands the results over. */
static tn_status finish_structured(structured *s, tn_tensor **rets) {
    const tn_op *op = s->op;
    if (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY | TNI_OP_FOLLOWS)) {
        if (op->flags & TNI_OP_FOLLOWS) TN_TRY(follow(s));
        if (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY)) tni_bump_written(op, s->args);
    }
    for (int i = 0; i < op->nout; i++) {
        tn_tensor *given = *tni_out_slot(op, s->args, i);
        if (!given || !s->outs[i]) continue;
        if (given != s->outs[i]) {
            TN_TRY(tni_give(given, s->outs[i]));
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

/* A complex number among real ones would lose its imaginary part in the kernel. */
static inline tn_status check_number(const structured *s, uint16_t offset) {
    const tn_scalar *number = (const void *)((const char *)s->args + offset);
    return TN_LIKELY(number->kind != TN_CAT_COMPLEX)
               ? TN_OK
               : tni_check_scalar_fits(number, s->inf.compute);
}

static tn_status structured_steps(structured *s, tn_tensor **rets) {
    const tn_op *op = s->op;
    s->inf.op = op;
    TN_TRY(look_at_inputs(s));
    if (op->flags & TNI_OP_WRITES) TN_TRY(tni_check_written(op, s->args, s->any));
    if (op->flags & TNI_OP_INPLACE_ONLY)
        *tni_out_slot(op, s->args, 0) = tni_in_slot(op, s->args, 0);
    TN_TRY(op->infer(&s->inf, s->args));
    for (int i = 0; i < op->nnumbers; i++) TN_TRY(check_number(s, op->number_offset[i]));
    const tn_cell *cell = tni_cell(op, s->inf.device.slot, s->inf.compute);
    if (!cell) cell = tni_kernel_find(op, s->inf.device.slot, s->inf.compute);
    if (!cell) return TN_DECLINE;
    s->typed = is_typed(cell);
    TN_TRY(prepare_inputs(s));
    if (op->flags & TNI_OP_FOLLOWS) lay_outputs(s, cell);
    TN_TRY(make_outputs(s));
    if (TN_UNLIKELY(op->repeated && !s->outs[0])) return op->repeated(s->args, rets);
    TN_TRY(tni_kernel_run(op, cell, s->inf.device, s->inf.compute, s->kargs));
    return finish_structured(s, rets);
}

tn_status tni_run_structured(const tn_op *op, void *args, tn_tensor **rets) {
    structured s;
    s.op = op;
    s.args = args;
    s.ntemps = s.nlists = 0;
    s.any = 0;
    for (int i = 0; i < op->nout; i++) {
        s.outs[i] = NULL;
        s.inf.out[i].absent = 0;
        s.inf.out[i].strided = 0;
    }
    tn_status st = structured_steps(&s, rets);
    end_inputs(&s);
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
    s->typed = is_typed(cell);
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
    s.ntemps = s.nlists = 0;
    s.any = 0;
    tn_status st = list_steps(&s, &list);
    end_inputs(&s);
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
