/* added_run.c: what the operators of plugins run in the place of generated functions: shape and dtype
 * rules, composites, gradients. */
#include <stdlib.h>

#include <tenon/ops_create.h>

#include "codegen_priv.h"
#include "call_priv.h"
#include "infer_priv.h"

enum { MAX_LIST = 1 << 16 }; /* tensors of one result */

/* ---- Shapes and dtypes -------------------------------------------------------------------------*/

static const tn_view *input_of(const tn_op *op, const void *args, int i) {
    return tni_v(tni_in_slot(op, args, i));
}

static tn_status broadcast(const tn_op *op, const void *args, int32_t *ret_ndim, int64_t *shape) {
    *ret_ndim = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_view *v = input_of(op, args, i);
        if (v) TN_TRY(tni_broadcast_shapes(*ret_ndim, shape, v->ndim, v->shape, ret_ndim, shape));
    }
    return TN_OK;
}

static tn_status infer_broadcast(tn_infer *inf, const void *args) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim;
    TN_TRY(broadcast(inf->op, args, &ndim, shape));
    for (int i = 0; i < inf->op->nout; i++) TN_TRY(tni_infer_set(inf, i, ndim, shape));
    return TN_OK;
}

/* What a function of the plugin returned, as a status of the operator. */
static tn_status returned(const tni_added *o, tn_status st) {
    return tni_error_of_plugin(st, o->op.info.name, o->plugin->name);
}

static tn_status check_shape(const tni_added *o, int64_t i, const tn_out_shape *s) {
    int64_t numel;
    bool sound = tn_dtype_name(s->dtype) && s->ndim >= 0 && s->ndim <= TN_MAX_DIMS;
    for (int32_t d = 0; sound && d < s->ndim; d++) sound = s->shape[d] >= 0;
    if (sound && tni_numel(s->ndim, s->shape, tn_dtype_size(s->dtype), &numel) == TN_OK)
        return TN_OK;
    if (sound)
        return tn_fail(
            TN_E_VALUE, -1,
            "%s: the shape rule of plugin '%s' gives result %lld more elements than there "
            "can be, %s",
            o->op.info.name, o->plugin->name, (long long)i, tni_shape_text(s->ndim, s->shape));
    return tn_fail(
        TN_E_PLUGIN, -1,
        "%s: the shape rule of plugin '%s' gives result %lld an impossible shape or dtype",
        o->op.info.name, o->plugin->name, (long long)i);
}

/* A plugin's own rule, whose answers are not believed unseen. */
static tn_status ask_plugin(const tni_added *o, const void *args, int64_t n, tn_out_shape *outs) {
    TN_TRY(returned(o, tni_caught(o->desc.infer(&tni_host, o->desc.ctx, args, outs))));
    for (int64_t i = 0; i < n; i++) TN_TRY(check_shape(o, i, &outs[i]));
    return TN_OK;
}

static tn_status infer_foreign(tn_infer *inf, const void *args) {
    const tni_added *o = tni_added_of(inf->op);
    tn_out_shape *outs = calloc((size_t)o->op.nout, sizeof *outs);
    if (!outs) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int i = 0; i < o->op.nout; i++) outs[i].dtype = inf->out[i].dtype;
    tn_status st = ask_plugin(o, args, o->op.nout, outs);
    for (int i = 0; i < o->op.nout && st == TN_OK; i++) {
        inf->out[i].dtype = outs[i].dtype;
        st = tni_infer_set(inf, i, outs[i].ndim, outs[i].shape);
    }
    free(outs);
    return st;
}

/* The tensors that input i consists of. */
static tn_views views_of(const tn_op *op, const void *args, int i) {
    const void *p = (const char *)args + op->in_offset[i];
    if (op->fields[op->in_field[i]].kind == TN_F_TENSORS) return *(const tn_views *)p;
    return (tn_views){(tn_view *const *)p, 1};
}

/* Are those inputs to which the schema gives a dtype of that dtype? */
static tn_status check_own_dtypes(const tn_op *op, const void *args) {
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        if (f->fixed == 0 || f->fixed == TNI_FIXED_ANY) continue;
        int32_t want = f->fixed - TNI_FIXED_DTYPE;
        tn_views list = views_of(op, args, i);
        for (int64_t k = 0; k < list.n; k++)
            if (list.v[k] && tn_view_dtype(list.v[k]) != want)
                return tn_fail(TN_E_DTYPE, op->in_field[i],
                               "%s(): argument '%s' must be a tensor of %s, not %s", op->info.name,
                               f->name, tn_dtype_name(want),
                               tn_dtype_name(tn_view_dtype(list.v[k])));
    }
    return TN_OK;
}

tn_status tni_added_takes(const tn_op *op, int i, const tn_view *t, int32_t compute,
                          int32_t *ret_dtype) {
    const tn_field *f = &op->fields[op->in_field[i]];
    int32_t have = tn_view_dtype(t), takes = tni_added_of(op)->takes[i];
    int32_t from = tn_dtype_category(have), to = tn_dtype_category(compute);
    bool number = t->word & TN_W_SCALAR, written = f->flags & TNI_FIELD_MUTATED;
    *ret_dtype = have;
    if (have == compute || takes == TNI_TAKES_OWN) return TN_OK;
    bool index = takes == TNI_TAKES_KIN && have == TN_I64 && !number;
    bool fits = takes == TNI_TAKES_COMPUTE || from == to || (number && from < to);
    if (index) return TN_OK;
    *ret_dtype = compute;
    if (fits && !written) return TN_OK;
    return tn_fail(TN_E_DTYPE, op->in_field[i],
                   "%s(): argument '%s' is %s where the operator computes in %s; an argument of "
                   "another dtype is declared, as in Tensor(%s) %s",
                   op->info.name, f->name, tn_dtype_name(have), tn_dtype_name(compute),
                   tn_dtype_name(have), f->name);
}

tn_status tni_added_infer_dtype(tn_infer *inf, const void *args) {
    const tni_added *o = tni_added_of(inf->op);
    const tn_view *few[2 * TN_MAX_OPERANDS], **of = few;
    int64_t n = 0, room = 0;
    TN_TRY(check_own_dtypes(&o->op, args));
    for (int i = 0; i < o->ndtype_of; i++) room += views_of(&o->op, args, o->dtype_of[i]).n;
    if (room > TN_COUNT(few) && !(of = calloc((size_t)room, sizeof *of)))
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int i = 0; i < o->ndtype_of; i++) {
        tn_views list = views_of(&o->op, args, o->dtype_of[i]);
        for (int64_t k = 0; k < list.n; k++) of[n++] = list.v[k];
    }
    tn_status st = tni_infer_dtype(inf, o->op.compute_rule, of, (int)n);
    if (of != few) free(of);
    if (st != TN_OK) return st;
    for (int i = 0; i < o->op.nout; i++)
        inf->out[i].dtype = tni_result_of(inf->compute, o->op.result_rule);
    return TN_OK;
}

/* The tensor whose shape the results have. */
static tn_status find_same(const tni_added *o, const void *args, const tn_view **ret_view) {
    *ret_view = input_of(&o->op, args, o->same_as);
    if (*ret_view) return TN_OK;
    return tn_fail(TN_E_VALUE, o->op.in_field[o->same_as],
                   "%s: the tensor whose shape the result takes was not given", o->op.info.name);
}

tn_status tni_added_infer(tn_infer *inf, const void *args) {
    const tni_added *o = tni_added_of(inf->op);
    const tn_view *same;
    TN_TRY(tni_added_infer_dtype(inf, args));
    if (o->op.nout == 0) return TN_OK;
    if (o->desc.infer) return infer_foreign(inf, args);
    if (o->same_as < 0) return infer_broadcast(inf, args);
    TN_TRY(find_same(o, args, &same));
    for (int i = 0; i < o->op.nout; i++) tni_infer_same(inf, i, same);
    return TN_OK;
}

static tn_status count_results(const tni_added *o, const void *args, int64_t *ret_n) {
    *ret_n = 0;
    TN_TRY(returned(o, tni_caught(o->desc.count(&tni_host, o->desc.ctx, args, ret_n))));
    if (*ret_n >= 0 && *ret_n <= MAX_LIST) return TN_OK;
    return tn_fail(TN_E_PLUGIN, -1, "%s: plugin '%s' counts %lld results; 0 to %d are possible",
                   o->op.info.name, o->plugin->name, (long long)*ret_n, MAX_LIST);
}

/* All results alike, in the shape that core knows. */
static tn_status fill_shapes(const tni_added *o, const void *args, int64_t n, tn_out_shape *outs) {
    const tn_view *same;
    tn_out_shape s = {.dtype = outs[0].dtype};
    if (o->same_as < 0) {
        TN_TRY(broadcast(&o->op, args, &s.ndim, s.shape));
    } else {
        TN_TRY(find_same(o, args, &same));
        s.ndim = same->ndim;
        memcpy(s.shape, same->shape, sizeof s.shape[0] * (size_t)s.ndim);
    }
    for (int64_t i = 0; i < n; i++) outs[i] = s;
    return TN_OK;
}

tn_status tni_added_infer_list(const tn_infer *inf, const void *args, tn_out_shape **ret_shapes,
                               int64_t *ret_n) {
    const tni_added *o = tni_added_of(inf->op);
    int64_t n;
    TN_TRY(count_results(o, args, &n));
    tn_out_shape *outs = calloc((size_t)n + 1, sizeof *outs);
    if (!outs) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int64_t i = 0; i < n; i++) outs[i].dtype = inf->out[0].dtype;
    tn_status st = o->desc.infer ? ask_plugin(o, args, n, outs) : fill_shapes(o, args, n, outs);
    if (st != TN_OK) {
        free(outs);
        return st;
    }
    *ret_shapes = outs;
    *ret_n = n;
    return TN_OK;
}

/* ---- Composites --------------------------------------------------------------------------------*/

/* Everything is computed before anything is written, so what is an argument or a view of one has to be
 * copied: two arguments may be given each other's values. */
static tn_status detach_values(const tni_added *o, const void *args, uint64_t given,
                               tni_result *got) {
    for (int i = 0; i < TN_MAX_OPERANDS; i++) {
        tn_tensor *copy, *t = got[i].t;
        bool one = (given >> i & 1u) && !(o->op.flags & TNI_OP_LIST_OUT);
        if (!one || !tni_overlaps_written(&o->op, args, t)) continue;
        TN_TRY(tn_clone(t, TN_FORMAT_PRESERVE, &copy));
        tn_tensor_unref(&got[i].t);
        got[i].t = copy;
    }
    return TN_OK;
}

static tn_status write_values(const tni_added *o, const void *args, uint64_t given,
                              const tni_result *got) {
    for (int i = 0; i < o->op.nin; i++) {
        int at = o->op.nout + i;
        tn_tensor *same, *to = tni_t(input_of(&o->op, args, i));
        if (!(given >> at & 1u) || !to) continue;
        TN_TRY(tn_copy_(to, got[at].t, 0, &same));
        tn_tensor_unref(&same);
    }
    return TN_OK;
}

/* A formula's values: results to the caller, others into the arguments that they are for. */
static tn_status compose_formula(const tni_added *o, const void *args, tn_tensor **rets) {
    const tn_op *op = &o->op;
    tni_result got[TN_MAX_OPERANDS];
    tni_incoming nothing = {NULL, 0};
    uint64_t none, given = tni_formula_given(o->forward, &none);
    uint64_t results = (UINT64_C(1) << op->nout) - 1;
    TN_TRY(tni_formula_run(o->forward, args, nothing, given, got));
    tn_status st = op->flags & TNI_OP_WRITES ? detach_values(o, args, given, got) : TN_OK;
    if (st == TN_OK) st = write_values(o, args, given, got);
    if (st != TN_OK) {
        tni_formula_drop(o->forward, given, got);
        return st;
    }
    tni_formula_drop(o->forward, given & ~results, got);
    if (op->flags & TNI_OP_LIST_OUT)
        *(tn_tensor_list *)(void *)rets = got[0].list;
    else
        for (int i = 0; i < op->nout; i++) rets[i] = got[i].t;
    return TN_OK;
}

static tn_status fail_incomplete(const tni_added *o) {
    return tn_fail(TN_E_PLUGIN, -1, "%s: plugin '%s' returned no tensor", o->op.info.name,
                   o->plugin->name);
}

static tn_status compose_list(const tni_added *o, const void *args, tn_tensor_list *ret_list) {
    tn_tensor_list list = {NULL, 0};
    int64_t n;
    TN_TRY(count_results(o, args, &n));
    list.v = calloc((size_t)n + 1, sizeof(tn_tensor *));
    if (!list.v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    list.n = n;
    tn_status st =
        tni_caught(o->desc.composite(&tni_host, o->desc.ctx, args, (tn_view **)(void *)list.v));
    if (st != TN_OK) {
        free(list.v); /* its entries are the caller's on success only */
        return returned(o, st);
    }
    for (int64_t i = 0; i < n && st == TN_OK; i++)
        if (!list.v[i]) st = fail_incomplete(o);
    if (st == TN_OK)
        *ret_list = list;
    else
        tn_tensor_list_free(&list);
    return st;
}

static tn_status compose_foreign(const tni_added *o, const void *args, tn_tensor **rets) {
    bool complete = true;
    tn_status st =
        tni_caught(o->desc.composite(&tni_host, o->desc.ctx, args, (tn_view **)(void *)rets));
    if (st != TN_OK) {
        for (int i = 0; i < o->op.nout; i++)
            rets[i] = NULL; /* they are the caller's on success only */
        return returned(o, st);
    }
    for (int i = 0; i < o->op.nout; i++) complete = complete && rets[i];
    if (complete) return TN_OK;
    for (int i = 0; i < o->op.nout; i++) tn_tensor_unref(&rets[i]);
    return fail_incomplete(o);
}

tn_status tni_added_compose(const tn_op *op, const void *args, tn_tensor **rets) {
    const tni_added *o = tni_added_of(op);
    TN_TRY(check_own_dtypes(op, args));
    tn_status st = o->forward ? tni_fused_run(o, args, rets) : TN_DECLINE;
    if (st != TN_DECLINE) return st;
    if (o->forward) return compose_formula(o, args, rets);
    if (op->flags & TNI_OP_LIST_OUT) return compose_list(o, args, (tn_tensor_list *)(void *)rets);
    return compose_foreign(o, args, rets);
}

/* ---- Gradients ---------------------------------------------------------------------------------*/

/* The arguments that want a gradient, lists as a whole. */
static uint64_t wanted_arguments(const tn_gctx *c) {
    uint64_t wanted = 0;
    int64_t at = 0;
    for (int i = 0; i < c->op->nin; i++)
        for (int64_t n = tni_in_span(c->op, c->args, i).n; n > 0; n--, at++)
            if (at >= 64 || TN_GNEEDS(c, at)) wanted |= UINT64_C(1) << i;
    return wanted;
}

/* Hands a list of gradients over; there must be one for each tensor. */
static tn_status give_list(const tn_gctx *c, int i, tn_tensor_list *list, tn_tensor **ret) {
    int64_t n = tni_in_span(c->op, c->args, i).n;
    if (list->n != n)
        return tn_fail(TN_E_SHAPE, -1, "%s: the gradient of '%s' has %lld tensors for %lld",
                       c->op->info.name, c->op->fields[c->op->in_field[i]].name, (long long)list->n,
                       (long long)n);
    for (int64_t k = 0; k < n; k++) {
        ret[k] = list->v[k];
        list->v[k] = NULL;
    }
    return TN_OK;
}

tn_status tni_added_gradient(tn_gctx *c) {
    const tni_added *o = tni_added_of(c->op);
    tni_result got[TN_MAX_OPERANDS];
    uint64_t none, given = tni_formula_given(o->backward, &none), wanted = wanted_arguments(c);
    tn_status st = TN_OK;
    int64_t at = 0;
    for (int i = 0; i < c->op->nin; i++)
        if ((wanted & ~given & ~none) >> i & 1u)
            return tn_fail(TN_E_STATE, -1,
                           "derivative for %s with respect to '%s' is not implemented",
                           c->op->info.name, c->op->fields[c->op->in_field[i]].name);
    TN_TRY(tni_formula_run(o->backward, c->args, (tni_incoming){c->g, c->nouts}, wanted, got));
    for (int i = 0; i < c->op->nin && st == TN_OK; at += tni_in_span(c->op, c->args, i).n, i++) {
        if (!((wanted & given) >> i & 1u)) continue;
        if (tni_is_list(tni_in_field(c->op, i))) {
            st = give_list(c, i, &got[i].list, &c->ret[at]);
        } else {
            c->ret[at] = got[i].t;
            got[i].t = NULL;
        }
    }
    tni_formula_drop(o->backward, wanted, got);
    return st;
}
