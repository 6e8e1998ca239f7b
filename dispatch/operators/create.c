/* create.c: operators that make tensors out of sizes and numbers, fill, copy and convert them.
 * They are composites: memory comes from the core, values from the kernels of `_copy` (a number
 * broadcast over a plan), `_arange_` and `_linspace_`. */
#include <math.h>

#include <tenon/args_create.h>
#include <tenon/args_pointwise.h>
#include <tenon/device_ext.h>
#include <tenon/ops_create.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_shape.h>

#include "call_priv.h"
#include "copy_priv.h"
#include "op_create.h"
#include "op_pointwise.h"
#include "pinned_priv.h"
#include "plan_priv.h"
#include "shape_priv.h"

static const tn_device cpu = {0, 0};

/* ---- Filling -----------------------------------------------------------------------------------*/

/* As tni_fill, for tensors whose elements may share memory: each place is written once. */
static tn_status fill_places(tn_tensor *t, tn_scalar value) {
    int64_t shape[TN_MAX_DIMS];
    tn_tensor *once;
    if (t->v.word & TN_W_DENSE) return tni_fill(t, value);
    for (int32_t d = 0; d < t->v.ndim; d++)
        shape[d] = t->v.strides[d] == 0 && t->v.shape[d] > 1 ? 1 : t->v.shape[d];
    TN_TRY(tni_view_new(t, tn_view_dtype(&t->v), t->v.ndim, shape, t->v.strides, 0, &once));
    tn_status st = tni_fill(once, value);
    tn_tensor_unref(&once);
    return st;
}

static tn_status filled_inplace(const tn_op *op, tn_tensor *self, tn_scalar value,
                                tn_tensor **rets) {
    TN_TRY(tni_check_writable(op, self, tn_view_dtype(&self->v)));
    TN_TRY(tni_check_scalar_fits(&value, tn_view_dtype(&self->v)));
    TN_TRY(fill_places(self, value));
    tni_bump_version(self);
    rets[0] = tn_tensor_ref(self);
    return TN_OK;
}

tn_status tni_composite_fill_(const void *args, tn_tensor **rets) {
    const tn_fill__args *a = args;
    return filled_inplace(&tni_op_fill_, tni_t(a->self), a->value, rets);
}

tn_status tni_composite_fill__tensor(const void *args, tn_tensor **rets) {
    const tn_fill__tensor_args *a = args;
    tn_tensor *self = tni_t(a->self), *value = tni_t(a->value);
    if (a->value->ndim != 0)
        return tn_fail(TN_E_SHAPE, 1,
                       "fill_ only supports 0-dimension value tensor but got tensor with %d "
                       "dimensions.",
                       (int)a->value->ndim);
    int32_t dtype = tn_view_dtype(&self->v);
    tn_scalar number;
    TN_TRY(tni_check_writable(&tni_op_fill__tensor, self, dtype));
    TN_TRY(tni_check_no_internal_overlap(self));
    if (!tni_is_meta(&self->v)) {
        tn_tensor *same; /* converted as by copy_: what does not fit is no error */
        TN_TRY(tni_convert(value, dtype, &same));
        tn_status st = tn_tensor_item(same, &number);
        if (st == TN_OK) st = fill_places(self, number);
        tn_tensor_unref(&same);
        TN_TRY(st);
    }
    tni_bump_version(self);
    rets[0] = tn_tensor_ref(self);
    return TN_OK;
}

tn_status tni_composite_zero_(const void *args, tn_tensor **rets) {
    const tn_zero__args *a = args;
    return filled_inplace(&tni_op_zero_, tni_t(a->self), tn_scalar_int(0), rets);
}

/* ---- New tensors -------------------------------------------------------------------------------*/

static tn_status check_format(int64_t format, int32_t ndim) {
    if (format == TN_FORMAT_CHANNELS_LAST && ndim != 4)
        return tn_fail(TN_E_SHAPE, -1, "required rank 4 tensor to use channels_last format");
    if (format == TN_FORMAT_CHANNELS_LAST_3D && ndim != 5)
        return tn_fail(TN_E_SHAPE, -1, "required rank 5 tensor to use channels_last_3d format");
    return TN_OK;
}

static bool has_strides_of_rows(const tn_view *v) {
    uint64_t stride = 1;
    for (int32_t d = v->ndim - 1; d >= 0; d--) {
        if ((uint64_t)v->strides[d] != stride) return false;
        stride *= v->shape[d] > 0 ? (uint64_t)v->shape[d] : 1;
    }
    return true;
}

tn_status tni_new_like(const tn_view *v, int32_t dtype, tn_device device, int64_t format,
                       tn_tensor **ret_tensor) {
    int64_t strides[TN_MAX_DIMS];
    if (format == TN_FORMAT_CONTIGUOUS || (format == TN_FORMAT_PRESERVE && has_strides_of_rows(v)))
        return tn_tensor_new(dtype, device, v->ndim, v->shape, ret_tensor);
    if (format == TN_FORMAT_PRESERVE && (v->word & TN_W_DENSE))
        return tn_tensor_new_strided(dtype, device, v->ndim, v->shape, v->strides, ret_tensor);
    TN_TRY(check_format(format, v->ndim));
    tni_format_strides((int32_t)format, v, v->ndim, v->shape, strides);
    return tn_tensor_new_strided(dtype, device, v->ndim, v->shape, strides, ret_tensor);
}

static tn_status sized(tn_ints size, int64_t dtype, int64_t device, int64_t format,
                       int32_t fallback, tn_tensor **ret) {
    int64_t strides[TN_MAX_DIMS], numel;
    int32_t type = dtype < 0 ? fallback : (int32_t)dtype;
    tn_device dev = tni_device_given(device, cpu);
    if (size.n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions, not %lld", TN_MAX_DIMS,
                       (long long)size.n);
    int32_t ndim = (int32_t)(size.n > 0 ? size.n : 0);
    if (format == TN_FORMAT_CONTIGUOUS || format == TN_FORMAT_PRESERVE)
        return tn_tensor_new(type, dev, ndim, size.v, ret);
    TN_TRY(check_format(format, ndim));
    TN_TRY(tni_numel(ndim, size.v, 16, &numel));
    tni_format_strides((int32_t)format, NULL, ndim, size.v, strides);
    return tn_tensor_new_strided(type, dev, ndim, size.v, strides, ret);
}

/* A fresh tensor whose filling came to `st`: handed over, or released. */
static tn_status handed(tn_status st, tn_tensor *t, tn_tensor **rets) {
    if (st == TN_OK)
        rets[0] = t;
    else
        tn_tensor_unref(&t);
    return st;
}

static tn_status hand_filled(tn_tensor *t, tn_scalar value, tn_tensor **rets) {
    tn_status st = tni_check_scalar_fits(&value, tn_view_dtype(&t->v));
    if (st == TN_OK) st = tni_fill(t, value);
    return handed(st, t, rets);
}

static tn_status sized_filled(tn_ints size, int64_t dtype, int64_t device, int32_t fallback,
                              tn_scalar value, tn_tensor **rets) {
    tn_tensor *t;
    TN_TRY(sized(size, dtype, device, TN_FORMAT_CONTIGUOUS, fallback, &t));
    return hand_filled(t, value, rets);
}

static tn_status like(const tn_view *v, int64_t dtype, int64_t device, int64_t format,
                      tn_tensor **ret) {
    int32_t type = dtype < 0 ? tn_view_dtype(v) : (int32_t)dtype;
    return tni_new_like(v, type, tni_device_given(device, tn_tensor_device(tni_t(v))), format, ret);
}

static tn_status like_filled(const tn_view *v, int64_t dtype, int64_t device, int64_t format,
                             tn_scalar value, tn_tensor **rets) {
    tn_tensor *t;
    TN_TRY(like(v, dtype, device, format, &t));
    return hand_filled(t, value, rets);
}

/* The dtype a tensor takes from a number alone. */
static int32_t dtype_of_number(const tn_scalar *s) {
    if (s->kind == TN_CAT_BOOL) return TN_BOOL;
    if (s->kind == TN_CAT_INT) return TN_I64;
    if (s->kind == TN_CAT_FLOAT) return tn_dtype_default();
    return tn_dtype_default() == TN_F64 ? TN_C128 : TN_C64;
}

/* What nobody has set is seen where it is used: NaN, the largest integer, true. */
static tn_scalar unset(int32_t dtype) {
    int32_t kind = tni_category(dtype);
    if (kind == TN_CAT_BOOL) return tn_scalar_bool(1);
    if (kind != TN_CAT_INT) return tn_scalar_float(NAN);
    bool is_signed = dtype == TN_I8 || dtype == TN_I16 || dtype == TN_I32 || dtype == TN_I64;
    return tn_scalar_uint(UINT64_MAX >> (64 - 8 * tn_dtype_size(dtype) + is_signed));
}

/* A fresh tensor: filled if every run of a program must give the same bits. */
static tn_status hand_unset(tn_tensor *t, tn_tensor **rets) {
    bool fills = tn_is_deterministic() && tn_is_unset_filled();
    return handed(fills ? fill_places(t, unset(tn_view_dtype(&t->v))) : TN_OK, t, rets);
}

tn_status tni_composite_empty(const void *args, tn_tensor **rets) {
    const tn_empty_args *a = args;
    tn_tensor *t;
    TN_TRY(sized(a->size, a->dtype, a->device, a->memory_format, tn_dtype_default(), &t));
    return hand_unset(t, rets);
}

tn_status tni_composite_empty_like(const void *args, tn_tensor **rets) {
    const tn_empty_like_args *a = args;
    tn_tensor *t;
    TN_TRY(like(a->input, a->dtype, a->device, a->memory_format, &t));
    return hand_unset(t, rets);
}

static tn_status strided(tn_ints size, tn_ints stride, int32_t dtype, tn_device device,
                         tn_tensor **ret) {
    tn_tensor *t;
    if (size.n != stride.n)
        return tn_fail(TN_E_SHAPE, 0,
                       "dimensionality of sizes (%lld) must match dimensionality of strides (%lld)",
                       (long long)size.n, (long long)stride.n);
    if (size.n > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 0, "a tensor has at most %d dimensions", TN_MAX_DIMS);
    TN_TRY(tn_tensor_new_strided(dtype, device, (int32_t)size.n, size.v, stride.v, &t));
    return hand_unset(t, ret);
}

tn_status tni_composite_empty_strided(const void *args, tn_tensor **rets) {
    const tn_empty_strided_args *a = args;
    int32_t type = a->dtype < 0 ? tn_dtype_default() : (int32_t)a->dtype;
    return strided(a->size, a->stride, type, tni_device_given(a->device, cpu), rets);
}

tn_status tni_composite_zeros(const void *args, tn_tensor **rets) {
    const tn_zeros_args *a = args;
    return sized_filled(a->size, a->dtype, a->device, tn_dtype_default(), tn_scalar_int(0), rets);
}

tn_status tni_composite_zeros_like(const void *args, tn_tensor **rets) {
    const tn_zeros_like_args *a = args;
    return like_filled(a->input, a->dtype, a->device, a->memory_format, tn_scalar_int(0), rets);
}

tn_status tni_composite_ones(const void *args, tn_tensor **rets) {
    const tn_ones_args *a = args;
    return sized_filled(a->size, a->dtype, a->device, tn_dtype_default(), tn_scalar_int(1), rets);
}

tn_status tni_composite_ones_like(const void *args, tn_tensor **rets) {
    const tn_ones_like_args *a = args;
    return like_filled(a->input, a->dtype, a->device, a->memory_format, tn_scalar_int(1), rets);
}

tn_status tni_composite_full(const void *args, tn_tensor **rets) {
    const tn_full_args *a = args;
    return sized_filled(a->size, a->dtype, a->device, dtype_of_number(&a->fill_value),
                        a->fill_value, rets);
}

tn_status tni_composite_full_like(const void *args, tn_tensor **rets) {
    const tn_full_like_args *a = args;
    return like_filled(a->input, a->dtype, a->device, a->memory_format, a->fill_value, rets);
}

/* The dtype and device of a new_* method: the tensor's unless given. */
static int64_t device_or_own(const tn_view *v, int64_t device) {
    tn_device own = tn_tensor_device(tni_t(v));
    return device < 0 ? (int64_t)own.slot << 8 | own.index : device;
}

tn_status tni_composite_new_empty(const void *args, tn_tensor **rets) {
    const tn_new_empty_args *a = args;
    tn_tensor *t;
    TN_TRY(sized(a->size, a->dtype, device_or_own(a->input, a->device), TN_FORMAT_CONTIGUOUS,
                 tn_view_dtype(a->input), &t));
    return hand_unset(t, rets);
}

tn_status tni_composite_new_empty_strided(const void *args, tn_tensor **rets) {
    const tn_new_empty_strided_args *a = args;
    int32_t type = a->dtype < 0 ? tn_view_dtype(a->input) : (int32_t)a->dtype;
    tn_device device = tni_device_given(a->device, tn_tensor_device(tni_t(a->input)));
    return strided(a->size, a->stride, type, device, rets);
}

tn_status tni_composite_new_zeros(const void *args, tn_tensor **rets) {
    const tn_new_zeros_args *a = args;
    return sized_filled(a->size, a->dtype, device_or_own(a->input, a->device),
                        tn_view_dtype(a->input), tn_scalar_int(0), rets);
}

tn_status tni_composite_new_ones(const void *args, tn_tensor **rets) {
    const tn_new_ones_args *a = args;
    return sized_filled(a->size, a->dtype, device_or_own(a->input, a->device),
                        tn_view_dtype(a->input), tn_scalar_int(1), rets);
}

tn_status tni_composite_new_full(const void *args, tn_tensor **rets) {
    const tn_new_full_args *a = args;
    return sized_filled(a->size, a->dtype, device_or_own(a->input, a->device),
                        tn_view_dtype(a->input), a->fill_value, rets);
}

/* ---- Sequences ---------------------------------------------------------------------------------*/

/* How many numbers from start on, step apart, lie before end; one more when end is `closed`.
 * `at` is the number of the argument end. */
static tn_status count_of(const tn_scalar *start, const tn_scalar *end, const tn_scalar *step,
                          bool exact, bool closed, int32_t at, int64_t *ret_n) {
    if (step->re == 0.0) return tn_fail(TN_E_STATE, at + 1, "step must be nonzero");
    if (!isfinite(start->re) || !isfinite(end->re))
        return tn_fail(TN_E_STATE, at, "unsupported range: %g -> %g", start->re, end->re);
    if ((step->re > 0 && start->re > end->re) || (step->re < 0 && start->re < end->re))
        return tn_fail(TN_E_STATE, at, "upper bound and lower bound inconsistent with step sign");
    double n;
    if (exact && !closed) {
        /* Whole numbers: no rounding, even where a double cannot hold them; a distance or a step of
         * 2^63 is one of the numbers without a sign. */
        bool up = step->i > 0;
        uint64_t from = (uint64_t)start->i, to = (uint64_t)end->i, by = (uint64_t)step->i;
        uint64_t span = up ? to - from : from - to, each = up ? by : 0 - by;
        uint64_t count = span / each + (span % each != 0);
        if (count > INT64_MAX) return tn_fail(TN_E_STATE, at, "invalid size, possible overflow?");
        *ret_n = (int64_t)count;
        return TN_OK;
    }
    n = closed ? floor((end->re - start->re) / step->re) + 1.0
               : ceil((end->re - start->re) / step->re);
    if (!(n >= 0.0 && n < 4.6e18))
        return tn_fail(TN_E_STATE, at, "invalid size, possible overflow?");
    *ret_n = (int64_t)n;
    return TN_OK;
}

/* What an integer dtype keeps of a number: as an int64. */
static tn_status whole(tn_scalar *s, int32_t dtype) {
    TN_TRY(tni_check_scalar_fits(s, dtype));
    if (s->kind >= TN_CAT_FLOAT) *s = tn_scalar_int((int64_t)s->re);
    return TN_OK;
}

static tn_scalar rounded_to(tn_scalar s, int32_t dtype) {
    _Alignas(16) unsigned char number[16];
    tni_scalar_store(&s, dtype, number);
    tni_scalar_load(dtype, number, &s);
    return s;
}

/* The same as dtype holds it: -3 is 253 as uint8. */
static tn_status whole_in(tn_scalar *s, int32_t dtype) {
    TN_TRY(whole(s, dtype));
    *s = rounded_to(*s, dtype);
    return TN_OK;
}

static bool has_sequences(int32_t dtype) {
    int32_t kind = tn_dtype_category(dtype);
    return kind == TN_CAT_INT || kind == TN_CAT_FLOAT;
}

static tn_status fail_sequences(const char *name, int64_t dtype) {
    return tn_fail(TN_E_UNSUPPORTED, -1, "\"%s\" not implemented for '%s'", name,
                   tni_type_text((int32_t)dtype));
}

static tn_status sequence(tn_scalar start, tn_scalar end, tn_scalar step, bool closed, int32_t at,
                          int64_t dtype, int64_t device, tn_tensor **rets) {
    bool exact = start.kind < TN_CAT_FLOAT && end.kind < TN_CAT_FLOAT && step.kind < TN_CAT_FLOAT;
    int32_t fallback = exact && !closed ? TN_I64 : tn_dtype_default();
    if (dtype < 0 && fallback == TN_I64) dtype = TN_I64;
    int64_t n = 0;
    tn_tensor *t, *same = NULL;
    if (start.kind == TN_CAT_COMPLEX || end.kind == TN_CAT_COMPLEX || step.kind == TN_CAT_COMPLEX)
        return tn_fail(TN_E_STATE, -1, "value cannot be converted to type double without overflow");
    if (dtype >= 0 && !has_sequences((int32_t)dtype)) return fail_sequences("arange", dtype);
    /* As PyTorch: an integer sequence has whole ends and a whole step; int64 counts with these. */
    tn_scalar s = start, e = end, by = step;
    if (tn_scalar_is_beyond(&s) || tn_scalar_is_beyond(&e) || tn_scalar_is_beyond(&by))
        exact = false;
    if (dtype >= 0 && tn_dtype_category((int32_t)dtype) <= TN_CAT_INT) {
        /* counted in int64; what a narrower dtype does not hold wraps */
        TN_TRY(whole(&start, TN_I64));
        TN_TRY(whole(&end, TN_I64));
        TN_TRY(whole(&step, TN_I64));
    }
    if (dtype == TN_I64) {
        if (step.re == 0.0 && by.re != 0.0)
            return tn_fail(TN_E_VALUE, at + 1,
                           "step must be nonzero, but as a whole number %g is 0", by.re);
        s = start, e = end, by = step;
        exact = true;
    }
    TN_TRY(count_of(&s, &e, &by, exact, closed, at, &n));
    TN_TRY(sized(tn_ints_of(&n, 1), dtype, device, TN_FORMAT_CONTIGUOUS, fallback, &t));
    tn_status st = TN_OK;
    if (n > 0) st = tn__arange_(t, start, step, &same);
    tn_tensor_unref(&same);
    if (st == TN_OK)
        rets[0] = t;
    else
        tn_tensor_unref(&t);
    return st;
}

tn_status tni_composite_arange(const void *args, tn_tensor **rets) {
    const tn_arange_args *a = args;
    tn_scalar from = tn_scalar_int(0), step = tn_scalar_int(1);
    return sequence(from, a->end, step, false, 0, a->dtype, a->device, rets);
}

tn_status tni_composite_arange_start(const void *args, tn_tensor **rets) {
    const tn_arange_start_args *a = args;
    return sequence(a->start, a->end, a->step, false, 1, a->dtype, a->device, rets);
}

tn_status tni_composite_range(const void *args, tn_tensor **rets) {
    const tn_range_args *a = args;
    return sequence(a->start, a->end, a->step, true, 1, a->dtype, a->device, rets);
}

static int32_t linspace_dtype(const tn_scalar *a, const tn_scalar *b, int64_t dtype) {
    if (dtype >= 0) return (int32_t)dtype;
    if (a->kind == TN_CAT_COMPLEX || b->kind == TN_CAT_COMPLEX)
        return tn_dtype_default() == TN_F64 ? TN_C128 : TN_C64;
    return tn_dtype_default();
}

tn_status tni_composite_linspace(const void *args, tn_tensor **rets) {
    const tn_linspace_args *a = args;
    tn_tensor *t, *same = NULL;
    if (a->steps < 0) return tn_fail(TN_E_STATE, 2, "number of steps must be non-negative");
    int32_t dtype = linspace_dtype(&a->start, &a->end, a->dtype);
    if (dtype == TN_BOOL) return fail_sequences("linspace", dtype);
    tn_scalar start = a->start, end = a->end;
    bool integers = tn_dtype_category(dtype) <= TN_CAT_INT;
    TN_TRY(integers ? whole_in(&start, dtype) : tni_check_scalar_fits(&start, dtype));
    TN_TRY(integers ? whole_in(&end, dtype) : tni_check_scalar_fits(&end, dtype));
    TN_TRY(sized(tn_ints_of(&a->steps, 1), dtype, a->device, TN_FORMAT_CONTIGUOUS, 0, &t));
    tn_status st = a->steps > 0 ? tn__linspace_(t, start, end, &same) : TN_OK;
    tn_tensor_unref(&same);
    if (st == TN_OK)
        rets[0] = t;
    else
        tn_tensor_unref(&t);
    return st;
}

/* The exponents are made and raised in double, so that a float result is rounded once. The ends of
 * several are rounded to half precision and to integers, that of a single one is not. */
tn_status tni_composite_logspace(const void *args, tn_tensor **rets) {
    const tn_logspace_args *a = args;
    int32_t dtype = linspace_dtype(&a->start, &a->end, a->dtype);
    int64_t wide = tn_dtype_category(dtype) == TN_CAT_COMPLEX ? TN_C128 : TN_F64;
    if (dtype == TN_BOOL) return fail_sequences("logspace", dtype);
    tn_tensor *exponents = NULL, *base = NULL, *powers = NULL;
    tn_scalar start = a->start, end = a->end, only = tn_scalar_float(pow(a->base, start.re));
    if (a->steps != 1 && tn_dtype_category(dtype) <= TN_CAT_INT) {
        TN_TRY(whole(&start, dtype));
        TN_TRY(whole(&end, dtype));
    } else if (a->steps != 1 && (dtype == TN_F16 || dtype == TN_BF16)) {
        start = rounded_to(start, dtype);
        end = rounded_to(end, dtype);
    } else if (tn_dtype_category(dtype) <= TN_CAT_INT) {
        TN_TRY(tni_check_scalar_fits(&only, dtype));
    }
    tn_status st = tn_linspace(start, end, a->steps, wide, a->device, &exponents);
    if (st) goto out;
    st = tn_full((tn_ints){NULL, 0}, tn_scalar_float(a->base), wide, a->device, &base);
    if (st) goto out;
    if ((st = tn_pow(base, exponents, &powers))) goto out;
    st = tn__move(powers, dtype, -1, rets);
out:
    tn_tensor_unref(&exponents);
    tn_tensor_unref(&base);
    tn_tensor_unref(&powers);
    return st;
}

/* The numbers in tensors without dimensions. */
static tn_status ends_of(const char *op, const tn_view *start, const tn_view *end,
                         tn_scalar *ret_start, tn_scalar *ret_end) {
    if (start->ndim != 0 || end->ndim != 0)
        return tn_fail(
            TN_E_STATE, 0,
            "%s only supports 0-dimensional start and end tensors, but got start with %d "
            "dimension(s) and end with %d dimension(s).",
            op, (int)start->ndim, (int)end->ndim);
    TN_TRY(tn_tensor_item(tni_t(start), ret_start));
    return tn_tensor_item(tni_t(end), ret_end);
}

tn_status tni_composite_linspace_tensors(const void *args, tn_tensor **rets) {
    const tn_linspace_tensors_args *a = args;
    tn_scalar start, end;
    TN_TRY(ends_of("linspace", a->start, a->end, &start, &end));
    return tn_linspace(start, end, a->steps, a->dtype, a->device, rets);
}

tn_status tni_composite_logspace_tensors(const void *args, tn_tensor **rets) {
    const tn_logspace_tensors_args *a = args;
    tn_scalar start, end;
    TN_TRY(ends_of("logspace", a->start, a->end, &start, &end));
    return tn_logspace(start, end, a->steps, a->base, a->dtype, a->device, rets);
}

static tn_status identity(int64_t n, int64_t m, int64_t dtype, int64_t device, tn_tensor **rets) {
    tn_tensor *t = NULL, *diagonal = NULL;
    if (n < 0)
        return tn_fail(TN_E_STATE, 0, "n must be greater or equal to 0, got %lld", (long long)n);
    if (m < 0)
        return tn_fail(TN_E_STATE, 1, "m must be greater or equal to 0, got %lld", (long long)m);
    TN_TRY(sized_filled(TN_INTS(n, m), dtype, device, tn_dtype_default(), tn_scalar_int(0), &t));
    tn_status st = tn_diagonal(t, 0, 0, 1, &diagonal);
    if (st == TN_OK) st = tni_fill(diagonal, tn_scalar_int(1));
    tn_tensor_unref(&diagonal);
    if (st == TN_OK)
        rets[0] = t;
    else
        tn_tensor_unref(&t);
    return st;
}

tn_status tni_composite_eye(const void *args, tn_tensor **rets) {
    const tn_eye_args *a = args;
    return identity(a->n, a->n, a->dtype, a->device, rets);
}

tn_status tni_composite_eye_m(const void *args, tn_tensor **rets) {
    const tn_eye_m_args *a = args;
    return identity(a->n, a->m, a->dtype, a->device, rets);
}

/* Of row r the lower triangle has the first ones of `cols` columns, the upper one the rest. */
static int64_t lower_columns(int64_t r, int64_t cols, int64_t offset) {
    int64_t n = r + offset + 1;
    return n < 0 ? 0 : n > cols ? cols : n;
}

/* The sum of lower_columns over all rows: a slope of 1, 2, ... columns, then whole rows. */
static int64_t lower_count(int64_t rows, int64_t cols, int64_t offset) {
    int64_t first = offset < 0 ? -offset : 0, whole = cols - offset - 1;
    if (whole < 0) whole = 0;
    if (whole > rows) whole = rows;
    int64_t n = (rows - whole) * cols;
    if (whole > first) {
        int64_t a = first + offset + 1, b = whole + offset; /* columns of its first and last row */
        n += (b - a + 1) % 2 == 0 ? (b - a + 1) / 2 * (a + b) : (a + b) / 2 * (b - a + 1);
    }
    return n;
}

static tn_status triangle(bool lower, int64_t rows, int64_t cols, int64_t offset, int64_t dtype,
                          int64_t device, tn_tensor **rets) {
    int64_t n = 0, area, limit = INT64_C(1) << 61;
    tn_tensor *t = NULL;
    if (dtype >= 0 && tn_dtype_category((int32_t)dtype) != TN_CAT_INT)
        return fail_sequences(lower ? "tril_indices" : "triu_indices", dtype);
    if (rows < 0)
        return tn_fail(TN_E_STATE, 0, "row must be non-negative, got%lld", (long long)rows);
    if (cols < 0)
        return tn_fail(TN_E_STATE, 1, "col must be non-negative, got%lld", (long long)cols);
    if (__builtin_mul_overflow(rows, cols, &area) || area > limit)
        return tn_fail(TN_E_VALUE, 0, "a triangle of %lld by %lld is too large", (long long)rows,
                       (long long)cols);
    if (area == 0) rows = 0;
    if (offset > cols) offset = cols; /* farther out nothing changes */
    if (offset < -rows) offset = -rows;
    if (!lower) offset--; /* what is left of the upper triangle is the lower one a step below */
    n = lower_count(rows, cols, offset);
    if (!lower) n = rows * cols - n;
    TN_TRY(sized(TN_INTS(2, n), TN_I64, -1, TN_FORMAT_CONTIGUOUS, TN_I64, &t));
    int64_t *row = t->v.data, *col = n ? row + n : row;
    int64_t begin = lower && offset < 0 ? -offset : 0; /* rows before have nothing */
    int64_t asked = 0;                                 /* element at which it was asked to stop */
    tn_status st = TN_OK;
    for (int64_t r = begin, i = 0; r < rows && i < n && st == TN_OK; r++) {
        int64_t k = lower_columns(r, cols, offset);
        for (int64_t c = lower ? 0 : k; c < (lower ? k : cols); c++, i++) {
            row[i] = r;
            col[i] = c;
        }
        if (i - asked < 1 << 22) continue;
        asked = i;
        st = tni_host_poll();
    }
    if (st == TN_OK) st = tn__move(t, dtype < 0 ? TN_I64 : dtype, device, rets);
    tn_tensor_unref(&t);
    return st;
}

tn_status tni_composite_tril_indices(const void *args, tn_tensor **rets) {
    const tn_tril_indices_args *a = args;
    return triangle(true, a->row, a->col, a->offset, a->dtype, a->device, rets);
}

tn_status tni_composite_triu_indices(const void *args, tn_tensor **rets) {
    const tn_triu_indices_args *a = args;
    return triangle(false, a->row, a->col, a->offset, a->dtype, a->device, rets);
}

/* ---- Copies ------------------------------------------------------------------------------------*/

static tn_status copy_of(const tn_view *v, int32_t dtype, tn_device device, int64_t format,
                         tn_tensor **rets) {
    tn_tensor *t;
    TN_TRY(tni_new_like(v, dtype, device, format, &t));
    return handed(tni_copy_into(t, tni_t(v)), t, rets);
}

/* Nobody waits where the host's side is pinned memory; a copy to the host makes it so. */
static tn_status queued_copy_of(const tn_view *v, int32_t dtype, tn_device device, int64_t format,
                                tn_tensor **rets) {
    int32_t from = tn_view_device(v);
    tn_tensor *t;
    TN_TRY(check_format(format, v->ndim));
    if (device.slot == 0 && from > 0 && tni_device_at(from)->ifaces.pinned)
        TN_TRY(tni_pinned_like(v, dtype, format, from, &t));
    else
        TN_TRY(tni_new_like(v, dtype, device, format, &t));
    return handed(tni_copy_queued(t, tni_t(v)), t, rets);
}

tn_status tni_composite_clone(const void *args, tn_tensor **rets) {
    const tn_clone_args *a = args;
    return copy_of(a->input, tn_view_dtype(a->input), tn_tensor_device(tni_t(a->input)),
                   a->memory_format, rets);
}

tn_status tni_composite_contiguous(const void *args, tn_tensor **rets) {
    const tn_contiguous_args *a = args;
    uint64_t want = a->memory_format == TN_FORMAT_CONTIGUOUS ? TN_W_CONTIGUOUS : TN_W_CHANNELS_LAST;
    if (a->memory_format == TN_FORMAT_PRESERVE)
        return tn_fail(TN_E_STATE, 1,
                       "preserve memory format is unsupported by the contiguous operator");
    TN_TRY(check_format(a->memory_format, a->input->ndim));
    if ((a->input->word & want) && !(tni_t(a->input)->flags & TNI_T_STACK)) {
        rets[0] = tn_tensor_ref(tni_t(a->input));
        return TN_OK;
    }
    return tn_clone(tni_t(a->input), a->memory_format, rets);
}

tn_status tni_composite_copy_(const void *args, tn_tensor **rets) {
    const tn_copy__args *a = args;
    tn_tensor *self = tni_t(a->self), *src = tni_t(a->src);
    TN_TRY(tni_check_writable(&tni_op_copy_, self, tn_view_dtype(&self->v)));
    if (self != src) {
        TN_TRY(tni_check_no_internal_overlap(self));
        if (tni_overlap_of(self, src) == TNI_OVERLAP_PARTIAL)
            return tn_fail(TN_E_STATE, 1,
                           "unsupported operation: some elements of the input tensor and the "
                           "written-to tensor refer to a single memory location. Please clone() "
                           "the tensor before performing the operation.");
        TN_TRY(a->non_blocking ? tni_copy_queued(self, src) : tni_copy_into(self, src));
        tni_bump_version(self);
    }
    rets[0] = tn_tensor_ref(self);
    return TN_OK;
}

tn_status tni_composite__to_copy(const void *args, tn_tensor **rets) {
    const tn__to_copy_args *a = args;
    const tn_view *v = a->input;
    tn_device device = tni_device_given(a->device, tn_tensor_device(tni_t(v)));
    int32_t dtype = a->dtype < 0 ? tn_view_dtype(v) : (int32_t)a->dtype;
    if (a->non_blocking) return queued_copy_of(v, dtype, device, a->memory_format, rets);
    return copy_of(v, dtype, device, a->memory_format, rets);
}

tn_status tni_composite__move(const void *args, tn_tensor **rets) {
    const tn__move_args *a = args;
    tn_tensor *t = tni_t(a->input);
    tn_device own = tn_tensor_device(t), device = tni_device_given(a->device, own);
    bool same = device.slot == own.slot && device.index == own.index &&
                (a->dtype < 0 || a->dtype == tn_view_dtype(&t->v));
    if (same && !(t->flags & TNI_T_STACK)) {
        rets[0] = tn_tensor_ref(t);
        return TN_OK;
    }
    return tn__to_copy(t, a->dtype, a->device, 0, TN_FORMAT_PRESERVE, rets);
}

/* ---- Triangles of a matrix ---------------------------------------------------------------------*/

static tn_status triangle_shape(tn_infer *inf, const tn_view *v) {
    if (v->ndim < 2)
        return tn_fail(TN_E_SHAPE, 0, "%s: input tensor must have at least 2 dimensions",
                       inf->op->info.name);
    return tni_infer_set(inf, 0, v->ndim, v->shape);
}

tn_status tni_infer_tril(tn_infer *inf, const void *args) {
    return triangle_shape(inf, ((const tn_tril_args *)args)->input);
}

tn_status tni_infer_triu(tn_infer *inf, const void *args) {
    return triangle_shape(inf, ((const tn_triu_args *)args)->input);
}
