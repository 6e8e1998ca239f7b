/* quick.c: the short way into a recorded call (tenon/_program/compiled.py): whether all that it depended
 * on is as it was, seen without taking the call apart, and then its program.
 *
 * Note [Same objects]
 * A check holds where objects are the very same ones, and numbers of arguments equal ones. That is more
 * than the tokens of _program/guards.py ask for, which decide where a check does not hold. */
#include "binding_priv.h"

#include <tenon/program.h>

enum { MAX_ARGUMENTS = 24, MAX_OUTPUTS = 16, MAX_DIMS = 8, MAX_SIZES = 8, MAX_DEPTH = 8 };

/* What a tensor must be like. */
typedef struct fact {
    uint64_t word;
    int32_t ndim;
    bool leaf, named;      /* named: it has attributes of the program's own */
    int64_t dim[MAX_DIMS]; /* -1 - i: the free size i */
    int64_t stride[MAX_DIMS];
} fact;

/* One argument, or part of one. What a container holds stands behind it. */
typedef struct argument {
    PyObject *key;   /* where it stands in a dict, or NULL */
    PyObject *value; /* what is no tensor, or NULL; of a container its class */
    int32_t items;   /* of a container; -1: it is none */
    fact fact;
} argument;

typedef enum check_kind {
    CHECK_ITEM,      /* of[key] is value; NotImplemented: there is none */
    CHECK_ATTRIBUTE, /* what the descriptor `key` gets of `of` is value */
    CHECK_DICT,      /* the dict `of` has these keys and values, in this order */
    CHECK_LIST,      /* the list `of` has these items */
    CHECK_TENSOR,    /* the tensor `of` is as it was */
    CHECK_EMPTY      /* the dicts `value` have no items */
} check_kind;
typedef struct check {
    check_kind kind;
    PyObject *of, *key, *value;
    descrgetfunc get; /* of an attribute's descriptor */
    fact *fact;       /* of a tensor */
    PyObject **held;  /* of a dict its keys and values in turn, of others the items; borrowed */
    Py_ssize_t n;     /* of them */
} check;

typedef struct quick {
    PyObject_HEAD tn_program *program;
    PyObject *capsule; /* of the program */
    PyObject *build;   /* makes the result of a list of tensors; None: a single one is the result */
    int modes;
    bool acts; /* a second run would change something again */
    int32_t npositional, nnamed;
    int32_t narguments, nchecks, nheld;
    tn_tensor **held; /* weights of the program, and other tensors that guards compare */
    argument *arguments;
    check *checks;
} quick;

static const uint64_t looked_at = TN_W_ALIKE | TN_W_CONTIGUOUS | TN_W_GRAD | TN_W_SCALAR |
                                  TN_W_LAYOUT | TN_W_SPECIAL | TN_W_INFERENCE;
static PyTypeObject *quick_type;
static _Thread_local bool stopped; /* by compiler.set_stance */

static quick *quick_of(PyObject *o) { return (quick *)(void *)o; }

/* ---- The object --------------------------------------------------------------------------------*/

static int quick_traverse(PyObject *self, visitproc visit, void *arg) {
    quick *q = quick_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(q->build);
    for (int32_t i = 0; i < q->narguments; i++) Py_VISIT(q->arguments[i].value);
    for (int32_t i = 0; i < q->nchecks; i++) {
        Py_VISIT(q->checks[i].of);
        Py_VISIT(q->checks[i].key);
        Py_VISIT(q->checks[i].value);
    }
    return 0;
}

static int quick_clear(PyObject *self) {
    quick *q = quick_of(self);
    Py_CLEAR(q->build);
    for (int32_t i = 0; i < q->narguments; i++) {
        Py_CLEAR(q->arguments[i].key);
        Py_CLEAR(q->arguments[i].value);
    }
    q->narguments = 0;
    int32_t n = q->nchecks;
    q->nchecks = 0;
    for (int32_t i = 0; i < n; i++) {
        Py_CLEAR(q->checks[i].of);
        Py_CLEAR(q->checks[i].key);
        Py_CLEAR(q->checks[i].value);
        PyMem_Free(q->checks[i].fact);
        PyMem_Free(q->checks[i].held);
    }
    return 0;
}

static void quick_dealloc(PyObject *self) {
    quick *q = quick_of(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    quick_clear(self);
    for (int32_t i = 0; i < q->nheld; i++) tn_tensor_unref(&q->held[i]);
    Py_XDECREF(q->capsule);
    PyMem_Free(q->held);
    PyMem_Free(q->arguments);
    PyMem_Free(q->checks);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- Making ------------------------------------------------------------------------------------*/

static bool has_attributes(tn_tensor *t) {
    PyObject *dict = tnp_host(t)->dict;
    return dict && PyDict_Size(dict) > 0;
}

static bool note_fact(fact *f, PyObject *o, PyObject *shape) {
    const tn_view *v = tn_tensor_view(tnp_of(o));
    f->word = v->word & looked_at;
    f->ndim = v->ndim;
    f->leaf = tn_is_leaf(tnp_of(o));
    f->named = has_attributes(tnp_of(o));
    if (v->ndim > MAX_DIMS || PyTuple_Size(shape) != v->ndim) return false;
    for (int32_t d = 0; d < v->ndim; d++) {
        f->dim[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        f->stride[d] = v->strides[d];
    }
    return !PyErr_Occurred();
}

static bool take_argument(argument *a, PyObject *row) {
    PyObject *key, *value, *shape;
    int items;
    if (!PyArg_ParseTuple(row, "OOOi", &key, &value, &shape, &items)) return false;
    a->items = items;
    if (key != Py_None) a->key = Py_NewRef(key);
    if (shape == Py_None) {
        a->value = Py_NewRef(value);
        return true;
    }
    return tnp_is_plain(value) && note_fact(&a->fact, value, shape);
}

/* What the tuples of a check hold, side by side. */
static bool hold_items(check *c) {
    Py_ssize_t n = PyTuple_Size(c->value), keys = c->kind == CHECK_DICT;
    c->held = PyMem_Calloc((size_t)n * 2 + 1, sizeof *c->held);
    if (!c->held) return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (keys) c->held[c->n++] = PyTuple_GetItem(c->key, i);
        c->held[c->n++] = PyTuple_GetItem(c->value, i);
    }
    return !PyErr_Occurred();
}

static bool take_check(check *c, PyObject *row) {
    int kind;
    PyObject *of, *key, *value;
    if (!PyArg_ParseTuple(row, "iOOO", &kind, &of, &key, &value)) return false;
    c->kind = (check_kind)kind;
    c->of = Py_NewRef(of);
    c->key = Py_NewRef(key);
    c->value = Py_NewRef(value);
    if (c->kind == CHECK_DICT || c->kind == CHECK_LIST || c->kind == CHECK_EMPTY)
        return hold_items(c);
    c->get = __extension__(descrgetfunc) PyType_GetSlot(Py_TYPE(key), Py_tp_descr_get);
    if (c->kind == CHECK_ATTRIBUTE) return c->get != NULL;
    if (c->kind != CHECK_TENSOR) return true;
    c->fact = PyMem_Calloc(1, sizeof *c->fact);
    return c->fact && tnp_is_tensor(of) && note_fact(c->fact, of, key);
}

/* Called when the checks are there. */
static bool take_held(quick *q) {
    tn_program_slot slot;
    int32_t n = q->nchecks;
    while (tn_program_weight_at(q->program, n - q->nchecks, &slot, NULL) == TN_OK) n++;
    q->held = PyMem_Calloc((size_t)n + 1, sizeof *q->held);
    if (!q->held) return PyErr_NoMemory() != NULL;
    while (tn_program_weight_at(q->program, q->nheld, &slot, &q->held[q->nheld]) == TN_OK)
        q->nheld++;
    for (int32_t i = 0, weights = q->nheld; i < q->nchecks; i++) {
        if (q->checks[i].kind != CHECK_TENSOR) continue;
        tn_tensor *t = tnp_of(q->checks[i].of);
        bool known = false;
        for (int32_t k = 0; k < weights && !known; k++)
            known = tn_tensor_same_storage(t, q->held[k]);
        if (!known) q->held[q->nheld++] = tn_tensor_ref(t);
    }
    return true;
}

static bool take_rows(quick *q, PyObject *arguments, PyObject *checks) {
    Py_ssize_t n = PyTuple_Size(arguments), m = PyTuple_Size(checks);
    q->arguments = PyMem_Calloc((size_t)n + 1, sizeof *q->arguments);
    q->checks = PyMem_Calloc((size_t)m + 1, sizeof *q->checks);
    if (!q->arguments || !q->checks) return PyErr_NoMemory() != NULL;
    if (n > MAX_ARGUMENTS) return false;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!take_argument(&q->arguments[q->narguments++], PyTuple_GetItem(arguments, i)))
            return false;
    for (Py_ssize_t i = 0; i < m; i++)
        if (!take_check(&q->checks[q->nchecks++], PyTuple_GetItem(checks, i))) return false;
    return true;
}

/* What the thread's calls depend on beside their arguments; -1: something looks at them. */
static int modes(void) { return tnp.plain && !tnp.new_device_set ? tn_program_modes() : -1; }

static PyObject *make(PyObject *unused, PyObject *args) {
    PyObject *capsule, *arguments, *checks, *build;
    int acts, positional, named;
    (void)unused;
    if (!PyArg_ParseTuple(args, "OO!(ii)O!Op:_quick", &capsule, &PyTuple_Type, &arguments,
                          &positional, &named, &PyTuple_Type, &checks, &build, &acts))
        return NULL;
    tn_program *p = PyCapsule_GetPointer(capsule, "tenon.program");
    quick *q = p ? PyObject_GC_New(quick, quick_type) : NULL;
    if (!q) return NULL;
    memset((char *)q + sizeof(PyObject), 0, sizeof *q - sizeof(PyObject));
    q->program = p;
    q->capsule = Py_NewRef(capsule);
    q->build = Py_NewRef(build);
    q->modes = modes();
    q->acts = acts;
    q->npositional = positional;
    q->nnamed = named;
    bool fits = tn_program_outputs(p) <= MAX_OUTPUTS && q->modes >= 0 &&
                (build != Py_None || tn_program_outputs(p) == 1) &&
                take_rows(q, arguments, checks) && take_held(q);
    PyObject_GC_Track((PyObject *)q);
    if (fits) return (PyObject *)q;
    Py_DECREF((PyObject *)q);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* ---- A call ------------------------------------------------------------------------------------*/

static bool is_like(const fact *f, tn_tensor *t, int64_t *sizes) {
    const tn_view *v = tn_tensor_view(t);
    if ((v->word & looked_at) != f->word || v->ndim != f->ndim || has_attributes(t) != f->named)
        return false;
    for (int32_t d = 0; d < v->ndim; d++) {
        int64_t wanted = f->dim[d], has = v->shape[d];
        if (wanted < 0) {
            int64_t *size = &sizes[-1 - wanted];
            if (has < 2) return false;
            if (*size < 0) *size = has;
            wanted = *size;
        }
        if (wanted != has) return false;
        if (!(v->word & TN_W_CONTIGUOUS) && v->strides[d] != f->stride[d]) return false;
    }
    return !(v->word & TN_W_GRAD) || tn_is_leaf(t) == f->leaf;
}

/* Numbers and texts that are equal to the last bit. */
static bool is_same(PyObject *a, PyObject *b) {
    if (a == b) return true;
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    if (Py_TYPE(a) == &PyFloat_Type) {
        double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (Py_TYPE(a) != &PyLong_Type && Py_TYPE(a) != &PyUnicode_Type) return false;
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

/* Memory of its own each: no argument shares it with another one or with what the program holds. */
static bool lie_apart(const quick *q, tn_tensor *const *in, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < i; k++)
            if (tn_tensor_same_storage(in[i], in[k])) return false;
        for (int32_t k = 0; k < q->nheld; k++)
            if (tn_tensor_same_storage(in[i], q->held[k])) return false;
    }
    return true;
}

/* The tensors that were taken from the arguments so far. */
typedef struct taken {
    int32_t at; /* the next argument to compare */
    int32_t n;
    tn_tensor **in;
    int64_t numel;
    int64_t sizes[MAX_SIZES];
} taken;

static bool take_one(const quick *q, taken *t, PyObject *o, int depth);

/* The items of a dict in their order. */
static bool take_named(const quick *q, taken *t, PyObject *dict, int depth) {
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value))
        if (key != q->arguments[t->at].key || !take_one(q, t, value, depth)) return false;
    return true;
}

static bool take_items(const quick *q, taken *t, PyObject *o, int depth) {
    const argument *a = &q->arguments[t->at++];
    if ((PyObject *)Py_TYPE(o) != a->value || depth == 0) return false;
    if (PyDict_Check(o)) return PyDict_Size(o) == a->items && take_named(q, t, o, depth - 1);
    bool tuple = PyTuple_Check(o), fits = true;
    if ((tuple ? PyTuple_Size(o) : PyList_Size(o)) != a->items) return false;
    for (int32_t i = 0; i < a->items && fits; i++)
        fits = take_one(q, t, tuple ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i), depth - 1);
    return fits;
}

static bool take_one(const quick *q, taken *t, PyObject *o, int depth) {
    const argument *a = &q->arguments[t->at];
    if (a->items >= 0) return take_items(q, t, o, depth);
    t->at++;
    if (a->value) return is_same(o, a->value);
    if (!tnp_is_plain(o) || !is_like(&a->fact, tnp_of(o), t->sizes)) return false;
    t->in[t->n++] = tnp_of(o);
    t->numel += tn_tensor_numel(tnp_of(o));
    return true;
}

/* The tensors among the arguments; -1: they are others than those that were recorded. */
static int32_t take_arguments(const quick *q, PyObject *args, PyObject *kwargs, tn_tensor **in,
                              int64_t *ret_numel) {
    taken t = {.in = in};
    for (int i = 0; i < MAX_SIZES; i++) t.sizes[i] = -1;
    if (PyTuple_Size(args) != q->npositional) return -1;
    if ((kwargs ? PyDict_Size(kwargs) : 0) != q->nnamed) return -1;
    for (int32_t i = 0; i < q->npositional; i++)
        if (!take_one(q, &t, PyTuple_GetItem(args, i), MAX_DEPTH)) return -1;
    if (q->nnamed && !take_named(q, &t, kwargs, MAX_DEPTH)) return -1;
    *ret_numel = t.numel;
    return lie_apart(q, in, t.n) ? t.n : -1;
}

static bool is_same_dict(const check *c) {
    Py_ssize_t at = 0, i = 0;
    PyObject *key, *value;
    if (PyDict_Size(c->of) * 2 != c->n) return false;
    for (; i < c->n && PyDict_Next(c->of, &at, &key, &value); i += 2)
        if (key != c->held[i] || value != c->held[i + 1]) return false;
    return i == c->n;
}

static bool is_same_list(const check *c) {
    if (PyList_Size(c->of) != c->n) return false;
    for (Py_ssize_t i = 0; i < c->n; i++)
        if (PyList_GetItem(c->of, i) != c->held[i]) return false;
    return true;
}

static bool are_empty(const check *c) {
    for (Py_ssize_t i = 0; i < c->n; i++)
        if (PyDict_Size(c->held[i]) != 0) return false;
    return true;
}

static bool is_same_attribute(const check *c) {
    PyObject *now = c->get(c->key, c->of, (PyObject *)Py_TYPE(c->of));
    bool same = now == c->value;
    Py_XDECREF(now); /* whoever has the attribute holds it */
    return same;
}

static bool holds(const check *c) {
    switch (c->kind) {
    case CHECK_ITEM: {
        PyObject *found = PyDict_GetItemWithError(c->of, c->key);
        return (found ? found : Py_NotImplemented) == c->value;
    }
    case CHECK_ATTRIBUTE: return is_same_attribute(c);
    case CHECK_DICT: return is_same_dict(c);
    case CHECK_LIST: return is_same_list(c);
    case CHECK_TENSOR: return is_like(c->fact, tnp_of(c->of), NULL);
    case CHECK_EMPTY: return are_empty(c);
    default: return false;
    }
}

static PyObject *result_of(const quick *q, tn_tensor **out, int32_t n) {
    if (q->build == Py_None) return tnp_wrap(out[0]);
    PyObject *list = PyList_New(n);
    for (int32_t i = 0; i < n; i++) {
        PyObject *o = tnp_wrap(out[i]);
        if (list && o)
            PyList_SetItem(list, i, o);
        else
            Py_CLEAR(list);
    }
    PyObject *result = list ? PyObject_CallFunctionObjArgs(q->build, list, NULL) : NULL;
    Py_XDECREF(list);
    return result;
}

/* NULL without an exception: the call has to go another way. */
static PyObject *run(quick *q, PyObject *args, PyObject *kwargs) {
    tn_tensor *in[MAX_ARGUMENTS], *out[MAX_OUTPUTS];
    int64_t numel = 0;
    int32_t n = modes() == q->modes ? take_arguments(q, args, kwargs, in, &numel) : -1;
    bool fits = n >= 0;
    for (int32_t i = 0; i < q->nchecks && fits; i++) fits = holds(&q->checks[i]);
    if (!fits) {
        PyErr_Clear();
        return NULL;
    }
    int32_t m = tn_program_outputs(q->program);
    PyThreadState *state = numel > TNP_LOCK_FREE_NUMEL ? PyEval_SaveThread() : NULL;
    tn_status st = tn_program_run(q->program, in, n, out, m);
    if (state) PyEval_RestoreThread(state);
    if (st == TN_OK) return result_of(q, out, m);
    /* else Python runs, so that the error comes out of the program's own lines */
    return q->acts ? tnp_raise(st) : NULL;
}

/* kwargs may be NULL. NULL without an exception: there is no short way. */
static PyObject *try_ways(PyObject *ways, PyObject *args, PyObject *kwargs) {
    for (Py_ssize_t i = 0; i < PyList_Size(ways) && !stopped; i++) {
        PyObject *way = Py_NewRef(PyList_GetItem(ways, i)), *result = NULL;
        if (Py_TYPE(way) == quick_type) result = run(quick_of(way), args, kwargs);
        Py_DECREF(way);
        if (result || PyErr_Occurred()) return result;
    }
    return NULL;
}

static PyObject *call(PyObject *unused, PyObject *const *args, Py_ssize_t n) {
    (void)unused;
    if (n != 3 || !PyList_Check(args[0]) || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "a list of ways, a tuple and a dict");
        return NULL;
    }
    PyObject *result = try_ways(args[0], args[1], args[2]);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NOTIMPLEMENTED;
}

/* ---- What is called in a function's place ------------------------------------------------------*/

/* Without a frame of Python: that costs more than five small operators. */
typedef struct chooser {
    PyObject_HEAD PyObject *ways, *other;
} chooser;

static chooser *chooser_of(PyObject *o) { return (chooser *)(void *)o; }

static PyObject *chooser_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *ways, *other;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!O:_QuickFunction", &PyList_Type, &ways, &other)) return NULL;
    allocfunc alloc = __extension__(allocfunc) PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = alloc(type, 0);
    if (!self) return NULL;
    chooser_of(self)->ways = Py_NewRef(ways);
    chooser_of(self)->other = Py_NewRef(other);
    return self;
}

static PyObject *chooser_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    const chooser *c = chooser_of(self);
    PyObject *result = try_ways(c->ways, args, kwargs);
    return result || PyErr_Occurred() ? result : PyObject_Call(c->other, args, kwargs);
}

static int chooser_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(chooser_of(self)->ways);
    Py_VISIT(chooser_of(self)->other);
    return 0;
}

static int chooser_clear(PyObject *self) {
    Py_CLEAR(chooser_of(self)->ways);
    Py_CLEAR(chooser_of(self)->other);
    return 0;
}

static void chooser_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    chooser_clear(self);
    freefunc release = __extension__(freefunc) PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *is_seen(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(modes() < 0);
}

static PyObject *attributes(PyObject *unused, PyObject *o) {
    (void)unused;
    PyObject *dict = tnp_is_tensor(o) ? tnp_host(tnp_of(o))->dict : NULL;
    return Py_NewRef(dict ? dict : Py_None);
}

static PyObject *stop(PyObject *unused, PyObject *on) {
    (void)unused;
    stopped = PyObject_IsTrue(on) == 1;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_quick", make, METH_VARARGS,
     "(program, arguments, (positional, named), checks, build, acts); None: impossible."},
    {"_quick_call", TNP_CFUNC(call), METH_FASTCALL, "(ways, args, kwargs), or NotImplemented."},
    {"_quick_attributes", attributes, METH_O, "A tensor's __dict__, or None."},
    {"_quick_seen", is_seen, METH_NOARGS, "Whether something sees the thread's calls."},
    {"_quick_stop", stop, METH_O, "(on): whether this thread goes no short way."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_dealloc, quick_dealloc),
    TNP_SLOT(Py_tp_traverse, quick_traverse),
    TNP_SLOT(Py_tp_clear, quick_clear),
    {0, NULL},
};

static PyType_Slot chooser_slots[] = {
    TNP_SLOT(Py_tp_new, chooser_new),         TNP_SLOT(Py_tp_call, chooser_call),
    TNP_SLOT(Py_tp_dealloc, chooser_dealloc), TNP_SLOT(Py_tp_traverse, chooser_traverse),
    TNP_SLOT(Py_tp_clear, chooser_clear),     {0, NULL},
};

static bool add_chooser(PyObject *module) {
    PyType_Spec spec = {"tenon._C._QuickFunction", sizeof(chooser), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                        chooser_slots};
    PyObject *type = PyType_FromSpec(&spec);
    bool added = type && PyModule_AddObjectRef(module, "_QuickFunction", type) == 0;
    Py_XDECREF(type);
    return added;
}

bool tnp_quick_init(PyObject *module) {
    PyType_Spec spec = {"tenon._C.Quick", sizeof(quick), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        slots};
    quick_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return quick_type && PyModule_AddFunctions(module, functions) == 0 && add_chooser(module);
}
