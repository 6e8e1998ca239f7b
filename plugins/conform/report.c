/* report.c: results for people on standard output, for programs as JSON and as JUnit XML. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {"pending", "passed", "failed", "skipped"};

/* ---- People ------------------------------------------------------------------------------------*/

void cf_report_fails(const cf_row *r) {
    char name[128];
    cf_row_name(r, name, sizeof name);
    for (const char *s = r->fails; s && *s;) {
        int n = (int)strcspn(s, "\n");
        printf("FAIL %s: %.*s\n", name, n, s);
        s += n + (s[n] == '\n');
    }
    fflush(stdout);
}

/* How many cells of the support table go each way. */
static void print_ways(const cf_plan *p) {
    static const char *const ways[] = {"kernel", "wider", "composite", "cpu", "none"};
    int32_t counts[5] = {0}, total = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const cf_row *r = &p->rows[i];
        if (r->mode != CF_SUPPORT || !r->note) continue;
        for (int w = 0; w < 5; w++) counts[w] += strcmp(r->note, ways[w]) == 0;
        total++;
    }
    if (!total) return;
    printf("support: ");
    for (int w = 0; w < 5; w++) printf("%s%s %d", w ? ", " : "", ways[w], counts[w]);
    printf(" of %d operators x dtypes\n", total);
}

/* A line for each size. */
static void print_times(const char *name, const char *note) {
    for (const char *next; note; note = next ? next + 2 : NULL) {
        next = strstr(note, "; ");
        printf("%-40s %.*s\n", name, next ? (int)(next - note) : (int)strlen(note), note);
    }
}

static void print_notes(const cf_plan *p) {
    char name[128];
    for (int32_t i = 0; i < p->n; i++) {
        const cf_row *r = &p->rows[i];
        if (!r->note || r->mode == CF_SUPPORT) continue;
        cf_row_name(r, name, sizeof name);
        if (r->mode == CF_PERF)
            print_times(name, r->note);
        else
            printf("%s: %s\n", name, r->note);
    }
}

void cf_report_close(const cf_options *o, const cf_plan *p, const cf_verdict *v) {
    int32_t ran = v->passed + v->failed;
    printf("%s: %s\n", o->device, v->describe);
    print_notes(p);
    print_ways(p);
    int32_t next = v->level + 1;
    if (next < CF_LEVELS) printf("level %d lacks: %s\n", next, v->missing[next].s);
    if (v->level >= 0)
        printf("level %d, ", v->level);
    else
        printf("no level, ");
    printf("%d/%d (%.1f %%)\n", v->passed, ran, ran ? 100.0 * v->passed / ran : 0.0);
}

/* ---- Files -------------------------------------------------------------------------------------*/

static bool save(const char *path, cf_text *text) {
    FILE *f = fopen(path, "we");
    bool good = f && fwrite(text->s, 1, text->n, f) == text->n;
    if (f) good &= fclose(f) == 0;
    if (!good) fprintf(stderr, "tenon-conform: %s cannot be written\n", path);
    cf_free(text);
    return good;
}

/* A JSON string. Bytes that are no ASCII are passed on: messages are UTF-8. */
static void add_json(cf_text *t, const char *s) {
    cf_add(t, "\"");
    for (; s && *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            cf_add(t, "\\%c", c);
        else if (c < 0x20)
            cf_add(t, "\\u%04x", c);
        else
            cf_add(t, "%c", c);
    }
    cf_add(t, "\"");
}

static void add_json_lines(cf_text *t, const char *lines) {
    const char *comma = "";
    cf_add(t, "[");
    while (lines && *lines) {
        size_t n = strcspn(lines, "\n");
        char *line = cf_copy(lines);
        line[n] = '\0';
        cf_add(t, "%s", comma);
        add_json(t, line);
        free(line);
        comma = ", ";
        lines += n + (lines[n] == '\n');
    }
    cf_add(t, "]");
}

static void add_json_row(cf_text *t, const cf_row *r) {
    cf_add(t, "  {\"mode\": \"%s\", \"name\": ", cf_mode_names[r->mode]);
    add_json(t, r->name);
    if (r->dtype >= 0) cf_add(t, ", \"dtype\": \"%s\"", tn_dtype_name(r->dtype));
    cf_add(t, ", \"status\": \"%s\", \"cases\": %lld, \"ms\": %.3f", status_names[r->status],
           (long long)r->cases, r->ms);
    if (r->note) {
        cf_add(t, ", \"note\": ");
        add_json(t, r->note);
    }
    cf_add(t, ", \"failures\": ");
    add_json_lines(t, r->fails);
    cf_add(t, "}");
}

bool cf_report_json(const cf_options *o, const cf_plan *p, const cf_verdict *v) {
    cf_text t = {0};
    cf_add(&t, "{\"tenon\": \"%s\", \"device\": ", tn_version());
    add_json(&t, o->device);
    cf_add(&t, ", \"describe\": ");
    add_json(&t, v->describe);
    cf_add(&t, ", \"level\": %d, \"passed\": %d, \"failed\": %d, \"skipped\": %d,\n", v->level,
           v->passed, v->failed, v->skipped);
    cf_add(&t, " \"missing\": [");
    for (int32_t i = 0; i < CF_LEVELS; i++) {
        cf_add(&t, "%s", i ? ", " : "");
        add_json(&t, v->missing[i].s);
    }
    cf_add(&t, "],\n \"checks\": [\n");
    for (int32_t i = 0; i < p->n; i++) {
        add_json_row(&t, &p->rows[i]);
        cf_add(&t, "%s\n", i + 1 < p->n ? "," : "");
    }
    cf_add(&t, " ]}\n");
    return save(o->json, &t);
}

/* Text inside XML; characters that XML cannot hold become '?'. */
static void add_xml(cf_text *t, const char *s) {
    for (; s && *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            cf_add(t, "&#%d;", c);
        else
            cf_add(t, "%c", c < 0x20 && c != '\n' ? '?' : c);
    }
}

static void add_junit_case(cf_text *t, const cf_row *r) {
    const char *dtype = r->dtype >= 0 ? tn_dtype_name(r->dtype) : "";
    cf_add(t, "  <testcase classname=\"%s\" name=\"", cf_mode_names[r->mode]);
    add_xml(t, r->name);
    cf_add(t, "%s%s\" time=\"%.6f\"", *dtype ? " " : "", dtype, r->ms / 1e3);
    if (r->status == CF_PASSED) {
        cf_add(t, "/>\n");
        return;
    }
    cf_add(t, r->status == CF_FAILED ? "><failure>" : "><skipped>");
    add_xml(t, r->fails);
    cf_add(t, r->status == CF_FAILED ? "</failure>" : "</skipped>");
    cf_add(t, "</testcase>\n");
}

bool cf_report_junit(const cf_options *o, const cf_plan *p, const cf_verdict *v) {
    cf_text t = {0};
    cf_add(&t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    cf_add(&t, " <testsuite name=\"tenon conform ");
    add_xml(&t, o->device);
    cf_add(&t, "\" tests=\"%d\" failures=\"%d\" skipped=\"%d\">\n", p->n, v->failed, v->skipped);
    for (int32_t i = 0; i < p->n; i++) add_junit_case(&t, &p->rows[i]);
    cf_add(&t, " </testsuite>\n</testsuites>\n");
    return save(o->junit, &t);
}

/* ---- The table of operators and dtypes ---------------------------------------------------------*/

static const char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tenon "
    "conform</title>\n"
    "<style>\nbody{font:14px sans-serif;margin:2em}table{border-collapse:collapse}\n"
    "th,td{border:1px solid #ccc;padding:2px 6px;text-align:left}th{position:sticky;top:0;"
    "background:#fff}\n.kernel{background:#9d9}.wider{background:#cec}.composite{background:#cdf}"
    ".core{background:#eef}\n.cpu{background:#fe9}.none{background:#f99}.wrong{background:#e44;"
    "color:#fff}\n</style></head><body>\n";

/* What a cell is known for: a failure of any mode, else the way of its calls. */
typedef struct cell {
    const char *way, *fails;
} cell;

static void find_cells(const cf_plan *p, cell *cells) {
    for (int32_t i = 0; i < p->n; i++) {
        const cf_row *r = &p->rows[i];
        if (r->op < 0 || r->dtype < 0) continue;
        cell *c = &cells[r->op * TN_DTYPE_BUILTIN_COUNT + r->dtype];
        if (r->mode == CF_SUPPORT && r->note) c->way = r->note;
        if (!c->way) c->way = "core";
        if (r->fails && !c->fails) c->fails = r->fails;
    }
}

static void add_cell(cf_text *t, const cell *c) {
    if (!c->way) {
        cf_add(t, "<td></td>");
    } else if (!c->fails) {
        cf_add(t, "<td class=\"%s\">%s</td>", c->way, c->way);
    } else {
        cf_add(t, "<td class=\"wrong\" title=\"");
        add_xml(t, c->fails);
        cf_add(t, "\">wrong</td>");
    }
}

static void add_op(cf_text *t, const char *name, const cell *cells) {
    bool any = false;
    for (int32_t k = 0; k < TN_DTYPE_BUILTIN_COUNT; k++) any |= cells[k].way != NULL;
    if (!any) return;
    cf_add(t, "<tr><td>%s</td>", name);
    for (int32_t k = 0; k < TN_DTYPE_BUILTIN_COUNT; k++) add_cell(t, &cells[k]);
    cf_add(t, "</tr>\n");
}

static void add_failures(cf_text *t, const cf_plan *p) {
    char name[128];
    cf_add(t, "<h2>Failures</h2>\n<ul>\n");
    for (int32_t i = 0; i < p->n; i++) {
        if (!p->rows[i].fails) continue;
        cf_add(t, "<li>%s<pre>", cf_row_name(&p->rows[i], name, sizeof name));
        add_xml(t, p->rows[i].fails);
        cf_add(t, "</pre></li>\n");
    }
    cf_add(t, "</ul>\n");
}

bool cf_report_html(const cf_options *o, const cf_data *d, const cf_plan *p, const cf_verdict *v) {
    cf_text t = {0};
    cell *cells = cf_alloc((size_t)d->nops * TN_DTYPE_BUILTIN_COUNT * sizeof *cells);
    find_cells(p, cells);
    cf_add(&t, "%s<h1>", page_head);
    add_xml(&t, o->device);
    cf_add(&t, "</h1>\n<p>");
    add_xml(&t, v->describe);
    cf_add(&t, "</p>\n<p>");
    if (v->level >= 0)
        cf_add(&t, "Level %d, ", v->level);
    else
        cf_add(&t, "No level, ");
    cf_add(&t, "%d of %d checks passed, Tenon %s</p>\n", v->passed, v->passed + v->failed,
           tn_version());
    cf_add(&t, "<table><tr><th>operator</th>");
    for (int32_t k = 0; k < TN_DTYPE_BUILTIN_COUNT; k++)
        cf_add(&t, "<th>%s</th>", tn_dtype_name(k));
    cf_add(&t, "</tr>\n");
    for (int32_t i = 0; i < d->nops; i++)
        add_op(&t, d->ops[i].name, &cells[i * TN_DTYPE_BUILTIN_COUNT]);
    cf_add(&t, "</table>\n");
    if (v->failed) add_failures(&t, p);
    cf_add(&t, "</body></html>\n");
    free(cells);
    return save(o->html, &t);
}
