/* memory.h: the device memory of the harness; memory_find and its like are in grid.h. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_DEVICES = 2, HOST_PINNED = 2 /* memory of the host that devices reach */ };

/* False when the device has no room: TENON_CUDA_HOST_MEMORY bytes, 1 GiB without it. */
bool memory_alloc(int device, size_t bytes, uintptr_t *ret_data);
/* False when no block begins there. */
bool memory_free(uintptr_t data);
void memory_info(int device, size_t *ret_free, size_t *ret_total);

#endif
