/* state.c: what the files of the module share: its state, helpers in Python, where new tensors are made. */
#include "binding_priv.h"

tnp_state tnp;

/* ---- Helpers in Python -------------------------------------------------------------------------*/

PyObject *tnp_helper(const char *module, const char *name) {
    static struct {
        const char *name;
        PyObject *value;
    } known[32];
    for (int i = 0; i < TNP_COUNT(known); i++) {
        if (!known[i].name) {
            PyObject *full = PyUnicode_FromFormat("tenon.%s", module);
            PyObject *doors = full ? PyImport_ImportModule("tenon._submodules") : NULL;
            PyObject *m = doors ? PyObject_CallMethod(doors, "imported", "O", full) : NULL;
            Py_XDECREF(doors);
            Py_XDECREF(full);
            PyObject *value = m ? PyObject_GetAttrString(m, name) : NULL;
            Py_XDECREF(m);
            if (value) {
                known[i].name = name;
                known[i].value = value; /* kept for ever */
            }
            return value;
        }
        if (strcmp(known[i].name, name) == 0) return known[i].value;
    }
    PyErr_SetString(PyExc_SystemError, "tnp_helper: the table is too small");
    return NULL;
}

/* ---- Devices of new tensors ---------------------------------------------------------------------*/

/* The thread's `with device`, from the innermost outwards. */
typedef struct device_region {
    tn_device device;
    struct device_region *outer;
} device_region;
static _Thread_local device_region *regions;

tn_device tnp_new_device(void) { return regions ? regions->device : tnp.new_device; }

bool tnp_enter_device(tn_device device) {
    device_region *r = PyMem_Malloc(sizeof *r);
    if (!r) {
        PyErr_NoMemory();
        return false;
    }
    *r = (device_region){device, regions};
    regions = r;
    tnp.new_device_set++;
    return true;
}

void tnp_leave_device(void) {
    device_region *r = regions;
    if (!r) return;
    regions = r->outer;
    tnp.new_device_set--;
    PyMem_Free(r);
}
