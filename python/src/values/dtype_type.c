/* dtype_type.c: the small types that describe tensors: dtype, device, layout, memory_format, Size.
 *
 * dtypes, layouts and formats are singletons, compared by identity. A device object is a name and
 * an index; whether there is such a device is found out when something is put on it, so a program
 * may name one that this machine lacks. */
#include <stdio.h>

#include <tenon/wrapped.h>

#include "binding_priv.h"

typedef struct named_object { /* dtype, layout, memory_format */
    PyObject_HEAD int32_t value;
    char name[28];
} named_object;

static PyObject *dtypes[TN_DTYPE_SLOTS];
static PyObject *formats[4];
static PyObject *layouts[TN_LAYOUT_COUNT];
static PyObject *cpu_device;

static void plain_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *named_new(PyTypeObject *type, int32_t value, const char *name) {
    named_object *o = PyObject_New(named_object, type);
    if (!o) return NULL;
    o->value = value;
    snprintf(o->name, sizeof o->name, "%s", name);
    return (PyObject *)o;
}

static PyObject *named_repr(PyObject *self) {
    return PyUnicode_FromFormat("%U.%s", tnp.prefix, ((named_object *)self)->name);
}

/* Pickles as a look-up in this module, so that the same singleton comes back. */
static PyObject *named_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *f = tnp_helper("_C", "_named");
    return f ? Py_BuildValue("O(s)", f, ((named_object *)self)->name) : NULL;
}

static PyObject *same_object(PyObject *self, PyObject *unused) {
    (void)unused;
    Py_INCREF(self);
    return self;
}

/* ---- dtype -------------------------------------------------------------------------------------*/

PyObject *tnp_dtype_object(int32_t slot) {
    if (slot < 0 || slot >= TN_DTYPE_SLOTS || !tn_dtype_name(slot))
        return PyErr_Format(PyExc_ValueError, "there is no dtype %d", (int)slot);
    if (!dtypes[slot]) dtypes[slot] = named_new(tnp.dtype, slot, tn_dtype_name(slot));
    Py_XINCREF(dtypes[slot]);
    return dtypes[slot];
}

int32_t tnp_dtype_slot(PyObject *o) {
    if (Py_TYPE(o) == tnp.dtype) return ((named_object *)o)->value;
    if (o == (PyObject *)&PyFloat_Type) return TN_F64;
    if (o == (PyObject *)&PyLong_Type) return TN_I64;
    if (o == (PyObject *)&PyBool_Type) return TN_BOOL;
    if (o == (PyObject *)&PyComplex_Type) return TN_C128;
    return -1;
}

static int32_t slot_of(PyObject *self) { return ((named_object *)self)->value; }

static PyObject *dtype_is_floating(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(tn_dtype_category(slot_of(self)) == TN_CAT_FLOAT);
}
static PyObject *dtype_is_complex(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(tn_dtype_category(slot_of(self)) == TN_CAT_COMPLEX);
}
static PyObject *dtype_is_signed(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(tn_dtype_is_signed(slot_of(self)));
}
static PyObject *dtype_itemsize(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(tn_dtype_size(slot_of(self)));
}
static PyObject *dtype_to_real(PyObject *self, PyObject *unused) {
    (void)unused;
    int32_t s = slot_of(self);
    return tnp_dtype_object(s == TN_C64    ? TN_F32
                            : s == TN_C128 ? TN_F64
                            : s == TN_C32  ? TN_F16
                                           : s);
}
static PyObject *dtype_to_complex(PyObject *self, PyObject *unused) {
    (void)unused;
    int32_t s = slot_of(self);
    return tnp_dtype_object(s == TN_F64 || s == TN_C128  ? TN_C128
                            : s == TN_F16 || s == TN_C32 ? TN_C32
                                                         : TN_C64);
}

static PyObject *dtype_plugin(PyObject *self, void *unused) {
    (void)unused;
    const char *plugin = tn_dtype_plugin(slot_of(self));
    if (!plugin) Py_RETURN_NONE;
    return PyUnicode_FromString(plugin);
}

static PyGetSetDef dtype_getset[] = {
    {"is_floating_point", dtype_is_floating, NULL, "True for real floating-point dtypes.", NULL},
    {"is_complex", dtype_is_complex, NULL, "True for complex dtypes.", NULL},
    {"is_signed", dtype_is_signed, NULL, "True when values may be negative.", NULL},
    {"itemsize", dtype_itemsize, NULL, "Bytes of one element.", NULL},
    {"plugin", dtype_plugin, NULL, "The plugin that brought it; None where it is built in.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef dtype_methods[] = {
    {"to_real", dtype_to_real, METH_NOARGS, "The dtype of the real part."},
    {"to_complex", dtype_to_complex, METH_NOARGS, "The complex dtype of the same precision."},
    {"__reduce__", named_reduce, METH_NOARGS, NULL},
    {"__copy__", same_object, METH_NOARGS, NULL},
    {"__deepcopy__", same_object, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot dtype_slots[] = {
    TNP_SLOT(Py_tp_dealloc, plain_dealloc),
    TNP_SLOT(Py_tp_repr, named_repr),
    TNP_SLOT(Py_tp_getset, dtype_getset),
    TNP_SLOT(Py_tp_methods, dtype_methods),
    {0, NULL},
};
static PyType_Spec dtype_spec = {"tenon.dtype", sizeof(named_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 dtype_slots};

/* ---- layout, memory_format ---------------------------------------------------------------------*/

static PyMethodDef named_methods[] = {
    {"__reduce__", named_reduce, METH_NOARGS, NULL},
    {"__copy__", same_object, METH_NOARGS, NULL},
    {"__deepcopy__", same_object, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot named_slots[] = {
    TNP_SLOT(Py_tp_dealloc, plain_dealloc),
    TNP_SLOT(Py_tp_repr, named_repr),
    TNP_SLOT(Py_tp_methods, named_methods),
    {0, NULL},
};
static PyType_Spec layout_spec = {"tenon.layout", sizeof(named_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  named_slots};
static PyType_Spec format_spec = {"tenon.memory_format", sizeof(named_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  named_slots};

PyObject *tnp_format_object(int32_t format) {
    Py_INCREF(formats[format]);
    return formats[format];
}

PyObject *tnp_layout_object(int32_t layout) {
    if (layout == TN_LAYOUT_WRAPPED) layout = TN_LAYOUT_STRIDED; /* what its class says it is */
    Py_INCREF(layouts[layout]);
    return layouts[layout];
}

int32_t tnp_layout_value(PyObject *o) {
    return Py_TYPE(o) == tnp.layout ? ((named_object *)o)->value : -1;
}

int32_t tnp_format_value(PyObject *o) {
    return Py_TYPE(o) == tnp.format ? ((named_object *)o)->value : -1;
}

/* ---- device ------------------------------------------------------------------------------------*/

static PyObject *device_make(const char *name, size_t n, int32_t index) {
    tnp_device_object *d = PyObject_New(tnp_device_object, tnp.device);
    if (!d) return NULL;
    if (n >= sizeof d->name) n = sizeof d->name - 1;
    memcpy(d->name, name, n);
    d->name[n] = '\0';
    d->index = index;
    return (PyObject *)d;
}

/* Names that programs write whether or not the device is there. */
static bool well_known(const char *name, size_t n) {
    static const char *const names[] = {"cpu", "cuda", "mps",  "xpu", "meta",
                                        "hpu", "xla",  "mtia", "ipu", "maia"};
    for (int i = 0; i < TNP_COUNT(names); i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return true;
    return false;
}

static PyObject *device_from_text(PyObject *text) {
    Py_ssize_t len;
    const char *s = PyUnicode_AsUTF8AndSize(text, &len);
    if (!s) return NULL;
    size_t n = strcspn(s, ":");
    long index = -1;
    bool ok = n > 0 && n < sizeof((tnp_device_object *)NULL)->name && strlen(s) == (size_t)len;
    if (ok && s[n] == ':') {
        char *end;
        index = strtol(s + n + 1, &end, 10);
        ok = s[n + 1] >= '0' && s[n + 1] <= '9' && *end == '\0' && index < 256 &&
             !(s[n + 1] == '0' && s[n + 2] != '\0');
    }
    if (!ok) return PyErr_Format(PyExc_RuntimeError, "Invalid device string: '%U'", text);
    if (!well_known(s, n)) {
        tn_device found;
        tn_status st = tn_device_parse(s, &found);
        if (st != TN_OK) return tnp_raise(st);
    }
    return device_make(s, n, (int32_t)index);
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"type", "index", NULL}, *whole[] = {"device", NULL};
    PyObject *what = NULL, *index = Py_None;
    bool is_whole = kwargs && PyDict_GetItemString(kwargs, "device") != NULL;
    (void)type;
    if (is_whole ? !PyArg_ParseTupleAndKeywords(args, kwargs, "O:device", whole, &what)
                 : !PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", names, &what, &index))
        return NULL;
    if (Py_TYPE(what) == tnp.device && index == Py_None) {
        Py_INCREF(what);
        return what;
    }
    if (PyLong_Check(what) && index == Py_None) {
        long i = PyLong_AsLong(what);
        if (i == -1 && PyErr_Occurred()) return NULL;
        if (i < 0 || i > 255)
            return PyErr_Format(PyExc_RuntimeError, "Device index must not be negative");
        return device_make("cuda", 4, (int32_t)i);
    }
    if (!PyUnicode_Check(what))
        return PyErr_Format(PyExc_TypeError,
                            "device(): argument 'type' (position 1) must be str, not %R",
                            (PyObject *)Py_TYPE(what));
    PyObject *d = device_from_text(what);
    if (!d || index == Py_None) return d;
    long i = PyLong_AsLong(index);
    if (!PyErr_Occurred() && (((tnp_device_object *)d)->index >= 0 || i < -1 || i > 255))
        PyErr_SetString(PyExc_RuntimeError, "type (string) must not include an index when an index "
                                            "is passed, and an index is 0 to 255");
    if (PyErr_Occurred()) {
        Py_DECREF(d);
        return NULL;
    }
    ((tnp_device_object *)d)->index = (int32_t)i;
    return d;
}

static PyObject *device_str(PyObject *self) {
    tnp_device_object *d = (tnp_device_object *)self;
    if (d->index < 0) return PyUnicode_FromString(d->name);
    return PyUnicode_FromFormat("%s:%d", d->name, (int)d->index);
}
static PyObject *device_repr(PyObject *self) {
    tnp_device_object *d = (tnp_device_object *)self;
    if (d->index < 0) return PyUnicode_FromFormat("device(type='%s')", d->name);
    return PyUnicode_FromFormat("device(type='%s', index=%d)", d->name, (int)d->index);
}
static PyObject *device_type(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((tnp_device_object *)self)->name);
}
static PyObject *device_index(PyObject *self, void *unused) {
    (void)unused;
    int32_t i = ((tnp_device_object *)self)->index;
    if (i < 0) Py_RETURN_NONE;
    return PyLong_FromLong(i);
}
static PyObject *device_compare(PyObject *a, PyObject *b, int op) {
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != tnp.device || Py_TYPE(b) != tnp.device)
        Py_RETURN_NOTIMPLEMENTED;
    tnp_device_object *x = (tnp_device_object *)a, *y = (tnp_device_object *)b;
    bool same = x->index == y->index && strcmp(x->name, y->name) == 0;
    return PyBool_FromLong(same == (op == Py_EQ));
}
static Py_hash_t device_hash(PyObject *self) {
    tnp_device_object *d = (tnp_device_object *)self;
    Py_hash_t h = d->index + 1;
    for (const char *p = d->name; *p; p++) h = h * 31 + *p;
    return h == -1 ? -2 : h;
}
static PyObject *device_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return Py_BuildValue("O(N)", (PyObject *)tnp.device, device_str(self));
}

/* with device: new tensors are made there. */
static PyObject *device_enter(PyObject *self, PyObject *unused) {
    tn_device d;
    (void)unused;
    if (!tnp_device_from(self, &d) || !tnp_enter_device(d)) return NULL;
    Py_INCREF(self);
    return self;
}
static PyObject *device_exit(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    tnp_leave_device();
    Py_RETURN_NONE;
}
/* @device: the function runs in such a block. */
static PyObject *device_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *function;
    if (kwargs && PyDict_Size(kwargs) != 0)
        return PyErr_Format(PyExc_TypeError, "a device as a decorator takes no keywords");
    if (!PyArg_ParseTuple(args, "O:device", &function)) return NULL;
    PyObject *wrap = tnp_helper("_tensor.settings", "run_on_device");
    return wrap ? PyObject_CallFunctionObjArgs(wrap, self, function, NULL) : NULL;
}

static PyGetSetDef device_getset[] = {
    {"type", device_type, NULL, "The kind of device: 'cpu', 'cuda', ...", NULL},
    {"index", device_index, NULL, "Its number, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef device_methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, NULL},
    {"__enter__", device_enter, METH_NOARGS, NULL},
    {"__exit__", device_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot device_slots[] = {
    TNP_SLOT(Py_tp_dealloc, plain_dealloc),      TNP_SLOT(Py_tp_new, device_new),
    TNP_SLOT(Py_tp_call, device_call),           TNP_SLOT(Py_tp_str, device_str),
    TNP_SLOT(Py_tp_repr, device_repr),           TNP_SLOT(Py_tp_hash, device_hash),
    TNP_SLOT(Py_tp_richcompare, device_compare), TNP_SLOT(Py_tp_getset, device_getset),
    TNP_SLOT(Py_tp_methods, device_methods),     {0, NULL},
};
static PyType_Spec device_spec = {"tenon.device", sizeof(tnp_device_object), 0, Py_TPFLAGS_DEFAULT,
                                  device_slots};

PyObject *tnp_device_object_of(tn_device device) {
    if (device.slot == 0) {
        Py_INCREF(cpu_device);
        return cpu_device;
    }
    const char *name = tn_device_name(device.slot);
    if (!name) return PyErr_Format(PyExc_RuntimeError, "there is no device %d", (int)device.slot);
    return device_make(name, strlen(name), device.slot == TN_META_SLOT ? -1 : device.index);
}

bool tnp_device_from(PyObject *o, tn_device *ret_device) {
    char text[40];
    if (o == cpu_device) {
        *ret_device = (tn_device){0, 0};
        return true;
    }
    if (Py_TYPE(o) == tnp.device) {
        Py_INCREF(o);
    } else if (PyUnicode_Check(o)) {
        o = device_from_text(o);
    } else if (PyLong_Check(o) && !PyBool_Check(o)) {
        o = PyObject_CallFunctionObjArgs((PyObject *)tnp.device, o, NULL);
    } else {
        PyErr_Format(PyExc_TypeError, "device must be a device, str or int, not %R",
                     (PyObject *)Py_TYPE(o));
        return false;
    }
    if (!o) return false;
    tnp_device_object *d = (tnp_device_object *)o;
    if (d->index < 0)
        snprintf(text, sizeof text, "%s", d->name);
    else
        snprintf(text, sizeof text, "%s:%d", d->name, (int)d->index);
    Py_DECREF(o);
    return tnp_check(tn_device_parse(text, ret_device)) == 0;
}

/* ---- Import ------------------------------------------------------------------------------------*/

static PyObject *find_named(PyObject *unused, PyObject *name) {
    (void)unused;
    for (int i = 0; i < TN_LAYOUT_COUNT; i++)
        if (PyUnicode_CompareWithASCIIString(name, tn_layout_name(i)) == 0)
            return tnp_layout_object(i);
    for (int i = 0; i < TNP_COUNT(formats); i++)
        if (PyUnicode_CompareWithASCIIString(name, ((named_object *)formats[i])->name) == 0)
            return tnp_format_object(i);
    const char *s = PyUnicode_AsUTF8AndSize(name, NULL);
    int32_t slot;
    if (!s) return NULL;
    if (tn_dtype_parse(s, &slot) != TN_OK)
        return PyErr_Format(PyExc_ValueError, "there is no dtype named '%U': %s", name,
                            tn_error_last()->message);
    return tnp_dtype_object(slot);
}

static PyMethodDef functions[] = {
    {"_named", find_named, METH_O, "The dtype, layout or memory format of that name."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name) {
    PyObject *type = PyType_FromSpec(spec);
    if (!type || PyModule_AddObjectRef(module, name, type) < 0) return NULL;
    return (PyTypeObject *)type;
}

static bool add_dtypes(PyObject *module) {
    static const struct {
        const char *alias;
        int32_t slot;
    } aliases[] = {
        {"half", TN_F16},   {"float", TN_F32},    {"double", TN_F64},
        {"short", TN_I16},  {"int", TN_I32},      {"long", TN_I64},
        {"cfloat", TN_C64}, {"cdouble", TN_C128}, {"chalf", TN_C32},
    };
    for (int32_t i = 0; i < TN_DTYPE_CORE_COUNT; i++) {
        PyObject *o = tnp_dtype_object(i);
        if (!o || PyModule_AddObjectRef(module, tn_dtype_name(i), o) < 0) return false;
        Py_DECREF(o);
    }
    for (int i = 0; i < TNP_COUNT(aliases); i++)
        if (PyModule_AddObjectRef(module, aliases[i].alias, dtypes[aliases[i].slot]) < 0)
            return false;
    return true;
}

bool tnp_dtype_init(PyObject *module) {
    static const char *const format_names[] = {"contiguous_format", "preserve_format",
                                               "channels_last", "channels_last_3d"};
    tnp.dtype = add_type(module, &dtype_spec, "dtype");
    tnp.layout = add_type(module, &layout_spec, "layout");
    tnp.format = add_type(module, &format_spec, "memory_format");
    tnp.device = add_type(module, &device_spec, "device");
    if (!tnp.dtype || !tnp.layout || !tnp.format || !tnp.device) return false;
    for (int i = 0; i < TN_LAYOUT_COUNT; i++) {
        layouts[i] = named_new(tnp.layout, i, tn_layout_name(i));
        if (!layouts[i] || PyModule_AddObjectRef(module, tn_layout_name(i), layouts[i]) < 0)
            return false;
    }
    for (int i = 0; i < TNP_COUNT(formats); i++) {
        formats[i] = named_new(tnp.format, i, format_names[i]);
        if (!formats[i] || PyModule_AddObjectRef(module, format_names[i], formats[i]) < 0)
            return false;
    }
    cpu_device = device_make("cpu", 3, -1);
    return cpu_device && add_dtypes(module) && PyModule_AddFunctions(module, functions) == 0;
}
