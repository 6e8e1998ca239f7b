/* take.c: the operators that read and write at indices, as jobs for index.c; and sequences. Indices are
 * looked at by the GPU; one that is out of range is a late failure.
 *
 * family: take */
#include "index.h"

#include <tenon/args_create.h>
#include <tenon/args_index.h>
#include <tenon/args_nn.h>

/* Tensors without dimensions stand for such of one element. */
static int64_t stride_at(const tn_view *v, int64_t d) { return v->ndim ? v->strides[d] : 0; }
static int64_t size_at(const tn_view *v, int64_t d) { return v->ndim ? v->shape[d] : 1; }

static cuda_number one_of(const tn_view *v) {
    return tn_view_dtype(v) >= TN_F16 ? (cuda_number){.d = 1.0} : (cuda_number){.i = 1};
}

static cuda_number number_of(const tn_view *v, tn_scalar s) {
    if (tn_view_dtype(v) >= TN_F16) return (cuda_number){.d = s.re};
    bool truth = s.i != 0 || s.re != 0.0;
    return (cuda_number){.i = tn_view_dtype(v) == TN_BOOL ? truth : s.i};
}

static bool is_deterministic(const tn_call *call) {
    return (call->flags & TN_CALL_DETERMINISTIC) != 0;
}

static tn_status put_with(const tn_call *call, const cuda_index_job *j, int32_t how,
                          cuda_number alpha) {
    cuda_index_join join = {.how = how, .ordered = is_deterministic(call), .alpha = alpha};
    return cuda_index_put(call, j, &join);
}

/* ---- gather and _scatter_: an index for every element ------------------------------------------*/

/* *ret_part: what is moved, which may be larger than the index. */
static cuda_index_job along(const tn_view *moved, const tn_view *index, const tn_view *reached,
                            int64_t dim, tn_view *ret_part) {
    cuda_index_job j = {.moved = ret_part, .index = index, .reached = reached};
    *ret_part = *moved;
    ret_part->ndim = moved->ndim ? index->ndim : 0;
    ret_part->shape = index->shape;
    ret_part->numel = index->numel;
    for (int32_t d = 0; d < index->ndim; d++) {
        j.index_stride[d] = index->strides[d];
        j.reached_stride[d] = d == dim ? 0 : stride_at(reached, d);
        j.of_index[d] = true;
    }
    j.size = size_at(reached, dim);
    j.step = stride_at(reached, dim);
    return j;
}

static tn_status gather(const tn_call *call, const void *args) {
    const tn_gather_args *a = args;
    tn_view part;
    cuda_index_job j = along(a->out, a->index, a->input, a->dim, &part);
    return cuda_index_take(call, &j);
}

static tn_status scatter(const tn_call *call, const void *args) {
    const tn__scatter__args *a = args;
    tn_view part;
    cuda_index_job j = along(a->src, a->index, a->self, a->dim, &part);
    return put_with(call, &j, (int32_t)a->how, one_of(a->self));
}

/* ---- Slices along one dimension, by a vector of indices ----------------------------------------*/

static cuda_index_job slices(const tn_view *moved, const tn_view *index, const tn_view *reached,
                             int64_t dim) {
    cuda_index_job j = {.moved = moved, .index = index, .reached = reached};
    for (int32_t d = 0; d < moved->ndim; d++) {
        j.index_stride[d] = d == dim ? stride_at(index, 0) : 0;
        j.reached_stride[d] = d == dim ? 0 : stride_at(reached, d);
        j.of_index[d] = d == dim;
    }
    j.size = size_at(reached, dim);
    j.step = stride_at(reached, dim);
    return j;
}

static tn_status index_select(const tn_call *call, const void *args) {
    const tn_index_select_args *a = args;
    cuda_index_job j = slices(a->out, a->index, a->input, a->dim);
    return cuda_index_take(call, &j);
}

static tn_status index_add(const tn_call *call, const void *args) {
    const tn_index_add__args *a = args;
    cuda_index_job j = slices(a->source, a->index, a->self, a->dim);
    return put_with(call, &j, TN_SCATTER_ADD, number_of(a->self, a->alpha));
}

static tn_status index_copy(const tn_call *call, const void *args) {
    const tn_index_copy__args *a = args;
    cuda_index_job j = slices(a->source, a->index, a->self, a->dim);
    return put_with(call, &j, TN_SCATTER_SET, one_of(a->self));
}

/* ---- Positions by one tensor of indices for each of some dimensions ----------------------------*/

/* Several tensors are made into one of offsets first, *ret_offsets. */
static tn_status positions(const tn_call *call, const tn_view *moved, const tn_view *reached,
                           tn_views indices, int64_t first, cuda_index_job *ret_job,
                           tn_view *ret_offsets) {
    const tn_view *index = indices.v[0];
    int64_t packed = 1;
    cuda_index_job *j = ret_job;
    *j = (cuda_index_job){.moved = moved, .index = index, .reached = reached, .wrap = true};
    j->ready = indices.n > 1;
    for (int32_t d = moved->ndim - 1; d >= 0; d--) {
        int64_t of = d - first;
        j->of_index[d] = of >= 0 && of < index->ndim;
        if (j->of_index[d]) {
            j->index_stride[d] = j->ready ? packed : index->strides[of];
            packed *= index->shape[of];
        } else {
            j->reached_stride[d] = reached->strides[of < 0 ? d : d - index->ndim + indices.n];
        }
    }
    j->size = reached->shape[first];
    j->step = reached->strides[first];
    if (!j->ready || moved->numel == 0) return TN_OK;
    for (int64_t k = 0; k < indices.n; k++) j->steps |= reached->strides[first + k];
    *ret_offsets = *index;
    j->index = ret_offsets;
    return cuda_index_offsets(call, reached, indices, first, &ret_offsets->data);
}

static tn_status index_at(const tn_call *call, const void *args) {
    const tn__index_args *a = args;
    cuda_index_job j;
    tn_view offsets;
    tn_status st = positions(call, a->out, a->input, a->indices, a->first, &j, &offsets);
    return st == TN_OK ? cuda_index_take(call, &j) : st;
}

static tn_status index_put(const tn_call *call, const void *args) {
    const tn__index_put__args *a = args;
    int32_t how = a->accumulate ? TN_SCATTER_ADD : TN_SCATTER_SET;
    cuda_index_job j;
    tn_view offsets;
    tn_status st = positions(call, a->values, a->self, a->indices, a->first, &j, &offsets);
    return st == TN_OK ? put_with(call, &j, how, one_of(a->self)) : st;
}

/* ---- Rows of a table ---------------------------------------------------------------------------*/

/* In the index's order: the last dimension of `rows` runs along a row. */
static cuda_index_job table_rows(const tn_view *rows, const tn_view *indices,
                                 const tn_view *table) {
    cuda_index_job j = {.moved = rows, .index = indices, .reached = table};
    for (int32_t d = 0; d < indices->ndim; d++) {
        j.index_stride[d] = indices->strides[d];
        j.of_index[d] = true;
    }
    j.reached_stride[rows->ndim - 1] = table->strides[1];
    j.size = table->shape[0];
    j.step = table->strides[0];
    return j;
}

static tn_status embedding(const tn_call *call, const void *args) {
    const tn_embedding_args *a = args;
    cuda_index_job j = table_rows(a->out, a->indices, a->weight);
    return cuda_index_take(call, &j);
}

/* In order whatever the mode: many rows meet, and halves must be summed up before they are rounded. */
static tn_status embedding_backward(const tn_call *call, const void *args) {
    const tn__embedding_backward_args *a = args;
    cuda_index_join join = {.how = TN_SCATTER_ADD,
                            .average = a->scale_grad_by_freq != 0,
                            .ordered = true,
                            .alpha = one_of(a->grad)};
    cuda_index_job j = table_rows(a->grad, a->indices, a->out);
    j.skip = a->padding_idx;
    j.skips = a->padding_idx >= 0;
    tn_status st = cuda_zero(call, a->out);
    return st == TN_OK ? cuda_index_put(call, &j, &join) : st;
}

/* The derivative of the backward pass; that of averages goes another way. */
static tn_status embedding_gather(const tn_call *call, const void *args) {
    const tn__embedding_gather_args *a = args;
    if (a->scale_grad_by_freq) return TN_DECLINE;
    cuda_index_job j = table_rows(a->out, a->indices, a->weight);
    j.skip = a->padding_idx;
    j.skips = a->padding_idx >= 0;
    tn_status st = cuda_zero(call, a->out);
    return st == TN_OK ? cuda_index_take(call, &j) : st;
}

/* ---- Sequences ---------------------------------------------------------------------------------*/

static cuda_real_kernels ranges = CUDA_REAL_KERNELS(range, range),
                         linspaces = CUDA_REAL_KERNELS(range, linspace);

static tn_status fill_sequence(const tn_call *call, cuda_kernel *kernels, const tn_view *v,
                               cuda_number start, cuda_number step) {
    cuda_range_args r = {v->data, v->numel, v->ndim ? v->strides[0] : 0, start, step};
    int32_t dtype = tn_view_dtype(v);
    if (dtype == TN_BOOL || dtype > TN_F64 || v->ndim > 1) return TN_DECLINE;
    return cuda_launch_each(call, &kernels[dtype], v->numel, &r);
}

static tn_status arange(const tn_call *call, const void *args) {
    const tn__arange__args *a = args;
    bool fractions = a->start.kind >= TN_CAT_FLOAT || a->step.kind >= TN_CAT_FLOAT;
    if (fractions && tn_view_dtype(a->self) < TN_F16) return TN_DECLINE;
    return fill_sequence(call, ranges, a->self, number_of(a->self, a->start),
                         number_of(a->self, a->step));
}

static tn_status linspace(const tn_call *call, const void *args) {
    const tn__linspace__args *a = args;
    return fill_sequence(call, linspaces, a->self, (cuda_number){.d = a->start.re},
                         (cuda_number){.d = a->end.re});
}

#define ROW(op, fn, flags) CUDA_ROW(op, fn, TN_DTYPE_ANY, flags)
static const tn_kernel_row rows[] = {
    ROW(gather, gather, TN_K_CAPTURE_SAFE),
    ROW(index_select, index_select, TN_K_CAPTURE_SAFE),
    ROW(embedding, embedding, TN_K_CAPTURE_SAFE),
    ROW(_index, index_at, TN_K_CAPTURE_SAFE),
    ROW(_embedding_backward, embedding_backward, TN_K_CAPTURE_SAFE),
    ROW(_embedding_gather, embedding_gather, TN_K_CAPTURE_SAFE),
    ROW(_scatter_, scatter, TN_K_CAPTURE_SAFE | TN_K_NONDETERMINISTIC),
    ROW(index_add_, index_add, TN_K_CAPTURE_SAFE | TN_K_NONDETERMINISTIC),
    ROW(index_copy_, index_copy, TN_K_CAPTURE_SAFE | TN_K_NONDETERMINISTIC),
    ROW(_index_put_, index_put, TN_K_CAPTURE_SAFE | TN_K_NONDETERMINISTIC),
    ROW(_arange_, arange, TN_K_CAPTURE_SAFE),
    ROW(_linspace_, linspace, TN_K_CAPTURE_SAFE),
};
const cuda_rows cuda_take_rows = CUDA_ROWS_OF(rows);
