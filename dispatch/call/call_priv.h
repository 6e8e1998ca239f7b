/* call_priv.h: from a call to a kernel: what the run functions of the operator kinds share. */
#ifndef TENON_CALL_PRIV_H
#define TENON_CALL_PRIV_H

#include "args_priv.h"
#include "catch_priv.h"
#include "device_priv.h"
#include "tensor_priv.h"

/* ---- dispatch.c --------------------------------------------------------------------------------*/
/* The one entrance: checks dims, runs layers when any is on, then op->run. rets: op->nout new
 * references. args is scratch of the call and may be changed by it. */
tn_status tn_op_call(const tn_op *op, void *args, tn_tensor **rets);
/* The same, and drops the n results (in-place and out= forms). */
tn_status tni_call_discard(const tn_op *op, void *args, int n);

/* op->run, by kind. TN_DECLINE: no kernel takes the call. */
tn_status tni_run_pointwise(const tn_op *op, void *args, tn_tensor **rets);
tn_status tni_run_reduction(const tn_op *op, void *args, tn_tensor **rets);
tn_status tni_run_structured(const tn_op *op, void *args, tn_tensor **rets);
tn_status tni_run_list(const tn_op *op, void *args, tn_tensor **rets);
tn_status tni_run_composite(const tn_op *op, void *args, tn_tensor **rets);
/* A composite for which somebody has registered kernels (composed.c): by one of them, or like this. */
typedef tn_status (*tni_composer)(const tn_op *op, const void *args, tn_tensor **rets);
tn_status tni_compose(const tn_op *op, const void *args, tn_tensor **rets);
/* t, or channels last where `like` is an image that lies so. */
tn_status tni_lay_as_image(const tn_tensor *like, tn_tensor *t, tn_tensor **ret);
tn_status tni_run_composite_by(const tn_op *op, void *args, tn_tensor **rets, tni_composer make);
tn_status tni_run_composed(const tn_op *op, void *args, tn_tensor **rets);
/* Whether kernels for the operator can be called; why not. */
bool tni_takes_kernels(const tn_op *op, const char **ret_why);
/* A composite that computes half precision in float32 (wide.c): is there any, and the call. */
bool tni_is_half_call(const tn_op *op, const void *args);
tn_status tni_compose_wide(const tn_op *op, const void *args, tn_tensor **rets);
/* A composite by its parts, also of tensors that it does not take whole. */
tn_status tni_run_parts(const tn_op *op, void *args, tn_tensor **rets);
tn_status tni_run_view(const tn_op *op, void *args, tn_tensor **rets);

/* The kernel that a call looks for, by kind. */
typedef struct tni_wanted {
    tn_device device;
    int32_t dtype;
} tni_wanted;
tn_status tni_wanted_pointwise(const tn_op *op, const void *args, tni_wanted *ret_wanted);
tn_status tni_wanted_reduction(const tn_op *op, const void *args, tni_wanted *ret_wanted);
tn_status tni_wanted_structured(const tn_op *op, const void *args, tni_wanted *ret_wanted);

/* ---- kernel.c ----------------------------------------------------------------------------------*/
/* The words of all tensor inputs, or-ed. */
uint64_t tni_input_words(const tn_op *op, const void *args);
/* What is left to do after a kernel that declined, failed or borrowed scratch memory. */
tn_status tni_kernel_after(const tn_cell *cell, tn_call *call, const void *args, tn_status st);
/* tni_kernel_run when there is: with streams, notes for failures that come late, and the capture of
 * the thread's work. */
tn_status tni_kernel_special(const tn_op *op, const tn_cell *cell, tn_device device, int32_t dtype,
                             const void *args);
/* TN_CALL_* that kernels get now. */
uint32_t tni_call_flags(void);
/* Runs the candidates from `cell` on until one does not decline; TN_DECLINE when all do. */
static inline tn_status tni_kernel_run(const tn_op *op, const tn_cell *cell, tn_device device,
                                       int32_t dtype, const void *args) {
    if (TN_UNLIKELY(atomic_load_explicit(&tni_any_special, memory_order_relaxed)))
        return tni_kernel_special(op, cell, device, dtype, args);
    tn_call call = {&tni_host,    cell->ctx, NULL, &op->info,
                    device.index, dtype,     0,    (uint32_t)device.slot};
    tn_status st = tni_caught(cell->fn(&call, args));
    if (TN_LIKELY(st == TN_OK && tni_tls.scratch == NULL)) return TN_OK;
    return tni_kernel_after(cell, &call, args, st);
}
/* The error for a call that no candidate takes; says what was tried. */
tn_status tni_kernel_missing(const tn_op *op, tn_device device, int32_t dtype);
/* Memory and generators for the kernel that runs; all of it is given back when the kernel returns. */
tn_status tni_scratch_lend(const tn_call *call, uint64_t bytes, void **ret_data);
tn_status tni_generator_lend(const tn_call *call, tn_generator *gen, uint64_t blocks,
                             tn_rng *ret_rng);
void tni_generator_return(const tn_call *call, tn_generator *gen);
/* The kernel of `call` has returned with `st`: takes back what it borrowed; a generator that it kept makes
 * success a failure. */
tn_status tni_loans_end(const tn_call *call, const char *plugin, tn_status st);

/* ---- checks.c ----------------------------------------------------------------------------------*/
/* What the C functions of operators ask of their arguments before anything is done. */
static inline bool tni_lacks_ints(tn_ints list) { return list.n > 0 && !list.v; }
bool tni_lacks_tensors(tn_tensors list, bool optional);
tn_status tni_fail_pointer(const tn_op *op);
/* Failures with the words users of PyTorch know. */
tn_status tni_fail_null(const tn_op *op, int input);
tn_status tni_fail_devices(tn_device a, tn_device b);

/* Refuses what the entry says (`refuses`) among the tensors of a call. */
tn_status tni_check_kinds(const tn_op *op, const void *args);

/* May `out` be given for this call? Leaves that require a gradient, out= with gradients, ... */
tn_status tni_check_given(const tn_op *op, const void *args, tn_tensor *out, bool inplace,
                          uint64_t any_input_word);
/* The same for an operator that takes sparse tensors; tni_check_given says TN_DECLINE to one. */
tn_status tni_check_given_sparse(const tn_op *op, const void *args, tn_tensor *out, bool inplace,
                                 uint64_t any_input_word);
/* Read-only memory, and a result dtype that the output cannot hold. */
tn_status tni_check_writable(const tn_op *op, const tn_tensor *out, int32_t result);
/* That what is written, in place or with out=, lies apart from the inputs, as the entry asks. */
tn_status tni_check_apart(const tn_op *op, const void *args, const tn_tensor *out, bool inplace);
/* What the entry asks of an out= tensor (`out`): its dtype, that it lies apart from the inputs; it has
 * to be where the result is. */
tn_status tni_check_out(const tn_op *op, const void *args, const tn_tensor *out, int32_t result,
                        tn_device device);
tn_status tni_fail_overlap(void);
/* Whether the in-place form of op goes by op->repeated, in a call whose inputs have the word `any`. */
bool tni_takes_repeated(const tn_op *op, const tn_tensor *given, uint64_t any);
/* Gives an out= tensor a new shape (and storage where its own is too small). */
tn_status tni_resize_out(tn_tensor *out, int32_t ndim, const int64_t *shape);
/* The tensors that an operator with TNI_OP_WRITES writes; see note [Written arguments]. May it, in a
 * call whose inputs have the word `any`? */
tn_status tni_check_written(const tn_op *op, const void *args, uint64_t any);
/* t may share memory with one of them, or with what an operator writes in place. */
bool tni_overlaps_written(const tn_op *op, const void *args, const tn_tensor *t);
/* Note [Given outputs]: a tensor that is given with out= may be, or may lie within, one that the call reads. Until
 * the kernel has run it keeps its memory and its shape; a kernel that cannot write it directly
 * writes a result of its own, which tni_give then moves there. */
tn_status tni_give(tn_tensor *given, tn_tensor *result);
/* Two tensors that are given for results of one call must lie apart. */
tn_status tni_check_outputs_apart(const tn_op *op, void *args);
/* `out` shares memory with a tensor that the call reads, in lists as well. */
bool tni_overlaps_input(const tn_op *op, const void *args, const tn_tensor *out);
/* Counts the writes. */
void tni_bump_written(const tn_op *op, const void *args);
/* Whether a call writes to arguments that its operator may write to: batch_norm in training alone. */
bool tni_writes_now(const tn_op *op, const void *args);
/* Records a call that returned `rets`, if it is to be recorded. */
tn_status tni_record_results(const tn_op *op, void *args, tn_tensor **rets);
static inline tn_status tni_record_call(const tn_op *op, void *args, uint64_t any,
                                        tn_tensor **rets) {
    return tni_recording(any) && op->grad ? tni_record_results(op, args, rets) : TN_OK;
}
/* The gradient of operators whose entry says that it is missing: fails and names the operator. */
tn_status tni_no_derivative(tn_gctx *c);

/* ---- sparse.c ----------------------------------------------------------------------------------*/
/* Whether a tensor of the call is sparse, and the call by the operator's rule for that. Dense calls pay
 * nothing: a run function says TN_DECLINE when it meets such a tensor. */
bool tni_has_sparse(const tn_op *op, const void *args);
tn_status tni_run_sparse(const tn_op *op, void *args, tn_tensor **rets);

/* The same for tensors that the host language computes (wrapped.c). */
bool tni_has_wrapped(const tn_op *op, const void *args);
tn_status tni_run_wrapped(const tn_op *op, void *args, tn_tensor **rets);

/* Late tensors (core_priv.h) among those of the call, and memory for them. */
bool tni_has_late(const tn_op *op, const void *args);
tn_status tni_settle_args(const tn_op *op, const void *args);

/* ---- fallback.c --------------------------------------------------------------------------------*/
/* Whether the operator's composite serves calls of a device that has no kernel for it. Where the
 * table knows what it is made of (`parts`, operators with kernels), the device must have these for
 * the dtype, a floating one that is not computed in a wider one; else one call on the CPU is better
 * than many. */
bool tni_composite_serves(const tn_op *op, int32_t device_slot, int32_t dtype);
/* How a call runs whose kernel for (device, dtype) may be missing: a TN_WAY_*. */
int32_t tni_way_of(const tn_op *op, tn_device device, int32_t dtype);
/* For a call that no kernel takes: done anew in another way. */
tn_status tni_run_fallback(const tn_op *op, void *args, tn_tensor **rets);
/* op->run, or what can be done when there is no kernel. */
static inline tn_status tni_op_run(const tn_op *op, void *args, tn_tensor **rets) {
    tn_status st = atomic_load_explicit(&op->run, memory_order_relaxed)(op, args, rets);
    return TN_UNLIKELY(st == TN_DECLINE) ? tni_run_fallback(op, args, rets) : st;
}

#endif
