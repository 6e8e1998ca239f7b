/* copy_priv.h: values from one tensor into another (copy.c, foreign.c). */
#ifndef TENON_COPY_PRIV_H
#define TENON_COPY_PRIV_H

#include "tensor_priv.h"

/* dst = src with broadcasting and conversion; nothing recorded, no version counted. */
tn_status tni_copy_into(tn_tensor *dst, const tn_tensor *src);
/* The same, and nobody waits for a copy between a device and its pinned memory. */
tn_status tni_copy_queued(tn_tensor *dst, const tn_tensor *src);
/* Foreign dtypes (foreign.c): t as elements of a built-in dtype, for copies; and dst = src, of the
 * same shape on the CPU, where one of the dtypes is a plugin's. */
tn_status tni_as_units(const tn_tensor *t, tn_tensor **ret_tensor);
tn_status tni_foreign_cast(tn_tensor *dst, const tn_tensor *src);
/* A packed tensor with t's values in dtype. */
tn_status tni_convert(const tn_tensor *t, int32_t dtype, tn_tensor **ret_tensor);
/* t itself (a new reference) when packed, else a packed copy. */
tn_status tni_packed(tn_tensor *t, tn_tensor **ret_tensor);
/* Every element of t = value. Nothing recorded, no version counted. */
tn_status tni_fill(tn_tensor *t, tn_scalar value);

#endif
