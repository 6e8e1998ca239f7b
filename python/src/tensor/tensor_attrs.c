/* tensor_attrs.c: the attributes of Tensor: geometry, dtype, device, gradient. */
#include <tenon/program.h>
#include <tenon/wrapped.h>

#include "binding_priv.h"

#define ATTR(name) static PyObject *name(PyObject *self, void *unused)

/* ---- Geometry and type -------------------------------------------------------------------------*/

ATTR(get_shape) {
    (void)unused;
    const tn_tensor *t = tnp_of(self);
    tn_program_note_sizes(t);
    return tnp_size_from(tn_tensor_shape(t), tn_tensor_ndim(t));
}
ATTR(get_ndim) {
    (void)unused;
    return PyLong_FromLong(tn_tensor_ndim(tnp_of(self)));
}
ATTR(get_dtype) {
    (void)unused;
    return tnp_dtype_object(tn_tensor_dtype(tnp_of(self)));
}
ATTR(get_device) {
    (void)unused;
    return tnp_device_object_of(tn_tensor_device(tnp_of(self)));
}
ATTR(get_layout) {
    (void)unused;
    if (tnp_settle(tnp_of(self)) < 0) return NULL;
    return tnp_layout_object(tn_tensor_layout(tnp_of(self)));
}
ATTR(get_itemsize) {
    (void)unused;
    return PyLong_FromLongLong(tn_view_itemsize(tn_tensor_view(tnp_of(self))));
}
ATTR(get_nbytes) {
    (void)unused;
    const tn_view *v = tn_tensor_view(tnp_of(self));
    tn_program_note_sizes(tnp_of(self));
    if (TNP_UNLIKELY(v->word & TN_W_LAYOUT)) {
        if (tnp_settle(tnp_of(self)) < 0) return NULL;
        bool wrapped = tn_tensor_layout(tnp_of(self)) == TN_LAYOUT_WRAPPED;
        if ((v->word & TN_W_LAYOUT) && !wrapped) return tnp_no_memory(self, "nbytes");
    }
    return tnp_size_number(v->numel * tn_view_itemsize(v));
}
ATTR(get_is_cuda) {
    (void)unused;
    const char *name = tn_device_name(tn_tensor_device(tnp_of(self)).slot);
    return PyBool_FromLong(name && strcmp(name, "cuda") == 0);
}
ATTR(get_is_cpu) {
    (void)unused;
    return PyBool_FromLong(tn_tensor_device(tnp_of(self)).slot == 0);
}
ATTR(get_is_sparse) {
    (void)unused;
    return PyBool_FromLong(tn_tensor_layout(tnp_of(self)) == TN_LAYOUT_COO);
}
ATTR(get_is_sparse_csr) {
    (void)unused;
    return PyBool_FromLong(tn_tensor_layout(tnp_of(self)) == TN_LAYOUT_CSR);
}
/* Kinds of tensors that there are none of. */
ATTR(get_is_meta) {
    (void)unused;
    return PyBool_FromLong(tn_tensor_device(tnp_of(self)).slot == TN_META_SLOT);
}
ATTR(get_false) {
    (void)self, (void)unused;
    Py_RETURN_FALSE;
}
ATTR(get_version) {
    (void)unused;
    if (tnp_program_look("_version") < 0) return NULL;
    if (tn_tensor_view(tnp_of(self))->word & TN_W_INFERENCE) {
        PyErr_SetString(PyExc_RuntimeError, "Inference tensors do not track version counter.");
        return NULL;
    }
    return PyLong_FromUnsignedLong(tn_tensor_version(tnp_of(self)));
}
ATTR(get_priority) {
    (void)self, (void)unused;
    return PyLong_FromLong(1000); /* NumPy leaves mixed operators to us */
}

/* ---- Transposed views --------------------------------------------------------------------------*/

ATTR(get_mT) {
    (void)unused;
    if (tn_tensor_ndim(tnp_of(self)) == 0) return Py_NewRef(self);
    if (tn_tensor_ndim(tnp_of(self)) < 2)
        return PyErr_Format(PyExc_RuntimeError,
                            "tensor.mT is only supported on matrices or batches of matrices. Got "
                            "%d-D tensor.",
                            (int)tn_tensor_ndim(tnp_of(self)));
    return PyObject_CallMethod(self, "transpose", "ii", -2, -1);
}

ATTR(get_T) {
    (void)unused;
    int32_t n = tn_tensor_ndim(tnp_of(self));
    if (n == 2) return PyObject_CallMethod(self, "permute", "ii", 1, 0);
    PyObject *order = PyList_New(n);
    for (int32_t i = 0; order && i < n; i++) PyList_SetItem(order, i, PyLong_FromLong(n - 1 - i));
    PyObject *r = order ? PyObject_CallMethod(self, "permute", "O", order) : NULL;
    Py_XDECREF(order);
    return r;
}

static PyObject *conjugated(PyObject *view) {
    if (!view || tn_dtype_category(tn_tensor_dtype(tnp_of(view))) != TN_CAT_COMPLEX) return view;
    PyObject *r = PyObject_CallMethod(view, "conj", NULL);
    Py_DECREF(view);
    return r;
}
ATTR(get_mH) { return conjugated(get_mT(self, unused)); }
ATTR(get_H) {
    int32_t n = tn_tensor_ndim(tnp_of(self));
    if (n != 0 && n != 2)
        return PyErr_Format(
            PyExc_RuntimeError,
            "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.", (int)n);
    return conjugated(get_T(self, unused));
}

ATTR(get_real) {
    (void)unused;
    if (tn_dtype_category(tn_tensor_dtype(tnp_of(self))) != TN_CAT_COMPLEX) {
        Py_INCREF(self);
        return self;
    }
    PyObject *f = tnp_helper("_C", "_ops");
    return f ? PyObject_CallMethod(f, "real", "O", self) : NULL;
}
ATTR(get_imag) {
    (void)unused;
    PyObject *f = tnp_helper("_C", "_ops");
    return f ? PyObject_CallMethod(f, "imag", "O", self) : NULL;
}

/* x.imag = value writes into the view, as x.imag[...] = value does. */
static int set_part(PyObject *view, PyObject *value) {
    if (view && !value) PyErr_SetString(PyExc_AttributeError, "a part cannot be deleted");
    int st = view && value ? PyObject_SetItem(view, Py_Ellipsis, value) : -1;
    Py_XDECREF(view);
    return st;
}
static int set_real(PyObject *self, PyObject *value, void *unused) {
    return set_part(get_real(self, unused), value);
}
static int set_imag(PyObject *self, PyObject *value, void *unused) {
    return set_part(get_imag(self, unused), value);
}

/* ---- Gradient ----------------------------------------------------------------------------------*/

ATTR(get_requires_grad) {
    (void)unused;
    return PyBool_FromLong(tn_requires_grad(tnp_of(self)));
}
static int set_requires_grad(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    if (!value || !PyBool_Check(value)) {
        PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
        return -1;
    }
    return tnp_check(tn_set_requires_grad(tnp_of(self), value == Py_True));
}
ATTR(get_cdata) {
    (void)unused;
    return PyLong_FromVoidPtr(tnp_of(self));
}
ATTR(get_is_leaf) {
    (void)unused;
    return PyBool_FromLong(tn_is_leaf(tnp_of(self)));
}
ATTR(get_retains_grad) {
    (void)unused;
    if (tnp_program_look("retains_grad") < 0) return NULL;
    return PyBool_FromLong(tn_retains_grad(tnp_of(self)));
}
ATTR(get_grad) {
    (void)unused;
    tn_tensor *t = tnp_of(self);
    if (tnp_program_look("grad") < 0) return NULL;
    if (TNP_UNLIKELY(!tn_is_leaf(t) && !tn_retains_grad(t) && !tn_grad_get(t)) &&
        PyErr_WarnEx(PyExc_UserWarning,
                     "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. "
                     "It is not filled by backward(). Call retain_grad() on the tensor to have it "
                     "filled, or read .grad of the leaf if that was meant.",
                     1) < 0)
        return NULL;
    return tnp_wrap_opt(tn_grad_ref(tnp_of(self)));
}
static int set_grad(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    if (!value || value == Py_None) return tnp_check(tn_grad_set(tnp_of(self), NULL));
    if (!tnp_is_tensor(value)) {
        PyErr_Format(PyExc_TypeError,
                     "assigned grad expected to be a Tensor or None but got grad of type %R",
                     (PyObject *)Py_TYPE(value));
        return -1;
    }
    if (value == self) {
        PyErr_SetString(PyExc_RuntimeError, "can't assign Variable as its own grad");
        return -1;
    }
    return tnp_check(tn_grad_set(tnp_of(self), tnp_of(value)));
}
ATTR(get_grad_fn) {
    (void)unused;
    tn_node *node = NULL;
    int64_t nr;
    if (tnp_program_look("grad_fn") < 0) return NULL;
    if (tnp_check(tn_grad_fn(tnp_of(self), &node, &nr)) < 0) return NULL;
    if (!node) Py_RETURN_NONE;
    tnp_track(self); /* hooks and metadata of the node may refer to the tensor */
    return tnp_node_object(node);
}
ATTR(get_output_nr) {
    (void)unused;
    tn_node *node = NULL;
    int64_t nr = 0;
    if (tnp_program_look("output_nr") < 0) return NULL;
    if (tnp_check(tn_grad_fn(tnp_of(self), &node, &nr)) < 0) return NULL;
    return PyLong_FromLongLong(node ? nr : 0);
}
ATTR(get_base) {
    (void)unused;
    if (tnp_program_look("_base") < 0) return NULL;
    return tnp_wrap_opt(tn_tensor_ref(tn_view_base(tnp_of(self))));
}
ATTR(get_is_inference) {
    (void)unused;
    return PyBool_FromLong((tn_tensor_view(tnp_of(self))->word & TN_W_INFERENCE) != 0);
}

/* The same memory, without history; not counted as a write of the original. */
ATTR(get_data) {
    (void)unused;
    tn_tensor *r = NULL;
    tn_status st = tn_data(tnp_of(self), &r);
    return st == TN_OK ? tnp_same_class(self, tnp_wrap(r)) : tnp_raise(st);
}
bool tnp_stands_for_many(PyObject *o) {
    return Py_TYPE(o) != tnp.tensor &&
           PyObject_HasAttrString((PyObject *)Py_TYPE(o), "_stands_for_many");
}

bool tnp_refuse_many(PyObject *o, const char *what) {
    if (!tnp_stands_for_many(o)) return false;
    PyErr_Format(PyExc_RuntimeError,
                 "vmap: %s takes the memory of a tensor, and a mapped tensor has none of its own: "
                 "it stands for many elements",
                 what);
    return true;
}

/* Which data a tensor can take: strided, of coordinates, compressed. */
static int memory_kind(const tn_tensor *t) {
    if (!tnp_is_sparse(t)) return 0;
    return tn_tensor_layout(t) == TN_LAYOUT_COO ? 1 : 2;
}

static int set_data(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    if (!value || !tnp_is_tensor(value)) {
        PyErr_SetString(PyExc_TypeError, "Variable data has to be a tensor");
        return -1;
    }
    if (tnp_refuse_many(value, "data =")) return -1;
    int category = tn_dtype_category(tn_tensor_dtype(tnp_of(value)));
    if (tn_requires_grad(tnp_of(self)) && category < TN_CAT_FLOAT) {
        PyErr_SetString(PyExc_RuntimeError, "data set to a tensor that requires gradients must be "
                                            "floating point or complex dtype");
        return -1;
    }
    if (memory_kind(tnp_of(self)) != memory_kind(tnp_of(value))) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Attempted to call `variable.set_data(tensor)`, but `variable` and "
                        "`tensor` have incompatible tensor type.");
        return -1;
    }
    return tnp_check(tn_tensor_set_data(tnp_of(self), tnp_of(value)));
}

PyGetSetDef tnp_tensor_getset[] = {
    {"shape", get_shape, NULL, "The sizes, as a Size.", NULL},
    {"ndim", get_ndim, NULL, "Number of dimensions.", NULL},
    {"dtype", get_dtype, NULL, "Type of the elements.", NULL},
    {"device", get_device, NULL, "Where the elements are.", NULL},
    {"layout", get_layout, NULL,
     "How its elements are kept: strided, or one of the sparse layouts.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of one element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"is_cuda", get_is_cuda, NULL, "True on a CUDA device.", NULL},
    {"is_cpu", get_is_cpu, NULL, "True on the CPU.", NULL},
    {"is_sparse", get_is_sparse, NULL, "True for the layout sparse_coo.", NULL},
    {"is_sparse_csr", get_is_sparse_csr, NULL, "True for the layout sparse_csr.", NULL},
    {"is_quantized", get_false, NULL, "Always False.", NULL},
    {"is_meta", get_is_meta, NULL, "True on the meta device, where tensors have no elements.",
     NULL},
    {"is_mkldnn", get_false, NULL, "Always False.", NULL},
    {"is_mps", get_false, NULL, "Always False.", NULL},
    {"is_ipu", get_false, NULL, "Always False.", NULL},
    {"is_maia", get_false, NULL, "Always False.", NULL},
    {"is_mtia", get_false, NULL, "Always False.", NULL},
    {"is_vulkan", get_false, NULL, "Always False.", NULL},
    {"is_xla", get_false, NULL, "Always False.", NULL},
    {"is_xpu", get_false, NULL, "Always False.", NULL},
    {"is_nested", get_false, NULL, "Always False.", NULL},
    {"_version", get_version, NULL, "How often the memory was written in place.", NULL},
    {"__array_priority__", get_priority, NULL, NULL, NULL},
    {"T", get_T, NULL, "View with the dimensions in reverse order.", NULL},
    {"mT", get_mT, NULL, "View with the last two dimensions swapped.", NULL},
    {"H", get_H, NULL, "A matrix, transposed and conjugated.", NULL},
    {"mH", get_mH, NULL, "The last two dimensions swapped and conjugated.", NULL},
    {"real", get_real, set_real, "View of the real parts.", NULL},
    {"imag", get_imag, set_imag, "View of the imaginary parts.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad,
     "True when operators on it are recorded.", NULL},
    {"_cdata", get_cdata, NULL, "A number that no other tensor has while this one lives.", NULL},
    {"is_leaf", get_is_leaf, NULL, "True when no recorded operator made it.", NULL},
    {"retains_grad", get_retains_grad, NULL, "True after retain_grad().", NULL},
    {"grad", get_grad, set_grad, "The gradient that backward() added up, or None.", NULL},
    {"_grad", get_grad, set_grad, NULL, NULL},
    {"grad_fn", get_grad_fn, NULL, "The recorded operator that made it, or None.", NULL},
    {"output_nr", get_output_nr, NULL, "Which result of grad_fn it is.", NULL},
    {"_base", get_base, NULL, "The tensor that it is a view of, or None.", NULL},
    {"_is_inference", get_is_inference, NULL, NULL, NULL},
    {"data", get_data, set_data, "The same elements without history.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
