/* factory.c: tensors out of Python data: tensor(), as_tensor(), asarray(), from_numpy(), frombuffer().
 *
 * Nested sequences are walked twice: once for shape and dtype, once to store. Reading an element may run
 * code that empties the list which held it, so each is held while it is read. */
#include <math.h>

#include "binding_priv.h"

/* ---- Nested sequences --------------------------------------------------------------------------*/

typedef struct scan {
    int32_t ndim, dtype; /* dtype: -1 before the first number */
    int32_t want;        /* what is asked for, or -1 */
    int64_t shape[TN_MAX_DIMS];
} scan;

static bool is_sequence(PyObject *o) { return PyList_Check(o) || PyTuple_Check(o); }
static Py_ssize_t length(PyObject *o) { return PyList_Check(o) ? PyList_Size(o) : PyTuple_Size(o); }
static PyObject *item(PyObject *o, Py_ssize_t i) {
    return PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
}

/* An element that is a list in other clothes: an array, a tensor, a range. New reference. */
static PyObject *as_list(PyObject *o, int32_t *ret_dtype) {
    *ret_dtype = -1;
    if (tnp_is_tensor(o)) {
        if (tnp_refuse_many(o, "tensor()")) return NULL;
        *ret_dtype = tn_tensor_dtype(tnp_of(o));
        return tnp_tolist(tnp_of(o));
    }
    if (tnp_is_numpy_array(o)) {
        tn_tensor *t = tnp_from_buffer(o, false);
        if (!t) return NULL;
        *ret_dtype = tn_tensor_dtype(t);
        PyObject *list = tnp_tolist(t);
        tn_tensor_unref(&t);
        return list;
    }
    if (PyUnicode_Check(o) || PyBytes_Check(o))
        return tnp_type_error("new(): invalid data type '%U'", o);
    if (!PySequence_Check(o))
        return tnp_error_about(PyExc_RuntimeError, "Could not infer dtype of %U", o);
    return PySequence_List(o);
}

static int32_t number_dtype(PyObject *o, const tn_scalar *s) {
    bool wide = tn_dtype_default() == TN_F64;
    /* NumPy's float64 and complex128 are Python's float and complex too, but keep their width. */
    if (Py_TYPE(o) != &PyFloat_Type && !PyBool_Check(o) && tnp_is_numpy_scalar(o)) {
        PyObject *dtype = PyObject_GetAttrString(o, "dtype");
        PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
        const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
        int32_t slot = text ? tn_dtype_find(text) : -1;
        Py_XDECREF(dtype);
        Py_XDECREF(name);
        PyErr_Clear();
        if (slot >= 0) return slot;
    }
    switch (s->kind) {
    case TN_CAT_BOOL: return TN_BOOL;
    case TN_CAT_INT: return TN_I64;
    case TN_CAT_FLOAT: return tn_dtype_default();
    default: return wide ? TN_C128 : tn_dtype_default() == TN_F16 ? TN_C32 : TN_C64;
    }
}

static void promote(scan *s, int32_t dtype) {
    s->dtype = s->dtype < 0 ? dtype : tn_dtype_promote(s->dtype, dtype);
}

static bool bad_length(int64_t want, int32_t dim, Py_ssize_t got) {
    PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)",
                 (long long)want, (int)dim, got);
    return false;
}

/* The number that an object is, as tnp_scalar_from; for uint64 its bits where int64 does not hold it.
 * Other integers beyond 64 bits are marked by an imaginary part: beside a float they become one, alone
 * they are refused when they are stored. */
static int number_of(PyObject *o, int32_t dtype, tn_scalar *ret) {
    int beyond = 0;
    if (!PyLong_Check(o) || PyBool_Check(o)) return tnp_scalar_from(o, ret);
    if (dtype == TN_U64) {
        unsigned long long bits = PyLong_AsUnsignedLongLong(o);
        *ret = tn_scalar_int((int64_t)bits);
        return PyErr_Occurred() ? -1 : 1;
    }
    long long v = PyLong_AsLongLongAndOverflow(o, &beyond);
    *ret = tn_scalar_int((int64_t)v);
    if (!beyond) return v == -1 && PyErr_Occurred() ? -1 : 1;
    ret->re = PyLong_AsDouble(o);
    ret->im = 1;
    return ret->re == -1 && PyErr_Occurred() ? -1 : 1;
}

/* The shape, from the first elements; it ends where one is a tensor. */
static bool scan_shape(PyObject *o, scan *s) {
    tn_scalar number;
    if (is_sequence(o)) {
        if (s->ndim == TN_MAX_DIMS) {
            PyErr_Format(PyExc_ValueError, "too many dimensions (more than %d)", TN_MAX_DIMS);
            return false;
        }
        Py_ssize_t n = length(o);
        s->shape[s->ndim++] = n;
        if (n == 0) return true;
        PyObject *first = Py_NewRef(item(o, 0));
        bool ok = scan_shape(first, s);
        Py_DECREF(first);
        return ok;
    }
    if (tnp_is_tensor(o)) return true;
    int r = number_of(o, s->want, &number);
    if (r) return r > 0;
    if (PyUnicode_Check(o) && s->ndim > 0) /* a sequence, too */
        return tnp_error_about(PyExc_ValueError, "too many dimensions '%U'", o) != NULL;
    int32_t dtype;
    PyObject *list = as_list(o, &dtype);
    bool ok = list && scan_shape(list, s);
    Py_XDECREF(list);
    return ok;
}

/* A tensor in the place of a number is the one element that it has. */
static bool scan_element(const tn_tensor *t, scan *s) {
    int32_t dtype = tn_tensor_dtype(t), to = s->want >= 0 ? s->want : dtype;
    if (tn_tensor_numel(t) == 1) {
        promote(s, dtype);
        return true;
    }
    if (tn_dtype_category(to) == TN_CAT_INT)
        PyErr_SetString(PyExc_TypeError,
                        "only integer tensors of a single element can be converted to an index");
    else
        PyErr_SetString(PyExc_ValueError,
                        "only one element tensors can be converted to Python scalars");
    return false;
}

static bool scan_numbers(PyObject *o, int32_t dim, scan *s) {
    tn_scalar number;
    if (tnp_is_tensor(o) && dim == s->ndim)
        return !tnp_refuse_many(o, "tensor()") && scan_element(tnp_of(o), s);
    if (!is_sequence(o)) {
        int r = number_of(o, s->want, &number);
        if (r < 0) return false;
        if (r > 0) {
            if (dim != s->ndim) return tnp_type_error("not a sequence: %U", o) != NULL;
            promote(s, number_dtype(o, &number));
            return true;
        }
        int32_t dtype;
        PyObject *list = as_list(o, &dtype);
        if (!list) return false;
        scan inner = *s;
        inner.dtype = -1;
        bool ok = !is_sequence(list) || scan_numbers(list, dim, &inner);
        Py_DECREF(list);
        if (dtype < 0) dtype = inner.dtype;
        if (ok && dtype >= 0) promote(s, dtype);
        return ok;
    }
    if (dim == s->ndim) {
        PyErr_SetString(PyExc_TypeError, "the data has numbers and sequences at one level");
        return false;
    }
    Py_ssize_t n = length(o);
    if (n != s->shape[dim]) return bad_length(s->shape[dim], dim, n);
    if (PyErr_CheckSignals() < 0) return false;
    PyTypeObject *seen = NULL;
    for (Py_ssize_t i = 0; i < n && i < length(o); i++) {
        PyObject *e = item(o, i);
        /* A run of plain floats or ints says the same thing again. */
        bool plain = Py_TYPE(e) == &PyFloat_Type || Py_TYPE(e) == &PyLong_Type;
        if (plain && Py_TYPE(e) == seen) continue;
        Py_INCREF(e);
        bool ok = scan_numbers(e, dim + 1, s);
        Py_DECREF(e);
        if (!ok) return false;
        seen = plain ? Py_TYPE(e) : NULL;
    }
    return true;
}

/* ---- Storing -----------------------------------------------------------------------------------*/

static bool overflow(int32_t dtype) {
    PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
                 tn_dtype_name(dtype));
    return false;
}

static bool store_int(int32_t dtype, int64_t v, char *p) {
    static const struct {
        int64_t lo, hi;
    } range[] = {[TN_U8] = {-UINT8_MAX, UINT8_MAX},
                 [TN_I8] = {INT8_MIN, INT8_MAX},
                 [TN_I16] = {INT16_MIN, INT16_MAX},
                 [TN_I32] = {INT32_MIN, INT32_MAX},
                 [TN_I64] = {INT64_MIN, INT64_MAX},
                 [TN_U16] = {-UINT16_MAX, UINT16_MAX},
                 [TN_U32] = {-(int64_t)UINT32_MAX, UINT32_MAX}};
    bool known = dtype < (int32_t)(sizeof range / sizeof range[0]) && range[dtype].hi;
    if (known && (v < range[dtype].lo || v > range[dtype].hi)) return overflow(dtype);
    memcpy(p, &v, (size_t)tn_dtype_size(dtype)); /* little-endian, as DLPack's CPUs are */
    return true;
}

/* dtype is one of those that can be stored here: all built-in ones but f16 and bf16. */
static bool store(int32_t dtype, const tn_scalar *s, char *p) {
    bool beyond = s->kind == TN_CAT_INT && s->im != 0;
    double d[2] = {s->re, beyond ? 0 : s->im};
    float f[2] = {(float)d[0], (float)d[1]};
    if (beyond && dtype != TN_BOOL && tn_dtype_category(dtype) < TN_CAT_FLOAT) {
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return false;
    }
    if (s->kind == TN_CAT_COMPLEX && tn_dtype_category(dtype) < TN_CAT_COMPLEX &&
        dtype != TN_BOOL) {
        PyErr_SetString(PyExc_TypeError, "must be real number, not complex");
        return false;
    }
    bool natural = dtype == TN_U8 || dtype == TN_U16 || dtype == TN_U32 || dtype == TN_U64;
    bool strange = !(fabs(d[0]) <= 0x1p63) || (natural && d[0] < 0.0);
    switch (dtype) {
    case TN_BOOL: *p = s->re != 0.0 || s->im != 0.0; break;
    case TN_F32: memcpy(p, f, sizeof f[0]); break;
    case TN_F64: memcpy(p, d, sizeof d[0]); break;
    case TN_C64: memcpy(p, f, sizeof f); break;
    case TN_C128: memcpy(p, d, sizeof d); break;
    default:
        if (s->kind == TN_CAT_FLOAT && strange) return overflow(dtype);
        return store_int(dtype, s->i, p);
    }
    return true;
}

typedef struct sink {
    char *p;
    char *end;
    int32_t dtype;
    int32_t bytes;
} sink;

static bool store_all(PyObject *o, sink *k) {
    tn_scalar s;
    if (is_sequence(o)) {
        Py_ssize_t n = length(o);
        if (PyErr_CheckSignals() < 0) return false;
        for (Py_ssize_t i = 0; i < n && i < length(o); i++) {
            PyObject *e = Py_NewRef(item(o, i));
            bool ok = store_all(e, k);
            Py_DECREF(e);
            if (!ok) return false;
        }
        return true;
    }
    int r = number_of(o, k->dtype, &s);
    if (r < 0) return false;
    if (r == 0) {
        int32_t unused;
        PyObject *list = as_list(o, &unused);
        bool ok = list && store_all(list, k);
        Py_XDECREF(list);
        return ok;
    }
    if (k->p >= k->end) { /* a sequence that grew while it was read */
        PyErr_SetString(PyExc_RuntimeError, "the data changed while it was read");
        return false;
    }
    if (!store(k->dtype, &s, k->p)) return false;
    k->p += k->bytes;
    return true;
}

/* Lists that hold each other may stand for more numbers than memory holds; looking at all of them to find
 * their dtype would never end. */
static bool has_room(const scan *s) {
    tn_device cpu = {0, 0};
    tn_tensor *bytes = NULL;
    double n = 1;
    for (int32_t d = 0; d < s->ndim; d++) n *= (double)s->shape[d];
    if (n < 0x1p30) return true;
    bool ok = tnp_check(tn_tensor_new(TN_U8, cpu, s->ndim, s->shape, &bytes)) >= 0;
    tn_tensor_unref(&bytes);
    return ok;
}

static tn_tensor *from_sequence(PyObject *data, int32_t dtype) {
    scan s = {.dtype = -1, .want = dtype};
    tn_device cpu = {0, 0};
    tn_tensor *t = NULL;
    if (!scan_shape(data, &s) || !has_room(&s) || !scan_numbers(data, 0, &s)) return NULL;
    int32_t want = dtype >= 0 ? dtype : s.dtype >= 0 ? s.dtype : tn_dtype_default();
    bool direct = tnp_is_element(want) && want != TN_F16 && want != TN_BF16;
    bool complex_ = tn_dtype_category(want) == TN_CAT_COMPLEX;
    int32_t stored = direct ? want : complex_ ? TN_C64 : TN_F32;
    if (tnp_check(tn_tensor_new(stored, cpu, s.ndim, s.shape, &t)) < 0) return NULL;
    const tn_view *v = tn_tensor_view(t);
    int32_t bytes = (int32_t)tn_view_itemsize(v);
    sink k = {v->data, (char *)v->data + v->numel * bytes, stored, bytes};
    bool ok = store_all(data, &k);
    if (ok && k.p != k.end) {
        PyErr_SetString(PyExc_RuntimeError, "the data changed while it was read");
        ok = false;
    }
    if (ok && !direct) {
        tn_tensor *converted = tnp_to(t, want, NULL, false, TN_FORMAT_PRESERVE);
        tn_tensor_unref(&t);
        return converted;
    }
    if (!ok) tn_tensor_unref(&t);
    return t;
}

/* The elements of a storage, whose memory t looks at; NULL without an error: data is none. */
static tn_tensor *from_storage(PyObject *data, int32_t dtype) {
    if (is_sequence(data) || PyLong_Check(data) || PyFloat_Check(data) || tnp_is_numpy_scalar(data))
        return NULL;
    PyObject *f = tnp_helper("_tensor.storage", "tensor_over");
    PyObject *want = dtype < 0 ? Py_NewRef(Py_None) : f ? tnp_dtype_object(dtype) : NULL;
    PyObject *made = f && want ? PyObject_CallFunctionObjArgs(f, data, want, NULL) : NULL;
    tn_tensor *t = made && tnp_is_tensor(made) ? tn_tensor_ref(tnp_of(made)) : NULL;
    Py_XDECREF(want);
    Py_XDECREF(made);
    return t;
}

tn_tensor *tnp_tensor_from(PyObject *data, int32_t dtype, int copy) {
    tn_tensor *t = NULL;
    bool shares = true; /* t looks at memory of `data` */
    if (tnp_is_tensor(data)) {
        if (copy == 1 && tnp_refuse_many(data, "tensor()")) return NULL;
        t = copy == 1 ? tnp_detached(tnp_of(data)) : tn_tensor_ref(tnp_of(data));
    } else if (tnp_is_numpy_array(data) ||
               (!is_sequence(data) && !tnp_is_numpy_scalar(data) && PyObject_CheckBuffer(data))) {
        t = tnp_from_buffer(data, false);
    } else if (!(t = from_storage(data, dtype)) && !PyErr_Occurred()) {
        t = from_sequence(data, dtype);
        shares = false;
    }
    if (!t) return NULL;
    bool converts = dtype >= 0 && dtype != tn_tensor_dtype(t);
    if (copy == 0 && (converts || !shares)) {
        tn_tensor_unref(&t);
        PyErr_SetString(PyExc_ValueError, "can't alias data: it has to be copied");
        return NULL;
    }
    if (!converts && !(copy == 1 && shares)) return t;
    tn_tensor *r = tnp_to(t, dtype, NULL, copy == 1 && shares, TN_FORMAT_PRESERVE);
    tn_tensor_unref(&t);
    return r;
}

/* ---- Functions ---------------------------------------------------------------------------------*/

/* Marks and wraps; takes over t. */
static PyObject *marked(tn_tensor *t, bool requires_grad) {
    if (t && requires_grad && tnp_check(tn_set_requires_grad(t, 1)) < 0) tn_tensor_unref(&t);
    return t ? tnp_wrap(t) : NULL;
}

/* The same on a device, where none is given on the default one. */
static PyObject *finish(tn_tensor *t, PyObject *device, bool requires_grad) {
    tn_device d;
    if (device == Py_None) device = NULL;
    if (t && device) {
        tn_tensor *moved = NULL;
        if (tnp_device_from(device, &d)) moved = tnp_to(t, -1, &d, false, TN_FORMAT_PRESERVE);
        tn_tensor_unref(&t);
        t = moved;
    } else if (t && !device && tnp.new_device_set != 0) {
        d = tnp_new_device();
        tn_tensor *moved = tnp_to(t, -1, &d, false, TN_FORMAT_PRESERVE);
        tn_tensor_unref(&t);
        t = moved;
    }
    return marked(t, requires_grad);
}

static bool dtype_arg(PyObject *o, int32_t *ret_dtype) {
    *ret_dtype = o && o != Py_None ? tnp_dtype_slot(o) : -1;
    if (!o || o == Py_None || *ret_dtype >= 0) return true;
    PyErr_Format(PyExc_TypeError, "argument 'dtype' must be dtype, not %R", (PyObject *)Py_TYPE(o));
    return false;
}

/* A new tensor as the modes that are entered want it; takes over the reference. */
static PyObject *lifted(PyObject *made) {
    if (!made || TNP_LIKELY(!tnp_watches())) return made;
    PyObject *f = tnp_helper("_tape.call_modes", "lifted");
    PyObject *r = f ? PyObject_CallFunctionObjArgs(f, made, NULL) : NULL;
    Py_DECREF(made);
    return r;
}

static PyObject *py_tensor(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "dtype", "device", "requires_grad", "pin_memory", NULL};
    PyObject *taken, *data, *dtype = NULL, *device = NULL;
    int requires_grad = 0, pin = 0;
    int32_t slot;
    (void)unused;
    if (tnp_mode_takes("tensor", args, kwargs, &taken)) return taken;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOpp:tensor", names, &data, &dtype, &device,
                                     &requires_grad, &pin) ||
        !dtype_arg(dtype, &slot))
        return NULL;
    if (tnp_is_tensor(data) &&
        PyErr_WarnEx(PyExc_UserWarning,
                     "To copy construct from a tensor, it is recommended to use "
                     "sourceTensor.detach().clone() or "
                     "sourceTensor.detach().clone().requires_grad_(True), rather than "
                     "tensor(sourceTensor).",
                     1) < 0)
        return NULL;
    tn_tensor *t = tnp_tensor_from(data, slot, 1);
    if (t && pin && !tnp_pin(&t, -1)) return NULL;
    return lifted(finish(t, device, requires_grad != 0));
}

static PyObject *py_as_tensor(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "dtype", "device", NULL};
    PyObject *taken, *data, *dtype = NULL, *device = NULL;
    int32_t slot;
    (void)unused;
    if (tnp_mode_takes("as_tensor", args, kwargs, &taken)) return taken;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:as_tensor", names, &data, &dtype,
                                     &device) ||
        !dtype_arg(dtype, &slot))
        return NULL;
    PyObject *made = finish(tnp_tensor_from(data, slot, -1), device, false);
    return tnp_is_tensor(data) || tnp_is_numpy_array(data) ? made : lifted(made);
}

/* t, or its memory without its history; t is taken over. */
static tn_tensor *cut(tn_tensor *t) {
    if (!t || !tn_requires_grad(t)) return t;
    tn_tensor *leaf = tnp_detached(t);
    tn_tensor_unref(&t);
    return leaf;
}

static PyObject *py_asarray(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"obj", "dtype", "device", "copy", "requires_grad", NULL};
    PyObject *taken, *data, *dtype = NULL, *device = NULL, *copy = Py_None, *grad = NULL;
    int32_t slot;
    (void)unused;
    if (tnp_mode_takes("asarray", args, kwargs, &taken)) return taken;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOO:asarray", names, &data, &dtype, &device,
                                     &copy, &grad) ||
        !dtype_arg(dtype, &slot))
        return NULL;
    int how = copy == Py_None ? -1 : PyObject_IsTrue(copy);
    if (how < 0 && copy != Py_None) return NULL;
    int trained = grad && grad != Py_None ? PyObject_IsTrue(grad) : -1; /* -1: as the data is */
    if (trained < 0 && PyErr_Occurred()) return NULL;
    bool ours = tnp_is_tensor(data) || is_sequence(data) || PyObject_CheckBuffer(data);
    int foreign = ours ? 0 : tnp_speaks_dlpack(data);
    if (foreign < 0) return NULL;
    if (!foreign) {
        tn_tensor *made = tnp_tensor_from(data, slot, how);
        return finish(trained == 0 ? cut(made) : made, device, trained == 1);
    }
    tn_tensor *t = tnp_from_dlpack(data);
    tn_tensor *r = t ? tnp_to(t, slot, NULL, how == 1, TN_FORMAT_PRESERVE) : NULL;
    tn_tensor_unref(&t);
    return finish(r, device, trained == 1);
}

static PyObject *py_from_numpy(PyObject *unused, PyObject *array) {
    (void)unused;
    if (!tnp_is_numpy_array(array)) return tnp_type_error("expected np.ndarray (got %U)", array);
    tn_tensor *t = tnp_from_buffer(array, false);
    return t ? tnp_wrap(t) : NULL;
}

static PyObject *py_frombuffer(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "dtype", "count", "offset", "requires_grad", NULL};
    PyObject *buffer, *dtype = NULL;
    Py_ssize_t count = -1, offset = 0;
    int requires_grad = 0;
    int32_t slot;
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$Onnp:frombuffer", names, &buffer, &dtype,
                                     &count, &offset, &requires_grad) ||
        !dtype_arg(dtype, &slot))
        return NULL;
    if (slot < 0) {
        PyErr_SetString(PyExc_TypeError, "frombuffer() missing required keyword argument 'dtype'");
        return NULL;
    }
    PyObject *memory = PyMemoryView_FromObject(buffer);
    PyObject *bytes = memory ? PyObject_CallMethod(memory, "cast", "s", "B") : NULL;
    tn_tensor *raw = bytes ? tnp_from_buffer(bytes, false) : NULL, *t = NULL;
    Py_XDECREF(memory);
    Py_XDECREF(bytes);
    if (!raw) return NULL;
    int64_t total = tn_tensor_numel(raw), size = tn_dtype_size(slot), one = 1;
    if (count < -1 || count == 0 || offset < 0 || offset >= total ||
        (count > 0 ? count > (total - offset) / size : (total - offset) % size != 0)) {
        PyErr_Format(PyExc_ValueError,
                     "frombuffer(): %zd elements of %lld bytes from offset %zd do not fit a buffer "
                     "of %lld bytes",
                     count, (long long)size, offset, (long long)total);
    } else {
        int64_t n = count > 0 ? count : (total - offset) / size;
        const tn_view *v = tn_tensor_view(raw);
        tn_tensor *keep = tn_tensor_ref(raw);
        tn_status st =
            tn_tensor_from_foreign(slot, (tn_device){0, 0}, 1, &n, &one, (char *)v->data + offset,
                                   (v->word & TN_W_READONLY) != 0, tnp_release_tensor, keep, &t);
        if (tnp_check(st) < 0) tn_tensor_unref(&keep);
    }
    tn_tensor_unref(&raw);
    return marked(t, requires_grad != 0); /* over the buffer, whatever the default device is */
}

static PyObject *py_from_dlpack(PyObject *unused, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"x", "device", "copy", NULL};
    PyObject *source, *device = NULL, *copy = Py_None;
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO:from_dlpack", names, &source, &device,
                                     &copy))
        return NULL;
    tn_tensor *t = tnp_from_dlpack(source);
    if (t && copy == Py_True) {
        tn_tensor *own = tnp_to(t, -1, NULL, true, TN_FORMAT_PRESERVE);
        tn_tensor_unref(&t);
        t = own;
    }
    if (device && device != Py_None) return finish(t, device, false);
    return t ? tnp_wrap(t) : NULL; /* the default device is for what is made anew */
}

static PyMethodDef functions[] = {
    {"tensor", TNP_CFUNC(py_tensor), METH_VARARGS | METH_KEYWORDS,
     "tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False)\n\n"
     "A new tensor with a copy of numbers, nested sequences, an array or a buffer."},
    {"as_tensor", TNP_CFUNC(py_as_tensor), METH_VARARGS | METH_KEYWORDS,
     "as_tensor(data, dtype=None, device=None)\n\nShares memory with data where it can."},
    {"asarray", TNP_CFUNC(py_asarray), METH_VARARGS | METH_KEYWORDS,
     "asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None)\n\n"
     "Any array, buffer, DLPack object or sequence as a tensor."},
    {"from_numpy", py_from_numpy, METH_O,
     "from_numpy(ndarray)\n\nA tensor over the array's memory."},
    {"frombuffer", TNP_CFUNC(py_frombuffer), METH_VARARGS | METH_KEYWORDS,
     "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False)\n\n"
     "A 1-d tensor over a buffer's memory."},
    {"from_dlpack", TNP_CFUNC(py_from_dlpack), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(x, *, device=None, copy=None)\n\nA tensor over another library's memory."},
    {NULL, NULL, 0, NULL},
};

bool tnp_factory_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
