/* blas.h: the CBLAS functions that we call, declared here so that any BLAS with 32-bit integers
 * will do. TN_BLAS_PREFIX is put in front of every name ("scipy_" for the wheel's library).
 *
 * The order and transpose arguments are enumerations in CBLAS headers; int has the same ABI. */
#ifndef TENON_CPU_BLAS_H
#define TENON_CPU_BLAS_H

#include "cpu_priv.h"

#ifndef TN_BLAS_PREFIX
#define TN_BLAS_PREFIX
#endif
#define BLAS_JOIN_(p, name) p##name
#define BLAS_JOIN(p, name) BLAS_JOIN_(p, name)
#define BLAS(name) BLAS_JOIN(TN_BLAS_PREFIX, name)

#define BLAS_ROWS 101 /* row-major */
#define BLAS_PLAIN 111
#define BLAS_TRANS 112

void BLAS(cblas_sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                       int lda, const float *b, int ldb, float beta, float *c, int ldc);
void BLAS(cblas_dgemm)(int order, int ta, int tb, int m, int n, int k, double alpha,
                       const double *a, int lda, const double *b, int ldb, double beta, double *c,
                       int ldc);
void BLAS(cblas_cgemm)(int order, int ta, int tb, int m, int n, int k, const void *alpha,
                       const void *a, int lda, const void *b, int ldb, const void *beta, void *c,
                       int ldc);
void BLAS(cblas_zgemm)(int order, int ta, int tb, int m, int n, int k, const void *alpha,
                       const void *a, int lda, const void *b, int ldb, const void *beta, void *c,
                       int ldc);
void BLAS(cblas_sgemv)(int order, int ta, int m, int n, float alpha, const float *a, int lda,
                       const float *x, int incx, float beta, float *y, int incy);
void BLAS(cblas_dgemv)(int order, int ta, int m, int n, double alpha, const double *a, int lda,
                       const double *x, int incx, double beta, double *y, int incy);
float BLAS(cblas_sdot)(int n, const float *x, int incx, const float *y, int incy);
double BLAS(cblas_ddot)(int n, const double *x, int incx, const double *y, int incy);
void BLAS(openblas_set_num_threads)(int threads);
char *BLAS(openblas_get_corename)(void);

/* Around calls of the BLAS and of LAPACK on one thread: TN_E_MEMORY where they would wait for memory for
 * ever (blas_room.c). cpu_blas_room: cpu_room for a body that makes such calls until it ends. */
void cpu_blas_room_init(void);
tn_status cpu_blas_enter(void);
void cpu_blas_leave(void);
tn_status cpu_blas_room(int64_t count, size_t item, uint64_t *ret_bytes, void **ret_room);
void cpu_blas_room_end(void *room, uint64_t bytes);

#endif
