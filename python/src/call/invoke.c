/* invoke.c: what every call of an operator ends in, and operators that C code calls by name. */
#include "binding_priv.h"

tn_status tnp_invoke(const tn_op_info *op, void *args, tn_tensor **rets, int64_t work) {
    tn_status st;
    if (TNP_LIKELY(work < TNP_LOCK_FREE_NUMEL)) return tn_op_invoke(op, args, rets);
    PyThreadState *state = PyEval_SaveThread();
    st = tn_op_invoke(op, args, rets);
    PyEval_RestoreThread(state);
    return st;
}

bool tnp_direct_ready(tnp_direct *d) {
    if (TNP_LIKELY(d->o.ready)) return true;
    d->o.op_name = d->name;
    if (tn_op_meta_find(d->name, &d->o.meta) != TN_OK) {
        PyErr_Format(PyExc_NotImplementedError, "this build has no operator '%s'", d->name);
        return false;
    }
    const tn_op_meta *m = &d->o.meta;
    if (m->args_bytes > TNP_DIRECT_ARGS_BYTES) {
        PyErr_Format(PyExc_ImportError, "operator %s has too many arguments", d->name);
        return false;
    }
    for (int32_t i = 0; i < 3 && i < m->nin; i++) d->in[i] = m->fields[m->in_field[i]].offset;
    d->out = m->fields[m->out_field[0]].offset;
    return tnp_overload_prepare(&d->o);
}
