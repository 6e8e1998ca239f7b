/* sizes.c: checked arithmetic on shapes. The one place that decides whether a geometry is valid. */
#include <stdio.h>
#include <stdlib.h>

#include "core_priv.h"
#include "os_priv.h"

/* No tensor reaches further than this many bytes. */
#define MAX_BYTES (INT64_C(1) << 62)

tn_status tni_numel(int32_t ndim, const int64_t *shape, int64_t itemsize, int64_t *ret_numel) {
    int64_t n = 1, nonzero = 1;
    if (ndim < 0 || ndim > TN_MAX_DIMS)
        return tn_fail(TN_E_VALUE, -1, "a tensor has 0 to %d dimensions, not %d", TN_MAX_DIMS,
                       (int)ndim);
    for (int32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return tn_fail(TN_E_SHAPE, -1,
                           "Trying to create tensor with negative dimension %lld: %s",
                           (long long)shape[i], tni_shape_text(ndim, shape));
        n *= shape[i] != 0;
        if (shape[i] != 0 && __builtin_mul_overflow(nonzero, shape[i], &nonzero))
            nonzero = MAX_BYTES;
        if (nonzero > MAX_BYTES) nonzero = MAX_BYTES;
    }
    if (n == 0) {
        *ret_numel = 0;
        return TN_OK;
    }
    int64_t bytes;
    if (__builtin_mul_overflow(nonzero, itemsize, &bytes) || bytes >= MAX_BYTES)
        return tn_fail(TN_E_VALUE, -1, "a tensor of shape %s is larger than the address space",
                       tni_shape_text(ndim, shape));
    *ret_numel = nonzero;
    return TN_OK;
}

tn_status tni_wrap_dim(int64_t dim, int32_t ndim, int64_t *ret_dim) {
    int64_t n = ndim > 0 ? ndim : 1;
    if (dim < -n || dim >= n)
        return tn_fail(TN_E_INDEX, -1,
                       "Dimension out of range (expected to be in range of [%lld, %lld], but got "
                       "%lld)",
                       (long long)-n, (long long)(n - 1), (long long)dim);
    *ret_dim = dim < 0 ? dim + n : dim;
    return TN_OK;
}

tn_status tni_dim_mask(tn_ints dims, int32_t ndim, uint64_t *ret_mask) {
    uint64_t mask = 0;
    if (dims.n <= 0) {
        *ret_mask = ndim >= 64 ? UINT64_MAX : (UINT64_C(1) << ndim) - 1;
        return TN_OK;
    }
    for (int64_t i = 0; i < dims.n; i++) {
        int64_t d = 0;
        TN_TRY(tni_wrap_dim(dims.v[i], ndim, &d));
        if (mask & (UINT64_C(1) << d))
            return tn_fail(TN_E_SHAPE, -1, "dim %lld appears multiple times in the list of dims",
                           (long long)d);
        mask |= UINT64_C(1) << d;
    }
    *ret_mask = ndim == 0 ? 0 : mask;
    return TN_OK;
}

tn_status tni_broadcast_shapes(int32_t na, const int64_t *a, int32_t nb, const int64_t *b,
                               int32_t *ret_n, int64_t *shape) {
    int32_t n = na > nb ? na : nb;
    for (int32_t i = 0; i < n; i++) { /* i counts from the last dimension */
        int64_t x = i < na ? a[na - 1 - i] : 1, y = i < nb ? b[nb - 1 - i] : 1;
        if (x != y && x != 1 && y != 1)
            return tn_fail(TN_E_SHAPE, -1,
                           "The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                           "non-singleton dimension %d",
                           (long long)x, (long long)y, (int)(n - 1 - i));
        shape[n - 1 - i] = x == 1 ? y : x;
    }
    *ret_n = n;
    return TN_OK;
}

bool tni_reach(int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t *ret_lo,
               int64_t *ret_hi) {
    int64_t lo = 0, hi = 0;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t span;
        if (shape[i] == 0) {
            *ret_lo = *ret_hi = 0;
            return true;
        }
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &span)) return false;
        if (span < 0 ? __builtin_add_overflow(lo, span, &lo)
                     : __builtin_add_overflow(hi, span, &hi))
            return false;
    }
    *ret_lo = lo;
    return !__builtin_add_overflow(hi, 1, ret_hi);
}

/* Buffers of tni_shape_text. */
static TN_TLS char *ring;
static TN_TLS uint32_t ring_next;

static void free_ring(void) {
    free(ring);
    ring = NULL;
}

const char *tni_shape_text(int32_t ndim, const int64_t *shape) {
    enum { BYTES = 160, BUFFERS = 8 };
    if (!ring) {
        ring = malloc(BYTES * BUFFERS);
        if (!ring) return "[?]";
        tni_os_at_thread_exit(free_ring);
    }
    char *text = ring + BYTES * (ring_next++ % BUFFERS);
    size_t at = 0;
    text[at++] = '[';
    for (int32_t i = 0; i < ndim && at < BYTES - 32; i++) {
        int n = snprintf(text + at, BYTES - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    text[at++] = ']';
    text[at] = '\0';
    return text;
}

const char *tni_shape_text_of(const tn_view *v) { return tni_shape_text(v->ndim, v->shape); }
