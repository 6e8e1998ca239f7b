/* images.h: where kernels come from: what the build embeds (embed.py), which is what nvcc compiled, or
 * where there was no nvcc the sources; and NVRTC. */
#ifndef CUDA_IMAGES_H
#define CUDA_IMAGES_H

#include "cuda_priv.h"

typedef struct cuda_embedded {
    const char *name; /* of a module ("map_f32"), or of a source file ("map.cu") */
    const char *data;
    uint64_t bytes; /* without the 0 behind them */
} cuda_embedded;
extern const cuda_embedded cuda_embedded_modules[], cuda_embedded_sources[]; /* end: no name */

/* A module that nvcc compiled, or NULL. */
const void *cuda_image_find(const char *name);
/* nvrtc.c: compiles a module from its sources for a device; *ret_cubin is malloc'ed. */
tn_status cuda_nvrtc_compile(const char *module, const cuda_device *d, void **ret_cubin);

/* A program whose source is not embedded. */
typedef struct cuda_program {
    const char *title; /* "name.cu", for messages */
    const char *source;
    const char *const *options; /* of NVRTC, beyond the architecture and the language */
    int noptions;
    bool is_ours; /* it has our headers, and our kernels' options */
} cuda_program;

/* The same for a program. On failure *ret_log may be the compiler's whole log, malloc'ed. */
tn_status cuda_nvrtc_program(const cuda_program *p, const cuda_device *d, void **ret_cubin,
                             char **ret_log);
/* module.c: compiles a program and loads one kernel of it; the module stays loaded. */
tn_status cuda_program_load(const cuda_program *p, cuda_device *d, const char *kernel,
                            CUfunction *ret_function, char **ret_log);

#endif
