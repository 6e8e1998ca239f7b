/* ffi_object.c: the types of what C gives and takes, and new structs and pointers. */
#include "ffi_priv.h"

PyTypeObject *tnp_ffi_struct_type, *tnp_ffi_pointer_type, *tnp_ffi_callback_type;

PyObject *tnp_ffi_struct_new(PyObject *scope, const tn_ffi_record *record, const void *from) {
    tnp_ffi_struct_object *s = PyObject_New(tnp_ffi_struct_object, tnp_ffi_struct_type);
    if (!s) return NULL;
    s->record = record;
    s->inside = false;
    s->memory = PyMem_Calloc(1, (size_t)record->size);
    s->kept = PyDict_New();
    s->owner = scope;
    Py_INCREF(scope);
    if (s->memory && s->kept) {
        if (from) memcpy(s->memory, from, (size_t)record->size);
        return (PyObject *)s;
    }
    Py_DECREF(s);
    return PyErr_NoMemory();
}

PyObject *tnp_ffi_pointer_new(PyObject *scope, void *address, const tn_ffi_type *to) {
    tnp_ffi_pointer_object *p = PyObject_New(tnp_ffi_pointer_object, tnp_ffi_pointer_type);
    if (!p) return NULL;
    bool is_const = to && to->is_const;
    *p = (tnp_ffi_pointer_object){p->ob_base, address, to, scope, is_const, false};
    Py_XINCREF(scope);
    return (PyObject *)p;
}
