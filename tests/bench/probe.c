/* probe.c: what the machine can do at most. `probe THREADS` prints one JSON object: rates of reading
 * from memory, from the last-level cache and from the second-level cache, in bytes per second, and
 * of float multiply-adds, in operations per second (two per multiply-add), of all threads together.
 * Compiled for the machine that builds it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LANES = 16, STREAMS = 12, TRIALS = 25, MAX_THREADS = 64 };

typedef float floats __attribute__((vector_size(LANES * sizeof(float)), aligned(64)));
typedef int64_t words __attribute__((vector_size(64), aligned(64)));

typedef struct {
    words *data;  /* what a thread reads */
    size_t bytes; /* how much of it, a multiple of a kilobyte; 0 asks for multiply-adds */
    long repeats;
    pthread_barrier_t *start;
} task;

static volatile int64_t sink; /* keeps results from being optimised away */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int64_t read_all(const words *data, size_t bytes) {
    words acc[8] = {0}, all = {0};
    int64_t r = 0;
    for (size_t i = 0; i < bytes / sizeof *data; i += 8) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) acc[k] += data[i + (size_t)k];
    }
    for (int k = 0; k < 8; k++) all += acc[k];
    for (int k = 0; k < 8; k++) r += all[k];
    return r;
}

static int64_t multiply_add(long repeats) {
    floats acc[STREAMS], all = {0};
    const floats x = all + 0.999F, y = all + 0.001F;
    for (int k = 0; k < STREAMS; k++) acc[k] = all + (float)k;
    for (long i = 0; i < repeats; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < STREAMS; k++) acc[k] = acc[k] * x + y;
    }
    for (int k = 0; k < STREAMS; k++) all += acc[k];
    return (int64_t)all[0];
}

static void *work(void *arg) {
    const task *t = arg;
    int64_t r = 0;
    pthread_barrier_wait(t->start);
    if (!t->bytes) r = multiply_add(t->repeats);
    for (long i = 0; t->bytes && i < t->repeats; i++) {
        r += read_all(t->data, t->bytes);
        __asm__ volatile("" ::: "memory"); /* the next round reads again */
    }
    sink = r;
    return NULL;
}

/* The shortest time in which all threads do their task. */
static double fastest(int threads, words **data, size_t bytes, long repeats) {
    double best = 1e9;
    for (int trial = 0; trial < TRIALS; trial++) {
        pthread_t ids[MAX_THREADS];
        task tasks[MAX_THREADS];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
        for (int k = 0; k < threads; k++) {
            tasks[k] = (task){data[k], bytes, repeats, &start};
            if (pthread_create(&ids[k], NULL, work, &tasks[k]) != 0) exit(1);
        }
        double from = now();
        pthread_barrier_wait(&start);
        for (int k = 0; k < threads; k++) pthread_join(ids[k], NULL);
        double took = now() - from;
        pthread_barrier_destroy(&start);
        if (took < best) best = took;
    }
    return best;
}

int main(int argc, char **argv) {
    const size_t memory = (size_t)96 << 20;
    const struct {
        const char *name;
        size_t bytes; /* of a thread */
        long repeats;
    } reads[] = {
        {"memory", memory, 1}, {"l3", (size_t)4 << 20, 40}, {"l2", (size_t)256 << 10, 600}};
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    words *data[MAX_THREADS];
    if (threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "usage: probe THREADS\n");
        return 2;
    }
    for (int k = 0; k < threads; k++) {
        data[k] = aligned_alloc(64, memory);
        if (!data[k]) return 1;
        memset(data[k], 1, memory);
    }
    printf("{");
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        double took = fastest(threads, data, reads[i].bytes, reads[i].repeats);
        double total = (double)reads[i].bytes * (double)reads[i].repeats * threads;
        printf("\"%s\": %.4g, ", reads[i].name, total / took);
    }
    const long repeats = 1000000;
    double took = fastest(threads, data, 0, repeats);
    printf("\"flops\": %.4g}\n", 2.0 * LANES * STREAMS * (double)repeats * threads / took);
    for (int k = 0; k < threads; k++) free(data[k]);
    return 0;
}
