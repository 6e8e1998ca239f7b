/* gemm_end.c: products that end in a bias, an activation or a gradient of these in the same step, by
 * cuBLASLt. Its heuristics are asked once per shape. Where it is missing or has no algorithm, the caller
 * does the rest by itself. */
#include "gemm.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "cublaslt.h"

enum {
    SLOTS = 1024,         /* of remembered algorithms; a newer one takes an older one's place */
    WORKSPACE = 32 << 20, /* bytes that an algorithm may take */
    REDUCED_SUMS = 4      /* partial sums in the type of the result */
};

static cuda_cublaslt lt;
#define SYMBOL(member, symbol, params) {#symbol, offsetof(cuda_cublaslt, member)},
static const cuda_symbol symbols[] = {CUBLASLT_LIST(SYMBOL)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t handles[CUDA_DEVICES];

/* What an algorithm depends on; compared as bytes. */
typedef struct shape {
    int32_t device, dtype, tf32, reduced, op_a, op_b, end;
    int32_t aligned_a, aligned_b, aligned_c, aligned_bias, aligned_pre; /* 0: there is none */
    int32_t m, n, k, ld_a, ld_b, ld_c;
} shape;

static struct {
    shape key;
    enum { EMPTY, NONE, FOUND } state;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} remembered[SLOTS];

/* Lock held; NULL: there is no cuBLASLt. */
static cublasLtHandle_t take_handle(const cuda_device *d) {
    static enum { NOT_ASKED, USABLE, UNUSABLE } state;
    if (state == NOT_ASKED) {
        void *library = cuda_open_library("libcublasLt", cuda_toolkit_versions);
        bool whole = library &&
                     !cuda_find_symbols(library, symbols, sizeof symbols / sizeof symbols[0], &lt);
        state = whole ? USABLE : UNUSABLE;
    }
    if (state == UNUSABLE) return NULL;
    cublasLtHandle_t *h = &handles[d->index];
    if (!*h && lt.create_handle(h) != CUBLAS_OK) *h = NULL;
    return *h;
}

/* ---- Descriptors of one product ----------------------------------------------------------------*/

typedef struct parts {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t wish;
} parts;

/* Only where there is a library. */
static void drop_parts(parts *p) {
    if (p->product) lt.destroy_product(p->product);
    if (p->a) lt.destroy_layout(p->a);
    if (p->b) lt.destroy_layout(p->b);
    if (p->c) lt.destroy_layout(p->c);
    if (p->wish) lt.destroy_wish(p->wish);
}

static bool set_product(const parts *p, int name, const void *value, size_t bytes) {
    return lt.set_product(p->product, name, value, bytes) == CUBLAS_OK;
}

static bool set_wish(const parts *p, int name, const void *value, size_t bytes) {
    return lt.set_wish(p->wish, name, value, bytes) == CUBLAS_OK;
}

static bool make_layout(cublasLtMatrixLayout_t *layout, int type, int op, int rows, int columns,
                        int ld) {
    bool plain = op == CUBLAS_NORMAL;
    return lt.create_layout(layout, type, (uint64_t)(plain ? rows : columns),
                            (uint64_t)(plain ? columns : rows), ld) == CUBLAS_OK;
}

static bool set_end(const parts *p, const shape *s, const cuda_gemm_end *end) {
    const int64_t ld = s->m;
    return set_product(p, CUBLASLT_END, &s->end, sizeof s->end) &&
           (!end->bias || set_product(p, CUBLASLT_BIAS, &end->bias, sizeof end->bias)) &&
           (!end->pre || (set_product(p, CUBLASLT_MATRIX, &end->pre, sizeof end->pre) &&
                          set_product(p, CUBLASLT_MATRIX_LD, &ld, sizeof ld)));
}

static bool make_parts(const shape *s, cuda_number_type type, const cuda_gemm_end *end,
                       parts *ret_parts) {
    parts *p = ret_parts;
    return lt.create_product(&p->product, type.compute, CUBLAS_F32) == CUBLAS_OK &&
           set_product(p, CUBLASLT_OP_A, &s->op_a, sizeof s->op_a) &&
           set_product(p, CUBLASLT_OP_B, &s->op_b, sizeof s->op_b) && set_end(p, s, end) &&
           make_layout(&p->a, type.data, s->op_a, s->m, s->k, s->ld_a) &&
           make_layout(&p->b, type.data, s->op_b, s->k, s->n, s->ld_b) &&
           make_layout(&p->c, type.data, CUBLAS_NORMAL, s->m, s->n, s->ld_c);
}

/* ---- Algorithms --------------------------------------------------------------------------------*/

static bool search(cublasLtHandle_t handle, const shape *s, parts *p,
                   cublasLtMatmulHeuristicResult_t *ret_found) {
    const uint64_t room = WORKSPACE;
    const uint32_t sums = CUBLASLT_WIDE_SUMS | (s->reduced ? REDUCED_SUMS : 0);
    const uint32_t aligned[] = {(uint32_t)s->aligned_a, (uint32_t)s->aligned_b,
                                (uint32_t)s->aligned_c};
    int n = 0;
    return lt.create_wish(&p->wish) == CUBLAS_OK &&
           set_wish(p, CUBLASLT_ROOM, &room, sizeof room) &&
           set_wish(p, CUBLASLT_SUMS, &sums, sizeof sums) &&
           set_wish(p, CUBLASLT_ALIGNED_A, &aligned[0], sizeof aligned[0]) &&
           set_wish(p, CUBLASLT_ALIGNED_B, &aligned[1], sizeof aligned[1]) &&
           set_wish(p, CUBLASLT_ALIGNED_C, &aligned[2], sizeof aligned[2]) &&
           set_wish(p, CUBLASLT_ALIGNED_D, &aligned[2], sizeof aligned[2]) &&
           lt.search(handle, p->product, p->a, p->b, p->c, p->c, p->wish, 1, ret_found, &n) ==
               CUBLAS_OK &&
           n > 0 && ret_found->state == CUBLAS_OK;
}

/* Slot of the shape's algorithm; -1: there is none. */
static int find_algorithm(cublasLtHandle_t handle, const shape *s, parts *p) {
    int i = (int)(cuda_cache_hash(CUDA_CACHE_SEED, s, sizeof *s) % SLOTS);
    if (remembered[i].state == EMPTY || memcmp(&remembered[i].key, s, sizeof *s) != 0) {
        cublasLtMatmulHeuristicResult_t found;
        memset(&found, 0, sizeof found);
        remembered[i].key = *s;
        remembered[i].state = search(handle, s, p, &found) ? FOUND : NONE;
        remembered[i].algorithm = found.algo;
        remembered[i].workspace = found.workspaceSize;
    }
    return remembered[i].state == FOUND ? i : -1;
}

/* ---- Products ----------------------------------------------------------------------------------*/

/* The largest power of two, up to 256, that divides the address and the bytes of a row. */
static int32_t alignment_of(const void *data, int64_t row) {
    uintptr_t bits = (uintptr_t)data | (uintptr_t)row | 256;
    return (int32_t)(bits & (~bits + 1));
}

static tn_status multiply(const tn_call *call, cuda_device *d, cublasLtHandle_t handle,
                          const shape *s, parts *p, const void *x, const void *y, void *c) {
    const float one = 1, zero = 0;
    void *workspace = NULL;
    int i = find_algorithm(handle, s, p);
    if (i < 0) return TN_DECLINE;
    size_t bytes = remembered[i].workspace;
    tn_status st = bytes ? room_scratch(call, 1, bytes, &workspace) : TN_OK;
    if (st != TN_OK) return st;
    cuda_count(d, CUDA_LIBRARY_CALLS, 1);
    int r = lt.multiply(handle, p->product, &one, y, p->a, x, p->b, &zero, c, p->c, c, p->c,
                        &remembered[i].algorithm, workspace, bytes, call->stream);
    if (r == CUBLAS_OK) return TN_OK;
    remembered[i].state = NONE; /* not tried again */
    if (r == CUBLAS_BAD_VALUE || r == CUBLAS_UNSUPPORTED) return TN_DECLINE;
    return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: cuBLASLt returned error %d",
                           call->device_index, call->op->name, r);
}

/* The library wants what gelu is taken of in rows of a multiple of 8 elements. */
static bool is_served(const tn_call *call, const cuda_matrix *a, const cuda_matrix *c,
                      const cuda_gemm_end *end) {
    bool known = call->dtype == TN_F16 || call->dtype == TN_BF16 || call->dtype == TN_F32;
    return known && c->rows <= INT_MAX && c->columns <= INT_MAX && a->columns <= INT_MAX &&
           a->columns > 0 && (!end->pre || c->columns % 8 == 0);
}

tn_status cuda_gemm_with_end(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                             const cuda_matrix *c, const cuda_gemm_end *end) {
    cuda_operand x, y, z;
    cuda_device *d = NULL;
    shape s;
    parts p = {NULL, NULL, NULL, NULL, NULL};
    cuda_number_type type = cuda_number_type_of(call->dtype, cuda_is_tf32_allowed() != 0);
    int64_t item = cuda_item_bytes(call->dtype);
    if (!is_served(call, a, c, end) || !cuda_gemm_describe(a, &x) || !cuda_gemm_describe(b, &y) ||
        !cuda_gemm_describe(c, &z) || z.op != CUBLAS_NORMAL)
        return TN_DECLINE;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    s = (shape){.device = d->index,
                .dtype = call->dtype,
                .tf32 = type.compute == CUBLAS_IN_TF32,
                .reduced = cuda_gemm_reduces(call->dtype),
                .op_a = y.op,
                .op_b = x.op,
                .end = end->what,
                .aligned_a = alignment_of(y.data, y.ld * item),
                .aligned_b = alignment_of(x.data, x.ld * item),
                .aligned_c = alignment_of(c->data, z.ld * item),
                .aligned_bias = end->bias ? alignment_of(end->bias, 0) : 0,
                .aligned_pre = end->pre ? alignment_of(end->pre, c->columns * item) : 0,
                .m = (int32_t)c->columns,
                .n = (int32_t)c->rows,
                .k = (int32_t)a->columns,
                .ld_a = y.ld,
                .ld_b = x.ld,
                .ld_c = z.ld};
    pthread_mutex_lock(&lock);
    cublasLtHandle_t handle = take_handle(d);
    st = handle && make_parts(&s, type, end, &p)
             ? multiply(call, d, handle, &s, &p, x.data, y.data, c->data)
             : TN_DECLINE;
    drop_parts(&p);
    pthread_mutex_unlock(&lock);
    return st;
}
