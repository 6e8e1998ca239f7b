/* mode_threads.c: many threads call one operator at once, on inputs of their own and on inputs that they
 * share, and each looks at its own results. */
#include "conform.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 8 };

static const cf_variant plain = {.name = "plain"};

typedef struct crew {
    cf_run *run;
    const cf_sample *sample;
    cf_build build;
    cf_array want[CF_RESULTS];
    int32_t n;
    atomic_bool go; /* all start together */
} crew;

typedef struct member {
    crew *crew;
    pthread_t thread;
    cf_text why; /* what went wrong first */
} member;

static void one_round(member *m) {
    crew *all = m->crew;
    const cf_run *r = all->run;
    cf_call c;
    tn_status st = cf_call_build(&c, r->op, all->sample, &all->build);
    if (st == TN_OK) st = cf_call_run(&c, CF_CALL, NULL);
    for (int32_t i = 0; st == TN_OK && !m->why.n && i < c.nresults && i < all->n; i++) {
        cf_array got = {0};
        st = cf_array_read(c.results[i], &got);
        cf_measure measure = cf_measure_of(r->data, r->op, r->row->dtype);
        if (st == TN_OK) cf_compare(&got, &all->want[i], NULL, &measure, &m->why);
        cf_array_free(&got);
    }
    if (st != TN_OK) cf_add(&m->why, "raised: %s", cf_why());
    cf_call_free(&c);
}

static void *work(void *arg) {
    member *m = arg;
    while (!m->crew->go) sched_yield();
    for (int32_t i = 0; i < ROUNDS && !m->why.n; i++) one_round(m);
    return NULL;
}

/* What one thread alone gets from the device; false: nothing that could be compared. */
static bool alone(crew *all) {
    cf_call c;
    tn_status st = cf_call_build(&c, all->run->op, all->sample, &all->build);
    if (st == TN_OK) st = cf_call_run(&c, CF_CALL, NULL);
    for (int32_t i = 0; st == TN_OK && i < c.nresults; i++) {
        st = cf_array_read(c.results[i], &all->want[i]);
        all->n += st == TN_OK;
    }
    cf_call_free(&c);
    return st == TN_OK;
}

static void together(crew *all) {
    member members[THREADS] = {{0}};
    int32_t started = 0;
    for (bool good = true; good && started < THREADS; started += good) {
        members[started].crew = all;
        good = pthread_create(&members[started].thread, NULL, work, &members[started]) == 0;
    }
    all->go = true;
    if (started < 2) cf_fail(all->run, "the system lets no threads start");
    for (int32_t i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        if (members[i].why.n)
            cf_fail(all->run, "%d threads at once, thread %d: %s", THREADS, i, members[i].why.s);
        cf_free(&members[i].why);
    }
}

void cf_mode_threads(cf_run *r) {
    bool fixed = !cf_is_random(r->op) && !(r->op->forms & CF_UNSET);
    for (int32_t i = 0; i < r->op->nsamples && fixed && !r->cases; i++) {
        crew *all = cf_alloc(sizeof *all);
        all->run = r;
        all->sample = &r->op->samples[i];
        all->build = (cf_build){&plain, r->device, r->row->dtype, r->options->seed, false};
        cf_at(r, "%d threads at once", THREADS);
        if (alone(all)) {
            together(all);
            r->cases += THREADS * ROUNDS;
        }
        for (int32_t k = 0; k < all->n; k++) cf_array_free(&all->want[k]);
        free(all);
    }
}
