/* whole.c: convolutions of whole numbers, which no kernel of floats serves: windows of the input as a
 * view, and the integer product of matrices. Sums wrap in the dtype, as PyTorch's do. */
#include <tenon/args_conv.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_index.h>

#include "nn_priv.h"
#include "op_conv.h"

static tn_tensor *padded(tni_scope *s, tn_tensor *x, const int64_t *pad, int64_t n) {
    return SCOPE(s, tn_constant_pad_nd(x, tn_ints_of(pad, n), tn_scalar_int(0), scope_slot(s)));
}

/* x (N, C, sizes) as (N, C, outputs, kernel): what each output sees. */
static tn_tensor *windows(tni_scope *s, tn_tensor *x, const int64_t *kernel, tn_ints stride,
                          tn_ints dilation) {
    int64_t ndim = x->v.ndim;
    for (int64_t d = 2; d < ndim; d++) {
        int64_t reach = dilation.v[d - 2] * (kernel[d - 2] - 1) + 1;
        x = SCOPE(s, tn_unfold(x, d, reach, stride.v[d - 2], scope_slot(s)));
        x = SCOPE(s, tn_slice(x, -1, tn_no_int(), tn_no_int(), dilation.v[d - 2], scope_slot(s)));
    }
    return x;
}

/* The product of windows (N, C, outputs, kernel) with weights (O, C / groups, kernel). */
static tn_tensor *product(tni_scope *s, tn_tensor *seen, tn_tensor *w, int64_t groups) {
    if (s->st != TN_OK) return NULL;
    int64_t n = seen->v.shape[0], c = seen->v.shape[1], places = 1, taps = 1;
    int64_t shape[TN_MAX_DIMS] = {n, w->v.shape[0]};
    int32_t sides = w->v.ndim - 2;
    for (int32_t d = 0; d < sides; d++) {
        shape[d + 2] = seen->v.shape[d + 2];
        places *= shape[d + 2];
        taps *= w->v.shape[d + 2];
    }
    int64_t each = c / groups, made = w->v.shape[0] / groups;
    tn_tensor *rows = scope_reshape(s, seen, TN_INTS(n, groups, each, places, taps));
    rows = scope_permute(s, rows, TN_INTS(0, 1, 3, 2, 4));
    rows = scope_reshape(s, rows, TN_INTS(n, groups, places, each * taps));
    tn_tensor *columns = scope_reshape(s, w, TN_INTS(groups, made, each * taps));
    tn_tensor *y = scope_matmul(s, rows, scope_transpose(s, columns, 1, 2));
    return scope_reshape(s, scope_transpose(s, y, 2, 3), tn_ints_of(shape, sides + 2));
}

static tn_tensor *with_bias(tni_scope *s, tn_tensor *y, const tn_view *bias) {
    int64_t shape[TN_MAX_DIMS];
    if (!bias || s->st != TN_OK) return y;
    for (int32_t d = 0; d < y->v.ndim; d++) shape[d] = d == 1 ? bias->numel : 1;
    return scope_add(s, y, scope_reshape(s, tni_t(bias), tn_ints_of(shape, y->v.ndim)));
}

tn_tensor *nn_conv_whole(tni_scope *s, const tn__conv_args *a) {
    tn_infer inf = {.op = &tni_op__conv};
    int64_t pad[6], n = a->input->ndim - 2;
    if (s->st == TN_OK) s->st = tni_infer__conv(&inf, a);
    if (s->st != TN_OK) return NULL;
    for (int64_t d = 0; d < n; d++)
        pad[2 * (n - 1 - d)] = pad[2 * (n - 1 - d) + 1] = a->padding.v[d];
    tn_tensor *x = padded(s, tni_t(a->input), pad, 2 * n);
    tn_tensor *seen = windows(s, x, a->weight->shape + 2, a->stride, a->dilation);
    return with_bias(s, product(s, seen, tni_t(a->weight), a->groups), a->bias);
}

/* The way back: zeros between the elements of grad, and windows of the turned weights. */
tn_tensor *nn_conv_whole_back(tni_scope *s, const tn__conv_backward_input_args *a) {
    tn_infer inf = {.op = &tni_op__conv_backward_input};
    int64_t n = a->grad->ndim - 2, size[5], pad[6], dims[3], parts[6], joined[5];
    const int64_t ones[3] = {1, 1, 1};
    tn_tensor *g = tni_t(a->grad), *w = tni_t(a->weight), *wide, *holes;
    if (s->st == TN_OK) s->st = tni_infer__conv_backward_input(&inf, a);
    if (s->st != TN_OK) return NULL;
    parts[0] = a->groups;
    parts[1] = w->v.shape[0] / a->groups;
    parts[2] = w->v.shape[1];
    joined[0] = a->groups * w->v.shape[1];
    joined[1] = parts[1];
    for (int64_t d = 0; d < n; d++) {
        int64_t k = w->v.shape[d + 2], reach = a->dilation.v[d] * (k - 1), at = 2 * (n - 1 - d);
        size[d + 2] = g->v.shape[d + 2] > 0 ? (g->v.shape[d + 2] - 1) * a->stride.v[d] + 1 : 0;
        pad[at] = reach - a->padding.v[d];
        pad[at + 1] = a->input_size.v[d + 2] + reach - pad[at] - size[d + 2];
        dims[d] = d + 2;
        parts[d + 3] = joined[d + 2] = k;
    }
    size[0] = g->v.shape[0];
    size[1] = g->v.shape[1];
    wide = SCOPE(s, tn_new_zeros(g, tn_ints_of(size, n + 2), -1, -1, scope_slot(s)));
    holes = wide;
    for (int64_t d = 0; d < n; d++)
        holes = SCOPE(
            s, tn_slice(holes, d + 2, tn_no_int(), tn_no_int(), a->stride.v[d], scope_slot(s)));
    (void)SCOPE(s, tn_copy_(holes, g, 0, scope_slot(s)));
    w = scope_transpose(s, scope_reshape(s, w, tn_ints_of(parts, n + 3)), 1, 2);
    w = scope_reshape(s, w, tn_ints_of(joined, n + 2));
    w = SCOPE(s, tn_flip(w, tn_ints_of(dims, n), scope_slot(s)));
    tn_tensor *seen =
        windows(s, padded(s, wide, pad, 2 * n), joined + 2, tn_ints_of(ones, n), a->dilation);
    return with_bias(s, product(s, seen, w, a->groups), a->bias);
}
