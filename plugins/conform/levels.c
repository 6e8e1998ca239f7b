/* levels.c: the level and the score. A level is reached when every check passed and the device meets what
 * the data file lists for it and for the levels below. */
#include "conform.h"

#include <string.h>

static void count(const cf_plan *p, cf_verdict *v) {
    for (int32_t i = 0; i < p->n; i++) {
        v->passed += p->rows[i].status == CF_PASSED;
        v->failed += p->rows[i].status == CF_FAILED;
        v->skipped += p->rows[i].status == CF_SKIPPED;
    }
}

static void add_need(const cf_need *need, cf_text *to) {
    const char *comma = to->n ? ", " : "";
    if (need->iface) {
        cf_add(to, "%s%s", comma, need->iface);
        return;
    }
    cf_add(to, "%s%s", comma, need->op);
    const char *between = " ";
    for (int32_t d = 0; d < TN_DTYPE_BUILTIN_COUNT; d++) {
        if (!(need->dtypes & 1u << d)) continue;
        cf_add(to, "%s%s", between, tn_dtype_name(d));
        between = " or ";
    }
}

void cf_levels_judge(const cf_data *d, const cf_plan *p, const cf_device_facts *facts,
                     cf_verdict *ret_verdict) {
    cf_verdict *v = ret_verdict;
    *v = (cf_verdict){.level = -1, .describe = facts->describe};
    count(p, v);
    for (int32_t i = 0; i < d->nneeds; i++)
        if (!facts->met[i]) add_need(&d->needs[i], &v->missing[d->needs[i].level]);
    if (v->failed) cf_add(&v->missing[0], "%d checks failed", v->failed);
    while (v->level + 1 < CF_LEVELS && !v->missing[v->level + 1].n) v->level++;
}
