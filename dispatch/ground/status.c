/* status.c: the per-thread error record.
 *
 * A failure is written once, where it is found; the dispatcher adds the operator and what it was
 * called with. The record is allocated at a thread's first failure; when even that fails, a static
 * record says so. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_priv.h"
#include "infer_priv.h"
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

static const tn_error no_memory = {TN_E_MEMORY, -1, "", "out of memory", ""};
static const tn_error no_error = {TN_OK, -1, "", "no error", ""};

static void free_record(void *record) {
    free(record);
    tni_tls.error = NULL;
}

static struct tni_error *record(void) {
    if (!tni_tls.error) {
        tni_tls.error = calloc(1, sizeof *tni_tls.error);
        if (tni_tls.error) tni_os_at_thread_exit(free_record, tni_tls.error);
    }
    return tni_tls.error;
}

const tn_error *tn_error_last(void) {
    if (!tni_tls.error) return &no_error;
    tni_tls.error->told = true;
    return tni_tls.error->pub.message ? &tni_tls.error->pub : &no_memory;
}

struct tni_error *tni_error_copy(void) {
    struct tni_error *copy = tni_tls.error ? malloc(sizeof *copy) : NULL;
    if (copy) *copy = *tni_tls.error;
    return copy;
}

void tni_error_restore(struct tni_error *copy) {
    if (copy) *tni_tls.error = *copy; /* its pointers lead to the thread's own record */
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
    if (tni_tls.error) tni_tls.error->thrown = true;
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
    const struct tni_error *e = tni_tls.error;
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

/* Appends "input: float32(2, 3), " for one tensor. */
static size_t describe(char *dst, size_t size, const char *name, const tn_view *v) {
    if (!v) return 0;
    const char *dtype = tn_dtype_name(tn_view_dtype(v));
    int n = snprintf(dst, size, "%s: %s%s, ", name, dtype ? dtype : "?", tni_shape_text_of(v));
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

tn_status tni_error_add_op(tn_status st, const tn_op *op, const void *args) {
    struct tni_error *e = tni_tls.error;
    if (st == TN_OK || st == TN_E_HOST || st == TN_DECLINE || !e || e->has_op) return st;
    e->has_op = true;
    e->pub.op = op->info.name;
    size_t at = 0;
    for (int i = 0; i < op->nin; i++) {
        const tn_field *f = &op->fields[op->in_field[i]];
        const char *p = (const char *)args + f->offset;
        if (f->kind == TN_F_TENSORS) {
            const tn_views *list = (const void *)p;
            for (int64_t k = 0; list->v && k < list->n && k < 8; k++)
                at += describe(e->detail + at, sizeof e->detail - at, f->name, list->v[k]);
        } else {
            at += describe(e->detail + at, sizeof e->detail - at, f->name,
                           *(const tn_view *const *)(const void *)p);
        }
    }
    if (at >= 2) e->detail[at - 2] = '\0';
    return st;
}
