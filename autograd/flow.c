/* flow.c: gradients on their way: made to fit, summed, put into .grad.
 *
 * Note [Un-broadcasting]. A gradient formula may return a gradient of the shape and dtype that the
 * operator computed in. The engine hands every result through tni_fit, which sums over the dimensions
 * that broadcasting added or stretched and converts to the dtype and device of the input: here, and
 * nowhere else. */
#include <stdlib.h>

#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>
#include <tenon/program.h>

#include "os_priv.h"
#include "sparse_priv.h"
#include "tape_priv.h"

/* ---- Constants and copies ----------------------------------------------------------------------*/

tn_status tni_constant(double value, uint64_t word, int32_t ndim, const int64_t *shape,
                       tn_tensor **ret_tensor) {
    static const int64_t no_strides[TN_MAX_DIMS] = {0};
    tn_scalar_box box;
    tn_device device = {(int32_t)((word & TN_W_DEVICE) >> 8), (int32_t)((word & TN_W_INDEX) >> 16)};
    tn_tensor *one, *number = tn_scalar_box_init(&box, tn_scalar_float(value));
    tn_tensor *same = NULL;
    if (tn_program_is_recording()) { /* by operators, which a program has */
        int64_t place = (int64_t)device.slot << 8 | device.index;
        TN_TRY(tn_full((tn_ints){NULL, 0}, tn_scalar_float(value), (int64_t)(word & TN_W_DTYPE),
                       place, ndim > 0 ? &one : ret_tensor));
        if (ndim == 0) return TN_OK;
        tn_status made = tn_expand(one, tn_ints_of(shape, ndim), 0, ret_tensor);
        tn_tensor_unref(&one);
        return made;
    }
    TN_TRY(tn_tensor_new((int32_t)(word & TN_W_DTYPE), device, 0, NULL, &one));
    tni_grad_off();
    tn_status st = tn_copy_(one, number, 0, &same);
    tni_grad_on();
    tn_tensor_unref(&same);
    if (st == TN_OK && ndim > 0)
        st = tni_view_new(one, (int32_t)(word & TN_W_DTYPE), ndim, shape, no_strides, 0, &same);
    else if (st == TN_OK)
        same = tn_tensor_ref(one);
    tn_tensor_unref(&one);
    if (st == TN_OK) *ret_tensor = same;
    return st;
}

tn_status tni_clone_like(tn_tensor *g, const tn_tensor *like, tn_tensor **ret_tensor) {
    int64_t strides[TN_MAX_DIMS];
    tn_tensor *t, *same = NULL;
    const tn_view *l = &like->v;
    if (tn_program_is_recording()) return tn_clone(g, TN_FORMAT_PRESERVE, ret_tensor);
    if (l->word & TN_W_DENSE)
        memcpy(strides, l->strides, sizeof *strides * (size_t)l->ndim);
    else
        tni_format_strides(TN_FORMAT_CONTIGUOUS, NULL, l->ndim, l->shape, strides);
    TN_TRY(tn_tensor_new_strided(tn_view_dtype(&g->v), tn_tensor_device(g), l->ndim, l->shape,
                                 strides, &t));
    tn_status st = tn_copy_(t, g, 0, &same);
    tn_tensor_unref(&same);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    *ret_tensor = t;
    return TN_OK;
}

/* ---- Fitting -----------------------------------------------------------------------------------*/

static tn_status fail_shape(const tn_tensor *g, int32_t ndim, const int64_t *shape,
                            const tn_node *from, uint32_t index) {
    char name[96] = "the caller";
    if (from) tn_node_name(from, name, sizeof name);
    return tn_fail(
        TN_E_STATE, -1,
        "Function %s returned an invalid gradient at index %u - got %s but expected shape "
        "compatible with %s",
        name, (unsigned)index, tni_shape_text_of(&g->v), tni_shape_text(ndim, shape));
}

/* Sums *g over what was broadcast; its shape is then `shape`. */
static tn_status unbroadcast(tn_tensor **g, int32_t ndim, const int64_t *shape, const tn_node *from,
                             uint32_t index) {
    const tn_view *v = &(*g)->v;
    int64_t dims[TN_MAX_DIMS];
    int32_t n = 0, lead = v->ndim - ndim;
    tn_tensor *sum, *r;
    if (lead < 0) return fail_shape(*g, ndim, shape, from, index);
    for (int32_t d = 0; d < v->ndim; d++) {
        if (d < lead || (shape[d - lead] == 1 && v->shape[d] != 1))
            dims[n++] = d;
        else if (shape[d - lead] != v->shape[d])
            return fail_shape(*g, ndim, shape, from, index);
    }
    TN_TRY(tn_sum(*g, tn_ints_of(dims, n), 1, -1, &sum));
    tn_status st = TN_OK;
    if (lead > 0) {
        st = tn_reshape(sum, tn_ints_of(shape, ndim), &r);
        tn_tensor_unref(&sum);
        sum = r;
    }
    if (st != TN_OK) return st;
    tn_tensor_unref(g);
    *g = sum;
    return TN_OK;
}

static tn_status convert(tn_tensor **g, uint64_t word) {
    int32_t dtype = (int32_t)(word & TN_W_DTYPE), have = tn_view_dtype(&(*g)->v);
    int64_t device = (int64_t)((word & TN_W_DEVICE) | (word & TN_W_INDEX) >> 16);
    tn_tensor *r;
    if (tn_dtype_category(have) == TN_CAT_COMPLEX && tn_dtype_category(dtype) < TN_CAT_COMPLEX) {
        TN_TRY(tn_real(*g, &r)); /* the imaginary part of a real input does not change */
        tn_tensor_unref(g);
        *g = r;
    }
    TN_TRY(tn__to_copy(*g, dtype, device, 0, TN_FORMAT_PRESERVE, &r));
    tn_tensor_unref(g);
    *g = r;
    return TN_OK;
}

static bool fits(const tn_tensor *g, int32_t ndim, const int64_t *shape) {
    if (g->v.ndim != ndim) return false;
    for (int32_t i = 0; i < ndim; i++)
        if (g->v.shape[i] != shape[i]) return false;
    return true;
}

tn_status tni_fit(tn_tensor **g, uint64_t word, int32_t ndim, const int64_t *shape,
                  const tn_node *from, uint32_t index) {
    if (TN_UNLIKELY((*g)->flags & TNI_T_STACK)) return fail_shape(*g, ndim, shape, from, index);
    if (!fits(*g, ndim, shape)) TN_TRY(unbroadcast(g, ndim, shape, from, index));
    if (TN_UNLIKELY(((*g)->v.word ^ word) & TN_W_ALIKE)) {
        int32_t have = tn_view_dtype(&(*g)->v);
        if (tn_dtype_category(have) < TN_CAT_FLOAT &&
            tn_dtype_category((int32_t)(word & TN_W_DTYPE)) == TN_CAT_COMPLEX)
            return tn_fail(TN_E_STATE, -1, "gradients must be floating point or complex, got %s",
                           tni_type_text(have));
        TN_TRY(convert(g, word));
    }
    return TN_OK;
}

tn_status tni_has_nan(tn_tensor *g, bool *ret_nan) {
    tn_tensor *each = NULL, *any = NULL;
    tn_scalar value = {0};
    *ret_nan = false;
    if (tni_is_meta(&g->v)) return TN_OK;
    if (tni_is_sparse(g)) g = tni_sparse_of(g)->values;
    tni_grad_off();
    tn_status st = tn_isnan(g, &each);
    if (st == TN_OK) st = tn_any(each, tn_ints_none(), 0, &any);
    if (st == TN_OK) st = tn_tensor_item(any, &value);
    tni_grad_on();
    tn_tensor_unref(&each);
    tn_tensor_unref(&any);
    *ret_nan = value.i != 0;
    return st;
}

/* ---- Summing -----------------------------------------------------------------------------------*/

/* Nobody else sees t or its memory, and every element has a place of its own. */
static bool ours(const tn_tensor *t) {
    return !tn_tensor_is_shared(t) && t->storage && (t->v.word & TN_W_DENSE) &&
           !(t->v.word & (TN_W_READONLY | TN_W_GRAD)) && !t->host.type &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1;
}

tn_status tni_add_grad(tn_tensor **sum, tn_tensor *g) {
    tn_tensor *r;
    tn_status st;
    if (!*sum) {
        *sum = g;
        return TN_OK;
    }
    if (tni_tls.no_grad && ours(*sum) && (*sum)->v.numel >= g->v.numel) {
        st = tn_add_(*sum, g, tn_scalar_int(1));
    } else if (tni_tls.no_grad && ours(g)) {
        st = tn_add_(g, *sum, tn_scalar_int(1));
        if (st == TN_OK) {
            r = *sum;
            *sum = g;
            g = r;
        }
    } else {
        st = tn_add(*sum, g, tn_scalar_int(1), &r);
        if (st == TN_OK) {
            tn_tensor_unref(sum);
            *sum = r;
        }
    }
    tn_tensor_unref(&g);
    return st;
}

/* ---- Into .grad --------------------------------------------------------------------------------*/

/* Two passes on two threads may meet at a shared leaf, and a third thread may set its .grad meanwhile: passes
 * hold a lock while they add, and all hold that of autograd while they look at the pointer. */
enum { LOCKS = 16 };
static tni_os_mutex locks[LOCKS] = {
    TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT,
    TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT,
    TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT,
    TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT, TNI_OS_MUTEX_INIT,
};

static bool same_strides(const tn_tensor *a, const tn_tensor *b) {
    for (int32_t i = 0; i < a->v.ndim; i++)
        if (a->v.shape[i] != 1 && a->v.strides[i] != b->v.strides[i]) return false;
    return true;
}

/* The first gradient: taken over where it is ours and lies as the leaf does, else copied. */
static tn_status first_grad(const tn_tensor *leaf, tn_tensor **g, tn_tensor **ret_grad) {
    if (TN_UNLIKELY(tni_is_sparse(*g)))
        return tni_tls.no_grad ? tni_sparse_fork(*g, ret_grad)
                               : tn_clone(*g, TN_FORMAT_PRESERVE, ret_grad);
    if (TN_UNLIKELY(tni_is_wrapped(*g))) {
        *ret_grad = tn_tensor_ref(*g);
        return TN_OK;
    }
    bool lies_right =
        leaf->v.word & TN_W_DENSE ? same_strides(*g, leaf) : ((*g)->v.word & TN_W_CONTIGUOUS) != 0;
    if (tni_tls.no_grad && ours(*g) && lies_right) {
        *ret_grad = *g;
        *g = NULL;
        return TN_OK;
    }
    return tni_clone_like(*g, leaf, ret_grad);
}

/* Makes `sum` what a leaf has, unless another thread has set that since it was `before`: what is set last
 * stays. */
static void put_grad(tn_agmeta *m, tn_tensor *before, tn_tensor *sum) {
    tni_ag_lock();
    tn_tensor **place = tni_grad_place(m);
    bool same = *place == before;
    if (same) *place = sum;
    tni_ag_unlock();
    if (same) sum = before;
    tn_tensor_unref(&sum);
}

tn_status tni_accumulate(tn_tensor *leaf, tn_tensor *g, tn_tensor **ret_seen) {
    tn_agmeta *m = tni_meta(leaf);
    if (!m) {
        tn_tensor_unref(&g);
        return TN_E_MEMORY;
    }
    tni_os_mutex *lock = &locks[((uintptr_t)leaf >> 6) % LOCKS];
    tn_status st = TN_OK;
    tni_os_lock(lock);
    tn_tensor *before = tn_grad_ref(leaf), *sum = NULL;
    if (!before) {
        st = first_grad(leaf, &g, &sum);
    } else if (tni_tls.no_grad && (!tni_is_sparse(before) || tni_is_sparse(g))) {
        st = tn_add_(before, g, tn_scalar_int(1));
    } else { /* of a sparse and a strided one: strided */
        st = tn_add(before, g, tn_scalar_int(1), &sum);
    }
    if (st == TN_OK && ret_seen && g)
        *ret_seen = tn_tensor_ref(g);
    else if (st == TN_OK && ret_seen)
        st = tni_detach(sum, ret_seen);
    if (st == TN_OK && sum)
        put_grad(m, before, sum);
    else
        tn_tensor_unref(&sum);
    tn_tensor_unref(&before);
    tni_os_unlock(lock);
    tn_tensor_unref(&g);
    return st;
}
