/* real_driver.c: the symbols of the driver and of cuBLASLt that NVIDIA's cuDNN looks up before it plans.
 * They do nothing; modules and kernels get addresses that nobody follows. */
#include <stddef.h>
#include <stdint.h>

#define NOTHING(name)                                                                              \
    int name(void);                                                                                \
    int name(void) { return 0; }

#define DRIVER_LIST(X)                                                                             \
    X(cuModuleUnload)                                                                              \
    X(cuTensorMapEncodeTiled)                                                                      \
    X(cuTensorMapEncodeIm2col)                                                                     \
    X(cuCtxGetCurrent) X(cuCtxGetLimit) X(cuCtxPopCurrent) X(cuCtxPushCurrent) X(cuDeviceGet)      \
        X(cuDeviceGetCount) X(cuKernelSetAttribute) X(cuLaunchCooperativeKernel) X(cuLaunchKernel) \
            X(cuLaunchKernelEx) X(cuLibraryLoadFromFile) X(cuLibraryUnload) X(cuLinkAddData)       \
                X(cuLinkComplete) X(cuLinkCreate) X(cuLinkDestroy)                                 \
                    X(cuOccupancyMaxPotentialClusterSize) X(cuStreamGetCtx) X(cuStreamGetGreenCtx)
#define LT_LIST(X)                                                                                 \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetProperty)                                                                         \
    X(cublasLtMatmul) X(cublasLtGroupedMatrixLayoutCreate) X(cublasLtMatmulAlgoGetHeuristic)       \
        X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescGetAttribute) \
            X(cublasLtMatmulDescInit_internal) X(cublasLtMatmulDescSetAttribute)                   \
                X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)               \
                    X(cublasLtMatmulPreferenceInit_internal)                                       \
                        X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate)      \
                            X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutGetAttribute)     \
                                X(cublasLtMatrixLayoutInit_internal)                               \
                                    X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatrixTransform) \
                                        X(cublasLtMatrixTransformDescCreate)                       \
                                            X(cublasLtMatrixTransformDescDestroy)                  \
                                                X(cublasLtMatrixTransformDescGetAttribute)         \
                                                    X(cublasLtMatrixTransformDescInit_internal)    \
                                                        X(cublasLtMatrixTransformDescSetAttribute)
DRIVER_LIST(NOTHING)
LT_LIST(NOTHING)

static int give_address(void **ret) {
    *ret = (void *)(uintptr_t)4096;
    return 0;
}
#define GIVES(name)                                                                                \
    int name(void **ret);                                                                          \
    int name(void **ret) { return give_address(ret); }
GIVES(cuLibraryGetKernel)
GIVES(cuLibraryLoadData)
GIVES(cuKernelGetFunction)
GIVES(cuModuleLoadData)
GIVES(cuModuleGetFunction)

int cuInit(unsigned flags);
int cuInit(unsigned flags) { return (int)flags; }

int cuDriverGetVersion(int *ret_version);
int cuDriverGetVersion(int *ret_version) {
    *ret_version = 13000;
    return 0;
}

int cuKernelGetAttribute(int *ret_value);
int cuKernelGetAttribute(int *ret_value) {
    *ret_value = 128;
    return 0;
}

int cuGetErrorString(int result, const char **ret_text);
int cuGetErrorString(int result, const char **ret_text) {
    *ret_text = result ? "an error" : "no error";
    return 0;
}

int cuGetErrorName(int result, const char **ret_text);
int cuGetErrorName(int result, const char **ret_text) { return cuGetErrorString(result, ret_text); }

/* A table that begins with its size and holds nothing. */
int cuGetExportTable(const void **ret_table, const void *id);
int cuGetExportTable(const void **ret_table, const void *id) {
    static const size_t table[] = {sizeof(size_t), 0};
    (void)id;
    *ret_table = table;
    return 0;
}

size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void) { return 130000; }
