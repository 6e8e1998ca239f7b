/* worker.c: the process that runs rows. It reads row numbers from standard input and answers on
 * descriptor 3, one line each: "at TEXT" before a case, "fail TEXT" for each failure, "note TEXT", and
 * "done CASES MILLISECONDS" in the end. A line "down TEXT" says that the device cannot be loaded. The
 * line "probe" in place of a number asks what the device is. */
#include "conform.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWERS = 3, MOST_FAILS = 5 };

/* Writes a whole line; line breaks and tabs in the text become spaces. */
static void answer(const char *word, const char *text) {
    cf_text line = {0};
    cf_add(&line, "%s %s", word, text);
    for (size_t i = 0; i < line.n; i++)
        if (line.s[i] == '\n' || line.s[i] == '\t') line.s[i] = ' ';
    cf_add(&line, "\n");
    for (size_t done = 0; done < line.n;) {
        ssize_t n = write(ANSWERS, line.s + done, line.n - done);
        if (n <= 0) exit(2); /* the parent is gone */
        done += (size_t)n;
    }
    cf_free(&line);
}

static char *formatted(const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *s = cf_alloc((size_t)(n > 0 ? n : 0) + 1);
    vsnprintf(s, (size_t)(n > 0 ? n : 0) + 1, fmt, again);
    va_end(again);
    return s;
}

void cf_at(cf_run *r, const char *fmt, ...) {
    (void)r;
    va_list ap;
    va_start(ap, fmt);
    char *text = formatted(fmt, ap);
    va_end(ap);
    answer("at", text);
    free(text);
}

void cf_fail(cf_run *r, const char *fmt, ...) {
    va_list ap;
    if (++r->nfails > MOST_FAILS) return;
    va_start(ap, fmt);
    char *text = formatted(fmt, ap);
    va_end(ap);
    answer("fail", text);
    free(text);
}

const char *cf_why(void) { return tn_error_last()->message; }

static void dispatch(cf_run *r) {
    switch (r->row->mode) {
    case CF_ABI: cf_abi_checks[r->row->check].run(r); break;
    case CF_STREAMS: cf_streams_checks[r->row->check].run(r); break;
    case CF_SUPPORT: cf_mode_support(r); break;
    case CF_TEST: cf_mode_test(r); break;
    case CF_GRAD: cf_mode_grad(r); break;
    case CF_THREADS: cf_mode_threads(r); break;
    case CF_PERF: cf_mode_perf(r); break;
    case CF_MODES: break;
    }
}

static void check_held(cf_run *r, const char *who, int64_t before, int64_t after) {
    if (before >= 0 && after > before)
        cf_fail(r, "leak: %lld bytes of device memory are in use when all tensors are gone, %s",
                (long long)(after - before), who);
}

/* Work that went wrong behind the host's back, and memory that did not come back. */
static void check_end(cf_run *r, const cf_held *before) {
    cf_held after;
    if (tn_device_sync(r->device) != TN_OK)
        cf_fail(r, "at the end the device reports: %s", cf_why());
    cf_held_count(r->device, &after);
    if (r->row->mode == CF_PERF) return; /* core keeps freed memory there */
    check_held(r, "by its alloc and free", before->handed_out, after.handed_out);
    if (after.handed_out <= before->handed_out)
        check_held(r, "by its tn.memory/1", before->reported, after.reported);
}

static void run_row(cf_run *r) {
    char text[64];
    double start = cf_seconds();
    cf_held before;
    cf_held_count(r->device, &before);
    r->cases = 0;
    r->nfails = 0;
    cf_clear(&r->note);
    dispatch(r);
    check_end(r, &before);
    if (r->note.n) answer("note", r->note.s);
    snprintf(text, sizeof text, "%lld %.3f", (long long)r->cases, 1e3 * (cf_seconds() - start));
    answer("done", text);
}

/* ---- Before anything else ----------------------------------------------------------------------*/

static bool is_met(const cf_need *need, tn_device device) {
    void *ctx;
    int32_t way;
    if (need->iface) return tn_device_query(device.slot, need->iface, &ctx) != NULL;
    for (int32_t d = 0; d < TN_DTYPE_BUILTIN_COUNT; d++)
        if (need->dtypes & 1u << d && tn_explain_way(need->op, device, d, &way) == TN_OK &&
            way == TN_WAY_KERNEL)
            return true;
    return false;
}

/* Answers what the device is and which needs of levels it meets. */
static void probe(const cf_options *o, const cf_data *d) {
    char number[32];
    const char *library;
    tn_device device;
    if (cf_device_probe(o, &library, &device) != TN_OK) {
        answer("down", cf_why());
        return;
    }
    if (library) answer("library", library);
    answer("describe", tn_device_describe(device) ? tn_device_describe(device) : "");
    for (int32_t i = 0; i < d->nneeds; i++) {
        snprintf(number, sizeof number, "%d", i);
        if (is_met(&d->needs[i], device)) answer("met", number);
    }
    answer("done", "0 0");
}

int cf_worker(const cf_options *o, const cf_data *d, cf_plan *p) {
    char line[32];
    cf_run r = {.options = o, .data = d};
    if (!fgets(line, sizeof line, stdin)) return 0;
    (void)tn_fallback_set_policy(TN_FALLBACK_ALLOW);
    if (line[0] == 'p') {
        probe(o, d);
        return 0;
    }
    if (cf_device_load(o, &r.device) != TN_OK) {
        answer("down", cf_why());
        return 2;
    }
    do {
        long i = strtol(line, NULL, 10);
        if (i < 0 || i >= p->n) return 2;
        r.row = &p->rows[i];
        r.op = r.row->op >= 0 ? &d->ops[r.row->op] : NULL;
        run_row(&r);
    } while (fgets(line, sizeof line, stdin));
    return 0;
}
