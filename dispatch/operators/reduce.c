/* reduce.c: what the reductions' gradients and overloads need beyond a formula: putting
 * reduced dimensions back, products with zeros in them, extremes of everything, pairs of results. */
#include <tenon/args_reduce.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "infer_priv.h"
#include "op_reduce.h"
#include "scope_priv.h"

/* ---- Gradients ---------------------------------------------------------------------------------*/

/* The reduced dimensions come back with size 1 and are then expanded, so that no memory is used. */
tn_status tni_composite__expand_reduced(const void *args, tn_tensor **rets) {
    const tn__expand_reduced_args *a = args;
    tn_tensor *g = tni_t(a->grad), *wide = NULL;
    int32_t ndim = (int32_t)a->size.n;
    int64_t shape[TN_MAX_DIMS];
    uint64_t mask = 0;
    int64_t numel;
    TN_TRY(tni_numel(ndim, a->size.v, 1, &numel));
    if (a->keepdim || a->grad->ndim == ndim || a->grad->ndim == 0) {
        return tn_expand(g, a->size, 0, rets);
    }
    TN_TRY(tni_dim_mask(a->dim, ndim, &mask));
    for (int32_t d = 0; d < ndim; d++) shape[d] = mask >> d & 1u ? 1 : a->size.v[d];
    TN_TRY(tn_reshape(g, tn_ints_of(shape, ndim), &wide));
    tn_status st = tn_expand(wide, a->size, 0, rets);
    tn_tensor_unref(&wide);
    return st;
}

/* Along dim, the product of all elements before each one. */
static tn_tensor *products_before(tni_scope *s, tn_tensor *x, int64_t dim) {
    tn_tensor *first = scope_narrow(s, x, dim, 0, 1);
    tn_tensor *one = SCOPE(s, tn_ones_like(first, -1, -1, TN_FORMAT_PRESERVE, scope_slot(s)));
    tn_tensor *both[] = {one, scope_narrow(s, x, dim, 0, tn_tensor_shape(x)[dim] - 1)};
    tn_tensor *shifted = SCOPE(s, tn_cat((tn_tensors){both, 2}, dim, scope_slot(s)));
    return SCOPE(s, tn_cumprod(shifted, dim, -1, scope_slot(s)));
}

/* Along dim, the product of all other elements: those before times those after. */
static tn_tensor *products_of_others(tni_scope *s, tn_tensor *x, int64_t dim) {
    if (s->st != TN_OK) return NULL;
    tn_tensor *before = products_before(s, x, dim);
    tn_tensor *turned = SCOPE(s, tn_flip(x, TN_INTS(dim), scope_slot(s)));
    tn_tensor *later = turned ? products_before(s, turned, dim) : NULL;
    tn_tensor *after = SCOPE(s, tn_flip(later, TN_INTS(dim), scope_slot(s)));
    return scope_mul(s, before, after);
}

/* Whether some product is 0, or nan: of infinity and 0. */
static tn_status has_zero(tn_tensor *products, bool *ret) {
    tn_tensor *inverse = NULL, *finite = NULL, *all = NULL;
    tn_scalar value = {0};
    *ret = false;
    if (tni_is_meta(&products->v)) return TN_OK;
    tn_status st = tn_reciprocal(products, &inverse);
    if (st == TN_OK) st = tn_isfinite(inverse, &finite);
    if (st == TN_OK) st = tn_all(finite, tn_ints_none(), 0, &all);
    if (st == TN_OK) st = tn_tensor_item(all, &value);
    tn_tensor_unref(&inverse);
    tn_tensor_unref(&finite);
    tn_tensor_unref(&all);
    *ret = value.i == 0;
    return st;
}

/* t, which has the result's shape, over the input's. */
static tn_tensor *scope_widened(tni_scope *s, tn_tensor *t, const tn__prod_backward_args *a) {
    tn_ints size = tni_shape_ints(tni_t(a->input));
    return SCOPE(s, tn__expand_reduced(t, size, a->dim, a->keepdim, scope_slot(s)));
}

/* Without zeros every other element's product is result / input. With them it is made of two
 * running products, along dim or over the flattened tensor. */
tn_status tni_composite__prod_backward(const void *args, tn_tensor **rets) {
    const tn__prod_backward_args *a = args;
    tn_tensor *x = tni_t(a->input), *others;
    tn_ints size = tni_shape_ints(x);
    bool zero = false;
    int64_t dim = 0;
    tni_scope s = {0};
    tn_tensor *g = scope_widened(&s, tni_t(a->grad), a);
    if (a->input->numel == 0 || a->input->ndim == 0) return scope_finish(&s, g, rets);
    if (s.st == TN_OK) s.st = has_zero(tni_t(a->result), &zero);
    if (!zero) {
        others = scope_true_divide(&s, scope_widened(&s, tni_t(a->result), a), x);
    } else if (a->dim.n == 1) {
        if (s.st == TN_OK) s.st = tni_wrap_dim(a->dim.v[0], a->input->ndim, &dim);
        others = products_of_others(&s, x, dim);
    } else {
        others = products_of_others(&s, scope_reshape(&s, x, TN_INTS(-1)), 0);
        others = scope_reshape(&s, others, size);
    }
    return scope_finish(&s, scope_binary(&s, tn__mul_conj, g, others), rets);
}

tn_status tni_composite__scatter_reduced(const void *args, tn_tensor **rets) {
    const tn__scatter_reduced_args *a = args;
    tn_tensor *g = NULL, *index = NULL;
    if (a->size.n == 0) {
        rets[0] = tn_tensor_ref(tni_t(a->grad));
        return TN_OK;
    }
    if (a->keepdim)
        return tn__gather_backward(tni_t(a->grad), a->size, a->dim, tni_t(a->indices), rets);
    tn_status st = tn_unsqueeze(tni_t(a->grad), a->dim, &g);
    if (st == TN_OK) st = tn_unsqueeze(tni_t(a->indices), a->dim, &index);
    if (st == TN_OK) st = tn__gather_backward(g, a->size, a->dim, index, rets);
    tn_tensor_unref(&g);
    tn_tensor_unref(&index);
    return st;
}

/* ---- Extremes ----------------------------------------------------------------------------------*/

static tn_status check_some(const char *name, const tn_view *v) {
    if (v->numel > 0) return TN_OK;
    return tn_fail(
        TN_E_STATE, 0,
        "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
        "reduction dim with the 'dim' argument.",
        name);
}

tn_status tni_composite_max(const void *args, tn_tensor **rets) {
    const tn_max_args *a = args;
    TN_TRY(check_some("max", a->input));
    return tn_amax(tni_t(a->input), tn_ints_none(), 0, rets);
}

tn_status tni_composite_min(const void *args, tn_tensor **rets) {
    const tn_min_args *a = args;
    TN_TRY(check_some("min", a->input));
    return tn_amin(tni_t(a->input), tn_ints_none(), 0, rets);
}

/* Hands over two results, or none of them. */
static tn_status both(tn_status st, tn_tensor *first, tn_tensor *second, tn_tensor **rets) {
    if (st == TN_OK) {
        rets[0] = first;
        rets[1] = second;
    } else {
        tn_tensor_unref(&first);
        tn_tensor_unref(&second);
    }
    return st;
}

tn_status tni_composite_aminmax(const void *args, tn_tensor **rets) {
    const tn_aminmax_args *a = args;
    tn_tensor *low = NULL, *high = NULL;
    tn_ints dims = TNI_OPT_DIMS(a->dim);
    if (!a->dim.has && a->input->numel == 0)
        return tn_fail(TN_E_STATE, 0,
                       "aminmax(): cannot compute aminmax over an empty dimension as the operation "
                       "has no identity.");
    tn_status st = tn_amin(tni_t(a->input), dims, a->keepdim, &low);
    if (st == TN_OK) st = tn_amax(tni_t(a->input), dims, a->keepdim, &high);
    return both(st, low, high, rets);
}

tn_status tni_check_nanmean(const void *args) {
    const tn_nanmean_args *a = args;
    if (a->dtype < 0 || tn_dtype_category((int32_t)a->dtype) >= TN_CAT_FLOAT) return TN_OK;
    return tn_fail(TN_E_DTYPE, 1,
                   "nanmean(): could not infer output dtype. Optional dtype must be either a "
                   "floating point or complex dtype. Got: %s",
                   tni_type_text((int32_t)a->dtype));
}

/* ---- Truth -------------------------------------------------------------------------------------*/

/* The answer about a uint8 tensor is uint8, as before there was a bool. */
static tn_status truth_of(tn_status st, tn_tensor *answer, const tn_view *v, const tn_view *out,
                          tn_tensor **rets) {
    bool as_it_is = tn_view_dtype(v) != TN_U8 || (out && tn_view_dtype(out) == TN_BOOL);
    if (st != TN_OK || as_it_is) {
        if (st == TN_OK) rets[0] = answer;
        return st;
    }
    st = tn__move(answer, TN_U8, -1, rets);
    tn_tensor_unref(&answer);
    return st;
}

/* No dimension at all: every element answers for itself. */
static bool is_by_element(tn_ints dim) { return dim.n == 0 && dim.v != NULL; }

static tn_status by_element(const tn_view *v, const tn_view *out, tn_tensor **rets) {
    tn_tensor *answer = NULL;
    tn_status st = tn_ne_scalar(tni_t(v), tn_scalar_int(0), &answer);
    return truth_of(st, answer, v, out, rets);
}

static tn_status check_truth_out(const char *op, const tn_view *out) {
    if (!out || tn_view_dtype(out) == TN_BOOL || tn_view_dtype(out) == TN_U8) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "%s only supports bool tensor for result, got: %s", op,
                   tni_type_text(tn_view_dtype(out)));
}

tn_status tni_composite_all(const void *args, tn_tensor **rets) {
    const tn_all_args *a = args;
    tn_tensor *answer = NULL;
    TN_TRY(check_truth_out("all", a->out));
    if (is_by_element(a->dim)) return by_element(a->input, a->out, rets);
    tn_status st = tn__all(tni_t(a->input), a->dim, a->keepdim, &answer);
    return truth_of(st, answer, a->input, a->out, rets);
}

tn_status tni_composite_any(const void *args, tn_tensor **rets) {
    const tn_any_args *a = args;
    tn_tensor *answer = NULL;
    TN_TRY(check_truth_out("any", a->out));
    if (is_by_element(a->dim)) return by_element(a->input, a->out, rets);
    tn_status st = tn__any(tni_t(a->input), a->dim, a->keepdim, &answer);
    return truth_of(st, answer, a->input, a->out, rets);
}

/* ---- Spread ------------------------------------------------------------------------------------*/

static tn_status spread_and_mean(const tn_view *v, tn_ints dim, double correction, int64_t keepdim,
                                 bool root, tn_tensor **rets) {
    tn_tensor *spread = NULL, *mean = NULL;
    tn_status st = root ? tn__std(tni_t(v), dim, correction, keepdim, &spread)
                        : tn__var(tni_t(v), dim, correction, keepdim, &spread);
    if (st == TN_OK) st = tn_mean(tni_t(v), dim, keepdim, -1, &mean);
    return both(st, spread, mean, rets);
}

static double correction_of(const tn_scalar *s) { return s->kind == TN_SCALAR_NONE ? 1.0 : s->re; }

tn_status tni_composite_var_mean(const void *args, tn_tensor **rets) {
    const tn_var_mean_args *a = args;
    return spread_and_mean(a->input, a->dim, correction_of(&a->correction), a->keepdim, false,
                           rets);
}

tn_status tni_composite_var_mean_unbiased(const void *args, tn_tensor **rets) {
    const tn_var_mean_unbiased_args *a = args;
    return spread_and_mean(a->input, tn_ints_none(), a->unbiased ? 1.0 : 0.0, 0, false, rets);
}

tn_status tni_composite_var_mean_dim(const void *args, tn_tensor **rets) {
    const tn_var_mean_dim_args *a = args;
    return spread_and_mean(a->input, a->dim, a->unbiased ? 1.0 : 0.0, a->keepdim, false, rets);
}

tn_status tni_composite_std_mean(const void *args, tn_tensor **rets) {
    const tn_std_mean_args *a = args;
    return spread_and_mean(a->input, a->dim, correction_of(&a->correction), a->keepdim, true, rets);
}

tn_status tni_composite_std_mean_unbiased(const void *args, tn_tensor **rets) {
    const tn_std_mean_unbiased_args *a = args;
    return spread_and_mean(a->input, tn_ints_none(), a->unbiased ? 1.0 : 0.0, 0, true, rets);
}

tn_status tni_composite_std_mean_dim(const void *args, tn_tensor **rets) {
    const tn_std_mean_dim_args *a = args;
    return spread_and_mean(a->input, a->dim, a->unbiased ? 1.0 : 0.0, a->keepdim, true, rets);
}

/* ---- Norms, comparison of everything -----------------------------------------------------------*/

/* Whether every norm is of one element; not along a dimension that a tensor without any only seems to have,
 * as in PyTorch. */
static tn_status takes_one(const tn_view *x, tn_ints dim, bool *ret_one) {
    uint64_t mask;
    TN_TRY(tni_dim_mask(dim, x->ndim, &mask));
    *ret_one = x->ndim > 0 || dim.n <= 0;
    for (int32_t d = 0; d < x->ndim; d++) *ret_one &= !(mask >> d & 1) || x->shape[d] == 1;
    return TN_OK;
}

/* The norm of one element is its magnitude, also where its power is beyond the dtype. */
tn_status tni_composite_linalg_vector_norm(const void *args, tn_tensor **rets) {
    const tn_linalg_vector_norm_args *a = args;
    tn_tensor *x = NULL, *size = NULL;
    bool one = false;
    if (tn_dtype_category(tn_view_dtype(a->input)) < TN_CAT_FLOAT)
        return tn_fail(
            TN_E_DTYPE, 0,
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            "%s",
            tni_type_text(tn_view_dtype(a->input)));
    TN_TRY(takes_one(a->input, a->dim, &one));
    TN_TRY(tn__move(tni_t(a->input), a->dtype, -1, &x));
    tn_status st;
    if (one && a->ord.re != 0) {
        st = tn_abs(x, &size);
        if (st == TN_OK) st = tn_sum(size, a->dim, a->keepdim, -1, rets);
    } else {
        st = tn__vector_norm(x, a->ord.re, a->dim, a->keepdim, rets);
    }
    tn_tensor_unref(&x);
    tn_tensor_unref(&size);
    return st;
}

/* Integers are numbers all. */
tn_status tni_composite_nansum(const void *args, tn_tensor **rets) {
    const tn_nansum_args *a = args;
    tn_tensor *x = tni_t(a->input);
    if (tn_dtype_category(tn_tensor_dtype(x)) != TN_CAT_FLOAT)
        return tn_sum(x, a->dim, a->keepdim, a->dtype, rets);
    if (a->dtype < 0) return tn__nansum(x, a->dim, a->keepdim, rets);
    tni_scope s = {0};
    tn_scalar_box box;
    tn_tensor *zero = tn_scalar_box_init(&box, tn_scalar_int(0));
    tn_tensor *odd = SCOPE(&s, tn_isnan(x, scope_slot(&s)));
    tn_tensor *kept = SCOPE(&s, tn_masked_fill(x, odd, zero, scope_slot(&s)));
    tn_tensor *sum = SCOPE(&s, tn_sum(kept, a->dim, a->keepdim, a->dtype, scope_slot(&s)));
    return scope_finish(&s, sum, rets);
}

/* |x|^2, which needs no square root for complex numbers either. */
tn_status tni_composite__squares(const void *args, tn_tensor **rets) {
    const tn__squares_args *a = args;
    tn_tensor *x = tni_t(a->input), *pairs = NULL, *squares = NULL;
    if (tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_COMPLEX) return tn_square(x, rets);
    tn_status st = tn_view_as_real(x, &pairs);
    if (st == TN_OK) st = tn_square(pairs, &squares);
    if (st == TN_OK) st = tn_sum(squares, TN_INTS(-1), 0, -1, rets);
    tn_tensor_unref(&pairs);
    tn_tensor_unref(&squares);
    return st;
}

/* The sum of the singular values of the matrices in two dimensions. */
static tn_status nuclear(const tn_norm_str_args *a, tn_tensor **rets) {
    int64_t from[2] = {0, 1};
    static const int64_t last[2] = {-2, -1};
    tn_tensor *x = NULL, *u = NULL, *s = NULL, *vh = NULL, *sum = NULL;
    if (a->dim.n == 2) memcpy(from, a->dim.v, sizeof from);
    if (a->input->ndim < 2)
        return tn_fail(TN_E_STATE, 0,
                       "linalg.matrix_norm: The input tensor A must have at least 2 dimensions.");
    if (a->dim.n < 0 ? a->input->ndim != 2 : a->dim.n != 2)
        return tn_fail(TN_E_STATE, 2, "linalg.matrix_norm: dim must be a 2-tuple.");
    tn_status st = tn_movedim(tni_t(a->input), tn_ints_of(from, 2), tn_ints_of(last, 2), &x);
    if (st == TN_OK) st = tn__linalg_svd(x, 0, &u, &s, &vh);
    if (st == TN_OK) st = tn_sum(s, TN_INTS(-1), 0, a->dtype, &sum);
    if (st == TN_OK && !a->keepdim) {
        rets[0] = tn_tensor_ref(sum);
    } else if (st == TN_OK) {
        int64_t shape[TN_MAX_DIMS];
        memcpy(shape, a->input->shape, sizeof shape[0] * (size_t)a->input->ndim);
        for (int i = 0; i < 2 && st == TN_OK; i++) {
            st = tni_wrap_dim(from[i], a->input->ndim, &from[i]);
            if (st == TN_OK) shape[from[i]] = 1;
        }
        if (st == TN_OK) st = tn_reshape(sum, tn_ints_of(shape, a->input->ndim), rets);
    }
    tn_tensor_unref(&x);
    tn_tensor_unref(&u);
    tn_tensor_unref(&s);
    tn_tensor_unref(&vh);
    tn_tensor_unref(&sum);
    return st;
}

tn_status tni_composite_norm_str(const void *args, tn_tensor **rets) {
    const tn_norm_str_args *a = args;
    if (a->p && strcmp(a->p, "nuc") == 0) return nuclear(a, rets);
    if (!a->p || strcmp(a->p, "fro") != 0)
        return tn_fail(TN_E_STATE, 1, "linalg.matrix_norm: Order %s not supported.",
                       a->p ? a->p : "None");
    return tn_linalg_vector_norm(tni_t(a->input), tn_scalar_float(2.0), a->dim, a->keepdim,
                                 a->dtype, rets);
}

tn_status tni_composite_equal(const void *args, tn_tensor **rets) {
    const tn_equal_args *a = args;
    tn_tensor *same = NULL;
    bool fits = a->input->ndim == a->other->ndim;
    for (int32_t i = 0; fits && i < a->input->ndim; i++)
        fits = a->input->shape[i] == a->other->shape[i];
    if (!fits) return tn_full((tn_ints){NULL, 0}, tn_scalar_bool(0), TN_BOOL, -1, rets);
    if (tni_is_meta(a->input)) return tni_meta_needs_values("equal");
    TN_TRY(tn_eq(tni_t(a->input), tni_t(a->other), &same));
    tn_status st = tn_all(same, tn_ints_none(), 0, rets);
    tn_tensor_unref(&same);
    return st;
}

tn_status tni_composite_trace(const void *args, tn_tensor **rets) {
    const tn_trace_args *a = args;
    tn_tensor *line = NULL;
    if (a->input->ndim != 2)
        return tn_fail(TN_E_SHAPE, 0, "trace: expected a matrix, but got tensor with dim %d",
                       (int)a->input->ndim);
    TN_TRY(tn_diagonal(tni_t(a->input), 0, 0, 1, &line));
    tn_status st = tn_sum(line, tn_ints_none(), 0, -1, rets);
    tn_tensor_unref(&line);
    return st;
}

/* ---- Hashes ------------------------------------------------------------------------------------*/

/* The exclusive or of the columns of x, which is taken over, as one column: halves are combined until one
 * is left. */
static tn_status fold_columns(tn_tensor **x) {
    tn_status st = TN_OK;
    int64_t n = tn_tensor_shape(*x)[1];
    while (st == TN_OK && n > 1) {
        tni_scope s = {0};
        tn_tensor *left = scope_narrow(&s, *x, 1, 0, n / 2), *next = NULL;
        tn_tensor *right = scope_narrow(&s, *x, 1, n - n / 2, n / 2);
        tn_tensor *both[] = {scope_binary(&s, tn_bitwise_xor, left, right), NULL};
        if (n % 2) {
            both[1] = scope_narrow(&s, *x, 1, n / 2, 1);
            both[0] = SCOPE(&s, tn_cat((tn_tensors){both, 2}, 1, scope_slot(&s)));
        }
        st = scope_finish(&s, both[0], &next);
        if (st != TN_OK) break;
        tn_tensor_unref(x);
        *x = next;
        n -= n / 2;
    }
    return st;
}

static tn_status check_hash(const tn_hash_tensor_args *a, uint64_t reduced) {
    const tn_view *x = a->input;
    if (tn_dtype_category(tn_view_dtype(x)) == TN_CAT_COMPLEX)
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"xor_sum_cpu\" not implemented for '%s'",
                       tni_type_text(tn_view_dtype(x)));
    if (a->mode != 0)
        return tn_fail(TN_E_STATE, 3, "Unknown hash_tensor mode: %lld", (long long)a->mode);
    if (x->numel == 0 && a->dim.n <= 0)
        return tn_fail(TN_E_STATE, 1,
                       "hash_tensor: Expected reduction dim to be specified for input.numel() == "
                       "0. Specify the reduction dim with the 'dim' argument.");
    for (int32_t d = 0; d < x->ndim; d++)
        if (reduced >> d & 1u && x->shape[d] == 0)
            return tn_fail(TN_E_INDEX, 1,
                           "hash_tensor: Expected reduction dim %d to have non-zero size.", (int)d);
    return TN_OK;
}

tn_status tni_composite_hash_tensor(const void *args, tn_tensor **rets) {
    const tn_hash_tensor_args *a = args;
    const tn_view *x = a->input;
    int64_t order[TN_MAX_DIMS], shape[TN_MAX_DIMS], rows = 1, columns = 1;
    int32_t ndim = 0, n = 0;
    uint64_t reduced = 0;
    tni_scope s = {0};
    TN_TRY(tni_dim_mask(a->dim, x->ndim, &reduced));
    TN_TRY(check_hash(a, reduced));
    for (int32_t d = 0; d < x->ndim; d++) {
        bool gone = reduced >> d & 1u;
        if (!gone) order[n++] = d;
        if (!gone || a->keepdim) shape[ndim++] = gone ? 1 : x->shape[d];
        *(gone ? &columns : &rows) *= x->shape[d];
    }
    for (int32_t d = 0; d < x->ndim; d++)
        if (reduced >> d & 1u) order[n++] = d;
    bool floats = tn_dtype_category(tn_view_dtype(x)) == TN_CAT_FLOAT;
    tn_tensor *wide = scope_convert(&s, tni_t(x), floats ? TN_F64 : TN_I64), *folded = NULL;
    wide = SCOPE(&s, tn_view_as_type(wide, TN_I64, scope_slot(&s)));
    wide = scope_reshape(&s, scope_permute(&s, wide, tn_ints_of(order, n)), TN_INTS(rows, columns));
    TN_TRY(scope_finish(&s, wide, &folded));
    tn_status st = fold_columns(&folded);
    s = (tni_scope){.st = st};
    tn_tensor *result = scope_reshape(&s, folded, tn_ints_of(shape, ndim));
    result = SCOPE(&s, tn_view_as_type(result, TN_U64, scope_slot(&s)));
    result = SCOPE(&s, tn_clone(result, TN_FORMAT_CONTIGUOUS, scope_slot(&s)));
    tn_tensor_unref(&folded);
    return scope_finish(&s, result, rets);
}
