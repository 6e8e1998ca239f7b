/* cudnn_rnn.h: the part of cuDNN 9 that computes recurrent networks, as facts, like cudnn.h. */
#ifndef CUDA_CUDNN_RNN_H
#define CUDA_CUDNN_RNN_H

#include "cudnn.h"

#if !defined(CUDNN_MAJOR)
typedef unsigned cudnnDataType_t;
typedef unsigned cudnnMathType_t;
typedef unsigned cudnnRNNAlgo_t;
typedef unsigned cudnnRNNMode_t;
typedef unsigned cudnnRNNBiasMode_t;
typedef unsigned cudnnDirectionMode_t;
typedef unsigned cudnnRNNInputMode_t;
typedef unsigned cudnnRNNDataLayout_t;
typedef unsigned cudnnForwardMode_t;
typedef unsigned cudnnWgradMode_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;
#endif

/* X(our name, NVIDIA's name, value). Modes are the numbers of the operator `_rnn_layers`. */
#define CUDNN_RNN_VALUE_LIST(X)                                                                    \
    X(CUDNN_RNN_STANDARD, CUDNN_RNN_ALGO_STANDARD, 0)                                              \
    X(CUDNN_RNN_OF_RELU, CUDNN_RNN_RELU, 0)                                                        \
    X(CUDNN_RNN_OF_TANH, CUDNN_RNN_TANH, 1)                                                        \
    X(CUDNN_RNN_OF_LSTM, CUDNN_LSTM, 2)                                                            \
    X(CUDNN_RNN_OF_GRU, CUDNN_GRU, 3)                                                              \
    X(CUDNN_RNN_WITHOUT_BIAS, CUDNN_RNN_NO_BIAS, 0)                                                \
    X(CUDNN_RNN_WITH_BIASES, CUDNN_RNN_DOUBLE_BIAS, 2)                                             \
    X(CUDNN_RNN_ONE_WAY, CUDNN_UNIDIRECTIONAL, 0)                                                  \
    X(CUDNN_RNN_BOTH_WAYS, CUDNN_BIDIRECTIONAL, 1)                                                 \
    X(CUDNN_RNN_MULTIPLIES_INPUT, CUDNN_LINEAR_INPUT, 0)                                           \
    X(CUDNN_RNN_PACKED, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 1)                                 \
    X(CUDNN_RNN_FOR_RESULTS, CUDNN_FWD_MODE_INFERENCE, 0)                                          \
    X(CUDNN_RNN_FOR_GRADIENTS, CUDNN_FWD_MODE_TRAINING, 1)                                         \
    X(CUDNN_RNN_ADD, CUDNN_WGRAD_MODE_ADD, 0)                                                      \
    X(CUDNN_MATH_DEFAULT, CUDNN_DEFAULT_MATH, 0)                                                   \
    X(CUDNN_MATH_TENSOR_CORES, CUDNN_TENSOR_OP_MATH, 1)                                            \
    X(CUDNN_MATH_FMA, CUDNN_FMA_MATH, 3)

#define CUDNN_RNN_ENUMERATOR(ours, theirs, value) ours = value,
enum { CUDNN_RNN_VALUE_LIST(CUDNN_RNN_ENUMERATOR) };
#undef CUDNN_RNN_ENUMERATOR

/* X(member, symbol of libcudnn, type of its result, parameters) */
#define CUDNN_RNN_LIST(X)                                                                          \
    X(create_tensor, cudnnCreateTensorDescriptor, cudnnStatus_t, (cudnnTensorDescriptor_t * ret))  \
    X(set_tensor, cudnnSetTensorNdDescriptor, cudnnStatus_t,                                       \
      (cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int dims, const int *sizes,           \
       const int *strides))                                                                        \
    X(destroy_tensor, cudnnDestroyTensorDescriptor, cudnnStatus_t,                                 \
      (cudnnTensorDescriptor_t tensor))                                                            \
    X(create_dropout, cudnnCreateDropoutDescriptor, cudnnStatus_t,                                 \
      (cudnnDropoutDescriptor_t * ret))                                                            \
    X(set_dropout, cudnnSetDropoutDescriptor, cudnnStatus_t,                                       \
      (cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float p, void *states,              \
       size_t bytes, unsigned long long seed))                                                     \
    X(destroy_dropout, cudnnDestroyDropoutDescriptor, cudnnStatus_t,                               \
      (cudnnDropoutDescriptor_t dropout))                                                          \
    X(create_rnn, cudnnCreateRNNDescriptor, cudnnStatus_t, (cudnnRNNDescriptor_t * ret))           \
    X(set_rnn, cudnnSetRNNDescriptor_v8, cudnnStatus_t,                                            \
      (cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,                    \
       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,         \
       cudnnDataType_t type, cudnnDataType_t compute, cudnnMathType_t math, int32_t features,      \
       int32_t hidden, int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout,        \
       uint32_t flags))                                                                            \
    X(destroy_rnn, cudnnDestroyRNNDescriptor, cudnnStatus_t, (cudnnRNNDescriptor_t rnn))           \
    X(create_data, cudnnCreateRNNDataDescriptor, cudnnStatus_t, (cudnnRNNDataDescriptor_t * ret))  \
    X(set_data, cudnnSetRNNDataDescriptor, cudnnStatus_t,                                          \
      (cudnnRNNDataDescriptor_t data, cudnnDataType_t type, cudnnRNNDataLayout_t layout,           \
       int steps, int samples, int width, const int *lengths, void *padding))                      \
    X(destroy_data, cudnnDestroyRNNDataDescriptor, cudnnStatus_t, (cudnnRNNDataDescriptor_t data)) \
    X(temporary_sizes, cudnnGetRNNTempSpaceSizes, cudnnStatus_t,                                   \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,                    \
       cudnnRNNDataDescriptor_t x, size_t * ret_workspace, size_t * ret_reserve))                  \
    X(weight_size, cudnnGetRNNWeightSpaceSize, cudnnStatus_t,                                      \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t * ret_bytes))                        \
    X(weight_place, cudnnGetRNNWeightParams, cudnnStatus_t,                                        \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t layer, size_t bytes,                \
       const void *space, int32_t linear, cudnnTensorDescriptor_t matrix, void **ret_matrix,       \
       cudnnTensorDescriptor_t bias, void **ret_bias))                                             \
    X(forward, cudnnRNNForward, cudnnStatus_t,                                                     \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,                    \
       const int32_t *lengths, cudnnRNNDataDescriptor_t x_data, const void *x,                     \
       cudnnRNNDataDescriptor_t y_data, void *y, cudnnTensorDescriptor_t h_tensor, const void *hx, \
       void *hy, cudnnTensorDescriptor_t c_tensor, const void *cx, void *cy, size_t weight_bytes,  \
       const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve))   \
    X(backward_data, cudnnRNNBackwardData_v8, cudnnStatus_t,                                       \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t *lengths,                     \
       cudnnRNNDataDescriptor_t y_data, const void *y, const void *dy,                             \
       cudnnRNNDataDescriptor_t x_data, void *dx, cudnnTensorDescriptor_t h_tensor,                \
       const void *hx, const void *dhy, void *dhx, cudnnTensorDescriptor_t c_tensor,               \
       const void *cx, const void *dcy, void *dcx, size_t weight_bytes, const void *weights,       \
       size_t work_bytes, void *work, size_t reserve_bytes, void *reserve))                        \
    X(backward_weights, cudnnRNNBackwardWeights_v8, cudnnStatus_t,                                 \
      (cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t mode,                      \
       const int32_t *lengths, cudnnRNNDataDescriptor_t x_data, const void *x,                     \
       cudnnTensorDescriptor_t h_tensor, const void *hx, cudnnRNNDataDescriptor_t y_data,          \
       const void *y, size_t weight_bytes, void *dweights, size_t work_bytes, void *work,          \
       size_t reserve_bytes, void *reserve))

typedef struct cuda_cudnn_rnn {
#define CUDNN_RNN_MEMBER(member, symbol, result, params) result(*member) params;
    CUDNN_RNN_LIST(CUDNN_RNN_MEMBER)
#undef CUDNN_RNN_MEMBER
} cuda_cudnn_rnn;

#endif
