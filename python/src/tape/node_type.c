/* node_type.c: Node, a recorded call as Python sees it, and handles of hooks.
 *
 * A Node object is a reference to the core's node, which knows its object while there is one: asking
 * twice gives the same. The node of an autograd.Function is shown as its ctx (function.c). */
#include "binding_priv.h"

typedef tnp_node_head node_object;

typedef struct hook_object {
    PyObject_HEAD tn_hook *hook;
} hook_object;

PyTypeObject *tnp_node_type;
static PyTypeObject *hook_type;

/* ---- Helpers of hooks --------------------------------------------------------------------------*/

PyObject *tnp_tuple_of(tn_tensor *const *v, int64_t n) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (int64_t i = 0; tuple && i < n; i++)
        PyTuple_SetItem(tuple, (Py_ssize_t)i, tnp_wrap_opt(tn_tensor_ref(v[i])));
    return tuple;
}

tn_status tnp_hook_result(PyObject *result, tn_tensor **ret_tensor) {
    tn_status st = result ? TN_OK : TN_E_HOST;
    if (result && result != Py_None) {
        if (tnp_is_tensor(result)) {
            *ret_tensor = tn_tensor_ref(tnp_of(result));
        } else {
            tnp_type_error("expected Variable, but hook returned '%U'", result);
            st = TN_E_HOST;
        }
    }
    Py_XDECREF(result);
    return st;
}

/* A tuple of replacements, or None. Takes over `result`. */
static tn_status replacements(PyObject *result, tn_tensor **ret, int64_t n) {
    if (!result) return TN_E_HOST;
    tn_status st = TN_OK;
    bool single = n == 1 && tnp_is_tensor(result);
    if (single) return tnp_hook_result(result, ret);
    if (result != Py_None && (!PyTuple_Check(result) || PyTuple_Size(result) != n)) {
        PyErr_Format(PyExc_TypeError, "a hook must return None or a tuple of %lld Tensors",
                     (long long)n);
        st = TN_E_HOST;
    }
    for (int64_t i = 0; st == TN_OK && result != Py_None && i < n; i++) {
        PyObject *item = PyTuple_GetItem(result, (Py_ssize_t)i);
        Py_INCREF(item);
        st = tnp_hook_result(item, &ret[i]);
    }
    Py_DECREF(result);
    return st;
}

static tn_status run_pre_hook(void *ctx, tn_tensor *const *grads, int64_t n, tn_tensor **ret) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *tuple = tnp_tuple_of(grads, n);
    PyObject *r = tuple ? PyObject_CallFunctionObjArgs(ctx, tuple, NULL) : NULL;
    Py_XDECREF(tuple);
    tn_status st = replacements(r, ret, n);
    PyGILState_Release(gil);
    return st;
}

static tn_status run_post_hook(void *ctx, tn_tensor *const *results, int64_t n,
                               tn_tensor *const *grads, int64_t ngrads, tn_tensor **ret) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *inputs = tnp_tuple_of(results, n), *outputs = tnp_tuple_of(grads, ngrads);
    PyObject *r =
        inputs && outputs ? PyObject_CallFunctionObjArgs(ctx, inputs, outputs, NULL) : NULL;
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    tn_status st = replacements(r, ret, n);
    PyGILState_Release(gil);
    return st;
}

/* ---- Handles -----------------------------------------------------------------------------------*/

PyObject *tnp_hook_object(tn_hook *hook) {
    PyObject *handle = tnp_helper("_tape.hooks", "TensorHookHandle");
    hook_object *o = handle ? PyObject_New(hook_object, hook_type) : NULL;
    if (!o) {
        tn_hook_remove(&hook);
        return NULL;
    }
    o->hook = hook;
    PyObject *r = PyObject_CallFunctionObjArgs(handle, (PyObject *)o, NULL);
    Py_DECREF((PyObject *)o);
    return r;
}

static void hook_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    hook_object *h = (hook_object *)self;
    if (h->hook) tn_hook_forget(&h->hook);
    PyObject_Free(self);
    Py_DECREF(type);
}
static PyObject *hook_remove(PyObject *self, PyObject *unused) {
    (void)unused;
    hook_object *h = (hook_object *)self;
    if (h->hook) tn_hook_remove(&h->hook);
    Py_RETURN_NONE;
}
static PyMethodDef hook_methods[] = {
    {"remove", hook_remove, METH_NOARGS, "Takes the hook away."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot hook_slots[] = {
    TNP_SLOT(Py_tp_dealloc, hook_dealloc),
    TNP_SLOT(Py_tp_methods, hook_methods),
    {0, NULL},
};

/* ---- Node --------------------------------------------------------------------------------------*/

/* One class per name, made when a node of that name is first looked at; kept for ever. */
static PyTypeObject *class_of(const char *name) {
    char full[160];
    static PyObject *classes;
    static PyType_Slot nothing[] = {{0, NULL}};
    if (!classes && !(classes = PyDict_New())) return NULL;
    PyObject *known = PyDict_GetItemString(classes, name);
    if (known) return (PyTypeObject *)known;
    PyOS_snprintf(full, sizeof full, "builtins.%s", name); /* so that repr() shows the name alone */
    PyType_Spec spec = {full, sizeof(node_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, nothing};
    PyObject *bases = PyTuple_Pack(1, (PyObject *)tnp_node_type);
    PyObject *made = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    if (made && PyDict_SetItemString(classes, name, made) < 0) Py_CLEAR(made);
    Py_XDECREF(made); /* the dict holds it */
    return (PyTypeObject *)made;
}

PyObject *tnp_node_object(tn_node *node) {
    char name[128];
    tn_node_host *host = tn_node_host_slots(node);
    if (!host) return tnp_raise(TN_E_MEMORY);
    if (host->object) {
        Py_INCREF((PyObject *)host->object);
        return host->object;
    }
    PyTypeObject *type = class_of(tn_node_name(node, name, sizeof name));
    node_object *o = type ? PyObject_GC_New(node_object, type) : NULL;
    if (!o) return NULL;
    o->node = tn_node_ref(node);
    host->object = o;
    PyObject_GC_Track(o);
    return (PyObject *)o;
}

/* The node, or NULL with an exception: a function's ctx may outlive its node. */
static tn_node *node_of(PyObject *self) {
    tn_node *node = ((node_object *)self)->node;
    if (!node)
        PyErr_SetString(PyExc_RuntimeError, "the recorded call that this object stood for is gone");
    return node;
}

static void node_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    node_object *o = (node_object *)self;
    PyObject_GC_UnTrack(self);
    tn_node_host_slots(o->node)->object = NULL;
    tn_node_unref(&o->node);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* A hook's closure may hold the object of the node that it hangs on. */
static int node_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    tnp_visitor v = {visit, arg, 0};
    tn_node_reach(((node_object *)self)->node, tnp_visit_reached, &v);
    return v.result;
}

static PyObject *node_repr(PyObject *self) {
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "__name__");
    PyObject *r = name ? PyUnicode_FromFormat("<%U object at %p>", name, (void *)self) : NULL;
    Py_XDECREF(name);
    return r;
}
static PyObject *node_name(PyObject *self, PyObject *unused) {
    char name[128];
    tn_node *n = node_of(self);
    (void)unused;
    return n ? PyUnicode_FromString(tn_node_name(n, name, sizeof name)) : NULL;
}

/* What the graph shows at the end of an edge to a leaf. */
static PyObject *leaf_end(tn_tensor *leaf) {
    PyObject *f = tnp_helper("_tape.graph", "accumulate_grad");
    PyObject *t = f ? tnp_wrap(tn_tensor_ref(leaf)) : NULL;
    PyObject *r = t ? PyObject_CallFunctionObjArgs(f, t, NULL) : NULL;
    Py_XDECREF(t);
    return r;
}

static PyObject *next_functions(PyObject *self, void *unused) {
    (void)unused;
    tn_node *node = node_of(self);
    if (!node) return NULL;
    int64_t n = tn_node_edge_count(node);
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (int64_t i = 0; tuple && i < n; i++) {
        tn_edge e = tn_node_edge(node, i);
        PyObject *end = e.node   ? tnp_node_object(e.node)
                        : e.leaf ? leaf_end(e.leaf)
                                 : Py_BuildValue("");
        PyObject *pair = end ? Py_BuildValue("(NL)", end, (long long)e.nr) : NULL;
        if (!pair)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, (Py_ssize_t)i, pair);
    }
    return tuple;
}
static PyObject *metadata(PyObject *self, void *unused) {
    tn_node *node = node_of(self);
    tn_node_host *host = node ? tn_node_host_slots(node) : NULL;
    (void)unused;
    if (!host) return NULL;
    if (!host->data && !(host->data = PyDict_New())) return NULL;
    host->release = tnp_release_object;
    Py_INCREF((PyObject *)host->data);
    return host->data;
}
static PyObject *sequence_nr(PyObject *self, PyObject *unused) {
    tn_node *node = node_of(self);
    (void)unused;
    return node ? PyLong_FromUnsignedLongLong(tn_node_sequence(node)) : NULL;
}

/* fn's handle, or NULL where st says that it was not registered. */
static PyObject *registered(PyObject *fn, tn_status st, tn_hook *hook) {
    if (st == TN_OK) return tnp_hook_object(hook);
    Py_DECREF(fn);
    return tnp_raise(st);
}

static PyObject *register_hook(PyObject *self, PyObject *fn) {
    tn_hook *hook = NULL;
    tn_node *node = node_of(self);
    if (!node) return NULL;
    Py_INCREF(fn);
    tn_status st = tn_hook_node_post(node, run_post_hook, fn, tnp_release_object, &hook);
    return registered(fn, st, hook);
}
static PyObject *register_prehook(PyObject *self, PyObject *fn) {
    tn_hook *hook = NULL;
    tn_node *node = node_of(self);
    if (!node) return NULL;
    Py_INCREF(fn);
    tn_status st = tn_hook_node_pre(node, run_pre_hook, fn, tnp_release_object, &hook);
    return registered(fn, st, hook);
}

/* _hook_leaf_end(leaf, fn, before): a hook of the end of the graph at a leaf. */
PyObject *tnp_hook_leaf_end(PyObject *unused, PyObject *args) {
    PyObject *leaf, *fn;
    tn_hook *hook = NULL;
    int before;
    (void)unused;
    if (!PyArg_ParseTuple(args, "OOp:_hook_leaf_end", &leaf, &fn, &before)) return NULL;
    if (!tnp_is_tensor(leaf)) return tnp_type_error("_hook_leaf_end takes a Tensor, not %U", leaf);
    Py_INCREF(fn);
    tn_status st =
        before ? tn_hook_leaf_pre(tnp_of(leaf), run_pre_hook, fn, tnp_release_object, &hook)
               : tn_hook_leaf_post(tnp_of(leaf), run_post_hook, fn, tnp_release_object, &hook);
    if (st == TN_OK) tnp_track(leaf); /* fn may refer to the tensor */
    return registered(fn, st, hook);
}

PyObject *tnp_edge_tensor(PyObject *unused, PyObject *args) {
    PyObject *object;
    long long nr;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O!L:_edge_tensor", tnp_node_type, &object, &nr)) return NULL;
    tn_node *node = node_of(object);
    tn_tensor *t;
    if (!node) return NULL;
    return tnp_check(tn_node_stand_in(node, nr, &t)) < 0 ? NULL : tnp_wrap(t);
}

/* node._saved_other: the tensor saved under the name of an argument. */
static PyObject *node_getattro(PyObject *self, PyObject *name) {
    PyObject *found = PyObject_GenericGetAttr(self, name);
    const char *text = found ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text || strncmp(text, "_saved_", 7) != 0) return found;
    tn_tensor *t = NULL;
    PyErr_Clear();
    const char *field = strcmp(text + 7, "self") == 0 ? "input" : text + 7;
    if (strcmp(field, "result") == 0) field = "out";
    tn_node *node = node_of(self);
    if (!node) return NULL;
    tn_status st = tn_node_saved(node, field, &t);
    if (st != TN_OK) return tnp_raise(st);
    if (t) return tnp_wrap(t);
    PyErr_Format(PyExc_AttributeError, "the node saves nothing named '%s'", field);
    return NULL;
}

static PyMethodDef node_methods[] = {
    {"name", node_name, METH_NOARGS, "The name, as in MulBackward0."},
    {"_sequence_nr", sequence_nr, METH_NOARGS, "Its number in the order of recording."},
    {"register_hook", register_hook, METH_O,
     "register_hook(fn): fn(grad_inputs, grad_outputs) runs after the node."},
    {"register_prehook", register_prehook, METH_O,
     "register_prehook(fn): fn(grad_outputs) runs before the node."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef node_getset[] = {
    {"next_functions", next_functions, NULL, "Pairs of (node, output number), by input.", NULL},
    {"metadata", metadata, NULL, "A dict for the user.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot node_slots[] = {
    TNP_SLOT(Py_tp_dealloc, node_dealloc),
    TNP_SLOT(Py_tp_repr, node_repr),
    TNP_SLOT(Py_tp_getattro, node_getattro),
    TNP_SLOT(Py_tp_methods, node_methods),
    TNP_SLOT(Py_tp_getset, node_getset),
    TNP_SLOT(Py_tp_traverse, node_traverse),
    {0, NULL},
};

bool tnp_node_init(PyObject *module) {
    PyType_Spec node_spec = {"tenon.autograd.graph.Node", sizeof(node_object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             node_slots};
    PyType_Spec hook_spec = {"tenon.utils.hooks.TensorHookHandle", sizeof(hook_object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, hook_slots};
    tnp_node_type = (PyTypeObject *)PyType_FromSpec(&node_spec);
    hook_type = (PyTypeObject *)PyType_FromSpec(&hook_spec);
    return tnp_node_type && hook_type &&
           PyModule_AddObjectRef(module, "Node", (PyObject *)tnp_node_type) == 0;
}
