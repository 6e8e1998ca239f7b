/* data.c: reads the data file that make_data.py wrote: tolerances, needs of levels, operators with their
 * samples. The file belongs to the program; one that it does not understand ends the run with the
 * number of the line. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    cf_data *data;
    char *rest; /* what of the line is still to be read */
    int number;
    bool bad;
} reader;

/* The next part of a text up to a separator, which is overwritten; NULL: there is none. */
static char *part(char **rest, char separator) {
    char *start = *rest;
    if (!start) return NULL;
    char *end = strchr(start, separator);
    *rest = end ? end + 1 : NULL;
    if (end) *end = '\0';
    return start;
}

static char *word(reader *r) {
    char *s = part(&r->rest, '\t');
    if (!s) r->bad = true;
    return s ? s : (char *)"";
}

static uint32_t dtypes_of(reader *r, char *names) {
    uint32_t set = 0;
    if (strcmp(names, "*") == 0) return (1u << TN_DTYPE_BUILTIN_COUNT) - 1;
    for (char *name; (name = part(&names, ' '));) {
        int32_t slot = tn_dtype_find(name);
        if (slot < 0)
            r->bad = true;
        else
            set |= 1u << slot;
    }
    return set;
}

static int64_t count_commas(const char *s) {
    int64_t n = *s != '\0';
    for (; *s; s++) n += *s == ',';
    return n;
}

static void read_shape(reader *r, cf_value *v, char *text) {
    int64_t n = count_commas(text);
    r->bad |= n > CF_DIMS;
    for (char *s; n > 0 && n <= CF_DIMS && (s = part(&text, ','));)
        v->shape[v->ndim++] = strtoll(s, NULL, 10);
}

static void read_tensor(reader *r, cf_value *v, char *text, bool given) {
    char *shape = part(&text, ':'), *dtype = part(&text, ':');
    if (!shape || !dtype || !text) {
        r->bad = true;
        return;
    }
    char *where = strchr(dtype, '@');
    if (where) *where = '\0';
    v->kind = CF_TENSOR;
    v->on_cpu = where != NULL;
    v->dtype = *dtype ? tn_dtype_find(dtype) : -1;
    r->bad |= *dtype && v->dtype < 0;
    read_shape(r, v, shape);
    if (given) {
        v->n = count_commas(text);
        v->data = cf_alloc((size_t)(v->n + 1) * sizeof *v->data);
        for (int64_t i = 0; i < v->n; i++) v->data[i] = strtod(part(&text, ','), NULL);
    } else {
        v->low = strtod(part(&text, ':'), NULL);
        v->high = text ? strtod(text, NULL) : 0;
    }
}

static void read_value(reader *r, cf_value *v, char *text);

static void read_list(reader *r, cf_value *v, char *text) {
    v->kind = CF_LIST;
    for (char *s; *text && (s = part(&text, ';'));) {
        v->items = cf_grow(v->items, v->n, sizeof *v->items);
        v->items[v->n] = (cf_value){.dtype = -1};
        read_value(r, &v->items[v->n++], s);
        if (!text) break;
    }
}

static void read_ints(cf_value *v, char *text) {
    v->kind = CF_INTS;
    v->n = count_commas(text);
    v->ints = cf_alloc((size_t)(v->n + 1) * sizeof *v->ints);
    for (int64_t i = 0; i < v->n; i++) v->ints[i] = strtoll(part(&text, ','), NULL, 10);
}

static void read_value(reader *r, cf_value *v, char *text) {
    *v = (cf_value){.dtype = -1, .number = tn_scalar_none()};
    if (strcmp(text, "-") == 0) return;
    if (!text[0] || text[1] != ':') {
        r->bad = true;
        return;
    }
    char kind = text[0];
    text += 2;
    v->kind = CF_NUMBER;
    switch (kind) {
    case 'T':
    case 'D': read_tensor(r, v, text, kind == 'D'); break;
    case 'L': read_list(r, v, text); break;
    case 'I': read_ints(v, text); break;
    case 'b': v->number = tn_scalar_bool(text[0] == '1'); break;
    case 'i': v->number = tn_scalar_int(strtoll(text, NULL, 10)); break;
    case 'f': v->number = tn_scalar_float(strtod(text, NULL)); break;
    case 'd':
    case 's':
        v->kind = CF_TEXT;
        v->text = text;
        v->dtype = kind == 'd' ? tn_dtype_find(text) : -1;
        break;
    default: r->bad = true;
    }
}

static void read_op(reader *r) {
    cf_data *d = r->data;
    d->ops = cf_grow(d->ops, d->nops, sizeof *d->ops);
    cf_op *op = &d->ops[d->nops++];
    *op = (cf_op){0};
    op->name = word(r);
    op->kind = word(r);
    const char *forms = word(r);
    if (strstr(forms, "inplace")) op->forms |= CF_FORM_INPLACE;
    if (strstr(forms, "out")) op->forms |= CF_FORM_OUT;
    if (strstr(forms, "unset")) op->forms |= CF_UNSET;
    op->tol = strtod(word(r), NULL);
    op->dtypes = dtypes_of(r, word(r));
    r->bad |= tn_op_meta_find(op->name, &op->meta) != TN_OK;
}

static void read_sample(reader *r, bool grad) {
    cf_op *op = r->data->nops ? &r->data->ops[r->data->nops - 1] : NULL;
    if (!op) {
        r->bad = true;
        return;
    }
    int32_t outs = op->meta.flags & TNI_OP_LIST_OUT ? 1 : op->meta.nout;
    int32_t n = op->meta.nfields - outs;
    op->samples = cf_grow(op->samples, op->nsamples, sizeof *op->samples);
    cf_sample *s = &op->samples[op->nsamples++];
    *s = (cf_sample){cf_alloc((size_t)(n + 1) * sizeof *s->values), grad};
    for (int32_t i = 0; i < n; i++) read_value(r, &s->values[i], word(r));
    op->own_grad |= grad;
}

static void read_need(reader *r) {
    cf_data *d = r->data;
    d->needs = cf_grow(d->needs, d->nneeds, sizeof *d->needs);
    cf_need *need = &d->needs[d->nneeds++];
    *need = (cf_need){.level = (int32_t)strtol(word(r), NULL, 10)};
    bool kernel = strcmp(word(r), "kernel") == 0;
    *(kernel ? &need->op : &need->iface) = word(r);
    if (kernel) need->dtypes = dtypes_of(r, word(r));
    r->bad |= need->level < 0 || need->level >= CF_LEVELS;
}

static void read_tolerance(reader *r) {
    int32_t slot = tn_dtype_find(word(r));
    if (slot < 0 || slot >= TN_DTYPE_BUILTIN_COUNT) {
        r->bad = true;
        return;
    }
    cf_tolerance *t = &r->data->tolerances[slot];
    t->relative = strtod(word(r), NULL);
    t->absolute = strtod(word(r), NULL);
    t->epsilon = strtod(word(r), NULL);
}

static void read_line(reader *r) {
    const char *what = word(r);
    if (strcmp(what, "tenon-conform") == 0)
        r->bad |= r->number != 1 || strcmp(word(r), "1") != 0;
    else if (strcmp(what, "op") == 0)
        read_op(r);
    else if (strcmp(what, "sample") == 0 || strcmp(what, "grad") == 0)
        read_sample(r, what[0] == 'g');
    else if (strcmp(what, "need") == 0)
        read_need(r);
    else if (strcmp(what, "tolerance") == 0)
        read_tolerance(r);
    else
        r->bad = true;
}

bool cf_is_random(const cf_op *op) {
    bool random = (op->meta.flags & TNI_OP_RANDOM) != 0;
    for (int32_t i = 0; i < op->meta.nfields; i++)
        random |= op->meta.fields[i].kind == TN_F_GENERATOR;
    return random;
}

bool cf_data_read(const char *path, cf_data *ret_data, cf_text *why) {
    FILE *f = fopen(path, "re");
    if (!f) {
        cf_add(why, "%s cannot be read; reinstall tenon", path);
        return false;
    }
    reader r = {.data = ret_data};
    char *buffer = NULL;
    size_t room = 0;
    ssize_t n;
    while (!r.bad && (n = getline(&buffer, &room, f)) >= 0) {
        if (n > 0 && buffer[n - 1] == '\n') buffer[n - 1] = '\0';
        r.number++;
        r.rest = cf_copy(buffer); /* samples point into it */
        read_line(&r);
    }
    free(buffer);
    fclose(f);
    if (r.bad || !r.number)
        cf_add(why, "%s:%d does not fit this libtenon; reinstall tenon", path, r.number);
    return !r.bad && r.number;
}
