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
    X(CUDNN_CORRELATION, CUDNN_CROSS_CORRELATION, 1)                                               \
    X(CUDNN_HEURISTIC, CUDNN_HEUR_MODE_A, 3)                                                       \
    X(CUDNN_LAST_RESORT, CUDNN_HEUR_MODE_FALLBACK, 2)                                              \
    X(CUDNN_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                      \
    X(CUDNN_NARROWED, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                 \
    X(CUDNN_NARROW_SUMS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                      \
    X(CUDNN_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                            \
    CUDNN_TYPE_LIST(X)                                                                             \
    CUDNN_DESCRIPTOR_LIST(X)                                                                       \
    CUDNN_ATTRIBUTE_LIST(X)

/* What an attribute's elements are. */
#define CUDNN_TYPE_LIST(X)                                                                         \
    X(CUDNN_IS_HANDLE, CUDNN_TYPE_HANDLE, 0)                                                       \
    X(CUDNN_IS_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1)                                                 \
    X(CUDNN_IS_INT64, CUDNN_TYPE_INT64, 3)                                                         \
    X(CUDNN_IS_FLOAT, CUDNN_TYPE_FLOAT, 4)                                                         \
    X(CUDNN_IS_DOUBLE, CUDNN_TYPE_DOUBLE, 5)                                                       \
    X(CUDNN_IS_POINTER, CUDNN_TYPE_VOID_PTR, 6)                                                    \
    X(CUDNN_IS_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 7)                                               \
    X(CUDNN_IS_HEURISTIC, CUDNN_TYPE_HEUR_MODE, 8)                                                 \
    X(CUDNN_IS_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 11)                                                \
    X(CUDNN_IS_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                      \
    X(CUDNN_IS_CHAR, CUDNN_TYPE_CHAR, 24)

#define CUDNN_DESCRIPTOR_LIST(X)                                                                   \
    X(CUDNN_CONV, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                         \
    X(CUDNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                            \
    X(CUDNN_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                         \
    X(CUDNN_SEARCH, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                        \
    X(CUDNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                      \
    X(CUDNN_FORWARD, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                   \
    X(CUDNN_WEIGHT, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)            \
    X(CUDNN_INPUT, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)               \
    X(CUDNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                    \
    X(CUDNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                       \
    X(CUDNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)

/* Those of the three operations: alpha, beta, convolution, and three tensors, one after the other. */
#define CUDNN_ATTRIBUTE_LIST(X)                                                                    \
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
    X(CUDNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                   \
    X(CUDNN_GRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                         \
    X(CUDNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                               \
    X(CUDNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                         \
    X(CUDNN_TENSOR_SIZES, CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                       \
    X(CUDNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES, 903)                                        \
    X(CUDNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                           \
    X(CUDNN_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                    \
    X(CUDNN_PACK_DATA, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                \
    X(CUDNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                               \
    X(CUDNN_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)

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
