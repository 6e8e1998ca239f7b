/* linalg.c: the operators that are matrix products: mm, bmm, mv, dot, linear and the forms that
 * add to something. Each describes its operands as strided matrices and hands them to cpu_gemm.
 *
 * family: linalg */
#include <limits.h>

#include <tenon/args_linalg.h>
#include <tenon/args_nn.h>

#include "blas.h"
#include "cpu_priv.h"
#include "gemm.h"
#include "pack.h"

static const tn_scalar one = {TN_CAT_INT, 0, 1, 1.0, 0.0};
static const tn_scalar zero = {TN_CAT_INT, 0, 0, 0.0, 0.0};

/* The last two dimensions of v as a matrix; a dimension in front of them is the batch. */
static gemm_mat mat_of(const tn_view *v) {
    const int64_t *s = v->strides + v->ndim - 2;
    int64_t bs = v->ndim == 3 && v->shape[0] > 1 ? v->strides[0] : 0;
    return (gemm_mat){v->data, s[0], s[1], bs};
}

/* v broadcast to a (batch, m, n) result: size 1 and missing dimensions get stride 0. */
static gemm_mat broadcast(const tn_view *v) {
    int64_t s[3] = {0, 0, 0}; /* batch, row, column */
    for (int32_t d = 0; d < v->ndim && d < 3; d++) {
        int32_t from = v->ndim - 1 - d;
        s[2 - d] = v->shape[from] == 1 ? 0 : v->strides[from];
    }
    return (gemm_mat){v->data, s[1], s[2], s[0]};
}

static tn_status product(const tn_call *call, const tn_view *a, const tn_view *b,
                         const tn_view *init, const tn_view *out, tn_scalar beta, tn_scalar alpha) {
    const int64_t *shape = out->shape + out->ndim - 2, *strides = out->strides + out->ndim - 2;
    gemm_args g = {
        .dtype = call->dtype,
        .batch = out->ndim == 3 ? out->shape[0] : 1,
        .m = shape[0],
        .n = shape[1],
        .k = a->shape[a->ndim - 1],
        .a = mat_of(a),
        .b = mat_of(b),
        .c = out->data,
        .c_rs = strides[0],
        .c_cs = strides[1],
        .c_bs = out->ndim == 3 ? out->strides[0] : 0,
        .alpha = alpha,
        .beta = init ? beta : zero,
    };
    if (init && (beta.re != 0.0 || beta.im != 0.0)) {
        gemm_mat from = broadcast(init);
        /* In place, C already holds what beta multiplies. */
        int same = from.data == g.c && from.rs == g.c_rs && from.cs == g.c_cs;
        if (!same) g.init = from;
    }
    return cpu_gemm(call, &g);
}

static tn_status mm(const tn_call *call, const void *args) {
    const tn_mm_args *a = args;
    return product(call, a->input, a->mat2, NULL, a->out, zero, one);
}

static tn_status bmm(const tn_call *call, const void *args) {
    const tn_bmm_args *a = args;
    return product(call, a->input, a->mat2, NULL, a->out, zero, one);
}

static tn_status addmm(const tn_call *call, const void *args) {
    const tn_addmm_args *a = args;
    return product(call, a->mat1, a->mat2, a->input, a->out, a->beta, a->alpha);
}

static tn_status baddbmm(const tn_call *call, const void *args) {
    const tn_baddbmm_args *a = args;
    return product(call, a->batch1, a->batch2, a->input, a->out, a->beta, a->alpha);
}

/* y = alpha * A x + beta * init, with x and y as single columns. */
static tn_status matvec(const tn_call *call, const tn_view *a, const tn_view *x,
                        const tn_view *init, const tn_view *y, tn_scalar beta, tn_scalar alpha) {
    gemm_args g = {
        .dtype = call->dtype,
        .batch = 1,
        .m = a->shape[0],
        .n = 1,
        .k = a->shape[1],
        .a = {a->data, a->strides[0], a->strides[1], 0},
        .b = {x->data, x->strides[0], 1, 0},
        .c = y->data,
        .c_rs = y->strides[0],
        .c_cs = 1,
        .alpha = alpha,
        .beta = init ? beta : zero,
    };
    if (init && (beta.re != 0.0 || beta.im != 0.0)) {
        int64_t rs = init->ndim == 1 && init->shape[0] > 1 ? init->strides[0] : 0;
        if (init->data != g.c || rs != g.c_rs) g.init = (gemm_mat){init->data, rs, 0, 0};
    }
    return cpu_gemm(call, &g);
}

static tn_status mv(const tn_call *call, const void *args) {
    const tn_mv_args *a = args;
    return matvec(call, a->input, a->vec, NULL, a->out, zero, one);
}

static tn_status addmv(const tn_call *call, const void *args) {
    const tn_addmv_args *a = args;
    return matvec(call, a->mat, a->vec, a->input, a->out, a->beta, a->alpha);
}

/* ---- dot ---------------------------------------------------------------------------------------
 * Partial sums of fixed chunks, added in order. */
#define DOT_CHUNK 65536

typedef struct dot_job {
    const tn_view *x, *y;
    double *partial;
} dot_job;

static tn_status dot_chunk(void *arg, int64_t begin, int64_t end) {
    const dot_job *j = arg;
    int64_t n = j->x->numel, sx = j->x->strides[0], sy = j->y->strides[0];
    for (int64_t c = begin; c < end; c++) {
        int64_t at = c * DOT_CHUNK, len = n - at < DOT_CHUNK ? n - at : DOT_CHUNK;
        if (tn_view_dtype(j->x) == TN_F32) {
            j->partial[c] =
                (double)BLAS(cblas_sdot)((int)len, (const float *)j->x->data + at * sx, (int)sx,
                                         (const float *)j->y->data + at * sy, (int)sy);
        } else {
            j->partial[c] =
                BLAS(cblas_ddot)((int)len, (const double *)j->x->data + at * sx, (int)sx,
                                 (const double *)j->y->data + at * sy, (int)sy);
        }
    }
    return TN_OK;
}

static int blas_stride(int64_t s) { return s >= 1 && s <= INT_MAX / DOT_CHUNK; }

static tn_status dot(const tn_call *call, const void *args) {
    const tn_dot_args *a = args;
    const tn_view *x = a->input, *y = a->tensor;
    int real = call->dtype == TN_F32 || call->dtype == TN_F64;
    if (!real || !blas_stride(x->strides[0]) || !blas_stride(y->strides[0])) {
        gemm_args g = {
            .dtype = call->dtype,
            .batch = 1,
            .m = 1,
            .n = 1,
            .k = x->numel,
            .a = {x->data, 1, x->strides[0], 0},
            .b = {y->data, y->strides[0], 1, 0},
            .c = a->out->data,
            .c_rs = 1,
            .c_cs = 1,
            .alpha = one,
            .beta = zero,
        };
        return cpu_gemm(call, &g);
    }
    int64_t chunks = (x->numel + DOT_CHUNK - 1) / DOT_CHUNK;
    double local[1] = {0.0}, sum = 0.0;
    dot_job job = {x, y, local};
    tn_status st = TN_OK;
    if (chunks > 1) {
        void *p;
        st = room_scratch(call, chunks, sizeof(double), &p);
        if (st) return st;
        job.partial = p;
        st = cpu_parallel(chunks, 1, dot_chunk, &job);
    } else if (chunks == 1) {
        st = dot_chunk(&job, 0, 1);
    }
    for (int64_t c = 0; c < chunks; c++) sum += job.partial[c];
    if (call->dtype == TN_F32) {
        *(float *)a->out->data = (float)sum;
    } else {
        *(double *)a->out->data = sum;
    }
    return st;
}

/* ---- linear ------------------------------------------------------------------------------------
 * The dimensions in front of the last one are the rows of one product where a single stride reaches
 * them all; otherwise the input is packed first. y is always packed. */

/* Stride from row to row, when there is one. */
static int row_stride(const tn_view *x, int64_t *ret_rs) {
    int64_t rows = 1, rs = 0;
    for (int32_t d = x->ndim - 2; d >= 0; d--) {
        if (x->shape[d] == 1) continue;
        if (rows == 1) {
            rs = x->strides[d];
        } else if (x->strides[d] != rs * rows) {
            return 0;
        }
        rows *= x->shape[d];
    }
    *ret_rs = rows == 1 ? x->shape[x->ndim - 1] : rs;
    return 1;
}

static tn_status linear(const tn_call *call, const void *args) {
    const tn_linear_args *a = args;
    const tn_view *x = a->input, *w = a->weight, *y = a->out;
    int64_t k = x->shape[x->ndim - 1], n = w->shape[0], rs;
    if (y->numel == 0) return TN_OK;
    gemm_args g = {
        .dtype = call->dtype,
        .batch = 1,
        .m = y->numel / n,
        .n = n,
        .k = k,
        .b = {w->data, w->strides[1], w->strides[0], 0},
        .c = y->data,
        .c_rs = n,
        .c_cs = 1,
        .alpha = one,
        .beta = zero,
    };
    if (row_stride(x, &rs)) {
        g.a = (gemm_mat){x->data, rs, x->strides[x->ndim - 1], 0};
    } else {
        g.a = (gemm_mat){NULL, k, 1, 0};
        tn_status st = cpu_packed(call, x, &g.a.data);
        if (st) return st;
    }
    if (a->bias) {
        g.init = (gemm_mat){a->bias->data, 0, a->bias->shape[0] > 1 ? a->bias->strides[0] : 0, 0};
        g.beta = one;
    }
    return cpu_gemm(call, &g);
}

#define ROW(op, dtype)                                                                             \
    { #op, TN_SIG_##op, op, NULL, dtype, 0, TN_K_CAPTURE_SAFE, 0 }
#define ROWS_FLOAT(op)                                                                             \
    ROW(op, TN_F32), ROW(op, TN_F64), ROW(op, TN_F16), ROW(op, TN_BF16), ROW(op, TN_C64),          \
        ROW(op, TN_C128)
#define ROWS_ALL(op)                                                                               \
    ROWS_FLOAT(op), ROW(op, TN_BOOL), ROW(op, TN_U8), ROW(op, TN_I8), ROW(op, TN_I16),             \
        ROW(op, TN_I32), ROW(op, TN_I64)

static const tn_kernel_row rows[] = {
    ROWS_ALL(mm), ROWS_ALL(bmm),   ROWS_ALL(addmm), ROWS_ALL(baddbmm),
    ROWS_ALL(mv), ROWS_ALL(addmv), ROWS_ALL(dot),   ROWS_ALL(linear),
};
const cpu_rows cpu_linalg_rows = CPU_ROWS_OF(rows);
