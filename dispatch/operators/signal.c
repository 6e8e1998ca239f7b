/* signal.c: signals in time: short Fourier transforms of overlapping pieces, and windows. The messages are
 * PyTorch's. */
#include <math.h>

#include <tenon/args_signal.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_fft.h>
#include <tenon/ops_signal.h>

#include "op_signal.h"
#include "scope_priv.h"

enum { SCALE_NONE, SCALE_ROOT, SCALE_ALL }; /* `normalization` of transforms */

/* ---- Short transforms --------------------------------------------------------------------------*/

/* A window of n_fft elements with the given one, or ones, in its middle; NULL: all ones. */
static tn_tensor *middle_window(tni_scope *s, const tn_view *window, int64_t length, int64_t n_fft,
                                const tn_tensor *like) {
    tn_tensor *w = window ? tni_t(window) : NULL, *r = NULL;
    int64_t left = (n_fft - length) / 2;
    if (length == n_fft || s->st != TN_OK) return w;
    if (!w) {
        int64_t dtype = tni_dtype_to_real(tn_tensor_dtype(like));
        tn_status st = tn_ones(TN_INTS(length), dtype, tni_device_of(like), &r);
        w = scope_take(s, st, r);
    }
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn_constant_pad_nd(w, TN_INTS(left, n_fft - length - left), tn_scalar_int(0), &r);
    return scope_take(s, st, r);
}

static tn_status check_stft(const tn__stft_args *a, int64_t length) {
    const tn_view *w = a->window;
    if (a->n_fft <= 0 || a->n_fft > length)
        return tn_fail(TN_E_STATE, 1, "stft: expected 0 < n_fft <= %lld, but got n_fft=%lld",
                       (long long)length, (long long)a->n_fft);
    if (a->hop_length <= 0)
        return tn_fail(TN_E_STATE, 2, "stft: expected hop_length > 0, but got hop_length=%lld",
                       (long long)a->hop_length);
    if (a->win_length <= 0 || a->win_length > a->n_fft)
        return tn_fail(TN_E_STATE, 3,
                       "stft: expected 0 < win_length <= n_fft, but got win_length=%lld",
                       (long long)a->win_length);
    if (w && (w->ndim != 1 || w->shape[0] != a->win_length))
        return tn_fail(
            TN_E_STATE, 4,
            "stft: expected a 1D window tensor of size equal to win_length=%lld, but got "
            "window with size %s",
            (long long)a->win_length, tni_shape_text_of(w));
    return TN_OK;
}

/* (batch, length) with as much on either side as half a window: by mode, or zeros. */
static tn_tensor *widened(tni_scope *s, tn_tensor *x, int64_t by, const char *mode) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK || by == 0) return x;
    if (strcmp(mode, "constant") == 0) {
        tn_status st = tn_constant_pad_nd(x, TN_INTS(by, by), tn_scalar_int(0), &r);
        return scope_take(s, st, r);
    }
    tn_opt_float none = {0};
    x = scope_unsqueeze(s, x, 0);
    r = SCOPE(s, tn_pad(x, TN_INTS(by, by), mode, none, scope_slot(s)));
    return scope_select(s, r, 0, 0);
}

tn_status tni_composite__stft(const void *args, tn_tensor **rets) {
    const tn__stft_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *r = NULL;
    bool one = a->input->ndim == 1;
    if (tn_dtype_category(tn_view_dtype(a->input)) < TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 0,
                       "stft: expected a tensor of floating point or complex values");
    if (a->input->ndim != 1 && a->input->ndim != 2)
        return tn_fail(TN_E_STATE, 0, "stft: expected a 1D or 2D tensor, but got %dD",
                       (int)a->input->ndim);
    if (one) x = scope_unsqueeze(&s, x, 0);
    if (a->center)
        x = widened(&s, x, a->n_fft / 2, a->pad_mode);
    else if (a->aligned)
        x = widened(&s, x, (a->n_fft - a->win_length) / 2, "constant");
    if (s.st == TN_OK) s.st = check_stft(a, tni_size_at(x, 1));
    tn_tensor *window = middle_window(&s, a->window, a->win_length, a->n_fft, x);
    if (s.st == TN_OK) {
        tn_status st = tn_unfold(x, 1, a->n_fft, a->hop_length, &r);
        r = scope_take(&s, st, r);
    }
    if (window) r = scope_mul(&s, r, window);
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    int64_t scale = a->normalized ? SCALE_ROOT : SCALE_NONE;
    tn_status st = TN_OK;
    if (tni_is_complex(r) && a->onesided)
        st = tn_fail(TN_E_STATE, -1, "Cannot have onesided output if window or input is complex");
    else if (tni_is_complex(r))
        st = tn__fft_c2c(r, TN_INTS(2), scale, 1, &x);
    else
        st = tn__fft_r2c(r, TN_INTS(2), scale, a->onesided, &x);
    r = scope_transpose(&s, scope_take(&s, st, x), 1, 2);
    return scope_finish(&s, one ? scope_select(&s, r, 0, 0) : r, rets);
}

static tn_status check_istft(const tn__istft_args *a) {
    const tn_view *x = a->input, *w = a->window;
    if (tn_dtype_category(tn_view_dtype(x)) != TN_CAT_COMPLEX)
        return tn_fail(TN_E_STATE, 0,
                       "istft requires a complex-valued input tensor matching the output from stft "
                       "with return_complex=True.");
    if (x->numel == 0) return tn_fail(TN_E_STATE, 0, "istft: input tensor cannot be empty.");
    if (x->ndim != 2 && x->ndim != 3)
        return tn_fail(TN_E_STATE, 0, "istft: expected a tensor with 2 or 3 dimensions, but got %d",
                       (int)x->ndim);
    int64_t want = a->onesided ? a->n_fft / 2 + 1 : a->n_fft;
    if (x->shape[x->ndim - 2] != want)
        return tn_fail(TN_E_STATE, 0,
                       "istft: expected the frequency dimension (2nd to the last) of the input "
                       "tensor to match n_fft%s when onesided=%s, but got %lld",
                       a->onesided ? " / 2 + 1" : "", a->onesided ? "True" : "False",
                       (long long)x->shape[x->ndim - 2]);
    if (a->hop_length <= 0 || a->hop_length > a->win_length)
        return tn_fail(TN_E_STATE, 2, "istft: expected 0 < hop_length <= win_length");
    if (a->win_length <= 0 || a->win_length > a->n_fft)
        return tn_fail(TN_E_STATE, 3, "istft: expected 0 < win_length <= n_fft");
    if (w && (w->ndim != 1 || w->shape[0] != a->win_length))
        return tn_fail(
            TN_E_STATE, 4,
            "istft: Invalid window shape. window has to be 1D and length of `win_length`");
    if (a->onesided && a->return_complex)
        return tn_fail(TN_E_STATE, -1, "Cannot have onesided output if window or input is complex");
    if (w && tn_dtype_category(tn_view_dtype(w)) == TN_CAT_COMPLEX && !a->return_complex)
        return tn_fail(TN_E_STATE, 4, "Complex windows are incompatible with return_complex=False");
    return TN_OK;
}

/* (batch, pieces, n_fft), hop apart, added up. */
static tn_tensor *laid_over(tni_scope *s, tn_tensor *x, int64_t length, int64_t hop) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn__unfold_backward(x, TN_INTS(tni_size_at(x, 0), length), 1, tni_size_at(x, 2), hop, &r);
    return scope_take(s, st, r);
}

/* Fails where an element is (nearly) zero: the pieces do not determine it. */
static tn_status check_overlap(tni_scope *s, tn_tensor *sum) {
    tn_tensor *least = NULL;
    tn_scalar value = {0};
    tn_tensor *size = scope_unary(s, tn_abs, sum);
    if (s->st != TN_OK || tn_tensor_numel(size) == 0 || tni_is_meta(&size->v)) return s->st;
    tn_status st = tn_amin(size, tn_ints_none(), 0, &least);
    if (st == TN_OK) st = tn_tensor_item(least, &value);
    tn_tensor_unref(&least);
    if (st == TN_OK && value.re < 1e-11)
        st = tn_fail(TN_E_STATE, 4, "istft: window overlap add min: 1");
    return st;
}

tn_status tni_composite__istft(const void *args, tn_tensor **rets) {
    const tn__istft_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *r = NULL;
    bool one = a->input->ndim == 2;
    TN_TRY(check_istft(a));
    if (one) x = scope_unsqueeze(&s, x, 0);
    x = scope_transpose(&s, x, 1, 2);
    if (!a->onesided && !a->return_complex) x = scope_narrow(&s, x, 2, 0, a->n_fft / 2 + 1);
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    int64_t scale = a->normalized ? SCALE_ROOT : SCALE_ALL;
    tn_status st = a->return_complex ? tn__fft_c2c(x, TN_INTS(2), scale, 0, &r)
                                     : tn__fft_c2r(x, TN_INTS(2), scale, a->n_fft, &r);
    x = scope_take(&s, st, r);
    tn_tensor *window = middle_window(&s, a->window, a->win_length, a->n_fft, x);
    if (!window && s.st == TN_OK) {
        st =
            tn_ones(TN_INTS(a->n_fft), tni_dtype_to_real(tn_tensor_dtype(x)), tni_device_of(x), &r);
        window = scope_take(&s, st, r);
    }
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    int64_t pieces = tni_size_at(x, 1), whole = 0, start = a->center ? a->n_fft / 2 : 0;
    if (__builtin_mul_overflow(a->hop_length, pieces - 1, &whole) ||
        __builtin_add_overflow(whole, a->n_fft, &whole)) {
        s.st = tn_fail(TN_E_STATE, 2, "istft: hop_length is too large");
        return scope_finish(&s, NULL, NULL);
    }
    int64_t end = a->center ? whole - a->n_fft / 2 : whole;
    if (a->length.has &&
        (a->length.value < 0 || __builtin_add_overflow(start, a->length.value, &end))) {
        s.st = tn_fail(TN_E_STATE, 8, "istft: expected length >= 0");
        return scope_finish(&s, NULL, NULL);
    }
    int64_t have = (end < whole ? end : whole) - start;
    tn_tensor *y = laid_over(&s, scope_mul(&s, x, window), whole, a->hop_length);
    tn_tensor *squares = scope_expand(&s, scope_square(&s, window), TN_INTS(1, pieces, a->n_fft));
    tn_tensor *sum = laid_over(&s, squares, whole, a->hop_length);
    y = scope_narrow(&s, y, 1, start, have < 0 ? 0 : have);
    sum = scope_narrow(&s, sum, 1, start, have < 0 ? 0 : have);
    if (s.st == TN_OK) s.st = check_overlap(&s, sum);
    y = scope_true_divide(&s, y, sum);
    if (one) y = scope_select(&s, y, 0, 0);
    if (end > whole && s.st == TN_OK) {
        st = tn_constant_pad_nd(y, TN_INTS(0, end - whole), tn_scalar_int(0), &r);
        y = scope_take(&s, st, r);
    }
    return scope_finish(&s, y, rets);
}

/* ---- Windows -----------------------------------------------------------------------------------*/

typedef struct window {
    const char *name;
    double (*at)(double x, double a,
                 double b); /* x: from 0 at the first element to 1 at the last */
    double a, b;
} window;

static const double pi = 3.14159265358979323846;

static double raised_cosine(double x, double a, double b) { return a - b * cos(2 * pi * x); }

static double blackman(double x, double a, double b) {
    (void)a, (void)b;
    return 0.42 - 0.5 * cos(2 * pi * x) + 0.08 * cos(4 * pi * x);
}

static double triangle(double x, double a, double b) {
    (void)a, (void)b;
    return x < 0.5 ? 2 * x : 2 - 2 * x;
}

/* The modified Bessel function of order 0, by its power series, whose terms are positive. */
static double bessel_i0(double x) {
    double term = 1, sum = 1;
    for (int k = 1; k < 1000 && term > 1e-18 * sum; k++) {
        term *= x / (2.0 * k) * (x / (2.0 * k));
        sum += term;
    }
    return sum;
}

static double half_circle(double x, double a, double b) {
    double y = 2 * x - 1;
    return bessel_i0(a * sqrt(1 - y * y)) / b;
}

static tn_status make_window(const window *w, int64_t length, int64_t periodic, int64_t dtype,
                             int64_t device, tn_tensor **rets) {
    tn_tensor *whole = NULL, *like = NULL;
    static const tn_device cpu = {0, 0};
    if (dtype < 0) dtype = tn_dtype_default();
    if (tn_dtype_category((int32_t)dtype) != TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, -1, "%s expects floating point dtypes, got: %s", w->name,
                       tni_type_text((int32_t)dtype));
    if (length < 0)
        return tn_fail(TN_E_STATE, 0,
                       "%s requires non-negative window_length, got window_length=%lld", w->name,
                       (long long)length);
    tn_status st = tn_tensor_new(TN_F64, cpu, 1, &length, &whole);
    if (st != TN_OK) return st;
    double *to = whole->v.data, last = (double)(periodic ? length : length - 1);
    for (int64_t i = 0; i < length; i++)
        to[i] = length == 1 ? 1 : w->at((double)i / last, w->a, w->b);
    st = tn_empty(TN_INTS(0), dtype, device, TN_FORMAT_CONTIGUOUS, &like);
    if (st == TN_OK) st = tn__move(whole, dtype, tni_device_of(like), rets);
    tn_tensor_unref(&whole);
    tn_tensor_unref(&like);
    return st;
}

#define WINDOW(name, ...)                                                                          \
    tn_status tni_composite_##name##_window(const void *args, tn_tensor **rets) {                  \
        const tn_##name##_window_args *a = args;                                                   \
        const window w = {#name "_window", __VA_ARGS__};                                           \
        return make_window(&w, a->window_length, a->periodic, a->dtype, a->device, rets);          \
    }

WINDOW(hann, raised_cosine, 0.5, 0.5)
WINDOW(hamming, raised_cosine, a->alpha, a->beta)
WINDOW(blackman, blackman, 0, 0)
WINDOW(bartlett, triangle, 0, 0)
WINDOW(kaiser, half_circle, a->beta, bessel_i0(a->beta))
