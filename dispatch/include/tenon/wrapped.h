/* tenon/wrapped.h: tensors that a host language makes of others, and whose operators it computes.
 *
 * Such a tensor is a header with sizes, a dtype and a device but no memory. A call with one among its
 * arguments is handed to the host below the tape: what the host returns is recorded as the operator's
 * results, and the operator's gradient is made of calls that come to the host in the same way.
 * A thread can ask for all of its calls to come there, whatever their tensors are. */
#ifndef TENON_WRAPPED_H
#define TENON_WRAPPED_H

#include <tenon/ops_meta.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_LAYOUT_WRAPPED 6 /* beside those of enum tn_layout, which users can name */

/* How a call comes to the host. */
typedef enum tn_wrapped_ask {
    TN_WRAPPED_PARTS, /* recorded; TN_DECLINE: it does not make this operator of others */
    TN_WRAPPED_WHOLE, /* unrecorded */
    TN_WRAPPED_EITHER, /* unrecorded; TN_DECLINE: the core makes it of its parts, which come singly */
    TN_WRAPPED_SEEN    /* nothing is recorded afterwards, so that results stay what they are */
} tn_wrapped_ask;
typedef tn_status (*tn_wrapped_call)(tn_wrapped_ask ask, const tn_op_info *op, const void *args,
                                     int inplace, tn_tensor **rets);
TN_API void tn_wrapped_set_call(tn_wrapped_call call);
/* Whether all calls of this thread come to the host; returns what it was. During a call that has
 * come there it is off. */
TN_API int tn_wrapped_watch(int on);

/* A new tensor (strides NULL: packed). ctx is what the host knows it and all its aliases by;
 * end(ctx) when the last of them is gone, from any thread. */
TN_API tn_status tn_wrapped_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                                const int64_t *strides, void (*end)(void *ctx), void *ctx,
                                tn_tensor **ret_tensor);
TN_API void *tn_wrapped_ctx(const tn_tensor *t); /* NULL: t is no such tensor */

#ifdef __cplusplus
}
#endif
#endif
