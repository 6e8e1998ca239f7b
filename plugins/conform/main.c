/* main.c: tenon-conform: what a device can do, and what it does wrong. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "facts.h"

static int complain(const cf_text *why, int status) {
    fprintf(stderr, "tenon-conform: %s\n", why->s ? why->s : "failed");
    return status;
}

static int list(const cf_plan *p) {
    char name[128];
    for (int32_t i = 0; i < p->n; i++) puts(cf_row_name(&p->rows[i], name, sizeof name));
    return 0;
}

static bool write_reports(const cf_options *o, const cf_data *d, const cf_plan *p,
                          const cf_verdict *v) {
    bool good = !o->json || cf_report_json(o, p, v);
    good &= !o->junit || cf_report_junit(o, p, v);
    good &= !o->html || cf_report_html(o, d, p, v);
    return good;
}

static int run(const cf_options *o, const cf_data *d, cf_plan *p, char **argv) {
    cf_text why = {0};
    static cf_device_facts facts;
    static cf_verdict verdict;
    if (o->resume && !cf_journal_open(o, p, &why)) return complain(&why, 2);
    if (!cf_run_probe(o, d, argv, &facts, &why)) {
        fprintf(stderr, "tenon-conform: %s: %s\n", o->device, why.s);
        return 1;
    }
    if (facts.library) setenv(CF_LIBRARY_VARIABLE, facts.library, 1);
    cf_plan exact = *p;
    while (exact.n && p->rows[exact.n - 1].mode == CF_PERF) exact.n--;
    /* leaks are counted exactly when core keeps no freed memory, and times are those with it */
    setenv("TENON_MEMORY_CACHE", "0", 1);
    if (!cf_run_plan(o, argv, &exact, &why)) return complain(&why, 1);
    unsetenv("TENON_MEMORY_CACHE");
    if (!cf_run_plan(o, argv, p, &why)) return complain(&why, 1);
    cf_levels_judge(d, p, &facts, &verdict);
    cf_report_close(o, p, &verdict);
    if (!write_reports(o, d, p, &verdict)) return 2;
    return verdict.failed || verdict.level < o->level ? 1 : 0;
}

int main(int argc, char **argv) {
    cf_options o;
    static cf_data d; /* these live as long as the process */
    static cf_plan p;
    cf_text why = {0};
    if (argc > 1 && strncmp(argv[1], "--engine", 8) == 0) return cf_engine_main(argc, argv);
    int done = cf_options_read(argc, argv, &o);
    if (done >= 0) return done;
    if (!cf_data_read(cf_data_path(), &d, &why)) return complain(&why, 2);
    cf_plan_make(&o, &d, &p);
    if (o.worker) return cf_worker(&o, &d, &p);
    if (p.n == 0) {
        fputs("tenon-conform: --op, --dtype and --mode leave nothing to check\n", stderr);
        return 2;
    }
    return o.list ? list(&p) : run(&o, &d, &p, argv);
}
