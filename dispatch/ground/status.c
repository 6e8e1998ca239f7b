/* status.c: the per-thread error record.
 *
 * A failure is written once, where it is found; the dispatcher adds the operator and what it was
 * called with. The record is allocated at a thread's first failure; when even that fails, a static
 * record says so. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_priv.h"
#include "os_priv.h"

enum { MESSAGE_BYTES = 1024, DETAIL_BYTES = 512 };

struct tni_error {
    tn_error pub;
    bool has_op;
    bool thrown; /* the text does not say yet whose exception it was */
    bool told;   /* somebody has read it: the next failure has a text of its own */
    char message[MESSAGE_BYTES];
    char detail[DETAIL_BYTES];
};

TN_TLS tni_thread tni_tls;
static TN_TLS struct tni_error *mine; /* allocated at the first failure */

static const tn_error no_memory = {TN_E_MEMORY, -1, "", "out of memory", ""};
static const tn_error no_error = {TN_OK, -1, "", "no error", ""};

static void free_record(void) {
    free(mine);
    mine = NULL;
}

static struct tni_error *record(void) {
    if (!mine) {
        mine = calloc(1, sizeof *mine);
        if (mine) tni_os_at_thread_exit(free_record);
    }
    return mine;
}

const tn_error *tn_error_last(void) {
    if (!mine) return &no_error;
    mine->told = true;
    return mine->pub.message ? &mine->pub : &no_memory;
}

struct tni_error *tni_error_copy(void) {
    struct tni_error *copy = mine ? malloc(sizeof *copy) : NULL;
    if (copy) *copy = *mine;
    return copy;
}

void tni_error_restore(struct tni_error *copy) {
    if (copy) *mine = *copy; /* its pointers lead to the thread's own record */
    free(copy);
}

static tn_status fail_v(tn_status code, int32_t arg, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
static tn_status fail_v(tn_status code, int32_t arg, const char *fmt, va_list ap) {
    struct tni_error *e = record();
    if (!e) return code;
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    e->detail[0] = '\0';
    e->has_op = e->told = e->thrown = false;
    e->pub = (tn_error){code, arg, "", e->message, e->detail};
    return code;
}

tn_status tn_fail(tn_status code, int32_t arg, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail_v(code, arg, fmt, ap);
    va_end(ap);
    return code;
}

tn_status tni_error_thrown(tn_status code, const char *exception) {
    tn_fail(code, -1, "a C++ exception left a plugin's function: %s", exception);
    if (mine) mine->thrown = true;
    return code;
}

tn_status tni_fail_v(tn_status code, int32_t arg, const char *fmt, va_list ap) {
    return fail_v(code, arg, fmt, ap);
}

const char *tn_status_text(tn_status code) {
    switch (code) {
#define TEXT(name, value, meaning, exc)                                                            \
    case TN_##name: return meaning;
        TN_STATUS_LIST(TEXT)
#undef TEXT
    default: return "unknown status";
    }
}

tn_status tni_error_of_plugin(tn_status st, const char *what, const char *plugin) {
    const struct tni_error *e = mine;
    bool known = st == TN_ASYNC || (st > TN_OK && st <= TN_E_LINALG);
    if (st == TN_OK || st == TN_E_HOST || st == TN_E_INTERRUPTED) return st;
    if (!known)
        return tn_fail(TN_E_PLUGIN, -1,
                       "%s: plugin '%s' returned status %d, which no such function may return",
                       what, plugin, (int)st);
    if (e && e->thrown) {
        struct tni_error was = *e;
        return tn_fail(st, -1, "%s: plugin '%s': %s", what, plugin, was.message);
    }
    if (e && !e->told && e->pub.code == st) return st;
    return tn_fail(st, -1, "%s: plugin '%s' failed and did not say why (%s)", what, plugin,
                   tn_status_text(st));
}

char *tni_error_detail(tn_status st, const char *op, size_t *ret_size) {
    struct tni_error *e = mine;
    if (st == TN_OK || st == TN_E_HOST || st == TN_DECLINE || !e || e->has_op) return NULL;
    e->has_op = true;
    e->pub.op = op;
    *ret_size = sizeof e->detail;
    return e->detail;
}
