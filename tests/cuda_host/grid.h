/* grid.h: between the driver of the host harness (driver.c and its neighbours) and the part that runs
 * kernels (grid.c). */
#ifndef GRID_H
#define GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_TEXT = 400, HOST_THREADS = 1024 };
enum { HOST_SHARED = 48 * 1024 }; /* what a block may have without asking for more */

typedef struct host_launch {
    const char *name;
    void (*entry)(const void *args);
    const void *args;
    size_t args_bytes;
    unsigned grid[3], block[3];
    unsigned shared;   /* bytes of shared memory beside the kernel's own arrays */
    const void *image; /* where constants of the kernel may lie */
    size_t image_bytes;
    bool backwards; /* threads start in falling order, so that no kernel relies on an order */
} host_launch;

/* Runs a grid, block after block. False when a thread did what it must not; ret_problem says what. */
bool grid_run(const host_launch *l, char ret_problem[HOST_TEXT]);

/* memory.c: a live block of device memory that holds [at, at + bytes); fills the block's ends. */
bool memory_find(uintptr_t at, size_t bytes, uintptr_t *ret_begin, uintptr_t *ret_end);
/* How an address lies to the nearest live block, for people. */
void memory_describe(uintptr_t at, char *ret_text, size_t room);
/* Rises whenever the set of live blocks changes. */
uint64_t memory_age(void);

#endif
