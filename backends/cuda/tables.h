/* tables.h: what the device offers beside kernels: the tables that plugin.c hands out by name. */
#ifndef CUDA_TABLES_H
#define CUDA_TABLES_H

#include "cuda_priv.h"

/* ---- switches.c --------------------------------------------------------------------------------*/
/* Named interface "tenon.cuda/1" of the device, for the Python package. */
typedef struct cuda_settings_iface {
    uint32_t struct_size;
    uint32_t reserved;
    void (*allow_tf32)(int32_t allow); /* products of float32 */
    int32_t (*is_tf32_allowed)(void);
    /* NVIDIA's libraries: which version is there, or what to install. A line for each. */
    const char *(*libraries)(void);
    /* A number of the list below by its name ("cudnn_benchmark"). */
    void (*set_option)(const char *name, int32_t value);
    int32_t (*option)(const char *name);
    int32_t (*cudnn_version)(void); /* 92800 for 9.28.0; 0 where cuDNN is not to be had */
} cuda_settings_iface;
extern const cuda_settings_iface cuda_settings;

/* ---- nvtx.c: spans of time for NVIDIA's tools; nothing without their library -------------------*/
extern const tn_profiler_iface cuda_profiler_iface;
/* How deep the thread's spans are nested, or a negative number. */
int32_t cuda_range_push(const char *name);
int32_t cuda_range_pop(void);
void cuda_mark(const char *name);
/* Spans that need not nest, by a number. */
uint64_t cuda_range_start(const char *name);
void cuda_range_end(uint64_t range);

/* ---- runtime.c ---------------------------------------------------------------------------------*/
/* Named interface "tenon.cuda.runtime/1" of the device, for the Python package. */
typedef struct cuda_runtime_iface {
    uint32_t struct_size;
    uint32_t reserved;
    /* A property of a device by its name, "warp_size"; TN_E_VALUE: there is none of that name. */
    tn_status (*property)(int32_t device, const char *name, int64_t *ret_value);
    const char *(*name)(int32_t device);
    tn_status (*memory_info)(int32_t device, int64_t *ret_free, int64_t *ret_total);
    uint64_t (*memory_snapshot)(int32_t device, cuda_block_info *ret_blocks, uint64_t room);
    void (*memory_counts)(int32_t device, uint64_t *ret_retries, uint64_t *ret_failures);
    tn_status (*set_memory_limit)(int32_t device, uint64_t bytes);
    tn_status (*can_access_peer)(int32_t device, int32_t peer, int32_t *ret_can);
    /* The counter of a device by its name, "launches"; NULL after the last. */
    const char *(*counter_name)(int32_t i);
    uint64_t (*counter)(int32_t device, int32_t i);
    void (*reset_counters)(int32_t device);
    int32_t (*is_started)(void); /* whether a device is in use by this process */
    int32_t (*range_push)(const char *name);
    int32_t (*range_pop)(void);
    void (*mark)(const char *name);
    uint64_t (*range_start)(const char *name);
    void (*range_end)(uint64_t range);
} cuda_runtime_iface;
extern const cuda_runtime_iface cuda_runtime;

/* ---- codegen.c, user_kernel.c: kernels that are made while the process runs ---------------------*/
extern const tn_codegen_iface cuda_codegen_iface;
/* Named interface "tenon.cuda.kernel/1" of the device: kernels whose source the user brings. */
typedef struct cuda_kernel_iface {
    uint32_t struct_size;
    uint32_t reserved;
    /* Compiles a source and finds the kernel `name` in it. The kernel stays for the life of the
     * process; the same source, name and options give the same one. When NVRTC refuses the source,
     * ret_log gets what it says, up to `room` bytes, else an empty text. */
    tn_status (*compile)(int32_t device, const char *source, const char *name,
                         const char *const *options, int32_t noptions, void **ret_kernel,
                         char *ret_log, uint64_t room);
    /* Queues it; params: the address of each argument. */
    tn_status (*launch)(int32_t device, void *kernel, const uint32_t grid[3],
                        const uint32_t block[3], uint32_t shared, void *stream, void **params);
} cuda_kernel_iface;
extern const cuda_kernel_iface cuda_kernels_of_users;

#endif
