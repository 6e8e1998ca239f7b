/* order.c: sorting and searching: shape rules, and operators around the kernels: results that are left
 * out, medians of everything, unique elements. */
#include <math.h>

#include <tenon/args_index.h>
#include <tenon/args_reduce.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "copy_priv.h"
#include "infer_priv.h"
#include "op_index.h"
#include "op_reduce.h"
#include "rule_priv.h"

/* ---- One element of every row ------------------------------------------------------------------*/

/* The shape of every result. */
static tn_status set_all(tn_infer *inf, int32_t ndim, const int64_t *shape) {
    for (int i = 0; i < inf->op->nout; i++) TN_TRY(tni_infer_set(inf, i, ndim, shape));
    return TN_OK;
}

/* Shape of v without dim, or with size 1 there. */
static tn_status reduced(tn_infer *inf, const tn_view *v, int64_t dim, int64_t keepdim) {
    int64_t shape[TN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t d = 0; d < v->ndim; d++) {
        if (d != dim)
            shape[n++] = v->shape[d];
        else if (keepdim)
            shape[n++] = 1;
    }
    return set_all(inf, n, shape);
}

static tn_status nonempty_row(const tn_infer *inf, const tn_view *v, int64_t dim) {
    const char *schema = inf->op->info.schema;
    if (rule_size_at(v, dim) != 0) return TN_OK;
    return tn_fail(TN_E_INDEX, 1, "%.*s(): Expected reduction dim %lld to have non-zero size.",
                   (int)strcspn(schema, "("), schema, (long long)dim);
}

static tn_status row_pair(tn_infer *inf, const tn_view *v, int64_t dim, int64_t keepdim) {
    TN_TRY(nonempty_row(inf, v, dim));
    return reduced(inf, v, dim, keepdim);
}

tn_status tni_infer_max_dim(tn_infer *inf, const void *args) {
    const tn_max_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_min_dim(tn_infer *inf, const void *args) {
    const tn_min_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_median_dim(tn_infer *inf, const void *args) {
    const tn_median_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_nanmedian_dim(tn_infer *inf, const void *args) {
    const tn_nanmedian_dim_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_mode(tn_infer *inf, const void *args) {
    const tn_mode_args *a = args;
    return row_pair(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_kthvalue(tn_infer *inf, const void *args) {
    const tn_kthvalue_args *a = args;
    int64_t n = rule_size_at(a->input, a->dim);
    TN_TRY(nonempty_row(inf, a->input, a->dim));
    if (a->k < 1 || a->k > n)
        return tn_fail(TN_E_SHAPE, 1,
                       "kthvalue(): selected number k out of range for dimension %lld",
                       (long long)a->dim);
    return reduced(inf, a->input, a->dim, a->keepdim);
}

static tn_status arg_reduced(tn_infer *inf, const tn_view *v, tn_opt_int dim, int64_t keepdim) {
    if (dim.has) {
        TN_TRY(nonempty_row(inf, v, dim.value));
        return reduced(inf, v, dim.value, keepdim);
    }
    if (v->numel == 0)
        return tn_fail(
            TN_E_INDEX, 0,
            "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument.",
            inf->op->info.name);
    int64_t ones[TN_MAX_DIMS];
    for (int32_t d = 0; d < v->ndim; d++) ones[d] = 1;
    return tni_infer_set(inf, 0, keepdim ? v->ndim : 0, ones);
}

tn_status tni_infer_argmax(tn_infer *inf, const void *args) {
    const tn_argmax_args *a = args;
    return arg_reduced(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_argmin(tn_infer *inf, const void *args) {
    const tn_argmin_args *a = args;
    return arg_reduced(inf, a->input, a->dim, a->keepdim);
}

tn_status tni_infer_topk(tn_infer *inf, const void *args) {
    const tn_topk_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    if (a->k < 0 || a->k > rule_size_at(a->input, a->dim))
        return tn_fail(TN_E_SHAPE, 1, "selected index k out of range");
    memcpy(shape, a->input->shape, sizeof *shape * (size_t)a->input->ndim);
    if (a->input->ndim) shape[a->dim] = a->k;
    return set_all(inf, a->input->ndim, shape);
}

tn_status tni_infer_cummax(tn_infer *inf, const void *args) {
    const tn_view *x = ((const tn_cummax_args *)args)->input;
    return set_all(inf, x->ndim, x->shape);
}

tn_status tni_infer_cummin(tn_infer *inf, const void *args) {
    const tn_view *x = ((const tn_cummin_args *)args)->input;
    return set_all(inf, x->ndim, x->shape);
}

tn_status tni_infer__unique_consecutive(tn_infer *inf, const void *args) {
    const tn__unique_consecutive_args *a = args;
    int64_t none = 0;
    TN_TRY(tni_infer_set(inf, 0, 1, &none));
    TN_TRY(tni_infer_set(inf, 1, a->input->ndim, a->input->shape));
    return tni_infer_set(inf, 2, 1, &none);
}

tn_status tni_infer__searchsorted(tn_infer *inf, const void *args) {
    const tn__searchsorted_args *a = args;
    const tn_view *rows = a->sorted_sequence;
    int32_t n = rows->ndim == 1 ? 0 : rows->ndim - 1; /* dimensions that must agree */
    bool fits = rows->ndim == 1 || (rows->ndim > 1 && rows->ndim == a->input->ndim);
    if (!fits || memcmp(rows->shape, a->input->shape, (size_t)n * sizeof *rows->shape) != 0)
        return tn_fail(TN_E_SHAPE, 1, "rows of %s cannot be searched in %s",
                       tni_shape_text_of(a->input), tni_shape_text_of(rows));
    TN_TRY(
        tni_infer_expect(inf, 1, a->input, a->input->ndim, a->input->shape, tn_view_dtype(rows)));
    return tni_infer_set(inf, 0, a->input->ndim, a->input->shape);
}

tn_status tni_composite_argsort(const void *args, tn_tensor **rets) {
    const tn_argsort_args *a = args;
    tn_tensor *values = NULL;
    tn_status st = tn_sort(tni_t(a->input), a->dim, a->descending, a->stable, &values, rets);
    tn_tensor_unref(&values);
    return st;
}

tn_status tni_composite_msort(const void *args, tn_tensor **rets) {
    const tn_msort_args *a = args;
    tn_tensor *indices = NULL;
    tn_status st = tn_sort(tni_t(a->input), 0, 0, 0, rets, &indices);
    tn_tensor_unref(&indices);
    return st;
}

static tn_status median_of_all(const tn_view *v, bool skip_nan, tn_tensor **rets) {
    tn_tensor *flat = NULL, *indices = NULL;
    if (v->numel == 0) { /* nan, or what a conversion makes of it */
        TN_TRY(tn_new_empty(tni_t(v), (tn_ints){NULL, 0}, -1, -1, rets));
        tn_scalar_box nan;
        return tni_copy_into(rets[0], tn_scalar_box_init(&nan, tn_scalar_float(NAN)));
    }
    TN_TRY(tn_reshape(tni_t(v), TN_INTS(-1), &flat));
    tn_status st = skip_nan ? tn_nanmedian_dim(flat, 0, 0, rets, &indices)
                            : tn_median_dim(flat, 0, 0, rets, &indices);
    tn_tensor_unref(&flat);
    tn_tensor_unref(&indices);
    return st;
}

tn_status tni_composite_median(const void *args, tn_tensor **rets) {
    return median_of_all(((const tn_median_args *)args)->input, false, rets);
}

tn_status tni_composite_nanmedian(const void *args, tn_tensor **rets) {
    return median_of_all(((const tn_nanmedian_args *)args)->input, true, rets);
}

/* Sorted, equal elements are neighbours; the inverse goes back through the order. */
tn_status tni_composite__unique(const void *args, tn_tensor **rets) {
    const tn__unique_args *a = args;
    tn_tensor *flat = NULL, *sorted = NULL, *order = NULL, *runs = NULL, *counts = NULL;
    tn_tensor *output = NULL, *blank = NULL, *inverse = NULL, *shaped = NULL;
    tn_status st = tn_reshape(tni_t(a->input), TN_INTS(-1), &flat);
    if (st) goto out;
    if ((st = tn_sort(flat, 0, 0, 1, &sorted, &order))) goto out;
    if ((st = tn__unique_consecutive(sorted, &output, &runs, &counts))) goto out;
    if ((st = tn_empty_like(order, -1, -1, TN_FORMAT_CONTIGUOUS, &blank))) goto out;
    if ((st = tn_scatter_(blank, 0, order, runs, &inverse))) goto out;
    if ((st = tn_reshape(inverse, tni_shape_ints(tni_t(a->input)), &shaped))) goto out;
    rets[0] = output;
    rets[1] = shaped;
    rets[2] = counts;
    output = shaped = counts = NULL;
out:
    tn_tensor_unref(&flat);
    tn_tensor_unref(&sorted);
    tn_tensor_unref(&order);
    tn_tensor_unref(&runs);
    tn_tensor_unref(&counts);
    tn_tensor_unref(&output);
    tn_tensor_unref(&blank);
    tn_tensor_unref(&inverse);
    tn_tensor_unref(&shaped);
    return st;
}

static tn_status check_search(const tn_searchsorted_args *a, bool *ret_right) {
    const tn_view *seq = a->sorted_sequence, *x = a->input;
    *ret_right = a->right != 0;
    if (a->side) {
        bool right = strcmp(a->side, "right") == 0;
        if (!right && strcmp(a->side, "left") != 0)
            return tn_fail(TN_E_STATE, 4,
                           "torch.searchsorted(): side can only be 'left' or 'right' but got %s",
                           a->side);
        if (!right && a->right)
            return tn_fail(
                TN_E_STATE, 4,
                "torch.searchsorted(): side and right can't be set to opposites, got side "
                "of left while right was True");
        *ret_right = right;
    }
    bool fits = seq->ndim == 1 || seq->ndim == x->ndim;
    for (int32_t d = 0; fits && seq->ndim > 1 && d + 1 < seq->ndim; d++)
        fits = seq->shape[d] == x->shape[d];
    if (seq->ndim == 0 || !fits)
        return tn_fail(
            TN_E_SHAPE, 0,
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            "dimensions of boundaries tensor and input value tensor must match, but we got "
            "boundaries tensor %s and input value tensor %s",
            tni_shape_text_of(seq), tni_shape_text_of(x));
    if (a->sorter && tn_view_dtype(a->sorter) != TN_I64)
        return tn_fail(
            TN_E_DTYPE, 5,
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype %s",
            tni_type_text(tn_view_dtype(a->sorter)));
    return TN_OK;
}

tn_status tni_composite_searchsorted(const void *args, tn_tensor **rets) {
    const tn_searchsorted_args *a = args;
    tn_tensor *seq = tn_tensor_ref(tni_t(a->sorted_sequence)), *next = NULL, *x = NULL,
              *found = NULL;
    bool right = false;
    tn_status st = check_search(a, &right);
    if (st) goto out;
    if (a->sorter) {
        if ((st = tn_gather(seq, -1, tni_t(a->sorter), 0, &next))) goto out;
        tn_tensor_unref(&seq);
        seq = next;
        next = NULL;
    }
    tn_tensor *both[] = {seq, tni_t(a->input)};
    int32_t dtype = tni_result_dtype(both, 2);
    if (dtype == TN_NO_DTYPE) {
        st = tni_fail_promotions(both, 2);
        goto out;
    }
    if ((st = tn__move(tni_t(a->input), dtype, -1, &x))) goto out;
    if ((st = tn__move(seq, dtype, -1, &next))) goto out;
    if ((st = tn__searchsorted(next, x, right, &found))) goto out;
    st = tn__move(found, a->out_int32 ? TN_I32 : TN_I64, -1, rets);
out:
    tn_tensor_unref(&seq);
    tn_tensor_unref(&next);
    tn_tensor_unref(&x);
    tn_tensor_unref(&found);
    return st;
}
