/* matmul.c: mm and bmm. */
#include "kernels.h"

#include <tenon/op_args.h>

static double dot(const sim_view *a, const sim_view *b, int64_t *ia, int64_t *ib, int32_t ndim) {
    double sum = 0;
    for (int64_t k = 0; k < a->shape[ndim - 1]; k++) {
        ia[ndim - 1] = ib[ndim - 2] = k;
        sum += sim_load(a->dtype, sim_at(a, ia)) * sim_load(b->dtype, sim_at(b, ib));
    }
    return sum;
}

static int64_t whole_dot(const sim_view *a, const sim_view *b, int64_t *ia, int64_t *ib,
                         int32_t ndim) {
    uint64_t sum = 0;
    for (int64_t k = 0; k < a->shape[ndim - 1]; k++) {
        ia[ndim - 1] = ib[ndim - 2] = k;
        sum += (uint64_t)sim_load_whole(a->dtype, sim_at(a, ia)) *
               (uint64_t)sim_load_whole(b->dtype, sim_at(b, ib));
    }
    return (int64_t)sum;
}

/* out (.., n, m) = a (.., n, k) @ b (.., k, m), with or without a dimension of batches */
static void run_matmul(sim_work *w) {
    const sim_view *out = &w->view[0], *a = &w->view[1], *b = &w->view[2];
    int32_t ndim = out->ndim;
    int64_t at[3] = {0}, ia[3], ib[3];
    do {
        ia[0] = ib[0] = at[0];
        ia[ndim - 2] = at[ndim - 2];
        ib[ndim - 1] = at[ndim - 1];
        if (sim_is_float(out->dtype))
            sim_store(out->dtype, sim_at(out, at), dot(a, b, ia, ib, ndim));
        else
            sim_store_whole(out->dtype, sim_at(out, at), whole_dot(a, b, ia, ib, ndim));
    } while (sim_next(out->shape, ndim, at));
}

static tn_status launch(const tn_call *call, const tn_view *a, const tn_view *b,
                        const tn_view *out) {
    if (out->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_matmul);
    if (!w) return TN_E_MEMORY;
    sim_give(w, out);
    sim_give(w, a);
    sim_give(w, b);
    return sim_go(call, w);
}

static tn_status launch_mm(const tn_call *call, const void *args) {
    const tn_mm_args *a = args;
    return launch(call, a->input, a->mat2, a->out);
}

static tn_status launch_bmm(const tn_call *call, const void *args) {
    const tn_bmm_args *a = args;
    return launch(call, a->input, a->mat2, a->out);
}

void sim_register_matmul(sim_registrar *r) {
    sim_register_floats(r, "mm", TN_SIG_mm, launch_mm, NULL);
    sim_register_floats(r, "bmm", TN_SIG_bmm, launch_bmm, NULL);
    sim_register(r, "mm", TN_SIG_mm, launch_mm, NULL, TN_I64);
    sim_register(r, "bmm", TN_SIG_bmm, launch_bmm, NULL, TN_I64);
}
