/* ipc.c: "tn.ipc/1": a block of another process's arena, whose file this process maps too. As with
 * memory of our own, Tenon gets addresses that cannot be read, and kernels a second mapping. */
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct handle {
    char magic[8];
    int32_t process, file;
    uint64_t device, inode; /* of the arena's file, which proves that it is still the same */
    uint64_t at, bytes;     /* of the block's data in it */
} handle;
_Static_assert(sizeof(handle) <= TN_IPC_HANDLE_BYTES, "the interface has room for it");

static const char magic[8] = "tnsim-1";

static tn_status ipc_share(void *ctx, int32_t index, void *data, void *ret_handle) {
    sim_device *d = sim_device_at(index);
    handle h = {.process = getpid(), .file = d->memory.file};
    struct stat info;
    sim_block *b = NULL;
    (void)ctx;
    memcpy(h.magic, magic, sizeof magic);
    pthread_mutex_lock(&d->lock);
    unsigned char *p = sim_memory_reach(d, data, 0, 0, 0, &b);
    if (p && b) {
        h.at = (uint64_t)(p - d->memory.face);
        h.bytes = b->bytes;
    }
    pthread_mutex_unlock(&d->lock);
    if (!p) return TN_E_INTERNAL;
    if (!b || fstat(h.file, &info) != 0) return TN_DECLINE; /* another process's own memory */
    h.device = info.st_dev;
    h.inode = info.st_ino;
    memset(ret_handle, 0, TN_IPC_HANDLE_BYTES);
    memcpy(ret_handle, &h, sizeof h);
    return TN_OK;
}

static tn_status refuse(const char *why) {
    return sim_host->fail(TN_E_VALUE, -1, "%s cannot open that memory: %s", sim_settings.name, why);
}

/* The arena of a handle; -1 after a failure was recorded. */
static int open_arena(const handle *h) {
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h->process, (int)h->file);
    int file = memcmp(h->magic, magic, sizeof magic) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    bool same = file >= 0 && fstat(file, &info) == 0 && info.st_dev == h->device &&
                info.st_ino == h->inode && h->bytes <= (uint64_t)info.st_size &&
                h->at <= (uint64_t)info.st_size - h->bytes;
    if (same) return file;
    if (file >= 0) close(file);
    (void)refuse("it is no handle of this device, or the process is gone");
    return -1;
}

static tn_status ipc_open(void *ctx, int32_t index, const void *bytes, void **ret_data) {
    sim_device *d = sim_device_at(index);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    handle h;
    (void)ctx;
    memcpy(&h, bytes, sizeof h);
    int file = open_arena(&h);
    if (file < 0) return TN_E_VALUE;
    sim_import *i = calloc(1, sizeof *i);
    if (!i) {
        close(file);
        return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    }
    i->skip = h.at % page;
    i->bytes = h.bytes;
    i->room = i->skip + (h.bytes ? h.bytes : 1);
    i->host_face = mmap(NULL, i->room, PROT_NONE, MAP_SHARED, file, (off_t)(h.at - i->skip));
    i->face =
        mmap(NULL, i->room, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(h.at - i->skip));
    close(file);
    if (i->host_face == MAP_FAILED || i->face == MAP_FAILED) {
        if (i->host_face != MAP_FAILED) munmap(i->host_face, i->room);
        if (i->face != MAP_FAILED) munmap(i->face, i->room);
        free(i);
        return refuse("it cannot be mapped");
    }
    pthread_mutex_lock(&d->lock);
    i->next = d->memory.imports;
    d->memory.imports = i;
    pthread_mutex_unlock(&d->lock);
    *ret_data = i->host_face + i->skip;
    return TN_OK;
}

static void ipc_close(void *ctx, int32_t index, void *data) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    sim_settle(d); /* queued work may use it */
    pthread_mutex_lock(&d->lock);
    sim_import **at = &d->memory.imports, *i;
    while ((i = *at) && i->host_face + i->skip != data) at = &i->next;
    if (i) *at = i->next;
    pthread_mutex_unlock(&d->lock);
    if (!i) return;
    munmap(i->host_face, i->room);
    munmap(i->face, i->room);
    free(i);
}

const tn_ipc_iface sim_ipc_iface = {
    .struct_size = sizeof sim_ipc_iface,
    .share = ipc_share,
    .open = ipc_open,
    .close = ipc_close,
};
