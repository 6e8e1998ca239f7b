/* images.h: what the build embeds (embed.py): kernels that nvcc compiled, or where there was no nvcc
 * their sources, for NVRTC. */
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
/* nvrtc.c: compiles a module from its sources for an architecture; *ret_cubin is malloc'ed. */
tn_status cuda_nvrtc_compile(const char *module, int major, int minor, void **ret_cubin);

#endif
