/* host.c: what everything in the plugin stands on: the host's table, the driver's functions, the
 * environment, and how a result of the driver becomes a failure. */
#define _GNU_SOURCE
#include "cuda_priv.h"

#include <stdlib.h>

const tn_host *cuda_host;
cuda_driver cuda;

/* A process with rights of its own does not take files from where its user's variables say. */
const char *cuda_getenv(const char *name) { return secure_getenv(name); }

/* ---- Failures ----------------------------------------------------------------------------------*/

static const char *text_of(CUresult r) {
    const char *text = NULL;
    return cuda.error_text && cuda.error_text(r, &text) == CUDA_OK && text ? text : "unknown error";
}

/* Failures of work that ran behind the host's back, and of the device itself; core adds which
 * operators that may have been. */
static bool is_late(CUresult r) {
    return (r >= 700 && r <= 720 && r != CUDA_PEER_ENABLED) || r == CUDA_ECC ||
           r == CUDA_CONTAINED || r == CUDA_UNKNOWN;
}

tn_status cuda_fail(const cuda_device *d, CUresult r, const char *what) {
    if (r == CUDA_NO_MEMORY)
        return cuda_host->fail(TN_E_MEMORY, -1, "cuda:%d: %s: out of memory", d ? d->index : 0,
                               what);
    if (!d) return cuda_host->fail(TN_E_DEVICE, -1, "%s: %s (CUDA error %d)", what, text_of(r), r);
    if (is_late(r))
        return cuda_host->fail(
            TN_ASYNC, -1,
            "cuda:%d: %s (CUDA error %d), found by %s; nothing on this device can "
            "be used any more",
            d->index, text_of(r), r, what);
    return cuda_host->fail(TN_E_DEVICE, -1, "cuda:%d: %s: %s (CUDA error %d)", d->index, what,
                           text_of(r), r);
}
