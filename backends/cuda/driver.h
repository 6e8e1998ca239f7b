/* driver.h: the part of the CUDA driver that we call, as facts: types, constants and functions. A
 * machine that builds this needs no toolkit. Where NVIDIA's <cuda.h> was included before, its types
 * are taken, so that a test can compare every line. */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <stddef.h>

#if !defined(CUDA_VERSION)
typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
#endif

/* X(our name, NVIDIA's name, value) */
#define CUDA_RESULT_LIST(X)                                                                        \
    X(CUDA_OK, CUDA_SUCCESS, 0)                                                                    \
    X(CUDA_BAD_VALUE, CUDA_ERROR_INVALID_VALUE, 1)                                                 \
    X(CUDA_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)                                                 \
    X(CUDA_ENDED, CUDA_ERROR_DEINITIALIZED, 4)                                                     \
    X(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                                                   \
    X(CUDA_BAD_IMAGE, CUDA_ERROR_INVALID_IMAGE, 200)                                               \
    X(CUDA_BAD_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201)                                           \
    X(CUDA_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                           \
    X(CUDA_BAD_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)                                             \
    X(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                                                   \
    X(CUDA_NOT_READY, CUDA_ERROR_NOT_READY, 600)                                                   \
    X(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                       \
    X(CUDA_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                              \
    X(CUDA_ASSERTED, CUDA_ERROR_ASSERT, 710)                                                       \
    X(CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719)                                           \
    X(CUDA_UNSUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)

#define CUDA_ATTRIBUTE_LIST(X)                                                                     \
    X(CUDA_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                 \
    X(CUDA_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                \
    X(CUDA_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)

#define CUDA_FLAG_LIST(X)                                                                          \
    X(CUDA_STREAM_APART, CU_STREAM_NON_BLOCKING, 1)                                                \
    X(CUDA_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING, 2)                                              \
    X(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)

#define CUDA_ENUMERATOR(ours, theirs, value) ours = value,
enum {
    CUDA_RESULT_LIST(CUDA_ENUMERATOR) CUDA_ATTRIBUTE_LIST(CUDA_ENUMERATOR)
        CUDA_FLAG_LIST(CUDA_ENUMERATOR)
};
#undef CUDA_ENUMERATOR

/* X(member, symbol of libcuda, parameters) */
#define CUDA_DRIVER_LIST(X)                                                                        \
    X(init, cuInit, (unsigned flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int *ret_version))                                      \
    X(error_text, cuGetErrorString, (CUresult code, const char **ret_text))                        \
    X(device_count, cuDeviceGetCount, (int *ret_count))                                            \
    X(device_get, cuDeviceGet, (CUdevice * ret_device, int index))                                 \
    X(device_name, cuDeviceGetName, (char *ret_name, int room, CUdevice device))                   \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * ret_bytes, CUdevice device))                   \
    X(device_attribute, cuDeviceGetAttribute,                                                      \
      (int *ret_value, CUdevice_attribute attribute, CUdevice device))                             \
    X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext * ret_context, CUdevice device))        \
    X(context_set, cuCtxSetCurrent, (CUcontext context))                                           \
    X(context_sync, cuCtxSynchronize, (void))                                                      \
    X(memory_info, cuMemGetInfo_v2, (size_t * ret_free, size_t * ret_total))                       \
    X(memory_alloc, cuMemAlloc_v2, (CUdeviceptr * ret_data, size_t bytes))                         \
    X(memory_free, cuMemFree_v2, (CUdeviceptr data))                                               \
    X(host_alloc, cuMemHostAlloc, (void **ret_data, size_t bytes, unsigned flags))                 \
    X(host_free, cuMemFreeHost, (void *data))                                                      \
    X(copy_in, cuMemcpyHtoDAsync_v2,                                                               \
      (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))                           \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream)) \
    X(copy_within, cuMemcpyDtoDAsync_v2,                                                           \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                           \
    X(copy_peer, cuMemcpyPeerAsync,                                                                \
      (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,               \
       CUstream stream))                                                                           \
    X(can_peer, cuDeviceCanAccessPeer, (int *ret_can, CUdevice device, CUdevice peer))             \
    X(stream_create, cuStreamCreateWithPriority,                                                   \
      (CUstream * ret_stream, unsigned flags, int priority))                                       \
    X(stream_priorities, cuCtxGetStreamPriorityRange, (int *ret_least, int *ret_greatest))         \
    X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                       \
    X(stream_sync, cuStreamSynchronize, (CUstream stream))                                         \
    X(stream_query, cuStreamQuery, (CUstream stream))                                              \
    X(stream_wait, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))            \
    X(event_create, cuEventCreate, (CUevent * ret_event, unsigned flags))                          \
    X(event_destroy, cuEventDestroy_v2, (CUevent event))                                           \
    X(event_record, cuEventRecord, (CUevent event, CUstream stream))                               \
    X(event_sync, cuEventSynchronize, (CUevent event))                                             \
    X(event_query, cuEventQuery, (CUevent event))                                                  \
    X(event_elapsed, cuEventElapsedTime, (float *ret_ms, CUevent start, CUevent end))              \
    X(module_load, cuModuleLoadData, (CUmodule * ret_module, const void *image))                   \
    X(module_function, cuModuleGetFunction,                                                        \
      (CUfunction * ret_function, CUmodule module, const char *name))                              \
    X(launch, cuLaunchKernel,                                                                      \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **params,        \
       void **extra))

typedef struct cuda_driver {
#define CUDA_MEMBER(member, symbol, params) CUresult(*member) params;
    CUDA_DRIVER_LIST(CUDA_MEMBER)
#undef CUDA_MEMBER
} cuda_driver;

#endif
