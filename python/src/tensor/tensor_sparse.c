/* tensor_sparse.c: facts about sparse tensors. What they are made of are operators of the table. */
#include "binding_priv.h"

#include <tenon/ops_shape.h>

PyObject *tnp_no_memory(PyObject *self, const char *what) {
    return PyErr_Format(PyExc_RuntimeError,
                        "%s is not defined for a tensor of layout %s, which has no memory of its "
                        "own; its components have",
                        what, tn_layout_name(tn_tensor_layout(tnp_of(self))));
}

int tnp_settle_late(const tn_tensor *t) { return tnp_check(tn_tensor_settle(t)); }

tn_status tnp_alias_of(tn_tensor *t, tn_tensor **ret_tensor) {
    if (tn_tensor_layout(t) != TN_LAYOUT_STRIDED) return tn_detach(t, ret_tensor);
    return tn_tensor_alias(t, tn_tensor_dtype(t), tn_tensor_ndim(t), tn_tensor_shape(t),
                           tn_tensor_strides(t), tn_tensor_storage_offset(t), ret_tensor);
}

PyObject *tnp_nnz(PyObject *self, PyObject *unused) {
    (void)unused;
    int64_t n = tn_sparse_nnz(tnp_of(self));
    if (n >= 0) return PyLong_FromLongLong(n);
    PyErr_SetString(PyExc_NotImplementedError, "_nnz() is not defined for a strided tensor");
    return NULL;
}

PyObject *tnp_sparse_dim(PyObject *self, PyObject *unused) {
    (void)unused;
    int32_t n = tn_sparse_dim(tnp_of(self));
    return PyLong_FromLong(n < 0 ? 0 : n);
}

PyObject *tnp_dense_dim(PyObject *self, PyObject *unused) {
    (void)unused;
    const tn_tensor *t = tnp_of(self);
    int32_t n = tn_sparse_dense_dim(t);
    return PyLong_FromLong(n < 0 ? tn_tensor_ndim(t) : n);
}

PyObject *tnp_is_coalesced(PyObject *self, PyObject *unused) {
    (void)unused;
    const tn_tensor *t = tnp_of(self);
    if (tn_tensor_layout(t) != TN_LAYOUT_COO)
        return PyErr_Format(PyExc_RuntimeError,
                            "is_coalesced expected sparse coordinate tensor layout but got %s",
                            tn_layout_name(tn_tensor_layout(t)));
    return PyBool_FromLong(tn_sparse_is_coalesced(t));
}
