/* memory_priv.h: memory of devices other than the CPU, which keeps freed memory for reuse itself. */
#ifndef TENON_MEMORY_PRIV_H
#define TENON_MEMORY_PRIV_H

#include "device_priv.h"

/* One block of device memory in use. It knows the stream that it was made for, and which other
 * streams have work that uses it. */
typedef struct tni_block tni_block;

/* What a device's memory needs, by index; NULL: out of memory. */
struct tni_memory *tni_memory_new(const tni_device *dev);
void tni_memory_delete(struct tni_memory *memory);
/* Of a device that is about to be used, or was retired: then nothing is kept for reuse any more. */
void tni_memory_set_active(const tni_device *dev, bool active);
/* A stream was destroyed, and so its work is done. */
void tni_memory_forget_stream(tn_device device, void *stream);

/* bytes > 0, for work on `stream`; the device is ready and manages no memory itself. */
tn_status tni_block_new(tn_device device, uint64_t bytes, void *stream, tni_block **ret_block,
                        void **ret_data);
/* NULL is nothing. */
void tni_block_free(tni_block *b);
/* When it is freed, the block goes back to the device: others may have it mapped. */
void tni_block_keep_single(tni_block *b);
/* Work on `stream`, whichever it is, will use the block. */
tn_status tni_block_use(tni_block *b, void *stream);

/* What was made while a graph was captured by its device (tni_capture_memory): kept for the graph's
 * life. NULL: out of memory. */
typedef struct tni_graph_memory tni_graph_memory;
tni_graph_memory *tni_graph_memory_new(void);
/* The graph is gone; NULL is nothing. */
void tni_graph_memory_end(tni_graph_memory *g);
bool tni_graph_memory_has(const tni_graph_memory *g, const tn_storage *s);

/* tni_block_use for a storage; nothing for memory that is not core's. */
static inline tn_status tni_storage_use(const tn_storage *s, void *stream) {
    return s && (s->flags & TNI_ST_BLOCK) && s->ctx ? tni_block_use(s->ctx, stream) : TN_OK;
}

#endif
