/* foreign.c: values of dtypes that no kernel knows, plugins' and some of the core's own: they are copied as
 * units of a known dtype of the same size, and converted over their bridge (ground/bridge.c). */
#include "copy_priv.h"
#include "plan_priv.h"

enum { CHUNK = 4096 }; /* elements between two looks at whether the user wants to stop */

static int32_t unit_of(int64_t bytes) {
    return bytes % 8 == 0 ? TN_I64 : bytes % 4 == 0 ? TN_I32 : bytes % 2 == 0 ? TN_I16 : TN_U8;
}

tn_status tni_as_units(const tn_tensor *t, tn_tensor **ret_tensor) {
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS], bytes = tn_view_itemsize(&t->v);
    int32_t unit = unit_of(bytes), n = t->v.ndim;
    int64_t each = bytes / tn_dtype_size(unit);
    if (n == TN_MAX_DIMS && each > 1)
        return tn_fail(TN_E_UNSUPPORTED, -1, "%s tensors have at most %d dimensions",
                       tn_dtype_name(tn_view_dtype(&t->v)), TN_MAX_DIMS - 1);
    for (int32_t i = 0; i < n; i++) {
        shape[i] = t->v.shape[i];
        if (__builtin_mul_overflow(t->v.strides[i], each, &strides[i]))
            strides[i] = 0; /* one that nobody walks */
    }
    if (each > 1) {
        shape[n] = each;
        strides[n++] = 1;
    }
    return tni_view_new(t, unit, n, shape, strides, 0, ret_tensor);
}

/* dst, of the bridge's dtype and packed, from a packed foreign src; or the other way. */
static tn_status convert(tn_tensor *dst, const tn_tensor *src) {
    int32_t from = tn_view_dtype(&src->v), to = tn_view_dtype(&dst->v);
    bool decodes = from >= TN_DTYPE_BUILTIN_COUNT;
    tni_bridge b = decodes ? tni_dtype_bridge(from, to) : tni_dtype_bridge(to, from);
    int64_t in = tn_view_itemsize(&src->v), out = tn_view_itemsize(&dst->v);
    for (int64_t i = 0; i < src->v.numel; i += CHUNK) {
        int64_t n = src->v.numel - i < CHUNK ? src->v.numel - i : CHUNK;
        const void *s = (const char *)src->v.data + i * in;
        void *d = (char *)dst->v.data + i * out;
        TN_TRY(tni_host_poll());
        if (decodes)
            tni_bridge_decode(&b, s, d, n);
        else
            tni_bridge_encode(&b, s, d, n);
    }
    return TN_OK;
}

tn_status tni_foreign_cast(tn_tensor *dst, const tn_tensor *src) {
    tn_tensor *packed = NULL, *made = NULL;
    int32_t from = tn_view_dtype(&src->v), to = tn_view_dtype(&dst->v);
    const bool decode = from >= TN_DTYPE_BUILTIN_COUNT;
    int32_t between = decode ? tni_dtype_bridge(from, to).dtype : tni_dtype_bridge(to, from).dtype;
    tn_status st =
        decode ? tni_packed(tni_t(&src->v), &packed) : tni_convert(src, between, &packed);
    if (st == TN_OK)
        st = tni_tensor_new_fast(decode ? between : to, tn_tensor_device(dst), dst->v.ndim,
                                 dst->v.shape, &made);
    if (st == TN_OK) st = convert(made, packed);
    if (st == TN_OK && tni_tls.watcher) st = tni_tls.watcher->convert(convert, made, packed);
    if (st == TN_OK) st = tni_copy_into(dst, made);
    tn_tensor_unref(&packed);
    tn_tensor_unref(&made);
    return st;
}
