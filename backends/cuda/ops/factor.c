/* factor.c: LU and Cholesky factors, determinants, inverses, linear and triangular systems: host side of
 * kernels/factor.cu. A panel of columns is factored by a block for each matrix; what follows from it for
 * the rest of the matrices is a product, by cuBLAS.
 *
 * family: factor */
#include "cuda_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include <tenon/args_linalg.h>

#include "gemm.h"
#include "kernels/args/args_factor.h"

/* By slot from TN_F32 on: real numbers, then complex ones. */
typedef cuda_kernel factor_kernels[4];
#define KERNELS(stem)                                                                              \
    {                                                                                              \
        CUDA_FLOAT_KERNEL(factor, stem, f32), CUDA_FLOAT_KERNEL(factor, stem, f64),                \
            CUDA_FLOAT_KERNEL(factor, stem, c64), CUDA_FLOAT_KERNEL(factor, stem, c128)            \
    }
static factor_kernels panels = KERNELS(factor_panel), columns_kernels = KERNELS(factor_columns),
                      orders = KERNELS(factor_order), gathers = KERNELS(factor_gather),
                      conditions = KERNELS(factor_condition),
                      cofactor_kernels = KERNELS(factor_cofactors),
                      determinants = KERNELS(factor_determinant), refusals = KERNELS(factor_refuse),
                      lowers = KERNELS(factor_lower), uppers = KERNELS(factor_upper),
                      choleskys = KERNELS(factor_cholesky), conjugates = KERNELS(factor_conjugate),
                      clears = KERNELS(factor_clear);
_Static_assert(TN_F64 == TN_F32 + 1 && TN_C64 == TN_F32 + 2 && TN_C128 == TN_F32 + 3,
               "kernels are in the order of slots");

static cuda_kernel *kernel_of(const tn_call *call, factor_kernels kernels) {
    return &kernels[call->dtype - TN_F32];
}

static tn_status each(const tn_call *call, factor_kernels kernels, int64_t n,
                      const cuda_factor_args *a) {
    return cuda_launch_each(call, kernel_of(call, kernels), n, a);
}

/* Sizes of a matrix's last two dimensions, and how many there are; what a kernel reports goes to the
 * call. */
static tn_status start(const tn_call *call, const tn_view *v, cuda_factor_args *a) {
    a->rows = v->shape[v->ndim - 2];
    a->columns = v->shape[v->ndim - 1];
    a->least = a->rows < a->columns ? a->rows : a->columns;
    a->count = 1;
    for (int32_t d = 0; d + 2 < v->ndim; d++) a->count *= v->shape[d];
    a->op = (uint64_t)(uintptr_t)call->op->name;
    if (a->rows > INT32_MAX || a->columns > INT32_MAX) return TN_DECLINE;
    return cuda_fault_of(call, &a->fault);
}

/* c -= x y, of all matrices. */
static tn_status subtract(const tn_call *call, int64_t count, const cuda_matrix *x,
                          const cuda_matrix *y, const cuda_matrix *c, void **room) {
    const cuda_product p = {
        .a = x, .b = y, .c = c, .n = count, .alpha = -1, .beta = 1, .room = room};
    return cuda_gemm_product(call, &p);
}

static void *element(const tn_call *call, void *data, int64_t i) {
    return (char *)data + i * cuda_item_bytes(call->dtype);
}

/* ---- LU ----------------------------------------------------------------------------------------*/

/* Factors a->a in place. */
static tn_status factor(const tn_call *call, cuda_factor_args *a) {
    int64_t m = a->rows, n = a->columns;
    void *room = NULL;
    tn_status st = TN_OK;
    if (a->count == 0) return TN_OK;
    for (a->first = 0; a->first < a->least && st == TN_OK; a->first += a->width) {
        int64_t left = a->least - a->first;
        a->width = left < CUDA_FACTOR_WIDTH ? left : CUDA_FACTOR_WIDTH;
        int64_t next = a->first + a->width;
        st = cuda_launch(call, kernel_of(call, panels), a->count,
                         cuda_rows_threads(m - a->first, 1), a);
        if (st == TN_OK) st = each(call, columns_kernels, a->count * (n - a->width), a);
        if (st != TN_OK || next == m || next == n) continue;
        cuda_matrix left_side = {
            element(call, a->a, next * n + a->first), m - next, a->width, n, 1, m * n};
        cuda_matrix above = {
            element(call, a->a, a->first * n + next), a->width, n - next, n, 1, m * n};
        cuda_matrix rest = {element(call, a->a, next * (n + 1)), m - next, n - next, n, 1, m * n};
        st = subtract(call, a->count, &left_side, &above, &rest, &room);
    }
    return st;
}

/* Room for exchanges and results that the operator does not return, then the factors of v in scratch
 * memory. */
static tn_status factor_copy(const tn_call *call, const tn_view *v, cuda_factor_args *a) {
    void *pivots = NULL, *info = NULL;
    tn_status st = start(call, v, a);
    if (st == TN_OK) st = room_scratch(call, v->numel, (size_t)cuda_item_bytes(call->dtype), &a->a);
    if (st == TN_OK)
        st = room_scratch(call, room_mul(a->count, a->least), sizeof(int32_t), &pivots);
    if (st == TN_OK && !a->info) st = room_scratch(call, a->count, sizeof(int32_t), &info);
    a->pivots = pivots;
    if (!a->info) a->info = info;
    if (st == TN_OK) st = cuda_pack(call, v, a->a);
    return st == TN_OK ? factor(call, a) : st;
}

/* The first matrix whose result is not 0, or their count; waits. */
static tn_status find_failed(const tn_call *call, const cuda_factor_args *a, int64_t *ret_at,
                             int32_t *ret_info) {
    int32_t *info = calloc((size_t)a->count + 1, sizeof *info);
    if (!info) return call->host->fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = cuda_read(call, info, a->info, (uint64_t)a->count * sizeof *info);
    *ret_at = 0;
    while (*ret_at < a->count && info[*ret_at] == 0) ++*ret_at;
    *ret_info = info[*ret_at];
    free(info);
    return st;
}

/* Fails where there is one. */
static tn_status check(const tn_call *call, const cuda_factor_args *a, bool batched,
                       const char *name, const char *failure, const char *ending) {
    char where[48] = "", code[16] = "";
    int64_t at = 0;
    int32_t info = 0;
    tn_status st = find_failed(call, a, &at, &info);
    if (st != TN_OK || at == a->count) return st;
    if (batched) snprintf(where, sizeof where, "(Batch element %lld): ", (long long)at);
    if (ending) snprintf(code, sizeof code, "%d", info);
    return call->host->fail(TN_E_LINALG, 0, "%s: %s%s%s%s", name, where, failure, code,
                            ending ? ending : "");
}

static tn_status lu_factor(const tn_call *call, const void *args) {
    const tn__linalg_lu_factor_args *in = args;
    cuda_factor_args a = {.a = in->LU->data, .pivots = in->pivots->data, .info = in->info->data};
    tn_status st = start(call, in->A, &a);
    if (st == TN_OK && in->A->numel == 0) return in->info->numel ? cuda_zero(call, in->info) : st;
    if (st == TN_OK) st = cuda_pack(call, in->A, a.a);
    if (st == TN_OK) st = factor(call, &a);
    if (st != TN_OK || !in->check) return st;
    return check(call, &a, in->A->ndim > 2, "torch.linalg.lu_factor", "The diagonal element ",
                 " of U is zero, and lu_solve would divide by it. linalg.lu and "
                 "linalg.lu_factor_ex give the factors in any case.");
}

static tn_status lu_permutation(const tn_call *call, const void *args) {
    static cuda_kernel *kernel = &orders[0];
    const tn__lu_permutation_args *in = args;
    cuda_factor_args a = {.order = in->out->data,
                          .rows = in->rows,
                          .least = in->pivots->shape[in->pivots->ndim - 1],
                          .op = (uint64_t)(uintptr_t)call->op->name};
    const void *pivots = NULL;
    if (in->out->numel == 0) return TN_OK;
    a.count = in->out->numel / a.rows;
    tn_status st = cuda_packed(call, in->pivots, &pivots);
    if (st == TN_OK) st = cuda_fault_of(call, &a.fault);
    a.pivots = (void *)(uintptr_t)pivots;
    return st == TN_OK ? cuda_launch(call, kernel, a.count, cuda_rows_threads(a.rows, 1), &a) : st;
}

static tn_status determinant(const tn_call *call, const tn_view *v, void *sign, void *log) {
    cuda_factor_args a = {.sign = sign, .log = log};
    tn_status st = factor_copy(call, v, &a);
    if (st != TN_OK || a.count == 0) return st;
    return cuda_launch(call, kernel_of(call, determinants), a.count, cuda_rows_threads(a.rows, 1),
                       &a);
}

static tn_status det(const tn_call *call, const void *args) {
    const tn_det_args *in = args;
    return determinant(call, in->input, in->out->data, NULL);
}

static tn_status slogdet(const tn_call *call, const void *args) {
    const tn_slogdet_args *in = args;
    return determinant(call, in->input, in->sign->data, in->logabsdet->data);
}

/* ---- Systems -----------------------------------------------------------------------------------*/

/* Solves a->b in place with the triangle of a->a. */
static tn_status solve_triangle(const tn_call *call, cuda_factor_args *a, bool upper, bool unit) {
    int64_t n = a->rows, k = a->right, blocks = (n + CUDA_FACTOR_WIDTH - 1) / CUDA_FACTOR_WIDTH;
    void *room = NULL;
    tn_status st = TN_OK;
    a->unit = unit;
    for (int64_t i = 0; i < blocks && st == TN_OK; i++) {
        a->first = (upper ? blocks - 1 - i : i) * CUDA_FACTOR_WIDTH;
        a->width = n - a->first < CUDA_FACTOR_WIDTH ? n - a->first : CUDA_FACTOR_WIDTH;
        int64_t next = a->first + a->width, begin = upper ? 0 : next, end = upper ? a->first : n;
        st = each(call, upper ? uppers : lowers, a->count * k, a);
        if (st != TN_OK || begin == end) continue;
        cuda_matrix m = {
            element(call, a->a, begin * n + a->first), end - begin, a->width, n, 1, n * n};
        cuda_matrix x = {element(call, a->b, a->first * k), a->width, k, k, 1, n * k};
        cuda_matrix rest = {element(call, a->b, begin * k), end - begin, k, k, 1, n * k};
        st = subtract(call, a->count, &m, &x, &rest, &room);
    }
    return st;
}

static tn_status solve_triangular(const tn_call *call, const void *args) {
    const tn__linalg_solve_triangular_args *in = args;
    cuda_factor_args a = {.b = in->out->data, .right = in->B->shape[in->B->ndim - 1]};
    const void *m = NULL;
    if (in->out->numel == 0) return TN_OK;
    tn_status st = start(call, in->A, &a);
    if (st == TN_OK) st = cuda_packed(call, in->A, &m);
    if (st == TN_OK) st = cuda_pack(call, in->B, in->out->data);
    a.a = (void *)(uintptr_t)m;
    return st == TN_OK ? solve_triangle(call, &a, in->upper != 0, in->unitriangular != 0) : st;
}

/* a->b out of the factors and a->from, packed, or the unit matrix. */
static tn_status solve_factors(const tn_call *call, cuda_factor_args *a) {
    void *order = NULL;
    tn_status st = room_scratch(call, room_mul(a->count, a->rows), sizeof(int64_t), &order);
    a->order = order;
    if (st == TN_OK)
        st = cuda_launch(call, kernel_of(call, orders), a->count, cuda_rows_threads(a->rows, 1), a);
    if (st == TN_OK) st = each(call, gathers, a->count * a->rows * a->right, a);
    if (st == TN_OK) st = solve_triangle(call, a, false, true);
    return st == TN_OK ? solve_triangle(call, a, true, false) : st;
}

static tn_status solve(const tn_call *call, const void *args) {
    const tn__linalg_solve_args *in = args;
    cuda_factor_args a = {.b = in->out->data, .right = in->B->shape[in->B->ndim - 1]};
    if (in->A->numel == 0) return TN_OK;
    tn_status st = factor_copy(call, in->A, &a);
    if (st == TN_OK)
        st = check(call, &a, in->A->ndim > 2, "torch.linalg.solve",
                   "The solver failed because the input matrix is singular.", NULL);
    if (st == TN_OK) st = cuda_packed(call, in->B, &a.from);
    return st == TN_OK && a.right > 0 ? solve_factors(call, &a) : st;
}

static tn_status invert(const tn_call *call, const tn_view *v, const tn_view *out, int32_t *info,
                        bool checks) {
    cuda_factor_args a = {.b = out->data, .right = v->shape[v->ndim - 1], .info = info};
    tn_status st = factor_copy(call, v, &a);
    if (st == TN_OK && checks)
        st = check(call, &a, v->ndim > 2, "linalg.inv", "The diagonal element ",
                   " is zero, the inversion could not be completed because the input matrix is "
                   "singular.");
    if (st == TN_OK) st = solve_factors(call, &a);
    return st == TN_OK ? each(call, refusals, out->numel, &a) : st;
}

static tn_status inv_ex(const tn_call *call, const void *args) {
    const tn_linalg_inv_ex_args *in = args;
    if (in->A->numel == 0) return in->info->numel ? cuda_zero(call, in->info) : TN_OK;
    return invert(call, in->A, in->inverse, in->info->data, in->check_errors != 0);
}

static tn_status inverse(const tn_call *call, const void *args) {
    const tn__inverse_args *in = args;
    return in->A->numel ? invert(call, in->A, in->out, NULL, false) : TN_OK;
}

/* Where the factors say too little, singular values are needed, which the CPU has. */
static tn_status cofactors(const tn_call *call, const void *args) {
    const tn__cofactors_args *in = args;
    cuda_factor_args a = {.right = in->A->shape[in->A->ndim - 1]};
    size_t item = (size_t)cuda_item_bytes(call->dtype);
    int64_t at = 0;
    int32_t info = 0;
    if (in->out->numel == 0) return TN_OK;
    tn_status st = factor_copy(call, in->A, &a);
    if (st == TN_OK)
        st = cuda_launch(call, kernel_of(call, conditions), a.count, cuda_rows_threads(a.rows, 1),
                         &a);
    if (st == TN_OK) st = find_failed(call, &a, &at, &info);
    if (st != TN_OK || at < a.count) return st != TN_OK ? st : TN_DECLINE;
    st = room_scratch(call, in->out->numel, item, &a.b);
    if (st == TN_OK) st = room_scratch(call, a.count, item, &a.sign);
    if (st == TN_OK)
        st = cuda_launch(call, kernel_of(call, determinants), a.count, cuda_rows_threads(a.rows, 1),
                         &a);
    if (st == TN_OK) st = solve_factors(call, &a);
    a.from = a.b;
    a.b = in->out->data;
    return st == TN_OK ? each(call, cofactor_kernels, in->out->numel, &a) : st;
}

/* ---- Cholesky ----------------------------------------------------------------------------------*/

/* What a panel leaves of the matrices behind it. */
static tn_status shrink(const tn_call *call, cuda_factor_args *a, void **room) {
    int64_t n = a->rows, next = a->first + a->width, below = n - next;
    cuda_matrix side = {element(call, a->a, next * n + a->first), below, a->width, n, 1, n * n};
    cuda_matrix rest = {element(call, a->a, next * (n + 1)), below, below, n, 1, n * n};
    cuda_matrix other = side;
    if (call->dtype == TN_C64 || call->dtype == TN_C128) {
        tn_status st = each(call, conjugates, a->count * below * a->width, a);
        if (st != TN_OK) return st;
        other = (cuda_matrix){a->b, below, a->width, a->width, 1, below * a->width};
    }
    other = cuda_gemm_turned(&other);
    return subtract(call, a->count, &side, &other, &rest, room);
}

static tn_status cholesky(const tn_call *call, const void *args) {
    const tn__linalg_cholesky_args *in = args;
    cuda_factor_args a = {.a = in->L->data, .info = in->info->data};
    bool complex = call->dtype == TN_C64 || call->dtype == TN_C128;
    void *room = NULL;
    tn_status st = start(call, in->A, &a);
    if (st == TN_OK && in->A->numel == 0) return in->info->numel ? cuda_zero(call, in->info) : st;
    if (st == TN_OK) st = cuda_pack(call, in->A, a.a);
    if (st == TN_OK && complex && a.rows > CUDA_FACTOR_WIDTH)
        st = room_scratch(call, room_mul3(a.count, a.rows, CUDA_FACTOR_WIDTH),
                          (size_t)cuda_item_bytes(call->dtype), &a.b);
    for (; a.first < a.rows && st == TN_OK; a.first += a.width) {
        int64_t left = a.rows - a.first;
        a.width = left < CUDA_FACTOR_WIDTH ? left : CUDA_FACTOR_WIDTH;
        st = cuda_launch(call, kernel_of(call, choleskys), a.count, CUDA_BLOCK, &a);
        if (st == TN_OK && left > a.width) st = shrink(call, &a, &room);
    }
    if (st == TN_OK) st = each(call, clears, in->L->numel, &a);
    if (st != TN_OK || !in->check) return st;
    return check(call, &a, in->A->ndim > 2, "linalg.cholesky",
                 "The factorization could not be completed because the input is not "
                 "positive-definite (the leading minor of order ",
                 " is not positive-definite).");
}

#define ROWS(op, fn, flags)                                                                        \
    CUDA_ROW(op, fn, TN_F32, flags), CUDA_ROW(op, fn, TN_F64, flags),                              \
        CUDA_ROW(op, fn, TN_C64, flags), CUDA_ROW(op, fn, TN_C128, flags)
static const tn_kernel_row rows[] = {
    ROWS(_linalg_lu_factor, lu_factor, 0),
    CUDA_ROW(_lu_permutation, lu_permutation, TN_I32, TN_K_CAPTURE_SAFE),
    ROWS(det, det, TN_K_CAPTURE_SAFE),
    ROWS(slogdet, slogdet, TN_K_CAPTURE_SAFE),
    ROWS(_cofactors, cofactors, 0),
    ROWS(_linalg_solve, solve, 0),
    ROWS(_linalg_solve_triangular, solve_triangular, TN_K_CAPTURE_SAFE),
    ROWS(linalg_inv_ex, inv_ex, 0),
    ROWS(_inverse, inverse, TN_K_CAPTURE_SAFE),
    ROWS(_linalg_cholesky, cholesky, 0),
};
const cuda_rows cuda_factor_rows = CUDA_ROWS_OF(rows);
