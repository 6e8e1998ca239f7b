/* queue.h: streams of the harness: threads that take work in order, and linger at random. Shared by
 * the stand-ins of the driver and of cuBLAS. */
#ifndef QUEUE_H
#define QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "../../backends/cuda/host/driver.h"

/* Queues run(payload) on a stream of the calling thread's current device (NULL: the default one);
 * the payload is copied. Work that finds a fault returns false and fills `problem`. */
typedef bool (*queue_fn)(void *payload, char *problem);
CUresult queue_submit(CUstream stream, queue_fn run, const void *payload, size_t bytes);

/* The device of the stream is lost: all calls that could notice fail from now on. */
void queue_lose(CUstream stream);

/* Whether [at, at + bytes) is live device memory; otherwise fills `problem`. */
bool queue_reach(const char *who, unsigned long long at, size_t bytes, char *problem);

#endif
