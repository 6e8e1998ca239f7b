/* mode_perf.c: the time of a call by size: until the device is done, until the host is free again, and on
 * the CPU. Pointwise operators and reductions run on vectors of several lengths, the others on their
 * first sample. */
#include "conform.h"

#include <string.h>

static const tn_device cpu = {0, 0};
static const double LONG_ENOUGH = 0.01; /* seconds */
enum { WARM = 3, MOST_CALLS = 2000 };

typedef struct timing {
    double done, host; /* microseconds per call */
} timing;

/* Calls again and again; the results of each call are dropped at once, as in a program. */
static tn_status repeat(cf_run *r, const cf_sample *s, const cf_build *b, int32_t most,
                        timing *ret_timing) {
    cf_call c;
    int32_t n = 0;
    tn_status st = cf_call_build(&c, r->op, s, b);
    if (st == TN_OK) st = tn_device_sync(b->device);
    double start = cf_seconds();
    while (st == TN_OK && n < most && cf_seconds() - start < LONG_ENOUGH) {
        st = cf_call_run(&c, CF_CALL, NULL);
        cf_call_drop(&c);
        n++;
    }
    ret_timing->host = 1e6 * (cf_seconds() - start) / n;
    if (st == TN_OK) st = tn_device_sync(b->device);
    ret_timing->done = 1e6 * (cf_seconds() - start) / n;
    cf_call_free(&c);
    return st;
}

static tn_status measure(cf_run *r, const cf_sample *s, cf_build b, tn_device device,
                         timing *ret_timing) {
    b.device = device;
    tn_status st = repeat(r, s, &b, WARM, ret_timing);
    return st == TN_OK ? repeat(r, s, &b, MOST_CALLS, ret_timing) : st;
}

/* How often calls went to the CPU so far. */
static uint64_t copies(const cf_run *r) {
    uint64_t wide = 0, host = 0;
    (void)tn_fallback_count(r->op->name, r->device.slot, &wide, &host);
    return host;
}

static void one_size(cf_run *r, const cf_sample *s, const cf_variant *v) {
    cf_build b = {v, r->device, r->row->dtype, r->options->seed, false};
    timing here, there;
    uint64_t before = copies(r);
    cf_at(r, "%s", v->name);
    if (measure(r, s, b, cpu, &there) != TN_OK) return; /* not a call that can be made */
    tn_status st = measure(r, s, b, r->device, &here);
    r->cases++;
    if (st != TN_OK) {
        cf_fail(r, "%s: raised: %s", v->name, cf_why());
        return;
    }
    cf_add(&r->note, "%s%7s: %9.2f us, host %9.2f us, CPU %9.2f us%s", r->note.n ? "; " : "",
           v->name, here.done, here.host, there.done,
           copies(r) > before ? ", copied to the CPU" : "");
}

void cf_mode_perf(cf_run *r) {
    static const cf_variant sizes[] = {
        {.name = "16", .shaping = CF_VECTOR, .size = 16},
        {.name = "4096", .shaping = CF_VECTOR, .size = 4096},
        {.name = "1048576", .shaping = CF_VECTOR, .size = 1048576},
    };
    static const cf_variant sample = {.name = "sample"};
    bool sized = strcmp(r->op->kind, "pointwise") == 0 || strcmp(r->op->kind, "reduction") == 0;
    if (!sized) one_size(r, &r->op->samples[0], &sample);
    for (size_t i = 0; sized && i < sizeof sizes / sizeof *sizes; i++)
        one_size(r, &r->op->samples[0], &sizes[i]);
}
