/* lapack_general_tmpl.c: LU and LDL factors, reflections, eigenvalues and exponentials of matrices.
 *
 * LU factors and eigenvectors go through transposed copies. The exponential is that of the transpose
 * to LAPACK, transposed, and moves nothing: a quotient of two polynomials of degree 13 of the matrix
 * divided by a power of two, squared as often.
 *
 * family: lapack_general; types: f32 f64 c64 c128; isa: each; fused */
#include <tenon/args_eigen.h>
#include <tenon/args_linalg.h>

#include "lapack_tmpl.h"

#if TMPL_IS_COMPLEX
void LAPACK(geev)(const char *jobvl, const char *jobvr, const int *n, T *a, const int *lda, T *w,
                  T *vl, const int *ldvl, T *vr, const int *ldvr, T *work, const int *lwork,
                  R *rwork, int *info, size_t, size_t);
#else
void LAPACK(geev)(const char *jobvl, const char *jobvr, const int *n, T *a, const int *lda, T *wr,
                  T *wi, T *vl, const int *ldvl, T *vr, const int *ldvr, T *work, const int *lwork,
                  int *info, size_t, size_t);
#endif

void LAPACK(geqrf)(const int *m, const int *n, T *a, const int *lda, T *tau, T *work,
                   const int *lwork, int *info);
void LAPACK(sytrf)(const char *uplo, const int *n, T *a, const int *lda, int *pivots, T *work,
                   const int *lwork, int *info, size_t);
void LAPACK(sytrs)(const char *uplo, const int *n, const int *nrhs, const T *a, const int *lda,
                   const int *pivots, T *b, const int *ldb, int *info, size_t);
#if TMPL_IS_COMPLEX
void LAPACK(hetrf)(const char *uplo, const int *n, T *a, const int *lda, int *pivots, T *work,
                   const int *lwork, int *info, size_t);
void LAPACK(hetrs)(const char *uplo, const int *n, const int *nrhs, const T *a, const int *lda,
                   const int *pivots, T *b, const int *ldb, int *info, size_t);
#else
#define hetrf sytrf
#define hetrs sytrs
#endif

/* ---- LU ----------------------------------------------------------------------------------------*/

static int lu_of(const job *j, int64_t i, char *room) {
    int m = j->m, n = j->n, info = 0;
    T *w = (T *)(void *)room;
    transpose(j->a + i * area(m, n), m, n, w);
    if (m == n && n <= TINY_LU) {
        info = tiny_lu(n, w, j->pivots + i * n);
    } else {
        LAPACK(getrf)(&m, &n, w, &m, j->pivots + i * least(m, n), &info);
    }
    transpose(w, n, m, j->out[0] + i * area(m, n));
    return info;
}

static tn_status lu_factor(const tn_call *call, const void *args) {
    const tn__linalg_lu_factor_args *a = args;
    int32_t *codes = a->info->data;
    job j = {.one = lu_of,
             .name = "torch.linalg.lu_factor",
             .pivots = a->pivots->data,
             .out = {a->LU->data}};
    tn_status st = prepare(call, &j, a->A, NULL);
    if (a->check) {
        j.failure = "The diagonal element ";
        j.ending = " of U is zero, and lu_solve would divide by it. linalg.lu and "
                   "linalg.lu_factor_ex give the factors in any case.";
    }
    if (!st && a->LU->numel > 0) st = run(call, &j, bytes(area(j.m, j.n)), a->A->ndim > 2);
    for (int64_t i = 0; !st && i < j.batch; i++) codes[i] = j.info ? j.info[i] : 0;
    return st;
}

/* ---- QR, not unpacked --------------------------------------------------------------------------*/

static int reflections_of(const job *j, int64_t i, char *room) {
    int m = j->m, n = j->n, info = 0;
    T *w = (T *)(void *)room, *work = w + area(m, n);
    transpose(j->a + i * area(m, n), m, n, w);
    LAPACK(geqrf)(&m, &n, w, &m, j->out[1] + i * least(m, n), work, &j->lwork, &info);
    transpose(w, n, m, j->out[0] + i * area(m, n));
    return info;
}

static tn_status reflections(const tn_call *call, const void *args) {
    const tn_geqrf_args *a = args;
    job j = {.one = reflections_of, .name = "torch.geqrf", .out = {a->a->data, a->tau->data}};
    tn_status st = prepare(call, &j, a->input, NULL);
    if (st || a->input->numel == 0) return st;
    int query = -1, info;
    T answer = 0;
    LAPACK(geqrf)(&j.m, &j.n, NULL, &j.m, NULL, &answer, &query, &info);
    j.lwork = elements(answer);
    return run(call, &j, bytes(area(j.m, j.n)), false);
}

/* ---- LDL ---------------------------------------------------------------------------------------*/

/* `full`: of Hermitian matrices. The other triangle of the result is zero. */
static int ldl_of(const job *j, int64_t i, char *room) {
    int n = j->n, info = 0;
    T *w = (T *)(void *)room, *work = w + area(n, n), *out = j->out[0] + i * area(n, n);
    transpose(j->a + i * area(n, n), n, n, w);
    if (j->full) {
        LAPACK(hetrf)("L", &n, w, &n, j->pivots + i * n, work, &j->lwork, &info, 1);
    } else {
        LAPACK(sytrf)("L", &n, w, &n, j->pivots + i * n, work, &j->lwork, &info, 1);
    }
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < n; c++) out[r * n + c] = c > r ? 0 : w[c * n + r];
    }
    return info;
}

static tn_status ldl_factor(const tn_call *call, const void *args) {
    const tn__linalg_ldl_factor_args *a = args;
    int32_t *codes = a->info->data;
    job j = {.one = ldl_of,
             .name = "torch.linalg.ldl_factor",
             .full = a->hermitian != 0,
             .pivots = a->pivots->data,
             .out = {a->LD->data}};
    tn_status st = prepare(call, &j, a->A, NULL);
    if (a->check) {
        j.failure = "The diagonal element ";
        j.ending = " of D is zero, and ldl_solve would divide by it. ldl_factor_ex gives the "
                   "factors in any case.";
    }
    j.lwork = 64 * most(j.n, 1);
    if (!st && a->LD->numel > 0) st = run(call, &j, bytes(area(j.n, j.n)), a->A->ndim > 2);
    for (int64_t i = 0; !st && i < j.batch; i++) codes[i] = j.info ? j.info[i] : 0;
    return st;
}

static int ldl_solution_of(const job *j, int64_t i, char *room) {
    int n = j->n, k = j->k, info = 0;
    T *w = (T *)(void *)room, *b = w + area(n, n);
    transpose(j->a + i * area(n, n), n, n, w);
    transpose(j->b + i * area(n, k), n, k, b);
    if (j->full) {
        LAPACK(hetrs)("L", &n, &k, w, &n, j->pivots + i * n, b, &n, &info, 1);
    } else {
        LAPACK(sytrs)("L", &n, &k, w, &n, j->pivots + i * n, b, &n, &info, 1);
    }
    transpose(b, k, n, j->out[0] + i * area(n, k));
    return info;
}

/* LAPACK takes pivots at their word: blocks of two rows have equal negative ones. */
static bool are_pivots(const int *p, int n) {
    for (int r = 0; r<n; r += p[r]> 0 ? 1 : 2) {
        int64_t row = p[r] < 0 ? -(int64_t)p[r] : p[r];
        if (row < 1 || row > n || (p[r] < 0 && (r + 1 == n || p[r + 1] != p[r]))) return false;
    }
    return true;
}

static tn_status ldl_solve(const tn_call *call, const void *args) {
    const tn__linalg_ldl_solve_args *a = args;
    job j = {.one = ldl_solution_of,
             .name = "torch.linalg.ldl_solve",
             .full = a->hermitian != 0,
             .out = {a->out->data}};
    const void *pivots = NULL;
    tn_status st = prepare(call, &j, a->LD, a->B);
    if (!st) st = cpu_packed(call, a->pivots, &pivots);
    for (int64_t i = 0; !st && i < j.batch && j.n > 0; i++) {
        if (!are_pivots((const int *)pivots + i * j.n, j.n))
            return call->host->fail(TN_E_STATE, 1, "%s: pivots are not those of ldl_factor",
                                    j.name);
    }
    if (st || a->out->numel == 0) return st;
    j.pivots = (int *)(uintptr_t)pivots; /* are read */
    return run(call, &j, bytes(area(j.n, j.n) + area(j.n, j.k)), false);
}

/* ---- Eigenvalues -------------------------------------------------------------------------------*/

/* Results are pairs of real numbers. Of real matrices LAPACK gives a vector's real parts in one column
 * and its imaginary parts in the next, where the next value is its conjugate. */
static int eig_of(const job *j, int64_t i, char *room) {
    int n = j->n, info = 0, one = 1;
    T *a = (T *)(void *)room, *v = a + area(n, n), *work = v + (j->second ? area(n, n) : 0);
    R *rest = (R *)(void *)(work + j->lwork), *values = j->real + 2 * i * n;
    if (!finite(j->a + i * area(n, n), area(n, n))) return NOT_FINITE;
    transpose(j->a + i * area(n, n), n, n, a);
#if TMPL_IS_COMPLEX
    LAPACK(geev)
    ("N", j->vectors, &n, a, &n, (T *)(void *)values, NULL, &one, v, &n, work, &j->lwork, rest,
     &info, 1, 1);
    if (j->second) transpose(v, n, n, (T *)(void *)(j->second + 2 * i * area(n, n)));
#else
    R *im = rest + n;
    LAPACK(geev)
    ("N", j->vectors, &n, a, &n, rest, im, NULL, &one, v, &n, work, &j->lwork, &info, 1, 1);
    for (int64_t c = 0; c < n; c++) {
        values[2 * c] = rest[c];
        values[2 * c + 1] = im[c];
    }
    for (int64_t c = 0; j->second && c < n; c++) {
        bool first = im[c] > 0, second = im[c] < 0;
        const T *x = v + (c - second) * n, *y = x + n;
        for (int64_t r = 0; r < n; r++) {
            R *to = j->second + 2 * (i * area(n, n) + r * n + c);
            to[0] = x[r];
            to[1] = first ? y[r] : second ? -y[r] : 0;
        }
    }
#endif
    return info;
}

static int geev_work(int n, const char *vectors) {
    int query = -1, info, one = 1;
    T answer = 0;
#if TMPL_IS_COMPLEX
    R reals = 0; /* is written to */
    LAPACK(geev)
    ("N", vectors, &n, NULL, &n, NULL, NULL, &one, NULL, &n, &answer, &query, &reals, &info, 1, 1);
#else
    LAPACK(geev)
    ("N", vectors, &n, NULL, &n, NULL, NULL, NULL, &one, NULL, &n, &answer, &query, &info, 1, 1);
#endif
    return elements(answer);
}

static tn_status eig_job(const tn_call *call, const tn_view *x, job *j) {
    tn_status st = prepare(call, j, x, NULL);
    if (st || x->numel == 0) return st;
    j->failure = "The eigenvalues did not converge (error code: ";
    j->ending = ").";
    j->lwork = geev_work(j->n, j->vectors);
    j->lrwork = 2 * j->n;
    return run(call, j, bytes((j->second ? 2 : 1) * area(j->n, j->n)), x->ndim > 2);
}

static tn_status eig(const tn_call *call, const void *args) {
    const tn__linalg_eig_args *a = args;
    job j = {.one = eig_of,
             .name = "linalg.eig",
             .vectors = "V",
             .real = a->eigenvalues->data,
             .second = a->eigenvectors->data};
    return eig_job(call, a->A, &j);
}

static tn_status eigvals(const tn_call *call, const void *args) {
    const tn__linalg_eigvals_args *a = args;
    job j = {.one = eig_of, .name = "linalg.eigvals", .vectors = "N", .real = a->out->data};
    return eig_job(call, a->A, &j);
}

/* ---- Exponential -------------------------------------------------------------------------------*/

/* Coefficients of Pade's quotient of degree 13, and the largest norm for which it is exact to the last
 * bit of a double (Higham 2005). */
static const double PADE[14] = {64764752532480000.,
                                32382376266240000.,
                                7771770303897600.,
                                1187353796428800.,
                                129060195264000.,
                                10559470521600.,
                                670442572800.,
                                33522128640.,
                                1323241920.,
                                40840800.,
                                960960.,
                                16380.,
                                182.,
                                1.};
static const double PADE_NORM = 5.371920351148152;

/* Up to this size a call of the BLAS costs more than the product. */
enum { SMALL = 8 };

static void multiply_small(const T *x, const T *y, int n, T *to) {
    for (int r = 0; r < n; r++) {
        T sum[SMALL] = {0};
        for (int k = 0; k < n; k++)
            for (int c = 0; c < n; c++) sum[c] += x[r * n + k] * y[k * n + c];
        memcpy(to + r * n, sum, (size_t)n * sizeof(T));
    }
}

/* to = x y, by so many rows that each product takes some milliseconds; false: stopped. */
static bool multiply(const T *x, const T *y, int n, T *to) {
    T one = 1, zero = 0;
    int64_t rows = 1 + (INT64_C(1) << 26) / area(n, n);
    if (n <= SMALL) {
        multiply_small(x, y, n, to);
        return true;
    }
    for (int64_t r = 0; r < n; r += rows) {
        int m = (int)(n - r < rows ? n - r : rows);
        if (r > 0 && cpu_poll() != TN_OK) return false;
        GEMM(BLAS_ROWS, BLAS_PLAIN, BLAS_PLAIN, m, n, n, FACTOR(one), x + r * n, n, y, n,
             FACTOR(zero), to + r * n, n);
    }
    return n < 128 || cpu_poll() == TN_OK;
}

static void solve_small(T *a, int n, T *b) {
    for (int c = 0; c < n; c++) {
        int p = c;
        for (int r = c + 1; r < n; r++) p = size_of(a[r * n + c]) > size_of(a[p * n + c]) ? r : p;
        for (int k = 0; k < n && p != c; k++) {
            T t = a[c * n + k], u = b[c * n + k];
            a[c * n + k] = a[p * n + k];
            b[c * n + k] = b[p * n + k];
            a[p * n + k] = t;
            b[p * n + k] = u;
        }
        for (int r = c + 1; r < n; r++) {
            T f = a[r * n + c] / a[c * n + c];
            for (int k = c + 1; k < n; k++) a[r * n + k] -= f * a[c * n + k];
            for (int k = 0; k < n; k++) b[r * n + k] -= f * b[c * n + k];
        }
    }
    for (int r = n - 1; r >= 0; r--) {
        for (int c = r + 1; c < n; c++)
            for (int k = 0; k < n; k++) b[r * n + k] -= a[r * n + c] * b[c * n + k];
        for (int k = 0; k < n; k++) b[r * n + k] /= a[r * n + r];
    }
}

/* b = a^-1 b, where the two commute; a is lost. False: stopped. */
static bool solve_in(T *a, int n, int *pivots, T *b) {
    int info = 0, step = 1 + (int)((INT64_C(1) << 26) / area(n, n));
    if (n <= SMALL) {
        solve_small(a, n, b);
        return true;
    }
    LAPACK(getrf)(&n, &n, a, &n, pivots, &info);
    for (int c = 0; c < n; c += step) {
        int columns = least(step, n - c);
        if (c > 0 && cpu_poll() != TN_OK) return false;
        LAPACK(getrs)("N", &n, &columns, a, &n, pivots, b + area(c, n), &n, &info, 1);
    }
    return true;
}

/* to = c[6] a6 + c[4] a4 + c[2] a2, + c[0] where that is added to the diagonal. */
static void combine(const double *c, const T *a2, int n, bool diagonal, T *to) {
    int64_t size = area(n, n);
    const T *a4 = a2 + size, *a6 = a4 + size;
    for (int64_t e = 0; e < size; e++) {
        T sum = (R)c[6] * a6[e] + (R)c[4] * a4[e] + (R)c[2] * a2[e];
        to[e] = diagonal && e % (n + 1) == 0 ? sum + (R)c[0] : sum;
    }
}

static double norm_of(const T *a, int n) {
    double largest = 0;
    for (int64_t r = 0; r < n; r++) {
        double sum = 0;
        for (int64_t c = 0; c < n; c++) sum += (double)size_of(a[r * n + c]);
        largest = sum > largest || sum != sum ? sum : largest;
    }
    return largest;
}

static int exponential_of(const job *j, int64_t i, char *room) {
    int n = j->n, times = 0;
    int64_t size = area(n, n);
    int *pivots = (int *)(void *)room;
    T *a = (T *)(void *)(room + 8 * (size_t)n), *a2 = a + size, *a4 = a2 + size, *a6 = a4 + size;
    T *odd = a6 + size, *even = odd + size, *out = j->out[0] + i * size;
    const T *from = j->a + i * size;
    double norm = norm_of(from, n);
    if (!isfinite(norm)) {
        for (int64_t e = 0; e < size; e++) out[e] = (T)NAN;
        return 0;
    }
    if (norm > PADE_NORM) frexp(norm / PADE_NORM, &times);
    for (int64_t e = 0; e < size; e++) a[e] = from[e] * (R)ldexp(1.0, -times);
    if (!multiply(a, a, n, a2) || !multiply(a2, a2, n, a4) || !multiply(a4, a2, n, a6))
        return STOPPED;
    combine(PADE + 7, a2, n, false, out); /* of degrees 13, 11, 9 */
    if (!multiply(a6, out, n, even)) return STOPPED;
    combine(PADE + 1, a2, n, true, out);
    for (int64_t e = 0; e < size; e++) even[e] += out[e];
    if (!multiply(a, even, n, odd)) return STOPPED;
    combine(PADE + 6, a2, n, false, out); /* of degrees 12, 10, 8 */
    if (!multiply(a6, out, n, even)) return STOPPED;
    combine(PADE, a2, n, true, out);
    for (int64_t e = 0; e < size; e++) {
        T plus = even[e] + out[e];
        out[e] = plus + odd[e];
        even[e] = plus - odd[e];
    }
    if (!solve_in(even, n, pivots, out)) return STOPPED;
    for (int t = 0; t < times; t++) {
        memcpy(a, out, (size_t)size * sizeof(T));
        if (!multiply(a, a, n, out)) return STOPPED;
        if (memcmp(a, out, (size_t)size * sizeof(T)) == 0) break; /* for good: 0, 1 or no number */
    }
    return 0;
}

static tn_status matrix_exp(const tn_call *call, const void *args) {
    const tn_matrix_exp_args *a = args;
    job j = {.one = exponential_of, .name = "linalg.matrix_exp", .out = {a->out->data}};
    tn_status st = prepare(call, &j, a->input, NULL);
    if (st || a->input->numel == 0) return st;
    return run(call, &j, 8 * (int64_t)j.n + bytes(6 * area(j.n, j.n)), false);
}

static const tn_kernel_row rows[] = {
    ROW(_linalg_lu_factor, lu_factor), ROW(geqrf, reflections), ROW(_linalg_ldl_factor, ldl_factor),
    ROW(_linalg_ldl_solve, ldl_solve), ROW(_linalg_eig, eig),   ROW(_linalg_eigvals, eigvals),
    ROW(matrix_exp, matrix_exp),
};
const cpu_rows TN_(cpu_lapack_general_rows) = CPU_ROWS_OF(rows);
