/* cubin.h: what the stand-in for NVRTC hands to the stand-in for the driver: this, and behind it the
 * bytes of a shared object. */
#ifndef CUBIN_H
#define CUBIN_H

#include <stdint.h>

#define HOST_CUBIN_MAGIC UINT64_C(0x6e6962756374736f)
typedef struct host_cubin {
    uint64_t magic, bytes;
} host_cubin;

#endif
