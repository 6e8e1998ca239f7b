/* compare.c: is a result right? Integers and bool exactly, floating numbers within the dtype's tolerance of
 * what the CPU computes in float64, or of what it computes in the same dtype: where a function jumps
 * (floor, comparisons, sorting) the rounding of the arguments decides, and both answers are right. */
#include "conform.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/ops.h>

/* The same elements as int64 or complex128, on the CPU. */
static tn_status widen(const tn_tensor *t, int32_t to, tn_tensor **ret_wide) {
    int32_t dtype = tn_tensor_dtype(t);
    int64_t bytes = tn_tensor_numel(t) * tn_dtype_size(dtype);
    void *data = cf_alloc((size_t)bytes);
    tn_tensor *host = NULL;
    tn_status st = tn_tensor_read(t, data, (uint64_t)bytes);
    if (st == TN_OK)
        st = tn_tensor_from_data(dtype, tn_tensor_ndim(t), tn_tensor_shape(t), data, &host);
    if (st == TN_OK) st = tn__to_copy(host, to, -1, 0, TN_FORMAT_CONTIGUOUS, ret_wide);
    tn_tensor_unref(&host);
    free(data);
    return st;
}

tn_status cf_array_read(const tn_tensor *t, cf_array *ret_array) {
    int32_t dtype = tn_tensor_dtype(t);
    bool exact = tn_dtype_category(dtype) <= TN_CAT_INT;
    cf_array a = {.dtype = dtype, .ndim = tn_tensor_ndim(t), .n = tn_tensor_numel(t)};
    memcpy(a.shape, tn_tensor_shape(t), (size_t)a.ndim * sizeof *a.shape);
    int grad = tn_grad_set_enabled(0);
    tn_tensor *wide = NULL;
    tn_status st = widen(t, exact ? TN_I64 : TN_C128, &wide);
    size_t bytes = (size_t)a.n * (exact ? sizeof(int64_t) : 2 * sizeof(double));
    void *data = cf_alloc(bytes);
    if (st == TN_OK) st = tn_tensor_read(wide, data, bytes);
    tn_tensor_unref(&wide);
    tn_grad_set_enabled(grad);
    if (st != TN_OK) {
        free(data);
        return st;
    }
    *(exact ? (void **)&a.ints : (void **)&a.pairs) = data;
    *ret_array = a;
    return TN_OK;
}

void cf_array_free(cf_array *a) {
    free(a->ints);
    free(a->pairs);
    *a = (cf_array){0};
}

/* ---- Elements ----------------------------------------------------------------------------------*/

static bool close_part(double got, double want, double bound) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return got == want;
    return fabs(got - want) <= bound;
}

static bool close_pair(const double *got, const double *want, const cf_tolerance *t,
                       double factor) {
    double size = hypot(want[0], want[1]);
    double bound = factor * (t->absolute + t->relative * (isfinite(size) ? size : 0));
    return close_part(got[0], want[0], bound) && close_part(got[1], want[1], bound);
}

/* Where numbers without end are added or multiplied, the order decides whether a NaN or an infinity
 * comes out, and in which part of a complex number: only single elements of real operators are strict. */
static bool both_undefined(const double *a, const double *b) {
    return !(isfinite(a[0]) && isfinite(a[1])) && !(isfinite(b[0]) && isfinite(b[1]));
}

static bool right(const cf_array *got, const cf_array *want, int64_t i, const cf_measure *m) {
    if (!want) return false;
    if (got->ints) return want->ints && got->ints[i] == want->ints[i];
    if (!want->pairs) return false;
    const double *g = got->pairs + 2 * i, *w = want->pairs + 2 * i;
    bool loose = !m->strict || tn_dtype_category(got->dtype) == TN_CAT_COMPLEX;
    return close_pair(g, w, &m->tolerance, m->factor) || (loose && both_undefined(g, w));
}

static void add_element(cf_text *to, const cf_array *a, int64_t i) {
    if (a->ints)
        cf_add(to, "%" PRId64, a->ints[i]);
    else if (tn_dtype_category(a->dtype) == TN_CAT_COMPLEX)
        cf_add(to, "%.9g%+.9gi", a->pairs[2 * i], a->pairs[2 * i + 1]);
    else
        cf_add(to, "%.9g", a->pairs[2 * i]);
}

static void add_index(cf_text *to, const cf_array *a, int64_t i) {
    int64_t index[TN_MAX_DIMS];
    for (int32_t d = a->ndim - 1; d >= 0; d--) {
        index[d] = i % a->shape[d];
        i /= a->shape[d];
    }
    cf_add_shape(to, a->ndim, index);
}

static void explain(const cf_array *got, const cf_array *want, int64_t i, int64_t wrong,
                    const cf_tolerance *t, cf_text *why) {
    cf_add(why, "%lld of %lld elements are wrong, first at ", (long long)wrong, (long long)got->n);
    add_index(why, got, i);
    cf_add(why, ": got ");
    add_element(why, got, i);
    cf_add(why, ", expected ");
    add_element(why, want, i);
    double size = want->pairs ? fabs(want->pairs[2 * i]) : 0;
    double off = want->pairs ? fabs(got->pairs[2 * i] - want->pairs[2 * i]) : 0;
    if (size > 0 && isfinite(size) && isfinite(off) && t->epsilon > 0)
        cf_add(why, " (%.3g ulp apart)", off / (size * t->epsilon));
}

static bool same_facts(const cf_array *got, const cf_array *want, cf_text *why) {
    bool same = got->ndim == want->ndim;
    for (int32_t d = 0; same && d < got->ndim; d++) same = got->shape[d] == want->shape[d];
    if (same && got->dtype == want->dtype) return true;
    cf_add(why, "got %s", tn_dtype_name(got->dtype));
    cf_add_shape(why, got->ndim, got->shape);
    cf_add(why, ", expected %s", tn_dtype_name(want->dtype));
    cf_add_shape(why, want->ndim, want->shape);
    return false;
}

cf_measure cf_measure_of(const cf_data *d, const cf_op *op, int32_t dtype) {
    bool known = dtype >= 0 && dtype < TN_DTYPE_BUILTIN_COUNT;
    bool strict = strcmp(op->kind, "pointwise") == 0 || strcmp(op->kind, "view") == 0;
    cf_tolerance none = {0};
    return (cf_measure){known ? d->tolerances[dtype] : none, op->tol, strict};
}

bool cf_compare(const cf_array *got, const cf_array *same, const cf_array *wide,
                const cf_measure *m, cf_text *why) {
    int64_t wrong = 0, first = 0;
    if (!same_facts(got, same, why)) return false;
    if (wide && (wide->n != got->n || !wide->ints != !got->ints)) wide = NULL;
    for (int64_t i = 0; i < got->n; i++) {
        if (right(got, wide, i, m) || right(got, same, i, m)) continue;
        if (!wrong++) first = i;
    }
    if (wrong) explain(got, wide ? wide : same, first, wrong, &m->tolerance, why);
    return wrong == 0;
}

/* ---- Random numbers ----------------------------------------------------------------------------*/

static double element(const cf_array *a, int64_t i) {
    return a->ints ? (double)a->ints[i] : a->pairs[2 * i];
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sorted(const cf_array *a) {
    double *v = cf_alloc((size_t)(a->n + 1) * sizeof *v);
    for (int64_t i = 0; i < a->n; i++) v[i] = element(a, i);
    qsort(v, (size_t)a->n, sizeof *v, by_size);
    return v;
}

/* Kolmogorov and Smirnov's distance of two samples of one size; 2.7 is exceeded once in a million
 * times when the distributions are the same. */
bool cf_same_distribution(const cf_array *a, const cf_array *b, cf_text *why) {
    if (!same_facts(a, b, why)) return false;
    double *x = sorted(a), *y = sorted(b), worst = 0;
    for (int64_t i = 0, j = 0; i < a->n && j < b->n;) {
        double at = x[i] < y[j] ? x[i] : y[j];
        while (i < a->n && x[i] <= at) i++;
        while (j < b->n && y[j] <= at) j++;
        double apart = fabs((double)(i - j)) / (double)a->n;
        if (apart > worst) worst = apart;
        if (isnan(at)) break;
    }
    double limit = a->n > 0 ? 2.7 * sqrt(2.0 / (double)a->n) : 0;
    if (worst > limit)
        cf_add(why,
               "the numbers are distributed differently: Kolmogorov-Smirnov distance %.3f, at "
               "most %.3f expected",
               worst, limit);
    free(x);
    free(y);
    return worst <= limit;
}
