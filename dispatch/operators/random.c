/* random.c: operators that allocate and then draw in place, dropout, and the shape rules of
 * the drawing operators that need one. */
#include <tenon/args_random.h>
#include <tenon/ops_create.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_random.h>
#include <tenon/ops_reduce.h>

#include "call_priv.h"
#include "infer_priv.h"
#include "op_random.h"

/* ---- Allocate, then draw -----------------------------------------------------------------------*/

/* Hands t over when drawing went well. `same` (or NULL) is where an in-place call left its second
 * reference: behind a pointer, as arguments are evaluated in no fixed order. */
static tn_status drawn(tn_status st, tn_tensor *t, tn_tensor **same, tn_tensor **rets) {
    tn_tensor_unref(same);
    if (st == TN_OK)
        rets[0] = t;
    else
        tn_tensor_unref(&t);
    return st;
}

tn_status tni_composite_rand(const void *args, tn_tensor **rets) {
    const tn_rand_args *a = args;
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty(a->size, a->dtype, a->device, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(tn_uniform_(t, 0.0, 1.0, a->generator, &same), t, &same, rets);
}

tn_status tni_composite_randn(const void *args, tn_tensor **rets) {
    const tn_randn_args *a = args;
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty(a->size, a->dtype, a->device, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(tn_normal_(t, 0.0, 1.0, a->generator, &same), t, &same, rets);
}

static tn_status integers(tn_ints size, int64_t low, int64_t high, tn_generator *gen, int64_t dtype,
                          int64_t device, tn_tensor **rets) {
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty(size, dtype < 0 ? TN_I64 : dtype, device, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(tn_random__from(t, low, tn_some_int(high), gen, &same), t, &same, rets);
}

tn_status tni_composite_randint(const void *args, tn_tensor **rets) {
    const tn_randint_args *a = args;
    return integers(a->size, 0, a->high, a->generator, a->dtype, a->device, rets);
}

tn_status tni_composite_randint_low(const void *args, tn_tensor **rets) {
    const tn_randint_low_args *a = args;
    return integers(a->size, a->low, a->high, a->generator, a->dtype, a->device, rets);
}

/* Can the dtype hold each number below n? */
static tn_status check_counts(int64_t n, int32_t dtype) {
    tn_scalar last = tn_scalar_int(n ? n - 1 : 0);
    int64_t most = dtype == TN_F16    ? (1 << 11) + 1
                   : dtype == TN_BF16 ? (1 << 8) + 1
                   : dtype == TN_F32  ? (1 << 24) + 1
                                      : INT64_MAX;
    int32_t kind = tn_dtype_category(dtype);
    if (kind == TN_CAT_BOOL || kind == TN_CAT_COMPLEX)
        return tn_fail(TN_E_UNSUPPORTED, -1, "\"randperm\" not implemented for '%s'",
                       tni_type_text(dtype));
    if (n > most)
        return tn_fail(TN_E_STATE, 0, "n cannot be greater than %lld for type %s", (long long)most,
                       tni_type_text(dtype));
    return tni_check_scalar_fits(&last, dtype);
}

tn_status tni_composite_randperm(const void *args, tn_tensor **rets) {
    const tn_randperm_args *a = args;
    tn_tensor *t, *same = NULL;
    int64_t dtype = a->dtype < 0 ? TN_I64 : a->dtype;
    if (a->n < 0)
        return tn_fail(TN_E_STATE, 0,
                       "Trying to create tensor with negative dimension %lld: [%lld]",
                       (long long)a->n, (long long)a->n);
    TN_TRY(check_counts(a->n, (int32_t)dtype));
    TN_TRY(tn_empty(tn_ints_of(&a->n, 1), TN_I64, a->device, TN_FORMAT_CONTIGUOUS, &t));
    TN_TRY(drawn(tn__randperm_(t, a->generator, &same), t, &same, rets));
    if (dtype == TN_I64) return TN_OK;
    t = rets[0];
    tn_status st = tn__move(t, dtype, -1, rets);
    tn_tensor_unref(&t);
    return st;
}

tn_status tni_composite_rand_like(const void *args, tn_tensor **rets) {
    const tn_rand_like_args *a = args;
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty_like(tni_t(a->input), a->dtype, a->device, a->memory_format, &t));
    return drawn(tn_uniform_(t, 0.0, 1.0, a->generator, &same), t, &same, rets);
}

tn_status tni_composite_randn_like(const void *args, tn_tensor **rets) {
    const tn_randn_like_args *a = args;
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty_like(tni_t(a->input), a->dtype, a->device, a->memory_format, &t));
    return drawn(tn_normal_(t, 0.0, 1.0, a->generator, &same), t, &same, rets);
}

static tn_status integers_like(const tn_view *like, int64_t low, int64_t high, tn_generator *gen,
                               int64_t dtype, int64_t device, int64_t format, tn_tensor **rets) {
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty_like(tni_t(like), dtype, device, format, &t));
    return drawn(tn_random__from(t, low, tn_some_int(high), gen, &same), t, &same, rets);
}

tn_status tni_composite_randint_like(const void *args, tn_tensor **rets) {
    const tn_randint_like_args *a = args;
    return integers_like(a->input, 0, a->high, a->generator, a->dtype, a->device, a->memory_format,
                         rets);
}

tn_status tni_composite_randint_like_low(const void *args, tn_tensor **rets) {
    const tn_randint_like_low_args *a = args;
    return integers_like(a->input, a->low, a->high, a->generator, a->dtype, a->device,
                         a->memory_format, rets);
}

/* ---- normal ------------------------------------------------------------------------------------*/

static tn_status check_std(const tn_view *std) {
    tn_tensor *least = NULL;
    tn_scalar value;
    if (tn_dtype_category(tn_view_dtype(std)) == TN_CAT_COMPLEX)
        return tn_fail(TN_E_STATE, 1, "normal expects standard deviation to be non-complex");
    if (std->numel == 0 || tni_is_meta(std)) return TN_OK;
    TN_TRY(tn_amin(tni_t(std), tn_ints_none(), 0, &least));
    tn_status st = tn_tensor_item(least, &value);
    tn_tensor_unref(&least);
    if (st == TN_OK && !(value.re >= 0.0))
        return tn_fail(TN_E_STATE, 1, "normal expects all elements of std >= 0.0");
    return st;
}

/* A new tensor like `model`, or of the shape it broadcasts to with `other`, of normal numbers with
 * the given deviation. */
static tn_status normal_like(const tn_view *model, const tn_view *other, double std,
                             tn_generator *gen, tn_tensor **ret) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim = model->ndim;
    tn_tensor *t, *same = NULL;
    if (ndim > 0) memcpy(shape, model->shape, sizeof *shape * (size_t)ndim);
    if (other)
        TN_TRY(tni_broadcast_shapes(ndim, model->shape, other->ndim, other->shape, &ndim, shape));
    TN_TRY(tn_tensor_new(tn_view_dtype(model), tn_tensor_device(tni_t(model)), ndim, shape, &t));
    return drawn(tn_normal_(t, 0.0, std, gen, &same), t, &same, ret);
}

tn_status tni_composite_normal(const void *args, tn_tensor **rets) {
    const tn_normal_args *a = args;
    tn_tensor *t;
    TN_TRY(check_std(a->std));
    TN_TRY(normal_like(a->mean, a->std, 1.0, a->generator, &t));
    tn_status st = tn_mul_(t, tni_t(a->std));
    if (st == TN_OK) st = tn_add_(t, tni_t(a->mean), tn_scalar_int(1));
    return drawn(st, t, NULL, rets);
}

tn_status tni_composite_normal_mean(const void *args, tn_tensor **rets) {
    const tn_normal_mean_args *a = args;
    tn_tensor *t;
    TN_TRY(normal_like(a->mean, NULL, a->std, a->generator, &t));
    return drawn(tn_add_(t, tni_t(a->mean), tn_scalar_int(1)), t, NULL, rets);
}

tn_status tni_composite_normal_std(const void *args, tn_tensor **rets) {
    const tn_normal_std_args *a = args;
    tn_scalar_box box;
    tn_tensor *t;
    TN_TRY(check_std(a->std));
    TN_TRY(normal_like(a->std, NULL, 1.0, a->generator, &t));
    tn_status st = tn_mul_(t, tni_t(a->std));
    if (st == TN_OK)
        st = tn_add_(t, tn_scalar_box_init(&box, tn_scalar_float(a->mean)), tn_scalar_int(1));
    return drawn(st, t, NULL, rets);
}

tn_status tni_composite_normal_size(const void *args, tn_tensor **rets) {
    const tn_normal_size_args *a = args;
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty(a->size, a->dtype, a->device, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(tn_normal_(t, a->mean, a->std, a->generator, &same), t, &same, rets);
}

/* ---- What draws go by ---------------------------------------------------------------------------*/

static bool is_real(const tn_view *v) {
    return tn_dtype_category(tn_view_dtype(v)) == TN_CAT_FLOAT && tn_view_dtype(v) <= TN_F64;
}

/* A parameter is broadcast to what is drawn. */
static tn_status check_spreads(const tn_view *self, const tn_view *by, int32_t arg) {
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim;
    TN_TRY(tni_broadcast_shapes(self->ndim, self->shape, by->ndim, by->shape, &ndim, shape));
    if (tni_shape_is(tni_t(self), ndim, shape)) return TN_OK;
    return tn_fail(TN_E_SHAPE, arg, "output with shape %s doesn't match the broadcast shape %s",
                   tni_shape_text_of(self), tni_shape_text(ndim, shape));
}

static tn_status infer_counts(tn_infer *inf, const tn_view *self, const tn_view *const *by, int n) {
    for (int i = 0; i < n; i++) {
        if (!is_real(by[i]))
            return tn_fail(TN_E_DTYPE, i + 1, "expected a floating dtype up to double but found %s",
                           tni_type_text(tn_view_dtype(by[i])));
        TN_TRY(check_spreads(self, by[i], i + 1));
    }
    tni_infer_same(inf, 0, self);
    return TN_OK;
}

tn_status tni_infer__poisson_(tn_infer *inf, const void *args) {
    const tn__poisson__args *a = args;
    return infer_counts(inf, a->self, (const tn_view *const[]){a->rate}, 1);
}

tn_status tni_infer__standard_gamma_(tn_infer *inf, const void *args) {
    const tn__standard_gamma__args *a = args;
    return infer_counts(inf, a->self, (const tn_view *const[]){a->concentration}, 1);
}

tn_status tni_infer__binomial_(tn_infer *inf, const void *args) {
    const tn__binomial__args *a = args;
    return infer_counts(inf, a->self, (const tn_view *const[]){a->count, a->prob}, 2);
}

/* ---- poisson, binomial, gamma ------------------------------------------------------------------*/

/* A tensor like the parameters, filled by them. */
static tn_status draw_like(tn_status (*fill)(tn_tensor *, tn_tensor *, tn_generator *,
                                             tn_tensor **),
                           const tn_view *input, tn_generator *gen, tn_tensor **rets) {
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty_like(tni_t(input), -1, -1, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(fill(t, tni_t(input), gen, &same), t, &same, rets);
}

tn_status tni_composite_poisson(const void *args, tn_tensor **rets) {
    const tn_poisson_args *a = args;
    return draw_like(tn__poisson_, a->input, a->generator, rets);
}

tn_status tni_composite__standard_gamma(const void *args, tn_tensor **rets) {
    const tn__standard_gamma_args *a = args;
    return draw_like(tn__standard_gamma_, a->input, a->generator, rets);
}

tn_status tni_composite_binomial(const void *args, tn_tensor **rets) {
    const tn_binomial_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    int32_t ndim;
    tn_tensor *t, *same = NULL;
    int32_t dtype = tn_view_dtype(a->count);
    if (dtype != tn_view_dtype(a->prob) || tn_dtype_category(dtype) != TN_CAT_FLOAT)
        return tn_fail(TN_E_VALUE, 1,
                       "binomial only supports floating-point dtypes for count and prob, and one "
                       "for both, got: %s and %s",
                       tni_type_text(dtype), tni_type_text(tn_view_dtype(a->prob)));
    TN_TRY(tni_broadcast_shapes(a->count->ndim, a->count->shape, a->prob->ndim, a->prob->shape,
                                &ndim, shape));
    TN_TRY(tn_new_empty(tni_t(a->count), tn_ints_of(shape, ndim), -1, -1, &t));
    return drawn(tn__binomial_(t, tni_t(a->count), tni_t(a->prob), a->generator, &same), t, &same,
                 rets);
}

/* ---- bernoulli, multinomial --------------------------------------------------------------------*/

tn_status tni_infer_bernoulli__tensor(tn_infer *inf, const void *args) {
    const tn_bernoulli__tensor_args *a = args;
    if (!is_real(a->p))
        return tn_fail(TN_E_UNSUPPORTED, 1, "\"bernoulli_tensor_cpu_p_\" not implemented for '%s'",
                       tni_type_text(tn_view_dtype(a->p)));
    TN_TRY(check_spreads(a->self, a->p, 1));
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}

tn_status tni_composite_bernoulli(const void *args, tn_tensor **rets) {
    const tn_bernoulli_args *a = args;
    tn_tensor *input = tni_t(a->input), *t, *same = NULL;
    TN_TRY(tn_empty_like(input, -1, -1, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(tn_bernoulli__tensor(t, input, a->generator, &same), t, &same, rets);
}

tn_status tni_composite_bernoulli_p(const void *args, tn_tensor **rets) {
    const tn_bernoulli_p_args *a = args;
    tn_tensor *t, *same = NULL;
    TN_TRY(tn_empty_like(tni_t(a->input), -1, -1, TN_FORMAT_CONTIGUOUS, &t));
    return drawn(tn_bernoulli_(t, a->p, a->generator, &same), t, &same, rets);
}

tn_status tni_infer_multinomial(tn_infer *inf, const void *args) {
    const tn_multinomial_args *a = args;
    const tn_view *v = a->input;
    if (v->ndim < 1 || v->ndim > 2) return tn_fail(TN_E_STATE, 0, "prob_dist must be 1 or 2 dim");
    if (tn_dtype_category(tn_view_dtype(v)) != TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 0,
                       "multinomial only supports floating-point dtypes for input, got: %s",
                       tni_type_text(tn_view_dtype(v)));
    int64_t columns = v->shape[v->ndim - 1];
    if (a->num_samples <= 0) return tn_fail(TN_E_STATE, 1, "cannot sample n_sample <= 0 samples");
    if (!a->replacement && a->num_samples > columns)
        return tn_fail(TN_E_STATE, 1,
                       "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    if (columns == 0)
        return tn_fail(TN_E_STATE, 0,
                       "invalid multinomial distribution (sum of probabilities <= 0)");
    int64_t shape[2] = {v->shape[0], a->num_samples};
    return tni_infer_set(inf, 0, v->ndim, v->ndim == 2 ? shape : shape + 1);
}

/* ---- dropout -----------------------------------------------------------------------------------*/

static tn_status check_p(double p) {
    if (p >= 0.0 && p <= 1.0) return TN_OK;
    return tn_fail(TN_E_STATE, 1, "dropout probability has to be between 0 and 1, but got %g", p);
}

/* 1 / (1 - p) as division in the dtype's arithmetic, rounded to the dtype. */
static double kept_scale(int32_t dtype, double p) {
    double scale = dtype == TN_F64 ? 1.0 / (1.0 - p) : (double)(1.0f / (float)(1.0 - p));
    tn_scalar rounded, s = tn_scalar_float(scale);
    _Alignas(16) unsigned char bytes[16];
    tni_scalar_store(&s, dtype, bytes);
    tni_scalar_load(dtype, bytes, &rounded);
    return rounded.re;
}

/* The kernel walks input, output and mask as one row of memory. */
static tn_status dropped(tn_tensor *input, double p, tn_tensor **ret_output, tn_tensor **ret_mask) {
    tn_tensor *dense;
    double scale = kept_scale(tn_tensor_dtype(input), p);
    if (input->v.word & TN_W_DENSE) return tn__dropout(input, p, scale, NULL, ret_output, ret_mask);
    TN_TRY(tn_clone(input, TN_FORMAT_PRESERVE, &dense));
    tn_status st = tn__dropout(dense, p, scale, NULL, ret_output, ret_mask);
    tn_tensor_unref(&dense);
    return st;
}

static tn_status dropout_of(tn_tensor *input, double p, int64_t train, tn_tensor **ret) {
    tn_tensor *mask = NULL;
    TN_TRY(check_p(p));
    if (!train || p == 0.0 || input->v.numel == 0) {
        *ret = tn_tensor_ref(input);
        return TN_OK;
    }
    if (p == 1.0) return tn_mul_scalar(input, tn_scalar_bool(0), ret);
    TN_TRY(dropped(input, p, ret, &mask));
    tn_tensor_unref(&mask);
    return TN_OK;
}

tn_status tni_composite_dropout(const void *args, tn_tensor **rets) {
    const tn_dropout_args *a = args;
    return dropout_of(tni_t(a->input), a->p, a->train, rets);
}

tn_status tni_composite_dropout_(const void *args, tn_tensor **rets) {
    const tn_dropout__args *a = args;
    tn_tensor *self = tni_t(a->self), *noise = NULL, *same = NULL;
    TN_TRY(check_p(a->p));
    tn_status st = TN_OK;
    if (a->train && a->p > 0.0 && a->p < 1.0 && self->v.numel != 0) {
        /* Noise of its own, so that one recorded product does the rest. */
        if ((st = tn_empty_like(self, -1, -1, TN_FORMAT_PRESERVE, &noise))) goto out;
        if ((st = tn_bernoulli_(noise, 1.0 - a->p, NULL, &same))) goto out;
        tn_scalar_box box;
        double scale = kept_scale(tn_tensor_dtype(self), a->p);
        st = tn_mul_(noise, tn_scalar_box_init(&box, tn_scalar_float(scale)));
        if (st) goto out;
        if ((st = tn_mul_(self, noise))) goto out;
    } else if (a->train && a->p == 1.0) {
        tn_scalar_box zero;
        if ((st = tn_mul_(self, tn_scalar_box_init(&zero, tn_scalar_int(0))))) goto out;
    }
    rets[0] = tn_tensor_ref(self);
out:
    tn_tensor_unref(&same);
    tn_tensor_unref(&noise);
    return st;
}

tn_status tni_composite_native_dropout(const void *args, tn_tensor **rets) {
    const tn_native_dropout_args *a = args;
    tn_tensor *input = tni_t(a->input), *mask = NULL;
    TN_TRY(check_p(a->p));
    if (a->train && a->p > 0.0 && a->p < 1.0 && input->v.numel != 0)
        return dropped(input, a->p, &rets[0], &rets[1]);
    bool keeps = !a->train || a->p == 0.0;
    TN_TRY(tn_full_like(input, tn_scalar_bool(keeps), TN_BOOL, -1, TN_FORMAT_PRESERVE, &mask));
    tn_status st = tn_mul_scalar(input, tn_scalar_int(keeps), &rets[0]);
    if (st == TN_OK)
        rets[1] = mask;
    else
        tn_tensor_unref(&mask);
    return st;
}

/* Kernels see unsigned integers of more than 8 bits as signed ones that hold them all. */
static tn_status check_unsigned(const tn_view *self, const char *name, int64_t v) {
    int32_t dtype = tn_view_dtype(self);
    bool wide = dtype == TN_U16 || dtype == TN_U32 || dtype == TN_U64;
    int64_t most = dtype == TN_U16 ? UINT16_MAX : dtype == TN_U32 ? UINT32_MAX : INT64_MAX;
    if (!wide || (v >= 0 && v <= most)) return TN_OK;
    return tn_fail(TN_E_STATE, 1, "%s is out of bounds for %s", name, tni_type_text(dtype));
}

tn_status tni_infer_random__from(tn_infer *inf, const void *args) {
    const tn_random__from_args *a = args;
    TN_TRY(check_unsigned(a->self, "from", a->from));
    if (a->to.has && a->to.value > a->from)
        TN_TRY(check_unsigned(a->self, "to - 1", a->to.value - 1));
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}

tn_status tni_infer_random__to(tn_infer *inf, const void *args) {
    const tn_random__to_args *a = args;
    if (a->to > 0) TN_TRY(check_unsigned(a->self, "to - 1", a->to - 1));
    tni_infer_same(inf, 0, a->self);
    return TN_OK;
}
