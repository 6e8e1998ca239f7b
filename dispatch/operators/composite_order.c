/* composite_order.c: operators around the sorting kernels: results that are left out, medians of
 * everything, unique elements, searching. */
#include <math.h>

#include "core_priv.h"
#include "formula_priv.h"
#include "infer_priv.h"

#include <tenon/op_args.h>
#include <tenon/ops.h>

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
    if (v->numel == 0)
        return tn_full((tn_ints){NULL, 0}, tn_scalar_float(NAN), tn_view_dtype(v), -1, rets);
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
