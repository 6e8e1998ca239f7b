/* node.c: runs one node of a program through the dispatcher. */
#include "program_priv.h"

#include <stdlib.h>

#include <tenon/runtime.h>

#include "infer_priv.h"

enum { SMALL = 32 }; /* tensors in lists without a block of their own */

bool tni_p_derive(const tni_pderived *d, int64_t size, int64_t *value) {
    int64_t v;
    if (__builtin_mul_overflow(size, d->num, &v)) return false;
    if (d->step == TNI_P_TIMES)
        return !__builtin_add_overflow(v, d->add, &v) && !__builtin_mul_overflow(v, *value, &v) &&
               v % d->den == 0 && (*value = v / d->den, true);
    if (v % d->den != 0 || __builtin_add_overflow(v / d->den, d->add, &v)) return false;
    return !__builtin_add_overflow(v, d->step == TNI_P_PLUS ? *value : 0, value);
}

int64_t tni_p_input_size(const tn_program *p, const tni_pvalue *v, int32_t d,
                         const int64_t *sizes) {
    int32_t s = v->symbol ? v->symbol[d] : -1;
    const tni_pderived *rule = tni_p_size_rule(v, d);
    int64_t size = v->shape[d];
    if (s < 0 || v->shape[d] >= 0) return size;
    if (!rule) return sizes ? sizes[s] : p->symbol[s].seen;
    return tni_p_derive(rule, sizes ? sizes[s] : p->symbol[s].seen, &size) ? size : -1;
}

int64_t tni_p_size_seen(const tn_program *p, const tni_pvalue *v, int32_t d) {
    return tni_p_input_size(p, v, d, NULL);
}

static tn_status derive(const tn_program *p, const tni_pderived *d, const int64_t *sizes,
                        int64_t *value) {
    if (!sizes || !tni_p_derive(d, sizes[d->symbol], value))
        return tn_fail(TN_E_SHAPE, -1, "the program cannot run with %s = %lld",
                       p->symbol[d->symbol].name, sizes ? (long long)sizes[d->symbol] : -1LL);
    return TN_OK;
}

/* Memory of one call. */
typedef struct frame {
    tni_pargs a;
    tn_scalar_box box[TN_MAX_OPERANDS];
    tn_view *list[SMALL];
    void *more; /* a block in place of `list` */
    const int64_t *sizes;
} frame;

static tn_status fill_derived(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                              tni_pargs *a) {
    int64_t used = 0, v = 0;
    for (int32_t i = 0; i < n->nderived; i++) {
        const tni_pderived *d = &n->derived[i];
        const tn_field *field = &n->op->fields[d->field];
        void *at = a->args + field->offset;
        TN_TRY(derive(p, d, sizes, &v)); /* steps of one number stand side by side */
        if (field->kind == TN_F_INTS || field->kind == TN_F_DIMS) {
            tn_ints *list = at;
            if (list->v < a->ints || list->v >= a->ints + TN_MAX_DIMS) { /* the node's own */
                if (list->n > TN_MAX_DIMS - used)
                    return tn_fail(TN_E_UNSUPPORTED, -1, "%s: too many free sizes",
                                   n->op->info.name);
                memcpy(a->ints + used, list->v, sizeof *list->v * (size_t)list->n);
                list->v = a->ints + used;
                used += list->n;
            }
            a->ints[list->v - a->ints + d->index] = v;
        } else if (field->kind == TN_F_OPERAND) {
            a->own[d->index] = tn_scalar_int(v);
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

tn_status tni_p_args(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                     tni_pargs *ret_args) {
    ret_args->own = NULL;
    ret_args->number = n->number;
    memcpy(ret_args->args, n->args, n->op->args_bytes);
    if (!n->nderived) return TN_OK;
    if (n->number) {
        size_t bytes = sizeof *n->number * (size_t)n->nin;
        ret_args->own = malloc(bytes);
        if (!ret_args->own) return tni_p_memory();
        ret_args->number = memcpy(ret_args->own, n->number, bytes);
    }
    return fill_derived(p, n, sizes, ret_args);
}

static tn_status fill_inputs(const tni_pnode *n, tn_tensor *const *tensors, frame *f) {
    const tn_op *op = n->op;
    tn_view **list = f->list;
    int32_t at = 0, boxes = 0;
    if (n->nin > SMALL) {
        list = f->more = malloc(sizeof *list * (size_t)n->nin);
        if (!list) return tni_p_memory();
    }
    for (int i = 0; i < op->nin; i++) {
        const tn_field *field = &op->fields[op->in_field[i]];
        void *slot = f->a.args + field->offset;
        bool several = field->kind == TN_F_TENSORS;
        int64_t count = several ? ((tn_views *)slot)->n : 1;
        if (several) ((tn_views *)slot)->v = list + at;
        for (int64_t k = 0; k < count; k++, at++) {
            tn_tensor *t = n->in[at] >= 0 ? tensors[n->in[at]] : NULL;
            if (n->in[at] >= 0 && !t)
                return tn_fail(TN_E_STATE, -1, "%s: an operand was not computed", op->info.name);
            if (n->in[at] == TNI_P_NUMBER && boxes < TN_MAX_OPERANDS)
                t = tn_scalar_box_init(&f->box[boxes++], f->a.number[at]);
            if (several)
                list[at] = t ? &t->v : NULL;
            else
                *(tn_view **)slot = t ? &t->v : NULL;
        }
    }
    return TN_OK;
}

/* Note [Sizes that stop growing]
 *
 * A number that is read of a result (x[:, :64].shape[1]) follows from a free size as long as that size
 * is small. Recordings of small sizes cannot tell it from the size itself, and nobody knows which
 * tensor a number was read of. So results whose sizes were read while the program was recorded keep
 * what these followed from, and a run in which they do not, before numbers that may come from there, is
 * an error. Pointwise results leave that to their operands (recorder, end()). */
const tni_pderived *tni_p_broken_rule(const tn_program *p, const tni_pvalue *v,
                                      const int64_t *sizes, const int64_t *shape) {
    int64_t want = 0;
    bool matters = false, follows = true;
    for (int32_t i = 0; i < v->nrules; i++) {
        const tni_pderived *d = &v->rule[i];
        bool begins = d->step == TNI_P_IS, ends = i + 1 == v->nrules || d[1].index != d->index;
        matters = tni_p_rule_matters(p, v, i) || (matters && !begins);
        follows = tni_p_derive(d, sizes[d->symbol], &want) && (follows || begins);
        if (ends && matters && !(follows && shape[d->index] == want)) return d;
    }
    return NULL;
}

static tn_status check_rules(const tn_program *p, const tni_pnode *n, const tni_pvalue *v,
                             const int64_t *sizes, const tn_tensor *t) {
    const tni_pderived *d = sizes ? tni_p_broken_rule(p, v, sizes, t->v.shape) : NULL;
    if (!d) return TN_OK;
    return tn_fail(TN_E_SHAPE, -1,
                   "%s gives the shape %s, whose dimension %d does not follow from %s = %lld as it "
                   "did when the program was recorded, and numbers in it may have been read there: "
                   "record it with such inputs",
                   n->op->info.name, tni_shape_text_of(&t->v), (int)d->index,
                   p->symbol[d->symbol].name, (long long)sizes[d->symbol]);
}

/* What the results must be like; a size that follows from values shows here. */
static tn_status check_result(const tn_program *p, const tni_pnode *n, int32_t i,
                              const int64_t *sizes, const tn_tensor *t) {
    const tni_pvalue *v = &p->value[n->out[i]];
    bool same = t && t->v.ndim == v->ndim && tn_view_dtype(&t->v) == v->dtype;
    for (int32_t d = 0; same && d < v->ndim; d++)
        same = v->shape[d] < 0 || v->shape[d] == t->v.shape[d];
    if (same) return TN_LIKELY(!v->nrules) ? TN_OK : check_rules(p, n, v, sizes, t);
    return tn_fail(TN_E_SHAPE, -1,
                   "%s gives %s %s where it gave %s %s when the program was recorded: record it "
                   "with such inputs",
                   n->op->info.name, t ? tn_dtype_name(tn_view_dtype(&t->v)) : "no",
                   t ? tni_shape_text_of(&t->v) : "tensor", tn_dtype_name(v->dtype),
                   tni_shape_text(v->ndim, v->shape));
}

static tn_status take_results(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                              tn_tensor *const *outs, int32_t count, tn_tensor **tensors) {
    tn_status st = TN_OK;
    if (count != n->nout)
        st = tn_fail(TN_E_SHAPE, -1, "%s gives %d tensors, and gave %d when it was recorded",
                     n->op->info.name, (int)count, (int)n->nout);
    for (int32_t i = 0; i < count; i++) {
        tn_tensor *t = outs[i];
        int32_t id = i < n->nout ? n->out[i] : TNI_P_NONE;
        if (st == TN_OK && id >= 0) st = check_result(p, n, i, sizes, t);
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
            *(tn_tensor **)(void *)(f->a.args + op->out_offset[i]) = tensors[n->given[i]];
    TN_TRY(tn_op_invoke(&op->info, f->a.args, several ? (tn_tensor **)(void *)&list : rets));
    if (!several) return take_results(p, n, f->sizes, rets, op->nout, tensors);
    tn_status st = take_results(p, n, f->sizes, list.v, (int32_t)list.n, tensors);
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
    tn_status after = n->cast ? tn_autocast_set(slot, &old) : TN_OK;
    return st ? st : after;
}

tn_status tni_p_run_node(const tn_program *p, const tni_pnode *n, const int64_t *sizes,
                         tn_tensor **tensors) {
    frame f;
    f.more = NULL;
    f.sizes = sizes;
    tn_status st = tni_p_args(p, n, sizes, &f.a);
    if (st == TN_OK) st = fill_inputs(n, tensors, &f);
    if (st == TN_OK && (n->no_grad | n->cast))
        st = call_in_modes(p, n, &f, tensors);
    else if (st == TN_OK)
        st = call_node(p, n, &f, tensors);
    free(f.more);
    free(f.a.own);
    return st;
}

tn_status tni_p_compose_node(const tn_program *p, const tni_pnode *n, tn_tensor **tensors,
                             tn_tensor **ret_tensor) {
    frame f;
    f.more = NULL;
    tn_status st = tni_p_args(p, n, NULL, &f.a);
    if (st == TN_OK) st = fill_inputs(n, tensors, &f);
    if (st == TN_OK) st = tni_compose(n->op, f.a.args, ret_tensor);
    free(f.more);
    free(f.a.own);
    return st;
}
