/* saved_hooks.c: Python functions that pack and unpack what is saved for backward. */
#include "binding_priv.h"

/* pack, unpack; what the graph keeps of a saved tensor is whatever pack returned. */
typedef struct functions {
    PyObject *pack, *unpack;
} functions;

static tn_status pack(void *ctx, tn_tensor *t, void **ret_handle) {
    PyGILState_STATE gil = PyGILState_Ensure();
    const functions *f = ctx;
    uint32_t version = tn_tensor_version(t);
    PyObject *o = tnp_wrap(tn_tensor_ref(t));
    PyObject *r = o ? PyObject_CallFunctionObjArgs(f->pack, o, NULL) : NULL;
    if (r && tn_tensor_version(t) != version) {
        PyErr_SetString(PyExc_RuntimeError,
                        "A saved tensor pack hook is modifying its input in place. Tensors "
                        "provided as input to pack hook cannot be modified by in-place operations "
                        "as this can lead to unexpected side-effects.");
        Py_CLEAR(r);
    }
    Py_XDECREF(o);
    *ret_handle = r;
    PyGILState_Release(gil);
    return r ? TN_OK : TN_E_HOST;
}

static tn_status unpack(void *ctx, void *handle, tn_tensor **ret_tensor) {
    PyGILState_STATE gil = PyGILState_Ensure();
    const functions *f = ctx;
    PyObject *r = PyObject_CallFunctionObjArgs(f->unpack, (PyObject *)handle, NULL);
    bool ok = r && tnp_is_tensor(r);
    if (ok)
        *ret_tensor = tn_tensor_ref(tnp_of(r));
    else if (r)
        tnp_type_error("Output of saved tensor unpack_hook expected to be a Tensor but got result "
                       "of type %U",
                       r);
    Py_XDECREF(r);
    PyGILState_Release(gil);
    return ok ? TN_OK : TN_E_HOST;
}

static void drop(void *ctx, void *handle) {
    (void)ctx;
    tnp_release_object(handle);
}

static void release(void *ctx) {
    functions *f = ctx;
    tnp_release_object(f->pack);
    tnp_release_object(f->unpack);
    free(f);
}

static PyObject *push(PyObject *unused, PyObject *args) {
    functions *f = malloc(sizeof *f);
    (void)unused;
    if (!f) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "OO:_push_saved_hooks", &f->pack, &f->unpack)) {
        free(f);
        return NULL;
    }
    tn_saved_hooks hooks = {pack, unpack, drop, release, f};
    Py_INCREF(f->pack);
    Py_INCREF(f->unpack);
    tn_status st = tn_saved_hooks_push(&hooks);
    if (st == TN_OK) Py_RETURN_NONE;
    release(f);
    return tnp_raise(st);
}

static PyObject *pop(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    tn_saved_hooks_pop();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"_push_saved_hooks", push, METH_VARARGS, "_push_saved_hooks(pack, unpack)"},
    {"_pop_saved_hooks", pop, METH_NOARGS, "Takes the innermost pair away."},
    {NULL, NULL, 0, NULL},
};

bool tnp_saved_hooks_init(PyObject *module) { return PyModule_AddFunctions(module, methods) == 0; }
