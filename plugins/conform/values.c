/* values.c: tensors for cases: the numbers of a sample in a dtype, and the ways in which they can lie in
 * memory.
 *
 * The bytes of a whole storage are put together on the host, gaps included, and copied to the device in
 * one piece; a view of it is the tensor. So nothing but the device's copy_in is needed for any layout. */
#include "conform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/ops.h>

static const tn_device cpu = {0, 0};

enum { FILLER = 0x5a };

/* ---- Numbers -----------------------------------------------------------------------------------*/

/* SplitMix64: a stream of numbers for every seed. */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)(next(state) >> 11) * 0x1p-53);
}

static int64_t whole(uint64_t *state, int32_t dtype, const cf_value *v) {
    int64_t low = (int64_t)ceil(v->low), high = (int64_t)floor(v->high);
    if (dtype == TN_BOOL) return (int64_t)(next(state) & 1);
    if (dtype == TN_U8 && low < 0) low = 0;
    return high <= low ? low : low + (int64_t)(next(state) % (uint64_t)(high - low + 1));
}

static double special(int64_t i, double otherwise) {
    const double values[] = {NAN, INFINITY, -INFINITY, -0.0};
    return i % 3 == 1 ? values[i / 3 % 4] : otherwise;
}

/* n numbers as int64 (whole dtypes) or pairs of doubles, in a buffer that the caller frees. */
static void *numbers(const cf_value *v, const cf_build *b, int32_t dtype, int64_t n,
                     int32_t position) {
    uint64_t state = b->seed ^ ((uint64_t)position + 1) * UINT64_C(0xd1342543de82ef95);
    bool exact = tn_dtype_category(dtype) <= TN_CAT_INT;
    int64_t *ints = cf_alloc((size_t)(n + 1) * 16);
    double *pairs = (double *)(void *)ints;
    for (int64_t i = 0; i < n; i++) {
        if (exact) {
            ints[i] = v->data ? (int64_t)v->data[i % v->n] : whole(&state, dtype, v);
            continue;
        }
        pairs[2 * i] = v->data ? v->data[i % v->n] : uniform(&state, v->low, v->high);
        pairs[2 * i + 1] = v->data ? 0 : uniform(&state, v->low, v->high);
        if (b->variant->special && !v->data) pairs[2 * i] = special(i, pairs[2 * i]);
    }
    return ints;
}

/* A packed CPU tensor of the dtype, the rounding done by the CPU's conversion. */
static tn_status packed(const void *from, int32_t dtype, int32_t ndim, const int64_t *shape,
                        tn_tensor **ret_tensor) {
    int32_t category = tn_dtype_category(dtype);
    tn_tensor *wide = NULL;
    tn_status st =
        tn_tensor_from_data(category <= TN_CAT_INT ? TN_I64 : TN_C128, ndim, shape, from, &wide);
    if (st == TN_OK && category == TN_CAT_FLOAT) {
        tn_tensor *real = NULL;
        st = tn_real(wide, &real);
        tn_tensor_unref(&wide);
        wide = real;
    }
    if (st == TN_OK) st = tn__to_copy(wide, dtype, -1, 0, TN_FORMAT_CONTIGUOUS, ret_tensor);
    tn_tensor_unref(&wide);
    return st;
}

/* ---- Layouts -----------------------------------------------------------------------------------*/

typedef struct geometry {
    int64_t strides[CF_DIMS];
    int64_t offset, count; /* of the first element, of elements in the storage */
} geometry;

static int64_t product(int32_t ndim, const int64_t *shape) {
    int64_t n = 1;
    for (int32_t d = 0; d < ndim; d++) n *= shape[d];
    return n;
}

static void dense(int32_t ndim, const int64_t *shape, bool reversed, geometry *g) {
    int64_t step = 1;
    for (int32_t k = 0; k < ndim; k++) {
        int32_t d = reversed ? k : ndim - 1 - k;
        g->strides[d] = step;
        step *= shape[d] > 1 ? shape[d] : 1;
    }
    g->offset = 0;
    g->count = product(ndim, shape);
}

static void lay_out(cf_layout layout, int32_t ndim, const int64_t *shape, geometry *g) {
    dense(ndim, shape, layout == CF_TRANSPOSED, g);
    int64_t n = g->count;
    if (n == 0) return;
    if (layout == CF_OFFSET) {
        g->offset = 3;
        g->count = n + 5;
    }
    if (layout == CF_STRIDED) {
        for (int32_t d = 0; d < ndim; d++) g->strides[d] *= 2;
        g->offset = 1;
        g->count = 2 * n + 1;
    }
    if (layout == CF_NEGATIVE) {
        for (int32_t d = 0; d < ndim; d++) g->strides[d] = -g->strides[d];
        g->offset = n - 1;
    }
    if (layout == CF_EXPANDED && ndim > 0) {
        g->strides[0] = 0;
        g->count = n / shape[0];
    }
}

/* Where element i (row-major) lies. */
static int64_t place(int64_t i, int32_t ndim, const int64_t *shape, const geometry *g) {
    int64_t at = g->offset;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        at += i % shape[d] * g->strides[d];
        i /= shape[d];
    }
    return at;
}

/* A tensor on a device whose elements, row-major, are `bytes`; NULL: whatever is there. */
static tn_status lay(const unsigned char *bytes, int32_t dtype, tn_device device, int32_t ndim,
                     const int64_t *shape, cf_layout layout, tn_tensor **ret_tensor) {
    geometry g;
    tn_tensor *storage = NULL;
    size_t size = (size_t)tn_dtype_size(dtype);
    lay_out(layout, ndim, shape, &g);
    unsigned char *image = cf_alloc((size_t)(g.count + 1) * size);
    memset(image, dtype == TN_BOOL ? 1 : FILLER, (size_t)g.count * size);
    for (int64_t i = 0, n = product(ndim, shape); bytes && i < n; i++)
        memcpy(image + (size_t)place(i, ndim, shape, &g) * size, bytes + (size_t)i * size, size);
    tn_status st = tn_tensor_new(dtype, device, 1, &g.count, &storage);
    if (st == TN_OK) st = tn_tensor_write(storage, image, (uint64_t)g.count * size);
    if (st == TN_OK)
        st = tn_tensor_alias(storage, dtype, ndim, shape, g.strides, g.offset, ret_tensor);
    tn_tensor_unref(&storage);
    free(image);
    return st;
}

/* ---- Shapes ------------------------------------------------------------------------------------*/

static tn_status reshape(const cf_value *v, const cf_build *b, int32_t position, int32_t *ret_ndim,
                         int64_t *shape) {
    int32_t ndim = v->ndim;
    memcpy(shape, v->shape, sizeof v->shape);
    if (b->variant->shaping != CF_AS_IS && v->data) return TN_DECLINE;
    switch (b->variant->shaping) {
    case CF_AS_IS: break;
    case CF_0D: ndim = 0; break;
    case CF_EMPTY:
        if (ndim == 0) return TN_DECLINE;
        shape[0] = 0;
        break;
    case CF_BROADCAST:
        if (position > 0 && ndim > 0) shape[0] = 1;
        break;
    case CF_VECTOR:
        ndim = 1;
        shape[0] = b->variant->size;
        break;
    }
    *ret_ndim = ndim;
    return TN_OK;
}

/* An expanded tensor has the same elements all along its first dimension. */
static void repeat_first(unsigned char *bytes, int64_t count, int64_t times, size_t size) {
    size_t row = times > 0 ? (size_t)(count / times) * size : 0;
    for (int64_t k = 1; k < times; k++) memcpy(bytes + (size_t)k * row, bytes, row);
}

tn_status cf_tensor_make(const cf_value *v, const cf_build *b, int32_t position,
                         tn_tensor **ret_tensor) {
    int64_t shape[CF_DIMS];
    int32_t ndim, dtype = v->dtype >= 0 ? v->dtype : b->dtype;
    tn_tensor *host = NULL;
    tn_status st = reshape(v, b, position, &ndim, shape);
    if (st != TN_OK) return st;
    int64_t n = product(ndim, shape);
    size_t bytes = (size_t)n * (size_t)tn_dtype_size(dtype);
    unsigned char *image = cf_alloc(bytes);
    void *from = numbers(v, b, dtype, n, position);
    st = packed(from, dtype, ndim, shape, &host);
    if (st == TN_OK) st = tn_tensor_read(host, image, bytes);
    tn_tensor_unref(&host);
    if (st == TN_OK && b->variant->layout == CF_EXPANDED && ndim > 0)
        repeat_first(image, n, shape[0], (size_t)tn_dtype_size(dtype));
    if (st == TN_OK)
        st = lay(image, dtype, v->on_cpu ? cpu : b->device, ndim, shape,
                 b->wide ? CF_PLAIN : b->variant->layout, &host);
    if (st == TN_OK && b->wide && tn_dtype_category(dtype) >= TN_CAT_FLOAT) {
        int32_t wide = tn_dtype_category(dtype) == TN_CAT_FLOAT ? TN_F64 : TN_C128;
        st = tn__to_copy(host, wide, -1, 0, TN_FORMAT_PRESERVE, ret_tensor);
        tn_tensor_unref(&host);
    } else if (st == TN_OK) {
        *ret_tensor = host;
    }
    free(from);
    free(image);
    return st;
}

tn_status cf_tensor_like(const tn_tensor *model, tn_device device, bool strided,
                         tn_tensor **ret_tensor) {
    int32_t ndim = tn_tensor_ndim(model);
    if (ndim > CF_DIMS) return TN_DECLINE;
    return lay(NULL, tn_tensor_dtype(model), device, ndim, tn_tensor_shape(model),
               strided ? CF_STRIDED : CF_PLAIN, ret_tensor);
}
