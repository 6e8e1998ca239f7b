/* index.c: x[...] and x[...] = v with everything that NumPy allows.
 *
 * An index is read from left to right. Integers, slices, None and Ellipsis make views at once, one
 * operator each; tensors, lists and arrays wait in a list by dimension, and one gather (or scatter)
 * at the end applies them all. A single integer or slice takes a short way. */
#include "binding_priv.h"

#include <tenon/program.h>

enum { SELECT, SLICE, UNSQUEEZE, INDEX, INDEX_PUT, COPY, FILL, FLIP, ALIAS, CLONE, OP_COUNT };
static tnp_direct ops[OP_COUNT] = {
    [SELECT] = {.name = "select"},        [SLICE] = {.name = "slice"},
    [UNSQUEEZE] = {.name = "unsqueeze"},  [INDEX] = {.name = "index"},
    [INDEX_PUT] = {.name = "index_put_"}, [COPY] = {.name = "copy_"},
    [FILL] = {.name = "fill_"},           [FLIP] = {.name = "flip"},
    [ALIAS] = {.name = "_alias"},         [CLONE] = {.name = "clone"},
};

/* Offsets of the arguments that the direct calls below set. */
static struct {
    uint16_t select_dim, select_index;
    uint16_t slice_dim, slice_start, slice_end, slice_step;
    uint16_t unsqueeze_dim, flip_dims, fill_value;
} at;

static bool offset_of(int op, const char *name, uint16_t *ret_offset) {
    const tn_op_meta *m = &ops[op].o.meta;
    for (int32_t i = 0; i < m->nfields; i++) {
        if (strcmp(m->fields[i].name, name) != 0) continue;
        *ret_offset = m->fields[i].offset;
        return true;
    }
    PyErr_Format(PyExc_ImportError, "operator %s has no argument %s", ops[op].name, name);
    return false;
}

/* ---- Single steps; all give a new reference or NULL with an exception --------------------------*/

typedef struct step_args {
    _Alignas(16) unsigned char bytes[TNP_DIRECT_ARGS_BYTES];
} step_args;

static inline void begin(step_args *a, int op, tn_tensor *t) {
    memcpy(a->bytes, ops[op].o.image, (size_t)ops[op].o.meta.args_bytes);
    *(tn_tensor **)(void *)(a->bytes + ops[op].in[0]) = t;
}
static inline int64_t *int_at(step_args *a, uint16_t offset) {
    return (int64_t *)(void *)(a->bytes + offset);
}
static tn_tensor *end(step_args *a, int op, int64_t work) {
    tn_tensor *ret[2] = {NULL};
    tn_status st = tnp_invoke(ops[op].o.meta.info, a->bytes, ret, work);
    return TNP_LIKELY(st == TN_OK) ? ret[0] : tnp_raise(st);
}

/* `place`: of the number in the index, which is what an error names. */
static tn_tensor *step_select(tn_tensor *t, int64_t dim, int64_t i, int64_t place) {
    step_args a;
    int64_t n = tn_tensor_shape(t)[dim];
    if (TNP_UNLIKELY(i < -n || i >= n)) {
        PyErr_Format(PyExc_IndexError,
                     "index %lld is out of bounds for dimension %lld with size %lld", (long long)i,
                     (long long)place, (long long)n);
        return NULL;
    }
    begin(&a, SELECT, t);
    *int_at(&a, at.select_dim) = dim;
    *int_at(&a, at.select_index) = i;
    return end(&a, SELECT, 0);
}

static tn_tensor *step_range(tn_tensor *t, int64_t dim, int64_t start, int64_t stop, int64_t step) {
    step_args a;
    begin(&a, SLICE, t);
    *int_at(&a, at.slice_dim) = dim;
    *(tn_opt_int *)(void *)int_at(&a, at.slice_start) = tn_some_int(start);
    *(tn_opt_int *)(void *)int_at(&a, at.slice_end) = tn_some_int(stop);
    *int_at(&a, at.slice_step) = step;
    return end(&a, SLICE, 0);
}

/* Backwards: the same elements forwards, flipped. That is a copy. */
static tn_tensor *step_reversed(tn_tensor *t, int64_t dim, int64_t start, int64_t count,
                                int64_t step) {
    step_args a;
    int64_t first = count ? start + (count - 1) * step : 0;
    tn_tensor *part = step_range(t, dim, first, count ? start + 1 : 0, -step), *flipped = NULL;
    if (!part) return NULL;
    begin(&a, FLIP, part);
    *(tn_ints *)(void *)int_at(&a, at.flip_dims) = tn_ints_of(&dim, 1);
    flipped = end(&a, FLIP, tn_tensor_numel(part));
    tn_tensor_unref(&part);
    return flipped;
}

static tn_tensor *step_slice(tn_tensor *t, int64_t dim, PyObject *slice, bool writing) {
    Py_ssize_t start, stop, step, n = (Py_ssize_t)tn_tensor_shape(t)[dim];
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return NULL;
    /* Limits stay as they are given: a recording would hold what this size makes of them. */
    if (step > 0) return step_range(t, dim, start, stop, step);
    Py_ssize_t count = PySlice_AdjustIndices(n, &start, &stop, step);
    if (writing) {
        PyErr_SetString(PyExc_ValueError, "a slice with a negative step cannot be assigned to");
        return NULL;
    }
    return step_reversed(t, dim, start, count, step);
}

static tn_tensor *step_unsqueeze(tn_tensor *t, int64_t dim) {
    step_args a;
    begin(&a, UNSQUEEZE, t);
    *int_at(&a, at.unsqueeze_dim) = dim;
    return end(&a, UNSQUEEZE, 0);
}

/* ---- A whole index -----------------------------------------------------------------------------*/

typedef struct plan {
    tn_tensor *t;                /* the view so far; owned */
    tn_tensor *adv[TN_MAX_DIMS]; /* index tensors, owned; NULL: all of a dimension */
    int32_t nadv;                /* entries up to the last index tensor, at most covered */
    int64_t covered;             /* dimensions that they stand for: a mask for all of its own */
    int64_t dim;                 /* the dimension that the next part applies to */
    int64_t place;               /* of that part in the index */
    bool writing;
    bool stays; /* a place that a 0-d tensor gives is an index tensor, and not its value of now */
} plan;

/* While a program is recorded whose runs read such places anew: what was taken there, as pairs of the
 * tensor and the result. In eager mode these are views, in the program copies. */
static _Thread_local PyObject *places;

/* Whether 0-d tensors of whole numbers are the only tensors in an index, which then mean the same as
 * index tensors. */
static bool reads_anew(const plan *p, PyObject *const *parts, Py_ssize_t n) {
    bool any = false;
    if (!places || !tn_program_is_recording() || tn_tensor_view(p->t)->word & TN_W_INFERENCE)
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *part = parts[i];
        if (part == Py_None || part == Py_Ellipsis || PySlice_Check(part)) continue;
        if (PyLong_Check(part) && !PyBool_Check(part)) continue;
        if (!tnp_is_tensor(part) || tn_tensor_ndim(tnp_of(part)) > 0) return false;
        int32_t dtype = tn_tensor_dtype(tnp_of(part));
        if (dtype == TN_BOOL || dtype == TN_U8 || tn_dtype_category(dtype) > TN_CAT_INT)
            return false;
        any = true;
    }
    return any;
}

/* (list or None): where places of 0-d tensors are kept from here on, None: they are read at once.
 * Returns what held before. */
static PyObject *index_anew(PyObject *self, PyObject *list) {
    (void)self;
    PyObject *before = places ? places : Py_NewRef(Py_None);
    places = list == Py_None ? NULL : Py_NewRef(list);
    return before;
}

static bool note_taken(PyObject *self, PyObject *result) {
    PyObject *entry = PyTuple_Pack(2, self, result);
    bool ok = entry && PyList_Append(places, entry) == 0;
    Py_XDECREF(entry);
    return ok;
}

/* t[i] += v puts back what it took, after which the copy is the value that the view would have. */
static bool forget_taken(PyObject *self, PyObject *value) {
    for (Py_ssize_t i = PyList_Size(places) - 1; i >= 0; i--) {
        PyObject *entry = PyList_GetItem(places, i);
        if (PyTuple_GetItem(entry, 0) == self && PyTuple_GetItem(entry, 1) == value)
            return PySequence_DelItem(places, i) == 0;
    }
    return true;
}

static bool too_many(const tn_tensor *t) {
    if (!tn_tensor_ndim(t))
        PyErr_SetString(PyExc_IndexError, "invalid index of a 0-dim tensor. Use `tensor.item()` to "
                                          "convert it to a number");
    else
        PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d",
                     (int)tn_tensor_ndim(t));
    return false;
}

static bool replace(plan *p, tn_tensor *next) {
    if (!next) return false;
    tn_tensor_unref(&p->t);
    p->t = next;
    return true;
}

static bool select_at(plan *p, int64_t i) {
    return replace(p, step_select(p->t, p->dim, i, p->place));
}

/* Takes over index. */
static bool put_advanced(plan *p, tn_tensor *index) {
    int32_t uses = tn_tensor_dtype(index) == TN_BOOL || tn_tensor_dtype(index) == TN_U8
                       ? tn_tensor_ndim(index)
                       : 1;
    if (p->dim + uses > tn_tensor_ndim(p->t)) {
        tn_tensor_unref(&index);
        return too_many(p->t);
    }
    p->adv[p->nadv++] = index;
    p->dim += uses;
    p->covered = p->dim;
    return true;
}

/* A bool, or a 0-d mask: a new dimension of size one or none. */
static bool put_bool(plan *p, tn_tensor *mask) {
    tn_tensor *column = mask ? step_unsqueeze(mask, 0) : NULL;
    tn_tensor_unref(&mask);
    if (!column || !replace(p, step_unsqueeze(p->t, p->dim))) {
        tn_tensor_unref(&column);
        return false;
    }
    return put_advanced(p, column);
}

static tn_tensor *bool_tensor(bool value) {
    uint8_t byte = value;
    tn_tensor *t = NULL;
    return tnp_check(tn_tensor_from_data(TN_BOOL, 0, NULL, &byte, &t)) == 0 ? t : NULL;
}

/* Dimensions before an index tensor that none was given for. */
static void pad_advanced(plan *p) {
    for (; p->covered < p->dim; p->covered++) p->adv[p->nadv++] = NULL;
}

static bool put_tensor(plan *p, tn_tensor *index) {
    int32_t dtype = tn_tensor_dtype(index);
    if (tn_dtype_category(dtype) > TN_CAT_INT) {
        PyErr_SetString(PyExc_IndexError,
                        "tensors used as indices must be long, int, byte or bool tensors");
        tn_tensor_unref(&index);
        return false;
    }
    if (tn_tensor_ndim(index) == 0 && (dtype == TN_BOOL || dtype == TN_U8)) {
        pad_advanced(p);
        return put_bool(p, index);
    }
    if (tn_tensor_ndim(index) == 0 && p->dim < tn_tensor_ndim(p->t) && !p->stays) {
        tn_scalar s;
        int failed = tnp_read_item(index, &s);
        tn_tensor_unref(&index);
        return !failed && select_at(p, s.i);
    }
    pad_advanced(p);
    return put_advanced(p, index);
}

static bool put_int(plan *p, int64_t i) {
    if (p->dim >= tn_tensor_ndim(p->t)) return too_many(p->t);
    return select_at(p, i);
}

/* `:`, beside which other parts leave nothing to do. */
static bool is_all(PyObject *slice) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) PyErr_Clear();
    return start == 0 && stop == PY_SSIZE_T_MAX && step == 1;
}

static bool put_part(plan *p, PyObject *part) {
    int64_t i;
    if (Py_TYPE(part) == &PyLong_Type) return tnp_int_from(part, &i) > 0 && put_int(p, i);
    if (part == Py_None) {
        if (!replace(p, step_unsqueeze(p->t, p->dim))) return false;
        p->dim++;
        return true;
    }
    if (PyBool_Check(part)) {
        pad_advanced(p);
        return put_bool(p, bool_tensor(part == Py_True));
    }
    if (tnp_is_tensor(part)) return put_tensor(p, tn_tensor_ref(tnp_of(part)));
    if (PySlice_Check(part)) {
        if (p->dim >= tn_tensor_ndim(p->t)) return too_many(p->t);
        if (!is_all(part) && !replace(p, step_slice(p->t, p->dim, part, p->writing))) return false;
        p->dim++;
        return true;
    }
    int r = tnp_int_from(part, &i);
    if (r < 0) return false;
    if (r > 0) return put_int(p, i);
    if (PySequence_Check(part) && !PyUnicode_Check(part) && !PyBytes_Check(part)) {
        tn_tensor *index = tnp_tensor_from(part, -1, -1);
        int32_t dtype = index ? tn_tensor_dtype(index) : TN_BOOL;
        /* Numbers that are no mask are places, of whatever type: those of NumPy are often short. */
        if (dtype != TN_BOOL && dtype != TN_U8 && tn_dtype_category(dtype) < TN_CAT_COMPLEX) {
            tn_tensor *longs = tnp_to(index, TN_I64, NULL, false, TN_FORMAT_PRESERVE);
            tn_tensor_unref(&index);
            index = longs;
        }
        return index && put_tensor(p, index);
    }
    tnp_error_about(
        PyUnicode_Check(part) ? PyExc_TypeError : PyExc_IndexError,
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte tensors are "
        "valid indices (got %U)",
        part);
    return false;
}

/* How many dimensions of the tensor a part uses up. -1: exception. */
static int64_t dims_of(PyObject *part) {
    if (part == Py_None || part == Py_Ellipsis || PyBool_Check(part)) return 0;
    if (PyLong_Check(part) || PySlice_Check(part)) return 1;
    if (tnp_is_tensor(part)) {
        const tn_tensor *t = tnp_of(part);
        bool mask = tn_tensor_dtype(t) == TN_BOOL || tn_tensor_dtype(t) == TN_U8;
        return mask ? tn_tensor_ndim(t) : 1;
    }
    if (tnp_is_numpy_array(part)) {
        PyObject *dtype = PyObject_GetAttrString(part, "dtype");
        PyObject *kind = dtype ? PyObject_GetAttrString(dtype, "kind") : NULL;
        bool mask = kind && PyUnicode_CompareWithASCIIString(kind, "b") == 0;
        Py_XDECREF(dtype);
        Py_XDECREF(kind);
        if (!kind) return -1;
        if (!mask) return 1;
        PyObject *ndim = PyObject_GetAttrString(part, "ndim");
        int64_t n = ndim ? PyLong_AsLongLong(ndim) : -1;
        Py_XDECREF(ndim);
        return n;
    }
    int64_t depth = 0;
    if (!PyList_Check(part)) return 1;
    /* A nested list of bools is a mask of as many dimensions as it is deep; one that is in itself has no
     * end. */
    for (; PyList_Check(part) && PyList_Size(part) > 0 && depth < TN_MAX_DIMS; depth++)
        part = PyList_GetItem(part, 0);
    return PyBool_Check(part) ? depth : 1;
}

static bool apply(plan *p, PyObject *const *parts, Py_ssize_t n) {
    int64_t used = 0;
    int dots = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t d = dims_of(parts[i]);
        if (d < 0) return false;
        used += d;
        dots += parts[i] == Py_Ellipsis;
    }
    if (used > tn_tensor_ndim(p->t)) return too_many(p->t);
    if (dots > 1) {
        PyErr_SetString(PyExc_IndexError, "an index can only have a single ellipsis ('...')");
        return false;
    }
    p->stays = reads_anew(p, parts, n);
    int64_t skip = tn_tensor_ndim(p->t) - used;
    for (Py_ssize_t i = 0; i < n; i++) {
        p->place = i;
        if (parts[i] == Py_Ellipsis)
            p->dim += skip;
        else if (!put_part(p, parts[i]))
            return false;
    }
    return true;
}

static bool is_sequence(PyObject *o) {
    return PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
}

/* A list that is no tuple and means one: NumPy's old rule, which PyTorch keeps. It is short, and some
 * item of it is a slice, None, an ellipsis, a tensor or a sequence. New reference, NULL without an
 * exception where the list is an index itself. */
static PyObject *tuple_meant(PyObject *key) {
    enum { SHORT = 32 };
    bool means = false;
    if (tnp_is_tensor(key) || !is_sequence(key) || tnp_is_numpy_array(key)) return NULL;
    Py_ssize_t n = PySequence_Size(key);
    if (n < 0) PyErr_Clear();
    if (n < 0 || n >= SHORT) return NULL;
    PyObject *items = PySequence_Tuple(key);
    for (Py_ssize_t i = 0; items && !means && i < PyTuple_Size(items); i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        means = item == Py_None || item == Py_Ellipsis || PySlice_Check(item) ||
                tnp_is_tensor(item) || is_sequence(item);
    }
    if (items && means &&
        PyErr_WarnEx(PyExc_UserWarning,
                     "Using a non-tuple sequence for multidimensional indexing is deprecated: "
                     "x[[a, b]] is taken as x[a, b] here; use x[tuple(seq)] for that, and "
                     "x[tensor(seq)] where the list is an index itself.",
                     1) == 0)
        return items;
    Py_XDECREF(items);
    return NULL;
}

static bool plan_init(plan *p, PyObject *self, PyObject *key, bool writing) {
    PyObject *parts[TN_MAX_DIMS + 8], *meant = NULL;
    Py_ssize_t n = 1;
    p->t = tn_tensor_ref(tnp_of(self));
    p->nadv = 0;
    p->covered = p->dim = p->place = 0;
    p->writing = writing;
    p->stays = false;
    if (!PyTuple_Check(key)) {
        meant = tuple_meant(key);
        if (PyErr_Occurred()) return false;
    }
    PyObject *tuple = meant ? meant : key;
    bool ok = true;
    if (!PyTuple_Check(tuple)) {
        parts[0] = key;
    } else {
        n = PyTuple_Size(tuple);
        if (n > TNP_COUNT(parts)) ok = too_many(p->t);
        for (Py_ssize_t i = 0; ok && i < n; i++) parts[i] = PyTuple_GetItem(tuple, i);
    }
    ok = ok && apply(p, parts, n);
    Py_XDECREF(meant);
    return ok;
}

static void plan_free(plan *p) {
    tn_tensor_unref(&p->t);
    for (int32_t i = 0; i < p->nadv; i++) tn_tensor_unref(&p->adv[i]);
}

static void set_list(step_args *a, int op, const plan *p) {
    tn_views *list = (void *)(a->bytes + ops[op].in[1]);
    *list = (tn_views){(tn_view *const *)(const void *)p->adv, p->nadv};
}

tn_tensor *tnp_alias(tn_tensor *t) {
    step_args a;
    begin(&a, ALIAS, t);
    return end(&a, ALIAS, 0);
}

static tn_tensor *gather(plan *p) {
    step_args a;
    begin(&a, INDEX, p->t);
    set_list(&a, INDEX, p);
    return end(&a, INDEX, tn_tensor_numel(p->t));
}

PyObject *tnp_getitem(PyObject *self, PyObject *key) {
    tn_tensor *t = tnp_of(self), *r;
    PyObject *taken;
    if (TNP_UNLIKELY(tnp.overrides) &&
        tnp_override("__getitem__", TNP_FORM_METHOD, self, &key, 1, NULL, &taken))
        return taken;
    if (tn_tensor_ndim(t) > 0) {
        if (Py_TYPE(key) == &PyLong_Type) {
            int64_t i;
            if (tnp_int_from(key, &i) < 0) return NULL;
            r = step_select(t, 0, i, 0);
            return r ? tnp_wrap(r) : NULL;
        }
        if (PySlice_Check(key)) {
            r = step_slice(t, 0, key, false);
            return r ? tnp_wrap(r) : NULL;
        }
    }
    plan p;
    r = NULL;
    if (plan_init(&p, self, key, false)) {
        if (p.nadv)
            r = gather(&p);
        else /* x[...] and x[()] are new tensors, too */
            r = p.t == t ? tnp_alias(t) : tn_tensor_ref(p.t);
    }
    plan_free(&p);
    PyObject *made = r ? tnp_wrap(r) : NULL;
    if (made && p.stays && !note_taken(self, made)) Py_CLEAR(made);
    return made;
}

/* ---- Assignment --------------------------------------------------------------------------------*/

static bool write_number(tn_tensor *t, const tn_scalar *s) {
    step_args a;
    begin(&a, FILL, t);
    *(tn_scalar *)(void *)int_at(&a, at.fill_value) = *s;
    tn_tensor *r = end(&a, FILL, tn_tensor_numel(t));
    tn_tensor_unref(&r);
    return !PyErr_Occurred();
}

/* src, which is given up, without leading sizes of one beyond `ndim` dimensions: x[0] = y[None]. */
static tn_tensor *without_leading_ones(tn_tensor *src, int32_t ndim) {
    while (src && tn_tensor_ndim(src) > ndim && tn_tensor_shape(src)[0] == 1) {
        tn_tensor *inner = step_select(src, 0, 0, 0);
        tn_tensor_unref(&src);
        src = inner;
    }
    return src;
}

/* src, which is given up, or a copy where it is a smaller part of t's memory: x[0] = x[0, 1]. */
static tn_tensor *apart_from(const tn_tensor *t, tn_tensor *src) {
    if (!src || !tn_tensor_same_storage(t, src) || tn_tensor_numel(src) == tn_tensor_numel(t))
        return src;
    step_args a;
    begin(&a, CLONE, src);
    tn_tensor *copy = end(&a, CLONE, tn_tensor_numel(src));
    tn_tensor_unref(&src);
    return copy;
}

static bool write_tensor(tn_tensor *t, tn_tensor *src) {
    step_args a;
    src = apart_from(t, without_leading_ones(src, tn_tensor_ndim(t)));
    if (!src) return false;
    begin(&a, COPY, t);
    *(tn_tensor **)(void *)(a.bytes + ops[COPY].in[1]) = src;
    tn_tensor *r = end(&a, COPY, tn_tensor_numel(t));
    tn_tensor_unref(&r);
    tn_tensor_unref(&src);
    return !PyErr_Occurred();
}

static bool scatter(plan *p, tn_tensor *value) {
    step_args a;
    begin(&a, INDEX_PUT, p->t);
    set_list(&a, INDEX_PUT, p);
    *(tn_tensor **)(void *)(a.bytes + ops[INDEX_PUT].in[2]) = value;
    tn_tensor *r = end(&a, INDEX_PUT, tn_tensor_numel(p->t));
    tn_tensor_unref(&r);
    return !PyErr_Occurred();
}

/* Some of its elements lie in one place. A number may be filled in there, not assigned. */
static bool repeats(const tn_tensor *t) {
    for (int32_t d = 0; d < tn_tensor_ndim(t); d++)
        if (tn_tensor_shape(t)[d] > 1 && tn_tensor_strides(t)[d] == 0) return true;
    return false;
}

/* The value of an assignment as a tensor of t's dtype, unless it is one already; owned. */
static tn_tensor *value_tensor(const tn_tensor *t, PyObject *value) {
    if (tnp_is_tensor(value)) return tn_tensor_ref(tnp_of(value));
    return tnp_tensor_from(value, tn_tensor_dtype(t), -1);
}

/* The write goes to a view of the tensor, so the tape sees it as one to the tensor. */
static bool assign(plan *p, PyObject *value) {
    tn_scalar s;
    int64_t whole;
    bool fits = !PyLong_Check(value) || PyBool_Check(value) || tn_tensor_dtype(p->t) == TN_U64;
    if (!fits && tnp_int_from(value, &whole) < 0) return false;
    int number = tnp_is_tensor(value) ? 0 : tnp_scalar_from(value, &s);
    if (number < 0) return false;
    if (number && !p->nadv && !repeats(p->t)) return write_number(p->t, &s);
    tn_tensor *v = value_tensor(p->t, value);
    if (!v) return false;
    if (!p->nadv) return write_tensor(p->t, v);
    if (number && tn_tensor_dtype(v) != tn_tensor_dtype(p->t)) {
        tn_tensor *same = tnp_to(v, tn_tensor_dtype(p->t), NULL, false, TN_FORMAT_PRESERVE);
        tn_tensor_unref(&v);
        v = same;
    }
    v = without_leading_ones(v, 0);
    bool ok = v && scatter(p, v);
    tn_tensor_unref(&v);
    return ok;
}

int tnp_setitem(PyObject *self, PyObject *key, PyObject *value) {
    plan p;
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
        return -1;
    }
    PyObject *taken, *const both[] = {key, value};
    if (TNP_UNLIKELY(tnp.overrides) &&
        tnp_override("__setitem__", TNP_FORM_METHOD, self, both, 2, NULL, &taken)) {
        Py_XDECREF(taken);
        return taken ? 0 : -1;
    }
    if (key == Py_False) return 0;
    /* x[True] = v is x[None] = v, and takes a v of any dtype. */
    bool ok = plan_init(&p, self, key == Py_True ? Py_None : key, true) && assign(&p, value);
    ok = ok && (!p.stays || forget_taken(self, value));
    plan_free(&p);
    return ok ? 0 : -1;
}

static PyMethodDef functions[] = {
    {"_index_anew", index_anew, METH_O, "(list or None): keeps places that 0-d tensors give."},
    {NULL, NULL, 0, NULL},
};

bool tnp_index_init(PyObject *module) {
    for (int i = 0; i < OP_COUNT; i++)
        if (!tnp_direct_ready(&ops[i])) return false;
    return offset_of(SELECT, "dim", &at.select_dim) &&
           offset_of(SELECT, "index", &at.select_index) && offset_of(SLICE, "dim", &at.slice_dim) &&
           offset_of(SLICE, "start", &at.slice_start) && offset_of(SLICE, "end", &at.slice_end) &&
           offset_of(SLICE, "step", &at.slice_step) &&
           offset_of(UNSQUEEZE, "dim", &at.unsqueeze_dim) &&
           offset_of(FLIP, "dims", &at.flip_dims) && offset_of(FILL, "value", &at.fill_value) &&
           PyModule_AddFunctions(module, functions) == 0;
}
