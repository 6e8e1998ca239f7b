/* overrides.c: __torch_function__: classes that take part in calls of operators.
 *
 * Only the question whether anybody overrides is answered here; tenon/overrides.py does the rest. Calls
 * with nothing but plain tensors ask one flag, which is set when the first subclass of Tensor is made
 * that does not switch the protocol off. Objects that are no tensors are noticed when an argument does
 * not fit. */
#include "binding_priv.h"

static _Thread_local int disabled; /* depth of DisableTorchFunctionSubclass */
static _Thread_local int modes;    /* how many modes want to see the thread's calls */
static int all_modes;              /* those of all threads */
static PyObject *str_protocol, *off;

/* Classes of arguments that never override, by far the most. */
static bool is_plain(PyObject *o) {
    const PyTypeObject *type = Py_TYPE(o);
    return type == tnp.tensor || o == Py_None || type == &PyLong_Type || type == &PyFloat_Type ||
           type == &PyBool_Type || type == &PyUnicode_Type || type == tnp.dtype ||
           type == tnp.device || type == tnp.size;
}

bool tnp_overrides(PyObject *o) {
    if (modes && Py_TYPE(o) == tnp.tensor) return true;
    if ((disabled && !modes) || is_plain(o)) return false;
    PyObject *f = PyObject_GetAttr((PyObject *)Py_TYPE(o), str_protocol);
    if (!f) PyErr_Clear();
    Py_XDECREF(f);
    if (f == off) return modes && tnp_is_tensor(o); /* a parameter: modes see it */
    return f && !disabled;
}

/* Appends o, or what a list holds, to *found when it overrides. */
static bool collect(PyObject *o, PyObject **found) {
    if (PyTuple_Check(o) || PyList_Check(o)) {
        bool tuple = PyTuple_Check(o);
        Py_ssize_t n = tuple ? PyTuple_Size(o) : PyList_Size(o);
        for (Py_ssize_t i = 0; i < n; i++) {
            /* What asks a class for its attributes may run code, which may empty the list. */
            PyObject *item = tuple ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i);
            if (!item) return false;
            Py_INCREF(item);
            bool nested = PyTuple_Check(item) || PyList_Check(item);
            bool ok = nested || collect(item, found);
            Py_DECREF(item);
            if (!ok) return false;
        }
        return true;
    }
    if (!tnp_overrides(o)) return true;
    if (!*found && !(*found = PyList_New(0))) return false;
    return PyList_Append(*found, o) == 0;
}

bool tnp_pack_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                   PyObject **ret_args, PyObject **ret_kwargs) {
    Py_ssize_t first = self != NULL, nkw = kwnames ? PyTuple_Size(kwnames) : 0;
    *ret_args = PyTuple_New(first + nargs);
    *ret_kwargs = PyDict_New();
    if (!*ret_args || !*ret_kwargs) return false;
    for (Py_ssize_t i = 0; i < first + nargs; i++) {
        PyObject *o = i < first ? self : args[i - first];
        Py_INCREF(o);
        PyTuple_SetItem(*ret_args, i, o);
    }
    for (Py_ssize_t i = 0; i < nkw; i++)
        if (PyDict_SetItem(*ret_kwargs, PyTuple_GetItem(kwnames, i), args[nargs + i]) < 0)
            return false;
    return true;
}

int tnp_override(const char *name, enum tnp_form form, PyObject *self, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames, PyObject **ret_result) {
    PyObject *found = NULL, *packed = NULL, *kwargs = NULL;
    Py_ssize_t nkw = kwnames ? PyTuple_Size(kwnames) : 0;
    if (disabled && !modes) return 0;
    bool ok = !self || collect(self, &found);
    for (Py_ssize_t i = 0; ok && i < nargs + nkw; i++) ok = collect(args[i], &found);
    if (ok && !found && !modes) return 0;
    if (ok && !found) ok = (found = PyList_New(0)) != NULL;
    *ret_result = NULL;
    PyObject *f = ok ? tnp_helper("overrides", "_call") : NULL;
    if (f && tnp_pack_call(self, args, nargs, kwnames, &packed, &kwargs))
        *ret_result = PyObject_CallFunction(f, "siOOO", name, (int)form, found, packed, kwargs);
    Py_XDECREF(found);
    Py_XDECREF(packed);
    Py_XDECREF(kwargs);
    return 1;
}

bool tnp_mode_takes(const char *name, PyObject *args, PyObject *kwargs, PyObject **ret_result) {
    if (TNP_LIKELY(!modes)) return false;
    PyObject *f = tnp_helper("overrides", "_ask_modes");
    PyObject *words = kwargs ? Py_NewRef(kwargs) : PyDict_New();
    *ret_result = f && words ? PyObject_CallFunction(f, "sOO", name, args, words) : NULL;
    Py_XDECREF(words);
    if (*ret_result != Py_NotImplemented) return true;
    Py_DECREF(*ret_result);
    return false;
}

PyObject *tnp_same_class(PyObject *self, PyObject *result) {
    if (!result || result == self || Py_TYPE(self) == tnp.tensor || !tnp_overrides(self))
        return result;
    PyObject *f = tnp_helper("overrides", "_convert");
    PyObject *type = (PyObject *)Py_TYPE(self);
    PyObject *r = f ? PyObject_CallFunctionObjArgs(f, result, type, NULL) : NULL;
    Py_DECREF(result);
    return r;
}

static PyObject *disable(PyObject *unused, PyObject *delta) {
    (void)unused;
    disabled += (int)PyLong_AsLong(delta);
    return PyLong_FromLong(disabled);
}
/* A mode of this thread begins (1) or ends (-1) to see calls. While there is one in any thread no
 * tensor is plain, so that the short ways of numbers.c ask like all others. */
static PyObject *mode_depth(PyObject *unused, PyObject *delta) {
    (void)unused;
    int step = (int)PyLong_AsLong(delta);
    modes += step;
    all_modes += step;
    tnp.plain = all_modes ? NULL : tnp.tensor;
    if (all_modes) tnp.overrides = true;
    return PyLong_FromLong(modes);
}
/* A subclass of Tensor was made. */
static PyObject *watch(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    tnp.overrides = true;
    Py_RETURN_NONE;
}
static PyObject *disabled_protocol(PyObject *unused, PyObject *args) {
    (void)unused, (void)args;
    Py_RETURN_NOTIMPLEMENTED;
}

static PyMethodDef methods[] = {
    {"_disable_overrides", disable, METH_O, "Adds to the thread's depth; returns it."},
    {"_mode_depth", mode_depth, METH_O, "Adds to the number of the thread's modes; returns it."},
    {"_watch_overrides", watch, METH_NOARGS, "From here on calls look at their arguments."},
    {"_disabled_torch_function_impl", disabled_protocol, METH_VARARGS,
     "As a class's __torch_function__: it takes no part in the protocol."},
    {NULL, NULL, 0, NULL},
};

bool tnp_overrides_init(PyObject *module) {
    str_protocol = PyUnicode_InternFromString("__torch_function__");
    if (!str_protocol || PyModule_AddFunctions(module, methods) < 0) return false;
    off = PyObject_GetAttrString(module, "_disabled_torch_function_impl");
    return off != NULL;
}
