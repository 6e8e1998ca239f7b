/* host.c: nodes whose backward is a function of a host language. */
#include <stdio.h>
#include <stdlib.h>

#include "tape_priv.h"

tn_status tn_host_node_new(const tn_host_node *callbacks, tn_tensor *const *inputs, int64_t ninputs,
                           tn_node **ret_node) {
    bool any = false;
    if (!callbacks || !callbacks->apply)
        return tn_fail(TN_E_VALUE, 0, "a host function needs an apply callback");
    if (ninputs < 0 || ninputs > INT32_MAX) return tn_fail(TN_E_VALUE, 2, "bad number of inputs");
    if (!ret_node || (ninputs > 0 && !inputs))
        return tn_fail(TN_E_TYPE, 1, "host_node_new(): a pointer that must be set is NULL");
    for (int64_t i = 0; i < ninputs; i++) any = any || (inputs[i] && tn_requires_grad(inputs[i]));
    if (!any || tni_tls.no_grad || tni_tls.inference) {
        *ret_node = NULL;
        return TN_OK;
    }
    tn_node *n = tni_node_new(TNI_NODE_HOST, NULL, (uint32_t)ninputs, 0, 0,
                              sizeof(tni_host_data) + sizeof(void *) * (size_t)ninputs, 0, 0);
    if (!n) return TN_E_MEMORY;
    tni_host_data *h = tni_node_args(n);
    memset(h, 0, sizeof *h);
    tn_status st = TN_OK;
    for (int64_t i = 0; i < ninputs && st == TN_OK; i++) {
        h->inputs[i] = inputs[i];
        if (inputs[i] && tn_requires_grad(inputs[i]))
            st = tni_edge_of(inputs[i], &tni_node_edges(n)[i]);
    }
    if (st == TN_OK && tni_agt.detect_anomaly) {
        tni_extra *x = tni_node_extra(n);
        if (x) x->where = tni_host_where();
        st = x ? TN_OK : TN_E_MEMORY;
    }
    if (st != TN_OK) {
        tni_node_unref(n); /* its callbacks are not set: the caller keeps ctx */
        return st;
    }
    h->cb = *callbacks;
    snprintf(h->name, sizeof h->name, "%s", callbacks->name ? callbacks->name : "HostBackward");
    *ret_node = n;
    return TN_OK;
}

/* ---- Outputs -----------------------------------------------------------------------------------*/

static bool is_input(const tn_node *n, const tn_tensor *t) {
    const tni_host_data *h = tni_node_args(n);
    for (uint32_t i = 0; i < n->nedges; i++)
        if (h->inputs[i] == t) return true;
    return false;
}

static tn_status check_outputs(const tn_node *n, tn_tensor *const *outputs, int64_t count,
                               const uint32_t *flags) {
    for (int64_t i = 0; i < count; i++) {
        tn_tensor *t = outputs[i];
        if (!t)
            return tn_fail(TN_E_TYPE, 1, "output %lld of a host function is NULL", (long long)i);
        if (!flags || !(flags[i] & TN_OUTPUT_DIRTY)) continue;
        if (!is_input(n, t))
            return tn_fail(TN_E_STATE, 1, "output %lld was marked dirty but is not an input",
                           (long long)i);
        if ((t->v.word & TN_W_GRAD) && tn_is_leaf(t))
            return tn_fail(TN_E_STATE, 1,
                           "a leaf Variable that requires grad has been used in an in-place "
                           "operation.");
        if (tni_base(t) && count > 1)
            return tn_fail(TN_E_STATE, 1,
                           "a view was changed in place by a function with several outputs");
    }
    return TN_OK;
}

tn_status tn_function_output(tn_tensor *t, int is_input, tn_tensor **ret_output) {
    tn_tensor *base, *r;
    if (!t || !ret_output) return tn_fail(TN_E_TYPE, 0, "function_output(): an argument is NULL");
    base = tni_base(t);
    if (!is_input) {
        if (base && base->meta && t->meta->origin == TNI_VIEW_NO_GRAD)
            t->meta->origin = TNI_VIEW_FUNCTION;
        *ret_output = tn_tensor_ref(t);
        return TN_OK;
    }
    TN_TRY(tni_detach(t, &r));
    tn_status st = t->v.word & TN_W_INFERENCE ? TN_OK : tni_meta_link(base ? base : t, r);
    if (st != TN_OK) {
        tn_tensor_unref(&r);
        return st;
    }
    if (r->meta) {
        r->meta->origin = TNI_VIEW_FUNCTION;
        r->meta->version = tni_memory_version(r);
    }
    *ret_output = r;
    return TN_OK;
}

/* One output becomes a result of n. */
static tn_status finish_output(tn_node *n, uint32_t i, tn_tensor *t, uint32_t flags,
                               tn_tensor **ret_output) {
    bool floats = tn_dtype_category(tn_view_dtype(&t->v)) >= TN_CAT_FLOAT;
    tn_tensor *r = NULL;
    tn_status st = TN_OK;
    if (flags & TN_OUTPUT_DIRTY)
        tni_bump_version(r = tn_tensor_ref(t)); /* nobody else may have seen the change */
    else
        st = tn_function_output(t, is_input(n, t), &r);
    if (st == TN_OK && floats && !(flags & TN_OUTPUT_NO_GRAD)) {
        if (flags & TN_OUTPUT_DIRTY)
            st = tni_rebase(r, n, i);
        else
            tni_set_grad_fn(r, n, i);
    } else if (st == TN_OK) {
        tni_node_out(n, i)->differentiable = 0;
    }
    if (st != TN_OK) {
        tn_tensor_unref(&r);
        return st;
    }
    *ret_output = r;
    return TN_OK;
}

tn_status tn_host_node_finish(tn_node *n, tn_tensor *const *outputs, int64_t noutputs,
                              const uint32_t *flags, tn_tensor **ret_outputs) {
    int32_t dims = 0;
    if (!n || n->kind != TNI_NODE_HOST || noutputs < 0 || noutputs > INT32_MAX)
        return tn_fail(TN_E_VALUE, 0, "this is no node of a host function");
    tni_host_data *h = tni_node_args(n);
    if (h->outs) return tn_fail(TN_E_STATE, 0, "%s has its outputs already", h->name);
    TN_TRY(check_outputs(n, outputs, noutputs, flags));
    for (int64_t i = 0; i < noutputs; i++)
        if (outputs[i]->v.ndim > dims) dims = outputs[i]->v.ndim;
    size_t each = sizeof(tni_out) + sizeof(int64_t) * (size_t)dims;
    h->outs = calloc((size_t)noutputs + 1, each);
    if (!h->outs) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    n->dims = (uint8_t)dims;
    n->nouts = (uint32_t)noutputs;
    for (int64_t i = 0; i < noutputs; i++) tni_node_set_out(n, (uint32_t)i, outputs[i]);
    tn_status st = TN_OK;
    int64_t done = 0;
    for (; done < noutputs && st == TN_OK; done++)
        st = finish_output(n, (uint32_t)done, outputs[done], flags ? flags[done] : 0,
                           &ret_outputs[done]);
    if (st != TN_OK)
        for (int64_t i = 0; i + 1 < done; i++) tn_tensor_unref(&ret_outputs[i]);
    for (uint32_t i = 0; i < n->nedges; i++) h->inputs[i] = NULL;
    return st;
}

/* ---- Backward ----------------------------------------------------------------------------------*/

tn_status tni_host_apply(tn_node *n, tn_tensor **g, uint64_t needs, tn_tensor **ret) {
    const tni_host_data *h = tni_node_args(n);
    tn_status st = TN_OK;
    uint32_t made = 0;
    (void)needs; /* a host function asks the edges */
    tn_tensor **all = calloc((size_t)n->nouts + 1, sizeof *all);
    if (!all) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    for (; made < n->nouts && st == TN_OK; made++) {
        const tni_out *o = tni_node_out(n, made);
        all[made] = tn_tensor_ref(g[made]);
        if (!all[made] && h->cb.materialize)
            st = tni_constant(0.0, o->word, o->ndim, o->shape, &all[made]);
    }
    uint32_t formulas = tni_tls.formulas;
    tni_tls.formulas = 0; /* the function may well make constants */
    if (st == TN_OK) st = h->cb.apply(h->cb.ctx, n, all, n->nouts, ret, n->nedges);
    tni_tls.formulas = formulas;
    for (uint32_t i = 0; i < made; i++) tn_tensor_unref(&all[i]);
    free(all);
    return st;
}
