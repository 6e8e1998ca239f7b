/* cublas.c: the stand-in for cuBLAS: plain loops in double. Operands are looked at before: what a
 * product would read or write must be live device memory. */
#include "../../backends/cuda/libs/cublas.h"

#include <complex.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "number.h"
#include "queue.h"

/* A product leaves its mark in the workspace and looks for it at its end: two that run at once must
 * not have the same one. A handle's own is that of all its streams. */
typedef _Atomic(const void *) mark;
struct cublasContext {
    CUstream stream;
    void *workspace; /* NULL: none */
    mark own;
};

typedef struct matrix {
    const void *data;
    int type, op, ld;
    long long batch;
} matrix;

typedef struct product {
    matrix a, b, c;
    int m, n, k, batch;
    double _Complex alpha, beta;
    mark *workspace;
    bool of_user;
} product;

static double load(const matrix *m, int64_t i) { return number_load(m->data, m->type, i); }

/* Element (row, column) of op(m) in batch i; matrices lie by columns. */
static int64_t place(const matrix *m, int64_t i, int64_t row, int64_t column) {
    int64_t inside = m->op == CUBLAS_NORMAL ? row + column * m->ld : column + row * m->ld;
    return i * m->batch + inside;
}

static bool reach(const char *who, const matrix *m, int rows, int columns, int batch,
                  char *problem) {
    if (rows == 0 || columns == 0) return true;
    int64_t last = place(m, batch - 1, rows - 1, columns - 1);
    uint64_t at = (uint64_t)(uintptr_t)m->data;
    return queue_reach(who, at, (size_t)(last + 1) * number_bytes(m->type), problem);
}

static bool compute(const product *p, char *problem);

static bool run_product(void *payload, char *problem) {
    const product *p = payload;
    uint64_t workspace = (uint64_t)(uintptr_t)p->workspace;
    if (p->of_user && !queue_reach("cuBLAS: workspace", workspace, sizeof(mark), problem))
        return false;
    if (p->workspace) atomic_store(p->workspace, p);
    bool fine = compute(p, problem);
    if (!fine || !p->workspace || atomic_load(p->workspace) == p) return fine;
    snprintf(problem, HOST_TEXT, "cuBLAS: two products of different streams share a workspace");
    return false;
}

static void multiply_real(const product *p) {
    for (int i = 0; i < p->batch; i++)
        for (int column = 0; column < p->n; column++)
            for (int row = 0; row < p->m; row++) {
                double sum = 0;
                int64_t at = place(&p->c, i, row, column);
                for (int k = 0; k < p->k; k++)
                    sum += load(&p->a, place(&p->a, i, row, k)) *
                           load(&p->b, place(&p->b, i, k, column));
                double before = p->beta == 0 ? 0 : creal(p->beta) * load(&p->c, at);
                number_store(p->c.data, p->c.type, at, creal(p->alpha) * sum + before);
            }
}

static bool is_complex(int type) { return type == CUBLAS_C64 || type == CUBLAS_C128; }

static double _Complex load_complex(const matrix *m, int64_t i) {
    int part = m->type == CUBLAS_C128 ? CUBLAS_F64 : CUBLAS_F32;
    return tmpl_c128(number_load(m->data, part, 2 * i), number_load(m->data, part, 2 * i + 1));
}

static void store_complex(const matrix *m, int64_t i, double _Complex x) {
    int part = m->type == CUBLAS_C128 ? CUBLAS_F64 : CUBLAS_F32;
    number_store(m->data, part, 2 * i, creal(x));
    number_store(m->data, part, 2 * i + 1, cimag(x));
}

static void multiply_complex(const product *p) {
    for (int i = 0; i < p->batch; i++)
        for (int column = 0; column < p->n; column++)
            for (int row = 0; row < p->m; row++) {
                double _Complex sum = 0;
                int64_t at = place(&p->c, i, row, column);
                for (int k = 0; k < p->k; k++)
                    sum += load_complex(&p->a, place(&p->a, i, row, k)) *
                           load_complex(&p->b, place(&p->b, i, k, column));
                if (p->beta != 0) sum = p->alpha * sum + p->beta * load_complex(&p->c, at);
                store_complex(&p->c, at, p->beta != 0 ? sum : p->alpha * sum);
            }
}

static bool compute(const product *p, char *problem) {
    if (!reach("cuBLAS: matrix A", &p->a, p->m, p->k, p->batch, problem) ||
        !reach("cuBLAS: matrix B", &p->b, p->k, p->n, p->batch, problem) ||
        !reach("cuBLAS: matrix C", &p->c, p->m, p->n, p->batch, problem))
        return false;
    if (is_complex(p->c.type))
        multiply_complex(p);
    else
        multiply_real(p);
    return true;
}

static int least_ld(const matrix *m, int rows, int columns) {
    int stored = m->op == CUBLAS_NORMAL ? rows : columns;
    return stored > 1 ? stored : 1;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *ret_handle) {
    *ret_handle = calloc(1, sizeof **ret_handle);
    if (*ret_handle) (*ret_handle)->workspace = &(*ret_handle)->own;
    return *ret_handle ? CUBLAS_OK : CUBLAS_BAD_VALUE;
}

/* Goes back to the handle's own workspace, as cuBLAS does. */
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cublasStream stream) {
    handle->stream = stream;
    handle->workspace = &handle->own;
    return CUBLAS_OK;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    handle->workspace = bytes >= sizeof(mark) ? workspace : NULL;
    return (uintptr_t)workspace % 256 ? CUBLAS_BAD_VALUE : CUBLAS_OK;
}

/* What a test may ask: the mode that was set last. */
static long math_mode;
long cublasHostMathMode(void);
long cublasHostMathMode(void) { return math_mode; }

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    (void)handle;
    math_mode = mode;
    return mode == CUBLAS_PLAIN_MATH || mode == CUBLAS_WIDE_SUMS ? CUBLAS_OK : CUBLAS_BAD_VALUE;
}

/* A factor of a product whose elements are of `type`: a number like them, in float or in double. */
static double _Complex load_factor(const void *factor, int type, bool wide) {
    int part = wide ? CUBLAS_F64 : CUBLAS_F32;
    double im = is_complex(type) ? number_load(factor, part, 1) : 0;
    return tmpl_c128(number_load(factor, part, 0), im);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    product p = {{a, type_a, op_a, lda, stride_a},
                 {b, type_b, op_b, ldb, stride_b},
                 {c, type_c, CUBLAS_NORMAL, ldc, stride_c},
                 m,
                 n,
                 k,
                 batch,
                 0,
                 0,
                 NULL,
                 false};
    (void)algorithm;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < least_ld(&p.a, m, k) ||
        ldb < least_ld(&p.b, k, n) || ldc < least_ld(&p.c, m, n) ||
        (compute == CUBLAS_IN_F64) != (type_c == CUBLAS_F64 || type_c == CUBLAS_C128))
        return CUBLAS_BAD_VALUE;
    p.alpha = load_factor(alpha, type_c, compute == CUBLAS_IN_F64);
    p.beta = load_factor(beta, type_c, compute == CUBLAS_IN_F64);
    p.workspace = handle->workspace;
    p.of_user = p.workspace && p.workspace != &handle->own;
    return queue_submit(handle->stream, run_product, &p, sizeof p) == CUDA_OK ? CUBLAS_OK : 14;
}
