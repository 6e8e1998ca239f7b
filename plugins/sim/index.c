/* index.c: gather, index_select, embedding and their counterparts that write, and _arange_. Indices are
 * looked at when the kernel runs; one that is out of range is a failure behind the host's back. */
#include "kernels.h"

#include <string.h>

#include <tenon/op_args.h>

enum { SET, ADD, MULTIPLY, AMAX, AMIN }; /* `how` of _scatter_ */

static bool is_index(const tn_view *v) {
    return tn_view_dtype(v) == TN_I64 || tn_view_dtype(v) == TN_I32;
}

/* The number in the index tensor at `at`, wrapped; false after sim_work_fail. */
static bool read_index(sim_work *w, const void *p, int32_t dtype, int64_t size, int64_t *ret) {
    int64_t i = sim_load_whole(dtype, p);
    if (i < -size || i >= size) {
        sim_work_fail(w, "'%s': index %lld is out of range for size %lld", w->op, (long long)i,
                      (long long)size);
        return false;
    }
    *ret = i < 0 ? i + size : i;
    return true;
}

/* ---- Reading -----------------------------------------------------------------------------------*/

/* out[.., i, ..] = input[.., index[.., i, ..], ..] */
static void run_gather(sim_work *w) {
    const sim_view *out = &w->view[0], *in = &w->view[1], *index = &w->view[2];
    int64_t dim = w->whole[0], at[SIM_DIMS] = {0}, from[SIM_DIMS];
    do {
        memcpy(from, at, sizeof from);
        if (in->ndim > 0 &&
            !read_index(w, sim_at(index, at), index->dtype, in->shape[dim], &from[dim]))
            return;
        memcpy(sim_at(out, at), sim_at(in, from), (size_t)out->itemsize);
    } while (sim_next(out->shape, out->ndim, at));
}

/* out[.., i, ..] = input[.., index[i], ..] */
static void run_index_select(sim_work *w) {
    const sim_view *out = &w->view[0], *in = &w->view[1], *index = &w->view[2];
    int64_t dim = w->whole[0], at[SIM_DIMS] = {0}, from[SIM_DIMS];
    do {
        int64_t i = in->ndim > 0 ? at[dim] : 0;
        memcpy(from, at, sizeof from);
        if (in->ndim > 0 &&
            !read_index(w, sim_at(index, &i), index->dtype, in->shape[dim], &from[dim]))
            return;
        memcpy(sim_at(out, at), sim_at(in, from), (size_t)out->itemsize);
    } while (sim_next(out->shape, out->ndim, at));
}

/* Every element of `out` that is read or written has a partner: the walk is over out's shape. */
static tn_status launch_read(const tn_call *call, void (*run)(sim_work *w), const tn_view *input,
                             int64_t dim, const tn_view *index, const tn_view *out) {
    if (!is_index(index) || call->dtype >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
    if (out->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run);
    if (!w) return TN_E_MEMORY;
    w->whole[0] = dim;
    sim_give(w, out);
    sim_give(w, input);
    sim_give(w, index);
    return sim_go(call, w);
}

static tn_status launch_gather(const tn_call *call, const void *args) {
    const tn_gather_args *a = args;
    return launch_read(call, run_gather, a->input, a->dim, a->index, a->out);
}

static tn_status launch_index_select(const tn_call *call, const void *args) {
    const tn_index_select_args *a = args;
    return launch_read(call, run_index_select, a->input, a->dim, a->index, a->out);
}

/* ---- Writing -----------------------------------------------------------------------------------*/

static void combine(int64_t how, int32_t dtype, void *to, const void *from, double scale) {
    double x = sim_load(dtype, to), y = scale * sim_load(dtype, from);
    bool take = (how == AMAX && y > x) || (how == AMIN && y < x) || y != y;
    if (how == ADD)
        sim_store(dtype, to, x + y);
    else if (how == MULTIPLY)
        sim_store(dtype, to, x * y);
    else if (take)
        sim_store(dtype, to, y);
}

static void combine_whole(int64_t how, int32_t dtype, void *to, const void *from, int64_t scale) {
    int64_t x = sim_load_whole(dtype, to), y = scale * sim_load_whole(dtype, from);
    bool take = (how == AMAX && y > x) || (how == AMIN && y < x);
    if (how == ADD)
        sim_store_whole(dtype, to, x + y);
    else if (how == MULTIPLY)
        sim_store_whole(dtype, to, x * y);
    else if (take)
        sim_store_whole(dtype, to, y);
}

static void put(const sim_work *w, void *to, const void *from) {
    const sim_view *self = &w->view[0];
    if (w->whole[1] == SET)
        memcpy(to, from, (size_t)self->itemsize);
    else if (sim_is_float(self->dtype))
        combine(w->whole[1], self->dtype, to, from, w->real[0]);
    else
        combine_whole(w->whole[1], self->dtype, to, from, w->whole[2]);
}

/* self[.., index[.., i, ..], ..] takes in src[.., i, ..] */
static void run_scatter(sim_work *w) {
    const sim_view *self = &w->view[0], *index = &w->view[1], *src = &w->view[2];
    int64_t dim = w->whole[0], at[SIM_DIMS] = {0}, to[SIM_DIMS];
    do {
        memcpy(to, at, sizeof to);
        if (self->ndim > 0 &&
            !read_index(w, sim_at(index, at), index->dtype, self->shape[dim], &to[dim]))
            return;
        put(w, sim_at(self, to), sim_at(src, at));
    } while (sim_next(index->shape, index->ndim, at));
}

static tn_status launch_scatter(const tn_call *call, const void *args) {
    const tn__scatter__args *a = args;
    bool set = a->how == SET;
    if (!is_index(a->index) || call->dtype >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
    if (!set && call->dtype != TN_F32 && call->dtype != TN_I64) return TN_DECLINE;
    if (a->index->ndim != a->self->ndim) return TN_DECLINE;
    if (a->index->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_scatter);
    if (!w) return TN_E_MEMORY;
    w->whole[0] = a->dim;
    w->whole[1] = a->how;
    w->whole[2] = 1;
    w->real[0] = 1;
    sim_give(w, a->self);
    sim_give(w, a->index);
    sim_give(w, a->src);
    return sim_go(call, w);
}

/* self[.., index[i], ..] += alpha * source[.., i, ..] */
static void run_index_add(sim_work *w) {
    const sim_view *self = &w->view[0], *index = &w->view[1], *source = &w->view[2];
    int64_t dim = w->whole[0], at[SIM_DIMS] = {0}, to[SIM_DIMS];
    do {
        memcpy(to, at, sizeof to);
        if (!read_index(w, sim_at(index, &at[dim]), index->dtype, self->shape[dim], &to[dim]))
            return;
        put(w, sim_at(self, to), sim_at(source, at));
    } while (sim_next(source->shape, source->ndim, at));
}

static tn_status launch_index_add(const tn_call *call, const void *args) {
    const tn_index_add__args *a = args;
    if (!is_index(a->index) || a->self->ndim == 0 || a->index->ndim != 1) return TN_DECLINE;
    if (a->source->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_index_add);
    if (!w) return TN_E_MEMORY;
    w->whole[0] = a->dim;
    w->whole[1] = ADD;
    w->whole[2] = a->alpha.i;
    w->real[0] = a->alpha.re;
    sim_give(w, a->self);
    sim_give(w, a->index);
    sim_give(w, a->source);
    return sim_go(call, w);
}

/* ---- Sequences ---------------------------------------------------------------------------------*/

static void run_arange(sim_work *w) {
    const sim_view *self = &w->view[0];
    for (int64_t i = 0; i < self->numel; i++) {
        void *p = self->data + i * self->itemsize;
        if (sim_is_float(self->dtype))
            sim_store(self->dtype, p, w->real[0] + (double)i * w->real[1]);
        else
            sim_store_whole(self->dtype, p, w->whole[0] + i * w->whole[1]);
    }
}

static tn_status launch_arange(const tn_call *call, const void *args) {
    const tn__arange__args *a = args;
    if (!tn_view_is_contiguous(a->self)) return TN_DECLINE;
    if (a->self->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_arange);
    if (!w) return TN_E_MEMORY;
    w->real[0] = a->start.re;
    w->real[1] = a->step.re;
    w->whole[0] = a->start.i;
    w->whole[1] = a->step.i;
    sim_give(w, a->self);
    return sim_go(call, w);
}

void sim_register_index(sim_registrar *r) {
    sim_register(r, "gather", TN_SIG_gather, launch_gather, NULL, TN_DTYPE_ANY);
    sim_register(r, "index_select", TN_SIG_index_select, launch_index_select, NULL, TN_DTYPE_ANY);
    sim_register(r, "_scatter_", TN_SIG__scatter_, launch_scatter, NULL, TN_DTYPE_ANY);
    sim_register(r, "index_add_", TN_SIG_index_add_, launch_index_add, NULL, TN_F32);
    sim_register(r, "index_add_", TN_SIG_index_add_, launch_index_add, NULL, TN_I64);
    sim_register(r, "_arange_", TN_SIG__arange_, launch_arange, NULL, TN_F32);
    sim_register(r, "_arange_", TN_SIG__arange_, launch_arange, NULL, TN_I64);
}
