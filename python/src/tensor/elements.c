/* elements.c: the elements of tensors as Python numbers: item(), tolist(). */
#include "binding_priv.h"

static float f16_value(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, bits;
    uint32_t fraction = h & 0x3ffu;
    float f;
    if (exponent == 31)
        bits = sign | 0x7f800000u | fraction << 13;
    else if (exponent)
        bits = sign | (exponent + 112u) << 23 | fraction << 13;
    else {
        f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float bf16_value(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

bool tnp_is_element(int32_t dtype) {
    return dtype < TN_DTYPE_BUILTIN_COUNT || dtype == TN_U16 || dtype == TN_U32 || dtype == TN_U64;
}

/* Elements are read through memcpy since foreign memory need not be aligned. */
PyObject *tnp_element(int32_t dtype, const void *p) {
    union {
        uint8_t u8;
        int8_t i8;
        int16_t i16;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        struct tn_c64 c64;
        struct tn_c128 c128;
    } v;
    if (tnp_is_element(dtype)) memcpy(&v, p, (size_t)tn_dtype_size(dtype));
    switch (dtype) {
    case TN_BOOL: return PyBool_FromLong(v.u8 != 0);
    case TN_U8: return PyLong_FromLong(v.u8);
    case TN_I8: return PyLong_FromLong(v.i8);
    case TN_I16: return PyLong_FromLong(v.i16);
    case TN_I32: return PyLong_FromLong(v.i32);
    case TN_I64: return PyLong_FromLongLong(v.i64);
    case TN_U16: return PyLong_FromLong(v.u16);
    case TN_U32: return PyLong_FromUnsignedLong(v.u32);
    case TN_U64: return PyLong_FromUnsignedLongLong(v.u64);
    case TN_F16: return PyFloat_FromDouble((double)f16_value(v.u16));
    case TN_BF16: return PyFloat_FromDouble((double)bf16_value(v.u16));
    case TN_F32: return PyFloat_FromDouble((double)v.f32);
    case TN_F64: return PyFloat_FromDouble(v.f64);
    case TN_C64: return PyComplex_FromDoubles((double)v.c64.re, (double)v.c64.im);
    case TN_C128: return PyComplex_FromDoubles(v.c128.re, v.c128.im);
    default:
        return PyErr_Format(PyExc_NotImplementedError, "elements of dtype %s have no Python number",
                            tn_dtype_name(dtype));
    }
}

static PyObject *list_level(const tn_view *v, int32_t dim, const char *p) {
    int32_t dtype = tn_view_dtype(v);
    if (dim == v->ndim) return tnp_element(dtype, p);
    int64_t n = v->shape[dim], step = tnp_step(v, dim);
    PyObject *list = PyErr_CheckSignals() < 0 ? NULL : PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list && i < n; i++) {
        PyObject *item = list_level(v, dim + 1, p + i * step);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyObject *tnp_tolist(const tn_tensor *t) {
    const tn_view *v = tn_tensor_view(t);
    if (tnp_settle(t) < 0) return NULL;
    if (v->word & TN_W_LAYOUT) {
        return PyErr_Format(PyExc_RuntimeError,
                            "tolist() is not defined for a tensor of layout %s; to_dense() first",
                            tn_layout_name(tn_tensor_layout(t)));
    }
    if (tnp_check(tn_graph_check_read(t)) < 0) return NULL;
    if (tn_view_device(v) == 0 && tnp_is_element(tn_view_dtype(v)))
        return list_level(v, 0, v->data);
    /* From a device, and of a dtype that has no Python numbers by way of one that has. */
    tn_device cpu = {0, 0};
    int32_t dtype = tn_view_dtype(v);
    if (!tnp_is_element(dtype))
        dtype = tn_dtype_category(dtype) == TN_CAT_COMPLEX ? TN_C64 : TN_F32;
    tn_tensor *copy = tnp_to((tn_tensor *)(uintptr_t)t, dtype, &cpu, false, TN_FORMAT_PRESERVE);
    if (!copy) return NULL;
    PyObject *list = list_level(tn_tensor_view(copy), 0, tn_tensor_view(copy)->data);
    tn_tensor_unref(&copy);
    return list;
}
