/* tensor_methods.c: methods of Tensor that are not operators: facts, storage, numbers, copies,
 * pickling. Methods that are operators come from the op table. */
#include <tenon/program.h>
#include <tenon/wrapped.h>

#include "binding_priv.h"

#define METHOD(name) static PyObject *name(PyObject *self, PyObject *unused)

/* ---- Facts -------------------------------------------------------------------------------------*/

/* Wraps dim into [0, ndim); false: IndexError. */
static bool wrap_dim(int64_t dim, int32_t ndim, int64_t *ret_dim) {
    int64_t n = ndim ? ndim : 1;
    if (dim < -n || dim >= n) {
        PyErr_Format(
            PyExc_IndexError,
            "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
            (long long)-n, (long long)n - 1, (long long)dim);
        return false;
    }
    *ret_dim = dim < 0 ? dim + n : dim;
    return true;
}

/* Of sizes, or of strides, which follow from them. */
static PyObject *one_dim(PyObject *self, PyObject *arg, const int64_t *values, const char *name) {
    int64_t dim;
    int r = tnp_int_from(arg, &dim);
    if (r == 0) PyErr_Format(PyExc_TypeError, "%s(): argument 'dim' must be int", name);
    if (r <= 0) return NULL;
    int32_t ndim = tn_tensor_ndim(tnp_of(self));
    if (ndim == 0) {
        PyErr_SetString(PyExc_IndexError, "Dimension specified as 0 but tensor has no dimensions");
        return NULL;
    }
    if (!wrap_dim(dim, ndim, &dim)) return NULL;
    return tnp_size_number(values[dim]);
}

static PyObject *size(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dim", NULL};
    PyObject *dim = Py_None;
    const tn_tensor *t = tnp_of(self);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:size", names, &dim)) return NULL;
    tn_program_note_sizes(t);
    if (dim != Py_None) return one_dim(self, dim, tn_tensor_shape(t), "size");
    return tnp_size_from(tn_tensor_shape(t), tn_tensor_ndim(t));
}

static PyObject *stride(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dim", NULL};
    PyObject *dim = Py_None;
    const tn_tensor *t = tnp_of(self);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:stride", names, &dim)) return NULL;
    tn_program_note_sizes(t);
    if (dim != Py_None) return one_dim(self, dim, tn_tensor_strides(t), "stride");
    if (tnp_settle(t) < 0) return NULL;
    bool has_none = tn_tensor_layout(t) > TN_LAYOUT_COO;
    if (has_none && tn_tensor_layout(t) != TN_LAYOUT_WRAPPED)
        return tnp_no_memory(self, "stride()");
    int32_t n = tn_tensor_ndim(t);
    PyObject *tuple = PyTuple_New(n);
    for (int32_t i = 0; tuple && i < n; i++) {
        PyObject *item = tnp_size_number(tn_tensor_strides(t)[i]);
        if (!item)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, i, item);
    }
    return tuple;
}

METHOD(dim) {
    (void)unused;
    return PyLong_FromLong(tn_tensor_ndim(tnp_of(self)));
}
METHOD(numel) {
    (void)unused;
    tn_program_note_sizes(tnp_of(self));
    return tnp_size_number(tn_tensor_numel(tnp_of(self)));
}
METHOD(element_size) {
    (void)unused;
    return PyLong_FromLongLong(tn_view_itemsize(tn_tensor_view(tnp_of(self))));
}
METHOD(storage_offset) {
    (void)unused;
    return PyLong_FromLongLong(tn_tensor_storage_offset(tnp_of(self)));
}
METHOD(data_ptr) {
    (void)unused;
    if (tnp_check(tn_tensor_show(tnp_of(self))) < 0) return NULL;
    if (tn_tensor_layout(tnp_of(self)) != TN_LAYOUT_STRIDED)
        return tnp_no_memory(self, "data_ptr()");
    return PyLong_FromVoidPtr(tn_tensor_view(tnp_of(self))->data);
}
METHOD(is_floating_point) {
    (void)unused;
    return PyBool_FromLong(tn_dtype_category(tn_tensor_dtype(tnp_of(self))) == TN_CAT_FLOAT);
}
METHOD(is_complex) {
    (void)unused;
    return PyBool_FromLong(tn_dtype_category(tn_tensor_dtype(tnp_of(self))) == TN_CAT_COMPLEX);
}
METHOD(is_signed) {
    (void)unused;
    return PyBool_FromLong(tn_dtype_is_signed(tn_tensor_dtype(tnp_of(self))));
}
METHOD(is_inference) {
    (void)unused;
    return PyBool_FromLong((tn_tensor_view(tnp_of(self))->word & TN_W_INFERENCE) != 0);
}
METHOD(get_device) {
    (void)unused;
    tn_device d = tn_tensor_device(tnp_of(self));
    return PyLong_FromLong(d.slot == 0 || d.slot == TN_META_SLOT ? -1 : d.index);
}

/* What the word of a tensor without memory does not say. */
static bool is_packed(const tn_view *v) {
    int64_t step = 1;
    for (int32_t i = v->ndim - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && v->strides[i] != step) return v->numel == 0;
        step *= v->shape[i];
    }
    return true;
}

static PyObject *is_contiguous(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"memory_format", NULL};
    PyObject *format = NULL;
    const tn_view *v = tn_tensor_view(tnp_of(self));
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:is_contiguous", names, &format)) return NULL;
    if (tnp_settle(tnp_of(self)) < 0) return NULL;
    int32_t want = format ? tnp_format_value(format) : TN_FORMAT_CONTIGUOUS;
    if (want < 0) return tnp_type_error("memory_format must be a memory_format, not %U", format);
    if (want == TN_FORMAT_CHANNELS_LAST)
        return PyBool_FromLong((v->word & TN_W_CHANNELS_LAST) && v->ndim == 4);
    if (want == TN_FORMAT_CHANNELS_LAST_3D)
        return PyBool_FromLong((v->word & TN_W_CHANNELS_LAST) && v->ndim == 5);
    if (TNP_UNLIKELY(tn_tensor_layout(tnp_of(self)) == TN_LAYOUT_WRAPPED))
        return PyBool_FromLong(is_packed(v));
    return PyBool_FromLong(tn_view_is_contiguous(v));
}

static PyObject *is_set_to(PyObject *self, PyObject *other) {
    if (!tnp_is_tensor(other)) return tnp_type_error("is_set_to() takes a Tensor, not %U", other);
    if (tnp_settle(tnp_of(self)) < 0 || tnp_settle(tnp_of(other)) < 0) return NULL;
    const tn_view *a = tn_tensor_view(tnp_of(self)), *b = tn_tensor_view(tnp_of(other));
    bool same = a->data == b->data && a->ndim == b->ndim &&
                tn_tensor_same_storage(tnp_of(self), tnp_of(other));
    for (int32_t i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i] && a->strides[i] == b->strides[i];
    return PyBool_FromLong(same);
}

/* ---- Numbers -----------------------------------------------------------------------------------*/

METHOD(item) {
    (void)unused;
    const tn_tensor *t = tnp_of(self);
    if (tn_tensor_numel(t) != 1)
        return PyErr_Format(PyExc_RuntimeError,
                            "a Tensor with %lld elements cannot be converted to Scalar",
                            (long long)tn_tensor_numel(t));
    return tnp_item_of(t);
}

METHOD(tolist) {
    (void)unused;
    return tnp_tolist(tnp_of(self));
}

METHOD(is_nonzero) {
    (void)unused;
    int r = tnp_bool(self);
    return r < 0 ? NULL : PyBool_FromLong(r);
}

METHOD(to_complex_number) {
    if (tn_tensor_numel(tnp_of(self)) != 1)
        return PyErr_Format(PyExc_ValueError,
                            "only one element tensors can be converted to Python scalars");
    PyObject *value = item(self, unused);
    if (!value) return NULL;
    double re = PyComplex_RealAsDouble(value), im = PyComplex_ImagAsDouble(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? NULL : PyComplex_FromDoubles(re, im);
}

/* f"{t:.3f}" formats the number of a 0-d tensor; anything else is its text. */
static PyObject *format(PyObject *self, PyObject *spec) {
    bool one = tn_tensor_ndim(tnp_of(self)) == 0 && Py_TYPE(self) == tnp.tensor;
    if (one && tn_tensor_device(tnp_of(self)).slot != TN_META_SLOT) {
        PyObject *value = item(self, NULL);
        PyObject *r = value ? PyObject_Format(value, spec) : NULL;
        Py_XDECREF(value);
        return r;
    }
    PyObject *base = (PyObject *)&PyBaseObject_Type;
    return PyObject_CallMethod(base, "__format__", "OO", self, spec);
}

/* ---- NumPy -------------------------------------------------------------------------------------*/

static PyObject *array_of(PyObject *self) {
    const tn_view *v = tn_tensor_view(tnp_of(self));
    if (tnp_settle(tnp_of(self)) < 0) return NULL;
    if (v->word & TN_W_LAYOUT)
        return PyErr_Format(PyExc_TypeError,
                            "can't convert a tensor of layout %s to numpy. Use Tensor.to_dense() "
                            "first.",
                            tn_layout_name(tn_tensor_layout(tnp_of(self))));
    if ((v->word & TN_W_GRAD) && tn_grad_enabled()) {
        PyErr_SetString(PyExc_RuntimeError, "Can't call numpy() on Tensor that requires grad. Use "
                                            "tensor.detach().numpy() instead.");
        return NULL;
    }
    if (v->word & TN_W_GRAD) { /* the buffer protocol lends no memory that a tape watches */
        PyObject *plain = PyObject_CallMethod(self, "detach", NULL);
        PyObject *array = plain ? array_of(plain) : NULL;
        Py_XDECREF(plain);
        return array;
    }
    if (tn_view_device(v) != 0)
        return PyErr_Format(PyExc_TypeError,
                            "can't convert %s:%d device type tensor to numpy. Use Tensor.cpu() to "
                            "copy the tensor to host memory first.",
                            tn_device_name(tn_view_device(v)), (int)tn_view_index(v));
    if (tn_view_dtype(v) == TN_BF16 || !tnp_is_element(tn_view_dtype(v)))
        return PyErr_Format(PyExc_TypeError, "Got unsupported ScalarType %s",
                            tn_view_dtype(v) == TN_BF16 ? "BFloat16"
                                                        : tn_dtype_name(tn_view_dtype(v)));
    PyObject *np = tnp_numpy("Tensor.numpy()");
    return np ? PyObject_CallMethod(np, "asarray", "O", self) : NULL;
}

static PyObject *numpy(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"force", NULL};
    int force = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:numpy", names, &force)) return NULL;
    if (!force) return array_of(self);
    PyObject *plain = PyObject_CallMethod(self, "detach", NULL);
    PyObject *host = plain ? PyObject_CallMethod(plain, "cpu", NULL) : NULL;
    PyObject *r = host ? array_of(host) : NULL;
    Py_XDECREF(plain);
    Py_XDECREF(host);
    return r;
}

static PyObject *array_protocol(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    PyObject *a = array_of(self);
    if (!a || (dtype == Py_None && copy != Py_True)) return a;
    PyObject *r = PyObject_CallMethod(a, dtype == Py_None ? "copy" : "astype",
                                      dtype == Py_None ? NULL : "O", dtype);
    Py_DECREF(a);
    return r;
}

/* ---- Storage -----------------------------------------------------------------------------------*/

METHOD(untyped_storage) {
    (void)unused;
    if (tnp_settle(tnp_of(self)) < 0) return NULL;
    if (tn_tensor_layout(tnp_of(self)) != TN_LAYOUT_STRIDED) {
        PyErr_Format(PyExc_NotImplementedError, "a tensor of layout %s has no storage of its own",
                     tn_layout_name(tn_tensor_layout(tnp_of(self))));
        return NULL;
    }
    PyObject *f = tnp_helper("_tensor.storage", "UntypedStorage");
    return f ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
}
METHOD(typed_storage) {
    (void)unused;
    PyObject *f = tnp_helper("_tensor.storage", "typed_of");
    return f ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
}
METHOD(storage_ptr) {
    (void)unused;
    return PyLong_FromVoidPtr(tn_tensor_storage_data(tnp_of(self)));
}
METHOD(lies_channels_last) {
    (void)unused;
    if (tnp_settle(tnp_of(self)) < 0) return NULL;
    return PyBool_FromLong(tn_tensor_lies_channels_last(tnp_of(self)));
}
METHOD(storage_id) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(tn_tensor_storage_id(tnp_of(self)));
}
METHOD(storage_bytes) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(tn_tensor_storage_bytes(tnp_of(self)));
}

/* set_data with a geometry on the same or another tensor's storage. */
static PyObject *is_view(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(tn_view_base(tnp_of(self)) != NULL);
}

/* The tensor that a storage object sees its bytes through: a new reference, NULL for others. */
static PyObject *row_of(PyObject *storage) {
    PyObject *row = PyObject_GetAttrString(storage, "_row");
    if (row && tnp_is_tensor(row)) return row;
    PyErr_Clear();
    Py_XDECREF(row);
    return NULL;
}

/* Whether self may take over what has elements of a dtype: a tensor as it is, a storage that has one. */
static bool set_fits(PyObject *self, PyObject *source, bool sized) {
    PyObject *kind = NULL;
    if (tnp_is_tensor(source) ? !sized : true) kind = PyObject_GetAttrString(source, "dtype");
    int32_t slot = kind ? tnp_dtype_slot(kind) : -1, own = tn_tensor_dtype(tnp_of(self));
    if (!kind) PyErr_Clear();
    Py_XDECREF(kind);
    if (slot < 0 || slot == own) return true;
    if (tnp_is_tensor(source))
        PyErr_Format(PyExc_RuntimeError,
                     "set_(): Could not set tensor of type %s to a tensor of type %s",
                     tn_dtype_name(slot), tn_dtype_name(own));
    else
        PyErr_Format(PyExc_RuntimeError,
                     "set_(): Expected a Storage of type %s or an UntypedStorage, but got type %s",
                     tn_dtype_name(own), tn_dtype_name(slot));
    return false;
}

static PyObject *set_from(PyObject *self, const tn_tensor *src, bool whole, long long offset,
                          PyObject *sizes, PyObject *strides) {
    int64_t shape[TN_MAX_DIMS], steps[TN_MAX_DIMS];
    tn_tensor *t = tnp_of(self), *view = NULL;
    tn_status st = TN_OK;
    if (sizes) {
        Py_ssize_t n = PySequence_Size(sizes);
        if (n < 0) return NULL;
        if (n > TN_MAX_DIMS || (strides && PySequence_Size(strides) != n)) {
            PyErr_SetString(PyExc_ValueError, "set_(): sizes and strides do not fit together");
            return NULL;
        }
        int64_t step = 1;
        for (Py_ssize_t i = n - 1; i >= 0; i--) {
            PyObject *a = PySequence_GetItem(sizes, i);
            PyObject *b = strides ? PySequence_GetItem(strides, i) : NULL;
            shape[i] = a ? PyLong_AsLongLong(a) : -1;
            steps[i] = strides ? (b ? PyLong_AsLongLong(b) : -1) : step;
            /* sizes that do not fit are refused with the steps that they lead to */
            if (__builtin_mul_overflow(step, shape[i] > 1 ? shape[i] : 1, &step)) step = INT64_MAX;
            Py_XDECREF(a);
            Py_XDECREF(b);
            if (PyErr_Occurred()) return NULL;
        }
        st = tn_tensor_alias(src, tn_tensor_dtype(t), (int32_t)n, shape, steps, offset, &view);
    } else if (whole) {
        shape[0] =
            (int64_t)(tn_tensor_storage_bytes(src) / (uint64_t)tn_view_itemsize(tn_tensor_view(t)));
        steps[0] = 1;
        st = tn_tensor_alias(src, tn_tensor_dtype(t), 1, shape, steps, offset, &view);
    } else {
        st = tn_tensor_alias(src, tn_tensor_dtype(src), tn_tensor_ndim(src), tn_tensor_shape(src),
                             tn_tensor_strides(src), tn_tensor_storage_offset(src), &view);
    }
    if (st == TN_OK) st = tn_tensor_set_data(t, view);
    tn_tensor_unref(&view);
    if (st != TN_OK) return tnp_raise(st);
    tn_tensor_note_change(t);
    Py_INCREF(self);
    return self;
}

/* Memory without bytes: the one before is let go. */
static PyObject *set_to_nothing(PyObject *self) {
    tn_tensor *t = tnp_of(self), *empty = NULL;
    const int64_t none = 0;
    if (tnp_check(tn_tensor_new(tn_tensor_dtype(t), tn_tensor_device(t), 1, &none, &empty)) < 0)
        return NULL;
    PyObject *result = set_from(self, empty, false, 0, NULL, NULL);
    tn_tensor_unref(&empty);
    return result;
}

static PyObject *set_(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"source", "storage_offset", "size", "stride", NULL};
    PyObject *source = NULL, *sizes = NULL, *strides = NULL;
    long long offset = 0;
    if (PyTuple_Size(args) == 0 && (!kwargs || PyDict_Size(kwargs) == 0))
        return set_to_nothing(self);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|LOO:set_", names, &source, &offset, &sizes,
                                     &strides))
        return NULL;
    bool tensor = tnp_is_tensor(source);
    if (tensor && tnp_refuse_many(source, "set_()")) return NULL;
    if (!set_fits(self, source, sizes != NULL)) return NULL;
    PyObject *row = tensor ? source : row_of(source);
    if (!row) return tnp_type_error("set_() takes a Tensor or a storage, not %U", source);
    if (tensor) Py_INCREF(row);
    PyObject *result = set_from(self, tnp_of(row), !tensor, offset, sizes, strides);
    Py_DECREF(row);
    return result;
}

/* ---- Copies and pickles ------------------------------------------------------------------------*/

static PyObject *deepcopy(PyObject *self, PyObject *memo) {
    PyObject *f = tnp_helper("_tensor.reduce", "deepcopy_tensor");
    return f ? PyObject_CallFunctionObjArgs(f, self, memo, NULL) : NULL;
}
METHOD(shallow_copy) {
    (void)unused;
    PyObject *f = tnp_helper("_tensor.reduce", "copy_tensor");
    return f ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
}
static PyObject *reduce_ex(PyObject *self, PyObject *protocol) {
    PyObject *f = tnp_helper("_tensor.reduce", "reduce_tensor");
    return f ? PyObject_CallFunctionObjArgs(f, self, protocol, NULL) : NULL;
}
/* The elements, packed, as bytes; and back. */
METHOD(to_bytes) {
    (void)unused;
    const tn_view *v = tn_tensor_view(tnp_of(self));
    if (tnp_settle(tnp_of(self)) < 0) return NULL;
    if (v->word & TN_W_LAYOUT) return tnp_no_memory(self, "_to_bytes()");
    int64_t n = v->numel * tn_view_itemsize(v);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
    if (!bytes) return NULL;
    tn_status st = tn_tensor_read(tnp_of(self), PyBytes_AsString(bytes), (uint64_t)n);
    if (st == TN_OK) return bytes;
    Py_DECREF(bytes);
    return tnp_raise(st);
}
static PyObject *from_bytes(PyObject *self, PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    tn_status st = tn_tensor_write(tnp_of(self), view.buf, (uint64_t)view.len);
    PyBuffer_Release(&view);
    if (st != TN_OK) return tnp_raise(st);
    Py_RETURN_NONE;
}

METHOD(same) {
    (void)unused;
    Py_INCREF(self);
    return self;
}

/* ---- Subclasses --------------------------------------------------------------------------------*/

/* A detached alias of data as an instance of cls. */
static PyObject *instance_of(PyObject *cls, PyObject *data, bool requires_grad) {
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, tnp.tensor)) {
        PyErr_SetString(PyExc_TypeError, "the class must be a subclass of Tensor");
        return NULL;
    }
    if (!tnp_is_tensor(data)) return tnp_type_error("data must be a Tensor, not %U", data);
    bool wrapped = tn_tensor_layout(tnp_of(data)) == TN_LAYOUT_WRAPPED;
    if (!wrapped && !tnp_check_layout((PyTypeObject *)cls)) return NULL;
    tn_tensor *t = NULL;
    tn_status st = tnp_alias_of(tnp_of(data), &t);
    if (st == TN_OK && requires_grad) st = tn_set_requires_grad(t, 1);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return tnp_raise(st);
    }
    return wrapped ? tnp_wrap_wrapped_as(t, (PyTypeObject *)cls)
                   : tnp_wrap_as(t, (PyTypeObject *)cls);
}

static PyObject *make_subclass(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"cls", "data", "require_grad", NULL};
    PyObject *cls, *data;
    int requires_grad = 0;
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p:_make_subclass", names, &cls, &data,
                                     &requires_grad))
        return NULL;
    return instance_of(cls, data, requires_grad != 0);
}

/* Keeps the history: an alias that is recorded, made an instance of cls. */
static PyObject *as_subclass(PyObject *self, PyObject *cls) {
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, tnp.tensor)) {
        PyErr_SetString(PyExc_TypeError, "as_subclass() takes a subclass of Tensor");
        return NULL;
    }
    int watched = tn_wrapped_watch(0); /* the alias is no call of the program */
    tn_tensor *alias = tnp_check_layout((PyTypeObject *)cls) ? tnp_alias(tnp_of(self)) : NULL;
    tn_wrapped_watch(watched);
    return alias ? tnp_wrap_as(alias, (PyTypeObject *)cls) : NULL;
}

#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
PyMethodDef tnp_tensor_methods[] = {
    {"size", TNP_CFUNC(size), KEYWORDS, "size(dim=None): the sizes, or that of one dimension."},
    {"stride", TNP_CFUNC(stride), KEYWORDS, "stride(dim=None): steps between elements."},
    {"dim", dim, METH_NOARGS, "Number of dimensions."},
    {"ndimension", dim, METH_NOARGS, "Number of dimensions."},
    {"_is_view", is_view, METH_NOARGS, "True for a tensor that is recorded as a view of another."},
    {"numel", numel, METH_NOARGS, "Number of elements."},
    {"nelement", numel, METH_NOARGS, "Number of elements."},
    {"element_size", element_size, METH_NOARGS, "Bytes of one element."},
    {"storage_offset", storage_offset, METH_NOARGS, "Where element 0 is in the storage."},
    {"data_ptr", data_ptr, METH_NOARGS, "Address of element 0."},
    {"_nnz", tnp_nnz, METH_NOARGS, "How many elements a sparse tensor keeps."},
    {"sparse_dim", tnp_sparse_dim, METH_NOARGS, "Dimensions of a sparse tensor that have indices."},
    {"dense_dim", tnp_dense_dim, METH_NOARGS, "Dimensions behind those that have indices."},
    {"is_coalesced", tnp_is_coalesced, METH_NOARGS,
     "True when the indices of a tensor of layout sparse_coo are known to be sorted and distinct."},
    {"is_floating_point", is_floating_point, METH_NOARGS, "True for real floating dtypes."},
    {"is_complex", is_complex, METH_NOARGS, "True for complex dtypes."},
    {"is_signed", is_signed, METH_NOARGS, "True when elements may be negative."},
    {"is_shared", tnp_is_shared, METH_NOARGS, "True for memory that other processes can map."},
    {"is_pinned", TNP_CFUNC(tnp_is_pinned), KEYWORDS,
     "is_pinned(device=None): True for memory that pin_memory() made."},
    {"is_inference", is_inference, METH_NOARGS, "True when made in inference mode."},
    {"get_device", get_device, METH_NOARGS, "Index of the device; -1 for the CPU."},
    {"is_contiguous", TNP_CFUNC(is_contiguous), KEYWORDS,
     "is_contiguous(memory_format=...): whether elements lie in the order of that format."},
    {"is_set_to", is_set_to, METH_O, "True when both are the same view of one storage."},
    {"item", item, METH_NOARGS, "The one element as a Python number."},
    {"tolist", tolist, METH_NOARGS, "The elements as nested lists, or a number for a 0-d tensor."},
    {"is_nonzero", is_nonzero, METH_NOARGS, "bool() of a tensor with one element."},
    {"__complex__", to_complex_number, METH_NOARGS, NULL},
    {"__format__", format, METH_O, NULL},
    {"numpy", TNP_CFUNC(numpy), KEYWORDS, "numpy(*, force=False): an array over the same memory."},
    {"__array__", TNP_CFUNC(array_protocol), KEYWORDS, NULL},
    {"__dlpack__", TNP_CFUNC(tnp_to_dlpack), KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None): a DLPack capsule."},
    {"__dlpack_device__", tnp_dlpack_device, METH_NOARGS, NULL},
    {"untyped_storage", untyped_storage, METH_NOARGS, "The memory behind the tensor."},
    {"_storage_ptr", storage_ptr, METH_NOARGS, NULL},
    {"_lies_channels_last", lies_channels_last, METH_NOARGS, NULL},
    {"_storage_id", storage_id, METH_NOARGS, NULL},
    {"_storage_bytes", storage_bytes, METH_NOARGS, NULL},
    {"storage", typed_storage, METH_NOARGS, "The memory behind the tensor, in elements."},
    {"_typed_storage", typed_storage, METH_NOARGS, NULL},
    {"set_", (PyCFunction)(void (*)(void))set_, METH_VARARGS | METH_KEYWORDS,
     "set_(source, storage_offset, size, stride)"},
    {"__copy__", shallow_copy, METH_NOARGS, NULL},
    {"__deepcopy__", deepcopy, METH_O, NULL},
    {"__reduce_ex__", reduce_ex, METH_O, NULL},
    {"_to_bytes", to_bytes, METH_NOARGS, NULL},
    {"_from_bytes", from_bytes, METH_O, NULL},
    {"resolve_neg", same, METH_NOARGS, "The tensor itself: there are no lazy negatives."},
    {"pin_memory", TNP_CFUNC(tnp_pin_memory), KEYWORDS,
     "pin_memory(device=None): a copy that the device reaches by itself, or the tensor if it is "
     "one."},
    {"share_memory_", tnp_share_memory, METH_NOARGS,
     "Moves the memory to where other processes can map it; the tensor itself."},
    {"_make_subclass", TNP_CFUNC(make_subclass), KEYWORDS | METH_STATIC,
     "_make_subclass(cls, data, require_grad=False)"},
    {"as_subclass", as_subclass, METH_O,
     "as_subclass(cls): the same tensor as an instance of cls."},
    {NULL, NULL, 0, NULL},
};
