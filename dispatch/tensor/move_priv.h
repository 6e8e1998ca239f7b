/* move_priv.h: bytes from one storage into another, on whatever devices they are. */
#ifndef TENON_MOVE_PRIV_H
#define TENON_MOVE_PRIV_H

#include "tensor_priv.h"

typedef struct tni_move {
    tn_storage *dst, *src; /* not the same device, unless that is the CPU */
    uint64_t dst_at, src_at, bytes;
} tni_move;

/* Through host memory where there is no other way. Queued on the calling thread's streams; a copy
 * into host memory waits. */
tn_status tni_move_bytes(const tni_move *m);
/* The same, and nobody waits where one side is memory of the host that the other's device reaches. */
tn_status tni_move_queued(const tni_move *m);

#endif
