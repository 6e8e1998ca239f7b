/* node_type.c: Node, a recorded call as Python sees it, and handles of hooks.
 *
 * A Node object is a reference to the core's node; asking twice gives two objects that compare
 * equal. */
#include "binding_priv.h"

typedef struct node_object {
    PyObject_HEAD tn_node *node;
    PyObject *metadata;
} node_object;

typedef struct hook_object {
    PyObject_HEAD tn_hook *hook;
} hook_object;

static PyTypeObject *node_type, *hook_type;

/* ---- Helpers of hooks --------------------------------------------------------------------------*/

void tnp_release_object(void *o) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)o);
    PyGILState_Release(gil);
}

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
            tnp_type_error("a hook must return None or a Tensor, not %U", result);
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
    hook_object *o = PyObject_New(hook_object, hook_type);
    if (o)
        o->hook = hook;
    else
        tn_hook_remove(&hook);
    return (PyObject *)o;
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
static PyObject *hook_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    Py_INCREF(self);
    return self;
}
static PyObject *hook_exit(PyObject *self, PyObject *args) {
    (void)args;
    return hook_remove(self, NULL);
}
static PyMethodDef hook_methods[] = {
    {"remove", hook_remove, METH_NOARGS, "Takes the hook away."},
    {"__enter__", hook_enter, METH_NOARGS, NULL},
    {"__exit__", hook_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot hook_slots[] = {
    TNP_SLOT(Py_tp_dealloc, hook_dealloc),
    TNP_SLOT(Py_tp_methods, hook_methods),
    {0, NULL},
};

/* ---- Node --------------------------------------------------------------------------------------*/

PyObject *tnp_node_object(tn_node *node) {
    node_object *o = PyObject_New(node_object, node_type);
    if (!o) return NULL;
    o->node = tn_node_ref(node);
    o->metadata = NULL;
    return (PyObject *)o;
}

static tn_node *node_of(PyObject *self) { return ((node_object *)self)->node; }

static void node_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    node_object *o = (node_object *)self;
    tn_node_unref(&o->node);
    Py_XDECREF(o->metadata);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *node_name(PyObject *self, PyObject *unused) {
    char name[128];
    (void)unused;
    return PyUnicode_FromString(tn_node_name(node_of(self), name, sizeof name));
}
static PyObject *node_repr(PyObject *self) {
    char name[128];
    return PyUnicode_FromFormat("<%s object at %p>", tn_node_name(node_of(self), name, sizeof name),
                                (void *)node_of(self));
}
static Py_hash_t node_hash(PyObject *self) {
    Py_hash_t h = (Py_hash_t)((uintptr_t)node_of(self) >> 4);
    return h == -1 ? -2 : h;
}
static PyObject *node_compare(PyObject *a, PyObject *b, int op) {
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != node_type || Py_TYPE(b) != node_type)
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((node_of(a) == node_of(b)) == (op == Py_EQ));
}

/* What the graph shows at the end of an edge to a leaf. */
static PyObject *leaf_end(tn_tensor *leaf) {
    PyObject *f = tnp_helper("_graph", "AccumulateGrad");
    PyObject *t = f ? tnp_wrap(tn_tensor_ref(leaf)) : NULL;
    PyObject *r = t ? PyObject_CallFunctionObjArgs(f, t, NULL) : NULL;
    Py_XDECREF(t);
    return r;
}

static PyObject *next_functions(PyObject *self, void *unused) {
    (void)unused;
    int64_t n = tn_node_edge_count(node_of(self));
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (int64_t i = 0; tuple && i < n; i++) {
        tn_edge e = tn_node_edge(node_of(self), i);
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
    node_object *o = (node_object *)self;
    (void)unused;
    if (!o->metadata) o->metadata = PyDict_New();
    Py_XINCREF(o->metadata);
    return o->metadata;
}
static PyObject *sequence_nr(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(tn_node_sequence(node_of(self)));
}

static PyObject *register_hook(PyObject *self, PyObject *fn) {
    tn_hook *hook;
    Py_INCREF(fn);
    tn_status st = tn_hook_node_post(node_of(self), run_post_hook, fn, tnp_release_object, &hook);
    if (st == TN_OK) return tnp_hook_object(hook);
    Py_DECREF(fn);
    return tnp_raise(st);
}
static PyObject *register_prehook(PyObject *self, PyObject *fn) {
    tn_hook *hook;
    Py_INCREF(fn);
    tn_status st = tn_hook_node_pre(node_of(self), run_pre_hook, fn, tnp_release_object, &hook);
    if (st == TN_OK) return tnp_hook_object(hook);
    Py_DECREF(fn);
    return tnp_raise(st);
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
    tn_status st = tn_node_saved(node_of(self), field, &t);
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
    TNP_SLOT(Py_tp_dealloc, node_dealloc),   TNP_SLOT(Py_tp_repr, node_repr),
    TNP_SLOT(Py_tp_hash, node_hash),         TNP_SLOT(Py_tp_richcompare, node_compare),
    TNP_SLOT(Py_tp_getattro, node_getattro), TNP_SLOT(Py_tp_methods, node_methods),
    TNP_SLOT(Py_tp_getset, node_getset),     {0, NULL},
};

bool tnp_node_init(PyObject *module) {
    PyType_Spec node_spec = {"tenon.autograd.graph.Node", sizeof(node_object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, node_slots};
    PyType_Spec hook_spec = {"tenon.utils.hooks.TensorHookHandle", sizeof(hook_object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, hook_slots};
    node_type = (PyTypeObject *)PyType_FromSpec(&node_spec);
    hook_type = (PyTypeObject *)PyType_FromSpec(&hook_spec);
    return node_type && hook_type &&
           PyModule_AddObjectRef(module, "Node", (PyObject *)node_type) == 0;
}
