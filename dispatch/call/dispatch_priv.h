/* dispatch_priv.h: what the run functions of the operator kinds share. */
#ifndef TENON_DISPATCH_PRIV_H
#define TENON_DISPATCH_PRIV_H

#include "catch_priv.h"
#include "registry_priv.h"
#include "tensor_priv.h"

/* The i-th tensor input and the i-th output slot of an argument struct. */
static inline tn_tensor *tni_in_slot(const tn_op *op, const void *args, int i) {
    const char *p = (const char *)args + op->in_offset[i];
    return *(tn_tensor *const *)(const void *)p;
}
static inline tn_tensor **tni_out_slot(const tn_op *op, void *args, int i) {
    char *p = (char *)args + op->out_offset[i];
    return (tn_tensor **)(void *)p;
}

/* The resolved cell, without any search: NULL sends the caller to the slow path. */
static inline const tn_cell *tni_cell(const tn_op *op, int32_t device, int32_t dtype) {
    const tn_row *row = atomic_load_explicit(&op->row[device], memory_order_acquire);
    return row ? atomic_load_explicit(&row->cell[dtype], memory_order_acquire) : NULL;
}

/* What is left to do after a kernel that declined, failed or borrowed scratch memory. */
tn_status tni_kernel_after(const tn_cell *cell, tn_call *call, const void *args, tn_status st);
/* Whether there is, or was, a device besides the CPU, or work that was captured. */
extern _Atomic bool tni_any_special;
/* tni_kernel_run when there is: with streams, notes for failures that come late, and the capture of
 * the thread's work (launch.c). */
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

/* Failures with the words users of PyTorch know. */
tn_status tni_fail_null(const tn_op *op, int input);
tn_status tni_fail_devices(tn_device a, tn_device b);

/* May `out` be given for this call? Leaves that require a gradient, out= with gradients, ... */
tn_status tni_check_given(const tn_op *op, const void *args, tn_tensor *out, bool inplace,
                          uint64_t any_input_word);
/* Read-only memory, and a result dtype that the output cannot hold. */
tn_status tni_check_writable(const tn_op *op, const tn_tensor *out, int32_t result, bool inplace);
/* Gives an out= tensor a new shape (and storage where its own is too small). */
tn_status tni_resize_out(tn_tensor *out, int32_t ndim, const int64_t *shape);
/* The tensors that an operator with TNI_OP_WRITES writes; see note [Written arguments]. May it, in a
 * call whose inputs have the word `any`? */
tn_status tni_check_written(const tn_op *op, const void *args, uint64_t any);
/* t shares memory with one of them. */
bool tni_overlaps_written(const tn_op *op, const void *args, const tn_tensor *t);
/* Counts the writes. */
void tni_bump_written(const tn_op *op, const void *args);
/* Records a call whose results are no list, if it is to be recorded. */
tn_status tni_record_call(const tn_op *op, void *args, uint64_t any, tn_tensor *const *outs);
bool tni_shape_is(const tn_tensor *t, int32_t ndim, const int64_t *shape);
/* Gives a packed new tensor the dimension order of `like` (same shape). */
void tni_like_layout(tn_tensor *t, const tn_view *like);

/* ---- Fallback (fallback.c) ---- */
/* TN_DECLINE, for a run function that found no kernel: tni_op_run goes on with the fallback. */
tn_status tni_decline(tn_device device, int32_t dtype);
tn_status tni_run_fallback(const tn_op *op, void *args, tn_tensor **rets);
/* The device could run the call in a wider dtype. */
bool tni_can_widen(const tn_op *op, int32_t device_slot, int32_t dtype);
/* op->run, or what can be done when there is no kernel. */
static inline tn_status tni_op_run(const tn_op *op, void *args, tn_tensor **rets) {
    tn_status st = op->run(op, args, rets);
    return TN_UNLIKELY(st == TN_DECLINE) ? tni_run_fallback(op, args, rets) : st;
}

#endif
