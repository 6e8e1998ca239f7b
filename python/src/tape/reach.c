/* reach.c: objects of Python that the graph keeps alive: how it lets go of them, how the collector sees
 * them. */
#include "binding_priv.h"

void tnp_release_object(void *o) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)o);
    PyGILState_Release(gil);
}

void tnp_release_ctx(void *ctx) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    ((tnp_node_head *)ctx)->node = NULL;
    Py_DECREF((PyObject *)ctx);
    PyGILState_Release(gil);
}

void tnp_visit_reached(void *visitor, void *data, void (*release)(void *data)) {
    tnp_visitor *v = visitor;
    if (v->result == 0 && (release == tnp_release_object || release == tnp_release_ctx))
        v->result = v->visit(data, v->arg);
}
