/* json_priv.h: a strict, small reader of JSON, for plugin manifests.
 *
 * It builds no tree: each leaf value is handed to a visitor with its path ("abi.major",
 * "devices[]"). RFC 8259 only: no comments, no trailing commas, no duplicate names, valid UTF-8,
 * at most 16 levels and 255 bytes of path. */
#ifndef TENON_JSON_PRIV_H
#define TENON_JSON_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tni_json_kind {
    TNI_JSON_NULL,
    TNI_JSON_BOOL,
    TNI_JSON_NUMBER,
    TNI_JSON_STRING
} tni_json_kind;

typedef struct tni_json_value {
    tni_json_kind kind;
    bool boolean;
    bool is_int; /* a number without fraction and exponent that fits `integer` */
    int64_t integer;
    const char *text; /* strings: unescaped, without NUL bytes; numbers: as written */
} tni_json_value;

/* Returns NULL to go on, or why the value is refused. `path` and value->text live for the call. */
typedef const char *(*tni_json_visit)(void *ctx, const char *path, const tni_json_value *value);

/* Reads one JSON object. Returns NULL, or what is wrong; *ret_line is then the line of the fault.
 * Needs no allocation: `text` (bytes long, with a NUL at text[bytes]) is used as scratch. */
const char *tni_json_read(char *text, size_t bytes, tni_json_visit visit, void *ctx, int *ret_line);

#endif
