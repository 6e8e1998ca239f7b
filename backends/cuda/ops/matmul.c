/* matmul.c: the operators that are matrix products: mm, bmm, mv, dot, linear and the forms that add to
 * something. Each describes its operands as matrices; those that cuBLAS cannot read are packed first.
 * Integers have a kernel of ours, which reads any strides.
 *
 * family: matmul */
#include <tenon/args_linalg.h>
#include <tenon/args_nn.h>

#include "cublaslt.h"
#include "gemm.h"

/* ---- Matrices ----------------------------------------------------------------------------------*/

/* The last two dimensions of v; one in front of them is the batch. */
static cuda_matrix matrix_of(const tn_view *v) {
    const int64_t *shape = v->shape + v->ndim - 2, *strides = v->strides + v->ndim - 2;
    int64_t batch = v->ndim == 3 && v->shape[0] > 1 ? v->strides[0] : 0;
    return (cuda_matrix){v->data, shape[0], shape[1], strides[0], strides[1], batch};
}

/* A vector as a single column, or as a single row. */
static cuda_matrix column_of(const tn_view *v) {
    return (cuda_matrix){v->data, v->shape[0], 1, v->strides[0], 1, 0};
}
static cuda_matrix row_of(const tn_view *v) {
    return (cuda_matrix){v->data, 1, v->shape[0], 1, v->strides[0], 0};
}

/* v broadcast to the shape of `to`: sizes of 1 and missing dimensions get stride 0. */
static cuda_matrix broadcast(const tn_view *v, const cuda_matrix *to) {
    int64_t s[3] = {0, 0, 0}; /* column, row, batch */
    for (int32_t d = 0; d < v->ndim && d < 3; d++) {
        int32_t from = v->ndim - 1 - d;
        s[d] = v->shape[from] == 1 ? 0 : v->strides[from];
    }
    return (cuda_matrix){v->data, to->rows, to->columns, s[1], s[0], s[2]};
}

static int64_t item_of(const tn_call *call) { return cuda_item_bytes(call->dtype); }

static tn_status copy(const tn_call *call, const cuda_matrix *to, const cuda_matrix *from,
                      int64_t n) {
    int64_t item = item_of(call);
    const int32_t bytes[] = {(int32_t)item, (int32_t)item};
    const int64_t columns[] = {to->column * item, from->column * item};
    const int64_t rows[] = {to->row * item, from->row * item};
    const int64_t batches[] = {to->batch * item, from->batch * item};
    cuda_plan p;
    cuda_plan_start(&p);
    p.data[0] = to->data;
    p.data[1] = from->data;
    tn_status st = cuda_plan_add(&p, 2, to->columns, columns);
    if (st == TN_OK) st = cuda_plan_add(&p, 2, to->rows, rows);
    if (st == TN_OK) st = cuda_plan_add(&p, 2, n, batches);
    if (st != TN_OK) return st;
    cuda_plan_end(&p, 2, bytes);
    return cuda_copy_plan(call, item, &p);
}

/* Replaces a matrix that cuBLAS cannot read by a packed copy. */
static tn_status make_readable(const tn_call *call, cuda_matrix *m, int64_t n) {
    cuda_matrix packed = {NULL, m->rows, m->columns, m->columns, 1, m->rows * m->columns};
    if (cuda_gemm_takes(m)) return TN_OK;
    if (m->batch == 0) n = 1;
    tn_status st =
        room_scratch(call, room_mul(n, packed.batch), (size_t)item_of(call), &packed.data);
    if (st == TN_OK) st = copy(call, &packed, m, n);
    if (n == 1) packed.batch = 0;
    *m = packed;
    return st;
}

/* ---- Products ----------------------------------------------------------------------------------*/

/* Whether `from` is one packed row for all rows of c. */
static bool is_bias(const cuda_matrix *from, const cuda_matrix *c) {
    return c->rows > 1 && from->row == 0 && c->columns > 1 && from->column == 1;
}

/* c = init, broadcast; nothing where c is init's own memory. */
static tn_status put(const tn_call *call, const cuda_matrix *c, const cuda_matrix *from,
                     int64_t n) {
    bool same = from->data == c->data && (c->rows < 2 || from->row == c->row) &&
                (c->columns < 2 || from->column == c->column) && (n < 2 || from->batch == c->batch);
    return same ? TN_OK : copy(call, c, from, n);
}

/* What a product is multiplied by, and what it is added to, where there is something. */
typedef struct scaling {
    const tn_view *init; /* broadcast; or NULL */
    tn_scalar alpha, beta;
} scaling;

static bool is(tn_scalar x, double value) { return x.re == value && x.im == 0; }

/* c = alpha * a @ b + beta * c */
static tn_status multiply(const tn_call *call, const cuda_matrix *a, const cuda_matrix *b,
                          const cuda_matrix *c, int64_t n, tn_scalar alpha, tn_scalar beta) {
    cuda_product p = {.a = a,
                      .b = b,
                      .c = c,
                      .n = n,
                      .alpha = alpha.re,
                      .beta = beta.re,
                      .alpha_im = alpha.im,
                      .beta_im = beta.im,
                      .tf32 = cuda_is_tf32_allowed() != 0};
    return cuda_gemm_product(call, &p);
}

static tn_status product_of_floats(const tn_call *call, cuda_matrix a, cuda_matrix b,
                                   const cuda_matrix *c, const cuda_matrix *from, int64_t n,
                                   const scaling *by) {
    const tn_scalar zero = {0};
    bool real = call->dtype <= TN_F64;
    if (real && (by->alpha.im != 0 || by->beta.im != 0)) return TN_DECLINE;
    if (!cuda_gemm_takes(c) || (c->columns > 1 && c->column != 1)) return TN_DECLINE;
    tn_status st = make_readable(call, &a, n);
    if (st == TN_OK) st = make_readable(call, &b, n);
    if (st != TN_OK) return st;
    if (!from) return multiply(call, &a, &b, c, n, by->alpha, zero);
    if (real && n == 1 && is(by->alpha, 1) && is(by->beta, 1) && is_bias(from, c)) {
        const cuda_gemm_end add = {CUBLASLT_ADD_BIAS, from->data, NULL};
        st = cuda_gemm_with_end(call, &a, &b, c, &add);
        if (st != TN_DECLINE) return st;
    }
    st = put(call, c, from, n);
    return st == TN_OK ? multiply(call, &a, &b, c, n, by->alpha, by->beta) : st;
}

/* c = alpha * a @ b + beta * init. With beta 0 nothing of init is read, NaN included. */
static tn_status product(const tn_call *call, cuda_matrix a, cuda_matrix b, const cuda_matrix *c,
                         int64_t n, const scaling *by) {
    bool adds = by->init && !is(by->beta, 0);
    cuda_matrix from = adds ? broadcast(by->init, c) : *c;
    if (c->rows == 0 || c->columns == 0 || n == 0) return TN_OK;
    if (call->dtype < TN_F16)
        return cuda_gemm_int(call, &a, &b, c, adds ? &from : NULL, n, by->alpha.i, by->beta.i);
    return product_of_floats(call, a, b, c, adds ? &from : NULL, n, by);
}

#define ONE                                                                                        \
    { TN_CAT_INT, 0, 1, 1, 0 }
static const scaling alone = {NULL, ONE, {0}};

static tn_status product_views(const tn_call *call, const tn_view *a, const tn_view *b,
                               const tn_view *out, const scaling *by) {
    cuda_matrix c = matrix_of(out);
    int64_t n = out->ndim == 3 ? out->shape[0] : 1;
    return product(call, matrix_of(a), matrix_of(b), &c, n, by);
}

static tn_status mm(const tn_call *call, const void *args) {
    const tn_mm_args *a = args;
    return product_views(call, a->input, a->mat2, a->out, &alone);
}

static tn_status bmm(const tn_call *call, const void *args) {
    const tn_bmm_args *a = args;
    return product_views(call, a->input, a->mat2, a->out, &alone);
}

static tn_status addmm(const tn_call *call, const void *args) {
    const tn_addmm_args *a = args;
    const scaling by = {a->input, a->alpha, a->beta};
    return product_views(call, a->mat1, a->mat2, a->out, &by);
}

static tn_status baddbmm(const tn_call *call, const void *args) {
    const tn_baddbmm_args *a = args;
    const scaling by = {a->input, a->alpha, a->beta};
    return product_views(call, a->batch1, a->batch2, a->out, &by);
}

static tn_status mv(const tn_call *call, const void *args) {
    const tn_mv_args *a = args;
    cuda_matrix y = column_of(a->out);
    return product(call, matrix_of(a->input), column_of(a->vec), &y, 1, &alone);
}

/* As a row, along which the input is broadcast. */
static tn_status addmv(const tn_call *call, const void *args) {
    const tn_addmv_args *a = args;
    const scaling by = {a->input, a->alpha, a->beta};
    cuda_matrix y = row_of(a->out), m = matrix_of(a->mat);
    return product(call, row_of(a->vec), cuda_gemm_turned(&m), &y, 1, &by);
}

static tn_status dot(const tn_call *call, const void *args) {
    const tn_dot_args *a = args;
    cuda_matrix y = {a->out->data, 1, 1, 1, 1, 0};
    return product(call, row_of(a->input), column_of(a->tensor), &y, 1, &alone);
}

static tn_status linear(const tn_call *call, const void *args) {
    const tn_linear_args *a = args;
    const scaling by = {a->bias, ONE, ONE};
    cuda_matrix x, y, w = matrix_of(a->weight);
    if (a->out->numel == 0) return TN_OK;
    if (!tn_view_is_contiguous(a->out)) return TN_DECLINE;
    tn_status st = cuda_gemm_rows(call, a->out, &y);
    if (st == TN_OK) st = cuda_gemm_rows(call, a->input, &x);
    return st != TN_OK ? st : product(call, x, cuda_gemm_turned(&w), &y, 1, &by);
}

#define ROWS(op) CUDA_NUMBER_ROWS(op, op), CUDA_COMPLEX_ROWS(op, op)
static const tn_kernel_row rows[] = {
    ROWS(mm),
    ROWS(bmm),
    ROWS(addmm),
    ROWS(baddbmm),
    ROWS(mv),
    ROWS(addmv),
    ROWS(dot),
    CUDA_FLOAT_ROWS(linear, linear),
    CUDA_COMPLEX_ROWS(linear, linear),
};
const cuda_rows cuda_matmul_rows = CUDA_ROWS_OF(rows);
