/* text_priv.h: what texts from outside may consist of. */
#ifndef TENON_TEXT_PRIV_H
#define TENON_TEXT_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Of names that people type: devices, dtypes. */
#define TNI_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

/* Length of the valid UTF-8 sequence at p, or 0. */
static inline size_t tni_utf8_length(const char *p, const char *end) {
    const unsigned char *u = (const unsigned char *)p;
    size_t n = u[0] < 0x80 ? 1 : u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (n == 0 || u[0] > 0xf4 || (size_t)(end - p) < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    if (u[0] == 0xe0 && u[1] < 0xa0) return 0; /* longer than needed */
    if (u[0] == 0xed && u[1] > 0x9f) return 0; /* a surrogate */
    if (u[0] == 0xf0 && u[1] < 0x90) return 0;
    if (u[0] == 0xf4 && u[1] > 0x8f) return 0;
    return n;
}

static inline bool tni_is_utf8(const char *text) {
    const char *end = text + strlen(text);
    for (size_t n = 1; text < end && n > 0; text += n) n = tni_utf8_length(text, end);
    return text == end;
}

#endif
