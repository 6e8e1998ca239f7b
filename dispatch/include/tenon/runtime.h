/* tenon/runtime.h: plugins, explanations, hooks for a host language. */
#ifndef TENON_RUNTIME_H
#define TENON_RUNTIME_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

TN_API const char *tn_version(void);

/* Loads one plugin library (absolute path) and activates it. TN_E_PLUGIN with file and reason. */
TN_API tn_status tn_plugin_load(const char *path);
/* The kernels of an active plugin run before those of all others, whatever their priority: for one
 * operator, or all (NULL), on one device, or all (-1). A later preference goes first. TN_E_PLUGIN when
 * it has no such kernel. plugin NULL: what was preferred there is no longer. */
TN_API tn_status tn_plugin_prefer(const char *plugin, const char *op, int32_t device_slot);
/* Withdraws every kernel of a plugin and the operators it added, and retires its devices: their tensors can be copied away and
 * freed, and nothing new can be made there. The library stays mapped. tn_plugin_load loads it again;
 * where the library is still the same, tensors from before can be used as if nothing had happened. */
TN_API tn_status tn_plugin_retire(const char *name);

/* Reads one more folder of manifests, or one manifest, by its absolute path; no code of a plugin
 * runs. What is known already stays as it is. */
TN_API tn_status tn_plugin_add(const char *path);

/* What is known of plugin `i`, 0 .. until TN_E_INDEX. Strings live as long as the process. */
typedef struct tn_plugin_status {
    const char *name, *version, *summary, *path;
    const char *problem; /* NULL when active, else why not and what to do */
    int32_t active;
    int32_t kernels;
} tn_plugin_status;
TN_API tn_status tn_plugin_at(int32_t i, tn_plugin_status *ret_status);

/* Text that says which kernel would run for (op, device, dtype) and why; free with tn_free. */
TN_API tn_status tn_explain(const char *op, tn_device device, int32_t dtype, char **ret_text);
TN_API void tn_free(void *p);
/* The checksum of zip archives, at the rate at which memory is read; start: what it is up to there. */
TN_API uint32_t tn_crc32(uint32_t start, const void *data, uint64_t bytes);

/* The same in a word: how a call of (op, device, dtype) would run. A kernel may still leave a call
 * to the next way, and the parts of a composite each have a way of their own. */
#define TN_WAY_CORE 0      /* a view: no device has to do anything */
#define TN_WAY_KERNEL 1    /* on the device, in this dtype */
#define TN_WAY_WIDER 2     /* on the device, in a wider dtype */
#define TN_WAY_COMPOSITE 3 /* as other operators */
#define TN_WAY_HOST 4      /* on the CPU, with copies both ways */
#define TN_WAY_NONE 5      /* not at all */
TN_API tn_status tn_explain_way(const char *op, tn_device device, int32_t dtype, int32_t *ret_way);

/* What happens to a call that its device has no kernel for, once a wider dtype and a composite are
 * ruled out: it runs on the CPU, with copies both ways, or is an error. TN_FALLBACK_WARN says so
 * once per operator and device. The environment's TENON_FALLBACK (allow, warn, error) is the start. */
#define TN_FALLBACK_ALLOW 0
#define TN_FALLBACK_WARN 1
#define TN_FALLBACK_ERROR 2
TN_API int32_t tn_fallback_policy(void);
TN_API tn_status tn_fallback_set_policy(int32_t policy); /* of the process */
/* While `on`, operators that can be made of others have no kernels, so that their formulas run: to
 * compare both. Not while another thread computes or a plugin is loaded. */
TN_API tn_status tn_kernels_hide(int32_t on);
/* How many calls of an operator on a device ran in a wider dtype, and on the CPU. */
TN_API tn_status tn_fallback_count(const char *op, int32_t device_slot, uint64_t *ret_wide,
                                   uint64_t *ret_host);

/* ---- Streams and events ------------------------------------------------------------------------
 * A stream is a queue of work on a device; kernels and copies of a thread go to its current stream
 * of their device. On a device without streams they are all the one queue that it has. */
typedef struct tn_stream tn_stream;
typedef struct tn_event tn_event;
TN_API tn_status tn_stream_new(tn_device device, int32_t priority, tn_stream **ret_stream);
/* The queue that work goes to as long as no other stream is set. */
TN_API tn_status tn_stream_default(tn_device device, tn_stream **ret_stream);
TN_API tn_stream *tn_stream_ref(tn_stream *s);
TN_API void tn_stream_unref(tn_stream **s);
TN_API tn_device tn_stream_device(const tn_stream *s);
TN_API void *tn_stream_handle(const tn_stream *s); /* the device's own; NULL: its default */
TN_API tn_status tn_stream_sync(const tn_stream *s);
TN_API tn_status tn_stream_done(const tn_stream *s, int *ret_done);
TN_API tn_status tn_stream_wait(const tn_stream *s, const tn_event *e);
/* The calling thread's stream of a device (borrowed), NULL: the default. */
TN_API tn_stream *tn_stream_current(tn_device device);
TN_API tn_status tn_stream_set_current(tn_device device, tn_stream *stream);
TN_API tn_status tn_event_new(tn_device device, int timing, tn_event **ret_event);
TN_API void tn_event_unref(tn_event **e);
TN_API void *tn_event_handle(const tn_event *e); /* the device's own; NULL: it has none */
TN_API tn_status tn_event_record(tn_event *e, const tn_stream *s); /* NULL: the current stream */
TN_API tn_status tn_event_sync(const tn_event *e);
TN_API tn_status tn_event_done(const tn_event *e, int *ret_done);
/* Milliseconds between two recorded events made with `timing`. */
TN_API tn_status tn_event_elapsed(const tn_event *start, const tn_event *end, double *ret_ms);

/* ---- Memory of devices -------------------------------------------------------------------------
 * Core keeps freed memory of a device for reuse, unless the device does so itself or
 * TENON_MEMORY_CACHE=0. What a device does not say is counted by core; `total` and `available` are 0
 * where it does not. */
TN_API tn_status tn_memory_get_stats(tn_device device, tn_memory_stats *ret_stats);
TN_API tn_status tn_memory_reset_peak(tn_device device);
/* Gives back what is kept for reuse. */
TN_API tn_status tn_memory_empty_cache(tn_device device);
/* Work that is queued on the stream uses the tensor's memory: for work that is queued past Tenon.
 * Operators and copies need no such note. */
TN_API tn_status tn_tensor_record_stream(const tn_tensor *t, const tn_stream *s);

/* ---- Pinned memory -----------------------------------------------------------------------------
 * Memory of the host that a device reaches by itself. Copies with `non_blocking` between it and the
 * device return before they are done: later work on the same stream finds them done, the host has to
 * wait before it reads or writes. The memory stays until they are done. */
/* A copy, recorded for gradients, of a tensor on the CPU in memory that the device of a slot reaches;
 * -1: the first device that is loaded and has such memory. Where there is none, the memory starts at
 * a page, and copies wait. A tensor that is pinned already is itself the result. */
TN_API tn_status tn_tensor_pin(tn_tensor *t, int32_t device_slot, tn_tensor **ret_tensor);
TN_API int tn_tensor_is_pinned(const tn_tensor *t);

/* ---- Modes of the calling thread ---------------------------------------------------------------*/
TN_API int tn_grad_enabled(void);
TN_API int tn_grad_set_enabled(int on); /* returns the old value */
TN_API int tn_inference_enabled(void);
TN_API int tn_inference_set_enabled(int on);

/* ---- Layers ------------------------------------------------------------------------------------
 * Code that sees every operator call of the threads that switch it on, above the kernels: trace,
 * profile, batch, override. `next` runs the layers below and the kernel. args is tn_<op>_args,
 * rets the operator's results. Layers run in falling priority; at most 16. */
typedef struct tn_layer {
    const char *name;
    int32_t priority;
    int32_t reserved;
    tn_status (*call)(void *ctx, tn_layer_call *next, const tn_op_info *op, void *args,
                      tn_tensor **rets);
    void *ctx;
} tn_layer;
TN_API tn_status tn_layer_register(const tn_layer *layer, int32_t *ret_id);
TN_API tn_status tn_layer_next(tn_layer_call *next, const tn_op_info *op, void *args,
                               tn_tensor **rets);
/* The layer of that name; loads the plugin that offers it. TN_E_PLUGIN when there is none. */
TN_API tn_status tn_layer_find(const char *name, int32_t *ret_id);
/* Switches a layer on or off for the calling thread; returns the old value. */
TN_API int tn_layer_enable(int32_t id, int on);

/* ---- Mixed precision ---------------------------------------------------------------------------
 * Inside a region, operators on that kind of device get some of their inputs converted, each as the
 * op table says; a region is of the calling thread. Set one and put the old one back at its end. */
typedef struct tn_autocast {
    int32_t enabled;
    int32_t dtype; /* the short one; bfloat16 on the CPU, float16 elsewhere */
    int32_t cache; /* converted parameters are kept until tn_autocast_clear */
} tn_autocast;
TN_API tn_status tn_autocast_get(int32_t device_slot, tn_autocast *ret_region);
TN_API tn_status tn_autocast_set(int32_t device_slot, const tn_autocast *region);
/* Drops the thread's converted parameters: at the end of the outermost region. */
TN_API void tn_autocast_clear(void);

/* ---- A host language ---------------------------------------------------------------------------
 * The host keeps its object header in the TN_HOST_PREFIX bytes in front of each tensor, so that its
 * object and the tensor are one block. While that header is alive it owns one reference. */
#define TN_HOST_PREFIX 32
typedef struct tn_host_slots {
    void *type; /* the host's class while the header is alive or dormant, else NULL */
    void *dict;
    void *weak;
    uint32_t alive;
    uint32_t reserved;
} tn_host_slots;
TN_API tn_host_slots *tn_tensor_host(tn_tensor *t);
TN_API uint64_t tn_tensor_struct_bytes(void);       /* size of the tensor behind the prefix */
TN_API uint64_t tn_tensor_host_offset(void);        /* of tn_host_slots from the tensor's start */
TN_API int tn_tensor_is_shared(const tn_tensor *t); /* more than one reference */

typedef struct tn_host_hooks {
    uint32_t struct_size;
    uint32_t reserved;
    /* The last reference to a tensor with a dormant header is gone: release dict and type. May be
     * called from any thread. */
    void (*tensor_dying)(tn_tensor *t);
    /* See tn_host.poll; called on the thread that entered the operator. */
    tn_status (*poll)(void);
    void (*log)(int32_t level, const char *text);
    /* Returns text naming the host's current source line, for anomaly mode; free with tn_free. */
    char *(*where)(void);
    /* Asked before a plugin's library is mapped. Anything but TN_OK, with a recorded failure, keeps
     * it out. `ours`: it came with Tenon. Two threads may ask about one library. */
    tn_status (*admit_plugin)(const char *name, const char *path, int32_t ours);
    /* Asked once, before a name is said to be unknown and before plugins are listed: hands over
     * what the host's packages bring, by tn_plugin_add. After a failure it is asked again. */
    tn_status (*find_plugins)(void);
} tn_host_hooks;
TN_API void tn_host_set_hooks(const tn_host_hooks *hooks);

#ifdef __cplusplus
}
#endif
#endif
