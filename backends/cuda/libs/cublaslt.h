/* cublaslt.h: the part of cuBLASLt that we call, as facts, like driver.h. */
#ifndef CUDA_CUBLASLT_H
#define CUDA_CUBLASLT_H

#include <stdint.h>

#include "cublas.h"

#if !defined(CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA)
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatrixLayoutOpaque *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulDescOpaque *cublasLtMatmulDesc_t;
typedef struct cublasLtMatmulPreferenceOpaque *cublasLtMatmulPreference_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

/* X(our name, NVIDIA's name, value) */
#define CUBLASLT_VALUE_LIST(X)                                                                     \
    X(CUBLASLT_OP_A, CUBLASLT_MATMUL_DESC_TRANSA, 3)                                               \
    X(CUBLASLT_OP_B, CUBLASLT_MATMUL_DESC_TRANSB, 4)                                               \
    X(CUBLASLT_END, CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                              \
    X(CUBLASLT_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                         \
    X(CUBLASLT_MATRIX, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                              \
    X(CUBLASLT_MATRIX_LD, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)                                \
    X(CUBLASLT_ADD_BIAS, CUBLASLT_EPILOGUE_BIAS, 4)                                                \
    X(CUBLASLT_RELU, CUBLASLT_EPILOGUE_RELU, 2)                                                    \
    X(CUBLASLT_BIAS_RELU, CUBLASLT_EPILOGUE_RELU_BIAS, 6)                                          \
    X(CUBLASLT_GELU, CUBLASLT_EPILOGUE_GELU, 32)                                                   \
    X(CUBLASLT_BIAS_GELU, CUBLASLT_EPILOGUE_GELU_BIAS, 36)                                         \
    X(CUBLASLT_KEPT_GELU, CUBLASLT_EPILOGUE_GELU_AUX, 160)                                         \
    X(CUBLASLT_BIAS_KEPT_GELU, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)                               \
    X(CUBLASLT_GELU_GRADIENT, CUBLASLT_EPILOGUE_DGELU_BGRAD, 208)                                  \
    X(CUBLASLT_SUM_OF_B, CUBLASLT_EPILOGUE_BGRADB, 512)                                            \
    X(CUBLASLT_ROOM, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                  \
    X(CUBLASLT_SUMS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                \
    X(CUBLASLT_WIDE_SUMS, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                               \
    X(CUBLASLT_ALIGNED_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                           \
    X(CUBLASLT_ALIGNED_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                           \
    X(CUBLASLT_ALIGNED_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                           \
    X(CUBLASLT_ALIGNED_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUBLASLT_ENUMERATOR(ours, theirs, value) ours = value,
enum { CUBLASLT_VALUE_LIST(CUBLASLT_ENUMERATOR) };
#undef CUBLASLT_ENUMERATOR

/* X(member, symbol of libcublasLt, parameters). Matrices are stored by columns. */
#define CUBLASLT_LIST(X)                                                                           \
    X(create_handle, cublasLtCreate, (cublasLtHandle_t * ret_handle))                              \
    X(create_product, cublasLtMatmulDescCreate,                                                    \
      (cublasLtMatmulDesc_t * ret_product, cublasComputeType_t compute, cudaDataType scale))       \
    X(destroy_product, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product))                  \
    X(set_product, cublasLtMatmulDescSetAttribute,                                                 \
      (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name, const void *value,       \
       size_t bytes))                                                                              \
    X(create_layout, cublasLtMatrixLayoutCreate,                                                   \
      (cublasLtMatrixLayout_t * ret_layout, cudaDataType type, uint64_t rows, uint64_t columns,    \
       int64_t ld))                                                                                \
    X(destroy_layout, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                \
    X(create_wish, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * ret_wish))        \
    X(destroy_wish, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t wish))            \
    X(set_wish, cublasLtMatmulPreferenceSetAttribute,                                              \
      (cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t name,                 \
       const void *value, size_t bytes))                                                           \
    X(search, cublasLtMatmulAlgoGetHeuristic,                                                      \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,            \
       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,               \
       cublasLtMatmulPreference_t wish, int most, cublasLtMatmulHeuristicResult_t *ret_found,      \
       int *ret_n))                                                                                \
    X(multiply, cublasLtMatmul,                                                                    \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,    \
       cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,            \
       const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,                  \
       cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,    \
       size_t bytes, cublasStream stream))

typedef struct cuda_cublaslt {
#define CUBLASLT_MEMBER(member, symbol, params) cublasStatus_t(*member) params;
    CUBLASLT_LIST(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
} cuda_cublaslt;

#endif
