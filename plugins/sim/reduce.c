/* reduce.c: reductions. An operator is a row: where to start, how to take in one element, and what to
 * make of the sum at the end. Everything accumulates in double or int64. */
#include "kernels.h"

#include <math.h>

#include <tenon/op_args.h>

typedef struct reduction {
    const char *op;
    uint64_t sig;
    double start;
    double (*real)(double sum, double x);
    int64_t whole_start;
    int64_t (*whole)(int64_t sum, int64_t x);
    int32_t dtype; /* TN_I64 or TN_BOOL: of the formula for whole numbers */
    bool mean;     /* divide by the number of elements */
} reduction;

static double plus(double sum, double x) { return sum + x; }
static double times(double sum, double x) { return sum * x; }
static double larger(double best, double x) { return x > best || x != x ? x : best; }
static double smaller(double best, double x) { return x < best || x != x ? x : best; }
static int64_t whole_plus(int64_t sum, int64_t x) { return (int64_t)((uint64_t)sum + (uint64_t)x); }
static int64_t whole_times(int64_t sum, int64_t x) {
    return (int64_t)((uint64_t)sum * (uint64_t)x);
}
static int64_t whole_larger(int64_t best, int64_t x) { return x > best ? x : best; }
static int64_t whole_smaller(int64_t best, int64_t x) { return x < best ? x : best; }
static int64_t either(int64_t any, int64_t x) { return any || x; }
static int64_t both(int64_t all, int64_t x) { return all && x; }

/* One result, from the elements that `at` reaches along the reduced dimensions. */
static void reduce_one(const sim_work *w, sim_walk *at, int64_t count) {
    const reduction *f = w->row;
    const tn_plan *p = &w->plan;
    double sum = f->start;
    int64_t whole = f->whole_start;
    for (int64_t i = 0; i < count; i++) {
        if (sim_is_float(w->dtype))
            sum = f->real(sum, sim_load(p->dtype[1], at->at[1]));
        else
            whole = f->whole(whole, sim_load_whole(p->dtype[1], at->at[1]));
        sim_walk_next(p, at, p->reduce_mask);
    }
    if (sim_is_float(w->dtype))
        sim_store(p->dtype[0], at->at[0], f->mean ? sum / (double)count : sum);
    else
        sim_store_whole(p->dtype[0], at->at[0], whole);
}

static void run_reduce(sim_work *w) {
    const tn_plan *p = &w->plan;
    int64_t count = 1;
    sim_walk at;
    for (int32_t d = 0; d < p->ndim; d++)
        if (p->reduce_mask >> d & 1u) count *= p->shape[d];
    sim_walk_start(p, &at);
    do reduce_one(w, &at, count);
    while (sim_walk_next(p, &at, ~p->reduce_mask));
}

static tn_status launch_reduce(const tn_call *call, const void *args) {
    sim_work *w = sim_launch(call, run_reduce);
    if (!w) return TN_E_MEMORY;
    sim_give_plan(w, *(const tn_plan *const *)args);
    return sim_go(call, w);
}

static const reduction reductions[] = {
    {"sum", TN_SIG_sum, 0, plus, 0, whole_plus, TN_I64, false},
    {"_prod", TN_SIG__prod, 1, times, 1, whole_times, TN_I64, false},
    {"mean", TN_SIG_mean, 0, plus, 0, NULL, 0, true},
    {"amax", TN_SIG_amax, -INFINITY, larger, INT64_MIN, whole_larger, TN_I64, false},
    {"amin", TN_SIG_amin, INFINITY, smaller, INT64_MAX, whole_smaller, TN_I64, false},
    {"_any", TN_SIG__any, 0, NULL, 0, either, TN_BOOL, false},
    {"_all", TN_SIG__all, 0, NULL, 1, both, TN_BOOL, false},
};

void sim_register_reduce(sim_registrar *r) {
    for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++) {
        const reduction *f = &reductions[i];
        if (f->real) sim_register_floats(r, f->op, f->sig, launch_reduce, f);
        if (f->whole) sim_register(r, f->op, f->sig, launch_reduce, f, f->dtype);
    }
}
