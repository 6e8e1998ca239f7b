/* text.c: texts that grow, patterns, the clock. */
#include "conform.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Noreturn void no_memory(void) {
    fputs("tenon-conform: out of memory\n", stderr);
    exit(2);
}

void *cf_alloc(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) no_memory();
    return p;
}

void *cf_grow(void *list, int64_t n, size_t size) {
    if (n & (n - 1)) return list;
    void *more = realloc(list, (size_t)(n ? 2 * n : 1) * size);
    if (!more) no_memory();
    return more;
}

char *cf_copy(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(cf_alloc(n), s, n);
}

static void reserve(cf_text *t, size_t more) {
    if (t->n + more < t->room) return;
    t->room = 2 * (t->n + more) + 64;
    char *s = realloc(t->s, t->room);
    if (!s) no_memory();
    t->s = s;
}

void cf_add(cf_text *t, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    reserve(t, n > 0 ? (size_t)n + 1 : 1);
    vsnprintf(t->s + t->n, t->room - t->n, fmt, again);
    va_end(again);
    t->n += n > 0 ? (size_t)n : 0;
}

void cf_add_shape(cf_text *t, int32_t ndim, const int64_t *shape) {
    for (int32_t d = 0; d < ndim; d++) cf_add(t, "%s%lld", d ? "," : "[", (long long)shape[d]);
    cf_add(t, "%s", ndim ? "]" : "[]");
}

void cf_clear(cf_text *t) {
    reserve(t, 1);
    t->n = 0;
    t->s[0] = '\0';
}

void cf_free(cf_text *t) {
    free(t->s);
    *t = (cf_text){0};
}

bool cf_glob(const char *pattern, const char *text) {
    if (!*pattern) return !*text;
    if (*pattern == '*') return cf_glob(pattern + 1, text) || (*text && cf_glob(pattern, text + 1));
    return *text && (*pattern == '?' || *pattern == *text) && cf_glob(pattern + 1, text + 1);
}

double cf_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
