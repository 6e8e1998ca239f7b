/* scatter.c: shape rules of the operators that index, sort and search. Shapes and dtypes are
 * checked here; values of indices in the kernels. The messages are PyTorch's. */
#include <math.h>

#include <tenon/args_index.h>
#include <tenon/args_parts.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_parts.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "call_priv.h"
#include "infer_priv.h"
#include "op_index.h"
#include "op_parts.h"
#include "plan_priv.h"
#include "rule_priv.h"
#include "scope_priv.h"
#include "shape_priv.h"

/* ---- gather, scatter ---------------------------------------------------------------------------*/

/* `index` may not be larger than `other`, but along dim (none: -1). */
static bool no_larger(const tn_view *index, const tn_view *other, int64_t dim) {
    int32_t n = index->ndim ? index->ndim : 1;
    for (int32_t d = 0; d < n; d++)
        if (d != dim && rule_size_at(index, d) > rule_size_at(other, d)) return false;
    return true;
}

static int32_t rank_of(const tn_view *v) { return v->ndim ? v->ndim : 1; }

tn_status tni_infer_gather(tn_infer *inf, const void *args) {
    const tn_gather_args *a = args;
    TN_TRY(rule_index_dtype("gather", a->index));
    if (a->index->numel == 0) return tni_infer_set(inf, 0, a->index->ndim, a->index->shape);
    if (rank_of(a->index) != rank_of(a->input))
        return tn_fail(TN_E_SHAPE, 2,
                       "Index tensor must have the same number of dimensions as input tensor");
    if (!no_larger(a->index, a->input, a->dim))
        return tn_fail(
            TN_E_SHAPE, 2,
            "Size does not match at dimension expected index %s to be no larger than self "
            "%s apart from dimension %lld",
            tni_shape_text_of(a->index), tni_shape_text_of(a->input), (long long)a->dim);
    return tni_infer_set(inf, 0, a->index->ndim, a->index->shape);
}

tn_status tni_infer__scatter_(tn_infer *inf, const void *args) {
    const tn__scatter__args *a = args;
    tni_infer_same(inf, 0, a->self);
    TN_TRY(rule_index_dtype("scatter", a->index));
    if (tn_view_dtype(a->self) != tn_view_dtype(a->src))
        return tn_fail(TN_E_DTYPE, 3, "scatter(): Expected self.dtype to be equal to src.dtype");
    if (a->index->numel == 0) return TN_OK;
    if (rank_of(a->index) != rank_of(a->self))
        return tn_fail(TN_E_SHAPE, 2,
                       "Index tensor must have the same number of dimensions as self tensor");
    if (rank_of(a->index) != rank_of(a->src))
        return tn_fail(TN_E_SHAPE, 3,
                       "Index tensor must have the same number of dimensions as src tensor");
    if (!no_larger(a->index, a->self, a->dim) || !no_larger(a->index, a->src, -1))
        return tn_fail(
            TN_E_SHAPE, 2,
            "Expected index %s to be no larger than self %s apart from dimension %lld and "
            "to be no larger than src %s",
            tni_shape_text_of(a->index), tni_shape_text_of(a->self), (long long)a->dim,
            tni_shape_text_of(a->src));
    return TN_OK;
}

/* ---- scatter -----------------------------------------------------------------------------------*/

tn_status tni_composite_scatter_(const void *args, tn_tensor **rets) {
    const tn_scatter__args *a = args;
    return tn__scatter_(tni_t(a->self), a->dim, tni_t(a->index), tni_t(a->src), TN_SCATTER_SET,
                        rets);
}

tn_status tni_composite_scatter_add_(const void *args, tn_tensor **rets) {
    const tn_scatter_add__args *a = args;
    return tn__scatter_(tni_t(a->self), a->dim, tni_t(a->index), tni_t(a->src), TN_SCATTER_ADD,
                        rets);
}

static tn_status how_of(const char *reduce, int64_t *ret_how) {
    *ret_how = reduce && strcmp(reduce, "multiply") == 0 ? TN_SCATTER_MULTIPLY : TN_SCATTER_ADD;
    if (reduce && (*ret_how == TN_SCATTER_MULTIPLY || strcmp(reduce, "add") == 0)) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "reduce argument must be either add or multiply.");
}

tn_status tni_composite_scatter__with_reduce(const void *args, tn_tensor **rets) {
    const tn_scatter__with_reduce_args *a = args;
    int64_t how = TN_SCATTER_SET;
    TN_TRY(how_of(a->reduce, &how));
    return tn__scatter_(tni_t(a->self), a->dim, tni_t(a->index), tni_t(a->src), how, rets);
}

/* value at every place of index: one element, expanded. */
static tn_status scatter_value(tn_tensor *self, int64_t dim, tn_tensor *index, tn_scalar value,
                               int64_t how, tn_tensor **rets) {
    tn_tensor *one = NULL, *wide = NULL;
    TN_TRY(tn_new_full(self, (tn_ints){NULL, 0}, value, -1, -1, &one));
    tn_status st = tn_expand(one, tni_shape_ints(index), 0, &wide);
    if (st == TN_OK) st = tn__scatter_(self, dim, index, wide, how, rets);
    tn_tensor_unref(&one);
    tn_tensor_unref(&wide);
    return st;
}

tn_status tni_composite_scatter__value(const void *args, tn_tensor **rets) {
    const tn_scatter__value_args *a = args;
    return scatter_value(tni_t(a->self), a->dim, tni_t(a->index), a->value, TN_SCATTER_SET, rets);
}

tn_status tni_composite_scatter__value_reduce(const void *args, tn_tensor **rets) {
    const tn_scatter__value_reduce_args *a = args;
    int64_t how = TN_SCATTER_SET;
    TN_TRY(how_of(a->reduce, &how));
    return scatter_value(tni_t(a->self), a->dim, tni_t(a->index), a->value, how, rets);
}

tn_status tni_composite__scatter_cleared(const void *args, tn_tensor **rets) {
    const tn__scatter_cleared_args *a = args;
    tn_tensor *copy = NULL;
    TN_TRY(tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &copy));
    tn_status st =
        scatter_value(copy, a->dim, tni_t(a->index), tn_scalar_int(0), TN_SCATTER_SET, rets);
    tn_tensor_unref(&copy);
    return st;
}

tn_status tni_composite__gather_backward(const void *args, tn_tensor **rets) {
    const tn__gather_backward_args *a = args;
    tn_tensor *whole = NULL;
    TN_TRY(tn_new_zeros(tni_t(a->grad), a->size, -1, -1, &whole));
    if (a->index->numel == 0) { /* whatever its dtype */
        rets[0] = whole;
        return TN_OK;
    }
    tn_status st =
        tn__scatter_(whole, a->dim, tni_t(a->index), tni_t(a->grad), TN_SCATTER_ADD, rets);
    tn_tensor_unref(&whole);
    return st;
}

/* ---- scatter_reduce ----------------------------------------------------------------------------*/

enum { SUM, PROD, MEAN, LARGEST, SMALLEST };

static tn_status reduction_of(const char *text, int *ret) {
    static const char *const names[] = {"sum", "prod", "mean", "amax", "amin"};
    for (int i = 0; text && i < TN_COUNT(names); i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *ret = i;
        return TN_OK;
    }
    return tn_fail(TN_E_STATE, 4,
                   "reduce argument must be either sum, prod, mean, amax or amin, got %s",
                   text ? text : "None");
}

/* t with `zeros` (or all zeros of t when NULL) replaced by ones. */
static tn_status without_zeros(tn_tensor *t, tn_tensor *zeros, tn_tensor **ret) {
    tn_scalar_box one;
    tn_tensor *is_zero = NULL;
    tn_status st = zeros ? TN_OK : tn_eq_scalar(t, tn_scalar_int(0), &is_zero);
    tn_tensor *mask = zeros ? zeros : is_zero;
    if (st == TN_OK) st = tn_masked_fill(t, mask, tn_scalar_box_init(&one, tn_scalar_int(1)), ret);
    tn_tensor_unref(&is_zero);
    return st;
}

/* How many elements meet at every place of self; places without any count as one. */
static tn_status counts(tn_tensor *self, int64_t dim, tn_tensor *index, bool include_self,
                        tn_tensor **ret) {
    tn_tensor *n = NULL, *same = NULL;
    tn_status st = tn_full_like(self, tn_scalar_int(include_self), -1, -1, TN_FORMAT_PRESERVE, &n);
    if (st == TN_OK) st = scatter_value(n, dim, index, tn_scalar_int(1), TN_SCATTER_ADD, &same);
    if (st == TN_OK) st = without_zeros(n, NULL, ret);
    tn_tensor_unref(&n);
    tn_tensor_unref(&same);
    return st;
}

/* Without self in it, a place begins with what changes nothing: 0, 1, or one of its elements. */
static tn_status start_anew(tn_tensor *t, int64_t dim, tn_tensor *index, tn_tensor *src, int how) {
    tn_tensor *same = NULL;
    tn_status st;
    if (how == LARGEST || how == SMALLEST)
        st = tn__scatter_(t, dim, index, src, TN_SCATTER_SET, &same);
    else
        st = scatter_value(t, dim, index, tn_scalar_int(how == PROD), TN_SCATTER_SET, &same);
    tn_tensor_unref(&same);
    return st;
}

tn_status tni_composite_scatter_reduce(const void *args, tn_tensor **rets) {
    const tn_scatter_reduce_args *a = args;
    static const int64_t kernel[] = {TN_SCATTER_ADD, TN_SCATTER_MULTIPLY, TN_SCATTER_ADD,
                                     TN_SCATTER_AMAX, TN_SCATTER_AMIN};
    tn_tensor *index = tni_t(a->index), *src = tni_t(a->src);
    int how = SUM;
    TN_TRY(reduction_of(a->reduce, &how));
    tni_scope s = {0};
    tn_tensor *t = SCOPE(&s, tn_clone(tni_t(a->input), TN_FORMAT_CONTIGUOUS, scope_slot(&s)));
    if (s.st == TN_OK && !a->include_self) s.st = start_anew(t, a->dim, index, src, how);
    SCOPE(&s, tn__scatter_(t, a->dim, index, src, kernel[how], scope_slot(&s)));
    if (how == MEAN) {
        bool whole = tn_dtype_category(tn_view_dtype(a->input)) < TN_CAT_FLOAT;
        bool self = a->include_self != 0;
        tn_tensor *n = SCOPE(&s, counts(tni_t(a->input), a->dim, index, self, scope_slot(&s)));
        t = scope_binary(&s, whole ? tn_floor_divide : tn_true_divide, t, n);
    }
    return scope_finish(&s, t, rets);
}

static tn_tensor *scope_gather(tni_scope *s, tn_tensor *t, int64_t dim, tn_tensor *index) {
    return SCOPE(s, tn_gather(t, dim, index, 0, scope_slot(s)));
}

/* The product that the call makes of self and src, of these. */
static tn_tensor *scope_product(tni_scope *s, const tn__scatter_reduce_backward_args *a,
                                tn_tensor *self, tn_tensor *src) {
    return SCOPE(s, tn_scatter_reduce(self, a->dim, tni_t(a->index), src, "prod", a->include_self,
                                      scope_slot(s)));
}

/* g shared among the elements that are the extreme: self where it is, and those of src. */
static tn_status extreme_backward(const tn__scatter_reduce_backward_args *a, tn_tensor **rets) {
    tn_tensor *input = tni_t(a->input), *index = tni_t(a->index), *src = tni_t(a->src);
    tn_tensor *result = tni_t(a->result);
    int64_t dtype = tn_view_dtype(a->grad);
    tni_scope s = {0};
    tn_tensor *value = scope_gather(&s, result, a->dim, index);
    tn_tensor *self_is = scope_binary(&s, tn_eq, input, result);
    tn_tensor *src_is = scope_binary(&s, tn_eq, src, value);
    tn_tensor *self_n = scope_convert(&s, self_is, dtype);
    tn_tensor *src_n = scope_convert(&s, src_is, dtype);
    tn_tensor *n = SCOPE(&s, tn_scatter_add(self_n, a->dim, index, src_n, scope_slot(&s)));
    tn_tensor *share = scope_true_divide(&s, tni_t(a->grad), n);
    if (!a->for_src) return scope_finish(&s, scope_mul(&s, share, self_n), rets);
    tn_tensor *there = scope_gather(&s, share, a->dim, index);
    return scope_finish(&s, scope_mul(&s, there, src_n), rets);
}

/* d(product)/d(self): the product with self taken as 1 where it is 0, divided by self. */
static tn_status prod_backward_self(const tn__scatter_reduce_backward_args *a, tn_tensor **rets) {
    tni_scope s = {0};
    tn_tensor *filled = SCOPE(&s, without_zeros(tni_t(a->input), NULL, scope_slot(&s)));
    tn_tensor *product = scope_product(&s, a, filled, tni_t(a->src));
    tn_tensor *scaled = scope_mul(&s, tni_t(a->grad), product);
    return scope_finish(&s, scope_true_divide(&s, scaled, filled), rets);
}

/* A zero of src that is alone at its place takes the product of the others; elsewhere it is the
 * product divided by the element. */
static tn_status prod_backward_src(const tn__scatter_reduce_backward_args *a, tn_tensor **rets) {
    tn_tensor *input = tni_t(a->input), *index = tni_t(a->index), *src = tni_t(a->src);
    tn_tensor *g = tni_t(a->grad);
    tn_scalar one = tn_scalar_int(1), none = tn_scalar_int(0);
    tni_scope s = {0};
    tn_tensor *zero = SCOPE(&s, tn_eq_scalar(src, none, scope_slot(&s)));
    tn_tensor *zero_n = scope_convert(&s, zero, tn_view_dtype(a->input));
    tn_tensor *blank = SCOPE(&s, tn_zeros_like(input, -1, -1, TN_FORMAT_PRESERVE, scope_slot(&s)));
    tn_tensor *sums = SCOPE(&s, tn_scatter_add(blank, a->dim, index, zero_n, scope_slot(&s)));
    tn_tensor *met = scope_gather(&s, sums, a->dim, index);
    tn_tensor *lonely = SCOPE(&s, tn_eq_scalar(met, one, scope_slot(&s)));
    tn_tensor *alone = scope_binary(&s, tn_logical_and, zero, lonely);
    tn_tensor *filled = SCOPE(&s, without_zeros(src, alone, scope_slot(&s)));
    tn_tensor *others = scope_product(&s, a, input, filled);
    tn_tensor *others_at = scope_gather(&s, others, a->dim, index);
    tn_tensor *g_at = scope_gather(&s, g, a->dim, index);
    tn_tensor *with_zero = scope_mul(&s, g_at, others_at);
    tn_tensor *gr_at = scope_gather(&s, scope_mul(&s, g, tni_t(a->result)), a->dim, index);
    tn_tensor *no_zero = SCOPE(&s, without_zeros(src, NULL, scope_slot(&s)));
    tn_tensor *usual = scope_true_divide(&s, gr_at, no_zero);
    return scope_finish(&s, scope_where(&s, alone, with_zero, usual), rets);
}

tn_status tni_composite__scatter_reduce_backward(const void *args, tn_tensor **rets) {
    const tn__scatter_reduce_backward_args *a = args;
    tn_tensor *g = tni_t(a->grad), *index = tni_t(a->index), *whole = NULL;
    int how = SUM;
    TN_TRY(reduction_of(a->reduce, &how));
    tni_scope s = {0};
    if (how == MEAN) {
        bool self = a->include_self != 0;
        tn_tensor *n = SCOPE(&s, counts(tni_t(a->input), a->dim, index, self, scope_slot(&s)));
        g = scope_true_divide(&s, g, n);
    }
    if (how == LARGEST || how == SMALLEST)
        whole = SCOPE(&s, extreme_backward(a, scope_slot(&s)));
    else if (how == PROD && a->for_src)
        whole = SCOPE(&s, prod_backward_src(a, scope_slot(&s)));
    else if (how == PROD)
        whole = SCOPE(&s, prod_backward_self(a, scope_slot(&s)));
    else
        whole = a->for_src ? scope_gather(&s, g, a->dim, index) : g;
    if (!a->for_src && !a->include_self)
        whole = SCOPE(&s, tn__scatter_cleared(whole, a->dim, index, scope_slot(&s)));
    return scope_finish(&s, whole, rets);
}

/* ---- take_along_dim ----------------------------------------------------------------------------*/

/* Negative indices count from the end. */
static tn_tensor *scope_wrapped(tni_scope *s, tn_tensor *index, int64_t n) {
    if (n == 0) return index;
    return SCOPE(s, tn_remainder_scalar(index, tn_scalar_int(n), scope_slot(s)));
}

/* The common shape of x and index, but along dim that of t. */
static tn_status shape_along(const tn_tensor *x, const tn_tensor *index, const tn_tensor *t,
                             int64_t dim, int64_t *ret_shape) {
    int32_t n = 0;
    TN_TRY(tni_broadcast_shapes(x->v.ndim, x->v.shape, 0, NULL, &n, ret_shape));
    for (int32_t d = 0; d < x->v.ndim; d++) {
        int64_t p = x->v.shape[d], q = index->v.shape[d];
        if (d != dim) TN_TRY(tni_broadcast_shapes(1, &p, 1, &q, &n, &ret_shape[d]));
        if (d == dim) ret_shape[d] = t->v.shape[d];
    }
    return TN_OK;
}

tn_status tni_composite_take_along_dim(const void *args, tn_tensor **rets) {
    const tn_take_along_dim_args *a = args;
    tn_tensor *x = tni_t(a->input), *index = tni_t(a->indices);
    int64_t shape[TN_MAX_DIMS], index_shape[TN_MAX_DIMS], dim = 0;
    tni_scope s = {0};
    if (!a->dim.has) {
        tn_tensor *flat = scope_reshape(&s, x, TN_INTS(-1));
        tn_tensor *flat_index = scope_reshape(&s, index, TN_INTS(-1));
        tn_tensor *from_end = scope_wrapped(&s, flat_index, x->v.numel);
        return scope_finish(&s, scope_gather(&s, flat, 0, from_end), rets);
    }
    if (x->v.ndim != index->v.ndim)
        return tn_fail(TN_E_SHAPE, 1,
                       "torch.take_along_dim(): input and indices should have the same number of "
                       "dimensions, but got %d dimensions for input, and %d dimensions for indices",
                       (int)x->v.ndim, (int)index->v.ndim);
    if (tn_view_dtype(a->indices) != TN_I64)
        return tn_fail(TN_E_DTYPE, 1,
                       "torch.take_along_dim(): dtype of indices should be Long but got %s",
                       tni_type_text(tn_view_dtype(a->indices)));
    TN_TRY(tni_wrap_dim(a->dim.value, x->v.ndim, &dim));
    TN_TRY(shape_along(x, index, x, dim, shape));
    TN_TRY(shape_along(x, index, index, dim, index_shape));
    tn_tensor *wide = scope_expand(&s, x, tn_ints_of(shape, x->v.ndim));
    tn_tensor *wide_index = scope_expand(&s, index, tn_ints_of(index_shape, x->v.ndim));
    tn_tensor *from_end = scope_wrapped(&s, wide_index, x->v.shape[dim]);
    return scope_finish(&s, scope_gather(&s, wide, dim, from_end), rets);
}

/* ---- Counting ----------------------------------------------------------------------------------*/

/* Smallest and largest element of an integer tensor with at least one element. */
static tn_status extent(tn_tensor *t, int64_t *ret_low, int64_t *ret_high) {
    tn_tensor *low = NULL, *high = NULL;
    tn_scalar a = {0}, b = {0};
    tn_status st = tn_amin(t, tn_ints_none(), 0, &low);
    if (st == TN_OK) st = tn_amax(t, tn_ints_none(), 0, &high);
    if (st == TN_OK) st = tn_tensor_item(low, &a);
    if (st == TN_OK) st = tn_tensor_item(high, &b);
    tn_tensor_unref(&low);
    tn_tensor_unref(&high);
    *ret_low = a.i;
    *ret_high = b.i;
    return st;
}

tn_status tni_composite_one_hot(const void *args, tn_tensor **rets) {
    const tn_one_hot_args *a = args;
    tn_tensor *x = tni_t(a->tensor), *blank = NULL, *index = NULL;
    int64_t shape[TN_MAX_DIMS], low = 0, high = -1, classes = a->num_classes;
    if (tn_tensor_dtype(x) != TN_I64)
        return tn_fail(TN_E_DTYPE, 0,
                       "one_hot is only applicable to index tensor of type LongTensor.");
    if (x->v.numel == 0 && classes <= 0)
        return tn_fail(TN_E_SHAPE, 1, "Can not infer total number of classes from empty tensor.");
    if (x->v.ndim >= TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    bool told = tni_is_meta(&x->v) && classes > 0;
    if (x->v.numel && !told) TN_TRY(extent(x, &low, &high));
    if (low < 0) return tn_fail(TN_E_STATE, 0, "Class values must be non-negative.");
    if (classes == -1) classes = high + 1;
    if (classes < 1) return tn_fail(TN_E_STATE, 1, "num_classes should be positive");
    if (high >= classes)
        return tn_fail(TN_E_STATE, 0, "Class values must be smaller than num_classes.");
    memcpy(shape, x->v.shape, sizeof *shape * (size_t)x->v.ndim);
    shape[x->v.ndim] = classes;
    tn_status st = tn_new_zeros(x, tn_ints_of(shape, x->v.ndim + 1), -1, -1, &blank);
    if (st == TN_OK) st = tn_unsqueeze(x, -1, &index);
    if (st == TN_OK)
        st = scatter_value(blank, x->v.ndim, index, tn_scalar_int(1), TN_SCATTER_SET, rets);
    tn_tensor_unref(&blank);
    tn_tensor_unref(&index);
    return st;
}

tn_status tni_composite_bincount(const void *args, tn_tensor **rets) {
    const tn_bincount_args *a = args;
    tn_tensor *x = tni_t(a->input), *weights = tni_t(a->weights), *near = NULL, *blank = NULL;
    tn_tensor *index = NULL;
    int64_t low = 0, high = -1, bins;
    int32_t dtype = TN_I64;
    if (tn_dtype_category(tn_tensor_dtype(x)) > TN_CAT_INT)
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"bincount\" not implemented for '%s'",
                       tni_type_text(tn_tensor_dtype(x)));
    if (x->v.ndim != 1)
        return tn_fail(TN_E_STATE, 0, "bincount only supports 1-d non-negative integral inputs.");
    if (a->minlength < 0) return tn_fail(TN_E_STATE, 2, "minlength should be >= 0");
    if (tni_is_meta(&x->v)) return tni_meta_needs_values("bincount");
    if (weights && (weights->v.ndim != 1 || weights->v.numel != x->v.numel))
        return tn_fail(TN_E_STATE, 1, "weights should be 1-d and have the same length as input");
    if (x->v.numel == 0) weights = NULL; /* counts of nothing are whole numbers */
    if (x->v.numel) TN_TRY(extent(x, &low, &high));
    if (low < 0)
        return tn_fail(TN_E_STATE, 0, "bincount only supports 1-d non-negative integral inputs.");
    bins = high + 1 > a->minlength ? high + 1 : a->minlength;
    if (weights) dtype = tn_tensor_dtype(weights) == TN_F32 ? TN_F32 : TN_F64;
    tn_status st = tn_new_zeros(x, tn_ints_of(&bins, 1), dtype, -1, &blank);
    if (st) goto out;
    if ((st = tn__move(x, TN_I64, -1, &index))) goto out;
    if (weights) {
        if ((st = tn__move(weights, dtype, -1, &near))) goto out;
        st = tn__scatter_(blank, 0, index, near, TN_SCATTER_ADD, rets);
    } else {
        st = scatter_value(blank, 0, index, tn_scalar_int(1), TN_SCATTER_ADD, rets);
    }
out:
    tn_tensor_unref(&near);
    tn_tensor_unref(&blank);
    tn_tensor_unref(&index);
    return st;
}

/* Elements outside of [low, high], where that was given, fall away; high itself belongs to the last bin. */
tn_status tni_composite_histc(const void *args, tn_tensor **rets) {
    const tn_histc_args *a = args;
    tn_tensor *x = tni_t(a->input);
    tn_scalar low = tn_scalar_float(a->min.re), high = tn_scalar_float(a->max.re);
    tn_scalar_box b1, b2;
    if (a->bins <= 0)
        return tn_fail(TN_E_STATE, 1, "torch.histc(): bins must be > 0, got %lld",
                       (long long)a->bins);
    if (a->min.im != 0 || a->max.im != 0)
        return tn_fail(TN_E_STATE, 2, "value cannot be converted to type double without overflow");
    tni_scope s = {0};
    tn_tensor *flat = scope_reshape(&s, x, TN_INTS(-1));
    bool given = low.re != high.re;
    if (!given && x->v.numel && !tni_is_meta(&x->v)) {
        tn_tensor *least = SCOPE(&s, tn_amin(flat, tn_ints_none(), 0, scope_slot(&s)));
        tn_tensor *most = SCOPE(&s, tn_amax(flat, tn_ints_none(), 0, scope_slot(&s)));
        low = scope_item(&s, least);
        high = scope_item(&s, most);
    }
    if (low.re == high.re) {
        low = tn_scalar_float(low.re - 1.0);
        high = tn_scalar_float(high.re + 1.0);
    }
    if (s.st == TN_OK && low.re > high.re)
        s.st = tn_fail(TN_E_STATE, 2, "torch.histc: max must be larger than min");
    else if (s.st == TN_OK && (!(low.re < high.re) || !isfinite(high.re - low.re)))
        s.st =
            tn_fail(TN_E_STATE, 2, "torch.histc: range of [%g, %g] is not finite", low.re, high.re);
    if (tni_is_meta(&x->v)) {
        tn_tensor *n = SCOPE(&s, tn_new_empty(x, TN_INTS(a->bins), -1, -1, scope_slot(&s)));
        return scope_finish(&s, n, rets);
    }
    if (given) {
        tn_tensor *above = SCOPE(&s, tn_ge_scalar(flat, low, scope_slot(&s)));
        tn_tensor *below = SCOPE(&s, tn_le_scalar(flat, high, scope_slot(&s)));
        tn_tensor *in = scope_binary(&s, tn_logical_and, above, below);
        flat = scope_binary(&s, tn_masked_select, flat, in);
    }
    tn_tensor *moved = SCOPE(&s, tn_sub_scalar(flat, low, tn_scalar_int(1), scope_slot(&s)));
    tn_tensor *scaled = scope_mul_number(&s, moved, (double)a->bins);
    tn_tensor *width = tn_scalar_box_init(&b1, tn_scalar_float(high.re - low.re));
    scaled = scope_true_divide(&s, scaled, width);
    tn_tensor *last = tn_scalar_box_init(&b2, tn_scalar_int(a->bins - 1));
    tn_tensor *capped = scope_binary(&s, tn_clamp_max, scaled, last);
    tn_tensor *bins = scope_convert(&s, capped, TN_I64);
    tn_tensor *n = SCOPE(&s, tn_bincount(bins, NULL, a->bins, scope_slot(&s)));
    return scope_finish(&s, scope_convert(&s, n, tn_tensor_dtype(x)), rets);
}

/* ---- repeat_interleave by counts ---------------------------------------------------------------*/

/* Position i goes, repeats[i] times, to the places up to the i-th partial sum: the number of sums
 * that are <= a place is the element that stands there. Sums leave marks where they lie, which are
 * counted. */
tn_status tni_composite_repeat_interleave_counts(const void *args, tn_tensor **rets) {
    const tn_repeat_interleave_counts_args *a = args;
    tn_tensor *repeats = tni_t(a->repeats);
    int64_t low = 0, high = 0;
    int32_t dtype = tn_tensor_dtype(repeats);
    if (repeats->v.ndim != 1)
        return tn_fail(TN_E_SHAPE, 0, "repeat_interleave only accept 1D vector as repeat");
    if (dtype != TN_I64 && dtype != TN_I32)
        return tn_fail(TN_E_DTYPE, 0, "repeats has to be Long or Int tensor");
    int64_t n = repeats->v.numel;
    if (n == 0) return tn_new_empty(repeats, TN_INTS(0), TN_I64, -1, rets);
    if (tni_is_meta(&repeats->v) && a->output_size.has)
        return tn_new_empty(repeats, TN_INTS(a->output_size.value), TN_I64, -1, rets);
    TN_TRY(extent(repeats, &low, &high));
    if (low < 0) return tn_fail(TN_E_STATE, 0, "repeats can not be negative");
    tni_scope s = {0};
    tn_tensor *wide = scope_convert(&s, repeats, TN_I64);
    tn_tensor *sums = SCOPE(&s, tn_cumsum(wide, 0, -1, scope_slot(&s)));
    tn_scalar total = scope_item(&s, scope_select(&s, sums, 0, -1));
    if (s.st == TN_OK && a->output_size.has && a->output_size.value != total.i)
        s.st = tn_fail(TN_E_STATE, 1, "allocated size does not match required size");
    int64_t room = 0; /* one more, for the sums that are the total */
    if (s.st == TN_OK && __builtin_add_overflow(total.i, 1, &room))
        s.st = tn_fail(TN_E_VALUE, 1, "repeat_interleave: the result is too large");
    tn_ints shape = tn_ints_of(&room, 1);
    tn_tensor *blank = SCOPE(&s, tn_new_zeros(wide, shape, TN_I64, -1, scope_slot(&s)));
    tn_scalar one = tn_scalar_int(1);
    tn_tensor *marks =
        SCOPE(&s, scatter_value(blank, 0, sums, one, TN_SCATTER_ADD, scope_slot(&s)));
    marks = SCOPE(&s, tn_narrow(marks, 0, 0, total.i, scope_slot(&s)));
    return scope_finish(&s, SCOPE(&s, tn_cumsum(marks, 0, -1, scope_slot(&s))), rets);
}

tn_status tni_composite_repeat_interleave_tensor(const void *args, tn_tensor **rets) {
    const tn_repeat_interleave_tensor_args *a = args;
    tn_tensor *x = tni_t(a->input), *repeats = tni_t(a->repeats);
    int64_t dim = 0;
    tni_scope s = {0};
    if (a->dim.has && x->v.ndim == 0)
        return tn_fail(TN_E_INDEX, 2, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)a->dim.value);
    if (!a->dim.has) x = scope_reshape(&s, x, TN_INTS(-1));
    if (s.st == TN_OK && a->dim.has) s.st = tni_wrap_dim(a->dim.value, x->v.ndim, &dim);
    int64_t size = s.st == TN_OK ? x->v.shape[dim] : 0;
    if (repeats->v.numel == 1) repeats = scope_expand(&s, repeats, tn_ints_of(&size, 1));
    if (s.st == TN_OK && repeats->v.ndim == 1 && repeats->v.numel != size)
        s.st =
            tn_fail(TN_E_SHAPE, 1,
                    "repeats must have the same size as input along dim, but got repeats.size(0) = "
                    "%lld and input.size(%lld) = %lld",
                    (long long)repeats->v.numel, (long long)dim, (long long)size);
    tn_tensor *index =
        SCOPE(&s, tn_repeat_interleave_counts(repeats, a->output_size, scope_slot(&s)));
    return scope_finish(&s, SCOPE(&s, tn_index_select(x, dim, index, scope_slot(&s))), rets);
}
