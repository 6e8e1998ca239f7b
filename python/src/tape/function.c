/* function.c: autograd.Function: operators whose forward and backward are Python.
 *
 * One call makes a ctx object, which the graph's node owns and which is what Python sees as that node.
 * The ctx knows its node only while that lives: the node's release clears the pointer. Tensors that forward saves are packed after the
 * node knows its outputs, so that an output that is saved makes no cycle. */
#include <tenon/program.h>

#include "binding_priv.h"

typedef struct ctx_object {
    PyObject_HEAD tn_node *node; /* borrowed; NULL when the node is gone. First, as in a Node */
    PyObject *dict;
    PyObject *cls;     /* the Function */
    PyObject *to_save; /* tuple, until the node is finished */
    PyObject *forward; /* what jvp reads: tuple or NULL; kept while it may run */
    PyObject *dirty;   /* tuple or NULL */
    PyObject *no_grad; /* tuple or NULL */
    PyObject *needs;   /* tuple of bools, by argument */
    tn_saved **saved;  /* nsaved entries; NULL: None was saved */
    int64_t nsaved;
    int64_t nargs;       /* arguments of forward, ctx not counted */
    uint8_t *is_tensor;  /* by argument */
    int64_t nouts;       /* what forward returned, tensors or not */
    uint8_t *out_tensor; /* by output */
    bool freed;          /* what was saved is gone */
    bool materialize;
    bool pushing; /* jvp runs */
} ctx_object;

/* ---- ctx ---------------------------------------------------------------------------------------*/

static void drop_saved(ctx_object *c) {
    for (int64_t i = 0; i < c->nsaved; i++)
        if (c->saved[i]) tn_saved_free(&c->saved[i]);
    PyMem_Free(c->saved);
    c->saved = NULL;
    c->nsaved = 0;
}

static int ctx_traverse(PyObject *self, visitproc visit, void *arg) {
    ctx_object *c = (ctx_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->dict);
    Py_VISIT(c->cls);
    Py_VISIT(c->to_save);
    Py_VISIT(c->forward);
    Py_VISIT(c->dirty);
    Py_VISIT(c->no_grad);
    Py_VISIT(c->needs);
    return 0;
}
static int ctx_clear(PyObject *self) {
    ctx_object *c = (ctx_object *)self;
    Py_CLEAR(c->dict);
    Py_CLEAR(c->to_save);
    Py_CLEAR(c->forward);
    Py_CLEAR(c->dirty);
    Py_CLEAR(c->no_grad);
    return 0;
}
static void ctx_dealloc(PyObject *self) {
    ctx_object *c = (ctx_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    drop_saved(c);
    ctx_clear(self);
    Py_CLEAR(c->cls);
    Py_CLEAR(c->needs);
    PyMem_Free(c->is_tensor);
    PyMem_Free(c->out_tensor);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *save_for_backward(PyObject *self, PyObject *args) {
    ctx_object *c = (ctx_object *)self;
    Py_INCREF(args);
    PyObject *old = c->to_save;
    c->to_save = args;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}
static PyObject *save_for_forward(PyObject *self, PyObject *args) {
    ctx_object *c = (ctx_object *)self;
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) {
        PyObject *t = PyTuple_GetItem(args, i);
        if (t != Py_None && !tnp_is_tensor(t))
            return tnp_type_error("save_for_forward can only save variables, not %U", t);
    }
    Py_INCREF(args);
    Py_XDECREF(c->forward);
    c->forward = args;
    Py_RETURN_NONE;
}
static PyObject *mark(PyObject **slot, PyObject *args) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++)
        if (!tnp_is_tensor(PyTuple_GetItem(args, i)))
            return tnp_error_about(PyExc_RuntimeError, "only variables can be marked, not %U",
                                   PyTuple_GetItem(args, i));
    Py_INCREF(args);
    Py_XDECREF(*slot);
    *slot = args;
    Py_RETURN_NONE;
}
static PyObject *mark_dirty(PyObject *self, PyObject *args) {
    return mark(&((ctx_object *)self)->dirty, args);
}
static PyObject *mark_non_differentiable(PyObject *self, PyObject *args) {
    return mark(&((ctx_object *)self)->no_grad, args);
}
static PyObject *set_materialize(PyObject *self, PyObject *value) {
    int on = PyObject_IsTrue(value);
    if (on < 0) return NULL;
    ((ctx_object *)self)->materialize = on > 0;
    Py_RETURN_NONE;
}
static PyObject *get_materialize(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((ctx_object *)self)->materialize);
}
static PyObject *get_needs(PyObject *self, void *unused) {
    ctx_object *c = (ctx_object *)self;
    (void)unused;
    Py_INCREF(c->needs);
    return c->needs;
}
static PyObject *get_saved(PyObject *self, void *unused) {
    ctx_object *c = (ctx_object *)self;
    (void)unused;
    if (c->forward && c->pushing) {
        Py_INCREF(c->forward);
        return c->forward;
    }
    if (c->freed) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Trying to backward through the graph a second time (or directly access "
                        "saved tensors after they have already been freed). Saved intermediate "
                        "values of the graph are freed when you call .backward() or "
                        "autograd.grad(). Specify retain_graph=True if you need to backward "
                        "through the graph a second "
                        "time or if you need to access saved tensors after calling backward.");
        return NULL;
    }
    if (!c->saved) {
        PyObject *r = c->to_save ? c->to_save : PyTuple_New(0);
        if (c->to_save) Py_INCREF(r);
        return r;
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)c->nsaved);
    for (int64_t i = 0; tuple && i < c->nsaved; i++) {
        tn_tensor *t = NULL;
        bool whole = !c->saved[i] || tnp_check(tn_saved_unpack(c->saved[i], c->node, &t)) == 0;
        PyObject *o = whole ? tnp_wrap_opt(t) : NULL;
        if (o)
            PyTuple_SetItem(tuple, (Py_ssize_t)i, o);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* _pushing(call): call(), to which saved_tensors is what was saved for jvp. */
static PyObject *pushing(PyObject *self, PyObject *call) {
    ctx_object *c = (ctx_object *)self;
    bool before = c->pushing;
    c->pushing = true;
    PyObject *r = PyObject_CallNoArgs(call);
    c->pushing = before;
    return r;
}

/* A tensor that hangs on ctx may have been computed from its results: the collector has to see it. */
static int ctx_setattro(PyObject *self, PyObject *name, PyObject *value) {
    if (value && tnp_is_tensor(value)) tnp_track(value);
    return PyObject_GenericSetAttr(self, name, value);
}

/* <tenon.autograd.function.SquareBackward object at 0x...>, as objects of Python classes are shown. */
static PyObject *ctx_repr(PyObject *self) {
    reprfunc plain = __extension__(reprfunc) PyType_GetSlot(&PyBaseObject_Type, Py_tp_repr);
    return plain(self);
}

static PyMemberDef ctx_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(ctx_object, dict), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef ctx_methods[] = {
    {"save_for_backward", save_for_backward, METH_VARARGS, "Keeps tensors for backward."},
    {"save_for_forward", save_for_forward, METH_VARARGS,
     "Keeps tensors for jvp, to which they are saved_tensors."},
    {"_pushing", pushing, METH_O, "_pushing(call): call(), on behalf of jvp."},
    {"mark_dirty", mark_dirty, METH_VARARGS, "Says which arguments were changed in place."},
    {"mark_non_differentiable", mark_non_differentiable, METH_VARARGS,
     "Says which outputs have no gradient."},
    {"set_materialize_grads", set_materialize, METH_O,
     "False: outputs without a gradient give None to backward instead of zeros."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef ctx_getset[] = {
    {"needs_input_grad", get_needs, NULL, "Which arguments want a gradient.", NULL},
    {"saved_tensors", get_saved, NULL, "What save_for_backward kept.", NULL},
    {"materialize_grads", get_materialize, NULL, "Whether zeros stand in for None.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot ctx_slots[] = {
    TNP_SLOT(Py_tp_dealloc, ctx_dealloc),
    TNP_SLOT(Py_tp_traverse, ctx_traverse),
    TNP_SLOT(Py_tp_clear, ctx_clear),
    TNP_SLOT(Py_tp_repr, ctx_repr),
    TNP_SLOT(Py_tp_getattro, PyObject_GenericGetAttr),
    TNP_SLOT(Py_tp_setattro, ctx_setattro),
    TNP_SLOT(Py_tp_members, ctx_members),
    TNP_SLOT(Py_tp_methods, ctx_methods),
    TNP_SLOT(Py_tp_getset, ctx_getset),
    {0, NULL},
};

/* ---- Backward ----------------------------------------------------------------------------------*/

static tn_tensor *zeros_like_output(tn_node *node, int64_t i) {
    static tnp_direct zeros = {.name = "zeros"};
    _Alignas(16) unsigned char args[TNP_DIRECT_ARGS_BYTES];
    tn_tensor *ret[2] = {NULL};
    if (!tnp_direct_ready(&zeros)) return NULL;
    tn_node_output o = tn_node_output_at(node, i);
    memcpy(args, zeros.o.image, (size_t)zeros.o.meta.args_bytes);
    for (int32_t f = 0; f < zeros.o.meta.nfields; f++) {
        const tn_field *field = &zeros.o.meta.fields[f];
        void *p = args + field->offset;
        if (field->kind == TN_F_INTS) *(tn_ints *)p = tn_ints_of(o.shape, o.ndim);
        if (field->kind == TN_F_DTYPE) *(int64_t *)p = o.dtype;
        if (field->kind == TN_F_DEVICE)
            *(int64_t *)p = (int64_t)o.device.slot << 8 | o.device.index;
    }
    tn_status st = tnp_invoke(zeros.o.meta.info, args, ret, 0);
    return st == TN_OK ? ret[0] : tnp_raise(st);
}

/* (ctx, gradient by output): None for outputs that are no tensors. */
static PyObject *backward_args(ctx_object *c, tn_node *node, tn_tensor *const *grads, int64_t n) {
    PyObject *args = PyTuple_New((Py_ssize_t)c->nouts + 1);
    int64_t at = 0;
    if (!args) return NULL;
    Py_INCREF((PyObject *)c);
    PyTuple_SetItem(args, 0, (PyObject *)c);
    for (int64_t i = 0; i < c->nouts; i++) {
        tn_tensor *g = NULL;
        if (c->out_tensor[i] && at < n) {
            g = tn_tensor_ref(grads[at]);
            if (!g && c->materialize && !(g = zeros_like_output(node, at))) {
                Py_DECREF(args);
                return NULL;
            }
            at++;
        }
        PyTuple_SetItem(args, (Py_ssize_t)i + 1, tnp_wrap_opt(g));
    }
    return args;
}

static bool bad_grad(const ctx_object *c, const char *text, int64_t a, int64_t b) {
    PyObject *name = PyObject_GetAttrString(c->cls, "__name__");
    if (name) PyErr_Format(PyExc_RuntimeError, text, name, (long long)a, (long long)b);
    Py_XDECREF(name);
    return false;
}

/* What backward returned, by argument of forward, into the gradients by tensor argument. */
static bool take_grads(const ctx_object *c, PyObject *result, tn_tensor **ret, int64_t m) {
    Py_ssize_t given = PyTuple_Size(result);
    int64_t at = 0;
    while (given > c->nargs && PyTuple_GetItem(result, given - 1) == Py_None) given--;
    if (given != c->nargs)
        return bad_grad(c,
                        "function %UBackward returned an incorrect number of gradients (expected "
                        "%lld, got %lld)",
                        c->nargs, given);
    for (int64_t i = 0; i < c->nargs; i++) {
        PyObject *g = PyTuple_GetItem(result, (Py_ssize_t)i);
        if (!c->is_tensor[i]) {
            if (g == Py_None) continue;
            return bad_grad(c,
                            "function %UBackward returned a gradient different than None at "
                            "position %lld, but the corresponding forward input was not a Variable",
                            i + 1, 0);
        }
        if (g != Py_None && !tnp_is_tensor(g)) {
            PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(g), "__name__");
            if (name) PyErr_Format(PyExc_RuntimeError, "expected Variable or None (got %U)", name);
            Py_XDECREF(name);
            return false;
        }
        if (at < m && g != Py_None) ret[at] = tn_tensor_ref(tnp_of(g));
        at++;
    }
    return true;
}

static tn_status apply(void *ctx, tn_node *node, tn_tensor *const *grads, int64_t n,
                       tn_tensor **ret_grads, int64_t m) {
    PyGILState_STATE gil = PyGILState_Ensure();
    ctx_object *c = ctx;
    bool ok = false;
    PyObject *args = backward_args(c, node, grads, n);
    PyObject *fn = args ? PyObject_GetAttrString(c->cls, "_run_backward") : NULL;
    PyObject *r = fn ? PyObject_Call(fn, args, NULL) : NULL;
    if (r && !PyTuple_Check(r)) {
        PyObject *tuple = PyList_Check(r) ? PyList_AsTuple(r) : PyTuple_Pack(1, r);
        Py_DECREF(r);
        r = tuple;
    }
    if (r) ok = take_grads(c, r, ret_grads, m);
    if (!ok)
        for (int64_t i = 0; i < m; i++) tn_tensor_unref(&ret_grads[i]);
    Py_XDECREF(r);
    Py_XDECREF(fn);
    Py_XDECREF(args);
    PyGILState_Release(gil);
    return ok ? TN_OK : TN_E_HOST;
}

static void release_saved(void *ctx) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    ctx_object *c = ctx;
    if (c->saved) c->freed = true;
    drop_saved(c);
    PyGILState_Release(gil);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

static ctx_object *ctx_new(PyObject *cls, PyObject *args) {
    PyTypeObject *type = (PyTypeObject *)PyObject_GetAttrString(cls, "_backward_cls");
    if (!type) return NULL;
    allocfunc alloc = __extension__(allocfunc) PyType_GetSlot(type, Py_tp_alloc);
    ctx_object *c = (ctx_object *)alloc(type, 0); /* tracked, the rest is 0 */
    Py_DECREF((PyObject *)type);
    if (!c) return NULL;
    Py_INCREF(cls);
    c->cls = cls;
    c->materialize = true;
    c->nargs = PyTuple_Size(args);
    c->is_tensor = PyMem_Calloc((size_t)c->nargs + 1, 1);
    c->needs = PyTuple_New((Py_ssize_t)c->nargs);
    if (!c->is_tensor || !c->needs) {
        Py_DECREF((PyObject *)c);
        PyErr_NoMemory();
        return NULL;
    }
    for (int64_t i = 0; i < c->nargs; i++) {
        PyObject *a = PyTuple_GetItem(args, (Py_ssize_t)i);
        c->is_tensor[i] = tnp_is_tensor(a);
        bool needs = c->is_tensor[i] && tn_requires_grad(tnp_of(a));
        PyTuple_SetItem(c->needs, (Py_ssize_t)i, PyBool_FromLong(needs));
    }
    return c;
}

static bool make_node(ctx_object *c, PyObject *args, tn_node **ret_node) {
    char name[96];
    tn_tensor **inputs = PyMem_Calloc((size_t)c->nargs + 1, sizeof *inputs);
    PyObject *py_name = PyObject_GetAttrString(c->cls, "__name__");
    PyObject *full = py_name ? PyUnicode_FromFormat("%UBackward", py_name) : NULL;
    const char *text = full ? PyUnicode_AsUTF8AndSize(full, NULL) : NULL;
    bool ok = false;
    if (!inputs) PyErr_NoMemory();
    if (inputs && text) {
        int64_t n = 0;
        PyOS_snprintf(name, sizeof name, "%s", text);
        for (int64_t i = 0; i < c->nargs; i++)
            if (c->is_tensor[i]) inputs[n++] = tnp_of(PyTuple_GetItem(args, (Py_ssize_t)i));
        tn_host_node callbacks = {name, apply, release_saved, tnp_release_ctx, c, 0};
        Py_INCREF((PyObject *)c); /* the node's */
        tn_status st = tn_host_node_new(&callbacks, inputs, n, ret_node);
        if (st != TN_OK || !*ret_node) Py_DECREF((PyObject *)c);
        ok = tnp_check(st) == 0;
        c->node = ok ? *ret_node : NULL;
        tn_node_host *host = c->node ? tn_node_host_slots(c->node) : NULL;
        if (host) host->object = c;
        if (ok && c->node && !host) {
            PyErr_NoMemory();
            ok = false;
        }
    }
    PyMem_Free(inputs);
    Py_XDECREF(py_name);
    Py_XDECREF(full);
    return ok;
}

static bool contains(PyObject *tuple, PyObject *o) {
    for (Py_ssize_t i = 0; tuple && i < PyTuple_Size(tuple); i++)
        if (PyTuple_GetItem(tuple, i) == o) return true;
    return false;
}

/* Runs forward without recording, and setup_context where the class has one. In a program forward is
 * what it does, with the derivatives of that: backward is not part of it. */
static PyObject *run_forward(ctx_object *c, PyObject *args) {
    PyObject *setup = PyObject_GetAttrString(c->cls, "setup_context");
    PyObject *forward = setup ? PyObject_GetAttrString(c->cls, "forward") : NULL;
    PyObject *r = NULL;
    int recording = tn_grad_set_enabled(0);
    int noted = tn_program_note_grad(recording);
    tn_program_note_grad(noted < 0 ? recording : noted);
    if (forward && setup != Py_None) {
        r = PyObject_Call(forward, args, NULL);
        PyObject *done =
            r ? PyObject_CallFunctionObjArgs(setup, (PyObject *)c, args, r, NULL) : NULL;
        if (!done) Py_CLEAR(r);
        Py_XDECREF(done);
    } else if (forward) {
        PyObject *self = PyTuple_Pack(1, (PyObject *)c);
        PyObject *all = self ? PySequence_Concat(self, args) : NULL;
        r = all ? PyObject_Call(forward, all, NULL) : NULL;
        Py_XDECREF(self);
        Py_XDECREF(all);
    }
    tn_program_note_grad(noted);
    tn_grad_set_enabled(recording);
    Py_XDECREF(setup);
    Py_XDECREF(forward);
    return r;
}

static bool are_tensors(PyObject *saved) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(saved); i++) {
        PyObject *t = PyTuple_GetItem(saved, i);
        if (t == Py_None || tnp_is_tensor(t)) continue;
        PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(t), "__name__");
        if (name)
            PyErr_Format(
                PyExc_TypeError,
                "save_for_backward can only save variables, but argument %zd is of type %U", i,
                name);
        Py_XDECREF(name);
        return false;
    }
    return true;
}

static bool pack_saved(ctx_object *c) {
    if (!c->to_save || !c->node) return true;
    if (!are_tensors(c->to_save)) return false;
    Py_ssize_t n = PyTuple_Size(c->to_save);
    c->saved = PyMem_Calloc((size_t)n + 1, sizeof *c->saved);
    if (!c->saved) return PyErr_NoMemory() != NULL;
    c->nsaved = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *t = PyTuple_GetItem(c->to_save, i);
        if (t != Py_None && tnp_check(tn_saved_new(tnp_of(t), c->node, &c->saved[i])) < 0)
            return false;
    }
    Py_CLEAR(c->to_save);
    return true;
}

/* The tensors among the outputs become results of the node; others pass as they are. A list in the
 * place of ret gets the finished outputs. */
static PyObject *finish_outputs(ctx_object *c, PyObject *outputs) {
    Py_ssize_t n = PyTuple_Size(outputs);
    tn_tensor **in = PyMem_Calloc((size_t)n + 1, sizeof *in);
    tn_tensor **out = PyMem_Calloc((size_t)n + 1, sizeof *out);
    uint32_t *flags = PyMem_Calloc((size_t)n + 1, sizeof *flags);
    PyObject *tuple = NULL;
    int64_t k = 0;
    c->nouts = n;
    c->out_tensor = PyMem_Calloc((size_t)n + 1, 1);
    if (!in || !out || !flags || !c->out_tensor) {
        PyErr_NoMemory();
        goto out;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(outputs, i);
        if (!tnp_is_tensor(o)) continue;
        c->out_tensor[i] = 1;
        in[k] = tnp_of(o);
        flags[k++] = (contains(c->dirty, o) ? TN_OUTPUT_DIRTY : 0) |
                     (contains(c->no_grad, o) ? TN_OUTPUT_NO_GRAD : 0);
    }
    if (tnp_check(tn_host_node_finish(c->node, in, k, flags, out)) < 0) goto out;
    tuple = PyTuple_New(n);
    k = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(outputs, i);
        if (tnp_is_tensor(o)) {
            o = tnp_wrap(out[k++]);
            if (o) tnp_track(o); /* it may come to hang on ctx, which it keeps alive */
        } else {
            Py_INCREF(o);
        }
        if (tuple && o)
            PyTuple_SetItem(tuple, i, o);
        else
            Py_XDECREF(o);
        if (!o) Py_CLEAR(tuple);
    }
out:
    PyMem_Free(in);
    PyMem_Free(out);
    PyMem_Free(flags);
    return tuple;
}

/* Of a program's class, an input that is returned as it is becomes what view_as() makes of it there. */
static PyObject *own_view(const ctx_object *c, PyObject *args, PyObject *o) {
    bool own = tnp_is_tensor(o) && Py_TYPE(o) != tnp.tensor && contains(args, o) &&
               !contains(c->dirty, o) && !contains(c->no_grad, o);
    Py_INCREF(o);
    if (!own) return o;
    int recording = tn_grad_set_enabled(0);
    PyObject *view = PyObject_CallMethod(o, "view_as", "O", o);
    tn_grad_set_enabled(recording);
    Py_DECREF(o);
    return view;
}

/* An output of a forward that is not recorded. */
static PyObject *plain_output(const ctx_object *c, PyObject *args, PyObject *o) {
    tn_tensor *t = NULL;
    Py_INCREF(o);
    if (!tnp_is_tensor(o) || contains(c->dirty, o)) return o;
    bool is_input = contains(args, o);
    tn_status st = tn_function_output(tnp_of(o), is_input, &t);
    if (st == TN_OK && !is_input) tn_tensor_unref(&t);
    if (st == TN_OK && !is_input) return o;
    Py_DECREF(o);
    return st == TN_OK ? tnp_wrap(t) : tnp_raise(st);
}

typedef PyObject *change_output(const ctx_object *c, PyObject *args, PyObject *o);

/* The result with every output changed. Takes over `result`. */
static PyObject *change_each(change_output *change, const ctx_object *c, PyObject *args,
                             PyObject *result) {
    Py_ssize_t n = PyTuple_CheckExact(result) ? PyTuple_Size(result) : -1;
    PyObject *made = n < 0 ? change(c, args, result) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made && i < n; i++) {
        PyObject *o = change(c, args, PyTuple_GetItem(result, i));
        if (o)
            PyTuple_SetItem(made, i, o);
        else
            Py_CLEAR(made);
    }
    Py_DECREF(result);
    return made;
}

/* Whether all that forward wrote is among its results: who else would see the new history? */
static bool returns_dirty(const ctx_object *c, PyObject *result) {
    for (Py_ssize_t i = 0; c->dirty && i < PyTuple_Size(c->dirty); i++) {
        PyObject *o = PyTuple_GetItem(c->dirty, i);
        if (o == result || (PyTuple_Check(result) && contains(result, o))) continue;
        PyErr_SetString(PyExc_RuntimeError,
                        "Some elements marked as dirty during the forward method were not returned "
                        "as output. The inputs that are modified inplace must all be outputs of "
                        "the Function.");
        return false;
    }
    return true;
}

static bool push_tangents(ctx_object *c, PyObject *jvp, PyObject *result) {
    PyObject *dirty = c->dirty ? c->dirty : Py_None, *none = c->no_grad ? c->no_grad : Py_None;
    c->pushing = true;
    PyObject *r = PyObject_CallFunctionObjArgs(jvp, (PyObject *)c, result, dirty, none, NULL);
    c->pushing = false;
    Py_XDECREF(r);
    return r != NULL;
}

/* _apply(cls, args, jvp=None): jvp(ctx, result, dirty, non_differentiable) is called at the end. */
static PyObject *function_apply(PyObject *unused, PyObject *call) {
    PyObject *cls, *args, *jvp = Py_None, *result = NULL, *outputs = NULL;
    tn_node *node = NULL;
    (void)unused;
    if (!PyArg_ParseTuple(call, "OO!|O:_apply", &cls, &PyTuple_Type, &args, &jvp)) return NULL;
    ctx_object *c = ctx_new(cls, args);
    if (!c) return NULL;
    if (!make_node(c, args, &node)) goto out;
    PyObject *r = run_forward(c, args);
    if (r && !returns_dirty(c, r)) Py_CLEAR(r);
    if (r) r = change_each(own_view, c, args, r);
    if (!r || !node) {
        result = r ? change_each(plain_output, c, args, r) : NULL;
        goto out;
    }
    bool single = !PyTuple_Check(r);
    outputs = single ? PyTuple_Pack(1, r) : r;
    if (single) Py_DECREF(r);
    PyObject *finished = outputs ? finish_outputs(c, outputs) : NULL;
    if (finished && !pack_saved(c)) Py_CLEAR(finished);
    if (finished && single) {
        result = PyTuple_GetItem(finished, 0);
        Py_INCREF(result);
        Py_DECREF(finished);
    } else {
        result = finished;
    }
out:
    if (result && jvp != Py_None && !push_tangents(c, jvp, result)) Py_CLEAR(result);
    if (!tn_transform_runs()) Py_CLEAR(c->forward);
    Py_CLEAR(c->dirty); /* these may be results, which keep ctx alive */
    Py_CLEAR(c->no_grad);
    Py_XDECREF(outputs);
    if (node) tn_node_unref(&node);
    Py_DECREF((PyObject *)c);
    return result;
}

static PyMethodDef functions[] = {
    {"_apply", function_apply, METH_VARARGS,
     "_apply(cls, args, jvp=None): runs an autograd.Function."},
    {NULL, NULL, 0, NULL},
};

bool tnp_function_init(PyObject *module) {
    PyType_Spec spec = {"tenon.autograd.function.FunctionCtx", sizeof(ctx_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        ctx_slots};
    PyObject *bases = PyTuple_Pack(1, (PyObject *)tnp_node_type);
    PyObject *ctx_type = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    return ctx_type && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "FunctionCtx", ctx_type) == 0;
}
