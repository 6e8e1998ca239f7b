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
/* Withdraws every kernel of a plugin; the library stays mapped. */
TN_API tn_status tn_plugin_retire(const char *name);

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

/* ---- Modes of the calling thread ---------------------------------------------------------------*/
TN_API int tn_grad_enabled(void);
TN_API int tn_grad_set_enabled(int on); /* returns the old value */
TN_API int tn_inference_enabled(void);
TN_API int tn_inference_set_enabled(int on);

/* ---- Layers ------------------------------------------------------------------------------------
 * Code that sees every operator call of the threads that switch it on, above the kernels: trace,
 * profile, batch, override. `next` runs the layers below and the kernel. args is tn_<op>_args,
 * rets the operator's results. Layers run in falling priority; at most 16. */
typedef struct tn_layer_call tn_layer_call;
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
/* Switches a layer on or off for the calling thread; returns the old value. */
TN_API int tn_layer_enable(int32_t id, int on);

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
} tn_host_hooks;
TN_API void tn_host_set_hooks(const tn_host_hooks *hooks);

#ifdef __cplusplus
}
#endif
#endif
