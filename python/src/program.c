/* program.c: programs (tenon/program.h) for tenon/_program.py, as capsules. */
#include "binding_priv.h"

#include <tenon/program.h>

#define CAPSULE "tenon.program"

static void drop(PyObject *capsule) {
    tn_program *p = PyCapsule_GetPointer(capsule, CAPSULE);
    tn_program_cancel(p);
    tn_program_unref(&p);
}

/* Takes over p. */
static PyObject *wrap(tn_program *p) {
    PyObject *capsule = PyCapsule_New(p, CAPSULE, drop);
    if (!capsule) tn_program_cancel(p); /* if it records */
    if (!capsule) tn_program_unref(&p);
    return capsule;
}

static int program_of(PyObject *o, void *ret_program) {
    *(tn_program **)ret_program = PyCapsule_GetPointer(o, CAPSULE);
    return *(tn_program **)ret_program != NULL;
}

/* The tensors of a tuple, borrowed; free with PyMem_Free. NULL: exception. */
static tn_tensor **tensors_of(PyObject *tuple) {
    Py_ssize_t n = PyTuple_Size(tuple);
    tn_tensor **list = PyMem_Calloc((size_t)n + 1, sizeof *list);
    if (!list) PyErr_NoMemory();
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        if (!tnp_is_tensor(o)) {
            PyMem_Free(list);
            return tnp_type_error("a program takes and gives tensors, not %U", o);
        }
        list[i] = tnp_of(o);
    }
    return list;
}

static PyObject *none_or_raise(tn_status st) {
    if (st != TN_OK) return tnp_raise(st);
    Py_RETURN_NONE;
}

/* ---- Recording ---------------------------------------------------------------------------------*/

static PyObject *begin(PyObject *unused, PyObject *none) {
    tn_program *p;
    (void)unused, (void)none;
    tn_status st = tn_program_begin(&p);
    if (st != TN_OK) return tnp_raise(st);
    return wrap(p);
}

static PyObject *is_recording(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyBool_FromLong(tn_program_is_recording());
}

static PyObject *version(PyObject *unused, PyObject *o) {
    (void)unused;
    if (!tnp_is_tensor(o)) return PyErr_Format(PyExc_TypeError, "_program_version takes a tensor");
    return PyLong_FromUnsignedLong(tn_tensor_version(tnp_of(o)));
}

/* Makes the numbers of sizes that are read while the thread records; set once. */
static PyObject *size_maker;

static PyObject *set_size_maker(PyObject *unused, PyObject *maker) {
    (void)unused;
    PyObject *before = size_maker;
    size_maker = Py_NewRef(maker);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyObject *tnp_size_number(int64_t v) {
    if (TNP_LIKELY(!tn_program_is_recording()) || !size_maker) return PyLong_FromLongLong(v);
    return PyObject_CallFunction(size_maker, "L", (long long)v);
}

int tnp_program_look(const char *what) {
    if (TNP_LIKELY(!tn_program_is_recording())) return 0;
    PyObject *module = PyImport_ImportModule("tenon._program.foreign");
    PyObject *text = module ? PyUnicode_FromFormat("a look at %s", what) : NULL;
    PyObject *done = text ? PyObject_CallMethod(module, "give_up", "O", text) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(text);
    Py_XDECREF(module);
    return done ? 0 : -1;
}

static PyObject *add_input(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *t;
    const char *name;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O!s:_program_input", program_of, &p, tnp.tensor, &t, &name))
        return NULL;
    return none_or_raise(tn_program_add_input(p, tnp_of(t), name));
}

static PyObject *add_weight(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *t;
    const char *name;
    int kind;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O!si:_program_weight", program_of, &p, tnp.tensor, &t, &name,
                          &kind))
        return NULL;
    return none_or_raise(tn_program_add_weight(p, tnp_of(t), name, kind));
}

static PyObject *end(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *outputs;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O!:_program_end", program_of, &p, &PyTuple_Type, &outputs))
        return NULL;
    tn_tensor **list = tensors_of(outputs);
    if (!list) return NULL;
    tn_tensors all = {list, PyTuple_Size(outputs)};
    tn_status st = tn_program_end(p, all);
    PyMem_Free(list);
    return none_or_raise(st);
}

static PyObject *cancel(PyObject *unused, PyObject *o) {
    tn_program *p;
    (void)unused;
    if (!program_of(o, &p)) return NULL;
    tn_program_cancel(p);
    Py_RETURN_NONE;
}

static PyObject *reads(PyObject *unused, PyObject *o) {
    tn_program *p;
    (void)unused;
    if (!program_of(o, &p)) return NULL;
    return Py_BuildValue("Lz", (long long)tn_program_reads(p), tn_program_read_where(p));
}

static PyObject *needs_parts(PyObject *unused, PyObject *o) {
    tn_program *p;
    (void)unused;
    return program_of(o, &p) ? PyBool_FromLong(tn_program_needs_parts(p)) : NULL;
}

static PyObject *tolerate(PyObject *unused, PyObject *o) {
    tn_program *p;
    (void)unused;
    return program_of(o, &p) ? none_or_raise(tn_program_tolerate(p)) : NULL;
}

/* (program, names) or (program, None): all composites. */
static PyObject *take_apart(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *names;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O:_program_take_apart", program_of, &p, &names)) return NULL;
    if (names == Py_None) return none_or_raise(tn_program_take_apart(p, NULL, -1));
    PyObject *list = PySequence_Tuple(names);
    Py_ssize_t n = list ? PyTuple_Size(list) : 0;
    const char **texts = list ? PyMem_Calloc((size_t)n + 1, sizeof *texts) : NULL;
    if (list && !texts) PyErr_NoMemory();
    bool ok = texts != NULL;
    for (Py_ssize_t i = 0; i < n && ok; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(list, i), NULL);
        ok = texts[i] != NULL;
    }
    PyObject *made = ok ? none_or_raise(tn_program_take_apart(p, texts, (int32_t)n)) : NULL;
    PyMem_Free((void *)texts);
    Py_XDECREF(list);
    return made;
}

static PyObject *set_scope(PyObject *unused, PyObject *args) {
    tn_program *p;
    int scope;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&i:_program_set_scope", program_of, &p, &scope)) return NULL;
    return none_or_raise(tn_program_set_scope(p, scope));
}

static PyObject *note_grad(PyObject *self, PyObject *on) {
    (void)self;
    long given = PyLong_AsLong(on);
    if (given == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong(tn_program_note_grad((int)given));
}

static PyObject *pause_(PyObject *unused, PyObject *args) {
    tn_program *p;
    int on;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&p:_program_pause", program_of, &p, &on)) return NULL;
    return none_or_raise(tn_program_pause(p, on));
}

static PyObject *value(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *t;
    int32_t id;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O!:_program_value", program_of, &p, tnp.tensor, &t)) return NULL;
    tn_status st = tn_program_value(p, tnp_of(t), &id);
    return st == TN_OK ? PyLong_FromLong(id) : tnp_raise(st);
}

static PyObject *position(PyObject *unused, PyObject *o) {
    tn_program *p;
    (void)unused;
    return program_of(o, &p) ? PyLong_FromLong(tn_program_nodes(p)) : NULL;
}

static PyObject *look_object(const tn_program_look *l) {
    PyObject *live = PyList_New(l->nlive);
    for (int32_t i = 0; live && i < l->nlive; i++)
        PyList_SetItem(live, i, PyLong_FromLong(l->live[i]));
    if (!live) return NULL;
    return Py_BuildValue("iizNIN", (int)l->position, (int)l->value, l->where, live,
                         (unsigned)l->version,
                         tnp_wrap(tn_tensor_ref((tn_tensor *)(uintptr_t)l->tensor)));
}

static PyObject *looks(PyObject *unused, PyObject *o) {
    tn_program *p;
    tn_program_look l;
    (void)unused;
    if (!program_of(o, &p)) return NULL;
    PyObject *list = PyList_New(0);
    for (int32_t i = 0; list && tn_program_look_at(p, i, &l) == TN_OK; i++) {
        PyObject *row = look_object(&l);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *generalize(PyObject *unused, PyObject *args) {
    tn_program *p, *other;
    unsigned long long inputs;
    int dim;
    long long low, high;
    const char *name;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O&KiLLs:_program_generalize", program_of, &p, program_of, &other,
                          &inputs, &dim, &low, &high, &name))
        return NULL;
    return none_or_raise(tn_program_generalize(p, other, inputs, dim, low, high, name));
}

static PyObject *agrees(PyObject *unused, PyObject *args) {
    tn_program *p, *other;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O&:_program_agrees", program_of, &p, program_of, &other))
        return NULL;
    return none_or_raise(tn_program_agrees(p, other));
}

/* ---- Running and looking -----------------------------------------------------------------------*/

static PyObject *run(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *inputs;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&O!:_program_run", program_of, &p, &PyTuple_Type, &inputs))
        return NULL;
    int32_t n = (int32_t)PyTuple_Size(inputs), m = tn_program_outputs(p);
    tn_tensor **in = tensors_of(inputs);
    tn_tensor **out = in ? PyMem_Calloc((size_t)m + 1, sizeof *out) : NULL;
    if (!out) {
        PyMem_Free(in);
        return in ? PyErr_NoMemory() : NULL;
    }
    PyThreadState *state = PyEval_SaveThread();
    tn_status st = tn_program_run(p, in, n, out, m);
    PyEval_RestoreThread(state);
    PyObject *result = st == TN_OK ? PyTuple_New(m) : tnp_raise(st);
    for (int32_t i = 0; i < m; i++) {
        PyObject *o = out[i] ? tnp_wrap(out[i]) : NULL;
        if (result)
            PyTuple_SetItem(result, i, o);
        else
            Py_XDECREF(o);
    }
    PyMem_Free(in);
    PyMem_Free(out);
    return result;
}

static PyObject *print(PyObject *unused, PyObject *args) {
    tn_program *p;
    int form;
    char *text;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&i:_program_print", program_of, &p, &form)) return NULL;
    tn_status st = tn_program_print(p, form, &text);
    if (st != TN_OK) return tnp_raise(st);
    PyObject *r = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    tn_free(text);
    return r;
}

static PyObject *slot_object(const tn_program_slot *s) {
    PyObject *shape = PyTuple_New(s->ndim);
    for (int32_t d = 0; shape && d < s->ndim; d++)
        PyTuple_SetItem(shape, d, PyLong_FromLongLong(s->shape[d]));
    if (!shape) return NULL;
    return Py_BuildValue("NNNN",
                         PyUnicode_DecodeUTF8(s->name, (Py_ssize_t)strlen(s->name), "replace"),
                         tnp_dtype_object(s->dtype), shape, tnp_device_object_of(s->device));
}

static PyObject *slots_of(const tn_program *p, int32_t n,
                          tn_status (*at)(const tn_program *, int32_t, tn_program_slot *)) {
    PyObject *list = PyTuple_New(n);
    for (int32_t i = 0; list && i < n; i++) {
        tn_program_slot s;
        tn_status st = at(p, i, &s);
        PyObject *o = st == TN_OK ? slot_object(&s) : tnp_raise(st);
        if (o)
            PyTuple_SetItem(list, i, o);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *slots(PyObject *unused, PyObject *o) {
    tn_program *p;
    (void)unused;
    if (!program_of(o, &p)) return NULL;
    PyObject *in = slots_of(p, tn_program_inputs(p), tn_program_input_at);
    PyObject *out = in ? slots_of(p, tn_program_outputs(p), tn_program_output_at) : NULL;
    if (out) return Py_BuildValue("NN", in, out);
    Py_XDECREF(in);
    return NULL;
}

static PyObject *weights(PyObject *unused, PyObject *o) {
    tn_program *p;
    tn_program_slot s;
    tn_tensor *t;
    (void)unused;
    if (!program_of(o, &p)) return NULL;
    PyObject *list = PyList_New(0);
    for (int32_t i = 0; list && tn_program_weight_at(p, i, &s, &t) == TN_OK; i++) {
        PyObject *name = PyUnicode_DecodeUTF8(s.name, (Py_ssize_t)strlen(s.name), "replace");
        PyObject *row = Py_BuildValue("NiN", name, (int)s.kind, tnp_wrap(t));
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *set_weight(PyObject *unused, PyObject *args) {
    tn_program *p;
    PyObject *t;
    int i;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&iO:_program_set_weight", program_of, &p, &i, &t)) return NULL;
    if (!tnp_is_tensor(t)) return tnp_type_error("a weight is a tensor, not %U", t);
    return none_or_raise(tn_program_set_weight(p, i, tnp_of(t)));
}

static PyObject *optimize(PyObject *unused, PyObject *args) {
    tn_program *p;
    unsigned int passes;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&I:_program_optimize", program_of, &p, &passes)) return NULL;
    tn_status st = tn_program_optimize(p, passes);
    if (st == TN_OK) st = tn_program_verify(p);
    return none_or_raise(st);
}

typedef tn_status part_at(const tn_program *p, int32_t i, int32_t *ret_first, int32_t *ret_count);

static PyObject *list_parts(PyObject *o, part_at *at) {
    tn_program *p;
    int32_t first, count;
    if (!program_of(o, &p)) return NULL;
    PyObject *list = PyList_New(0);
    for (int32_t i = 0; list && at(p, i, &first, &count) == TN_OK; i++) {
        PyObject *row = Py_BuildValue("ii", (int)first, (int)count);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *fused(PyObject *unused, PyObject *o) {
    (void)unused;
    return list_parts(o, tn_program_fused_at);
}

static PyObject *regions(PyObject *unused, PyObject *o) {
    (void)unused;
    return list_parts(o, tn_program_region_at);
}

static PyObject *note(PyObject *unused, PyObject *args) {
    tn_program *p;
    const char *text = NULL;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O&|z:_program_note", program_of, &p, &text)) return NULL;
    if (text) return none_or_raise(tn_program_set_note(p, text));
    text = tn_program_note(p);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* ---- Files -------------------------------------------------------------------------------------*/

static PyObject *load(PyObject *unused, PyObject *path) {
    PyObject *bytes;
    tn_program *p;
    (void)unused;
    if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
    tn_status st = tn_program_load(PyBytes_AsString(bytes), &p);
    Py_DECREF(bytes);
    return st == TN_OK ? wrap(p) : tnp_raise(st);
}

static PyObject *parse(PyObject *unused, PyObject *bytes) {
    tn_program *p;
    char *at;
    Py_ssize_t n;
    (void)unused;
    if (PyBytes_AsStringAndSize(bytes, &at, &n) < 0) return NULL;
    tn_status st = tn_program_parse(at, (uint64_t)n, &p);
    return st == TN_OK ? wrap(p) : tnp_raise(st);
}

static PyObject *to_bytes(PyObject *unused, PyObject *o) {
    tn_program *p;
    void *bytes;
    uint64_t n;
    (void)unused;
    if (!program_of(o, &p)) return NULL;
    tn_status st = tn_program_write(p, &bytes, &n);
    if (st != TN_OK) return tnp_raise(st);
    PyObject *r = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)n);
    tn_free(bytes);
    return r;
}

static PyObject *deferred_begin(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return none_or_raise(tn_deferred_begin());
}

static PyObject *deferred_end(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return none_or_raise(tn_deferred_end());
}

static PyObject *deferred_calls(PyObject *unused, PyObject *none) {
    (void)unused, (void)none;
    return PyLong_FromLong(tn_deferred_calls());
}

static PyMethodDef functions[] = {
    {"_deferred_begin", deferred_begin, METH_NOARGS, "The thread's calls wait from now on."},
    {"_deferred_end", deferred_end, METH_NOARGS, "Runs what waits."},
    {"_deferred_calls", deferred_calls, METH_NOARGS, "How many calls of the thread wait."},
    {"_program_begin", begin, METH_NOARGS, "Starts recording the thread's operators."},
    {"_program_is_recording", is_recording, METH_NOARGS, "Whether the thread records."},
    {"_program_version", version, METH_O, "A tensor's `_version`, which is no look at it."},
    {"_program_size_maker", set_size_maker, METH_O, "What makes numbers of sizes in recordings."},
    {"_program_input", add_input, METH_VARARGS, "(program, tensor, name)"},
    {"_program_weight", add_weight, METH_VARARGS, "(program, tensor, name, kind)"},
    {"_program_end", end, METH_VARARGS, "(program, outputs)"},
    {"_program_cancel", cancel, METH_O, "Gives the recording up."},
    {"_program_needs_parts", needs_parts, METH_O,
     "Whether a gradient read what a composite had kept: its parts have to be recorded."},
    {"_program_reads", reads, METH_O, "How often values were looked at, and where first."},
    {"_program_tolerate", tolerate, METH_O, "What cannot be recorded runs all the same."},
    {"_program_take_apart", take_apart, METH_VARARGS, "(program, names or None)"},
    {"_program_set_scope", set_scope, METH_VARARGS, "(program, number)"},
    {"_program_note_grad", note_grad, METH_O, "(on): as tn_program_note_grad."},
    {"_program_pause", pause_, METH_VARARGS, "(program, on)"},
    {"_program_value", value, METH_VARARGS, "(program, tensor): which value it is."},
    {"_program_position", position, METH_O, "How many nodes there are so far."},
    {"_program_looks", looks, METH_O,
     "Values looked at: (position, value, where, live, version, tensor) each."},
    {"_program_agrees", agrees, METH_VARARGS, NULL},
    {"_program_generalize", generalize, METH_VARARGS,
     "(program, other, inputs, dim, low, high, name)"},
    {"_program_run", run, METH_VARARGS, "(program, inputs): a tuple of outputs."},
    {"_program_print", print, METH_VARARGS, "(program, form): 0 text, 1 DOT, 2 JSON."},
    {"_program_slots", slots, METH_O, "Inputs and outputs: (name, dtype, shape, device) each."},
    {"_program_weights", weights, METH_O, "A list of (name, kind, tensor)."},
    {"_program_set_weight", set_weight, METH_VARARGS, "(program, i, tensor)"},
    {"_program_optimize", optimize, METH_VARARGS, "(program, passes)"},
    {"_program_regions", regions, METH_O, "Parts that a device takes: (first node, nodes) each."},
    {"_program_fused", fused, METH_O, "Groups that run as one kernel: (first node, nodes) each."},
    {"_program_note", note, METH_VARARGS, "(program[, text])"},
    {"_program_load", load, METH_O, "The program of a .tng file."},
    {"_program_parse", parse, METH_O, "The program of a .tng file's bytes."},
    {"_program_bytes", to_bytes, METH_O, "The bytes of a .tng file."},
    {NULL, NULL, 0, NULL},
};

bool tnp_program_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
