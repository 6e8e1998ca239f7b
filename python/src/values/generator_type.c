/* generator_type.c: Generator, and the random state of the process. */
#include <tenon/random.h>

#include "binding_priv.h"

typedef struct generator_object {
    PyObject_HEAD tn_generator *gen;
} generator_object;

static PyObject *default_generator;

tn_generator *tnp_generator_of(PyObject *o) {
    return Py_TYPE(o) == tnp.generator ? ((generator_object *)o)->gen : NULL;
}

PyObject *tnp_generator_object(tn_generator *gen) {
    generator_object *g = PyObject_New(generator_object, tnp.generator);
    if (g)
        g->gen = gen;
    else
        tn_generator_unref(&gen);
    return (PyObject *)g;
}

static PyObject *generator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", NULL};
    PyObject *where = NULL;
    tn_device device = {0, 0};
    tn_generator *gen;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", names, &where)) return NULL;
    if (where && where != Py_None && !tnp_device_from(where, &device)) return NULL;
    tn_status st = tn_generator_new(device, &gen);
    return st == TN_OK ? tnp_generator_object(gen) : tnp_raise(st);
}

static void generator_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tn_generator_unref(&((generator_object *)self)->gen);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Any Python integer from -2^63 to 2^64 - 1 is a seed. */
static bool seed_of(PyObject *o, uint64_t *ret_seed) {
    PyObject *whole = PyNumber_Index(o);
    if (!whole) return false;
    uint64_t seed = PyLong_AsUnsignedLongLong(whole);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        seed = (uint64_t)PyLong_AsLongLong(whole);
    }
    Py_DECREF(whole);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return false;
    }
    *ret_seed = seed;
    return true;
}

static PyObject *manual_seed(PyObject *self, PyObject *value) {
    uint64_t seed;
    if (!seed_of(value, &seed)) return NULL;
    tn_generator_seed(((generator_object *)self)->gen, seed);
    Py_INCREF(self);
    return self;
}

static PyObject *seed(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *f = tnp_helper("_tensor.random", "fresh_seed");
    PyObject *value = f ? PyObject_CallFunctionObjArgs(f, NULL) : NULL;
    PyObject *done = value ? manual_seed(self, value) : NULL;
    Py_XDECREF(done);
    if (done) return value;
    Py_XDECREF(value);
    return NULL;
}

static PyObject *initial_seed(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(tn_generator_initial_seed(((generator_object *)self)->gen));
}

static PyObject *get_state(PyObject *self, PyObject *unused) {
    tn_generator *gen = ((generator_object *)self)->gen;
    uint64_t n = 0;
    (void)unused;
    if (tnp_check(tn_generator_get_state(gen, NULL, &n)) < 0) return NULL;
    unsigned char *bytes = PyMem_Malloc(n);
    if (!bytes) return PyErr_NoMemory();
    tn_tensor *t;
    tn_status st = tn_generator_get_state(gen, bytes, &n);
    int64_t size = (int64_t)n;
    if (st == TN_OK) st = tn_tensor_from_data(TN_U8, 1, &size, bytes, &t);
    PyMem_Free(bytes);
    return st == TN_OK ? tnp_wrap(t) : tnp_raise(st);
}

static PyObject *set_state(PyObject *self, PyObject *state) {
    if (!tnp_is_tensor(state) || tn_tensor_dtype(tnp_of(state)) != TN_U8) {
        PyErr_SetString(PyExc_TypeError, "RNG state must be a ByteTensor");
        return NULL;
    }
    const tn_tensor *t = tnp_of(state);
    uint64_t n = (uint64_t)tn_tensor_numel(t);
    unsigned char *bytes = PyMem_Malloc(n);
    if (!bytes) return PyErr_NoMemory();
    tn_status st = tn_tensor_read(t, bytes, n);
    if (st == TN_OK) st = tn_generator_set_state(((generator_object *)self)->gen, bytes, n);
    PyMem_Free(bytes);
    if (st != TN_OK) return tnp_raise(st);
    Py_INCREF(self);
    return self;
}

static PyObject *get_device(PyObject *self, void *unused) {
    (void)unused;
    return tnp_device_object_of(tn_generator_device(((generator_object *)self)->gen));
}

static PyObject *reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *f = tnp_helper("_tensor.reduce", "reduce_generator");
    return f ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
}

static PyObject *clone_state(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *f = tnp_helper("_tensor.reduce", "clone_generator");
    return f ? PyObject_CallFunctionObjArgs(f, self, NULL) : NULL;
}

static PyMethodDef methods[] = {
    {"manual_seed", manual_seed, METH_O, "Seeds the generator; returns it."},
    {"seed", seed, METH_NOARGS, "Seeds it from the system; returns the seed."},
    {"initial_seed", initial_seed, METH_NOARGS, "The seed it was last given."},
    {"get_state", get_state, METH_NOARGS, "The state as a uint8 tensor."},
    {"set_state", set_state, METH_O, "Restores what get_state gave."},
    {"clone_state", clone_state, METH_NOARGS, "Another generator in the same state."},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"device", get_device, NULL, "Where it draws.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    TNP_SLOT(Py_tp_new, generator_new),
    TNP_SLOT(Py_tp_dealloc, generator_dealloc),
    TNP_SLOT(Py_tp_methods, methods),
    TNP_SLOT(Py_tp_getset, getset),
    {Py_tp_doc, "Generator(device='cpu'): a stream of random numbers of its own."},
    {0, NULL},
};

static PyObject *set_rng(PyObject *unused, PyObject *name) {
    (void)unused;
    bool torch = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "torch") == 0;
    bool philox = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "philox") == 0;
    if (!torch && !philox)
        return PyErr_Format(PyExc_ValueError, "set_rng takes 'philox' or 'torch', not %R", name);
    tn_status st = tn_rng_set_kind(torch ? TN_RNG_MT19937 : TN_RNG_PHILOX);
    if (st != TN_OK) return tnp_raise(st);
    Py_RETURN_NONE;
}

/* _default_generator(device): the one that calls draw from which name none. */
static PyObject *default_of(PyObject *unused, PyObject *where) {
    tn_device device;
    (void)unused;
    if (!tnp_device_from(where, &device)) return NULL;
    tn_generator *gen = tn_generator_default(device);
    return gen ? tnp_generator_object(tn_generator_ref(gen)) : PyErr_NoMemory();
}

static PyObject *seed_all(PyObject *unused, PyObject *value) {
    uint64_t number;
    (void)unused;
    if (!seed_of(value, &number)) return NULL;
    tn_generator_seed_all(number);
    Py_INCREF(default_generator);
    return default_generator;
}

static PyObject *count_draws(PyObject *unused, PyObject *none) {
    (void)unused;
    (void)none;
    return PyLong_FromUnsignedLongLong(tn_generator_draws());
}

static PyMethodDef functions[] = {
    {"_draws", count_draws, METH_NOARGS,
     "How often the calling thread has drawn from the CPU's default generator."},
    {"_default_generator", default_of, METH_O, "The default generator of a device."},
    {"_seed_all", seed_all, METH_O, "Seeds the default generators of all devices."},
    {"set_rng", set_rng, METH_O,
     "set_rng(name): 'philox', or 'torch' for the random stream of PyTorch's CPU generator."},
    {NULL, NULL, 0, NULL},
};

bool tnp_generator_init(PyObject *module) {
    PyType_Spec spec = {"tenon.Generator", sizeof(generator_object), 0, Py_TPFLAGS_DEFAULT, slots};
    tnp.generator = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!tnp.generator) return false;
    tn_device cpu = {0, 0};
    default_generator = tnp_generator_object(tn_generator_ref(tn_generator_default(cpu)));
    return default_generator && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "Generator", (PyObject *)tnp.generator) == 0 &&
           PyModule_AddObjectRef(module, "default_generator", default_generator) == 0;
}
