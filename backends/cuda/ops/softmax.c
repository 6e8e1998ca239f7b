/* softmax.c: softmax and its kin: host side of kernels/softmax.cu.
 *
 * family: softmax */
#include "cuda_priv.h"

#include <tenon/args_norm.h>

static cuda_float_kernels softmax_kernels = CUDA_FLOAT_KERNELS(softmax, softmax),
                          log_softmax_kernels = CUDA_FLOAT_KERNELS(softmax, log_softmax),
                          softmax_backward_kernels = CUDA_FLOAT_KERNELS(softmax, softmax_backward),
                          log_softmax_backward_kernels =
                              CUDA_FLOAT_KERNELS(softmax, log_softmax_backward);

static tn_status run_rows(const tn_call *call, cuda_float_kernels kernels,
                          const tn_view *const *views, int32_t n, int64_t dim) {
    cuda_rows_args a;
    if (views[0]->numel == 0) return TN_OK;
    tn_status st = cuda_rows_read(views, n, dim, &a);
    if (st != TN_OK) return st;
    return cuda_launch(call, cuda_float_kernel(call, kernels), (a.rows + a.width - 1) / a.width,
                       cuda_rows_threads(a.n, a.width), &a);
}

static tn_status softmax(const tn_call *call, const void *args) {
    const tn_softmax_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return run_rows(call, softmax_kernels, views, 2, a->dim);
}

static tn_status log_softmax(const tn_call *call, const void *args) {
    const tn_log_softmax_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return run_rows(call, log_softmax_kernels, views, 2, a->dim);
}

static tn_status softmax_backward(const tn_call *call, const void *args) {
    const tn__softmax_backward_args *a = args;
    const tn_view *views[] = {a->grad, a->y, a->out};
    return run_rows(call, softmax_backward_kernels, views, 3, a->dim);
}

static tn_status log_softmax_backward(const tn_call *call, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    const tn_view *views[] = {a->grad, a->y, a->out};
    return run_rows(call, log_softmax_backward_kernels, views, 3, a->dim);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(softmax, softmax),
    CUDA_FLOAT_ROWS(log_softmax, log_softmax),
    CUDA_FLOAT_ROWS(_softmax_backward, softmax_backward),
    CUDA_FLOAT_ROWS(_log_softmax_backward, log_softmax_backward),
};
const cuda_rows cuda_softmax_rows = CUDA_ROWS_OF(rows);
