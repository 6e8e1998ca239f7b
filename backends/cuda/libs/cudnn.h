/* cudnn.h: the part of cuDNN 9 that we call, its backend interface, as facts, like driver.h: objects
 * are descriptors with numbered attributes. */
#ifndef CUDA_CUDNN_H
#define CUDA_CUDNN_H

#include <stdint.h>

#include "driver.h"

#if !defined(CUDNN_MAJOR)
typedef int cudnnStatus_t;
typedef unsigned cudnnBackendDescriptorType_t;
typedef unsigned cudnnBackendAttributeName_t;
typedef unsigned cudnnBackendAttributeType_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
typedef CUstream cudnnStream;
#else
typedef cudaStream_t cudnnStream;
#endif

/* X(our name, NVIDIA's name, value) */
#define CUDNN_VALUE_LIST(X)                                                                        \
    X(CUDNN_OK, CUDNN_STATUS_SUCCESS, 0)                                                           \
    X(CUDNN_BAD_PARAM, CUDNN_STATUS_BAD_PARAM, 2000)                                               \
    X(CUDNN_UNSUPPORTED, CUDNN_STATUS_NOT_SUPPORTED, 3000)                                         \
    X(CUDNN_EXECUTION, CUDNN_STATUS_EXECUTION_FAILED, 5000)                                        \
    X(CUDNN_F32, CUDNN_DATA_FLOAT, 0)                                                              \
    X(CUDNN_F64, CUDNN_DATA_DOUBLE, 1)                                                             \
    X(CUDNN_F16, CUDNN_DATA_HALF, 2)                                                               \
    X(CUDNN_BF16, CUDNN_DATA_BFLOAT16, 9)                                                          \
    X(CUDNN_I32, CUDNN_DATA_INT32, 4)                                                              \
    X(CUDNN_BOOL, CUDNN_DATA_BOOLEAN, 11)                                                          \
    X(CUDNN_CORRELATION, CUDNN_CROSS_CORRELATION, 1)                                               \
    X(CUDNN_HEURISTIC, CUDNN_HEUR_MODE_A, 3)                                                       \
    X(CUDNN_LAST_RESORT, CUDNN_HEUR_MODE_FALLBACK, 2)                                              \
    X(CUDNN_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                      \
    X(CUDNN_NARROWED, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                 \
    X(CUDNN_NARROW_SUMS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                      \
    X(CUDNN_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                            \
    X(CUDNN_MAP_ADD, CUDNN_POINTWISE_ADD, 0)                                                       \
    X(CUDNN_MAP_MUL, CUDNN_POINTWISE_MUL, 1)                                                       \
    X(CUDNN_MAP_DIV, CUDNN_POINTWISE_DIV, 6)                                                       \
    X(CUDNN_MAP_SUB, CUDNN_POINTWISE_SUB, 9)                                                       \
    X(CUDNN_MAP_EXP, CUDNN_POINTWISE_EXP, 13)                                                      \
    X(CUDNN_MAP_LOG, CUDNN_POINTWISE_LOG, 15)                                                      \
    X(CUDNN_MAP_COPY, CUDNN_POINTWISE_IDENTITY, 21)                                                \
    X(CUDNN_MAP_GE, CUDNN_POINTWISE_CMP_GE, 303)                                                   \
    X(CUDNN_MAP_INDEX, CUDNN_POINTWISE_GEN_INDEX, 501)                                             \
    X(CUDNN_MAP_SELECT, CUDNN_POINTWISE_BINARY_SELECT, 601)                                        \
    X(CUDNN_REDUCE_SUM, CUDNN_REDUCE_TENSOR_ADD, 0)                                                \
    X(CUDNN_REDUCE_MOST, CUDNN_REDUCE_TENSOR_MAX, 3)                                               \
    X(CUDNN_NORM_BATCH, CUDNN_BATCH_NORM, 2)                                                       \
    X(CUDNN_NORM_TRAINING, CUDNN_NORM_FWD_TRAINING, 1)                                             \
    CUDNN_TYPE_LIST(X)                                                                             \
    CUDNN_DESCRIPTOR_LIST(X)                                                                       \
    CUDNN_ATTRIBUTE_LIST(X)

/* What an attribute's elements are. */
#define CUDNN_TYPE_LIST(X)                                                                         \
    X(CUDNN_IS_HANDLE, CUDNN_TYPE_HANDLE, 0)                                                       \
    X(CUDNN_IS_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1)                                                 \
    X(CUDNN_IS_BOOL, CUDNN_TYPE_BOOLEAN, 2)                                                        \
    X(CUDNN_IS_INT64, CUDNN_TYPE_INT64, 3)                                                         \
    X(CUDNN_IS_FLOAT, CUDNN_TYPE_FLOAT, 4)                                                         \
    X(CUDNN_IS_DOUBLE, CUDNN_TYPE_DOUBLE, 5)                                                       \
    X(CUDNN_IS_POINTER, CUDNN_TYPE_VOID_PTR, 6)                                                    \
    X(CUDNN_IS_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 7)                                               \
    X(CUDNN_IS_HEURISTIC, CUDNN_TYPE_HEUR_MODE, 8)                                                 \
    X(CUDNN_IS_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 11)                                                \
    X(CUDNN_IS_MAP, CUDNN_TYPE_POINTWISE_MODE, 14)                                                 \
    X(CUDNN_IS_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                      \
    X(CUDNN_IS_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                                  \
    X(CUDNN_IS_CHAR, CUDNN_TYPE_CHAR, 24)                                                          \
    X(CUDNN_IS_NORM, CUDNN_TYPE_NORM_MODE, 27)                                                     \
    X(CUDNN_IS_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 28)

#define CUDNN_DESCRIPTOR_LIST(X)                                                                   \
    X(CUDNN_MAP, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                            \
    X(CUDNN_CONV, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                         \
    X(CUDNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                            \
    X(CUDNN_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                         \
    X(CUDNN_SEARCH, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                        \
    X(CUDNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                      \
    X(CUDNN_FORWARD, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                   \
    X(CUDNN_WEIGHT, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)            \
    X(CUDNN_INPUT, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)               \
    X(CUDNN_MAP_OP, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                              \
    X(CUDNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                    \
    X(CUDNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                       \
    X(CUDNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                           \
    X(CUDNN_PRODUCT, CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                                          \
    X(CUDNN_PRODUCT_OP, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                             \
    X(CUDNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                                     \
    X(CUDNN_REDUCTION_OP, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                        \
    X(CUDNN_NORM_FORWARD, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, 29)                     \
    X(CUDNN_NORM_BACKWARD, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, 30)                   \
    X(CUDNN_RESHAPE_OP, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)

/* Those of the three operations: alpha, beta, convolution, and three tensors, one after the other. */
#define CUDNN_ATTRIBUTE_LIST(X)                                                                    \
    X(CUDNN_MAP_MODE, CUDNN_ATTR_POINTWISE_MODE, 0)                                                \
    X(CUDNN_MAP_COMPUTE, CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                        \
    X(CUDNN_MAP_AXIS, CUDNN_ATTR_POINTWISE_AXIS, 9)                                                \
    X(CUDNN_CONV_COMPUTE, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                   \
    X(CUDNN_CONV_MODE, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                      \
    X(CUDNN_CONV_DILATION, CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                  \
    X(CUDNN_CONV_STRIDE, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                               \
    X(CUDNN_CONV_PAD_AFTER, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                             \
    X(CUDNN_CONV_PAD_BEFORE, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                             \
    X(CUDNN_CONV_DIMS, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                   \
    X(CUDNN_SEARCH_MODE, CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                          \
    X(CUDNN_SEARCH_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                              \
    X(CUDNN_SEARCH_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                    \
    X(CUDNN_CONFIG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                       \
    X(CUDNN_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                                    \
    X(CUDNN_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                             \
    X(CUDNN_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                         \
    X(CUDNN_PLAN_TEXT, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405)                         \
    X(CUDNN_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                    \
    X(CUDNN_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                      \
    X(CUDNN_FORWARD_CONV, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                 \
    X(CUDNN_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                            \
    X(CUDNN_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                            \
    X(CUDNN_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                            \
    X(CUDNN_INPUT_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)                     \
    X(CUDNN_INPUT_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                       \
    X(CUDNN_INPUT_CONV, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)                  \
    X(CUDNN_INPUT_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                             \
    X(CUDNN_INPUT_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                            \
    X(CUDNN_INPUT_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                            \
    X(CUDNN_WEIGHT_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)                  \
    X(CUDNN_WEIGHT_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)                    \
    X(CUDNN_WEIGHT_CONV, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)               \
    X(CUDNN_WEIGHT_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                         \
    X(CUDNN_WEIGHT_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                          \
    X(CUDNN_WEIGHT_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                         \
    X(CUDNN_MAP_OP_MAP, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                         \
    X(CUDNN_MAP_OP_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                   \
    X(CUDNN_MAP_OP_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                   \
    X(CUDNN_MAP_OP_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                   \
    X(CUDNN_MAP_OP_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                                   \
    X(CUDNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                   \
    X(CUDNN_GRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                         \
    X(CUDNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                               \
    X(CUDNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                         \
    X(CUDNN_TENSOR_SIZES, CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                       \
    X(CUDNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES, 903)                                        \
    X(CUDNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                           \
    X(CUDNN_TENSOR_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                     \
    X(CUDNN_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                                   \
    X(CUDNN_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                    \
    X(CUDNN_PACK_DATA, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                \
    X(CUDNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                               \
    X(CUDNN_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                  \
    X(CUDNN_PRODUCT_COMPUTE, CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                                    \
    X(CUDNN_PRODUCT_OP_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                                 \
    X(CUDNN_PRODUCT_OP_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                                 \
    X(CUDNN_PRODUCT_OP_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                                 \
    X(CUDNN_PRODUCT_OP_PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                            \
    X(CUDNN_REDUCTION_MODE, CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                                   \
    X(CUDNN_REDUCTION_COMPUTE, CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                               \
    X(CUDNN_REDUCTION_OP_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                            \
    X(CUDNN_REDUCTION_OP_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                            \
    X(CUDNN_REDUCTION_OP_REDUCTION, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                     \
    X(CUDNN_NORM_MODE, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, 2000)                                   \
    X(CUDNN_NORM_PHASE, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, 2001)                                 \
    X(CUDNN_NORM_X, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, 2002)                                     \
    X(CUDNN_NORM_MEAN, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, 2003)                              \
    X(CUDNN_NORM_RSTD, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, 2004)                      \
    X(CUDNN_NORM_SCALE, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, 2005)                            \
    X(CUDNN_NORM_BIAS, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, 2006)                              \
    X(CUDNN_NORM_EPS, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, 2007)                            \
    X(CUDNN_NORM_Y, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, 2013)                                     \
    X(CUDNN_NORM_BACK_MODE, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, 2100)                              \
    X(CUDNN_NORM_BACK_X, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, 2101)                                \
    X(CUDNN_NORM_BACK_MEAN, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, 2102)                         \
    X(CUDNN_NORM_BACK_RSTD, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, 2103)                 \
    X(CUDNN_NORM_BACK_GRAD, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, 2104)                            \
    X(CUDNN_NORM_BACK_SCALE, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, 2105)                       \
    X(CUDNN_NORM_GRAD_SCALE, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, 2107)                      \
    X(CUDNN_NORM_GRAD_BIAS, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, 2108)                        \
    X(CUDNN_NORM_GRAD_X, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, 2109)                               \
    X(CUDNN_RESHAPE_OP_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                                \
    X(CUDNN_RESHAPE_OP_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)

#define CUDNN_ENUMERATOR(ours, theirs, value) ours = value,
enum { CUDNN_VALUE_LIST(CUDNN_ENUMERATOR) };
#undef CUDNN_ENUMERATOR

/* X(member, symbol of libcudnn, type of its result, parameters) */
#define CUDNN_LIST(X)                                                                              \
    X(version, cudnnGetVersion, size_t, (void))                                                    \
    X(toolkit, cudnnGetCudartVersion, size_t, (void))                                              \
    X(error_text, cudnnGetErrorString, const char *, (cudnnStatus_t status))                       \
    X(create_handle, cudnnCreate, cudnnStatus_t, (cudnnHandle_t * ret_handle))                     \
    X(set_stream, cudnnSetStream, cudnnStatus_t, (cudnnHandle_t handle, cudnnStream stream))       \
    X(create, cudnnBackendCreateDescriptor, cudnnStatus_t,                                         \
      (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * ret_descriptor))              \
    X(destroy, cudnnBackendDestroyDescriptor, cudnnStatus_t,                                       \
      (cudnnBackendDescriptor_t descriptor))                                                       \
    X(finalize, cudnnBackendFinalize, cudnnStatus_t, (cudnnBackendDescriptor_t descriptor))        \
    X(set, cudnnBackendSetAttribute, cudnnStatus_t,                                                \
      (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,                      \
       cudnnBackendAttributeType_t type, int64_t n, const void *elements))                         \
    X(get, cudnnBackendGetAttribute, cudnnStatus_t,                                                \
      (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,                \
       cudnnBackendAttributeType_t type, int64_t room, int64_t *ret_n, void *ret_elements))        \
    X(execute, cudnnBackendExecute, cudnnStatus_t,                                                 \
      (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack))

typedef struct cuda_cudnn {
#define CUDNN_MEMBER(member, symbol, result, params) result(*member) params;
    CUDNN_LIST(CUDNN_MEMBER)
#undef CUDNN_MEMBER
} cuda_cudnn;

#endif
