/* plugins.c: what Python says about plugins: which ones its packages bring, and whether a library may
 * be mapped. The core calls both with nothing locked, on any thread. */
#include "binding_priv.h"

/* The running exception as a failure of the core. */
static tn_status refuse(const char *name) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    tn_status st = tn_fail(TN_E_PLUGIN, -1, "%s", s && s[0] ? s : name);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
    return st;
}

tn_status tnp_admit_plugin(const char *name, const char *path, int32_t ours) {
    if (!Py_IsInitialized()) return TN_OK;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *audit =
        PySys_GetObject("audit"); /* borrowed; PySys_Audit is not in this limited API */
    PyObject *r =
        audit ? PyObject_CallFunction(audit, "sss", "tenon.load_plugin", name, path) : NULL;
    if (r && !ours) {
        PyObject *admit = tnp_helper("_plugin.trial", "admit");
        Py_DECREF(r);
        r = admit ? PyObject_CallFunction(admit, "s", path) : NULL;
    }
    tn_status st = r ? TN_OK : refuse("a hook refused it");
    Py_XDECREF(r);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
    return st;
}

void tnp_find_plugins(void) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *find = tnp_helper("_plugin.installed", "installed");
    PyObject *list = find ? PyObject_CallFunctionObjArgs(find, NULL) : NULL;
    for (Py_ssize_t i = 0, n = list ? PyList_Size(list) : 0; i < n; i++) {
        PyObject *path;
        if (!PyUnicode_FSConverter(PyList_GetItem(list, i), &path)) break;
        (void)tn_plugin_add(PyBytes_AsString(path)); /* a bad one is listed with its reason */
        Py_DECREF(path);
    }
    /* Broken metadata of some package must not hide what is wrong with the name that was asked for. */
    if (PyErr_Occurred()) PyErr_WriteUnraisable(find);
    Py_XDECREF(list);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}
