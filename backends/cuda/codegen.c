/* codegen.c: "tn.codegen/1": an expression of pointwise operators becomes one kernel, written from the
 * formulas of common/scalar*.h and compiled by NVRTC. Each value is rounded to its dtype, as between
 * kernels, so that the result has the bits of operator by operator. */
#include "images.h"
#include "tables.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODEGEN_KERNEL "expression"

enum { SOURCE = 32768 };

typedef struct code {
    cuda_kernel kernel; /* found already */
} code;

/* ---- Writing -----------------------------------------------------------------------------------*/

typedef struct writer {
    char text[SOURCE];
    size_t at; /* SOURCE: it did not fit */
    const tn_expr *e;
    int32_t dtype; /* the one that all values have which are not bool */
} writer;

static void put(writer *w, const char *format, ...) {
    va_list list;
    if (w->at == SOURCE) return;
    va_start(list, format);
    int n = vsnprintf(w->text + w->at, SOURCE - w->at, format, list);
    va_end(list);
    w->at = n < 0 || (size_t)n >= SOURCE - w->at ? SOURCE : w->at + (size_t)n;
}

static const tn_expr_node *node_at(const tn_expr *e, int32_t i) {
    const char *at = (const char *)e->nodes + (size_t)i * e->node_size;
    return (const tn_expr_node *)(const void *)at;
}

static int32_t dtype_at(const tn_expr *e, int32_t operand) {
    if (operand < e->ninputs) return e->input_dtypes[operand];
    return node_at(e, operand - e->ninputs)->dtype;
}

/* The one dtype beside bool; false where there are several, or one without kernels. */
static bool find_dtype(const tn_expr *e, int32_t *ret_dtype) {
    *ret_dtype = TN_BOOL;
    for (int32_t i = 0; i < e->ninputs + e->nnodes; i++) {
        int32_t dtype = dtype_at(e, i);
        if (dtype == TN_BOOL) continue;
        if (dtype > TN_F64 || (*ret_dtype != TN_BOOL && dtype != *ret_dtype)) return false;
        *ret_dtype = dtype;
    }
    return *ret_dtype != TN_BOOL;
}

static void put_number(writer *w, const tn_expr_node *n) {
    if (n->dtype == TN_BOOL)
        put(w, "%d", n->value->re != 0);
    else if (n->dtype < TN_F16)
        put(w, "LOAD((T)%lluull)", (unsigned long long)n->value->i);
    else if (isnan(n->value->re))
        put(w, "(A)NAN");
    else if (isinf(n->value->re))
        put(w, "(A)%sINFINITY", n->value->re < 0 ? "-" : "");
    else
        put(w, "LOAD(STORE((A)%a))", n->value->re);
}

/* Values that are bool in and bool out are computed in the expression's dtype all the same; these
 * formulas give the same. */
static bool fits_bool(const char *op) {
    static const char *const fit[] = {"logical_and", "logical_or", "logical_xor", "logical_not",
                                      "eq",          "ne",         "lt",          "le",
                                      "gt",          "ge",         "where"};
    for (size_t i = 0; i < sizeof fit / sizeof fit[0]; i++)
        if (strcmp(op, fit[i]) == 0) return true;
    return false;
}

/* Integers that are divided by zero are found by the processor. */
static bool is_checked(const char *op) {
    static const char *const checked[] = {"floor_divide", "_trunc_divide", "remainder", "fmod"};
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++)
        if (strcmp(op, checked[i]) == 0) return true;
    return false;
}

static bool is_served(const writer *w, const tn_expr_node *n) {
    bool only_bool = true;
    for (int32_t k = 0; k < n->noperands; k++)
        only_bool &= dtype_at(w->e, n->operand[k]) == TN_BOOL;
    if (only_bool && !fits_bool(n->op)) return false;
    return w->dtype >= TN_F16 || !is_checked(n->op);
}

/* Adds the defaults of the operator's numbers, which its schema has after the operands: "add(Tensor
 * input, Operand other, *, Scalar alpha=1) -> Tensor". False: one of them has none. */
static bool put_defaults(writer *w, const char *schema) {
    const char *end = strstr(schema, ") ->"), *at = strchr(schema, '(');
    while (at && end && at < end) {
        const char *next = strstr(at + 1, ", ");
        if (!next || next > end) next = end;
        const char *from = at + (*at == '(' ? 1 : 2),
                   *value = memchr(from, '=', (size_t)(next - from));
        bool is_operand = strncmp(from, "Tensor", 6) == 0 || strncmp(from, "Operand", 7) == 0;
        at = next;
        if (is_operand || *from == '*') continue;
        if (!value) return false;
        if (strncmp(value, "=True", 5) == 0 || strncmp(value, "=False", 6) == 0)
            put(w, ", %d", value[1] == 'T');
        else
            put(w, ", %.*s", (int)(next - value - 1), value + 1);
    }
    return true;
}

static bool put_call(writer *w, const tn_expr_node *n) {
    const tn_call_iface *calls = cuda_host->query("tn.call/1");
    const tn_op_info *op = calls ? calls->find(n->op) : NULL;
    bool rounds = n->dtype == TN_F16 || n->dtype == TN_BF16;
    if (!op || !is_served(w, n)) return false;
    put(w, "%sf_%s(", rounds ? "LOAD(STORE(" : "", n->op);
    for (int32_t k = 0; k < n->noperands; k++) put(w, "%sv%d", k ? ", " : "", (int)n->operand[k]);
    if (!put_defaults(w, op->schema)) return false;
    put(w, rounds ? ")))" : ")");
    return true;
}

static const char *type_of(int32_t dtype) { return dtype == TN_BOOL ? "uint8_t" : "T"; }

static bool put_node(writer *w, int32_t i) {
    const tn_expr_node *n = node_at(w->e, i);
    bool fine = true;
    put(w, "        const %s v%d = ", n->dtype == TN_BOOL ? "uint8_t" : "A",
        (int)(w->e->ninputs + i));
    if (n->op)
        fine = put_call(w, n);
    else
        put_number(w, n);
    put(w, ";\n");
    return fine;
}

static bool write_kernel(writer *w) {
    const tn_expr *e = w->e;
    int32_t result = e->outputs[0];
    put(w, "#define TMPL_DTYPE %d\n#include \"device.h\"\n#include \"scalar.h\"\n", (int)w->dtype);
    put(w, "KERNEL(" CODEGEN_KERNEL ", cuda_plan) {\n    enum { span = cuda_span<%s",
        type_of(dtype_at(e, result)));
    for (int32_t i = 0; i < e->ninputs; i++) put(w, ", %s", type_of(e->input_dtypes[i]));
    put(w, ">::of };\n    cuda_group g;\n    if (!cuda_group_start<span>(a, &g)) return;\n");
    for (int32_t i = 0; i < e->ninputs; i++)
        put(w, "    CUDA_SPAN_ARRAY(%s, x%d, span);\n    cuda_load(a, g, %d, x%d);\n",
            type_of(e->input_dtypes[i]), (int)i, (int)i + 1, (int)i);
    put(w,
        "    CUDA_SPAN_ARRAY(%s, y, span);\n#pragma unroll\n    for (int i = 0; i < span; i++) {\n"
        "        if (i >= g.n) continue;\n",
        type_of(dtype_at(e, result)));
    for (int32_t i = 0; i < e->ninputs; i++)
        put(w,
            e->input_dtypes[i] == TN_BOOL ? "        const uint8_t v%d = x%d[i] != 0;\n"
                                          : "        const A v%d = LOAD(x%d[i]);\n",
            (int)i, (int)i);
    for (int32_t i = 0; i < e->nnodes; i++)
        if (!put_node(w, i)) return false;
    put(w,
        dtype_at(e, result) == TN_BOOL ? "        y[i] = v%d;\n" : "        y[i] = STORE(v%d);\n",
        (int)result);
    put(w, "    }\n    cuda_store(a, g, y);\n}\n");
    return w->at < SOURCE;
}

/* ---- The interface -----------------------------------------------------------------------------*/

static tn_status compile(int32_t index, const char *source, code **ret_code) {
    const cuda_program p = {.title = "expression.cu", .source = source, .is_ours = true};
    cuda_device *d = NULL;
    CUfunction f = NULL;
    char *log = NULL;
    tn_status st = cuda_enter(index, &d);
    if (st == TN_OK) st = cuda_program_load(&p, d, CODEGEN_KERNEL, &f, &log);
    free(log);
    if (st != TN_OK) return st;
    code *c = calloc(1, sizeof *c);
    if (!c) return cuda_host->fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&c->kernel.on[index], f, memory_order_release);
    *ret_code = c;
    return TN_OK;
}

static tn_status code_compile(void *ctx, int32_t index, const tn_expr *e, void **ret_code) {
    code *c = NULL;
    int32_t dtype;
    (void)ctx;
    if (e->noutputs != 1 || e->ninputs + 1 > CUDA_OPERANDS || !find_dtype(e, &dtype))
        return TN_DECLINE;
    writer *w = calloc(1, sizeof *w);
    if (!w) return cuda_host->fail(TN_E_MEMORY, -1, "out of memory");
    w->e = e;
    w->dtype = dtype;
    tn_status st = write_kernel(w) ? compile(index, w->text, &c) : TN_DECLINE;
    free(w);
    if (st == TN_OK) *ret_code = c;
    return st;
}

static tn_status code_run(void *ctx, int32_t index, void *handle, const tn_plan *plan,
                          void *stream) {
    static const tn_op_info op = {.struct_size = sizeof op, .name = "fused expression"};
    const tn_call call = {.op = &op, .device_index = index, .stream = stream};
    code *c = handle;
    cuda_plan p;
    (void)ctx;
    tn_status st = cuda_plan_make(plan, &p);
    return st == TN_OK ? cuda_launch_plan(&call, &c->kernel, &p) : st;
}

/* The module stays: its kernel may be in flight, and the next like it finds it again on disk. */
static void code_destroy(void *ctx, int32_t index, void *handle) {
    (void)ctx, (void)index;
    free(handle);
}

const tn_codegen_iface cuda_codegen_iface = {
    .struct_size = sizeof cuda_codegen_iface,
    .compile = code_compile,
    .run = code_run,
    .destroy = code_destroy,
};
