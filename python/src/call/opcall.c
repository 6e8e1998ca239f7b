/* opcall.c: calls of operators from Python: overloads, results, the tables of functions and methods.
 *
 * Every operator of the op table is a Python function, method or both through the rows of
 * py_rows.inc. There is no generated code per operator but a trampoline that says which row it is:
 * arguments are bound by opparse.c from the table's fields. */
#include <stdio.h>

#include "binding_priv.h"

static const struct py_row {
    const char *name;
    uint32_t forms;
    uint32_t numbers;
    const char *op, *old;
} rows[] = {
#define TN_PY_ROW(name, forms, numbers, op, old) {name, forms, numbers, op, old},
#include "py_rows.inc"
#undef TN_PY_ROW
};

/* Trampolines: tnp_fn_<group>, tnp_method_<group>, tnp_inplace_<group>, in order of the groups. */
#include "py_calls.inc"

static tnp_group groups[TNP_COUNT(rows)];
static int32_t group_count;

/* ---- Running -----------------------------------------------------------------------------------*/

/* ---- Results -----------------------------------------------------------------------------------*/

static PyObject *wrap_list(tn_tensor_list *list) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)list->n);
    for (int64_t i = 0; tuple && i < list->n; i++) {
        PyObject *o = tnp_wrap_opt(list->v[i]);
        list->v[i] = NULL;
        PyTuple_SetItem(tuple, (Py_ssize_t)i, o);
    }
    tn_tensor_list_free(list);
    return tuple;
}

static PyObject *wrap_several(const tnp_overload *o, tn_tensor **rets) {
    int32_t n = o->meta.nout;
    PyObject *r = o->result ? PyStructSequence_New(o->result) : PyTuple_New(n);
    for (int32_t i = 0; i < n; i++) {
        PyObject *item = tnp_wrap_opt(rets[i]);
        if (!r)
            Py_XDECREF(item);
        else if (o->result)
            PyStructSequence_SetItem(r, i, item);
        else
            PyTuple_SetItem(r, i, item);
    }
    return r;
}

/* Fills the result fields from out=. A list is copied, as those of arguments are. */
static bool set_outs(const tnp_overload *o, PyObject *out, tnp_frame *f) {
    int32_t n = o->meta.nout;
    if (PyList_Check(out) && (!(out = PyList_AsTuple(out)) || !tnp_hold(f, out))) return false;
    bool several = n != 1 && PyTuple_Check(out);
    for (int32_t i = 0; i < n; i++) {
        PyObject *item = several ? PyTuple_GetItem(out, i) : out;
        bool ok = item && tnp_is_tensor(item) && (several ? PyTuple_Size(out) == n : n == 1);
        if (!ok) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be %s, not %R", o->op_name,
                         n == 1 ? "Tensor" : "a tuple of Tensors", (PyObject *)Py_TYPE(out));
            return false;
        }
        const tn_field *field = &o->meta.fields[o->meta.out_field[i]];
        *(tn_tensor **)(void *)(f->args + field->offset) = tnp_of(item);
    }
    return true;
}

/* Operators of numbers alone give a number, which formulas combine with tensors; a program has asked
 * for a tensor. Takes `number` over. */
static tn_tensor *tensor_of(tn_tensor *number) {
    int32_t dtype = tn_tensor_dtype(number);
    if (dtype == TN_F64) dtype = tn_dtype_default();
    if (dtype == TN_C128) dtype = tn_dtype_promote(tn_dtype_default(), TN_C32);
    tn_tensor *made = tnp_to(number, dtype, NULL, true, TN_FORMAT_PRESERVE);
    tn_tensor_unref(&number);
    return made;
}

static PyObject *finish(const tnp_overload *o, tn_tensor **rets, const tnp_extras *extras) {
    if (TNP_UNLIKELY(extras->pin_memory) && !tnp_pin(&rets[0], -1)) return NULL;
    if (TNP_UNLIKELY(extras->requires_grad)) {
        tn_status st = tn_set_requires_grad(rets[0], 1);
        if (st != TN_OK) {
            tn_tensor_unref(&rets[0]);
            return tnp_raise(st);
        }
    }
    if (TNP_LIKELY(o->meta.nout == 1)) {
        if (TNP_UNLIKELY(tn_tensor_view(rets[0])->word & TN_W_SCALAR)) {
            rets[0] = tensor_of(rets[0]);
            if (!rets[0]) return NULL;
        }
        return tnp_wrap(rets[0]);
    }
    if (o->meta.nout == 0) Py_RETURN_NONE;
    return wrap_several(o, rets);
}

/* A factory that was told no device makes its tensor on the default one. */
static void set_device(const tnp_overload *o, tnp_frame *f) {
    tn_device there = tnp_new_device();
    for (int32_t i = 0; i < o->nparams; i++) {
        const tn_field *field = o->params[i].field;
        int64_t *device = (int64_t *)(void *)(f->args + field->offset);
        if (field->kind == TN_F_DEVICE && *device < 0)
            *device = (int64_t)there.slot << 8 | there.index;
    }
}

/* How many elements a call without tensors makes: the product of its sizes, or a number of them. */
static int64_t factory_work(const tnp_overload *o, const tnp_frame *f) {
    int64_t work = 0;
    for (int32_t i = 0; i < o->nparams; i++) {
        const tn_field *field = o->params[i].field;
        const void *p = f->args + field->offset;
        int64_t n = field->kind == TN_F_INT ? *(const int64_t *)p : 0;
        if (field->kind == TN_F_INTS) {
            const tn_ints *sizes = p;
            n = sizes->n > 0;
            for (int64_t k = 0; k < sizes->n && n < TNP_LOCK_FREE_NUMEL; k++)
                if (__builtin_mul_overflow(n, sizes->v[k], &n)) n = TNP_LOCK_FREE_NUMEL;
        }
        if (n > work) work = n;
    }
    return work;
}

static PyObject *run(tnp_overload *o, enum tnp_form form, PyObject *self, tnp_frame *f,
                     const tnp_extras *extras) {
    tn_tensor *rets[TNP_MAX_RETS] = {NULL};
    if (TNP_UNLIKELY(extras->out != NULL) && !set_outs(o, extras->out, f)) return NULL;
    if (form == TNP_FORM_INPLACE) {
        const tn_field *field = &o->meta.fields[o->meta.out_field[0]];
        *(tn_tensor **)(void *)(f->args + field->offset) = tnp_of(self);
    }
    if (TNP_UNLIKELY(tnp.new_device_set != 0) && o->creates && o->meta.nin == 0) set_device(o, f);
    int64_t work = o->meta.nin == 0 ? factory_work(o, f) : f->work;
    tn_status st = tnp_invoke(o->meta.info, f->args, rets, work);
    if (TNP_UNLIKELY(st != TN_OK)) return tnp_raise(st);
    if (TNP_UNLIKELY(o->meta.flags & TNI_OP_LIST_OUT))
        return wrap_list((tn_tensor_list *)(void *)rets);
    if (TNP_UNLIKELY(form == TNP_FORM_INPLACE || (o->meta.flags & TNI_OP_INPLACE_ONLY))) {
        PyObject *result = form == TNP_FORM_FUNCTION ? tnp_wrap(tn_tensor_ref(rets[0])) : self;
        if (form != TNP_FORM_FUNCTION) Py_INCREF(self);
        for (int32_t i = 0; i < o->meta.nout; i++) tn_tensor_unref(&rets[i]);
        return result;
    }
    return finish(o, rets, extras);
}

PyObject *tnp_group_call(int32_t group, enum tnp_form form, PyObject *self, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames) {
    return tnp_call(&groups[group], form, self, args, nargs, kwnames);
}

/* Whether an overload behind `first` binds the call: one for tensors goes before one that made numbers
 * of them, which have no dtype. */
static bool binds_behind(tnp_group *g, int32_t first, enum tnp_form form, PyObject *self,
                         PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    bool binds = false;
    for (int32_t i = first + 1; i < g->n && !binds; i++) {
        tnp_overload *o = &g->overloads[i];
        tnp_extras extras = {NULL, false, false};
        tnp_mismatch why = {0};
        tnp_frame f;
        if (!tnp_overload_has(o, form) || (!o->ready && !tnp_overload_prepare(o))) continue;
        tnp_frame_init(&f);
        binds = tnp_bind(o, form, self, args, nargs, kwnames, &f, &extras, &why) > 0;
        binds = binds && !why.unboxed;
        tnp_frame_free(&f);
    }
    PyErr_Clear();
    return binds;
}

PyObject *tnp_call(tnp_group *g, enum tnp_form form, PyObject *self, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames) {
    tnp_frame f;
    tnp_mismatch why = {0};
    PyObject *taken;
    if (TNP_UNLIKELY(tnp.overrides) &&
        tnp_override(g->name, form, self, args, nargs, kwnames, &taken))
        return taken;
    for (int32_t i = 0; i < g->n; i++) {
        tnp_overload *o = &g->overloads[i];
        tnp_extras extras = {NULL, false, false};
        if (TNP_UNLIKELY(g->n > 1) && !tnp_overload_has(o, form)) continue;
        if (TNP_UNLIKELY(!o->ready) && !tnp_overload_prepare(o)) return NULL;
        tnp_frame_init(&f);
        int r = tnp_bind(o, form, self, args, nargs, kwnames, &f, &extras, &why);
        if (TNP_UNLIKELY(why.unboxed) && r > 0 &&
            binds_behind(g, i, form, self, args, nargs, kwnames)) {
            tnp_frame_free(&f);
            continue;
        }
        PyObject *result = r > 0 ? run(o, form, self, &f, &extras) : NULL;
        if (TNP_UNLIKELY(f.nheld | f.nblocks)) tnp_frame_free(&f);
        if (r != 0) return result;
    }
    /* something that is no tensor may take the call */
    if (tnp_override(g->name, form, self, args, nargs, kwnames, &taken)) return taken;
    if (tnp_call_old(g, form, self, args, nargs, kwnames, &taken) != 0) return taken;
    if (tnp_call_laid(g, self, args, nargs, kwnames, &taken) != 0) return taken;
    const char *name = form == TNP_FORM_INPLACE ? g->inplace_name : g->name;
    return tnp_bind_error(g, name, form, args, nargs, kwnames, &why);
}

PyObject *tnp_result_type(PyObject *unused, PyObject *name) {
    (void)unused;
    for (int32_t i = 0; i < group_count; i++) {
        tnp_group *g = &groups[i];
        if (PyUnicode_CompareWithASCIIString(name, g->name) != 0) continue;
        for (int32_t k = 0; k < g->n; k++) {
            tnp_overload *o = &g->overloads[k];
            if (!o->ready && !tnp_overload_prepare(o)) return NULL;
            if (o->result) return Py_NewRef((PyObject *)o->result);
        }
    }
    Py_RETURN_NONE;
}

/* The tensor stands among the keywords: the call without it. */
static PyObject *inplace_by_name(int32_t group, Py_ssize_t at, PyObject *const *args,
                                 PyObject *kwnames) {
    PyObject *rest[TNP_MAX_KEYWORDS], *names, *result = NULL;
    Py_ssize_t n = PyTuple_Size(kwnames);
    if (!(names = PyTuple_New(n - 1))) return NULL;
    for (Py_ssize_t i = 0, k = 0; i < n; i++) {
        if (i == at) continue;
        rest[k] = args[i];
        PyTuple_SetItem(names, k++, Py_NewRef(PyTuple_GetItem(kwnames, i)));
    }
    result = tnp_group_call(group, TNP_FORM_INPLACE, args[at], rest, 0, names);
    Py_DECREF(names);
    return result;
}

PyObject *tnp_group_call_inplace(int32_t group, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
    if (nargs < 1 || !tnp_is_tensor(args[0])) {
        const char *name = groups[group].inplace_name;
        PyObject *taken;
        Py_ssize_t named = nargs == 0 && kwnames ? PyTuple_Size(kwnames) : 0;
        for (Py_ssize_t i = 0; i < named && named <= TNP_MAX_KEYWORDS; i++)
            if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(kwnames, i), "input") == 0 &&
                tnp_is_tensor(args[i]))
                return inplace_by_name(group, i, args, kwnames);
        if (tnp_override(name, TNP_FORM_FUNCTION, NULL, args, nargs, kwnames, &taken)) return taken;
        PyErr_Format(PyExc_TypeError, "%s(): argument 'input' (position 1) must be Tensor", name);
        return NULL;
    }
    return tnp_group_call(group, TNP_FORM_INPLACE, args[0], args + 1, nargs - 1, kwnames);
}

/* ---- Tables ------------------------------------------------------------------------------------*/

/* Signatures of all overloads, the text of the first, and facts about arguments with an example. */
static char *doc_of(const tnp_group *g, const char *facts) {
    size_t bytes = 8 + strlen(facts);
    for (int32_t i = 0; i < g->n; i++) bytes += strlen(g->overloads[i].meta.info->schema) + 1;
    const char *text = g->overloads[0].meta.doc ? g->overloads[0].meta.doc : "";
    bytes += strlen(text);
    char *doc = PyMem_Malloc(bytes), *p = doc;
    for (int32_t i = 0; doc && i < g->n; i++) {
        size_t n = strlen(g->overloads[i].meta.info->schema);
        memcpy(p, g->overloads[i].meta.info->schema, n);
        p[n] = '\n';
        p += n + 1;
    }
    if (doc) snprintf(p, bytes - (size_t)(p - doc), "\n%s\n\n%s", text, facts);
    return doc;
}

static bool build_group(int32_t *row) {
    tnp_group *g = &groups[group_count];
    const char *name = rows[*row].name;
    int32_t first = *row;
    while (*row < TNP_COUNT(rows) && strcmp(rows[*row].name, name) == 0) (*row)++;
    size_t len = strlen(name);
    g->name = name;
    g->n = *row - first;
    g->overloads = PyMem_Calloc((size_t)g->n, sizeof *g->overloads);
    g->inplace_name = PyMem_Malloc(len + 2);
    if (!g->overloads || !g->inplace_name) return PyErr_NoMemory() != NULL;
    memcpy(g->inplace_name, name, len);
    memcpy(g->inplace_name + len, "_", 2);
    for (int32_t i = 0; i < g->n; i++) {
        tnp_overload *o = &g->overloads[i];
        o->op_name = name;
        if (tnp_check(tn_op_meta_find(rows[first + i].op, &o->meta)) < 0) return false;
        if (o->meta.args_bytes > TNP_MAX_ARGS_BYTES || o->meta.nout > TNP_MAX_RETS) {
            PyErr_Format(PyExc_ImportError, "operator %s has too many arguments",
                         rows[first + i].op);
            return false;
        }
        o->forms = rows[first + i].forms;
        o->numbers = rows[first + i].numbers;
        o->old = rows[first + i].old;
        g->forms |= o->forms;
    }
    g->doc = doc_of(g, py_calls[group_count].facts);
    group_count++;
    return g->doc || PyErr_NoMemory();
}

/* A text behind the line that Python takes a signature from; the text alone without memory. Kept
 * for ever, as methods are. */
static const char *signed_doc(const char *name, size_t nsig, const char *sig, const char *doc) {
    size_t bytes = strlen(name) + nsig + strlen(doc) + 12;
    char *all = PyMem_Malloc(bytes);
    if (!all) return doc;
    snprintf(all, bytes, "%s(%.*s)\n--\n\n%s", name, (int)nsig, sig, doc);
    return all;
}

static void put(PyMethodDef *def, const char *name, tnp_call_fn fn, const char *sig,
                const char *doc) {
    *def = (PyMethodDef){name, TNP_CFUNC(fn), METH_FASTCALL | METH_KEYWORDS,
                         signed_doc(name, strlen(sig), sig, doc)};
}

/* A method written by hand, whose text begins with its parameters where it has any. */
static PyMethodDef with_signature(const PyMethodDef *method) {
    PyMethodDef def = *method;
    const char *doc = def.ml_doc ? def.ml_doc : "", *end;
    size_t n = strlen(def.ml_name);
    char sig[256];
    if (def.ml_flags & METH_NOARGS) {
        snprintf(sig, sizeof sig, "$self, /");
    } else if (def.ml_flags & METH_O) {
        snprintf(sig, sizeof sig, "$self, other, /");
    } else if (strncmp(doc, def.ml_name, n) == 0 && doc[n] == '(' && (end = strchr(doc, ')'))) {
        int width = (int)(end - doc - (ptrdiff_t)n - 1);
        snprintf(sig, sizeof sig, width ? "$self, %.*s" : "$self%.*s", width, doc + n + 1);
    } else {
        snprintf(sig, sizeof sig, "$self, *args, **kwargs");
    }
    def.ml_doc = signed_doc(def.ml_name, strlen(sig), sig, doc);
    return def;
}

static bool build_groups(void) {
    for (int32_t row = 0; row < TNP_COUNT(rows) && group_count < TNP_COUNT(py_calls);)
        if (!build_group(&row)) return false;
    if (group_count == TNP_COUNT(py_calls)) return true;
    PyErr_SetString(PyExc_ImportError, "py_rows.inc and py_calls.inc do not belong together");
    return false;
}

PyMethodDef *tnp_op_methods(PyMethodDef *const *extra, int nextra) {
    if (!group_count && !build_groups()) return NULL;
    size_t n = 0, at = 0;
    for (int k = 0; k < nextra; k++)
        for (const PyMethodDef *d = extra[k]; d->ml_name; d++) n++;
    PyMethodDef *defs = PyMem_Calloc(n + 2 * (size_t)group_count + 1, sizeof *defs);
    if (!defs) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int32_t i = 0; i < group_count; i++) {
        const tnp_group *g = &groups[i];
        if (g->forms & TN_PY_METHOD)
            put(&defs[at++], g->name, py_calls[i].method, py_calls[i].method_sig, g->doc);
        if (g->forms & TN_PY_INPLACE)
            put(&defs[at++], g->inplace_name, py_calls[i].inplace, py_calls[i].inplace_sig, g->doc);
    }
    /* A type keeps the first of two methods with one name; the hand-written ones come first. */
    memmove(defs + n, defs, at * sizeof *defs);
    at = 0;
    for (int k = 0; k < nextra; k++)
        for (const PyMethodDef *d = extra[k]; d->ml_name; d++) defs[at++] = with_signature(d);
    return defs;
}

/* Puts a module among the imported ones: pickle looks its functions up there. */
static bool add_part(PyObject *module, const char *name, PyObject *part) {
    PyObject *full = PyModule_GetNameObject(part);
    int st = full ? PyDict_SetItem(PyImport_GetModuleDict(), full, part) : -1;
    Py_XDECREF(full);
    return st == 0 && PyModule_AddObjectRef(module, name, part) == 0;
}

/* Functions: those of torch into the module, those of nn.functional into its _nn. */
bool tnp_ops_init(PyObject *module) {
    if (!group_count && !build_groups()) return false;
    PyMethodDef *defs = PyMem_Calloc(2 * (size_t)group_count + 1, sizeof *defs);
    PyMethodDef *nn_defs = PyMem_Calloc(2 * (size_t)group_count + 1, sizeof *defs);
    PyObject *nn = PyModule_New("tenon._C._nn"), *ops = PyModule_New("tenon._C._ops");
    if (!defs || !nn_defs || !nn || !ops) return false;
    size_t n = 0, nnn = 0;
    for (int32_t i = 0; i < group_count; i++) {
        const tnp_group *g = &groups[i];
        const tnp_calls *c = &py_calls[i];
        if ((g->forms & TN_PY_TORCH) || g->forms == 0)
            put(&defs[n++], g->name, c->function, c->function_sig, g->doc);
        if (g->forms & TN_PY_NN)
            put(&nn_defs[nnn++], g->name, c->function, c->function_sig, g->doc);
        if ((g->forms & TN_PY_INPLACE) && (g->forms & (TN_PY_TORCH | TN_PY_NN)))
            put(g->forms & TN_PY_NN ? &nn_defs[nnn++] : &defs[n++], g->inplace_name,
                c->function_inplace, c->inplace_sig + 1, g->doc);
    }
    return PyModule_AddFunctions(ops, defs) == 0 && PyModule_AddFunctions(nn, nn_defs) == 0 &&
           add_part(module, "_ops", ops) && add_part(module, "_nn", nn);
}
