/* memory.c: which streams use a tensor's memory. */
#include "binding_priv.h"

/* The stream comes as the address of its tn_stream, from _streams.py. */
static PyObject *record_stream(PyObject *unused, PyObject *args) {
    PyObject *tensor, *address;
    (void)unused;
    if (!PyArg_ParseTuple(args, "OO:_record_stream", &tensor, &address)) return NULL;
    if (!tnp_is_tensor(tensor))
        return tnp_type_error("record_stream() takes a Tensor, not %U", tensor);
    tn_stream *stream = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) return NULL;
    tn_status st = tn_tensor_record_stream(tnp_of(tensor), stream);
    if (st != TN_OK) return tnp_raise(st);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_record_stream", record_stream, METH_VARARGS, "See Tensor.record_stream."},
    {NULL, NULL, 0, NULL},
};

bool tnp_memory_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
