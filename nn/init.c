/* init.c: initial values of parameters (tenon/nn.h), and the operators by which Python calls them.
 *
 * Everything is said in operators, so it works on any device. The order in which numbers are drawn
 * is PyTorch's: the same seed gives the same weights. */
#include <math.h>

#include <tenon/args_init.h>
#include <tenon/nn.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_random.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>
#include <tenon/runtime.h>

#include "op_init.h"
#include "scope_priv.h"

static tn_status no_tensor(void) { return tn_fail(TN_E_TYPE, 0, "the tensor is NULL"); }
static tn_status no_place(int32_t arg) {
    return tn_fail(TN_E_VALUE, arg, "the place for the result is NULL");
}

tn_status tn_init_gain(const char *nonlinearity, double slope, double *ret_gain) {
    static const struct {
        const char *name;
        double gain;
    } known[] = {{"linear", 1.0},           {"conv1d", 1.0},           {"conv2d", 1.0},
                 {"conv3d", 1.0},           {"conv_transpose1d", 1.0}, {"conv_transpose2d", 1.0},
                 {"conv_transpose3d", 1.0}, {"sigmoid", 1.0},          {"tanh", 5.0 / 3},
                 {"selu", 3.0 / 4}};
    double gain = 0.0;
    if (!nonlinearity) return tn_fail(TN_E_VALUE, 0, "the name of the function is NULL");
    if (!ret_gain) return no_place(2);
    for (int i = 0; i < TN_COUNT(known); i++) {
        if (strcmp(nonlinearity, known[i].name) == 0) gain = known[i].gain;
    }
    if (strcmp(nonlinearity, "relu") == 0) gain = sqrt(2.0);
    if (strcmp(nonlinearity, "leaky_relu") == 0) gain = sqrt(2.0 / (1.0 + slope * slope));
    if (gain == 0.0) return tn_fail(TN_E_VALUE, 0, "Unsupported nonlinearity %s", nonlinearity);
    *ret_gain = gain;
    return TN_OK;
}

tn_status tn_init_fans(const tn_tensor *t, int64_t *ret_fan_in, int64_t *ret_fan_out) {
    int64_t field = 1;
    if (!t) return no_tensor();
    if (!ret_fan_in || !ret_fan_out) return no_place(ret_fan_in ? 2 : 1);
    const int64_t *shape = tn_tensor_shape(t);
    if (tn_tensor_ndim(t) < 2) {
        return tn_fail(TN_E_VALUE, 0,
                       "Fan in and fan out can not be computed for tensor with fewer than 2 "
                       "dimensions");
    }
    for (int32_t d = 2; d < tn_tensor_ndim(t); d++) field *= shape[d];
    *ret_fan_in = shape[1] * field;
    *ret_fan_out = shape[0] * field;
    return TN_OK;
}

/* ---- Plain distributions ----------------------------------------------------------------------*/

/* After a call that wrote into its first argument and gave it back: drops that reference. */
static tn_status written(tn_status st, tn_tensor *same) {
    tn_tensor_unref(&same);
    return st;
}

static tn_status fill_uniform(tn_tensor *t, double low, double high, tn_generator *gen) {
    tn_tensor *same = NULL;
    tn_status st = tn_uniform_(t, low, high, gen, &same);
    return written(st, same);
}

static tn_status fill_normal(tn_tensor *t, double mean, double std, tn_generator *gen) {
    tn_tensor *same = NULL;
    tn_status st = tn_normal_(t, mean, std, gen, &same);
    return written(st, same);
}

static tn_status fill(tn_tensor *t, double value) {
    tn_tensor *same = NULL;
    tn_status st = tn_fill_(t, tn_scalar_float(value), &same);
    return written(st, same);
}

static tn_status copy_into(tn_tensor *t, tn_tensor *from) {
    tn_tensor *same = NULL;
    tn_status st = tn_copy_(t, from, 0, &same);
    return written(st, same);
}

tn_status tn_init_constant(tn_tensor *t, double value) {
    int before = tn_grad_set_enabled(0);
    tn_status st = fill(t, value);
    tn_grad_set_enabled(before);
    return st;
}

tn_status tn_init_uniform(tn_tensor *t, double low, double high, tn_generator *gen) {
    int before = tn_grad_set_enabled(0);
    tn_status st = fill_uniform(t, low, high, gen);
    tn_grad_set_enabled(before);
    return st;
}

tn_status tn_init_normal(tn_tensor *t, double mean, double std, tn_generator *gen) {
    int before = tn_grad_set_enabled(0);
    tn_status st = fill_normal(t, mean, std, gen);
    tn_grad_set_enabled(before);
    return st;
}

static tn_status xavier_std(const tn_tensor *t, double gain, double *ret_std) {
    int64_t fan_in = 0, fan_out = 0;
    TN_TRY(tn_init_fans(t, &fan_in, &fan_out));
    *ret_std = gain * sqrt(2.0 / (double)(fan_in + fan_out));
    return TN_OK;
}

tn_status tn_init_xavier_uniform(tn_tensor *t, double gain, tn_generator *gen) {
    double std = 0.0;
    TN_TRY(xavier_std(t, gain, &std));
    double bound = sqrt(3.0) * std;
    return tn_init_uniform(t, -bound, bound, gen);
}

tn_status tn_init_xavier_normal(tn_tensor *t, double gain, tn_generator *gen) {
    double std = 0.0;
    TN_TRY(xavier_std(t, gain, &std));
    return tn_init_normal(t, 0.0, std, gen);
}

static tn_status kaiming_std(const tn_tensor *t, double gain, int fan, double *ret_std) {
    int64_t fan_in = 0, fan_out = 0;
    TN_TRY(tn_init_fans(t, &fan_in, &fan_out));
    *ret_std = gain / sqrt((double)(fan == TN_FAN_OUT ? fan_out : fan_in));
    return TN_OK;
}

tn_status tn_init_kaiming_uniform(tn_tensor *t, double gain, int fan, tn_generator *gen) {
    double std = 0.0;
    if (!t) return no_tensor();
    if (tn_tensor_numel(t) == 0) return TN_OK;
    TN_TRY(kaiming_std(t, gain, fan, &std));
    double bound = sqrt(3.0) * std;
    return tn_init_uniform(t, -bound, bound, gen);
}

tn_status tn_init_kaiming_normal(tn_tensor *t, double gain, int fan, tn_generator *gen) {
    double std = 0.0;
    if (!t) return no_tensor();
    if (tn_tensor_numel(t) == 0) return TN_OK;
    TN_TRY(kaiming_std(t, gain, fan, &std));
    return tn_init_normal(t, 0.0, std, gen);
}

/* ---- The cut normal distribution --------------------------------------------------------------*/

static double normal_below(double x) { return (1.0 + erf(x / sqrt(2.0))) / 2.0; }

static tn_tensor *scope_empty_like(tni_scope *s, tn_tensor *t) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_empty_like(t, -1, -1, -1, &r);
    return scope_take(s, st, r);
}

/* Whether an element of t lies outside of [low, high], bounds in t's own dtype; the mask as well. */
static tn_tensor *scope_outside(tni_scope *s, tn_tensor *t, tn_tensor *low, tn_tensor *high) {
    tn_tensor *below = NULL, *above = NULL, *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_lt(t, low, &below);
    below = scope_take(s, st, below);
    if (s->st != TN_OK) return NULL;
    st = tn_gt(t, high, &above);
    above = scope_take(s, st, above);
    if (s->st != TN_OK) return NULL;
    st = tn_logical_or(below, above, &r);
    return scope_take(s, st, r);
}

static bool scope_any(tni_scope *s, tn_tensor *mask) {
    tn_tensor *r = NULL;
    tn_scalar value = {0};
    if (s->st != TN_OK || tn_tensor_device(mask).slot == TN_META_SLOT) return false;
    tn_status st = tn_any(mask, tn_ints_none(), 0, &r);
    r = scope_take(s, st, r);
    if (r) s->st = tn_tensor_item(r, &value);
    return s->st == TN_OK && value.re != 0.0;
}

/* A 0-d tensor of t's dtype, so that a bound is rounded like the values it is compared with. */
static tn_tensor *scope_bound(tni_scope *s, tn_tensor *t, double value) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_new_full(t, tn_ints_of(NULL, 0), tn_scalar_float(value), -1, -1, &r);
    return scope_take(s, st, r);
}

/* Normal numbers; those outside of the bounds are drawn again, a whole tensor at a time. */
static tn_status cut_normal(tn_tensor *t, double mean, double std, double low, double high,
                            tn_generator *gen) {
    TN_TRY(fill_normal(t, mean, std, gen));
    for (bool more = true; more;) {
        tni_scope s = {0};
        tn_tensor *least = scope_bound(&s, t, low), *most = scope_bound(&s, t, high);
        tn_tensor *outside = scope_outside(&s, t, least, most);
        more = scope_any(&s, outside);
        if (more) {
            tn_tensor *fresh = scope_empty_like(&s, t);
            if (s.st == TN_OK) s.st = fill_normal(fresh, mean, std, gen);
            tn_tensor *picked = scope_where(&s, outside, fresh, t);
            if (s.st == TN_OK) s.st = copy_into(t, picked);
        }
        TN_TRY(scope_finish(&s, NULL, NULL));
    }
    return TN_OK;
}

/* Where the bounds are improbable: uniform numbers, each accepted with a probability that is the
 * height of the density there. Whole tensors are drawn, and only what is pending takes from them. */
static tn_status cut_uniform(tn_tensor *t, double mean, double std, double low, double high,
                             tn_generator *gen) {
    double z = (fmax(low, fmin(mean, high)) - mean) / std, peak = -0.5 * (z * z);
    tn_tensor *pending = NULL;
    tn_status st = TN_OK;
    for (bool more = true; more && st == TN_OK;) {
        tni_scope s = {0};
        tn_tensor *fresh = scope_empty_like(&s, t), *chance = scope_empty_like(&s, t);
        tn_tensor *refused = NULL, *still = NULL;
        if (s.st == TN_OK) s.st = fill_uniform(fresh, low, high, gen);
        if (s.st == TN_OK) s.st = fill_uniform(chance, 0.0, 1.0, gen);
        tn_tensor *height = scope_add_number(&s, fresh, -mean);
        height = scope_square(&s, scope_true_divide(&s, height, scope_bound(&s, t, std)));
        height = scope_add_number(&s, scope_mul_number(&s, height, -0.5), -peak);
        chance = scope_log(&s, chance);
        if (s.st == TN_OK) {
            st = tn_gt(chance, height, &refused);
            refused = scope_take(&s, st, refused);
        }
        if (s.st == TN_OK && pending) {
            st = tn_logical_and(pending, refused, &still);
            still = scope_take(&s, st, still);
        }
        tn_tensor *picked = pending ? scope_where(&s, pending, fresh, t) : fresh;
        if (s.st == TN_OK) s.st = copy_into(t, picked);
        more = scope_any(&s, pending ? still : refused);
        tn_tensor *next = NULL;
        st = scope_finish(&s, pending ? still : refused, &next);
        tn_tensor_unref(&pending);
        pending = next;
    }
    tn_tensor_unref(&pending);
    return st;
}

tn_status tn_init_trunc_normal(tn_tensor *t, double mean, double std, double low, double high,
                               tn_generator *gen) {
    if (!t) return no_tensor();
    int before = tn_grad_set_enabled(0);
    double share = normal_below((high - mean) / std) - normal_below((low - mean) / std);
    tn_status st = share > 0.3 ? cut_normal(t, mean, std, low, high, gen)
                               : cut_uniform(t, mean, std, low, high, gen);
    tn_grad_set_enabled(before);
    return st;
}

/* ---- Matrices ---------------------------------------------------------------------------------*/

/* Row i of `rows` without what it shares with the rows above it, and of length 1. Taking the
 * projections off twice keeps rows orthogonal to the last place. */
static tn_status make_orthonormal(tn_tensor *rows, int64_t i) {
    tni_scope s = {0};
    tn_tensor *place = scope_select(&s, rows, 0, i), *row = place, *above = NULL;
    if (s.st == TN_OK && i > 0) {
        tn_status st = tn_narrow(rows, 0, 0, i, &above);
        above = scope_take(&s, st, above);
    }
    for (int pass = 0; pass < 2 && i > 0; pass++) {
        tn_tensor *shares = scope_binary(&s, tn_mv, above, row);
        row = scope_sub(&s, row, scope_binary(&s, tn_mv, scope_transpose(&s, above, 0, 1), shares));
    }
    tn_tensor *scale = scope_rsqrt(&s, scope_sum(&s, scope_square(&s, row), tn_ints_none(), 0));
    row = scope_mul(&s, row, scale);
    if (s.st == TN_OK) s.st = copy_into(place, row);
    return scope_finish(&s, NULL, NULL);
}

static tn_status orthogonal(tn_tensor *t, double gain, tn_generator *gen) {
    int64_t first = tn_tensor_shape(t)[0], rest = tn_tensor_numel(t) / first;
    tni_scope s = {0};
    tn_tensor *drawn = NULL, *wide = NULL;
    tn_status st = tn_new_empty(t, TN_INTS(first, rest), -1, -1, &drawn);
    drawn = scope_take(&s, st, drawn);
    if (s.st == TN_OK) s.st = fill_normal(drawn, 0.0, 1.0, gen);
    /* Columns of a tall matrix are worked on as rows. */
    if (first >= rest) drawn = scope_transpose(&s, drawn, 0, 1);
    if (s.st == TN_OK) {
        st = tn__to_copy(drawn, TN_F64, -1, 0, -1, &wide);
        wide = scope_take(&s, st, wide);
    }
    for (int64_t i = 0; s.st == TN_OK && i < tn_tensor_shape(wide)[0]; i++) {
        s.st = make_orthonormal(wide, i);
    }
    tn_tensor *result = scope_mul_number(&s, wide, gain);
    if (first >= rest) result = scope_transpose(&s, result, 0, 1);
    if (s.st == TN_OK) {
        const tn_view *v = tn_tensor_view(t);
        result = scope_reshape(&s, result, tn_ints_of(v->shape, v->ndim));
    }
    if (s.st == TN_OK) s.st = copy_into(t, result);
    return scope_finish(&s, NULL, NULL);
}

tn_status tn_init_orthogonal(tn_tensor *t, double gain, tn_generator *gen) {
    if (!t) return no_tensor();
    if (tn_tensor_ndim(t) < 2)
        return tn_fail(TN_E_VALUE, 0, "Only tensors with 2 or more dimensions are supported");
    if (tn_tensor_numel(t) == 0) return TN_OK;
    int before = tn_grad_set_enabled(0);
    tn_status st = orthogonal(t, gain, gen);
    tn_grad_set_enabled(before);
    return st;
}

tn_status tn_init_eye(tn_tensor *t) {
    tni_scope s = {0};
    tn_tensor *diagonal = NULL;
    if (!t) return no_tensor();
    if (tn_tensor_ndim(t) != 2)
        return tn_fail(TN_E_VALUE, 0, "Only tensors with 2 dimensions are supported");
    int before = tn_grad_set_enabled(0);
    s.st = fill(t, 0.0);
    if (s.st == TN_OK) {
        tn_status st = tn_diagonal(t, 0, 0, 1, &diagonal);
        diagonal = scope_take(&s, st, diagonal);
    }
    if (s.st == TN_OK) s.st = fill(diagonal, 1.0);
    tn_grad_set_enabled(before);
    return scope_finish(&s, NULL, NULL);
}

/* A one in the middle of the kernel that leads from channel `in` to channel `out`. */
static tn_status connect(tn_tensor *t, int64_t out, int64_t in) {
    tni_scope s = {0};
    tn_tensor *x = scope_select(&s, scope_select(&s, t, 0, out), 0, in);
    for (int32_t d = 2; d < tn_tensor_ndim(t); d++) {
        x = scope_select(&s, x, 0, tn_tensor_shape(t)[d] / 2);
    }
    if (s.st == TN_OK) s.st = fill(x, 1.0);
    return scope_finish(&s, NULL, NULL);
}

tn_status tn_init_dirac(tn_tensor *t, int64_t groups) {
    if (!t) return no_tensor();
    int32_t ndim = tn_tensor_ndim(t);
    const int64_t *shape = tn_tensor_shape(t);
    if (ndim < 3 || ndim > 5)
        return tn_fail(TN_E_VALUE, 0, "Only tensors with 3, 4, or 5 dimensions are supported");
    if (groups < 1 || shape[0] % groups != 0)
        return tn_fail(TN_E_VALUE, 1, "dim 0 must be divisible by groups");
    int64_t each = shape[0] / groups, least = each < shape[1] ? each : shape[1];
    int before = tn_grad_set_enabled(0);
    tn_status st = fill(t, 0.0);
    if (tn_tensor_numel(t) == 0) least = 0;
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t d = 0; st == TN_OK && d < least; d++) st = connect(t, g * each + d, d);
    }
    tn_grad_set_enabled(before);
    return st;
}

/* The rows to clear are drawn from the default generator, as in PyTorch, whatever `gen` is. */
static tn_status clear_some(tn_tensor *t, int64_t col, int64_t count) {
    tni_scope s = {0};
    tn_scalar_box box;
    tn_tensor *order = NULL, *picked = NULL, *there = NULL, *same = NULL;
    tn_tensor *column = scope_select(&s, t, 1, col);
    if (s.st == TN_OK) {
        tn_status st = tn_randperm(tn_tensor_shape(t)[0], NULL, TN_I64, -1, &order);
        order = scope_take(&s, st, order);
    }
    if (s.st == TN_OK) {
        tn_status st = tn_narrow(order, 0, 0, count, &picked);
        picked = scope_take(&s, st, picked);
    }
    if (s.st == TN_OK) { /* drawn on the CPU, so that every device clears the same */
        tn_device device = tn_tensor_device(t);
        int64_t code = (int64_t)device.slot << 8 | device.index;
        tn_status st = tn__to_copy(picked, TN_I64, code, 0, TN_FORMAT_PRESERVE, &there);
        there = scope_take(&s, st, there);
    }
    if (s.st == TN_OK) {
        tn_tensor *zero = tn_scalar_box_init(&box, tn_scalar_float(0.0));
        s.st = tn_index_fill_(column, 0, there, zero, &same);
        tn_tensor_unref(&same);
    }
    return scope_finish(&s, NULL, NULL);
}

tn_status tn_init_sparse(tn_tensor *t, double sparsity, double std, tn_generator *gen) {
    if (!t) return no_tensor();
    if (tn_tensor_ndim(t) != 2)
        return tn_fail(TN_E_VALUE, 0, "Only tensors with 2 dimensions are supported");
    int64_t rows = tn_tensor_shape(t)[0], count = (int64_t)ceil(sparsity * (double)rows);
    if (count < 0 || count > rows)
        return tn_fail(TN_E_VALUE, 1, "sparsity must lie between 0 and 1, not %g", sparsity);
    int before = tn_grad_set_enabled(0);
    tn_status st = fill_normal(t, 0.0, std, gen);
    for (int64_t col = 0; st == TN_OK && col < tn_tensor_shape(t)[1]; col++) {
        st = clear_some(t, col, count);
    }
    tn_grad_set_enabled(before);
    return st;
}

/* ---- As operators -----------------------------------------------------------------------------*/

/* The result of an operator that writes into its argument is that argument. */
static tn_status given_back(tn_status st, const tn_view *self, tn_tensor **rets) {
    if (st == TN_OK) rets[0] = tn_tensor_ref(tni_t(self));
    return st;
}

static tn_status fan_of(const char *mode, int *ret_fan) {
    if (strcmp(mode, "fan_in") != 0 && strcmp(mode, "fan_out") != 0) {
        return tn_fail(TN_E_VALUE, 2,
                       "Mode %s not supported, please use one of ['fan_in', 'fan_out']", mode);
    }
    *ret_fan = strcmp(mode, "fan_out") == 0 ? TN_FAN_OUT : TN_FAN_IN;
    return TN_OK;
}

tn_status tni_composite__init_trunc_normal_(const void *args, tn_tensor **rets) {
    const tn__init_trunc_normal__args *a = args;
    return given_back(
        tn_init_trunc_normal(tni_t(a->self), a->mean, a->std, a->a, a->b, a->generator), a->self,
        rets);
}

tn_status tni_composite__init_xavier_uniform_(const void *args, tn_tensor **rets) {
    const tn__init_xavier_uniform__args *a = args;
    return given_back(tn_init_xavier_uniform(tni_t(a->self), a->gain, a->generator), a->self, rets);
}

tn_status tni_composite__init_xavier_normal_(const void *args, tn_tensor **rets) {
    const tn__init_xavier_normal__args *a = args;
    return given_back(tn_init_xavier_normal(tni_t(a->self), a->gain, a->generator), a->self, rets);
}

tn_status tni_composite__init_kaiming_uniform_(const void *args, tn_tensor **rets) {
    const tn__init_kaiming_uniform__args *a = args;
    int fan = TN_FAN_IN;
    TN_TRY(fan_of(a->mode, &fan));
    return given_back(tn_init_kaiming_uniform(tni_t(a->self), a->gain, fan, a->generator), a->self,
                      rets);
}

tn_status tni_composite__init_kaiming_normal_(const void *args, tn_tensor **rets) {
    const tn__init_kaiming_normal__args *a = args;
    int fan = TN_FAN_IN;
    TN_TRY(fan_of(a->mode, &fan));
    return given_back(tn_init_kaiming_normal(tni_t(a->self), a->gain, fan, a->generator), a->self,
                      rets);
}

tn_status tni_composite__init_orthogonal_(const void *args, tn_tensor **rets) {
    const tn__init_orthogonal__args *a = args;
    return given_back(tn_init_orthogonal(tni_t(a->self), a->gain, a->generator), a->self, rets);
}

tn_status tni_composite__init_eye_(const void *args, tn_tensor **rets) {
    const tn__init_eye__args *a = args;
    return given_back(tn_init_eye(tni_t(a->self)), a->self, rets);
}

tn_status tni_composite__init_dirac_(const void *args, tn_tensor **rets) {
    const tn__init_dirac__args *a = args;
    return given_back(tn_init_dirac(tni_t(a->self), a->groups), a->self, rets);
}

tn_status tni_composite__init_sparse_(const void *args, tn_tensor **rets) {
    const tn__init_sparse__args *a = args;
    return given_back(tn_init_sparse(tni_t(a->self), a->sparsity, a->std, a->generator), a->self,
                      rets);
}
