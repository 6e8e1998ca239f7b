/* error.c: the core's error records as Python exceptions.
 *
 * The exception's class comes from TN_STATUS_LIST. It carries what the record says as attributes:
 * op, arg (the position of the argument in the signature, or -1) and detail (shapes and dtypes), and shows
 * the detail as a note below the message. */
#include "binding_priv.h"

static const char *class_name(tn_status st) {
    switch (st) {
#define TNP_CASE(name, value, meaning, exc)                                                        \
    case value: return exc;
        TN_STATUS_LIST(TNP_CASE)
#undef TNP_CASE
    default: return NULL;
    }
}

static PyObject
    *classes[TN_E_LINALG + 1]; /* by status value; ASYNC and unknown ones are RuntimeError */

/* A MemoryError, as in Python, and a RuntimeError, as programs expect that run on GPUs. */
static PyObject *new_memory_error(void) {
    PyObject *bases = PyTuple_Pack(2, PyExc_MemoryError, PyExc_RuntimeError);
    PyObject *cls = bases ? PyErr_NewException("tenon.OutOfMemoryError", bases, NULL) : NULL;
    Py_XDECREF(bases);
    return cls;
}

bool tnp_error_init(PyObject *module) {
    PyObject *builtins = PyImport_ImportModule("builtins");
    if (!builtins) return false;
    for (int i = 0; i < TNP_COUNT(classes); i++) {
        const char *name = class_name(i);
        if (i == TN_E_LINALG)
            classes[i] = PyErr_NewException("tenon._C._LinAlgError", PyExc_RuntimeError, NULL);
        else if (i == TN_E_MEMORY)
            classes[i] = new_memory_error();
        else
            classes[i] = PyObject_GetAttrString(builtins, name ? name : "RuntimeError");
        if (!classes[i]) break;
    }
    Py_DECREF(builtins);
    PyObject *linalg = classes[TN_E_LINALG], *memory = classes[TN_E_MEMORY];
    return linalg && PyModule_AddObjectRef(module, "LinAlgError", linalg) == 0 &&
           PyModule_AddObjectRef(module, "_LinAlgError", linalg) == 0 &&
           PyModule_AddObjectRef(module, "OutOfMemoryError", memory) == 0;
}

/* Sets attribute `name` and takes the value's reference; a failure here must not hide the error. */
static void annotate(PyObject *exc, const char *name, PyObject *value) {
    if (!value || PyObject_SetAttrString(exc, name, value) < 0) PyErr_Clear();
    Py_XDECREF(value);
}

static void add_note(PyObject *exc, const tn_error *e) {
    if (!e->detail[0]) return;
    PyObject *note = PyUnicode_FromFormat("in %s(%s)", e->op, e->detail);
    PyObject *done = note ? PyObject_CallMethod(exc, "add_note", "O", note) : NULL;
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(note);
}

void *tnp_raise(tn_status st) {
    if ((st == TN_E_HOST || st == TN_E_INTERRUPTED) && PyErr_Occurred()) return NULL;
    PyErr_Clear(); /* an exception that somebody's kernel left behind is not what failed */
    const tn_error *e = tn_error_last();
    PyObject *cls = st > 0 && st < TNP_COUNT(classes) ? classes[st] : PyExc_RuntimeError;
    const char *text = e->code == st ? e->message : tn_status_text(st);
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    PyObject *exc = message ? PyObject_CallFunctionObjArgs(cls, message, NULL) : NULL;
    Py_XDECREF(message);
    if (!exc) return NULL;
    if (e->code == st) {
        annotate(exc, "op", PyUnicode_FromString(e->op));
        annotate(exc, "arg", PyLong_FromLong(e->arg));
        annotate(exc, "detail", PyUnicode_FromString(e->detail));
        add_note(exc, e);
    }
    PyErr_SetObject(cls, exc);
    Py_DECREF(exc);
    return NULL;
}

int tnp_check(tn_status st) {
    if (st == TN_OK) return 0;
    tnp_raise(st);
    return -1;
}

void *tnp_error_about(PyObject *kind, const char *text, PyObject *o) {
    PyObject *name = PyType_GetName(Py_TYPE(o));
    if (name) PyErr_Format(kind, text, name);
    Py_XDECREF(name);
    return NULL;
}

void *tnp_type_error(const char *text, PyObject *o) {
    return tnp_error_about(PyExc_TypeError, text, o);
}
