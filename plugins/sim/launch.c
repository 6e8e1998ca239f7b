/* launch.c: from a kernel call to work in a queue. What Tenon lends for the time of the call only, the
 * plan, shapes, numbers, is copied; addresses become addresses that a kernel may use. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

sim_work *sim_launch(const tn_call *call, void (*run)(sim_work *w)) {
    sim_work *w = sim_work_new(sim_device_at(call->device_index), call->op->name, run);
    if (!w) {
        sim_host->fail(TN_E_MEMORY, -1, "out of memory");
        return NULL;
    }
    w->row = call->ctx;
    w->slot = call->device_slot;
    w->dtype = call->dtype;
    return w;
}

sim_work *sim_launch_with(const tn_call *call, void (*run)(sim_work *w), const void *block,
                          size_t bytes) {
    sim_work *w = sim_launch(call, run);
    if (!w) return NULL;
    w->payload = malloc(bytes);
    if (w->payload) {
        memcpy(w->payload, block, bytes);
        return w;
    }
    sim_work_free(w);
    sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    return NULL;
}

/* The readable address of element 0 of an operand that reaches from lo to hi, in bytes. */
static unsigned char *operand(sim_work *w, const void *data, uint64_t offset, int64_t lo,
                              int64_t hi) {
    pthread_mutex_lock(&w->device->lock);
    unsigned char *p = sim_memory_reach(w->device, data, offset, lo, hi, &w->blocks[w->noperands]);
    pthread_mutex_unlock(&w->device->lock);
    if (!p) w->status = TN_E_INTERNAL;
    return p;
}

static void extend(int64_t size, int64_t stride, int64_t *lo, int64_t *hi) {
    int64_t reach = (size - 1) * stride;
    if (reach < 0)
        *lo += reach;
    else
        *hi += reach;
}

void sim_give_plan(sim_work *w, const tn_plan *plan) {
    w->plan = *plan;
    for (int32_t k = 0; k < plan->noperands; k++, w->noperands++) {
        int64_t lo = 0, hi = sim_itemsize(plan->dtype[k]);
        if (plan->scalar_mask >> k & 1u) {
            memcpy(w->scalar[k], plan->data[k], (size_t)hi);
            w->plan.data[k] = w->scalar[k];
            continue;
        }
        for (int32_t d = 0; d < plan->ndim; d++)
            extend(plan->shape[d] > 0 ? plan->shape[d] : 1, plan->stride[d][k], &lo, &hi);
        /* The input of a reduction over nothing has no memory and is never read. */
        bool empty = plan->numel == 0 && k >= plan->noutputs;
        w->plan.data[k] = empty ? NULL : operand(w, plan->data[k], plan->offset[k], lo, hi);
    }
}

sim_view *sim_give(sim_work *w, const tn_view *v) {
    sim_view *s = &w->view[w->noperands];
    int64_t lo = 0, hi = tn_view_itemsize(v);
    s->dtype = tn_view_dtype(v);
    s->ndim = v->ndim;
    s->numel = v->numel;
    s->itemsize = tn_view_itemsize(v);
    if (v->ndim > SIM_DIMS || tn_view_device(v) != (int32_t)w->slot ||
        tn_view_index(v) != w->device->index) {
        w->status = TN_DECLINE;
        s->ndim = 0;
    }
    for (int32_t d = 0; d < s->ndim; d++) {
        s->shape[d] = v->shape[d];
        s->strides[d] = v->strides[d];
        extend(v->shape[d], v->strides[d] * s->itemsize, &lo, &hi);
    }
    if (v->numel > 0 && w->status == TN_OK) s->data = operand(w, v->data, v->byte_offset, lo, hi);
    w->noperands++;
    return s;
}

tn_status sim_go(const tn_call *call, sim_work *w) {
    tn_status st = w->status;
    if (st != TN_OK) {
        sim_work_free(w);
        return st;
    }
    w->doomed = sim_fault_now(SIM_FAULT_KERNEL, w->op);
    w->overrun = sim_fault_now(SIM_FAULT_OVERRUN, w->op);
    w->counted = true;
    return sim_submit(w->device, call->stream, w);
}

/* ---- Walks -------------------------------------------------------------------------------------*/

void sim_walk_start(const tn_plan *p, sim_walk *ret) {
    memset(ret->index, 0, sizeof ret->index[0] * (size_t)p->ndim);
    for (int32_t k = 0; k < p->noperands; k++) ret->at[k] = p->data[k];
}

bool sim_walk_next(const tn_plan *p, sim_walk *w, uint64_t dims) {
    for (int32_t d = 0; d < p->ndim; d++) {
        if (!(dims >> d & 1u)) continue;
        bool carry = ++w->index[d] == p->shape[d];
        int64_t steps = carry ? 1 - p->shape[d] : 1;
        for (int32_t k = 0; k < p->noperands; k++) w->at[k] += steps * p->stride[d][k];
        if (!carry) return true;
        w->index[d] = 0;
    }
    return false;
}

bool sim_next(const int64_t *shape, int32_t ndim, int64_t *index) {
    for (int32_t d = ndim - 1; d >= 0; d--) {
        if (++index[d] < shape[d]) return true;
        index[d] = 0;
    }
    return false;
}

unsigned char *sim_at(const sim_view *v, const int64_t *index) {
    int64_t offset = 0;
    for (int32_t d = 0; d < v->ndim; d++) offset += index[d] * v->strides[d];
    return v->data + offset * v->itemsize;
}
