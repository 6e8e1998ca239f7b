/* dispatch.c: the entrance of every operator call, layers, and the run functions of structured,
 * composite and view operators. Pointwise and reduction have files of their own. */
#include <stdlib.h>

#include "dispatch_priv.h"
#include "plan_priv.h"

#include <tenon/ops.h>

tni_autograd_hooks tni_ag;

enum { MAX_TEMPS = 24 };

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

/* ---- Kernels -----------------------------------------------------------------------------------*/

tn_status tni_kernel_after(const tn_cell *cell, tn_call *call, const void *args, tn_status st) {
    while (st == TN_DECLINE && (cell = tni_cell_next(cell)) != NULL) {
        call->ctx = cell->ctx;
        st = cell->fn(call, args);
    }
    if (tni_tls.scratch) tni_scratch_release(call);
    if (st == TN_DECLINE)
        return tni_decline((tn_device){(int32_t)call->device_slot, call->device_index},
                           call->dtype);
    return st;
}

/* ---- Structured --------------------------------------------------------------------------------*/

typedef struct structured {
    const tn_op *op;
    void *args;
    tn_infer inf;
    tn_tensor *outs[TNI_MAX_OUTS];
    tn_tensor *temps[MAX_TEMPS];
    int ntemps;
    uint64_t any;
    _Alignas(
        16) unsigned char kargs[TNI_MAX_ARGS_BYTES]; /* the arguments as the kernel gets them */
} structured;

static tn_status look_at_inputs(structured *s) {
    const tn_op *op = s->op;
    const tn_tensor *first = NULL;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        tn_tensor *single = NULL, *const *list = &single;
        int64_t n = 1;
        if (f->kind == TN_F_TENSORS) {
            const tn_views *views = (const void *)((const char *)s->args + f->offset);
            list = tni_tensors_of(*views).v;
            n = views->n;
        } else {
            single = tni_in_slot(op, s->args, i);
            if (!single && f->kind != TN_F_TENSOR_OPT) return tni_fail_null(op, i);
        }
        for (int64_t k = 0; k < n; k++) {
            const tn_tensor *t = list[k];
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

/* Converts one kernel input to the compute dtype and packs it, as the entry asks. */
static tn_status prepare_input(structured *s, tn_tensor *t, tn_view **ret_slot) {
    const tn_op *op = s->op;
    tn_tensor *use = NULL;
    bool cast = (op->flags & TNI_OP_CAST) && tn_view_dtype(&t->v) != s->inf.compute;
    bool pack = (op->flags & TNI_OP_CONTIGUOUS) && !(t->v.word & TN_W_CONTIGUOUS);
    if (!cast && !pack) return TN_OK;
    if (s->ntemps >= MAX_TEMPS) return tn_fail(TN_E_UNSUPPORTED, -1, "too many tensors to convert");
    if (cast)
        TN_TRY(tni_convert(t, s->inf.compute, &use));
    else
        TN_TRY(tni_packed(t, &use));
    s->temps[s->ntemps++] = use;
    *ret_slot = &use->v;
    return TN_OK;
}

static tn_status prepare_inputs(structured *s) {
    const tn_op *op = s->op;
    memcpy(s->kargs, s->args, op->args_bytes);
    if (!(op->flags & (TNI_OP_CAST | TNI_OP_CONTIGUOUS))) return TN_OK;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->kind == TN_F_TENSORS || (f->flags & TNI_FIELD_MUTATED)) continue;
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
            TN_TRY(tni_check_writable(op, given, m->dtype, inplace));
            if (!tni_shape_is(given, m->ndim, m->shape))
                TN_TRY(tni_resize_out(given, m->ndim, m->shape));
            TN_TRY(tni_check_no_internal_overlap(given));
        }
        bool direct = given && tn_view_dtype(&given->v) == m->dtype &&
                      ((op->flags & TNI_OP_INPLACE_ONLY) || (given->v.word & TN_W_CONTIGUOUS));
        for (int k = 0; direct && !(op->flags & TNI_OP_INPLACE_ONLY) && k < op->nin; k++) {
            const tn_tensor *in = NULL;
            if (op->fields[op->in_field[k]].kind != TN_F_TENSORS) in = tni_in_slot(op, s->args, k);
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
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (!(f->flags & TNI_FIELD_MUTATED) || f->kind == TN_F_TENSORS) continue;
        tn_tensor *t = tni_in_slot(op, s->args, i);
        if (t) tni_bump_version(t);
    }
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
    if ((s->any & TN_W_GRAD) && !tni_tls.no_grad && op->grad) {
        for (int i = 0; i < op->nout; i++) *tni_out_slot(op, s->args, i) = s->outs[i];
        TN_TRY(tni_ag.record(op, s->args, s->outs, op->nout));
    }
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
    if (op->flags & TNI_OP_INPLACE_ONLY)
        *tni_out_slot(op, s->args, 0) = tni_in_slot(op, s->args, 0);
    TN_TRY(op->infer(&s->inf, s->args));
    const tn_cell *cell = tni_cell(op, s->inf.device.slot, s->inf.compute);
    if (!cell) cell = tni_kernel_find(op, s->inf.device.slot, s->inf.compute);
    if (!cell) {
        if (tni_has_composite(op)) return tni_run_composite(op, s->args, rets);
        return tni_decline(s->inf.device, s->inf.compute);
    }
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
    tni_tls.no_grad += own;
    tn_status st = op->compose ? op->compose(op, args, rets) : op->composite(args, rets);
    tni_tls.no_grad -= own;
    if (st != TN_OK) return st;
    if (own) {
        tn_tensor_list *l = (tn_tensor_list *)(void *)rets;
        tn_tensor *const *outs = list ? l->v : rets;
        for (int i = 0; !list && i < op->nout; i++) *tni_out_slot(op, args, i) = rets[i];
        st = tni_ag.record(op, args, outs, list ? (int)l->n : op->nout);
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
