/* scatter.c: shape rules of the operators that index, sort and search. Shapes and dtypes are
 * checked here; values of indices in the kernels. The messages are PyTorch's. */
#include <tenon/args_index.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "call_priv.h"
#include "infer_priv.h"
#include "op_index.h"
#include "plan_priv.h"
#include "rule_priv.h"
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
    tn_tensor *t = NULL, *same = NULL, *n = NULL;
    tn_tensor *index = tni_t(a->index), *src = tni_t(a->src);
    int how = SUM;
    TN_TRY(reduction_of(a->reduce, &how));
    tn_status st = tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, &t);
    if (st) goto out;
    if (!a->include_self && (st = start_anew(t, a->dim, index, src, how))) goto out;
    if ((st = tn__scatter_(t, a->dim, index, src, kernel[how], &same))) goto out;
    if (how == MEAN) {
        bool whole = tn_dtype_category(tn_view_dtype(a->input)) < TN_CAT_FLOAT;
        if ((st = counts(tni_t(a->input), a->dim, index, a->include_self != 0, &n))) goto out;
        st = whole ? tn_floor_divide(t, n, rets) : tn_true_divide(t, n, rets);
        goto out;
    }
    rets[0] = t;
    t = NULL;
out:
    tn_tensor_unref(&t);
    tn_tensor_unref(&same);
    tn_tensor_unref(&n);
    return st;
}

/* g shared among the elements that are the extreme: self where it is, and those of src. */
static tn_status extreme_backward(const tn__scatter_reduce_backward_args *a, tn_tensor **rets) {
    tn_tensor *input = tni_t(a->input), *index = tni_t(a->index), *src = tni_t(a->src);
    tn_tensor *result = tni_t(a->result), *value = NULL, *self_is = NULL, *src_is = NULL;
    tn_tensor *self_n = NULL, *src_n = NULL, *n = NULL, *share = NULL, *there = NULL;
    int64_t dtype = tn_view_dtype(a->grad);
    tn_status st = tn_gather(result, a->dim, index, 0, &value);
    if (st) goto out;
    if ((st = tn_eq(input, result, &self_is))) goto out;
    if ((st = tn_eq(src, value, &src_is))) goto out;
    if ((st = tn__move(self_is, dtype, -1, &self_n))) goto out;
    if ((st = tn__move(src_is, dtype, -1, &src_n))) goto out;
    if ((st = tn_scatter_add(self_n, a->dim, index, src_n, &n))) goto out;
    if ((st = tn_true_divide(tni_t(a->grad), n, &share))) goto out;
    if (!a->for_src) {
        st = tn_mul(share, self_n, rets);
        goto out;
    }
    if ((st = tn_gather(share, a->dim, index, 0, &there))) goto out;
    st = tn_mul(there, src_n, rets);
out:
    tn_tensor_unref(&value);
    tn_tensor_unref(&self_is);
    tn_tensor_unref(&src_is);
    tn_tensor_unref(&self_n);
    tn_tensor_unref(&src_n);
    tn_tensor_unref(&n);
    tn_tensor_unref(&share);
    tn_tensor_unref(&there);
    return st;
}

/* d(product)/d(self): the product with self taken as 1 where it is 0, divided by self. */
static tn_status prod_backward_self(const tn__scatter_reduce_backward_args *a, tn_tensor **rets) {
    tn_tensor *filled = NULL, *product = NULL, *scaled = NULL;
    tn_status st = without_zeros(tni_t(a->input), NULL, &filled);
    if (st) goto out;
    st = tn_scatter_reduce(filled, a->dim, tni_t(a->index), tni_t(a->src), "prod", a->include_self,
                           &product);
    if (st) goto out;
    if ((st = tn_mul(tni_t(a->grad), product, &scaled))) goto out;
    st = tn_true_divide(scaled, filled, rets);
out:
    tn_tensor_unref(&filled);
    tn_tensor_unref(&product);
    tn_tensor_unref(&scaled);
    return st;
}

/* A zero of src that is alone at its place takes the product of the others; elsewhere it is the
 * product divided by the element. */
static tn_status prod_backward_src(const tn__scatter_reduce_backward_args *a, tn_tensor **rets) {
    tn_tensor *input = tni_t(a->input), *index = tni_t(a->index), *src = tni_t(a->src);
    tn_tensor *zero = NULL, *zero_n = NULL, *blank = NULL, *sums = NULL, *met = NULL,
              *lonely = NULL;
    tn_tensor *alone = NULL, *filled = NULL, *others = NULL, *others_at = NULL, *g_at = NULL;
    tn_tensor *with_zero = NULL, *gr = NULL, *gr_at = NULL, *no_zero = NULL, *usual = NULL;
    tn_status st = tn_eq_scalar(src, tn_scalar_int(0), &zero);
    if (st) goto out;
    if ((st = tn__move(zero, tn_view_dtype(a->input), -1, &zero_n))) goto out;
    if ((st = tn_zeros_like(input, -1, -1, TN_FORMAT_PRESERVE, &blank))) goto out;
    if ((st = tn_scatter_add(blank, a->dim, index, zero_n, &sums))) goto out;
    if ((st = tn_gather(sums, a->dim, index, 0, &met))) goto out;
    if ((st = tn_eq_scalar(met, tn_scalar_int(1), &lonely))) goto out;
    if ((st = tn_logical_and(zero, lonely, &alone))) goto out;
    if ((st = without_zeros(src, alone, &filled))) goto out;
    st = tn_scatter_reduce(input, a->dim, index, filled, "prod", a->include_self, &others);
    if (st) goto out;
    if ((st = tn_gather(others, a->dim, index, 0, &others_at))) goto out;
    if ((st = tn_gather(tni_t(a->grad), a->dim, index, 0, &g_at))) goto out;
    if ((st = tn_mul(g_at, others_at, &with_zero))) goto out;
    if ((st = tn_mul(tni_t(a->grad), tni_t(a->result), &gr))) goto out;
    if ((st = tn_gather(gr, a->dim, index, 0, &gr_at))) goto out;
    if ((st = without_zeros(src, NULL, &no_zero))) goto out;
    if ((st = tn_true_divide(gr_at, no_zero, &usual))) goto out;
    st = tn_where(alone, with_zero, usual, rets);
out:
    tn_tensor_unref(&zero);
    tn_tensor_unref(&zero_n);
    tn_tensor_unref(&blank);
    tn_tensor_unref(&sums);
    tn_tensor_unref(&met);
    tn_tensor_unref(&lonely);
    tn_tensor_unref(&alone);
    tn_tensor_unref(&filled);
    tn_tensor_unref(&others);
    tn_tensor_unref(&others_at);
    tn_tensor_unref(&g_at);
    tn_tensor_unref(&with_zero);
    tn_tensor_unref(&gr);
    tn_tensor_unref(&gr_at);
    tn_tensor_unref(&no_zero);
    tn_tensor_unref(&usual);
    return st;
}

tn_status tni_composite__scatter_reduce_backward(const void *args, tn_tensor **rets) {
    const tn__scatter_reduce_backward_args *a = args;
    tn_tensor *g = tn_tensor_ref(tni_t(a->grad)), *n = NULL, *scaled = NULL, *whole = NULL;
    tn_tensor *index = tni_t(a->index);
    int how = SUM;
    tn_status st = reduction_of(a->reduce, &how);
    if (st) goto out;
    if (how == MEAN) {
        if ((st = counts(tni_t(a->input), a->dim, index, a->include_self != 0, &n))) goto out;
        if ((st = tn_true_divide(g, n, &scaled))) goto out;
        tn_tensor_unref(&g);
        g = scaled;
        scaled = NULL;
    }
    if (how == LARGEST || how == SMALLEST)
        st = extreme_backward(a, &whole);
    else if (how == PROD)
        st = a->for_src ? prod_backward_src(a, &whole) : prod_backward_self(a, &whole);
    else if (a->for_src)
        st = tn_gather(g, a->dim, index, 0, &whole);
    else
        whole = tn_tensor_ref(g);
    if (st) goto out;
    if (!a->for_src && !a->include_self) {
        st = tn__scatter_cleared(whole, a->dim, index, rets);
        goto out;
    }
    rets[0] = whole;
    whole = NULL;
out:
    tn_tensor_unref(&g);
    tn_tensor_unref(&n);
    tn_tensor_unref(&scaled);
    tn_tensor_unref(&whole);
    return st;
}

/* ---- take_along_dim ----------------------------------------------------------------------------*/

/* Negative indices count from the end. */
static tn_status wrapped(tn_tensor *index, int64_t n, tn_tensor **ret) {
    if (n == 0) {
        *ret = tn_tensor_ref(index);
        return TN_OK;
    }
    return tn_remainder_scalar(index, tn_scalar_int(n), ret);
}

tn_status tni_composite_take_along_dim(const void *args, tn_tensor **rets) {
    const tn_take_along_dim_args *a = args;
    tn_tensor *x = tni_t(a->input), *index = tni_t(a->indices), *flat = NULL, *flat_index = NULL;
    tn_tensor *wide = NULL, *wide_index = NULL, *from_end = NULL;
    int64_t shape[TN_MAX_DIMS], dim = 0;
    tn_status st = TN_OK;
    if (!a->dim.has) {
        if ((st = tn_reshape(x, TN_INTS(-1), &flat))) goto out;
        if ((st = tn_reshape(index, TN_INTS(-1), &flat_index))) goto out;
        if ((st = wrapped(flat_index, x->v.numel, &from_end))) goto out;
        st = tn_gather(flat, 0, from_end, 0, rets);
        goto out;
    }
    if (x->v.ndim != index->v.ndim) {
        st = tn_fail(TN_E_SHAPE, 1,
                     "torch.take_along_dim(): input and indices should have the same number of "
                     "dimensions, but got %d dimensions for input, and %d dimensions for indices",
                     (int)x->v.ndim, (int)index->v.ndim);
        goto out;
    }
    if ((st = tni_wrap_dim(a->dim.value, x->v.ndim, &dim))) goto out;
    for (int pass = 0; pass < 2; pass++) { /* the common shape, but along dim each its own */
        tn_tensor *t = pass ? index : x;
        int32_t n = 0;
        st = tni_broadcast_shapes(x->v.ndim, x->v.shape, 0, NULL, &n, shape);
        for (int32_t d = 0; d < x->v.ndim && st == TN_OK; d++) {
            int64_t p = x->v.shape[d], q = index->v.shape[d];
            if (d == dim)
                shape[d] = t->v.shape[d];
            else
                st = tni_broadcast_shapes(1, &p, 1, &q, &n, &shape[d]);
        }
        if (st) goto out;
        st = tn_expand(t, tn_ints_of(shape, x->v.ndim), 0, pass ? &wide_index : &wide);
        if (st) goto out;
    }
    if ((st = wrapped(wide_index, x->v.shape[dim], &from_end))) goto out;
    st = tn_gather(wide, dim, from_end, 0, rets);
out:
    tn_tensor_unref(&flat);
    tn_tensor_unref(&flat_index);
    tn_tensor_unref(&wide);
    tn_tensor_unref(&wide_index);
    tn_tensor_unref(&from_end);
    return st;
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
    if (x->v.ndim != 1 || tn_dtype_category(tn_tensor_dtype(x)) > TN_CAT_INT)
        return tn_fail(TN_E_STATE, 0, "bincount only supports 1-d non-negative integral inputs.");
    if (a->minlength < 0) return tn_fail(TN_E_STATE, 2, "minlength should be >= 0");
    if (tni_is_meta(&x->v)) return tni_meta_needs_values("bincount");
    if (weights && (weights->v.ndim != 1 || weights->v.numel != x->v.numel))
        return tn_fail(TN_E_STATE, 1, "weights should be 1-d and have the same length as input");
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

/* Elements outside of [low, high] fall away; high itself belongs to the last bin. */
tn_status tni_composite_histc(const void *args, tn_tensor **rets) {
    const tn_histc_args *a = args;
    tn_tensor *x = tni_t(a->input), *flat = NULL, *above = NULL, *below = NULL, *in = NULL;
    tn_tensor *kept = NULL, *moved = NULL, *scaled = NULL, *capped = NULL, *bins = NULL, *n = NULL;
    tn_scalar low = a->min, high = a->max;
    tn_scalar_box b1, b2;
    if (a->bins <= 0)
        return tn_fail(TN_E_STATE, 1, "torch.histc(): bins must be > 0, got %lld",
                       (long long)a->bins);
    tn_status st = tn_reshape(x, TN_INTS(-1), &flat);
    if (st) goto out;
    if (low.re == high.re && x->v.numel && !tni_is_meta(&x->v)) {
        if ((st = tn_amin(flat, tn_ints_none(), 0, &above))) goto out;
        if ((st = tn_amax(flat, tn_ints_none(), 0, &below))) goto out;
        if ((st = tn_tensor_item(above, &low))) goto out;
        if ((st = tn_tensor_item(below, &high))) goto out;
        tn_tensor_unref(&above);
        tn_tensor_unref(&below);
    }
    if (low.re == high.re) {
        low = tn_scalar_float(low.re - 1.0);
        high = tn_scalar_float(high.re + 1.0);
    }
    if (!(low.re < high.re) || high.re - low.re > 1e308) {
        st = low.re > high.re
                 ? tn_fail(TN_E_STATE, 2, "torch.histc: max must be larger than min")
                 : tn_fail(TN_E_STATE, 2, "torch.histc: range of [%g, %g] is not finite", low.re,
                           high.re);
        goto out;
    }
    if (tni_is_meta(&x->v)) {
        st = tn_new_empty(x, TN_INTS(a->bins), -1, -1, rets);
        goto out;
    }
    if ((st = tn_ge_scalar(flat, low, &above))) goto out;
    if ((st = tn_le_scalar(flat, high, &below))) goto out;
    if ((st = tn_logical_and(above, below, &in))) goto out;
    if ((st = tn_masked_select(flat, in, &kept))) goto out;
    if ((st = tn_sub_scalar(kept, low, tn_scalar_int(1), &moved))) goto out;
    double factor = (double)a->bins / (high.re - low.re);
    if ((st = tn_mul(moved, tn_scalar_box_init(&b1, tn_scalar_float(factor)), &scaled))) goto out;
    st = tn_clamp_max(scaled, tn_scalar_box_init(&b2, tn_scalar_int(a->bins - 1)), &capped);
    if (st) goto out;
    if ((st = tn__move(capped, TN_I64, -1, &bins))) goto out;
    if ((st = tn_bincount(bins, NULL, a->bins, &n))) goto out;
    st = tn__move(n, tn_tensor_dtype(x), -1, rets);
out:
    tn_tensor_unref(&flat);
    tn_tensor_unref(&above);
    tn_tensor_unref(&below);
    tn_tensor_unref(&in);
    tn_tensor_unref(&kept);
    tn_tensor_unref(&moved);
    tn_tensor_unref(&scaled);
    tn_tensor_unref(&capped);
    tn_tensor_unref(&bins);
    tn_tensor_unref(&n);
    return st;
}

/* ---- repeat_interleave by counts ---------------------------------------------------------------*/

/* Position i goes, repeats[i] times, to the places up to the i-th partial sum: the number of sums
 * that are <= a place is the element that stands there. */
tn_status tni_composite_repeat_interleave_counts(const void *args, tn_tensor **rets) {
    const tn_repeat_interleave_counts_args *a = args;
    tn_tensor *repeats = tni_t(a->repeats), *wide = NULL, *sums = NULL, *last = NULL,
              *places = NULL;
    tn_scalar total = {0};
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
    tn_device device = tn_tensor_device(repeats);
    tn_status st = tn__move(repeats, TN_I64, -1, &wide);
    if (st) goto out;
    if ((st = tn_cumsum(wide, 0, -1, &sums))) goto out;
    if ((st = tn_select(sums, 0, -1, &last))) goto out;
    if ((st = tn_tensor_item(last, &total))) goto out;
    if (a->output_size.has && a->output_size.value != total.i) {
        st = tn_fail(TN_E_STATE, 1, "allocated size does not match required size");
        goto out;
    }
    st = tn_arange(tn_scalar_int(total.i), TN_I64, (int64_t)device.slot << 8 | device.index,
                   &places);
    if (st) goto out;
    st = tn__searchsorted(sums, places, 1, rets);
out:
    tn_tensor_unref(&wide);
    tn_tensor_unref(&sums);
    tn_tensor_unref(&last);
    tn_tensor_unref(&places);
    return st;
}

tn_status tni_composite_repeat_interleave_tensor(const void *args, tn_tensor **rets) {
    const tn_repeat_interleave_tensor_args *a = args;
    tn_tensor *x = tn_tensor_ref(tni_t(a->input)), *flat = NULL, *counts_of = NULL, *index = NULL;
    int64_t dim = 0;
    tn_status st = TN_OK;
    if (!a->dim.has || x->v.ndim == 0) {
        if ((st = tn_reshape(x, TN_INTS(-1), &flat))) goto out;
        tn_tensor_unref(&x);
        x = flat;
        flat = NULL;
    }
    if (a->dim.has && (st = tni_wrap_dim(a->dim.value, x->v.ndim, &dim))) goto out;
    int64_t size = x->v.shape[dim];
    if (a->repeats->numel == 1)
        st = tn_expand(tni_t(a->repeats), tn_ints_of(&size, 1), 0, &counts_of);
    else
        counts_of = tn_tensor_ref(tni_t(a->repeats));
    if (st) goto out;
    if (counts_of->v.ndim == 1 && counts_of->v.numel != size) {
        st =
            tn_fail(TN_E_SHAPE, 1,
                    "repeats must have the same size as input along dim, but got repeats.size(0) = "
                    "%lld and input.size(%lld) = %lld",
                    (long long)counts_of->v.numel, (long long)dim, (long long)size);
        goto out;
    }
    if ((st = tn_repeat_interleave_counts(counts_of, a->output_size, &index))) goto out;
    st = tn_index_select(x, dim, index, rets);
out:
    tn_tensor_unref(&x);
    tn_tensor_unref(&flat);
    tn_tensor_unref(&counts_of);
    tn_tensor_unref(&index);
    return st;
}
