/* engine_rank.c: one of the processes that test an engine. What it finds goes to the parent, or to the
 * standard output under a launcher of MPI. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tenon/processes.h>

#include "engine.h"

enum { PARENT = 3, FAILS = 5 };

static void say(const cf_rank *r, const char *word, const char *text) {
    char line[1024];
    bool child = r->options->rank >= 0 && r->options->meet;
    int n = child
                ? snprintf(line, sizeof line - 1, "%d %s %s %s", (int)r->rank, word, r->check, text)
                : snprintf(line, sizeof line - 1, "FAIL engine %s, rank %d: %s", r->check,
                           (int)r->rank, text);
    if (n < 0 || (!child && strcmp(word, "fail") != 0)) return;
    if ((size_t)n > sizeof line - 2) n = (int)sizeof line - 2;
    line[n++] = '\n'; /* one write, which no other process's comes between */
    if (write(child ? PARENT : 1, line, (size_t)n) != n) _exit(2);
}

void cf_rank_fail(cf_rank *r, const char *fmt, ...) {
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    if (r->fails++ < FAILS) say(r, "fail", text);
}

/* ---- Exchanges ---------------------------------------------------------------------------------*/

const char *cf_exchange_text(const tn_exchange *x) {
    static const char *const kinds[] = {"barrier",    "broadcast",  "all_reduce",
                                        "reduce",     "all_gather", "reduce_scatter",
                                        "all_to_all", "send",       "recv"};
    static const char *const ops[] = {"sum", "product", "min", "max", "and", "or", "xor"};
    static char text[128];
    bool reduces = x->kind == TN_EXCHANGE_ALL_REDUCE || x->kind == TN_EXCHANGE_REDUCE ||
                   x->kind == TN_EXCHANGE_REDUCE_SCATTER;
    const char *dtype = tn_dtype_name(x->dtype);
    snprintf(text, sizeof text, "%s %s%s%s, %lld elements", kinds[x->kind], dtype ? dtype : "",
             reduces ? " " : "", reduces ? ops[x->op] : "", (long long)x->count);
    return text;
}

static void lose(cf_rank *r, const tn_exchange *x, const char *what, const char *why) {
    cf_rank_fail(r, "%s: %s%s", cf_exchange_text(x), what, why[0] ? why : "it does not say why");
    r->lost = true;
}

void *cf_rank_start(cf_rank *r, void *group, const tn_exchange *x) {
    char why[TN_ENGINE_WHY] = "";
    void *request = NULL;
    if (r->engine->start(group, x, &request, why) == TN_OK) return request;
    lose(r, x, "cannot be started: ", why);
    return NULL;
}

/* Waits until it is done, or has failed; `why` has TN_ENGINE_WHY bytes. ret_peer: NULL where the peer
 * is known. false: it never ended. */
static bool wait_for(cf_rank *r, void *group, void *request, const tn_exchange *x,
                     int32_t *ret_peer, tn_status *ret_status, char *why) {
    double end = cf_seconds() + r->options->timeout;
    int32_t done = 0;
    for (int32_t looks = 0;; looks++) {
        char text[64];
        *ret_status = ret_peer ? r->engine->test_from(group, request, &done, ret_peer, why)
                               : r->engine->test(group, request, &done, why);
        if (*ret_status != TN_OK || done) return true;
        if (cf_seconds() > end) {
            snprintf(text, sizeof text, "%g s", r->options->timeout);
            lose(r, x, "is not done within ", text);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = looks < 1000 ? 1000 : 100000}, NULL);
    }
}

static bool finish(cf_rank *r, void *group, void *request, const tn_exchange *x,
                   int32_t *ret_peer) {
    char why[TN_ENGINE_WHY] = "";
    tn_status st = TN_OK;
    if (!wait_for(r, group, request, x, ret_peer, &st, why)) return false;
    if (st != TN_OK) lose(r, x, "fails: ", why);
    return st == TN_OK;
}

bool cf_rank_refuses(cf_rank *r, void *group, void *request, const tn_exchange *x,
                     int32_t *ret_peer) {
    char why[TN_ENGINE_WHY] = "", text[64];
    tn_status st = TN_OK;
    if (ret_peer) *ret_peer = TN_EXCHANGE_ANY;
    if (!wait_for(r, group, request, x, ret_peer, &st, why)) return false;
    snprintf(text, sizeof text, "a message of another size is status %d, not %d: ", (int)st,
             (int)TN_E_VALUE);
    if (st == TN_OK)
        cf_rank_fail(r, "%s: a message of another size is taken", cf_exchange_text(x));
    else if (st != TN_E_VALUE)
        lose(r, x, text, why);
    else if (!why[0])
        cf_rank_fail(r, "%s: of a message of another size it does not say why",
                     cf_exchange_text(x));
    return !r->lost;
}

bool cf_rank_finish(cf_rank *r, void *group, void *request, const tn_exchange *x) {
    return finish(r, group, request, x, NULL);
}

bool cf_rank_finish_any(cf_rank *r, void *group, void *request, const tn_exchange *x,
                        int32_t *ret_peer) {
    *ret_peer = TN_EXCHANGE_ANY;
    return finish(r, group, request, x, ret_peer);
}

bool cf_engine_has_any(const tn_engine *e) {
    return e->struct_size >= offsetof(tn_engine, test_from) + sizeof e->test_from && e->test_from;
}

bool cf_rank_exchange(cf_rank *r, void *group, const tn_exchange *x) {
    void *request = cf_rank_start(r, group, x);
    return !r->lost && cf_rank_finish(r, group, request, x);
}

/* ---- The table ---------------------------------------------------------------------------------*/

static bool load(cf_rank *r) {
    const char *path = r->options->library;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "tn_engine_main") : NULL;
    tn_engine_main_fn enter = NULL;
    memcpy(&enter, &symbol, sizeof enter);
    const tn_engine *e = enter ? enter(TN_ENGINE_VERSION) : NULL;
    if (!e) {
        cf_rank_fail(r, "%s: %s", path,
                     !library  ? dlerror()
                     : !symbol ? "has no tn_engine_main"
                               : "serves no engine of this version");
        return false;
    }
    r->cases += 3;
    size_t least = offsetof(tn_engine, test_from);
    if (e->struct_size < least || e->version != TN_ENGINE_VERSION) {
        cf_rank_fail(r, "the table has %u bytes and version %u, not %zu and %u", e->struct_size,
                     e->version, least, TN_ENGINE_VERSION);
        return false;
    }
    if (!e->name || !e->name[0] || !e->open || !e->part || !e->start || !e->test || !e->close ||
        !e->abort) {
        cf_rank_fail(r, "the name or a function of the table is missing");
        return false;
    }
    const tn_engine *later = enter(TN_ENGINE_VERSION + 1);
    if (later && later->version != TN_ENGINE_VERSION + 1)
        cf_rank_fail(r, "asked for version %u it gives a table of version %u",
                     TN_ENGINE_VERSION + 1, later->version);
    r->engine = e;
    return true;
}

/* ---- Checks ------------------------------------------------------------------------------------*/

static tn_engine_place place_of(const cf_rank *r, const char *name, char *folder, size_t size) {
    const char *meet = r->options->meet;
    snprintf(folder, size, "%s%s%s", meet ? meet : "", meet ? "/" : "", meet ? name : "");
    if (meet) mkdir(folder, 0700); /* one of the ranks does */
    return (tn_engine_place){.struct_size = sizeof(tn_engine_place),
                             .rank = r->rank,
                             .size = r->size,
                             .folder = folder,
                             .timeout_ms = (int64_t)(1e3 * (r->options->timeout + 10))};
}

static void begin(cf_rank *r, const char *check) {
    r->check = check;
    r->cases = 0;
    r->fails = 0;
    say(r, "at", "");
}

static void end(cf_rank *r) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)r->cases);
    if (!r->fails) say(r, "done", text);
}

static int32_t run_all(cf_rank *r, const cf_engine_check *checks) {
    int32_t failed = 0;
    for (; checks->name && !r->lost; checks++) {
        if (!cf_engine_wants(r->options, checks)) continue;
        begin(r, checks->name);
        checks->run(r);
        end(r);
        failed += r->fails > 0;
    }
    return failed;
}

static bool wants_any(const cf_engine_options *o, const cf_engine_check *checks) {
    while (checks->name && !cf_engine_wants(o, checks)) checks++;
    return checks->name != NULL;
}

static int32_t run_results(cf_rank *r) {
    char folder[4200], why[TN_ENGINE_WHY] = "";
    tn_engine_place place = place_of(r, "results", folder, sizeof folder);
    begin(r, "open");
    tn_status st = r->engine->open(&place, &r->world, why);
    r->cases++;
    if (st != TN_OK || !r->world)
        cf_rank_fail(r, "fails: %s", why[0] ? why : "it does not say why");
    end(r);
    if (r->fails) return 1;
    int32_t failed = run_all(r, cf_engine_results);
    if (!r->lost) r->engine->close(r->world);
    return failed;
}

static int32_t run_faults(cf_rank *r) {
    char folder[4200];
    tn_world *world = NULL;
    tn_engine_place place = place_of(r, "faults", folder, sizeof folder);
    begin(r, "core");
    tn_status st = tn_world_open(r->options->library, &place, 1, &world);
    r->cases++;
    if (st != TN_OK) cf_rank_fail(r, "%s", cf_why());
    end(r);
    if (r->fails) return 1;
    r->world = world;
    int32_t failed = run_all(r, cf_engine_faults);
    if (!r->lost) tn_world_close(world);
    return failed;
}

int cf_engine_rank(const cf_engine_options *o) {
    cf_rank r = {.options = o, .rank = o->rank, .size = o->size};
    int32_t failed = 0;
    begin(&r, "table");
    bool good = load(&r);
    end(&r);
    failed += r.fails > 0;
    if (good && wants_any(o, cf_engine_results)) failed += run_results(&r);
    if (good && !r.lost && wants_any(o, cf_engine_faults)) failed += run_faults(&r);
    int status = failed ? 1 : 0;
    if (r.lost) _exit(status); /* what an engine does at the end may wait for the others */
    return status;
}
