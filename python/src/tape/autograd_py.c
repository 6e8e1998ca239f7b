/* autograd_py.c: backward, grad, and hooks of tensors. */
#include "binding_priv.h"

/* ---- Lists of tensors --------------------------------------------------------------------------*/

typedef struct tensors {
    tn_tensor **v; /* borrowed tensors; NULL for None */
    int64_t n;
    PyObject *seq; /* keeps them */
} tensors;

static void tensors_free(tensors *list) {
    PyMem_Free(list->v);
    Py_XDECREF(list->seq);
}

#define IN_A_TRANSFORM                                                                             \
    "backward() called inside a functorch transform. This is not supported, please use "           \
    "functorch.grad or functorch.vjp instead or call backward() outside of functorch transforms."

/* What is no tensor, in PyTorch's words and with its classes. */
static void refuse_item(const char *what, PyObject *item) {
    if (strcmp(what, "outputs") == 0)
        PyErr_SetString(PyExc_AssertionError, "Expected output to be a torch.Tensor");
    else if (strcmp(what, "inputs") == 0)
        tnp_error_about(PyExc_RuntimeError,
                        "all inputs have to be Tensors or GradientEdges, but got %U", item);
    else
        tnp_type_error("gradients can be either Tensors or None, but got %U", item);
}

/* A tensor, a sequence of tensors (or None where allowed), or None for no list. */
static bool tensors_of(PyObject *o, bool allow_none, const char *what, tensors *ret) {
    *ret = (tensors){NULL, 0, NULL};
    if (!o || o == Py_None) return true;
    ret->seq = tnp_is_tensor(o) ? PyTuple_Pack(1, o) : PySequence_Tuple(o);
    if (!ret->seq) return false;
    Py_ssize_t n = PyTuple_Size(ret->seq);
    ret->v = PyMem_Calloc((size_t)n + 1, sizeof *ret->v);
    if (!ret->v) return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(ret->seq, i);
        if (tnp_is_tensor(item)) {
            if (tnp_stands_for_many(item)) {
                PyErr_SetString(PyExc_RuntimeError, IN_A_TRANSFORM);
                return false;
            }
            ret->v[i] = tnp_of(item);
        } else if (item != Py_None || !allow_none) {
            refuse_item(what, item);
            return false;
        }
    }
    ret->n = n;
    return true;
}

static bool same_count(const tensors *roots, const tensors *grads) {
    if (!grads->seq || grads->n == roots->n) return true;
    PyErr_Format(PyExc_RuntimeError, "got %lld tensors and %lld gradients", (long long)roots->n,
                 (long long)grads->n);
    return false;
}

/* ---- What is called when a pass has ended ------------------------------------------------------*/

/* Of the passes of this thread, the innermost's last; NULL: of none. */
static _Thread_local PyObject *queued;
static _Thread_local int ending; /* passes whose callables run */

static Py_ssize_t queued_count(void) { return queued ? PyList_Size(queued) : 0; }

/* _queue_callback(call) */
static PyObject *queue_callback(PyObject *unused, PyObject *call) {
    (void)unused;
    if (!PyCallable_Check(call))
        return tnp_type_error("queue_callback takes a callable, not %U", call);
    if (!tn_pass_current().id && !ending) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Final callbacks can only be installed during backward pass.");
        return NULL;
    }
    if (!queued && !(queued = PyList_New(0))) return NULL;
    if (PyList_Append(queued, call) < 0) return NULL;
    Py_RETURN_NONE;
}

/* Calls what a pass has queued behind the first ones, and what these queue; after a failure it is
 * only forgotten. The result of the pass, or NULL. */
static PyObject *end_pass(Py_ssize_t first, PyObject *result) {
    ending++;
    for (Py_ssize_t i = first; result && i < queued_count(); i++) {
        PyObject *call = PyList_GetItem(queued, i);
        Py_XINCREF(call);
        PyObject *r = call ? PyObject_CallNoArgs(call) : NULL;
        if (!r) Py_CLEAR(result);
        Py_XDECREF(r);
        Py_XDECREF(call);
    }
    ending--;
    if (queued_count() == first) return result;
    PyObject *type, *value, *trace; /* of a failure, if there was one */
    PyErr_Fetch(&type, &value, &trace);
    if (first == 0)
        Py_CLEAR(queued);
    else
        PyList_SetSlice(queued, first, PY_SSIZE_T_MAX, NULL);
    PyErr_Restore(type, value, trace);
    return result;
}

/* _backward(roots, grads, retain_graph, create_graph, inputs) */
static PyObject *backward(PyObject *unused, PyObject *args) {
    PyObject *py_roots, *py_grads, *py_inputs, *result = NULL;
    int retain, create;
    tensors roots = {0}, grads = {0}, inputs = {0};
    (void)unused;
    if (!PyArg_ParseTuple(args, "OOppO:_backward", &py_roots, &py_grads, &retain, &create,
                          &py_inputs))
        return NULL;
    if (tn_transform_runs()) return PyErr_Format(PyExc_RuntimeError, IN_A_TRANSFORM);
    bool ok = tensors_of(py_roots, false, "outputs", &roots) &&
              tensors_of(py_grads, true, "gradients", &grads) &&
              tensors_of(py_inputs, false, "inputs", &inputs) && same_count(&roots, &grads);
    if (ok && inputs.seq && inputs.n == 0) {
        PyErr_SetString(PyExc_RuntimeError, "`inputs` argument to `backward()` cannot be empty.");
        ok = false;
    }
    if (ok) {
        Py_ssize_t first = queued_count();
        PyThreadState *state = PyEval_SaveThread();
        tn_status st = tn_backward(roots.v, grads.v, roots.n, inputs.v, inputs.n, retain, create);
        PyEval_RestoreThread(state);
        result = end_pass(first, tnp_check(st) == 0 ? Py_BuildValue("") : NULL);
    }
    tensors_free(&roots);
    tensors_free(&grads);
    tensors_free(&inputs);
    return result;
}

static PyObject *take_tuple(tn_tensor **v, int64_t n) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (int64_t i = 0; i < n; i++) {
        PyObject *o = tnp_wrap_opt(v[i]);
        if (tuple)
            PyTuple_SetItem(tuple, (Py_ssize_t)i, o);
        else
            Py_XDECREF(o);
    }
    return tuple;
}

/* _grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused) */
static PyObject *grad(PyObject *unused, PyObject *args) {
    PyObject *py_outputs, *py_inputs, *py_grads, *result = NULL;
    int retain, create, allow_unused;
    tensors outputs = {0}, inputs = {0}, grads = {0};
    (void)unused;
    if (!PyArg_ParseTuple(args, "OOOppp:_grad", &py_outputs, &py_inputs, &py_grads, &retain,
                          &create, &allow_unused))
        return NULL;
    bool ok = tensors_of(py_outputs, false, "outputs", &outputs) &&
              tensors_of(py_inputs, false, "inputs", &inputs) &&
              tensors_of(py_grads, true, "gradients", &grads) && same_count(&outputs, &grads);
    tn_tensor **ret = ok ? PyMem_Calloc((size_t)inputs.n + 1, sizeof *ret) : NULL;
    if (ok && !ret) PyErr_NoMemory();
    if (ret) {
        Py_ssize_t first = queued_count();
        PyThreadState *state = PyEval_SaveThread();
        tn_status st = tn_grad(outputs.v, grads.v, outputs.n, inputs.v, inputs.n, retain, create,
                               allow_unused, ret);
        PyEval_RestoreThread(state);
        result = end_pass(first, tnp_check(st) == 0 ? take_tuple(ret, inputs.n) : NULL);
        PyMem_Free(ret);
    }
    tensors_free(&outputs);
    tensors_free(&inputs);
    tensors_free(&grads);
    return result;
}

/* ---- Methods of Tensor -------------------------------------------------------------------------*/

static PyObject *tensor_backward(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"gradient", "retain_graph", "create_graph", "inputs", NULL};
    PyObject *gradient = Py_None, *retain = Py_None, *inputs = Py_None;
    int create = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOpO:backward", names, &gradient, &retain,
                                     &create, &inputs))
        return NULL;
    int keep = retain == Py_None ? create : PyObject_IsTrue(retain);
    if (keep < 0) return NULL;
    PyObject *call = Py_BuildValue("(OOiiO)", self, gradient, keep, create, inputs);
    PyObject *r = call ? backward(NULL, call) : NULL;
    Py_XDECREF(call);
    return r;
}

static tn_status run_tensor_hook(void *ctx, tn_tensor *grad_in, tn_tensor **ret_grad) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *g = tnp_wrap(tn_tensor_ref(grad_in));
    PyObject *r = g ? PyObject_CallFunctionObjArgs(ctx, g, NULL) : NULL;
    Py_XDECREF(g);
    tn_status st = tnp_hook_result(r, ret_grad);
    PyGILState_Release(gil);
    return st;
}

static tn_status run_leaf_hook(void *ctx, tn_tensor *leaf) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *t = tnp_wrap(tn_tensor_ref(leaf));
    PyObject *r = t ? PyObject_CallFunctionObjArgs(ctx, t, NULL) : NULL;
    tn_status st = r == Py_None ? TN_OK : TN_E_HOST;
    if (r && st != TN_OK) PyErr_SetString(PyExc_RuntimeError, "hooks should return None.");
    Py_XDECREF(r);
    Py_XDECREF(t);
    PyGILState_Release(gil);
    return st;
}

static PyObject *register_hook(PyObject *self, PyObject *fn) {
    tn_hook *hook;
    if (!tn_requires_grad(tnp_of(self))) {
        PyErr_SetString(PyExc_RuntimeError,
                        "cannot register a hook on a tensor that doesn't require gradient");
        return NULL;
    }
    Py_INCREF(fn);
    tn_status st = tn_hook_tensor(tnp_of(self), run_tensor_hook, fn, tnp_release_object, &hook);
    if (st == TN_OK) {
        tnp_track(self); /* fn may refer to the tensor */
        return tnp_hook_object(hook);
    }
    Py_DECREF(fn);
    return tnp_raise(st);
}

static PyObject *register_leaf_hook(PyObject *self, PyObject *fn) {
    tn_hook *hook;
    Py_INCREF(fn);
    tn_status st = tn_hook_leaf(tnp_of(self), run_leaf_hook, fn, tnp_release_object, &hook);
    if (st == TN_OK) {
        tnp_track(self); /* fn may refer to the tensor */
        return tnp_hook_object(hook);
    }
    Py_DECREF(fn);
    return tnp_raise(st);
}

static PyObject *done(PyObject *self, tn_status st) {
    if (st != TN_OK) return tnp_raise(st);
    Py_INCREF(self);
    return self;
}
static PyObject *retain_grad(PyObject *self, PyObject *unused) {
    (void)unused;
    if (tnp_check(tn_retain_grad(tnp_of(self))) < 0) return NULL;
    Py_RETURN_NONE;
}
static PyObject *detach_(PyObject *self, PyObject *unused) {
    (void)unused;
    if (tnp_program_look("detach_") < 0) return NULL;
    return done(self, tn_detach_(tnp_of(self)));
}
static PyObject *requires_grad_(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"requires_grad", NULL};
    PyObject *on = Py_True;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:requires_grad_", names, &on)) return NULL;
    if (!PyBool_Check(on)) {
        tnp_error_about(PyExc_TypeError,
                        "requires_grad_(): argument 'requires_grad' (position 1) must be bool, "
                        "not %U",
                        on);
        return NULL;
    }
    return done(self, tn_set_requires_grad(tnp_of(self), on == Py_True));
}

#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
PyMethodDef tnp_autograd_methods[] = {
    {"backward", TNP_CFUNC(tensor_backward), KEYWORDS,
     "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)\n\n"
     "Adds the gradients of this tensor to the .grad of the leaves that it was computed from."},
    {"register_hook", register_hook, METH_O,
     "register_hook(fn): fn(grad) sees the gradient and may return another."},
    {"register_post_accumulate_grad_hook", register_leaf_hook, METH_O,
     "fn(tensor) runs after the gradient was added to .grad."},
    {"retain_grad", retain_grad, METH_NOARGS, "Keeps .grad although this is no leaf."},
    {"detach_", detach_, METH_NOARGS, "Cuts the tensor off from its history."},
    {"requires_grad_", TNP_CFUNC(requires_grad_), KEYWORDS,
     "requires_grad_(requires_grad=True): switches recording on for this tensor."},
    {NULL, NULL, 0, NULL},
};

/* ---- Functions ---------------------------------------------------------------------------------*/

static PyObject *set_anomaly(PyObject *unused, PyObject *args) {
    int on, check_nan = 1;
    (void)unused;
    if (!PyArg_ParseTuple(args, "p|p:_set_anomaly", &on, &check_nan)) return NULL;
    return PyLong_FromLong(tn_anomaly_set(on, check_nan));
}
static PyObject *get_anomaly(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyLong_FromLong(tn_anomaly_get());
}

/* (number of the running pass or 0, whether it runs for given tensors only) */
static PyObject *current_pass(PyObject *unused, PyObject *none) {
    tn_pass_info p = tn_pass_current();
    (void)unused, (void)none;
    return Py_BuildValue("(KO)", (unsigned long long)p.id, p.restricted ? Py_True : Py_False);
}
static PyObject *pass_reaches(PyObject *unused, PyObject *t) {
    (void)unused;
    if (!tnp_is_tensor(t)) return tnp_type_error("_pass_reaches takes a Tensor, not %U", t);
    return PyBool_FromLong(tn_pass_reaches(tnp_of(t)));
}
static PyObject *note_write(PyObject *unused, PyObject *t) {
    (void)unused;
    if (!tnp_is_tensor(t)) return tnp_type_error("increment_version takes Tensors, not %U", t);
    tn_tensor_note_write(tnp_of(t));
    Py_RETURN_NONE;
}

/* ---- What a history hangs on -------------------------------------------------------------------*/

static bool is_one_of(const tensors *list, const tn_tensor *t) {
    for (int64_t i = 0; i < list->n; i++)
        if (list->v[i] == t) return true;
    return false;
}

/* Puts a node on the list of those to look at, once. */
static int push_node(PyObject *seen, PyObject *todo, tn_node *node) {
    PyObject *key = PyLong_FromVoidPtr(node);
    int had = key ? PySet_Contains(seen, key) : -1;
    if (had == 0 && (PySet_Add(seen, key) < 0 || PyList_Append(todo, key) < 0)) had = -1;
    Py_XDECREF(key);
    return had < 0 ? -1 : 0;
}

/* 1: an edge of these nodes, or of what stands behind them, ends in a leaf that is not among `own`. */
static int walk_nodes(PyObject *seen, PyObject *todo, const tensors *own) {
    for (Py_ssize_t at = 0; at < PyList_Size(todo); at++) {
        tn_node *node = PyLong_AsVoidPtr(PyList_GetItem(todo, at));
        int64_t n = node ? tn_node_edge_count(node) : 0;
        for (int64_t i = 0; i < n; i++) {
            tn_edge e = tn_node_edge(node, i);
            if (e.leaf && !is_one_of(own, e.leaf)) return 1;
            if (e.node && push_node(seen, todo, e.node) < 0) return -1;
        }
    }
    return 0;
}

static int hangs_on_others(const tensors *roots, const tensors *own) {
    PyObject *seen = PySet_New(NULL), *todo = PyList_New(0);
    int r = seen && todo ? 0 : -1;
    for (int64_t i = 0; r == 0 && i < roots->n; i++) {
        tn_node *node;
        int64_t nr;
        if (!tn_requires_grad(roots->v[i])) continue;
        r = tnp_check(tn_grad_fn(roots->v[i], &node, &nr));
        if (r == 0) r = node ? push_node(seen, todo, node) : !is_one_of(own, roots->v[i]);
    }
    if (r == 0) r = walk_nodes(seen, todo, own);
    Py_XDECREF(seen);
    Py_XDECREF(todo);
    return r;
}

/* _hangs_on_others(tensors, leaves): whether the tensors' history ends in other leaves, too. */
static PyObject *history_others(PyObject *unused, PyObject *args) {
    PyObject *py_roots, *py_own;
    tensors roots = {0}, own = {0};
    (void)unused;
    if (!PyArg_ParseTuple(args, "OO:_hangs_on_others", &py_roots, &py_own)) return NULL;
    int r = -1;
    if (tensors_of(py_roots, false, "outputs", &roots) && tensors_of(py_own, false, "inputs", &own))
        r = hangs_on_others(&roots, &own);
    tensors_free(&roots);
    tensors_free(&own);
    return r < 0 ? NULL : PyBool_FromLong(r);
}

/* _enter_transform(arguments) */
static PyObject *enter_transform(PyObject *unused, PyObject *py_arguments) {
    tensors arguments = {0};
    (void)unused;
    bool ok = tensors_of(py_arguments, false, "inputs", &arguments) &&
              tnp_check(tn_transform_enter(arguments.v, arguments.n)) == 0;
    tensors_free(&arguments);
    return ok ? Py_BuildValue("") : NULL;
}

static PyObject *leave_transform(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    tn_transform_leave();
    Py_RETURN_NONE;
}

static PyObject *transform_runs(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(tn_transform_runs());
}

/* The text of a name for as long as the process runs, since nodes do not copy theirs. */
static const char *lasting(PyObject *name) {
    static PyObject *names; /* each to itself */
    if (!names && !(names = PyDict_New())) return NULL;
    PyObject *known = PyDict_GetItemWithError(names, name);
    if (!known && (PyErr_Occurred() || PyDict_SetItem(names, name, name) < 0)) return NULL;
    return PyUnicode_AsUTF8AndSize(known ? known : name, NULL);
}

/* _known_as(result, name): the result, whose node goes by that name. */
static PyObject *known_as(PyObject *unused, PyObject *args) {
    PyObject *result, *name;
    tn_node *node = NULL;
    int64_t nr;
    (void)unused;
    if (!PyArg_ParseTuple(args, "OU:_known_as", &result, &name)) return NULL;
    if (tnp_is_tensor(result) && tn_requires_grad(tnp_of(result)) &&
        tnp_check(tn_grad_fn(tnp_of(result), &node, &nr)) < 0)
        return NULL;
    if (node) {
        const char *text = lasting(name);
        if (!text) return NULL;
        tn_node_call(node, text);
    }
    Py_INCREF(result);
    return result;
}

static PyMethodDef functions[] = {
    {"_known_as", known_as, METH_VARARGS, "The tensor, whose grad_fn goes by that name."},
    {"_hangs_on_others", history_others, METH_VARARGS, "Whether other leaves are in the history."},
    {"_enter_transform", enter_transform, METH_O, "A function with these arguments runs."},
    {"_transform_runs", transform_runs, METH_NOARGS, "Whether such a function runs."},
    {"_leave_transform", leave_transform, METH_NOARGS, "It has returned."},
    {"_hook_leaf_end", tnp_hook_leaf_end, METH_VARARGS, "_hook_leaf_end(leaf, fn, before)"},
    {"_edge_tensor", tnp_edge_tensor, METH_VARARGS, "A stand-in for an output of a node."},
    {"_current_pass", current_pass, METH_NOARGS, "(number or 0, for given tensors only)"},
    {"_queue_callback", queue_callback, METH_O, "Calls it when the running pass has ended."},
    {"_pass_reaches", pass_reaches, METH_O, "Whether the running pass computes t's gradient."},
    {"_note_write", note_write, METH_O, "Counts a write that somebody else has made."},
    {"_backward", backward, METH_VARARGS, "_backward(roots, grads, retain, create, inputs)"},
    {"_grad", grad, METH_VARARGS, "_grad(outputs, inputs, grads, retain, create, allow_unused)"},
    {"_set_anomaly", set_anomaly, METH_VARARGS, "_set_anomaly(on, check_nan) -> the old bits"},
    {"_get_anomaly", get_anomaly, METH_NOARGS, "Bit 0: on; bit 1: NaN gradients are failures."},
    {NULL, NULL, 0, NULL},
};

bool tnp_autograd_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
