/* nn_priv.h: what the files of layers and losses share. */
#ifndef TENON_NN_PRIV_H
#define TENON_NN_PRIV_H

#include <tenon/args_conv.h>

#include "infer_priv.h"
#include "scope_priv.h"

/* ---- Losses (loss.c) ---------------------------------------------------------------------------*/
enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

/* The number of 'none', 'mean' or 'sum'. */
tn_status tni_reduction_of(const char *text, int *ret);

/* ---- Shape rules (parts.c) ---------------------------------------------------------------------*/
/* Note [Sizes of windows]
 * Images, windows, strides, padding and dilation are at most 2^31 each, checked before they meet. A
 * padded image is then at most 3 * 2^31, the reach of a window at most 2^62 + 1, and every sum and
 * product of one axis is smaller than 2^63. Products over axes are left to tni_infer_set, which checks
 * them, and in kernels to room_mul. */
#define NN_SIZE_LIMIT (INT64_C(1) << 31)

/* The number of the argument of that name; -1, as of no argument: there is none. */
int32_t nn_arg(const tn_infer *inf, const char *name);
/* A list of n sizes, none below `least`. */
tn_status nn_check_list(tn_ints v, int64_t n, int64_t least, int32_t arg, const char *name);
/* The same of the argument of that name. */
tn_status nn_expect_list(const tn_infer *inf, tn_ints v, int64_t n, int64_t least,
                         const char *name);
/* The gradient of planes of another size: the sizes in front are those of `grad`. */
tn_status nn_infer_sized(tn_infer *inf, tn_ints size, const tn_view *grad);
/* x with its last two sizes replaced. */
tn_status nn_infer_resized(tn_infer *inf, const tn_view *x, tn_ints size);

/* A tensor that repeats one element may be larger than memory. */
static inline tn_status nn_check_sides(int64_t image, int64_t window) {
    if (image <= NN_SIZE_LIMIT && window <= NN_SIZE_LIMIT) return TN_OK;
    return tn_fail(TN_E_VALUE, 0, "sizes of images and windows must be at most 2^31");
}

/* What kernels keep sums and statistics in. */
static inline int32_t nn_wide_dtype(int32_t dtype) {
    return dtype == TN_F16 || dtype == TN_BF16 ? TN_F32 : dtype;
}

static inline tn_status nn_infer_set_as(tn_infer *inf, int i, int32_t dtype, int32_t ndim,
                                        const int64_t *shape) {
    inf->out[i].dtype = dtype;
    return tni_infer_set(inf, i, ndim, shape);
}

/* ---- Convolutions of whole numbers (whole.c) ---------------------------------------------------*/
tn_tensor *nn_conv_whole(tni_scope *s, const tn__conv_args *a);
tn_tensor *nn_conv_whole_back(tni_scope *s, const tn__conv_backward_input_args *a);

/* ---- Pieces of composites (parts.c) ------------------------------------------------------------*/
/* input where the condition holds, else a number. */
tn_tensor *scope_only_where(tni_scope *s, tn_tensor *condition, tn_tensor *input, tn_scalar other);
tn_tensor *scope_differs(tni_scope *s, tn_tensor *x, int64_t number);
/* exp(x - max(x)) along dim, and the maximum (may be NULL). */
tn_tensor *scope_shifted_exp(tni_scope *s, tn_tensor *x, int64_t dim, tn_tensor **ret_max);
/* log(sum(exp(x - max(x)))) along dim, which stays with size 1, and the maximum. Added up they are
 * logsumexp; x less one and then the other is log_softmax to the last places, x less their sum is
 * not: the sum of a large maximum and a small logarithm has lost the logarithm's last places. */
tn_tensor *scope_log_sum(tni_scope *s, tn_tensor *x, int64_t dim, tn_tensor **ret_max);
/* Ends a gradient: hands out those of n gradients that are wanted, in the order of the inputs. */
tn_status scope_give(tni_scope *s, tn_gctx *c, tn_tensor *const *grads, int n);

#endif
