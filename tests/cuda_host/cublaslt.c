/* cublaslt.c: the stand-in for cuBLASLt: products with a bias, in plain loops. TENON_CUBLASLT_HOST makes
 * it misbehave: "no-handle", "no-algorithm", "unsupported",
 * "broken". */
#include "../../backends/cuda/cublaslt.h"

#include <stdlib.h>

#include "number.h"
#include "queue.h"

enum { WORKSPACE = 1024 };

struct cublasLtContext {
    int started;
};
struct cublasLtMatrixLayoutOpaque {
    int type;
    int64_t rows, columns, ld;
};
struct cublasLtMatmulDescOpaque {
    int compute, op_a, op_b, end;
    const void *bias;
};
struct cublasLtMatmulPreferenceOpaque {
    uint64_t room;
};

static bool is_asked(const char *what) {
    const char *text = getenv("TENON_CUBLASLT_HOST");
    return text && strcmp(text, what) == 0;
}

/* What a test may ask: searches and products so far. */
static long searches, products;
long cublasLtHostCount(const char *what);
long cublasLtHostCount(const char *what) {
    return strcmp(what, "search") == 0 ? searches : products;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret_handle) {
    if (is_asked("no-handle")) return 1;
    *ret_handle = calloc(1, sizeof **ret_handle);
    return *ret_handle ? CUBLAS_OK : CUBLAS_BAD_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *ret_product,
                                        cublasComputeType_t compute, cudaDataType scale) {
    cublasLtMatmulDesc_t p = calloc(1, sizeof *p);
    if (!p || scale != CUBLAS_F32) return CUBLAS_BAD_VALUE;
    p->compute = compute;
    *ret_product = p;
    return CUBLAS_OK;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    free(product);
    return CUBLAS_OK;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    void *to = name == CUBLASLT_OP_A   ? (void *)&p->op_a
               : name == CUBLASLT_OP_B ? (void *)&p->op_b
               : name == CUBLASLT_END  ? (void *)&p->end
               : name == CUBLASLT_BIAS ? (void *)&p->bias
                                       : NULL;
    if (!to || bytes != (name == CUBLASLT_BIAS ? sizeof p->bias : sizeof p->end))
        return CUBLAS_BAD_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_OK;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret_layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    cublasLtMatrixLayout_t m = calloc(1, sizeof *m);
    if (!m || ld < (int64_t)rows) return CUBLAS_BAD_VALUE;
    m->type = type;
    m->rows = (int64_t)rows;
    m->columns = (int64_t)columns;
    m->ld = ld;
    *ret_layout = m;
    return CUBLAS_OK;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_OK;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret_wish) {
    *ret_wish = calloc(1, sizeof **ret_wish);
    return *ret_wish ? CUBLAS_OK : CUBLAS_BAD_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish) {
    free(wish);
    return CUBLAS_OK;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes) {
    if (bytes != (name == CUBLASLT_ROOM ? sizeof wish->room : sizeof(uint32_t)))
        return CUBLAS_BAD_VALUE;
    if (name == CUBLASLT_ROOM) memcpy(&wish->room, value, bytes);
    return CUBLAS_OK;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t *ret_found,
                                              int *ret_n) {
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d;
    searches++;
    *ret_n = 0;
    if (most < 1 || wish->room < WORKSPACE || is_asked("no-algorithm")) return CUBLAS_UNSUPPORTED;
    ret_found->algo.data[0] = 42;
    ret_found->workspaceSize = WORKSPACE;
    ret_found->state = CUBLAS_OK;
    *ret_n = 1;
    return CUBLAS_OK;
}

typedef struct job {
    struct cublasLtMatmulDescOpaque p;
    struct cublasLtMatrixLayoutOpaque a, b, d;
    const char *x, *y, *room;
    char *out;
    int64_t m, n, k;
} job;

static bool reach(const char *who, const struct cublasLtMatrixLayoutOpaque *m, const char *data,
                  char *problem) {
    int64_t last = (m->columns - 1) * m->ld + m->rows;
    return queue_reach(who, (uintptr_t)data, (size_t)last * number_bytes(m->type), problem);
}

static double element(const char *data, const struct cublasLtMatrixLayoutOpaque *m, int op,
                      int64_t row, int64_t column) {
    return number_load(data, m->type,
                       op == CUBLAS_NORMAL ? row + column * m->ld : column + row * m->ld);
}

static bool run_product(void *payload, char *problem) {
    const job *j = payload;
    if (!reach("cuBLASLt: matrix A", &j->a, j->x, problem) ||
        !reach("cuBLASLt: matrix B", &j->b, j->y, problem) ||
        !reach("cuBLASLt: matrix D", &j->d, j->out, problem) ||
        !queue_reach("cuBLASLt: workspace", (uintptr_t)j->room, WORKSPACE, problem) ||
        !queue_reach("cuBLASLt: bias", (uintptr_t)j->p.bias, (size_t)j->m * number_bytes(j->d.type),
                     problem))
        return false;
    for (int64_t column = 0; column < j->n; column++)
        for (int64_t row = 0; row < j->m; row++) {
            double sum = 0;
            for (int64_t k = 0; k < j->k; k++)
                sum += element(j->x, &j->a, j->p.op_a, row, k) *
                       element(j->y, &j->b, j->p.op_b, k, column);
            number_store(j->out, j->d.type, row + column * j->d.ld,
                         sum + number_load(j->p.bias, j->d.type, row));
        }
    return true;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                              cublasStream stream) {
    job j = {*product, *a_layout, *b_layout, *d_layout, a, b, workspace, d, 0, 0, 0};
    (void)handle, (void)c, (void)c_layout;
    bool plain_a = product->op_a == CUBLAS_NORMAL, plain_b = product->op_b == CUBLAS_NORMAL;
    j.m = plain_a ? a_layout->rows : a_layout->columns;
    j.k = plain_a ? a_layout->columns : a_layout->rows;
    j.n = plain_b ? b_layout->columns : b_layout->rows;
    int64_t inner = plain_b ? b_layout->rows : b_layout->columns;
    if (is_asked("broken")) return 14;
    if (is_asked("unsupported")) return CUBLAS_UNSUPPORTED;
    if (algorithm->data[0] != 42 || bytes < WORKSPACE || inner != j.k || d_layout->rows != j.m ||
        d_layout->columns != j.n || *(const float *)alpha != 1 || *(const float *)beta != 0 ||
        product->end != CUBLASLT_ADD_BIAS)
        return CUBLAS_BAD_VALUE;
    products++;
    return queue_submit(stream, run_product, &j, sizeof j) == CUDA_OK ? CUBLAS_OK : 14;
}
