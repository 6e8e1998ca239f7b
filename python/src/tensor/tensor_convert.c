/* tensor_convert.c: Tensor.to() and its short forms. */
#include "binding_priv.h"

static PyObject *convert(PyObject *self, const tnp_target *to) {
    tn_tensor *r = tnp_to_target(tnp_of(self), to);
    return r ? tnp_same_class(self, tnp_wrap(r)) : NULL;
}

static bool take_device(PyObject *o, tnp_target *to) {
    if (!tnp_device_from(o, &to->device)) return false;
    to->moves = true;
    return true;
}

static bool take_format(PyObject *o, tnp_target *to) {
    if (o == Py_None) return true;
    to->format = tnp_format_value(o);
    if (to->format >= 0) return true;
    return tnp_type_error("to(): argument 'memory_format' must be memory_format, not %U", o) !=
           NULL;
}

static bool take_dtype(PyObject *o, tnp_target *to) {
    to->dtype = tnp_dtype_slot(o);
    if (to->dtype >= 0) return true;
    return tnp_type_error("to(): argument 'dtype' must be dtype, not %U", o) != NULL;
}

static bool take_flag(PyObject *o, bool *ret_flag) {
    *ret_flag = o == Py_True;
    if (PyBool_Check(o)) return true;
    tnp_error_about(PyExc_TypeError, "to(): non_blocking and copy must be bool, not %U", o);
    return false;
}

static bool take_keyword(PyObject *name, PyObject *value, tnp_target *to) {
    if (PyUnicode_CompareWithASCIIString(name, "non_blocking") == 0)
        return take_flag(value, &to->non_blocking);
    if (PyUnicode_CompareWithASCIIString(name, "copy") == 0) return take_flag(value, &to->copy);
    if (value == Py_None) return true;
    if (PyUnicode_CompareWithASCIIString(name, "dtype") == 0) return take_dtype(value, to);
    if (PyUnicode_CompareWithASCIIString(name, "device") == 0) return take_device(value, to);
    if (PyUnicode_CompareWithASCIIString(name, "memory_format") == 0) return take_format(value, to);
    if (PyUnicode_CompareWithASCIIString(name, "other") == 0 && tnp_is_tensor(value)) {
        to->dtype = tn_tensor_dtype(tnp_of(value));
        to->device = tn_tensor_device(tnp_of(value));
        return to->moves = true;
    }
    PyErr_Format(PyExc_TypeError, "to() got an unexpected keyword argument '%U'", name);
    return false;
}

/* to(dtype, ...), to(device, dtype, ...), to(other, ...); then non_blocking, copy. */
static PyObject *to(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    tnp_target t = {.dtype = -1, .format = TN_FORMAT_PRESERVE};
    Py_ssize_t at = 0, nkw = kwnames ? PyTuple_Size(kwnames) : 0;
    bool ok = true;
    if (n > 0 && tnp_is_tensor(args[0])) {
        t.dtype = tn_tensor_dtype(tnp_of(args[0]));
        t.device = tn_tensor_device(tnp_of(args[0]));
        t.moves = true;
        at = 1;
    } else if (n > 0 && tnp_dtype_slot(args[0]) >= 0) {
        t.dtype = tnp_dtype_slot(args[0]);
        at = 1;
    } else if (n > 0 && (args[0] == Py_None || tnp_is_device_like(args[0]) ||
                         (PyLong_Check(args[0]) && !PyBool_Check(args[0])))) {
        ok = args[0] == Py_None || take_device(args[0], &t);
        at = 1;
        if (ok && n > 1 && !PyBool_Check(args[1])) {
            ok = args[1] == Py_None || take_dtype(args[1], &t);
            at = 2;
        }
    }
    if (ok && at < n) ok = at > 0 && take_flag(args[at++], &t.non_blocking);
    if (ok && at < n) ok = take_flag(args[at++], &t.copy);
    if ((!ok || at < n) && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError,
                        "to() received an invalid combination of arguments: expected (dtype), "
                        "(device, dtype) or (other), then non_blocking, copy, *, memory_format");
    if (PyErr_Occurred()) return NULL;
    for (Py_ssize_t i = 0; i < nkw; i++)
        if (!take_keyword(PyTuple_GetItem(kwnames, i), args[n + i], &t)) return NULL;
    return convert(self, &t); /* to() of nothing is the tensor itself */
}

/* ---- Short forms -------------------------------------------------------------------------------*/

static PyObject *cast(PyObject *self, PyObject *args, PyObject *kwargs, int32_t dtype) {
    static char *names[] = {"memory_format", NULL};
    tnp_target t = {.dtype = dtype, .format = TN_FORMAT_PRESERVE};
    PyObject *format = NULL;
    if ((args && PyTuple_Size(args) > 0) || kwargs) {
        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &format)) return NULL;
        if (format && !take_format(format, &t)) return NULL;
    }
    return convert(self, &t);
}

static PyObject *to_bool(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_BOOL);
}
static PyObject *to_byte(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_U8);
}
static PyObject *to_char(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_I8);
}
static PyObject *to_short(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_I16);
}
static PyObject *to_int(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_I32);
}
static PyObject *to_long(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_I64);
}
static PyObject *to_half(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_F16);
}
static PyObject *to_bfloat16(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_BF16);
}
static PyObject *to_float(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_F32);
}
static PyObject *to_double(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_F64);
}
static PyObject *to_chalf(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_C32);
}
static PyObject *to_cfloat(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_C64);
}
static PyObject *to_cdouble(PyObject *self, PyObject *args, PyObject *kwargs) {
    return cast(self, args, kwargs, TN_C128);
}

static PyObject *cpu(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"memory_format", NULL};
    tnp_target t = {.dtype = -1, .moves = true, .format = TN_FORMAT_PRESERVE};
    PyObject *format = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:cpu", names, &format)) return NULL;
    if (format && !take_format(format, &t)) return NULL;
    return convert(self, &t);
}

static PyObject *cuda(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", "non_blocking", "memory_format", NULL};
    tnp_target t = {.dtype = -1, .format = TN_FORMAT_PRESERVE};
    PyObject *device = Py_None, *format = NULL;
    int non_blocking = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OpO:cuda", names, &device, &non_blocking,
                                     &format))
        return NULL;
    PyObject *name = device == Py_None ? PyUnicode_FromString("cuda") : device;
    t.non_blocking = non_blocking != 0;
    bool ok = name && take_device(name, &t) && (!format || take_format(format, &t));
    if (name != device) Py_XDECREF(name);
    return ok ? convert(self, &t) : NULL;
}

static PyObject *type_as(PyObject *self, PyObject *other) {
    if (!tnp_is_tensor(other)) return tnp_type_error("type_as() takes a Tensor, not %U", other);
    tnp_target t = {.dtype = tn_tensor_dtype(tnp_of(other)),
                    .moves = true,
                    .device = tn_tensor_device(tnp_of(other)),
                    .format = TN_FORMAT_PRESERVE};
    return convert(self, &t);
}

#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
PyMethodDef tnp_conversion_methods[] = {
    {"to", TNP_CFUNC(to), METH_FASTCALL | METH_KEYWORDS,
     "to(dtype) or to(device, dtype) or to(other), non_blocking=False, copy=False\n\n"
     "The tensor with that dtype and device; itself when it has them already."},
    {"bool", TNP_CFUNC(to_bool), KEYWORDS, "to(bool)"},
    {"byte", TNP_CFUNC(to_byte), KEYWORDS, "to(uint8)"},
    {"char", TNP_CFUNC(to_char), KEYWORDS, "to(int8)"},
    {"short", TNP_CFUNC(to_short), KEYWORDS, "to(int16)"},
    {"int", TNP_CFUNC(to_int), KEYWORDS, "to(int32)"},
    {"long", TNP_CFUNC(to_long), KEYWORDS, "to(int64)"},
    {"half", TNP_CFUNC(to_half), KEYWORDS, "to(float16)"},
    {"bfloat16", TNP_CFUNC(to_bfloat16), KEYWORDS, "to(bfloat16)"},
    {"float", TNP_CFUNC(to_float), KEYWORDS, "to(float32)"},
    {"double", TNP_CFUNC(to_double), KEYWORDS, "to(float64)"},
    {"chalf", TNP_CFUNC(to_chalf), KEYWORDS, "to(complex32)"},
    {"cfloat", TNP_CFUNC(to_cfloat), KEYWORDS, "to(complex64)"},
    {"cdouble", TNP_CFUNC(to_cdouble), KEYWORDS, "to(complex128)"},
    {"cpu", TNP_CFUNC(cpu), KEYWORDS, "The tensor in the memory of the CPU."},
    {"cuda", TNP_CFUNC(cuda), KEYWORDS, "cuda(device=None): the tensor on a CUDA device."},
    {"type_as", type_as, METH_O, "The tensor with another's dtype and device."},
    {NULL, NULL, 0, NULL},
};
