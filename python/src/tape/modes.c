/* modes.c: no_grad, enable_grad, set_grad_enabled, inference_mode: context managers that are
 * decorators, too.
 *
 * An object may be entered again while it is in use, as a decorated recursive function does; the old
 * states are kept as a stack of bits. */
#include "binding_priv.h"

enum { MAX_DEPTH = 64 };
typedef struct mode_object {
    PyObject_HEAD uint64_t old; /* recording, bit per level */
    uint64_t old_inference;
    int32_t depth;
    bool on; /* what it switches to */
    bool inference;
} mode_object;

static PyTypeObject *no_grad_type, *enable_grad_type, *set_type, *inference_type;

static PyObject *mode_new(PyTypeObject *type, bool on, bool inference) {
    mode_object *m = PyObject_New(mode_object, type);
    if (!m) return NULL;
    m->old = m->old_inference = 0;
    m->depth = 0;
    m->on = on;
    m->inference = inference;
    return (PyObject *)m;
}

static PyObject *decorate(PyObject *mode, PyObject *fn) {
    PyObject *f = tnp_helper("_tape.modes", "decorate");
    return f ? PyObject_CallFunctionObjArgs(f, mode, fn, NULL) : NULL;
}

/* no_grad() and enable_grad(); a function in place of nothing is decorated. */
static PyObject *plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *fn = NULL;
    if (!PyArg_ParseTuple(args, "|O", &fn)) return NULL;
    if (kwargs && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "a gradient mode takes no keyword arguments");
        return NULL;
    }
    PyObject *mode = mode_new(type, PyType_IsSubtype(type, enable_grad_type), false);
    if (!mode || !fn) return mode;
    PyObject *wrapped = decorate(mode, fn);
    Py_DECREF(mode);
    return wrapped;
}

/* set_grad_enabled(mode) takes effect at once and is undone when used with `with`. */
static PyObject *set_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"mode", NULL};
    int on;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "p:set_grad_enabled", names, &on)) return NULL;
    mode_object *m = (mode_object *)mode_new(type, on != 0, false);
    if (m) m->old = tn_grad_set_enabled(on) ? 1 : 0;
    return (PyObject *)m;
}

static PyObject *inference_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"mode", NULL};
    PyObject *mode = Py_True;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:inference_mode", names, &mode)) return NULL;
    bool fn = PyCallable_Check(mode);
    int on = fn ? 1 : PyObject_IsTrue(mode);
    PyObject *m = on < 0 ? NULL : mode_new(type, !on, on != 0);
    if (!m || !fn) return m;
    PyObject *wrapped = decorate(m, mode);
    Py_DECREF(m);
    return wrapped;
}

static void mode_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *enter(PyObject *self, PyObject *unused) {
    mode_object *m = (mode_object *)self;
    (void)unused;
    if (m->depth >= MAX_DEPTH) {
        PyErr_SetString(PyExc_RuntimeError, "a gradient mode was entered too often");
        return NULL;
    }
    bool is_inference = PyType_IsSubtype(Py_TYPE(self), inference_type);
    if (is_inference)
        m->old_inference = m->old_inference << 1 | (tn_inference_set_enabled(m->inference) != 0);
    /* inference_mode(False) is normal mode again, in which calls are recorded. */
    bool on = is_inference ? !m->inference : m->on;
    bool set_already = PyType_IsSubtype(Py_TYPE(self), set_type) && m->depth == 0;
    int old = tn_grad_set_enabled(on);
    if (!set_already) m->old = m->old << 1 | (old != 0);
    m->depth++;
    Py_RETURN_NONE;
}

static PyObject *leave(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    mode_object *m = (mode_object *)self;
    (void)args, (void)nargs;
    if (m->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "a gradient mode was left that was not entered");
        return NULL;
    }
    m->depth--;
    tn_grad_set_enabled((int)(m->old & 1u));
    m->old >>= 1;
    if (PyType_IsSubtype(Py_TYPE(self), inference_type)) {
        tn_inference_set_enabled((int)(m->old_inference & 1u));
        m->old_inference >>= 1;
    }
    Py_RETURN_NONE;
}

/* The decorated function gets a mode of its own, so a set_grad_enabled is undone here. */
static PyObject *mode_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *fn;
    mode_object *m = (mode_object *)self;
    if (kwargs && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "a gradient mode decorates one function");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O", &fn)) return NULL;
    if (PyType_IsSubtype(Py_TYPE(self), set_type)) tn_grad_set_enabled((int)(m->old & 1u));
    return decorate(self, fn);
}

static PyObject *clone(PyObject *self, PyObject *unused) {
    const mode_object *m = (const mode_object *)self;
    (void)unused;
    PyObject *copy = mode_new(Py_TYPE(self), m->on, m->inference);
    if (copy && PyType_IsSubtype(Py_TYPE(self), set_type))
        ((mode_object *)copy)->old = tn_grad_enabled() ? 1 : 0;
    return copy;
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", TNP_CFUNC(leave), METH_FASTCALL, NULL},
    {"clone", clone, METH_NOARGS, "Another object of the same mode."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *make(PyObject *module, const char *full, newfunc make_new, const char *doc) {
    PyType_Slot slots[] = {
        TNP_SLOT(Py_tp_new, make_new),       TNP_SLOT(Py_tp_dealloc, mode_dealloc),
        TNP_SLOT(Py_tp_call, mode_call),     TNP_SLOT(Py_tp_methods, methods),
        {Py_tp_doc, (void *)(uintptr_t)doc}, {0, NULL},
    };
    PyType_Spec spec = {full, sizeof(mode_object), 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObjectRef(module, strrchr(full, '.') + 1, type) < 0) return NULL;
    return (PyTypeObject *)type;
}

static PyObject *is_grad_enabled(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(tn_grad_enabled());
}
static PyObject *is_inference_enabled(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(tn_inference_enabled());
}

static PyObject *layer_find(PyObject *unused, PyObject *name) {
    int32_t id;
    (void)unused;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text) return NULL;
    tn_status st = tn_layer_find(text, &id);
    if (st != TN_OK) return tnp_raise(st);
    return PyLong_FromLong(id);
}

static PyObject *layer_enable(PyObject *unused, PyObject *args) {
    int id, on;
    (void)unused;
    if (!PyArg_ParseTuple(args, "ip:_layer_enable", &id, &on)) return NULL;
    return PyBool_FromLong(tn_layer_enable(id, on));
}

/* _autocast_set(device, enabled, dtype, cache) -> what it was; enabled -1 changes nothing. */
static PyObject *autocast_set(PyObject *unused, PyObject *args) {
    tn_device device;
    tn_autocast old, r;
    PyObject *where, *dtype = Py_None;
    int enabled = -1, use_cache = 1;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O|iOp:_autocast_set", &where, &enabled, &dtype, &use_cache))
        return NULL;
    if (!tnp_device_from(where, &device)) return NULL;
    if (tnp_check(tn_autocast_get(device.slot, &old)) < 0) return NULL;
    r = (tn_autocast){enabled, old.dtype, use_cache};
    if (dtype != Py_None) r.dtype = tnp_dtype_slot(dtype);
    if (enabled >= 0 && tnp_check(tn_autocast_set(device.slot, &r)) < 0) return NULL;
    return Py_BuildValue("iNi", (int)old.enabled, tnp_dtype_object(old.dtype), (int)old.cache);
}

static _Thread_local int regions; /* of autocast, that this thread is in */

static PyObject *autocast_enter(PyObject *unused, PyObject *args) {
    PyObject *old = autocast_set(unused, args);
    if (old) regions++;
    return old;
}

/* Behind the last region, converted parameters are dropped. */
static PyObject *autocast_leave(PyObject *unused, PyObject *args) {
    if (--regions <= 0) {
        regions = 0;
        tn_autocast_clear();
    }
    return autocast_set(unused, args);
}

static PyObject *autocast_clear(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    tn_autocast_clear();
    Py_RETURN_NONE;
}

/* ---- Regions of Python classes ------------------------------------------------------------------
 * Ctrl-C is raised between two steps of a Python function, the first of an __exit__ among them, and
 * what that was to undo would stay. _Region has both methods here: _region() says in Python what is
 * to be done and undone, (function, arguments) twice, and these are called without a step between. */

typedef struct region_object {
    PyObject ob_base;
    PyObject *open; /* a list of (function, arguments), of each time that it was entered */
} region_object;

static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    allocfunc make_object = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    region_object *r = (region_object *)make_object(type, 0);
    if (!r) return NULL;
    r->open = PyList_New(0);
    if (r->open) return (PyObject *)r;
    Py_DECREF(r);
    return NULL;
}

static void region_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(((region_object *)self)->open);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *region_enter(PyObject *self, PyObject *unused) {
    PyObject *change, *args, *undo, *undo_args, *open = ((region_object *)self)->open;
    (void)unused;
    PyObject *plan = PyObject_CallMethod(self, "_region", NULL);
    if (!plan) return NULL;
    PyObject *entry = NULL, *done = NULL;
    if (PyArg_ParseTuple(plan, "OO!OO!:_region", &change, &PyTuple_Type, &args, &undo,
                         &PyTuple_Type, &undo_args))
        entry = PyTuple_Pack(2, undo, undo_args);
    if (entry && PyList_Append(open, entry) == 0) {
        done = PyObject_CallObject(change, args);
        if (!done) {
            Py_ssize_t n = PyList_Size(open);
            PyObject *type, *value, *trace;
            PyErr_Fetch(&type, &value, &trace);
            if (PyList_SetSlice(open, n - 1, n, NULL) < 0) PyErr_Clear();
            PyErr_Restore(type, value, trace);
        }
    }
    Py_XDECREF(entry);
    Py_DECREF(plan);
    if (!done) return NULL;
    Py_DECREF(done);
    Py_INCREF(self);
    return self;
}

/* Needs no memory until what it calls does. */
static PyObject *region_leave(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    PyObject *done = NULL, *open = ((region_object *)self)->open;
    (void)args, (void)nargs;
    Py_ssize_t n = PyList_Size(open);
    if (n <= 0) return PyErr_Format(PyExc_RuntimeError, "a region was left that was not entered");
    PyObject *entry = PyList_GetItem(open, n - 1);
    Py_INCREF(entry);
    if (PyList_SetSlice(open, n - 1, n, NULL) == 0)
        done = PyObject_CallObject(PyTuple_GetItem(entry, 0), PyTuple_GetItem(entry, 1));
    Py_DECREF(entry);
    if (!done) return NULL;
    Py_DECREF(done);
    Py_RETURN_NONE;
}

/* A copy has been entered nowhere. */
static PyObject *region_state(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *names = PyObject_GetAttrString(self, "__dict__");
    PyObject *copy = names ? PyDict_Copy(names) : NULL;
    Py_XDECREF(names);
    return copy;
}

static PyMethodDef region_methods[] = {
    {"__getstate__", region_state, METH_NOARGS, NULL},
    {"__enter__", region_enter, METH_NOARGS, NULL},
    {"__exit__", TNP_CFUNC(region_leave), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static bool region_init(PyObject *module) {
    PyType_Slot slots[] = {TNP_SLOT(Py_tp_new, region_new),
                           TNP_SLOT(Py_tp_dealloc, region_dealloc),
                           TNP_SLOT(Py_tp_methods, region_methods),
                           {0, NULL}};
    PyType_Spec spec = {"tenon._C._Region", sizeof(region_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec);
    bool good = type && PyModule_AddObjectRef(module, "_Region", type) == 0;
    Py_XDECREF(type);
    return good;
}

/* _nothing(): what a region does that changes nothing. */
static PyObject *nothing(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_nothing", nothing, METH_NOARGS, "Does nothing."},
    {"_autocast_clear", autocast_clear, METH_NOARGS, "Drops converted parameters."},
    {"_autocast_enter", autocast_enter, METH_VARARGS, "_autocast_set in a region more."},
    {"_autocast_leave", autocast_leave, METH_VARARGS, "_autocast_set in a region less."},
    {"_autocast_set", autocast_set, METH_VARARGS, "Changes the autocast region of a device."},
    {"_layer_find", layer_find, METH_O, "The id of a layer; loads the plugin that offers it."},
    {"_layer_enable", layer_enable, METH_VARARGS, "Switches a layer of this thread."},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "True when operators are recorded."},
    {"is_inference_mode_enabled", is_inference_enabled, METH_NOARGS, "True in inference mode."},
    {NULL, NULL, 0, NULL},
};

bool tnp_modes_init(PyObject *module) {
    no_grad_type = make(module, "tenon.no_grad", plain_new, "Operators inside are not recorded.");
    enable_grad_type =
        make(module, "tenon.enable_grad", plain_new, "Operators inside are recorded.");
    set_type = make(module, "tenon.set_grad_enabled", set_new,
                    "set_grad_enabled(mode): switches recording on or off.");
    inference_type = make(module, "tenon.inference_mode", inference_new,
                          "inference_mode(mode=True): no recording and no version counting.");
    return region_init(module) && no_grad_type && enable_grad_type && set_type && inference_type &&
           PyModule_AddFunctions(module, functions) == 0;
}
