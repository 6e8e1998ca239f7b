/* copy.c: _copy, which also fills, and _cast. */
#include "kernels.h"

#include <string.h>

#include <tenon/op_args.h>

static void run_copy(sim_work *w) {
    const tn_plan *p = &w->plan;
    size_t size = (size_t)sim_itemsize(p->dtype[0]);
    sim_walk at;
    sim_walk_start(p, &at);
    do memcpy(at.at[0], at.at[1], size);
    while (sim_walk_next(p, &at, SIM_ALL_DIMS));
}

static tn_status launch_copy(const tn_call *call, const void *args) {
    const tn__copy_args *a = args;
    if (call->dtype >= TN_DTYPE_BUILTIN_COUNT) return TN_DECLINE;
    sim_work *w = sim_launch(call, run_copy);
    if (!w) return TN_E_MEMORY;
    sim_give_plan(w, a->plan);
    return sim_go(call, w);
}

static void convert(int32_t to, void *dst, int32_t from, const void *src) {
    if (to == TN_BOOL || sim_is_float(from))
        sim_store(to, dst, sim_load(from, src));
    else
        sim_store_whole(to, dst, sim_load_whole(from, src));
}

static void run_cast(sim_work *w) {
    const sim_view *out = &w->view[0], *in = &w->view[1];
    int64_t at[SIM_DIMS] = {0};
    do convert(out->dtype, sim_at(out, at), in->dtype, sim_at(in, at));
    while (sim_next(in->shape, in->ndim, at));
}

static tn_status launch_cast(const tn_call *call, const void *args) {
    const tn__cast_args *a = args;
    if (tn_view_dtype(a->out) > TN_F64 || tn_view_dtype(a->input) > TN_F64) return TN_DECLINE;
    sim_work *w = sim_launch(call, run_cast);
    if (!w) return TN_E_MEMORY;
    sim_give(w, a->out);
    sim_give(w, a->input);
    return sim_go(call, w);
}

void sim_register_copy(sim_registrar *r) {
    sim_register(r, "_copy", TN_SIG__copy, launch_copy, NULL, TN_DTYPE_ANY);
    sim_register(r, "_cast", TN_SIG__cast, launch_cast, NULL, TN_DTYPE_ANY);
}
