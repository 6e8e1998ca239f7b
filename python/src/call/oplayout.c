/* oplayout.c: calls for a tensor of another layout than strided, zeros(2, 3, layout=tn.sparse_csr), or
 * for a strided one like a tensor that is not.
 * Operators of the table have no such argument; tenon/_tensor/sparse.py makes the tensor. */
#include "binding_priv.h"

static bool asks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t n = kwnames ? PyTuple_Size(kwnames) : 0;
    PyObject *like = self || !nargs ? self : args[0];
    int32_t layout = -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(kwnames, i);
        if (PyUnicode_Compare(name, tnp.str_layout) == 0)
            layout = tnp_layout_value(args[nargs + i]);
        else if (!like && PyUnicode_CompareWithASCIIString(name, "input") == 0)
            like = args[nargs + i];
    }
    if (layout != TN_LAYOUT_STRIDED) return layout > TN_LAYOUT_STRIDED;
    return like && tnp_is_tensor(like) && tnp_is_sparse(tnp_of(like));
}

int tnp_call_laid(tnp_group *g, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames, PyObject **ret_result) {
    PyObject *packed = NULL, *kwargs = NULL;
    bool creates = false;
    for (int32_t i = 0; i < g->n; i++) creates |= g->overloads[i].creates;
    if (!creates || !asks(self, args, nargs, kwnames)) return 0;
    *ret_result = NULL;
    PyObject *f = tnp_helper("_tensor.sparse", "created");
    if (f && tnp_pack_call(self, args, nargs, kwnames, &packed, &kwargs))
        *ret_result = PyObject_CallFunction(f, "sOO", g->name, packed, kwargs);
    Py_XDECREF(packed);
    Py_XDECREF(kwargs);
    return *ret_result ? 1 : -1;
}
