/* ffi_scope.c: a library and its declarations as a Python object; operators out of its functions. */
#include "ffi_priv.h"

PyTypeObject *tnp_ffi_scope_type;
static PyObject
    *derivatives; /* [function] by name and address; lists stay, as operators refer to them */

static tn_ffi_scope *scope_of(PyObject *o) { return ((tnp_ffi_scope_object *)o)->scope; }

static PyObject *scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    const char *library;
    PyObject *parent = Py_None;
    if (kwargs && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "no keywords");
    if (!PyArg_ParseTuple(args, "z|O", &library, &parent)) return NULL;
    bool has_parent = Py_TYPE(parent) == tnp_ffi_scope_type;
    if (!has_parent && parent != Py_None) return tnp_type_error("a scope, not %U", parent);
    tnp_ffi_scope_object *s = PyObject_New(tnp_ffi_scope_object, type);
    if (!s) return NULL;
    s->scope = NULL;
    tn_status st = tn_ffi_scope_new(library, has_parent ? scope_of(parent) : NULL, &s->scope);
    if (st == TN_OK) return (PyObject *)s;
    Py_DECREF(s);
    return tnp_raise(st);
}

static void scope_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tn_ffi_scope_unref(&((tnp_ffi_scope_object *)self)->scope);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The names of the functions in front of `until`, in the order of their declaration. */
static PyObject *names_before(tn_ffi_scope *s, const tn_ffi_function *until) {
    PyObject *list = PyList_New(0);
    for (const tn_ffi_function *f = tn_ffi_functions(s); list && f != until; f = f->next) {
        PyObject *name = PyUnicode_FromString(f->name);
        if (!name || PyList_Insert(list, 0, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *declare(PyObject *self, PyObject *text) {
    Py_ssize_t n;
    if (!PyUnicode_Check(text)) return tnp_type_error("a declaration is a str, not %U", text);
    const char *s = PyUnicode_AsUTF8AndSize(text, &n);
    const tn_ffi_function *before = tn_ffi_functions(scope_of(self));
    if (!s) return NULL;
    if (memchr(s, 0, (size_t)n)) {
        PyErr_SetString(PyExc_ValueError, "a declaration holds a null character");
        return NULL;
    }
    tn_status st = tn_ffi_declare(scope_of(self), s);
    return st == TN_OK ? names_before(scope_of(self), before) : tnp_raise(st);
}

/* NULL: exception. */
static tn_ffi_function *function_named(PyObject *self, const char *name) {
    tn_ffi_function *f = tn_ffi_functions(scope_of(self));
    while (f && strcmp(f->name, name) != 0) f = f->next;
    if (!f) PyErr_Format(PyExc_AttributeError, "no function '%s' is declared", name);
    return f;
}

/* A function that the library has. A symbol that is missing is to Python an attribute that is. */
static tn_ffi_function *resolved(PyObject *self, const char *name) {
    tn_ffi_function *f = function_named(self, name);
    tn_status st = f ? tn_ffi_resolve(scope_of(self), f) : TN_OK;
    if (st == TN_OK) return f;
    if (st == TN_E_INDEX)
        PyErr_SetString(PyExc_AttributeError, tn_error_last()->message);
    else
        tnp_raise(st);
    return NULL;
}

static PyObject *describe(PyObject *self, PyObject *name) {
    const char *s = PyUnicode_AsUTF8AndSize(name, NULL);
    const tn_ffi_function *f = s ? function_named(self, s) : NULL;
    PyObject *params = f ? PyTuple_New(f->nparams) : NULL;
    for (int32_t i = 0; params && i < f->nparams; i++) {
        int32_t dtype = tn_ffi_dtype(f->params[i].type->kind);
        bool floating = dtype >= 0 && tn_dtype_category(dtype) == TN_CAT_FLOAT;
        PyObject *pair = Py_BuildValue("(sN)", f->params[i].name, PyBool_FromLong(floating));
        if (!pair || PyTuple_SetItem(params, i, pair) < 0) Py_CLEAR(params);
    }
    return params ? Py_BuildValue("(NN)", PyBool_FromLong(tn_ffi_is_elementwise(f)), params) : NULL;
}

static PyObject *set_lengths(PyObject *self, PyObject *args) {
    const char *name, *text;
    if (!PyArg_ParseTuple(args, "ss", &name, &text)) return NULL;
    tn_ffi_function *f = function_named(self, name);
    tn_status st = f ? tn_ffi_set_lengths(scope_of(self), f, text) : TN_OK;
    if (!f || st != TN_OK) return f ? tnp_raise(st) : NULL;
    Py_RETURN_NONE;
}

static PyObject *function(PyObject *self, PyObject *args) {
    const char *name;
    PyObject *options;
    if (!PyArg_ParseTuple(args, "sO!", &name, &PyTuple_Type, &options)) return NULL;
    tn_ffi_function *f = resolved(self, name);
    return f ? tnp_ffi_function_new(self, f, options) : NULL;
}

/* ---- Operators ---------------------------------------------------------------------------------*/

static PyObject *operator_(PyObject *self, PyObject *args) {
    tn_ffi_op op = {.struct_size = sizeof op, .dtype = -1};
    const char *name, *bound;
    PyObject *dtype;
    if (!PyArg_ParseTuple(args, "ssOzz", &name, &op.name, &dtype, &op.gradient, &op.doc))
        return NULL;
    if (dtype != Py_None) op.dtype = tnp_dtype_slot(dtype);
    if (dtype != Py_None && op.dtype < 0)
        return tnp_type_error("dtype must be a dtype, not %U", dtype);
    const tn_ffi_function *f = resolved(self, name);
    tn_status st = f ? tn_ffi_operator(f, &op, &bound) : TN_OK;
    if (!f) return NULL;
    /* What is wrong with a derivative or a name is the caller's text. */
    if (st == TN_E_PLUGIN) PyErr_SetString(PyExc_ValueError, tn_error_last()->message);
    if (st != TN_OK) return st == TN_E_PLUGIN ? NULL : tnp_raise(st);
    return PyUnicode_FromString(bound);
}

/* The tensor or the number that stands for one. */
static PyObject *operand(const tn_view *v) {
    tn_tensor *t = (tn_tensor *)(uintptr_t)(const void *)v;
    if (!(v->word & TN_W_SCALAR)) return tnp_wrap(tn_tensor_ref(t));
    return tnp_item_of(t);
}

static tn_tensor *tensor_of(PyObject *value) {
    if (tnp_is_tensor(value)) return tn_tensor_ref(tnp_of(value));
    return tnp_tensor_from(value, -1, -1);
}

/* What calls a derivative that is a Python function. */
static tn_status run_derivative(void *ctx, const tn_view *const *args, int32_t nargs,
                                tn_view **ret_result) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *fn = PyList_GetItem(ctx, 0), *tuple = fn ? PyTuple_New(nargs) : NULL;
    Py_XINCREF(fn);
    for (int32_t i = 0; tuple && i < nargs; i++) {
        PyObject *v = operand(args[i]);
        if (!v || PyTuple_SetItem(tuple, i, v) < 0) Py_CLEAR(tuple);
    }
    PyObject *value = tuple ? PyObject_Call(fn, tuple, NULL) : NULL;
    tn_tensor *t = value ? tensor_of(value) : NULL;
    if (t) *ret_result = (tn_view *)(void *)t;
    Py_XDECREF(value);
    Py_XDECREF(tuple);
    Py_XDECREF(fn);
    PyGILState_Release(gil);
    return t ? TN_OK : TN_E_HOST;
}

/* The list that holds the derivative of that name for the C function at `address`; borrowed. */
static PyObject *cell_of(const char *name, void *address) {
    PyObject *key = PyUnicode_FromFormat("%s %p", name, address);
    PyObject *cell = key ? PyDict_GetItemWithError(derivatives, key) : NULL;
    if (key && !cell && !PyErr_Occurred()) {
        cell = PyList_New(1);
        if (cell && PyDict_SetItem(derivatives, key, cell) < 0) Py_CLEAR(cell);
        Py_XDECREF(cell); /* the dict keeps it */
    }
    Py_XDECREF(key);
    return cell;
}

static PyObject *composite(PyObject *self, PyObject *args) {
    const char *name, *full, *bound;
    PyObject *fn;
    if (!PyArg_ParseTuple(args, "ssO", &name, &full, &fn)) return NULL;
    const tn_ffi_function *f = resolved(self, name);
    PyObject *cell = f ? cell_of(full, f->address) : NULL;
    if (!cell) return NULL;
    Py_INCREF(fn);
    if (PyList_SetItem(cell, 0, fn) < 0) return NULL;
    tn_status st = tn_ffi_composite_operator(f, full, run_derivative, cell, &bound);
    return st == TN_OK ? PyUnicode_FromString(bound) : tnp_raise(st);
}

/* ---- Structs and constants ---------------------------------------------------------------------*/

static const tn_ffi_record *record_named(PyObject *self, const char *name) {
    const tn_ffi_record *r = tn_ffi_records(scope_of(self));
    while (r && strcmp(r->name, name) != 0) r = r->next;
    return r && r->size ? r : NULL;
}

static PyObject *new_struct(PyObject *self, PyObject *name) {
    const char *s = PyUnicode_AsUTF8AndSize(name, NULL);
    const tn_ffi_record *r = s ? record_named(self, s) : NULL;
    if (r) return tnp_ffi_struct_new(self, r, NULL);
    return s ? PyErr_Format(PyExc_AttributeError, "no struct '%s' is declared with its fields", s)
             : NULL;
}

static PyObject *struct_names(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    const tn_ffi_record *r = tn_ffi_records(scope_of(self));
    for (; list && r; r = r->next) {
        if (!r->size || !r->name[0]) continue;
        PyObject *name = PyUnicode_FromString(r->name);
        if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *constants(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *dict = PyDict_New();
    const char *name;
    int64_t value;
    for (int32_t i = 0; dict && tn_ffi_constant_at(scope_of(self), i, &name, &value); i++) {
        PyObject *v = PyLong_FromLongLong(value);
        if (!v || PyDict_SetItemString(dict, name, v) < 0) Py_CLEAR(dict);
        Py_XDECREF(v);
    }
    return dict;
}

/* callback(name, parameter, function): one that C may keep. */
static PyObject *callback(PyObject *self, PyObject *args) {
    const char *name, *param;
    PyObject *fn;
    if (!PyArg_ParseTuple(args, "ssO", &name, &param, &fn)) return NULL;
    const tn_ffi_function *f = function_named(self, name);
    for (int32_t i = 0; f && i < f->nparams; i++)
        if (strcmp(f->params[i].name, param) == 0 && f->params[i].type->kind == TN_FFI_CALLBACK)
            return tnp_ffi_callback_new(self, f->params[i].type->signature, fn);
    return f ? PyErr_Format(PyExc_ValueError, "%s has no callback parameter '%s'", name, param)
             : NULL;
}

/* ---- Functions of the module -------------------------------------------------------------------*/

static PyObject *unbind(PyObject *unused, PyObject *name) {
    (void)unused;
    const char *s = PyUnicode_AsUTF8AndSize(name, NULL);
    tn_status st = s ? tn_ffi_unbind(s) : TN_OK;
    if (!s || st != TN_OK) return s ? tnp_raise(st) : NULL;
    Py_RETURN_NONE;
}

static PyObject *available(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    tn_status st = tn_ffi_available();
    if (st != TN_OK) return tnp_raise(st);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_ffi_unbind", unbind, METH_O, "Withdraws a bound operator 'ns::name'."},
    {"_ffi_available", available, METH_NOARGS, "Raises ImportError where libffi is missing."},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef methods[] = {
    {"declare", declare, METH_O, "Reads declarations; returns the functions' names."},
    {"describe", describe, METH_O, "(elementwise, ((name, is floating), ...))."},
    {"set_lengths", set_lengths, METH_VARARGS, "set_lengths(function, 'x[n]')."},
    {"function", function, METH_VARARGS, "function(name, options): the callable."},
    {"operator", operator_, METH_VARARGS, "operator(name, full, dtype, gradient, doc)."},
    {"composite", composite, METH_VARARGS, "composite(name, full, function)."},
    {"new_struct", new_struct, METH_O, "A struct, zeroed."},
    {"struct_names", struct_names, METH_NOARGS, "The structs that have fields."},
    {"constants", constants, METH_NOARGS, "The constants of enums."},
    {"callback", callback, METH_VARARGS, "callback(function, parameter, fn)."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_new, scope_new),
    TNP_SLOT(Py_tp_dealloc, scope_dealloc),
    TNP_SLOT(Py_tp_methods, methods),
    {0, NULL},
};

bool tnp_ffi_init(PyObject *module) {
    PyType_Spec spec = {"tenon._C.FfiScope", sizeof(tnp_ffi_scope_object), 0, Py_TPFLAGS_DEFAULT,
                        slots};
    derivatives = PyDict_New();
    tnp_ffi_scope_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return derivatives && tnp_ffi_scope_type && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "FfiScope", (PyObject *)tnp_ffi_scope_type) == 0 &&
           tnp_ffi_memory_init(module) && tnp_ffi_callback_init(module) &&
           tnp_ffi_function_init(module);
}
