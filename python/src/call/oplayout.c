/* oplayout.c: calls for a tensor of another layout than strided, zeros(2, 3, layout=tn.sparse_csr).
 * Operators of the table have no such argument; tenon/_tensor/sparse.py makes the tensor. */
#include "binding_priv.h"

static bool asks(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t n = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyUnicode_Compare(PyTuple_GetItem(kwnames, i), tnp.str_layout) == 0)
            return tnp_layout_value(args[nargs + i]) > TN_LAYOUT_STRIDED;
    return false;
}

int tnp_call_laid(tnp_group *g, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames, PyObject **ret_result) {
    PyObject *packed = NULL, *kwargs = NULL;
    bool creates = false;
    for (int32_t i = 0; i < g->n; i++) creates |= g->overloads[i].creates;
    if (!creates || !asks(args, nargs, kwnames)) return 0;
    *ret_result = NULL;
    PyObject *f = tnp_helper("_tensor.sparse", "created");
    if (f && tnp_pack_call(self, args, nargs, kwnames, &packed, &kwargs))
        *ret_result = PyObject_CallFunction(f, "sOO", g->name, packed, kwargs);
    Py_XDECREF(packed);
    Py_XDECREF(kwargs);
    return *ret_result ? 1 : -1;
}
