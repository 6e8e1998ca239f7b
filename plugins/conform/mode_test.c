/* mode_test.c: values. Every sample of an operator, in several layouts, shapes and forms, against the
 * CPU. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#include <tenon/program.h>

static const cf_variant variants[] = {
    {.name = "plain"},
    {.name = "transposed", .layout = CF_TRANSPOSED},
    {.name = "strided", .layout = CF_STRIDED},
    {.name = "with an offset", .layout = CF_OFFSET},
    {.name = "negative strides", .layout = CF_NEGATIVE},
    {.name = "expanded", .layout = CF_EXPANDED},
    {.name = "0-d", .shaping = CF_0D},
    {.name = "empty", .shaping = CF_EMPTY},
    {.name = "broadcast", .shaping = CF_BROADCAST},
    {.name = "NaN and infinities", .special = true},
    {.name = "in place", .form = CF_INPLACE},
    {.name = "out=", .form = CF_OUT},
    {.name = "out= with strides", .form = CF_OUT_STRIDED},
    {.name = "in a program", .form = CF_PROGRAM},
    {.name = "large", .shaping = CF_VECTOR, .size = (1 << 22) + 3},
};

/* What the CPU says: in the case's dtype, and in float64. */
typedef struct expected {
    cf_array same[CF_RESULTS], wide[CF_RESULTS];
    int32_t n;
    bool has_wide;
    cf_call call; /* in the case's dtype; its results are models for out= */
} expected;

static const tn_device cpu = {0, 0};

static void seed(const cf_run *r, tn_device device) {
    tn_generator_seed(tn_generator_default(device), r->options->seed);
}

static void read_wide(cf_run *r, const cf_sample *s, cf_build b, expected *e) {
    cf_call wide;
    b.wide = true;
    b.device = cpu;
    tn_status st = cf_call_build(&wide, r->op, s, &b);
    if (st == TN_OK) st = cf_call_run(&wide, CF_CALL, NULL);
    e->has_wide = st == TN_OK && wide.nresults == e->n;
    for (int32_t i = 0; e->has_wide && i < e->n; i++)
        e->has_wide = cf_array_read(wide.results[i], &e->wide[i]) == TN_OK;
    cf_call_free(&wide);
}

/* Not TN_OK: the CPU does not take the call, so there is nothing to compare with. */
static tn_status expect(cf_run *r, const cf_sample *s, cf_build b, expected *e) {
    b.device = cpu;
    seed(r, cpu);
    tn_status st = cf_call_build(&e->call, r->op, s, &b);
    if (st == TN_OK) st = cf_call_run(&e->call, CF_CALL, NULL);
    for (int32_t i = 0; st == TN_OK && i < e->call.nresults; i++) {
        st = cf_array_read(e->call.results[i], &e->same[i]);
        if (st == TN_OK) e->n++;
    }
    bool rounded =
        b.dtype == TN_F16 || b.dtype == TN_BF16 || b.dtype == TN_F32 || b.dtype == TN_C64;
    if (st == TN_OK && rounded && !cf_is_random(r->op)) read_wide(r, s, b, e);
    return st;
}

static void forget(expected *e) {
    for (int32_t i = 0; i < CF_RESULTS; i++) {
        cf_array_free(&e->same[i]);
        cf_array_free(&e->wide[i]);
    }
    cf_call_free(&e->call);
}

/* Whether the device takes programs, and the call changes nothing, so that it can be made twice. */
static bool can_be_program(const cf_run *r, const cf_call *c) {
    void *ctx;
    if (!tn_device_query(r->device.slot, "tn.program/1", &ctx) || cf_is_random(r->op)) return false;
    for (int32_t i = 0; i < c->ntensors; i++)
        if (cf_call_writes(c, c->tensors[i])) return false;
    return true;
}

/* Whether the operator has the form for this case. */
static bool has_form(const cf_run *r, cf_form form, const expected *e) {
    if (form == CF_OUT || form == CF_OUT_STRIDED) return (r->op->forms & CF_FORM_OUT) != 0;
    if (form == CF_CALL) return true;
    if (form == CF_PROGRAM) return can_be_program(r, &e->call);
    if (!(r->op->forms & CF_FORM_INPLACE) || e->n != 1 || e->call.ntensors < 1) return false;
    const tn_tensor *in = e->call.tensors[0], *out = e->call.results[0];
    bool same =
        tn_tensor_dtype(in) == tn_tensor_dtype(out) && tn_tensor_ndim(in) == tn_tensor_ndim(out);
    for (int32_t d = 0; same && d < tn_tensor_ndim(in); d++)
        same = tn_tensor_shape(in)[d] == tn_tensor_shape(out)[d];
    return same;
}

static tn_status make_outs(const cf_run *r, const cf_build *b, const expected *e,
                           tn_tensor **outs) {
    tn_status st = TN_OK;
    for (int32_t i = 0; st == TN_OK && i < r->op->meta.nout; i++)
        st = cf_tensor_like(e->call.results[i], b->device, b->variant->form == CF_OUT_STRIDED,
                            &outs[i]);
    return st;
}

/* ---- A program of one call ---------------------------------------------------------------------*/

static tn_status record(cf_call *c, tn_program **ret_program) {
    tn_status st = tn_program_begin(ret_program);
    for (int32_t i = 0; st == TN_OK && i < c->ntensors; i++)
        st = tn_program_add_input(*ret_program, c->tensors[i], "x");
    if (st == TN_OK) st = cf_call_run(c, CF_CALL, NULL);
    tn_tensors results = {c->results, c->nresults};
    if (st == TN_OK) st = tn_program_end(*ret_program, results);
    return st;
}

/* The call as the device runs it, where it takes such. */
static tn_status run_in_program(cf_call *c) {
    tn_program *p = NULL;
    int32_t first, count, n = 0;
    tn_status st = record(c, &p);
    if (st == TN_OK && tn_program_region_at(p, 0, &first, &count) == TN_OK) {
        n = c->nresults;
        cf_call_drop(c);
        st = tn_program_run(p, c->tensors, c->ntensors, c->results, n);
        c->nresults = st == TN_OK ? n : 0;
    }
    tn_program_cancel(p);
    tn_program_unref(&p);
    return st;
}

/* ---- One case ----------------------------------------------------------------------------------*/

static bool equal_arrays(const cf_array *a, const cf_array *b) {
    cf_measure exact = {.strict = true};
    cf_text unused = {0};
    bool same = cf_compare(a, b, NULL, &exact, &unused);
    cf_free(&unused);
    return same;
}

/* Random results: those of the CPU, or other ones that are distributed like them. */
static bool right_numbers(const cf_run *r, const cf_array *got, const expected *e, int32_t i,
                          cf_text *why) {
    if (cf_is_random(r->op))
        return equal_arrays(got, &e->same[i]) || cf_same_distribution(got, &e->same[i], why);
    if (r->op->forms & CF_UNSET) {
        cf_array facts = *got; /* elements are anything */
        facts.n = 0;
        cf_measure any = {.strict = true};
        return cf_compare(&facts, &e->same[i], NULL, &any, why);
    }
    int32_t dtype = tn_dtype_category(r->row->dtype) >= TN_CAT_FLOAT ? r->row->dtype : got->dtype;
    cf_measure m = cf_measure_of(r->data, r->op, dtype);
    return cf_compare(got, &e->same[i], e->has_wide ? &e->wide[i] : NULL, &m, why);
}

static tn_status compare_results(cf_run *r, const cf_call *c, const expected *e, cf_text *why) {
    tn_status st = TN_OK;
    if (c->nresults != e->n) cf_add(why, "got %d results, expected %d", c->nresults, e->n);
    for (int32_t i = 0; st == TN_OK && !why->n && i < e->n; i++) {
        cf_array got = {0};
        st = cf_array_read(c->results[i], &got);
        if (st == TN_OK && !right_numbers(r, &got, e, i, why) && e->n > 1)
            cf_add(why, " (result %d)", i);
        cf_array_free(&got);
    }
    return st;
}

/* Inputs that the operator does not own up to writing are as they were. */
static tn_status compare_inputs(const cf_call *c, const expected *e, cf_text *why) {
    tn_status st = TN_OK;
    for (int32_t i = 0; st == TN_OK && !why->n && i < c->ntensors; i++) {
        bool written = false;
        for (int32_t k = 0; k < c->nresults; k++) written |= c->results[k] == c->tensors[i];
        if (written) continue;
        cf_array now = {0}, before = {0};
        st = cf_array_read(c->tensors[i], &now);
        if (st == TN_OK) st = cf_array_read(e->call.tensors[i], &before);
        if (st == TN_OK && !equal_arrays(&now, &before)) cf_add(why, "input %d was changed", i);
        cf_array_free(&now);
        cf_array_free(&before);
    }
    return st;
}

static tn_status on_device(cf_run *r, const cf_sample *s, const cf_build *b, const expected *e,
                           cf_text *why) {
    cf_call c;
    tn_tensor *outs[CF_RESULTS] = {NULL};
    cf_form form = b->variant->form;
    tn_status st = cf_call_build(&c, r->op, s, b);
    if (st == TN_OK && (form == CF_OUT || form == CF_OUT_STRIDED)) st = make_outs(r, b, e, outs);
    if (st == TN_OK) {
        seed(r, b->device);
        st = form == CF_PROGRAM ? run_in_program(&c) : cf_call_run(&c, form, outs);
    }
    if (st == TN_OK) st = tn_device_sync(b->device);
    if (st == TN_OK) st = compare_results(r, &c, e, why);
    if (st == TN_OK && form == CF_CALL && b->variant->layout == CF_PLAIN)
        st = compare_inputs(&c, e, why);
    cf_call_free(&c);
    for (int32_t i = 0; i < CF_RESULTS; i++) tn_tensor_unref(&outs[i]);
    return st;
}

static void run_case(cf_run *r, int32_t sample, const cf_variant *v) {
    const cf_sample *s = &r->op->samples[sample];
    cf_build b = {.variant = v,
                  .device = r->device,
                  .dtype = r->row->dtype,
                  .seed = r->options->seed + (uint64_t)sample};
    expected *e = cf_alloc(sizeof *e);
    cf_text call = {0}, why = {0};
    if (expect(r, s, b, e) == TN_OK && has_form(r, v->form, e)) {
        cf_call_describe(r->op, s, &call);
        cf_at(r, "%s, %s", call.s ? call.s : "", v->name);
        tn_status st = on_device(r, s, &b, e, &why);
        if (st != TN_OK)
            cf_fail(r, "%s, %s: raised: %s", call.s ? call.s : "", v->name, cf_why());
        else if (why.n)
            cf_fail(r, "%s, %s: %s", call.s ? call.s : "", v->name, why.s);
        r->cases++;
    }
    cf_free(&call);
    cf_free(&why);
    forget(e);
    free(e);
}

void cf_mode_test(cf_run *r) {
    bool sized = strcmp(r->op->kind, "pointwise") == 0 || strcmp(r->op->kind, "reduction") == 0;
    for (int32_t s = 0; s < r->op->nsamples; s++) {
        if (r->op->samples[s].grad) continue;
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            bool large = variants[v].shaping == CF_VECTOR;
            if (large && !(r->options->large && sized && s == 0)) continue;
            if (variants[v].special && cf_is_random(r->op)) continue; /* numbers without order */
            run_case(r, s, &variants[v]);
        }
    }
}
