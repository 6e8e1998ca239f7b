/* folders.c: where NVIDIA's libraries lie, and their functions. The device's plugin and the engine for
 * NCCL have it, each for itself. */
#define _GNU_SOURCE
#include "folders.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- Folders -----------------------------------------------------------------------------------*/

/* Folders of NVIDIA's Python packages, below the folder that holds the package `tenon`. */
static const char *const package_folders[] = {
    "nvidia/cu13/lib",         "nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cuda_nvrtc/lib",
    "nvidia/cuda_runtime/lib", "nvidia/cu13/lib64", "nvidia/nccl/lib",
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

void *cuda_look_for(const char *stem, const int *versions, const char *path) {
    void *library = NULL;
    for (; *versions && !library; versions++) {
        char name[80];
        snprintf(name, sizeof name, "%s.so.%d", stem, *versions);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = open_in_path(path, name);
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
