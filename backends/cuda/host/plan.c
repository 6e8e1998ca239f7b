/* plan.c: from core's plan, or from tensors, to the small plan that kernels take by value. */
#include "cuda_priv.h"

#include <string.h>

static const uint8_t item_bytes[] = {
#define ITEM_BYTES(ID, slot, name, bytes, dl, cat, ctype) bytes,
    TN_DTYPE_LIST(ITEM_BYTES)
#undef ITEM_BYTES
};

int32_t cuda_item_bytes(int32_t dtype) { return item_bytes[dtype]; }

/* See Granlund and Montgomery, "Division by invariant integers using multiplication" (1994). */
static cuda_divisor divisor_of(int64_t size) {
    cuda_divisor by = {0, 0};
    while ((INT64_C(1) << by.shift) < size) by.shift++;
    uint64_t high = (UINT64_C(1) << by.shift) - (uint64_t)size;
    by.magic = (uint32_t)((high << 32) / (uint64_t)size + 1);
    return by;
}

/* Bytes that an operand reaches beyond its element 0, in the direction that is further. */
static uint64_t reach_of(const cuda_plan *p, int32_t k) {
    uint64_t up = 0, down = 0;
    for (int32_t d = 0; d < p->ndim; d++) {
        int64_t reach = (p->size[d] - 1) * p->stride[d][k];
        *(reach < 0 ? &down : &up) += (uint64_t)(reach < 0 ? -reach : reach);
    }
    return up > down ? up : down;
}

static bool is_packed(const cuda_plan *p, int32_t k, int64_t bytes) {
    for (int32_t d = 0; d < p->ndim; d++) {
        if (p->size[d] != 1 && p->stride[d][k] != bytes) return false;
        bytes *= p->size[d];
    }
    return true;
}

static void find_divisors(cuda_plan *p) {
    if (p->flags & CUDA_PLAN_WIDE) return;
    for (int32_t d = 0; d < p->ndim; d++) p->by[d] = divisor_of(p->size[d]);
}

/* Whether groups of dimension 0 can be moved at once: wherever they begin, operand k is aligned. */
static bool has_row_vectors(const cuda_plan *p, int32_t k, int64_t bytes, uint64_t align) {
    uint64_t begins = (uint64_t)(uintptr_t)p->data[k];
    if (k > 0 && p->stride[0][k] == 0) return true;
    for (int32_t d = 1; d < p->ndim; d++) begins |= (uint64_t)p->stride[d][k];
    return p->stride[0][k] == bytes && begins % align == 0;
}

/* Sets the flags, once sizes, strides and data are there. */
static void describe(cuda_plan *p, int32_t n, const int32_t *bytes) {
    bool wide = p->numel > INT32_MAX, vectors = true, rows;
    int32_t widest = 1;
    for (int32_t k = 0; k < n; k++) widest = bytes[k] > widest ? bytes[k] : widest;
    p->span = CUDA_SPAN(widest);
    rows = p->ndim > 0 && p->size[0] % p->span == 0;
    for (int32_t k = 0; k < n; k++) {
        if (p->values >> k & 1u) continue;
        uint64_t whole = (uint64_t)bytes[k] * (uint64_t)p->span, align = whole < 16 ? whole : 16;
        wide |= reach_of(p, k) > INT32_MAX;
        if (!is_packed(p, k, bytes[k])) p->flags |= CUDA_PLAN_STRIDED;
        if ((uintptr_t)p->data[k] % align) vectors = false;
        rows = rows && has_row_vectors(p, k, bytes[k], align);
    }
    if (wide) p->flags |= CUDA_PLAN_WIDE;
    if (vectors) p->flags |= CUDA_PLAN_VECTORS;
    if (!(p->flags & CUDA_PLAN_STRIDED)) return;
    if (rows) p->flags |= CUDA_PLAN_ROWS;
    find_divisors(p);
}

void cuda_plan_by_element(cuda_plan *plan) {
    if (!(plan->flags & CUDA_PLAN_STRIDED)) find_divisors(plan);
    plan->flags = (plan->flags | CUDA_PLAN_STRIDED) & ~(uint32_t)CUDA_PLAN_ROWS;
}

int64_t cuda_plan_groups(const cuda_plan *plan) {
    bool apart = (plan->flags & (CUDA_PLAN_STRIDED | CUDA_PLAN_ROWS)) == CUDA_PLAN_STRIDED;
    int64_t each = apart || plan->numel == 0 ? 1 : plan->span;
    return (plan->numel + each - 1) / each;
}

tn_status cuda_plan_make(const tn_plan *plan, cuda_plan *ret_plan) {
    cuda_plan *p = ret_plan;
    int32_t bytes[CUDA_OPERANDS];
    if (plan->ndim > CUDA_DIMS || plan->noperands > CUDA_OPERANDS) return TN_DECLINE;
    memset(p, 0, sizeof *p);
    p->numel = plan->numel;
    p->ndim = plan->ndim;
    p->values = plan->scalar_mask;
    for (int32_t k = 0; k < plan->noperands; k++) {
        if (plan->dtype[k] >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
        bytes[k] = item_bytes[plan->dtype[k]];
        p->data[k] = plan->data[k];
        if (p->values >> k & 1u) memcpy(p->value[k], plan->data[k], (size_t)bytes[k]);
    }
    for (int32_t d = 0; d < plan->ndim; d++) {
        p->size[d] = plan->shape[d];
        for (int32_t k = 0; k < plan->noperands; k++) p->stride[d][k] = plan->stride[d][k];
    }
    if (p->numel > 0) describe(p, plan->noperands, bytes);
    return TN_OK;
}

void cuda_plan_start(cuda_plan *ret_plan) {
    memset(ret_plan, 0, sizeof *ret_plan);
    ret_plan->numel = 1;
}

/* Merged with the dimension inside of it where strides allow that. */
tn_status cuda_plan_add(cuda_plan *plan, int32_t noperands, int64_t size, const int64_t *stride) {
    cuda_plan *p = plan;
    int32_t last = p->ndim - 1;
    bool merge = p->ndim > 0;
    p->numel *= size;
    if (size == 1) return TN_OK;
    for (int32_t k = 0; k < noperands && merge; k++)
        merge = stride[k] == p->stride[last][k] * p->size[last];
    if (merge) {
        p->size[last] *= size;
        return TN_OK;
    }
    if (p->ndim == CUDA_DIMS) return TN_DECLINE;
    p->size[p->ndim] = size;
    for (int32_t k = 0; k < noperands; k++) p->stride[p->ndim][k] = stride[k];
    p->ndim++;
    return TN_OK;
}

void cuda_plan_end(cuda_plan *plan, int32_t noperands, const int32_t *bytes) {
    if (plan->numel > 0) describe(plan, noperands, bytes);
}

tn_status cuda_plan_views(const tn_view *const *views, int32_t n, cuda_plan *ret_plan) {
    int32_t bytes[CUDA_OPERANDS];
    tn_status st = TN_OK;
    cuda_plan_start(ret_plan);
    for (int32_t k = 0; k < n; k++) {
        bytes[k] = (int32_t)tn_view_itemsize(views[k]);
        ret_plan->data[k] = views[k]->data;
    }
    for (int32_t d = views[0]->ndim - 1; d >= 0 && st == TN_OK; d--) {
        int64_t stride[CUDA_OPERANDS];
        for (int32_t k = 0; k < n; k++) {
            int32_t at = d - (views[0]->ndim - views[k]->ndim);
            bool moves = at >= 0 && (k == 0 || views[k]->shape[at] != 1);
            stride[k] = moves ? views[k]->strides[at] * bytes[k] : 0;
        }
        st = cuda_plan_add(ret_plan, n, views[0]->shape[d], stride);
    }
    if (st == TN_OK) cuda_plan_end(ret_plan, n, bytes);
    return st;
}

tn_status cuda_launch_plan(const tn_call *call, cuda_kernel *k, const cuda_plan *plan) {
    int64_t threads = cuda_plan_groups(plan);
    uint32_t block = threads >= CUDA_BLOCK ? CUDA_BLOCK : (uint32_t)(threads + 31) / 32 * 32;
    if (plan->numel == 0) return TN_OK;
    return cuda_launch(call, k, (threads + block - 1) / block, block, plan);
}
