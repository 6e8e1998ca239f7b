/* linear.c: linear maps that end in an activation, and their gradients, out of simpler operators: for
 * devices that do not take them in one step. */
#include "op_ids.h"
#include "scope_priv.h"

tn_status tni_composite__addmm_activation(const void *args, tn_tensor **rets);
tn_status tni_composite__linear_relu(const void *args, tn_tensor **rets);
tn_status tni_composite__linear_gelu(const void *args, tn_tensor **rets);
tn_status tni_composite__linear_gelu_linear(const void *args, tn_tensor **rets);
tn_status tni_composite__linear_gelu_backward(const void *args, tn_tensor **rets);
tn_status tni_composite__linear_backward_weight(const void *args, tn_tensor **rets);

static tn_tensor *linear(tni_scope *s, tn_tensor *x, const tn_view *w, const tn_view *bias) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_linear(x, tni_t(w), tni_t(bias), &r);
    return scope_take(s, st, r);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

tn_status tni_composite__linear_relu(const void *args, tn_tensor **rets) {
    const tn__linear_relu_args *a = args;
    tni_scope s = {0};
    tn_tensor *y = linear(&s, tni_t(a->input), a->weight, a->bias);
    return scope_finish(&s, scope_unary(&s, tn_relu, y), rets);
}

tn_status tni_composite__linear_gelu(const void *args, tn_tensor **rets) {
    const tn__linear_gelu_args *a = args;
    tni_scope s = {0};
    tn_tensor *pre = linear(&s, tni_t(a->input), a->weight, a->bias);
    tn_tensor *y = scope_unary(&s, tn__gelu_tanh, pre);
    if (a->keep && s.st == TN_OK) rets[1] = tn_tensor_ref(pre);
    return scope_finish(&s, y, rets);
}

tn_status tni_composite__linear_gelu_linear(const void *args, tn_tensor **rets) {
    const tn__linear_gelu_linear_args *a = args;
    tni_scope s = {0};
    tn_tensor *hidden = NULL, *pre = NULL;
    tn_status st =
        tn__linear_gelu(tni_t(a->input), tni_t(a->weight1), tni_t(a->bias1), 1, &hidden, &pre);
    hidden = scope_take(&s, st, hidden);
    if (s.st == TN_OK) pre = scope_take(&s, st, pre);
    tn_tensor *y = linear(&s, hidden, a->weight2, a->bias2);
    if (s.st == TN_OK) {
        rets[1] = tn_tensor_ref(hidden);
        rets[2] = tn_tensor_ref(pre);
    }
    return scope_finish(&s, y, rets);
}

static bool is_one(tn_scalar s) { return s.re == 1 && s.im == 0; }

/* Whether it is linear() of mat1 with an activation for which the device has a kernel. */
static bool is_linear(const tn__addmm_activation_args *a) {
    const tn_view *x = a->mat1, *w = a->mat2, *bias = a->input;
    int op = a->use_gelu ? TNI_OP__linear_gelu : TNI_OP__linear_relu;
    return is_one(a->alpha) && is_one(a->beta) && w->ndim == 2 && x->ndim == 2 && bias->ndim == 1 &&
           bias->shape[0] == w->shape[1] &&
           tni_kernel_find(&tni_ops[op], tn_view_device(x), tn_view_dtype(x));
}

/* PyTorch's gelu is the exact one here on the CPU and the approximation on CUDA, where the libraries
 * have no other. */
static const char *approximation_on(const tn_view *x) {
    const int32_t dlpack_cuda = 2;
    return x->dl_device == dlpack_cuda ? "tanh" : "none";
}

tn_status tni_composite__addmm_activation(const void *args, tn_tensor **rets) {
    const tn__addmm_activation_args *a = args;
    tni_scope s = {0};
    tn_tensor *bias = tni_t(a->input), *x = tni_t(a->mat1), *y = NULL, *r = NULL, *pre = NULL;
    const char *how = approximation_on(a->mat1);
    if (is_linear(a) && (!a->use_gelu || strcmp(how, "tanh") == 0)) {
        tn_tensor *w = scope_transpose(&s, tni_t(a->mat2), 0, 1);
        bool keep = tn_grad_enabled() && ((bias->v.word | x->v.word | a->mat2->word) & TN_W_GRAD);
        if (s.st == TN_OK)
            s.st = a->use_gelu ? tn__linear_gelu(x, w, bias, keep, &r, &pre)
                               : tn__linear_relu(x, w, bias, &r);
        tn_tensor_unref(&pre);
    } else {
        s.st = tn_addmm(bias, x, tni_t(a->mat2), a->beta, a->alpha, &y);
        y = scope_take(&s, s.st, y);
        if (s.st == TN_OK) s.st = a->use_gelu ? tn_gelu(y, how, &r) : tn_relu(y, &r);
    }
    r = scope_take(&s, s.st, r);
    return scope_finish(&s, r, rets);
}

/* ---- Gradients ---------------------------------------------------------------------------------*/

static tn_tensor *sum_rows(tni_scope *s, tn_tensor *t) {
    return scope_sum(s, scope_rows(s, t), TN_INTS(0), 0);
}

tn_status tni_composite__linear_gelu_backward(const void *args, tn_tensor **rets) {
    const tn__linear_gelu_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *gh = scope_matmul(&s, tni_t(a->grad), tni_t(a->next_weight));
    tn_tensor *g = scope_binary(&s, tn__gelu_tanh_backward, gh, tni_t(a->pre));
    tn_tensor *bias = sum_rows(&s, g);
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(bias);
    return scope_finish(&s, g, rets);
}

tn_status tni_composite__linear_backward_weight(const void *args, tn_tensor **rets) {
    const tn__linear_backward_weight_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = scope_transpose(&s, scope_rows(&s, tni_t(a->grad)), 0, 1);
    tn_tensor *weight = scope_binary(&s, tn_mm, g, scope_rows(&s, tni_t(a->input)));
    tn_tensor *bias = sum_rows(&s, tni_t(a->grad));
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(bias);
    return scope_finish(&s, weight, rets);
}
