/* ffi_function.c: a bound C function as a Python callable.
 *
 * A call goes through these steps: say which argument is which parameter; convert; work out lengths
 * from the tensors, or check those that were given; call; note what was written; convert the result. */
#include "ffi_priv.h"

#include <errno.h>

PyTypeObject *tnp_ffi_function_type;

enum returns { RETURNS_VALUE, RETURNS_ERRNO, RETURNS_STATUS, RETURNS_NULL };
static const char *const returns_names[] = {"value", "errno", "status", "null"};

typedef struct function_object {
    PyObject_HEAD tn_ffi_function *f;
    PyObject *scope;
    PyObject *op;          /* the operator for tensors, or NULL */
    PyObject *status_text; /* turns a status into words, or NULL */
    PyObject *doc;
    PyObject *dict; /* for the Python side */
    enum returns returns;
    uint32_t nullable, factors; /* by parameter; factors: it is one of some array's length */
    int32_t nlengths;           /* parameters that arrays tell */
    bool measured;              /* some array has a length */
    bool release_gil, copy;
} function_object;

/* The value of an argument; every member lies at its start. */
typedef union slot {
    int8_t i8;
    uint8_t u8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    double d;
    void *p;
} slot;

/* One call. */
typedef struct call {
    const function_object *o;
    PyObject *given[TN_FFI_PARAMS]; /* borrowed; NULL: not given */
    slot slots[TN_FFI_PARAMS];
    void *args[TN_FFI_PARAMS];
    tnp_ffi_target targets[TN_FFI_PARAMS];
    PyObject *callbacks[TN_FFI_PARAMS]; /* entered; NULL: none */
    int64_t lengths[TN_FFI_PARAMS];     /* worked out; -1: unknown */
    int32_t ready;                      /* parameters whose targets and callbacks are set */
} call;

static function_object *function_of(PyObject *o) { return (function_object *)o; }

static tnp_ffi_place place_of(const call *c, int32_t i) {
    tnp_ffi_place at = {c->o->f->name, c->o->f->params[i].name, i + 1};
    return at;
}

/* ---- Which argument is which -------------------------------------------------------------------*/

static int32_t param_named(const tn_ffi_function *f, PyObject *name) {
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    for (int32_t i = 0; text && i < f->nparams; i++)
        if (strcmp(f->params[i].name, text) == 0) return i;
    return -1;
}

static int take_keywords(call *c, PyObject *kwargs, Py_ssize_t *ret_plain) {
    const tn_ffi_function *f = c->o->f;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    *ret_plain = 0;
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
        int32_t i = param_named(f, name);
        if (i < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError, "%s() has no parameter '%U'", f->name, name);
            return -1;
        }
        c->given[i] = value;
        *ret_plain += !f->params[i].is_length;
    }
    return 0;
}

/* Positional arguments are all parameters, or all but the lengths. */
static int take_arguments(call *c, PyObject *args, PyObject *kwargs) {
    const tn_ffi_function *f = c->o->f;
    Py_ssize_t n = PyTuple_Size(args), plain = 0, k = 0;
    for (int32_t i = 0; i < f->nparams; i++) c->given[i] = NULL;
    if (kwargs && take_keywords(c, kwargs, &plain) < 0) return -1;
    bool all = n + plain > f->nparams - c->o->nlengths;
    for (int32_t i = 0; i < f->nparams && k < n; i++) {
        if (!all && f->params[i].is_length) continue;
        if (c->given[i]) {
            PyErr_Format(PyExc_TypeError, "%s() got parameter '%s' twice", f->name,
                         f->params[i].name);
            return -1;
        }
        c->given[i] = PyTuple_GetItem(args, k++);
    }
    if (k == n) return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %d arguments, not %zd: %s", f->name, f->nparams, n,
                 f->text);
    return -1;
}

/* ---- Conversion --------------------------------------------------------------------------------*/

static int convert_callback(call *c, int32_t i, const tnp_ffi_place *at, PyObject *o) {
    const tn_ffi_function *signature = c->o->f->params[i].type->signature;
    PyObject *callback = o;
    if (Py_TYPE(o) == tnp_ffi_callback_type) {
        const tn_ffi_type have = {.kind = TN_FFI_CALLBACK,
                                  .signature = ((tnp_ffi_callback_object *)o)->signature};
        if (!tnp_ffi_same_type(&have, c->o->f->params[i].type))
            return tnp_ffi_error(PyExc_TypeError, at, "is a callback with another signature");
        Py_INCREF(callback);
    } else {
        if (!PyCallable_Check(o)) return tnp_ffi_type_error(at, "a function", o);
        callback = tnp_ffi_callback_new(c->o->scope, signature, o);
        if (!callback) return -1;
    }
    tnp_ffi_callback_enter(callback);
    Py_DECREF(callback); /* entering keeps it */
    c->callbacks[i] = callback;
    c->slots[i].p = ((tnp_ffi_callback_object *)callback)->code;
    return 0;
}

static int convert_pointer(call *c, int32_t i, const tnp_ffi_place *at, PyObject *o) {
    const tn_ffi_type *t = c->o->f->params[i].type;
    if (o == Py_None) {
        c->slots[i].p = NULL;
        if (c->o->nullable >> i & 1u) return 0;
        return tnp_ffi_error(PyExc_TypeError, at,
                             "must not be None; nullable=['%s'] lets None be a null pointer",
                             at->name);
    }
    if (t->kind == TN_FFI_CALLBACK) return convert_callback(c, i, at, o);
    if (tnp_ffi_point(at, t, o, c->o->copy, &c->targets[i]) < 0) return -1;
    c->slots[i].p = c->targets[i].address;
    return 0;
}

static int convert_record(call *c, int32_t i, const tnp_ffi_place *at, PyObject *o) {
    const tn_ffi_type *t = c->o->f->params[i].type;
    if (Py_TYPE(o) != tnp_ffi_struct_type || ((tnp_ffi_struct_object *)o)->record != t->record)
        return tnp_ffi_type_error(at, tnp_ffi_type_text(t), o);
    c->args[i] = ((tnp_ffi_struct_object *)o)->memory;
    return 0;
}

/* All but lengths that were not given. */
static int convert(call *c, int32_t i) {
    const tn_ffi_type *t = c->o->f->params[i].type;
    tnp_ffi_place at = place_of(c, i);
    c->args[i] = &c->slots[i];
    c->callbacks[i] = NULL;
    c->targets[i] = (tnp_ffi_target){NULL, -1, NULL, NULL, NULL};
    c->lengths[i] = -1;
    c->ready = i + 1;
    PyObject *o = c->given[i];
    if (!o && c->o->f->params[i].is_length) return 0;
    if (!o) {
        PyErr_Format(PyExc_TypeError, "%s() lacks argument '%s' (position %d): %s", at.function,
                     at.name, at.position, c->o->f->text);
        return -1;
    }
    if (t->kind == TN_FFI_RECORD) return convert_record(c, i, &at, o);
    if (t->kind == TN_FFI_POINTER || t->kind == TN_FFI_CALLBACK)
        return convert_pointer(c, i, &at, o);
    return tnp_ffi_store_number(&at, t, o, &c->slots[i]);
}

/* ---- Lengths -----------------------------------------------------------------------------------*/

static int64_t read_length(const call *c, int32_t i) {
    const slot *s = &c->slots[i];
    switch (c->o->f->params[i].type->kind) {
    case TN_FFI_CHAR:
    case TN_FFI_I8: return s->i8;
    case TN_FFI_U8: return s->u8;
    case TN_FFI_I16: return s->i16;
    case TN_FFI_U16: return s->u16;
    case TN_FFI_I32: return s->i32;
    case TN_FFI_U32: return s->u32;
    default: return s->i64;
    }
}

/* The number of elements along dimension d of a parameter's tensor, or of all of it. */
static int64_t extent(const call *c, int32_t i, int32_t d) {
    const tn_ffi_param *p = &c->o->f->params[i];
    const tn_tensor *t = c->targets[i].t;
    if (p->ndims == 1 || !t)
        return c->targets[i].bytes / (p->type->to->size ? p->type->to->size : 1);
    return ((const tn_view *)(const void *)t)->shape[d];
}

/* Whether the lengths of parameter i say anything about what was given. */
static bool is_measured(const call *c, int32_t i) {
    return c->o->f->params[i].ndims > 0 && c->targets[i].bytes >= 0;
}

static int check_rank(const call *c, int32_t i) {
    const tn_ffi_param *p = &c->o->f->params[i];
    tnp_ffi_place at = place_of(c, i);
    const tn_tensor *t = c->targets[i].t;
    if (p->ndims == 1 || (t && tn_tensor_ndim(t) == p->ndims)) return 0;
    return tnp_ffi_error(PyExc_ValueError, &at, "must be a tensor of %d dimensions", p->ndims);
}

/* Takes the lengths that were not given from the tensors. */
static int measure(call *c, int32_t i) {
    const tn_ffi_param *p = &c->o->f->params[i];
    if (check_rank(c, i) < 0) return -1;
    for (int32_t d = 0; d < p->ndims; d++) {
        const tn_ffi_length *len = &p->dims[d];
        if (len->nparams != 1 || len->factor != 1) continue;
        int32_t n = len->params[0];
        if (c->given[n] || c->lengths[n] >= 0) continue;
        c->lengths[n] = extent(c, i, d);
    }
    return 0;
}

static int check_length(const call *c, int32_t i, int32_t d) {
    const tn_ffi_length *len = &c->o->f->params[i].dims[d];
    int64_t need = len->factor, have = extent(c, i, d);
    bool exact = false, overflow = false;
    for (int32_t k = 0; k < len->nparams; k++) {
        int64_t v = c->lengths[len->params[k]];
        overflow = overflow || v < 0 || __builtin_mul_overflow(need, v, &need);
        exact = exact || !c->given[len->params[k]];
    }
    /* A length that was given may be less than what is there; a leading dimension may not. */
    exact = exact || d > 0;
    if (!overflow && (exact ? have == need : have >= need)) return 0;
    tnp_ffi_place at = place_of(c, i);
    if (overflow)
        return tnp_ffi_error(PyExc_ValueError, &at,
                             "is declared with a length below 0 or too large");
    return tnp_ffi_error(PyExc_ValueError, &at, "has %lld elements%s, and %s takes %lld",
                         (long long)have, c->o->f->params[i].ndims > 1 ? " along a dimension" : "",
                         at.function, (long long)need);
}

static int store_length(call *c, int32_t i) {
    const tn_ffi_param *p = &c->o->f->params[i];
    tnp_ffi_place at = place_of(c, i);
    if (c->given[i]) {
        c->lengths[i] = read_length(c, i);
        return 0;
    }
    if (c->lengths[i] < 0) {
        PyErr_Format(PyExc_TypeError,
                     "%s() lacks argument '%s' (position %d), which no tensor tells: %s",
                     at.function, at.name, at.position, c->o->f->text);
        return -1;
    }
    PyObject *n = PyLong_FromLongLong(c->lengths[i]);
    int done = n ? tnp_ffi_store_number(&at, p->type, n, &c->slots[i]) : -1;
    Py_XDECREF(n);
    return done;
}

static int settle_lengths(call *c) {
    const tn_ffi_function *f = c->o->f;
    for (int32_t i = 0; i < f->nparams; i++)
        if (is_measured(c, i) && measure(c, i) < 0) return -1;
    for (int32_t i = 0; i < f->nparams; i++)
        if ((c->o->factors >> i & 1u) && store_length(c, i) < 0) return -1;
    for (int32_t i = 0; i < f->nparams; i++)
        for (int32_t d = 0; is_measured(c, i) && d < f->params[i].ndims; d++)
            if (check_length(c, i, d) < 0) return -1;
    return 0;
}

/* ---- After the call ----------------------------------------------------------------------------*/

/* Brings back what C wrote to a copy. */
static int copy_back(PyObject *to, PyObject *from) {
    PyObject *done = PyObject_CallMethod(to, "copy_", "O", from);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int note_writes(call *c) {
    int done = 0;
    for (int32_t i = 0; i < c->o->f->nparams; i++) {
        const tn_ffi_type *t = c->o->f->params[i].type;
        const tnp_ffi_target *target = &c->targets[i];
        if (t->kind != TN_FFI_POINTER) continue;
        if (t->to->kind == TN_FFI_POINTER && target->address) {
            tnp_ffi_pointer_object *p = (tnp_ffi_pointer_object *)c->given[i];
            p->is_const = t->to->to->is_const;
            if (!p->to) Py_INCREF(c->o->scope);
            if (!p->to) p->scope = c->o->scope;
            p->to = t->to->to;
        }
        if (!target->t || t->to->is_const) continue;
        if (!target->made)
            tn_tensor_note_write(target->t);
        else if (done == 0)
            done = copy_back(c->given[i], target->made);
    }
    return done;
}

/* Lets go of what the call held; raises what a callback raised. */
static int finish(call *c) {
    int done = 0;
    for (int32_t i = 0; i < c->ready; i++) {
        if (c->callbacks[i] && tnp_ffi_callback_leave(c->callbacks[i]) < 0) done = -1;
        Py_XDECREF(c->targets[i].made);
    }
    return done;
}

static PyObject *raise_errno(const tn_ffi_function *f, int code) {
    PyObject *text = PyUnicode_FromFormat("%s(): %s", f->name, strerror(code));
    PyObject *exc = text ? PyObject_CallFunction(PyExc_OSError, "iO", code, text) : NULL;
    if (exc) PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    Py_XDECREF(exc);
    Py_XDECREF(text);
    return NULL;
}

static PyObject *raise_status(const function_object *o, PyObject *status) {
    PyObject *text =
        o->status_text ? PyObject_CallFunctionObjArgs(o->status_text, status, NULL) : NULL;
    if (!text && PyErr_Occurred()) return NULL;
    PyObject *message =
        text && text != Py_None
            ? PyUnicode_FromFormat("%s() returned status %S: %S", o->f->name, status, text)
            : PyUnicode_FromFormat("%s() returned status %S", o->f->name, status);
    PyObject *exc =
        message ? PyObject_CallFunctionObjArgs(PyExc_RuntimeError, message, NULL) : NULL;
    if (exc && PyObject_SetAttrString(exc, "status", status) == 0)
        PyErr_SetObject(PyExc_RuntimeError, exc);
    Py_XDECREF(exc);
    Py_XDECREF(message);
    Py_XDECREF(text);
    return NULL;
}

static PyObject *result_of(const function_object *o, const void *result, int code) {
    PyObject *value = tnp_ffi_load(o->scope, o->f->result, result);
    if (!value || o->returns == RETURNS_VALUE) return value;
    bool null = value == Py_None;
    PyObject *raised = NULL;
    if (o->returns == RETURNS_STATUS) {
        int failed = PyObject_IsTrue(value);
        if (failed == 0) {
            Py_DECREF(value);
            Py_RETURN_NONE;
        }
        if (failed > 0) raised = raise_status(o, value);
    } else if (null && o->returns == RETURNS_NULL && !code) {
        PyErr_Format(PyExc_RuntimeError, "%s() returned NULL", o->f->name);
    } else if (null || (o->returns == RETURNS_ERRNO && PyLong_Check(value) &&
                        PyLong_AsLongLong(value) == -1)) {
        raised = raise_errno(o->f, code);
    } else {
        PyErr_Clear(); /* a number too large to compare with -1 is not -1 */
        return value;
    }
    Py_DECREF(value);
    return raised;
}

/* ---- Calling -----------------------------------------------------------------------------------*/

/* Runs it into memory for the result; the code is errno of the call. */
static int run(call *c, void *result) {
    const function_object *o = c->o;
    PyThreadState *thread = o->release_gil ? PyEval_SaveThread() : NULL;
    errno = 0;
    tn_ffi_call(o->f, result, c->args);
    int code = errno;
    if (thread) PyEval_RestoreThread(thread);
    return code;
}

static PyObject *call_function(const function_object *o, PyObject *args, PyObject *kwargs) {
    slot small[2] = {{0}, {0}};
    int64_t size = o->f->result->size;
    call c;
    PyObject *value = NULL;
    c.o = o;
    c.ready = 0;
    if (take_arguments(&c, args, kwargs) < 0) return NULL;
    int done = 0;
    for (int32_t i = 0; i < o->f->nparams && done == 0; i++) done = convert(&c, i);
    if (done == 0 && o->measured) done = settle_lengths(&c);
    void *result = size <= (int64_t)sizeof small ? small : PyMem_Calloc(1, (size_t)size);
    if (!result) PyErr_NoMemory();
    if (done == 0 && result) {
        int code = run(&c, result);
        if (note_writes(&c) == 0) value = result_of(o, result, code);
    }
    if (finish(&c) < 0) Py_CLEAR(value);
    if (result != small) PyMem_Free(result);
    return value;
}

static bool wants_operator(const function_object *o, PyObject *args, PyObject *kwargs) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (!o->op) return false;
    for (Py_ssize_t i = 0, n = PyTuple_Size(args); i < n; i++)
        if (tnp_is_tensor(PyTuple_GetItem(args, i))) return true;
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value))
        if (tnp_is_tensor(value)) return true;
    return false;
}

static PyObject *function_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    const function_object *o = function_of(self);
    return wants_operator(o, args, kwargs) ? PyObject_Call(o->op, args, kwargs)
                                           : call_function(o, args, kwargs);
}

/* ---- Making ------------------------------------------------------------------------------------*/

static int read_returns(function_object *o, PyObject *name) {
    const tn_ffi_type *t = o->f->result;
    bool integer = t->kind >= TN_FFI_BOOL && t->kind <= TN_FFI_U64,
         pointer = t->kind == TN_FFI_POINTER;
    for (int i = 0; i < TNP_COUNT(returns_names); i++) {
        if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, returns_names[i]) != 0)
            continue;
        o->returns = (enum returns)i;
        bool fits = i == RETURNS_VALUE || (i == RETURNS_ERRNO && (integer || pointer)) ||
                    (i == RETURNS_STATUS && integer) || (i == RETURNS_NULL && pointer);
        if (fits) return 0;
        PyErr_Format(PyExc_ValueError, "%s: returns='%s' does not go with a result of type %s",
                     o->f->name, returns_names[i], tnp_ffi_type_text(t));
        return -1;
    }
    PyErr_Format(PyExc_ValueError, "%s: returns is 'value', 'errno', 'status' or 'null', not %R",
                 o->f->name, name);
    return -1;
}

static int read_nullable(function_object *o, PyObject *names) {
    for (Py_ssize_t k = 0; k < PyTuple_Size(names); k++) {
        int32_t i = param_named(o->f, PyTuple_GetItem(names, k));
        if (PyErr_Occurred()) return -1;
        int32_t kind = i < 0 ? TN_FFI_VOID : o->f->params[i].type->kind;
        if (kind != TN_FFI_POINTER && kind != TN_FFI_CALLBACK) {
            PyErr_Format(PyExc_ValueError, "%s: nullable names '%S', which is no pointer parameter",
                         o->f->name, PyTuple_GetItem(names, k));
            return -1;
        }
        o->nullable |= 1u << i;
    }
    return 0;
}

/* Notes which parameters have to do with lengths. */
static void read_lengths(function_object *o) {
    for (int32_t i = 0; i < o->f->nparams; i++) {
        const tn_ffi_param *p = &o->f->params[i];
        o->nlengths += p->is_length;
        o->measured = o->measured || p->ndims > 0;
        for (int32_t d = 0; d < p->ndims; d++)
            for (int32_t k = 0; k < p->dims[d].nparams; k++)
                o->factors |= UINT32_C(1) << p->dims[d].params[k];
    }
}

/* options: (op or None, returns, status_text or None, nullable, release_gil, copy) */
PyObject *tnp_ffi_function_new(PyObject *scope, tn_ffi_function *f, PyObject *options) {
    PyObject *op, *returns, *status_text, *nullable;
    int release_gil, copy;
    if (!PyArg_ParseTuple(options, "OOOO!pp", &op, &returns, &status_text, &PyTuple_Type, &nullable,
                          &release_gil, &copy))
        return NULL;
    function_object *o = PyObject_GC_New(function_object, tnp_ffi_function_type);
    if (!o) return NULL;
    *o = (function_object){.ob_base = o->ob_base,
                           .f = f,
                           .scope = scope,
                           .op = op == Py_None ? NULL : op,
                           .status_text = status_text == Py_None ? NULL : status_text,
                           .doc = PyUnicode_FromString(f->text),
                           .release_gil = release_gil,
                           .copy = copy};
    Py_INCREF(scope);
    Py_XINCREF(o->op);
    Py_XINCREF(o->status_text);
    read_lengths(o);
    if (o->doc && read_returns(o, returns) == 0 && read_nullable(o, nullable) == 0) {
        PyObject_GC_Track(o);
        return (PyObject *)o;
    }
    Py_DECREF(o);
    return NULL;
}

static int function_traverse(PyObject *self, visitproc visit, void *arg) {
    function_object *o = function_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(o->op);
    Py_VISIT(o->status_text);
    Py_VISIT(o->dict);
    return 0;
}

static int function_clear(PyObject *self) {
    function_object *o = function_of(self);
    Py_CLEAR(o->op);
    Py_CLEAR(o->status_text);
    Py_CLEAR(o->dict);
    return 0;
}

static void function_dealloc(PyObject *self) {
    function_object *o = function_of(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)function_clear(self);
    Py_XDECREF(o->doc);
    Py_XDECREF(o->scope);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *function_repr(PyObject *self) {
    return PyUnicode_FromFormat("<C function '%s'>", function_of(self)->f->text);
}

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(function_of(self)->f->name);
}

static PyMemberDef members[] = {
    {"__doc__", T_OBJECT, offsetof(function_object, doc), READONLY, "The declaration."},
    {"declaration", T_OBJECT, offsetof(function_object, doc), READONLY, "The declaration."},
    {"op", T_OBJECT, offsetof(function_object, op), READONLY, "The operator on tensors, or None."},
    {"__dictoffset__", T_PYSSIZET, offsetof(function_object, dict), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"__name__", get_name, NULL, "The name of the C function.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_dealloc, function_dealloc),
    TNP_SLOT(Py_tp_traverse, function_traverse),
    TNP_SLOT(Py_tp_clear, function_clear),
    TNP_SLOT(Py_tp_call, function_call),
    TNP_SLOT(Py_tp_repr, function_repr),
    TNP_SLOT(Py_tp_members, members),
    TNP_SLOT(Py_tp_getset, getset),
    {0, NULL},
};

bool tnp_ffi_function_init(PyObject *module) {
    PyType_Spec spec = {"tenon.ffi.Function", sizeof(function_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        slots};
    tnp_ffi_function_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return tnp_ffi_function_type &&
           PyModule_AddObjectRef(module, "FfiFunction", (PyObject *)tnp_ffi_function_type) == 0;
}
