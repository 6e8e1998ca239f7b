/* lapack_tmpl.h: what files that call LAPACK share: names of its routines by element type, one job for a
 * batch of matrices, and running it. One item of work is one matrix; its LAPACK result code is kept,
 * and the first failure is reported after all are done, so that what is reported does not depend on
 * the number of threads. */
#ifndef TENON_CPU_LAPACK_TMPL_H
#define TENON_CPU_LAPACK_TMPL_H

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/tmpl.h"

#include "blas.h"
#include "copy.h"
#include "cpu_priv.h"
#include "pack.h"

/* LAPACK(getrf) is scipy_dgetrf_ or sgetrf_: a Fortran procedure, where every argument is an
 * address and the lengths of texts come last. */
#if TMPL_DTYPE == TMPL_F32
#define LAPACK(name) BLAS(TMPL_JOIN_(s, name, _))
#define TRSM BLAS(cblas_strsm)
#define GEMM BLAS(cblas_sgemm)
#elif TMPL_DTYPE == TMPL_F64
#define LAPACK(name) BLAS(TMPL_JOIN_(d, name, _))
#define TRSM BLAS(cblas_dtrsm)
#define GEMM BLAS(cblas_dgemm)
#elif TMPL_DTYPE == TMPL_C64
#define LAPACK(name) BLAS(TMPL_JOIN_(c, name, _))
#define TRSM BLAS(cblas_ctrsm)
#define GEMM BLAS(cblas_cgemm)
#else
#define LAPACK(name) BLAS(TMPL_JOIN_(z, name, _))
#define TRSM BLAS(cblas_ztrsm)
#define GEMM BLAS(cblas_zgemm)
#endif
#define TMPL_JOIN_(a, b, c) a##b##c
#define EPSILON (sizeof(R) == 4 ? 1.1920929e-07 : 2.220446049250313e-16)

/* Where the names and arguments of complex routines differ from those of real ones. */
#if TMPL_IS_COMPLEX
#define orgqr ungqr
#define syevd heevd
#define COMPLEX_ONLY(...) __VA_ARGS__,
#define FACTOR(x) &(x) /* CBLAS takes a complex factor by address */
typedef const void *factor;
static inline R re(T z) { return (R)TMPL_BUILTIN(creal)(z); }
static inline T conjugate(T z) { return (T)TMPL_BUILTIN(conj)(z); }
static inline R size_of(T z) { return (R)hypot(TMPL_BUILTIN(creal)(z), TMPL_BUILTIN(cimag)(z)); }
#else
#define COMPLEX_ONLY(...)
#define FACTOR(x) (x)
typedef T factor;
static inline R re(T x) { return x; }
static inline T conjugate(T x) { return x; }
static inline R size_of(T x) { return x < 0 ? -x : x; }
#endif

void LAPACK(getrf)(const int *m, const int *n, T *a, const int *lda, int *pivots, int *info);
void LAPACK(getrs)(const char *trans, const int *n, const int *nrhs, const T *a, const int *lda,
                   const int *pivots, T *b, const int *ldb, int *info, size_t);

/* Squares of sizes and a few of them together are counted in LAPACK's int. */
enum { LARGEST = 20000 };

typedef struct job job;
struct job {
    int (*one)(const job *j, int64_t i, char *room); /* factors matrix i, returns LAPACK's info */
    const char *failure; /* what a result code means; NULL: never an error */
    const char *ending;  /* what follows the code in the message; NULL: it has none */
    const char *name;
    const char *vectors; /* LAPACK's word for which of them are computed */
    int64_t batch;
    int m, n, k; /* a is (m, n); k: columns of b */
    const T *a, *b;
    T *out[3];
    R *real, *second; /* results that are real, or pairs of real numbers, in any case */
    int *pivots;
    int64_t *rank;
    R rcond;
    bool upper, unit, full;
    int lwork;     /* elements */
    int lrwork;    /* real ones behind them, of complex routines */
    uint64_t room; /* bytes of one thread's workspace */
    int *info;     /* by matrix */
};

/* info of a matrix with an infinity or a NaN, which LAPACK must not see: it may not return. */
#define NOT_FINITE INT_MAX
/* info of a matrix at which the call is to stop. */
#define STOPPED INT_MIN

static inline int least(int a, int b) { return a < b ? a : b; }
static inline int most(int a, int b) { return a > b ? a : b; }
static inline int64_t most64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t area(int m, int n) { return (int64_t)m * n; }

/* to (n, m) = transpose of from (m, n), both row-major. */
static inline void transpose(const T *from, int m, int n, T *to) {
    const int64_t item = sizeof(T);
    cpu_gather_tile(to, m * item, from, n * item, n, m, sizeof(T));
}

static inline bool finite(const T *from, int64_t n) {
    const R *x = (const void *)from;
    bool yes = true;
    for (int64_t i = 0; i < n * (int64_t)(sizeof(T) / sizeof(R)); i++) yes &= isfinite(x[i]) != 0;
    return yes;
}

static inline void identity(T *x, int n) {
    for (int64_t i = 0; i < area(n, n); i++) x[i] = i % (n + 1) == 0;
}

/* ---- Small matrices ----------------------------------------------------------------------------
 * LAPACK's calls take longer than their work there. A matrix is in columns, as LAPACK has it. */

enum { TINY = TMPL_IS_COMPLEX ? 0 : 8, TINY_LU = TMPL_IS_COMPLEX ? 0 : 16 };

/* Each product is subtracted unrounded (`fused`, where the processor can), which OpenBLAS does not:
 * the last pivots of a matrix that is all but singular would be whole numbers of the smallest place
 * of what they come from, and often exactly zero.
 *
 * As getrf: rows change places so that the largest of a column divides it; returns its info. */
static inline int tiny_lu(int n, T *a, int *pivots) {
    int info = 0;
    for (int k = 0; k < n; k++) {
        T *column = a + k * n;
        int p = k;
        for (int r = k + 1; r < n; r++) p = size_of(column[r]) > size_of(column[p]) ? r : p;
        pivots[k] = p + 1;
        if (column[p] == 0) {
            info = info ? info : k + 1;
            continue;
        }
        for (int c = 0; p != k && c < n; c++) {
            T one = a[c * n + k];
            a[c * n + k] = a[c * n + p];
            a[c * n + p] = one;
        }
        for (int r = k + 1; r < n; r++) column[r] /= column[k];
        for (int c = k + 1; c < n; c++) {
            T times = a[c * n + k];
            for (int r = k + 1; r < n; r++) a[c * n + r] -= times * column[r];
        }
    }
    return info;
}

static inline void change_rows(T *b, int k, int one, int other) {
    T *row = b + (int64_t)one * k, *from = b + (int64_t)other * k;
    for (int c = 0; row != from && c < k; c++) {
        T kept = row[c];
        row[c] = from[c];
        from[c] = kept;
    }
}

/* Rows of b, of k elements, change back the places that pivots had them change. */
static inline void rows_back(int n, const int *pivots, T *b, int k) {
    for (int r = n - 1; r >= 0; r--) change_rows(b, k, r, pivots[r] - 1);
}

/* Solves with what tiny_lu took, for k right sides that are columns of b, which has its rows one
 * after the other. */
static inline void tiny_solve(int n, const T *lu, const int *pivots, T *b, int k) {
    for (int r = 0; r < n; r++) change_rows(b, k, r, pivots[r] - 1);
    for (int r = 1; r < n; r++) {
        T *row = b + (int64_t)r * k;
        for (int i = 0; i < r; i++) {
            const T *other = b + (int64_t)i * k, times = lu[i * n + r];
            for (int c = 0; c < k; c++) row[c] -= times * other[c];
        }
    }
    for (int r = n - 1; r >= 0; r--) {
        T *row = b + (int64_t)r * k;
        for (int i = r + 1; i < n; i++) {
            const T *other = b + (int64_t)i * k, times = lu[i * n + r];
            for (int c = 0; c < k; c++) row[c] -= times * other[c];
        }
        for (int c = 0; c < k; c++) row[c] /= lu[r * n + r];
    }
}

/* The lower factor of a symmetric matrix in rows, in place; the order of the leading minor that is
 * not positive, or 0. */
static inline int tiny_cholesky(int n, T *a) {
    for (int r = 0; r < n; r++) {
        T *row = a + r * n;
        for (int c = 0; c <= r; c++) {
            const T *other = a + c * n;
            T sum = row[c];
            for (int k = 0; k < c; k++) sum -= row[k] * other[k];
            if (c < r) {
                row[c] = sum / other[c];
                continue;
            }
            row[c] = sum;
            if (!(re(sum) > 0)) return r + 1;
            row[c] = (T)sqrt((double)re(sum));
        }
    }
    return 0;
}

/* ---- Running over the batch --------------------------------------------------------------------*/

static inline tn_status some(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    char *room = malloc((size_t)j->room + 1);
    if (!room) return cpu_host->fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = cpu_blas_enter();
    if (st != TN_OK) {
        free(room);
        return st;
    }
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        j->info[i] = j->one(j, i, room);
        st = j->info[i] == STOPPED ? TN_E_INTERRUPTED : cpu_poll();
    }
    cpu_blas_leave();
    free(room);
    return st;
}

static inline tn_status report(const job *j, int64_t i, bool batched) {
    char where[48] = "";
    if (batched) snprintf(where, sizeof where, "(Batch element %lld): ", (long long)i);
    if (j->info[i] == NOT_FINITE) {
        return cpu_host->fail(TN_E_LINALG, 0,
                              "%s: %sThe algorithm failed to converge because the input matrix "
                              "contained non-finite values.",
                              j->name, where);
    }
    char code[16] = "";
    if (j->ending) snprintf(code, sizeof code, "%d", j->info[i]);
    return cpu_host->fail(TN_E_LINALG, 0, "%s: %s%s%s%s", j->name, where, j->failure, code,
                          j->ending ? j->ending : "");
}

/* Fills in sizes and packed operands; b may be NULL. */
static inline tn_status prepare(const tn_call *call, job *j, const tn_view *a, const tn_view *b) {
    const int64_t *size = a->shape + a->ndim - 2;
    const void *p;
    int64_t k = b ? b->shape[b->ndim - 1] : 0;
    if (size[0] > LARGEST || size[1] > LARGEST || k > LARGEST) {
        return call->host->fail(TN_E_UNSUPPORTED, 0,
                                "%s: no more than %d rows or columns are supported", j->name,
                                (int)LARGEST);
    }
    j->m = (int)size[0];
    j->n = (int)size[1];
    j->k = (int)k;
    j->batch = 1;
    for (int32_t d = 0; d + 2 < a->ndim; d++) j->batch *= a->shape[d];
    tn_status st = cpu_packed(call, a, &p);
    j->a = p;
    if (!st && b) {
        st = cpu_packed(call, b, &p);
        j->b = p;
    }
    return st;
}

/* `room`: bytes of workspace besides j->lwork elements. Matrices that are empty never come here. */
static inline tn_status run(const tn_call *call, job *j, int64_t room, bool batched) {
    void *info;
    j->room = (uint64_t)room + (uint64_t)j->lwork * sizeof(T) + (uint64_t)j->lrwork * sizeof(R);
    tn_status st = room_scratch(call, j->batch + 1, sizeof(int), &info);
    if (st || j->batch == 0) return st;
    j->info = info;
    int64_t cost = area(j->m, j->n) * least(j->m, j->n);
    st = cpu_parallel(j->batch, 1 + 16384 / (cost + 1), some, j);
    for (int64_t i = 0; st == TN_OK && j->failure && i < j->batch; i++) {
        if (j->info[i] != 0) st = report(j, i, batched);
    }
    return st;
}

/* What a workspace query answered, safe from the rounding of a float. */
static inline int elements(T answer) {
    double n = (double)re(answer) * 1.0001 + 64.0;
    return n < (double)INT_MAX ? (int)n : INT_MAX;
}

static inline int64_t bytes(int64_t n) { return n * (int64_t)sizeof(T); }

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, 0, 0 }
#endif
