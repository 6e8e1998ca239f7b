/* gemm.c: cuBLAS: opened at the first product, one handle per device behind a lock, which is held
 * while a product is queued and never while one runs; its workspace is the call's. */
#include "gemm.h"

#include <limits.h>
#include <pthread.h>

#include "cublas.h"

static cuda_cublas cublas;
#define SYMBOL(member, symbol, params) {#symbol, offsetof(cuda_cublas, member)},
static const cuda_symbol symbols[] = {CUBLAS_LIST(SYMBOL)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasHandle_t handles[CUDA_DEVICES];

/* ---- The library -------------------------------------------------------------------------------*/

static tn_status open_cublas(void) {
    static const cuda_toolkit_library library = {
        "libcublas", "cuBLAS",
        "matrix products on the GPU need cuBLAS (libcublas.so.13 or .12): "
        "pip install nvidia-cublas, or name its folder in TENON_CUDA_PATH",
        symbols, sizeof symbols / sizeof symbols[0]};
    static bool is_open;
    tn_status st = is_open ? TN_OK : cuda_open_toolkit(&library, &cublas);
    is_open = st == TN_OK;
    return st;
}

/* What cuBLAS may use beside its operands: memory of the call's stream, so that products of several
 * streams do not meet in it, and of the graph where one is captured. NULL: it makes do without. */
static void *take_workspace(const tn_call *call, const cuda_device *d, void **room,
                            size_t *ret_bytes) {
    void *workspace = room ? *room : NULL;
    *ret_bytes = (size_t)(d->major < 9 ? 8 : 32) << 20;
    if (workspace) return workspace;
    bool kept = cuda_settings_keeps_memory(); /* else every product would ask the driver for it */
    if (!kept || room_scratch(call, 1, *ret_bytes, &workspace) != TN_OK) *ret_bytes = 0;
    if (!*ret_bytes) return NULL;
    if (room) *room = workspace;
    return workspace;
}

/* Lock held; the device is current. Setting the stream puts the handle's own workspace back. */
static tn_status take_handle(cuda_device *d, void *stream, void *workspace, size_t bytes,
                             cublasHandle_t *ret_handle) {
    tn_status st = open_cublas();
    if (st != TN_OK) return st;
    cublasHandle_t *h = &handles[d->index];
    if (!*h && cublas.create(h) != CUBLAS_OK)
        return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: cuBLAS does not start", d->index);
    if (cublas.set_stream(*h, stream) != CUBLAS_OK ||
        cublas.set_workspace(*h, workspace, bytes) != CUBLAS_OK)
        return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: cuBLAS does not take the stream",
                               d->index);
    *ret_handle = *h;
    return TN_OK;
}

/* ---- Matrices ----------------------------------------------------------------------------------*/

static int64_t at_least(int64_t x, int64_t least) { return x > least ? x : least; }

/* Strides of sizes below 2 say nothing. */
bool cuda_gemm_describe(const cuda_matrix *m, cuda_operand *ret_operand) {
    bool by_rows = m->column == 1 || m->columns < 2, by_columns = m->row == 1 || m->rows < 2;
    int64_t row = m->rows < 2 ? at_least(m->columns, 1) : m->row;
    int64_t column = m->columns < 2 ? at_least(m->rows, 1) : m->column;
    bool empty = m->rows == 0 || m->columns == 0;
    if (empty) row = at_least(m->columns, 1);
    if (empty || (by_rows && row >= at_least(m->columns, 1)))
        *ret_operand = (cuda_operand){m->data, CUBLAS_NORMAL, (int)row, m->batch};
    else if (by_columns && column >= m->rows)
        *ret_operand = (cuda_operand){m->data, CUBLAS_TRANSPOSED, (int)column, m->batch};
    else
        return false;
    return row <= INT_MAX && column <= INT_MAX && m->batch >= 0;
}

bool cuda_gemm_takes(const cuda_matrix *m) {
    cuda_operand o;
    return cuda_gemm_describe(m, &o);
}

tn_status cuda_gemm_rows(const tn_call *call, const tn_view *v, cuda_matrix *ret_matrix) {
    int64_t columns = v->shape[v->ndim - 1], rows = 1, stride = 0;
    const void *packed = NULL;
    bool even = true;
    for (int32_t d = v->ndim - 2; d >= 0; d--) {
        if (v->shape[d] == 1) continue;
        if (rows == 1) stride = v->strides[d];
        even = even && v->strides[d] == stride * rows;
        rows *= v->shape[d];
    }
    if (rows == 1) stride = columns;
    *ret_matrix = (cuda_matrix){v->data, rows, columns, stride, v->strides[v->ndim - 1], 0};
    if (even) return TN_OK;
    tn_status st = cuda_packed(call, v, &packed);
    *ret_matrix = (cuda_matrix){(void *)(uintptr_t)packed, rows, columns, columns, 1, 0};
    return st;
}

cuda_matrix cuda_gemm_turned(const cuda_matrix *m) {
    return (cuda_matrix){m->data, m->columns, m->rows, m->column, m->row, m->batch};
}

cuda_number_type cuda_number_type_of(int32_t dtype, bool tf32) {
    switch (dtype) {
    case TN_F16: return (cuda_number_type){CUBLAS_F16, CUBLAS_IN_F32};
    case TN_BF16: return (cuda_number_type){CUBLAS_BF16, CUBLAS_IN_F32};
    case TN_F64: return (cuda_number_type){CUBLAS_F64, CUBLAS_IN_F64};
    case TN_C64: return (cuda_number_type){CUBLAS_C64, CUBLAS_IN_F32};
    case TN_C128: return (cuda_number_type){CUBLAS_C128, CUBLAS_IN_F64};
    default: return (cuda_number_type){CUBLAS_F32, tf32 ? CUBLAS_IN_TF32 : CUBLAS_IN_F32};
    }
}

bool cuda_gemm_reduces(int32_t dtype) {
    return (dtype == TN_F16 && cuda_option_value(CUDA_REDUCED_F16)) ||
           (dtype == TN_BF16 && cuda_option_value(CUDA_REDUCED_BF16));
}

tn_status cuda_gemm_product(const tn_call *call, const cuda_product *p) {
    cuda_device *d = NULL;
    cublasHandle_t handle = NULL;
    cuda_operand x, y, z;
    const cuda_matrix *a = p->a, *c = p->c;
    cuda_number_type type = cuda_number_type_of(call->dtype, p->tf32);
    /* The imaginary parts are read for complex numbers. */
    const double alpha64[] = {p->alpha, p->alpha_im}, beta64[] = {p->beta, p->beta_im};
    const float alpha32[] = {(float)p->alpha, (float)p->alpha_im};
    const float beta32[] = {(float)p->beta, (float)p->beta_im};
    bool wide = type.compute == CUBLAS_IN_F64;
    int to = p->widened && !wide ? CUBLAS_F32 : type.data;
    if (c->rows == 0 || c->columns == 0 || p->n == 0) return TN_OK;
    if (c->rows > INT_MAX || c->columns > INT_MAX || a->columns > INT_MAX || p->n > INT_MAX ||
        !cuda_gemm_describe(a, &x) || !cuda_gemm_describe(p->b, &y) || !cuda_gemm_describe(c, &z) ||
        z.op != CUBLAS_NORMAL)
        return TN_DECLINE;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    size_t bytes;
    void *workspace = take_workspace(call, d, p->room, &bytes);
    pthread_mutex_lock(&lock);
    st = take_handle(d, call->stream, workspace, bytes, &handle);
    if (st == TN_OK) {
        bool reduces = cuda_gemm_reduces(call->dtype);
        cuda_count(d, CUDA_LIBRARY_CALLS, 1);
        cublas.set_math_mode(handle, reduces ? CUBLAS_PLAIN_MATH : CUBLAS_WIDE_SUMS);
        int r =
            cublas.gemm(handle, y.op, x.op, (int)c->columns, (int)c->rows, (int)a->columns,
                        wide ? (const void *)alpha64 : alpha32, y.data, type.data, y.ld, y.batch,
                        x.data, type.data, x.ld, x.batch, wide ? (const void *)beta64 : beta32,
                        c->data, to, z.ld, z.batch, (int)p->n, type.compute, CUBLAS_ANY_ALGORITHM);
        if (r != CUBLAS_OK)
            st = cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: cuBLAS returned error %d", d->index,
                                 call->op->name, r);
    }
    pthread_mutex_unlock(&lock);
    return st;
}
