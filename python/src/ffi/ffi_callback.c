/* ffi_callback.c: Python functions that C calls.
 *
 * C may call from any thread and at any time while the object lives. What the function raises during
 * a call that was given the callback is raised when that call returns, and until then the function
 * is not called again; at other times it is printed, as there is nobody to raise it to. */
#include "ffi_priv.h"

static tnp_ffi_callback_object *callback_of(PyObject *o) { return (tnp_ffi_callback_object *)o; }

/* The C arguments as a tuple. Pointers among them end with the callback. */
static PyObject *arguments(const tnp_ffi_callback_object *c, void **args) {
    PyObject *tuple = PyTuple_New(c->signature->nparams);
    for (int32_t i = 0; tuple && i < c->signature->nparams; i++) {
        PyObject *v = tnp_ffi_load(c->scope, c->signature->params[i].type, args[i]);
        if (!v || PyTuple_SetItem(tuple, i, v) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static void expire(PyObject *tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        if (Py_TYPE(o) == tnp_ffi_pointer_type) ((tnp_ffi_pointer_object *)o)->expired = true;
    }
}

static int store_result(const tnp_ffi_callback_object *c, PyObject *value, void *result) {
    const tn_ffi_type *t = c->signature->result;
    const tnp_ffi_place at = {"callback", "result", 0};
    if (t->kind == TN_FFI_VOID) return 0;
    if (tn_ffi_dtype(t->kind) >= 0) return tnp_ffi_store_number(&at, t, value, result);
    if (t->kind == TN_FFI_RECORD) {
        if (Py_TYPE(value) != tnp_ffi_struct_type ||
            ((tnp_ffi_struct_object *)value)->record != t->record)
            return tnp_ffi_type_error(&at, tnp_ffi_type_text(t), value);
        memcpy(result, ((tnp_ffi_struct_object *)value)->memory, (size_t)t->size);
        return 0;
    }
    if (value == Py_None) return 0;
    if (Py_TYPE(value) != tnp_ffi_pointer_type)
        return tnp_ffi_type_error(&at, "a Pointer or None", value);
    memcpy(result, &((tnp_ffi_pointer_object *)value)->address, sizeof(void *));
    return 0;
}

static void keep_error(tnp_ffi_callback_object *c) {
    if (!c->running) {
        PyErr_WriteUnraisable(c->fn);
        return;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    if (c->error)
        Py_XDECREF(value);
    else
        c->error = value;
    Py_XDECREF(type);
    Py_XDECREF(trace);
}

/* What C calls. A failure gives it zero. */
static void enter(void *ctx, void *result, void **args) {
    tnp_ffi_callback_object *c = ctx;
    int64_t size = c->signature->result->size;
    if (size) memset(result, 0, (size_t)size);
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (!c->error) {
        Py_INCREF((PyObject *)c); /* it may drop itself */
        PyObject *tuple = arguments(c, args);
        PyObject *value = tuple ? PyObject_Call(c->fn, tuple, NULL) : NULL;
        if (!value || store_result(c, value, result) < 0) keep_error(c);
        if (tuple) expire(tuple);
        Py_XDECREF(value);
        Py_XDECREF(tuple);
        Py_DECREF((PyObject *)c);
    }
    PyGILState_Release(gil);
}

PyObject *tnp_ffi_callback_new(PyObject *scope, const tn_ffi_function *signature, PyObject *fn) {
    if (!PyCallable_Check(fn)) return tnp_type_error("a callback must be callable, not %U", fn);
    tnp_ffi_callback_object *c = PyObject_New(tnp_ffi_callback_object, tnp_ffi_callback_type);
    if (!c) return NULL;
    *c = (tnp_ffi_callback_object){.ob_base = c->ob_base};
    c->signature = signature;
    c->scope = scope;
    c->fn = fn;
    Py_INCREF(scope);
    Py_INCREF(fn);
    tn_status st = tn_ffi_closure_new(signature, enter, c, &c->closure, &c->code);
    if (st == TN_OK) return (PyObject *)c;
    Py_DECREF(c);
    return tnp_raise(st);
}

static void callback_dealloc(PyObject *self) {
    tnp_ffi_callback_object *c = callback_of(self);
    PyTypeObject *type = Py_TYPE(self);
    tn_ffi_closure_free(c->closure);
    Py_XDECREF(c->error);
    Py_XDECREF(c->fn);
    Py_XDECREF(c->scope);
    PyObject_Free(self);
    Py_DECREF(type);
}

void tnp_ffi_callback_enter(PyObject *callback) {
    Py_INCREF(callback);
    callback_of(callback)->running++;
}

int tnp_ffi_callback_leave(PyObject *callback) {
    tnp_ffi_callback_object *c = callback_of(callback);
    PyObject *error = c->error;
    c->running--;
    c->error = NULL;
    if (error && !PyErr_Occurred()) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_DECREF(callback);
    return error ? -1 : 0;
}

static PyObject *callback_repr(PyObject *self) {
    return PyUnicode_FromFormat("<Callback of %R>", callback_of(self)->fn);
}

static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_dealloc, callback_dealloc),
    TNP_SLOT(Py_tp_repr, callback_repr),
    {Py_tp_doc, "A Python function as a C function, alive as long as this object."},
    {0, NULL},
};

bool tnp_ffi_callback_init(PyObject *module) {
    PyType_Spec spec = {"tenon.ffi.Callback", sizeof(tnp_ffi_callback_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    tnp_ffi_callback_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return tnp_ffi_callback_type &&
           PyModule_AddObjectRef(module, "FfiCallback", (PyObject *)tnp_ffi_callback_type) == 0;
}
