/* number.c: powers in double precision, mantissas and exponents, derivatives of the gamma function. */
#include <math.h>

#include <tenon/args_number.h>
#include <tenon/args_special.h>
#include <tenon/ops_create.h>
#include <tenon/ops_number.h>
#include <tenon/ops_special.h>

#include "infer_priv.h"
#include "op_number.h"
#include "op_special.h"
#include "scope_priv.h"

static bool complex_view(const tn_view *v) {
    return tn_dtype_category(tn_view_dtype(v)) == TN_CAT_COMPLEX;
}

/* The tensor in the dtype of the power; a number stays one. */
static tn_tensor *widened(tni_scope *s, const tn_view *v, int32_t dtype) {
    return v->word & TN_W_SCALAR ? tni_t(v) : scope_convert(s, tni_t(v), dtype);
}

tn_status tni_composite_float_power(const void *args, tn_tensor **rets) {
    const tn_float_power_args *a = args;
    tni_scope s = {0};
    int32_t dtype = complex_view(a->input) || complex_view(a->exponent) ? TN_C128 : TN_F64;
    if (a->out && tn_view_dtype(a->out) != dtype)
        return tn_fail(TN_E_STATE, -1,
                       "the output given to float_power has dtype %s but the operation's result "
                       "type requires dtype %s",
                       tni_type_text(tn_view_dtype(a->out)), tni_type_text(dtype));
    tn_tensor *x = widened(&s, a->input, dtype), *y = widened(&s, a->exponent, dtype);
    return scope_finish(&s, scope_binary(&s, tn_pow, x, y), rets);
}

/* x * 2^n for whole n, by three factors that are numbers of double where their product is not: 0 stays
 * 0, and a result that is a number of x's dtype is found however large 2^n is. */
static tn_tensor *shifted(tni_scope *s, const tn_view *v, const tn_view *n, int32_t dtype) {
    const double beyond = 2400.0; /* moves the least number of double beyond the largest one */
    tn_tensor *x = scope_convert(s, tni_t(v), TN_F64), *by = scope_convert(s, tni_t(n), TN_F64);
    by = SCOPE(s, tn_clamp(by, tn_scalar_float(-beyond), tn_scalar_float(beyond), scope_slot(s)));
    tn_tensor *third = scope_unary(s, tn_floor, scope_mul_number(s, by, 1.0 / 3.0));
    tn_tensor *factor = scope_unary(s, tn_exp2, third);
    tn_tensor *rest = scope_unary(s, tn_exp2, scope_sub(s, by, scope_mul_number(s, third, 2.0)));
    x = scope_mul(s, scope_mul(s, scope_mul(s, x, factor), factor), rest);
    return scope_convert(s, x, dtype);
}

/* The power has the dtype of the exponent: a half's may be infinite where the product is not. */
static tn_tensor *times_power(tni_scope *s, const tn_view *x, const tn_view *n, int32_t dtype) {
    tn_tensor *power;
    if (complex_view(n)) {
        tn_tensor *wide = widened(s, n, TN_C128);
        power = SCOPE(s, tn_pow_scalar(tn_scalar_float(2.0), wide, scope_slot(s)));
    } else {
        power = scope_unary(s, tn_exp2, widened(s, n, TN_F64));
        if (tn_dtype_category(tn_view_dtype(n)) == TN_CAT_FLOAT)
            power = scope_convert(s, power, tn_view_dtype(n));
    }
    int32_t within = tn_dtype_size(dtype) == 2 ? TN_F32 : dtype;
    tn_tensor *factor = scope_convert(s, power, within), *base = tni_t(x);
    if (within != dtype) base = scope_convert(s, base, within);
    return scope_convert(s, scope_mul(s, base, factor), dtype);
}

tn_status tni_composite_ldexp(const void *args, tn_tensor **rets) {
    const tn_ldexp_args *a = args;
    tni_scope s = {0};
    tn_tensor *both[] = {tni_t(a->input), tni_t(a->other)};
    int32_t dtype = tni_result_dtype(both, 2);
    if (dtype == TN_NO_DTYPE) return tni_fail_promotions(both, 2);
    if (tn_dtype_category(dtype) < TN_CAT_FLOAT) dtype = tn_dtype_default();
    bool whole = tn_dtype_category(tn_view_dtype(a->other)) <= TN_CAT_INT;
    bool shifts = whole && tn_dtype_category(dtype) == TN_CAT_FLOAT;
    tn_tensor *r = shifts ? shifted(&s, a->input, a->other, dtype)
                          : times_power(&s, a->input, a->other, dtype);
    return scope_finish(&s, r, rets);
}

tn_status tni_composite_frexp(const void *args, tn_tensor **rets) {
    const tn_frexp_args *a = args;
    tni_scope s = {0};
    if (tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 0,
                       "torch.frexp() only supports floating-point dtypes, but got %s",
                       tni_type_text(tn_view_dtype(a->input)));
    tn_tensor *mantissa = scope_unary(&s, tn__frexp_mantissa, tni_t(a->input));
    tn_tensor *exponent = scope_unary(&s, tn__frexp_exponent, tni_t(a->input));
    exponent = scope_convert(&s, exponent, TN_I32);
    if (s.st == TN_OK) {
        rets[0] = tn_tensor_ref(mantissa);
        rets[1] = tn_tensor_ref(exponent);
    }
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite_polygamma(const void *args, tn_tensor **rets) {
    const tn_polygamma_args *a = args;
    if (a->n < 0) return tn_fail(TN_E_STATE, 0, "polygamma(n, x) does not support negative n.");
    return a->n == 0 ? tn_digamma(tni_t(a->input), rets)
                     : tn__polygamma(tni_t(a->input), a->n, rets);
}

/* The sum over j < p of lgamma(input - j / 2), and a constant. The terms are computed one by one. */
#define MVLGAMMA_MOST 65536
tn_status tni_composite_mvlgamma(const void *args, tn_tensor **rets) {
    const tn_mvlgamma_args *a = args;
    tni_scope s = {0};
    tn_tensor *sum = NULL;
    if (a->p < 1) return tn_fail(TN_E_STATE, 1, "p has to be greater than or equal to 1");
    if (a->p > MVLGAMMA_MOST)
        return tn_fail(TN_E_VALUE, 1, "p has to be at most %d, got %lld", MVLGAMMA_MOST,
                       (long long)a->p);
    for (int64_t j = 0; j < a->p && s.st == TN_OK; j++) {
        tni_scope step = {0};
        tn_tensor *t = scope_unary(&step, tn_lgamma,
                                   scope_add_number(&step, tni_t(a->input), -0.5 * (double)j));
        tn_tensor *next = NULL;
        t = sum ? scope_add(&step, sum, t) : t;
        s.st = scope_finish(&step, t, &next);
        tn_tensor_unref(&sum);
        sum = next;
    }
    double p = (double)a->p, constant = p * (p - 1) * 0.25 * log(0x1.921fb54442d18p+1);
    sum = scope_take(&s, s.st, sum);
    return scope_finish(&s, scope_add_number(&s, sum, constant), rets);
}
