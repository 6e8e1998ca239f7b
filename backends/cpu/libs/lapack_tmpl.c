/* lapack_tmpl.c: factorisations of batches of matrices with LAPACK, for float or double, real or
 * complex.
 *
 * LAPACK is column-major, so a packed row-major matrix is its own transpose to it. Where the
 * factorisation of the transpose serves as well (inverse, Cholesky, singular values) nothing is
 * moved (what is conjugate then too is said where it is so), nor where factors are used by rows, as in
 * solving; QR and eigenvectors go through transposed copies.
 *
 * family: lapack; types: f32 f64 c64 c128; isa: each; fused */
#include <tenon/args_eigen.h>
#include <tenon/args_linalg.h>

#include "lapack_tmpl.h"

void LAPACK(getri)(const int *n, T *a, const int *lda, const int *pivots, T *work, const int *lwork,
                   int *info);
void LAPACK(potrf)(const char *uplo, const int *n, T *a, const int *lda, int *info, size_t);
void LAPACK(geqrf)(const int *m, const int *n, T *a, const int *lda, T *tau, T *work,
                   const int *lwork, int *info);
void LAPACK(orgqr)(const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau,
                   T *work, const int *lwork, int *info);
void LAPACK(gesdd)(const char *jobz, const int *m, const int *n, T *a, const int *lda, R *s, T *u,
                   const int *ldu, T *vt, const int *ldvt, T *work, const int *lwork,
                   COMPLEX_ONLY(R *rwork) int *iwork, int *info, size_t);
void LAPACK(syevd)(const char *jobz, const char *uplo, const int *n, T *a, const int *lda, R *w,
                   T *work, const int *lwork, COMPLEX_ONLY(R *rwork, const int *lrwork) int *iwork,
                   const int *liwork, int *info, size_t, size_t);
void LAPACK(gelsd)(const int *m, const int *n, const int *nrhs, T *a, const int *lda, T *b,
                   const int *ldb, R *s, const R *rcond, int *rank, T *work, const int *lwork,
                   COMPLEX_ONLY(R *rwork) int *iwork, int *info);
void LAPACK(gelsy)(const int *m, const int *n, const int *nrhs, T *a, const int *lda, T *b,
                   const int *ldb, int *places, const R *rcond, int *rank, T *work,
                   const int *lwork, COMPLEX_ONLY(R *rwork) int *info);
void TRSM(int order, int side, int uplo, int trans, int diag, int m, int n, factor alpha,
          const T *a, int lda, T *b, int ldb);

enum { CBLAS_UPPER = 121, CBLAS_LOWER = 122, CBLAS_NON_UNIT = 131, CBLAS_UNIT = 132 };
enum { CBLAS_LEFT = 141 };

/* ---- LU ----------------------------------------------------------------------------------------*/

/* Copies matrix i to lu and factors it; pivots has room for n. */
static int factor_lu(const job *j, int64_t i, T *lu, int *pivots) {
    int info = 0;
    if (j->n == 0) return 0; /* a leading dimension must be at least 1 */
    memcpy(lu, j->a + i * area(j->n, j->n), (size_t)area(j->n, j->n) * sizeof(T));
    if (j->n <= TINY_LU) return tiny_lu(j->n, lu, pivots);
    LAPACK(getrf)(&j->n, &j->n, lu, &j->n, pivots, &info);
    return info;
}

/* The same for what tiny_solve takes. */
static int factor_tiny(const job *j, int64_t i, T *lu, int *pivots) {
    const T *a = j->a + i * area(j->n, j->n);
    for (int r = 0; r < j->n; r++)
        for (int c = 0; c < j->n; c++) lu[c * j->n + r] = *a++;
    return tiny_lu(j->n, lu, pivots);
}

static int inverse_of(const job *j, int64_t i, char *room) {
    int *pivots = (int *)(void *)room;
    T *out = j->out[0] + i * area(j->n, j->n), *work = (T *)(void *)(room + 8 * (size_t)j->n);
    bool tiny = j->n <= TINY_LU;
    int info = tiny ? factor_tiny(j, i, work, pivots) : factor_lu(j, i, out, pivots);
    if (tiny) {
        identity(out, j->n);
        if (info == 0) tiny_solve(j->n, work, pivots, out, j->n);
    } else if (info == 0) {
        LAPACK(getri)(&j->n, out, &j->n, pivots, work, &j->lwork, &info);
    }
    for (int64_t e = 0; info > 0 && e < area(j->n, j->n); e++) out[e] = (T)INFINITY;
    return info;
}

static R sign_of(const int *pivots, int n) {
    R sign = 1;
    for (int r = 0; r < n; r++) sign = pivots[r] == r + 1 ? sign : -sign;
    return sign;
}

static int det_of(const job *j, int64_t i, char *room) {
    int *pivots = (int *)(void *)room;
    T *lu = (T *)(void *)(room + 8 * (size_t)j->n);
    factor_lu(j, i, lu, pivots);
    T det = sign_of(pivots, j->n);
    for (int64_t r = 0; r < j->n; r++) det *= lu[r * (j->n + 1)];
    j->out[0][i] = det;
    return 0;
}

/* x divided by its size; 0 and NaN as they are. */
static T direction(T x) {
    R size = size_of(x);
    return size > 0 ? x / size : x;
}

static int slogdet_of(const job *j, int64_t i, char *room) {
    int *pivots = (int *)(void *)room;
    T *lu = (T *)(void *)(room + 8 * (size_t)j->n);
    factor_lu(j, i, lu, pivots);
    T sign = sign_of(pivots, j->n);
    R sum = 0;
    for (int64_t r = 0; r < j->n; r++) {
        T d = lu[r * (j->n + 1)];
        sign *= direction(d);
        sum += (R)log((double)size_of(d));
    }
    j->out[0][i] = sign;
    j->real[i] = sum;
    return 0;
}

/* The determinant of an orthogonal matrix, which is overwritten. */
static T orientation(T *q, int n, int *pivots) {
    int info;
    LAPACK(getrf)(&n, &n, q, &n, pivots, &info);
    T sign = sign_of(pivots, n);
    for (int64_t r = 0; r < n; r++) sign *= direction(q[r * (n + 1)]);
    return sign;
}

/* Cofactors of a matrix that has no inverse: with A^T = U S V^H they are det(U) det(V^H)
 * times V diag(products of the other singular values) U^H. The room holds five matrices and the work. */
static int cofactors_by_svd(const job *j, int64_t i, char *room) {
    int n = j->n, info = 0;
    int64_t size = area(n, n);
    int *iwork = (int *)(void *)room;
    T *a = (T *)(void *)(room + 32 * (size_t)n), *u = a + size, *vt = u + size;
    T *spare = vt + size, *work = spare + size, *out = j->out[0] + i * size;
    R *s = (R *)(void *)(work + j->lwork), *rwork = s + n;
    (void)rwork;
    memcpy(a, j->a + i * size, (size_t)size * sizeof(T));
    if (!finite(a, size)) {
        for (int64_t e = 0; e < size; e++) out[e] = (T)NAN;
        return 0;
    }
    LAPACK(gesdd)
    ("A", &n, &n, a, &n, s, u, &n, vt, &n, work, &j->lwork, COMPLEX_ONLY(rwork) iwork, &info, 1);
    if (info != 0) return info;
    memcpy(spare, u, (size_t)size * sizeof(T));
    T sign = orientation(spare, n, iwork);
    memcpy(spare, vt, (size_t)size * sizeof(T));
    sign *= orientation(spare, n, iwork);
    for (int64_t d = 0; d < n; d++) {
        R others = 1;
        for (int64_t e = 0; e < n; e++) others *= e == d ? 1 : s[e];
        for (int64_t c = 0; c < n; c++) u[d * n + c] *= others;
    }
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < n; c++) {
            T sum = 0;
            for (int64_t d = 0; d < n; d++) sum += vt[r * n + d] * u[d * n + c];
            out[r * n + c] = sign * conjugate(sum);
        }
    }
    return 0;
}

/* The derivative of the determinant: det(A) times the transposed inverse where that is accurate. */
static int cofactors_of(const job *j, int64_t i, char *room) {
    int n = j->n, info = 0;
    int *pivots = (int *)(void *)room;
    T *lu = (T *)(void *)(room + 32 * (size_t)n), *work = lu + area(n, n);
    factor_lu(j, i, lu, pivots);
    T det = sign_of(pivots, n);
    R low = (R)INFINITY, high = 0;
    for (int64_t r = 0; r < n; r++) {
        T d = lu[r * (n + 1)];
        R size = size_of(d);
        det *= d;
        low = size < low ? size : low;
        high = size > high ? size : high;
    }
    if (!(low > high * 64 * (R)n * (R)EPSILON)) return cofactors_by_svd(j, i, room);
    LAPACK(getri)(&n, lu, &n, pivots, work, &j->lwork, &info);
    T *out = j->out[0] + i * area(n, n);
    transpose(lu, n, n, out);
    for (int64_t e = 0; e < area(n, n); e++) out[e] *= det;
    return info;
}

static int solution_of(const job *j, int64_t i, char *room) {
    int *pivots = (int *)(void *)room;
    T *lu = (T *)(void *)(room + 8 * (size_t)j->n), *out = j->out[0] + i * area(j->n, j->k),
      one = 1;
    bool tiny = j->n <= TINY_LU;
    int info = tiny ? factor_tiny(j, i, lu, pivots) : factor_lu(j, i, lu, pivots);
    if (info != 0 || j->k == 0) return info;
    memcpy(out, j->b + i * area(j->n, j->k), (size_t)area(j->n, j->k) * sizeof(T));
    if (tiny) {
        tiny_solve(j->n, lu, pivots, out, j->k);
        return 0;
    }
    TRSM(BLAS_ROWS, CBLAS_LEFT, CBLAS_LOWER, BLAS_PLAIN, CBLAS_NON_UNIT, j->n, j->k, FACTOR(one),
         lu, j->n, out, j->k);
    TRSM(BLAS_ROWS, CBLAS_LEFT, CBLAS_UPPER, BLAS_PLAIN, CBLAS_UNIT, j->n, j->k, FACTOR(one), lu,
         j->n, out, j->k);
    rows_back(j->n, pivots, out, j->k);
    return 0;
}

/* ---- The other factorisations ------------------------------------------------------------------*/

/* The lower triangle by rows is the upper one by columns, of the conjugate: that is U^H U, and A is
 * U^T and its adjoint. */
static int cholesky_of(const job *j, int64_t i, char *room) {
    int n = j->n, info = 0;
    T *out = j->out[0] + i * area(n, n);
    (void)room;
    memcpy(out, j->a + i * area(n, n), (size_t)area(n, n) * sizeof(T));
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = r + 1; c < n; c++) out[r * n + c] = 0;
    }
    if (n <= TINY) return tiny_cholesky(n, out);
    LAPACK(potrf)("U", &n, out, &n, &info, 1);
    for (int r = 0; info == 0 && r < n; r++) /* not every LAPACK sees NaN */
        info = isnan(re(out[r * (int64_t)n + r])) ? r + 1 : 0;
    return info;
}

static int triangular_solution_of(const job *j, int64_t i, char *room) {
    T *out = j->out[0] + i * area(j->n, j->k);
    T one = 1;
    (void)room;
    memcpy(out, j->b + i * area(j->n, j->k), (size_t)area(j->n, j->k) * sizeof(T));
    TRSM(BLAS_ROWS, CBLAS_LEFT, j->upper ? CBLAS_UPPER : CBLAS_LOWER, BLAS_PLAIN,
         j->unit ? CBLAS_UNIT : CBLAS_NON_UNIT, j->n, j->k, FACTOR(one),
         j->a + i * area(j->n, j->n), j->n, out, j->k);
    return 0;
}

static int qr_of(const job *j, int64_t i, char *room) {
    int m = j->m, n = j->n, k = least(m, n), cols = j->full ? m : k, info = 0;
    T *w = (T *)(void *)room, *tau = w + area(m, most(m, n)), *work = tau + k;
    T *q = j->out[0] + i * area(m, cols), *r = j->out[1] + i * area(cols, n);
    transpose(j->a + i * area(m, n), m, n, w);
    LAPACK(geqrf)(&m, &n, w, &m, tau, work, &j->lwork, &info);
    for (int64_t row = 0; row < cols; row++) {
        for (int64_t c = 0; c < n; c++) r[row * n + c] = c < row ? 0 : w[c * m + row];
    }
    if (info == 0) LAPACK(orgqr)(&m, &cols, &k, w, &m, tau, work, &j->lwork, &info);
    transpose(w, cols, m, q);
    return info;
}

/* Which of x and -x are the singular vectors is LAPACK's choice for A, not for its transpose. */
static int svd_of(const job *j, int64_t i, char *room) {
    int m = j->m, n = j->n, k = least(m, n), info = 0;
    int rows = j->full ? n : k, cols = j->full ? m : k;
    const bool vectors = j->out[0] != NULL;
    int *iwork = (int *)(void *)room;
    T *a = (T *)(void *)(room + 32 * (size_t)k), *u = a + area(m, n);
    T *vh = u + (vectors ? area(m, cols) : 0), *work = vh + (vectors ? area(rows, n) : 0);
    R *rwork = (R *)(void *)(work + j->lwork);
    (void)rwork;
    transpose(j->a + i * area(m, n), m, n, a);
    if (!finite(a, area(m, n))) return NOT_FINITE;
    LAPACK(gesdd)
    (j->vectors, &m, &n, a, &m, j->real + i * k, u, &m, vh, &rows, work, &j->lwork,
     COMPLEX_ONLY(rwork) iwork, &info, 1);
    if (!vectors) return info;
    transpose(u, cols, m, j->out[0] + i * area(m, cols));
    transpose(vh, n, rows, j->out[2] + i * area(rows, n));
    return info;
}

static int eigh_of(const job *j, int64_t i, char *room) {
    int n = j->n, liwork = 3 + 5 * n, info = 0;
    int *iwork = (int *)(void *)room;
    T *a = (T *)(void *)(room + 24 * (size_t)(n + 1)), *work = a + area(n, n);
    R *rwork = (R *)(void *)(work + j->lwork);
    (void)rwork;
    transpose(j->a + i * area(n, n), n, n, a);
    if (!finite(a, area(n, n))) return NOT_FINITE;
    LAPACK(syevd)
    (j->vectors, j->upper ? "U" : "L", &n, a, &n, j->real + i * n, work, &j->lwork,
     COMPLEX_ONLY(rwork, &j->lrwork) iwork, &liwork, &info, 1, 1);
    if (j->out[0]) transpose(a, n, n, j->out[0] + i * area(n, n));
    return info;
}

static int least_squares_of(const job *j, int64_t i, char *room) {
    int m = j->m, n = j->n, ldb = most(m, n), k = j->k, rank = 0, info = 0;
    T *a = (T *)(void *)room, *b = a + area(m, n), *work = b + area(ldb, k);
    R *rwork = (R *)(void *)(work + j->lwork);
    int *iwork = (int *)(void *)(rwork + j->lrwork);
    const T *from = j->b + i * area(m, k);
    T *to = j->out[0] + i * area(n, k);
    if (!finite(j->a + i * area(m, n), area(m, n)) || !finite(from, area(m, k))) return NOT_FINITE;
    transpose(j->a + i * area(m, n), m, n, a);
    for (int64_t c = 0; c < k; c++) {
        for (int64_t r = 0; r < ldb; r++) b[c * ldb + r] = r < m ? from[r * k + c] : 0;
    }
    if (j->real) {
        LAPACK(gelsd)
        (&m, &n, &k, a, &m, b, &ldb, j->real + i * least(m, n), &j->rcond, &rank, work, &j->lwork,
         COMPLEX_ONLY(rwork) iwork, &info);
    } else {
        memset(iwork, 0, (size_t)n * sizeof *iwork); /* any column may change places */
        LAPACK(gelsy)
        (&m, &n, &k, a, &m, b, &ldb, iwork, &j->rcond, &rank, work, &j->lwork,
         COMPLEX_ONLY(rwork) & info);
    }
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < k; c++) to[r * k + c] = b[c * ldb + r];
    }
    j->rank[i] = rank;
    return info;
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

static int getri_work(int n) {
    int query = -1, info;
    T answer = 0;
    LAPACK(getri)(&n, NULL, &n, NULL, &answer, &query, &info);
    return elements(answer);
}

static int gesdd_work(int m, int n, const char *vectors) {
    int query = -1, info, cols = *vectors == 'A' ? n : least(m, n);
    T answer = 0;
    LAPACK(gesdd)
    (vectors, &m, &n, NULL, &m, NULL, NULL, &m, NULL, &cols, &answer, &query,
     COMPLEX_ONLY(NULL) NULL, &info, 1);
    return elements(answer);
}

/* Real numbers that gesdd needs, below 2^31 because LARGEST is what it is. */
static int gesdd_real(int m, int n) {
    int64_t low = least(m, n), high = most(m, n);
    int64_t need = most64(5 * low * low + 5 * low, 2 * high * low + 2 * low * low + low);
    return TMPL_IS_COMPLEX ? (int)need : 0;
}

static tn_status invert(const tn_call *call, const tn_view *a, const tn_view *out, int32_t *codes,
                        bool check) {
    job j = {.one = inverse_of, .name = "linalg.inv", .out = {out->data}};
    tn_status st = prepare(call, &j, a, NULL);
    if (st || out->numel == 0) {
        for (int64_t i = 0; !st && codes && i < j.batch; i++) codes[i] = 0;
        return st;
    }
    if (check) {
        j.failure = "The diagonal element ";
        j.ending = " is zero, the inversion could not be completed because the input matrix is "
                   "singular.";
    }
    j.lwork = getri_work(j.n);
    int64_t tiny = j.n <= TINY_LU ? bytes(area(j.n, j.n)) : 0;
    st = run(call, &j, 8 * (int64_t)j.n + tiny, a->ndim > 2);
    for (int64_t i = 0; !st && codes && i < j.batch; i++) codes[i] = j.info[i];
    return st;
}

static tn_status inv_ex(const tn_call *call, const void *args) {
    const tn_linalg_inv_ex_args *a = args;
    return invert(call, a->A, a->inverse, a->info->data, a->check_errors != 0);
}

static tn_status inverse_or_infinity(const tn_call *call, const void *args) {
    const tn__inverse_args *a = args;
    return invert(call, a->A, a->out, NULL, false);
}

static tn_status det(const tn_call *call, const void *args) {
    const tn_det_args *a = args;
    job j = {.one = det_of, .name = "linalg.det", .out = {a->out->data}};
    tn_status st = prepare(call, &j, a->input, NULL);
    return st ? st : run(call, &j, 8 * (int64_t)j.n + bytes(area(j.n, j.n)), false);
}

static tn_status slogdet(const tn_call *call, const void *args) {
    const tn_slogdet_args *a = args;
    job j = {.one = slogdet_of,
             .name = "linalg.slogdet",
             .out = {a->sign->data},
             .real = a->logabsdet->data};
    tn_status st = prepare(call, &j, a->input, NULL);
    return st ? st : run(call, &j, 8 * (int64_t)j.n + bytes(area(j.n, j.n)), false);
}

static tn_status cofactors(const tn_call *call, const void *args) {
    const tn__cofactors_args *a = args;
    job j = {.one = cofactors_of, .name = "linalg.det", .out = {a->out->data}};
    tn_status st = prepare(call, &j, a->A, NULL);
    if (st || a->out->numel == 0) return st;
    j.failure = "The singular values did not converge (error code: ";
    j.ending = ").";
    j.lwork = most(getri_work(j.n), gesdd_work(j.n, j.n, "A"));
    j.lrwork = j.n + gesdd_real(j.n, j.n);
    return run(call, &j, 32 * (int64_t)j.n + bytes(4 * area(j.n, j.n)), a->A->ndim > 2);
}

static tn_status solve(const tn_call *call, const void *args) {
    const tn__linalg_solve_args *a = args;
    job j = {.one = solution_of, .name = "torch.linalg.solve", .out = {a->out->data}};
    tn_status st = prepare(call, &j, a->A, a->B);
    if (st || a->A->numel == 0) return st;
    j.failure = "The solver failed because the input matrix is singular.";
    return run(call, &j, 8 * (int64_t)j.n + bytes(area(j.n, j.n)), a->A->ndim > 2);
}

static tn_status cholesky(const tn_call *call, const void *args) {
    const tn__linalg_cholesky_args *a = args;
    job j = {.one = cholesky_of, .name = "linalg.cholesky", .out = {a->L->data}};
    int32_t *codes = a->info->data;
    tn_status st = prepare(call, &j, a->A, NULL);
    if (a->check) {
        j.failure = "The factorization could not be completed because the input is not "
                    "positive-definite (the leading minor of order ";
        j.ending = " is not positive-definite).";
    }
    if (!st && a->L->numel > 0) st = run(call, &j, 0, a->A->ndim > 2);
    for (int64_t i = 0; !st && i < j.batch; i++) codes[i] = j.info ? j.info[i] : 0;
    return st;
}

static tn_status solve_triangular(const tn_call *call, const void *args) {
    const tn__linalg_solve_triangular_args *a = args;
    job j = {.one = triangular_solution_of,
             .name = "linalg.solve_triangular",
             .upper = a->upper != 0,
             .unit = a->unitriangular != 0,
             .out = {a->out->data}};
    tn_status st = prepare(call, &j, a->A, a->B);
    return st || a->out->numel == 0 ? st : run(call, &j, 0, false);
}

static tn_status qr(const tn_call *call, const void *args) {
    const tn__linalg_qr_args *a = args;
    job j = {.one = qr_of,
             .name = "linalg.qr",
             .full = a->complete != 0,
             .out = {a->Q->data, a->R->data}};
    tn_status st = prepare(call, &j, a->A, NULL);
    if (st) return st;
    if (a->A->numel == 0) {
        for (int64_t i = 0; j.full && i < j.batch; i++)
            identity(j.out[0] + i * area(j.m, j.m), j.m);
        return TN_OK;
    }
    int query = -1, info, k = least(j.m, j.n), cols = j.full ? j.m : k;
    T first = 0, second = 0;
    LAPACK(geqrf)(&j.m, &j.n, NULL, &j.m, NULL, &first, &query, &info);
    LAPACK(orgqr)(&j.m, &cols, &k, NULL, &j.m, NULL, &second, &query, &info);
    j.lwork = most(elements(first), elements(second));
    return run(call, &j, bytes(area(j.m, most(j.m, j.n)) + k), false);
}

static tn_status svd_job(const tn_call *call, const tn_view *x, job *j) {
    j->failure = "The algorithm failed to converge because the input matrix is ill-conditioned or "
                 "has too many repeated singular values (error code: ";
    j->ending = ").";
    int k = least(j->m, j->n);
    int64_t vectors = j->full ? area(j->m, j->m) + area(j->n, j->n) : area(j->m, k) + area(k, j->n);
    j->lwork = gesdd_work(j->m, j->n, j->vectors);
    j->lrwork = gesdd_real(j->m, j->n);
    if (!j->out[0]) vectors = 0;
    return run(call, j, 32 * (int64_t)k + bytes(area(j->m, j->n) + vectors), x->ndim > 2);
}

static tn_status svd(const tn_call *call, const void *args) {
    const tn__linalg_svd_args *a = args;
    job j = {.one = svd_of,
             .name = "linalg.svd",
             .full = a->full_matrices != 0,
             .vectors = a->full_matrices ? "A" : "S",
             .out = {a->U->data, NULL, a->Vh->data},
             .real = a->S->data};
    tn_status st = prepare(call, &j, a->A, NULL);
    if (st) return st;
    if (a->A->numel == 0) {
        for (int64_t i = 0; j.full && i < j.batch; i++) {
            identity(j.out[0] + i * area(j.m, j.m), j.m);
            identity(j.out[2] + i * area(j.n, j.n), j.n);
        }
        return TN_OK;
    }
    return svd_job(call, a->A, &j);
}

static tn_status svdvals(const tn_call *call, const void *args) {
    const tn__linalg_svdvals_args *a = args;
    job j = {.one = svd_of, .name = "linalg.svdvals", .vectors = "N", .real = a->out->data};
    tn_status st = prepare(call, &j, a->A, NULL);
    return st || a->A->numel == 0 ? st : svd_job(call, a->A, &j);
}

static tn_status eigh_job(const tn_call *call, const tn_view *x, job *j) {
    tn_status st = prepare(call, j, x, NULL);
    if (st || x->numel == 0) return st;
    j->failure = "The algorithm failed to converge because the input matrix is ill-conditioned or "
                 "has too many repeated eigenvalues (error code: ";
    j->ending = ").";
    int need = 1 + 6 * j->n + 2 * j->n * j->n; /* of real numbers */
    j->lwork = TMPL_IS_COMPLEX ? 2 * j->n + j->n * j->n : need;
    j->lrwork = TMPL_IS_COMPLEX ? need : 0;
    return run(call, j, 24 * (int64_t)(j->n + 1) + bytes(area(j->n, j->n)), x->ndim > 2);
}

static tn_status eigh(const tn_call *call, const void *args) {
    const tn__linalg_eigh_args *a = args;
    job j = {.one = eigh_of,
             .name = "linalg.eigh",
             .vectors = "V",
             .upper = a->upper != 0,
             .out = {a->eigenvectors->data},
             .real = a->eigenvalues->data};
    return eigh_job(call, a->A, &j);
}

static tn_status eigvalsh(const tn_call *call, const void *args) {
    const tn__linalg_eigvalsh_args *a = args;
    job j = {.one = eigh_of,
             .name = "linalg.eigvalsh",
             .vectors = "N",
             .upper = a->upper != 0,
             .real = a->out->data};
    return eigh_job(call, a->A, &j);
}

static tn_status least_squares(const tn_call *call, const void *args) {
    const tn__linalg_lstsq_args *a = args;
    job j = {.one = least_squares_of,
             .name = "torch.linalg.lstsq",
             .rcond = (R)a->rcond,
             .rank = a->rank->data,
             .out = {a->solution->data},
             .real = a->values ? a->singular_values->data : NULL};
    tn_status st = prepare(call, &j, a->A, a->B);
    if (st) return st;
    if (a->A->numel == 0 || j.k == 0) {
        for (int64_t i = 0; i < a->solution->numel; i++) j.out[0][i] = 0;
        for (int64_t i = 0; i < a->singular_values->numel; i++) j.real[i] = 0;
        for (int64_t i = 0; i < j.batch; i++) j.rank[i] = 0;
        return TN_OK;
    }
    j.failure = "The least squares problem could not be solved because the singular values did "
                "not converge (error code: ";
    j.ending = ").";
    int query = -1, info, ldb = most(j.m, j.n), count = j.n, rank;
    T answer = 0;
    R reals = (R)(2 * j.n);
    if (j.real) {
        LAPACK(gelsd)
        (&j.m, &j.n, &j.k, NULL, &j.m, NULL, &ldb, NULL, &j.rcond, &rank, &answer, &query,
         COMPLEX_ONLY(&reals) & count, &info);
    } else {
        LAPACK(gelsy)
        (&j.m, &j.n, &j.k, NULL, &j.m, NULL, &ldb, NULL, &j.rcond, &rank, &answer, &query,
         COMPLEX_ONLY(&reals) & info);
    }
    j.lwork = elements(answer);
    j.lrwork = TMPL_IS_COMPLEX ? elements((T)reals) : 0;
    return run(call, &j, bytes(area(j.m, j.n) + area(ldb, j.k)) + 4 * (int64_t)(count + 64),
               a->A->ndim > 2);
}

static const tn_kernel_row rows[] = {
    ROW(linalg_inv_ex, inv_ex),
    ROW(_inverse, inverse_or_infinity),
    ROW(det, det),
    ROW(slogdet, slogdet),
    ROW(_cofactors, cofactors),
    ROW(_linalg_solve, solve),
    ROW(_linalg_cholesky, cholesky),
    ROW(_linalg_solve_triangular, solve_triangular),
    ROW(_linalg_qr, qr),
    ROW(_linalg_svd, svd),
    ROW(_linalg_svdvals, svdvals),
    ROW(_linalg_eigh, eigh),
    ROW(_linalg_eigvalsh, eigvalsh),
    ROW(_linalg_lstsq, least_squares),
};
const cpu_rows TN_(cpu_lapack_rows) = CPU_ROWS_OF(rows);
