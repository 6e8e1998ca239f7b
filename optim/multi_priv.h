/* multi_priv.h: lists of tensors on their way to a multi-tensor kernel.
 *
 * A kernel walks memory, not indices: all tensors of one parameter must be dense and in the same axis
 * order. The few that are not are replaced by packed copies for the call and copied back afterwards. */
#ifndef TENON_OPTIM_MULTI_PRIV_H
#define TENON_OPTIM_MULTI_PRIV_H

#include "scope_priv.h"

#define TNI_MULTI_ROLES 6

typedef struct tni_role {
    const char *name;
    tn_views in; /* n is 0 where the role is not used */
    bool written;
    bool counter; /* one number per parameter, of its own dtype, on the host or beside it */
} tni_role;

typedef struct tni_multi {
    const char *op;
    tni_role role[TNI_MULTI_ROLES]; /* role 0: the parameters */
    int roles;
    int64_t n;
    tn_tensor **used;  /* roles * n, what the kernel gets; NULL before tni_multi_begin */
    tn_tensor **temps; /* roles * n, owned; NULL where the tensor itself is used */
} tni_multi;

static inline tn_views tni_multi_views(tn_tensors t) {
    tn_views v = {(tn_view *const *)(const void *)t.v, t.n};
    return v;
}

/* Checks the lists and lays them out. Release with tni_multi_end whatever it returns. */
tn_status tni_multi_begin(tni_multi *m);
/* The end of the run of parameters from `begin` on that one kernel call can take. */
int64_t tni_multi_run_end(const tni_multi *m, int64_t begin);
/* Entries begin .. end of one role. */
tn_tensors tni_multi_slice(const tni_multi *m, int role, int64_t begin, int64_t end);
/* After success: copies back what was packed, counts the writes. Frees everything. Returns st, or
 * the first failure of its own. */
tn_status tni_multi_end(tni_multi *m, tn_status st);

/* The learning rate of a call, a number or a tensor of one element. *ret_rate is a new reference to what
 * the parameter's device reads by itself, so that a graph follows it: float32 or float64 there; it stays
 * what it was where *lr is the rate, because there is no tensor, or the host has it or counts the steps. */
tn_status tni_multi_rate(const tni_multi *m, const tn_view *rate, const tn_view *param,
                         const tn_view *step, double *lr, tn_tensor **ret_rate);
/* Whether a structured step got its rate like that; `step` is NULL where steps are not counted. */
tn_status tni_multi_check_rate(const tni_multi *m, const tn_view *rate, const tn_view *param,
                               const tn_view *step);
/* For steps that depend on their number: a device that records by itself would repeat them, but not
 * what the host counts. */
tn_status tni_multi_check_capture(const tni_multi *m, const tn_view *param, const tn_view *step);

/* The rule of a structured step, whose kernel takes the lists as they are: checks them and sets the
 * compute dtype, the first tensor's. Fills in m->op; there is nothing to release. */
tn_status tni_multi_infer(tn_infer *inf, tni_multi *m);

/* ---- Steps out of simpler operators ------------------------------------------------------------
 * For devices that have kernels for these parts and none for the whole. What each step computes is stated
 * at its kernels, backends/common/rules.h and the CPU's. Counters of Adam are not read, so that a graph can
 * hold its step; those of the other rules are. */
static inline tn_tensor *scope_scaled_sum(tni_scope *s, tn_tensor *x, tn_tensor *y, double factor) {
    return scope_add(s, x, scope_mul_number(s, y, factor));
}

static inline void scope_assign(tni_scope *s, tn_tensor *to, tn_tensor *value) {
    tn_tensor *same = NULL;
    if (s->st != TN_OK) return;
    s->st = tn_copy_(to, value, 0, &same);
    tn_tensor_unref(&same);
}

/* The learning rate of a call, which the host reads where it is a tensor. */
static inline tn_status tni_rate_of(double lr, const tn_view *rate, double *ret_lr) {
    tn_scalar value = tn_scalar_float(lr);
    if (rate) TN_TRY(tn_tensor_item(tni_t(rate), &value));
    *ret_lr = value.re;
    return TN_OK;
}

#endif
