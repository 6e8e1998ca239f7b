/* check.c: what pointwise operators ask of their arguments beyond what promotion says (`check`). */
#include <tenon/args_pointwise.h>

#include "call_priv.h"
#include "op_compare.h"

static tn_status fail_mask(const char *name, const char *argument, const tn_view *mask) {
    return tn_fail(TN_E_DTYPE, 1, "%s: expected %s to be a boolean tensor, but got dtype %s", name,
                   argument, tni_type_text(tn_view_dtype(mask)));
}

/* As PyTorch has it, bytes are still a condition here, and nowhere else but in indices. */
tn_status tni_check_where(const void *args) {
    const tn_where_args *a = args;
    int32_t dtype = tn_view_dtype(a->condition);
    return dtype == TN_BOOL || dtype == TN_U8 ? TN_OK
                                              : fail_mask("where", "condition", a->condition);
}

tn_status tni_check_masked_fill(const void *args) {
    const tn_masked_fill_args *a = args;
    int32_t dtype = tn_view_dtype(a->input);
    if (tn_view_dtype(a->mask) != TN_BOOL) return fail_mask("masked_fill", "mask", a->mask);
    if (a->value->ndim != 0)
        return tn_fail(TN_E_SHAPE, 2,
                       "masked_fill only supports a 0-dimensional value tensor, but got tensor "
                       "with %d dimension(s).",
                       (int)a->value->ndim);
    if (tn_dtype_category(dtype) < TN_CAT_COMPLEX &&
        tn_dtype_category(tn_view_dtype(a->value)) == TN_CAT_COMPLEX)
        return tn_fail(TN_E_STATE, 2, "value cannot be converted to type %s without overflow",
                       tn_dtype_name(dtype));
    return TN_OK;
}

tn_status tni_check_isclose(const void *args) {
    const tn_isclose_args *a = args;
    int32_t one = tn_view_dtype(a->input), other = tn_view_dtype(a->other);
    if (one != other)
        return tn_fail(TN_E_DTYPE, 1, "%s did not match %s", tni_type_text(one),
                       tni_type_text(other));
    if (!(a->rtol >= 0))
        return tn_fail(TN_E_STATE, 2, "rtol must be greater than or equal to zero, but got %g",
                       a->rtol);
    if (!(a->atol >= 0))
        return tn_fail(TN_E_STATE, 3, "atol must be greater than or equal to zero, but got %g",
                       a->atol);
    return TN_OK;
}
