/* generator.c: the named interface "tn.generator/1", offered with TENON_SIM_GENERATOR=1, and uniform_,
 * the one kernel that draws from it: splitmix64 by position. A launch takes its positions at once,
 * so that kernels may run late and in any order. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#include <tenon/op_args.h>

/* Guarded by the lock of core's generator. */
typedef struct sim_generator {
    uint64_t seed, drawn; /* drawn: the numbers that are taken */
} sim_generator;

static tn_status generator_create(void *ctx, int32_t index, uint64_t seed, void **ret_generator) {
    sim_generator *g = calloc(1, sizeof *g);
    (void)ctx, (void)index;
    if (!g) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    g->seed = seed;
    *ret_generator = g;
    return TN_OK;
}

static void generator_destroy(void *ctx, int32_t index, void *generator) {
    (void)ctx, (void)index;
    free(generator);
}

static tn_status generator_seed(void *ctx, int32_t index, void *generator, uint64_t seed) {
    sim_generator *g = generator;
    (void)ctx, (void)index;
    g->seed = seed;
    g->drawn = 0;
    return TN_OK;
}

static tn_status generator_get_state(void *ctx, int32_t index, void *generator, void *ret_state) {
    (void)ctx, (void)index;
    memcpy(ret_state, generator, sizeof(sim_generator));
    return TN_OK;
}

static tn_status generator_set_state(void *ctx, int32_t index, void *generator, const void *state) {
    (void)ctx, (void)index;
    memcpy(generator, state, sizeof(sim_generator));
    return TN_OK;
}

const tn_generator_iface sim_generator_iface = {
    .struct_size = sizeof sim_generator_iface,
    .state_bytes = sizeof(sim_generator),
    .create = generator_create,
    .destroy = generator_destroy,
    .seed = generator_seed,
    .get_state = generator_get_state,
    .set_state = generator_set_state,
};

/* ---- The kernel --------------------------------------------------------------------------------*/

/* Number `position` of a seed, in [0, 1). */
static double number(uint64_t seed, uint64_t position) {
    uint64_t z = seed + (position + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 40) / 16777216.0;
}

static void run_uniform(sim_work *w) {
    const sim_view *out = &w->view[0];
    uint64_t seed = (uint64_t)w->whole[0], position = (uint64_t)w->whole[1];
    int64_t at[SIM_DIMS] = {0};
    do {
        double x = w->real[0] + number(seed, position++) * (w->real[1] - w->real[0]);
        sim_store(out->dtype, sim_at(out, at), x);
    } while (sim_next(out->shape, out->ndim, at));
}

/* The next positions of the call's generator. */
static tn_status take(const tn_call *call, const tn_uniform__args *a, sim_work *w) {
    tn_rng rng;
    tn_status st = call->host->rng_acquire(call, a->generator, 0, &rng);
    if (st != TN_OK) return st;
    if (rng.kind == TN_RNG_DEVICE) {
        sim_generator *g = rng.handle;
        w->whole[0] = (int64_t)g->seed;
        w->whole[1] = (int64_t)g->drawn;
        g->drawn += (uint64_t)a->self->numel;
    }
    call->host->rng_release(call, a->generator, &rng);
    return rng.kind == TN_RNG_DEVICE ? TN_OK : TN_DECLINE;
}

static tn_status launch_uniform(const tn_call *call, const void *args) {
    const tn_uniform__args *a = args;
    if (a->self->numel == 0) return TN_OK;
    sim_work *w = sim_launch(call, run_uniform);
    if (!w) return TN_E_MEMORY;
    w->real[0] = a->from;
    w->real[1] = a->to;
    sim_give(w, a->self);
    if (w->status == TN_OK) w->status = take(call, a, w);
    return sim_go(call, w);
}

void sim_register_random(sim_registrar *r) {
    if (!sim_settings.generator) return;
    sim_register(r, "uniform_", TN_SIG_uniform_, launch_uniform, NULL, TN_F32);
}
