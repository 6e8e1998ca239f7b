/* dnn.c: opens cuDNN; handles and descriptors. */
#include "dnn.h"

#include <pthread.h>
#include <stdio.h>

enum { OLDEST_CUDNN = 90000 };

static const cuda_symbol symbols[] = {
#define SYMBOL(member, symbol, result, params) {#symbol, offsetof(cuda_cudnn, member)},
    CUDNN_LIST(SYMBOL)
#undef SYMBOL
};
static cuda_cudnn cudnn;
static enum { NOT_ASKED, USABLE, UNUSABLE } state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, in_use = PTHREAD_MUTEX_INITIALIZER;
static cudnnHandle_t handles[CUDA_DEVICES];

/* Which version it is, or what is wrong, for people. */
static char report[200];

/* cuDNN opens cuBLASLt and NVRTC of its toolkit by name, and ends the process where the former cannot be
 * found: so both are opened before, where we look for libraries. */
static bool open_companions(int toolkit) {
    const int versions[] = {toolkit, 0};
    cuda_open_library("libnvrtc", versions);
    return cuda_open_library("libcublasLt", versions) != NULL;
}

static bool open_library(void) {
    static const int versions[] = {9, 0};
    void *library = cuda_open_library("libcudnn", versions);
    const char *missing =
        library ? cuda_find_symbols(library, symbols, sizeof symbols / sizeof symbols[0], &cudnn)
                : NULL;
    int v = library && !missing ? (int)cudnn.version() : 0;
    int toolkit = v ? (int)cudnn.toolkit() / 1000 : 0;
    bool usable = v >= OLDEST_CUDNN && open_companions(toolkit);
    if (!library)
        snprintf(report, sizeof report, "is missing");
    else if (missing)
        snprintf(report, sizeof report, "lacks the function %s", missing);
    else if (v < OLDEST_CUDNN)
        snprintf(report, sizeof report, "is older than 9.0");
    else if (!usable)
        snprintf(report, sizeof report, "needs libcublasLt.so.%d, which is missing", toolkit);
    else
        snprintf(report, sizeof report, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return usable;
}

const cuda_cudnn *cuda_cudnn_open(void) {
    pthread_mutex_lock(&lock);
    if (state == NOT_ASKED) state = open_library() ? USABLE : UNUSABLE;
    bool usable = state == USABLE;
    pthread_mutex_unlock(&lock);
    return usable ? &cudnn : NULL;
}

int32_t cuda_cudnn_version(void) {
    const cuda_cudnn *api = cuda_cudnn_open();
    return api ? (int32_t)api->version() : 0;
}

void cuda_cudnn_describe(char *ret_text, size_t room) {
    const char *advice = cuda_cudnn_open()
                             ? ""
                             : " (own kernels compute convolutions): pip install nvidia-cudnn-cu13 "
                               "nvidia-cublas";
    snprintf(ret_text, room, "cuDNN %s%s\n", report, advice);
}

void cuda_dnn_lock(void) { pthread_mutex_lock(&in_use); }
void cuda_dnn_unlock(void) { pthread_mutex_unlock(&in_use); }

cudnnHandle_t cuda_cudnn_handle(const cuda_device *d, void *stream) {
    cudnnHandle_t *h = &handles[d->index];
    if (!*h && cudnn.create_handle(h) != CUDNN_OK) *h = NULL;
    return *h && cudnn.set_stream(*h, stream) == CUDNN_OK ? *h : NULL;
}

/* ---- Descriptors -------------------------------------------------------------------------------*/

cudnnBackendDescriptor_t cuda_dnn_make(cuda_dnn_build *b, unsigned type) {
    cudnnBackendDescriptor_t d = NULL;
    if (b->status == CUDNN_OK && b->n == CUDNN_MOST_MADE) b->status = CUDNN_BAD_PARAM;
    if (b->status == CUDNN_OK) b->status = b->api->create(type, &d);
    if (b->status == CUDNN_OK) b->made[b->n++] = d;
    return d;
}

void cuda_dnn_set(cuda_dnn_build *b, cudnnBackendDescriptor_t d, unsigned name, unsigned type,
                  int64_t n, const void *elements) {
    if (b->status == CUDNN_OK) b->status = b->api->set(d, name, type, n, elements);
}

void cuda_dnn_link(cuda_dnn_build *b, cudnnBackendDescriptor_t d, unsigned name,
                   cudnnBackendDescriptor_t to) {
    cuda_dnn_set(b, d, name, CUDNN_IS_DESCRIPTOR, 1, &to);
}

void cuda_dnn_finish(cuda_dnn_build *b, cudnnBackendDescriptor_t d) {
    if (b->status == CUDNN_OK) b->status = b->api->finalize(d);
}

int64_t cuda_dnn_get(cuda_dnn_build *b, cudnnBackendDescriptor_t d, unsigned name, unsigned type,
                     int64_t room, void *ret_elements) {
    int64_t n = 0;
    if (b->status == CUDNN_OK) b->status = b->api->get(d, name, type, room, &n, ret_elements);
    return b->status == CUDNN_OK ? n : 0;
}

int32_t cuda_dnn_type(int32_t dtype) {
    switch (dtype) {
    case TN_F16: return CUDNN_F16;
    case TN_BF16: return CUDNN_BF16;
    case TN_F64: return CUDNN_F64;
    default: return CUDNN_F32;
    }
}

cudnnBackendDescriptor_t cuda_dnn_make_tensor(cuda_dnn_build *b, const cuda_dnn_tensor *tensor) {
    cudnnBackendDescriptor_t d = cuda_dnn_make(b, CUDNN_TENSOR);
    cuda_dnn_set(b, d, CUDNN_TENSOR_TYPE, CUDNN_IS_DATA_TYPE, 1, &tensor->type);
    cuda_dnn_set(b, d, CUDNN_TENSOR_SIZES, CUDNN_IS_INT64, tensor->dims, tensor->size);
    cuda_dnn_set(b, d, CUDNN_TENSOR_STRIDES, CUDNN_IS_INT64, tensor->dims, tensor->stride);
    cuda_dnn_set(b, d, CUDNN_TENSOR_ID, CUDNN_IS_INT64, 1, &tensor->id);
    cuda_dnn_set(b, d, CUDNN_TENSOR_ALIGNMENT, CUDNN_IS_INT64, 1, &tensor->alignment);
    if (tensor->passing)
        cuda_dnn_set(b, d, CUDNN_TENSOR_VIRTUAL, CUDNN_IS_BOOL, 1, &tensor->passing);
    if (tensor->by_value)
        cuda_dnn_set(b, d, CUDNN_TENSOR_BY_VALUE, CUDNN_IS_BOOL, 1, &tensor->by_value);
    cuda_dnn_finish(b, d);
    return d;
}

cudnnBackendDescriptor_t cuda_dnn_make_graph(cuda_dnn_build *b, cudnnHandle_t handle,
                                             const cudnnBackendDescriptor_t *operations, int n) {
    cudnnBackendDescriptor_t graph = cuda_dnn_make(b, CUDNN_GRAPH);
    cuda_dnn_set(b, graph, CUDNN_GRAPH_OPS, CUDNN_IS_DESCRIPTOR, n, operations);
    cuda_dnn_set(b, graph, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE, 1, &handle);
    cuda_dnn_finish(b, graph);
    return graph;
}

void cuda_dnn_move(cuda_dnn_build *b, cudnnBackendDescriptor_t d, cuda_dnn_build *to) {
    int i = 0;
    while (i < b->n && b->made[i] != d) i++;
    if (i == b->n || to->n == CUDNN_MOST_MADE) return;
    b->made[i] = b->made[--b->n];
    to->made[to->n++] = d;
}

void cuda_dnn_drop(cuda_dnn_build *b, int keep) {
    while (b->n > keep) b->api->destroy(b->made[--b->n]);
}
