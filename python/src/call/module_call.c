/* module_call.c: calls of nn modules. A module that nobody hooked goes from Python's call straight to its
 * forward; for some classes of nn, which say so, forward is one operator of the module's own attributes
 * and that is called at once, with no frame of Python.
 *
 * Note [Plans]
 * A plan takes the place of a forward only while nothing can tell them apart: the class is the very
 * one, its forward and what that calls by name are what they were, the instance has no forward of its
 * own, and its attributes have the values that the plan was made for. Where the function that forward
 * calls is not the operator itself, no class and no mode may want to see it. Everything else goes the
 * long way, through Python. Parameters and children are found in the instance's dictionary, where _slots.py
 * mirrors them. */
#include "binding_priv.h"

enum { MAX_PLANS = 16, MAX_ARGS = 8, MAX_WHEN = 4, HOOK_DICTS = 4 };

typedef PyObject *(*fast_call)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

typedef struct plan {
    PyObject *kind, *forward;
    PyObject *space, *name,
        *known; /* space[name] must still be `known`; NULL: a chain of children */
    PyObject *op;
    fast_call fn;
    Py_ssize_t nargs, nwhen;
    PyObject *args[MAX_ARGS];                   /* attributes; NULL: the input */
    PyObject *when[MAX_WHEN], *value[MAX_WHEN]; /* attributes that must be these; NULL: absent */
} plan;

static plan plans[MAX_PLANS];
static int plan_count;
static PyObject *hook_names[HOOK_DICTS], *str_forward, *str_modules, *global_hooks;

/* Borrowed; NULL without an exception where it is not there. */
static PyObject *find(PyObject *dict, PyObject *name) {
    PyObject *value = PyDict_GetItemWithError(dict, name);
    if (TNP_UNLIKELY(!value) && PyErr_Occurred()) PyErr_Clear();
    return value;
}

/* Whether there are no hooks, by the module's dictionary. */
static bool is_plain(PyObject *own) {
    if (TNP_UNLIKELY(!global_hooks || PyDict_Size(global_hooks) != 0)) return false;
    for (int i = 0; i < HOOK_DICTS; i++) {
        PyObject *hooks = find(own, hook_names[i]);
        if (TNP_UNLIKELY(!hooks || !PyDict_Check(hooks) || PyDict_Size(hooks) != 0)) return false;
    }
    return true;
}

static const plan *plan_of(PyObject *self, PyObject *own) {
    PyObject *kind = (PyObject *)Py_TYPE(self);
    for (int i = 0; i < plan_count; i++) {
        const plan *p = &plans[i];
        if (p->kind != kind) continue;
        PyObject *forward = PyObject_GetAttr(kind, str_forward);
        Py_XDECREF(forward); /* the plan holds the one that counts */
        if (!forward) PyErr_Clear();
        if (forward != p->forward || find(own, str_forward)) return NULL;
        if (p->space && find(p->space, p->name) != p->known) return NULL;
        for (Py_ssize_t w = 0; w < p->nwhen; w++)
            if (find(own, p->when[w]) != p->value[w]) return NULL;
        return p;
    }
    return NULL;
}

/* One child after the other. */
static PyObject *run_chain(PyObject *own, PyObject *input) {
    PyObject *children = find(own, str_modules);
    PyObject *list = children && PyDict_Check(children) ? PyDict_Values(children) : NULL;
    if (!list) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_AttributeError, "_modules");
        return NULL;
    }
    Py_INCREF(input);
    for (Py_ssize_t i = 0; input && i < PyList_Size(list); i++) {
        PyObject *result = PyObject_CallFunctionObjArgs(PyList_GetItem(list, i), input, NULL);
        Py_DECREF(input);
        input = result;
    }
    Py_DECREF(list);
    return input;
}

/* NULL without an exception: the plan does not serve this call. */
static PyObject *run_plan(const plan *p, PyObject *own, PyObject *input) {
    PyObject *args[MAX_ARGS], *result = NULL;
    Py_ssize_t held = 0;
    if (!p->fn) {
        /* Other devices may join neighbours (_fused.py). */
        if (Py_TYPE(input) == tnp.tensor && tn_tensor_device(tnp_of(input)).slot != 0) return NULL;
        return run_chain(own, input);
    }
    for (; held < p->nargs; held++) {
        PyObject *v = p->args[held] ? find(own, p->args[held]) : input;
        if (!v || (p->known != p->op && tnp_overrides(v))) break;
        Py_INCREF(v);
        args[held] = v;
    }
    if (held == p->nargs) result = p->fn(PyCFunction_GetSelf(p->op), args, held, NULL);
    while (held > 0) Py_DECREF(args[--held]);
    return result;
}

static PyObject *call_forward(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *forward = PyObject_GetAttr(self, str_forward);
    PyObject *result = forward ? PyObject_Call(forward, args, kwargs) : NULL;
    Py_XDECREF(forward);
    return result;
}

static PyObject *call_long_way(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *method = PyObject_GetAttrString(self, "_call_impl");
    PyObject *result = method ? PyObject_Call(method, args, kwargs) : NULL;
    Py_XDECREF(method);
    return result;
}

/* A note to the exception that is set: which module it came up in. */
static void note_module(PyObject *self) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    PyObject *note = value ? tnp_helper("nn.modules._calls", "note_module") : NULL;
    PyObject *done = note ? PyObject_CallFunctionObjArgs(note, self, value, NULL) : NULL;
    if (!done) PyErr_Clear(); /* the first error is the one to tell */
    Py_XDECREF(done);
    PyErr_Restore(kind, value, trace);
}

static PyObject *call_module(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *own = PyObject_GenericGetDict(self, NULL), *result = NULL;
    if (!own) return NULL;
    if (TNP_UNLIKELY(!is_plain(own))) {
        result = call_long_way(self, args, kwargs);
        goto out;
    }
    if (PyTuple_Size(args) == 1 && (!kwargs || PyDict_Size(kwargs) == 0)) {
        const plan *p = plan_of(self, own);
        if (p) result = run_plan(p, own, PyTuple_GetItem(args, 0));
        if (result || PyErr_Occurred()) goto out;
    }
    result = call_forward(self, args, kwargs);
out:
    if (TNP_UNLIKELY(!result)) note_module(self);
    Py_DECREF(own);
    return result;
}

/* ---- Plans -------------------------------------------------------------------------------------*/

static PyObject *interned(PyObject *name) {
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    return name;
}

static bool read_args(plan *p, PyObject *args) {
    p->nargs = PyTuple_Size(args);
    if (p->nargs > MAX_ARGS) return false;
    for (Py_ssize_t i = 0; i < p->nargs; i++) {
        PyObject *name = PyTuple_GetItem(args, i);
        p->args[i] = name == Py_None ? NULL : interned(name);
    }
    return true;
}

static bool read_when(plan *p, PyObject *when) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (PyDict_Size(when) > MAX_WHEN) return false;
    while (PyDict_Next(when, &at, &name, &value)) {
        p->when[p->nwhen] = interned(name);
        p->value[p->nwhen++] = value == Py_Ellipsis ? NULL : value;
        if (value != Py_Ellipsis) Py_INCREF(value);
    }
    return true;
}

static PyObject *add_plan(PyObject *unused, PyObject *a) {
    plan p = {0};
    PyObject *args, *when;
    (void)unused;
    if (!PyArg_ParseTuple(a, "OOOUOOO!O!:_plan_module", &p.kind, &p.forward, &p.space, &p.name,
                          &p.known, &p.op, &PyTuple_Type, &args, &PyDict_Type, &when))
        return NULL;
    bool chain = p.op == Py_None;
    if (plan_count == MAX_PLANS || (!chain && !PyCFunction_Check(p.op)) ||
        (!chain && PyCFunction_GetFlags(p.op) != (METH_FASTCALL | METH_KEYWORDS)) ||
        !read_args(&p, args) || !read_when(&p, when)) {
        PyErr_SetString(PyExc_SystemError, "_plan_module: no such plan");
        return NULL;
    }
    if (chain)
        p.space = NULL;
    else
        p.fn = (fast_call)(void (*)(void))PyCFunction_GetFunction(p.op);
    p.name = interned(p.name);
    PyObject *kept[] = {p.kind, p.forward, p.space, p.known, p.op};
    for (int i = 0; i < TNP_COUNT(kept); i++) Py_XINCREF(kept[i]);
    plans[plan_count++] = p;
    Py_RETURN_NONE;
}

static PyObject *set_global_hooks(PyObject *unused, PyObject *hooks) {
    (void)unused;
    if (!PyDict_Check(hooks)) return tnp_type_error("_module_hooks(): a dict, not %U", hooks);
    Py_INCREF(hooks);
    Py_XDECREF(global_hooks);
    global_hooks = hooks;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_plan_module", add_plan, METH_VARARGS,
     "(class, forward, namespace, name, value, operator or None, arguments, when)"},
    {"_module_hooks", set_global_hooks, METH_O, "The dictionary that is empty without hooks."},
    {NULL, NULL, 0, NULL},
};

bool tnp_module_call_init(PyObject *module) {
    static const char *const names[HOOK_DICTS] = {"_forward_hooks", "_forward_pre_hooks",
                                                  "_backward_hooks", "_backward_pre_hooks"};
    static PyType_Slot slots[] = {
        TNP_SLOT(Py_tp_call, call_module),
        TNP_SLOT(Py_tp_doc, "What nn.Module is called by."),
        {0, NULL},
    };
    static PyType_Spec spec = {"tenon._C._ModuleCall", 0, 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    for (int i = 0; i < HOOK_DICTS; i++)
        if (!(hook_names[i] = PyUnicode_InternFromString(names[i]))) return false;
    str_forward = PyUnicode_InternFromString("forward");
    str_modules = PyUnicode_InternFromString("_modules");
    PyObject *type = str_forward && str_modules ? PyType_FromSpec(&spec) : NULL;
    bool ok = type && PyModule_AddObjectRef(module, "_ModuleCall", type) == 0;
    Py_XDECREF(type);
    return ok && PyModule_AddFunctions(module, functions) == 0;
}
