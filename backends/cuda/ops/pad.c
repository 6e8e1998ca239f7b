/* pad.c: constant_pad_nd, _pad and their gradient: host side of kernels/pad.cu and pad_backward.cu.
 *
 * family: pad */
#include "image.h"

#include <string.h>

#include <tenon/args_conv.h>

#include "common/tmpl.h"

static cuda_size_kernels kernels = CUDA_SIZE_KERNELS(pad, pad);
static cuda_float_kernels backward_kernels = CUDA_FLOAT_KERNELS(pad_backward, pad_backward);

/* `x` is read, `y` written. */
static tn_status start(const tn_view *x, const tn_view *y, tn_ints pad, int64_t mode,
                       cuda_pad_args *ret_args) {
    cuda_pad_args *a = ret_args;
    memset(a, 0, sizeof *a);
    if (y->ndim > CUDA_DIMS || !tn_view_is_contiguous(y)) return TN_DECLINE;
    a->x = x->data;
    a->y = y->data;
    a->numel = y->numel;
    a->dims = y->ndim;
    a->mode = (int32_t)mode;
    for (int32_t d = 0; d < y->ndim; d++) {
        int32_t from = y->ndim - 1 - d;
        a->size[d] = y->shape[from];
        a->read[d] = x->shape[from];
        a->stride[d] = x->strides[from] * tn_view_itemsize(x);
        if (d < pad.n / 2) a->before[d] = pad.v[2 * d];
    }
    return TN_OK;
}

/* The bytes of a number in a dtype. False: a dtype that is not known here. */
static bool number_of(const tn_scalar *number, int32_t dtype, int64_t ret_value[2]) {
    const double parts[] = {number->re, number->im};
    const float singles[] = {(float)number->re, (float)number->im};
    uint16_t half = dtype == TN_F16 ? tmpl_to_f16(singles[0]) : tmpl_to_bf16(singles[0]);
    ret_value[0] = number->i; /* little endian: a narrow integer is the first bytes */
    switch (dtype) {
    case TN_BOOL: ret_value[0] = number->re != 0; break;
    case TN_F16:
    case TN_BF16: memcpy(ret_value, &half, sizeof half); break;
    case TN_F32: memcpy(ret_value, singles, sizeof singles[0]); break;
    case TN_F64: memcpy(ret_value, parts, sizeof parts[0]); break;
    case TN_C64: memcpy(ret_value, singles, sizeof singles); break;
    case TN_C128: memcpy(ret_value, parts, sizeof parts); break;
    default: return dtype <= TN_I64;
    }
    return true;
}

static tn_status run(const tn_call *call, const cuda_pad_args *a, int64_t bytes) {
    return cuda_launch_each(call, cuda_size_kernel(kernels, bytes), a->numel, a);
}

static tn_status constant_pad(const tn_call *call, const void *args) {
    const tn_constant_pad_nd_args *in = args;
    cuda_pad_args a;
    tn_status st = start(in->input, in->out, in->pad, CUDA_PAD_CONSTANT, &a);
    if (st != TN_OK) return st;
    if (!number_of(&in->value, tn_view_dtype(in->out), a.value)) return TN_DECLINE;
    return run(call, &a, tn_view_itemsize(in->out));
}

static tn_status pad_mode(const tn_call *call, const void *args) {
    const tn__pad_args *in = args;
    cuda_pad_args a;
    tn_status st = start(in->input, in->out, in->pad, in->mode, &a);
    return st == TN_OK ? run(call, &a, tn_view_itemsize(in->out)) : st;
}

static tn_status pad_backward(const tn_call *call, const void *args) {
    const tn__pad_backward_args *in = args;
    cuda_pad_args a;
    tn_status st = start(in->grad, in->out, in->pad, in->mode, &a);
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, backward_kernels), a.numel, &a);
}

static const tn_kernel_row rows[] = {
    {"constant_pad_nd", TN_SIG_constant_pad_nd, constant_pad, NULL, TN_DTYPE_ANY, 0,
     TN_K_CAPTURE_SAFE, 0},
    {"_pad", TN_SIG__pad, pad_mode, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
    CUDA_FLOAT_ROWS(_pad_backward, pad_backward),
};
const cuda_rows cuda_pad_rows = CUDA_ROWS_OF(rows);
