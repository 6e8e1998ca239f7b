/* json.c: a strict, small reader of JSON. See json_priv.h.
 *
 * Recursive descent over a mutable buffer. A string is unescaped in place, which never needs more
 * room than its source, so nothing is allocated and a hostile file can only be refused. */
#include "json_priv.h"

#include <string.h>

#include "text_priv.h"

enum { MAX_DEPTH = 16, PATH_BYTES = 256, MAX_NAMES = 64 };

typedef struct reader {
    char *at, *end;
    int depth, line;
    tni_json_visit visit;
    void *ctx;
    char path[PATH_BYTES];
    size_t path_length;
} reader;

static const char *read_value(reader *r);

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->line += *r->at++ == '\n';
}

static bool take(reader *r, char c) {
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static const char *push(reader *r, const char *piece) {
    size_t dot = r->path_length > 0 && piece[0] != '[' ? 1 : 0, n = strlen(piece);
    if (r->path_length + dot + n >= PATH_BYTES) return "names are too long";
    if (dot) r->path[r->path_length++] = '.';
    memcpy(r->path + r->path_length, piece, n + 1);
    r->path_length += n;
    return NULL;
}

static void pop(reader *r, size_t length) {
    r->path_length = length;
    r->path[length] = '\0';
}

/* ---- Strings -----------------------------------------------------------------------------------*/

static bool hex4(reader *r, uint32_t *ret) {
    uint32_t v = 0;
    if (r->end - r->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        uint32_t digit = 16;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a') + 10;
        if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A') + 10;
        if (digit == 16) return false;
        v = v * 16 + digit;
    }
    *ret = v;
    return true;
}

static char *put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

static const char *unescape(reader *r, char **out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at++ : '\0';
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        *(*out)++ = to[hit - from];
        return NULL;
    }
    uint32_t code, low;
    if (c != 'u' || !hex4(r, &code)) return "a backslash is followed by no escape";
    if (code >= 0xdc00 && code < 0xe000) return "half of a surrogate pair";
    if (code >= 0xd800 && code < 0xdc00) {
        if (!take(r, '\\') || !take(r, 'u') || !hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
            return "half of a surrogate pair";
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0) return "a string holds a NUL character";
    *out = put_utf8(*out, code);
    return NULL;
}

static const char *read_string(reader *r, char **ret_text) {
    if (!take(r, '"')) return "a string is expected";
    char *start = r->at, *out = r->at;
    for (;;) {
        if (r->at >= r->end) return "a string has no end";
        unsigned char c = (unsigned char)*r->at;
        if (c == '"') break;
        if (c < 0x20) return "a string holds a control character";
        if (c == '\\') {
            r->at++;
            const char *fault = unescape(r, &out);
            if (fault) return fault;
            continue;
        }
        size_t n = tni_utf8_length(r->at, r->end);
        if (n == 0) return "a string is not UTF-8";
        memmove(out, r->at, n);
        out += n;
        r->at += n;
    }
    r->at++; /* the closing quote; `out` is at most its place, so ending the string there is safe */
    *out = '\0';
    *ret_text = start;
    return NULL;
}

/* ---- Values ------------------------------------------------------------------------------------*/

static const char *read_digits(reader *r) {
    char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > start ? NULL : "a number lacks digits";
}

static const char *read_number(reader *r) {
    tni_json_value v = {.kind = TNI_JSON_NUMBER, .is_int = true};
    char *start = r->at;
    bool negative = take(r, '-');
    char *digits = r->at;
    const char *fault = read_digits(r);
    if (fault) return fault;
    if (digits[0] == '0' && r->at - digits > 1) return "a number starts with 0";
    v.is_int = r->at - digits <= 18;
    for (char *p = digits; v.is_int && p < r->at; p++) v.integer = v.integer * 10 + (*p - '0');
    if (negative) v.integer = -v.integer;
    if (take(r, '.')) {
        v.is_int = false;
        if ((fault = read_digits(r))) return fault;
    }
    if (take(r, 'e') || take(r, 'E')) {
        v.is_int = false;
        if (!take(r, '+')) (void)take(r, '-');
        if ((fault = read_digits(r))) return fault;
    }
    char saved = *r->at;
    *r->at = '\0';
    v.text = start;
    fault = r->visit(r->ctx, r->path, &v);
    *r->at = saved;
    return fault;
}

static const char *read_word(reader *r) {
    static const struct {
        const char *word;
        tni_json_kind kind;
        bool value;
    } words[] = {{"true", TNI_JSON_BOOL, true},
                 {"false", TNI_JSON_BOOL, false},
                 {"null", TNI_JSON_NULL, false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i].word, n) != 0) continue;
        tni_json_value v = {
            .kind = words[i].kind, .boolean = words[i].value, .text = words[i].word};
        r->at += n;
        return r->visit(r->ctx, r->path, &v);
    }
    return "a value is expected";
}

static const char *read_object(reader *r) {
    const char *names[MAX_NAMES], *fault;
    int n = 0;
    size_t length = r->path_length;
    r->at++;
    skip_space(r);
    if (take(r, '}')) return NULL;
    do {
        char *name;
        skip_space(r);
        if ((fault = read_string(r, &name))) return fault;
        if (n == MAX_NAMES) return "an object has too many names";
        for (int i = 0; i < n; i++)
            if (strcmp(names[i], name) == 0) return "an object has the same name twice";
        names[n++] = name;
        skip_space(r);
        if (!take(r, ':')) return "':' is expected";
        if ((fault = push(r, name)) || (fault = read_value(r))) return fault;
        pop(r, length);
        skip_space(r);
    } while (take(r, ','));
    return take(r, '}') ? NULL : "',' or '}' is expected";
}

static const char *read_array(reader *r) {
    const char *fault = push(r, "[]");
    size_t length = r->path_length - 2;
    if (fault) return fault;
    r->at++;
    skip_space(r);
    if (take(r, ']')) {
        pop(r, length);
        return NULL;
    }
    do {
        if ((fault = read_value(r))) return fault;
        skip_space(r);
    } while (take(r, ','));
    pop(r, length);
    return take(r, ']') ? NULL : "',' or ']' is expected";
}

static const char *read_value(reader *r) {
    const char *fault;
    skip_space(r);
    if (r->at >= r->end) return "the text ends early";
    char c = *r->at;
    if (c == '"') {
        tni_json_value v = {.kind = TNI_JSON_STRING};
        char *text;
        if ((fault = read_string(r, &text))) return fault;
        v.text = text;
        return r->visit(r->ctx, r->path, &v);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r);
    if (c != '{' && c != '[') return read_word(r);
    if (++r->depth > MAX_DEPTH) return "values are nested too deeply";
    fault = c == '{' ? read_object(r) : read_array(r);
    r->depth--;
    return fault;
}

const char *tni_json_read(char *text, size_t bytes, tni_json_visit visit, void *ctx,
                          int *ret_line) {
    reader r = {.at = text, .end = text + bytes, .line = 1, .visit = visit, .ctx = ctx};
    skip_space(&r);
    const char *fault = r.at < r.end && *r.at == '{' ? read_value(&r) : "an object is expected";
    if (!fault) {
        skip_space(&r);
        if (r.at < r.end) fault = "there is more after the object";
    }
    *ret_line = r.line;
    return fault;
}
