/* call.c: a sample becomes a call: the operator's argument struct is filled by its field table, the call
 * is made, and all that it returns or writes is gathered. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

static void *block(cf_call *c, size_t bytes) {
    void *p = cf_alloc(bytes);
    c->blocks[c->nblocks++] = p;
    return p;
}

static tn_status add_tensor(cf_call *c, const cf_value *v, const cf_build *b, tn_tensor **ret) {
    *ret = NULL;
    if (v->kind == CF_NONE) return TN_OK;
    if (v->kind == CF_NUMBER) { /* an Operand that is a number */
        *ret = tn_scalar_box_init(block(c, sizeof(tn_scalar_box)), v->number);
        return TN_OK;
    }
    tn_status st = cf_tensor_make(v, b, c->ntensors, ret);
    if (st == TN_OK) c->tensors[c->ntensors++] = *ret;
    return st;
}

static tn_status set_tensors(cf_call *c, const cf_value *v, const cf_build *b, tn_views *to) {
    tn_tensor **list = block(c, (size_t)(v->n + 1) * sizeof *list);
    tn_status st = TN_OK;
    for (int64_t i = 0; st == TN_OK && i < v->n; i++) st = add_tensor(c, &v->items[i], b, &list[i]);
    *to = (tn_views){(tn_view *const *)(void *)list, v->n};
    return st;
}

static tn_ints ints_of(cf_call *c, const cf_value *v, uint16_t fixed) {
    if (v->kind != CF_INTS) return tn_ints_none();
    if (v->n != 1 || fixed < 2) return tn_ints_of(v->ints, v->n);
    int64_t *all = block(c, fixed * sizeof *all);
    for (uint16_t i = 0; i < fixed; i++) all[i] = v->ints[0];
    return tn_ints_of(all, fixed);
}

/* A factory is told the case's dtype and device. */
static int64_t place_of(const cf_call *c, const cf_value *v, const cf_build *b, uint16_t kind) {
    bool factory = c->op->meta.nin == 0;
    if (kind == TN_F_DEVICE) return factory ? (int64_t)b->device.slot << 8 | b->device.index : -1;
    if (v->kind == CF_TEXT) return v->dtype;
    int32_t wide = tn_dtype_category(b->dtype) == TN_CAT_FLOAT ? TN_F64 : TN_C128;
    if (!factory) return -1;
    return b->wide && tn_dtype_category(b->dtype) >= TN_CAT_FLOAT ? wide : b->dtype;
}

static tn_status set_field(cf_call *c, const tn_field *f, const cf_value *v, const cf_build *b) {
    void *to = c->args + f->offset;
    bool has = v->kind == CF_NUMBER;
    switch (f->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND: return add_tensor(c, v, b, to);
    case TN_F_TENSORS: return set_tensors(c, v, b, to);
    case TN_F_INT:
    case TN_F_DIM:
    case TN_F_BOOL:
    case TN_F_FORMAT: *(int64_t *)to = v->number.i; break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: *(tn_opt_int *)to = has ? tn_some_int(v->number.i) : tn_no_int(); break;
    case TN_F_INTS:
    case TN_F_DIMS: *(tn_ints *)to = ints_of(c, v, f->fixed); break;
    case TN_F_FLOAT: *(double *)to = v->number.re; break;
    case TN_F_FLOAT_OPT:
        *(tn_opt_float *)to = has ? tn_some_float(v->number.re) : tn_no_float();
        break;
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: *(tn_scalar *)to = v->number; break;
    case TN_F_DTYPE:
    case TN_F_DEVICE: *(int64_t *)to = place_of(c, v, b, f->kind); break;
    case TN_F_STR: *(const char **)to = v->text; break;
    default: break; /* a generator: the device's own */
    }
    return TN_OK;
}

static int32_t count_arguments(const cf_op *op) {
    return op->meta.nfields - (op->meta.flags & TNI_OP_LIST_OUT ? 1 : op->meta.nout);
}

static int32_t count_tensors(const cf_op *op, const cf_sample *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < count_arguments(op); i++)
        n += s->values[i].kind == CF_LIST ? (int32_t)s->values[i].n : 1;
    return n;
}

tn_status cf_call_build(cf_call *c, const cf_op *op, const cf_sample *s, const cf_build *b) {
    tn_status st = TN_OK;
    *c = (cf_call){.op = op};
    c->args = cf_alloc((size_t)op->meta.args_bytes);
    c->used = cf_alloc((size_t)op->meta.args_bytes);
    c->tensors = cf_alloc((size_t)count_tensors(op, s) * sizeof(tn_tensor *));
    for (int32_t i = 0; st == TN_OK && i < count_arguments(op); i++) {
        const tn_field *f = &op->meta.fields[i];
        /* what is written cannot have one element in two places, and indices must not repeat */
        bool own = (f->flags & TNI_FIELD_MUTATED) || s->values[i].data;
        cf_variant apart = *b->variant;
        cf_build each = *b;
        if (own && apart.layout == CF_EXPANDED) {
            apart.layout = CF_PLAIN;
            each.variant = &apart;
        }
        st = set_field(c, f, &s->values[i], &each);
    }
    return st;
}

/* ---- The call ----------------------------------------------------------------------------------*/

static void keep(cf_call *c, tn_tensor *t) {
    if (t && c->nresults < CF_RESULTS)
        c->results[c->nresults++] = t;
    else
        tn_tensor_unref(&t);
}

bool cf_call_writes(const cf_call *c, const tn_tensor *t) {
    for (int32_t i = 0; i < count_arguments(c->op); i++) {
        const tn_field *f = &c->op->meta.fields[i];
        const void *at = c->args + f->offset;
        if (!(f->flags & TNI_FIELD_MUTATED)) continue;
        if (f->kind != TN_F_TENSORS && *(tn_tensor *const *)at == t) return true;
        const tn_views *list = at;
        for (int64_t k = 0; f->kind == TN_F_TENSORS && k < list->n; k++)
            if ((const tn_tensor *)(const void *)list->v[k] == t) return true;
    }
    return false;
}

static void keep_written(cf_call *c) {
    for (int32_t i = 0; i < c->ntensors; i++)
        if (cf_call_writes(c, c->tensors[i])) keep(c, tn_tensor_ref(c->tensors[i]));
}

tn_status cf_call_run(cf_call *c, cf_form form, tn_tensor *const *outs) {
    const tn_op_meta *m = &c->op->meta;
    tn_tensor *rets[CF_RESULTS] = {NULL};
    bool list = (m->flags & TNI_OP_LIST_OUT) != 0;
    memcpy(c->used, c->args, (size_t)m->args_bytes);
    for (int32_t i = 0; !list && form != CF_CALL && i < m->nout; i++)
        *(tn_tensor **)(void *)(c->used + m->fields[m->out_field[i]].offset) =
            form == CF_INPLACE ? c->tensors[0] : outs[i];
    tn_status st = tn_op_invoke(m->info, c->used, rets);
    if (st != TN_OK) return st;
    if (list) {
        tn_tensor_list *results = (tn_tensor_list *)(void *)rets;
        for (int64_t i = 0; i < results->n; i++) keep(c, tn_tensor_ref(results->v[i]));
        tn_tensor_list_free(results);
    } else {
        for (int32_t i = 0; i < m->nout; i++) keep(c, rets[i]);
    }
    keep_written(c);
    return TN_OK;
}

void cf_call_drop(cf_call *c) {
    for (int32_t i = 0; i < c->nresults; i++) tn_tensor_unref(&c->results[i]);
    c->nresults = 0;
}

void cf_call_free(cf_call *c) {
    cf_call_drop(c);
    for (int32_t i = 0; i < c->ntensors; i++) tn_tensor_unref(&c->tensors[i]);
    for (int32_t i = 0; i < c->nblocks; i++) free(c->blocks[i]);
    free(c->tensors);
    free(c->args);
    free(c->used);
    *c = (cf_call){0};
}

/* ---- In words ----------------------------------------------------------------------------------*/

static void describe_value(const cf_value *v, cf_text *to) {
    switch (v->kind) {
    case CF_TENSOR: cf_add_shape(to, v->ndim, v->shape); break;
    case CF_INTS:
        cf_add(to, "=");
        cf_add_shape(to, (int32_t)v->n, v->ints);
        break;
    case CF_NUMBER: cf_add(to, "=%.6g", v->number.re); break;
    case CF_TEXT: cf_add(to, "='%s'", v->text); break;
    case CF_LIST:
        cf_add(to, "=(");
        for (int64_t i = 0; i < v->n; i++) {
            if (i) cf_add(to, ",");
            describe_value(&v->items[i], to);
        }
        cf_add(to, ")");
        break;
    case CF_NONE: cf_add(to, "=None"); break;
    }
}

void cf_call_describe(const cf_op *op, const cf_sample *s, cf_text *ret_text) {
    const char *comma = "";
    for (int32_t i = 0; i < count_arguments(op); i++) {
        if (s->values[i].kind == CF_NONE) continue;
        cf_add(ret_text, "%s%s", comma, op->meta.fields[i].name);
        describe_value(&s->values[i], ret_text);
        comma = ", ";
    }
}
