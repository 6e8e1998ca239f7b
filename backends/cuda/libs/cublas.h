/* cublas.h: the part of cuBLAS that we call, as facts, like driver.h. */
#ifndef CUDA_CUBLAS_H
#define CUDA_CUBLAS_H

#include "driver.h"

#if !defined(CUBLAS_VERSION)
typedef int cublasStatus_t;
typedef int cublasOperation_t;
typedef int cublasMath_t;
typedef int cublasGemmAlgo_t;
typedef int cublasComputeType_t;
typedef int cudaDataType;
typedef struct cublasContext *cublasHandle_t;
typedef CUstream cublasStream;
#else
typedef cudaStream_t cublasStream;
#endif

/* X(our name, NVIDIA's name, value) */
#define CUBLAS_VALUE_LIST(X)                                                                       \
    X(CUBLAS_OK, CUBLAS_STATUS_SUCCESS, 0)                                                         \
    X(CUBLAS_BAD_VALUE, CUBLAS_STATUS_INVALID_VALUE, 7)                                            \
    X(CUBLAS_UNSUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED, 15)                                         \
    X(CUBLAS_PLAIN_MATH, CUBLAS_DEFAULT_MATH, 0)                                                   \
    X(CUBLAS_WIDE_SUMS, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)                      \
    X(CUBLAS_NORMAL, CUBLAS_OP_N, 0)                                                               \
    X(CUBLAS_TRANSPOSED, CUBLAS_OP_T, 1)                                                           \
    X(CUBLAS_ANY_ALGORITHM, CUBLAS_GEMM_DEFAULT, -1)                                               \
    X(CUBLAS_IN_F32, CUBLAS_COMPUTE_32F, 68)                                                       \
    X(CUBLAS_IN_TF32, CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                            \
    X(CUBLAS_IN_F64, CUBLAS_COMPUTE_64F, 70)                                                       \
    X(CUBLAS_F32, CUDA_R_32F, 0)                                                                   \
    X(CUBLAS_F64, CUDA_R_64F, 1)                                                                   \
    X(CUBLAS_F16, CUDA_R_16F, 2)                                                                   \
    X(CUBLAS_C64, CUDA_C_32F, 4)                                                                   \
    X(CUBLAS_C128, CUDA_C_64F, 5)                                                                  \
    X(CUBLAS_BF16, CUDA_R_16BF, 14)

#define CUBLAS_ENUMERATOR(ours, theirs, value) ours = value,
enum { CUBLAS_VALUE_LIST(CUBLAS_ENUMERATOR) };
#undef CUBLAS_ENUMERATOR

/* X(member, symbol of libcublas, parameters). Matrices are stored by columns. */
#define CUBLAS_LIST(X)                                                                             \
    X(create, cublasCreate_v2, (cublasHandle_t * ret_handle))                                      \
    X(set_stream, cublasSetStream_v2, (cublasHandle_t handle, cublasStream stream))                \
    X(set_workspace, cublasSetWorkspace_v2,                                                        \
      (cublasHandle_t handle, void *workspace, size_t bytes))                                      \
    X(set_math_mode, cublasSetMathMode, (cublasHandle_t handle, cublasMath_t mode))                \
    X(gemm, cublasGemmStridedBatchedEx,                                                            \
      (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, \
       const void *alpha, const void *a, cudaDataType type_a, int lda, long long stride_a,         \
       const void *b, cudaDataType type_b, int ldb, long long stride_b, const void *beta, void *c, \
       cudaDataType type_c, int ldc, long long stride_c, int batch, cublasComputeType_t compute,   \
       cublasGemmAlgo_t algorithm))

typedef struct cuda_cublas {
#define CUBLAS_MEMBER(member, symbol, params) cublasStatus_t(*member) params;
    CUBLAS_LIST(CUBLAS_MEMBER)
#undef CUBLAS_MEMBER
} cuda_cublas;

#endif
