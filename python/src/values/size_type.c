/* size_type.c: Size, the tuple of a tensor's dimensions. */
#include "binding_priv.h"

static PyObject *size_from_sequence(PyObject *seq) {
    PyObject *tuple = PySequence_Tuple(seq);
    if (!tuple) return NULL;
    Py_ssize_t n = PyTuple_Size(tuple);
    PyObject *size = PyType_GenericAlloc(tnp.size, n);
    for (Py_ssize_t i = 0; size && i < n; i++) {
        PyObject *v = PyNumber_Index(PyTuple_GetItem(tuple, i));
        if (!v) {
            PyErr_Format(PyExc_TypeError, "%U.Size() takes an iterable of 'int' (item %zd is %R)",
                         tnp.prefix, i, (PyObject *)Py_TYPE(PyTuple_GetItem(tuple, i)));
            Py_CLEAR(size);
        } else {
            PyTuple_SetItem(size, i, v);
        }
    }
    Py_DECREF(tuple);
    return size;
}

PyObject *tnp_size_from(const int64_t *v, int32_t n) {
    PyObject *size = PyType_GenericAlloc(tnp.size, n);
    for (int32_t i = 0; size && i < n; i++) {
        PyObject *item = tnp_size_number(v[i]);
        if (!item)
            Py_CLEAR(size);
        else
            PyTuple_SetItem(size, i, item);
    }
    return size;
}

static PyObject *size_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *seq = NULL;
    (void)type;
    if (kwargs && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Size() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "|O:Size", &seq)) return NULL;
    return seq ? size_from_sequence(seq) : tnp_size_from(NULL, 0);
}

static PyObject *size_repr(PyObject *self) {
    PyObject *list = PySequence_List(self);
    PyObject *text = list ? PyUnicode_FromFormat("%U.Size(%R)", tnp.prefix, list) : NULL;
    Py_XDECREF(list);
    return text;
}

static PyObject *size_numel(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *product = PyLong_FromLong(1);
    for (Py_ssize_t i = 0; product && i < PyTuple_Size(self); i++) {
        PyObject *next = PyNumber_Multiply(product, PyTuple_GetItem(self, i));
        Py_DECREF(product);
        product = next;
    }
    return product;
}

static PyObject *size_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *plain = PySequence_Tuple(self);
    PyObject *list = plain ? PySequence_List(plain) : NULL;
    Py_XDECREF(plain);
    return list ? Py_BuildValue("O(N)", (PyObject *)tnp.size, list) : NULL;
}

/* What tuple makes of it, as a Size again. */
static PyObject *as_size(PyObject *result) {
    if (!result || !PyTuple_Check(result)) return result;
    PyObject *size = size_from_sequence(result);
    Py_DECREF(result);
    return size;
}

static PyObject *through_tuple(PyObject *self, const char *method, PyObject *arg) {
    PyObject *f = PyObject_GetAttrString((PyObject *)&PyTuple_Type, method);
    PyObject *r = f ? PyObject_CallFunctionObjArgs(f, self, arg, NULL) : NULL;
    Py_XDECREF(f);
    return r;
}

static PyObject *size_subscript(PyObject *self, PyObject *key) {
    if (PyLong_Check(key)) {
        Py_ssize_t n = PyTuple_Size(self), i = PyLong_AsSsize_t(key);
        if (i == -1 && PyErr_Occurred()) return NULL;
        PyObject *v = PyTuple_GetItem(self, i < 0 ? i + n : i); /* sets IndexError */
        Py_XINCREF(v);
        return v;
    }
    return as_size(through_tuple(self, "__getitem__", key));
}

static PyObject *size_add(PyObject *a, PyObject *b) {
    if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
    return as_size(through_tuple(a, "__add__", b));
}

static PyObject *size_repeat(PyObject *self, Py_ssize_t n) {
    PyObject *count = PyLong_FromSsize_t(n);
    PyObject *r = count ? through_tuple(self, "__mul__", count) : NULL;
    Py_XDECREF(count);
    return as_size(r);
}

static PyMethodDef methods[] = {
    {"numel", size_numel, METH_NOARGS, "The product of the sizes."},
    {"__reduce__", size_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_new, size_new),
    TNP_SLOT(Py_tp_repr, size_repr),
    TNP_SLOT(Py_mp_subscript, size_subscript),
    TNP_SLOT(Py_nb_add, size_add),
    TNP_SLOT(Py_sq_repeat, size_repeat),
    TNP_SLOT(Py_tp_methods, methods),
    {0, NULL},
};

bool tnp_size_init(PyObject *module) {
    PyType_Spec spec = {"tenon.Size", 0, 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject *bases = PyTuple_Pack(1, (PyObject *)&PyTuple_Type);
    tnp.size = bases ? (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    return tnp.size && PyModule_AddObjectRef(module, "Size", (PyObject *)tnp.size) == 0;
}
