/* rule_priv.h: what the shape rules of several families ask. The messages are PyTorch's, because that is
 * what people search for. */
#ifndef TENON_RULE_PRIV_H
#define TENON_RULE_PRIV_H

#include "infer_priv.h"

static inline int64_t rule_size_at(const tn_view *v, int64_t dim) {
    return v->ndim ? v->shape[dim] : 1;
}

static inline tn_status rule_index_dtype(const char *op, const tn_view *index) {
    int32_t d = tn_view_dtype(index);
    if (d == TN_I64 || d == TN_I32) return TN_OK;
    if (index->numel == 0 && strcmp(op, "gather") == 0) return TN_OK; /* nothing is read */
    return tn_fail(TN_E_DTYPE, -1, "%s(): Expected dtype int32/int64 for index, but got: %s", op,
                   tni_type_text(d));
}

/* What the elements are in C, where messages say that. */
static inline const char *rule_c_type(int32_t dtype) {
    switch (dtype) {
    case TN_F32: return "float";
    case TN_F64: return "double";
    case TN_I64: return "long int";
    case TN_I32: return "int";
    case TN_I16: return "short int";
    case TN_I8: return "signed char";
    case TN_U8: return "unsigned char";
    case TN_F16: return "c10::Half";
    case TN_BF16: return "c10::BFloat16";
    default: return tn_dtype_name(dtype);
    }
}

static inline tn_status rule_same_dtype(const tn_view *a, const tn_view *b) {
    int32_t x = tn_view_dtype(a), y = tn_view_dtype(b);
    if (x == y) return TN_OK;
    return tn_fail(TN_E_DTYPE, 1, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                   rule_c_type(x), rule_c_type(y));
}

/* The same of a product to which something is added. */
static inline tn_status rule_same_factors(const tn_view *a, const tn_view *b) {
    int32_t x = tn_view_dtype(a), y = tn_view_dtype(b);
    if (x == y) return TN_OK;
    return tn_fail(TN_E_DTYPE, 1, "mat1 and mat2 must have the same dtype, but got %s and %s",
                   tni_type_text(x), tni_type_text(y));
}

/* `v` must broadcast to the result's shape. */
static inline tn_status rule_expandable(const tn_view *v, int32_t ndim, const int64_t *shape) {
    bool fits = v->ndim <= ndim;
    for (int32_t d = 0; fits && d < v->ndim; d++) {
        int64_t from = v->shape[v->ndim - 1 - d], to = shape[ndim - 1 - d];
        fits = from == to || from == 1;
    }
    if (fits) return TN_OK;
    return tn_fail(TN_E_SHAPE, 0,
                   "The expanded size of the tensor %s must match the existing size %s",
                   tni_shape_text(ndim, shape), tni_shape_text_of(v));
}

#endif
