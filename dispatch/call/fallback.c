/* fallback.c: calls that no kernel of the device takes: in a wider dtype, on the CPU by copy, or an
 * error that names all that was tried.
 *
 * A run function says TN_DECLINE when it found no kernel; tni_op_run then continues here with the
 * same arguments. The whole call is done anew, so everything it returns is recorded once. */
#include <stdlib.h>

#include "capture_priv.h"
#include "dispatch_priv.h"
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
    union {
        tn_tensor *one[TNI_MAX_OUTS];
        tn_tensor_list list;
    } near, far;
} elsewhere;

static int32_t wider(int32_t dtype) {
    if (dtype == TN_F16 || dtype == TN_BF16 || dtype >= TN_DTYPE_BUILTIN_COUNT) return TN_F32;
    return -1;
}

bool tni_composite_serves(const tn_op *op, int32_t device_slot, int32_t dtype) {
    if (!tni_has_composite(op) || op->info.kind == TN_OP_VIEW) return false;
    if (op->nparts == 0) return true;
    if (tni_category(dtype) != TN_CAT_FLOAT || wider(dtype) >= 0) return false;
    for (int32_t i = 0; i < op->nparts; i++) {
        const tn_op *part = op->parts[i];
        if (tni_kernel_find(part, device_slot, dtype)) continue;
        if (part->nparts == 0 || !tni_composite_serves(part, device_slot, dtype)) return false;
    }
    return true;
}

bool tni_can_widen(const tn_op *op, int32_t device_slot, int32_t dtype) {
    int32_t wide = wider(dtype);
    if (wide < 0) return false;
    return tni_kernel_find(op, device_slot, wide) ||
           (op->nparts > 0 && tni_composite_serves(op, device_slot, wide));
}

static const tn_views *list_of(const elsewhere *c, int i) {
    return (const void *)((const char *)c->args + c->op->in_offset[i]);
}

static bool is_list(const tn_op *op, int i) {
    return op->fields[op->in_field[i]].kind == TN_F_TENSORS;
}

static bool has_slots(const tn_op *op) { return !(op->flags & TNI_OP_LIST_OUT); }

static tn_status add_wide(elsewhere *c, tn_tensor *t) {
    tn_tensor *near;
    if (!t || (t->v.word & TN_W_SCALAR) || wider(tn_view_dtype(&t->v)) < 0) return TN_OK;
    if (tni_stage_of(&c->stage, t) != t) return TN_OK;
    TN_TRY(tni_convert(t, TN_F32, &near));
    return tni_stage_put(&c->stage, t, near);
}

static tn_status add(elsewhere *c, tn_tensor *t) {
    return c->narrow < 0 ? tni_stage_add(&c->stage, t) : add_wide(c, t);
}

static tn_status add_all(elsewhere *c) {
    const tn_op *op = c->op;
    for (int i = 0; i < op->nin; i++) {
        tn_tensor *single = is_list(op, i) ? NULL : tni_in_slot(op, c->args, i);
        if (single) c->any |= single->v.word;
        TN_TRY(add(c, single));
        for (int64_t k = 0; is_list(op, i) && k < list_of(c, i)->n; k++) {
            tn_tensor *t = tni_t(list_of(c, i)->v[k]);
            if (t) c->any |= t->v.word;
            TN_TRY(add(c, t));
        }
    }
    for (int i = 0; i < op->nout && has_slots(op); i++) {
        tn_tensor *given = *tni_out_slot(op, c->args, i);
        if (!given) continue;
        bool inplace = (op->flags & TNI_OP_INPLACE_ONLY) || given == tni_in_slot(op, c->args, 0);
        TN_TRY(tni_check_given(op, c->args, given, inplace, c->any));
        TN_TRY(add(c, given));
    }
    return c->narrow < 0 ? tni_stage_load(&c->stage) : TN_OK;
}

/* near_args: the arguments with the stand-ins in the place of tensors. */
static tn_status fill_args(elsewhere *c) {
    const tn_op *op = c->op;
    memcpy(c->near_args, c->args, op->args_bytes);
    for (int i = 0; i < op->nin; i++) {
        void *slot = c->near_args + op->in_offset[i];
        if (!is_list(op, i)) {
            *(tn_tensor **)slot = tni_stage_of(&c->stage, tni_in_slot(op, c->args, i));
            continue;
        }
        const tn_views *list = list_of(c, i);
        c->lists[i] = calloc((size_t)(list->n > 0 ? list->n : 1), sizeof *c->lists[i]);
        if (!c->lists[i]) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        for (int64_t k = 0; k < list->n; k++)
            c->lists[i][k] = tni_stage_of(&c->stage, tni_t(list->v[k]));
        *(tn_views *)slot = tni_views((tn_tensors){c->lists[i], list->n});
    }
    for (int i = 0; i < op->nout && has_slots(op); i++) {
        tn_tensor **slot = tni_out_slot(op, c->near_args, i);
        *slot = tni_stage_of(&c->stage, *slot);
    }
    for (int i = 0; i < op->nfields && c->narrow >= 0; i++) {
        int64_t *dtype = (void *)(c->near_args + op->fields[i].offset);
        if (op->fields[i].kind == TN_F_DTYPE && *dtype == c->narrow) *dtype = TN_F32;
    }
    for (int i = 0; i < op->nfields && c->narrow < 0; i++) {
        tn_generator **gen = (void *)(c->near_args + op->fields[i].offset);
        if (op->fields[i].kind == TN_F_GENERATOR && !*gen)
            *gen = tni_generator_of_staged(c->device);
    }
    return TN_OK;
}

/* t, an argument that the call wrote, gets what its stand-in holds. A kernel that sizes its result gave
 * the stand-in memory of its own, outside of the staged copy. */
static tn_status store(const elsewhere *c, tn_tensor *t) {
    tn_tensor *near = t ? tni_stage_of(&c->stage, t) : NULL;
    bool staged = c->narrow < 0 && !(c->op->flags & TNI_OP_DYNAMIC);
    if (near == t) return TN_OK;
    if (!tni_shape_is(t, near->v.ndim, near->v.shape)) {
        TN_TRY(tni_resize_out(t, near->v.ndim, near->v.shape));
        TN_TRY(tni_copy_into(t, near));
    } else {
        TN_TRY(staged ? tni_stage_store(&c->stage, t) : tni_copy_into(t, near));
    }
    tni_bump_version(t);
    return TN_OK;
}

static tn_status store_changes(const elsewhere *c) {
    const tn_op *op = c->op;
    for (int i = 0; i < op->nin; i++) {
        if (!(op->fields[op->in_field[i]].flags & TNI_FIELD_MUTATED)) continue;
        if (!is_list(op, i)) TN_TRY(store(c, tni_in_slot(op, c->args, i)));
        for (int64_t k = 0; is_list(op, i) && k < list_of(c, i)->n; k++)
            TN_TRY(store(c, tni_t(list_of(c, i)->v[k])));
    }
    for (int i = 0; i < op->nout && has_slots(op); i++)
        if (!(op->flags & TNI_OP_INPLACE_ONLY)) TN_TRY(store(c, *tni_out_slot(op, c->args, i)));
    return TN_OK;
}

/* The dtype that result i of the call has: as the operator's rule says, else narrow for wide. */
static int32_t result_dtype(const elsewhere *c, const tn_infer *rule, int i,
                            const tn_tensor *near) {
    int32_t have = tn_view_dtype(&near->v);
    if (c->narrow < 0) return have;
    if (rule) return rule->out[i].dtype;
    return have == TN_F32 ? c->narrow : have;
}

/* A result as the caller expects it; an argument that came back is that argument. */
static tn_status bring_back(const elsewhere *c, tn_tensor *near, int32_t dtype,
                            tn_tensor **ret_far) {
    tn_tensor *far = tni_stage_origin(&c->stage, near);
    bool here = tn_view_device(&near->v) == c->device.slot && tn_view_dtype(&near->v) == dtype;
    if (far || here) {
        *ret_far = tn_tensor_ref(far ? far : near);
        return TN_OK;
    }
    TN_TRY(tni_tensor_new_fast(dtype, c->device, near->v.ndim, near->v.shape, &far));
    if (near->v.word & TN_W_DENSE) tni_like_layout(far, &near->v);
    tn_status st = tni_copy_into(far, near);
    if (st != TN_OK)
        tn_tensor_unref(&far);
    else
        *ret_far = far;
    return st;
}

static tn_status bring_back_all(elsewhere *c) {
    const tn_op *op = c->op;
    tn_infer inf = {.op = op, .device = c->device};
    bool ruled = c->narrow >= 0 && op->info.kind == TN_OP_STRUCTURED;
    if (has_slots(op)) {
        if (ruled) TN_TRY(op->infer(&inf, c->args));
        for (int i = 0; i < op->nout; i++) {
            tn_tensor *near = c->near.one[i];
            if (!near) continue;
            int32_t dtype = result_dtype(c, ruled ? &inf : NULL, i, near);
            TN_TRY(bring_back(c, near, dtype, &c->far.one[i]));
        }
        return TN_OK;
    }
    int64_t n = c->near.list.n;
    c->far.list.v = calloc((size_t)(n > 0 ? n : 1), sizeof *c->far.list.v);
    if (!c->far.list.v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    c->far.list.n = n;
    for (int64_t i = 0; i < n; i++) {
        tn_tensor *near = c->near.list.v[i];
        TN_TRY(bring_back(c, near, result_dtype(c, NULL, 0, near), &c->far.list.v[i]));
    }
    return TN_OK;
}

static tn_status steps(elsewhere *c) {
    TN_TRY(add_all(c));
    TN_TRY(fill_args(c));
    tn_device outer = tni_tls.staged_device;
    tni_tls.no_grad++;
    if (c->narrow < 0) tni_tls.staged_device = c->device;
    tn_status st = tni_op_run(c->op, c->near_args, c->near.one);
    tni_tls.staged_device = outer;
    if (st == TN_OK) st = store_changes(c);
    if (st == TN_OK) st = bring_back_all(c);
    tni_tls.no_grad--;
    if (st != TN_OK) return st;
    if (has_slots(c->op)) return tni_record_call(c->op, c->args, c->any, c->far.one);
    if (!(c->any & TN_W_GRAD) || tni_tls.no_grad || !c->op->grad) return TN_OK;
    return tni_ag.record(c->op, c->args, c->far.list.v, (int)c->far.list.n);
}

static void drop_results(const tn_op *op, tn_tensor **one, tn_tensor_list *list) {
    if (!has_slots(op)) tn_tensor_list_free(list);
    for (int i = 0; i < op->nout && has_slots(op); i++) tn_tensor_unref(&one[i]);
}

/* narrow -1: on the host, else in the wider dtype of `narrow`. */
static tn_status run_elsewhere(const tn_op *op, void *args, tn_device device, int32_t narrow,
                               tn_tensor **rets) {
    elsewhere c = {.op = op, .args = args, .device = device, .narrow = narrow};
    tn_status st = steps(&c);
    drop_results(op, c.near.one, &c.near.list);
    if (st != TN_OK)
        drop_results(op, c.far.one, &c.far.list);
    else if (!has_slots(op))
        *(tn_tensor_list *)(void *)rets = c.far.list;
    for (int i = 0; i < op->nout && st == TN_OK && has_slots(op); i++) rets[i] = c.far.one[i];
    for (int i = 0; i < op->nin; i++) free(c.lists[i]);
    tni_stage_free(&c.stage);
    return st;
}

/* ---- Policy and counts -------------------------------------------------------------------------*/

static _Atomic int policy = -1; /* -1: TENON_FALLBACK has not been read yet */

int32_t tn_fallback_policy(void) {
    int p = atomic_load_explicit(&policy, memory_order_relaxed);
    if (p >= 0) return p;
    const char *text = tni_os_getenv("TENON_FALLBACK");
    p = TN_FALLBACK_WARN;
    if (text && strcmp(text, "allow") == 0) p = TN_FALLBACK_ALLOW;
    if (text && strcmp(text, "error") == 0) p = TN_FALLBACK_ERROR;
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

tn_status tni_kernel_missing(const tn_op *op, tn_device device, int32_t dtype) {
    const char *name = op->info.name, *on = tn_device_name(device.slot);
    TN_TRY(tni_device_ready(device.slot));
    if (device.slot == 0)
        return tn_fail(TN_E_UNSUPPORTED, -1, "\"%s\" not implemented for '%s' on device '%s'", name,
                       tni_type_text(dtype), on);
    return tn_fail(TN_E_UNSUPPORTED, -1,
                   "\"%s\" not implemented for '%s' on device '%s': it has no kernel for this "
                   "dtype, none for any dtype, none for a wider one, %s, and running it on the CPU "
                   "is switched off (TENON_FALLBACK=error)",
                   name, tni_type_text(dtype), on,
                   tni_has_composite(op) ? "its composite needs one" : "there is no composite");
}

tn_status tni_decline(tn_device device, int32_t dtype) {
    tni_tls.declined_device = device;
    tni_tls.declined_dtype = dtype;
    return TN_DECLINE;
}

tn_status tni_run_fallback(const tn_op *op, void *args, tn_tensor **rets) {
    tn_device device = tni_tls.declined_device;
    int32_t dtype = tni_tls.declined_dtype;
    TN_TRY(tni_device_ready(device.slot));
    if (tni_can_widen(op, device.slot, dtype)) {
        count_call(op, device, false);
        return run_elsewhere(op, args, device, dtype, rets);
    }
    if (tni_composite_serves(op, device.slot, dtype)) return tni_run_composite(op, args, rets);
    TN_TRY(tni_capture_forbid_native(device, "running on the CPU", op->info.name));
    if (device.slot == 0 || tn_fallback_policy() == TN_FALLBACK_ERROR)
        return tni_kernel_missing(op, device, dtype);
    if (count_call(op, device, true) && tn_fallback_policy() == TN_FALLBACK_WARN)
        tni_host_log(2,
                     "'%s' has no kernel for %s on device '%s' and runs on the CPU, with copies "
                     "both ways; TENON_FALLBACK=allow silences this, =error forbids it",
                     op->info.name, tn_dtype_name(dtype), tn_device_name(device.slot));
    return run_elsewhere(op, args, device, -1, rets);
}
