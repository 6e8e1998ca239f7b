/* linear.c: linear maps that end in an activation, and their gradients, as one product each
 * (gemm_end.c). What it does not serve goes back to core, which takes the parts one by one.
 *
 * The library's relu makes 0 of NaN, so nothing but _addmm_activation calls it. It has no gradient here:
 * the library's mask lets gradients through where relu's argument is 0, and ours are 0 there.
 *
 * family: linear */
#include <tenon/args_nn.h>

#include "cublaslt.h"
#include "gemm.h"

/* NULL, or a vector of n elements that the library can read. */
static bool is_vector(const tn_view *v, int64_t n) {
    return !v || (v->ndim == 1 && v->shape[0] == n && (n == 1 || v->strides[0] == 1));
}

static bool is_packed(const tn_view *v) { return !v || tn_view_is_contiguous(v); }

static const void *data_of(const tn_view *v) { return v ? v->data : NULL; }

/* c = end(a @ b) of views, the dimensions in front of their last ones taken together; a or b turned. */
typedef struct operands {
    const tn_view *a, *b, *c;
    bool turn_a, turn_b;
} operands;

static tn_status multiply(const tn_call *call, const operands *o, const cuda_gemm_end *end) {
    cuda_matrix a, b, c;
    tn_status st = cuda_gemm_rows(call, o->c, &c);
    if (st == TN_OK) st = cuda_gemm_rows(call, o->a, &a);
    if (st == TN_OK) st = cuda_gemm_rows(call, o->b, &b);
    if (st != TN_OK) return st;
    if (o->turn_a) a = cuda_gemm_turned(&a);
    if (o->turn_b) b = cuda_gemm_turned(&b);
    return cuda_gemm_with_end(call, &a, &b, &c, end);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

/* out = end(input @ weight^T), where `pre` goes with `out`. */
static tn_status forward(const tn_call *call, const tn_view *input, const tn_view *weight,
                         const tn_view *bias, const tn_view *pre, const tn_view *out, int what) {
    const cuda_gemm_end end = {what, data_of(bias), data_of(pre)};
    if (out->numel == 0) return TN_OK;
    if (!is_vector(bias, weight->shape[0]) || !is_packed(out) || !is_packed(pre)) return TN_DECLINE;
    return multiply(call, &(operands){input, weight, out, false, true}, &end);
}

static tn_status linear_relu(const tn_call *call, const void *args) {
    const tn__linear_relu_args *a = args;
    int what = a->bias ? CUBLASLT_BIAS_RELU : CUBLASLT_RELU;
    return forward(call, a->input, a->weight, a->bias, NULL, a->out, what);
}

static tn_status linear_gelu(const tn_call *call, const void *args) {
    const tn__linear_gelu_args *a = args;
    int plain = a->bias ? CUBLASLT_BIAS_GELU : CUBLASLT_GELU;
    int kept = a->bias ? CUBLASLT_BIAS_KEPT_GELU : CUBLASLT_KEPT_GELU;
    return forward(call, a->input, a->weight, a->bias, a->pre, a->out, a->pre ? kept : plain);
}

/* ---- Gradients ---------------------------------------------------------------------------------*/

static tn_status linear_gelu_backward(const tn_call *call, const void *args) {
    const tn__linear_gelu_backward_args *a = args;
    const cuda_gemm_end end = {CUBLASLT_GELU_GRADIENT, a->grad_bias->data, a->pre->data};
    if (a->grad_pre->numel == 0 || !is_packed(a->grad_pre) || !is_packed(a->pre) ||
        !is_packed(a->grad_bias))
        return TN_DECLINE;
    return multiply(call, &(operands){a->grad, a->next_weight, a->grad_pre, false, false}, &end);
}

static tn_status linear_backward_weight(const tn_call *call, const void *args) {
    const tn__linear_backward_weight_args *a = args;
    const cuda_gemm_end end = {CUBLASLT_SUM_OF_B, a->grad_bias->data, NULL};
    if (a->grad_weight->numel == 0 || !is_packed(a->grad_weight) || !is_packed(a->grad_bias))
        return TN_DECLINE;
    return multiply(call, &(operands){a->grad, a->input, a->grad_weight, true, false}, &end);
}

#define ROWS(op, fn)                                                                               \
    CUDA_FLOAT_ROW(op, fn, TN_F16), CUDA_FLOAT_ROW(op, fn, TN_BF16), CUDA_FLOAT_ROW(op, fn, TN_F32)
static const tn_kernel_row rows[] = {ROWS(_linear_relu, linear_relu),
                                     ROWS(_linear_gelu, linear_gelu),
                                     ROWS(_linear_gelu_backward, linear_gelu_backward),
                                     ROWS(_linear_backward_weight, linear_backward_weight)};
const cuda_rows cuda_linear_rows = CUDA_ROWS_OF(rows);
