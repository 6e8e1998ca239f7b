/* plan.c: how kernels walk over operands: broadcast as stride 0, dimensions sorted by stride and
 * merged where all operands allow it. Nothing is allocated. */
#include "plan_priv.h"

/* Note [Order of dimensions]
 * Dimension 0 of a plan is the fastest. The order follows the strides of the operands, the first
 * operand with a say decides (as the output comes first, writing is sequential where possible).
 * A dimension of stride 0 has no say, so that broadcast operands do not spoil the order. */

static bool goes_before(const tn_plan *p, int32_t a, int32_t b) {
    /* Reductions: the output has stride 0 on every reduced dimension, the input decides. */
    for (int32_t k = 0; k < p->noperands; k++) {
        int64_t x = p->stride[a][k], y = p->stride[b][k];
        if (x < 0) x = -x;
        if (y < 0) y = -y;
        if (x == 0 || y == 0 || x == y) continue;
        return x < y;
    }
    return false;
}

static void swap_dims(tn_plan *p, int32_t a, int32_t b) {
    int64_t s = p->shape[a];
    p->shape[a] = p->shape[b];
    p->shape[b] = s;
    for (int32_t k = 0; k < p->noperands; k++) {
        int64_t t = p->stride[a][k];
        p->stride[a][k] = p->stride[b][k];
        p->stride[b][k] = t;
    }
    uint64_t ba = p->reduce_mask >> a & 1u, bb = p->reduce_mask >> b & 1u;
    p->reduce_mask &= ~(UINT64_C(1) << a | UINT64_C(1) << b);
    p->reduce_mask |= bb << a | ba << b;
}

/* Insertion sort: ranks are small, and most inputs come sorted. */
static void sort_dims(tn_plan *p) {
    for (int32_t i = 1; i < p->ndim; i++)
        for (int32_t j = i; j > 0 && goes_before(p, j, j - 1); j--) swap_dims(p, j, j - 1);
}

static bool mergeable(const tn_plan *p, int32_t inner, int32_t outer) {
    if ((p->reduce_mask >> inner & 1u) != (p->reduce_mask >> outer & 1u)) return false;
    for (int32_t k = 0; k < p->noperands; k++)
        if (p->stride[outer][k] != p->stride[inner][k] * p->shape[inner]) return false;
    return true;
}

static void move_dim(tn_plan *p, int32_t to, int32_t from) {
    if (to == from) return;
    p->shape[to] = p->shape[from];
    for (int32_t k = 0; k < p->noperands; k++) p->stride[to][k] = p->stride[from][k];
    uint64_t bit = p->reduce_mask >> from & 1u;
    p->reduce_mask = (p->reduce_mask & ~(UINT64_C(1) << to)) | bit << to;
}

static void merge_dims(tn_plan *p) {
    int32_t last = 0;
    for (int32_t i = 1; i < p->ndim; i++) {
        if (mergeable(p, last, i)) {
            p->shape[last] *= p->shape[i];
        } else {
            move_dim(p, ++last, i);
        }
    }
    p->ndim = last + 1;
    p->reduce_mask &= p->ndim >= 64 ? UINT64_MAX : (UINT64_C(1) << p->ndim) - 1;
}

static bool is_flat(const tn_plan *p) {
    if (p->ndim != 1 || p->reduce_mask) return false;
    for (int32_t k = 0; k < p->noperands; k++) {
        bool scalar = p->scalar_mask >> k & 1u;
        if (!scalar && p->stride[0][k] != tn_dtype_size(p->dtype[k])) return false;
    }
    return true;
}

void tni_plan_build(tn_plan *ret, int noperands, int noutputs, tn_tensor *const *ts,
                    uint32_t scalar_mask, void *const *scalars, int32_t ndim, const int64_t *shape,
                    uint64_t reduce_mask) {
    tn_plan *p = ret;
    p->noperands = noperands;
    p->noutputs = noutputs;
    p->flags = 0;
    p->scalar_mask = scalar_mask;
    p->reserved = 0;
    p->reduce_mask = 0;
    p->numel = 1;
    for (int k = 0; k < noperands; k++) {
        const tn_view *v = &ts[k]->v;
        p->dtype[k] = (uint8_t)(v->word & TN_W_DTYPE);
        p->data[k] = scalar_mask >> k & 1u ? scalars[k] : v->data;
        p->offset[k] = v->byte_offset;
    }
    /* Dimensions of size 1 carry nothing; the rest go in from the fastest. */
    int32_t n = 0;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        p->numel *= shape[d];
        if (shape[d] == 1) continue;
        bool reduced = reduce_mask >> d & 1u;
        p->shape[n] = shape[d];
        if (reduced) p->reduce_mask |= UINT64_C(1) << n;
        for (int k = 0; k < noperands; k++) {
            const tn_view *v = &ts[k]->v;
            int32_t own = d - (ndim - v->ndim);
            bool still = own < 0 || v->shape[own] == 1 || (scalar_mask >> k & 1u) ||
                         (reduced && k < noutputs);
            /* Strides of a tensor without elements may be any. */
            uint64_t step = still ? 0 : (uint64_t)v->strides[own] * (uint64_t)tn_view_itemsize(v);
            p->stride[n][k] = (int64_t)step;
        }
        n++;
    }
    if (n == 0) {
        p->shape[0] = 1;
        for (int k = 0; k < noperands; k++)
            p->stride[0][k] = scalar_mask >> k & 1u ? 0 : tn_dtype_size(p->dtype[k]);
    }
    p->ndim = n;
    if (p->numel > 0) { /* which leaves one dimension at least */
        sort_dims(p);
        merge_dims(p);
    }
    if (is_flat(p)) p->flags |= TN_PLAN_FLAT;
}

/* ---- Overlap -----------------------------------------------------------------------------------*/

tni_overlap tni_overlap_of(const tn_tensor *out, const tn_tensor *in) {
    if (out == in) return TNI_OVERLAP_FULL;
    if (!out->storage || out->storage != in->storage || out->v.numel == 0 || in->v.numel == 0)
        return TNI_OVERLAP_NONE;
    if (out->v.data == in->v.data && out->v.byte_offset == in->v.byte_offset &&
        out->v.ndim == in->v.ndim && ((out->v.word ^ in->v.word) & TN_W_DTYPE) == 0) {
        bool same = true;
        for (int32_t i = 0; i < out->v.ndim && same; i++)
            same = out->v.shape[i] == in->v.shape[i] &&
                   (out->v.shape[i] == 1 || out->v.strides[i] == in->v.strides[i]);
        if (same) return TNI_OVERLAP_FULL;
    }
    /* Views that interleave without meeting (even and odd columns) count as apart only when both
     * are not dense; as in PyTorch the test is by reach for dense ones. */
    if (!(out->v.word & TN_W_DENSE) || !(in->v.word & TN_W_DENSE)) return TNI_OVERLAP_NONE;
    return tni_may_meet(out, in) ? TNI_OVERLAP_PARTIAL : TNI_OVERLAP_NONE;
}

bool tni_may_meet(const tn_tensor *a, const tn_tensor *b) {
    int64_t alo, ahi, blo, bhi;
    if (a == b) return true;
    if (!a->storage || a->storage != b->storage || a->v.numel == 0 || b->v.numel == 0) return false;
    tni_reach(a->v.ndim, a->v.shape, a->v.strides, &alo, &ahi);
    tni_reach(b->v.ndim, b->v.shape, b->v.strides, &blo, &bhi);
    int64_t sa = tn_view_itemsize(&a->v), sb = tn_view_itemsize(&b->v);
    int64_t oa = tn_tensor_storage_offset(a) * sa, ob = tn_tensor_storage_offset(b) * sb;
    return oa + ahi * sa > ob + blo * sb && ob + bhi * sb > oa + alo * sa;
}

bool tni_repeats(const tn_tensor *t) {
    if (t->v.word & TN_W_DENSE) return false;
    for (int32_t i = 0; i < t->v.ndim; i++)
        if (t->v.shape[i] > 1 && t->v.strides[i] == 0) return true;
    return false;
}

tn_status tni_check_no_internal_overlap(const tn_tensor *t) {
    if (!tni_repeats(t)) return TN_OK;
    return tn_fail(TN_E_STATE, -1,
                   "unsupported operation: more than one element of the written-to tensor refers "
                   "to a single memory location. Please clone() the tensor before performing the "
                   "operation.");
}
