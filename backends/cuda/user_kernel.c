/* user_kernel.c: the named interface "tenon.cuda.kernel/1": kernels whose source the user brings. */
#include "images.h"
#include "tables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel and all that it was made of. */
typedef struct user_kernel {
    struct user_kernel *next;
    CUfunction function;
    int32_t device;
    char *key; /* the source and the options */
    char name[];
} user_kernel;

static user_kernel *kernels; /* guarded by the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char *key_of(const char *source, const char *const *options, int32_t n) {
    size_t room = strlen(source) + 1, at = 0;
    for (int32_t i = 0; i < n; i++) room += strlen(options[i]) + 1;
    char *key = malloc(room);
    if (!key) return NULL;
    for (int32_t i = -1; i < n; i++) {
        const char *text = i < 0 ? source : options[i];
        memcpy(key + at, text, strlen(text));
        at += strlen(text);
        key[at++] = i + 1 < n ? '\n' : '\0';
    }
    return key;
}

static user_kernel *find(int32_t device, const char *name, const char *key) {
    user_kernel *k;
    pthread_mutex_lock(&lock);
    for (k = kernels; k; k = k->next)
        if (k->device == device && strcmp(k->name, name) == 0 && strcmp(k->key, key) == 0) break;
    pthread_mutex_unlock(&lock);
    return k;
}

/* Takes over the key. */
static user_kernel *keep(int32_t device, const char *name, char *key, CUfunction f) {
    user_kernel *k = calloc(1, sizeof *k + strlen(name) + 1);
    if (!k) return NULL;
    k->function = f;
    k->device = device;
    k->key = key;
    memcpy(k->name, name, strlen(name) + 1);
    pthread_mutex_lock(&lock);
    k->next = kernels;
    kernels = k;
    pthread_mutex_unlock(&lock);
    return k;
}

static tn_status compile(int32_t device, const char *source, const char *name,
                         const char *const *options, int32_t noptions, void **ret_kernel,
                         char *ret_log, uint64_t room) {
    const cuda_program p = {
        .title = "kernel.cu", .source = source, .options = options, .noptions = noptions};
    cuda_device *d = NULL;
    CUfunction f = NULL;
    char *log = NULL, *key = NULL;
    user_kernel *k = NULL;
    snprintf(ret_log, room, "%s", "");
    tn_status st = cuda_enter(device, &d);
    if (st != TN_OK) return st;
    if (!(key = key_of(source, options, noptions))) goto out;
    if (!(k = find(device, name, key))) {
        st = cuda_program_load(&p, d, name, &f, &log);
        if (log) snprintf(ret_log, room, "%s", log);
        if (st == TN_OK && (k = keep(device, name, key, f))) key = NULL;
    }
    *ret_kernel = k;
out:
    free(key);
    free(log);
    if (st == TN_OK && !k) return cuda_host->fail(TN_E_MEMORY, -1, "out of memory");
    return st;
}

static tn_status launch(int32_t device, void *kernel, const uint32_t grid[3],
                        const uint32_t block[3], uint32_t shared, void *stream, void **params) {
    enum { USUAL = 48 * 1024 }; /* what every kernel may have without asking */
    const user_kernel *k = kernel;
    cuda_device *d = NULL;
    CUresult r = CUDA_OK;
    tn_status st = cuda_enter(device, &d);
    if (st != TN_OK) return st;
    if (shared > USUAL) r = cuda.function_set(k->function, CUDA_DYNAMIC_SHARED, (int)shared);
    if (r == CUDA_OK)
        r = cuda.launch(k->function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                        shared, stream, params, NULL);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, k->name);
}

const cuda_kernel_iface cuda_kernels_of_users = {
    .struct_size = sizeof cuda_kernels_of_users,
    .compile = compile,
    .launch = launch,
};
