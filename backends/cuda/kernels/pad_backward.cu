/* pad_backward.cu: the gradient of padding, for one floating element type: gathered from the padded
 * positions that read an element.
 *
 * types: float */
#include "planes.h"

#include "scalar.h"

/* Padded positions that may read element i of dimension d: their number, and which the kth is; -1: there
 * is none. */
TMPL_INLINE int64_t pad_readers(const cuda_pad_args &a, int d, int64_t i) {
    int64_t n = a.size[d], wide = a.read[d], begin = i + a.before[d], end = begin + 1;
    if (n == wide && a.before[d] == 0) return 1;
    if (a.mode != CUDA_PAD_REPLICATE) return a.mode == CUDA_PAD_CONSTANT ? 1 : 3;
    if (i == 0) begin = 0;
    if (i == n - 1) end = wide;
    return end - begin;
}

TMPL_INLINE int64_t pad_reader(const cuda_pad_args &a, int d, int64_t i, int64_t k) {
    int64_t n = a.size[d], at = i;
    if (a.mode == CUDA_PAD_REPLICATE)
        at = i == 0 ? k - a.before[d] : i + k;
    else if (k == 1) /* in front */
        at = a.mode == CUDA_PAD_REFLECT ? -i : i - n;
    else if (k == 2) /* behind */
        at = a.mode == CUDA_PAD_REFLECT ? 2 * (n - 1) - i : i + n;
    bool is_padding = at < 0 || at >= n;
    at += a.before[d];
    return (k == 0 || is_padding || a.mode == CUDA_PAD_REPLICATE) && at >= 0 && at < a.read[d] ? at
                                                                                               : -1;
}

KERNEL(TN_(pad_backward), cuda_pad_args) {
    int64_t i = cuda_thread(), rest = i, place[CUDA_DIMS], count[CUDA_DIMS], all = 1;
    if (i >= a.numel) return;
    for (int d = 0; d < a.dims; d++) {
        place[d] = planes_cut(&rest, a.size[d]);
        count[d] = pad_readers(a, d, place[d]);
        all *= count[d];
    }
    A sum = 0;
    for (int64_t which = 0; which < all; which++) {
        int64_t left = which, at = 0;
        bool any = true;
        for (int d = 0; d < a.dims; d++) {
            int64_t reader = pad_reader(a, d, place[d], planes_cut(&left, count[d]));
            any = any && reader >= 0;
            at += reader * a.stride[d];
        }
        if (any) sum += LOAD(*(const T *)((const char *)a.x + at));
    }
    ((T *)a.y)[i] = STORE(sum);
}
