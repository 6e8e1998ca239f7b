/* fallback.c: calls that no kernel of the device takes: in a wider dtype, on the CPU by copy, or an
 * error that names all that was tried.
 *
 * A run function says TN_DECLINE when it found no kernel; tni_op_run then continues here with the
 * same arguments. The whole call is done anew, so everything it returns is recorded once. */
#include <stdlib.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "infer_priv.h"
#include "os_priv.h"
#include "plan_priv.h"
#include "stage_priv.h"

/* ---- A call on stand-ins -----------------------------------------------------------------------
 * The operator runs again with other tensors in the place of its arguments: host copies, or copies in
 * a wider dtype. What it wrote and returned is then brought back. */

typedef struct elsewhere {
    const tn_op *op;
    void *args;
    tn_device device;
    int32_t narrow;  /* the dtype that is widened; -1: a call on the host */
    uint64_t any;    /* union of the input words */
    tni_stage stage; /* the stand-ins */
    _Alignas(16) unsigned char near_args[TNI_MAX_ARGS_BYTES];
    tn_tensor **lists[TN_MAX_OPERANDS]; /* near_args' lists point here */
    union results {
        tn_tensor *one[TNI_MAX_OUTS];
        tn_tensor_list list;
    } near, far; /* see tni_results */
} elsewhere;

/* Note [Unsigned 64 bits]
 * uint64 is computed in int64. What an operator does with bits is right there, what compares is right
 * once the sign bits of its arguments, and of such results, are turned, which keeps the order; the
 * table says which operators do either (`unsigned`). Others have no call for uint64. */
static int32_t wider(const tn_op *op, int32_t dtype, int32_t device_slot) {
    if (dtype == TN_U64 && !(op->flags & (TNI_OP_BITS | TNI_OP_ORDER))) return -1;
    if (dtype == TN_U64 && (op->flags & TNI_OP_ORDER) && device_slot != 0) return -1;
    return tni_dtype_wider(dtype);
}

static bool turns(const tn_op *op, int32_t dtype) {
    return dtype == TN_U64 && (op->flags & TNI_OP_ORDER);
}

bool tni_composite_serves(const tn_op *op, int32_t device_slot, int32_t dtype) {
    if (!tni_has_composite(op) || op->info.kind == TN_OP_VIEW) return false;
    if (op->nparts == 0) return true;
    if (tni_category(dtype) != TN_CAT_FLOAT || tni_dtype_wider(dtype) >= 0) return false;
    for (int32_t i = 0; i < op->nparts; i++) {
        const tn_op *part = op->parts[i];
        if (tni_kernel_find(part, device_slot, dtype)) continue;
        if (part->nparts == 0 || !tni_composite_serves(part, device_slot, dtype)) return false;
    }
    return true;
}

/* The device could run the call in a wider dtype. */
static bool can_widen(const tn_op *op, int32_t device_slot, int32_t dtype) {
    int32_t wide = wider(op, dtype, device_slot);
    if (wide < 0) return false;
    return tni_kernel_find(op, device_slot, wide) ||
           (op->nparts > 0 && tni_composite_serves(op, device_slot, wide));
}

/* Result i of a call is uint64 with its sign bits turned, and not, say, a comparison's bool. */
static bool turns_result(const elsewhere *c, int64_t i) {
    uint32_t kind = c->op->info.kind;
    if (!turns(c->op, c->narrow)) return false;
    if (kind != TN_OP_POINTWISE && kind != TN_OP_REDUCTION) return true;
    return i == 0 && tni_result_of(TN_U64, c->op->result_rule) == TN_U64;
}

/* Of packed int64 elements in the memory of the CPU. */
static void turn_signs(tn_tensor *t) {
    uint64_t *bits = t->v.data;
    for (int64_t i = 0; i < t->v.numel; i++) bits[i] ^= UINT64_C(1) << 63;
}

static tn_status add_wide(elsewhere *c, tn_tensor *t) {
    tn_tensor *near;
    if (!t || tni_stage_of(&c->stage, t) != t) return TN_OK;
    int32_t dtype = tn_view_dtype(&t->v);
    bool turned = turns(c->op, c->narrow), number = t->v.word & TN_W_SCALAR;
    /* Pointwise operators take what has no dimensions for uint64, of any integer dtype. */
    bool taken = turned && tni_category(dtype) <= TN_CAT_INT &&
                 (number || c->op->info.kind == TN_OP_POINTWISE);
    if (!taken && dtype != TN_U64 && (number || tni_dtype_wider(dtype) < 0)) return TN_OK;
    TN_TRY(tni_convert(t, taken ? TN_I64 : tni_dtype_wider(dtype), &near));
    if (taken || (turned && dtype == TN_U64)) turn_signs(near);
    return tni_stage_put(&c->stage, t, near);
}

static tn_status add(elsewhere *c, tn_tensor *t) {
    return c->narrow < 0 ? tni_stage_add(&c->stage, t) : add_wide(c, t);
}

/* A result that the caller gave. One of another dtype gets uint64 from a stand-in, too. */
static tn_status add_given(elsewhere *c, tn_tensor *t, int64_t i) {
    uint32_t kind = c->op->info.kind;
    tn_tensor *near;
    if (tn_view_dtype(&t->v) == TN_U64 || kind == TN_OP_STRUCTURED || !turns_result(c, i))
        return add(c, t);
    TN_TRY(tni_tensor_new_fast(TN_I64, c->device, t->v.ndim, t->v.shape, &near));
    return tni_stage_put(&c->stage, t, near);
}

static tn_status add_all(elsewhere *c) {
    const tn_op *op = c->op;
    for (int i = 0; i < op->nin; i++) {
        tni_span in = tni_in_span(op, c->args, i);
        for (int64_t k = 0; k < in.n; k++) {
            if (in.v[k]) c->any |= in.v[k]->v.word;
            TN_TRY(add(c, in.v[k]));
        }
    }
    tni_span given = tni_given(op, c->args);
    for (int64_t i = 0; i < given.n; i++) {
        tn_tensor *t = given.v[i];
        if (!t) continue;
        bool inplace = (op->flags & TNI_OP_INPLACE_ONLY) || t == tni_in_slot(op, c->args, 0);
        TN_TRY(tni_check_given(op, c->args, t, inplace, c->any));
        TN_TRY(add_given(c, t, i));
    }
    return c->narrow < 0 ? tni_stage_load(&c->stage) : TN_OK;
}

/* A number beyond int64 is to int64, which stands for uint64, the one with its bits. */
static void keep_bits(tn_scalar *number) {
    if (tn_scalar_is_beyond(number)) *number = tn_scalar_int(number->i);
}

/* near_args: the arguments with the stand-ins in the place of tensors. */
static tn_status fill_args(elsewhere *c) {
    const tn_op *op = c->op;
    memcpy(c->near_args, c->args, op->args_bytes);
    for (int i = 0; i < op->nin; i++) {
        tni_span in = tni_in_span(op, c->args, i);
        tni_span *own = tni_field_at(tni_in_field(op, i), c->near_args);
        tn_tensor **to = (tn_tensor **)(void *)own;
        if (tni_is_list(tni_in_field(op, i))) {
            to = c->lists[i] = calloc((size_t)(in.n > 0 ? in.n : 1), sizeof *to);
            if (!to) return tn_fail(TN_E_MEMORY, -1, "out of memory");
            own->v = to;
        }
        for (int64_t k = 0; k < in.n; k++) to[k] = tni_stage_of(&c->stage, in.v[k]);
    }
    tni_span given = tni_given(op, c->near_args);
    for (int64_t i = 0; i < given.n; i++) given.v[i] = tni_stage_of(&c->stage, given.v[i]);
    for (int i = 0; i < op->nfields && c->narrow >= 0; i++) {
        int64_t *dtype = (void *)(c->near_args + op->fields[i].offset);
        if (op->fields[i].kind == TN_F_DTYPE && *dtype == c->narrow)
            *dtype = tni_dtype_wider(c->narrow);
        if (op->fields[i].kind == TN_F_SCALAR) keep_bits((void *)dtype);
    }
    for (int i = 0; i < op->nfields && c->narrow < 0; i++) {
        tn_generator **gen = (void *)(c->near_args + op->fields[i].offset);
        if (op->fields[i].kind == TN_F_GENERATOR && !*gen)
            *gen = tni_generator_of_staged(c->device);
    }
    return TN_OK;
}

/* far = near, a stand-in or a result, where both have the same shape. `turned`: near's signs are. */
static tn_status copy_back(tn_tensor *far, tn_tensor *near, bool turned) {
    tn_tensor *whole, *same = NULL;
    if (!turned || tn_view_dtype(&near->v) != TN_I64) return tni_copy_into(far, near);
    TN_TRY(tni_convert(near, TN_I64, &whole));
    turn_signs(whole);
    const tn_view *v = &whole->v;
    tn_status st = tni_view_new(whole, TN_U64, v->ndim, v->shape, v->strides, 0, &same);
    if (st == TN_OK) st = tni_copy_into(far, same);
    tn_tensor_unref(&same);
    tn_tensor_unref(&whole);
    return st;
}

/* t, an argument that the call wrote, gets what its stand-in holds. A kernel that sizes its result gave
 * the stand-in memory of its own, outside of the staged copy. */
static tn_status store(const elsewhere *c, tn_tensor *t, bool turned) {
    tn_tensor *near = t ? tni_stage_of(&c->stage, t) : NULL;
    bool staged = c->narrow < 0 && !(c->op->flags & TNI_OP_DYNAMIC);
    if (near == t) return TN_OK;
    if (!tni_shape_is(t, near->v.ndim, near->v.shape)) {
        TN_TRY(tni_resize_out(t, near->v.ndim, near->v.shape));
        TN_TRY(copy_back(t, near, turned));
    } else {
        TN_TRY(staged ? tni_stage_store(&c->stage, t) : copy_back(t, near, turned));
    }
    tni_bump_version(t);
    return TN_OK;
}

static tn_status store_changes(const elsewhere *c) {
    const tn_op *op = c->op;
    const bool writes = tni_writes_now(op, c->args);
    for (int i = 0; writes && i < op->nin; i++) {
        tni_span in = tni_in_span(op, c->args, i);
        if (!(tni_in_field(op, i)->flags & TNI_FIELD_MUTATED)) continue;
        for (int64_t k = 0; k < in.n; k++) TN_TRY(store(c, in.v[k], turns_result(c, k)));
    }
    tni_span given = tni_given(op, c->args);
    for (int64_t i = 0; i < given.n && !(op->flags & TNI_OP_INPLACE_ONLY); i++)
        TN_TRY(store(c, given.v[i], turns_result(c, i)));
    return TN_OK;
}

/* The dtype that result i of the call has: as the operator's rule says, else narrow for wide. */
static int32_t result_dtype(const elsewhere *c, const tn_infer *rule, int64_t i,
                            const tn_tensor *near) {
    int32_t have = tn_view_dtype(&near->v);
    if (c->narrow < 0) return have;
    if (rule) return rule->out[i].dtype;
    uint32_t kind = c->op->info.kind;
    if (kind == TN_OP_POINTWISE || kind == TN_OP_REDUCTION)
        return i == 0 ? tni_result_of(c->narrow, c->op->result_rule) : TN_I64;
    return have == tni_dtype_wider(c->narrow) ? c->narrow : have;
}

/* A result as the caller expects it; an argument that came back is that argument. */
static tn_status bring_back(const elsewhere *c, tn_tensor *near, int32_t dtype, bool given,
                            tn_tensor **ret_far) {
    tn_tensor *far = tni_stage_origin(&c->stage, near);
    bool here = tn_view_device(&near->v) == c->device.slot && tn_view_dtype(&near->v) == dtype;
    here = here || (given && c->narrow >= 0);
    if (far || here) {
        *ret_far = tn_tensor_ref(far ? far : near);
        return TN_OK;
    }
    TN_TRY(tni_tensor_new_fast(dtype, c->device, near->v.ndim, near->v.shape, &far));
    const tn_view *like = &near->v;
    if (like->word & TN_W_DENSE) tni_like_layout(far, &like, 1);
    tn_status st = copy_back(far, near, turns(c->op, dtype));
    if (st != TN_OK)
        tn_tensor_unref(&far);
    else
        *ret_far = far;
    return st;
}

static tn_status bring_back_all(elsewhere *c) {
    const tn_op *op = c->op;
    tn_infer inf = {.op = op, .device = c->device};
    bool ruled = c->narrow >= 0 && op->info.kind == TN_OP_STRUCTURED && !tni_returns_list(op);
    tni_span near = tni_results(op, c->near.one);
    if (ruled) TN_TRY(op->infer(&inf, c->args));
    if (tni_returns_list(op)) {
        c->far.list.v = calloc((size_t)(near.n > 0 ? near.n : 1), sizeof *c->far.list.v);
        if (!c->far.list.v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        c->far.list.n = near.n;
    }
    tni_span far = tni_results(op, c->far.one), own = tni_given(op, c->args);
    for (int64_t i = 0; i < near.n; i++) {
        if (!near.v[i]) continue;
        int32_t dtype = result_dtype(c, ruled ? &inf : NULL, i, near.v[i]);
        bool given = i < own.n && own.v[i] == near.v[i];
        TN_TRY(bring_back(c, near.v[i], dtype, given, &far.v[i]));
    }
    return TN_OK;
}

static tn_status steps(elsewhere *c) {
    TN_TRY(add_all(c));
    TN_TRY(fill_args(c));
    tn_device outer = {0, 0};
    tni_grad_off();
    if (c->narrow < 0) outer = tni_generator_stage(c->device);
    tn_status st = tni_op_run(c->op, c->near_args, c->near.one);
    if (c->narrow < 0) tni_generator_stage(outer);
    if (st == TN_OK) st = store_changes(c);
    if (st == TN_OK) st = bring_back_all(c);
    tni_grad_on();
    return st == TN_OK ? tni_record_call(c->op, c->args, c->any, c->far.one) : st;
}

/* narrow -1: on the host, else in the wider dtype of `narrow`. */
static tn_status run_elsewhere(const tn_op *op, void *args, tn_device device, int32_t narrow,
                               tn_tensor **rets) {
    elsewhere c = {.op = op, .args = args, .device = device, .narrow = narrow};
    tn_status st = steps(&c);
    tni_results_drop(op, c.near.one);
    if (st != TN_OK)
        tni_results_drop(op, c.far.one);
    else if (tni_returns_list(op))
        *(tn_tensor_list *)(void *)rets = c.far.list;
    else
        for (int i = 0; i < op->nout; i++) rets[i] = c.far.one[i];
    for (int i = 0; i < op->nin; i++) free(c.lists[i]);
    tni_stage_free(&c.stage);
    return st;
}

/* ---- Policy and counts -------------------------------------------------------------------------*/

static _Atomic int policy = -1; /* -1: TENON_FALLBACK has not been read yet */

int32_t tn_fallback_policy(void) {
    static const char *const words[] = {"allow", "warn",
                                        "error"}; /* as TN_FALLBACK_* are numbered */
    int p = atomic_load_explicit(&policy, memory_order_relaxed);
    if (p >= 0) return p;
    p = tni_setting("TENON_FALLBACK", words, TN_COUNT(words), TN_FALLBACK_WARN);
    atomic_store_explicit(&policy, p, memory_order_relaxed);
    return p;
}

tn_status tn_fallback_set_policy(int32_t p) {
    if (p < TN_FALLBACK_ALLOW || p > TN_FALLBACK_ERROR)
        return tn_fail(TN_E_VALUE, 0, "there is no fallback policy %d", (int)p);
    atomic_store_explicit(&policy, p, memory_order_relaxed);
    return TN_OK;
}

/* Counts the call; true the first time. A row that cannot be made is a count that is lost. */
static bool count_call(const tn_op *op, tn_device device, bool on_host) {
    tn_row *row = tni_row_make(op, device.slot);
    if (!row) return false;
    return atomic_fetch_add_explicit(on_host ? &row->host_calls : &row->wide_calls, 1,
                                     memory_order_relaxed) == 0;
}

tn_status tn_fallback_count(const char *name, int32_t device_slot, uint64_t *ret_wide,
                            uint64_t *ret_host) {
    const tn_op *op = name ? tni_op_find(name) : NULL;
    if (!op) return tn_fail(TN_E_VALUE, 0, "there is no operator '%s'", name ? name : "NULL");
    if (!tn_device_name(device_slot))
        return tn_fail(TN_E_DEVICE, 1, "there is no device slot %d", (int)device_slot);
    tn_row *row = atomic_load_explicit(&op->row[device_slot], memory_order_acquire);
    *ret_wide = row ? atomic_load_explicit(&row->wide_calls, memory_order_relaxed) : 0;
    *ret_host = row ? atomic_load_explicit(&row->host_calls, memory_order_relaxed) : 0;
    return TN_OK;
}

/* ---- The decision ------------------------------------------------------------------------------*/

/* How a call runs that no kernel of the device takes. */
static int32_t way_around(const tn_op *op, tn_device device, int32_t dtype) {
    if (op->info.kind == TN_OP_COMPOSITE) return TN_WAY_COMPOSITE;
    /* A kernel of that dtype declined the operands, so its parts' kernels are asked for no less exact
     * a result than its own. */
    if (op->nparts == 0 && tni_has_composite(op) && tni_kernel_find(op, device.slot, dtype))
        return TN_WAY_COMPOSITE;
    if (can_widen(op, device.slot, dtype)) return TN_WAY_WIDER;
    if (tni_composite_serves(op, device.slot, dtype)) return TN_WAY_COMPOSITE;
    bool host = device.slot != 0 && device.slot != TN_META_SLOT &&
                tn_fallback_policy() != TN_FALLBACK_ERROR;
    return host ? TN_WAY_HOST : TN_WAY_NONE;
}

int32_t tni_way_of(const tn_op *op, tn_device device, int32_t dtype) {
    if (op->info.kind == TN_OP_VIEW) return TN_WAY_CORE;
    if (tni_kernel_find(op, device.slot, dtype)) return TN_WAY_KERNEL;
    return way_around(op, device, dtype);
}

static tn_status run_on_host(const tn_op *op, void *args, tn_tensor **rets, tni_wanted wanted) {
    const char *name = op->info.name, *on = tn_device_name(wanted.device.slot);
    if (count_call(op, wanted.device, true) && tn_fallback_policy() == TN_FALLBACK_WARN)
        tni_host_log(2,
                     "'%s' has no kernel for %s on device '%s' and runs on the CPU, with copies "
                     "both ways; TENON_FALLBACK=allow silences this, =error forbids it",
                     name, tn_dtype_name(wanted.dtype), on);
    return run_elsewhere(op, args, wanted.device, -1, rets);
}

/* Composites and views never decline. */
static tn_status wanted_of(const tn_op *op, const void *args, tni_wanted *ret_wanted) {
    switch (op->info.kind) {
    case TN_OP_POINTWISE: return tni_wanted_pointwise(op, args, ret_wanted);
    case TN_OP_REDUCTION: return tni_wanted_reduction(op, args, ret_wanted);
    default: return tni_wanted_structured(op, args, ret_wanted);
    }
}

tn_status tni_run_fallback(const tn_op *op, void *args, tn_tensor **rets) {
    tni_wanted wanted;
    if (tni_has_late(op, args)) {
        TN_TRY(tni_settle_args(op, args));
        return tni_op_run(op, args, rets);
    }
    if (tni_has_wrapped(op, args)) return tni_run_wrapped(op, args, rets);
    if (tni_has_sparse(op, args)) return tni_run_sparse(op, args, rets);
    tn_status st = wanted_of(op, args, &wanted);
    /* Its shape rule says that kernels do not take such operands. */
    if (st == TN_DECLINE && tni_has_composite(op)) return tni_run_composite(op, args, rets);
    TN_TRY(st);
    TN_TRY(tni_device_ready(wanted.device.slot));
    if (wanted.device.slot == TN_META_SLOT) return tni_meta_needs_values(op->info.name);
    int32_t way = way_around(op, wanted.device, wanted.dtype);
    if (way == TN_WAY_WIDER) {
        count_call(op, wanted.device, false);
        return run_elsewhere(op, args, wanted.device, wanted.dtype, rets);
    }
    if (way == TN_WAY_COMPOSITE) return tni_run_composite(op, args, rets);
    TN_TRY(tni_forbid_native(wanted.device, "running on the CPU", op->info.name));
    return way == TN_WAY_HOST ? run_on_host(op, args, rets, wanted)
                              : tni_kernel_missing(op, wanted.device, wanted.dtype);
}
