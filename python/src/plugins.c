/* plugins.c: what Python says about plugins: which ones its packages bring, and whether a library may
 * be mapped. The core calls both with nothing locked, on any thread. */
#include "binding_priv.h"

/* Whether the running exception says something about what was looked at: not that memory or files were
 * lacking, nor that the program ends. */
static bool is_verdict(void) {
    return PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError) &&
           !PyErr_ExceptionMatches(PyExc_OSError);
}

/* The running exception as a failure of the core; one that ends programs stays pending. */
static tn_status refuse(const char *name) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return TN_E_INTERRUPTED;
    tn_status lack = PyErr_ExceptionMatches(PyExc_MemoryError) ? TN_E_MEMORY : TN_E_IO;
    tn_status code = is_verdict() ? TN_E_PLUGIN : lack;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    tn_status st = tn_fail(code, -1, "%s", s && s[0] ? s : name);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
    return st;
}

/* The exception from before comes back, unless one has to end the program. */
static void give_back(tn_status st, PyObject *type, PyObject *value, PyObject *trace) {
    if (st != TN_E_INTERRUPTED) {
        PyErr_Restore(type, value, trace);
        return;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

tn_status tnp_admit_plugin(const char *name, const char *path, int32_t ours) {
    if (!Py_IsInitialized()) return TN_OK;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *audit =
        PySys_GetObject("audit"); /* borrowed; PySys_Audit is not in this limited API */
    PyObject *where = PyUnicode_DecodeFSDefault(path); /* which need not be UTF-8 */
    PyObject *r = audit && where
                      ? PyObject_CallFunction(audit, "ssO", "tenon.load_plugin", name, where)
                      : NULL;
    if (r && !ours) {
        PyObject *admit = tnp_helper("_plugin.trial", "admit");
        Py_DECREF(r);
        r = admit ? PyObject_CallFunctionObjArgs(admit, where, NULL) : NULL;
    }
    Py_XDECREF(where);
    tn_status st = r ? TN_OK : refuse("a hook refused it");
    Py_XDECREF(r);
    give_back(st, type, value, trace);
    PyGILState_Release(gil);
    return st;
}

tn_status tnp_find_plugins(void) {
    if (!Py_IsInitialized()) return TN_OK;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *find = tnp_helper("_plugin.installed", "installed");
    PyObject *list = find ? PyObject_CallFunctionObjArgs(find, NULL) : NULL;
    tn_status st = TN_OK;
    for (Py_ssize_t i = 0, n = list ? PyList_Size(list) : 0; i < n && st == TN_OK; i++) {
        PyObject *path;
        if (!PyUnicode_FSConverter(PyList_GetItem(list, i), &path)) break;
        tn_status added = tn_plugin_add(PyBytes_AsString(path));
        if (added != TN_E_PLUGIN) st = added; /* a bad one is listed with its reason */
        Py_DECREF(path);
    }
    /* Broken metadata of some package must not hide what is wrong with the name that was asked for. */
    if (PyErr_Occurred() && is_verdict())
        PyErr_WriteUnraisable(find);
    else if (PyErr_Occurred())
        st = refuse("the installed packages could not be searched");
    Py_XDECREF(list);
    give_back(st, type, value, trace);
    PyGILState_Release(gil);
    return st;
}
