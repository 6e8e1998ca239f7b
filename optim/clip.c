/* clip.c: norms of lists of tensors, and scaling them. */
#include <math.h>

#include <tenon/args_optim.h>
#include <tenon/device_ext.h>
#include <tenon/ops.h>
#include <tenon/optim.h>

#include "multi_priv.h"

tn_status tni_composite__norms(const void *args, tn_tensor **rets);
tn_status tni_composite__scale_(const void *args, tn_tensor **rets);
tn_status tni_infer__norms_step(tn_infer *inf, const void *args);
tn_status tni_infer__scale_step(tn_infer *inf, const void *args);

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

static tn_status scale(tn_views tensors, double factor) {
    tni_multi m = of_one_list("scale", tensors, true);
    if (tensors.n == 0 || factor == 1.0) return TN_OK;
    tn_status st = tni_multi_begin(&m);
    for (int64_t i = 0, end; st == TN_OK && i < m.n; i = end) {
        end = tni_multi_run_end(&m, i);
        st = tn__scale_step(tni_multi_slice(&m, 0, i, end), factor);
    }
    return tni_multi_end(&m, st);
}

tn_status tn_clip_norm(tn_tensors tensors, double max_norm, double *ret_norm) {
    tn_views views = tni_multi_views(tensors);
    tn_tensor *each = NULL;
    double sum = 0.0;
    tn_status st = TN_OK;
    if (tensors.n > 0) {
        if ((st = norms(views, 2.0, &each))) goto out;
        for (int64_t i = 0; i < tensors.n; i++) {
            const tn_view *v = tn_tensor_view(each);
            double x = tn_view_dtype(v) == TN_F64 ? ((const double *)v->data)[i]
                                                  : (double)((const float *)v->data)[i];
            sum += x * x;
        }
    }
    double norm = sqrt(sum), factor = max_norm / (norm + 1e-6);
    /* Written so that a norm that is not a number makes the gradients so, too. */
    if ((st = scale(views, factor > 1.0 ? 1.0 : factor))) goto out;
    if (ret_norm) *ret_norm = norm;
out:
    tn_tensor_unref(&each);
    return st;
}

tn_status tni_composite__norms(const void *args, tn_tensor **rets) {
    const tn__norms_args *a = args;
    return norms(a->tensors, a->p, rets);
}

/* One by one, with the factor where it is: its value is not there while a graph is captured. */
static tn_status scale_by(tn_views tensors, tn_tensor *factor) {
    for (int64_t i = 0; i < tensors.n; i++)
        if (tensors.v[i]) TN_TRY(tn_mul_(tni_t(tensors.v[i]), factor));
    return TN_OK;
}

tn_status tni_composite__scale_(const void *args, tn_tensor **rets) {
    const tn__scale__args *a = args;
    tn_scalar factor;
    (void)rets;
    if (tn_graph_is_capturing()) return scale_by(a->tensors, tni_t(a->factor));
    TN_TRY(tn_tensor_item(tni_t(a->factor), &factor));
    return scale(a->tensors, factor.re);
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
    return tni_multi_infer(inf, &m);
}
