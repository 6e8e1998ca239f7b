/* copy.c: _copy, which also fills, and _cast: host side of kernels/copy.cu and kernels/cast.cu.
 *
 * family: copy */
#include "cuda_priv.h"

#include <tenon/args_pointwise.h>

static cuda_size_kernels copies = CUDA_SIZE_KERNELS(copy, copy),
                         copies_back = CUDA_SIZE_KERNELS(copy, copy_back);

/* Rows that are read backwards, as flip's: a plan of items of 16 bytes. TN_DECLINE: not all are. */
static tn_status turn_rows(const cuda_plan *plan, int64_t bytes, cuda_plan *ret_plan) {
    const int32_t sizes[] = {16, 16};
    const int64_t next[] = {16, -16};
    int64_t each = 16 / bytes;
    char *from = (char *)plan->data[1] + bytes - 16;
    if (plan->values || plan->ndim == 0 || each < 2 || plan->size[0] % each) return TN_DECLINE;
    if (plan->stride[0][0] != bytes || plan->stride[0][1] != -bytes) return TN_DECLINE;
    uint64_t begins = (uint64_t)(uintptr_t)plan->data[0] | (uint64_t)(uintptr_t)from;
    for (int32_t d = 1; d < plan->ndim; d++)
        begins |= (uint64_t)plan->stride[d][0] | (uint64_t)plan->stride[d][1];
    if (begins % 16) return TN_DECLINE;
    cuda_plan_start(ret_plan);
    ret_plan->data[0] = plan->data[0];
    ret_plan->data[1] = from;
    tn_status st = cuda_plan_add(ret_plan, 2, plan->size[0] / each, next);
    for (int32_t d = 1; d < plan->ndim && st == TN_OK; d++)
        st = cuda_plan_add(ret_plan, 2, plan->size[d], plan->stride[d]);
    if (st != TN_OK) return st;
    cuda_plan_end(ret_plan, 2, sizes);
    cuda_plan_by_element(ret_plan);
    return TN_OK;
}

tn_status cuda_copy_plan(const tn_call *call, int64_t bytes, const cuda_plan *plan) {
    cuda_plan turned;
    if (turn_rows(plan, bytes, &turned) == TN_OK)
        return cuda_launch_plan(call, cuda_size_kernel(copies_back, bytes), &turned);
    return cuda_launch_plan(call, cuda_size_kernel(copies, bytes), plan);
}

tn_status cuda_copy_view(const tn_call *call, const tn_view *to, const tn_view *from) {
    const tn_view *views[] = {to, from};
    cuda_plan plan;
    tn_status st = cuda_plan_views(views, 2, &plan);
    return st == TN_OK ? cuda_copy_plan(call, tn_view_itemsize(to), &plan) : st;
}

tn_status cuda_pack(const tn_call *call, const tn_view *v, void *to) {
    int64_t strides[TN_MAX_DIMS], numel = 1;
    tn_view packed = *v;
    if (v->numel == 0) return TN_OK;
    for (int32_t d = v->ndim - 1; d >= 0; d--) {
        strides[d] = numel;
        numel *= v->shape[d];
    }
    packed.strides = strides;
    packed.data = to;
    return cuda_copy_view(call, &packed, v);
}

tn_status cuda_packed(const tn_call *call, const tn_view *v, const void **ret_data) {
    void *to = NULL;
    *ret_data = v->data;
    if (tn_view_is_contiguous(v) || v->numel == 0) return TN_OK;
    tn_status st = room_scratch(call, v->numel, (size_t)tn_view_itemsize(v), &to);
    *ret_data = to;
    return st == TN_OK ? cuda_pack(call, v, to) : st;
}

tn_status cuda_zero(const tn_call *call, const tn_view *v) {
    const int32_t bytes[] = {(int32_t)tn_view_itemsize(v), (int32_t)tn_view_itemsize(v)};
    const int64_t strides[] = {bytes[0], 0};
    cuda_plan plan;
    cuda_plan_start(&plan);
    plan.data[0] = v->data;
    plan.values = 1u << 1;
    tn_status st = cuda_plan_add(&plan, 2, v->numel, strides);
    if (st != TN_OK) return st;
    cuda_plan_end(&plan, 2, bytes);
    return cuda_copy_plan(call, bytes[0], &plan);
}

static tn_status copy(const tn_call *call, const void *args) {
    const tn__copy_args *a = args;
    cuda_plan plan;
    tn_status st = cuda_plan_make(a->plan, &plan);
    return st == TN_OK ? cuda_copy_plan(call, tn_view_itemsize(a->out), &plan) : st;
}

/* By source and target. */
#define CAST(from, to)                                                                             \
    { .module = "cast_" #from, .name = "cast_to_" #to "_" #from "_cuda" }
#define CASTS(from)                                                                                \
    {                                                                                              \
        CAST(from, b8), CAST(from, u8), CAST(from, i8), CAST(from, i16), CAST(from, i32),          \
            CAST(from, i64), CAST(from, f16), CAST(from, bf16), CAST(from, f32), CAST(from, f64),  \
            CAST(from, c64), CAST(from, c128)                                                      \
    }
static cuda_kernel casts[TN_DTYPE_BUILTIN_COUNT][TN_DTYPE_BUILTIN_COUNT] = {
    CASTS(b8),  CASTS(u8),   CASTS(i8),  CASTS(i16), CASTS(i32), CASTS(i64),
    CASTS(f16), CASTS(bf16), CASTS(f32), CASTS(f64), CASTS(c64), CASTS(c128),
};

tn_status cuda_cast(const tn_call *call, const tn_view *to, const tn_view *from) {
    const tn_view *views[] = {to, from};
    int32_t source = tn_view_dtype(from), target = tn_view_dtype(to);
    cuda_plan plan;
    if (source >= TN_DTYPE_BUILTIN_COUNT || target >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
    tn_status st = cuda_plan_views(views, 2, &plan);
    return st == TN_OK ? cuda_launch_plan(call, &casts[source][target], &plan) : st;
}

static tn_status cast(const tn_call *call, const void *args) {
    const tn__cast_args *a = args;
    return cuda_cast(call, a->out, a->input);
}

tn_status cuda_cast_packed(const tn_call *call, const void *from, int32_t from_dtype, void *to,
                           int32_t to_dtype, int64_t n) {
    const int32_t bytes[] = {cuda_item_bytes(to_dtype), cuda_item_bytes(from_dtype)};
    const int64_t stride[] = {bytes[0], bytes[1]};
    cuda_plan plan;
    cuda_plan_start(&plan);
    plan.data[0] = to;
    plan.data[1] = (void *)(uintptr_t)from;
    tn_status st = cuda_plan_add(&plan, 2, n, stride);
    if (st != TN_OK) return st;
    cuda_plan_end(&plan, 2, bytes);
    return cuda_launch_plan(call, &casts[from_dtype][to_dtype], &plan);
}

static const tn_kernel_row rows[] = {
    {"_copy", TN_SIG__copy, copy, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
    {"_cast", TN_SIG__cast, cast, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
};
const cuda_rows cuda_copy_rows = CUDA_ROWS_OF(rows);
