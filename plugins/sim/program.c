/* program.c: "tn.program/1": layers of a network, what is pointwise and what only names elements anew, step by
 * step in one entry of a queue. Values are float32 or bool, row-major, each rounded as kernels do. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#include <tenon/op_args.h>

enum { INPUTS = 4, DIMS = 8 };

typedef struct value {
    int32_t dtype, ndim;
    int64_t numel, shape[DIMS];
} value;

typedef struct step {
    void (*run)(const struct step *s, const value *v, double *const *x);
    const void *formula;
    double number, numbers[INPUTS];
    int32_t nin, out, in[INPUTS]; /* values, or TN_REGION_* */
    int32_t reserved;
} step;

/* In one block: the values, the steps, the numbers of the outputs. */
typedef struct code {
    size_t bytes;
    int32_t ninputs, nvalues, nsteps, noutputs;
    value values[];
} code;

static step *steps_of(const code *c) { return (step *)(uintptr_t)(c->values + c->nvalues); }
static int32_t *outputs_of(const code *c) { return (int32_t *)(steps_of(c) + c->nsteps); }

/* ---- Steps -------------------------------------------------------------------------------------*/

static double rounded(int32_t dtype, double y) {
    return dtype == TN_F32 ? (double)(float)y : (double)(y != 0);
}

/* Where element `index` of `like` lies in an operand that broadcasts to it. */
static int64_t place(const value *operand, const value *like, const int64_t *index) {
    int64_t at = 0;
    for (int32_t d = 0; d < operand->ndim; d++) {
        int64_t i = index[d + like->ndim - operand->ndim];
        at = at * operand->shape[d] + (operand->shape[d] == 1 ? 0 : i);
    }
    return at;
}

static void run_map(const step *s, const value *v, double *const *x) {
    const value *out = &v[s->out];
    int64_t index[DIMS] = {0};
    double operand[INPUTS], *to = x[s->out];
    do {
        for (int32_t i = 0; i < s->nin; i++)
            operand[i] =
                s->in[i] < 0 ? s->numbers[i] : x[s->in[i]][place(&v[s->in[i]], out, index)];
        *to++ = rounded(out->dtype, sim_formula_real(s->formula, operand, s->number));
    } while (sim_next(out->shape, out->ndim, index));
}

/* out (rows, m) = input (rows, k) @ weight (m, k) + bias (m) */
static void run_linear(const step *s, const value *v, double *const *x) {
    const double *in = x[s->in[0]], *weight = x[s->in[1]];
    const double *bias = s->in[2] < 0 ? NULL : x[s->in[2]];
    int64_t m = v[s->in[1]].shape[0], k = v[s->in[1]].shape[1];
    for (int64_t i = 0; i < v[s->out].numel; i++) {
        double sum = bias ? bias[i % m] : 0;
        for (int64_t j = 0; j < k; j++) sum += in[i / m * k + j] * weight[i % m * k + j];
        x[s->out][i] = rounded(TN_F32, sum);
    }
}

/* out (n, m) = a (n, k) @ b (k, m) */
static void run_mm(const step *s, const value *v, double *const *x) {
    int64_t k = v[s->in[1]].shape[0], m = v[s->in[1]].shape[1];
    for (int64_t i = 0; i < v[s->out].numel; i++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += x[s->in[0]][i / m * k + j] * x[s->in[1]][j * m + i % m];
        x[s->out][i] = rounded(TN_F32, sum);
    }
}

static void run_same(const step *s, const value *v, double *const *x) {
    memcpy(x[s->out], x[s->in[0]], sizeof(double) * (size_t)v[s->out].numel);
}

static void run_turn(const step *s, const value *v, double *const *x) {
    int64_t rows = v[s->in[0]].shape[0], columns = v[s->in[0]].shape[1];
    for (int64_t i = 0; i < rows * columns; i++)
        x[s->out][i % columns * rows + i / columns] = x[s->in[0]][i];
}

/* ---- Reading a region --------------------------------------------------------------------------*/

static const tn_region_value *value_at(const tn_region *r, int32_t i) {
    return (const void *)((const char *)r->values + (size_t)i * r->value_size);
}

static const tn_region_node *node_at(const tn_region *r, int32_t i) {
    return (const void *)((const char *)r->nodes + (size_t)i * r->node_size);
}

static bool take_value(const tn_region_value *from, value *ret) {
    bool fits = (from->dtype == TN_F32 || from->dtype == TN_BOOL) && from->ndim <= DIMS;
    *ret = (value){.dtype = from->dtype, .ndim = from->ndim, .numel = 1};
    for (int32_t d = 0; d < from->ndim && fits; d++) {
        ret->shape[d] = from->shape[d];
        fits = !__builtin_mul_overflow(ret->numel, from->shape[d], &ret->numel);
    }
    return fits && ret->numel <= INT32_MAX;
}

/* Operators whose elements are those of the first operand, row-major. */
static bool names_anew(const char *op) {
    static const char *const names[] = {"reshape", "view", "flatten", "squeeze", "unsqueeze"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], op) == 0) return true;
    return false;
}

/* What is pointwise, computed in float32. */
static bool take_map(const tn_region_node *n, const value *v, step *s) {
    bool real = v[s->out].dtype == TN_BOOL;
    s->run = run_map;
    s->formula = sim_formula_find(n->op);
    if (!s->formula) return false;
    for (int32_t i = 0; i < s->nin; i++) {
        if (s->in[i] == TN_REGION_NONE) return false;
        if (s->in[i] >= 0 && v[s->in[i]].dtype == TN_F32) real = true;
        if (s->in[i] >= 0 && v[s->in[i]].dtype == TN_BOOL && v[s->out].dtype == TN_BOOL)
            return false; /* whole numbers are not computed */
    }
    s->number = sim_formula_number(s->formula, n->args);
    return real;
}

static bool take_step(const tn_region_node *n, const value *v, step *s) {
    if (n->nin < 1 || n->nin > INPUTS || n->nout != 1 || n->out[0] < 0) return false;
    s->nin = n->nin;
    s->out = n->out[0];
    for (int32_t i = 0; i < n->nin; i++) {
        s->in[i] = n->in[i];
        if (n->in[i] == TN_REGION_NUMBER) s->numbers[i] = (double)(float)n->number[i].re;
    }
    if (strcmp(n->op, "linear") == 0) {
        s->run = run_linear;
        return n->sig == TN_SIG_linear && v[s->out].dtype == TN_F32 && v[s->in[1]].ndim == 2;
    }
    if (strcmp(n->op, "mm") == 0) {
        s->run = run_mm;
        return n->sig == TN_SIG_mm && v[s->out].dtype == TN_F32;
    }
    if (strcmp(n->op, "t") == 0 || names_anew(n->op)) {
        if (s->in[0] < 0) return false;
        const value *from = &v[s->in[0]];
        s->run = n->op[0] == 't' && from->ndim == 2 ? run_turn : run_same;
        return v[s->out].dtype == from->dtype && v[s->out].numel == from->numel;
    }
    return take_map(n, v, s);
}

/* NULL: the device does not take it, or there is no memory. */
static code *read_region(const tn_region *r) {
    size_t bytes = sizeof(code) + sizeof(value) * (size_t)r->nvalues +
                   sizeof(step) * (size_t)r->nnodes + sizeof(int32_t) * (size_t)r->noutputs;
    code *c = calloc(1, bytes);
    if (!c) return NULL;
    *c = (code){bytes, r->ninputs, r->nvalues, r->nnodes, r->noutputs};
    bool fits = true;
    for (int32_t i = 0; i < r->nvalues && fits; i++)
        fits = take_value(value_at(r, i), &c->values[i]);
    for (int32_t i = 0; i < r->nnodes && fits; i++)
        fits = take_step(node_at(r, i), c->values, &steps_of(c)[i]);
    if (r->noutputs) memcpy(outputs_of(c), r->outputs, sizeof(int32_t) * (size_t)r->noutputs);
    if (fits) return c;
    free(c);
    return NULL;
}

/* ---- The table ---------------------------------------------------------------------------------*/

static tn_status code_takes(void *ctx, int32_t index, const tn_region *node) {
    (void)ctx, (void)index;
    code *c = read_region(node);
    free(c);
    return c ? TN_OK : TN_DECLINE;
}

static tn_status code_compile(void *ctx, int32_t index, const tn_region *region, void **ret_code) {
    (void)ctx, (void)index;
    if (region->ninputs + region->noutputs > SIM_OPERANDS) return TN_DECLINE;
    *ret_code = read_region(region);
    if (*ret_code) sim_count_launch("program.compile");
    return *ret_code ? TN_OK : TN_DECLINE;
}

/* Operands: the outputs, then the inputs. */
static void compute(const code *c, sim_work *w, double **x) {
    for (int32_t i = 0; i < c->ninputs; i++) {
        const sim_view *from = &w->view[c->noutputs + i];
        for (int64_t k = 0; k < from->numel; k++)
            x[i][k] = sim_load(from->dtype, from->data + k * from->itemsize);
    }
    for (int32_t i = 0; i < c->nsteps; i++) {
        const step *s = &steps_of(c)[i];
        s->run(s, c->values, x);
    }
    for (int32_t i = 0; i < c->noutputs; i++) {
        const sim_view *to = &w->view[i];
        for (int64_t k = 0; k < to->numel; k++)
            sim_store(to->dtype, to->data + k * to->itemsize, x[outputs_of(c)[i]][k]);
    }
}

static void run_program(sim_work *w) {
    const code *c = w->payload;
    size_t total = 0;
    for (int32_t i = 0; i < c->nvalues; i++) total += (size_t)c->values[i].numel;
    double **x = malloc(sizeof *x * (size_t)c->nvalues), *room = calloc(total, sizeof *room);
    double *at = room;
    for (int32_t i = 0; i < c->nvalues && x && room; at += c->values[i++].numel) x[i] = at;
    if (x && room)
        compute(c, w, x);
    else
        sim_work_fail(w, "program.run: out of memory");
    free(room);
    free(x);
}

static tn_status code_run(void *ctx, int32_t index, void *compiled, const tn_view *const *values,
                          void *stream) {
    const code *c = compiled;
    const tn_op_info op = {.name = "program.run"};
    const tn_call call = {.op = &op,
                          .device_index = index,
                          .stream = stream,
                          .device_slot = (uint32_t)tn_view_device(values[0])};
    (void)ctx;
    sim_work *w = sim_launch_with(&call, run_program, c, c->bytes);
    if (!w) return TN_E_MEMORY;
    for (int32_t i = 0; i < c->noutputs + c->ninputs; i++) sim_give(w, values[i]);
    return sim_go(&call, w);
}

static void code_destroy(void *ctx, int32_t index, void *compiled) {
    (void)ctx, (void)index;
    sim_count_launch("program.destroy");
    free(compiled);
}

const tn_program_iface sim_program_iface = {
    .struct_size = sizeof sim_program_iface,
    .takes = code_takes,
    .compile = code_compile,
    .run = code_run,
    .destroy = code_destroy,
};
