/* folders.h: where NVIDIA's libraries lie, and their functions (folders.c). */
#ifndef CUDA_FOLDERS_H
#define CUDA_FOLDERS_H

#include <stddef.h>

/* Opens one of "libX.so.N" for the N of a list that ends with 0, newest first, in the loader's path,
 * the folders of `path` and those of NVIDIA's Python packages. NULL when there is none. */
void *cuda_look_for(const char *stem, const int *versions, const char *path);
typedef struct cuda_symbol {
    const char *name;
    size_t at; /* of the pointer in a table of functions */
} cuda_symbol;
/* Fills a table of functions; returns the name of one that the library lacks, or NULL. */
const char *cuda_find_symbols(void *library, const cuda_symbol *symbols, size_t n, void *ret_table);

#endif
