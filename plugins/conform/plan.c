/* plan.c: the list of everything that is to be checked. Parent and workers make the same list, so that a
 * row is named by its number between them. */
#include "conform.h"

#include <string.h>

static cf_row *add(cf_plan *p, cf_mode mode, const char *name) {
    p->rows = cf_grow(p->rows, p->n, sizeof *p->rows);
    cf_row *r = &p->rows[p->n++];
    *r = (cf_row){.mode = mode, .op = -1, .dtype = -1, .check = -1, .name = name};
    return r;
}

static bool wanted(const cf_options *o, const char *name) {
    for (int32_t i = 0; i < o->nops; i++)
        if (cf_glob(o->ops[i], name)) return true;
    return o->nops == 0;
}

static bool differentiable(const cf_op *op) {
    return op->nsamples > 0 && !cf_is_random(op) && !(op->forms & CF_UNSET);
}

/* The dtype that checks with one dtype take: float32 where the operator has it. */
static int32_t main_dtype(const cf_op *op, uint32_t dtypes) {
    const int32_t order[] = {TN_F32, TN_F64, TN_I64, TN_BOOL, TN_C64};
    uint32_t set = op->dtypes & dtypes;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (set & 1u << order[i]) return order[i];
    for (int32_t d = 0; d < TN_DTYPE_BUILTIN_COUNT; d++)
        if (set & 1u << d) return d;
    return -1;
}

/* Whether a mode has a row for an operator in a dtype. */
static bool applies(cf_mode mode, const cf_op *op, int32_t dtype, uint32_t dtypes) {
    switch (mode) {
    case CF_SUPPORT: return strcmp(op->kind, "view") != 0;
    case CF_TEST: return op->nsamples > 0;
    case CF_GRAD:
        return differentiable(op) && (dtype == TN_F32 || dtype == TN_F64 || dtype == TN_C128);
    case CF_THREADS:
    case CF_PERF: return op->nsamples > 0 && dtype == main_dtype(op, dtypes);
    default: return false;
    }
}

static void add_operators(const cf_options *o, const cf_data *d, cf_mode mode, cf_plan *p) {
    for (int32_t i = 0; i < d->nops; i++) {
        const cf_op *op = &d->ops[i];
        if (!wanted(o, op->name)) continue;
        for (int32_t dtype = 0; dtype < TN_DTYPE_BUILTIN_COUNT; dtype++) {
            bool has = (op->dtypes & o->dtypes & 1u << dtype) != 0;
            if (!has || !applies(mode, op, dtype, o->dtypes)) continue;
            cf_row *r = add(p, mode, op->name);
            r->op = i;
            r->dtype = dtype;
        }
    }
}

static void add_checks(const cf_check *checks, cf_mode mode, cf_plan *p) {
    for (int32_t i = 0; checks[i].name; i++) add(p, mode, checks[i].name)->check = i;
}

void cf_plan_make(const cf_options *o, const cf_data *d, cf_plan *ret_plan) {
    for (cf_mode mode = 0; mode < CF_MODES; mode++) {
        if (!(o->modes & 1u << mode)) continue;
        if (mode == CF_ABI)
            add_checks(cf_abi_checks, mode, ret_plan);
        else if (mode == CF_STREAMS)
            add_checks(cf_streams_checks, mode, ret_plan);
        else
            add_operators(o, d, mode, ret_plan);
    }
}

const char *cf_row_name(const cf_row *r, char *dst, size_t size) {
    const char *dtype = r->dtype >= 0 ? tn_dtype_name(r->dtype) : NULL;
    snprintf(dst, size, "%s %s%s%s", cf_mode_names[r->mode], r->name, dtype ? " " : "",
             dtype ? dtype : "");
    return dst;
}
