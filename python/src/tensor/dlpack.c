/* dlpack.c: memory shared with other libraries: the buffer protocol and DLPack, both ways.
 *
 * What is handed out keeps an alias of the tensor, so the memory stays although the tensor may be
 * given other storage later. What comes in is a foreign storage whose release gives it back. */
#include "binding_priv.h"

#include <tenon/program.h>

/* ---- Formats -----------------------------------------------------------------------------------*/

static const char *const formats[TN_DTYPE_CORE_COUNT] = {
    [TN_BOOL] = "?",  [TN_U8] = "B",  [TN_I8] = "b",  [TN_I16] = "h", [TN_I32] = "i",
    [TN_I64] = "q",   [TN_F16] = "e", [TN_F32] = "f", [TN_F64] = "d", [TN_C64] = "Zf",
    [TN_C128] = "Zd", [TN_U16] = "H", [TN_U32] = "I", [TN_U64] = "Q",
};

static int32_t dtype_of_format(const char *format, Py_ssize_t itemsize) {
    if (!format) return itemsize == 1 ? TN_U8 : -1;
    if (*format == '@' || *format == '=' || *format == '<') format++;
    if (format[0] == 'l' && format[1] == '\0') return itemsize == 8 ? TN_I64 : TN_I32;
    if (format[0] == 'L' && format[1] == '\0') return itemsize == 8 ? TN_U64 : TN_U32;
    if (format[0] == 'c' && format[1] == '\0') return TN_U8;
    for (int32_t i = 0; i < TN_DTYPE_CORE_COUNT; i++)
        if (formats[i] && strcmp(formats[i], format) == 0 && tn_dtype_size(i) == itemsize) return i;
    return -1;
}

void tnp_release_tensor(void *ctx) {
    tn_tensor *t = ctx;
    tn_tensor_unref(&t);
}

static tn_tensor *alias_of(const tn_tensor *t) {
    tn_tensor *r = NULL;
    tn_status st = tn_tensor_alias(t, tn_tensor_dtype(t), tn_tensor_ndim(t), tn_tensor_shape(t),
                                   tn_tensor_strides(t), tn_tensor_storage_offset(t), &r);
    return st == TN_OK ? r : tnp_raise(st);
}

/* ---- Buffers out -------------------------------------------------------------------------------*/

typedef struct exported {
    tn_tensor *alias;
    Py_ssize_t dims[2 * TN_MAX_DIMS]; /* shape, then strides in bytes */
} exported;

static int refuse(Py_buffer *view, const char *why) {
    view->obj = NULL;
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
}

int tnp_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    tn_tensor *t = tnp_of(self);
    const tn_view *v = tn_tensor_view(t);
    if (tnp_check(tn_tensor_show(t)) < 0) {
        view->obj = NULL;
        return -1;
    }
    int32_t dtype = tn_view_dtype(v);
    bool packed = tn_view_is_contiguous(v);
    if (tnp_refuse_many(self, "the buffer protocol")) {
        view->obj = NULL;
        return -1;
    }
    tn_program_note_read(t);
    if (tn_view_device(v) != 0) return refuse(view, "the tensor is not in the memory of the CPU");
    if (v->word & TN_W_LAYOUT) return refuse(view, "a sparse tensor has no memory of its own");
    if (v->word & TN_W_GRAD)
        return refuse(view, "the tensor requires a gradient; use tensor.detach()");
    if (dtype >= TN_DTYPE_CORE_COUNT || !formats[dtype])
        return refuse(view, "buffers have no format for this dtype");
    if ((flags & PyBUF_WRITABLE) && (v->word & TN_W_READONLY))
        return refuse(view, "the tensor's memory is read-only");
    if (!packed && ((flags & PyBUF_STRIDES) != PyBUF_STRIDES ||
                    (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS))
        return refuse(view, "the tensor is not contiguous");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && v->ndim > 1)
        return refuse(view, "the tensor is not Fortran-contiguous");
    exported *e = PyMem_Malloc(sizeof *e);
    if (!e) {
        view->obj = NULL;
        PyErr_NoMemory();
        return -1;
    }
    e->alias = alias_of(t);
    if (!e->alias) {
        PyMem_Free(e);
        view->obj = NULL;
        return -1;
    }
    for (int32_t i = 0; i < v->ndim; i++) {
        e->dims[i] = (Py_ssize_t)v->shape[i];
        e->dims[TN_MAX_DIMS + i] = (Py_ssize_t)tnp_step(v, i);
    }
    static char nothing[1];
    view->buf = v->data ? v->data : nothing;
    view->len = (Py_ssize_t)(v->numel * tn_view_itemsize(v));
    view->itemsize = (Py_ssize_t)tn_view_itemsize(v);
    view->readonly = (v->word & TN_W_READONLY) != 0;
    view->ndim = (flags & PyBUF_ND) ? v->ndim : 1;
    view->format = (flags & PyBUF_FORMAT) ? (char *)(uintptr_t)formats[dtype] : NULL;
    view->shape = (flags & PyBUF_ND) ? e->dims : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->dims + TN_MAX_DIMS : NULL;
    view->suboffsets = NULL;
    view->internal = e;
    Py_INCREF(self);
    view->obj = self;
    return 0;
}

void tnp_releasebuffer(PyObject *self, Py_buffer *view) {
    exported *e = view->internal;
    (void)self;
    tn_tensor_unref(&e->alias);
    PyMem_Free(e);
}

/* ---- Buffers in --------------------------------------------------------------------------------*/

static void release_buffer(void *ctx) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyBuffer_Release(ctx);
    PyMem_Free(ctx);
    PyGILState_Release(gil);
}

static int get_view(PyObject *o, Py_buffer *view) {
    if (PyObject_GetBuffer(o, view, PyBUF_FORMAT | PyBUF_STRIDES | PyBUF_WRITABLE) == 0) return 0;
    PyErr_Clear();
    if (PyObject_GetBuffer(o, view, PyBUF_FORMAT | PyBUF_STRIDES) == 0) return 0;
    if (tnp_is_numpy_array(o)) {
        PyErr_Clear();
        PyObject *dtype = PyObject_GetAttrString(o, "dtype");
        if (dtype)
            PyErr_Format(PyExc_TypeError,
                         "can't convert np.ndarray of type %S to a tensor: no dtype fits", dtype);
        Py_XDECREF(dtype);
    }
    return -1;
}

static tn_tensor *from_view(Py_buffer *view) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    tn_tensor *t = NULL;
    int32_t dtype = dtype_of_format(view->format, view->itemsize);
    if (dtype < 0 && view->format && view->format[0] == '>') {
        PyErr_SetString(PyExc_ValueError,
                        "given numpy array has byte order different from the native byte order. "
                        "Conversion between byte orders is currently not supported.");
        return NULL;
    }
    if (dtype < 0) {
        PyErr_Format(PyExc_TypeError,
                     "can't convert a buffer with format '%s' (%zd bytes each) to a tensor: no "
                     "dtype fits",
                     view->format ? view->format : "B", view->itemsize);
        return NULL;
    }
    if (view->ndim > TN_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "a tensor has at most %d dimensions", TN_MAX_DIMS);
        return NULL;
    }
    for (int i = 0; i < view->ndim; i++) {
        shape[i] = view->shape[i];
        strides[i] = view->strides[i] / view->itemsize;
        if (view->strides[i] % view->itemsize != 0) {
            PyErr_SetString(PyExc_ValueError,
                            "given array strides not a multiple of the element "
                            "byte size. Copy the array to reallocate the memory.");
            return NULL;
        }
    }
    tn_status st = tn_tensor_from_foreign(dtype, (tn_device){0, 0}, view->ndim, shape, strides,
                                          view->buf, view->readonly, release_buffer, view, &t);
    return st == TN_OK ? t : tnp_raise(st);
}

tn_tensor *tnp_from_buffer(PyObject *o, bool copy) {
    Py_buffer *view = PyMem_Malloc(sizeof *view);
    if (!view) {
        PyErr_NoMemory();
        return NULL;
    }
    if (get_view(o, view) < 0) {
        PyMem_Free(view);
        return NULL;
    }
    tn_tensor *t = from_view(view);
    if (!t) {
        PyBuffer_Release(view);
        PyMem_Free(view);
        return NULL;
    }
    if (!copy) return t;
    tn_tensor *own = tnp_to(t, -1, NULL, true, TN_FORMAT_CONTIGUOUS);
    tn_tensor_unref(&t);
    return own;
}

/* ---- DLPack: the structs of its C interface ----------------------------------------------------*/

typedef struct dl_tensor { /* the same as tn_view from `data` on */
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    dl_tensor tensor;
    void *ctx;
    void (*deleter)(struct dl_managed *self);
} dl_managed;
typedef struct dl_versioned {
    uint32_t major, minor;
    void *ctx;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* 1: read-only, 2: copied */
    dl_tensor tensor;
} dl_versioned;
_Static_assert(sizeof(tn_view) - offsetof(tn_view, data) == sizeof(dl_tensor), "a view is one");

/* ---- DLPack: devices and their queues ----------------------------------------------------------
 * A consumer says in which of its queues it goes on; where that is not the one that work is in, the
 * producer's work is waited for. */

enum { DL_CPU = 1, DL_CUDA = 2, DL_EXTENSION = 12 };
enum { DL_OLD_DEFAULT = 1 }; /* CUDA's default stream, among the numbers of streams */

/* Our device of a type of DLPack's; false: there is none. CUDA's plugin may have to be loaded. */
static bool device_of(int32_t type, int32_t index, tn_device *ret_device) {
    const char *name = type == DL_CUDA ? "cuda" : NULL;
    *ret_device = (tn_device){0, 0};
    if (type == DL_CPU) return true;
    if (type == DL_EXTENSION) return false;
    for (int32_t slot = 1; slot < TN_DEVICE_SLOTS && !name; slot++)
        if (tn_device_dlpack(slot) == type) name = tn_device_name(slot);
    if (!name || tn_device_parse(name, ret_device) != TN_OK) return false;
    ret_device->index = index;
    return index >= 0 && index < tn_device_count(ret_device->slot) &&
           tn_device_dlpack(ret_device->slot) == type;
}

/* The number of the calling thread's stream of a CUDA device. */
static uintptr_t stream_number(tn_device device) {
    tn_stream *current = tn_stream_current(device);
    uintptr_t handle = current ? (uintptr_t)tn_stream_handle(current) : 0;
    return handle ? handle : DL_OLD_DEFAULT;
}

/* Waits for the calling thread's work on the device, unless it is in the stream of that number. */
static tn_status settle(tn_device device, uintptr_t number) {
    tn_stream *standard = NULL, *current = tn_stream_current(device);
    tn_status st = TN_OK;
    if (stream_number(device) == number) return TN_OK;
    if (!current) st = tn_stream_default(device, &standard);
    if (st == TN_OK) st = tn_stream_sync(current ? current : standard);
    tn_stream_unref(&standard);
    return st;
}

/* `asked` is what the consumer gave as its stream. */
static int settle_for(const tn_view *v, PyObject *asked) {
    tn_device device = {tn_view_device(v), v->dl_index};
    uintptr_t number = DL_OLD_DEFAULT;
    if (v->dl_device != DL_CUDA) return 0;
    if (asked != Py_None) {
        long long given = PyLong_AsLongLong(asked);
        if (given == -1 && PyErr_Occurred()) return -1;
        if (given == -1) return 0; /* it takes care of that itself */
        if (given != 0) number = (uintptr_t)given;
    }
    return tnp_check(settle(device, number));
}

/* ---- DLPack out --------------------------------------------------------------------------------*/

static void delete_managed(dl_managed *m) {
    tnp_release_tensor(m->ctx);
    free(m);
}
static void delete_versioned(dl_versioned *m) {
    tnp_release_tensor(m->ctx);
    free(m);
}

/* A capsule that nobody took over still owns its content. */
static void drop_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        if (m->deleter) m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (m->deleter) m->deleter(m);
    }
}

static PyObject *make_capsule(void *managed, const char *name, tn_tensor *alias) {
    PyObject *capsule = managed ? PyCapsule_New(managed, name, drop_capsule) : PyErr_NoMemory();
    if (capsule) return capsule;
    free(managed);
    tn_tensor_unref(&alias);
    return NULL;
}

/* Takes over alias. */
static PyObject *export_plain(tn_tensor *alias) {
    dl_managed *m = calloc(1, sizeof *m);
    if (m) {
        memcpy(&m->tensor, &tn_tensor_view(alias)->data, sizeof m->tensor);
        m->ctx = alias;
        m->deleter = delete_managed;
    }
    return make_capsule(m, "dltensor", alias);
}
static PyObject *export_versioned(tn_tensor *alias, bool copied) {
    dl_versioned *m = calloc(1, sizeof *m);
    if (m) {
        bool readonly = (tn_tensor_view(alias)->word & TN_W_READONLY) != 0;
        m->major = 1;
        m->ctx = alias;
        m->deleter = delete_versioned;
        m->flags = (readonly ? 1u : 0u) | (copied ? 2u : 0u);
        memcpy(&m->tensor, &tn_tensor_view(alias)->data, sizeof m->tensor);
    }
    return make_capsule(m, "dltensor_versioned", alias);
}

PyObject *tnp_to_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy))
        return NULL;
    if (tnp_refuse_many(self, "__dlpack__()")) return NULL;
    tn_tensor *t = tnp_of(self);
    const tn_view *v = tn_tensor_view(t);
    if (tnp_check(tn_tensor_show(t)) < 0) return NULL;
    if (v->word & TN_W_LAYOUT) {
        PyErr_SetString(PyExc_BufferError,
                        "Can't export a sparse tensor, use tensor.to_dense() or its components");
        return NULL;
    }
    if (v->word & TN_W_GRAD) {
        PyErr_SetString(PyExc_BufferError,
                        "Can't export tensors that require gradient, use tensor.detach()");
        return NULL;
    }
    tn_program_note_read(t);
    if (tn_view_device(v) == TN_META_SLOT) {
        PyErr_SetString(PyExc_BufferError, "Cannot pack tensors on meta");
        return NULL;
    }
    if (device != Py_None) {
        long type = PyTuple_Check(device) && PyTuple_Size(device) == 2
                        ? PyLong_AsLong(PyTuple_GetItem(device, 0))
                        : -1;
        if (PyErr_Occurred()) return NULL;
        if (type != v->dl_device) {
            PyErr_SetString(PyExc_BufferError, "the tensor is on another device; move it first");
            return NULL;
        }
    }
    bool versioned = PyTuple_Check(version) && PyTuple_Size(version) > 0 &&
                     PyLong_AsLong(PyTuple_GetItem(version, 0)) >= 1;
    if (PyErr_Occurred()) return NULL;
    if ((v->word & TN_W_READONLY) && !versioned && copy != Py_True) {
        PyErr_SetString(PyExc_BufferError,
                        "the tensor is read-only, which this version of DLPack cannot say");
        return NULL;
    }
    tn_tensor *out = copy == Py_True ? tnp_to(t, -1, NULL, true, TN_FORMAT_PRESERVE) : alias_of(t);
    if (out && settle_for(v, stream) < 0) tn_tensor_unref(&out);
    if (!out) return NULL;
    return versioned ? export_versioned(out, copy == Py_True) : export_plain(out);
}

PyObject *tnp_dlpack_device(PyObject *self, PyObject *unused) {
    const tn_view *v = tn_tensor_view(tnp_of(self));
    (void)unused;
    if (tn_view_device(v) == TN_META_SLOT)
        return PyErr_Format(PyExc_ValueError, "Unknown device type meta for Dlpack");
    return Py_BuildValue("(ii)", (int)v->dl_device, (int)v->dl_index);
}

/* ---- DLPack in ---------------------------------------------------------------------------------*/

/* The producer may use the memory again, in its own default stream. */
static void leave(const dl_tensor *d) {
    tn_device device;
    if (d->device_type == DL_CUDA && device_of(d->device_type, d->device_id, &device))
        (void)settle(device, DL_OLD_DEFAULT);
}

static void release_managed(void *ctx) {
    dl_managed *m = ctx;
    if (!Py_IsInitialized()) return; /* a deleter may touch Python objects */
    leave(&m->tensor);
    PyGILState_STATE gil = PyGILState_Ensure();
    if (m->deleter) m->deleter(m);
    PyGILState_Release(gil);
}
static void release_versioned(void *ctx) {
    dl_versioned *m = ctx;
    if (!Py_IsInitialized()) return;
    leave(&m->tensor);
    PyGILState_STATE gil = PyGILState_Ensure();
    if (m->deleter) m->deleter(m);
    PyGILState_Release(gil);
}

enum { DL_OPAQUE = 3 };

/* The dtype of plugins that has so many bits, when there is only one: opaque elements say no more. */
static int32_t opaque_of(int bits) {
    int32_t found = -1;
    for (int32_t slot = TN_DTYPE_CORE_COUNT; tn_dtype_name(slot); slot++) {
        if (tn_dtype_size(slot) * 8 != bits) continue;
        if (found >= 0) return -1;
        found = slot;
    }
    return found;
}

static int32_t dtype_of_dl(const dl_tensor *d) {
    for (int32_t i = 0; d->lanes == 1 && i < TN_DTYPE_CORE_COUNT; i++)
        if (tn_dtype_dlpack_code(i) == d->code && tn_dtype_size(i) * 8 == d->bits) return i;
    return d->code == DL_OPAQUE && d->lanes == 1 ? opaque_of(d->bits) : -1;
}

static tn_tensor *import_dl(const dl_tensor *d, bool readonly, void (*release)(void *), void *ctx) {
    int32_t dtype = dtype_of_dl(d);
    tn_device device;
    tn_tensor *t = NULL;
    if (dtype < 0) {
        PyErr_Format(PyExc_BufferError, "no dtype for DLPack elements of code %d with %d bits",
                     (int)d->code, (int)d->bits);
        return NULL;
    }
    if (!device_of(d->device_type, d->device_id, &device) || d->ndim < 0 || d->ndim > TN_MAX_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "cannot take over memory of DLPack device %d with %d "
                     "dimensions",
                     (int)d->device_type, (int)d->ndim);
        return NULL;
    }
    if (d->byte_offset > INTPTR_MAX || (uintptr_t)d->data > UINTPTR_MAX - d->byte_offset) {
        PyErr_Format(PyExc_BufferError, "an offset of %llu bytes lies outside of the address space",
                     (unsigned long long)d->byte_offset);
        return NULL;
    }
    tn_status st = tn_tensor_from_foreign(dtype, device, d->ndim, d->shape, d->strides,
                                          d->data ? (char *)d->data + d->byte_offset : NULL,
                                          readonly, release, ctx, &t);
    return st == TN_OK ? t : tnp_raise(st);
}

static tn_tensor *from_capsule(PyObject *capsule) {
    tn_tensor *t;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (m->major != 1) {
            PyErr_Format(PyExc_BufferError, "DLPack version %u.%u is not known", m->major,
                         m->minor);
            return NULL;
        }
        t = import_dl(&m->tensor, (m->flags & 1u) != 0, release_versioned, m);
        if (t) PyCapsule_SetName(capsule, "used_dltensor_versioned");
        return t;
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        t = import_dl(&m->tensor, false, release_managed, m);
        if (t) PyCapsule_SetName(capsule, "used_dltensor");
        return t;
    }
    PyErr_SetString(PyExc_TypeError, "from_dlpack() takes an object with __dlpack__ or a DLPack "
                                     "capsule that was not used yet");
    return NULL;
}

/* The keyword argument that tells the producer of CUDA memory our stream; else none. NULL: an error. */
static PyObject *our_stream(PyObject *o) {
    int type = DL_CPU, index = 0;
    tn_device device;
    PyObject *where = PyObject_CallMethod(o, "__dlpack_device__", NULL);
    if (!where && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    if (!where) PyErr_Clear(); /* what is wrong, __dlpack__ will say */
    bool known = !where || PyTuple_Check(where);
    if (!known) tnp_type_error("__dlpack_device__ gave no tuple of type and index, but %U", where);
    known = known && (!where || PyArg_ParseTuple(where, "ii:__dlpack_device__", &type, &index));
    Py_XDECREF(where);
    if (!known) return NULL;
    if (type != DL_CUDA || !device_of(type, index, &device)) return PyDict_New();
    return Py_BuildValue("{sK}", "stream", (unsigned long long)stream_number(device));
}

/* Newer producers are told which version we know; older ones do not take the argument. */
static PyObject *ask(PyObject *o) {
    PyObject *version = NULL, *capsule = NULL, *none = NULL, *kwargs = NULL;
    PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
    if (method) none = PyTuple_New(0);
    if (none) kwargs = our_stream(o);
    if (kwargs) version = Py_BuildValue("(ii)", 1, 0);
    if (version && PyDict_SetItemString(kwargs, "max_version", version) == 0) {
        capsule = PyObject_Call(method, none, kwargs);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            if (PyDict_DelItemString(kwargs, "max_version") == 0)
                capsule = PyObject_Call(method, none, kwargs);
        }
    }
    Py_XDECREF(version);
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(kwargs);
    return capsule;
}

int tnp_speaks_dlpack(PyObject *o) {
    if (PyCapsule_CheckExact(o)) return 1;
    PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
    if (!method && !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    if (!method) PyErr_Clear();
    Py_XDECREF(method);
    return method != NULL;
}

tn_tensor *tnp_from_dlpack(PyObject *o) {
    int speaks = tnp_speaks_dlpack(o);
    if (speaks < 0) return NULL;
    if (!speaks || PyCapsule_CheckExact(o)) return from_capsule(o);
    PyObject *capsule = ask(o);
    if (!capsule) return NULL;
    tn_tensor *t = from_capsule(capsule);
    Py_DECREF(capsule);
    return t;
}
