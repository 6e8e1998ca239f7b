/* module.c: modules and their kernels. Those of the plugin lie in this very library and are found by
 * name; a program that nvrtc.c compiled is a shared object, which is opened from memory. */
#include "module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../backends/cuda/host/driver.h"
#include "cubin.h"
#include "grid.h"

struct CUmod_st {
    void *library;
};

/* The file behind the descriptor stays open: its name must not come to mean another one. */
static void *open_image(const host_cubin *head) {
    char path[40];
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!f || fwrite(head + 1, 1, head->bytes, f) != head->bytes || fflush(f) != 0) return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "CUDA host harness: %s\n", dlerror());
    return library;
}

static void *open_self(void) {
    Dl_info self;
    if (!dladdr((void *)(uintptr_t)open_self, &self)) return NULL;
    return dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

CUresult cuModuleLoadData(CUmodule *ret_module, const void *image) {
    host_cubin head = {0, 0};
    if (!image) return CUDA_BAD_VALUE;
    struct CUmod_st *m = calloc(1, sizeof *m);
    if (!m) return CUDA_NO_MEMORY;
    memcpy(&head.magic, image, strnlen(image, sizeof head.magic)); /* it may be any text */
    m->library = head.magic == HOST_CUBIN_MAGIC ? open_image(image) : open_self();
    *ret_module = m;
    return m->library ? CUDA_OK : CUDA_BAD_IMAGE;
}

static void *symbol(void *library, const char *kernel, const char *suffix) {
    char name[200];
    snprintf(name, sizeof name, "%s%s", kernel, suffix);
    return dlsym(library, name);
}

/* A kernel of ours has one parameter. */
static bool find_ours(struct CUfunc_st *f, void *library) {
    void *entry = symbol(library, f->name, "");
    const size_t *bytes = symbol(library, f->name, "_bytes");
    if (!entry || !bytes) return false;
    memcpy(&f->entry, &entry, sizeof entry);
    f->nparams = 1;
    f->bytes = f->param[0].bytes = *bytes;
    return true;
}

/* A kernel of the user has any, which cuda_host.h describes. */
static bool find_users(struct CUfunc_st *f, void *library) {
    void *entry = symbol(library, f->name, "_entry");
    const size_t *count = symbol(library, f->name, "_count");
    const size_t *sizes = symbol(library, f->name, "_sizes");
    if (!entry || !count || !sizes || *count > HOST_PARAMS) return false;
    memcpy(&f->entry, &entry, sizeof entry);
    f->nparams = *count;
    for (size_t i = 0; i < f->nparams; i++) {
        f->param[i].at = f->bytes;
        f->param[i].bytes = sizes[i];
        f->bytes += (sizes[i] + 15) / 16 * 16;
    }
    return true;
}

CUresult cuModuleGetFunction(CUfunction *ret_function, CUmodule module, const char *name) {
    struct CUfunc_st *f = calloc(1, sizeof *f);
    const char *const *image = dlsym(module->library, "host_image");
    if (!f) return CUDA_NO_MEMORY;
    f->name = strdup(name);
    f->shared_most = HOST_SHARED;
    if (!find_ours(f, module->library) && !find_users(f, module->library)) {
        fprintf(stderr, "CUDA host harness: there is no kernel '%s'\n", name);
        free((void *)(uintptr_t)f->name);
        free(f);
        return CUDA_NOT_FOUND;
    }
    if (image) {
        f->image = image[0];
        f->image_bytes = (size_t)(image[1] - image[0]);
    }
    *ret_function = f;
    return CUDA_OK;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    if (attribute != CUDA_DYNAMIC_SHARED || value < 0) return CUDA_BAD_VALUE;
    return (unsigned)value <= f->shared_most ? CUDA_OK : CUDA_BAD_VALUE;
}
