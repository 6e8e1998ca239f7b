/* opold.c: calls whose numbers stand before the tensors that they scale, p.add_(-lr, grad) for
 * p.add_(grad, alpha=-lr): an order that PyTorch gave up and still takes. The entries of the op table
 * that have it name it: "input alpha other", with "|" between several. */
#include "binding_priv.h"

enum { MOST = 16 };

typedef struct reordered {
    PyObject *values[2 * MOST];
    Py_ssize_t nargs; /* how many of them have no name */
    PyObject *kwnames;
} reordered;

/* The parameter called the n letters at name, or NULL. */
static const tnp_param *param_of(const tnp_overload *o, const char *name, size_t n) {
    for (int32_t i = 0; i < o->nparams; i++) {
        const char *own = o->params[i].field->name;
        if (strncmp(own, name, n) == 0 && own[n] == '\0') return &o->params[i];
    }
    return NULL;
}

/* Numbers, and tensors that can be one. */
static bool is_number(PyObject *value) {
    tn_scalar s;
    if (tnp_is_tensor(value)) {
        tn_tensor *t = tnp_of(value);
        return tn_tensor_ndim(t) == 0 && !tn_requires_grad(t);
    }
    int r = tnp_scalar_from(value, &s);
    if (r < 0) PyErr_Clear();
    return r > 0;
}

static bool is_given(PyObject *kwnames, PyObject *name) {
    Py_ssize_t n = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyUnicode_Compare(PyTuple_GetItem(kwnames, i), name) == 0) return true;
    return false;
}

/* Sorts the arguments by one order. 1: they are in it; 0: not; -1: exception. */
static int sort_by(const tnp_overload *o, const char *order, bool method, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames, reordered *r) {
    PyObject *names[MOST], *numbers[MOST];
    Py_ssize_t n = 0, nkeys = 0, ngiven = kwnames ? PyTuple_Size(kwnames) : 0;
    r->nargs = 0;
    if (nargs > MOST || ngiven > MOST) return 0;
    for (const char *at = order; *at && *at != '|';) {
        size_t len = strcspn(at, " |");
        const tnp_param *p = param_of(o, at, len);
        at += len + (at[len] == ' ');
        if (!p) return 0;
        if (method && p == &o->params[o->self_param]) continue;
        if (is_given(kwnames, p->name)) {
            if (n < nargs) return 0; /* behind a keyword there are only keywords */
        } else if (n == nargs) {
            return 0;
        } else if (p->kwonly) {
            if (!is_number(args[n])) return 0;
            names[nkeys] = p->name;
            numbers[nkeys++] = args[n++];
        } else {
            r->values[r->nargs++] = args[n++];
        }
    }
    if (n != nargs || !nkeys) return 0;
    r->kwnames = PyTuple_New(nkeys + ngiven);
    if (!r->kwnames) return -1;
    for (Py_ssize_t i = 0; i < nkeys + ngiven; i++) {
        PyObject *name = i < nkeys ? names[i] : PyTuple_GetItem(kwnames, i - nkeys);
        r->values[r->nargs + i] = i < nkeys ? numbers[i] : args[nargs + i - nkeys];
        PyTuple_SetItem(r->kwnames, i, Py_NewRef(name));
    }
    return 1;
}

/* Once a process, as PyTorch does. False: exception. */
static bool warn(const tnp_overload *o, const char *name, const char *order) {
    static bool warned;
    if (warned) return true;
    warned = true;
    PyObject *text = PyUnicode_FromStringAndSize(order, (Py_ssize_t)strcspn(order, "|"));
    int st = text
                 ? PyErr_WarnFormat(PyExc_UserWarning, 1,
                                    "This overload of %s is deprecated: numbers before the tensors "
                                    "that they scale (%U). Consider using the signature\n\t%s",
                                    name, text, o->meta.info->schema)
                 : -1;
    Py_XDECREF(text);
    return st == 0;
}

int tnp_call_old(tnp_group *g, enum tnp_form form, PyObject *self, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames, PyObject **ret_result) {
    bool method = form != TNP_FORM_FUNCTION;
    for (int32_t i = 0; i < g->n; i++) {
        tnp_overload *o = &g->overloads[i];
        for (const char *order = o->old; order && *order;) {
            reordered r;
            int st = sort_by(o, order, method, args, nargs, kwnames, &r);
            if (st < 0) return -1;
            if (st > 0) {
                const char *name = form == TNP_FORM_INPLACE ? g->inplace_name : g->name;
                *ret_result = warn(o, name, order)
                                  ? tnp_call(g, form, self, r.values, r.nargs, r.kwnames)
                                  : NULL;
                Py_DECREF(r.kwnames);
                return *ret_result ? 1 : -1;
            }
            order += strcspn(order, "|");
            order += *order == '|';
        }
    }
    return 0;
}
