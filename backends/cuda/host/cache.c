/* cache.c: files that are kept from process to process: compiled kernels, plans of cuDNN. Nothing depends
 * on them: what is missing or unreadable is made again. */
#include "cuda_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t cuda_cache_hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static bool make_folder(const char *path) {
    struct stat info;
    mkdir(path, 0700);
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

bool cuda_cache_path(const char *file, char ret_path[CUDA_CACHE_PATH]) {
    const char *own = cuda_getenv("TENON_CUDA_CACHE"), *xdg = cuda_getenv("XDG_CACHE_HOME");
    const char *home = cuda_getenv("HOME");
    char folder[CUDA_CACHE_PATH - 160];
    if (own)
        snprintf(folder, sizeof folder, "%s", own);
    else if (xdg && xdg[0] == '/')
        snprintf(folder, sizeof folder, "%s/tenon-cuda", xdg);
    else if (home && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.cache/tenon-cuda", home);
    else
        return false;
    if (!folder[0] || !make_folder(folder)) return false;
    snprintf(ret_path, CUDA_CACHE_PATH, "%s/%.150s", folder, file);
    return true;
}

bool cuda_cache_read(const char *path, void **ret_data, size_t *ret_bytes) {
    struct stat info;
    FILE *f = fopen(path, "rb");
    bool fine = f && fstat(fileno(f), &info) == 0 && info.st_uid == geteuid() && info.st_size > 0;
    void *data = fine ? malloc((size_t)info.st_size) : NULL;
    fine = data && fread(data, 1, (size_t)info.st_size, f) == (size_t)info.st_size;
    if (f) fclose(f);
    if (!fine) {
        free(data);
        return false;
    }
    *ret_data = data;
    *ret_bytes = (size_t)info.st_size;
    return true;
}

/* Under another name first, so that nobody reads half a file. */
void cuda_cache_write(const char *path, const void *data, size_t bytes) {
    char fresh[CUDA_CACHE_PATH + 32];
    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    FILE *f = fopen(fresh, "wb");
    if (!f) return;
    bool fine = fwrite(data, 1, bytes, f) == bytes;
    if (fclose(f) == 0 && fine && rename(fresh, path) == 0) return;
    unlink(fresh);
}
