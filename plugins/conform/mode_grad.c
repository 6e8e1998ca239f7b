/* mode_grad.c: gradients that are computed on the device, first and second order, against the same on the
 * CPU; and, in float64, against central differences of what the device computes forward. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>
#include <tenon/autograd.h>
#include <tenon/ops.h>

enum { FD_ELEMENTS = 24 }; /* central differences call the operator twice per element */

static const tn_device cpu = {0, 0};
static const cf_variant plain = {.name = "plain"};

/* Gradients of one sample on one device. */
typedef struct pass {
    cf_call call;
    tn_tensor *inputs[CF_RESULTS], *roots[CF_RESULTS], *seeds[CF_RESULTS];
    int32_t ninputs, nroots;
    tn_tensor *grads[CF_RESULTS]; /* by input; NULL: the result does not depend on it */
    tn_tensor *second[CF_RESULTS];
} pass;

static bool floating(const tn_tensor *t) {
    return tn_dtype_category(tn_tensor_dtype(t)) >= TN_CAT_FLOAT;
}

static bool is_leaf(const cf_call *c, int32_t i) {
    return floating(c->tensors[i]) && !cf_call_writes(c, c->tensors[i]);
}

/* A tensor of fixed numbers like t, to weigh its elements with. */
static tn_status weights(const tn_tensor *t, int32_t position, tn_tensor **ret_tensor) {
    cf_build b = {.variant = &plain, .device = tn_tensor_device(t), .dtype = tn_tensor_dtype(t)};
    cf_value v = {.kind = CF_TENSOR, .dtype = -1, .low = 0.5, .high = 1.5};
    v.ndim = tn_tensor_ndim(t);
    if (v.ndim > CF_DIMS) return TN_DECLINE;
    memcpy(v.shape, tn_tensor_shape(t), (size_t)v.ndim * sizeof *v.shape);
    return cf_tensor_make(&v, &b, position, ret_tensor);
}

static tn_status weigh(pass *p, tn_tensor *const *from, int32_t n) {
    tn_status st = TN_OK;
    p->nroots = 0;
    for (int32_t i = 0; st == TN_OK && i < n && p->nroots < CF_RESULTS; i++) {
        if (!from[i] || !floating(from[i]) || !tn_requires_grad(from[i])) continue;
        st = weights(from[i], i, &p->seeds[p->nroots]);
        if (st == TN_OK) p->roots[p->nroots++] = from[i];
    }
    return st;
}

static void drop(tn_tensor **list) {
    for (int32_t i = 0; i < CF_RESULTS; i++) tn_tensor_unref(&list[i]);
}

static void pass_free(pass *p) {
    drop(p->seeds);
    drop(p->grads);
    drop(p->second);
    cf_call_free(&p->call);
}

/* Records the call: every floating input that is not written is a leaf that wants a gradient. */
static tn_status record(pass *p, const cf_op *op, const cf_sample *s, const cf_build *b) {
    tn_status st = cf_call_build(&p->call, op, s, b);
    for (int32_t i = 0; st == TN_OK && i < p->call.ntensors; i++) {
        if (!is_leaf(&p->call, i)) continue;
        st = tn_set_requires_grad(p->call.tensors[i], 1);
        p->inputs[p->ninputs++] = p->call.tensors[i];
    }
    return st == TN_OK ? cf_call_run(&p->call, CF_CALL, NULL) : st;
}

static tn_status first_order(pass *p) {
    tn_status st = weigh(p, p->call.results, p->call.nresults);
    if (st != TN_OK || !p->nroots || !p->ninputs) return st == TN_OK ? TN_DECLINE : st;
    return tn_grad(p->roots, p->seeds, p->nroots, p->inputs, p->ninputs, 1, 1, 1, p->grads);
}

/* TN_DECLINE: the gradients depend on no input, or nothing was recorded. */
static tn_status second_order(pass *p) {
    drop(p->seeds);
    tn_status st = weigh(p, p->grads, p->ninputs);
    if (st != TN_OK || !p->nroots) return st == TN_OK ? TN_DECLINE : st;
    return tn_grad(p->roots, p->seeds, p->nroots, p->inputs, p->ninputs, 0, 0, 1, p->second);
}

/* ---- Against the CPU ---------------------------------------------------------------------------*/

static tn_status compare_one(cf_run *r, const tn_tensor *got, const tn_tensor *want, cf_text *why) {
    cf_array a = {0}, b = {0};
    cf_measure m = cf_measure_of(r->data, r->op, r->row->dtype);
    m.factor *= 8; /* gradients are made of several steps */
    tn_status st = cf_array_read(got, &a);
    if (st == TN_OK) st = cf_array_read(want, &b);
    if (st == TN_OK) cf_compare(&a, &b, NULL, &m, why);
    cf_array_free(&a);
    cf_array_free(&b);
    return st;
}

static void compare(cf_run *r, const char *order, tn_tensor *const *got, tn_tensor *const *want,
                    int32_t n, const char *call) {
    cf_text why = {0};
    tn_status st = TN_OK;
    for (int32_t i = 0; st == TN_OK && !why.n && i < n; i++) {
        if (!got[i] != !want[i])
            cf_add(&why, "there is a gradient on the %s alone", got[i] ? "device" : "CPU");
        else if (got[i])
            st = compare_one(r, got[i], want[i], &why);
        if (why.n) cf_add(&why, " (of floating input %d)", i);
    }
    if (st != TN_OK)
        cf_fail(r, "%s, %s order: raised: %s", call, order, cf_why());
    else if (why.n)
        cf_fail(r, "%s, %s order: %s", call, order, why.s);
    cf_free(&why);
}

/* The CPU's answer decides whether there is anything to check. */
static void against_cpu(cf_run *r, const cf_sample *s, const cf_build *b, const char *call) {
    pass *want = cf_alloc(sizeof *want), *got = cf_alloc(sizeof *got);
    cf_build on_cpu = *b;
    on_cpu.device = cpu;
    tn_status st = record(want, r->op, s, &on_cpu);
    if (st == TN_OK) st = first_order(want);
    if (st == TN_OK) {
        r->cases++;
        cf_at(r, "%s, first order", call);
        st = record(got, r->op, s, b);
        if (st == TN_OK) st = first_order(got);
        if (st != TN_OK)
            cf_fail(r, "%s, first order: raised: %s", call, cf_why());
        else
            compare(r, "first", got->grads, want->grads, want->ninputs, call);
        if (st == TN_OK && second_order(want) == TN_OK) {
            cf_at(r, "%s, second order", call);
            r->cases++;
            if (second_order(got) != TN_OK)
                cf_fail(r, "%s, second order: raised: %s", call, cf_why());
            else
                compare(r, "second", got->second, want->second, want->ninputs, call);
        }
    }
    pass_free(want);
    pass_free(got);
    free(want);
    free(got);
}

/* ---- Against central differences ---------------------------------------------------------------*/

typedef struct difference {
    const cf_op *op;
    const cf_sample *sample;
    const cf_build *build;
} difference;

/* Puts the varied inputs in the place of the call's own. */
static void replace(cf_call *c, tn_tensor *const *inputs) {
    int32_t next = 0;
    for (int32_t i = 0; i < c->ntensors; i++) {
        tn_tensor *old = c->tensors[i];
        if (!is_leaf(c, i)) continue;
        tn_tensor *now = tn_tensor_ref(inputs[next++]);
        for (int32_t f = 0; f < c->op->meta.nfields; f++) {
            const tn_field *field = &c->op->meta.fields[f];
            void *at = c->args + field->offset;
            if (field->kind == TN_F_TENSORS) {
                const tn_views *list = at;
                tn_tensor **v = (tn_tensor **)(uintptr_t)list->v;
                for (int64_t k = 0; k < list->n; k++)
                    if (v[k] == old) v[k] = now;
            } else if (field->kind <= TN_F_OPERAND && *(tn_tensor **)at == old) {
                *(tn_tensor **)at = now;
            }
        }
        tn_tensor_unref(&c->tensors[i]);
        c->tensors[i] = now;
    }
}

/* sum of results * weights, as one number. */
static tn_status scalar_of(void *ctx, tn_tensor *const *inputs, int64_t n, tn_tensor **ret_output) {
    const difference *d = ctx;
    cf_call c;
    tn_tensor *total = NULL;
    (void)n;
    tn_status st = cf_call_build(&c, d->op, d->sample, d->build);
    if (st == TN_OK) replace(&c, inputs);
    if (st == TN_OK) st = cf_call_run(&c, CF_CALL, NULL);
    for (int32_t i = 0; st == TN_OK && i < c.nresults; i++) {
        tn_tensor *w = NULL, *product = NULL, *sum = NULL, *more = NULL;
        if (tn_tensor_dtype(c.results[i]) != TN_F64) continue;
        st = weights(c.results[i], i, &w);
        if (st == TN_OK) st = tn_mul(c.results[i], w, &product);
        if (st == TN_OK) st = tn_sum(product, tn_ints_none(), 0, -1, &sum);
        if (st == TN_OK && total) st = tn_add(total, sum, tn_scalar_int(1), &more);
        if (st == TN_OK) {
            tn_tensor_unref(&total);
            total = more ? more : tn_tensor_ref(sum);
        }
        tn_tensor_unref(&w);
        tn_tensor_unref(&product);
        tn_tensor_unref(&sum);
    }
    cf_call_free(&c);
    if (st == TN_OK && total)
        *ret_output = total;
    else
        tn_tensor_unref(&total);
    return st == TN_OK && !total ? TN_DECLINE : st;
}

/* Whether gradients and central differences agree on a device. */
static bool agree(cf_run *r, const cf_sample *s, const cf_build *b) {
    pass *p = cf_alloc(sizeof *p);
    difference d = {r->op, s, b};
    int64_t elements = 0;
    bool all_f64 = true;
    tn_status st = record(p, r->op, s, b);
    for (int32_t i = 0; i < p->ninputs; i++) {
        elements += tn_tensor_numel(p->inputs[i]);
        all_f64 &= tn_tensor_dtype(p->inputs[i]) == TN_F64;
    }
    if (st == TN_OK && all_f64 && p->ninputs && elements <= FD_ELEMENTS) {
        r->cases++;
        st = tn_gradcheck(scalar_of, &d, p->inputs, p->ninputs, 1e-6, 1e-5, 1e-3, NULL);
    }
    pass_free(p);
    free(p);
    return st == TN_OK;
}

static void against_differences(cf_run *r, const cf_sample *s, const cf_build *b,
                                const char *call) {
    cf_at(r, "%s, central differences", call);
    if (agree(r, s, b)) return;
    char *why = cf_copy(cf_why());
    cf_build on_cpu = *b;
    on_cpu.device = cpu;
    if (agree(r, s, &on_cpu)) cf_fail(r, "%s, central differences: %s", call, why);
    free(why);
}

void cf_mode_grad(cf_run *r) {
    for (int32_t i = 0; i < r->op->nsamples; i++) {
        const cf_sample *s = &r->op->samples[i];
        cf_build b = {.variant = &plain,
                      .device = r->device,
                      .dtype = r->row->dtype,
                      .seed = r->options->seed + (uint64_t)i};
        cf_text call = {0};
        if (r->op->own_grad && !s->grad) continue;
        cf_call_describe(r->op, s, &call);
        int64_t before = r->cases;
        against_cpu(r, s, &b, call.s ? call.s : "");
        if (r->row->dtype == TN_F64 && r->cases > before)
            against_differences(r, s, &b, call.s ? call.s : "");
        cf_free(&call);
    }
}
