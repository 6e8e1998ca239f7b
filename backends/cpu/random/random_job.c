/* random_job.c: runs a drawing operator over a tensor, in batches: on the pool with Philox, on the
 * calling thread with mt19937. The latter holds the generator's lock, but not while it polls, since
 * whoever answers may be waiting for that lock. */
#include "random_priv.h"

tn_status rnd_fill_batches(void *arg, int64_t begin, int64_t end) {
    const rnd_job *j = arg;
    double numbers[RND_BATCH];
    for (int64_t k = begin; k < end; k++) {
        int64_t at = k * RND_BATCH, left = j->walk.numel - at;
        int64_t n = left < RND_BATCH ? left : RND_BATCH;
        void *direct = rnd_direct(&j->walk, at, n, j->fill_kind);
        j->fill(j, at, n, direct ? direct : numbers);
        if (!direct) rnd_store(&j->walk, at, n, j->fill_kind, numbers);
    }
    return TN_OK;
}

tn_status rnd_mt_take(const tn_call *call, tn_generator *gen, tn_rng *rng) {
    tn_status st = call->host->rng_acquire(call, gen, 0, rng);
    if (st != TN_OK || rng->kind == TN_RNG_MT19937) return st;
    call->host->rng_release(call, gen, rng);
    return call->host->fail(TN_E_STATE, 0, "the kind of random numbers changed during a draw");
}

enum { TURN = 64 }; /* batches between looks for an interrupt */

tn_status rnd_draw_batches(const tn_call *call, tn_generator *gen, const rnd_job *j, tn_rng *rng) {
    double numbers[RND_BATCH];
    for (int64_t at = 0; at < j->walk.numel; at += RND_BATCH) {
        int64_t left = j->walk.numel - at, n = left < RND_BATCH ? left : RND_BATCH;
        if (at % (TURN * RND_BATCH) == 0 && at > 0) {
            call->host->rng_release(call, gen, rng);
            tn_status st = cpu_poll();
            if (st == TN_OK) st = rnd_mt_take(call, gen, rng);
            if (st != TN_OK) return st;
        }
        void *direct = rnd_direct(&j->walk, at, n, j->draw_kind);
        j->draw(j, rng, at, n, direct ? direct : numbers);
        if (!direct) rnd_store(&j->walk, at, n, j->draw_kind, numbers);
    }
    return TN_OK;
}

tn_status rnd_begin(const tn_call *call, tn_generator *gen, rnd_job *j, const tn_view *self,
                    tn_rng *ret_rng) {
    int64_t n = self->dl_code == 5 ? 2 * self->numel : self->numel;
    tn_status st = call->host->rng_acquire(call, gen, rnd_blocks(n, j->words), ret_rng);
    if (st != TN_OK || ret_rng->kind != TN_RNG_PHILOX) return st;
    j->seed = ret_rng->seed;
    j->offset = ret_rng->offset;
    call->host->rng_release(call, gen, ret_rng);
    return TN_OK;
}

tn_status rnd_run(const tn_call *call, tn_generator *gen, rnd_job *j, const tn_view *self,
                  const tn_view *other) {
    tn_rng rng;
    if (self->numel == 0) return TN_OK;
    tn_status st = rnd_begin(call, gen, j, self, &rng);
    if (st != TN_OK) return st;
    rnd_walk_init(&j->walk, self, other, rng.kind == TN_RNG_MT19937);
    if (rng.kind == TN_RNG_PHILOX) {
        int64_t batches = (j->walk.numel + RND_BATCH - 1) / RND_BATCH;
        return cpu_parallel(batches, 16, rnd_fill_batches, j);
    }
    st = rnd_draw_batches(call, gen, j, &rng);
    if (st == TN_OK) call->host->rng_release(call, gen, &rng);
    return st;
}
