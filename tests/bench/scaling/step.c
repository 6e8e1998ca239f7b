/* step.c: the exchanges of a data-parallel training step through the engine for MPI, for SimGrid.
 *
 *     step BYTES READY [BYTES READY]... END
 *
 * A bucket of BYTES is ready READY seconds after the step has begun, and the backward pass ends after
 * END seconds. Two processes play a rank: one computes and says which buckets are ready, the other, as
 * the thread that drives the engine, sums them one after the other. Rank 0 prints how long the slowest
 * rank took, in seconds of simulated time. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon/dtype.h>
#include <tenon/engine.h>

enum { READY_TAG = 1 };
/* When all begin, after what precedes: groups are made by then. */
static const double BEGIN = 1.0;
/* Of a processor of the simulated machines: simulate.py. */
static const double OPERATIONS_PER_SECOND = 1e9;

const tn_engine *tn_engine_main(uint32_t version);

static void must(tn_status st, const char *why) {
    if (st == TN_OK) return;
    fprintf(stderr, "step: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void pass(double seconds) {
    if (seconds > 0) smpi_execute_flops(seconds * OPERATIONS_PER_SECOND);
}

/* The group of the processes that sum: those of odd numbers. */
static void *join_summing(const tn_engine *engine, void *world, int size, char *why) {
    int32_t n = size / 2;
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);
    void *group = NULL;
    if (!ranks) must(TN_E_MEMORY, "out of memory");
    for (int32_t i = 0; i < n; i++) ranks[i] = 2 * i + 1;
    must(engine->part(world, ranks, n, 1, 1000, &group, why), why);
    free(ranks);
    return group;
}

static void compute(int rank, int buckets, char **facts) {
    double now = 0;
    for (int i = 0; i < buckets; i++) {
        double ready = atof(facts[2 * i + 1]);
        pass(ready - now);
        now = ready;
        MPI_Send(NULL, 0, MPI_BYTE, rank + 1, READY_TAG, MPI_COMM_WORLD);
    }
    pass(atof(facts[2 * buckets]) - now);
}

static void sum(const tn_engine *engine, void *group, int rank, int buckets, char **facts,
                char *why) {
    for (int i = 0; i < buckets; i++) {
        int64_t bytes = atoll(facts[2 * i]);
        float *values = malloc((size_t)bytes);
        if (!values) must(TN_E_MEMORY, "out of memory");
        MPI_Recv(NULL, 0, MPI_BYTE, rank - 1, READY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const tn_exchange x = {
            .kind = TN_EXCHANGE_ALL_REDUCE,
            .op = TN_EXCHANGE_SUM,
            .dtype = TN_F32,
            .element = TN_F32,
            .count = bytes / (int64_t)sizeof *values,
            .in = values,
            .out = values,
            .timeout_ms = 1000,
        };
        void *request = NULL;
        must(engine->start(group, &x, &request, why), why);
        for (int32_t done = 0; !done;) must(engine->test(group, request, &done, why), why);
        free(values);
    }
}

int main(int argc, char **argv) {
    int level = 0, rank = 0, size = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char why[TN_ENGINE_WHY] = "";
    const tn_engine *engine = tn_engine_main(TN_ENGINE_VERSION);
    if (!engine || argc < 4 || argc % 2 || size % 2) must(TN_E_VALUE, "wrong arguments");
    const tn_engine_place place = {
        .struct_size = sizeof place, .rank = rank, .size = size, .timeout_ms = 1000};
    void *world = NULL;
    must(engine->open(&place, &world, why), why);
    const int sums = rank % 2, buckets = (argc - 2) / 2;
    void *group = sums ? join_summing(engine, world, size, why) : NULL;
    pass(BEGIN - MPI_Wtime());
    if (sums)
        sum(engine, group, rank, buckets, argv + 1, why);
    else
        compute(rank, buckets, argv + 1);
    double took = MPI_Wtime() - BEGIN, slowest = 0;
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.9f\n", slowest);
    if (group) engine->close(group);
    engine->close(world);
    MPI_Finalize();
    return 0;
}
