/* tensor.c: tensor headers: making, freeing, geometry, element access.
 *
 * A header is one block: TN_HOST_PREFIX bytes for a host language's object head (at the end of a
 * 64-byte line, so that the tensor itself is aligned), then struct tn_tensor. Freed headers go to a
 * per-thread list. */
#include <stdlib.h>

#include "os_priv.h"
#include "sparse_priv.h"

enum { LINE = 64, MAX_FREE = 256 };
_Static_assert(sizeof(tn_view) == 64, "the prefix is frozen");
_Static_assert(TN_HOST_PREFIX <= LINE, "the host's header fits in front");
_Static_assert(sizeof(tn_scalar_box) >= sizeof(tn_tensor) + 16, "a box holds tensor and payload");

tni_autograd_hooks tni_ag;

/* ---- Blocks ------------------------------------------------------------------------------------*/

static void *block_of(tn_tensor *t) { return (char *)t - LINE; }

static void drop_free_tensors(void) {
    while (tni_tls.free_tensors) {
        tn_tensor *t = tni_tls.free_tensors;
        tni_tls.free_tensors = t->next_free;
        free(t->spare);
        free(block_of(t));
    }
    tni_tls.free_tensor_count = MAX_FREE;
}

/* Rare cases stay out of line (TN_NOINLINE): the common ones then need hardly a stack frame. */
static TN_NOINLINE tn_tensor *new_header(void) {
    size_t bytes = LINE + (sizeof(tn_tensor) + LINE - 1) / LINE * LINE;
    char *block = aligned_alloc(LINE, bytes);
    if (!block) {
        tn_fail(TN_E_MEMORY, -1, "out of memory");
        return NULL;
    }
    memset(block, 0, bytes);
    tn_tensor *t = (tn_tensor *)(void *)(block + LINE);
    atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

static inline tn_tensor *header(void) {
    tn_tensor *t = tni_tls.free_tensors;
    if (TN_UNLIKELY(!t)) return new_header();
    tni_tls.free_tensors = t->next_free;
    tni_tls.free_tensor_count--;
    atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

/* The list is full, or this is the thread's first: it wants to be emptied when the thread ends. */
static TN_NOINLINE bool list_takes(tn_tensor *t) {
    if (tni_tls.free_tensor_count >= MAX_FREE) {
        free(t->spare);
        free(block_of(t));
        return false;
    }
    tni_tls.exit_hook = true;
    tni_os_at_thread_exit(drop_free_tensors);
    return true;
}

static inline void header_free(tn_tensor *t) {
    if (TN_UNLIKELY(tni_tls.free_tensor_count >= MAX_FREE || !tni_tls.exit_hook) && !list_takes(t))
        return;
    t->next_free = tni_tls.free_tensors;
    tni_tls.free_tensors = t;
    tni_tls.free_tensor_count++;
}

static tn_status set_dims(tn_tensor *t, int32_t ndim, const int64_t *shape) {
    int64_t *dims = t->inline_dims;
    if (TN_UNLIKELY(ndim > TNI_INLINE_DIMS)) {
        dims = calloc((size_t)ndim, 2 * sizeof *dims);
        if (!dims) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    t->v.ndim = ndim;
    t->v.shape = dims;
    t->v.strides = dims + (ndim > TNI_INLINE_DIMS ? ndim : TNI_INLINE_DIMS);
    for (int32_t i = 0; i < ndim; i++) dims[i] = shape[i];
    return TN_OK;
}

static void free_dims(tn_tensor *t) {
    if (TN_UNLIKELY(t->v.shape != t->inline_dims)) free(t->v.shape);
}

/* ---- Geometry ----------------------------------------------------------------------------------*/

/* The strides follow `order` (fastest dimension first) without gaps; sizes of 1 do not matter. */
static bool packed_in_order(const tn_view *v, const int8_t *order) {
    uint64_t expect = 1;
    for (int32_t k = 0; k < v->ndim; k++) {
        int8_t d = order[k];
        if (v->shape[d] != 1 && (uint64_t)v->strides[d] != expect) return false;
        expect *= (uint64_t)v->shape[d];
    }
    return true;
}

static bool packed(const tn_view *v) {
    uint64_t expect = 1;
    for (int32_t i = v->ndim - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && (uint64_t)v->strides[i] != expect) return false;
        expect *= (uint64_t)v->shape[i];
    }
    return true;
}

/* Some order of the dimensions packs them. */
static bool dense(const tn_view *v) {
    uint64_t expect = 1;
    uint64_t left = 0;
    for (int32_t i = 0; i < v->ndim; i++)
        if (v->shape[i] != 1) left |= UINT64_C(1) << i;
    while (left) {
        int32_t found = -1;
        for (int32_t i = 0; i < v->ndim && found < 0; i++)
            if ((left >> i & 1u) && (uint64_t)v->strides[i] == expect) found = i;
        if (found < 0) return false;
        left &= ~(UINT64_C(1) << found);
        expect *= (uint64_t)v->shape[found];
    }
    return true;
}

static const int8_t nhwc[4] = {1, 3, 2, 0}, ndhwc[5] = {1, 4, 3, 2, 0};

void tni_tensor_refresh(tn_tensor *t) {
    tn_view *v = &t->v;
    uint64_t n = 1; /* unsigned: see tni_header_new; a size of 0 makes it 0 all the same */
    for (int32_t i = 0; i < v->ndim; i++) n *= (uint64_t)v->shape[i];
    v->numel = (int64_t)n;
    uint64_t w = v->word & ~(TN_W_CONTIGUOUS | TN_W_CHANNELS_LAST | TN_W_DENSE);
    if (n == 0 || packed(v)) w |= TN_W_CONTIGUOUS | TN_W_DENSE;
    if ((v->ndim == 4 && packed_in_order(v, nhwc)) || (v->ndim == 5 && packed_in_order(v, ndhwc)))
        w |= TN_W_CHANNELS_LAST | TN_W_DENSE;
    if (!(w & TN_W_DENSE) && dense(v)) w |= TN_W_DENSE;
    v->word = w;
}

bool tni_lies_channels_last(const tn_view *v) {
    const int8_t *order = v->ndim == 4 ? nhwc : ndhwc;
    uint64_t least = 0; /* unsigned: a memory-less tensor's may pass 2^63 */
    if ((v->ndim != 4 && v->ndim != 5) || v->strides[1] == 0) return false;
    for (int32_t k = 0; k < v->ndim; k++) {
        int32_t d = order[k];
        uint64_t stride = (uint64_t)v->strides[d];
        if (v->shape[d] == 0 || stride < least) return false;
        if (d == 0 && least == (uint64_t)v->strides[1])
            return false; /* single places lie as rows */
        least = stride * (uint64_t)v->shape[d];
    }
    return true;
}

int tn_tensor_lies_channels_last(const tn_tensor *t) { return t && tni_lies_channels_last(&t->v); }

static void strides_in_order(int32_t ndim, const int64_t *shape, const int8_t *order,
                             int64_t *strides) {
    uint64_t s = 1;
    for (int32_t k = 0; k < ndim; k++) {
        strides[order[k]] = (int64_t)s;
        s *= shape[order[k]] > 0 ? (uint64_t)shape[order[k]] : 1;
    }
}

/* v's stride of dimension d of a result to which it broadcasts; 0: it repeats there. */
static int64_t stride_within(const tn_view *v, int32_t ndim, const int64_t *shape, int32_t d) {
    int32_t own = d - (ndim - v->ndim);
    return own < 0 || (v->shape[own] == 1 && shape[d] != 1) ? 0 : v->strides[own];
}

/* 1: dimension a has the longer steps, -1: the shorter ones, 0: no operand says. The first operand
 * that goes on in both decides; of equal steps the longer dimension lies outside. */
static int compare_steps(const tn_view *const *like, int n, int32_t ndim, const int64_t *shape,
                         int32_t a, int32_t b) {
    for (int i = 0; i < n; i++) {
        int64_t x = stride_within(like[i], ndim, shape, a);
        int64_t y = stride_within(like[i], ndim, shape, b);
        if (x == 0 || y == 0) continue;
        if (x != y) return x > y ? 1 : -1;
        if (shape[a] > shape[b]) return 1;
    }
    return 0;
}

/* Note [Order of a result]: dimensions from the fastest, as the operands have them; what they leave
 * open is row-major. PyTorch's TensorIterator sorts so, and with it what is drawn for a result's
 * elements in memory order. */
static void order_of(const tn_view *const *like, int n, int32_t ndim, const int64_t *shape,
                     int8_t *order) {
    for (int32_t k = 0; k < ndim; k++) order[k] = (int8_t)(ndim - 1 - k);
    for (int32_t k = 1; k < ndim; k++) {
        int32_t at = k;
        for (int32_t j = k - 1; j >= 0; j--) {
            int says = compare_steps(like, n, ndim, shape, order[j], order[at]);
            if (says < 0) break;
            if (says == 0) continue;
            int8_t d = order[j];
            order[j] = order[at];
            order[at] = d;
            at = j;
        }
    }
}

bool tni_rows_first(const tn_view *v, int32_t ndim, const int64_t *shape) {
    for (int32_t d = 1; d < ndim; d++)
        for (int32_t before = 0; before < d; before++)
            if (compare_steps(&v, 1, ndim, shape, d, before) > 0) return false;
    return true;
}

void tni_format_strides(int32_t format, const tn_view *like, int32_t ndim, const int64_t *shape,
                        int64_t *strides) {
    int8_t order[TN_MAX_DIMS];
    for (int32_t k = 0; k < ndim; k++) order[k] = (int8_t)(ndim - 1 - k);
    if (format == TN_FORMAT_CHANNELS_LAST && ndim == 4) memcpy(order, nhwc, sizeof nhwc);
    if (format == TN_FORMAT_CHANNELS_LAST_3D && ndim == 5) memcpy(order, ndhwc, sizeof ndhwc);
    if (format == TN_FORMAT_PRESERVE && like && like->ndim == ndim)
        order_of(&like, 1, ndim, shape, order);
    strides_in_order(ndim, shape, order, strides);
}

/* ---- Making ------------------------------------------------------------------------------------*/

tn_status tni_header_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                         const int64_t *strides, tn_tensor **ret_tensor) {
    tn_tensor *t = header();
    if (!t) return TN_E_MEMORY;
    tn_status st = set_dims(t, ndim, shape);
    if (st != TN_OK) {
        header_free(t);
        return st;
    }
    int64_t size = tn_dtype_size(dtype);
    tn_view *v = &t->v;
    v->word = (uint64_t)(uint32_t)dtype | (uint64_t)(uint32_t)device.slot << 8 |
              (uint64_t)(uint32_t)device.index << 16;
    v->dl_device = tni_device_at(device.slot)->desc.dl_device;
    v->dl_index = device.index;
    v->dl_code = tni_dtype_dl_code(dtype);
    v->dl_bits = (uint8_t)(size * 8);
    v->dl_lanes = 1;
    v->data = NULL;
    v->byte_offset = 0;
    t->flags = 0;
    t->storage = NULL;
    t->grad_fn = NULL;
    t->meta = NULL;
    t->output_nr = 0;
    t->own_version = 0;
    t->host = (tn_host_slots){0};
    if (strides) {
        for (int32_t i = 0; i < ndim; i++) v->strides[i] = strides[i];
        tni_tensor_refresh(t);
    } else {
        /* Unsigned: beside a size of 0 the others may be so large that the strides wrap around. */
        uint64_t s = 1, numel = 1;
        for (int32_t i = ndim - 1; i >= 0; i--) {
            v->strides[i] = (int64_t)s;
            s *= shape[i] > 0 ? (uint64_t)shape[i] : 1;
            numel *= (uint64_t)shape[i];
        }
        v->numel = (int64_t)numel;
        v->word |= TN_W_CONTIGUOUS | TN_W_DENSE;
        if (ndim >= 4) tni_tensor_refresh(t); /* may be channels-last too */
    }
    if (TN_UNLIKELY(tni_tls.inference)) v->word |= TN_W_INFERENCE;
    *ret_tensor = t;
    return TN_OK;
}

void tni_attach(tn_tensor *t, tn_storage *s, uint64_t offset) {
    t->storage = s;
    if (tni_device_at(s->device.slot)->desc.flags & TN_DEV_ADDRESSABLE) {
        t->v.data = s->data ? (char *)s->data + offset : NULL;
        t->v.byte_offset = 0;
    } else {
        t->v.data = s->data;
        t->v.byte_offset = offset;
    }
    if (s->flags & TNI_ST_READONLY) t->v.word |= TN_W_READONLY;
}

tn_status tni_tensor_new_fast(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                              tn_tensor **ret_tensor) {
    tn_tensor *t;
    tn_storage *s;
    TN_TRY(tni_header_new(dtype, device, ndim, shape, NULL, &t));
    tn_status st =
        tni_storage_new(device, (uint64_t)(t->v.numel * tn_view_itemsize(&t->v)), &t->spare, &s);
    if (TN_UNLIKELY(st != TN_OK)) {
        tn_tensor_unref(&t);
        return st;
    }
    tni_attach(t, s, 0);
    *ret_tensor = t;
    return TN_OK;
}

static TN_NOINLINE void set_dtype(tn_view *v, int32_t dtype) {
    v->dl_code = tni_dtype_dl_code(dtype);
    v->dl_bits = (uint8_t)(tn_dtype_size(dtype) * 8);
}

tn_status tni_tensor_like(const tn_tensor *model, int32_t dtype, tn_tensor **ret_tensor) {
    const uint64_t keep =
        TN_W_DEVICE | TN_W_INDEX | TN_W_CONTIGUOUS | TN_W_CHANNELS_LAST | TN_W_DENSE;
    const tn_view *m = &model->v;
    tn_device device = tn_tensor_device(model);
    if (TN_UNLIKELY(m->ndim > TNI_INLINE_DIMS))
        return tni_tensor_new_fast(dtype, device, m->ndim, m->shape, ret_tensor);
    tn_tensor *t = header();
    if (TN_UNLIKELY(!t)) return TN_E_MEMORY;
    t->v = *m;
    t->v.word = (m->word & keep) | (uint64_t)(uint32_t)dtype;
    if (TN_UNLIKELY(tn_view_dtype(m) != dtype)) set_dtype(&t->v, dtype);
    tn_status st = tni_storage_new(device, (uint64_t)(m->numel * tn_view_itemsize(&t->v)),
                                   &t->spare, &t->storage);
    if (TN_UNLIKELY(st != TN_OK)) {
        header_free(t);
        return st;
    }
    /* All of them, used or not: a copy of fixed length is a few moves. */
    memcpy(t->inline_dims, model->inline_dims, sizeof t->inline_dims);
    t->v.shape = t->inline_dims;
    t->v.strides = t->inline_dims + TNI_INLINE_DIMS;
    t->v.data = t->storage->data;
    t->v.byte_offset = 0;
    t->flags = 0;
    t->grad_fn = NULL;
    t->meta = NULL;
    t->output_nr = 0;
    t->host = (tn_host_slots){0};
    if (TN_UNLIKELY(tni_tls.inference)) t->v.word |= TN_W_INFERENCE;
    *ret_tensor = t;
    return TN_OK;
}

static tn_status check_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape) {
    int64_t numel;
    if (!tn_dtype_name(dtype)) return tn_fail(TN_E_DTYPE, -1, "there is no dtype %d", (int)dtype);
    if (ndim > 0 && !shape) return tn_fail(TN_E_VALUE, -1, "shape is NULL");
    TN_TRY(tni_numel(ndim, shape, tn_dtype_size(dtype), &numel));
    return tni_check_device(device);
}

tn_status tn_tensor_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                        tn_tensor **ret_tensor) {
    if (!ret_tensor) return tn_fail(TN_E_TYPE, -1, "tensor_new(): the result has no place to go");
    TN_TRY(check_new(dtype, device, ndim, shape));
    return tni_tensor_new_fast(dtype, device, ndim, shape, ret_tensor);
}

tn_status tn_tensor_new_strided(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                                const int64_t *strides, tn_tensor **ret_tensor) {
    if (!ret_tensor)
        return tn_fail(TN_E_TYPE, -1, "tensor_new_strided(): the result has no place to go");
    int64_t lo, hi, bytes;
    tn_tensor *t;
    tn_storage *s;
    TN_TRY(check_new(dtype, device, ndim, shape));
    if (!strides) return tni_tensor_new_fast(dtype, device, ndim, shape, ret_tensor);
    for (int32_t i = 0; i < ndim; i++)
        if (strides[i] < 0)
            return tn_fail(TN_E_SHAPE, -1, "strides must not be negative, got %s",
                           tni_shape_text(ndim, strides));
    if (!tni_reach(ndim, shape, strides, &lo, &hi) ||
        __builtin_mul_overflow(hi, tn_dtype_size(dtype), &bytes))
        return tn_fail(TN_E_SHAPE, -1, "shape %s with strides %s reaches too far",
                       tni_shape_text(ndim, shape), tni_shape_text(ndim, strides));
    TN_TRY(tni_header_new(dtype, device, ndim, shape, strides, &t));
    tn_status st = tni_storage_new(device, (uint64_t)bytes, &t->spare, &s);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    tni_attach(t, s, 0);
    *ret_tensor = t;
    return TN_OK;
}

tn_status tn_tensor_from_data(int32_t dtype, int32_t ndim, const int64_t *shape, const void *data,
                              tn_tensor **ret_tensor) {
    if (!ret_tensor)
        return tn_fail(TN_E_TYPE, -1, "tensor_from_data(): the result has no place to go");
    tn_tensor *t;
    tn_device cpu = {0, 0};
    TN_TRY(tn_tensor_new(dtype, cpu, ndim, shape, &t));
    if (t->v.numel) {
        if (!data) {
            tn_tensor_unref(&t);
            return tn_fail(TN_E_VALUE, -1, "data is NULL");
        }
        memcpy(t->v.data, data, (size_t)(t->v.numel * tn_view_itemsize(&t->v)));
    }
    *ret_tensor = t;
    return TN_OK;
}

tn_status tn_tensor_from_foreign(int32_t dtype, tn_device device, int32_t ndim,
                                 const int64_t *shape, const int64_t *strides, void *data,
                                 int readonly, void (*release)(void *ctx), void *ctx,
                                 tn_tensor **ret_tensor) {
    if (!ret_tensor)
        return tn_fail(TN_E_TYPE, -1, "tensor_from_foreign(): the result has no place to go");
    int64_t lo = 0, hi = 0, size = tn_dtype_size(dtype), numel, bytes, skip;
    tn_tensor *t;
    tn_storage *s;
    TN_TRY(check_new(dtype, device, ndim, shape));
    TN_TRY(tni_numel(ndim, shape, size, &numel));
    if (numel && !data) return tn_fail(TN_E_VALUE, -1, "data is NULL");
    if (strides && !tni_reach(ndim, shape, strides, &lo, &hi))
        return tn_fail(TN_E_VALUE, -1, "strides %s reach too far", tni_shape_text(ndim, strides));
    if (!strides) hi = numel;
    if (__builtin_mul_overflow(hi - lo, size, &bytes) || __builtin_mul_overflow(-lo, size, &skip))
        return tn_fail(TN_E_VALUE, -1, "the memory is larger than the address space");
    TN_TRY(tni_header_new(dtype, device, ndim, shape, strides, &t));
    uint32_t flags = readonly ? TNI_ST_READONLY : 0;
    void *start = data ? (char *)data - skip : NULL;
    tn_status st = tni_storage_foreign(device, start, (uint64_t)bytes, flags, release, ctx, &s);
    if (st != TN_OK) {
        tn_tensor_unref(&t);
        return st;
    }
    tni_attach(t, s, (uint64_t)skip);
    *ret_tensor = t;
    return TN_OK;
}

/* ---- Views -------------------------------------------------------------------------------------*/

/* Bytes from the storage's start to element 0. */
uint64_t tni_offset_bytes(const tn_tensor *t) {
    if (t->v.byte_offset) return t->v.byte_offset;
    if (!t->storage || !t->v.data) return 0;
    return (uint64_t)((char *)t->v.data - (char *)t->storage->data);
}

/* A view of a tensor that inference mode did not make is none that it made, even if it was taken there. */
static void take_over(tn_tensor *view, const tn_tensor *t) {
    const uint64_t same = TN_W_INFERENCE | TN_W_READONLY;
    view->v.word = (view->v.word & ~same) | (t->v.word & same);
}

tn_status tni_view_new(const tn_tensor *t, int32_t dtype, int32_t ndim, const int64_t *shape,
                       const int64_t *strides, int64_t offset, tn_tensor **ret_tensor) {
    tn_tensor *r;
    TN_TRY(tni_header_new(dtype, tn_tensor_device(t), ndim, shape, strides, &r));
    if (t->storage) {
        tni_storage_ref(t->storage);
        uint64_t skip = (uint64_t)offset * (uint64_t)tn_view_itemsize(&r->v);
        tni_attach(r, t->storage, tni_offset_bytes(t) + skip);
    }
    r->flags = t->flags & TNI_T_NO_VERSION;
    r->own_version = t->own_version;
    take_over(r, t);
    *ret_tensor = r;
    return TN_OK;
}

tn_status tni_detach(const tn_tensor *t, tn_tensor **ret_tensor) {
    TN_TRY(tni_settle(t));
    if (TN_UNLIKELY(t->v.word & TN_W_LAYOUT)) return tni_sparse_alias(t, ret_tensor);
    return tni_view_new(t, tn_view_dtype(&t->v), t->v.ndim, t->v.shape, t->v.strides, 0,
                        ret_tensor);
}

tn_status tn_tensor_alias(const tn_tensor *t, int32_t dtype, int32_t ndim, const int64_t *shape,
                          const int64_t *strides, int64_t offset, tn_tensor **ret_tensor) {
    int64_t numel, lo, hi, first, last, size = tn_dtype_size(dtype);
    tn_tensor *r;
    if (!t || !t->storage) return tn_fail(TN_E_VALUE, 0, "the tensor has no storage");
    TN_TRY(tni_settle(t));
    if (t->v.word & TN_W_LAYOUT)
        return tn_fail(TN_E_UNSUPPORTED, 0,
                       "a tensor of layout %s has no memory of its own to look at",
                       tn_layout_name(tn_tensor_layout(t)));
    if (!ret_tensor || (ndim > 0 && (!shape || !strides)))
        return tn_fail(TN_E_TYPE, -1, "tensor_alias(): a pointer that must be set is NULL");
    if (!tn_dtype_name(dtype)) return tn_fail(TN_E_DTYPE, -1, "there is no dtype %d", (int)dtype);
    TN_TRY(tni_numel(ndim, shape, size, &numel));
    if (offset < 0)
        return tn_fail(TN_E_SHAPE, -1, "storage_offset must not be negative, got %lld",
                       (long long)offset);
    if (!tni_reach(ndim, shape, strides, &lo, &hi) || __builtin_add_overflow(offset, lo, &first) ||
        __builtin_add_overflow(offset, hi, &last) || first < 0 ||
        (numel && (uint64_t)last > t->storage->bytes / (uint64_t)size))
        return tn_fail(TN_E_SHAPE, -1,
                       "setStorage: sizes %s, strides %s, storage offset %lld, and itemsize %lld "
                       "reach out of bounds for storage of size %llu",
                       tni_shape_text(ndim, shape), tni_shape_text(ndim, strides),
                       (long long)offset, (long long)size, (unsigned long long)t->storage->bytes);
    TN_TRY(tni_header_new(dtype, tn_tensor_device(t), ndim, shape, strides, &r));
    /* an empty tensor keeps its offset, too, unless that would point out of the memory */
    bool inside = (uint64_t)offset <= t->storage->bytes / (uint64_t)size;
    uint64_t at = inside ? (uint64_t)offset * (uint64_t)size : 0;
    tni_attach(r, tni_storage_ref(t->storage), at);
    r->flags = t->flags & TNI_T_NO_VERSION;
    take_over(r, t);
    *ret_tensor = r;
    return TN_OK;
}

tn_status tn_tensor_set_data(tn_tensor *t, const tn_tensor *src) {
    const uint64_t keep = TN_W_GRAD | TN_W_OVERRIDE | TN_W_LEAFVIEW;
    tn_tensor *copy;
    if (!t || !src || !src->storage) return tn_fail(TN_E_VALUE, -1, "set_data needs two tensors");
    TN_TRY(tni_release(t));
    TN_TRY(tni_detach(src, &copy)); /* makes the failing allocations first */
    uint32_t version = tn_tensor_version(t);
    free_dims(t);
    if (t->storage) tni_storage_unref(t->storage, &t->spare);
    bool is_inline = copy->v.shape == copy->inline_dims;
    uint64_t word = (copy->v.word & ~keep) | (t->v.word & keep);
    t->v = copy->v;
    t->v.word = word;
    if (is_inline) {
        memcpy(t->inline_dims, copy->inline_dims, sizeof t->inline_dims);
        t->v.shape = t->inline_dims;
        t->v.strides = t->inline_dims + TNI_INLINE_DIMS;
    }
    t->storage = copy->storage;
    copy->storage = NULL;
    copy->v.shape = copy->inline_dims; /* the heap dims moved to t */
    t->own_version = version - tni_memory_version(t);
    tn_tensor_unref(&copy);
    return TN_OK;
}

/* ---- References --------------------------------------------------------------------------------*/

tn_tensor *tn_tensor_ref(tn_tensor *t) {
    if (t) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

static inline void destroy(tn_tensor *t) {
    if (TN_UNLIKELY(t->host.type != NULL)) tni_host_tensor_dying(t);
    if (t->grad_fn) tni_ag.node_unref(t->grad_fn);
    if (t->meta) tni_ag.meta_free(t->meta);
    if (t->storage) tni_storage_unref(t->storage, &t->spare);
    free_dims(t);
    header_free(t);
}

void tn_tensor_unref(tn_tensor **t) {
    tn_tensor *x = TN_LIKELY(t != NULL) ? *t : NULL;
    if (!x) return;
    *t = NULL;
    if (atomic_load_explicit(&x->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) == 1)
        destroy(x);
}

int tn_tensor_is_shared(const tn_tensor *t) {
    return t && atomic_load_explicit(&((tn_tensor *)(uintptr_t)t)->refs, memory_order_acquire) > 1;
}

void tn_tensor_list_free(tn_tensor_list *list) {
    for (int64_t i = 0; list && list->v && i < list->n; i++) tn_tensor_unref(&list->v[i]);
    if (!list) return;
    free(list->v);
    *list = (tn_tensor_list){NULL, 0};
}

bool tni_shape_is(const tn_tensor *t, int32_t ndim, const int64_t *shape) {
    return t->v.ndim == ndim &&
           (ndim == 0 || memcmp(t->v.shape, shape, sizeof *shape * (size_t)ndim) == 0);
}

void tni_like_layout(tn_tensor *t, const tn_view *const *like, int n) {
    int8_t order[TN_MAX_DIMS];
    order_of(like, n, t->v.ndim, t->v.shape, order);
    strides_in_order(t->v.ndim, t->v.shape, order, t->v.strides);
    tni_tensor_refresh(t);
}

/* ---- Facts -------------------------------------------------------------------------------------*/

uint32_t tn_tensor_version(const tn_tensor *t) {
    return t && t->storage ? tni_memory_version(t) + t->own_version : 0;
}
void tn_tensor_note_write(tn_tensor *t) {
    if (t) tni_bump_version(t);
}
void tn_tensor_note_change(tn_tensor *t) {
    if (t) t->own_version++;
}
int tn_tensor_same_storage(const tn_tensor *a, const tn_tensor *b) {
    return a && b && a->storage && a->storage == b->storage;
}
void *tn_tensor_storage_data(const tn_tensor *t) {
    if (!t || !t->storage || tn_tensor_show((tn_tensor *)(uintptr_t)t) != TN_OK) return NULL;
    return t->storage->data;
}
tn_status tn_tensor_settle(const tn_tensor *t) {
    return t ? tni_settle(t) : tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
}
tn_status tn_tensor_show(tn_tensor *t) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    TN_TRY(tni_release(t));
    tni_is_readonly(t); /* the word says so from here on */
    if (t->storage && !(t->storage->flags & TNI_ST_SHOWN))
        __atomic_fetch_or(&t->storage->flags, TNI_ST_SHOWN, __ATOMIC_RELAXED);
    return TN_OK;
}
uint64_t tn_tensor_storage_id(const tn_tensor *t) {
    return t ? (uint64_t)(uintptr_t)t->storage : 0;
}
uint64_t tn_tensor_storage_bytes(const tn_tensor *t) {
    return t && t->storage ? t->storage->bytes : 0;
}
int64_t tn_tensor_storage_offset(const tn_tensor *t) {
    return !t ? 0 : (int64_t)tni_offset_bytes(t) / tn_view_itemsize(&t->v);
}
tn_host_slots *tn_tensor_host(tn_tensor *t) { return &t->host; }
uint64_t tn_tensor_struct_bytes(void) { return sizeof(tn_tensor); }
uint64_t tn_tensor_host_offset(void) { return offsetof(tn_tensor, host); }

/* ---- Numbers as tensors ------------------------------------------------------------------------*/

void tni_scalar_tensor(tn_scalar s, tn_tensor *ret, void *payload16) {
    static const int32_t dtype_of[] = {TN_BOOL, TN_I64, TN_F64, TN_C128};
    static const uint8_t bits[] = {8, 64, 64, 128};
    int32_t dtype = tn_scalar_is_beyond(&s) ? TN_U64 : dtype_of[s.kind];
    tni_scalar_store(&s, dtype, payload16);
    ret->v = (tn_view){
        .word = (uint64_t)(uint32_t)dtype | TN_W_SCALAR | TN_W_CONTIGUOUS | TN_W_DENSE,
        .numel = 1,
        .data = payload16,
        .dl_device = 1,
        .dl_code = tni_dtype_dl_code(dtype),
        .dl_bits = bits[s.kind],
        .dl_lanes = 1,
        .shape = ret->inline_dims,
        .strides = ret->inline_dims + TNI_INLINE_DIMS,
    };
    atomic_store_explicit(&ret->refs, 1, memory_order_relaxed);
    ret->flags = TNI_T_STACK;
    ret->storage = NULL;
    ret->grad_fn = NULL;
    ret->meta = NULL;
    ret->output_nr = 0;
    ret->host = (tn_host_slots){0};
}

tn_tensor *tn_scalar_box_init(tn_scalar_box *box, tn_scalar value) {
    if (!box) return NULL; /* which no operator takes */
    tn_tensor *t = (tn_tensor *)(void *)box;
    tni_scalar_tensor(value, t, (char *)box + sizeof(tn_tensor));
    return t;
}

tn_status tni_scalar_heap(tn_scalar s, tn_tensor **ret_tensor) {
    tn_scalar_box box;
    const tn_view *v = tni_v(tn_scalar_box_init(&box, s));
    tn_tensor *t = NULL;
    TN_TRY(tn_tensor_from_data(tn_view_dtype(v), 0, NULL, v->data, &t));
    t->v.word |= TN_W_SCALAR;
    *ret_tensor = t;
    return TN_OK;
}
