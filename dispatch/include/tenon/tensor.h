/* tenon/tensor.h: tensors, for C programs.
 *
 * Ownership: arguments are borrowed; a tensor that comes back through a `ret_` parameter is a new
 * reference that the caller releases with tn_tensor_unref. On failure `ret_` is left untouched.
 * Tensors may be shared between threads; writing one from two threads at once is a race. */
#ifndef TENON_TENSOR_H
#define TENON_TENSOR_H

#include <tenon/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TN_API
#if defined(__GNUC__)
#define TN_API __attribute__((visibility("default")))
#else
#define TN_API
#endif
#endif

/* Its first member is the tn_view of plugin.h, so a tn_tensor * may be read as a tn_view *. */
typedef struct tn_tensor tn_tensor;

/* A device kind and an index: {0, 0} is the CPU. */
typedef struct tn_device {
    int32_t slot;
    int32_t index;
} tn_device;
/* "meta", whose tensors have no memory: operators infer shapes and dtypes there, and no kernel runs. */
#define TN_META_SLOT (TN_DEVICE_SLOTS - 1)

static inline const tn_view *tn_tensor_view(const tn_tensor *t) {
    return (const tn_view *)(const void *)t;
}
static inline int32_t tn_tensor_dtype(const tn_tensor *t) {
    return tn_view_dtype(tn_tensor_view(t));
}
static inline int64_t tn_tensor_numel(const tn_tensor *t) { return tn_tensor_view(t)->numel; }
static inline int32_t tn_tensor_ndim(const tn_tensor *t) { return tn_tensor_view(t)->ndim; }
static inline const int64_t *tn_tensor_shape(const tn_tensor *t) {
    return tn_tensor_view(t)->shape;
}
static inline const int64_t *tn_tensor_strides(const tn_tensor *t) {
    return tn_tensor_view(t)->strides;
}
static inline tn_device tn_tensor_device(const tn_tensor *t) {
    tn_device d = {tn_view_device(tn_tensor_view(t)), tn_view_index(tn_tensor_view(t))};
    return d;
}

/* How a tensor keeps its elements: with strides, or sparse, by the components that sparse operators
 * read (tenon/ops.h). A sparse tensor has no memory of its own: its view's data is NULL. */
enum tn_layout {
    TN_LAYOUT_STRIDED = 0,
    TN_LAYOUT_COO = 1,
    TN_LAYOUT_CSR = 2,
    TN_LAYOUT_CSC = 3,
    TN_LAYOUT_BSR = 4,
    TN_LAYOUT_BSC = 5,
    TN_LAYOUT_COUNT = 6
};
#define TN_W_LAYOUT UINT64_C(0x0000070000000000) /* in the dispatch word; 0: strided */
static inline int32_t tn_tensor_layout(const tn_tensor *t) {
    return (int32_t)((tn_tensor_view(t)->word & TN_W_LAYOUT) >> 40);
}
TN_API const char *tn_layout_name(int32_t layout); /* "sparse_coo"; NULL: there is none */
/* Of a sparse tensor; -1 for others: elements that are kept, dimensions that are indexed, and those
 * behind them. Its components are what tn__indices, tn__values, tn_crow_indices ... return. */
TN_API int64_t tn_sparse_nnz(const tn_tensor *t);
TN_API int32_t tn_sparse_dim(const tn_tensor *t);
TN_API int32_t tn_sparse_dense_dim(const tn_tensor *t);
TN_API int tn_sparse_is_coalesced(const tn_tensor *t);

/* ---- Arguments and results of operators --------------------------------------------------------*/
typedef struct tn_tensors { /* a list of tensors, borrowed */
    tn_tensor *const *v;
    int64_t n;
} tn_tensors;
typedef struct tn_tensor_list { /* a list result: the array and its references are the caller's */
    tn_tensor **v;
    int64_t n;
} tn_tensor_list;
TN_API void tn_tensor_list_free(tn_tensor_list *list);

#define TN_INTS(...)                                                                               \
    ((tn_ints){(const int64_t[]){__VA_ARGS__},                                                     \
               (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))})
static inline tn_ints tn_ints_of(const int64_t *v, int64_t n) {
    tn_ints r = {v, n};
    return r;
}
static inline tn_ints tn_ints_none(void) {
    tn_ints r = {NULL, -1};
    return r;
}
static inline tn_opt_int tn_some_int(int64_t v) {
    tn_opt_int r = {v, 1};
    return r;
}
static inline tn_opt_int tn_no_int(void) {
    tn_opt_int r = {0, 0};
    return r;
}
static inline tn_opt_float tn_some_float(double v) {
    tn_opt_float r = {v, 1};
    return r;
}
static inline tn_opt_float tn_no_float(void) {
    tn_opt_float r = {0.0, 0};
    return r;
}

/* ---- Life --------------------------------------------------------------------------------------*/

/* Memory formats of new tensors. */
enum tn_memory_format {
    TN_FORMAT_CONTIGUOUS = 0,
    TN_FORMAT_PRESERVE = 1, /* like the model tensor, where there is one */
    TN_FORMAT_CHANNELS_LAST = 2,
    TN_FORMAT_CHANNELS_LAST_3D = 3
};

/* An uninitialised tensor. shape: ndim sizes >= 0 whose product times the item size stays below
 * 2^62. TN_E_VALUE, TN_E_MEMORY, TN_E_DEVICE. */
TN_API tn_status tn_tensor_new(int32_t dtype, tn_device device, int32_t ndim, const int64_t *shape,
                               tn_tensor **ret_tensor);

/* As above with strides (in elements, >= 0); the storage covers exactly their reach. */
TN_API tn_status tn_tensor_new_strided(int32_t dtype, tn_device device, int32_t ndim,
                                       const int64_t *shape, const int64_t *strides,
                                       tn_tensor **ret_tensor);

/* A CPU tensor with a copy of numel packed elements at `data`. */
TN_API tn_status tn_tensor_from_data(int32_t dtype, int32_t ndim, const int64_t *shape,
                                     const void *data, tn_tensor **ret_tensor);

/* A tensor over memory that somebody else owns; `release(ctx)` is called once when no tensor uses
 * it any more, from any thread. strides may be NULL (packed). readonly: writing raises. */
TN_API tn_status tn_tensor_from_foreign(int32_t dtype, tn_device device, int32_t ndim,
                                        const int64_t *shape, const int64_t *strides, void *data,
                                        int readonly, void (*release)(void *ctx), void *ctx,
                                        tn_tensor **ret_tensor);

/* Another reference; returns its argument. NULL stays NULL. */
TN_API tn_tensor *tn_tensor_ref(tn_tensor *t);
/* Drops a reference and clears the caller's pointer. Accepts a pointer to NULL. */
TN_API void tn_tensor_unref(tn_tensor **t);

/* ---- Facts -------------------------------------------------------------------------------------*/

/* The element at position 0 of a tensor with one element, as a number. Waits for the device. */
TN_API tn_status tn_tensor_item(const tn_tensor *t, tn_scalar *ret_value);
/* Copies all elements, packed row-major, into dst (bytes must be numel * item size). */
TN_API tn_status tn_tensor_read(const tn_tensor *t, void *dst, uint64_t bytes);
/* Overwrites all elements from packed row-major data. */
TN_API tn_status tn_tensor_write(tn_tensor *t, const void *src, uint64_t bytes);

/* How often the tensor's storage has been written in place, and its own sizes or memory been changed. */
TN_API uint32_t tn_tensor_version(const tn_tensor *t);
/* Counts a write that somebody else has made. */
TN_API void tn_tensor_note_write(tn_tensor *t);
/* Counts a change of this tensor alone: of its sizes, or of the memory that it looks at. */
TN_API void tn_tensor_note_change(tn_tensor *t);
/* True when results that follow the layout of these images are channels last: when the strides rise in
 * that order, whatever lies between the elements. */
TN_API int tn_tensor_lies_channels_last(const tn_tensor *t);
/* True when both tensors look at the same storage. */
TN_API int tn_tensor_same_storage(const tn_tensor *a, const tn_tensor *b);
/* Storage: address of its first byte, its size in bytes, offset of element 0 in elements. */
TN_API void *tn_tensor_storage_data(const tn_tensor *t);
/* The tensor's memory is there from now on: what a deferred call would have put there is computed. */
TN_API tn_status tn_tensor_settle(const tn_tensor *t);
/* For programs that read or write memory by address: the tensor's memory is there from now on, and no
 * deferred call (tn_deferred_begin) will read it later. Call it before the address is taken out of a
 * view where somebody may defer calls. */
TN_API tn_status tn_tensor_show(tn_tensor *t);
/* The same for tensors of one memory, and for no others while they live; 0: it has none. */
TN_API uint64_t tn_tensor_storage_id(const tn_tensor *t);
TN_API uint64_t tn_tensor_storage_bytes(const tn_tensor *t);
TN_API int64_t tn_tensor_storage_offset(const tn_tensor *t);

/* ---- Views that keep no history (the operators in tenon/ops.h keep it) -------------------------*/

/* A new tensor over the same storage with the given geometry. offset is in elements from the
 * storage's start. The whole reach is checked against the storage: TN_E_VALUE. */
TN_API tn_status tn_tensor_alias(const tn_tensor *t, int32_t dtype, int32_t ndim,
                                 const int64_t *shape, const int64_t *strides, int64_t offset,
                                 tn_tensor **ret_tensor);
/* Makes t look at the storage and geometry of `src` (PyTorch's set_data). Its version stays. */
TN_API tn_status tn_tensor_set_data(tn_tensor *t, const tn_tensor *src);

/* ---- Scalars -----------------------------------------------------------------------------------*/
static inline tn_scalar tn_scalar_bool(int v) {
    tn_scalar s = {TN_CAT_BOOL, 0, v != 0, v != 0 ? 1.0 : 0.0, 0.0};
    return s;
}
static inline tn_scalar tn_scalar_int(int64_t v) {
    tn_scalar s = {TN_CAT_INT, 0, v, (double)v, 0.0};
    return s;
}
/* Beyond int64 `i` holds the bits, and `re` the value. */
static inline tn_scalar tn_scalar_uint(uint64_t v) {
    tn_scalar s = {TN_CAT_INT, 0, (int64_t)v, (double)v, 0.0};
    return s;
}
static inline int tn_scalar_is_beyond(const tn_scalar *s) {
    return s->kind == TN_CAT_INT && s->i < 0 && s->re > 0;
}
TN_API tn_scalar tn_scalar_float(double v);
TN_API tn_scalar tn_scalar_complex(double re, double im);
static inline tn_scalar tn_scalar_none(void) {
    tn_scalar s = {TN_SCALAR_NONE, 0, 0, 0.0, 0.0};
    return s;
}

/* A number that stands for a tensor in an operator call: memory for it, on the caller's stack. The
 * tensor is valid as an argument for as long as the box lives; it must not be kept or unref'd. */
typedef struct tn_scalar_box {
    uint64_t bytes[40];
} tn_scalar_box;
TN_API tn_tensor *tn_scalar_box_init(tn_scalar_box *box, tn_scalar value);

/* ---- dtypes and devices ------------------------------------------------------------------------*/
TN_API const char *tn_dtype_name(int32_t dtype);   /* NULL for a free slot */
TN_API int32_t tn_dtype_find(const char *name);    /* -1 when unknown */
TN_API const char *tn_dtype_plugin(int32_t dtype); /* that brought it; NULL: it is built in */
/* The same, and loads the plugin that offers the dtype; TN_E_PLUGIN when there is none. */
TN_API tn_status tn_dtype_parse(const char *name, int32_t *ret_dtype);
TN_API int64_t tn_dtype_size(int32_t dtype);     /* bytes */
TN_API int32_t tn_dtype_category(int32_t dtype); /* tn_category */
/* PyTorch's table; TN_NO_DTYPE where it has none. */
TN_API int32_t tn_dtype_promote(int32_t a, int32_t b);
#define TN_NO_DTYPE (-2)
TN_API int32_t tn_dtype_dlpack_code(int32_t dtype);             /* -1: there is no such dtype */
TN_API int tn_dtype_is_signed(int32_t dtype);                   /* its values may be negative */
TN_API tn_status tn_dtype_check_promotes(int32_t a, int32_t b); /* TN_E_DTYPE where it has none */
/* The core's dtypes beside those that tenon/dtype.h numbers for plugins, which know them by name. */
enum {
    TN_U16 = TN_DTYPE_BUILTIN_COUNT,
    TN_U32,
    TN_U64,
    TN_F8_E4M3FN,
    TN_F8_E5M2,
    TN_F8_E4M3FNUZ,
    TN_F8_E5M2FNUZ,
    TN_F8_E8M0FNU,
    TN_C32,
    TN_DTYPE_CORE_COUNT
};
TN_API int32_t tn_dtype_default(void); /* of new floating tensors; float32 */
TN_API tn_status tn_dtype_set_default(int32_t dtype);

/* "cpu", "acme", "acme:1". Loads the plugin that serves the name. TN_E_DEVICE with the reason. */
TN_API tn_status tn_device_parse(const char *text, tn_device *ret_device);
TN_API const char *tn_device_name(int32_t slot); /* NULL for a free slot */
TN_API int32_t tn_device_count(int32_t slot);
/* Its type in DLPack, 12 for one that DLPack does not know; 0 for a free slot. */
TN_API int32_t tn_device_dlpack(int32_t slot);
TN_API tn_status tn_device_sync(tn_device device);
/* One line: plugin, instruction set, libraries. */
TN_API const char *tn_device_describe(tn_device device);
/* A named interface of the device ("tn.memory/1") and the ctx to pass to it; NULL: it has none. */
TN_API const void *tn_device_query(int32_t slot, const char *iface, void **ret_ctx);

/* Worker threads of the CPU device. */
TN_API int32_t tn_threads_get(void);
TN_API tn_status tn_threads_set(int32_t threads);

/* ---- Random numbers ----------------------------------------------------------------------------*/
TN_API tn_status tn_generator_new(tn_device device, tn_generator **ret_gen);
TN_API tn_generator *tn_generator_ref(tn_generator *gen);
TN_API void tn_generator_unref(tn_generator **gen);
TN_API tn_generator *tn_generator_default(tn_device device); /* borrowed */
TN_API tn_device tn_generator_device(const tn_generator *gen);
TN_API void tn_generator_seed(tn_generator *gen, uint64_t seed);
/* Seeds the default generators of all devices. */
TN_API void tn_generator_seed_all(uint64_t seed);
/* Seeds from the system's random source; returns the seed. */
TN_API uint64_t tn_generator_seed_from_system(tn_generator *gen);
TN_API uint64_t tn_generator_initial_seed(const tn_generator *gen);
/* The state as bytes, in PyTorch's layout for mt19937 (5056 bytes), 16 bytes for Philox, which those
 * of a device's own method follow. dst NULL: only the size. */
TN_API tn_status tn_generator_get_state(tn_generator *gen, void *dst, uint64_t *inout_bytes);
TN_API tn_status tn_generator_set_state(tn_generator *gen, const void *src, uint64_t bytes);
/* TN_RNG_PHILOX (default) or TN_RNG_MT19937 (PyTorch's stream) for every generator of the CPU. */
TN_API tn_status tn_rng_set_kind(uint32_t kind);
TN_API uint32_t tn_rng_kind(void);

#ifdef __cplusplus
}
#endif
#endif
