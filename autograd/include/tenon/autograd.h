/* tenon/autograd.h: gradients: backward, leaves, hooks, the recorded graph, functions of a host
 * language.
 *
 * Ownership is that of tenon/tensor.h: arguments are borrowed, what comes back through `ret_` is a new
 * reference unless the comment says "borrowed". The recording itself needs no call: operators do it.
 * Modes (tn_grad_enabled ...) are declared in tenon/runtime.h. */
#ifndef TENON_AUTOGRAD_H
#define TENON_AUTOGRAD_H

#include <stddef.h>

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_node tn_node;   /* one recorded call */
typedef struct tn_hook tn_hook;   /* a registered callback */
typedef struct tn_saved tn_saved; /* a tensor kept for backward */

/* ---- Backward ----------------------------------------------------------------------------------*/

/* Adds the gradients of sum(roots * grads) to the .grad of the leaves: of `inputs` only, unless
 * ninputs is 0. grads, or one of its entries, may be NULL: 1 for a root with one element.
 * create_graph records the backward pass itself; without retain_graph what the graph saved is freed.
 * TN_E_STATE: nothing to differentiate, a graph used up, a saved tensor that was overwritten. */
TN_API tn_status tn_backward(tn_tensor *const *roots, tn_tensor *const *grads, int64_t nroots,
                             tn_tensor *const *inputs, int64_t ninputs, int retain_graph,
                             int create_graph);

/* The same gradients with respect to `inputs`, returned instead of added: ninputs references. An input
 * that the outputs do not depend on gets NULL with allow_unused, else the call fails. */
TN_API tn_status tn_grad(tn_tensor *const *outputs, tn_tensor *const *grad_outputs,
                         int64_t noutputs, tn_tensor *const *inputs, int64_t ninputs,
                         int retain_graph, int create_graph, int allow_unused,
                         tn_tensor **ret_grads);

/* For hooks: the calling thread's running pass, the innermost if passes are nested. id 0: none. It is
 * restricted when it runs for the gradients of given tensors only. */
typedef struct tn_pass_info {
    uint64_t id;
    int restricted;
} tn_pass_info;
TN_API tn_pass_info tn_pass_current(void);
/* Whether that pass computes the gradient of t. */
TN_API int tn_pass_reaches(tn_tensor *t);

/* ---- Tensors -----------------------------------------------------------------------------------*/

TN_API int tn_requires_grad(tn_tensor *t);
/* Leaves of floating or complex dtype only: TN_E_STATE. */
TN_API tn_status tn_set_requires_grad(tn_tensor *t, int on);
TN_API int tn_is_leaf(tn_tensor *t);
/* The accumulated gradient, borrowed; NULL when there is none. */
TN_API tn_tensor *tn_grad_get(const tn_tensor *t);
/* The same as a new reference, where other threads may set it or run backward passes. */
TN_API tn_tensor *tn_grad_ref(const tn_tensor *t);
/* Sets it (a reference is kept) or clears it with NULL. Shape, dtype and device must be t's. */
TN_API tn_status tn_grad_set(tn_tensor *t, tn_tensor *grad);
/* The same elements without history, whose changes in place nobody counts: saved tensors do not notice
 * them. */
TN_API tn_status tn_data(tn_tensor *t, tn_tensor **ret_tensor);
/* Cuts t off from its history in place. Views are refused: TN_E_STATE. */
TN_API tn_status tn_detach_(tn_tensor *t);
/* Keeps the gradient of a tensor that is no leaf, too. */
TN_API tn_status tn_retain_grad(tn_tensor *t);
TN_API int tn_retains_grad(const tn_tensor *t);
/* The tensor that t is a view of, borrowed; NULL when t is no tracked view. */
TN_API tn_tensor *tn_view_base(const tn_tensor *t);
/* The call that made t and which of its outputs t is; borrowed, NULL for a leaf. */
TN_API tn_status tn_grad_fn(tn_tensor *t, tn_node **ret_node, int64_t *ret_nr);

/* ---- Hooks -------------------------------------------------------------------------------------
 * `release(ctx)` (may be NULL) is called once, when the hook is removed or what it hangs on dies. A
 * handle is given back with tn_hook_remove, or with tn_hook_forget, which leaves the hook in place. */

/* Sees the gradient of a tensor; *ret_grad may be set to a new reference that replaces it. */
typedef tn_status (*tn_tensor_hook_fn)(void *ctx, tn_tensor *grad, tn_tensor **ret_grad);
/* Runs after the gradient of a leaf was added to its .grad. */
typedef tn_status (*tn_leaf_hook_fn)(void *ctx, tn_tensor *leaf);
/* Before a node runs. grads: by output, NULL where none came. Entries of ret_grads (all NULL at
 * entry) that are set replace them. */
typedef tn_status (*tn_pre_hook_fn)(void *ctx, tn_tensor *const *grads, int64_t n,
                                    tn_tensor **ret_grads);
/* After a node ran. results: gradients by input; ret_results replaces them likewise. */
typedef tn_status (*tn_post_hook_fn)(void *ctx, tn_tensor *const *results, int64_t n,
                                     tn_tensor *const *grads, int64_t ngrads,
                                     tn_tensor **ret_results);

TN_API tn_status tn_hook_tensor(tn_tensor *t, tn_tensor_hook_fn fn, void *ctx,
                                void (*release)(void *ctx), tn_hook **ret_hook);
TN_API tn_status tn_hook_leaf(tn_tensor *t, tn_leaf_hook_fn fn, void *ctx,
                              void (*release)(void *ctx), tn_hook **ret_hook);
/* Of a leaf, around the moment in which its gradient is added: as hooks of the node there. They see
 * what tensor hooks have made of the gradient, and do not run where it is handed to the caller. */
TN_API tn_status tn_hook_leaf_pre(tn_tensor *t, tn_pre_hook_fn fn, void *ctx,
                                  void (*release)(void *ctx), tn_hook **ret_hook);
TN_API tn_status tn_hook_leaf_post(tn_tensor *t, tn_post_hook_fn fn, void *ctx,
                                   void (*release)(void *ctx), tn_hook **ret_hook);
TN_API tn_status tn_hook_node_pre(tn_node *n, tn_pre_hook_fn fn, void *ctx,
                                  void (*release)(void *ctx), tn_hook **ret_hook);
TN_API tn_status tn_hook_node_post(tn_node *n, tn_post_hook_fn fn, void *ctx,
                                   void (*release)(void *ctx), tn_hook **ret_hook);
TN_API void tn_hook_remove(tn_hook **hook);
TN_API void tn_hook_forget(tn_hook **hook);

/* ---- The graph ---------------------------------------------------------------------------------*/

TN_API tn_node *tn_node_ref(tn_node *n);
TN_API void tn_node_unref(tn_node **n);
/* "MulBackward0", written into dst (size bytes, cut to fit); returns dst. */
TN_API char *tn_node_name(const tn_node *n, char *dst, size_t size);
/* The name as messages say it, without "Backward0". */
TN_API char *tn_node_short_name(const tn_node *n, char *dst, size_t size);
/* n goes by this name, which is not copied and must last as long as the process. */
TN_API void tn_node_call(tn_node *n, const char *name);
TN_API uint64_t tn_node_sequence(const tn_node *n);
/* What a host language keeps with a node: its object for the node, which it sets and clears itself,
 * and data that is released with the node. NULL: out of memory. */
typedef struct tn_node_host {
    void *object; /* not owned */
    void *data;
    void (*release)(void *data);
} tn_node_host;
TN_API tn_node_host *tn_node_host_slots(tn_node *n);

/* For a host language's collector: shows the callbacks and data that only t keeps alive, through its
 * hooks and through the part of the graph that belongs to nothing else. t itself must be owned by the
 * host alone. Takes no references and calls nothing but fn. */
typedef void (*tn_reach_fn)(void *arg, void *data, void (*release)(void *data));
TN_API void tn_tensor_reach(const tn_tensor *t, tn_reach_fn fn, void *arg);
/* The same of a node that has one owner, who asks. */
TN_API void tn_node_reach(const tn_node *n, tn_reach_fn fn, void *arg);

/* Where forward ran, while anomaly detection was on; borrowed, NULL when unknown. */
TN_API const char *tn_node_where(const tn_node *n);

/* Where the gradient of input i goes: a node, or a leaf, both borrowed; both NULL: nowhere. */
typedef struct tn_edge {
    tn_node *node;
    tn_tensor *leaf;
    int64_t nr; /* which output of `node` */
} tn_edge;
TN_API int64_t tn_node_edge_count(const tn_node *n);
TN_API tn_edge tn_node_edge(const tn_node *n, int64_t i);

/* What is known of output i; shape is borrowed from the node. */
typedef struct tn_node_output {
    int32_t dtype;
    int32_t ndim;
    const int64_t *shape;
    tn_device device;
} tn_node_output;
TN_API int64_t tn_node_output_count(const tn_node *n);
TN_API tn_node_output tn_node_output_at(const tn_node *n, int64_t i);
/* A tensor of output i's dtype, device and sizes, of one zero seen everywhere, with that place of the
 * graph as its history: what a backward pass takes where the output itself is gone. */
TN_API tn_status tn_node_stand_in(tn_node *n, int64_t i, tn_tensor **ret_tensor);

/* The tensor that an operator's call saved as its argument or result `name`, a new reference; NULL when
 * that is not saved. TN_E_STATE when it was freed or overwritten. */
TN_API tn_status tn_node_saved(tn_node *n, const char *name, tn_tensor **ret_tensor);

/* ---- Functions of a host language --------------------------------------------------------------
 * 1. tn_host_node_new(callbacks, inputs): a node whose edges lead to the inputs' history; NULL when
 *    no input requires a gradient or recording is off.
 * 2. Run the forward without recording, keep tensors with tn_saved_new.
 * 3. tn_host_node_finish(node, outputs, flags): makes the outputs results of the node. */
typedef struct tn_host_node {
    const char *name; /* copied; "ScaleBackward" */
    /* grads: n incoming gradients by output, NULL where none came unless `materialize`. Sets
     * ret_grads[0 .. m-1], NULL at entry, to new references; NULL stays "no gradient". */
    tn_status (*apply)(void *ctx, tn_node *node, tn_tensor *const *grads, int64_t n,
                       tn_tensor **ret_grads, int64_t m);
    void (*release_saved)(void *ctx); /* optional: the pass is over and the graph not retained */
    void (*release)(void *ctx);       /* optional: the node is gone */
    void *ctx;
    int materialize; /* zeros instead of NULL for outputs without a gradient */
} tn_host_node;
TN_API tn_status tn_host_node_new(const tn_host_node *callbacks, tn_tensor *const *inputs,
                                  int64_t ninputs, tn_node **ret_node);
/* The ctx the node was made with; NULL for nodes of operators. */
TN_API void *tn_host_node_ctx(const tn_node *n);

#define TN_OUTPUT_DIRTY 0x1u   /* an input, changed in place */
#define TN_OUTPUT_NO_GRAD 0x2u /* not differentiable */
/* flags may be NULL. ret_outputs[i] is output i, or an alias of it where an input is returned as it
 * is. Integer outputs never require a gradient. */
TN_API tn_status tn_host_node_finish(tn_node *n, tn_tensor *const *outputs, int64_t noutputs,
                                     const uint32_t *flags, tn_tensor **ret_outputs);
/* The same for an output of a forward that nobody recorded: an input that is returned as it is becomes
 * an alias. Views of inputs are noted as the function's, which in-place changes would pass by. */
TN_API tn_status tn_function_output(tn_tensor *t, int is_input, tn_tensor **ret_output);

/* Keeps t for the backward of `owner` (NULL: of nobody in particular) without making a cycle when t is
 * an output of it; call it after tn_host_node_finish. */
TN_API tn_status tn_saved_new(tn_tensor *t, tn_node *owner, tn_saved **ret_saved);
/* TN_E_STATE when the tensor was written in place since. */
TN_API tn_status tn_saved_unpack(tn_saved *s, tn_node *owner, tn_tensor **ret_tensor);
TN_API void tn_saved_free(tn_saved **s);

/* While pushed, the calling thread's saved tensors go through these functions: pack turns a tensor
 * into a handle, unpack makes a tensor of it, drop frees the handle. */
typedef struct tn_saved_hooks {
    tn_status (*pack)(void *ctx, tn_tensor *t, void **ret_handle);
    tn_status (*unpack)(void *ctx, void *handle, tn_tensor **ret_tensor);
    void (*drop)(void *ctx, void *handle);
    void (*release)(void *ctx); /* optional: the last handle is gone and the hooks are popped */
    void *ctx;
} tn_saved_hooks;
TN_API tn_status tn_saved_hooks_push(const tn_saved_hooks *hooks);
TN_API void tn_saved_hooks_pop(void);

/* ---- Functions that are transformed ------------------------------------------------------------*/

/* Between the two the calling thread runs a function whose gradients belong to the transform that asks
 * for them. A recorded write to a tensor of before is refused, as its history would outlive the
 * transform; one into the memory of these n tensors, the function's arguments, is not. They nest. */
TN_API tn_status tn_transform_enter(tn_tensor *const *arguments, int64_t n);
TN_API void tn_transform_leave(void);
TN_API int tn_transform_runs(void);

/* ---- Finding mistakes --------------------------------------------------------------------------*/

/* Anomaly detection of the calling thread: nodes remember where forward ran, failures name it, and
 * with check_nan a NaN gradient is a failure. Returns the old state: bit 0 on, bit 1 check_nan. */
TN_API int tn_anomaly_set(int on, int check_nan);
TN_API int tn_anomaly_get(void);

/* Compares the gradients of a function with central differences. fn computes one float64 output from
 * n float64 inputs; inputs that do not require a gradient are held fixed. TN_E_STATE names the entry
 * that differs by more than atol + rtol * |numerical|. ret_worst, if not NULL: the largest
 * difference. */
typedef tn_status (*tn_gradcheck_fn)(void *ctx, tn_tensor *const *inputs, int64_t n,
                                     tn_tensor **ret_output);
TN_API tn_status tn_gradcheck(tn_gradcheck_fn fn, void *ctx, tn_tensor *const *inputs, int64_t n,
                              double eps, double atol, double rtol, double *ret_worst);

#ifdef __cplusplus
}
#endif
#endif
