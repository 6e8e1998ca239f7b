/* fft.c: Fourier transforms: shape rules of the three with kernels, their gradients, and what the functions
 * of the table's fft family are made of. The messages are PyTorch's. */
#include <tenon/args_fft.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_fft.h>
#include <tenon/ops_index.h>

#include "infer_priv.h"
#include "op_fft.h"
#include "scope_priv.h"

enum { SCALE_NONE, SCALE_ROOT, SCALE_ALL }; /* `normalization` */

/* ---- Shape rules -------------------------------------------------------------------------------*/

static tn_status no_points(int64_t n) {
    return tn_fail(TN_E_STATE, -1, "Invalid number of data points (%lld) specified", (long long)n);
}

/* dims: of x, not negative, none twice, none without numbers, one of them at least. */
static tn_status check_dims(const tn_view *x, tn_ints dims, int64_t normalization) {
    uint64_t seen = 0;
    for (int64_t i = 0; i < dims.n; i++) {
        if (dims.v[i] < 0 || dims.v[i] >= x->ndim || (seen >> dims.v[i] & 1))
            return tn_fail(TN_E_VALUE, 1, "dim: %lld is no dimension of the input, or stands twice",
                           (long long)dims.v[i]);
        if (!x->shape[dims.v[i]]) return no_points(0);
        seen |= UINT64_C(1) << dims.v[i];
    }
    if (dims.n < 1) return tn_fail(TN_E_VALUE, 1, "dim: at least one dimension is transformed");
    if (normalization < SCALE_NONE || normalization > SCALE_ALL)
        return tn_fail(TN_E_VALUE, 2, "normalization is 0, 1 or 2, not %lld",
                       (long long)normalization);
    return TN_OK;
}

tn_status tni_infer__fft_c2c(tn_infer *inf, const void *args) {
    const tn__fft_c2c_args *a = args;
    TN_TRY(check_dims(a->input, a->dim, a->normalization));
    return tni_infer_set(inf, 0, a->input->ndim, a->input->shape);
}

tn_status tni_infer__fft_r2c(tn_infer *inf, const void *args) {
    const tn__fft_r2c_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_dims(a->input, a->dim, a->normalization));
    memcpy(shape, a->input->shape, (size_t)a->input->ndim * sizeof *shape);
    int64_t last = a->dim.v[a->dim.n - 1];
    if (a->onesided) shape[last] = shape[last] / 2 + 1;
    inf->out[0].dtype = inf->compute == TN_F64 ? TN_C128 : TN_C64;
    return tni_infer_set(inf, 0, a->input->ndim, shape);
}

tn_status tni_infer__fft_c2r(tn_infer *inf, const void *args) {
    const tn__fft_c2r_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_dims(a->input, a->dim, a->normalization));
    memcpy(shape, a->input->shape, (size_t)a->input->ndim * sizeof *shape);
    int64_t last = a->dim.v[a->dim.n - 1], size = a->last_dim_size;
    if (size < 1 || shape[last] < size / 2 + 1)
        return tn_fail(TN_E_VALUE, 3,
                       "last_dim_size: %lld numbers are no transform of %lld real ones",
                       (long long)shape[last], (long long)size);
    shape[last] = size;
    return tni_infer_set(inf, 0, a->input->ndim, shape);
}

/* ---- Gradients ---------------------------------------------------------------------------------*/

tn_status tni_composite__fft_weigh(const void *args, tn_tensor **rets) {
    const tn__fft_weigh_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *part[3], *r = NULL;
    int64_t have = tni_size_at(x, a->dim), twice = (a->size - 1) / 2, n = 0;
    if (twice <= 0) return scope_finish(&s, x, rets);
    part[n++] = scope_narrow(&s, x, a->dim, 0, 1);
    part[n++] = scope_mul_number(&s, scope_narrow(&s, x, a->dim, 1, twice), a->weight);
    if (twice + 1 < have) part[n++] = scope_narrow(&s, x, a->dim, twice + 1, have - twice - 1);
    if (s.st == TN_OK) {
        tn_status st = tn_cat((tn_tensors){part, n}, a->dim, &r);
        r = scope_take(&s, st, r);
    }
    return scope_finish(&s, r, rets);
}

tn_status tni_composite__fft_r2c_backward(const void *args, tn_tensor **rets) {
    const tn__fft_r2c_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = tni_t(a->grad), *r = NULL;
    TN_TRY(check_dims(a->grad, a->dim, a->normalization));
    if (a->input_size.n != a->grad->ndim)
        return tn_fail(TN_E_VALUE, 4, "input_size: %lld sizes for a gradient of %d dimensions",
                       (long long)a->input_size.n, (int)a->grad->ndim);
    int64_t last = a->dim.v[a->dim.n - 1], size = a->input_size.v[last];
    tn_status st;
    if (a->onesided) {
        st = tn__fft_weigh(g, last, size, 0.5, &r);
        g = scope_take(&s, st, r);
        st = g ? tn__fft_c2r(g, a->dim, a->normalization, size, &r) : s.st;
        return scope_finish(&s, scope_take(&s, st, r), rets);
    }
    st = tn__fft_c2c(g, a->dim, a->normalization, 0, &r);
    g = scope_take(&s, st, r);
    return scope_finish(&s, scope_unary(&s, tn_real, g), rets);
}

tn_status tni_composite__fft_c2r_backward(const void *args, tn_tensor **rets) {
    const tn__fft_c2r_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = NULL, *r = NULL;
    TN_TRY(check_dims(a->grad, a->dim, a->normalization));
    int64_t last = a->dim.v[a->dim.n - 1];
    tn_status st = tn__fft_r2c(tni_t(a->grad), a->dim, a->normalization, 1, &g);
    g = scope_take(&s, st, g);
    st = g ? tn__fft_weigh(g, last, a->grad->shape[last], 2.0, &r) : s.st;
    return scope_finish(&s, scope_take(&s, st, r), rets);
}

/* ---- The functions -----------------------------------------------------------------------------*/

enum { TO_COMPLEX, FROM_REAL, TO_REAL };

/* A function of the family. */
typedef struct transform {
    const char *name;
    int kind;
    bool forward; /* the sign of its exponent is the forward one */
} transform;

typedef struct sizes {
    int64_t n, dim[TN_MAX_DIMS],
        size[TN_MAX_DIMS]; /* of the input; the last of TO_REAL is halved */
    int64_t whole;         /* of the result along the last one */
} sizes;

static tn_status scale_for(const char *norm, bool forward, int64_t *ret) {
    if (!norm || strcmp(norm, "backward") == 0)
        *ret = forward ? SCALE_NONE : SCALE_ALL;
    else if (strcmp(norm, "forward") == 0)
        *ret = forward ? SCALE_ALL : SCALE_NONE;
    else if (strcmp(norm, "ortho") == 0)
        *ret = SCALE_ROOT;
    else
        return tn_fail(TN_E_STATE, -1, "Invalid normalization mode: \"%s\"", norm);
    return TN_OK;
}

static tn_status fft_dim(int64_t dim, const tn_view *x, int64_t *ret) {
    if (x->ndim == 0)
        return tn_fail(TN_E_INDEX, -1, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)dim);
    return tni_wrap_dim(dim, x->ndim, ret);
}

/* What is transformed, and in which sizes: s and dim as they were given. */
static tn_status sizes_of(const transform *t, const tn_view *x, tn_ints s, tn_ints dim,
                          sizes *ret) {
    uint64_t mask;
    bool all = dim.n < 0;
    if (!all && s.n >= 0 && s.n != dim.n)
        return tn_fail(TN_E_STATE, -1,
                       "When given, dim and shape arguments must have the same length");
    if (s.n > x->ndim)
        return tn_fail(TN_E_STATE, -1,
                       "Got shape with %lld values but input tensor only has %d dimensions.",
                       (long long)s.n, (int)x->ndim);
    ret->n = !all ? dim.n : s.n >= 0 ? s.n : x->ndim;
    if (ret->n > TN_MAX_DIMS) return tn_fail(TN_E_STATE, -1, "FFT dims must be unique");
    for (int64_t i = 0; i < ret->n; i++) {
        if (all)
            ret->dim[i] = x->ndim - ret->n + i;
        else
            TN_TRY(fft_dim(dim.v[i], x, &ret->dim[i]));
    }
    if (ret->n > 0 && tni_dim_mask(tn_ints_of(ret->dim, ret->n), x->ndim, &mask) != TN_OK)
        return tn_fail(TN_E_STATE, -1, "FFT dims must be unique");
    if (ret->n == 0 && t->kind != TO_COMPLEX)
        return tn_fail(TN_E_STATE, -1, "%s must transform at least one axis", t->name);
    for (int64_t i = 0; i < ret->n; i++) {
        int64_t have = x->shape[ret->dim[i]];
        bool halved = t->kind == TO_REAL && i == ret->n - 1, given = s.n >= 0 && s.v[i] != -1;
        int64_t n = given ? s.v[i] : halved ? 2 * (have - 1) : have;
        if (n < 1) return no_points(n);
        ret->whole = n;
        ret->size[i] = halved && !given ? have : halved ? n / 2 + 1 : n;
    }
    return TN_OK;
}

/* Cut, or filled with zeros. */
static tn_tensor *fitted(tni_scope *s, tn_tensor *x, const sizes *z) {
    int32_t ndim = tn_tensor_ndim(x);
    int64_t pad[2 * TN_MAX_DIMS] = {0};
    bool grows = false;
    for (int64_t i = 0; i < z->n && s->st == TN_OK; i++) {
        int64_t have = tn_tensor_shape(x)[z->dim[i]], want = z->size[i];
        if (want < have) x = scope_narrow(s, x, z->dim[i], 0, want);
        if (want > have) pad[2 * (ndim - 1 - z->dim[i]) + 1] = want - have;
        grows |= want > have;
    }
    tn_tensor *r = NULL;
    if (!grows || s->st != TN_OK) return x;
    tn_status st = tn_constant_pad_nd(x, tn_ints_of(pad, 2 * ndim), tn_scalar_int(0), &r);
    return scope_take(s, st, r);
}

/* In a dtype that has transforms: numbers that are not floating are of the default one. */
static tn_tensor *promoted(tni_scope *s, const tn_view *x, bool to_complex) {
    int32_t d = tn_view_dtype(x), from = d;
    if (tn_dtype_category(d) < TN_CAT_FLOAT) d = tn_dtype_default();
    if (d != TN_F32 && d != TN_F64 && d != TN_C64 && d != TN_C128) {
        s->st = tn_fail(TN_E_STATE, 0, "Unsupported dtype %s", tni_type_text(d));
        return NULL;
    }
    if (to_complex && d == TN_F32) d = TN_C64;
    if (to_complex && d == TN_F64) d = TN_C128;
    return d == from ? tni_t(x) : scope_convert(s, tni_t(x), d);
}

static tn_status run(const transform *t, const tn_view *x, tn_ints s, tn_ints dim, const char *norm,
                     tn_tensor **rets) {
    tni_scope scope = {0};
    sizes z;
    int64_t scale = SCALE_NONE;
    bool real = tn_dtype_category(tn_view_dtype(x)) < TN_CAT_COMPLEX;
    if (t->kind == FROM_REAL && !real)
        return tn_fail(TN_E_STATE, 0, "%s expects a real input tensor, but got %s", t->name,
                       tni_type_text(tn_view_dtype(x)));
    TN_TRY(sizes_of(t, x, s, dim, &z));
    TN_TRY(scale_for(norm, t->forward, &scale));
    tn_ints dims = tn_ints_of(z.dim, z.n);
    bool direct = t->kind == TO_COMPLEX && real && t->forward && z.n > 0;
    tn_tensor *r = NULL;
    tn_tensor *in = promoted(&scope, x, t->kind != FROM_REAL && !direct);
    if (scope.st == TN_OK) in = fitted(&scope, in, &z);
    if (t->kind == TO_REAL && t->forward) in = scope_unary(&scope, tn_conj_physical, in);
    if (scope.st != TN_OK) return scope_finish(&scope, NULL, NULL);
    tn_status st = z.n == 0               ? tn_clone(in, TN_FORMAT_PRESERVE, &r)
                   : t->kind == TO_REAL   ? tn__fft_c2r(in, dims, scale, z.whole, &r)
                   : t->kind == FROM_REAL ? tn__fft_r2c(in, dims, scale, 1, &r)
                   : direct               ? tn__fft_r2c(in, dims, scale, 0, &r)
                                          : tn__fft_c2c(in, dims, scale, t->forward, &r);
    r = scope_take(&scope, st, r);
    if (t->kind == FROM_REAL && !t->forward) r = scope_unary(&scope, tn_conj_physical, r);
    return scope_finish(&scope, r, rets);
}

static tn_status run_one(const transform *t, const tn_view *x, tn_opt_int n, int64_t dim,
                         const char *norm, tn_tensor **rets) {
    if (n.has && n.value < 1) return no_points(n.value);
    return run(t, x, TNI_OPT_DIMS(n), TN_INTS(dim), norm, rets);
}

/* Of any dimensions, and of one. */
#define OF_DIMS(name, kind, forward)                                                               \
    tn_status tni_composite_fft_##name(const void *args, tn_tensor **rets) {                       \
        const tn_fft_##name##_args *a = args;                                                      \
        return run(&(transform){#name, kind, forward}, a->input, a->s, a->dim, a->norm, rets);     \
    }
#define OF_ONE(name, kind, forward)                                                                \
    tn_status tni_composite_fft_##name(const void *args, tn_tensor **rets) {                       \
        const tn_fft_##name##_args *a = args;                                                      \
        const transform t = {#name, kind, forward};                                                \
        return run_one(&t, a->input, a->n, a->dim, a->norm, rets);                                 \
    }

OF_ONE(fft, TO_COMPLEX, true)
OF_ONE(ifft, TO_COMPLEX, false)
OF_ONE(rfft, FROM_REAL, true)
OF_ONE(irfft, TO_REAL, false)
OF_ONE(hfft, TO_REAL, true)
OF_ONE(ihfft, FROM_REAL, false)
OF_DIMS(fft2, TO_COMPLEX, true)
OF_DIMS(ifft2, TO_COMPLEX, false)
OF_DIMS(rfft2, FROM_REAL, true)
OF_DIMS(irfft2, TO_REAL, false)
OF_DIMS(hfft2, TO_REAL, true)
OF_DIMS(ihfft2, FROM_REAL, false)
OF_DIMS(fftn, TO_COMPLEX, true)
OF_DIMS(ifftn, TO_COMPLEX, false)
OF_DIMS(rfftn, FROM_REAL, true)
OF_DIMS(irfftn, TO_REAL, false)
OF_DIMS(hfftn, TO_REAL, true)
OF_DIMS(ihfftn, FROM_REAL, false)

/* ---- Frequencies -------------------------------------------------------------------------------*/

/* The numbers [from, end) over n * d. */
static tn_tensor *frequencies(tni_scope *s, int64_t from, int64_t end, int64_t dtype,
                              int64_t device) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_arange_start(tn_scalar_int(from), tn_scalar_int(end), tn_scalar_int(1), dtype,
                                   device, &r);
    return scope_take(s, st, r);
}

static tn_status check_frequencies(int64_t dtype, int64_t *ret_dtype) {
    *ret_dtype = dtype < 0 ? tn_dtype_default() : dtype;
    if (tn_dtype_category((int32_t)*ret_dtype) >= TN_CAT_FLOAT) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "%s", "fftfreq requires a floating point or complex dtype");
}

tn_status tni_composite_fft_fftfreq(const void *args, tn_tensor **rets) {
    const tn_fft_fftfreq_args *a = args;
    tni_scope s = {0};
    int64_t dtype = -1;
    tn_tensor *half[2], *r = NULL;
    if (a->n < 0)
        return tn_fail(TN_E_STATE, 0, "fftfreq: n is the number of points, not %lld",
                       (long long)a->n);
    TN_TRY(check_frequencies(a->dtype, &dtype));
    half[0] = frequencies(&s, 0, a->n / 2 + a->n % 2, dtype, a->device);
    half[1] = frequencies(&s, -(a->n / 2), 0, dtype, a->device);
    if (s.st == TN_OK) {
        tn_status st = tn_cat((tn_tensors){half, 2}, 0, &r);
        r = scope_take(&s, st, r);
    }
    return scope_finish(&s, scope_mul_number(&s, r, 1.0 / ((double)a->n * a->d)), rets);
}

tn_status tni_composite_fft_rfftfreq(const void *args, tn_tensor **rets) {
    const tn_fft_rfftfreq_args *a = args;
    tni_scope s = {0};
    int64_t dtype = -1;
    TN_TRY(check_frequencies(a->dtype, &dtype));
    tn_tensor *r = frequencies(&s, 0, a->n / 2 + 1, dtype, a->device);
    return scope_finish(&s, scope_mul_number(&s, r, 1.0 / ((double)a->n * a->d)), rets);
}

/* Rolled by half of its size, rounded down or up, along dims. */
static tn_status shifted(const tn_view *x, tn_ints dim, int64_t more, tn_tensor **rets) {
    int64_t by[TN_MAX_DIMS], at[TN_MAX_DIMS], n = dim.n < 0 ? x->ndim : dim.n;
    if (n > TN_MAX_DIMS) return tn_fail(TN_E_VALUE, 1, "dim: too many dimensions");
    for (int64_t i = 0; i < n; i++) {
        at[i] = i;
        if (dim.n >= 0) TN_TRY(fft_dim(dim.v[i], x, &at[i]));
        by[i] = (x->shape[at[i]] + more) / 2;
    }
    if (n == 0) return tn_clone(tni_t(x), TN_FORMAT_PRESERVE, rets);
    return tn_roll(tni_t(x), tn_ints_of(by, n), tn_ints_of(at, n), rets);
}

tn_status tni_composite_fft_fftshift(const void *args, tn_tensor **rets) {
    const tn_fft_fftshift_args *a = args;
    return shifted(a->input, a->dim, 0, rets);
}

tn_status tni_composite_fft_ifftshift(const void *args, tn_tensor **rets) {
    const tn_fft_ifftshift_args *a = args;
    return shifted(a->input, a->dim, 1, rets);
}
