/* opparse.c: Python arguments into an operator's argument struct.
 *
 * One parser for every operator, driven by the fields of the op table. It first tries without
 * making exceptions, since another overload may fit; what did not fit is remembered in a
 * tnp_mismatch and told by opmessage.c if none does. Keyword names are interned by both sides, so
 * they are compared as pointers; names that are spelt otherwise are looked at in a second round. */
#include "binding_priv.h"

void tnp_frame_free(tnp_frame *f) {
    for (int32_t i = 0; i < f->nheld; i++) Py_DECREF(f->held[i]);
    for (int32_t i = 0; i < f->nblocks; i++) PyMem_Free(f->blocks[i]);
}

/* ---- One value ---------------------------------------------------------------------------------*/

static int bad_type(tnp_mismatch *why, PyObject *value) {
    why->kind = TNP_BAD_TYPE;
    why->value = value;
    return 0;
}

static int too_many_things(void) {
    PyErr_SetString(PyExc_TypeError, "too many arguments in one call");
    return -1;
}

bool tnp_hold(tnp_frame *f, PyObject *o) {
    if (f->nheld == TNP_MAX_HELD) {
        Py_DECREF(o);
        return too_many_things() > 0;
    }
    f->held[f->nheld++] = o;
    return true;
}

static void *block(tnp_frame *f, size_t bytes) {
    if (f->nblocks == TNP_MAX_HELD) {
        (void)too_many_things();
        return NULL;
    }
    void *p = PyMem_Malloc(bytes ? bytes : 1);
    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    f->blocks[f->nblocks++] = p;
    return p;
}

static inline void note_work(tnp_frame *f, const tn_tensor *t) {
    int64_t n = tn_tensor_numel(t);
    if (n > f->work) f->work = n;
}

static int to_operand(PyObject *value, tn_tensor **slot, tnp_frame *f, tnp_mismatch *why) {
    tn_scalar s;
    int r = tnp_scalar_from(value, &s);
    if (r <= 0) return r < 0 ? r : bad_type(why, value);
    if (f->nboxes == TNP_MAX_BOXES) return too_many_things();
    *slot = tn_scalar_box_init(&f->boxes[f->nboxes++], s);
    return 1;
}

/* Names the element's type, for the element may be gone when the message is written. */
static int bad_element(tnp_mismatch *why, PyObject *item, Py_ssize_t at) {
    why->kind = TNP_BAD_ELEMENT;
    why->value = (PyObject *)Py_TYPE(item);
    why->element = at;
    return 0;
}

/* An element of borrowed items, or of a tuple or list; NULL with an exception when a list shrank. */
static PyObject *element(PyObject *const *items, PyObject *seq, Py_ssize_t i) {
    if (items) return items[i];
    return PyTuple_Check(seq) ? PyTuple_GetItem(seq, i) : PyList_GetItem(seq, i);
}

static int to_tensors(const tn_field *field, PyObject *const *items, PyObject *seq, Py_ssize_t n,
                      tnp_frame *f, tnp_mismatch *why) {
    tn_tensor **list = block(f, (size_t)n * sizeof *list);
    if (!list) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = element(items, seq, i);
        if (!item) return -1;
        if (item == Py_None && (field->flags & TNI_FIELD_OPTIONAL)) {
            list[i] = NULL;
        } else if (tnp_is_tensor(item)) {
            list[i] = tnp_of(item);
            note_work(f, list[i]);
        } else {
            return bad_element(why, item, i);
        }
    }
    tn_views *v = (void *)(f->args + field->offset);
    *v = (tn_views){(tn_view *const *)(void *)list, n};
    return 1;
}

/* Another thread may change a list while the interpreter's lock is given away: it is copied. */
static int to_tensor_list(const tn_field *field, PyObject *value, tnp_frame *f, tnp_mismatch *why) {
    if (PyList_Check(value)) {
        value = PyList_AsTuple(value);
        if (!value || !tnp_hold(f, value)) return -1;
    }
    if (PyTuple_Check(value)) return to_tensors(field, NULL, value, PyTuple_Size(value), f, why);
    return bad_type(why, value);
}

static int64_t *int_space(tnp_frame *f, Py_ssize_t n) {
    if (n > TNP_MAX_INTS - f->nints) return block(f, (size_t)n * sizeof(int64_t));
    int64_t *v = f->ints + f->nints;
    f->nints += (int32_t)n;
    return v;
}

/* The element of an integer tensor of any shape. */
static int one_element(PyObject *o, int64_t *ret_value) {
    tn_scalar s;
    const tn_tensor *t = tnp_of(o);
    if (tn_tensor_numel(t) != 1 || tn_dtype_category(tn_tensor_dtype(t)) != TN_CAT_INT) return 0;
    if (tnp_read_item(t, &s) < 0) return -1;
    *ret_value = s.i;
    return 1;
}

/* A size may be one, and behind the first a bool: pad(x, (0, n % 2 == 1)). */
static int to_size(PyObject *o, bool first, int64_t *ret_value) {
    if (!first && PyBool_Check(o)) {
        *ret_value = o == Py_True;
        return 1;
    }
    int r = tnp_int_from(o, ret_value);
    return r == 0 && tnp_is_tensor(o) ? one_element(o, ret_value) : r;
}

static int to_ints(const tn_field *field, PyObject *const *items, PyObject *seq, Py_ssize_t n,
                   tnp_frame *f, tnp_mismatch *why) {
    Py_ssize_t room = n > field->fixed ? n : field->fixed;
    int64_t *v = int_space(f, room);
    if (!v) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = element(items, seq, i);
        if (!item) return -1;
        int r = to_size(item, i == 0, &v[i]);
        if (r < 0 && PyLong_Check(item) && PyErr_ExceptionMatches(PyExc_ValueError))
            PyErr_Format(PyExc_TypeError,
                         "argument '%s' failed to unpack the object at pos %zd with error "
                         "\"Overflow when unpacking long long\"",
                         field->name, i + 1);
        if (r < 0) return r;
        if (r == 0) return bad_element(why, item, i);
    }
    if (field->fixed && n == 1)
        for (; n < field->fixed; n++) v[n] = v[0];
    bool may_be_empty = (field->flags & TNI_FIELD_OPTIONAL) ||
                        (field->deflt && (field->deflt[0] == '(' || field->deflt[0] == '['));
    if ((field->fixed > 1 && n != field->fixed) ||
        (field->fixed && n == 0 && !may_be_empty)) { /* int[1]: an int or any list */
        why->kind = TNP_BAD_LENGTH;
        why->element = n;
        return 0;
    }
    *(tn_ints *)(void *)(f->args + field->offset) = tn_ints_of(v, n);
    return 1;
}

static int to_int_list(const tn_field *field, PyObject *value, tnp_frame *f, tnp_mismatch *why) {
    bool empty = (PyTuple_Check(value) && PyTuple_Size(value) == 0) ||
                 (PyList_Check(value) && PyList_Size(value) == 0);
    if (empty && field->fixed > 1 && (field->flags & TNI_FIELD_OPTIONAL)) value = Py_None;
    if (PyTuple_Check(value)) return to_ints(field, NULL, value, PyTuple_Size(value), f, why);
    if (PyList_Check(value)) return to_ints(field, NULL, value, PyList_Size(value), f, why);
    if (value == Py_None && (field->kind == TN_F_DIMS || (field->flags & TNI_FIELD_OPTIONAL))) {
        *(tn_ints *)(void *)(f->args + field->offset) = tn_ints_none();
        return 1;
    }
    if (value == Py_None && field->deflt && strcmp(field->deflt, "()") == 0)
        return to_ints(field, NULL, value, 0, f, why);
    if (field->fixed || field->kind == TN_F_DIMS) {
        int64_t one;
        int r = tnp_int_from(value, &one);
        if (r < 0) return r;
        if (r > 0) return to_ints(field, &value, NULL, 1, f, why);
        if (tnp_is_tensor(value) && tn_tensor_view(tnp_of(value))->numel == 1 &&
            tn_dtype_category(tn_tensor_dtype(tnp_of(value))) == TN_CAT_INT) { /* of one element */
            PyObject *number = PyObject_CallMethod(value, "item", NULL);
            if (!number || !tnp_hold(f, number)) return -1;
            return to_ints(field, &number, NULL, 1, f, why);
        }
    }
    if (tnp_is_numpy_array(value)) { /* sizes kept in arrays */
        PyObject *list = PyObject_CallMethod(value, "tolist", NULL);
        if (!list || !tnp_hold(f, list)) return -1;
        if (PyList_Check(list)) return to_ints(field, NULL, list, PyList_Size(list), f, why);
    }
    return bad_type(why, value);
}

/* A number that gradients do not flow through: a tensor that requires them is no number, nor is one
 * without elements. */
static int to_scalar(PyObject *value, tn_scalar *ret, tnp_mismatch *why) {
    tn_tensor *t = tnp_is_tensor(value) ? tnp_of(value) : NULL;
    why->unboxed |= t != NULL;
    bool stays = t && (tn_requires_grad(t) || tn_tensor_device(t).slot == TN_META_SLOT);
    int r = stays ? 0 : tnp_scalar_from(value, ret);
    return r ? r : bad_type(why, value);
}

static int to_float(PyObject *value, double *ret, tnp_mismatch *why) {
    if (PyFloat_Check(value)) {
        *ret = PyFloat_AsDouble(value);
        return 1;
    }
    if (PyLong_Check(value)) { /* also of more than 64 bits */
        *ret = PyLong_AsDouble(value);
        return *ret == -1.0 && PyErr_Occurred() ? -1 : 1;
    }
    tn_scalar s;
    if (PyComplex_Check(value)) return bad_type(why, value);
    int r = to_scalar(value, &s, why);
    if (r > 0) *ret = s.re;
    return r;
}

static int to_int(PyObject *value, int64_t *ret, tnp_mismatch *why) {
    int r = tnp_int_from(value, ret);
    return r ? r : bad_type(why, value);
}

static int to_bool(PyObject *value, int64_t *ret, tnp_mismatch *why) {
    if (value == Py_True || value == Py_False) {
        *ret = value == Py_True;
        return 1;
    }
    if (!tnp_is_numpy_scalar(value)) return bad_type(why, value);
    int r = PyObject_IsTrue(value);
    *ret = r;
    return r < 0 ? -1 : 1;
}

static int to_device(PyObject *value, int64_t *ret, tnp_mismatch *why) {
    tn_device d;
    if (value == Py_None) {
        *ret = -1;
        return 1;
    }
    if (!tnp_is_device_like(value) && !PyLong_Check(value)) return bad_type(why, value);
    if (!tnp_device_from(value, &d)) return -1;
    *ret = (int64_t)d.slot << 8 | d.index;
    return 1;
}

static int to_choice(int64_t found, PyObject *value, int64_t *ret, tnp_mismatch *why) {
    *ret = found;
    return found >= 0 ? 1 : bad_type(why, value);
}

static int to_str(const tn_field *field, PyObject *value, const char **ret, tnp_mismatch *why) {
    if (value == Py_None && (field->flags & TNI_FIELD_OPTIONAL)) {
        *ret = NULL;
        return 1;
    }
    if (!PyUnicode_Check(value)) return bad_type(why, value);
    Py_ssize_t n;
    *ret = PyUnicode_AsUTF8AndSize(value, &n);
    if (!*ret || strlen(*ret) == (size_t)n) return *ret ? 1 : -1;
    PyErr_SetString(PyExc_ValueError, "embedded null character"); /* C would read the front only */
    return -1;
}

int tnp_convert(const tnp_param *param, PyObject *value, tnp_frame *f, tnp_mismatch *why) {
    const tn_field *field = param->field;
    void *p = f->args + field->offset;
    int r = 1;
    switch (field->kind) {
    case TN_F_TENSOR:
    case TN_F_TENSOR_OPT:
    case TN_F_OPERAND:
        if (TNP_LIKELY(tnp_is_tensor(value))) {
            *(tn_tensor **)p = tnp_of(value);
            note_work(f, tnp_of(value));
        } else if (param->number) {
            r = to_operand(value, p, f, why);
        } else if (value == Py_None && field->kind == TN_F_TENSOR_OPT) {
            *(tn_tensor **)p = NULL;
        } else {
            r = bad_type(why, value);
        }
        return r;
    case TN_F_TENSORS: return to_tensor_list(field, value, f, why);
    case TN_F_INT:
    case TN_F_DIM: return to_int(value, p, why);
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: {
        tn_opt_int *o = p;
        o->has = value != Py_None;
        return o->has ? to_int(value, &o->value, why) : 1;
    }
    case TN_F_INTS:
    case TN_F_DIMS: return to_int_list(field, value, f, why);
    case TN_F_BOOL: return to_bool(value, p, why);
    case TN_F_FLOAT: return to_float(value, p, why);
    case TN_F_FLOAT_OPT: {
        tn_opt_float *o = p;
        o->has = value != Py_None;
        return o->has ? to_float(value, &o->value, why) : 1;
    }
    case TN_F_SCALAR_OPT:
        if (value == Py_None) {
            *(tn_scalar *)p = tn_scalar_none();
            return 1;
        }
        return to_scalar(value, p, why);
    case TN_F_SCALAR: return to_scalar(value, p, why);
    case TN_F_DTYPE:
        if (value != Py_None || param->required)
            return to_choice(tnp_dtype_slot(value), value, p, why);
        *(int64_t *)p = -1;
        return 1;
    case TN_F_DEVICE: return to_device(value, p, why);
    case TN_F_FORMAT: return to_choice(tnp_format_value(value), value, p, why);
    case TN_F_STR: return to_str(field, value, p, why);
    case TN_F_GENERATOR:
        *(tn_generator **)p = value == Py_None ? NULL : tnp_generator_of(value);
        return value == Py_None || *(tn_generator **)p ? 1 : bad_type(why, value);
    default: return bad_type(why, value);
    }
}

/* ---- One overload ------------------------------------------------------------------------------*/

typedef struct keywords {
    PyObject *name[TNP_MAX_KEYWORDS];
    PyObject *const *value; /* in the same order */
    int32_t n, used;
} keywords;

static PyObject *keyword(keywords *k, const PyObject *name) {
    for (int32_t i = 0; i < k->n; i++) {
        if (k->name[i] != name) continue;
        k->used++;
        return k->value[i];
    }
    return NULL;
}

/* The value is the first of many, not a list of its own. */
static bool starts_spread(const tn_field *field, PyObject *value) {
    if (field->kind == TN_F_TENSORS) return tnp_is_tensor(value);
    return PyLong_Check(value) || (!PyTuple_Check(value) && !PyList_Check(value) &&
                                   value != Py_None && PyIndex_Check(value));
}

static int mismatch(tnp_mismatch *why, enum tnp_mismatch_kind kind, int32_t param,
                    int32_t position) {
    why->kind = kind;
    why->param = param;
    why->position = position;
    return 0;
}

/* Keywords that belong to the binding, not to the operator. One that asks for the layout strided where
 * the tensor to be like has another is left to oplayout.c. */
static int take_extra(const tnp_overload *o, enum tnp_form form, PyObject *name, PyObject *value,
                      const tnp_frame *f, tnp_extras *extras) {
    bool has_out = !(o->meta.flags & (TNI_OP_NO_OUT | TNI_OP_LIST_OUT));
    if (name == tnp.str_out && has_out && form != TNP_FORM_INPLACE) {
        extras->out = value == Py_None ? NULL : value;
        return 1;
    }
    if (!o->creates) return 0;
    if (name == tnp.str_requires_grad || name == tnp.str_pin_memory) {
        if (value != Py_None && !PyBool_Check(value)) {
            PyErr_Format(PyExc_TypeError, "%s(): argument '%U' must be bool, not %R", o->op_name,
                         name, (PyObject *)Py_TYPE(value));
            return -1;
        }
        *(name == tnp.str_pin_memory ? &extras->pin_memory : &extras->requires_grad) =
            value == Py_True;
        return 1;
    }
    if (name != tnp.str_layout) return 0;
    if (value == Py_None) return 1;
    if (tnp_layout_value(value) != TN_LAYOUT_STRIDED) return 0;
    const tn_field *first = o->params[0].field;
    if (first->kind != TN_F_TENSOR) return 1;
    const tn_tensor *like = *(tn_tensor *const *)(const void *)(f->args + first->offset);
    return !tnp_is_sparse(like);
}

static int take_extras(const tnp_overload *o, enum tnp_form form, keywords *k, const tnp_frame *f,
                       tnp_extras *extras, tnp_mismatch *why) {
    for (int32_t i = 0; i < k->n; i++) {
        bool known = false;
        for (int32_t p = 0; p < o->nparams && !known; p++) known = o->params[p].name == k->name[i];
        if (known) continue;
        int r = take_extra(o, form, k->name[i], k->value[i], f, extras);
        if (r < 0) return r;
        if (r == 0) {
            why->value = k->name[i];
            return mismatch(why, TNP_UNKNOWN_KEYWORD, -1, 0);
        }
        k->used++;
    }
    if (k->used == k->n) return 1;
    why->value = k->name[0];
    for (int32_t i = 0; i < k->n; i++)
        for (int32_t p = 0; p < o->npositional; p++)
            if (o->params[p].name == k->name[i]) why->value = k->name[i];
    return mismatch(why, TNP_TWICE, -1, 0);
}

/* None stands for the default format, except where a format is what the call is about. */
static bool says_nothing(const tnp_overload *o, const tnp_param *p, PyObject *value) {
    return value == Py_None && p->field->kind == TN_F_FORMAT &&
           (o->creates || strcmp(o->op_name, "contiguous") != 0);
}

static int bind_once(tnp_overload *o, enum tnp_form form, PyObject *self, PyObject *const *args,
                     Py_ssize_t nargs, keywords *k, tnp_frame *f, tnp_extras *extras,
                     tnp_mismatch *why) {
    Py_ssize_t at = 0;
    k->used = 0;
    int32_t spread = o->spread[form != TNP_FORM_FUNCTION];
    if (spread < 0 && nargs > o->npositional - (form != TNP_FORM_FUNCTION))
        return mismatch(why, TNP_TOO_MANY, -1, 0);
    memcpy(f->args, o->image, (size_t)o->meta.args_bytes);
    for (int32_t i = 0; i < o->nparams; i++) {
        const tnp_param *p = &o->params[i];
        PyObject *value = NULL;
        int32_t position = 0;
        int r;
        if (form != TNP_FORM_FUNCTION && i == o->self_param) {
            value = self;
        } else if (at < nargs && !p->kwonly) {
            value = args[at++];
            position = (int32_t)at;
            if (TNP_UNLIKELY(i == spread) && starts_spread(p->field, value)) {
                PyObject *const *rest = args + at - 1;
                Py_ssize_t n = nargs - at + 1;
                r = p->field->kind == TN_F_TENSORS ? to_tensors(p->field, rest, NULL, n, f, why)
                                                   : to_ints(p->field, rest, NULL, n, f, why);
                at = nargs;
                if (r > 0) continue;
                why->param = i;
                why->position = position;
                return r;
            }
        } else if (k->n) {
            value = keyword(k, p->name);
        }
        if (!value) {
            if (p->required) return mismatch(why, TNP_MISSING, i, 0);
            continue;
        }
        r = tnp_convert(p, value, f, why);
        if (TNP_UNLIKELY(r <= 0)) {
            if (r == 0 && says_nothing(o, p, value)) {
                size_t at_field = p->field->offset;
                memcpy(f->args + at_field, o->image + at_field, sizeof(int64_t));
                continue;
            }
            why->param = i;
            why->position = position;
            return r;
        }
    }
    if (at < nargs) return mismatch(why, TNP_TOO_MANY, -1, 0);
    if (TNP_UNLIKELY(f->nboxes == o->meta.nin && f->nboxes && !(o->numbers >> 31))) {
        why->value = nargs ? args[0] : k->value[0]; /* something has to be a tensor */
        return mismatch(why, TNP_BAD_TYPE, 0, 1);
    }
    return k->used == k->n ? 1 : take_extras(o, form, k, f, extras, why);
}

/* The parameter that a keyword means when it is not spelt by an interned string, or in NumPy's way, or where a
 * function is told what its method is of. */
static PyObject *canonical(const tnp_overload *o, PyObject *name) {
    static const char *const numpy_names[][2] = {
        {"axis", "dim"},   {"keepdims", "keepdim"}, {"x", "input"},
        {"a", "input"},    {"x1", "input"},         {"x2", "other"},
        {"axis0", "dim0"}, {"axis1", "dim1"},       {"input", "self"},
    };
    PyObject *const own[] = {tnp.str_out, tnp.str_requires_grad, tnp.str_pin_memory,
                             tnp.str_layout};
    for (int32_t i = 0; i < o->nparams; i++)
        if (PyUnicode_Compare(name, o->params[i].name) == 0) return o->params[i].name;
    for (int32_t i = 0; i < TNP_COUNT(own); i++)
        if (PyUnicode_Compare(name, own[i]) == 0) return own[i];
    for (int a = 0; a < TNP_COUNT(numpy_names); a++) {
        if (PyUnicode_CompareWithASCIIString(name, numpy_names[a][0]) != 0) continue;
        for (int32_t i = 0; i < o->nparams; i++)
            if (strcmp(o->params[i].field->name, numpy_names[a][1]) == 0) return o->params[i].name;
    }
    return name;
}

int tnp_bind(tnp_overload *o, enum tnp_form form, PyObject *self, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames, tnp_frame *f, tnp_extras *extras,
             tnp_mismatch *why) {
    keywords k = {.value = args + nargs, .n = 0};
    if (kwnames) {
        k.n = (int32_t)PyTuple_Size(kwnames);
        if (k.n > TNP_MAX_KEYWORDS) return too_many_things();
        for (int32_t i = 0; i < k.n; i++) k.name[i] = PyTuple_GetItem(kwnames, i);
    }
    int r = bind_once(o, form, self, args, nargs, &k, f, extras, why);
    if (TNP_LIKELY(r != 0) || !k.n) return r;
    bool changed = false;
    for (int32_t i = 0; i < k.n; i++) {
        PyObject *name = canonical(o, k.name[i]);
        changed = changed || name != k.name[i];
        k.name[i] = name;
    }
    if (!changed) return 0;
    tnp_frame_free(f);
    tnp_frame_init(f);
    *extras = (tnp_extras){NULL, false, false};
    return bind_once(o, form, self, args, nargs, &k, f, extras, why);
}
