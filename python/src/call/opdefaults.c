/* opdefaults.c: readies an overload for calls: names as interned strings, and an argument struct
 * filled with the defaults, which stand in the op table as Python text. Done at the first call. */
#include "binding_priv.h"

static bool is_result(const tn_field *f) { return f->kind == TN_F_OUT || f->kind == TN_F_OUTS; }

/* The text behind a dot: 'torch.int64' and 'int64' mean the same. */
static const char *last_part(const char *text) {
    const char *dot = strrchr(text, '.');
    return dot ? dot + 1 : text;
}

static tn_scalar scalar_of_text(const char *s) {
    if (strcmp(s, "None") == 0) return tn_scalar_none();
    if (strcmp(s, "True") == 0) return tn_scalar_bool(1);
    if (strcmp(s, "False") == 0) return tn_scalar_bool(0);
    if (strpbrk(s, ".eni")) return tn_scalar_float(strtod(s, NULL));
    return tn_scalar_int(strtoll(s, NULL, 10));
}

static int64_t int_of_text(const char *s) {
    if (strcmp(s, "True") == 0) return 1;
    if (strcmp(s, "False") == 0 || strcmp(s, "None") == 0) return 0;
    return strtoll(s, NULL, 10);
}

/* "[1, 2]", "()", or "3", which is repeated `fixed` times. */
static tn_ints ints_of_text(const tn_field *f, int64_t **at) {
    const char *s = f->deflt;
    tn_ints r = {*at, 0};
    if (strcmp(s, "None") == 0) return tn_ints_none();
    if (s[0] != '[' && s[0] != '(') {
        int64_t n = f->fixed ? f->fixed : 1;
        for (; r.n < n; r.n++) *(*at)++ = int_of_text(s);
        return r;
    }
    for (s++; *s && *s != ']' && *s != ')'; r.n++) {
        char *end;
        *(*at)++ = strtoll(s, &end, 10);
        s = end + strspn(end, ", ");
    }
    return r;
}

static size_t count_ints(const tn_field *f) {
    if ((f->kind != TN_F_INTS && f->kind != TN_F_DIMS) || !f->deflt) return 0;
    return strlen(f->deflt) + f->fixed + 1; /* an upper bound */
}

/* The text between quotes, kept for ever. */
static const char *str_of_text(const char *s, bool *ok) {
    size_t n = strlen(s);
    if (s[0] != '\'' && s[0] != '"') return NULL;
    char *copy = PyMem_Malloc(n);
    if (!copy) {
        *ok = false;
        return NULL;
    }
    memcpy(copy, s + 1, n - 2);
    copy[n - 2] = '\0';
    return copy;
}

static bool fill_default(const tn_field *f, unsigned char *image, int64_t **ints) {
    void *p = image + f->offset;
    const char *s = f->deflt;
    bool none = strcmp(s, "None") == 0, ok = true;
    switch (f->kind) {
    case TN_F_INT:
    case TN_F_DIM:
    case TN_F_BOOL: *(int64_t *)p = int_of_text(s); break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: *(tn_opt_int *)p = none ? tn_no_int() : tn_some_int(int_of_text(s)); break;
    case TN_F_INTS:
    case TN_F_DIMS: *(tn_ints *)p = ints_of_text(f, ints); break;
    case TN_F_FLOAT: *(double *)p = strtod(s, NULL); break;
    case TN_F_FLOAT_OPT:
        *(tn_opt_float *)p = none ? tn_no_float() : tn_some_float(strtod(s, NULL));
        break;
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: *(tn_scalar *)p = scalar_of_text(s); break;
    case TN_F_DTYPE: *(int64_t *)p = none ? -1 : tn_dtype_find(last_part(s)); break;
    case TN_F_DEVICE: *(int64_t *)p = -1; break;
    case TN_F_FORMAT:
        *(int64_t *)p = 0;
        for (int32_t i = 0; i < 4; i++) {
            static const char *const names[] = {"contiguous_format", "preserve_format",
                                                "channels_last", "channels_last_3d"};
            if (strcmp(last_part(s), names[i]) == 0) *(int64_t *)p = i;
        }
        if (s[0] >= '0' && s[0] <= '3') *(int64_t *)p = s[0] - '0';
        break;
    case TN_F_STR: *(const char **)p = str_of_text(s, &ok); break;
    default: break; /* tensors and generators: NULL */
    }
    return ok;
}

/* Results with names get a tuple type with these names, as in values, indices = t.max(0). Python
 * code runs here, so another thread may be here too: both get the type that the module kept. */
static bool make_result(tnp_overload *o) {
    const tn_op_meta *m = &o->meta;
    if (o->result || m->nout < 2 || strcmp(m->fields[m->out_field[0]].name, "y") == 0 ||
        o->op_name[0] == '_')
        return true;
    const char *first = m->fields[m->out_field[0]].name, *second = m->fields[m->out_field[1]].name;
    if (strcmp(second, "indices") != 0 && strcmp(first, "min") != 0 &&
        strcmp(second, "logabsdet") != 0 && strcmp(second, "info") != 0 &&
        strcmp(second, "tau") != 0 && strcmp(second, "exponent") != 0)
        return true;
    PyStructSequence_Field *fields = PyMem_Calloc((size_t)m->nout + 1, sizeof *fields);
    char *name = PyMem_Malloc(strlen(o->op_name) + 24);
    if (!fields || !name) return PyErr_NoMemory() != NULL;
    static const char module[] = "tenon.return_types.";
    memcpy(name, module, sizeof module - 1);
    memcpy(name + sizeof module - 1, o->op_name, strlen(o->op_name) + 1);
    for (int32_t i = 0; i < m->nout; i++) fields[i].name = m->fields[m->out_field[i]].name;
    PyStructSequence_Desc desc = {name, NULL, fields, m->nout};
    PyTypeObject *made = PyStructSequence_NewType(&desc);
    PyObject *add = made ? tnp_helper("return_types", "add_type") : NULL;
    PyObject *kept = add ? PyObject_CallFunction(add, "O", made) : NULL;
    Py_XDECREF((PyObject *)made);
    if (kept && !o->result)
        o->result = (PyTypeObject *)kept;
    else
        Py_XDECREF(kept);
    return kept != NULL;
}

/* Functions whose tensors may be listed without a tuple: einsum("ij,jk", a, b). */
static bool lists_tensors(const tnp_overload *o) {
    static const char *const names[] = {"einsum",         "broadcast_tensors", "meshgrid",
                                        "cartesian_prod", "block_diag",        "atleast_1d",
                                        "atleast_2d",     "atleast_3d"};
    for (int i = 0; i < TNP_COUNT(names); i++)
        if (strcmp(names[i], o->op_name) == 0) return true;
    return false;
}

/* The parameter that takes all remaining positional arguments, or -1: f(2, 3) for f((2, 3)) where a
 * list of integers is the only positional parameter, a method's self not counted. */
static int32_t spread_param(const tnp_overload *o, bool method) {
    for (int32_t i = 0; i < o->npositional; i++) {
        const tn_field *f = o->params[i].field;
        if (f->kind == TN_F_TENSORS && lists_tensors(o)) return i;
        if (method && i == o->self_param) continue;
        if (o->npositional - (method ? 1 : 0) != 1 || f->fixed) continue;
        if (f->kind == TN_F_INTS || f->kind == TN_F_DIMS) return i;
    }
    return -1;
}

bool tnp_overload_prepare(tnp_overload *o) {
    const tn_op_meta *m = &o->meta;
    size_t nints = 0;
    if (!make_result(o)) return false;
    if (o->ready) return true; /* by another thread, meanwhile */
    for (int32_t i = 0; i < m->nfields; i++) nints += count_ints(&m->fields[i]);
    o->image = PyMem_Calloc(1, (size_t)m->args_bytes);
    o->image_ints = PyMem_Calloc(nints + 1, sizeof *o->image_ints);
    o->params = PyMem_Calloc((size_t)m->nfields + 1, sizeof *o->params);
    if (!o->image || !o->image_ints || !o->params) return PyErr_NoMemory() != NULL;
    int64_t *at = o->image_ints;
    o->nparams = o->npositional = o->self_param = 0;
    for (int32_t i = 0; i < m->nfields; i++) {
        const tn_field *f = &m->fields[i];
        if (is_result(f)) continue;
        tnp_param *p = &o->params[o->nparams];
        p->name = PyUnicode_InternFromString(f->name);
        p->field = f;
        p->kwonly = (f->flags & TNI_FIELD_KWONLY) != 0;
        p->required = f->deflt == NULL;
        p->number = o->nparams < 32 && (o->numbers >> o->nparams & 1u);
        if (!p->name) return false;
        if (f->deflt && !fill_default(f, o->image, &at)) return PyErr_NoMemory() != NULL;
        if (f->kind == TN_F_DEVICE) o->creates = true;
        if (strcmp(f->name, "input") == 0 || strcmp(f->name, "self") == 0)
            o->self_param = o->nparams;
        if (!p->kwonly) o->npositional++;
        o->nparams++;
    }
    for (int method = 0; method < 2; method++) o->spread[method] = spread_param(o, method != 0);
    o->ready = true;
    return true;
}

bool tnp_overload_has(const tnp_overload *o, enum tnp_form form) {
    switch (form) {
    case TNP_FORM_METHOD: return (o->forms & TN_PY_METHOD) != 0;
    case TNP_FORM_INPLACE: return (o->forms & TN_PY_INPLACE) != 0;
    default: return (o->forms & (TN_PY_TORCH | TN_PY_NN)) || o->forms == 0;
    }
}
