/* settings.c: options: what the environment says at first, and the Python package later. */
#include "cuda_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *name, *variable;
    atomic_int value;
} options[] = {
#define OPTION(id, name, variable, value) {name, variable, value},
    CUDA_OPTION_LIST(OPTION)
#undef OPTION
};

int32_t cuda_option_value(cuda_option option) { return atomic_load(&options[option].value); }

void cuda_set_option(const char *name, int32_t value) {
    for (int i = 0; i < CUDA_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) atomic_store(&options[i].value, value);
}

int32_t cuda_option_named(const char *name) {
    for (int i = 0; i < CUDA_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) return atomic_load(&options[i].value);
    return 0;
}

static bool expandable, keeps_memory;
static atomic_int tf32_allowed;
/* What a matrix of columns may take, where not even a single row or column takes more. */
static int64_t conv_bytes = INT64_C(64) << 20;

void cuda_allow_tf32(int32_t allow) { atomic_store(&tf32_allowed, allow); }
int32_t cuda_is_tf32_allowed(void) { return atomic_load(&tf32_allowed); }
int64_t cuda_settings_conv_bytes(void) { return conv_bytes; }

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

/* The whole number from 0 to `most` that a variable says. `other`: it says none, which is told. */
static int64_t number(const char *variable, int64_t most, int64_t other) {
    const char *text = cuda_getenv(variable);
    char *end;
    if (!text || !*text) return other;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno == 0 && *end == '\0' && n >= 0 && n <= most) return n;
    cuda_host->log(2, "%s is '%s', no number from 0 to %lld; ignored", variable, text,
                   (long long)most);
    return other;
}

void cuda_read_settings(void) {
    const char *memory = cuda_getenv("TENON_CUDA_ALLOC");
    cuda_allow_tf32(number("TENON_CUDA_TF32", 1, 0) == 1);
    for (int i = 0; i < CUDA_OPTIONS; i++) {
        int32_t value = atomic_load(&options[i].value);
        atomic_store(&options[i].value, (int)number(options[i].variable, INT32_MAX, value));
    }
    expandable = asks_for_ranges(memory ? memory : cuda_getenv("PYTORCH_CUDA_ALLOC_CONF"));
    keeps_memory = number("TENON_MEMORY_CACHE", 1, 1) == 1;
    int64_t bytes = number("TENON_CUDA_CONV_BYTES", INT64_MAX, 0);
    if (bytes > 0) conv_bytes = bytes;
}

bool cuda_settings_expandable(const cuda_device *d) { return expandable && d->maps; }

bool cuda_settings_keeps_memory(void) { return keeps_memory; }
