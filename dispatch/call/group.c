/* group.c: devices that exchange data. A kind with "tn.collectives/1" does so itself; for all others,
 * and for a group of different kinds, the members' tensors meet in host memory. */
#include "call_priv.h"
#include <stdlib.h>

#include <tenon/device_ext.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_pointwise.h>

#include "catch_priv.h"
#include "memory_priv.h"
#include "copy_priv.h"
#include "plan_priv.h"

struct tn_group {
    int32_t world, first, n;
    const tn_collectives_iface *native; /* NULL: over the host */
    void *handle;
    tn_device devices[]; /* of this process's members */
};

typedef enum what { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST } what;
static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"};

static const tn_device cpu = {0, 0};

static void *ctx_of(const tn_group *g) { return tni_device_maker(g->devices[0].slot)->desc.ctx; }

/* ---- Groups ------------------------------------------------------------------------------------*/

static const tn_collectives_iface *native_of(int32_t slot) {
    return tni_device_at(slot)->ifaces.collectives;
}

tn_status tn_group_unique_id(tn_device device, void *ret_id) {
    if (!ret_id) return tn_fail(TN_E_TYPE, 1, "group_unique_id(): the result has no place to go");
    TN_TRY(tni_check_device(device));
    const tni_device *dev = tni_device_at(device.slot);
    if (!dev->ifaces.collectives)
        return tn_fail(TN_E_UNSUPPORTED, 0,
                       "group_unique_id(): a group across processes needs the interface "
                       "\"tn.collectives/1\", which device '%s' does not have",
                       dev->name);
    tn_status st = tni_caught(dev->ifaces.collectives->unique_id(dev->desc.ctx, ret_id));
    return tni_error_of_plugin(st, "group_unique_id", dev->name);
}

/* One kind of device, each member on one of its own: what a device can serve by itself. */
static bool is_uniform(const tn_device *devices, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (devices[i].slot != devices[k].slot || devices[i].index == devices[k].index)
                return false;
    return true;
}

static tn_status check_members(const tn_device *devices, int32_t n, int32_t world, int32_t first,
                               const void *id) {
    if (!devices || n < 1 || n > 256 || world < n || first < 0 || first > world - n)
        return tn_fail(TN_E_VALUE, -1,
                       "group_new(): expected 1 to 256 devices of a group at least as large, got "
                       "%d from rank %d on of %d",
                       (int)n, (int)first, (int)world);
    for (int32_t i = 0; i < n; i++) TN_TRY(tni_check_device(devices[i]));
    if (world == n) return TN_OK;
    if (!is_uniform(devices, n) || !native_of(devices[0].slot))
        return tn_fail(TN_E_UNSUPPORTED, 0,
                       "group_new(): a group across processes needs the interface "
                       "\"tn.collectives/1\", which device '%s' does not have",
                       tn_device_name(devices[0].slot));
    return id ? TN_OK : tn_fail(TN_E_TYPE, 4, "group_new(): a group across processes needs an id");
}

static tn_status create_native(tn_group *g, const void *id) {
    int32_t *indices = calloc((size_t)g->n, sizeof *indices);
    if (!indices) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int32_t i = 0; i < g->n; i++) indices[i] = g->devices[i].index;
    tn_status st = g->native->create(ctx_of(g), g->world, g->first, g->n, indices, id, &g->handle);
    free(indices);
    return tni_device_said(tni_device_at(g->devices[0].slot), st, "group_new");
}

tn_status tn_group_new(const tn_device *devices, int32_t n, int32_t world, int32_t first,
                       const void *id, tn_group **ret_group) {
    if (!ret_group) return tn_fail(TN_E_TYPE, 5, "group_new(): the result has no place to go");
    TN_TRY(check_members(devices, n, world, first, id));
    tn_group *g = calloc(1, sizeof *g + sizeof *devices * (size_t)n);
    if (!g) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    g->world = world;
    g->first = first;
    g->n = n;
    memcpy(g->devices, devices, sizeof *devices * (size_t)n);
    if (is_uniform(devices, n)) g->native = native_of(devices[0].slot);
    tn_status st = g->native ? create_native(g, id) : TN_OK;
    if (st == TN_DECLINE && world == n) {
        g->native = NULL;
        st = TN_OK;
    }
    if (st != TN_OK) {
        free(g);
        return st == TN_DECLINE ? tn_fail(TN_E_UNSUPPORTED, -1, "group_new(): the device refuses")
                                : st;
    }
    *ret_group = g;
    return TN_OK;
}

void tn_group_free(tn_group **group) {
    tn_group *g = group ? *group : NULL;
    if (!g) return;
    *group = NULL;
    if (g->native) g->native->destroy(ctx_of(g), g->handle);
    free(g);
}

/* ---- Checks ------------------------------------------------------------------------------------*/

typedef struct exchange {
    tn_group *group;
    what kind;
    int32_t op, root;
    tn_tensor *const *src, *const *dst;
} exchange;

static tn_status check_side(const exchange *e, const char *side, tn_tensor *const *ts,
                            int64_t numel) {
    const char *name = names[e->kind];
    int32_t dtype = tn_view_dtype(&e->src[0]->v);
    for (int32_t i = 0; i < e->group->n; i++) {
        const tn_tensor *t = ts[i];
        tn_device d = e->group->devices[i], have = tn_tensor_device(t);
        TN_TRY(tni_settle(t));
        if (d.slot != have.slot || d.index != have.index)
            return tn_fail(TN_E_DEVICE, -1, "%s(): %s %d must be on %s:%d, the device of its rank",
                           name, side, (int)i, tn_device_name(d.slot), (int)d.index);
        if (tn_view_dtype(&t->v) != dtype || t->v.numel != numel || !(t->v.word & TN_W_CONTIGUOUS))
            return tn_fail(TN_E_VALUE, -1,
                           "%s(): %s %d must be a contiguous tensor of %s with %lld elements", name,
                           side, (int)i, tn_dtype_name(dtype), (long long)numel);
        if (ts == e->dst && tni_is_readonly(t))
            return tn_fail(TN_E_VALUE, -1, "%s(): %s %d is read-only", name, side, (int)i);
    }
    return TN_OK;
}

static tn_status check(const exchange *e, tn_tensors src, tn_tensors dst) {
    const tn_group *g = e->group;
    const char *name = names[e->kind];
    if (!g) return tn_fail(TN_E_TYPE, 0, "%s(): the group is NULL", name);
    if (src.n != g->n || dst.n != g->n || tni_lacks_tensors(src, false) ||
        tni_lacks_tensors(dst, false))
        return tn_fail(TN_E_TYPE, 1, "%s(): expected %d tensors on either side, one for each rank",
                       name, (int)g->n);
    if (e->op < TN_COLLECTIVE_SUM || e->op > TN_COLLECTIVE_MAX)
        return tn_fail(TN_E_VALUE, 3, "%s(): there is no operation %d", name, (int)e->op);
    if (e->root < 0 || e->root >= g->world)
        return tn_fail(TN_E_VALUE, 3, "%s(): there is no rank %d of %d", name, (int)e->root,
                       (int)g->world);
    int64_t in = src.v[0]->v.numel, out = in;
    if (e->kind == ALL_GATHER) out = in * g->world;
    if (e->kind == REDUCE_SCATTER) out = in / g->world;
    if (e->kind == REDUCE_SCATTER && out * g->world != in)
        return tn_fail(TN_E_VALUE, 1, "%s(): %lld elements cannot be cut into %d equal parts", name,
                       (long long)in, (int)g->world);
    TN_TRY(check_side(e, "source", e->src, in));
    return check_side(e, "destination", e->dst, out);
}

/* ---- By the device -----------------------------------------------------------------------------*/

static tn_status call_native(const exchange *e) {
    const tn_group *g = e->group;
    const tn_collectives_iface *f = g->native;
    const tn_view *const *src = (const tn_view *const *)(const void *)e->src;
    tn_view *const *dst = (tn_view *const *)(const void *)e->dst;
    void *streams[256];
    for (int32_t i = 0; i < g->n; i++) {
        streams[i] = tni_stream_of(g->devices[i]);
        TN_TRY(tni_storage_use(e->src[i]->storage, streams[i]));
        TN_TRY(tni_storage_use(e->dst[i]->storage, streams[i]));
    }
    switch (e->kind) {
    case ALL_REDUCE:
        return tni_caught(f->all_reduce(ctx_of(g), g->handle, src, dst, e->op, streams));
    case ALL_GATHER: return tni_caught(f->all_gather(ctx_of(g), g->handle, src, dst, streams));
    case REDUCE_SCATTER:
        return tni_caught(f->reduce_scatter(ctx_of(g), g->handle, src, dst, e->op, streams));
    default: return tni_caught(f->broadcast(ctx_of(g), g->handle, src, dst, e->root, streams));
    }
}

static tn_status run_native(const exchange *e) {
    int32_t slot = e->group->devices[0].slot;
    TN_TRY(tni_device_ready(slot));
    return tni_device_said(tni_device_at(slot), call_native(e), names[e->kind]);
}

/* ---- Over the host -----------------------------------------------------------------------------*/

/* A packed copy of n elements from `at` on, in the host's memory, as `dtype`. */
static tn_status to_host(const tn_tensor *t, int64_t at, int64_t n, int32_t dtype,
                         tn_tensor **ret_copy) {
    const int64_t one = 1;
    tn_tensor *part, *copy;
    TN_TRY(tni_view_new(t, tn_view_dtype(&t->v), 1, &n, &one, at, &part));
    tn_status st = tni_tensor_new_fast(dtype, cpu, 1, &n, &copy);
    if (st == TN_OK) {
        st = tni_copy_into(copy, part);
        if (st == TN_OK)
            *ret_copy = copy;
        else
            tn_tensor_unref(&copy);
    }
    tn_tensor_unref(&part);
    return st;
}

/* Puts a host tensor into t from element `at` on. */
static tn_status from_host(tn_tensor *t, int64_t at, const tn_tensor *from) {
    const int64_t one = 1;
    tn_tensor *part;
    TN_TRY(tni_view_new(t, tn_view_dtype(&t->v), 1, &from->v.numel, &one, at, &part));
    tn_status st = tni_copy_into(part, from);
    tn_tensor_unref(&part);
    return st;
}

/* The members' values come together in this dtype. */
static int32_t sum_dtype(int32_t dtype, int32_t op) {
    bool whole = tn_dtype_category(dtype) < TN_CAT_FLOAT && dtype < TN_DTYPE_BUILTIN_COUNT;
    if (whole && op == TN_COLLECTIVE_AVG) return TN_I64;
    bool low = dtype == TN_F16 || dtype == TN_BF16 || dtype >= TN_DTYPE_BUILTIN_COUNT;
    return low ? TN_F32 : dtype;
}

static tn_status combine(tn_tensor *total, tn_tensor *next, int32_t op) {
    switch (op) {
    case TN_COLLECTIVE_PRODUCT: return tn_mul_(total, next);
    case TN_COLLECTIVE_MIN: return tn_minimum_(total, next);
    case TN_COLLECTIVE_MAX: return tn_maximum_(total, next);
    default: return tn_add_(total, next, tn_scalar_int(1));
    }
}

/* Integers are divided towards zero. */
static tn_status average(tn_tensor *total, int32_t world) {
    tn_scalar_box box;
    tn_tensor *n = tn_scalar_box_init(&box, tn_scalar_int(world));
    bool whole = tn_dtype_category(tn_view_dtype(&total->v)) < TN_CAT_FLOAT;
    return whole ? tn_div_(total, n, "trunc") : tn_true_divide_(total, n);
}

/* op over elements at .. at + n of the members' sources. */
static tn_status reduced(const exchange *e, int64_t at, int64_t n, tn_tensor **ret_total) {
    int32_t dtype = sum_dtype(tn_view_dtype(&e->src[0]->v), e->op);
    tn_tensor *total = NULL, *next = NULL;
    tn_status st = to_host(e->src[0], at, n, dtype, &total);
    for (int32_t i = 1; i < e->group->n && st == TN_OK; i++) {
        if ((st = to_host(e->src[i], at, n, dtype, &next))) break;
        st = combine(total, next, e->op);
        tn_tensor_unref(&next);
    }
    if (st == TN_OK && e->op == TN_COLLECTIVE_AVG) st = average(total, e->group->world);
    if (st == TN_OK)
        *ret_total = total;
    else
        tn_tensor_unref(&total);
    return st;
}

static tn_status to_all(const exchange *e, int64_t at, const tn_tensor *from) {
    for (int32_t i = 0; i < e->group->n; i++) TN_TRY(from_host(e->dst[i], at, from));
    return TN_OK;
}

static tn_status reduce_all(const exchange *e) {
    tn_tensor *total;
    TN_TRY(reduced(e, 0, e->src[0]->v.numel, &total));
    tn_status st = to_all(e, 0, total);
    tn_tensor_unref(&total);
    return st;
}

/* Everything is computed before anything is written: a destination may be a source. */
static tn_status reduce_parts(const exchange *e) {
    int32_t n = e->group->n;
    int64_t part = e->dst[0]->v.numel;
    tn_tensor **totals = calloc((size_t)n, sizeof(tn_tensor *));
    tn_status st = totals ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int32_t i = 0; i < n && st == TN_OK; i++) st = reduced(e, i * part, part, &totals[i]);
    for (int32_t i = 0; i < n && st == TN_OK; i++) st = from_host(e->dst[i], 0, totals[i]);
    for (int32_t i = 0; i < n && totals; i++) tn_tensor_unref(&totals[i]);
    free(totals);
    return st;
}

static tn_status copy_parts(const exchange *e, int32_t from, int32_t n) {
    int32_t dtype = tn_view_dtype(&e->src[0]->v);
    int64_t part = e->src[0]->v.numel;
    tn_tensor **parts = calloc((size_t)n, sizeof(tn_tensor *));
    tn_status st = parts ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (int32_t i = 0; i < n && st == TN_OK; i++)
        st = to_host(e->src[from + i], 0, part, dtype, &parts[i]);
    for (int32_t i = 0; i < n && st == TN_OK; i++) st = to_all(e, i * part, parts[i]);
    for (int32_t i = 0; i < n && parts; i++) tn_tensor_unref(&parts[i]);
    free(parts);
    return st;
}

static tn_status over_host(const exchange *e) {
    if (e->group->world != e->group->n)
        return tn_fail(TN_E_UNSUPPORTED, -1,
                       "%s(): the device does not do this, and the host cannot for members in "
                       "other processes",
                       names[e->kind]);
    switch (e->kind) {
    case ALL_REDUCE: return reduce_all(e);
    case ALL_GATHER: return copy_parts(e, 0, e->group->n);
    case REDUCE_SCATTER: return reduce_parts(e);
    default: return copy_parts(e, e->root, 1);
    }
}

static tn_status run(exchange e, tn_tensors src, tn_tensors dst) {
    e.src = src.v;
    e.dst = dst.v;
    TN_TRY(check(&e, src, dst));
    tni_grad_off();
    tn_status st = TN_OK;
    if (src.v[0]->v.numel > 0) {
        st = e.group->native ? run_native(&e) : TN_DECLINE;
        if (st == TN_DECLINE) st = over_host(&e);
    }
    tni_grad_on();
    for (int32_t i = 0; i < e.group->n && st == TN_OK; i++) tni_bump_version(dst.v[i]);
    return st;
}

tn_status tn_group_all_reduce(tn_group *g, tn_tensors src, tn_tensors dst, int32_t op) {
    return run((exchange){.group = g, .kind = ALL_REDUCE, .op = op}, src, dst);
}

tn_status tn_group_all_gather(tn_group *g, tn_tensors src, tn_tensors dst) {
    return run((exchange){.group = g, .kind = ALL_GATHER}, src, dst);
}

tn_status tn_group_reduce_scatter(tn_group *g, tn_tensors src, tn_tensors dst, int32_t op) {
    return run((exchange){.group = g, .kind = REDUCE_SCATTER, .op = op}, src, dst);
}

tn_status tn_group_broadcast(tn_group *g, tn_tensors src, tn_tensors dst, int32_t root) {
    return run((exchange){.group = g, .kind = BROADCAST, .root = root}, src, dst);
}
