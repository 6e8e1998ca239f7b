/* cuda_priv.h: what the host side of the CUDA plugin shares. Host code is C11 on the driver API; no
 * function here waits for a device unless it says so. */
#ifndef CUDA_PRIV_H
#define CUDA_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/plugin.h>

#include "common/room.h"
#include "common/rows.h"
#include "driver.h"
#include "folders.h"
#include "kernels/args/args.h"

enum { CUDA_DEVICES = 16 /* most devices of one process */ };

typedef struct cuda_device cuda_device;

/* ---- host.c ------------------------------------------------------------------------------------*/
extern const tn_host *cuda_host;
extern cuda_driver cuda;
/* NULL where the process has more rights than its user. */
const char *cuda_getenv(const char *name);
/* Turns a result that is not CUDA_OK into a failure; `what` was attempted; d may be NULL. */
tn_status cuda_fail(const cuda_device *d, CUresult r, const char *what);

/* ---- library.c: NVIDIA's libraries, opened at run time ------------------------------------------*/
/* The driver, initialised; *ret_count of its devices is at least 1. Fails with what to install. */
tn_status cuda_open_driver(int *ret_count);
/* cuda_look_for, in the folders of TENON_CUDA_PATH. */
void *cuda_open_library(const char *stem, const int *versions);
/* The versions to look for, newest first, then 0. */
extern const int cuda_toolkit_versions[];
/* A library of the toolkit. */
typedef struct cuda_toolkit_library {
    const char *stem, *title;
    const char *without; /* what a user is told who does not have it */
    const cuda_symbol *symbols;
    size_t nsymbols;
} cuda_toolkit_library;
/* Opens it and fills the table of its functions. */
tn_status cuda_open_toolkit(const cuda_toolkit_library *library, void *ret_table);

/* ---- cache.c: files that outlive the process, in TENON_CUDA_CACHE or the user's own cache --------*/
#define CUDA_CACHE_SEED UINT64_C(0xcbf29ce484222325)
enum { CUDA_CACHE_PATH = 1024 };
uint64_t cuda_cache_hash(uint64_t h, const void *data, size_t bytes);
/* False: nothing is kept. */
bool cuda_cache_path(const char *file, char ret_path[CUDA_CACHE_PATH]);
/* *ret_data is malloc'ed; false: there is no such file of this user. */
bool cuda_cache_read(const char *path, void **ret_data, size_t *ret_bytes);
void cuda_cache_write(const char *path, const void *data, size_t bytes);

/* ---- device.c ----------------------------------------------------------------------------------*/
/* What is counted for every device. */
enum cuda_counted {
    CUDA_LAUNCHES,      /* kernels of ours */
    CUDA_LIBRARY_CALLS, /* what NVIDIA's libraries launch for one call is theirs */
    CUDA_GRAPH_LAUNCHES,
    CUDA_WAITS, /* of the host, for a stream, an event or the device */
    CUDA_BYTES_IN,
    CUDA_BYTES_OUT,
    CUDA_BYTES_WITHIN,
    CUDA_COUNTED
};

struct cuda_device {
    int32_t index;
    CUdevice id;
    CUcontext context; /* the primary one, once it is in use */
    int major, minor, processors;
    int maps;            /* memory can be mapped into ranges of addresses */
    cuda_fault *fault;   /* what kernels found wrong in their input */
    char text[160];      /* for people */
    atomic_int captures; /* graphs that are being captured */
    _Atomic uint64_t counts[CUDA_COUNTED];
};

static inline void cuda_count(cuda_device *d, enum cuda_counted what, uint64_t n) {
    atomic_fetch_add_explicit(&d->counts[what], n, memory_order_relaxed);
}

/* Reads the properties of the driver's first devices. */
tn_status cuda_find_devices(int32_t count);
/* The device of an index, which need not be in use; NULL: there is none. */
cuda_device *cuda_device_at(int32_t index);
/* Makes the device current on the calling thread. Fails in a process that was forked after the
 * driver was initialised. */
tn_status cuda_enter(int32_t index, cuda_device **ret_device);
/* The same for giving something back: false where nothing of the device is in use. */
bool cuda_reenter(int32_t index, cuda_device **ret_device);
/* After somebody waited: reports what failed, or what kernels found wrong in their input. */
tn_status cuda_checked(cuda_device *d, CUresult r, const char *what);

/* Waits for a stream, or for all of the device that is current. */
CUresult cuda_wait_stream(cuda_device *d, CUstream stream);
CUresult cuda_wait_device(cuda_device *d);

/* Copies what earlier work of a stream, or that of a call, left on the device to the host: waits. */
tn_status cuda_copy_out(int32_t index, void *dst, CUdeviceptr src, uint64_t bytes, void *stream);
tn_status cuda_read(const tn_call *call, void *dst, const void *src, uint64_t bytes);

/* Where a kernel of the call reports bad input: the host's next check turns it into a failure. */
tn_status cuda_fault_of(const tn_call *call, cuda_fault **ret_fault);

/* ---- settings.c --------------------------------------------------------------------------------*/
/* X(constant, name, environment variable, default); defaults are those of PyTorch */
#define CUDA_OPTION_LIST(X)                                                                        \
    X(CUDA_REDUCED_F16, "reduced_f16", "TENON_CUDA_REDUCED_F16", 1)                                \
    X(CUDA_REDUCED_BF16, "reduced_bf16", "TENON_CUDA_REDUCED_BF16", 1)                             \
    X(CUDA_DETERMINISTIC, "deterministic", "TENON_CUDA_DETERMINISTIC", 0)                          \
    X(CUDA_CUDNN, "cudnn", "TENON_CUDNN", 1)                                                       \
    X(CUDA_CUDNN_BENCHMARK, "cudnn_benchmark", "TENON_CUDNN_BENCHMARK", 0)                         \
    X(CUDA_CUDNN_BENCHMARK_LIMIT, "cudnn_benchmark_limit", "TENON_CUDNN_BENCHMARK_LIMIT", 10)      \
    X(CUDA_CUDNN_DETERMINISTIC, "cudnn_deterministic", "TENON_CUDNN_DETERMINISTIC", 0)             \
    X(CUDA_CUDNN_TF32, "cudnn_allow_tf32", "TENON_CUDNN_TF32", 1)                                  \
    X(CUDA_CUDNN_SDP, "cudnn_sdp", "TENON_CUDNN_SDP", 1)                                           \
    X(CUDA_CUDNN_NORM_LEAST, "cudnn_norm_least", "TENON_CUDNN_NORM_LEAST", 1 << 20)
#define CUDA_OPTION_ENUMERATOR(id, name, variable, value) id,
typedef enum cuda_option { CUDA_OPTION_LIST(CUDA_OPTION_ENUMERATOR) CUDA_OPTIONS } cuda_option;
#undef CUDA_OPTION_ENUMERATOR
int32_t cuda_option_value(cuda_option option);
/* The same by name; what has no such name is 0, and not set. */
void cuda_set_option(const char *name, int32_t value);
int32_t cuda_option_named(const char *name);
/* Whether products of float32 may be computed in TF32. */
void cuda_allow_tf32(int32_t allow);
int32_t cuda_is_tf32_allowed(void);
/* The most bytes of an unfolded matrix (TENON_CUDA_CONV_BYTES). */
int64_t cuda_settings_conv_bytes(void);
/* Reads the environment. */
void cuda_read_settings(void);
/* Whether freed memory is kept for reuse, and whether in ranges that grow (TENON_CUDA_ALLOC). */
bool cuda_settings_keeps_memory(void);
bool cuda_settings_expandable(const cuda_device *d);

/* ---- stream.c ----------------------------------------------------------------------------------*/
extern const tn_stream_iface cuda_stream_iface;
extern const tn_peer_iface cuda_peer_iface;
/* Waits for a stream and destroys it. */
void cuda_stream_end(cuda_device *d, CUstream stream);

/* ---- pinned.c ----------------------------------------------------------------------------------*/
extern const tn_pinned_iface cuda_pinned_iface;
/* Gives what is kept for reuse back to the driver, which waits for the devices. */
void cuda_pinned_give_back(void);

/* ---- memory.c ----------------------------------------------------------------------------------*/
extern const tn_allocator_iface cuda_allocator_iface;
extern const tn_memory_iface cuda_memory_iface;
void cuda_memory_start(void);
/* A stream is gone, and all of its work is done. */
void cuda_memory_forget(cuda_device *d, CUstream stream);
/* Takes back what dev_alloc gave, after the graphs that are being captured; settle: they are done. */
void cuda_memory_release(cuda_device *d, CUdeviceptr data);
void cuda_memory_settle(cuda_device *d);
/* The most bytes to take from the driver; 0: no limit. */
void cuda_memory_set_limit(cuda_device *d, uint64_t bytes);
/* How often the driver had no memory left, and how often that was so even then when all that lay free
 * had been given back. */
void cuda_memory_counts(cuda_device *d, uint64_t *ret_retries, uint64_t *ret_failures);
#define CUDA_INFO_SMALL 0x1u
#define CUDA_INFO_EXPANDABLE 0x2u
typedef struct cuda_block_info {
    uint64_t segment, segment_bytes, stream, address, bytes;
    uint64_t asked; /* by the tensor that uses it, else 0 */
    uint32_t state; /* 0 free, 1 in use, 2 freed and still used by another stream, 3 no memory */
    uint32_t flags; /* CUDA_INFO_* */
} cuda_block_info;
/* Fills at most `room`; how many blocks there are. */
uint64_t cuda_memory_snapshot(cuda_device *d, cuda_block_info *ret_blocks, uint64_t room);

/* ---- graph.c -----------------------------------------------------------------------------------*/
extern const tn_graph_iface cuda_graph_iface;
/* Whether the calling thread's work on the stream is recorded and not run: nobody may wait for it. */
bool cuda_is_recording(const void *stream);
/* Whether the stream, which nobody has any more, is recorded and stays until the recording ends. */
bool cuda_graph_keeps(void *stream);
/* For a kernel that is recorded and draws: its part of the numbers that each launch reserves. */
tn_status cuda_graph_draw(const tn_call *call, tn_generator *gen, uint64_t blocks,
                          cuda_draws *ret_draws, const cuda_draws **ret_launch);

/* ---- module.c: kernels -------------------------------------------------------------------------*/
/* A kernel by name, in the module of that name; found at its first launch on each device. */
typedef struct cuda_kernel {
    const char *module, *name;
    _Atomic(CUfunction) on[CUDA_DEVICES];
} cuda_kernel;
/* Queues blocks * threads threads with the argument `args` on the call's stream. */
tn_status cuda_launch(const tn_call *call, cuda_kernel *k, int64_t blocks, uint32_t threads,
                      const void *args);

/* A kernel for each size of an element: 1, 2, 4, 8 and 16 bytes. */
typedef cuda_kernel cuda_size_kernels[5];
#define CUDA_SIZE_KERNEL(family, stem, bytes)                                                      \
    { .module = #family, .name = #stem "_" #bytes }
#define CUDA_SIZE_KERNELS(family, stem)                                                            \
    {                                                                                              \
        CUDA_SIZE_KERNEL(family, stem, 1), CUDA_SIZE_KERNEL(family, stem, 2),                      \
            CUDA_SIZE_KERNEL(family, stem, 4), CUDA_SIZE_KERNEL(family, stem, 8),                  \
            CUDA_SIZE_KERNEL(family, stem, 16)                                                     \
    }
static inline cuda_kernel *cuda_size_kernel(cuda_size_kernels kernels, int64_t bytes) {
    int i = 0;
    while (i < 4 && INT64_C(1) << i != bytes) i++;
    return &kernels[i];
}

/* A kernel for each floating type, by slot from TN_F16 on; `family` is its .cu file. */
typedef cuda_kernel cuda_float_kernels[4];
#define CUDA_FLOAT_KERNEL(family, stem, dtype)                                                     \
    { .module = #family "_" #dtype, .name = #stem "_" #dtype "_cuda" }
#define CUDA_FLOAT_LIST(family, stem)                                                              \
    CUDA_FLOAT_KERNEL(family, stem, f16), CUDA_FLOAT_KERNEL(family, stem, bf16),                   \
        CUDA_FLOAT_KERNEL(family, stem, f32), CUDA_FLOAT_KERNEL(family, stem, f64)
#define CUDA_FLOAT_KERNELS(family, stem)                                                           \
    { CUDA_FLOAT_LIST(family, stem) }
static inline cuda_kernel *cuda_float_kernel(const tn_call *call, cuda_float_kernels kernels) {
    return &kernels[call->dtype - TN_F16];
}

/* The same for every real dtype, by slot. Operators that have not all of them name some in vain. */
typedef cuda_kernel cuda_real_kernels[TN_F64 + 1];
#define CUDA_WHOLE_LIST(family, stem)                                                              \
    CUDA_FLOAT_KERNEL(family, stem, b8), CUDA_FLOAT_KERNEL(family, stem, u8),                      \
        CUDA_FLOAT_KERNEL(family, stem, i8), CUDA_FLOAT_KERNEL(family, stem, i16),                 \
        CUDA_FLOAT_KERNEL(family, stem, i32), CUDA_FLOAT_KERNEL(family, stem, i64)
#define CUDA_REAL_KERNELS(family, stem)                                                            \
    { CUDA_WHOLE_LIST(family, stem), CUDA_FLOAT_LIST(family, stem) }

/* The same for every built-in dtype. */
typedef cuda_kernel cuda_dtype_kernels[TN_DTYPE_BUILTIN_COUNT];
#define CUDA_DTYPE_KERNELS(family, stem)                                                           \
    {                                                                                              \
        CUDA_WHOLE_LIST(family, stem), CUDA_FLOAT_LIST(family, stem),                              \
            CUDA_FLOAT_KERNEL(family, stem, c64), CUDA_FLOAT_KERNEL(family, stem, c128)            \
    }

/* ---- plan.c ------------------------------------------------------------------------------------*/
/* For kernels. TN_DECLINE: too many dimensions. */
tn_status cuda_plan_make(const tn_plan *plan, cuda_plan *ret_plan);
/* The same from tensors, the result first; others may be broadcast to its shape. */
tn_status cuda_plan_views(const tn_view *const *views, int32_t n, cuda_plan *ret_plan);
/* The same, dimension by dimension: start, add from the inside to the outside, end. Strides and the
 * sizes of elements are in bytes, by operand; `data` is set in between. */
void cuda_plan_start(cuda_plan *ret_plan);
tn_status cuda_plan_add(cuda_plan *plan, int32_t noperands, int64_t size, const int64_t *stride);
void cuda_plan_end(cuda_plan *plan, int32_t noperands, const int32_t *bytes);
/* One element for each thread, whose offsets are computed, packed or not. */
void cuda_plan_by_element(cuda_plan *plan);
/* How many groups of elements the plan has, one for each thread. */
int64_t cuda_plan_groups(const cuda_plan *plan);
/* Launches a kernel whose argument begins with a plan, a group of elements for each thread. */
tn_status cuda_launch_plan(const tn_call *call, cuda_kernel *k, const cuda_plan *plan);

/* A thread for each of n elements. */
static inline tn_status cuda_launch_each(const tn_call *call, cuda_kernel *k, int64_t n,
                                         const void *args) {
    if (n == 0) return TN_OK;
    return cuda_launch(call, k, (n + CUDA_BLOCK - 1) / CUDA_BLOCK, CUDA_BLOCK, args);
}

/* Bytes of an element of a built-in dtype. */
int32_t cuda_item_bytes(int32_t dtype);
/* The same of the type that sums of the call's floating elements are computed in. */
static inline int64_t cuda_sum_bytes(const tn_call *call) { return call->dtype == TN_F64 ? 8 : 4; }

/* ---- rows.c ------------------------------------------------------------------------------------*/
/* Operands, inputs first, all of one shape, as rows along `dim`. Packed rows get a block each, others
 * go side by side, so that threads read neighbours. TN_DECLINE: too many dimensions. */
tn_status cuda_rows_read(const tn_view *const *views, int32_t n, int64_t dim,
                         cuda_rows_args *ret_args);
/* Threads of a block of `width` columns, a power of two: not many more than rows have elements. */
uint32_t cuda_rows_threads(int64_t n, int32_t width);
/* Into how many parts, of `least` units or more each, `count` units of each of `blocks` blocks are cut:
 * one, unless the blocks are too few for a GPU, to which more than `most_blocks` are of no use. From
 * sizes alone, so that bits are the same everywhere. */
int64_t cuda_cut(int64_t count, int64_t least, int64_t blocks, int64_t most_blocks);
/* The same of elements that `lanes` threads of each block share. */
int64_t cuda_parts(int64_t count, int64_t lanes, int64_t blocks);
/* Threads that share a packed row of `items` packs or elements (kernels/packs.h), a power of two of at
 * least `least`: up to 32 take two each, more take up to `each`, or one where there are few rows. */
int32_t cuda_pack_lanes(int64_t items, int64_t each, int64_t rows, int32_t least);
/* log2 of the threads that share a row of `units`, each of which takes in CUDA_AHEAD at once: no more
 * than a warp where rows are short and many. */
int32_t cuda_row_shift(int64_t units, int64_t rows);
enum { CUDA_AHEAD = 4 };
/* Whether the dimensions of v from `first` on are one with one stride, in elements; 0: one element. */
bool cuda_merge_dims(const tn_view *v, int32_t first, int64_t *ret_stride);

/* ---- order.c -----------------------------------------------------------------------------------*/
/* The elements of x, packed int64 and at least one, in rising order and where each stood; equal ones
 * keep their order. TN_DECLINE: too many. */
tn_status cuda_sort(const tn_call *call, const tn_view *x, int64_t *ret_values, int64_t *ret_at);
/* The k largest elements of each packed row of n, of the call's dtype, and where each stood. */
tn_status cuda_largest(const tn_call *call, const void *x, int64_t rows, int64_t n, int64_t k,
                       void *ret_values, int64_t *ret_at);

/* ---- copy.c ------------------------------------------------------------------------------------*/
/* Copies elements of 1, 2, 4, 8 or 16 bytes. */
tn_status cuda_copy_plan(const tn_call *call, int64_t bytes, const cuda_plan *plan);
/* Copies the elements of a tensor to another one of its shape and dtype. */
tn_status cuda_copy_view(const tn_call *call, const tn_view *to, const tn_view *from);
/* Converts the elements of a tensor to another one's dtype. */
tn_status cuda_cast(const tn_call *call, const tn_view *to, const tn_view *from);
/* Converts n packed elements of one real dtype to another. */
tn_status cuda_cast_packed(const tn_call *call, const void *from, int32_t from_dtype, void *to,
                           int32_t to_dtype, int64_t n);
/* Copies the elements of v, packed in row-major order. */
tn_status cuda_pack(const tn_call *call, const tn_view *v, void *to);
/* The elements of v packed in row-major order: v's own memory, or a copy in scratch memory. */
tn_status cuda_packed(const tn_call *call, const tn_view *v, const void **ret_data);
/* Zeros to all elements of v, which is packed. */
tn_status cuda_zero(const tn_call *call, const tn_view *v);

/* ---- random.c ----------------------------------------------------------------------------------*/
/* Reserves Philox blocks of the generator, which is free again afterwards; a graph reserves them at
 * each launch. TN_DECLINE: it draws in another way, which the CPU has. */
tn_status cuda_reserve_random(const tn_call *call, tn_generator *gen, uint64_t blocks,
                              cuda_draws *ret_draws, const cuda_draws **ret_launch);

/* ---- Rows: one array per family, whose name follows from the file's head -----------------------*/
typedef kernel_rows cuda_rows;
#define CUDA_ROWS_OF(rows) KERNEL_ROWS_OF(rows)
#define CUDA_ROW(op, fn, dtype, flags)                                                             \
    { #op, TN_SIG_##op, fn, NULL, dtype, 0, flags, 0 }
/* The rows of an operator that has a kernel for each floating type. */
#define CUDA_FLOAT_ROW(op, fn, dtype) CUDA_ROW(op, fn, dtype, TN_K_CAPTURE_SAFE)
#define CUDA_FLOAT_ROWS(op, fn)                                                                    \
    CUDA_FLOAT_ROW(op, fn, TN_F16), CUDA_FLOAT_ROW(op, fn, TN_BF16),                               \
        CUDA_FLOAT_ROW(op, fn, TN_F32), CUDA_FLOAT_ROW(op, fn, TN_F64)
/* The same with integers, and with bool. */
#define CUDA_NUMBER_ROWS(op, fn)                                                                   \
    CUDA_FLOAT_ROW(op, fn, TN_U8), CUDA_FLOAT_ROW(op, fn, TN_I8), CUDA_FLOAT_ROW(op, fn, TN_I16),  \
        CUDA_FLOAT_ROW(op, fn, TN_I32), CUDA_FLOAT_ROW(op, fn, TN_I64), CUDA_FLOAT_ROWS(op, fn)
#define CUDA_COMPLEX_ROWS(op, fn) CUDA_FLOAT_ROW(op, fn, TN_C64), CUDA_FLOAT_ROW(op, fn, TN_C128)
#define CUDA_REAL_ROWS(op, fn) CUDA_FLOAT_ROW(op, fn, TN_BOOL), CUDA_NUMBER_ROWS(op, fn)

#endif
