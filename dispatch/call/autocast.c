/* autocast.c: mixed precision: a layer that converts the floating inputs of some operators.
 *
 * Which operators is said by the op table (`autocast`), or by a plugin's descriptor: "low" computes in
 * the short dtype of the region, "float32" in that, "widest" in the widest of the inputs' dtypes.
 * The layer is the innermost one. An operator without a rule that is made of others is looked at
 * through its parts. Conversions are recorded, so gradients arrive in the dtype of the parameter. */
#include <stdlib.h>

#include <tenon/ops_create.h>

#include "call_priv.h"
#include "layers_priv.h"

/* A parameter and what it was converted to, kept until the outermost region ends. */
typedef struct cached {
    struct cached *next;
    tn_tensor *from, *to;
    uint32_t version; /* of `from` at the conversion */
    bool recorded;    /* `to` has a history */
} cached;

/* tn_autocast in few bytes: the memory of threads is scarce where a library is loaded late. */
typedef struct region {
    bool enabled, cache;
    int16_t dtype;
} region;

static TN_TLS region regions[TN_DEVICE_SLOTS];
static TN_TLS bool filled; /* with default dtypes */
static TN_TLS cached *cache;
static _Atomic int32_t layer_id = -1;

/* ---- Conversions -------------------------------------------------------------------------------*/

static bool is_parameter(const tn_tensor *t) {
    return (t->v.word & TN_W_GRAD) && !(t->v.word & TN_W_LEAFVIEW) && !t->grad_fn;
}

static tn_status convert(tn_tensor *t, int32_t dtype, tn_tensor **ret) {
    return tn__to_copy(t, dtype, -1, 0, TN_FORMAT_PRESERVE, ret);
}

static tn_status convert_parameter(tn_tensor *t, int32_t dtype, tn_tensor **ret) {
    bool recorded = tni_recording(TN_W_GRAD);
    for (cached *c = cache; c; c = c->next) {
        if (c->from != t || tn_view_dtype(&c->to->v) != dtype || c->recorded != recorded ||
            c->version != tn_tensor_version(t))
            continue;
        *ret = tn_tensor_ref(c->to);
        return TN_OK;
    }
    TN_TRY(convert(t, dtype, ret));
    cached *c = malloc(sizeof *c);
    if (!c) return TN_OK; /* then it is converted again the next time */
    *c = (cached){cache, tn_tensor_ref(t), tn_tensor_ref(*ret), tn_tensor_version(t), recorded};
    cache = c;
    return TN_OK;
}

/* May this tensor be converted? float64 and complex numbers stay as they are. */
static bool is_eligible(const tn_tensor *t) {
    if (!t || (t->v.word & TN_W_SCALAR)) return false;
    int32_t dtype = tn_view_dtype(&t->v);
    return tni_category(dtype) == TN_CAT_FLOAT && dtype != TN_F64;
}

static tn_status cast(tn_tensor *t, int32_t dtype, bool keep, tn_tensor **ret) {
    *ret = t;
    if (!is_eligible(t) || tn_view_dtype(&t->v) == dtype) return TN_OK;
    return keep && is_parameter(t) ? convert_parameter(t, dtype, ret) : convert(t, dtype, ret);
}

/* The tensors of `args` that the rule is about, in the dtype; `keep`: parameters go through the cache. */
static tn_status cast_all(const tn_op *op, void *args, int32_t dtype, bool keep) {
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = tni_in_field(op, i);
        tni_span in = tni_field_span(f, args), *own = tni_field_at(f, args);
        tn_tensor **to = in.v;
        if (f->flags & TNI_FIELD_MUTATED) continue;
        if (tni_is_list(f)) {
            to = calloc((size_t)(in.n > 0 ? in.n : 1), sizeof *to);
            if (!to) return tn_fail(TN_E_MEMORY, -1, "out of memory");
            own->v = to;
        }
        for (int64_t k = 0; k < in.n; k++) TN_TRY(cast(in.v[k], dtype, keep, &to[k]));
    }
    return TN_OK;
}

/* Lets go of what `args` has and `given`, from which it was made, has not. */
static void drop_casts(const tn_op *op, void *args, const void *given) {
    for (int i = 0; i < op->nin; i++) {
        tni_span made = tni_in_span(op, args, i), from = tni_in_span(op, given, i);
        for (int64_t k = 0; k < made.n; k++)
            if (made.v[k] != from.v[k]) tn_tensor_unref(&made.v[k]);
        if (tni_is_list(tni_in_field(op, i)) && made.v != from.v) free(made.v);
    }
}

/* ---- Rules -------------------------------------------------------------------------------------*/

/* The dtype to compute in; -1: as it is. */
static int32_t target(int rule, const tn_op *op, const void *args, int32_t low) {
    int32_t widest = -1;
    if (rule == TNI_AUTOCAST_LOW) return low;
    if (rule == TNI_AUTOCAST_FLOAT32) return TN_F32;
    for (int i = 0; i < op->nin; i++) {
        tni_span in = tni_in_span(op, args, i);
        for (int64_t k = 0; k < in.n; k++) {
            int32_t dtype = in.v[k] ? tn_view_dtype(&in.v[k]->v) : TN_BOOL;
            if (tni_category(dtype) != TN_CAT_FLOAT) continue;
            widest = widest < 0 ? dtype : tn_dtype_promote(widest, dtype);
        }
    }
    return widest == TN_F64 ? -1 : widest;
}

/* A call that writes where it is told has nothing to gain: its target has a dtype. */
static bool writes(const tn_op *op, void *args) {
    if ((op->flags & TNI_OP_INPLACE_ONLY) || op->nout == 0) return true;
    tni_span given = tni_given(op, args);
    for (int64_t i = 0; i < given.n; i++)
        if (given.v[i]) return true;
    return false;
}

static const region *region_of(const tn_op *op, const void *args, int32_t *ret_slot) {
    for (int i = 0; i < op->nin; i++) {
        tni_span in = tni_in_span(op, args, i);
        for (int64_t k = 0; k < in.n; k++) {
            if (!in.v[k] || (in.v[k]->v.word & TN_W_SCALAR)) continue;
            *ret_slot = tn_view_device(&in.v[k]->v);
            return &regions[*ret_slot];
        }
    }
    return NULL;
}

/* The parts of a composite are operators of the program, to autocast. */
static tn_status through_parts(const tn_op *op, void *args, tn_tensor **rets) {
    const uint64_t own = UINT64_C(1) << atomic_load_explicit(&layer_id, memory_order_relaxed);
    tni_tls.layers |= own; /* beside the profiler's */
    tn_status st = tni_op_run(op, args, rets);
    tni_tls.layers &= ~own;
    return st;
}

static tn_status run(void *ctx, tn_layer_call *next, const tn_op_info *info, void *args,
                     tn_tensor **rets) {
    const tn_op *op = (const tn_op *)(const void *)info;
    _Alignas(16) unsigned char mine[TNI_MAX_ARGS_BYTES];
    int32_t slot = 0, dtype = -1;
    const region *r = region_of(op, args, &slot);
    (void)ctx;
    if (!r || !r->enabled) return tn_layer_next(next, info, args, rets);
    int rule = op->autocast[slot != 0];
    if (rule != TNI_AUTOCAST_NONE && !writes(op, args)) dtype = target(rule, op, args, r->dtype);
    if (dtype < 0) {
        bool parts = op->info.kind == TN_OP_COMPOSITE && !op->grad && rule == TNI_AUTOCAST_NONE;
        return parts ? through_parts(op, args, rets) : tn_layer_next(next, info, args, rets);
    }
    memcpy(mine, args, op->args_bytes);
    tn_status st = cast_all(op, mine, dtype, r->cache && dtype == r->dtype);
    if (st == TN_OK) st = tn_layer_next(next, info, mine, rets);
    drop_casts(op, mine, args);
    return st;
}

/* ---- Regions -----------------------------------------------------------------------------------*/

static region *region_at(int32_t slot) {
    for (int i = 0; i < TN_DEVICE_SLOTS && !filled; i++)
        regions[i] = (region){.dtype = i == 0 ? TN_BF16 : TN_F16, .cache = true};
    filled = true;
    return &regions[slot];
}

static tn_status check(int32_t slot) {
    if (tn_device_name(slot)) return TN_OK;
    return tn_fail(TN_E_DEVICE, 0, "autocast: there is no device slot %d", (int)slot);
}

tn_status tn_autocast_get(int32_t slot, tn_autocast *ret_region) {
    TN_TRY(check(slot));
    if (!ret_region) return tn_fail(TN_E_TYPE, 1, "autocast: the result has no place to go");
    const region *r = region_at(slot);
    *ret_region = (tn_autocast){.enabled = r->enabled, .dtype = r->dtype, .cache = r->cache};
    return TN_OK;
}

tn_status tn_autocast_set(int32_t slot, const tn_autocast *r) {
    TN_TRY(check(slot));
    if (!r) return tn_fail(TN_E_TYPE, 1, "autocast: the region is NULL");
    if (!tn_dtype_name(r->dtype) || tn_dtype_category(r->dtype) != TN_CAT_FLOAT)
        return tn_fail(TN_E_DTYPE, 1, "autocast computes in a floating dtype");
    int32_t id = atomic_load_explicit(&layer_id, memory_order_acquire);
    if (id < 0) {
        const tn_layer layer = {.name = "tn.autocast", .priority = INT32_MIN, .call = run};
        id = tni_layer_find(layer.name); /* another thread may have been faster */
        if (id < 0) TN_TRY(tn_layer_register(&layer, &id));
        atomic_store_explicit(&layer_id, id, memory_order_release);
    }
    *region_at(slot) = (region){r->enabled != 0, r->cache != 0, (int16_t)r->dtype};
    bool any = false;
    for (int i = 0; i < TN_DEVICE_SLOTS; i++) any = any || regions[i].enabled;
    tn_layer_enable(id, any);
    return TN_OK;
}

void tn_autocast_clear(void) {
    while (cache) {
        cached *c = cache;
        cache = c->next;
        tn_tensor_unref(&c->from);
        tn_tensor_unref(&c->to);
        free(c);
    }
}
