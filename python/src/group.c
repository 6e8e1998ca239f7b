/* group.c: groups of devices that exchange data, for tenon.comm. */
#include "binding_priv.h"

#define CAPSULE "tenon.group"
enum { MEMBERS = 256 };

static void drop(PyObject *capsule) {
    tn_group *g = PyCapsule_GetPointer(capsule, CAPSULE);
    tn_group_free(&g);
}

/* _group_new(devices, world, first, id): a group; id is bytes or None. */
static PyObject *group_new(PyObject *unused, PyObject *args) {
    PyObject *list;
    int world, first;
    const char *id;
    Py_ssize_t id_bytes = 0;
    tn_device devices[MEMBERS];
    tn_group *g;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O!iiz#:_group_new", &PyTuple_Type, &list, &world, &first, &id,
                          &id_bytes))
        return NULL;
    Py_ssize_t n = PyTuple_Size(list);
    if (n > MEMBERS || (id && id_bytes != TN_GROUP_ID_BYTES))
        return PyErr_Format(PyExc_ValueError,
                            "a group has at most %d devices and an id of %d bytes", MEMBERS,
                            TN_GROUP_ID_BYTES);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!tnp_device_from(PyTuple_GetItem(list, i), &devices[i])) return NULL;
    tn_status st = tn_group_new(devices, (int32_t)n, world, first, id, &g);
    if (st != TN_OK) return tnp_raise(st);
    PyObject *capsule = PyCapsule_New(g, CAPSULE, drop);
    if (!capsule) tn_group_free(&g);
    return capsule;
}

/* The tensors of a tuple into `ret`; how many, or -1. */
static Py_ssize_t read_tensors(PyObject *tuple, tn_tensor **ret) {
    Py_ssize_t n = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < n && i < MEMBERS; i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        if (!tnp_is_tensor(o)) {
            tnp_type_error("expected a Tensor, not %U", o);
            return -1;
        }
        ret[i] = tnp_of(o);
    }
    if (n <= MEMBERS) return n;
    PyErr_Format(PyExc_ValueError, "a group has at most %d tensors on either side", MEMBERS);
    return -1;
}

static tn_status call(tn_group *g, const char *what, tn_tensors src, tn_tensors dst, int number) {
    if (strcmp(what, "all_reduce") == 0) return tn_group_all_reduce(g, src, dst, number);
    if (strcmp(what, "all_gather") == 0) return tn_group_all_gather(g, src, dst);
    if (strcmp(what, "reduce_scatter") == 0) return tn_group_reduce_scatter(g, src, dst, number);
    return tn_group_broadcast(g, src, dst, number);
}

/* _group_run(group, what, sources, destinations, number): number is the operation or the root. */
static PyObject *group_run(PyObject *unused, PyObject *args) {
    PyObject *capsule, *from, *to;
    const char *what;
    int number;
    tn_tensor *src[MEMBERS], *dst[MEMBERS];
    (void)unused;
    if (!PyArg_ParseTuple(args, "OsO!O!i:_group_run", &capsule, &what, &PyTuple_Type, &from,
                          &PyTuple_Type, &to, &number))
        return NULL;
    tn_group *g = PyCapsule_GetPointer(capsule, CAPSULE);
    Py_ssize_t n = g ? read_tensors(from, src) : -1, m = n < 0 ? -1 : read_tensors(to, dst);
    if (m < 0) return NULL;
    tn_status st = call(g, what, (tn_tensors){src, n}, (tn_tensors){dst, m}, number);
    if (st != TN_OK) return tnp_raise(st);
    Py_RETURN_NONE;
}

static PyObject *unique_id(PyObject *unused, PyObject *device) {
    char id[TN_GROUP_ID_BYTES];
    tn_device d;
    (void)unused;
    if (!tnp_device_from(device, &d)) return NULL;
    tn_status st = tn_group_unique_id(d, id);
    if (st != TN_OK) return tnp_raise(st);
    return PyBytes_FromStringAndSize(id, sizeof id);
}

static PyMethodDef functions[] = {
    {"_group_new", group_new, METH_VARARGS, "A group of devices."},
    {"_group_run", group_run, METH_VARARGS, "One exchange of a group."},
    {"_group_unique_id", unique_id, METH_O, "The name of a group across processes."},
    {NULL, NULL, 0, NULL},
};

bool tnp_group_init(PyObject *module) { return PyModule_AddFunctions(module, functions) == 0; }
