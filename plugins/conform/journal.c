/* journal.c: finished rows in a file, so that a run that was cut off goes on where it stopped. A line per
 * row: its name, status, cases, milliseconds, note and failures, separated by tabs; the first line says
 * what was tested and how, and must be the same. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

enum { BREAK = '\x1f' }; /* between the failures of a row */

static FILE *journal;

static void head_line(const cf_options *o, char *dst, size_t size) {
    snprintf(dst, size, "tenon-conform %s\t%s\tseed %llu%s", tn_version(), o->device,
             (unsigned long long)o->seed, o->large ? "\tlarge" : "");
}

static char *field(char **rest) {
    char *start = *rest, *tab = start ? strchr(start, '\t') : NULL;
    *rest = tab ? tab + 1 : NULL;
    if (tab) *tab = '\0';
    return start;
}

static cf_row *find(cf_plan *p, const char *name) {
    static int32_t hint; /* journals are in the order of the plan, or nearly */
    char own[128];
    for (int32_t k = 0; k < p->n; k++) {
        int32_t i = (hint + k) % p->n;
        if (strcmp(cf_row_name(&p->rows[i], own, sizeof own), name) != 0) continue;
        hint = i;
        return &p->rows[i];
    }
    return NULL;
}

static char *text_or_null(char *s, char from, char to) {
    if (!s || !*s) return NULL;
    for (char *c = s; *c; c++)
        if (*c == from) *c = to;
    return cf_copy(s);
}

/* A row that an older plan had, or a line that was cut off, is passed over. */
static void read_row(cf_plan *p, char *line) {
    char *rest = line, *name = field(&rest), *status = field(&rest), *cases = field(&rest),
         *ms = field(&rest), *note = field(&rest), *fails = field(&rest);
    cf_row *r = fails ? find(p, name) : NULL;
    if (!r) return;
    r->status = status[0] == 'p' ? CF_PASSED : status[0] == 'f' ? CF_FAILED : CF_SKIPPED;
    r->cases = strtoll(cases, NULL, 10);
    r->ms = strtod(ms, NULL);
    r->note = text_or_null(note, BREAK, '\n');
    r->fails = text_or_null(fails, BREAK, '\n');
}

static bool read_all(const cf_options *o, cf_plan *p, FILE *f, cf_text *why) {
    char head[256], *line = NULL;
    size_t room = 0;
    bool first = true, good = true;
    head_line(o, head, sizeof head);
    for (ssize_t n; good && (n = getline(&line, &room, f)) > 0; first = false) {
        if (line[n - 1] != '\n') break; /* the last line was cut off */
        line[n - 1] = '\0';
        if (!first)
            read_row(p, line);
        else if (strcmp(line, head) != 0) {
            cf_add(why, "%s is the journal of another run ('%s'); name another file", o->resume,
                   line);
            good = false;
        }
    }
    free(line);
    return good;
}

bool cf_journal_open(const cf_options *o, cf_plan *p, cf_text *why) {
    FILE *f = fopen(o->resume, "re");
    bool fresh = !f, good = !f || read_all(o, p, f, why);
    if (f) fclose(f);
    if (!good) return false;
    journal = fopen(o->resume, "ae");
    if (!journal) {
        cf_add(why, "%s cannot be written", o->resume);
        return false;
    }
    char head[256];
    head_line(o, head, sizeof head);
    fprintf(journal, "%s%s", fresh ? head : "", "\n");
    return fflush(journal) == 0;
}

static void put(const char *s) {
    for (; s && *s; s++) fputc(*s == '\n' ? BREAK : *s, journal);
}

void cf_journal_add(const cf_row *r) {
    static const char *const words[] = {"pending", "passed", "failed", "skipped"};
    char name[128];
    fprintf(journal, "%s\t%s\t%lld\t%.3f\t", cf_row_name(r, name, sizeof name), words[r->status],
            (long long)r->cases, r->ms);
    put(r->note);
    fputc('\t', journal);
    put(r->fails);
    fputc('\n', journal);
    fflush(journal);
}
