/* math.c: products of vectors, integrals of samples, covariances, quantiles. */
#include <math.h>

#include <tenon/args_math.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_math.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_shape.h>

#include "device_priv.h"
#include "op_math.h"
#include "scope_priv.h"

/* ---- Products ----------------------------------------------------------------------------------*/

tn_status tni_composite_complex(const void *args, tn_tensor **rets) {
    const tn_complex_args *a = args;
    tni_scope s = {0};
    int32_t dtype = tn_view_dtype(a->real);
    tn_tensor *parts[2] = {NULL, NULL}, *r = NULL;
    int64_t shape[TN_MAX_DIMS];
    int32_t n = 0;
    if (dtype != tn_view_dtype(a->imag) || (dtype != TN_F16 && dtype != TN_F32 && dtype != TN_F64))
        return tn_fail(TN_E_STATE, -1,
                       "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
                       tni_type_text(dtype), tni_type_text(tn_view_dtype(a->imag)));
    TN_TRY(tni_broadcast_shapes(a->real->ndim, a->real->shape, a->imag->ndim, a->imag->shape, &n,
                                shape));
    parts[0] = scope_expand(&s, tni_t(a->real), tn_ints_of(shape, n));
    parts[1] = scope_expand(&s, tni_t(a->imag), tn_ints_of(shape, n));
    if (s.st == TN_OK) {
        tn_status st = tn_stack((tn_tensors){parts, 2}, -1, &r);
        r = scope_take(&s, st, r);
    }
    if (s.st == TN_OK) s.st = tn_view_as_complex(r, rets);
    return scope_finish(&s, NULL, NULL);
}

static tn_tensor *rolled(tni_scope *s, tn_tensor *x, int64_t by, int64_t dim) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_roll(x, TN_INTS(by), TN_INTS(dim), &r);
    return scope_take(s, st, r);
}

tn_status tni_composite_cross(const void *args, tn_tensor **rets) {
    const tn_cross_args *a = args;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], dim = 0;
    int32_t n = 0;
    TN_TRY(tni_broadcast_shapes(a->input->ndim, a->input->shape, a->other->ndim, a->other->shape,
                                &n, shape));
    if (a->input->ndim != a->other->ndim)
        return tn_fail(TN_E_SHAPE, 1,
                       "linalg.cross: inputs must have the same number of dimensions.");
    if (a->dim.has) {
        dim = a->dim.value;
    } else {
        while (dim < n && a->input->shape[dim] != 3) dim++;
        if (dim == n) return tn_fail(TN_E_STATE, 2, "no dimension of size 3 in input");
    }
    long long mine = dim < n ? a->input->shape[dim] : 1;
    long long others = dim < n ? a->other->shape[dim] : 1;
    if (mine != 3 || others != 3)
        return tn_fail(TN_E_STATE, 2,
                       "linalg.cross: inputs dimension %lld must have length 3. Got %lld and %lld",
                       (long long)dim, mine, others);
    tn_tensor *x = scope_expand(&s, tni_t(a->input), tn_ints_of(shape, n));
    tn_tensor *y = scope_expand(&s, tni_t(a->other), tn_ints_of(shape, n));
    tn_tensor *one = scope_mul(&s, rolled(&s, x, -1, dim), rolled(&s, y, -2, dim));
    tn_tensor *two = scope_mul(&s, rolled(&s, x, -2, dim), rolled(&s, y, -1, dim));
    return scope_finish(&s, scope_sub(&s, one, two), rets);
}

/* A view of x whose rows are the products' rows: its last dimension, which stands at `at`, is spread beside
 * `count` others. */
static tn_tensor *spread_row(tni_scope *s, tn_tensor *x, const int64_t *shape, int32_t n,
                             int32_t at, int64_t count) {
    int64_t sizes[TN_MAX_DIMS];
    memcpy(sizes, shape, sizeof *sizes * (size_t)n);
    x = scope_reshape(s, x, tn_ints_of(sizes, n));
    sizes[at] = count;
    x = scope_expand(s, x, tn_ints_of(sizes, n));
    sizes[n - 2] *= sizes[n - 1];
    return scope_reshape(s, x, tn_ints_of(sizes, n - 1));
}

/* A product of all pairs: every size of input is followed by 1, every size of other preceded by it. Where
 * both have several rows, these are written out in the width of the result's first, since loops over the
 * last dimension of other alone are short. */
tn_status tni_composite_kron(const void *args, tn_tensor **rets) {
    const tn_kron_args *a = args;
    tni_scope s = {0};
    int32_t n = a->input->ndim > a->other->ndim ? a->input->ndim : a->other->ndim;
    int64_t left[TN_MAX_DIMS], right[TN_MAX_DIMS], whole[TN_MAX_DIMS];
    if (2 * n > TN_MAX_DIMS)
        return tn_fail(TN_E_VALUE, -1, "kron: at most %d dimensions", TN_MAX_DIMS / 2);
    for (int32_t d = 0; d < n; d++) {
        int32_t i = d - (n - a->input->ndim), j = d - (n - a->other->ndim);
        left[2 * d] = i < 0 ? 1 : a->input->shape[i];
        right[2 * d + 1] = j < 0 ? 1 : a->other->shape[j];
        left[2 * d + 1] = right[2 * d] = 1;
        whole[d] = left[2 * d] * right[2 * d + 1];
    }
    tn_tensor *x = tni_t(a->input), *y = tni_t(a->other);
    int64_t wide = n > 0 ? left[2 * n - 2] : 0, deep = n > 0 ? right[2 * n - 1] : 0;
    if (wide > 1 && deep < 64 && x->v.numel >= 4 * wide && y->v.numel >= 4 * deep && deep > 0) {
        x = spread_row(&s, x, left, 2 * n, 2 * n - 1, deep);
        y = spread_row(&s, y, right, 2 * n, 2 * n - 2, wide);
    } else {
        x = scope_reshape(&s, x, tn_ints_of(left, 2 * n));
        y = scope_reshape(&s, y, tn_ints_of(right, 2 * n));
    }
    tn_tensor *r = scope_reshape(&s, scope_mul(&s, x, y), tn_ints_of(whole, n));
    return scope_finish(&s, r, rets);
}

/* ---- Integrals ---------------------------------------------------------------------------------*/

/* Areas between neighbours along dim; x may be a vector along dim, or NULL: they are dx apart. */
static tn_tensor *areas(tni_scope *s, tn_tensor *y, tn_tensor *x, double dx, int64_t dim) {
    int64_t n = tn_tensor_ndim(y) ? tn_tensor_shape(y)[dim] : 0, m = n;
    int64_t along[TN_MAX_DIMS];
    if (n == 0 && tn_tensor_ndim(y) == 0) {
        s->st = tn_fail(TN_E_INDEX, 0, "Dimension specified as %lld but tensor has no dimensions",
                        (long long)dim);
        return NULL;
    }
    if (n == 0) return scope_mul_number(s, y, 0.5);
    if (x && tn_tensor_ndim(x) == 1) {
        for (int32_t d = 0; d < tn_tensor_ndim(y); d++) along[d] = 1;
        along[dim] = m = tn_tensor_shape(x)[0];
        x = scope_reshape(s, x, tn_ints_of(along, tn_tensor_ndim(y)));
    }
    if (m != n) {
        s->st =
            tn_fail(TN_E_STATE, 1, "trapezoid: There must be one `x` value for each sample point");
        return NULL;
    }
    /* further dimensions of y stand in front of x's; dim counts from the front of what is longer */
    if (x && s->st == TN_OK && tn_tensor_ndim(x) < tn_tensor_ndim(y)) {
        int32_t more = tn_tensor_ndim(y) - tn_tensor_ndim(x);
        for (int32_t d = 0; d < tn_tensor_ndim(y); d++)
            along[d] = d < more ? 1 : tn_tensor_shape(x)[d - more];
        x = scope_reshape(s, x, tn_ints_of(along, tn_tensor_ndim(y)));
    }
    if (x && s->st == TN_OK) m = tn_tensor_shape(x)[dim];
    tn_tensor *both =
        scope_add(s, scope_narrow(s, y, dim, 1, n - 1), scope_narrow(s, y, dim, 0, n - 1));
    if (!x) return scope_mul_number(s, both, dx / 2);
    tn_tensor *step =
        scope_sub(s, scope_narrow(s, x, dim, 1, m - 1), scope_narrow(s, x, dim, 0, m - 1));
    return scope_mul_number(s, scope_mul(s, both, step), 0.5);
}

/* Of samples at equal distances: their sum without half of the first and the last. */
static tn_tensor *evenly(tni_scope *s, tn_tensor *y, double dx, int64_t dim) {
    int64_t n = tn_tensor_shape(y)[dim];
    tn_tensor *first = scope_select(s, y, dim, 0), *last = scope_select(s, y, dim, n - 1);
    tn_tensor *half = scope_mul_number(s, scope_add(s, first, last), 0.5);
    return scope_mul_number(s, scope_sub(s, scope_sum(s, y, TN_INTS(dim), 0), half), dx);
}

static tn_status integral(const tn_view *y, const tn_view *x, double dx, int64_t dim, bool running,
                          tn_tensor **rets) {
    tni_scope s = {0};
    if (!x && !running && y->ndim > 0 && y->shape[dim] > 0)
        return scope_finish(&s, evenly(&s, tni_t(y), dx, dim), rets);
    tn_tensor *parts = areas(&s, tni_t(y), x ? tni_t(x) : NULL, dx, dim);
    if (!running) {
        tn_tensor *sum = scope_sum(&s, parts, TN_INTS(dim), 0);
        if (y->shape[dim] == 0) sum = scope_convert(&s, sum, tn_view_dtype(y)); /* of nothing */
        return scope_finish(&s, sum, rets);
    }
    if (s.st == TN_OK) s.st = tn_cumsum(parts, dim, -1, rets);
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite_trapezoid(const void *args, tn_tensor **rets) {
    const tn_trapezoid_args *a = args;
    return integral(a->y, NULL, a->dx.re, a->dim, false, rets);
}

tn_status tni_composite_trapezoid_x(const void *args, tn_tensor **rets) {
    const tn_trapezoid_x_args *a = args;
    return integral(a->y, a->x, 1, a->dim, false, rets);
}

tn_status tni_composite_cumulative_trapezoid(const void *args, tn_tensor **rets) {
    const tn_cumulative_trapezoid_args *a = args;
    return integral(a->y, NULL, a->dx.re, a->dim, true, rets);
}

tn_status tni_composite_cumulative_trapezoid_x(const void *args, tn_tensor **rets) {
    const tn_cumulative_trapezoid_x_args *a = args;
    return integral(a->y, a->x, 1, a->dim, true, rets);
}

/* ---- Covariances -------------------------------------------------------------------------------*/

/* x as (variables, observations). */
static tn_tensor *observations(tni_scope *s, const tn_view *x) {
    if (x->ndim > 2) {
        s->st = tn_fail(TN_E_STATE, 0,
                        "cov(): expected input to have two or fewer dimensions but got an input "
                        "with %d dimensions",
                        (int)x->ndim);
        return NULL;
    }
    if (x->ndim == 2) return tni_t(x);
    return scope_reshape(s, tni_t(x), TN_INTS(1, x->numel));
}

/* Of a matrix of covariances: counts are integers, other weights are not, and none is negative. */
static tn_status check_weights(const tn_view *w, bool counts) {
    const char *name = counts ? "fweights" : "aweights";
    int32_t category = tn_dtype_category(tn_view_dtype(w));
    if (category != (counts ? TN_CAT_INT : TN_CAT_FLOAT))
        return tn_fail(
            TN_E_DTYPE, -1, "cov(): expected %s to have %s dtype but got %s with %s dtype", name,
            counts ? "integral" : "floating point", name, tni_type_text(tn_view_dtype(w)));
    if (w->numel == 0 || tni_is_meta(w)) return TN_OK;
    tn_tensor *least = NULL;
    tn_scalar value = {0};
    tn_status st = tn_amin(tni_t(w), tn_ints_none(), 0, &least);
    if (st == TN_OK) st = tn_tensor_item(least, &value);
    tn_tensor_unref(&least);
    if (st != TN_OK) return st;
    bool negative = counts ? value.i < 0 : !(value.re >= 0);
    return negative ? tn_fail(TN_E_STATE, -1, "cov(): %s cannot be negative", name) : TN_OK;
}

static bool is_zero(tn_scalar x) { return x.re == 0 && x.im == 0; }
static bool is_negative(tn_scalar x) { return x.re < 0; }

/* Whether a tensor of one element that has a value is so. */
static bool known_to_be(tni_scope *s, const tn_tensor *t, bool (*is)(tn_scalar x)) {
    if (s->st != TN_OK || tni_is_meta(tn_tensor_view(t))) return false;
    tn_scalar value = scope_item(s, t);
    return s->st == TN_OK && is(value);
}

tn_status tni_composite_cov(const void *args, tn_tensor **rets) {
    const tn_cov_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = observations(&s, a->input), *w = a->aweights ? tni_t(a->aweights) : NULL;
    tn_tensor *mean, *total = NULL, *norm, *h = NULL;
    if (tn_view_dtype(a->input) == TN_BOOL)
        return tn_fail(TN_E_STATE, 0, "cov(): bool dtype is not supported for input");
    if (tn_dtype_category(tn_view_dtype(a->input)) < TN_CAT_FLOAT)
        x = scope_convert(&s, x, tn_dtype_default());
    const tn_view *const weights[] = {a->fweights, a->aweights};
    for (int i = 0; i < 2 && s.st == TN_OK; i++)
        if (weights[i]) s.st = check_weights(weights[i], i == 0);
    for (int i = 0; i < 2 && s.st == TN_OK; i++)
        if (weights[i] && (weights[i]->ndim != 1 || weights[i]->shape[0] != tni_size_at(x, 1)))
            s.st = tn_fail(TN_E_STATE, -1,
                           "cov(): expected %s to be a vector of as many elements as there are "
                           "observations",
                           i ? "aweights" : "fweights");
    if (a->fweights) w = w ? scope_mul(&s, w, tni_t(a->fweights)) : tni_t(a->fweights);
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    if (w) {
        tn_tensor *both[] = {x, w};
        if (tni_result_dtype(both, 2) == TN_NO_DTYPE) s.st = tni_fail_promotions(both, 2);
        w = scope_convert(&s, w, tni_result_dtype(both, 2));
        total = scope_sum(&s, w, tn_ints_none(), 0);
        if (known_to_be(&s, total, is_zero))
            s.st = tn_fail(TN_E_STATE, -1, "cov(): weights sum to zero, can't be normalized");
        mean = scope_sum(&s, scope_mul(&s, x, w), TN_INTS(1), 1);
        mean = scope_true_divide(&s, mean, total);
        norm = total;
        if (a->aweights && a->correction != 0) {
            /* sum(w) - correction * sum(w * a) / sum(w) */
            tn_tensor *wa = scope_sum(&s, scope_mul(&s, w, tni_t(a->aweights)), tn_ints_none(), 0);
            wa = scope_mul_number(&s, scope_true_divide(&s, wa, total), (double)a->correction);
            norm = scope_sub(&s, total, wa);
        } else {
            norm = scope_add_number(&s, total, -(double)a->correction);
        }
        if (known_to_be(&s, norm, is_negative))
            norm = SCOPE(&s, tn_zeros_like(norm, -1, -1, TN_FORMAT_PRESERVE, scope_slot(&s)));
    } else {
        mean = scope_mean(&s, x, TN_INTS(1), 1);
        norm = NULL;
    }
    x = scope_sub(&s, x, mean);
    tn_tensor *weighted = w ? scope_mul(&s, x, w) : x;
    if (s.st == TN_OK) {
        tn_status st = tn_conj(x, &h);
        h = scope_take(&s, st, h);
    }
    tn_tensor *r = scope_matmul(&s, weighted, scope_transpose(&s, h, 0, 1));
    if (norm)
        r = scope_true_divide(&s, r, norm);
    else if (s.st == TN_OK)
        r = scope_mul_number(&s, r, 1.0 / fmax((double)(tni_size_at(x, 1) - a->correction), 0));
    r = s.st == TN_OK && tni_size_at(r, 0) == 1 ? scope_reshape(&s, r, tn_ints_of(NULL, 0)) : r;
    return scope_finish(&s, r, rets);
}

tn_status tni_composite_corrcoef(const void *args, tn_tensor **rets) {
    const tn_corrcoef_args *a = args;
    tni_scope s = {0};
    tn_tensor *c = NULL, *d = NULL, *r;
    tn_status st = tn_cov(tni_t(a->input), 1, NULL, NULL, &c);
    c = scope_take(&s, st, c);
    if (s.st == TN_OK && tn_tensor_ndim(c) == 0)
        return scope_finish(&s, scope_true_divide(&s, c, c), rets);
    if (s.st == TN_OK) {
        tn_tensor *diagonal = NULL, *root = NULL;
        st = tn_diagonal(c, 0, 0, 1, &diagonal);
        diagonal = scope_take(&s, st, diagonal);
        st = diagonal ? tn_real(diagonal, &d) : s.st;
        d = scope_take(&s, st, d);
        st = d ? tn_sqrt(d, &root) : s.st;
        d = scope_take(&s, st, root);
    }
    r = scope_true_divide(&s, scope_true_divide(&s, c, scope_unsqueeze(&s, d, 1)),
                          scope_unsqueeze(&s, d, 0));
    return scope_finish(&s, r, rets);
}

/* ---- Quantiles ---------------------------------------------------------------------------------*/

typedef tn_status (*unary)(tn_tensor *input, tn_tensor **ret);

static tn_tensor *apply(tni_scope *s, unary fn, tn_tensor *x) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = fn(x, &r);
    return scope_take(s, st, r);
}

static tn_tensor *taken(tni_scope *s, tn_tensor *x, tn_tensor *ranks) {
    tn_tensor *r = NULL, *at = scope_convert(s, ranks, TN_I64);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_gather(x, -1, at, 0, &r);
    return scope_take(s, st, r);
}

typedef struct quantile {
    tn_tensor *x, *q; /* q: a vector of x's dtype */
    tn_opt_int dim;
    const char *mode;
    bool keepdim, one, skip_nan; /* one: q was a number */
} quantile;

/* Where among the elements in order the quantiles stand, (.., q): of all, or of those that are no NaN.
 * A NaN that counts takes the place of every quantile. */
static tn_tensor *ranks_of(tni_scope *s, const quantile *k, tn_tensor *x) {
    int64_t last = tn_tensor_ndim(x) - 1, n = tni_size_at(x, -1);
    tn_scalar_box zero, end;
    tn_tensor *nan = apply(s, tn_isnan, x), *r = NULL;
    tn_tensor *nans = scope_sum(s, nan, TN_INTS(last), 1); /* how many */
    if (k->skip_nan) {
        tn_tensor *count = scope_convert(s, scope_neg(s, nans), tn_view_dtype(&k->q->v));
        tn_tensor *ranks = scope_mul(s, scope_add_number(s, count, (double)n - 1), k->q);
        if (s->st != TN_OK) return NULL;
        tn_status st = tn_clamp_min(ranks, tn_scalar_box_init(&zero, tn_scalar_int(0)), &r);
        return scope_take(s, st, r);
    }
    tn_tensor *ranks = scope_mul_number(s, k->q, (double)n - 1);
    if (s->st != TN_OK) return NULL;
    tn_tensor *any = scope_convert(s, nans, TN_BOOL);
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn_where(any, tn_scalar_box_init(&end, tn_scalar_float((double)n - 1)), ranks, &r);
    return scope_take(s, st, r);
}

/* (.., n) in order -> (.., q) */
static tn_tensor *values_at(tni_scope *s, const quantile *k, tn_tensor *x, tn_tensor *ranks) {
    tn_tensor *low = apply(s, tn_floor, ranks), *r = NULL;
    if (strcmp(k->mode, "lower") == 0) return taken(s, x, low);
    tn_tensor *high = apply(s, tn_ceil, ranks);
    if (strcmp(k->mode, "higher") == 0) return taken(s, x, high);
    if (strcmp(k->mode, "nearest") == 0) {
        tn_tensor *near = NULL;
        tn_status st = s->st == TN_OK ? tn_round(ranks, 0, &near) : s->st;
        return taken(s, x, scope_take(s, st, near));
    }
    tn_scalar_box half;
    tn_tensor *weight = strcmp(k->mode, "midpoint") == 0
                            ? tn_scalar_box_init(&half, tn_scalar_float(0.5))
                            : scope_sub(s, ranks, low);
    tn_tensor *below = taken(s, x, low), *above = taken(s, x, high);
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_lerp(below, above, weight, &r);
    return scope_take(s, st, r);
}

static tn_status check_quantile(const quantile *k) {
    static const char *const modes[] = {"linear", "lower", "higher", "midpoint", "nearest"};
    bool known = false;
    int32_t dtype = tn_tensor_dtype(k->x);
    for (int i = 0; i < TN_COUNT(modes); i++) known = known || strcmp(k->mode, modes[i]) == 0;
    if (!known)
        return tn_fail(TN_E_STATE, -1,
                       "quantile() interpolation must be one of linear, lower, higher, midpoint or "
                       "nearest, but got %s",
                       k->mode);
    if (dtype != TN_F32 && dtype != TN_F64)
        return tn_fail(TN_E_STATE, 0,
                       "quantile() input tensor must be either float or double dtype");
    if (tn_tensor_numel(k->x) == 0)
        return tn_fail(TN_E_STATE, 0, "quantile() input tensor must be non-empty");
    return TN_OK;
}

static tn_status quantiles(const quantile *k, tn_tensor **rets) {
    tni_scope s = {0};
    int32_t ndim = tn_tensor_ndim(k->x);
    int64_t dim = k->dim.value, shape[TN_MAX_DIMS];
    tn_tensor *x = k->x, *ordered = NULL, *places = NULL, *r;
    TN_TRY(check_quantile(k));
    if (!k->dim.has || ndim == 0)
        x = scope_reshape(&s, x, TN_INTS(-1));
    else
        x = scope_transpose(&s, x, dim, ndim - 1);
    if (s.st == TN_OK) {
        tn_status st = tn_sort(x, -1, 0, 0, &ordered, &places);
        ordered = scope_take(&s, st, ordered);
        places = scope_take(&s, st, places);
    }
    tn_tensor *ranks = ordered ? ranks_of(&s, k, ordered) : NULL;
    r = ranks ? values_at(&s, k, ordered, ranks) : NULL;
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    /* (.., q), where x's last dimension stands at dim: the quantiles go in front */
    int64_t nq = tni_size_at(r, -1);
    if (k->dim.has && ndim > 0) {
        tn_tensor *front = NULL, *wide = scope_unsqueeze(&s, r, ndim - 1);
        tn_status st = s.st == TN_OK ? tn_movedim_int(wide, ndim, 0, &front) : s.st;
        r = scope_take(&s, st, front); /* (q, .., 1) */
        if (s.st == TN_OK) r = scope_transpose(&s, r, dim + 1, ndim);
    } else {
        shape[0] = nq;
        for (int32_t d = 0; d < ndim; d++) shape[d + 1] = 1;
        r = scope_reshape(&s, r, tn_ints_of(shape, ndim + 1));
    }
    if (s.st == TN_OK && !k->keepdim) {
        int32_t n = 0;
        for (int32_t d = 0; d <= ndim; d++)
            if (d == 0 || (k->dim.has && ndim > 0 && d != dim + 1))
                shape[n++] = tn_tensor_shape(r)[d];
        r = scope_reshape(&s, r, tn_ints_of(shape, n));
    }
    if (s.st == TN_OK && k->one) r = scope_select(&s, r, 0, 0);
    return scope_finish(&s, r, rets);
}

static tn_status of_number(const tn_view *x, double q, tn_opt_int dim, bool keepdim,
                           const char *mode, bool skip_nan, tn_tensor **rets) {
    tn_tensor *v = NULL;
    if (!(q >= 0 && q <= 1))
        return tn_fail(TN_E_STATE, 1, "quantile() q must be in the range [0, 1] but got %g", q);
    TN_TRY(tn_full(TN_INTS(1), tn_scalar_float(q), tn_view_dtype(x), tni_device_of(tni_t(x)), &v));
    quantile k = {tni_t(x), v, dim, mode, keepdim, true, skip_nan};
    tn_status st = quantiles(&k, rets);
    tn_tensor_unref(&v);
    return st;
}

/* Every q must lie in [0, 1]. Tensors of devices are not waited for. */
static tn_status check_shares(const tn_view *q) {
    tni_scope s = {0};
    if (q->numel == 0 || tn_view_device(q) != 0) return TN_OK;
    tni_tls.no_grad++;
    tn_tensor *low = SCOPE(&s, tn_amin(tni_t(q), tn_ints_none(), 0, scope_slot(&s)));
    tn_tensor *high = SCOPE(&s, tn_amax(tni_t(q), tn_ints_none(), 0, scope_slot(&s)));
    tn_scalar least = scope_item(&s, low), most = scope_item(&s, high);
    tni_tls.no_grad--;
    if (s.st == TN_OK && !(least.re >= 0 && most.re <= 1))
        s.st = tn_fail(TN_E_STATE, 1, "quantile() q values must be in the range [0, 1]");
    return scope_finish(&s, NULL, NULL);
}

static tn_status of_vector(const tn_view *x, const tn_view *q, tn_opt_int dim, bool keepdim,
                           const char *mode, bool skip_nan, tn_tensor **rets) {
    tn_tensor *v = NULL;
    if (q->ndim > 1) return tn_fail(TN_E_STATE, 1, "quantile() q must be a scalar or 1D tensor");
    if (tn_view_dtype(q) != tn_view_dtype(x))
        return tn_fail(TN_E_STATE, 1, "quantile() q tensor must be same dtype as the input tensor");
    TN_TRY(check_shares(q));
    TN_TRY(tn_reshape(tni_t(q), TN_INTS(-1), &v));
    quantile k = {tni_t(x), v, dim, mode, keepdim, q->ndim == 0, skip_nan};
    tn_status st = quantiles(&k, rets);
    tn_tensor_unref(&v);
    return st;
}

tn_status tni_composite_quantile(const void *args, tn_tensor **rets) {
    const tn_quantile_args *a = args;
    return of_number(a->input, a->q, a->dim, a->keepdim, a->interpolation, false, rets);
}

tn_status tni_composite_quantile_tensor(const void *args, tn_tensor **rets) {
    const tn_quantile_tensor_args *a = args;
    return of_vector(a->input, a->q, a->dim, a->keepdim, a->interpolation, false, rets);
}

tn_status tni_composite_nanquantile(const void *args, tn_tensor **rets) {
    const tn_nanquantile_args *a = args;
    return of_number(a->input, a->q, a->dim, a->keepdim, a->interpolation, true, rets);
}

tn_status tni_composite_nanquantile_tensor(const void *args, tn_tensor **rets) {
    const tn_nanquantile_tensor_args *a = args;
    return of_vector(a->input, a->q, a->dim, a->keepdim, a->interpolation, true, rets);
}
