/* ask_priv.h: what formulas and composites ask of tensors and numbers. */
#ifndef TENON_ASK_PRIV_H
#define TENON_ASK_PRIV_H

#include "tensor_priv.h"

/* Sizes of a tensor as a list argument; valid while the tensor lives. */
static inline tn_ints tni_shape_ints(const tn_tensor *t) {
    return tn_ints_of(tn_tensor_shape(t), tn_tensor_ndim(t));
}

/* Size of dimension i, which may be negative; 1 for a 0-d tensor. */
static inline int64_t tni_size_at(const tn_tensor *t, int64_t i) {
    int32_t n = tn_tensor_ndim(t);
    return n == 0 ? 1 : tn_tensor_shape(t)[i < 0 ? i + n : i];
}

/* The device of a tensor as a `Device?` argument: slot << 8 | index. */
static inline int64_t tni_device_of(const tn_tensor *t) {
    tn_device d = tn_tensor_device(t);
    return (int64_t)d.slot << 8 | d.index;
}

static inline bool tni_is_complex(const tn_tensor *t) {
    return tn_dtype_category(tn_tensor_dtype(t)) == TN_CAT_COMPLEX;
}

/* Whether a number, which may be complex, is this real one. */
static inline bool tni_scalar_is(tn_scalar s, double value) { return s.re == value && s.im == 0; }

/* A `Dim?` as a list of dimensions: none given = all. */
#define TNI_OPT_DIMS(o) ((tn_ints){(o).has ? &(o).value : NULL, (o).has ? 1 : -1})

#endif
