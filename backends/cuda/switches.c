/* switches.c: the named interface "tenon.cuda/1": what the Python package switches and asks. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dnn.h"
#include "tables.h"

/* Libraries beside the driver; the last member is what a machine without them should install. */
static const struct {
    const char *title, *stem, *use, *package;
} libraries[] = {
    {"cuBLAS", "libcublas", "matrix products", "nvidia-cublas"},
    {"cuBLASLt", "libcublasLt", "products that add a bias in the same step", "nvidia-cublas"},
    {"NVRTC", "libnvrtc", "kernels that the build did not compile", "nvidia-cuda-nvrtc"},
};

static void describe(size_t i, char *text, size_t room) {
    for (const int *v = cuda_toolkit_versions; *v; v++) {
        const int one[] = {*v, 0};
        if (!cuda_open_library(libraries[i].stem, one)) continue;
        snprintf(text, room, "%s %d", libraries[i].title, *v);
        return;
    }
    snprintf(text, room, "%s is missing (%s): pip install %s", libraries[i].title, libraries[i].use,
             libraries[i].package);
}

static const char *describe_libraries(void) {
    static char text[900];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t at = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        describe(i, text + at, sizeof text - at - 1);
        at += strlen(text + at);
        text[at++] = '\n';
        text[at] = '\0';
    }
    cuda_cudnn_describe(text + at, sizeof text - at);
    pthread_mutex_unlock(&lock);
    return text;
}

const cuda_settings_iface cuda_settings = {
    .struct_size = sizeof cuda_settings,
    .allow_tf32 = cuda_allow_tf32,
    .is_tf32_allowed = cuda_is_tf32_allowed,
    .libraries = describe_libraries,
    .set_option = cuda_set_option,
    .option = cuda_option_named,
    .cudnn_version = cuda_cudnn_version,
};
