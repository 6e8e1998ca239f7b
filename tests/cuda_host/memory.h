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
/* Memory that is mapped into a range of addresses, which lies idle before. */
enum { HOST_PAGE = 65536 };
bool memory_reserve(size_t bytes, uintptr_t *ret_data);
void memory_unreserve(uintptr_t data, size_t bytes);
/* Takes bytes from the device's memory, or gives them back. */
bool memory_claim(int device, size_t bytes);
void memory_disclaim(int device, size_t bytes);
/* [data, data + bytes) may be reached, or no more. */
bool memory_open(int device, uintptr_t data, size_t bytes);
bool memory_close(uintptr_t data, size_t bytes);
void memory_info(int device, size_t *ret_free, size_t *ret_total);

#endif
