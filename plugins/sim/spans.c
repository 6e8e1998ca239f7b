/* spans.c: "tn.profiler/1": spans of time, written line by line into the file of TENON_SIM_SPANS. */
#include "sim.h"

#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;

/* "push matmul", with the thread that nests it in front. */
static void write_line(const char *what, const char *name) {
    pthread_mutex_lock(&lock);
    if (!file) file = fopen(sim_settings.spans, "a");
    if (file) {
        fprintf(file, "%d %s %s\n", (int)gettid(), what, name);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
}

static void span_push(void *ctx, const char *name) {
    (void)ctx;
    write_line("push", name);
}

static void span_pop(void *ctx) {
    (void)ctx;
    write_line("pop", "");
}

static void span_mark(void *ctx, const char *name) {
    (void)ctx;
    write_line("mark", name);
}

const tn_profiler_iface sim_profiler_iface = {
    .struct_size = sizeof sim_profiler_iface,
    .push = span_push,
    .pop = span_pop,
    .mark = span_mark,
};
