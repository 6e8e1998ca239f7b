/* memory.c: which streams use a tensor's memory, and memory of the host that devices reach. */
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

/* ---- Pinned memory -----------------------------------------------------------------------------*/

bool tnp_pin(tn_tensor **inout_t, int32_t device_slot) {
    tn_tensor *pinned = NULL;
    tn_status st = tn_tensor_pin(*inout_t, device_slot, &pinned);
    tn_tensor_unref(inout_t);
    *inout_t = pinned;
    return tnp_check(st) >= 0;
}

/* The one argument, device=None, as a slot; -1: none. */
static bool device_arg(PyObject *args, PyObject *kwargs, const char *format, int32_t *ret_slot) {
    static char *names[] = {"device", NULL};
    PyObject *device = Py_None;
    tn_device d = {-1, 0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &device)) return false;
    if (device != Py_None && !tnp_device_from(device, &d)) return false;
    *ret_slot = d.slot;
    return true;
}

PyObject *tnp_pin_memory(PyObject *self, PyObject *args, PyObject *kwargs) {
    int32_t slot;
    if (!device_arg(args, kwargs, "|O:pin_memory", &slot)) return NULL;
    if (tn_tensor_is_pinned(tnp_of(self))) {
        Py_INCREF(self);
        return self;
    }
    tn_tensor *t = tn_tensor_ref(tnp_of(self));
    return tnp_pin(&t, slot) ? tnp_same_class(self, tnp_wrap(t)) : NULL;
}

PyObject *tnp_is_pinned(PyObject *self, PyObject *args, PyObject *kwargs) {
    int32_t slot;
    if (!device_arg(args, kwargs, "|O:is_pinned", &slot)) return NULL;
    return PyBool_FromLong(tn_tensor_is_pinned(tnp_of(self)));
}

static PyMethodDef functions[] = {
    {"_record_stream", record_stream, METH_VARARGS, "See Tensor.record_stream."},
    {NULL, NULL, 0, NULL},
};

bool tnp_memory_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
