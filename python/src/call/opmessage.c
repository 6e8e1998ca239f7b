/* opmessage.c: what is wrong with the arguments of a call, in PyTorch's words. */
#include "binding_priv.h"

static const char *kind_name(const tn_field *f) {
    switch (f->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND: return "Tensor";
    case TN_F_TENSORS: return "tuple of Tensors";
    case TN_F_INT:
    case TN_F_INT_OPT:
    case TN_F_DIM:
    case TN_F_DIM_OPT: return "int";
    case TN_F_INTS:
    case TN_F_DIMS: return "tuple of ints";
    case TN_F_BOOL: return "bool";
    case TN_F_FLOAT:
    case TN_F_FLOAT_OPT: return "float";
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: return "Number";
    case TN_F_DTYPE: return "dtype";
    case TN_F_DEVICE: return "device";
    case TN_F_FORMAT: return "memory_format";
    case TN_F_STR: return "str";
    default: return "Generator";
    }
}

static PyObject *type_name(PyObject *value) {
    return value ? PyType_GetName(Py_TYPE(value)) : PyUnicode_FromString("nothing");
}

static PyObject *place(int32_t position) {
    if (!position) return PyUnicode_FromString("");
    return PyUnicode_FromFormat(" (position %d)", (int)position);
}

static void bad_value(const tnp_overload *o, const char *name, const tnp_mismatch *why) {
    const tn_field *f = o->params[why->param].field;
    PyObject *where = place(why->position);
    PyObject *got = why->kind == TNP_BAD_ELEMENT ? PyType_GetName((PyTypeObject *)why->value)
                                                 : type_name(why->value);
    if (!where || !got) goto out;
    if (why->kind == TNP_BAD_TYPE && f->kind == TN_F_STR && strcmp(f->name, "reduction") == 0)
        PyErr_Format(PyExc_ValueError, "%S is not a valid value for reduction", why->value);
    else if (why->kind == TNP_BAD_TYPE)
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s'%U must be %s, not %U", name, f->name,
                     where, kind_name(f), got);
    else if (why->kind == TNP_BAD_ELEMENT)
        PyErr_Format(PyExc_TypeError,
                     "%s(): argument '%s'%U must be %s, but found element of type %U at pos %lld",
                     name, f->name, where, kind_name(f), got, (long long)why->element);
    else
        PyErr_Format(PyExc_RuntimeError, "%s(): argument '%s'%U must hold %d ints, not %lld", name,
                     f->name, where, (int)f->fixed, (long long)why->element);
out:
    Py_XDECREF(where);
    Py_XDECREF(got);
}

static void bad_count(const tnp_overload *o, const char *name, enum tnp_form form,
                      Py_ssize_t nargs) {
    int most = 0, least = 0;
    for (int32_t i = 0; i < o->npositional; i++) {
        if (form != TNP_FORM_FUNCTION && i == o->self_param) continue;
        most++;
        least += o->params[i].required;
    }
    if (most == least)
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd %s given", name,
                     most, most == 1 ? "" : "s", nargs, nargs == 1 ? "was" : "were");
    else
        PyErr_Format(PyExc_TypeError,
                     "%s() takes from %d to %d positional arguments but %zd %s given", name, least,
                     most, nargs, nargs == 1 ? "was" : "were");
}

static void one_overload(const tnp_overload *o, const char *name, enum tnp_form form,
                         Py_ssize_t nargs, const tnp_mismatch *why) {
    switch (why->kind) {
    case TNP_MISSING:
        PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"", name,
                     o->params[why->param].field->name);
        break;
    case TNP_TOO_MANY: bad_count(o, name, form, nargs); break;
    case TNP_UNKNOWN_KEYWORD:
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", name,
                     why->value);
        break;
    case TNP_TWICE:
        PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", name,
                     why->value);
        break;
    default: bad_value(o, name, why); break;
    }
}

/* "int, dim=str": the types of the arguments as they were given. */
static PyObject *given_types(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t n = nargs + (kwnames ? PyTuple_Size(kwnames) : 0);
    PyObject *parts = PyList_New(0), *comma = PyUnicode_FromString(", "), *text = NULL;
    for (Py_ssize_t i = 0; parts && comma && i < n; i++) {
        PyObject *part = type_name(args[i]);
        if (part && i >= nargs) {
            PyObject *named =
                PyUnicode_FromFormat("%U=%U", PyTuple_GetItem(kwnames, i - nargs), part);
            Py_DECREF(part);
            part = named;
        }
        int failed = !part || PyList_Append(parts, part) < 0;
        Py_XDECREF(part);
        if (failed) goto out;
    }
    if (parts && comma) text = PyUnicode_Join(comma, parts);
out:
    Py_XDECREF(parts);
    Py_XDECREF(comma);
    return text;
}

static void many_overloads(const tnp_group *g, const char *name, enum tnp_form form,
                           PyObject *types) {
    PyObject *text = PyUnicode_FromFormat(
        "%s() received an invalid combination of arguments - got (%U), but expected one of:", name,
        types);
    for (int32_t i = 0; text && i < g->n; i++) {
        if (!tnp_overload_has(&g->overloads[i], form)) continue;
        const char *sig = g->overloads[i].meta.info->schema, *end = strstr(sig, " ->");
        const char *from = strchr(sig, '(');
        if (!from) from = sig;
        PyObject *line =
            PyUnicode_FromStringAndSize(from, end ? end - from : (Py_ssize_t)strlen(from));
        PyObject *more = line ? PyUnicode_FromFormat("%U\n * %U", text, line) : NULL;
        Py_XDECREF(line);
        Py_DECREF(text);
        text = more;
    }
    if (text) PyErr_SetObject(PyExc_TypeError, text);
    Py_XDECREF(text);
}

void *tnp_bind_error(const tnp_group *g, const char *name, enum tnp_form form,
                     PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                     const tnp_mismatch *why) {
    const tnp_overload *only = NULL;
    int32_t candidates = 0;
    for (int32_t i = 0; i < g->n; i++) {
        if (g->n > 1 && !tnp_overload_has(&g->overloads[i], form)) continue;
        only = &g->overloads[i];
        candidates++;
    }
    if (candidates == 1) {
        one_overload(only, name, form, nargs, why);
        return NULL;
    }
    PyObject *types = given_types(args, nargs, kwnames);
    if (types) many_overloads(g, name, form, types);
    Py_XDECREF(types);
    return NULL;
}
