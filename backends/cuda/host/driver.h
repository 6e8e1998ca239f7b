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
typedef int CUfunction_attribute;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUmemAllocationGranularity_flags;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUmemLocation {
    int type, id;
} CUmemLocation;
typedef struct CUmemAllocationProp {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;
typedef struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;
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
    X(CUDA_ECC, CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                 \
    X(CUDA_CONTAINED, CUDA_ERROR_CONTAINED, 226)                                                   \
    X(CUDA_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                           \
    X(CUDA_BAD_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)                                             \
    X(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                                                   \
    X(CUDA_NOT_READY, CUDA_ERROR_NOT_READY, 600)                                                   \
    X(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                       \
    X(CUDA_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                              \
    X(CUDA_ASSERTED, CUDA_ERROR_ASSERT, 710)                                                       \
    X(CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719)                                           \
    X(CUDA_UNSUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)                                             \
    X(CUDA_NOT_CAPTURED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                               \
    X(CUDA_CAPTURE_BROKEN, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                             \
    X(CUDA_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                      \
    X(CUDA_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT, 907)                                         \
    X(CUDA_UNKNOWN, CUDA_ERROR_UNKNOWN, 999)

#define CUDA_ATTRIBUTE_LIST(X)                                                                     \
    X(CUDA_BLOCK_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                            \
    X(CUDA_BLOCK_SHARED, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                       \
    X(CUDA_WARP, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                                \
    X(CUDA_CLOCK, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13)                                              \
    X(CUDA_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                 \
    X(CUDA_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED, 18)                                         \
    X(CUDA_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                            \
    X(CUDA_PCI_DEVICE, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                      \
    X(CUDA_MEMORY_CLOCK, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36)                                \
    X(CUDA_MEMORY_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37)                           \
    X(CUDA_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                        \
    X(CUDA_SM_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)                     \
    X(CUDA_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                      \
    X(CUDA_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                \
    X(CUDA_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                \
    X(CUDA_SM_SHARED, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                \
    X(CUDA_SM_REGISTERS, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 82)                 \
    X(CUDA_MANY_ON_BOARD, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 84)                                 \
    X(CUDA_BLOCK_SHARED_MOST, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)           \
    X(CUDA_HAS_MAPPING, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)

#define CUDA_FLAG_LIST(X)                                                                          \
    X(CUDA_STREAM_APART, CU_STREAM_NON_BLOCKING, 1)                                                \
    X(CUDA_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING, 2)                                              \
    X(CUDA_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                     \
    X(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)                                             \
    X(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                     \
    X(CUDA_CAPTURING, CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                          \
    X(CUDA_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)                                              \
    X(CUDA_PINNED_THERE, CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                         \
    X(CUDA_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                      \
    X(CUDA_GRANULARITY, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)

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
    X(range_reserve, cuMemAddressReserve,                                                          \
      (CUdeviceptr * ret_data, size_t bytes, size_t alignment, CUdeviceptr wish,                   \
       unsigned long long flags))                                                                  \
    X(range_free, cuMemAddressFree, (CUdeviceptr data, size_t bytes))                              \
    X(page_granularity, cuMemGetAllocationGranularity,                                             \
      (size_t * ret_bytes, const CUmemAllocationProp *prop,                                        \
       CUmemAllocationGranularity_flags which))                                                    \
    X(page_create, cuMemCreate,                                                                    \
      (CUmemGenericAllocationHandle * ret_page, size_t bytes, const CUmemAllocationProp *prop,     \
       unsigned long long flags))                                                                  \
    X(page_release, cuMemRelease, (CUmemGenericAllocationHandle page))                             \
    X(page_map, cuMemMap,                                                                          \
      (CUdeviceptr data, size_t bytes, size_t offset, CUmemGenericAllocationHandle page,           \
       unsigned long long flags))                                                                  \
    X(page_unmap, cuMemUnmap, (CUdeviceptr data, size_t bytes))                                    \
    X(page_access, cuMemSetAccess,                                                                 \
      (CUdeviceptr data, size_t bytes, const CUmemAccessDesc *access, size_t n))                   \
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
    X(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))         \
    X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * ret_graph))                     \
    X(capture_status, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * ret_status))  \
    X(graph_destroy, cuGraphDestroy, (CUgraph graph))                                              \
    X(graph_make, cuGraphInstantiateWithFlags,                                                     \
      (CUgraphExec * ret_exec, CUgraph graph, unsigned long long flags))                           \
    X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                            \
    X(graph_end, cuGraphExecDestroy, (CUgraphExec exec))                                           \
    X(module_load, cuModuleLoadData, (CUmodule * ret_module, const void *image))                   \
    X(module_function, cuModuleGetFunction,                                                        \
      (CUfunction * ret_function, CUmodule module, const char *name))                              \
    X(function_set, cuFuncSetAttribute,                                                            \
      (CUfunction function, CUfunction_attribute attribute, int value))                            \
    X(launch, cuLaunchKernel,                                                                      \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **params,        \
       void **extra))

/* X(type, member, where it begins): the structures that the driver reads. */
#define CUDA_LAYOUT_LIST(X)                                                                        \
    X(CUmemLocation, id, 4)                                                                        \
    X(CUmemAllocationProp, location, 8)                                                            \
    X(CUmemAllocationProp, win32HandleMetaData, 16)                                                \
    X(CUmemAllocationProp, allocFlags, 24)                                                         \
    X(CUmemAccessDesc, flags, 8)
#define CUDA_LAYOUT(type, member, at) _Static_assert(offsetof(type, member) == (at), #type);
CUDA_LAYOUT_LIST(CUDA_LAYOUT)
#undef CUDA_LAYOUT
_Static_assert(sizeof(CUmemAllocationProp) == 32 && sizeof(CUmemAccessDesc) == 12, "sizes");

typedef struct cuda_driver {
#define CUDA_MEMBER(member, symbol, params) CUresult(*member) params;
    CUDA_DRIVER_LIST(CUDA_MEMBER)
#undef CUDA_MEMBER
} cuda_driver;

#endif
