/* run.h: long runs of bytes, copied. */
#ifndef CPU_RUN_H
#define CPU_RUN_H

#include <stdint.h>
#include <string.h>

/* memcpy of runs that may be long. The C library has the processor copy those (rep movsb), which takes ten times
 * as long where they go a few bytes behind their place in a page: loads wait for stores that seem to be to the
 * same place. There, blocks move from the last to the first, so that no load follows such a store. */
void cpu_copy_apart(void *dst, const void *src, size_t bytes);
static inline void cpu_copy_run(void *dst, const void *src, size_t bytes) {
    if (bytes > 2048 && ((uintptr_t)dst - (uintptr_t)src) % 4096 - 1 < 63)
        cpu_copy_apart(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

#endif
