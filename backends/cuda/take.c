/* take.c: gather, index_select, embedding and _scatter_ that sets: host side of kernels/take.cu; and
 * _arange_. Indices are looked at by the GPU; one that is out of range is a late failure. */
#include "cuda_priv.h"

#include <string.h>

#include <tenon/args_create.h>
#include <tenon/args_index.h>
#include <tenon/args_nn.h>

static cuda_size_kernels takes = CUDA_SIZE_KERNELS(take, take),
                         puts_at = CUDA_SIZE_KERNELS(take, put);

/* What is moved, in the order of `moved`; `index` and `reached` get strides by its dimensions. */
typedef struct take_job {
    const tn_view *moved, *index, *reached;
    int64_t index_stride[TN_MAX_DIMS], reached_stride[TN_MAX_DIMS]; /* in elements */
    int64_t size, step;                                             /* of the indexed dimension */
    bool wrap;
} take_job;

static tn_status run(const tn_call *call, cuda_kernel *kernels, const take_job *j) {
    const int32_t item = (int32_t)tn_view_itemsize(j->moved);
    const int32_t bytes[] = {item, (int32_t)tn_view_itemsize(j->index), item};
    cuda_take_args a;
    tn_status st = TN_OK;
    if (tn_view_dtype(j->index) != TN_I64 && tn_view_dtype(j->index) != TN_I32) return TN_DECLINE;
    if (j->moved->numel == 0) return TN_OK;
    cuda_plan_start(&a.plan);
    a.plan.data[0] = j->moved->data;
    a.plan.data[1] = j->index->data;
    a.plan.data[2] = j->reached->data;
    for (int32_t d = j->moved->ndim - 1; d >= 0 && st == TN_OK; d--) {
        const int64_t stride[] = {j->moved->strides[d] * item, j->index_stride[d] * bytes[1],
                                  j->reached_stride[d] * item};
        st = cuda_plan_add(&a.plan, 3, j->moved->shape[d], stride);
    }
    if (st != TN_OK) return st;
    cuda_plan_end(&a.plan, 3, bytes);
    cuda_plan_by_element(&a.plan);
    a.size = j->size;
    a.step = j->step * item;
    a.short_index = bytes[1] == 4;
    a.wrap = j->wrap;
    a.op = (uint64_t)(uintptr_t)call->op->name;
    st = cuda_fault_of(call, &a.fault);
    return st == TN_OK ? cuda_launch_plan(call, cuda_size_kernel(kernels, item), &a.plan) : st;
}

/* gather and _scatter_: everything has the dimensions of `index`. */
static tn_status run_along(const tn_call *call, cuda_kernel *kernels, const tn_view *moved,
                           const tn_view *index, const tn_view *reached, int64_t dim) {
    take_job j = {.moved = moved, .index = index, .reached = reached, .size = 1, .wrap = true};
    tn_view part = *moved; /* a source may be larger than the index */
    if (index->ndim != moved->ndim || reached->ndim != moved->ndim) return TN_DECLINE;
    part.shape = index->shape;
    part.numel = index->numel;
    j.moved = &part;
    for (int32_t d = 0; d < index->ndim; d++) {
        j.index_stride[d] = index->strides[d];
        j.reached_stride[d] = d == dim ? 0 : reached->strides[d];
    }
    if (index->ndim > 0) {
        j.size = reached->shape[dim];
        j.step = reached->strides[dim];
    }
    return run(call, kernels, &j);
}

static tn_status gather(const tn_call *call, const void *args) {
    const tn_gather_args *a = args;
    return run_along(call, takes, a->out, a->index, a->input, a->dim);
}

static tn_status scatter(const tn_call *call, const void *args) {
    const tn__scatter__args *a = args;
    if (a->how != TN_SCATTER_SET || (call->flags & TN_CALL_DETERMINISTIC)) return TN_DECLINE;
    return run_along(call, puts_at, a->src, a->index, a->self, a->dim);
}

static tn_status index_select(const tn_call *call, const void *args) {
    const tn_index_select_args *a = args;
    const tn_view *x = a->input;
    take_job j = {.moved = a->out, .index = a->index, .reached = x};
    if (x->ndim == 0 || a->index->ndim != 1) return TN_DECLINE;
    for (int32_t d = 0; d < x->ndim; d++) {
        j.index_stride[d] = d == a->dim ? a->index->strides[0] : 0;
        j.reached_stride[d] = d == a->dim ? 0 : x->strides[d];
    }
    j.size = x->shape[a->dim];
    j.step = x->strides[a->dim];
    return run(call, takes, &j);
}

/* Rows of the table, in the index's order: the last dimension runs along a row. */
static tn_status embedding(const tn_call *call, const void *args) {
    const tn_embedding_args *a = args;
    take_job j = {.moved = a->out, .index = a->indices, .reached = a->weight};
    for (int32_t d = 0; d < a->indices->ndim; d++) j.index_stride[d] = a->indices->strides[d];
    j.reached_stride[a->out->ndim - 1] = a->weight->strides[1];
    j.size = a->weight->shape[0];
    j.step = a->weight->strides[0];
    return run(call, takes, &j);
}

/* ---- Sequences ---------------------------------------------------------------------------------*/

#define RANGE(dtype)                                                                               \
    { .module = "range_" #dtype, .name = "range_" #dtype "_cuda" }
static cuda_kernel ranges[] = {RANGE(b8),  RANGE(u8),  RANGE(i8),   RANGE(i16), RANGE(i32),
                               RANGE(i64), RANGE(f16), RANGE(bf16), RANGE(f32), RANGE(f64)};

static tn_status arange(const tn_call *call, const void *args) {
    const tn__arange__args *a = args;
    const tn_view *v = a->self;
    int32_t dtype = tn_view_dtype(v);
    if (dtype == TN_BOOL || dtype > TN_F64 || v->ndim != 1) return TN_DECLINE;
    if (v->numel == 0) return TN_OK;
    cuda_range_args r = {v->data, v->numel, v->strides[0], {0}, {0}};
    if (dtype >= TN_F16) {
        r.start.d = a->start.re;
        r.step.d = a->step.re;
    } else {
        r.start.i = a->start.i;
        r.step.i = a->step.i;
    }
    return cuda_launch(call, &ranges[dtype], (v->numel + CUDA_BLOCK - 1) / CUDA_BLOCK, CUDA_BLOCK,
                       &r);
}

#define ROW(op, fn, flags)                                                                         \
    { #op, TN_SIG_##op, fn, NULL, TN_DTYPE_ANY, 0, flags, 0 }
static const tn_kernel_row rows[] = {
    ROW(gather, gather, TN_K_CAPTURE_SAFE),
    ROW(index_select, index_select, TN_K_CAPTURE_SAFE),
    ROW(embedding, embedding, TN_K_CAPTURE_SAFE),
    ROW(_scatter_, scatter, TN_K_CAPTURE_SAFE | TN_K_NONDETERMINISTIC),
    ROW(_arange_, arange, TN_K_CAPTURE_SAFE),
};
const cuda_rows cuda_take_rows;
const cuda_rows cuda_take_rows = CUDA_ROWS_OF(rows);
