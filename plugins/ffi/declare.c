/* declare.c: reads C declarations.
 *
 * A recursive descent over the text. Types live in the scope's arena; what is declared becomes
 * visible as it is read, so that later lines may use it, and is taken back when a later line is
 * wrong. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "ffi_priv.h"

enum { MAX_DEPTH = 16, MAX_FIELDS = 256, MAX_NAME = 100, MAX_BYTES = 1 << 20 };

typedef struct completed { /* a struct that got its fields */
    tn_ffi_record *record;
    struct completed *next;
} completed;

typedef struct reader {
    tn_ffi_scope *scope;
    const char *text, *at;
    completed *completed;
    int depth;
} reader;

/* A name and what stands around it: "*x[3]" makes a type of another. */
typedef struct declarator {
    const char *name; /* "" when there is none */
    const tn_ffi_type *type;
    const char *dims; /* where the brackets of an array start, or NULL */
} declarator;

/* ---- Text --------------------------------------------------------------------------------------*/

static tn_status fault(const reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static tn_status fault(const reader *r, const char *fmt, ...) {
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    int line = 1;
    const char *start = r->text;
    for (const char *p = r->text; p < r->at; p++) {
        if (*p != '\n') continue;
        line++;
        start = p + 1;
    }
    int column = (int)(r->at - start) + 1, shown = (int)strcspn(start, "\n");
    if (line > 1)
        return tn_fail(TN_E_VALUE, -1, "declaration '%.*s', line %d, column %d: %s",
                       shown < 120 ? shown : 120, start, line, column, what);
    return tn_fail(TN_E_VALUE, -1, "declaration '%.*s', column %d: %s", shown < 120 ? shown : 120,
                   start, column, what);
}

static void skip(reader *r) {
    for (;;) {
        r->at += strspn(r->at, " \t\r\n\f\v");
        if (strncmp(r->at, "//", 2) == 0) {
            r->at += strcspn(r->at, "\n");
        } else if (strncmp(r->at, "/*", 2) == 0 && strstr(r->at + 2, "*/")) {
            r->at = strstr(r->at + 2, "*/") + 2;
        } else {
            return;
        }
    }
}

static size_t word_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return isdigit((unsigned char)s[0]) ? 0 : n;
}

static bool take(reader *r, char token) {
    skip(r);
    if (*r->at != token) return false;
    r->at++;
    return true;
}

/* Takes the word when it comes next. */
static bool take_word(reader *r, const char *word) {
    skip(r);
    size_t n = strlen(word);
    if (word_length(r->at) != n || strncmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

/* Words of C that change nothing here. */
static bool take_noise(reader *r) {
    static const char *const words[] = {"volatile",     "restrict", "__restrict",
                                        "__restrict__", "extern",   "__extension__"};
    for (int i = 0; i < TN_COUNT(words); i++)
        if (take_word(r, words[i])) return true;
    return false;
}

static tn_status take_name(reader *r, const char *what, const char **ret_name) {
    skip(r);
    size_t n = word_length(r->at);
    if (!n) return fault(r, "%s is expected", what);
    if (n > MAX_NAME) return fault(r, "the name is longer than %d characters", MAX_NAME);
    *ret_name = tni_arena_text(&r->scope->arena, r->at, n);
    r->at += n;
    return *ret_name ? TN_OK : TN_E_MEMORY;
}

/* ---- Names -------------------------------------------------------------------------------------*/

static const tn_ffi_type *find_alias(const tn_ffi_scope *s, const char *name, size_t n) {
    for (; s; s = s->parent)
        for (const tni_ffi_alias *a = s->names.aliases; a; a = a->next)
            if (strlen(a->name) == n && strncmp(a->name, name, n) == 0) return a->type;
    return NULL;
}

static tn_ffi_record *find_record(const tn_ffi_scope *s, const char *name) {
    for (; s; s = s->parent)
        for (tn_ffi_record *x = s->names.records; x; x = x->next)
            if (strcmp(x->name, name) == 0) return x;
    return NULL;
}

static const tni_ffi_constant *find_constant(const tn_ffi_scope *s, const char *name, size_t n) {
    for (; s; s = s->parent)
        for (const tni_ffi_constant *c = s->names.constants; c; c = c->next)
            if (strlen(c->name) == n && strncmp(c->name, name, n) == 0) return c;
    return NULL;
}

/* ---- Types -------------------------------------------------------------------------------------*/

static const int8_t sizes[TN_FFI_KIND_COUNT] = {
    [TN_FFI_BOOL] = 1,    [TN_FFI_CHAR] = 1,    [TN_FFI_I8] = 1,  [TN_FFI_U8] = 1,
    [TN_FFI_I16] = 2,     [TN_FFI_U16] = 2,     [TN_FFI_I32] = 4, [TN_FFI_U32] = 4,
    [TN_FFI_I64] = 8,     [TN_FFI_U64] = 8,     [TN_FFI_F32] = 4, [TN_FFI_F64] = 8,
    [TN_FFI_POINTER] = 8, [TN_FFI_CALLBACK] = 8};

static tn_ffi_type *new_type(reader *r, int32_t kind, const tn_ffi_type *to) {
    tn_ffi_type *t = tni_arena_take(&r->scope->arena, sizeof *t);
    if (t) *t = (tn_ffi_type){.kind = kind, .size = sizes[kind], .align = sizes[kind], .to = to};
    return t;
}

static const struct {
    const char *name;
    int32_t kind;
} plain[] = {
    {"void", TN_FFI_VOID},     {"_Bool", TN_FFI_BOOL},   {"bool", TN_FFI_BOOL},
    {"float", TN_FFI_F32},     {"double", TN_FFI_F64},   {"int8_t", TN_FFI_I8},
    {"uint8_t", TN_FFI_U8},    {"int16_t", TN_FFI_I16},  {"uint16_t", TN_FFI_U16},
    {"int32_t", TN_FFI_I32},   {"uint32_t", TN_FFI_U32}, {"int64_t", TN_FFI_I64},
    {"uint64_t", TN_FFI_U64},  {"size_t", TN_FFI_U64},   {"ssize_t", TN_FFI_I64},
    {"ptrdiff_t", TN_FFI_I64}, {"intptr_t", TN_FFI_I64}, {"uintptr_t", TN_FFI_U64},
};

/* int, short, long and their signs, which may come in any order. */
typedef struct words {
    int is_unsigned, is_signed, shorts, longs, ints, chars;
} words;

static bool take_int_word(reader *r, words *w) {
    const struct {
        const char *word;
        int *count;
    } all[] = {{"unsigned", &w->is_unsigned}, {"signed", &w->is_signed}, {"short", &w->shorts},
               {"long", &w->longs},           {"int", &w->ints},         {"char", &w->chars}};
    for (int i = 0; i < TN_COUNT(all); i++) {
        if (!take_word(r, all[i].word)) continue;
        ++*all[i].count;
        return true;
    }
    return false;
}

/* The kind that the words name; -1: none. */
static int32_t int_kind(const words *w) {
    bool sound = w->is_unsigned + w->is_signed <= 1 && w->shorts <= 1 && w->longs <= 2 &&
                 w->ints <= 1 && w->chars <= 1 && !(w->shorts && w->longs) &&
                 !(w->chars && (w->shorts || w->longs || w->ints));
    if (!sound) return -1;
    if (w->chars && !w->is_unsigned && !w->is_signed) return TN_FFI_CHAR;
    int32_t kind = w->chars    ? TN_FFI_I8
                   : w->shorts ? TN_FFI_I16
                   : w->longs  ? TN_FFI_I64
                               : TN_FFI_I32;
    if (w->longs == 1 && sizeof(long) == 4) kind = TN_FFI_I32;
    return kind + (w->is_unsigned != 0); /* each unsigned kind follows its signed one */
}

static tn_status read_struct(reader *r, tn_ffi_type **ret_type);
static tn_status read_enum(reader *r, tn_ffi_type **ret_type);
static tn_status read_declarator(reader *r, const tn_ffi_type *base, declarator *ret);

static tn_status read_named(reader *r, tn_ffi_type **ret_type) {
    size_t n = word_length(r->at);
    const tn_ffi_type *alias = find_alias(r->scope, r->at, n);
    int32_t kind = -1;
    for (int i = 0; i < TN_COUNT(plain) && kind < 0; i++)
        if (strlen(plain[i].name) == n && strncmp(plain[i].name, r->at, n) == 0)
            kind = plain[i].kind;
    if (!n) return fault(r, "a type is expected");
    if (!alias && kind < 0) return fault(r, "there is no type '%.*s'", n < 60 ? (int)n : 60, r->at);
    *ret_type = new_type(r, kind < 0 ? TN_FFI_VOID : kind, NULL);
    if (!*ret_type) return TN_E_MEMORY;
    if (alias) **ret_type = *alias;
    if (alias && alias->kind == TN_FFI_RECORD) { /* it may have got its fields since */
        (*ret_type)->size = alias->record->size;
        (*ret_type)->align = alias->record->align;
    }
    r->at += n;
    return TN_OK;
}

/* "const unsigned long", "struct point", "size_t const". */
static tn_status read_base(reader *r, const tn_ffi_type **ret_type) {
    tn_ffi_type *type = NULL;
    words w = {0};
    bool is_const = false, any = false;
    skip(r);
    const char *start = r->at;
    for (;;) {
        if (take_noise(r)) continue;
        if (take_word(r, "const")) {
            is_const = true;
        } else if (!type && take_int_word(r, &w)) {
            any = true;
        } else if (!type && !any && take_word(r, "struct")) {
            TN_TRY(read_struct(r, &type));
        } else if (!type && !any && take_word(r, "enum")) {
            TN_TRY(read_enum(r, &type));
        } else if (!type && !any) {
            TN_TRY(read_named(r, &type));
        } else {
            break;
        }
    }
    if (any) {
        int32_t kind = int_kind(&w);
        if (kind < 0 || take_word(r, "double")) {
            r->at = start;
            return fault(r, kind < 0 ? "these words make no type" : "long double cannot be passed");
        }
        type = new_type(r, kind, NULL);
        if (!type) return TN_E_MEMORY;
    }
    type->is_const = type->is_const || is_const;
    *ret_type = type;
    return TN_OK;
}

static tn_status check_depth(const reader *r) {
    return r->depth < MAX_DEPTH ? TN_OK : fault(r, "the declaration is nested too deeply");
}

/* ---- Structs and enums -------------------------------------------------------------------------*/

/* A whole number, possibly negative, or the name of a constant. */
static tn_status read_integer(reader *r, int64_t *ret_value) {
    skip(r);
    size_t n = word_length(r->at);
    const tni_ffi_constant *c = n ? find_constant(r->scope, r->at, n) : NULL;
    if (c) {
        *ret_value = c->value;
        r->at += n;
        return TN_OK;
    }
    bool digits = isdigit((unsigned char)r->at[*r->at == '-']);
    char *end = NULL;
    long long v = digits ? strtoll(r->at, &end, 0) : 0;
    if (!digits || isalnum((unsigned char)*end) || *end == '_')
        return fault(r, "a whole number is expected");
    r->at = end;
    *ret_value = v;
    return TN_OK;
}

static int64_t round_up(int64_t n, int64_t align) { return (n + align - 1) / align * align; }

/* Whether a value of this type can lie in a struct or be passed. */
static tn_status check_complete(const reader *r, const tn_ffi_type *t, const char *what) {
    if (t->kind == TN_FFI_VOID) return fault(r, "%s cannot be void", what);
    if (t->kind == TN_FFI_RECORD && !t->record->size)
        return fault(r, "struct %s is declared without its fields", t->record->name);
    return TN_OK;
}

/* "x[2][3]" inside a struct: arrays of arrays, from the inside out. */
static tn_status read_field_array(reader *r, const tn_ffi_type **inout_type) {
    int64_t count;
    if (!take(r, '[')) return TN_OK;
    TN_TRY(check_depth(r));
    TN_TRY(read_integer(r, &count));
    if (count < 1 || count > MAX_BYTES) return fault(r, "an array has 1 to %d elements", MAX_BYTES);
    if (!take(r, ']')) return fault(r, "']' is expected");
    r->depth++;
    tn_status st = read_field_array(r, inout_type);
    r->depth--;
    if (st != TN_OK) return st;
    tn_ffi_type *t = new_type(r, TN_FFI_ARRAY, *inout_type);
    if (!t) return TN_E_MEMORY;
    t->count = count;
    t->align = t->to->align;
    if (t->to->size > MAX_BYTES / count) return fault(r, "the struct is too large");
    t->size = count * t->to->size;
    *inout_type = t;
    return TN_OK;
}

static tn_status add_field(reader *r, tn_ffi_record *rec, tn_ffi_field *fields, declarator d) {
    if (!d.name[0]) return fault(r, "a field's name is expected");
    if (d.dims) {
        r->at = d.dims;
        TN_TRY(read_field_array(r, &d.type));
    }
    if (take(r, ':')) return fault(r, "bit-fields cannot be bound");
    for (int32_t i = 0; i < rec->nfields; i++)
        if (strcmp(fields[i].name, d.name) == 0)
            return fault(r, "two fields are called '%s'", d.name);
    if (rec->nfields == MAX_FIELDS) return fault(r, "a struct has at most %d fields", MAX_FIELDS);
    int64_t offset = round_up(rec->size, d.type->align);
    fields[rec->nfields++] = (tn_ffi_field){d.name, d.type, offset};
    rec->size = offset + d.type->size;
    if (d.type->align > rec->align) rec->align = d.type->align;
    return rec->size <= MAX_BYTES ? TN_OK : fault(r, "the struct is too large");
}

static tn_status read_fields(reader *r, tn_ffi_record *rec, tn_ffi_field *fields) {
    while (!take(r, '}')) {
        const tn_ffi_type *base;
        declarator d;
        TN_TRY(read_base(r, &base));
        do {
            TN_TRY(read_declarator(r, base, &d));
            TN_TRY(check_complete(r, d.type, "a field"));
            TN_TRY(add_field(r, rec, fields, d));
        } while (take(r, ','));
        if (!take(r, ';')) return fault(r, "';' is expected");
    }
    return rec->nfields ? TN_OK : fault(r, "a struct needs a field");
}

/* What stands between the braces; the struct gets its fields when all of them are sound. */
static tn_status read_body(reader *r, tn_ffi_record *rec) {
    tn_ffi_record made = {.name = rec->name, .align = 1, .next = rec->next};
    if (rec->size) return fault(r, "struct %s has its fields already", rec->name);
    TN_TRY(check_depth(r));
    tn_ffi_field *fields = calloc(MAX_FIELDS, sizeof *fields);
    if (!fields) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    r->depth++;
    tn_status st = read_fields(r, &made, fields);
    r->depth--;
    size_t bytes = sizeof *fields * (size_t)made.nfields;
    tn_ffi_field *kept = st == TN_OK ? tni_arena_take(&r->scope->arena, bytes) : NULL;
    completed *done = kept ? tni_arena_take(&r->scope->arena, sizeof *done) : NULL;
    if (done) memcpy(kept, fields, bytes);
    free(fields);
    if (!done) return st == TN_OK ? TN_E_MEMORY : st;
    if (rec->size) return fault(r, "struct %s has its fields already", rec->name);
    *done = (completed){rec, r->completed};
    r->completed = done;
    made.fields = kept;
    made.size = round_up(made.size, made.align);
    *rec = made;
    return TN_OK;
}

static tn_status read_struct(reader *r, tn_ffi_type **ret_type) {
    const char *name = "";
    skip(r);
    if (*r->at != '{') TN_TRY(take_name(r, "the struct's name", &name));
    tn_ffi_record *rec = name[0] ? find_record(r->scope, name) : NULL;
    if (!rec) {
        rec = tni_arena_take(&r->scope->arena, sizeof *rec);
        if (!rec) return TN_E_MEMORY;
        *rec = (tn_ffi_record){.name = name, .next = r->scope->names.records};
        r->scope->names.records = rec;
    }
    if (take(r, '{')) TN_TRY(read_body(r, rec));
    *ret_type = new_type(r, TN_FFI_RECORD, NULL);
    if (!*ret_type) return TN_E_MEMORY;
    (*ret_type)->record = rec;
    (*ret_type)->size = rec->size;
    (*ret_type)->align = rec->align;
    return TN_OK;
}

static tn_status read_constants(reader *r) {
    int64_t value = 0;
    while (!take(r, '}')) {
        tni_ffi_constant *c = tni_arena_take(&r->scope->arena, sizeof *c);
        if (!c) return TN_E_MEMORY;
        TN_TRY(take_name(r, "a constant's name", &c->name));
        if (find_constant(r->scope, c->name, strlen(c->name)))
            return fault(r, "there is a constant '%s' already", c->name);
        if (take(r, '=')) TN_TRY(read_integer(r, &value));
        if (value < INT32_MIN || value > INT32_MAX)
            return fault(r, "a constant of an enum is an int");
        c->value = value++;
        c->next = r->scope->names.constants;
        r->scope->names.constants = c;
        if (take(r, ',')) continue;
        skip(r);
        if (*r->at != '}') return fault(r, "',' or '}' is expected");
    }
    return TN_OK;
}

static tn_status add_alias(reader *r, const char *name, const tn_ffi_type *type) {
    tni_ffi_alias *a = tni_arena_take(&r->scope->arena, sizeof *a);
    if (!a) return TN_E_MEMORY;
    *a = (tni_ffi_alias){name, type, r->scope->names.aliases};
    r->scope->names.aliases = a;
    return TN_OK;
}

/* An enum is an int. Its tag is kept as an alias that no C name can clash with. */
static tn_status read_enum(reader *r, tn_ffi_type **ret_type) {
    char tag[MAX_NAME + 8] = "";
    const char *name;
    skip(r);
    *ret_type = new_type(r, TN_FFI_I32, NULL);
    if (!*ret_type) return TN_E_MEMORY;
    if (*r->at != '{') {
        TN_TRY(take_name(r, "the enum's name", &name));
        snprintf(tag, sizeof tag, "enum %s", name);
    }
    bool known = tag[0] && find_alias(r->scope, tag, strlen(tag));
    if (!take(r, '{')) return known ? TN_OK : fault(r, "there is no '%s'", tag);
    if (known) return fault(r, "there is an '%s' already", tag);
    if (tag[0]) {
        char *kept = tni_arena_text(&r->scope->arena, tag, strlen(tag));
        if (!kept) return TN_E_MEMORY;
        TN_TRY(add_alias(r, kept, *ret_type));
    }
    return read_constants(r);
}

/* ---- Declarators -------------------------------------------------------------------------------*/

static tn_status read_params(reader *r, tn_ffi_function *f);

static tn_status read_stars(reader *r, const tn_ffi_type **inout_type) {
    for (int stars = 0; take(r, '*'); stars++) {
        if (stars == 3) return fault(r, "this pointer points too far");
        tn_ffi_type *t = new_type(r, TN_FFI_POINTER, *inout_type);
        if (!t) return TN_E_MEMORY;
        *inout_type = t;
        for (bool more = true; more;) { /* the pointer's own const means nothing to a caller */
            more = take_noise(r) || take_word(r, "const");
        }
    }
    return TN_OK;
}

/* The "(*name)(params)" of a pointer to a function that returns `result`. */
static tn_status read_callback(reader *r, const tn_ffi_type *result, declarator *ret) {
    tn_ffi_function *f = tni_arena_take(&r->scope->arena, sizeof *f);
    tn_ffi_type *t = new_type(r, TN_FFI_CALLBACK, NULL);
    if (!f || !t) return TN_E_MEMORY;
    skip(r);
    if (word_length(r->at)) TN_TRY(take_name(r, "a name", &ret->name));
    if (!take(r, ')')) return fault(r, "')' is expected");
    if (!take(r, '(')) return fault(r, "'(' is expected");
    f->name = ret->name;
    f->text = "";
    f->result = result;
    TN_TRY(read_params(r, f));
    t->signature = f;
    ret->type = t;
    return TN_OK;
}

/* Leaves out the brackets of an array and remembers where they were. */
static tn_status skip_brackets(reader *r, declarator *d) {
    skip(r);
    if (*r->at != '[') return TN_OK;
    d->dims = r->at;
    while (take(r, '[')) {
        r->at += strcspn(r->at, "[](),;");
        if (!take(r, ']')) return fault(r, "']' is expected");
        skip(r);
    }
    return TN_OK;
}

static tn_status read_declarator(reader *r, const tn_ffi_type *base, declarator *ret) {
    *ret = (declarator){"", base, NULL};
    TN_TRY(read_stars(r, &ret->type));
    skip(r);
    if (*r->at == '(') { /* of a function's own parentheses there is no star */
        const char *start = r->at++;
        if (take(r, '*')) return read_callback(r, ret->type, ret);
        r->at = start;
        return TN_OK;
    }
    if (word_length(r->at)) TN_TRY(take_name(r, "a name", &ret->name));
    return skip_brackets(r, ret);
}

/* ---- Lengths -----------------------------------------------------------------------------------*/

static tn_status read_factor(reader *r, const tn_ffi_function *f, tn_ffi_length *len) {
    skip(r);
    size_t n = word_length(r->at);
    for (int32_t i = 0; n && i < f->nparams; i++) {
        if (strlen(f->params[i].name) != n || strncmp(f->params[i].name, r->at, n) != 0) continue;
        int32_t kind = f->params[i].type->kind;
        if (kind < TN_FFI_CHAR || kind > TN_FFI_U64)
            return fault(r, "a length is an integer, and '%s' is none", f->params[i].name);
        if (len->nparams == TN_FFI_FACTORS)
            return fault(r, "a length has at most %d factors", TN_FFI_FACTORS);
        len->params[len->nparams++] = i;
        r->at += n;
        return TN_OK;
    }
    int64_t value;
    if (n && !find_constant(r->scope, r->at, n))
        return fault(r, "the length '%.*s' is no parameter", n < 60 ? (int)n : 60, r->at);
    TN_TRY(read_integer(r, &value));
    if (value < 1 || value > INT32_MAX || len->factor > INT32_MAX)
        return fault(r, "a length is a number above 0");
    len->factor *= value;
    return TN_OK;
}

/* "[n][3*m]"; "[]" says nothing. */
static tn_status read_lengths(reader *r, tn_ffi_function *f, tn_ffi_param *p) {
    p->ndims = 0;
    while (take(r, '[')) {
        skip(r);
        if (*r->at == ']' && p->ndims == 0) {
            r->at++;
            continue;
        }
        if (p->ndims == TN_FFI_DIMS)
            return fault(r, "an array has at most %d lengths", TN_FFI_DIMS);
        tn_ffi_length len = {.factor = 1};
        do TN_TRY(read_factor(r, f, &len));
        while (take(r, '*'));
        if (!take(r, ']')) return fault(r, "']' is expected");
        p->dims[p->ndims++] = len;
        if (len.nparams == 1 && len.factor == 1) f->params[len.params[0]].is_length = 1;
    }
    return TN_OK;
}

/* ---- Functions ---------------------------------------------------------------------------------*/

/* Parameters without a name get one: x, y, z, w, x5, x6, ... */
static tn_status name_params(reader *r, tn_ffi_function *f) {
    for (int32_t i = 0; i < f->nparams; i++) {
        tn_ffi_param *p = &f->params[i];
        char made[16];
        if (!p->name[0]) {
            if (i < 4)
                snprintf(made, sizeof made, "%c", "xyzw"[i]);
            else
                snprintf(made, sizeof made, "x%d", i + 1);
            p->name = tni_arena_text(&r->scope->arena, made, strlen(made));
            if (!p->name) return TN_E_MEMORY;
        }
        for (int32_t k = 0; k < i; k++)
            if (strcmp(f->params[k].name, p->name) == 0)
                return fault(r, "two parameters are called '%s'", p->name);
    }
    return TN_OK;
}

/* An array becomes a pointer, a function a pointer to it. */
static tn_status read_param(reader *r, tn_ffi_param *p, const char **ret_dims) {
    const tn_ffi_type *base;
    declarator d;
    skip(r);
    if (strncmp(r->at, "...", 3) == 0)
        return fault(r, "a function with a variable number of arguments cannot be bound");
    TN_TRY(read_base(r, &base));
    TN_TRY(read_declarator(r, base, &d));
    if (d.dims) {
        d.type = new_type(r, TN_FFI_POINTER, d.type);
        if (!d.type) return TN_E_MEMORY;
    }
    const tn_ffi_type *to = d.type->to;
    if (d.dims && !(to->kind == TN_FFI_POINTER))
        TN_TRY(check_complete(r, to, "an array's element"));
    p->name = d.name;
    p->type = d.type;
    *ret_dims = d.dims;
    return TN_OK;
}

static tn_status read_param_list(reader *r, tn_ffi_function *f, const char **dims) {
    skip(r);
    const char *start = r->at;
    if (take(r, ')')) return TN_OK;
    if (take_word(r, "void") && take(r, ')')) return TN_OK;
    r->at = start;
    do {
        if (f->nparams == TN_FFI_PARAMS)
            return fault(r, "a function has at most %d parameters", TN_FFI_PARAMS);
        TN_TRY(read_param(r, &f->params[f->nparams], &dims[f->nparams]));
        TN_TRY(check_complete(r, f->params[f->nparams].type, "a parameter"));
        f->nparams++;
    } while (take(r, ','));
    return take(r, ')') ? TN_OK : fault(r, "',' or ')' is expected");
}

/* From behind the '(' to behind the ')'. Lengths are read last: they may name any parameter. */
static tn_status read_params(reader *r, tn_ffi_function *f) {
    const char *dims[TN_FFI_PARAMS] = {NULL};
    TN_TRY(check_depth(r));
    f->params = tni_arena_take(&r->scope->arena, sizeof *f->params * TN_FFI_PARAMS);
    if (!f->params) return TN_E_MEMORY;
    r->depth++;
    tn_status st = read_param_list(r, f, dims);
    r->depth--;
    if (st != TN_OK) return st;
    TN_TRY(name_params(r, f));
    const char *end = r->at;
    for (int32_t i = 0; i < f->nparams; i++) {
        if (!dims[i]) continue;
        r->at = dims[i];
        TN_TRY(read_lengths(r, f, &f->params[i]));
    }
    r->at = end;
    return TN_OK;
}

static tn_status read_function(reader *r, const char *start, const declarator *d) {
    tn_ffi_function *f = tni_arena_take(&r->scope->arena, sizeof *f);
    if (!f) return TN_E_MEMORY;
    if (d->type->kind != TN_FFI_VOID) TN_TRY(check_complete(r, d->type, "a result"));
    f->name = d->name;
    f->result = d->type;
    TN_TRY(read_params(r, f));
    f->text = tni_arena_text(&r->scope->arena, start, (size_t)(r->at - start));
    if (!f->text) return TN_E_MEMORY;
    f->next = r->scope->names.functions;
    r->scope->names.functions = f;
    return TN_OK;
}

static tn_status read_typedef(reader *r) {
    const tn_ffi_type *base;
    declarator d;
    TN_TRY(read_base(r, &base));
    do {
        TN_TRY(read_declarator(r, base, &d));
        if (!d.name[0]) return fault(r, "the type's name is expected");
        if (d.dims) return fault(r, "an array cannot be a type of its own");
        if (find_alias(r->scope, d.name, strlen(d.name)))
            return fault(r, "there is a type '%s' already", d.name);
        if (d.type->kind == TN_FFI_RECORD && !d.type->record->name[0]) /* typedef struct {...} p */
            ((tn_ffi_record *)(uintptr_t)d.type->record)->name = d.name;
        TN_TRY(add_alias(r, d.name, d.type));
    } while (take(r, ','));
    return TN_OK;
}

static tn_status read_declaration(reader *r) {
    const char *start = r->at;
    const tn_ffi_type *base;
    declarator d;
    if (take_word(r, "typedef")) {
        TN_TRY(read_typedef(r));
    } else {
        TN_TRY(read_base(r, &base));
        skip(r);
        if (*r->at != ';') {
            TN_TRY(read_declarator(r, base, &d));
            if (!d.name[0] || d.dims) return fault(r, "a function's name is expected");
            if (!take(r, '(')) return fault(r, "'(' is expected: only functions can be bound");
            TN_TRY(read_function(r, start, &d));
        }
    }
    skip(r);
    return take(r, ';') || !*r->at ? TN_OK : fault(r, "';' is expected");
}

static tn_status read_all(reader *r) {
    for (skip(r); *r->at; skip(r)) TN_TRY(read_declaration(r));
    return TN_OK;
}

tn_status tn_ffi_declare(tn_ffi_scope *scope, const char *text) {
    if (!scope || !text) return tn_fail(TN_E_VALUE, -1, "a declaration needs a scope and a text");
    reader r = {.scope = scope, .text = text, .at = text};
    const tni_ffi_names before = scope->names;
    tn_status st = read_all(&r);
    if (st == TN_OK) return TN_OK;
    scope->names = before;
    for (const completed *c = r.completed; c; c = c->next)
        *c->record = (tn_ffi_record){.name = c->record->name, .next = c->record->next};
    return st;
}

tn_status tn_ffi_set_lengths(tn_ffi_scope *scope, tn_ffi_function *f, const char *text) {
    if (!scope || !f || !text) return tn_fail(TN_E_VALUE, -1, "lengths need a function and a text");
    reader r = {.scope = scope, .text = text, .at = text};
    do {
        const char *name = "";
        int32_t i = 0;
        TN_TRY(take_name(&r, "a parameter's name", &name));
        while (i < f->nparams && strcmp(f->params[i].name, name) != 0) i++;
        if (i == f->nparams || f->params[i].type->kind != TN_FFI_POINTER)
            return fault(&r, "%s has no pointer parameter '%s'", f->name, name);
        skip(&r);
        if (*r.at != '[') return fault(&r, "'[' is expected");
        TN_TRY(read_lengths(&r, f, &f->params[i]));
    } while (take(&r, ','));
    return *r.at ? fault(&r, "',' is expected") : TN_OK;
}
