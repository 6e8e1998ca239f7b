/* codegen.c: "tn.codegen/1": an expression of pointwise operators is kept as a list of the formulas of
 * map.c and interpreted, element by element, by one entry of a queue. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 64, MAX_INPUTS = SIM_OPERANDS - 1 };

typedef struct node {
    const void *formula; /* NULL: the number `value` */
    int32_t dtype, noperands;
    int32_t operand[TN_EXPR_OPERANDS];
    double value;
} node;

typedef struct program {
    int32_t ninputs, nnodes, result;
    int32_t reserved;
    node nodes[MAX_NODES];
} program;

static bool can_compute(int32_t dtype) { return dtype == TN_F32 || dtype == TN_BOOL; }

static bool take_node(const tn_expr_node *from, node *ret) {
    ret->dtype = from->dtype;
    ret->noperands = from->noperands;
    memcpy(ret->operand, from->operand, sizeof ret->operand);
    if (!from->op) {
        ret->value = from->dtype == TN_F32 ? (double)(float)from->value->re : from->value->re;
        return true;
    }
    ret->formula = sim_formula_find(from->op);
    bool has_default = strcmp(from->op, "leaky_relu") != 0; /* of its number: 1 */
    return ret->formula && has_default && can_compute(from->dtype);
}

static tn_status code_compile(void *ctx, int32_t index, const tn_expr *e, void **ret_code) {
    (void)ctx, (void)index;
    if (e->nnodes > MAX_NODES || e->ninputs > MAX_INPUTS || e->noutputs != 1) return TN_DECLINE;
    for (int32_t i = 0; i < e->ninputs; i++)
        if (!can_compute(e->input_dtypes[i])) return TN_DECLINE;
    program *p = calloc(1, sizeof *p);
    if (!p) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    p->ninputs = e->ninputs;
    p->nnodes = e->nnodes;
    p->result = e->outputs[0];
    for (int32_t i = 0; i < e->nnodes; i++) {
        const char *at = (const char *)e->nodes + (size_t)i * e->node_size;
        if (take_node((const tn_expr_node *)(const void *)at, &p->nodes[i])) continue;
        free(p);
        return TN_DECLINE;
    }
    *ret_code = p;
    sim_count_launch("codegen.compile");
    return TN_OK;
}

static double node_value(const node *n, const double *values) {
    double x[TN_EXPR_OPERANDS];
    if (!n->formula) return n->value;
    for (int32_t k = 0; k < n->noperands; k++) x[k] = values[n->operand[k]];
    double y = sim_formula_real(n->formula, x, 1);
    return n->dtype == TN_F32 ? (double)(float)y : y;
}

/* Operand 0 of the plan is the result. Each value is rounded to its dtype, as between kernels. */
static void run_program(sim_work *w) {
    const program *p = w->payload;
    const tn_plan *plan = &w->plan;
    sim_walk at;
    sim_walk_start(plan, &at);
    do {
        double values[MAX_INPUTS + MAX_NODES];
        for (int32_t k = 0; k < p->ninputs; k++)
            values[k] = sim_load(plan->dtype[k + 1], at.at[k + 1]);
        for (int32_t i = 0; i < p->nnodes; i++)
            values[p->ninputs + i] = node_value(&p->nodes[i], values);
        sim_store(plan->dtype[0], at.at[0], values[p->result]);
    } while (sim_walk_next(plan, &at, SIM_ALL_DIMS));
}

static tn_status code_run(void *ctx, int32_t index, void *code, const tn_plan *plan, void *stream) {
    const tn_op_info op = {.name = "codegen.run"};
    const tn_call call = {.op = &op, .device_index = index, .stream = stream};
    (void)ctx;
    sim_work *w = sim_launch_with(&call, run_program, code, sizeof(program));
    if (!w) return TN_E_MEMORY;
    sim_give_plan(w, plan);
    return sim_go(&call, w);
}

static void code_destroy(void *ctx, int32_t index, void *code) {
    (void)ctx, (void)index;
    sim_count_launch("codegen.destroy");
    free(code);
}

const tn_codegen_iface sim_codegen_iface = {
    .struct_size = sizeof sim_codegen_iface,
    .compile = code_compile,
    .run = code_run,
    .destroy = code_destroy,
};
