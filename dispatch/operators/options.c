/* options.c: pointwise operators that choose among others by their options. The chosen one gets the
 * caller's out tensor, so the in-place and out= forms need no copy. */
#include "call_priv.h"
#include <float.h>
#include <math.h>

#include <tenon/args_activation.h>
#include <tenon/args_compare.h>
#include <tenon/args_pointwise.h>
#include <tenon/ops_activation.h>
#include <tenon/ops_create.h>
#include <tenon/ops_pointwise.h>

#include "op_activation.h"
#include "op_compare.h"
#include "op_pointwise.h"

tn_status tni_composite_div(const void *args, tn_tensor **rets) {
    const tn_div_args *a = args;
    const char *mode = a->rounding_mode;
    /* the three have the same argument struct: input, other, out */
    tn_true_divide_args inner = {.input = a->input, .other = a->other, .out = a->out};
    if (!mode) return tn_op_call(&tni_op_true_divide, &inner, rets);
    bool recorded = tni_recording(a->input->word | a->other->word);
    if (recorded && (strcmp(mode, "floor") == 0 || strcmp(mode, "trunc") == 0))
        return tn__div_rounded(tni_t(a->input), tni_t(a->other), mode, rets);
    if (strcmp(mode, "floor") == 0) {
        tn_floor_divide_args f = {.input = a->input, .other = a->other, .out = a->out};
        return tn_op_call(&tni_op_floor_divide, &f, rets);
    }
    if (strcmp(mode, "trunc") == 0) {
        tn__trunc_divide_args t = {.input = a->input, .other = a->other, .out = a->out};
        return tn_op_call(&tni_op__trunc_divide, &t, rets);
    }
    return tn_fail(
        TN_E_STATE, 2,
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'", mode);
}

tn_status tni_composite_gelu(const void *args, tn_tensor **rets) {
    const tn_gelu_args *a = args;
    if (strcmp(a->approximate, "none") == 0) return tn__gelu(tni_t(a->input), rets);
    if (strcmp(a->approximate, "tanh") == 0) return tn__gelu_tanh(tni_t(a->input), rets);
    return tn_fail(TN_E_STATE, 1, "approximate argument must be either none or tanh.");
}

/* ---- clamp -------------------------------------------------------------------------------------*/

static tn_status clamp(const tn_view *x, const tn_view *lo, const tn_view *hi, tn_view *out,
                       tn_tensor **rets) {
    if (lo && hi) {
        tn__clamp_args both = {.input = x, .min = lo, .max = hi, .out = out};
        return tn_op_call(&tni_op__clamp, &both, rets);
    }
    if (lo) {
        tn_clamp_min_args low = {.input = x, .min = lo, .out = out};
        return tn_op_call(&tni_op_clamp_min, &low, rets);
    }
    if (hi) {
        tn_clamp_max_args high = {.input = x, .max = hi, .out = out};
        return tn_op_call(&tni_op_clamp_max, &high, rets);
    }
    return tn_fail(TN_E_STATE, -1, "torch.clamp: At least one of 'min' or 'max' must not be None");
}

tn_status tni_composite_clamp(const void *args, tn_tensor **rets) {
    const tn_clamp_args *a = args;
    tn_scalar_box low, high;
    const tn_view *lo = NULL, *hi = NULL;
    if (a->min.kind != TN_SCALAR_NONE) lo = tni_v(tn_scalar_box_init(&low, a->min));
    if (a->max.kind != TN_SCALAR_NONE) hi = tni_v(tn_scalar_box_init(&high, a->max));
    return clamp(a->input, lo, hi, a->out, rets);
}

tn_status tni_composite_clamp_tensor(const void *args, tn_tensor **rets) {
    const tn_clamp_tensor_args *a = args;
    return clamp(a->input, a->min, a->max, a->out, rets);
}

/* ---- nan_to_num --------------------------------------------------------------------------------*/

/* The largest finite number of a floating dtype. */
static double largest(int32_t dtype) {
    switch (dtype) {
    case TN_F16: return 65504.0;
    case TN_BF16: return 0x1.fep127;
    case TN_F32:
    case TN_C64: return (double)FLT_MAX;
    default: return DBL_MAX;
    }
}

tn_status tni_composite_nan_to_num(const void *args, tn_tensor **rets) {
    const tn_nan_to_num_args *a = args;
    int32_t dtype = tn_view_dtype(a->input);
    if (tn_dtype_category(dtype) < TN_CAT_FLOAT)
        return tn_clone(tni_t(a->input), TN_FORMAT_PRESERVE, rets);
    double most = largest(dtype);
    tn__nan_to_num_args inner = {
        .input = a->input,
        .nan = a->nan.has ? a->nan.value : 0.0,
        .posinf = a->posinf.has ? a->posinf.value : most,
        .neginf = a->neginf.has ? a->neginf.value : -most,
        .out = a->out,
    };
    return tn_op_call(&tni_op__nan_to_num, &inner, rets);
}
