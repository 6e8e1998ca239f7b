/* memory.h: what the allocator (memory.c) and its sources of memory (segment.c) share. */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include <pthread.h>

#include "cuda_priv.h"

/* A stream, not the block's own, that has work which uses the block; its event is there once the
 * block was freed. */
typedef struct cuda_use {
    struct cuda_use *next;
    CUstream stream;
    CUevent event;
} cuda_use;

typedef enum cuda_block_state {
    CUDA_BLOCK_FREE,
    CUDA_BLOCK_USED,
    CUDA_BLOCK_WAITS, /* freed, but other streams may still use it */
    CUDA_BLOCK_HOLE,  /* addresses without memory */
} cuda_block_state;

/* A piece of a segment. */
typedef struct cuda_block {
    struct cuda_segment *segment;
    struct cuda_block *prev, *next;           /* neighbours in the segment */
    struct cuda_block *prev_free, *next_free; /* of a bin; of those that wait (next_free) */
    struct cuda_block *next_found;            /* of those in use, by address */
    CUdeviceptr data;
    uint64_t bytes, asked;
    cuda_block_state state;
    cuda_use *uses;
} cuda_block;

/* Memory that came from the driver in one piece, or a range of addresses into which memory is mapped
 * as it is needed. */
typedef struct cuda_segment {
    struct cuda_pool *pool;
    struct cuda_segment *next;
    cuda_block *first;
    CUdeviceptr data;
    uint64_t bytes, unit; /* unit: what is mapped at once; 0: it came in one piece */
} cuda_segment;

/* Small and large blocks of a stream are kept apart, so that a small one does not hold a segment that
 * would serve a large one. Bins are by size, four for each power of two. */
enum { CUDA_BINS = 256 };
typedef struct cuda_pool {
    struct cuda_memory *memory;
    struct cuda_pool *next;
    CUstream stream;
    bool small, orphan; /* orphan: its stream is gone, the next new one takes it over */
    cuda_segment *segments;
    uint64_t filled[CUDA_BINS / 64]; /* which bins hold something */
    cuda_block *bins[CUDA_BINS];
} cuda_pool;

enum { CUDA_FOUND = 4096 };
typedef struct cuda_memory {
    pthread_mutex_t lock;
    cuda_device *device;
    cuda_pool *pools;
    cuda_block *waiting;
    cuda_block *found[CUDA_FOUND]; /* blocks in use, by address */
    uint64_t limit;                /* most bytes to hold; 0: all there are */
    uint64_t retries, failures, segments;
    tn_memory_stats stats;
} cuda_memory;

/* ---- segment.c; the lock is held, the device is current -----------------------------------------*/
/* Gives the pool at least `bytes` in one free block. CUDA_NO_MEMORY where there is no room. */
CUresult cuda_segment_grow(cuda_pool *pool, uint64_t bytes);
/* Gives what lies free back to the driver; how many bytes. Waits for the device. */
uint64_t cuda_segment_shrink(cuda_pool *pool);

/* ---- memory.c, for segment.c --------------------------------------------------------------------*/
/* A block in the list of its segment behind `after`, NULL: the first. NULL: out of host memory. */
cuda_block *cuda_block_insert(cuda_segment *s, cuda_block *after, CUdeviceptr data, uint64_t bytes,
                              cuda_block_state state);
void cuda_block_remove(cuda_block *b);
/* Puts a free block into its bin, together with free neighbours, and takes it out again. */
cuda_block *cuda_block_keep(cuda_block *b);
void cuda_block_take(cuda_block *b);
/* Bytes that the driver gave, or took back. */
void cuda_memory_hold(cuda_memory *m, int64_t bytes);

#endif
