/* text.c: programs as text for people, as pictures (DOT), and as data for language bindings (JSON). */
#include "program_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The sink ----------------------------------------------------------------------------------*/

static bool make_room(tni_sink *s, size_t n) {
    if (s->failed) return false;
    if (s->room - s->n > n) return true;
    size_t wanted = s->room ? s->room : 256;
    while (wanted - s->n <= n) {
        if (wanted > SIZE_MAX / 4) return !(s->failed = true);
        wanted *= 2;
    }
    char *more = realloc(s->at, wanted);
    if (!more) return !(s->failed = true);
    s->at = more;
    s->room = wanted;
    return true;
}

void tni_sink_bytes(tni_sink *s, const void *from, size_t n) {
    if (!make_room(s, n + 1)) return;
    if (n) memcpy(s->at + s->n, from, n);
    s->n += n;
    s->at[s->n] = 0;
}

void tni_sink_text(tni_sink *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !make_room(s, (size_t)n + 1)) return;
    va_start(args, fmt);
    vsnprintf(s->at + s->n, (size_t)n + 1, fmt, args);
    va_end(args);
    s->n += (size_t)n;
}

/* ---- Parts that all forms share ----------------------------------------------------------------*/

typedef struct printer {
    const tn_program *p;
    tni_sink s;
    int32_t form;
} printer;

static bool is_json(const printer *w) { return w->form == TN_PROGRAM_JSON; }

static void put_quoted(tni_sink *s, const char *text) {
    tni_sink_bytes(s, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            tni_sink_text(s, "\\%c", *c);
        else if (*c < 0x20)
            tni_sink_text(s, "\\u%04x", *c);
        else
            tni_sink_bytes(s, c, 1);
    }
    tni_sink_bytes(s, "\"", 1);
}

static void put_name(printer *w, int32_t id) {
    const tni_pvalue *v = &w->p->value[id];
    if (v->name && *v->name)
        tni_sink_text(&w->s, "%%%s", v->name);
    else
        tni_sink_text(&w->s, "%%%d", (int)id);
}

static void put_value(printer *w, int32_t id) {
    if (is_json(w))
        tni_sink_text(&w->s, "{\"v\": %d}", (int)id);
    else
        put_name(w, id);
}

static void put_none(printer *w) { tni_sink_text(&w->s, is_json(w) ? "null" : "None"); }

static void put_double(printer *w, double v) {
    if (isfinite(v)) {
        char text[40];
        snprintf(text, sizeof text, "%.17g", v);
        /* a whole number still shows that it is none */
        tni_sink_text(&w->s, strpbrk(text, ".e") ? "%s" : "%s.0", text);
    } else if (is_json(w)) {
        tni_sink_text(&w->s, "{\"f\": \"%s\"}", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    } else {
        tni_sink_text(&w->s, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    }
}

static void put_bool(printer *w, bool v) {
    const char *const text[2][2] = {{"False", "True"}, {"false", "true"}};
    tni_sink_text(&w->s, "%s", text[is_json(w)][v]);
}

static void put_scalar(printer *w, const tn_scalar *v) {
    switch (v->kind) {
    case TN_SCALAR_NONE: put_none(w); break;
    case TN_CAT_BOOL: put_bool(w, v->i != 0); break;
    case TN_CAT_INT:
        tni_sink_text(&w->s, tn_scalar_is_beyond(v) ? "%llu" : "%lld", (long long)v->i);
        break;
    case TN_CAT_COMPLEX:
        tni_sink_text(&w->s, is_json(w) ? "{\"c\": [%.17g, %.17g]}" : "complex(%.17g, %.17g)",
                      v->re, v->im);
        break;
    default: put_double(w, v->re);
    }
}

static const tni_pderived *derived_at(const tni_pnode *n, int32_t field, int32_t index) {
    for (int32_t i = 0; i < n->nderived; i++)
        if (n->derived[i].field == field && n->derived[i].index == index) return &n->derived[i];
    return NULL;
}

static const char *const STEP[] = {"is", "times", "plus"};

static void put_derived(printer *w, const tni_pderived *d) {
    const char *name = w->p->symbol[d->symbol].name;
    if (is_json(w)) {
        tni_sink_text(&w->s, "{\"s\": ");
        put_quoted(&w->s, name);
        tni_sink_text(&w->s, ", \"num\": %lld, \"den\": %lld, \"add\": %lld, \"step\": \"%s\"}",
                      (long long)d->num, (long long)d->den, (long long)d->add, STEP[d->step]);
        return;
    }
    if (d->step) tni_sink_text(&w->s, d->step == TNI_P_TIMES ? "*" : "+");
    if (d->step == TNI_P_TIMES && d->add) tni_sink_text(&w->s, "(");
    tni_sink_text(&w->s, "%s", name);
    if (d->num != 1) tni_sink_text(&w->s, "*%lld", (long long)d->num);
    if (d->den != 1 && d->step != TNI_P_TIMES) tni_sink_text(&w->s, "/%lld", (long long)d->den);
    if (d->add) tni_sink_text(&w->s, "%+lld", (long long)d->add);
    if (d->step == TNI_P_TIMES && d->add) tni_sink_text(&w->s, ")");
    if (d->den != 1 && d->step == TNI_P_TIMES) tni_sink_text(&w->s, "/%lld", (long long)d->den);
}

/* Whether what the steps up to i give is a sum that the next one multiplies. */
static bool ends_sum(const tni_pderived *d, int32_t i, int32_t count) {
    return i + 1 < count && d[i + 1].step == TNI_P_TIMES &&
           (d[i].step == TNI_P_PLUS || (d[i].step == TNI_P_IS && d[i].add));
}

/* All steps of a number. */
static void put_steps(printer *w, const tni_pnode *n, const tni_pderived *d) {
    int32_t count = 1, left = (int32_t)(n->derived + n->nderived - d);
    while (count < left && d[count].step != TNI_P_IS) count++;
    if (is_json(w) && count > 1) {
        for (int32_t i = 0; i < count; i++) {
            tni_sink_text(&w->s, i ? ", " : "{\"steps\": [");
            put_derived(w, &d[i]);
        }
        tni_sink_text(&w->s, "]}");
        return;
    }
    for (int32_t i = 0; i < count; i++)
        if (ends_sum(d, i, count)) tni_sink_text(&w->s, "(");
    for (int32_t i = 0; i < count; i++) {
        put_derived(w, &d[i]);
        if (ends_sum(d, i, count)) tni_sink_text(&w->s, ")");
    }
}

static void put_int(printer *w, const tni_pnode *n, int32_t field, int32_t index, int64_t v) {
    const tni_pderived *d = derived_at(n, field, index);
    if (d)
        put_steps(w, n, d);
    else
        tni_sink_text(&w->s, "%lld", (long long)v);
}

static void put_input(printer *w, const tni_pnode *n, int32_t field, int32_t at) {
    const tni_pderived *d = derived_at(n, field, at);
    if (d)
        put_steps(w, n, d);
    else if (n->in[at] == TNI_P_NUMBER)
        put_scalar(w, &n->number[at]);
    else if (n->in[at] < 0)
        put_none(w);
    else
        put_value(w, n->in[at]);
}

static void put_tagged(printer *w, const char *tag, const char *text) {
    tni_sink_text(&w->s, is_json(w) ? "{\"%s\": \"%s\"}" : "%.0s%s", tag, text ? text : "?");
}

static void put_ints(printer *w, const tni_pnode *n, int32_t field, const tn_ints *list) {
    if (list->n < 0) {
        put_none(w);
        return;
    }
    tni_sink_text(&w->s, "[");
    for (int64_t k = 0; k < list->n; k++) {
        if (k) tni_sink_text(&w->s, ", ");
        put_int(w, n, field, (int32_t)k, list->v[k]);
    }
    tni_sink_text(&w->s, "]");
}

static void put_device(printer *w, int64_t device) {
    char text[80];
    const char *name = tn_device_name((int32_t)(device >> 8));
    snprintf(text, sizeof text, "%s:%d", name ? name : "?", (int)(device & 255));
    put_tagged(w, "device", text);
}

/* Not for tensors and lists of them. */
static void put_field(printer *w, const tni_pnode *n, int32_t i) {
    const tn_field *f = &n->op->fields[i];
    const void *at = tni_p_at(n, f);
    switch (f->kind) {
    case TN_F_INT:
    case TN_F_DIM: put_int(w, n, i, 0, *(const int64_t *)at); break;
    case TN_F_INT_OPT:
    case TN_F_DIM_OPT:
        if (((const tn_opt_int *)at)->has)
            put_int(w, n, i, 0, ((const tn_opt_int *)at)->value);
        else
            put_none(w);
        break;
    case TN_F_INTS:
    case TN_F_DIMS: put_ints(w, n, i, at); break;
    case TN_F_BOOL: put_bool(w, *(const int64_t *)at != 0); break;
    case TN_F_FLOAT:
        if (derived_at(n, i, 0))
            put_int(w, n, i, 0, 0);
        else
            put_double(w, *(const double *)at);
        break;
    case TN_F_FLOAT_OPT:
        if (((const tn_opt_float *)at)->has)
            put_double(w, ((const tn_opt_float *)at)->value);
        else
            put_none(w);
        break;
    case TN_F_SCALAR:
    case TN_F_SCALAR_OPT:
        if (derived_at(n, i, 0))
            put_int(w, n, i, 0, 0);
        else
            put_scalar(w, at);
        break;
    case TN_F_DTYPE: {
        int64_t dtype = *(const int64_t *)at;
        if (dtype < 0)
            put_none(w);
        else
            put_tagged(w, "dtype", tn_dtype_name((int32_t)dtype));
        break;
    }
    case TN_F_DEVICE:
        if (*(const int64_t *)at < 0)
            put_none(w);
        else
            put_device(w, *(const int64_t *)at);
        break;
    case TN_F_FORMAT:
        tni_sink_text(&w->s, is_json(w) ? "{\"format\": %lld}" : "%lld",
                      (long long)*(const int64_t *)at);
        break;
    case TN_F_STR:
        if (*(const char *const *)at)
            put_quoted(&w->s, *(const char *const *)at);
        else
            put_none(w);
        break;
    default: /* a generator */
        if (!*(tn_generator *const *)at)
            put_none(w);
        else
            tni_sink_text(&w->s, is_json(w) ? "{\"generator\": true}" : "generator");
    }
}

static bool is_argument(const tn_field *f) { return f->kind != TN_F_OUT && f->kind != TN_F_OUTS; }

/* name=value, ...; tensors advance `at`. */
static void put_args(printer *w, const tni_pnode *n) {
    int32_t at = 0;
    bool first = true;
    for (int32_t i = 0; i < n->op->nfields; i++) {
        const tn_field *f = &n->op->fields[i];
        if (!is_argument(f)) continue;
        tni_sink_text(&w->s, is_json(w) ? "%s\"%s\": " : "%s%s=", first ? "" : ", ", f->name);
        first = false;
        if (f->kind == TN_F_TENSORS) {
            int64_t count = ((const tn_views *)tni_p_at(n, f))->n;
            tni_sink_text(&w->s, "[");
            for (int64_t k = 0; k < count; k++) {
                if (k) tni_sink_text(&w->s, ", ");
                put_input(w, n, i, at++);
            }
            tni_sink_text(&w->s, "]");
        } else if (f->kind == TN_F_TENSOR || f->kind == TN_F_TENSOR_OPT ||
                   f->kind == TN_F_OPERAND) {
            put_input(w, n, i, at++);
        } else {
            put_field(w, n, i);
        }
    }
}

static void put_type(printer *w, const tni_pvalue *v) {
    tni_sink_text(&w->s, "%s[", tn_dtype_name(v->dtype));
    for (int32_t d = 0; d < v->ndim; d++) {
        int32_t symbol = v->symbol ? v->symbol[d] : -1;
        if (d) tni_sink_text(&w->s, ", ");
        const tni_pderived *rule = v->role == TNI_P_INPUT ? tni_p_size_rule(v, d) : NULL;
        if (rule)
            put_derived(w, rule);
        else if (symbol >= 0)
            tni_sink_text(&w->s, "%s", w->p->symbol[symbol].name);
        else if (v->shape[d] < 0)
            tni_sink_text(&w->s, "?");
        else
            tni_sink_text(&w->s, "%lld", (long long)v->shape[d]);
    }
    tni_sink_text(&w->s, "]");
}

/* ---- Text --------------------------------------------------------------------------------------*/

static const char *const kinds[] = {"constant", "parameter", "buffer"};

static void put_ids(printer *w, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (i) tni_sink_text(&w->s, ", ");
        if (ids[i] >= 0)
            put_value(w, ids[i]);
        else
            put_none(w);
    }
}

static void print_text(printer *w) {
    const tn_program *p = w->p;
    tni_sink_text(&w->s, "program(");
    for (int32_t i = 0; i < p->ninputs; i++) {
        if (i) tni_sink_text(&w->s, ", ");
        put_name(w, p->input[i]);
        tni_sink_text(&w->s, ": ");
        put_type(w, &p->value[p->input[i]]);
    }
    tni_sink_text(&w->s, "):\n");
    for (int32_t i = 0; i < p->nsymbols; i++)
        tni_sink_text(&w->s, "  size %s: %lld to %lld\n", p->symbol[i].name,
                      (long long)p->symbol[i].low, (long long)p->symbol[i].high);
    for (int32_t i = 0; i < p->nvalues; i++) {
        if (p->value[i].role != TNI_P_WEIGHT) continue;
        tni_sink_text(&w->s, "  ");
        put_name(w, i);
        tni_sink_text(&w->s, " = %s ", kinds[p->value[i].kind]);
        put_type(w, &p->value[i]);
        tni_sink_text(&w->s, "\n");
    }
    for (int32_t k = 0; k < p->nnodes; k++) {
        const tni_pnode *n = &p->node[k];
        tni_sink_text(&w->s, "  ");
        put_ids(w, n->out, n->nout);
        tni_sink_text(&w->s, "%s%s(", n->nout ? " = " : "", n->op->info.name);
        put_args(w, n);
        tni_sink_text(&w->s, ")");
        for (int32_t i = 0; i < n->op->nout && !(n->op->flags & TNI_OP_LIST_OUT); i++)
            if (n->given[i] >= 0) {
                tni_sink_text(&w->s, " into ");
                put_name(w, n->given[i]);
            }
        for (int32_t i = 0; i < n->nout; i++)
            if (n->out[i] >= 0) {
                tni_sink_text(&w->s, "%s", i ? ", " : "  # ");
                put_type(w, &p->value[n->out[i]]);
            }
        tni_sink_text(&w->s, "\n");
    }
    tni_sink_text(&w->s, "  return ");
    put_ids(w, p->output, p->noutputs);
    tni_sink_text(&w->s, "\n");
}

/* ---- DOT ---------------------------------------------------------------------------------------*/

static void put_label(printer *w, int32_t id, const char *shape) {
    const tni_pvalue *v = &w->p->value[id];
    tni_sink_text(&w->s, "  v%d [shape=%s, label=", (int)id, shape);
    put_quoted(&w->s, v->name ? v->name : "constant");
    w->s.n -= !w->s.failed; /* the label goes on */
    tni_sink_text(&w->s, "\\n");
    put_type(w, v);
    tni_sink_text(&w->s, "\"];\n");
}

static void print_dot(printer *w) {
    const tn_program *p = w->p;
    tni_sink_text(&w->s, "digraph program {\n  node [fontname=\"sans-serif\", fontsize=10];\n");
    for (int32_t i = 0; i < p->nvalues; i++)
        if (p->value[i].role != TNI_P_NODE)
            put_label(w, i, p->value[i].role == TNI_P_INPUT ? "ellipse" : "note");
    for (int32_t k = 0; k < p->nnodes; k++) {
        const tni_pnode *n = &p->node[k];
        tni_sink_text(&w->s, "  n%d [shape=box, label=\"%s", (int)k, n->op->info.name);
        for (int32_t i = 0; i < n->nout; i++)
            if (n->out[i] >= 0) {
                tni_sink_text(&w->s, "\\n");
                put_type(w, &p->value[n->out[i]]);
            }
        tni_sink_text(&w->s, "\"];\n");
        for (int32_t i = 0; i < n->nin; i++) {
            if (n->in[i] < 0) continue;
            bool made = p->value[n->in[i]].role == TNI_P_NODE;
            tni_sink_text(&w->s, "  %c%d -> n%d;\n", made ? 'n' : 'v',
                          (int)(made ? p->value[n->in[i]].place : n->in[i]), (int)k);
        }
    }
    for (int32_t i = 0; i < p->noutputs; i++) {
        bool made = p->value[p->output[i]].role == TNI_P_NODE;
        tni_sink_text(&w->s, "  o%d [shape=ellipse, label=\"output %d\"];\n", (int)i, (int)i);
        tni_sink_text(&w->s, "  %c%d -> o%d;\n", made ? 'n' : 'v',
                      (int)(made ? p->value[p->output[i]].place : p->output[i]), (int)i);
    }
    tni_sink_text(&w->s, "}\n");
}

/* ---- JSON --------------------------------------------------------------------------------------*/

static void put_id_list(printer *w, const char *key, const int32_t *ids, int32_t n) {
    tni_sink_text(&w->s, "\"%s\": [", key);
    for (int32_t i = 0; i < n; i++) tni_sink_text(&w->s, "%s%d", i ? ", " : "", (int)ids[i]);
    tni_sink_text(&w->s, "]");
}

/* Whether a run looks at any step of what a size follows from. */
static bool dim_matters(const printer *w, const tni_pvalue *v, int32_t dim) {
    bool any = false;
    for (int32_t i = 0; i < v->nrules; i++)
        any |= v->rule[i].index == dim && tni_p_rule_matters(w->p, v, i);
    return any;
}

/* Those that a run looks at, with all their steps. */
static void put_rules(printer *w, const tni_pvalue *v) {
    int32_t some = 0;
    for (int32_t i = 0; i < v->nrules; i++) {
        if (v->role == TNI_P_NODE && !dim_matters(w, v, v->rule[i].index)) continue;
        tni_sink_text(&w->s, "%s[%d, ", some++ ? ", " : ", \"rules\": [", (int)v->rule[i].index);
        put_derived(w, &v->rule[i]);
        tni_sink_text(&w->s, "]");
    }
    if (some) tni_sink_text(&w->s, "]");
}

static void put_json_value(printer *w, int32_t id) {
    static const char *const roles[] = {"node", "input", "weight"};
    const tni_pvalue *v = &w->p->value[id];
    tni_sink_text(&w->s, "{\"role\": \"%s\", \"kind\": \"%s\", \"name\": ", roles[v->role],
                  kinds[v->role == TNI_P_WEIGHT ? v->kind : 0]);
    put_quoted(&w->s, v->name ? v->name : "");
    tni_sink_text(&w->s, ", \"dtype\": \"%s\", \"device\": \"%s:%d\", \"shape\": [",
                  tn_dtype_name(v->dtype), tn_device_name(v->device.slot), (int)v->device.index);
    for (int32_t d = 0; d < v->ndim; d++) {
        if (d) tni_sink_text(&w->s, ", ");
        if (v->symbol && v->symbol[d] >= 0 && !tni_p_size_rule(v, d))
            put_quoted(&w->s, w->p->symbol[v->symbol[d]].name);
        else
            tni_sink_text(&w->s, "%lld", (long long)v->shape[d]);
    }
    tni_sink_text(&w->s, "]");
    if (v->role == TNI_P_NODE && v->kind == TNI_P_HELD) tni_sink_text(&w->s, ", \"held\": true");
    put_rules(w, v);
    tni_sink_text(&w->s, "}");
}

static void put_json_node(printer *w, const tni_pnode *n) {
    bool list = n->op->flags & TNI_OP_LIST_OUT;
    tni_sink_text(&w->s, "{\"op\": ");
    put_quoted(&w->s, n->op->info.name);
    tni_sink_text(&w->s, ", \"version\": %d, \"list\": ", (int)n->op->version);
    put_bool(w, list);
    tni_sink_text(&w->s, ", \"scope\": %d, \"no_grad\": ", (int)n->scope);
    put_bool(w, n->no_grad);
    tni_sink_text(&w->s, ", \"fresh\": ");
    put_bool(w, n->fresh);
    tni_sink_text(&w->s, ", \"random\": ");
    put_bool(w, n->op->flags & TNI_OP_RANDOM);
    int32_t positional = 0;
    for (int32_t i = 0; i < n->op->nfields; i++)
        positional +=
            is_argument(&n->op->fields[i]) && !(n->op->fields[i].flags & TNI_FIELD_KWONLY);
    tni_sink_text(&w->s, ", \"positional\": %d, \"in_place\": ", (int)positional);
    put_bool(w, n->op->flags & TNI_OP_INPLACE_ONLY);
    tni_sink_text(&w->s, ", \"wrote\": [");
    for (int32_t i = 0, some = 0; i < n->nin; i++)
        if (n->wrote && n->wrote[i] && n->in[i] >= 0)
            tni_sink_text(&w->s, "%s%d", some++ ? ", " : "", (int)n->in[i]);
    tni_sink_text(&w->s, "], \"autocast\": ");
    put_quoted(&w->s, n->cast ? tn_dtype_name(n->cast - 1) : "");
    tni_sink_text(&w->s, ", \"args\": {");
    put_args(w, n);
    tni_sink_text(&w->s, "}, ");
    put_id_list(w, "outs", n->out, n->nout);
    tni_sink_text(&w->s, ", ");
    put_id_list(w, "given", n->given, list ? 0 : n->op->nout);
    tni_sink_text(&w->s, "}");
}

static void print_json(printer *w) {
    const tn_program *p = w->p;
    tni_sink_text(&w->s, "{\"values\": [");
    for (int32_t i = 0; i < p->nvalues; i++) {
        if (i) tni_sink_text(&w->s, ",\n ");
        put_json_value(w, i);
    }
    tni_sink_text(&w->s, "],\n\"nodes\": [");
    for (int32_t i = 0; i < p->nnodes; i++) {
        if (i) tni_sink_text(&w->s, ",\n ");
        put_json_node(w, &p->node[i]);
    }
    tni_sink_text(&w->s, "],\n\"symbols\": [");
    for (int32_t i = 0; i < p->nsymbols; i++) {
        tni_sink_text(&w->s, "%s{\"name\": ", i ? ", " : "");
        put_quoted(&w->s, p->symbol[i].name);
        tni_sink_text(&w->s, ", \"low\": %lld, \"high\": %lld, \"seen\": %lld}",
                      (long long)p->symbol[i].low, (long long)p->symbol[i].high,
                      (long long)p->symbol[i].seen);
    }
    tni_sink_text(&w->s, "],\n");
    put_id_list(w, "inputs", p->input, p->ninputs);
    tni_sink_text(&w->s, ",\n");
    put_id_list(w, "outputs", p->output, p->noutputs);
    tni_sink_text(&w->s, "}\n");
}

tn_status tn_program_print(const tn_program *p, int32_t form, char **ret_text) {
    printer w = {.p = p, .form = form};
    if (!p || !ret_text) return tn_fail(TN_E_TYPE, -1, "program_print() needs a program");
    if (!p->recorded) return tn_fail(TN_E_STATE, 0, "the program is still being recorded");
    switch (form) {
    case TN_PROGRAM_TEXT: print_text(&w); break;
    case TN_PROGRAM_DOT: print_dot(&w); break;
    case TN_PROGRAM_JSON: print_json(&w); break;
    default: return tn_fail(TN_E_VALUE, 1, "there is no form %d of a program's text", (int)form);
    }
    if (w.s.failed) {
        free(w.s.at);
        return tni_p_memory();
    }
    *ret_text = w.s.at;
    return TN_OK;
}
