/* codegen.c: a composite whose formula has only pointwise parts, as one kernel of a device that can make
 * one ("tn.codegen/1"). Whatever does not fit runs part by part, as it does without. */
#include "infer_priv.h"
#include "codegen_priv.h"

#include <stdlib.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "memory_priv.h"
#include "os_priv.h"
#include "plan_priv.h"
#include "steps_priv.h"

enum { MAX_INPUTS = TN_MAX_OPERANDS - 1, MAX_PARTS = TNI_MAX_STEPS, MAX_CODES = 16 };

/* One node of an expression: a pointwise operator, or a number where op is NULL. Zeroed before it is
 * filled, so that two can be compared as bytes. */
typedef struct part {
    const tn_op *op;
    int32_t dtype, noperands;
    int32_t operand[TN_EXPR_OPERANDS];
    tn_scalar value;
} part;

typedef struct expression {
    const tni_added *of;
    tn_device device;
    int32_t ninputs, nparts, result; /* result: the number of the operand that is */
    int32_t reserved;
    int32_t input_dtype[MAX_INPUTS + 1];
    part parts[MAX_PARTS];
} expression;

/* What a device made of an expression. Codes are few, and found one after the other. */
typedef struct code {
    struct code *next;
    _Atomic uint32_t refs;
    const tni_device *dev;
    void *handle; /* NULL: the device declined */
    expression key;
} code;

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
static code *codes; /* guarded by the lock */

/* ---- From a formula and a call's arguments to an expression ------------------------------------*/

typedef struct builder {
    expression e;
    const tni_formula *f;
    const void *args;
    const tn_tensor *in[MAX_INPUTS];
    int32_t input_of[MAX_INPUTS + 1];     /* by tensor argument: the operand's number, or -1 */
    int32_t part_of[TNI_MAX_STEPS];       /* by step: the operand's number */
    tn_scalar number_of[TNI_MAX_STEPS];   /* by step that computes a number */
    tn_view like[MAX_INPUTS + MAX_PARTS]; /* dtype and rank of each operand */
} builder;

static void describe(tn_view *v, int32_t dtype, int32_t ndim, uint64_t more) {
    memset(v, 0, sizeof *v);
    v->word = (uint64_t)dtype | more;
    v->ndim = ndim;
}

static int32_t add_part(builder *b, const part *p, int32_t ndim) {
    int32_t at = b->e.ninputs + b->e.nparts;
    if (b->e.nparts == MAX_PARTS) return -1;
    b->e.parts[b->e.nparts++] = *p;
    describe(&b->like[at], p->dtype, ndim, p->op ? 0 : TN_W_SCALAR);
    return at;
}

static int32_t add_number(builder *b, tn_scalar number) {
    static const int32_t dtypes[] = {TN_BOOL, TN_I64, TN_F64};
    part p;
    memset(&p, 0, sizeof p);
    if (number.kind < TN_CAT_BOOL || number.kind > TN_CAT_FLOAT) return -1;
    p.dtype = dtypes[number.kind - TN_CAT_BOOL];
    p.value = number;
    return add_part(b, &p, 0);
}

/* The tensors among the arguments are the inputs; a number in the place of one becomes a part. */
static bool take_inputs(builder *b) {
    const tn_op *op = &b->e.of->op;
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *t = tni_in_slot(op, b->args, i);
        bool list = tni_is_list(tni_in_field(op, i));
        b->input_of[i] = -1;
        if (list || !t || b->e.ninputs == MAX_INPUTS) return false;
        if (t->flags & TNI_T_STACK) continue;
        if (b->e.ninputs == 0) b->e.device = tn_tensor_device(t);
        tn_device d = tn_tensor_device(t);
        if (d.slot != b->e.device.slot || d.index != b->e.device.index) return false;
        describe(&b->like[b->e.ninputs], tn_view_dtype(&t->v), t->v.ndim, 0);
        b->e.input_dtype[b->e.ninputs] = tn_view_dtype(&t->v);
        b->input_of[i] = b->e.ninputs;
        b->in[b->e.ninputs++] = t;
    }
    return b->e.ninputs > 0;
}

static int input_of_field(const tn_op *op, int field) {
    int i = 0;
    while (i < op->nin && op->in_field[i] != field) i++;
    return i < op->nin ? i : -1;
}

static bool number_at(const builder *b, const tni_term *t, tn_scalar *ret) {
    if (t->from == TNI_FROM_STEP) {
        *ret = b->number_of[t->at];
        return true;
    }
    if (t->from == TNI_FROM_CONSTANT)
        *ret = t->constant.number;
    else
        *ret = tni_field_value(&b->f->fields[t->at], b->args).number;
    return ret->kind != TN_SCALAR_NONE;
}

/* The number of the operand that a term stands for; -1: it fits no expression. */
static int32_t operand_at(builder *b, const tni_term *t) {
    tn_scalar number;
    if (t->kind == TNI_V_NUMBER) return number_at(b, t, &number) ? add_number(b, number) : -1;
    if (t->kind != TNI_V_TENSOR) return -1;
    if (t->from == TNI_FROM_STEP) return t->nr == 0 ? b->part_of[t->at] : -1;
    int i = t->from == TNI_FROM_FIELD ? input_of_field(&b->e.of->op, t->at) : -1;
    if (i < 0 || b->input_of[i] >= 0) return i < 0 ? -1 : b->input_of[i];
    const tn_tensor *boxed = tni_in_slot(&b->e.of->op, b->args, i);
    tni_scalar_load(tn_view_dtype(&boxed->v), boxed->v.data, &number);
    return add_number(b, number);
}

/* The dtype of a part by the operator's own rules. Its numbers take the dtype that it computes in;
 * tensors that would have to be converted first fit no expression. */
static bool find_dtype(builder *b, part *p, int32_t *ret_ndim) {
    const tn_op *op = p->op;
    const tn_view *of[TN_EXPR_OPERANDS];
    int n = 0;
    tn_infer inf = {.op = op};
    *ret_ndim = 0;
    for (int i = 0; i < p->noperands; i++) {
        const tn_view *v = &b->like[p->operand[i]];
        if (v->ndim > *ret_ndim) *ret_ndim = v->ndim;
        if (!(op->fields[op->in_field[i]].flags & TNI_FIELD_BOOL_INPUT)) of[n++] = v;
    }
    if (op->compute_rule == TNI_COMPUTE_FIRST && n > 1) n = 1;
    if (tni_infer_dtype(&inf, op->compute_rule, of, n) != TN_OK) return false;
    for (int i = 0; i < p->noperands; i++) {
        const tn_view *v = &b->like[p->operand[i]];
        bool mask = op->fields[op->in_field[i]].flags & TNI_FIELD_BOOL_INPUT;
        int32_t want = mask ? TN_BOOL : inf.compute;
        if (v->word & TN_W_SCALAR)
            b->e.parts[p->operand[i] - b->e.ninputs].dtype = want;
        else if (tn_view_dtype(v) != want)
            return false;
    }
    p->dtype = tni_result_of(inf.compute, op->result_rule);
    return true;
}

/* A call of a pointwise operator whose other arguments are the defaults. */
static bool add_call(builder *b, const tni_step *s, int32_t *ret_at) {
    part p;
    int32_t ndim;
    memset(&p, 0, sizeof p);
    p.op = s->op;
    p.noperands = s->op->nin;
    if (s->op->info.kind != TN_OP_POINTWISE || s->op->nout != 1 || s->noperands != s->op->nin ||
        s->op->nin > TN_EXPR_OPERANDS)
        return false;
    for (int i = 0; i < s->noperands; i++) {
        const tn_field *f = s->operands[i].field;
        int at = f ? input_of_field(s->op, (int)(f - s->op->fields)) : -1;
        if (at < 0 || (p.operand[at] = operand_at(b, &s->operands[i].term)) < 0) return false;
    }
    if (!find_dtype(b, &p, &ndim)) return false;
    *ret_at = add_part(b, &p, ndim);
    return *ret_at >= 0;
}

static bool add_step(builder *b, int at) {
    const tni_step *s = &b->f->step[at];
    tn_scalar x, y;
    if (s->what == TNI_STEP_CALL) return add_call(b, s, &b->part_of[at]);
    if (s->what != TNI_STEP_NUMBER || s->noperands != 2) return false;
    if (!number_at(b, &s->operands[0].term, &x) || !number_at(b, &s->operands[1].term, &y))
        return false;
    return tni_number_compute(s->sign, x, y, &b->number_of[at]) == TN_OK;
}

static bool build(builder *b) {
    if (!take_inputs(b)) return false;
    for (int i = 0; i < b->f->nsteps; i++)
        if (!add_step(b, i)) return false;
    const tni_term *value = &b->f->value[0];
    if (value->kind != TNI_V_TENSOR || value->from != TNI_FROM_STEP) return false;
    b->e.result = b->part_of[value->at];
    return true;
}

/* ---- Codes -------------------------------------------------------------------------------------*/

static void unref(code *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    const tni_device *dev = c->dev;
    if (c->handle) dev->ifaces.codegen->destroy(dev->desc.ctx, c->key.device.index, c->handle);
    tni_caught_any();
    free(c);
}

static tn_status compile(const tni_device *dev, const expression *e, void **ret_handle) {
    tn_expr_node nodes[MAX_PARTS];
    tn_expr x = {sizeof x, sizeof nodes[0], e->ninputs, e->nparts, 1,
                 0,        e->input_dtype,  nodes,      &e->result};
    for (int i = 0; i < e->nparts; i++) {
        const part *p = &e->parts[i];
        nodes[i] = (tn_expr_node){.dtype = p->dtype, .noperands = p->noperands};
        nodes[i].op = p->op ? p->op->info.name : NULL;
        nodes[i].value = p->op ? NULL : &p->value;
        memcpy(nodes[i].operand, p->operand, sizeof p->operand);
    }
    return tni_caught(dev->ifaces.codegen->compile(dev->desc.ctx, e->device.index, &x, ret_handle));
}

/* The code of an expression, made when missing; NULL where the device declines, or has made so many
 * for this operator that its numbers seem to change with every call. Lock held. */
static code *find_or_make(const tni_device *dev, const expression *e) {
    int of_same = 0;
    for (code *c = codes; c; c = c->next) {
        if (c->key.of != e->of || c->dev != dev) continue;
        if (memcmp(&c->key, e, sizeof *e) == 0) return c;
        of_same++;
    }
    bool serves = tni_device_at(e->device.slot) == dev; /* it may have been retired meanwhile */
    code *c = serves && of_same < MAX_CODES ? calloc(1, sizeof *c) : NULL;
    if (!c) return NULL;
    c->key = *e;
    c->dev = dev;
    atomic_store_explicit(&c->refs, 1, memory_order_relaxed);
    if (compile(dev, e, &c->handle) != TN_OK) c->handle = NULL;
    c->next = codes;
    codes = c;
    return c;
}

static code *take(const tni_device *dev, const expression *e) {
    tni_os_lock(&lock);
    code *c = find_or_make(dev, e);
    if (c && !c->handle) c = NULL;
    if (c) atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    tni_os_unlock(&lock);
    return c;
}

void tni_codes_forget(const tni_device *dev) {
    code *gone = NULL, **at = &codes;
    tni_os_lock(&lock);
    while (*at) {
        code *c = *at;
        if (c->dev != dev) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = gone;
        gone = c;
    }
    tni_os_unlock(&lock);
    while (gone) {
        code *c = gone;
        gone = c->next;
        unref(c);
    }
}

/* ---- Running -----------------------------------------------------------------------------------*/

/* The shape of the result; false where an input of that shape is not packed: then the parts decide on
 * the layout. */
static bool find_shape(const builder *b, int32_t *ret_ndim, int64_t *shape) {
    *ret_ndim = 0;
    for (int i = 0; i < b->e.ninputs; i++) {
        const tn_view *v = &b->in[i]->v;
        if (tni_broadcast_shapes(*ret_ndim, shape, v->ndim, v->shape, ret_ndim, shape) != TN_OK)
            return false;
    }
    for (int i = 0; i < b->e.ninputs; i++)
        if (tni_shape_is(b->in[i], *ret_ndim, shape) && !(b->in[i]->v.word & TN_W_CONTIGUOUS))
            return false;
    return true;
}

static tn_status run_code(const builder *b, const code *c, tn_tensor **ret) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim, dtype = b->e.parts[b->e.result - b->e.ninputs].dtype;
    tn_tensor *ts[TN_MAX_OPERANDS], *out;
    tn_plan plan;
    if (!find_shape(b, &ndim, shape)) return TN_DECLINE;
    TN_TRY(tni_tensor_new_fast(dtype, b->e.device, ndim, shape, &out));
    ts[0] = out;
    for (int i = 0; i < b->e.ninputs; i++) ts[i + 1] = tni_t(&b->in[i]->v);
    tni_plan_build(&plan, b->e.ninputs + 1, 1, ts, 0, NULL, ndim, shape, 0);
    void *stream = tni_stream_of(b->e.device);
    tn_status st = TN_OK;
    for (int i = 0; i < b->e.ninputs && st == TN_OK; i++)
        st = tni_storage_use(b->in[i]->storage, stream);
    if (plan.numel > 0 && st == TN_OK)
        st = tni_caught(c->dev->ifaces.codegen->run(c->dev->desc.ctx, b->e.device.index, c->handle,
                                                    &plan, stream));
    st = tni_device_said(c->dev, st, b->e.of->op.info.name);
    if (st == TN_OK)
        *ret = out;
    else
        tn_tensor_unref(&out);
    return st;
}

/* The device that a call's first tensor is on, if it makes kernels; NULL otherwise. */
static const tni_device *maker_of(const tni_added *o, const void *args) {
    const tn_op *op = &o->op;
    const uint32_t many = TNI_OP_LIST_OUT | TNI_OP_WRITES;
    if (op->nout != 1 || (op->flags & many) || tni_tls.watcher) return NULL;
    for (int i = 0; i < op->nin; i++) {
        const tn_tensor *t = tni_in_slot(op, args, i);
        if (tni_is_list(tni_in_field(op, i)) || !t) return NULL;
        if (tni_recording(t->v.word)) return NULL; /* the parts are recorded */
        if (t->flags & TNI_T_STACK) continue;
        const tni_device *dev = tni_device_at(tn_view_device(&t->v));
        return dev->ifaces.codegen ? dev : NULL;
    }
    return NULL;
}

tn_status tni_fused_run(const tni_added *o, const void *args, tn_tensor **ret) {
    const tni_device *dev = maker_of(o, args);
    if (!dev) return TN_DECLINE;
    builder *b = calloc(1, sizeof *b);
    if (!b) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    b->e.of = o;
    b->f = o->forward;
    b->args = args;
    code *c = build(b) ? take(dev, &b->e) : NULL;
    tn_status st = c ? run_code(b, c, ret) : TN_DECLINE;
    if (c) unref(c);
    free(b);
    return st;
}
