/* copy.c: values from one tensor into another: strided, converted, between devices. The kernels are
 * those of `copy` (same dtype) and `cast` (two dtypes). */
#include <tenon/device_ext.h>
#include "move_priv.h"
#include <tenon/args_pointwise.h>
#include <tenon/ops_sparse.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "op_pointwise.h"
#include "plan_priv.h"
#include "sparse_priv.h"
#include "stage_priv.h"

/* By way of the host, for a device that cannot pack or convert: the bytes come over as they lie, and
 * what was written goes back. */
static tn_status through_host(tn_tensor *dst, const tn_tensor *src) {
    tni_stage s = {0};
    tn_tensor *from = tni_t(&src->v);
    if (tn_view_device(&dst->v) == 0 && tn_view_device(&src->v) == 0)
        return tni_kernel_missing(&tni_op__copy, tn_tensor_device(dst), tn_view_dtype(&dst->v));
    tn_status st = tni_stage_add(&s, dst);
    if (st == TN_OK) st = tni_stage_add(&s, from);
    if (st == TN_OK) st = tni_stage_load(&s);
    if (st == TN_OK) st = tni_copy_into(tni_stage_of(&s, dst), tni_stage_of(&s, from));
    if (st == TN_OK) st = tni_stage_store(&s, dst);
    tni_stage_free(&s);
    return st;
}

static tn_status same_dtype(tn_tensor *dst, const tn_tensor *src);

/* As elements of the same size that kernels know. */
static tn_status copy_units(tn_tensor *dst, const tn_tensor *src) {
    tn_tensor *to = NULL, *from = NULL;
    tn_status st = tni_as_units(dst, &to);
    if (st == TN_OK) st = tni_as_units(src, &from);
    if (st == TN_OK) st = same_dtype(to, from);
    tn_tensor_unref(&to);
    tn_tensor_unref(&from);
    return st;
}

static tn_status same_dtype(tn_tensor *dst, const tn_tensor *src) {
    const tn_op *op = &tni_op__copy;
    tn_plan plan;
    tn_tensor *ts[2] = {dst, tni_t(&src->v)};
    int32_t dtype = tn_view_dtype(&dst->v);
    const tn_cell *cell = tni_kernel_find(op, tn_view_device(&dst->v), dtype);
    if (!cell && dtype >= TN_DTYPE_BUILTIN_COUNT) return copy_units(dst, src);
    if (!cell) return through_host(dst, src);
    tni_plan_build(&plan, 2, 1, ts, 0, NULL, dst->v.ndim, dst->v.shape, 0);
    if (plan.numel == 0) return TN_OK;
    tn__copy_args args = {.plan = &plan, .input = &src->v, .out = &dst->v};
    tn_status st = tni_kernel_run(op, cell, tn_tensor_device(dst), dtype, &args);
    return st == TN_DECLINE ? through_host(dst, src) : st;
}

static tn_status other_dtype(tn_tensor *dst, const tn_tensor *src) {
    const tn_op *op = &tni_op__cast;
    int32_t dtype = tn_view_dtype(&src->v);
    if (dst->v.numel == 0) return TN_OK;
    bool foreign =
        dtype >= TN_DTYPE_BUILTIN_COUNT || tn_view_dtype(&dst->v) >= TN_DTYPE_BUILTIN_COUNT;
    const tn_cell *cell = NULL;
    if (!foreign) cell = tni_kernel_find(op, tn_view_device(&dst->v), dtype);
    if (foreign && tn_view_device(&dst->v) == 0) return tni_foreign_cast(dst, src);
    if (!cell) return through_host(dst, src);
    tn__cast_args args = {.input = &src->v, .out = &dst->v};
    tn_status st = tni_kernel_run(op, cell, tn_tensor_device(dst), dtype, &args);
    return st == TN_DECLINE ? through_host(dst, src) : st;
}

/* The kernel walks a plan, which only same_dtype makes: a call from outside has none. */
tn_status tni_infer__copy(tn_infer *inf, const void *args) {
    (void)args;
    return tn_fail(TN_E_UNSUPPORTED, -1, "%s is for kernels; copy_ copies", inf->op->info.name);
}

/* The bytes of a dense block between devices. queued: nobody waits, where memory is pinned. */
static tn_status between_devices(tn_tensor *dst, const tn_tensor *src, bool queued) {
    uint64_t bytes = (uint64_t)(dst->v.numel * tn_view_itemsize(&dst->v));
    tni_move m = {dst->storage, src->storage, tni_offset_bytes(dst), tni_offset_bytes(src), bytes};
    return queued ? tni_move_queued(&m) : tni_move_bytes(&m);
}

static bool same_device(const tn_tensor *a, const tn_tensor *b) {
    return ((a->v.word ^ b->v.word) & (TN_W_DEVICE | TN_W_INDEX)) == 0;
}

/* Both are dense blocks in the same order of dimensions. */
static bool same_layout(const tn_view *a, const tn_view *b) {
    if (a->word & b->word & TN_W_CONTIGUOUS) return true;
    return (a->word & b->word & TN_W_DENSE) &&
           memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->ndim) == 0;
}

/* A queued copy reads pinned memory when its turn comes, and so the device converts. */
static tn_status convert_there(tn_tensor *dst, const tn_tensor *src) {
    tn_tensor *landed;
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(&src->v), tn_tensor_device(dst), src->v.ndim,
                               src->v.shape, &landed));
    tn_status st = between_devices(landed, src, true);
    if (st == TN_OK) st = other_dtype(dst, landed);
    tn_tensor_unref(&landed);
    return st;
}

/* src and dst have the same shape from here on. */
static tn_status copy_shaped(tn_tensor *dst, const tn_tensor *src, bool queued) {
    int32_t to = tn_view_dtype(&dst->v), from = tn_view_dtype(&src->v);
    bool alike = to == from;
    if (tni_is_meta(&dst->v)) return TN_OK;
    if (tni_is_meta(&src->v)) return tni_meta_no_data();
    if (same_device(dst, src)) return alike ? same_dtype(dst, src) : other_dtype(dst, src);
    if (alike && same_layout(&dst->v, &src->v)) return between_devices(dst, src, queued);
    if (queued && !alike && (src->v.word & TN_W_CONTIGUOUS) && tn_tensor_is_pinned(src))
        return convert_there(dst, src);
    const tn_op *op = alike ? &tni_op__copy : &tni_op__cast;
    if (tn_view_device(&dst->v) == 0 && !tni_kernel_find(op, tn_view_device(&src->v), from))
        return through_host(dst, src);
    /* Convert and pack on the source's side, unpack on the other. */
    tn_tensor *packed = NULL, *landed = NULL;
    tn_status st;
    if (alike && (src->v.word & TN_W_CONTIGUOUS))
        packed = tn_tensor_ref(tni_t(&src->v));
    else
        TN_TRY(tni_convert(src, to, &packed));
    if (dst->v.word & TN_W_CONTIGUOUS) {
        st = between_devices(dst, packed, queued);
    } else {
        st = tni_tensor_new_fast(to, tn_tensor_device(dst), dst->v.ndim, dst->v.shape, &landed);
        if (st == TN_OK) st = between_devices(landed, packed, queued);
        if (st == TN_OK) st = same_dtype(dst, landed);
    }
    tn_tensor_unref(&packed);
    tn_tensor_unref(&landed);
    return st;
}

static tn_status fail_sparse(const tn_tensor *dst, const tn_tensor *src) {
    return tn_fail(TN_E_UNSUPPORTED, -1, "elements of a %s tensor cannot be copied to a %s one",
                   tn_layout_name(tn_tensor_layout(src)), tn_layout_name(tn_tensor_layout(dst)));
}

/* A tensor with a layout: late, or sparse. */
static tn_status have_memory(const tn_tensor *t) {
    TN_TRY(tni_settle(t));
    return t->v.word & TN_W_LAYOUT ? fail_sparse(t, t) : TN_OK;
}

static tn_status copy_into(tn_tensor *dst, const tn_tensor *src, bool queued) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    int32_t n, skip;
    if (TN_UNLIKELY(tni_tls.layers != 0)) tni_note_write();
    if (TN_UNLIKELY((dst->v.word | src->v.word) & TN_W_LAYOUT)) {
        TN_TRY(tni_settle(dst));
        TN_TRY(tni_settle(src));
        if ((dst->v.word | src->v.word) & TN_W_LAYOUT) return fail_sparse(dst, src);
    }
    if (src->v.word & TN_W_SCALAR) { /* a number may live on the stack */
        tn_scalar s;
        tn_tensor *heap;
        tni_scalar_load(tn_view_dtype(&src->v), src->v.data, &s);
        /* A kernel gets it as an argument, so that nobody waits for a copy. */
        if (tn_view_device(&dst->v) != 0) return tni_fill(dst, s);
        tn_device cpu = {0, 0};
        TN_TRY(tni_tensor_new_fast(tn_view_dtype(&dst->v), cpu, 0, NULL, &heap));
        tni_scalar_store(&s, tn_view_dtype(&dst->v), heap->v.data);
        tn_status st = copy_into(dst, heap, queued);
        tn_tensor_unref(&heap);
        return st;
    }
    if (tni_shape_is(dst, src->v.ndim, src->v.shape)) return copy_shaped(dst, src, queued);
    TN_TRY(tni_broadcast_shapes(dst->v.ndim, dst->v.shape, src->v.ndim, src->v.shape, &n, shape));
    /* leading sizes of 1 of the source may be dropped, as in x[0] = y[None] */
    for (skip = 0; skip < src->v.ndim - dst->v.ndim && src->v.shape[skip] == 1;) skip++;
    if (n - skip != dst->v.ndim || !tni_shape_is(dst, dst->v.ndim, shape + skip))
        return tn_fail(TN_E_SHAPE, -1, "output with shape %s doesn't match the broadcast shape %s",
                       tni_shape_text_of(&dst->v), tni_shape_text(n, shape));
    for (int32_t i = 0; i < dst->v.ndim; i++) {
        int32_t k = i - (dst->v.ndim - src->v.ndim);
        strides[i] = k < 0 || src->v.shape[k] == 1 ? 0 : src->v.strides[k];
    }
    tn_tensor *wide;
    TN_TRY(tni_view_new(src, tn_view_dtype(&src->v), dst->v.ndim, dst->v.shape, strides, 0, &wide));
    tn_status st = copy_shaped(dst, wide, queued);
    tn_tensor_unref(&wide);
    return st;
}

tn_status tni_copy_into(tn_tensor *dst, const tn_tensor *src) { return copy_into(dst, src, false); }

tn_status tni_copy_queued(tn_tensor *dst, const tn_tensor *src) {
    return copy_into(dst, src, true);
}

tn_status tni_convert(const tn_tensor *t, int32_t dtype, tn_tensor **ret_tensor) {
    tn_tensor *r;
    TN_TRY(tni_tensor_new_fast(dtype, tn_tensor_device(t), t->v.ndim, t->v.shape, &r));
    tn_status st = tni_copy_into(r, t);
    if (st != TN_OK) {
        tn_tensor_unref(&r);
        return st;
    }
    *ret_tensor = r;
    return TN_OK;
}

tn_status tni_packed(tn_tensor *t, tn_tensor **ret_tensor) {
    if (t->v.word & TN_W_CONTIGUOUS) {
        *ret_tensor = tn_tensor_ref(t);
        return TN_OK;
    }
    return tni_convert(t, tn_view_dtype(&t->v), ret_tensor);
}

/* ---- One number everywhere ----------------------------------------------------------------------*/

/* For a device without a kernel that fills, and for dtypes that no kernel knows. */
static tn_status fill_from_host(tn_tensor *t, tn_scalar value) {
    tn_tensor *number;
    if (tn_view_device(&t->v) == 0 && tn_view_dtype(&t->v) < TN_DTYPE_BUILTIN_COUNT)
        return tni_kernel_missing(&tni_op__copy, (tn_device){0, 0}, tn_view_dtype(&t->v));
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(&t->v), (tn_device){0, 0}, 0, NULL, &number));
    tni_scalar_store(&value, tn_view_dtype(&t->v), number->v.data);
    tn_status st = tni_copy_into(t, number);
    tn_tensor_unref(&number);
    return st;
}

tn_status tni_fill(tn_tensor *t, tn_scalar value) {
    const tn_op *op = &tni_op__copy;
    _Alignas(16) unsigned char number[16];
    tn_plan plan;
    tn_tensor *ts[2] = {t, t};
    void *numbers[2] = {NULL, number};
    int32_t dtype = tn_view_dtype(&t->v);
    if (TN_UNLIKELY(t->v.word & TN_W_LAYOUT)) TN_TRY(have_memory(t));
    if (t->v.numel == 0) return TN_OK;
    const tn_cell *cell = tni_kernel_find(op, tn_view_device(&t->v), dtype);
    if (!cell) return fill_from_host(t, value);
    tni_scalar_store(&value, dtype, number);
    tni_plan_build(&plan, 2, 1, ts, 2u, numbers, t->v.ndim, t->v.shape, 0);
    tn__copy_args args = {.plan = &plan, .input = &t->v, .out = &t->v};
    tn_status st = tni_kernel_run(op, cell, tn_tensor_device(t), dtype, &args);
    return st == TN_DECLINE ? fill_from_host(t, value) : st;
}

/* ---- Element access of the C API ---------------------------------------------------------------*/

/* A packed tensor on the CPU with t's values. */
static tn_status to_host(const tn_tensor *t, tn_tensor **ret_tensor) {
    tn_device cpu = {0, 0};
    if (tn_view_device(&t->v) == 0) return tni_packed(tni_t(&t->v), ret_tensor);
    tn_tensor *r;
    TN_TRY(tni_tensor_new_fast(tn_view_dtype(&t->v), cpu, t->v.ndim, t->v.shape, &r));
    tn_status st = tni_copy_into(r, t); /* which waits for the tensor's stream */
    if (st != TN_OK) {
        tn_tensor_unref(&r);
        return st;
    }
    *ret_tensor = r;
    return TN_OK;
}

static tn_status sparse_item(const tn_tensor *t, tn_scalar *ret_value) {
    tn_tensor *dense = NULL;
    tni_grad_off();
    tn_status st = tn_to_dense(tni_t(&t->v), -1, 1, &dense);
    tni_grad_on();
    if (st == TN_OK) st = tn_tensor_item(dense, ret_value);
    tn_tensor_unref(&dense);
    return st;
}

tn_status tn_tensor_item(const tn_tensor *t, tn_scalar *ret_value) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "item: the tensor is NULL");
    if (TN_UNLIKELY(t->v.word & TN_W_LAYOUT)) {
        TN_TRY(tni_settle(t));
        if (tni_is_sparse(t) && t->v.numel == 1) return sparse_item(t, ret_value);
        TN_TRY(have_memory(t));
    }
    if (t->v.numel != 1)
        return tn_fail(TN_E_STATE, 0, "a Tensor with %lld elements cannot be converted to Scalar",
                       (long long)t->v.numel);
    if (!(t->v.word & TN_W_SCALAR)) TN_TRY(tn_graph_check_read(t));
    if (tni_is_meta(&t->v))
        return tn_fail(TN_E_STATE, 0, "Tensor.item() cannot be called on meta tensors");
    if (tn_view_device(&t->v) == 0) {
        tni_scalar_load(tn_view_dtype(&t->v), t->v.data, ret_value);
        return TN_OK;
    }
    tn_tensor *h;
    TN_TRY(to_host(t, &h));
    tni_scalar_load(tn_view_dtype(&h->v), h->v.data, ret_value);
    tn_tensor_unref(&h);
    return TN_OK;
}

static tn_status check_bytes(const tn_tensor *t, const void *p, uint64_t bytes) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    if (TN_UNLIKELY(t->v.word & TN_W_LAYOUT)) TN_TRY(have_memory(t));
    uint64_t want = (uint64_t)(t->v.numel * tn_view_itemsize(&t->v));
    if (bytes != want)
        return tn_fail(TN_E_VALUE, 2, "the tensor has %llu bytes, the buffer %llu",
                       (unsigned long long)want, (unsigned long long)bytes);
    if (bytes && !p) return tn_fail(TN_E_VALUE, 1, "the buffer is NULL");
    return TN_OK;
}

tn_status tn_tensor_read(const tn_tensor *t, void *dst, uint64_t bytes) {
    tn_tensor *h;
    TN_TRY(check_bytes(t, dst, bytes));
    TN_TRY(tn_graph_check_read(t));
    TN_TRY(to_host(t, &h));
    if (bytes) memcpy(dst, h->v.data, bytes);
    tn_tensor_unref(&h);
    return TN_OK;
}

tn_status tn_tensor_write(tn_tensor *t, const void *src, uint64_t bytes) {
    tn_tensor *h;
    TN_TRY(check_bytes(t, src, bytes));
    if (tni_is_readonly(t))
        return tn_fail(TN_E_VALUE, 0, "write: the tensor's memory is read-only");
    TN_TRY(tni_check_no_internal_overlap(t));
    TN_TRY(tn_tensor_from_data(tn_view_dtype(&t->v), t->v.ndim, t->v.shape, src, &h));
    tn_status st = tni_copy_into(t, h);
    if (st == TN_OK) tni_bump_version(t);
    tn_tensor_unref(&h);
    return st;
}
