/* ffi_memory.c: structs and pointers of C as Python objects. */
#include "ffi_priv.h"

/* ---- Struct ------------------------------------------------------------------------------------*/

static tnp_ffi_struct_object *struct_of(PyObject *o) { return (tnp_ffi_struct_object *)o; }

/* The struct that lies in another one's field. */
static PyObject *inner(PyObject *outer, const tn_ffi_record *record, char *memory) {
    tnp_ffi_struct_object *s = PyObject_New(tnp_ffi_struct_object, tnp_ffi_struct_type);
    if (!s) return NULL;
    *s = (tnp_ffi_struct_object){s->ob_base, record, memory, outer, NULL, true};
    Py_INCREF(outer);
    return (PyObject *)s;
}

static void struct_dealloc(PyObject *self) {
    tnp_ffi_struct_object *s = struct_of(self);
    PyTypeObject *type = Py_TYPE(self);
    if (!s->inside) PyMem_Free(s->memory);
    Py_XDECREF(s->kept);
    Py_XDECREF(s->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

static tnp_ffi_struct_object *root_of(tnp_ffi_struct_object *s) {
    while (s->inside) s = struct_of(s->owner);
    return s;
}

static const tn_ffi_field *field_of(const tnp_ffi_struct_object *s, PyObject *name) {
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    for (int32_t i = 0; text && i < s->record->nfields; i++)
        if (strcmp(s->record->fields[i].name, text) == 0) return &s->record->fields[i];
    return NULL;
}

/* Where a pointer field's target is kept. */
static PyObject *key_of(tnp_ffi_struct_object *root, const char *p) {
    return PyLong_FromLongLong(p - root->memory);
}

/* What was assigned to a pointer field, as long as C has not changed the field; borrowed or NULL. */
static PyObject *kept_at(tnp_ffi_struct_object *s, const char *p) {
    tnp_ffi_struct_object *root = root_of(s);
    PyObject *key = key_of(root, p), *have = key ? PyDict_GetItemWithError(root->kept, key) : NULL;
    void *now;
    memcpy(&now, p, sizeof now);
    Py_XDECREF(key);
    if (!have) return NULL;
    void *then = PyLong_AsVoidPtr(PyTuple_GetItem(have, 0));
    return then == now ? PyTuple_GetItem(have, 1) : NULL;
}

static PyObject *load_field(tnp_ffi_struct_object *s, const tn_ffi_type *t, char *p) {
    if (t->kind == TN_FFI_RECORD) return inner((PyObject *)s, t->record, p);
    PyObject *kept = t->kind == TN_FFI_POINTER || t->kind == TN_FFI_CALLBACK ? kept_at(s, p) : NULL;
    Py_XINCREF(kept);
    if (kept || PyErr_Occurred()) return kept;
    return tnp_ffi_load(root_of(s)->owner, t, p);
}

static PyObject *struct_getattro(PyObject *self, PyObject *name) {
    const tn_ffi_field *f = field_of(struct_of(self), name);
    if (!f) return PyObject_GenericGetAttr(self, name);
    return load_field(struct_of(self), f->type, struct_of(self)->memory + f->offset);
}

static int store_field(tnp_ffi_struct_object *s, const tnp_ffi_place *at, const tn_ffi_type *t,
                       char *p, PyObject *o);

static int store_pointer(tnp_ffi_struct_object *s, const tnp_ffi_place *at, const tn_ffi_type *t,
                         char *p, PyObject *o) {
    tnp_ffi_struct_object *root = root_of(s);
    tnp_ffi_target target = {NULL, 0, NULL, o, NULL};
    PyObject *made = NULL;
    if (t->kind == TN_FFI_CALLBACK && o != Py_None) {
        if (Py_TYPE(o) != tnp_ffi_callback_type) {
            made = tnp_ffi_callback_new(root->owner, t->signature, o);
            if (!made) return -1;
            o = made;
        }
        target.address = ((tnp_ffi_callback_object *)o)->code;
    } else if (o != Py_None && tnp_ffi_point(at, t, o, false, &target) < 0) {
        return -1;
    }
    PyObject *key = key_of(root, p), *address = PyLong_FromVoidPtr(target.address);
    PyObject *pair = address ? PyTuple_Pack(2, address, o) : NULL;
    int done = key && pair ? PyDict_SetItem(root->kept, key, pair) : -1;
    if (done == 0) memcpy(p, &target.address, sizeof target.address);
    Py_XDECREF(pair);
    Py_XDECREF(address);
    Py_XDECREF(key);
    Py_XDECREF(made);
    return done;
}

static int store_array(tnp_ffi_struct_object *s, const tnp_ffi_place *at, const tn_ffi_type *t,
                       char *p, PyObject *o) {
    PyObject *items = PySequence_Check(o) && !PyUnicode_Check(o) ? PySequence_List(o) : NULL;
    int done = 0;
    if (!items && PyErr_Occurred()) return -1;
    if (!items) return tnp_ffi_type_error(at, "a sequence", o);
    if (PyList_Size(items) != t->count)
        done = tnp_ffi_error(PyExc_ValueError, at, "takes %lld values, not %zd",
                             (long long)t->count, PyList_Size(items));
    for (int64_t i = 0; done == 0 && i < t->count; i++)
        done = store_field(s, at, t->to, p + i * t->to->size, PyList_GetItem(items, (Py_ssize_t)i));
    Py_DECREF(items);
    return done;
}

static int store_field(tnp_ffi_struct_object *s, const tnp_ffi_place *at, const tn_ffi_type *t,
                       char *p, PyObject *o) {
    if (t->kind == TN_FFI_POINTER || t->kind == TN_FFI_CALLBACK)
        return store_pointer(s, at, t, p, o);
    if (t->kind == TN_FFI_ARRAY) return store_array(s, at, t, p, o);
    if (t->kind != TN_FFI_RECORD) return tnp_ffi_store_number(at, t, o, p);
    if (Py_TYPE(o) != tnp_ffi_struct_type || struct_of(o)->record != t->record)
        return tnp_ffi_type_error(at, tnp_ffi_type_text(t), o);
    memmove(p, struct_of(o)->memory, (size_t)t->size);
    /* Pointers inside keep their targets through it; no field has a negative offset. */
    PyObject *whole = PyLong_FromLongLong(root_of(s)->memory - p - 1);
    int done = whole ? PyDict_SetItem(root_of(s)->kept, whole, o) : -1;
    Py_XDECREF(whole);
    return done;
}

static int set_field(tnp_ffi_struct_object *s, const tn_ffi_field *f, PyObject *o) {
    const tnp_ffi_place at = {s->record->name[0] ? s->record->name : "struct", f->name, 0};
    return store_field(s, &at, f->type, s->memory + f->offset, o);
}

static int struct_setattro(PyObject *self, PyObject *name, PyObject *value) {
    const tn_ffi_field *f = field_of(struct_of(self), name);
    if (f && value) return set_field(struct_of(self), f, value);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_AttributeError,
                     f ? "field '%U' of struct %s cannot be deleted" : "no field '%U' in struct %s",
                     name, struct_of(self)->record->name);
    return -1;
}

static PyObject *fields_text(PyObject *self) {
    const tnp_ffi_struct_object *s = struct_of(self);
    PyObject *text = PyUnicode_FromFormat("%s(", s->record->name);
    for (int32_t i = 0; text && i < s->record->nfields; i++) {
        const char *name = s->record->fields[i].name;
        PyObject *value = PyObject_GetAttrString(self, name);
        PyObject *more =
            value ? PyUnicode_FromFormat("%U%s%s=%R", text, i ? ", " : "", name, value) : NULL;
        Py_XDECREF(value);
        Py_DECREF(text);
        text = more;
    }
    PyObject *whole = text ? PyUnicode_FromFormat("%U)", text) : NULL;
    Py_XDECREF(text);
    return whole;
}

/* A struct may point to itself. */
static PyObject *struct_repr(PyObject *self) {
    int again = Py_ReprEnter(self);
    if (again != 0)
        return again > 0 ? PyUnicode_FromFormat("%s(...)", struct_of(self)->record->name) : NULL;
    PyObject *text = fields_text(self);
    Py_ReprLeave(self);
    return text;
}

static PyObject *struct_dir(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *names = PyList_New(0);
    for (int32_t i = 0; names && i < struct_of(self)->record->nfields; i++) {
        PyObject *name = PyUnicode_FromString(struct_of(self)->record->fields[i].name);
        if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* ---- Pointer -----------------------------------------------------------------------------------*/

static tnp_ffi_pointer_object *pointer_of(PyObject *o) { return (tnp_ffi_pointer_object *)o; }

static PyObject *pointer_make(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)type;
    if (PyTuple_Size(args) || (kwargs && PyDict_Size(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "Pointer() takes no arguments: C fills it in");
        return NULL;
    }
    return tnp_ffi_pointer_new(NULL, NULL, NULL);
}

static void pointer_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(pointer_of(self)->scope);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *pointer_repr(PyObject *self) {
    const tnp_ffi_pointer_object *p = pointer_of(self);
    return PyUnicode_FromFormat("<Pointer to %s at 0x%zx>",
                                p->to ? tnp_ffi_type_text(p->to) : "nothing", (size_t)p->address);
}

static int pointer_bool(PyObject *self) { return pointer_of(self)->address != NULL; }

/* Whether there is something at the pointer that can be read. */
static bool can_read(const tnp_ffi_pointer_object *p) {
    const tn_ffi_type *to = p->to;
    const char *why = p->expired ? "the pointer was an argument of a callback and ended with it"
                      : !p->address || !to ? "the pointer is null"
                      : to->size == 0      ? "what the pointer points to is unknown"
                                           : NULL;
    if (why) PyErr_SetString(p->expired ? PyExc_RuntimeError : PyExc_ValueError, why);
    return why == NULL;
}

static PyObject *pointer_value(PyObject *self, void *unused) {
    const tnp_ffi_pointer_object *p = pointer_of(self);
    (void)unused;
    return can_read(p) ? tnp_ffi_load(p->scope, p->to, p->address) : NULL;
}

static int pointer_set_value(PyObject *self, PyObject *value, void *unused) {
    const tnp_ffi_pointer_object *p = pointer_of(self);
    const tnp_ffi_place at = {"Pointer", "value", 0};
    (void)unused;
    if (!value || !can_read(p)) {
        if (!value) PyErr_SetString(PyExc_AttributeError, "value cannot be deleted");
        return -1;
    }
    if (p->is_const) return tnp_ffi_error(PyExc_TypeError, &at, "is const");
    if (p->to->kind == TN_FFI_RECORD) {
        if (Py_TYPE(value) != tnp_ffi_struct_type || struct_of(value)->record != p->to->record)
            return tnp_ffi_type_error(&at, tnp_ffi_type_text(p->to), value);
        memmove(p->address, struct_of(value)->memory, (size_t)p->to->record->size);
        return 0;
    }
    if (tn_ffi_dtype(p->to->kind) >= 0) return tnp_ffi_store_number(&at, p->to, value, p->address);
    return tnp_ffi_error(PyExc_TypeError, &at, "cannot be set: the pointer is to %s",
                         tnp_ffi_type_text(p->to));
}

static PyObject *pointer_address(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(pointer_of(self)->address);
}

static PyObject *pointer_text(PyObject *self, PyObject *unused) {
    const tnp_ffi_pointer_object *p = pointer_of(self);
    (void)unused;
    if (p->to && p->to->kind != TN_FFI_CHAR) {
        PyErr_Format(PyExc_TypeError, "text() is for pointers to char, not to %s",
                     tnp_ffi_type_text(p->to));
        return NULL;
    }
    if (!can_read(p)) return NULL;
    return PyUnicode_DecodeUTF8(p->address, (Py_ssize_t)strlen(p->address), "surrogateescape");
}

/* ---- Types -------------------------------------------------------------------------------------*/

static PyMethodDef struct_methods[] = {
    {"__dir__", struct_dir, METH_NOARGS, "The names of the fields."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot struct_slots[] = {
    TNP_SLOT(Py_tp_dealloc, struct_dealloc),
    TNP_SLOT(Py_tp_getattro, struct_getattro),
    TNP_SLOT(Py_tp_setattro, struct_setattro),
    TNP_SLOT(Py_tp_repr, struct_repr),
    TNP_SLOT(Py_tp_methods, struct_methods),
    {Py_tp_doc, "A C struct; its fields are attributes."},
    {0, NULL},
};

static PyMethodDef pointer_methods[] = {
    {"text", pointer_text, METH_NOARGS, "The C text that a pointer to char points to."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef pointer_getset[] = {
    {"value", pointer_value, pointer_set_value, "What it points to, one value.", NULL},
    {"address", pointer_address, NULL, "The address as a number.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot pointer_slots[] = {
    TNP_SLOT(Py_tp_new, pointer_make),
    TNP_SLOT(Py_tp_dealloc, pointer_dealloc),
    TNP_SLOT(Py_tp_repr, pointer_repr),
    TNP_SLOT(Py_nb_bool, pointer_bool),
    TNP_SLOT(Py_tp_methods, pointer_methods),
    TNP_SLOT(Py_tp_getset, pointer_getset),
    {Py_tp_doc, "Pointer(): a pointer that C has given, or one for it to fill in (T **)."},
    {0, NULL},
};

bool tnp_ffi_memory_init(PyObject *module) {
    const unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    PyType_Spec structs = {"tenon.ffi.Struct", sizeof(tnp_ffi_struct_object), 0, flags,
                           struct_slots};
    PyType_Spec pointers = {"tenon.ffi.Pointer", sizeof(tnp_ffi_pointer_object), 0,
                            Py_TPFLAGS_DEFAULT, pointer_slots};
    tnp_ffi_struct_type = (PyTypeObject *)PyType_FromSpec(&structs);
    tnp_ffi_pointer_type = (PyTypeObject *)PyType_FromSpec(&pointers);
    return tnp_ffi_struct_type && tnp_ffi_pointer_type &&
           PyModule_AddObjectRef(module, "FfiStruct", (PyObject *)tnp_ffi_struct_type) == 0 &&
           PyModule_AddObjectRef(module, "FfiPointer", (PyObject *)tnp_ffi_pointer_type) == 0;
}
