/* pointwise.c: the hot path of pointwise operators: promote, broadcast, allocate, call, record.
 *
 * Equal dtype, device and shape, packed: straight to the kernel with a one-dimensional plan.
 * Everything else takes one general path; both end in `finish`. */
#include "dispatch_priv.h"
#include "plan_priv.h"

/* What one call works on. Arrays are by plan operand: outputs first. */
typedef struct call {
    const tn_op *op;
    void *args;
    tn_tensor *in[TN_MAX_OPERANDS];   /* as given */
    tn_tensor *use[TN_MAX_OPERANDS];  /* as computed on: converted where needed */
    tn_tensor *temp[TN_MAX_OPERANDS]; /* conversions to release */
    tn_tensor *given;                 /* out= or in-place target, or NULL */
    tn_tensor *out;                   /* what the kernel writes; owned */
    int nin;
    int32_t compute, result;
    tn_device device;
    uint64_t any; /* union of the input words */
    bool inplace, record;
} call;

static bool same_shape(const tn_view *a, const tn_view *b) {
    if (a->ndim != b->ndim) return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

/* A number as one element of the compute dtype. */
static void store_number(const tn_tensor *number, int32_t dtype, void *dst) {
    if (TN_LIKELY(dtype == TN_F32 && tn_view_dtype(&number->v) == TN_F64)) {
        *(float *)dst = (float)*(const double *)number->v.data;
        return;
    }
    tn_scalar s;
    tni_scalar_load(tn_view_dtype(&number->v), number->v.data, &s);
    tni_scalar_store(&s, dtype, dst);
}

/* Hands the outputs over and makes the tape's entry. */
static tn_status finish(call *c, tn_tensor **rets) {
    if (c->given) tni_bump_version(c->given);
    if (TN_UNLIKELY(c->record)) {
        *tni_out_slot(c->op, c->args, 0) = c->out;
        TN_TRY(tni_ag.record(c->op, c->args, &c->out, 1));
    }
    rets[0] = c->out;
    c->out = NULL;
    return TN_OK;
}

/* ---- The fast path -----------------------------------------------------------------------------*/

/* in[0] is a packed tensor; do the others fit it as they are? *ret_scalars: plan operands that are
 * numbers. */
static inline bool fits(const call *c, uint32_t *ret_scalars) {
    const uint64_t alike = TN_W_ALIKE | TN_W_CONTIGUOUS | TN_W_SCALAR;
    const tn_view *a = &c->in[0]->v;
    uint32_t scalars = 0;
    for (int i = 1; i < c->nin; i++) {
        const tn_view *b = &c->in[i]->v;
        if (TN_LIKELY(((a->word ^ b->word) & alike) == 0)) {
            if (TN_UNLIKELY(!same_shape(a, b))) return false;
        } else if (b->word & TN_W_SCALAR) {
            if (tni_category(tn_view_dtype(b)) > tni_category(tn_view_dtype(a))) return false;
            scalars |= 1u << (i + 1);
        } else {
            return false;
        }
    }
    *ret_scalars = scalars;
    return true;
}

/* May the kernel write the given tensor directly? It is packed, of the result's dtype and shape, and
 * each input is the very same memory or has a storage of its own. */
static bool given_fits(const call *c, int32_t result) {
    const tn_view *o = &c->given->v;
    if ((o->word & (TN_W_CONTIGUOUS | TN_W_READONLY)) != TN_W_CONTIGUOUS) return false;
    if (tn_view_dtype(o) != result || !same_shape(o, &c->in[0]->v)) return false;
    for (int i = 0; i < c->nin; i++)
        if (c->in[i]->storage == c->given->storage && c->in[i]->v.data != o->data) return false;
    return ((o->word ^ c->in[0]->v.word) & (TN_W_DEVICE | TN_W_INDEX)) == 0;
}

/* True when it took the call; *ret_st is then its status. */
static inline bool fast(call *c, tn_tensor **rets, tn_status *ret_st) {
    const tn_op *op = c->op;
    const tn_view *a = &c->in[0]->v;
    int32_t dtype = tn_view_dtype(a);
    uint32_t scalars;
    if ((a->word & (TN_W_CONTIGUOUS | TN_W_SCALAR)) != TN_W_CONTIGUOUS) return false;
    if (op->compute_rule != TNI_COMPUTE_PROMOTE) {
        if (op->compute_rule > TNI_COMPUTE_FIRST) return false;
        if (op->compute_rule == TNI_COMPUTE_FLOAT && tni_category(dtype) < TN_CAT_FLOAT)
            return false;
    }
    if (op->result_rule > TNI_RESULT_BOOL || (op->flags & TNI_OP_BOOL_INPUT)) return false;
    if (!fits(c, &scalars)) return false;
    const tn_cell *cell = tni_cell(op, tn_view_device(a), dtype);
    if (TN_UNLIKELY(!cell)) return false;

    tn_plan plan;
    _Alignas(16) unsigned char numbers[TN_MAX_OPERANDS][16];
    int32_t result = op->result_rule == TNI_RESULT_BOOL ? TN_BOOL : dtype;
    if (TN_UNLIKELY(c->given != NULL)) {
        if (!given_fits(c, result)) return false;
        c->out = tn_tensor_ref(c->given);
    } else {
        *ret_st = tni_tensor_like(a, result, &c->out);
        if (TN_UNLIKELY(*ret_st != TN_OK)) return true;
    }
    if (TN_LIKELY(a->numel > 0)) {
        const tn_view *o = &c->out->v;
        tni_plan_flat(&plan, c->nin + 1, 1, a->numel);
        plan.scalar_mask = scalars;
        plan.data[0] = o->data;
        plan.offset[0] = o->byte_offset;
        plan.dtype[0] = (uint8_t)result;
        plan.stride[0][0] = o->dl_bits >> 3;
        for (int i = 0; i < c->nin; i++) {
            const tn_view *v = &c->in[i]->v;
            bool number = scalars >> (i + 1) & 1u;
            plan.dtype[i + 1] = (uint8_t)dtype;
            plan.data[i + 1] = v->data;
            plan.offset[i + 1] = v->byte_offset;
            plan.stride[0][i + 1] = v->dl_bits >> 3;
            if (number) {
                store_number(c->in[i], dtype, numbers[i]);
                plan.data[i + 1] = numbers[i];
                plan.stride[0][i + 1] = 0;
            }
        }
        *(const tn_plan **)c->args = &plan;
        *ret_st = tni_kernel_run(op, cell, tn_tensor_device(c->in[0]), dtype, c->args);
        *(const tn_plan **)c->args = NULL;
        if (TN_UNLIKELY(*ret_st != TN_OK)) return true;
    }
    *ret_st = finish(c, rets);
    return true;
}

/* ---- The general path --------------------------------------------------------------------------*/

static bool promotes(const call *c, int i) {
    return !(c->op->fields[c->op->in_field[i]].flags & TNI_FIELD_BOOL_INPUT);
}

static tn_status find_dtypes(call *c) {
    tn_tensor *of[TN_MAX_OPERANDS];
    int n = 0;
    for (int i = 0; i < c->nin; i++)
        if (promotes(c, i)) of[n++] = c->in[i];
    if (c->op->compute_rule == TNI_COMPUTE_FIRST) n = n > 1 ? 1 : n;
    tn_infer inf = {.op = c->op};
    TN_TRY(tni_infer_dtype(&inf, c->op->compute_rule, (const tn_view *const *)(void *)of, n));
    c->compute = inf.compute;
    c->result = tni_result_of(inf.compute, c->op->result_rule);
    return TN_OK;
}

static tn_status find_device(call *c) {
    const tn_tensor *first = NULL;
    for (int i = 0; i < c->nin; i++) {
        const tn_tensor *t = c->in[i];
        bool loose = (t->v.word & TN_W_SCALAR) || (t->v.ndim == 0 && tn_view_device(&t->v) == 0);
        if (loose) continue;
        if (!first) first = t;
        if (((t->v.word ^ first->v.word) & (TN_W_DEVICE | TN_W_INDEX)) != 0)
            return tni_fail_devices(tn_tensor_device(first), tn_tensor_device(t));
    }
    if (!first && c->given) first = c->given;
    if (!first) first = c->in[0];
    c->device = tn_tensor_device(first);
    if (c->given && ((c->given->v.word ^ first->v.word) & (TN_W_DEVICE | TN_W_INDEX)))
        return tni_fail_devices(c->device, tn_tensor_device(c->given));
    return TN_OK;
}

/* The output of a call without out=: the layout of the first operand of full shape. */
static tn_status make_output(call *c, int32_t ndim, const int64_t *shape) {
    for (int i = 0; i < c->nin; i++) {
        const tn_view *v = &c->in[i]->v;
        if (v->ndim != ndim || memcmp(v->shape, shape, sizeof *shape * (size_t)ndim) != 0) continue;
        if ((v->word & TN_W_CONTIGUOUS) && !(v->word & TN_W_CHANNELS_LAST)) break;
        if (!(v->word & TN_W_DENSE)) continue;
        TN_TRY(tni_tensor_new_fast(c->result, c->device, ndim, shape, &c->out));
        tni_like_layout(c->out, v);
        return TN_OK;
    }
    return tni_tensor_new_fast(c->result, c->device, ndim, shape, &c->out);
}

/* Checks out= or the in-place target and says where the kernel writes. */
static tn_status use_given(call *c, int32_t ndim, const int64_t *shape) {
    tn_tensor *o = c->given;
    TN_TRY(tni_check_writable(c->op, o, c->result, c->inplace));
    if (!tni_shape_is(o, ndim, shape)) {
        if (c->inplace)
            return tn_fail(TN_E_SHAPE, -1,
                           "output with shape %s doesn't match the broadcast shape %s",
                           tni_shape_text_of(&o->v), tni_shape_text(ndim, shape));
        TN_TRY(tni_resize_out(o, ndim, shape));
    }
    TN_TRY(tni_check_no_internal_overlap(o));
    bool through_copy = tn_view_dtype(&o->v) != c->result;
    for (int i = 0; i < c->nin; i++) {
        tni_overlap rel = tni_overlap_of(o, c->in[i]);
        if (rel == TNI_OVERLAP_PARTIAL)
            return tn_fail(TN_E_STATE, -1,
                           "unsupported operation: some elements of the input tensor and the "
                           "written-to tensor refer to a single memory location. Please clone() "
                           "the tensor before performing the operation.");
    }
    if (through_copy) return tni_tensor_new_fast(c->result, c->device, ndim, shape, &c->out);
    c->out = tn_tensor_ref(o);
    return TN_OK;
}

static tn_status convert_inputs(call *c, uint32_t *ret_scalars, unsigned char (*numbers)[16],
                                void **scalar_ptrs) {
    for (int i = 0; i < c->nin; i++) {
        tn_tensor *t = c->in[i];
        int32_t want = promotes(c, i) ? c->compute : TN_BOOL;
        bool far = tn_view_device(&t->v) != c->device.slot;
        c->use[i] = t;
        if ((t->v.word & TN_W_SCALAR) || far) {
            /* a 0-d CPU operand of a device call goes along as a number, too */
            store_number(t, want, numbers[i]);
            *ret_scalars |= 1u << (i + 1);
            scalar_ptrs[i + 1] = numbers[i];
        } else if (tn_view_dtype(&t->v) != want) {
            TN_TRY(tni_convert(t, want, &c->temp[i]));
            c->use[i] = c->temp[i];
        }
    }
    return TN_OK;
}

static tn_status run_kernel(call *c, int32_t ndim, const int64_t *shape, uint32_t scalars,
                            void **scalar_ptrs, unsigned char (*numbers)[16]) {
    tn_plan plan;
    tn_tensor *ts[TN_MAX_OPERANDS + 1];
    uint8_t number_dtype[TN_MAX_OPERANDS];
    ts[0] = c->out;
    for (int i = 0; i < c->nin; i++) {
        ts[i + 1] = c->use[i];
        number_dtype[i] = (uint8_t)(promotes(c, i) ? c->compute : TN_BOOL);
    }
    (void)numbers;
    tni_plan_build(&plan, c->nin + 1, 1, ts, scalars, scalar_ptrs, ndim, shape, 0);
    for (int i = 0; i < c->nin; i++)
        if (scalars >> (i + 1) & 1u) plan.dtype[i + 1] = number_dtype[i];
    if (plan.numel == 0) return TN_OK;
    const tn_cell *cell = tni_kernel_find(c->op, c->device.slot, c->compute);
    if (!cell) return tni_kernel_missing(c->op, c->device, c->compute);
    *(const tn_plan **)c->args = &plan;
    tn_status st = tni_kernel_run(c->op, cell, c->device, c->compute, c->args);
    *(const tn_plan **)c->args = NULL;
    return st;
}

static tn_status general(call *c, tn_tensor **rets) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = 0;
    uint32_t scalars = 0;
    _Alignas(16) unsigned char numbers[TN_MAX_OPERANDS][16];
    void *scalar_ptrs[TN_MAX_OPERANDS + 1] = {NULL};
    TN_TRY(find_dtypes(c));
    TN_TRY(find_device(c));
    if (tni_use_wider(c->op, c->device.slot, c->compute))
        return tni_run_wider(c->op, c->args, rets);
    for (int i = 0; i < c->nin; i++) {
        const tn_view *v = &c->in[i]->v;
        TN_TRY(tni_broadcast_shapes(ndim, shape, v->ndim, v->shape, &ndim, shape));
    }
    if (c->given)
        TN_TRY(use_given(c, ndim, shape));
    else
        TN_TRY(make_output(c, ndim, shape));
    TN_TRY(convert_inputs(c, &scalars, numbers, scalar_ptrs));
    TN_TRY(run_kernel(c, ndim, shape, scalars, scalar_ptrs, numbers));
    if (c->given && c->out != c->given) {
        TN_TRY(tni_copy_into(c->given, c->out));
        tn_tensor_unref(&c->out);
        c->out = tn_tensor_ref(c->given);
    }
    return finish(c, rets);
}

tn_status tni_run_pointwise(const tn_op *op, void *args, tn_tensor **rets) {
    call c;
    tn_status st;
    c.op = op;
    c.args = args;
    c.nin = op->nin;
    c.out = NULL;
    c.any = 0;
    for (int i = 0; i < c.nin; i++) {
        c.in[i] = tni_in_slot(op, args, i);
        if (TN_UNLIKELY(!c.in[i])) return tni_fail_null(op, i);
        c.any |= c.in[i]->v.word;
    }
    if (op->nin == 0) return tn_fail(TN_E_INTERNAL, -1, "%s has no operand", op->info.name);
    c.given = *tni_out_slot(op, args, 0);
    c.inplace = c.given == c.in[0];
    c.record = (c.any & TN_W_GRAD) && !tni_tls.no_grad && op->grad != NULL;
    if (TN_UNLIKELY(c.given != NULL)) TN_TRY(tni_check_given(op, args, c.given, c.inplace, c.any));
    if (fast(&c, rets, &st)) {
        if (TN_UNLIKELY(c.out != NULL)) tn_tensor_unref(&c.out);
        return st;
    }
    memset(c.temp, 0, sizeof c.temp);
    st = general(&c, rets);
    for (int i = 0; i < c.nin; i++) tn_tensor_unref(&c.temp[i]);
    if (c.out) tn_tensor_unref(&c.out);
    return st;
}
