/* run.c: runs programs: nodes one by one (node.c), groups as one kernel (fuse.c), and what a device takes
 * as its own (region.c). */
#include "program_priv.h"

#include <stdlib.h>

#include <tenon/runtime.h>

#include "infer_priv.h"
#include "layers_priv.h"

enum { FEW = 8, MANY = 128 }; /* free sizes and values of a run without one */

/* ---- Inputs ------------------------------------------------------------------------------------*/

static tn_status fail_shape(const tn_program *p, const tni_pvalue *v, const tn_tensor *t) {
    tni_sink s = {0};
    for (int32_t d = 0; d < v->ndim; d++) {
        const tni_psymbol *free_size =
            v->symbol && v->symbol[d] >= 0 ? &p->symbol[v->symbol[d]] : NULL;
        tni_sink_text(&s, "%s", d ? ", " : "[");
        if (free_size)
            tni_sink_text(&s, "%s (%lld to %lld)", free_size->name, (long long)free_size->low,
                          (long long)free_size->high);
        else
            tni_sink_text(&s, "%lld", (long long)v->shape[d]);
    }
    tni_sink_text(&s, v->ndim ? "]" : "[]");
    tn_status st = tn_fail(TN_E_SHAPE, v->place, "input '%s' of the program has shape %s, not %s",
                           v->name, s.failed ? "another" : s.at, tni_shape_text_of(&t->v));
    free(s.at);
    return st;
}

static tn_status check_input(const tn_program *p, const tni_pvalue *v, const tn_tensor *t,
                             int64_t *sizes) {
    if (!t) return tn_fail(TN_E_TYPE, v->place, "input '%s' of the program is NULL", v->name);
    if (tn_view_dtype(&t->v) != v->dtype)
        return tn_fail(TN_E_DTYPE, v->place, "input '%s' of the program is %s, not %s", v->name,
                       tn_dtype_name(v->dtype), tn_dtype_name(tn_view_dtype(&t->v)));
    tn_device device = tn_tensor_device(t);
    if (device.slot != v->device.slot || device.index != v->device.index)
        return tn_fail(TN_E_DEVICE, v->place, "input '%s' of the program is on %s:%d, not %s:%d",
                       v->name, tn_device_name(v->device.slot), (int)v->device.index,
                       tn_device_name(device.slot), (int)device.index);
    if (t->v.ndim != v->ndim) return fail_shape(p, v, t);
    for (int32_t d = 0; d < v->ndim; d++) {
        int32_t s = v->symbol ? v->symbol[d] : -1;
        int64_t have = t->v.shape[d];
        if (s < 0 && have != v->shape[d]) return fail_shape(p, v, t);
        if (s < 0 || tni_p_size_rule(v, d)) continue;
        if (have < p->symbol[s].low || have > p->symbol[s].high) return fail_shape(p, v, t);
        if (sizes[s] >= 0 && sizes[s] != have)
            return tn_fail(TN_E_SHAPE, v->place,
                           "input '%s' of the program has %lld for %s, and another input %lld",
                           v->name, (long long)have, p->symbol[s].name, (long long)sizes[s]);
        sizes[s] = have;
    }
    return TN_OK;
}

/* Sizes that follow from free ones, which are all known now. */
static tn_status check_rules(const tn_program *p, const tni_pvalue *v, const tn_tensor *t,
                             const int64_t *sizes) {
    for (int32_t i = 0; i < v->nrules; i++) {
        const tni_pderived *d = &v->rule[i];
        int64_t want = tni_p_input_size(p, v, d->index, sizes), have = t->v.shape[d->index];
        if (want < 0 || have != want)
            return tn_fail(TN_E_SHAPE, v->place,
                           "input '%s' of the program has size %lld in dimension %d, which does "
                           "not go with %s = %lld",
                           v->name, (long long)have, (int)d->index, p->symbol[d->symbol].name,
                           (long long)sizes[d->symbol]);
    }
    return TN_OK;
}

static tn_status check_inputs(const tn_program *p, tn_tensor *const *inputs, int32_t n,
                              int64_t *sizes) {
    if (n != p->ninputs)
        return tn_fail(TN_E_VALUE, 1, "the program has %d inputs, not %d", (int)p->ninputs, (int)n);
    for (int32_t s = 0; s < p->nsymbols; s++) sizes[s] = -1;
    for (int32_t i = 0; i < n; i++)
        TN_TRY(check_input(p, &p->value[p->input[i]], inputs[i], sizes));
    for (int32_t i = 0; i < n; i++)
        TN_TRY(check_rules(p, &p->value[p->input[i]], inputs[i], sizes));
    return TN_OK;
}

/* ---- A run -------------------------------------------------------------------------------------*/

static void drop(const tn_program *p, int32_t id, int32_t k, tn_tensor **tensors) {
    if (id >= 0 && p->last_use[id] == k && p->value[id].role == TNI_P_NODE)
        tn_tensor_unref(&tensors[id]);
}

/* A region of the caller's own keeps what it has converted. */
static bool is_casting(void) {
    tn_autocast region = {0};
    for (int32_t slot = 0; slot < TN_DEVICE_SLOTS; slot++)
        if (tn_device_name(slot) && tn_autocast_get(slot, &region) == TN_OK && region.enabled)
            return true;
    return false;
}

/* What nobody needs after node k. */
static void drop_after(const tn_program *p, int32_t k, tn_tensor **tensors) {
    const tni_pnode *n = &p->node[k];
    for (int32_t i = 0; i < n->nin; i++) drop(p, n->in[i], k, tensors);
    for (int32_t i = 0; i < n->op->nout; i++) drop(p, n->given[i], k, tensors);
    for (int32_t i = 0; i < n->nout; i++) drop(p, n->out[i], k, tensors);
}

static tn_status run_one(const tn_program *p, int32_t k, const int64_t *sizes,
                         tn_tensor **tensors) {
    const tni_pnode *n = &p->node[k];
    tni_p_note_node(k);
    TN_TRY(tni_p_run_node(p, n, sizes, tensors));
    for (int32_t i = 0; i < n->nout; i++) /* what is recorded of this run has the rules, too */
        if (n->out[i] >= 0 && p->value[n->out[i]].nrules) tn_program_note_sizes(tensors[n->out[i]]);
    /* parameters are converted once in a region, which ends with its last call */
    bool last = n->cast && (k + 1 == p->nnodes || !p->node[k + 1].cast);
    if (last && !is_casting()) tn_autocast_clear();
    drop_after(p, k, tensors);
    return TN_OK;
}

/* The next group and region of a run. */
typedef struct place {
    const tni_pfused *groups;
    const tni_pregions *regions;
    int32_t group, region;
} place;

/* A group with views between its nodes: those run first. */
static tn_status run_with_views(const tn_program *p, const tni_pgroup *g, const int64_t *sizes,
                                tn_tensor **tensors) {
    if (!tni_p_group_ready(p, g, tensors)) return TN_DECLINE;
    for (int32_t i = 0; i < g->count; i++)
        if (g->before >> i & 1u) TN_TRY(tni_p_run_node(p, &p->node[g->first + i], sizes, tensors));
    if (tni_p_run_group(p, g, tensors) == TN_OK) return TN_OK;
    for (int32_t i = 0; i < g->count; i++) {
        if (g->before >> i & 1u)
            drop_after(p, g->first + i, tensors);
        else
            TN_TRY(run_one(p, g->first + i, sizes, tensors));
    }
    return TN_OK;
}

/* The nodes from k on that a device takes, or that run as a group; TN_DECLINE: k runs by itself. */
static tn_status run_several(const tn_program *p, int32_t k, place *at, const int64_t *sizes,
                             tn_tensor **tensors, int32_t *ret_count) {
    while (at->region < at->regions->n && at->regions->region[at->region].first < k) at->region++;
    while (at->group < at->groups->n && at->groups->group[at->group].first < k) at->group++;
    if (at->region < at->regions->n && at->regions->region[at->region].first == k) {
        const tni_pregion *r = &at->regions->region[at->region];
        *ret_count = r->count;
        tn_status st = tni_p_run_region(r, tensors);
        if (st != TN_DECLINE) return st;
    }
    if (at->group == at->groups->n || at->groups->group[at->group].first != k) return TN_DECLINE;
    const tni_pgroup *g = &at->groups->group[at->group];
    *ret_count = g->count;
    return g->before ? run_with_views(p, g, sizes, tensors) : tni_p_run_group(p, g, tensors);
}

static tn_status run_nodes(const tn_program *p, const int64_t *sizes, tn_tensor **tensors) {
    place at = {.groups = tni_p_fused(p), .regions = tni_p_regions(p, sizes)};
    for (int32_t k = 0, count; k < p->nnodes; k += count) {
        tn_status st = run_several(p, k, &at, sizes, tensors, &count);
        if (st == TN_OK) continue;
        if (st != TN_DECLINE) return st;
        count = 1;
        TN_TRY(run_one(p, k, sizes, tensors));
    }
    return TN_OK;
}

static tn_status run(const tn_program *p, tn_tensor *const *inputs, int32_t n, tn_tensor **outputs,
                     int32_t m, int64_t *sizes, tn_tensor **tensors) {
    TN_TRY(check_inputs(p, inputs, n, sizes));
    for (int32_t i = 0; i < p->nvalues; i++)
        tensors[i] = p->value[i].role == TNI_P_WEIGHT ? p->value[i].t : NULL;
    for (int32_t i = 0; i < n; i++) {
        TN_TRY(tni_settle(inputs[i]));
        tensors[p->input[i]] = inputs[i];
    }
    uint64_t deferred = tni_tls.layers & TNI_LAYER_DEFERRED; /* it has groups of its own */
    tni_tls.layers &= ~deferred;
    tn_status st = run_nodes(p, sizes, tensors);
    tni_tls.layers |= deferred;
    for (int32_t i = 0; i < m && st == TN_OK; i++)
        outputs[i] = tn_tensor_ref(tensors[p->output[i]]);
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].role == TNI_P_NODE) tn_tensor_unref(&tensors[i]);
    return st;
}

int tn_program_modes(void) {
    if (tni_p_is_watched()) return -1;
    return (tni_tls.no_grad == 0) | (tni_tls.inference != 0) << 1 | tn_dtype_default() << 2;
}

tn_status tn_program_run(const tn_program *p, tn_tensor *const *inputs, int32_t n,
                         tn_tensor **outputs, int32_t m) {
    int64_t few_sizes[FEW];
    tn_tensor *few_tensors[MANY];
    if (!p || n < 0 || m < 0 || (n && !inputs) || (m && !outputs))
        return tn_fail(TN_E_TYPE, -1, "program_run() needs a program, its inputs and a place");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    if (m != p->noutputs)
        return tn_fail(TN_E_VALUE, 3, "the program has %d outputs, not %d", (int)p->noutputs,
                       (int)m);
    if (p->nsymbols <= FEW && p->nvalues <= MANY)
        return run(p, inputs, n, outputs, m, few_sizes, few_tensors);
    int64_t *sizes = malloc(sizeof *sizes * (size_t)(p->nsymbols + 1));
    tn_tensor **tensors = malloc(sizeof *tensors * ((size_t)p->nvalues + 1));
    tn_status st =
        sizes && tensors ? run(p, inputs, n, outputs, m, sizes, tensors) : tni_p_memory();
    free(sizes);
    free(tensors);
    return st;
}
