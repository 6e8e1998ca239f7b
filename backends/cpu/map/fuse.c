/* fuse.c: "tn.codegen/2": an expression of pointwise operators runs tile by tile. The kernels of map.c
 * compute each tile, whose values between them stay in the first caches, so memory is touched once for
 * each input and output. Values are those of the operators one by one. */
#include <stdlib.h>
#include <string.h>

#include <tenon/args_pointwise.h>

#include "copy.h"
#include "map.h"

enum {
    TILE = 1024, /* elements; below CPU_MAP_SMALL, so that kernels take them without further ado */
    ROOM = 96 << 10,
    NODES = 64,
    VALUES = NODES + TN_MAX_OPERANDS,
    ARGS = 4096, /* bytes of all argument structs */
    KERNELS = 2, /* that one operator has for a dtype: the second where the first declines */
    NOWHERE = -1
};

typedef struct fused_node {
    tn_kernel_fn fn[KERNELS]; /* fn[0] NULL: a number */
    int32_t operand[TN_EXPR_OPERANDS];
    int32_t noperands;
    uint32_t at;          /* of its argument struct, or of a number's element */
    int32_t slot;         /* the buffer of its result; NOWHERE: an output's memory, or a number */
    uint32_t scalar_mask; /* of its plan, as the next two */
    uint8_t dtype, compute, size, is_cast;
    uint8_t dtypes[1 + TN_EXPR_OPERANDS], strides[1 + TN_EXPR_OPERANDS];
} fused_node;

typedef struct fused {
    int32_t ninputs, nnodes, noutputs, nslots;
    int32_t output[TN_MAX_OPERANDS]; /* values */
    int32_t grain;                   /* elements of a chunk */
    int32_t slot_items;              /* bytes of the largest element */
    uint32_t args_bytes;
    uint8_t input_dtype[TN_MAX_OPERANDS], input_size[TN_MAX_OPERANDS];
    fused_node node[NODES];
    _Alignas(16) char args[ARGS];
} fused;

static int32_t size_of(int32_t dtype) {
    static const uint8_t sizes[TN_DTYPE_BUILTIN_COUNT] = {
#define X(id, slot, name, bytes, dl, cat, c) [slot] = bytes,
        TN_DTYPE_LIST(X)
#undef X
    };
    return dtype >= 0 && dtype < TN_DTYPE_BUILTIN_COUNT ? sizes[dtype] : 0;
}

/* ---- Making ------------------------------------------------------------------------------------*/

/* The kernels of an operator, the preferred one first; false: none, or more than there is room for. */
static bool find_kernels(const char *op, uint64_t sig, int32_t dtype, tn_kernel_fn *ret) {
    const tn_kernel_row *found[KERNELS] = {NULL};
    int n = 0;
    for (const kernel_family *f = kernel_families; f->name; f++) {
        if (f->set != KERNEL_SET_ANY && f->set != (int32_t)cpu_isa_pick()) continue;
        for (uint32_t i = 0; i < f->rows->n; i++) {
            const tn_kernel_row *row = &f->rows->rows[i];
            if (row->dtype != dtype || row->sig != sig || strcmp(row->op, op) != 0) continue;
            if (n == KERNELS) return false;
            found[n++] = row;
        }
    }
    bool swap = n == 2 && found[1]->priority > found[0]->priority;
    for (int i = 0; i < n; i++) ret[i] = found[swap ? n - 1 - i : i]->fn;
    return n > 0;
}

static bool keep(fused *f, const tn_expr_node *from, fused_node *n) {
    if (!from->args || from->args_bytes > ARGS - f->args_bytes) return false;
    n->at = f->args_bytes;
    memcpy(f->args + n->at, from->args, from->args_bytes);
    f->args_bytes += (uint32_t)(from->args_bytes + 15) / 16 * 16;
    return true;
}

static int32_t dtype_of(const fused *f, int32_t value) {
    return value < f->ninputs ? f->input_dtype[value] : f->node[value - f->ninputs].dtype;
}

/* What the plan of a node's kernel is like, whatever the tile. */
static void note_plan(const fused *f, fused_node *n) {
    n->dtypes[0] = n->dtype;
    n->strides[0] = n->size;
    for (int32_t k = 0; k < n->noperands; k++) {
        int32_t x = n->operand[k];
        const fused_node *by = x < f->ninputs ? NULL : &f->node[x - f->ninputs];
        bool number = by && !by->fn[0];
        n->dtypes[k + 1] = by ? by->dtype : f->input_dtype[x];
        n->strides[k + 1] = number ? 0 : by ? by->size : f->input_size[x];
        n->scalar_mask |= (uint32_t)number << (k + 1);
    }
}

static bool take_node(fused *f, const tn_expr_node *from, fused_node *n) {
    n->dtype = (uint8_t)from->dtype;
    n->compute = (uint8_t)from->compute;
    n->size = (uint8_t)size_of(from->dtype);
    n->noperands = from->noperands;
    n->slot = NOWHERE;
    memcpy(n->operand, from->operand, sizeof n->operand);
    if (!n->size || !keep(f, from, n)) return false;
    if (!from->op) return from->args_bytes == n->size;
    n->is_cast = strcmp(from->op, "_cast") == 0;
    note_plan(f, n);
    int32_t by = n->is_cast ? dtype_of(f, n->operand[0]) : from->compute;
    return find_kernels(from->op, from->sig, by, n->fn);
}

static bool is_output(const fused *f, int32_t value) {
    for (int32_t i = 0; i < f->noutputs; i++)
        if (f->output[i] == value) return true;
    return false;
}

/* Gives results buffers, which are free again after their last use. A result takes the place of an
 * operand of its own dtype only: kernels may assume that elements of two types lie apart. */
static void place_results(fused *f) {
    int32_t last[VALUES], owner[NODES];
    for (int32_t i = 0; i < f->nnodes; i++) {
        last[f->ninputs + i] = i;
        for (int32_t k = 0; k < f->node[i].noperands; k++) last[f->node[i].operand[k]] = i;
    }
    for (int32_t i = 0; i < f->nnodes; i++) {
        fused_node *n = &f->node[i];
        if (!n->fn[0] || is_output(f, f->ninputs + i)) continue;
        int32_t s = 0;
        for (; s < f->nslots; s++) {
            int32_t held = owner[s];
            if (last[held] < i) break;
            if (last[held] == i && !n->is_cast && dtype_of(f, held) == n->dtype) break;
        }
        if (s == f->nslots) f->nslots++;
        n->slot = s;
        owner[s] = f->ninputs + i;
    }
}

static bool take_expression(fused *f, const tn_expr *e) {
    if (e->nnodes > NODES || e->ninputs + e->noutputs > TN_MAX_OPERANDS || e->noutputs < 1)
        return false;
    f->ninputs = e->ninputs;
    f->noutputs = e->noutputs;
    memcpy(f->output, e->outputs, sizeof *f->output * (size_t)e->noutputs);
    for (int32_t i = 0; i < e->ninputs; i++) {
        f->input_dtype[i] = (uint8_t)e->input_dtypes[i];
        f->input_size[i] = (uint8_t)size_of(e->input_dtypes[i]);
        if (!f->input_size[i]) return false;
        if (f->input_size[i] > f->slot_items) f->slot_items = f->input_size[i];
    }
    for (int32_t i = 0; i < e->nnodes; i++) {
        const char *at = (const char *)e->nodes + (size_t)i * e->node_size;
        if (!take_node(f, (const tn_expr_node *)(const void *)at, &f->node[i])) return false;
        f->nnodes = i + 1;
        if (f->node[i].size > f->slot_items) f->slot_items = f->node[i].size;
    }
    for (int32_t i = 0; i < e->noutputs; i++)
        if (e->outputs[i] < f->ninputs || !f->node[e->outputs[i] - f->ninputs].fn[0]) return false;
    place_results(f);
    f->grain = 16384 / f->nnodes / TILE * TILE;
    if (f->grain < 4 * TILE) f->grain = 4 * TILE;
    return true;
}

static tn_status code_compile(void *ctx, int32_t device, const tn_expr *e, void **ret_code) {
    (void)ctx, (void)device;
    if (e->node_size < sizeof(tn_expr_node)) return TN_DECLINE;
    fused *f = calloc(1, sizeof *f);
    if (!f) return cpu_host->fail(TN_E_MEMORY, -1, "out of memory");
    if (!take_expression(f, e)) {
        free(f);
        return TN_DECLINE;
    }
    *ret_code = f;
    return TN_OK;
}

static void code_destroy(void *ctx, int32_t device, void *code) {
    (void)ctx, (void)device;
    free(code);
}

/* ---- Running -----------------------------------------------------------------------------------*/

typedef struct fused_job {
    const fused *f;
    const tn_plan *plan;
    int64_t tile;
    uint32_t packed;   /* by plan operand: element i lies at i * size */
    uint32_t constant; /* one value for all */
    uint32_t stream;   /* outputs that are written past the caches */
} fused_job;

/* Memory of one chunk. */
typedef struct tiles {
    _Alignas(64) char room[ROOM];
    _Alignas(16) char args[ARGS];
    char *at[VALUES];
    char *slot[VALUES];
    tn_plan plan; /* of one kernel */
    tn_view from, into;
    int64_t one;
} tiles;

/* Elements [begin, begin + n) of an operand in the order of the plan. */
static char *gather(const tn_plan *plan, int32_t k, int64_t begin, int64_t n, int32_t size,
                    char *into) {
    int64_t n0 = plan->shape[0], col = begin % n0, row = begin / n0, stride = plan->stride[0][k];
    for (int64_t fill = 0; fill < n; row++, col = 0) {
        int64_t m = n0 - col < n - fill ? n0 - col : n - fill, left = row;
        char *x = (char *)plan->data[k] + col * stride, *to = into + fill * size;
        for (int32_t d = 1; d < plan->ndim; d++) {
            x += left % plan->shape[d] * plan->stride[d][k];
            left /= plan->shape[d];
        }
        if (stride == size && m == n) return x;
        if (stride == 0)
            cpu_spread(to, x, m, size);
        else if (stride == size)
            memcpy(to, x, (size_t)(m * size));
        else
            cpu_gather(to, x, m, stride, size);
        fill += m;
    }
    return into;
}

static void lay_view(tn_view *v, char *data, int32_t dtype, int32_t size, int64_t *shape,
                     int64_t *one) {
    v->word = (uint64_t)dtype | TN_W_CONTIGUOUS;
    v->numel = *shape;
    v->data = data;
    v->ndim = 1;
    v->dl_bits = (uint8_t)(size * 8);
    v->shape = shape;
    v->strides = one;
    v->byte_offset = 0;
}

static tn_status convert(const fused *f, const fused_node *n, tiles *t, const tn_call *call,
                         char *out) {
    int32_t x = n->operand[0], dtype = dtype_of(f, x);
    tn__cast_args *a = (void *)(t->args + n->at);
    lay_view(&t->from, t->at[x], dtype, size_of(dtype), t->plan.shape, &t->one);
    lay_view(&t->into, out, n->dtype, n->size, t->plan.shape, &t->one);
    a->plan = NULL;
    a->input = &t->from;
    a->out = &t->into;
    return n->fn[0](call, a);
}

static tn_status compute(const fused *f, const fused_node *n, tiles *t, char *out) {
    tn_plan *p = &t->plan;
    const tn_call call = {.host = cpu_host, .dtype = n->compute};
    if (n->is_cast) return convert(f, n, t, &call, out);
    p->noperands = n->noperands + 1;
    p->scalar_mask = n->scalar_mask;
    p->data[0] = out;
    for (int32_t k = 0; k < n->noperands; k++) p->data[k + 1] = t->at[n->operand[k]];
    for (int32_t k = 0; k <= n->noperands; k++) {
        p->dtype[k] = n->dtypes[k];
        p->stride[0][k] = n->strides[k];
    }
    const tn_plan **plan = (void *)(t->args + n->at);
    *plan = p;
    tn_status st = n->fn[0](&call, plan);
    return st == TN_DECLINE && n->fn[1] ? n->fn[1](&call, plan) : st;
}

static tn_status run_tile(const fused_job *j, int64_t begin, int64_t n, tiles *t) {
    const fused *f = j->f;
    t->plan.numel = t->plan.shape[0] = n;
    for (int32_t i = 0; i < f->ninputs; i++) {
        int32_t k = f->noutputs + i, size = f->input_size[i];
        if (j->packed >> k & 1)
            t->at[i] = (char *)j->plan->data[k] + begin * size;
        else if (!(j->constant >> k & 1))
            t->at[i] = gather(j->plan, k, begin, n, size, t->slot[i]);
    }
    for (int32_t o = 0; o < f->noutputs; o++) {
        int32_t x = f->output[o];
        t->at[x] = j->stream >> o & 1
                       ? t->slot[x]
                       : (char *)j->plan->data[o] + begin * f->node[x - f->ninputs].size;
    }
    for (int32_t i = 0; i < f->nnodes; i++) {
        const fused_node *node = &f->node[i];
        if (!node->fn[0]) continue;
        tn_status st = compute(f, node, t, t->at[f->ninputs + i]);
        if (CPU_UNLIKELY(st != TN_OK)) return st == TN_DECLINE ? TN_E_UNSUPPORTED : st;
    }
    for (int32_t o = 0; j->stream && o < f->noutputs; o++) {
        int32_t x = f->output[o], size = f->node[x - f->ninputs].size;
        if (j->stream >> o & 1)
            cpu_stream((char *)j->plan->data[o] + begin * size, t->at[x], (uint64_t)(n * size));
    }
    return TN_OK;
}

/* Buffers, one after the other: results, gathered inputs, outputs that are written past the caches. */
static void lay_room(const fused_job *j, tiles *t, int64_t n) {
    const fused *f = j->f;
    int64_t bytes = ((j->tile < n ? j->tile : n) * f->slot_items + 63) / 64 * 64;
    char *next = t->room + f->nslots * bytes;
    for (int32_t i = 0; i < f->nnodes; i++) {
        const fused_node *node = &f->node[i];
        if (!node->fn[0])
            t->at[f->ninputs + i] = t->args + node->at;
        else if (node->slot >= 0)
            t->at[f->ninputs + i] = t->room + node->slot * bytes;
    }
    for (int32_t i = 0; i < f->ninputs; i++) {
        int32_t k = f->noutputs + i;
        if (j->packed >> k & 1) continue;
        t->slot[i] = next;
        next += bytes;
        if (j->constant >> k & 1) {
            cpu_spread(t->slot[i], j->plan->data[k], j->tile < n ? j->tile : n, f->input_size[i]);
            t->at[i] = t->slot[i];
        }
    }
    for (int32_t o = 0; o < f->noutputs; o++) {
        t->slot[f->output[o]] = next;
        if (j->stream >> o & 1) next += bytes;
    }
}

static tn_status run_chunk(void *arg, int64_t begin, int64_t end) {
    const fused_job *j = arg;
    const fused *f = j->f;
    tiles t;
    memcpy(t.args, f->args, f->args_bytes);
    t.plan.ndim = 1;
    t.plan.noutputs = 1;
    t.plan.flags = TN_PLAN_FLAT;
    t.plan.reduce_mask = 0;
    t.one = 1;
    lay_room(j, &t, end - begin);
    for (int64_t i = begin; i < end; i += j->tile) {
        tn_status st = run_tile(j, i, end - i < j->tile ? end - i : j->tile, &t);
        if (st != TN_OK) return st;
    }
    if (j->stream) cpu_stream_end();
    return TN_OK;
}

/* How each operand lies. Dimensions are sorted and merged, so that what is packed in the whole has the
 * strides of row-major memory in the plan's order. */
static void find_layout(fused_job *j) {
    const tn_plan *p = j->plan;
    for (int32_t k = 0; k < p->noperands; k++) {
        int32_t o = k - j->f->noutputs;
        int64_t size =
            o < 0 ? j->f->node[j->f->output[k] - j->f->ninputs].size : j->f->input_size[o];
        int64_t wanted = size;
        bool packed = true, constant = true;
        for (int32_t d = 0; d < p->ndim; d++) {
            if (p->shape[d] > 1) {
                packed &= p->stride[d][k] == wanted;
                constant &= p->stride[d][k] == 0;
            }
            wanted *= p->shape[d];
        }
        j->packed |= (uint32_t)packed << k;
        j->constant |= (uint32_t)(constant && !packed) << k;
        bool large = (uint64_t)p->numel * (uint64_t)size >= cpu_os_l3_bytes() / 2;
        if (o < 0 && large && ((uintptr_t)p->data[k] & 15u) == 0) j->stream |= 1u << k;
    }
}

static tn_status code_run(void *ctx, int32_t device, void *code, const tn_plan *plan,
                          void *stream) {
    const fused *f = code;
    fused_job j = {.f = f, .plan = plan};
    (void)ctx, (void)device, (void)stream;
    find_layout(&j);
    uint32_t outputs = (1u << f->noutputs) - 1;
    if ((j.packed & outputs) != outputs) return TN_DECLINE;
    int32_t buffers = f->nslots + plan->noperands;
    j.tile = ROOM / (buffers * f->slot_items) / 64 * 64;
    if (j.tile > TILE) j.tile = TILE;
    return j.tile ? cpu_parallel(plan->numel, f->grain, run_chunk, &j) : TN_DECLINE;
}

const tn_codegen_iface cpu_codegen_iface = {
    .struct_size = sizeof(tn_codegen_iface),
    .compile = code_compile,
    .run = code_run,
    .destroy = code_destroy,
};
