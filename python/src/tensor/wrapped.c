/* wrapped.c: tensors that a class with __torch_dispatch__ makes of others, and the calls that come to it.
 *
 * What the core keeps of such a tensor is a pair: the class and the instance's dict. Aliases, which the
 * tape makes of what it saves, are instances that share the dict. What a call's arguments mean is said
 * in tenon/_tape/wrapped.py. */
#include <tenon/wrapped.h>

#include "binding_priv.h"

static _Thread_local bool watches;

bool tnp_watches(void) { return watches; }

static void end_wrapped(void *ctx) {
    tnp_wrapped *s = ctx;
    if (Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        Py_XDECREF((PyObject *)s->type);
        Py_XDECREF(s->dict);
        PyErr_Restore(type, value, trace);
        PyGILState_Release(gil);
    }
    free(s);
}

/* ---- Making one --------------------------------------------------------------------------------*/

static bool read_ints(PyObject *o, int64_t *v, int32_t *ret_n) {
    Py_ssize_t n = PySequence_Size(o);
    if (n < 0) return false;
    if (n > TN_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "tensors have at most %d dimensions", TN_MAX_DIMS);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(o, i);
        int got = item ? tnp_int_from(item, &v[i]) : -1;
        Py_XDECREF(item);
        if (got == 0) PyErr_SetString(PyExc_TypeError, "sizes and strides are integers");
        if (got != 1) return false;
    }
    *ret_n = (int32_t)n;
    return true;
}

/* _make_wrapped(cls, size, strides, dtype, device, requires_grad) */
static PyObject *make_wrapped(PyObject *unused, PyObject *args) {
    PyObject *cls, *size, *strides, *dtype, *device;
    int64_t shape[TN_MAX_DIMS], steps[TN_MAX_DIMS];
    int32_t n, nsteps;
    int requires_grad;
    tn_device d;
    tn_tensor *t = NULL;
    (void)unused;
    if (!PyArg_ParseTuple(args, "OOOOOp:_make_wrapped", &cls, &size, &strides, &dtype, &device,
                          &requires_grad))
        return NULL;
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, tnp.tensor))
        return PyErr_Format(PyExc_TypeError, "the class must be a subclass of Tensor");
    if (!tnp_check_size((PyTypeObject *)cls) || !read_ints(size, shape, &n)) return NULL;
    if (strides != Py_None && !read_ints(strides, steps, &nsteps)) return NULL;
    if (strides != Py_None && nsteps != n)
        return PyErr_Format(
            PyExc_RuntimeError,
            "dimensionality of sizes (%d) must match dimensionality of strides (%d)", (int)n,
            (int)nsteps);
    if (!tnp_device_from(device, &d)) return NULL;
    tnp_wrapped *s = calloc(1, sizeof *s);
    if (!s) return PyErr_NoMemory();
    s->type = (PyTypeObject *)Py_NewRef(cls);
    s->dict = PyDict_New();
    tn_status st = s->dict ? tn_wrapped_new(tnp_dtype_slot(dtype), d, n, shape,
                                            strides == Py_None ? NULL : steps, end_wrapped, s, &t)
                           : TN_E_HOST;
    if (st != TN_OK) {
        end_wrapped(s);
        return tnp_raise(st);
    }
    if (requires_grad && tnp_check(tn_set_requires_grad(t, 1)) < 0) {
        tn_tensor_unref(&t);
        return NULL;
    }
    return tnp_wrap_wrapped_as(t, (PyTypeObject *)cls);
}

static PyObject *is_wrapped(PyObject *unused, PyObject *o) {
    (void)unused;
    return PyBool_FromLong(tnp_is_tensor(o) && tn_tensor_layout(tnp_of(o)) == TN_LAYOUT_WRAPPED);
}

int tnp_wrapped_item(const tn_tensor *t, tn_scalar *ret_scalar) {
    PyObject *f = tnp_helper("_tape.wrapped", "item");
    PyObject *self = f ? tnp_wrap(tn_tensor_ref((tn_tensor *)(uintptr_t)t)) : NULL;
    PyObject *value = self ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
    int got = value ? tnp_scalar_from(value, ret_scalar) : -1;
    if (got == 0) PyErr_SetString(PyExc_TypeError, "__torch_dispatch__ returned no number");
    Py_XDECREF(value);
    Py_XDECREF(self);
    return got == 1 ? 0 : -1;
}

/* ---- A call as Python sees it ------------------------------------------------------------------*/

static PyObject *object_of(const tn_view *v) {
    tn_tensor *t = (tn_tensor *)(void *)(uintptr_t)v;
    if (!t) Py_RETURN_NONE;
    if (!(v->word & TN_W_SCALAR)) return tnp_wrap(tn_tensor_ref(t));
    tn_scalar s;
    return tnp_check(tn_tensor_item(t, &s)) < 0 ? NULL : tnp_scalar_to(&s);
}

static PyObject *list_of(tn_views list) {
    PyObject *r = PyList_New((Py_ssize_t)list.n);
    for (int64_t i = 0; r && i < list.n; i++) {
        PyObject *item = object_of(list.v[i]);
        if (!item) {
            Py_DECREF(r);
            return NULL;
        }
        PyList_SetItem(r, (Py_ssize_t)i, item);
    }
    return r;
}

static PyObject *ints_of(tn_ints list) {
    if (list.n < 0) Py_RETURN_NONE;
    PyObject *r = PyList_New((Py_ssize_t)list.n);
    for (int64_t i = 0; r && i < list.n; i++)
        PyList_SetItem(r, (Py_ssize_t)i, PyLong_FromLongLong(list.v[i]));
    return r;
}

static PyObject *none_or_int(tn_opt_int v) {
    if (!v.has) Py_RETURN_NONE;
    return PyLong_FromLongLong(v.value);
}

static PyObject *value_of(const tn_field *f, const void *args) {
    const void *p = (const char *)args + f->offset;
    const int64_t *word = p;
    switch (f->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND: return object_of(*(const tn_view *const *)p);
    case TN_F_TENSORS: return list_of(*(const tn_views *)p);
    case TN_F_INT:
    case TN_F_DIM: return PyLong_FromLongLong(*word);
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: return none_or_int(*(const tn_opt_int *)p);
    case TN_F_INTS:
    case TN_F_DIMS: return ints_of(*(const tn_ints *)p);
    case TN_F_BOOL: return PyBool_FromLong(*word != 0);
    case TN_F_FLOAT: return PyFloat_FromDouble(*(const double *)p);
    case TN_F_FLOAT_OPT:
        if (!((const tn_opt_float *)p)->has) Py_RETURN_NONE;
        return PyFloat_FromDouble(((const tn_opt_float *)p)->value);
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT:
        if (((const tn_scalar *)p)->kind == TN_SCALAR_NONE) Py_RETURN_NONE;
        return tnp_scalar_to(p);
    case TN_F_DTYPE:
        if (*word < 0) Py_RETURN_NONE;
        return tnp_dtype_object((int32_t)*word);
    case TN_F_DEVICE:
        if (*word < 0) Py_RETURN_NONE;
        return tnp_device_object_of((tn_device){(int32_t)(*word >> 8), (int32_t)(*word & 0xff)});
    case TN_F_FORMAT: return tnp_format_object((int32_t)*word);
    case TN_F_STR:
        if (!*(const char *const *)p) Py_RETURN_NONE;
        return PyUnicode_FromString(*(const char *const *)p);
    case TN_F_GENERATOR:
        if (!*(tn_generator *const *)p) Py_RETURN_NONE;
        return tnp_generator_object(tn_generator_ref(*(tn_generator *const *)p));
    default: Py_RETURN_NONE;
    }
}

/* [(name, keyword only, default as text or None, value), ...] */
static PyObject *fields_of(const tn_op_meta *meta, const void *args) {
    PyObject *r = PyList_New(0);
    for (int32_t i = 0; r && i < meta->nfields; i++) {
        const tn_field *f = &meta->fields[i];
        if (f->kind == TN_F_OUT || f->kind == TN_F_OUTS) continue;
        PyObject *value = value_of(f, args);
        PyObject *item = value ? Py_BuildValue("(sizN)", f->name,
                                               (f->flags & TNI_FIELD_KWONLY) != 0, f->deflt, value)
                               : NULL;
        if (!item || PyList_Append(r, item) < 0) Py_CLEAR(r);
        Py_XDECREF(item);
    }
    return r;
}

/* ---- What it gives -----------------------------------------------------------------------------*/

static tn_status fail_result(const char *op, PyObject *o) {
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__name__");
    if (name)
        PyErr_Format(PyExc_TypeError,
                     "%s: what __torch_dispatch__ returned is %U where a tensor is expected", op,
                     name);
    Py_XDECREF(name);
    return TN_E_HOST;
}

/* A result; of a call that is still to be recorded one of its own: what is handed back as it came, or
 * has a history, would get another one. */
static tn_status take(const char *op, PyObject *o, bool recorded, tn_tensor **ret) {
    if (!tnp_is_tensor(o)) return fail_result(op, o);
    tn_tensor *t = tnp_of(o);
    bool has_history = !recorded && tn_tensor_view(t)->word & (TN_W_GRAD | TN_W_LEAFVIEW);
    if (has_history || (!recorded && Py_REFCNT(o) > 2)) return tnp_alias_of(t, ret);
    *ret = tn_tensor_ref(t);
    return TN_OK;
}

static tn_status take_all(const tn_op_meta *meta, PyObject *got, bool recorded, tn_tensor **rets) {
    const char *name = meta->info->name;
    bool list = meta->flags & TNI_OP_LIST_OUT;
    Py_ssize_t n = PyTuple_Check(got) || PyList_Check(got) ? PySequence_Size(got) : -1;
    if (n < 0 && (list || meta->nout != 1)) return fail_result(name, got);
    if (n < 0) return take(name, got, recorded, rets);
    tn_tensor_list made = {.v = rets, .n = meta->nout};
    if (list) {
        made.v = calloc((size_t)(n > 0 ? n : 1), sizeof *made.v);
        if (!made.v) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        made.n = n;
        *(tn_tensor_list *)(void *)rets = made;
    } else if (n != meta->nout) {
        return fail_result(name, got);
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(got, i);
        tn_status st = !item             ? TN_E_HOST
                       : item == Py_None ? TN_OK
                                         : take(name, item, recorded, &made.v[i]);
        Py_XDECREF(item);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}

static tn_status ask_python(tn_wrapped_ask ask, const tn_op_info *op, const void *args, int inplace,
                            tn_tensor **rets) {
    tn_op_meta meta;
    tn_status st = tn_op_meta_find(op->name, &meta);
    if (st != TN_OK) return st;
    PyObject *ours = tnp_helper("_tape.wrapped", ask == TN_WRAPPED_PARTS ? "PARTS" : "IMPLICIT");
    PyObject *key = ours ? PyUnicode_FromString(op->name) : NULL;
    int known = key ? PySequence_Contains(ours, key) : -1;
    Py_XDECREF(key);
    if (known < 0) return TN_E_HOST;
    if (ask == TN_WRAPPED_PARTS ? !known : ask == TN_WRAPPED_EITHER && known) return TN_DECLINE;
    PyObject *f = tnp_helper("_tape.wrapped", ask == TN_WRAPPED_PARTS ? "parts" : "whole");
    PyObject *fields = f ? fields_of(&meta, args) : NULL;
    PyObject *got = fields ? PyObject_CallFunction(f, "siiO", op->name, inplace,
                                                   ask == TN_WRAPPED_WHOLE, fields)
                           : NULL;
    Py_XDECREF(fields);
    if (!got) return TN_E_HOST;
    if (got == Py_NotImplemented && ask == TN_WRAPPED_PARTS) {
        Py_DECREF(got);
        return TN_DECLINE;
    }
    if (inplace) {
        const tn_field *self = &meta.fields[meta.in_field[0]];
        tn_view *v = *(tn_view *const *)(const void *)((const char *)args + self->offset);
        rets[0] = tn_tensor_ref((tn_tensor *)(void *)v);
    } else if (meta.nout > 0) {
        st = take_all(&meta, got, ask != TN_WRAPPED_WHOLE, rets);
    }
    Py_DECREF(got);
    return st;
}

static tn_status on_call(tn_wrapped_ask ask, const tn_op_info *op, const void *args, int inplace,
                         tn_tensor **rets) {
    PyGILState_STATE gil = PyGILState_Ensure();
    tn_status st = ask_python(ask, op, args, inplace, rets);
    PyGILState_Release(gil);
    return st;
}

static PyObject *watch_calls(PyObject *unused, PyObject *on) {
    (void)unused;
    watches = PyObject_IsTrue(on) == 1;
    return PyBool_FromLong(tn_wrapped_watch(watches));
}

static PyMethodDef methods[] = {
    {"_watch_calls", watch_calls, METH_O,
     "Whether all calls of this thread come to _tape.wrapped; returns what it was."},
    {"_make_wrapped", make_wrapped, METH_VARARGS, "A tensor without memory of a class of its own."},
    {"_is_wrapped", is_wrapped, METH_O, "Whether it is one."},
    {NULL, NULL, 0, NULL},
};

bool tnp_wrapped_init(PyObject *module) {
    tn_wrapped_set_call(on_call);
    return PyModule_AddFunctions(module, methods) == 0;
}
