/* check.c: what pointwise operators and composites ask of their arguments beyond what promotion says (`check`). */
#include <math.h>

#include <tenon/args_linalg.h>
#include <tenon/args_math.h>
#include <tenon/args_pointwise.h>
#include <tenon/args_reduce.h>

#include "call_priv.h"
#include "op_activation.h"
#include "op_compare.h"
#include "op_linalg.h"
#include "op_math.h"
#include "op_pointwise.h"
#include "op_reduce.h"

static tn_status fail_mask(int32_t arg, const char *wants, const char *argument,
                           const tn_view *mask) {
    return tn_fail(TN_E_DTYPE, arg, "%s, but got %s with dtype %s", wants, argument,
                   tni_type_text(tn_view_dtype(mask)));
}

/* Numbers of composites: these have no kernel that would refuse a complex one. */
static tn_status check_order(const tn_scalar *ord) {
    return ord->kind != TN_CAT_COMPLEX
               ? TN_OK
               : tn_fail(TN_E_STATE, 1,
                         "linalg.vector_norm: Expected a non-complex scalar as the order of norm.");
}

static tn_status check_norm_dtype(int32_t from, int32_t to) {
    if (tn_dtype_category(to) < TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 4,
                       "linalg.vector_norm: dtype should be floating point or complex, but got %s",
                       tni_type_text(to));
    return tn_dtype_promote(from, to) == to
               ? TN_OK
               : tn_fail(TN_E_STATE, 4,
                         "linalg.vector_norm: the dtype of the input (%s) should be convertible "
                         "without narrowing to the specified dtype (%s)",
                         tni_type_text(from), tni_type_text(to));
}

/* The least of no magnitudes is none, nor is the greatest. */
static tn_status check_not_empty(const tn_view *x, tn_ints dim, double ord) {
    bool empty = false;
    for (int32_t i = 0; i < (dim.n > 0 ? dim.n : x->ndim); i++) {
        int64_t d = i;
        if (dim.n > 0) TN_TRY(tni_wrap_dim(dim.v[i], x->ndim, &d));
        empty = empty || (x->ndim > 0 && x->shape[d] == 0);
    }
    return !empty ? TN_OK
                  : tn_fail(TN_E_STATE, 0,
                            "linalg.vector_norm cannot compute the %g norm of no elements because "
                            "the operation does not have an identity",
                            ord);
}

tn_status tni_check_linalg_vector_norm(const void *args) {
    const tn_linalg_vector_norm_args *a = args;
    bool complex = tn_dtype_category(tn_view_dtype(a->input)) == TN_CAT_COMPLEX;
    if (a->dtype >= 0 && (tn_dtype_category((int32_t)a->dtype) == TN_CAT_COMPLEX) != complex)
        return tn_fail(TN_E_DTYPE, 4,
                       "linalg.vector_norm: dtype should be %s for %s inputs, but got %s",
                       complex ? "complex" : "real", complex ? "complex" : "real",
                       tni_type_text((int32_t)a->dtype));
    if (a->dtype >= 0) TN_TRY(check_norm_dtype(tn_view_dtype(a->input), (int32_t)a->dtype));
    TN_TRY(check_order(&a->ord));
    return a->ord.re < 0 || isinf(a->ord.re) ? check_not_empty(a->input, a->dim, a->ord.re) : TN_OK;
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
    return tni_check_scalar_fits(factor, dtype);
}

tn_status tni_check_addr(const void *args) {
    const tn_addr_args *a = args;
    int32_t dtype = tn_dtype_promote(
        tn_dtype_promote(tn_view_dtype(a->vec1), tn_view_dtype(a->vec2)), tn_view_dtype(a->input));
    TN_TRY(check_factor(&a->beta, "beta", dtype));
    return check_factor(&a->alpha, "alpha", dtype);
}

static bool is_whole(const tn_view *v) {
    return tn_dtype_category(tn_view_dtype(v)) < TN_CAT_FLOAT;
}

tn_status tni_check_addcdiv(const void *args) {
    const tn_addcdiv_args *a = args;
    return is_whole(a->tensor1) && is_whole(a->tensor2)
               ? tn_fail(TN_E_DTYPE, 1,
                         "addcdiv does not divide integers by integers. Convert tensor1 or tensor2 "
                         "to a floating dtype, or use div(..., rounding_mode='trunc') for integer "
                         "division.")
               : TN_OK;
}

static tn_status check_like(const tn_view *input, const tn_view *other, const char *argument) {
    int32_t want = tn_view_dtype(input), have = tn_view_dtype(other);
    if (want == have || (other->word & TN_W_SCALAR)) return TN_OK;
    return tn_fail(TN_E_DTYPE, -1, "expected dtype %s for `%s` but got dtype %s",
                   tni_type_text(want), argument, tni_type_text(have));
}

/* A weight of no dimensions is a number here. */
tn_status tni_check_lerp(const void *args) {
    const tn_lerp_args *a = args;
    TN_TRY(check_like(a->input, a->end, "end"));
    if ((tn_view_dtype(a->weight) == TN_C64 || tn_view_dtype(a->weight) == TN_C128) &&
        tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_COMPLEX)
        return tn_fail(TN_E_STATE, 2, "value cannot be converted to type %s without overflow",
                       tni_type_text(tn_view_dtype(a->input)));
    return a->weight->ndim > 0 ? check_like(a->input, a->weight, "weight") : TN_OK;
}

tn_status tni_check_bucketize(const void *args) {
    const tn_bucketize_args *a = args;
    return a->boundaries->ndim == 1
               ? TN_OK
               : tn_fail(TN_E_SHAPE, 1, "boundaries tensor must be 1 dimension, but got dim(%d)",
                         (int)a->boundaries->ndim);
}

/* As PyTorch has it, bytes are still a condition here, and nowhere else but in indices. */
tn_status tni_check_where(const void *args) {
    const tn_where_args *a = args;
    int32_t dtype = tn_view_dtype(a->condition);
    return dtype == TN_BOOL || dtype == TN_U8
               ? TN_OK
               : fail_mask(0, "where expected condition to be a boolean tensor", "a tensor",
                           a->condition);
}

/* Before the number becomes one of an unsigned dtype. */
tn_status tni_check_pow(const void *args) {
    const tn_pow_args *a = args;
    tn_scalar number;
    if (!(a->exponent->word & TN_W_SCALAR)) return TN_OK;
    if (tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_INT) return TN_OK;
    tni_scalar_load(tn_view_dtype(a->exponent), a->exponent->data, &number);
    bool negative = number.kind == TN_CAT_INT && number.re < 0;
    return negative ? tn_fail(TN_E_STATE, 1, "Integers to negative integer powers are not allowed.")
                    : TN_OK;
}

/* uint64 is rounded in int64, which is right where nothing is to be done. */
tn_status tni_check_round(const void *args) {
    const tn_round_args *a = args;
    if (a->decimals >= 0 || tn_view_dtype(a->input) != TN_U64) return TN_OK;
    return tn_fail(TN_E_UNSUPPORTED, 0, "\"round\" with decimals < 0 not implemented for 'UInt64'");
}

tn_status tni_check_masked_fill(const void *args) {
    const tn_masked_fill_args *a = args;
    int32_t dtype = tn_view_dtype(a->input);
    if (tn_view_dtype(a->mask) != TN_BOOL)
        return fail_mask(1, "masked_fill only supports boolean masks", "mask", a->mask);
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

tn_status tni_check_celu(const void *args) {
    const tn_celu_args *a = args;
    if (a->alpha.re == 0)
        return tn_fail(TN_E_STATE, 1, "ZeroDivisionError: alpha cannot be 0 for CELU");
    return TN_OK;
}

tn_status tni_check_hardtanh(const void *args) {
    const tn_hardtanh_args *a = args;
    int32_t dtype = tn_view_dtype(a->input);
    bool is_unsigned = dtype == TN_U8 || dtype == TN_U16 || dtype == TN_U32 || dtype == TN_U64;
    if (is_unsigned && (a->min_val.re < 0 || a->max_val.re < 0))
        return tn_fail(TN_E_STATE, 0,
                       "cannot do hardtanh on an unsigned type with negative limits");
    return TN_OK;
}
