/* pack.c: packed copies of strided tensors. */
#include "pack.h"

#include "row.h"

tn_status cpu_packed(const tn_call *call, const tn_view *v, const void **ret_data) {
    *ret_data = v->data;
    if (tn_view_is_contiguous(v) || v->numel == 0) return TN_OK;
    int64_t item = tn_view_itemsize(v), index[TN_MAX_DIMS] = {0};
    int32_t last = v->ndim - 1;
    int64_t n = v->shape[last];
    void *p;
    tn_status st = room_scratch(call, v->numel, (size_t)item, &p);
    if (st) return st;
    char *dst = p;
    for (int64_t row = 0; row < v->numel / n; row++, dst += n * item) {
        int64_t at = 0;
        for (int32_t d = 0; d < last; d++) at += index[d] * v->strides[d];
        cpu_row_copy(item, (const char *)v->data + at * item, v->strides[last], dst, 1, n);
        for (int32_t d = last - 1; d >= 0 && ++index[d] == v->shape[d]; d--) index[d] = 0;
    }
    *ret_data = p;
    return TN_OK;
}
