/* tensor_type.c: the type Tensor: how its objects end, and its slots. */
#include <tenon/ops_create.h>
#include <tenon/program.h>

#include "binding_priv.h"

/* ---- Life --------------------------------------------------------------------------------------*/

static void tensor_dealloc(PyObject *self) {
    tn_tensor *t = tnp_of(self);
    tn_host_slots *h = tnp_host(t);
    PyTypeObject *type = Py_TYPE(self);
    /* A subclass's own dealloc leaves the object tracked. */
    if (TNP_UNLIKELY(type != tnp.tensor || h->reserved)) PyObject_GC_UnTrack(self);
    h->reserved = 0;
    if (TNP_UNLIKELY(type != tnp.tensor || h->dict || h->weak)) {
        if (tn_tensor_is_shared(t)) {
            h->alive = 0;
            h->type = type; /* dormant: keeps the reference to its class */
            tn_tensor_unref(&t);
            return;
        }
        if (h->weak) PyObject_ClearWeakRefs(self);
        PyObject *dict = h->dict;
        h->dict = NULL;
        Py_XDECREF(dict);
    }
    h->alive = 0;
    Py_DECREF(type);
    tn_tensor_unref(&t);
}

/* The core drops the last reference to a tensor with a dormant head. */
void tnp_tensor_dying(tn_tensor *t) {
    if (!Py_IsInitialized()) return; /* the interpreter took its objects with it */
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    tn_host_slots *h = tnp_host(t);
    PyTypeObject *cls = h->type;
    h->type = NULL;
    if (h->weak) PyObject_ClearWeakRefs(tnp_object(t));
    PyObject *dict = h->dict;
    h->dict = NULL;
    Py_XDECREF(dict);
    Py_XDECREF((PyObject *)cls);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}

static int tensor_traverse(PyObject *self, visitproc visit, void *arg) {
    tn_tensor *t = tnp_of(self);
    /* What the core holds too (a graph, an optimizer) must stay whole. */
    if (tn_tensor_is_shared(t)) return 0;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)tnp_host(t)->dict);
    tnp_visitor v = {visit, arg, 0};
    tn_tensor_reach(t, tnp_visit_reached, &v);
    return v.result;
}

static int tensor_clear(PyObject *self) {
    tn_host_slots *h = tnp_host(tnp_of(self));
    PyObject *dict = h->dict;
    h->dict = NULL;
    Py_XDECREF(dict);
    return 0;
}

static int tensor_setattro(PyObject *self, PyObject *name, PyObject *value) {
    int r = PyObject_GenericSetAttr(self, name, value);
    if (tnp_host(tnp_of(self))->dict) tnp_track(self);
    return r;
}

static PyObject *get_dict(PyObject *self, void *unused) {
    PyObject *dict = PyObject_GenericGetDict(self, unused);
    if (dict) tnp_track(self);
    return dict;
}

/* ---- Making from Python ------------------------------------------------------------------------*/

/* Tensor(2, 3) is uninitialised, Tensor([1, 2]) holds data of the default dtype, Tensor(t) is an
 * alias: what the class itself has always meant when it is called. */
static tn_tensor *construct(PyObject *args) {
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *first = n > 0 ? PyTuple_GetItem(args, 0) : NULL;
    tn_tensor *t = NULL;
    if (n == 1 && tnp_is_tensor(first)) {
        tn_status st = tnp_alias_of(tnp_of(first), &t);
        return st == TN_OK ? t : tnp_raise(st);
    }
    if (n == 1 && (PyFloat_Check(first) || PyComplex_Check(first)))
        return (tn_tensor *)tnp_type_error("new(): data must be a sequence (got %U)", first);
    if (n == 1 && !PyLong_Check(first) && Py_TYPE(first) != tnp.size)
        return tnp_tensor_from(first, tn_dtype_default(), 1);
    if (n == 1 && Py_TYPE(first) == tnp.size) {
        args = first;
        n = PyTuple_Size(args);
    }
    int64_t shape[TN_MAX_DIMS] = {0};
    if (n > TN_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "a tensor has at most %d dimensions", TN_MAX_DIMS);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int r = tnp_int_from(PyTuple_GetItem(args, i), &shape[i]);
        if (r == 0)
            PyErr_SetString(PyExc_TypeError,
                            "Tensor() takes sizes, a sequence of data, or a tensor");
        if (r <= 0) return NULL;
    }
    bool sized = PyTuple_Size(args) > 0 || Py_TYPE(args) == tnp.size;
    tn_status st = tn_empty(tn_ints_of(shape, sized ? n : 1), -1, 0, TN_FORMAT_CONTIGUOUS, &t);
    return st == TN_OK ? t : tnp_raise(st);
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *const known[] = {"device", "dtype", "requires_grad"};
    if (!tnp_check_layout(type)) return NULL;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    /* Keywords are a subclass's own unless it is Tensor itself that is called. */
    while (type == tnp.tensor && kwargs && PyDict_Next(kwargs, &at, &key, &value)) {
        bool ok = false;
        for (int i = 0; i < TNP_COUNT(known); i++)
            ok = ok || PyUnicode_CompareWithASCIIString(key, known[i]) == 0;
        if (!ok)
            return PyErr_Format(PyExc_TypeError, "new() got an unexpected keyword argument '%U'",
                                key);
    }
    tn_tensor *t = construct(args);
    return t ? tnp_wrap_as(t, type) : NULL;
}

/* ---- Protocols ---------------------------------------------------------------------------------*/

Py_ssize_t tnp_len(PyObject *self) {
    tn_tensor *t = tnp_of(self);
    tn_program_note_sizes(t);
    if (tn_tensor_ndim(t) > 0) return (Py_ssize_t)tn_tensor_shape(t)[0];
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
}

static Py_hash_t tensor_hash(PyObject *self) {
    Py_hash_t h = (Py_hash_t)((uintptr_t)self >> 6); /* blocks are 64-byte aligned */
    return h == -1 ? -2 : h;
}

static PyObject *tensor_iter(PyObject *self) {
    if (tn_tensor_ndim(tnp_of(self)) == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
        return NULL;
    }
    PyObject *parts = PyObject_CallMethod(self, "unbind", NULL);
    if (!parts) return NULL;
    PyObject *it = PyObject_GetIter(parts);
    Py_DECREF(parts);
    return it;
}

static int tensor_contains(PyObject *self, PyObject *value) {
    tn_scalar s;
    int r = tnp_is_tensor(value) ? 1 : tnp_scalar_from(value, &s);
    if (r == 0)
        PyErr_Format(PyExc_RuntimeError,
                     "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R.",
                     (PyObject *)Py_TYPE(value));
    if (r <= 0) return -1;
    PyObject *equal = tnp_richcompare(self, value, Py_EQ);
    PyObject *any = equal ? PyObject_CallMethod(equal, "any", NULL) : NULL;
    Py_XDECREF(equal);
    if (!any) return -1;
    int found = PyObject_IsTrue(any);
    Py_DECREF(any);
    return found;
}

static PyObject *tensor_repr(PyObject *self) {
    PyObject *f = tnp_helper("_tensor.print", "tensor_repr");
    return f ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
}

/* ---- The type ----------------------------------------------------------------------------------*/

static PyMemberDef members[3];
static PyGetSetDef dict_getset = {"__dict__", get_dict, PyObject_GenericSetDict, NULL, NULL};

static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_dealloc, tensor_dealloc),
    TNP_SLOT(Py_tp_traverse, tensor_traverse),
    TNP_SLOT(Py_tp_clear, tensor_clear),
    TNP_SLOT(Py_tp_setattro, tensor_setattro),
    TNP_SLOT(Py_tp_new, tensor_new),
    TNP_SLOT(Py_tp_hash, tensor_hash),
    TNP_SLOT(Py_tp_iter, tensor_iter),
    TNP_SLOT(Py_tp_repr, tensor_repr),
    TNP_SLOT(Py_tp_richcompare, tnp_richcompare),
    {Py_tp_doc, "An n-dimensional array of one dtype on one device, with its gradient history."},
    TNP_SLOT(Py_mp_length, tnp_len),
    TNP_SLOT(Py_mp_subscript, tnp_getitem),
    TNP_SLOT(Py_mp_ass_subscript, tnp_setitem),
    TNP_SLOT(Py_sq_contains, tensor_contains),
    TNP_SLOT(Py_bf_getbuffer, tnp_getbuffer),
    TNP_SLOT(Py_bf_releasebuffer, tnp_releasebuffer),
    TNP_SLOT(Py_nb_add, tnp_add),
    TNP_SLOT(Py_nb_subtract, tnp_sub),
    TNP_SLOT(Py_nb_multiply, tnp_mul),
    TNP_SLOT(Py_nb_true_divide, tnp_truediv),
    TNP_SLOT(Py_nb_floor_divide, tnp_floordiv),
    TNP_SLOT(Py_nb_remainder, tnp_mod),
    TNP_SLOT(Py_nb_power, tnp_pow),
    TNP_SLOT(Py_nb_matrix_multiply, tnp_matmul),
    TNP_SLOT(Py_nb_and, tnp_and),
    TNP_SLOT(Py_nb_or, tnp_or),
    TNP_SLOT(Py_nb_xor, tnp_xor),
    TNP_SLOT(Py_nb_lshift, tnp_lshift),
    TNP_SLOT(Py_nb_rshift, tnp_rshift),
    TNP_SLOT(Py_nb_inplace_add, tnp_iadd),
    TNP_SLOT(Py_nb_inplace_subtract, tnp_isub),
    TNP_SLOT(Py_nb_inplace_multiply, tnp_imul),
    TNP_SLOT(Py_nb_inplace_true_divide, tnp_itruediv),
    TNP_SLOT(Py_nb_inplace_floor_divide, tnp_ifloordiv),
    TNP_SLOT(Py_nb_inplace_remainder, tnp_imod),
    TNP_SLOT(Py_nb_inplace_power, tnp_ipow),
    TNP_SLOT(Py_nb_inplace_and, tnp_iand),
    TNP_SLOT(Py_nb_inplace_or, tnp_ior),
    TNP_SLOT(Py_nb_inplace_xor, tnp_ixor),
    TNP_SLOT(Py_nb_inplace_lshift, tnp_ilshift),
    TNP_SLOT(Py_nb_inplace_rshift, tnp_irshift),
    TNP_SLOT(Py_nb_negative, tnp_neg),
    TNP_SLOT(Py_nb_positive, tnp_pos),
    TNP_SLOT(Py_nb_absolute, tnp_abs),
    TNP_SLOT(Py_nb_invert, tnp_invert),
    TNP_SLOT(Py_nb_bool, tnp_bool),
    TNP_SLOT(Py_nb_int, tnp_int),
    TNP_SLOT(Py_nb_float, tnp_float),
    TNP_SLOT(Py_nb_index, tnp_index),
    TNP_SLOT(Py_tp_members, members),
    {Py_tp_getset, NULL},  /* filled below, at GETSET_SLOT */
    {Py_tp_methods, NULL}, /* filled below, at METHODS_SLOT */
    {0, NULL},
};

enum { METHODS_SLOT = TNP_COUNT(slots) - 2, GETSET_SLOT = TNP_COUNT(slots) - 3 };

/* The attributes of tensor_attrs.c and __dict__ in one table, as a type wants it. */
static PyGetSetDef *all_getset(void) {
    size_t n = 0;
    while (tnp_tensor_getset[n].name) n++;
    PyGetSetDef *all = PyMem_Malloc((n + 2) * sizeof *all);
    if (!all) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(all, tnp_tensor_getset, n * sizeof *all);
    all[n] = dict_getset;
    all[n + 1] = (PyGetSetDef){NULL, NULL, NULL, NULL, NULL};
    return all;
}

/* The block in front of a tensor has room for CPython's usual head only. */
static bool check_interpreter(void) {
    PyObject *probe = PyList_New(0);
    PyObject *whole = probe ? PyObject_CallMethod(probe, "__sizeof__", NULL) : NULL;
    PyObject *sys_size = NULL, *getsizeof = PySys_GetObject("getsizeof");
    if (probe && getsizeof) sys_size = PyObject_CallFunctionObjArgs(getsizeof, probe, NULL);
    bool ok = whole && sys_size && PyLong_AsLong(sys_size) - PyLong_AsLong(whole) == TNP_HEAD_BYTES;
    Py_XDECREF(probe);
    Py_XDECREF(whole);
    Py_XDECREF(sys_size);
    if (!ok && !PyErr_Occurred())
        PyErr_SetString(PyExc_ImportError,
                        "tenon needs a standard CPython build: this interpreter's objects have a "
                        "different head (free-threaded and debug builds are not supported)");
    return ok;
}

/* ---- The class of Tensor's classes -------------------------------------------------------------*/

/* A tensor's block ends with the core's part, so that a subclass has no room for slots: what they name
 * lies in its __dict__, which every tensor has. */
static PyObject *class_new(PyTypeObject *meta, PyObject *args, PyObject *kwargs) {
    const union {
        void *slot;
        newfunc call;
    } plain = {PyType_GetSlot(&PyType_Type, Py_tp_new)};
    PyObject *name, *bases, *body;
    if (!PyArg_ParseTuple(args, "UO!O!:_TensorMeta", &name, &PyTuple_Type, &bases, &PyDict_Type,
                          &body))
        return NULL;
    PyObject *named = PyDict_GetItemString(body, "__slots__");
    if (!named) return plain.call(meta, args, kwargs);
    Py_INCREF(named);
    PyObject *rest = PyDict_Copy(body);
    bool ok = rest && PyDict_DelItemString(rest, "__slots__") == 0;
    PyObject *all = ok ? Py_BuildValue("(OOO)", name, bases, rest) : NULL;
    PyObject *made = all ? plain.call(meta, all, kwargs) : NULL;
    if (made && PyObject_SetAttrString(made, "__slots__", named) < 0) Py_CLEAR(made);
    Py_XDECREF(all);
    Py_XDECREF(rest);
    Py_DECREF(named);
    return made;
}

static PyObject *new_meta(void) {
    static PyType_Slot meta_slots[] = {TNP_SLOT(Py_tp_new, class_new), {0, NULL}};
    PyType_Spec spec = {.name = "tenon._C._TensorMeta",
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                        .slots = meta_slots};
    PyObject *bases = PyTuple_Pack(1, (PyObject *)&PyType_Type);
    PyObject *meta = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    return meta;
}

bool tnp_tensor_init(PyObject *module) {
    if (!check_interpreter()) return false;
    tnp.host_offset = tn_tensor_host_offset();
    Py_ssize_t host = (Py_ssize_t)(sizeof(PyObject) + tnp.host_offset);
    members[0] = (PyMemberDef){"__dictoffset__", T_PYSSIZET,
                               host + (Py_ssize_t)offsetof(tn_host_slots, dict), READONLY, NULL};
    members[1] = (PyMemberDef){"__weaklistoffset__", T_PYSSIZET,
                               host + (Py_ssize_t)offsetof(tn_host_slots, weak), READONLY, NULL};
    PyMethodDef *const extra[] = {tnp_tensor_methods, tnp_conversion_methods, tnp_autograd_methods};
    slots[METHODS_SLOT].pfunc = tnp_op_methods(extra, TNP_COUNT(extra));
    slots[GETSET_SLOT].pfunc = all_getset();
    if (!slots[METHODS_SLOT].pfunc || !slots[GETSET_SLOT].pfunc) return false;
    PyType_Spec spec = {
        .name = "tenon.Tensor",
        .basicsize = (int)(sizeof(PyObject) + tn_tensor_struct_bytes()),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    PyObject *meta = new_meta(), *type = meta ? PyType_FromSpec(&spec) : NULL;
    if (!type) return false;
    Py_SET_TYPE(type, (PyTypeObject *)meta); /* which a spec cannot name before Python 3.12 */
    tnp.plain = tnp.tensor = (PyTypeObject *)type;
    /* Interpreters' own messages say 'Tensor' then, without the module. */
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    bool ok = name && PyObject_SetAttrString(type, "__name__", name) == 0;
    Py_XDECREF(name);
    return ok && PyModule_AddObjectRef(module, "Tensor", type) == 0;
}
