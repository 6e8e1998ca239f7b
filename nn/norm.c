/* norm.c: normalisation layers over the fused kernels, logsumexp, the gradient of cumprod. */
#include "op_ids.h"
#include "scope_priv.h"

tn_status tni_composite_layer_norm(const void *args, tn_tensor **rets);
tn_status tni_composite_rms_norm(const void *args, tn_tensor **rets);
tn_status tni_composite_group_norm(const void *args, tn_tensor **rets);
tn_status tni_composite_instance_norm(const void *args, tn_tensor **rets);
tn_status tni_composite_batch_norm(const void *args, tn_tensor **rets);
tn_status tni_composite_logsumexp(const void *args, tn_tensor **rets);
tn_status tni_composite__cumprod_backward(const void *args, tn_tensor **rets);

tn_status tni_composite_layer_norm(const void *args, tn_tensor **rets) {
    const tn_layer_norm_args *a = args;
    tn_tensor *mean = NULL, *rstd = NULL;
    TN_TRY(tn_native_layer_norm(tni_t(a->input), a->normalized_shape, tni_t(a->weight),
                                tni_t(a->bias), a->eps, &rets[0], &mean, &rstd));
    tn_tensor_unref(&mean);
    tn_tensor_unref(&rstd);
    return TN_OK;
}

/* Smallest distance between 1 and the next number: what rms_norm adds when it is given nothing. */
static double epsilon_of(int32_t dtype) {
    switch (dtype) {
    case TN_F64: return 0x1p-52;
    case TN_BF16: return 0x1p-7;
    case TN_F16: return 0x1p-10;
    default: return 0x1p-23;
    }
}

/* The dtype of the result. */
static int32_t rms_dtype(const tn_rms_norm_args *a) {
    int32_t dtype = tn_view_dtype(a->input);
    return a->weight ? tn_dtype_promote(dtype, tn_view_dtype(a->weight)) : dtype;
}

/* Whether one kernel can do it all; weights have the normalized shape there. */
static bool has_rms_kernel(const tn_rms_norm_args *a) {
    const tn_view *x = a->input, *w = a->weight;
    tn_ints shape = a->normalized_shape;
    int32_t dtype = rms_dtype(a);
    if (((w ? w->word : 0) | x->word) & TN_W_SPECIAL) return false;
    if (w && ((w->word ^ x->word) & (TN_W_DEVICE | TN_W_INDEX))) return false;
    if (w && w->ndim != shape.n) return false;
    if (w && memcmp(w->shape, shape.v, sizeof *shape.v * (size_t)shape.n) != 0) return false;
    return tn_dtype_category(dtype) == TN_CAT_FLOAT &&
           tni_kernel_find(&tni_ops[TNI_OP__rms_norm], tn_view_device(x), dtype);
}

static tn_status rms_norm_at_once(const tn_rms_norm_args *a, double eps, tn_tensor **rets) {
    tni_scope s = {0};
    int32_t dtype = rms_dtype(a);
    tn_tensor *x = scope_convert(&s, tni_t(a->input), dtype), *w = NULL, *rstd = NULL, *y = NULL;
    if (a->weight) w = scope_convert(&s, tni_t(a->weight), dtype);
    if (s.st == TN_OK) {
        tn_status st = tn__rms_norm(x, a->normalized_shape, w, eps, &y, &rstd);
        y = scope_take(&s, st, y);
        tn_tensor_unref(&rstd);
    }
    return scope_finish(&s, y, rets);
}

tn_status tni_composite_rms_norm(const void *args, tn_tensor **rets) {
    const tn_rms_norm_args *a = args;
    tni_scope s = {0};
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
    double eps = a->eps.has ? a->eps.value : epsilon_of(dtype);
    if (has_rms_kernel(a)) return rms_norm_at_once(a, eps, rets);
    tn_tensor *ms = scope_mean(&s, scope_square(&s, x), tn_ints_of(dims, n), 1);
    tn_tensor *r = scope_rsqrt(&s, scope_add_number(&s, ms, eps));
    tn_tensor *y = scope_mul(&s, x, r);
    if (a->weight) y = scope_mul(&s, y, tni_t(a->weight));
    return scope_finish(&s, y, rets);
}

/* A vector over channels, shaped to multiply (n, c, ...). */
static tn_tensor *by_channel(tni_scope *s, const tn_view *p, int32_t ndim) {
    int64_t shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < ndim; d++) shape[d] = d == 1 ? p->numel : 1;
    return scope_reshape(s, tni_t(p), tn_ints_of(shape, ndim));
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
    if ((a->weight && a->weight->numel != c) || (a->bias && a->bias->numel != c)) {
        return tn_fail(TN_E_SHAPE, 2,
                       "Expected weight and bias to be vectors of size equal to the "
                       "number of channels in input, %lld",
                       (long long)c);
    }
    tni_scope s = {0};
    int64_t rows = x->shape[0] * a->num_groups, n = c / a->num_groups;
    for (int32_t d = 2; d < x->ndim; d++) n *= x->shape[d];
    tn_tensor *flat = scope_reshape(&s, tni_t(x), TN_INTS(rows, n)), *y = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_layer_norm(flat, TN_INTS(n), NULL, NULL, a->eps, &y);
        y = scope_take(&s, st, y);
    }
    y = scope_reshape(&s, y, tn_ints_of(x->shape, x->ndim));
    if (a->weight) y = scope_mul(&s, y, by_channel(&s, a->weight, x->ndim));
    if (a->bias) y = scope_add(&s, y, by_channel(&s, a->bias, x->ndim));
    if (s.st == TN_OK && tn_tensor_dtype(y) != tn_view_dtype(x)) { /* parameters in a wider dtype */
        tn_tensor *narrow = NULL;
        tn_status st = tn__to_copy(y, tn_view_dtype(x), -1, 0, TN_FORMAT_PRESERVE, &narrow);
        y = scope_take(&s, st, narrow);
    }
    return scope_finish(&s, y, rets);
}

static bool is_f32(const tn_view *v) { return v && tn_view_dtype(v) == TN_F32; }

/* A short input with parameters in float32, as under autocast: computed in float32, the result is short. */
static bool is_mixed(const tn_batch_norm_args *a) {
    int32_t x = tn_view_dtype(a->input);
    return (x == TN_F16 || x == TN_BF16) && (is_f32(a->weight) || is_f32(a->running_mean));
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

tn_status tni_composite_batch_norm(const void *args, tn_tensor **rets) {
    const tn_batch_norm_args *a = args;
    tn_tensor *mean = NULL, *invstd = NULL;
    const tn_view *x = a->input;
    if (is_mixed(a)) return run_mixed(a, rets);
    if (a->training && x->ndim >= 2 && x->shape[1] > 0 && x->numel / x->shape[1] == 1) {
        return tn_fail(TN_E_VALUE, 0,
                       "Expected more than 1 value per channel when training, got input size %s",
                       "with one value per channel");
    }
    TN_TRY(tn_native_batch_norm(tni_t(x), tni_t(a->weight), tni_t(a->bias), tni_t(a->running_mean),
                                tni_t(a->running_var), a->training, a->momentum, a->eps, &rets[0],
                                &mean, &invstd));
    tn_tensor_unref(&mean);
    tn_tensor_unref(&invstd);
    return TN_OK;
}

/* Running statistics repeated for every sample; NULL stays NULL. */
static tn_tensor *repeated(tni_scope *s, const tn_view *p, int64_t n) {
    if (!p) return NULL;
    tn_tensor *copy = NULL, *wide = scope_expand(s, tni_t(p), TN_INTS(n, p->numel));
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
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], n = x->shape[0], c = x->shape[1];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    shape[0] = 1;
    shape[1] = n * c;
    tn_tensor *flat = scope_reshape(&s, tni_t(x), tn_ints_of(shape, x->ndim)), *y = NULL;
    tn_tensor *mean = repeated(&s, a->running_mean, n), *var = repeated(&s, a->running_var, n);
    tn_tensor *weight = repeated(&s, a->weight, n), *bias = repeated(&s, a->bias, n);
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

/* log(sum(exp(x - m))) + m, where m is the maximum, or 0 where that is infinite. m is a constant
 * for the gradient: the terms that it adds cancel. */
tn_status tni_composite_logsumexp(const void *args, tn_tensor **rets) {
    const tn_logsumexp_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *m = NULL, *inf = NULL, *plain = NULL;
    tn_scalar_box zero;
    tn_status st = TN_OK;
    if (tn_dtype_category(tn_tensor_dtype(x)) < TN_CAT_FLOAT) {
        tn_tensor *real = NULL;
        st = tn__to_copy(x, tn_dtype_default(), -1, 0, TN_FORMAT_PRESERVE, &real);
        x = scope_take(&s, st, real);
    }
    if (s.st == TN_OK) {
        st = tn_detach(x, &plain);
        plain = scope_take(&s, st, plain);
    }
    if (s.st == TN_OK) {
        st = tn_amax(plain, a->dim, 1, &m);
        m = scope_take(&s, st, m);
    }
    if (s.st == TN_OK) {
        st = tn_isinf(m, &inf);
        inf = scope_take(&s, st, inf);
    }
    if (s.st == TN_OK) {
        tn_tensor *finite = NULL;
        st = tn_where(inf, tn_scalar_box_init(&zero, tn_scalar_int(0)), m, &finite);
        m = scope_take(&s, st, finite);
    }
    tn_tensor *sum =
        scope_log(&s, scope_sum(&s, scope_exp(&s, scope_sub(&s, x, m)), a->dim, a->keepdim));
    if (!a->keepdim && s.st == TN_OK) m = scope_reshape(&s, m, tni_shape_ints(sum));
    return scope_finish(&s, scope_add(&s, sum, m), rets);
}

static tn_tensor *joined(tni_scope *s, tn_tensor *a, tn_tensor *b, int64_t dim) {
    tn_tensor *both[2] = {a, b}, *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_cat((tn_tensors){both, 2}, dim, &r);
    return scope_take(s, st, r);
}

/* Slice k of the gradient: y_(k-1) * sum over i >= k of g_i * prod(x_j, k < j <= i). Dividing the
 * running product by x_k instead would lose everything behind a zero. */
static tn_status cumprod_slice(const tn__cumprod_backward_args *a, int64_t k, int64_t n,
                               tn_tensor **ret) {
    tni_scope s = {0};
    tn_tensor *ones = NULL, *run = NULL, *x = tni_t(a->input),
              *head = scope_narrow(&s, x, a->dim, k, 1);
    if (s.st == TN_OK) {
        tn_status st = tn_ones_like(head, -1, -1, TN_FORMAT_PRESERVE, &ones);
        ones = scope_take(&s, st, ones);
    }
    tn_tensor *factors = joined(&s, ones, scope_narrow(&s, x, a->dim, k + 1, n - k - 1), a->dim);
    if (s.st == TN_OK) {
        tn_status st = tn_cumprod(factors, a->dim, -1, &run);
        run = scope_take(&s, st, run);
    }
    tn_tensor *g = scope_narrow(&s, tni_t(a->grad), a->dim, k, n - k);
    tn_tensor *part = scope_sum(&s, scope_mul(&s, g, run), TN_INTS(a->dim), 1);
    if (k > 0) part = scope_mul(&s, part, scope_narrow(&s, tni_t(a->y), a->dim, k - 1, 1));
    return scope_finish(&s, part, ret);
}

tn_status tni_composite__cumprod_backward(const void *args, tn_tensor **rets) {
    const tn__cumprod_backward_args *a = args;
    int64_t n = a->input->ndim == 0 ? 0 : a->input->shape[a->dim];
    tn_tensor *sum = n == 0 ? tn_tensor_ref(tni_t(a->grad)) : NULL;
    tn_status st = TN_OK;
    for (int64_t k = 0; k < n && st == TN_OK; k++) {
        tni_scope s = {0};
        tn_tensor *part = NULL, *both = NULL;
        st = cumprod_slice(a, k, n, &part);
        if (st != TN_OK) break;
        st = scope_finish(&s, sum ? joined(&s, sum, part, a->dim) : part, &both);
        tn_tensor_unref(&part);
        tn_tensor_unref(&sum);
        sum = both;
    }
    if (st == TN_OK) {
        rets[0] = sum;
    } else {
        tn_tensor_unref(&sum);
    }
    return st;
}
