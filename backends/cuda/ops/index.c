/* index.c: reading and writing at positions, host side of kernels/take.cu and kernels/index.cu: moves
 * at once, sums by atomic additions, and whatever must have an order by sorting the positions. */
#include "index.h"

#include <tenon/args_index.h>

_Static_assert((int)CUDA_JOIN_SET == TN_SCATTER_SET && (int)CUDA_JOIN_ADD == TN_SCATTER_ADD &&
                   (int)CUDA_JOIN_MULTIPLY == TN_SCATTER_MULTIPLY &&
                   (int)CUDA_JOIN_AMAX == TN_SCATTER_AMAX && (int)CUDA_JOIN_AMIN == TN_SCATTER_AMIN,
               "kernels know the same numbers");

static cuda_size_kernels takes = CUDA_SIZE_KERNELS(take, take),
                         puts_at = CUDA_SIZE_KERNELS(take, put);
static cuda_kernel offsets_kernel = {.module = "take", .name = "take_offsets"};
static cuda_real_kernels adds = CUDA_REAL_KERNELS(index, index_add),
                         combines = CUDA_REAL_KERNELS(index, index_combine),
                         sums = CUDA_REAL_KERNELS(index, index_sum);

/* All but the plan. */
static tn_status start(const tn_call *call, const cuda_index_job *j, cuda_take_args *ret_args) {
    cuda_take_args *a = ret_args;
    int32_t dtype = tn_view_dtype(j->index);
    if (dtype != TN_I64 && dtype != TN_I32) return TN_DECLINE;
    a->size = j->size;
    a->step = j->step * tn_view_itemsize(j->reached);
    a->skip = j->skip;
    a->skips = j->skips;
    a->short_index = dtype == TN_I32;
    a->wrap = j->wrap;
    a->ready = j->ready;
    a->joins = 0;
    a->op = (uint64_t)(uintptr_t)call->op->name;
    return cuda_fault_of(call, &a->fault);
}

/* Elements that lie side by side in both tensors, whatever the index: the last dimensions from
 * *ret_first on, or 1. */
static int64_t row_of(const cuda_index_job *j, int32_t *ret_first) {
    int64_t n = 1;
    int32_t d = j->moved->ndim;
    for (; d > 0 && !j->of_index[d - 1]; d--) {
        int64_t size = j->moved->shape[d - 1];
        if (size != 1 && (j->moved->strides[d - 1] != n || j->reached_stride[d - 1] != n)) break;
        n *= size;
    }
    *ret_first = d;
    return n;
}

/* Bytes that can be moved at once, up to 16: rows, and where they begin, are multiples of that. */
static int64_t bytes_at_once(const cuda_index_job *j) {
    int64_t item = tn_view_itemsize(j->moved), at_once = item > 16 ? item : 16;
    int32_t dims;
    uint64_t bits = (uint64_t)row_of(j, &dims) | (uint64_t)j->step | (uint64_t)j->steps;
    for (int32_t d = 0; d < dims; d++)
        bits |= (uint64_t)j->moved->strides[d] | (uint64_t)j->reached_stride[d];
    bits *= (uint64_t)item;
    bits |= (uint64_t)(uintptr_t)j->moved->data | (uint64_t)(uintptr_t)j->reached->data;
    while (at_once > item && bits % (uint64_t)at_once != 0) at_once /= 2;
    return at_once;
}

/* A plan of all dimensions, whose elements have `bytes`. */
static tn_status plan_moves(const tn_call *call, const cuda_index_job *j, int64_t bytes,
                            cuda_take_args *ret_args) {
    const int32_t item = (int32_t)tn_view_itemsize(j->moved);
    const int32_t of_index = (int32_t)tn_view_itemsize(j->index);
    const int32_t sizes[] = {(int32_t)bytes, of_index, (int32_t)bytes};
    const int64_t next[] = {bytes, 0, bytes};
    cuda_plan *plan = &ret_args->plan;
    int32_t dims = j->moved->ndim;
    tn_status st = start(call, j, ret_args);
    cuda_plan_start(plan);
    plan->data[0] = j->moved->data;
    plan->data[1] = j->index->data;
    plan->data[2] = j->reached->data;
    if (bytes != item && st == TN_OK)
        st = cuda_plan_add(plan, 3, row_of(j, &dims) * item / bytes, next);
    for (int32_t d = dims - 1; d >= 0 && st == TN_OK; d--) {
        const int64_t stride[] = {j->moved->strides[d] * item, j->index_stride[d] * of_index,
                                  j->reached_stride[d] * item};
        st = cuda_plan_add(plan, 3, j->moved->shape[d], stride);
    }
    if (st != TN_OK) return st;
    cuda_plan_end(plan, 3, sizes);
    cuda_plan_by_element(plan);
    return TN_OK;
}

/* What is moved goes as it is, in the largest items that all rows are made of. */
static tn_status move_at_once(const tn_call *call, const cuda_index_job *j,
                              cuda_size_kernels kernels) {
    cuda_take_args a;
    int64_t bytes = bytes_at_once(j);
    tn_status st = plan_moves(call, j, bytes, &a);
    if (st != TN_OK) return st;
    return cuda_launch_plan(call, cuda_size_kernel(kernels, bytes), &a.plan);
}

tn_status cuda_index_take(const tn_call *call, const cuda_index_job *j) {
    return j->moved->numel ? move_at_once(call, j, takes) : TN_OK;
}

/* ---- In any order ------------------------------------------------------------------------------*/

static tn_status add_at_once(const tn_call *call, const cuda_index_job *j, cuda_number alpha) {
    cuda_add_args a = {.alpha = alpha};
    tn_status st = plan_moves(call, j, tn_view_itemsize(j->moved), &a.take);
    if (st != TN_OK) return st;
    return cuda_launch_plan(call, &adds[tn_view_dtype(j->moved)], &a.take.plan);
}

/* ---- In order ----------------------------------------------------------------------------------*/

/* The offset of every position of the index, packed, unless the index has them already. */
static tn_status make_offsets(const tn_call *call, const cuda_index_job *j, int64_t n,
                              void **ret_offsets) {
    const int32_t bytes[] = {8, (int32_t)tn_view_itemsize(j->index), 1};
    int64_t item = tn_view_itemsize(j->reached), packed = 8;
    cuda_take_args a;
    *ret_offsets = j->index->data;
    if (j->ready) return TN_OK;
    tn_status st = room_scratch(call, n, sizeof(int64_t), ret_offsets);
    if (st == TN_OK) st = start(call, j, &a);
    cuda_plan_start(&a.plan);
    a.plan.data[0] = *ret_offsets;
    a.plan.data[1] = j->index->data;
    a.plan.data[2] = NULL;
    for (int32_t d = j->moved->ndim - 1; d >= 0 && st == TN_OK; d--) {
        const int64_t stride[] = {packed, j->index_stride[d] * bytes[1],
                                  j->reached_stride[d] * item};
        if (!j->of_index[d]) continue;
        st = cuda_plan_add(&a.plan, 3, j->moved->shape[d], stride);
        packed *= j->moved->shape[d];
    }
    if (st != TN_OK) return st;
    cuda_plan_end(&a.plan, 3, bytes);
    cuda_plan_by_element(&a.plan);
    return cuda_launch_plan(call, &offsets_kernel, &a.plan);
}

/* How positions lie in what is moved, and the plan of all other dimensions, whose elements have
 * `bytes`. */
static tn_status plan_parts(const cuda_index_job *j, int64_t bytes, cuda_combine_args *ret_args) {
    const int32_t item = (int32_t)tn_view_itemsize(j->moved);
    const int32_t sizes[] = {(int32_t)bytes, (int32_t)bytes};
    const int64_t next[] = {bytes, bytes};
    cuda_combine_args *a = ret_args;
    int32_t dims = j->moved->ndim;
    tn_status st = TN_OK;
    a->n = 1;
    cuda_plan_start(&a->inner);
    if (bytes != item) st = cuda_plan_add(&a->inner, 2, row_of(j, &dims) * item / bytes, next);
    for (int32_t d = dims - 1; d >= 0 && st == TN_OK; d--) {
        const int64_t size = j->moved->shape[d];
        const int64_t stride[] = {j->moved->strides[d] * item, j->reached_stride[d] * item};
        if (!j->of_index[d]) {
            st = cuda_plan_add(&a->inner, 2, size, stride);
            continue;
        }
        if (a->dims == CUDA_DIMS) return TN_DECLINE;
        a->size[a->dims] = size;
        a->stride[a->dims++] = stride[0];
        a->n *= size;
    }
    if (st != TN_OK) return st;
    cuda_plan_end(&a->inner, 2, sizes);
    cuda_plan_by_element(&a->inner);
    return TN_OK;
}

static tn_status sort_offsets(const tn_call *call, void *offsets, int64_t n,
                              cuda_combine_args *ret_args) {
    void *sorted = NULL, *position = NULL;
    tn_view keys = {.word = TN_I64 | TN_W_CONTIGUOUS, .numel = n, .data = offsets, .dl_bits = 64};
    tn_status st = room_scratch(call, n, sizeof(int64_t), &sorted);
    if (st == TN_OK) st = room_scratch(call, n, sizeof(int64_t), &position);
    ret_args->offset = sorted;
    ret_args->position = position;
    return st == TN_OK ? cuda_sort(call, &keys, sorted, position) : st;
}

static tn_status join_in_order(const tn_call *call, const cuda_index_job *j,
                               const cuda_index_join *join) {
    void *offsets = NULL;
    cuda_combine_args a = {.moved = j->moved->data,
                           .reached = j->reached->data,
                           .how = join->how,
                           .average = join->average,
                           .alpha = join->alpha};
    int32_t dtype = tn_view_dtype(j->moved);
    if (dtype > TN_F64) return TN_DECLINE;
    bool packs = join->how == TN_SCATTER_ADD && bytes_at_once(j) == 16;
    tn_status st = plan_parts(j, packs ? 16 : tn_view_itemsize(j->moved), &a);
    if (st == TN_OK) st = make_offsets(call, j, a.n, &offsets);
    if (st == TN_OK) st = sort_offsets(call, offsets, a.n, &a);
    if (st != TN_OK) return st;
    cuda_kernel *kernel = packs ? &sums[dtype] : &combines[dtype];
    return cuda_launch_each(call, kernel, a.n * a.inner.numel, &a);
}

tn_status cuda_index_put(const tn_call *call, const cuda_index_job *j,
                         const cuda_index_join *join) {
    int32_t dtype = tn_view_dtype(j->moved);
    bool whole = dtype == TN_I32 || dtype == TN_I64;
    bool add = whole || ((dtype == TN_F32 || dtype == TN_F64) && !join->ordered);
    if (j->moved->numel == 0) return TN_OK;
    if (join->how == TN_SCATTER_SET && !join->ordered) return move_at_once(call, j, puts_at);
    if (join->how == TN_SCATTER_ADD && !join->average && add)
        return add_at_once(call, j, join->alpha);
    return join_in_order(call, j, join);
}

/* ---- Several tensors of indices ----------------------------------------------------------------*/

tn_status cuda_index_offsets(const tn_call *call, const tn_view *reached, tn_views indices,
                             int64_t first, void **ret_offsets) {
    const int32_t bytes[] = {8, 8, 1};
    tn_status st = room_scratch(call, indices.v[0]->numel, sizeof(int64_t), ret_offsets);
    for (int64_t k = 0; k < indices.n && st == TN_OK; k++) {
        const tn_view *index = indices.v[k];
        cuda_index_job j = {.index = index, .reached = reached, .wrap = true};
        cuda_take_args a;
        int64_t packed = 8;
        j.size = reached->shape[first + k];
        j.step = reached->strides[first + k];
        st = start(call, &j, &a);
        a.joins = k > 0;
        cuda_plan_start(&a.plan);
        a.plan.data[0] = *ret_offsets;
        a.plan.data[1] = index->data;
        for (int32_t d = index->ndim - 1; d >= 0 && st == TN_OK; d--) {
            const int64_t stride[] = {packed, index->strides[d] * 8, 0};
            st = cuda_plan_add(&a.plan, 3, index->shape[d], stride);
            packed *= index->shape[d];
        }
        if (st != TN_OK) return st;
        cuda_plan_end(&a.plan, 3, bytes);
        cuda_plan_by_element(&a.plan);
        st = cuda_launch_plan(call, &offsets_kernel, &a.plan);
    }
    return st;
}
