/* share.c: memory that processes share: Tensor.share_memory_, and what tenon.multiprocessing sends. */
#include "binding_priv.h"

PyObject *tnp_share_memory(PyObject *self, PyObject *unused) {
    (void)unused;
    if (tnp_check(tn_tensor_share_memory(tnp_of(self))) < 0) return NULL;
    Py_INCREF(self);
    return self;
}

PyObject *tnp_is_shared(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(tn_tensor_in_shared_memory(tnp_of(self)));
}

/* _share(tensor) -> (handle, file): the file, unless it is -1, is the caller's to close. */
static PyObject *share(PyObject *unused, PyObject *tensor) {
    char handle[TN_SHARE_HANDLE_BYTES];
    int32_t file;
    (void)unused;
    if (!tnp_is_tensor(tensor))
        return tnp_type_error("_share(): expected a Tensor, not %U", tensor);
    if (tnp_check(tn_tensor_share(tnp_of(tensor), handle, &file)) < 0) return NULL;
    return Py_BuildValue("(y#i)", handle, (Py_ssize_t)sizeof handle, (int)file);
}

/* A tuple of numbers into `ret`; how many, or -1. */
static int read_sizes(PyObject *tuple, int64_t *ret) {
    Py_ssize_t n = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (n < 0 || n > TN_MAX_DIMS) {
        PyErr_SetString(PyExc_ValueError, "_open_shared(): sizes and strides must be tuples");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) ret[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    return PyErr_Occurred() ? -1 : (int)n;
}

/* _open_shared(handle, file, dtype, shape, strides, offset): a tensor over that memory. */
static PyObject *open_shared(PyObject *unused, PyObject *args) {
    const char *handle;
    Py_ssize_t bytes;
    int file;
    long long offset;
    PyObject *dtype, *shape, *strides;
    int64_t sizes[TN_MAX_DIMS], steps[TN_MAX_DIMS];
    tn_tensor *all, *t = NULL;
    (void)unused;
    if (!PyArg_ParseTuple(args, "y#iOOOL:_open_shared", &handle, &bytes, &file, &dtype, &shape,
                          &strides, &offset))
        return NULL;
    int32_t slot = tnp_dtype_slot(dtype);
    int n = read_sizes(shape, sizes);
    if (n < 0 || slot < 0) return NULL;
    if (read_sizes(strides, steps) != n || bytes != TN_SHARE_HANDLE_BYTES) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError,
                            "_open_shared(): the handle or the strides are damaged");
        return NULL;
    }
    if (tnp_check(tn_tensor_open_shared(handle, file, &all)) < 0) return NULL;
    tn_status st = tn_tensor_alias(all, slot, n, sizes, steps, offset, &t);
    tn_tensor_unref(&all);
    return st == TN_OK ? tnp_wrap(t) : tnp_raise(st);
}

static PyMethodDef functions[] = {
    {"_share", share, METH_O, "What another process opens a tensor's memory by."},
    {"_open_shared", open_shared, METH_VARARGS, "A tensor over memory of another process."},
    {NULL, NULL, 0, NULL},
};

bool tnp_share_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
