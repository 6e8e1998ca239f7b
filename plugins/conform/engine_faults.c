/* engine_faults.c: what happens through core and an engine when ranks differ, do not come, or die. */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tenon/processes.h>

#include "engine.h"

/* Beyond an exchange's own deadline until its failure must have been said. */
#define GRACE_SECONDS 2.0

static tn_exchange ordinary(const cf_rank *r, float *memory) {
    return (tn_exchange){.kind = TN_EXCHANGE_ALL_REDUCE,
                         .dtype = TN_F32,
                         .element = TN_F32,
                         .count = 3,
                         .out = memory,
                         .timeout_ms = (int64_t)(1e3 * r->options->timeout)};
}

/* Runs an operation through core; what goes wrong is cf_why(). */
static tn_status operate(cf_rank *r, const tn_exchange *x) {
    tn_work *work = NULL;
    tn_status st = tn_world_start(r->world, x, 0, &work);
    int64_t most_ms = (int64_t)(1e3 * (r->options->timeout + 2 * GRACE_SECONDS));
    if (st == TN_OK) st = tn_work_wait(work, most_ms);
    if (st == TN_OK && !tn_work_done(work)) {
        cf_rank_fail(r, "%s: neither done nor given up in %g s", cf_exchange_text(x),
                     (double)most_ms / 1e3);
        r->lost = true;
        _exit(1); /* the engine has the memory */
    }
    tn_work_unref(work);
    return st;
}

static bool sums(cf_rank *r) {
    float memory[3] = {1, 2, 3};
    tn_exchange x = ordinary(r, memory);
    if (operate(r, &x) != TN_OK) {
        cf_rank_fail(r, "%s: %s", cf_exchange_text(&x), cf_why());
        r->lost = true;
        return false;
    }
    r->cases++;
    if (memory[2] != 3.0F * (float)r->size)
        cf_rank_fail(r, "%s: element 2 is %g", cf_exchange_text(&x), (double)memory[2]);
    return true;
}

/* The last rank does something else: all of them hear of both, and go on. */
static void differ(cf_rank *r, tn_exchange usual, tn_exchange other, const char *said) {
    bool last = r->rank == r->size - 1;
    tn_status st = operate(r, last ? &other : &usual);
    r->cases++;
    if (st == TN_OK)
        cf_rank_fail(r, "ranks that differ in %s hear nothing of it", said);
    else if (!strstr(cf_why(), "different operations"))
        cf_rank_fail(r, "ranks that differ in %s hear: %s", said, cf_why());
    if (!strstr(cf_why(), "different operations")) r->lost = true;
}

static void check_compare(cf_rank *r) {
    float memory[8] = {0};
    int32_t alone = r->size == 1;
    tn_exchange usual = ordinary(r, memory), other = usual;
    if (!sums(r) || alone) return;
    other.count = 4;
    differ(r, usual, other, "the number of elements");
    if (r->lost) return;
    other = usual;
    other.op = TN_EXCHANGE_MAX;
    differ(r, usual, other, "the reduction");
    if (r->lost) return;
    other = usual;
    other.dtype = other.element = TN_I32;
    differ(r, usual, other, "the dtype");
    if (r->lost) return;
    other = usual;
    other.kind = TN_EXCHANGE_BARRIER;
    differ(r, usual, other, "the operation");
    if (r->lost) return;
    usual.kind = TN_EXCHANGE_BROADCAST;
    other = usual;
    other.peer = 1;
    differ(r, usual, other, "the root");
    if (!r->lost) sums(r);
}

/* An operation that cannot end says so in time. */
static void must_fail(cf_rank *r, const char *when) {
    float memory[3] = {0};
    tn_exchange x = ordinary(r, memory);
    double start = cf_seconds();
    tn_status st = operate(r, &x);
    double took = cf_seconds() - start;
    r->cases++;
    r->lost = true;
    if (st == TN_OK) {
        cf_rank_fail(r, "%s, and the operation is done", when);
        return;
    }
    if (took > r->options->timeout + GRACE_SECONDS)
        cf_rank_fail(r, "%s, which is said after %.1f s, not %g", when, took, r->options->timeout);
    if (!strstr(cf_why(), "all_reduce(3 x float32, sum)") || strstr(cf_why(), "did not say why"))
        cf_rank_fail(r, "%s, of which is said: %s", when, cf_why());
    if (operate(r, &x) == TN_OK) cf_rank_fail(r, "%s, and the group goes on", when);
}

static void check_deadline(cf_rank *r) {
    if (!sums(r) || r->size == 1) return;
    if (r->rank < r->size - 1) {
        must_fail(r, "a rank does not come");
        return;
    }
    double end = cf_seconds() + r->options->timeout + GRACE_SECONDS;
    while (cf_seconds() < end) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    r->cases++;
    r->lost = true;
}

static void check_death(cf_rank *r) {
    if (!sums(r) || r->size == 1) return;
    if (r->rank == r->size - 1) kill(getpid(), SIGKILL);
    must_fail(r, "a rank was killed");
}

static void check_abort(cf_rank *r) {
    if (!sums(r) || r->size == 1) return;
    if (r->rank == 0) {
        tn_world_abort(r->world, 3);
        r->lost = true;
        r->cases++;
        return;
    }
    must_fail(r, "rank 0 has ended the group");
}

const cf_engine_check cf_engine_faults[] = {
    {"compare", check_compare, 0},
    {"deadline", check_deadline, 0},
    {"death", check_death, 1},
    {"abort", check_abort, CF_RANKS},
    {NULL, NULL, 0},
};
