/* module.c: the extension module tenon._C: import, settings, and what belongs to no other file. */
#include "binding_priv.h"

/* ---- Hooks of the core -------------------------------------------------------------------------*/

/* Other threads get their turn meanwhile: they may be what stops this one. A thread that Python does not
 * know handles no signals, and must not wait for Python's lock, which the one that waits for it may hold. */
static tn_status poll(void) {
    if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return TN_OK;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (gil == PyGILState_LOCKED) {
        Py_BEGIN_ALLOW_THREADS;
        Py_END_ALLOW_THREADS;
    }
    tn_status st = PyErr_CheckSignals() < 0 ? TN_E_INTERRUPTED : TN_OK;
    PyGILState_Release(gil);
    return st;
}

static void log_message(int32_t level, const char *text) {
    if (level < 1 || !Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    /* A warning that was made an error has nowhere to go from here. */
    if (PyErr_WarnEx(PyExc_UserWarning, text, 1) < 0) PyErr_WriteUnraisable(NULL);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}

static char *where(void) {
    if (!Py_IsInitialized()) return NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *f = tnp_helper("_tape.graph", "where");
    PyObject *text = f ? PyObject_CallFunctionObjArgs(f, NULL) : NULL;
    Py_ssize_t n;
    const char *s = text ? PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    char *copy = s ? malloc((size_t)n + 1) : NULL;
    if (copy) memcpy(copy, s, (size_t)n + 1);
    Py_XDECREF(text);
    PyErr_Clear();
    PyGILState_Release(gil);
    return copy;
}

/* ---- Functions ---------------------------------------------------------------------------------*/

static PyObject *set_prefix(PyObject *unused, PyObject *name) {
    (void)unused;
    if (!PyUnicode_Check(name)) return tnp_type_error("the name must be str, not %U", name);
    PyObject *old = tnp.prefix;
    Py_INCREF(name);
    tnp.prefix = name;
    return old;
}

static PyObject *get_default_dtype(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return tnp_dtype_object(tn_dtype_default());
}

static PyObject *set_default_dtype(PyObject *unused, PyObject *dtype) {
    (void)unused;
    int32_t slot = tnp_dtype_slot(dtype);
    if (slot < 0) return tnp_type_error("set_default_dtype() takes a dtype, not %U", dtype);
    if (tnp_check(tn_dtype_set_default(slot)) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_default_device(PyObject *unused, PyObject *device) {
    bool before = tnp.new_device.slot != 0;
    (void)unused;
    if (!tnp_device_from(device, &tnp.new_device)) return NULL;
    tnp.new_device_set += (tnp.new_device.slot != 0) - before;
    Py_RETURN_NONE;
}
static PyObject *get_default_device(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return tnp_device_object_of(tnp_new_device());
}

static PyObject *promote_types(PyObject *unused, PyObject *args) {
    PyObject *a, *b, *taken;
    (void)unused;
    if (tnp_mode_takes("promote_types", args, NULL, &taken)) return taken;
    if (!PyArg_ParseTuple(args, "OO:promote_types", &a, &b)) return NULL;
    int32_t x = tnp_dtype_slot(a), y = tnp_dtype_slot(b);
    if (x < 0 || y < 0)
        return tnp_type_error("promote_types() takes dtypes, not %U", x < 0 ? a : b);
    int32_t both = tn_dtype_promote(x, y);
    return both == TN_NO_DTYPE ? tnp_raise(tn_dtype_check_promotes(x, y)) : tnp_dtype_object(both);
}

static PyObject *is_tensor(PyObject *unused, PyObject *o) {
    (void)unused;
    return PyBool_FromLong(tnp_is_tensor(o));
}

static PyObject *get_num_threads(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyLong_FromLong(tn_threads_get());
}
static PyObject *set_num_threads(PyObject *unused, PyObject *value) {
    int64_t n;
    (void)unused;
    int r = tnp_int_from(value, &n);
    if (r == 0) return tnp_type_error("set_num_threads expects an int, but got %U", value);
    if (r < 0) return NULL;
    if (n < 1 || n > 1024) {
        PyErr_SetString(PyExc_RuntimeError, "set_num_threads expects a positive integer");
        return NULL;
    }
    if (tnp_check(tn_threads_set((int32_t)n)) < 0) return NULL;
    Py_RETURN_NONE;
}

/* What somebody else wrote, which need not be UTF-8. */
static PyObject *told(const char *text) {
    if (!text) text = "";
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *explain(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"op", "device", "dtype", NULL};
    const char *op;
    PyObject *device = NULL, *dtype = NULL;
    tn_device d = {0, 0};
    char *text;
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|OO:explain", names, &op, &device, &dtype))
        return NULL;
    if (device && device != Py_None && !tnp_device_from(device, &d)) return NULL;
    int32_t slot = dtype && dtype != Py_None ? tnp_dtype_slot(dtype) : tn_dtype_default();
    if (slot < 0) return tnp_type_error("explain(): dtype must be a dtype, not %U", dtype);
    tn_status st = tn_explain(op, d, slot, &text);
    if (st != TN_OK) return tnp_raise(st);
    PyObject *r = told(text);
    tn_free(text);
    return r;
}

static PyObject *plugins(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    PyObject *list = PyList_New(0);
    tn_plugin_status p;
    for (int32_t i = 0; list && tn_plugin_at(i, &p) == TN_OK; i++) {
        PyObject *row = Py_BuildValue(
            "{sNsNsNsNsNsNsi}", "name", told(p.name), "version", told(p.version), "summary",
            told(p.summary), "path", PyUnicode_DecodeFSDefault(p.path ? p.path : ""), "problem",
            told(p.problem), "active", PyBool_FromLong(p.active), "kernels", (int)p.kernels);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *load_plugin(PyObject *unused, PyObject *path) {
    PyObject *bytes;
    (void)unused;
    if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
    tn_status st = tn_plugin_load(PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    if (tnp_check(st) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *retire_plugin(PyObject *unused, PyObject *name) {
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    tn_status st;
    (void)unused;
    if (!text) return NULL;
    /* It waits for the plugin's threads, which may want to say something. */
    Py_BEGIN_ALLOW_THREADS;
    st = tn_plugin_retire(text);
    Py_END_ALLOW_THREADS;
    if (tnp_check(st) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *prefer(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"plugin", "op", "device", NULL};
    const char *plugin, *op = NULL;
    PyObject *device = NULL;
    tn_device d = {-1, 0};
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "z|zO:prefer", names, &plugin, &op, &device))
        return NULL;
    if (device && device != Py_None && !tnp_device_from(device, &d)) return NULL;
    if (tnp_check(tn_plugin_prefer(plugin, op, d.slot)) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *describe(PyObject *unused, PyObject *device) {
    tn_device d;
    (void)unused;
    if (!tnp_device_from(device, &d)) return NULL;
    const char *text = tn_device_describe(d);
    return told(text);
}

static PyObject *synchronize(PyObject *unused, PyObject *device) {
    tn_device d;
    tn_status st;
    (void)unused;
    if (!tnp_device_from(device, &d)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = tn_device_sync(d);
    Py_END_ALLOW_THREADS;
    if (tnp_check(st) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *fallback_policy(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyLong_FromLong(tn_fallback_policy());
}

static PyObject *set_fallback_policy(PyObject *unused, PyObject *policy) {
    long number = PyLong_AsLong(policy);
    (void)unused;
    if (number == -1 && PyErr_Occurred()) return NULL;
    if (tnp_check(tn_fallback_set_policy((int32_t)number)) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *hide_kernels(PyObject *unused, PyObject *on) {
    int truth = PyObject_IsTrue(on);
    (void)unused;
    if (truth < 0 || tnp_check(tn_kernels_hide(truth)) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_switch(void (*set)(int), PyObject *on) {
    int truth = PyObject_IsTrue(on);
    if (truth < 0) return NULL;
    set(truth);
    Py_RETURN_NONE;
}

static PyObject *set_deterministic(PyObject *unused, PyObject *on) {
    (void)unused;
    return set_switch(tn_set_deterministic, on);
}

static PyObject *is_deterministic(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(tn_is_deterministic());
}

static PyObject *set_unset_filled(PyObject *unused, PyObject *on) {
    (void)unused;
    return set_switch(tn_set_unset_filled, on);
}

static PyObject *is_unset_filled(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(tn_is_unset_filled());
}

static PyObject *device_count(PyObject *unused, PyObject *name) {
    tn_device d;
    (void)unused;
    if (tnp_device_from(name, &d)) return PyLong_FromLong(tn_device_count(d.slot));
    /* a kind of which there is no device */
    for (int32_t i = 0; PyUnicode_Check(name) && i < TN_DEVICE_SLOTS; i++)
        if (tn_device_name(i) && PyUnicode_CompareWithASCIIString(name, tn_device_name(i)) == 0) {
            PyErr_Clear();
            return PyLong_FromLong(tn_device_count(i));
        }
    return NULL;
}

static PyObject *crc32(PyObject *unused, PyObject *args) {
    PyObject *data;
    unsigned int start = 0;
    Py_buffer view;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O|I:_crc32", &data, &start)) return NULL;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t crc;
    Py_BEGIN_ALLOW_THREADS;
    crc = tn_crc32(start, view.buf, (uint64_t)view.len);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef functions[] = {
    {"_set_prefix", set_prefix, METH_O, "Sets the name in reprs; returns the old one."},
    {"_result_type", tnp_result_type, METH_O, "The type of an operator's named results, or None."},
    {"get_default_dtype", get_default_dtype, METH_NOARGS, "The dtype of new floating tensors."},
    {"set_default_dtype", set_default_dtype, METH_O, "Sets the dtype of new floating tensors."},
    {"_set_default_device", set_default_device, METH_O, "Where new tensors are made."},
    {"_get_default_device", get_default_device, METH_NOARGS, "Where new tensors are made."},
    {"promote_types", promote_types, METH_VARARGS, "promote_types(type1, type2)"},
    {"is_tensor", is_tensor, METH_O, "True for tensors."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "Worker threads of the CPU."},
    {"set_num_threads", set_num_threads, METH_O, "Sets the worker threads of the CPU."},
    {"explain", TNP_CFUNC(explain), METH_VARARGS | METH_KEYWORDS,
     "explain(op, device='cpu', dtype=None): which kernel would run, and why."},
    {"plugins", plugins, METH_NOARGS, "What is known of every plugin, as dicts."},
    {"load_plugin", load_plugin, METH_O, "load_plugin(path): loads and activates a plugin."},
    {"retire_plugin", retire_plugin, METH_O,
     "retire_plugin(name): withdraws a plugin's kernels and devices; load_plugin brings them "
     "back."},
    {"prefer", TNP_CFUNC(prefer), METH_VARARGS | METH_KEYWORDS,
     "prefer(plugin, op=None, device=None): its kernels run before those of other plugins; None: "
     "as without."},
    {"_describe", describe, METH_O, "One line about a device."},
    {"_synchronize", synchronize, METH_O, "Waits for a device."},
    {"_device_count", device_count, METH_O, "Devices of that kind."},
    {"_fallback_policy", fallback_policy, METH_NOARGS, "The policy's number."},
    {"_set_deterministic", set_deterministic, METH_O, "Sets use_deterministic_algorithms."},
    {"_is_deterministic", is_deterministic, METH_NOARGS, "Whether it is set."},
    {"_set_unset_filled", set_unset_filled, METH_O, "Sets fill_uninitialized_memory."},
    {"_is_unset_filled", is_unset_filled, METH_NOARGS, "Whether it is set."},
    {"_set_fallback_policy", set_fallback_policy, METH_O, "Sets the policy by its number."},
    {"_crc32", crc32, METH_VARARGS, "_crc32(data, start=0): as zlib.crc32, which is slower."},
    {"_hide_kernels", hide_kernels, METH_O, "Operators that have formulas run by them, or not."},
    {NULL, NULL, 0, NULL},
};

/* ---- Import ------------------------------------------------------------------------------------*/

static bool intern_names(void) {
    tnp.prefix = PyUnicode_InternFromString("tenon");
    tnp.str_out = PyUnicode_InternFromString("out");
    tnp.str_requires_grad = PyUnicode_InternFromString("requires_grad");
    tnp.str_pin_memory = PyUnicode_InternFromString("pin_memory");
    tnp.str_layout = PyUnicode_InternFromString("layout");
    return tnp.prefix && tnp.str_out && tnp.str_requires_grad && tnp.str_pin_memory &&
           tnp.str_layout;
}

static bool init(PyObject *module) {
    static const tn_host_hooks hooks = {
        .struct_size = sizeof hooks,
        .tensor_dying = tnp_tensor_dying,
        .poll = poll,
        .log = log_message,
        .where = where,
        .admit_plugin = tnp_admit_plugin,
        .find_plugins = tnp_find_plugins,
    };
    if (!intern_names() || !tnp_error_init(module) || !tnp_dtype_init(module) ||
        !tnp_size_init(module) || !tnp_generator_init(module) || !tnp_tensor_init(module))
        return false;
    tn_host_set_hooks(&hooks);
    return tnp_ops_init(module) && tnp_added_init(module) && tnp_ffi_init(module) &&
           tnp_share_init(module) && tnp_group_init(module) && tnp_numbers_init() &&
           tnp_index_init(module) && tnp_memory_init(module) && tnp_program_init(module) &&
           tnp_quick_init(module) && tnp_factory_init(module) && tnp_modes_init(module) &&
           tnp_saved_hooks_init(module) && tnp_overrides_init(module) && tnp_wrapped_init(module) &&
           tnp_node_init(module) && tnp_autograd_init(module) && tnp_function_init(module) &&
           tnp_module_call_init(module) &&
           PyModule_AddStringConstant(module, "_version", tn_version()) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}

/* The module belongs to the interpreter that the process began with: types, hooks and caches are
 * there once. Another interpreter would free its objects with the wrong lock, so it gets an error
 * before it shares anything. Python calls this for every interpreter, because of the slot. */
static int start(PyObject *module) {
    static PyObject *first; /* owned */
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "tenon cannot be imported in a subinterpreter: import it in the main one");
        return -1;
    }
    if (first) /* somebody has removed it from sys.modules */
        return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(first));
    if (!init(module)) return -1;
    Py_INCREF(module);
    first = module;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, NULL}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "tenon._C",
    "Tenon's core, as Python sees it.",
    0,
    NULL,
    slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) {
    int (*const run)(PyObject *) = start;
    memcpy(&slots[0].value, &run, sizeof run); /* ISO C has no cast for it */
    return PyModuleDef_Init(&definition);
}
