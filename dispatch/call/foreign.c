/* foreign.c: values of dtypes that plugins add. No kernel knows them: they are copied as units of a
 * built-in dtype of the same size, and converted through the plugin's two functions to and from f32. */
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
        strides[i] = t->v.strides[i] * each;
    }
    if (each > 1) {
        shape[n] = each;
        strides[n++] = 1;
    }
    return tni_view_new(t, unit, n, shape, strides, 0, ret_tensor);
}

/* dst, f32 and packed, from a packed foreign src; or the other way. */
static tn_status convert(tn_tensor *dst, const tn_tensor *src) {
    const tn_dtype_desc *from = tni_dtype_desc(tn_view_dtype(&src->v));
    const tn_dtype_desc *to = tni_dtype_desc(tn_view_dtype(&dst->v));
    int64_t in = tn_view_itemsize(&src->v), out = tn_view_itemsize(&dst->v);
    for (int64_t i = 0; i < src->v.numel; i += CHUNK) {
        int64_t n = src->v.numel - i < CHUNK ? src->v.numel - i : CHUNK;
        const void *s = (const char *)src->v.data + i * in;
        void *d = (char *)dst->v.data + i * out;
        TN_TRY(tni_host_poll());
        if (from)
            from->to_f32(s, d, n);
        else
            to->from_f32(s, d, n);
    }
    return TN_OK;
}

tn_status tni_foreign_cast(tn_tensor *dst, const tn_tensor *src) {
    tn_tensor *packed = NULL, *made = NULL;
    const bool decode = tni_dtype_desc(tn_view_dtype(&src->v)) != NULL;
    tn_status st = decode ? tni_packed(tni_t(&src->v), &packed) : tni_convert(src, TN_F32, &packed);
    if (st == TN_OK)
        st = tni_tensor_new_fast(decode ? TN_F32 : tn_view_dtype(&dst->v), tn_tensor_device(dst),
                                 dst->v.ndim, dst->v.shape, &made);
    if (st == TN_OK) st = convert(made, packed);
    if (st == TN_OK && tni_tls.watcher) st = tni_tls.watcher->convert(convert, made, packed);
    if (st == TN_OK) st = tni_copy_into(dst, made);
    tn_tensor_unref(&packed);
    tn_tensor_unref(&made);
    return st;
}
