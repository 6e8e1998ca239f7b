/* sparse_tmpl.c: products of a matrix in compressed rows with a packed one, and the products of two
 * packed matrices at the places of such a one.
 *
 * A row of the result is summed in registers, some vectors at a time, in the order of the row's
 * elements: the same bits with any number of threads. Indices are memory that others can change, so each
 * is compared with the sizes where it is used. The limit is reading the rows of the dense matrix.
 *
 * family: sparse; types: float; isa: each; fused */
#include <tenon/args_sparse.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"
#include "vec.h"

enum { BLOCKS = 4 }; /* vectors of a row whose sums are in registers at a time */

typedef struct job {
    int64_t nnz, inner, width; /* elements, rows of the dense matrix, its columns */
    const int64_t *start, *column;
    const T *values;
    const T *from, *other; /* (inner, width); of products at places also (rows, width) */
    T *to;
    const tn_call *call;
} job;

static tn_status fail_index(const job *j, int64_t index) {
    return j->call->host->fail(TN_E_INDEX, 1,
                               "index %lld is out of range for a dimension of size %lld",
                               (long long)index, (long long)j->inner);
}

/* The elements of a row, or a failure. */
static tn_status range_of(const job *j, int64_t row, int64_t *ret_first, int64_t *ret_last) {
    *ret_first = j->start[row];
    *ret_last = j->start[row + 1];
    if (*ret_first >= 0 && *ret_first <= *ret_last && *ret_last <= j->nnz) return TN_OK;
    return j->call->host->fail(TN_E_INDEX, 0, "compressed indices must rise from 0 to %lld",
                               (long long)j->nnz);
}

static inline bool outside(const job *j, int64_t column) {
    return (uint64_t)column >= (uint64_t)j->inner;
}

/* `blocks` vectors of a row of the result, from column k on. */
TMPL_INLINE void multiply_block(const job *j, int64_t first, int64_t last, int64_t k, int blocks,
                                T *to) {
    vec sum[BLOCKS] = {{0}};
    for (int64_t p = first; p < last; p++) {
        const T *from = j->from + j->column[p] * j->width + k;
        vec v = vec_all(LOAD(j->values[p]));
        TMPL_UNROLL
        for (int b = 0; b < blocks; b++) sum[b] += v * vec_load_t(from + b * VL);
    }
    TMPL_UNROLL
    for (int b = 0; b < blocks; b++) vec_store_t(to + k + b * VL, sum[b]);
}

/* The same for the n columns that are left, fewer than a vector has. */
static void multiply_rest(const job *j, int64_t first, int64_t last, int64_t k, int64_t n, T *to) {
    vec sum = {0};
    for (int64_t p = first; p < last; p++) {
        const T *from = j->from + j->column[p] * j->width + k;
        sum += vec_all(LOAD(j->values[p])) * vec_load_t_n(from, n, 0);
    }
    vec_store_t_n(to + k, sum, n);
}

static tn_status multiply_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t r = begin; r < end; r++) {
        int64_t first, last, k = 0;
        tn_status st = range_of(j, r, &first, &last);
        if (st) return st;
        for (int64_t p = first; p < last; p++)
            if (outside(j, j->column[p])) return fail_index(j, j->column[p]);
        T *to = j->to + r * j->width;
        for (; k + BLOCKS * VL <= j->width; k += BLOCKS * VL)
            multiply_block(j, first, last, k, BLOCKS, to);
        for (; k + VL <= j->width; k += VL) multiply_block(j, first, last, k, 1, to);
        if (k < j->width) multiply_rest(j, first, last, k, j->width - k, to);
    }
    return TN_OK;
}

static tn_status dot_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t r = begin; r < end; r++) {
        int64_t first, last;
        tn_status st = range_of(j, r, &first, &last);
        if (st) return st;
        const T *a = j->other + r * j->width;
        for (int64_t p = first; p < last; p++) {
            if (outside(j, j->column[p])) return fail_index(j, j->column[p]);
            const T *b = j->from + j->column[p] * j->width;
            A part[8] = {0}, sum = 0;
            int64_t k = 0;
            for (; k + 8 <= j->width; k += 8)
                for (int i = 0; i < 8; i++) part[i] += LOAD(a[k + i]) * LOAD(b[k + i]);
            for (; k < j->width; k++) sum += LOAD(a[k]) * LOAD(b[k]);
            for (int i = 0; i < 8; i++) sum += part[i];
            j->to[p] = STORE(sum);
        }
    }
    return TN_OK;
}

static tn_status read_pattern(const tn_call *call, const tn_view *index, const tn_view *plain,
                              job *j) {
    const void *start, *column;
    tn_status st = cpu_packed(call, index, &start);
    if (!st) st = cpu_packed(call, plain, &column);
    if (st) return st;
    j->start = start;
    j->column = column;
    j->nnz = plain->numel;
    j->call = call;
    return TN_OK;
}

/* Rows that are worth a thread's while. */
static int64_t grain(const job *j, int64_t rows) {
    int64_t each = rows ? j->nnz / rows + 1 : 1;
    return 1 + 32768 / (each * (j->width + 1) + 1);
}

static tn_status spmm(const tn_call *call, const void *args) {
    const tn__spmm_args *a = args;
    const void *values, *from;
    int64_t rows = a->out->shape[0];
    job j = {.inner = a->dense->shape[0], .width = a->dense->shape[1], .to = a->out->data};
    tn_status st = read_pattern(call, a->index, a->plain, &j);
    if (!st) st = cpu_packed(call, a->values, &values);
    if (!st) st = cpu_packed(call, a->dense, &from);
    if (st) return st;
    j.values = values;
    j.from = from;
    return cpu_parallel(rows, grain(&j, rows), multiply_rows, &j);
}

static tn_status sddmm(const tn_call *call, const void *args) {
    const tn__sddmm_args *a = args;
    const void *other, *from;
    int64_t rows = a->left->shape[0];
    job j = {.inner = a->right->shape[0], .width = a->right->shape[1], .to = a->out->data};
    tn_status st = read_pattern(call, a->index, a->plain, &j);
    if (!st) st = cpu_packed(call, a->left, &other);
    if (!st) st = cpu_packed(call, a->right, &from);
    if (st) return st;
    j.other = other;
    j.from = from;
    memset(a->out->data, 0, (size_t)a->out->numel * sizeof(T)); /* what no row holds */
    return cpu_parallel(rows, grain(&j, rows), dot_rows, &j);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_spmm, spmm),
    ROW(_sddmm, sddmm),
};
const cpu_rows TN_(cpu_sparse_rows) = CPU_ROWS_OF(rows);
