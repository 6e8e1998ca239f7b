/* schema.c: the signature of an operator that a plugin adds: text -> fields, layout, hash, defaults.
 *
 * The language and the layout are those of the op table (opgen/table.py, emit_c.py): a plan pointer,
 * the arguments in order, the results. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "added_priv.h"
#include "scan_priv.h"

/* ---- Memory ------------------------------------------------------------------------------------*/

struct tni_arena_block {
    tni_arena_block *next;
    _Alignas(16) char data[];
};

void *tni_arena_take(tni_arena *a, size_t bytes) {
    tni_arena_block *b = calloc(1, sizeof *b + bytes);
    if (!b) {
        tn_fail(TN_E_MEMORY, -1, "out of memory");
        return NULL;
    }
    b->next = a->blocks;
    a->blocks = b;
    return b->data;
}

char *tni_arena_text(tni_arena *a, const char *from, size_t n) {
    char *text = tni_arena_take(a, n + 1);
    if (text) memcpy(text, from, n);
    return text;
}

void tni_arena_free(tni_arena *a) {
    while (a->blocks) {
        tni_arena_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
}

/* ---- Types -------------------------------------------------------------------------------------*/

static const struct type {
    const char *text;
    uint16_t kind, bytes, flags;
    const char *kind_name; /* as the signature hash spells it */
} types[] = {
    {"Tensor", TN_F_TENSOR, 8, 0, "TN_F_TENSOR"},
    {"Tensor!", TN_F_TENSOR, 8, TNI_FIELD_MUTATED, "TN_F_TENSOR"},
    {"Tensor?", TN_F_TENSOR_OPT, 8, TNI_FIELD_OPTIONAL, "TN_F_TENSOR_OPT"},
    {"Tensor!?", TN_F_TENSOR_OPT, 8, TNI_FIELD_OPTIONAL | TNI_FIELD_MUTATED, "TN_F_TENSOR_OPT"},
    {"Tensor[]", TN_F_TENSORS, 16, 0, "TN_F_TENSORS"},
    {"Operand", TN_F_OPERAND, 8, 0, "TN_F_OPERAND"},
    {"int", TN_F_INT, 8, 0, "TN_F_INT"},
    {"int?", TN_F_INT_OPT, 16, TNI_FIELD_OPTIONAL, "TN_F_INT_OPT"},
    {"int[]", TN_F_INTS, 16, 0, "TN_F_INTS"},
    {"int[]?", TN_F_INTS, 16, TNI_FIELD_OPTIONAL, "TN_F_INTS"},
    {"Dim", TN_F_DIM, 8, 0, "TN_F_DIM"},
    {"Dim?", TN_F_DIM_OPT, 16, TNI_FIELD_OPTIONAL, "TN_F_DIM_OPT"},
    {"Dims", TN_F_DIMS, 16, 0, "TN_F_DIMS"},
    {"bool", TN_F_BOOL, 8, 0, "TN_F_BOOL"},
    {"float", TN_F_FLOAT, 8, 0, "TN_F_FLOAT"},
    {"float?", TN_F_FLOAT_OPT, 16, TNI_FIELD_OPTIONAL, "TN_F_FLOAT_OPT"},
    {"Scalar", TN_F_SCALAR, 32, 0, "TN_F_SCALAR"},
    {"Scalar?", TN_F_SCALAR_OPT, 32, TNI_FIELD_OPTIONAL, "TN_F_SCALAR_OPT"},
    {"DType", TN_F_DTYPE, 8, 0, "TN_F_DTYPE"},
    {"DType?", TN_F_DTYPE, 8, TNI_FIELD_OPTIONAL, "TN_F_DTYPE"},
    {"Device?", TN_F_DEVICE, 8, TNI_FIELD_OPTIONAL, "TN_F_DEVICE"},
    {"Format", TN_F_FORMAT, 8, 0, "TN_F_FORMAT"},
    {"str", TN_F_STR, 8, 0, "TN_F_STR"},
    {"str?", TN_F_STR, 8, TNI_FIELD_OPTIONAL, "TN_F_STR"},
    {"Generator?", TN_F_GENERATOR, 8, TNI_FIELD_OPTIONAL, "TN_F_GENERATOR"},
};

static const struct type *find_type(const char *text) {
    for (int i = 0; i < TN_COUNT(types); i++)
        if (strcmp(types[i].text, text) == 0) return &types[i];
    return NULL;
}

/* ---- Reading -----------------------------------------------------------------------------------*/

typedef struct reader {
    const char *text, *at;
    tni_arena *arena;
    tni_schema *out;
    const char *kinds[TNI_SCHEMA_FIELDS]; /* of all fields, for the hash */
} reader;

static tn_status fault(const reader *r, const char *what) {
    int column = (int)(r->at - r->text) + 1;
    return tn_fail(TN_E_PLUGIN, -1, "schema '%s', column %d: %s", r->text, column, what);
}

static tn_status take_word(reader *r, const char *what, const char **ret_word) {
    tni_scan_skip(&r->at);
    size_t n = tni_scan_name(r->at);
    if (!n) return fault(r, what);
    *ret_word = tni_arena_text(r->arena, r->at, n);
    r->at += n;
    return *ret_word ? TN_OK : TN_E_MEMORY;
}

/* "@2" */
static tn_status read_version(reader *r) {
    r->out->version = 1;
    if (*r->at != '@') return TN_OK;
    size_t digits = strspn(r->at + 1, "0123456789");
    r->out->version = digits && digits <= 4 ? (int32_t)strtol(r->at + 1, NULL, 10) : 0;
    if (r->out->version < 1 || r->at[1] == '0')
        return fault(r, "a version is a number from 1 to 9999");
    r->at += 1 + digits;
    return TN_OK;
}

static tn_status read_name(reader *r) {
    tni_scan_skip(&r->at);
    size_t space = tni_scan_name(r->at);
    size_t name =
        space && strncmp(r->at + space, "::", 2) == 0 ? tni_scan_name(r->at + space + 2) : 0;
    if (!name) return fault(r, "an operator's name is of the form acme::gelu");
    size_t n = space + 2 + name;
    if (n > 100) return fault(r, "the operator's name is longer than 100 characters");
    if ((space == 2 && strncmp(r->at, "tn", 2) == 0) ||
        (space == 5 && strncmp(r->at, "tenon", 5) == 0))
        return fault(r, "the namespaces tn and tenon are Tenon's own");
    const char *from = r->at;
    r->at += n;
    TN_TRY(read_version(r));
    /* the first version is the plain name, also to the signature's hash */
    r->out->name = tni_arena_text(r->arena, from, r->out->version > 1 ? (size_t)(r->at - from) : n);
    return r->out->name ? TN_OK : TN_E_MEMORY;
}

/* Takes the dtype out of "Tensor(int64)", "Tensor(any)?". */
static tn_status read_dtype(reader *r, tn_field *f, char *text) {
    char *open = strchr(text, '('), *close = strchr(text, ')');
    if (!open) return TN_OK;
    if (!close || open - text != (long)strlen("Tensor") || strncmp(text, "Tensor", 6) != 0)
        return fault(r, "a dtype goes with Tensor alone, as in Tensor(int64)");
    *close = '\0';
    int32_t dtype = tn_dtype_find(open + 1);
    f->fixed = (uint16_t)(dtype + TNI_FIXED_DTYPE);
    if (strcmp(open + 1, "any") == 0)
        f->fixed = TNI_FIXED_ANY;
    else if (dtype < 0)
        return fault(r, "there is no dtype of that name");
    memmove(open, close + 1, strlen(close + 1) + 1);
    return TN_OK;
}

/* "Tensor?", "int[2]", "Scalar": what stands before the space. */
static tn_status read_type(reader *r, tn_field *f, const struct type **ret_type) {
    char text[48];
    tni_scan_skip(&r->at);
    size_t n = strcspn(r->at, " \t\r\n,)=(");
    if (r->at[n] == '(') n += strcspn(r->at + n, " \t\r\n,=");
    if (n == 0 || n >= sizeof text) return fault(r, "a type is expected");
    memcpy(text, r->at, n);
    text[n] = '\0';
    TN_TRY(read_dtype(r, f, text));
    char *open = strchr(text, '[');
    if (open && isdigit((unsigned char)open[1])) { /* int[2] is an int[] of a known length */
        char *close;
        long fixed = strtol(open + 1, &close, 10);
        if (*close != ']' || fixed < 1 || fixed > TN_MAX_DIMS || strncmp(text, "int[", 4) != 0)
            return fault(r, "a length goes with int alone, as in int[2]");
        f->fixed = (uint16_t)fixed;
        memmove(open + 1, close, strlen(close) + 1);
    }
    *ret_type = find_type(text);
    if (!*ret_type) return fault(r, "there is no such type");
    r->at += n;
    return TN_OK;
}

/* The text up to the comma or bracket that ends the argument. */
static tn_status read_default(reader *r, tn_field *f) {
    int depth = 0;
    char quote = 0;
    tni_scan_skip(&r->at);
    const char *from = r->at;
    for (; *r->at; r->at++) {
        char c = *r->at;
        if (quote) {
            if (c == quote) quote = 0;
            continue;
        }
        if (c == '\'' || c == '"') quote = c;
        if (depth == 0 && (c == ',' || c == ')')) break;
        if (c == '(' || c == '[') depth++;
        if (c == ')' || c == ']') depth--;
    }
    const char *to = r->at;
    while (to > from && isspace((unsigned char)to[-1])) to--;
    if (to == from) return fault(r, "a default is expected");
    f->deflt = tni_arena_text(r->arena, from, (size_t)(to - from));
    return f->deflt ? TN_OK : TN_E_MEMORY;
}

static tn_status add_field(reader *r, const tn_field *f, uint16_t bytes, const char *kind_name) {
    tni_schema *s = r->out;
    int32_t n = s->nargs + s->nouts;
    for (int32_t i = 0; i < n; i++)
        if (strcmp(s->fields[i].name, f->name) == 0)
            return fault(r, "two arguments or results share a name");
    if (n == TNI_SCHEMA_FIELDS || s->args_bytes + bytes > TNI_MAX_ARGS_BYTES)
        return fault(r, "there are too many arguments");
    r->kinds[n] = kind_name;
    s->fields[n] = *f;
    s->fields[n].offset = (uint16_t)s->args_bytes;
    s->args_bytes += bytes;
    return TN_OK;
}

static tn_status read_argument(reader *r, bool kwonly) {
    tn_field f = {0};
    const struct type *type;
    TN_TRY(read_type(r, &f, &type));
    f.kind = type->kind;
    f.flags = (uint16_t)(type->flags | (kwonly ? TNI_FIELD_KWONLY : 0));
    TN_TRY(take_word(r, "the argument's name is expected", &f.name));
    if (tni_scan_take(&r->at, "=")) {
        TN_TRY(read_default(r, &f));
        _Alignas(16) char trial[32];
        tn_field at_zero = f;
        at_zero.offset = 0;
        TN_TRY(tni_default_store(&at_zero, r->arena, trial));
    }
    TN_TRY(add_field(r, &f, type->bytes, type->kind_name));
    r->out->nargs++;
    return TN_OK;
}

static tn_status read_arguments(reader *r) {
    bool kwonly = false, optional = false;
    if (!tni_scan_take(&r->at, "(")) return fault(r, "'(' is expected");
    while (!tni_scan_take(&r->at, ")")) {
        if (r->out->nargs + kwonly > 0 && !tni_scan_take(&r->at, ","))
            return fault(r, "',' or ')' is expected");
        if (!kwonly && tni_scan_take(&r->at, "*")) {
            kwonly = true;
            continue;
        }
        TN_TRY(read_argument(r, kwonly));
        bool given = r->out->fields[r->out->nargs - 1].deflt != NULL;
        if (!kwonly && optional && !given)
            return fault(r, "an argument without a default follows one with a default");
        optional = optional || given;
    }
    return TN_OK;
}

static tn_status read_result(reader *r, bool named) {
    tn_field f = {.name = "out", .kind = TN_F_OUT};
    if (!named && tni_scan_take(&r->at, "Tensor[]")) {
        f.kind = TN_F_OUTS;
        TN_TRY(add_field(r, &f, sizeof(tn_views), "TN_F_OUTS"));
        r->out->list_out = true;
        r->out->nouts++;
        return TN_OK;
    }
    if (!tni_scan_take(&r->at, "Tensor") || *r->at == '[' || *r->at == '?' || *r->at == '!')
        return fault(r, named ? "a result among several is a Tensor"
                              : "a result is a Tensor, Tensor[] or ()");
    if (named)
        TN_TRY(take_word(r, "the result's name is expected, as in (Tensor y, Tensor z)", &f.name));
    if (r->out->nouts == TNI_MAX_OUTS) return fault(r, "there are too many results");
    TN_TRY(add_field(r, &f, sizeof(void *), "TN_F_OUT"));
    r->out->nouts++;
    return TN_OK;
}

/* "()", of an operator that writes to an argument. */
static tn_status read_nothing(const reader *r) {
    for (int32_t i = 0; i < r->out->nargs; i++)
        if (r->out->fields[i].flags & TNI_FIELD_MUTATED) return TN_OK;
    return fault(r, "an operator without results writes to an argument, Tensor!");
}

static tn_status read_results(reader *r) {
    if (!tni_scan_take(&r->at, "->")) return fault(r, "'->' is expected");
    if (!tni_scan_take(&r->at, "(")) {
        TN_TRY(read_result(r, false));
    } else if (tni_scan_take(&r->at, ")")) {
        TN_TRY(read_nothing(r));
    } else {
        do TN_TRY(read_result(r, true));
        while (tni_scan_take(&r->at, ","));
        if (!tni_scan_take(&r->at, ")")) return fault(r, "',' or ')' is expected");
    }
    tni_scan_skip(&r->at);
    return *r->at ? fault(r, "the schema goes on after its end") : TN_OK;
}

/* FNV-1a of "name(kind,kind)", as emit_c.py computes it. */
static uint64_t hash_text(uint64_t h, const char *text) {
    for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

tn_status tni_schema_parse(const char *text, tni_arena *arena, tni_schema *ret_schema) {
    reader r = {.text = text, .at = text, .arena = arena, .out = ret_schema};
    *ret_schema = (tni_schema){.args_bytes = sizeof(void *)};
    ret_schema->fields = tni_arena_take(arena, sizeof(tn_field) * TNI_SCHEMA_FIELDS);
    if (!ret_schema->fields) return TN_E_MEMORY;
    TN_TRY(read_name(&r));
    TN_TRY(read_arguments(&r));
    TN_TRY(read_results(&r));
    uint64_t h = hash_text(UINT64_C(0xcbf29ce484222325), ret_schema->name);
    for (int32_t i = 0; i < ret_schema->nargs + ret_schema->nouts; i++)
        h = hash_text(hash_text(h, i ? "," : "("), r.kinds[i]);
    ret_schema->sig = hash_text(h, ")");
    return TN_OK;
}

/* ---- Defaults ----------------------------------------------------------------------------------*/

static tn_status bad_default(const tn_field *f) {
    return tn_fail(TN_E_PLUGIN, -1, "the default '%s' of argument '%s' does not fit its type",
                   f->deflt, f->name);
}

static bool int_of(const char *s, int64_t *ret) {
    char *end;
    errno = 0;
    *ret = strtoll(s, &end, 10);
    return end != s && *end == '\0' && errno == 0;
}

static bool bool_of(const char *s, int64_t *ret) {
    *ret = strcmp(s, "True") == 0;
    return *ret || strcmp(s, "False") == 0;
}

static bool float_of(const char *s, double *ret) {
    char *end;
    *ret = strtod(s, &end);
    return end != s && *end == '\0';
}

static bool scalar_of(const char *s, tn_scalar *ret) {
    int64_t i;
    double d;
    if (bool_of(s, &i))
        *ret = tn_scalar_bool((int)i);
    else if (int_of(s, &i))
        *ret = tn_scalar_int(i);
    else if (float_of(s, &d))
        *ret = tn_scalar_float(d);
    else
        return false;
    return true;
}

/* "[1, 2]", "()", or "3", which a field of known length repeats. */
static tn_status ints_of(const tn_field *f, tni_arena *arena, tn_ints *ret) {
    const char *s = f->deflt;
    int64_t one;
    bool single = int_of(s, &one);
    size_t room = single && f->fixed ? f->fixed : strlen(s);
    int64_t *v = tni_arena_take(arena, sizeof *v * (room + 1));
    if (!v) return TN_E_MEMORY;
    *ret = (tn_ints){v, 0};
    if (single) {
        for (ret->n = 0; ret->n < (f->fixed ? f->fixed : 1); ret->n++) v[ret->n] = one;
        return TN_OK;
    }
    if (*s != '[' && *s != '(') return bad_default(f);
    for (s++; *s != ']' && *s != ')'; ret->n++) {
        char *end;
        errno = 0;
        v[ret->n] = strtoll(s, &end, 10);
        if (end == s || errno != 0) return bad_default(f);
        s = end + strspn(end, ", ");
    }
    bool fits = !f->fixed || ret->n == f->fixed || ret->n == 0;
    return s[1] || !fits ? bad_default(f) : TN_OK;
}

static tn_status text_of(const tn_field *f, tni_arena *arena, const char **ret) {
    size_t n = strlen(f->deflt);
    char quote = f->deflt[0];
    if (n < 2 || (quote != '\'' && quote != '"') || f->deflt[n - 1] != quote) return bad_default(f);
    *ret = tni_arena_text(arena, f->deflt + 1, n - 2);
    return *ret ? TN_OK : TN_E_MEMORY;
}

static bool format_of(const char *s, int64_t *ret) {
    static const struct {
        const char *name;
        int64_t value;
    } formats[] = {
        {"contiguous_format", TN_FORMAT_CONTIGUOUS},
        {"preserve_format", TN_FORMAT_PRESERVE},
        {"channels_last", TN_FORMAT_CHANNELS_LAST},
        {"channels_last_3d", TN_FORMAT_CHANNELS_LAST_3D},
    };
    for (int i = 0; i < TN_COUNT(formats); i++) {
        if (strcmp(s, formats[i].name) != 0) continue;
        *ret = formats[i].value;
        return true;
    }
    return false;
}

static const char *behind_dot(const char *s) {
    const char *dot = strrchr(s, '.');
    return dot ? dot + 1 : s;
}

/* What `None` means to a field of this kind; false where it means nothing. */
static bool store_none(const tn_field *f, void *p) {
    switch (f->kind) {
    case TN_F_TENSOR_OPT:
    case TN_F_STR:
    case TN_F_GENERATOR: *(void **)p = NULL; return (f->flags & TNI_FIELD_OPTIONAL) != 0;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT: *(tn_opt_int *)p = tn_no_int(); return true;
    case TN_F_FLOAT_OPT: *(tn_opt_float *)p = tn_no_float(); return true;
    case TN_F_INTS:
    case TN_F_DIMS:
        *(tn_ints *)p = tn_ints_none();
        return f->kind == TN_F_DIMS || (f->flags & TNI_FIELD_OPTIONAL);
    case TN_F_SCALAR_OPT: *(tn_scalar *)p = tn_scalar_none(); return true;
    case TN_F_DTYPE:
    case TN_F_DEVICE: *(int64_t *)p = -1; return (f->flags & TNI_FIELD_OPTIONAL) != 0;
    default: return false;
    }
}

tn_status tni_default_store(const tn_field *f, tni_arena *arena, void *args) {
    void *p = (char *)args + f->offset;
    const char *s = f->deflt;
    bool fits = false;
    if (strcmp(s, "None") == 0) return store_none(f, p) ? TN_OK : bad_default(f);
    switch (f->kind) {
    case TN_F_INT:
    case TN_F_DIM: fits = int_of(s, p) || bool_of(s, p); break;
    case TN_F_BOOL: fits = bool_of(s, p); break;
    case TN_F_FLOAT: fits = float_of(s, p); break;
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT: fits = scalar_of(s, p); break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT:
        ((tn_opt_int *)p)->has = 1;
        fits = int_of(s, &((tn_opt_int *)p)->value);
        break;
    case TN_F_FLOAT_OPT:
        ((tn_opt_float *)p)->has = 1;
        fits = float_of(s, &((tn_opt_float *)p)->value);
        break;
    case TN_F_INTS:
    case TN_F_DIMS: return ints_of(f, arena, p);
    case TN_F_STR: return text_of(f, arena, p);
    case TN_F_FORMAT: fits = format_of(behind_dot(s), p); break;
    case TN_F_DTYPE:
        *(int64_t *)p = tn_dtype_find(behind_dot(s));
        fits = *(int64_t *)p >= 0;
        break;
    default: break;
    }
    return fits ? TN_OK : bad_default(f);
}
