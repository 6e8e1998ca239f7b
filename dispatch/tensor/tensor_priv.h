/* tensor_priv.h: what the files of dispatch/ share about tensors beyond core_priv.h. */
#ifndef TENON_TENSOR_PRIV_H
#define TENON_TENSOR_PRIV_H

#include "core_priv.h"
#include "infer_priv.h"

/* A new tensor of a packed model's shape, on its device, in `dtype`; the same memory format. */
tn_status tni_tensor_like(const tn_tensor *model, int32_t dtype, tn_tensor **ret_tensor);
/* Category by slot, without a check. */
extern uint8_t tni_categories[TN_DTYPE_SLOTS];
static inline int32_t tni_category(int32_t dtype) { return tni_categories[dtype]; }
/* tn_tensor_new without the checks: dtype, device and shape are known to be valid. */
tn_status tni_tensor_new_fast(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                              tn_tensor **ret_tensor);
/* Points t at byte `offset` of s, which it then owns. */
void tni_attach(tn_tensor *t, tn_storage *s, uint64_t offset);
/* Where t's element 0 lies in its storage. */
uint64_t tni_offset_bytes(const tn_tensor *t);
tn_status tni_storage_foreign(tn_device device, void *data, uint64_t bytes, uint32_t flags,
                              void (*release)(void *ctx), void *ctx, tn_storage **ret_storage);
/* A number as a 0-d tensor on the heap. */
tn_status tni_scalar_heap(tn_scalar s, tn_tensor **ret_tensor);
/* Tells the host language that a tensor with a dormant header goes away. */
void tni_host_tensor_dying(tn_tensor *t);

#endif
