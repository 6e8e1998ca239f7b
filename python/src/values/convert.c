/* convert.c: Python numbers, and NumPy's, as numbers of C. */
#include <tenon/wrapped.h>

#include "binding_priv.h"

/* ---- NumPy, when the program uses it -----------------------------------------------------------
 * NumPy is looked up among the loaded modules and never imported for a test of type: an object can
 * only be one of its kind when it is loaded. */

static PyObject *np_generic, *np_ndarray;

static bool find_numpy(void) {
    static PyObject *modules, *name;
    if (np_ndarray) return true;
    if (!modules) {
        modules = PySys_GetObject("modules");
        name = PyUnicode_InternFromString("numpy");
        Py_XINCREF(modules);
    }
    PyObject *np = modules && name ? PyDict_GetItem(modules, name) : NULL;
    if (!np) return false;
    np_generic = PyObject_GetAttrString(np, "generic");
    np_ndarray = np_generic ? PyObject_GetAttrString(np, "ndarray") : NULL;
    if (!np_ndarray) PyErr_Clear(); /* numpy is being imported right now */
    return np_ndarray != NULL;
}

bool tnp_is_numpy_scalar(PyObject *o) {
    return find_numpy() && PyType_IsSubtype(Py_TYPE(o), (PyTypeObject *)np_generic);
}
bool tnp_is_numpy_array(PyObject *o) {
    return find_numpy() && PyType_IsSubtype(Py_TYPE(o), (PyTypeObject *)np_ndarray);
}

PyObject *tnp_numpy(const char *what) {
    static PyObject *np;
    if (np) return np;
    np = PyImport_ImportModule("numpy");
    if (!np && PyErr_ExceptionMatches(PyExc_ImportError))
        PyErr_Format(PyExc_RuntimeError, "%s needs NumPy, which is not installed", what);
    return np;
}

/* ---- Numbers -----------------------------------------------------------------------------------*/

static const char too_large[] = "Overflow when unpacking long long";

static int int_of_long(PyObject *o, int64_t *ret_value) {
    int overflow;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow) {
        PyErr_SetString(PyExc_ValueError, too_large);
        return -1;
    }
    if (v == -1 && PyErr_Occurred()) return -1;
    *ret_value = v;
    return 1;
}

/* A NumPy scalar as the Python number it holds; ret: what `from` says. */
static int through_item(PyObject *o, int (*from)(PyObject *, void *), void *ret) {
    PyObject *plain = PyObject_CallMethod(o, "item", NULL);
    if (!plain) return -1;
    if (tnp_is_numpy_scalar(plain) && PyObject_HasAttrString(plain, "is_integer")) {
        PyObject *short_ = PyNumber_Float(plain); /* longdouble has no number of Python's */
        Py_DECREF(plain);
        if (!short_) return -1;
        plain = short_;
    }
    int r = tnp_is_numpy_scalar(plain) ? 0 : from(plain, ret);
    Py_DECREF(plain);
    return r;
}
static int scalar_from_void(PyObject *o, void *ret) { return tnp_scalar_from(o, ret); }
static int int_from_void(PyObject *o, void *ret) { return tnp_int_from(o, ret); }

int tnp_scalar_from(PyObject *o, tn_scalar *ret_scalar) {
    if (PyFloat_Check(o)) {
        *ret_scalar = tn_scalar_float(PyFloat_AsDouble(o));
        return 1;
    }
    if (PyBool_Check(o)) {
        *ret_scalar = tn_scalar_bool(o == Py_True);
        return 1;
    }
    if (PyLong_Check(o)) {
        int overflow;
        long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
        *ret_scalar = tn_scalar_int(v);
        if (overflow) *ret_scalar = tn_scalar_uint(PyLong_AsUnsignedLongLong(o));
        return PyErr_Occurred() ? -1 : 1;
    }
    if (PyComplex_Check(o)) {
        *ret_scalar = tn_scalar_complex(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o));
        return 1;
    }
    if (tnp_is_tensor(o)) {
        const tn_tensor *t = tnp_of(o);
        if (tn_tensor_ndim(t) != 0) return 0;
        return tnp_check(tn_tensor_item(t, ret_scalar)) < 0 ? -1 : 1;
    }
    if (tnp_is_numpy_scalar(o)) return through_item(o, scalar_from_void, ret_scalar);
    return 0;
}

PyObject *tnp_scalar_to(const tn_scalar *s) {
    switch (s->kind) {
    case TN_CAT_BOOL: return PyBool_FromLong(s->i != 0);
    case TN_CAT_INT:
        return tn_scalar_is_beyond(s) ? PyLong_FromUnsignedLongLong((uint64_t)s->i)
                                      : PyLong_FromLongLong(s->i);
    case TN_CAT_FLOAT: return PyFloat_FromDouble(s->re);
    default: return PyComplex_FromDoubles(s->re, s->im);
    }
}

int tnp_item_from(const tn_tensor *t, tn_scalar *ret_scalar) {
    if (TNP_UNLIKELY(tn_tensor_layout(t) == TN_LAYOUT_WRAPPED || tnp_watches()))
        return tnp_wrapped_item(t, ret_scalar);
    return tnp_check(tn_tensor_item(t, ret_scalar));
}

PyObject *tnp_item_of(const tn_tensor *t) {
    tn_scalar s;
    return tnp_item_from(t, &s) < 0 ? NULL : tnp_scalar_to(&s);
}

int tnp_read_item(const tn_tensor *t, tn_scalar *ret_scalar) {
    if (tnp_item_from(t, ret_scalar) < 0) return -1;
    if (!tn_scalar_is_beyond(ret_scalar)) return 0;
    PyErr_SetString(PyExc_ValueError, too_large);
    return -1;
}

int tnp_int_from(PyObject *o, int64_t *ret_value) {
    if (PyLong_Check(o)) return PyBool_Check(o) ? 0 : int_of_long(o, ret_value);
    if (tnp_is_tensor(o)) {
        const tn_tensor *t = tnp_of(o);
        tn_scalar s;
        if (tn_tensor_ndim(t) != 0 || tn_dtype_category(tn_tensor_dtype(t)) != TN_CAT_INT) return 0;
        if (tnp_read_item(t, &s) < 0) return -1;
        *ret_value = s.i;
        return 1;
    }
    if (tnp_is_numpy_scalar(o)) return through_item(o, int_from_void, ret_value);
    if (PyFloat_Check(o) || !PyIndex_Check(o)) return 0;
    PyObject *whole = PyNumber_Index(o);
    if (!whole && tnp_is_numpy_array(o) && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* arrays have __index__, but only some are one integer */
        return 0;
    }
    if (!whole) return -1;
    int r = int_of_long(whole, ret_value);
    Py_DECREF(whole);
    return r;
}
