/* pinned_priv.h: host memory that a device reaches by itself. */
#ifndef TENON_PINNED_PRIV_H
#define TENON_PINNED_PRIV_H

#include "move_priv.h"

/* Copies between a device and its pinned memory on the calling thread's stream, and returns before
 * that is done. TN_DECLINE: the device does not reach the memory. */
tn_status tni_pinned_move(const tni_move *m);
/* An uninitialised tensor on the CPU, of v's shape, in memory that the device of a slot reaches; -1:
 * the first device that has such memory. On a page boundary where there is none. The format suits
 * v. */
tn_status tni_pinned_like(const tn_view *v, int32_t dtype, int64_t format, int32_t slot,
                          tn_tensor **ret_tensor);

#endif
