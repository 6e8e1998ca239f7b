/* settings.c: the named interface "tenon.cuda/1": what the Python package switches and asks. */
#include "cuda_priv.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv.h"
#include "dnn.h"
#include "gemm.h"

/* ---- Options -----------------------------------------------------------------------------------*/

static struct {
    const char *name, *variable;
    atomic_int value;
} options[] = {
#define OPTION(id, name, variable, value) {name, variable, value},
    CUDA_OPTION_LIST(OPTION)
#undef OPTION
};

int32_t cuda_option_value(cuda_option option) { return atomic_load(&options[option].value); }

static void set_option(const char *name, int32_t value) {
    for (int i = 0; i < CUDA_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) atomic_store(&options[i].value, value);
}

static int32_t option(const char *name) {
    for (int i = 0; i < CUDA_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) return atomic_load(&options[i].value);
    return 0;
}

/* ---- Libraries ---------------------------------------------------------------------------------*/

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

static bool expandable, keeps_memory;

/* "expandable_segments:True,...": the options of PyTorch's variable, of which this is the one that is
 * known here; the others tune an allocator of another make. */
static bool asks_for_ranges(const char *text) {
    static const char wanted[] = "expandable_segments:";
    const char *at = text ? strstr(text, wanted) : NULL;
    if (!at) return false;
    at += sizeof wanted - 1;
    while (*at == ' ') at++;
    return strncmp(at, "True", 4) == 0 || strncmp(at, "true", 4) == 0;
}

void cuda_read_settings(void) {
    const char *text = cuda_getenv("TENON_CUDA_TF32"), *memory = cuda_getenv("TENON_CUDA_ALLOC");
    cuda_allow_tf32(text && strcmp(text, "1") == 0);
    for (int i = 0; i < CUDA_OPTIONS; i++) {
        const char *value = cuda_getenv(options[i].variable);
        if (value) atomic_store(&options[i].value, atoi(value));
    }
    expandable = asks_for_ranges(memory ? memory : cuda_getenv("PYTORCH_CUDA_ALLOC_CONF"));
    text = cuda_getenv("TENON_MEMORY_CACHE");
    keeps_memory = !text || strcmp(text, "0") != 0;
    cuda_columns_settings();
}

bool cuda_settings_expandable(const cuda_device *d) { return expandable && d->maps; }

bool cuda_settings_keeps_memory(void) { return keeps_memory; }

const cuda_settings_iface cuda_settings = {
    .struct_size = sizeof cuda_settings,
    .allow_tf32 = cuda_allow_tf32,
    .is_tf32_allowed = cuda_is_tf32_allowed,
    .libraries = describe_libraries,
    .set_option = set_option,
    .option = option,
    .cudnn_version = cuda_cudnn_version,
};
