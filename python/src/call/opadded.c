/* opadded.c: operators that plugins add, as Python functions.
 *
 * A function of ours with an object behind it that holds the operator's only overload: a call takes the
 * same way as one of a built-in operator. */
#include "binding_priv.h"

typedef struct added_object {
    PyObject_HEAD tnp_group group;
    tnp_overload overload;
    PyMethodDef def;
    char *doc;
} added_object;

static PyTypeObject *added_type;

static PyObject *added_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
    return tnp_call(&((added_object *)self)->group, TNP_FORM_FUNCTION, NULL, args, nargs, kwnames);
}

static void added_dealloc(PyObject *self) {
    added_object *a = (added_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (int32_t i = 0; a->overload.params && i < a->overload.nparams; i++)
        Py_XDECREF(a->overload.params[i].name);
    PyMem_Free(a->overload.params);
    PyMem_Free(a->overload.image);
    PyMem_Free(a->overload.image_ints);
    PyMem_Free(a->doc);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- Documentation -----------------------------------------------------------------------------*/

typedef struct text {
    char *data;
    size_t used, room;
    bool failed;
} text;

static void put(text *t, const char *s) {
    size_t n = strlen(s);
    if (t->used + n + 1 > t->room) {
        size_t room = 2 * (t->used + n + 1);
        char *data = PyMem_Realloc(t->data, room);
        t->failed = t->failed || !data;
        if (!data) return;
        t->data = data;
        t->room = room;
    }
    memcpy(t->data + t->used, s, n + 1);
    t->used += n;
}

/* A default that Python can read in a signature; formats and dtypes are names of the package. */
static void put_default(text *t, const tn_field *f) {
    bool name = f->kind == TN_F_FORMAT || f->kind == TN_F_DTYPE;
    put(t, "=");
    put(t, name && strcmp(f->deflt, "None") != 0 ? "..." : f->deflt);
}

/* "gelu(input, *, alpha=1.0)\n--\n\n", which inspect.signature reads, the schema and the doc. */
static char *doc_of(const char *name, const tn_op_meta *meta) {
    text t = {NULL, 0, 0, false};
    bool kwonly = false;
    put(&t, name);
    put(&t, "(");
    for (int32_t i = 0; i < meta->nfields && meta->fields[i].kind < TN_F_OUT; i++) {
        const tn_field *f = &meta->fields[i];
        if (i) put(&t, ", ");
        if (!kwonly && (f->flags & TNI_FIELD_KWONLY)) put(&t, "*, ");
        kwonly = kwonly || (f->flags & TNI_FIELD_KWONLY);
        put(&t, f->name);
        if (f->deflt) put_default(&t, f);
    }
    put(&t, ")\n--\n\n");
    put(&t, meta->info->schema);
    put(&t, "\n\n");
    put(&t, meta->doc ? meta->doc : "An operator of a plugin.");
    if (!t.failed) return t.data;
    PyMem_Free(t.data);
    PyErr_NoMemory();
    return NULL;
}

/* ---- Functions of the module -------------------------------------------------------------------*/

/* The operator as a function of module `space`, called `name` there. */
static PyObject *function_of(const tn_op_meta *meta, const char *name, PyObject *space) {
    added_object *a = PyObject_New(added_object, added_type);
    if (!a) return NULL;
    memset((char *)a + sizeof(PyObject), 0, sizeof *a - sizeof(PyObject));
    a->doc = doc_of(name, meta);
    a->overload.op_name = meta->info->name;
    a->overload.meta = *meta;
    a->overload.forms = TN_PY_TORCH;
    for (int32_t i = 0; i < meta->nfields && i < 32; i++)
        if (meta->fields[i].kind == TN_F_OPERAND) a->overload.numbers |= 1u << i;
    a->group = (tnp_group){meta->info->name, NULL, a->doc, TN_PY_TORCH, 1, &a->overload};
    a->def = (PyMethodDef){name, TNP_CFUNC(added_call), METH_FASTCALL | METH_KEYWORDS, a->doc};
    PyObject *fn = a->doc ? PyCFunction_NewEx(&a->def, (PyObject *)a, space) : NULL;
    Py_DECREF(a); /* the function keeps it */
    return fn;
}

static PyObject *added_op(PyObject *unused, PyObject *arg) {
    tn_op_meta meta;
    (void)unused;
    const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
    if (!name) return NULL;
    tn_status st = tn_op_meta_find(name, &meta);
    if (st != TN_OK && st != TN_E_VALUE) return tnp_raise(st);
    if (st != TN_OK || !(meta.flags & TNI_OP_ADDED)) Py_RETURN_NONE;
    const char *short_name = strstr(meta.info->name, "::") + 2;
    PyObject *space =
        PyUnicode_FromStringAndSize(meta.info->name, short_name - 2 - meta.info->name);
    PyObject *module = space ? PyUnicode_FromFormat("tenon.ops.%U", space) : NULL;
    PyObject *fn = module ? function_of(&meta, short_name, module) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(space);
    return fn;
}

/* What is known of the operator of that name. */
static bool find_meta(PyObject *arg, tn_op_meta *ret) {
    const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
    return name && tnp_check(tn_op_meta_find(name, ret)) == 0;
}

static PyObject *table_op(PyObject *unused, PyObject *arg) {
    tn_op_meta meta;
    (void)unused;
    if (!find_meta(arg, &meta)) return NULL;
    PyObject *module = PyUnicode_FromString("tenon.ops");
    PyObject *fn = module ? function_of(&meta, meta.info->name, module) : NULL;
    Py_XDECREF(module);
    return fn;
}

static PyObject *added_names(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    PyObject *list = PyList_New(0);
    const char *name;
    for (int32_t i = 0; list && (name = tn_op_added_at(i)) != NULL; i++) {
        PyObject *item = PyUnicode_FromString(name);
        if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *added_vmap(PyObject *unused, PyObject *arg) {
    tn_op_meta meta;
    (void)unused;
    if (!find_meta(arg, &meta)) return NULL;
    if (!meta.vmap) Py_RETURN_NONE;
    return PyUnicode_FromString(meta.vmap);
}

static PyObject *added_arguments(PyObject *unused, PyObject *arg) {
    tn_op_meta meta;
    (void)unused;
    if (!find_meta(arg, &meta)) return NULL;
    PyObject *found = PyDict_New();
    for (int32_t i = 0; found && i < meta.nfields && meta.fields[i].kind < TN_F_OUT; i++) {
        PyObject *written = meta.fields[i].flags & TNI_FIELD_MUTATED ? Py_True : Py_False;
        if (PyDict_SetItemString(found, meta.fields[i].name, written) < 0) Py_CLEAR(found);
    }
    return found;
}

static PyMethodDef functions[] = {
    {"_added_arguments", added_arguments, METH_O,
     "The arguments of a plugin's operator, and whether it writes to them."},
    {"_added_vmap", added_vmap, METH_O, "How a plugin's operator goes through vmap, or None."},
    {"_added_op", added_op, METH_O, "The function of a plugin's operator 'ns::name'."},
    {"_op", table_op, METH_O, "The function of any operator, by its C name: no overloads."},
    {"_added_names", added_names, METH_NOARGS, "Names of all operators that plugins added."},
    {NULL, NULL, 0, NULL},
};

bool tnp_added_init(PyObject *module) {
    static PyType_Slot slots[] = {
        TNP_SLOT(Py_tp_dealloc, added_dealloc),
        {Py_tp_doc, (void *)(uintptr_t) "What an operator of a plugin is called with."},
        {0, NULL},
    };
    static PyType_Spec spec = {"tenon._C.AddedOperator", sizeof(added_object), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    added_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return added_type && PyModule_AddFunctions(module, functions) == 0;
}
