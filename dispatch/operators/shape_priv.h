/* shape_priv.h: what the shape operators share: views.c, shape.c, create.c, index.c. */
#ifndef TENON_SHAPE_PRIV_H
#define TENON_SHAPE_PRIV_H

#include <stdlib.h>

#include "infer_priv.h"

/* Fills ret_shape (room for TN_MAX_DIMS) from a size list in which one entry may be -1. TN_E_SHAPE
 * in PyTorch's words when the sizes do not hold numel elements. */
tn_status tni_infer_sizes(tn_ints size, int64_t numel, int64_t *ret_shape);

/* Strides that show v in another shape of the same numel; false when that needs a copy. */
bool tni_view_strides(const tn_view *v, int32_t n, const int64_t *shape, int64_t *ret_strides);

/* A `Device?` argument (slot << 8 | index, -1 when not given) as a device. */
static inline tn_device tni_device_given(int64_t code, tn_device none) {
    tn_device d = {(int32_t)(code >> 8), (int32_t)(code & 0xff)};
    return code < 0 ? none : d;
}

/* An uninitialised tensor of v's shape; format as in tni_format_strides. */
tn_status tni_new_like(const tn_view *v, int32_t dtype, tn_device device, int64_t format,
                       tn_tensor **ret_tensor);

/* A list of n results that are not there yet. */
static inline tn_status tni_list_new(int64_t n, tn_tensor_list *ret) {
    *ret = (tn_tensor_list){calloc((size_t)(n > 0 ? n : 1), sizeof *ret->v), 0};
    return ret->v ? TN_OK : tn_fail(TN_E_MEMORY, -1, "out of memory");
}

/* f(t) of every tensor of the list. */
static inline tn_status tni_list_mapped(tn_views ts, tn_status (*f)(tn_tensor *, tn_tensor **),
                                        tn_tensor_list *ret) {
    TN_TRY(tni_list_new(ts.n, ret));
    for (int64_t i = 0; i < ts.n; i++) {
        tn_status st = f(tni_t(ts.v[i]), &ret->v[i]);
        if (st != TN_OK) {
            tn_tensor_list_free(ret);
            return st;
        }
        ret->n++;
    }
    return TN_OK;
}

#endif
