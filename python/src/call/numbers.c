/* numbers.c: arithmetic, comparisons and conversions of tensors through CPython's number slots.
 *
 * The commonest calls there are: two tensors, or a tensor and a number, go into a copy of the
 * operator's default arguments and straight to the dispatcher, without the general parser. */
#include "binding_priv.h"

enum number_op {
    ADD,
    SUB,
    RSUB,
    MUL,
    TRUEDIV,
    FLOORDIV,
    MOD,
    POW,
    MATMUL,
    AND,
    OR,
    XOR,
    LSHIFT,
    RSHIFT,
    NEG,
    ABS,
    INVERT,
    RECIPROCAL,
    LT, /* in the order of Py_LT ... Py_GE */
    LE,
    EQ,
    NE,
    GT,
    GE,
    OP_COUNT
};

static tnp_direct ops[OP_COUNT] = {
    [ADD] = {.name = "add"},
    [SUB] = {.name = "sub"},
    [RSUB] = {.name = "rsub"},
    [MUL] = {.name = "mul"},
    [TRUEDIV] = {.name = "true_divide"},
    [FLOORDIV] = {.name = "floor_divide"},
    [MOD] = {.name = "remainder"},
    [POW] = {.name = "pow"},
    [MATMUL] = {.name = "matmul"},
    [AND] = {.name = "bitwise_and"},
    [OR] = {.name = "bitwise_or"},
    [XOR] = {.name = "bitwise_xor"},
    [LSHIFT] = {.name = "bitwise_left_shift"},
    [RSHIFT] = {.name = "bitwise_right_shift"},
    [NEG] = {.name = "neg"},
    [ABS] = {.name = "abs"},
    [INVERT] = {.name = "bitwise_not"},
    [RECIPROCAL] = {.name = "reciprocal"},
    [LT] = {.name = "lt"},
    [LE] = {.name = "le"},
    [EQ] = {.name = "eq"},
    [NE] = {.name = "ne"},
    [GT] = {.name = "gt"},
    [GE] = {.name = "ge"},
};

bool tnp_numbers_init(void) {
    for (int i = 0; i < OP_COUNT; i++)
        if (!tnp_direct_ready(&ops[i])) return false;
    return true;
}

/* ---- Calls -------------------------------------------------------------------------------------*/

typedef struct number_args {
    _Alignas(16) unsigned char bytes[TNP_DIRECT_ARGS_BYTES];
} number_args;

static inline void set(number_args *args, uint16_t offset, tn_tensor *t) {
    *(tn_tensor **)(void *)(args->bytes + offset) = t;
}

static PyObject *call2(const tnp_direct *d, tn_tensor *a, tn_tensor *b, PyObject *target) {
    number_args args;
    tn_tensor *ret[2] = {NULL};
    memcpy(args.bytes, d->o.image, (size_t)d->o.meta.args_bytes);
    set(&args, d->in[0], a);
    set(&args, d->in[1], b);
    if (target) set(&args, d->out, tnp_of(target));
    int64_t na = tn_tensor_numel(a), nb = tn_tensor_numel(b);
    tn_status st = tnp_invoke(d->o.meta.info, args.bytes, ret, na > nb ? na : nb);
    if (TNP_UNLIKELY(st != TN_OK)) return tnp_raise(st);
    if (!target) return tnp_wrap(ret[0]);
    tn_tensor_unref(&ret[0]);
    Py_INCREF(target);
    return target;
}

static PyObject *call1(const tnp_direct *d, PyObject *self) {
    PyObject *taken;
    if (TNP_UNLIKELY(!tnp_is_plain(self)) && tnp.overrides &&
        tnp_override(d->name, TNP_FORM_METHOD, self, NULL, 0, NULL, &taken))
        return taken;
    number_args args;
    tn_tensor *ret[2] = {NULL}, *a = tnp_of(self);
    memcpy(args.bytes, d->o.image, (size_t)d->o.meta.args_bytes);
    set(&args, d->in[0], a);
    tn_status st = tnp_invoke(d->o.meta.info, args.bytes, ret, tn_tensor_numel(a));
    return TNP_LIKELY(st == TN_OK) ? tnp_wrap(ret[0]) : tnp_raise(st);
}

/* The methods that stand for the operators where a class overrides them: as a op b, b op a, a op= b. */
static const char *const methods[OP_COUNT][3] = {
    [ADD] = {"add", "__radd__", "add_"},
    [SUB] = {"sub", "__rsub__", "sub_"},
    [RSUB] = {"__rsub__", "sub", NULL},
    [MUL] = {"mul", "__rmul__", "mul_"},
    [TRUEDIV] = {"div", "__rtruediv__", "div_"},
    [FLOORDIV] = {"floor_divide", "__rfloordiv__", "floor_divide_"},
    [MOD] = {"remainder", "__rmod__", "remainder_"},
    [POW] = {"pow", "__rpow__", "pow_"},
    [MATMUL] = {"matmul", "__rmatmul__", NULL},
    [AND] = {"__and__", "__rand__", "__iand__"},
    [OR] = {"__or__", "__ror__", "__ior__"},
    [XOR] = {"__xor__", "__rxor__", "__ixor__"},
    [LSHIFT] = {"__lshift__", "__rlshift__", "__ilshift__"},
    [RSHIFT] = {"__rshift__", "__rrshift__", "__irshift__"},
    [LT] = {"__lt__", "__gt__", NULL},
    [LE] = {"__le__", "__ge__", NULL},
    [EQ] = {"__eq__", "__eq__", NULL},
    [NE] = {"__ne__", "__ne__", NULL},
    [GT] = {"__gt__", "__lt__", NULL},
    [GE] = {"__ge__", "__le__", NULL},
};

static PyObject *binary(enum number_op op, PyObject *a, PyObject *b, PyObject *target);

/* A comparison with an array of NumPy's, which gives way to tensors; the other operators are
 * NumPy's, whose results become tensors in __array_wrap__. */
static PyObject *compare_array(enum number_op op, PyObject *self, PyObject *other) {
    PyObject *f = tnp_helper("_tensor.methods", "from_array");
    PyObject *t = f ? PyObject_CallFunctionObjArgs(f, other, NULL) : NULL;
    PyObject *result = t && t != Py_None ? binary(op, self, t, NULL) : NULL;
    if (t == Py_None) result = Py_NotImplemented, Py_INCREF(result);
    Py_XDECREF(t);
    return result;
}

/* One of the operands is no plain tensor and no number. */
static PyObject *foreign(enum number_op op, PyObject *a, PyObject *b, bool inplace) {
    bool reversed = !tnp_is_tensor(a);
    const char *name = methods[op][inplace ? 2 : reversed];
    PyObject *taken, *self = reversed ? b : a, *other = reversed ? a : b;
    if (tnp_override(name, TNP_FORM_METHOD, self, &other, 1, NULL, &taken)) return taken;
    if (op >= LT && !reversed && !tnp_is_tensor(b)) return compare_array(op, a, b);
    Py_RETURN_NOTIMPLEMENTED;
}

/* The tensor of an operand, numbers as a 0-d tensor in `box`. 1; 0: neither, or of a class that
 * overrides the operators; -1: exception. */
static int operand(PyObject *o, tn_scalar_box *box, tn_tensor **ret_tensor) {
    tn_scalar s;
    if (TNP_LIKELY(tnp_is_plain(o))) {
        *ret_tensor = tnp_of(o);
        return 1;
    }
    if (Py_TYPE(o) == &PyFloat_Type) {
        *ret_tensor = tn_scalar_box_init(box, tn_scalar_float(PyFloat_AsDouble(o)));
        return 1;
    }
    if (tnp_is_tensor(o)) {
        *ret_tensor = tnp_of(o);
        return !(tnp.overrides && tnp_overrides(o));
    }
    int r = tnp_scalar_from(o, &s);
    if (r > 0) *ret_tensor = tn_scalar_box_init(box, s);
    return r;
}

static PyObject *binary(enum number_op op, PyObject *a, PyObject *b, PyObject *target) {
    tn_scalar_box box_a, box_b;
    tn_tensor *x, *y;
    int r = operand(a, &box_a, &x);
    if (r > 0) r = operand(b, &box_b, &y);
    if (TNP_LIKELY(r > 0)) return call2(&ops[op], x, y, target);
    return r < 0 ? NULL : foreign(op, a, b, target != NULL);
}

/* ---- Slots -------------------------------------------------------------------------------------*/

/* The same for operators that do not care about the order: a number goes second, where the core
 * expects it. */
static PyObject *symmetric(enum number_op op, PyObject *a, PyObject *b) {
    if (TNP_LIKELY(tnp_is_tensor(a))) return binary(op, a, b, NULL);
    return binary(op, b, a, NULL);
}

PyObject *tnp_add(PyObject *a, PyObject *b) { return symmetric(ADD, a, b); }
PyObject *tnp_mul(PyObject *a, PyObject *b) { return symmetric(MUL, a, b); }
PyObject *tnp_floordiv(PyObject *a, PyObject *b) { return binary(FLOORDIV, a, b, NULL); }
PyObject *tnp_mod(PyObject *a, PyObject *b) { return binary(MOD, a, b, NULL); }
PyObject *tnp_and(PyObject *a, PyObject *b) { return symmetric(AND, a, b); }
PyObject *tnp_or(PyObject *a, PyObject *b) { return symmetric(OR, a, b); }
PyObject *tnp_xor(PyObject *a, PyObject *b) { return symmetric(XOR, a, b); }
PyObject *tnp_lshift(PyObject *a, PyObject *b) { return binary(LSHIFT, a, b, NULL); }
PyObject *tnp_rshift(PyObject *a, PyObject *b) { return binary(RSHIFT, a, b, NULL); }

PyObject *tnp_sub(PyObject *a, PyObject *b) {
    if (!tnp_is_tensor(a)) return binary(RSUB, b, a, NULL);
    return binary(SUB, a, b, NULL);
}

/* number / tensor is reciprocal(tensor) * number, so that it rounds as PyTorch's does. */
PyObject *tnp_truediv(PyObject *a, PyObject *b) {
    tn_scalar s;
    if (TNP_LIKELY(tnp_is_tensor(a))) return binary(TRUEDIV, a, b, NULL);
    int r = tnp_scalar_from(a, &s);
    if (r < 0) return NULL;
    if (r == 0 && !tnp_is_numpy_array(a)) return foreign(TRUEDIV, a, b, false);
    PyObject *inverse = call1(&ops[RECIPROCAL], b);
    /* an array divides as it multiplies: by NumPy */
    PyObject *product = inverse ? PyNumber_Multiply(inverse, a) : NULL;
    Py_XDECREF(inverse);
    return product;
}

PyObject *tnp_pow(PyObject *a, PyObject *b, PyObject *mod) {
    if (mod == Py_None) return binary(POW, a, b, NULL);
    PyErr_SetString(PyExc_TypeError, "pow() of tensors takes no modulus");
    return NULL;
}

PyObject *tnp_matmul(PyObject *a, PyObject *b) {
    bool tensors = tnp_is_tensor(a) && tnp_is_tensor(b);
    if (TNP_UNLIKELY(!tensors || (tnp.overrides && (tnp_overrides(a) || tnp_overrides(b)))))
        return foreign(MATMUL, a, b, false);
    return call2(&ops[MATMUL], tnp_of(a), tnp_of(b), NULL);
}

PyObject *tnp_iadd(PyObject *a, PyObject *b) { return binary(ADD, a, b, a); }
PyObject *tnp_isub(PyObject *a, PyObject *b) { return binary(SUB, a, b, a); }
PyObject *tnp_imul(PyObject *a, PyObject *b) { return binary(MUL, a, b, a); }
PyObject *tnp_itruediv(PyObject *a, PyObject *b) { return binary(TRUEDIV, a, b, a); }
PyObject *tnp_ifloordiv(PyObject *a, PyObject *b) { return binary(FLOORDIV, a, b, a); }
PyObject *tnp_imod(PyObject *a, PyObject *b) { return binary(MOD, a, b, a); }
PyObject *tnp_iand(PyObject *a, PyObject *b) { return binary(AND, a, b, a); }
PyObject *tnp_ior(PyObject *a, PyObject *b) { return binary(OR, a, b, a); }
PyObject *tnp_ixor(PyObject *a, PyObject *b) { return binary(XOR, a, b, a); }
PyObject *tnp_ilshift(PyObject *a, PyObject *b) { return binary(LSHIFT, a, b, a); }
PyObject *tnp_irshift(PyObject *a, PyObject *b) { return binary(RSHIFT, a, b, a); }
PyObject *tnp_ipow(PyObject *a, PyObject *b, PyObject *mod) {
    (void)mod; /* always None for an in-place power */
    return binary(POW, a, b, a);
}

PyObject *tnp_neg(PyObject *a) { return call1(&ops[NEG], a); }
PyObject *tnp_abs(PyObject *a) { return call1(&ops[ABS], a); }
PyObject *tnp_invert(PyObject *a) {
    PyObject *r = call1(&ops[INVERT], a);
    if (!r && PyErr_ExceptionMatches(PyExc_NotImplementedError))
        PyErr_SetString(
            PyExc_TypeError,
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors");
    return r;
}
PyObject *tnp_pos(PyObject *a) {
    if (tn_tensor_dtype(tnp_of(a)) == TN_BOOL) {
        PyErr_SetString(PyExc_RuntimeError, "The `+` operator, on a bool tensor is not supported.");
        return NULL;
    }
    Py_INCREF(a);
    return a;
}

PyObject *tnp_richcompare(PyObject *a, PyObject *b, int op) {
    static const enum number_op of[] = {
        [Py_LT] = LT, [Py_LE] = LE, [Py_EQ] = EQ, [Py_NE] = NE, [Py_GT] = GT, [Py_GE] = GE,
    };
    return binary(of[op], a, b, NULL);
}

/* ---- Conversions -------------------------------------------------------------------------------*/

int tnp_bool(PyObject *a) {
    const tn_tensor *t = tnp_of(a);
    tn_scalar s;
    if (tn_tensor_numel(t) != 1) {
        PyErr_Format(PyExc_RuntimeError, "Boolean value of Tensor with %s is ambiguous",
                     tn_tensor_numel(t) ? "more than one value" : "no values");
        return -1;
    }
    if (tnp_item_from(t, &s) < 0) return -1;
    return s.kind >= TN_CAT_FLOAT ? s.re != 0.0 || s.im != 0.0 : s.i != 0;
}

static PyObject *item_of(PyObject *a) {
    if (tn_tensor_numel(tnp_of(a)) != 1)
        return PyErr_Format(PyExc_ValueError,
                            "only one element tensors can be converted to Python scalars");
    return tnp_item_of(tnp_of(a));
}

/* The same of a number that is to be real: complex ones without an imaginary part are. */
static PyObject *real_item_of(PyObject *a, const char *kind) {
    PyObject *item = item_of(a);
    if (!item || !PyComplex_Check(item)) return item;
    PyObject *real = PyComplex_ImagAsDouble(item) == 0.0
                         ? PyFloat_FromDouble(PyComplex_RealAsDouble(item))
                         : NULL;
    if (!real && !PyErr_Occurred())
        PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
                     kind);
    Py_DECREF(item);
    return real;
}

PyObject *tnp_int(PyObject *a) {
    PyObject *item = real_item_of(a, "int64_t");
    PyObject *r = item ? PyNumber_Long(item) : NULL;
    Py_XDECREF(item);
    return r;
}

PyObject *tnp_float(PyObject *a) {
    PyObject *item = real_item_of(a, "double");
    PyObject *r = item ? PyNumber_Float(item) : NULL;
    Py_XDECREF(item);
    return r;
}

PyObject *tnp_index(PyObject *a) {
    const tn_tensor *t = tnp_of(a);
    if (tn_tensor_numel(t) != 1 || tn_dtype_category(tn_tensor_dtype(t)) > TN_CAT_INT) {
        PyErr_SetString(PyExc_TypeError,
                        "only integer tensors of a single element can be converted to an index");
        return NULL;
    }
    return tnp_int(a);
}
