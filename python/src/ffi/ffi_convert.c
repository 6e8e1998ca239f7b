/* ffi_convert.c: Python values as C values and back, for tenon.ffi. Every value is checked here: a
 * number that its C type cannot hold, memory of the wrong kind or on another device is an exception
 * that names the function and the argument, and never reaches C. */
#include "ffi_priv.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Messages ----------------------------------------------------------------------------------*/

int tnp_ffi_error(PyObject *cls, const tnp_ffi_place *at, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    PyObject *what = PyUnicode_FromFormatV(fmt, ap);
    va_end(ap);
    if (what && at->position)
        PyErr_Format(cls, "%s(): argument '%s' (position %d) %U", at->function, at->name,
                     at->position, what);
    else if (what)
        PyErr_Format(cls, "%s: '%s' %U", at->function, at->name, what);
    Py_XDECREF(what);
    return -1;
}

int tnp_ffi_type_error(const tnp_ffi_place *at, const char *must, PyObject *o) {
    PyObject *name = PyType_GetName(Py_TYPE(o));
    if (name) tnp_ffi_error(PyExc_TypeError, at, "must be %s, not %U", must, name);
    Py_XDECREF(name);
    return -1;
}

const char *tnp_ffi_type_text(const tn_ffi_type *t) {
    static _Thread_local char text[160];
    static const char *const names[TN_FFI_KIND_COUNT] = {
        "void",     "bool",    "char",     "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t",
        "uint32_t", "int64_t", "uint64_t", "float",  "double",  "pointer", "callback", "array"};
    int stars = 0;
    for (; t->kind == TN_FFI_POINTER && t->to; t = t->to) stars++;
    bool record = t->kind == TN_FFI_RECORD;
    snprintf(text, sizeof text, "%s%s%s%s%.*s", t->is_const ? "const " : "",
             record ? "struct " : "", record ? t->record->name : names[t->kind], stars ? " " : "",
             stars, "****");
    return text;
}

/* ---- Numbers -----------------------------------------------------------------------------------*/

static int does_not_fit(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o) {
    PyErr_Clear();
    return tnp_ffi_error(PyExc_OverflowError, at, "is %R, which does not fit %s", o,
                         tnp_ffi_type_text(t));
}

static bool fits(int32_t kind, int64_t v) {
    switch (kind) {
    case TN_FFI_CHAR: return v >= INT8_MIN && v <= UINT8_MAX;
    case TN_FFI_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case TN_FFI_U8: return v >= 0 && v <= UINT8_MAX;
    case TN_FFI_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case TN_FFI_U16: return v >= 0 && v <= UINT16_MAX;
    case TN_FFI_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case TN_FFI_U32: return v >= 0 && v <= UINT32_MAX;
    case TN_FFI_U64: return v >= 0;
    default: return true;
    }
}

static int store_int(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o, void *dst) {
    int64_t v = 0;
    if (PyLong_Check(o)) {
        v = PyLong_AsLongLong(o);
        if (v == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            uint64_t u = t->kind == TN_FFI_U64 ? PyLong_AsUnsignedLongLong(o) : 0;
            if (t->kind != TN_FFI_U64 || PyErr_Occurred()) return does_not_fit(at, t, o);
            memcpy(dst, &u, sizeof u);
            return 0;
        }
    } else {
        int r = tnp_int_from(o, &v);
        if (r == 0) return tnp_ffi_type_error(at, "an integer", o);
        if (r < 0) return -1;
    }
    if (!fits(t->kind, v)) return does_not_fit(at, t, o);
    const uint8_t v8 = (uint8_t)v;
    const uint16_t v16 = (uint16_t)v;
    const uint32_t v32 = (uint32_t)v;
    switch (t->size) {
    case 1: memcpy(dst, &v8, 1); break;
    case 2: memcpy(dst, &v16, 2); break;
    case 4: memcpy(dst, &v32, 4); break;
    default: memcpy(dst, &v, 8); break;
    }
    return 0;
}

static int store_float(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o, void *dst) {
    double v;
    if (PyFloat_Check(o)) {
        v = PyFloat_AsDouble(o);
    } else if (PyLong_Check(o)) {
        v = PyLong_AsDouble(o);
        if (v == -1 && PyErr_Occurred()) return does_not_fit(at, t, o);
    } else {
        tn_scalar s;
        int r = tnp_scalar_from(o, &s);
        if (r == 0 || (r > 0 && s.kind == TN_CAT_COMPLEX))
            return tnp_ffi_type_error(at, "a number", o);
        if (r < 0) return -1;
        v = s.re;
    }
    const float narrow = (float)v;
    if (t->kind == TN_FFI_F32)
        memcpy(dst, &narrow, sizeof narrow);
    else
        memcpy(dst, &v, sizeof v);
    return 0;
}

int tnp_ffi_store_number(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o, void *dst) {
    if (t->kind == TN_FFI_F64 || t->kind == TN_FFI_F32) return store_float(at, t, o, dst);
    if (t->kind != TN_FFI_BOOL) return store_int(at, t, o, dst);
    tn_scalar s;
    int r = tnp_scalar_from(o, &s);
    if (r == 0 || (r > 0 && s.kind > TN_CAT_INT)) return tnp_ffi_type_error(at, "a bool", o);
    if (r > 0) *(uint8_t *)dst = s.i != 0;
    return r > 0 ? 0 : -1;
}

static PyObject *load_int(const tn_ffi_type *t, const void *src) {
    uint64_t u = 0;
    bool is_signed = t->kind == TN_FFI_I8 || t->kind == TN_FFI_I16 || t->kind == TN_FFI_I32 ||
                     t->kind == TN_FFI_I64 || (t->kind == TN_FFI_CHAR && (char)-1 < 0);
    uint8_t v8;
    uint16_t v16;
    uint32_t v32;
    switch (t->size) {
    case 1:
        memcpy(&v8, src, 1);
        u = is_signed ? (uint64_t)(int8_t)v8 : v8;
        break;
    case 2:
        memcpy(&v16, src, 2);
        u = is_signed ? (uint64_t)(int16_t)v16 : v16;
        break;
    case 4:
        memcpy(&v32, src, 4);
        u = is_signed ? (uint64_t)(int32_t)v32 : v32;
        break;
    default: memcpy(&u, src, 8); break;
    }
    return is_signed ? PyLong_FromLongLong((int64_t)u) : PyLong_FromUnsignedLongLong(u);
}

static PyObject *load_array(PyObject *scope, const tn_ffi_type *t, const char *src) {
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list && i < t->count; i++) {
        PyObject *item = tnp_ffi_load(scope, t->to, src + i * t->to->size);
        if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyObject *tnp_ffi_load(PyObject *scope, const tn_ffi_type *t, const void *src) {
    double d;
    float f;
    void *p;
    switch (t->kind) {
    case TN_FFI_VOID: Py_RETURN_NONE;
    case TN_FFI_BOOL: return PyBool_FromLong(*(const uint8_t *)src != 0);
    case TN_FFI_F64: memcpy(&d, src, sizeof d); return PyFloat_FromDouble(d);
    case TN_FFI_F32: memcpy(&f, src, sizeof f); return PyFloat_FromDouble((double)f);
    case TN_FFI_RECORD: return tnp_ffi_struct_new(scope, t->record, src);
    case TN_FFI_ARRAY: return load_array(scope, t, src);
    case TN_FFI_POINTER:
    case TN_FFI_CALLBACK: break;
    default: return load_int(t, src);
    }
    memcpy(&p, src, sizeof p);
    if (!p) Py_RETURN_NONE;
    if (t->kind == TN_FFI_POINTER && t->to->kind == TN_FFI_CHAR && t->to->is_const)
        return PyUnicode_DecodeUTF8(p, (Py_ssize_t)strlen(p), "surrogateescape");
    return tnp_ffi_pointer_new(scope, p, t->kind == TN_FFI_POINTER ? t->to : t);
}

/* ---- Pointers ----------------------------------------------------------------------------------*/

bool tnp_ffi_same_type(const tn_ffi_type *have, const tn_ffi_type *want) {
    if (have->kind != want->kind) return false;
    if (have->kind == TN_FFI_RECORD) return have->record == want->record;
    if (have->kind == TN_FFI_POINTER) return tnp_ffi_same_type(have->to, want->to);
    if (have->kind != TN_FFI_CALLBACK) return true;
    const tn_ffi_function *f = have->signature, *g = want->signature;
    bool same = f->nparams == g->nparams && tnp_ffi_same_type(f->result, g->result);
    for (int32_t i = 0; same && i < f->nparams; i++)
        same = tnp_ffi_same_type(f->params[i].type, g->params[i].type);
    return same;
}

/* "a tensor of float64", "bytes or a tensor": what a pointer may be made of. */
static const char *wanted(const tn_ffi_type *to) {
    static _Thread_local char text[200];
    int32_t dtype = tn_ffi_dtype(to->kind);
    if (to->kind == TN_FFI_RECORD)
        snprintf(text, sizeof text, "a struct %s", to->record->name);
    else if (to->kind == TN_FFI_CHAR && to->is_const)
        snprintf(text, sizeof text, "str or bytes");
    else if (to->kind == TN_FFI_VOID)
        snprintf(text, sizeof text, "a tensor, a struct or a pointer");
    else if (to->kind == TN_FFI_POINTER || dtype < 0)
        snprintf(text, sizeof text, "a Pointer");
    else
        snprintf(text, sizeof text, "a tensor of %s", tn_dtype_name(dtype));
    return text;
}

static bool dtype_fits(const tn_ffi_type *to, int32_t dtype) {
    if (to->kind == TN_FFI_VOID || tn_ffi_dtype(to->kind) == dtype) return true;
    return to->kind == TN_FFI_CHAR && dtype == TN_U8;
}

/* A copy of a tensor that C can read: on the CPU, row-major. */
static int make_near(PyObject *o, tnp_ffi_target *ret) {
    tn_tensor *t = tnp_of(o);
    const tn_device cpu = {0, 0};
    tn_tensor *near = tnp_to(t, tn_tensor_dtype(t), &cpu, true, TN_FORMAT_CONTIGUOUS);
    ret->made = near ? tnp_wrap(near) : NULL;
    if (!ret->made) return -1;
    ret->t = tnp_of(ret->made);
    return 0;
}

static int point_at_tensor(const tnp_ffi_place *at, const tn_ffi_type *to, PyObject *o, bool copy,
                           tnp_ffi_target *ret) {
    tn_tensor *t = ret->t = tnp_of(o);
    const tn_view *v = (const tn_view *)(const void *)t;
    if (tnp_check(tn_tensor_show(t)) < 0) return -1;
    bool far = tn_view_device(v) != 0, strided = !tn_view_is_contiguous(v);
    if (!dtype_fits(to, tn_view_dtype(v)))
        return tnp_ffi_error(PyExc_TypeError, at, "must be %s, not of %s", wanted(to),
                             tn_dtype_name(tn_view_dtype(v)));
    if (!to->is_const && (v->word & TN_W_READONLY))
        return tnp_ffi_error(PyExc_ValueError, at, "is read-only, and '%s' may be written through",
                             tnp_ffi_type_text(to));
    if ((v->word & TN_W_GRAD) && tn_grad_enabled())
        return tnp_ffi_error(PyExc_RuntimeError, at,
                             "requires grad, and what C does is not recorded; use "
                             "tensor.detach()");
    if (far && !copy)
        return tnp_ffi_error(PyExc_RuntimeError, at,
                             "is on device '%s', and C reads memory of the CPU; move it with "
                             ".cpu(), or bind with copy=True",
                             tn_device_name(tn_view_device(v)));
    if (strided && !copy)
        return tnp_ffi_error(PyExc_ValueError, at,
                             "is not contiguous; use .contiguous(), or bind with copy=True");
    if ((far || strided) && make_near(o, ret) < 0) return -1;
    v = (const tn_view *)(const void *)ret->t;
    ret->address = v->data;
    ret->bytes = v->numel * tn_view_itemsize(v);
    return 0;
}

static int point_at_text(const tnp_ffi_place *at, PyObject *o, tnp_ffi_target *ret) {
    Py_ssize_t n = 0;
    char *bytes = NULL;
    if (PyBytes_Check(o)) {
        if (PyBytes_AsStringAndSize(o, &bytes, &n) < 0) return -1;
    } else {
        bytes = (char *)(uintptr_t)PyUnicode_AsUTF8AndSize(o, &n);
        if (!bytes) return -1;
    }
    if (memchr(bytes, 0, (size_t)n))
        return tnp_ffi_error(PyExc_ValueError, at, "holds a null character, which ends a C text");
    ret->address = bytes;
    ret->bytes = n; /* the null at the end is no part of it */
    return 0;
}

static int point_at_pointer(const tnp_ffi_place *at, const tn_ffi_type *to, PyObject *o,
                            tnp_ffi_target *ret) {
    tnp_ffi_pointer_object *p = (tnp_ffi_pointer_object *)o;
    if (p->expired)
        return tnp_ffi_error(PyExc_RuntimeError, at,
                             "was an argument of a callback and ended with it");
    if (to->kind == TN_FFI_POINTER && (!p->to || tnp_ffi_same_type(p->to, to->to))) {
        ret->address = &p->address; /* C fills it in */
        return 0;
    }
    bool fits = p->to && (to->kind == TN_FFI_VOID || tnp_ffi_same_type(p->to, to));
    if (!fits) return tnp_ffi_type_error(at, wanted(to), o);
    if (p->is_const && !to->is_const)
        return tnp_ffi_error(PyExc_TypeError, at, "is const, and '%s' may be written through",
                             tnp_ffi_type_text(to));
    if (!p->address) return tnp_ffi_error(PyExc_ValueError, at, "is a null pointer");
    ret->address = p->address;
    return 0;
}

int tnp_ffi_point(const tnp_ffi_place *at, const tn_ffi_type *t, PyObject *o, bool copy,
                  tnp_ffi_target *ret) {
    const tn_ffi_type *to = t->to;
    bool narrow = to->kind == TN_FFI_CHAR || to->kind == TN_FFI_I8 || to->kind == TN_FFI_U8;
    bool text = to->kind == TN_FFI_CHAR && to->is_const;
    *ret = (tnp_ffi_target){NULL, -1, NULL, o, NULL};
    if (tnp_is_tensor(o) && to->kind != TN_FFI_POINTER && to->kind != TN_FFI_RECORD)
        return point_at_tensor(at, to, o, copy, ret);
    if (text && (PyUnicode_Check(o) || PyBytes_Check(o))) return point_at_text(at, o, ret);
    if (PyBytes_Check(o) && to->is_const && (narrow || to->kind == TN_FFI_VOID)) {
        ret->address = PyBytes_AsString(o);
        ret->bytes = PyBytes_Size(o);
        return 0;
    }
    if (Py_TYPE(o) == tnp_ffi_pointer_type) return point_at_pointer(at, to, o, ret);
    if (Py_TYPE(o) == tnp_ffi_struct_type) {
        const tnp_ffi_struct_object *s = (tnp_ffi_struct_object *)o;
        if (to->kind == TN_FFI_VOID || (to->kind == TN_FFI_RECORD && to->record == s->record)) {
            ret->address = s->memory;
            ret->bytes = s->record->size;
            return 0;
        }
    }
    return tnp_ffi_type_error(at, wanted(to), o);
}
