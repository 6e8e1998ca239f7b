/* shape.c: shape operators made of views: reshape and its relatives, the splits, the
 * adjoints of the views that read a part (zeros with the part written), and the in-place forms that
 * change a tensor's own geometry. */
#include <stdlib.h>

#include <tenon/args_shape.h>
#include <tenon/ops_create.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_shape.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "op_shape.h"
#include "plan_priv.h"
#include "scope_priv.h"
#include "shape_priv.h"

/* ---- reshape -----------------------------------------------------------------------------------*/

static tn_status reshaped(tn_tensor *x, tn_ints size, tn_tensor **ret) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    TN_TRY(tni_infer_sizes(size, x->v.numel, shape));
    if (!(x->flags & TNI_T_STACK) && tni_view_strides(&x->v, (int32_t)size.n, shape, strides))
        return tn_view_size(x, tn_ints_of(shape, size.n), ret);
    tn_tensor *copy = NULL;
    TN_TRY(tn_clone(x, TN_FORMAT_CONTIGUOUS, &copy));
    tn_status st = tn_view_size(copy, tn_ints_of(shape, size.n), ret);
    tn_tensor_unref(&copy);
    return st;
}

tn_status tni_composite_reshape(const void *args, tn_tensor **rets) {
    const tn_reshape_args *a = args;
    return reshaped(tni_t(a->input), a->shape, rets);
}

tn_status tni_composite_flatten(const void *args, tn_tensor **rets) {
    const tn_flatten_args *a = args;
    const tn_view *v = a->input;
    int64_t shape[TN_MAX_DIMS], n = 0, run = 1;
    if (a->start_dim > a->end_dim)
        return tn_fail(TN_E_SHAPE, 1,
                       "flatten() has invalid args: start_dim cannot come after end_dim");
    if (v->ndim == 0) return reshaped(tni_t(v), TN_INTS(1), rets);
    if (a->start_dim == a->end_dim) {
        rets[0] = tn_tensor_ref(tni_t(v));
        return TN_OK;
    }
    for (int32_t i = 0; i < v->ndim; i++) {
        bool inside = i >= a->start_dim && i <= a->end_dim;
        if (inside) run *= v->shape[i];
        if (!inside) shape[n++] = v->shape[i];
        if (i == a->end_dim) shape[n++] = run;
    }
    return reshaped(tni_t(v), tn_ints_of(shape, n), rets);
}

tn_status tni_composite_unflatten(const void *args, tn_tensor **rets) {
    const tn_unflatten_args *a = args;
    const tn_view *v = a->input;
    int64_t shape[TN_MAX_DIMS], parts[TN_MAX_DIMS];
    int64_t whole = v->ndim ? v->shape[a->dim] : 1;
    if (a->sizes.n <= 0) return tn_fail(TN_E_SHAPE, 2, "unflatten: sizes must be non-empty");
    if (a->sizes.n + v->ndim - 1 > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 2, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    if (tni_infer_sizes(a->sizes, whole, parts) != TN_OK)
        return tn_fail(
            TN_E_SHAPE, 2,
            "unflatten: Provided sizes %s don't multiply up to the size of dim %lld (%lld) "
            "in the input tensor",
            tni_shape_text((int32_t)a->sizes.n, a->sizes.v), (long long)a->dim, (long long)whole);
    int64_t n = 0;
    for (int32_t i = 0; i < (v->ndim ? v->ndim : 1); i++) {
        if (i != a->dim) shape[n++] = v->shape[i];
        for (int64_t k = 0; i == a->dim && k < a->sizes.n; k++) shape[n++] = parts[k];
    }
    return reshaped(tni_t(v), tn_ints_of(shape, n), rets);
}

tn_status tni_composite_as_strided(const void *args, tn_tensor **rets) {
    const tn_as_strided_args *a = args;
    int64_t own = tn_tensor_storage_offset(tni_t(a->input));
    int64_t offset = a->storage_offset.has ? a->storage_offset.value : own;
    return tn__as_strided(tni_t(a->input), a->size, a->stride, offset, own, rets);
}

/* ---- Order of dimensions -----------------------------------------------------------------------*/

tn_status tni_composite__unpermute(const void *args, tn_tensor **rets) {
    const tn__unpermute_args *a = args;
    int64_t back[TN_MAX_DIMS];
    for (int64_t i = 0; i < a->dims.n; i++) {
        int64_t d = 0;
        TN_TRY(tni_wrap_dim(a->dims.v[i], a->input->ndim, &d));
        back[d] = i;
    }
    return tn_permute(tni_t(a->input), tn_ints_of(back, a->dims.n), rets);
}

tn_status tni_composite_movedim(const void *args, tn_tensor **rets) {
    const tn_movedim_args *a = args;
    int32_t ndim = a->input->ndim;
    int64_t order[TN_MAX_DIMS];
    uint64_t from = 0, to = 0;
    if (a->source.n != a->destination.n)
        return tn_fail(
            TN_E_SHAPE, 1,
            "movedim: Invalid source or destination dims: source (%s dims) should contain "
            "the same number of dims as destination (%s dims)",
            tni_shape_text((int32_t)a->source.n, a->source.v),
            tni_shape_text((int32_t)a->destination.n, a->destination.v));
    for (int64_t i = 0; i < a->source.n; i++) {
        int64_t s = 0, d = 0;
        TN_TRY(tni_wrap_dim(a->source.v[i], ndim, &s));
        TN_TRY(tni_wrap_dim(a->destination.v[i], ndim, &d));
        if (from >> s & 1u)
            return tn_fail(TN_E_SHAPE, 1, "movedim: repeated dim in `source` (%s)",
                           tni_shape_text((int32_t)a->source.n, a->source.v));
        if (to >> d & 1u)
            return tn_fail(TN_E_SHAPE, 2, "movedim: repeated dim in `destination` (%s)",
                           tni_shape_text((int32_t)a->destination.n, a->destination.v));
        from |= UINT64_C(1) << s;
        to |= UINT64_C(1) << d;
        order[d] = s;
    }
    int32_t s = 0;
    for (int32_t d = 0; d < ndim; d++) {
        if (to >> d & 1u) continue;
        while (from >> s & 1u) s++;
        order[d] = s++;
    }
    return tn_permute(tni_t(a->input), tn_ints_of(order, ndim), rets);
}

/* ---- Adjoints of partial views -----------------------------------------------------------------*/

static tn_status zeros_for(const tn_view *grad, tn_ints size, tn_tensor **ret) {
    return tn_new_zeros(tni_t(grad), size, -1, -1, ret);
}

/* Writes grad into `part`, a view of `whole`, and hands over the whole. Takes both references. */
static tn_status write_part(tn_status st, tn_tensor *whole, tn_tensor *part, const tn_view *grad,
                            tn_tensor **rets) {
    if (st == TN_OK) st = tni_copy_into(part, tni_t(grad));
    tn_tensor_unref(&part);
    if (st == TN_OK)
        rets[0] = whole;
    else
        tn_tensor_unref(&whole);
    return st;
}

tn_status tni_composite__select_backward(const void *args, tn_tensor **rets) {
    const tn__select_backward_args *a = args;
    tn_tensor *whole, *part = NULL;
    TN_TRY(zeros_for(a->grad, a->size, &whole));
    tn_status st = tn_select(whole, a->dim, a->index, &part);
    return write_part(st, whole, part, a->grad, rets);
}

tn_status tni_composite__slice_backward(const void *args, tn_tensor **rets) {
    const tn__slice_backward_args *a = args;
    tn_tensor *whole, *part = NULL;
    TN_TRY(zeros_for(a->grad, a->size, &whole));
    tn_status st = tn_slice(whole, a->dim, a->start, a->end, a->step, &part);
    return write_part(st, whole, part, a->grad, rets);
}

tn_status tni_composite__diagonal_backward(const void *args, tn_tensor **rets) {
    const tn__diagonal_backward_args *a = args;
    tn_tensor *whole, *part = NULL;
    TN_TRY(zeros_for(a->grad, a->size, &whole));
    tn_status st = tn_diagonal(whole, a->offset, a->dim1, a->dim2, &part);
    return write_part(st, whole, part, a->grad, rets);
}

/* Adds the k-th elements of all windows to what they were taken from. */
static tn_status add_elements(tn_tensor *whole, const tn__unfold_backward_args *a, int64_t windows,
                              int64_t k) {
    tni_scope s = {0};
    tn_opt_int first = tn_some_int(k), end = tn_some_int(k + (windows - 1) * a->step + 1);
    tn_tensor *part = SCOPE(&s, tn_slice(whole, a->dimension, first, end, a->step, scope_slot(&s)));
    tn_tensor *from = SCOPE(&s, tn_select(tni_t(a->grad), -1, k, scope_slot(&s)));
    if (s.st == TN_OK) s.st = tn_add_(part, from, tn_scalar_int(1));
    return scope_finish(&s, NULL, NULL);
}

/* Windows may overlap, the k-th elements of all windows do not. */
tn_status tni_composite__unfold_backward(const void *args, tn_tensor **rets) {
    const tn__unfold_backward_args *a = args;
    bool fits = a->grad->ndim == (a->shape.n ? a->shape.n + 1 : 1) && a->step > 0 &&
                a->grad->shape[a->grad->ndim - 1] == a->size && a->dimension >= 0 &&
                a->dimension < (a->shape.n ? a->shape.n : 1);
    if (!fits)
        return tn_fail(TN_E_SHAPE, 0, "_unfold_backward(): gradient of size %s does not fit",
                       tni_shape_text_of(a->grad));
    int64_t windows = a->shape.n ? a->grad->shape[a->dimension] : 1;
    tni_scope s = {0};
    tn_tensor *whole = SCOPE(&s, zeros_for(a->grad, a->shape, scope_slot(&s)));
    tn_tensor *line = a->shape.n ? whole : scope_reshape(&s, whole, TN_INTS(1));
    for (int64_t k = 0; s.st == TN_OK && k < a->size; k++) {
        s.st = add_elements(line, a, windows, k);
    }
    return scope_finish(&s, whole, rets);
}

/* ---- Parts -------------------------------------------------------------------------------------*/

tn_status tni_composite_narrow_tensor(const void *args, tn_tensor **rets) {
    const tn_narrow_tensor_args *a = args;
    int32_t dtype = tn_view_dtype(a->start);
    tn_scalar start;
    if (a->start->ndim != 0 || dtype == TN_BOOL || tn_dtype_category(dtype) != TN_CAT_INT)
        return tn_fail(TN_E_STATE, 2, "start must be an 0-dim integral Tensor.");
    TN_TRY(tn_tensor_item(tni_t(a->start), &start));
    return tn_narrow(tni_t(a->input), a->dim, start.i, a->length, &rets[0]);
}

tn_status tni_composite_narrow(const void *args, tn_tensor **rets) {
    const tn_narrow_args *a = args;
    const tn_view *v = a->input;
    int64_t start = a->start;
    if (v->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "narrow() cannot be applied to a 0-dim tensor.");
    int64_t size = v->shape[a->dim];
    if (a->length < 0) return tn_fail(TN_E_SHAPE, 3, "narrow(): length must be non-negative.");
    if (start < -size || start > size)
        return tn_fail(TN_E_INDEX, 2,
                       "start out of range (expected to be in range of [%lld, %lld], but got %lld)",
                       (long long)-size, (long long)size, (long long)start);
    if (start < 0) start += size;
    if (start > size - a->length)
        return tn_fail(TN_E_SHAPE, 2, "start (%lld) + length (%lld) exceeds dimension size (%lld).",
                       (long long)start, (long long)a->length, (long long)size);
    return tn_slice(tni_t(v), a->dim, tn_some_int(start), tn_some_int(start + a->length), 1, rets);
}

/* Splits v into n parts. Takes `sizes`, which came from malloc. */
static tn_status split_into(const tn_view *v, int64_t n, int64_t *sizes, int64_t dim,
                            tn_tensor **rets) {
    tn_status st =
        tn_split_with_sizes(tni_t(v), tn_ints_of(sizes, n), dim, (tn_tensor_list *)(void *)rets);
    free(sizes);
    return st;
}

static tn_status new_sizes(int64_t n, int64_t **ret_sizes) {
    *ret_sizes = n < INT32_MAX ? calloc((size_t)(n > 0 ? n : 1), sizeof **ret_sizes) : NULL;
    if (!*ret_sizes) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    return TN_OK;
}

static tn_status split_by(const tn_view *v, int64_t each, int64_t dim, tn_tensor **rets) {
    int64_t *sizes;
    if (v->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "split expects at least a 1-dimensional tensor");
    int64_t size = v->shape[dim];
    if (each < 0)
        return tn_fail(TN_E_SHAPE, 1,
                       "split expects split_size be non-negative, but got split_size=%lld",
                       (long long)each);
    if (each == 0 && size != 0)
        return tn_fail(
            TN_E_SHAPE, 1,
            "split_size can only be 0 if dimension size is 0, but got dimension size of %lld",
            (long long)size);
    int64_t n = each == 0 || size == 0 ? 1 : (size - 1) / each + 1;
    TN_TRY(new_sizes(n, &sizes));
    for (int64_t i = 0; i < n; i++) sizes[i] = i + 1 < n ? each : size - each * (n - 1);
    return split_into(v, n, sizes, dim, rets);
}

tn_status tni_composite_split(const void *args, tn_tensor **rets) {
    const tn_split_args *a = args;
    return split_by(a->tensor, a->split_size_or_sections, a->dim, rets);
}

tn_status tni_composite_split_sizes(const void *args, tn_tensor **rets) {
    const tn_split_sizes_args *a = args;
    return tn_split_with_sizes(tni_t(a->tensor), a->split_size_or_sections, a->dim,
                               (tn_tensor_list *)(void *)rets);
}

tn_status tni_composite_split_method(const void *args, tn_tensor **rets) {
    const tn_split_method_args *a = args;
    return split_by(a->input, a->split_size, a->dim, rets);
}

tn_status tni_composite_split_method_sizes(const void *args, tn_tensor **rets) {
    const tn_split_method_sizes_args *a = args;
    return tn_split_with_sizes(tni_t(a->input), a->split_size, a->dim,
                               (tn_tensor_list *)(void *)rets);
}

tn_status tni_composite_chunk(const void *args, tn_tensor **rets) {
    const tn_chunk_args *a = args;
    const tn_view *v = a->input;
    if (v->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "chunk expects at least a 1-dimensional tensor");
    if (a->chunks <= 0)
        return tn_fail(TN_E_SHAPE, 1, "chunk expects `chunks` to be greater than 0, got: %lld",
                       (long long)a->chunks);
    int64_t size = v->shape[a->dim];
    if (size == 0) { /* as many empty parts as asked for */
        int64_t *sizes;
        TN_TRY(new_sizes(a->chunks, &sizes));
        memset(sizes, 0, (size_t)a->chunks * sizeof *sizes);
        return split_into(v, a->chunks, sizes, a->dim, rets);
    }
    return split_by(v, (size - 1) / a->chunks + 1, a->dim, rets);
}

static tn_status tensor_split_check(const tn_view *v) {
    if (v->ndim > 0) return TN_OK;
    return tn_fail(
        TN_E_SHAPE, 0,
        "tensor_split expected at least a 1-dimensional tensor, but got a tensor with %d "
        "dims",
        (int)v->ndim);
}

tn_status tni_composite_tensor_split(const void *args, tn_tensor **rets) {
    const tn_tensor_split_args *a = args;
    int64_t n = a->indices_or_sections, *sizes;
    TN_TRY(tensor_split_check(a->input));
    if (n <= 0)
        return tn_fail(TN_E_SHAPE, 1, "number of sections must be larger than 0, got %lld",
                       (long long)n);
    int64_t size = a->input->shape[a->dim];
    TN_TRY(new_sizes(n, &sizes));
    for (int64_t i = 0; i < n; i++) sizes[i] = size / n + (i < size % n);
    return split_into(a->input, n, sizes, a->dim, rets);
}

/* Cuts may run backwards or past the end, as Python's slices do, so every part is a slice. */
tn_status tni_composite_tensor_split_indices(const void *args, tn_tensor **rets) {
    const tn_tensor_split_indices_args *a = args;
    tn_tensor_list *list = (tn_tensor_list *)(void *)rets;
    int64_t n = a->indices_or_sections.n + 1, from = 0;
    TN_TRY(tensor_split_check(a->input));
    *list = (tn_tensor_list){calloc((size_t)n, sizeof *list->v), 0};
    if (!list->v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    int64_t size = a->input->shape[a->dim];
    for (int64_t i = 0; i < n; i++) {
        int64_t to = i + 1 < n ? a->indices_or_sections.v[i] : size;
        tn_status st =
            tn_slice(tni_t(a->input), a->dim, tn_some_int(from), tn_some_int(to), 1, &list->v[i]);
        if (st != TN_OK) {
            tn_tensor_list_free(list);
            return st;
        }
        list->n++;
        from = to;
    }
    return TN_OK;
}

/* ---- Complex numbers ---------------------------------------------------------------------------*/

static tn_status part_of_complex(const tn_view *v, int64_t which, tn_tensor **rets) {
    tn_tensor *pairs = NULL;
    TN_TRY(tn_view_as_real(tni_t(v), &pairs));
    tn_status st = tn_select(pairs, -1, which, rets);
    tn_tensor_unref(&pairs);
    return st;
}

tn_status tni_composite_real(const void *args, tn_tensor **rets) {
    const tn_real_args *a = args;
    if (tn_dtype_category(tn_view_dtype(a->input)) == TN_CAT_COMPLEX)
        return part_of_complex(a->input, 0, rets);
    rets[0] = tn_tensor_ref(tni_t(a->input));
    return TN_OK;
}

tn_status tni_composite_imag(const void *args, tn_tensor **rets) {
    const tn_imag_args *a = args;
    if (tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_COMPLEX)
        return tn_fail(TN_E_DTYPE, 0,
                       "imag is not implemented for tensors with non-complex dtypes.");
    return part_of_complex(a->input, 1, rets);
}

/* ---- In place ----------------------------------------------------------------------------------*/

/* self takes over the geometry and the history of `changed`, a view of it. Takes the reference. */
static tn_status become(tn_status st, tn_tensor *self, tn_tensor *changed, tn_tensor **rets) {
    if (st == TN_OK) st = tn_tensor_set_data(self, changed);
    tn_tensor_note_change(st == TN_OK ? self : NULL);
    if (st == TN_OK && changed->grad_fn) {
        tn_node *old = self->grad_fn;
        self->grad_fn = changed->grad_fn; /* the reference moves along */
        self->output_nr = changed->output_nr;
        changed->grad_fn = old;
    }
    tn_tensor_unref(&changed);
    if (st == TN_OK) rets[0] = tn_tensor_ref(self);
    return st;
}

tn_status tni_composite_squeeze_(const void *args, tn_tensor **rets) {
    const tn_squeeze__args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_squeeze(tni_t(a->self), &y);
    return become(st, tni_t(a->self), y, rets);
}

tn_status tni_composite_squeeze__dim(const void *args, tn_tensor **rets) {
    const tn_squeeze__dim_args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_squeeze_dim(tni_t(a->self), a->dim, &y);
    return become(st, tni_t(a->self), y, rets);
}

tn_status tni_composite_squeeze__dims(const void *args, tn_tensor **rets) {
    const tn_squeeze__dims_args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_squeeze_dims(tni_t(a->self), a->dim, &y);
    return become(st, tni_t(a->self), y, rets);
}
tn_status tni_composite_unsqueeze_(const void *args, tn_tensor **rets) {
    const tn_unsqueeze__args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_unsqueeze(tni_t(a->self), a->dim, &y);
    return become(st, tni_t(a->self), y, rets);
}

tn_status tni_composite_transpose_(const void *args, tn_tensor **rets) {
    const tn_transpose__args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_transpose(tni_t(a->self), a->dim0, a->dim1, &y);
    return become(st, tni_t(a->self), y, rets);
}

tn_status tni_composite_as_strided_(const void *args, tn_tensor **rets) {
    const tn_as_strided__args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_as_strided(tni_t(a->self), a->size, a->stride, a->storage_offset, &y);
    return become(st, tni_t(a->self), y, rets);
}

tn_status tni_composite_t_(const void *args, tn_tensor **rets) {
    const tn_t__args *a = args;
    tn_tensor *y = NULL;
    tn_status st = tn_t(tni_t(a->self), &y);
    return become(st, tni_t(a->self), y, rets);
}
