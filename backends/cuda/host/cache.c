/* cache.c: files that are kept from process to process: compiled kernels, plans of cuDNN. Nothing depends
 * on them: what is missing or unreadable is made again. */
#define _GNU_SOURCE
#include "cuda_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t cuda_cache_hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* What lies in these files runs on the device, so nobody else may have written them. */
static bool theirs_alone(const struct stat *info) {
    return info->st_uid == geteuid() && !(info->st_mode & (S_IWGRP | S_IWOTH));
}

static bool make_folder(const char *path) {
    struct stat info;
    mkdir(path, 0700);
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && theirs_alone(&info);
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
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FILE *f = file >= 0 ? fdopen(file, "rb") : NULL;
    bool fine = f && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && theirs_alone(&info) &&
                info.st_size > 0;
    void *data = fine ? malloc((size_t)info.st_size) : NULL;
    fine = data && fread(data, 1, (size_t)info.st_size, f) == (size_t)info.st_size;
    if (f)
        fclose(f);
    else if (file >= 0)
        close(file);
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
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    int file = mkostemp(fresh, O_CLOEXEC);
    FILE *f = file >= 0 ? fdopen(file, "wb") : NULL;
    if (!f) {
        if (file >= 0) close(file);
        return;
    }
    bool fine = fwrite(data, 1, bytes, f) == bytes;
    if (fclose(f) == 0 && fine && rename(fresh, path) == 0) return;
    unlink(fresh);
}
