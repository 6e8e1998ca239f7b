/* nvtx.c: named spans of time for NVIDIA's tools, by whichever of NVTX's libraries is there; without
 * one they go nowhere. The named interface "tn.profiler/1" and what runtime.c offers. */
#include "tables.h"

#include <pthread.h>
#include <string.h>

typedef struct nvtx_table {
    int (*push)(const char *name);
    int (*pop)(void);
    void (*mark)(const char *name);
    uint64_t (*start)(const char *name);
    void (*end)(uint64_t range);
} nvtx_table;

static nvtx_table nvtx; /* all zeroes: there is no library */
static const cuda_symbol symbols[] = {
    {"nvtxRangePushA", offsetof(nvtx_table, push)},
    {"nvtxRangePop", offsetof(nvtx_table, pop)},
    {"nvtxMarkA", offsetof(nvtx_table, mark)},
    {"nvtxRangeStartA", offsetof(nvtx_table, start)},
    {"nvtxRangeEnd", offsetof(nvtx_table, end)},
};

static void open_once(void) {
    static const char *const stems[] = {"libnvToolsExt", "libnvtx3interop"};
    static const int versions[] = {1, 0};
    for (size_t i = 0; i < sizeof stems / sizeof stems[0] && !nvtx.push; i++) {
        nvtx_table found;
        void *library = cuda_open_library(stems[i], versions);
        if (library &&
            !cuda_find_symbols(library, symbols, sizeof symbols / sizeof symbols[0], &found))
            nvtx = found;
    }
}

static bool is_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    return nvtx.push != NULL;
}

int32_t cuda_range_push(const char *name) { return is_open() ? nvtx.push(name) : -1; }
int32_t cuda_range_pop(void) { return is_open() ? nvtx.pop() : -1; }
uint64_t cuda_range_start(const char *name) { return is_open() ? nvtx.start(name) : 0; }

void cuda_mark(const char *name) {
    if (is_open()) nvtx.mark(name);
}

void cuda_range_end(uint64_t range) {
    if (is_open()) nvtx.end(range);
}

static void span_push(void *ctx, const char *name) {
    (void)ctx;
    cuda_range_push(name);
}

static void span_pop(void *ctx) {
    (void)ctx;
    cuda_range_pop();
}

static void span_mark(void *ctx, const char *name) {
    (void)ctx;
    cuda_mark(name);
}

const tn_profiler_iface cuda_profiler_iface = {
    .struct_size = sizeof cuda_profiler_iface,
    .push = span_push,
    .pop = span_pop,
    .mark = span_mark,
};
