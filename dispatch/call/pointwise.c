/* pointwise.c: the hot path of pointwise operators: promote, broadcast, allocate, call, record.
 *
 * Equal dtype, device and shape, packed: `packed` goes straight to the kernel with a one-dimensional
 * plan. Everything else takes `general`. */
#include "call_priv.h"
#include "copy_priv.h"
#include "infer_priv.h"
#include "plan_priv.h"

static inline bool same_shape(const tn_view *a, const tn_view *b) {
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

/* Hands the output over and makes the tape's entry; takes `out` over, also when it fails. */
static inline tn_status finish(const tn_op *op, void *args, uint64_t any, tn_tensor *given,
                               tn_tensor *out, tn_tensor **rets) {
    if (TN_UNLIKELY(given != NULL)) tni_bump_version(given);
    if (TN_UNLIKELY(any & TN_W_GRAD) && tni_recording(any) && op->grad) {
        *tni_out_slot(op, args, 0) = out;
        tn_status st = tni_ag.record(op, args, &out, 1);
        if (TN_UNLIKELY(st != TN_OK)) {
            tn_tensor_unref(&out);
            return st;
        }
    }
    rets[0] = out;
    return TN_OK;
}

/* Factors of another kind than what they scale, as PyTorch refuses them. */
static tn_status check_alpha(const tn_scalar *alpha, int32_t dtype, int argument) {
    int32_t to = tn_dtype_category(dtype);
    if (alpha->kind == TN_CAT_BOOL && to != TN_CAT_BOOL)
        return tn_fail(TN_E_STATE, argument, "Boolean alpha only supported for Boolean results.");
    if (alpha->kind >= TN_CAT_FLOAT && to < TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, argument,
                       "For integral input tensors, argument alpha must not be a floating point "
                       "number.");
    if (alpha->kind == TN_CAT_COMPLEX && to == TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, argument,
                       "For non-complex input tensors, argument alpha must not be a complex "
                       "number.");
    return TN_OK;
}

/* Is there a number that a kernel for this dtype might not take as it is? */
static inline bool numbers_in_doubt(const tn_op *op, const void *args, int32_t dtype) {
    if (TN_UNLIKELY(tni_category(dtype) < TN_CAT_FLOAT)) return op->flags & TNI_OP_NUMBERS;
    bool plain = true;
    for (int i = 0; i < op->nnumbers; i++) {
        const tn_scalar *s = (const void *)((const char *)args + op->number_offset[i]);
        plain = plain && (s->kind == TN_CAT_INT || s->kind == TN_CAT_FLOAT);
    }
    return !plain;
}

/* Numbers that a dtype cannot hold, as PyTorch refuses them. */
static tn_status check_numbers(const tn_op *op, const void *args, int32_t dtype) {
    bool operands = op->flags & TNI_OP_FITS;
    for (int i = 0; i < op->nfields; i++) {
        const tn_field *f = &op->fields[i];
        const void *p = (const char *)args + f->offset;
        tn_scalar s;
        if (f->kind == TN_F_SCALAR && (f->flags & TNI_FIELD_PARAM)) {
            s = *(const tn_scalar *)p;
            if ((f->flags & TNI_FIELD_KWONLY) && strcmp(f->name, "alpha") == 0)
                TN_TRY(check_alpha(&s, dtype, i));
        } else if (operands && f->kind == TN_F_OPERAND && !(f->flags & TNI_FIELD_BOOL_INPUT)) {
            const tn_tensor *t = *(tn_tensor *const *)p;
            if (!t || !(t->v.word & TN_W_SCALAR)) continue;
            tni_scalar_load(tn_view_dtype(&t->v), t->v.data, &s);
        } else {
            continue;
        }
        if (tn_dtype_category(dtype) < TN_CAT_FLOAT || s.kind == TN_CAT_COMPLEX)
            TN_TRY(tni_check_scalar_fits(&s, dtype));
    }
    return TN_OK;
}

/* ---- The general path --------------------------------------------------------------------------*/

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
    bool inplace;
} call;

static bool promotes(const call *c, int i) {
    return !(c->op->fields[c->op->in_field[i]].flags & TNI_FIELD_BOOL_INPUT);
}

/* Note [Numbers alone]: an operator of numbers, such as 1 - weight in a formula, computes them in double,
 * and its result is a number again: what it is combined with decides on the dtype. */
static bool only_numbers(const call *c) {
    uint64_t all = TN_W_SCALAR;
    for (int i = 0; i < c->nin; i++) all &= c->in[i]->v.word;
    return all && !c->given;
}

/* Bools beside whole numbers that fit into a byte, of which nothing but truth comes: b == 1. Promoted to
 * int64, as a sum of them has to be, they would take eight times the memory. */
static bool compares_bytes(const call *c) {
    if (c->compute != TN_I64 || c->op->result_rule != TNI_RESULT_BOOL) return false;
    for (int i = 0; i < c->nin; i++) {
        const tn_view *v = &c->in[i]->v;
        tn_scalar s = {0};
        if (tn_view_dtype(v) == TN_BOOL) continue;
        if (!(v->word & TN_W_SCALAR)) return false;
        tni_scalar_load(tn_view_dtype(v), v->data, &s);
        if (s.kind != TN_CAT_INT || s.i < 0 || s.i > UINT8_MAX) return false;
    }
    return true;
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
    if (only_numbers(c)) {
        if (tni_category(c->compute) == TN_CAT_FLOAT) c->compute = TN_F64;
        if (tni_category(c->compute) == TN_CAT_COMPLEX) c->compute = TN_C128;
    }
    c->result = tni_result_of(c->compute, c->op->result_rule);
    if (compares_bytes(c)) c->compute = TN_U8;
    return TN_OK;
}

static tn_status find_device(call *c) {
    const tn_tensor *first = NULL;
    for (int i = 0; i < c->nin; i++) {
        const tn_tensor *t = c->in[i];
        bool loose = (t->v.word & TN_W_SCALAR) || (t->v.ndim == 0 && tn_view_device(&t->v) == 0);
        if (t->v.word & TN_W_LAYOUT) return TN_DECLINE;
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

/* The output of a call without out=: Note [Order of a result] in tensor.c. Operands of the result's
 * shape that are packed by rows agree on rows, and an operator may ask for them. */
static tn_status make_output(call *c, int32_t ndim, const int64_t *shape) {
    const tn_view *like[TN_MAX_OPERANDS];
    uint64_t odd = 0;
    bool rows = true;
    for (int i = 0; i < c->nin; i++) {
        like[i] = &c->in[i]->v;
        odd |= (like[i]->word & TN_W_CHANNELS_LAST) | (~like[i]->word & TN_W_CONTIGUOUS);
        rows = rows && (like[i]->word & TN_W_CONTIGUOUS) && tni_shape_is(c->in[i], ndim, shape);
    }
    TN_TRY(tni_tensor_new_fast(c->result, c->device, ndim, shape, &c->out));
    if (odd && !rows && !(c->op->flags & TNI_OP_CONTIGUOUS)) tni_like_layout(c->out, like, c->nin);
    return TN_OK;
}

/* Checks out= or the in-place target and says where the kernel writes. */
static tn_status use_given(call *c, int32_t ndim, const int64_t *shape) {
    tn_tensor *o = c->given;
    if (c->inplace && c->op->result_rule == TNI_RESULT_REAL && c->result != c->compute)
        return tn_fail(TN_E_STATE, 0, "In-place %s is not supported for complex tensors.",
                       c->op->info.name);
    TN_TRY(tni_check_writable(c->op, o, c->result));
    TN_TRY(tni_check_out(c->op, c->args, o, c->result, c->device));
    bool fits = tni_shape_is(o, ndim, shape), read = c->inplace;
    for (int i = 0; i < c->nin && !fits; i++) read |= c->in[i] == o;
    if (!fits && read)
        return tn_fail(TN_E_SHAPE, -1, "output with shape %s doesn't match the broadcast shape %s",
                       tni_shape_text_of(&o->v), tni_shape_text(ndim, shape));
    TN_TRY(tni_check_no_internal_overlap(o));
    bool through_copy = tn_view_dtype(&o->v) != c->result || !fits;
    for (int i = 0; i < c->nin && fits; i++) {
        tni_overlap rel = tni_overlap_of(o, c->in[i]);
        if (rel == TNI_OVERLAP_NONE && tni_may_meet(o, c->in[i])) through_copy = true;
        if (rel == TNI_OVERLAP_PARTIAL) return tni_fail_overlap();
    }
    if (!fits) return make_output(c, ndim, shape); /* out takes its layout over */
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
        if (far && !(t->v.word & TN_W_SCALAR))
            TN_TRY(tni_forbid(c->device, "reading a value", c->op->info.name));
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
                            void **scalar_ptrs) {
    tn_plan plan;
    tn_tensor *ts[TN_MAX_OPERANDS + 1];
    uint8_t number_dtype[TN_MAX_OPERANDS];
    ts[0] = c->out;
    for (int i = 0; i < c->nin; i++) {
        ts[i + 1] = c->use[i];
        number_dtype[i] = (uint8_t)(promotes(c, i) ? c->compute : TN_BOOL);
    }
    tni_plan_build(&plan, c->nin + 1, 1, ts, scalars, scalar_ptrs, ndim, shape, 0);
    for (int i = 0; i < c->nin; i++)
        if (scalars >> (i + 1) & 1u) plan.dtype[i + 1] = number_dtype[i];
    const tn_cell *cell = tni_kernel_find(c->op, c->device.slot, c->compute);
    if (!cell) return TN_DECLINE; /* also of no elements, whose dtype may be one to refuse */
    if (plan.numel == 0) return TN_OK;
    *(const tn_plan **)c->args = &plan;
    *tni_out_slot(c->op, c->args, 0) = c->out;
    tn_status st = tni_kernel_run(c->op, cell, c->device, c->compute, c->args);
    *(const tn_plan **)c->args = NULL;
    *tni_out_slot(c->op, c->args, 0) = c->given;
    return st;
}

static tn_status compute(call *c, tn_tensor **rets) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = 0;
    uint32_t scalars = 0;
    _Alignas(16) unsigned char numbers[TN_MAX_OPERANDS][16];
    void *scalar_ptrs[TN_MAX_OPERANDS + 1] = {NULL};
    TN_TRY(find_dtypes(c));
    if (numbers_in_doubt(c->op, c->args, c->compute))
        TN_TRY(check_numbers(c->op, c->args, c->compute));
    TN_TRY(find_device(c));
    for (int i = 0; i < c->nin; i++) {
        const tn_view *v = &c->in[i]->v;
        TN_TRY(tni_broadcast_shapes(ndim, shape, v->ndim, v->shape, &ndim, shape));
    }
    if (c->given)
        TN_TRY(use_given(c, ndim, shape));
    else
        TN_TRY(make_output(c, ndim, shape));
    TN_TRY(convert_inputs(c, &scalars, numbers, scalar_ptrs));
    TN_TRY(run_kernel(c, ndim, shape, scalars, scalar_ptrs));
    if (c->given && c->out != c->given) {
        TN_TRY(tni_give(c->given, c->out));
        tn_tensor_unref(&c->out);
        c->out = tn_tensor_ref(c->given);
    }
    tn_tensor *out = c->out;
    if (only_numbers(c)) out->v.word |= TN_W_SCALAR;
    c->out = NULL;
    return finish(c->op, c->args, c->any, c->given, out, rets);
}

static tn_status general(const tn_op *op, void *args, tn_tensor **rets) {
    call c = {.op = op, .args = args, .nin = op->nin};
    if (op->nin == 0) return tn_fail(TN_E_INTERNAL, -1, "%s has no operand", op->info.name);
    for (int i = 0; i < c.nin; i++) {
        c.in[i] = tni_in_slot(op, args, i);
        if (!c.in[i]) return tni_fail_null(op, i);
        c.any |= c.in[i]->v.word;
    }
    if (op->refuses) TN_TRY(tni_check_kinds(op, args));
    if (op->check) TN_TRY(op->check(args));
    c.given = *tni_out_slot(op, args, 0);
    c.inplace = c.given == c.in[0];
    if (c.given) TN_TRY(tni_check_given(op, args, c.given, c.inplace, c.any));
    if (c.inplace && tni_takes_repeated(op, c.given, c.any)) return op->repeated(args, rets);
    tn_status st = compute(&c, rets);
    for (int i = 0; i < c.nin; i++) tn_tensor_unref(&c.temp[i]);
    tn_tensor_unref(&c.out);
    return st;
}

tn_status tni_wanted_pointwise(const tn_op *op, const void *args, tni_wanted *ret_wanted) {
    call c = {.op = op, .nin = op->nin};
    for (int i = 0; i < c.nin; i++) c.in[i] = tni_in_slot(op, args, i);
    c.given = *tni_out_slot(op, (void *)(uintptr_t)args, 0);
    TN_TRY(find_dtypes(&c));
    TN_TRY(find_device(&c));
    *ret_wanted = (tni_wanted){c.device, c.compute};
    return TN_OK;
}

/* ---- The fast path -----------------------------------------------------------------------------*/

/* May the kernel write the given tensor directly? It is packed, of the result's dtype and shape, and
 * each input is the very same memory or has a storage of its own. */
static bool given_fits(const tn_tensor *given, tn_tensor *const *in, int nin, int32_t result) {
    const tn_view *o = &given->v;
    if ((o->word & (TN_W_CONTIGUOUS | TN_W_READONLY)) != TN_W_CONTIGUOUS) return false;
    if (tn_view_dtype(o) != result || !same_shape(o, &in[0]->v)) return false;
    for (int i = 0; i < nin; i++)
        if (in[i]->storage == given->storage && in[i]->v.data != o->data) return false;
    return ((o->word ^ in[0]->v.word) & (TN_W_DEVICE | TN_W_INDEX)) == 0;
}

/* Runs a call whose operands fit the kernel as they are, and hands any other to `general`. Inlined
 * for each number of inputs, so that its loops unroll. */
static inline __attribute__((always_inline)) tn_status packed(const tn_op *op, void *args,
                                                              tn_tensor **rets, int nin) {
    const uint64_t alike = TN_W_ALIKE | TN_W_CONTIGUOUS | TN_W_SCALAR;
    tn_tensor *in[TN_MAX_OPERANDS], *out, *given = *tni_out_slot(op, args, 0);
    uint64_t any = 0;
    uint32_t scalars = 0;
    for (int i = 0; i < nin; i++) {
        in[i] = tni_in_slot(op, args, i);
        if (TN_UNLIKELY(!in[i])) return general(op, args, rets);
        any |= in[i]->v.word;
    }
    const tn_view *a = &in[0]->v;
    int32_t dtype = tn_view_dtype(a);
    if ((a->word & (TN_W_CONTIGUOUS | TN_W_SCALAR)) != TN_W_CONTIGUOUS ||
        !(op->flags & TNI_OP_PACKED) ||
        ((op->flags & TNI_OP_FLOATING) && tni_category(dtype) < TN_CAT_FLOAT))
        return general(op, args, rets);
    for (int i = 1; i < nin; i++) {
        const tn_view *b = &in[i]->v;
        if (TN_LIKELY(((a->word ^ b->word) & alike) == 0)) {
            if (TN_UNLIKELY(!same_shape(a, b))) return general(op, args, rets);
        } else if ((b->word & TN_W_SCALAR) &&
                   (uint32_t)tni_category(tn_view_dtype(b)) - 1 < (uint32_t)tni_category(dtype)) {
            scalars |= 1u << (i + 1);
        } else {
            return general(op, args, rets);
        }
    }
    const tn_cell *cell = tni_cell(op, tn_view_device(a), dtype);
    if (TN_UNLIKELY(!cell)) return general(op, args, rets);
    if (TN_UNLIKELY(numbers_in_doubt(op, args, dtype))) TN_TRY(check_numbers(op, args, dtype));

    int32_t result = op->result_rule == TNI_RESULT_BOOL ? TN_BOOL : dtype;
    if (TN_UNLIKELY(given != NULL)) {
        TN_TRY(tni_check_given(op, args, given, given == in[0], any));
        if (!given_fits(given, in, nin, result)) return general(op, args, rets);
        out = tn_tensor_ref(given);
    } else {
        TN_TRY(tni_tensor_like(in[0], result, &out));
    }
    if (TN_LIKELY(a->numel > 0)) {
        tn_plan plan;
        _Alignas(16) unsigned char numbers[TN_MAX_OPERANDS][16];
        tni_plan_flat(&plan, nin + 1, 1, a->numel);
        plan.scalar_mask = scalars;
        plan.data[0] = out->v.data;
        plan.offset[0] = out->v.byte_offset;
        plan.dtype[0] = (uint8_t)result;
        plan.stride[0][0] = out->v.dl_bits >> 3;
        for (int i = 0; i < nin; i++) {
            const tn_view *v = &in[i]->v;
            plan.dtype[i + 1] = (uint8_t)dtype;
            plan.data[i + 1] = v->data;
            plan.offset[i + 1] = v->byte_offset;
            plan.stride[0][i + 1] = v->dl_bits >> 3;
            if (scalars >> (i + 1) & 1u) {
                store_number(in[i], dtype, numbers[i]);
                plan.data[i + 1] = numbers[i];
                plan.stride[0][i + 1] = 0;
            }
        }
        *(const tn_plan **)args = &plan;
        *tni_out_slot(op, args, 0) = out;
        tn_status st = tni_kernel_run(op, cell, tn_tensor_device(in[0]), dtype, args);
        *(const tn_plan **)args = NULL;
        if (TN_UNLIKELY(st != TN_OK)) {
            *tni_out_slot(op, args, 0) = given;
            tn_tensor_unref(&out);
            return st;
        }
    }
    return finish(op, args, any, given, out, rets);
}

tn_status tni_run_pointwise(const tn_op *op, void *args, tn_tensor **rets) {
    switch (op->nin) {
    case 1: return packed(op, args, rets, 1);
    case 2: return packed(op, args, rets, 2);
    case 3: return packed(op, args, rets, 3);
    default: return general(op, args, rets);
    }
}
