/* run.c: runs programs, node by node, through the dispatcher. */
#include "program_priv.h"

#include <stdlib.h>

#include <tenon/runtime.h>

#include "infer_priv.h"

enum { SMALL = 32 };          /* tensors in lists without a block of their own */
enum { FEW = 8, MANY = 128 }; /* free sizes and values of a run without one */

/* ---- Inputs ------------------------------------------------------------------------------------*/

static tn_status fail_shape(const tn_program *p, const tni_pvalue *v, const tn_tensor *t) {
    tni_sink s = {0};
    for (int32_t d = 0; d < v->ndim; d++) {
        const tni_psymbol *free_size =
            v->symbol && v->symbol[d] >= 0 ? &p->symbol[v->symbol[d]] : NULL;
        tni_sink_text(&s, "%s", d ? ", " : "[");
        if (free_size)
            tni_sink_text(&s, "%s (%lld to %lld)", free_size->name, (long long)free_size->low,
                          (long long)free_size->high);
        else
            tni_sink_text(&s, "%lld", (long long)v->shape[d]);
    }
    tni_sink_text(&s, v->ndim ? "]" : "[]");
    tn_status st = tn_fail(TN_E_SHAPE, v->place, "input '%s' of the program has shape %s, not %s",
                           v->name, s.failed ? "another" : s.at, tni_shape_text_of(&t->v));
    free(s.at);
    return st;
}

static tn_status check_input(const tn_program *p, const tni_pvalue *v, const tn_tensor *t,
                             int64_t *sizes) {
    if (!t) return tn_fail(TN_E_TYPE, v->place, "input '%s' of the program is NULL", v->name);
    if (tn_view_dtype(&t->v) != v->dtype)
        return tn_fail(TN_E_DTYPE, v->place, "input '%s' of the program is %s, not %s", v->name,
                       tn_dtype_name(v->dtype), tn_dtype_name(tn_view_dtype(&t->v)));
    tn_device device = tn_tensor_device(t);
    if (device.slot != v->device.slot || device.index != v->device.index)
        return tn_fail(TN_E_DEVICE, v->place, "input '%s' of the program is on %s:%d, not %s:%d",
                       v->name, tn_device_name(v->device.slot), (int)v->device.index,
                       tn_device_name(device.slot), (int)device.index);
    if (t->v.ndim != v->ndim) return fail_shape(p, v, t);
    for (int32_t d = 0; d < v->ndim; d++) {
        int32_t s = v->symbol ? v->symbol[d] : -1;
        int64_t have = t->v.shape[d];
        if (s < 0 && have != v->shape[d]) return fail_shape(p, v, t);
        if (s < 0) continue;
        if (have < p->symbol[s].low || have > p->symbol[s].high) return fail_shape(p, v, t);
        if (sizes[s] >= 0 && sizes[s] != have)
            return tn_fail(TN_E_SHAPE, v->place,
                           "input '%s' of the program has %lld for %s, and another input %lld",
                           v->name, (long long)have, p->symbol[s].name, (long long)sizes[s]);
        sizes[s] = have;
    }
    return TN_OK;
}

static tn_status check_inputs(const tn_program *p, tn_tensor *const *inputs, int32_t n,
                              int64_t *sizes) {
    if (n != p->ninputs)
        return tn_fail(TN_E_VALUE, 1, "the program has %d inputs, not %d", (int)p->ninputs, (int)n);
    for (int32_t s = 0; s < p->nsymbols; s++) sizes[s] = -1;
    for (int32_t i = 0; i < n; i++)
        TN_TRY(check_input(p, &p->value[p->input[i]], inputs[i], sizes));
    return TN_OK;
}

/* ---- One node ----------------------------------------------------------------------------------*/

static tn_status derive(const tn_program *p, const tni_pderived *d, const int64_t *sizes,
                        int64_t *ret_value) {
    int64_t v;
    if (!sizes || __builtin_mul_overflow(sizes[d->symbol], d->num, &v) || v % d->den != 0 ||
        __builtin_add_overflow(v / d->den, d->add, &v))
        return tn_fail(TN_E_SHAPE, -1, "the program cannot run with %s = %lld",
                       p->symbol[d->symbol].name, sizes ? (long long)sizes[d->symbol] : -1LL);
    *ret_value = v;
    return TN_OK;
}

/* Memory of one call. */
typedef struct frame {
    _Alignas(16) unsigned char args[TNI_MAX_ARGS_BYTES];
    tn_scalar_box box[TN_MAX_OPERANDS];
    tn_view *list[SMALL];
    int64_t ints[TN_MAX_DIMS];
    void *more[2]; /* blocks in their place */
} frame;

static tn_status fill_derived(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                              frame *f, tn_scalar *numbers) {
    int32_t copied = -1; /* the list that f->ints holds */
    int64_t used = 0;
    for (int32_t i = 0; i < n->nderived; i++) {
        const tni_pderived *d = &n->derived[i];
        const tn_field *field = &n->op->fields[d->field];
        void *at = f->args + field->offset;
        int64_t v = 0;
        TN_TRY(derive(p, d, sizes, &v));
        if (field->kind == TN_F_INTS || field->kind == TN_F_DIMS) {
            tn_ints *list = at;
            if (copied != d->field) {
                if (list->n > TN_MAX_DIMS - used)
                    return tn_fail(TN_E_UNSUPPORTED, -1, "%s: too many free sizes",
                                   n->op->info.name);
                memcpy(f->ints + used, list->v, sizeof *list->v * (size_t)list->n);
                list->v = f->ints + used;
                used += list->n;
                copied = d->field;
            }
            f->ints[list->v - f->ints + d->index] = v;
        } else if (field->kind == TN_F_OPERAND) {
            numbers[d->index] = tn_scalar_int(v);
        } else if (field->kind == TN_F_SCALAR || field->kind == TN_F_SCALAR_OPT) {
            *(tn_scalar *)at = tn_scalar_int(v);
        } else if (field->kind == TN_F_FLOAT) {
            *(double *)at = (double)v;
        } else {
            *(int64_t *)at = v; /* the first word of an optional one, too */
        }
    }
    return TN_OK;
}

static tn_status fill_inputs(const tni_pnode *n, tn_tensor *const *tensors, frame *f,
                             const tn_scalar *numbers) {
    const tn_op *op = n->op;
    tn_view **list = f->list;
    int32_t at = 0, boxes = 0;
    if (n->nin > SMALL) {
        list = f->more[0] = malloc(sizeof *list * (size_t)n->nin);
        if (!list) return tni_p_memory();
    }
    for (int i = 0; i < op->nin; i++) {
        const tn_field *field = &op->fields[op->in_field[i]];
        void *slot = f->args + field->offset;
        bool several = field->kind == TN_F_TENSORS;
        int64_t count = several ? ((tn_views *)slot)->n : 1;
        if (several) ((tn_views *)slot)->v = list + at;
        for (int64_t k = 0; k < count; k++, at++) {
            tn_tensor *t = n->in[at] >= 0 ? tensors[n->in[at]] : NULL;
            if (n->in[at] >= 0 && !t)
                return tn_fail(TN_E_STATE, -1, "%s: an operand was not computed", op->info.name);
            if (n->in[at] == TNI_P_NUMBER && boxes < TN_MAX_OPERANDS)
                t = tn_scalar_box_init(&f->box[boxes++], numbers[at]);
            if (several)
                list[at] = t ? &t->v : NULL;
            else
                *(tn_view **)slot = t ? &t->v : NULL;
        }
    }
    return TN_OK;
}

/* What the results must be like; a size that follows from values shows here. */
static tn_status check_result(const tn_program *p, const tni_pnode *n, int32_t i,
                              const tn_tensor *t) {
    const tni_pvalue *v = &p->value[n->out[i]];
    bool same = t && t->v.ndim == v->ndim && tn_view_dtype(&t->v) == v->dtype;
    for (int32_t d = 0; same && d < v->ndim; d++)
        same = v->shape[d] < 0 || v->shape[d] == t->v.shape[d];
    if (same) return TN_OK;
    return tn_fail(TN_E_SHAPE, -1,
                   "%s gives %s %s where it gave %s %s when the program was recorded: record it "
                   "with such inputs",
                   n->op->info.name, t ? tn_dtype_name(tn_view_dtype(&t->v)) : "no",
                   t ? tni_shape_text_of(&t->v) : "tensor", tn_dtype_name(v->dtype),
                   tni_shape_text(v->ndim, v->shape));
}

static tn_status take_results(const tn_program *p, const tni_pnode *n, tn_tensor *const *outs,
                              int32_t count, tn_tensor **tensors) {
    tn_status st = TN_OK;
    if (count != n->nout)
        st = tn_fail(TN_E_SHAPE, -1, "%s gives %d tensors, and gave %d when it was recorded",
                     n->op->info.name, (int)count, (int)n->nout);
    for (int32_t i = 0; i < count; i++) {
        tn_tensor *t = outs[i];
        int32_t id = i < n->nout ? n->out[i] : TNI_P_NONE;
        if (st == TN_OK && id >= 0) st = check_result(p, n, i, t);
        if (st == TN_OK && id >= 0)
            tensors[id] = t;
        else
            tn_tensor_unref(&t);
    }
    return st;
}

static tn_status call_node(const tn_program *p, const tni_pnode *n, frame *f, tn_tensor **tensors) {
    const tn_op *op = n->op;
    tn_tensor *rets[TNI_MAX_OUTS] = {NULL};
    tn_tensor_list list = {0};
    bool several = op->flags & TNI_OP_LIST_OUT;
    for (int i = 0; i < op->nout && !several; i++)
        if (n->given[i] >= 0)
            *(tn_tensor **)(void *)(f->args + op->out_offset[i]) = tensors[n->given[i]];
    TN_TRY(tn_op_invoke(&op->info, f->args, several ? (tn_tensor **)(void *)&list : rets));
    if (!several) return take_results(p, n, rets, op->nout, tensors);
    tn_status st = take_results(p, n, list.v, (int32_t)list.n, tensors);
    list.n = 0; /* they are taken */
    tn_tensor_list_free(&list);
    return st;
}

/* The modes that the call was recorded in. */
static tn_status call_in_modes(const tn_program *p, const tni_pnode *n, frame *f,
                               tn_tensor **tensors) {
    int32_t slot = n->nin > 0 && n->in[0] >= 0 ? tn_view_device(&tensors[n->in[0]]->v) : 0;
    tn_autocast old = {0}, region = {.enabled = 1, .dtype = n->cast - 1, .cache = 1};
    if (n->cast) {
        TN_TRY(tn_autocast_get(slot, &old));
        TN_TRY(tn_autocast_set(slot, &region));
    }
    tni_tls.no_grad += n->no_grad;
    tn_status st = call_node(p, n, f, tensors);
    tni_tls.no_grad -= n->no_grad;
    if (n->cast) tn_autocast_set(slot, &old);
    return st;
}

tn_status tni_p_run_node(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                         tn_tensor **tensors) {
    frame f;
    tn_status st = TN_OK;
    tn_scalar *numbers = n->number;
    f.more[0] = f.more[1] = NULL;
    memcpy(f.args, n->args, n->op->args_bytes);
    if (n->nderived && numbers) {
        size_t bytes = sizeof *numbers * (size_t)n->nin;
        numbers = f.more[1] = malloc(bytes);
        if (numbers)
            memcpy(numbers, n->number, bytes);
        else
            st = tni_p_memory();
    }
    if (st == TN_OK && n->nderived) st = fill_derived(p, n, sizes, &f, numbers);
    if (st == TN_OK) st = fill_inputs(n, tensors, &f, numbers);
    if (st == TN_OK && (n->no_grad | n->cast))
        st = call_in_modes(p, n, &f, tensors);
    else if (st == TN_OK)
        st = call_node(p, n, &f, tensors);
    free(f.more[0]);
    free(f.more[1]);
    return st;
}

tn_status tni_p_compose_node(const tni_pnode *n, tn_tensor **tensors, tn_tensor **ret_tensor) {
    frame f;
    f.more[0] = NULL;
    memcpy(f.args, n->args, n->op->args_bytes);
    tn_status st = fill_inputs(n, tensors, &f, n->number);
    if (st == TN_OK) st = tni_compose(n->op, f.args, ret_tensor);
    free(f.more[0]);
    return st;
}

/* ---- A run -------------------------------------------------------------------------------------*/

static void drop(const tn_program *p, int32_t id, int32_t k, tn_tensor **tensors) {
    if (id >= 0 && p->last_use[id] == k && p->value[id].role == TNI_P_NODE)
        tn_tensor_unref(&tensors[id]);
}

/* A region of the caller's own keeps what it has converted. */
static bool is_casting(void) {
    tn_autocast region = {0};
    for (int32_t slot = 0; slot < TN_DEVICE_SLOTS; slot++)
        if (tn_device_name(slot) && tn_autocast_get(slot, &region) == TN_OK && region.enabled)
            return true;
    return false;
}

static tn_status run_one(const tn_program *p, int32_t k, const int64_t *sizes,
                         tn_tensor **tensors) {
    const tni_pnode *n = &p->node[k];
    TN_TRY(tni_p_run_node(p, n, sizes, tensors));
    /* parameters are converted once in a region, which ends with its last call */
    bool last = n->cast && (k + 1 == p->nnodes || !p->node[k + 1].cast);
    if (last && !is_casting()) tn_autocast_clear();
    for (int32_t i = 0; i < n->nin; i++) drop(p, n->in[i], k, tensors);
    for (int32_t i = 0; i < n->op->nout; i++) drop(p, n->given[i], k, tensors);
    for (int32_t i = 0; i < n->nout; i++) drop(p, n->out[i], k, tensors);
    return TN_OK;
}

static tn_status run_nodes(const tn_program *p, const int64_t *sizes, tn_tensor **tensors) {
    const tni_pfused *f = tni_p_fused(p);
    int32_t at = 0; /* the next group */
    for (int32_t k = 0; k < p->nnodes; k++) {
        const tni_pgroup *g = f && at < f->n && f->group[at].first == k ? &f->group[at++] : NULL;
        tn_status st = g ? tni_p_run_group(p, g, tensors) : TN_DECLINE;
        if (st == TN_OK)
            k += g->count - 1;
        else
            TN_TRY(run_one(p, k, sizes, tensors));
    }
    return TN_OK;
}

static tn_status run(const tn_program *p, tn_tensor *const *inputs, int32_t n, tn_tensor **outputs,
                     int32_t m, int64_t *sizes, tn_tensor **tensors) {
    TN_TRY(check_inputs(p, inputs, n, sizes));
    for (int32_t i = 0; i < p->nvalues; i++)
        tensors[i] = p->value[i].role == TNI_P_WEIGHT ? p->value[i].t : NULL;
    for (int32_t i = 0; i < n; i++) tensors[p->input[i]] = inputs[i];
    tn_status st = run_nodes(p, sizes, tensors);
    for (int32_t i = 0; i < m && st == TN_OK; i++)
        outputs[i] = tn_tensor_ref(tensors[p->output[i]]);
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].role == TNI_P_NODE) tn_tensor_unref(&tensors[i]);
    return st;
}

int tn_program_modes(void) {
    if (tni_tls.layers || tni_tls.watcher) return -1;
    return (tni_tls.no_grad == 0) | (tni_tls.inference != 0) << 1 | tn_dtype_default() << 2;
}

tn_status tn_program_run(const tn_program *p, tn_tensor *const *inputs, int32_t n,
                         tn_tensor **outputs, int32_t m) {
    int64_t few_sizes[FEW];
    tn_tensor *few_tensors[MANY];
    if (!p || n < 0 || m < 0 || (n && !inputs) || (m && !outputs))
        return tn_fail(TN_E_TYPE, -1, "program_run() needs a program, its inputs and a place");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    if (m != p->noutputs)
        return tn_fail(TN_E_VALUE, 3, "the program has %d outputs, not %d", (int)p->noutputs,
                       (int)m);
    if (p->nsymbols <= FEW && p->nvalues <= MANY)
        return run(p, inputs, n, outputs, m, few_sizes, few_tensors);
    int64_t *sizes = malloc(sizeof *sizes * (size_t)(p->nsymbols + 1));
    tn_tensor **tensors = malloc(sizeof *tensors * ((size_t)p->nvalues + 1));
    tn_status st =
        sizes && tensors ? run(p, inputs, n, outputs, m, sizes, tensors) : tni_p_memory();
    free(sizes);
    free(tensors);
    return st;
}
