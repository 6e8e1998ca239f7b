/* cublaslt.c: the stand-in for cuBLASLt: products and what may follow on them, in plain loops.
 * TENON_CUBLASLT_HOST makes it misbehave: "no-handle", "no-algorithm", "unsupported", "broken". */
#include "../../backends/cuda/libs/cublaslt.h"

#include <math.h>
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
    const void *bias, *matrix;
    int64_t matrix_ld;
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
    const struct {
        int name;
        void *to;
        size_t bytes;
    } known[] = {
        {CUBLASLT_OP_A, &p->op_a, sizeof p->op_a},
        {CUBLASLT_OP_B, &p->op_b, sizeof p->op_b},
        {CUBLASLT_END, &p->end, sizeof p->end},
        {CUBLASLT_BIAS, &p->bias, sizeof p->bias},
        {CUBLASLT_MATRIX, &p->matrix, sizeof p->matrix},
        {CUBLASLT_MATRIX_LD, &p->matrix_ld, sizeof p->matrix_ld},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].name != name || known[i].bytes != bytes) continue;
        memcpy(known[i].to, value, bytes);
        return CUBLAS_OK;
    }
    return CUBLAS_BAD_VALUE;
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

/* ---- What follows on a product -----------------------------------------------------------------*/

static bool is_kept(int end) { return end == CUBLASLT_KEPT_GELU || end == CUBLASLT_BIAS_KEPT_GELU; }
static bool has_matrix(int end) { return is_kept(end) || end == CUBLASLT_GELU_GRADIENT; }
static bool adds(int end) {
    return end == CUBLASLT_ADD_BIAS || end == CUBLASLT_BIAS_RELU || end == CUBLASLT_BIAS_GELU ||
           end == CUBLASLT_BIAS_KEPT_GELU;
}
static bool is_relu(int end) { return end == CUBLASLT_RELU || end == CUBLASLT_BIAS_RELU; }
static bool is_gelu(int end) {
    return end == CUBLASLT_GELU || end == CUBLASLT_BIAS_GELU || is_kept(end);
}
static bool sums(int end) { return end == CUBLASLT_GELU_GRADIENT || end == CUBLASLT_SUM_OF_B; }

/* Whether the library knows what is asked for, with a vector and a matrix where it needs them. The rows
 * of the matrix are a multiple of 8 elements apart, and not less than D's. */
static bool is_whole_end(const struct cublasLtMatmulDescOpaque *p, int64_t rows) {
    bool vector = adds(p->end) || sums(p->end);
    bool known = vector || is_relu(p->end) || is_gelu(p->end);
    bool apart = p->matrix && p->matrix_ld >= rows && p->matrix_ld % 8 == 0;
    return known && (!vector || p->bias) && (!has_matrix(p->end) || apart);
}

/* The tanh approximation and its derivative. */
static double gelu(double x, double *ret_slope) {
    const double scale = 0.79788456080286535588, cube = 0.044715; /* sqrt(2 / pi) */
    double t = tanh(scale * (x + cube * x * x * x));
    *ret_slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * cube * x * x);
    return 0.5 * x * (1 + t);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t *ret_found,
                                              int *ret_n) {
    (void)handle, (void)a, (void)b, (void)c;
    searches++;
    *ret_n = 0;
    if (!is_whole_end(product, d->rows)) return CUBLAS_UNSUPPORTED;
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

/* One element of the product, and where it stands; returns what becomes of it. */
static double end_of(const job *j, double x, int64_t row, int64_t column) {
    const struct cublasLtMatmulDescOpaque *p = &j->p;
    int64_t at = row + column * p->matrix_ld;
    double slope;
    if (adds(p->end)) x += number_load(p->bias, j->d.type, row);
    if (is_kept(p->end)) number_store(p->matrix, j->d.type, at, x);
    if (p->end == CUBLASLT_GELU_GRADIENT) {
        gelu(number_load(p->matrix, j->d.type, at), &slope);
        return x * slope;
    }
    if (is_gelu(p->end)) return gelu(x, &slope);
    return is_relu(p->end) && !(x > 0) ? 0 : x; /* NaN becomes 0 there */
}

/* The vector that comes out beside D: sums of D along its rows, or of B's columns. */
static void run_sums(const job *j, const double *of_rows) {
    if (j->p.end == CUBLASLT_GELU_GRADIENT)
        for (int64_t row = 0; row < j->m; row++)
            number_store(j->p.bias, j->d.type, row, of_rows[row]);
    for (int64_t column = 0; j->p.end == CUBLASLT_SUM_OF_B && column < j->n; column++) {
        double sum = 0;
        for (int64_t k = 0; k < j->k; k++) sum += element(j->y, &j->b, j->p.op_b, k, column);
        number_store(j->p.bias, j->d.type, column, sum);
    }
}

static bool reach_end(const job *j, char *problem) {
    int64_t n = j->p.end == CUBLASLT_SUM_OF_B ? j->n : j->m;
    struct cublasLtMatrixLayoutOpaque matrix = j->d;
    matrix.ld = j->p.matrix_ld;
    bool vector = adds(j->p.end) || sums(j->p.end);
    return (!vector || queue_reach("cuBLASLt: bias", (uintptr_t)j->p.bias,
                                   (size_t)n * number_bytes(j->d.type), problem)) &&
           (!has_matrix(j->p.end) ||
            reach("cuBLASLt: what gelu is taken of", &matrix, j->p.matrix, problem));
}

static bool run_product(void *payload, char *problem) {
    const job *j = payload;
    if (!reach("cuBLASLt: matrix A", &j->a, j->x, problem) ||
        !reach("cuBLASLt: matrix B", &j->b, j->y, problem) ||
        !reach("cuBLASLt: matrix D", &j->d, j->out, problem) ||
        !queue_reach("cuBLASLt: workspace", (uintptr_t)j->room, WORKSPACE, problem) ||
        !reach_end(j, problem))
        return false;
    double *of_rows = calloc((size_t)j->m, sizeof *of_rows);
    if (!of_rows) return false;
    for (int64_t column = 0; column < j->n; column++)
        for (int64_t row = 0; row < j->m; row++) {
            double sum = 0;
            for (int64_t k = 0; k < j->k; k++)
                sum += element(j->x, &j->a, j->p.op_a, row, k) *
                       element(j->y, &j->b, j->p.op_b, k, column);
            sum = end_of(j, sum, row, column);
            of_rows[row] += sum;
            number_store(j->out, j->d.type, row + column * j->d.ld, sum);
        }
    run_sums(j, of_rows);
    free(of_rows);
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
        !is_whole_end(product, j.m))
        return CUBLAS_BAD_VALUE;
    products++;
    return queue_submit(stream, run_product, &j, sizeof j) == CUDA_OK ? CUBLAS_OK : 14;
}
