/* real_driver.c: the symbols of the driver and of cuBLASLt that NVIDIA's cuDNN looks up before it plans.
 * They do nothing; modules and kernels get addresses that nobody follows. */
#include <stddef.h>
#include <stdint.h>

#define NOTHING(name)                                                                              \
    int name(void);                                                                                \
    int name(void) { return 0; }

NOTHING(cuModuleUnload)
NOTHING(cuTensorMapEncodeTiled)
NOTHING(cuTensorMapEncodeIm2col)
NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuDeviceGetCount)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
NOTHING(cuStreamGetGreenCtx)
NOTHING(cublasLtCreate)
NOTHING(cublasLtDestroy)
NOTHING(cublasLtGetProperty)
NOTHING(cublasLtMatmul)
NOTHING(cublasLtGroupedMatrixLayoutCreate)
NOTHING(cublasLtMatmulAlgoGetHeuristic)
NOTHING(cublasLtMatmulDescCreate)
NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescGetAttribute)
NOTHING(cublasLtMatmulDescInit_internal)
NOTHING(cublasLtMatmulDescSetAttribute)
NOTHING(cublasLtMatmulPreferenceCreate)
NOTHING(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceInit_internal)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
NOTHING(cublasLtMatrixLayoutCreate)
NOTHING(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutGetAttribute)
NOTHING(cublasLtMatrixLayoutInit_internal)
NOTHING(cublasLtMatrixLayoutSetAttribute)
NOTHING(cublasLtMatrixTransform)
NOTHING(cublasLtMatrixTransformDescCreate)
NOTHING(cublasLtMatrixTransformDescDestroy)
NOTHING(cublasLtMatrixTransformDescGetAttribute)
NOTHING(cublasLtMatrixTransformDescInit_internal)
NOTHING(cublasLtMatrixTransformDescSetAttribute)

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
