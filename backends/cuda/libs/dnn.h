/* dnn.h: cuDNN, opened when it is first asked for. A machine without it has our own kernels. */
#ifndef CUDA_DNN_H
#define CUDA_DNN_H

#include "cuda_priv.h"
#include "cudnn.h"

/* The functions of cuDNN, or NULL where it is not to be had. */
const cuda_cudnn *cuda_cudnn_open(void);
/* Its version (92800), or 0. */
int32_t cuda_cudnn_version(void);
/* A line for people: which version is there, or what is wrong. */
void cuda_cudnn_describe(char *ret_text, size_t room);
/* Whoever uses a handle holds the lock. */
void cuda_dnn_lock(void);
void cuda_dnn_unlock(void);
/* The handle of a device, whose work goes to `stream`; NULL: cuDNN does not start. The device is
 * current, and the lock is held. */
cudnnHandle_t cuda_cudnn_handle(const cuda_device *d, void *stream);

/* Descriptors that are made together. After the first failure nothing more is done; `status` keeps
 * it. */
enum { CUDNN_MOST_MADE = 112 };
typedef struct cuda_dnn_build {
    const cuda_cudnn *api;
    int status;
    int n;
    cudnnBackendDescriptor_t made[CUDNN_MOST_MADE];
} cuda_dnn_build;

cudnnBackendDescriptor_t cuda_dnn_make(cuda_dnn_build *b, unsigned type);
void cuda_dnn_set(cuda_dnn_build *b, cudnnBackendDescriptor_t d, unsigned name, unsigned type,
                  int64_t n, const void *elements);
/* The same for one descriptor. */
void cuda_dnn_link(cuda_dnn_build *b, cudnnBackendDescriptor_t d, unsigned name,
                   cudnnBackendDescriptor_t to);
void cuda_dnn_finish(cuda_dnn_build *b, cudnnBackendDescriptor_t d);
/* How many elements there are, at most `room`, which are written. */
int64_t cuda_dnn_get(cuda_dnn_build *b, cudnnBackendDescriptor_t d, unsigned name, unsigned type,
                     int64_t room, void *ret_elements);
/* cuDNN's number for an element type. */
int32_t cuda_dnn_type(int32_t dtype);
/* A tensor of a graph. */
enum { CUDNN_MOST_DIMS = 5 };
typedef struct cuda_dnn_tensor {
    int64_t id, dims, alignment, size[CUDNN_MOST_DIMS], stride[CUDNN_MOST_DIMS];
    int32_t type;  /* of elements */
    bool passing;  /* from one operation to the next, never in memory */
    bool by_value; /* one element, which the host has */
} cuda_dnn_tensor;
cudnnBackendDescriptor_t cuda_dnn_make_tensor(cuda_dnn_build *b, const cuda_dnn_tensor *tensor);
cudnnBackendDescriptor_t cuda_dnn_make_graph(cuda_dnn_build *b, cudnnHandle_t handle,
                                             const cudnnBackendDescriptor_t *operations, int n);
/* d is one of `to` from now on. */
void cuda_dnn_move(cuda_dnn_build *b, cudnnBackendDescriptor_t d, cuda_dnn_build *to);
/* Destroys what was made, all but the first `keep`. */
void cuda_dnn_drop(cuda_dnn_build *b, int keep);

#endif
