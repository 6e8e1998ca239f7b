/* composed.c: kernels for operators that are composites. There are none until somebody registers one; the
 * operator then runs here.
 *
 * Note [Kernels for composites]
 * A kernel takes the place of the composite, and of nothing else: what is before and after it (checks, in-place and
 * out= forms, the record of an operator with a gradient of its own) is composite.c's. It gets whole tensors, strided
 * as they are. Its dtype is the one that the arguments are promoted to, those left aside that the table marks as an index,
 * a mask, class numbers (TNI_FIXED_ANY); they are converted to it, numbers become 0-d tensors, and those
 * left aside arrive as they are. The results are new and packed, with the shapes and dtypes that the
 * composite gives: it runs on the device "meta" first, where nothing is computed.
 * A recorded call of an operator without a gradient of its own is recorded as one, by a copy of its descriptor (a
 * recorded_form), whose gradient runs the composite again and differentiates that.
 * The composite serves the calls whose kernels all decline, and those that it alone can serve:
 *   - recorded ones of such an operator that draw random numbers, write arguments, return a list;
 *   - those that autocast looks at through their parts;
 *   - results that are an argument or a view of one, and results whose shape depends on values;
 *   - a dtype argument that asks for another dtype than the kernel's. */
#include <stdlib.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "layers_priv.h"
#include "plan_priv.h"

enum { AT_ONCE = 64 }; /* tensors of a call that need no memory from the heap */

typedef struct composed {
    const tn_op *op;
    const void *args;
    bool again; /* the gradient will run the composite again */
    tni_wanted wanted;
    const tn_cell *cell;
    tn_tensor **stand_in; /* of each input, lists flattened; NULL: it goes as it is */
    tn_tensor **in;       /* the inputs */
    int64_t nin;          /* of both */
    tn_tensor *inline_[2 * AT_ONCE];
    tn_tensor **lists[TN_MAX_OPERANDS]; /* in the place of the caller's */
    union {
        tn_tensor *one[TNI_MAX_OUTS];
        tn_tensor_list list;
    } shapes, outs; /* on meta, and what the kernel writes; see tni_results */
    _Alignas(16) unsigned char kargs[TNI_MAX_ARGS_BYTES];
} composed;

bool tni_takes_kernels(const tn_op *op, const char **ret_why) {
    *ret_why = NULL;
    if (op->info.kind == TN_OP_VIEW) *ret_why = "a view computes nothing";
    if (op->info.kind != TN_OP_COMPOSITE) return *ret_why == NULL;
    if (op->nin == 0) *ret_why = "it has no tensor that would say where it runs";
    if (op->flags & TNI_OP_DYNAMIC) *ret_why = "the shape of its result depends on values";
    return *ret_why == NULL;
}

/* ---- Which kernel ------------------------------------------------------------------------------*/

static bool is_number(const tn_tensor *t) { return t->v.word & TN_W_SCALAR; }

/* A 0-d tensor of the CPU goes with tensors of any device. */
static bool is_loose(const tn_tensor *t) { return t->v.ndim == 0 && tn_view_device(&t->v) == 0; }

static tn_status collect(composed *c) {
    const tn_op *op = c->op;
    for (int i = 0; i < op->nin; i++) c->nin += tni_in_span(op, c->args, i).n;
    c->in = c->inline_;
    if (c->nin > AT_ONCE) c->in = calloc((size_t)c->nin, sizeof(tn_tensor *[2]));
    if (!c->in) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    c->stand_in = c->in + c->nin;
    memset(c->stand_in, 0, sizeof(tn_tensor *) * (size_t)c->nin);
    int64_t n = 0;
    for (int i = 0; i < op->nin; i++) {
        tni_span s = tni_in_span(op, c->args, i);
        for (int64_t k = 0; k < s.n; k++) c->in[n++] = s.v[k];
    }
    return TN_OK;
}

/* All tensors lie on one device that computes. */
static bool find_device(composed *c) {
    const tn_tensor *first = NULL;
    for (int64_t k = 0; k < c->nin; k++) {
        const tn_tensor *t = c->in[k];
        if (!t || is_number(t)) continue;
        if (t->v.word & TN_W_LAYOUT) return false;
        if (!first || (is_loose(first) && !is_loose(t))) first = t;
    }
    if (!first || tni_is_meta(&first->v)) return false;
    c->wanted.device = tn_tensor_device(first);
    for (int64_t k = 0; k < c->nin; k++) {
        const tn_tensor *t = c->in[k];
        if (t && !is_number(t) && !is_loose(t) &&
            ((t->v.word ^ first->v.word) & (TN_W_DEVICE | TN_W_INDEX)))
            return false;
    }
    return true;
}

/* The dtype that those inputs are promoted to which are computed with. */
static bool find_dtype(composed *c) {
    const tn_op *op = c->op;
    int64_t at = 0;
    int n = 0;
    tn_tensor **some = c->stand_in; /* room that is not needed yet */
    for (int i = 0; i < op->nin; i++) {
        tni_span s = tni_in_span(op, c->args, i);
        bool apart = tni_in_field(op, i)->fixed != 0;
        for (int64_t k = 0; k < s.n; k++, at++)
            if (c->in[at] && !apart) some[n++] = c->in[at];
    }
    c->wanted.dtype = n > 0 ? tni_result_dtype(some, n) : -1;
    memset(some, 0, sizeof(tn_tensor *) * (size_t)n);
    return c->wanted.dtype >= 0;
}

/* An argument names a device, or a dtype that is not the kernel's. */
static bool asks_for_more(const composed *c) {
    for (int i = 0; i < c->op->nfields; i++) {
        const tn_field *f = &c->op->fields[i];
        if (f->kind != TN_F_DEVICE && f->kind != TN_F_DTYPE) continue;
        int64_t asked = *(const int64_t *)tni_field_at(f, c->args);
        if (asked >= 0 && (f->kind == TN_F_DEVICE || asked != c->wanted.dtype)) return true;
    }
    return false;
}

static bool find_kernel(composed *c) {
    const tn_op *op = c->op;
    if (tni_tls.layers & ~(TNI_LAYER_PROFILER | TNI_LAYER_DEFERRED)) return false;
    if (!find_device(c) || !find_dtype(c) || asks_for_more(c)) return false;
    if (tni_way_of(op, c->wanted.device, c->wanted.dtype) != TN_WAY_KERNEL) return false;
    c->cell = tni_kernel_find(op, c->wanted.device.slot, c->wanted.dtype);
    return c->cell != NULL;
}

/* ---- Arguments ---------------------------------------------------------------------------------*/

static void drop_stand_ins(composed *c) {
    for (int64_t k = 0; k < c->nin; k++)
        if (c->stand_in[k]) tn_tensor_unref(&c->stand_in[k]);
    for (int i = 0; i < c->op->nin; i++) {
        free(c->lists[i]);
        c->lists[i] = NULL;
    }
}

/* kargs: the arguments with the stand-ins in the place of tensors, and without results. */
static tn_status fill_args(composed *c) {
    const tn_op *op = c->op;
    int64_t at = 0;
    memcpy(c->kargs, c->args, op->args_bytes);
    for (int i = 0; i < op->nin; i++) {
        tni_span s = tni_in_span(op, c->args, i),
                 *own = tni_field_at(tni_in_field(op, i), c->kargs);
        tn_tensor **to = (tn_tensor **)(void *)own;
        if (tni_is_list(tni_in_field(op, i))) {
            to = c->lists[i] = calloc((size_t)(s.n > 0 ? s.n : 1), sizeof *to);
            if (!to) return tn_fail(TN_E_MEMORY, -1, "out of memory");
            own->v = to;
        }
        for (int64_t k = 0; k < s.n; k++, at++)
            to[k] = c->stand_in[at] ? c->stand_in[at] : c->in[at];
    }
    tni_span given = tni_given(op, c->kargs);
    for (int64_t i = 0; i < given.n; i++) given.v[i] = NULL;
    return TN_OK;
}

/* ---- Shapes ------------------------------------------------------------------------------------*/

static tn_status on_meta(const tn_tensor *t, tn_tensor **ret_meta) {
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(&t->v), (tn_device){TN_META_SLOT, 0}, t->v.ndim,
                               t->v.shape, ret_meta));
    if (t->v.ndim == 0) return TN_OK;
    memcpy((*ret_meta)->v.strides, t->v.strides, sizeof t->v.strides[0] * (size_t)t->v.ndim);
    tni_tensor_refresh(*ret_meta);
    return TN_OK;
}

static tn_status compose_on_meta(composed *c) {
    const tn_op *op = c->op;
    for (int64_t k = 0; k < c->nin; k++)
        if (c->in[k] && !is_number(c->in[k])) TN_TRY(on_meta(c->in[k], &c->stand_in[k]));
    TN_TRY(fill_args(c));
    for (int i = 0; i < op->nfields; i++)
        if (op->fields[i].kind == TN_F_GENERATOR)
            *(tn_generator **)tni_field_at(&op->fields[i], c->kargs) = NULL;
    if (op->flags & TNI_OP_INPLACE_ONLY)
        *tni_out_slot(op, c->kargs, 0) = tni_in_slot(op, c->kargs, 0);
    return tni_compose(op, c->kargs, c->shapes.one);
}

/* A result that lies in the memory of an argument is there without a kernel. */
static bool are_new(const composed *c) {
    tni_span s = tni_results(c->op, (tn_tensor **)(uintptr_t)c->shapes.one);
    for (int64_t i = 0; i < s.n; i++) {
        if (!s.v[i]) continue;
        if (!tni_is_meta(&s.v[i]->v)) return false;
        for (int64_t k = 0; k < c->nin; k++)
            if (c->stand_in[k] && s.v[i]->storage == c->stand_in[k]->storage) return false;
    }
    return true;
}

/* Shapes and dtypes of the results; false: the composite is to say it, or why it cannot. */
static bool find_shapes(composed *c) {
    uint64_t layers = tni_tls.layers;
    const struct tni_watcher *watcher = tni_tls.watcher;
    tni_tls.layers = 0;
    tni_tls.watcher = NULL;
    tni_tls.drew = false;
    tni_grad_off();
    tn_status st = compose_on_meta(c);
    tni_grad_on();
    tni_tls.layers = layers;
    tni_tls.watcher = watcher;
    bool found = st == TN_OK && ((c->op->flags & TNI_OP_INPLACE_ONLY) || are_new(c));
    if (c->again && tni_tls.drew) found = false;
    if (st != TN_OK) {
        tni_results_clear(c->op, c->shapes.one);
        (void)tn_error_last(); /* told: nobody else's failure has its text */
    }
    drop_stand_ins(c);
    return found;
}

/* ---- The call ----------------------------------------------------------------------------------*/

/* t as the kernel reads it: in its dtype, on its device. */
static tn_status prepare(const composed *c, const tn_tensor *t, bool apart, tn_tensor **ret_made) {
    int32_t dtype = apart ? tn_view_dtype(&t->v) : c->wanted.dtype;
    bool far = tn_view_device(&t->v) != c->wanted.device.slot;
    if (!is_number(t) && !far && dtype == tn_view_dtype(&t->v)) return TN_OK;
    TN_TRY(tni_tensor_new_fast(dtype, c->wanted.device, t->v.ndim, t->v.shape, ret_made));
    return tni_copy_into(*ret_made, t);
}

static tn_status prepare_inputs(composed *c) {
    const tn_op *op = c->op;
    int64_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = tni_in_field(op, i);
        int64_t n = tni_in_span(op, c->args, i).n;
        for (int64_t k = 0; k < n; k++, at++) {
            if (!c->in[at]) continue;
            TN_TRY(prepare(c, c->in[at], f->fixed != 0, &c->stand_in[at]));
            /* what is written is the caller's or nobody's */
            if (c->stand_in[at] && (f->flags & TNI_FIELD_MUTATED)) return TN_DECLINE;
        }
    }
    return fill_args(c);
}

/* The input of an operator that has no other result; it must lie apart from the others. */
static tn_status write_first(composed *c) {
    tn_tensor *t = tni_in_slot(c->op, c->args, 0);
    TN_TRY(tni_check_writable(c->op, t, tn_view_dtype(&t->v)));
    TN_TRY(tni_check_no_internal_overlap(t));
    for (int64_t k = 1; k < c->nin; k++)
        if (c->in[k] && !c->stand_in[k] && tni_may_meet(t, c->in[k])) return TN_DECLINE;
    c->outs.one[0] = tn_tensor_ref(t);
    return TN_OK;
}

static tn_status make_outputs(composed *c) {
    const tn_op *op = c->op;
    tni_span shapes = tni_results(op, c->shapes.one);
    if (op->flags & TNI_OP_INPLACE_ONLY) return write_first(c);
    if (tni_returns_list(op)) {
        c->outs.list.v = calloc((size_t)(shapes.n > 0 ? shapes.n : 1), sizeof *c->outs.list.v);
        if (!c->outs.list.v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        c->outs.list.n = shapes.n;
    }
    tni_span outs = tni_results(op, c->outs.one);
    for (int64_t i = 0; i < shapes.n; i++) {
        if (!shapes.v[i]) continue;
        const tn_view *v = &shapes.v[i]->v;
        TN_TRY(
            tni_tensor_new_fast(tn_view_dtype(v), c->wanted.device, v->ndim, v->shape, &outs.v[i]));
    }
    return TN_OK;
}

static tn_status call_kernel(composed *c) {
    const tn_op *op = c->op;
    if (op->flags & TNI_OP_WRITES)
        TN_TRY(tni_check_written(op, c->args, tni_input_words(op, c->args)));
    TN_TRY(prepare_inputs(c));
    TN_TRY(make_outputs(c));
    if (tni_returns_list(op)) {
        tn_tensors made = {c->outs.list.v, c->outs.list.n};
        *(tn_views *)(void *)(c->kargs + op->out_offset[0]) = tni_views(made);
    } else {
        for (int i = 0; i < op->nout; i++) *tni_out_slot(op, c->kargs, i) = c->outs.one[i];
    }
    TN_TRY(tni_kernel_run(op, c->cell, c->wanted.device, c->wanted.dtype, c->kargs));
    if (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY)) tni_bump_written(op, c->args);
    return TN_OK;
}

/* By a kernel; TN_DECLINE: the call is the composite's. */
static tn_status by_kernel(composed *c, tn_tensor **rets) {
    TN_TRY(collect(c));
    if (c->again && c->nin > AT_ONCE) return TN_DECLINE; /* a gradient is told which in 64 bits */
    if (!find_kernel(c) || !find_shapes(c)) return TN_DECLINE;
    tni_results_clear(c->op, c->outs.one);
    tn_status st = call_kernel(c);
    drop_stand_ins(c);
    if (st != TN_OK) {
        tni_results_drop(c->op, c->outs.one);
    } else if (tni_returns_list(c->op)) {
        *(tn_tensor_list *)(void *)rets = c->outs.list;
    } else {
        for (int i = 0; i < c->op->nout; i++) rets[i] = c->outs.one[i];
    }
    return st;
}

static tn_status try_kernel(const tn_op *op, const void *args, bool again, tn_tensor **rets) {
    composed c = {.op = op, .args = args, .again = again};
    tni_results_clear(op, c.shapes.one);
    tn_status st = by_kernel(&c, rets);
    tni_results_drop(op, c.shapes.one);
    if (c.in != c.inline_) free(c.in);
    return st;
}

static tn_status make(const tn_op *op, const void *args, tn_tensor **rets) {
    tn_status st = try_kernel(op, args, false, rets);
    return st == TN_DECLINE ? tni_compose(op, args, rets) : st;
}

/* ---- Recorded calls ----------------------------------------------------------------------------*/

/* The operator as a recorded call has it: with a gradient, which reads all tensors. */
typedef struct recorded_form {
    tn_op op; /* first */
    const tn_op *of;
    tn_field fields[];
} recorded_form;

static tn_status make_recorded(const tn_op *op, const void *args, tn_tensor **rets) {
    return try_kernel(((const recorded_form *)(const void *)op)->of, args, true, rets);
}

/* Made once; NULL: out of memory. */
static const tn_op *recorded_form_of(const tn_op *op) {
    _Atomic(tn_op *) *at = &((tn_op *)(uintptr_t)op)->recorded;
    tn_op *have = atomic_load_explicit(at, memory_order_acquire);
    if (have) return have;
    recorded_form *r = calloc(1, sizeof *r + sizeof r->fields[0] * op->nfields);
    if (!r) return NULL;
    memcpy(&r->op, op, sizeof r->op);
    memcpy(r->fields, op->fields, sizeof r->fields[0] * op->nfields);
    for (int i = 0; i < op->nin; i++)
        r->fields[op->in_field[i]].flags |= TNI_FIELD_SAVED | TNI_FIELD_DIFF;
    r->of = op;
    r->op.fields = r->fields;
    r->op.grad = tni_ag.recompute;
    atomic_store_explicit(&r->op.recipe, NULL, memory_order_relaxed);
    if (atomic_compare_exchange_strong(at, &have, &r->op)) return &r->op;
    free(r); /* another thread was faster */
    return have;
}

/* A call that no kernel takes leaves the arguments as they were. */
static tn_status run_recorded(const tn_op *op, void *args, tn_tensor **rets) {
    tn_tensor *given[TNI_MAX_OUTS] = {NULL};
    const tn_op *form = recorded_form_of(op);
    if (!form) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tni_span outs = tni_given(op, args);
    for (int64_t i = 0; i < outs.n; i++) given[i] = outs.v[i];
    tn_status st = tni_run_composite_by(form, args, rets, make_recorded);
    for (int64_t i = 0; i < outs.n && st == TN_DECLINE; i++) outs.v[i] = given[i];
    return st;
}

/* Of a call that writes to tensors, the gradient cannot run again; a list has no such form. */
static bool is_plain(const tn_op *op, void *args) {
    if (op->flags & (TNI_OP_WRITES | TNI_OP_INPLACE_ONLY | TNI_OP_LIST_OUT)) return false;
    tni_span outs = tni_given(op, args);
    for (int64_t i = 0; i < outs.n && (op->flags & TNI_OP_TAKES_OUT); i++)
        if (outs.v[i]) return false;
    return true;
}

tn_status tni_run_composed(const tn_op *op, void *args, tn_tensor **rets) {
    if (op->grad || !tni_recording(tni_input_words(op, args)))
        return tni_run_composite_by(op, args, rets, make);
    tn_status st = is_plain(op, args) ? run_recorded(op, args, rets) : TN_DECLINE;
    return st == TN_DECLINE ? tni_run_composite(op, args, rets) : st;
}
