/* library.c: opens NVIDIA's libraries and fills tables of their functions. Nothing of CUDA is linked,
 * so that the module loads everywhere and can say what is missing. */
#include "cuda_priv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const int cuda_toolkit_versions[] = {13, 12, 0};

void *cuda_open_library(const char *stem, const int *versions) {
    return cuda_look_for(stem, versions, cuda_getenv("TENON_CUDA_PATH"));
}

tn_status cuda_open_toolkit(const cuda_toolkit_library *library, void *ret_table) {
    void *found = cuda_open_library(library->stem, cuda_toolkit_versions);
    if (!found) return cuda_host->fail(TN_E_DEVICE, -1, "%s", library->without);
    const char *missing = cuda_find_symbols(found, library->symbols, library->nsymbols, ret_table);
    if (!missing) return TN_OK;
    return cuda_host->fail(TN_E_DEVICE, -1, "%s lacks the function %s", library->title, missing);
}

/* ---- The driver --------------------------------------------------------------------------------*/

#define DRIVER_SYMBOL(member, symbol, params) {#symbol, offsetof(cuda_driver, member)},
static const cuda_symbol driver_symbols[] = {CUDA_DRIVER_LIST(DRIVER_SYMBOL)};

enum { OLDEST_DRIVER = 12000 }; /* CUDA 12.0 */

static tn_status fill_driver(void *library) {
    int version = 0;
    CUresult (*ask)(int *) = NULL;
    void *address = dlsym(library, "cuDriverGetVersion");
    memcpy(&ask, &address, sizeof ask);
    if (!ask || ask(&version) != CUDA_OK || version < OLDEST_DRIVER)
        return cuda_host->fail(
            TN_E_DEVICE, -1,
            "the CUDA driver is too old: it knows CUDA %d.%d and 12.0 is needed; "
            "install NVIDIA's driver 525 or newer",
            version / 1000, version % 1000 / 10);
    const char *missing = cuda_find_symbols(
        library, driver_symbols, sizeof driver_symbols / sizeof driver_symbols[0], &cuda);
    if (missing)
        return cuda_host->fail(TN_E_DEVICE, -1,
                               "libcuda.so.1 (CUDA %d.%d) lacks the function %s; "
                               "install a newer driver of NVIDIA's",
                               version / 1000, version % 1000 / 10, missing);
    return TN_OK;
}

tn_status cuda_open_driver(int *ret_count) {
    static const int versions[] = {1, 0};
    void *library = cuda_open_library("libcuda", versions);
    if (!library)
        return cuda_host->fail(TN_E_DEVICE, -1,
                               "there is no CUDA driver (libcuda.so.1): install NVIDIA's driver, "
                               "version 525 or newer, on a machine with a GPU");
    tn_status st = fill_driver(library);
    if (st != TN_OK) return st;
    int count = 0;
    CUresult r = cuda.init(0);
    if (r == CUDA_OK) r = cuda.device_count(&count);
    if (r == CUDA_NO_DEVICE || (r == CUDA_OK && count == 0))
        return cuda_host->fail(TN_E_DEVICE, -1,
                               "the CUDA driver finds no GPU (see nvidia-smi and "
                               "CUDA_VISIBLE_DEVICES)");
    if (r != CUDA_OK) return cuda_fail(NULL, r, "starting the driver");
    *ret_count = count < CUDA_DEVICES ? count : CUDA_DEVICES;
    return TN_OK;
}
