/* wrap.c: tensors as Python objects: an object's head is made in front of its tensor, or revived there.
 *
 * See binding_priv.h for how an object and its tensor share one block. Objects are tracked by the
 * garbage collector only once they hold Python references; results of operators never do. */
#include <tenon/wrapped.h>

#include "binding_priv.h"

_Static_assert(sizeof(PyObject) + TNP_HEAD_BYTES == TN_HOST_PREFIX, "the head fits its place");

/* tn_host_slots.reserved */
enum { TRACKED = 1 };

void tnp_track(PyObject *self) {
    tn_host_slots *h = tnp_host(tnp_of(self));
    if (h->reserved & TRACKED) return;
    h->reserved |= TRACKED;
    PyObject_GC_Track(self);
}

static PyObject *revive(tn_tensor *t, tn_host_slots *h) {
    PyObject *o = tnp_object(t);
    PyTypeObject *type = h->type;
    h->type = NULL;
    h->alive = 1;
    h->reserved = 0;
    PyObject_Init(o, type);
    Py_DECREF(type); /* the dormant head held one */
    if (h->dict) tnp_track(o);
    return o;
}

static PyObject *head_new(tn_tensor *t, tn_host_slots *h, PyTypeObject *type) {
    PyObject *o = tnp_object(t);
    memset((char *)o - TNP_HEAD_BYTES, 0,
           TNP_HEAD_BYTES); /* a block may have been another object's */
    h->alive = 1;
    return PyObject_Init(o, type);
}

PyObject *tnp_wrap(tn_tensor *t) {
    tn_host_slots *h = tnp_host(t);
    if (TNP_LIKELY(!h->alive)) {
        if (TNP_UNLIKELY(tn_tensor_layout(t) == TN_LAYOUT_WRAPPED) && !h->type)
            return tnp_wrap_wrapped(t);
        if (TNP_LIKELY(!h->type)) return head_new(t, h, tnp.tensor);
        return revive(t, h);
    }
    PyObject *o = tnp_object(t);
    Py_INCREF(o);
    tn_tensor_unref(&t);
    return o;
}

PyObject *tnp_wrap_opt(tn_tensor *t) {
    if (t) return tnp_wrap(t);
    Py_RETURN_NONE;
}

PyObject *tnp_wrap_as(tn_tensor *t, PyTypeObject *type) {
    tn_host_slots *h = tnp_host(t);
    if (h->alive || h->type) {
        tn_tensor_unref(&t);
        PyErr_SetString(PyExc_RuntimeError, "the tensor has a Python object already");
        return NULL;
    }
    return head_new(t, h, type);
}

PyObject *tnp_wrap_wrapped_as(tn_tensor *t, PyTypeObject *type) {
    const tnp_wrapped *s = tn_wrapped_ctx(t);
    PyObject *dict = Py_NewRef(s->dict);
    PyObject *o = tnp_wrap_as(t, type);
    if (!o) {
        Py_DECREF(dict);
        return NULL;
    }
    tnp_host(t)->dict = dict;
    tnp_track(o);
    return o;
}

PyObject *tnp_wrap_wrapped(tn_tensor *t) {
    const tnp_wrapped *s = tn_wrapped_ctx(t);
    return tnp_wrap_wrapped_as(t, s->type);
}

bool tnp_check_layout(PyTypeObject *type) {
    if (type == tnp.tensor) return true;
    PyObject *asked = PyObject_GetAttrString((PyObject *)type, "__torch_dispatch__");
    if (asked) { /* without its method its numbers would be others */
        Py_DECREF(asked);
        PyErr_Format(PyExc_NotImplementedError,
                     "%R has a method __torch_dispatch__, which would not be called for a tensor "
                     "with memory of its own: Tensor._make_wrapper_subclass makes one without, "
                     "and __torch_function__ sees calls of all",
                     (PyObject *)type);
        return false;
    }
    PyErr_Clear();
    return tnp_check_size(type);
}

bool tnp_check_size(PyTypeObject *type) {
    PyObject *size = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    if (!size) return false;
    size_t bytes = PyLong_AsSize_t(size);
    Py_DECREF(size);
    if (bytes == sizeof(PyObject) + tn_tensor_struct_bytes()) return true;
    PyErr_SetString(PyExc_TypeError,
                    "a subclass of Tensor cannot have a larger block than Tensor's");
    return false;
}
