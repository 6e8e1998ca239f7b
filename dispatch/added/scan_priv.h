/* scan_priv.h: steps through a text that schemas and formulas are read with. */
#ifndef TENON_SCAN_PRIV_H
#define TENON_SCAN_PRIV_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static inline void tni_scan_skip(const char **at) { *at += strspn(*at, " \t\r\n"); }

/* Steps over `token`, and the space before it; false: something else is there. */
static inline bool tni_scan_take(const char **at, const char *token) {
    tni_scan_skip(at);
    size_t n = strlen(token);
    if (strncmp(*at, token, n) != 0) return false;
    *at += n;
    return true;
}

/* Bytes of the name at s, 0 when there is none. */
static inline size_t tni_scan_name(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return isdigit((unsigned char)s[0]) ? 0 : n;
}

#endif
