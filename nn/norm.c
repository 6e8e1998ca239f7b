/* norm.c: normalisation layers over the fused kernels: shape rules, what they are made of on a device
 * without the kernel, gradients.
 *
 * When no graph is recorded a gradient calls the fused backward kernel. When one is (create_graph), the
 * same formula is written with differentiable operators, so that it can be differentiated again. */
#include <math.h>

#include <tenon/args_norm.h>
#include <tenon/ops_create.h>
#include <tenon/ops_norm.h>

#include "nn_priv.h"
#include "op_norm.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

/* An output that exists only when `wanted`, shaped like v. */
static tn_status set_wanted(tn_infer *inf, int i, bool wanted, int32_t ndim, const int64_t *shape) {
    if (wanted) return tni_infer_set(inf, i, ndim, shape);
    tni_infer_absent(inf, i);
    return TN_OK;
}

static bool ends_with(const tn_view *x, tn_ints shape) {
    if (shape.n > x->ndim) return false;
    return memcmp(x->shape + x->ndim - shape.n, shape.v, (size_t)shape.n * sizeof(int64_t)) == 0;
}

static tn_status check_parameter(const tn_view *p, tn_ints shape, int32_t arg, const char *name,
                                 int32_t dtype) {
    if (!p) return TN_OK;
    if (p->ndim != shape.n || !ends_with(p, shape)) {
        return tn_fail(
            TN_E_SHAPE, arg,
            "Expected %s to be of same shape as normalized_shape, but got %s of shape %s "
            "and normalized_shape = %s",
            name, name, tni_shape_text_of(p), tni_shape_text((int32_t)shape.n, shape.v));
    }
    if (tn_view_dtype(p) != dtype && tn_view_dtype(p) != nn_wide_dtype(dtype)) {
        return tn_fail(TN_E_DTYPE, arg, "expected %s of dtype %s, but got %s", name,
                       tni_type_text(dtype), tni_type_text(tn_view_dtype(p)));
    }
    return TN_OK;
}

/* Whether an input can be normalized over dimensions of that shape. */
static tn_status check_normalized(const tn_view *x, tn_ints shape) {
    if (shape.n < 1) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Expected normalized_shape to be at least 1-dimensional, i.e., "
                       "containing at least one element, but got normalized_shape = ()");
    }
    if (!ends_with(x, shape)) {
        return tn_fail(
            TN_E_SHAPE, 0,
            "Given normalized_shape=%s, expected input with shape [*, %s, but got input of "
            "size%s",
            tni_shape_text((int32_t)shape.n, shape.v),
            tni_shape_text((int32_t)shape.n, shape.v) + 1, tni_shape_text_of(x));
    }
    return TN_OK;
}

/* The sizes of what there is one of for each row. */
static void rows_of(const tn_view *x, tn_ints normalized, int64_t *ret_rows) {
    for (int32_t d = 0; d < x->ndim; d++)
        ret_rows[d] = d < x->ndim - normalized.n ? x->shape[d] : 1;
}

tn_status tni_infer_native_layer_norm(tn_infer *inf, const void *args) {
    const tn_native_layer_norm_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x), wide = nn_wide_dtype(dtype);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 2, "weight", dtype));
    TN_TRY(check_parameter(a->bias, a->normalized_shape, 3, "bias", dtype));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(nn_infer_set_as(inf, 0, dtype, x->ndim, x->shape));
    TN_TRY(nn_infer_set_as(inf, 1, wide, x->ndim, rows));
    return nn_infer_set_as(inf, 2, wide, x->ndim, rows);
}

tn_status tni_infer__layer_norm_backward(tn_infer *inf, const void *args) {
    const tn__layer_norm_backward_args *a = args;
    const tn_view *x = a->input;
    int32_t n = (int32_t)a->normalized_shape.n, dtype = tn_view_dtype(x);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(tni_infer_expect(inf, 0, a->grad, x->ndim, x->shape, dtype));
    TN_TRY(tni_infer_expect(inf, 3, a->mean, x->ndim, rows, nn_wide_dtype(dtype)));
    TN_TRY(tni_infer_expect(inf, 4, a->rstd, x->ndim, rows, nn_wide_dtype(dtype)));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 5, "weight", dtype));
    TN_TRY(set_wanted(inf, 0, a->need_input, a->input->ndim, a->input->shape));
    TN_TRY(set_wanted(inf, 1, a->need_weight, n, a->normalized_shape.v));
    return set_wanted(inf, 2, a->need_bias, n, a->normalized_shape.v);
}

tn_status tni_infer__rms_norm(tn_infer *inf, const void *args) {
    const tn__rms_norm_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 2, "weight", dtype));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(nn_infer_set_as(inf, 0, dtype, x->ndim, x->shape));
    return nn_infer_set_as(inf, 1, nn_wide_dtype(dtype), x->ndim, rows);
}

tn_status tni_infer__rms_norm_backward(tn_infer *inf, const void *args) {
    const tn__rms_norm_backward_args *a = args;
    const tn_view *x = a->input;
    int32_t n = (int32_t)a->normalized_shape.n, dtype = tn_view_dtype(x);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(tni_infer_expect(inf, 0, a->grad, x->ndim, x->shape, dtype));
    TN_TRY(tni_infer_expect(inf, 3, a->rstd, x->ndim, rows, nn_wide_dtype(dtype)));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 4, "weight", dtype));
    TN_TRY(set_wanted(inf, 0, a->need_input, x->ndim, x->shape));
    return set_wanted(inf, 1, a->need_weight, n, a->normalized_shape.v);
}

static tn_status check_channels(const tn_infer *inf, const tn_view *p, int64_t channels,
                                const char *name, int32_t dtype) {
    if (!p) return TN_OK;
    if (p->ndim != 1 || p->shape[0] != channels) {
        return tn_fail(TN_E_SHAPE, nn_arg(inf, name), "%s should contain %lld elements not %lld",
                       name, (long long)channels, (long long)p->numel);
    }
    if (tn_view_dtype(p) != dtype) {
        return tn_fail(TN_E_DTYPE, nn_arg(inf, name),
                       "mixed dtype: expected %s of dtype %s, but got %s", name,
                       tni_type_text(dtype), tni_type_text(tn_view_dtype(p)));
    }
    if (p->shape[0] > 1 && p->strides[0] != 1) {
        return tn_fail(TN_E_SHAPE, nn_arg(inf, name), "%s must be contiguous", name);
    }
    return TN_OK;
}

/* Both running statistics, or neither. */
static tn_status check_pair(const tn_view *mean, const tn_view *var) {
    if (!mean == !var) return TN_OK;
    return tn_fail(TN_E_VALUE, mean ? 4 : 3,
                   "running_mean and running_var must either both be None or neither be None");
}

/* Running statistics, which are needed where no others are computed. */
static tn_status check_statistic(const tn_infer *inf, const tn_view *p, bool training,
                                 int64_t channels, const char *name, int32_t dtype) {
    if (!p && !training) {
        return tn_fail(TN_E_STATE, nn_arg(inf, name), "%s must be defined in evaluation mode",
                       name);
    }
    return check_channels(inf, p, channels, name, dtype);
}

tn_status tni_infer_native_batch_norm(tn_infer *inf, const void *args) {
    const tn_native_batch_norm_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x);
    if (x->ndim < 2) {
        return tn_fail(TN_E_SHAPE, 0,
                       "batch_norm expects an input of at least 2 dimensions, got %s",
                       tni_shape_text_of(x));
    }
    int64_t c = x->shape[1];
    if (a->training) TN_TRY(check_pair(a->running_mean, a->running_var));
    TN_TRY(check_statistic(inf, a->running_mean, a->training, c, "running_mean", dtype));
    TN_TRY(check_statistic(inf, a->running_var, a->training, c, "running_var", dtype));
    TN_TRY(check_channels(inf, a->weight, c, "weight", dtype));
    TN_TRY(check_channels(inf, a->bias, c, "bias", dtype));
    tni_infer_same(inf, 0, x);
    if (!(x->word & TN_W_CHANNELS_LAST)) inf->out[0].strided = 0;
    TN_TRY(nn_infer_set_as(inf, 1, nn_wide_dtype(dtype), 1, &c));
    return nn_infer_set_as(inf, 2, nn_wide_dtype(dtype), 1, &c);
}

tn_status tni_infer__batch_norm_backward(tn_infer *inf, const void *args) {
    const tn__batch_norm_backward_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x);
    if (x->ndim < 2) return tn_fail(TN_E_SHAPE, 1, "an input of at least 2 dimensions is needed");
    TN_TRY(tni_infer_expect(inf, 0, a->grad, x->ndim, x->shape, dtype));
    TN_TRY(check_channels(inf, a->weight, x->shape[1], "weight", dtype));
    TN_TRY(check_channels(inf, a->mean, x->shape[1], "mean", nn_wide_dtype(dtype)));
    TN_TRY(check_channels(inf, a->invstd, x->shape[1], "invstd", nn_wide_dtype(dtype)));
    if (a->need_input) {
        tni_infer_same(inf, 0, a->input);
        if (!(a->input->word & TN_W_CHANNELS_LAST)) inf->out[0].strided = 0;
    } else {
        tni_infer_absent(inf, 0);
    }
    TN_TRY(set_wanted(inf, 1, a->need_weight, 1, a->input->shape + 1));
    return set_wanted(inf, 2, a->need_bias, 1, a->input->shape + 1);
}

tn_status tni_composite_layer_norm(const void *args, tn_tensor **rets) {
    const tn_layer_norm_args *a = args;
    tn_tensor *mean = NULL, *rstd = NULL;
    TN_TRY(tn_native_layer_norm(tni_t(a->input), a->normalized_shape, tni_t(a->weight),
                                tni_t(a->bias), a->eps, &rets[0], &mean, &rstd));
    tn_tensor_unref(&mean);
    tn_tensor_unref(&rstd);
    return TN_OK;
}

/* Smallest distance between 1 and the next number of the dtype that is computed in, which is float32 for
 * halves: what rms_norm adds when it is given nothing. */
static double epsilon_of(int32_t dtype) {
    return dtype == TN_F64 || dtype == TN_C128 ? 0x1p-52 : 0x1p-23;
}

/* The dtype of the computation; the result is of the input's. */
static int32_t rms_dtype(const tn_rms_norm_args *a) {
    int32_t dtype = tn_view_dtype(a->input);
    int32_t both = a->weight ? tn_dtype_promote(dtype, tn_view_dtype(a->weight)) : dtype;
    return both == TN_NO_DTYPE ? dtype : both;
}

/* Whether one kernel can do it all. */
static bool has_rms_kernel(const tn_rms_norm_args *a) {
    const tn_view *x = a->input, *w = a->weight;
    int32_t dtype = rms_dtype(a);
    if (((w ? w->word : 0) | x->word) & TN_W_SPECIAL) return false;
    if (w && ((w->word ^ x->word) & (TN_W_DEVICE | TN_W_INDEX))) return false;
    return tn_dtype_category(dtype) == TN_CAT_FLOAT &&
           tni_kernel_find(&tni_op__rms_norm, tn_view_device(x), dtype);
}

static tn_tensor *rms_norm_at_once(tni_scope *s, const tn_rms_norm_args *a, tn_tensor *x,
                                   double eps) {
    int32_t dtype = rms_dtype(a);
    tn_tensor *w = NULL, *rstd = NULL, *y = NULL;
    x = scope_convert(s, x, dtype);
    if (a->weight) w = scope_convert(s, tni_t(a->weight), dtype);
    if (s->st == TN_OK) {
        tn_status st = tn__rms_norm(x, a->normalized_shape, w, eps, &y, &rstd);
        y = scope_take(s, st, y);
        tn_tensor_unref(&rstd);
    }
    return y;
}

tn_status tni_composite_rms_norm(const void *args, tn_tensor **rets) {
    const tn_rms_norm_args *a = args;
    tn_tensor *x = tni_t(a->input);
    int64_t dims[TN_MAX_DIMS], n = a->normalized_shape.n;
    int32_t dtype = tn_tensor_dtype(x);
    bool fits = n >= 1 && n <= a->input->ndim;
    for (int64_t i = 0; fits && i < n; i++) {
        dims[i] = a->input->ndim - n + i;
        fits = a->input->shape[dims[i]] == a->normalized_shape.v[i];
    }
    if (!fits) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Given normalized_shape of %lld dimensions, the input's last "
                       "dimensions must be the same",
                       (long long)n);
    }
    const tn_view *w = a->weight;
    if (w &&
        (w->ndim != n || memcmp(w->shape, a->normalized_shape.v, sizeof *w->shape * (size_t)n)))
        return tn_fail(TN_E_SHAPE, 2,
                       "Expected weight to be of same shape as normalized_shape, but got weight of "
                       "shape %s and normalized_shape of %lld dimensions",
                       tni_shape_text_of(w), (long long)n);
    double eps = a->eps.has ? a->eps.value : epsilon_of(dtype);
    tni_scope s = {0};
    x = SCOPE(&s, tn_contiguous(x, TN_FORMAT_CONTIGUOUS, scope_slot(&s)));
    tn_tensor *y =
        has_rms_kernel(a)
            ? rms_norm_at_once(&s, a, x, eps)
            : SCOPE(&s, tn__rms_scaled(x, tni_t(w), tn_ints_of(dims, n), eps, scope_slot(&s)));
    return scope_finish(&s, scope_convert(&s, y, dtype), rets);
}

/* A vector over channels, shaped to multiply (n, c, ...). */
static tn_tensor *by_channel(tni_scope *s, const tn_view *p, int32_t ndim) {
    int64_t shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < ndim; d++) shape[d] = d == 1 ? p->numel : 1;
    return scope_reshape(s, tni_t(p), tn_ints_of(shape, ndim));
}

/* A weight or bias: one number for each channel of x, in its dtype or in float32 beside halves. */
static tn_status check_by_channel(const tn_view *x, const tn_view *p, int32_t arg,
                                  const char *name) {
    if (!p) return TN_OK;
    if (p->ndim != 1 || p->numel != x->shape[1])
        return tn_fail(TN_E_SHAPE, arg,
                       "Expected %s to be a vector of size equal to the number of channels in "
                       "input, but got %s of shape %s and input of shape %s",
                       name, name, tni_shape_text_of(p), tni_shape_text_of(x));
    int32_t dtype = tn_view_dtype(x), have = tn_view_dtype(p);
    if (have == dtype || have == nn_wide_dtype(dtype)) return TN_OK;
    return tn_fail(TN_E_DTYPE, arg, "mixed dtype: expected %s of dtype %s, but got %s", name,
                   tni_type_text(dtype), tni_type_text(have));
}

static bool is_f32(const tn_view *v) { return v && tn_view_dtype(v) == TN_F32; }

/* Numbers of 16 bits beside parameters in float32, as under autocast: computed in float32. */
static bool is_mixed_by(const tn_view *x, const tn_view *p, const tn_view *q) {
    int32_t dtype = tn_view_dtype(x);
    return (dtype == TN_F16 || dtype == TN_BF16) && (is_f32(p) || is_f32(q));
}

tn_status tni_composite_group_norm(const void *args, tn_tensor **rets) {
    const tn_group_norm_args *a = args;
    const tn_view *x = a->input;
    if (x->ndim < 2) {
        return tn_fail(TN_E_SHAPE, 0,
                       "Expected at least 2 dimensions for input tensor but received %d",
                       (int)x->ndim);
    }
    int64_t c = x->shape[1];
    if (a->num_groups <= 0 || c % a->num_groups != 0) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Expected number of channels in input to be divisible by "
                       "num_groups, but got input of %lld channels and num_groups=%lld",
                       (long long)c, (long long)a->num_groups);
    }
    TN_TRY(check_by_channel(x, a->weight, 2, "weight"));
    TN_TRY(check_by_channel(x, a->bias, 3, "bias"));
    tni_scope s = {0};
    int64_t rows = x->shape[0] * a->num_groups, n = c / a->num_groups;
    for (int32_t d = 2; d < x->ndim; d++) n *= x->shape[d];
    if (n == 1 && x->shape[0] == 1)
        return tn_fail(TN_E_VALUE, 0,
                       "Expected more than 1 value per channel when training, got input size %s",
                       tni_shape_text_of(x));
    tn_tensor *wide = tni_t(x), *y = NULL;
    if (is_mixed_by(x, a->weight, a->bias)) wide = scope_convert(&s, wide, TN_F32);
    tn_tensor *flat = scope_reshape(&s, wide, TN_INTS(rows, n));
    if (s.st == TN_OK) {
        tn_status st = tn_layer_norm(flat, TN_INTS(n), NULL, NULL, a->eps, &y);
        y = scope_take(&s, st, y);
    }
    y = scope_reshape(&s, y, tn_ints_of(x->shape, x->ndim));
    tn_tensor *w = a->weight ? by_channel(&s, a->weight, x->ndim) : NULL;
    tn_tensor *b = a->bias ? by_channel(&s, a->bias, x->ndim) : NULL;
    if (w && b && s.st == TN_OK) {
        tn_tensor *moved = NULL;
        tn_status st = tn_addcmul(b, y, w, tn_scalar_int(1), &moved);
        y = scope_take(&s, st, moved);
    } else if (w || b) {
        y = w ? scope_mul(&s, y, w) : scope_add(&s, y, b);
    }
    if (s.st == TN_OK && tn_tensor_dtype(y) != tn_view_dtype(x)) { /* parameters in a wider dtype */
        tn_tensor *narrow = NULL;
        tn_status st = tn__to_copy(y, tn_view_dtype(x), -1, 0, TN_FORMAT_PRESERVE, &narrow);
        y = scope_take(&s, st, narrow);
    }
    return scope_finish(&s, y, rets);
}

static tn_status convert(tn_tensor *t, int32_t dtype, tn_tensor **ret) {
    return tn__to_copy(t, dtype, -1, 0, TN_FORMAT_PRESERVE, ret);
}

static tn_status run_mixed(const tn_batch_norm_args *a, tn_tensor **rets) {
    tn_tensor *wide = NULL, *y = NULL;
    TN_TRY(convert(tni_t(a->input), TN_F32, &wide));
    tn_status st =
        tn_batch_norm(wide, tni_t(a->running_mean), tni_t(a->running_var), tni_t(a->weight),
                      tni_t(a->bias), a->training, a->momentum, a->eps, &y);
    if (st == TN_OK) st = convert(y, tn_view_dtype(a->input), &rets[0]);
    tn_tensor_unref(&y);
    tn_tensor_unref(&wide);
    return st;
}

/* A vector without elements has no channels: what is left is the dependence on weight and bias. */
static tn_status scaled_nothing(const tn_batch_norm_args *a, tn_tensor **rets) {
    tni_scope s = {0};
    tn_tensor *y = scope_mul_number(&s, tni_t(a->input), 1);
    if (a->weight) y = scope_mul(&s, y, scope_select(&s, tni_t(a->weight), 0, 0));
    if (a->bias) y = scope_add(&s, y, scope_select(&s, tni_t(a->bias), 0, 0));
    return scope_finish(&s, y, rets);
}

/* A tensor without memory of its own has none, and no way to lose them. */
static bool has_gaps(const tn_view *v) {
    return v && v->ndim == 1 && !(v->word & (TN_W_CONTIGUOUS | TN_W_LAYOUT));
}

static tn_tensor *packed(tni_scope *s, const tn_view *v) {
    tn_tensor *r = NULL;
    if (!v || s->st != TN_OK) return NULL;
    tn_status st = tn_contiguous(tni_t(v), TN_FORMAT_CONTIGUOUS, &r);
    return scope_take(s, st, r);
}

/* Kernels take vectors whose elements follow each other; statistics are written back. */
static tn_status run_packed(const tn_batch_norm_args *a, tn_tensor **rets) {
    tni_scope s = {0};
    tn_tensor *mean = packed(&s, a->running_mean), *var = packed(&s, a->running_var), *y = NULL;
    tn_tensor *weight = packed(&s, a->weight), *bias = packed(&s, a->bias);
    if (s.st == TN_OK) {
        tn_status st = tn_batch_norm(tni_t(a->input), mean, var, weight, bias, a->training,
                                     a->momentum, a->eps, &y);
        y = scope_take(&s, st, y);
    }
    const tn_view *to[] = {a->running_mean, a->running_var};
    tn_tensor *from[] = {mean, var};
    for (int i = 0; i < 2 && a->training; i++) {
        tn_tensor *same = NULL;
        if (!has_gaps(to[i]) || s.st != TN_OK) continue;
        s.st = tn_copy_(tni_t(to[i]), from[i], 0, &same);
        tn_tensor_unref(&same);
    }
    return scope_finish(&s, y, rets);
}

tn_status tni_composite_batch_norm(const void *args, tn_tensor **rets) {
    const tn_batch_norm_args *a = args;
    tn_tensor *mean = NULL, *invstd = NULL;
    const tn_view *x = a->input;
    if (is_mixed_by(x, a->weight, a->running_mean)) return run_mixed(a, rets);
    if (has_gaps(a->running_mean) || has_gaps(a->running_var) || has_gaps(a->weight) ||
        has_gaps(a->bias))
        return run_packed(a, rets);
    if (x->numel == 0 && x->ndim == 1) return scaled_nothing(a, rets);
    if (a->training && x->ndim >= 2 && x->shape[1] > 0 && x->numel / x->shape[1] == 1) {
        return tn_fail(TN_E_VALUE, 0,
                       "Expected more than 1 value per channel when training, got input size %s",
                       tni_shape_text_of(x));
    }
    TN_TRY(tn_native_batch_norm(tni_t(x), tni_t(a->weight), tni_t(a->bias), tni_t(a->running_mean),
                                tni_t(a->running_var), a->training, a->momentum, a->eps, &rets[0],
                                &mean, &invstd));
    tn_tensor_unref(&mean);
    tn_tensor_unref(&invstd);
    return TN_OK;
}

tn_status tni_composite_native_group_norm(const void *args, tn_tensor **rets) {
    const tn_native_group_norm_args *a = args;
    const tn_view *x = a->input;
    int64_t rows, n;
    if (a->N < 0 || a->group <= 0 || a->C % a->group != 0)
        return tn_fail(TN_E_STATE, 6,
                       "Expected number of channels in input to be divisible by num_groups, but "
                       "got %lld channels and num_groups=%lld",
                       (long long)a->C, (long long)a->group);
    bool fits = x->ndim >= 2 && x->shape[0] == a->N && x->shape[1] == a->C &&
                (a->N * a->C == 0 || x->numel / (a->N * a->C) == a->HxW);
    if (!fits)
        return tn_fail(TN_E_STATE, 0,
                       "native_group_norm: an input of shape %s is not N=%lld, C=%lld "
                       "and HxW=%lld",
                       tni_shape_text_of(x), (long long)a->N, (long long)a->C, (long long)a->HxW);
    TN_TRY(tn_group_norm(tni_t(x), a->group, tni_t(a->weight), tni_t(a->bias), a->eps, &rets[0]));
    tni_scope s = {0};
    rows = a->N * a->group;
    n = rows ? x->numel / rows : 0;
    tn_tensor *flat = scope_unary(&s, tn_detach, tni_t(x)), *y = NULL, *mean = NULL, *rstd = NULL;
    flat = scope_reshape(&s, flat, TN_INTS(rows, n));
    if (s.st == TN_OK) {
        s.st = tn_native_layer_norm(flat, TN_INTS(n), NULL, NULL, a->eps, &y, &mean, &rstd);
        y = scope_take(&s, s.st, y);
        mean = scope_take(&s, s.st, mean);
        rstd = scope_take(&s, s.st, rstd);
    }
    tn_ints size = TN_INTS(a->N, a->group);
    mean = scope_convert(&s, scope_reshape(&s, mean, size), tn_view_dtype(x));
    rstd = scope_convert(&s, scope_reshape(&s, rstd, size), tn_view_dtype(x));
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(mean);
    tn_status st = scope_finish(&s, rstd, &rets[2]);
    if (st != TN_OK) tn_tensor_unref(&rets[0]);
    return st;
}

/* Statistics are of any floating dtype; they are kept in that of the weight, without one in that of the
 * computation. */
static int32_t statistics_dtype(const tn_instance_norm_args *a, const tn_view *p) {
    const tn_view *x = a->input;
    if (!p || tn_dtype_category(tn_view_dtype(p)) != TN_CAT_FLOAT) return TN_NO_DTYPE;
    if (a->weight) return tn_view_dtype(a->weight);
    return is_mixed_by(x, p, NULL) ? TN_F32 : tn_view_dtype(x);
}

/* A vector repeated for every sample, in `dtype` where that is one; NULL stays NULL. */
static tn_tensor *repeated(tni_scope *s, const tn_view *p, int64_t n, int32_t dtype) {
    if (!p) return NULL;
    tn_tensor *one = dtype == TN_NO_DTYPE ? tni_t(p) : scope_convert(s, tni_t(p), dtype);
    tn_tensor *copy = NULL, *wide = scope_expand(s, one, TN_INTS(n, p->numel));
    if (s->st == TN_OK) {
        tn_status st = tn_clone(wide, TN_FORMAT_CONTIGUOUS, &copy);
        copy = scope_take(s, st, copy);
    }
    return scope_reshape(s, copy, TN_INTS(n * p->numel));
}

/* Mean over the samples, written back. */
static void write_back(tni_scope *s, const tn_view *p, tn_tensor *wide, int64_t n) {
    if (!p || s->st != TN_OK) return;
    tn_tensor *mean = scope_mean(s, scope_reshape(s, wide, TN_INTS(n, p->numel)), TN_INTS(0), 0),
              *r = NULL;
    if (s->st != TN_OK) return;
    tn_status st = tn_copy_(tni_t(p), mean, 0, &r);
    scope_take(s, st, r);
}

/* Samples become channels: one batch_norm normalises every plane on its own. */
tn_status tni_composite_instance_norm(const void *args, tn_tensor **rets) {
    const tn_instance_norm_args *a = args;
    const tn_view *x = a->input;
    if (x->ndim < 3) {
        return tn_fail(TN_E_SHAPE, 0, "instance_norm expects an input of at least 3 dimensions");
    }
    if (a->use_input_stats) TN_TRY(check_pair(a->running_mean, a->running_var));
    const tn_view *const given[] = {a->weight, a->bias, a->running_mean, a->running_var};
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    for (int i = 0; i < 4; i++)
        if (given[i] && given[i]->ndim > 1)
            return tn_fail(TN_E_SHAPE, -1,
                           "instance_norm: expected %s to be a vector, but got one of shape %s",
                           names[i], tni_shape_text_of(given[i]));
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], n = x->shape[0], c = x->shape[1];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    shape[0] = 1;
    shape[1] = n * c;
    tn_tensor *flat = scope_reshape(&s, tni_t(x), tn_ints_of(shape, x->ndim)), *y = NULL;
    tn_tensor *mean = repeated(&s, a->running_mean, n, statistics_dtype(a, a->running_mean));
    tn_tensor *var = repeated(&s, a->running_var, n, statistics_dtype(a, a->running_var));
    tn_tensor *weight = repeated(&s, a->weight, n, TN_NO_DTYPE);
    tn_tensor *bias = repeated(&s, a->bias, n, TN_NO_DTYPE);
    if (s.st == TN_OK) {
        tn_status st = tn_batch_norm(flat, mean, var, weight, bias, a->use_input_stats, a->momentum,
                                     a->eps, &y);
        y = scope_take(&s, st, y);
    }
    if (a->use_input_stats) {
        write_back(&s, a->running_mean, mean, n);
        write_back(&s, a->running_var, var, n);
    }
    return scope_finish(&s, scope_reshape(&s, y, tn_ints_of(x->shape, x->ndim)), rets);
}

/* ---- Layer norm out of simpler operators ------------------------------------------------------*/

/* The last dimensions, which are normalized, and those in front of them. */
typedef struct sides {
    int64_t dims[TN_MAX_DIMS];
    tn_ints inner, outer;
} sides;

static void split(const tn_view *x, tn_ints normalized, sides *ret) {
    int64_t n = x->ndim - normalized.n;
    for (int32_t d = 0; d < x->ndim; d++) ret->dims[d] = d;
    ret->outer = tn_ints_of(ret->dims, n);
    ret->inner = tn_ints_of(ret->dims + n, normalized.n);
}

tn_status tni_composite_native_layer_norm(const void *args, tn_tensor **rets) {
    const tn_native_layer_norm_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input);
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *mean = scope_mean(&s, x, at.inner, 1), *d = scope_sub(&s, x, mean);
    tn_tensor *var = scope_mean(&s, scope_square(&s, d), at.inner, 1);
    tn_tensor *rstd = scope_rsqrt(&s, scope_add_number(&s, var, a->eps));
    tn_tensor *y = scope_mul(&s, d, rstd);
    if (a->weight) y = scope_mul(&s, y, tni_t(a->weight));
    if (a->bias) y = scope_add(&s, y, tni_t(a->bias));
    if (s.st == TN_OK) {
        rets[1] = tn_tensor_ref(mean);
        rets[2] = tn_tensor_ref(rstd);
    }
    return scope_finish(&s, y, rets);
}

/* A parameter's gradient: the sum over the rows. */
static void sum_rows(tni_scope *s, tn_tensor *x, tn_ints outer, tn_tensor **ret) {
    tn_tensor *r = outer.n > 0 ? scope_sum(s, x, outer, 0) : x;
    if (s->st == TN_OK) *ret = tn_tensor_ref(r);
}

tn_status tni_composite__layer_norm_backward(const void *args, tn_tensor **rets) {
    const tn__layer_norm_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = tni_t(a->grad), *rstd = tni_t(a->rstd), *gx = g;
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *hat = scope_mul(&s, scope_sub(&s, tni_t(a->input), tni_t(a->mean)), rstd);
    if (a->need_weight) sum_rows(&s, scope_mul(&s, g, hat), at.outer, &rets[1]);
    if (a->need_bias) sum_rows(&s, g, at.outer, &rets[2]);
    if (a->need_input) {
        if (a->weight) gx = scope_mul(&s, g, tni_t(a->weight));
        tn_tensor *along = scope_mean(&s, scope_mul(&s, gx, hat), at.inner, 1);
        tn_tensor *r = scope_sub(&s, gx, scope_mean(&s, gx, at.inner, 1));
        r = scope_mul(&s, scope_sub(&s, r, scope_mul(&s, hat, along)), rstd);
        if (s.st == TN_OK) rets[0] = tn_tensor_ref(r);
    }
    tn_status st = scope_finish(&s, NULL, NULL);
    for (int i = 0; i < 3 && st != TN_OK; i++) tn_tensor_unref(&rets[i]);
    return st;
}

/* ---- RMS norm out of simpler operators --------------------------------------------------------*/

tn_status tni_composite__rms_norm(const void *args, tn_tensor **rets) {
    const tn__rms_norm_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input);
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *square = scope_mean(&s, scope_square(&s, x), at.inner, 1);
    tn_tensor *rstd = scope_rsqrt(&s, scope_add_number(&s, square, a->eps));
    tn_tensor *y = scope_mul(&s, x, rstd);
    if (a->weight) y = scope_mul(&s, y, tni_t(a->weight));
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(rstd);
    return scope_finish(&s, y, rets);
}

tn_status tni_composite__rms_norm_backward(const void *args, tn_tensor **rets) {
    const tn__rms_norm_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = tni_t(a->grad), *rstd = tni_t(a->rstd), *gx = g;
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *hat = scope_mul(&s, tni_t(a->input), rstd);
    if (a->need_weight) sum_rows(&s, scope_mul(&s, g, hat), at.outer, &rets[1]);
    if (a->need_input) {
        if (a->weight) gx = scope_mul(&s, g, tni_t(a->weight));
        tn_tensor *along = scope_mean(&s, scope_mul(&s, gx, hat), at.inner, 1);
        tn_tensor *r = scope_mul(&s, scope_sub(&s, gx, scope_mul(&s, hat, along)), rstd);
        if (s.st == TN_OK) rets[0] = tn_tensor_ref(r);
    }
    tn_status st = scope_finish(&s, NULL, NULL);
    for (int i = 0; i < 2 && st != TN_OK; i++) tn_tensor_unref(&rets[i]);
    return st;
}

/* ---- Gradients --------------------------------------------------------------------------------*/

/* Gradients of y = (x - mean) * rstd * w + b, with mean and rstd taken over `dims` of x, or
 * constant when `stats` is off. x, g and the parameters have shapes that broadcast. */
typedef struct norm_parts {
    tn_tensor *x, *g, *weight; /* weight may be NULL */
    tn_tensor *mean, *rstd;    /* used when stats is off */
    tn_ints dims;              /* of the statistics */
    bool stats;
    double eps;
} norm_parts;

typedef struct norm_grads {
    tn_tensor *x, *weight; /* owned by the scope; weight not yet summed */
} norm_grads;

static norm_grads norm_formula(tni_scope *s, const norm_parts *p) {
    tn_tensor *mean = p->mean, *rstd = p->rstd;
    if (p->stats) mean = scope_mean(s, p->x, p->dims, 1);
    tn_tensor *centred = scope_sub(s, p->x, mean);
    if (p->stats) {
        tn_tensor *var = scope_mean(s, scope_square(s, centred), p->dims, 1);
        rstd = scope_rsqrt(s, scope_add_number(s, var, p->eps));
    }
    tn_tensor *xhat = scope_mul(s, centred, rstd);
    tn_tensor *gw = p->weight ? scope_mul(s, p->g, p->weight) : p->g;
    norm_grads r = {NULL, scope_mul(s, p->g, xhat)};
    if (p->stats) {
        tn_tensor *dot = scope_mean(s, scope_mul(s, gw, xhat), p->dims, 1);
        gw = scope_sub(s, gw, scope_mean(s, gw, p->dims, 1));
        gw = scope_sub(s, gw, scope_mul(s, xhat, dot));
    }
    r.x = scope_mul(s, gw, rstd);
    return r;
}

tn_status tni_grad_native_layer_norm(tn_gctx *c) {
    const tn_native_layer_norm_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    if (!tn_grad_enabled())
        return tn__layer_norm_backward(c->g[0], tni_t(a->input), a->normalized_shape,
                                       tni_t(a->mean), tni_t(a->rstd), tni_t(a->weight),
                                       TN_GNEEDS(c, 0), TN_GNEEDS(c, 1), TN_GNEEDS(c, 2),
                                       &c->ret[0], &c->ret[1], &c->ret[2]);
    tni_scope s = {0};
    sides at;
    split(a->input, a->normalized_shape, &at);
    norm_parts p = {tni_t(a->input), c->g[0], tni_t(a->weight), NULL, NULL, at.inner, true, a->eps};
    norm_grads r = norm_formula(&s, &p);
    tn_tensor *grads[3] = {r.x, r.weight, c->g[0]}; /* the engine sums over what comes before */
    return scope_give(&s, c, grads, TN_COUNT(grads));
}

tn_status tni_grad__rms_norm(tn_gctx *c) {
    const tn__rms_norm_args *a = c->args;
    tn_tensor *x = tni_t(a->input), *rstd = tni_t(a->rstd);
    if (!c->g[0]) return TN_OK;
    if (!tn_grad_enabled())
        return tn__rms_norm_backward(c->g[0], x, a->normalized_shape, rstd, tni_t(a->weight),
                                     TN_GNEEDS(c, 0), TN_GNEEDS(c, 1), &c->ret[0], &c->ret[1]);
    tni_scope s = {0};
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *square = scope_mean(&s, scope_square(&s, x), at.inner, 1);
    rstd = scope_rsqrt(&s, scope_add_number(&s, square, a->eps));
    tn_tensor *hat = scope_mul(&s, x, rstd), *g = c->g[0];
    tn_tensor *by_weight = scope_mul(&s, g, hat); /* the engine sums over what comes before */
    if (a->weight) g = scope_mul(&s, g, tni_t(a->weight));
    tn_tensor *along = scope_mean(&s, scope_mul(&s, g, hat), at.inner, 1);
    tn_tensor *gx = scope_mul(&s, scope_sub(&s, g, scope_mul(&s, hat, along)), rstd);
    tn_tensor *grads[3] = {gx, by_weight, NULL};
    return scope_give(&s, c, grads, TN_COUNT(grads));
}

/* Of an input without elements, whose statistics nobody has computed. */
static tn_status zeros_for_each(tn_gctx *c, const tn_native_batch_norm_args *a) {
    const tn_view *in[] = {a->input, a->weight, a->bias};
    for (uint32_t i = 0; i < 3; i++)
        if (TN_GNEEDS(c, i))
            TN_TRY(tn_zeros_like(tni_t(in[i]), -1, -1, TN_FORMAT_PRESERVE, &c->ret[i]));
    return TN_OK;
}

tn_status tni_grad_native_batch_norm(tn_gctx *c) {
    const tn_native_batch_norm_args *a = c->args;
    if (!c->g[0]) return TN_OK;
    if (a->input->numel == 0) return zeros_for_each(c, a);
    if (!tn_grad_enabled())
        return tn__batch_norm_backward(c->g[0], tni_t(a->input), tni_t(a->weight),
                                       tni_t(a->save_mean), tni_t(a->save_invstd), a->training,
                                       TN_GNEEDS(c, 0), TN_GNEEDS(c, 1), TN_GNEEDS(c, 2),
                                       &c->ret[0], &c->ret[1], &c->ret[2]);
    tni_scope s = {0};
    int64_t dims[TN_MAX_DIMS];
    int32_t n = 0, ndim = a->input->ndim;
    for (int32_t d = 0; d < ndim; d++) {
        if (d != 1) dims[n++] = d;
    }
    tn_ints over = tn_ints_of(dims, n);
    norm_parts p = {
        .x = tni_t(a->input), .g = c->g[0], .dims = over, .stats = a->training != 0, .eps = a->eps};
    if (a->weight) p.weight = by_channel(&s, a->weight, ndim);
    if (!p.stats) {
        p.mean = by_channel(&s, a->save_mean, ndim);
        p.rstd = by_channel(&s, a->save_invstd, ndim);
    }
    norm_grads r = norm_formula(&s, &p);
    tn_tensor *grads[3] = {r.x, scope_sum(&s, r.weight, over, 0), scope_sum(&s, c->g[0], over, 0)};
    return scope_give(&s, c, grads, TN_COUNT(grads));
}

/* ---- Running sums ------------------------------------------------------------------------------*/

tn_status tni_infer_logcumsumexp(tn_infer *inf, const void *args) {
    const tn_logcumsumexp_args *a = args;
    return tni_infer_set(inf, 0, a->input->ndim, a->input->shape);
}
