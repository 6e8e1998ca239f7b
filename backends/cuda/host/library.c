/* library.c: opens NVIDIA's libraries and fills tables of their functions. Nothing of CUDA is linked,
 * so that the module loads everywhere and can say what is missing. */
#define _GNU_SOURCE
#include "cuda_priv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const int cuda_toolkit_versions[] = {13, 12, 0};

/* ---- Folders -----------------------------------------------------------------------------------*/

/* Folders of NVIDIA's Python packages, below the folder that holds the package `tenon`. */
static const char *const package_folders[] = {
    "nvidia/cu13/lib",       "nvidia/cublas/lib",       "nvidia/cudnn/lib",
    "nvidia/cuda_nvrtc/lib", "nvidia/cuda_runtime/lib", "nvidia/cu13/lib64",
};

static void *open_in(const char *folder, size_t n, const char *name) {
    char path[1024];
    int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, name);
    if (n == 0 || length >= (int)sizeof path) return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_in_path(const char *path, const char *name) {
    void *library = NULL;
    while (path && *path && !library) {
        size_t n = strcspn(path, ":");
        library = open_in(path, n, name);
        path += n + (path[n] == ':');
    }
    return library;
}

/* This module lies in <packages>/tenon/plugins. */
static void *open_beside(const char *name) {
    Dl_info self;
    char folder[1024];
    void *library = NULL;
    if (!dladdr((void *)(uintptr_t)open_beside, &self)) return NULL;
    const char *end = self.dli_fname ? strstr(self.dli_fname, "/tenon/plugins/") : NULL;
    if (!end || end - self.dli_fname > 900) return NULL;
    for (size_t i = 0; i < sizeof package_folders / sizeof package_folders[0] && !library; i++) {
        snprintf(folder, sizeof folder, "%.*s/%s", (int)(end - self.dli_fname), self.dli_fname,
                 package_folders[i]);
        library = open_in(folder, strlen(folder), name);
    }
    return library;
}

void *cuda_open_library(const char *stem, const int *versions) {
    void *library = NULL;
    for (; *versions && !library; versions++) {
        char name[80];
        snprintf(name, sizeof name, "%s.so.%d", stem, *versions);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = open_in_path(cuda_getenv("TENON_CUDA_PATH"), name);
        if (!library) library = open_beside(name);
    }
    return library;
}

const char *cuda_find_symbols(void *library, const cuda_symbol *symbols, size_t n,
                              void *ret_table) {
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address) return symbols[i].name;
        memcpy((char *)ret_table + symbols[i].at, &address, sizeof address);
    }
    return NULL;
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
