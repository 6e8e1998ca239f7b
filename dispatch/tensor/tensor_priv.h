/* tensor_priv.h: storages, headers of tensors, generators. */
#ifndef TENON_TENSOR_PRIV_H
#define TENON_TENSOR_PRIV_H

#include "device_priv.h"

/* ---- storage.c, tensor.c -----------------------------------------------------------------------*/
/* Both trade with *spare: a struct that is taken when there is one, and kept when there is none. */
tn_status tni_storage_new(tn_device device, uint64_t bytes, tn_storage **spare,
                          tn_storage **ret_storage);
void tni_storage_unref(tn_storage *s, tn_storage **spare);
static inline tn_storage *tni_storage_ref(tn_storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}
/* A tensor header without storage: geometry set, flags of the word computed. strides NULL: packed. */
tn_status tni_header_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                         const int64_t *strides, tn_tensor **ret_tensor);
/* A view header over t's storage; offset in elements of dtype, from t's element 0. Not recorded. */
tn_status tni_view_new(const tn_tensor *t, int32_t dtype, int32_t ndim, const int64_t *shape,
                       const int64_t *strides, int64_t offset, tn_tensor **ret_tensor);
/* The same data without history (shares the version counter). */
tn_status tni_detach(const tn_tensor *t, tn_tensor **ret_tensor);
/* Recomputes TN_W_CONTIGUOUS, TN_W_CHANNELS_LAST, TN_W_DENSE and numel from shape and strides. */
void tni_tensor_refresh(tn_tensor *t);
/* tn_tensor_lies_channels_last. */
bool tni_lies_channels_last(const tn_view *v);
/* A number as a 0-d tensor in caller memory; valid as an operand while `ret` and s live. */
void tni_scalar_tensor(tn_scalar s, tn_tensor *ret, void *payload16);
/* Strides that `like` would give a dense tensor of this shape under `format`. */
void tni_format_strides(int32_t format, const tn_view *like, int32_t ndim, const int64_t *shape,
                        int64_t *strides);

/* A new tensor of a packed model's shape, on its device, in `dtype`; the same memory format. */
tn_status tni_tensor_like(const tn_tensor *model, int32_t dtype, tn_tensor **ret_tensor);
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
bool tni_shape_is(const tn_tensor *t, int32_t ndim, const int64_t *shape);
/* Whether v, broadcast to that shape, leaves a result's dimensions in the order of rows. */
bool tni_rows_first(const tn_view *v, int32_t ndim, const int64_t *shape);
/* Gives a packed new tensor the dimension order of n operands that broadcast to it. */
void tni_like_layout(tn_tensor *t, const tn_view *const *like, int n);

/* ---- generator.c -------------------------------------------------------------------------------*/
tn_status tni_rng_acquire(const tn_call *call, tn_generator *gen, uint64_t blocks, tn_rng *ret_rng);
void tni_rng_release(tn_generator *gen);
/* What a call of a device that runs on the CPU and names no generator draws from: the device's
 * default one where it has a method of its own, else NULL, the CPU's. */
tn_generator *tni_generator_of_staged(tn_device device);
/* The device whose call the thread runs on the CPU from now on (slot 0: none); returns the one before. */
tn_device tni_generator_stage(tn_device device);

#endif
