/* check.c: what pointwise operators and composites ask of their arguments beyond what promotion says (`check`). */
#include <tenon/args_linalg.h>
#include <tenon/args_math.h>
#include <tenon/args_pointwise.h>
#include <tenon/args_reduce.h>

#include "call_priv.h"
#include "op_compare.h"
#include "op_linalg.h"
#include "op_math.h"
#include "op_reduce.h"

static tn_status fail_mask(const char *name, const char *argument, const tn_view *mask) {
    return tn_fail(TN_E_DTYPE, 1, "%s: expected %s to be a boolean tensor, but got dtype %s", name,
                   argument, tni_type_text(tn_view_dtype(mask)));
}

/* Numbers of composites: these have no kernel that would refuse a complex one. */
static tn_status check_order(const tn_scalar *ord) {
    return ord->kind != TN_CAT_COMPLEX
               ? TN_OK
               : tn_fail(TN_E_STATE, 1,
                         "linalg.vector_norm: Expected a non-complex scalar as the order of norm.");
}

tn_status tni_check_linalg_vector_norm(const void *args) {
    const tn_linalg_vector_norm_args *a = args;
    bool complex = tn_dtype_category(tn_view_dtype(a->input)) == TN_CAT_COMPLEX;
    if (a->dtype >= 0 && (tn_dtype_category((int32_t)a->dtype) == TN_CAT_COMPLEX) != complex)
        return tn_fail(TN_E_DTYPE, 4,
                       "linalg.vector_norm: dtype should be %s for %s inputs, but got %s",
                       complex ? "complex" : "real", complex ? "complex" : "real",
                       tni_type_text((int32_t)a->dtype));
    return check_order(&a->ord);
}

tn_status tni_check_cdist(const void *args) {
    const tn_cdist_args *a = args;
    const char *mode = a->compute_mode;
    return !mode || strcmp(mode, "use_mm_for_euclid_dist_if_necessary") == 0 ||
                   strcmp(mode, "use_mm_for_euclid_dist") == 0 ||
                   strcmp(mode, "donot_use_mm_for_euclid_dist") == 0
               ? TN_OK
               : tn_fail(TN_E_VALUE, 3, "%s is not a valid value for compute_mode", mode);
}

tn_status tni_check_norm(const void *args) {
    const tn_norm_args *a = args;
    return check_order(&a->p);
}

tn_status tni_check_dist(const void *args) {
    const tn_dist_args *a = args;
    return check_order(&a->p);
}

static tn_status check_dx(const tn_scalar *dx) {
    return dx->kind != TN_CAT_COMPLEX
               ? TN_OK
               : tn_fail(TN_E_STATE, 1,
                         "trapezoid: Currently, we only support dx as a real number.");
}

tn_status tni_check_trapezoid(const void *args) {
    const tn_trapezoid_args *a = args;
    return check_dx(&a->dx);
}

tn_status tni_check_cumulative_trapezoid(const void *args) {
    const tn_cumulative_trapezoid_args *a = args;
    return check_dx(&a->dx);
}

static tn_status check_factor(const tn_scalar *factor, const char *name, int32_t dtype) {
    int32_t to = tn_dtype_category(dtype);
    if (factor->kind == TN_CAT_BOOL && to != TN_CAT_BOOL)
        return tn_fail(TN_E_STATE, -1, "Boolean %s only supported for Boolean results.", name);
    if (factor->kind >= TN_CAT_FLOAT && to < TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, -1,
                       "For integral input tensors, argument %s must not be a floating point "
                       "number.",
                       name);
    return factor->kind == TN_CAT_COMPLEX ? tni_check_scalar_fits(factor, dtype) : TN_OK;
}

tn_status tni_check_addr(const void *args) {
    const tn_addr_args *a = args;
    int32_t dtype = tn_dtype_promote(
        tn_dtype_promote(tn_view_dtype(a->vec1), tn_view_dtype(a->vec2)), tn_view_dtype(a->input));
    TN_TRY(check_factor(&a->beta, "beta", dtype));
    return check_factor(&a->alpha, "alpha", dtype);
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
