/* clip.c: norms of lists of tensors, and scaling them. */
#include <math.h>

#include <tenon/args_optim.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_optim.h>
#include <tenon/optim.h>

#include "multi_priv.h"
#include "op_optim.h"

static tni_multi of_one_list(const char *op, tn_views tensors, bool written) {
    tni_multi m = {.op = op, .role = {{"tensors", tensors, written, false}}, .roles = 1};
    return m;
}

/* Norms of runs of like tensors, put together in the order of the list. */
static tn_status norms(tn_views tensors, double p, tn_tensor **ret) {
    tni_multi m = of_one_list("norms", tensors, false);
    tn_tensor *part = NULL, *sum = NULL;
    if (tensors.n == 0) return tn_fail(TN_E_VALUE, 0, "_norms(): the list of tensors is empty");
    if (p != 1.0 && p != 2.0 && !isinf(p))
        return tn_fail(TN_E_UNSUPPORTED, 1, "_norms(): p must be 1, 2 or inf, not %g", p);
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        end = tni_multi_run_end(&m, i);
        if ((st = tn__norms_step(tni_multi_slice(&m, 0, i, end), p, &part))) break;
        if (sum) {
            tn_tensor *both[2] = {sum, part}, *joined = NULL;
            st = tn_cat((tn_tensors){both, 2}, 0, &joined);
            tn_tensor_unref(&part);
            tn_tensor_unref(&sum);
            sum = joined;
        } else {
            sum = part;
            part = NULL;
        }
    }
    st = tni_multi_end(&m, st);
    if (st == TN_OK)
        *ret = sum;
    else
        tn_tensor_unref(&sum);
    return st;
}

/* Copies one number to where t is. */
static tn_status bring(tn_tensor *number, int32_t dtype, const tn_view *t, tn_tensor **ret) {
    int64_t device = (int64_t)tn_view_device(t) << 8 | tn_view_index(t);
    return tn__to_copy(number, dtype, device, 0, TN_FORMAT_CONTIGUOUS, ret);
}

/* The factor stays where it is, so that nobody waits for it. */
static tn_status scale(tn_views tensors, tn_tensor *factor) {
    tni_multi m = of_one_list("scale", tensors, true);
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        tn_tensor *there = NULL;
        end = tni_multi_run_end(&m, i);
        st = bring(factor, TN_F64, tensors.v[i], &there);
        if (st == TN_OK) st = tn__scale_step(tni_multi_slice(&m, 0, i, end), there);
        tn_tensor_unref(&there);
    }
    return tni_multi_end(&m, st);
}

tn_status tn_clip_norm(tn_tensors tensors, double max_norm, double *ret_norm) {
    tn_views views = tni_multi_views(tensors);
    tn_scalar_box box;
    tn_tensor *each = NULL, *here = NULL;
    double sum = 0.0;
    tn_status st = TN_OK;
    if (tensors.n > 0) {
        if ((st = norms(views, 2.0, &each))) goto out;
        if ((st = tn__to_copy(each, TN_F64, 0, 0, TN_FORMAT_CONTIGUOUS, &here))) goto out;
        const double *x = tn_tensor_view(here)->data;
        for (int64_t i = 0; i < tensors.n; i++) sum += x[i] * x[i];
    }
    double norm = sqrt(sum), factor = max_norm / (norm + 1e-6);
    /* Written so that a norm that is not a number makes the gradients so, too. */
    tn_scalar number = tn_scalar_float(factor > 1.0 ? 1.0 : factor);
    if ((st = scale(views, tn_scalar_box_init(&box, number)))) goto out;
    if (ret_norm) *ret_norm = norm;
out:
    tn_tensor_unref(&each);
    tn_tensor_unref(&here);
    return st;
}

tn_status tni_composite__norms(const void *args, tn_tensor **rets) {
    const tn__norms_args *a = args;
    return norms(a->tensors, a->p, rets);
}

tn_status tni_composite__scale_(const void *args, tn_tensor **rets) {
    const tn__scale__args *a = args;
    (void)rets;
    if (a->factor->numel != 1)
        return tn_fail(TN_E_SHAPE, 1, "_scale_(): the factor must have one element, not %lld",
                       (long long)a->factor->numel);
    return scale(a->tensors, tni_t(a->factor));
}

static tn_status check_found(const tn_view *found, const tn_view *tensor) {
    bool fits = found->numel == 1 && tn_view_dtype(found) == TN_F32 &&
                !((found->word ^ tensor->word) & (TN_W_DEVICE | TN_W_INDEX));
    return fits ? TN_OK
                : tn_fail(TN_E_VALUE, 1,
                          "_unscale_(): found must be one number of float32 on the "
                          "device of the tensors");
}

tn_status tni_composite__unscale_(const void *args, tn_tensor **rets) {
    const tn__unscale__args *a = args;
    tni_multi m = of_one_list("unscale", a->tensors, true);
    tn_status st = tni_multi_begin(&m);
    (void)rets;
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        end = tni_multi_run_end(&m, i);
        st = tn__unscale_step(tni_multi_slice(&m, 0, i, end), tni_t(a->found), a->factor);
    }
    return tni_multi_end(&m, st);
}

/* Half precision sums up to float. */
tn_status tni_infer__norms_step(tn_infer *inf, const void *args) {
    const tn__norms_step_args *a = args;
    tni_multi m = {.role = {{"tensors", a->tensors, false, false}}, .roles = 1};
    TN_TRY(tni_multi_infer(inf, &m));
    int32_t dtype = inf->compute;
    inf->out[0].dtype = dtype == TN_F64 ? TN_F64 : TN_F32;
    inf->out[0].ndim = 1;
    inf->out[0].shape[0] = a->tensors.n;
    return TN_OK;
}

tn_status tni_infer__scale_step(tn_infer *inf, const void *args) {
    const tn__scale_step_args *a = args;
    tni_multi m = {.role = {{"tensors", a->tensors, true, false}}, .roles = 1};
    TN_TRY(tni_multi_infer(inf, &m));
    if (a->factor->numel != 1 || tn_view_dtype(a->factor) != TN_F64)
        return tn_fail(TN_E_DTYPE, 1, "_scale_step(): the factor must be one number of float64");
    return TN_OK;
}

tn_status tni_infer__unscale_step(tn_infer *inf, const void *args) {
    const tn__unscale_step_args *a = args;
    tni_multi m = {.role = {{"tensors", a->tensors, true, false}}, .roles = 1};
    TN_TRY(tni_multi_infer(inf, &m));
    return check_found(a->found, a->tensors.v[0]);
}
