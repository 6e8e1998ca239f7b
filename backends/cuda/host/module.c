/* module.c: kernels: loads the modules that are embedded in this library (images.h), finds functions
 * by name, launches them. Both are done at first use and kept. */
#include "cuda_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "images.h"

enum { MODULES = 512 };
static struct {
    const char *name;
    CUmodule on[CUDA_DEVICES];
} modules[MODULES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static tn_status load(cuda_device *d, const char *name, CUmodule *ret_module) {
    void *made = NULL;
    const void *image = cuda_image_find(name);
    tn_status st = image ? TN_OK : cuda_nvrtc_compile(name, d, &made);
    if (st != TN_OK) return st;
    CUresult r = cuda.module_load(ret_module, image ? image : made);
    free(made);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "loading kernels");
}

/* Lock held. */
static tn_status find_module(cuda_device *d, const char *name, CUmodule *ret_module) {
    int i = 0;
    while (i < MODULES && modules[i].name && strcmp(modules[i].name, name) != 0) i++;
    if (i == MODULES)
        return cuda_host->fail(TN_E_INTERNAL, -1, "the table of %d modules is full", MODULES);
    modules[i].name = name;
    CUmodule *at = &modules[i].on[d->index];
    tn_status st = *at ? TN_OK : load(d, name, at);
    *ret_module = *at;
    return st;
}

static tn_status find_function(cuda_device *d, cuda_kernel *k, CUfunction *ret_function) {
    CUmodule module = NULL;
    pthread_mutex_lock(&lock);
    tn_status st = find_module(d, k->module, &module);
    if (st == TN_OK) {
        CUresult r = cuda.module_function(ret_function, module, k->name);
        if (r != CUDA_OK) st = cuda_fail(d, r, k->name);
    }
    pthread_mutex_unlock(&lock);
    if (st == TN_OK) atomic_store_explicit(&k->on[d->index], *ret_function, memory_order_release);
    return st;
}

tn_status cuda_program_load(const cuda_program *p, cuda_device *d, const char *kernel,
                            CUfunction *ret_function, char **ret_log) {
    void *cubin = NULL;
    CUmodule module = NULL;
    pthread_mutex_lock(&lock); /* NVRTC is opened by the first who needs it */
    tn_status st = cuda_nvrtc_program(p, d, &cubin, ret_log);
    pthread_mutex_unlock(&lock);
    if (st != TN_OK) return st;
    CUresult r = cuda.module_load(&module, cubin);
    free(cubin);
    if (r != CUDA_OK) return cuda_fail(d, r, "loading kernels");
    r = cuda.module_function(ret_function, module, kernel);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, kernel);
}

tn_status cuda_launch(const tn_call *call, cuda_kernel *k, int64_t blocks, uint32_t threads,
                      const void *args) {
    cuda_device *d = NULL;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    if (blocks > INT32_MAX) return TN_DECLINE;
    CUfunction f = atomic_load_explicit(&k->on[d->index], memory_order_acquire);
    if (!f) st = find_function(d, k, &f);
    if (st != TN_OK) return st;
    void *params[] = {(void *)(uintptr_t)args};
    cuda_count(d, CUDA_LAUNCHES, 1);
    CUresult r =
        cuda.launch(f, (unsigned)blocks, 1, 1, threads, 1, 1, 0, call->stream, params, NULL);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, call->op->name);
}
