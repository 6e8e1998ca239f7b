/* vision.c: images looked at through a grid: shape rules, grids of affine maps; pooling over windows that are
 * drawn.
 * The messages are PyTorch's. */
#include <string.h>

#include <tenon/args_vision.h>
#include <tenon/ops_index.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_vision.h>

#include "nn_priv.h"
#include "op_vision.h"

/* ---- Through a grid ----------------------------------------------------------------------------*/

/* image: (N, C, ...), grid: (N, ..., dimensions). NULL images are of the sizes given elsewhere. */
static tn_status check_grid(const tn_infer *inf, const tn_view *x, const tn_view *grid,
                            int64_t mode, int64_t padding) {
    int32_t spatial = x->ndim - 2;
    if (tn_view_dtype(x) != tn_view_dtype(grid))
        return tn_fail(TN_E_STATE, nn_arg(inf, "grid"),
                       "grid_sampler(): expected input and grid to have same dtype, but input has "
                       "%s and grid has %s",
                       tni_type_text(tn_view_dtype(x)), tni_type_text(tn_view_dtype(grid)));
    if ((spatial != 2 && spatial != 3) || grid->ndim != x->ndim)
        return tn_fail(TN_E_STATE, 0,
                       "grid_sampler(): expected 4D or 5D input and grid with same number of "
                       "dimensions, but got input with sizes %s and grid with sizes %s",
                       tni_shape_text_of(x), tni_shape_text_of(grid));
    if (x->shape[0] != grid->shape[0])
        return tn_fail(TN_E_STATE, nn_arg(inf, "grid"),
                       "grid_sampler(): expected grid and input to have same batch size, but got "
                       "input with sizes %s and grid with sizes %s",
                       tni_shape_text_of(x), tni_shape_text_of(grid));
    if (grid->shape[grid->ndim - 1] != spatial)
        return tn_fail(TN_E_STATE, nn_arg(inf, "grid"),
                       "grid_sampler(): expected grid to have size %d in last dimension, but got "
                       "grid with sizes %s",
                       (int)spatial, tni_shape_text_of(grid));
    for (int32_t d = 2; d < x->ndim; d++)
        if (x->shape[d] < 1)
            return tn_fail(
                TN_E_STATE, 0,
                "grid_sampler(): expected input to have non-empty spatial dimensions, but "
                "input has sizes %s with dimension %d being empty",
                tni_shape_text_of(x), (int)d);
    if (mode == TN_GRID_SAMPLE_BICUBIC && spatial == 3)
        return tn_fail(TN_E_STATE, -1,
                       "grid_sampler(): bicubic interpolation only supports 4D input");
    if (mode < 0 || mode > TN_GRID_SAMPLE_BICUBIC || padding < 0 ||
        padding > TN_GRID_SAMPLE_REFLECTION)
        return tn_fail(TN_E_VALUE, -1,
                       "grid_sampler(): interpolation_mode and padding_mode are 0, 1 or 2");
    return TN_OK;
}

/* `along` has the grid's shape, or is not there. */
static tn_status check_along(const tn_infer *inf, const tn_view *grid, const tn_view *along) {
    const int32_t arg = nn_arg(inf, "along");
    return tni_infer_expect(inf, arg, along, grid->ndim, grid->shape, tn_view_dtype(grid));
}

/* The shape that is seen of an image with so many channels. */
static void seen_shape(const tn_view *grid, int64_t channels, int64_t *ret) {
    ret[0] = grid->shape[0];
    ret[1] = channels;
    for (int32_t d = 2; d < grid->ndim; d++) ret[d] = grid->shape[d - 1];
}

tn_status tni_infer__grid_sample(tn_infer *inf, const void *args) {
    const tn__grid_sample_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_grid(inf, a->input, a->grid, a->mode, a->padding));
    TN_TRY(check_along(inf, a->grid, a->along));
    seen_shape(a->grid, a->input->shape[1], shape);
    return tni_infer_set(inf, 0, a->grid->ndim, shape);
}

tn_status tni_infer__grid_sample_input(tn_infer *inf, const void *args) {
    const tn__grid_sample_input_args *a = args;
    int64_t shape[TN_MAX_DIMS], sizes[TN_MAX_DIMS];
    if (a->input_size.n < 4 || a->input_size.n > 5 || a->grid->ndim != a->input_size.n)
        return tn_fail(TN_E_SHAPE, 3,
                       "grid_sampler(): input_size has 4 or 5 numbers, as many as grid");
    memcpy(sizes, a->input_size.v, (size_t)a->input_size.n * sizeof *sizes);
    TN_TRY(tni_infer_set(inf, 0, (int32_t)a->input_size.n, sizes));
    tn_view image = *a->grad;
    image.ndim = (int32_t)a->input_size.n;
    image.shape = sizes;
    TN_TRY(check_grid(inf, &image, a->grid, a->mode, a->padding));
    TN_TRY(check_along(inf, a->grid, a->along));
    seen_shape(a->grid, sizes[1], shape);
    return tni_infer_expect(inf, 0, a->grad, a->grid->ndim, shape, tn_view_dtype(a->grid));
}

static tn_status grid_gradient(tn_infer *inf, const tn_view *grad, const tn_view *x,
                               const tn_view *grid, int64_t mode, int64_t padding) {
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_grid(inf, x, grid, mode, padding));
    seen_shape(grid, x->shape[1], shape);
    TN_TRY(tni_infer_expect(inf, 0, grad, grid->ndim, shape, tn_view_dtype(grid)));
    return tni_infer_set(inf, 0, grid->ndim, grid->shape);
}

tn_status tni_infer__grid_sample_grid(tn_infer *inf, const void *args) {
    const tn__grid_sample_grid_args *a = args;
    return grid_gradient(inf, a->grad, a->input, a->grid, a->mode, a->padding);
}

tn_status tni_infer__grid_sample_curve(tn_infer *inf, const void *args) {
    const tn__grid_sample_curve_args *a = args;
    TN_TRY(check_along(inf, a->grid, a->along));
    return grid_gradient(inf, a->grad, a->input, a->grid, a->mode, a->padding);
}

/* ---- Grids -------------------------------------------------------------------------------------*/

/* n places from -1 to 1; without corners the middles of n pieces of that, each rounded as PyTorch's:
 * an image at its own places is read at whole numbers, where the gradient is another on either side.
 * One place is 0. */
static tn_tensor *places(tni_scope *s, const tn_tensor *like, int64_t n, bool corners) {
    tn_scalar_box box;
    tn_tensor *r = NULL;
    double end = n < 2 ? 0 : 1;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_linspace(tn_scalar_float(-end), tn_scalar_float(end), n,
                               tn_tensor_dtype(like), tni_device_of(like), &r);
    r = scope_take(s, st, r);
    if (corners || n < 2) return r;
    r = scope_mul_number(s, r, (double)(n - 1));
    return scope_true_divide(s, r, tn_scalar_box_init(&box, tn_scalar_float((double)n)));
}

tn_status tni_composite_affine_grid_generator(const void *args, tn_tensor **rets) {
    const tn_affine_grid_generator_args *a = args;
    tni_scope s = {0};
    tn_tensor *theta = tni_t(a->theta), *part[4], *r = NULL;
    int64_t spatial = a->size.n - 2, shape[TN_MAX_DIMS];
    if (spatial != 2 && spatial != 3)
        return tn_fail(TN_E_STATE, 1,
                       "AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.");
    if (a->theta->ndim != 3 || a->theta->shape[0] != a->size.v[0] ||
        a->theta->shape[1] != spatial || a->theta->shape[2] != spatial + 1)
        return tn_fail(
            TN_E_STATE, 0,
            "Expected a batch of %lldD affine matrices of shape Nx%lldx%lld for size %s. "
            "Got %s.",
            (long long)spatial, (long long)spatial, (long long)spatial + 1,
            tni_shape_text((int32_t)a->size.n, a->size.v), tni_shape_text_of(a->theta));
    for (int64_t d = 0; d < a->size.n; d++)
        if (a->size.v[d] < 1)
            return tn_fail(TN_E_VALUE, 1, "Expected non-zero, positive output size. Got %s",
                           tni_shape_text((int32_t)a->size.n, a->size.v));
    /* (.., x, y, 1) of every place, x along the last dimension. */
    for (int64_t i = 0; i <= spatial; i++) {
        int64_t along[TN_MAX_DIMS] = {1, 1, 1, 1}, d = spatial - 1 - i;
        if (d >= 0) along[d] = a->size.v[2 + d];
        part[i] = places(&s, theta, d >= 0 ? a->size.v[2 + d] : 1, a->align_corners != 0);
        if (d < 0) part[i] = scope_add_number(&s, part[i], 1);
        part[i] = scope_reshape(&s, part[i], tn_ints_of(along, spatial));
        part[i] = scope_expand(&s, part[i], tn_ints_of(a->size.v + 2, spatial));
    }
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    tn_status st = tn_stack((tn_tensors){part, spatial + 1}, -1, &r);
    r = scope_reshape(&s, scope_take(&s, st, r), TN_INTS(-1, spatial + 1));
    r = scope_matmul(&s, r, scope_transpose(&s, theta, 1, 2));
    shape[0] = a->size.v[0];
    memcpy(shape + 1, a->size.v + 2, (size_t)spatial * sizeof *shape);
    shape[1 + spatial] = spatial;
    return scope_finish(&s, scope_reshape(&s, r, tn_ints_of(shape, spatial + 2)), rets);
}

/* ---- Pooling over windows that are drawn -------------------------------------------------------*/

typedef struct drawn {
    const char *name;
    const tn_view *input, *samples;
    tn_ints kernel, size;
    int32_t axes;
} drawn;

static tn_status check_drawn(const drawn *p) {
    const tn_view *x = p->input, *r = p->samples;
    bool fits = x->ndim == p->axes + 1 || x->ndim == p->axes + 2;
    for (int32_t d = x->ndim - p->axes - 1; fits && d < x->ndim; d++) fits = x->shape[d] > 0;
    if (!fits)
        return tn_fail(TN_E_STATE, 0,
                       "%s(): Expected %dD or %dD tensor with non-zero sizes behind the batch, but "
                       "got: %s",
                       p->name, (int)p->axes + 1, (int)p->axes + 2, tni_shape_text_of(x));
    TN_TRY(nn_check_list(p->kernel, p->axes, 1, 1, "kernel_size"));
    TN_TRY(nn_check_list(p->size, p->axes, 1, 2, "output_size"));
    for (int32_t a = 0; a < p->axes; a++)
        if (p->size.v[a] + p->kernel.v[a] - 1 > x->shape[x->ndim - p->axes + a])
            return tn_fail(
                TN_E_STATE, 1, "%s(): pool size (%lld) too large relative to input size (%lld)",
                p->name, (long long)p->kernel.v[a], (long long)x->shape[x->ndim - p->axes + a]);
    int64_t batch = x->ndim == p->axes + 2 ? x->shape[0] : 1;
    if (r->ndim != 3 || r->shape[0] < batch || r->shape[1] != x->shape[x->ndim - p->axes - 1] ||
        r->shape[2] != p->axes)
        return tn_fail(TN_E_STATE, 3,
                       "Expect _random_samples of (batch, channels, %d) numbers, but got: %s",
                       (int)p->axes, tni_shape_text_of(r));
    if (tn_view_dtype(r) != tn_view_dtype(x))
        return tn_fail(TN_E_STATE, 3, "Expect _random_samples to have the same dtype as input");
    return TN_OK;
}

/* First elements of the windows along axis a, (planes, windows): int((i + u) alpha) - int(u alpha), the
 * last one at the end. PyTorch draws for the last axis of a plane first. */
static tn_status begins(const drawn *p, int32_t a, int64_t planes, tn_tensor **ret) {
    tni_scope s = {0};
    int64_t in = p->input->shape[p->input->ndim - p->axes + a], n = p->size.v[a];
    int64_t room = in - p->kernel.v[a], dtype = tn_view_dtype(p->samples);
    tn_tensor *u = tni_t(p->samples), *i = NULL, *part[2] = {NULL, NULL}, *r = NULL;
    int64_t device = tni_device_of(u);
    tn_status st = tn_full(TN_INTS(planes, 1), tn_scalar_int(room), TN_I64, device, &r);
    part[1] = scope_take(&s, st, r);
    if (n == 1 || s.st != TN_OK) return scope_finish(&s, part[1], ret);
    st = tn_arange(tn_scalar_int(n - 1), dtype, device, &i);
    i = scope_take(&s, st, i);
    u = scope_narrow(&s, u, 2, p->axes == 2 ? 1 - a : a, 1);
    u = scope_narrow(&s, scope_reshape(&s, u, TN_INTS(-1, 1)), 0, 0, planes);
    double alpha = (double)room / (double)(n - 1);
    tn_tensor *place = scope_mul_number(&s, scope_add(&s, u, i), alpha);
    part[0] = scope_sub(&s, scope_convert(&s, place, TN_I64),
                        scope_convert(&s, scope_mul_number(&s, u, alpha), TN_I64));
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    st = tn_cat((tn_tensors){part, 2}, 1, &r);
    return scope_finish(&s, scope_take(&s, st, r), ret);
}

static tn_status pooled(const drawn *p, tn_tensor **rets) {
    tni_scope s = {0};
    const tn_view *x = p->input;
    int32_t lead = x->ndim - p->axes;
    int64_t planes = 1, windows = 1, elements = 1, plane = 1, shape[TN_MAX_DIMS];
    tn_tensor *at = NULL, *r = NULL, *best = NULL, *which = NULL;
    TN_TRY(check_drawn(p));
    for (int32_t d = 0; d < lead; d++) planes *= shape[d] = x->shape[d];
    /* Places of the elements of windows: (planes, windows, kernels), axis by axis. */
    for (int32_t a = 0; a < p->axes && s.st == TN_OK; a++) {
        int64_t in = x->shape[lead + a];
        tn_tensor *first = NULL, *within = NULL;
        tn_status st = begins(p, a, planes, &first);
        first = scope_take(&s, st, first);
        if (s.st != TN_OK) break;
        st = tn_arange(tn_scalar_int(p->kernel.v[a]), TN_I64, tni_device_of(first), &within);
        within = scope_take(&s, st, within);
        tn_tensor *here = scope_add(&s, scope_unsqueeze(&s, first, 2), within);
        plane *= in;
        shape[lead + a] = p->size.v[a];
        if (at) {
            here = scope_reshape(&s, here, TN_INTS(planes, 1, p->size.v[a], 1, p->kernel.v[a]));
            at = scope_reshape(&s, at, TN_INTS(planes, windows, 1, elements, 1));
            tn_scalar_box size;
            at = scope_mul(&s, at, tn_scalar_box_init(&size, tn_scalar_int(in)));
            here = scope_add(&s, at, here);
        }
        windows *= p->size.v[a];
        elements *= p->kernel.v[a];
        at = scope_reshape(&s, here, TN_INTS(planes, windows, elements));
    }
    tn_tensor *flat = scope_reshape(&s, tni_t(x), TN_INTS(planes, plane));
    at = scope_reshape(&s, at, TN_INTS(planes, windows * elements));
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    tn_status st = tn_gather(flat, 1, at, 0, &r);
    r = scope_reshape(&s, scope_take(&s, st, r), TN_INTS(planes, windows, elements));
    if (s.st != TN_OK) return scope_finish(&s, NULL, NULL);
    st = tn_max_dim(r, 2, 0, &best, &which);
    best = scope_take(&s, st, best);
    which = st == TN_OK ? scope_take(&s, st, which) : NULL;
    at = scope_reshape(&s, at, TN_INTS(planes, windows, elements));
    which = scope_unsqueeze(&s, which, 2);
    which = SCOPE(&s, tn_gather(at, 2, which, 0, scope_slot(&s)));
    which = scope_reshape(&s, which, tn_ints_of(shape, x->ndim));
    best = scope_reshape(&s, best, tn_ints_of(shape, x->ndim));
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(which);
    return scope_finish(&s, best, rets);
}

tn_status tni_composite_fractional_max_pool2d(const void *args, tn_tensor **rets) {
    const tn_fractional_max_pool2d_args *a = args;
    const drawn p = {"fractional_max_pool2d", a->input,       a->_random_samples,
                     a->kernel_size,          a->output_size, 2};
    return pooled(&p, rets);
}

tn_status tni_composite_fractional_max_pool3d(const void *args, tn_tensor **rets) {
    const tn_fractional_max_pool3d_args *a = args;
    const drawn p = {"fractional_max_pool3d", a->input,       a->_random_samples,
                     a->kernel_size,          a->output_size, 3};
    return pooled(&p, rets);
}
